"""Lanes for slices that cross (``lanes.c``)."""

import numpy as np
from numpy.typing import NDArray

def first_fit(
    start: NDArray[np.int64], end: NDArray[np.int64], depth: int, nesting: int, /
) -> tuple[bytes, int]:
    """The lane of each slice, as int32, and how many were too deep for one that they would fit.

    Args:
        start, end: int64, sorted by (start, -end).
        depth:      of slices in a lane, at most.
        nesting:    lanes in which slices may nest.

    Raises:
        ValueError: the columns differ in length, or a number is not positive.
    """
