"""What is looked up in arguments of PyTorch traces: collectives, launches, memory."""

import pytest
from kineto_files import CALL, KERNEL, NCCL, OPERATOR, arrow, arrows, placed, read, row, write

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Kind, Layer, OpClass
from traceconv.find.capture_ranks import resolve
from traceconv.io.sources import sources
from traceconv.readers.torch.kineto.reader import READER


@pytest.fixture(params=["native", "python"], autouse=True)
def tier(request, monkeypatch):
    """Both tiers of reading in turn."""
    monkeypatch.setenv("TRACECONV_NATIVE", "1" if request.param == "native" else "0")


def collective(dur=1000, **args):
    said = {"Collective name": "allreduce", "dtype": "Float", "Group size": 4}
    event = row("kernel", NCCL, 0, 20, 50, dur)
    return {**event, "args": {**said, "In msg nelems": 250, "Out msg nelems": 250, **args}}


def told(trace, layer=Layer.COMM):
    """Arguments of the rows of a layer."""
    ids = trace.events.args[trace.rows_of(layer)].tolist()
    return [trace.args[i] for i in ids]


# -- collectives --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "lane"),
    [
        ({}, "Stream 20"),
        ({"Process Group Name": ""}, "Stream 20"),
        ({"Process Group Name": None}, "Stream 20"),
        ({"Process Group Name": "3"}, "Group 3 (tensor parallel)"),
        ({"Process Group Name": 3, "Process Group Description": "dp"}, "Group 3 (dp)"),
        ({"Process Group Name": "4", "Process Group Description": "undefined"}, "Group 4"),
    ],
)
def test_a_collective_lies_on_the_lane_of_its_group(tmp_path, args, lane):
    """What the file's head calls a group counts where the kernel does not; else the stream."""
    groups = [{"pg_name": "3", "pg_desc": "tensor parallel", "pg_size": 4}]
    keys = {"distributedInfo": {"rank": 0, "pg_config": groups}}
    trace = read(write(tmp_path / "a.json", [collective(**args), KERNEL], keys))
    assert placed(trace, Layer.COMM) == [(Layer.COMM, "NCCL", "", lane, NCCL, OpClass.COMM)]
    assert [row[3] for row in placed(trace, Layer.DEVICE)] == ["Stream 7"]


@pytest.mark.parametrize(
    ("args", "size", "bandwidth"),
    [
        ({}, 1000, 1.5),
        ({"dtype": "BFloat16"}, 500, 0.75),
        ({"dtype": "Float8_e4m3fn", "In msg nelems": "2000"}, 2000, 3.0),
        ({"Collective name": "_allgather_base", "Out msg nelems": 1000}, 4000, 3.0),
        ({"Collective name": "reduce_scatter", "In msg nelems": 1000}, 4000, 3.0),
        ({"Collective name": "all_to_allv"}, 1000, 0.75),
        ({"Collective name": "broadcast"}, 1000, 1.0),
        ({"Collective name": "send"}, 1000, 1.0),
        ({"Collective name": "coalesced"}, 1000, None),
        ({"Collective name": 5}, 1000, None),
        ({"Group size": 1}, 1000, None),
        ({"Group size": None}, 1000, None),
        ({"dtype": "Unheard"}, None, None),
        ({"In msg nelems": None, "Out msg nelems": -1}, None, None),
    ],
)
def test_size_and_bandwidth_of_a_collective(tmp_path, args, size, bandwidth):
    """Elements of the larger side by their size; bus bytes as nccl-tests count them, per 1 us."""
    [facts] = told(read(write(tmp_path / "a.json", [collective(dur=1, **args)])))
    assert (facts.get("bytes"), facts.get("bus bandwidth (GB/s)")) == (size, bandwidth)


def test_known_sizes_are_not_written_twice(tmp_path):
    """A kernel without length has no bandwidth; one that says its bytes keeps them."""
    events = [collective(bytes=7), collective(dur=0)]
    facts = told(read(write(tmp_path / "a.json", events)))
    assert sorted((f["bytes"], "bus bandwidth (GB/s)" in f) for f in facts) == [
        (7, False),
        (1000, False),
    ]


