"""Pair begins with ends, and records with earlier ones, in columns.

Profilers write begin and end of an interval as two events with a common key;
:func:`~traceconv.core.ordering.combined_key` makes one number of several columns. The rule of
pairing depends on the format:

- :func:`paired`: an end closes the event before it with the same key, if that is a begin.
  Intervals of one key cannot nest.
- :func:`occurrences`: the k-th event of a key in one column belongs to the k-th in another.
- :func:`latest`: a row belongs to the last one of the same key before it.
- :func:`nested`: an end closes the newest open begin of its lane. At one depth of a lane begins
  and ends alternate, so this is :func:`paired` with lane and depth as the key.
- :func:`nested_by_name`: as :func:`nested`, but the names must agree. Lanes in which a pair of
  :func:`nested` disagrees are paired event by event.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, I64
from traceconv.core.ordering import Parallel, combined_key

Rows = NDArray[np.intp]


def paired(key: I64, begins: NDArray[np.bool_]) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Pair ends with the latest open begin of the same key.

    Args:
        key:    of every event, none negative, in the order of time.
        begins: whether an event is a begin; else it is an end.

    Returns:
        The rows of the begins and of the ends of all pairs, in the order of the begins, and which
        rows are paired. A begin after an open one replaces it.
    """
    order = np.argsort(key, kind="stable")
    ordered, opens = key[order], begins[order]
    # a begin directly before an end of its key; all other events have no partner
    pairs = np.flatnonzero((ordered[1:] == ordered[:-1]) & (opens[:-1] > opens[1:]))
    partner = np.full(len(key), -1, np.intp)
    partner[order[pairs]] = order[pairs + 1]
    start = np.flatnonzero(partner >= 0)
    end = partner[start]
    matched = partner >= 0
    matched[end] = True
    return start, end, matched


