"""Ends of arrows that belong together (``arrows.c``)."""

import numpy as np
from numpy.typing import NDArray

def joined(key: NDArray[np.int64], stage: NDArray[np.int8], /) -> tuple[bytes, int]:
    """For every end, the end its arrow comes from, as int32.

    Args:
        key:   int64, equal for ends that belong together.
        stage: int8: 0 of a start, 1 of a step, else a finish.

    Returns:
        -1 for starts, and where there is none; where a key has several starts, or steps, which are
        to be decided by time, ``-2`` less the first end of that key. And how many these are.

    Raises:
        ValueError: the columns differ in length.
    """
