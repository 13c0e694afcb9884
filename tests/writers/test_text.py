"""The text writer: one line per row, the same for equal traces."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass, Trace, Track
from traceconv.io.sources import FileSource
from traceconv.writers import Document
from traceconv.writers.text import TextWriter

BASE = 10**18


def builder(rank: int = 0) -> TraceBuilder:
    return TraceBuilder(Capture("test", FileSource(Path("nowhere"), "nowhere"), (), rank))


def written(*traces: Trace, **document: Any) -> str:
    writer = TextWriter()
    text = writer.begin(Document(BASE, tuple(t.rank for t in traces), **document))
    for trace in traces:
        text += b"".join(writer.trace(trace))
    return (text + writer.end()).decode()


def full_trace() -> Trace:
    build = builder(3)
    stream = build.track(Layer.DEVICE, "Stream 3", title="Ascend Hardware")
    host = build.track(Layer.HOST, "Thread 7", group="python")
    lane = build.add_track(Track(Layer.DEVICE, "Stream 3", title="Ascend Hardware", lane=1))
    kernel = build.slice(
        stream, BASE + 1500, 820, "MatMul", op=OpClass.COMPUTE, graph=1, step=2, args={"k": [1, 2]}
    )
    build.slice(lane, BASE + 1600, 0, "Mul")
    launch = build.slice(host, BASE - 5, 50, 'say "hi"\n', op=OpClass.HOST)
    build.instant(host, BASE + 100, "mark")
    build.flow(launch, kernel, "HostToDevice")
    counter = build.track(Layer.COUNTER, "Read", group="HBM 0", unit="MB/s")
    build.counter(counter, BASE + 10, 12.5)
    build.counter(counter, BASE + 20, float("nan"))
    return build.finish()


EXPECTED = r"""traceconv text 1
base_ns 1000000000000000000
ranks 3

rank 3
  track "Host" "python" "Thread 7" layer=host
    -5 +50 "say \"hi\"\n" host
    100 ! "mark" other
  track "Ascend Hardware" "" "Stream 3" layer=device
    1500 +820 "MatMul" compute graph=1 step=2 {"k":[1,2]}
  track "Ascend Hardware" "" "Stream 3" lane=1 layer=device
    1600 +0 "Mul" other
  track "Counters" "HBM 0" "Read" layer=counter unit="MB/s"
    10 = 12.5
    20 = "nan"
  arrows
    "HostToDevice" "Host" "python" "Thread 7"@-5 "say \"hi\"\n" -> \
"Ascend Hardware" "" "Stream 3"@1500 "MatMul"
""".replace("\\\n", "")


def test_a_trace_reads_like_this() -> None:
    """The whole form at once."""
    assert written(full_trace()) == EXPECTED


def test_equal_traces_give_equal_text() -> None:
    """Nothing in it depends on how ids were given."""
    text = written(full_trace())
    assert written(full_trace()) == text


def test_ranks_follow_each_other() -> None:
    """Each has its own heading."""
    lines = written(builder(0).finish(), builder(2).finish()).splitlines()
    assert lines[2:] == ["ranks 0 2", "", "rank 0", "", "rank 2"]


def test_arguments_take_one_line_and_keep_their_digits() -> None:
    """White space between tokens goes; numbers stay as written."""
    build = builder()
    raw = b'{ "a" :\n 1.500,\t"b": [ "x y" ] }'
    build.seen("slice")
    build.extend(
        track=build.track(Layer.HOST, "t"),
        start_ns=np.array([BASE]),
        name=build.string("x"),
        args=build.args_bytes(raw, np.array([len(raw)], np.int32)),
    )
    assert '"x" other {"a":1.500,"b":["x y"]}\n' in written(build.finish())


def test_only_wanted_arguments_are_shown() -> None:
    """The filter of the document holds here too."""
    build = builder()
    build.slice(build.track(Layer.HOST, "t"), BASE, 1, "x", args={"a": 1, "b": 2})
    assert '"x" other {"b":2}\n' in written(build.finish(), args=frozenset({"b"}))


ROWS = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40), st.integers(0, 10**6), st.text(max_size=9), st.integers(0, 9)
    ),
    max_size=9,
)


@settings(deadline=None)
@given(ROWS, st.lists(st.floats(), max_size=4))
def test_costs_are_never_exceeded(rows: list[Any], values: list[float]) -> None:
    """The size limit relies on it."""
    build = builder()
    numbers = []
    for start, dur, name, step in rows:
        track = build.track(Layer.HOST, f"t{step % 3}")
        args = {name: start}
        numbers.append(build.slice(track, BASE + start, dur, name, step=step, args=args))
    for a, b in pairwise(numbers):
        build.flow(a, b, "next")
    for value in values:
        build.counter(build.track(Layer.COUNTER, "c", unit=""), BASE, value)
    trace = build.finish()
    costs = TextWriter().costs(trace, Document(BASE, (0,)))
    bound = costs.fixed + sum(int(c.sum()) for c in (costs.events, costs.counters, costs.flows))
    assert len(written(trace).encode()) <= bound