def test_words_of_the_user_mark_communication(tmp_path):
    """Kernels of a library nobody here knows of become collectives by name."""
    path = write(tmp_path / "a.json", [row("kernel", "my_dispatch<8>", 0, 27, 5, 5)])
    [source] = sources([str(path)])
    [capture] = resolve(READER.find(source, source.names(), Issues()), "meta", Issues())
    build = TraceBuilder(capture)
    build.comm_words = ("my_dispatch",)
    READER.read(capture, build)
    assert [r[3:] for r in placed(build.finish())] == [
        ("Stream 27", "my_dispatch<8>", OpClass.COMM)
    ]


# -- launches -----------------------------------------------------------------------------


def test_one_call_launches_many_kernels(tmp_path):
    """As a replayed graph does; its marks name only the first."""
    kernels = [{**KERNEL, "ts": 40 + 10 * i, "dur": 5} for i in range(3)]
    marks = [arrow("s", "ac2g", 7, 900, 900, 20), arrow("f", "ac2g", 7, 0, 7, 40)]
    marks += [arrow("f", "ac2g", 90 + i, 0, 7, 40 + 10 * i) for i in (1, 2)]
    trace = read(write(tmp_path / "a.json", [CALL, *kernels, *marks]))
    assert arrows(trace) == [("launch", 20_000, start) for start in (40_000, 50_000, 60_000)]
    assert trace.issues.count("launch-mark") == 3
    assert trace.ledger == {
        ("read", "slice"): 4, ("read", "flow"): 6, ("lost", "flow"): -3,
    }  # fmt: skip


def test_calls_that_begin_at_once_are_told_apart(tmp_path):
    """Whole microseconds leave no other way than the number."""
    calls = [row("Runtime", "launch", 9, "9", 20, 0, correlation=n) for n in (1, 2)]
    kernels = [row("Kernel", "k", 0, "stream 7", 40 + n, 1, correlation=n) for n in (1, 2)]
    trace = read(write(tmp_path / "a.json", [*calls, *kernels]))
    number = [trace.args[i]["correlation"] for i in trace.events.args.tolist()]
    ends = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
    assert sorted((number[a], number[b]) for a, b in ends) == [(1, 1), (2, 2)]


def test_a_task_without_its_call_is_booked(tmp_path):
    """The call lies before the window, or was filtered out."""
    trace = read(write(tmp_path / "a.json", [OPERATOR, KERNEL]))
    assert (len(trace.flows), trace.issues.count("flow-without-end")) == (0, 1)


@pytest.mark.parametrize("category", ["ac2g", "async", "async_cpu_to_gpu", "async_gpu"])
def test_marks_of_any_producer_are_drawn_once(tmp_path, category):
    """The number draws the arrow; the mark of it is the same arrow."""
    marks = [arrow("s", category, 7, 900, 900, 20), arrow("f", category, 7, 0, 7, 40)]
    trace = read(write(tmp_path / "a.json", [CALL, KERNEL, *marks]))
    assert arrows(trace) == [("launch", 20_000, 40_000)]


