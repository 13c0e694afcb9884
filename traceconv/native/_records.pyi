"""Text records from columns (``records.c``)."""

from typing import Any

def records(pieces: tuple[tuple[Any, ...], ...], rows: int, /) -> bytes | None:
    """The text of so many records, each of the same pieces in the same order.

    Args:
        pieces: 16 at most, each a kind, a lead (bytes), and:

            * 0: nothing more, the lead is written;
            * 1: texts (bytes), where each ends (int64), the number of each row's (int32), -1: none;
            * 2: ns (int64), written as microseconds with three decimals; the lowest number: none;
            * 3: buffers with JSON, addresses (int64, the buffer in the upper 16 bits), lengths
              (int32), 0: none;
            * 4: numbers (int64), written as they are; the lowest: none.

            A row that has none has no lead either.

    Returns:
        None if JSON in it may hold what no strict parser takes, and has to be looked at first.

    Raises:
        ValueError: columns differ in length, or a code or address is outside of what it names.
    """
