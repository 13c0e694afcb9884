"""PyTorch profiler traces: found by content, placed by category, arrows by correlation number."""

import json

import pytest
from kineto_files import (
    CALL,
    KERNEL,
    NCCL,
    OPERATOR,
    arrow,
    arrows,
    found,
    placed,
    read,
    row,
    write,
)

import traceconv
from traceconv.core.clock import Domain
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Layer, OpClass
from traceconv.find.capture_ranks import rank_in_name
from traceconv.readers.torch.kineto.header import process_groups
from traceconv.readers.torch.kineto.lanes import Sort, sort_of

BASE = 1_719_853_884_000_000_000
UNIX_US = 1_682_725_898_000_000


@pytest.fixture(params=["native", "python"])
def tier(request, monkeypatch):
    """Both tiers of reading in turn."""
    monkeypatch.setenv("TRACECONV_NATIVE", "1" if request.param == "native" else "0")


# -- what is one, and whose it is ---------------------------------------------------------


@pytest.mark.parametrize("name", ["any.json", "any.json.gz", "no_suffix", "x.pt.trace.json"])
@pytest.mark.parametrize("before", [{}, {"schemaVersion": 1}, {"distributedInfo": {}}])
def test_content_is_enough(tmp_path, name, before):
    """Kineto's keys or categories make a trace of any name one of PyTorch."""
    assert len(found(write(tmp_path / name, [KERNEL], before))) == 1


def test_a_bare_list_of_events_is_read(tmp_path):
    """Filters leave the outermost object away."""
    (tmp_path / "list.json").write_text(json.dumps([OPERATOR, CALL, KERNEL]))
    assert arrows(read(tmp_path / "list.json")) == [("launch", 20_000, 40_000)]


PADDLE = {"schemaVersion": "1.0.2", "span_index": "0", "deviceProperties": []}
OURS = {"metadata": {"traceconv": {"base_ns": "5"}}}
TORCH_NPU = json.dumps([{**OPERATOR, "ts": "1736408883690507.080"}])


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({**PADDLE, "traceEvents": [row("Operator", "x", 1, "1(C++)", 5, 5)]}),
        json.dumps({**OURS, "traceEvents": [arrow("s", "ac2g", 1, 1000, 1, 5)]}),
        json.dumps({"traceEvents": [row("toplevel", "x", 1, 1, 5, 5)]}),
        TORCH_NPU,
        '{"a": 1}',
        "",
        "not json",
    ],
)
def test_others_are_left_to_their_readers(tmp_path, text):
    """Keys and categories that Paddle, torch_npu, we ourselves and browsers write, too."""
    (tmp_path / "other.json").write_text(text)
    assert found(tmp_path / "other.json") == []


@pytest.mark.parametrize(
    ("info", "rank", "world_size"),
    [
        ({"backend": "nccl", "rank": 3, "world_size": 8}, 3, 8),
        ({"rank": "3", "world_size": "8"}, 3, 8),
        ({"backend": "nccl"}, None, -1),
        ({"rank": -1}, None, -1),
        ({"rank": True, "world_size": 2.5}, None, -1),
        ("none", None, -1),
    ],
)
def test_distributed_info_names_the_rank(tmp_path, info, rank, world_size):
    """As a number or a text; where it is missing, nothing is guessed from the file's name."""
    [capture] = found(write(tmp_path / "rank-5.json", [KERNEL], {"distributedInfo": info}))
    said = "distributedInfo" if rank is not None else ""
    assert (capture.rank, capture.world_size, capture.rank_from) == (rank, world_size, said)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_keys_behind_the_events_count_too(tmp_path, name):
    """Files that were loaded and saved again have Kineto's keys at their end."""
    many = [OPERATOR] * 2000  # further away than the head that is looked at
    after = {"distributedInfo": {"rank": 6}, "baseTimeNanoseconds": BASE}
    [capture] = found(write(tmp_path / name, many, {}, after))
    assert (capture.rank, capture.clock.domain) == (6, Domain.UNIX)


