"""``traceconv stats``: tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import files, options, say, screen
from traceconv.core.errors import EmptyResultError
from traceconv.options import values

if TYPE_CHECKING:
    from traceconv.analysis.tables.catalog import Statistics
    from traceconv.analysis.tables.definition import Result

FORMATS = ("text", "csv", "json", "md", "parquet", "xlsx")
ONE_TABLE = ("csv", "parquet")
"""A file of these holds one table."""
SHEETS = (*ONE_TABLE, "xlsx")
"""Tables without rows are left out of these."""

DEFAULT_TOP = 20

_ARRANGING = ("top", "sort", "filters", "columns", "steps", "group_by")
"""Options that ask for the rows of tables."""

BY = "step,overlap"


@click.command(
    cls=options.Command, short_help="Show tables: steps, overlap, operators, kernels, memory ..."
)
@options.paths
@options.of("stats")
@options.form(FORMATS, "Format of the tables, also given by the extension of -o. Default: text.")
@options.output("Output file. Several tables in CSV or Parquet go to FILE_<table>.csv each.")
@options.force
@options.explain
@options.as_json
@options.chatter
def stats(
    paths: tuple[str, ...],
    form: str | None,
    output: str | None,
    force: bool,
    explain: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Show tables of the ranks below PATH (default: the current folder), per rank and over all
    ranks. The exit code is 3 if no table has a row.

    \b
    traceconv stats ./prof --by step,overlap
    traceconv stats ./prof --by type --ranks 0 --top 10 --explain
    traceconv stats ./prof --by kernel --filter 'Kernel~gemm' --sort 'Max Time'
    traceconv stats ./prof --by overlap,comm --group-by pp
    traceconv stats ./prof --by all -o tables.xlsx
    """
    form = options.form_of(output, options.on_stdout(as_json, form, output), FORMATS)
    target = None if output in (None, "-") else Path(str(output))
    if target is None:
        options.refuse_binary(form)
        if form == "csv":
            _refuse_several(values.words(given["by"] or BY, "by"))
    elif form not in ONE_TABLE:
        files.refuse_existing(target, force)
    whole = verbose or explain or any(given[name] for name in _ARRANGING)
    if given["top"] is None and form in ("text", "md"):
        given["top"] = DEFAULT_TOP
    from traceconv import stats

    with say.bar(quiet=quiet) as progress:
        found = stats(*paths, **options.given(given), progress=progress)
    for name, why in found.left_out:
        if not quiet:
            say.message(f"table {name} is left out: {why}")
    if not any(one.rows for one in found.results):
        say.show_issues(found.issues, quiet, verbose)
        raise EmptyResultError(_missing(found.results, bool(found.left_out)))
    shown = _with_rows(found.results, quiet) if form in SHEETS else found.results
    width = say.width() if target is None and say.fits() else None
    if target is None and form == "text" and not whole:
        _show(found, digest=given["by"] is None)
    elif target is None:
        say.data("\n".join(rendered(shown, form, explain, width).values()).rstrip("\n"))
    else:
        several = len(found.results) + len(found.left_out) > 1
        write(contents(shown, form, explain), target, several, force, quiet)
        if as_json:
            say.data(rendered(found.results, "json", explain)[""].rstrip("\n"))
    if not quiet:
        for line in screen.folded(found.step_lines, 99 if verbose else 2):
            say.message(line)
        say.show_issues(found.issues, quiet, verbose)


def _show(found: Statistics, digest: bool) -> None:
    """The tables on one screen, or what they say of all steps."""
    from traceconv.report import table_text

    steps = step_digest(found) if digest else None
    shown = found.results if steps is None else [steps]
    width = say.width() if say.fits() else 100
    for line in table_text.screen(shown, width, screen.RESULT - 1):
        say.data(say.with_flags(line))
    empty = [one.table.name for one in found.results if not one.rows]
    if empty and not digest:
        say.data(say.short(f"no data: {', '.join(empty)}; --explain says what these need"))
    others = "all steps" if steps else "all rows and columns"
    say.data(f"-v: {others}; --by op,kernel,comm,memory,...: other tables; -o tables.xlsx: a file")


