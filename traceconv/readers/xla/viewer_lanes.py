"""Lanes of the JSON that XLA's viewer shows: processes are planes, threads their lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Layer, OpClass, Track
from traceconv.readers.shared.collective_names import lane_title
from traceconv.readers.shared.gpu_kernels import kernel_class
from traceconv.readers.shared.numbers import count_of
from traceconv.readers.shared.trace_events.contract import Incoming, Lane, Named, Names, Placed
from traceconv.readers.xla.device_lines import COLLECTIVES, COPIES, stream_name
from traceconv.readers.xla.operations import operation
from traceconv.readers.xla.planes import Kind, LineKind, device_kind, kind_of, line_kind, owner


class _Stats(msgspec.Struct, frozen=True, gc=False):
    """The arguments that say what an event is."""

    hlo_category: Any = None
    hlo_op: Any = None
    device_ordinal: Any = None
    step_num: Any = None


_NONE = _Stats()
_decode = msgspec.json.Decoder(_Stats).decode


@dataclass
class Lanes:
    """Places the lanes of one file; call it with a lane.

    Attributes:
        sorts, tracks: what is on a track, and the track, by its number.
    """

    build: TraceBuilder
    sorts: dict[int, LineKind] = field(default_factory=dict)
    tracks: dict[int, Track] = field(default_factory=dict)
    _again: Counter[tuple[str, str]] = field(default_factory=Counter)
    _names: Names | None = None

    def __call__(self, lane: Lane) -> Placed:
        if self._names is not lane.names:
            self._names = lane.names
            self._again = Counter((pid, name) for (pid, _), name in lane.names.threads.items())
        kind = kind_of(lane.process)
        name = lane.thread or f"Thread {lane.tid}"
        if self._again[lane.pid, name] > 1:
            name = f"{name} ({lane.tid})"
        if lane.phase == "C":
            return Placed(Track(Layer.COUNTER, "", lane.process, "Counters"))
        if kind is Kind.DEVICE:
            return self._of_device(lane, name)
        if kind in (Kind.HOST, Kind.RUNTIME):
            layer = Layer.RUNTIME if kind is Kind.RUNTIME else Layer.HOST
            title = "" if lane.process == "/host:CPU" else lane.process
            return self._placed(Track(layer, name, "", title), OpClass.HOST, LineKind.OTHER)
        return self._placed(
            Track(Layer.OTHER, name, "", lane.process or "Other"), OpClass.OTHER, LineKind.OTHER
        )

    def _placed(self, track: Track, op: OpClass, sort: LineKind, **more: Any) -> Placed:
        number = self.build.add_track(track)
        self.sorts[number], self.tracks[number] = sort, track
        return Placed(track, op, **more)

    def _of_device(self, lane: Lane, name: str) -> Placed:
        kind = device_kind(lane.process)
        group = f"{kind} {owner(lane.process)}"
        sort = line_kind(lane.process, lane.thread)
        if sort is LineKind.STREAM:
            name = stream_name(name)
        hardware = Track(Layer.DEVICE, name, group, f"{kind} Hardware", sort=int(sort))
        if sort is LineKind.STREAM:
            return self._placed(
                hardware, OpClass.COMPUTE, sort, by_name=partial(_kernel, self.build.comm_words)
            )
        if sort is LineKind.STEPS:
            track = Track(Layer.STEP, name, group)
            return self._placed(track, OpClass.OTHER, sort, by_name=_step)
        if sort is LineKind.DERIVED:
            return self._placed(Track(Layer.SCOPE, name, group, "XLA"), OpClass.OTHER, sort)
        if sort is LineKind.OTHER:
            return self._placed(Track(Layer.OTHER, name, group, lane.process), OpClass.OTHER, sort)
        return self._placed(
            hardware, OpClass.WAIT if sort is LineKind.WAIT else OpClass.OTHER, sort
        )

    def revise(self, rows: Incoming) -> None:
        """Give operations their class, device and lane, and marks of steps their number."""
        numbered = np.full(int(rows.track.max(initial=-1)) + 1, int(LineKind.OTHER), np.int8)
        for number, sort in self.sorts.items():
            if number < len(numbered):
                numbered[number] = sort
        sorts = numbered[rows.track]
        strings = self.build.strings
        for i in range(len(sorts)):
            sort, track = sorts[i], self.tracks[int(rows.track[i])]
            if track.layer is Layer.HOST:
                self._host(rows, i)
            elif sort in (LineKind.OPERATIONS, LineKind.ASYNC):
                stats = self._stats(rows, i)
                name = strings[int(rows.name[i])]
                found = operation(_text(stats.hlo_category), "", name)
                part = found.phase == "start" and sort == LineKind.OPERATIONS
                rows.op[i] = OpClass.COMM_TASK if part and found.word else found.op
                if found.word:
                    rows.track[i] = self.build.track(
                        Layer.COMM, track.name, track.group, COLLECTIVES
                    )
            elif sort == LineKind.STREAM and rows.op[i] == OpClass.COMM:
                title = lane_title(strings[int(rows.name[i])])
                rows.track[i] = self.build.track(Layer.COMM, track.name, track.group, title)

    def _host(self, rows: Incoming, i: int) -> None:
        if not rows.length[i]:
            return
        stats = self._stats(rows, i)
        step = count_of(stats.step_num)
        if step >= 0:
            rows.step[i] = step
        device = count_of(stats.device_ordinal)
        if device < 0 or stats.hlo_op is None:
            return
        found = operation("", "", self.build.strings[int(rows.name[i])])
        rows.op[i] = found.op
        layer, title = (Layer.COMM, COLLECTIVES) if found.word else (Layer.DEVICE, "CPU Hardware")
        rows.track[i] = self.build.track(layer, "XLA Ops", f"CPU {device}", title)

    def _stats(self, rows: Incoming, i: int) -> _Stats:
        if not rows.length[i]:
            return _NONE
        try:
            return _decode(self.build.stored(int(rows.address[i]), int(rows.length[i])))
        except NOT_JSON:
            return _NONE


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _kernel(words: tuple[str, ...], name: str) -> Named:
    return Named(OpClass.COPY if COPIES.match(name) else kernel_class(name, words))


def _step(name: str) -> Named | None:
    digits = name.strip()
    if digits.isascii() and digits.isdigit() and len(digits) <= 9:
        return Named(OpClass.ITERATION, step=int(digits))
    return None
