"""Numbers as arguments of events spell them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.readers.shared.numbers import count_of, counts_of

VALUES = st.one_of(
    st.integers(-3, 2**31 + 3),
    st.integers(-(2**70), 2**70),
    st.sampled_from([True, None, 2.0, 2.5, "7", "7.0", "x", [], {}]),
)


@given(
    st.lists(st.integers(-3, 2**31 + 3)) | st.lists(st.integers(-(2**70), 2**70)) | st.lists(VALUES)
)
def test_many_are_each_of_them(values):
    """Whatever they are, and whether all are numbers or not."""
    assert counts_of(values).tolist() == [count_of(one) for one in values]


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0, 0),
        (2**31 - 1, 2**31 - 1),
        (2**31, -1),
        (-1, -1),
        (True, -1),
        ("2.0", 2),
        (2.5, -1),
        (2**70, -1),
    ],
)
def test_counts(value, count):
    """What is a count, and what is none."""
    assert (count_of(value), counts_of([value]).tolist()) == (count, [count])
