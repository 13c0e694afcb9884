"""Lanes of a file as tracks, and its rows on them: metadata, what the reader says, the builder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I8, I32, I64, Kind, OpClass
from traceconv.readers.shared.numbers import count_of
from traceconv.readers.shared.trace_events.contract import (
    Classify,
    Incoming,
    Lane,
    Named,
    Names,
    Placed,
    Revise,
    Skipped,
)
from traceconv.readers.shared.trace_events.tables import ASYNC, INSTANT, Rows, Shapes, Tables

_PHASES = {
    **dict.fromkeys("XBE", "X"),
    **dict.fromkeys("bneSTpF", "b"),
    **dict.fromkeys("stf", "s"),
}
"""The phase with which a lane is placed, by phase."""

_OWN_KEYS = ("name", "sort_index", "labels")


class Naming:
    """Collects metadata records while a file is read; then makes :class:`Lane` of shapes.

    They name processes and threads; the last record of a kind counts.

    Attributes:
        unused: metadata records that say nothing of use.
    """

    def __init__(self) -> None:
        self.unused = 0
        self._processes: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._threads: dict[tuple[str, str], str] = {}
        self._sort: dict[tuple[str, str], int] = {}
        self._process_extra: dict[str, dict[str, str | int]] = {}
        self._thread_extra: dict[tuple[str, str], dict[str, str | int]] = {}
        self._names = Names(self._processes, self._labels, self._threads)

    def add(self, name: str | None, pid: str, tid: str, raw: bytes) -> None:
        """Take one metadata record.

        Args:
            raw: its ``args`` as JSON.
        """
        try:
            args = msgspec.json.decode(raw) if raw else None
        except NOT_JSON:
            args = None
        if not isinstance(args, dict) or not self._take_metadata(name, pid, tid, args):
            self.unused += 1

    def _take_metadata(self, name: str | None, pid: str, tid: str, args: dict[str, Any]) -> bool:
        if name == "process_name" and "name" in args:
            self._processes[pid] = _text(args["name"])
            self._process_extra[pid] = _extra(args)
        elif name == "thread_name" and "name" in args:
            self._threads[pid, tid] = _text(args["name"])
            self._thread_extra[pid, tid] = _extra(args)
        elif name == "process_labels" and "labels" in args:
            self._labels[pid] = _text(args["labels"])
        elif name == "thread_sort_index":
            self._sort[pid, tid] = count_of(args.get("sort_index"))
        else:
            return name == "process_sort_index"
        return True

    def learn_lanes(self, shapes: Shapes) -> None:
        """Take in which lanes there are."""
        columns = shapes.phase, shapes.category, shapes.pid, shapes.tid
        self._names = replace(self._names, lanes=tuple(zip(*columns, strict=True)))

    def lane(self, shapes: Shapes, code: int) -> Lane:
        """The lane of events of one shape."""
        pid, tid = shapes.pid[code], shapes.tid[code]
        phase = shapes.phase[code]
        return Lane(
            pid,
            tid,
            self._processes.get(pid, ""),
            self._threads.get((pid, tid), ""),
            self._labels.get(pid, ""),
            shapes.category[code],
            _PHASES.get(phase, phase),
            {**self._process_extra.get(pid, {}), **self._thread_extra.get((pid, tid), {})},
            self._names,
            max(self._sort.get((pid, tid), 0), 0),
        )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def _extra(args: dict[str, Any]) -> dict[str, str | int]:
    return {
        str(key): value
        for key, value in args.items()
        if key not in _OWN_KEYS and isinstance(value, str | int) and not isinstance(value, bool)
    }


OUT, SKIPPED = -1, -2
"""In place of a track: of no concern to this capture; left out under an issue code."""


class Lanes:
    """The tracks of the events of every shape; the reader places each lane once.

    Attributes:
        track: int32 per shape: number of the track, OUT or SKIPPED.
        op, graph: what holds for all events of a shape.
        rule:  index into ``rules`` per shape, -1 if names and types say nothing.
        rules: one place for every different pair of ``by_type`` and ``by_name``.
        codes: issue codes by shape, for the skipped ones.
    """

    def __init__(
        self, tables: Tables, naming: Naming, classify: Classify, build: TraceBuilder
    ) -> None:
        self._tables, self._naming = tables, naming
        self._classify, self._build = classify, build
        naming.learn_lanes(tables.shapes)
        self._asked: dict[tuple[str, str, str, str], Placed | Skipped | None] = {}
        n = len(tables.shapes.phase)
        self.track = np.full(n, OUT, np.int32)
        self.op = np.full(n, OpClass.OTHER, np.int8)
        self.graph = np.full(n, -1, np.int32)
        self.rule = np.full(n, -1, np.int32)
        self.rules: list[Placed] = []
        self.codes: dict[int, str] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self._ready = np.zeros(n, bool)

    def place(self, shape: int) -> Placed | Skipped | None:
        """The reader's answer for the lane of a shape."""
        lane = self._naming.lane(self._tables.shapes, shape)
        key = lane.pid, lane.tid, lane.category, lane.phase
        if key not in self._asked or lane.phase == "s":
            self._asked[key] = self._classify(lane)
        return self._asked[key]

    def prepare(self, shape: I32) -> None:
        """Fill in the columns for these shapes (not those of counters and flows)."""
        present = np.bincount(shape, minlength=len(self._ready)) > 0
        for code in np.flatnonzero(present & ~self._ready).tolist():
            self._ready[code] = True
            placed = self.place(code)
            if isinstance(placed, Skipped):
                self.track[code], self.codes[code] = SKIPPED, placed.code
            elif placed is not None:
                self.track[code] = self._build.add_track(placed.track)
                self.op[code], self.graph[code] = placed.op, placed.graph
                self.rule[code] = self._rule(placed)

    def _rule(self, placed: Placed) -> int:
        if not placed.by_type and placed.by_name is None:
            return -1
        key = id(placed.by_type) if placed.by_type else 0, id(placed.by_name)
        number = self._numbers.setdefault(key, len(self.rules))
        if number == len(self.rules):
            self.rules.append(placed)
        return number


