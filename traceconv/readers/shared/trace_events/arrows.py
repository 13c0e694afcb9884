"""Flows: their ends bound to slices by lane and time, joined to each other, and drawn."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import BACKWARDS, I32, I64
from traceconv.readers.shared.trace_events.contract import Skipped
from traceconv.readers.shared.trace_events.placing import Anchors, LaneCodes, Lanes, Texts
from traceconv.readers.shared.trace_events.tables import Flows, Tables

Index = NDArray[np.intp]


class Binder:
    """Finds the slice that an end of a flow touches, for many ends at once.

    Slices are kept in the order of lanes and times.

    In a lane they are ordered by start, then longest first: the last slice that begins at a
    time is the innermost.

    Args:
        points: what ends touch that are at their very time, where no slice begins just then:
            instants, and asynchronous slices that carry the ends themselves.
    """

    def __init__(self, slices: Anchors, points: Anchors | None = None) -> None:
        self._points = Binder(points) if points is not None and len(points.lane) else None
        self._scale = _Scale(slices)
        key = self._scale.keys(slices.lane, slices.start)
        order: Index = np.lexsort((-slices.dur, key))  # at one time, the longest first
        self._key = key.take(order)
        del key
        self._lane, self._row = slices.lane.take(order), slices.row.take(order)
        self._end = (slices.start + slices.dur).take(order)
        self._tree: list[I64] | None = None

    @property
    def lanes(self) -> I32:
        """The lanes that have slices, ascending."""
        return np.unique(self._lane)

    def rows(self, lane: I32, time: I64, encloses: NDArray[np.bool_]) -> I32:
        """The row each end touches, or -1.

        It is the (innermost) slice that begins just then; else a point; else the innermost slice
        around that time, its last instant included. Where not ``encloses``, it is the next slice to
        begin, if any, before one around.
        """
        touched, last_begun = self._beginning(lane, time)
        if self._points is not None:
            missing = np.flatnonzero(touched < 0)
            touched[missing], _ = self._points._beginning(lane[missing], time[missing])
        if len(self._key):
            i = np.flatnonzero((touched < 0) & ~encloses & (last_begun + 1 < len(self._key)))
            i = i[self._lane[last_begun[i] + 1] == lane[i]]
            touched[i] = self._row[last_begun[i] + 1]
            self._fill_enclosing(touched, lane, time, last_begun, (touched < 0) & (last_begun >= 0))
        return touched

    def _beginning(self, lane: I32, time: I64) -> tuple[I32, Index]:
        """The row that begins at each time, -1 if none does, and the last position not after it."""
        beginning = np.full(len(lane), -1, np.int32)
        if not len(self._key):
            return beginning, np.full(len(lane), -1, np.intp)
        key = self._scale.keys(lane, time)
        last_begun = np.searchsorted(self._key, key, side="right") - 1
        exact = (last_begun >= 0) & (self._key[last_begun] == key) & self._scale.hits(time)
        beginning[exact] = self._row[last_begun[exact]]
        return beginning, last_begun

    def _fill_enclosing(
        self, touched: I32, lane: I32, time: I64, at: Index, is_open: NDArray[np.bool_]
    ) -> None:
        i = np.flatnonzero(is_open)
        if len(i):
            where = self._last_reaching(at[i], time[i])
            i, where = i[where >= 0], where[where >= 0]
            in_lane = self._lane[where] == lane[i]
            touched[i[in_lane]] = self._row[where[in_lane]]

    def _last_reaching(self, at: Index, time: I64) -> Index:
        """The last position up to ``at`` whose slice ends at ``time`` or later, -1 if none does.

        Goes through a tree of maxima: up from the right edge until a node reaches far enough,
        then down to its last leaf that does.
        """
        tree = self._maxima()
        # the range still to search is [0, node << level)
        node, level = at + 1, np.zeros(len(at), np.int8)
        is_found = np.zeros(len(at), bool)
        going = np.arange(len(at))
        for height, maxima in enumerate(tree):
            odd = going[(node[going] & 1) == 1]
            hit = odd[maxima[node[odd] - 1] >= time[odd]]
            node[hit] -= 1
            level[hit], is_found[hit] = height, True
            going = going[~is_found[going]]
            node[going] >>= 1
            going = going[node[going] > 0]
        for height in range(len(tree) - 1, 0, -1):
            down = np.flatnonzero(is_found & (level == height))
            right = 2 * node[down] + 1
            maxima = tree[height - 1]
            inside = right < len(maxima)
            reaches = np.zeros(len(down), bool)
            reaches[inside] = maxima[right[inside]] >= time[down[inside]]
            node[down] = np.where(reaches, right, right - 1)
            level[down] = height - 1
        return np.where(is_found, node, -1)

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

    def keys(self, lane: LaneCodes, time: I64) -> I64:
        """One key per (lane, time); times between two known ones get the key of the earlier."""
        if self._known is not None:
            within = np.searchsorted(self._known, time, side="right")
        else:
            within = np.clip(time, self._low - 1, self._high + 1)
            within -= self._low - 1
        within += lane.astype(np.int64) * self._step
        return within

    def hits(self, time: I64) -> NDArray[np.bool_]:
        """Whether equal keys mean equal times."""
        if self._known is None:
            return (time >= self._low) & (time <= self._high)
        positions = np.searchsorted(self._known, time).clip(max=len(self._known) - 1)
        equal: NDArray[np.bool_] = self._known[positions] == time
        return equal


_DIGITS = "0123456789"
_BEFORE_DIGITS = " \t\n\r_:#-"
_START, _STEP, _FINISH = 0, 1, 2
_STAGES = {"s": _START, "t": _STEP, "f": _FINISH}


def joined(key: NDArray[np.int64], stage: NDArray[np.int8], start: NDArray[np.int64]) -> I32:
    """For every end, the end its flow comes from, or -1 (as for every start).

    Ends of one key belong together. Every step and finish is the head of a flow from the start
    or step before it, in time; if none precedes it, from the first start (clocks of host and
    device may differ a little). One start may have many finishes.
    """
    if not len(key):
        return np.empty(0, np.int32)
    order = np.lexsort((stage, start, key))
    key, stage = key[order], stage[order]
    n = len(order)
    new = np.append(True, key[1:] != key[:-1])
    # the last start or step before each end, by a running maximum that must not leave the key
    begin = np.maximum.accumulate(np.where(new, np.arange(n), 0))
    open_ = np.where(stage != _FINISH, np.arange(n), -1)
    before = np.append(-1, np.maximum.accumulate(open_)[:-1])
    before = np.where(before >= begin, before, -1)
    # the first start of each key, for ends without an earlier one
    of_key = np.cumsum(new) - 1
    first_start = np.full(int(of_key[-1]) + 1, n)
    starts = np.flatnonzero(stage == _START)
    np.minimum.at(first_start, of_key[starts], starts)
    first_start = np.where(first_start < n, first_start, -1)[of_key]
    from_ = np.where(stage == _START, -1, np.where(before >= 0, before, first_start))
    tail = np.empty(n, np.int32)
    tail[order] = np.where(from_ >= 0, order[from_], -1)
    return tail


class Arrows(msgspec.Struct):
    """Draws the flows of a file. Ends in lanes the reader leaves out are booked as it says."""

    tables: Tables
    lanes: Lanes
    texts: Texts
    build: TraceBuilder

    def draw(self, flows: Flows, binder: Binder) -> None:
        """Join, bind and add all flows.

        Args:
            flows: ends of lanes that concern this capture.
        """
        if not len(flows):
            return
        stage = self._stages().take(flows.shape)
        tail = joined(flows.key, stage, flows.start)
        flows.key = np.empty(0, np.int64)
        if all(self.tables.shapes.category[code] for code in np.unique(flows.shape).tolist()):
            flows.name = np.empty(0, np.int32)  # see _names
        head = np.flatnonzero(stage != _START)
        used = np.zeros(len(flows), bool)
        used[tail[head][tail[head] >= 0]] = True
        lonely = np.flatnonzero((stage == _START) & ~used)
        self.tables.tally.saw("flow", len(head) + len(lonely))
        skipped = []  # per shape; without a code for those that are drawn
        for code, phase in enumerate(self.tables.shapes.phase):
            placed = self.lanes.place(code) if phase in _STAGES else None
            skipped.append(placed if isinstance(placed, Skipped) else Skipped(""))
        head = self._book_skipped(flows, head, tail, skipped)
        lonely = self._book_skipped(flows, lonely, tail, skipped)
        has_tail = tail[head] >= 0
        self._lose("flow-without-end", flows, np.concatenate((lonely, head[~has_tail])))
        ends: I32 = head[has_tail].astype(np.int32)
        tail = tail[ends]
        del stage, used, lonely, has_tail, head  # binding is where most memory is in use
        self._bind(flows, ends, tail, binder)

    def _stages(self) -> NDArray[np.int8]:
        phases = self.tables.shapes.phase
        return np.array([_STAGES.get(phase, -1) for phase in phases], np.int8)

    def _book_skipped(self, flows: Flows, ends: Index, tail: I32, why: list[Skipped]) -> Index:
        """The flows that keep both ends."""
        codes = [skipped_lane.code for skipped_lane in why]
        if not any(codes):
            return ends
        skipped, between = (
            np.array(c, bool) for c in (codes, [skipped_lane.between for skipped_lane in why])
        )
        near, far = flows.shape[ends], flows.shape[tail[ends]]  # ``far`` says nothing if not whole
        has_tail = tail[ends] >= 0
        inner = has_tail & between[near] & between[far]
        near_skipped, far_skipped = skipped[near] & ~inner, has_tail & skipped[far] & ~inner
        for skipped_shapes in (
            flows.shape[ends[near_skipped]],
            flows.shape[tail[ends[far_skipped & ~near_skipped]]],
        ):
            self._book(skipped_shapes, codes)
        drawn: Index = ends[~near_skipped & ~far_skipped]
        return drawn

    def _book(self, shape: I32, codes: list[str]) -> None:
        for code, count in zip(*np.unique(shape, return_counts=True), strict=True):
            where = self.tables.shapes.place(int(code))
            self.tables.tally.add(codes[code], where, count, "flow")

    def _lose(self, code: str, flows: Flows, ends: Index) -> None:
        self._book(flows.shape[ends], [code] * len(self.tables.shapes.phase))

    def _bind(self, flows: Flows, head: I32, tail: I32, binder: Binder) -> None:
        lane = self.tables.shapes.lane
        encloses = flows.encloses | (self._stages() != _FINISH).take(flows.shape)
        row = binder.rows(lane.take(flows.shape), flows.start, encloses)
        drawn = (row[head] >= 0) & (row[tail] >= 0)
        loose = np.where(row[head] < 0, head, tail)[~drawn]
        recorded = np.isin(lane[flows.shape[loose]], binder.lanes)
        self._lose("flow-without-end", flows, loose[~recorded])
        self._lose("flow-unbound", flows, loose[recorded])
        head, tail = head[drawn], tail[drawn]
        if len(head):
            names = self._names(flows, head)
            backwards = [c.endswith(BACKWARDS) for c in self.tables.shapes.category]
            back = np.array(backwards, bool)[flows.shape[head]]
            tail, head = np.where(back, head, tail), np.where(back, tail, head)
            self.build.flows(src=row[tail], dst=row[head], name=names)

    def _names(self, flows: Flows, head: I32) -> I32:
        """What flows are called: their category, else their name without its number."""
        shapes, shape = self.tables.shapes, flows.shape.take(head)
        ids = np.full(len(shapes.phase), -1, np.int32)
        for code in np.unique(shape).tolist():
            if shapes.category[code]:
                ids[code] = self.build.string(shapes.category[code].removesuffix(BACKWARDS))
        name_ids = ids.take(shape)
        for i in np.flatnonzero(name_ids < 0).tolist():
            text = self.texts.text(int(flows.name[head[i]]))
            name_ids[i] = self.build.string(_unnumbered(text))
        return name_ids


def _unnumbered(text: str) -> str:
    """A name without the number at its end; one that is a number stays."""
    base = text.rstrip(_DIGITS)
    return (base.rstrip(_BEFORE_DIGITS) if base != text else base) or text
