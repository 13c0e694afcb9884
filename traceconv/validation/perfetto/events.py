"""Events of a Perfetto file as columns, and what one TrackEvent message adds to them."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from traceconv.core.columns import I32, I64
from traceconv.protobuf import message as wire
from traceconv.protobuf.message import BrokenMessage, Field, Value
from traceconv.validation.perfetto.frames import Packets
from traceconv.validation.perfetto.tracks import Descriptors, TrackKey
from traceconv.validation.rules import Tally

BEGIN, END, INSTANT, COUNTER, STATE, GPU = 1, 2, 3, 4, 5, 6
"""Kinds of events."""

CATEGORIES, EVENT_NAMES, NAMES, GPU_SPECIFICATIONS, STRINGS, CORRELATIONS = 1, 2, 3, 24, 29, 43
"""Tables of interned data."""

_TEXTS = frozenset({1, 2, 3, 5, 16, 17, 18, 22, 24, 26, 27, 29, 43})
"""Tables whose entries are ``iid=1, text=2``."""

MAX_EXTRA = 8
_JUDGED = 1 << 14
"""Annotations without fault that are remembered per generation."""
_SLICES = (BEGIN, END, INSTANT)
_LEGACY = frozenset({1, 6, 16})
_SPECIAL = _LEGACY | {12, 46}
_LINKS = frozenset({36, 42, 47, 48, 53, 54, 3000})
_PLAIN = frozenset({3, 9, 10, 11, 22, 23, 52})
"""Fields that make an event the same wherever its bytes are the same."""


@dataclass(eq=False)
class Generation:
    """Interned data from one clearing of a sequence's state to the next.

    Attributes:
        entries: raw entries by table and id.
        judged:  annotations without fault.
    """

    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    judged: set[Value] = field(default_factory=set)
    _texts: dict[tuple[int, int], str] = field(default_factory=dict)

    def text(self, table: int, iid: int) -> str | None:
        """The text of an entry, None if there is none."""
        key = (table, iid)
        if key not in self._texts and key in self.entries:
            self._texts[key] = wire.text(wire.last_values(self.entries[key]).get(2, b""))
        return self._texts.get(key)

    def intern(self, data: Value, tally: Tally, where: str) -> None:
        """Take in an InternedData message."""
        for table, _, value in checked(data, tally, where):
            entry = wire.message(value)
            last = {n: v for n, _, v in checked(entry, tally, where)}
            iid = wire.number(last.get(1, 0))
            if not iid:
                tally.add("P04-id", where, "interned_data_tokenizer_errors")
                continue
            if self.entries.setdefault((table, iid), entry) != entry:
                tally.add("P05-redefined", f"table {table} id {iid}, {where}")
            if table in _TEXTS and not wire.is_utf8(last.get(2, b"")):
                tally.add("P22-value", where)


@dataclass(eq=False)
class Sequence:
    """The state of one writer.

    Attributes:
        number, machine: its ids.
        valid:      whether its state was cleared since the start or the last loss.
        version:    changes whenever an earlier reading of equal bytes no longer is valid.
        thread:     (pid, tid) of the last thread described on it.
        totals:     absolute values of incremental counters, by track uuid.
        clock, track, extra_tracks, extra_double_tracks: defaults of its packets.
    """

    number: int
    machine: int
    valid: bool = False
    version: int = 0
    generation: Generation = field(default_factory=Generation)
    thread: tuple[int, int] | None = None
    totals: dict[int, float] = field(default_factory=dict)
    clock: int = 0
    track: int | None = None
    extra_tracks: tuple[int, ...] = ()
    extra_double_tracks: tuple[int, ...] = ()

    def clear(self) -> None:
        """Start over with empty state."""
        self.valid, self.generation, self.totals = True, Generation(), {}
        self.set_defaults([], [])

    def set_defaults(self, packet: list[Field], event: list[Field]) -> None:
        """Use the fields of TracePacketDefaults, and of the TrackEventDefaults in it."""
        of_packet, of_event = ({n: v for n, _, v in found} for found in (packet, event))
        self.clock = wire.number(of_packet.get(58, 0))
        self.track = wire.number(of_event[11]) if 11 in of_event else None
        self.extra_tracks = tuple(wire.integers(event, 31))
        self.extra_double_tracks = tuple(wire.integers(event, 45))
        self.version += 1

    def key(self, last: dict[int, Value]) -> TrackKey:
        """The track of an event: its own, the default, the thread of the sequence, or the root."""
        if 11 in last:
            return self.machine, wire.number(last[11])
        if self.track is not None:
            return self.machine, self.track
        return (self.machine, *self.thread) if self.thread else (self.machine, 0)


class Shape(NamedTuple):
    """Everything of an event but its time; ids of texts are resolved when all are known."""

    kind: int
    track: TrackKey
    name: str | int | None
    categories: tuple[str | int, ...]
    generation: Generation


class Columns:
    """The events of a file, in file order.

    Attributes:
        ts, shape, place: one entry per event: ns, index into ``shapes``, place of its packet.
        flow_event, flow_id, flow_ends: one entry per flow id of an event (its number, the id, and
            whether it terminates the flow).
        counter_ts, counter_track, counter_value: samples; the track indexes ``counter_tracks``.
        gpu_links: event number to (submitted, awaited) GPU event ids.
        awaited: ids that arguments used before they were defined: how often.
        other_sources: whether there are packets of other data sources.
    """

    def __init__(self, packets: Packets, descriptors: Descriptors) -> None:
        self.packets, self.descriptors, self.machines = packets, descriptors, 1
        self.other_sources = False
        self.ts, self.shape, self.place = array("q"), array("i"), array("q")
        self.flow_event, self.flow_id, self.flow_ends = array("q"), array("Q"), array("b")
        self.counter_ts, self.counter_track = array("q"), array("i")
        self.counter_value = array("d")
        self.shapes: dict[Shape, int] = {}
        self.counter_tracks: dict[tuple[int, int], int] = {}
        self.gpu_links: dict[int, tuple[list[int], list[int]]] = {}
        self.attributes: dict[str, str | int] = {}
        self.awaited: Counter[tuple[Generation, int, int]] = Counter()

    def add(self, ts: int, shape: Shape, place: int) -> None:
        """Append an event."""
        self.ts.append(ts)
        self.shape.append(self.shapes.setdefault(shape, len(self.shapes)))
        self.place.append(place)

    def add_all(self, ts: I64, shape: I32, place: I64, links: tuple[I64, Any, Any]) -> None:
        """Append events.

        Args:
            links: of flows: which of the events, whether the flow ends there, its id.
        """
        made = len(self.ts)
        for column, values in (
            (self.ts, ts), (self.shape, shape), (self.place, place),
            (self.flow_event, links[0] + made), (self.flow_ends, links[1]),
            (self.flow_id, links[2]),
        ):  # fmt: skip
            column.frombytes(values.tobytes())

    def sample(self, ts: int, track: tuple[int, int], value: float) -> None:
        """Append a counter sample."""
        self.counter_ts.append(ts)
        self.counter_track.append(self.counter_tracks.setdefault(track, len(self.counter_tracks)))
        self.counter_value.append(value)


class Event(NamedTuple):
    """One TrackEvent: its fields, the last value of each, and where it is."""

    kind: int
    found: list[Field]
    last: dict[int, Value]
    sequence: Sequence
    place: int

    @classmethod
    def of(cls, found: list[Field], sequence: Sequence, place: int) -> Event:
        """By the fields of a message."""
        last = {n: v for n, _, v in found}
        return cls(wire.signed32(last.get(9, 0)), found, last, sequence, place)


@dataclass
class EventReader:
    """Turns TrackEvents into columns."""

    tally: Tally
    columns: Columns
    _names: dict[bytes, str] = field(default_factory=dict)
    _shapes: dict[object, int] = field(default_factory=dict)

    def read(self, data: bytes, sequence: Sequence, ts: int, place: int) -> int:
        """Append one event.

        Returns:
            The index of its shape if equal bytes on the same state give the same; else -1.
        """
        try:
            found = wire.fields(data)
        except BrokenMessage as e:
            self._bad("P01-message", place)
            found = e.fields
        event = Event.of(found, sequence, place)
        last = event.last
        special = event.kind not in _SLICES or not _SPECIAL.isdisjoint(last)
        if special and not self._special(event, ts):
            return -1
        shape = self.shape(event)
        columns = self.columns
        columns.ts.append(ts)
        columns.shape.append(shape)
        columns.place.append(place)
        if _PLAIN.issuperset(last):
            return shape
        if 4 in last:
            self._arguments(event)
        if not _LINKS.isdisjoint(last):
            self._links(event)
        return -1

    def shape(self, event: Event) -> int:
        """The number of an event's shape."""
        kind, found, last, sequence, place = event
        name = last.get(10) or last.get(23)
        plain = 3 not in last and 22 not in last
        key = (kind, last.get(11, sequence.track), name, sequence.generation, sequence.thread)
        known = self._shapes.get(key) if plain else None
        if known is None:
            named = self._text(name, place) if isinstance(name, bytes) else name
            texts = [self._text(wire.message(v), place) for n, _, v in found if n == 22]
            categories: tuple[str | int, ...] = (*wire.integers(found, 3), *texts)
            shape = Shape(kind, sequence.key(last), named, categories, sequence.generation)
            known = self.columns.shapes.setdefault(shape, len(self.columns.shapes))
            if plain:
                self._shapes[key] = known
        return known

    def _text(self, raw: bytes, place: int) -> str:
        """A name or category; equal ones are one object."""
        if raw not in self._names:
            self._names[raw] = wire.text(raw)
            if not wire.is_utf8(raw):
                self._bad("P22-value", place)
        return self._names[raw]

    def _arguments(self, event: Event) -> None:
        """Judge the annotations of an event."""
        generation = event.sequence.generation
        judged = generation.judged
        for n, _, annotation in event.found:
            if n != 4 or annotation in judged:
                continue
            iids, rules = examined(wire.message(annotation))
            undefined = [key for key in iids if key not in generation.entries]
            self.columns.awaited.update((generation, *key) for key in undefined)
            for rule in rules:
                self._bad(rule, event.place)
            if not undefined and not rules:
                if len(judged) >= _JUDGED:
                    judged.clear()
                judged.add(annotation)

    def _links(self, event: Event) -> None:
        """Flow ids, correlation ids, and the GPU events a slice submits or awaits."""
        columns, found, last = self.columns, event.found, event.last
        made = len(columns.ts) - 1
        for ends, fixed, old in ((0, 47, 36), (1, 48, 42)):
            for flow in wire.integers(found, fixed, wire.FIXED64) or wire.integers(found, old):
                columns.flow_event.append(made)
                columns.flow_id.append(flow)
                columns.flow_ends.append(ends)
        if 3000 in last:
            links = wire.whole_fields(last[3000])
            columns.gpu_links[made] = (wire.integers(links, 1), wire.integers(links, 2))
        generation, iid = event.sequence.generation, wire.number(last.get(54, 0))
        if iid and (CORRELATIONS, iid) not in generation.entries:
            columns.awaited[generation, CORRELATIONS, iid] += 1
        if not wire.is_utf8(last.get(53, b"")):
            self._bad("P22-value", event.place)

    # -- counters ------------------------------------------------------------------------------

    def _special(self, event: Event, ts: int) -> bool:
        """Counters, states, extra values and what is no event; whether an event remains."""
        kind, _, last, sequence, place = event
        if not _LEGACY.isdisjoint(last):
            self._bad("P09-legacy", place)
            return False
        pairs, why = _values(event)
        samples = [(uuid, self._absolute(event, uuid, raw)) for uuid, raw in pairs if not why]
        if any(value is None for _, value in samples):
            own = kind == COUNTER and samples[0][1] is None
            why = "counter_invalid_track_uuid" if own else "extra_counter_invalid_track"
        if why:
            self._bad("P18-counter", place, f"track_event_{why}")
            return False
        for uuid, value in samples:
            if value is not None:
                self.columns.sample(ts, (sequence.machine, uuid), value)
        if kind not in (*_SLICES, COUNTER, STATE):
            self._bad("P09-type", place)
        return kind in (*_SLICES, STATE)

    def _absolute(self, event: Event, uuid: int, value: float) -> float | None:
        """A counter value in its unit, summed up if the counter is incremental."""
        sequence = event.sequence
        spec = self.columns.descriptors.counter((sequence.machine, uuid))
        if spec is None:
            return None
        if not math.isfinite(value):
            self._bad("P22-value", event.place)
        if spec.multiplier > 0:
            value *= spec.multiplier
        if spec.incremental:
            value += sequence.totals.get(uuid, 0.0)
            sequence.totals[uuid] = value
        return value

    def _bad(self, rule: str, place: int, *stats: str) -> None:
        self.tally.add(rule, self.columns.packets.where(place), *stats)


