"""Tables, each formula on a trace small enough to reckon by hand. Times of the traces are ns."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

import traceconv
from traceconv.analysis.rank_summary import decode, encode
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.analysis.tables.catalog import BY, FILES, TABLES, chosen, tables
from traceconv.analysis.tables.groups import Groups, mean, pooled
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import OptionError
from traceconv.core.model import Capture, Layer, OpClass, TrackKind
from traceconv.core.side_tables import ABSENT
from traceconv.io.sources import FileSource
from traceconv.passes import compose


def _builder(rank=0, reader="test"):
    source = FileSource(Path("x"), "x")
    return TraceBuilder(Capture(reader, source, ("x",), rank=rank, device=0))


@pytest.fixture
def build():
    """A builder for rank 0."""
    return _builder()


def _passed(build):
    trace = build.finish()
    for one in compose("detail", scope=True):
        trace = one(trace)
    return trace


def summary(trace, *names):
    """What some tables need of a rank."""
    return summarize(trace, SummaryRequest(tables=names))


def _result(name, *builders, top=None):
    """One table of some ranks."""
    found = tables([summary(_passed(b), name) for b in builders], top)
    return next(result for result in found if result.table.name == name)


def _table(name, *builders, top=None):
    """Rows of one table as dictionaries."""
    result = _result(name, *builders, top=top)
    columns = {heading: column.tolist() for heading, column in result.data.columns.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _only(rows, *headings):
    return [tuple(row[heading] for heading in headings) for row in rows]


# -- steps and overlap --------------------------------------------------------------------


def _steps(build, *lengths):
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    start = 0
    for n, length in enumerate(lengths):
        build.slice(host, start, length, f"ProfilerStep#{n}", op=OpClass.HOST, step=n)
        start += length
    return build


def test_mean_and_spread_of_step_times(build):
    """Three steps of 10, 20 and 30: mean 20, standard deviation 8.16, spread 40.8 %."""
    (row,) = _table("step_summary", _steps(build, 10, 20, 30))
    assert (row["Count"], row["Mean(ns)"], row["Min(ns)"], row["Max(ns)"]) == (3, 20, 10, 30)
    assert row["Standard Deviation(ns)"] == 8
    assert row["Spread(%)"] == pytest.approx(40.8248, abs=1e-4)


def test_steps_of_all_ranks_together(build):
    """The job's row is that of the steps of all ranks, not the mean of the ranks' rows."""
    rows = _table("step_summary", _steps(build, 10, 20), _steps(_builder(1), 30, 40, 50))
    assert _only(rows, "Rank", "Count", "Mean(ns)", "Standard Deviation(ns)") == [
        (0, 2, 15, 5), (1, 3, 40, 8), (ABSENT, 5, 30, 14),
    ]  # fmt: skip


def _overlapping(build):
    """K = [0,15] [30,40], M = [12,20] [35,50], in a step from -4 to 50."""
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
    return build


def test_five_legends(build):
    """25 computing, 8 of it under communication; 15 of communication alone; 14 idle; 54 in all."""
    step, whole = _table("overlap", _overlapping(build))
    names = list(step)[3:9]
    assert [step[name] for name in names] == [25, 17, 8, 15, 14, 54]
    assert [whole[name] for name in names] == [25, 17, 8, 15, 14, 54]
    assert (step["Step"], whole["Step"]) == (1, ABSENT)
    shares = _only([step], "Compute(%)", "Exposed Communication(%)", "Idle(%)", "Utilization(%)")
    assert shares == [tuple(pytest.approx(100 * ns / 54) for ns in (25, 15, 14, 40))]


def test_legends_of_the_job_are_means_over_ranks(build):
    """A rank that computes 25 and one that computes 9, and waits for nothing."""
    other = _builder(1)
    other.slice(
        other.track(Layer.HOST, "Thread 1", thread=1),
        0,
        9,
        "ProfilerStep#1",
        op=OpClass.HOST,
        step=1,
    )
    other.slice(other.track(Layer.DEVICE, "Stream 1"), 0, 9, "k", op=OpClass.COMPUTE)
    rows = _table("overlap", _overlapping(build), other)
    job = [row for row in rows if row["Rank"] == ABSENT]
    assert _only(job, "Step", "Total Compute(ns)", "Communication Not Overlapped(ns)") == [
        (1, 17, 8), (ABSENT, 17, 8),
    ]  # fmt: skip


def test_the_vendors_columns(build):
    """The worked example of step_trace_time: stage 35, bubble 15, preparing 4."""
    (row,) = _table("step_trace_time", _overlapping(build))
    assert [row[name] for name in list(row)[3:]] == [
        25, 15, 8, 23, 10, 35, 15, 0, 4, 1, 0, "timeline",
    ]  # fmt: skip


def test_stages_are_shares_of_the_steps(build):
    """Forward and backward of a step of 90, half of its time."""
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    build.slice(host, 100, 90, "iter_1", op=OpClass.HOST, step=1)
    build.slice(host, 105, 20, "forward", op=OpClass.HOST)
    build.slice(host, 130, 20, "backward", op=OpClass.HOST)
    rows = _table("stage", build)
    assert _only(rows, "Stage", "Count", "Total Time(ns)", "Ratio(%)") == [
        ("Step", 1, 90, 100.0),
        ("Forward and Backward", 1, 45, 50.0),
        ("Tail", 1, 40, pytest.approx(44.444, abs=1e-3)),
    ]


def test_the_pause_before_a_step_lasts_until_its_forward_pass(build):
    """Iterations of a graph: 100 to 150, 170 to 220, whose forward pass begins at 175."""
    lane = build.track(Layer.STEP, "Model 1")
    for n, start in ((1, 100), (2, 170)):
        build.slice(lane, start, 50, f"Iteration {n}", op=OpClass.ITERATION, step=n, graph=1)
        build.slice(lane, start + 5, 20, f"FP_BP {n}", op=OpClass.FP_BP, step=n, graph=1)
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 110, 9, "k", op=OpClass.COMPUTE)
    assert [row["Data Aug Bound(ns)"] for row in _table("step", build)] == [ABSENT, 25]


# -- operators ----------------------------------------------------------------------------


def _launched(build):
    """aten::linear calls aten::mm, which launches two kernels; one more comes from nowhere."""
    build.hints.free_rule = "device"
    host, calls = (
        build.track(Layer.HOST, "Thread 7", thread=7),
        build.track(Layer.RUNTIME, "Thread 7", thread=7),
    )
    stream = build.track(Layer.DEVICE, "Stream 1", title="GPU Hardware", device_kind="GPU")
    build.slice(host, 0, 100, "aten::linear", op=OpClass.HOST)
    build.slice(host, 10, 60, "aten::mm", op=OpClass.HOST)
    for at, length in ((20, 7), (40, 5)):
        call = build.slice(calls, at, 3, "cudaLaunchKernel", op=OpClass.HOST)
        kernel = build.slice(stream, 100 + at, length, f"gemm_{at}", op=OpClass.COMPUTE)
        build.flow(call, kernel, "launch")
    build.slice(stream, 300, 8, "left_over", op=OpClass.COMPUTE)
    return build


def test_kernels_of_a_gpu_have_the_type_of_the_operator_that_launched_them(build):
    """The innermost one; a kernel without an arrow has none."""
    rows = _table("type", _launched(build))
    assert _only(rows, "OP Type", "Core Type", "Count", "Total Time(ns)", "Ratio(%)") == [
        ("aten::mm", "GPU", 2, 12, 60.0), ("", "GPU", 1, 8, 40.0),
    ]  # fmt: skip


def test_operations_of_xla_have_their_category(build):
    """On the kind of device of their lane; nothing is said where nothing says it."""
    build.hints.free_rule = "device"
    known = build.track(Layer.DEVICE, "XLA Ops", title="TPU Hardware", device_kind="TPU")
    other = build.track(Layer.DEVICE, "Lane")
    build.slice(known, 0, 9, "add.1", args={"hlo_category": "loop fusion"}, op=OpClass.COMPUTE)
    build.slice(other, 0, 5, "add.2", op=OpClass.COMPUTE)
    rows = _table("type", build)
    assert _only(rows, "OP Type", "Core Type") == [("loop fusion", "TPU"), ("", "")]


def test_host_operators_with_their_own_and_their_device_time(build):
    """What an operator calls is not its own time, and what is launched within is its device's."""
    rows = _table("op", _launched(build))
    assert _only(rows, "Operator", "Core Type", "Total Time(ns)", "Self Time(ns)") == [
        ("aten::linear", "Host CPU", 100, 40), ("aten::mm", "Host CPU", 60, 60),
    ]  # fmt: skip
    assert _only(rows, "Device Time(ns)", "Ratio(%)") == [(12, 62.5), (12, 37.5)]


