"""Chrome JSON traces: what Perfetto's importer (v58.2) makes of one, and which rules it breaks.

The second pass: events, sorted by time, become slices and arrows. At equal times an end comes
first, then complete events, the longest first, then all others in file order.
"""

from __future__ import annotations

from array import array

import numpy as np
from traceconv.validation.decoded import I64, Argument, Counters, Decoded, TrackRow, column
from traceconv.validation.lenient import LenientError, Span, items, json_leaves
from traceconv.validation.slices import (
    NONE,
    OVERLAP,
    FlowBook,
    Lane,
    LaneSet,
    SliceBook,
    SpanLanes,
    arguments_of,
    samples,
)

from traceconv.core.source import Progress
from traceconv.validation.chrome.reading import NO_DURATION, Events, Id, Shape
from traceconv.validation.container import Buffer, unheard
from traceconv.validation.rules import Tally

_BLOCK = 1 << 16
NO_NAME = "[No name]"
"""What the importer calls slices without a name."""


def decode(data: Buffer, label: str, tally: Tally, advance: Progress = unheard) -> Decoded:
    """Rebuild a trace and count the rules it breaks.

    Args:
        data:  the file, unpacked.
        label: its name, for messages.
        advance: told of bytes that were read.

    Raises:
        Refused: the importer would refuse the file.
    """
    return _Builder(Events(data, label, tally, advance), tally).decoded()


