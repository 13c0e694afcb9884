"""Making one rank smaller: counters are downsampled first, then small slices are coalesced.

:func:`choose` finds the mildest :class:`Cut` that fits; :func:`apply` carries one out and counts
every row it takes away in the dropped table: by rank, lane and reason.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from traceconv.core.model import I32, I64, CounterTable, Mask, Trace
from traceconv.writers import Costs, DroppedRows
from traceconv.writers.size_limit.coalesce import (
    ALWAYS,
    NEVER,
    Clusters,
    Runs,
    importance,
    probe,
    stand_ins,
)
from traceconv.writers.size_limit.measure import Size, total

STAGE = "size limit"

REPEATS_ONLY = 2**40
MILD = (None, REPEATS_ONLY, 16384, 4096, 1024)
"""Points per counter that are tried while all slices stay: a screen shows about 1000."""

HARSH = (1024, 256, 64, 0)
"""Points per counter that are tried when slices are coalesced too ..."""

COUNTER_SHARE = 4
"""... until counters take no more than a quarter of the room."""

ATTEMPTS = 8
"""How often a cut is made harder when costs turn out higher than predicted."""

CLOSE = 256
"""This fraction of the room may stay empty, rather than be filled by further attempts."""

CostOf = Callable[[Trace], Costs]


@dataclass(frozen=True)
class Cut:
    """The part of a rank to drop.

    Attributes:
        cutoff: slices of less importance are coalesced (see
            :mod:`traceconv.writers.size_limit.coalesce`).
        points: the samples of a counter are divided into this many groups, and the lowest and
            highest of each are kept. None keeps all samples; any number drops repeated values.
        lanes:  tracks of which rows are kept; None = all of them.
    """

    cutoff: int = 0
    points: int | None = None
    lanes: frozenset[int] | None = None


NOTHING = Cut(NEVER, points=0, lanes=frozenset())
"""Keeps only what always stays."""


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
    dropped: list[DroppedRows]


def least(trace: Trace) -> Trace:
    """Only what always stays."""
    return trace.keep(STAGE, trace.rows_of(*ALWAYS), downsampled(trace.counters, 0))


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
        # a writer may count strings apart from rows: assume that the next prediction misses by as
        # much as this one did, and by twice as much after half of the attempts
        times = 1 if attempt < ATTEMPTS // 2 else 2
        over = Size(*(max(0, n - m) for n, m in zip(size, room, strict=True)))
        margin = Size(
            *(times * n + m // CLOSE if n else 0 for n, m in zip(over, room, strict=True))
        )
        inner = inner.minus(margin)
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
        spare = room.minus(self._least)
        share = Size(spare.bytes // COUNTER_SHARE, spare.rows // COUNTER_SHARE)
        points = next((p for p in HARSH if self._counters(p).fits(share)), 0)
        cuts = range(len(self._trace.events) + 1)
        cutoff = bisect_left(cuts, True, key=lambda n: self._of(Cut(n, points)).fits(room))
        return Cut(cutoff, points) if cutoff < len(cuts) else self._lanes(room)

    def _of(self, cut: Cut) -> Size:
        """What ``cut`` would leave: sums over the costs of single rows, nothing is encoded."""
        is_kept, runs = self.clusters.kept(cut.cutoff)
        costs, flows = self._costs, self._trace.flows
        arrows = is_kept[flows.src] & is_kept[flows.dst]
        run_bytes = int(self._run_cost[self.clusters.track[runs.first]].sum())
        events = Size(int(costs.events[is_kept].sum()) + run_bytes, int(is_kept.sum()) + len(runs))
        drawn = Size(self._fixed + int(costs.flows[arrows].sum()), int(arrows.sum()))
        return events.plus(drawn).plus(self._counters(cut.points))

    def _counters(self, points: int | None) -> Size:
        if points not in self._counter_sizes:
            is_kept = downsampled(self._trace.counters, points)
            size = Size(int(self._costs.counters[is_kept].sum()), int(is_kept.sum()))
            self._counter_sizes[points] = size
        return self._counter_sizes[points]

    def _lanes(self, room: Size) -> Cut:
        """Not even coalesced slices fit: keep the most important lanes, as many as do."""
        is_kept, runs = self.clusters.kept(NEVER)
        is_kept &= ~self.clusters.always
        track, run_track = self._trace.events.track[is_kept], self.clusters.track[runs.first]
        size = self._by_track(track, self._costs.events[is_kept])
        size += self._by_track(run_track, self._run_cost[run_track])
        rows = self._by_track(track) + self._by_track(run_track)
        tracks = len(self._trace.tracks)
        weights = np.bincount(self._trace.events.track, importance(self._trace), tracks)
        order = np.argsort(-weights, kind="stable")
        order = order[rows[order] > 0]
        spare = room.minus(self._least)
        # lanes in order of importance, up to the first with which the sum no longer fits
        fits = (np.cumsum(size[order]) <= spare.bytes) & (np.cumsum(rows[order]) <= spare.rows)
        return Cut(NEVER, points=0, lanes=frozenset(order[fits].tolist()))

    def _by_track(self, track: I32, size: I64 | None = None) -> I64:
        return np.bincount(track, size, len(self._trace.tracks)).astype(np.int64)


def apply(trace: Trace, cut: Cut, clusters: Clusters | None = None) -> Reduced:
    """Carry out ``cut``; ``clusters`` are those of the trace, where they were made already."""
    if cut == Cut():
        return Reduced(cut, trace, [])
    clusters = clusters or Clusters(trace)
    is_kept, runs = clusters.kept(cut.cutoff)
    if cut.lanes is not None:
        stays = clusters.always | np.isin(trace.events.track, list(cut.lanes))
        is_kept &= stays
        runs = runs.where(stays[clusters.first[runs.first]])
    samples = downsampled(trace.counters, cut.points)
    dropped = Dropped(trace)
    dropped.events(clusters, is_kept, runs, cut.lanes)
    dropped.rows(DOWNSAMPLED, trace.counters.track[~samples])
    reduced = trace.keep(STAGE, is_kept, samples)
    dropped.arrows(len(trace.flows) - len(reduced.flows))
    rows, args = stand_ins(reduced, clusters, runs)
    if not len(rows):
        return Reduced(cut, reduced, dropped.table)
    grown, first_id = reduced.args.extended(args)
    rows = rows.with_columns(args=rows.args + np.int32(first_id))
    return Reduced(cut, reduced.add_events(STAGE, reduced.tracks, rows, grown), dropped.table)


def downsampled(counters: CounterTable, points: int | None) -> Mask:
    """The samples that stay: no repeats, then the lowest and highest of groups of equal size.

    The first and last of a counter always stay, unless ``points`` is 0.

    Args:
        points: groups per counter, of which the lowest and the highest sample stay; None keeps
            all samples, 0 none.
    """
    track, value = counters.track, counters.value
    if points is None or points == 0 or not len(track):
        return np.full(len(track), points is None)
    # rows are sorted by track: the first and the last of each are beside a change of the track
    border = np.diff(track) != 0
    edge = np.append(True, border) | np.append(border, True)
    # a sample that repeats the one before draws nothing
    is_kept: Mask = edge | np.append(True, value[1:] != value[:-1])
    rows = np.flatnonzero(is_kept)
    begins = np.flatnonzero(np.diff(track[rows], prepend=-1))
    count = np.diff(np.append(begins, len(rows)))
    # 0, 1, 2 ... within each track
    position = np.arange(len(rows)) - np.repeat(begins, count)
    count = np.repeat(count, count)
    # ``points`` groups of equal size; each sample of a counter with few samples is one group
    group = np.where(count > 2 * points, position * points // count, position)
    # sorted by value within groups, the lowest and the highest are beside a change of the group
    order = np.lexsort((value[rows], group, track[rows]))
    apart = (np.diff(track[rows][order]) != 0) | (np.diff(group[order]) != 0)
    extreme = np.append(True, apart) | np.append(apart, True)
    is_kept[rows] = False
    is_kept[rows[order[extreme]]] = True
    is_kept |= edge
    return is_kept


COALESCED = "coalesced"
COVERED = "inside a longer slice"
INSTANT = "instant"
LANE = "lane left out"
DOWNSAMPLED = "counter thinned"
ARROW = "arrow of a dropped slice"


SHOWN_CHARS = 80
"""Characters of a name in the table."""


def longest_row(labels: Iterable[tuple[str, str]]) -> DroppedRows:
    """The longest row there can be, for tracks with these headings and names."""
    heading, track = max(labels, key=lambda label: len(json.dumps(label)), default=("", ""))
    largest = 2**63 - 1
    return _row(largest, "overlap", heading, track, largest, largest, ARROW)


def shortened(table: Sequence[DroppedRows], rows: int) -> list[DroppedRows]:
    """``table`` with at most ``rows`` + 1 rows: the largest losses, and the sum of the others."""
    if len(table) <= rows:
        return list(table)
    order = sorted(range(len(table)), key=lambda i: (-table[i]["busy_ns"], -table[i]["rows"], i))
    shown, others = sorted(order[:rows]), order[rows:]
    lost, busy = sum(table[i]["rows"] for i in others), sum(table[i]["busy_ns"] for i in others)
    return [*(table[i] for i in shown), _row(-1, "", "", f"{len(others)} others", lost, busy, "")]


def _row(
    rank: int, layer: str, heading: str, track: str, rows: int, busy_ns: int, reason: str
) -> DroppedRows:
    return {
        "rank": rank,
        "layer": layer,
        "heading": heading[:SHOWN_CHARS],
        "track": track[:SHOWN_CHARS],
        "rows": rows,
        "busy_ns": busy_ns,
        "reason": reason,
    }


class Dropped:
    """The dropped table of one rank: the only place that counts dropped rows."""

    def __init__(self, trace: Trace) -> None:
        self.table: list[DroppedRows] = []
        self._trace = trace

    def events(
        self, clusters: Clusters, is_kept: Mask, runs: Runs, lanes: frozenset[int] | None
    ) -> None:
        """Count event rows by what became of them."""
        track = self._trace.events.track
        gone = ~is_kept
        if lanes is not None:
            out = gone & ~clusters.always & ~np.isin(track, list(lanes))
            self._lanes(clusters, out)
            gone &= ~out
        self.rows(INSTANT, track[gone & ~clusters.is_slice])
        gone &= clusters.is_slice
        in_run = clusters.inside(runs)
        busy = self._by_track(clusters.track[runs.first], runs.busy_ns)
        self.rows(COALESCED, track[gone & in_run], busy)
        self.rows(COVERED, track[gone & ~in_run])

    def _lanes(self, clusters: Clusters, out: Mask) -> None:
        is_out = out[clusters.first]
        busy = self._by_track(clusters.track[is_out], clusters.busy_ns()[is_out])
        self.rows(LANE, self._trace.events.track[out], busy)

    def _by_track(self, track: I32, ns: I64) -> I64:
        """Sum of ``ns`` by track; exact, unlike ``bincount``, which sums doubles."""
        summed = np.zeros(len(self._trace.tracks), np.int64)
        np.add.at(summed, track, ns)
        return summed

    def arrows(self, count: int) -> None:
        """Count flows, which are on no track."""
        if count:
            self.table.append(_row(self._trace.rank, "", "", "", count, 0, ARROW))

    def rows(self, reason: str, tracks: I32, busy: I64 | None = None) -> None:
        """Count rows, given the track of each; ``busy`` is ns by track."""
        counts = np.bincount(tracks, minlength=1)
        for number in np.flatnonzero(counts).tolist():
            track = self._trace.tracks[number]
            name = " ".join(word for word in (track.group, track.name) if word)
            shown = f"{name} ({track.lane + 1})" if track.lane else name
            ns = 0 if busy is None else int(busy[number])
            count = int(counts[number])
            self.table.append(
                _row(self._trace.rank, str(track.layer), track.heading, shown, count, ns, reason)
            )
