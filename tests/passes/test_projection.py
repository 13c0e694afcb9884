"""Ranges of the host projected onto the device, through the arrows of their launches."""

from dataclasses import replace
from pathlib import Path

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import GPU, NEEDS_DATA

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass, TrackKind
from traceconv.io.sources import FileSource
from traceconv.passes import compose
from traceconv.passes.projection import projection


class Run:
    """A thread that marks ranges and launches, and streams that work them off."""

    def __init__(self):
        self.build = TraceBuilder(Capture("test", FileSource(Path("x"), "x"), ("x",), rank=0))

        self.kinds = {"NVTX": TrackKind.RANGES}

    def range(self, start, end, name="r", thread="Thread 1", title="NVTX"):
        self.build.slice(
            self.build.track(
                Layer.HOST, thread, title=title, kind=self.kinds.get(title, TrackKind.OTHER),
                thread=int(thread.split()[1]),
            ), start, end - start, name, op=OpClass.HOST,
        )  # fmt: skip

    def launch(
        self, at, start, end, stream="Stream 7", thread="Thread 1", group="", op=OpClass.COMPUTE
    ):
        call = self.build.slice(
            self.build.track(Layer.RUNTIME, thread, title="CUDA", thread=int(thread.split()[1])),
            at, 1, "launch", op=OpClass.HOST,
        )  # fmt: skip
        number = int(group.split()[1]) if group else -1
        device = self.build.track(Layer.DEVICE, stream, group, device=number, device_kind="GPU")
        self.build.flow(call, self.build.slice(device, start, end - start, "k", op=op), "launch")

    def projected(self):
        """(lane, name, start, end, arguments) of all projections."""
        return projections(projection(self.build.finish()))


def projections(trace):
    events = trace.events.take(trace.rows_of(Layer.SCOPE))
    columns = (events.track, events.name, events.start_ns, events.end_ns, events.args)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(trace.tracks[t], trace.strings[n], s, e, trace.args[a]) for t, n, s, e, a in rows]


@pytest.fixture
def run():
    """An empty run."""
    return Run()


def told(found):
    """Names, spans, tasks and busy time."""
    return [(name, s, e, args["tasks"], args["busy (ns)"]) for _, name, s, e, args in found]


def test_a_range_lasts_from_its_first_device_work_to_its_last(run):
    """Wherever the device got to it; the gap counts for the span and not for the busy time."""
    run.range(0, 10, "Linear_fwd")
    run.launch(2, 100, 130)
    run.launch(5, 150, 160)
    run.launch(20, 160, 170)
    [(track, name, start, end, args)] = run.projected()
    assert (track.heading, track.name) == ("NVTX (device projection)", "Thread 1")
    assert (name, start, end) == ("Linear_fwd", 100, 160)
    assert args == {"tasks": 2, "busy (ns)": 40, "host (ns)": 10}


def test_nested_ranges_give_nested_projections(run):
    """The one around comes first and holds those inside."""
    run.range(0, 50, "outer")
    run.range(1, 10, "first")
    run.range(11, 20, "second")
    for at, start in ((2, 100), (12, 120), (30, 140)):
        run.launch(at, start, start + 10)
    assert told(run.projected()) == [
        ("outer", 100, 150, 3, 30), ("first", 100, 110, 1, 10), ("second", 120, 130, 1, 10),
    ]  # fmt: skip


def test_ranges_of_equal_spans_keep_their_order(run):
    """An outer range whose work is that of the inner one stays the outer one."""
    run.range(0, 50, "outer")
    run.range(1, 10, "inner")
    run.launch(2, 100, 110)
    assert [name for name, *_ in told(run.projected())] == ["outer", "inner"]


def test_work_that_overlaps_on_two_streams_is_busy_once(run):
    """The busy time is that of the union."""
    run.range(0, 10)
    run.launch(1, 100, 120, "Stream 7")
    run.launch(2, 110, 140, "Stream 9")
    assert told(run.projected()) == [("r", 100, 140, 2, 40)]


def test_other_threads_launch_for_themselves(run):
    """A launch counts for the ranges of its own thread only."""
    run.range(0, 10)
    run.range(0, 10, "other", thread="Thread 2")
    run.launch(1, 100, 120, thread="Thread 2")
    assert told(run.projected()) == [("other", 100, 120, 1, 20)]


def test_what_a_lane_shows_of_its_thread_does_not_matter(run):
    """ "Thread 1 (Python)" launches through the calls of "Thread 1"."""
    run.range(0, 10, "layer", thread="Thread 1 (Python)")
    run.launch(1, 100, 120)
    assert told(run.projected()) == [("layer", 100, 120, 1, 20)]


def test_every_device_has_lanes_of_its_own(run):
    """A range that works on two GPUs is projected onto both."""
    run.range(0, 10)
    run.launch(1, 100, 120, group="GPU 0")
    run.launch(2, 300, 310, group="GPU 1")
    found = [(track.group, start, end) for track, _, start, end, _ in run.projected()]
    assert found == [("GPU 0", 100, 120), ("GPU 1", 300, 310)]


