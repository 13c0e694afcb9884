"""Protobuf in columns (``wire.c``)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

def frames(data: Any, at: int, end: int, most: int, /) -> tuple[bytes, bytes, int, int]:
    """Records ``0A length bytes`` of ``data[at:end]``, ``most`` at most: starts and sizes of their
    bytes (int64), the first byte not read, and how it ended: 0 = whole, 1 = a record is cut off,
    2 = something else than a record.
    """

def columns(
    data: Any, start: NDArray[np.int64], size: NDArray[np.int64], wanted: tuple[int, ...], /
) -> tuple[bytes, bytes, bytes]:
    """The last value of each wanted field (64 of them at most, numbers below 16384).

    Returns:
        Values (uint64, field by field), lengths (int32, field by field), and a byte per message;
        see :class:`traceconv.readers.shared.protobuf_columns.Columns`.

    Raises:
        ValueError: messages reach beyond ``data``, or ``wanted`` is not like that.
    """

def repeated(
    data: Any, start: NDArray[np.int64], size: NDArray[np.int64], number: int, /
) -> tuple[bytes, bytes, bytes]:
    """All occurrences of a field: message (int64), value (uint64) and length (int32) of each.

    Raises:
        ValueError: messages reach beyond ``data``.
    """
