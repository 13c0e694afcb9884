"""Track, class and name of records, derived once per distinct combination of their texts."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I8, I32, Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex, natural
from traceconv.readers.shared.collective_names import library_of, names_operation
from traceconv.readers.shared.gpu_kernels import kernel_class, step_number

KINDS = {
    "compute": (Layer.DEVICE, OpClass.COMPUTE),
    "comm": (Layer.COMM, OpClass.COMM),
    "memcpy": (Layer.DEVICE, OpClass.COPY),
    "host": (Layer.HOST, OpClass.HOST),
    "runtime": (Layer.RUNTIME, OpClass.HOST),
    "step": (Layer.STEP, OpClass.ITERATION),
    "phase": (Layer.STEP, OpClass.OTHER),
}
"""Layer and class of each kind but "other"."""

_SYNONYMS = {
    "communication": "comm", "collective": "comm", "nccl": "comm",
    "hccl": "comm", "copy": "memcpy", "memset": "memcpy", "cuda_memcpy": "memcpy",
    "cuda_memset": "memcpy", "cpu": "host", "nvtx": "host", "api": "runtime",
    "iteration": "step", "iter": "step",
}  # fmt: skip

_OF_DEVICE = ("gpu", "npu", "device")
"""Kinds that say where an event is, and not what it does."""

KIND_WORDS = frozenset((*KINDS, *_SYNONYMS, *_OF_DEVICE, "kernel", "other"))
"""Every word of a kind."""

_COPY_NAME = lazy_regex(r"\[?\s*(?:cuda|hip)?[ _]?mem(?:cpy|set)", re.IGNORECASE)
_NUMBER_BEHIND = lazy_regex(r"(\d{1,9})\D*\Z")
_PHASES = (
    (OpClass.FP_BP, ("forward", "fwd", "backward", "bwd", "fp_bp")),
    (OpClass.TAIL, ("optimizer", "optim", "opt", "update", "refresh", "tail")),
    (OpClass.REDUCE, ("reduce",)),
    (OpClass.INTERVAL, ("dataload", "data", "interval")),
)


class EventClass(NamedTuple):
    """Class of an event, the step in its name, and whether its kind is known."""

    layer: Layer
    op: OpClass
    step: int = -1
    known: bool = True


class Spot(NamedTuple):
    """The place that a record states."""

    stream: str = ""
    thread: str = ""
    plane: str = ""
    device: str = ""
    process: str = ""


def event_class(kind: str, name: str, spot: Spot, comm_words: Sequence[str] = ()) -> EventClass:
    """Class of an event.

    Without a kind, name and place decide: on a thread host work; else communication if the name
    says so; on a device stream a copy, or unclassified; elsewhere a step, a phase of one, or other.
    A "kernel" communicates or copies if its name says so, and else computes; other work of a
    "gpu" is unclassified.

    Args:
        kind: of the record; "" if it states none.
        comm_words: the user's own words (lower case) for kernels that communicate.
    """
    low = kind.lower()
    if low == "kernel":
        plain = _kernel(name, comm_words) or "compute"
    elif low in _OF_DEVICE:
        plain = _kernel(name, comm_words) or "unclassified"
    else:
        plain = _SYNONYMS.get(low, low) or _by_name(name, spot, comm_words)
    if plain == "unclassified":
        return EventClass(Layer.DEVICE, OpClass.UNCLASSIFIED)
    if plain not in KINDS:
        layer = Layer.DEVICE if spot.stream else Layer.HOST if spot.thread else Layer.OTHER
        return EventClass(layer, OpClass.OTHER, known=plain == "other")
    layer, op = KINDS[plain]
    if plain == "phase":
        words = ((op, word) for op, words in _PHASES for word in words)
        return EventClass(layer, next((op for op, w in words if w in name.lower()), OpClass.OTHER))
    if plain == "step":
        match = _NUMBER_BEHIND.search(name)
        return EventClass(layer, op, int(match[1]) if match else -1)
    return EventClass(layer, op, step_number(name) if plain == "host" else -1)


def _kernel(name: str, comm_words: Sequence[str]) -> str:
    """The kind of a kernel whose name says it; "" for others."""
    op = kernel_class(name, comm_words)
    if op is OpClass.COMM or names_operation(name):
        return "comm"
    return "memcpy" if op is OpClass.COPY or _COPY_NAME.match(name) else ""


def _by_name(name: str, spot: Spot, comm_words: Sequence[str]) -> str:
    if spot.thread:
        return "host"
    kernel = _kernel(name, comm_words)
    if spot.plane or kernel == "comm":
        return "comm"
    if spot.stream:
        return kernel or "unclassified"
    if step_number(name) >= 0:
        return "step"
    words = {word for _, words in _PHASES for word in words}
    return "phase" if name.lower() in words else "other"


# -- lanes ----------------------------------------------------------------------------------


class Lane(NamedTuple):
    """A track before it is known whether the log has several devices or processes."""

    layer: Layer
    title: str
    spot: Spot
    counter: str = ""


def lane_of(layer: Layer, title: str, name: str, spot: Spot) -> Lane:
    """The lane of a slice or an instant.

    Communication on a named plane has the title "Communication"; on a stream that of its library,
    as in other readers; ``title`` is for all other lanes.
    """
    if layer is Layer.COMM:
        library = None if spot.plane else library_of(name)
        title = library.title if library else ""
    return Lane(layer, title, Spot() if layer is Layer.STEP else spot)


def track_of(lane: Lane, devices: bool, processes: bool) -> Track:
    """The lane as a track.

    Args:
        devices, processes: whether the log has several; then tracks name theirs.
    """
    spot = lane.spot
    places = []
    if devices and spot.device:
        places.append(f"GPU {spot.device}")
    if processes and spot.process:
        places.append(f"Process {spot.process}")
    group, name = ", ".join(places), _lane_name(lane.layer, spot)
    columns: dict[str, Any] = {
        "device": natural(spot.device),
        "device_kind": "GPU" if spot.device else "",
        "stream": natural(spot.stream),
        "process": natural(spot.process) if processes else -1,
        "thread": natural(spot.thread),
    }
    if lane.counter:
        if spot.stream or spot.thread or spot.plane:
            group = ", ".join([*places, _lane_name(Layer.OTHER, spot)])
        return Track(Layer.COUNTER, lane.counter, group, unit="", **columns)
    if lane.layer is Layer.COMM and spot.plane:
        numbered = spot.plane.isdecimal()
        columns["communicator"] = "" if numbered else spot.plane
        columns["communicator_index"] = natural(spot.plane) if numbered else -1
    return Track(lane.layer, name, group, lane.title, **columns)


_NOWHERE = {
    Layer.STEP: "iterations",
    Layer.DEVICE: "No stream",
    Layer.COMM: "Communication",
    Layer.HOST: "Host",
    Layer.RUNTIME: "Calls",
}


def _lane_name(layer: Layer, spot: Spot) -> str:
    for text, word in ((spot.plane, "Group"), (spot.stream, "Stream"), (spot.thread, "Thread")):
        if text:
            return f"{word} {text}" if text.isdecimal() else text
    return _NOWHERE.get(layer, "Events")


_WORDS = ("kind", "name", "title", "stream", "thread", "plane", "device", "process")


@dataclass(frozen=True)
class Table:
    """Lane, class and name of each combination of texts, by its number.

    Attributes:
        lane:    number of the lane.
        op:      class of the event.
        name:    string id.
        step:    the step in the name, -1 without one.
        key:     of spot and name: begins and ends are joined within one key.
        unknown: whether the kind is unknown.
    """

    lane: I32
    op: I8
    name: I32
    step: I32
    key: I32
    unknown: NDArray[np.bool_]


class Places:
    """Numbers combinations of texts, and makes tracks of them once all are known."""

    def __init__(self, build: TraceBuilder) -> None:
        self._build = build
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._table = tuple(array("i") for _ in range(6))  # lane, op, name, step, key, unknown
        self._lanes: dict[Lane, int] = {}
        self._keys: dict[tuple[Spot, str], int] = {}

    def numbers(self, columns: Mapping[str, Sequence[str]], counter: NDArray[np.bool_]) -> I32:
        """The number of each record's combination of texts.

        Args:
            counter: which records are samples of a counter.
        """
        words = [columns.get(word) or repeat("") for word in _WORDS]
        numbers, new = self._numbers, self._new
        keys = zip(counter.tolist(), *words, strict=False)
        combinations = (numbers[key] if key in numbers else new(key) for key in keys)
        return np.fromiter(combinations, np.int32, len(counter))

    def _new(self, key: tuple[Any, ...]) -> int:
        name = key[2]  # with its blanks
        counter, kind, _, title, *spot_words = (
            word.strip() if isinstance(word, str) else word for word in key
        )
        spot = Spot(*spot_words)
        if counter:
            layer, op, step, is_known = EventClass(Layer.COUNTER, OpClass.OTHER)
            lane = Lane(layer, "", spot, name.strip())
        else:
            layer, op, step, is_known = event_class(
                kind, name.strip(), spot, self._build.comm_words
            )
            lane = lane_of(layer, title, name.strip(), spot)
        row = (
            self._lanes.setdefault(lane, len(self._lanes)),
            op,
            self._build.string(name),
            step,
            self._keys.setdefault((spot, name), len(self._keys)),
            not is_known,
        )
        for column, value in zip(self._table, row, strict=True):
            column.append(value)
        return self._numbers.setdefault(key, len(self._numbers))

    def table(self) -> Table:
        """The combinations so far."""
        lane, op, name, step, key, unknown = (np.array(c, np.int32) for c in self._table)
        return Table(lane, op.astype(np.int8), name, step, key, unknown.astype(bool))

    def tracks(self) -> I32:
        """The builder's track of each lane."""
        devices = len({lane.spot.device for lane in self._lanes} - {""}) > 1
        processes = len({lane.spot.process for lane in self._lanes} - {""}) > 1
        tracks = [self._build.add_track(track_of(a, devices, processes)) for a in self._lanes]
        return np.array(tracks, np.int32)
