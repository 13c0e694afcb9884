"""SQLite tables as columns: what all readers of databases share.

Databases are not trusted: inputs are never written to, their own triggers, views, functions and
computed columns never run, and a query that takes too long is stopped. Schemas differ between
versions: columns are requested by name, and a missing table or column reads as absent. Numbers are
decoded from the pages of the file where that is possible (3 to 10 times faster), else SQLite hands
out the rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import numpy as np

from traceconv.core.errors import MalformedInputError
from traceconv.core.source import Source
from traceconv.readers.shared.sqlite.files import (
    SCHEMA,
    ColumnRequest,
    DatabaseFile,
    Pages,
    PlainTable,
    plain_table,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWID = "rowid"
"""The number of a row, which every table has; requested like a column."""


def plain_term(names: str, default: Any, present: tuple[str, ...]) -> str:
    """A column of a SELECT as it is stored, or the default for it."""
    name, plain = found_in(names, present), _literal(default)
    return plain if name is None else f"IFNULL({quoted(name)}, {plain})"


def found_in(names: str, present: tuple[str, ...]) -> str | None:
    """The column that is meant, by its name in this database."""
    found = next((n for n in names.split("|") if n in present), None)
    return ROWID if found is None and names == ROWID else found


def _literal(default: Any) -> str:
    return "NULL" if default != default else repr(default)  # NULL is read as NaN


def checked_term(names: str, default: Any, present: tuple[str, ...]) -> str:
    """The same, a number of the requested type whatever is stored."""
    name, plain = found_in(names, present), _literal(default)
    if name is None:
        return plain
    column = quoted(name)
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


def quoted(name: str) -> str:
    """A name as SQL spells it."""
    if name == ROWID:
        return name
    return '"' + name.replace('"', '""') + '"'


STEPS_PER_CHECK = 1_000_000
"""Virtual machine steps between two checks whether a query takes too long."""

FREE_STEPS = 2_000_000_000
STEPS_PER_BYTE = 20
"""What a query may take: some seconds, and ten times what reading a row of 50 bytes takes."""

MAX_TEXT = 64 << 20
"""Bytes of one string or blob."""

FIRST_ROWS = 1000
"""Rows that are looked at to see whether a column holds anything."""

KEYS_AT_ONCE = 500
"""Keys named in one query."""

SPREAD = 4
"""Keys that lie among at most so many times as many are asked for from the first to the last."""

_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_INTERRUPT,
)
"""Errors after which the rows before are still good."""

Column: TypeAlias = "NDArray[Any]"


@contextmanager
def opened(source: Source, name: str, salvage: bool = False) -> Iterator[Database]:
    """The database ``name`` of ``source``, for reading.

    It is copied first if it is packed, or if its journal (``-wal``) is beside it: a writer that was
    killed leaves its last rows there, and taking them over changes files.

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
            database.damage.insert(0, "end of file")
        if file.torn:
            database.damage.append("end of its -wal file")
        yield database


@contextmanager
def _connected(file: DatabaseFile, title: str, salvage: bool) -> Iterator[Database]:
    uri = f"file:{quote(str(file.path.absolute()))}?mode={file.mode}"
    if not file.path.stat().st_size:
        raise MalformedInputError(title, "", "the file is empty; was its -wal file left behind?")
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT)
            connection.text_factory = _text
            pages = Pages(file.path) if file.whole else None
            yield Database(connection, title, salvage, pages, file.short)
    except (sqlite3.Error, UnicodeDecodeError) as e:  # SQLite's messages quote a broken schema
        raise MalformedInputError(
            title, "", f"not a readable database: {e}; export it again, or copy its -wal file too"
        ) from e


_text = partial(str, encoding="utf-8", errors="replace")
"""Text of bytes; called for every one that is read, and no Python by itself."""


