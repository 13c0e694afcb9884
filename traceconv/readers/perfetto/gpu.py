"""What GPUs did, where it is not written as TrackEvents: render stages and counters.

A stage is a slice with its length, in the lane of its GPU and hardware queue. Its arguments are
those of Perfetto's importer which say something. A counter's value is that of the time before it,
back to the sample before, unless its descriptor says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from traceconv.core.model import F64, I64
from traceconv.core.perfetto_fields import (
    GPU_KERNEL_ARGUMENTS,
    GPU_KERNELS,
    GpuCounterEvent,
    GpuRenderStageEvent,
    InternedData,
    TracePacket,
)
from traceconv.core.protobuf import (
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
from traceconv.readers.perfetto.annotations import real
from traceconv.readers.perfetto.events import COMPLETE, Events
from traceconv.readers.perfetto.state import Generation, State, Timed
from traceconv.readers.shared.arguments import quoted

_LONGEST_NS = 2**62

_FORWARDS = 2
"""A counter whose value holds from its sample on."""


@dataclass
class Stage:
    """A GPU slice: its mark, its id, and the ids it waited for."""

    mark: int
    event: int
    awaits: list[int]


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
        stages: slices in the order of the file.
        kinds:  by mark, the name of its stage ("Kernel", "Memcpy"), "" if it has none; and whether
            it says that it is a collective.
    """

    events: Events
    stages: list[Stage] = field(default_factory=list)
    kinds: dict[int, tuple[str, bool]] = field(default_factory=dict)
    _counters: dict[tuple[int, int], str] = field(default_factory=dict)
    _forwards: set[tuple[int, int]] = field(default_factory=set)
    _values: dict[tuple[int, int], tuple[list[int], list[float]]] = field(default_factory=dict)

    def take(self, timed: Timed) -> None:
        """Add the stages and samples among some packets."""
        of = timed.packets.columns
        for field_number, read in (
            (TracePacket.GPU_RENDER_STAGE_EVENT, self._stages),
            (TracePacket.GPU_COUNTER_EVENT, self._samples),
        ):
            rows = np.flatnonzero(of.is_bytes(field_number))
            if len(rows):
                read(timed, rows)

    # -- stages ------------------------------------------------------------------------------------

    def _stages(self, timed: Timed, rows: I64) -> None:
        build, events = self.events.build, self.events
        start, size = timed.packets.columns.spans(TracePacket.GPU_RENDER_STAGE_EVENT)
        made: list[tuple[int, int, int, int]] = []
        args: list[bytes] = []
        for row in rows.tolist():
            if not timed.timed[row] or timed.ns[row] < 0:
                build.seen("slice")
                build.skip("bad-time", timed.packets.where(row), 1, "slice")
                continue
            at = int(start[row])
            found = whole_fields(bytes(timed.packets.data[at : at + int(size[row])]))
            state = timed.states[int(timed.state[row])]
            last = {n: v for n, _, v in found}
            queue = _queue(last, state.generation)
            if GpuRenderStageEvent.EVENT_ID not in last or queue is None:
                build.seen("slice")
                build.skip("malformed-record", timed.packets.where(row), 1, "slice")
                continue
            pid = _process(last, state.generation)
            key = ("gpu", state.machine, queue.gpu, queue.name, queue.number, pid)
            dur = min(max(signed(last.get(GpuRenderStageEvent.DURATION, 0)), 0), _LONGEST_NS)
            mark = events.count + len(made)
            made.append(
                (int(timed.ns[row]), events.lanes.number(key), self._name(last, state), dur)
            )
            args.append(_arguments(found, last, state.generation))
            self.kinds[mark] = _kind(found, last, state.generation)
            awaits = integers(found, GpuRenderStageEvent.EVENT_WAIT_IDS)
            self.stages.append(Stage(mark, number(last[GpuRenderStageEvent.EVENT_ID]), awaits))
        self._add(made, args)

    def _add(self, made: list[tuple[int, int, int, int]], args: list[bytes]) -> None:
        if not made:
            return
        n, table = len(made), np.array(made, np.int64)
        first = self.events.build.args_bytes(b"".join(args), np.array([*map(len, args)], np.int32))
        ids = np.array([first + i if len(a) > 2 else -1 for i, a in enumerate(args)], np.int32)
        none = np.full(n, -1, np.int32)
        mark = self.events.add(
            table[:, 0].copy(),
            np.full(n, COMPLETE, np.int8),
            table[:, 1].astype(np.int32),
            table[:, 2].astype(np.int32),
            none,
            ids,
        )
        for i, dur in enumerate(table[:, 3].tolist()):
            self.events.last(mark + i, dur)

    def _name(self, last: dict[int, Value], state: State) -> int:
        """The number of a stage's name."""
        names, generation = self.events.names, state.generation
        if GpuRenderStageEvent.NAME_IID in last:
            iid = signed(last[GpuRenderStageEvent.NAME_IID])
            return int(names.referred(np.array([generation.number]), np.array([iid]))[0])
        if GpuRenderStageEvent.NAME in last:
            return names.one(message(last[GpuRenderStageEvent.NAME]))
        if stage := _specification(last, GpuRenderStageEvent.STAGE_IID, generation):
            return names.one(stage[0])
        return names.one(b"render stage(%d)" % number(last.get(GpuRenderStageEvent.STAGE_ID, 0)))

    # -- counters ----------------------------------------------------------------------------------

    def _samples(self, timed: Timed, rows: I64) -> None:
        start, size = timed.packets.columns.spans(TracePacket.GPU_COUNTER_EVENT)
        for row in rows.tolist():
            at = int(start[row])
            found = whole_fields(bytes(timed.packets.data[at : at + int(size[row])]))
            state = timed.states[int(timed.state[row])]
            gpu = self._described(found, state.generation)
            for value in (v for n, _, v in found if n == GpuCounterEvent.COUNTERS):
                self._sample(timed, row, gpu, last_values(value))

    def _sample(self, timed: Timed, row: int, gpu: int, of: dict[int, Value]) -> None:
        build = self.events.build
        usable = 2 in of or 3 in of
        if not usable or not timed.timed[row] or timed.ns[row] < 0:
            code = "bad-time" if usable else "counter-not-numeric"
            build.seen("counter")
            build.skip(code, timed.packets.where(row), 1, "counter")
            return
        value = float(signed(of[2])) if 2 in of else double(of[3])
        times, values = self._values.setdefault((gpu, number(of.get(1, 0))), ([], []))
        times.append(int(timed.ns[row]))
        values.append(value)

    def _described(self, found: list[Field], generation: Generation) -> int:
        """The GPU of samples; takes in the names of its counters."""
        last = {n: v for n, _, v in found}
        gpu = signed32(last.get(GpuCounterEvent.GPU_ID, 0))
        described = last.get(GpuCounterEvent.COUNTER_DESCRIPTOR)
        if iid := number(last.get(GpuCounterEvent.COUNTER_DESCRIPTOR_IID, 0)):
            entry = generation.entries.get((InternedData.GPU_COUNTER_DESCRIPTORS, iid))
            if entry is not None:
                of = last_values(entry)
                described = of.get(2)
                gpu = signed32(of.get(3, 0)) if 3 in of else gpu
        for value in (v for n, _, v in whole_fields(described or b"") if n == 1):
            of = last_values(value)
            key = (gpu, number(of.get(1, 0)))
            self._counters.setdefault(key, _text(of.get(2, b"")))
            if number(of.get(11, 0)) == _FORWARDS:
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
            at, value = np.array(times, np.int64), np.array(values, np.float64)
            order = np.argsort(at, kind="stable")
            at, value = at[order], value[order]
            build.seen("counter", len(at))
            if (gpu, number_) not in self._forwards:
                value = np.append(value[1:], 0.0)
                build.skip("counter-unplaced", name)
            yield gpu, name, at, value