class _Builder:
    def __init__(self, events: Events, tally: Tally) -> None:
        self._events, self._tally = events, tally
        self._shapes = list(events.shapes)
        self._shape = column(events.shape, np.int32)
        self._ts, self._dur = column(events.ts, np.int64), column(events.dur, np.int64)
        self._book = SliceBook(tally)
        self._flows = FlowBook(self._book.ts, tally)
        self._tracks: list[TrackRow] = []
        self._threads: dict[tuple[Id, Id], Lane] = {}
        self._spills: dict[tuple[Id, Id], SpanLanes] = {}
        self._points: dict[Id | None, Lane] = {}
        self._async: dict[int, LaneSet] = {}
        self._sets: dict[object, LaneSet] = {}
        self._cookies = list(events.async_ids)
        self._waiting: dict[int, list[object]] = {}
        latest = sorted(events.names, key=lambda n: n[0])  # the last name in time counts
        self._names = {(pid, tid): name for _, pid, tid, name in latest}

    def decoded(self) -> Decoded:
        """Everything, in the importer's order."""
        order = self._in_order()
        row_of, end_of = self._replay(order)
        for flows in self._waiting.values():
            self._tally.add("P20-unbound", "an end that waits for a slice", count=len(flows))
        begins = order[row_of >= 0]
        ends = np.full(len(begins), -1, np.int64)
        ends[end_of[end_of >= 0]] = order[end_of >= 0]
        points = np.array([s.phase in "iIRn" for s in self._shapes], np.bool_)
        counters = self._counters()
        return Decoded(
            "chrome_json",
            self._book.finish(self._tracks, arguments_of(begins, ends, self._arguments)),
            points[self._shape[begins]],
            counters,
            self._flows.finish(),
            self._tracks,
            self._tally.stats,
            self._events.reader.metadata,
        )

    def _in_order(self) -> I64:
        kinds = np.array(["EX".find(s.phase) for s in self._shapes], np.int8)[self._shape]
        key = np.full(len(kinds), NO_DURATION, np.int64)
        key[kinds == 0] = -NO_DURATION
        complete = kinds == 1
        key[complete] = NO_DURATION - np.maximum(self._dur[complete], 0)
        return np.lexsort((key, self._ts))

    # -- events --------------------------------------------------------------------------------

    def _replay(self, order: I64) -> tuple[I64, I64]:
        """Every event in that order; the row each began, and the row each ended."""
        begun, ended, number = array("q"), array("q"), self._book.number
        extras = column(self._events.extra, np.int64)
        names = [number(s.name or NO_NAME, s.category) for s in self._shapes]
        bare = [number(s.name, s.category) for s in self._shapes]
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
                elif phase == "b":
                    row = self._begin(self._lanes(shape, extra).begin(extra), ts, names[s])
                elif phase == "n":
                    row = self._begin(self._lanes(shape, extra).point(extra), ts, bare[s], 0)
                elif phase == "e":
                    lane = self._lanes(shape, extra).end(extra)
                    end = self._book.end(lane, ts, shape.name, shape.category)
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
                self._flows.end(flow, row, "flow_end_without_start")
        return row

    def _complete(self, shape: Shape, ts: int, dur: int, label: int, extra: int) -> int:
        if dur < 0:
            where = f"{shape.name} at {ts}: a negative duration"
            self._tally.add("J16-event", where, "slice_negative_duration")
            return NONE
        lane = self._thread(shape)
        row = self._begin(lane, ts, label, dur)
        if row == OVERLAP:
            self._tally.add("J16-overlap", f"{shape.name} at {ts}, tid {shape.tid}")
            key = (shape.pid, shape.tid)
            if key not in self._spills:
                self._spills[key] = SpanLanes(
                    lambda: self._on_thread(key, "thread_overlapping_slice"), nesting=True
                )
            lane = self._spills[key].place(ts, dur)
            row = self._begin(lane, ts, label, dur)
        self._bind(lane, extra)
        return row

    def _instant(self, shape: Shape, ts: int, label: int, bare: int) -> int:
        if not (shape.has_pid if shape.scope == "p" else shape.scope or shape.has_tid):
            where = f"{shape.name} at {ts}: no pid or tid"
            self._tally.add("J16-event", where, "json_parser_failure")
            return NONE
        if not shape.scope:
            return self._begin(self._thread(shape), ts, label, 0)
        key = shape.pid if shape.scope == "p" else None
        if key not in self._points:
            row = TrackRow(("",), "legacy_chrome_global_instants")
            if key is not None:
                row = TrackRow((self._process(key),), "chrome_process_instant", pid=key)
            self._points[key] = Lane(self._add(row))
        return self._begin(self._points[key], ts, bare, 0)

    def _lanes(self, shape: Shape, extra: int) -> LaneSet:
        """Rows of asynchronous events: one group per name of the first event of an id."""
        if extra not in self._async:
            local, name = self._cookies[extra][0] == "local", shape.name or ""
            row = TrackRow((name,), "legacy_async_global_slice", name)
            if local:
                path = (self._process(shape.pid), name)
                row = TrackRow(path, "legacy_async_process_slice", name, shape.pid)
            group = (shape.pid if local else None, name)
            self._async[extra] = self._sets.setdefault(group, LaneSet(lambda: self._add(row)))
        return self._async[extra]

    # -- arrows --------------------------------------------------------------------------------

    def _flow(self, shape: Shape, extra: int) -> None:
        lane, flow = self._thread(shape), ("id", extra)
        if shape.phase == "f" and shape.scope != "e":
            self._waiting.setdefault(lane.track, []).append(flow)
        else:
            self._advance(lane, flow, shape.phase)

    def _bind(self, lane: Lane, extra: int) -> None:
        """A flow of version 2: the event names it itself."""
        if extra < 0:
            return
        flow, inward, outward = self._events.binds[extra]
        if inward or outward:
            phase = "f" if not outward else "t" if inward else "s"
            self._advance(lane, ("bind", flow), phase)
        else:
            where = f"bind_id {flow}: no direction"
            self._tally.add("J16-flow", where, "flow_without_direction")

    def _advance(self, lane: Lane, flow: object, phase: str) -> None:
        """Start (s), continue (t) or end (f) a flow at the innermost slice of a lane."""
        if not lane.stack:
            where = f"track {lane.track}: inside no slice"
            self._tally.add("J16-flow", where, "flow_no_enclosing_slice")
            return
        row = lane.stack[-1]
        if phase == "t":
            self._flows.step(flow, row, "flow_step_without_start")
        elif phase == "f":
            self._flows.end(flow, row, "flow_end_without_start")
        elif not self._flows.begin(flow, row):
            where = f"a second start at {self._book.ts[row]}"
            self._tally.add("J16-flow", where, "flow_duplicate_id")

    # -- tracks --------------------------------------------------------------------------------

    def _thread(self, shape: Shape) -> Lane:
        key = (shape.pid, shape.tid)
        lane = self._threads.get(key)
        if lane is None:
            lane = self._threads[key] = Lane(self._on_thread(key, "thread_execution"))
        return lane

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
        numbers = [
            self._add(TrackRow((self._process(pid), name), "process_counter", name, pid))
            for pid, name in events.counter_tracks
        ]
        columns = (events.counter_ts, events.counter_value, events.counter_track)
        return samples(*columns, numbers, self._tracks)

    def _arguments(self, event: int, _: bool) -> list[Argument]:
        text = self._events.reader.at(self._events.place[event], self._events.size[event])
        try:
            args = dict(items(text, 0)).get("args")
        except (LenientError, IndexError):
            return []
        return json_leaves(text[args.start : args.end], "args")[0] if isinstance(args, Span) else []
