"""``traceconv diagnose``: findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import completion, files, options, say, screen
from traceconv.options import values

if TYPE_CHECKING:
    from traceconv import Diagnosis
    from traceconv.analysis.rules.findings import Finding

FORMATS = ("text", "json", "md", "html")
SHOWN = 4
"""Findings on a screen."""

GATE = 10
"""Exit code if --fail-on finds something."""


@click.command(cls=options.Analysis, short_help="Find problems, with evidence and advice.")
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
    **arguments: Any,
) -> None:
    """Check the ranks below PATH (default: the current folder) for problems, by rules.

    Findings name their evidence and what to do. -v lists the rules that were not checked, and what
    each needs.

    \b
    traceconv diagnose ./prof
    traceconv diagnose ./prof --rule long-tail --threshold long-tail=30
    traceconv diagnose ./prof -o findings.json --fail-on warning
    """
    target = files.Target.of(output, form, FORMATS, as_json=as_json, force=force, quiet=quiet)
    form = target.form
    from traceconv import diagnose

    with say.bar(quiet=quiet) as progress:
        diagnosis = diagnose(
            *paths, **options.given(arguments), analyse=form == "html", progress=progress
        )
    if form == "html":
        target.put(replace(diagnosis, document=say.flagged(diagnosis.document)).html_text())
    elif form == "json":
        target.put(say.json_text(diagnosis.as_dict()) + "\n")
    elif form == "md" or target.path or verbose:
        text = diagnosis.markdown(verbose) if form == "md" else diagnosis.text(verbose)
        target.put(say.with_flags(text))
    else:
        for line in _short(diagnosis):
            say.data(line)
    if target.path and not quiet and not as_json:
        say.message(diagnosis.headline)
    if as_json and target.path:
        say.document(diagnosis.as_dict())
    say.show_issues(diagnosis.issues, quiet, verbose)
    if fail_on and diagnosis.findings.at_least(fail_on):
        found = diagnosis.findings.at_least(fail_on)
        listed = {one.rule.id for one, _ in diagnosis.findings.beside(diagnosis.verdict).by_rule()}
        rules = ", ".join(
            rule if rule in listed else f"{rule} (its cause is the verdict's)"
            for rule in dict.fromkeys(finding.rule.id for finding in found)
        )
        count = say.number(len(found), "finding")
        say.message(f"{count} of severity {fail_on} or above (--fail-on): {rules}")
        click.get_current_context().exit(GATE)


def _short(diagnosis: Diagnosis) -> list[str]:
    """The verdict, and the findings that save most: in as many words as a screen has room for."""
    from traceconv.report import wording

    findings = diagnosis.findings.beside(diagnosis.verdict)
    verdict_line = diagnosis.verdict.headline() if diagnosis.verdict else ""
    lines = [*filter(None, (verdict_line, diagnosis.headline.removeprefix(verdict_line).strip()))]
    # the headline has the verdict and its advice already; `stragglers` has what it is based on
    repeated: tuple[str, ...] = ("advice: ", "without idle time", "based on ")
    if verdict_line and diagnosis.verdict:
        repeated = (*repeated, diagnosis.verdict.line())
    lines += [line for line in diagnosis.verdict_lines() if not line.startswith(repeated)]
    by_rule = findings.by_rule()
    lines += [
        wording.first_step(finding) for finding, _ in by_rule if finding.rule.id == "first-step"
    ]
    lines += [] if by_rule else ["no other findings" if verdict_line else "no findings"]
    counts = [say.number(len(by_rule) - SHOWN, "more finding")] * (len(by_rule) > SHOWN)
    counts += [say.number(len(findings.quiet), "check") + " passed"] * bool(findings.quiet)
    skipped = say.number(len(findings.unchecked), "check")
    counts += [f"{skipped} skipped (data not recorded)"] * bool(findings.unchecked)
    counts += ["gains overlap and do not add up"] * (len(by_rule) > 1)
    end = [f"{', '.join(counts)}; -v: details"]
    room = screen.LINES - len(say.issue_lines(diagnosis.issues, say.ISSUE_LINES))
    for shown, short in ((SHOWN, str), (SHOWN, say.short), (SHOWN - 1, say.short)):
        text = [*map(say.with_flags, lines), *_table(by_rule[:shown], short), *end]
        if len(screen.folded(text, most=len(text) * 99)) <= room:
            break
    return screen.folded(text, room)


def _table(
    by_rule: Sequence[tuple[Finding, Sequence[Finding]]], short: Callable[[str], str]
) -> list[str]:
    """Findings, the largest gain first: gain, what, where; then the rule and its advice."""
    if not by_rule:
        return []
    from traceconv.report import wording
    from traceconv.report.figures import time

    total = next((time(finding.whole_ns) for finding, _ in by_rule if not finding.per_step), "")
    head = (f"gain of {total}" if total else "gain/step", "finding", "where")
    rows = [
        (
            wording.gain(finding),
            f"{finding.title}: {finding.amount()}",
            finding.place() + f" +{len(further)} more" * bool(further),
        )
        for finding, further in by_rule
    ]
    wide = [max(len(row[n]) for row in (head, *rows)) for n in (0, 1)]
    lines = []
    for number, (gain, title, where) in enumerate((head, *rows)):
        lines.append(f"{gain:>{wide[0]}}  {title:{wide[1]}}  {where}")
        if number:
            shown = by_rule[number - 1][0]
            lines.append(short(say.with_flags(f"{'':9}  {shown.rule.id}: {shown.advice}")))
    return lines
