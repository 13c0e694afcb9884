"""Chrome JSON traces: what Perfetto's importer (v58.2) makes of one, and which rules it breaks.

Two passes, as for Perfetto traces: text to event columns in file order (:mod:`._jsonevents`), then,
sorted by time, events to slices and arrows. At equal times an end comes first, then complete
events, the longest first, then all others in file order.
"""

from __future__ import annotations

from array import array

import numpy as np

from traceconv.validation.arguments import json_leaves
from traceconv.validation.chrome.events import Id, JsonEvents, JsonShape, read_events
from traceconv.validation.container import Buffer
from traceconv.validation.flows import FlowBook
from traceconv.validation.lenient import Incomplete, LenientError, Span, object_fields
from traceconv.validation.perfetto.decoded import I64, Argument, Counters, Decoded, TrackRow, column
from traceconv.validation.slices import NONE, OVERLAP, Labels, Lane, LaneSet, SliceBook, SpanLanes
from traceconv.validation.tally import Tally

_BLOCK = 1 << 16
_LAST = (1 << 63) - 1
NO_NAME = "[No name]"
"""What the importer calls slices without a name."""


def decode(data: Buffer, label: str, tally: Tally) -> Decoded:
    """Rebuild a trace and count the rules it breaks.

    Args:
        data:  the file, unpacked.
        label: its name, for messages.

    Raises:
        Refused: the importer would refuse the file.
    """
    return _Builder(read_events(data, label, tally), tally).decoded()