def _text(value: Value) -> str:
    return message(value).decode("utf-8", "replace")


def _specification(
    last: dict[int, Value], field_number: int, generation: Generation
) -> tuple[bytes, bytes] | None:
    """Name and description of a queue or stage."""
    iid = number(last.get(field_number, 0))
    entry = generation.entries.get((InternedData.GPU_SPECIFICATIONS, iid))
    if entry is None:
        return None
    of = last_values(entry)
    return message(of.get(2, b"")), message(of.get(3, b""))


def _queue(last: dict[int, Value], generation: Generation) -> Queue | None:
    """The lane of a stage; None if its queue is not defined."""
    gpu = signed32(last.get(GpuRenderStageEvent.GPU_ID, 0))
    if GpuRenderStageEvent.HW_QUEUE_IID in last:
        found = _specification(last, GpuRenderStageEvent.HW_QUEUE_IID, generation)
        iid = number(last[GpuRenderStageEvent.HW_QUEUE_IID])
        return None if found is None else Queue(gpu, found[0].decode("utf-8", "replace"), iid)
    old = signed32(last.get(GpuRenderStageEvent.HW_QUEUE_ID, 0))
    return Queue(gpu, f"Unknown GPU Queue {old}", old)


def _process(last: dict[int, Value], generation: Generation) -> int:
    """The process whose context a stage is in, 0 if that is not known."""
    iid = number(last.get(GpuRenderStageEvent.CONTEXT, 0))
    entry = generation.entries.get((InternedData.GRAPHICS_CONTEXTS, iid))
    return signed32(last_values(entry).get(2, 0)) if entry is not None else 0


