"""Collects events, samples and flow ends of a file as columns, in file order.

A mark begins or ends a slice, or is a point in time; which begin belongs to which end is known
when all are read (:mod:`traceconv.readers.perfetto.slices`). Names stay numbers until then: a
packet may use one that a later packet defines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import F64, I8, I32, I64
from traceconv.core.ordering import Parallel
from traceconv.protobuf.message_columns import Codes, codes
from traceconv.protobuf.perfetto_schema import InternedData
from traceconv.readers.perfetto.annotations import objects
from traceconv.readers.perfetto.legacy import FlowEnd
from traceconv.readers.perfetto.state import Sequences, State
from traceconv.readers.perfetto.tracks import Key, track_key

COMPLETE = 6
"""A kind of event: a slice with its length."""

DROPPED = 0
"""A kind of event: none."""

_IID_BITS = 40


@dataclass
class Marks:
    """All events of a file, in its order.

    Attributes:
        dur: of kind :data:`COMPLETE`, ns, by mark.
        time: int64, ns; kind: int8; lane: int32, a code of ``Events.lanes``; name, category:
            int32, codes of ``Events.names`` and ``Events.categories``, -1 = none; args: int32.
    """

    dur: dict[int, int]
    time: I64
    kind: I8
    lane: I32
    name: I32
    category: I32
    args: I32

    def __len__(self) -> int:
        return len(self.time)


@dataclass
class Samples:
    """Counter samples: time (ns), lane, raw value, and the generation their sums belong to."""

    time: I64
    lane: I32
    value: F64
    generation: I32


@dataclass
class Flows(Parallel):
    """Ends of flows: event, id, whether the id is free again, and what kind of id it is."""

    mark: I64
    flow: NDArray[np.uint64]
    closes: NDArray[np.bool_]


class Lanes:
    """Numbers for what slices are stacked by."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._numbers: dict[Key, int] = {}
        self._machines: dict[int, tuple[Codes, NDArray[np.int32]]] = {}

    def number(self, key: Key) -> int:
        """The number of a key, new or known."""
        number = self._numbers.setdefault(key, len(self.keys))
        if number == len(self.keys):
            self.keys.append(key)
        return number

    def tracks(self, machine: int, uuids: I64) -> I32:
        """The numbers of tracks of a machine."""
        uuid_codes, table = self._machines.setdefault(machine, (codes(), np.empty(0, np.int32)))
        had = len(uuid_codes)
        code = np.frombuffer(uuid_codes.numbers(np.ascontiguousarray(uuids)), np.int32)
        if len(uuid_codes) > had:
            new = [int.from_bytes(raw, "little") for raw in uuid_codes.entries(had)]
            new_numbers = [self.number(track_key(machine, uuid)) for uuid in new]
            table = np.concatenate((table, np.array(new_numbers, np.int32)))
            self._machines[machine] = (uuid_codes, table)
        numbers: I32 = table[code]
        return numbers


class Names:
    """Numbers for texts that are stated, or referred to in a generation of interned data.

    Args:
        table: of InternedData.
    """

    def __init__(self, table: int) -> None:
        self._table = table
        self._stated, self._referred = codes(), codes()
        self._wide: dict[tuple[int, int], int] = {}

    def stated(self, data: Any, start: I64, size: I64) -> I32:
        """Numbers of texts in ``data``: even ones."""
        return np.frombuffer(self._stated.texts(data, start, size), np.int32) * np.int32(2)

    def referred(self, generation: I64, iid: I64) -> I32:
        """Numbers of ids: odd ones."""
        wide = (iid < 0) | (iid >= 1 << _IID_BITS)
        key = generation << _IID_BITS | np.where(wide, 0, iid)
        for i in np.flatnonzero(wide).tolist():  # no writer counts that far
            pair = (int(generation[i]), int(iid[i]) & 0xFFFFFFFFFFFFFFFF)
            key[i] = -1 - self._wide.setdefault(pair, len(self._wide))
        codes_found = np.frombuffer(self._referred.numbers(np.ascontiguousarray(key)), np.int32)
        return codes_found * np.int32(2) + np.int32(1)

    def one(self, text: bytes) -> int:
        """The number of a text."""
        size = np.array([len(text)], np.int64)
        return int(self.stated(text, np.zeros(1, np.int64), size)[0])

    def texts(self, sequences: Sequences) -> dict[int, bytes | None]:
        """The text of every number; None where an id was never defined."""
        text_by_number: dict[int, bytes | None] = {
            2 * i: raw for i, raw in enumerate(self._stated.entries(0))
        }
        generations = {state.generation.number: state.generation for state in sequences.states}
        wide = list(self._wide)
        for i, raw in enumerate(self._referred.entries(0)):
            key = int.from_bytes(raw, "little", signed=True)
            generation, iid = divmod(key, 1 << _IID_BITS) if key >= 0 else wide[-1 - key]
            text_by_number[2 * i + 1] = generations[generation].text(self._table, iid)
        return text_by_number


