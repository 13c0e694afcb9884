"""Paddle's protobuf: a few thousand nodes of a thread's tree at a time, to columns.

Only the outermost framing is walked here; nodes are decoded by the protobuf runtime, with our own
description of them. So of a file that is cut or damaged all that precedes the damage is read, and
memory holds one batch of nodes, not the file. Arguments have the names that Paddle's JSON has for
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from traceconv._proto import message, parsed
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I32, I64
from traceconv.core.source import Source
from traceconv.readers.paddle.layout import (
    MEMORY_TYPES,
    PHASES,
    PYTHON_TYPES,
    TYPES,
    Lane,
    Records,
    What,
    memory,
    noted,
    phase_names,
    put,
)
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.gpu_kernels import step_number
from traceconv.readers.shared.protobuf_wire import Cut, Damaged, Field, content, fields

PLACE = b'{"device":%d,"context":%d,"stream":%d,"correlation id":%d'
_MEASURES = (
    (b',"blocks per SM":%b', "blocks_per_sm"),
    (b',"warps per SM":%b', "warps_per_sm"),
    (b',"theoretical achieved occupancy %%":%b', "occupancy"),
)
_RARE = (
    (b',"local memory per thread":%d', "local_memory_per_thread"),
    (b',"local memory total":%d', "local_memory_total"),
    (b',"queued":%d', "queued"),
    (b',"submitted":%d', "submitted"),
    (b',"completed":%d', "completed"),
)


def type_name(kind: int) -> str:
    """The name of a kind of event."""
    return TYPES[kind] if 0 <= kind < len(TYPES) else f"Type {kind}"


def kernel_args(info: Any) -> bytes:
    """What follows :data:`PLACE` of a kernel."""
    text = (
        b',"registers per thread":%d,"shared memory":%d,"grid":[%d,%d,%d],"block":[%d,%d,%d]'
    ) % (
        info.registers_per_thread,
        info.dynamic_shared_memory + info.static_shared_memory,
        info.grid_x,
        info.grid_y,
        info.grid_z,
        info.block_x,
        info.block_y,
        info.block_z,
    )
    for key, field in _MEASURES:
        if info.HasField(field):
            text += key % _float(getattr(info, field))
    for key, field in _RARE:
        if value := getattr(info, field):
            text += key % value
    return text + b"}"


def _float(value: float) -> bytes:
    return b"%.6g" % value if math.isfinite(value) else b"null"


def operator_args(kind: int, nodes: Any) -> bytes:
    """Arguments of an operator, as the JSON of Paddle names them; nothing that is empty."""
    args: dict[str, Any] = {}
    for node in nodes:
        event = node.op_supplement_event
        shapes, types = event.input_shapes, event.dtypes
        args["op_type"] = event.op_type
        args["input_shapes"] = {
            decoded(key): [[_signed(n) for n in shape.size] for shape in of_key.shape]
            for key, of_key in zip(shapes.key, shapes.shapes, strict=False)
        }
        args["input_dtypes"] = {
            decoded(key): [decoded(name) for name in of_key.name]
            for key, of_key in zip(types.key, types.dtypes, strict=False)
        }
        args["callstack"] = event.callstack
        args["op_id"] = event.op_id
    stated = {key: decoded(v) if isinstance(v, bytes) else v for key, v in args.items() if v}
    return msgspec.json.encode({"type": type_name(kind), **stated})


def decoded(raw: bytes) -> str:
    """Text as far as it is UTF-8."""
    return raw.decode("utf-8", "replace")


def _signed(size: int) -> int:
    """Sizes that are not known are -1, in a field without a sign."""
    return size - 2**64 if size >= 2**63 else size


_STEP = TYPES.index("ProfileStep")
_PHASES = tuple(TYPES.index(kind) for kind in PHASES)
_COPIES = (TYPES.index("Memcpy"), TYPES.index("Memset"))
_NO_PARENT, _ROOT = -1, b"root node"
_LOCAL = -2  # from here down: arguments of the batch at hand, not registered yet


class Nodes:
    """Takes nodes and makes columns of them.

    Attributes:
        count: slices and instants so far.
    """

    def __init__(self, build: TraceBuilder) -> None:
        self.count = 0
        self._build = build
        self._lanes: dict[Lane, int] = {}
        self._of: dict[tuple[What, int, int], int] = {}
        self._names: dict[bytes, int] = {}
        self._quoted: dict[bytes, bytes] = {}
        self._types: dict[int, int] = {}
        self._phases: dict[int, dict[int, None]] = {}  # names, in order
        self._rows: list[tuple[int, int, int, int, int, int, bool]] = []
        self._texts: list[bytes] = []  # arguments of the batch at hand
        self._batches: list[list[Any]] = []
        self._src: list[int] = []
        self._dst: list[int] = []

    def take(self, nodes: Iterable[Any]) -> None:
        """Add the events of decoded nodes."""
        roots, remembered = 0, []
        for node in nodes:
            event = node.host_trace_event
            if node.parent_id == _NO_PARENT and event.name == _ROOT:
                roots += 1
            else:
                self._host(event, node.op_supplement_event_nodes)
            for call in node.runtime_trace_event_nodes:
                self._call(call.runtime_trace_event, call.device_trace_event_nodes)
            remembered += [one.mem_event for one in node.mem_trace_event_nodes]
        self._build.skip("metadata-unused", "roots of threads", roots)
        self._remember(remembered)
        self._close_batch()

    def records(self) -> Records:
        """Everything taken."""
        for kind, names in sorted(self._phases.items()):
            phase_names(self._build, TYPES[kind], names)
        if not self._batches:
            self._close_batch()
        lane, start, dur, name, args, step, instant = (
            np.concatenate(parts) for parts in zip(*self._batches, strict=True)
        )
        arrows: tuple[I64, I64] = (np.array(self._src, np.int64), np.array(self._dst, np.int64))
        return Records(list(self._lanes), lane, start, dur, name, args, step, instant, arrows)

    # -- one event -------------------------------------------------------------------------

    def _add(self, lane: int, event: Any, args: int, step: int = -1) -> int:
        """Add a slice; its row."""
        name = self._name(event.name)
        self._rows.append((lane, event.start_ns, event.end_ns, name, args, step, False))
        self.count += 1
        return self.count - 1

    def _host(self, event: Any, supplements: Any) -> None:
        kind = event.type
        what = What.PYTHON if type_name(kind) in PYTHON_TYPES else What.NATIVE
        step = -1
        if kind == _STEP:
            step = step_number(decoded(event.name))
        args = self._args(operator_args(kind, supplements)) if supplements else self._typed(kind)
        if kind in _PHASES:
            self._phases.setdefault(kind, {})[self._name(event.name)] = None
        self._add(self._lane(what, event.process_id, event.thread_id), event, args, step)

    def _call(self, event: Any, launched: Any) -> None:
        args = self._args(b'{"correlation id":%d}' % event.correlation_id)
        source = self._add(self._lane(What.RUNTIME, event.process_id, event.thread_id), event, args)
        for node in launched:
            work = node.device_trace_event
            what = What.COPY if work.type in _COPIES else What.KERNEL
            lane = self._lane(what, work.device_id, work.stream_id)
            self._src.append(source)
            self._dst.append(self._add(lane, work, self._args(self._device_args(work))))

    def _lane(self, what: What, process: int, thread: int) -> int:
        number = self._of.get((what, process, thread))
        if number is None:
            lane = Lane(what, str(process), str(thread))
            number = self._lanes.setdefault(lane, len(self._lanes))
            self._of[what, process, thread] = number
        return number

    def _name(self, raw: bytes) -> int:
        number = self._names.get(raw)
        if number is None:
            text = decoded(raw)
            self._build.skip("bad-encoding", text[:40], int(text.encode() != raw))
            number = self._names[raw] = self._build.string(text)
        return number

    # -- arguments -------------------------------------------------------------------------

    def _args(self, text: bytes) -> int:
        self._texts.append(text)
        return _LOCAL + 1 - len(self._texts)

    def _typed(self, kind: int) -> int:
        """Arguments that hold the type and nothing else."""
        if kind not in self._types:
            self._types[kind] = self._build.args({"type": type_name(kind)})
        return self._types[kind]

    def _text(self, raw: bytes) -> bytes:
        if raw not in self._quoted:
            self._quoted[raw] = quoted(decoded(raw))
        return self._quoted[raw]

    def _device_args(self, event: Any) -> bytes:
        ids = (event.device_id, event.context_id, event.stream_id, event.correlation_id)
        text, detail = PLACE % ids, event.WhichOneof("detail")
        if detail == "kernel_info":
            return text + kernel_args(event.kernel_info)
        if detail == "memcpy_info":
            info = event.memcpy_info
            stated = (("copy kind", info.copy_kind), ("from", info.src_kind), ("to", info.dst_kind))
            return text + b',"bytes":%d' % info.num_bytes + self._texts_of(stated) + b"}"
        if detail == "memset_info":
            info = event.memset_info
            text += b',"bytes":%d,"value":%d' % (info.num_bytes, info.value)
            return text + self._texts_of((("memory kind", info.memory_kind),)) + b"}"
        return text + b"}"

    def _texts_of(self, stated: Iterable[tuple[str, bytes]]) -> bytes:
        return b"".join(b',"%b":%b' % (k.encode(), self._text(v)) for k, v in stated if v)

    # -- memory, batches -------------------------------------------------------------------

    def _remember(self, events: list[Any]) -> None:
        """Memory events: instants, and samples of what is in use."""
        if not events:
            return
        for event in events:
            lane = self._lane(What.NATIVE, event.process_id, event.thread_id)
            known = 0 <= event.type < len(MEMORY_TYPES)
            name = MEMORY_TYPES[event.type] if known else f"Memory {event.type}"
            args, at = self._args(self._memory_args(event)), event.timestamp_ns
            self._rows.append((lane, at, at, self._name(name.encode()), args, -1, True))
        self.count += len(events)
        events = [e for e in events if e.timestamp_ns <= INT64_MAX]
        start = np.array([e.timestamp_ns for e in events], np.int64)
        places = [decoded(e.place) for e in events]
        allocated = np.array([e.current_allocated for e in events], np.float64)
        reserved = np.array([e.current_reserved for e in events], np.float64)
        memory(self._build, start, places, allocated, reserved)

    def _memory_args(self, event: Any) -> bytes:
        return (
            b'{"place":%b,"addr":"%d","increase_bytes":%d,"current_allocated":%d,'
            b'"current_reserved":%d,"peak_allocated":%d,"peak_reserved":%d}'
        ) % (
            self._text(event.place),
            event.addr,
            event.increase_bytes,
            event.current_allocated,
            event.current_reserved,
            event.peak_allocated,
            event.peak_reserved,
        )

    def _close_batch(self) -> None:
        """Rows at hand to columns, their arguments registered."""
        columns: Any = zip(*self._rows, strict=True) if self._rows else [()] * 7
        lane, start, end, name, args, step, instant = columns
        begin, dur = _spans(start, end)
        self._batches.append(
            [
                np.array(lane, np.int32),
                begin,
                dur,
                np.array(name, np.int32),
                self._registered(np.array(args, np.int32)),
                np.array(step, np.int32),
                np.array(instant, bool),
            ]
        )
        self._rows = []

    def _registered(self, args: I32) -> I32:
        length = np.array([len(text) for text in self._texts], np.int32)
        first = self._build.args_bytes(b"".join(self._texts), length) if self._texts else 0
        self._texts = []
        return np.where(args <= _LOCAL, np.int32(first + _LOCAL) - args, args)


def _spans(start: tuple[int, ...], end: tuple[int, ...]) -> tuple[I64, I64]:
    """Starts and durations; what no int64 can hold gets a span that none can."""
    begin, stop = np.array(start, np.uint64), np.array(end, np.uint64)
    held = (begin <= INT64_MAX) & (stop <= INT64_MAX)
    begin, stop = np.where(held, begin, INT64_MAX), np.where(held, stop, 0)
    at = begin.astype(np.int64)
    return at, np.where(held, stop.astype(np.int64) - at, INT64_MAX)


STEM, PACKAGE = "paddle_profiler", "traceconv.paddle"
BATCH_BYTES = 256 << 10
"""Nodes are decoded in batches of about this size."""

VERSION, SPAN_INDEX, TREE, EXTRA_INFO, DEVICE = range(1, 6)
NODE = 2


def read_pb(source: Source, name: str, build: TraceBuilder, pid: int) -> tuple[int, int] | None:
    """Read one file.

    Args:
        pid: as for :func:`traceconv.readers.paddle.layout.put`.

    Returns:
        Earliest start and latest end, ns; None if there are no events.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    file = _File(content(source, name), build)
    file.read()
    if not file.nodes.count and file.broken:
        raise MalformedInputError(source.title(name), file.broken, "not one event can be read")
    if not file.nodes.count:
        build.skip("empty-file")
    noted(build, **file.facts)
    return put(file.nodes.records(), build, pid)