def _kind(found: list[Field], last: dict[int, Value], generation: Generation) -> tuple[str, bool]:
    """The name of a stage, and whether it is a collective."""
    stage = _specification(last, GpuRenderStageEvent.STAGE_IID, generation)
    keys = (
        message(last_values(v).get(1, b""))
        for n, _, v in found
        if n == GpuRenderStageEvent.EXTRA_DATA
    )
    name = stage[0].decode("utf-8", "replace") if stage else ""
    return name, any(key == b"Collective name" for key in keys)


_NUMBERS = (
    ("context_id", GpuRenderStageEvent.CONTEXT),
    ("submission_id", GpuRenderStageEvent.SUBMISSION_ID),
)


def _arguments(found: list[Field], last: dict[int, Value], generation: Generation) -> bytes:
    """The arguments of a stage, as a JSON object."""
    members: dict[str, bytes] = {}
    stage = _specification(last, GpuRenderStageEvent.STAGE_IID, generation)
    if stage and stage[1]:
        members["description"] = quoted(stage[1].decode("utf-8", "replace"))
    for value in (v for n, _, v in found if n == GpuRenderStageEvent.EXTRA_DATA):
        of = last_values(value)
        members[_text(of.get(1, b""))] = quoted(_text(of.get(2, b"")))
    kernel = generation.entries.get(
        (GPU_KERNELS, number(last.get(GpuRenderStageEvent.KERNEL_IID, 0)))
    )
    of = last_values(kernel) if kernel is not None else {}
    for n, key in ((2, "kernel_name"), (3, "kernel_demangled_name"), (4, "kernel_arch")):
        if n in of:
            members[key] = quoted(_text(of[n]))
    for key, n in _NUMBERS:
        if n in last:
            members[key] = b"%d" % number(last[n])
    if GpuRenderStageEvent.LAUNCH in last:
        members |= _launch(whole_fields(last[GpuRenderStageEvent.LAUNCH]), generation)
    return b"{" + b",".join(quoted(key) + b":" + text for key, text in members.items()) + b"}"


def _launch(found: list[Field], generation: Generation) -> dict[str, bytes]:
    """The dimensions of a launch, and what else it was given."""
    last = {n: v for n, _, v in found}
    members: dict[str, bytes] = {}
    sizes = []
    for n, size in ((1, b"grid_size"), (2, b"workgroup_size")):
        if n in last:
            of = last_values(last[n])
            axes = zip(b"xyz", (number(of.get(k, 0)) for k in (1, 2, 3)), strict=True)
            text = b",".join(b'"%c":%d' % axis for axis in axes)
            sizes.append(b'"%b":{%b}' % (size, text))
    if sizes:
        members["launch"] = b"{" + b",".join(sizes) + b"}"
    for value in (v for n, _, v in found if n == 3):
        of = last_values(value)
        entry = generation.entries.get((GPU_KERNEL_ARGUMENTS, number(of.get(1, 0))))
        key = _text(last_values(entry).get(2, b"")) if entry is not None else _text(of.get(2, b""))
        stated = _value(of)
        if key and stated:
            members[key] = stated
    return members


def _value(of: dict[int, Value]) -> bytes:
    """The value of a launch argument: a signed or unsigned integer, a double, or text."""
    for n, value in of.items():
        if n in (3, 4):
            return b"%d" % (signed(value) if n == 3 else number(value))
        if n == 5:
            return real(double(value))
        if n == 6:
            return quoted(_text(value))
    return b""
