"""Nsight reports: sampled metrics, MPI's word on ranks, calls into libraries, names of ranges."""

import sqlite3
from contextlib import closing

import pytest
from nsight_files import (
    BARRIER,
    GEMM,
    KERNEL,
    LAUNCH,
    NVTX,
    RUNTIME,
    call,
    captures,
    global_id,
    kernel,
    range_,
    rows,
    traces,
    write,
)

from traceconv.core.model import Layer

KIND = 0x1000100000000
NOBODYS = (None, 0, -1)


@pytest.mark.parametrize("owner", NOBODYS)
def test_kernels_that_name_no_process_are_the_only_one_s(tmp_path, owner):
    """All of them: the process is known from its calls, and uses their device."""
    kernels = [(*kernel(10 * i, 10 * i + 5, i)[:5], owner, GEMM) for i in range(1, 401)]
    [trace] = traces(write(tmp_path / "r.sqlite", **{KERNEL: kernels, RUNTIME: [call(5, 1)]}))
    assert (len(rows(trace, Layer.DEVICE)), trace.capture.pid, trace.capture.device) == (400, 1, 0)
    assert trace.issues.count("process-assumed") == 400


def test_a_report_that_names_no_process_is_one(tmp_path):
    """Rows on the host are on no thread that is known."""
    calls = [(5, 10, 0, None, 1, LAUNCH)]
    path = write(tmp_path / "r.sqlite", **{KERNEL: [(20, 30, 0, 7, 1, None, GEMM)], RUNTIME: calls})
    [trace] = traces(path)
    assert [lane.name for lane, *_ in rows(trace, Layer.RUNTIME)] == ["No thread"]
    assert (trace.capture.pid, len(trace.flows)) == (-1, 1)


@pytest.mark.parametrize("owner", NOBODYS)
def test_of_several_processes_the_device_decides(tmp_path, owner):
    """Rows of no process make none; what nothing tells is a loss, counted once."""
    kernels = [kernel(10, 20, pid=p, device=p) for p in (1, 2)]
    kernels += [(30, 40, device, 7, -1, owner, GEMM) for device in (2, 2, 9)]
    path = write(tmp_path / "r.sqlite", **{KERNEL: kernels, RUNTIME: [(5, 9, 0, owner, 1, LAUNCH)]})
    every = traces(path)
    assert [len(rows(trace, Layer.DEVICE)) for trace in every] == [1, 3]
    assert [t.issues.count("process-assumed") for t in every] == [0, 2]
    assert [t.issues.count("process-unknown") for t in every] == [2, 0]


def test_what_the_profiler_says_of_itself(tmp_path):
    """Errors are a doubt, warnings are passed on; paths are left out, and the rest is counted."""
    told = [(1, "started"), (2, "cannot read /data/of/somebody/x.so"), (3, "lost\nevents")]
    path = write(tmp_path / "r.sqlite", **{KERNEL: [kernel(1, 2)]}, DIAGNOSTIC_EVENT=told)
    [trace] = traces(path)
    assert [(i.code, i.count, i.places) for i in trace.issues] == [
        ("profiler-error", 1, ("lost",)),
        ("profiler-warning", 1, ("cannot read <path>",)),
        ("kind-not-read", 1, ("table DIAGNOSTIC_EVENT",)),
    ]


def metrics(path, samples, names, kernels=((1, 2),), **more):
    """A report of a process on GPU 0 with samples (timestamp, gpu, metric, value)."""
    return write(
        path / "r.sqlite",
        **{KERNEL: [kernel(*k) for k in kernels]},
        GPU_METRICS=[(at, KIND + gpu, metric, value) for at, gpu, metric, value in samples],
        TARGET_INFO_GPU_METRICS=[(KIND + gpu, metric, name) for gpu, metric, name in names],
        **more,
    )


def samples(trace):
    """(group, name, unit, time, value) of all samples."""
    table = trace.counters
    columns = (table.track, table.start_ns, table.value)
    lanes = trace.tracks
    return [
        (lanes[t].group, lanes[t].name, lanes[t].unit, at, value)
        for t, at, value in zip(*(column.tolist() for column in columns), strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "value", "lane", "unit"),
    [
        ("SMs Active [Throughput %]", 57, "SMs Active", "%"),
        ("GPC Clock Frequency [MHz]", 1_980_000_000, "GPC Clock Frequency", "Hz"),
        ("GPC Clock Frequency [MHz]", 1980, "GPC Clock Frequency", "MHz"),
        ("Warps in Flight [Avg Warps per Cycle]", 12, "Warps in Flight", "Avg Warps per Cycle"),
        ("Unitless", 3, "Unitless", ""),
        (None, 3, "Metric 5", ""),
    ],
)
def test_metrics_take_their_unit_from_their_name(tmp_path, name, value, lane, unit):
    """Clocks no GPU reaches are in Hz, whatever their name says."""
    [trace] = traces(metrics(tmp_path, [(10, 0, 5, value)], [(0, 5, name)] if name else []))
    assert samples(trace) == [("", lane, unit, 10, float(value))]


