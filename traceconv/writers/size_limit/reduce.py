"""Making one rank smaller: counters are thinned first, then small slices go.

:func:`choose` finds the mildest :class:`Cut` that fits; :func:`apply` carries one out, and books
every row it takes away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64, CounterTable, Trace
from traceconv.writers import Costs
from traceconv.writers.size_limit.coalesce import (
    ALWAYS,
    NEVER,
    Clusters,
    importance,
    probe,
    stand_ins,
)
from traceconv.writers.size_limit.dropped import THINNED, Dropped
from traceconv.writers.size_limit.measure import Size, total

# Thinning counters so that their picture stays: no repeats, then lows and highs, evenly.


def thinned(counters: CounterTable, points: int | None) -> NDArray[np.bool_]:
    """The samples that stay. The first and last of a counter always do, unless none shall.

    Args:
        points: groups per counter, of which the lowest and the highest sample stay; None keeps
            all samples, 0 none.
    """
    track, value = counters.track, counters.value
    if points is None or points == 0 or not len(track):
        return np.full(len(track), points is None)
    border = np.diff(track) != 0
    edge = np.append(True, border) | np.append(border, True)
    kept: NDArray[np.bool_] = edge | np.append(True, value[1:] != value[:-1])
    rows = np.flatnonzero(kept)
    begins = np.flatnonzero(np.diff(track[rows], prepend=-1))
    count = np.diff(np.append(begins, len(rows)))
    place = np.arange(len(rows)) - np.repeat(begins, count)
    count = np.repeat(count, count)
    group = np.where(count > 2 * points, place * points // count, place)
    order = np.lexsort((value[rows], group, track[rows]))
    apart = (np.diff(track[rows][order]) != 0) | (np.diff(group[order]) != 0)
    extreme = np.append(True, apart) | np.append(apart, True)
    kept[rows] = False
    kept[rows[order[extreme]]] = True
    kept |= edge
    return kept


STAGE = "size limit"

REPEATS_ONLY = 2**40
MILD = (None, REPEATS_ONLY, 16384, 4096, 1024)
"""Points per counter that are tried while all slices stay: a screen shows about 1000."""

HARSH = (1024, 256, 64, 0)
"""Points per counter that are tried when slices must go too ..."""

COUNTER_SHARE = 4
"""... until counters take no more than a quarter of the room."""

EARLIEST = -(2**63)

ATTEMPTS = 8
"""How often a cut is made harder when costs turn out higher than foreseen."""

CLOSE = 256
"""This part of the room may stay empty, rather than be filled by further attempts."""

CostOf = Callable[[Trace], Costs]


@dataclass(frozen=True)
class Cut:
    """What a rank loses.

    Attributes:
        cutoff: slices of less importance go (see :mod:`traceconv.writers.size_limit.coalesce`), ...
        softer: ... except those of at least this, if they start before ...
        until_ns: ... this: what is of equal importance stays as long as there is room.
        points: groups each counter is thinned to, each to its lowest and highest sample; None
            leaves counters alone, any number takes out samples that repeat the one before.
        lanes:  tracks that keep anything at all; None = all of them.
    """

    cutoff: int = 0
    softer: int = 0
    until_ns: int = EARLIEST
    points: int | None = None
    lanes: frozenset[int] | None = None


NOTHING = Cut(NEVER, points=0, lanes=frozenset())
"""Leaves only what always stays."""


@dataclass(frozen=True)
class Reduced:
    """A rank after its cut.

    Attributes:
        cut:     what was done.
        trace:   what is left.
        dropped: what is not: rows of the dropped table.
    """

    cut: Cut
    trace: Trace
    dropped: list[dict[str, Any]]


def least(trace: Trace) -> Trace:
    """Only what always stays."""
    return trace.keep(STAGE, trace.rows_of(*ALWAYS), thinned(trace.counters, 0))


def choose(trace: Trace, cost_of: CostOf, room: Size) -> Reduced:
    """``trace`` after the mildest cut with which it takes no more than ``room``.

    ``room`` must hold at least what :func:`least` leaves.
    """
    sizes = _Sizes(trace, cost_of)
    inner = room
    for attempt in range(ATTEMPTS):
        reduced = apply(trace, sizes.choose(inner), sizes.clusters)
        size = total(cost_of(reduced.trace))
        if size.fits(room):
            return reduced
        # a writer may count strings apart from rows: about as many as were not foreseen now will
        # not be foreseen again; if that was wrong too often, hurry
        times = 1 if attempt < ATTEMPTS // 2 else 2
        over = Size(*(max(0, n - m) for n, m in zip(size, room, strict=True)))
        more = Size(*(times * n + m // CLOSE if n else 0 for n, m in zip(over, room, strict=True)))
        inner = inner.minus(more)
    return apply(trace, NOTHING)


class _Sizes:
    """What cuts of one rank would take, without carrying them out."""

    def __init__(self, trace: Trace, cost_of: CostOf) -> None:
        self._trace = trace
        self._costs = cost_of(trace)
        self.clusters = Clusters(trace)
        self._run_cost = (
            cost_of(probe(trace)).events if len(trace.events) else np.empty(0, np.int64)
        )
        bare = cost_of(least(trace))
        self._least, self._fixed = total(bare), bare.fixed
        self._counter_sizes: dict[int | None, Size] = {}

    def choose(self, room: Size) -> Cut:
        for mild in MILD if len(self._trace.counters) else (None,):
            if self._of(Cut(points=mild)).fits(room):
                return Cut(points=mild)
        points = self._harsh_points(room)
        cutoffs = self.clusters.cutoffs()

        def by_cutoff(i: int) -> Cut:
            return Cut(int(cutoffs[i]), points=points)

        found = self._first_that_fits(by_cutoff, len(cutoffs), room)
        if found is None:
            return self._lanes(room)
        softer = int(cutoffs[max(found - 1, 0)])
        times = self.clusters.starts(softer)[::-1]

        def by_time(i: int) -> Cut:
            return replace(by_cutoff(found), softer=softer, until_ns=int(times[i]))

        at = self._first_that_fits(by_time, len(times), room) if found else None
        return by_cutoff(found) if at is None else by_time(at)

    def _first_that_fits(self, cut: Callable[[int], Cut], count: int, room: Size) -> int | None:
        """Of cuts that grow harder, one that fits after one that does not; None if none does."""
        low, high = -1, count - 1
        if not count or not self._of(cut(high)).fits(room):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._of(cut(middle)).fits(room):
                high = middle
            else:
                low = middle
        return high

    def _of(self, cut: Cut) -> Size:
        kept, runs = self.clusters.kept(cut.cutoff, cut.softer, cut.until_ns)
        costs, flows = self._costs, self._trace.flows
        arrows = kept[flows.src] & kept[flows.dst]
        run_bytes = int(self._run_cost[self.clusters.track[runs.first]].sum())
        events = Size(int(costs.events[kept].sum()) + run_bytes, int(kept.sum()) + len(runs))
        drawn = Size(self._fixed + int(costs.flows[arrows].sum()), int(arrows.sum()))
        return events.plus(drawn).plus(self._counters(cut.points))

    def _counters(self, points: int | None) -> Size:
        if points not in self._counter_sizes:
            kept = thinned(self._trace.counters, points)
            size = Size(int(self._costs.counters[kept].sum()), int(kept.sum()))
            self._counter_sizes[points] = size
        return self._counter_sizes[points]

    def _harsh_points(self, room: Size) -> int:
        spare = room.minus(self._least)
        share = Size(spare.bytes // COUNTER_SHARE, spare.rows // COUNTER_SHARE)
        return next((p for p in HARSH if self._counters(p).fits(share)), 0)

    def _lanes(self, room: Size) -> Cut:
        """Not even runs fit: keep those lanes that matter most, as long as they do."""
        kept, runs = self.clusters.kept(NEVER, NEVER, EARLIEST)
        kept &= ~self.clusters.always
        track, run_track = self._trace.events.track[kept], self.clusters.track[runs.first]
        size = self._by_track(track, self._costs.events[kept])
        size += self._by_track(run_track, self._run_cost[run_track])
        rows = self._by_track(track) + self._by_track(run_track)
        order = np.argsort(-_weights(self._trace), kind="stable")
        order = order[rows[order] > 0]
        spare = room.minus(self._least)
        fits = (np.cumsum(size[order]) <= spare.bytes) & (np.cumsum(rows[order]) <= spare.rows)
        return Cut(NEVER, points=0, lanes=frozenset(order[fits].tolist()))

    def _by_track(self, track: NDArray[np.int32], size: I64 | None = None) -> I64:
        return np.bincount(track, size, len(self._trace.tracks)).astype(np.int64)


def _weights(trace: Trace) -> Any:
    return np.bincount(trace.events.track, importance(trace), len(trace.tracks))


def apply(trace: Trace, cut: Cut, clusters: Clusters | None = None) -> Reduced:
    """Carry out ``cut``; ``clusters`` of the trace if they are at hand."""
    if cut == Cut():
        return Reduced(cut, trace, [])
    clusters = clusters or Clusters(trace)
    kept, runs = clusters.kept(cut.cutoff, cut.softer, cut.until_ns)
    if cut.lanes is not None:
        stays = clusters.always | np.isin(trace.events.track, list(cut.lanes))
        kept &= stays
        runs = runs.where(stays[clusters.first[runs.first]])
    samples = thinned(trace.counters, cut.points)
    book = Dropped(trace)
    book.events(clusters, kept, runs, cut.lanes)
    book.rows(THINNED, trace.counters.track[~samples])
    left = trace.keep(STAGE, kept, samples)
    book.arrows(len(trace.flows) - len(left.flows))
    rows, args = stand_ins(left, clusters, runs)
    if not len(rows):
        return Reduced(cut, left, book.table)
    grown, first = left.args.extended(args)
    rows = rows.with_columns(args=rows.args + np.int32(first))
    return Reduced(cut, left.add_events(STAGE, left.tracks, rows, grown), book.table)
