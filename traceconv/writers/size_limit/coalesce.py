"""Coalescing: which slices of a rank are small, and the slices that replace runs of them.

Rows of a track form *clusters*: a slice at depth 0 with everything below it. A cluster whose most
important row is below a cutoff is dropped as a whole; consecutive ones make a *run*, and a run
is replaced by one slice with the number of its slices and the time they cover. Within a cluster
that stays, rows below the cutoff are dropped without replacement: the slice above them covers
their time.

Importance is duration, times 8 for communication, times 8 again for a slice three times as long
as is usual for its name. Instants have none. Of rows of equal importance the earlier ones stay: a
cutoff is a place in that order of all rows of a rank.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import (
    I64,
    CounterTable,
    EventTable,
    FlowTable,
    Kind,
    Layer,
    Mask,
    OpClass,
    Trace,
)

ALWAYS = (Layer.STEP, Layer.OVERLAP)
"""Layers that are never reduced."""

WEIGHT = 8
"""How many times as long another slice must be to matter as much."""

UNUSUAL = 3
"""A slice this many times as long as the median of its name is an outlier."""

NEVER = 2**63 - 1
"""The place of rows that are always kept."""

NAME_SHOWN = 100
"""Characters of the longest slice's name in the arguments of a run."""


class Clusters:
    """The clusters of one rank, in table order.

    Attributes:
        always: rows that stay whatever the cutoff.
        first:  first row of each cluster.
        of_row: cluster of each row.
        slices: slices (not instants) in each cluster.
    """

    def __init__(self, trace: Trace) -> None:
        events = trace.events
        self.events, self.tracks = events, len(trace.tracks)
        self.always = trace.rows_of(*ALWAYS)
        self.is_slice = events.kind != Kind.INSTANT
        root, self.end = _roots(events)
        self.first = np.flatnonzero(root)
        self.of_row = np.cumsum(root) - 1
        self.track = events.track[self.first]
        # what ends after the first slice of its cluster is not covered by it
        sticks_out = events.end_ns > events.ends(self.first)[self.of_row]
        self._stays_with_cluster = root | sticks_out
        self._place = np.empty(len(events), np.int64)
        self._place[np.lexsort((-events.start_ns, importance(trace)))] = np.arange(len(events))
        self._place[self.always] = NEVER
        self._highest = _per_cluster(np.maximum, self._place, self.first)
        self.slices = _per_cluster(np.add, self.is_slice.astype(np.int64), self.first)

    def kept(self, cutoff: int) -> tuple[Mask, Runs]:
        """The rows that stay, and the runs that replace the others.

        A run of a single slice is not worth a replacement: the slice stays.

        Args:
            cutoff: the least important row that stays: 0 keeps all, the number of rows nothing.
        """
        small = self._highest < cutoff
        runs = self._runs(small)
        rows = ~small[self.of_row] & (self._stays_with_cluster | (self._place >= cutoff))
        # a run with one slice stays: its cluster, and in it the row that is a slice
        alone = np.zeros(len(small) + 1, bool)
        alone[np.flatnonzero(small)] = (runs.slices <= 1)[runs.of_cluster]
        rows |= alone[self.of_row] & self.is_slice
        return rows, runs.where(runs.slices > 1)

    def inside(self, runs: Runs) -> Mask:
        """The rows in the clusters of ``runs``."""
        # +1 where a run begins and -1 behind its end: the running sum is 1 inside
        step = np.zeros(len(self.first) + 1, np.int8)
        step[runs.first] += 1
        step[runs.last + 1] -= 1
        rows: Mask = np.cumsum(step[:-1]).astype(bool)[self.of_row]
        return rows

    def busy_ns(self) -> I64:
        """Time each cluster covers, ns: it has no gaps, for a gap would end it."""
        return self.end - self.events.start_ns[self.first]

    def _runs(self, small: Mask) -> Runs:
        clusters = np.flatnonzero(small)
        if not len(clusters):
            return Runs(*(np.empty(0, np.int64),) * 5)
        # a run ends where a cluster that stays, or another track, is between two small ones
        apart = (np.diff(clusters) > 1) | (np.diff(self.track[clusters]) != 0)
        begins = np.concatenate(([0], np.flatnonzero(apart) + 1))
        ends = np.append(begins[1:], len(clusters)) - 1
        return Runs(
            first=clusters[begins],
            last=clusters[ends],
            slices=np.add.reduceat(self.slices[clusters], begins),
            of_cluster=np.cumsum(np.concatenate(([False], apart))),
            busy_ns=np.add.reduceat(self.busy_ns()[clusters], begins),
        )


@dataclass(frozen=True)
class Runs:
    """Runs of small clusters, as columns.

    Attributes:
        first, last: clusters each run begins and ends with.
        slices:      how many slices are in it.
        of_cluster:  run of each small cluster, in order (stale after :meth:`where`).
        busy_ns:     union of its slices.
    """

    first: I64
    last: I64
    slices: I64
    of_cluster: I64
    busy_ns: I64

    def where(self, chosen: Mask) -> Runs:
        """Only the chosen runs."""
        return Runs(
            self.first[chosen],
            self.last[chosen],
            self.slices[chosen],
            self.of_cluster,
            self.busy_ns[chosen],
        )

    def __len__(self) -> int:
        return len(self.first)


