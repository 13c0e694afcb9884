"""``traceconv diff``: two runs side by side, and a gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from traceconv.cli import completion, files, options, say, screen
from traceconv.io import atomic
from traceconv.options import values

if TYPE_CHECKING:
    from traceconv import DiffReport

FORMATS = ("text", "json", "md", "csv", "html")
REGRESSION, UNSURE = 10, 11
"""Exit codes if a gate fails, and if it has no verdict."""

_TRACES = (".pftrace", ".perfetto-trace", ".pftrace.gz", ".perfetto-trace.gz")


_UNSURE = (
    "no verdict fails: record more steps, set a limit outside the interval, or accept it with "
    "--on-unknown pass"
)
"""What to do about a gate without a verdict."""


@click.command(cls=options.Command, short_help="Compare two runs; a gate for CI.")
@click.argument("before", shell_complete=completion.files)
@click.argument("after", required=False, shell_complete=completion.files)
@options.of(
    "diff",
    without={"out", "force"},
    help={
        "ranks": "Only these ranks, by number or coordinates; BEFORE:AFTER compares some with "
        "others, as in 0:3 or 0-3:4-7.",
        "steps": "Only these steps; BEFORE:AFTER compares some with others, as in 1-5:6-10.",
    },
)
@options.form(FORMATS, "Format of the result. Default: text, or one line if all gates pass.")
@options.output(
    "Output file: .txt, .md, .csv, .json or .html for the result; .pftrace for both runs in one "
    "trace, aligned at the starts of their steps, with the changes marked."
)
@options.report
@options.option(
    "--top",
    metavar="N|all",
    default="10",
    callback=options.parsed(values.rows),
    section="Output",
    help="Items shown in text and md; json, csv and html have all.  [default: 10, or what fits]",
)
@options.force
@options.as_json
@options.chatter
def diff(
    before: str,
    after: str | None,
    form: str | None,
    output: str | None,
    report: str | None,
    top: int | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **arguments: Any,
) -> None:
    """Compare the steps of two runs: what got slower or faster, item by item.

    BEFORE and AFTER are captures, folders of ranks, merged traces, or reports (merge --report
    FILE.json). Every nanosecond of a step belongs to one item, and the changes of the items add up
    to the change of the step.

    \b
    traceconv diff ./monday ./tuesday
    traceconv diff monday.json ./tuesday --fail-on 'step>2%'
    traceconv diff ./prof --ranks 0:3
    traceconv diff ./prof --steps 1-5:6-10
    """
    trace = output if (output or "").endswith(_TRACES) else None
    target = files.Target.of(
        None if trace else output, form, FORMATS, as_json=as_json, force=force, quiet=True
    )
    form = target.form if target.path or as_json else form
    if report:
        atomic.check(report, force, "the report")
        report_form = files.form_of(Path(report), None, FORMATS)
    from traceconv import diff

    with say.bar(quiet=quiet) as progress:
        comparison = diff(
            before, after, **options.given(arguments), out=trace, force=force, progress=progress
        )
    passed = comparison.outcome == "passed"
    if form in (None, "text") and not target.path and not verbose:
        top = _fitting(comparison, top)
    if target.path or not (passed and form is None):
        target.put(_rendered(comparison, form or "text", top))
    if passed and (target.path or form is None):
        for line in comparison.gate_lines():
            say.data(say.with_flags(f"gate {line}"))
    if as_json and target.path:
        say.raw(comparison.json_text().rstrip("\n"))
    if report:
        files.write({Path(report): _rendered(comparison, report_form, None)})
    if not quiet:
        for name in filter(None, (target.path, trace, report)):
            say.message(f"wrote {name}")
    if not quiet and not (passed and form is None):
        say.show_issues(comparison.issues, quiet, verbose)
    if any(gate["outcome"] == "no verdict" for gate in comparison.document["gates"]) and not quiet:
        accepted = arguments["on_unknown"] == "pass"
        say.message("no verdict passes: --on-unknown pass" if accepted else _UNSURE)
    if comparison.outcome not in (None, "passed"):
        if target.path or form not in (None, "text", "md"):  # these show the gates already
            for line in comparison.gate_lines():
                say.message(say.with_flags(f"gate {line}"))
        code = REGRESSION if comparison.outcome == "failed" else UNSURE
        click.get_current_context().exit(code)


def _fitting(report: DiffReport, top: int | None) -> int | None:
    """The default number of items, or fewer if the page would not fit a screen."""
    if click.get_current_context().get_parameter_source("top") is not ParameterSource.DEFAULT:
        return top
    pages = ((n, _rendered(report, "text", n)) for n in range(top or 0, 3, -1))
    room = screen.LINES - len(say.issue_lines(report.issues, say.ISSUE_LINES))
    return next((n for n, page in pages if page.count("\n") <= room), 3)


def _rendered(report: DiffReport, form: str, top: int | None) -> str:
    if form == "json":
        return report.json_text()
    if form == "csv":
        return report.csv_text()
    if form == "html":
        return say.with_flags(report.html_text())
    width = say.width() if say.fits() else None
    return say.with_flags(report.markdown(top) if form == "md" else report.text(top, width))
