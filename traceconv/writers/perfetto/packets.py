"""Rows to packets, a block of columns at a time.

A slice is two packets, so the order of packets is more than the order of rows. On one track, at
one time: first the ends of slices that began before, then the begins, the longest first; a slice
without duration ends at once. Ends have no name, so those of equal time are equal bytes, and it
is enough to sort their times.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.core.model import F64, I8, I32, I64, Kind, Mask
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
    number,
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
    if compiled is None:
        return numpy_packets(sequence, rows, args, opened)
    columns = [np.ascontiguousarray(c) for c in msgspec.structs.astuple(rows)]
    data, still_open = compiled(sequence, *columns, args.ends, args.data, opened)
    return data, np.frombuffer(still_open, np.int64)


def numpy_packets(sequence: bytes, rows: Rows, args: Coded, opened: I64) -> tuple[bytes, I64]:
    """:func:`packets` without the C part."""
    begin_at, end_times, end_uuids, opened = _ordered(rows, opened)
    # columns of packets: begins at their places, ends in the places between
    n = len(begin_at) + len(end_times)
    begins = np.zeros(n, bool)
    begins[begin_at] = True

    def merged(of_begins: NDArray[Any], of_ends: Any) -> NDArray[Any]:
        column = np.empty(n, of_begins.dtype)
        column[begin_at] = of_begins
        column[~begins] = of_ends
        return column

    flows = np.diff(rows.flow_ends, prepend=0) * FLOW.itemsize
    tails = (merged(flows, 0), merged(np.diff(args.ends, prepend=0), 0))
    kinds = np.where(rows.kind == Kind.SLICE, SLICE_BEGIN, INSTANT).astype(np.uint8)
    heads = _heads(
        sequence,
        begins,
        merged(rows.time, end_times),
        merged(kinds, SLICE_END),
        merged(rows.uuid, end_uuids),
        merged(rows.name.astype(np.int64), 0),
        merged(rows.category, 0),
        tails[0] + tails[1],
    )
    return _interleaved(heads, tails, rows.flows, args.data), opened


def _ordered(rows: Rows, opened: I64) -> tuple[NDArray[np.intp], I64, I64, I64]:
    """Where begins are among the packets, and the ends that fill the places between."""
    ends_before, times, uuids = [], [], []
    first = emitted = 0
    stops = np.flatnonzero(rows.last) + 1
    for stop in [*stops.tolist(), *([len(rows.last)] if not rows.last[-1:].all() else [])]:
        slices = rows.kind[first:stop] == Kind.SLICE
        time, dur = rows.time[first:stop], rows.dur[first:stop]
        ends = np.sort(np.concatenate((opened, (time + dur)[slices])))
        # a begin comes after all ends up to its own time
        before = np.searchsorted(ends, time, "right")
        points = slices & (dur == 0)
        if points.any():  # those of the same time that come later have not ended yet
            seen = np.concatenate(([0], np.cumsum(points)))
            # of the slices that start at the time of a row, subtract those that are not before it
            before -= seen[np.searchsorted(time, time, "right")] - seen[:-1]
        # slices stay open on a track that continues in the next block
        closed = len(ends) if rows.last[stop - 1] else before[-1]
        ends_before.append(before + emitted)
        times.append(ends[:closed])
        uuids.append(np.full(closed, rows.uuid[first], np.int64))
        first, opened = stop, ends[closed:]
        emitted += int(closed)
    begin_at = np.concatenate(ends_before) + np.arange(len(rows.time))
    return begin_at, np.concatenate(times), np.concatenate(uuids), opened


def varint_sizes(values: NDArray[Any]) -> I64:
    """Bytes each non-negative value takes as a varint."""
    sizes = np.ones(len(values), np.int64)
    most = int(values.max(initial=0))
    for step in range(7, 63, 7):
        if most < 1 << step:
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
            more = (sizes > k + 1).view(np.uint8) << 7
            self.cell((values >> 7 * k).astype(np.uint8) & 0x7F | more, (sizes > k) & where)

    def joined(self) -> tuple[Bytes, I64]:
        """The bytes that count, row by row, and how many each row has."""
        used = self._used[:, : self._at]
        return self._cells[:, : self._at][used], np.count_nonzero(used, axis=1)


def varints(values: I64) -> bytes:
    """Non-negative numbers as varints, one after the other."""
    sizes = varint_sizes(values)
    columns = _Columns(len(values), int(sizes.max(initial=1)))
    columns.varint(values, sizes)
    return columns.joined()[0].tobytes()


_WIDEST = 80
"""Columns of a packet without arguments: eight tags, six varints, a double."""


def _frame(columns: _Columns, sequence: bytes, time: I64, event: I64) -> None:
    """Everything up to the content of the TrackEvent, which is ``event`` bytes long."""
    times, lengths = varint_sizes(time), varint_sizes(event)
    # lengths come before contents: sizes are added from the innermost outwards
    constant = len(_TIMESTAMP) + len(sequence) + len(_NEEDS_STATE) + len(_TRACK_EVENT)
    body = constant + times + lengths + event
    columns.constant(tag_bytes(PACKET))
    columns.varint(body, varint_sizes(body))
    columns.constant(_TIMESTAMP)
    columns.varint(time, times)
    columns.constant(sequence + _NEEDS_STATE + _TRACK_EVENT)
    columns.varint(event, lengths)


def _heads(
    sequence: bytes,
    begins: Mask,
    time: I64,
    kind: Bytes,
    uuid: I64,
    name: I64,
    category: Bytes,
    tail: I64,
) -> _Columns:
    """Packets without their flows and arguments, which take ``tail`` bytes."""
    columns = _Columns(len(time), _WIDEST)
    uuids, names = varint_sizes(uuid), varint_sizes(name)
    event = 3 + uuids + begins * (1 + names) + 2 * (category > 0) + tail
    _frame(columns, sequence, time, event)
    columns.constant(_TYPE)
    columns.cell(kind)
    columns.constant(_UUID)
    columns.varint(uuid, uuids)
    columns.constant(_NAME, begins)
    columns.varint(name, names, begins)
    columns.constant(_CATEGORY, category > 0)
    columns.cell(category, category > 0)
    return columns


def _interleaved(
    heads: _Columns, tails: tuple[I64, I64], flows: NDArray[Any], args: bytes
) -> bytes:
    """Every head followed by its flows and arguments."""
    head_bytes, head_sizes = heads.joined()
    lengths = np.stack((head_sizes, *tails), axis=1).ravel()
    # for every byte of the output, which of the three it is taken from; each is in order already
    source = np.repeat(np.tile(np.arange(3, dtype=np.uint8), len(head_sizes)), lengths)
    out = np.empty(len(source), np.uint8)
    out[source == 0] = head_bytes
    out[source == 1] = flows.view(np.uint8).ravel()
    out[source == 2] = np.frombuffer(args, np.uint8)
    return out.tobytes()


def whole_numbers(value: F64) -> Mask:
    """Which samples are written as integers: those that are, from 0 to 2^53."""
    whole: Mask = (value == np.floor(value)) & ~np.signbit(value) & (value < _EXACT)
    return whole


def counter_packets(sequence: bytes, time: I64, uuid: I64, value: F64) -> bytes:
    """One packet per sample; whole numbers as varints, the others as doubles."""
    whole = whole_numbers(value)
    # floats that are not whole become 0 here: their cells are not used
    number_ = np.where(whole, value, 0).astype(np.int64)
    uuids, sizes = varint_sizes(uuid), varint_sizes(number_)
    columns = _Columns(len(time), _WIDEST)
    _frame(columns, sequence, time, 5 + uuids + np.where(whole, sizes, 8))
    columns.constant(_TYPE)
    columns.cell(COUNTER)
    columns.constant(_UUID)
    columns.varint(uuid, uuids)
    columns.constant(_COUNTER_VALUE, whole)
    columns.varint(number_, sizes, whole)
    columns.constant(_DOUBLE_VALUE, ~whole)
    for byte in value.astype("<f8").view(np.uint8).reshape(-1, 8).T:
        columns.cell(byte, ~whole)
    return columns.joined()[0].tobytes()
