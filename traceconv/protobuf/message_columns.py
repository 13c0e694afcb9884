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
from traceconv.protobuf.message import BrokenMessage, varint, walk

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
    places: list[int] = []
    how, end = WHOLE, min(end, len(data))
    while at < end and most > 0:
        most -= 1
        if data[at] != _RECORD:
            how = FOREIGN
            break
        try:
            size, start = varint(data, at + 1, end)
        except BrokenMessage:
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
    place = {number: i for i, number in enumerate(wanted)}
    values = np.zeros((len(wanted), n), np.uint64)
    lengths = np.full((len(wanted), n), ABSENT, np.int32)
    rest = np.zeros(n, np.uint8)
    for at, number, value, length in _walk(data, start, size):
        which = place.get(number)
        if which is None:
            rest[at] |= OTHERS if number else DAMAGED
            continue
        if length == VARINT and lengths[which, at] != ABSENT:
            rest[at] |= REPEATED
        values[which, at], lengths[which, at] = value, length
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
        (at, value, length) for at, n, value, length in _walk(data, start, size) if n == number
    ]
    owners, values, lengths = zip(*found, strict=True) if found else ((), (), ())
    return Repeated(
        np.array(owners, np.int64), np.array(values, np.uint64), np.array(lengths, np.int32)
    )


_CODES = {0: VARINT, 1: FIXED64, 5: FIXED32}


def _walk(data: Any, start: I64, size: I64) -> Iterator[tuple[int, int, int, int]]:
    """The fields of every message: message, number, value, and as in :class:`Columns` length. A
    damaged message ends with a field 0.
    """
    stops = start + size
    if (start < 0).any() or (size < 0).any() or (size > len(data) - start).any():
        raise ValueError("messages outside the buffer")
    for at, (first, stop) in enumerate(zip(start.tolist(), stops.tolist(), strict=True)):
        try:
            for number, wire, value, behind in walk(data, first, stop):
                if wire == 2:
                    yield at, number, behind - value, value
                else:
                    yield at, number, value, _CODES[wire]
        except BrokenMessage:
            yield at, 0, 0, 0


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
