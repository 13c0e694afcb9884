"""Start times finer than the file's stamps, and slices fitted to what stays coarse.

Paddle's JSON cuts starts down to microseconds and, beside them, prints how far each event begins
after the first one of the host, through a 32-bit float. With t0 the start of that first event,
``floor((t0 + since_i) / 1000) = ts_i`` holds for every event, which leaves t0 a few nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, I64

EXACT_NS = 2**14 * 1000
"""Below this, floats of microseconds are less than 1 ns apart: the digits are exact."""

USABLE_NS = 2**22 * 1000
"""Beyond this, they are half a microsecond apart and say little more than the stamps."""

FAR_NS = 2**62
US = 1000
TRIM_NS = 1000
"""No slice is cut by more than this."""


@dataclass(frozen=True)
class Starts:
    """Start times of slices.

    Attributes:
        ns:    int64; as stamped where nothing better is known.
        slack: int64: by how many ns a start may be wrong against the others of the file.
        kept:  bool: it is as stamped.
        spread: all of the file may be this many ns earlier or later; -1 if nothing was recovered.
    """

    ns: I64
    slack: I64
    kept: NDArray[np.bool_]
    spread: int = -1


def recovered(stamp: I64, since: I64, said: NDArray[np.bool_]) -> Starts:
    """Start times of the slices of one file.

    Args:
        stamp: whole microseconds, in ns.
        since: time since the first event, ns.
        said:  whether ``since`` is known.
    """
    whole = (stamp % US == 0) & (stamp < FAR_NS)  # else stamps were not cut to microseconds
    said, coarse = said & whole, np.where(whole, US - 1, 0)
    exact = said & (since >= 0) & (since < EXACT_NS)
    as_stamped = Starts(stamp, coarse, np.ones(len(stamp), bool))
    if not exact.any():
        return as_stamped
    begin = stamp[exact] - since[exact]
    first, last = int(begin.max()), int(begin.min()) + US - 1
    if first > last:  # not of one recording, or of a writer with other rules
        return as_stamped
    error, spread = _error(since), (last - first + 1) // 2
    wanted = since + (first + last) // 2
    found = np.clip(wanted, stamp, stamp + (US - 1))
    good = said & (since >= 0) & (since < USABLE_NS)
    good &= np.abs(found - wanted) <= error + spread
    return Starts(np.where(good, found, stamp), np.where(good, error, coarse), ~good, spread)


def _error(since: I64) -> I64:
    """How far the digits of a 32-bit float of microseconds may be off, ns."""
    spacing = np.spacing(np.abs(since / US).astype(np.float32)).astype(np.float64) * US
    return np.where(since < EXACT_NS, 0, np.ceil(spacing)).astype(np.int64)


def trimmed(lane: I32, start: I64, dur: I64, slack: I64) -> tuple[I64, int]:
    """Durations with which slices of one lane nest, as far as coarse starts explain it.

    A slice that outlasts the one around it, or reaches into the next one, by no more than the
    slack of the two starts is cut to fit; others are left as they are.

    Returns:
        The durations, and how many are shorter than before.
    """
    end = start + dur
    for number in np.unique(lane[slack > 0]).tolist():
        rows = np.flatnonzero(lane == number)
        rows = rows[np.lexsort((-dur[rows], start[rows]))]
        if not _nests(start[rows], end[rows]):
            end[rows] = _fitted(start[rows].tolist(), end[rows].tolist(), slack[rows].tolist())
    return end - start, int((end - start < dur).sum())


def _nests(start: I64, end: I64) -> bool:
    """Whether slices, sorted by (start, -end), nest: as many lie around each begin as each end.

    May say no of slices of no length that do.
    """
    n = len(start)
    inner = np.lexsort((-np.arange(n), end))  # by end, the inner ones first
    at_begin = np.arange(n) - np.searchsorted(end[inner], start, "right")
    ended = np.empty(n, np.int64)
    ended[inner] = np.arange(n)
    at_end = np.searchsorted(start, end, "left") - 1 - ended
    return bool((at_begin == at_end).all())


def _fitted(start: list[int], end: list[int], slack: list[int]) -> list[int]:
    """New ends of slices sorted by (start, -end)."""
    end, open_ = end.copy(), list[int]()
    for i, begin in enumerate(start):
        while open_ and end[open_[-1]] <= begin:
            open_.pop()
        while open_:
            around = open_[-1]
            over, into = end[i] - end[around], end[around] - begin
            allowed = min(TRIM_NS, slack[i] + slack[around])
            if over <= 0:
                break
            if over <= into:  # most of it lies inside: a child
                end[i] = end[around] if over <= allowed else end[i]
                break
            if into > allowed:
                break
            end[around] = begin  # it only reaches into this one: a sibling
            open_.pop()
        open_.append(i)
    return end
