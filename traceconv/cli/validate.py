"""``traceconv validate``: check an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceconv.cli import options, say
from traceconv.core.errors import InputError

if TYPE_CHECKING:
    from traceconv.validation import Finding


@click.command(short_help="Check a trace: nesting, ids, references, precision.")
@click.argument("path", metavar="TRACE")
@options.as_json
@options.chatter
def validate(path: str, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Check TRACE, Perfetto or Chrome JSON, ours or not, for what viewers drop or show wrong.

    Exits with 3 if there is any of that.
    """
    from traceconv import validate

    verdict = validate(path)
    if as_json:
        say.document({"schema_version": 1, **verdict.as_dict()})
    elif not quiet:
        counts = ", ".join(f"{count} {name}" for name, count in verdict.counts.items())
        say.data(f"{verdict.path}: {verdict.format}, {counts}")
        for finding in verdict.findings:
            say.data(_line(finding, verbose))
    if not verdict.ok:
        raise InputError(
            f"{verdict.path}: a viewer would not show all of this trace, or show it wrong"
        )
    if not as_json and not quiet:
        say.data(f"{verdict.path}: ok")


def _line(finding: Finding, verbose: bool) -> str:
    places = finding.places if verbose else finding.places[:1]
    where = f" ({', '.join(places)})" if places else ""
    return f"{finding.severity}: {finding.rule} x{finding.count}{where}: {finding.sentence}"
