"""Begin and end marks joined to ranges: an end closes the newest open begin of its key."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.model import I32, I64

Index = NDArray[np.intp]


def paired(key: I32, time_ns: I64, opens: NDArray[np.bool_]) -> tuple[Index, Index, Index]:
    """Which mark closes which; marks of one key in the order of time, equal times as they came.

    Args:
        key:   what marks are paired within.
        opens: whether a mark begins a range.

    Returns:
        begins and their ends (-1: never closed), in the order of begins; ends without a begin.
    """
    order = np.lexsort((time_ns, key))
    lane, first = key[order], opens[order]
    change = np.where(first, 1, -1)
    height = np.cumsum(change)
    start = np.flatnonzero(np.diff(lane, prepend=lane[:1] - 1))
    before = (height - change)[start]  # of each key
    group = np.repeat(np.arange(len(start)), np.diff(np.append(start, len(lane))))
    height -= before[group]
    floor = _lowest_so_far(height, group)
    alone = ~first & (height < np.minimum(_shifted(floor, start), 0))
    depth = height - np.minimum(floor, 0) + ~first  # of the range a mark belongs to, from 1
    turns = np.lexsort((depth, group, alone))
    turns = turns[: len(turns) - int(alone.sum())]
    one, next_ = turns[:-1], turns[1:]
    same = (group[one] == group[next_]) & (depth[one] == depth[next_])
    couple = same & first[one] & ~first[next_]
    closed = np.full(len(order), -1, np.intp)
    closed[one[couple]] = order[next_[couple]]
    begin = np.flatnonzero(first)
    by_row = np.argsort(order[begin])
    return order[begin][by_row], closed[begin][by_row], np.sort(order[alone])


def _lowest_so_far(height: I64, group: Index) -> I64:
    """The running minimum within each group."""
    span = int(height.max(initial=0) - height.min(initial=0)) + 1
    lifted = height - group * span  # every group lies below all before it
    lowest: I64 = np.minimum.accumulate(lifted) + group * span
    return lowest


def _shifted(floor: I64, start: Index) -> I64:
    """The floor before each mark; 0 before the first of its group."""
    before = np.concatenate(([0], floor[:-1]))
    before[start] = 0
    return before
