"""The scanner of trace events (``scan.c``)."""

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

MORE: int
END: int
ODD: int
FULL: int

def members(
    data: Buffer, start: NDArray[np.int64], size: NDArray[np.int64], keys: tuple[bytes, ...], /
) -> tuple[bytes, bytes, bytes]:
    """Where the values of keys are in JSON objects that are stretches of ``data``.

    Args:
        keys: as they are written, without quotes; 32 at most.

    Returns:
        Places (int64, key by key) and lengths (int32, key by key; -1 where an object has no such
        key) of the last value of each key, and a byte per object: 0 if it is unusual (no object,
        escapes in a key, no JSON), and says nothing then.

    Raises:
        ValueError: objects reach beyond ``data``, or there are more keys.
    """

class Scanned(TypedDict):
    """What :meth:`Scanner.take` returns: columns as bytes, and strings that got a code since."""

    rows: list[bytearray]
    flows: list[bytearray]
    samples: list[bytearray]
    others: bytearray
    blob: bytes
    names: list[bytes]
    shapes: list[bytes]
    series: list[bytes]
    values: list[bytes]
    first_value: int
    unread: list[tuple[bytes, int]]
    rounded_durations: int
    rounded_stamps: int

class Scanner:
    """Reads trace events, from JSON text to columns. Not for several threads at once."""

    def __init__(
        self,
        graph_keys: tuple[bytes, ...],
        type_key: bytes,
        k0: int,
        k1: int,
        copy_args: bool,
        keep: bool,
        /,
    ) -> None:
        """
        Args:
            graph_keys: members of the arguments that name the graph, 8 at most.
            type_key:   the member that names the type of a task.
            k0, k1:     key of the hash function.
            copy_args:  whether arguments are copied, for the input does not stay.
            keep:       whether members of slices and instants that have no column become members of
                their arguments. The place of such arguments is -1 minus that in ``blob``. All other
                members that are not read are counted by name, in ``unread``.
        """

    def scan(self, data: Buffer, start: int, end: int, /) -> tuple[int, int]:
        """Read records until something stops it: the status, and the first byte not read."""

    def take(self) -> Scanned:
        """What was read since the last call; the scanner is empty then."""

    def flow_key(self, text: Buffer, /) -> int:
        """The key of an arrow: the hash of ``category NUL name NUL id``."""
