"""The lines of a device in an XSpace: which of them are work, and the step of every row."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, Layer, Mask, OpClass, Track
from traceconv.core.ordering import combined_key
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.collective_names import lane_title
from traceconv.readers.shared.gpu_kernels import kernel_class
from traceconv.readers.shared.numbers import INT32_MAX
from traceconv.readers.xla.plane_rows import PlaneRows
from traceconv.readers.xla.planes import Kind, LineKind, line_kind, owner
from traceconv.readers.xla.space import Plane

COLLECTIVES = "XLA Collectives"
"""Title of the tracks of collectives that are operations of XLA."""

COPIES = lazy_regex(r"mem(?:cpy|set)", re.IGNORECASE)
"""Prefix of copies and fills on a stream."""


class DeviceLines:
    """Adds planes of the device that is read."""

    def __init__(self, reading: PlaneRows) -> None:
        self._reading = reading
        self._build, self._device = reading.build, reading.device

    def add(self, plane: Plane, kind: Kind) -> None:
        """Add the events of a plane."""
        self._reading.book(plane)
        lines = [line_kind(plane.name, line.name) for line in plane.lines]
        sorts = np.array([*lines, LineKind.OTHER], np.int8)[plane.line_of]
        if kind is Kind.CHIP:
            sorts[:] = LineKind.OTHER
        usable = ~plane.aggregate
        counters = usable & (sorts == LineKind.COUNTER)
        self._samples(plane, counters)
        at = np.flatnonzero(usable & ~counters)
        sorts = sorts[at]
        names = self._reading.names(plane)[at]
        ops = np.full(len(at), OpClass.OTHER, np.int8)
        ops[sorts == LineKind.WAIT] = OpClass.WAIT
        ops[sorts == LineKind.STEPS] = OpClass.ITERATION
        streams = np.flatnonzero(sorts == LineKind.STREAM)
        ops[streams] = self._kernels(plane, at[streams], names[streams])
        computed = np.flatnonzero(np.isin(sorts, (LineKind.OPERATIONS, LineKind.ASYNC)))
        ops[computed] = self._reading.classes(
            plane, at[computed], sorts[computed] == LineKind.ASYNC
        )
        if self._device.part(plane.name).startswith("SparseCore"):
            work = np.isin(ops, (OpClass.COMPUTE, OpClass.COMM, OpClass.COMM_TASK))
            ops[work] = OpClass.OTHER
            self._build.skip("sparse-core", f"plane {plane.name}", int(work.sum()))
        steps = self._steps(plane, at, sorts, names)
        ops[(ops == OpClass.ITERATION) & (steps < 0)] = OpClass.OTHER
        tracks = self._tracks(plane, at, sorts, ops, names)
        rows = self._reading.added(plane, at, track=tracks, op=ops, name=names, step=steps)
        self._reading.links.take(plane, rows)
        self._reading.links.take_calls(plane, rows, work=True)
        lost, there = plane.integers("dropped_traces")
        waits = at[(sorts == LineKind.WAIT) & there[at]]
        count = int(np.clip(lost[waits], 0, INT32_MAX).sum())
        self._build.skip("source-dropped", f"plane {plane.name}", count)

    def _kernels(self, plane: Plane, at: NDArray[np.intp], names: I32) -> NDArray[np.int8]:
        """Classes of the rows of a GPU's streams."""
        strings, words = self._build.strings, self._build.comm_words
        distinct, back = np.unique(names, return_inverse=True)
        table = [
            OpClass.COPY if COPIES.match(strings[i]) else kernel_class(strings[i], words)
            for i in distinct.tolist()
        ]
        ops: NDArray[np.int8] = np.array(table, np.int8)[back]
        ops[(plane.texts("memcpy_details")[0] >= 0)[at]] = OpClass.COPY
        return ops

    def _steps(
        self, plane: Plane, at: NDArray[np.intp], sorts: NDArray[np.int8], names: I32
    ) -> I32:
        """The step of every row, where the profiler recorded steps of the device; else -1."""
        steps = np.full(len(at), -1, np.int32)
        marks = np.flatnonzero(sorts == LineKind.STEPS)
        if not len(marks):
            return steps
        strings = self._build.strings
        numbers = np.array([number_of(strings[i]) for i in names[marks].tolist()], np.int64)
        steps[marks] = numbers
        start, dur, usable, _ = self._reading.times(plane)
        good = usable[at[marks]] & (numbers >= 0) & (dur[at[marks]] >= 0)
        marks, numbers = marks[good], numbers[good]
        order = np.argsort(start[at[marks]], kind="stable")
        begin = start[at[marks]][order]
        end = begin + dur[at[marks]][order]
        rest = np.flatnonzero(
            np.isin(sorts, (LineKind.OPERATIONS, LineKind.ASYNC, LineKind.MODULES))
        )
        if not len(marks) or not len(rest):
            return steps
        # a program begins just before its step and ends just after it
        whole = sorts[rest] == LineKind.MODULES
        time = start[at[rest]] + np.where(whole, dur[at[rest]] // 2, 0)
        which = np.searchsorted(begin, time, "right") - 1
        inside = (which >= 0) & (time < end[np.maximum(which, 0)])
        steps[rest[inside]] = numbers[order][which[inside]]
        group, there = plane.integers("group_id")
        named = there[at[rest]] & ~inside
        if named.any():
            of_group = {
                int(group[at[m]]): int(n)
                for m, n in zip(marks.tolist(), numbers.tolist(), strict=True)
                if there[at[m]]
            }
            steps[rest[named]] = [of_group.get(g, -1) for g in group[at[rest[named]]].tolist()]
        return steps

    def _tracks(
        self,
        plane: Plane,
        at: NDArray[np.intp],
        sorts: NDArray[np.int8],
        ops: NDArray[np.int8],
        names: I32,
    ) -> I32:
        build, part = self._build, self._device.part(plane.name)
        device = owner(plane.name)
        hardware = f"{self._device.kind} Hardware"
        strings = build.strings
        lines = plane.line_of[at]
        comm = np.isin(ops, (OpClass.COMM, OpClass.COMM_TASK))
        library = np.where(comm & (sorts == LineKind.STREAM), names, -1)
        key = combined_key(lines, comm.astype(np.int64), library.astype(np.int64))
        _, first, back = np.unique(key, return_index=True, return_inverse=True)
        tracks = []
        for i in first.tolist():
            line, sort = plane.lines[lines[i]], sorts[i]
            name, stream = line.name or f"Line {line.id}", -1
            if sort == LineKind.STREAM:
                name, stream = stream_name(name)
            place: dict[str, Any] = {
                "device": device, "device_kind": self._device.kind, "stream": stream,
            }  # fmt: skip
            if comm[i]:
                title = lane_title(strings[int(names[i])]) if library[i] >= 0 else COLLECTIVES
                named = "" if sort == LineKind.STREAM else name
                track = Track(Layer.COMM, name, part, title, communicator=named, **place)
            elif sort == LineKind.STEPS:
                track = Track(Layer.STEP, name)
            elif sort == LineKind.DERIVED:
                track = Track(Layer.SCOPE, name, part, "XLA", **place)
            elif sort == LineKind.OTHER:
                track = Track(Layer.OTHER, name, "", plane.name, **place)
            else:
                track = Track(Layer.DEVICE, name, part, hardware, sort=int(sort), **place)
            tracks.append(build.add_track(track))
        found: I32 = np.array(tracks, np.int32)[back]
        return found

    def _samples(self, plane: Plane, rows: Mask) -> None:
        """Add counters: every event is a sample, its name is that of the counter.

        The value is the stat "value", or that of the counter's own name (CUPTI, ROCm).
        """
        at = np.flatnonzero(rows)
        build = self._build
        if not len(at):
            return
        value = plane.numbers("value")
        value = np.where(np.isnan(value), plane.numbers(), value)
        start, _, usable, _ = self._reading.times(plane)
        where = f"plane {plane.name}"
        build.seen("counter", len(at))
        bad = ~usable[at] | plane.broken[at]
        odd = ~bad & ~np.isfinite(value[at])
        build.skip("bad-time", where, int(bad.sum()), "counter")
        build.skip("counter-not-numeric", where, int(odd.sum()), "counter")
        kept = at[~bad & ~odd]
        names = self._reading.names(plane)[kept]
        distinct, back = np.unique(names, return_inverse=True)
        title = f"{self._device.kind} Counters"
        tracks = [
            build.track(
                Layer.COUNTER,
                build.strings[i],
                self._device.part(plane.name),
                title,
                unit="",
                device=owner(plane.name),
                device_kind=self._device.kind,
            )
            for i in distinct.tolist()
        ]
        track = np.array(tracks, np.int32)[back]
        build.counters(track=track, start_ns=start[kept], value=value[kept])


def number_of(name: str) -> int:
    """The number of a step that is named by it, -1 for any other name."""
    digits = name.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 9 else -1


_STREAM_NUMBER = lazy_regex(r"Stream #(-?\d{1,18})")


def stream_name(name: str) -> tuple[str, int]:
    """Name and number of the track of a stream: "Stream 7", 7 of "Stream #7(Kernel)"."""
    match = _STREAM_NUMBER.match(name)
    return (f"Stream {match[1]}", int(match[1])) if match else (name, -1)