class Texts:
    """Names of the file as string ids of the trace; only those that are used get one."""

    def __init__(self, names: list[str], build: TraceBuilder) -> None:
        self._names, self._build = [*names, ""], build  # the last one, also -1: no name
        self._ids = np.full(len(names) + 1, -1, np.int32)

    def __len__(self) -> int:
        return len(self._names) - 1

    def text(self, code: int) -> str:
        """The name of a code, "" for -1."""
        return self._names[code]

    def texts(self, codes: I32) -> Iterator[str]:
        """The names of many codes."""
        return map(self._names.__getitem__, codes.tolist())

    def ids(self, codes: I32) -> I32:
        """String ids of name codes."""
        string_ids: I32 = self._ids.take(codes)
        new = string_ids < 0
        if new.any():
            added = np.unique(codes[new])
            self._ids[added] = list(map(self._build.strings.intern, self.texts(added)))
            string_ids = self._ids.take(codes)
        return string_ids


LaneCodes = NDArray[np.signedinteger[Any]]
"""Lanes by number; in two bytes where they fit."""


class Anchors(msgspec.Struct, frozen=True):
    """Slices that flows may bind to: lane, start, duration, row in the builder."""

    lane: LaneCodes
    start: I64
    dur: I64
    row: I32

    @classmethod
    def joined(cls, parts: list[Anchors]) -> Anchors:
        """The slices of many parts, which are emptied."""
        none = cls(np.empty(0, np.int16), *(np.empty(0, np.int64),) * 2, np.empty(0, np.int32))
        columns = zip(*map(msgspec.structs.astuple, [none, *parts]), strict=True)
        parts.clear()
        return cls(*map(np.concatenate, columns))


ANSWERS = 16
"""Functions whose answers are kept; each takes four bytes per name of the file."""

ByName = Callable[[str], Named | None]


