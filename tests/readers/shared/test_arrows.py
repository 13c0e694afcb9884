"""Which ends of arrows belong together, compared with a plain loop."""

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceconv.readers.shared.trace_events.arrows import joined

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


@given(ends)
def test_ends_of_one_key_belong_together(rows):
    """Several starts, steps, finishes before their start, ends alone."""
    key, stage, time = (
        np.array([row[i] for row in rows], of) for i, of in enumerate(("i8", "i1", "i8"))
    )
    assert joined(key, stage, time).tolist() == by_hand(rows)
