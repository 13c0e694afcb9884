"""The step trace: lanes and names, where steps come from, which rows belong to which."""

import pytest

from traceconv.analysis.tables.step import step_trace_time
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import UNKNOWN, Capture, Covered, Layer, OpClass, StepSource, StepTable
from traceconv.core.side_tables import ABSENT
from traceconv.io.sources import FileSource
from traceconv.passes.attribution import attribution
from traceconv.passes.overlap import overlap
from traceconv.passes.places import Device
from traceconv.passes.steps import steps


@pytest.fixture
def build(tmp_path):
    """A builder for rank 0."""
    return TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0))


def _rows(trace, layer):
    """(lane, name, start, end) of a layer, in table order."""
    events = trace.events.take(trace.rows_of(layer))
    return [
        (trace.tracks[t].name, trace.strings[n], s, e)
        for t, n, s, e in zip(
            events.track.tolist(),
            events.name.tolist(),
            events.start_ns.tolist(),
            events.end_ns.tolist(),
            strict=True,
        )
    ]


def _step_of(trace):
    return {trace.strings[n]: s for n, s in zip(trace.events.name, trace.events.step, strict=True)}


def _iteration(build, graph, n, start, end):
    track = build.track(Layer.STEP, f"Model ID:{graph}", sort=graph)
    build.slice(
        track, start, end - start, f"Iteration {n}", op=OpClass.ITERATION, graph=graph, step=n
    )
    build.slice(track, start + 2, 3, f"FP_BP Time {n}", op=OpClass.FP_BP, graph=graph, step=n)


@pytest.fixture
def two_graphs(build):
    """Graph 2 runs twice with a pause of 10, graph 5 once, crossing the second run."""
    _iteration(build, 2, 1, 0, 20)
    _iteration(build, 2, 2, 30, 50)
    _iteration(build, 5, 1, 40, 60)
    return build.finish()


def test_merged_graphs_share_a_lane_and_say_their_model(two_graphs):
    """Iterations are renamed, other slices are not, and none is lost."""
    assert _rows(steps(two_graphs), Layer.STEP) == [
        ("iterations", "Model 2 Iteration 1", 0, 20),
        ("iterations", "FP_BP Time 1", 2, 5),
        ("iterations", "Iteration Interval 2", 20, 30),
        ("iterations", "Model 2 Iteration 2", 30, 50),
        ("iterations", "FP_BP Time 2", 32, 35),
        ("iterations", "Model 5 Iteration 1", 40, 60),
        ("iterations", "FP_BP Time 1", 42, 45),
    ]


def test_split_graphs_have_a_lane_each_and_keep_their_names(two_graphs):
    """The pause stands on the lane of the iteration that follows it."""
    assert _rows(steps(two_graphs, merge_graphs=False), Layer.STEP) == [
        ("Model 2", "Iteration 1", 0, 20),
        ("Model 2", "FP_BP Time 1", 2, 5),
        ("Model 2", "Iteration Interval 2", 20, 30),
        ("Model 2", "Iteration 2", 30, 50),
        ("Model 2", "FP_BP Time 2", 32, 35),
        ("Model 5", "Iteration 1", 40, 60),
        ("Model 5", "FP_BP Time 1", 42, 45),
    ]


def test_lanes_of_graphs_sort_by_number(build):
    """Graph 10 comes after graph 9, whatever the order in the file."""
    _iteration(build, 10, 1, 0, 9)
    _iteration(build, 9, 1, 10, 19)
    lanes = dict.fromkeys(lane for lane, *_ in _rows(steps(build.finish(), False), Layer.STEP))
    assert list(lanes) == ["Model 9", "Model 10"]


def test_pauses_are_not_made_twice(two_graphs):
    """Laying out what is laid out already adds nothing."""
    once = steps(two_graphs)
    assert _rows(steps(once), Layer.STEP) == _rows(once, Layer.STEP)


def test_pauses_are_booked(two_graphs):
    """What the pass adds stands in the ledger."""
    assert steps(two_graphs).ledger["steps", "slice"] == 1


def test_steps_of_the_host_stand_in(build):
    """Without a step trace the framework's marks make one; the marks themselves stay."""
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    for n in (3, 4):
        build.slice(host, 100 * n, 90, f"ProfilerStep#{n}", op=OpClass.HOST, step=n)
    trace = steps(build.finish())
    expected = [
        ("iterations", "ProfilerStep#3", 300, 390),
        ("iterations", "ProfilerStep#4", 400, 490),
    ]
    assert _rows(trace, Layer.STEP) == expected
    assert len(_rows(trace, Layer.HOST)) == 2
    assert trace.issues.count("steps-from-host") == 2


