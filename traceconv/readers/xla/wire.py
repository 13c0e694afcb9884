"""Many small protobuf messages at once, as columns: one field of each of them per step.

A plane holds hundred thousands of events, and each of them several stats. A message by itself has
to be read from its beginning, but nothing says in which order messages are to be read: the first
field of all, then the second of all, and so on, a few numpy operations each. Where only a few
messages have fields left, these are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I64, Mask
from traceconv.readers.shared.protobuf_wire import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Cut,
    Damaged,
    fields,
)

_FIELDS = 1 << 29
"""No field has a larger number."""

_FEW = 40
"""Messages that are quicker read one by one."""

_SIZES = {FIXED64: 8, FIXED32: 4}


@dataclass(frozen=True)
class Fields:
    """The fields of many messages, by message, those of one in the order they are written in.

    Attributes:
        message: number of the message, int64.
        number:  of the field, int64.
        kind:    its wire type, int64.
        value:   of a varint or a fixed field its 64 bits as int64; of bytes their length.
        start:   of bytes, where they begin; they end at ``start + value``.
        broken:  bool per message: it is cut off or damaged. Fields before that are there.
    """

    message: I64
    number: I64
    kind: I64
    value: I64
    start: I64
    broken: Mask

    def rows(self, number: int, *kinds: int) -> NDArray[np.intp]:
        """Rows of a field; of other wire types than ``kinds`` it is another field."""
        return np.flatnonzero((self.number == number) & np.isin(self.kind, kinds))

    def last(self, number: int, *kinds: int) -> I64:
        """The value of a field that occurs once, per message; the last counts if it is repeated."""
        found = np.zeros(len(self.broken), np.int64)
        rows = self.rows(number, *kinds)
        found[self.message[rows]] = self.value[rows]
        return found

    def has(self, number: int, *kinds: int) -> Mask:
        """Whether a message has the field."""
        found = np.zeros(len(self.broken), bool)
        found[self.message[self.rows(number, *kinds)]] = True
        return found


def fields_of(data: NDArray[np.uint8], start: I64, end: I64) -> Fields:
    """The fields of the messages ``data[start:end]``, all of which lie within ``data``."""
    at, broken = start.astype(np.int64), np.zeros(len(start), bool)
    active = np.flatnonzero(at < end)
    parts: list[tuple[I64, ...]] = []
    while len(active) > _FEW:
        here, stop = at[active], end[active]
        tag, here, good = _varints(data, here, stop)
        kind, number = tag & 7, (tag >> 3) & ((1 << 61) - 1)
        value, begin = np.zeros(len(active), np.int64), here
        coded = np.flatnonzero(good & ((kind == VARINT) | (kind == LENGTH)))
        value[coded], begin[coded], fine = _varints(data, here[coded], stop[coded])
        good[coded] &= fine
        after = begin.copy()
        longer = kind == LENGTH
        good &= ~longer | ((value >= 0) & (value <= stop - begin))
        after[longer & good] += value[longer & good]
        for fixed, size in _SIZES.items():
            rows = np.flatnonzero(good & (kind == fixed) & (stop - begin >= size))
            value[rows] = _fixed(data, begin[rows], size)
            after[rows] += size
        known = (kind == VARINT) | longer | ((after > begin) & np.isin(kind, (FIXED32, FIXED64)))
        good &= known & (number > 0) & (number < _FIELDS)
        broken[active[~good]] = True
        kept = active[good]
        parts.append((kept, number[good], kind[good], value[good], begin[good]))
        at[kept] = after[good]
        active = kept[at[kept] < end[kept]]
    rest = [
        row for i in active.tolist() for row in _slowly(data, i, int(at[i]), int(end[i]), broken)
    ]
    parts.append(tuple(np.array(rest, np.int64).reshape(-1, 5).T))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    message, number, kind, value, begin = (column[order] for column in columns)
    return Fields(message, number, kind, value, begin, broken)


def _slowly(
    data: NDArray[np.uint8], message: int, at: int, end: int, broken: Mask
) -> Iterator[tuple[int, ...]]:
    """The fields of one message, as rows of :class:`Fields`."""
    raw = bytes(data[at:end])
    try:
        for field in fields(raw, 0, len(raw)):
            if field.end > len(raw) or not 0 < field.number < _FIELDS:
                raise Cut(field.begin)
            kind = field.kind
            value = field.value
            if kind in _SIZES:
                value = int.from_bytes(raw[field.start : field.end], "little")
            yield message, field.number, kind, signed(value), at + field.start
    except (Cut, Damaged):
        broken[message] = True


def signed(value: int) -> int:
    """64 bits as the signed number they are."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _varints(data: NDArray[np.uint8], at: I64, end: I64) -> tuple[I64, I64, Mask]:
    """Numbers that begin at ``at``, as int64; where they end; and whether they are whole."""
    value: NDArray[np.uint64] = np.zeros(len(at), np.uint64)
    here, last = at.copy(), len(data) - 1
    open_ = np.flatnonzero(here < end)
    whole = np.zeros(len(at), bool)
    for shift in range(0, 70, 7):
        if not len(open_):
            break
        byte = data[np.minimum(here[open_], last)]
        value[open_] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        here[open_] += 1
        done = byte < 128
        whole[open_[done]] = True
        more = open_[~done]
        open_ = more[here[more] < end[more]]
    return value.view(np.int64), here, whole


