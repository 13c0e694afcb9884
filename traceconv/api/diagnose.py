"""What is wrong with a run, by rules and by comparing its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import orjson

from traceconv.alignment import plan as clocks
from traceconv.alignment.collective_matching import matched
from traceconv.alignment.offsets import stamped
from traceconv.analysis.critical_path.walk import of_job
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.rules import findings as rules
from traceconv.analysis.rules.catalog import thresholds
from traceconv.analysis.stragglers import verdict as stragglers
from traceconv.api import options
from traceconv.api.reading import RankArguments, asked
from traceconv.core.errors import Issues, OptionError
from traceconv.core.model import Capture
from traceconv.find.rank_selection import refuse_missing
from traceconv.merging.run_report import Report
from traceconv.report import html, run_summary
from traceconv.run.settings import Selection
from traceconv.run.summaries import Summarizing, found_numbers, spans_of


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run.

    Attributes:
        headline: what the steps lose, in one line.
        findings: of the rules.
        verdict:  which rank delays the others; None if there is one rank only.
        issues:   what finding and reading the ranks noted.
        document: of the page: that of a report with its overview; None if none was requested.
    """

    findings: rules.Findings
    verdict: stragglers.Verdict | None
    issues: Issues = field(default_factory=Issues)
    document: Mapping[str, Any] | None = None
    headline: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            **self.findings.as_dict(),
            "headline": self.headline,
            "stragglers": self.verdict.as_dict() if self.verdict else None,
            "issues": [issue.as_dict() for issue in self.issues],
        }

    def json_text(self) -> str:
        """:meth:`as_dict` as text."""
        return orjson.dumps(self.as_dict(), option=orjson.OPT_INDENT_2).decode() + "\n"

    def html_text(self) -> str:
        """The page, with drawings of what the findings rest on (``analyse=True``)."""
        if self.document is None:
            raise OptionError("the page is made with `analyse=True` only", "analyse")
        return html.page(self.document)

    def _repr_html_(self) -> str:
        """What is printed for people, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("traceconv diagnosis", self.text().splitlines())

    def text(self, every: bool = False) -> str:
        """What people read.


        Args:
            every: a line for each rule that could not look, with what it needs.
        """
        return "\n".join([self.headline, *self.findings.lines(every), *self._late()]) + "\n"

    def markdown(self, every: bool = False) -> str:
        """The same as Markdown."""
        late = [f"- {line}" for line in self._late()]
        return f"**{self.headline}**\n\n{self.findings.markdown(every)}" + "\n".join(
            ["", "## Stragglers", "", *late, ""] * bool(late)
        )

    def _late(self) -> list[str]:
        """Which rank delays the others, without the steps."""
        return [] if self.verdict is None else self.verdict.lines()


def diagnose(
    *paths: options.Paths,
    rule: options.Names | None = None,
    threshold: Mapping[str, float] | options.Names | None = None,
    ranks: options.Ranks | None = None,
    graphs: options.Numbers | None = None,
    steps: options.Numbers | None = None,
    selection: Selection | None = None,
    align: options.Align = "auto",
    analyse: bool = False,
    step_marker: str | None = None,
    **given: Unpack[RankArguments],
) -> Diagnosis:
    """What is wrong with the run whose ranks are below ``paths``.

    Args:
        rule:  ids of rules; None for all.
        threshold: other thresholds than the defaults: by rule, or by ``rule.name`` where a rule
            has several: ``{"long-tail": 30}`` or ``"long-tail=30"``.
        steps: only what belongs to these steps. Tables that repeat the profiler's own files (data
            pipeline, memory records) are always of the whole capture.
        selection: ``ranks``, ``graphs`` and ``steps`` at once, in place of these.
        align: how clocks are aligned where ranks are compared; times of findings are on the clock
            of their own rank.
        analyse: also make the document of a page.

    The other arguments, :class:`.RankArguments`, are those of :func:`traceconv.merge`. Each worker
    has one rank in memory.

    Raises:
        OptionError: an argument is not understood; there is no such rule or threshold.
        SelectionError: a graph or step is in none of the ranks.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    only = options.words(rule, "rule")
    values = options.thresholds(threshold, "threshold")
    thresholds(values)  # refuses early
    requested = run_summary.request(only, drawn=analyse, issues=True)
    kept = options.selection(selection, ranks=ranks, graphs=graphs, steps=steps)
    options.refuse_others(kept, ("ranks", "graphs", "steps"))
    reading = asked(given)
    how = options.align(align)
    view = {"mode": "detail", "graphs": kept.graphs, "steps": kept.steps}
    view["step_marker"] = options.pattern(step_marker, "step_marker")
    with reading.opened(*paths, ranks=kept.ranks) as every:
        read, summaries = every.summaries(Summarizing(requested, view, reading.comm_patterns))
    refuse_missing(kept.numbers, found_numbers(summaries))
    records = [one.collectives for one in summaries]
    groups = tuple(matched(records, stamped(read)))
    plan = clocks.plan(read, how, records, groups=groups, spans=spans_of(summaries))
    every.issues.extend(plan.issues)
    verdict = stragglers.judge(summaries, plan, groups)
    path = of_job(summaries, plan, groups, read)
    judged = run_summary.Judged(rules.judge(summaries, values, only, plan), verdict, path, groups)
    document = _document(read, plan, every.issues, summaries, judged) if analyse else None
    return Diagnosis(
        judged.findings,
        verdict if len(summaries) > 1 else None,
        every.issues,
        document,
        run_summary.headline_of(summaries, verdict),
    )


def _document(
    captures: Sequence[Capture],
    plan: clocks.Plan,
    issues: Issues,
    summaries: Sequence[RankSummary],
    judged: run_summary.Judged,
) -> dict[str, Any]:
    report = Report.of("", captures, "", Issues(), plan)
    report.issues = issues
    report.overview = run_summary.overview(summaries, plan, issues, judged)
    return report.as_dict()
