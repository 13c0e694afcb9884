"""Everything that follows from the words of a record - its lane, class and name - once per
distinct set of words, not once per record."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I8, I32, Layer, OpClass
from traceconv.readers._event_log_kinds import Lane, Spot, lane_of, track_of, what

_WORDS = ("kind", "name", "title", "stream", "thread", "plane", "device", "process")


@dataclass(frozen=True)
class Table:
    """What follows from each set of words, by its number.

    Attributes:
        lane:    number of its lane.
        op:      class of the event.
        name:    string id.
        step:    the step its name stands for, -1 if none.
        key:     what begins and ends are joined within: the spot and the name.
        unknown: whether its kind is one nobody knows.
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
        counter, kind, name, title, *spot_words = (
            word.strip() if isinstance(word, str) else word for word in key
        )
        spot = Spot(*spot_words)
        if counter:
            lane, op, step, known = Lane(Layer.COUNTER, "", spot, name), OpClass.OTHER, -1, True
        else:
            layer, op, step, known = what(kind, name, spot, self._build.comm_words)
            lane = lane_of(layer, title, name, spot)
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
