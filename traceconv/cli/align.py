"""``traceconv align``: how the clocks of ranks differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceconv.cli import files, options, say


@click.command(
    cls=options.Computing, short_help="Estimate how the clocks of ranks differ; print or write it."
)
@options.paths
@options.output("Write the offsets as JSON, for --align FILE.")
@options.aligning
@options.ranks
@options.reading
@options.classing
@options.missing
@options.working
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
    """Say by how much the clocks of the ranks below PATH... (default: here) differ.

    How sure that is, is said for each.

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

    method, max_error_ns = given.pop("align"), given.pop("align_max_error_ns")
    with say.bar(quiet=quiet) as progress:
        found = align(*paths, method=method, max_error_ns=max_error_ns, **given, progress=progress)
    if as_json:
        say.document(found.as_dict())
    else:
        for line in found.lines():
            say.data(line)
    if output:
        _write(found.as_dict(), Path(output))
    say.show_issues(found.issues, quiet, verbose)


def _write(document: dict[str, Any], path: Path) -> None:
    import orjson

    files.write(path, orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
