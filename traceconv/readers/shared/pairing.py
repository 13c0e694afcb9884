"""Which end belongs to which beginning, and which record to which instant, in columns.

Profilers write the two ends of an interval as marks of their own. What tells the marks of one
interval from those of others is its key; :func:`~traceconv.core.ordering.combined_key` makes one
number of several columns. Which mark closes which is a rule of the format:

- :func:`paired`: an end closes the mark before it with the same key, if that is a beginning.
  Intervals of one key cannot nest.
- :func:`occurrences`: the k-th mark of a key in one column belongs to the k-th in another.
- :func:`latest`: a row belongs to the last one of the same key before it.
- :func:`nested`: an end closes the newest open beginning of its lane. At one depth of one lane
  beginnings and ends take turns, so this is :func:`paired` with lane and depth as the key.
- :func:`nested_by_name`: the same, but the names of the two have to agree. Lanes in which every
  pair of :func:`nested` agrees are done with that; the others are gone through mark by mark.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, I64
from traceconv.core.ordering import combined_key

Rows = NDArray[np.intp]


def paired(key: I64, begins: NDArray[np.bool_]) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Ends with the latest beginning of the same key that is still open.

    Args:
        key:    of every mark, none negative, in the order the marks were made.
        begins: whether a mark is a beginning; else it is an end.

    Returns:
        The rows of the beginnings and of the ends of all pairs, in the order of the beginnings,
        and which rows found a partner. A beginning after an open one replaces it.
    """
    order = _stable(key)
    ordered, first = key[order], begins[order]
    # a beginning directly before an end of its key: all other marks have no partner
    at = np.flatnonzero((ordered[1:] == ordered[:-1]) & (first[:-1] > first[1:]))
    partner = np.full(len(key), -1, np.intp)
    partner[order[at]] = order[at + 1]
    start = np.flatnonzero(partner >= 0)
    end = partner[start]
    matched = partner >= 0
    matched[end] = True
    return start, end, matched


def _stable(key: I64) -> Rows:
    """The stable order of keys, none negative; packed with their rows where that fits, since
    values sort faster than indices.
    """
    bits = len(key).bit_length()
    if not len(key) or int(key.max()) >> (62 - bits):
        return np.argsort(key, kind="stable")
    packed = np.sort(key << bits | np.arange(len(key)))
    return packed & ((1 << bits) - 1)