def _fixed(data: NDArray[np.uint8], at: I64, size: int) -> I64:
    """Numbers of ``size`` bytes, the lowest first; without a sign if they are shorter than 8."""
    columns = data[at[:, None] + np.arange(size)].astype(np.uint64)
    weights = np.uint64(1) << (np.arange(size, dtype=np.uint64) * np.uint64(8))
    total: NDArray[np.uint64] = (columns * weights).sum(axis=1, dtype=np.uint64)
    return total.view(np.int64)


@dataclass(frozen=True)
class Parts:
    """A message whose repeated field holds messages.

    Attributes:
        start, end: of those that are whole, int64.
        others: all other fields as (number, kind, value, start), see :class:`Fields`.
        cut:    where one begins and the message ends before it does; None if none does.
        broken: the place from which on nothing can be read, -1 if there is none.
    """

    start: I64
    end: I64
    others: list[tuple[int, int, int, int]]
    cut: tuple[int, int] | None = None
    broken: int = -1

    def bounds(self) -> list[tuple[int, int]]:
        """Start and end of all of them, of the one that is cut up to there."""
        whole = [*zip(self.start.tolist(), self.end.tolist(), strict=True)]
        return [*whole, self.cut] if self.cut else whole


def parts_of(data: Any, at: int, end: int, number: int) -> Parts:
    """The messages in the repeated field ``number`` of the message ``data[at:end]``."""
    starts: list[int] = []
    ends: list[int] = []
    others: list[tuple[int, int, int, int]] = []
    wanted, begun, cut, broken = number << 3 | LENGTH, at, None, -1
    try:
        while at < end:
            begun = at
            if data[at] == wanted and at + 1 < end and data[at + 1] < 128:
                start = at + 2  # a short tag and a short length, as most have
                at = start + data[at + 1]
            else:
                field = next(fields(data, at, end))
                start, at = field.start, field.end
                if not 0 < field.number < _FIELDS or (at > end and field.number != number):
                    raise Cut(begun)
                if field.number != number or field.kind != LENGTH:
                    value = field.value
                    if field.kind in _SIZES:
                        value = int.from_bytes(data[start:at], "little")
                    others.append((field.number, field.kind, signed(value), start))
                    continue
            if at > end:
                cut = start, end
                raise Cut(begun)
            starts.append(start)
            ends.append(at)
    except (Cut, Damaged):
        broken = begun
    return Parts(np.array(starts, np.int64), np.array(ends, np.int64), others, cut, broken)
