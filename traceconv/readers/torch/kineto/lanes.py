"""Lanes of a PyTorch trace as tracks, by the category of their events.

Process and thread numbers say little: a GPU has the number of a process, and what a device did
is on the same row as what the profiler made of it. Categories of 2021 are those of today in
capitals and without prefix ("Operator", "Kernel").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from functools import partial

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.gpu_kernels import kernel_class, step_number
from traceconv.readers.shared.trace_events.timeline import Lane, Named, Names, Placed, Skipped


class Sort(IntEnum):
    """Sorts of events; each category is of one."""

    OPERATOR = auto()  # of the framework, and ranges of the user
    CALL = auto()  # into the runtime or the driver
    KERNEL = auto()
    COPY = auto()
    SYNC = auto()  # the host, or a stream, waiting for the device
    PROJECTION = auto()  # of a host range onto the device: no work
    COLLECTIVE = auto()  # seen by another profiler than that of kernels
    MEMORY = auto()  # allocations
    PROFILER = auto()  # its own work
    LAUNCH_MARK = auto()
    COUNTER = auto()
    OTHER = auto()


_SORTS = {
    **dict.fromkeys(("cpu_op", "operator", "user_annotation", "python_function"), Sort.OPERATOR),
    **dict.fromkeys(
        (
            *("runtime", "cuda_runtime", "cuda_driver", "hip_runtime", "hpu_op", "glow_runtime"),
            *("mtia_runtime", "xpu_runtime", "xpu_driver"),
            *("privateuse1_runtime", "privateuse1_driver"),
        ),
        Sort.CALL,
    ),
    **dict.fromkeys(("kernel", "mtia_ccp_events"), Sort.KERNEL),
    **dict.fromkeys(("gpu_memcpy", "memcpy", "gpu_memset", "memset"), Sort.COPY),
    **dict.fromkeys(("cuda_event", "cuda_sync", "gpu_sync", "xpu_sync"), Sort.SYNC),
    **dict.fromkeys(("gpu_user_annotation", "cuda_profiler_range"), Sort.PROJECTION),
    "collective_comm": Sort.COLLECTIVE,
    "cpu_instant_event": Sort.MEMORY,
    **dict.fromkeys(("trace", "overhead", "external_correlation", "mtia_insight"), Sort.PROFILER),
    **dict.fromkeys(("mtia_counters", "xpu_scope_profiler", "hardware_counters"), Sort.COUNTER),
}
"""All categories of pytorch/kineto ``libkineto/include/ActivityType.h`` (2026-08), and those of its
first versions. What is in none of them, on the row of a device, is an unclassified task."""

_ENDINGS = {
    "_runtime": Sort.CALL, "_driver": Sort.CALL, "_memcpy": Sort.COPY, "_memset": Sort.COPY,
    "_user_annotation": Sort.PROJECTION, "_profiler_range": Sort.PROJECTION, "_sync": Sort.SYNC,
    "_notifier": Sort.SYNC,
}  # fmt: skip
"""What other vendors call the same (``mlu_memcpy``: Cambricon/torch_mlu, a fork of Kineto's
``ActivityType.cpp`` of 2024)."""

_INSTANTS = ("i", "I", "R")
_LAUNCH_MARKS = ("ac2g", "async", "async_cpu_to_gpu", "async_gpu")

ON_DEVICE = (Sort.KERNEL, Sort.COPY, Sort.SYNC, Sort.PROJECTION)
ON_HOST = (Sort.OPERATOR, Sort.CALL)

MAX_ANNOTATIONS = 1000
"""Ranges of further names are not noted."""

GLOO = "gloo:"
"""Gloo names the range of an operation, from its issue to its end, "gloo:all_reduce" (PyTorch's
``ProcessGroupGloo.cpp``)."""

_THREAD_NAME = lazy_regex(r"thread -?\d+ \((.+)\)")
_STREAM = lazy_regex(r"(?:stream ?)?(-?\d{1,18})( \(sync\))?", re.IGNORECASE)
_NUMBER = lazy_regex(r"-?[0-9]+")
_DEVICE = lazy_regex(r"([A-Z]+) (\d{1,6})")
_NO_STREAMS = ("-1", str(2**32 - 1))


def _without_part(pid: str, part: str) -> str:
    return pid.removeprefix(part).lstrip()


def _of_part(names: Names, part: str) -> Names:
    """The names of one rank of a file of several, process ids as the rank's own file has them."""
    if not part:
        return names
    labels = {
        _without_part(pid, part): label
        for pid, label in names.labels.items()
        if pid.startswith(part)
    }
    lanes = tuple(
        (phase, category, _without_part(pid, part), tid)
        for phase, category, pid, tid in names.lanes
        if pid.startswith(part)
    )
    return Names(labels=labels, lanes=lanes)