def test_a_mark_on_several_threads_is_one_step(build):
    """The longest of the rows that carry a step's number is the step."""
    for name, dur in (("Thread 1", 50), ("Thread 2", 90)):
        build.slice(
            build.track(Layer.HOST, name), 0, dur, "ProfilerStep#1", op=OpClass.HOST, step=1
        )
    assert _rows(steps(build.finish()), Layer.STEP) == [("iterations", "ProfilerStep#1", 0, 90)]


def _range(build, lane, start, end, name, step=-1):
    track = build.track(Layer.HOST, lane)
    build.slice(track, start, end - start, name, op=OpClass.HOST, step=step)


@pytest.mark.parametrize(
    "names",
    [
        ("execute_context_1(888_788544)_generation_0(0)", "execute_new_0_cached_12"),
        ("execute_32_context_0(sq0sk0)_generation_32(sq32sk32785)", "execute_new_1_cached_0"),
        ("step[EXTEND bs=1 toks=107]", "step[TARGET_VERIFY bs=2]"),
    ],
)
def test_passes_of_a_server_are_steps(build, names):
    """They have no numbers, and get them by time, whatever the order of rows."""
    _range(build, "Thread 1", 50, 60, names[1])
    _range(build, "Thread 1", 10, 40, names[0])
    _range(build, "Thread 1", 12, 30, names[0])  # one inside of another is no step of its own
    trace = attribution(steps(build.finish()))
    assert _rows(trace, Layer.STEP) == [
        ("iterations", names[0], 10, 40),
        ("iterations", names[1], 50, 60),
    ]
    assert trace.steps.step.tolist() == [0, 1]
    assert trace.issues.count("steps-by-time") == 2


@pytest.mark.parametrize(
    "name",
    [
        "execute_model",
        "execute_contexts",
        "step[decode",
        "step[DECODE]",
        "re-execute_new_1_cached_2",
    ],
)
def test_names_like_those_of_servers_are_no_steps(build, name):
    """The whole name counts."""
    _range(build, "Thread 1", 10, 40, name)
    assert steps(build.finish()).issues.count("no-steps") == 1


def test_numbered_marks_come_before_those_of_servers(build):
    """A training loop that serves a batch in between keeps its steps."""
    _range(build, "Thread 1", 0, 100, "ProfilerStep#3", step=3)
    _range(build, "Thread 1", 10, 40, "step[DECODE bs=1]")
    assert _rows(steps(build.finish()), Layer.STEP) == [("iterations", "ProfilerStep#3", 0, 100)]


def test_a_marker_names_the_steps(build):
    """By the number in its first group; the longest of a number; a number may come back later."""
    for lane, start, end, name in [
        ("Thread 1", 0, 50, "batch 7 begins"),
        ("Thread 1", 60, 90, "batch 8"),
        ("Thread 2", 10, 20, "batch 7"),
        ("Thread 2", 200, 230, "batch 7"),
        ("Thread 1", 100, 110, "batch"),
    ]:
        _range(build, lane, start, end, name)
    trace = attribution(steps(build.finish(), step_marker=r"^batch (\d+)"))
    assert _rows(trace, Layer.STEP) == [
        ("iterations", "batch 7 begins", 0, 50),
        ("iterations", "batch 8", 60, 90),
        ("iterations", "batch 7", 200, 230),
    ]
    assert trace.steps.window.tolist() == [1, 1, 2]
    assert not trace.issues.count("steps-by-time")


def test_a_marker_without_a_group_counts_by_time(build):
    """Of two threads at the same time the one that has more of them."""
    for start in (100, 0, 50):
        _range(build, "Thread 2", start, start + 40, "work")
    _range(build, "Thread 1", 10, 20, "work")
    _range(build, "Thread 1", 140, 150, "work")
    trace = attribution(steps(build.finish(), step_marker="wor"))
    assert trace.steps.step.tolist() == [0, 1, 2, 3]
    assert trace.steps.start_ns.tolist() == [0, 50, 100, 140]
    assert trace.issues.count("steps-by-time") == 4