def test_gpus_are_those_cuda_sees(tmp_path):
    """Nsight's GPU 1 is CUDA's GPU 0; samples of GPUs nobody uses are counted."""
    path = metrics(
        tmp_path, [(10, 0, 5, 1), (10, 1, 5, 2), (20, 1, 5, 3)], [(1, 5, "A")],
        TARGET_INFO_GPU=[(0, 1, None), (1, 0, None)],
    )  # fmt: skip
    [trace] = traces(path)
    assert samples(trace) == [("", "A", "", 10, 2.0), ("", "A", "", 20, 3.0)]
    assert trace.issues.count("kind-not-read") == 1


def test_memory_of_gpus_is_noted_as_cuda_numbers_them(tmp_path):
    """Of those the process uses; what is no size is passed over."""
    told = [(0, 3, 80), (1, 2, 40), (2, 7, "much"), (5, None, 16)]
    kernels = [kernel(1, 2, device=device) for device in (3, 5, 7)]
    [trace] = traces(write(tmp_path / "r.sqlite", **{KERNEL: kernels}, TARGET_INFO_GPU=told))
    assert trace.hints.device_memory_bytes == {3: 80, 5: 16}


def test_threads_are_off_the_cpu_from_losing_it_to_gaining_it(tmp_path):
    """On which CPU it comes back; what is not ended, repeated, of no time or of another process is
    no slice, and booked or not this one's."""
    records = [
        (10, 3, 1, 1), (20, 3, 0, 1), (50, 4, 1, 1), (60, 4, 0, 1), (70, 4, 0, 1), (90, 4, 1, 1),
        (95, 4, 0, 1), (15, 0, 0, 2), (None, 1, 0, 2), (16, 0, 7, 2), (25, 0, 1, 2),
    ]  # fmt: skip
    told = [(at, cpu, gained, global_id(1, tid)) for at, cpu, gained, tid in records]
    told += [(11, 3, 0, global_id(9, 1)), (12, 3, 1, global_id(9, 1))]
    [trace] = traces(write(tmp_path / "r.sqlite", **{KERNEL: [kernel(1, 2)]}, SCHED_EVENTS=told))
    found = [(lane.name, name, *rest) for lane, name, *rest in rows(trace, Layer.OTHER)]
    moves = [
        {"from CPU": 3, "to CPU": 4},
        {"from CPU": 4, "to CPU": 4},
        {"from CPU": 0, "to CPU": 0},
    ]
    assert [row[:4] for row in found] == [
        ("Thread 1", "Off CPU", 20, 30), ("Thread 1", "Off CPU", 70, 20),
        ("Thread 2", "Off CPU", 15, 10),
    ]  # fmt: skip
    assert [row[4] for row in found] == moves
    counts = {code: trace.issues.count(code) for code in ("metadata-unused", "bad-time")}
    assert counts == {"metadata-unused": 3, "bad-time": 1}
    assert trace.issues.count("kind-not-read") == 1


def _scheduled(path, *runs, **tables):
    """Thread 1 of process 1 launches, and is off CPU 3 from 20 to 50, then on CPU 4; ``runs`` of
    others are (CPU, process, from, to)."""
    told = [(10, 3, 1, global_id(1, 1)), (20, 3, 0, global_id(1, 1)), (50, 4, 1, global_id(1, 1))]
    for cpu, pid, start, end in runs:
        told += [(start, cpu, 1, global_id(pid, pid)), (end, cpu, 0, global_id(pid, pid))]
    tables = {KERNEL: [kernel(12, 14, 5)], RUNTIME: [call(11, 5)], **tables}
    [trace] = traces(write(path, SCHED_EVENTS=told, **tables))
    found = [(lane.name, *rest[:3]) for lane, *rest in rows(trace, Layer.OTHER)
             if lane.heading == "Other Processes"]  # fmt: skip
    [args] = [args for lane, *_, args in rows(trace, Layer.OTHER) if lane.name == "Thread 1"]
    return trace, sorted(found), args


def test_other_processes_are_shown_where_a_launching_thread_waits(tmp_path):
    """On the CPU that it lost and the one it comes back to, while it is away; the rest is counted.
    Of a name the first word is kept, without folders, as far as the system keeps it."""
    names = [(8, "/opt/x/indexer --token=t"), (9, "a-very-long-name-of-a-thing more"), (7, None)]
    trace, found, args = _scheduled(
        tmp_path / "r.sqlite", (3, 8, 20, 30), (3, 7, 30, 60), (4, 9, 15, 50), (4, 9, 60, 90),
        (5, 6, 20, 50), PROCESSES=names,
    )  # fmt: skip
    assert found == [
        ("CPU 3", "indexer (pid 8)", 20, 10),
        ("CPU 3", "process (pid 7)", 30, 30),
        ("CPU 4", "a-very-long-nam (pid 9)", 15, 35),
    ]
    assert args == {"from CPU": 3, "to CPU": 4}
    assert trace.issues.count("metadata-unused") == 2


