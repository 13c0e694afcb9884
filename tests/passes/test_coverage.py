"""Coverage: which steps have device data, and what is unknown elsewhere."""

from pathlib import Path

import numpy as np
import pytest

from traceconv.analysis.utilisation import measured, utilisation
from traceconv.core.builder import TraceBuilder
from traceconv.core.codes import Severity
from traceconv.core.model import UNKNOWN, Capture, Covered, Layer, OpClass, StepTable
from traceconv.core.side_tables import ABSENT, SideTable
from traceconv.io.sources import FileSource
from traceconv.passes import compose


@pytest.fixture
def build():
    """A builder for rank 0."""
    return TraceBuilder(Capture("test", FileSource(Path("x"), "x"), ("x",), rank=0, device=0))


def _passed(trace):
    for one in compose("detail"):
        trace = one(trace)
    return trace


def _iterations(build, count):
    """Iterations of 100 each of one graph, without device data."""
    build.hints.vendor = "ascend"
    track = build.track(Layer.STEP, "Model 1")
    for n in range(1, count + 1):
        build.slice(track, 100 * n, 100, f"Iteration {n}", op=OpClass.ITERATION, graph=1, step=n)
    return build


def _kernels(build, *spans, graph=-1):
    stream = build.track(Layer.DEVICE, "Stream 1")
    return [
        build.slice(stream, start, end - start, "k", op=OpClass.COMPUTE, graph=graph)
        for start, end in spans
    ]


def _marks(build, *steps):
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    for number, start, end in steps:
        build.slice(
            host, start, end - start, f"ProfilerStep#{number}", op=OpClass.HOST, step=number
        )


def _free(trace):
    rows = trace.events.take(trace.events.op == OpClass.FREE)
    return list(zip(rows.start_ns.tolist(), rows.end_ns.tolist(), strict=True))


def test_iterations_without_device_rows_are_unknown(build):
    """Device data of the first, third and fourth of five: no figures and no Free in the others."""
    _iterations(build, 5)
    _kernels(build, (110, 150), (310, 350), (410, 420), graph=1)
    trace = _passed(build.finish())
    assert trace.coverage.text == "device data for 3 of 5 iterations"
    assert trace.steps.computing_ns.tolist() == [40, UNKNOWN, 40, 10, UNKNOWN]
    assert trace.steps.free_ns.tolist() == [60, UNKNOWN, 60, 90, UNKNOWN]
    assert _free(trace) == [(150, 200), (300, 310), (350, 410)]
    (issue,) = [one for one in trace.issues if one.code == "steps-uncovered"]
    assert (issue.count, issue.places) == (2, ("device data for 3 of 5 iterations",))
    assert issue.severity is Severity.INFO  # nothing that was recorded is missing


def _collectives(build, *spans, graph=-1):
    lane = build.track(Layer.COMM, "Group 0", communicator="Group 0")
    for start, end in spans:
        build.slice(lane, start, end - start, "allReduce", op=OpClass.COMM, graph=graph)


def test_computing_may_end_before_other_records(build):
    """Collectives and the AI CPU of five iterations, operators of two: those two have figures."""
    _iterations(build, 5)
    _kernels(build, (110, 150), (210, 250), graph=1)
    _collectives(build, *((100 * n + 40, 100 * n + 60) for n in range(1, 6)), graph=1)
    other = build.track(Layer.DEVICE, "AI CPU")
    build.slice(other, 510, 10, "InitData", op=OpClass.OTHER, graph=1)
    trace = _passed(build.finish())
    assert trace.coverage.text == "device data for 2 of 5 iterations"
    assert trace.steps.not_overlapped_ns.tolist() == [10, 10, *[UNKNOWN] * 3]
    assert trace.overlap.sums_ns == (80, 40, 20, 90, 0, 0, 0, 200)
    assert trace.overlap.idle_ns == 200 - 80 - 20
    assert _free(trace) == [(160, 210), (260, 300)]
    exposed = trace.events.take(trace.events.op == OpClass.NOT_OVERLAPPED)
    assert exposed.start_ns.tolist() == [150, 250]
    drawn = trace.events.take(trace.events.op == OpClass.COMMUNICATION)
    assert len(drawn) == 5


def test_an_iteration_in_which_the_recording_ended_is_unknown(build):
    """Three, three and two operators, then none: the third iteration is not all there."""
    _iterations(build, 4)
    for n in (1, 2, 3):
        spans = ((110, 120), (140, 150), (180, 190))[: 3 if n < 3 else 2]
        _kernels(build, *((s + 100 * n - 100, e + 100 * n - 100) for s, e in spans), graph=1)
    steps = _passed(build.finish()).steps
    assert steps.computing_ns.tolist() == [30, 30, UNKNOWN, UNKNOWN]