def test_device_time_is_unknown_where_no_arrow_tells_it(build):
    """A capture of the host alone, and what several ranks add up to if it is one of them."""
    host = build.track(Layer.HOST, "Thread 7", thread=7)
    build.slice(host, 0, 100, "aten::linear", op=OpClass.HOST)
    rows = _table("op", build, _launched(_builder(1)))
    assert _only(rows, "Rank", "Operator", "Device Time(ns)") == [
        (0, "aten::linear", ABSENT), (1, "aten::linear", 12), (1, "aten::mm", 12),
        (ABSENT, "aten::linear", ABSENT), (ABSENT, "aten::mm", 12),
    ]  # fmt: skip


def test_what_is_put_into_a_queue_is_no_operator(build):
    """It takes nothing from the time of the operator that puts it there."""
    host = build.track(Layer.HOST, "Thread 7", thread=7)
    for name, start, length in (("Conv2D", 0, 50), ("Enqueue", 10, 5), ("Dequeue@Conv2D", 60, 9)):
        build.slice(host, start, length, name, op=OpClass.HOST)
    assert _only(_table("op", build), "Operator", "Self Time(ns)") == [("Conv2D", 50)]


def test_operators_of_an_npu_by_the_cores_they_ran_on(build):
    """Types and cores are those of the tasks' arguments."""
    build.hints.vendor = "ascend"
    stream = build.track(Layer.DEVICE, "Stream 1")
    for start, length, core in ((0, 5, "AI_CORE"), (10, 6, "AI_CORE"), (20, 9, "AI_CPU")):
        args = {"Op Type": "MatMul" if core == "AI_CORE" else "TopK", "Task Type": core}
        build.slice(stream, start, length, f"op{start}", op=OpClass.COMPUTE, args=args)
    rows = _table("type", build)
    timed = ("Count", "Total Time(ns)", "Min Time(ns)", "Avg Time(ns)", "Max Time(ns)", "Ratio(%)")
    assert _only(rows, "OP Type", "Core Type", *timed) == [
        ("MatMul", "AI_CORE", 2, 11, 5, 6, 6, 55.0), ("TopK", "AI_CPU", 1, 9, 9, 9, 9, 45.0),
    ]  # fmt: skip


