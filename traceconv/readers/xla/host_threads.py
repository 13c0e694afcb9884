"""Host threads of an XSpace: the device each event belongs to, and the step that launched it."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, I64, Layer, Mask, OpClass, Track
from traceconv.core.ordering import combined_key
from traceconv.readers.shared.numbers import INT32_MAX
from traceconv.readers.xla.device_lines import COLLECTIVES
from traceconv.readers.xla.launches import UNKNOWN, HostEvents, function_of, is_call, launches
from traceconv.readers.xla.links import POOL, pair_codes
from traceconv.readers.xla.plane_rows import PlaneRows
from traceconv.readers.xla.planes import Kind, owner
from traceconv.readers.xla.space import Plane

_MEMORY = ("MemoryAllocation", "MemoryDeallocation")
_MEASURES = ("bytes_allocated", "bytes_reserved", "peak_bytes_in_use")


class HostThreads:
    """Adds the rows of host planes that belong to the device that is read."""

    def __init__(self, reading: PlaneRows) -> None:
        self._reading = reading
        self._build, self._device = reading.build, reading.device
        self._leads: dict[int, list[tuple[I64, I64, str]]] = {}

    def add(self, plane: Plane, kind: Kind) -> None:
        """Add the events of a plane that belong to the device."""
        device, build, links = self._device, self._build, self._reading.links
        belongs = self._belongs(plane)
        marks, has_step = plane.integers("step_num")
        marked = has_step & (plane.integers("_r")[0] == 1) & (marks >= 0) & (marks <= INT32_MAX)
        usable = ~plane.aggregate
        belonging = usable & (belongs == device.number)
        if device.first:
            self._reading.book(plane)
            strangers = ~np.isin(belongs, device.numbers)
            belonging |= usable & strangers
            if len(device.numbers) > 1:
                build.skip(
                    "host-rows-first", f"plane {plane.name}", int((usable & strangers).sum())
                )
        events = np.flatnonzero(belonging | (usable & marked))
        names = self._reading.names(plane)[events]
        run = self._runs(plane)[events]
        _, calls = plane.integers("correlation_id")
        runtime = calls[events] | (kind is Kind.RUNTIME)
        ops = np.full(len(events), OpClass.HOST, np.int8)
        ran = np.flatnonzero(run)
        ops[ran] = self._reading.classes(plane, events[ran], np.zeros(len(ran), bool))
        steps = np.where(marked[events], marks[events], -1).astype(np.int32)
        steps[ran] = self._run_steps(plane, events[ran], marked)
        tracks = self._tracks(plane, events, run, runtime, ops)
        rows = self._reading.added(plane, events, track=tracks, op=ops, name=names, step=steps)
        links.take(plane, rows)
        links.take_calls(plane, rows, work=False)
        self._memory(plane, rows)

    def _runs(self, plane: Plane) -> Mask:
        """Events that are operations of the CPU backend: device work on host threads.

        The first versions (JAX 0.4) number neither devices nor runs: ``Thunk::TraceMeEncode`` of
        openxla/xla has ``hlo_op``, ``hlo_module`` and the number of the program alone.
        """
        if self._device.kind != "CPU":
            return np.zeros(len(plane), bool)
        numbered = plane.integers("device_ordinal")[1] | (self._device.number < 0)
        return (plane.texts("hlo_op")[0] >= 0) & numbered

    def _belongs(self, plane: Plane) -> I64:
        """The device every event belongs to, -1 if nothing says it."""
        device_of = np.full(len(plane), -1, np.int64)
        for key in ("global_device_id", "device_ordinal"):
            number, present = plane.integers(key)
            device_of[present] = number[present]
        if self._device.kind == "CPU":
            return device_of
        for device in self._device.numbers:
            if device != self._device.number and not self._device.first:
                continue
            for ids, numbers, kind in self._of_devices(device):
                ids_of_events, present = plane.integers(kind)
                hit = present & np.isin(ids_of_events, ids)
                if kind == "_p":
                    hit &= np.isin(pair_codes(plane.integers("_pt")[0], ids_of_events), numbers)
                device_of[hit] = device
        return device_of

    def _of_devices(self, number: int) -> list[tuple[I64, I64, str]]:
        """The correlation ids and ends of links of a device."""
        if number not in self._leads:
            self._leads[number] = ends_of_links = []
            for plane in self._reading.space.planes:
                if self._reading.is_device(plane) and owner(plane.name) == number:
                    ids, present = plane.integers("correlation_id")
                    ends_of_links.append((np.unique(ids[present]), ids[:0], "correlation_id"))
                    ends, linked = plane.integers("_c")
                    pairs = pair_codes(plane.integers("_ct")[0], ends)[linked]
                    ends_of_links.append((np.unique(ends[linked]), np.unique(pairs), "_p"))
        return self._leads[number]

    def _tracks(
        self,
        plane: Plane,
        events: NDArray[np.intp],
        run: Mask,
        runtime: Mask,
        ops: NDArray[np.int8],
    ) -> I32:
        build = self._build
        lines = plane.line_of[events]
        comm = np.isin(ops, (OpClass.COMM, OpClass.COMM_TASK))
        sort = np.where(run, np.where(comm, 3, 2), runtime)
        key = combined_key(np.where(run, 0, lines + 1), sort.astype(np.int64))
        _, first, back = np.unique(key, return_index=True, return_inverse=True)
        again = Counter(line.name for line in plane.lines)
        tracks = []
        for i in first.tolist():
            line = plane.lines[lines[i]]
            name = line.name or "Thread"
            if again[line.name] > 1 or not line.name:
                name = f"{name} ({line.id})"
            if sort[i] == 3:
                track = Track(
                    Layer.COMM, "XLA Ops", "", COLLECTIVES,
                    device_kind="CPU", communicator="XLA Ops",
                )  # fmt: skip
            elif sort[i] == 2:
                track = Track(Layer.DEVICE, "XLA Ops", "", "CPU Hardware", device_kind="CPU")
            else:
                layer = Layer.RUNTIME if runtime[i] else Layer.HOST
                title = "" if plane.name == "/host:CPU" else plane.name
                track = Track(layer, name, "", title, thread=max(line.id, -1))
            tracks.append(build.add_track(track))
        track_ids: I32 = np.array(tracks, np.int32)[back]
        return track_ids

    def _run_steps(self, plane: Plane, rows: NDArray[np.intp], marked: Mask) -> I32:
        """The step that launched each operation of the CPU backend, -1 if unknown.

        An operation may run long after the step that launched it.
        """
        steps = np.full(len(rows), -1, np.int32)
        marks = np.flatnonzero(marked)
        if not len(marks) or not len(rows) or self._device.number < 0:
            return steps  # without numbers of runs, time is all that tells
        events = self._events(plane)
        by = launches(events, rows)
        unknown = int((by == UNKNOWN).sum())
        self._build.skip("launch-unknown", f"plane {plane.name}", unknown)
        self._build.hints.partial_device |= unknown > 0
        self._build.hints.steps_told = True
        start, time = events.start, events.start[by]
        marks = marks[np.argsort(start[marks], kind="stable")]
        nearest = np.searchsorted(start[marks], time, "right") - 1
        inside = (by >= 0) & (nearest >= 0)
        inside &= time < events.end[marks[np.maximum(nearest, 0)]]
        steps[inside] = plane.integers("step_num")[0][marks[nearest[inside]]]
        return steps

    def _events(self, plane: Plane) -> HostEvents:
        start, dur, _, _ = self._reading.times(plane)
        run, has_run = plane.integers("run_id")
        device = np.where(self._runs(plane), plane.integers("device_ordinal")[0], -1)
        has_run &= (device >= 0) | ~plane.integers("device_ordinal")[1]  # else it waits for one
        programs: dict[str, int] = {"": -1}
        modules, functions = plane.texts("hlo_module"), map(function_of, plane.kinds)
        of_module, of_function = (
            np.array([*(programs.setdefault(n, len(programs)) for n in names), -1], np.int64)
            for names in (modules[1], functions)
        )
        calls = np.array([*map(is_call, plane.kinds), False])
        return HostEvents(
            start, dur, plane.line_of, run, has_run,
            np.where(device >= 0, of_module[modules[0]], of_function[plane.kind_of]), device,
            np.flatnonzero(calls[plane.kind_of]), *self._regions(plane),
        )  # fmt: skip

    @staticmethod
    def _regions(plane: Plane) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Events in which a thread takes work from a pool, and the events that gave the work."""
        kinds, number = plane.integers("_ct")[0], plane.integers("_c")
        begins = np.flatnonzero(number[1] & (kinds == POOL))
        origin_kind, origin = plane.integers("_pt")[0], plane.integers("_p")
        gives = np.flatnonzero(origin[1] & (origin_kind == POOL))
        if not len(begins) or not len(gives):
            return begins[:0], gives[:0]
        gives = gives[np.argsort(origin[0][gives], kind="stable")]
        ordered = origin[0][gives]
        spot = np.minimum(np.searchsorted(ordered, number[0][begins]), len(ordered) - 1)
        matched = ordered[spot] == number[0][begins]
        return begins[matched], gives[spot[matched]]

    def _memory(self, plane: Plane, rows: I64) -> None:
        """Add counters of the memory that allocation events state."""
        kinds = [i for i, name in enumerate(plane.kinds) if name in _MEMORY]
        events = np.flatnonzero(np.isin(plane.kind_of, kinds) & (rows >= 0))
        if not len(events):
            return
        build = self._build
        start, _, _, _ = self._reading.times(plane)
        codes, table = plane.texts("allocator_name")
        index, has_index = plane.integers("index_on_host")
        owners = np.where(has_index, index, -1)[events]
        key = combined_key(codes[events].astype(np.int64), owners)
        _, first, back = np.unique(key, return_index=True, return_inverse=True)
        groups = []
        for i in first.tolist():
            name = table[codes[events[i]]] if codes[events[i]] >= 0 else ""
            groups.append(name or (f"Device {owners[i]}" if owners[i] >= 0 else "Memory"))
        for measure in _MEASURES:
            value = plane.numbers(measure)
            with_value = np.flatnonzero(~np.isnan(value[events]))
            tracks = [
                build.track(Layer.COUNTER, measure, g, "XLA Memory", unit="B") for g in groups
            ]
            build.seen("counter", len(with_value))
            build.counters(
                track=np.array(tracks, np.int32)[back[with_value]],
                start_ns=start[events[with_value]],
                value=value[events[with_value]],
            )