def occurrences(key: I64, time: I64) -> tuple[Rows, I64]:
    """Rows by key, then time; and for each of them, how many of its key come before it."""
    order = np.lexsort((time, key))
    ordered = key[order]
    new = np.ones(len(key), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(new)
    # the number of the run a row is in finds where that run began
    return order, np.arange(len(key)) - first[np.cumsum(new) - 1] if len(key) else key


def latest(key: I64, time: I64, wanted: I64, until: I64) -> I64:
    """For each of ``wanted`` the last row of that key whose time is not after ``until``.

    Returns:
        Rows; the first of the key where all are later, -1 where the key is unknown.
    """
    if not len(key):
        return np.full(len(wanted), -1, np.int64)
    order = np.lexsort((time, key))
    # sort rows and questions together: the rows counted up to a question end with its answer
    every = np.concatenate((key, wanted))
    when = np.concatenate((time, until))
    asked = np.concatenate((np.zeros(len(key), bool), np.ones(len(wanted), bool)))
    place = np.lexsort((asked, when, every))
    before = np.cumsum(~asked[place]) - 1
    at = np.empty(len(every), np.int64)
    at[place] = before
    at = at[len(key) :]
    ordered = key[order]
    # where all rows of the key are later, the count ended with another key
    first = np.minimum(np.searchsorted(ordered, wanted), len(key) - 1)
    at = np.maximum(at, first)
    return np.where(ordered[at] == wanted, order[at], -1)


def nested(lane: I32 | I64, opens: NDArray[np.bool_]) -> tuple[Rows, Rows, Rows]:
    """Every end with the newest open beginning of its lane.

    Args:
        lane:  what marks are paired within; the marks of a lane follow each other, in time.
        opens: whether a mark is a begin.

    Returns:
        The rows of all begins, ascending; the rows of their ends, -1 for those never closed; the
        rows of ends that close nothing, ascending.
    """
    change = np.where(opens, 1, -1)
    start = np.flatnonzero(np.diff(lane, prepend=lane[:1] - 1))  # first mark of each lane
    group = np.repeat(np.arange(len(start)), np.diff(np.append(start, len(lane))))
    height = np.cumsum(change)
    height -= (height - change)[start][group]  # open beginnings of the lane after each mark
    floor = _lowest_so_far(height, group)
    # An end closes nothing if it takes the height below zero, and below all that came before it.
    alone = ~opens & (height < np.minimum(_before(floor, start), 0))
    # Such ends lower all that follows; the depth counts from 1 and is that of the slice.
    depth = height - np.minimum(floor, 0) + ~opens
    mark = np.flatnonzero(~alone)
    begin, end, _ = paired(combined_key(group[mark], depth[mark]), opens[mark])
    closed = np.full(len(lane), -1, np.intp)
    closed[mark[begin]] = mark[end]
    begins = np.flatnonzero(opens)
    return begins, closed[begins], np.flatnonzero(alone)


def _lowest_so_far(height: I64, group: Rows) -> I64:
    """The running minimum within each group."""
    span = int(height.max(initial=0) - height.min(initial=0)) + 1
    lowered = height - group * span  # every group is below all before it
    lowest: I64 = np.minimum.accumulate(lowered) + group * span
    return lowest


def _before(floor: I64, start: Rows) -> I64:
    """The floor before each mark; 0 before the first of its lane."""
    before = np.concatenate(([0], floor[:-1]))
    before[start] = 0
    return before


class Marks(msgspec.Struct):
    """Begins and ends with names.

    Attributes:
        lane:  what they are paired within.
        start: time.
        name, category: codes, -1 where there is none, which agrees with any.
        opens: whether a mark is a begin.
    """

    lane: I32
    start: I64
    name: I32
    category: I32
    opens: NDArray[np.bool_]

    def take(self, rows: Rows) -> Marks:
        """The rows of an index array."""
        return Marks(
            self.lane[rows],
            self.start[rows],
            self.name[rows],
            self.category[rows],
            self.opens[rows],
        )


def nested_by_name(marks: Marks) -> tuple[Rows, Rows]:
    """Every end with the newest open beginning of its lane whose name and category agree.

    Returns:
        Row of the begin (-1 for an end that closes nothing) and row of the end (-1 for a begin
        that is never closed), in no particular order.
    """
    order = np.lexsort((marks.start, marks.lane))
    marks = marks.take(order)
    begin, end, alone = nested(marks.lane, marks.opens)
    begin = np.concatenate((begin, np.full(len(alone), -1, np.intp)))
    end = np.concatenate((end, alone))
    odd = _disagreeing(marks, begin, end)
    if len(odd):
        # Where the names of any pair differ, all pairs of that lane may be others.
        rest = np.flatnonzero(np.isin(marks.lane, odd))
        kept = ~np.isin(marks.lane[np.where(begin >= 0, begin, end)], odd)
        more = _stacked(marks.take(rest))
        begin = np.concatenate((begin[kept], _picked(rest, more[0])))
        end = np.concatenate((end[kept], _picked(rest, more[1])))
    return _picked(order, begin), _picked(order, end)


def _picked(rows: Rows, index: Rows) -> Rows:
    """``rows[index]``, -1 where the index is."""
    return np.where(index >= 0, rows[index], -1)


def _disagreeing(marks: Marks, begin: Rows, end: Rows) -> I32:
    """The lanes in which a pair bears two names or two categories."""
    whole = (begin >= 0) & (end >= 0)
    a, b = begin[whole], end[whole]
    agrees = np.ones(len(a), bool)
    for column in (marks.name, marks.category):
        agrees &= (column[a] == column[b]) | (column[a] < 0) | (column[b] < 0)
    return np.unique(marks.lane[a[~agrees]])


def _stacked(marks: Marks) -> tuple[Rows, Rows]:
    """Pairs of any lanes, mark by mark."""
    begin: list[int] = []
    end: list[int] = []
    lane, stack = -1, _Stack()
    columns = (marks.lane, marks.name, marks.category, marks.opens)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for i, (at, name, category, opens) in enumerate(rows):
        if at != lane:
            stack.drain(begin, end)
            lane, stack = at, _Stack()
        if opens:
            stack.push(i, name, category)
        else:
            begin.append(stack.pop(name, category))
            end.append(i)
    stack.drain(begin, end)
    return np.array(begin, np.intp), np.array(end, np.intp)


class _Stack:
    """Open beginnings, found by name and category in constant time."""

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._by: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)

    def push(self, i: int, name: int, category: int) -> None:
        """Open mark ``i``."""
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

    def drain(self, begin: list[int], end: list[int]) -> None:
        """Add what was never closed."""
        begin.extend(self._open)
        end.extend([-1] * len(self._open))
