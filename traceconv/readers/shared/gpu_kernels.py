"""What GPU work is, by its name, and where it goes: what all GPU readers share.

A kernel communicates if its name is of a library in :mod:`.collective_names`, or holds one of the
words given by the user. MTIA reports its transfers as kernels, and ROCm those copies and fills that
a kernel carries out; everything else a device does under a kernel's name is compute.

:class:`DefaultPlacement` places lanes of trace-event files that no reader knows more about.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from traceconv.core.clock import INT64_MAX
from traceconv.core.hints import HintsBuilder
from traceconv.core.model import Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.collective_names import library_of
from traceconv.readers.shared.trace_events.contract import Lane, Named, Names, Placed

MAX_DEVICES = 256
"""The memory of further devices of a machine is not noted."""

STEP_NAME = lazy_regex(
    r"(?:iter|iteration|step|train_step|ProfilerStep#|ProfileStep#)[ _#:=]*(\d{1,9})",
    re.IGNORECASE,
)
"""Names of host ranges that are a training step, and its number."""


_TRANSFER = lazy_regex(r"dma_request\b|__amd_rocclr_(?:copy|fill)")
"""What MTIA's profiler calls a transfer, among its kernels; and kernels of ROCm's runtime."""


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
    return int(match[1]) if match else -1


def note_devices(hints: HintsBuilder, devices: Any) -> None:
    """Add the memory and the names of GPUs, by their number, to ``hints``.

    Args:
        devices: what a profiler says of each, as JSON values; what is no size is passed over.
    """
    for one in devices[:MAX_DEVICES] if isinstance(devices, list) else ():
        if not isinstance(one, Mapping):
            continue
        number = one.get("id")
        size = one.get("totalGlobalMem", one.get("total_global_memory"))
        if type(number) is int and type(size) is int and number >= 0 and 0 < size <= INT64_MAX:
            hints.device_memory_bytes.setdefault(number, size)
        if type(number) is int and number >= 0 and isinstance(name := one.get("name"), str):
            hints.device_names.setdefault(number, name[:100])


_STREAM = lazy_regex(r"(?:CUDA |HIP |GPU )?stream\s*#?\d+.*", re.IGNORECASE | re.DOTALL)
_COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_KERNELS = ("kernel", "gpu_kernel", "gpu_op")
_WAITS = ("cuda_sync", "cuda_event")


class DefaultPlacement:
    """Places the lanes of one file by thread and process; call it with a lane.

    The names of threads and processes are only titles: two of one name get their number appended.

    Args:
        comm_words: further words (lower case) in the names of kernels that communicate.
    """

    def __init__(self, comm_words: Sequence[str] = ()) -> None:
        self._names: Names | None = None
        self._processes: Counter[str] = Counter()
        self._threads: Counter[tuple[str, str]] = Counter()
        self._kernel = partial(_kernel_named, more=tuple(comm_words))

    def __call__(self, lane: Lane) -> Placed:
        self._learn(lane.names)
        title = self._process(lane)
        if lane.phase == "C":
            return Placed(Track(Layer.COUNTER, "", title, "Counters"))
        if lane.phase == "b":
            track = Track(Layer.HOST, lane.category or "Async", "Async", title)
            return Placed(track, OpClass.HOST)
        name, category = self._thread(lane), lane.category.lower()
        if lane.phase == "state":
            return Placed(Track(Layer.OTHER, name, "Thread States", title), OpClass.OTHER)
        if _STREAM.fullmatch(lane.thread) or category in (*_KERNELS, *_COPIES, *_WAITS):
            return self._device(Track(Layer.DEVICE, name, "", title, lane.sort), category)
        process = lane.process_id
        thread = lane.thread_id if process >= 0 else -1
        track = Track(Layer.HOST, name, "", title, lane.sort, process=process, thread=thread)
        return Placed(track, OpClass.HOST, by_name=_host_named)

    def _device(self, track: Track, category: str) -> Placed:
        if category in _COPIES:
            return Placed(track, OpClass.COPY)
        if category in _WAITS:
            return Placed(track, OpClass.WAIT)
        if category in _KERNELS:
            return Placed(track, OpClass.COMPUTE, by_name=self._kernel)
        return Placed(track)

    def _process(self, lane: Lane) -> str:
        name = lane.process or f"Process {lane.pid}".strip()
        alone = self._processes[name] < (2 if lane.process else 1)
        return name if alone else f"{name} ({lane.pid})"

    def _thread(self, lane: Lane) -> str:
        name = lane.thread or f"Thread {lane.tid}".strip()
        alone = self._threads[lane.pid, name] < (2 if lane.thread else 1)
        return name if alone else f"{name} ({lane.tid})"

    def _learn(self, names: Names) -> None:
        """Count the names of a file, once."""
        if self._names is not names:
            self._names = names
            self._processes = Counter(names.processes.values())
            self._threads = Counter((pid, name) for (pid, _), name in names.threads.items())


def _kernel_named(name: str, more: Sequence[str]) -> Named:
    return Named(kernel_class(name, more))


def _host_named(name: str) -> Named | None:
    """Host ranges that mark a step ("ProfilerStep#4") carry its number."""
    number = step_number(name) if "#" in name else -1
    return Named(OpClass.HOST, step=number) if number >= 0 else None
