"""Waiting for input: which ranges mean it, whose they are, and when nothing is known."""

import numpy as np
import pytest
from rule_cases import MS, US, builder, passed, side_table

from traceconv.core.model import UNKNOWN, Covered, Layer, OpClass
from traceconv.passes.input_wait import fetches, input_spans, is_input

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.parametrize(
    "name",
    [
        FETCH,
        "torch/utils/data/dataloader.py(625): __next__",
        "_DataLoaderIterMultiProcess",
        "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
        "## data_load ##", "DataLoader", "dataloader next", "Data loading", "data_wait",
        "batch load", "train data loader", "load_data", "get_batch", "fetch next batch",
        "waiting for data", "Input-Wait",
    ],
)  # fmt: skip
def test_names_that_mean_fetching_input(name):
    """Of frameworks, and as users call their ranges."""
    assert is_input(name)


@pytest.mark.parametrize(
    "name",
    [
        "torch/utils/data/dataloader.py(1119): _try_get_data", "DataLoader.__init__",
        "aten::index", "data_parallel", "load_state_dict", "batch_norm", "input_projection",
        "next", "reload_database_index", "dataloader.py(33): _worker_loop", "time", "get_rank",
    ],
)  # fmt: skip
def test_names_that_do_not(name):
    """Inner frames, which ``__next__`` holds, and words alike."""
    assert not is_input(name)


def _steps(build, *lengths, kernel=(40, 100)):
    """Marked steps with one kernel each, us; and the track of the thread that launches them."""
    host, calls = (
        build.track(layer, "Thread 1", thread=1) for layer in (Layer.HOST, Layer.RUNTIME)
    )
    stream, at = build.track(Layer.DEVICE, "Stream 1"), 0
    for number, length in enumerate(lengths, 1):
        build.slice(host, at * US, length * US, f"Step {number}", op=OpClass.HOST, step=number)
        start, end = kernel
        call = build.slice(calls, (at + start) * US, US, "cudaLaunchKernel")
        work = build.slice(stream, (at + start) * US, (end - start) * US, "k", op=OpClass.COMPUTE)
        build.flow(call, work, "ac2g")
        at += length
    return host


def _waits(build):
    return passed(build).steps.input_wait_ns.tolist()


def test_only_idle_time_is_waiting():
    """A fetch from 10 to 60 us, of which the kernel hides what is after 40; none in step 2."""
    build = builder()
    host = _steps(build, 100, 100)
    build.slice(host, 10 * US, 50 * US, FETCH, op=OpClass.HOST)
    assert _waits(build) == [30 * US, 0]


def test_ranges_that_overlap_count_once():
    """The frame of Python and the range around it."""
    build = builder()
    host = _steps(build, 100)
    build.slice(host, 5 * US, 20 * US, FETCH, op=OpClass.HOST)
    name = "torch/utils/data/dataloader.py(625): __next__"
    build.slice(host, 10 * US, 20 * US, name, op=OpClass.HOST)
    assert _waits(build) == [25 * US]


def test_a_thread_that_fetches_ahead_keeps_nobody_waiting():
    """It launches nothing; that of the loop does. Where nobody launches, all threads count."""
    build = builder()
    _steps(build, 100)
    ahead = build.track(Layer.HOST, "Thread 2", thread=2)
    build.slice(ahead, 0, 30 * US, FETCH, op=OpClass.HOST)
    assert _waits(build) == [UNKNOWN]
    build = builder()
    build.slice(build.track(Layer.HOST, "Thread 2", thread=2), 0, 30 * US, FETCH, op=OpClass.HOST)
    kernel = build.track(Layer.DEVICE, "Stream 1")
    for at in (0, 40 * US):
        build.slice(kernel, at, 10 * US, "k", op=OpClass.COMPUTE)
    assert _waits(build) == [20 * US]


def test_without_a_source_it_is_unknown():
    """Which is not 0."""
    build = builder()
    _steps(build, 100, 100)
    assert _waits(build) == [UNKNOWN, UNKNOWN]


def test_steps_the_host_was_not_recorded_in_are_unknown():
    """Iterations of a graph, of which the host saw the second only."""
    build = builder()
    lane, host = build.track(Layer.STEP, "Model 1"), build.track(Layer.HOST, "Thread 1", thread=1)
    stream = build.track(Layer.DEVICE, "Stream 1")
    for number in range(2):
        at = number * 100 * US
        build.slice(lane, at, 100 * US, "it", op=OpClass.ITERATION, graph=1, step=number)
        build.slice(stream, at + 50 * US, 50 * US, "k", op=OpClass.COMPUTE, graph=1)
    build.slice(host, 110 * US, 20 * US, FETCH, op=OpClass.HOST)
    assert _waits(build) == [UNKNOWN, 20 * US]


