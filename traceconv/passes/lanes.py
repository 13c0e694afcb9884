"""Move slices that cross to sub-lanes, so that the slices of every track nest.

A viewer draws one stack of slices per track and silently bends slices that cross. A slice fits a
lane if the lane's innermost open slice contains it, or if none is open there. Nothing is dropped.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import looked_up
from traceconv.core.model import I64, Trace, Track, arranged
from traceconv.native import first_fit

MAX_DEPTH = 500
"""Deeper slices are moved to the next lane (viewers stop drawing at 512)."""

FIRST_FIT = 32
"""Lanes in which slices may nest. Of further ones only the one taken last nests, so that even
thousands of slices crossing each other take n log n steps."""


def lanes(trace: Trace) -> Trace:
    """Every track nests; tracks without rows are removed; ``Track.lane`` numbers the sub-lanes.

    Lanes of an earlier layout are joined first, so laying out twice is laying out once.
    Issues: nested-deep.
    """
    if any(track.lane for track in trace.tracks):
        trace = arranged(
            replace(trace, tracks=tuple(msgspec.structs.replace(t, lane=0) for t in trace.tracks))
        )
    rows = _suspects(trace)
    if len(rows):
        placed, deep = _lanes_of(*_on_one_line(trace, rows))
        trace = _on_own_lanes(trace.with_issue("nested-deep", count=deep), rows, placed)
    return _without_empty(trace)


def _suspects(trace: Trace) -> NDArray[np.intp]:
    """All rows of the tracks on which some slice begins before the one above it has ended."""
    events = trace.events
    same_track = events.track[1:] == events.track[:-1]
    early = same_track & (events.start_ns[1:] < events.end_ns[:-1])
    if not early.any():
        return np.empty(0, np.intp)
    suspect = np.zeros(len(trace.tracks), bool)
    suspect[events.track[1:][early]] = True
    return np.flatnonzero(looked_up(suspect, events.track))


def _on_one_line(trace: Trace, rows: NDArray[np.intp]) -> tuple[I64, I64]:
    """Starts and ends of ``rows`` with the tracks put one after the other in time, so that one pass
    over all of them never compares slices of two tracks."""
    events = trace.events
    track, start = events.track.take(rows), events.start_ns.take(rows)
    end = start + events.dur_ns.take(rows)
    turn = np.cumsum(np.append(False, track[1:] != track[:-1]), dtype=np.int64)
    low = int(start.min())
    length = int(end.max()) - low + 1
    if length * (int(turn[-1]) + 1) < 2**62:
        turn *= length
        turn -= low
        start += turn
        end += turn
        return start, end
    # too long for int64: times of equal order, as small as can be
    times, order = np.unique(np.append(start, end), return_inverse=True)
    line = order.reshape(2, -1) + turn * len(times)
    return line[0], line[1]


def _lanes_of(start: I64, end: I64) -> tuple[NDArray[np.int32], int]:
    """The lane of each row, and how many rows are too deep for the lane they would fit.

    Rows are sorted by (start, -end).
    """
    if compiled := first_fit():
        placed, deep = compiled(
            np.ascontiguousarray(start), np.ascontiguousarray(end), MAX_DEPTH, FIRST_FIT
        )
        return np.frombuffer(placed, np.int32), deep
    lane, deep = _greedy(start.tolist(), end.tolist())
    return np.array(lane, np.int32), deep


def _greedy(starts: Sequence[int], ends: Sequence[int]) -> tuple[list[int], int]:
    """The first lane that each slice fits into; slices are sorted by (start, -end)."""
    open_ends: list[list[int]] = [[]]  # of each lane that nests, innermost last
    free_at: list[tuple[int, int]] = []  # of the others: (end, lane), a heap
    last: list[int] = []  # the open ends of the one taken last
    last_lane, places, deep = 0, [], 0
    for start, end in zip(starts, ends, strict=True):
        lane, full = 0, False
        for stack in open_ends:
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or end <= stack[-1]:
                if len(stack) < MAX_DEPTH:
                    stack.append(end)
                    break
                full = True
            lane += 1
        else:
            while last and last[-1] <= start:
                last.pop()
            if len(open_ends) < FIRST_FIT:
                open_ends.append([end])
            elif last and end <= last[-1] and len(last) < MAX_DEPTH:
                last.append(end)
                lane = last_lane
            else:
                if free_at and free_at[0][0] <= start:
                    lane = free_at[0][1]
                    heapq.heapreplace(free_at, (end, lane))
                else:
                    lane = FIRST_FIT + len(free_at)
                    heapq.heappush(free_at, (end, lane))
                last, last_lane = [end], lane
        places.append(lane)
        deep += full
    return places, deep


def _on_own_lanes(trace: Trace, rows: NDArray[np.intp], lane: NDArray[np.int32]) -> Trace:
    """Move the rows with a lane other than 0 to separate tracks."""
    moving = rows[lane > 0]
    if not len(moving):
        return trace
    old = trace.events.track
    lanes = int(lane.max()) + 1
    key = old[moving] * np.int64(lanes) + lane[lane > 0]  # one number per (track, lane)
    needed, lane_of = np.unique(key, return_inverse=True)
    extra: list[Track] = [
        msgspec.structs.replace(trace.tracks[k // lanes], lane=k % lanes) for k in needed.tolist()
    ]
    track = old.copy()
    track[moving] = len(trace.tracks) + lane_of.astype(np.int32)
    events = trace.events.with_columns(track=track)
    return arranged(replace(trace, tracks=(*trace.tracks, *extra), events=events), in_time=True)


def _without_empty(trace: Trace) -> Trace:
    used = trace.used
    if used.all():
        return trace
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return replace(
        trace,
        tracks=tuple(t for t, needed in zip(trace.tracks, used.tolist(), strict=True) if needed),
        events=trace.events.with_columns(track=looked_up(number, trace.events.track)),
        counters=trace.counters.with_columns(track=looked_up(number, trace.counters.track)),
    )