def test_types_of_tasks_from_the_profilers_table(build):
    """By name and start, which tables round to 250 ns; its core goes before the timeline's."""
    build.hints.vendor = "ascend"
    stream = build.track(Layer.DEVICE, "Stream 1")
    args = {"Task Type": "AI_CORE"}
    build.slice(stream, 1007, 5, "op0", op=OpClass.COMPUTE, args=args)
    columns = {
        "Name": np.array(["op1", "op0"], object),
        "Start Time(ns)": np.array([1007, 1250]),
        "Type": np.array(["Add", "Mul"], object),
        "Accelerator Core": np.array(["AI_CORE", "AI_VECTOR_CORE"], object),
    }
    build.side_table("kernel_details", "kernel_details.csv", lambda: columns)
    assert _only(_table("type", build), "OP Type", "Core Type") == [("Mul", "AI_VECTOR_CORE")]


def test_shapes_by_step(build):
    """Two shapes of one operator in a step are two rows; calls are put into the step by time."""
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    _steps(build, 50, 50)
    for start, shape in ((5, [[2, 3]]), (15, [[2, 3]]), (25, [[4, 3]]), (55, [[2, 3]])):
        build.slice(host, start, 4, "aten::mm", op=OpClass.HOST, args={"Input Dims": shape})
    rows = _table("shape", build)
    assert _only(rows, "Step", "OP Type", "Input Shapes", "Count") == [
        (0, "aten::mm", "[[2,3]]", 2), (0, "aten::mm", "[[4,3]]", 1), (1, "aten::mm", "[[2,3]]", 1),
    ]  # fmt: skip


