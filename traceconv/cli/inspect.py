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
    paths: tuple[str, ...], as_json: bool, quiet: bool, verbose: bool, **arguments: Any
) -> None:
    """Show the captures below PATH (default: the current folder): format, rank, host, device,
    graphs, clock and size.

    \b
    traceconv inspect ./prof
    traceconv inspect ./prof --counts
    """
    from traceconv import inspect

    with say.bar(quiet=quiet) as progress:
        inspection = inspect(*paths, **options.given(arguments), progress=progress)
    if as_json:
        say.document(inspection.as_dict())
    else:
        lines = [say.with_flags(line) for line in inspection.lines(every=verbose)]
        for line in lines if verbose else screen.folded(lines, more=_MORE):
            say.data(line)
    say.show_issues(inspection.issues, quiet, verbose)
