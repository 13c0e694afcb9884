"""Many text records at once: columns of bytes, joined once per block of rows.

A column of few different values is formatted once for each of them; times are made from integers
by table; nothing is formatted row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.clock import us_text
from traceconv.core.model import I32, I64, Args, Table

AnyTable = TypeVar("AnyTable", bound=Table)

BLOCK_ROWS = 4096
"""Rows encoded at a time: their text is below :data:`~traceconv.scratch.memory.APART`, so that its
memory is used again for the next."""

# the digits of 0 to 999, as ASCII
_TRIPLES = np.array([[48 + i // 100, 48 + i // 10 % 10, 48 + i % 10] for i in range(1000)], "u1")
_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)


def cut(table: AnyTable) -> Iterator[AnyTable]:
    """The rows of ``table`` in blocks of :data:`BLOCK_ROWS`."""
    for at in range(0, len(table), BLOCK_ROWS):
        yield table.take(slice(at, at + BLOCK_ROWS))


def mapped(column: NDArray[Any], make: Callable[[int], bytes]) -> list[bytes]:
    """``make`` of every value, made once for each different one."""
    first = int(column[0])
    if (column == first).all():
        return [make(first)] * len(column)
    values, where = np.unique(column, return_inverse=True)
    # as objects, so that one take gives every row its bytes, without copies of them
    table = np.empty(len(values), object)
    table[:] = [make(v) for v in values.tolist()]
    return table[where].tolist()  # type: ignore[no-any-return]


def lengths(column: NDArray[Any], make: Callable[[int], bytes]) -> I64:
    """Length of ``make`` of every value."""
    values, where = np.unique(column, return_inverse=True)
    return np.array([len(make(v)) for v in values.tolist()], np.int64)[where]


def interleaved(*pieces: list[bytes]) -> bytes:
    """First pieces of all lists, then second pieces of all ..."""
    flat: list[bytes] = [b""] * (len(pieces) * len(pieces[0]))
    for i, piece in enumerate(pieces):
        flat[i :: len(pieces)] = piece  # every len(pieces)-th, from i on
    return b"".join(flat)


Piece = tuple[Any, ...]
"""A piece of every record, as ``native/_records.pyi`` describes it; see :func:`same` and others."""

_NO_TIME = np.iinfo(np.int64).min


def same(text: bytes) -> Piece:
    """The same text in every record."""
    return 0, text


def micros(ns: I64, lead: bytes = b"", none: Any = None) -> Piece:
    """As :func:`us_texts`; nothing in the rows of ``none``, a mask."""
    return 2, lead, ns if none is None else np.where(none, _NO_TIME, ns)


def numbers(values: I64) -> Piece:
    """Whole numbers."""
    return 4, b"", values


def texts(given: list[bytes]) -> Piece:
    """A text for every row."""
    ends = np.cumsum(np.fromiter(map(len, given), np.int64, len(given)))
    return 1, b"", b"".join(given), ends, np.arange(len(given), dtype=np.int32)


def arguments(args: Args, ids: I32, lead: bytes) -> Piece:
    """The JSON of arguments by id, -1 for none."""
    has = ids >= 0
    address, length = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int32)
    address[has], length[has] = args.address[ids[has]], args.length[ids[has]]
    return 3, lead, args.blobs, address, length


class Memo:
    """``make`` of every value from 0 to ``size``, made once for each that occurs."""

    def __init__(self, make: Callable[[int], bytes], size: int) -> None:
        self._make, self._codes = make, np.full(size, -1, np.int32)
        self._texts, self._ends = bytearray(), np.empty(0, np.int64)

    def piece(self, column: NDArray[Any]) -> Piece:
        """The texts of a column."""
        codes = self._codes[column]
        if (codes < 0).any():
            new = np.unique(column[codes < 0])
            made = [self._make(value) for value in new.tolist()]
            self._codes[new] = np.arange(len(new), dtype=np.int32) + np.int32(len(self._ends))
            ends = np.cumsum(np.fromiter(map(len, made), np.int64, len(made)))
            self._ends = np.append(self._ends, ends + len(self._texts))
            self._texts += b"".join(made)
            codes = self._codes[column]
        return 1, b"", bytes(self._texts), self._ends, codes


def numbered(column: NDArray[Any], make: Callable[[int], bytes]) -> Piece:
    """As :func:`mapped`, for columns of any numbers."""
    first = int(column[0])
    if (column == first).all():
        return same(make(first))
    values, where = np.unique(column, return_inverse=True)
    _, _, made, ends, _ = texts([make(v) for v in values.tolist()])
    return 1, b"", made, ends, where.astype(np.int32)


def joined(parts: list[I64]) -> I64:
    """All ``parts`` concatenated; empty without any."""
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def us_texts(ns: I64, lead: bytes = b"") -> list[bytes]:
    """Microseconds with three decimals, each after ``lead``.

    Digits come three at a time from a table, right-aligned; rows of equal length are then moved
    to the left together.
    """
    if int(ns.min()) < 0:  # before the base: only if a caller chose it so
        return [lead + us_text(t).encode() for t in ns.tolist()]
    # all rows as wide as the longest, and at least "d.ddd"
    groups = max(2, -(-len(str(int(ns.max()))) // 3))
    width, skip = 3 * groups + 1, len(lead)
    right = np.empty((len(ns), width), np.uint8)
    right[:, -4] = ord(".")
    left_over = ns
    for group in range(groups):
        at = width - 3 * (group + 1) - (group > 0)  # the point is before the last three digits
        higher = left_over // 1000
        right[:, at : at + 3] = _TRIPLES[left_over - higher * 1000]
        left_over = higher
    left = np.zeros((len(ns), skip + width), np.uint8)
    left[:, :skip] = np.frombuffer(lead, np.uint8)
    # leading zeros are cut off: rows with the same number of them are moved together
    blank = width - us_lengths(ns)
    for n in np.flatnonzero(np.bincount(blank)).tolist():
        rows = np.flatnonzero(blank == n)
        left[rows, skip : skip + width - n] = right[rows, n:]
    # fixed-size byte strings of numpy end at their first NUL, as the rows do
    return left.view(f"S{skip + width}").ravel().tolist()


def us_lengths(ns: I64) -> I64:
    """Length of the microseconds text: digits, at least four, and the point."""
    return np.maximum(_digits(ns), 4) + 1 + (ns < 0)


def int_lengths(values: I64) -> I64:
    """Length of the decimal text."""
    return _digits(values) + (values < 0)


def _digits(values: I64) -> I64:
    return np.searchsorted(_POWERS, np.abs(values), side="right") + 1


def number_texts(values: NDArray[np.float64]) -> tuple[list[bytes], int]:
    """Shortest texts that give the values back; NaN and infinities as strings, and their count."""
    texts = msgspec.json.encode(values.tolist())[1:-1].split(b",")
    odd = np.flatnonzero(~np.isfinite(values)).tolist()
    for i in odd:
        texts[i] = b'"%b"' % str(values[i]).encode()
    return texts, len(odd)
