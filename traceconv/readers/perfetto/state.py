"""What packets of a sequence take from those before them: interned data, defaults, clocks.

A sequence is one writer. What it has said holds until it clears its state; from then on it is
another *generation* (of interned data). Packets that change anything are read one by one
(:class:`Sequences`); all others only look up what holds for them, in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, Mask
from traceconv.protobuf.message import (
    Value,
    integers,
    is_utf8,
    is_whole,
    last_values,
    message,
    number,
    signed,
    text,
    whole_fields,
)
from traceconv.protobuf.perfetto_schema import (
    IID,
    NEEDS_STATE,
    OWN_FIELD,
    STATE_CLEARED,
    STRING,
    Attribute,
    Clock,
    ClockSnapshot,
    InternedData,
    ThreadDescriptor,
    TracePacket,
    TracePacketDefaults,
    TrackEventDefaults,
)
from traceconv.readers.perfetto.annotations import Texts, interned_text
from traceconv.readers.perfetto.clock_snapshots import (
    BOOTTIME,
    BadSnapshot,
    ClockKey,
    Clocks,
    Reading,
    is_sequence_clock,
)
from traceconv.readers.perfetto.packets import Fault, Packets, unjudged
from traceconv.readers.perfetto.tracks import ROOT, Descriptors, Key, thread_key, track_key

MONOTONIC = 3
"""The clock of stamps that are in events themselves, as Chrome wrote them until 2020."""

REFERENCES = (
    ThreadDescriptor.REFERENCE_TIMESTAMP_US,
    ThreadDescriptor.REFERENCE_THREAD_TIME_US,
    ThreadDescriptor.REFERENCE_THREAD_INSTRUCTION_COUNT,
)
"""What differences in events add to, as the descriptor of their thread states it."""

_STATE_FIELDS = (
    *(TracePacket.CLOCK_SNAPSHOT, TracePacket.INTERNED_DATA, TracePacket.TRACE_PACKET_DEFAULTS),
    *(TracePacket.TRACK_DESCRIPTOR, TracePacket.TRACE_ATTRIBUTES),
    *(TracePacket.PROCESS_DESCRIPTOR, TracePacket.THREAD_DESCRIPTOR),
    *(TracePacket.INCREMENTAL_STATE_CLEARED, TracePacket.PREVIOUS_PACKET_DROPPED, OWN_FIELD),
)
"""A packet with one of them is read by itself."""

_EVENTS = (
    *(TracePacket.TRACK_EVENT, TracePacket.GPU_RENDER_STAGE_EVENT, TracePacket.GPU_COUNTER_EVENT),
)

_EMPTY: dict[int, bytes] = {}
_UINT32 = (1 << 32) - 1


@dataclass(eq=False)
class Generation:
    """Interned data from one clearing of a sequence's state to the next.

    Attributes:
        number: among all generations of the file.
        texts:  by table and id, the bytes of categories, names and correlations.
        arguments: names and strings of arguments, as they are in JSON.
        entries: other entries, as they are, by table and id.
        defined: all entries, where the file is checked.
    """

    number: int
    texts: dict[int, dict[int, bytes]] = field(default_factory=dict)
    arguments: Texts = field(default_factory=Texts)
    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    defined: dict[tuple[int, int], Value] = field(default_factory=dict)

    def take(self, data: Value, fault: Fault, where: str) -> None:
        """Add an InternedData message; the first definition of a number counts."""
        for table, _, value in whole_fields(data):
            entry = last_values(value)
            iid = number(entry.get(IID, 0))
            if not iid:
                fault("P04-id", where)
                continue
            if fault is not unjudged:
                if self.defined.setdefault((table, iid), value) != value:
                    fault("P05-redefined", f"table {table} id {iid}, {where}")
                if not is_utf8(entry.get(STRING, b"")) and table in _ARGUMENTS:
                    fault("P22-value", where)
            if table in _ARGUMENTS:
                own_text, raw = entry.get(OWN_FIELD), message(entry.get(STRING, b""))
                if table == InternedData.DEBUG_ANNOTATION_NAMES:
                    self.arguments.names.add(iid, interned_text(raw, own_text, name=True) + b":")
                else:
                    self.arguments.strings.add(iid, interned_text(raw, own_text))
            elif table in _TEXTS:
                self.texts.setdefault(table, {}).setdefault(iid, message(entry.get(STRING, b"")))
            else:
                self.entries.setdefault((table, iid), message(value))

    def text(self, table: int, iid: int) -> bytes | None:
        """The bytes of a text, None if it is not defined."""
        return self.texts.get(table, _EMPTY).get(iid)


_ARGUMENTS = (InternedData.DEBUG_ANNOTATION_NAMES, InternedData.DEBUG_ANNOTATION_STRING_VALUES)
_TEXTS = frozenset(
    (InternedData.EVENT_CATEGORIES, InternedData.EVENT_NAMES, InternedData.CORRELATION_ID_STR)
)


@dataclass(frozen=True, eq=False)
class State:
    """What holds for packets of a sequence.

    Attributes:
        sequence, machine: ids.
        valid:      whether the state was cleared, and nothing was lost since.
        generation: of interned data.
        clock:      of stamps that name none, 0 = that of the trace.
        track:      of events that name none; None = the thread, or the root.
        extra, extra_double: tracks of the further counters of an event.
        thread:     (pid, tid) of the last thread that was described, None if none was.
    """

    sequence: int
    machine: int
    generation: Generation
    valid: bool = False
    clock: int = 0
    track: int | None = None
    extra: tuple[int, ...] = ()
    extra_double: tuple[int, ...] = ()
    thread: tuple[int, int] | None = None

    @property
    def key(self) -> Key:
        """The track of events that name none."""
        if self.track is not None:
            return track_key(self.machine, self.track)
        if self.thread is not None:
            return thread_key(self.machine, *self.thread)
        return track_key(self.machine, ROOT)


@dataclass(frozen=True)
class Timed:
    """Packets with what holds for them.

    Attributes:
        packets: those that have a time, or may have one in their event.
        ns:      int64 per packet, on the clock of the trace; 0 where ``timed`` is not set.
        timed:   which have a time.
        state:   int64 per packet: index into ``states``.
        states:  all states of the file so far.
    """

    packets: Packets
    ns: I64
    timed: Mask
    state: I64
    states: list[State]


class _Changes:
    """The states of sequences in a block of packets.

    Args:
        sequence_of_row: the sequence of each packet.
        first_states: the state each sequence begins with.
    """

    def __init__(self, sequence_of_row: I64, first_states: I64) -> None:
        self._which, self._first = sequence_of_row, first_states
        self._rows: list[int] = []
        self._states: list[int] = []

    def add(self, row: int, state: int) -> None:
        """From this packet on, its sequence is in another state."""
        self._rows.append(row)
        self._states.append(state)

    def of(self, rows: I64) -> I64:
        """The state that holds for each packet: the last one of its sequence up to it."""
        sequences = self._which[rows]
        state = self._first[sequences]
        if not self._rows:
            return state
        changes = np.array(self._rows, np.int64)
        # packets and changes as numbers that sort by sequence, then by place
        width = len(self._which) + 1
        places = self._which[changes] * width + changes
        order = np.argsort(places, kind="stable")
        positions = np.searchsorted(places[order], sequences * width + rows, "right") - 1
        latest = order[np.maximum(positions, 0)]
        valid = (positions >= 0) & (self._which[changes[latest]] == sequences)
        return np.where(valid, np.array(self._states, np.int64)[latest], state)


class Sequences:
    """Applies packets in the order of the file.

    Attributes:
        descriptors: of tracks.
        attributes:  of the trace.
        own:         called with what files of ours say of ranks.
        clocks:      of the trace.
        states:      every state a sequence was in.
        fault:       told what breaks a rule of the format.
    """

    def __init__(self, build: TraceBuilder, fault: Fault = unjudged) -> None:
        self.fault = fault
        self.descriptors = Descriptors()
        self.attributes: dict[str, str | int] = {}
        self.own: Callable[[bytes], object] = bool  # foreign readers ignore these packets
        self.clocks = Clocks()
        self.states: list[State] = []
        self._build = build
        self._generations = 0
        self._current: dict[tuple[int, int], int] = {}
        self._references: dict[tuple[int, int, int], int] = {}
        self._deferred: list[tuple[Packets, I64, str]] = []

    def timed(self, packets: Packets) -> Iterator[Timed]:
        """The packets with events, in the order of the file, with what holds for them."""
        packet_columns = packets.columns
        changes = (packet_columns.integer(TracePacket.SEQUENCE_FLAGS) & STATE_CLEARED) > 0
        for number_ in _STATE_FIELDS:
            changes |= packet_columns.has(number_)
        snapshots, is_own = (
            packet_columns.has(TracePacket.CLOCK_SNAPSHOT),
            packet_columns.is_bytes(OWN_FIELD),
        )
        sequence_of_row, sequences = self._sequences_of(packets)
        first_states = np.array([self._current[sequence] for sequence in sequences], np.int64)
        begun, changed = 0, _Changes(sequence_of_row, first_states)
        for row in np.flatnonzero(changes).tolist():
            sequence = sequences[int(sequence_of_row[row])]
            self._apply(packets, row, sequence)
            changed.add(row, self._current[sequence])
            if is_own[row]:
                self.own(message(last_values(packets.bytes_of(row))[OWN_FIELD]))
            if snapshots[row]:
                yield from self._segment(packets, begun, row, changed)
                begun = row + 1  # such a packet has nothing else
                self._snapshot(packets, row, sequence)
        yield from self._segment(packets, begun, len(packets), changed)

    def _sequences_of(self, packets: Packets) -> tuple[I64, list[tuple[int, int]]]:
        """The sequence of each packet, as an index into the list of them; all have a state then."""
        packet_columns = packets.columns
        sequence = packet_columns.integer(TracePacket.TRUSTED_PACKET_SEQUENCE_ID) & 0xFFFFFFFF
        key = packet_columns.integer(TracePacket.MACHINE_ID) << 32 | sequence
        if len(key) and int(key.min()) == int(key.max()):
            distinct, sequence_of_row = key[:1], np.zeros(len(key), np.int64)
        else:
            distinct, sequence_of_row = np.unique(key, return_inverse=True)
        sequences = [(pair_key >> 32, pair_key & 0xFFFFFFFF) for pair_key in distinct.tolist()]
        for pair in sequences:
            self._state(pair)
        return sequence_of_row.astype(np.int64), sequences

    def late(self) -> Iterator[Timed]:
        """The packets whose clock was not known when they came; those for which it never was are
        booked."""
        for packets, state, where in self._deferred:
            ns, is_known = self._converted(packets, state)
            lost = int((~is_known).sum())
            if lost:
                self.fault("P08-clock", where, lost)
                self.fault("P08-lost", where, lost)
            self._build.skip("clock-unknown", where, lost)
            rows = np.flatnonzero(is_known)
            if len(rows):
                yield Timed(packets.take(rows), ns[rows], is_known[rows], state[rows], self.states)

    # -- one packet that changes something ---------------------------------------------------------

    def _state(self, sequence: tuple[int, int]) -> State:
        """The state a sequence is in."""
        if sequence not in self._current:
            self._set(sequence, State(sequence[1], sequence[0], self._generation()))
        return self.states[self._current[sequence]]

    def _set(self, sequence: tuple[int, int], state: State) -> None:
        self._current[sequence] = len(self.states)
        self.states.append(state)

    def _generation(self) -> Generation:
        self._generations += 1
        return Generation(self._generations - 1)

    def _apply(self, packets: Packets, row: int, sequence: tuple[int, int]) -> None:
        by_number, where = last_values(packets.bytes_of(row)), packets.where(row)
        for nested in (TracePacket.INTERNED_DATA, TracePacket.TRACK_DESCRIPTOR):
            if nested in by_number and not is_whole(by_number[nested]):
                self.fault("P01-message", where)
                self._build.skip("malformed-record", where)
        state = self._state(sequence)
        has_sequence = TracePacket.TRUSTED_PACKET_SEQUENCE_ID in by_number
        flags = number(by_number.get(TracePacket.SEQUENCE_FLAGS, 0))
        cleared = flags & STATE_CLEARED or number(by_number.get(41, 0))
        lost = not cleared and number(by_number.get(TracePacket.PREVIOUS_PACKET_DROPPED, 0))
        interned = TracePacket.INTERNED_DATA in by_number
        if not has_sequence:
            defaults = TracePacket.TRACE_PACKET_DEFAULTS in by_number
            set_state = bool(cleared) + bool(lost) + interned + defaults
            if set_state:
                self.fault("P02-state", where, set_state)
        if has_sequence and cleared:
            state = State(sequence[1], sequence[0], self._generation(), True, thread=state.thread)
            self._set(sequence, state)
        elif has_sequence and lost:
            self.fault("P03-loss", where)
            state = replace(state, valid=False)
            self._set(sequence, state)
        if has_sequence and TracePacket.TRACE_PACKET_DEFAULTS in by_number:
            message_fields = last_values(by_number[TracePacket.TRACE_PACKET_DEFAULTS])
            if number(message_fields.get(TracePacketDefaults.TIMESTAMP_CLOCK_ID, 0)) > _UINT32:
                self.fault("P01-message", where)
                self._build.skip("malformed-record", where)
            state = _with_defaults(state, message_fields)
            self._set(sequence, state)
        if interned and state.valid:
            state.generation.take(by_number[TracePacket.INTERNED_DATA], self.fault, where)
        elif interned:
            if has_sequence:
                self.fault("P03-uncleared", where)
            self._build.skip("state-lost", where)
        self._describe(packets, row, sequence, by_number)
        for n, _, value in whole_fields(by_number.get(TracePacket.TRACE_ATTRIBUTES, b"")):
            if n == 1:
                message_fields = last_values(value)
                key = text(message_fields.get(Attribute.KEY, b""))
                if Attribute.LONG_VALUE in message_fields:
                    self.attributes[key] = signed(message_fields[Attribute.LONG_VALUE])
                else:
                    raw = message(message_fields.get(Attribute.STRING_VALUE, b""))
                    self.attributes[key] = raw.decode("utf-8", "replace")

    def _describe(
        self, packets: Packets, row: int, sequence: tuple[int, int], by_number: dict[int, Value]
    ) -> None:
        """Take in descriptors of tracks, and of threads as they were written before there were
        tracks."""
        thread = None
        if TracePacket.TRACK_DESCRIPTOR in by_number:
            described = self.descriptors.take(by_number[TracePacket.TRACK_DESCRIPTOR], sequence[0])
            for rule in described.rules:
                self.fault(rule, packets.where(row))
            if described.problem:
                self._build.skip("track-conflict", f"{packets.where(row)}: {described.problem}")
            thread = described.thread
        if TracePacket.PROCESS_DESCRIPTOR in by_number:
            self.descriptors.process(by_number[TracePacket.PROCESS_DESCRIPTOR], sequence[0])
        if TracePacket.THREAD_DESCRIPTOR in by_number:
            thread_fields = last_values(by_number[TracePacket.THREAD_DESCRIPTOR])
            thread = self.descriptors.thread(thread_fields, sequence[0])
            for n in REFERENCES:
                self._references[(*sequence, n)] = signed(thread_fields.get(n, 0))
        state = self.states[self._current[sequence]]
        if thread is not None and thread != state.thread and state.valid:
            self._set(sequence, replace(state, thread=thread))

    def _snapshot(self, packets: Packets, row: int, sequence: tuple[int, int]) -> None:
        data = last_values(packets.bytes_of(row))[TracePacket.CLOCK_SNAPSHOT]
        snapshot_fields, readings = whole_fields(data), []
        for n, _, value in snapshot_fields:
            if n == ClockSnapshot.CLOCKS:
                reading = last_values(value)
                clock = number(reading.get(Clock.CLOCK_ID, 0))
                ticks, unit = (
                    signed(reading.get(Clock.TIMESTAMP, 0)),
                    number(reading.get(4, 0)) or 1,
                )
                incremental = bool(number(reading.get(Clock.IS_INCREMENTAL, 0)))
                if is_sequence_clock(clock) and not sequence[1]:
                    self.fault("P02-needs", packets.where(row))
                readings.append(Reading(_key(sequence[1], clock), ticks, unit, incremental))
        primary = number(
            {n: v for n, _, v in snapshot_fields}.get(ClockSnapshot.PRIMARY_TRACE_CLOCK, 0)
        )
        if primary or any(reading.clock == BOOTTIME for reading in readings):
            self.clocks.choose(primary or BOOTTIME)
        try:
            self.clocks.add(readings)
        except BadSnapshot as e:
            self.fault("P08-snapshot", f"{packets.where(row)}: {e}")
            self._build.skip("snapshot-unused", f"{packets.where(row)}: {e}")

    # -- many that do not --------------------------------------------------------------------------

    def _segment(
        self, packets: Packets, begun: int, stop: int, changed: _Changes
    ) -> Iterator[Timed]:
        """The packets with events among some that no snapshot is between."""
        packet_columns = packets.columns
        events = np.zeros(stop - begun, bool)
        for n in _EVENTS:
            events |= packet_columns.is_bytes(n)[begun:stop]
        stamps = events
        if self.clocks.differences:  # such a clock is moved on by every packet, whatever is in it
            stamps = events | packet_columns.has(TracePacket.TIMESTAMP)[begun:stop]
        if self.fault is not unjudged:
            needs = packet_columns.integer(TracePacket.SEQUENCE_FLAGS)[begun:stop] & NEEDS_STATE > 0
            stamps = events = events | needs | packet_columns.has(TracePacket.TIMESTAMP)[begun:stop]
        rows = np.flatnonzero(stamps) + begun
        if not len(rows):
            return
        rows, state = self._believed(packets, rows, changed.of(rows), events[rows - begun])
        with_stamps = packets if len(rows) == len(packets) else packets.take(rows)
        ns, is_known = self._converted(with_stamps, state)
        used = events[rows - begun]
        if not used.all():
            if not used.any():
                return
            with_stamps, ns, is_known, state = (
                with_stamps.take(used),
                ns[used],
                is_known[used],
                state[used],
            )
        stamped = with_stamps.columns.has(TracePacket.TIMESTAMP)
        late = stamped & ~is_known
        if not late.any():
            yield Timed(with_stamps, ns, stamped, state, self.states)
            return
        self._defer(with_stamps.take(late), state[late])
        now = np.flatnonzero(~late)
        if len(now):
            yield Timed(with_stamps.take(now), ns[now], stamped[now], state[now], self.states)

    def _believed(self, packets: Packets, rows: I64, state: I64, events: Mask) -> tuple[I64, I64]:
        """Leave out packets that need a state that was lost; lost ``events`` are counted."""
        needs = packets.columns.integer(TracePacket.SEQUENCE_FLAGS)[rows] & NEEDS_STATE > 0
        valid = np.array([known_state.valid for known_state in self.states], bool)[state]
        lost = needs & ~valid
        if not lost.any():
            return rows, state
        if self.fault is not unjudged:
            has_sequence = (
                packets.columns.integer(TracePacket.TRUSTED_PACKET_SEQUENCE_ID)[rows] != 0
            )
            for i in np.flatnonzero(lost).tolist():
                rule = "P03-uncleared" if has_sequence[i] else "P02-needs"
                self.fault(rule, packets.where(int(rows[i])))
        if (lost & events).any():
            first_lost = int(rows[lost & events][0])
            self._build.skip("state-lost", packets.where(first_lost), int((lost & events).sum()))
        return rows[~lost], state[~lost]

    def _converted(self, packets: Packets, state: I64) -> tuple[I64, Mask]:
        """Stamps on the clock of the trace; which of them can be converted."""
        packet_columns, clocks = packets.columns, self.clocks
        raw = packet_columns.integer(TracePacket.TIMESTAMP)
        is_known = packet_columns.has(TracePacket.TIMESTAMP).copy()
        clock = packet_columns.integer(TracePacket.TIMESTAMP_CLOCK_ID)
        defaults = np.array([known_state.clock for known_state in self.states], np.int64)
        clock = np.where(clock != 0, clock, defaults[state])
        if clocks.default is not None:
            clock = np.where(clock != 0, clock, clocks.default)
        if ((clock != 0) & is_known).any():
            apart = clocks.trace != BOOTTIME and not clocks.path(BOOTTIME, clocks.trace)
            if apart and not clocks.used:
                self.fault("P08-domains", f"clock {clocks.trace}")
            clocks.used = True  # the clock of the trace is final once a time is converted
        odd = (clock != 0) & (clock != clocks.trace) & is_known
        if not odd.any():
            return raw, is_known
        ns = raw.copy()
        sequences = np.array([known_state.sequence for known_state in self.states], np.int64)[state]
        clock_sequence = np.where((clock >= 64) & (clock < 128), sequences, 0)
        pairs = np.stack((clock_sequence[odd], clock[odd]), axis=1)
        alike = bool((pairs == pairs[0]).all())
        for sequence, clock_id in (pairs[:1] if alike else np.unique(pairs, axis=0)).tolist():
            rows = np.flatnonzero(odd & (clock_sequence == sequence) & (clock == clock_id))
            converted = None
            if not is_sequence_clock(clock_id) or sequence:
                converted = clocks.convert(_key(sequence, clock_id), raw[rows])
                if clocks.incremental(_key(sequence, clock_id)) and (raw[rows] < 0).any():
                    where = packets.where(int(rows[raw[rows] < 0][0]))
                    self.fault("P07-delta", where, int((raw[rows] < 0).sum()))
            else:
                self.fault("P02-needs", packets.where(int(rows[0])))
            if converted is None:
                is_known[rows] = False
            else:
                ns[rows] = converted
        return ns, is_known

    def _defer(self, packets: Packets, state: I64) -> None:
        """Keep packets until all clocks are known; their bytes are copied."""
        content = b"".join(packets.bytes_of(row) for row in range(len(packets)))
        start = np.concatenate(([0], np.cumsum(packets.size)[:-1]))
        moved = start - packets.start
        packet_columns = packets.columns
        values = np.where(
            packet_columns.lengths >= 0,
            packet_columns.values + moved.view(np.uint64),
            packet_columns.values,
        )
        copied = replace(
            packets,
            data=content,
            start=start,
            columns=msgspec.structs.replace(packet_columns, values=values),
            place=-1,
        )
        self._deferred.append((copied, state, packets.where(0)))

    def advanced(self, state: State, reference: int, delta: int) -> int | None:
        """What differences in events of a sequence add up to, with ``delta``; None if there is
        nothing they could be added to.

        Args:
            reference: of :data:`REFERENCES`.
        """
        key = (state.machine, state.sequence, reference)
        if key not in self._references or not state.valid:
            return None
        self._references[key] += delta
        return self._references[key]


def _with_defaults(state: State, defaults: dict[int, Value]) -> State:
    """A state with other defaults; those that are not named are unset."""
    event_fields = whole_fields(defaults.get(TracePacketDefaults.TRACK_EVENT_DEFAULTS, b""))
    event = {n: v for n, _, v in event_fields}
    track = event.get(TrackEventDefaults.TRACK_UUID)
    return replace(
        state,
        clock=number(defaults.get(TracePacketDefaults.TIMESTAMP_CLOCK_ID, 0)) & _UINT32,
        track=None if track is None else number(track),
        extra=tuple(integers(event_fields, TrackEventDefaults.EXTRA_COUNTER_TRACK_UUIDS)),
        extra_double=tuple(
            integers(event_fields, TrackEventDefaults.EXTRA_DOUBLE_COUNTER_TRACK_UUIDS)
        ),
    )


def _key(sequence: int, clock: int) -> ClockKey:
    return (sequence, clock) if is_sequence_clock(clock) else clock
