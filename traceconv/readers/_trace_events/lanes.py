"""What the reader says of lanes, and the names of the file as strings of the trace."""

from __future__ import annotations

import numpy as np

from traceconv.build import TraceBuilder
from traceconv.model import I32, OpClass
from traceconv.readers._trace_events.contract import Classify, Placed, Skipped
from traceconv.readers._trace_events.naming import Naming
from traceconv.readers._trace_events.tables import Tables

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
