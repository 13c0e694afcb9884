"""How the clocks of ranks differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Unpack

from traceconv.alignment import plan as clocks
from traceconv.analysis.summarize import SummaryRequest
from traceconv.api import options
from traceconv.api.reading import RankArguments, asked
from traceconv.core.clock import us_text
from traceconv.core.errors import Issues
from traceconv.run.summaries import Summarizing, spans_of

ALIGN_VERSION = 1
"""Of the document :meth:`Alignment.as_dict` makes."""


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
        """What is printed for people, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("clock alignment", self.lines())


def align(
    *paths: options.Paths,
    method: options.Align = "auto",
    max_error_ns: options.Length | None = None,
    ranks: options.Ranks | None = None,
    **given: Unpack[RankArguments],
) -> Alignment:
    """How the clocks of the ranks found below ``paths`` differ.

    Args:
        method: as ``align`` of :func:`traceconv.merge`.
        max_error_ns: the largest error of a rank that is accepted, ns or ``"50us"``; None = any.

    The other arguments, :class:`.RankArguments`, are those of :func:`traceconv.merge`. Each worker
    has one rank in memory.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`; ``ClockError`` if an alignment is refused.
    """
    reading = asked(given)
    how, most = options.align(method, "method"), options.length(max_error_ns, "max_error_ns")
    work = Summarizing(SummaryRequest(), None, reading.comm_patterns, collectives=True)
    with reading.opened(*paths, ranks=ranks) as every:
        read, summaries = every.summaries(work)
    records = [one.collectives for one in summaries]
    plan = clocks.plan(read, how, records, most, spans=spans_of(summaries))
    every.issues.extend(plan.issues)
    return Alignment(plan, every.issues)
