"""Clocks of one trace: many stamps at once are converted as one after the other."""

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv.readers.perfetto.clock_snapshots import BOOTTIME, BadSnapshot, Clocks, Reading

OWN, OTHER, DELTA = (7, 64), (7, 65), (7, 66)
"""Clocks of a sequence; the last one counts differences."""

stamps = st.integers(0, 10**6)


@st.composite
def traces(draw):
    """Snapshots and stamps of one clock after each."""
    parts, at = [], {BOOTTIME: 0, 3: 0, OWN: 0, OTHER: 0, DELTA: 0}
    for _ in range(draw(st.integers(1, 4))):
        clocks = draw(st.sampled_from([(BOOTTIME, 3, OWN), (BOOTTIME, DELTA), (3, OTHER)]))
        readings = []
        for clock in clocks:
            at[clock] += draw(stamps)
            unit = 1000 if clock is DELTA else 1
            readings.append(Reading(clock, at[clock], unit, clock is DELTA))
        parts.append((readings, draw(st.lists(stamps, max_size=6))))
    return parts, draw(st.sampled_from([3, OWN, OTHER, DELTA]))


@settings(deadline=None, max_examples=effort(200, 2000))
@given(traces())
def test_many_are_converted_as_one_by_one(made):
    parts, clock = made
    one, many = Clocks(), Clocks()
    for readings, ticks in parts:
        for clocks in (one, many):
            clocks.choose(BOOTTIME)
            clocks.add(readings)
        found = many.convert_all(clock, np.array(ticks, np.int64))
        singly = [one.convert(clock, t) for t in ticks]
        assert (found is None) == (one.convert(clock, 0) is None)
        if found is not None:
            assert found.tolist() == singly


def test_readings_hold_until_the_next_ones():
    """Before the first of them its offset holds, too."""
    clocks = Clocks()
    clocks.add([Reading(BOOTTIME, 1000), Reading(3, 100)])
    clocks.add([Reading(BOOTTIME, 2000), Reading(3, 1200)])
    found = clocks.convert_all(3, np.array([50, 100, 1199, 1200, 5000]))
    assert found.tolist() == [950, 1000, 2099, 2000, 5800]


def test_clocks_are_related_through_others():
    clocks = Clocks()
    clocks.add([Reading(BOOTTIME, 1000), Reading(3, 100)])
    assert clocks.convert_all(OTHER, np.array([1])) is None
    clocks.add([Reading(3, 500), Reading(OTHER, 5)])
    assert clocks.convert_all(OTHER, np.array([6])).tolist() == [1401]


def test_differences_add_up_from_the_last_snapshot():
    clocks = Clocks()
    clocks.add([Reading(BOOTTIME, 1000), Reading(DELTA, 2, 1000, True)])
    assert clocks.convert_all(DELTA, np.array([1, 1])).tolist() == [2000, 3000]
    assert clocks.convert_all(DELTA, np.array([3])).tolist() == [6000]
    clocks.add([Reading(BOOTTIME, 9000), Reading(DELTA, 20, 1000, True)])
    assert clocks.convert_all(DELTA, np.array([1])).tolist() == [10000]


def test_a_clock_twice_in_a_snapshot_is_refused():
    with pytest.raises(BadSnapshot, match="twice"):
        Clocks().add([Reading(3, 1), Reading(3, 2)])