def test_a_long_list_of_process_groups_is_no_obstacle(tmp_path):
    """The header of a large job is longer than the usual head of a file."""
    ranks = list(range(40_000))
    info = {"rank": 9, "pg_config": [{"pg_name": "0", "pg_size": 40_000, "ranks": ranks}]}
    [capture] = found(write(tmp_path / "a.json.gz", [KERNEL], {"distributedInfo": info}))
    assert capture.rank == 9


def test_process_groups_may_be_text():
    """On-demand captures write lists as strings."""
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": "[0, 1, 2]"},
        {"pg_name": "7", "pg_desc": "undefined", "pg_size": 2, "ranks": [4, 5]},
        {"pg_desc": "nameless"},
        "odd",
    ]
    for config in (groups, json.dumps(groups)):
        said = process_groups({"pg_config": config})
        assert {n: (g.description, g.size) for n, g in said.items()} == {
            "0": ("default_pg", 3),
            "7": ("", 2),
        }
    assert process_groups({"pg_config": "[0, ..."}) == {}


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("worker3.1623212756351.pt.trace.json", 3),
        ("node5_4021.1719853884000000000.pt.trace.json", None),
    ],
)
def test_times_in_names_are_no_ranks(name, rank):
    """``--rank-from name`` takes the worker, never the time of the export."""
    assert rank_in_name(name) == rank


# -- time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("behind", [False, True])
def test_the_base_is_added_when_read(tmp_path, name, behind, tier):
    """Stamps that count from a base come out in Unix time, wherever the base stands."""
    key = {"baseTimeNanoseconds": BASE}
    events = [row("kernel", "k", 0, 7, 4458677009853.422, 1.5), *[OPERATOR] * 1000]
    info = {"schemaVersion": 1}
    keys = (info, key) if behind else ({**info, **key}, {})
    trace = read(write(tmp_path / name, events, *keys))
    assert (trace.capture.clock.domain, trace.capture.clock.offset_ns) == (Domain.UNIX, 0)
    assert int(trace.events.start_ns.max()) == BASE + 4458677009853422


def test_unix_stamps_need_no_base(tmp_path):
    """Fractions of such stamps are exact, where a double would lose them."""
    text = '{"schemaVersion": 1, "traceEvents": [%s]}'
    event = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": %s, "dur": %s}'
    (tmp_path / "a.json").write_text(text % (event % ("1712195495502094.565", "35115.869")))
    trace = read(tmp_path / "a.json")
    assert trace.events.start_ns.tolist() == [1712195495502094565]
    assert trace.events.dur_ns.tolist() == [35115869]


def test_stamps_without_any_base_are_relative(tmp_path):
    """Nothing ties them to other ranks, and nobody says so."""
    [capture] = found(write(tmp_path / "a.json", [KERNEL]))
    assert capture.clock.domain is Domain.RELATIVE


def test_ranks_with_different_bases_meet(tmp_path):
    """Bases are months apart; the same moment is the same in the output."""
    quarter = 7_889_238
    for rank, base in enumerate((BASE, BASE - quarter * 10**9)):
        event = row("kernel", "k", 0, 7, 100 + rank * quarter * 10**6, 5)
        keys = {"distributedInfo": {"rank": rank}}
        write(tmp_path / f"{rank}.json", [event], keys, {"baseTimeNanoseconds": base})
    traces = traceconv.open(str(tmp_path)).traces(align="meta")
    assert [t.events.start_ns.tolist() for t in traces] == [[BASE + 100_000]] * 2


# -- collection windows -------------------------------------------------------------------


def test_windows_of_a_worker_are_one_rank(tmp_path):
    """They differ in the time of their names, and are read in its order."""
    for time, start in ((1623212799000, UNIX_US + 10**7), (1623212756351, UNIX_US)):
        events = [{**KERNEL, "ts": start}, row("cuda_runtime", "call", 9, 9, start - 5, 1)]
        write(tmp_path / f"worker0.{time}.pt.trace.json.gz", events)
    (trace,) = traceconv.open(str(tmp_path)).traces()
    assert len(trace.windows) == 2
    assert (
        placed(trace, Layer.DEVICE)
        == [(Layer.DEVICE, "GPU Hardware", "", "Stream 7", "gemm", OpClass.COMPUTE)] * 2
    )
    assert (
        trace.issues.count("flow-without-end") == 2
    )  # correlation numbers begin anew in each file


