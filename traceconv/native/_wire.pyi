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
        see :class:`traceconv.core.protobuf_columns.Columns`.

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

def annotations(
    data: Any,
    start: NDArray[np.int64],
    size: NDArray[np.int64],
    ends: NDArray[np.int64],
    names: list[bytes | None],
    more_names: dict[int, bytes],
    strings: list[bytes | None],
    more_strings: dict[int, bytes],
    pairs: bool = False,
    /,
) -> tuple[bytes, bytes, bytes]:
    """The JSON objects of rows; the DebugAnnotations of a row end where ``ends`` says, counted in
    messages.

    Args:
        names, more_names: what stands before a value (``"key":``), by number; those beyond the
            list are in the dictionary.
        strings, more_strings: the JSON texts of interned strings.
        pairs: the messages are no DebugAnnotations, but have a key (1) and a value (2), both text.

    Returns:
        All objects, their lengths (int32), and a byte per row: 1 = a number is not defined, 2 =
        something only the Python tier reads; the length is 0 then.

    Raises:
        ValueError: messages reach beyond ``data``, or rows beyond messages.
    """

class Codes:
    """Numbers for values, in the order in which they first occur. Not for several threads at once.

    Args:
        seed: of the hash.
    """

    def __init__(self, seed: int, /) -> None: ...
    def __len__(self) -> int: ...
    def texts(self, data: Any, start: NDArray[np.int64], size: NDArray[np.int64], /) -> bytes:
        """The code (int32) of each stretch of ``data``."""

    def numbers(self, values: NDArray[Any], /) -> bytes:
        """The code (int32) of each eight bytes."""

    def entries(self, first: int, /) -> list[bytes]:
        """What has the codes from ``first`` on."""