_OF_SORT = {
    Sort.PROJECTION: (Layer.SCOPE, "GPU Annotations"),
    Sort.SYNC: (Layer.RUNTIME, "GPU Synchronization"),
}


def sort_of(category: str, phase: str = "X") -> Sort:
    """The sort of a category; ``phase`` as in :class:`Lane` or as in the file."""
    low = category.lower()
    if low in _SORTS:
        return _SORTS[low]
    if phase in ("s", "t", "f") and low in _LAUNCH_MARKS:
        return Sort.LAUNCH_MARK
    if not low and phase in _INSTANTS:
        return Sort.MEMORY  # so it was in 2021
    found = (sort for ending, sort in _ENDINGS.items() if low.endswith(ending))
    return next(found, Sort.OTHER)


class Processes(msgspec.Struct, frozen=True):
    """The processes of a file that matter for the names of lanes.

    Attributes:
        main:    the process that was profiled, "" if there is none.
        devices: the devices that did something.
        threads: (process, thread) of the host.
    """

    main: str = ""
    devices: tuple[str, ...] = ()
    threads: frozenset[tuple[str, str]] = frozenset()

    @staticmethod
    def of(names: Names) -> Processes:
        """By what their lanes hold; of several host processes the one named as such, else the one
        with most lanes."""
        hosts: Counter[str] = Counter()
        devices: dict[str, None] = {}
        threads = set()
        for phase, category, pid, tid in names.lanes:
            sort = sort_of(category, phase)
            if sort in ON_HOST:
                hosts[pid] += 1000 if names.labels.get(pid) == "CPU" else 1
                threads.add((pid, tid))
            elif sort in (Sort.KERNEL, Sort.COPY):
                devices[pid] = None
        main = max(sorted(hosts), key=hosts.__getitem__) if hosts else ""
        return Processes(main, tuple(sorted(devices)), frozenset(threads))