class Database:
    """An open database.

    Attributes:
        tables: the columns of every real table, by name.
        damage: what is missing, if it is read to salvage it: tables that were read and lack rows,
            and "end of file", "sqlite_master" (whole tables), "end of its -wal file".
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        title: str,
        salvage: bool = False,
        pages: Pages | None = None,
        short: Collection[int] = (),
    ) -> None:
        self.title = title
        self.damage: list[str] = ["sqlite_master"] if SCHEMA in short else []
        self.tables: dict[str, tuple[str, ...]] = {}
        self._connection = connection
        self._salvage = salvage
        self._pages = pages
        self._short: set[str] = set()
        self._plain: dict[str, PlainTable] = {}
        (count,), (size,) = (
            connection.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "page_size")
        )
        self._bytes = int(count) * int(size)
        query = "SELECT name, rootpage, sql FROM sqlite_master WHERE type = 'table'"
        for name, root, sql in connection.execute(query).fetchall():
            if not isinstance(name, str):  # a bit of the schema is damaged
                self.damage.append(f"sqlite_master, {name!r:.40}")
                continue
            info = connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
            # columns that are hidden, or computed by an expression of whoever made the file
            self.tables[name] = tuple(row[1] for row in info if not row[6])
            if root in short:
                self._short.add(name)
            if plain := plain_table(root, sql, info):
                self._plain[name] = plain

    def damaged_places(self) -> list[str]:
        """What is missing, as places of issues."""
        return [f"table {one}" if one in self.tables else one for one in self.damage]

    def count(self, table: str) -> int:
        """Rows of a table; 0 if it is not there."""
        if table not in self.tables:
            return 0
        return int(self._run(f"SELECT COUNT(*) FROM {quoted(table)}").fetchone()[0])

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table with these columns is there."""
        return table in self.tables and set(columns) <= {*self.tables[table], ROWID}

    def distinct(self, table: str, column: str) -> list[int]:
        """The different integers of a column, ascending."""
        if not self.has(table, column):
            return []
        query = f"SELECT DISTINCT {quoted(column)} FROM {quoted(table)} NOT INDEXED"
        return sorted({v for (v,) in self._rows(query, table) if isinstance(v, int)})

    def filled(self, table: str, columns: Sequence[str]) -> list[str]:
        """Those of some columns that hold anything in the first rows of a table; not NULL, 0, empty
        text or an empty JSON object."""
        if not columns or not self.has(table, *columns):
            return []
        names = ", ".join(map(quoted, columns))
        tests = (f"MAX({quoted(one)} NOT IN (0, '', '{{}}'))" for one in columns)
        rows = f"SELECT {names} FROM {quoted(table)} LIMIT {FIRST_ROWS}"
        query = f"SELECT {', '.join(tests)} FROM ({rows})"
        [found] = [*self._rows(query, table)] or [(0,) * len(columns)]
        return [one for one, yes in zip(columns, found, strict=True) if yes]

    def columns(self, table: str, requested: Mapping[str, Any]) -> dict[str, Column]:
        """Columns as arrays, in the order of rows.

        Args:
            requested: name -> the value for NULL and for a missing column. An int asks for int64,
                a float for float64, NaN included; numbers stored as text are read as numbers.
                Names separated by "|" are one column that was renamed over time.

        Rows whose number is no number read as the stand-in.
        """
        present = self.tables.get(table)
        dtype = [(n.split("|")[0], "i8" if type(d) is int else "f8") for n, d in requested.items()]
        if present is None:
            return {name: np.empty(0, kind) for name, kind in dtype}
        found = self._decoded(table, requested, present)
        if found is not None:
            return {name: column for (name, _), column in zip(dtype, found, strict=True)}
        try:
            plain = [plain_term(n, default, present) for n, default in requested.items()]
            rows = self._fetched(table, plain, np.dtype(dtype))
        except (TypeError, ValueError, OverflowError):  # something in it is no number
            terms = [checked_term(n, default, present) for n, default in requested.items()]
            rows = self._fetched(table, terms, np.dtype(dtype))
        return {name: np.ascontiguousarray(rows[name]) for name, _ in dtype}

    def _decoded(
        self, table: str, requested: Mapping[str, Any], present: tuple[str, ...]
    ) -> list[Column] | None:
        """The same from the file itself, where it is plain enough; else None."""
        plain = self._plain.get(table)
        if self._pages is None or plain is None:
            return None
        names = [(found_in(n, present), default) for n, default in requested.items()]
        there = [
            ColumnRequest(
                present.index(name) if name != ROWID else -1, default, name == plain.rowid
            )
            for name, default in names
            if name is not None
        ]
        columns = self._pages.columns(plain.root, there or [ColumnRequest(-1, -1)])
        if columns is None:
            return None
        rows, read = len(columns[0]), iter(columns)
        return [
            next(read) if name is not None else np.full(rows, default) for name, default in names
        ]

    def _fetched(self, table: str, terms: Iterable[str], dtype: Any) -> Column:
        query = f"SELECT {', '.join(terms)} FROM {quoted(table)} NOT INDEXED"
        return np.fromiter(self._rows(query, table), dtype)

    def texts(
        self, table: str, key: str, value: str, only: NDArray[np.int64] | None = None
    ) -> dict[int, str]:
        """A table of names: key -> value. Rows without either are left out.

        Args:
            only: the keys that are needed, others may be found, too; None = all.
        """
        if not self.has(table, key, value):
            return {}
        query = f"SELECT {quoted(key)}, {quoted(value)} FROM {quoted(table)}"
        return {
            k: v if isinstance(v, str) else _text(v)
            for k, v in self._keyed(query, table, key, only)
            if isinstance(k, int) and isinstance(v, (str, bytes))
        }

    def blobs(self, table: str, key: str, value: str) -> dict[int, bytes]:
        """As :meth:`texts`, for values that are no text; text is given as its bytes."""
        if not self.has(table, key, value):
            return {}
        what = f"{quoted(key)}, CAST({quoted(value)} AS BLOB)"
        query = f"SELECT {what} FROM {quoted(table)} WHERE {quoted(value)} IS NOT NULL"
        rows = self._rows(query, table)
        return {k: v for k, v in rows if isinstance(k, int) and isinstance(v, bytes)}

    def _keyed(
        self, query: str, table: str, key: str, only: NDArray[np.int64] | None
    ) -> Iterable[tuple[Any, ...]]:
        """The rows of a query of two columns whose first is one of ``only``; by number of row,
        where that is what the key is, else by looking at all."""
        if only is None:
            return self._rows(query, table)
        plain = self._plain.get(table)
        if key == ROWID or (plain and plain.rowid == key):
            if len(only) > KEYS_AT_ONCE:
                low, high = int(only.min()), int(only.max())
                if high - low < SPREAD * len(only):
                    between = f"{query} WHERE {quoted(key)} BETWEEN {low} AND {high}"
                    return self._rows(between, table)
            some = (only[i : i + KEYS_AT_ONCE].tolist() for i in range(0, len(only), KEYS_AT_ONCE))
            lists = (",".join(map(str, keys)) for keys in some)
            asked = (f"{query} WHERE {quoted(key)} IN ({keys})" for keys in lists)
            return chain.from_iterable(self._rows(one, table) for one in asked)
        requested = set(only.tolist())
        return (row for row in self._rows(query, table) if row[0] in requested)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """All rows of a small table as tuples; None for NULL and for missing columns."""
        present = self.tables.get(table)
        if present is None:
            return []
        terms = [quoted(c) if c in present else "NULL" for c in columns]
        return list(self._rows(f"SELECT {', '.join(terms)} FROM {quoted(table)}", table))

    def _rows(self, query: str, table: str) -> Iterable[tuple[Any, ...]]:
        """The rows of a query; up to the first damaged page if the database is to be salvaged."""
        return self._kept(query, table) if self._salvage else self._run(query)

    def _kept(self, query: str, table: str) -> Iterator[tuple[Any, ...]]:
        if table in self._short and table not in self.damage:
            self.damage.append(table)
        try:
            yield from self._run(query)
        except sqlite3.DatabaseError as e:
            if e.sqlite_errorcode & 0xFF not in _DAMAGE:
                raise
            if table not in self.damage:
                self.damage.append(table)

    def _run(self, query: str) -> sqlite3.Cursor:
        checks = 0
        most = (FREE_STEPS + STEPS_PER_BYTE * self._bytes) // STEPS_PER_CHECK

        def give_up() -> int:
            nonlocal checks
            checks += 1
            return checks > most

        self._connection.set_progress_handler(give_up, STEPS_PER_CHECK)
        return self._connection.execute(query)
