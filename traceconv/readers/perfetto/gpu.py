"""What GPUs did, where it is not written as TrackEvents: render stages and counters.

A stage is a slice with its length, in the lane of its GPU and hardware queue. Its arguments are
those of Perfetto's importer which say something. A counter's value is that of the time before it,
back to the sample before, unless its descriptor says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceconv import native
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import F64, I32, I64, Mask
from traceconv.protobuf.message import (
    Field,
    Value,
    double,
    integers,
    last_values,
    message,
    number,
    signed,
    signed32,
    whole_fields,
)
from traceconv.protobuf.message_columns import (
    ABSENT,
    DAMAGED,
    VARINT,
    Columns,
    codes,
    columns,
    repeated,
)
from traceconv.protobuf.perfetto_schema import (
    GPU_KERNEL_ARGUMENTS,
    GPU_KERNELS,
    GpuCounterEvent,
    GpuRenderStageEvent,
    InternedData,
    TracePacket,
)
from traceconv.readers.perfetto.annotations import real
from traceconv.readers.perfetto.marks import COMPLETE, Events
from traceconv.readers.perfetto.slices import Arrows
from traceconv.readers.perfetto.state import Generation, State, Timed
from traceconv.readers.shared.arguments import quoted

_STAGE = TracePacket.GPU_RENDER_STAGE_EVENT

_COMMON = (
    *(GpuRenderStageEvent.GPU_ID, GpuRenderStageEvent.HW_QUEUE_IID),
    *(GpuRenderStageEvent.HW_QUEUE_ID, GpuRenderStageEvent.STAGE_IID),
    *(GpuRenderStageEvent.STAGE_ID, GpuRenderStageEvent.CONTEXT),
)
"""What many slices share."""

_REST = (
    *(GpuRenderStageEvent.KERNEL_IID, GpuRenderStageEvent.CONTEXT),
    *(GpuRenderStageEvent.SUBMISSION_ID, GpuRenderStageEvent.LAUNCH),
)
"""Fields that become arguments."""

_BYTES = (GpuRenderStageEvent.EXTRA_DATA, GpuRenderStageEvent.NAME, GpuRenderStageEvent.LAUNCH)

_FIELDS = (
    *(GpuRenderStageEvent.EVENT_ID, GpuRenderStageEvent.DURATION, GpuRenderStageEvent.NAME_IID),
    *(GpuRenderStageEvent.KERNEL_IID, GpuRenderStageEvent.SUBMISSION_ID, *_COMMON, *_BYTES),
    GpuRenderStageEvent.EVENT_WAIT_IDS,
)

_LONGEST_NS = 2**62

_NO_STAGES = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))

_FORWARDS = 2
"""A counter whose value holds from its sample on."""


@dataclass
class Queue:
    """Where stages are drawn: the GPU, the name of the queue, and its number."""

    gpu: int
    name: str
    number: int


@dataclass
class Gpu:
    """Takes packets of GPUs.

    Attributes:
        kinds: names of stages ("Kernel", "Memcpy"; "" where there is none), and whether slices say
            that they are collectives.
    """

    events: Events
    kinds: dict[tuple[str, bool], int] = field(default_factory=dict)
    _stages: list[tuple[I64, I64, I64]] = field(default_factory=list)
    _awaits: list[tuple[I64, I64]] = field(default_factory=list)
    _counters: dict[tuple[int, int], str] = field(default_factory=dict)
    _forwards: set[tuple[int, int]] = field(default_factory=set)
    _values: dict[tuple[int, int], tuple[list[int], list[float]]] = field(default_factory=dict)

    def take(self, timed: Timed) -> None:
        """Add the stages and samples among some packets."""
        packet_columns = timed.packets.columns
        for field_number, read in (
            (TracePacket.GPU_RENDER_STAGE_EVENT, self._take_stages),
            (TracePacket.GPU_COUNTER_EVENT, self._samples),
        ):
            rows = np.flatnonzero(packet_columns.is_bytes(field_number))
            if len(rows):
                read(timed, rows)

    # -- stages ------------------------------------------------------------------------------------

    def _take_stages(self, timed: Timed, rows: I64) -> None:
        build, events, data = self.events.build, self.events, timed.packets.data
        start, size = (c[rows] for c in timed.packets.columns.spans(_STAGE))
        stage_columns = columns(data, start, size, _FIELDS)
        state = np.asarray(timed.state, np.int64)[rows]
        usable = np.asarray(timed.timed)[rows] & (timed.ns[rows] >= 0)
        sound = stage_columns.has(GpuRenderStageEvent.EVENT_ID) & (
            (stage_columns.rest & DAMAGED) == 0
        )
        for i_field, number_ in enumerate(
            _FIELDS[:-1]
        ):  # ids that are awaited may be packed or not
            expected = (
                stage_columns.lengths[i_field] >= 0
                if number_ in _BYTES
                else stage_columns.lengths[i_field] == VARINT
            )
            sound &= expected | ~stage_columns.has(number_)
        kinds, kind = _distinct(state, stage_columns)
        stage_kinds = [_Stage.of(values, timed.states[values[0]], events) for values in kinds]
        placed = np.array([stage.lane >= 0 for stage in stage_kinds], bool)[kind]
        if nowhere := int((sound & ~placed).sum()):
            events.sequences.fault("P04-id", "the queue of a GPU slice", nowhere)
        sound &= placed
        for code, lost in (("bad-time", ~usable), ("malformed-record", usable & ~sound)):
            if lost.any():
                build.seen("slice", int(lost.sum()))
                where = timed.packets.where(int(rows[lost][0]))
                build.skip(code, where, int(lost.sum()), "slice")
        is_sound = np.flatnonzero(usable & sound)
        if not len(is_sound):
            return
        kind, states = kind[is_sound], [timed.states[values[0]] for values in kinds]
        sound_columns = Columns(
            stage_columns.wanted,
            stage_columns.values[:, is_sound],
            stage_columns.lengths[:, is_sound],
            stage_columns.rest[is_sound],
        )
        args, collective = _Arguments(data, start[is_sound], size[is_sound], sound_columns).made(
            kind, stage_kinds, states, build
        )
        lanes = np.array([stage.lane for stage in stage_kinds], np.int32)
        dur = np.clip(sound_columns.integer(GpuRenderStageEvent.DURATION), 0, _LONGEST_NS)
        first_mark = events.add(
            timed.ns[rows][is_sound],
            np.full(len(is_sound), COMPLETE, np.int8),
            lanes[kind],
            self._names(data, sound_columns, kind, stage_kinds, states),
            np.full(len(is_sound), -1, np.int32),
            args,
        )
        events.lasting(first_mark, dur)
        marks = np.arange(first_mark, first_mark + len(is_sound))
        numbers = np.array(
            [
                [self.kinds.setdefault((stage.kind, c), len(self.kinds)) for c in (False, True)]
                for stage in stage_kinds
            ]
        )
        event = sound_columns.integer(GpuRenderStageEvent.EVENT_ID)
        self._stages.append((marks, event, numbers[kind, collective.astype(np.intp)]))
        waits = np.flatnonzero(sound_columns.has(GpuRenderStageEvent.EVENT_WAIT_IDS))
        for i in waits.tolist():
            begin = int(start[is_sound[i]])
            stage_fields = whole_fields(bytes(data[begin : begin + int(size[is_sound[i]])]))
            ids = np.array(integers(stage_fields, GpuRenderStageEvent.EVENT_WAIT_IDS), np.uint64)
            self._awaits.append((np.full(len(ids), marks[i]), ids.view(np.int64)))

    def _names(
        self,
        data: Any,
        stage_columns: Columns,
        kind: I64,
        stage_kinds: Sequence[_Stage],
        states: Sequence[State],
    ) -> I32:
        """Numbers of names: interned, stated, or those of the stage."""
        names = self.events.names
        by_number = stage_columns.has(GpuRenderStageEvent.NAME_IID)
        has_text = stage_columns.has(GpuRenderStageEvent.NAME) & ~by_number
        names_found = np.full(len(stage_columns), -1, np.int32)
        if by_number.any():
            generation = np.array([state.generation.number for state in states], np.int64)
            iids = stage_columns.integer(GpuRenderStageEvent.NAME_IID)[by_number]
            names_found[by_number] = names.referred(generation[kind[by_number]], iids)
        if has_text.any():
            start, size = stage_columns.spans(GpuRenderStageEvent.NAME)
            names_found[has_text] = names.stated(data, start[has_text], size[has_text])
        by_stage = np.flatnonzero(~by_number & ~has_text)
        for i_kind in np.unique(kind[by_stage]).tolist():
            names_found[by_stage[kind[by_stage] == i_kind]] = names.one(stage_kinds[i_kind].name)
        return names_found

    def stages(self) -> tuple[I64, I64, I64]:
        """Events of stages in the order of the file, the ids of their events, and their kinds."""
        marks, events, kinds = zip(_NO_STAGES, *self._stages, strict=True)
        return np.concatenate(marks), np.concatenate(events), np.concatenate(kinds)

    def awaits(self) -> tuple[I64, I64]:
        """Events of stages that waited, and ids of events for which they did."""
        marks, events = zip(_NO_STAGES[:2], *self._awaits, strict=True)
        return np.concatenate(marks), np.concatenate(events)

    def arrows(self, row: I64) -> Arrows:
        """Flows between calls and what GPUs did, and between GPU slices that wait."""
        submitted = {event_id: mark for mark, ids in self.events.submitted for event_id in ids}
        awaited = {event_id: mark for mark, ids in self.events.awaited for event_id in ids}
        marks, event, _ = self.stages()
        pairs = []
        for mark_by_event, turned in ((submitted, False), (awaited, True)):
            if not mark_by_event:
                continue
            rows = np.flatnonzero(
                np.isin(event, np.array(list(mark_by_event), np.uint64).view(np.int64))
            )
            ids = event[rows].view(np.uint64).tolist()
            for event_id, stage in zip(ids, marks[rows].tolist(), strict=True):
                pairs.append(
                    (stage, mark_by_event[event_id]) if turned else (mark_by_event[event_id], stage)
                )
        waiting, ids = self.awaits()
        done: dict[int, list[int]] = {}
        rows = np.flatnonzero(np.isin(event, ids))
        for event_id, stage in zip(event[rows].tolist(), marks[rows].tolist(), strict=True):
            done.setdefault(event_id, []).append(stage)
        for stage, event_id in zip(waiting.tolist(), ids.tolist(), strict=True):
            pairs += [(source, stage) for source in done.get(event_id, [])]
        never = submitted.keys() - set(event.view(np.uint64).tolist())
        ends = np.array(pairs, np.int64).reshape(-1, 2)
        src, dst = row[ends[:, 0]], row[ends[:, 1]]
        has_rows = (src >= 0) & (dst >= 0)
        single = np.array([submitted[event_id] for event_id in never], np.int64)
        return Arrows(src[has_rows], dst[has_rows], np.concatenate((single, ends[~has_rows, 0])))

    # -- counters ----------------------------------------------------------------------------------

    def _samples(self, timed: Timed, rows: I64) -> None:
        start, size = timed.packets.columns.spans(TracePacket.GPU_COUNTER_EVENT)
        for row in rows.tolist():
            begin = int(start[row])
            event_fields = whole_fields(bytes(timed.packets.data[begin : begin + int(size[row])]))
            state = timed.states[int(timed.state[row])]
            gpu = self._described(event_fields, state.generation)
            for value in (v for n, _, v in event_fields if n == GpuCounterEvent.COUNTERS):
                self._sample(timed, row, gpu, last_values(value))

    def _sample(self, timed: Timed, row: int, gpu: int, sample: dict[int, Value]) -> None:
        build = self.events.build
        usable = 2 in sample or 3 in sample
        if not usable or not timed.timed[row] or timed.ns[row] < 0:
            code = "bad-time" if usable else "counter-not-numeric"
            build.lose(code, timed.packets.where(row), 1, "counter")
            return
        value = float(signed(sample[2])) if 2 in sample else double(sample[3])
        times, values = self._values.setdefault((gpu, number(sample.get(1, 0))), ([], []))
        times.append(int(timed.ns[row]))
        values.append(value)

    def _described(self, event_fields: list[Field], generation: Generation) -> int:
        """The GPU of samples; takes in the names of its counters."""
        by_number = {n: v for n, _, v in event_fields}
        gpu = signed32(by_number.get(GpuCounterEvent.GPU_ID, 0))
        described = by_number.get(GpuCounterEvent.COUNTER_DESCRIPTOR)
        if iid := number(by_number.get(GpuCounterEvent.COUNTER_DESCRIPTOR_IID, 0)):
            entry = generation.entries.get((InternedData.GPU_COUNTER_DESCRIPTORS, iid))
            if entry is not None:
                message_fields = last_values(entry)
                described = message_fields.get(2)
                gpu = signed32(message_fields.get(3, 0)) if 3 in message_fields else gpu
        for value in (v for n, _, v in whole_fields(described or b"") if n == 1):
            message_fields = last_values(value)
            key = (gpu, number(message_fields.get(1, 0)))
            self._counters.setdefault(key, _text(message_fields.get(2, b"")))
            if number(message_fields.get(11, 0)) == _FORWARDS:
                self._forwards.add(key)
        return gpu

    def samples(self) -> Iterator[tuple[int, str, I64, F64]]:
        """GPU, name, times and values of every counter.

        A value that holds for the time before it stands where that time begins. For the first one
        nothing says where that is; where the last one ends the counter goes to 0.
        """
        build = self.events.build
        for (gpu, number_), (times, values) in self._values.items():
            name = self._counters.get((gpu, number_), f"Counter {number_}")
            time, value = np.array(times, np.int64), np.array(values, np.float64)
            order = np.argsort(time, kind="stable")
            time, value = time[order], value[order]
            build.seen("counter", len(time))
            if (gpu, number_) not in self._forwards:
                value = np.append(value[1:], 0.0)
                build.skip("counter-unplaced", name)
            yield gpu, name, time, value


def _text(value: Value) -> str:
    return message(value).decode("utf-8", "replace")


def _specification(
    by_number: dict[int, Value], field_number: int, generation: Generation
) -> tuple[bytes, bytes] | None:
    """Name and description of a queue or stage."""
    iid = number(by_number.get(field_number, 0))
    entry = generation.entries.get((InternedData.GPU_SPECIFICATIONS, iid))
    if entry is None:
        return None
    by_field = last_values(entry)
    return message(by_field.get(2, b"")), message(by_field.get(3, b""))


@dataclass(frozen=True)
class _Stage:
    """What slices of one kind have in common.

    Attributes:
        lane: its number; -1 if its queue is not defined.
        kind: the name of the stage, "" if it has none.
        name: of slices that have none.
        description: of the stage, as a member of an object; b"" if there is none.
    """

    lane: int
    kind: str
    name: bytes
    description: bytes

    @classmethod
    def of(cls, values: Sequence[int], state: State, events: Events) -> _Stage:
        """A stage from the state and the values of :data:`_COMMON`; 0 for an absent field."""
        pairs = zip(_COMMON, values[2:], strict=True)
        by_number: dict[int, Value] = {n: v & 0xFFFFFFFFFFFFFFFF for n, v in pairs if v}
        if values[1]:
            by_number.setdefault(GpuRenderStageEvent.HW_QUEUE_IID, 0)
        queue = _queue(by_number, state.generation)
        stage = _specification(by_number, GpuRenderStageEvent.STAGE_IID, state.generation)
        old = number(by_number.get(GpuRenderStageEvent.STAGE_ID, 0))
        name, description = stage or (b"render stage(%d)" % old, b"")
        lane = -1
        if queue is not None:
            iid = number(by_number.get(GpuRenderStageEvent.CONTEXT, 0))
            entry = state.generation.entries.get((InternedData.GRAPHICS_CONTEXTS, iid))
            pid = signed32(last_values(entry).get(2, 0)) if entry is not None else 0
            key = ("gpu", state.machine, queue.gpu, queue.name, queue.number, pid)
            lane = events.lanes.number(key)
        if description:
            description = b'"description":' + quoted(description.decode("utf-8", "replace"))
        return cls(lane, name.decode("utf-8", "replace") if stage else "", name, description)


def _distinct(state: I64, stage_columns: Columns) -> tuple[list[list[int]], I64]:
    """What :class:`_Stage` is made of, each once, and which of these every slice has."""
    has_queue = stage_columns.has(GpuRenderStageEvent.HW_QUEUE_IID).astype(np.int64)
    table = np.stack([state, has_queue, *(stage_columns.integer(n) for n in _COMMON)], axis=1)
    size = table.shape[1] * 8
    begins = np.arange(len(table), dtype=np.int64) * size
    distinct = codes()
    kind = np.frombuffer(
        distinct.texts(table.tobytes(), begins, np.full(len(begins), size)), np.int32
    )
    kinds = [np.frombuffer(raw, np.int64).tolist() for raw in distinct.entries(0)]
    return kinds, kind.astype(np.int64)


def _queue(by_number: dict[int, Value], generation: Generation) -> Queue | None:
    """The lane of a stage; None if its queue is not defined."""
    gpu = signed32(by_number.get(GpuRenderStageEvent.GPU_ID, 0))
    if GpuRenderStageEvent.HW_QUEUE_IID in by_number:
        specification = _specification(by_number, GpuRenderStageEvent.HW_QUEUE_IID, generation)
        iid = number(by_number[GpuRenderStageEvent.HW_QUEUE_IID])
        return (
            None
            if specification is None
            else Queue(gpu, specification[0].decode("utf-8", "replace"), iid)
        )
    old = signed32(by_number.get(GpuRenderStageEvent.HW_QUEUE_ID, 0))
    return Queue(gpu, f"Unknown GPU Queue {old}", old)


class _Arguments:
    """The arguments of slices: what their stage says, their own pairs of texts, and the rest.

    Where a key comes twice its last value counts, in the place of the first; such rows, and those
    with something unusual, are read one by one.
    """

    def __init__(self, data: Any, start: I64, size: I64, stage_columns: Columns) -> None:
        self._data, self._start, self._size, self._of = data, start, size, stage_columns

    def made(
        self, kind: I64, stage_kinds: Sequence[_Stage], states: Sequence[State], build: TraceBuilder
    ) -> tuple[I32, Mask]:
        """Ids of arguments, and which slices say that they are collectives."""
        n, data = len(kind), self._data
        extra_data = repeated(data, self._start, self._size, GpuRenderStageEvent.EXTRA_DATA)
        start, size = extra_data.value.view(np.int64), extra_data.length.astype(np.int64)
        ends = np.searchsorted(extra_data.owner, np.arange(n), "right")
        pair = columns(data, start, size, (1, 2))
        odd, collective = np.zeros(n, bool), np.zeros(n, bool)
        texts = ((pair.lengths >= 0) | (pair.lengths == ABSENT)).all(axis=0)
        odd[extra_data.owner[((pair.rest & DAMAGED) > 0) | ~texts]] = True
        key_of = codes()
        key = np.frombuffer(key_of.texts(data, *pair.spans(1)), np.int32).astype(np.int64)
        keys = key_of.entries(0)
        for code in (i for i, raw in enumerate(keys) if raw == b"Collective name"):
            collective[extra_data.owner[key == code]] = True
        reserved = np.array([raw in _RESERVED or not raw.isascii() for raw in keys], bool)
        odd[extra_data.owner[reserved[key]]] = True
        row_keys = np.sort(extra_data.owner * (len(keys) + 1) + key)
        odd[row_keys[1:][row_keys[1:] == row_keys[:-1]] // (len(keys) + 1)] = True
        has_further = np.zeros(n, bool)
        for number_ in _REST:
            has_further |= self._of.has(number_)
        around = (
            has_further | np.array([bool(stage.description) for stage in stage_kinds], bool)[kind]
        )
        text, length = self._pairs(start, size, ends, odd)
        if not (odd | around).any():
            return _ids(build, text, length), collective
        bounds = np.concatenate(([0], np.cumsum(length, dtype=np.int64))).tolist()
        parts = []
        for i, i_kind in enumerate(kind.tolist()):
            json_object = text[bounds[i] : bounds[i + 1]]
            if odd[i] or around[i]:
                json_object = self._object_of_row(
                    i,
                    json_object,
                    odd[i],
                    has_further[i],
                    stage_kinds[i_kind],
                    states[i_kind].generation,
                )
            parts.append(json_object)
        lengths = np.array([len(part) for part in parts], np.int32)
        return _ids(build, b"".join(parts), lengths), collective

    def _pairs(self, start: I64, size: I64, ends: I64, odd: Mask) -> tuple[bytes, I32]:
        """The objects of pairs; rows that are to be read one by one are found to be ``odd``."""
        compiled = native.wire()
        if not compiled:
            odd[:] = True
            return b"", np.zeros(len(ends), np.int32)
        text, length, odd_rows = compiled.annotations(
            self._data, start, size, np.ascontiguousarray(ends), [], {}, [], {}, True
        )
        odd |= np.frombuffer(odd_rows, np.uint8) > 0
        return text, np.frombuffer(length, np.int32)

    def _object_of_row(
        self,
        i: int,
        pairs_text: bytes,
        odd: bool,
        has_further: bool,
        stage: _Stage,
        generation: Generation,
    ) -> bytes:
        """The object of one row; ``pairs_text`` is that of its pairs."""
        if not odd and not has_further:
            return (
                b"{" + stage.description + (b"," + pairs_text[1:] if len(pairs_text) > 2 else b"}")
            )
        begin = int(self._start[i])
        stage_fields = whole_fields(bytes(self._data[begin : begin + int(self._size[i])]))
        members: dict[str, bytes] = {}
        if stage.description:
            members["description"] = stage.description.partition(b":")[2]
        for value in (v for n, _, v in stage_fields if n == GpuRenderStageEvent.EXTRA_DATA):
            pair = last_values(value)
            members[_text(pair.get(1, b""))] = quoted(_text(pair.get(2, b"")))
        members |= _further(stage_fields, generation)
        return b"{" + b",".join(quoted(key) + b":" + t for key, t in members.items()) + b"}"


def _ids(build: TraceBuilder, text: bytes, length: I32) -> I32:
    first_id = build.args_bytes(text, length)
    return np.where(length > 2, np.arange(first_id, first_id + len(length)), -1).astype(np.int32)


_NUMBERS = (
    ("context_id", GpuRenderStageEvent.CONTEXT),
    ("submission_id", GpuRenderStageEvent.SUBMISSION_ID),
)

_RESERVED = frozenset((b"description",))
"""Keys that other arguments may have, too."""


def _further(stage_fields: list[Field], generation: Generation) -> dict[str, bytes]:
    """Arguments of a stage that have separate fields."""
    by_number, members = {n: v for n, _, v in stage_fields}, {}
    kernel = generation.entries.get(
        (GPU_KERNELS, number(by_number.get(GpuRenderStageEvent.KERNEL_IID, 0)))
    )
    kernel_facts = last_values(kernel) if kernel is not None else {}
    for n, key in ((2, "kernel_name"), (3, "kernel_demangled_name"), (4, "kernel_arch")):
        if n in kernel_facts:
            members[key] = quoted(_text(kernel_facts[n]))
    for key, n in _NUMBERS:
        if n in by_number:
            members[key] = b"%d" % number(by_number[n])
    if GpuRenderStageEvent.LAUNCH in by_number:
        members |= _launch(whole_fields(by_number[GpuRenderStageEvent.LAUNCH]), generation)
    return members


def _launch(launch_fields: list[Field], generation: Generation) -> dict[str, bytes]:
    """The dimensions of a launch, and what else it was given."""
    by_number = {n: v for n, _, v in launch_fields}
    members: dict[str, bytes] = {}
    sizes = []
    for n, size in ((1, b"grid_size"), (2, b"workgroup_size")):
        if n in by_number:
            axis_sizes = last_values(by_number[n])
            axes = zip(b"xyz", (number(axis_sizes.get(k, 0)) for k in (1, 2, 3)), strict=True)
            text = b",".join(b'"%c":%d' % axis for axis in axes)
            sizes.append(b'"%b":{%b}' % (size, text))
    if sizes:
        members["launch"] = b"{" + b",".join(sizes) + b"}"
    for value in (v for n, _, v in launch_fields if n == 3):
        argument = last_values(value)
        entry = generation.entries.get((GPU_KERNEL_ARGUMENTS, number(argument.get(1, 0))))
        key = (
            _text(last_values(entry).get(2, b""))
            if entry is not None
            else _text(argument.get(2, b""))
        )
        value_text = _value(argument)
        if key and value_text:
            members[key] = value_text
    return members


def _value(by_number: dict[int, Value]) -> bytes:
    """The value of a launch argument: a signed or unsigned integer, a double, or text."""
    for n, value in by_number.items():
        if n in (3, 4):
            return b"%d" % (signed(value) if n == 3 else number(value))
        if n == 5:
            return real(double(value))
        if n == 6:
            return quoted(_text(value))
    return b""
