"""DuckDB, closed: it sees the tables it is given, no files, no network and no extensions.

``enable_external_access=false`` forbids files and the network to every function and statement,
``lock_configuration`` keeps a query from changing that. Extensions are neither loaded nor
installed, variables of Python are not tables, and memory is limited; nothing is spilled to disk.
Source: https://duckdb.org/docs/stable/operations_manual/securing_duckdb/overview
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from threading import Timer
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core import frames
from traceconv.core.choices import unknown
from traceconv.core.errors import MissingExtraError, OptionError, ResourceError
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, DataTable

Shown = Callable[[str, str], str]

SETTINGS = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "secret_directory": ".",  # else it names the home folder
}

FIRST = (
    # in the settings of a connection, it would list the current folder as an exception
    "set enable_external_access = false",
    # Perfetto's engine is SQLite; its queries mean the same here
    "set integer_division = true",  # 7 / 2 is 3
    "set default_null_order = 'nulls_first_on_asc_last_on_desc'",
)
"""Statements that come before all others."""

EXTRACT_ARG = (
    # columns have other names inside, so that those of the argument are the caller's
    "create or replace macro extract_arg(of_set, named) as (select any_value(_value) from "
    "(select arg_set_id as _set, key as _key, "
    "coalesce(string_value, int_value::text, real_value::text) as _value from args) "
    "where _set = of_set and _key = named)"
)
"""A function of Perfetto, over the table ``args``."""

PERFETTO_SQL = lazy_regex(r"(?i)\b(?:include|create(?:\s+or\s+replace)?)\s+perfetto\b")
"""Statements that only Perfetto's engine has."""

_WORD = lazy_regex(r"\w+")
_PLAIN = lazy_regex(
    r"U?(?:TINY|SMALL|BIG)INT|U?INTEGER|HUGEINT|DECIMAL.*|FLOAT|DOUBLE|BOOLEAN|VARCHAR|BLOB"
)
_HUGE = lazy_regex(r"decimal128\((\d{1,3}), (-?\d{1,3})\)")


def installed() -> bool:
    """Whether DuckDB and what brings columns to it are here."""
    try:
        frames.extra("duckdb", "sql")
        frames.extra("pyarrow", "sql")
    except MissingExtraError:
        return False
    return True