@pytest.mark.parametrize("sign", [(2, 0, 1, 2), (2, 9, 1, 2)], ids=["idle task", "kernel"])
def test_where_the_whole_machine_was_recorded_slices_say_what_others_did(tmp_path, sign):
    """What nobody launches tells that it was, wherever it ran."""
    _, found, args = _scheduled(
        tmp_path / "r.sqlite", (3, 8, 20, 30), (4, 8, 45, 60), sign,
        PROCESSES=[(9, "kworker/2:1-events")],
    )  # fmt: skip
    assert [lane for lane, *_ in found] == ["CPU 3", "CPU 4"]
    assert args == {
        "from CPU": 3, "to CPU": 4, "other processes on from CPU (ns)": 10,
        "other processes on to CPU (ns)": 5,
    }  # fmt: skip


def test_other_processes_where_a_thread_waits_that_launches_nothing(tmp_path):
    """They concern no device: counted, not shown."""
    path, helper = tmp_path / "r.sqlite", global_id(1, 2)
    told = [(20, 3, 0, helper), (50, 3, 1, helper), (20, 3, 1, global_id(8, 8)),
            (50, 3, 0, global_id(8, 8))]  # fmt: skip
    tables = {KERNEL: [kernel(12, 14, 5)], RUNTIME: [call(11, 5)], "SCHED_EVENTS": told}
    [trace] = traces(write(path, **tables))
    assert [lane.name for lane, *_ in rows(trace, Layer.OTHER)] == ["Thread 2"]
    assert trace.issues.count("metadata-unused") == 1


def test_records_of_other_processes_that_make_no_run_are_counted(tmp_path):
    """No time, neither gained nor lost, gained only, lost on another CPU; with the first rank."""
    path, told = tmp_path / "r.sqlite", [(20, 3, 0, global_id(1, 1)), (50, 3, 1, global_id(1, 1))]
    told += [(None, 3, 1, global_id(8, 8)), (25, 3, 7, global_id(8, 8))]
    told += [(30, 3, 1, global_id(9, 9)), (35, 4, 0, global_id(9, 9)), (40, 3, 1, global_id(9, 9))]
    tables = {KERNEL: [kernel(12, 14, 5), kernel(12, 14, 6, pid=2, device=1)],
              RUNTIME: [call(11, 5), call(11, 6, pid=2, tid=2)], "SCHED_EVENTS": told}  # fmt: skip
    first, second = traces(write(path, **tables))
    assert [lane.name for lane, *_ in rows(first, Layer.OTHER)] == ["Thread 1"]
    counts = [{code: one.issues.count(code)
               for code in ("bad-time", "kind-not-read", "metadata-unused")}
              for one in (first, second)]  # fmt: skip
    assert counts == [{"bad-time": 1, "kind-not-read": 1, "metadata-unused": 2},
                      {"bad-time": 0, "kind-not-read": 0, "metadata-unused": 0}]  # fmt: skip


def test_records_of_no_process_are_no_other_process(tmp_path):
    """With two processes, records of nobody are booked, and run in nobody's place."""
    path, nobody = tmp_path / "r.sqlite", None
    told = [(20, 3, 0, global_id(1, 1)), (50, 3, 1, global_id(1, 1)), (20, 3, 1, nobody),
            (50, 3, 0, nobody)]  # fmt: skip
    tables = {KERNEL: [kernel(12, 14, 5), kernel(12, 14, 6, pid=2, device=1)],
              RUNTIME: [call(11, 5), call(11, 6, pid=2, tid=2)], "SCHED_EVENTS": told}  # fmt: skip
    first, second = traces(write(path, **tables))
    assert [lane.name for lane, *_ in rows(first, Layer.OTHER)] == ["Thread 1"]
    assert (first.issues.count("process-unknown"), rows(second, Layer.OTHER)) == (2, [])


def test_names_of_gpus_are_noted(tmp_path):
    """As CUDA numbers them, where the report has them."""
    path = write(tmp_path / "r.sqlite", **{KERNEL: [kernel(1, 2)]})
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE TARGET_INFO_GPU (id INT, cuDevice INT, totalMemory INT, name)")
        rows = [(1, 0, 80, "NVIDIA H200"), (0, 1, 80, "NVIDIA L4"), (2, 2, 80, 7)]
        db.executemany("INSERT INTO TARGET_INFO_GPU VALUES (?, ?, ?, ?)", rows)
    [trace] = traces(path)
    assert trace.hints.device_names == {0: "NVIDIA H200"}


