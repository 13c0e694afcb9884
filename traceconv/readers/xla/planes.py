"""The planes and lines of an XSpace by name: their kind and their device.

The names are those that XLA, TensorFlow and device plugins write. A plane or line of unknown name
is shown but not counted.

Source: xla/tsl/profiler/utils/xplane_schema.cc of openxla/xla (2026-08).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum, auto

from traceconv.core.patterns import lazy_regex


class Kind(Enum):
    """Kinds of planes."""

    DEVICE = auto()
    CHIP = auto()  # memory, links between chips
    HOST = auto()  # threads
    RUNTIME = auto()  # calls into a driver or a runtime
    NOTES = auto()  # programs, and facts of the recording: no events
    OTHER = auto()


class LineKind(IntEnum):
    """Kinds of lines of a device, in the order on screen."""

    OTHER = 0
    STEPS = 1
    MODULES = 2  # launches of programs
    OPERATIONS = 3
    ASYNC = 4  # from the start of an asynchronous operation to its end
    STREAM = 5
    WAIT = 6
    DERIVED = 7  # repeats other lines: never counted
    COUNTER = 8


_DEVICE = lazy_regex(r"/device:([A-Za-z]+):(\d{1,18})(?: (.+))?")
_CHIP = lazy_regex(r"#Chip\b.*?\b(?:TPU|GPU) ?(\d{1,18})\b.*", re.DOTALL)
_RUNTIMES = ("/host:CUPTI", "/host:ROCTRACER", "/host:TPU-runtime")
_NOTES = ("/host:metadata", "Task Environment", "/host:__ScopeRangeCallStack__")
_THREADS = ("/host:CPU", "/host:python-tracer", "/host:NVTX-CUPTI")
_STREAM = lazy_regex(r"Stream #-?\d+")

_DERIVED = (
    "Framework Name Scope", "Framework Ops", "Source code", "Host Offload Ops",
    "TensorFlow Name Scope", "TensorFlow Ops",
)  # fmt: skip
_TPU_LINES = {
    "Steps": LineKind.STEPS,
    "XLA Modules": LineKind.MODULES,
    "XLA Ops": LineKind.OPERATIONS,
    "Sparse Core Modules": LineKind.MODULES,
    "Sparse Core Ops": LineKind.OPERATIONS,
    "Sparse Core Steps": LineKind.DERIVED,
    "Async XLA Ops": LineKind.ASYNC,
    "XLA TraceMe": LineKind.WAIT,
    **dict.fromkeys(_DERIVED, LineKind.DERIVED),
}
_GPU_DERIVED = (
    *_DERIVED, "Steps", "Launch Stats", "XLA Modules", "XLA Ops", "Async XLA Ops", "Source Code",
    "XLA Overhead",
)  # fmt: skip
_COUNTERS = ("_counters_", "counters_")


def kind_of(plane: str) -> Kind:
    """The kind of a plane, by its name."""
    if _DEVICE.fullmatch(plane):
        return Kind.DEVICE
    if _CHIP.fullmatch(plane):
        return Kind.CHIP
    if plane in _NOTES:
        return Kind.NOTES
    if plane.startswith(_RUNTIMES):
        return Kind.RUNTIME
    return Kind.HOST if plane.startswith(_THREADS) else Kind.OTHER


def owner(plane: str) -> int:
    """The number of the device of a plane, -1 if it has none."""
    if match := _DEVICE.fullmatch(plane):
        return int(match[2])
    match = _CHIP.fullmatch(plane)
    return int(match[1]) if match else -1


def device_kind(plane: str) -> str:
    """ "TPU", "GPU", ... of the plane of a device."""
    match = _DEVICE.fullmatch(plane)
    return match[1].upper() if match else ""


def line_kind(plane: str, line: str) -> LineKind:
    """The kind of a line of a device.

    On GPUs only streams are measured; all other lines are derived from them.
    """
    if line.startswith(_COUNTERS):
        return LineKind.COUNTER
    if _STREAM.match(line):
        return LineKind.STREAM
    if device_kind(plane) == "GPU":
        return LineKind.DERIVED if line in _GPU_DERIVED else LineKind.OTHER
    return _TPU_LINES.get(line, LineKind.OTHER)


@dataclass(frozen=True)
class Device:
    """One device of a file.

    Attributes:
        kind:    "TPU", "GPU", "CPU"; "Host" if the file holds no device.
        number:  as the file numbers it, -1 if it holds none.
        numbers: of all devices in the file.
        first:   whether host rows without a device belong to it.
    """

    kind: str
    number: int
    numbers: tuple[int, ...] = ()
    first: bool = True

    def part(self, plane: str) -> str:
        """The part of the device that a plane describes ("SparseCore 0"), "" for all of it."""
        match = _DEVICE.fullmatch(plane)
        return (match[3] or "") if match else ""
