"""Traces and damaged inputs for property tests."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import strategies as st

from fuzz import mutate
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Kind, Layer, OpClass, Trace
from traceconv.core.source import RecordedSource

BASE = 1_740_816_000_000_000_000
NAMES = ("MatMul", "allreduce", "aten::add", "a\nb", "ünï", "")

LANES = (
    (Layer.HOST, "Thread 1", OpClass.HOST),
    (Layer.DEVICE, "Stream 2", OpClass.COMPUTE),
    (Layer.DEVICE, "Stream 11", OpClass.WAIT),
    (Layer.COMM, "Group 0", OpClass.COMM),
    (Layer.OTHER, "Marks", OpClass.OTHER),
)
"""Layer, name and class of the rows of every made trace."""

_row = st.tuples(
    st.integers(0, len(LANES) - 1),
    st.booleans(),
    st.integers(0, 2_000),
    st.integers(0, 400),
    st.sampled_from(NAMES),
    st.integers(-1, 3),
)
_sample = st.tuples(st.integers(0, 2_000), st.floats(-1e6, 1e6, allow_nan=False))


@st.composite
def traces(draw: st.DrawFn, rank: int = 0) -> Trace:
    """One rank: slices and instants on a few lanes, samples, arrows between any two rows."""
    rows = draw(st.lists(_row, min_size=1, max_size=40))
    samples = draw(st.lists(_sample, max_size=8))
    ends = st.integers(0, len(rows) - 1)
    flows = draw(st.lists(st.tuples(ends, ends).filter(lambda f: f[0] != f[1]), max_size=5))
    build = TraceBuilder(Capture("made", RecordedSource("made", {}), (), rank=rank, label="made"))
    tracks = [build.track(layer, name) for layer, name, _ in LANES]
    for lane, instant, start, dur, name, step in rows:
        args = {"n": start} if start % 3 == 0 else None
        given = {"op": LANES[lane][2], "step": step, "args": args}
        if instant:
            build.instant(tracks[lane], BASE + start, name, **given)
        else:
            build.slice(tracks[lane], BASE + start, dur, name, **given)
    counter = build.track(Layer.COUNTER, "HBM", unit="MB/s")
    for start, value in samples:
        build.counter(counter, BASE + start, value)
    for src, dst in flows:
        build.flow(src, dst, "launch")
    return build.finish()


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """``data`` after up to three mutations of :mod:`fuzz.mutate`."""

    def apply(seeds: list[tuple[str, int]]) -> bytes:
        made = data
        for kind, seed in seeds:
            made = mutate.KINDS[kind](Random(seed), made, data)
        return made

    one = st.tuples(st.sampled_from(sorted(mutate.KINDS)), st.integers(0, 2**32))
    return st.lists(one, min_size=1, max_size=3).map(apply)


def content(trace: Trace) -> list[tuple[object, ...]]:
    """All rows of a trace in an order of their own, whatever its tables look like."""
    e = trace.events
    lanes = [(t.layer, t.group, t.name) for t in trace.tracks]
    rows = zip(
        *(e.track.tolist(), e.kind.tolist(), e.start_ns.tolist(), e.dur_ns.tolist()),
        *(e.name.tolist(), e.step.tolist()),
        strict=True,
    )
    events = [(*lanes[t], Kind(k).name, s, d, trace.strings[n], p) for t, k, s, d, n, p in rows]
    c = trace.counters
    samples = zip(c.track.tolist(), c.start_ns.tolist(), c.value.tolist(), strict=True)
    flows = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
    ends = [tuple(np.array([e.start_ns[s], e.start_ns[d]]).tolist()) for s, d in flows]
    return [
        *sorted(events),
        *sorted((*lanes[t], "sample", s, v) for t, s, v in samples),
        *sorted(ends),
    ]
