"""The C part of the Perfetto encoder (``_native_*.c``). Optional; the writer does without it."""

from typing import Any

class Coder:
    """Encodes the arguments of one packet sequence. Not for several threads at once."""

    def __init__(
        self,
        wanted: tuple[bytes, ...] | None,
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
        self, blobs: tuple[Any, ...], address: Any, length: Any, /
    ) -> tuple[bytes, bytes, bytes, int, int, int, int]:
        """Annotations, their ends (int64), InternedData; rows not JSON, numbers clipped,
        texts with characters replaced, rows with arguments dropped.

        Args:
            address: int64 per row: blob in the upper 16 bits, offset in the lower 48.
            length:  int32 per row; 0 = no arguments.
        """

def packets(
    sequence: bytes,
    kind: Any,
    last: Any,
    time: Any,
    dur: Any,
    uuid: Any,
    name: Any,
    category: Any,
    flow_ends: Any,
    flows: Any,
    arg_ends: Any,
    args: bytes,
    opened: Any,
    /,
) -> tuple[bytes, bytes]:
    """Packets, and the ends of slices that stay open (int64)."""
