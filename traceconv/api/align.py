"""How the clocks of ranks differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from traceconv.alignment import plan as clocks
from traceconv.analysis.summarize import SummaryRequest
from traceconv.api.reading import opened
from traceconv.core.clock import us_text
from traceconv.core.errors import Issues
from traceconv.core.markup import aligned
from traceconv.core.rank_ranges import format_ranges
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.groups import View
from traceconv.options.verbs import AlignOptions
from traceconv.run.summaries import Summarizing

if TYPE_CHECKING:
    from traceconv.options.arguments import AlignArguments

ALIGN_VERSION = 1
"""Version of the document that :meth:`Alignment.as_dict` makes."""


@dataclass(frozen=True, repr=False)
class Alignment:
    """How the clocks of ranks differ.

    Attributes:
        plan:   the correction of every rank.
        issues: what finding and reading them noted.
    """

    plan: clocks.Plan
    issues: Issues = field(default_factory=Issues)

    def __repr__(self) -> str:
        return f"<Alignment of ranks {format_ranges([*self.plan.offsets])}: {self.plan.method}>"

    def as_dict(self) -> dict[str, Any]:
        """The JSON document; as a file it is what ``align`` of :func:`traceconv.merge` reads."""
        return {"schema_version": ALIGN_VERSION, **self.plan.as_dict()}

    def lines(self, every: bool = False) -> list[str]:
        """A table for people, one line per rank.

        Args:
            every: also where a change of each clock would go unnoticed.
        """
        rows = [("rank", "method", "offset (µs)", "drift (ppm)", "error (µs)", "matches", "from")]
        for rank, offset in self.plan.offsets.items():
            error = self.plan.error_ns(rank)
            rows.append(
                (
                    str(rank),
                    offset.method,
                    us_text(offset.offset_ns),
                    f"{offset.drift_ppt / 1e6:.3f}" if offset.drift_ppt else "",
                    f"{error / 1e3:.1f}" if error is not None else "unknown",
                    str(offset.matches or ""),
                    offset.evidence if every else offset.evidence.partition("; a clock change")[0],
                )
            )
        columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
        texts = [i for i, column in enumerate(columns) if column[0] in ("method", "from")]
        return [
            *aligned(zip(*columns, strict=True), texts),
            f"clock: {self.plan.as_dict()['text']}",
        ]

    def _repr_html_(self) -> str:
        """The printed lines, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("clock alignment", self.lines())


@takes(AlignOptions)
def align(*paths: values.Paths, **keywords: Unpack[AlignArguments]) -> Alignment:
    """How the clocks of the ranks found below ``paths`` differ.

    Each worker has one rank in memory.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`; ``ClockError`` if an alignment is refused.
    """
    options = AlignOptions.of(keywords)
    view = View(mode="detail", comm_patterns=options.comm_patterns)
    work = Summarizing(SummaryRequest(as_read=True, issues=False), view, as_read=True)
    with opened(paths, options.input, options.run, options.ranks) as ranks:
        read, summaries = ranks.summaries(work)
    records = [summary.as_read.collectives for summary in summaries]
    spans = {summary.rank: summary.as_read.span_ns for summary in summaries}
    plan = clocks.plan(read, options.method, records, options.max_error_ns, spans=spans)
    ranks.issues.extend(plan.issues)
    return Alignment(plan, ranks.issues)