class _File:
    """One NodeTreesProto.

    Attributes:
        nodes:  the events read so far.
        facts:  what else it says.
        broken: where it is cut or damaged, "" if it is whole.
    """

    def __init__(self, data: Any, build: TraceBuilder) -> None:
        self._data, self._build = data, build
        self.nodes = Nodes(build)
        self.facts: dict[str, Any] = {
            "version": None, "span_index": None, "devices": [], "extra_info": {},
        }  # fmt: skip
        self.broken = ""
        self._tree, self._node, self._extra, self._device = (
            message(STEM, f"{PACKAGE}.{name}")
            for name in (
                "ThreadNodeTreeProto",
                "HostTraceEventNodeProto",
                "NodeTreesProto.ExtraInfoMap",
                "DevicePropertyProto",
            )
        )

    def read(self) -> None:
        """Take everything, up to where the file is cut or damaged."""
        size = len(self._data)
        try:
            for field in fields(self._data, 0, size):
                if field.number == TREE:
                    self._take_tree(field.start, min(field.end, size))
                elif field.end <= size:
                    self._take_fact(field)
                if field.end > size:
                    self._lose("truncated", field.begin)
        except Cut as e:
            self._lose("truncated", e.args[0])
        except Damaged as e:
            self._lose("skipped-bytes", e.args[0], size - e.args[0])

    def _lose(self, code: str, at: int, count: int = 1) -> None:
        if not self.broken or code != "truncated":
            self._build.skip(code, f"byte {at}", count)
        self.broken = self.broken or f"byte {at}"

    def _take_tree(self, at: int, end: int) -> None:
        """The nodes of one thread."""
        first = at
        try:
            for field in fields(self._data, at, end):
                if field.end > end:
                    self._lose("truncated" if end == len(self._data) else "malformed-record", at)
                    break
                if at - first >= BATCH_BYTES:
                    self._take_nodes(first, at)
                    first = at
                at = field.end
        except Cut as e:
            self._lose("truncated", e.args[0])
        except Damaged as e:
            self._lose("skipped-bytes", e.args[0], end - e.args[0])
        self._take_nodes(first, at)

    def _take_nodes(self, first: int, end: int) -> None:
        """Nodes (and the thread's id) in ``data[first:end]``."""
        try:
            nodes = parsed(self._tree, self._data[first:end]).host_event_nodes
        except ValueError:
            nodes = self._one_by_one(first, end)
        self.nodes.take(nodes)

    def _one_by_one(self, first: int, end: int) -> list[Any]:
        """The nodes that can be decoded."""
        found = []
        for field in fields(self._data, first, end):
            if field.number == NODE:
                try:
                    found.append(parsed(self._node, self._data[field.start : field.end]))
                except ValueError:
                    self._lose("malformed-record", field.begin)
        return found

    def _take_fact(self, field: Field) -> None:
        raw = self._data[field.start : field.end]
        if field.number == VERSION:
            self.facts["version"] = raw.decode("utf-8", "replace")
        elif field.number == SPAN_INDEX:
            self.facts["span_index"] = field.value
        elif field.number in (EXTRA_INFO, DEVICE):
            try:
                self._take_message(field.number, raw)
            except ValueError:
                self._lose("malformed-record", field.begin)

    def _take_message(self, number: int, raw: bytes) -> None:
        if number == EXTRA_INFO:
            one = parsed(self._extra, raw)
            self.facts["extra_info"][_text(one.key)] = _text(one.value)
        else:
            one = parsed(self._device, raw)
            stated = ((f.name, value) for f, value in one.ListFields())
            self.facts["devices"].append(
                {name: _text(v) if isinstance(v, bytes) else v for name, v in stated}
            )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
