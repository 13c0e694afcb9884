"""Sets of intervals, and slices within slices (``intervals.c``).

All columns are int64 of one dimension; they may be strided, but for the pairs that are filled.
"""

import numpy as np
from numpy.typing import NDArray

_I64 = NDArray[np.int64]

def union(start: _I64, end: _I64, out: _I64, other: _I64, /) -> int:
    """Fill ``out`` with the union of the intervals; those that are empty vanish.

    Args:
        out, other: with room for two numbers for each interval; ``other`` is scratch.

    Returns:
        How many rows it has; -1, and nothing of use, where numpy sorts the starts sooner.

    Raises:
        ValueError: the columns differ in length, or are too short.
    """

def combined(
    start: _I64, end: _I64, other_start: _I64, other_end: _I64, wanted: int, out: _I64, /
) -> int:
    """Fill ``out`` with pieces of time of two sets.

    Args:
        wanted: bits: ``1 << 1`` for what only the first set has, ``1 << 2`` for what only the other
            has, ``1 << 3`` for what both have.
        out:    with room for two numbers for each interval of both.

    Returns:
        How many rows it has; -1, and nothing of use, if one of the two is no set.

    Raises:
        ValueError: the columns differ in length, or are too short.
    """

def before(start: _I64, end: _I64, time: _I64, sums: _I64, out: _I64, /) -> None:
    """Fill ``out`` with how much of a set is before each instant of ``time``.

    Args:
        sums: scratch, as long as the set.

    Raises:
        ValueError: the columns differ in length, or are too short.
    """

def nest(
    start: _I64, end: _I64, inside: _I64, open: _I64, time: _I64, top: _I64, parent: _I64, /
) -> None:
    """Fill ``time`` and ``top`` with the innermost slice of a thread from each border on, and
    ``parent`` with the one around each slice; -1 = none.

    Args:
        start:  in order, of slices that begin together the longest first.
        end:    in order; where one ends and another begins, the end comes first.
        inside: the number of each slice, in the order of ``start``; ``parent`` and ``top`` are in
            these numbers, and ``parent`` is of all slices, those of other threads, too.
        open:   scratch, with room for all slices.
        time, top: with room for two borders for each slice.

    Raises:
        ValueError: the columns differ in length, or are too short, or more slices have ended than
            begun.
    """
