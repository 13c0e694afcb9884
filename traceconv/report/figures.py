"""Figures for people: lengths of time, bytes, shares, lists of ranks. Exact ones are in tooltips
and in JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from traceconv.core.clock import digits as digits
from traceconv.core.clock import time_text as time_text
from traceconv.core.clock import unit_for as unit_for
from traceconv.core.clock import us_text

time = time_text

_SIZES = ("B", "KB", "MB", "GB", "TB")

UNKNOWN = "–"
"""An unknown value, in text."""


def exact(ns: int) -> str:
    """``12345.678 µs``."""
    return f"{us_text(ns)} µs"


def waiting(row: Mapping[str, Any]) -> str:
    """Waiting for input of a row of the section "overlap": "at least" where it is known of some of
    its steps only."""
    if row["input_wait_ns"] is None:
        return UNKNOWN
    least = "at least " * (0 < row["input_wait_steps"] < row["steps"])
    return f"{least}{time(row['input_wait_ns'])}"


def size(n_bytes: float) -> str:
    """Bytes in units of 1024."""
    for unit in _SIZES:
        if abs(n_bytes) < 1024 or unit == _SIZES[-1]:
            return f"{digits(n_bytes)} {unit}"
        n_bytes /= 1024
    raise AssertionError("the last unit takes everything")


def size_or_unknown(n_bytes: float | None) -> str:
    """:func:`size`; a dash if unknown."""
    return UNKNOWN if n_bytes is None else size(n_bytes)


def size_unit(n_bytes: float) -> tuple[str, int]:
    """The largest unit that ``n_bytes`` reach, and its bytes."""
    return next(
        ((_SIZES[i], 1024**i) for i in (3, 2, 1) if abs(n_bytes) >= 1024**i), (_SIZES[0], 1)
    )


def amount(value: float, unit: str) -> str:
    """A value of a curve: bytes, or a plain number."""
    return size(value) if unit == "B" else digits(value)


def percent(part: float, whole: float) -> str:
    """``part`` of ``whole``."""
    return f"{100 * part / whole:.1f} %" if whole else UNKNOWN


def share(percent: float | None) -> str:
    """A share that is already a percentage; a dash if unknown."""
    return UNKNOWN if percent is None else f"{percent:.1f} %"


def ranks(numbers: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-7``."""
    ordered = sorted(numbers)
    if not ordered:
        return "no rank"
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"ranks {ordered[0]}-{ordered[-1]}"
    return "ranks " + ", ".join(map(str, ordered))


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round values from ``low`` to ``high``, about ``most`` of them."""
    width = high - low
    scale = 10.0 ** math.floor(math.log10(width / most))
    step = next(m * scale for m in (1, 2, 5, 10, 20) if width / (m * scale) <= most + 1e-9)
    lowest = math.ceil(low / step - 1e-9)
    return [step * i for i in range(lowest, math.floor(high / step + 1e-9) + 1)]
