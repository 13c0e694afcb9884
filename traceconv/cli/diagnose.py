"""``traceconv diagnose``: findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import completion, files, options, say

if TYPE_CHECKING:
    from traceconv import Diagnosis

FORMATS = ("text", "json", "md", "html")
GATE = 10
"""Exit code of a run that --fail-on does not let pass."""


@click.command(cls=options.Computing, short_help="Say what is wrong, with evidence and advice.")
@options.paths
@click.option(
    "--rule",
    callback=options.parsed("words"),
    metavar="ID,...",
    shell_complete=completion.some_of(completion.rules),
    help="Only these rules; default all.",
)
@click.option(
    "--threshold",
    multiple=True,
    callback=options.parsed("thresholds"),
    metavar="RULE[.NAME]=NUMBER",
    help="Another threshold than the default; may be given several times.",
)
@options.ranks
@options.graphs
@options.steps
@options.form(FORMATS, "How findings are written; the ending of -o says it, too; default text.")
@options.output("Where to; default standard output.")
@options.force
@click.option(
    "--fail-on",
    type=options.Choice(["note", "warning"]),
    help=f"End with exit code {GATE} if a finding is at least as grave.",
)
@click.option(
    "--align",
    callback=options.parsed("align"),
    metavar="auto|collective|meta|wall|none|FILE",
    shell_complete=completion.clocks,
    default="auto",
    show_default=True,
    help="How clocks are brought together to compare ranks.",
)
@options.reading
@options.classing
@options.marking
@options.missing
@options.working
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
    """Judge the ranks below PATH... (default: here) by rules, with evidence.

    A rule that cannot look says what it would need.

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
        found = diagnose(*paths, **given, analyse=form == "html", progress=progress)
    _write(_rendered(found, form, verbose), target, quiet)
    if as_json and target:
        say.document(found.as_dict())
    if not quiet and not verbose and found.findings.unchecked and form in ("text", "md"):
        say.message("not checked: -v says what each of these rules needs")
    say.show_issues(found.issues, quiet, verbose)
    if fail_on and found.findings.at_least(fail_on):
        say.message(f"findings of severity {fail_on} or above (--fail-on)")
        click.get_current_context().exit(GATE)


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
