"""Exact algebra on sets of half-open intervals, as int64 columns.

A *set* is an array of shape (n, 2), int64 nanoseconds, rows ``[start, end)``, sorted, disjoint
and not touching: what :func:`union` returns. Every function here takes and returns such sets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

EMPTY: I64 = np.empty((0, 2), np.int64)


def union(start: I64, end: I64) -> I64:
    """The set covered by the intervals ``[start[i], end[i])``; empty ones vanish.

    Starts and ends are sorted apart: a gap begins at i exactly if the i-th smallest start lies
    after the (i-1)-th smallest end, so they need not stay paired. Touching intervals are merged.
    """
    filled = end > start
    if not filled.all():
        start, end = start[filled], end[filled]
    if not len(start):
        return EMPTY
    first, last = np.sort(start), np.sort(end)
    gap = np.flatnonzero(first[1:] > last[:-1])
    out = np.empty((len(gap) + 1, 2), np.int64)
    out[0, 0], out[-1, 1] = first[0], last[-1]
    out[1:, 0], out[:-1, 1] = first[gap + 1], last[gap]
    return out


def intersection(a: I64, b: I64) -> I64:
    """What is in both sets."""
    return _where(a, b, 3)


def subtraction(a: I64, b: I64) -> I64:
    """What is in ``a`` but not in ``b``."""
    return _where(a, b, 1)


def merged(a: I64, b: I64) -> I64:
    """What is in either set."""
    both = np.concatenate((a, b))
    return union(both[:, 0], both[:, 1])


def clip(a: I64, start: int, end: int) -> I64:
    """The part of ``a`` within ``[start, end)``."""
    return intersection(a, np.array([[start, end]], np.int64)) if end > start else EMPTY


def total(a: I64) -> int:
    """Sum of the lengths, ns."""
    return int((a[:, 1] - a[:, 0]).sum())


def _where(a: I64, b: I64, wanted: int) -> I64:
    """Segments where exactly the classes of the bit mask ``wanted`` (1 = a, 2 = b) are active."""
    edges = np.concatenate((a.ravel(), b.ravel()))
    bits = np.repeat(np.array([1, 2], np.int8), (a.size, b.size))
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    active = np.bitwise_xor.accumulate(bits[order]) if len(edges) else bits
    hit = np.flatnonzero((active[:-1] == wanted) & (edges[1:] > edges[:-1]))
    return union(edges[hit], edges[hit + 1])
