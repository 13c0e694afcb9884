"""SQL over captures by DuckDB, or over one trace by Perfetto's trace processor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from traceconv.analysis.sql import engine as duckdb
from traceconv.api.open import found_below
from traceconv.core.errors import (
    EmptyResultError,
    MissingExtraError,
    OptionError,
    UnknownFormatError,
    extra_line,
)
from traceconv.core.side_tables import DataTable
from traceconv.io.run_files import one_run, read_from
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.verbs import QueryOptions

if TYPE_CHECKING:
    from traceconv.options.arguments import QueryArguments

NO_ENGINE = (
    f"no engine for SQL is here; {extra_line('sql')} (DuckDB, which reads captures of any format), "
    "or pass `engine='perfetto'` for one trace, with Perfetto's trace processor"
)


@takes(QueryOptions)
@one_run()
def query(paths: values.Paths, sql: str, **keywords: Unpack[QueryArguments]) -> DataTable:
    """What SQL finds in captures, as columns; ``.to_pandas()`` of the result is a ``DataFrame``.

    DuckDB has the tables of Perfetto (``slice``, ``track``, ``thread``, ``process``, ``counter``,
    ``flow``, ``args`` ...), those of the Parquet output (``events``, ``steps`` ...), ``ranks``, and
    every table of :func:`stats`. It reads no files and opens no connections. Perfetto's trace
    processor takes one trace and PerfettoSQL: the program that ``TRACECONV_TRACE_PROCESSOR`` names,
    or ``trace_processor_shell`` on the path. It is never fetched.

    Args:
        paths: captures, folders, archives, merged traces; for Perfetto's engine, one trace file.
        sql:   statements; the rows are those of the last one.

    Returns:
        Whole numbers are int64 (``ABSENT`` where NULL), other numbers float64 (NaN), texts object
        (None). Times of Perfetto's tables (``ts``, ``dur``) are ns.

    Raises:
        OptionError: the SQL is not understood, or an argument is not.
        SourceError: a file cannot be read, or is not a trace.
        MissingExtraError: the engine is missing, or too old.
        EngineError: the trace processor does not start, or ends.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    statement = values.text(sql, "sql")
    if not statement or not statement.strip():
        raise OptionError("is empty; pass a query such as 'select name, dur from slice'", "sql")
    options = QueryOptions.of(keywords)
    if options.engine == "perfetto":
        if foreign := sorted(set(keywords) - {"engine", "progress"}):
            raise OptionError("works with DuckDB only, not with `engine='perfetto'`", foreign[0])
        return _by_perfetto(paths, statement)
    alone = options.engine == "auto" and not set(keywords) - {"engine", "progress"}
    if alone and _has_perfetto(paths):
        if not duckdb.installed() or duckdb.PERFETTO_SQL.search(statement):
            return _by_perfetto(paths, statement)
    elif options.engine == "auto" and not duckdb.installed():
        raise MissingExtraError(NO_ENGINE)
    try:
        return found_below([paths], options.input).sql(statement, **keywords)
    except (UnknownFormatError, EmptyResultError):
        if alone and _has_perfetto(paths):  # it reads system traces, which hold no ranks
            return _by_perfetto(paths, statement)
        raise


def _has_perfetto(paths: values.Paths) -> bool:
    """Whether the trace processor is installed, and the input is one file."""
    from traceconv.validation.processor import program

    listed = values.paths([paths])
    try:
        return len(listed) == 1 and Path(listed[0]).is_file() and bool(program())
    except MissingExtraError:
        return False


def _by_perfetto(paths: values.Paths, sql: str) -> DataTable:
    from traceconv.validation.processor import loaded

    listed = values.paths([paths])
    if len(listed) != 1:
        raise OptionError("is one trace file with `engine='perfetto'`", "paths")
    read_from([Path(listed[0])])
    with loaded(listed[0]) as processor:
        return processor.query(sql)
