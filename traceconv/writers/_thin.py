"""Thinning counters so that their picture stays: no repeats, then lows and highs, evenly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.model import CounterTable


def thinned(counters: CounterTable, points: int | None) -> NDArray[np.bool_]:
    """The samples that stay. The first and last of a counter always do, unless none shall.

    Args:
        points: groups per counter, of which the lowest and the highest sample stay; None keeps
            all samples, 0 none.
    """
    track, value = counters.track, counters.value
    if points is None or points == 0 or not len(track):
        return np.full(len(track), points is None)
    border = np.diff(track) != 0
    edge = np.append(True, border) | np.append(border, True)
    kept: NDArray[np.bool_] = edge | np.append(True, value[1:] != value[:-1])
    rows = np.flatnonzero(kept)
    begins = np.flatnonzero(np.diff(track[rows], prepend=-1))
    count = np.diff(np.append(begins, len(rows)))
    place = np.arange(len(rows)) - np.repeat(begins, count)
    count = np.repeat(count, count)
    group = np.where(count > 2 * points, place * points // count, place)
    order = np.lexsort((value[rows], group, track[rows]))
    apart = (np.diff(track[rows][order]) != 0) | (np.diff(group[order]) != 0)
    extreme = np.append(True, apart) | np.append(apart, True)
    kept[rows] = False
    kept[rows[order[extreme]]] = True
    kept |= edge
    return kept