def occurrences(key: I64, time: I64) -> tuple[Rows, I64]:
    """Rows by key, then time; and the number of earlier rows of its key for each."""
    order = np.lexsort((time, key))
    ordered = key[order]
    new = np.ones(len(key), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    begins = np.flatnonzero(new)
    # the number of the run a row is in finds where that run began
    return order, np.arange(len(key)) - begins[np.cumsum(new) - 1] if len(key) else key


def latest(key: I64, time: I64, wanted: I64, until: I64) -> I64:
    """The last row of each key in ``wanted`` whose time is not after ``until``.

    Returns:
        Rows; the first of the key where all are later, -1 where the key is unknown.
    """
    if not len(key):
        return np.full(len(wanted), -1, np.int64)
    order = np.lexsort((time, key))
    # sort rows and queries together: the number of rows before a query locates its answer
    all_keys = np.concatenate((key, wanted))
    when = np.concatenate((time, until))
    is_query = np.concatenate((np.zeros(len(key), bool), np.ones(len(wanted), bool)))
    order_of_all = np.lexsort((is_query, when, all_keys))
    before = np.cumsum(~is_query[order_of_all]) - 1
    positions = np.empty(len(all_keys), np.int64)
    positions[order_of_all] = before
    positions = positions[len(key) :]
    ordered = key[order]
    # where all rows of the key are later, the count ended with another key
    first_of_key = np.minimum(np.searchsorted(ordered, wanted), len(key) - 1)
    positions = np.maximum(positions, first_of_key)
    return np.where(ordered[positions] == wanted, order[positions], -1)


def nested(lane: I32 | I64, opens: NDArray[np.bool_]) -> tuple[Rows, Rows, Rows]:
    """Pair every end with the newest open begin of its lane.

    Args:
        lane:  of every event; events of a lane are contiguous, in the order of time.
        opens: whether an event is a begin.

    Returns:
        The rows of all begins, ascending; the rows of their ends, -1 for begins without an end;
        the rows of ends without a begin, ascending.
    """
    change = np.where(opens, 1, -1)
    start = np.flatnonzero(np.diff(lane, prepend=lane[:1] - 1))  # first event of each lane
    group = np.repeat(np.arange(len(start)), np.diff(np.append(start, len(lane))))
    height = np.cumsum(change)
    height -= (height - change)[start][group]  # open begins of the lane after each event
    # the running minimum of each lane: every lane is lowered below all before it
    span = int(height.max(initial=0) - height.min(initial=0)) + 1
    floor = np.minimum.accumulate(height - group * span) + group * span
    before = np.concatenate(([0], floor[:-1]))
    before[start] = 0
    # an end closes nothing if the height falls below zero and below all heights before it
    alone = ~opens & (height < np.minimum(before, 0))
    # such ends lower all following heights; the depth counts from 1 and is that of the slice
    depth = height - np.minimum(floor, 0) + ~opens
    mark = np.flatnonzero(~alone)
    begin, end, _ = paired(combined_key(group[mark], depth[mark]), opens[mark])
    closed = np.full(len(lane), -1, np.intp)
    closed[mark[begin]] = mark[end]
    begins = np.flatnonzero(opens)
    return begins, closed[begins], np.flatnonzero(alone)


@dataclass
class Marks(Parallel):
    """Begins and ends with names.

    Attributes:
        lane:  events of different lanes are not paired.
        start: time.
        name, category: codes; -1, without one, agrees with any.
        opens: whether an event is a begin.
    """

    lane: I32
    start: I64
    name: I32
    category: I32
    opens: NDArray[np.bool_]


def nested_by_name(marks: Marks) -> tuple[Rows, Rows]:
    """Pair every end with the newest open begin of its lane whose name and category agree.

    Returns:
        Row of the begin (-1 for an end without one) and row of the end (-1 for a begin without
        one), in no particular order.
    """
    order = np.lexsort((marks.start, marks.lane))
    marks = marks.take(order)
    begin, end, alone = nested(marks.lane, marks.opens)
    begin = np.concatenate((begin, np.full(len(alone), -1, np.intp)))
    end = np.concatenate((end, alone))
    is_pair = (begin >= 0) & (end >= 0)
    a, b = begin[is_pair], end[is_pair]
    agrees = np.ones(len(a), bool)
    for column in (marks.name, marks.category):
        agrees &= (column[a] == column[b]) | (column[a] < 0) | (column[b] < 0)
    odd = np.unique(marks.lane[a[~agrees]])
    if len(odd):
        # where the names of one pair differ, all pairs of its lane may be others
        odd_rows = np.flatnonzero(np.isin(marks.lane, odd))
        is_agreed = ~np.isin(marks.lane[np.where(begin >= 0, begin, end)], odd)
        odd_pairs = _stacked(marks.take(odd_rows))
        begin = np.concatenate((begin[is_agreed], _picked(odd_rows, odd_pairs[0])))
        end = np.concatenate((end[is_agreed], _picked(odd_rows, odd_pairs[1])))
    return _picked(order, begin), _picked(order, end)


def _picked(rows: Rows, index: Rows) -> Rows:
    """``rows[index]``; -1 where the index is -1."""
    return np.where(index >= 0, rows[index], -1)


def _stacked(marks: Marks) -> tuple[Rows, Rows]:
    """Pairs of any lanes, event by event."""
    begin: list[int] = []
    end: list[int] = []
    lane, stack = -1, _Stack()
    columns = (marks.lane, marks.name, marks.category, marks.opens)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for i, (row_lane, name, category, opens) in enumerate(rows):
        if row_lane != lane:
            stack.drain(begin, end)
            lane, stack = row_lane, _Stack()
        if opens:
            stack.push(i, name, category)
        else:
            begin.append(stack.pop(name, category))
            end.append(i)
    stack.drain(begin, end)
    return np.array(begin, np.intp), np.array(end, np.intp)


class _Stack:
    """Open begins, found by name and category in constant time."""

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._by: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)

    def push(self, i: int, name: int, category: int) -> None:
        """Open event ``i``."""
        self._open[i] = None
        for key in ((name, category), (name, None), (None, category), (None, None)):
            self._by[key].append(i)

    def pop(self, name: int, category: int) -> int:
        """Remove the newest begin that agrees; -1 if none does."""
        names = (None,) if name < 0 else (name, -1)
        categories = (None,) if category < 0 else (category, -1)
        newest = max(self._newest(n, c) for n in names for c in categories)
        self._open.pop(newest, None)
        return newest

    def _newest(self, name: int | None, category: int | None) -> int:
        stack = self._by.get((name, category), [])
        while stack and stack[-1] not in self._open:
            stack.pop()
        return stack[-1] if stack else -1

    def drain(self, begin: list[int], end: list[int]) -> None:
        """Add the begins that are still open."""
        begin.extend(self._open)
        end.extend([-1] * len(self._open))
