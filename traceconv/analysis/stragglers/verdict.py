"""Who is late, and why: not the rank that waits at the barrier, but the one the others wait for.

Two votes are taken on every collective. The rank that was in it for the *shortest* time came last,
whatever clocks say; the rank that *started* last came last if clocks are aligned. Where both name
the same rank, its time since the group last met is looked at: lateness that was made there, by
computing, by gaps of the host, by waiting for input, is its own; time it spent in collectives with
others was passed on to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from traceconv.alignment.collective_matching import Matched, matched
from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.analysis.losses import Late
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.lateness import (
    REASONS,
    WITHIN,
    Clocks,
    Judged,
    Lateness,
    lateness,
)
from traceconv.core.columns import I64
from traceconv.core.intervals import length_within, merged, subtraction, union
from traceconv.core.model import Kind, Layer, OpClass, Trace
from traceconv.passes.input_wait import fetches, input_spans

SCHEMA_VERSION = 1

PARTS = ("compute", "host gap", "input wait", "earlier communication")
"""What the time before a collective is split into."""

_FAMILY = 0.001  # probability that a run without a straggler is reported to have one


def time_before(trace: Trace, known: CollectiveRecords) -> I64:
    """What a rank did before each of its collectives.

    Args:
        trace: with operations classified.
        known: its collectives; see :mod:`traceconv.alignment.collective_records`.

    Returns:
        (operations, 4), ns: see :data:`PARTS`, of the time from the end of the last operation in
        the same group to the start of this one; -1 where there is none before.
    """
    if not len(known):
        return np.full((0, len(PARTS)), -1, np.int64)
    before = np.full((len(known), 2), -1, np.int64)
    for index in range(len(known.groups)):
        rows = known.of_group(index)
        start, end = known.start_ns[rows], known.end_ns[rows]
        span = np.stack((end[:-1], np.maximum(start[1:], end[:-1])), axis=1)
        before[rows][1:] = span
    known_before = before[:, 0] >= 0
    events = trace.events
    device = trace.rows_of(Layer.DEVICE) & (events.kind == Kind.SLICE)
    inputs = input_spans(trace)
    pauses = merged(_spans(trace, events.op == OpClass.INTERVAL), inputs)
    compute = _spans(trace, device & (events.op == OpClass.COMPUTE) & ~fetches(trace))
    comm = subtraction(union(known.start_ns, known.end_ns), compute)
    waiting = subtraction(pauses, merged(compute, comm))
    parts = [length_within(one, before) for one in (compute, waiting, comm)]
    gap = before[:, 1] - before[:, 0] - sum(parts)
    columns = np.stack((parts[0], gap, parts[1], parts[2]), axis=1)
    return np.where(known_before[:, None], columns, -1)


def _spans(trace: Trace, rows: Any) -> I64:
    return union(trace.events.start_ns[rows], trace.events.end_ns[rows])


@dataclass(frozen=True)
class Finding:
    """A rank that comes late, in one group or one step.

    Attributes:
        rank:    which.
        group:   where.
        kind:    of the collective.
        late_ns: how much later than the others it comes, by the time it is inside (clock-free).
        arrival_ns: the same by aligned starts.
        uncertain_ns: what cannot be distinguished from chance.
        parts_ns: what it spent more than the others since they last met, by :data:`PARTS`.
        step:    the step, or -1 for the run.
        others:  the other ranks of the group.
        collectives: at how many collectives it comes so late.
    """

    rank: int
    group: str
    kind: str
    late_ns: int
    arrival_ns: int
    uncertain_ns: int
    parts_ns: tuple[int, ...] = ()
    step: int = -1
    others: tuple[int, ...] = ()
    collectives: int = 1

    @property
    def certain(self) -> bool:
        """Whether it comes later than by what cannot be distinguished from chance."""
        return self.late_ns > self.uncertain_ns

    @property
    def why(self) -> str:
        """The part that accounts for most of it; "" if that is not known."""
        own = self.parts_ns[:3]
        return PARTS[int(np.argmax(own))] if own and max(own) > 0 else ""

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "rank": self.rank,
            "step": self.step if self.step >= 0 else None,
            "group": self.group,
            "operation": self.kind,
            "late_ns": self.late_ns,
            "late_by_arrival_ns": self.arrival_ns,
            "uncertainty_ns": self.uncertain_ns,
            "collectives": self.collectives,
            "cause": self.why,
            "excess_ns": dict(zip(PARTS, self.parts_ns, strict=False)),
        }

    def text(self) -> str:
        """One line for people."""
        cause = f", mostly {self.why}" if self.why else ""
        return (
            f"rank {self.rank} comes {self.late_ns / 1e3:.1f} µs late to {self.kind} of "
            f"{self.group} ({self.arrival_ns / 1e3:.1f} µs by arrival, uncertainty "
            f"{self.uncertain_ns / 1e3:.1f} µs){cause}"
        )


@dataclass(frozen=True)
class Verdict:
    """Which rank delays the others.

    Attributes:
        ranks:  that were compared.
        method: how their clocks were aligned.
        culprit: the rank that delays others most, or None: inconclusive.
        others: further ranks that do, most first.
        steps:  per step number, the finding, or None: inconclusive.
        compared: collectives that at least two ranks were seen in.
        doubt:   why nobody is named, or "".
        late:    per rank that others wait for, by how much in all; most first.
    """

    ranks: tuple[int, ...]
    method: str
    culprit: Finding | None
    others: tuple[Finding, ...] = ()
    steps: dict[int, Finding | None] = field(default_factory=dict)
    compared: int = 0
    doubt: str = ""
    late: tuple[Late, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "schema_version": SCHEMA_VERSION,
            "ranks": list(self.ranks),
            "clock": self.method,
            "collectives": self.compared,
            "verdict": "straggler" if self.culprit else "inconclusive",
            "doubt": self.doubt,
            "culprit": self.culprit.as_dict() if self.culprit else None,
            "others": [one.as_dict() for one in self.others],
            "steps": {str(k): one.as_dict() if one else None for k, one in self.steps.items()},
        }

    def line(self) -> str:
        """Who it is, or why nobody."""
        if self.culprit is None:
            return f"inconclusive: {self.doubt}"
        return f"straggler: {self.culprit.text()}"

    def lines(self) -> list[str]:
        """What people read."""
        basis = f"{self.compared} collectives of {len(self.ranks)} ranks, clocks: {self.method}"
        lines = [basis, self.line()]
        lines += [f"also: {one.text()}" for one in self.others]
        return lines + [
            f"step {step}: {one.text() if one else 'inconclusive'}"
            for step, one in self.steps.items()
        ]


def judge(
    every: Sequence[RankSummary], clocks: Clocks, groups: Iterable[Matched] | None = None
) -> Verdict:
    """The verdict over all ranks.

    Args:
        every:  the summaries of all ranks.
        clocks: a plan of :mod:`traceconv.alignment.plan`.
        groups: their collectives, if these are matched already.
    """
    by_rank = {one.rank: one for one in every}
    if groups is None:
        groups = matched([one.collectives for one in every])
    compared = list(lateness(groups, by_rank, clocks))
    z = _strictness(len(one.own) * one.places * len(one.ranks) for one in compared)
    judged = [(one, one.usual(z)) for one in compared]
    worst, total, waiting = dict[int, Finding](), Counter[int](), dict[int, set[int]]()
    for finding in sorted(_findings(judged), key=lambda f: -f.late_ns):
        worst.setdefault(finding.rank, finding)
        total[finding.rank] += finding.late_ns * finding.collectives
        waiting.setdefault(finding.rank, set()).update(finding.others)
    order = sorted(worst, key=lambda rank: (-total[rank], rank))
    culprit = worst[order[0]] if order else None
    return Verdict(
        tuple(sorted(by_rank)),
        clocks.method,
        culprit,
        tuple(worst[rank] for rank in order[1:]),
        _by_step(compared),
        sum(len(one.step) for one in compared),
        "" if culprit else _doubt(judged),
        tuple(Late(rank, sorted(waiting[rank]), total[rank]) for rank in order),
    )


def _strictness(tests: Iterable[int]) -> float:
    """How many standard errors are no chance, if so many ranks and places are looked at."""
    return NormalDist().inv_cdf(1 - _FAMILY / max(sum(tests), 1))


Pairs = Sequence[tuple[Lateness, Judged]]


def _findings(judged: Pairs, steps: bool = False) -> Iterator[Finding]:
    """What is certain."""
    for group, rows in judged:
        for at in np.flatnonzero(rows.culprit >= 0).tolist():
            first = int(rows.first[at])
            parts = rows.parts[at]
            rank = group.ranks[int(rows.culprit[at])]
            found = Finding(
                rank,
                group.key,
                group.kinds[first],
                round(float(rows.late[at])),
                round(float(rows.arrival[at])),
                round(float(rows.unsure[at])),
                () if np.isnan(parts).any() else tuple(np.rint(parts).astype(int).tolist()),
                int(group.step[first]) if steps else -1,
                tuple(other for other in group.ranks if other != rank),
                1 if steps else int(np.count_nonzero(group.place == group.place[first])),
            )
            if found.certain:
                yield found


def _by_step(groups: Sequence[Lateness]) -> dict[int, Finding | None]:
    """Per step, the collective that somebody was latest to, as far as that is certain."""
    numbers = sorted({int(s) for one in groups for s in np.unique(one.step).tolist() if s >= 0})
    found: dict[int, Finding | None] = dict.fromkeys(numbers)
    z = _strictness(one.own.size for one in groups)
    for finding in _findings([(one, one.each(z)) for one in groups], steps=True):
        known = found.get(finding.step)
        if finding.step >= 0 and (known is None or finding.late_ns > known.late_ns):
            found[finding.step] = finding
    return found


def _doubt(judged: Pairs) -> str:
    """Why nobody is named: of the lateness that comes nearest to being certain."""
    rows = [(group, one, at) for group, one in judged for at in range(len(one.late))]
    if not rows:
        return "no collective was seen on two ranks"
    group, one, at = max(rows, key=lambda r: r[1].late[r[2]] / max(r[1].unsure[r[2]], 1.0))
    reason = int(one.reason[at]) if one.late[at] > one.unsure[at] else WITHIN
    return (
        f"rank {group.ranks[int(one.last[at])]} comes {one.late[at] / 1e3:.1f} µs late to "
        f"{group.kinds[int(one.first[at])]} of {group.key}, uncertainty "
        f"{one.unsure[at] / 1e3:.1f} µs: {REASONS[reason]}"
    )
