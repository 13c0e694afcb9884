"""``traceconv what-if``: how long steps would take if something were different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceconv.cli import completion, options, say, screen
from traceconv.core.patterns import lazy_regex

_LIKE_A_CHANGE = lazy_regex(r"[A-Za-z_]+\s*[:=](?!//).*")
"""Taken for a change if no file has that name: the error lists the valid ones."""

_WORD = lazy_regex(r"[^/*?]+")
"""The same, where nothing else is a change."""


@click.command(cls=options.Analysis, short_help="Replay the job with something changed.")
@click.argument("paths", nargs=-1, metavar="[CHANGE]... [PATH]...", shell_complete=completion.files)
@options.of("what-if")
@options.as_json
@options.chatter
def what_if(
    paths: tuple[str, ...], as_json: bool, quiet: bool, verbose: bool, **arguments: Any
) -> None:
    """Replay the job below PATH (default: the current folder) with something changed, and compare
    its steps.

    Several changes apply one after the other. They may be given before or after the paths. Without
    a change, those that save most are listed.

    \b
    traceconv what-if ./prof                     what would save most
    traceconv what-if 'rank:3=peers' ./prof      rank 3 is like its peers
    traceconv what-if 'op:*gemm* x0.5' ./prof    these kernels take half as long
    traceconv what-if 'comm:dp overlap' ./prof   gradients are hidden
    traceconv what-if 'comm:* x0.7' ./prof       transfers take 30 % less time
    traceconv what-if 'stage:balanced' ./prof    stages have equal work
    traceconv what-if 'input:0' ./prof           no rank waits for input
    traceconv what-if 'gc:0' ./prof -o both.pftrace    and a trace of both
    """
    from traceconv import what_if
    from traceconv.analysis.replay.what_if import CHANGE

    changes = [word for word in paths if CHANGE.fullmatch(word)]
    absent = [word for word in paths if word not in changes and not Path(word).exists()]
    alone = not (changes or arguments["change"])
    changes += [
        word
        for word in absent
        if _LIKE_A_CHANGE.fullmatch(word) or (alone and _WORD.fullmatch(word))
    ]
    folders = [word for word in paths if word not in changes] or ["."]
    chosen = options.given(arguments)
    chosen["change"] = (*changes, *chosen.get("change", ()))
    with say.bar(quiet=quiet) as progress:
        report = what_if(*folders, **chosen, progress=progress)
    if as_json:
        say.document(report.as_dict())
    else:
        for line in screen.folded(report.lines()):
            say.data(line)
    for output_file in report.written if not quiet else ():
        say.message(f"wrote {output_file.path}")
    say.show_issues(report.issues, quiet, verbose)
