"""Protobuf messages as columns: the fields of many messages at once.

Large protobuf files have millions of small messages of one type. This module reads them as columns:
the last value of each field (:func:`columns`), or all values of a repeated field
(:func:`repeated`). Both run in C, or in numpy, which decodes one field of every message at a time.

A damaged message gives the fields before the damage and is reported as damaged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.core.columns import F64, I32, I64, Mask

U64 = NDArray[np.uint64]

ABSENT, VARINT, FIXED64, FIXED32 = -1, -2, -3, -4
"""Codes in place of a length, for fields that are not bytes."""

OTHERS, DAMAGED, REPEATED = 1, 2, 4
"""Bits of :attr:`Columns.rest`."""

WHOLE, CUT, FOREIGN = 0, 1, 2
"""How a run of frames ended."""

_RECORD = 0x0A
_LONGEST_VARINT = 10


class Frames(NamedTuple):
    """A run of records ``0A length bytes``; those without bytes are left out.

    Attributes:
        start, size: int64 per record: where its bytes are.
        end: the first byte that is not part of a whole record.
        how: :data:`WHOLE`, :data:`CUT` if the last record is not all there, :data:`FOREIGN` if
            something else than a record follows.
    """

    start: I64
    size: I64
    end: int
    how: int


class Columns(msgspec.Struct, frozen=True):
    """Fields of n messages.

    Attributes:
        wanted: numbers of the fields.
        values: (fields, n) uint64: the bits of an integer or a double; of bytes, where they begin.
        lengths: (fields, n) int32: of bytes; else :data:`ABSENT`, :data:`VARINT`,
            :data:`FIXED64` or :data:`FIXED32`.
        rest: uint8 per message: :data:`OTHERS` if it has fields that are not wanted,
            :data:`DAMAGED` if its bytes are no message, :data:`REPEATED` if a wanted integer is in
            it more than once.
    """

    wanted: tuple[int, ...]
    values: NDArray[np.uint64]
    lengths: NDArray[np.int32]
    rest: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rest)

    def has(self, number: int) -> Mask:
        """Which messages have the field, whatever it is."""
        found: Mask = self.lengths[self.wanted.index(number)] != ABSENT
        return found

    def is_bytes(self, number: int) -> Mask:
        """Which messages have the field as bytes."""
        found: Mask = self.lengths[self.wanted.index(number)] >= 0
        return found

    def integer(self, number: int) -> I64:
        """The field as int64, two's complement; 0 where it is absent or not a varint."""
        at = self.wanted.index(number)
        return np.where(self.lengths[at] == VARINT, self.values[at], np.uint64(0)).view(np.int64)

    def double(self, number: int) -> F64:
        """The field as a double; 0 where it is absent or not a double."""
        at = self.wanted.index(number)
        bits = np.where(self.lengths[at] == FIXED64, self.values[at], np.uint64(0))
        return bits.view(np.float64)

    def spans(self, number: int) -> tuple[I64, I64]:
        """Where the bytes of the field are, and how many; none where it has none."""
        at = self.wanted.index(number)
        there = self.lengths[at] >= 0
        start = np.where(there, self.values[at], np.uint64(0)).view(np.int64)
        return start, np.where(there, self.lengths[at], 0).astype(np.int64)


class Repeated(NamedTuple):
    """All occurrences of one field, message by message: which message, and as in :class:`Columns`
    value and length."""

    owner: I64
    value: U64
    length: I32


def frames(data: Any, at: int, end: int, most: int) -> Frames:
    """The records of ``data[at:end]``, ``most`` at most."""
    compiled = native.wire()
    if compiled is not None:
        starts, sizes, at, how = compiled.frames(data, at, end, most)
        return Frames(np.frombuffer(starts, np.int64), np.frombuffer(sizes, np.int64), at, how)
    return _frames(data, at, end, most)


def _frames(data: Any, at: int, end: int, most: int) -> Frames:
    """:func:`frames` without the C part."""
    places: list[int] = []
    how, end = WHOLE, min(end, len(data))
    while at < end and most > 0:
        most -= 1
        if data[at] != _RECORD:
            how = FOREIGN
            break
        size, start = _number(data, at + 1, end)
        if start < 0:
            how = FOREIGN if end - at > _LONGEST_VARINT + 1 else CUT
            break
        if size > end - start:
            how = CUT
            break
        if size:
            places += (start, size)
        at = start + size
    found = np.array(places, np.int64).reshape(-1, 2)
    return Frames(found[:, 0].copy(), found[:, 1].copy(), at, how)