def test_flops_as_the_profiler_wrote_them(build):
    """A side table of MindSpore's."""
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 0, 5, "op", op=OpClass.COMPUTE)
    columns = {
        "full_kernel_name": np.array(["Default/Cast-op6"], object),
        "FLOPs": np.array([333.0]),
        "FLOPS": np.array([12]),
        "FLOPS utilization": np.array([ABSENT]),
    }
    build.side_table("flops", "flops_0.txt", lambda: columns)
    (row,) = _table("flops", build)
    assert (row["Operator"], row["FLOPs"], row["FLOPS"]) == ("Default/Cast-op6", 333.0, 12.0)
    assert np.isnan(row["Utilization(%)"])


# -- kernels, modules, phases -------------------------------------------------------------


def test_kernels_with_collectives_of_one_kind_together(build):
    """HCCL numbers its operations; the table does not."""
    comm = build.track(Layer.COMM, "Communication", "Group 0")
    build.slice(comm, 0, 30, "hcom_allReduce__586_0_1", op=OpClass.COMM)
    build.slice(comm, 40, 20, "hcom_allReduce__586_1_1", op=OpClass.COMM)
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 0, 50, "MatMul", op=OpClass.COMPUTE)
    rows = _table("kernel", build)
    assert sorted(_only(rows, "Kernel", "Kind", "Count", "Avg Time(ns)", "Ratio(%)")) == [
        ("MatMul", "compute", 1, 50, 50.0), ("hcom_allReduce", "communication", 2, 25, 50.0),
    ]  # fmt: skip


def test_copies_with_their_bandwidth(build):
    """300 bytes in 100 ns are 3 GB/s; without sizes nothing is known."""
    stream = build.track(Layer.DEVICE, "Stream 1")
    for start, size in ((0, 100), (50, 200)):
        build.slice(stream, start, 50, "Memcpy HtoD", op=OpClass.COPY, args={"bytes": size})
    build.slice(stream, 100, 10, "Memset", op=OpClass.COPY)
    copy, fill = _table("copy", build)
    assert (copy["Bytes"], copy["Bandwidth(GB/s)"], fill["Bytes"]) == (300, 3.0, ABSENT)
    assert np.isnan(fill["Bandwidth(GB/s)"])


@pytest.mark.parametrize(("vendor", "idle"), [("", 30), ("ascend", 60)])
def test_use_of_a_device(build, vendor, idle):
    """Kernels on two streams that overlap count once; a copy keeps a GPU busy, and no NPU."""
    build.hints.vendor = vendor
    _steps(build, 100)
    for name, start, length in (("Stream 1", 0, 30), ("Stream 2", 20, 20)):
        build.slice(build.track(Layer.DEVICE, name), start, length, "k", op=OpClass.COMPUTE)
    build.slice(build.track(Layer.DEVICE, "Stream 3"), 50, 30, "Memcpy", op=OpClass.COPY)
    names = ("Kernel Time(ns)", "Copy Time(ns)", "Idle(ns)", "Known(ns)", "Utilization(%)")
    (row,) = _table("device", build)
    assert [row[name] for name in names] == [40, 30, idle, 100, 100.0 - idle]


def test_unclassified_tasks_have_a_column_where_there_are_any(build):
    """A device that is busy with them is not 100 % busy with nothing."""
    _steps(build, 100)
    stream = build.track(Layer.DEVICE, "Stream 1")
    build.slice(stream, 0, 30, "k", op=OpClass.COMPUTE)
    build.slice(stream, 40, 60, "odd", op=OpClass.UNCLASSIFIED)
    build.slice(stream, 150, 60, "outside", op=OpClass.UNCLASSIFIED)
    (row,) = _table("device", build)
    names = ("Kernel Time(ns)", "Unclassified Time(ns)", "Idle(ns)", "Known(ns)", "Utilization(%)")
    assert [row[name] for name in names] == [30, 60, 10, 100, 90.0]


def test_modules_with_what_they_launched(build):
    """A module's device time holds that of the modules within."""
    _launched(build)
    host = build.track(Layer.HOST, "Thread 7", thread=7)
    build.slice(host, -10, 200, "nn.Module: Net_0", op=OpClass.HOST)
    build.slice(host, 35, 30, "nn.Module: Linear_0", op=OpClass.HOST)
    rows = _table("module", build)
    assert _only(rows, "Module", "Count", "Total Time(ns)", "Device Time(ns)") == [
        ("Net_0", 1, 200, 12), ("Linear_0", 1, 30, 5),
    ]  # fmt: skip


