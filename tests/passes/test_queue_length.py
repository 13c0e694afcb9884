"""Counters of the tasks that wait on each stream."""

import pytest

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource
from traceconv.passes import compose
from traceconv.run.stages import passed


@pytest.fixture
def trace(tmp_path):
    """Calls at 0, 10 and 20 ns that launch tasks on stream 7 at 30, 40 and 15 ns, the last before
    its call, and one on stream 8; a task that nothing launches."""
    build = TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0))
    calls = build.track(Layer.RUNTIME, "Thread 1", thread=1)
    streams = [build.track(Layer.DEVICE, f"Stream {n}", device=0, device_kind="GPU", stream=n)
               for n in (7, 8)]  # fmt: skip
    for at, stream, start in ((0, 0, 30), (10, 0, 40), (20, 0, 15), (25, 1, 60)):
        call = build.slice(calls, at, 5, "cudaLaunchKernel")
        task = build.slice(streams[stream], start, 5, "kernel", op=OpClass.COMPUTE)
        build.flow(call, task, "ac2g")
    build.slice(streams[1], 80, 5, "kernel", op=OpClass.COMPUTE)
    return build.finish()


def counters(trace):
    tracks, found = trace.tracks, {}
    rows = zip(*(getattr(trace.counters, name).tolist() for name in ("track", "start_ns", "value")),
               strict=True)  # fmt: skip
    for track, time, value in rows:
        found.setdefault(tracks[track].name, []).append((time, value))
    return found


def test_each_launch_waits_from_its_call_to_its_start(trace):
    """A task that starts before its call does not wait; a length is that after all changes."""
    found = counters(passed(trace, compose("detail", queues=True)))
    assert found == {
        "Queue length, Stream 7": [(0, 1), (10, 2), (15, 2), (30, 1), (40, 0)],
        "Queue length, Stream 8": [(25, 1), (60, 0)],
    }


def test_only_the_detail_view_has_them_when_asked(trace):
    """Neither other views nor the detail view without the option."""
    assert not counters(passed(trace, compose("detail")))
    assert not counters(passed(trace, compose("summary", queues=True)))


def test_a_trace_that_has_them_stays(trace):
    """A file written by traceconv has each counter once."""
    once = passed(trace, compose("detail", queues=True))
    assert counters(passed(once, compose("detail", queues=True))) == counters(once)
