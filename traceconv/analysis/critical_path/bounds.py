"""How far clocks can be off for what ranks communicated to be possible.

Nothing arrives before it was sent. A collective in which every rank needs something of every other
ends on no rank before the last one has begun it, and a receive does not end before its send has
begun. So each operation bounds what two clocks can be off against each other. It takes no
statistics, but operations that are known to be the same, and clocks that do not drift by more than
:data:`DRIFT_PPM` against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.alignment.messages import messages
from traceconv.alignment.plan import Plan
from traceconv.alignment.stamps import SYNCHRONOUS
from traceconv.core.columns import I64

NEEDS_ALL = tuple(kind for kind in SYNCHRONOUS if kind != "alltoall")
"""Collectives that end on no rank before all have begun; an all-to-all may have nothing for a rank,
so that no rank waits for it there."""

FEWEST = 3
"""Fewest operations of two ranks: fewer may be matched by chance."""

SLACK_NS = 20_000
"""Stamps of single operations are off by as much, however well clocks agree."""

DRIFT_PPM = 100
"""Most that two clocks drift against each other: crystals are made to 50."""

_FAR = 2**61


def bounded(
    records: Mapping[int, CollectiveRecords],
    groups: Sequence[Matched],
    plan: Plan,
    spans: Mapping[int, tuple[int, int]],
) -> dict[int, int]:
    """Largest error of the clock of each rank against that of the first one, ns. Ranks without a
    bound are left out, as are ranks whose bound contradicts what their files state.

    Args:
        records: of all ranks.
        plan:  what puts ranks on the shared clock so far.
        spans: first and last instant of each rank, on its own clock.
    """
    ranks = sorted(records)
    if not ranks or any(rank not in spans for rank in ranks):
        return {}
    ends = [plan.corrected(rank, np.array(spans[rank], np.int64)) for rank in ranks]
    begin, end = min(int(one[0]) for one in ends), max(int(one[1]) for one in ends)
    middle, half = (begin + end) // 2, (end - begin) // 2
    limits = _Limits(ranks, plan, middle)
    for group in groups:
        limits.of_group(group)
    limits.of_messages(records)
    low, high = limits.solved()
    drift = -(-half * DRIFT_PPM // 10**6)
    return {
        rank: max(-least, most) + drift * (rank != ranks[0])
        for rank, least, most in zip(ranks, low.tolist(), high.tolist(), strict=True)
        if -_FAR < least <= 0 <= most < _FAR
    }


class _Limits:
    """By how much what has to be added to the stamps of one rank, at the middle of the capture, may
    exceed what has to be added to those of another."""

    def __init__(self, ranks: Sequence[int], plan: Plan, middle: int) -> None:
        self.place = {rank: at for at, rank in enumerate(ranks)}
        self.plan, self.middle = plan, middle
        self.found: list[tuple[int, int, int]] = []

    def _add(self, rank: int, other: int, begun: I64, ended: I64) -> None:
        """An operation begun on one rank before it ended on another, many times."""
        if len(begun) >= FEWEST:
            far = np.maximum(np.abs(begun - self.middle), np.abs(ended - self.middle))
            most = ended - begun + SLACK_NS - (-far * DRIFT_PPM // 10**6)
            self.found.append((self.place[rank], self.place[other], int(most.min())))

    def of_group(self, group: Matched) -> None:
        """Between the first rank of a group and its others."""
        kept = np.array([kind in NEEDS_ALL for kind in group.kinds], bool)
        columns = [c for c, r in enumerate(group.ranks) if r in self.place and not group.doubts[c]]
        if not kept.any() or len(columns) < 2:
            return
        hub, *others = columns
        shared = {c: tuple(self.plan.corrected(group.ranks[c], ns[:, c])
                           for ns in (group.start_ns, group.end_ns)) for c in columns}  # fmt: skip
        hub_start, hub_end = shared[hub]
        for column in others:
            start, end = shared[column]
            both = kept & (group.row[:, hub] >= 0) & (group.row[:, column] >= 0)
            first, other = group.ranks[hub], group.ranks[column]
            self._add(first, other, hub_start[both], end[both])
            self._add(other, first, start[both], hub_end[both])

    def of_messages(self, records: Mapping[int, CollectiveRecords]) -> None:
        """Between the two sides of messages."""
        every = messages(records)
        pairs, which = np.unique(every[:, [0, 2]], axis=0, return_inverse=True)
        order = np.argsort(which.reshape(-1), kind="stable")
        borders = np.searchsorted(which.reshape(-1)[order], np.arange(len(pairs) + 1)).tolist()
        for at, (rank, other) in enumerate(pairs.tolist()):
            rows = every[order[borders[at] : borders[at + 1]]]
            begun = self.plan.corrected(rank, records[rank].start_ns[rows[:, 1]])
            self._add(
                rank, other, begun, self.plan.corrected(other, records[other].end_ns[rows[:, 3]])
            )

    def solved(self) -> tuple[I64, I64]:
        """Least and largest offset of each rank, 0 for the first; beyond ``_FAR`` if nothing
        limits it, or limits contradict each other."""
        n = len(self.place)
        low, high = np.full(n, -2 * _FAR), np.full(n, 2 * _FAR)
        low[0] = high[0] = 0
        of, by, most = np.array(self.found, np.int64).reshape(-1, 3).T
        for _ in range(n + 1):
            before = low.copy(), high.copy()
            known = high[by] < _FAR
            np.minimum.at(high, of[known], (high[by] + most)[known])
            known = low[of] > -_FAR
            np.maximum.at(low, by[known], (low[of] - most)[known])
            if np.array_equal(before[0], low) and np.array_equal(before[1], high):
                return low, high
        return np.full(n, -2 * _FAR), np.full(n, 2 * _FAR)
