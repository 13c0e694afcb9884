"""Which rank, and which link, delays the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from traceconv.alignment import plan as clocks
from traceconv.analysis.stragglers import links
from traceconv.analysis.stragglers.judging import judge
from traceconv.analysis.stragglers.verdict import Verdict
from traceconv.analysis.summarize import SummaryRequest
from traceconv.api.reading import read
from traceconv.core.errors import EmptyResultError, Issues
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.verbs import StragglerOptions

if TYPE_CHECKING:
    from traceconv.options.arguments import StragglerArguments


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

    verdict: Verdict
    slow_links: tuple[links.SlowLink, ...]
    plan: clocks.Plan
    issues: Issues = field(default_factory=Issues)
    too_few_links: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<StragglerReport: {self.verdict.line()}>"

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            **self.verdict.as_dict(),
            "slow_links": [link.as_dict() for link in self.slow_links],
            "too_few_links": dict(self.too_few_links),
            "clocks": self.plan.as_dict(),
            "issues": [issue.as_dict() for issue in self.issues],
        }

    def lines(self, every: bool = False) -> list[str]:
        """What people read.

        Args:
            every: also all ranks, and which links are too few to compare.
        """
        few = [
            f"links over {transport}: no verdict, too few to compare ({count})"
            for transport, count in self.too_few_links.items()
        ]
        slow = [link.text() for link in self.slow_links]
        verdict = self.verdict
        ranks = verdict.rank_lines(every)
        return [*verdict.lines(every), *slow, *ranks, *verdict.step_lines(), *few * every]

    def plot(self, ax: Any = None) -> Any:
        """Draw a heat map: how much longer than its peers each rank takes in each step; if stages
        are uneven, than the median of all ranks. Unknown cells are grey.

        Args:
            ax: the ``matplotlib`` axes to draw on; None for new ones.

        Returns:
            The axes.

        Raises:
            EmptyResultError: the ranks cannot be compared.
            MissingExtraError: matplotlib is not installed.
        """
        from traceconv.analysis.tables import plots

        replay = self.verdict.replay
        if not replay:
            raise EmptyResultError(f"there is nothing to draw: {self.verdict.reason}")
        steps, own_work = replay.graph.steps[:, 1].tolist(), replay.own
        excess, than = own_work.excess, "peers"
        if self.verdict.stage is not None:  # peers are of one stage
            excess, than = (
                own_work.table - np.nanmedian(own_work.table, axis=1, keepdims=True),
                "the median",
            )
        return plots.heat_map(excess, list(replay.graph.ranks), steps, than, ax)

    def _repr_html_(self) -> str:
        """The printed lines, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("stragglers", self.lines())


@takes(StragglerOptions)
def stragglers(*paths: values.Paths, **keywords: Unpack[StragglerArguments]) -> StragglerReport:
    """Which of the ranks found below ``paths`` delays the others, and which links are slow.

    Each worker has one rank in memory.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    options = StragglerOptions.of(keywords)
    requested, align = SummaryRequest(lateness=True, links=True), options.clocks.align
    job = read(paths, options, requested, align, options.clocks.align_max_error_ns)
    verdict = judge(
        job.summaries, job.plan, job.groups, options.material / 100, release=True, once=job.once
    )
    slow = tuple(links.slow(job.summaries))
    return StragglerReport(verdict, slow, job.plan, job.issues, links.too_few(job.summaries))
