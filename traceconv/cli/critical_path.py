"""``traceconv critical-path``: what bounds the steps of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceconv.cli import files, options, say, stats

TABLES = ("steps", "ranks", "segments")


@click.command(
    cls=options.Computing, short_help="Say what bounds a step: the critical path over all ranks."
)
@options.paths
@click.option(
    "--by",
    callback=options.parsed("words"),
    metavar="TABLE,...",
    default="steps,ranks",
    show_default=True,
    help="steps, ranks, segments (every stretch of the path), or all.",
)
@options.ranks
@options.steps
@options.form(stats.FORMATS, "How tables are written; the ending of -o says it, too; default text.")
@options.output(
    "Where to, default standard output; several CSV tables go to FILE_<table>.csv each."
)
@options.force
@click.option(
    "--top",
    callback=stats.top_rows,
    metavar="N|all",
    help="Most rows of segments; default 20 in text and md, else all.",
)
@click.option(
    "--clock-error",
    "clock_error_ns",
    callback=options.parsed("length"),
    metavar="50us",
    help="How far clocks may be off where nothing says it; without, what collectives show, and the "
    "path is unknown where there are none.",
)
@click.option(
    "--world-size",
    callback=options.parsed("count"),
    metavar="N",
    help="Ranks of the job, where captures do not say it; else nobody knows who was waited for.",
)
@options.explain
@options.aligning
@options.reading
@options.classing
@options.marking
@options.missing
@options.working
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
    """Follow what bounds each step of the job below PATH... (default: here), over all ranks.

    From the end of the last rank back: over its own work to the communication it waited for, to the
    rank that came last to that, and so on. The stretches add up to the step. Where clocks, missing
    ranks or gaps in what was recorded leave open how the path goes on, that is said.

    \b
    traceconv critical-path ./prof
    traceconv critical-path ./prof --steps 12 --by segments
    traceconv critical-path ./prof --json

    Exit code 0, also where the path is unknown.
    """
    form = options.form_of(output, options.on_stdout(as_json, form, output), stats.FORMATS)
    target = None if output in (None, "-") else Path(str(output))
    if target is None:
        options.refuse_binary(form)
        if form == "csv" and len(given["by"]) > 1:
            raise click.UsageError(
                "a CSV file holds one table; choose one (--by steps), or write a file for each "
                "(-o FILE.csv)"
            )
    elif form not in stats.ONE_TABLE:
        files.refuse_existing(target, force)
    if given["top"] == -1:
        given["top"] = stats.DEFAULT_TOP if form in ("text", "md") else None
    from traceconv import critical_path

    with say.bar(quiet=quiet) as progress:
        found = critical_path(*paths, **given, progress=progress)
    shown = [one for one in found.results if one.rows]
    width = say.width() if target is None and say.fits() else None
    if form == "json" or as_json:
        text = say.json_text(found.as_dict()) + "\n"
        if target is not None and form == "json":
            files.refuse_existing(target, force)
            files.write(target, text)
        if target is None or as_json:
            say.data(text.rstrip("\n"))
    if form != "json":
        if target is not None:
            stats.write(stats.contents(shown, form, explain), target, len(found.results) > 1, force,
                        quiet)  # fmt: skip
        elif shown:
            say.data("\n".join(stats.rendered(shown, form, explain, width).values()).rstrip("\n"))
    for line in map(say.with_flags, found.lines()):
        if form in ("text", "md") and target is None:
            say.data(line)
        elif not quiet:
            say.message(line)
    say.show_issues(found.issues, quiet, verbose)
