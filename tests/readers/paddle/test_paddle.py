"""Paddle's timelines as a trace: rows, arrows, memory, steps; both formats agree."""

import json

import numpy as np
import pytest
from paddle_files import (
    T0,
    Call,
    Host,
    Memory,
    Recording,
    Work,
    as_json,
    as_pb,
    small,
)
from paddle_traces import arrows, codes, find, named, read, read_json, rows, write

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Layer
from traceconv.readers.paddle import reader as paddle


def test_both_formats_agree(tmp_path):
    """JSON and protobuf of one recording give the same rows; all starts differ by one amount."""
    text, raw = (
        rows(read_json(tmp_path, as_json(small()))),
        rows(read(write(tmp_path, "rank1", as_pb(small())))),
    )
    shifts = {a[5] - b[5] for a, b in zip(text, raw, strict=True)}
    assert [(*r[:5], *r[6:]) for r in text] == [(*r[:5], *r[6:]) for r in raw]
    assert len(shifts) == 1


@pytest.mark.parametrize("form", [as_json, as_pb])
def test_launches_are_arrows(tmp_path, form):
    """Every device row has an arrow from its call, by id or by parent."""
    trace = read(write(tmp_path, "rank0", form(small())))
    assert arrows(trace) == [
        ("cudaLaunchKernel", "ncclDevKernel_AllReduce_Sum_f32"),
        ("cudaLaunchKernel", "relu_kernel"),
        ("cudaLaunchKernel", "sgemm<float>[8]"),
        ("cudaMemcpyAsync", "MEMCPY_HtoD"),
        ("cudaMemsetAsync", "MEMSET"),
    ]


@pytest.mark.parametrize("form", [as_json, as_pb])
def test_memory_events_are_instants_and_counters(tmp_path, form):
    """An allocation stays an event, called by its kind, and says what is in use."""
    trace = read(write(tmp_path, "rank0", form(small())))
    events, counters = trace.events, trace.counters
    marks = [trace.strings[n] for n in events.name[events.kind == 1].tolist()]
    samples = {
        trace.tracks[t].name: counters.value[counters.track == t].tolist()
        for t in np.unique(counters.track).tolist()
    }
    assert marks == ["Allocate", "Free"]
    assert samples == {"GPU 0 Allocated": [4096.0, 0.0], "GPU 0 Reserved": [8192.0, 8192.0]}


@pytest.mark.parametrize("form", [as_json, as_pb])
def test_kernels_that_communicate_lie_apart(tmp_path, form):
    """NCCL kernels go to the lanes of NCCL; the user's own words name no library."""
    ((capture,), _) = find(write(tmp_path, "rank0", form(small())))
    build = TraceBuilder(capture)
    build.comm_words = ("relu",)
    paddle.READER.read(capture, build)
    trace = build.finish()
    comm = {(row[1], row[4]) for row in rows(trace) if row[0] == Layer.COMM}
    assert comm == {
        ("NCCL", "ncclDevKernel_AllReduce_Sum_f32"),
        ("Communication", "relu_kernel"),
    }


@pytest.mark.parametrize("form", [as_json, as_pb])
def test_several_devices_are_told_apart(tmp_path, form):
    """With a second device, streams lie below their device."""
    recording = small()
    recording.calls()[0].work.append(Work("second", 13_000, 14_000, device=1))
    trace = read(write(tmp_path, "rank0", form(recording)))
    groups = {track.group for track in trace.tracks if track.layer in (Layer.DEVICE, Layer.COMM)}
    assert groups == {"GPU 0", "GPU 1"}


@pytest.mark.parametrize("form", [as_json, as_pb])
def test_host_rows_say_their_kind(tmp_path, form):
    """The category of a host event stands among its arguments; operators keep their shapes."""
    trace = read(write(tmp_path, "rank0", form(small())))
    args = {
        trace.strings[n]: trace.args[a]
        for n, a in zip(trace.events.name.tolist(), trace.events.args.tolist(), strict=True)
    }
    assert args["LeNet"] == {"type": "Forward"}
    assert args["relu dygraph"] == {"type": "Operator"}
    shapes = {"x": [[8, 4]], "y": [[4, -1]]}
    assert args["matmul dygraph"] == {"type": "Operator", "input_shapes": shapes}


@pytest.mark.parametrize("form", [as_json, as_pb])
def test_names_of_steps_give_their_numbers(tmp_path, form):
    """Only the profiler's own step marks do, not a user's range of such a name."""
    recording = small()
    recording.hosts.append(Host("ProfileStep#7", "UserDefined", 131_000, 132_000))
    trace = read(write(tmp_path, "rank0", form(recording)))
    assert sorted(r[8] for r in rows(trace) if r[4].startswith("ProfileStep")) == [-1, 0, 1]


