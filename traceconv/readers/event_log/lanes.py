"""Everything that follows from the words of a record - its lane, class and name - once per
distinct set of words, not once per record."""

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
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.collective_names import library_of
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
    "kernel": "compute", "communication": "comm", "collective": "comm", "nccl": "comm",
    "hccl": "comm", "copy": "memcpy", "memset": "memcpy", "cuda_memcpy": "memcpy",
    "cuda_memset": "memcpy", "cpu": "host", "nvtx": "host", "api": "runtime",
    "iteration": "step", "iter": "step",
}  # fmt: skip

_COPY_NAME = lazy_regex(r"\[?\s*(?:cuda|hip)?[ _]?mem(?:cpy|set)", re.IGNORECASE)
_NUMBER_BEHIND = lazy_regex(r"(\d{1,9})\D*\Z")
_PHASES = (
    (OpClass.FP_BP, ("forward", "fwd", "backward", "bwd", "fp_bp")),
    (OpClass.TAIL, ("optimizer", "optim", "opt", "update", "refresh", "tail")),
    (OpClass.REDUCE, ("reduce",)),
    (OpClass.INTERVAL, ("dataload", "data", "interval")),
)


class What(NamedTuple):
    """What an event is: its class, the step in its name, and whether its kind is known."""

    layer: Layer
    op: OpClass
    step: int = -1
    known: bool = True


class Spot(NamedTuple):
    """Where an event belongs, as its record says."""

    stream: str = ""
    thread: str = ""
    plane: str = ""
    device: str = ""
    process: str = ""


def what(kind: str, name: str, spot: Spot, comm_words: Sequence[str] = ()) -> What:
    """Class of an event.

    A kind that its record does not state is taken from the name and the place: on a device stream a
    kernel, a copy or communication (:func:`kernel_class`); on a thread host work;
    elsewhere communication, a step, a phase of one, or anything.

    Args:
        kind: as the record says it; "" if it does not.
        comm_words: the user's own words (lower case) for kernels that communicate.
    """
    low = kind.lower()
    plain = _SYNONYMS.get(low, low) or _by_name(name, spot, comm_words)
    if plain not in KINDS:
        return What(_home(spot), OpClass.OTHER, known=plain == "other")
    layer, op = KINDS[plain]
    if plain == "phase":
        return What(layer, _phase(name))
    if plain == "step":
        return What(layer, op, _step(name))
    return What(layer, op, step_number(name) if plain == "host" else -1)


def _by_name(name: str, spot: Spot, comm_words: Sequence[str]) -> str:
    if spot.thread:
        return "host"
    op = kernel_class(name, comm_words)
    if spot.plane or op is OpClass.COMM:
        return "comm"
    if spot.stream:
        return "memcpy" if op is OpClass.COPY or _COPY_NAME.match(name) else "compute"
    if step_number(name) >= 0:
        return "step"
    words = {word for _, words in _PHASES for word in words}
    return "phase" if name.lower() in words else "other"


def _home(spot: Spot) -> Layer:
    """The layer of an event that is nothing in particular."""
    if spot.stream:
        return Layer.DEVICE
    return Layer.HOST if spot.thread else Layer.OTHER


def _phase(name: str) -> OpClass:
    low = name.lower()
    return next((op for op, words in _PHASES if any(w in low for w in words)), OpClass.OTHER)


def _step(name: str) -> int:
    match = _NUMBER_BEHIND.search(name)
    return int(match[1]) if match else -1


# -- lanes ----------------------------------------------------------------------------------


class Lane(NamedTuple):
    """A row of the viewer before it is known whether several devices or processes share it."""

    layer: Layer
    title: str
    spot: Spot
    counter: str = ""


def lane_of(layer: Layer, title: str, name: str, spot: Spot) -> Lane:
    """The lane of a slice or an instant.

    Communication on a named plane is "Communication"; on a stream it bears the name of its
    library, as in the readers of profilers. ``title`` heads all other lanes.
    """
    if layer is Layer.COMM:
        library = None if spot.plane else library_of(name)
        title = library.title if library else ""
    return Lane(layer, title, Spot() if layer is Layer.STEP else spot)


