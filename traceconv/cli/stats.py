"""``traceconv stats``: tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import files, options, say, screen
from traceconv.core.errors import EmptyResultError
from traceconv.core.patterns import lazy_regex
from traceconv.options import values

if TYPE_CHECKING:
    from traceconv.analysis.tables.catalog import Statistics
    from traceconv.analysis.tables.definition import Result
    from traceconv.core.columns import I64

FORMATS = ("text", "csv", "json", "md", "parquet", "xlsx", "speedscope.json", "folded")
FLAMES = ("speedscope.json", "folded")
"""Forms of the table of call paths, for viewers of flame graphs."""
ONE_TABLE = ("csv", "parquet")
"""A file of these holds one table."""
SHEETS = (*ONE_TABLE, "xlsx")
"""Tables without rows are left out of these."""

DEFAULT_TOP = 20

_ARRANGING = ("top", "sort", "filters", "columns", "steps", "group_by")
"""Options that ask for the rows of tables."""

BY = "step,overlap"

_COMPLETE = lazy_regex(r"device data( for all \d+)?$")
"""The end of the line for ranks whose steps all have figures."""


@click.command(
    cls=options.Analysis, short_help="Show tables: steps, overlap, operators, kernels, memory ..."
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
    **arguments: Any,
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
    target = files.Target.of(
        output, form, FORMATS, as_json=as_json, force=force, quiet=quiet, apart=ONE_TABLE
    )
    form = target.form
    single = ""
    if form == "csv" and not target.path:
        single = _only_table(values.words(arguments["by"] or BY, "by"))
    if form in FLAMES:
        _of_paths(arguments)
    screened = not target.path and say.fits()
    by_is_given = arguments["by"] is not None
    details = verbose or explain or any(arguments[name] for name in _ARRANGING)
    is_whole = details or (by_is_given and not screened)
    if (
        arguments["top"] is None
        and form in ("text", "md")
        and screened
        and (by_is_given or details)
    ):
        arguments["top"] = DEFAULT_TOP  # else the figures are those of all steps
    from traceconv import stats

    with say.bar(quiet=quiet) as progress:
        statistics = stats(*paths, **options.given(arguments), progress=progress)
    also = "; rows of the device are missing, see operators-missing"
    why_empty = also if statistics.issues.count("operators-missing") else ""
    missing = {
        table.name: f"table {table.name} has no data: needs {table.needs}{why_empty}"
        for table in (result.table for result in statistics.results if not result.rows)
    }
    for name, why in statistics.left_out if not quiet else ():
        say.message(f"table {name} is left out: {why}")
    if len(missing) == len(statistics.results):
        say.show_issues(statistics.issues, quiet, verbose)
        why = "no table remains; see --columns and --filter"
        if missing:
            why = "\n".join(
                [
                    *missing.values(),
                    "`--by files` has the profilers' own tables, `traceconv query` all events",
                ]
            )
        elif not statistics.left_out:
            why = "the profilers left no tables beside these timelines"
        raise EmptyResultError(why)
    shown = statistics.results
    if single:
        shown = tuple(result for result in shown if result.table.name == single)
    # a word may name several tables; --explain says what each needs
    if form == "text" and by_is_given:
        named = values.words(arguments["by"], "by")
        shown = tuple(result for result in shown if result.rows or result.table.name in named)
    if form in SHEETS:  # a table without rows would be an empty file or sheet
        shown = tuple(result for result in shown if result.rows)
        for name, line in missing.items() if not quiet else ():
            if name == (single or name):
                say.message(f"{line}; it is not written")
    if target.path:
        several = len(statistics.results) + len(statistics.left_out) > 1
        target.put_tables(contents(shown, form, explain), several)
        if as_json:
            say.raw(rendered(statistics.results, "json", explain)[""].rstrip("\n"))
    elif form == "text" and not is_whole:
        _show(
            statistics,
            shown,
            not by_is_given,
            each=by_is_given and "all" not in values.words(arguments["by"], "by"),
        )
    else:
        width = say.width() if say.fits() else None
        target.put("\n".join(rendered(shown, form, explain, width).values()))
    if not quiet:
        if verbose or not all(map(_COMPLETE.search, statistics.step_lines)):
            for line in screen.folded(statistics.step_lines, 99 if verbose else 2):
                say.message(line)
        say.show_issues(statistics.issues, quiet, verbose)


def _show(statistics: Statistics, results: Sequence[Result], digest: bool, each: bool) -> None:
    """The tables on one screen, on one each, or what they say of all steps: whole in a pipe."""
    from traceconv.report import table_text

    steps = step_digest(statistics) if digest else None
    shown = [steps] if steps else results
    width = say.width() if say.fits() else 100
    limit = screen.RESULT - 1 if say.fits() else 100 + sum(result.rows for result in shown)
    groups = [[result] for result in shown] if each else [shown]
    for group in groups:
        for line in table_text.screen(group, width, screen.LINES if each else limit):
            say.data(say.with_flags(line))
    empty = [result.table.name for result in statistics.results if not result.rows]
    if empty and not digest:
        say.data(say.short(f"no data: {', '.join(empty)}; --explain says what these need"))
    if steps and "overlap" in empty:
        say.data(
            say.short("no device work was found; a merged trace has it with --mode detail only")
        )
    rest_of_it = "all steps" if steps else "all rows and columns"
    say.data(
        f"-v: {rest_of_it}; --by op,kernel,comm,memory,...: other tables; -o tables.xlsx: a file"
    )


def step_digest(statistics: Statistics) -> Result | None:
    """The steps of each rank and graph in a row, the slowest first; None without steps."""
    import numpy as np

    from traceconv.analysis.tables.definition import NOTHING, Column, Result, Table
    from traceconv.core.side_tables import ABSENT, DataTable

    tables = {
        result.table.name: result.data.columns for result in statistics.results if result.rows
    }
    if "step" not in tables:
        return None
    # of the steps with figures of devices, if there are some; those are sums over the devices
    of_devices = "overlap" in tables
    source = tables["overlap" if of_devices else "step"]
    known_ns = source["Known(ns)" if of_devices else "Duration(ns)"]
    identity = ("Rank", "Graph", "Step", "Window")
    columns = [tables["step"][key].tolist() for key in (*identity, "Device Time(ns)")]
    device_ns = {tuple(step): ns for *step, ns in zip(*columns, strict=True)}
    numbered = bool((source["Step"] != ABSENT).any())  # else there are sums of all steps only
    rows_of: dict[tuple[int, int], list[int]] = {}
    for row, (rank, graph, step, _) in enumerate(
        zip(*(source[key].tolist() for key in identity), strict=True)
    ):
        if known_ns[row] > 0 and rank != ABSENT and (step != ABSENT or not numbered):
            rows_of.setdefault((rank, graph), []).append(row)
    if not rows_of:
        return None
    shares = {
        "Compute(%)": "Total Compute(ns)",
        "Unclassified(%)": "Unclassified(ns)",
        "Exposed Comm.(%)": "Communication Not Overlapped(ns)",
        "Idle(%)": "Idle(ns)",
    }
    if shares["Unclassified(%)"] not in source:
        del shares["Unclassified(%)"]
    graphs = ("Graph",) * any(graph != ABSENT for _, graph in rows_of)
    rows = []
    for (rank, graph), step_rows in sorted(rows_of.items()):
        numbers, total = source["Step"][step_rows], known_ns[step_rows]
        steps = zip(*(source[key][step_rows].tolist() for key in identity), strict=True)
        of_one = sum(max(device_ns.get(step, 0), 0) for step in steps) if of_devices else 0
        devices = max(round(int(total.sum()) / of_one), 1) if of_one else 1
        length = total // devices
        p50, p95 = np.median(length), np.percentile(length, 95, method="inverted_cdf")
        percentages = [
            _share(source[name][step_rows], total) if of_devices else np.nan
            for name in shares.values()
        ]
        worst = int(length.argmax())
        mean = int(length.sum()) // len(length)
        spread = (mean, int(p50), int(p95), int(length[worst]))
        graph_of = (graph,) * bool(graphs)
        rows.append((rank, *graph_of, len(length), *spread, int(numbers[worst]), *percentages))
    rows.sort(key=lambda row: -row[2 + len(graphs)])
    defined = Column.parse(
        f"Rank, {'Graph, ' * bool(graphs)}Steps, Mean(ns), p50(ns), p95(ns), Max(ns), Worst Step, "
        f"{', '.join(shares)}"
    )
    kinds = {"int": np.int64, "float": np.float64}
    data = {
        column.key: np.array(values, kinds[column.kind])
        for column, values in zip(defined, zip(*rows, strict=True), strict=True)
    }
    if all(row[1 + len(graphs)] == 1 for row in rows):  # nothing to summarise
        summaries = ("p50(ns)", "p95(ns)", "Max(ns)", "Worst Step")
        defined = tuple(column for column in defined if column.key not in summaries)
    title = "Steps per rank, the slowest first"
    table = Table("digest", title, "", "", defined, lambda _: NOTHING, lambda _: NOTHING)
    return Result(table, DataTable("digest", data, {}), len(rows))


def _share(part_ns: I64, known_ns: I64) -> float:
    """Part of the known time of the rows in which it is known, percent; NaN if in none."""
    import numpy as np

    known = part_ns >= 0
    return float(100 * part_ns[known].sum() / known_ns[known].sum()) if known.any() else np.nan


def _of_paths(arguments: dict[str, Any]) -> None:
    """Ask for the call paths alone.

    Raises:
        click.UsageError: other tables are asked for.
    """
    if arguments["by"] is not None and values.words(arguments["by"], "by") not in PATHS:
        raise click.UsageError("flame graphs hold call paths: use --by stack, or leave --by out")
    arguments["by"] = "stack_path"


PATHS = (("stack",), ("stack_path",))


def _only_table(by: Sequence[str]) -> str:
    """The table of a CSV stream: the named one, or the one with the name of its group.

    Raises:
        click.UsageError: ``by`` names several tables, or maybe (those of files).
        OptionError: it names a table that does not exist.
    """
    from traceconv.analysis.tables.catalog import chosen

    names = chosen(by)
    if len(names) > 1 and not (len(by) == 1 and by[0] in names):
        single = next((name for name in names if chosen([name]) == [name]), "type")
        raise click.UsageError(
            f"a CSV file holds one table, and these are {len(names)}: {', '.join(names)}; choose "
            f"one (--by {single}), or write a file for each (-o FILE.csv)"
        )
    return by[0] if by[0] in names else names[0]


def rendered(
    results: Sequence[Result], form: str, explain: bool, width: int | None = None
) -> dict[str, str]:
    """The text by name of table; "" where one text holds all."""
    from traceconv.report import table_text as render

    if form == "csv":
        return {result.table.name: render.csv_text(result) for result in results}
    if form == "json":
        return {"": render.json_text(results)}
    if form in FLAMES:
        from traceconv.report import flames

        write = flames.speedscope if form == FLAMES[0] else flames.collapsed
        return {"": write(results[0].data)}
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
