"""Files of any tool, and our own read back: who claims them, and where their lanes go."""

import json

import pytest
from trace_events import e, meta, rows, samples, x

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain
from traceconv.core.errors import Issues
from traceconv.core.model import Layer, OpClass, Track
from traceconv.find import registry
from traceconv.io.sources import FileSource, FolderSource
from traceconv.readers.chrome.reader import READER
from traceconv.writers import Document
from traceconv.writers.chrome import ChromeJsonWriter


def find(path, data=None, issues=None):
    if data is not None:
        path.write_text(data if isinstance(data, str) else json.dumps(data))
    source = FolderSource(path, str(path)) if path.is_dir() else FileSource(path, str(path))
    return READER.find(source, source.names(), issues or Issues())


def read(capture):
    build = TraceBuilder(capture)
    READER.read(capture, build)
    return build.finish()


def tracks(path, events):
    """Tracks in screen order as (layer, title, group, name)."""
    (capture,) = find(path, events)
    return [(t.layer.value, t.heading, t.group, t.name) for t in read(capture).tracks]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "trace.json"


def test_file_of_any_name_is_known_by_its_content(tmp_path):
    """A lone file needs no ending."""
    assert len(find(tmp_path / "anything.out", [x()])) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"hostname": "h", "rank_id": 0, "devices": "0"},
        {"step": {"p2p": {"hcom": {"Transit Time(ms)": 1}}}},
        [],
        [1, 2, 3],
        {"name": "settings", "ts": 5},
    ],
)
def test_other_json_is_not_claimed(file, other):
    """Identity and communication files are left alone, and so is an empty list."""
    assert find(file, other) == []


def test_each_file_is_a_capture(tmp_path):
    """Files of a folder stand for themselves; only likely names are looked into."""
    for name in ("a.json", "b.jsonl", "c.txt"):
        (tmp_path / name).write_text(json.dumps(x()))
    assert [c.files for c in find(tmp_path)] == [("a.json",), ("b.jsonl",)]


def test_rank_and_clock_of_a_foreign_file(file):
    """Nothing names the rank; stamps of sixteen digits count from 1970."""
    (early,) = find(file, [x(ts=5)])
    (late,) = find(file, [x(ts="1736408883704643.212")])
    assert (early.rank, early.clock) == (None, None)
    assert late.clock.domain is Domain.UNIX


def test_equal_names_stay_apart(file):
    """Processes and threads of one name get their numbers."""
    events = [
        x(pid=1, tid=1), x(pid=1, tid=2), x(pid=2, tid=1), x(pid=3, tid=8), x(pid=3, tid=9),
        meta("process_name", 1, name="p"), meta("process_name", 2, name="p"),
        meta("thread_name", 1, 1, name="t"), meta("thread_name", 1, 2, name="t"),
        meta("thread_name", 3, 8, name="Thread 9"),
    ]  # fmt: skip
    assert tracks(file, events) == [
        ("host", "Process 3", "", "Thread 9"),
        ("host", "Process 3", "", "Thread 9 (9)"),
        ("host", "p (1)", "", "t (1)"),
        ("host", "p (1)", "", "t (2)"),
        ("host", "p (2)", "", "Thread 1"),
    ]


def test_streams_are_devices(file):
    """Threads called like streams, and kernels, lie on hardware; names tell communication."""
    events = [
        x("gemm", 1, pid=0, tid=7, cat="kernel"),
        x("ncclDevKernel_AllReduce", 3, pid=0, tid=7, cat="kernel"),
        x("Memcpy HtoD", 5, pid=0, tid=7, cat="gpu_memcpy"),
        x("range", 7, pid=0, tid=7, cat="gpu_user_annotation"),
        x("ProfilerStep#4", 1, pid=9, tid=9, cat="user_annotation"),
        meta("thread_name", 0, 7, name="stream 7"),
    ]
    (capture,) = find(file, events)
    found = rows(read(capture), "name", "op", "step", "track")
    assert [(n, op, step, t.layer.value) for n, op, step, t in found] == [
        ("ProfilerStep#4", "host", 4, "host"),
        ("gemm", "compute", -1, "device"),
        ("ncclDevKernel_AllReduce", "comm", -1, "device"),
        ("Memcpy HtoD", "copy", -1, "device"),
        ("range", "other", -1, "device"),
    ]


def test_counters_and_async_slices_have_tracks_of_their_own(file):
    """Counters belong to their process, asynchronous slices to their category."""
    events = [
        e("C", "load", args={"value": 1}),
        e("b", cat="net", id=1),
        e("e", ts=5, cat="net", id=1),
    ]
    assert tracks(file, events) == [
        ("host", "Process 1", "Async", "net"),
        ("counter", "Counters", "Process 1", "load"),
    ]


def test_ascend_processes_are_placed_as_ascend_says(file):
    """Where the head does not show it, Ascend's names still mean what they mean."""
    events = [
        x(tid=3),
        meta("process_name", name="Ascend Hardware"),
        meta("thread_name", 1, 3, name="Stream 3"),
    ]
    assert tracks(file, events) == [("device", "Ascend Hardware", "", "Stream 3")]


# -- our own files -------------------------------------------------------------------------------

TRACKS = [
    Track(Layer.STEP, "Model 2", "", "Step Trace", 3),
    Track(Layer.DEVICE, "Stream 3", "NPU 1", "Ascend Hardware", lane=1),
    Track(Layer.COUNTER, "HBM/Read", "HBM", "", unit="MB/s"),
]
BASE = 1_736_408_883_704_643_212


