"""Which slice an end of an arrow touches: by lane and time, for many ends at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, I64
from traceconv.readers.shared.trace_events.place import Anchors

Index = NDArray[np.intp]


class Binder:
    """Slices in the order of lanes and times, ready to be asked.

    In a lane they are ordered by start, then longest first: of those that begin at one time, the
    last is the innermost.
    """

    def __init__(self, slices: Anchors) -> None:
        self._scale = _Scale(slices)
        key = self._scale.keys(slices.lane, slices.start)
        order = _ordered(key, slices.dur)
        self._key = key[order]
        self._row = slices.row[order]
        self._end = (slices.start + slices.dur)[order]
        self._lane = slices.lane[order]
        self._tree: list[I64] | None = None

    def rows(self, lane: I32, time: I64, encloses: NDArray[np.bool_]) -> I32:
        """The row each end touches, -1 if there is none.

        It is the (innermost) slice that begins just then; else the innermost around that time,
        its last instant included. Where not ``encloses``, it is the next slice to begin, if any.
        """
        found = np.full(len(lane), -1, np.int32)
        if not len(self._key):
            return found
        key = self._scale.keys(lane, time)
        at = np.searchsorted(self._key, key, side="right") - 1
        exact = (at >= 0) & (self._key[at] == key) & self._scale.hits(time)
        found[exact] = self._row[at[exact]]
        self._next(found, lane, at, ~exact & ~encloses)
        self._around(found, lane, time, at, (found < 0) & (at >= 0))
        return found

    def _next(self, found: I32, lane: I32, at: Index, asked: NDArray[np.bool_]) -> None:
        i = np.flatnonzero(asked & (at + 1 < len(self._key)))
        i = i[self._lane[at[i] + 1] == lane[i]]
        found[i] = self._row[at[i] + 1]

    def _around(
        self, found: I32, lane: I32, time: I64, at: Index, asked: NDArray[np.bool_]
    ) -> None:
        i = np.flatnonzero(asked)
        if len(i):
            where = self._last_reaching(at[i], time[i])
            i, where = i[where >= 0], where[where >= 0]
            mine = self._lane[where] == lane[i]
            found[i[mine]] = self._row[where[mine]]

    def _last_reaching(self, at: Index, time: I64) -> Index:
        """The last position up to ``at`` whose slice ends at ``time`` or later, -1 if none does.

        Goes through a tree of maxima: up from the right edge until a node reaches far enough,
        then down to its last leaf that does.
        """
        tree = self._maxima()
        node, level = at + 1, np.zeros(len(at), np.int8)  # what is left is [0, node << level)
        found = np.zeros(len(at), bool)
        going = np.arange(len(at))
        for height, maxima in enumerate(tree):
            odd = going[(node[going] & 1) == 1]
            hit = odd[maxima[node[odd] - 1] >= time[odd]]
            node[hit] -= 1
            level[hit], found[hit] = height, True
            going = going[~found[going]]
            node[going] >>= 1
            going = going[node[going] > 0]
        for height in range(len(tree) - 1, 0, -1):
            down = np.flatnonzero(found & (level == height))
            right = 2 * node[down] + 1
            maxima = tree[height - 1]
            inside = right < len(maxima)
            reaches = np.zeros(len(down), bool)
            reaches[inside] = maxima[right[inside]] >= time[down[inside]]
            node[down] = np.where(reaches, right, right - 1)
            level[down] = height - 1
        return np.where(found, node, -1)

    def _maxima(self) -> list[I64]:
        """Maxima of ends over 1, 2, 4 ... neighbours."""
        if self._tree is None:
            self._tree = [self._end]
            while len(self._tree[-1]) > 1:
                below = self._tree[-1]
                above = below[::2].copy()
                np.maximum(above[: len(below) // 2], below[1::2], out=above[: len(below) // 2])
                self._tree.append(above)
        return self._tree


class _Scale:
    """Lane and time in one sortable integer, whatever their range."""

    def __init__(self, slices: Anchors) -> None:
        start = slices.start
        self._low = int(start.min()) if len(start) else 0
        self._high = int(start.max()) if len(start) else 0
        lanes = int(slices.lane.max()) + 1 if len(start) else 1
        self._step = self._high - self._low + 3
        self._known: I64 | None = None
        if self._step * (lanes + 1) >= 2**62:  # wild stamps: number them instead
            self._known = np.unique(start)
            self._step = len(self._known) + 2

    def keys(self, lane: I32, time: I64) -> I64:
        """One key per (lane, time); times between two known ones get the key of the earlier."""
        if self._known is not None:
            within = np.searchsorted(self._known, time, side="right")
        else:
            within = np.clip(time, self._low - 1, self._high + 1) - (self._low - 1)
        return lane.astype(np.int64) * self._step + within

    def hits(self, time: I64) -> NDArray[np.bool_]:
        """Whether equal keys mean equal times."""
        if self._known is None:
            return (time >= self._low) & (time <= self._high)
        at = np.searchsorted(self._known, time).clip(max=len(self._known) - 1)
        equal: NDArray[np.bool_] = self._known[at] == time
        return equal


def _ordered(key: I64, dur: I64) -> Index:
    """By key, then longest first, then as given."""
    order = np.argsort(key)
    tied = np.flatnonzero(key[order[1:]] == key[order[:-1]])
    if len(tied):
        rows = np.union1d(tied, tied + 1)
        inner = order[rows]
        order[rows] = inner[np.lexsort((inner, -dur[inner], key[inner]))]
    return order
