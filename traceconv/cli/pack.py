"""``traceconv pack``: ranks in one file, which every command reads."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import click

from traceconv.cli import options, say
from traceconv.store import SUFFIX


@click.command(cls=options.Command, short_help="Pack ranks into one file that every command reads.")
@options.paths
@options.output("The store. Default: run.tcz, here.")
@options.of("pack")
@options.as_json
@options.chatter
def pack(
    paths: tuple[str, ...],
    output: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **arguments: Any,
) -> None:
    """Pack the ranks below PATH (default: the current folder) into a store: one file that
    every command reads in their place, faster. It is much smaller than uncompressed captures; of
    .gz files it may be as large as they are.

    \b
    traceconv pack ./prof -o run.tcz
    traceconv diagnose run.tcz
    traceconv merge run.tcz --ranks 0-7 --time 1s:1.1s -o window.pftrace
    """
    out = output or f"run{SUFFIX}"
    if PurePath(out).suffix != SUFFIX:
        raise click.UsageError(f"-o {out}: the name of a store ends in {SUFFIX}")
    from traceconv import pack

    with say.bar(quiet=quiet) as progress:
        report = pack(*paths, out=out, **options.given(arguments), progress=progress)
    if as_json:
        say.document(report.as_dict())
    if not quiet:
        for line in report.lines():
            say.message(line)
        say.message(f"wrote {out} ({say.size(report.bytes)} from {say.size(report.source_bytes)})")
    say.show_issues(report.issues, quiet, verbose)
