"""Time: text to nanoseconds, exactly."""

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.core.clock import (
    INT64_MAX,
    UNIX_FROM_NS,
    Anchor,
    Correction,
    Domain,
    are_unix_us,
    is_unix_ns,
    to_ns,
    us_text,
)
from traceconv.core.errors import ClockError


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("1736408883704643.212", "us", 1736408883704643212),
        ("1736408883704643.212\t", "us", 1736408883704643212),
        (b" 12 ", "us", 12000),
        ("4.5e-7", "s", 450),
        ("1E3", "ns", 1000),
        ("-0.0005", "us", -1),
        ("0.0005", "us", 1),
        ("0.00049999", "us", 0),
        (".5", "us", 500),
        ("7.", "ns", 7),
        ("828.33653125", "us", 828337),
        (9223372036854775807, "ns", INT64_MAX),
        (-3, "ms", -3_000_000),
    ],
)
def test_text_becomes_nanoseconds(text, unit, expected):
    """Digits are taken as they stand; finer ones round half up."""
    assert to_ns(text, unit) == expected


@pytest.mark.parametrize("text", ["", " ", "abc", "1.2.3", "0x10", "nan", "inf", "1e", "--1", "٣"])
def test_what_is_no_number_is_refused(text):
    """No word is taken for a time."""
    with pytest.raises(ClockError, match="not a time"):
        to_ns(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "1e40", "1e9999", 2**63])
def test_what_int64_cannot_hold_is_refused(text):
    """Overflow is an error, not a wrapped number."""
    with pytest.raises(ClockError, match="outside int64"):
        to_ns(text, "ns")


@given(
    st.decimals(min_value=-(10**12), max_value=9 * 10**12, places=9), st.sampled_from(["us", "ms"])
)
def test_agrees_with_decimal_arithmetic(number, unit):
    """The same as Decimal rounding half up, for any digits."""
    scale = {"us": 1000, "ms": 1_000_000}[unit]
    expected = int((number * scale).quantize(Decimal(1), ROUND_HALF_UP))
    assert to_ns(str(number), unit) == expected


@given(st.integers(-(2**62), 2**62))
def test_microsecond_text_reads_back(ns):
    """What is written in microseconds with three decimals is the same nanosecond."""
    assert to_ns(us_text(ns)) == ns


def test_an_anchor_says_what_must_be_added():
    """The sign of an offset: shared = local + offset."""
    assert Anchor(Domain.MONOTONIC, local_ns=5, shared_ns=105).offset_ns == 100


def test_size_of_a_stamp_tells_its_clock():
    """Stamps from 2001 on count from 1970; what counts from a boot does not get there."""
    assert [is_unix_ns(0), is_unix_ns(UNIX_FROM_NS - 1), is_unix_ns(UNIX_FROM_NS)] == [
        False,
        False,
        True,
    ]
    assert is_unix_ns(np.array([5, 1736408883704643212])).tolist() == [False, True]


@pytest.mark.parametrize("drift", [0, 1, -7, 20_000_000, -900_000_000, 900_000_000])
def test_the_stamp_before_an_instant(drift):
    """The last one that is not after it."""
    by = Correction(12_345, drift, 10**15)
    for ns in (10**15, 10**15 - 7, 10**15 + 10**12 + 1, 3 * 10**15):
        stamp = by.before(ns)
        assert by.of(stamp) <= ns < by.of(stamp + 1)


@pytest.mark.parametrize(
    ("stamps", "unix"),
    [
        ((), False),
        ((0, 0), False),
        ((0, 0, 1_759_000_000_000_000), True),
        ((100, 200, 9_223_372_036_854_775), False),
        ((3, 1_759_000_000_000_000, 1_759_000_000_000_100), True),
    ],
)
def test_most_stamps_say_what_they_count_from(stamps, unix):
    """One wild stamp took the base from all others."""
    assert are_unix_us(stamps) is unix
