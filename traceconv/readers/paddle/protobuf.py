"""Paddle's protobuf (``NodeTreesProto``) as columns.

A file holds a tree of host events per thread; runtime calls hang below host events, and device
events below the calls that launched them. Each level is read for the whole file at once, so damage
costs the message it is in and what follows in the same thread. Arguments have the names that
Paddle's JSON gives them.

Source: paddle/fluid/platform/profiler/dump/nodetree.proto of PaddlePaddle/Paddle.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I32, I64
from traceconv.core.ordering import factored_rows, mapped
from traceconv.core.source import Source
from traceconv.protobuf.message import Value, integers, message, signed, whole_fields
from traceconv.protobuf.message_columns import DAMAGED, FIXED32, Columns, codes, columns
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
from traceconv.readers.shared.arguments import objects, quoted, register
from traceconv.readers.shared.gpu_kernels import step_number
from traceconv.readers.shared.protobuf_wire import content, damage_in, nested

# fields of NodeTreesProto, ThreadNodeTreeProto and HostTraceEventNodeProto
_VERSION, _SPAN_INDEX, _TREES, _EXTRA_INFO, _DEVICES = range(1, 6)
_NODES = 2
_PARENT, _HOST, _CALLS, _MEMORY, _SUPPLEMENTS = range(2, 7)

_NAME, _TYPE, _START, _END, _PROCESS, _THREAD = range(1, 7)
"""Fields of HostTraceEventProto; calls have no type and device events more."""

_DEVICE_FACTS = (
    "id", "name", "total_global_memory", "compute_major", "compute_minor", "max_threads_per_block",
    "max_threads_per_multiprocessor", "regs_per_block", "regs_per_multiprocessor", "warp_size",
    "shared_memory_per_block", "shared_memory_per_multiprocessor", "sm_count",
    "shared_memory_per_block_optin",
)  # fmt: skip
"""The fields of DevicePropertyProto, from number 1."""

_DETAILS = (_KERNEL, _COPY, _SET) = (9, 10, 11)
"""Fields of DeviceTraceEventProto that hold the details of a kernel, a copy and a fill."""

_MEASURES = {
    "blocks per SM": 15, "warps per SM": 16, "theoretical achieved occupancy %": 17,
}  # fmt: skip
_RARE = {
    "local memory per thread": 10, "local memory total": 11, "queued": 12, "submitted": 13,
    "completed": 14,
}  # fmt: skip
_MEMORY_MEASURES = (
    "increase_bytes", "", "current_allocated", "current_reserved", "peak_allocated",
    "peak_reserved",
)  # fmt: skip
"""Fields of MemTraceEventProto from number 6; number 7 is the place."""

_STEP, _COPIES = TYPES.index("ProfileStep"), (TYPES.index("Memcpy"), TYPES.index("Memset"))
_WHATS = {TYPES.index("Kernel"): What.KERNEL, **dict.fromkeys(_COPIES, What.COPY)}
_NO_PARENT, _ROOT = -1, "root node"


def type_name(kind: int) -> str:
    """The name of a kind of event."""
    return TYPES[kind] if 0 <= kind < len(TYPES) else f"Type {kind}"


def read_pb(source: Source, name: str, build: TraceBuilder, pid: int) -> None:
    """Read one file.

    Args:
        pid: as for :func:`traceconv.readers.paddle.layout.put`.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    file = _File(content(source, name), build)
    records = file.records()
    if not len(records.lane):
        if file.broken:
            raise MalformedInputError(source.title(name), file.broken, "not one event can be read")
        build.skip("empty-file")
    noted(build, **file.facts())
    put(records, build, pid)


def host_spans(head: bytes) -> tuple[I64, I64, I64]:
    """Process, start and end (ns) of the whole host events in the first bytes of a file."""
    start, size = _trees(head)
    _, start, size = nested(head, start, size, _NODES)
    events = columns(head, *columns(head, start, size, (_HOST,)).spans(_HOST), range(1, 7))
    complete = events.has(_START) & events.has(_END) & (events.integer(_END) >= 0)
    return tuple(events.integer(number)[complete] for number in (_PROCESS, _START, _END))  # type: ignore[return-value]


