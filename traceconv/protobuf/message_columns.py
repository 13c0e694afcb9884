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
        is_present: Mask = self.lengths[self.wanted.index(number)] != ABSENT
        return is_present

    def is_bytes(self, number: int) -> Mask:
        """Which messages have the field as bytes."""
        are_bytes: Mask = self.lengths[self.wanted.index(number)] >= 0
        return are_bytes

    def integer(self, number: int) -> I64:
        """The field as int64, two's complement; 0 where it is absent or not a varint."""
        i = self.wanted.index(number)
        return np.where(self.lengths[i] == VARINT, self.values[i], np.uint64(0)).view(np.int64)

    def double(self, number: int) -> F64:
        """The field as a double; 0 where it is absent or not a double."""
        i = self.wanted.index(number)
        bits = np.where(self.lengths[i] == FIXED64, self.values[i], np.uint64(0))
        return bits.view(np.float64)

    def spans(self, number: int) -> tuple[I64, I64]:
        """Where the bytes of the field are, and how many; none where it has none."""
        i = self.wanted.index(number)
        are_bytes = self.lengths[i] >= 0
        start = np.where(are_bytes, self.values[i], np.uint64(0)).view(np.int64)
        return start, np.where(are_bytes, self.lengths[i], 0).astype(np.int64)


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
    spans = np.array(places, np.int64).reshape(-1, 2)
    return Frames(spans[:, 0].copy(), spans[:, 1].copy(), at, how)


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
        compiled_columns = compiled.columns(
            data, np.ascontiguousarray(start), np.ascontiguousarray(size), wanted
        )
        values = np.frombuffer(compiled_columns[0], np.uint64).reshape(len(wanted), n)
        lengths = np.frombuffer(compiled_columns[1], np.int32).reshape(len(wanted), n)
        return Columns(wanted, values, lengths, np.frombuffer(compiled_columns[2], np.uint8))
    i_by_number = {number: i for i, number in enumerate(wanted)}
    values = np.zeros((len(wanted), n), np.uint64)
    lengths = np.full((len(wanted), n), ABSENT, np.int32)
    rest = np.zeros(n, np.uint8)
    for i_message, number, value, length in _walk(data, start, size):
        i_field = i_by_number.get(number)
        if i_field is None:
            rest[i_message] |= OTHERS if number else DAMAGED
            continue
        if length == VARINT and lengths[i_field, i_message] != ABSENT:
            rest[i_message] |= REPEATED
        values[i_field, i_message], lengths[i_field, i_message] = value, length
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
    occurrences = [
        (i, value, length) for i, n, value, length in _walk(data, start, size) if n == number
    ]
    owners, values, lengths = zip(*occurrences, strict=True) if occurrences else ((), (), ())
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
    for i, (begin, stop) in enumerate(zip(start.tolist(), stops.tolist(), strict=True)):
        try:
            for number, wire, value, behind in walk(data, begin, stop):
                if wire == 2:
                    yield i, number, behind - value, value
                else:
                    yield i, number, value, _CODES[wire]
        except BrokenMessage:
            yield i, 0, 0, 0


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
    if not compiled:
        return _PythonCodes()
    table: Codes = compiled.Codes(int.from_bytes(os.urandom(8)))  # no input can force collisions
    return table


class _PythonCodes:
    """:class:`Codes` without the C part."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def texts(self, data: Any, start: I64, size: I64, /) -> bytes:
        codes_by_text = self._known
        spans = zip(start.tolist(), (start + size).tolist(), strict=True)
        row_codes = [
            codes_by_text.setdefault(bytes(data[a:b]), len(codes_by_text)) for a, b in spans
        ]
        return np.array(row_codes, np.int32).tobytes()

    def numbers(self, values: NDArray[Any], /) -> bytes:
        distinct, first_rows, back = np.unique(values, return_index=True, return_inverse=True)
        codes_by_text, distinct_codes = self._known, np.empty(len(distinct), np.int32)
        for i in np.argsort(first_rows, kind="stable").tolist():
            distinct_codes[i] = codes_by_text.setdefault(distinct[i].tobytes(), len(codes_by_text))
        return distinct_codes[back].tobytes()

    def entries(self, first: int, /) -> list[bytes]:
        return list(self._known)[first:]
