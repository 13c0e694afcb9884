"""Selecting graphs, steps, layers, names and windows of time."""

import numpy as np
import pytest

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import SelectionError
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource
from traceconv.passes.select import (
    by_graph,
    by_layer,
    by_name,
    by_step,
    time_window,
    without_zero_counters,
)


@pytest.fixture
def build(tmp_path):
    """A builder for rank 0."""
    return TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0))


def _names(trace):
    return sorted(trace.strings[i] for i in trace.events.name.tolist())


@pytest.fixture
def two_graphs(build):
    """Graphs 1 and 2 on one stream, a task of no graph, calls that launch, counters."""
    stream, host = (
        build.track(Layer.DEVICE, "Stream 1"),
        build.track(Layer.HOST, "Thread 1", thread=1),
    )
    steps, overlap = build.track(Layer.STEP, "Model 1"), build.track(Layer.OVERLAP, "Free")
    memory = build.track(Layer.COUNTER, "HBM", unit="KB")
    one = build.slice(stream, 10, 5, "one", op=OpClass.COMPUTE, graph=1)
    two = build.slice(stream, 20, 5, "two", op=OpClass.COMPUTE, graph=2)
    build.slice(stream, 30, 5, "copy", op=OpClass.COPY)
    build.flow(build.slice(host, 1, 1, "launch one"), one, "HostToDevice")
    build.flow(build.slice(host, 2, 1, "launch two"), two, "HostToDevice")
    build.slice(host, 3, 1, "idle")
    build.slice(host, 0, 50, "ProfilerStep#1", op=OpClass.HOST, step=1)
    build.slice(steps, 10, 5, "Iteration 1", op=OpClass.ITERATION, graph=1, step=1)
    build.slice(overlap, 15, 5, "Free", op=OpClass.FREE)
    build.counter(memory, 10, 1.0)
    return build.finish()


def test_a_graph_brings_its_rows_and_what_launched_them(two_graphs):
    """Tasks of other graphs and of none go; so do calls that launch none of the kept."""
    kept = by_graph(two_graphs, [1])
    assert _names(kept) == ["Iteration 1", "ProfilerStep#1", "launch one", "one"]
    assert (len(kept.flows), len(kept.counters)) == (1, 1)


def test_what_a_graph_filter_takes_is_booked(two_graphs):
    """Five slices and an arrow, under the stage's own name."""
    ledger = by_graph(two_graphs, [1]).ledger
    assert (ledger["select-graphs", "slice"], ledger["select-graphs", "flow"]) == (-5, -1)


def test_naming_every_graph_is_no_filter(two_graphs):
    """Rows without a graph stay when no graph is left out."""
    assert by_graph(two_graphs, [1, 2, 7]).events is two_graphs.events


def test_a_rank_without_the_graph_keeps_nothing_of_it(two_graphs):
    """Whether the graph exists elsewhere is not this rank's business: no error."""
    assert _names(by_graph(two_graphs, [7])) == ["ProfilerStep#1"]


def test_graphs_are_noted_before_they_are_filtered(two_graphs):
    """The caller can say which graphs there are, whatever was asked for."""
    assert by_graph(two_graphs, [7]).present.graphs.tolist() == [1, 2]


def test_the_input_is_left_alone(two_graphs):
    """A pass returns a new trace; the old one has all its rows."""
    before = _names(two_graphs)
    by_graph(two_graphs, [1])
    assert _names(two_graphs) == before


@pytest.fixture
def two_steps(build):
    """Steps 1 = [0, 100) and 2 = [100, 200); the device works 50 behind."""
    steps, host = (
        build.track(Layer.STEP, "iterations"),
        build.track(Layer.HOST, "Thread 1", thread=1),
    )
    stream, free = build.track(Layer.DEVICE, "Stream 1"), build.track(Layer.OVERLAP, "Free")
    memory = build.track(Layer.COUNTER, "HBM", unit="KB")
    for n in (1, 2):
        at = 100 * n - 100
        build.slice(steps, at, 100, f"step {n}", op=OpClass.ITERATION, step=n)
        build.slice(host, at + 10, 20, f"op {n}", op=OpClass.HOST)
        build.slice(stream, at + 50, 80, f"kernel {n}", op=OpClass.COMPUTE, step=n)
        build.slice(free, at + 135, 10, f"free {n}", op=OpClass.FREE)
        build.counter(memory, at + 20, float(n))
    build.slice(host, 95, 10, "across", op=OpClass.HOST)
    return build.finish()