def test_what_differs_in_more_than_time_stays_apart(tmp_path):
    """Other ranks, other workers, and a copy of the same window are captures of their own."""
    for name, rank in (
        ("a.1623212756351.pt.trace.json", 0),
        ("a.1623212756352.pt.trace.json", 1),
        ("b.1623212756351.pt.trace.json", 0),
        ("c.1623212756351.pt.trace.json", 2),
        ("c.1623212756351.pt.trace.json.gz", 2),
        ("rank-7.Jul_15_10_52_41.1074.pt.trace.json", 7),
        ("rank-7.Jul_15_10_52_49.1074.pt.trace.json", 7),
    ):
        write(tmp_path / name, [KERNEL], {"distributedInfo": {"rank": rank}})
    assert [len(capture.files) for capture in found(tmp_path)] == [1] * 7


def test_a_broken_window_does_not_take_the_others_along(tmp_path):
    """It is booked; only if none can be read is that an error."""
    write(tmp_path / "w.1623212756351.pt.trace.json", [{**KERNEL, "ts": UNIX_US}])
    text = '{"schemaVersion": 1, "traceEvents": 5}'
    (tmp_path / "w.1623212756352.pt.trace.json").write_text(text)
    (trace,) = traceconv.open(str(tmp_path)).traces()
    assert (len(trace.events), trace.issues.count("window-failed")) == (1, 1)
    with pytest.raises(MalformedInputError, match="no list of trace events"):
        read(tmp_path / "w.1623212756352.pt.trace.json")


def test_a_manifest_that_cannot_be_read_is_booked(tmp_path):
    """The offsets it states are lost: a loss, and a doubt about the clocks."""
    write(tmp_path / "a.json", [{**KERNEL, "ts": UNIX_US}])
    entry = {"path": "a.json", "clocks": {"sync_to": {"file": "b.json"}, "offset_ns": 500}}
    manifest = json.dumps({"perfetto_manifest": {"version": 1, "files": [entry]}})
    starts, codes = [], []
    for text in (manifest, manifest[:-9], manifest[:9]):
        (tmp_path / "perfetto_manifest.json").write_text(text)
        opened = traceconv.open(str(tmp_path))
        [trace] = opened.traces("source")
        starts += trace.events.start_ns.tolist()
        codes.append({issue.code for issue in opened.issues})
    assert starts == [UNIX_US * 1000 + 500, UNIX_US * 1000, UNIX_US * 1000]
    assert codes[1] - codes[0] == codes[2] - codes[0] == {"malformed-record", "clock-assumed"}


def test_a_kernel_with_the_arguments_of_a_collective_communicates(tmp_path):
    """PyTorch writes them for every backend; names of XPU's kernels may tell nothing."""
    stated = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8,
              "Group size": 2, "dtype": "Float", "Process Group Name": "0"}  # fmt: skip
    events = [
        row("kernel", "gemm", 0, 7, 10, 20, stream=7),
        row("kernel", "Intel_Symbol_Table_Void_Program", 0, 8, 30, 25, stream=8, **stated),
        row("kernel", "Intel_Symbol_Table_Void_Program", 0, 8, 60, 5, stream=8),
    ]
    trace = read(write(tmp_path / "t.json", events))
    (called,) = (trace.events.op == OpClass.COMM).nonzero()[0].tolist()
    assert trace.events.dur_ns[called] == 25_000
    assert trace.tracks[int(trace.events.track[called])].name == "Group 0"
    assert trace.events.dur_ns[trace.events.op == OpClass.COMPUTE].sum() == 25_000