def test_a_marker_replaces_what_the_source_marks(build):
    """Rows of its step trace leave, and are told of; work belongs to the new steps."""
    _iteration(build, 1, 5, 0, 100)
    kernels = build.track(Layer.DEVICE, "Stream 1")
    build.slice(kernels, 20, 5, "a", op=OpClass.COMPUTE, step=5, graph=1)
    build.slice(kernels, 70, 5, "b", op=OpClass.COMPUTE, step=5, graph=1)
    _range(build, "Thread 1", 10, 40, "part 1")
    _range(build, "Thread 1", 60, 80, "part 2")
    _range(build, "Thread 1", 0, 100, "ProfilerStep#5", step=5)
    before = build.finish()
    trace = attribution(steps(before, step_marker=r"part (\d)"))
    assert _rows(trace, Layer.STEP) == [
        ("iterations", "part 1", 10, 40),
        ("iterations", "part 2", 60, 80),
    ]
    assert {n: s for n, s in _step_of(trace).items() if n in "ab"} == {"a": 1, "b": 2}
    gone = int(before.rows_of(Layer.STEP).sum())
    assert trace.issues.count("steps-replaced") == gone == 2
    assert trace.ledger["steps", "slice"] == 2 - gone


def test_a_marker_of_the_steps_that_the_source_marks_is_matched(build):
    """They are the steps already."""
    own = build.track(Layer.STEP, "iterations")
    build.slice(own, 0, 90, "step 5", op=OpClass.ITERATION, step=5)
    trace = steps(build.finish(), step_marker=r"^step (\d+)")
    assert not trace.issues.count("step-marker-unmatched")


def test_a_marker_that_finds_nothing_changes_nothing(build):
    """It is told, and the source's own steps stay; so it is where no number is one."""
    _range(build, "Thread 1", 0, 90, "ProfilerStep#5", step=5)
    _range(build, "Thread 1", 10, 20, "part 99999999999")
    _range(build, "Thread 1", 30, 40, "part \u0664")
    trace = steps(build.finish(), step_marker=r"part (\S+)")
    assert _rows(trace, Layer.STEP) == [("iterations", "ProfilerStep#5", 0, 90)]
    assert trace.issues.count("step-marker-number") == 2
    assert trace.issues.count("step-marker-unmatched") == 1


def test_without_any_marks_the_whole_range_is_one_step(build):
    """It reaches from the first start to the last end, and an issue says so."""
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 10, 5, "a", op=OpClass.COMPUTE)
    build.slice(build.track(Layer.DEVICE, "Stream 2"), 12, 30, "b", op=OpClass.COMPUTE)
    trace = steps(build.finish())
    assert _rows(trace, Layer.STEP) == [("iterations", "Whole range", 10, 42)]
    assert trace.issues.count("no-steps") == 1


def test_a_rank_without_events_gets_no_step(build):
    """Nothing in, nothing out."""
    trace = attribution(steps(build.finish()))
    assert (len(trace.events), len(trace.steps), len(trace.issues)) == (0, 0, 0)


def test_device_rows_belong_to_the_iteration_they_begin_in(build):
    """By graph and time; a task between iterations belongs to none."""
    _iteration(build, 2, 1, 0, 20)
    _iteration(build, 2, 2, 30, 50)
    stream = build.track(Layer.DEVICE, "Stream 1")
    for name, at, graph in (("a", 5, 2), ("b", 25, 2), ("c", 49, -1), ("d", 33, 8)):
        build.slice(stream, at, 5, name, op=OpClass.COMPUTE, graph=graph)
    found = _step_of(attribution(steps(build.finish())))
    assert {k: found[k] for k in "abcd"} == {"a": 1, "b": -1, "c": 2, "d": -1}


def test_with_several_graphs_a_row_without_one_belongs_to_none(build):
    """Only rows that name their graph can be told apart."""
    stream = build.track(Layer.DEVICE, "Stream 1")
    build.slice(stream, 44, 1, "five", op=OpClass.COMPUTE, graph=5)
    build.slice(stream, 46, 1, "any", op=OpClass.COMPUTE)
    _iteration(build, 2, 1, 40, 60)
    _iteration(build, 5, 7, 40, 60)
    found = _step_of(attribution(steps(build.finish())))
    assert (found["five"], found["any"]) == (7, -1)


def _launched(build):
    """Two host steps of 100; each kernel runs 80 after its launch."""
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    for n in (1, 2):
        at = 100 * n
        build.slice(host, at, 100, f"ProfilerStep#{n}", op=OpClass.HOST, step=n)
        launch = build.slice(host, at + 30, 5, f"launch {n}", op=OpClass.HOST)
        kernel = build.slice(stream, at + 110, 60, f"kernel {n}", op=OpClass.COMPUTE)
        build.flow(launch, kernel, "async_npu")
    build.slice(stream, 240, 5, "copy", op=OpClass.COPY)
    build.slice(stream, 20, 5, "early", op=OpClass.COPY)
    return build


