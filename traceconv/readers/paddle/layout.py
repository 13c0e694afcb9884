"""Records that both of Paddle's formats are turned into, and their tracks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.model import F64, I8, I32, I64, Kind, Layer, OpClass, Track, TrackKind
from traceconv.core.ordering import mapped
from traceconv.core.patterns import lazy_regex, natural
from traceconv.readers.shared.collective_names import lane_title
from traceconv.readers.shared.gpu_kernels import kernel_class, note_devices

if TYPE_CHECKING:
    from numpy.typing import NDArray

TYPES = (
    "Operator", "Dataloader", "ProfileStep", "CudaRuntime", "Kernel", "Memcpy", "Memset",
    "UserDefined", "OperatorInner", "Forward", "Backward", "Optimization", "Communication",
    "PythonOp", "PythonUserDefined", "DygraphKernelLaunch", "StaticKernelLaunch",
)  # fmt: skip
"""Types of events by number. In files of 2.3 and 2.4, 15 was the runtime of MLUs, which is not a
host event.

Source: TracerEventType in paddle/phi/api/profiler/trace_event.h (2026-08).
"""

PYTHON_TYPES = (
    "Dataloader", "ProfileStep", "Forward", "Backward", "Optimization", "PythonOp",
    "PythonUserDefined",
)  # fmt: skip
"""Host events of the Python side of a thread; the others are of its C++ side."""

MEMORY_TYPES = ("Allocate", "Free", "ReservedAllocate", "ReservedFree")
"""Types of memory events by number: TracerMemEventType."""

LAUNCH = "launch"
_THREAD_SORT_MAX = 2**30


class What(IntEnum):
    """Which part of a process or device a lane is."""

    PYTHON = 0
    NATIVE = 1
    RUNTIME = 2
    KERNEL = 3
    COPY = 4
    HOST = 5  # host rows of an unknown side
    UNKNOWN = 6  # device rows of an unknown type


_OPS = {
    What.KERNEL: OpClass.COMPUTE,
    What.COPY: OpClass.COPY,
    What.UNKNOWN: OpClass.UNCLASSIFIED,
}
_SIDES = {What.PYTHON: "Python", What.NATIVE: "C++"}


@dataclass(frozen=True)
class Lane:
    """Where rows are.

    Attributes:
        process: process id as text; of device rows, the number of the device.
        thread:  thread id; of device rows, the stream.
        maker:   how the file calls devices of this kind ("GPU").
    """

    what: What
    process: str
    thread: str
    maker: str = "GPU"

    @property
    def of_device(self) -> bool:
        """Whether its rows are work of a device."""
        return self.what in _OPS


@dataclass
class Records:
    """Slices and instants of one file: columns of equal length, in any order.

    Attributes:
        lane: index into ``lanes``.
        name, args: ids of the builder.
        flows: rows that launched and rows that were launched.
    """

    lanes: Sequence[Lane]
    lane: I32
    start: I64
    dur: I64
    name: I32
    args: I32
    step: I32
    instant: NDArray[np.bool_]
    arrows: tuple[I64, I64]

    def whats(self) -> I8:
        """:class:`What` per row."""
        return np.array([lane.what for lane in self.lanes], np.int8)[self.lane]

    def take(self, kept: NDArray[np.bool_]) -> Records:
        """The marked rows, and the flows between them."""
        new_row = np.cumsum(kept) - 1
        src, dst = self.arrows
        both_kept = kept[src] & kept[dst]
        return Records(
            self.lanes,
            self.lane[kept],
            self.start[kept],
            self.dur[kept],
            self.name[kept],
            self.args[kept],
            self.step[kept],
            self.instant[kept],
            (new_row[src[both_kept]], new_row[dst[both_kept]]),
        )


def put(records: Records, build: TraceBuilder, pid: int) -> None:
    """Add all rows and flows; rows that end before they begin or leave int64 are booked.

    Args:
        pid: the process whose threads need no name of their process; -1 if any.
    """
    build.seen("flow", len(records.arrows[0]))
    build.seen("instant", int(records.instant.sum()))
    build.seen("slice", int((~records.instant).sum()))
    records = _sound(records, build)
    if not len(records.lane):
        return
    op = _ops(records, build)
    first_row = build.extend(
        track=_tracks(records, op, build, pid),
        start_ns=records.start,
        dur_ns=records.dur,
        name=records.name,
        kind=np.where(records.instant, np.int8(Kind.INSTANT), np.int8(Kind.SLICE)),
        op=op,
        step=records.step,
        args=records.args,
    )
    src, dst = records.arrows
    build.flows(src=src + first_row, dst=dst + first_row, name=build.string(LAUNCH))


def _sound(records: Records, build: TraceBuilder) -> Records:
    """Only rows whose times can be kept."""
    negative = records.dur < 0
    beyond = ~negative & (records.start > INT64_MAX - np.maximum(records.dur, 0))
    if not (negative | beyond).any():
        return records
    for code, rows in (("negative-duration", negative), ("bad-time", beyond)):
        build.skip(code, count=int((rows & ~records.instant).sum()), kind="slice")
        build.skip(code, count=int((rows & records.instant).sum()), kind="instant")
    sound = records.take(~negative & ~beyond)
    build.skip("flow-unbound", count=len(records.arrows[0]) - len(sound.arrows[0]), kind="flow")
    return sound


def _ops(records: Records, build: TraceBuilder) -> I8:
    """Class per row; of kernels, by their names."""
    of_lane = np.array([_OPS.get(lane.what, OpClass.HOST) for lane in records.lanes], np.int8)
    op: I8 = of_lane[records.lane]
    kernels = np.flatnonzero(records.whats() == What.KERNEL)
    op[kernels] = mapped(
        records.name[kernels], lambda i: kernel_class(build.strings[i], build.comm_words), np.int8
    )
    return op


def _tracks(records: Records, op: I8, build: TraceBuilder, pid: int) -> I32:
    """Track per row: that of its lane, or of its library for kernels that communicate."""
    several = len({lane.process for lane in records.lanes if lane.of_device}) > 1
    titles: dict[str, int] = {"": 0}
    title = np.zeros(len(op), np.int32)
    comm = np.flatnonzero(op == OpClass.COMM)
    title[comm] = mapped(
        records.name[comm],
        lambda i: titles.setdefault(lane_title(build.strings[i]), len(titles)), np.int32,
    )  # fmt: skip
    key = records.lane * len(titles) + title
    headings, numbers = [*titles], np.full(len(titles) * len(records.lanes), -1, np.int32)
    for code in np.unique(key).tolist():
        lane, heading = records.lanes[code // len(titles)], headings[code % len(titles)]
        numbers[code] = build.add_track(
            _device_track(lane, heading, several) if lane.of_device else _host_track(lane, pid)
        )
    track_ids: I32 = numbers[key]
    return track_ids


def _device_track(lane: Lane, library: str, several: bool) -> Track:
    group = f"GPU {lane.process}" if several else ""
    name = f"Stream {lane.thread}"
    location: dict[str, Any] = {
        "device": natural(lane.process),
        "device_kind": lane.maker,
        "stream": natural(lane.thread),
    }
    if library:
        return Track(Layer.COMM, name, group, library, **location)
    return Track(Layer.DEVICE, name, group, f"{lane.maker} Hardware", **location)


def _host_track(lane: Lane, pid: int) -> Track:
    is_main = pid < 0 or lane.process == str(pid)
    group = "" if is_main else f"Process {lane.process}"
    name = f"Thread {lane.thread}"
    number = natural(lane.thread)
    location: dict[str, Any] = {
        "process": -1 if is_main else natural(lane.process),
        "thread": number,
    }
    if lane.what is What.RUNTIME:
        title = "CUDA" if lane.maker == "GPU" else lane.maker
        return Track(Layer.RUNTIME, name, group, title, **location)
    sort = 2 * min(max(number, 0), _THREAD_SORT_MAX - 1) + (lane.what is not What.PYTHON)
    side = _SIDES.get(lane.what, "")
    name = f"{name} ({side})" if side else name
    return Track(Layer.HOST, name, group, "Paddle", sort, thread_name=side, **location)


def memory(
    build: TraceBuilder, start: I64, place: Sequence[str], allocated: F64, reserved: F64
) -> None:
    """Add counters of allocated and reserved memory by place, two samples per memory event.

    Args:
        place: as the file has it, "Place(gpu:0)".
        allocated, reserved: bytes; NaN where the file does not say.
    """
    devices = {}
    for text in dict.fromkeys(place):
        inner = text[6:-1] if text.startswith("Place(") and text.endswith(")") else text
        kind, _, digits = inner.upper().partition(":")
        number = natural(digits)
        label = kind if number >= 0 else inner.upper().replace(":", " ") or "Device"
        devices[text] = label, number
    for measure, value in (("Allocated", allocated), ("Reserved", reserved)):
        of_place = {
            text: build.track(
                Layer.COUNTER,
                f"{kind} {number} {measure}" if number >= 0 else f"{kind} {measure}",
                "Memory",
                unit="B",
                kind=TrackKind.ALLOCATOR,
                device=number,
                device_kind=kind,
            )
            for text, (kind, number) in devices.items()
        }
        track = np.array([of_place[text] for text in place], np.int32)
        recorded = ~np.isnan(value)
        build.seen("counter", int(recorded.sum()))
        build.counters(track=track[recorded], start_ns=start[recorded], value=value[recorded])


PHASES = {"Forward": "forward", "Backward": "backward"}
"""Types of host events that are phases of a step, as ``Hints.phase_names`` calls them."""

_FRACTION = lazy_regex(r"\d{1,9}(?:\.\d{1,9})?")
_CPU = {"Process Cpu Utilization": "process", "System Cpu Utilization": "system"}
"""Keys of the facts of a window, and the scope of ``Hints.cpu_percent`` each is for."""


def phase_names(build: TraceBuilder, kind: str, names: Iterable[int]) -> None:
    """Say that host events of these names (string ids) are of a kind in :data:`PHASES`."""
    build.hints.phase_names.update({build.strings[name]: PHASES[kind] for name in names})


def noted(build: TraceBuilder, **facts: Any) -> None:
    """Keep facts about the file being read, one entry per collection window.

    Version 1.0.0 printed sizes of memory with 32 bits: they are not believed.
    """
    if facts.get("version") != "1.0.0":
        note_devices(build.hints, facts.get("devices"))
    info = facts.get("extra_info")
    extra: Mapping[str, Any] = info if isinstance(info, Mapping) else {}
    for key, scope in _CPU.items():
        fraction = str(extra.get(key))
        if _FRACTION.fullmatch(fraction):
            build.hints.cpu_percent.setdefault(scope, []).append(100 * float(fraction))
    build.notes.setdefault("paddle", []).append({"file": build.file, **facts})
