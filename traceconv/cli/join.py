"""``traceconv join``: the shares of a merge, brought together."""

from __future__ import annotations

from typing import Any

import click

from traceconv.cli import completion, options, outcome, say


@click.command(cls=options.Command, short_help="Join the shards of one merge.")
@click.argument(
    "shards", nargs=-1, required=True, metavar="SHARD...", shell_complete=completion.files
)
@options.of(
    "join",
    help={
        "allow_missing_ranks": "Go on without shards that are absent and ranks that could not be "
        "read.",
    },
)
@options.report
@options.as_json
@options.chatter
def join(shards: tuple[str, ...], **arguments: Any) -> None:
    """Join the folders that `traceconv merge --shard I/N` wrote for all I into one trace.

    The trace is byte for byte the one that a single run would have written. The options of the
    merge are stored in the shards.

    \b
    traceconv merge ./prof -m detail --shard $I/8 -o part$I.shard   on 8 hosts
    traceconv join part?.shard -o trace.pftrace                     on one
    """
    task = outcome.Task.of(arguments)
    from traceconv import join

    with task.accounted(), say.bar(quiet=task.quiet) as progress:
        report = join(*shards, **task.options, progress=progress)
    task.show(report)