def test_arrows_between_calls_are_kept(tmp_path):
    """A call of the runtime that calls the driver: tasks' numbers do not draw that arrow."""
    driver = {**CALL, "cat": "cuda_driver", "name": "cuLaunchKernel", "ts": 21, "dur": 2}
    marks = [arrow("s", "ac2g", 7, 900, 900, 20), arrow("f", "ac2g", 7, 900, 900, 21)]
    marks += [arrow("f", "ac2g", 7, 0, 7, 40), arrow("f", "ac2g", 8, 900, 900, 21)]
    driver["args"] = {"correlation": 8}
    trace = read(write(tmp_path / "a.json", [CALL, driver, KERNEL, *marks]))
    assert arrows(trace) == [("ac2g", 20_000, 21_000), ("launch", 20_000, 40_000)]
    assert [(i.code, i.count) for i in trace.issues] == [
        ("metadata-unused", 1), ("launch-mark", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("number", [0, -1, None, "x", 2**32 + 7])
def test_marks_are_drawn_where_there_are_no_numbers(tmp_path, number):
    """Arguments may have been left out, or say nothing."""
    events = [{**e, "args": {"correlation": number}} for e in (CALL, KERNEL)]
    marks = [arrow("s", "ac2g", 7, 900, 900, 20), arrow("f", "ac2g", 7, 0, 7, 40)]
    trace = read(write(tmp_path / "a.json", [*events, *marks]))
    assert arrows(trace) == [("ac2g", 20_000, 40_000)]
    assert trace.issues.count("launch-mark") == 0


def test_a_number_no_double_can_hold_is_none(tmp_path):
    """The row stays, with its arguments as they are."""
    path = write(tmp_path / "a.json", [CALL, KERNEL])
    path.write_text(path.read_text().replace('"correlation": 7', '"correlation": 1e999'))
    trace = read(path)
    assert (len(trace.events), len(trace.flows)) == (2, 0)
    assert trace.args.raw(0) == b'{"correlation": 1e999}'


def test_marks_of_calls_that_launch_nothing_are_no_loss(tmp_path):
    """In a capture of the host alone every call still carries one."""
    events = [OPERATOR, {**CALL, "name": "cudaGetDevice"}, arrow("f", "ac2g", 7, 900, 900, 20)]
    trace = read(write(tmp_path / "a.json", events))
    assert [(issue.code, issue.severity) for issue in trace.issues] == [
        ("metadata-unused", "info"), ("launch-mark", "info"),
    ]  # fmt: skip


def test_backward_operators_point_to_their_forward_ones(tmp_path):
    """Those arrows are between host threads and have no numbers."""
    events = [OPERATOR, row("cpu_op", "MmBackward0", 900, 901, 80, 5)]
    events += [arrow("s", "fwdbwd", 3, 900, 900, 10), arrow("f", "fwdbwd", 3, 900, 901, 80)]
    assert arrows(read(write(tmp_path / "a.json", events))) == [("fwdbwd", 10_000, 80_000)]


# -- memory -------------------------------------------------------------------------------


def mark(ts, device=0, kind=1, category="cpu_instant_event", **totals):
    args = {"Bytes": 512, "Device Id": device, "Device Type": kind, **totals}
    event = {"ph": "i", "s": "t", "name": "[memory]", "pid": 900, "tid": 900, "ts": ts}
    return {**event, "cat": category, "args": args} if category else {**event, "args": args}


def samples(trace):
    """Counter samples as {name: [(time, value)]}."""
    found = {}
    columns = (trace.counters.track, trace.counters.start_ns, trace.counters.value)
    for track, time, value in zip(*(c.tolist() for c in columns), strict=True):
        found.setdefault(trace.tracks[track].name, []).append((time, value))
    return found


def test_memory_marks_make_counters_and_stay(tmp_path):
    """One counter per device and total; every mark is still an instant with its arguments."""
    events = [
        mark(5, **{"Total Allocated": 512, "Total Reserved": 2048}),
        mark(6, **{"Total Allocated": "1024", "Total Reserved": None}),
        mark(7, 1, 6, **{"Total Allocated": 64.0}),
        mark(8, -1, 0, **{"Total Allocated": 7, "Total Reserved": "many"}),
        mark(9, 2, 99, **{"Total Allocated": 2**53}),
        KERNEL,
    ]
    trace = read(write(tmp_path / "a.json", events))
    assert samples(trace) == {
        "CPU Allocated": [(8000, 7.0)],
        "Device type 99 2 Allocated": [(9000, 2.0**53)],
        "GPU 0 Allocated": [(5000, 512.0), (6000, 1024.0)],
        "GPU 0 Reserved": [(5000, 2048.0)],
        "GPU 1 Allocated": [(7000, 64.0)],
    }
    assert {t.unit for t in trace.tracks if t.is_counter} == {"B"}
    assert [t["Bytes"] for t in told(trace, Layer.HOST)] == [512] * 5


def test_marks_of_2021_say_no_totals(tmp_path):
    """Without a category and without totals: instants, and no counter is made up."""
    trace = read(write(tmp_path / "a.json", [mark(5, category=""), mark(6, category=""), CALL]))
    assert samples(trace) == {}
    assert (trace.events.kind == Kind.INSTANT).sum() == 2


@pytest.mark.parametrize("args", [[1, 2], "text", {"Total Allocated": [1]}, {}])
def test_odd_arguments_of_marks_are_kept(tmp_path, args):
    """They make no sample, and break nothing for the marks beside them."""
    events = [{**mark(5), "args": args}, mark(6, **{"Total Allocated": 1}), KERNEL]
    trace = read(write(tmp_path / "a.json", events))
    assert samples(trace) == {"GPU 0 Allocated": [(6000, 1.0)]}
    assert (trace.events.kind == Kind.INSTANT).sum() == 2


@pytest.mark.parametrize("behind", [False, True])
def test_memory_of_devices_is_noted(tmp_path, behind):
    """Wherever the list stands; what is no size is passed over."""
    sizes = [85 << 30, 40 << 30, -1, 1 << 63, True, "8", 1.5, None]
    devices = [{"id": i, "totalGlobalMem": size} for i, size in enumerate(sizes)]
    said = {"deviceProperties": [*devices, {"id": "9", "totalGlobalMem": 1}, 7]}
    trace = read(write(tmp_path / "a.json", [KERNEL], *([{}, said] if behind else [said])))
    assert trace.hints.device_memory_bytes == {0: 85 << 30, 1: 40 << 30}


def test_names_of_devices_are_noted(tmp_path):
    """By their number; what is no name is passed over. A merged trace keeps them."""
    named = [(0, "NVIDIA L4"), (1, "NVIDIA L40S"), (2, 7), (3, None), ("4", "x"), (-1, "y")]
    said = {"deviceProperties": [{"id": number, "name": name} for number, name in named]}
    path = write(tmp_path / "a.json", [KERNEL], said)
    assert read(path).hints.device_names == {0: "NVIDIA L4", 1: "NVIDIA L40S"}
    out = tmp_path / "out.pftrace"
    traceconv.merge(str(path), out=str(out), mode="detail", jobs=1)
    (again,) = traceconv.open(str(out)).traces()
    assert again.hints.device_names == {0: "NVIDIA L4", 1: "NVIDIA L40S"}


@pytest.mark.parametrize("said", [{}, {"id": 0}, 5, "text", None])
def test_devices_without_sizes_note_nothing(tmp_path, said):
    """HIP and old builds leave the list empty or away."""
    trace = read(write(tmp_path / "a.json", [KERNEL], {"deviceProperties": said}))
    assert not trace.hints.device_memory_bytes


# -- all of it ----------------------------------------------------------------------------


def test_nothing_of_the_user_or_the_job_is_copied(tmp_path):
    """Keys around the events name people, hosts and jobs; none of them is needed."""
    secret = "SECRET"
    keys = {
        "username": secret,
        "tw_job": secret,
        "trace_id": secret,
        "traceName": f"/home/{secret}",
    }
    after = {"INFO": [f"INFO: {secret}"], "distributedInfo": {"rank": 0, "node": secret}}
    trace = read(write(tmp_path / "a.json", [OPERATOR, CALL, KERNEL, collective()], keys, after))
    texts = [
        *trace.strings,
        repr(trace.tracks),
        repr((trace.notes, trace.hints)),
        repr(list(trace.issues)),
    ]
    capture = trace.capture
    texts += [capture.host, repr(capture.clock), repr(capture.detail), *map(str, told(trace))]
    assert [text for text in texts if secret in text] == []


def test_a_thread_that_waits_is_no_device(tmp_path):
    """XPU's plugin writes waits of the host on device -1, with the thread in place of a stream."""
    waits = [row("xpu_sync", "zeEventHostSynchronize", -1, 900, 60, 3)]
    trace = read(write(tmp_path / "a.json", [OPERATOR, CALL, KERNEL, *waits]))
    lane = (Layer.RUNTIME, "GPU Synchronization", "", "Thread 900")
    assert (*lane, "zeEventHostSynchronize", OpClass.WAIT) in placed(trace, Layer.RUNTIME)
