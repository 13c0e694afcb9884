"""``traceconv stats``: tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceconv.cli import files, options, say

FORMATS = ("text", "csv", "json", "md")
DEFAULT_TOP = 20


def _top(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """As :func:`options.top`; -1 for the default: 20 rows for people, all for programs."""
    return -1 if value is None else options.top(ctx, param, value)


@click.command(short_help="Tables: steps, overlap, operators, communication, memory ...")
@options.paths
@click.option(
    "--by",
    callback=options.parsed("words"),
    metavar="TABLE,...",
    default="step,overlap",
    show_default=True,
    help="step, overlap, op, type, kernel, shape, module, comm, link, memory, data, api, summary, "
    "files; one of their single tables; or all.",
)
@click.option(
    "--ranks", callback=options.parsed("numbers"), metavar="0-7,12|all", help="Which ranks."
)
@click.option(
    "--graphs", callback=options.parsed("numbers"), metavar="1,2|all", help="Which graphs."
)
@click.option(
    "--steps", callback=options.parsed("numbers"), metavar="10-12|all", help="Which steps."
)
@click.option(
    "--time",
    callback=options.parsed("window"),
    metavar="1.2s:1.5s",
    help="What touches this window, counted from the first event.",
)
@click.option(
    "--format",
    "form",
    type=options.Choice(FORMATS),
    help="How tables are written; default: as the ending of -o says; text without one.",
)
@click.option(
    "-o", "--output", metavar="FILE", help="Where to; several CSV tables: FILE_<table>.csv."
)
@click.option("-f", "--force", is_flag=True, help="Overwrite.")
@click.option(
    "--top",
    callback=_top,
    metavar="N|all",
    help="Most rows per rank of long tables; default 20 in text and md, else all.",
)
@click.option("--explain", is_flag=True, help="Show the formula of every table.")
@click.option(
    "--align",
    callback=options.parsed("align"),
    metavar="none|auto|meta|wall|FILE",
    default="none",
    show_default=True,
    help="How clocks are brought together; it moves stamps and --time, no lengths.",
)
@options.reading
@options.classing
@options.missing
@options.working
@options.chatter
def stats(
    paths: tuple[str, ...],
    form: str | None,
    output: str | None,
    force: bool,
    explain: bool,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Tables of the ranks below PATH... (default: here), per rank and over all ranks.

    \b
    traceconv stats ./prof --by step,overlap
    traceconv stats ./prof --by type --ranks 0 --top 10 --explain
    traceconv stats ./prof --by all -o tables.json
    """
    form = form or options.form_of(output, FORMATS)
    if given["top"] == -1:
        given["top"] = DEFAULT_TOP if form in ("text", "md") else None
    from traceconv import stats

    with say.bar(quiet=quiet) as progress:
        found = stats(*paths, **given, progress=progress)
    if not found.results:
        say.message("profilers left no tables beside these timelines")
        return
    texts = _rendered(found.results, form, explain)
    if output is None or output == "-":
        say.data("\n".join(texts.values()).rstrip("\n"))
    else:
        _write(texts, Path(output), force, quiet)
    if not quiet:
        say.show_issues(found.issues, say.ALL_LINES if verbose else say.ISSUE_LINES)


def _rendered(results: Any, form: str, explain: bool) -> dict[str, str]:
    """The text by name of table; "" where one text holds all."""
    from traceconv.report import table_text as render

    if form == "csv":
        return {result.table.name: render.csv_text(result) for result in results}
    if form == "json":
        return {"": render.json_text(results)}
    written = render.markdown if form == "md" else render.text
    return {"": say.with_flags(written(results, explain))}


def _write(texts: dict[str, str], path: Path, force: bool, quiet: bool) -> None:
    """One file, or one per table.

    Raises:
        OutputError: it exists, or cannot be written.
    """
    several = len(texts) > 1
    found = {path.with_stem(f"{path.stem}_{n}") if several else path: t for n, t in texts.items()}
    for file in found:
        files.refuse_existing(file, force)
    for file, text in found.items():
        files.write(file, text)
        if not quiet:
            say.message(f"wrote {file}")
