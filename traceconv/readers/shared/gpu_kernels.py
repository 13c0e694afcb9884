"""Classes of GPU work by name, and the tracks of trace-event files without a known producer.

A kernel communicates if its name is of a library in :mod:`.collective_names` or contains one of the
user's words. MTIA reports transfers as kernels, and ROCm copies and fills that a kernel carries
out; all other kernels are compute.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from traceconv.core.clock import INT64_MAX
from traceconv.core.hints import Hints
from traceconv.core.model import Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.collective_names import library_of
from traceconv.readers.shared.intel_commands import command_class, device_of
from traceconv.readers.shared.trace_events.contract import Lane, Named, Names, Placed

MAX_DEVICES = 256
"""The memory of further devices of a machine is not noted."""

STEP_NAME = lazy_regex(
    r"(?:(?:train(?:ing)?|global)[ _-]?)?(?:iter(?:ation)?|step)[ _#:=]*(\d{1,9})"
    r"|Profiler?Step ?#(\d{1,9})",
    re.IGNORECASE,
)
"""Names of host ranges that are a training step, with its number."""

_TRANSFER = lazy_regex(r"dma_request\b|__amd_rocclr_(?:copy|fill)")
"""Transfers among the kernels of MTIA and of ROCm's runtime."""


def kernel_class(name: str, more: Sequence[str] = ()) -> OpClass:
    """COMM, COPY or COMPUTE.

    Args:
        more: further words (lower case) that mark communication.
    """
    low = name.lower()
    if any(word in low for word in more) or library_of(low):
        return OpClass.COMM
    return OpClass.COPY if _TRANSFER.match(low) else OpClass.COMPUTE


def step_number(name: str) -> int:
    """The number of the step that a host range is, or -1."""
    match = STEP_NAME.fullmatch(name)
    return int(match[match.lastindex or 1]) if match else -1


def note_devices(hints: Hints, devices: Any) -> None:
    """Add the memory and the names of GPUs, by their number, to ``hints``.

    Args:
        devices: JSON values of a profiler; invalid sizes are ignored.
    """
    for device in devices[:MAX_DEVICES] if isinstance(devices, list) else ():
        if not isinstance(device, Mapping):
            continue
        number = device.get("id")
        size = device.get("totalGlobalMem", device.get("total_global_memory"))
        if type(number) is int and type(size) is int and number >= 0 and 0 < size <= INT64_MAX:
            hints.device_memory_bytes.setdefault(number, size)
        if type(number) is int and number >= 0 and isinstance(name := device.get("name"), str):
            hints.device_names.setdefault(number, name[:100])


_STREAM = lazy_regex(r"(?:CUDA |HIP |GPU )?stream\s*#?\d+.*", re.IGNORECASE | re.DOTALL)
PROJECTION = lazy_regex(r"Graph: Stream \d+")
"""Tracks of Proton (``ChromeTraceDump.cpp`` and ``PerfettoTraceDump.cpp`` of triton-lang/triton):
ranges of the host, projected onto the kernels of a replayed graph. They are not work."""

_COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_KERNELS = ("kernel", "gpu_kernel", "gpu_op")
_WAITS = ("cuda_sync", "cuda_event")
_OPS = {
    **dict.fromkeys(_KERNELS, OpClass.COMPUTE),
    **dict.fromkeys(_COPIES, OpClass.COPY),
    **dict.fromkeys(_WAITS, OpClass.WAIT),
    "gpu_user_annotation": OpClass.OTHER,
}
"""Classes of the categories of device rows; Kineto's and unitrace's (``gpu_op``)."""


class DefaultPlacement:
    """Places the lanes of one file by thread and process; call it with a lane.

    Names of threads and processes are titles only: equal ones get their number appended.

    Args:
        comm_words: further words (lower case) in the names of kernels that communicate.
    """

    def __init__(self, comm_words: Sequence[str] = ()) -> None:
        self._names: Names | None = None
        self._processes: Counter[str] = Counter()
        self._threads: Counter[tuple[str, str]] = Counter()
        self._comm_words = tuple(comm_words)

    def __call__(self, lane: Lane) -> Placed:
        if self._names is not lane.names:
            self._names = lane.names
            self._processes = Counter(lane.names.processes.values())
            self._threads = Counter((pid, name) for (pid, _), name in lane.names.threads.items())
        title = lane.process or f"Process {lane.pid}".strip()
        if self._processes[title] >= (2 if lane.process else 1):
            title = f"{title} ({lane.pid})"
        if lane.phase == "C":
            return Placed(Track(Layer.COUNTER, "", title, "Counters"))
        if lane.phase == "b":
            track = Track(Layer.HOST, lane.category or "Async", "Async", title)
            return Placed(track, OpClass.HOST)
        name = lane.thread or f"Thread {lane.tid}".strip()
        if self._threads[lane.pid, name] >= (2 if lane.thread else 1):
            name = f"{name} ({lane.tid})"
        category = lane.category.lower()
        if lane.phase == "state":
            return Placed(Track(Layer.OTHER, name, "Thread States", title), OpClass.OTHER)
        if PROJECTION.fullmatch(lane.thread):
            return Placed(Track(Layer.SCOPE, name, "", title, lane.sort), OpClass.OTHER)
        if _STREAM.fullmatch(lane.thread) or category in _OPS:
            device = device_of(lane.process)
            kind = "GPU" if device >= 0 else ""
            track = Track(Layer.DEVICE, name, "", title, lane.sort, device=device, device_kind=kind)
            op = _OPS.get(category, OpClass.UNCLASSIFIED)
            return Placed(track, op, by_name=self._kernel if category in _KERNELS else None)
        process = lane.process_id
        thread = lane.thread_id if process >= 0 else -1
        track = Track(Layer.HOST, name, "", title, lane.sort, process=process, thread=thread)
        return Placed(track, OpClass.HOST, by_name=_host_step)

    def _kernel(self, name: str) -> Named:
        op = command_class(name)
        return Named(kernel_class(name, self._comm_words) if op is None else op)


def _host_step(name: str) -> Named | None:
    """Host ranges of a step ("ProfilerStep#4", "train_step 4") have its number."""
    number = step_number(name)
    return Named(OpClass.HOST, step=number) if number >= 0 else None
