"""Time: exact conversion of text to nanoseconds, and the one owner of an offset's sign.

All times in traceconv are int64 nanoseconds. Digits are taken from the text; nothing passes
through floating point. Finer digits than a nanosecond are rounded half up, on the digits,
everywhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from traceconv.core.errors import ClockError
from traceconv.core.patterns import lazy_regex

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from traceconv.core.columns import I64

INT64_MAX = 2**63 - 1

UNIX_FROM_NS = 10**18
"""The least stamp that is taken for Unix time: 9 September 2001, before any profiler read here.

A clock that counts from the boot of a host, or from the start of a capture, gets there after 31
years. So stamps of files that do not name their clock tell by their size which one it is.
"""

PPT = 10**12
"""Drifts are whole parts per trillion: a part is 1 us in twelve days."""

MOST_DRIFT_PPT = 9 * 10**8
"""No clock is worse than 900 ppm; up to there, products with any time fit in int64."""

_NUMBER = lazy_regex(r"\s*+([+-]?)(\d*+)(?:\.(\d*+))?(?:[eE]([+-]?\d{1,4}))?\s*+\Z", re.ASCII)
_EXPONENTS = {"s": 9, "ms": 6, "us": 3, "ns": 0}
_DIGITS = 19  # of the largest int64
_SCALES = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def to_ns(text: str | bytes | int, unit: str = "us") -> int:
    """Nanoseconds of a decimal number given as text, exactly.

    Args:
        text: "1736408883704643.212", "4.5e-7", b"12"; an int is taken as it is. Surrounding
            white space (the tabulators of CANN's tables) is ignored.
        unit: the unit of the number: "s", "ms", "us" or "ns".

    Digits beyond the nanosecond are rounded half up (away from zero for negative numbers).

    Raises:
        ClockError: not a number, or outside int64.
    """
    if isinstance(text, int):
        ns = text * _SCALES[unit]
        if not -INT64_MAX <= ns <= INT64_MAX:
            raise ClockError(f"time outside int64 nanoseconds: {str(text)[:40]}")
        return ns
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    try:
        return decimal_ns(text, unit)[0]
    except ValueError:
        raise ClockError(f"not a time: {text[:40]!r}") from None
    except OverflowError:
        raise ClockError(f"time outside int64 nanoseconds: {text[:40]}") from None


def decimal_ns(text: str, unit: str = "us") -> tuple[int, bool]:
    """Nanoseconds of a decimal number as :func:`to_ns`, and whether it has finer digits.

    Raises:
        ValueError: not a number.
        OverflowError: outside int64.
    """
    match = _NUMBER.match(text)
    if not match or not (match[2] or match[3]):
        raise ValueError(text[:40])
    fraction = match[3] or ""
    digits = (match[2] + fraction).lstrip("0")
    shift = _EXPONENTS[unit] + int(match[4] or 0) - len(fraction)
    if not digits:
        return 0, False
    if len(digits) + shift > _DIGITS:
        raise OverflowError(text[:40])
    if len(digits) + shift < 0:
        return 0, True  # less than a tenth of a nanosecond
    if shift < 0:
        beyond = digits[shift:].rjust(-shift, "0")
        ns, rounded = int(digits[:shift] or "0") + (beyond[0] >= "5"), beyond.strip("0") != ""
    else:
        ns, rounded = int(digits) * 10**shift, False
    if ns > INT64_MAX:
        raise OverflowError(text[:40])
    return (-ns if match[1] == "-" else ns), rounded


@overload
def is_unix_ns(ns: int) -> bool: ...


@overload
def is_unix_ns(ns: I64) -> NDArray[np.bool_]: ...


def is_unix_ns(ns: int | I64) -> bool | NDArray[np.bool_]:
    """Whether a stamp in ns, or each of a column, counts from 1970 (see ``UNIX_FROM_NS``)."""
    return ns >= UNIX_FROM_NS


def are_unix_us(stamps: Iterable[int]) -> bool:
    """Whether most of some stamps, whole us, count from 1970; one that is wild does not decide, and
    those that are 0, as of metadata, say nothing."""
    nonzero = sorted(filter(None, stamps))
    return bool(nonzero) and is_unix_ns(nonzero[len(nonzero) // 2] * 1000)


def us_text(ns: int) -> str:
    """Microseconds with exactly three decimals: ``us_text(1500) == "1.500"``."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


_UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3))


