"""``traceconv diff``: two runs side by side, and a gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from traceconv.cli import completion, files, options, say, screen
from traceconv.core.errors import ComparisonError, OutputPathError
from traceconv.options import values

if TYPE_CHECKING:
    from traceconv import DiffReport

FORMATS = ("text", "json", "md", "csv", "html")
REGRESSION, UNSURE = 10, 11
"""Exit codes of a run that --fail-on does not let pass, and of one that it cannot judge."""

_TRACES = (".pftrace", ".perfetto-trace", ".pftrace.gz", ".perfetto-trace.gz")


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
    **given: Any,
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
    page = None if trace or output in (None, "-") else output
    form = options.on_stdout(as_json, form, page)
    if page:
        form = options.form_of(page, form, FORMATS)
    _refuse(page, force)
    _refuse(report, force)
    if report:
        options.form_of(report, None, FORMATS)
    from traceconv import diff

    try:
        with say.bar(quiet=quiet) as progress:
            found = diff(
                before, after, **options.given(given), out=trace, force=force, progress=progress
            )
    except ComparisonError as e:
        if given["on_unknown"] != "pass":
            raise
        say.message(f"no verdict: {say.with_flags(str(e))}", fg="yellow")
        return
    passed = found.outcome == "passed"
    if form in (None, "text") and not page and not verbose:
        top = _fitting(found, top)
    _print(found, form, page, top, passed)
    if as_json and page:
        say.data(found.json_text().rstrip("\n"))
    if report:
        files.write(Path(report), _rendered(found, options.form_of(report, None, FORMATS), None))
    if not quiet:
        for name in filter(None, (page, trace, report)):
            say.message(f"wrote {name}")
    if not quiet and not (passed and form is None):
        say.show_issues(found.issues, quiet, verbose)
    if found.outcome not in (None, "passed"):
        for line in found.gate_lines():
            say.message(f"gate {line}")
        code = REGRESSION if found.outcome == "failed" else UNSURE
        click.get_current_context().exit(code)


def _refuse(path: str | None, force: bool) -> None:
    """Raise early for a file that could not be written later."""
    if path is None:
        return
    files.refuse_existing(Path(path), force)
    if not Path(path).parent.is_dir():
        raise OutputPathError(f"{path}: its folder does not exist")


def _print(
    found: DiffReport, form: str | None, page: str | None, top: int | None, passed: bool
) -> None:
    """The result on stdout or in its file; one line where all gates pass and no form is asked."""
    if page:
        files.write(Path(page), _rendered(found, form or "text", top))
    if passed and (page or form is None):
        say.data(f"passed: {'; '.join(found.gate_lines())}")
    elif not page:
        say.data(_rendered(found, form or "text", top).rstrip("\n"))


def _fitting(found: DiffReport, top: int | None) -> int | None:
    """The default number of items, or fewer if the page would not fit a screen."""
    if click.get_current_context().get_parameter_source("top") is not ParameterSource.DEFAULT:
        return top
    pages = ((n, _rendered(found, "text", n)) for n in range(top or 0, 3, -1))
    return next((n for n, page in pages if page.count("\n") <= screen.LINES), 3)


def _rendered(found: DiffReport, form: str, top: int | None) -> str:
    if form == "json":
        return found.json_text()
    if form == "csv":
        return found.csv_text()
    if form == "html":
        return say.with_flags(found.html_text())
    width = say.width() if say.fits() else None
    return say.with_flags(found.markdown(top) if form == "md" else found.text(top, width))
