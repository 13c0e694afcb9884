"""Many text records at once: columns of bytes, joined once per block of rows.

Every record has the same pieces, in the same order. :func:`written` makes their text, in C where
there is a compiler; :func:`sizes` measures it without making it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.core.clock import us_text
from traceconv.core.model import I64, Args, Table

AnyTable = TypeVar("AnyTable", bound=Table)

BLOCK_ROWS = 4096
"""Rows encoded at a time: their text is below :data:`~traceconv.scratch.memory.APART`, so that its
memory is used again for the next."""

_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)


def cut(table: AnyTable) -> Iterator[AnyTable]:
    """The rows of ``table`` in blocks of :data:`BLOCK_ROWS`."""
    for begin in range(0, len(table), BLOCK_ROWS):
        yield table.take(slice(begin, begin + BLOCK_ROWS))


def mapped(column: NDArray[Any], make: Callable[[int], bytes]) -> list[bytes]:
    """``make`` of every value, made once for each different one."""
    values, where = np.unique(column, return_inverse=True)
    by_value = list(map(make, values.tolist()))
    return [by_value[i] for i in where.tolist()]


def interleaved(*pieces: Sequence[bytes]) -> bytes:
    """First pieces of all columns, then second pieces of all ..."""
    flat: list[bytes] = [b""] * (len(pieces) * len(pieces[0]))
    for i, piece in enumerate(pieces):
        flat[i :: len(pieces)] = piece  # every len(pieces)-th, from i on
    return b"".join(flat)


Piece = tuple[Any, ...]
"""A piece of every record, as ``native/_records.pyi`` describes it; see :func:`same` and others."""

_SAME, _TABLE, _MICROS, _JSON, _NUMBER = range(5)
_NO_TIME = np.iinfo(np.int64).min


def same(text: bytes) -> Piece:
    """The same text in every record."""
    return _SAME, text


def micros(ns: I64, lead: bytes = b"", none: Any = None) -> Piece:
    """Microseconds with three decimals, each after ``lead``; nothing in the rows of ``none``, a
    mask."""
    return _MICROS, lead, ns if none is None else np.where(none, _NO_TIME, ns)


def numbers(values: I64) -> Piece:
    """Whole numbers."""
    return _NUMBER, b"", values


def texts(row_texts: Sequence[bytes]) -> Piece:
    """A text for every row."""
    ends = np.cumsum(np.fromiter(map(len, row_texts), np.int64, len(row_texts)))
    return _TABLE, b"", b"".join(row_texts), ends, np.arange(len(row_texts), dtype=np.int32)


def arguments(args: Args, ids: NDArray[np.int32], lead: bytes) -> Piece:
    """The JSON of arguments by id, -1 for none."""
    has = ids >= 0
    address, length = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int32)
    address[has], length[has] = args.address[ids[has]], args.length[ids[has]]
    return _JSON, lead, args.blobs, address, length


def numbered(column: NDArray[Any], make: Callable[[int], bytes]) -> Piece:
    """``make`` of every value, made once for each different one."""
    first_value = int(column[0])
    if (column == first_value).all():
        return same(make(first_value))
    values, where = np.unique(column, return_inverse=True)
    _, _, joined_texts, ends, _ = texts([make(v) for v in values.tolist()])
    return _TABLE, b"", joined_texts, ends, where.astype(np.int32)


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
            new_texts = [self._make(value) for value in new.tolist()]
            self._codes[new] = np.arange(len(new), dtype=np.int32) + np.int32(len(self._ends))
            ends = np.cumsum(np.fromiter(map(len, new_texts), np.int64, len(new_texts)))
            self._ends = np.append(self._ends, ends + len(self._texts))
            self._texts += b"".join(new_texts)
            codes = self._codes[column]
        return _TABLE, b"", bytes(self._texts), self._ends, codes


def written(pieces: Sequence[Piece], rows: int) -> bytes | None:
    """The text of ``rows`` records; None if JSON in it may fail in strict parsers."""
    compiled = native.records()
    if compiled is not None:
        return compiled(tuple(pieces), rows)
    return interleaved(*(_column(piece, rows) for piece in pieces))


def _column(piece: Piece, rows: int) -> list[bytes]:
    """A piece of every record without the C part, which has no pieces of JSON."""
    kind, lead, *content = piece
    if kind == _SAME:
        return [lead] * rows
    if kind == _TABLE:
        text, ends, codes = content
        spans = zip([0, *ends.tolist()], ends.tolist(), strict=False)
        table = [text[a:b] for a, b in spans]
        return [table[code] for code in codes.tolist()]
    if kind == _MICROS:
        return [b"" if t == _NO_TIME else lead + us_text(t).encode() for t in content[0].tolist()]
    return [b"%d" % value for value in content[0].tolist()]


def sizes(pieces: Sequence[Piece], rows: int) -> I64:
    """Bytes of every record."""
    n_bytes = np.zeros(rows, np.int64)
    for kind, lead, *content in pieces:
        if kind == _SAME:
            n_bytes += len(lead)
        elif kind == _TABLE:
            _, ends, codes = content
            n_bytes += np.diff(ends, prepend=0)[codes]
        elif kind == _MICROS:
            is_timed = content[0] != _NO_TIME
            n_bytes += np.where(
                is_timed, us_lengths(np.where(is_timed, content[0], 0)) + len(lead), 0
            )
        else:
            n_bytes += _digits(content[0]) + (content[0] < 0)
    return n_bytes


def joined(parts: list[I64]) -> I64:
    """All ``parts`` concatenated; empty without any."""
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def us_lengths(ns: I64) -> I64:
    """Length of the microseconds text: digits, at least four, and the point."""
    return np.maximum(_digits(ns), 4) + 1 + (ns < 0)


def _digits(values: I64) -> I64:
    return np.searchsorted(_POWERS, np.abs(values), side="right") + 1


def number_texts(values: NDArray[np.float64]) -> tuple[list[bytes], int]:
    """Shortest texts that give the values back; NaN and infinities as strings, and their count."""
    texts = msgspec.json.encode(values.tolist())[1:-1].split(b",")
    odd = np.flatnonzero(~np.isfinite(values)).tolist()
    for i in odd:
        texts[i] = b'"%b"' % str(values[i]).encode()
    return texts, len(odd)
