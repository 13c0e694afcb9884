"""The graph of a job, replayed (``replay.c``)."""

import numpy as np
from numpy.typing import NDArray

def ends(
    before: NDArray[np.int32],
    source: NDArray[np.int32],
    meets: NDArray[np.int64],
    lengths: NDArray[np.float64],
    delays: NDArray[np.float64],
    scenarios: int,
    /,
) -> bytes:
    """(scenarios, operations) float64: when each operation ends.

    Args:
        before:  (operations, edges) rows that each waits for; the number of operations for none.
        source:  per operation, a row that it needs besides, likewise.
        meets:   where each set of operations that meet begins.
        lengths, delays: (operations, scenarios), or (operations, 1) of what is alike in all.

    Raises:
        ValueError: the columns do not fit together, or an operation waits for a later set.
    """

def levels(before: NDArray[np.int32], meet: NDArray[np.int32], /) -> bytes:
    """(operations,) int32: the level of each, -1 in a circle or behind one.

    Args:
        before: (operations, edges), as above.
        meet:   per operation, the first row of its set.

    Raises:
        ValueError: the columns do not fit together.
    """