class _Answers:
    """The answers of a ``by_name``, cached by name."""

    def __init__(self, ask: ByName, texts: Texts) -> None:
        self._ask, self._texts = ask, texts
        self._which = np.zeros(len(texts) + 1, np.int32)  # the last one: no name; 0: not asked yet
        self._numbers: dict[Named, int] = {}

    def of(self, names: I32) -> tuple[NDArray[np.bool_], I8, I32, I32]:
        """Whether it says something of name codes; class, graph and step if it does."""
        answer_of_name = self._which.take(names)
        new = answer_of_name == 0
        if new.any():
            new_names = np.unique(names[new])
            answers = map(self._ask, self._texts.texts(new_names))
            self._which[new_names] = [
                1 if answer is None else self._numbers.setdefault(answer, len(self._numbers) + 2)
                for answer in answers
            ]
            answer_of_name = self._which.take(names)
        said = [(0, -1, -1)] * 2 + [(a.op, a.graph, a.step) for a in self._numbers]
        op, graph, step = np.array(said, np.int32).T
        return (
            answer_of_name > 1,
            op.astype(np.int8).take(answer_of_name),
            graph.take(answer_of_name),
            step.take(answer_of_name),
        )


class Placer:
    """Puts rows into the builder.

    Attributes:
        slices: those of the lanes that flows touch.
        points: instants and asynchronous slices there.
        span:    earliest start and latest end of slices, ns; None while there are none.
    """

    def __init__(
        self,
        tables: Tables,
        lanes: Lanes,
        texts: Texts,
        build: TraceBuilder,
        offset_ns: int,
        touched: NDArray[np.bool_],
        revise: Revise | None = None,
    ) -> None:
        """
        Args:
            offset_ns: added to every stamp.
            touched: bool per lane code (``Shapes.lanes``): whether flows end there.
            revise: see ``contract.Revise``.
        """
        self._tables, self._lanes, self._texts, self._build = tables, lanes, texts, build
        self._offset, self._touched, self._revise = offset_ns, touched, revise
        few = len(tables.shapes.lanes) < 1 << 15
        self._lane_of: LaneCodes = tables.shapes.lane.astype(np.int16 if few else np.int32)
        self._types = list(tables.types)
        self._answers: dict[ByName, _Answers] = {}
        self._by_type: dict[int, I8] = {}
        self.slices: list[Anchors] = []
        self.points: list[Anchors] = []
        self.span: tuple[int, int] | None = None

    def put(self, rows: Rows, instants: bool = False) -> None:
        """Add slices and instants; all are ``instants``, or their phases say which are."""
        if not len(rows):
            return
        self._lanes.prepare(rows.shape)
        instant = (self._tables.shapes.kind.take(rows.shape) == INSTANT) | instants
        rows, instant = self._concerned(rows, instant)
        is_usable = self.shift(rows.start, rows.dur)
        if not is_usable.all():
            lost = zip(rows.shape[~is_usable].tolist(), instant[~is_usable].tolist(), strict=True)
            for shape, is_instant in lost:
                kind = "instant" if is_instant else "slice"
                self._tables.tally.add("bad-time", self._tables.shapes.place(shape), 1, kind)
            rows, instant = rows.take(is_usable), instant[is_usable]
        if not len(rows):
            return
        self._tables.tally.add("missing-name", count=int((rows.name < 0).sum()))
        graph, step, op = self._meaning(rows)
        track, name = self._lanes.track.take(rows.shape), self._texts.ids(rows.name)
        if self._revise is not None:
            rows.args, rows.length = rows.args.copy(), rows.length.copy()
            columns = track, op, graph, step, name, rows.start, rows.dur, rows.args, rows.length
            self._revise(Incoming(self._build.rows, instant, *columns))
        first_row = self._build.extend(
            track=track,
            start_ns=rows.start,
            dur_ns=rows.dur,
            name=name,
            kind=np.where(instant, np.int8(Kind.INSTANT), np.int8(Kind.SLICE)),
            op=op,
            graph=graph,
            step=step,
            args=self._args(rows),
        )
        self._note(rows, instant, first_row)

    def shift(self, start: I64, dur: I64) -> NDArray[np.bool_]:
        """Move stamps by the offset, in place; which spans are within int64 then."""
        low, high = -INT64_MAX - min(self._offset, 0), INT64_MAX - max(self._offset, 0)
        is_usable: NDArray[np.bool_] = (start >= low) & (start <= high - dur)
        if self._offset:
            start += np.where(is_usable, self._offset, 0)
        return is_usable

    def _concerned(self, rows: Rows, instant: NDArray[np.bool_]) -> tuple[Rows, NDArray[np.bool_]]:
        """The rows that go on a track; the others are booked."""
        tally, track = self._tables.tally, self._lanes.track.take(rows.shape)
        is_ours = track != OUT
        tally.saw("instant", int((instant & is_ours).sum()))
        tally.saw("slice", int((~instant & is_ours).sum()))
        has_track = track >= 0
        if has_track.all():
            return rows, instant
        for kind, of_kind in (("slice", ~instant), ("instant", instant)):
            shapes, counts = np.unique(rows.shape[(track == SKIPPED) & of_kind], return_counts=True)
            for shape, count in zip(shapes.tolist(), counts.tolist(), strict=True):
                where = self._tables.shapes.place(shape)
                tally.add(self._lanes.codes[shape], where, count, kind)
        return rows.take(has_track), instant[has_track]

    def _args(self, rows: Rows) -> I32 | int:
        has_args = rows.length > 0
        if not has_args.any():
            return -1
        first_id = self._build.args_at(rows.args[has_args], rows.length[has_args])
        ids = np.cumsum(has_args, dtype=np.int32) + np.int32(first_id - 1)
        return np.where(has_args, ids, np.int32(-1))

    # -- what names and types say ------------------------------------------------------------

    def _meaning(self, rows: Rows) -> tuple[I32, I32, I8]:
        """Graph, step and class of rows."""
        op = self._lanes.op.take(rows.shape)
        graph = np.full(len(rows), -1, np.int32) if rows.graph is None else rows.graph.copy()
        step = np.full(len(rows), -1, np.int32) if rows.step is None else rows.step.copy()
        rule = self._lanes.rule.take(rows.shape)
        for number in np.unique(rule[rule >= 0]).tolist():
            where = np.flatnonzero(rule == number)
            placed = self._lanes.rules[number]
            if placed.by_type and rows.type is not None:
                by_type = self._types_of(number, placed)[rows.type[where]]
                op[where] = np.where(by_type >= 0, by_type, op[where])
            if placed.by_name is not None:
                self._apply_names(placed, rows.name[where], where, graph, step, op)
        of_lane = self._lanes.graph.take(rows.shape)
        return np.where(graph >= 0, graph, of_lane), step, op

    def _types_of(self, number: int, placed: Placed) -> I8:
        """Class by code of the type, -1 where the lane names none; the last one is for no type."""
        if number not in self._by_type:
            ops = [placed.by_type.get(text, -1) for text in self._types]
            self._by_type[number] = np.array([*ops, -1], np.int8)
        return self._by_type[number]

    def _apply_names(
        self, placed: Placed, names: I32, where: NDArray[np.intp], graph: I32, step: I32, op: I8
    ) -> None:
        """Write the answers of ``by_name`` over ``op``, and where the others have none."""
        assert placed.by_name is not None
        answers = self._answers.pop(placed.by_name, None)
        if answers is None:
            answers = _Answers(placed.by_name, self._texts)
            if len(self._answers) == ANSWERS:
                del self._answers[next(iter(self._answers))]
        self._answers[placed.by_name] = answers  # the last one used is the last to be given up
        has_answer, ops, graphs, steps = answers.of(names)
        if not has_answer.any():
            return
        op[where] = np.where(has_answer, ops, op[where])
        graph[where] = np.where(graph[where] >= 0, graph[where], graphs)
        step[where] = np.where(step[where] >= 0, step[where], steps)

    # -- what later steps need ---------------------------------------------------------------

    def _note(self, rows: Rows, instant: NDArray[np.bool_], first_row: int) -> None:
        slices = ~instant
        if slices.any():
            low, high = int(rows.start[slices].min()), int((rows.start + rows.dur)[slices].max())
            before = self.span or (low, high)
            self.span = min(low, before[0]), max(high, before[1])
        lane = self._lane_of.take(rows.shape)
        stacked = slices & (self._tables.shapes.kind.take(rows.shape) != ASYNC)
        for into, chosen in ((self.slices, stacked), (self.points, ~stacked)):
            bound = chosen & self._touched.take(lane)
            if bound.any():
                row = np.flatnonzero(bound).astype(np.int32) + np.int32(first_row)
                into.append(Anchors(lane[bound], rows.start[bound], rows.dur[bound], row))
