"""``traceconv inspect``: the captures in a folder."""

from __future__ import annotations

from typing import Any

import click

from traceconv.cli import options, say, screen

_MORE = f"further captures, tables and unread files; {screen.MORE}"


@click.command(cls=options.Command, short_help="Show the captures in a folder.")
@options.paths
@options.of("inspect")
@options.as_json
@options.chatter
def inspect(
    paths: tuple[str, ...], as_json: bool, quiet: bool, verbose: bool, **given: Any
) -> None:
    """Show the captures below PATH (default: the current folder): format, rank, host, device,
    graphs, clock and size.

    \b
    traceconv inspect ./prof
    traceconv inspect ./prof --counts
    """
    from traceconv import inspect

    with say.bar(quiet=quiet) as progress:
        found = inspect(*paths, **options.given(given), progress=progress)
    if as_json:
        say.document(found.as_dict())
    else:
        lines = [say.with_flags(line) for line in found.lines(every=verbose)]
        for line in lines if verbose else screen.folded(lines, more=_MORE):
            say.data(line)
    say.show_issues(found.issues, quiet, verbose)