# -- lanes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("categories", "sort"),
    [
        ("cpu_op Operator user_annotation python_function", Sort.OPERATOR),
        ("cuda_runtime cuda_driver Runtime xpu_runtime mtia_runtime glow_runtime", Sort.CALL),
        ("privateuse1_runtime privateuse1_driver xpu_driver mlu_runtime", Sort.CALL),
        ("mlu_memcpy mlu_memset", Sort.COPY),
        ("mlu_user_annotation mlu_profiler_range", Sort.PROJECTION),
        ("mlu_notifier", Sort.SYNC),
        ("kernel Kernel mtia_ccp_events", Sort.KERNEL),
        ("gpu_memcpy gpu_memset Memcpy Memset", Sort.COPY),
        ("cuda_sync cuda_event xpu_sync", Sort.SYNC),
        ("gpu_user_annotation cuda_profiler_range", Sort.PROJECTION),
        ("Trace overhead", Sort.PROFILER),
        ("something_new", Sort.OTHER),
    ],
)
def test_categories_of_all_generations(categories, sort):
    """2021 wrote them in capitals and without the vendor."""
    assert {sort_of(category) for category in categories.split()} == {sort}


def test_every_sort_has_its_lane(tmp_path, tier):
    """Device lanes hold work only; the rest stands beside it, whatever its process number."""
    events = [
        OPERATOR, CALL, KERNEL,
        row("python_function", "f", 900, 901, 10, 50),
        row("gpu_memcpy", "Memcpy PtoP", 0, 7, 70, 5, correlation=8),
        row("kernel", "rcclKernel", 0, 9, 40, 30, correlation=9),
        row("gpu_user_annotation", "ProfilerStep#3", 0, 7, 39.999, 31),
        row("cuda_sync", "Stream Sync", 0, "stream 7 (sync)", 50, 10),
        row("cuda_sync", "Context Sync", 0, -1, 50, 10),
        row("overhead", "Buffer Flush", -1, 0, 5, 1),
        row("Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", 0, 90),
        row("future_kind", "new", 900, 900, 80, 1),
        row("future_device_kind", "new", 3, 4, 80, 1),
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 95},
        {"ph": "M", "name": "thread_name", "pid": 900, "tid": 901,
         "args": {"name": "thread 901 (pt_autograd_0)"}},
    ]  # fmt: skip
    host, other = OpClass.HOST, OpClass.OTHER
    assert placed(read(write(tmp_path / "a.json", events))) == [
        (Layer.HOST, "Host", "", "Thread 900", "aten::mm", host),
        (Layer.HOST, "Host", "", "Thread 900", "new", host),
        (Layer.HOST, "Host", "", "Thread 901 (pt_autograd_0)", "f", host),
        (Layer.RUNTIME, "GPU Synchronization", "", "No stream", "Context Sync", OpClass.WAIT),
        (Layer.RUNTIME, "GPU Synchronization", "", "Stream 7 (sync)", "Stream Sync", OpClass.WAIT),
        (Layer.RUNTIME, "Runtime", "", "Thread 900", "cudaLaunchKernel", host),
        (Layer.SCOPE, "GPU Annotations", "", "Stream 7", "ProfilerStep#3", other),
        (Layer.DEVICE, "GPU Hardware", "", "Stream 7", "gemm", OpClass.COMPUTE),
        (Layer.DEVICE, "GPU Hardware", "", "Stream 7", "Memcpy PtoP", OpClass.COPY),
        (Layer.COMM, "RCCL", "", "Stream 9", "rcclKernel", OpClass.COMM),
        (Layer.OTHER, "Profiler", "", "Overhead", "Buffer Flush", other),
        (Layer.OTHER, "Profiler", "", "PyTorch Profiler", "PyTorch Profiler (0)", other),
        (Layer.OTHER, "Profiler", "", "PyTorch Profiler", "Record Window End", other),
        (Layer.OTHER, "future_device_kind", "Process 3", "Lane 4", "new", other),
    ]