def test_a_module_projected_onto_the_device_is_no_second_call(build):
    """With scopes there is a lane of projections, which are in device time."""
    _launched(build).hints.free_rule = ""
    build.slice(
        build.track(Layer.HOST, "Thread 7", thread=7), -10, 200, "nn.Module: Net_0", op=OpClass.HOST
    )
    rows = _table("module", build)
    assert _only(rows, "Module", "Count", "Total Time(ns)", "Device Time(ns)") == [
        ("Net_0", 1, 200, 12),
    ]  # fmt: skip


def test_phases_of_a_step(build):
    """Outermost ranges by name; the rest of the step is said, too."""
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    build.slice(host, 0, 100, "ProfilerStep#0", op=OpClass.HOST, step=0)
    build.slice(host, 5, 20, "enumerate(DataLoader)#Iter.__next__", op=OpClass.HOST)
    build.slice(host, 30, 40, "Net.forward", op=OpClass.HOST)
    build.slice(host, 35, 10, "forward", op=OpClass.HOST)
    build.slice(host, 80, 10, "Optimizer.step#SGD.step", op=OpClass.HOST)
    rows = _table("phase", build)
    assert _only(rows, "Phase", "Count", "Total Time(ns)", "Ratio(%)") == [
        ("Step", 1, 100, 100.0), ("Dataloader", 1, 20, 20.0), ("Forward", 1, 40, 40.0),
        ("Optimization", 1, 10, 10.0), ("Others", ABSENT, 30, 30.0),
    ]  # fmt: skip


def test_a_phase_on_two_threads_counts_once(build):
    """Autograd works in a thread of its own while the main thread waits in backward."""
    _steps(build, 100)
    build.slice(build.track(Layer.HOST, "Thread 1", thread=1), 10, 50, "backward", op=OpClass.HOST)
    name = "autograd::engine::evaluate_function: MmBackward0"
    build.slice(build.track(Layer.HOST, "Thread 2", thread=2), 20, 30, name, op=OpClass.HOST)
    assert ("Backward", 1, 50) in _only(_table("phase", build), "Phase", "Count", "Total Time(ns)")


# -- communication ------------------------------------------------------------------------


def _transfers(build):
    """An operation of 100 on two planes; plane 1 is the first that waits."""
    group = "Group 0"
    call = build.track(Layer.COMM, "Communication", group)
    build.slice(call, 0, 100, "hcom_allReduce__1_0_1", op=OpClass.COMM)
    planes = [build.track(Layer.COMM, f"Plane {n}", group) for n in (0, 1)]

    def task(plane, start, length, name, dst, link, size):
        args = {"src rank": 0, "dst rank": dst, "link type": link, "size(Byte)": size}
        build.slice(planes[plane], start, length, name, op=OpClass.COMM_TASK, args=args)

    task(0, 1, 9, "Memcpy", 0xFFFFFFFF, "ON_CHIP", 64)
    task(1, 2, 30, "Notify_Wait", 1, "", 0)
    task(1, 40, 20, "Reduce_Inline", 1, "HCCS", 1000)
    task(1, 70, 5, "Notify_Wait", 1, "", 0)
    task(1, 80, 10, "Memcpy", 1, "HCCS", 500)
    return build


def test_parts_of_an_operation(build):
    """On plane 1: transit 30, wait 35 of which 30 before the first transit, idle 35 of 100."""
    (row,) = _table("comm_op", _transfers(build))
    assert [row[name] for name in list(row)[5:10]] == [100, 30, 35, 30, 35]
    assert row["Wait Time Ratio(%)"] == pytest.approx(53.846, abs=1e-3)
    assert row["Synchronization Time Ratio(%)"] == 50.0


def test_parts_are_absent_where_nothing_is_known_of_them(build):
    """A GPU's collective has a length and no planes."""
    build.slice(build.track(Layer.COMM, "Stream 9"), 0, 40, "ncclAllReduce", op=OpClass.COMM)
    (row,) = _table("comm", build)
    assert (row["Total Time(ns)"], row["Wait Time(ns)"]) == (40, ABSENT)


