"""Calls within calls."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceconv.analysis.tables.host import Nest
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Layer

slices = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 40), st.integers(0, 20)), max_size=30)


def _nest(rows):
    build = TraceBuilder.of_rank(0)
    for thread, start, length in rows:
        build.slice(
            build.track(Layer.HOST, f"Thread {thread}", thread=thread), start, length, "call"
        )
    trace = build.finish()
    return trace, Nest.of(trace, np.arange(len(trace.events)))


def test_each_call_is_in_the_innermost_around_it():
    """And an instant is in the innermost that has begun and not ended."""
    trace, nest = _nest([(1, 0, 10), (1, 2, 5), (1, 3, 1), (1, 8, 2), (2, 3, 4)])
    start = trace.events.start_ns[nest.rows].tolist()
    around = [start[i] if i >= 0 else None for i in nest.parent.tolist()]
    assert dict(zip(zip(nest.thread.tolist(), start, strict=True), around, strict=True)) == {
        (0, 0): None, (0, 2): 0, (0, 3): 2, (0, 8): 0, (1, 3): None,
    }  # fmt: skip
    at = nest.at(np.zeros(6, np.int64), np.array([0, 3, 4, 7, 9, 10]))
    assert [start[i] if i >= 0 else None for i in at.tolist()] == [0, 3, 2, 0, 8, None]


def test_of_crossing_calls_the_later_one_stays_open():
    """0-10, 5-20 and what begins at 15: it is within the second, and all time counts once."""
    _, nest = _nest([(1, 0, 10), (1, 5, 15), (1, 15, 3), (1, 25, 2)])
    assert nest.parent.tolist() == [-1, 0, 1, -1]
    assert nest.self_ns().tolist() == [5, 12, 3, 2]
    at = nest.at(np.zeros(4, np.int64), np.array([7, 12, 16, 22]))
    assert at.tolist() == [1, 1, 2, -1]


@given(slices)
def test_every_moment_counts_once(rows):
    """However calls cross: self times add up to the time in which any call of a thread is open."""
    _, nest = _nest(rows)
    open_at = {(thread, at) for thread, start, n in rows for at in range(start, start + n)}
    assert nest.self_ns().sum() == len(open_at)