def _graph(build, op, name):
    lane, cpu = build.track(Layer.STEP, "Model 1"), build.track(Layer.DEVICE, "Stream 2")
    stream = build.track(Layer.DEVICE, "Stream 1")
    for number in range(2):
        at = number * 110 * US
        common = {"graph": 1, "step": number}
        build.slice(lane, at, 100 * US, "it", op=OpClass.ITERATION, **common)
        build.slice(cpu, at, 30 * US, name, op=op, **common)
        build.slice(stream, at + 20 * US, 80 * US, "k", op=OpClass.COMPUTE, **common)
    return build


def test_the_device_says_so_itself():
    """GetNext of 30 us, of which a kernel hides ten; one that computes is no waiting."""
    build = _graph(builder(), OpClass.WAIT, "Default/GetNext-op12")
    assert (fetches(passed(build)).sum(), _waits(build)) == (2, [20 * US] * 2)
    assert passed(build).steps.pause_ns.tolist() == [UNKNOWN, 10 * US]
    build = _graph(builder(), OpClass.COMPUTE, "GetNextElement")
    assert _waits(build) == [0, 0]


def test_fetches_of_the_queue_table_count():
    """Where the timeline has none of them, for the steps between the first and the last."""
    build = _graph(builder(), OpClass.OTHER, "k")
    table = {"start(us)": [5 * US, 105 * US], "end(us)": [15 * US, 118 * US]}
    side_table(build, "minddata_aicpu", op=["GetNext"] * 2, queue_size=[0, 0], **table)
    trace = passed(build)
    assert np.array_equal(input_spans(trace), [[5 * US, 15 * US], [105 * US, 118 * US]])
    assert trace.steps.input_wait_ns.tolist() == [10 * US, 8 * US]


def test_a_table_that_cannot_be_read_costs_nothing_else():
    """Whoever shows it says why."""

    def load():
        from traceconv.core.errors import MalformedInputError

        raise MalformedInputError("f", "", "broken")

    build = _graph(builder(), OpClass.WAIT, "GetNext")
    build.side_table("minddata_aicpu", "f", load)
    assert _waits(build) == [20 * US] * 2


def test_preparing_counts_once():
    """Of steps that wait 40 ms for a batch, compute for 50 and then wait for the device: Free, as
    it is counted where it begins, has the waiting of the next step, and the last one has none."""
    build = builder(vendor="ascend")
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    build.slice(build.track(Layer.RUNTIME, "Thread 1", thread=1), 10, 5, "launch")
    for step in range(3):
        build.slice(host, 90 * step * MS, 90 * MS, "s", op=OpClass.HOST, step=step)
    columns = {"Computing": [50] * 3, "Communication": [0] * 3, "Free": [40, 40, 0],
               "Communication(Not Overlapped)": [0] * 3, "Preparing": [40] * 3}  # fmt: skip
    times = {f"{name}(us)": [n * MS for n in column] for name, column in columns.items()}
    steps = passed(side_table(build, "step_trace_time", Step=[0, 1, 2], **times)).steps
    found = [getattr(steps, name) // MS for name in ("known_ns", "free_ns", "input_wait_ns")]
    assert [column.tolist() for column in found] == [[130, 90, 50], [80, 40, 0], [40, 40, 0]]
    assert int(found[0].sum()) == 3 * 90


def test_preparing_of_the_vendors_table_is_idle_and_waiting():
    """Of steps without device rows; the step is as much longer."""
    build = builder(vendor="ascend")
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    build.slice(build.track(Layer.RUNTIME, "Thread 1", thread=1), 10, 5, "launch")
    build.slice(host, 0, 9 * MS, "ProfilerStep#1", op=OpClass.HOST, step=1)
    columns = ("Computing", "Communication", "Communication(Not Overlapped)", "Free", "Preparing")
    times = dict(zip((f"{name}(us)" for name in columns), ([n * MS] for n in (5, 1, 1, 1, 2)),
                     strict=True))  # fmt: skip
    steps = passed(side_table(build, "step_trace_time", Step=[1], **times)).steps
    assert steps.covered.tolist() == [Covered.VENDOR_TABLE]
    found = [getattr(steps, name).tolist() for name in ("input_wait_ns", "free_ns", "known_ns")]
    assert found == [[2 * MS], [3 * MS], [9 * MS]]


def test_lanes_of_the_source_are_no_further_device():
    """The profiler's own lanes name their device; they are replaced, and waiting counts once."""
    build = builder()
    host = _steps(build, 100)
    own = build.track(Layer.OVERLAP, "Computing", "NPU 0", device=0, device_kind="NPU")
    build.slice(own, 40 * US, 60 * US, "Computing", op=OpClass.COMPUTING)
    build.slice(host, 10 * US, 15 * US, FETCH, op=OpClass.HOST)
    assert _waits(build) == [15 * US]
