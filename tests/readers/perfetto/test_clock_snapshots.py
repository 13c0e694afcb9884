"""Clocks of one trace, and stamps on them."""

import numpy as np
import pytest

from traceconv.readers.perfetto.clock_snapshots import BOOTTIME, BadSnapshot, Clocks, Reading

OWN, OTHER, DELTA = (7, 64), (7, 65), (7, 66)
"""Clocks of a sequence; the last one counts differences."""


def test_readings_hold_until_the_next_ones():
    """Before the first of them its offset holds, too."""
    clocks = Clocks()
    clocks.add([Reading(BOOTTIME, 1000), Reading(3, 100)])
    clocks.add([Reading(BOOTTIME, 2000), Reading(3, 1200)])
    found = clocks.convert(3, np.array([50, 100, 1199, 1200, 5000]))
    assert found.tolist() == [950, 1000, 2099, 2000, 5800]


def test_clocks_are_related_through_others():
    clocks = Clocks()
    clocks.add([Reading(BOOTTIME, 1000), Reading(3, 100)])
    assert clocks.convert(OTHER, np.array([1])) is None
    clocks.add([Reading(3, 500), Reading(OTHER, 5)])
    assert clocks.convert(OTHER, np.array([6])).tolist() == [1401]


def test_differences_add_up_from_the_last_snapshot():
    clocks = Clocks()
    clocks.add([Reading(BOOTTIME, 1000), Reading(DELTA, 2, 1000, True)])
    assert clocks.convert(DELTA, np.array([1, 1])).tolist() == [2000, 3000]
    assert clocks.convert(DELTA, np.array([3])).tolist() == [6000]
    clocks.add([Reading(BOOTTIME, 9000), Reading(DELTA, 20, 1000, True)])
    assert clocks.convert(DELTA, np.array([1])).tolist() == [10000]


def test_a_clock_twice_in_a_snapshot_is_refused():
    with pytest.raises(BadSnapshot, match="twice"):
        Clocks().add([Reading(3, 1), Reading(3, 2)])
