"""Exact algebra on sets of half-open intervals, as int64 columns.

A *set* is an array of shape (n, 2), int64 nanoseconds, rows ``[start, end)``, sorted, disjoint
and not touching: what :func:`union` returns. Every function here takes and returns such sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

I64: TypeAlias = "NDArray[np.int64]"


def none() -> I64:
    """No interval."""
    return np.empty((0, 2), np.int64)


def union(start: I64, end: I64) -> I64:
    """The set covered by the intervals ``[start[i], end[i])``; empty ones vanish.

    Starts and ends are sorted apart: a gap begins at i exactly if the i-th smallest start is
    after the (i-1)-th smallest end, so they need not stay paired. Touching intervals are merged.
    """
    filled = end > start
    if not filled.all():
        start, end = start[filled], end[filled]
    if not len(start):
        return none()
    # stable: lanes follow each other, and their runs are merged
    starts, ends = np.sort(start, kind="stable"), np.sort(end, kind="stable")
    gap = np.flatnonzero(starts[1:] > ends[:-1])
    out = np.empty((len(gap) + 1, 2), np.int64)
    out[0, 0], out[-1, 1] = starts[0], ends[-1]
    out[1:, 0], out[:-1, 1] = starts[gap + 1], ends[gap]
    return out


def intersection(a: I64, b: I64) -> I64:
    """The intersection of both sets."""
    return covered(breakdown(a, b), [0b11])


def subtraction(a: I64, b: I64) -> I64:
    """The part of ``a`` that is not in ``b``."""
    return covered(breakdown(a, b), [0b01])


def difference(a: I64, b: I64) -> I64:
    """The symmetric difference of both sets."""
    return covered(breakdown(a, b), [0b01, 0b10])


def merged(*sets: I64) -> I64:
    """The union of the sets."""
    rows = np.concatenate(sets) if sets else none()
    return union(rows[:, 0], rows[:, 1])


def total(a: I64) -> int:
    """Sum of the lengths, ns."""
    return int((a[:, 1] - a[:, 0]).sum())


def holding(spans: I64, time: I64) -> I64:
    """The row of ``spans`` that each instant is in, the latest begun if several; -1 if none is.

    Args:
        spans: rows ``[start, end)`` by start; they need not be a set.
    """
    if not len(spans):
        return np.full(np.shape(time), -1, np.int64)
    row = np.searchsorted(spans[:, 0], time, "right") - 1
    return np.where((row >= 0) & (time < spans[np.maximum(row, 0), 1]), row, -1)


def length_before(a: I64, time: I64) -> I64:
    """How much of ``a`` is before each instant of ``time``, ns. Any shape, any order."""
    if not len(a):
        return np.zeros(np.shape(time), np.int64)
    sums = np.concatenate(([0], np.cumsum(a[:, 1] - a[:, 0])))
    begun = np.searchsorted(a[:, 0], time, "right")
    ahead = a[np.maximum(begun - 1, 0), 1] - time  # of the last interval that has begun
    return sums[begun] - np.where(begun > 0, np.maximum(ahead, 0), 0)


def length_within(a: I64, spans: I64) -> I64:
    """How much of ``a`` is in each span (rows of shape (n, 2), may overlap each other), ns."""
    before = length_before(a, spans)
    return before[:, 1] - before[:, 0]


Breakdown: TypeAlias = "tuple[I64, NDArray[np.uint8]]"
"""Time cut at every boundary of some sets: the m boundaries, ascending, and for each of the m - 1
intervals between them a bit mask of the sets that cover it (bit k = k-th set)."""


def breakdown(*sets: I64) -> Breakdown:
    """Cut time at every boundary of up to eight sets. One sort is enough for every question."""
    # every boundary toggles the bit of its set: the running XOR says which sets are open after it
    edges = np.concatenate([s.ravel() for s in sets])
    owner = np.repeat(np.arange(len(sets), dtype=np.uint8), [s.size for s in sets])
    edges, owner = _sorted_with(edges, owner)
    active = np.bitwise_xor.accumulate(np.left_shift(np.uint8(1), owner))
    return edges, active[:-1]


def covered(pieces: Breakdown, masks: Sequence[int]) -> I64:
    """The set of all pieces whose bit mask is one of ``masks``."""
    edges, active = pieces
    table = np.zeros(256, bool)
    table[list(masks)] = True
    hit = np.flatnonzero(table[active] & (edges[1:] > edges[:-1]))
    start, end = edges[hit], edges[hit + 1]
    if not len(start):
        return none()
    gap = np.flatnonzero(start[1:] > end[:-1])  # pieces that touch are one interval
    begins, ends = np.concatenate(([0], gap + 1)), np.concatenate((gap, [len(end) - 1]))
    return np.stack((start[begins], end[ends]), axis=1)


def _sorted_with(edges: I64, owner: NDArray[np.uint8]) -> tuple[I64, NDArray[np.uint8]]:
    """Both sorted by edge. Packed into one value where that fits: sorting values, not indices."""
    if not len(edges):
        return edges, owner
    base = int(edges.min())
    if (int(edges.max()) - base) >> 60:
        order = np.argsort(edges, kind="stable")
        return edges[order], owner[order]
    packed = np.sort((edges - base) << 3 | owner, kind="stable")  # 61 bits of time, 3 of owner
    return (packed >> 3) + base, (packed & 7).astype(np.uint8)
