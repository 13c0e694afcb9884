"""Which slice each row of a table of operators describes: by name and start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceconv.model import I64

TOLERANCE_NS = 512
"""Starts may differ by so much: tables written through floating point lie on a grid of 250 ns, and
two starts of one operator are never so near."""


def matched(names: Sequence[str], start_ns: I64, row_names: Sequence[str], row_start: I64) -> I64:
    """For every row the slice of its name that starts when it does (or nearest to it, within
    :data:`TOLERANCE_NS`); -1 where there is none. No slice is given to two rows.

    Args:
        names, start_ns: of the slices.
        row_names, row_start: of the rows.
    """
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    slices = np.array([numbers[name] for name in names], np.int64)
    rows = np.array([numbers.get(name, -1) for name in row_names], np.int64)
    order = np.lexsort((start_ns, slices))
    first = np.searchsorted(slices[order], np.arange(len(numbers) + 1))
    found = np.full(len(rows), -1, np.int64)
    of_name = np.argsort(rows, kind="stable")
    borders = np.searchsorted(rows[of_name], np.arange(len(numbers) + 1))
    for i in np.unique(rows[rows >= 0]).tolist():
        mine = of_name[borders[i] : borders[i + 1]]
        candidates = order[first[i] : first[i + 1]]
        nearest = _nearest(start_ns[candidates], row_start[mine])
        found[mine] = np.where(nearest >= 0, candidates[nearest], -1)
    return _once(found, np.abs(start_ns[found] - row_start) if len(start_ns) else found)


def _nearest(sorted_ns: I64, wanted: I64) -> I64:
    """Where the nearest of ascending times stands; -1 if it is too far."""
    after = np.searchsorted(sorted_ns, wanted)
    low, high = np.maximum(after - 1, 0), np.minimum(after, len(sorted_ns) - 1)
    below, above = np.abs(wanted - sorted_ns[low]), np.abs(sorted_ns[high] - wanted)
    at = np.where(below < above, low, high)
    near: I64 = np.where(np.minimum(below, above) <= TOLERANCE_NS, at, -1)
    return near


def _once(found: I64, distance: I64) -> I64:
    """Every slice kept for the nearest row only."""
    order = np.lexsort((distance, found))
    again = np.zeros(len(found), bool)
    again[1:] = found[order][1:] == found[order][:-1]
    found = found.copy()
    found[order[again]] = -1
    return found
