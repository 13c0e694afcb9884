"""``traceconv align``: how the clocks of ranks differ."""

from __future__ import annotations

from typing import Any

import click

from traceconv.cli import files, options, say, screen


@click.command(cls=options.Analysis, short_help="Estimate the clock offsets of ranks.")
@options.paths
@options.output("Write the offsets as JSON, for --align FILE.")
@options.of("align")
@options.force
@options.as_json
@options.chatter
def align(
    paths: tuple[str, ...],
    output: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **arguments: Any,
) -> None:
    """Estimate how the clocks of the ranks below PATH (default: the current folder) differ, and how
    sure that is.

    \b
    traceconv align ./prof
    traceconv align ./prof --align collective -o offsets.json
    traceconv merge ./prof --align offsets.json
    """
    as_json = as_json or output == "-"
    target = files.Target.of(output, None, ("json",), as_json=False, force=force, quiet=True)
    from traceconv import align

    with say.bar(quiet=quiet) as progress:
        alignment = align(*paths, **options.given(arguments), progress=progress)
    if as_json:
        say.document(alignment.as_dict())
    else:
        *table, clock = alignment.lines(verbose)
        lines = [clock, *table]
        for line in lines if verbose else screen.folded(lines):
            say.data(line)
    if target.path:
        target.put(say.json_text(alignment.as_dict()) + "\n")
    say.show_issues(alignment.issues, quiet, verbose)
