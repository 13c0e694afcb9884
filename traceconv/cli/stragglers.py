"""``traceconv stragglers``: which rank, and which link, delays the others."""

from __future__ import annotations

from typing import Any

import click

from traceconv.cli import options, say


@click.command(
    cls=options.Computing, short_help="Say which rank, and which link, delays the others."
)
@options.paths
@options.ranks
@options.steps
@click.option(
    "--material",
    callback=options.parsed("percent"),
    metavar="PERCENT",
    default="1",
    show_default=True,
    help="Name nobody who costs less than this share of a step.",
)
@options.aligning
@options.reading
@options.classing
@options.marking
@options.missing
@options.working
@options.as_json
@options.chatter
def stragglers(
    paths: tuple[str, ...], as_json: bool, quiet: bool, verbose: bool, **given: Any
) -> None:
    """Compare the ranks below PATH... (default: here) by what they do between collectives.

    A rank is named if it works longer by itself than ranks that do the same, in most steps or in
    some, by more than chance explains, and others wait for it. Else the verdict is that nobody is
    slow, with a bound, or inconclusive, with what was seen. Exit code 0 either way.

    \b
    traceconv stragglers ./prof
    traceconv stragglers ./prof --steps 10-20 --material 0.5 --json
    """
    from traceconv import stragglers

    with say.bar(quiet=quiet) as progress:
        found = stragglers(*paths, **given, progress=progress)
    if as_json:
        say.document(found.as_dict())
    else:
        for line in found.lines():
            say.data(line)
    say.show_issues(found.issues, quiet, verbose)
