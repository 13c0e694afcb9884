"""SQLite tables as columns: what all readers of databases share.

Databases come from strangers: they are opened read-only and immutable, their own triggers, views
and functions never run, and a query that works too long is stopped. Schemas differ between
versions: columns are asked for by name, and a missing table or column reads as absent.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from traceconv.errors import MalformedInputError
from traceconv.source import Source, temporary_folder

MAGIC = b"SQLite format 3\0"

STEPS_PER_CHECK = 1_000_000
MAX_CHECKS = 200_000
"""Virtual machine steps between two checks, and checks before a query is stopped."""

MAX_TEXT = 64 << 20
"""Bytes of one string or blob."""

ROWID = "rowid"
"""Every table has this number of its rows; asked for like a column."""

Column = NDArray[Any]


def is_sqlite(head: bytes) -> bool:
    """Whether a file that begins so is an SQLite database."""
    return head.startswith(MAGIC)


@contextmanager
def opened(source: Source, name: str) -> Iterator[Database]:
    """The database ``name`` of ``source``, for reading; unpacked first if it lies in an archive.

    Raises:
        MalformedInputError: it is no readable database.
    """
    path = source.path(name)
    title = source.title(name)
    with source.open(name) as stream:
        plain = stream.mapped is not None  # neither compressed nor in an archive
    if path is not None and plain:
        with _connected(path, title) as database:
            yield database
        return
    with tempfile.NamedTemporaryFile(prefix="traceconv-", dir=temporary_folder()) as copy:
        with source.open(name) as stream:
            while part := stream.read(1 << 20):
                copy.write(part)
        copy.flush()
        with _connected(Path(copy.name), title) as database:
            yield database


@contextmanager
def _connected(path: Path, title: str) -> Iterator[Database]:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    connection = None
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT)
        connection.text_factory = _text
        yield Database(connection, title)
    except sqlite3.Error as e:
        raise MalformedInputError(
            title, "", f"not a readable database: {e}; export it again, or copy its -wal file too"
        ) from e
    finally:
        if connection is not None:
            connection.close()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class Database:
    """An open database. ``tables`` holds the columns of every real table, by name."""

    def __init__(self, connection: sqlite3.Connection, title: str) -> None:
        self.title = title
        self._connection = connection
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

    def columns(self, table: str, wanted: Mapping[str, Any]) -> dict[str, Column]:
        """Columns as arrays, in the order of rows.

        Args:
            wanted: name -> what stands for NULL and for a missing column. An int asks for int64,
                a float for float64; numbers stored as text are read as numbers. Names separated
                by "|" are one column that was renamed over time.

        Rows whose number is no number read as the stand-in.
        """
        present = self.tables.get(table)
        dtype = [(n.split("|")[0], "i8" if type(d) is int else "f8") for n, d in wanted.items()]
        if present is None:
            return {name: np.empty(0, kind) for name, kind in dtype}
        terms = [_term(n, default, present) for n, default in wanted.items()]
        cursor = self._run(f"SELECT {', '.join(terms)} FROM {_quoted(table)} NOT INDEXED")
        rows = np.fromiter(cursor, np.dtype(dtype))
        return {name: np.ascontiguousarray(rows[name]) for name, _ in dtype}

    def texts(self, table: str, key: str, value: str) -> dict[int, str]:
        """A table of names: key -> value. Rows without either are left out."""
        if not self.has(table, key, value):
            return {}
        query = f"SELECT {_quoted(key)}, {_quoted(value)} FROM {_quoted(table)}"
        return {
            k: v if isinstance(v, str) else _text(v)
            for k, v in self._run(query)
            if isinstance(k, int) and isinstance(v, (str, bytes))
        }

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """All rows of a small table as tuples; None for NULL and for missing columns."""
        present = self.tables.get(table)
        if present is None:
            return []
        terms = [_quoted(c) if c in present else "NULL" for c in columns]
        return self._run(f"SELECT {', '.join(terms)} FROM {_quoted(table)}").fetchall()

    def _run(self, query: str) -> sqlite3.Cursor:
        checks = 0

        def give_up() -> int:
            nonlocal checks
            checks += 1
            return checks > MAX_CHECKS

        self._connection.set_progress_handler(give_up, STEPS_PER_CHECK)
        return self._connection.execute(query)


def _term(names: str, default: Any, present: tuple[str, ...]) -> str:
    """One column of a SELECT: a number of the wanted type, whatever is stored."""
    found = next((n for n in names.split("|") if n in present), None)
    plain = repr(default)
    if found is None:
        return ROWID if names == ROWID else plain
    column = _quoted(found)
    kind = "INTEGER" if type(default) is int else "REAL"
    own = "'integer'" if kind == "INTEGER" else "'real', 'integer'"
    number = f"CAST({column} AS {kind})"
    # text that is a number has the same digits again; anything else is not one
    return (
        f"CASE WHEN typeof({column}) IN ({own}) THEN {number} "
        f"WHEN typeof({column}) = 'text' AND TRIM({column}) GLOB '*[0-9]*' "
        f"AND TRIM({column}) NOT GLOB '*[^0-9.eE+-]*' THEN {number} "
        f"WHEN typeof({column}) = 'real' THEN {number} ELSE {plain} END"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