def test_a_step_brings_its_rows_and_those_that_touch_its_time(two_steps):
    """Host rows by the step's own time, device rows by number, others by the device's time."""
    kept = by_step(two_steps, [2])
    assert _names(kept) == ["across", "kernel 2", "op 2", "step 2"]
    assert kept.counters.value.tolist() == [2.0]


def test_rows_between_the_chosen_steps_stay_out(two_steps):
    """What the device does when no chosen step is at work belongs to none of them."""
    expected = ["across", "kernel 1", "kernel 2", "op 1", "op 2", "step 1", "step 2"]
    assert _names(by_step(two_steps, [1, 2])) == expected


def test_a_window_keeps_what_touches_it_whole(two_steps):
    """Slices are not clipped; one that ends where the window begins is out."""
    kept = time_window(two_steps, 30, 100)
    assert _names(kept) == ["across", "kernel 1", "step 1"]
    assert kept.events.dur_ns.max() == 100


def test_an_open_window(two_steps):
    """None stands for no border, and a window around everything changes nothing."""
    assert time_window(two_steps, None, None) is two_steps
    assert _names(time_window(two_steps, 180, None)) == ["free 2", "kernel 2", "step 2"]


def test_an_instant_at_the_start_of_a_window_is_in_it(build):
    """Windows are half open: the start belongs to them, the end does not."""
    track = build.track(Layer.HOST, "t")
    for t in (9, 10, 20):
        build.instant(track, t, str(t))
    assert _names(time_window(build.finish(), 10, 20)) == ["10"]


def test_layers_by_name(two_steps):
    """Only the rows and samples of these layers."""
    kept = by_layer(["step", "counter"])(two_steps)
    assert (_names(kept), len(kept.counters)) == (["step 1", "step 2"], 2)


def test_an_unknown_layer_is_refused_with_the_known_ones():
    """The message lists what there is."""
    with pytest.raises(SelectionError, match=r"no layer gpu; choose from step, overlap, host"):
        by_layer(["gpu"])


def test_names_are_excluded_by_regular_expression(two_steps):
    """A match anywhere in the name leaves the event out."""
    assert _names(by_name("[12]$")(two_steps)) == ["across"]


def test_a_broken_expression_is_refused():
    """The error is the library's own and shows the expression."""
    with pytest.raises(SelectionError, match=r"not a regular expression: '\('"):
        by_name("(")


def test_selecting_in_an_empty_trace(build):
    """No rows, no tracks, no failure."""
    trace = build.finish()
    passes = [
        by_layer(["step"]),
        by_name("x"),
        lambda t: by_step(t, [1]),
        lambda t: by_graph(t, [1]),
    ]
    for one in passes:
        assert len(one(trace).events) == 0
    assert np.array_equal(time_window(trace, 0, 1).events.track, [])


def test_counters_that_are_zero_throughout_are_left_out():
    """Of the rank, as an issue that names them; one that is once not zero, or unknown, stays."""
    build = TraceBuilder.of_rank(3)
    for name, values in (("idle", (0, 0)), ("busy", (0, 5)), ("odd", (0, float("nan")))):
        track = build.track("counter", name, unit="%")
        for time, value in enumerate(values):
            build.counter(track, time, value)
    kept = without_zero_counters(build.finish())
    names = [kept.tracks[i].name for i in np.unique(kept.counters.track)]
    assert names == ["busy", "odd"]
    [issue] = [one for one in kept.issues if one.code == "counter-zero"]
    assert (issue.count, issue.rank, issue.places) == (2, 3, ("Counters > idle",))
    assert kept.ledger["view", "counter"] == -2
    assert without_zero_counters(kept) is kept
