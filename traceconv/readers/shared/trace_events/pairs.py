"""Begins and ends joined to slices: B/E per thread, b/e (S/F) per asynchronous id.

In a lane an end closes the newest open begin whose name and category agree with its own; a name
or category that is missing agrees with any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64
from traceconv.readers.shared.trace_events.tables import Batch, Rows, Tables

Index = NDArray[np.intp]

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


@dataclass
class Marks(Batch):
    """Begins and ends. ``lane`` is what they are paired within, ``name`` and ``category`` are
    codes, -1 where there is none.
    """

    lane: I32
    start: I64
    name: I32
    category: I32
    opens: NDArray[np.bool_]


def paired(marks: Marks) -> tuple[Index, Index]:
    """Which mark closes which: row of the begin (-1 for an end alone) and row of the end (-1 for
    a begin that is never closed), in order of the begins in their lanes.
    """
    order = np.lexsort((marks.start, marks.lane))
    marks = marks.take(order)
    begin, end, settled = _nested(marks)
    if not settled.all():
        rest = np.flatnonzero(~settled)
        more = _stacked(marks.take(rest))
        begin = np.concatenate((begin, _picked(rest, more[0])))
        end = np.concatenate((end, _picked(rest, more[1])))
    return _picked(order, begin), _picked(order, end)


def _picked(rows: Index, index: Index) -> Index:
    return np.where(index >= 0, rows[index], -1)


def _nested(marks: Marks) -> tuple[Index, Index, NDArray[np.bool_]]:
    """Pairs of the lanes in which every end closes the newest open begin; marks of those lanes.

    At one depth of one lane, begins and ends must then take turns.
    """
    n = len(marks)
    new = np.ones(n, bool)
    new[1:] = marks.lane[1:] != marks.lane[:-1]
    group = np.cumsum(new) - 1
    height = np.cumsum(np.where(marks.opens, 1, -1))
    height -= (height - np.where(marks.opens, 1, -1))[new][group]
    depth = height + ~marks.opens  # of the slice a mark belongs to, from 1
    turns = np.lexsort((depth, group))
    first, second = turns[:-1], turns[1:]
    same = (group[first] == group[second]) & (depth[first] == depth[second])
    opens = marks.opens
    wrong = depth[turns] < 1
    wrong[1:] |= same & (opens[first] == opens[second])
    wrong[0] |= ~opens[turns[0]]
    wrong[1:] |= ~same & ~opens[second]
    couple = same & opens[first] & ~opens[second]
    wrong[1:] |= couple & ~_agree(marks, first, second)
    bad = np.zeros(int(group[-1]) + 1, bool)
    bad[group[turns[wrong]]] = True
    settled = ~bad[group]
    closed = np.full(n, -1, np.intp)
    closed[first[couple]] = second[couple]
    begin = np.flatnonzero(opens & settled)
    return begin, closed[begin], settled


def _agree(marks: Marks, a: Index, b: Index) -> NDArray[np.bool_]:
    agrees = np.ones(len(a), bool)
    for column in (marks.name, marks.category):
        agrees &= (column[a] == column[b]) | (column[a] < 0) | (column[b] < 0)
    return agrees


def _stacked(marks: Marks) -> tuple[Index, Index]:
    """Pairs of any lanes, mark by mark."""
    begin: list[int] = []
    end: list[int] = []
    lane, stack = -1, _Stack()
    columns = zip(*(c.tolist() for c in marks.columns()), strict=True)
    for i, (at, _, name, category, opens) in enumerate(columns):
        if at != lane:
            stack.rest(begin, end)
            lane, stack = at, _Stack()
        if opens:
            stack.push(i, name, category)
        else:
            begin.append(stack.pop(name, category))
            end.append(i)
    stack.rest(begin, end)
    return np.array(begin, np.intp), np.array(end, np.intp)


class _Stack:
    """Open begins, found by name and category in constant time."""

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._by: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)

    def push(self, i: int, name: int, category: int) -> None:
        self._open[i] = None
        for key in ((name, category), (name, None), (None, category), (None, None)):
            self._by[key].append(i)

    def pop(self, name: int, category: int) -> int:
        """The newest begin that agrees, taken out; -1 if none does."""
        names = (None,) if name < 0 else (name, -1)
        categories = (None,) if category < 0 else (category, -1)
        found = max(self._newest(n, c) for n in names for c in categories)
        self._open.pop(found, None)
        return found

    def _newest(self, name: int | None, category: int | None) -> int:
        stack = self._by.get((name, category), [])
        while stack and stack[-1] not in self._open:
            stack.pop()
        return stack[-1] if stack else -1

    def rest(self, begin: list[int], end: list[int]) -> None:
        """What was never closed."""
        begin.extend(self._open)
        end.extend([-1] * len(self._open))


class Joiner:
    """Makes slices of begins and ends.

    Args:
        last_ns: last stamp per lane code of a shape, asked only if something was never closed.
    """

    def __init__(self, tables: Tables, build: TraceBuilder, last_ns: Callable[[], I64]) -> None:
        self._tables, self._build, self._last_ns = tables, build, last_ns

    def slices(self, rows: Rows, lane: I32, opens: NDArray[np.bool_]) -> Rows:
        """The slices of begins and ends; what cannot be joined is booked.

        Args:
            lane: what each row is paired within.
        """
        shapes = self._tables.shapes
        category = self._codes(shapes.category)[rows.shape]
        begin, end = paired(Marks(lane, rows.start, self._one_name(rows.name), category, opens))
        for code in rows.shape[end[begin < 0]].tolist():
            self._tables.tally.add("end-without-begin", shapes.place(code))
        begin, end = begin[begin >= 0], end[begin >= 0]
        in_order = np.argsort(begin)
        begin, end = begin[in_order], end[in_order]
        slices, closed = rows.take(begin), end >= 0
        slices.dur = np.where(closed, rows.start[end] - slices.start, 0)
        self._close(slices, ~closed)
        self._join_args(slices, rows, end)
        return slices

    @staticmethod
    def _codes(texts: list[str]) -> I32:
        known: dict[str, int] = {"": -1}
        return np.array([known.setdefault(text, len(known)) for text in texts], np.int32)

    def _one_name(self, names: I32) -> I32:
        """Names for comparing: an empty one is none."""
        empty = self._tables.names.get("", -1)
        return np.where(names == empty, np.int32(-1), names)

    def _close(self, slices: Rows, unfinished: NDArray[np.bool_]) -> None:
        """End what was never ended at the last stamp of its lane."""
        if not unfinished.any():
            return
        shapes = self._tables.shapes
        last = self._last_ns()[shapes.lane[slices.shape[unfinished]]]
        slices.dur[unfinished] = np.maximum(last - slices.start[unfinished], 0)
        for i in np.flatnonzero(unfinished).tolist():
            self._tables.tally.add("unfinished-slice", shapes.place(int(slices.shape[i])))
            self._add_args(slices, i, {"unfinished": Raw(b"true")})

    def _join_args(self, slices: Rows, rows: Rows, end: Index) -> None:
        """Give slices the arguments of their ends too."""
        more = (end >= 0) & (rows.length[end] > 0)
        alone = more & (slices.length == 0)
        for i in np.flatnonzero(more & ~alone).tolist():
            self._add_args(slices, i, self._members(rows, int(end[i])))
        slices.args[alone], slices.length[alone] = rows.args[end[alone]], rows.length[end[alone]]

    def _add_args(self, slices: Rows, i: int, more: dict[str, Raw]) -> None:
        raw = msgspec.json.encode({**self._members(slices, i), **more})
        slices.args[i], slices.length[i] = self._build.spill(raw), len(raw)

    def _members(self, rows: Rows, i: int) -> dict[str, Raw]:
        """The members of a row's arguments, their values as they are."""
        if not rows.length[i]:
            return {}
        return _decode_members(self._build.stored(int(rows.args[i]), int(rows.length[i])))