def test_operations_of_one_kind_add_up(build):
    """Numbers in the names do not make kinds; parts that one of them lacks are not added up."""
    _transfers(build)
    comm = build.track(Layer.COMM, "Communication", "Group 0")
    build.slice(comm, 200, 50, "hcom_allReduce__1_1_1", op=OpClass.COMM)
    (row,) = _table("comm", build)
    assert (row["Operation"], row["Count"], row["Total Time(ns)"]) == ("hcom_allReduce", 2, 150)
    assert (row["Transit Time(ns)"], row["Wait Time(ns)"]) == (ABSENT, ABSENT)


def test_parts_of_operations_add_up(build):
    """Of the plane that waits first."""
    (row,) = _table("comm", _transfers(build))
    assert (row["Transit Time(ns)"], row["Wait Time(ns)"]) == (30, 35)


def test_traffic_between_ranks(build):
    """What goes nowhere stays on the chip: LOCAL, to itself."""
    rows = _table("link", _transfers(build))
    assert _only(rows, "Source", "Destination", "Transport", "Bytes", "Transit Time(ns)") == [
        (0, 0, "LOCAL", 64, 9), (0, 1, "HCCS", 1500, 30),
    ]  # fmt: skip
    assert rows[1]["Bandwidth(GB/s)"] == 50.0


def test_traffic_of_unknown_size_or_between_unknown_ranks(build):
    """A link one of whose tasks names no size has no bytes and no speed; rank 0 is no default."""
    _transfers(build)
    plane = build.track(Layer.COMM, "Plane 1", "Group 0")
    link = {"dst rank": 1, "link type": "HCCS"}
    args = {"src rank": 0, **link}
    build.slice(plane, 92, 2, "Memcpy", op=OpClass.COMM_TASK, args=args)
    build.slice(plane, 95, 1, "Memcpy", op=OpClass.COMM_TASK, args={**link, "size(Byte)": 5})
    rows = _table("link", build)
    assert _only(rows, "Source", "Destination", "Count", "Bytes", "Transit Time(ns)") == [
        (0, 0, 1, 64, 9), (0, 1, 3, ABSENT, 32),
    ]  # fmt: skip
    assert np.isnan(rows[1]["Bandwidth(GB/s)"])


def test_traffic_from_the_profilers_matrix(build):
    """Without planes the totals of communication_matrix.json are taken; of how many operations they
    are is not in it."""
    names = ["allreduce-top1", "allreduce-total"]
    columns = {
        "Operator": np.array(names, object), "Group": np.array(["7", "7"], object),
        "Source": np.array([0, 0]), "Target": np.array([1, 1]),
        "Transport Type": np.array(["HCCS", "HCCS"], object),
        "Transit Size(MB)": np.array([1.0, 2.5]), "Transit Time(ms)": np.array([100, 250]),
    }  # fmt: skip
    build.side_table("communication_matrix", "communication_matrix.json", lambda: columns)
    rows = _table("link", build)
    assert _only(rows, "Operation", "Bytes", "Transit Time(ns)", "Count") == [
        ("allreduce-total", 2_500_000, 250, ABSENT)
    ]


# -- memory, data, calls ------------------------------------------------------------------


def test_peaks_of_memory_in_bytes(build):
    """KB of 1024 bytes; the first instant of the peak."""
    track = build.track(Layer.COUNTER, "APP/HBM", "NPU MEM", unit="KB")
    for at, value in ((10, 1), (20, 4), (30, 4), (40, 3)):
        build.counter(track, at, value)
    build.counter(build.track(Layer.COUNTER, "Read", "HBM", unit="MB/s"), 10, 99)
    (row,) = _table("memory", build)
    assert [row[name] for name in list(row)[3:-1]] == [4, 1024, 3072, 4096, 3072, 20, ABSENT]
    assert _only(_table("memory_curve", _curve()), "Timestamp(ns)", "Size(B)") == [(1, 5), (2, 6)]


def test_peaks_stand_beside_the_memory_of_their_gpu(build):
    """By its number; memory of the host has no capacity."""
    build.hints.device_memory_bytes = {0: 100, 1: 4096}
    for name in ("GPU 1 Reserved", "GPU 1 Allocated", "GPU 7 Reserved", "CPU Allocated"):
        kind, number, *_ = name.split()
        track = build.track(
            Layer.COUNTER, name, "Memory", unit="B", kind=TrackKind.ALLOCATOR,
            device=int(number) if number.isdigit() else -1, device_kind=kind,
        )  # fmt: skip
        build.counter(track, 10, len(name))
    rows = _table("memory", build)
    told = {r["Measure"]: (r["Capacity(B)"], r["Peak of Capacity(%)"]) for r in rows}
    assert told["GPU 1 Reserved"] == (4096, 100 * 14 / 4096)
    assert told["GPU 1 Allocated"] == (4096, 100 * 15 / 4096)
    for name in ("GPU 7 Reserved", "CPU Allocated"):
        assert told[name][0] == ABSENT and math.isnan(told[name][1])


