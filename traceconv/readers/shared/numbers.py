"""Columns of numbers and times written as text, exactly: no floating point, half up beyond the
nanosecond.

Columns whose numbers all have the same number of decimals are parsed in one go; any other number
is parsed by itself.
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
"""The value for a cell that is no whole number from 0 on."""

INT32_MAX = 2**31 - 1

ISO = "iso"
"""As a unit: times are written as ISO 8601 has them, or nearly so, as Python's logging does."""

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
        ns:      0 where there is none.
        present: whether something is written.
        bad:     what is written is no time, or outside int64.
        rounded: how many were finer than a nanosecond.
        zoneless: how many are times of day in no zone; they are taken as UTC.
    """

    ns: I64
    present: NDArray[np.bool_]
    bad: NDArray[np.bool_]
    rounded: int = 0
    zoneless: int = 0


def times(texts: Sequence[str], unit: str) -> Times:
    """``texts`` (numbers in ``unit``, or :data:`ISO`; "" for none) as nanoseconds."""
    if unit == ISO:
        return _moments(texts)
    present = np.fromiter(map(bool, texts), bool, len(texts))
    ns = np.zeros(len(texts), np.int64)
    bad = np.zeros(len(texts), bool)
    some = texts if present.all() else [t for t in texts if t]
    if not some:
        return Times(ns, present, bad)
    regular = _regular(some, _EXPONENTS[unit])
    if regular is None:
        ns[present], bad[present], rounded = _one_by_one(some, unit)
    else:
        ns[present], rounded = regular
    return Times(ns, present, bad, rounded)


def is_iso_time(text: str) -> bool:
    """Whether a text is a time as ISO 8601 writes it."""
    return _ISO_PARTS.fullmatch(text) is not None


def _moments(texts: Sequence[str]) -> Times:
    """Times of ISO 8601 as ns since 1970; those without a zone as if in UTC."""
    present = np.fromiter(map(bool, texts), bool, len(texts))
    ns, bad = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    days: dict[str, int | None] = {}
    rounded = zoneless = 0
    for i in np.flatnonzero(present).tolist():
        match = _ISO_PARTS.fullmatch(texts[i])
        if match is None:
            bad[i] = True
            continue
        day, hour, minute, second, fraction, utc, sign, zone_hour, zone_minute = match.groups()
        if day not in days:
            days[day] = _day(day)
        first, fraction = days[day], fraction or ""
        zone = int(zone_hour or 0) * 60 + int(zone_minute or 0)
        if first is None or int(hour) > 23 or int(minute) > 59 or int(second) > 60 or zone >= 1440:
            bad[i] = True
            continue
        seconds = (first * 24 + int(hour)) * 3600 + int(minute) * 60 + int(second)
        seconds -= -zone * 60 if sign == "-" else zone * 60
        found = seconds * 10**9 + int(fraction[:9].ljust(9, "0")) + (fraction[9:10] >= "5")
        if abs(found) > INT64_MAX:
            bad[i] = True
            continue
        ns[i] = found
        rounded += bool(fraction[9:].strip("0"))
        zoneless += not (utc or sign)
    return Times(ns, present, bad, rounded, zoneless)


def _day(text: str) -> int | None:
    """Days since 1970; None if there is no such day."""
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH
    except ValueError:
        return None


def _regular(texts: Sequence[str], exponent: int) -> tuple[I64, int] | None:
    """Numbers that all have as many decimals as the first one; None if they have not."""
    decimals = len(texts[0].partition(".")[2])
    whole = _DIGITS - decimals
    if whole < 1:
        return None
    number = rf"-?\d{{1,{whole}}}" + (rf"\.\d{{{decimals}}}" if decimals else "")
    joined = "\n".join(texts)
    if re.fullmatch(rf"(?:{number}\n)*{number}", joined, re.ASCII) is None:
        return None
    values = np.fromstring(joined.replace(".", ""), np.int64, sep="\n")
    size = np.abs(values)
    shift = exponent - decimals
    beyond = size.min() < 0 or int(size.max()) > (INT64_MAX - 1) // 10 ** max(shift, 0)
    if len(values) != len(texts) or beyond:
        return None  # numpy cuts what is outside int64; the least of it has no absolute value
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
    """``texts`` as whole numbers from 0 to 2**31 - 1; ABSENT and UNREADABLE where there is none."""
    known = {text: _whole(text) for text in set(texts)}
    return np.fromiter(map(known.__getitem__, texts), np.int64, len(texts))


def _whole(text: str) -> int:
    if not text or text.isspace():
        return ABSENT
    found = whole_number(text, INT32_MAX)
    return UNREADABLE if found is None else found


def values(texts: Sequence[str]) -> NDArray[np.float64]:
    """``texts`` as numbers of counters; NaN where there is no finite one."""
    return np.fromiter(map(_value, texts), np.float64, len(texts))


def _value(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return float("nan")
    return number if abs(number) != float("inf") and "_" not in text else float("nan")


def whole_number(value: object, most: int = INT64_MAX) -> int | None:
    """A number from 0 to ``most`` of JSON, written as number or text; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= most else None


def count_of(value: object, most: int = INT32_MAX) -> int:
    """A count or id as arguments of events spell it (2, 2.0, "2", "2.0"); -1 if it is none."""
    if type(value) is int:  # nearly always
        return value if 0 <= value <= most else -1
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, str) and (match := _POINT.fullmatch(value)):
        value = match[1]
    found = whole_number(value, most)
    return -1 if found is None else found


def counts_of(values: list[Any]) -> NDArray[np.int32]:
    """:func:`count_of` of each."""
    with suppress(OverflowError):  # beyond int64
        if set(map(type, values)) == {int}:
            numbers = np.array(values, np.int64)
            return np.where((numbers >= 0) & (numbers <= INT32_MAX), numbers, -1).astype(np.int32)
    return np.array([*map(count_of, values)], np.int32)