@dataclass
class Classifier:
    """Places the lanes of one file; call it with a lane.

    Attributes:
        build: gets every track at once, so that the following can be by its number.
        takes_marks: asked when all slices are placed: are flows to be drawn from launch marks.
        part:  what is in front of the process ids of the rank, in a file of several; "" if alone.
        group: the process group of all communication; "" if there are several, or none is known.
        sorts:  what is on a track.
        tracks: the tracks of slices and instants.
        annotations: names of host ranges that people marked (``record_function``).
    """

    build: TraceBuilder
    takes_marks: Callable[[], bool]
    part: str = ""
    group: str = ""
    sorts: dict[int, Sort] = field(default_factory=dict)
    tracks: dict[int, Track] = field(default_factory=dict)
    annotations: dict[str, None] = field(default_factory=dict)
    processes: Processes | None = None

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        if self.part and not lane.pid.startswith(self.part):
            return None
        if self.processes is None:
            self.processes = Processes.of(_of_part(lane.names, self.part))
        if self.part:
            lane = msgspec.structs.replace(lane, pid=_without_part(lane.pid, self.part))
        sort = sort_of(lane.category, lane.phase)
        if sort in (Sort.MEMORY, Sort.OTHER) and not _NUMBER.fullmatch(lane.pid):
            sort = Sort.PROFILER  # "Spans", "Traces"
        if sort is Sort.LAUNCH_MARK and not self.takes_marks():
            # calls that a call makes have no number
            return Skipped("launch-mark", (lane.pid, lane.tid) in self.processes.threads)
        placed = self._placement(lane, sort)
        if lane.phase not in ("s", "C"):
            number = self.build.add_track(placed.track)
            self.sorts[number], self.tracks[number] = sort, placed.track
        return placed

    def _placement(self, lane: Lane, sort: Sort) -> Placed:
        if lane.phase == "C":
            owner = lane.labels or ("" if _NUMBER.fullmatch(lane.pid) else lane.pid)
            title = " ".join(filter(None, (owner.removesuffix(" Counters"), "Counters")))
            match = _DEVICE.fullmatch(owner.removesuffix(" Counters"))
            kind, device = (match[1], int(match[2])) if match else ("", -1)
            track = Track(Layer.COUNTER, "", lane.category, title, device=device, device_kind=kind)
            return Placed(track)
        if sort is Sort.OPERATOR:
            assert self.processes is not None
            annotated = lane.category == "user_annotation"
            noted = self.annotations if annotated else None
            on_cpus = bool(self.group) and not self.processes.devices
            classify_name = partial(_host_event, noted=noted, on_cpus=on_cpus)
            return Placed(self._thread(lane, Layer.HOST), OpClass.HOST, by_name=classify_name)
        if sort is Sort.CALL:
            return Placed(self._thread(lane, Layer.RUNTIME), OpClass.HOST)
        if sort is Sort.SYNC and (lane.process_id < 0 or lane.labels == "CPU"):
            # a thread that waits, as XPU's plugin writes it (XpuptiActivityHandlers.cpp)
            assert self.processes is not None
            lane = msgspec.structs.replace(lane, pid=self.processes.main or lane.pid)
            return Placed(self._thread(lane, Layer.RUNTIME, "GPU Synchronization"), OpClass.WAIT)
        if sort in ON_DEVICE:
            return self._on_device(lane, sort)
        if sort is Sort.COLLECTIVE:
            track = Track(Layer.COMM, lane.tid, title="Collectives", communicator=lane.tid)
            return Placed(track, OpClass.COMM_TASK)
        if sort is Sort.MEMORY:
            return Placed(self._thread(lane, Layer.HOST, "Memory"), OpClass.HOST)
        if sort is Sort.PROFILER:
            name = "Overhead" if lane.category == "overhead" else "PyTorch Profiler"
            return Placed(Track(Layer.OTHER, name, title="Profiler"))
        return self._of_other_category(lane)

    def _on_device(self, lane: Lane, sort: Sort) -> Placed:
        assert self.processes is not None
        # a lane for waiting has another number than the stream in its name
        match = _STREAM.fullmatch(lane.thread.strip()) or _STREAM.fullmatch(lane.tid)
        stream = int(match[1]) if match and match[1] not in _NO_STREAMS else -1
        stream_name = f"Stream {match[1]}{match[2] or ''}" if match else lane.tid
        name = "No stream" if match and stream < 0 else stream_name
        if sort is Sort.OTHER:
            name = f"{name} ({lane.category})"
        group = f"GPU {lane.pid}" if len(self.processes.devices) > 1 else ""
        layer, title = _OF_SORT.get(sort, (Layer.DEVICE, "GPU Hardware"))
        track = Track(
            layer,
            name,
            group,
            title,
            device=lane.process_id,
            device_kind="GPU",
            stream=stream,
        )
        if sort is Sort.PROJECTION:
            return Placed(track)
        if sort is Sort.SYNC:
            return Placed(track, OpClass.WAIT)
        if sort is Sort.COPY:
            return Placed(track, OpClass.COPY)
        if sort is Sort.OTHER:
            return Placed(track, OpClass.UNCLASSIFIED)
        words: Sequence[str] = self.build.comm_words
        return Placed(track, OpClass.COMPUTE, by_name=lambda name: Named(kernel_class(name, words)))

    def _of_other_category(self, lane: Lane) -> Placed:
        """Unknown categories: work of a device, or on the thread of the process."""
        assert self.processes is not None
        of_device = lane.pid in self.processes.devices or lane.labels not in ("", "CPU")
        if of_device and lane.phase == "X":
            return self._on_device(lane, Sort.OTHER)
        if lane.pid == self.processes.main and lane.phase != "b":
            return Placed(self._thread(lane, Layer.HOST), OpClass.HOST)
        return Placed(Track(Layer.OTHER, f"Lane {lane.tid}", f"Process {lane.pid}", lane.category))

    def _thread(self, lane: Lane, layer: Layer, title: str = "") -> Track:
        assert self.processes is not None
        match = _THREAD_NAME.fullmatch(lane.thread)
        label = match[1] if match else ""
        is_main = lane.pid == self.processes.main
        return Track(
            layer,
            f"Thread {lane.tid}" + (f" ({label})" if label else ""),
            "" if is_main else f"Process {lane.pid}",
            title,
            sort=int(lane.tid != lane.pid),
            process=-1 if is_main else lane.process_id,
            thread=lane.thread_id,
            thread_name=label,
        )


def _host_event(name: str, noted: dict[str, None] | None, on_cpus: bool) -> Named | None:
    """Steps get their number; the first names of annotations are noted. Of a job on CPUs, ranges of
    Gloo are communication."""
    if on_cpus and noted is not None and name.startswith(GLOO):
        return Named(OpClass.COMM)
    if noted is not None and len(noted) < MAX_ANNOTATIONS:
        noted[name] = None
    step = step_number(name)
    return Named(OpClass.HOST, step=step) if step >= 0 else None