@dataclass
class _Unresolved:
    """Annotations that refer to what is not defined yet."""

    mark: int
    annotations: list[bytes]
    state: State


@dataclass
class Events:
    """Takes packets and collects what they say.

    Attributes:
        submitted, awaited: ids of GPU events, by mark of the host.
        count: marks so far.
    """

    build: TraceBuilder
    sequences: Sequences
    lanes: Lanes = field(default_factory=Lanes)
    names: Names = field(default_factory=lambda: Names(InternedData.EVENT_NAMES))
    categories: Names = field(default_factory=lambda: Names(InternedData.EVENT_CATEGORIES))
    submitted: list[tuple[int, list[int]]] = field(default_factory=list)
    awaited: list[tuple[int, list[int]]] = field(default_factory=list)
    legacy_flows: list[FlowEnd] = field(default_factory=list)
    count: int = 0
    _marks: list[tuple[Any, ...]] = field(default_factory=list)
    _dur: dict[int, int] = field(default_factory=dict)
    _samples: list[tuple[Any, ...]] = field(default_factory=list)
    _flows: list[tuple[Any, ...]] = field(default_factory=list)
    _unresolved: list[_Unresolved] = field(default_factory=list)

    def add(self, time: I64, kind: I8, lane: I32, name: I32, category: I32, args: I32) -> int:
        """Add events; the number of the first."""
        first = self.count
        self._marks.append((time, kind, lane, name, category, args))
        self.count += len(time)
        return first

    def sample(self, time: I64, lane: I32, value: F64, generation: I32) -> None:
        """Add samples of counters."""
        self._samples.append((time, lane, value, generation))

    def flow(self, mark: I64, flow: NDArray[np.uint64], closes: NDArray[np.bool_]) -> None:
        """Add ends of flows."""
        self._flows.append((mark, flow, closes))

    def last(self, mark: int, dur: int) -> None:
        """An event is a slice of this length, ns."""
        self._dur[mark] = dur

    def lasting(self, first: int, dur: I64) -> None:
        """Events from the first one on are slices of these lengths, ns."""
        self._dur.update(zip(range(first, first + len(dur)), dur.tolist(), strict=True))

    def leave(self, mark: int, annotations: list[bytes], state: State) -> None:
        """The arguments of an event are resolved when everything is defined."""
        self._unresolved.append(_Unresolved(mark, annotations, state))

    def marks(self) -> Marks:
        """All events; called once."""
        types = (np.int64, np.int8, np.int32, np.int32, np.int32, np.int32)
        marks_made = Marks(self._dur, *_concatenated(self._marks, types))
        undefined = 0
        for unresolved in self._unresolved:
            data = b"".join(unresolved.annotations)
            size = np.array([len(a) for a in unresolved.annotations], np.int64)
            start = np.concatenate(([0], np.cumsum(size)[:-1]))
            ends = np.array([len(size)])
            resolved_objects = objects(
                data, start, size, ends, unresolved.state.generation.arguments
            )
            marks_made.args[unresolved.mark] = self.build.args(
                resolved_objects.text if len(resolved_objects.text) > 2 else None
            )
            undefined += len(resolved_objects.undefined)
        self.build.skip("interned-unknown", "arguments", undefined)
        return marks_made

    def samples(self) -> Samples:
        """All samples, in the order of the file."""
        return Samples(*_concatenated(self._samples, (np.int64, np.int32, np.float64, np.int32)))

    def flows(self) -> Flows:
        """All ends of flows."""
        return Flows(*_concatenated(self._flows, (np.int64, np.uint64, np.bool_)))


def _concatenated(parts: list[tuple[Any, ...]], types: tuple[Any, ...]) -> Iterator[NDArray[Any]]:
    """Columns of all parts, one after the other, so that not all are there twice."""
    if not parts:
        return iter([np.empty(0, dtype) for dtype in types])
    columns_made = []
    remaining = [list(part) for part in parts]
    parts.clear()
    for i, dtype in enumerate(types):
        columns_made.append(np.concatenate([np.asarray(part[i], dtype) for part in remaining]))
        for part in remaining:
            part[i] = None
    return iter(columns_made)
