"""Planes and lines of an XSpace by their names: what they are, and which device they are of.

Names are those that XLA, TensorFlow and the plugins of devices write; what is of no known name is
shown, and counted nowhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum, auto

from traceconv.core.patterns import lazy_regex


class Kind(Enum):
    """What a plane is."""

    DEVICE = auto()
    CHIP = auto()  # beside the cores: memory, links between chips
    HOST = auto()  # threads
    RUNTIME = auto()  # calls into a driver or a runtime
    NOTES = auto()  # programs, and facts of the recording: no events
    OTHER = auto()


class LineKind(IntEnum):
    """What a line of a device is; the order is that on screen."""

    OTHER = 0
    STEPS = 1
    MODULES = 2  # launches of programs
    OPERATIONS = 3
    ASYNC = 4  # from the start of an asynchronous operation to its end
    STREAM = 5
    WAIT = 6
    DERIVED = 7  # says again what other lines say: never counted
    COUNTER = 8


_DEVICE = lazy_regex(r"/device:([A-Za-z]+):(\d{1,18})(?: (.+))?")
_CHIP = lazy_regex(r"#Chip\b.*?\b(?:TPU|GPU) ?(\d{1,18})\b.*", re.DOTALL)
_RUNTIMES = ("/host:CUPTI", "/host:ROCTRACER", "/host:TPU-runtime")
_NOTES = ("/host:metadata", "Task Environment", "/host:__ScopeRangeCallStack__")
_THREADS = ("/host:CPU", "/host:python-tracer")
_STREAM = lazy_regex(r"Stream #-?\d+")

_TPU_LINES = {
    "Steps": LineKind.STEPS,
    "XLA Modules": LineKind.MODULES,
    "XLA Ops": LineKind.OPERATIONS,
    "Sparse Core Ops": LineKind.OPERATIONS,
    "Async XLA Ops": LineKind.ASYNC,
    "XLA TraceMe": LineKind.WAIT,
    **dict.fromkeys(
        ("Framework Name Scope", "Framework Ops", "Source code", "Host Offload Ops"),
        LineKind.DERIVED,
    ),
    **dict.fromkeys(("TensorFlow Name Scope", "TensorFlow Ops"), LineKind.DERIVED),
}
_GPU_DERIVED = (
    *("Steps", "Launch Stats", "Framework Name Scope", "Framework Ops", "XLA Modules", "XLA Ops"),
    *("Source code", "Source Code", "Host Offload Ops", "TensorFlow Name Scope", "TensorFlow Ops"),
    *("Async XLA Ops", "XLA Overhead"),
)
_COUNTERS = ("_counters_", "counters_")


def kind_of(plane: str) -> Kind:
    """What a plane is, by its name."""
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
    """The number of the device a plane is of, -1 if it is of none."""
    if match := _DEVICE.fullmatch(plane):
        return int(match[2])
    match = _CHIP.fullmatch(plane)
    return int(match[1]) if match else -1


def device_kind(plane: str) -> str:
    """ "TPU", "GPU", ... of the plane of a device."""
    match = _DEVICE.fullmatch(plane)
    return match[1].upper() if match else ""


def line_kind(plane: str, line: str) -> LineKind:
    """What a line of a device is.

    On GPUs only streams are measured: lines of all other names are made of them.
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
        first:   whether rows of the host that are of no device are its.
    """

    kind: str
    number: int
    numbers: tuple[int, ...] = ()
    first: bool = True

    def part(self, plane: str) -> str:
        """The part of the device a plane is of ("SparseCore 0"), "" for the whole."""
        match = _DEVICE.fullmatch(plane)
        return (match[3] or "") if match else ""
