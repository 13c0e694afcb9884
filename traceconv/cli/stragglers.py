"""``traceconv stragglers``: which rank, and which link, delays the others."""

from __future__ import annotations

from typing import Any

import click

from traceconv.cli import options, say, screen


@click.command(cls=options.Analysis, short_help="Find the ranks and links that delay the others.")
@options.paths
@options.of("stragglers")
@options.as_json
@options.chatter
def stragglers(
    paths: tuple[str, ...], as_json: bool, quiet: bool, verbose: bool, **arguments: Any
) -> None:
    """Find the rank, link or stage that makes steps longer, of the ranks below PATH (default: the
    current folder).

    A rank is named if it takes longer by itself than ranks with the same role, in most steps or in
    some, by more than chance explains, and if steps would be shorter without that. Otherwise no
    rank stands out, or there is no verdict, with what was seen. Exit code 0 either way.

    \b
    traceconv stragglers ./prof
    traceconv stragglers ./prof --steps 10-20 --material 0.5 --json
    """
    from traceconv import stragglers

    with say.bar(quiet=quiet) as progress:
        report = stragglers(*paths, **options.given(arguments), progress=progress)
    if as_json:
        say.document(report.as_dict())
    else:
        lines = report.lines(verbose)
        lines = [
            f"{line} ({screen.MORE})" if line.endswith(" more ranks") else line for line in lines
        ]
        for line in lines if verbose else screen.folded(lines, screen.LINES - 1):
            say.data(line)
    say.show_issues(report.issues, quiet, verbose)
