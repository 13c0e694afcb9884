"""``traceconv join``: the shares of a merge, brought together."""

from __future__ import annotations

from typing import Any

import click

from traceconv.cli import completion, options, outcome, say


@click.command(cls=options.Computing, short_help="Join the shards of one merge to its trace.")
@click.argument(
    "shards", nargs=-1, required=True, metavar="SHARD...", shell_complete=completion.files
)
@options.output(
    "Where to; the ending names the format (see `formats`), - is stdout. "
    "Default: trace_<mode>_ranks<ranks>.pftrace, here."
)
@click.option(
    "--allow-missing-ranks",
    is_flag=True,
    help="Go on without shards that are not there and ranks that could not be read.",
)
@options.finishing
@options.working
@options.as_json
@options.chatter
def join(shards: tuple[str, ...], **given: Any) -> None:
    """Join the folders that `traceconv merge --shard I/N` left, for all I of one merge.

    The trace is the one that a single run would have written, byte for byte; what was asked of
    the merge is stored in the shards.

    \b
    traceconv merge ./prof -m detail --shard $I/8 -o part$I.shard   on 8 hosts
    traceconv join part?.shard -o trace.pftrace                     on one
    """
    task = outcome.Task.of(given)
    from traceconv import join

    with task.accounted(), say.bar(quiet=task.quiet) as progress:
        report = join(*shards, **task.options, progress=progress)
    task.show(report)
