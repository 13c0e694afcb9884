"""SQLite tables as columns: what all readers of databases share.

Databases come from strangers: they are opened read-only and immutable, their own triggers, views
and functions never run, and a query that works too long is stopped. Schemas differ between
versions: columns are asked for by name, and a missing table or column reads as absent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from traceconv.errors import MalformedInputError
from traceconv.readers._sqlite_file import MAGIC, DatabaseFile
from traceconv.source import Source

STEPS_PER_CHECK = 1_000_000
MAX_CHECKS = 200_000
"""Virtual machine steps between two checks, and checks before a query is stopped."""

MAX_TEXT = 64 << 20
"""Bytes of one string or blob."""

_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_INTERRUPT,
)
"""Errors after which the rows before are still good."""

ROWID = "rowid"
"""Every table has this number of its rows; asked for like a column."""

Column = NDArray[Any]


def is_sqlite(head: bytes) -> bool:
    """Whether a file that begins so is an SQLite database."""
    return head.startswith(MAGIC)


@contextmanager
def opened(source: Source, name: str, salvage: bool = False) -> Iterator[Database]:
    """The database ``name`` of ``source``, for reading.

    It is copied first if it is packed, or if its journal (``-wal``) lies beside it: a writer that
    was killed leaves its last rows there, and taking them over changes files.

    Args:
        salvage: read what can be read of a database that is cut off or damaged;
            :attr:`Database.damage` then says what broke off.

    Raises:
        MalformedInputError: it is no readable database.
        SourceError: it cannot be read or copied.
    """
    with (
        closing(DatabaseFile(source, name, salvage)) as file,
        _connected(file, source.title(name), salvage) as database,
    ):
        if file.cut:
            database.damage.append("end of file")
        yield database


@contextmanager
def _connected(file: DatabaseFile, title: str, salvage: bool) -> Iterator[Database]:
    uri = f"file:{quote(str(file.path.absolute()))}?mode={file.mode}"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT)
            connection.text_factory = _text
            yield Database(connection, title, salvage)
    except sqlite3.Error as e:
        raise MalformedInputError(
            title, "", f"not a readable database: {e}; export it again, or copy its -wal file too"
        ) from e


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class Database:
    """An open database.

    Attributes:
        tables: the columns of every real table, by name.
        damage: tables that broke off while they were read, if it is read to salvage it.
    """

    def __init__(self, connection: sqlite3.Connection, title: str, salvage: bool = False) -> None:
        self.title = title
        self.damage: list[str] = []
        self._connection = connection
        self._salvage = salvage
        names = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        self.tables: dict[str, tuple[str, ...]] = {
            name: tuple(r[1] for r in connection.execute(f"PRAGMA table_info({_quoted(name)})"))
            for name in names
        }

    def count(self, table: str) -> int:
        """Rows of a table; 0 if it is not there."""
        if table not in self.tables:
            return 0
        return int(self._run(f"SELECT COUNT(*) FROM {_quoted(table)}").fetchone()[0])

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table with these columns is there."""
        return table in self.tables and set(columns) <= {*self.tables[table], ROWID}

    def distinct(self, table: str, column: str) -> list[int]:
        """The different integers of a column, ascending."""
        if not self.has(table, column):
            return []
        query = f"SELECT DISTINCT {_quoted(column)} FROM {_quoted(table)} NOT INDEXED"
        return sorted({v for (v,) in self._rows(query, table) if isinstance(v, int)})

    def columns(self, table: str, wanted: Mapping[str, Any]) -> dict[str, Column]:
        """Columns as arrays, in the order of rows.

        Args:
            wanted: name -> what stands for NULL and for a missing column. An int asks for int64,
                a float for float64, NaN included; numbers stored as text are read as numbers.
                Names separated by "|" are one column that was renamed over time.

        Rows whose number is no number read as the stand-in.
        """
        present = self.tables.get(table)
        dtype = [(n.split("|")[0], "i8" if type(d) is int else "f8") for n, d in wanted.items()]
        if present is None:
            return {name: np.empty(0, kind) for name, kind in dtype}
        try:
            plain = [_plain_term(n, default, present) for n, default in wanted.items()]
            rows = self._fetched(table, plain, np.dtype(dtype))
        except (TypeError, ValueError, OverflowError):  # something in it is no number
            terms = [_term(n, default, present) for n, default in wanted.items()]
            rows = self._fetched(table, terms, np.dtype(dtype))
        return {name: np.ascontiguousarray(rows[name]) for name, _ in dtype}

    def _fetched(self, table: str, terms: Iterable[str], dtype: Any) -> Column:
        query = f"SELECT {', '.join(terms)} FROM {_quoted(table)} NOT INDEXED"
        return np.fromiter(self._rows(query, table), dtype)

    def texts(self, table: str, key: str, value: str) -> dict[int, str]:
        """A table of names: key -> value. Rows without either are left out."""
        if not self.has(table, key, value):
            return {}
        query = f"SELECT {_quoted(key)}, {_quoted(value)} FROM {_quoted(table)}"
        return {
            k: v if isinstance(v, str) else _text(v)
            for k, v in self._rows(query, table)
            if isinstance(k, int) and isinstance(v, (str, bytes))
        }

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """All rows of a small table as tuples; None for NULL and for missing columns."""
        present = self.tables.get(table)
        if present is None:
            return []
        terms = [_quoted(c) if c in present else "NULL" for c in columns]
        return list(self._rows(f"SELECT {', '.join(terms)} FROM {_quoted(table)}", table))

    def _rows(self, query: str, table: str) -> Iterable[tuple[Any, ...]]:
        """The rows of a query; up to the first damaged page if the database is to be salvaged."""
        return self._kept(query, table) if self._salvage else self._run(query)

    def _kept(self, query: str, table: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._run(query)
        except sqlite3.DatabaseError as e:
            if e.sqlite_errorcode & 0xFF not in _DAMAGE:
                raise
            if table not in self.damage:
                self.damage.append(table)

    def _run(self, query: str) -> sqlite3.Cursor:
        checks = 0

        def give_up() -> int:
            nonlocal checks
            checks += 1
            return checks > MAX_CHECKS

        self._connection.set_progress_handler(give_up, STEPS_PER_CHECK)
        return self._connection.execute(query)


def _plain_term(names: str, default: Any, present: tuple[str, ...]) -> str:
    """One column of a SELECT, or what stands for it."""
    column, plain = _found(names, present), _literal(default)
    return plain if column is None else f"IFNULL({column}, {plain})"


def _found(names: str, present: tuple[str, ...]) -> str | None:
    found = next((n for n in names.split("|") if n in present), None)
    if found is None:
        return ROWID if names == ROWID else None
    return _quoted(found)


def _literal(default: Any) -> str:
    return "NULL" if default != default else repr(default)  # NULL is read as NaN


def _term(names: str, default: Any, present: tuple[str, ...]) -> str:
    """The same, a number of the wanted type whatever is stored."""
    column, plain = _found(names, present), _literal(default)
    if column is None or column == ROWID:
        return plain if column is None else column
    kind = "INTEGER" if type(default) is int else "REAL"
    number = f"CAST({column} AS {kind})"
    # text that is a number has the same digits again; anything else is not one
    return (
        f"CASE typeof({column}) WHEN 'integer' THEN {number} WHEN 'real' THEN {number} "
        f"WHEN 'text' THEN CASE WHEN TRIM({column}) NOT GLOB '*[0-9]*' "
        f"OR TRIM({column}) GLOB '*[^0-9.eE+-]*' THEN {plain} "
        f"WHEN {column} GLOB '*[eE]*' THEN CAST(CAST({column} AS REAL) AS {kind}) "
        f"ELSE {number} END ELSE {plain} END"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
