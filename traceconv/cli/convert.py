"""``traceconv convert``: one capture, format to format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import completion, files, options, outcome, say
from traceconv.io import atomic

if TYPE_CHECKING:
    from traceconv import Report


SUFFIX = ".losses.json"
"""Added to the name of the output."""

SCHEMA_VERSION = 1

OUTPUT = "Output file; the extension selects the format. - is standard output."


def prepare(options: dict[str, Any]) -> Path:
    """Where the report goes; ``options`` become those of a run that saves what it can.

    Raises:
        click.UsageError: the options leave no place for a report, or want no losses.
        OutputError: the report would overwrite a file.
    """
    if options["out"] == "-":
        raise click.UsageError("--salvage writes two files; name one with -o")
    if options.get("strict"):
        raise click.UsageError("--salvage accepts losses, --strict refuses them")
    path = options["out"] + SUFFIX
    atomic.check(path, options.get("force", False), "the list of losses")
    options["allow_missing_ranks"] = True
    return Path(path)


def write(report: Report, path: Path, quiet: bool) -> None:
    """Write the report of losses, and summarize it in a line.

    Raises:
        OutputError: it cannot be written.
    """
    losses = document(report)
    files.write({path: say.json_text(losses) + "\n"})
    if quiet:
        return
    total, lost = (sum(kind[key] for kind in losses["events"].values()) for key in ("met", "lost"))
    say.message(f"saved {total - lost} of {total} events; {path} lists the losses")


def document(report: Report) -> dict[str, Any]:
    """The report as JSON values: events by kind, losses and warnings with their places.

    ``met`` counts the events a reader saw, ``lost`` those of them it could not keep. Unreadable
    bytes are not events, and are listed as losses only.
    """
    events = {kind: {"met": 0, "lost": 0} for kind in ("slice", "instant", "counter", "flow")}
    for stages in report.ledger.values():
        for stage, key, sign in (("read", "met", 1), ("lost", "lost", -1)):
            for kind, rows in stages.get(stage, {}).items():
                events[kind][key] += sign * rows
    issues = [issue.as_dict() for issue in report.issues]
    return {
        "schema_version": SCHEMA_VERSION,
        "inputs": [file for capture in report.captures for file in capture["files"]],
        "outputs": [output_file.path for output_file in report.written],
        "events": events,
        "losses": [issue for issue in issues if issue["severity"] == "loss"],
        "doubts": [issue for issue in issues if issue["severity"] == "doubt"],
    }


@click.command(cls=options.Command, short_help="Convert one capture to another format.")
@click.argument("path", metavar="IN", shell_complete=completion.files)
@options.option(
    "--salvage",
    is_flag=True,
    section="Input",
    help="For damaged input: write what can be read, and list the rest in FILE.losses.json.",
)
@options.of("convert", help={"out": OUTPUT})
@options.report
@options.as_json
@options.chatter
def convert(path: str, salvage: bool, **arguments: Any) -> None:
    """Convert one capture as it is: nothing is derived, and its clock is not changed.

    \b
    traceconv convert trace_view.json -o trace.pftrace
    traceconv convert run.json.gz -o run.json --exclude '^aten::'
    traceconv convert broken.json --salvage -o repaired.json
    """
    if arguments["out"] is None:
        raise click.UsageError("-o is missing: name the output file")
    task = outcome.Task.of(arguments)
    lost = prepare(task.options) if salvage else None
    from traceconv import convert

    with task.accounted(), say.bar(quiet=task.quiet) as progress:
        report = convert(path, **task.options, progress=progress)
    if lost is not None and not task.options.get("dry_run"):
        write(report, lost, quiet=task.quiet)
    task.show(report)