def _values(event: Event) -> tuple[list[tuple[int, float]], str]:
    """Track uuid and raw value of all samples of an event; and why they are dropped, "" if not."""
    kind, found, last, sequence, _ = event
    pairs: list[tuple[int, float]] = []
    if kind in (COUNTER, STATE) and sequence.track is None and 11 not in last:
        return pairs, f"{'counter' if kind == COUNTER else 'state'}_missing_track_uuid"
    if kind == COUNTER:
        if 30 not in last and 44 not in last:
            return pairs, "counter_missing_value"
        raw = float(wire.signed(last[30])) if 30 in last else wire.double(last[44])
        pairs.append((sequence.key(last)[1], raw))
    most = len(pairs) + MAX_EXTRA
    whole = [float(wire.signed(v)) for v in wire.integers(found, 12)]
    doubles = [wire.double(v) for v in wire.integers(found, 46, wire.FIXED64)]
    for values, uuids in (
        (whole, wire.integers(found, 31) or sequence.extra_tracks),
        (doubles, wire.integers(found, 45) or sequence.extra_double_tracks),
    ):
        if values and not uuids:
            return pairs, "extra_counter_missing_track_uuids"
        for i, value in enumerate(values):
            if i >= len(uuids) or not uuids[i]:
                return pairs, "extra_counter_track_uuid_mismatch"
            if len(pairs) >= most:
                return pairs, "extra_counter_exceeds_max"
            pairs.append((uuids[i], value))
    return pairs, ""