def test_several_devices_are_told_apart(tmp_path):
    """One device needs no name; of two each has its own, also where it communicates."""
    events = [row("kernel", name, d, 7, 10, 5) for d in (0, 1) for name in ("gemm", NCCL)]
    trace = read(write(tmp_path / "a.json", events))
    assert {(layer, group) for layer, _, group, *_ in placed(trace)} == {
        (layer, f"GPU {d}") for layer in (Layer.DEVICE, Layer.COMM) for d in (0, 1)
    }
    assert trace.capture.device == -1


def test_process_and_device_become_known(tmp_path):
    """The process that metadata calls "CPU", and the one device that did something."""
    labels = {"ph": "M", "name": "process_labels", "pid": 900, "args": {"labels": "CPU"}}
    strangers = [row("python_function", "f", 0, tid, 10, 5) for tid in range(5)]
    trace = read(write(tmp_path / "a.json", [*strangers, CALL, KERNEL, labels]))
    assert (trace.capture.pid, trace.capture.device) == (900, 0)
    assert (Layer.HOST, "Host", "Process 0", "Thread 0", "f", OpClass.HOST) in placed(trace)


@pytest.mark.parametrize("pid", ["", "GPU 0", None, 1.5, "²", "9" * 5000])
def test_odd_process_numbers_stop_nothing(tmp_path, pid):
    """What is a kernel by its category stays one, wherever it is said to have run."""
    trace = read(write(tmp_path / "a.json", [{**KERNEL, "pid": pid}, {**CALL, "pid": pid}]))
    assert [row[-1] for row in placed(trace, Layer.DEVICE)] == [OpClass.COMPUTE]
    assert (trace.capture.pid, trace.capture.device) == (-1, -1)


def test_steps_are_the_marks_of_the_host(tmp_path):
    """Their projections onto the device carry the same name and are no steps."""
    events = [
        row("user_annotation", "ProfilerStep#551", 900, 900, 0, 100),
        row("gpu_user_annotation", "ProfilerStep#551", 0, 7, 40, 300),
        row("gpu_user_annotation", "ProfilerStep#552", 0, 7, 400, 300),
        CALL, KERNEL,
    ]  # fmt: skip
    write(tmp_path / "a.json", events, {"distributedInfo": {"rank": 0}})
    [trace] = traceconv.open(str(tmp_path)).traces("detail", scope=True)
    steps = trace.steps
    assert (steps.step.tolist(), steps.dur_ns.tolist()) == ([551], [100_000])
    assert steps.computing_ns.tolist() == [30_000]


def test_annotations_and_waiting_are_no_device_work(tmp_path):
    """Free time ends with the last kernel or copy, not with what merely lasts longer."""
    events = [
        CALL, KERNEL, row("gpu_memcpy", "Memcpy", 0, 7, 80, 10),
        row("gpu_user_annotation", "range", 0, 7, 1, 900), row("cuda_sync", "Sync", 0, 7, 1, 900),
    ]  # fmt: skip
    write(tmp_path / "a.json", events, {"distributedInfo": {"rank": 0}})
    [trace] = traceconv.open(str(tmp_path)).traces("detail")
    assert trace.overlap.free_rule == "device"
    assert trace.overlap.sums_ns == (30_000, 0, 0, 10_000, 10_000, 10_000, 0, 50_000)


def test_counters_of_devices_do_not_split_the_analysis(tmp_path):
    """Counter events of other GPUs are lanes of their own, not devices that worked."""
    events = [KERNEL, row("kernel", NCCL, 0, 9, 50, 30)]
    for device in (0, 1):
        counter = {"ph": "C", "cat": "hardware_counters", "name": "power", "pid": device}
        events.append({**counter, "ts": 10, "args": {"W": 300.5}})
        name = {"ph": "M", "name": "process_labels", "pid": device}
        events.append({**name, "args": {"labels": f"GPU {device}"}})
    write(tmp_path / "a.json", events, {"distributedInfo": {"rank": 0}})
    [trace] = traceconv.open(str(tmp_path)).traces("detail")
    assert {t.heading for t in trace.tracks if t.is_counter} == {"GPU 0 Counters", "GPU 1 Counters"}
    assert trace.overlap.sums_ns.computing == 30_000
