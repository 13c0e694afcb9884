"""Which rank, and which link, delays the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

from traceconv.alignment import plan as clocks
from traceconv.alignment.collective_matching import matched
from traceconv.alignment.offsets import stamped
from traceconv.analysis.stragglers import links
from traceconv.analysis.stragglers import verdict as stragglers_of
from traceconv.analysis.summarize import SummaryRequest
from traceconv.api import options
from traceconv.api.reading import RankArguments, asked
from traceconv.core.errors import Issues
from traceconv.find.rank_selection import refuse_missing
from traceconv.run.settings import Selection
from traceconv.run.summaries import Summarizing, found_numbers, spans_of


@dataclass(frozen=True)
class StragglerReport:
    """Which ranks and links are slow.

    Attributes:
        verdict: on ranks.
        slow_links: slowest first.
        plan:    the clocks it is based on.
        issues:  what finding and reading the ranks noted.
        too_few_links: transports with too few links to compare, and how many there are.
    """

    verdict: stragglers_of.Verdict
    slow_links: tuple[links.SlowLink, ...]
    plan: clocks.Plan
    issues: Issues = field(default_factory=Issues)
    too_few_links: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            **self.verdict.as_dict(),
            "slow_links": [link.as_dict() for link in self.slow_links],
            "too_few_links": dict(self.too_few_links),
            "clocks": self.plan.as_dict(),
            "issues": [issue.as_dict() for issue in self.issues],
        }

    def lines(self) -> list[str]:
        """What people read."""
        few = [
            f"links over {transport}: inconclusive, {count} are too few to compare"
            for transport, count in self.too_few_links.items()
        ]
        verdict = [*self.verdict.lines(), *self.verdict.step_lines()]
        return [*verdict, *(link.text() for link in self.slow_links), *few]

    def _repr_html_(self) -> str:
        """What is printed for people, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("stragglers", self.lines())


def stragglers(
    *paths: options.Paths,
    align: options.Align = "auto",
    align_max_error_ns: options.Length | None = None,
    material: float | str = 1.0,
    ranks: options.Ranks | None = None,
    steps: options.Numbers | None = None,
    selection: Selection | None = None,
    step_marker: str | None = None,
    **given: Unpack[RankArguments],
) -> StragglerReport:
    """Which of the ranks found below ``paths`` delays the others, and which links are slow.

    Args:
        material: percent of a step; ranks and groups that cost less are not named.
        steps: only what belongs to these steps.
        selection: ``ranks`` and ``steps`` at once, in place of these; nothing else can be selected.

    The other arguments, :class:`.RankArguments`, are those of :func:`traceconv.merge`. Each worker
    has one rank in memory.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    reading = asked(given)
    kept = options.selection(selection, ranks=ranks, steps=steps)
    options.refuse_others(kept, ("ranks", "steps"))
    how, most = options.align(align), options.length(align_max_error_ns, "align_max_error_ns")
    least = options.percent(material, "material")
    requested = SummaryRequest(lateness=True, links=True)
    marker = options.pattern(step_marker, "step_marker")
    view = {"mode": "detail", "steps": kept.steps, "step_marker": marker}
    work = Summarizing(requested, view, reading.comm_patterns)
    with reading.opened(*paths, ranks=kept.ranks) as every:
        read, summaries = every.summaries(work)
    refuse_missing({"step": kept.steps}, found_numbers(summaries))
    records = [one.collectives for one in summaries]
    groups = tuple(matched(records, stamped(read)))
    plan = clocks.plan(read, how, records, most, groups, spans_of(summaries))
    every.issues.extend(plan.issues)
    verdict = stragglers_of.judge(summaries, plan, groups, least / 100)
    slow = tuple(links.slow(summaries))
    return StragglerReport(verdict, slow, plan, every.issues, links.too_few(summaries))