def checked(data: Value, tally: Tally, where: str) -> list[Field]:
    """The fields of a nested message up to the first damage, which breaks a rule."""
    try:
        return wire.fields(wire.message(data))
    except BrokenMessage as e:
        tally.add("P01-message", where)
        return e.fields


def examined(annotation: bytes) -> tuple[list[tuple[int, int]], list[str]]:
    """Interned (table, id) pairs and broken rules of a DebugAnnotation and all nested in it."""
    iids: list[tuple[int, int]] = []
    rules: list[str] = []
    pending = [(annotation, False)]
    while pending:
        data, named = pending.pop()
        try:
            found = wire.fields(data)
        except BrokenMessage as e:
            rules.append("P01-message")
            found = e.fields
        for n, _, v in found:
            if n == 1 or n == 17:
                named = named or (n == 1 and v != 0)
                if v or n == 17:
                    iids.append((NAMES if n == 1 else STRINGS, wire.number(v)))
            elif n == 10 or n == 6 or n == 9:
                named = named or (n == 10 and v != b"")
                if not wire.is_utf8(v):
                    rules.append("P22-value")
            elif n == 5 and not math.isfinite(wire.double(v)):
                rules.append("P22-value")
            elif n == 11 or n == 12:
                pending.append((wire.message(v), n == 12))  # array elements need no name
        if not named:
            rules.append("P22-value")
    return iids, rules