def test_device_rows_belong_to_the_step_that_launched_them(build):
    """The device lags behind: arrows decide, then the time of the device's own work."""
    found = _step_of(attribution(steps(_launched(build).finish())))
    expected = {"kernel 1": 1, "kernel 2": 2, "copy": 1, "early": -1}
    assert {name: found[name] for name in expected} == expected


def test_the_table_of_steps_holds_them_and_their_device_work(build):
    """Device windows tile time: from the step, or the end of the window before, to the last row."""
    trace = attribution(steps(_launched(build).finish()))
    expected = {
        "graph": [-1, -1], "step": [1, 2], "source": [StepSource.HOST_MARKS] * 2,
        "start_ns": [100, 200], "dur_ns": [100, 100],
        "device_start_ns": [100, 270], "device_dur_ns": [170, 100], "work_start_ns": [210, 310],
        "window": [1, 1], "covered": [Covered.TIMELINE] * 2,
        **{name: [UNKNOWN] * 2 for name in StepTable.LENGTHS},
    }  # fmt: skip
    assert {name: c.tolist() for name, c in trace.steps.columns().items()} == expected
    assert (trace.present.steps.tolist(), trace.present.iterations) == ([1, 2], 2)


def test_calls_decide_only_where_operators_do_not(build):
    """An arrow from an operator in step 1 goes before one from a call made in step 2."""
    host, calls = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.RUNTIME, "CANN 1"),
    )
    for n in (1, 2):
        build.slice(host, 100 * n, 100, f"ProfilerStep#{n}", op=OpClass.HOST, step=n)
    operator = build.slice(host, 190, 5, "operator", op=OpClass.HOST)
    call = build.slice(calls, 205, 5, "call", op=OpClass.HOST)
    kernel = build.slice(
        build.track(Layer.DEVICE, "Stream 1"), 220, 9, "kernel", op=OpClass.COMPUTE
    )
    build.flow(call, kernel, "HostToDevice")
    build.flow(operator, kernel, "async_npu")
    assert _step_of(attribution(steps(build.finish())))["kernel"] == 1


def test_the_table_of_steps_says_where_their_borders_come_from(build, two_graphs):
    """Recorded, also where no pass made them; or the whole range."""
    for trace in (attribution(two_graphs), attribution(steps(two_graphs))):
        assert trace.steps.source.tolist() == [StepSource.RECORDED] * 3
    build = TraceBuilder(build.capture)
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 10, 5, "a", op=OpClass.COMPUTE)
    assert steps(build.finish()).steps.source.tolist() == [StepSource.WHOLE_RANGE]


def test_windows_may_mark_steps_in_different_ways(build):
    """The first has a lane of steps, the second marks of the host: steps of one number in both."""
    _iteration(build, -1, 7, 0, 100)
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    build.slice(host, 5, 80, "ProfilerStep#7", op=OpClass.HOST, step=7)
    build.slice(host, 1000, 90, "ProfilerStep#7", op=OpClass.HOST, step=7)
    build.window(0, 200)
    build.window(900, 1200)
    found = steps(build.finish()).steps
    assert list(zip(found.step, found.window, found.start_ns, found.dur_ns, strict=True)) == [
        (7, 1, 0, 100), (7, 2, 1000, 90),
    ]  # fmt: skip
    assert found.source.tolist() == [StepSource.RECORDED, StepSource.HOST_MARKS]


def test_the_main_graph_takes_most_of_the_time(two_graphs):
    """Graph 2 runs for 40, graph 5 for 20; of equal ones the first counts."""
    table = attribution(two_graphs).steps
    assert table.of_main_graph().step.tolist() == [1, 2]
    assert table.take([1, 2]).of_main_graph().graph.tolist() == [2]
    assert len(StepTable.empty().of_main_graph()) == 0


@pytest.fixture
def one_step(build):
    """The worked example of step times: a step from -4, its last communication a receive."""
    build.hints.vendor = "ascend"
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    comm = build.track(Layer.COMM, "Communication")
    build.slice(host, -4, 54, "ProfilerStep#1", op=OpClass.HOST, step=1)
    for start, end in ((0, 10), (8, 15), (30, 40)):
        build.slice(stream, start, end - start, "k", op=OpClass.COMPUTE)
    build.slice(comm, 12, 8, "hcom_allReduce__1", op=OpClass.COMM)
    build.slice(comm, 35, 15, "hcom_receive__1", op=OpClass.COMM)
    return overlap(attribution(steps(build.finish())))


