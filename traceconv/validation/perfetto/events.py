"""Events of a Perfetto file as columns, and what one TrackEvent message adds to them."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from traceconv.validation.perfetto.tracks import Descriptors, TrackKey
from traceconv.validation.perfetto.wire import (
    FIXED64,
    BrokenMessage,
    Field,
    Packets,
    Value,
    double,
    fields,
    integers,
    is_utf8,
    last_values,
    message,
    number,
    signed,
    signed32,
    text,
    whole_fields,
)
from traceconv.validation.rules import Tally

BEGIN, END, INSTANT, COUNTER, STATE, GPU = 1, 2, 3, 4, 5, 6
"""Kinds of events."""

CATEGORIES, EVENT_NAMES, NAMES, GPU_SPECIFICATIONS, STRINGS, CORRELATIONS = 1, 2, 3, 24, 29, 43
"""Tables of interned data."""

_TEXTS = frozenset({1, 2, 3, 5, 16, 17, 18, 22, 24, 26, 27, 29, 43})
"""Tables whose entries are ``iid=1, text=2``."""

MAX_EXTRA = 8
_JUDGED = 1 << 16
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
            self._texts[key] = text(last_values(self.entries[key]).get(2, b""))
        return self._texts.get(key)

    def intern(self, data: Value, tally: Tally, where: str) -> None:
        """Take in an InternedData message."""
        for table, _, value in checked(data, tally, where):
            entry = message(value)
            last = {n: v for n, _, v in checked(entry, tally, where)}
            iid = number(last.get(1, 0))
            if not iid:
                tally.add("P04-id", where, "interned_data_tokenizer_errors")
                continue
            if self.entries.setdefault((table, iid), entry) != entry:
                tally.add("P05-redefined", f"table {table} id {iid}, {where}")
            if table in _TEXTS and not is_utf8(last.get(2, b"")):
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
        self.clock = number(of_packet.get(58, 0))
        self.track = number(of_event[11]) if 11 in of_event else None
        self.extra_tracks = tuple(integers(event, 31))
        self.extra_double_tracks = tuple(integers(event, 45))
        self.version += 1

    def key(self, last: dict[int, Value]) -> TrackKey:
        """The track of an event: its own, the default, the thread of the sequence, or the root."""
        if 11 in last:
            return self.machine, number(last[11])
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


@dataclass
class Columns:
    """The events of a file, in file order.

    Attributes:
        ts, shape, place: one entry per event: ns, index into ``shapes``, place of its packet.
        flow_event, flow_id, flow_ends: one entry per flow id of an event (its number, the id, and
            whether it terminates the flow).
        counter_ts, counter_track, counter_value: samples; the track indexes ``counter_tracks``.
        gpu_links: event number to (submitted, awaited) GPU event ids.
        awaited: ids that arguments used before they were defined: how often.
    """

    packets: Packets
    descriptors: Descriptors
    ts: array[int] = field(default_factory=lambda: array("q"))
    shape: array[int] = field(default_factory=lambda: array("i"))
    place: array[int] = field(default_factory=lambda: array("q"))
    shapes: dict[Shape, int] = field(default_factory=dict)
    flow_event: array[int] = field(default_factory=lambda: array("q"))
    flow_id: array[int] = field(default_factory=lambda: array("Q"))
    flow_ends: array[int] = field(default_factory=lambda: array("b"))
    counter_ts: array[int] = field(default_factory=lambda: array("q"))
    counter_track: array[int] = field(default_factory=lambda: array("i"))
    counter_value: array[float] = field(default_factory=lambda: array("d"))
    counter_tracks: dict[tuple[int, int], int] = field(default_factory=dict)
    gpu_links: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    attributes: dict[str, str | int] = field(default_factory=dict)
    awaited: Counter[tuple[Generation, int, int]] = field(default_factory=Counter)
    machines: int = 1

    def add(self, ts: int, shape: Shape, place: int) -> None:
        """Append an event."""
        self.ts.append(ts)
        self.shape.append(self.shapes.setdefault(shape, len(self.shapes)))
        self.place.append(place)

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
            found = fields(data)
        except BrokenMessage as e:
            self._bad("P01-message", place)
            found = e.fields
        last = {n: v for n, _, v in found}
        event = Event(signed32(last.get(9, 0)), found, last, sequence, place)
        special = event.kind not in _SLICES or not _SPECIAL.isdisjoint(last)
        if special and not self._special(event, ts):
            return -1
        shape = self._shape(event)
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

    def _shape(self, event: Event) -> int:
        """The number of an event's shape."""
        kind, found, last, sequence, place = event
        name = last.get(10) or last.get(23)
        plain = 3 not in last and 22 not in last
        key = (kind, last.get(11, sequence.track), name, sequence.generation, sequence.thread)
        known = self._shapes.get(key) if plain else None
        if known is None:
            named = self._text(name, place) if isinstance(name, bytes) else name
            texts = [self._text(message(v), place) for n, _, v in found if n == 22]
            categories: tuple[str | int, ...] = (*integers(found, 3), *texts)
            shape = Shape(kind, sequence.key(last), named, categories, sequence.generation)
            known = self.columns.shapes.setdefault(shape, len(self.columns.shapes))
            if plain:
                self._shapes[key] = known
        return known

    def _text(self, raw: bytes, place: int) -> str:
        """A name or category; equal ones are one object."""
        if raw not in self._names:
            self._names[raw] = text(raw)
            if not is_utf8(raw):
                self._bad("P22-value", place)
        return self._names[raw]

    def _arguments(self, event: Event) -> None:
        """Judge the annotations of an event."""
        generation = event.sequence.generation
        judged = generation.judged
        for n, _, annotation in event.found:
            if n != 4 or annotation in judged:
                continue
            iids, rules = _examined(message(annotation))
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
            for flow in integers(found, fixed, FIXED64) or integers(found, old):
                columns.flow_event.append(made)
                columns.flow_id.append(flow)
                columns.flow_ends.append(ends)
        if 3000 in last:
            links = whole_fields(last[3000])
            columns.gpu_links[made] = (integers(links, 1), integers(links, 2))
        generation, iid = event.sequence.generation, number(last.get(54, 0))
        if iid and (CORRELATIONS, iid) not in generation.entries:
            columns.awaited[generation, CORRELATIONS, iid] += 1
        if not is_utf8(last.get(53, b"")):
            self._bad("P22-value", event.place)

    # -- counters ------------------------------------------------------------------------------

    def _special(self, event: Event, ts: int) -> bool:
        """Counters, states, extra values and what is no event; whether an event remains."""
        kind, _, last, sequence, place = event
        if not _LEGACY.isdisjoint(last):
            self._bad("P09-legacy", place)
            return False
        samples: list[tuple[int, float]] = []
        why = ""
        if kind in (COUNTER, STATE) and sequence.track is None and 11 not in last:
            why = f"{'counter' if kind == COUNTER else 'state'}_missing_track_uuid"
        elif kind == COUNTER:
            why = self._own_sample(event, samples)
        why = why or self._extra_samples(event, samples)
        if why:
            self._bad("P18-counter", place, f"track_event_{why}")
            return False
        for uuid, value in samples:
            self.columns.sample(ts, (sequence.machine, uuid), value)
        if kind not in (*_SLICES, COUNTER, STATE):
            self._bad("P09-type", place)
        return kind in (*_SLICES, STATE)

    def _own_sample(self, event: Event, samples: list[tuple[int, float]]) -> str:
        """Add the value of a counter event; why there is none, "" if there is one."""
        last = event.last
        if 30 not in last and 44 not in last:
            return "counter_missing_value"
        uuid = event.sequence.key(last)[1]
        raw = float(signed(last[30])) if 30 in last else double(last[44])
        value = self._absolute(event, uuid, raw)
        if value is None:
            return "counter_invalid_track_uuid"
        samples.append((uuid, value))
        return ""

    def _extra_samples(self, event: Event, samples: list[tuple[int, float]]) -> str:
        """Add the values that another event carries along; why it is dropped, "" if it is not."""
        found, sequence = event.found, event.sequence
        whole = [float(signed(v)) for v in integers(found, 12)]
        doubles = [double(v) for v in integers(found, 46, FIXED64)]
        most = MAX_EXTRA + len(samples)
        for values, uuids in (
            (whole, integers(found, 31) or sequence.extra_tracks),
            (doubles, integers(found, 45) or sequence.extra_double_tracks),
        ):
            if values and not uuids:
                return "extra_counter_missing_track_uuids"
            for i, raw in enumerate(values):
                if i >= len(uuids) or not uuids[i]:
                    return "extra_counter_track_uuid_mismatch"
                if len(samples) >= most:
                    return "extra_counter_exceeds_max"
                value = self._absolute(event, uuids[i], raw)
                if value is None:
                    return "extra_counter_invalid_track"
                samples.append((uuids[i], value))
        return ""

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


