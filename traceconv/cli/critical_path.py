"""``traceconv critical-path``: what bounds the steps of a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import files, options, say, screen, stats
from traceconv.options import values

if TYPE_CHECKING:
    from traceconv.analysis.tables.definition import Result

BY = "steps,ranks"
TOP = stats.DEFAULT_TOP


@click.command(cls=options.Command, short_help="Find what bounds a step, over all ranks.")
@options.paths
@options.of("critical-path")
@options.form(
    stats.FORMATS, "Format of the tables, also given by the extension of -o. Default: text."
)
@options.output("Output file. Several CSV tables go to FILE_<table>.csv each.")
@options.force
@options.explain
@options.as_json
@options.chatter
def critical_path(
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
    """Find what bounds each step of the job below PATH (default: the current folder), over all
    ranks.

    The path goes back from the end of the last rank: over its own work to the communication it
    waited for, to the rank that came last to that, and so on. Its intervals add up to the step.
    Where clocks, missing ranks or gaps leave the path open, that is said. The exit code is 0 also
    where the path is unknown.

    \b
    traceconv critical-path ./prof
    traceconv critical-path ./prof --steps 12 --by segments
    traceconv critical-path ./prof --json
    """
    form = options.form_of(output, options.on_stdout(as_json, form, output), stats.FORMATS)
    target = None if output in (None, "-") else Path(str(output))
    if target is None:
        options.refuse_binary(form)
        if form == "csv" and len(values.words(given["by"] or BY, "by")) > 1:
            raise click.UsageError(
                "a CSV file holds one table; choose one (--by steps), or write a file for each "
                "(-o FILE.csv)"
            )
    elif form not in stats.ONE_TABLE:
        files.refuse_existing(target, force)
    if given["top"] is None and form in ("text", "md"):
        given["top"] = TOP
    given["by"] = given["by"] or BY
    from traceconv import critical_path

    with say.bar(quiet=quiet) as progress:
        found = critical_path(*paths, **options.given(given), progress=progress)
    shown = [one for one in found.results if one.rows]
    if form == "json" or as_json:
        text = say.json_text(found.as_dict()) + "\n"
        if target is not None and form == "json":
            files.refuse_existing(target, force)
            files.write(target, text)
        if target is None or as_json:
            say.data(text.rstrip("\n"))
    whole = verbose or explain or target is not None or form != "text" or given["top"] != TOP
    told = [say.with_flags(line) for line in found.lines()]
    if form != "json" and target is not None:
        contents = stats.contents(shown, form, explain)
        stats.write(contents, target, len(found.results) > 1, force, quiet)
    elif form != "json":
        said = told if whole else screen.folded(told, 6)
        tables = _tables(shown, form, explain, None if whole else screen.RESULT - len(said))
        for line in (*said, *tables) if form in ("text", "md") else tables:
            say.data(line)
    if not quiet and (target is not None or form not in ("text", "md")):
        for line in told:
            say.message(line)
    say.show_issues(found.issues, quiet, verbose)


def _tables(shown: Sequence[Result], form: str, explain: bool, most: int | None) -> list[str]:
    """The tables as lines, at most so many; None for all."""
    from traceconv.report import table_text

    if most is not None:
        return table_text.screen(shown, say.width() if say.fits() else 100, most)
    width = say.width() if say.fits() else None
    text = "\n".join(stats.rendered(shown, form, explain, width).values())
    return text.rstrip("\n").split("\n") if text else []