def _row(columns):
    """The only row of a table."""
    return {key: value for key, [value] in ((k, c.tolist()) for k, c in columns.items())}


def test_step_times_of_the_torch_style(one_step):
    """Every column of the worked example."""
    assert _row(step_trace_time(one_step)) == {
        "graph": -1, "step": 1, "computing_ns": 25, "communication_ns": 23,
        "not_overlapped_ns": 15, "overlapped_ns": 8, "free_ns": 10, "bubble_ns": 15,
        "stage_ns": 35, "exclude_receive_ns": 0, "preparing_ns": 4,
    }  # fmt: skip


def test_step_times_of_the_mindspore_style(one_step):
    """The stage is that of communication alone: 12 to 50, less the bubble."""
    row = _row(step_trace_time(one_step, "mindspore"))
    assert (row["stage_ns"], row["free_ns"], row["exclude_receive_ns"]) == (23, 10, 0)


def test_step_times_of_each_of_several_devices(build):
    """Devices are told apart by kind and number; a receive that names none is of each of them."""
    build.hints.vendor = "ascend"
    for kind, number, length in (("NPU", 0, 10), ("NPU", 1, 20), ("GPU", 1, 30)):
        stream = build.track(Layer.DEVICE, "Stream 1", device=number, device_kind=kind)
        build.slice(stream, 0, length, "k", op=OpClass.COMPUTE)
    comm = build.track(Layer.COMM, "Communication")
    build.slice(comm, 25, 15, "hcom_receive__1", op=OpClass.COMM)
    trace = overlap(attribution(steps(build.finish())))
    named = ("computing_ns", "not_overlapped_ns", "bubble_ns", "stage_ns")
    for device, figures in (
        (Device("NPU", 0), [10, 15, 15, 25]),
        (Device("NPU", 1), [20, 15, 15, 25]),
        (Device("GPU", 1), [30, 10, 15, 25]),
    ):
        row = _row(step_trace_time(trace, device=device))
        assert [row[key] for key in named] == figures


def test_step_times_without_marks_cover_everything(build):
    """One row that names no step; without the host nobody knows when it was prepared."""
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 0, 9, "k", op=OpClass.COMPUTE)
    row = _row(step_trace_time(overlap(attribution(steps(build.finish())))))
    figures = [row[key] for key in ("step", "computing_ns", "stage_ns", "preparing_ns")]
    assert figures == [ABSENT, 9, 9, ABSENT]


def test_phases_marked_on_the_host_become_the_step_trace(build):
    """Forward/backward and tail, as Ascend names them; a step without both has neither."""
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    for n in (1, 2):
        build.slice(host, 100 * n, 90, f"iter_{n}", op=OpClass.HOST, step=n)
    build.slice(host, 110, 20, "forward", op=OpClass.HOST)
    build.slice(host, 140, 30, "backward", op=OpClass.HOST)
    build.slice(host, 175, 10, "optimizer", op=OpClass.HOST)
    build.slice(host, 210, 20, "forward", op=OpClass.HOST)
    trace = steps(build.finish())
    assert _rows(trace, Layer.STEP) == [
        ("iterations", "iter_1", 100, 190),
        ("iterations", "Forward+backward 1", 110, 170),
        ("iterations", "After backward 1", 170, 190),
        ("iterations", "iter_2", 200, 290),
    ]
    ops = [OpClass.ITERATION, OpClass.FP_BP, OpClass.TAIL, OpClass.ITERATION]
    assert trace.events.op[trace.rows_of(Layer.STEP)].tolist() == ops


def test_a_capture_may_have_several_whole_ranges(build):
    """As in a damaged output of ours that holds them twice; the last one has all device work."""
    lane = build.track(Layer.STEP, "iterations")
    for start in (0, 10):
        build.slice(lane, start, 50, "Whole range", op=OpClass.ITERATION, step=0)
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 20, 5, "a", op=OpClass.COMPUTE, step=0)
    build.hints.made_steps = "whole"
    found = attribution(build.finish()).steps
    assert found.source.tolist() == [StepSource.WHOLE_RANGE] * 2
    assert found.work_start_ns.tolist() == [0, 20]
    assert (found.device_start_ns + found.device_dur_ns).tolist() == [50, 50]
