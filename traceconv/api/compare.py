"""What only all ranks together can tell: how their clocks differ, and which of them is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from traceconv.alignment import plan as clocks
from traceconv.alignment.collective_matching import matched
from traceconv.alignment.collective_records import collective_records
from traceconv.analysis.stragglers import links
from traceconv.analysis.stragglers import verdict as lateness
from traceconv.api.merge import Captures
from traceconv.api.merge import open as find
from traceconv.core.clock import us_text
from traceconv.core.errors import Issues
from traceconv.writers.output import Progress, silent

ALIGN_VERSION = 1
"""Of the document :meth:`Alignment.as_dict` makes."""


@dataclass(frozen=True)
class Alignment:
    """How the clocks of ranks differ.

    Attributes:
        plan:   the correction of every rank.
        issues: what finding and reading them met.
    """

    plan: clocks.Plan
    issues: Issues = field(default_factory=Issues)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document; as a file it is what ``align`` of :func:`traceconv.merge` reads."""
        return {"schema_version": ALIGN_VERSION, **self.plan.as_dict()}

    def _repr_html_(self) -> str:
        """What is printed for people, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("clock alignment", self.lines())

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


@dataclass(frozen=True)
class Comparison:
    """Who is slow.

    Attributes:
        verdict: on ranks.
        slow_links: slowest first.
        plan:    the clocks it rests on.
        issues:  what finding and reading the ranks met.
        too_few_links: transports with too few links to compare, and how many there are.
    """

    verdict: lateness.Verdict
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

    def _repr_html_(self) -> str:
        """What is printed for people, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("stragglers", self.lines())

    def lines(self) -> list[str]:
        """What people read."""
        few = [
            f"links over {transport}: inconclusive, {count} are too few to compare"
            for transport, count in self.too_few_links.items()
        ]
        return [*self.verdict.lines(), *(link.text() for link in self.slow_links), *few]


def align(
    *paths: str,
    method: str = "auto",
    max_error_ns: int | None = None,
    ranks: Sequence[int] | None = None,
    rank_from: str = "meta",
    allow_missing_ranks: bool = False,
    reader: str | None = None,
    mapping: str | None = None,
    comm_patterns: Sequence[str] = (),
    progress: Progress = silent,
) -> Alignment:
    """How the clocks of the ranks found below ``paths`` differ.

    Args:
        method: as ``align`` of :func:`traceconv.merge`.
        max_error_ns: the largest error of a rank to put up with; None = any.

    The other arguments are those of :func:`traceconv.merge`.

    Raises:
        TraceconvError: see :mod:`traceconv.core.errors`; ``ClockError`` if an alignment is refused.
    """
    captures = _captures(paths, reader, rank_from, mapping, ranks, allow_missing_ranks)
    issues = captures.issues.copy()
    known = []
    for trace in captures.traces(progress=progress, comm_patterns=comm_patterns):
        known.append(collective_records(trace))
        issues.extend(trace.issues, rank=trace.rank)
    plan = clocks.plan(captures.found, method, known, max_error_ns)
    issues.extend(plan.issues)
    return Alignment(plan, issues)


def stragglers(
    *paths: str,
    align: str = "auto",
    align_max_error_ns: int | None = None,
    ranks: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    rank_from: str = "meta",
    allow_missing_ranks: bool = False,
    reader: str | None = None,
    mapping: str | None = None,
    comm_patterns: Sequence[str] = (),
    progress: Progress = silent,
) -> Comparison:
    """Which of the ranks found below ``paths`` holds the others up, and which links are slow.

    Args:
        steps: only what belongs to these steps.

    The other arguments are those of :func:`traceconv.merge`. One rank is in memory at a time.

    Raises:
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    captures = _captures(paths, reader, rank_from, mapping, ranks, allow_missing_ranks)
    issues = captures.issues.copy()
    known, traffic = [], []
    view: dict[str, Any] = {} if steps is None else {"steps": steps}
    for trace in captures.traces("detail", progress=progress, comm_patterns=comm_patterns, **view):
        known.append(lateness.facts(trace))
        traffic.append((trace.rank, links.facts(trace)))
        issues.extend(trace.issues, rank=trace.rank)
    evidence = [one.evidence for one in known]
    groups = tuple(matched(evidence))
    plan = clocks.plan(captures.found, align, evidence, align_max_error_ns, groups)
    issues.extend(plan.issues)
    verdict = lateness.judge(known, plan, groups)
    slow = tuple(links.slow(traffic))
    return Comparison(verdict, slow, plan, issues, links.too_few(traffic))


def _captures(
    paths: Sequence[str],
    reader: str | None,
    rank_from: str,
    mapping: str | None,
    ranks: Sequence[int] | None,
    allow_missing: bool,
) -> Captures:
    found = find(*paths, reader=reader, rank_from=rank_from, mapping=mapping)
    return found.ranks(ranks, allow_missing)
