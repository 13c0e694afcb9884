"""Arguments of rows that are looked into while a PyTorch trace is read: few, so one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.readers._traceevents import Incoming

_AT_ONCE = 1 << 24
_SPARSE = 16


def texts_of(build: TraceBuilder, rows: Incoming, chosen: NDArray[np.intp]) -> list[bytes]:
    """The arguments of some rows as JSON; ``b"{}"`` where there are none.

    Bytes that lie near each other are fetched in one go: most are, as they are read in order.
    """
    address, length = rows.address[chosen], rows.length[chosen]
    there = length > 0
    if not there.any():
        return [b"{}"] * len(chosen)
    low, high = int(address[there].min()), int((address + length)[there].max())
    size = int(length[there].sum())
    if high - low <= min(_AT_ONCE, _SPARSE * size):
        text, start = build.stored(low, high - low), (address - low).tolist()
        return [
            text[at : at + n] if n else b"{}" for at, n in zip(start, length.tolist(), strict=True)
        ]
    pairs = zip(address.tolist(), length.tolist(), strict=True)
    return [build.stored(at, n) if n else b"{}" for at, n in pairs]


def count_of(value: Any) -> int:
    """A count as arguments spell it: 2, 2.0, "2"; -1 if it is none."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 19 else -1
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return -1
    return value if 0 <= value < 2**63 else -1
