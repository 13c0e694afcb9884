"""Columns: their different values, their order, and what is asked of a trace again."""

import gc
from weakref import ref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceconv.core.columns import distinct, factored, in_lanes, once_each


class Thing:
    """Stands for a trace."""


def test_a_result_is_kept_for_one_thing_and_as_long_as_it_lives():
    """Asked again it is the same; of another it is another; the last one dies with its thing."""
    calls = []

    @once_each
    def result(thing):
        calls.append(thing.number)
        found = Thing()
        found.number = thing.number
        return found

    one, other = Thing(), Thing()
    one.number, other.number = 1, 2
    assert result(one) is result(one)
    assert calls == [1]
    assert [result(x).number for x in (other, one, other)] == [2, 1, 2]
    assert calls == [1, 2, 1, 2]
    calls.clear()
    last = ref(result(other))
    assert last() is not None
    del one, other
    gc.collect()
    assert last() is None


@given(
    st.sampled_from(["i1", "i4", "i8", "u8", "f8"]),
    st.lists(st.integers(-100, 100), max_size=50),
    st.integers(-(2**40), 2**40),
)
def test_different_values_are_those_of_numpy(kind, values, base):
    """Of any type, near each other or not: in order, and the number of each."""
    wide = kind in ("i8", "f8")
    values = [abs(v) if kind == "u8" else v + base * wide for v in values]
    column = np.array(values if len(values) < 40 else [*values, 2**62 * wide], kind)
    expected, which = np.unique(column, return_inverse=True)
    assert distinct(column).tolist() == expected.tolist()
    assert distinct(column).dtype == column.dtype
    found, numbers = factored(column)
    assert (found.tolist(), numbers.tolist()) == (expected.tolist(), which.tolist())
    assert found.dtype == column.dtype


@given(st.lists(st.integers(0, 70_000), max_size=50))
def test_rows_of_a_lane_stay_in_order(lanes):
    """However many lanes there are."""
    order = in_lanes(np.array(lanes, np.int32)).tolist()
    assert order == sorted(range(len(lanes)), key=lambda i: (lanes[i], i))