def test_waits_are_no_device_work(run):
    """A range that only waited has no projection."""
    run.range(0, 10)
    run.launch(1, 100, 120, op=OpClass.WAIT)
    assert run.projected() == []


def test_operators_are_no_ranges(run):
    """Host slices on other lanes are projected only if they are named as ranges."""
    run.range(0, 10, "aten::mm", title="Python")
    run.range(0, 9, "nn.Module: Linear_0", title="Python")
    run.range(0, 8, "marked", title="Python")
    run.build.hints.range_names = ["marked"]
    run.launch(1, 100, 120)
    assert [name for name, *_ in told(run.projected())] == ["nn.Module: Linear_0", "marked"]


def test_an_operators_arrow_counts_before_that_of_a_call(run):
    """Operators that hand their calls to other threads still have their device work."""
    run.range(0, 10, "layer")
    run.launch(30, 100, 120, thread="Thread 2")
    operator = run.build.slice(
        run.build.track(Layer.HOST, "Thread 1", title="Python", thread=1),
        2,
        3,
        "aten::mm",
        op=OpClass.HOST,
    )
    run.build.flow(operator, 2, "async")
    assert told(run.projected()) == [("layer", 100, 120, 1, 20)]


def test_a_trace_without_ranges_stays_as_it_is(run):
    """Nothing is added."""
    run.launch(1, 100, 120)
    trace = run.build.finish()
    assert projection(trace) is trace


def test_only_the_detail_view_with_scopes_has_projections(run):
    """The summary and the plain detail have none, and the ledger tells of those that are made."""
    run.range(0, 10)
    run.launch(1, 100, 120)
    trace = run.build.finish()
    booked = {}
    for mode, scope in (("detail", True), ("detail", False), ("summary", True)):
        found = trace
        for one in compose(mode, scope=scope):
            found = one(found)
        booked[mode, scope] = found.ledger.get(("projection", "slice"), 0)
    assert booked == {("detail", True): 1, ("detail", False): 0, ("summary", True): 0}


def test_projections_belong_to_the_step_of_their_work(run):
    """So that choosing steps keeps them."""
    run.range(0, 10)
    run.launch(1, 100, 120)
    trace = run.build.finish()
    step = trace.events.step.copy()
    step[trace.rows_of(Layer.DEVICE)] = 4
    trace = projection(replace(trace, events=trace.events.with_columns(step=step)))
    assert trace.events.step[trace.rows_of(Layer.SCOPE)].tolist() == [4]


spans = st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda t: (t[0], t[0] + t[1]))


@settings(max_examples=effort(30, 60), deadline=None)
@given(
    ranges=st.lists(spans, max_size=8),
    launches=st.lists(st.tuples(st.integers(0, 80), spans), max_size=8),
)
def test_projections_are_those_of_a_plain_loop(ranges, launches):
    """Also of ranges that cross, launches at the very border, and work of no length."""
    run = Run()
    for i, (start, end) in enumerate(ranges):
        run.range(start, end, f"r{i}")
    for at, (start, end) in launches:
        run.launch(at, start, end)
    expected = {}
    for i, (start, end) in enumerate(ranges):
        work = [span for at, span in launches if start <= at and at + 1 <= end]
        if work:
            busy = {t for a, b in work for t in range(a, b)}
            low, high = min(a for a, _ in work), max(b for _, b in work)
            expected[f"r{i}"] = (low, high, len(work), len(busy))
    assert {name: tuple(rest) for name, *rest in told(run.projected())} == expected


NSYS = GPU / "nsys"


@NEEDS_DATA
def test_a_real_report_projects_as_a_plain_loop_does():
    """Every operator of a training run with 16 693 ranges, against sets and loops."""
    traces = traceconv.open(str(NSYS / "mfu_2gpu_after.sqlite")).traces("detail", scope=True)
    trace = next(iter(traces))
    events, number = trace.events, trace.flows
    nvtx = [i for i, t in enumerate(trace.tracks) if t.heading == "NVTX"]
    calls, device = trace.rows_of(Layer.RUNTIME), trace.rows_of(Layer.DEVICE, Layer.COMM)
    work = [
        (trace.tracks[events.track[a]].name, int(events.start_ns[a]), int(events.end_ns[a]), b)
        for a, b in zip(number.src.tolist(), number.dst.tolist(), strict=True)
        if calls[a] and device[b]
    ]
    expected = []
    for i in [i for i, t in enumerate(events.track.tolist()) if t in nvtx][::17]:
        thread, low, high = (
            trace.tracks[events.track[i]].name, int(events.start_ns[i]), int(events.end_ns[i]),
        )  # fmt: skip
        own = [b for name, s, e, b in work if name == thread and low <= s and e <= high]
        if own:
            span = (int(events.start_ns[own].min()), int(events.end_ns[own].max()))
            expected.append((trace.strings[events.name[i]], *span, len(own)))
    found = {(name, s, e, args["tasks"]) for _, name, s, e, args in projections(trace)}
    assert len(expected) > 200
    assert set(expected) - found == set()