def utc_text(ns: int) -> str:
    """Nanoseconds of Unix time as date and time of day: ``2025-03-01 10:40:00.002309869 UTC``."""
    seconds, fraction = divmod(ns, 10**9)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(seconds))}.{fraction:09d} UTC"


def unit_for(ns: float) -> tuple[str, int]:
    """Name and length in ns of the unit that suits a length of time: in three digits at least 1."""
    return next(((name, n) for name, n in _UNITS if abs(ns) >= 0.9995 * n), _UNITS[-1])


def time_text(ns: float) -> str:
    """``12.3 ms``: three digits that count."""
    name, scale = unit_for(ns)
    return f"{digits(ns / scale)} {name}"


def in_one_unit(lengths: Iterable[float | None]) -> list[str]:
    """``1.10 ms``, ``0.02 ms``: as exact as the largest has three digits; "" for None."""
    lengths = list(lengths)
    name, scale = unit_for(max((ns for ns in lengths if ns is not None), default=0))
    largest = max((ns / scale for ns in lengths if ns is not None), default=0)
    places = 0 if largest >= 100 else 1 if largest >= 10 else 2
    return [f"{ns / scale:.{places}f} {name}" if ns is not None else "" for ns in lengths]


def digits(value: float) -> str:
    """Three digits that count, whole ones all."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if 0.001 <= abs(value) < 1:
        return f"{value:.3g}"
    places = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{places}f}"


def stamp_text(ns: int) -> str:
    """Time since the start of a trace as viewers write it: ``1.234 567 890 s``."""
    second, fraction = divmod(abs(ns), 10**9)
    digits_ = f"{fraction:09d}"
    return f"{'-' * (ns < 0)}{second}.{digits_[:3]} {digits_[3:6]} {digits_[6:]} s"


class Domain(StrEnum):
    """The meaning of zero on a capture's clock."""

    UNIX = "unix"  # nanoseconds since 1970; comparable between hosts as far as these are in step
    MONOTONIC = "monotonic"  # since the host's boot; comparable within one host only
    RELATIVE = "relative"  # since some event of the capture; comparable with nothing


class Anchor(msgspec.Struct, frozen=True):
    """One instant on two clocks: the capture's own, and the one shared with other captures.

    Attributes:
        domain:    the clock of the capture.
        local_ns:  the instant as the capture's events would stamp it.
        shared_ns: the same instant as Unix nanoseconds.
        evidence:  the file and keys the pair was read from.
        error_ns:  how far off the pair is at most, where the file states it; None if it does not.
        origin:    the output whose ranks have this error among each other.
        checked_ns: on the capture's clock, the instants between which a clock that was set would
            have shown when that was measured; None where nothing was.

    A capture whose stamps already are Unix time has ``local_ns == shared_ns``.
    """

    domain: Domain
    local_ns: int = 0
    shared_ns: int = 0
    evidence: str = ""
    error_ns: int | None = None
    checked_ns: tuple[int, int] | None = None
    origin: str = ""

    @property
    def offset_ns(self) -> int:
        """What must be ADDED to a local stamp to put it on the shared clock."""
        return self.shared_ns - self.local_ns

    @property
    def is_tied(self) -> bool:
        """Whether it ties the capture's clock to Unix time."""
        return self.domain is Domain.UNIX or self.shared_ns > 0


def stated_error(stated: Mapping[str, Any]) -> int | None:
    """The error stated by an offset that traceconv wrote, from its JSON values, ns; None if absent.

    Offsets from collectives state the measured error, offsets from anchors the spread of the
    anchors. Ranks that share the clock of one host have no error.
    """
    error = stated.get("error_ns")
    if error is None and stated.get("method") == "meta":
        error = stated.get("spread_ns")
    if error is None and stated.get("method") == "host":
        error = 0 if str(stated.get("evidence")).startswith(HOST_CLOCK) else None
    return error if type(error) is int and 0 <= error <= INT64_MAX else None