class _Builder:
    def __init__(self, events: JsonEvents, tally: Tally) -> None:
        self._events, self._tally = events, tally
        self._shapes = list(events.shapes)
        self._shape = column(events.shape, np.int32)
        self._ts, self._dur = column(events.ts, np.int64), column(events.dur, np.int64)
        self._labels = Labels()
        self._book = SliceBook(tally, "J16", self._labels)
        self._flows = FlowBook(self._book.ts)
        self._tracks: list[TrackRow] = []
        self._threads: dict[tuple[Id, Id], Lane] = {}
        self._spills: dict[tuple[Id, Id], SpanLanes] = {}
        self._points: dict[object, Lane] = {}
        self._async: dict[object, tuple[LaneSet, int]] = {}
        self._sets: dict[object, LaneSet] = {}
        self._cookies = list(events.async_ids)
        self._waiting: dict[int, list[object]] = {}
        self._names = _named(events)

    def decoded(self) -> Decoded:
        """Everything, in the importer's order."""
        order = self._in_order()
        row_of, end_of = self._replay(order)
        self._book.finish()
        self._judge_flows()
        begins = order[row_of >= 0]
        ends = np.full(len(begins), -1, np.int64)
        ends[end_of[end_of >= 0]] = order[end_of >= 0]
        phases = np.array([s.phase in "iIRn" for s in self._shapes], np.bool_)
        counters = self._counters()
        return Decoded(
            "chrome_json",
            self._book.rows(self._tracks, _ArgumentReader(self._events, begins, ends)),
            phases[self._shape[begins]],
            counters,
            self._flows.flows(),
            self._tracks,
            self._tally.stats,
            dict(self._events.metadata),
        )

    def _in_order(self) -> I64:
        kinds = np.array(["EX".find(s.phase) for s in self._shapes], np.int8)[self._shape]
        if not (kinds == 1).any():
            return np.argsort(self._ts, kind="stable")
        key = np.full(len(kinds), _LAST, np.int64)
        key[kinds == 0] = -_LAST
        complete = kinds == 1
        key[complete] = _LAST - np.maximum(self._dur[complete], 0)
        return np.lexsort((key, self._ts))

    # -- events --------------------------------------------------------------------------------

    def _replay(self, order: I64) -> tuple[I64, I64]:
        """Every event in that order; the row each began, and the row each ended."""
        begun, ended = array("q"), array("q")
        extras = column(self._events.extra, np.int64)
        names = [self._labels.number((s.name or NO_NAME, s.category)) for s in self._shapes]
        bare = [self._labels.number((s.name, s.category)) for s in self._shapes]
        for start in range(0, len(order), _BLOCK):
            block = order[start : start + _BLOCK]
            columns = (self._ts[block], self._dur[block], self._shape[block], extras[block])
            for ts, dur, s, extra in zip(*(c.tolist() for c in columns), strict=True):
                shape = self._shapes[s]
                phase, row, end = shape.phase, NONE, NONE
                if phase == "X":
                    row = self._complete(shape, ts, dur, names[s], extra)
                elif phase == "B":
                    lane = self._thread(shape)
                    row = self._begin(lane, ts, names[s])
                    self._bind(lane, extra)
                elif phase == "E":
                    end = self._book.end(self._thread(shape), ts, shape.name, shape.category)
                elif phase in "bne":
                    row, end = self._asynchronous(shape, ts, names[s], bare[s], extra)
                elif phase in "stf":
                    self._flow(shape, extra)
                else:
                    row = self._instant(shape, ts, names[s], bare[s])
                begun.append(row)
                ended.append(end)
        return column(begun, np.int64), column(ended, np.int64)

    def _begin(self, lane: Lane, ts: int, label: int, dur: int = -1) -> int:
        """Start a slice; arrows that wait for one on this track end at it."""
        row = self._book.begin(lane, ts, label, dur)
        if row >= 0 and lane.track in self._waiting:
            for flow in self._waiting.pop(lane.track):
                if self._flows.is_open(flow):
                    self._flows.end(flow, row, close=False)
                else:
                    self._tally.add("J16-flow-end", f"flow to {ts}")
        return row

    def _complete(self, shape: JsonShape, ts: int, dur: int, label: int, extra: int) -> int:
        if dur < 0:
            self._tally.add("J16-negative-dur", f"{shape.name} at {ts}")
            return NONE
        lane = self._thread(shape)
        row = self._begin(lane, ts, label, dur)
        if row == OVERLAP:
            self._tally.add("J16-overlap", f"{shape.name} at {ts}, tid {shape.tid}")
            lane = self._spill(shape, ts, dur)
            row = self._begin(lane, ts, label, dur)
        self._bind(lane, extra)
        return row

    def _instant(self, shape: JsonShape, ts: int, label: int, bare: int) -> int:
        if (shape.scope == "p" and not shape.has_pid) or (not shape.scope and not shape.has_tid):
            self._tally.add("J16-instant", f"{shape.name} at {ts}")
            return NONE
        if not shape.scope:
            return self._begin(self._thread(shape), ts, label, 0)
        key = shape.pid if shape.scope == "p" else None
        if key not in self._points:
            self._points[key] = Lane(self._point(key))
        return self._begin(self._points[key], ts, bare, 0)

    def _asynchronous(
        self, shape: JsonShape, ts: int, label: int, bare: int, extra: int
    ) -> tuple[int, int]:
        lanes, cookie = self._async_lanes(shape, extra)
        if shape.phase == "b":
            return self._begin(lanes.begin(cookie), ts, label), NONE
        if shape.phase == "n":
            return self._begin(lanes.point(cookie), ts, bare, 0), NONE
        return NONE, self._book.end(lanes.end(cookie), ts, shape.name, shape.category)

    def _async_lanes(self, shape: JsonShape, extra: int) -> tuple[LaneSet, int]:
        """Rows of asynchronous events: one group per name of the first event of an id."""
        if extra not in self._async:
            local, name = self._cookies[extra][0] == "local", shape.name or ""
            group = (shape.pid if local else None, name)
            row = TrackRow((name,), "legacy_async_global_slice", name)
            if local:
                path = (self._process(shape.pid), name)
                row = TrackRow(path, "legacy_async_process_slice", name, shape.pid)
            lanes = self._sets.setdefault(group, LaneSet(lambda: self._add(row)))
            self._async[extra] = (lanes, extra)
        return self._async[extra]

    # -- arrows --------------------------------------------------------------------------------

    def _flow(self, shape: JsonShape, extra: int) -> None:
        lane, flow = self._thread(shape), ("id", extra)
        if shape.phase == "f" and shape.scope != "e":
            self._waiting.setdefault(lane.track, []).append(flow)
            return
        self._advance(lane, flow, shape.phase)

    def _advance(self, lane: Lane, flow: object, phase: str) -> None:
        """Start (s), continue (t) or end (f) a flow at the innermost slice of a lane."""
        if not lane.stack:
            self._tally.add("J16-flow-slice", f"track {lane.track}")
            return
        row = lane.stack[-1]
        if phase == "s":
            if not self._flows.begin(flow, row):
                self._tally.add("J16-flow-twice", f"at {self._book.ts[row]}")
        elif not self._flows.is_open(flow):
            rule = "J16-flow-step" if phase == "t" else "J16-flow-end"
            self._tally.add(rule, f"at {self._book.ts[row]}")
        elif phase == "t":
            self._flows.step(flow, row)
        else:
            self._flows.end(flow, row, close=False)

    def _bind(self, lane: Lane, extra: int) -> None:
        """A flow of version 2: the event names it itself."""
        if extra < 0:
            return
        bind = self._events.binds[extra]
        if not bind.inward and not bind.outward:
            self._tally.add("J16-flow-direction", f"bind_id {bind.flow}")
            return
        phase = "t" if bind.inward and bind.outward else "s" if bind.outward else "f"
        self._advance(lane, ("bind", bind.flow), phase)

    def _judge_flows(self) -> None:
        for flow in self._flows.unused():
            self._tally.add("J16-flow-single", f"flow {flow}")
        for track, flows in self._waiting.items():
            self._tally.add("J16-flow-pending", f"track {track}", len(flows))

    # -- tracks --------------------------------------------------------------------------------

    def _thread(self, shape: JsonShape) -> Lane:
        key = (shape.pid, shape.tid)
        lane = self._threads.get(key)
        if lane is None:
            lane = self._threads[key] = Lane(self._on_thread(key, "thread_execution"))
        return lane

    def _spill(self, shape: JsonShape, ts: int, dur: int) -> Lane:
        key = (shape.pid, shape.tid)
        if key not in self._spills:
            self._spills[key] = SpanLanes(
                lambda: self._on_thread(key, "thread_overlapping_slice"), nesting=True
            )
        return self._spills[key].place(ts, dur)

    def _point(self, pid: Id | None) -> int:
        if pid is None:
            return self._add(TrackRow(("",), "legacy_chrome_global_instants"))
        return self._add(TrackRow((self._process(pid),), "chrome_process_instant", pid=pid))

    def _on_thread(self, key: tuple[Id, Id], type: str) -> int:
        pid, tid = key
        title = self._names.get(key) or (tid if isinstance(tid, str) else f"tid {tid}")
        return self._add(TrackRow((self._process(pid), title), type, "", pid, tid))

    def _process(self, pid: Id) -> str:
        return self._names.get((pid, None)) or (pid if isinstance(pid, str) else f"pid {pid}")

    def _add(self, row: TrackRow) -> int:
        self._tracks.append(row)
        return len(self._tracks) - 1

    def _counters(self) -> Counters:
        events = self._events
        numbers = np.array(
            [
                self._add(TrackRow((self._process(pid), name), "process_counter", name, pid))
                for pid, name in events.counter_tracks
            ],
            np.int32,
        )
        ts, value = column(events.counter_ts, np.int64), column(events.counter_value, np.float64)
        order = np.argsort(ts, kind="stable")
        track = numbers[column(events.counter_track, np.int32)[order]]
        paths = [row.path for row in self._tracks]
        return Counters(ts[order], value[order], track, paths)


def _named(events: JsonEvents) -> dict[tuple[Id, Id | None], str]:
    """Names of processes (tid None) and threads: the last one in time counts."""
    latest = sorted(events.names, key=lambda n: n[0])
    return {(pid, tid): name for _, pid, tid, name in latest}


class _ArgumentReader:
    """Reads the arguments of a row from the file when asked."""

    def __init__(self, events: JsonEvents, begins: I64, ends: I64) -> None:
        self._events, self._begins, self._ends = events, begins, ends

    def __call__(self, row: int, renamed: bool) -> list[Argument]:
        found = self._of_event(int(self._begins[row]))
        if self._ends[row] >= 0:
            found = found + self._of_event(int(self._ends[row]))
        return list({a.key: a for a in found}.values())

    def _of_event(self, event: int) -> list[Argument]:
        window, at = self._events.text.at(self._events.place[event])
        args = None
        try:
            for key, content, _ in object_fields(window, at):
                if key == "args":
                    args = content
        except (LenientError, Incomplete, IndexError):
            return []
        if not isinstance(args, Span):
            return []
        return json_leaves(window[args.start : args.end], "args")[0]
