"""What the reader says of lanes, and the names of the file as strings of the trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, OpClass
from traceconv.readers.shared.trace_events.contract import Classify, Lane, Names, Placed, Skipped
from traceconv.readers.shared.trace_events.tables import Shapes, Tables, whole_number

# Metadata records: what names processes and threads. The last record of a kind counts.

_PHASES = {
    **dict.fromkeys("XBE", "X"),
    **dict.fromkeys("bneSTpF", "b"),
    **dict.fromkeys("stf", "s"),
}
"""Phases that share a lane, by the one a lane is asked about with."""

_OWN_KEYS = ("name", "sort_index", "labels")


class Naming:
    """Collects metadata while a file is read; then makes :class:`Lane` of shapes.

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
        except (msgspec.MsgspecError, ValueError, RecursionError):
            args = None
        if not isinstance(args, dict) or not self._known(name, pid, tid, args):
            self.unused += 1

    def _known(self, name: str | None, pid: str, tid: str, args: dict[str, Any]) -> bool:
        if name == "process_name" and "name" in args:
            self._processes[pid] = _text(args["name"])
            self._process_extra[pid] = _extra(args)
        elif name == "thread_name" and "name" in args:
            self._threads[pid, tid] = _text(args["name"])
            self._thread_extra[pid, tid] = _extra(args)
        elif name == "process_labels" and "labels" in args:
            self._labels[pid] = _text(args["labels"])
        elif name == "thread_sort_index":
            self._sort[pid, tid] = whole_number(args.get("sort_index"))
        else:
            return name == "process_sort_index"
        return True

    def meet(self, shapes: Shapes) -> None:
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
    """Where the events of every shape go; the reader is asked once per lane.

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
        naming.meet(tables.shapes)
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
        """What the reader says of a shape's lane."""
        lane = self._naming.lane(self._tables.shapes, shape)
        key = lane.pid, lane.tid, lane.category, lane.phase
        if key not in self._asked or lane.phase == "s":
            self._asked[key] = self._classify(lane)
        return self._asked[key]

    def prepare(self, shape: I32) -> None:
        """Fill in the columns for these shapes (not those of counters and arrows)."""
        present = np.bincount(shape, minlength=len(self._ready)) > 0
        for code in np.flatnonzero(present & ~self._ready).tolist():
            self._ready[code] = True
            place = self.place(code)
            if isinstance(place, Skipped):
                self.track[code], self.codes[code] = SKIPPED, place.code
            elif place is not None:
                self.track[code] = self._build.add_track(place.track)
                self.op[code], self.graph[code] = place.op, place.graph
                self.rule[code] = self._rule(place)

    def _rule(self, place: Placed) -> int:
        if not place.by_type and place.by_name is None:
            return -1
        key = id(place.by_type), id(place.by_name)
        number = self._numbers.setdefault(key, len(self.rules))
        if number == len(self.rules):
            self.rules.append(place)
        return number


class Texts:
    """Names of the file as string ids of the trace; only those that are used get one."""

    def __init__(self, names: list[str], build: TraceBuilder) -> None:
        self._names, self._build = names, build
        self._ids = np.full(len(names) + 1, -1, np.int32)  # the last one: no name

    def text(self, code: int) -> str:
        """The name of a code, "" for -1."""
        return self._names[code] if code >= 0 else ""

    def ids(self, codes: I32) -> I32:
        """String ids of name codes."""
        found: I32 = self._ids[codes]
        new = found < 0
        if new.any():
            for code in np.unique(codes[new]).tolist():
                self._ids[code] = self._build.string(self.text(code))
            found = self._ids[codes]
        return found
