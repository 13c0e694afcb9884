"""Records of SQLite tables: many at a time, a column at a time.

A record has a head, which gives the type of each value, and the values behind it, without gaps.
Format: https://www.sqlite.org/fileformat2.html, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]

_REAL, _ZERO, _ONE, _FIRST_TEXT = 7, 8, 9, 12
_WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], np.int64)
"""Bytes of a value by the type that stands in the record's head."""

_MAX_DIGITS = 18
_EXACT = float(1 << 62)


class NotPlain(Exception):
    """SQLite itself must read this table."""


@dataclass(frozen=True)
class Wanted:
    """A column to read.

    Attributes:
        index:   position in the table, -1 for the number of the row.
        default: what stands for NULL; its type is that of the column, int or float.
        is_rowid: whether NULL stands for the number of the row.
    """

    index: int
    default: Any
    is_rowid: bool = False

    @property
    def dtype(self) -> str:
        """int64 or float64."""
        return "i8" if type(self.default) is int else "f8"


class Rows:
    """Some rows: where each one's head and values lie."""

    def __init__(self, data: Bytes, cells: I64, usable: int, size: int) -> None:
        payload, at = _varints(data, cells)
        self.number, at = _varints(data, at)
        end = at + payload
        room = cells // size * size + usable
        if (payload > usable - 35).any() or (payload < 1).any() or (end > room).any():
            raise NotPlain
        head, self._next = _varints(data, at)
        self._body = self._stop = at + head
        if ((self._stop < self._next) | (self._stop > end)).any():
            raise NotPlain
        self._data, self._end = data, end
        self._columns: list[tuple[I64, I64]] = []

    def __len__(self) -> int:
        return len(self.number)

    def column(self, wanted: Wanted) -> NDArray[Any]:
        """The values of one column."""
        if wanted.index < 0:
            return self.number
        while len(self._columns) <= wanted.index:
            self._columns.append(self._place())
        return _decoded(self._data, *self._columns[wanted.index], wanted, self.number)

    def _place(self) -> tuple[I64, I64]:
        """Type and place of the next column's values; rows that end before have NULL there."""
        inside = self._next < self._stop
        if inside.all():
            kind, self._next = _varints(self._data, self._next)
        else:
            kind = np.zeros(len(self), np.int64)
            kind[inside], self._next[inside] = _varints(self._data, self._next[inside])
        place, small = self._body, kind < _FIRST_TEXT
        width = _WIDTHS[np.minimum(kind, _FIRST_TEXT - 1)]
        self._body = place + np.where(small, width, (kind - _FIRST_TEXT) >> 1)
        if (self._body > self._end).any() or (self._next > self._stop).any():
            raise NotPlain
        return kind, place


def _varints(data: Bytes, at: I64) -> tuple[I64, I64]:
    """Numbers of one to nine bytes, and where each one ends."""
    byte = data[at]
    value, more = (byte & 0x7F).astype(np.int64), byte >= 0x80
    end = at + 1
    for i in range(1, 9):
        if not more.any():
            return value, end
        which = np.flatnonzero(more)
        byte = data[at[which] + i]
        part = byte if i == 8 else byte & 0x7F
        value[which] = value[which] << (8 if i == 8 else 7) | part
        end[which] += 1
        more[which[byte < 0x80]] = False
    return value, end


def _windows(data: Bytes, at: I64, width: int) -> Bytes:
    """``width`` bytes from every place, as rows."""
    view = np.lib.stride_tricks.sliding_window_view(data, width)
    return view[at]


def big_endian(data: Bytes, at: I64, width: int) -> I64:
    """Unsigned numbers of fewer than eight bytes."""
    room = np.zeros((len(at), 8), np.uint8)
    room[:, 8 - width :] = _windows(data, at, width)
    return room.view(">i8")[:, 0].astype(np.int64)


def _signed(data: Bytes, at: I64, width: int) -> I64:
    room = np.zeros((len(at), 8), np.uint8)
    room[:, :width] = _windows(data, at, width)
    return room.view(">i8")[:, 0].astype(np.int64) >> (64 - 8 * width)


def _decoded(data: Bytes, kind: I64, place: I64, wanted: Wanted, number: I64) -> NDArray[Any]:
    present = np.unique(kind) if len(kind) and (kind != kind[0]).any() else kind[:1]
    if len(present) == 1:
        return _of_kind(data, int(present[0]), place, wanted, number)
    found = np.empty(len(kind), wanted.dtype)
    for one in present.tolist():
        rows = np.flatnonzero(kind == one)
        found[rows] = _of_kind(data, one, place[rows], wanted, number[rows])
    return found


def _of_kind(data: Bytes, kind: int, place: I64, wanted: Wanted, number: I64) -> NDArray[Any]:
    """Values of one type, as int64 or float64."""
    if kind == 0 and wanted.is_rowid:
        return number
    if kind in (0, _ZERO, _ONE):
        value = wanted.default if kind == 0 else kind - _ZERO
        return np.full(len(place), value, wanted.dtype)
    if kind < _REAL:
        return _signed(data, place, int(_WIDTHS[kind]))
    if kind == _REAL:
        real = _windows(data, place, 8).copy().view(">f8")[:, 0].astype(np.float64)
        if wanted.dtype == "i8" and not (np.abs(real) < _EXACT).all():
            raise NotPlain
        return real
    if kind > _FIRST_TEXT and kind % 2:
        return _digits(_windows(data, place, (kind - _FIRST_TEXT) >> 1))
    raise NotPlain


def _digits(text: Bytes) -> I64:
    """Numbers spelled as text."""
    value: I64 = np.zeros(len(text), np.int64)
    digits = text - np.uint8(ord("0"))
    if not 0 < text.shape[1] <= _MAX_DIGITS + 1 or (digits > 9).any():
        raise NotPlain
    if text.shape[1] > _MAX_DIGITS and (digits[:, 0] > 8).any():
        raise NotPlain
    for i in range(text.shape[1]):
        value = value * 10 + digits[:, i]
    return value
