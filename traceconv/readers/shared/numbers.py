"""Columns of numbers and times written as text, exact: no floating point, rounded half up to ns.

A column whose numbers all have equally many decimals is parsed at once; others number by number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from traceconv.core.clock import INT64_MAX, decimal_ns
from traceconv.core.model import I64
from traceconv.core.patterns import lazy_regex

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXPONENTS = {"s": 9, "ms": 6, "us": 3, "ns": 0}
_DIGITS = 19  # of the largest int64

ABSENT = -1
"""The value for an empty cell in a column of :func:`whole`."""

UNREADABLE = -2
"""The value for a cell that is not a whole number of at least 0."""

INT32_MAX = 2**31 - 1

ISO = "iso"
"""As a unit: times in ISO 8601, or in the similar form of Python's logging."""

ISO_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,18})?(?: ?(?:Z|UTC|[+-]\d\d(?::?\d\d)?))?"
"""Regular expression of such a time."""

_ISO_PARTS = lazy_regex(
    r"\s*(\d{4}-\d\d-\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,18}))?"
    r"(?: ?(?:([Zz]|UTC)|([+-])(\d\d)(?::?(\d\d))?))?\s*",
    re.ASCII,
)
_EPOCH = date(1970, 1, 1).toordinal()

_POINT = lazy_regex(r"\s*([0-9]{1,19})\.0*\s*")


class Times(msgspec.Struct, frozen=True):
    """A column of times.

    Attributes:
        ns:      0 where the cell is empty.
        present: whether the cell is not empty.
        bad:     the cell is not a time, or outside int64.
        rounded: number of times finer than a nanosecond.
        zoneless: number of times without a zone, which are taken as UTC.
    """

    ns: I64
    present: NDArray[np.bool_]
    bad: NDArray[np.bool_]
    rounded: int = 0
    zoneless: int = 0


def times(texts: Sequence[str], unit: str) -> Times:
    """``texts`` (numbers in ``unit``, or :data:`ISO`; "" if empty) as nanoseconds."""
    if unit == ISO:
        return _moments(texts)
    present = np.fromiter(map(bool, texts), bool, len(texts))
    ns = np.zeros(len(texts), np.int64)
    bad = np.zeros(len(texts), bool)
    given = texts if present.all() else [t for t in texts if t]
    if not given:
        return Times(ns, present, bad)
    regular = _regular(given, _EXPONENTS[unit])
    if regular is None:
        ns[present], bad[present], rounded = _one_by_one(given, unit)
    else:
        ns[present], rounded = regular
    return Times(ns, present, bad, rounded)


def is_iso_time(text: str) -> bool:
    """Whether a text is a time in ISO 8601."""
    return _ISO_PARTS.fullmatch(text) is not None


def _moments(texts: Sequence[str]) -> Times:
    """Times of ISO 8601 as ns since 1970; UTC where they have no zone."""
    present = np.fromiter(map(bool, texts), bool, len(texts))
    ns, bad = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    days: dict[str, int] = {}
    rounded = zoneless = 0
    for i in np.flatnonzero(present).tolist():
        match = _ISO_PARTS.fullmatch(texts[i])
        if not match:
            bad[i] = True
            continue
        day, hour, minute, second, fraction, utc, sign, zone_hour, zone_minute = match.groups()
        if day not in days:
            with suppress(ValueError):  # there is no 30 February
                days[day] = date.fromisoformat(day).toordinal() - _EPOCH
        day_number, fraction = days.get(day), fraction or ""
        zone = int(zone_hour or 0) * 60 + int(zone_minute or 0)
        if (
            day_number is None
            or int(hour) > 23
            or int(minute) > 59
            or int(second) > 60
            or zone >= 1440
        ):
            bad[i] = True
            continue
        seconds = (day_number * 24 + int(hour)) * 3600 + int(minute) * 60 + int(second)
        seconds -= -zone * 60 if sign == "-" else zone * 60
        ns_since_epoch = seconds * 10**9 + int(fraction[:9].ljust(9, "0")) + (fraction[9:10] >= "5")
        if abs(ns_since_epoch) > INT64_MAX:
            bad[i] = True
            continue
        ns[i] = ns_since_epoch
        rounded += bool(fraction[9:].strip("0"))
        zoneless += not (utc or sign)
    return Times(ns, present, bad, rounded, zoneless)


def _regular(texts: Sequence[str], exponent: int) -> tuple[I64, int] | None:
    """Numbers that all have as many decimals as the first one; else None."""
    decimals = len(texts[0].partition(".")[2])
    n_whole = _DIGITS - decimals
    if n_whole < 1:
        return None
    number = rf"-?\d{{1,{n_whole}}}" + (rf"\.\d{{{decimals}}}" if decimals else "")
    joined = "\n".join(texts)
    if re.fullmatch(rf"(?:{number}\n)*{number}", joined, re.ASCII) is None:
        return None
    values = np.fromstring(joined.replace(".", ""), np.int64, sep="\n")
    size = np.abs(values)
    shift = exponent - decimals
    beyond = size.min() < 0 or int(size.max()) > (INT64_MAX - 1) // 10 ** max(shift, 0)
    if len(values) != len(texts) or beyond:
        return None  # numpy truncates numbers outside int64; the least has no absolute value
    if shift >= 0:
        return values * 10**shift, 0
    scale = 10**-shift
    halves = size // scale + (size % scale >= scale // 2)
    return np.where(values < 0, -halves, halves), int(np.count_nonzero(size % scale))


def _one_by_one(texts: Sequence[str], unit: str) -> tuple[I64, NDArray[np.bool_], int]:
    ns = np.zeros(len(texts), np.int64)
    bad = np.zeros(len(texts), bool)
    rounded = 0
    for i, text in enumerate(texts):
        try:
            ns[i], finer = decimal_ns(text, unit)
        except (ValueError, OverflowError):
            bad[i] = True
        else:
            rounded += finer
    return ns, bad, rounded


def whole(texts: Sequence[str]) -> I64:
    """``texts`` as whole numbers from 0 to 2**31 - 1; else ABSENT or UNREADABLE."""
    by_text = {}
    for text in set(texts):
        number = whole_number(text, INT32_MAX) if text.strip() else ABSENT
        by_text[text] = UNREADABLE if number is None else number
    return np.fromiter(map(by_text.__getitem__, texts), np.int64, len(texts))


def values(texts: Sequence[str]) -> NDArray[np.float64]:
    """``texts`` as values of counters; NaN where they are not finite numbers."""
    numbers = np.full(len(texts), np.nan)
    for i, text in enumerate(texts):
        with suppress(ValueError):
            numbers[i] = float(text if "_" not in text else "nan")
    numbers[np.isinf(numbers)] = np.nan
    return numbers


def whole_number(value: object, most: int = INT64_MAX) -> int | None:
    """A number from 0 to ``most``, as JSON number or text; else None."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= most else None


def count_of(value: object, most: int = INT32_MAX) -> int:
    """A count or id in arguments of events (2, 2.0, "2", "2.0"); else -1."""
    if type(value) is int:
        return value if 0 <= value <= most else -1
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, str) and (match := _POINT.fullmatch(value)):
        value = match[1]
    number = whole_number(value, most)
    return -1 if number is None else number


def counts_of(values: list[Any]) -> NDArray[np.int32]:
    """:func:`count_of` of each."""
    with suppress(OverflowError):  # beyond int64
        if set(map(type, values)) == {int}:
            numbers = np.array(values, np.int64)
            return np.where((numbers >= 0) & (numbers <= INT32_MAX), numbers, -1).astype(np.int32)
    return np.array([*map(count_of, values)], np.int32)
