"""SQLite tables as columns, for all readers of databases.

Databases are untrusted: inputs are never written, their triggers, views, functions and computed
columns never run, and long queries are stopped. Schemas differ between versions: columns are
requested by name, and a missing table or column is absent. Numbers are decoded from the pages of
the file where possible (3 to 10 times faster), else SQLite returns the rows.
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


def found_in(names: str, present: tuple[str, ...]) -> str | None:
    """The name of a requested column in this database."""
    name = next((n for n in names.split("|") if n in present), None)
    return ROWID if name is None and names == ROWID else name


def _number(names: str, default: Any, present: tuple[str, ...]) -> str:
    """A column of a SELECT as a number of the type of its default, which replaces other values."""
    name = found_in(names, present)
    plain = "NULL" if default != default else repr(default)  # NULL is read as NaN
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
"""Virtual machine steps between two checks of a query's cost."""

FREE_STEPS = 2_000_000_000
STEPS_PER_BYTE = 20
"""Budget of a query: some seconds, and ten times the cost of reading a row of 50 bytes."""

MAX_TEXT = 64 << 20
"""Bytes of one string or blob."""

FIRST_ROWS = 1000
"""Rows that decide whether a column is empty."""

KEYS_AT_ONCE = 500
"""Keys in one query."""

SPREAD = 4
"""A range of at most this many times the number of keys is queried as a range."""

_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_INTERRUPT,
)
"""Errors that leave the rows before them valid."""

Column: TypeAlias = "NDArray[Any]"


