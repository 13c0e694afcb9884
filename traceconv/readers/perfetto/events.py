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
        self._used: list[tuple[int, State]] = [(one, timed.states[one]) for one in used]
        self._ns, self._timed_rows = timed.ns[rows].copy(), timed.timed[rows].copy()
        kind = self._event.integer(TrackEvent.TYPE)
        self._kind = np.where((kind >= SLICE_BEGIN) & (kind <= STATE), kind, DROPPED).astype(
            np.int8
        )
        self._generation = self._of_state([one.generation.number for _, one in self._used])
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
        for at in np.flatnonzero(old).tolist():
            self._legacy(at, lane, name, category)
        self._refuse(old)
        self._counters(lane)
        kept = (self._kind != DROPPED) & (self._kind != COUNTER)
        rows = np.flatnonzero(kept)
        mark = np.full(n, -1, np.int64)
        mark[rows] = np.arange(self._into.count, self._into.count + len(rows))
        args = self._arguments(rows, mark)
        self._into.add(
            self._ns[rows], self._kind[rows], lane[rows], name[rows], category[rows], args
        )
        for at, dur in self._lengths.items():
            self._into.last(int(mark[at]), dur)
        self._links(rows, mark)
        more = rows[(event.rest[rows] & OTHERS) > 0]
        found = {n for at in more[:_LOOKED_AT].tolist() for n, _, _ in self._fields(at)}
        unread = (UNREAD.get(n, f"field {n}") for n in sorted(found.difference(FIELDS)))
        self._build.skip("perfetto-field-unread", ", ".join(unread), len(more))

    # -- what holds for rows ---------------------------------------------------------------------

    def _of_state(self, values: list[Any]) -> NDArray[Any]:
        """A value of each state in use as a column."""
        if len(values) == 1:
            return np.full(len(self._rows), values[0])
        used = np.array([number_ for number_, _ in self._used])
        found: NDArray[Any] = np.array(values)[np.searchsorted(used, self._state)]
        return found

    def _where(self, at: int) -> str:
        return self._timed.packets.where(int(self._rows[at]))

    def _lanes(self) -> I32:
        lanes = self._into.lanes
        lane = self._of_state([lanes.number(one.key) for _, one in self._used]).astype(np.int32)
        named = self._event.has(TrackEvent.TRACK_UUID)
        uuid = self._event.integer(TrackEvent.TRACK_UUID)
        machines = {one.machine for _, one in self._used}
        for machine in machines:
            own = named
            if len(machines) > 1:
                own = named & (self._of_state([one.machine for _, one in self._used]) == machine)
            lane[own] = lanes.tracks(machine, uuid[own])
        return lane

    def _names(self) -> I32:
        event, name = self._event, np.full(len(self._rows), -1, np.int32)
        iid = event.integer(TrackEvent.NAME_IID)
        referred = iid != 0
        name[referred] = self._into.names.referred(self._generation[referred], iid[referred])
        stated = event.is_bytes(TrackEvent.NAME) & ~referred
        if stated.any():
            start, size = event.spans(TrackEvent.NAME)
            name[stated] = self._into.names.stated(self._data, start[stated], size[stated])
        return name

    def _categories(self) -> I32:
        event, category = self._event, np.full(len(self._rows), -1, np.int32)
        iid = event.integer(TrackEvent.CATEGORY_IIDS)
        referred, table = iid != 0, self._into.categories
        category[referred] = table.referred(self._generation[referred], iid[referred])
        stated = event.is_bytes(TrackEvent.CATEGORIES)
        several = stated | event.is_bytes(TrackEvent.CATEGORY_IIDS)
        several |= ((event.rest & REPEATED) > 0) & event.has(TrackEvent.CATEGORY_IIDS)
        for at in np.flatnonzero(several).tolist():
            category[at] = table.one(self._joined_category(at))
        return category

    def _joined_category(self, at: int) -> bytes:
        """Several categories of an event; those that are not defined are left out."""
        found = self._fields(at)
        state = self._states[int(self._state[at])]
        texts = [
            state.generation.text(InternedData.EVENT_CATEGORIES, iid) or b""
            for iid in integers(found, TrackEvent.CATEGORY_IIDS)
        ]
        texts += [message(v) for n, _, v in found if n == TrackEvent.CATEGORIES]
        return b",".join(filter(None, texts))

    def _fields(self, at: int) -> list[Any]:
        start, size = int(self._start[at]), int(self._size[at])
        return whole_fields(bytes(self._data[start : start + size]))

    def _stamps(self) -> None:
        """Times that are in events themselves, on the monotonic clock."""
        event, clocks = self._event, self._into.sequences.clocks
        own = event.has(TrackEvent.TIMESTAMP_DELTA_US) | event.has(TrackEvent.TIMESTAMP_ABSOLUTE_US)
        delta = event.integer(TrackEvent.TIMESTAMP_DELTA_US).tolist() if own.any() else []
        for at in np.flatnonzero(own).tolist():
            state = self._states[int(self._state[at])]
            if event.has(TrackEvent.TIMESTAMP_DELTA_US)[at]:
                us = self._into.sequences.advanced(
                    state, ThreadDescriptor.REFERENCE_TIMESTAMP_US, delta[at]
                )
                if us is None:
                    self._timed_rows[at] = False
                    continue
                ns = us * 1000
            else:
                ns = int(event.integer(TrackEvent.TIMESTAMP_ABSOLUTE_US)[at]) * 1000
            self._timed_rows[at] = -(2**63) <= ns < 2**63
            if self._timed_rows[at]:
                converted = clocks.convert(MONOTONIC, np.array([ns]))
                self._ns[at] = ns if converted is None else converted[0]

    # -- events of Chrome ------------------------------------------------------------------------

    def _legacy(self, at: int, lane: I32, name: I32, category: I32) -> None:
        found = legacy.read(
            self._fields(at),
            self._states[int(self._state[at])],
            self._into.sequences.descriptors,
            int(self._kind[at]),
        )
        if isinstance(found, str):
            if self._kind[at] == DROPPED:
                self._build.skip(found, self._where(at))
            return
        if found.name_iid and name[at] < 0:
            gen = np.array([self._generation[at]])
            name[at] = self._into.names.referred(gen, np.array([found.name_iid], np.int64))[0]
        if found.kind is not None:
            self._kind[at] = COMPLETE if found.dur_ns >= 0 else found.kind
        if found.dur_ns >= 0:
            self._lengths[at] = found.dur_ns
        key = found.key
        if key is not None:
            if key[0] == "async":
                scope = int(name[at]) if found.by_name else int(category[at])
                key = (*key, found.by_name, scope)
            lane[at] = self._into.lanes.number(key)
        if found.flow is not None:
            flow, act = found.flow
            if found.kind in _FLOW_KINDS:  # one id is another flow under another name
                flow = (flow, int(category[at]), int(name[at]))
            self._ends.append(legacy.FlowEnd(at, flow, act))

    # -- what cannot be used ----------------------------------------------------------------------

    def _refuse(self, old: Mask) -> None:
        """Book the events that cannot be used, and drop them."""
        columns_ = self._timed.packets.columns
        named = columns_.has(TracePacket.TRUSTED_PACKET_SEQUENCE_ID)[self._rows]
        damaged = (self._event.rest & DAMAGED) > 0
        unknown = (self._kind == DROPPED) & ~damaged & named
        usable = named & ~damaged
        timed = self._timed_rows
        for rule, code, lost in (
            ("P01-message", "malformed-record", damaged),
            ("P02-event", "state-lost", ~named & ~damaged),
            ("P06-timestamp", "bad-time", usable & ~timed),
            ("P07-negative", "bad-time", usable & timed & (self._ns < 0)),
        ):
            self._drop(rule, code, lost)
        nowhere = (self._kind == STATE) & ~self._event.has(TrackEvent.TRACK_UUID)
        for row in np.flatnonzero(nowhere).tolist():
            if self._states[int(self._state[row])].track is None:
                self._fault("P18-counter", self._where(row))
        strange = unknown & ~old & (self._event.integer(TrackEvent.TYPE) != COUNTER)
        at = np.flatnonzero(strange & ~self._event.has(TrackEvent.EXTRA_COUNTER_VALUES))
        if len(at):
            self._judge("P09-type", at)
            self._build.skip("unknown-phase", self._where(int(at[0])), len(at))

    def _judge(self, rule: str, rows: I64) -> None:
        """Report events that break a rule, with the places of the first few."""
        if self._fault is not unjudged:
            for at in rows[:_PLACES].tolist():
                self._fault(rule, self._where(at))
            self._fault(rule, "", max(len(rows) - _PLACES, 0))

    def _drop(self, rule: str, code: str, lost: Mask) -> None:
        rows = np.flatnonzero(lost)
        if not len(rows):
            return
        where, kinds = self._where(int(rows[0])), self._kind[rows]
        self._judge(rule, rows)
        for kind, what in ((SLICE_BEGIN, "slice"), (COMPLETE, "slice"), (STATE, "slice"),
                           (INSTANT, "instant"), (COUNTER, "counter")):  # fmt: skip
            count = int((kinds == kind).sum())
            self._build.seen(what, count)
            self._build.skip(code, where, count, what)
        rest = int(np.isin(kinds, (DROPPED, SLICE_END, *_FLOW_KINDS)).sum())
        self._build.skip(code, where, rest)
        self._kind[rows] = DROPPED

    # -- counters ----------------------------------------------------------------------------------

    def _counters(self, lane: I32) -> None:
        """Add all samples, in the order of the file."""
        event = self._event
        own = self._kind == COUNTER
        exact = event.has(TrackEvent.COUNTER_VALUE)
        valued = exact | event.has(TrackEvent.DOUBLE_COUNTER_VALUE)
        self._drop("P18-counter", "counter-not-numeric", own & ~valued)
        rows = np.flatnonzero(own & valued)
        value = event.double(TrackEvent.DOUBLE_COUNTER_VALUE)
        whole = event.integer(TrackEvent.COUNTER_VALUE).astype(np.float64)
        self._sampled = [(rows, lane[rows], np.where(exact, whole, value)[rows])]
        usable = self._timed_rows & (self._ns >= 0)
        extra = event.has(TrackEvent.EXTRA_COUNTER_VALUES)
        extra |= event.has(TrackEvent.EXTRA_DOUBLE_COUNTER_VALUES)
        for at in np.flatnonzero(extra & usable).tolist():
            self._extra(at)
        of_thread = np.zeros(len(self._rows), bool)
        for delta, absolute, *_ in _OF_THREADS:
            of_thread |= event.has(delta) | event.has(absolute)
        for at in np.flatnonzero(of_thread & usable).tolist():
            self._of_thread(at)
        rows, lanes, values = (np.concatenate(c) for c in zip(*self._sampled, strict=True))
        if len(rows):
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
            generation = self._generation[rows].astype(np.int32)
            self._into.sample(self._ns[rows], lanes[order], values[order], generation)

    def _sample(self, at: int, keys: list[Key], values: NDArray[Any]) -> None:
        """Add samples of an event, one per key."""
        lane = np.array([self._into.lanes.number(key) for key in keys], np.int32)
        self._sampled.append((np.full(len(keys), at), lane, values.astype(np.float64)))

    def _of_thread(self, at: int) -> None:
        """The time and the instructions of its thread, as events had them before counters."""
        state = self._states[int(self._state[at])]
        last = {n: v for n, _, v in self._fields(at)}
        for delta, absolute, reference, name, factor in _OF_THREADS:
            value = signed(last[absolute]) if absolute in last else None
            if delta in last:
                value = self._into.sequences.advanced(state, reference, signed(last[delta]))
            if value is not None and state.thread is not None:
                key = ("counter", state.machine, name, *state.thread)
                self._sample(at, [key], np.array([float(value * factor)]))

    def _extra(self, at: int) -> None:
        """The further counters of an event."""
        found, state = self._fields(at), self._states[int(self._state[at])]
        whole = np.array(integers(found, TrackEvent.EXTRA_COUNTER_VALUES), np.uint64)
        real = integers(found, TrackEvent.EXTRA_DOUBLE_COUNTER_VALUES, FIXED64)
        own = integers(found, TrackEvent.EXTRA_COUNTER_TRACK_UUIDS)
        own_real = integers(found, TrackEvent.EXTRA_DOUBLE_COUNTER_TRACK_UUIDS)
        for values, uuids in (
            (whole.view(np.int64), own or state.extra),
            (np.array(real, np.uint64).view(np.float64), own_real or state.extra_double),
        ):
            named = min(len(values), len(uuids))
            lost = len(values) - named
            if lost or named > MOST_EXTRA:
                self._fault("P18-counter", self._where(at))
            self._build.seen("counter", lost)
            self._build.skip("counter-not-numeric", self._where(at), lost, "counter")
            keys = [track_key(state.machine, uuid) for uuid in uuids[:named]]
            self._sample(at, keys, values[:named])

    # -- arguments and flows ----------------------------------------------------------------------

    def _arguments(self, rows: I64, mark: I64) -> I32:
        """Argument ids of the rows."""
        event, args = self._event, np.full(len(self._rows), -1, np.int32)
        kept = np.zeros(len(self._rows), bool)
        kept[rows] = True
        extras: dict[int, bytes] = {}
        more = np.zeros(len(self._rows), bool)
        for number_ in _EXTRAS:
            more |= event.has(number_)
        for at in np.flatnonzero(more & kept).tolist():
            extras[at] = self._members(at, int(mark[at]))
        asked = np.flatnonzero(event.is_bytes(TrackEvent.DEBUG_ANNOTATIONS) & kept)
        found = repeated(
            self._data, self._start[asked], self._size[asked], TrackEvent.DEBUG_ANNOTATIONS
        )
        good = found.length >= 0
        owner, start = found.owner[good], found.value[good].view(np.int64)
        size = found.length[good].astype(np.int64)
        if self._fault is not unjudged:
            names = columns(self._data, start, size, _NAMES)
            if nameless := int(((names.integer(1) == 0) & (names.spans(10)[1] <= 0)).sum()):
                self._fault("P22-value", "an argument without a name", nameless)
        ends = np.searchsorted(owner, np.arange(len(asked)), "right")
        generation = self._generation[asked]
        for number_, state in {s.generation.number: s for _, s in self._used}.items():
            mine = np.flatnonzero(generation == number_)
            if not len(mine):
                continue
            first = np.concatenate(([0], ends[:-1]))
            if len(mine) < len(asked):
                taken = np.isin(owner, mine)
                own = (start[taken], size[taken], np.cumsum((ends - first)[mine]))
            else:
                own = (start, size, ends)
            made = objects(self._data, *own, state.generation.arguments)
            for row in made.undefined:
                at = int(mine[row])
                spans = range(int(first[at]), int(ends[at]))
                raws = [bytes(self._data[int(start[i]) : int(start[i] + size[i])]) for i in spans]
                self._into.leave(int(mark[asked[at]]), raws, state)
            if made.replaced:
                self._fault("P22-value", "an argument", made.replaced)
            self._build.skip("bad-encoding", "an argument", made.replaced)
            self._build.skip("perfetto-field-unread", "proto_value of an argument", made.protos)
            args[asked[mine]] = self._registered(made.text, made.length, asked[mine], extras)
        for at, members in extras.items():
            args[at] = self._build.args(b"{" + members[1:] + b"}" if members else None)
        return args[rows]

    def _registered(
        self, text: bytes, length: I32, rows: I64, extras: dict[int, bytes]
    ) -> NDArray[np.int64]:
        """Ids of objects, to which ``extras`` are added (and taken from there)."""
        if extras:
            ends = np.cumsum(length, dtype=np.int64).tolist()
            parts, at = [], 0
            length = length.copy()
            for i, (row, end) in enumerate(zip(rows.tolist(), ends, strict=True)):
                members = extras.pop(row, b"")
                one = text[at:end]
                if members:
                    one = one[:-1] + (members if len(one) > 2 else members[1:]) + b"}"
                    length[i] = len(one)
                parts.append(one)
                at = end
            text = b"".join(parts)
        first = self._build.args_bytes(text, length)
        ids = np.arange(first, first + len(length))
        return np.where(length > 2, ids, -1)

    def _members(self, at: int, mark: int) -> bytes:
        """What else is an argument of an event, each member with a comma before it."""
        found, state = self._fields(at), self._states[int(self._state[at])]
        last = {n: v for n, _, v in found}
        out = b""
        if TrackEvent.CORRELATION_ID in last:
            out += b',"correlation_id":"tp:#%d"' % number(last[TrackEvent.CORRELATION_ID])
        elif TrackEvent.CORRELATION_ID_STR in last:
            raw = message(last[TrackEvent.CORRELATION_ID_STR])
            out += b',"correlation_id":' + quoted(raw.decode("utf-8", "replace"))
        elif iid := number(last.get(TrackEvent.CORRELATION_ID_STR_IID, 0)):
            known = state.generation.text(InternedData.CORRELATION_ID_STR, iid)
            if known is not None:
                out += b',"correlation_id":' + quoted(known.decode("utf-8", "replace"))
        legacy_event = last_values(last.get(TrackEvent.LEGACY_EVENT, b""))
        of_thread = [
            b'"%b":%d' % (key, signed(legacy_event[n]))
            for n, key in _OF_LEGACY
            if n in legacy_event
        ]
        if of_thread:
            out += b',"legacy_event":{' + b",".join(of_thread) + b"}"
        out += _source(last, state)
        if GPU_CORRELATION in last:
            out += self._gpu(whole_fields(last[GPU_CORRELATION]), mark)
        return out

    def _gpu(self, found: list[Any], mark: int) -> bytes:
        """The GPU events a call submits and awaits."""
        members = []
        for n, what, into in ((1, b"submission", self._into.submitted),
                              (2, b"wait", self._into.awaited)):  # fmt: skip
            if ids := integers(found, n):
                into.append((mark, ids))
                listed = b",".join(b"%d" % one for one in ids)
                members.append(b'"render_stage_%b_event_ids":[%b]' % (what, listed))
        return b',"gpu_correlation":{' + b",".join(members) + b"}" if members else b""

    def _links(self, rows: I64, mark: I64) -> None:
        """Ends of flows."""
        for n, closes in _FLOWS:
            asked = np.flatnonzero(self._event.has(n) & (mark >= 0))
            if not len(asked):
                continue
            found = repeated(self._data, self._start[asked], self._size[asked], n)
            single = found.length < -1
            owner, flow = mark[asked[found.owner[single]]], found.value[single]
            self._into.flow(owner, flow, np.full(len(flow), closes))
            for i in np.flatnonzero(found.length >= 0).tolist():  # several, packed into one field
                at = int(asked[found.owner[i]])
                ids = np.array(integers(self._fields(at), n, FIXED64 if n > 46 else 0), np.uint64)
                self._into.flow(np.full(len(ids), mark[at]), ids, np.full(len(ids), closes))
        ends = (end._replace(mark=int(mark[end.mark])) for end in self._ends)
        self._into.legacy_flows += [end for end in ends if end.mark >= 0]


def _source(last: dict[int, Any], state: State) -> bytes:
    """Where in a program an event was made."""
    of = last.get(_SOURCE_LOCATION)
    if of is None and _SOURCE_LOCATION_IID in last:
        of = state.generation.entries.get((_SOURCE_LOCATIONS, number(last[_SOURCE_LOCATION_IID])))
    if of is None:
        return b""
    found = {n: v for n, _, v in whole_fields(of)}
    members = [
        b'"%b":' % key + quoted(message(found[n]).decode("utf-8", "replace"))
        for n, key in ((2, b"file_name"), (3, b"function_name"))
        if n in found
    ]
    if 4 in found:
        members.append(b'"line_number":%d' % number(found[4]))
    return b',"source":{' + b",".join(members) + b"}" if members else b""