def _number(data: Any, at: int, end: int) -> tuple[int, int]:
    """A varint and the place behind it; -1 if it does not end."""
    value = shift = 0
    while at < end and shift < 7 * _LONGEST_VARINT:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    return 0, -1


def columns(data: Any, start: I64, size: I64, wanted: Sequence[int]) -> Columns:
    """The last value of each wanted field in every message.

    Args:
        data:   buffer with the messages.
        start, size: int64 per message.
        wanted: numbers of fields, 64 at most, below 16384.

    Raises:
        ValueError: a message reaches beyond the buffer.
    """
    wanted, n = tuple(wanted), len(start)
    compiled = native.wire()
    if compiled is not None:
        made = compiled.columns(
            data, np.ascontiguousarray(start), np.ascontiguousarray(size), wanted
        )
        values = np.frombuffer(made[0], np.uint64).reshape(len(wanted), n)
        lengths = np.frombuffer(made[1], np.int32).reshape(len(wanted), n)
        return Columns(wanted, values, lengths, np.frombuffer(made[2], np.uint8))
    place = np.full(max(wanted, default=0) + 2, -1, np.int64)
    place[list(wanted)] = np.arange(len(wanted))
    values = np.zeros((len(wanted), n), np.uint64)
    lengths = np.full((len(wanted), n), ABSENT, np.int32)
    rest = np.zeros(n, np.uint8)
    for at, number, value, length in _walk(data, start, size, rest):
        which = place[np.minimum(number, len(place) - 1)]
        asked = which >= 0
        rest[at[~asked]] |= OTHERS
        again = lengths[which[asked], at[asked]] != ABSENT
        rest[at[asked][again & (length[asked] == VARINT)]] |= REPEATED
        values[which[asked], at[asked]] = value[asked]
        lengths[which[asked], at[asked]] = length[asked]
    return Columns(wanted, values, lengths, rest)


def repeated(data: Any, start: I64, size: I64, number: int) -> Repeated:
    """All occurrences of a field, up to the damage of a message.

    Raises:
        ValueError: a message reaches beyond the buffer.
    """
    compiled = native.wire()
    if compiled is not None:
        owner, value, length = compiled.repeated(
            data, np.ascontiguousarray(start), np.ascontiguousarray(size), number
        )
        return Repeated(
            np.frombuffer(owner, np.int64),
            np.frombuffer(value, np.uint64),
            np.frombuffer(length, np.int32),
        )
    found = [
        (at[asked], value[asked], length[asked])
        for at, n, value, length in _walk(data, start, size, np.zeros(len(start), np.uint8))
        if (asked := n == number).any()
    ]
    if not found:
        return Repeated(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int32))
    owners, values, lengths = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(owners, kind="stable")  # the walk goes from field to field of all messages
    return Repeated(owners[order], values[order], lengths[order])


def _walk(
    data: Any, start: I64, size: I64, rest: NDArray[np.uint8]
) -> Iterator[tuple[I64, I64, U64, I32]]:
    """The first field of every message, then the second of messages with two or more, and so on.

    Yields messages, their field numbers, values and lengths; sets damage in ``rest``.
    """
    n = len(start)
    if n != len(size) or not _within(start, size, len(data)):
        raise ValueError("messages outside the buffer")
    cells = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
    at, end, live = start.astype(np.int64), start + size, np.flatnonzero(size > 0)
    while len(live):
        tag, here = _varints(cells, at[live], end[live])
        kind = (tag & np.uint64(7)).astype(np.int64)
        number = np.minimum(tag >> np.uint64(3), np.uint64(2**31)).astype(np.int64)
        good = (here >= 0) & (number > 0) & (number < 2**31)
        value = np.zeros(len(live), np.uint64)
        length = np.full(len(live), ABSENT, np.int32)
        for wire, code, width in ((0, VARINT, 0), (2, 0, 0), (1, FIXED64, 8), (5, FIXED32, 4)):
            own = np.flatnonzero(good & (kind == wire))
            if not len(own):
                continue
            stop = end[live[own]]
            if width:
                fits = stop - here[own] >= width
                for i in range(width):
                    part = cells[np.where(fits, here[own] + i, 0)].astype(np.uint64)
                    value[own] |= part << np.uint64(8 * i)
                here[own] = np.where(fits, here[own] + width, -1)
            else:
                value[own], here[own] = _varints(cells, here[own], stop)
            if wire == 2:
                fits = (here[own] >= 0) & (value[own] <= (stop - here[own]).view(np.uint64))
                fits &= value[own] < np.uint64(2**31)
                taken = np.where(fits, value[own], np.uint64(0)).astype(np.int64)
                value[own] = here[own].view(np.uint64)
                here[own] = np.where(fits, here[own] + taken, -1)
                length[own] = taken
            else:
                length[own] = code
        good &= np.isin(kind, (0, 1, 2, 5)) & (here >= 0)
        rest[live[~good]] |= DAMAGED
        live, here = live[good], here[good]
        yield live, number[good], value[good], length[good]
        at[live] = here
        live = live[here < end[live]]


