"""The loss report of ``convert --salvage``: what was met, what was lost, where, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import files, say

if TYPE_CHECKING:
    from traceconv import Report

SUFFIX = ".losses.json"
"""Added to the name of the output."""

SCHEMA_VERSION = 1


def prepare(options: dict[str, Any]) -> Path:
    """Where the report goes; ``options`` become those of a run that saves what it can.

    Raises:
        click.UsageError: the options leave no place for a report, or want no losses.
        OutputError: the report would overwrite a file.
    """
    if options["out"] == "-":
        raise click.UsageError("--salvage writes two files; name one with -o")
    if options["strict"]:
        raise click.UsageError("--salvage puts up with losses, --strict refuses them")
    path = Path(options["out"] + SUFFIX)
    files.refuse_existing(path, options["force"])
    options["allow_missing_ranks"] = True
    return path


def write(report: Report, path: Path, quiet: bool) -> None:
    """Write the report, and say in a line what it comes to.

    Raises:
        OutputError: it cannot be written.
    """
    import orjson

    found = document(report)
    files.write(path, orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    if quiet:
        return
    met, lost = (sum(kind[key] for kind in found["events"].values()) for key in ("met", "lost"))
    say.message(f"saved {met - lost} of {met} events; what was lost stands in {path}")


def document(report: Report) -> dict[str, Any]:
    """The report as JSON values: events by kind, losses and doubts with their places.

    ``met`` are the events a reader saw, ``lost`` those of them it could not keep; what lies in
    bytes that cannot be read at all is no event, and stands among the losses only.
    """
    events = {kind: {"met": 0, "lost": 0} for kind in ("slice", "instant", "counter", "flow")}
    for stages in report.ledger.values():
        for stage, key, sign in (("read", "met", 1), ("lost", "lost", -1)):
            for kind, rows in stages.get(stage, {}).items():
                events[kind][key] += sign * rows
    issues = [issue.as_dict() for issue in report.issues]
    return {
        "schema_version": SCHEMA_VERSION,
        "inputs": [file for one in report.captures for file in one["files"]],
        "outputs": [part.path for part in report.written],
        "events": events,
        "losses": [issue for issue in issues if issue["severity"] == "loss"],
        "doubts": [issue for issue in issues if issue["severity"] == "doubt"],
    }