class Engine:
    """Statements, and the tables they ask for.

    Args:
        sql: one or more statements.
        parameters: values of ``$name`` by name.
        memory: bytes that DuckDB may use; None for half of what the machine has.
        timeout_ns: a statement that takes longer is ended; None for never.
        shown: the text that statements see, by column and text; None for the text itself.

    Raises:
        MissingExtraError: DuckDB or pyarrow is not installed.
        OptionError: the SQL is not understood, or asks for parameters that are not given.
    """

    def __init__(
        self,
        sql: str,
        parameters: Mapping[str, Any],
        memory: int | None = None,
        timeout_ns: int | None = None,
        shown: Shown | None = None,
    ) -> None:
        self._shown = shown
        self._duckdb = frames.extra("duckdb", "sql")
        frames.extra("pyarrow", "sql")
        config = dict(SETTINGS)
        if memory is None and hasattr(os, "sysconf"):  # else it is 80 %, by default
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        if memory:
            config["memory_limit"] = f"{memory // 1000}KB"
        self._connection = self._duckdb.connect(":memory:", config=config)
        for setting in FIRST:
            self._connection.execute(setting)
        self._connection.execute("set lock_configuration = true")
        try:
            self._statements = self._duckdb.extract_statements(sql)
        except self._duckdb.Error as e:
            raise OptionError(_advised(e, sql), "sql") from e
        if not self._statements:
            raise OptionError("is empty; pass a query such as 'select name, dur from slice'", "sql")
        needed = set().union(*(statement.named_parameters for statement in self._statements))
        if missing := sorted(needed - set(parameters)):
            why = f"${missing[0]} has no value; there are: {', '.join(parameters) or 'none'}"
            raise OptionError(why, "params")
        if unused := sorted(set(parameters) - needed):
            raise OptionError(
                f"{unused[0]!r} is not in the SQL; write ${unused[0]} there", "params"
            )
        self._parameters, self._timeout_ns = parameters, timeout_ns
        self._most_bytes = memory // 4 if memory else sys.maxsize

    def named(self, table_names: Collection[str]) -> set[str]:
        """The tables of ``table_names`` that the statements name."""
        named_tables: set[str] = set()
        for statement in self._statements:
            words = {word.lower() for word in _WORD.findall(statement.query)}
            try:
                names = {name.lower() for name in self._connection.get_table_names(statement.query)}
            except self._duckdb.Error:  # of a statement that makes or fills a table
                names = words
            named_tables |= names | ({"args"} if "extract_arg" in words else set())
        return named_tables & set(table_names)

    def columns_read(self, samples: Mapping[str, Any]) -> Collection[str] | None:
        """The names of columns that the statements read; None where only running them tells.

        Args:
            samples: the tables they name, as of :meth:`add`, with all columns and a few rows.

        Raises:
            OptionError, ResourceError: as of :meth:`answer`.
        """
        [first, *others] = self._statements
        if others or first.type != self._duckdb.StatementType.SELECT:
            return None
        for name, table in samples.items():
            self.add(name, table)
        plan = self._run(first, samples, "explain (format json) ")
        return set(_WORD.findall(plan.column(1)[0].as_py()))

    def add(self, name: str, table: Any) -> None:
        """Add a table, or replace it: a ``pyarrow.Table``, which is not copied, or the SQL of a
        view."""
        if isinstance(table, str):
            self._connection.execute(f'create or replace view "{name}" as {table}')
        else:
            replaced = table if self._shown is None else _replaced(table, self._shown)
            self._connection.register(name, replaced)
        if name == "args":
            self._connection.execute(EXTRACT_ARG)

    def answer(self, table_names: Collection[str]) -> DataTable:
        """The rows of the last statement that has some.

        Args:
            table_names: names of tables, for the error that there is none of a name.

        Raises:
            OptionError: the SQL is not understood, or does what is not allowed.
            ResourceError: it needs more memory or time than it may have.
        """
        result = None
        for statement in self._statements:
            rows = self._run(statement, table_names)
            result = result if rows is None else rows
        return _result(result)

    def _run(self, statement: Any, table_names: Collection[str], prefix: str = "") -> Any:
        """The rows of a statement as a ``pyarrow.Table``; None if it has none."""
        values = {name: self._parameters[name] for name in statement.named_parameters}
        try:
            with self._timed():
                rows = self._connection.sql(prefix + statement.query, params=values)
                return None if rows is None else self._fetched(rows)
        except (self._duckdb.InterruptException, OSError) as e:  # the latter from pyarrow
            if "interrupt" not in str(e).lower():
                raise ResourceError(str(e).partition("\n")[0]) from e
            why = f"takes more than {(self._timeout_ns or 0) / 1e9:g} s"
            raise ResourceError(f"the query {why}; raise `timeout_ns`, or select less") from e
        except self._duckdb.OutOfMemoryException as e:
            why = str(e).partition("\n")[0]
            raise ResourceError(f"{why}; raise `mem_limit`, or select less") from e
        except self._duckdb.Error as e:
            raise OptionError(_advised(e, statement.query, table_names), "sql") from e

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Ends a statement that takes too long."""
        if self._timeout_ns is None:
            yield
            return
        timer = Timer(self._timeout_ns / 1e9, self._connection.interrupt)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _fetched(self, rows: Any) -> Any:
        """Rows as a ``pyarrow.Table``."""
        arrow = frames.extra("pyarrow", "sql")
        reader, batches, size = _plain(rows).to_arrow_reader(), [], 0
        for batch in reader:
            size += batch.nbytes
            if size > self._most_bytes:
                why = f"the rows of the query take more than {self._most_bytes // 1_000_000} MB"
                raise ResourceError(f"{why}; raise `mem_limit`, or select less")
            batches.append(batch)
        return arrow.Table.from_batches(batches, reader.schema)


def _replaced(table: Any, shown: Shown) -> Any:
    """A table with other texts."""
    arrow = frames.extra("pyarrow", "sql")
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        if not any(is_kind(kind) for is_kind in (arrow.types.is_integer, arrow.types.is_floating)):
            coded = column.cast(arrow.string()).combine_chunks().dictionary_encode()
            texts = [shown(name, text) for text in coded.dictionary.to_pylist()]
            column = arrow.array(texts, arrow.string()).take(coded.indices)
        columns[name] = column
    return arrow.table(columns)


def _advised(error: Exception, sql: str, table_names: Collection[str] = ()) -> str:
    text = str(error).strip()
    if PERFETTO_SQL.search(sql):
        return f"PerfettoSQL runs with `engine='perfetto'`: {text}"
    lacking = re.match(r"Catalog Error: Table with name (\S+) does not exist", text)
    if lacking:
        return unknown("table", lacking[1], table_names)
    return text


def _plain(rows: Any) -> Any:
    """The same rows; dates, lists and other types that columns cannot have are texts."""
    shown = [
        f"#{number}" if _PLAIN.fullmatch(str(kind)) else f"#{number}::text"
        for number, kind in enumerate(rows.types, 1)
    ]
    if not any("::" in expression for expression in shown):
        return rows
    quoted = (name.replace('"', '""') for name in rows.columns)
    return rows.project(
        ", ".join(
            f'{expression} as "{name}"' for expression, name in zip(shown, quoted, strict=True)
        )
    )


def _result(table: Any) -> DataTable:
    """A ``pyarrow.Table`` as columns; names that occur twice get a number."""
    columns: dict[str, NDArray[Any]] = {}
    for position, name in enumerate(table.column_names if table is not None else ()):
        heading, number = name, 2
        while heading in columns:
            heading, number = f"{name} ({number})", number + 1
        columns[heading] = _column(table.column(position))
    return DataTable("query", columns, dict.fromkeys(columns, ""))


def _column(column: Any) -> NDArray[Any]:
    """int64 with ``ABSENT``, float64 with NaN, or texts with None."""
    arrow = frames.extra("pyarrow", "sql")
    kind = column.type
    if huge := _HUGE.fullmatch(str(kind)):  # sum() of integers has 128 bits
        kind = arrow.float64() if int(huge[2]) else arrow.int64()
    if arrow.types.is_integer(kind) or arrow.types.is_boolean(kind):
        try:
            integers: NDArray[Any] = column.cast(arrow.int64()).fill_null(ABSENT).to_numpy()
            return integers
        except arrow.ArrowInvalid:
            kind = arrow.string()  # beyond int64
    if arrow.types.is_floating(kind):
        real: NDArray[Any] = column.cast(arrow.float64()).fill_null(np.nan).to_numpy()
        return real
    texts = np.empty(len(column), object)
    texts[:] = [
        None if value is None else value.hex() if isinstance(value, bytes) else str(value)
        for value in column.to_pylist()
    ]
    return texts
