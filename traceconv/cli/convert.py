"""``traceconv convert``: one capture, format to format."""

from __future__ import annotations

from typing import Any

import click

from traceconv.cli import losses, options, outcome, say


@click.command(short_help="Convert one capture, format to format.")
@click.argument("path", metavar="IN")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="Where to; the ending names the format (see `formats`), - is stdout.",
)
@click.option(
    "--salvage",
    is_flag=True,
    help="Of damaged input: write what can be read, and FILE.losses.json with what cannot.",
)
@options.selecting
@options.limiting
@options.reading
@options.classing
@options.writing
@options.working
@options.as_json
@options.chatter
def convert(path: str, salvage: bool, **given: Any) -> None:
    """Convert one capture, with what is in it and nothing else; its clock is left as it is.

    \b
    traceconv convert trace_view.json -o trace.pftrace
    traceconv convert run.json.gz -o run.json --exclude '^aten::'
    traceconv convert broken.json --salvage -o repaired.json
    """
    task = outcome.Task.of(given)
    lost = losses.prepare(task.options) if salvage else None
    from traceconv import convert

    with task.told(), say.bar(quiet=task.quiet) as progress:
        report = convert(path, **task.options, progress=progress)
    if lost is not None and not task.options["dry_run"]:
        losses.write(report, lost, quiet=task.quiet)
    task.tell(report)