def _within(start: I64, size: I64, end: int) -> bool:
    if not len(start):
        return True
    return bool(start.min() >= 0 and size.min() >= 0 and (start <= end).all()) and bool(
        (size <= end - start).all()
    )


def _varints(cells: NDArray[np.uint8], at: I64, end: I64) -> tuple[U64, I64]:
    """A varint of each place, and the place behind it; -1 where it does not end."""
    value = np.zeros(len(at), np.uint64)
    here = np.full(len(at), -1, np.int64)
    open_ = np.arange(len(at))
    for k in range(_LONGEST_VARINT):
        open_ = open_[at[open_] + k < end[open_]]
        if not len(open_):
            break
        byte = cells[at[open_] + k]
        value[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * k)
        done = byte < 0x80
        here[open_[done]] = at[open_[done]] + k + 1
        open_ = open_[~done]
    return value, here


def varint_sizes(values: NDArray[Any]) -> I64:
    """How many bytes each number takes as a varint, if no more than it needs."""
    raw, size = values.astype(np.uint64), np.ones(len(values), np.int64)
    for shift in range(7, 64, 7):
        more = raw >= np.uint64(1 << shift)
        if not more.any():
            break
        size += more
    return size


class Codes(Protocol):
    """Numbers for values, counted from 0 in the order in which they first occur."""

    def __len__(self) -> int: ...

    def texts(self, data: Any, start: I64, size: I64, /) -> bytes:
        """The code (int32) of each range of ``data``."""
        ...

    def numbers(self, values: NDArray[Any], /) -> bytes:
        """The code (int32) of each 64-bit value, as of its eight bytes."""
        ...

    def entries(self, first: int, /) -> list[bytes]:
        """The texts with the codes from ``first`` on."""
        ...


def codes() -> Codes:
    """A new, empty table of codes."""
    compiled = native.wire()
    if compiled is None:
        return _PythonCodes()
    made: Codes = compiled.Codes(int.from_bytes(os.urandom(8)))  # no input can force collisions
    return made


class _PythonCodes:
    """:class:`Codes` without the C part."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def texts(self, data: Any, start: I64, size: I64, /) -> bytes:
        known = self._known
        spans = zip(start.tolist(), (start + size).tolist(), strict=True)
        found = [known.setdefault(bytes(data[a:b]), len(known)) for a, b in spans]
        return np.array(found, np.int32).tobytes()

    def numbers(self, values: NDArray[Any], /) -> bytes:
        distinct, first, back = np.unique(values, return_index=True, return_inverse=True)
        known, own = self._known, np.empty(len(distinct), np.int32)
        for at in np.argsort(first, kind="stable").tolist():
            own[at] = known.setdefault(distinct[at].tobytes(), len(known))
        return own[back].tobytes()

    def entries(self, first: int, /) -> list[bytes]:
        return list(self._known)[first:]


def packed(data: Any, start: int, size: int) -> U64:
    """The varints in the bytes of a packed field, up to the first damage."""
    cells = np.frombuffer(data, np.uint8)[start : start + size]
    ends = np.flatnonzero(cells < 0x80)
    if not len(ends):
        return np.empty(0, np.uint64)
    begins = np.concatenate(([0], ends[:-1] + 1))
    whole = ends - begins < _LONGEST_VARINT
    if not whole.all():
        cut = int(np.argmin(whole))
        begins, ends = begins[:cut], ends[:cut]
    return _varints(cells, begins, ends + 1)[0]
