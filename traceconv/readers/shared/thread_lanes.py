"""Lanes of trace-event files no reader knows more about: by thread and process, and told apart.

A lane is a (process, thread); their names are only what it is called. Two processes or threads of
one name get their number behind it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

from traceconv.core.model import Layer, OpClass, Track
from traceconv.readers.shared.gpu_kernels import kernel_class, step_number
from traceconv.readers.shared.trace_events.timeline import Lane, Named, Names, Placed

_STREAM = re.compile(r"(?:CUDA |HIP |GPU )?stream\s*#?\d+.*", re.IGNORECASE | re.DOTALL)
_COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_KERNELS = ("kernel", "gpu_kernel")
_WAITS = ("cuda_sync", "cuda_event")
_CALLS = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "xpu_runtime", "cudaruntime")


class DefaultPlacement:
    """Says where lanes go; call it with a lane. For the lanes of one file.

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
        if _STREAM.fullmatch(lane.thread) or category in (*_KERNELS, *_COPIES, *_WAITS):
            return self._device(Track(Layer.DEVICE, name, "", title, lane.sort), category)
        track = Track(Layer.HOST, name, "", title, lane.sort)
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