def importance(trace: Trace) -> I64:
    """What cutoffs are compared with: weighted ns per row, 0 for instants."""
    events = trace.events
    comm = trace.rows_of(Layer.COMM) | np.isin(events.op, (OpClass.COMM, OpClass.COMM_TASK))
    dur = np.minimum(events.dur_ns, 2**56)  # two weights of 8 must not overflow int64
    unusual = dur > UNUSUAL * _usual(events.name, dur)
    return dur * np.where(comm, WEIGHT, 1) * np.where(unusual, WEIGHT, 1)


def _usual(name: NDArray[np.int32], dur: I64) -> I64:
    """Per row, the (lower) median duration of its name."""
    if not len(name):
        return dur
    # by name, then duration: the median of a name is in the middle of its range
    order = np.lexsort((dur, name))
    begins = np.concatenate(([0], np.flatnonzero(np.diff(name[order])) + 1))
    ends = np.append(begins[1:], len(order))
    middle = dur[order[begins + (ends - begins - 1) // 2]]
    usual = np.empty(len(order), np.int64)
    usual[order] = np.repeat(middle, ends - begins)
    return usual


def _roots(events: EventTable) -> tuple[Mask, I64]:
    """Rows that begin a cluster, and the end of each cluster."""
    root = np.zeros(len(events), bool)
    ends = []
    borders = np.flatnonzero(np.diff(events.track, prepend=-1, append=-1))
    for a, b in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        start = events.start_ns[a:b]
        # a row that starts when everything before it has ended is at depth 0
        reached = np.maximum.accumulate(events.end_ns[a:b])
        root[a] = True
        root[a + 1 : b] = start[1:] >= reached[:-1]
        last_rows = np.append(np.flatnonzero(root[a + 1 : b]), b - a - 1)
        ends.append(reached[last_rows])
    return root, np.concatenate(ends) if ends else np.empty(0, np.int64)


def _per_cluster(ufunc: np.ufunc, column: I64, first: I64) -> I64:
    return ufunc.reduceat(column, first) if len(first) else np.empty(0, np.int64)


def stand_ins(trace: Trace, clusters: Clusters, runs: Runs) -> tuple[EventTable, list[bytes]]:
    """One slice per run, and its arguments; names are interned in the trace.

    ``args`` of the rows are indices into the returned list.
    """
    events = clusters.events
    longest = _longest(clusters, runs)
    args = [
        run_args(count, busy, trace.strings[name])
        for count, busy, name in zip(
            runs.slices.tolist(), runs.busy_ns.tolist(), events.name[longest].tolist(), strict=True
        )
    ]
    start = events.start_ns[clusters.first[runs.first]]
    rows = events.take(longest).with_columns(
        start_ns=start,
        dur_ns=clusters.end[runs.last] - start,
        name=np.array([trace.strings.intern(run_name(n)) for n in runs.slices.tolist()], np.int32),
        graph=np.full(len(runs), -1, np.int32),
        step=np.full(len(runs), -1, np.int32),
        args=np.arange(len(runs), dtype=np.int32),
    )
    return rows, args


def run_name(count: int) -> str:
    """The name of the slice; viewers colour by the name without its digits."""
    return f"({count} small slices)"


def run_args(count: int, busy_ns: int, longest: str) -> bytes:
    """The arguments of the slice."""
    args: dict[str, Any] = {"count": count, "busy_ns": busy_ns, "longest": longest[:NAME_SHOWN]}
    return json.dumps(args, ensure_ascii=False).encode("utf-8", "replace")


def _longest(clusters: Clusters, runs: Runs) -> I64:
    """Row of the longest slice of each run, the first of equal ones."""
    events = clusters.events
    rows = np.flatnonzero(clusters.inside(runs) & clusters.is_slice)
    run = np.searchsorted(runs.first, clusters.of_row[rows], side="right") - 1
    # by run, the longest first, the earliest of equal ones first
    order = np.lexsort((rows, -events.dur_ns[rows], run))
    begins = np.flatnonzero(np.diff(run[order], prepend=-1))
    return rows[order[begins]]


def probe(trace: Trace) -> Trace:
    """One slice per track, as large as that of a run can be: to ask a writer for its cost."""
    events, n = trace.events, len(trace.tracks)
    names = (trace.strings[i] for i in np.unique(events.name).tolist())
    span = int(events.end_ns.max()) - int(events.start_ns.min())
    widest = max((run_args(len(events), span, name) for name in names), key=len)
    args, first_id = trace.args.extended([widest])
    rows = EventTable.filled(
        np.full(n, events.end_ns.max()),
        span,
        track=np.arange(n),
        name=trace.strings.intern(run_name(len(events))),
        op=OpClass.NOT_OVERLAPPED,  # the longest word
        args=first_id,
    )
    return replace(
        trace, events=rows, args=args, counters=CounterTable.empty(), flows=FlowTable.empty()
    )