def _trees(data: Any) -> tuple[I64, I64]:
    """Start and size of the trees of a file, what is there of a cut one included."""
    _, start, size = nested(data, np.array([0]), np.array([len(data)]), _TREES)
    inside = damage_in(data, 0, len(data), _TREES).inside
    if inside is not None:
        start, size = np.append(start, inside), np.append(size, len(data) - inside)
    return start, size


class _Rows(NamedTuple):
    """Slices or instants of one level: columns of equal length."""

    lane: I32
    start: I64
    dur: I64
    name: I32
    args: I32
    step: I32


class _File:
    """One NodeTreesProto.

    Attributes:
        broken: where it is cut or damaged, "" if it is whole.
    """

    def __init__(self, data: Any, build: TraceBuilder) -> None:
        self._data, self._build = data, build
        self._lanes: dict[Lane, int] = {}
        self._codes = codes()
        self._strings: list[str] = []
        self._ids = np.empty(0, np.int32)
        self.broken = ""

    def records(self) -> Records:
        """All events; damage is counted."""
        start, size = self._checked_trees()
        _, start, size = nested(self._data, start, size, _NODES)
        nodes = self._columns(start, size, (_PARENT, _HOST))
        hosts = self._hosts(nodes, start, size)
        _, call_start, length, calls = self._events(start, size, _CALLS, range(1, 7))
        of_call, _, _, work = self._events(call_start, length, 2, range(1, 12))
        _, _, _, events = self._events(start, size, _MEMORY, range(1, 12))
        call_args = register(self._build, {"correlation id": calls.integer(6)})
        called = self._rows(calls, np.full(len(calls), What.RUNTIME), 2, (4, 5), call_args)
        parts = [hosts, called, self._work(work), self._memory(events)]
        lane, begin, dur, name, args, step = map(np.concatenate, zip(*parts, strict=True))
        instant = np.repeat((False, True), (len(lane) - len(parts[3].lane), len(parts[3].lane)))
        first_work = len(hosts.lane) + len(calls)
        arrows = len(hosts.lane) + of_call, np.arange(first_work, first_work + len(work))
        lanes = list(self._lanes)
        return Records(lanes, lane, begin, dur, name, args, step, instant, arrows)

    def facts(self) -> dict[str, Any]:
        """Version, span, devices and other facts."""
        file_span = np.array([0]), np.array([len(self._data)])
        head = columns(self._data, *file_span, (_VERSION, _SPAN_INDEX))
        extra = columns(self._data, *nested(self._data, *file_span, _EXTRA_INFO)[1:], (1, 2))
        devices = []
        _, starts, sizes = nested(self._data, *file_span, _DEVICES)
        for offset, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            members = whole_fields(bytes(self._data[offset : offset + size]))
            devices.append({
                _DEVICE_FACTS[n - 1]: v if isinstance(v, int) else decoded(v)
                for n, _, v in members if n <= len(_DEVICE_FACTS)
            })  # fmt: skip
        return {
            "version": self._texts(head, _VERSION)[0] if head.is_bytes(_VERSION)[0] else None,
            "span_index": int(head.integer(_SPAN_INDEX)[0]) if head.has(_SPAN_INDEX)[0] else None,
            "devices": devices,
            "extra_info": dict(zip(self._texts(extra, 1), self._texts(extra, 2), strict=True)),
        }

    # -- framing ----------------------------------------------------------------------------

    def _lose(self, code: str, offset: int, count: int = 1) -> None:
        self._build.skip(code, f"byte {offset}", count)
        self.broken = self.broken or f"byte {offset}"

    def _checked_trees(self) -> tuple[I64, I64]:
        end = len(self._data)
        damage_begin, _, cut = damage_in(self._data, 0, end, _TREES)
        if damage_begin >= 0:
            self._lose(
                "truncated" if cut else "skipped-bytes",
                damage_begin,
                1 if cut else end - damage_begin,
            )
        start, size = _trees(self._data)
        for begin, stop in zip(start.tolist(), (start + size).tolist(), strict=True):
            damage_begin, _, cut = damage_in(self._data, begin, stop, _NODES)
            if damage_begin >= 0 and not cut:
                self._lose("skipped-bytes", damage_begin, stop - damage_begin)
            elif damage_begin >= 0 and stop < end:
                self._lose(
                    "malformed-record", damage_begin
                )  # a cut tree at the end is counted already
        return start, size

    def _columns(self, start: I64, size: I64, numbers: Sequence[int]) -> Columns:
        messages = columns(self._data, start, size, numbers)
        for row in np.flatnonzero(messages.rest & DAMAGED).tolist():
            self._lose("malformed-record", int(start[row]))
        return messages

    def _events(
        self, start: I64, size: I64, number: int, numbers: Sequence[int]
    ) -> tuple[I64, I64, I64, Columns]:
        """The nodes in a repeated field: owner, start and size of each, and its event."""
        owner, node_start, length = nested(self._data, start, size, number)
        return (
            owner,
            node_start,
            length,
            self._columns(*columns(self._data, node_start, length, (1,)).spans(1), numbers),
        )

    # -- texts and lanes --------------------------------------------------------------------

    def _coded(self, messages: Columns, number: int) -> NDArray[np.int32]:
        """The code of a text field; ``self._strings`` and ``self._ids`` hold the texts."""
        coded = np.frombuffer(self._codes.texts(self._data, *messages.spans(number)), np.int32)
        for raw in self._codes.entries(len(self._strings)):
            text = decoded(raw)
            self._build.skip("bad-encoding", text[:40], int(text.encode() != raw))
            self._strings.append(text)
        return coded

    def _texts(self, messages: Columns, number: int) -> list[str]:
        return [self._strings[code] for code in self._coded(messages, number).tolist()]

    def _on_lanes(self, kinds: NDArray[Any], process: I64, thread: I64) -> I32:
        table, row = factored_rows(kinds.astype(np.int64), process, thread)
        lanes = [Lane(What(w), *(str(n & 0xFFFF_FFFF_FFFF_FFFF) for n in ids)) for w, *ids in table]
        numbers = [self._lanes.setdefault(lane, len(self._lanes)) for lane in lanes]
        return np.array(numbers, np.int32)[row]

    def _rows(
        self,
        messages: Columns,
        kinds: NDArray[Any],
        first_field: int,
        lane_fields: tuple[int, int],
        args: I32,
    ) -> _Rows:
        """Slices.

        Args:
            first_field: field of the start; the next one is the end.
            lane_fields: fields of process and thread.
        """
        start, dur = spans(messages, first_field)
        lane = self._on_lanes(kinds, *(messages.integer(number) for number in lane_fields))
        name = mapped(
            self._coded(messages, _NAME),
            lambda code: self._build.string(self._strings[code]), np.int32,
        )  # fmt: skip
        return _Rows(lane, start, dur, name, args, np.full(len(lane), -1, np.int32))

    # -- levels -----------------------------------------------------------------------------

    def _hosts(self, nodes: Columns, start: I64, size: I64) -> _Rows:
        build, event_spans = self._build, nodes.spans(_HOST)
        events = self._columns(*event_spans, range(1, 7))
        names, kinds = np.array(self._texts(events, _NAME), object), events.integer(_TYPE)
        root = (nodes.integer(_PARENT) == _NO_PARENT) & (names == _ROOT)
        build.skip("metadata-unused", "roots of threads", int(root.sum()))
        args = mapped(kinds, lambda kind: build.args({"type": type_name(kind)}), np.int32)
        owner, _, _, operators = self._events(start, size, _SUPPLEMENTS, range(1, 9))
        if len(owner):
            args[owner] = objects(build, self._operators(operators, kinds[owner]))
        python = mapped(kinds, lambda kind: type_name(kind) in PYTHON_TYPES, np.bool_)
        lane_kinds = np.where(python, What.PYTHON, What.NATIVE)
        rows = self._rows(events, lane_kinds, _START, (_PROCESS, _THREAD), args)
        for row in np.flatnonzero((kinds == _STEP) & ~root).tolist():
            rows.step[row] = step_number(names[row])
        for kind in map(TYPES.index, PHASES):
            phase_names(build, TYPES[kind], np.unique(rows.name[(kinds == kind) & ~root]).tolist())
        damaged = (events.rest & DAMAGED > 0) | (event_spans[1] == 0)
        return _Rows(*(column[~root & ~damaged] for column in rows))

    def _operators(self, operators: Columns, kinds: I64) -> list[bytes]:
        """Arguments of operators; empty values are left out."""
        types, stacks = self._texts(operators, 2), self._texts(operators, 7)
        shapes, dtypes = (
            [_by_key(self._data[offset : offset + size], read) for offset, size in
             zip(*map(np.ndarray.tolist, operators.spans(number)), strict=True)]
            for number, read in ((5, _shapes), (6, _dtypes))
        )  # fmt: skip
        rows = zip(types, shapes, dtypes, stacks, operators.integer(8).tolist(), strict=True)
        keys = ("op_type", "input_shapes", "input_dtypes", "callstack", "op_id")
        return [
            msgspec.json.encode(
                {"type": type_name(kind)} | {k: v for k, v in zip(keys, row, strict=True) if v}
            )
            for kind, row in zip(kinds.tolist(), rows, strict=True)
        ]

    def _work(self, events: Columns) -> _Rows:
        kinds = events.integer(_TYPE)
        lane_kinds = np.full(len(events), What.UNKNOWN)
        for kind, lane_kind in _WHATS.items():
            lane_kinds[kinds == kind] = lane_kind
        args = np.full(len(events), -1, np.int32)
        detail = np.full(len(events), -1)
        for number in _DETAILS:
            detail[events.is_bytes(number)] = number
        for number, members in ((_KERNEL, self._kernel), (_COPY, self._copy), (_SET, self._set)):
            rows = np.flatnonzero(detail == number)
            start, size = (column[rows] for column in events.spans(number))
            numbers, texts = members(self._columns(start, size, range(1, 18)))
            args[rows] = self._device_args(events, rows, numbers, texts)
        rows = np.flatnonzero(detail == -1)
        args[rows] = self._device_args(events, rows, {}, {})
        return self._rows(events, lane_kinds, _START, (5, 7), args)

    def _device_args(
        self,
        events: Columns,
        rows: NDArray[np.intp],
        numbers: Mapping[str, I64],
        texts_of_rows: Members,
    ) -> I32:
        places = {"device": 5, "context": 6, "stream": 7, "correlation id": 8}
        location = {key: events.integer(number)[rows] for key, number in places.items()}
        further = [b""] * len(rows)
        if texts_of_rows:
            keys, columns = (
                [b"," + quoted(key) + b":" for key in texts_of_rows],
                list(texts_of_rows.values()),
            )
            table, codes = factored_rows(*(column for column, _ in columns))
            texts = []
            for row in table:
                cells = (value(code) for (_, value), code in zip(columns, row, strict=True))
                texts.append(b"".join(k + v for k, v in zip(keys, cells, strict=True) if v))
            further = [texts[code] for code in codes.tolist()]
        return register(self._build, {**location, **numbers}, further)

    def _kernel(self, info: Columns) -> tuple[Mapping[str, I64], Members]:
        grid, block = ([info.integer(n) for n in axes] for axes in ((4, 5, 6), (1, 2, 3)))
        shared = info.integer(7) + info.integer(8)
        lengths, values = info.lengths, info.values
        bits = {key: np.where(lengths[n - 1] == FIXED32, values[n - 1].view(np.int64), -1)
                for key, n in _MEASURES.items()}  # fmt: skip
        return {}, {
            "registers per thread": (info.integer(9), b"%d".__mod__),
            "shared memory": (shared, b"%d".__mod__),
            "grid": _triples(*grid),
            "block": _triples(*block),
            **{key: (column, _float) for key, column in bits.items()},
            **{k: (info.integer(n), lambda v: b"%d" % v if v else b"") for k, n in _RARE.items()},
        }

    def _copy(self, info: Columns) -> tuple[Mapping[str, I64], Members]:
        texts = {"copy kind": 2, "from": 3, "to": 4}
        return {"bytes": info.integer(1)}, {
            key: (self._coded(info, number).astype(np.int64), self._quoted_text)
            for key, number in texts.items()
        }

    def _set(self, info: Columns) -> tuple[Mapping[str, I64], Members]:
        kind = self._coded(info, 2).astype(np.int64), self._quoted_text
        return {"bytes": info.integer(1), "value": info.integer(3)}, {"memory kind": kind}

    def _quoted_text(self, code: int) -> bytes:
        return quoted(self._strings[code]) if self._strings[code] else b""

    def _memory(self, events: Columns) -> _Rows:
        """Memory events: instants, and samples of the memory in use."""
        places, kinds = self._texts(events, 7), events.integer(2).tolist()
        names = [MEMORY_TYPES[k] if 0 <= k < len(MEMORY_TYPES) else f"Memory {k}" for k in kinds]
        addresses = (events.integer(3).view(np.uint64)).tolist()
        measures = {key: events.integer(n) for n, key in enumerate(_MEMORY_MEASURES, 6) if key}
        args = register(
            self._build,
            {"place": [quoted(place) for place in places],
             "addr": [b'"%d"' % address for address in addresses], **measures},
        )  # fmt: skip
        start = events.integer(1)
        good = start >= 0
        memory(
            self._build,
            start[good],
            [place for place, is_good in zip(places, good.tolist(), strict=True) if is_good],
            measures["current_allocated"][good].astype(np.float64),
            measures["current_reserved"][good].astype(np.float64),
        )
        lane = self._on_lanes(
            np.full(len(events), What.NATIVE), events.integer(4), events.integer(5)
        )
        start, dur = np.where(good, start, INT64_MAX), np.where(good, 0, INT64_MAX)
        ids = np.array([self._build.string(name) for name in names], np.int32)
        return _Rows(lane, start, dur, ids, args, np.full(len(lane), -1, np.int32))


