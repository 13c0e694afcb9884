"""First pass over a Perfetto file: packets to event columns, in file order.

Follows the importer's reader: sequence state, clocks and descriptors are applied packet by packet;
what they leave of an event is a time, a *shape* (kind, track, name, category, generation), and the
place of its packet. Packets that differ in nothing but their timestamp are read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from traceconv.validation.container import Buffer
from traceconv.validation.perfetto.clocks import (
    BOOTTIME,
    BadSnapshot,
    ClockKey,
    Clocks,
    Reading,
    is_sequence_clock,
)
from traceconv.validation.perfetto.columns import GPU, Shape, Tokens
from traceconv.validation.perfetto.events import EventReader
from traceconv.validation.perfetto.frames import ZLIB_PACKETS, ZSTD_PACKETS, Packets
from traceconv.validation.perfetto.sequences import Defaults, Generation, Sequence
from traceconv.validation.perfetto.tracks import Descriptors
from traceconv.validation.perfetto.wire import (
    BrokenMessage,
    Field,
    Value,
    fields,
    message,
    number,
    signed,
    text,
    whole_fields,
)
from traceconv.validation.tally import Refused, Tally

CLEARED, NEEDED = 1, 2
"""Bits of sequence_flags."""

_TIMESTAMP, _EVENT = 0x40, 0x5A
_LIMIT = 1 << 63
_CACHE_SIZE = 1 << 16
_CACHED_BYTES = 96


def tokenize(data: Buffer, label: str, tally: Tally) -> Tokens:
    """Read every packet of ``data``.

    Raises:
        Refused: the importer would refuse the file.
    """
    packets = Packets(data, label, tally)
    reader = _Reader(label, tally, Tokens(packets, Descriptors(tally)))
    reader.read(packets)
    return reader.tokens


class _Reader:
    def __init__(self, label: str, tally: Tally, tokens: Tokens) -> None:
        self.tokens = tokens
        self._label, self._tally = label, tally
        self._where = tokens.packets.where
        self._clocks = Clocks()
        self._bridged = self._at_end = False
        self._sequences: dict[tuple[int, int], Sequence] = {}
        self._cache: dict[bytes, tuple[Sequence, int, int]] = {}
        self._heads: dict[bytes, tuple[Sequence, int, int]] = {}
        self._events = EventReader(tally, tokens)
        self._deferred: list[tuple[bytes, int]] = []

    def read(self, packets: Packets) -> None:
        """All packets, then those that had to wait for a clock."""
        self._read(packets)
        self._at_end = True
        before = self._tally.stats["clock_sync_failure_undeferrable_packet_loss"]
        for packet, place in self._deferred:
            self._dispatch(_last(fields(packet)), packet, place)
        lost = self._tally.stats["clock_sync_failure_undeferrable_packet_loss"] - before
        self._tally.add("P08-late", count=len(self._deferred) - lost)

    def _read(self, packets: Iterable[tuple[bytes, int]]) -> None:
        """The loop over all packets, with a short way for the common ones.

        A packet that begins with its time and differs from an earlier one in nothing else is the
        same event again; one that shares what stands between time and event is on the same
        sequence, with nothing else to do.
        """
        events, heads, tokens = self._cache, self._heads, self.tokens
        add_ts, add_shape, add_place = tokens.ts.append, tokens.shape.append, tokens.place.append
        for packet, place in packets:
            if packet[0] != _TIMESTAMP or len(packet) < 4:
                self._packet(packet, place)
                continue
            ts, at, shift = packet[1], 2, 7
            if ts >= 0x80:
                ts &= 0x7F
                for byte in packet[2:11]:
                    at += 1
                    ts |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
            known = events.get(packet[at:]) if len(packet) <= _CACHED_BYTES else None
            event = 0
            if known is None:
                event = _event_at(packet, at)
                known = heads.get(packet[at:event]) if event else None
            if known is None or known[0].version != known[1] or ts >= _LIMIT:
                self._packet(packet, place)
                continue
            sequence = known[0]
            if sequence.defaults.clock:
                converted = self._converted(sequence, sequence.defaults.clock, ts)
                if converted is None:
                    self._packet(packet, place)
                    continue
                ts = converted
            if not 0 <= ts < _LIMIT:
                self._tally.add("P07-negative", self._where(place))
            elif event:
                start = event + 2 if packet[event + 1] < 0x80 else event + 3
                shape = self._events.read(packet[start:], sequence, ts, place)
                self._remember(shape, packet, at, sequence)
            else:
                add_ts(ts)
                add_shape(known[2])
                add_place(place)

    def _packet(self, packet: bytes, place: int) -> None:
        """One packet, in the order the importer looks at its parts."""
        try:
            last = _last(fields(packet))
        except BrokenMessage:
            self._refuse("P01-packet", place)
        if ZLIB_PACKETS in last or ZSTD_PACKETS in last:
            self._read(self.tokens.packets.expand(packet, place))
            return
        sequence = self._sequence(last)
        if 10 in last and not number(last[10]):
            self._tally.add("P02-zero", self._where(place))
        if 126 in last:
            self._attributes(message(last[126]))
        self._state(last, sequence, place)
        if 6 in last:
            self._snapshot(message(last[6]), sequence, place)
            return
        if number(last.get(13, 0)) & NEEDED:
            if not number(last.get(10, 0)):
                self._refuse("P02-needs", place)
            if not sequence.valid:
                self._tally.add("P03-packet", self._where(place))
                return
        self._dispatch(last, packet, place)

    def _sequence(self, last: dict[int, Value]) -> Sequence:
        key = (number(last.get(98, 0)), number(last.get(10, 0)))
        sequence = self._sequences.get(key)
        if sequence is None:
            self.tokens.generations.append(Generation())
            self.tokens.machines.add(key[0])
            sequence = self._sequences[key] = Sequence(key[1], key[0])
            sequence.generation = len(self.tokens.generations) - 1
        return sequence

    def _state(self, last: dict[int, Value], sequence: Sequence, place: int) -> None:
        """Clearing and loss of state, defaults, interned data."""
        named = 10 in last
        if number(last.get(41, 0)) or number(last.get(13, 0)) & CLEARED:
            if named:
                self.tokens.generations.append(Generation())
                sequence.clear(len(self.tokens.generations) - 1)
            else:
                self._tally.add("P02-cleared", self._where(place))
        elif number(last.get(42, 0)):
            self._tally.add("P03-loss" if named else "P02-dropped", self._where(place))
            if named:
                sequence.lose()
        if 59 in last:
            if not named:
                self._tally.add("P02-defaults", self._where(place))
            else:
                if not sequence.valid:
                    self._tally.add("P03-defaults", self._where(place))
                sequence.defaults = Defaults.read(
                    message(last[59]), self._tally, self._where(place)
                )
                sequence.version += 1
        if 12 in last:
            rule = "" if sequence.valid else "P03-interned"
            rule = rule if named else "P02-interned"
            if rule:
                self._tally.add(rule, self._where(place))
            else:
                generation = self.tokens.generations[sequence.generation]
                generation.intern(message(last[12]), self._tally, self._where(place))

    def _dispatch(self, last: dict[int, Value], packet: bytes, place: int) -> None:
        """Time, then descriptor, event and GPU event."""
        sequence = self._sequence(last)
        explicit = number(last.get(58, 0))
        ts = -1
        if 8 in last:
            raw = signed(last[8])
            found = self._time(sequence, explicit or sequence.defaults.clock, raw, place)
            if found is None:
                if not self._at_end:
                    self._deferred.append((packet, place))
                return
            ts = found
            if ts < 0 and 11 not in last:
                self._tally.add("P07-sorter", self._where(place))
        if 60 in last:
            self._describe(message(last[60]), sequence, place)
        if 11 in last:
            self._event(last, sequence, ts, packet, place)
        if 53 in last and ts >= 0:
            shape = Shape(GPU, (sequence.machine, 0), None, (), sequence.generation)
            self.tokens.add(ts, shape, place)

    def _describe(self, data: bytes, sequence: Sequence, place: int) -> None:
        thread = self.tokens.descriptors.read(data, sequence.machine, self._where(place))
        if thread is not None and sequence.valid:
            sequence.thread = thread
            sequence.version += 1

    def _event(
        self, last: dict[int, Value], sequence: Sequence, ts: int, packet: bytes, place: int
    ) -> None:
        if 10 not in last:
            self._tally.add("P02-event", self._where(place))
        elif 8 not in last:
            self._tally.add("P06-timestamp", self._where(place))
        elif ts < 0:
            self._tally.add("P07-negative", self._where(place))
        else:
            shape = self._events.read(message(last[11]), sequence, ts, place)
            clock = sequence.defaults.clock or self._clocks.default
            steady = sequence.defaults.clock or clock in (None, self._clocks.trace)
            plain = last.keys() <= {8, 10, 11, 13, 98} and not number(last.get(13, 0)) & CLEARED
            if steady and plain and packet[0] == _TIMESTAMP:
                at = next(i for i in range(1, len(packet)) if packet[i] < 0x80) + 1
                self._remember(shape, packet, at, sequence)
                event = _event_at(packet, at)
                if event and len(self._heads) < _CACHE_SIZE:
                    self._heads[packet[at:event]] = (sequence, sequence.version, -1)

    def _remember(self, shape: int, packet: bytes, at: int, sequence: Sequence) -> None:
        """Let packets that are equal from ``at`` on take the short way."""
        if shape >= 0 and len(packet) <= _CACHED_BYTES and len(self._cache) < _CACHE_SIZE:
            self._cache[packet[at:]] = (sequence, sequence.version, shape)

    # -- time ----------------------------------------------------------------------------------

    def _time(self, sequence: Sequence, clock: int, raw: int, place: int) -> int | None:
        """A packet's time in ns; None if its clock cannot be converted (yet)."""
        clock = clock or self._clocks.default or 0
        if not clock:
            return raw
        if is_sequence_clock(clock) and not sequence.number:
            self._refuse("P08-sequence", place)
        converted = self._converted(sequence, clock, raw)
        if converted is None and self._at_end:
            key = _clock_key(sequence, clock)
            rule = "P08-path" if self._clocks.known(self._clocks.trace) else "P08-target"
            self._tally.add(
                rule if self._clocks.known(key) else "P08-clock",
                f"clock {clock}, {self._where(place)}",
            )
            self._tally.add("P08-lost", self._where(place))
        elif raw < 0 and self._clocks.incremental(_clock_key(sequence, clock)):
            self._tally.add("P07-delta", self._where(place))
        return converted

    def _converted(self, sequence: Sequence, clock: int, raw: int) -> int | None:
        clocks = self._clocks
        if not self._bridged:
            self._bridged = clocks.used = True
            if not clocks.related(BOOTTIME, clocks.trace):
                self._tally.add("P08-domains", f"clock {clocks.trace}")
        ns = clocks.convert(_clock_key(sequence, clock), raw)
        if ns is None or -_LIMIT <= ns < _LIMIT:
            return ns
        return (ns + _LIMIT) % (2 * _LIMIT) - _LIMIT  # as the importer's int64 does

    def _snapshot(self, data: bytes, sequence: Sequence, place: int) -> None:
        found = whole_fields(data)
        readings = [self._reading(message(v), sequence, place) for n, _, v in found if n == 1]
        primary = number(_last(found).get(2, 0))
        if primary:
            self._clocks.choose(primary)
        elif any(r.clock == BOOTTIME for r in readings):
            self._clocks.choose(BOOTTIME)
        try:
            self._clocks.add(readings)
        except BadSnapshot as e:
            self._tally.add("P08-snapshot", f"{self._where(place)}: {e}")
        self._cache.clear()
        self._heads.clear()

    def _reading(self, data: bytes, sequence: Sequence, place: int) -> Reading:
        last = _last(whole_fields(data))
        clock = number(last.get(1, 0))
        if is_sequence_clock(clock) and not sequence.number:
            self._refuse("P08-sequence", place)
        return Reading(
            _clock_key(sequence, clock),
            signed(last.get(2, 0)),
            number(last.get(4, 0)) or 1,
            bool(number(last.get(3, 0))),
        )

    # -- the rest ------------------------------------------------------------------------------

    def _attributes(self, data: bytes) -> None:
        for n, _, v in whole_fields(data):
            if n == 1:
                last = _last(whole_fields(message(v)))
                value = signed(last[2]) if 2 in last else text(last.get(3, b""))
                self.tokens.attributes[text(last.get(1, b""))] = value

    def _refuse(self, rule: str, place: int) -> NoReturn:
        raise Refused(self._label, rule, self._where(place))


def _event_at(packet: bytes, at: int) -> int:
    """Where the event's tag stands, if small integers and an event up to the end follow; else 0."""
    end = len(packet)
    while at + 2 < end:
        tag = packet[at]
        if tag == _EVENT:
            size, start = packet[at + 1], at + 2
            if size >= 0x80:
                if packet[start] >= 0x80:
                    return 0
                size, start = (size & 0x7F) | packet[start] << 7, start + 1
            return at if start + size == end else 0
        if tag & 7 or packet[at + 1] >= 0x80 or tag >= 0x80:
            return 0
        at += 2
    return 0


def _last(found: list[Field]) -> dict[int, Value]:
    """The last value of every field."""
    return {n: v for n, _, v in found}


def _clock_key(sequence: Sequence, clock: int) -> ClockKey:
    return (sequence.number, clock) if is_sequence_clock(clock) else clock
