"""Calls within calls."""

import numpy as np
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
