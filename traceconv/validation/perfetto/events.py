"""TrackEvent messages: one event to its shape, flows, samples and breaches."""

from __future__ import annotations

from dataclasses import dataclass, field

from traceconv.validation.arguments import CORRELATIONS, Facts, examine
from traceconv.validation.perfetto.columns import BEGIN, COUNTER, END, INSTANT, STATE, Shape, Tokens
from traceconv.validation.perfetto.sequences import CATEGORIES, EVENT_NAMES, Sequence, is_utf8
from traceconv.validation.perfetto.tracks import TrackKey
from traceconv.validation.perfetto.wire import (
    BrokenMessage,
    Field,
    Value,
    double,
    fields,
    message,
    number,
    packed,
    packed_fixed64,
    signed,
    signed32,
    text,
    whole_fields,
)
from traceconv.validation.tally import Tally

MAX_EXTRA = 8
_FACTS_KEPT = 1 << 16
_SLICES = (BEGIN, END, INSTANT)
_LEGACY = frozenset({1, 6, 16})
_SPECIAL = _LEGACY | {12, 46}
_LINKS = frozenset({36, 42, 47, 48, 53, 54, 3000})
_PLAIN = frozenset({3, 9, 10, 11, 22, 23, 52})
"""Fields that make an event the same wherever its bytes are the same."""


@dataclass(slots=True)
class Event:
    """The fields of one TrackEvent."""

    last: dict[int, Value]
    found: list[Field]

    @property
    def type(self) -> int:
        """1 begin ... 5 state; 0 if unset."""
        return signed32(self.last.get(9, 0))

    def all(self, *numbers: int) -> list[bytes]:
        """Every nested message or text of these fields, in order."""
        return [message(v) for n, _, v in self.found if n in numbers]

    def integers(self, field_number: int) -> list[int]:
        """A repeated varint field."""
        return [i for n, w, v in self.found if n == field_number for i in packed(w, v)]

    def fixed64(self, field_number: int) -> list[int]:
        """A repeated fixed64 field."""
        return [i for n, w, v in self.found if n == field_number for i in packed_fixed64(w, v)]


def parse(data: bytes) -> Event:
    """The fields of a TrackEvent, up to the first damage."""
    found = whole_fields(data)
    return Event({n: v for n, _, v in found}, found)