def checked(data: Value, tally: Tally, where: str) -> list[Field]:
    """The fields of a nested message up to the first damage, which breaks a rule."""
    try:
        return fields(message(data))
    except BrokenMessage as e:
        tally.add("P01-message", where)
        return e.fields


def _examined(annotation: bytes) -> tuple[list[tuple[int, int]], list[str]]:
    """Interned (table, id) pairs and broken rules of a DebugAnnotation and all nested in it."""
    iids: list[tuple[int, int]] = []
    rules: list[str] = []
    pending = [(annotation, False)]
    while pending:
        data, named = pending.pop()
        try:
            found = fields(data)
        except BrokenMessage as e:
            rules.append("P01-message")
            found = e.fields
        for n, _, v in found:
            if n == 1 or n == 17:
                named = named or (n == 1 and v != 0)
                if v or n == 17:
                    iids.append((NAMES if n == 1 else STRINGS, number(v)))
            elif n == 10 or n == 6 or n == 9:
                named = named or (n == 10 and v != b"")
                if not is_utf8(v):
                    rules.append("P22-value")
            elif n == 5 and not math.isfinite(double(v)):
                rules.append("P22-value")
            elif n == 11 or n == 12:
                pending.append((message(v), n == 12))  # array elements need no name
        if not named:
            rules.append("P22-value")
    return iids, rules
