"""How the clocks of ranks differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from traceconv.alignment import plan as clocks
from traceconv.analysis.summarize import SummaryRequest
from traceconv.api.reading import opened
from traceconv.core.clock import us_text
from traceconv.core.errors import Issues
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.groups import View
from traceconv.options.verbs import AlignOptions
from traceconv.run.summaries import Summarizing, spans_of

if TYPE_CHECKING:
    from traceconv.options.arguments import AlignArguments

ALIGN_VERSION = 1
"""Version of the document that :meth:`Alignment.as_dict` makes."""


@dataclass(frozen=True)
class Alignment:
    """How the clocks of ranks differ.

    Attributes:
        plan:   the correction of every rank.
        issues: what finding and reading them noted.
    """

    plan: clocks.Plan
    issues: Issues = field(default_factory=Issues)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document; as a file it is what ``align`` of :func:`traceconv.merge` reads."""
        return {"schema_version": ALIGN_VERSION, **self.plan.as_dict()}

    def lines(self) -> list[str]:
        """A table for people, one line per rank."""
        rows = [("rank", "method", "offset (µs)", "drift (ppm)", "error (µs)", "matches", "from")]
        for rank, one in self.plan.offsets.items():
            error = self.plan.error_ns(rank)
            rows.append(
                (
                    str(rank),
                    one.method,
                    us_text(one.offset_ns),
                    f"{one.drift_ppt / 1e6:.3f}" if one.drift_ppt else "",
                    "unknown" if error is None else f"{error / 1e3:.1f}",
                    str(one.matches or ""),
                    one.evidence,
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = [
            "  ".join(
                cell.ljust(w) if i in (1, 6) else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return [*table, f"clock: {self.plan.as_dict()['text']}"]

    def _repr_html_(self) -> str:
        """The printed lines, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("clock alignment", self.lines())


@takes(AlignOptions)
def align(*paths: values.Paths, **given: Unpack[AlignArguments]) -> Alignment:
    """How the clocks of the ranks found below ``paths`` differ.

    Each worker has one rank in memory.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`; ``ClockError`` if an alignment is refused.
    """
    asked = AlignOptions.of(given)
    view = View(comm_patterns=asked.comm_patterns)
    work = Summarizing(SummaryRequest(), view, as_read=True, collectives=True)
    with opened(paths, asked.input, asked.run, asked.ranks) as every:
        read, summaries = every.summaries(work)
    records, spans = [one.collectives for one in summaries], spans_of(summaries)
    plan = clocks.plan(read, asked.method, records, asked.max_error_ns, spans=spans)
    every.issues.extend(plan.issues)
    return Alignment(plan, every.issues)
