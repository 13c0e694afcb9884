"""Packets that hold a slice or an instant in its usual form, and nothing else, as columns.

They are nearly all of a large trace, and none of them changes the state of its sequence, so they
need not be read one by one. What is unusual in any way is left to :mod:`.packets`, which knows
every case; who reads all packets there gets the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I32, I64, Mask
from traceconv.protobuf import message as wire
from traceconv.protobuf.message_columns import (
    ABSENT,
    DAMAGED,
    FIXED64,
    VARINT,
    Columns,
    codes,
    columns,
    repeated,
    varint_sizes,
)
from traceconv.validation.container import Buffer
from traceconv.validation.perfetto.events import COUNTER, INSTANT, NAMES, STRINGS, examined

UNUSUAL, PLAIN, SAMPLE = 0, 1, 2
"""What a packet is: anything; a slice's begin, its end or an instant; a sample of a counter, which
is read alone, but may be read after the plain ones that follow it."""

_CLEARED = 1
_PACKET = (8, 10, 11, 13)
_EVENT = (3, 4, 9, 10, 11, 23, 47, 48)
_NUMBERS = (3, 9, 10, 11)
_ANNOTATION = (1, 2, 3, 4, 5, 6, 7, 9, 10, 17)
_TEXTS = (6, 9, 10)
_INTEGERS = (1, 2, 3, 4, 7, 17)
_FLOWS = ((0, 47), (1, 48))


class Links(NamedTuple):
    """Flow ids of events: packet (ascending), whether the flow ends there, id."""

    packet: I64
    ends: NDArray[np.int8]
    flow: NDArray[np.uint64]


class Used(NamedTuple):
    """Interned ids in arguments: packet (ascending), table, id."""

    packet: I64
    table: I64
    iid: NDArray[np.uint64]


class PlainEvents(NamedTuple):
    """Packets in a row.

    Attributes:
        start, size: where their bytes are.
        kind: :data:`UNUSUAL`, :data:`PLAIN` or :data:`SAMPLE`.
        ts: as written; ``sequence`` its number. Of plain ones, as all that follows.
        form: equal where events of one sequence differ in time, arguments and flows only.
        event_start, event_size: where the TrackEvent is.
    """

    start: I64
    size: I64
    kind: NDArray[np.int8]
    ts: I64
    sequence: I64
    form: I32
    event_start: I64
    event_size: I64
    links: Links
    used: Used


def plain_events(data: Buffer, start: I64, size: I64) -> PlainEvents:
    """What the packets at these places of ``data`` are."""
    packet = columns(data, start, size, _PACKET)
    usual = (packet.rest == 0) & _is(packet, 8, VARINT) & _is(packet, 10, VARINT)
    usual &= packet.is_bytes(11) & (_is(packet, 13, VARINT) | ~packet.has(13))
    ts, sequence = packet.integer(8), packet.integer(10)
    usual &= (ts >= 0) & (sequence > 0) & (packet.integer(13) & _CLEARED == 0)
    at, n = packet.spans(11)
    at, n = np.where(usual, at, 0), np.where(usual, n, 0)
    event = columns(data, at, n, _EVENT)
    phase = event.integer(9)
    sample = usual & (event.rest & DAMAGED == 0) & _is(event, 9, VARINT) & (phase == COUNTER)
    plain = usual & (event.rest == 0) & (phase >= 1) & (phase <= INSTANT)
    for number in _NUMBERS:
        plain &= _is(event, number, VARINT) | ~event.has(number)
    for number in (4, 23):
        plain &= event.is_bytes(number) | ~event.has(number)
    links = _links(data, at, n, event, plain)
    used = _arguments(data, at, n, event, plain)
    return PlainEvents(
        start, size, np.where(plain, PLAIN, np.where(sample, SAMPLE, UNUSUAL)).astype(np.int8),
        ts, sequence, _forms(data, sequence, event, plain), at, n, links, used,
    )  # fmt: skip


def runs(kind: NDArray[np.int8]) -> Iterator[tuple[int, int, bool]]:
    """Stretches of packets: first, the one after the last, and whether none of it is unusual."""
    usual = kind != UNUSUAL
    borders = np.flatnonzero(usual[1:] != usual[:-1]) + 1
    edges = [0, *borders.tolist(), len(kind)]
    for a, b in pairwise(edges):
        if a < b:
            yield a, b, bool(usual[a])


def _is(of: Columns, number: int, what: int) -> Mask:
    found: Mask = of.lengths[of.wanted.index(number)] == what
    return found


def _forms(data: Buffer, sequence: I64, event: Columns, plain: Mask) -> I32:
    """Equal numbers for what is equal but for time, arguments and flows."""
    rows = np.flatnonzero(plain)
    key = np.zeros((len(rows), 7), np.uint64)
    key[:, 0] = sequence[rows].astype(np.uint64)
    for i, number in enumerate(_NUMBERS):
        key[:, 1 + i] = event.values[event.wanted.index(number)][rows]
        key[:, 5] |= event.has(number)[rows].astype(np.uint64) << np.uint64(i)
    texts = np.flatnonzero(event.has(23)[rows])
    if len(texts):
        at, n = (column[rows[texts]] for column in event.spans(23))
        numbers = np.frombuffer(codes().texts(data, at, n), np.int32)
        key[texts, 6] = (numbers + 1).astype(np.uint64)
    width = key.shape[1] * 8
    start = np.arange(len(rows), dtype=np.int64) * width
    found = np.full(len(plain), -1, np.int32)
    code = codes().texts(key.tobytes(), start, np.full(len(rows), width, np.int64))
    found[rows] = np.frombuffer(code, np.int32)
    return found


def _links(data: Buffer, at: I64, n: I64, event: Columns, plain: Mask) -> Links:
    """Flows of plain events; those with flows in another form are no longer plain."""
    parts = []
    for ends, number in _FLOWS:
        has = event.has(number)
        if not (has & plain).any():
            continue
        found = repeated(data, np.where(has, at, 0), np.where(has, n, 0), number)
        plain[found.owner[found.length != FIXED64]] = False
        parts.append((found.owner, np.full(len(found.owner), ends, np.int8), found.value))
    if not parts:
        return Links(np.empty(0, np.int64), np.empty(0, np.int8), np.empty(0, np.uint64))
    packet, ends_, flow = (np.concatenate(column) for column in zip(*parts, strict=True))
    kept = plain[packet]
    packet, ends_, flow = packet[kept], ends_[kept], flow[kept]
    order = np.argsort(packet, kind="stable")
    return Links(packet[order], ends_[order], flow[order])


# -- arguments ---------------------------------------------------------------------------------


def _arguments(data: Buffer, at: I64, n: I64, event: Columns, plain: Mask) -> Used:
    """Interned ids of plain events; those whose arguments break a rule are no longer plain."""
    has = event.is_bytes(4) & plain
    of = repeated(data, np.where(has, at, 0), np.where(has, n, 0), 4)
    plain[of.owner[of.length < 0]] = False
    whole = of.length >= 0
    owner, start = of.owner[whole], of.value[whole].astype(np.int64)
    size = of.length[whole].astype(np.int64)
    found = columns(data, start, size, _ANNOTATION)
    flat = _is_flat(found, size)
    good = _is_fine(data, found)
    parts = [
        (np.flatnonzero(flat & (found.integer(1) != 0)), NAMES, 1),
        (np.flatnonzero(flat & found.has(17)), STRINGS, 17),
    ]
    rows = [row for row, _, _ in parts]
    table = [np.full(len(row), number, np.int64) for row, number, _ in parts]
    iid = [found.integer(number).view(np.uint64)[row] for row, _, number in parts]
    nested = np.flatnonzero(~flat)
    if len(nested):
        code = np.frombuffer((known := codes()).texts(data, start[nested], size[nested]), np.int32)
        judged = [examined(one) for one in known.entries(0)]
        good[nested] = np.array([not rules for _, rules in judged], bool)[code]
        count = np.array([len(iids) for iids, _ in judged])[code]
        pairs = np.array([pair for c in code.tolist() for pair in judged[c][0]], np.uint64).reshape(
            -1, 2
        )
        rows.append(np.repeat(nested, count))
        table.append(pairs[:, 0].astype(np.int64))
        iid.append(pairs[:, 1])
    plain[owner[~good]] = False
    every = owner[np.concatenate(rows)]
    order = np.argsort(every, kind="stable")
    return Used(every[order], np.concatenate(table)[order], np.concatenate(iid)[order])


def _is_flat(found: Columns, size: I64) -> Mask:
    """Which annotations have each of the wanted fields once at most, in its own type, and no other:
    then these fill it.
    """
    flat: Mask = found.rest == 0
    fill = np.zeros(len(size), np.int64)
    for number in _ANNOTATION:
        tag = 1 + (number > 15)
        length = found.lengths[found.wanted.index(number)]
        there = length != ABSENT
        if number in _INTEGERS:
            flat &= ~there | (length == VARINT)
            value = found.values[found.wanted.index(number)]
            fill += np.where(there, tag + varint_sizes(value), 0)
        elif number in _TEXTS:
            flat &= ~there | (length >= 0)
            own = np.maximum(length, 0)
            fill += np.where(there, tag + varint_sizes(own) + own, 0)
        else:
            flat &= ~there | (length == FIXED64)
            fill += np.where(there, tag + 8, 0)
    flat &= fill == size
    return flat


def _is_fine(data: Buffer, found: Columns) -> Mask:
    """Which flat annotations break no rule: they have a name, texts are UTF-8, numbers finite."""
    named = (found.integer(1) != 0) | (found.spans(10)[1] > 0)
    fine: Mask = named & np.isfinite(found.double(5))
    for number in _TEXTS:
        start, size = found.spans(number)
        rows = np.flatnonzero(size > 0)
        for row in rows[_is_wide(data, start[rows], size[rows])].tolist():
            at = int(start[row])
            if not wire.is_utf8(bytes(data[at : at + int(size[row])])):
                fine[row] = False
    return fine


def _is_wide(data: Buffer, start: I64, size: I64) -> Mask:
    """Which texts have other characters than those of ASCII."""
    if not len(start):
        return np.zeros(0, bool)
    low, high = int(start.min()), int((start + size).max())
    cells: NDArray[Any] = np.frombuffer(data, np.uint8, high - low, low)
    before = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(cells > 0x7F, out=before[1:])
    wide: Mask = before[start + size - low] > before[start - low]
    return wide
