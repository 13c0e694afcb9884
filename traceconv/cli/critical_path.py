"""``traceconv critical-path``: what bounds the steps of a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from traceconv.cli import files, options, say, screen, stats
from traceconv.options import values

BY = "steps,ranks"
TOP = stats.DEFAULT_TOP


@click.command(cls=options.Analysis, short_help="Find what bounds a step, over all ranks.")
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
    **arguments: Any,
) -> None:
    """Find what bounds each step of the job below PATH (default: the current folder), over all
    ranks.

    The path runs backwards from the end of the last rank: along its own work to the communication
    it waited for, then to the rank that entered it last, and so on. Its intervals add up to the
    step. The output says where clocks, missing ranks or gaps leave the path unknown; the exit code
    is 0 then, too.

    \b
    traceconv critical-path ./prof
    traceconv critical-path ./prof --steps 12 --by segments
    traceconv critical-path ./prof --json
    """
    target = files.Target.of(
        output, form, stats.FORMATS, as_json=as_json, force=force, quiet=quiet,
        apart=stats.ONE_TABLE,
    )  # fmt: skip
    form = target.form
    if form == "csv" and not target.path and len(values.words(arguments["by"] or BY, "by")) > 1:
        raise click.UsageError(
            "a CSV file holds one table; choose one (--by steps), or write a file for each "
            "(-o FILE.csv)"
        )
    if arguments["top"] is None and form in ("text", "md"):
        arguments["top"] = TOP
    arguments["by"] = arguments["by"] or BY
    from traceconv import critical_path

    with say.bar(quiet=quiet) as progress:
        path = critical_path(*paths, **options.given(arguments), progress=progress)
    shown = [result for result in path.results if result.rows]
    lines = [say.with_flags(line) for line in path.lines()]
    if form == "json":
        replace(target, quiet=True).put(say.json_text(path.as_dict()) + "\n")
    elif target.path:
        target.put_tables(stats.contents(shown, form, explain), len(path.results) > 1)
    elif verbose or explain or form != "text" or arguments["top"] != TOP:
        width = say.width() if say.fits() else None
        text = "\n".join(stats.rendered(shown, form, explain, width).values())
        target.put("\n".join([*lines, text]) if form in ("text", "md") else text)
    else:
        from traceconv.report import table_text

        brief = screen.folded(lines, 6)
        room = screen.RESULT + 2 - len(brief)
        tables = table_text.screen(shown, say.width() if say.fits() else 100, room)
        say.page("\n".join([*brief, *tables]))
    if as_json and target.path:
        say.document(path.as_dict())
    if not quiet and (target.path or form not in ("text", "md")):
        for line in lines:
            say.message(line)
    say.show_issues(path.issues, quiet, verbose)
