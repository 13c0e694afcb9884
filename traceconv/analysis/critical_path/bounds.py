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
    begin, end = min(int(span[0]) for span in ends), max(int(span[1]) for span in ends)
    middle, half = (begin + end) // 2, (end - begin) // 2
    limits = _Limits(ranks, plan, middle)
    for group in groups:
        limits.of_group(group)
    limits.of_messages(records)
    low, high = limits.solved()
    drift = -(-half * DRIFT_PPM // 10**6)
    return {
        rank: max(-least, highest) + drift * (rank != ranks[0])
        for rank, least, highest in zip(ranks, low.tolist(), high.tolist(), strict=True)
        if -_FAR < least <= 0 <= highest < _FAR
    }


class _Limits:
    """By how much what has to be added to the stamps of one rank, at the middle of the capture, may
    exceed what has to be added to those of another."""

    def __init__(self, ranks: Sequence[int], plan: Plan, middle: int) -> None:
        self.place = {rank: position for position, rank in enumerate(ranks)}
        self.plan, self.middle = plan, middle
        self.found: list[tuple[int, int, int]] = []

    def _add(self, rank: int, other: int, begun: I64, ended: I64) -> None:
        """An operation begun on one rank before it ended on another, many times."""
        if len(begun) >= FEWEST:
            far = np.maximum(np.abs(begun - self.middle), np.abs(ended - self.middle))
            limit = ended - begun + SLACK_NS - (-far * DRIFT_PPM // 10**6)
            self.found.append((self.place[rank], self.place[other], int(limit.min())))

    def of_group(self, group: Matched) -> None:
        """Between the first rank of a group and its others."""
        needs_all = np.array([kind in NEEDS_ALL for kind in group.kinds], bool)
        columns = [c for c, r in enumerate(group.ranks) if r in self.place and not group.doubts[c]]
        if not needs_all.any() or len(columns) < 2:
            return
        hub, *spokes = columns
        shared = {c: tuple(self.plan.corrected(group.ranks[c], ns[:, c])
                           for ns in (group.start_ns, group.end_ns)) for c in columns}  # fmt: skip
        hub_start, hub_end = shared[hub]
        for column in spokes:
            start, end = shared[column]
            shared_rows = needs_all & (group.row[:, hub] >= 0) & (group.row[:, column] >= 0)
            hub_rank, rank = group.ranks[hub], group.ranks[column]
            self._add(hub_rank, rank, hub_start[shared_rows], end[shared_rows])
            self._add(rank, hub_rank, start[shared_rows], hub_end[shared_rows])

    def of_messages(self, records: Mapping[int, CollectiveRecords]) -> None:
        """Between the two sides of messages."""
        rows_of_messages = messages(records)
        pairs, pair_of = np.unique(rows_of_messages[:, [0, 2]], axis=0, return_inverse=True)
        order = np.argsort(pair_of.reshape(-1), kind="stable")
        borders = np.searchsorted(pair_of.reshape(-1)[order], np.arange(len(pairs) + 1)).tolist()
        for position, (rank, receiver) in enumerate(pairs.tolist()):
            rows = rows_of_messages[order[borders[position] : borders[position + 1]]]
            begun = self.plan.corrected(rank, records[rank].start_ns[rows[:, 1]])
            self._add(
                rank,
                receiver,
                begun,
                self.plan.corrected(receiver, records[receiver].end_ns[rows[:, 3]]),
            )

    def solved(self) -> tuple[I64, I64]:
        """Least and largest offset of each rank, 0 for the first; beyond ``_FAR`` if nothing
        limits it, or limits contradict each other."""
        n = len(self.place)
        low, high = np.full(n, -2 * _FAR), np.full(n, 2 * _FAR)
        low[0] = high[0] = 0
        limited, by, limit = np.array(self.found, np.int64).reshape(-1, 3).T
        for _ in range(n + 1):
            before = low.copy(), high.copy()
            bounded_rows = high[by] < _FAR
            np.minimum.at(high, limited[bounded_rows], (high[by] + limit)[bounded_rows])
            bounded_rows = low[limited] > -_FAR
            np.maximum.at(low, by[bounded_rows], (low[limited] - limit)[bounded_rows])
            if np.array_equal(before[0], low) and np.array_equal(before[1], high):
                return low, high
        return np.full(n, -2 * _FAR), np.full(n, 2 * _FAR)
