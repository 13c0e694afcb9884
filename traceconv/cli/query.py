"""``traceconv query``: SQL over a trace."""

from __future__ import annotations

import csv
import io
import sys
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import completion, files, options, say, screen
from traceconv.core.markup import one_line

if TYPE_CHECKING:
    from traceconv.core.side_tables import DataTable

SCHEMA_VERSION = 1

FORMATS = ("text", "csv", "json", "parquet", "xlsx")


@click.command(cls=options.Command, short_help="Run SQL over a trace.")
@click.argument("trace", metavar="TRACE", shell_complete=completion.files)
@click.argument("sql", metavar="SQL")
@options.form(FORMATS, "Format of the rows, also given by the extension of -o. Default: text.")
@options.output("Output file: .txt, .csv, .json, .parquet or .xlsx.")
@options.force
@options.as_json
@options.chatter
def query(
    trace: str,
    sql: str,
    form: str | None,
    output: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Run SQL (- is standard input) over TRACE, any trace that Perfetto reads.

    It runs in Perfetto's trace processor: the program that TRACECONV_TRACE_PROCESSOR names, or
    trace_processor_shell on the path. It is never downloaded. Times are in ns.

    \b
    traceconv query out.pftrace "select name, sum(dur) from slice group by 1"
    traceconv query out.pftrace "select ts, value from counter" -o counter.csv
    """
    target = files.Target.of(
        output, form, FORMATS, as_json=as_json, force=force, quiet=quiet or as_json
    )
    from traceconv import query

    if sql == "-" and sys.stdin is None:
        raise click.UsageError("SQL is -, but standard input is closed")
    found = query(trace, sys.stdin.read() if sql == "-" else sql)
    if target.form in files.BINARY:
        target.put(_binary(found, target.form))
    elif target.form == "text" and not target.path and not verbose:
        for line in screen.cut(_rendered(found, "text").split("\n"), screen.LINES):
            say.data(line)
    else:
        target.put(_rendered(found, target.form))
    if as_json and target.path:
        say.raw(_rendered(found, "json"))


def _rendered(found: DataTable, form: str) -> str:
    columns = {name: _values(found, name) for name in found.columns}
    rows = zip(*columns.values(), strict=True)
    if form == "json":
        return say.json_text(
            {"schema_version": SCHEMA_VERSION, "columns": list(columns), "rows": list(rows)}
        )
    if form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([columns, *rows])
        return out.getvalue()
    from traceconv.report import fitting
    from traceconv.report.figures import UNKNOWN

    shown = [
        fitting.Cells(
            name,
            [UNKNOWN if value is None else one_line(str(value)) for value in values],
            is_text=any(isinstance(value, str) for value in values),
            is_key=place == 0,
        )
        for place, (name, values) in enumerate(columns.items())
    ]
    return "\n".join(fitting.lines(shown, say.width() if say.fits() else None, 200))


def _binary(found: DataTable, form: str) -> bytes:
    from traceconv.report import table_files
    from traceconv.report.table_text import ExactColumn

    if form == "parquet":
        return table_files.parquet(found)
    columns = [
        ExactColumn(
            name,
            ["" if value is None else str(value) for value in _values(found, name)],
            found[name].dtype.kind in "if",
        )
        for name in found.columns
    ]
    return table_files.workbook({"query": columns})


def _values(found: DataTable, name: str) -> list[Any]:
    """The cells of a column; None where SQL has NULL."""
    from traceconv.core.side_tables import ABSENT

    column = found[name]
    absent = {"i": column == ABSENT, "f": column != column}.get(column.dtype.kind)
    values: list[Any] = column.tolist()
    if absent is None:
        return values
    return [None if gone else value for value, gone in zip(values, absent.tolist(), strict=True)]
