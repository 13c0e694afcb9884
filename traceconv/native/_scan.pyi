"""The scanner of trace events (``scan.c``)."""

from typing import TypedDict

from typing_extensions import Buffer

MORE: int
END: int
ODD: int
FULL: int

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
    rounded_durations: int
    rounded_stamps: int

class Scanner:
    """Reads trace events, from JSON text to columns. Not for several threads at once."""

    def __init__(
        self, graph_keys: tuple[bytes, ...], type_key: bytes, k0: int, k1: int, copy_args: bool, /
    ) -> None:
        """
        Args:
            graph_keys: members of the arguments that name the graph, 8 at most.
            type_key:   the member that names the type of a task.
            k0, k1:     key of the hash function.
            copy_args:  whether arguments are copied, for the input does not stay.
        """

    def scan(self, data: Buffer, start: int, end: int, halt: int = ..., /) -> tuple[int, int]:
        """Read records until something stops it: the status, and the first byte not read.

        Args:
            halt: records that begin here or behind are not read; one before may end behind it.
                The status is MORE then, and the first byte not read is that of the next record.
        """

    def take(self) -> Scanned:
        """What was read since the last call; the scanner is empty then."""

    def flow_key(self, text: Buffer, /) -> int:
        """The key of an arrow: the hash of ``category NUL name NUL id``."""
