"""The Perfetto encoder (``encode.c``, ``json.c``, ``strings.c``)."""

from typing_extensions import Buffer

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
        self, blobs: tuple[Buffer, ...], address: Buffer, length: Buffer, /
    ) -> tuple[bytes, bytes, bytes, int, int, int, int]:
        """Annotations, their ends (int64), InternedData; rows not JSON, numbers clipped,
        texts with characters replaced, rows with arguments dropped.

        Args:
            address: int64 per row: blob in the upper 16 bits, offset in the lower 48.
            length:  int32 per row; 0 = no arguments.
        """

def packets(
    sequence: bytes,
    kind: Buffer,
    last: Buffer,
    time: Buffer,
    dur: Buffer,
    uuid: Buffer,
    name: Buffer,
    category: Buffer,
    flow_ends: Buffer,
    flows: Buffer,
    arg_ends: Buffer,
    args: bytes,
    opened: Buffer,
    /,
) -> tuple[bytes, bytes]:
    """Packets, and the ends of slices that stay open (int64)."""