def _curve():
    build = _builder()
    track = build.track(Layer.COUNTER, "Allocated", unit="B")
    build.counter(track, 1, 5)
    build.counter(track, 2, 6)
    return build


def test_queues_of_data_preparation(build):
    """Three of eight samples are empty: 37.5 %, shown as 38; pushes take 3 ms on average."""
    sizes = [(1, 64, size) for size in (0, 0, 0, 64, 5, 6, 7, 8)]
    times = [(0, 0, 1), (0, 1, 2), (0, 1, 4), (0, 2, 5)]
    kind, second, value = (np.array(column) for column in zip(*sizes, *times, strict=True))
    columns = {"type": kind, "subtype": second, "value": value}
    build.side_table("device_queue_profiling", "device_queue_profiling_0.txt", lambda: columns)
    (row,) = _table("data", build)
    assert _only([row], "Records", "Capacity", "Empty", "Full") == [(8, 64, 3, 1)]
    assert _only([row], "Empty(%)", "Full(%)", "Mean Size") == [(38.0, 12.5, 11.25)]
    assert _only([row], "Get Time(ns)", "Push Time(ns)", "Batch Time(ns)") == [
        (1_000_000, 3_000_000, 5_000_000)
    ]


def test_use_of_the_cpu_is_a_mean_of_samples(build):
    """By scope; what a scope does not say is absent."""
    columns = {
        "scope": np.array(["device", "device", "process"], object),
        "op_id": np.full(3, ABSENT),
        "user_utilization": np.array([10, 30, 7]),
        "idle_utilization": np.array([80, 60, ABSENT]),
    }
    build.side_table("minddata_cpu_utilization", "cpu.json", lambda: columns)
    host, process = _table("cpu", build)
    assert (host["Samples"], host["User(%)"], host["Idle(%)"]) == (2, 20.0, 70.0)
    assert process["User(%)"] == 7.0
    assert np.isnan(process["Idle(%)"])


def test_runtime_calls_with_their_variance(build):
    """1 us and 3 us: mean 2, variance 1 us^2; CANN's level goes before the lane's heading."""
    calls = build.track(Layer.RUNTIME, "Thread 1", title="CANN", thread=1)
    for start, length in ((0, 1000), (5000, 3000)):
        build.slice(calls, start, length, "AscendCL@aclrtMemcpy", args={"level": "acl"})
    build.slice(calls, 9000, 500, "launch")
    rows = _table("api", build)
    assert _only(rows, "Level", "API Name", "Count", "Avg(ns)", "Variance") == [
        ("acl", "aclrtMemcpy", 2, 2000, 1.0), ("CANN", "launch", 1, 500, 0.0),
    ]  # fmt: skip


# -- what holds for all -------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_without_data_is_empty_and_says_what_it_needs(name):
    """No error, no rows, and a word on what would be needed."""
    build = _builder()
    build.instant(build.track(Layer.OTHER, "x"), 5, "mark")
    result = _result(name, build)
    whole_range = name in ("step", "step_summary", "stage")  # stands as one step
    assert (result.rows > 0) == whole_range
    assert result.table.needs


def test_every_question_is_answered_by_tables():
    """Keys of BY name tables, every table answers one question, and "all" is all of them."""
    named = [name for names in BY.values() for name in names]
    assert sorted(named) == sorted([*TABLES, *FILES])
    assert chosen(["all"]) == list(TABLES)


def test_an_unknown_table_is_refused_with_those_there_are():
    """The message lists what can be asked for."""
    with pytest.raises(OptionError, match=r"no table 'xyzzy'; there are: step, overlap"):
        chosen(["step", "xyzzy"])


def test_what_tables_need_of_a_rank_travels(build):
    """Plain values: they come out of another process as they went in."""
    part = summary(_passed(_overlapping(build)), "overlap", "kernel")
    back = decode(encode(part))
    assert back.rank == part.rank
    assert tables([back])[0].data["Step"].tolist() == [1, ABSENT]


