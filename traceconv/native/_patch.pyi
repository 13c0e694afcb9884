"""Trace events copied as bytes (``patch.c``)."""

from collections.abc import Mapping

from typing_extensions import Buffer

def copy(
    data: Buffer, start: int, end: int, pids: Mapping[bytes, bytes], mask: int, first: bool, /
) -> tuple[int, int, bytes, bytes]:
    """Copy the events of ``data`` from ``start`` on, joined by commas.

    Args:
        pids:  the new text of a process id by the old one; asked for ids not met before.
        mask:  bits that set the ids of this rank apart.
        first: whether no event was copied before.

    Returns:
        The status, where it stopped, the bytes, and the number of events by phase (128 int64).
    """
