"""Rows to packets, a block of columns at a time.

A slice is two packets, so the order of packets is more than the order of rows. On one track, at
one time: first the ends of slices that began before, then the begins, the longest first; a slice
without duration ends at once. Ends have no name, so those of equal time are equal bytes, and it
is enough to sort their times.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.core.model import F64, I8, I32, I64, Kind, Mask
from traceconv.protobuf.message import varint_bytes
from traceconv.protobuf.perfetto_schema import (
    COUNTER,
    INSTANT,
    NEEDS_STATE,
    PACKET,
    SLICE_BEGIN,
    SLICE_END,
    TracePacket,
    TrackEvent,
)
from traceconv.writers.perfetto.arguments import Coded
from traceconv.writers.perfetto.wire import (
    message,
    number,
    packet,
    tag,
    tag_bytes,
    tag_fixed64,
)

Bytes = NDArray[np.uint8]

FLOW = np.dtype([("tag", "u1", 2), ("id", "<u8")])
"""One end of a flow, as it is in a TrackEvent."""

NONE_OPEN: I64 = np.empty(0, np.int64)

_TIMESTAMP = tag(TracePacket.TIMESTAMP)
_TRACK_EVENT = tag_bytes(TracePacket.TRACK_EVENT)
_NEEDS_STATE = number(TracePacket.SEQUENCE_FLAGS, NEEDS_STATE)
_TYPE = tag(TrackEvent.TYPE)
_UUID = tag(TrackEvent.TRACK_UUID)
_NAME = tag(TrackEvent.NAME_IID)
_CATEGORY = tag(TrackEvent.CATEGORY_IIDS)
_COUNTER_VALUE = tag(TrackEvent.COUNTER_VALUE)
_DOUBLE_VALUE = tag_fixed64(TrackEvent.DOUBLE_COUNTER_VALUE)

_EXACT = 2.0**53


class Rows(msgspec.Struct, frozen=True):
    """A block of event rows, ready to be written.

    Attributes:
        kind:      :class:`~traceconv.core.model.Kind`.
        last:      whether a row is the last of its track.
        time, dur: ns; time from the trace's base.
        uuid:      of the track.
        name:      number of the interned name.
        category:  number of the interned category, below 128; 0 = none.
        flow_ends: where the flows of a row end in ``flows``.
        flows:     of :data:`FLOW`.
    """

    kind: I8
    last: Mask
    time: I64
    dur: I64
    uuid: I64
    name: I32
    category: Bytes
    flow_ends: I64
    flows: NDArray[Any]


def packets(sequence: bytes, rows: Rows, args: Coded, opened: I64) -> tuple[bytes, I64]:
    """The packets of a block.

    Args:
        sequence: the encoded sequence id.
        args:     what the rows have.
        opened:   what the block before returned; :data:`NONE_OPEN` for the first.

    Returns:
        The packets up to the begin of the last row (all, if its track ends there), and the ends
        of slices that stay open.
    """
    compiled = native.packets()
    if not compiled:
        return python_packets(sequence, rows, args, opened)
    columns = [np.ascontiguousarray(c) for c in msgspec.structs.astuple(rows)]
    data, still_open = compiled(sequence, *columns, args.ends, args.data, opened)
    return data, np.frombuffer(still_open, np.int64)


def python_packets(sequence: bytes, rows: Rows, args: Coded, opened: I64) -> tuple[bytes, I64]:
    """:func:`packets` without the C part."""
    out: list[bytes] = []
    ends = opened.tolist()  # of open slices, a heap
    heapify(ends)

    def put(time: int, *event: bytes) -> None:
        stamp = _TIMESTAMP + varint_bytes(time)
        out.append(packet(stamp, sequence, _NEEDS_STATE, message(TracePacket.TRACK_EVENT, *event)))

    columns = (rows.kind, rows.last, rows.time, rows.dur, rows.uuid, rows.name, rows.category)
    flow_at = arg_at = 0
    for kind, is_last, time, dur, uuid, name, category, flow_end, arg_end in zip(
        *(column.tolist() for column in (*columns, rows.flow_ends, args.ends)), strict=True
    ):
        track = _UUID + varint_bytes(uuid)
        while ends and ends[0] <= time:
            put(heappop(ends), _TYPE, bytes((SLICE_END,)), track)
        is_slice = kind == Kind.SLICE
        put(
            time,
            _TYPE,
            bytes((SLICE_BEGIN if is_slice else INSTANT,)),
            track,
            _NAME + varint_bytes(name),
            _CATEGORY + bytes((category,)) if category else b"",
            rows.flows[flow_at:flow_end].tobytes(),
            args.data[arg_at:arg_end],
        )
        if is_slice:
            heappush(ends, time + dur)
        while is_last and ends:
            put(heappop(ends), _TYPE, bytes((SLICE_END,)), track)
        flow_at, arg_at = flow_end, arg_end
    return b"".join(out), np.array(ends, np.int64)


def varint_sizes(values: NDArray[Any]) -> I64:
    """Bytes each non-negative value takes as a varint."""
    sizes = np.ones(len(values), np.int64)
    largest = int(values.max(initial=0))
    for step in range(7, 63, 7):
        if largest < 1 << step:
            break
        sizes += values >= 1 << step
    return sizes


class _Columns:
    """Rows of bytes of different length, built column by column; ``used`` says which count."""

    def __init__(self, rows: int, width: int) -> None:
        self._cells = np.zeros((rows, width), np.uint8)
        self._used = np.zeros((rows, width), bool)
        self._at = 0

    def constant(self, data: bytes, where: Any = True) -> None:
        for byte in data:
            self.cell(byte, where)

    def cell(self, values: Any, where: Any = True) -> None:
        self._cells[:, self._at] = values
        self._used[:, self._at] = where
        self._at += 1

    def varint(self, values: I64, sizes: I64, where: Any = True) -> None:
        # byte k has bits 7k to 7k+6; its highest bit says that another follows
        for k in range(int(sizes.max(initial=1))):
            continuation = (sizes > k + 1).view(np.uint8) << 7
            self.cell((values >> 7 * k).astype(np.uint8) & 0x7F | continuation, (sizes > k) & where)

    def joined(self) -> bytes:
        """The bytes that count, row by row."""
        return self._cells[:, : self._at][self._used[:, : self._at]].tobytes()


_WIDEST = 80
"""Most bytes of a packet with a sample."""


def whole_numbers(value: F64) -> Mask:
    """Which samples are written as integers: those that are, from 0 to 2^53."""
    is_whole: Mask = (value == np.floor(value)) & ~np.signbit(value) & (value < _EXACT)
    return is_whole


def counter_packets(sequence: bytes, time: I64, uuid: I64, value: F64) -> bytes:
    """One packet per sample; whole numbers as varints, the others as doubles."""
    is_whole = whole_numbers(value)
    # floats that are not whole become 0 here: their cells are not used
    number_ = np.where(is_whole, value, 0).astype(np.int64)
    times, uuids, sizes = map(varint_sizes, (time, uuid, number_))
    event = 5 + uuids + np.where(is_whole, sizes, 8)
    head = _TIMESTAMP, sequence + _NEEDS_STATE + _TRACK_EVENT
    body = sum(map(len, head)) + times + varint_sizes(event) + event
    columns = _Columns(len(time), _WIDEST)
    columns.constant(tag_bytes(PACKET))
    columns.varint(body, varint_sizes(body))
    columns.constant(head[0])
    columns.varint(time, times)
    columns.constant(head[1])
    columns.varint(event, varint_sizes(event))
    columns.constant(_TYPE)
    columns.cell(COUNTER)
    columns.constant(_UUID)
    columns.varint(uuid, uuids)
    columns.constant(_COUNTER_VALUE, is_whole)
    columns.varint(number_, sizes, is_whole)
    columns.constant(_DOUBLE_VALUE, ~is_whole)
    for byte in value.astype("<f8").view(np.uint8).reshape(-1, 8).T:
        columns.cell(byte, ~is_whole)
    return columns.joined()
