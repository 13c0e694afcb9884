"""``traceconv validate``: check an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from traceconv.cli import completion, options, say
from traceconv.core.errors import InputError

if TYPE_CHECKING:
    from traceconv.validation import ValidationReport

SCHEMA_VERSION = 2


@click.command(cls=options.Command, short_help="Check traces: nesting, ids, references, precision.")
@click.argument(
    "paths", metavar="TRACE...", nargs=-1, required=True, shell_complete=completion.files
)
@options.option(
    "--deep",
    is_flag=True,
    section="Input",
    usual=True,
    help="Also load each TRACE into Perfetto's trace processor and compare the counts. "
    "`traceconv query --help` says where it is looked for.",
)
@options.as_json
@options.chatter
def validate(paths: Sequence[str], deep: bool, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Check each TRACE (Perfetto or Chrome JSON, from any program) for what viewers drop or show
    wrong.

    The exit code is 3 if there is any, or if a file cannot be read; the other files are checked in
    any case.

    \b
    traceconv validate trace.pftrace
    traceconv validate out/*.json --json
    """
    from traceconv import validate

    verdicts: list[ValidationReport] = []
    refused: list[tuple[str, str]] = []
    for path in paths:
        try:
            with say.bar(quiet=quiet) as progress:
                verdict = validate(path, progress, deep)
        except InputError as e:
            refused.append((path, str(e)))
            continue
        verdicts.append(verdict)
        if not as_json and not quiet:
            _show(verdict, verbose)
    if as_json:
        say.document(
            {
                "schema_version": SCHEMA_VERSION,
                "ok": not refused and all(verdict.ok for verdict in verdicts),
                "traces": [verdict.as_dict() for verdict in verdicts],
                "unreadable": [{"path": path, "reason": why} for path, why in refused],
            }
        )
    faults = [why for _, why in refused]
    faults += [
        f"{verdict.path}: a viewer would not show all of this trace, or show it wrong"
        for verdict in verdicts
        if not verdict.ok
    ]
    if faults:
        raise InputError("\nerror: ".join(faults))


def _show(verdict: ValidationReport, verbose: bool) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in verdict.counts.items())
    say.data(f"{verdict.path}: {verdict.format}, {counts}")
    if verdict.importer is not None:
        importer = ", ".join(f"{count} {name}" for name, count in verdict.importer.items())
        say.data(f"{verdict.path}: Perfetto's importer: {importer}")
    for finding in verdict.findings:
        places = finding.places if verbose else finding.places[:1]
        where = f" ({', '.join(places)})" if places else ""
        say.data(f"{finding.severity}: {finding.rule} x{finding.count}{where}: {finding.sentence}")
    if verdict.ok:
        say.data(f"{verdict.path}: ok")