def test_of_two_iterations_one_is_cut_if_it_has_less_than_half(build):
    """One other is little to compare with: 3 of 4 operators may be all, 1 of 4 is not."""
    for operators, covered in ((3, 1), (1, 0)):
        build = TraceBuilder(Capture("test", FileSource(Path("x"), "x"), ("x",), rank=0))
        _iterations(build, 3)
        _kernels(build, *((100 + 10 * i, 105 + 10 * i) for i in range(4)), graph=1)
        _kernels(build, *((200 + 10 * i, 205 + 10 * i) for i in range(operators)), graph=1)
        assert _passed(build.finish()).steps.covered.tolist() == [1, covered, 0]


def test_collectives_alone_say_nothing_of_computing(build):
    """Neither what is not overlapped nor idle time is known; the collectives are drawn."""
    _marks(build, (1, 0, 100), (2, 200, 300))
    _collectives(build, (20, 60), (220, 230), (320, 330))
    trace = _passed(build.finish())
    assert trace.overlap is None
    assert trace.steps.known_ns.tolist() == [UNKNOWN] * 2
    drawn = trace.events.take(trace.rows_of(Layer.OVERLAP))
    assert set(drawn.op.tolist()) == {OpClass.COMMUNICATION}
    assert [issue.code for issue in trace.issues] == ["steps-from-host", "computing-unknown"]


def test_copies_alone_say_nothing_of_computing(build):
    """A profiler that is set to trace copies only traces no kernels."""
    _marks(build, (1, 0, 100), (2, 200, 300))
    track = build.track(Layer.DEVICE, "Stream 1", "GPU 0", device=0, device_kind="GPU")
    for start in (20, 220):
        build.slice(track, start, 30, "MemcpyHtoD", op=OpClass.COPY)
    trace = _passed(build.finish())
    assert (trace.overlap, trace.steps.known_ns.tolist()) == (None, [UNKNOWN] * 2)
    assert trace.issues.count("computing-unknown") == 1


def _step_table(**columns):
    names = ("Step", "Computing(us)", "Communication(us)", "Communication(Not Overlapped)(us)")
    values = dict(zip((*names, "Free(us)"), columns.values(), strict=True))
    return SideTable("step_trace_time", "step_trace_time.csv", lambda: values)


def test_the_vendors_table_has_figures_of_the_others(build):
    """Used where it has a row, and named; a row without figures is none."""
    _iterations(build, 3)
    _kernels(build, (110, 150), graph=1)
    trace = build.finish()
    trace.side_tables["step_trace_time"] = _step_table(
        step=np.array([1, 2, 3]), computing=np.array([7, 30, ABSENT]),
        communication=np.array([7, 50, 1]), exposed=np.array([7, 20, 1]), free=np.array([7, 50, 1]),
    )  # fmt: skip
    trace = _passed(trace)
    assert trace.steps.covered.tolist() == [
        Covered.TIMELINE, Covered.VENDOR_TABLE, Covered.NOT,
    ]  # fmt: skip
    figures = np.stack([getattr(trace.steps, name) for name in StepTable.FIGURES], axis=1)
    assert figures.tolist() == [
        [40, 0, 0, 60, 0, 0, 0, 100],
        [30, 50, 20, 50, UNKNOWN, UNKNOWN, UNKNOWN, 100],
        [UNKNOWN] * 8,
    ]
    assert trace.coverage.text == (
        "device data for 1 of 3 iterations, figures of 1 more from step_trace_time"
    )


def test_steps_of_the_host_outside_the_recorded_device_time_are_unknown(build):
    """After the last device row, or with launches whose kernels are missing; else it was idle."""
    _marks(build, (1, 0, 100), (2, 100, 200), (3, 200, 300), (4, 300, 400), (5, 400, 500))
    _kernels(build, (10, 50), (310, 320))
    call = build.track(Layer.RUNTIME, "Thread 1", thread=1)
    build.slice(call, 210, 5, "cudaLaunchKernel", op=OpClass.HOST)
    trace = _passed(build.finish())
    assert trace.steps.covered.tolist() == [1, 1, 0, 1, 0]
    assert trace.steps.computing_ns.tolist() == [40, 0, UNKNOWN, 10, UNKNOWN]
    assert _free(trace) == [(0, 10), (50, 200), (300, 310), (320, 400)]


def test_a_step_is_idle_while_it_waits_for_data(build):
    """A DataLoader of 80 before 20 of kernels: busy for a fifth, not all of the time."""
    for n in range(3):
        _marks(build, (n, 100 * n, 100 * n + 100))
        _kernels(build, (100 * n + 80, 100 * n + 100))
    steps = _passed(build.finish()).steps
    assert utilisation(steps.free_ns, steps.known_ns).tolist() == pytest.approx([20, 20, 20])


