"""The Perfetto writer's costs: never less than what is written, and not much more."""

import json

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.writers import Document
from traceconv.writers.perfetto import PerfettoWriter
from traceconv.writers.perfetto import arguments as _perfetto_args

BASE = 1_718_180_918_997_123_456


def size(trace, document):
    writer = PerfettoWriter()
    return len(writer.begin(document)) + sum(map(len, writer.trace(trace))) + len(writer.end())


def bound(costs, events, counters, flows):
    return (
        costs.fixed
        + costs.events[events].sum()
        + costs.counters[counters].sum()
        + costs.flows[flows].sum()
    )


def typical(rows=3000, seed=0):
    """Streams of tasks with the arguments msprof writes, launches, a counter."""
    rng = np.random.default_rng(seed)
    build = TraceBuilder(Capture("test", None, (), rank=0, pid=100, device=0))
    host, counter = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.COUNTER, "HBM", unit="MB/s"),
    )
    at = BASE
    for i in range(rows):
        at += int(rng.integers(100, 40_000))
        args = {
            "Model Id": 4294967295,
            "Task Type": str(rng.choice(["AI_CORE", "EVENT_WAIT"])),
            "Stream Id": i % 4,
            "Task Id": i,
            "Batch Id": 0,
            "connection_id": int(rng.integers(1 << 20)),
        }
        op = f"aclnnMatmul_{rng.zipf(1.5) % 300}_MatMulV2"
        track = build.track(Layer.DEVICE, f"Stream {i % 4}")
        task = build.slice(track, at, 50, op, op=OpClass.COMPUTE, args=args)
        if i % 3 == 0:
            build.flow(build.slice(host, at - 90, 60, "launch"), task, "HostToDevice")
        if i % 20 == 0:
            build.counter(counter, at, float(rng.random() * 1000))
    return build.finish()


def test_costs_are_close_on_typical_data():
    """The sum is what is written and less than a tenth more."""
    trace, document = typical(), Document(BASE, (0,), {"version": "1"})
    costs = PerfettoWriter().costs(trace, document)
    ratio = bound(costs, slice(None), slice(None), slice(None)) / size(trace, document)
    assert 1 <= ratio <= 1.1


def test_chrome_json_of_the_same_is_more_than_twice_as_large():
    """Typed arguments and interned strings are worth it."""
    trace = typical()
    events = [
        {
            "name": trace.strings[n],
            "ph": "X",
            "pid": 1,
            "tid": 4,
            "ts": 1718180918997.123,
            "dur": 0.05,
        }
        | ({"args": trace.args[a]} if a >= 0 else {})
        for n, a in zip(trace.events.name.tolist(), trace.events.args.tolist(), strict=True)
    ]
    events += (
        [{"ph": "s", "id": 12345, "pid": 1, "tid": 4, "ts": 1718180918997.123}]
        * 2
        * len(trace.flows)
    )
    assert size(trace, Document(BASE, (0,))) < 0.45 * len(json.dumps(events))


ARGS = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "Task Type"]) | st.text(max_size=4),
    st.integers() | st.text(max_size=20) | st.lists(st.floats(allow_nan=False), max_size=3),
    max_size=4,
)
ROW = st.tuples(
    st.integers(0, 4),
    st.integers(0, 2**50),
    st.integers(0, 100) | st.integers(0, 2**40),
    st.sampled_from(["x", "y", "kernel " * 20]) | st.text(max_size=6),
    st.booleans(),
    ARGS,
)


def made(rows, samples, arrows, rank=0):
    build = TraceBuilder(Capture("test", None, (), rank=rank))
    for lane, start, dur, name, instant, args in rows:
        track = build.track(Layer.STEP if lane == 0 else Layer.DEVICE, f"Stream {lane}")
        if instant:
            build.instant(track, BASE + start, name, args=args)
        else:
            build.slice(track, BASE + start, dur, name, step=lane, args=args)
    for lane, start, value in samples:
        build.counter(build.track(Layer.COUNTER, f"c{lane}", unit="KB"), BASE + start, value)
    for src, dst in arrows:
        if rows:
            build.flow(src % len(rows), dst % len(rows), "f")
    return build.finish()


SAMPLES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2**50), st.floats(allow_nan=False)), max_size=5
)
ARROWS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=10)


@pytest.mark.parametrize("room", [65536, 2])
@settings(max_examples=effort(30, 100), deadline=None)
@given(st.lists(ROW, max_size=40), SAMPLES, ARROWS, st.integers(0, 300), st.data())
def test_costs_hold_for_every_selection(room, rows, samples, arrows, rank, data):
    """Whatever rows are left out, the rest takes no more than was said."""
    trace = made(rows, [s for s in samples if abs(s[2]) < 1e308], arrows, rank)
    document = Document(BASE, (rank,), {"version": "1"})
    keep = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(trace.events), max_size=len(trace.events))),
        bool,
    )
    counted = np.arange(len(trace.counters)) % 2 == 0
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MAX_NAMES", "MAX_STRINGS"):
            patch.setattr(_perfetto_args, name, room)
            patch.setattr(f"traceconv.writers.perfetto.encoder.{name}", room)
        costs = PerfettoWriter().costs(trace, document)
        assert (len(costs.events), len(costs.flows)) == (len(trace.events), len(trace.flows))
        kept = trace.keep("test", keep, counted)
        arrows_kept = keep[trace.flows.src] & keep[trace.flows.dst]
        assert size(kept, document) <= bound(costs, keep, counted, arrows_kept)


def test_costs_do_not_book_issues():
    """Measuring is not writing."""
    writer = PerfettoWriter()
    writer.costs(typical(10), Document(BASE, (0,), args=frozenset()))
    assert len(writer.issues) == 0


def test_costs_do_not_depend_on_the_c_part(monkeypatch):
    """Both tiers measure alike."""
    trace, document = typical(500), Document(BASE, (0,))
    both = []
    for value in ("1", "0"):
        monkeypatch.setenv("TRACECONV_NATIVE", value)
        costs = PerfettoWriter().costs(trace, document)
        both.append((costs.fixed, costs.events.tolist()))
    assert both[0] == both[1]
