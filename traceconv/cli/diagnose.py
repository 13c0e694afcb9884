"""``traceconv diagnose``: findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import completion, files, options, say, screen
from traceconv.options import values

if TYPE_CHECKING:
    from traceconv import Diagnosis

FORMATS = ("text", "json", "md", "html")
SHOWN = 4
"""Findings on a screen."""

GATE = 10
"""Exit code of a run that --fail-on does not let pass."""


@click.command(cls=options.Command, short_help="Find problems, with evidence and advice.")
@options.paths
@options.of("diagnose")
@options.form(FORMATS, "Format of the findings, also given by the extension of -o. Default: text.")
@options.output("Output file. Default: standard output.")
@options.force
@options.option(
    "--fail-on",
    metavar="note|warning",
    section="Messages",
    usual=True,
    callback=options.parsed(values.one_of("note", "warning")),
    shell_complete=completion.one_of(completion.these("note", "warning")),
    help=f"End with exit code {GATE} if there is a finding of at least this severity.",
)
@options.as_json
@options.chatter
def diagnose(
    paths: tuple[str, ...],
    form: str | None,
    output: str | None,
    force: bool,
    fail_on: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Check the ranks below PATH (default: the current folder) for problems, by rules.

    Findings name their evidence and what to do. -v lists the rules that were not checked, and what
    each needs.

    \b
    traceconv diagnose ./prof
    traceconv diagnose ./prof --rule long-tail --threshold long-tail=30
    traceconv diagnose ./prof -o findings.json --fail-on warning
    """
    form = options.form_of(output, options.on_stdout(as_json, form, output), FORMATS)
    target = None if output in (None, "-") else Path(str(output))
    if target:
        files.refuse_existing(target, force)
    from traceconv import diagnose

    with say.bar(quiet=quiet) as progress:
        found = diagnose(*paths, **options.given(given), analyse=form == "html", progress=progress)
    if form == "text" and target is None and not verbose:
        for line in _short(found):
            say.data(line)
    else:
        _write(_rendered(found, form, verbose), target, quiet)
    if as_json and target:
        say.document(found.as_dict())
    say.show_issues(found.issues, quiet, verbose)
    if fail_on and found.findings.at_least(fail_on):
        say.message(f"findings of severity {fail_on} or above (--fail-on)")
        click.get_current_context().exit(GATE)


def _short(found: Diagnosis) -> list[str]:
    """The verdict, and two lines for each of the findings that save most."""
    findings = found.findings
    lines = [found.headline, *(found.verdict.lines() if found.verdict else ())]
    told = findings.by_rule()
    for first, others in told[:SHOWN]:
        also = f" (and {len(others)} more)" * bool(others)
        lines.append(say.short(f"{first.severity}: {first.text()}{also}"))
        saving = f"({first.saving()}) " if first.saving() else ""
        lines.append(say.short(f"    -> {saving}{say.with_flags(first.advice)}"))
    if not told:
        lines.append("no findings")
    rest = [say.number(len(told) - SHOWN, "more finding")] * (len(told) > SHOWN)
    rest += [say.number(len(findings.quiet), "check") + " passed"] * bool(findings.quiet)
    skipped = say.number(len(findings.unchecked), "check")
    rest += [f"{skipped} skipped (data not recorded)"] * bool(findings.unchecked)
    return screen.folded([*map(say.with_flags, lines), f"{', '.join(rest)}; -v: details"])


def _rendered(found: Diagnosis, form: str, every: bool) -> str:
    """The findings as text of a format, with flags where the library names keywords."""
    if form == "html":
        return replace(found, document=say.flagged(found.document)).html_text()
    if form == "json":
        return say.json_text(found.as_dict()) + "\n"
    return say.with_flags(found.markdown(every) if form == "md" else found.text(every))


def _write(text: str, target: Path | None, quiet: bool) -> None:
    if target is None:
        say.data(text.rstrip("\n"))
        return
    files.write(target, text)
    if not quiet:
        say.message(f"wrote {target}")
