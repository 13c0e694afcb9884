"""Which ends of arrows belong together, in both tiers and by a plain loop; and slices in order."""

import os
from collections import defaultdict
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv import native
from traceconv.readers.shared.trace_events.arrows import _ordered, joined

START, STEP, FINISH = range(3)

ends = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 6), st.sampled_from([-(2**63), 2**63 - 1, 2**40, 2**40 + 1])),
        st.sampled_from([START, FINISH, FINISH, STEP]),
        st.integers(0, 9),
    ),
    max_size=60,
)


def by_hand(rows):
    """As :func:`joined` says it: one end after the other, in time."""
    found, of_key = [-1] * len(rows), defaultdict(list)
    for number, (key, stage, time) in enumerate(rows):
        of_key[key].append((time, stage, number))
    for one in of_key.values():
        one.sort()
        first = next((number for _, stage, number in one if stage == START), -1)
        open_ = -1
        for _, stage, number in one:
            if stage != START:
                found[number] = open_ if open_ >= 0 else first
            if stage != FINISH:
                open_ = number
    return found


@given(ends, st.sampled_from(["1", "0"]))
def test_ends_of_one_key_belong_together(rows, tier):
    """Several starts, steps, finishes before their start, ends alone."""
    key, stage, time = (
        np.array([row[i] for row in rows], of) for i, of in enumerate(("i8", "i1", "i8"))
    )
    with mock.patch.dict(os.environ, TRACECONV_NATIVE=tier):
        assert joined(key, stage, time).tolist() == by_hand(rows)


@pytest.mark.skipif(native.joined() is None, reason="needs the compiled part")
def test_columns_of_different_length_are_refused():
    """Nothing is read beyond the end of either."""
    with pytest.raises(ValueError, match="one length"):
        native.joined()(np.zeros(3, np.int64), np.zeros(2, np.int8))
    with pytest.raises(ValueError, match="one length"):
        native.joined()(b"1234567", np.zeros(1, np.int8))


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(0, 3)), max_size=40),
    st.booleans(),
)
def test_slices_are_in_the_order_of_lanes_and_times(slices, recorded_in_order):
    """Those that begin at once, the longest first; else as they are given."""
    if recorded_in_order:
        slices.sort(key=lambda one: one[1])
    lane, start, dur = np.array(slices, np.int64).reshape(-1, 3).T
    found = _ordered(lane.astype(np.int32), lane * 100 + start, dur).tolist()
    assert found == sorted(range(len(slices)), key=lambda i: (lane[i], start[i], -dur[i], i))