def test_windows_of_steps_tile_time(build):
    """Work that outlasts its step is part of one window; no share is beyond 100 %."""
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    for n in range(3):
        _marks(build, (n, 100 * n, 100 * n + 100))
        call = build.slice(host, 100 * n + 5, 2, "op", op=OpClass.HOST)
        kernel = build.slice(stream, 120 * n + 60, 120, "k", op=OpClass.COMPUTE)
        build.flow(call, kernel, "launch")
    steps = _passed(build.finish()).steps
    assert steps.device_spans.tolist() == [[0, 180], [180, 300], [300, 420]]
    assert steps.computing_ns.tolist() == [120, 120, 120]
    assert utilisation(steps.free_ns, steps.known_ns).max() == 100


def test_the_whole_range_takes_work_without_a_launch(build):
    """11 of 22 have a launch: the step, and the rank, compute for 22."""
    call = build.slice(build.track(Layer.HOST, "Thread 1", thread=1), 0, 100, "op", op=OpClass.HOST)
    _, kernel = _kernels(build, (10, 21), (60, 71))
    build.flow(call, kernel, "launch")
    trace = _passed(build.finish())
    assert trace.steps.computing_ns.tolist() == [22] == [trace.overlap.sums_ns.computing]
    assert trace.steps.device_spans.tolist() == [[10, 71]]
    assert trace.steps.known_ns.tolist() == [61] == [trace.overlap.sums_ns.known]


def test_numbers_of_steps_may_start_over(build):
    """Two epochs of three steps: all six, each with its window and its own work."""
    _marks(build, (1, 0, 100), (2, 100, 200), (3, 200, 300))
    _marks(build, (1, 1000, 1090), (2, 1100, 1200), (3, 1200, 1310))
    _kernels(build, *((start + 10, start + 20 + start // 100) for start in (0, 100, 200)))
    _kernels(build, *((start + 10, start + 20 + start // 100) for start in (1000, 1100, 1200)))
    steps = _passed(build.finish()).steps
    assert (steps.step.tolist(), steps.window.tolist()) == ([1, 2, 3] * 2, [1] * 3 + [2] * 3)
    assert steps.computing_ns.tolist() == [10, 11, 12, 20, 21, 22]


def test_rows_with_a_number_belong_to_the_step_of_their_time(build):
    """The source numbers device rows itself: of steps 1 the last that had begun."""
    _marks(build, (1, 0, 100), (1, 1000, 1100))
    stream = build.track(Layer.DEVICE, "Stream 1")
    for start, length in ((10, 5), (1010, 7), (1050, 2)):
        build.slice(stream, start, length, "k", op=OpClass.COMPUTE, step=1)
    assert _passed(build.finish()).steps.computing_ns.tolist() == [5, 9]


def test_marks_of_other_threads_are_no_further_steps(build):
    """A thread that prefetches marks the same numbers, at other times."""
    _marks(build, (1, 0, 100), (2, 100, 200))
    other = build.track(Layer.HOST, "Thread 2", thread=2)
    build.slice(other, 10, 60, "ProfilerStep#2", op=OpClass.HOST, step=2)
    build.slice(other, 90, 0, "ProfilerStep#1", op=OpClass.HOST, step=1)
    assert _passed(build.finish()).steps.start_ns.tolist() == [0, 100]


def test_what_was_recorded_of_each_layer(build):
    """From the first start to the last end, in every collection window."""
    _marks(build, (1, 0, 100), (2, 1000, 1100))
    _kernels(build, (10, 50), (1010, 1020))
    build.window(0, 200)
    build.window(900, 1200)
    layers = _passed(build.finish()).coverage.layers
    assert layers[Layer.DEVICE] == ((10, 50), (1010, 1020))
    assert layers[Layer.HOST] == ((0, 100), (1000, 1100))


def test_nothing_is_measured_where_nothing_is_known(build):
    """No steps, no share."""
    trace = _passed(_iterations(build, 2).finish())
    assert (trace.coverage.recorded, trace.coverage.text) == (0, "")
    assert len(measured(trace.steps)) == 0
    assert np.isnan(utilisation([0, UNKNOWN, 5], [0, UNKNOWN, UNKNOWN])).all()


def test_a_wait_takes_no_work_from_the_next_step(build):
    """It begins in one step, and ends with what it waited for in another."""
    build.hints.vendor = "ascend"
    _marks(build, (3, 0, 100), (4, 100, 200))
    _kernels(build, (10, 30), (110, 140))
    waiting = build.track(Layer.DEVICE, "Stream 9")
    build.slice(waiting, 10, 180, "EVENT_WAIT", op=OpClass.WAIT)
    assert _passed(build.finish()).steps.computing_ns.tolist() == [20, 30]


def test_a_whole_range_ends_with_its_last_wait(build):
    """No later step can be what it waits for: its figures are those of the rank."""
    build.hints.vendor = "ascend"
    _kernels(build, (0, 30))
    build.slice(build.track(Layer.DEVICE, "Stream 9"), 30, 100, "EVENT_WAIT", op=OpClass.WAIT)
    trace = _passed(build.finish())
    assert (trace.steps.known_ns.tolist(), trace.steps.free_ns.tolist()) == ([130], [100])
