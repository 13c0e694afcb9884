"""From captures to findings: every rank is read, boiled down to facts, and let go again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from traceconv.alignment import plan as clocks
from traceconv.alignment.collective_matching import matched
from traceconv.analysis.rank_summary import Facts
from traceconv.analysis.rules import findings as rules
from traceconv.analysis.rules.catalog import chosen, thresholds
from traceconv.analysis.stragglers import verdict as lateness
from traceconv.api.merge import Captures
from traceconv.api.merge import open as find
from traceconv.core.errors import Issues
from traceconv.core.model import Present
from traceconv.core.ranks import refuse_missing
from traceconv.pipeline.report import Report
from traceconv.report import html
from traceconv.report import run_summary as overview
from traceconv.writers.output import Progress, silent


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run.

    Attributes:
        findings: of the rules.
        verdict:  on which rank holds the others up; None if there is one rank only.
        issues:   what finding and reading the ranks met.
        document: of the page: that of a report with its overview; None if none was asked for.
    """

    findings: rules.Findings
    verdict: lateness.Verdict | None
    issues: Issues = field(default_factory=Issues)
    document: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            **self.findings.as_dict(),
            "stragglers": self.verdict.as_dict() if self.verdict else None,
            "issues": [issue.as_dict() for issue in self.issues],
        }

    def json_text(self) -> str:
        """:meth:`as_dict` as text."""
        return orjson.dumps(self.as_dict(), option=orjson.OPT_INDENT_2).decode() + "\n"

    def html_text(self) -> str:
        """The page, with drawings of what the findings rest on (``analyse=True``)."""
        if self.document is None:
            raise ValueError("nothing was drawn: diagnose(..., analyse=True)")
        return html.page(self.document)

    def _repr_html_(self) -> str:
        """What is printed for people, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("traceconv diagnosis", self.text().splitlines())

    def text(self) -> str:
        """What people read."""
        return "\n".join([*self.findings.lines(), *self._late()]) + "\n"

    def markdown(self) -> str:
        """The same as Markdown."""
        late = [f"- {line}" for line in self._late()]
        return self.findings.markdown() + "\n".join(
            ["", "## Stragglers", "", *late, ""] * bool(late)
        )

    def _late(self) -> list[str]:
        """Who holds the others up, without the steps."""
        if self.verdict is None:
            return []
        return [line for line in self.verdict.lines() if not line.startswith("step ")]


def diagnose(
    *paths: str,
    rule: Sequence[str] | None = None,
    threshold: Mapping[str, float] | None = None,
    ranks: Sequence[int] | None = None,
    graphs: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    align: str = "auto",
    rank_from: str = "meta",
    allow_missing_ranks: bool = False,
    reader: str | None = None,
    mapping: str | None = None,
    comm_patterns: Sequence[str] = (),
    analyse: bool = False,
    progress: Progress = silent,
) -> Diagnosis:
    """What is wrong with the run whose ranks lie below ``paths``.

    Args:
        rule:  ids of rules; None for all.
        threshold: other thresholds than the defaults: by rule, or by ``rule.name`` where a rule
            has several.
        steps: only what belongs to these steps. Tables that repeat the profiler's own files (data
            pipeline, memory records) are always of the whole capture.
        align: how clocks are brought together where ranks are compared; evidence is told on the
            clock of its own rank.
        analyse: also make the document of a page.

    The other arguments are those of :func:`traceconv.merge`. One rank is in memory at a time.

    Raises:
        TraceconvError: see :mod:`traceconv.core.errors`; ``SelectionError`` for a rule, threshold,
            graph or step that is not there.
    """
    chosen(rule), thresholds(threshold or {})  # refuses early
    found = find(*paths, reader=reader, rank_from=rank_from, mapping=mapping)
    captures = found.ranks(ranks, allow_missing_ranks)
    issues = captures.issues.copy()
    parts, late = [], []
    drawn: list[Facts] = []
    present: list[Present] = []
    for trace in captures.traces(
        "detail", progress=progress, comm_patterns=comm_patterns, graphs=graphs, steps=steps
    ):
        if analyse:
            drawn.append(overview.facts(trace, rule))
        parts.append(drawn[-1].rules if analyse else rules.facts(trace, rule))
        late.append(drawn[-1].lateness if analyse else lateness.facts(trace))
        met = trace.issues.copy()
        for side_table in trace.side_tables.values():
            side_table.account(met)
        issues.extend(met, rank=trace.rank)
        present.append(trace.present)
        del trace  # one rank at a time
    refuse_missing(graphs, steps, present)
    evidence = [one.evidence for one in late]
    groups = tuple(matched(evidence))
    plan = clocks.plan(captures.found, align, evidence, groups=groups)
    issues.extend(plan.issues)
    verdict = lateness.judge(late, plan, groups)
    judged = overview.Judged(rules.judge(parts, threshold, rule), verdict)
    document = _document(captures, plan, issues, drawn, judged) if analyse else None
    return Diagnosis(judged.findings, verdict if len(late) > 1 else None, issues, document)


def _document(
    captures: Captures,
    plan: clocks.Plan,
    issues: Issues,
    drawn: Sequence[Facts],
    judged: overview.Judged,
) -> dict[str, Any]:
    report = Report.of("", captures.found, "", Issues(), plan)
    report.issues = issues
    report.overview = overview.overview(drawn, plan, issues, judged)
    return report.as_dict()
