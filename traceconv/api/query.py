"""SQL over a trace, by Perfetto's own trace processor."""

from __future__ import annotations

from pathlib import Path

from traceconv.core.errors import OptionError
from traceconv.core.side_tables import DataTable
from traceconv.options import values


def query(trace: values.AnyPath, sql: str) -> DataTable:
    """What SQL finds in a trace, as columns; ``.to_pandas()`` of the result is a ``DataFrame``.

    Perfetto's trace processor must be here: the one that ``TRACECONV_TRACE_PROCESSOR`` names, or
    ``trace_processor_shell`` on the path. It is never fetched. The package ``perfetto``
    (``traceconv[query]``) talks to it.

    Args:
        trace: a file that Perfetto reads: an output of ours, or another.
        sql:   statements in PerfettoSQL; the rows are those of the last one.

    Returns:
        Whole numbers are int64 (``ABSENT`` where NULL), other numbers float64 (NaN), texts object
        (None). Times are what the column says; those of Perfetto's tables (``ts``, ``dur``) are ns.

    Raises:
        OptionError: the SQL is not understood.
        SourceError: the file cannot be read, or is no trace.
        MissingExtraError: the trace processor or the package is missing, or too old.
        EngineError: the trace processor does not start, or ends.
    """
    from traceconv.io.run_files import read_from
    from traceconv.validation.processor import loaded

    statement = values.text(sql, "sql")
    if not statement or not statement.strip():
        raise OptionError("is empty; pass a query such as 'select name, dur from slice'", "sql")
    path = str(values.path(trace, "trace"))
    read_from([Path(path)])
    with loaded(path) as processor:
        return processor.query(statement)