@contextmanager
def opened(source: Source, name: str, salvage: bool = False) -> Iterator[Database]:
    """Open the database ``name`` of ``source`` for reading.

    It is copied first if it is packed, or if it has a journal (``-wal``): a killed writer leaves
    its last rows there, and applying them changes files.

    Args:
        salvage: read the intact part of a truncated or damaged database;
            :attr:`Database.damage` lists the rest.

    Raises:
        MalformedInputError: it is not a readable database.
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
"""Decodes bytes; called for every text."""


class Database:
    """An open database.

    Attributes:
        tables: the columns of every real table, by name.
        damage: of a salvaged database: tables that lack rows, "end of file", "sqlite_master" (whole
            tables), "end of its -wal file".
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
            connection.execute(f"PRAGMA {fact}").fetchone() for fact in ("page_count", "page_size")
        )
        self._bytes = int(count) * int(size)
        query = "SELECT name, rootpage, sql FROM sqlite_master WHERE type = 'table'"
        for name, root, sql in connection.execute(query).fetchall():
            if not isinstance(name, str):  # a bit of the schema is damaged
                self.damage.append(f"sqlite_master, {name!r:.40}")
                continue
            info = connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
            # without hidden columns and columns computed by an expression in the file
            self.tables[name] = tuple(row[1] for row in info if not row[6])
            if root in short:
                self._short.add(name)
            if plain := plain_table(root, sql, info):
                self._plain[name] = plain

    def damaged_places(self) -> list[str]:
        """The damage as places of issues."""
        return [
            f"table {damaged}" if damaged in self.tables else damaged for damaged in self.damage
        ]

    def count(self, table: str) -> int:
        """Number of rows of a table, without those on damaged pages; 0 if it is absent."""
        if table not in self.tables:
            return 0
        rows = f"FROM {quoted(table)} NOT INDEXED"
        for (number,) in self._rows(f"SELECT COUNT(*) {rows}", table):
            return int(number)
        return sum(1 for _ in self._rows(f"SELECT 1 {rows}", table))  # up to the first damaged page

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table with these columns exists."""
        return table in self.tables and set(columns) <= {*self.tables[table], ROWID}

    def distinct(self, table: str, column: str) -> list[int]:
        """The different integers of a column, ascending."""
        if not self.has(table, column):
            return []
        query = f"SELECT DISTINCT {quoted(column)} FROM {quoted(table)} NOT INDEXED"
        return sorted({v for (v,) in self._rows(query, table) if isinstance(v, int)})

    def filled(self, table: str, columns: Sequence[str]) -> list[str]:
        """The columns with a value in the first rows of a table other than NULL, 0, "" and "{}"."""
        if not columns or not self.has(table, *columns):
            return []
        names = ", ".join(map(quoted, columns))
        tests = (f"MAX({quoted(column)} NOT IN (0, '', '{{}}'))" for column in columns)
        rows = f"SELECT {names} FROM {quoted(table)} LIMIT {FIRST_ROWS}"
        query = f"SELECT {', '.join(tests)} FROM ({rows})"
        [has_values] = [*self._rows(query, table)] or [(0,) * len(columns)]
        return [column for column, yes in zip(columns, has_values, strict=True) if yes]

    def columns(self, table: str, requested: Mapping[str, Any]) -> dict[str, Column]:
        """Columns as arrays, in the order of rows.

        Args:
            requested: name -> default for NULL, missing columns and values that are not numbers. An
                int requests int64, a float float64; numbers stored as text are read as numbers.
                Names separated by "|" are one column that was renamed over time.
        """
        present = self.tables.get(table)
        dtype = [(n.split("|")[0], "i8" if type(d) is int else "f8") for n, d in requested.items()]
        if present is None:
            return {name: np.empty(0, kind) for name, kind in dtype}
        decoded = self._decoded(table, requested, present)
        if decoded is not None:
            return {name: column for (name, _), column in zip(dtype, decoded, strict=True)}
        terms = ", ".join(_number(n, default, present) for n, default in requested.items())
        query = f"SELECT {terms} FROM {quoted(table)} NOT INDEXED"
        rows = np.fromiter(self._rows(query, table), np.dtype(dtype))
        return {name: np.ascontiguousarray(rows[name]) for name, _ in dtype}

    def _decoded(
        self, table: str, requested: Mapping[str, Any], present: tuple[str, ...]
    ) -> list[Column] | None:
        """The columns decoded from the pages of the file, if these are plain; else None."""
        plain = self._plain.get(table)
        if self._pages is None or plain is None:
            return None
        names = [(found_in(n, present), default) for n, default in requested.items()]
        requests = [
            ColumnRequest(
                present.index(name) if name != ROWID else -1, default, name == plain.rowid
            )
            for name, default in names
            if name is not None
        ]
        columns = self._pages.columns(plain.root, requests or [ColumnRequest(-1, -1)])
        if columns is None:
            return None
        rows, read = len(columns[0]), iter(columns)
        return [
            next(read) if name is not None else np.full(rows, default) for name, default in names
        ]

    def texts(
        self, table: str, key: str, value: str, only: NDArray[np.int64] | None = None
    ) -> dict[int, str]:
        """A table of names: key -> value, without rows that lack either.

        Args:
            only: the requested keys; the result may hold more. None = all.
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
        """As :meth:`texts`, with values as bytes."""
        if not self.has(table, key, value):
            return {}
        terms = f"{quoted(key)}, CAST({quoted(value)} AS BLOB)"
        query = f"SELECT {terms} FROM {quoted(table)} WHERE {quoted(value)} IS NOT NULL"
        rows = self._rows(query, table)
        return {k: v for k, v in rows if isinstance(k, int) and isinstance(v, bytes)}

    def _keyed(
        self, query: str, table: str, key: str, only: NDArray[np.int64] | None
    ) -> Iterable[tuple[Any, ...]]:
        """The rows of a query whose first column is in ``only``, by rowid if that is the key."""
        if only is None:
            return self._rows(query, table)
        plain = self._plain.get(table)
        if key == ROWID or (plain and plain.rowid == key):
            if len(only) > KEYS_AT_ONCE:
                low, high = int(only.min()), int(only.max())
                if high - low < SPREAD * len(only):
                    between = f"{query} WHERE {quoted(key)} BETWEEN {low} AND {high}"
                    return self._rows(between, table)
            batches = (
                only[i : i + KEYS_AT_ONCE].tolist() for i in range(0, len(only), KEYS_AT_ONCE)
            )
            lists = (",".join(map(str, keys)) for keys in batches)
            queries = (f"{query} WHERE {quoted(key)} IN ({keys})" for keys in lists)
            return chain.from_iterable(self._rows(batch_query, table) for batch_query in queries)
        requested = set(only.tolist())
        return (row for row in self._rows(query, table) if row[0] in requested)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """All rows of a small table as tuples; None for NULL and missing columns."""
        present = self.tables.get(table)
        if present is None:
            return []
        terms = [quoted(c) if c in present else "NULL" for c in columns]
        return list(self._rows(f"SELECT {', '.join(terms)} FROM {quoted(table)}", table))

    def _rows(self, query: str, table: str) -> Iterable[tuple[Any, ...]]:
        """The rows of a query; of a salvaged database up to the first damaged page."""
        return self._salvaged(query, table) if self._salvage else self._run(query)

    def _salvaged(self, query: str, table: str) -> Iterator[tuple[Any, ...]]:
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
        most_checks = (FREE_STEPS + STEPS_PER_BYTE * self._bytes) // STEPS_PER_CHECK

        def give_up() -> int:
            nonlocal checks
            checks += 1
            return checks > most_checks

        self._connection.set_progress_handler(give_up, STEPS_PER_CHECK)
        return self._connection.execute(query)
