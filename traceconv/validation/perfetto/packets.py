"""First pass over a Perfetto file: packets to event columns, in file order.

Follows the importer's reader: sequence state, clocks and descriptors are applied packet by packet;
what they leave of an event is a time, a *shape* (kind, track, name, category, generation), and the
place of its packet. Packets that differ in nothing but their timestamp are read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from traceconv.core.columns import I64
from traceconv.core.ordering import distinct
from traceconv.core.source import Progress
from traceconv.protobuf import message as wire
from traceconv.protobuf.message import BrokenMessage, Value
from traceconv.protobuf.perfetto_schema import SYSTEM_DATA
from traceconv.readers.perfetto.clock_snapshots import (
    BOOTTIME,
    BadSnapshot,
    ClockKey,
    Clocks,
    Reading,
    is_sequence_clock,
)
from traceconv.validation.container import Buffer, followed, unheard
from traceconv.validation.perfetto.events import (
    GPU,
    Columns,
    Event,
    EventReader,
    Sequence,
    Shape,
    checked,
)
from traceconv.validation.perfetto.frames import ZLIB_PACKETS, ZSTD_PACKETS, Batch, Packets
from traceconv.validation.perfetto.plain_events import (
    PLAIN,
    SAMPLE,
    UNUSUAL,
    PlainEvents,
    plain_events,
    runs,
)
from traceconv.validation.perfetto.tracks import Descriptors
from traceconv.validation.rules import Tally

CLEARED, NEEDED = 1, 2
"""Bits of sequence_flags."""

_EVENT_PACKET = frozenset({8, 10, 11, 13, 98})
"""Fields of a packet that has an event and nothing else."""

_TIMESTAMP = 0x40
_LIMIT = 1 << 63
_CACHE_SIZE = 1 << 16
_CACHED_BYTES = 96
_FEW = 64
"""So few packets are read one by one."""


def read_packets(data: Buffer, label: str, tally: Tally, advance: Progress = unheard) -> Columns:
    """Read every packet of ``data``; ``advance`` is told of bytes.

    Raises:
        Refused: the importer would refuse the file.
    """
    return _Reader(Packets(data, label, tally), tally).read(advance)


class _Reader:
    def __init__(self, packets: Packets, tally: Tally) -> None:
        self._packets, self._tally = packets, tally
        self._columns = Columns(packets, Descriptors(tally))
        self._events = EventReader(tally, self._columns)
        self._clocks = Clocks()
        self._at_end = False
        self._sequences: dict[tuple[int, int], Sequence] = {}
        self._cache: dict[bytes, tuple[Sequence, int, int]] = {}
        self._deferred: list[tuple[bytes, int]] = []

    def read(self, advance: Progress) -> Columns:
        """All packets, then those that had to wait for a clock."""
        for batch in self._packets.batches():
            self._batch(batch)
            advance(int(batch.size.sum()))
        self._read(followed(self._packets, 1, advance, self._packets.read_bytes))
        self._at_end = True
        for packet, place in self._deferred:
            self._dispatch(wire.last_values(packet), packet, place)
        self._columns.machines = len({machine for machine, _ in self._sequences})
        return self._columns

    def _read(self, packets: Iterable[tuple[bytes, int]]) -> None:
        """The loop over all packets, with a short way for one that begins with its time and is
        equal to an earlier one from there on: the same event again.
        """
        cache, columns = self._cache, self._columns
        for packet, place in packets:
            if packet[0] != _TIMESTAMP or not 4 <= len(packet) <= _CACHED_BYTES:
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
            sequence, version, shape = cache.get(packet[at:]) or (None, 0, 0)
            if sequence is None or sequence.version != version or ts >= _LIMIT:
                self._packet(packet, place)
                continue
            if sequence.clock:
                converted = self._converted(_clock_key(sequence, sequence.clock), ts)
                if converted is None:
                    self._packet(packet, place)
                    continue
                if converted < 0:
                    self._bad("P07-negative", place, "track_event_invalid_timestamp")
                    continue
                ts = converted
            columns.ts.append(ts)
            columns.shape.append(shape)
            columns.place.append(place)

    def _batch(self, batch: Batch) -> None:
        """Many packets: runs of plain ones at once, the others one by one."""
        data = self._packets.data
        found = plain_events(data, batch.start, batch.size)
        for a, b, usual in self._runs(found):
            rows = np.arange(a, b)
            if usual and b - a >= _FEW and self._plain(found, batch, a, b):
                rows = rows[found.kind[a:b] == SAMPLE]
            self._read(_each(data, batch, rows))

    def _runs(self, found: PlainEvents) -> Iterator[tuple[int, int, bool]]:
        """Stretches of packets, all usual or all unusual, as far as is known when each is due."""
        for a, b, usual in runs(found.kind):
            if not usual or b - a < _FEW:
                yield a, b, usual
                continue
            found.kind[self._undefined(found, a, b)] = UNUSUAL
            for c, d, still in runs(found.kind[a:b]):
                yield a + c, a + d, still

    def _undefined(self, found: PlainEvents, a: int, b: int) -> I64:
        """Packets among ``a`` to ``b`` with arguments whose interned ids are not defined by now."""
        own = _within(found.used.packet, a, b)
        packet, table, iid = found.used.packet[own], found.used.table[own], found.used.iid[own]
        undefined = np.zeros(len(packet), bool)
        for number in distinct(found.sequence[packet]).tolist():
            sequence = self._sequences.get((0, number))
            entries = sequence.generation.entries if sequence else {}
            for of in distinct(table).tolist():
                mine = (found.sequence[packet] == number) & (table == of)
                absent = [i for i in distinct(iid[mine]).tolist() if (of, i) not in entries]
                undefined |= mine & np.isin(iid, np.array(absent, np.uint64))
        return packet[undefined]

    def _plain(self, found: PlainEvents, batch: Batch, a: int, b: int) -> bool:
        """Take in the plain events among packets ``a`` to ``b``; False, and nothing is done, if the
        state of their sequences is not that simple.
        """
        rows = np.flatnonzero(found.kind[a:b] == PLAIN) + a
        ts, of = found.ts[rows], found.sequence[rows]
        sequences: dict[int, Sequence] = {}
        for number in distinct(of).tolist():
            sequence, own = self._sequences.get((0, number)), of == number
            if sequence is None or not sequence.valid:
                return False
            moved = self._times(sequence, ts[own])
            if moved is None:
                return False
            ts[own], sequences[number] = moved, sequence
        forms, first = np.unique(found.form[rows], return_index=True)
        shape = np.zeros(int(forms.max(initial=0)) + 1, np.int32)
        for at in np.argsort(first).tolist():  # in the order in which they are first used
            row = int(rows[first[at]])
            start, size = int(found.event_start[row]), int(found.event_size[row])
            fields = wire.fields(bytes(self._packets.data[start : start + size]))
            event = Event.of(fields, sequences[int(of[first[at]])], int(batch.place[row]))
            shape[forms[at]] = self._events.shape(event)
        links, own = found.links, _within(found.links.packet, a, b)
        which = np.searchsorted(rows, links.packet[own])
        self._columns.add_all(
            ts, shape[found.form[rows]], batch.place[rows],
            (which, links.ends[own], links.flow[own]),
        )  # fmt: skip
        return True

    def _times(self, sequence: Sequence, ts: I64) -> I64 | None:
        """The times of plain events of a sequence, ns; None if each needs a look of its own."""
        clocks = self._clocks
        clock = sequence.clock or clocks.default or 0
        if not clock:
            return ts
        key = _clock_key(sequence, clock)
        if clocks.incremental(key) or self._converted(key, int(ts[0])) is None:
            return None
        moved = clocks.convert_all(key, ts)
        return None if moved is None or (moved < 0).any() else moved

    def _packet(self, packet: bytes, place: int) -> None:
        """One packet, in the order the importer looks at its parts."""
        try:
            last = {n: v for n, _, v in wire.fields(packet)}
        except BrokenMessage:
            self._packets.refuse("P01-packet", place)
        if ZLIB_PACKETS in last or ZSTD_PACKETS in last:
            self._read(self._packets.expand(packet, place))
            return
        if not SYSTEM_DATA.isdisjoint(last):
            self._columns.other_sources = True
        sequence, flags = self._sequence(last), wire.number(last.get(13, 0))
        if flags & CLEARED or not _EVENT_PACKET.issuperset(last):
            self._state(last, sequence, place)
            if 6 in last:
                self._snapshot(last[6], sequence, place)
                return
        if flags & NEEDED:
            if not sequence.number:
                self._packets.refuse("P02-needs", place)
            if not sequence.valid:
                skipped = "packet_skipped_seq_needs_incremental_state_invalid"
                self._bad("P03-uncleared", place, skipped)
                return
        self._dispatch(last, packet, place)

    def _sequence(self, last: dict[int, Value]) -> Sequence:
        key = (wire.number(last.get(98, 0)), wire.number(last.get(10, 0)))
        sequence = self._sequences.get(key)
        if sequence is None:
            sequence = self._sequences[key] = Sequence(key[1], key[0])
        return sequence

    def _state(self, last: dict[int, Value], sequence: Sequence, place: int) -> None:
        """Clearing and loss of state, defaults, interned data, attributes of the trace."""
        where = self._packets.where(place)
        cleared = wire.number(last.get(41, 0)) or wire.number(last.get(13, 0)) & CLEARED
        lost = not cleared and wire.number(last.get(42, 0))
        if 10 not in last:
            for broken, stat in (
                (cleared, "incremental_state_cleared"),
                (lost, "previous_packet_dropped"),
                (59 in last, "trace_packet_defaults"),
                (12 in last, "interned_data"),
            ):
                if broken:
                    self._bad("P02-state", place, f"{stat}_missing_sequence_id")
        else:
            if cleared:
                sequence.clear()
            elif lost:
                self._bad("P03-loss", place)
                sequence.valid = False
                sequence.version += 1
            if 59 in last:
                defaults = checked(last[59], self._tally, where)
                of_event = next((v for n, _, v in reversed(defaults) if n == 11), b"")
                sequence.set_defaults(defaults, checked(of_event, self._tally, where))
            if 12 in last and sequence.valid:
                sequence.generation.intern(last[12], self._tally, where)
            elif 12 in last:
                skipped = "interned_data_skipped_incremental_state_invalid"
                self._bad("P03-uncleared", place, skipped)
        for n, _, v in wire.whole_fields(last.get(126, b"")):
            if n == 1:
                of = wire.last_values(v)
                value = wire.signed(of[2]) if 2 in of else wire.text(of.get(3, b""))
                self._columns.attributes[wire.text(of.get(1, b""))] = value

    def _dispatch(self, last: dict[int, Value], packet: bytes, place: int) -> None:
        """Time, then descriptor, event and GPU event."""
        sequence, ts = self._sequence(last), -1
        if 8 in last:
            clock = wire.number(last.get(58, 0)) or sequence.clock
            found = self._time(sequence, clock, wire.signed(last[8]), place)
            if found is None:
                if not self._at_end:
                    self._deferred.append((packet, place))
                return
            ts = found
            if ts < 0 and 11 not in last:
                self._bad("P07-negative", place, "trace_sorter_negative_timestamp_dropped")
        if 60 in last:
            where = self._packets.where(place)
            thread = self._columns.descriptors.read(last[60], sequence.machine, where)
            if thread is not None and sequence.valid:
                sequence.thread = thread
                sequence.version += 1
        if 11 in last:
            self._event(last, sequence, ts, packet, place)
        if 53 in last and ts >= 0:
            shape = Shape(GPU, (sequence.machine, 0), None, (), sequence.generation)
            self._columns.add(ts, shape, place)

    def _event(
        self, last: dict[int, Value], sequence: Sequence, ts: int, packet: bytes, place: int
    ) -> None:
        if 10 not in last:
            self._bad("P02-event", place)
        elif 8 not in last:
            self._bad("P06-timestamp", place)
        elif ts < 0:
            self._bad("P07-negative", place, "track_event_invalid_timestamp")
        else:
            shape = self._events.read(wire.message(last[11]), sequence, ts, place)
            # the short way is for packets whose time needs no look at other fields
            steady = sequence.clock or self._clocks.default in (None, self._clocks.trace)
            plain = _EVENT_PACKET.issuperset(last) and not wire.number(last.get(13, 0)) & CLEARED
            small = packet[0] == _TIMESTAMP and len(packet) <= _CACHED_BYTES
            if shape >= 0 and steady and plain and small and len(self._cache) < _CACHE_SIZE:
                at = next(i for i in range(1, len(packet)) if packet[i] < 0x80) + 1
                self._cache[packet[at:]] = (sequence, sequence.version, shape)

    # -- time ----------------------------------------------------------------------------------

    def _time(self, sequence: Sequence, clock: int, raw: int, place: int) -> int | None:
        """A packet's time in ns; None if its clock cannot be converted (yet)."""
        clocks = self._clocks
        clock = clock or clocks.default or 0
        if not clock:
            return raw
        if is_sequence_clock(clock) and not sequence.number:
            self._packets.refuse("P02-needs", place)
        key = _clock_key(sequence, clock)
        converted = self._converted(key, raw)
        if converted is None and self._at_end:
            why = "no_path" if clocks.known(clocks.trace) else "unknown_target_clock"
            why = why if clocks.known(key) else "unknown_source_clock"
            where = f"clock {clock}, {self._packets.where(place)}"
            self._tally.add("P08-clock", where, f"clock_sync_failure_{why}")
            self._bad("P08-lost", place)
        elif converted is not None and raw < 0 and clocks.incremental(key):
            self._bad("P07-delta", place)
        return converted

    def _converted(self, key: ClockKey, raw: int) -> int | None:
        clocks = self._clocks
        if not clocks.used:
            clocks.used = True
            if clocks.trace != BOOTTIME and not clocks.path(BOOTTIME, clocks.trace):
                self._tally.add("P08-domains", f"clock {clocks.trace}")
        ns = clocks.convert(key, raw)
        if ns is None or -_LIMIT <= ns < _LIMIT:
            return ns
        return (ns + _LIMIT) % (2 * _LIMIT) - _LIMIT  # as the importer's int64 does

    def _snapshot(self, data: Value, sequence: Sequence, place: int) -> None:
        readings = [
            self._reading(v, sequence, place) for n, _, v in wire.whole_fields(data) if n == 1
        ]
        primary = wire.number(wire.last_values(data).get(2, 0))
        if primary or any(r.clock == BOOTTIME for r in readings):
            self._clocks.choose(primary or BOOTTIME)
        try:
            self._clocks.add(readings)
        except BadSnapshot as e:
            self._tally.add("P08-snapshot", f"{self._packets.where(place)}: {e}")
        self._cache.clear()

    def _reading(self, data: Value, sequence: Sequence, place: int) -> Reading:
        last = wire.last_values(data)
        clock = wire.number(last.get(1, 0))
        if is_sequence_clock(clock) and not sequence.number:
            self._packets.refuse("P02-needs", place)
        unit, incremental = wire.number(last.get(4, 0)) or 1, bool(wire.number(last.get(3, 0)))
        return Reading(_clock_key(sequence, clock), wire.signed(last.get(2, 0)), unit, incremental)

    def _bad(self, rule: str, place: int, *stats: str) -> None:
        self._tally.add(rule, self._packets.where(place), *stats)


def _each(data: Buffer, batch: Batch, rows: I64) -> Iterator[tuple[bytes, int]]:
    """Packets of a batch with their places."""
    for row in rows.tolist():
        start = int(batch.start[row])
        yield bytes(data[start : start + int(batch.size[row])]), int(batch.place[row])


def _within(packet: I64, a: int, b: int) -> slice:
    """The rows of packets ``a`` to ``b``."""
    low, high = np.searchsorted(packet, (a, b)).tolist()
    return slice(low, high)


def _clock_key(sequence: Sequence, clock: int) -> ClockKey:
    return (sequence.number, clock) if is_sequence_clock(clock) else clock
