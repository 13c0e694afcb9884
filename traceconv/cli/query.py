"""``traceconv query``: SQL over captures and traces."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import completion, files, options, say, screen
from traceconv.core.markup import one_line

if TYPE_CHECKING:
    from traceconv.core.side_tables import DataTable

SCHEMA_VERSION = 1

FORMATS = ("text", "csv", "json", "parquet", "xlsx")

MODE = "View of the events: summary, detail, or source for the events as recorded."


@click.command(cls=options.Command, short_help="Run SQL over captures or a trace.")
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=completion.files)
@click.argument("sql", metavar="SQL|@FILE|-", shell_complete=completion.files)
@options.of("query", help={"mode": MODE})
@options.form(FORMATS, "Format of the rows, also given by the extension of -o. Default: text.")
@options.output("Output file: .txt, .csv, .json, .parquet or .xlsx.")
@options.force
@options.as_json
@options.chatter
def query(
    paths: tuple[str, ...],
    sql: str,
    form: str | None,
    output: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **arguments: Any,
) -> None:
    """Run SQL over the captures below PATH (default: the current folder), or over a merged trace.
    @FILE reads the SQL from a file, - from standard input. The rows are those of the last
    statement.

    Tables: slice, track, thread_track, process_track, thread, process, counter, counter_track, flow
    and args, as Perfetto has them; events, counters, flows, tracks and steps, as the Parquet output
    has them; ranks; and every table of `traceconv stats`. Times are in ns.

    \b
    traceconv query ./prof "select name, sum(dur) from slice group by 1"
    traceconv query ./prof @slow.sql --param least=1000 --ranks 0-7 -o slow.csv
    traceconv query out.pftrace "select ts, value from counter" --engine perfetto
    """
    target = files.Target.of(
        output, form, FORMATS, as_json=as_json, force=force, quiet=quiet or as_json
    )
    if not paths and Path(sql).exists():
        raise click.UsageError(f"SQL is missing: traceconv query {sql} 'select name from slice'")
    from traceconv import query

    text, chosen = _text(sql), options.given(arguments)
    with say.bar(quiet=quiet or as_json) as progress:
        result = query(paths or ".", text, **chosen, progress=progress)
    if target.form in files.BINARY:
        target.put(_binary(result, target.form))
    elif target.form == "text" and not target.path and not verbose:
        for line in screen.cut(_rendered(result, "text").split("\n"), screen.LINES):
            say.data(line)
    else:
        target.put(_rendered(result, target.form))
    if as_json and target.path:
        say.raw(_rendered(result, "json"))
    say.show_issues(getattr(result, "issues", ()), quiet or as_json, verbose, pointer=True)


def _text(sql: str) -> str:
    """The SQL itself, or what a file or standard input holds."""
    if sql == "-":
        if sys.stdin is None:
            raise click.UsageError("SQL is -, but standard input is closed")
        return sys.stdin.read()
    if not sql.startswith("@"):
        if sql.endswith(".sql") and Path(sql).is_file():
            raise click.UsageError(f"SQL is the name of a file; pass @{sql} to run what is in it")
        return sql
    try:
        return Path(sql[1:]).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise click.UsageError(f"{sql[1:]}: cannot be read: {reason}") from e


def _rendered(table: DataTable, form: str) -> str:
    from traceconv.core.frames import cells

    columns = {name: cells(column) for name, column in table.columns.items()}
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
            is_key=position == 0,
        )
        for position, (name, values) in enumerate(columns.items())
    ]
    return "\n".join(fitting.lines(shown, say.width() if say.fits() else None, 200))


def _binary(table: DataTable, form: str) -> bytes:
    from traceconv.core.frames import cells
    from traceconv.report import table_files
    from traceconv.report.table_text import ExactColumn

    if form == "parquet":
        return table_files.parquet(table)
    columns = [
        ExactColumn(
            name,
            ["" if value is None else str(value) for value in cells(table[name])],
            table[name].dtype.kind in "if",
        )
        for name in table.columns
    ]
    return table_files.workbook({"query": columns})