Members = Mapping[str, tuple[I64, Callable[[int], bytes]]]
"""Arguments: key -> numbers, and the JSON of a number; b"" leaves it out."""


def decoded(raw: Value) -> str:
    """Text as far as it is UTF-8."""
    return message(raw).decode("utf-8", "replace")


def spans(messages: Columns, start_field: int) -> tuple[I64, I64]:
    """Starts and durations; times beyond int64 get a span that no int64 can hold."""
    start, end = messages.integer(start_field), messages.integer(start_field + 1)
    held = (start >= 0) & (end >= 0)
    return np.where(held, start, INT64_MAX), np.where(held, end - start, INT64_MAX)


def _float(bits: int) -> bytes:
    """The JSON of a 32-bit float; b"" for -1."""
    if bits < 0:
        return b""
    (value,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF_FFFF))
    return b"%.6g" % value if math.isfinite(value) else b"null"


def _triples(*axes: I64) -> tuple[I64, Callable[[int], bytes]]:
    table, code = factored_rows(*axes)
    return code.astype(np.int64), lambda i: b"[%d,%d,%d]" % tuple(table[i])


def _by_key(raw: bytes, read: Callable[[Value], Any]) -> dict[str, Any]:
    """A message with keys in field 1 and a value of each in field 2."""
    members = whole_fields(raw)
    keys, values = ([v for n, _, v in members if n == number] for number in (1, 2))
    return {decoded(key): read(value) for key, value in zip(keys, values, strict=False)}


def _shapes(raw: Value) -> list[list[int]]:
    """The shapes of an operand; an unknown size is -1."""
    return [
        [signed(n) for n in integers(whole_fields(shape), 1)] for _, _, shape in whole_fields(raw)
    ]


def _dtypes(raw: Value) -> list[str]:
    return [decoded(name) for _, _, name in whole_fields(raw)]
