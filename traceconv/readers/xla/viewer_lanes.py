"""Tracks of the JSON of XLA's trace viewer: processes are planes, threads their lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Layer, OpClass, Track
from traceconv.readers.shared.collective_names import lane_title
from traceconv.readers.shared.gpu_kernels import kernel_class
from traceconv.readers.shared.numbers import count_of
from traceconv.readers.shared.trace_events.contract import Incoming, Lane, Named, Names, Placed
from traceconv.readers.xla.device_lines import COLLECTIVES, COPIES, number_of, stream_name
from traceconv.readers.xla.launches import UNKNOWN, HostEvents, function_of, is_call, launches
from traceconv.readers.xla.operations import operation
from traceconv.readers.xla.planes import Kind, LineKind, device_kind, kind_of, line_kind, owner


class _Stats(msgspec.Struct, frozen=True, gc=False):
    """The arguments that identify an event."""

    hlo_category: Any = None
    hlo_op: Any = None
    hlo_module: Any = None
    device_ordinal: Any = None
    run_id: Any = None
    step_num: Any = None


_NONE = _Stats()
_decode = msgspec.json.Decoder(_Stats).decode


@dataclass
class Lanes:
    """Places the lanes of one file; call it with a lane.

    Attributes:
        sorts, tracks: kind of line and track, by number of the track.
        _ran: row, start, duration, track, run, whether it has a run, program, device, and whether
            it is a call, of events that launch programs and of operations (:class:`HostEvents`).
    """

    build: TraceBuilder
    sorts: dict[int, LineKind] = field(default_factory=dict)
    tracks: dict[int, Track] = field(default_factory=dict)
    _again: Counter[tuple[str, str]] = field(default_factory=Counter)
    _names: Names | None = None
    _ran: list[tuple[int, ...]] = field(default_factory=list)
    _programs: dict[str, int] = field(default_factory=dict)
    _marked: bool = False
    _devices: bool = False

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
            track = Track(layer, name, "", title, thread=lane.thread_id)
            return self._placed(track, OpClass.HOST, LineKind.OTHER)
        return self._placed(
            Track(Layer.OTHER, name, "", lane.process or "Other"), OpClass.OTHER, LineKind.OTHER
        )

    def _placed(self, track: Track, op: OpClass, sort: LineKind, **options: Any) -> Placed:
        number = self.build.add_track(track)
        self.sorts[number], self.tracks[number] = sort, track
        return Placed(track, op, **options)

    def _of_device(self, lane: Lane, name: str) -> Placed:
        self._devices = True
        kind = device_kind(lane.process)
        device = owner(lane.process)
        group = f"{kind} {device}"
        sort = line_kind(lane.process, lane.thread)
        name, stream = stream_name(name) if sort is LineKind.STREAM else (name, -1)
        hardware = Track(
            Layer.DEVICE,
            name,
            group,
            f"{kind} Hardware",
            sort=int(sort),
            device=device,
            device_kind=kind,
            stream=stream,
        )
        if sort is LineKind.STREAM:
            words = self.build.comm_words
            return self._placed(
                hardware, OpClass.COMPUTE, sort,
                by_name=lambda n: Named(
                    OpClass.COPY if COPIES.match(n) else kernel_class(n, words)
                ),
            )  # fmt: skip
        if sort is LineKind.STEPS:
            track = Track(Layer.STEP, name, group)
            return self._placed(track, OpClass.OTHER, sort, by_name=_step)
        if sort is LineKind.DERIVED:
            derived = replace(hardware, layer=Layer.SCOPE, title="XLA", sort=0)
            return self._placed(derived, OpClass.OTHER, sort)
        if sort is LineKind.OTHER:
            unclassified = replace(hardware, layer=Layer.OTHER, title=lane.process, sort=0)
            return self._placed(unclassified, OpClass.OTHER, sort)
        return self._placed(
            hardware, OpClass.WAIT if sort is LineKind.WAIT else OpClass.OTHER, sort
        )

    def revise(self, rows: Incoming) -> None:
        """Set class, device and track of operations, and the number of step annotations."""
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
                known = operation(_text(stats.hlo_category), "", name)
                is_start = known.phase == "start" and sort == LineKind.OPERATIONS
                rows.op[i] = OpClass.COMM_TASK if is_start and known.word else known.op
                if known.word:
                    rows.track[i] = self._collectives(track, COLLECTIVES)
            elif sort == LineKind.STREAM and rows.op[i] == OpClass.COMM:
                rows.track[i] = self._collectives(track, lane_title(strings[int(rows.name[i])]))

    def _collectives(self, track: Track, title: str) -> int:
        """The track of the collectives of a device line."""
        communicator = "" if track.stream >= 0 else track.name
        return self.build.add_track(
            replace(track, layer=Layer.COMM, title=title, sort=0, communicator=communicator)
        )

    def _host(self, rows: Incoming, i: int) -> None:
        name = self.build.strings[int(rows.name[i])]
        function = function_of(name)
        if not (rows.length[i] or function or is_call(name)):
            return
        stats = self._stats(rows, i)
        step = count_of(stats.step_num)
        if step >= 0:
            rows.step[i] = step
            self._marked = True
        device, run = count_of(stats.device_ordinal), _integer(stats.run_id)
        numbered = device >= 0 and stats.hlo_op is not None
        # the first versions number no devices; those of GPUs and TPUs have separate lanes
        unnumbered = stats.device_ordinal is None and not self._devices
        ran = numbered or (unnumbered and stats.hlo_op is not None)
        if numbered or function or is_call(name) or (run is not None and device < 0):
            program = _text(stats.hlo_module) if numbered else function
            number = self._programs.setdefault(program, len(self._programs)) if program else -1
            span = int(rows.start_ns[i]), int(rows.dur_ns[i]), int(rows.track[i])
            about = run or 0, run is not None, number, device if numbered else -1, is_call(name)
            self._ran.append((rows.first + i, *span, *about))
        if not ran:
            return
        known = operation("", "", name)
        rows.op[i] = known.op
        layer, title = (Layer.COMM, COLLECTIVES) if known.word else (Layer.DEVICE, "CPU Hardware")
        rows.track[i] = self.build.track(
            layer,
            "XLA Ops",
            f"CPU {device}" if device >= 0 else "",
            title,
            device=device,
            device_kind="CPU",
            communicator="XLA Ops" if layer is Layer.COMM else "",
        )

    def draw(self) -> None:
        """Add flows from calls to the operations of the programs they launched."""
        if not self._ran:
            return
        build = self.build
        columns = np.array(self._ran, np.int64).T
        row, start, dur, line, run, has_run, program, device, called = columns
        none = np.empty(0, np.intp)
        events = HostEvents(
            start, dur, line, run, has_run > 0, program, device, np.flatnonzero(called), none, none
        )
        name = build.string("launch")
        for number in np.unique(device[device >= 0]).tolist():
            operations = np.flatnonzero(device == number)
            by = launches(events, operations)
            drawn = (by >= 0) & (by != operations)
            build.seen("flow", int(drawn.sum()))
            build.flows(src=row[by[drawn]], dst=row[operations[drawn]], name=name)
            if self._marked:
                unknown = int((by == UNKNOWN).sum())
                build.skip("launch-unknown", f"CPU {number}", unknown)
                build.hints.partial_device |= unknown > 0 and not self._devices
                build.hints.steps_told = not self._devices

    def _stats(self, rows: Incoming, i: int) -> _Stats:
        if not rows.length[i]:
            return _NONE
        try:
            return _decode(self.build.stored(int(rows.address[i]), int(rows.length[i])))
        except NOT_JSON:
            return _NONE


def _integer(value: Any) -> int | None:
    """A program's number, which may be negative and may be written as text."""
    text = str(value).strip() if isinstance(value, int | str) else ""
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        return None
    return number if abs(number := int(text)) <= INT64_MAX else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _step(name: str) -> Named | None:
    step = number_of(name)
    return Named(OpClass.ITERATION, step=step) if step >= 0 else None
