"""The lines of a device in an XSpace: which of them are work, and the step of every row."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, Layer, Mask, OpClass, Track
from traceconv.core.ordering import combined_key, mapped
from traceconv.core.patterns import lazy_regex, natural
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
        rows_of_plane = np.flatnonzero(usable & ~counters)
        sorts = sorts[rows_of_plane]
        names = self._reading.names(plane)[rows_of_plane]
        ops = np.full(len(rows_of_plane), OpClass.OTHER, np.int8)
        ops[sorts == LineKind.WAIT] = OpClass.WAIT
        ops[sorts == LineKind.STEPS] = OpClass.ITERATION
        streams = np.flatnonzero(sorts == LineKind.STREAM)
        ops[streams] = self._kernels(plane, rows_of_plane[streams], names[streams])
        computed = np.flatnonzero(np.isin(sorts, (LineKind.OPERATIONS, LineKind.ASYNC)))
        ops[computed] = self._reading.classes(
            plane, rows_of_plane[computed], sorts[computed] == LineKind.ASYNC
        )
        if self._device.part(plane.name).startswith("SparseCore"):
            work = np.isin(ops, (OpClass.COMPUTE, OpClass.COMM, OpClass.COMM_TASK))
            ops[work] = OpClass.OTHER
            self._build.skip("sparse-core", f"plane {plane.name}", int(work.sum()))
        steps = self._steps(plane, rows_of_plane, sorts, names)
        ops[(ops == OpClass.ITERATION) & (steps < 0)] = OpClass.OTHER
        tracks = self._tracks(plane, rows_of_plane, sorts, ops, names)
        rows = self._reading.added(
            plane, rows_of_plane, track=tracks, op=ops, name=names, step=steps
        )
        self._reading.links.take(plane, rows)
        self._reading.links.take_calls(plane, rows, work=True)
        lost, has_drops = plane.integers("dropped_traces")
        waits = rows_of_plane[(sorts == LineKind.WAIT) & has_drops[rows_of_plane]]
        count = int(np.clip(lost[waits], 0, INT32_MAX).sum())
        self._build.skip("source-dropped", f"plane {plane.name}", count)

    def _kernels(self, plane: Plane, rows: NDArray[np.intp], names: I32) -> NDArray[np.int8]:
        """Classes of the rows of a GPU's streams."""
        strings, words = self._build.strings, self._build.comm_words

        def op_class(name: int) -> OpClass:
            is_copy = COPIES.match(strings[name])
            return OpClass.COPY if is_copy else kernel_class(strings[name], words)

        ops: NDArray[np.int8] = mapped(names, op_class, np.int8)
        ops[plane.kind_of[rows] < 0] = OpClass.UNCLASSIFIED  # cut before the names
        ops[(plane.texts("memcpy_details")[0] >= 0)[rows]] = OpClass.COPY
        return ops

    def _steps(
        self, plane: Plane, rows: NDArray[np.intp], sorts: NDArray[np.int8], names: I32
    ) -> I32:
        """The step of every row, where the profiler recorded steps of the device; else -1."""
        steps = np.full(len(rows), -1, np.int32)
        marks = np.flatnonzero(sorts == LineKind.STEPS)
        if not len(marks):
            return steps
        strings = self._build.strings
        numbers = np.array([number_of(strings[i]) for i in names[marks].tolist()], np.int64)
        steps[marks] = numbers
        start, dur, usable, _ = self._reading.times(plane)
        good = usable[rows[marks]] & (numbers >= 0) & (dur[rows[marks]] >= 0)
        marks, numbers = marks[good], numbers[good]
        order = np.argsort(start[rows[marks]], kind="stable")
        begin = start[rows[marks]][order]
        end = begin + dur[rows[marks]][order]
        work = np.flatnonzero(
            np.isin(sorts, (LineKind.OPERATIONS, LineKind.ASYNC, LineKind.MODULES))
        )
        if not len(marks) or not len(work):
            return steps
        # a program begins just before its step and ends just after it
        is_module = sorts[work] == LineKind.MODULES
        time = start[rows[work]] + np.where(is_module, dur[rows[work]] // 2, 0)
        nearest = np.searchsorted(begin, time, "right") - 1
        inside = (nearest >= 0) & (time < end[np.maximum(nearest, 0)])
        steps[work[inside]] = numbers[order][nearest[inside]]
        group, has_group = plane.integers("group_id")
        outside = has_group[rows[work]] & ~inside
        if outside.any():
            of_group = {
                int(group[rows[m]]): int(n)
                for m, n in zip(marks.tolist(), numbers.tolist(), strict=True)
                if has_group[rows[m]]
            }
            steps[work[outside]] = [
                of_group.get(g, -1) for g in group[rows[work[outside]]].tolist()
            ]
        return steps

    def _tracks(
        self,
        plane: Plane,
        rows: NDArray[np.intp],
        sorts: NDArray[np.int8],
        ops: NDArray[np.int8],
        names: I32,
    ) -> I32:
        build, part = self._build, self._device.part(plane.name)
        device = owner(plane.name)
        hardware = f"{self._device.kind} Hardware"
        strings = build.strings
        lines = plane.line_of[rows]
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
            location: dict[str, Any] = {
                "device": device, "device_kind": self._device.kind, "stream": stream,
            }  # fmt: skip
            if comm[i]:
                title = lane_title(strings[int(names[i])]) if library[i] >= 0 else COLLECTIVES
                communicator = "" if sort == LineKind.STREAM else name
                track = Track(Layer.COMM, name, part, title, communicator=communicator, **location)
            elif sort == LineKind.STEPS:
                track = Track(Layer.STEP, name)
            elif sort == LineKind.DERIVED:
                track = Track(Layer.SCOPE, name, part, "XLA", **location)
            elif sort == LineKind.OTHER:
                track = Track(Layer.OTHER, name, "", plane.name, **location)
            else:
                track = Track(Layer.DEVICE, name, part, hardware, sort=int(sort), **location)
            tracks.append(build.add_track(track))
        track_ids: I32 = np.array(tracks, np.int32)[back]
        return track_ids

    def _samples(self, plane: Plane, rows: Mask) -> None:
        """Add counters: every event is a sample, its name is that of the counter.

        The value is the stat "value", or that of the counter's own name (CUPTI, ROCm).
        """
        samples = np.flatnonzero(rows)
        build = self._build
        if not len(samples):
            return
        value = plane.numbers("value")
        value = np.where(np.isnan(value), plane.numbers(), value)
        start, _, usable, _ = self._reading.times(plane)
        where = f"plane {plane.name}"
        build.seen("counter", len(samples))
        bad = ~usable[samples] | plane.broken[samples]
        odd = ~bad & ~np.isfinite(value[samples])
        build.skip("bad-time", where, int(bad.sum()), "counter")
        build.skip("counter-not-numeric", where, int(odd.sum()), "counter")
        sound = samples[~bad & ~odd]
        kind, part = self._device.kind, self._device.part(plane.name)

        def lane(name: int) -> int:
            return build.track(
                Layer.COUNTER, build.strings[name], part, f"{kind} Counters", unit="",
                device=owner(plane.name), device_kind=kind,
            )  # fmt: skip

        track = mapped(self._reading.names(plane)[sound], lane, np.int32)
        build.counters(track=track, start_ns=start[sound], value=value[sound])


def number_of(name: str) -> int:
    """The number of a step that is named by it, -1 for any other name."""
    return natural(name.strip(), 999_999_999)


_STREAM_NUMBER = lazy_regex(r"Stream #(-?\d{1,18})")


def stream_name(name: str) -> tuple[str, int]:
    """Name and number of the track of a stream: "Stream 7", 7 of "Stream #7(Kernel)"."""
    match = _STREAM_NUMBER.match(name)
    return (f"Stream {match[1]}", int(match[1])) if match else (name, -1)
