"""How far clocks can be off for what ranks communicated to be possible.

A collective in which every rank needs something of every other ends on no rank before the last one
has begun it. So the end on one rank is not before the start on another, whatever their clocks say:
each operation bounds what the clock of one rank can be off against that of the other, from both
sides. All operations of a pair together bound it to about the shortest of them. It takes no
statistics, but operations that are known to be the same, and clocks that do not drift by more than
:data:`DRIFT_PPM` against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.plan import Plan
from traceconv.alignment.stamps import SYNCHRONOUS
from traceconv.core.columns import I64

NEEDS_ALL = tuple(kind for kind in SYNCHRONOUS if kind != "alltoall")
"""Collectives that end on no rank before all have begun; an all-to-all may have nothing for a rank,
so that nobody waits for it there."""

FEWEST = 3
"""Operations of two ranks, at least: of fewer nobody knows that they are the same."""

SLACK_NS = 20_000
"""Stamps of single operations are off by as much, however well clocks agree."""

DRIFT_PPM = 100
"""Most that two clocks drift against each other: crystals are made to 50."""

_Interval = tuple[int, int]


def stated_or_bounded(
    ranks: Sequence[int],
    groups: Sequence[Matched],
    plan: Plan,
    spans: Mapping[int, _Interval],
    error_ns: int | None = None,
) -> dict[int, int | None]:
    """Largest error of the clock of each rank, ns: as is known of it, else as ``error_ns`` says, or
    as :func:`bounded`; None if unknown.

    Args:
        spans: first and last instant of each rank, on its own clock.
        error_ns: of clocks whose error is unknown; None if nobody knows it.
    """
    errors = {rank: plan.error_ns(rank) for rank in ranks}
    if None not in errors.values():
        return errors
    if error_ns is None:
        shared = {
            rank: tuple(plan.corrected(rank, np.array(span, np.int64)).tolist())
            for rank, span in spans.items()
        }
        limits = bounded(ranks, groups, plan, shared)
        return {rank: limits.get(rank) if one is None else one for rank, one in errors.items()}
    return {rank: error_ns if one is None else one for rank, one in errors.items()}


def bounded(
    ranks: Sequence[int],
    groups: Sequence[Matched],
    plan: Plan,
    spans: Mapping[int, _Interval],
) -> dict[int, int]:
    """Largest error of the clock of each rank against that of the first one, ns; of those for which
    there is a bound, and for which it holds what their files say of their clocks.

    Args:
        ranks: ascending.
        plan:  what puts ranks on the shared clock so far.
        spans: first and last instant, on the shared clock, for which an error has to hold.
    """
    if not ranks or any(rank not in spans for rank in ranks):
        return {}
    begin, end = min(one[0] for one in spans.values()), max(one[1] for one in spans.values())
    middle, half = (begin + end) // 2, (end - begin) // 2
    drift = -(-half * DRIFT_PPM // 10**6)
    found = {ranks[0]: (0, 0)}
    edges = _edges(groups, plan, set(ranks), middle)
    waiting = [ranks[0]]
    while waiting:
        # the narrowest way to each rank: the next one is never reached by a narrower one
        at = min(waiting, key=lambda rank: (found[rank][1] - found[rank][0], rank))
        waiting.remove(at)
        for other, (low, high) in edges.get(at, {}).items():
            way = (found[at][0] + low, found[at][1] + high)
            if other not in found:
                found[other] = way
                waiting.append(other)
            elif other in waiting and way[1] - way[0] < found[other][1] - found[other][0]:
                found[other] = way
    return {
        rank: max(-low, high) + (drift if rank != ranks[0] else 0)
        for rank, (low, high) in found.items()
        if low <= 0 <= high
    }


def _edges(
    groups: Sequence[Matched], plan: Plan, ranks: set[int], middle: int
) -> dict[int, dict[int, _Interval]]:
    """By rank and other rank: what has to be added to the stamps of the other, at the middle of the
    capture, ns: at least, at most. Between the first rank of a group and its others."""
    found: dict[int, dict[int, _Interval]] = {}
    for one in groups:
        kept = np.array([kind in NEEDS_ALL for kind in one.kinds], bool)
        columns = [c for c, r in enumerate(one.ranks) if r in ranks and not one.doubts[c]]
        if not kept.any() or len(columns) < 2:
            continue
        hub, *others = columns
        start, end = (
            np.stack([plan.corrected(one.ranks[c], times[:, c]) for c in columns], axis=1)
            for times in (one.start_ns, one.end_ns)
        )
        for column, place in enumerate(others, 1):
            both = kept & (one.row[:, hub] >= 0) & (one.row[:, place] >= 0)
            if np.count_nonzero(both) >= FEWEST:
                times = (start[both, 0], end[both, 0], start[both, column], end[both, column])
                low, high = _interval(*times, middle)
                _narrow(found, one.ranks[hub], one.ranks[place], low, high)
                _narrow(found, one.ranks[place], one.ranks[hub], -high, -low)
    return found


def _interval(start: I64, end: I64, other_start: I64, other_end: I64, middle: int) -> _Interval:
    """What has to be added to the other clock: at least, at most."""
    away = -(-np.maximum(np.abs(start - middle), np.abs(end - middle)) * DRIFT_PPM // 10**6)
    away += SLACK_NS
    low, high = start - other_end - away, end - other_start + away
    return int(low.max()), int(high.min())


def _narrow(
    found: dict[int, dict[int, _Interval]], rank: int, other: int, low: int, high: int
) -> None:
    known = found.setdefault(rank, {}).get(other)
    found[rank][other] = (low, high) if known is None else (max(low, known[0]), min(high, known[1]))