def step_digest(found: Statistics) -> Result | None:
    """The steps of each rank and graph in a row, the slowest first; None without steps."""
    import numpy as np

    from traceconv.analysis.tables.definition import NOTHING, Column, Result, Table
    from traceconv.core.side_tables import ABSENT, DataTable

    tables = {one.table.name: one.data.columns for one in found.results if one.rows}
    if not {"step", "overlap"} <= tables.keys():
        return None
    steps, overlap = tables["step"], tables["overlap"]
    whole = overlap["Step"] == ABSENT
    shares = ("Compute(%)", "Exposed Communication(%)", "Idle(%)")
    rows = []
    for rank, graph in sorted({*zip(steps["Rank"].tolist(), steps["Graph"].tolist(), strict=True)}):
        own = (steps["Rank"] == rank) & (steps["Graph"] == graph)
        length, numbers = steps["Duration(ns)"][own], steps["Step"][own]
        p50, p95 = np.percentile(length, [50, 95], method="inverted_cdf").tolist()
        of_rank = whole & (overlap["Rank"] == rank)
        known = [float(overlap[name][of_rank][0]) if of_rank.any() else np.nan for name in shares]
        worst = int(length.argmax())
        row = (rank, graph, len(length), int(length.sum()) // len(length), int(p50), int(p95))
        rows.append((*row, int(length[worst]), int(numbers[worst]), *known))
    rows.sort(key=lambda row: -row[3])
    columns = (
        *Column.whole("Rank", "Graph", "Steps"),
        *Column.ns("Mean", "p50", "p95", "Max"),
        *Column.whole("Worst Step"),
        *Column.percent("Compute", "Exposed Comm.", "Idle"),
    )
    kinds = {"int": np.int64, "float": np.float64}
    data = {
        column.key: np.array(values, kinds[column.kind])
        for column, values in zip(columns, zip(*rows, strict=True), strict=True)
    }
    title = "Steps per rank, the slowest first; shares are of the whole rank"
    table = Table("digest", title, "", "", columns, lambda _: NOTHING, lambda _: NOTHING)
    return Result(table, DataTable("digest", data, {}), len(rows))


def _refuse_several(by: Sequence[str]) -> None:
    """Raise before any work is done for CSV tables that would follow each other in one stream.

    Raises:
        click.UsageError: ``by`` names several tables, or maybe (those of files).
        OptionError: it names a table that does not exist.
    """
    from traceconv.analysis.tables.catalog import chosen

    names = chosen(by)
    if len(names) > 1:
        single = next((name for name in names if chosen([name]) == [name]), "type")
        raise click.UsageError(
            f"a CSV file holds one table, and these are {len(names)}: {', '.join(names)}; choose "
            f"one (--by {single}), or write a file for each (-o FILE.csv)"
        )


def _with_rows(results: Sequence[Result], quiet: bool) -> list[Result]:
    """The tables that have rows; the others, which would be empty files or sheets, get a line."""
    full = [one for one in results if one.rows]
    for one in results if not quiet else ():
        if not one.rows:
            say.message(f"{_without_rows(one)}; it is not written")
    return full


def _missing(results: Sequence[Result], left_out: bool) -> str:
    """Why no table has a row."""
    if not results:
        if left_out:
            return "nothing is left of these tables; see --columns and --filter"
        return "the profilers left no tables beside these timelines"
    lines = [_without_rows(one) for one in results]
    return "\n".join([*lines, "nothing is left to show; `--by files` has what profilers left"])


def _without_rows(result: Result) -> str:
    return f"table {result.table.name} has no data: needs {result.table.needs}"


def rendered(
    results: Sequence[Result], form: str, explain: bool, width: int | None = None
) -> dict[str, str]:
    """The text by name of table; "" where one text holds all."""
    from traceconv.report import table_text as render

    if form == "csv":
        return {result.table.name: render.csv_text(result) for result in results}
    if form == "json":
        return {"": render.json_text(results)}
    if form == "md":
        return {"": say.with_flags(render.markdown(results, explain))}
    return {"": say.with_flags(render.text(results, explain, width))}


def contents(results: Sequence[Result], form: str, explain: bool) -> Mapping[str, str | bytes]:
    """What files hold, by name of table; "" where one file holds all."""
    from traceconv.report import table_files, table_text

    if form == "parquet":
        return {result.table.name: table_files.parquet(result.data) for result in results}
    if form == "xlsx":
        sheets = {result.table.name: table_text.exact_columns(result) for result in results}
        return {"": table_files.workbook(sheets)}
    return rendered(results, form, explain)


def write(
    contents: Mapping[str, str | bytes], path: Path, several: bool, force: bool, quiet: bool
) -> None:
    """One file, or one per table.

    Args:
        several: whether several tables were asked for: then the names of files tell them apart,
            even if only one of them has rows.

    Raises:
        OutputError: it exists, or cannot be written.
    """
    found = {
        path.with_stem(f"{path.stem}_{name}") if several and name else path: content
        for name, content in contents.items()
    }
    for file in found:
        files.refuse_existing(file, force)
    for file, content in found.items():
        files.write(file, content)
        if not quiet:
            say.message(f"wrote {file}")