def track_of(lane: Lane, devices: bool, processes: bool) -> Track:
    """The lane as a track.

    Args:
        devices, processes: whether there are several; then lanes say which they belong to.
    """
    spot = lane.spot
    places = []
    if devices and spot.device:
        places.append(f"GPU {spot.device}")
    if processes and spot.process:
        places.append(f"Process {spot.process}")
    group, name = ", ".join(places), _lane_name(lane.layer, spot)
    columns: dict[str, Any] = {
        "device": _number(spot.device),
        "device_kind": "GPU" if spot.device else "",
        "stream": _number(spot.stream),
        "process": _number(spot.process) if processes else -1,
        "thread": _number(spot.thread),
    }
    if lane.counter:
        if spot.stream or spot.thread or spot.plane:
            group = ", ".join([*places, _lane_name(Layer.OTHER, spot)])
        return Track(Layer.COUNTER, lane.counter, group, unit="", **columns)
    if lane.layer is Layer.COMM and spot.plane:
        numbered = spot.plane.isdecimal()
        columns["communicator"] = "" if numbered else spot.plane
        columns["communicator_index"] = _number(spot.plane) if numbered else -1
    return Track(lane.layer, name, group, lane.title, **columns)


def _number(digits: str) -> int:
    """An id that a record has as text; -1 if it is no number."""
    return int(digits) if len(digits) <= 18 and digits.isascii() and digits.isdecimal() else -1


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
    """What follows from each set of words, by its number.

    Attributes:
        lane:    number of its lane.
        op:      class of the event.
        name:    string id.
        step:    the step in its name, -1 if none.
        key:     what begins and ends are joined within: the spot and the name.
        unknown: whether its kind is unknown.
    """

    lane: I32
    op: I8
    name: I32
    step: I32
    key: I32
    unknown: NDArray[np.bool_]


class Places:
    """Numbers sets of words, and turns them into lanes when all are known."""

    def __init__(self, build: TraceBuilder) -> None:
        self._build = build
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._table = tuple(array("i") for _ in range(6))  # lane, op, name, step, key, unknown
        self._lanes: dict[Lane, int] = {}
        self._keys: dict[tuple[Spot, str], int] = {}

    def numbers(self, columns: Mapping[str, Sequence[str]], counter: NDArray[np.bool_]) -> I32:
        """The number of each record's words.

        Args:
            counter: which records are samples of a counter.
        """
        words = [columns.get(word) or repeat("") for word in _WORDS]
        known, new = self._numbers, self._new
        keys = zip(counter.tolist(), *words, strict=False)
        found = (known[key] if key in known else new(key) for key in keys)
        return np.fromiter(found, np.int32, len(counter))

    def _new(self, key: tuple[Any, ...]) -> int:
        name = key[2]  # as it is written, with its blanks
        counter, kind, _, title, *spot_words = (
            word.strip() if isinstance(word, str) else word for word in key
        )
        spot = Spot(*spot_words)
        if counter:
            lane, op, step, known = (
                Lane(Layer.COUNTER, "", spot, name.strip()),
                OpClass.OTHER,
                -1,
                True,
            )
        else:
            layer, op, step, known = what(kind, name.strip(), spot, self._build.comm_words)
            lane = lane_of(layer, title, name.strip(), spot)
        row = (
            self._lanes.setdefault(lane, len(self._lanes)),
            op,
            self._build.string(name),
            step,
            self._keys.setdefault((spot, name), len(self._keys)),
            not known,
        )
        for column, value in zip(self._table, row, strict=True):
            column.append(value)
        return self._numbers.setdefault(key, len(self._numbers))

    def table(self) -> Table:
        """What follows from all words so far."""
        lane, op, name, step, key, unknown = (np.array(c, np.int32) for c in self._table)
        return Table(lane, op.astype(np.int8), name, step, key, unknown.astype(bool))

    def tracks(self) -> I32:
        """The builder's track of each lane."""
        devices = len({lane.spot.device for lane in self._lanes} - {""}) > 1
        processes = len({lane.spot.process for lane in self._lanes} - {""}) > 1
        found = [self._build.add_track(track_of(a, devices, processes)) for a in self._lanes]
        return np.array(found, np.int32)
