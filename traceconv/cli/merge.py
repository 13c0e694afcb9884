"""``traceconv merge``: the main command."""

from __future__ import annotations

from typing import Any

import click

from traceconv.cli import open as viewer
from traceconv.cli import options, outcome, say


@click.command(cls=options.Command, short_help="Merge ranks and write one trace.")
@options.paths
@options.of("merge")
@options.report
@options.option(
    "--open",
    "opened",
    is_flag=True,
    section="Viewer",
    usual=True,
    help="Open the trace in the viewer, as `traceconv open` does.",
)
@viewer.viewing
@options.as_json
@options.chatter
def merge(
    paths: tuple[str, ...], opened: bool, no_browser: bool, wait: int, **arguments: Any
) -> None:
    """Merge the ranks below PATH into one trace. PATH is a file, folder, archive or pattern, or -
    (default: the current folder).

    \b
    traceconv merge ./prof --ranks 0-7 --open
    traceconv merge ./prof -m detail --ranks 3,4 --steps 12 -o slow.pftrace
    """
    address = arguments.pop("viewer")
    if opened:
        _refuse_unseen(arguments)
    out = arguments["out"] or ""
    if out.endswith((".html", ".md")):
        raise click.UsageError(f"-o {out}: merge writes a trace; use --report {out} for the report")
    task = outcome.Task.of(arguments)
    from traceconv import merge

    task.options["analyse"] = bool(task.report)
    with task.accounted(), say.bar(quiet=task.quiet) as progress:
        report = merge(*paths, **task.options, progress=progress)
    task.show(report)
    if opened:
        path = viewer.of_written([str(output_file.path) for output_file in report.written])
        view = viewer.view_of(report, by_rank=arguments.get("layout") != "lane")
        viewer.show(path, address, not no_browser, wait, task.quiet, view)


def _refuse_unseen(arguments: dict[str, Any]) -> None:
    """Raise before any work is done for what no viewer could show.

    Raises:
        click.UsageError: nothing, or no trace, would be written, or --json wants stdout as well.
    """
    out = arguments["out"] or ""
    unseen = (
        (f"-o {out}", out == "-" or out.endswith(".txt") or arguments["writer"] == "text"),
        ("--dry-run", arguments["dry_run"]),
        ("--shard", arguments["shard"] is not None),
        ("--json", arguments["as_json"]),
    )
    for option, is_given in unseen:
        if is_given:
            raise click.UsageError(f"--open shows a trace in a file; it does not go with {option}")
