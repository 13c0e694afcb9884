"""How the importer builds slices and arrows: a stack of open slices per lane, open flows by id.

Begin and end marks are matched by order alone; names only matter where an end carries one. Slices
of known length (instants, Chrome's complete events) stay on the stack until a later event shows
that they are over.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush

import numpy as np

from traceconv.validation.decoded import (
    I64,
    Argument,
    Arguments,
    Counters,
    Flows,
    Label,
    Rows,
    TrackRow,
    column,
)
from traceconv.validation.rules import Tally

MAX_DEPTH = 512
PENDING = -1
"""Duration of a slice that has not ended."""

NONE, OVERLAP = -1, -2
"""Instead of a row number: no slice was made; it would cross an open one."""


class Lane:
    """One stack of slices.

    Attributes:
        track: number of the track the slices belong to.
        stack: rows of the slices that may still be open, outermost first.
        ended: how many of them have a known end.
    """

    __slots__ = ("ended", "stack", "track")

    def __init__(self, track: int) -> None:
        self.track = track
        self.stack: list[int] = []
        self.ended = 0


class SliceBook:
    """All slices of a trace, as growing columns: one entry per slice; labels by number."""

    def __init__(self, tally: Tally) -> None:
        self.ts, self.dur = array("q"), array("q")
        self.depth, self.track, self.label = array("i"), array("i"), array("i")
        self.labels: list[Label] = []
        self._numbers: dict[Label, int] = {}
        self._tally = tally

    def number(self, name: str | None, category: str | None) -> int:
        """The number of a label, given on first use."""
        known = self._numbers.setdefault((name, category), len(self.labels))
        if known == len(self.labels):
            self.labels.append((name, category))
        return known

    def begin(self, lane: Lane, ts: int, label: int, dur: int = PENDING) -> int:
        """Open a slice, or add one of known length ``dur``; its row, :data:`NONE`, or
        :data:`OVERLAP`.
        """
        if lane.ended and not self._close(lane, ts, dur):
            return OVERLAP
        stack = lane.stack
        depth = len(stack)
        if depth >= MAX_DEPTH:
            self._bad("P16-depth", lane, ts)
            return NONE
        row = len(self.ts)
        self.ts.append(ts)
        self.dur.append(dur)
        self.depth.append(depth)
        self.track.append(lane.track)
        self.label.append(label)
        stack.append(row)
        if dur != PENDING:
            lane.ended += 1
        return row

    def end(self, lane: Lane, ts: int, name: str | None, category: str | None) -> int:
        """Close the innermost open slice that ``name`` and ``category`` allow; its row."""
        if lane.ended:
            self._close(lane, ts, PENDING)
        stack = lane.stack
        if name is None and category is None and stack and self.dur[stack[-1]] == PENDING:
            row = stack.pop()
            self.dur[row] = ts - self.ts[row]
            return row
        at = self._match(stack, name, category)
        if at < 0:
            self._bad("P16-end", lane, ts)
            return NONE
        row = stack[at]
        self.dur[row] = ts - self.ts[row]
        if at == len(stack) - 1:
            stack.pop()
        else:
            lane.ended += 1
            if any(self.dur[inner] == PENDING for inner in stack[at + 1 :]):
                self._bad("P17-crossing", lane, ts)
        return row

    def finish(self, tracks: Sequence[TrackRow], arguments: Arguments) -> Rows:
        """The table, with slices that never ended counted; ``arguments`` reads those of a row."""
        dur = column(self.dur, np.int64)
        for row in np.flatnonzero(dur == PENDING).tolist():
            self._tally.add("P16-open", f"track {self.track[row]} at {self.ts[row]}")
        return Rows(
            ts=column(self.ts, np.int64),
            dur=dur,
            depth=column(self.depth, np.int32),
            track_id=column(self.track, np.int32),
            index=np.arange(len(self.ts), dtype=np.int64),
            label=column(self.label, np.int32),
            labels=self.labels,
            paths=[row.path for row in tracks],
            read_arguments=arguments,
        )

    def _match(self, stack: list[int], name: str | None, category: str | None) -> int:
        for at in range(len(stack) - 1, -1, -1):
            if self.dur[stack[at]] != PENDING:
                continue
            other_name, other_category = self.labels[self.label[stack[at]]]
            if category in (None, other_category) and (
                name in (None, other_name) or other_name is None
            ):
                return at
        return -1

    def _close(self, lane: Lane, ts: int, dur: int) -> bool:
        """Take slices off the stack that are over at ``ts``; False if the new one would cross."""
        stack, pending = lane.stack, False
        for at in range(len(stack) - 1, -1, -1):
            row = stack[at]
            length = self.dur[row]
            if length == PENDING:
                pending = True
                continue
            end = self.ts[row] + length
            if pending:
                if ts > end:
                    self._truncate(lane, at, end)
                    pending = False
            elif end < ts or (end == ts and not (length == 0 and dur == 0)):
                stack.pop()
                lane.ended -= 1
            elif dur != PENDING and ts < end < ts + dur:
                return False
        return True

    def _truncate(self, lane: Lane, at: int, end: int) -> None:
        """Close everything inside the ended slice at ``at`` when that slice ends."""
        inner = lane.stack[at + 1 :]
        lane.ended -= 1 + sum(self.dur[row] != PENDING for row in inner)
        for row in inner:
            self.dur[row] = end - self.ts[row]
        del lane.stack[at:]
        self._bad("P17-misplaced", lane, end)

    def _bad(self, rule: str, lane: Lane, ts: int) -> None:
        self._tally.add(rule, f"track {lane.track} at {ts}")


def arguments_of(
    begins: I64, ends: I64, of_event: Callable[[int, bool], list[Argument]]
) -> Arguments:
    """Reads the arguments of a row: those of the events that began and (unless -1) ended it."""

    def read(row: int, renamed: bool) -> list[Argument]:
        found = of_event(int(begins[row]), renamed)
        if ends[row] >= 0:
            found = found + of_event(int(ends[row]), renamed)
        return list({a.key: a for a in found}.values())

    return read


def samples(
    ts: array[int], value: array[float], track: array[int], numbers: list[int], rows: list[TrackRow]
) -> Counters:
    """Counter samples by time; ``numbers``: by ``track``, the one of ``rows``, -1 to leave out."""
    of = np.array(numbers, np.int32)[column(track, np.int32)]
    times, values = column(ts, np.int64), column(value, np.float64)
    order = np.argsort(times, kind="stable")
    order = order[of[order] >= 0]
    return Counters(times[order], values[order], of[order], [row.path for row in rows])


class LaneSet:
    """Lanes of tracks that are shown as one: a slice is put on a lane where none is open.

    A cookie is whatever the slices of one stack have in common (a track's uuid, an async id).
    """

    def __init__(self, new_track: Callable[[], int]) -> None:
        self._new_track = new_track
        self._lanes: list[Lane] = []
        self._cookies: list[Hashable] = []
        self._nested: list[int] = []
        self._of_cookie: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._queued: set[int] = set()

    def begin(self, cookie: Hashable) -> Lane:
        """The lane a slice with ``cookie`` opens on."""
        at = self._find(cookie)
        self._nested[at] += 1
        return self._lanes[at]

    def end(self, cookie: Hashable) -> Lane:
        """The lane a slice with ``cookie`` ends on."""
        at = self._find(cookie)
        if self._nested[at]:
            self._nested[at] -= 1
        if not self._nested[at] and at not in self._queued:
            self._queued.add(at)
            heappush(self._free, at)
        return self._lanes[at]

    def point(self, cookie: Hashable) -> Lane:
        """The lane of an instant with ``cookie``."""
        self.begin(cookie)
        return self.end(cookie)

    def _find(self, cookie: Hashable) -> int:
        """The lane of ``cookie``, else the first one without open slices, else a new one."""
        known = self._of_cookie.get(cookie)
        if known is not None:
            return known
        while self._free and self._nested[self._free[0]]:
            self._queued.discard(heappop(self._free))
        if self._free:
            at = self._free[0]
            del self._of_cookie[self._cookies[at]]
            self._cookies[at] = cookie
        else:
            at = len(self._lanes)
            self._lanes.append(Lane(self._new_track()))
            self._cookies.append(cookie)
            self._nested.append(0)
        self._of_cookie[cookie] = at
        return at


class SpanLanes:
    """Lanes for slices of known length that come in time order.

    Args:
        nesting: whether a slice may be inside another one on a lane.
    """

    def __init__(self, new_track: Callable[[], int], nesting: bool) -> None:
        self._new_track, self._nesting = new_track, nesting
        self._lanes: list[tuple[Lane, list[int]]] = []

    def place(self, ts: int, dur: int) -> Lane:
        """The first lane on which the slice crosses no other."""
        end = ts + dur
        for lane, open_ends in self._lanes:
            while open_ends and open_ends[-1] <= ts:
                open_ends.pop()
            if not open_ends or (self._nesting and end <= open_ends[-1]):
                open_ends.append(end)
                return lane
        self._lanes.append((Lane(self._new_track()), [end]))
        return self._lanes[-1][0]


class FlowBook:
    """All arrows of a trace. A flow is open from its first slice until it is closed.

    Args:
        ts: start of every slice row; an arrow points from the earlier one to the later one.
    """

    def __init__(self, ts: array[int], tally: Tally) -> None:
        self._ts, self._tally = ts, tally
        self._open: dict[Hashable, tuple[int, bool]] = {}
        self._source, self._target = array("q"), array("q")

    def begin(self, flow: Hashable, row: int) -> bool:
        """Open a flow at ``row``; False if it is open already."""
        if flow in self._open:
            return False
        self._open[flow] = (row, False)
        return True

    def step(self, flow: Hashable, row: int, *stats: str) -> None:
        """Lead an open flow on to ``row``; one that is not open breaks a rule."""
        if (earlier := self._last(flow, row, stats)) is not None:
            self._arrow(earlier, row)
            self._open[flow] = (row, True)

    def end(self, flow: Hashable, row: int, *stats: str, close: bool = False) -> None:
        """Draw the last arrow of an open flow; ``close`` frees its id."""
        if (earlier := self._last(flow, row, stats)) is not None:
            self._arrow(earlier, row)
            self._open[flow] = (earlier, True)
            if close:
                del self._open[flow]

    def draw(self, source: int, target: int) -> None:
        """Connect two rows in the given direction."""
        self._source.append(source)
        self._target.append(target)

    def finish(self) -> Flows:
        """The arrows, in the order they were drawn; flows that led nowhere break a rule."""
        for row, drawn in self._open.values():
            if not drawn:
                self._tally.add("P20-unbound", f"start at {self._ts[row]}")
        return Flows(column(self._source, np.int64), column(self._target, np.int64))

    def _last(self, flow: Hashable, row: int, stats: tuple[str, ...]) -> int | None:
        """The row an open flow reached."""
        if flow not in self._open:
            self._tally.add("P20-unbound", f"end at {self._ts[row]}", *stats)
            return None
        return self._open[flow][0]

    def _arrow(self, a: int, b: int) -> None:
        """Connect two rows, the earlier one first; at equal times ``a`` first."""
        self.draw(*((b, a) if self._ts[a] > self._ts[b] else (a, b)))
