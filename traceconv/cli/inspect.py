"""``traceconv inspect``: what is here."""

from __future__ import annotations

from typing import Any

import click

from traceconv.cli import options, say


@click.command(
    cls=options.Sectioned, short_help="Say what is here: formats, ranks, graphs, clocks."
)
@options.paths
@click.option(
    "--counts",
    is_flag=True,
    help="Read every event, too: counts by kind and layer, steps, graphs.",
)
@options.reading
@options.working
@options.as_json
@options.chatter
def inspect(
    paths: tuple[str, ...], as_json: bool, quiet: bool, verbose: bool, **given: Any
) -> None:
    """Show the captures below PATH... (default: here).

    Of each the format, rank, host, device, graphs, clock and size.
    Reads names and small identity files only, unless --counts is given.
    """
    from traceconv import inspect

    with say.bar(quiet=quiet) as progress:
        found = inspect(*paths, **given, progress=progress)
    if as_json:
        say.document(found.as_dict())
    else:
        for line in found.lines(every=verbose):
            say.data(say.with_flags(line))
    say.show_issues(found.issues, quiet, verbose)
