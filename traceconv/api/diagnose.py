"""Problems of a run, found by rules and by comparing its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from traceconv.alignment import plan as clocks
from traceconv.analysis.critical_path.walk import NOT_FOLLOWED, of_job
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.replay.remedies import Remedy
from traceconv.analysis.rules import findings as rules
from traceconv.analysis.rules.catalog import thresholds
from traceconv.analysis.stragglers import judging
from traceconv.analysis.stragglers import verdict as stragglers
from traceconv.api.open import Captures
from traceconv.api.reading import read
from traceconv.core.errors import Issues, OptionError
from traceconv.core.json_text import encoded
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import format_ranges
from traceconv.merging.run_report import Report
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.verbs import DiagnoseOptions
from traceconv.report import html, run_summary

if TYPE_CHECKING:
    from traceconv.options.arguments import DiagnoseArguments


@dataclass(frozen=True)
class Diagnosis:
    """The problems of a run.

    Attributes:
        headline: the losses of the steps, in one line.
        findings: of the rules.
        verdict:  which rank delays the others; None if there is one rank only.
        issues:   what finding and reading the ranks noted.
        remedies: the changes to the job that gain most, the first to be made first.
        document: of the page: that of a report with its overview; None if none was requested.
    """

    findings: rules.Findings
    verdict: stragglers.Verdict | None
    issues: Issues = field(default_factory=Issues)
    document: Mapping[str, Any] | None = None
    headline: str = ""
    remedies: tuple[Remedy, ...] = ()

    def __repr__(self) -> str:
        count = len(self.findings.by_rule())
        ranks = format_ranges(self.findings.ranks)
        return f"<Diagnosis of ranks {ranks}: {count} findings>"

    def __str__(self) -> str:
        return self.text()

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            **self.findings.as_dict(),
            "headline": self.headline,
            "stragglers": self.verdict.as_dict() if self.verdict else None,
            "remedies": [remedy.as_dict() for remedy in self.remedies],
            "issues": [issue.as_dict() for issue in self.issues],
        }

    def json_text(self) -> str:
        """:meth:`as_dict` as text."""
        return encoded(self.as_dict(), indented=True).decode() + "\n"

    def html_text(self) -> str:
        """The page, with charts of the evidence (``analyse=True``)."""
        if self.document is None:
            raise OptionError("a page needs `analyse=True`", "analyse")
        return html.page(self.document)

    def _repr_html_(self) -> str:
        """The printed lines, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("traceconv diagnosis", self.text().splitlines())

    def text(self, every: bool = False) -> str:
        """What people read.


        Args:
            every: a line for each rule that could not look, with what it needs.
        """
        sections = [self.verdict_lines(), self.findings.beside(self.verdict).lines(every)]
        is_clear = self.verdict is not None and self.verdict.headline()
        upper, lower = sections if is_clear else sections[::-1]
        return "\n".join([self.headline, *upper, *lower]) + "\n"

    def markdown(self, every: bool = False) -> str:
        """The report as Markdown."""
        late = [f"- {line}" for line in self.verdict_lines()]
        return (
            f"**{self.headline}**\n\n{self.findings.beside(self.verdict).markdown(every)}"
            + "\n".join(["", "## Stragglers", "", *late, ""] * bool(late))
        )

    def verdict_lines(self) -> list[str]:
        """Which rank delays the others, or where the job hangs, without the headline."""
        if self.verdict is None:
            return []
        return self.verdict.lines()[1:] if self.verdict.hang else self.verdict.lines()


@takes(DiagnoseOptions)
def diagnose(*paths: values.Paths, **keywords: Unpack[DiagnoseArguments]) -> Diagnosis:
    """Find the problems of the run whose ranks are below ``paths``.

    Tables that repeat the profiler's own files (data pipeline, memory records) are always of the
    whole capture. Times of findings are on the clock of the rank. Each worker has one rank
    in memory.

    Raises:
        OptionError: an argument is not understood, or a rule or threshold does not exist.
        SelectionError: a graph or step is in none of the ranks.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    return diagnosed(paths, DiagnoseOptions.of(keywords))


def diagnosed(
    paths: Sequence[values.Paths], options: DiagnoseOptions, found: Captures | None = None
) -> Diagnosis:
    """As :func:`diagnose`, of options that have been checked.

    Args:
        found: the captures below ``paths``, if they are known already.
    """
    limits = options.threshold or {}
    thresholds(limits)  # refuses early
    requested = run_summary.request(options.rule, drawn=options.analyse, issues=True)
    job = read(paths, options, requested, options.align, found=found)
    summaries, plan, groups = job.summaries, job.plan, job.groups
    if len(summaries) > 1:
        options.run.progress(0, 0, f"replaying {len(summaries)} ranks")
    verdict = judging.judge(summaries, plan, groups, release=not options.analyse, once=job.once)
    path = NOT_FOLLOWED
    if options.analyse:
        path = of_job(summaries, plan, groups, job.captures, replay=verdict.replay, once=job.once)
    findings = rules.judge(summaries, limits, options.rule, plan, verdict.replayed())
    judged = run_summary.Judged(findings, verdict, path, groups)
    document = None
    if options.analyse:
        document = _document(job.captures, plan, job.issues, summaries, judged)
    return Diagnosis(
        judged.findings,
        verdict if len(summaries) > 1 else None,
        job.issues,
        document,
        run_summary.headline_of(summaries, verdict),
        verdict.remedies(),
    )


def _document(
    captures: Sequence[Capture],
    plan: clocks.Plan,
    issues: Issues,
    summaries: Sequence[RankSummary],
    judged: run_summary.Judged,
) -> dict[str, Any]:
    overview = run_summary.overview(summaries, plan, issues, judged)
    return Report.of("", "", captures, plan, issues, overview=overview).as_dict()
