"""``traceconv diff``: two runs side by side, and a gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import options, say

if TYPE_CHECKING:
    from traceconv import Difference

FORMATS = ("text", "json", "md", "csv")
REGRESSION, UNSURE = 10, 11
"""Exit codes of a run that --fail-on does not let pass, and of one that it cannot judge."""


@click.command(short_help="Compare two runs, item by item; a gate for CI.")
@click.argument("before")
@click.argument("after", required=False)
@click.option(
    "--ranks",
    metavar="0-7|0:3",
    help="Which ranks; BEFORE:AFTER compares one with the other: 0:3, 0-3:4-7.",
)
@click.option(
    "--graphs", callback=options.parsed("numbers"), metavar="1,2|all", help="Which graphs."
)
@click.option(
    "--steps",
    metavar="2-9|1-5:6-10",
    help="Which steps; BEFORE:AFTER compares these with those.",
)
@click.option(
    "--tolerance",
    callback=options.parsed("percent"),
    metavar="PERCENT",
    default="1",
    show_default=True,
    help="A smaller difference, of whatever is compared, is none.",
)
@click.option(
    "--fail-on",
    multiple=True,
    metavar="FIGURE>LIMIT",
    help="A gate: 'step>2%', 'exposed_comm>500us', 'op:MatMul>3%'; may be given several times. "
    f"Exit code {REGRESSION} if one is proven to be broken, {UNSURE} if that cannot be told.",
)
@click.option(
    "--force-compare",
    is_flag=True,
    help="Show runs that cannot be compared, too, without verdict.",
)
@click.option(
    "--format",
    "form",
    type=options.Choice(FORMATS),
    help="How the result is printed; default text, and one line where all gates pass.",
)
@click.option(
    "--top",
    callback=options.top,
    metavar="N|all",
    default="10",
    show_default=True,
    help="Items shown in text and md; json and csv have all.",
)
@options.reading
@options.classing
@options.missing
@options.working
@options.chatter
def diff(
    before: str,
    after: str | None,
    fail_on: tuple[str, ...],
    form: str | None,
    top: int | None,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Say what of a step got slower or faster from the run BEFORE to the run AFTER.

    Each is a capture, a folder of ranks, a merged trace, or a report (merge --report FILE.json).
    Every nanosecond of a step belongs to one item, and the changes of the items add up to the
    change of the step.

    \b
    traceconv diff ./monday ./tuesday
    traceconv diff monday.json ./tuesday --fail-on 'step>2%'
    traceconv diff ./prof --ranks 0:3
    traceconv diff ./prof --steps 1-5:6-10
    """
    from traceconv import diff

    with say.bar(quiet=quiet) as progress:
        found = diff(before, after, fail_on=fail_on, **given, progress=progress)
    passed = found.outcome == "passed"
    if form is None and passed:
        say.data(f"passed: {'; '.join(found.gate_lines())}")
    else:
        say.data(_rendered(found, form or "text", top).rstrip("\n"))
    if not quiet and not (passed and form is None):
        say.show_issues(found.issues, say.ALL_LINES if verbose else say.ISSUE_LINES)
    if found.outcome not in (None, "passed"):
        for line in found.gate_lines():
            say.message(f"gate {line}")
        code = REGRESSION if found.outcome == "failed" else UNSURE
        click.get_current_context().exit(code)


def _rendered(found: Difference, form: str, top: int | None) -> str:
    if form == "json":
        return found.json_text()
    if form == "csv":
        return found.csv_text()
    return say.with_flags(found.markdown(top) if form == "md" else found.text(top))