@pytest.mark.parametrize("form", [as_json, as_pb])
def test_phases_of_steps_are_known_by_their_type(tmp_path, form):
    """Forward ranges are called as their layers; they last to the end of backward."""
    path = write(tmp_path, "rank0", form(small()))
    (trace,) = traceconv.open(str(path)).traces("summary")
    first = int(trace.events.start_ns.min())
    found = [(row[4], row[5] + T0 - first, row[6]) for row in rows(trace) if row[0] == Layer.STEP]
    assert found == [
        ("After backward 0", 80_777, 9_473),
        ("Forward+backward 0", 2_001, 78_776),
        ("ProfileStep#0", 0, 90_250),
        ("ProfileStep#1", 95_100, 84_930),
    ]


def test_memory_of_other_places_is_named(tmp_path):
    """Host memory is of the CPU."""
    recording = Recording(small().hosts, [Memory("Allocate", 10, 64, 64, 64, place="cpu")])
    trace = read_json(tmp_path, as_json(recording))
    assert {t.name for t in trace.tracks if t.is_counter} == {"CPU Allocated", "CPU Reserved"}


# -- arrows and accounts -------------------------------------------------------------------


def test_calls_in_one_microsecond_keep_their_arrows(tmp_path):
    """Stamps cannot tell such calls apart; ids do."""
    calls = [
        Call(f"call{i}", 5_000 + 90 * i, 5_080 + 90 * i, i, [Work(f"k{i}", 9_000 + i, 9_500 - i)])
        for i in range(10)
    ]
    recording = Recording([Host("op", "Operator", 4_000, 8_000, calls=calls)])
    trace = read_json(tmp_path, as_json(recording))
    assert arrows(trace) == [(f"call{i}", f"k{i}") for i in range(10)]


def test_ids_printed_as_negative_numbers_match(tmp_path):
    """Correlation ids pass through a signed 32-bit number."""
    text = as_json(small()).replace('"correlation id": 11', '"correlation id": -2147483000')
    assert ("cudaLaunchKernel", "sgemm<float>[8]") in arrows(read_json(tmp_path, text))


def test_every_end_of_an_arrow_is_accounted_for(tmp_path):
    """Heads without a call have no start, calls that launched nothing are only decoration."""
    text = as_json(small()).replace('"correlation id": 14', '"correlation id": 99', 1)
    trace = read_json(tmp_path, text)
    assert {"flow-unbound": 1, "decoration-skipped": 2}.items() <= codes(trace).items()
    assert (trace.ledger["read", "flow"], trace.ledger["lost", "flow"]) == (5, -1)


def test_what_other_tools_add_is_kept(tmp_path):
    """Counters and pairs of begin and end in the same file go on lanes of their own."""
    added = [
        {"ph": "C", "name": "util", "pid": 1, "ts": T0 // 1000, "args": {"value": 5}},
        {"ph": "B", "name": "extra", "pid": 1, "tid": 2, "ts": T0 // 1000},
        {"ph": "E", "name": "extra", "pid": 1, "tid": 2, "ts": T0 // 1000 + 4},
    ]
    text = as_json(small()).replace("  {}", ",".join(map(json.dumps, added)) + ",{}")
    trace = read_json(tmp_path, text)
    assert trace.counts() == {"slice": 20, "instant": 2, "counter": 5, "flow": 5}
    assert named(trace, "extra")[0][1] == 4_000


def test_the_python_tier_reads_the_same(tmp_path, monkeypatch):
    """Without the C extension nothing changes, broken file or not."""
    recording = small()
    recording.hosts[2].name = 'a "b"'
    path = write(tmp_path, "rank0", as_json(recording))
    native = read(path)
    monkeypatch.setenv("TRACECONV_NATIVE", "0")
    plain = read(path)
    assert (rows(plain), arrows(plain), codes(plain)) == (
        rows(native),
        arrows(native),
        codes(native),
    )


def test_other_makers_devices_keep_their_name(tmp_path):
    """Metadata and categories tell whose device and runtime it is."""
    text = as_json(small()).replace("Device 0 (GPU)", "Device 0 (MLU)")
    trace = read_json(tmp_path, text.replace('"CudaRuntime"', '"MluRuntime"'))
    titles = {t.heading for t in trace.tracks if t.layer in (Layer.DEVICE, Layer.RUNTIME)}
    assert titles == {"MLU Hardware", "MLU"}


def test_rows_of_a_thread_stand_together(tmp_path):
    """The Python row of a thread, then its C++ row, then the next thread."""
    recording = small()
    recording.hosts.append(Host("load", "Dataloader", 1_000, 2_000, tid=99))
    recording.hosts.append(Host("read", "UserDefined", 1_000, 2_000, tid=99))
    trace = read_json(tmp_path, as_json(recording))
    names = [t.name for t in trace.tracks if t.layer is Layer.HOST]
    sides = ["Thread 99 (Python)", "Thread 99 (C++)", "Thread 100 (Python)", "Thread 100 (C++)"]
    assert names == sides
