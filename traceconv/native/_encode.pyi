"""The Perfetto encoder (``encode.c``, ``json.c``, ``strings.c``)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

class Coder:
    """Encodes the arguments of one packet sequence. Not for several threads at once."""

    def __init__(
        self,
        selected: tuple[bytes, ...] | None,
        seed: int,
        max_names: int,
        max_strings: int,
        max_bytes: int,
        /,
    ) -> None: ...
    @property
    def sizes(self) -> tuple[int, int]:
        """How many names and strings have a number."""

    def block(
        self, blobs: tuple[Any, ...], address: NDArray[np.int64], length: NDArray[np.int32], /
    ) -> tuple[bytes, bytes, bytes, bytes, int, int, int, int]:
        """Annotations, their ends (int64), InternedData, a byte per row (whether its text is
        another than a reader makes of its annotations); rows not JSON, numbers clipped, texts with
        characters replaced, rows with arguments dropped.

        Args:
            blobs:   buffers with the JSON text of all arguments.
            address: int64 per row: blob in the upper 16 bits, offset in the lower 48.
            length:  int32 per row; 0 = no arguments.
        """

def names(values: list[str], first: int, /) -> bytes:
    """Entries of InternedData that number names of events from ``first`` on; halves of surrogate
    pairs become U+FFFD.
    """

def packets(
    sequence: bytes,
    kind: NDArray[np.int8],
    last: NDArray[np.bool_],
    time: NDArray[np.int64],
    dur: NDArray[np.int64],
    uuid: NDArray[np.int64],
    name: NDArray[np.int32],
    category: NDArray[np.uint8],
    flow_ends: NDArray[np.int64],
    flows: NDArray[Any],
    arg_ends: NDArray[np.int64],
    args: bytes,
    opened: NDArray[np.int64],
    /,
) -> tuple[bytes, bytes]:
    """Packets of a block of rows, and the ends of slices that stay open (int64)."""