def stated_check(stated: Mapping[str, Any]) -> tuple[int, int] | None:
    """``checked_ns`` of an offset that traceconv wrote, from its JSON values; None if absent."""
    match stated.get("checked_ns"):
        case [str(begin), str(end)]:
            try:
                span = int(begin), int(end)
            except ValueError:
                return None
            return span if -INT64_MAX <= span[0] <= span[1] <= INT64_MAX else None
    return None


HOST_CLOCK = "clock of host "
"""Begins the evidence of an offset of captures that are stamped by one clock."""


def merged_clock(stated: object, rank: int, origin: str) -> Anchor:
    """The Unix time that the events of a rank have in an output of traceconv.

    Args:
        stated: the clocks of the ranks as the output states them.
        origin: the output, for messages.
    """
    ranks = stated.get("ranks") if isinstance(stated, dict) else None
    clock_of_rank = ranks.get(str(rank)) if isinstance(ranks, dict) else None
    if not isinstance(clock_of_rank, dict):
        return Anchor(Domain.UNIX, evidence="stamps count from 1970")
    checked, numbers = (
        stated_check(clock_of_rank),
        [clock_of_rank.get(name) for name in ("offset_ns", "at_ns")],
    )
    try:
        offset, at_ns = (int(number or 0) for number in numbers)
        drift = clock_of_rank.get("drift_ppt", 0)
        by = Correction(offset, drift if type(drift) is int else 0, at_ns)
        moved = None if checked is None else (by.of(checked[0]), by.of(checked[1]))
    except (ValueError, TypeError, ClockError):
        moved = None
    return Anchor(
        Domain.UNIX, 0, 0, "stamps count from 1970", stated_error(clock_of_rank), moved, origin
    )


Ns = TypeVar("Ns", int, "I64")


class Correction(msgspec.Struct, frozen=True):
    """What puts the stamps of one clock on another: an offset, and what it gains per time.

    Attributes:
        offset_ns: what must be ADDED at ``at_ns``; positive moves events later.
        drift_ppt: what the offset grows by, in parts per trillion of the time since ``at_ns``.
        at_ns:     an instant of the clock that is corrected.

    Raises:
        ClockError: the drift is larger than that of any clock.
    """

    offset_ns: int = 0
    drift_ppt: int = 0
    at_ns: int = 0

    def __post_init__(self) -> None:
        if abs(self.drift_ppt) > MOST_DRIFT_PPT:
            raise ClockError(f"a clock drift of {self.drift_ppt / 1e6:.0f} ppm is not plausible")

    def __bool__(self) -> bool:
        return bool(self.offset_ns or self.drift_ppt)

    def of(self, ns: Ns) -> Ns:
        """The stamps ``ns`` on the other clock, exact to the nanosecond (rounded half up).

        Order is kept. Both the result and the time since ``at_ns`` have to fit in int64
        (:func:`traceconv.alignment.plan.shift` sees to that).
        """
        if not self.drift_ppt:
            return ns + self.offset_ns
        # the drift times the time since, in steps that do not leave int64
        billion = 10**9
        since = ns - self.at_ns
        upper, below = since // billion * self.drift_ppt, since % billion
        parts = upper % 1000 * billion + below * self.drift_ppt + PPT // 2
        return ns + self.offset_ns + upper // 1000 + parts // PPT

    def before(self, ns: int) -> int:
        """The last stamp that is not after ``ns`` on the other clock."""
        stamp = ns - self.offset_ns
        while late := self.of(stamp) - ns:
            stamp -= late
            if abs(late) == 1:
                break
        while self.of(stamp) > ns:
            stamp -= 1
        while self.of(stamp + 1) <= ns:
            stamp += 1
        return stamp

    def then(self, outer: Correction) -> Correction:
        """This correction, and ``outer`` on its result, as one (of the first order in drifts)."""
        between = self.at_ns + self.offset_ns
        drift_ppt = self.drift_ppt + outer.drift_ppt + self.drift_ppt * outer.drift_ppt // PPT
        return Correction(outer.of(between) - self.at_ns, drift_ppt, self.at_ns)


NO_CORRECTION = Correction()
