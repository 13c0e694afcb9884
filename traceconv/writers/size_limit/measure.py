"""Sizes of ranks in one format, and how ranks share the room of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from traceconv.core.model import Trace
from traceconv.writers import Costs, Document, Part, Plan, SpilledRank, WriterFactory

One = TypeVar("One")
Result = TypeVar("Result")


class Each(Protocol):
    """As ``map``: a function of one argument, done with every job, in order."""

    def __call__(self, work: Callable[[One], Result], jobs: Sequence[One], /) -> Iterable[Result]:
        """The results."""
        ...


class Size(NamedTuple):
    """Bytes and rows."""

    bytes: int
    rows: int

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.bytes + other.bytes, self.rows + other.rows)

    def minus(self, other: Size) -> Size:
        """The difference to ``other``."""
        return Size(self.bytes - other.bytes, self.rows - other.rows)

    def fits(self, room: Size) -> bool:
        """Whether it goes into ``room``."""
        return self.bytes <= room.bytes and self.rows <= room.rows


def summed(sizes: list[Size]) -> Size:
    """All together."""
    return Size(sum(s.bytes for s in sizes), sum(s.rows for s in sizes))


def total(costs: Costs) -> Size:
    """The size of a whole trace."""
    columns = (costs.events, costs.counters, costs.flows)
    return Size(costs.fixed + sum(int(c.sum()) for c in columns), sum(map(len, columns)))


@dataclass(frozen=True)
class Job:
    """The ranks to be written.

    Attributes:
        spilled: ascending; loaded one at a time, several times.
        each:    as ``map`` of one argument: does the work on ranks, possibly elsewhere.
    """

    spilled: Sequence[SpilledRank]
    document: Document
    writer: WriterFactory
    each: Each = map

    @property
    def cost_of(self) -> Callable[[Trace], Costs]:
        """Bytes of the rows of a rank."""
        return partial(self.writer().costs, document=self.document)

    def header(self, document: Document) -> Size:
        """The size of a file without any trace."""
        writer = self.writer()
        return Size(len(writer.begin(document)) + len(writer.end()), 0)

    def whole(self) -> Plan:
        """All ranks in one file."""
        return Plan((Part(self.document, tuple(self.spilled)),))

    def measured(self, least: Callable[[Trace], Trace] | None = None) -> list[Measured]:
        """Every rank; ``least`` makes what always stays of it, nothing without it."""
        return list(self.each(partial(measured, cost_of=self.cost_of, least=least), self.spilled))


def with_issues(facts: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
    """``facts`` whose tally of issues, if there is one, has ``counts`` added."""
    tally = facts.get("issues")
    if not isinstance(tally, Mapping):
        return dict(facts)
    more = {code: n + tally.get(code, 0) for code, n in counts.items() if n}
    return {**facts, "issues": {**tally, **more}}


def with_counts(facts: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
    """``facts`` with the rows of this file, if they have numbers of rows at all."""
    return {**facts, "counts": dict(counts)} if "counts" in facts else dict(facts)


class Measured(msgspec.Struct, frozen=True):
    """What planning keeps of a rank.

    Attributes:
        total:    its size.
        least:    its size when everything is dropped that may be.
        fixed:    bytes of its descriptions.
        starts:   first and last start of its rows, ns; None if it has none.
        longest:  heading and track, the longest of its tracks.
    """

    total: Size
    least: Size
    fixed: int
    starts: tuple[int, int] | None
    longest: tuple[str, str]


def measured(
    spilled: SpilledRank,
    cost_of: Callable[[Trace], Costs],
    least: Callable[[Trace], Trace] | None = None,
) -> Measured:
    """Measure one rank; see :meth:`Job.measured`."""
    trace = spilled.load()
    costs = cost_of(trace)
    bare = total(cost_of(least(trace))) if least else Size(0, 0)
    labels = ((t.heading, f"{t.group} {t.name} ({t.lane})") for t in trace.tracks)
    longest = max(labels, key=lambda label: len(json.dumps(label)), default=("", ""))
    stamps = [c for c in (trace.events.start_ns, trace.counters.start_ns) if len(c)]
    starts = (
        (int(min(c.min() for c in stamps)), int(max(c.max() for c in stamps))) if stamps else None
    )
    found = Measured(total(costs), bare, costs.fixed, starts, longest)
    spilled.release_pages()
    return found


class Derived(msgspec.Struct, frozen=True):
    """A spilled rank that is changed whenever it is loaded."""

    spilled: SpilledRank
    change: Callable[[Trace], Trace]

    @property
    def rank(self) -> int:
        """The global rank."""
        return self.spilled.rank

    def load(self) -> Trace:
        """The trace, changed."""
        return self.change(self.spilled.load())

    def release_pages(self) -> None:
        """Give back the memory that loading took."""
        self.spilled.release_pages()


FLOOR = 8
"""No rank gets less than this fraction of an equal share, unless it needs less."""


def shares(room: Size, needs: Sequence[Size]) -> list[Size]:
    """What of ``room`` each rank gets: in proportion to its need, with a lower bound.

    A rank whose part would be less than an eighth of an equal share gets that eighth, or what it
    needs if that is less; the others share the remainder, again in proportion. So ranks of
    similar size keep the same detail, and a small one does not vanish among large ones.
    """
    columns = [_shared(room[i], [need[i] for need in needs]) for i in range(len(room))]
    return [Size(*share) for share in zip(*columns, strict=True)]


def _shared(room: int, needs: Sequence[int]) -> list[int]:
    total = sum(needs)
    if not total:
        return [0] * len(needs)
    part = [need * room // total for need in needs]
    least = [min(need, room // (FLOOR * len(needs))) for need in needs]
    poor = [one < low for one, low in zip(part, least, strict=True)]
    left = room - sum(low for low, is_poor in zip(least, poor, strict=True) if is_poor)
    rest = sum(need for need, is_poor in zip(needs, poor, strict=True) if not is_poor)
    return [
        low if is_poor else need * left // rest
        for need, low, is_poor in zip(needs, least, poor, strict=True)
    ]
