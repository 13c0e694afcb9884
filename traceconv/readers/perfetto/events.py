"""TrackEvents: what many packets at once say happened, when, and on which track.

The fields of all are read in columns; what few events have - events of Chrome, counters in the
events of others, correlations - is read one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import F64, I32, I64, Mask
from traceconv.protobuf.message import (
    FIXED64,
    integers,
    last_values,
    message,
    number,
    signed,
    whole_fields,
)
from traceconv.protobuf.message_columns import (
    DAMAGED,
    OTHERS,
    REPEATED,
    columns,
    repeated,
)
from traceconv.protobuf.perfetto_schema import (
    COUNTER,
    GPU_CORRELATION,
    INSTANT,
    SLICE_BEGIN,
    SLICE_END,
    STATE,
    DebugAnnotation,
    InternedData,
    ThreadDescriptor,
    TracePacket,
    TrackEvent,
    numbers,
)
from traceconv.readers.perfetto import legacy
from traceconv.readers.perfetto.annotations import objects
from traceconv.readers.perfetto.marks import COMPLETE, DROPPED, Events
from traceconv.readers.perfetto.packets import unjudged
from traceconv.readers.perfetto.state import MONOTONIC, State, Timed
from traceconv.readers.perfetto.tracks import Key, track_key
from traceconv.readers.shared.arguments import quoted

_SOURCE_LOCATION, _SOURCE_LOCATION_IID, _SOURCE_LOCATIONS = 33, 34, 4

FIELDS = (
    *numbers(TrackEvent).values(),
    GPU_CORRELATION,
    _SOURCE_LOCATION,
    _SOURCE_LOCATION_IID,
)

UNREAD = {
    5: "task_execution", 21: "log_message", 24: "cc_scheduler_state", 25: "chrome_user_event",
    26: "chrome_keyed_service", 27: "chrome_legacy_ipc", 28: "chrome_histogram_sample",
    29: "chrome_latency_info", 32: "chrome_frame_reporter", 35: "chrome_message_pump",
    38: "chrome_mojo_event_info", 39: "chrome_application_state_info",
    40: "chrome_renderer_scheduler_state", 41: "chrome_window_handle_event_info",
    43: "chrome_content_settings_event_info", 49: "chrome_active_processes", 50: "screenshot",
    55: "callstack", 56: "callstack_iid", 57: "callstack_weight",
}  # fmt: skip
"""Names of fields that are not read: the others of ``track_event.proto`` (2026-11)."""

_EXTRAS = (
    *(TrackEvent.CORRELATION_ID, TrackEvent.CORRELATION_ID_STR, TrackEvent.CORRELATION_ID_STR_IID),
    *(GPU_CORRELATION, _SOURCE_LOCATION, _SOURCE_LOCATION_IID, TrackEvent.LEGACY_EVENT),
)
"""What becomes an argument, besides annotations."""

_OF_LEGACY = ((4, b"thread_duration_us"), (15, b"thread_instruction_delta"))
"""Fields of a LegacyEvent that become arguments."""

MOST_EXTRA = 8
"""Further counters of an event that Perfetto's importer takes."""

_NAMES = (int(DebugAnnotation.NAME_IID), int(DebugAnnotation.NAME))

_FLOW_KINDS = (legacy.FLOW_AROUND, legacy.FLOW_NEXT)
_PLACES = 5
_LOOKED_AT = 1000
"""Events of a block in which the fields are looked up that nothing is made of."""

_FLOWS = (
    (TrackEvent.FLOW_IDS, False),
    (TrackEvent.FLOW_IDS_OLD, False),
    (TrackEvent.TERMINATING_FLOW_IDS, True),
    (TrackEvent.TERMINATING_FLOW_IDS_OLD, True),
)