def test_samples_that_are_none_are_booked(tmp_path):
    """No time, and no number."""
    path = metrics(tmp_path, [(None, 0, 5, 1), (10, 0, 5, "x"), (20, 0, 5, 4)], [(0, 5, "A")])
    [trace] = traces(path)
    assert samples(trace) == [("", "A", "", 20, 4.0)]
    assert (trace.issues.count("bad-time"), trace.issues.count("counter-not-numeric")) == (1, 1)


def test_a_process_with_two_gpus_has_counters_of_both(tmp_path):
    """Under the name of the GPU."""
    path = write(
        tmp_path / "r.sqlite",
        **{KERNEL: [kernel(1, 2), kernel(1, 2, device=1)]},
        GPU_METRICS=[(10, KIND, 5, 1), (10, KIND + 1, 5, 2)],
    )
    [trace] = traces(path)
    assert samples(trace) == [
        ("GPU 0", "Metric 5", "", 10, 1.0),
        ("GPU 1", "Metric 5", "", 10, 2.0),
    ]


def test_mpi_names_the_rank_of_every_process(tmp_path):
    """Whatever GPU it uses."""
    path = write(
        tmp_path / "r.sqlite",
        **{KERNEL: [kernel(1, 2, pid=pid, device=2 - pid) for pid in (1, 2)]},
        MPI_RANKS=[(global_id(1, 1), 6), (global_id(2, 2), 7)],
    )
    assert [(c.rank, c.rank_from) for c in captures(path)] == [(6, "MPI_RANKS"), (7, "MPI_RANKS")]


@pytest.mark.parametrize(
    ("ranks", "found"), [([5, 5], (5, "MPI_COMMUNICATORS")), ([5, 6], (None, "")), ([], (None, ""))]
)
def test_communicators_name_the_rank_of_a_lone_process(tmp_path, ranks, found):
    """If they agree: they do not say whose they are."""
    made = [(rank, 1, 2, 0, 8) for rank in ranks]
    path = write(tmp_path / "r.sqlite", **{KERNEL: [kernel(1, 2)]}, MPI_COMMUNICATORS=made)
    [capture] = captures(path)
    assert (capture.rank, capture.rank_from) == found


def test_calls_of_mpi_and_libraries_are_slices_of_their_threads(tmp_path):
    """With sizes and peers where the table has them; a call that never ended is booked."""
    thread = global_id(1, 4)
    path = write(
        tmp_path / "r.sqlite",
        **{KERNEL: [kernel(1, 2)]},
        MPI_P2P_EVENTS=[(10, 20, thread, BARRIER, 512, 3), (30, 40, thread, BARRIER, 64, None)],
        MPI_OTHER_EVENTS=[(50, None, thread, BARRIER)],
        CUBLAS_EVENTS=[(60, 70, 0, thread, BARRIER)],
    )
    [trace] = traces(path)
    [blas] = rows(trace, Layer.RUNTIME)
    assert (blas[0].heading, blas[0].name, blas[2], blas[3]) == ("cuBLAS", "Thread 4", 60, 10)
    assert [(t.heading, s, d, args) for t, _, s, d, args in rows(trace, Layer.HOST)] == [
        ("MPI", 10, 10, {"bytes": 512, "peer": 3}),
        ("MPI", 30, 10, {"bytes": 64}),
        ("MPI", 50, 0, {}),
    ]
    assert trace.issues.count("unfinished-slice") == 1


@pytest.mark.parametrize(
    ("text", "name", "args"),
    [
        ("aten::mul, op_id = 12", "aten::mul", {"op_id": 12}),
        ("aten::mul, seq = 3, op_id = 12", "aten::mul", {"seq": 3, "op_id": 12}),
        (
            "aten::cat, op_id = 1, sizes = [[2, 3], []], input_op_ids = [(1,0)]",
            "aten::cat",
            {"op_id": 1, "sizes": "[[2, 3], []]", "input_op_ids": "[(1,0)]"},
        ),
        ("a, b", "a, b", {}),
        ("x, op_id = 12 of 14", "x, op_id = 12 of 14", {}),
        (", op_id = 12", ", op_id = 12", {}),
        ("x, op_id = " + "9" * 30, "x", {"op_id": "9" * 30}),
    ],
)
def test_what_pytorch_writes_behind_a_name_becomes_arguments(tmp_path, text, name, args):
    """So that equal operators have equal names; other names stay as they are."""
    tables = {KERNEL: [kernel(1, 2)], NVTX: [range_(5, 9, text)]}
    [trace] = traces(write(tmp_path / "r.sqlite", **tables))
    assert [(n, a) for _, n, _, _, a in rows(trace, Layer.HOST)] == [(name, args)]