def built(rank, capture):
    build = TraceBuilder(capture)
    step, stream, counter = map(build.add_track, TRACKS)
    build.slice(step, BASE + 5, 50, f"Iteration {rank}", op=OpClass.ITERATION, graph=2, step=7)
    build.slice(stream, BASE + 10, 20, "op", op=OpClass.COMPUTE, args={"k": [1.5]})
    build.instant(stream, BASE + 12, "mark")
    build.counter(counter, BASE + 15, 2.5)
    build.flow(0, 1, "launch")
    return build.finish()


@pytest.fixture
def ours(file):
    """A file of ours with the ranks 0 and 3, and the traces in it."""
    from dataclasses import replace

    (capture,) = find(file, [x()])
    traces = [built(rank, replace(capture, rank=rank)) for rank in (0, 3)]
    writer = ChromeJsonWriter()
    parts = [writer.begin(Document(BASE, (0, 3), {"ranks": "0,3"}))]
    parts += [block for trace in traces for block in writer.trace(trace)]
    file.write_bytes(b"".join([*parts, writer.end()]))
    return traces


def test_file_of_ours_is_one_capture_per_rank(file, ours):
    """The metadata names the ranks."""
    assert [(c.rank, c.files, c.rank_from) for c in find(file)] == [
        (0, ("trace.json",), "its metadata"),
        (3, ("trace.json",), "its metadata"),
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_file_of_ours_reads_back_the_same(file, ours, which):
    """Tracks, classes, graphs, times and arguments of a rank are as they were written."""
    fields = ("track", "kind", "op", "name", "start", "dur", "graph", "step")
    before, after = ours[which], read(find(file)[which])
    assert rows(after, *fields) == rows(before, *fields)
    assert [after.args[i] for i in after.events.args] == [
        before.args[i] for i in before.events.args
    ]
    assert samples(after) == samples(before)
    assert after.tracks == before.tracks
    assert (len(after.flows), after.strings[int(after.flows.name[0])]) == (1, "launch")


def test_other_ranks_are_not_lost(file, ours):
    """Events of another rank are neither seen nor lost in this one."""
    trace = read(find(file)[0])
    assert trace.ledger == {("read", k): n for k, n in trace.counts().items()}


def test_reader_is_asked_last():
    """Every reader that knows more goes first."""
    assert list(registry.readers().found)[-1] == "chrome_json"


def test_the_overflow_of_viztracer_is_told(file):
    """Its buffer is a ring (``viztracer_metadata`` of viztracer/viztracer.py)."""
    events = [x("f", 1, 1, 10, 5)]
    (capture,) = find(file, {"traceEvents": events, "viztracer_metadata": {"overflow": True}})
    assert read(capture).issues.count("source-dropped") == 1


# -- unitrace -------------------------------------------------------------------------------


def unitrace(rank, pid, kernels, named="", flow_rank=None):
    """Records of a file: names of processes in front of kernels of 100 us, behind or nowhere."""
    names = [
        f'{{"ph": "M", "name": "process_name", "pid": {pid_}, "ts": 1795000000000000, "args": '
        f'{{"name": "RANK {rank} {what}"}}}}'
        for pid_, what in ((pid, "HOST<n1>"), (2**32 - 1 - 8192 * rank, "DEVICE<n1>0:29:0:0 #0"))
    ]
    flow, events = rank if flow_rank is None else flow_rank, []
    for i in range(kernels):
        on_host, device = f'"tid": {pid}, "pid": {pid}', 2**32 - 1 - 8192 * rank
        on_device, ts = f'"tid": {device}, "pid": {device}', 1795000000000000 + 1000 * i
        events += [
            f'{{"ph": "X", {on_host}, "name": "zeCommandListAppendLaunchKernel", "cat": "cpu_op", '
            f'"ts": {ts}, "dur": 20, "id": 0}}',
            f'{{"ph": "s", {on_host}, "name": "dep", "cat": "Flow_H2D_{i}_{flow}", "ts": {ts}, '
            f'"id": {i}}}',
            f'{{"ph": "X", {on_device}, "name": "gemm", "cat": "gpu_op", "ts": {ts + 100}, '
            f'"dur": 100, "args": {{"id": "{i}"}}}}',
        ]
    return {"first": names + events, "behind": events + names, "": events}[named]


def kernels_of(captures):
    """Rank and count of device rows of captures that the registry found."""
    return {
        capture.rank: int((trace.events.op == OpClass.COMPUTE).sum())
        for capture in captures
        for trace in [read(capture)]
    }


@pytest.mark.parametrize("named", ["first", "behind"])
def test_files_of_unitrace_that_its_script_joined(file, named):
    """Ranks of two hosts with equal process ids: events name their owner before or after."""
    lines = unitrace(0, 7, 3, named) + unitrace(1, 7, 5, named)
    file.write_text('{"traceEvents": [\n' + ",\n".join(lines) + "\n]}\n")
    captures = traceconv.open(str(file)).found
    assert {one.reader for one in captures} == {"chrome_json"}
    assert kernels_of(captures) == {0: 3, 1: 5}


@pytest.mark.parametrize(
    ("name", "flow_rank", "rank"),
    [("a.json", 1, 1), ("python.7.1.json", 0, 1), ("python.7.0.json", 0, 0)],
)
def test_files_of_unitrace_whose_process_was_killed(tmp_path, name, flow_rank, rank):
    """It named no process: flows of ranks above 0 and the name of the file tell the rank."""
    text = '{ "traceEvents":[\n' + ",\n".join(unitrace(1, 7, 4, flow_rank=flow_rank))
    (tmp_path / name).write_text(text[:-9])
    captures = traceconv.open(str(tmp_path / name)).found
    assert {one.reader for one in captures} == {"chrome_json"}
    assert kernels_of(captures) == {rank: 3}