@dataclass
class EventReader:
    """Turns TrackEvents into columns."""

    tally: Tally
    tokens: Tokens
    _facts: dict[bytes, Facts] = field(default_factory=dict)
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
        event, kind = Event(last, found), last.get(9, 0)
        special = kind not in _SLICES or not _SPECIAL.isdisjoint(last)
        if special and not self._special(event, sequence, ts, place):
            return -1
        shape = self._shape(event, sequence, place)
        tokens = self.tokens
        tokens.ts.append(ts)
        tokens.shape.append(shape)
        tokens.place.append(place)
        if _PLAIN.issuperset(last):
            return shape
        if 4 in last:
            self._arguments(event.all(4), sequence.generation, place)
        if not _LINKS.isdisjoint(last):
            self._links(event, sequence.generation, place)
        return -1

    def _special(self, event: Event, sequence: Sequence, ts: int, place: int) -> bool:
        """Counters, states, extra values and what is no event; whether an event remains."""
        last, kind = event.last, event.type
        if not _LEGACY.isdisjoint(last):
            return self._bad("P09-legacy", place)
        track = _track(event, sequence)
        value = self._counter(event, sequence, track, place) if kind == COUNTER else 0.0
        if kind == STATE and not (11 in last or sequence.defaults.track is not None):
            return self._bad("P18-state", place)
        if value is None or not self._extras(event, sequence, ts, place):
            return False
        if kind == COUNTER:
            self.tokens.sample(ts, (sequence.machine, track[1]), value)
            return False
        return kind in (*_SLICES, STATE) or self._bad("P09-type", place)

    def _shape(self, event: Event, sequence: Sequence, place: int) -> int:
        """The number of an event's shape."""
        last = event.last
        uuid = last.get(11, sequence.defaults.track)
        name = last.get(10) or last.get(23)
        key = (last[9], uuid, name, sequence.generation, sequence.thread)
        known = self._shapes.get(key) if 3 not in last and 22 not in last else None
        if known is None:
            text = self._text(name, place) if isinstance(name, bytes) else name
            shape = Shape(
                number(last[9]),
                _track(event, sequence),
                text,
                self._categories(event, place),
                sequence.generation,
            )
            self._await(shape)
            known = self.tokens.shapes.setdefault(shape, len(self.tokens.shapes))
            if not shape.categories:
                self._shapes[key] = known
        return known

    def _await(self, shape: Shape) -> None:
        """Remember the ids that are not defined yet."""
        defines = self.tokens.generations[shape.generation].defines
        wanted = [(CATEGORIES, c) for c in shape.categories if isinstance(c, int)]
        if isinstance(shape.name, int):
            wanted.append((EVENT_NAMES, shape.name))
        for table, iid in wanted:
            if not defines(table, iid):
                self.tokens.awaited[shape.generation, table, iid] += 1

    def _categories(self, event: Event, place: int) -> tuple[str | int, ...]:
        if 3 not in event.last and 22 not in event.last:
            return ()
        return (*event.integers(3), *(self._text(c, place) for c in event.all(22)))

    def _text(self, raw: bytes, place: int) -> str:
        """A name or category; equal ones are one object."""
        known = self._names.get(raw)
        if known is None:
            known = self._names[raw] = text(raw)
            if not is_utf8(raw):
                self._bad("P22-utf8", place)
        return known

    def _arguments(self, annotations: list[bytes], number_: int, place: int) -> None:
        """Judge the annotations of an event."""
        defines = self.tokens.generations[number_].defines
        for annotation in annotations:
            facts = self._facts.get(annotation)
            if facts is None:
                facts = examine(annotation)
                if len(self._facts) < _FACTS_KEPT:
                    self._facts[annotation] = facts
            for table, iid in facts.iids:
                if not defines(table, iid):
                    self.tokens.awaited[number_, table, iid] += 1
            for rule in facts.rules:
                self._bad(rule, place)

    def _links(self, event: Event, number_: int, place: int) -> None:
        """Flow ids, correlation ids, and the GPU events a slice submits or waits for."""
        last, tokens = event.last, self.tokens
        made = len(tokens.ts) - 1
        flows = event.fixed64(47) or event.integers(36)
        for ends, ids in ((0, flows), (1, event.fixed64(48) or event.integers(42))):
            for flow in ids:
                tokens.flow_event.append(made)
                tokens.flow_id.append(flow)
                tokens.flow_ends.append(ends)
        if 3000 in last:
            links = parse(message(last[3000]))
            tokens.gpu_links[made] = (links.integers(1), links.integers(2))
        iid = number(last.get(54, 0))
        if iid and not tokens.generations[number_].defines(CORRELATIONS, iid):
            tokens.awaited[number_, CORRELATIONS, iid] += 1
        if 53 in last and not is_utf8(message(last[53])):
            self._bad("P22-utf8", place)

    # -- counters ------------------------------------------------------------------------------

    def _counter(
        self, event: Event, sequence: Sequence, track: TrackKey, place: int
    ) -> float | None:
        """A counter event's value; None if the importer drops it."""
        rule = ""
        if 11 not in event.last and sequence.defaults.track is None:
            rule = "P18-uuid"
        elif 30 not in event.last and 44 not in event.last:
            rule = "P18-value"
        else:
            raw = float(signed(event.last[30])) if 30 in event.last else double(event.last[44])
            value = self._absolute(sequence, track[1], raw, place)
            if value is not None:
                return value
            rule = "P18-track"
        self._bad(rule, place)
        return None

    def _extras(self, event: Event, sequence: Sequence, ts: int, place: int) -> bool:
        """Counter values that ride on another event; False if the importer drops the event."""
        if 12 not in event.last and 46 not in event.last:
            return True
        whole = [float(signed(v)) for v in event.integers(12)]
        doubles = [double(v) for v in event.fixed64(46)]
        samples: list[tuple[int, float]] = []
        for values, uuids in (
            (whole, event.integers(31) or list(sequence.defaults.extra_tracks)),
            (doubles, event.integers(45) or list(sequence.defaults.extra_double_tracks)),
        ):
            rule = self._riders(values, uuids, sequence, samples, place)
            if rule:
                return self._bad(rule, place)
        for uuid, value in samples:
            self.tokens.sample(ts, (sequence.machine, uuid), value)
        return True

    def _riders(
        self,
        values: list[float],
        uuids: list[int],
        sequence: Sequence,
        samples: list[tuple[int, float]],
        place: int,
    ) -> str:
        """Add the samples of ``values``; the rule that is broken, "" if none is."""
        if values and not uuids:
            return "P19-uuids"
        for i, value in enumerate(values):
            if i >= len(uuids) or not uuids[i]:
                return "P19-mismatch"
            if len(samples) >= MAX_EXTRA:
                return "P19-many"
            absolute = self._absolute(sequence, uuids[i], value, place)
            if absolute is None:
                return "P19-track"
            samples.append((uuids[i], absolute))
        return ""

    def _absolute(self, sequence: Sequence, uuid: int, value: float, place: int) -> float | None:
        """A counter value in its unit, summed up if the counter is incremental."""
        spec = self.tokens.descriptors.counter((sequence.machine, uuid))
        if spec is None:
            return None
        if value - value != 0:
            self._bad("P22-finite", place)
        if spec.multiplier > 0:
            value *= spec.multiplier
        if spec.incremental:
            value += sequence.totals.get(uuid, 0.0)
            sequence.totals[uuid] = value
        return value

    def _bad(self, rule: str, place: int) -> bool:
        self.tally.add(rule, self.tokens.packets.where(place))
        return False


def _track(event: Event, sequence: Sequence) -> TrackKey:
    """Which track an event is on: its own, the sequence's default, its thread, or the root."""
    if 11 in event.last:
        return sequence.machine, number(event.last[11])
    if sequence.defaults.track is not None:
        return sequence.machine, sequence.defaults.track
    if sequence.thread is not None:
        return sequence.machine, *sequence.thread
    return sequence.machine, 0