_OF_THREADS = (
    (
        TrackEvent.THREAD_TIME_DELTA_US,
        TrackEvent.THREAD_TIME_ABSOLUTE_US,
        ThreadDescriptor.REFERENCE_THREAD_TIME_US,
        "thread_time",
        1000,
    ),
    (
        TrackEvent.THREAD_INSTRUCTION_COUNT_DELTA,
        TrackEvent.THREAD_INSTRUCTION_COUNT_ABSOLUTE,
        ThreadDescriptor.REFERENCE_THREAD_INSTRUCTION_COUNT,
        "thread_instruction_count",
        1,
    ),
)
"""Counters of threads that are in events: difference, value, what differences add to, name, and
what to multiply with."""


def take_events(into: Events, timed: Timed) -> None:
    """Add the TrackEvents among some packets."""
    rows = np.flatnonzero(timed.packets.columns.is_bytes(TracePacket.TRACK_EVENT))
    if len(rows):
        _Block(into, timed, rows).take()


class _Block:
    """The TrackEvents of some packets.

    Args:
        rows: those of the packets that have one.
    """

    def __init__(self, into: Events, timed: Timed, rows: I64) -> None:
        self._into, self._build, self._fault = into, into.build, into.sequences.fault
        self._timed, self._rows = timed, rows
        self._data = timed.packets.data
        start, size = timed.packets.columns.spans(TracePacket.TRACK_EVENT)
        self._start, self._size = start[rows], size[rows]
        self._event = columns(self._data, self._start, self._size, FIELDS)
        self._state = timed.state[rows]
        self._states = timed.states
        used = np.unique(self._state).tolist()
        self._used: list[tuple[int, State]] = [(code, timed.states[code]) for code in used]
        self._ns, self._timed_rows = timed.ns[rows].copy(), timed.timed[rows].copy()
        kind = self._event.integer(TrackEvent.TYPE)
        self._kind = np.where((kind >= SLICE_BEGIN) & (kind <= STATE), kind, DROPPED).astype(
            np.int8
        )
        self._generation = self._of_state([state.generation.number for _, state in self._used])
        self._lengths: dict[int, int] = {}  # ns, by row
        self._ends: list[legacy.FlowEnd] = []
        self._sampled: list[tuple[I64, I32, F64]] = []  # rows, lanes, values

    def take(self) -> None:
        """Add everything they say."""
        event, n = self._event, len(self._rows)
        lane, name, category = self._lanes(), self._names(), self._categories()
        old = event.has(TrackEvent.LEGACY_EVENT)
        self._judge("P09-legacy", np.flatnonzero(old))
        self._stamps()
        for i in np.flatnonzero(old).tolist():
            self._legacy(i, lane, name, category)
        self._refuse(old)
        self._counters(lane)
        is_row = (self._kind != DROPPED) & (self._kind != COUNTER)
        rows = np.flatnonzero(is_row)
        mark = np.full(n, -1, np.int64)
        mark[rows] = np.arange(self._into.count, self._into.count + len(rows))
        args = self._arguments(rows, mark)
        self._into.add(
            self._ns[rows], self._kind[rows], lane[rows], name[rows], category[rows], args
        )
        for i, dur in self._lengths.items():
            self._into.last(int(mark[i]), dur)
        self._links(rows, mark)
        with_others = rows[(event.rest[rows] & OTHERS) > 0]
        field_numbers = {
            n for i in with_others[:_LOOKED_AT].tolist() for n, _, _ in self._fields(i)
        }
        unread = (UNREAD.get(n, f"field {n}") for n in sorted(field_numbers.difference(FIELDS)))
        self._build.skip("perfetto-field-unread", ", ".join(unread), len(with_others))

    # -- what holds for rows ---------------------------------------------------------------------

    def _of_state(self, values: list[Any]) -> NDArray[Any]:
        """A value of each state in use as a column."""
        if len(values) == 1:
            return np.full(len(self._rows), values[0])
        used = np.array([number_ for number_, _ in self._used])
        of_events: NDArray[Any] = np.array(values)[np.searchsorted(used, self._state)]
        return of_events

    def _where(self, i: int) -> str:
        return self._timed.packets.where(int(self._rows[i]))

    def _lanes(self) -> I32:
        lanes = self._into.lanes
        lane = self._of_state([lanes.number(state.key) for _, state in self._used]).astype(np.int32)
        has_uuid = self._event.has(TrackEvent.TRACK_UUID)
        uuid = self._event.integer(TrackEvent.TRACK_UUID)
        machines = {state.machine for _, state in self._used}
        for machine in machines:
            of_machine = has_uuid
            if len(machines) > 1:
                of_machine = has_uuid & (
                    self._of_state([state.machine for _, state in self._used]) == machine
                )
            lane[of_machine] = lanes.tracks(machine, uuid[of_machine])
        return lane

    def _names(self) -> I32:
        event, name = self._event, np.full(len(self._rows), -1, np.int32)
        iid = event.integer(TrackEvent.NAME_IID)
        referred = iid != 0
        name[referred] = self._into.names.referred(self._generation[referred], iid[referred])
        has_text = event.is_bytes(TrackEvent.NAME) & ~referred
        if has_text.any():
            start, size = event.spans(TrackEvent.NAME)
            name[has_text] = self._into.names.stated(self._data, start[has_text], size[has_text])
        return name

    def _categories(self) -> I32:
        event, category = self._event, np.full(len(self._rows), -1, np.int32)
        iid = event.integer(TrackEvent.CATEGORY_IIDS)
        referred, table = iid != 0, self._into.categories
        category[referred] = table.referred(self._generation[referred], iid[referred])
        has_text = event.is_bytes(TrackEvent.CATEGORIES)
        several = has_text | event.is_bytes(TrackEvent.CATEGORY_IIDS)
        several |= ((event.rest & REPEATED) > 0) & event.has(TrackEvent.CATEGORY_IIDS)
        for i in np.flatnonzero(several).tolist():
            category[i] = table.one(self._category_text(i))
        return category

    def _category_text(self, i: int) -> bytes:
        """Several categories of an event; those that are not defined are left out."""
        event_fields = self._fields(i)
        state = self._states[int(self._state[i])]
        texts = [
            state.generation.text(InternedData.EVENT_CATEGORIES, iid) or b""
            for iid in integers(event_fields, TrackEvent.CATEGORY_IIDS)
        ]
        texts += [message(v) for n, _, v in event_fields if n == TrackEvent.CATEGORIES]
        return b",".join(filter(None, texts))

    def _fields(self, i: int) -> list[Any]:
        start, size = int(self._start[i]), int(self._size[i])
        return whole_fields(bytes(self._data[start : start + size]))

    def _stamps(self) -> None:
        """Times that are in events themselves, on the monotonic clock."""
        event, clocks = self._event, self._into.sequences.clocks
        has_stamp = event.has(TrackEvent.TIMESTAMP_DELTA_US) | event.has(
            TrackEvent.TIMESTAMP_ABSOLUTE_US
        )
        delta = event.integer(TrackEvent.TIMESTAMP_DELTA_US).tolist() if has_stamp.any() else []
        for i in np.flatnonzero(has_stamp).tolist():
            state = self._states[int(self._state[i])]
            if event.has(TrackEvent.TIMESTAMP_DELTA_US)[i]:
                us = self._into.sequences.advanced(
                    state, ThreadDescriptor.REFERENCE_TIMESTAMP_US, delta[i]
                )
                if us is None:
                    self._timed_rows[i] = False
                    continue
                ns = us * 1000
            else:
                ns = int(event.integer(TrackEvent.TIMESTAMP_ABSOLUTE_US)[i]) * 1000
            self._timed_rows[i] = -(2**63) <= ns < 2**63
            if self._timed_rows[i]:
                converted = clocks.convert(MONOTONIC, np.array([ns]))
                self._ns[i] = ns if converted is None else converted[0]

    # -- events of Chrome ------------------------------------------------------------------------

    def _legacy(self, i: int, lane: I32, name: I32, category: I32) -> None:
        old = legacy.read(
            self._fields(i),
            self._states[int(self._state[i])],
            self._into.sequences.descriptors,
            int(self._kind[i]),
        )
        if isinstance(old, str):
            if self._kind[i] == DROPPED:
                self._build.skip(old, self._where(i))
            return
        if old.name_iid and name[i] < 0:
            gen = np.array([self._generation[i]])
            name[i] = self._into.names.referred(gen, np.array([old.name_iid], np.int64))[0]
        if old.kind is not None:
            self._kind[i] = COMPLETE if old.dur_ns >= 0 else old.kind
        if old.dur_ns >= 0:
            self._lengths[i] = old.dur_ns
        key = old.key
        if key is not None:
            if key[0] == "async":
                scope = int(name[i]) if old.by_name else int(category[i])
                key = (*key, old.by_name, scope)
            lane[i] = self._into.lanes.number(key)
        if old.flow is not None:
            flow, act = old.flow
            if old.kind in _FLOW_KINDS:  # one id is another flow under another name
                flow = (flow, int(category[i]), int(name[i]))
            self._ends.append(legacy.FlowEnd(i, flow, act))

    # -- what cannot be used ----------------------------------------------------------------------

    def _refuse(self, old: Mask) -> None:
        """Book the events that cannot be used, and drop them."""
        columns_ = self._timed.packets.columns
        has_sequence = columns_.has(TracePacket.TRUSTED_PACKET_SEQUENCE_ID)[self._rows]
        damaged = (self._event.rest & DAMAGED) > 0
        unknown = (self._kind == DROPPED) & ~damaged & has_sequence
        usable = has_sequence & ~damaged
        timed = self._timed_rows
        for rule, code, lost in (
            ("P01-message", "malformed-record", damaged),
            ("P02-event", "state-lost", ~has_sequence & ~damaged),
            ("P06-timestamp", "bad-time", usable & ~timed),
            ("P07-negative", "bad-time", usable & timed & (self._ns < 0)),
        ):
            self._drop(rule, code, lost)
        nowhere = (self._kind == STATE) & ~self._event.has(TrackEvent.TRACK_UUID)
        for row in np.flatnonzero(nowhere).tolist():
            if self._states[int(self._state[row])].track is None:
                self._fault("P18-counter", self._where(row))
        strange = unknown & ~old & (self._event.integer(TrackEvent.TYPE) != COUNTER)
        untyped = np.flatnonzero(strange & ~self._event.has(TrackEvent.EXTRA_COUNTER_VALUES))
        if len(untyped):
            self._judge("P09-type", untyped)
            self._build.skip("unknown-phase", self._where(int(untyped[0])), len(untyped))

    def _judge(self, rule: str, rows: I64) -> None:
        """Report events that break a rule, with the places of the first few."""
        if self._fault is not unjudged:
            for i in rows[:_PLACES].tolist():
                self._fault(rule, self._where(i))
            self._fault(rule, "", max(len(rows) - _PLACES, 0))

    def _drop(self, rule: str, code: str, lost: Mask) -> None:
        rows = np.flatnonzero(lost)
        if not len(rows):
            return
        where, kinds = self._where(int(rows[0])), self._kind[rows]
        self._judge(rule, rows)
        for kind, kind_name in ((SLICE_BEGIN, "slice"), (COMPLETE, "slice"), (STATE, "slice"),
                           (INSTANT, "instant"), (COUNTER, "counter")):  # fmt: skip
            count = int((kinds == kind).sum())
            self._build.seen(kind_name, count)
            self._build.skip(code, where, count, kind_name)
        n_others = int(np.isin(kinds, (DROPPED, SLICE_END, *_FLOW_KINDS)).sum())
        self._build.skip(code, where, n_others)
        self._kind[rows] = DROPPED

    # -- counters ----------------------------------------------------------------------------------

    def _counters(self, lane: I32) -> None:
        """Add all samples, in the order of the file."""
        event = self._event
        is_counter = self._kind == COUNTER
        exact = event.has(TrackEvent.COUNTER_VALUE)
        valued = exact | event.has(TrackEvent.DOUBLE_COUNTER_VALUE)
        self._drop("P18-counter", "counter-not-numeric", is_counter & ~valued)
        rows = np.flatnonzero(is_counter & valued)
        value = event.double(TrackEvent.DOUBLE_COUNTER_VALUE)
        integer_values = event.integer(TrackEvent.COUNTER_VALUE).astype(np.float64)
        self._sampled = [(rows, lane[rows], np.where(exact, integer_values, value)[rows])]
        usable = self._timed_rows & (self._ns >= 0)
        extra = event.has(TrackEvent.EXTRA_COUNTER_VALUES)
        extra |= event.has(TrackEvent.EXTRA_DOUBLE_COUNTER_VALUES)
        for i in np.flatnonzero(extra & usable).tolist():
            self._extra(i)
        of_thread = np.zeros(len(self._rows), bool)
        for delta, absolute, *_ in _OF_THREADS:
            of_thread |= event.has(delta) | event.has(absolute)
        for i in np.flatnonzero(of_thread & usable).tolist():
            self._of_thread(i)
        rows, lanes, values = (np.concatenate(c) for c in zip(*self._sampled, strict=True))
        if len(rows):
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
            generation = self._generation[rows].astype(np.int32)
            self._into.sample(self._ns[rows], lanes[order], values[order], generation)

    def _sample(self, i: int, keys: list[Key], values: NDArray[Any]) -> None:
        """Add samples of an event, one per key."""
        lane = np.array([self._into.lanes.number(key) for key in keys], np.int32)
        self._sampled.append((np.full(len(keys), i), lane, values.astype(np.float64)))

    def _of_thread(self, i: int) -> None:
        """The time and the instructions of its thread, as events had them before counters."""
        state = self._states[int(self._state[i])]
        by_number = {n: v for n, _, v in self._fields(i)}
        for delta, absolute, reference, name, factor in _OF_THREADS:
            value = signed(by_number[absolute]) if absolute in by_number else None
            if delta in by_number:
                value = self._into.sequences.advanced(state, reference, signed(by_number[delta]))
            if value is not None and state.thread is not None:
                key = ("counter", state.machine, name, *state.thread)
                self._sample(i, [key], np.array([float(value * factor)]))

    def _extra(self, i: int) -> None:
        """The further counters of an event."""
        event_fields, state = self._fields(i), self._states[int(self._state[i])]
        whole_values = np.array(integers(event_fields, TrackEvent.EXTRA_COUNTER_VALUES), np.uint64)
        real = integers(event_fields, TrackEvent.EXTRA_DOUBLE_COUNTER_VALUES, FIXED64)
        own_uuids = integers(event_fields, TrackEvent.EXTRA_COUNTER_TRACK_UUIDS)
        own_real = integers(event_fields, TrackEvent.EXTRA_DOUBLE_COUNTER_TRACK_UUIDS)
        for values, uuids in (
            (whole_values.view(np.int64), own_uuids or state.extra),
            (np.array(real, np.uint64).view(np.float64), own_real or state.extra_double),
        ):
            n_named = min(len(values), len(uuids))
            lost = len(values) - n_named
            if lost or n_named > MOST_EXTRA:
                self._fault("P18-counter", self._where(i))
            self._build.lose("counter-not-numeric", self._where(i), lost, "counter")
            keys = [track_key(state.machine, uuid) for uuid in uuids[:n_named]]
            self._sample(i, keys, values[:n_named])

    # -- arguments and flows ----------------------------------------------------------------------

    def _arguments(self, rows: I64, mark: I64) -> I32:
        """Argument ids of the rows."""
        event, args = self._event, np.full(len(self._rows), -1, np.int32)
        is_row = np.zeros(len(self._rows), bool)
        is_row[rows] = True
        extras: dict[int, bytes] = {}
        has_extras = np.zeros(len(self._rows), bool)
        for number_ in _EXTRAS:
            has_extras |= event.has(number_)
        for i in np.flatnonzero(has_extras & is_row).tolist():
            extras[i] = self._members(i, int(mark[i]))
        with_annotations = np.flatnonzero(event.is_bytes(TrackEvent.DEBUG_ANNOTATIONS) & is_row)
        raw_annotations = repeated(
            self._data,
            self._start[with_annotations],
            self._size[with_annotations],
            TrackEvent.DEBUG_ANNOTATIONS,
        )
        good = raw_annotations.length >= 0
        owner, start = raw_annotations.owner[good], raw_annotations.value[good].view(np.int64)
        size = raw_annotations.length[good].astype(np.int64)
        if self._fault is not unjudged:
            names = columns(self._data, start, size, _NAMES)
            if nameless := int(((names.integer(1) == 0) & (names.spans(10)[1] <= 0)).sum()):
                self._fault("P22-value", "an argument without a name", nameless)
        ends = np.searchsorted(owner, np.arange(len(with_annotations)), "right")
        generation = self._generation[with_annotations]
        for number_, state in {s.generation.number: s for _, s in self._used}.items():
            of_generation = np.flatnonzero(generation == number_)
            if not len(of_generation):
                continue
            begins = np.concatenate(([0], ends[:-1]))
            if len(of_generation) < len(with_annotations):
                is_own = np.isin(owner, of_generation)
                columns_of_own = (
                    start[is_own],
                    size[is_own],
                    np.cumsum((ends - begins)[of_generation]),
                )
            else:
                columns_of_own = (start, size, ends)
            json_objects = objects(self._data, *columns_of_own, state.generation.arguments)
            for row in json_objects.undefined:
                i = int(of_generation[row])
                spans = range(int(begins[i]), int(ends[i]))
                raws = [bytes(self._data[int(start[i]) : int(start[i] + size[i])]) for i in spans]
                self._into.leave(int(mark[with_annotations[i]]), raws, state)
            if json_objects.replaced:
                self._fault("P22-value", "an argument", json_objects.replaced)
            self._build.skip("bad-encoding", "an argument", json_objects.replaced)
            self._build.skip(
                "perfetto-field-unread", "proto_value of an argument", json_objects.protos
            )
            args[with_annotations[of_generation]] = self._registered(
                json_objects.text, json_objects.length, with_annotations[of_generation], extras
            )
        for i, members in extras.items():
            args[i] = self._build.args(b"{" + members[1:] + b"}" if members else None)
        return args[rows]

    def _registered(
        self, text: bytes, length: I32, rows: I64, extras: dict[int, bytes]
    ) -> NDArray[np.int64]:
        """Ids of objects, to which ``extras`` are added (and taken from there)."""
        if extras:
            ends = np.cumsum(length, dtype=np.int64).tolist()
            parts, copied = [], 0
            length = length.copy()
            for i, (row, end) in enumerate(zip(rows.tolist(), ends, strict=True)):
                members = extras.pop(row, b"")
                json_text = text[copied:end]
                if members:
                    json_text = (
                        json_text[:-1] + (members if len(json_text) > 2 else members[1:]) + b"}"
                    )
                    length[i] = len(json_text)
                parts.append(json_text)
                copied = end
            text = b"".join(parts)
        first_id = self._build.args_bytes(text, length)
        ids = np.arange(first_id, first_id + len(length))
        return np.where(length > 2, ids, -1)

    def _members(self, i: int, mark: int) -> bytes:
        """What else is an argument of an event, each member with a comma before it."""
        event_fields, state = self._fields(i), self._states[int(self._state[i])]
        by_number = {n: v for n, _, v in event_fields}
        out = b""
        if TrackEvent.CORRELATION_ID in by_number:
            out += b',"correlation_id":"tp:#%d"' % number(by_number[TrackEvent.CORRELATION_ID])
        elif TrackEvent.CORRELATION_ID_STR in by_number:
            raw = message(by_number[TrackEvent.CORRELATION_ID_STR])
            out += b',"correlation_id":' + quoted(raw.decode("utf-8", "replace"))
        elif iid := number(by_number.get(TrackEvent.CORRELATION_ID_STR_IID, 0)):
            interned = state.generation.text(InternedData.CORRELATION_ID_STR, iid)
            if interned is not None:
                out += b',"correlation_id":' + quoted(interned.decode("utf-8", "replace"))
        legacy_event = last_values(by_number.get(TrackEvent.LEGACY_EVENT, b""))
        of_thread = [
            b'"%b":%d' % (key, signed(legacy_event[n]))
            for n, key in _OF_LEGACY
            if n in legacy_event
        ]
        if of_thread:
            out += b',"legacy_event":{' + b",".join(of_thread) + b"}"
        out += _source(by_number, state)
        if GPU_CORRELATION in by_number:
            out += self._gpu(whole_fields(by_number[GPU_CORRELATION]), mark)
        return out

    def _gpu(self, fields_read: list[Any], mark: int) -> bytes:
        """The GPU events a call submits and awaits."""
        members = []
        for n, relation, into in ((1, b"submission", self._into.submitted),
                              (2, b"wait", self._into.awaited)):  # fmt: skip
            if ids := integers(fields_read, n):
                into.append((mark, ids))
                listed = b",".join(b"%d" % event_id for event_id in ids)
                members.append(b'"render_stage_%b_event_ids":[%b]' % (relation, listed))
        return b',"gpu_correlation":{' + b",".join(members) + b"}" if members else b""

    def _links(self, rows: I64, mark: I64) -> None:
        """Ends of flows."""
        for n, closes in _FLOWS:
            with_flows = np.flatnonzero(self._event.has(n) & (mark >= 0))
            if not len(with_flows):
                continue
            flow_ids = repeated(self._data, self._start[with_flows], self._size[with_flows], n)
            single = flow_ids.length < -1
            owner, flow = mark[with_flows[flow_ids.owner[single]]], flow_ids.value[single]
            self._into.flow(owner, flow, np.full(len(flow), closes))
            for i in np.flatnonzero(
                flow_ids.length >= 0
            ).tolist():  # several, packed into one field
                i_event = int(with_flows[flow_ids.owner[i]])
                ids = np.array(
                    integers(self._fields(i_event), n, FIXED64 if n > 46 else 0), np.uint64
                )
                self._into.flow(np.full(len(ids), mark[i_event]), ids, np.full(len(ids), closes))
        ends = (end._replace(mark=int(mark[end.mark])) for end in self._ends)
        self._into.legacy_flows += [end for end in ends if end.mark >= 0]


def _source(by_number: dict[int, Any], state: State) -> bytes:
    """Where in a program an event was made."""
    location = by_number.get(_SOURCE_LOCATION)
    if location is None and _SOURCE_LOCATION_IID in by_number:
        location = state.generation.entries.get(
            (_SOURCE_LOCATIONS, number(by_number[_SOURCE_LOCATION_IID]))
        )
    if location is None:
        return b""
    location_fields = {n: v for n, _, v in whole_fields(location)}
    members = [
        b'"%b":' % key + quoted(message(location_fields[n]).decode("utf-8", "replace"))
        for n, key in ((2, b"file_name"), (3, b"function_name"))
        if n in location_fields
    ]
    if 4 in location_fields:
        members.append(b'"line_number":%d' % number(location_fields[4]))
    return b',"source":{' + b",".join(members) + b"}" if members else b""
