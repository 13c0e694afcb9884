"""``traceconv align``: how the clocks of ranks differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceconv.cli import files, options, say, screen


@click.command(cls=options.Command, short_help="Estimate the clock offsets of ranks.")
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
    **given: Any,
) -> None:
    """Estimate how the clocks of the ranks below PATH (default: the current folder) differ, and how
    sure that is.

    \b
    traceconv align ./prof
    traceconv align ./prof --align collective -o offsets.json
    traceconv merge ./prof --align offsets.json
    """
    if output == "-":
        output, as_json = None, True
    if output:
        options.form_of(output, None, ("json",))
        files.refuse_existing(Path(output), force)
    from traceconv import align

    with say.bar(quiet=quiet) as progress:
        found = align(*paths, **options.given(given), progress=progress)
    if as_json:
        say.document(found.as_dict())
    else:
        *table, clock = found.lines()
        lines = [clock, *table]
        for line in lines if verbose else screen.folded(lines):
            say.data(line)
    if output:
        _write(found.as_dict(), Path(output))
    say.show_issues(found.issues, quiet, verbose)


def _write(document: dict[str, Any], path: Path) -> None:
    import orjson

    files.write(path, orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