def test_top_keeps_the_first_rows_of_every_rank():
    """And says how many there were."""
    builders = [_builder(rank) for rank in (0, 1)]
    for build in builders:
        stream = build.track(Layer.DEVICE, "Stream 1")
        for n in range(4):
            build.slice(stream, 100 * n, 10 + n, f"k{n}", op=OpClass.COMPUTE)
    result = _result("kernel", *builders, top=2)
    assert result.rows == 12  # of two ranks and of both
    assert result.data["Kernel"].tolist() == ["k3", "k2"] * 3


def test_job_rows_add_ranks_up():
    """Counts and sums add, extremes are extremes, averages are weighted."""
    builders = [_builder(rank) for rank in (0, 1)]
    for build, lengths in zip(builders, ([10], [20, 60]), strict=True):
        stream = build.track(Layer.DEVICE, "Stream 1")
        for n, length in enumerate(lengths):
            build.slice(stream, 100 * n, length, "k", op=OpClass.COMPUTE)
    job = _table("kernel", *builders)[-1]
    assert [job[name] for name in list(job)[3:]] == [3, 90, 10, 30, 60, 100.0]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(0, 10**9)),
        min_size=1,
        max_size=60,
    )
)
def test_groups_measure_what_a_loop_would(rows):
    """Keys in order, counts, sums, extremes and squared deviations; pooled, they are the whole."""
    first, second, value = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    groups = Groups.of(first, second)
    measures = groups.measured(value)
    slow = {}
    for a, b, v in rows:
        slow.setdefault((a, b), []).append(v)
    keys = list(zip(first[groups.first].tolist(), second[groups.first].tolist(), strict=True))
    assert keys == sorted(slow)
    assert measures["total"].tolist() == [sum(slow[key]) for key in keys]
    assert measures["low"].tolist() == [min(slow[key]) for key in keys]
    assert measures["high"].tolist() == [max(slow[key]) for key in keys]
    whole = pooled(measures, Groups.of(np.zeros(len(keys), np.int64)))
    values = value.tolist()
    exact = sum((v - sum(values) / len(values)) ** 2 for v in values)
    assert (whole["count"].tolist(), whole["total"].tolist()) == ([len(rows)], [sum(values)])
    assert whole["m2"][0] == pytest.approx(exact, rel=1e-9, abs=1e-3)


def test_keys_too_wide_for_one_integer_are_numbered():
    """Stamps of nanoseconds as keys, twice."""
    wide = np.array([0, 2**62, 0, 2**62])
    groups = Groups.of(wide, wide[::-1].copy())
    assert groups.size.tolist() == [2, 2]


def test_means_are_rounded_half_up():
    """3 / 2 is 2, 5 / 4 is 1, and nothing of nothing is 0."""
    assert mean(np.array([3, 5, 0]), np.array([2, 4, 0])).tolist() == [2, 1, 0]


def test_parts_of_steps_whose_number_starts_over(build):
    """Two windows, both with step 1: each has its own forward pass, refresh and pause."""
    lane = build.track("step", "iterations")
    for begin, length in ((0, 10), (1000, 20)):
        for op, at, took in (
            (OpClass.ITERATION, 0, 100), (OpClass.FP_BP, 3, length), (OpClass.TAIL, 50, 2 * length),
            (OpClass.INTERVAL, -length, length),
        ):  # fmt: skip
            build.slice(lane, begin + at, took, op.name, op=op, step=1)
    rows = _table("step", build)
    headings = ("Window", "FP_BP Time(ns)", "Iteration Refresh(ns)", "Data Aug Bound(ns)")
    assert _only(rows, *headings) == [(1, 10, 20, 10), (2, 20, 40, 903)]


def test_folders_above_a_capture_may_be_called_anything(tmp_path):
    """The rules of steps are those of the profiler that wrote the capture, not of its path."""
    job = ROOT / "golden" / "trace_view" / "level0" / "input"
    tables = []
    for name in ("job", "mindspore"):
        shutil.copytree(job, tmp_path / name)
        table = traceconv.stats(tmp_path / name, by="step_trace_time")["step_trace_time"]
        tables.append(table["Stage(ns)"].tolist())
    assert tables[0] == tables[1] != []
