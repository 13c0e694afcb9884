"""Columns of equal length: keys of several columns, their order, some of their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]


class Parallel:
    """Base of data classes whose fields are arrays of equal length."""

    def take(self, rows: Any) -> Self:
        """The rows of a mask or an index array."""
        return type(self)(*(column[rows] for column in vars(self).values()))

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))


_ROOM = 2**62


def combined_key(*columns: NDArray[Any]) -> I64:
    """One number from 0 on per row: equal where all columns of whole numbers are, and sorting as
    they do.

    The columns become the digits of one number; where that would leave int64, values are replaced
    by their ranks.
    """
    key, room = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        if not len(column):
            return key
        low, high = int(column.min()), int(column.max())
        width = high - low + 1
        if width >= _ROOM or room * width >= _ROOM:
            column = np.unique(column, return_inverse=True)[1]
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            low, width, room = 0, int(column.max()) + 1, int(key.max()) + 1
        key = key * width + (column.astype(np.int64) - low)
        room *= width
    return key


def different(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The different values in order, and which of them each is: as ``numpy.unique``, in a fraction
    of its time where values are few or close to each other.
    """
    if values.dtype.kind == "i" and len(values):
        low, room = int(values.min()), int(values.max()) - int(values.min()) + 1
        if room <= 4 * len(values) + 1024:
            present = np.zeros(room, bool)
            present[values - low] = True
            distinct = np.flatnonzero(present) + low
            return distinct.astype(values.dtype), (np.cumsum(present) - 1)[values - low]
        distinct = np.unique(values)
        if len(distinct) * 8 < len(values):
            return distinct, np.searchsorted(distinct, values)
    return np.unique(values, return_inverse=True)


def mapped(
    values: NDArray[Any], what: Callable[[Any], Any], dtype: type[np.generic]
) -> NDArray[Any]:
    """``what`` of every value, computed once for each different one."""
    distinct, back = different(values)
    return np.array([what(value) for value in distinct.tolist()], dtype)[back]


def factored_rows(*columns: NDArray[Any]) -> tuple[list[tuple[int, ...]], NDArray[np.intp]]:
    """The different rows of some columns of whole numbers, in order, and which of them each row is.

    As ``numpy.unique`` with ``axis=0``, which compares whole rows: five times as long.
    """
    keys, row_of = different(combined_key(*columns))
    somewhere = np.empty(len(keys), np.intp)
    somewhere[row_of] = np.arange(len(row_of))
    values = (column[somewhere].tolist() for column in columns)
    return [*zip(*values, strict=True)], row_of


def in_lanes(lane: NDArray[Any]) -> NDArray[np.intp]:
    """The permutation that puts rows in the order of lanes, rows of a lane as they are given.

    Numbers of one and two bytes are sorted by counting, in as many rounds.

    Args:
        lane: whole numbers, 0 and more.
    """
    highest = int(lane.max(initial=0))
    narrow = np.uint8 if highest < 2**8 else np.uint16 if highest < 2**16 else np.int64
    order: NDArray[np.intp] = np.argsort(lane.astype(narrow), kind="stable")
    return order
