"""Columns: their different values, and their order, as numpy and Python say."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceconv.core.ordering import factored_rows, in_lanes

WHOLE = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(WHOLE, st.integers(-100, 100), WHOLE), max_size=40))
def test_different_rows_are_those_of_numpy(rows):
    """Of columns whose values are near each other or not."""
    table = np.array([*rows, *rows[::2]], np.int64).reshape(-1, 3)
    expected, which = np.unique(table, axis=0, return_inverse=True)
    found, numbers = factored_rows(*table.T)
    assert found == [*map(tuple, expected.tolist())]
    assert numbers.tolist() == which.ravel().tolist()


@given(st.lists(st.integers(0, 70_000), max_size=50))
def test_rows_of_a_lane_stay_in_order(lanes):
    """However many lanes there are."""
    order = in_lanes(np.array(lanes, np.int32)).tolist()
    assert order == sorted(range(len(lanes)), key=lambda i: (lanes[i], i))
