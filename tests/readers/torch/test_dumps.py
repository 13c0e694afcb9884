"""Pickled dumps of PyTorch: the flight recorder's, and memory snapshots."""

import json
import pickle

import pytest
import torch_files
from event_logs import found_by
from paths import ROOT
from torch_files import MIB, START_US

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain
from traceconv.core.errors import MalformedInputError
from traceconv.readers.torch import flight_recorder, memory_snapshot


def read(reader, folder):
    """The trace of the only capture below a folder, as rank 0."""
    [capture], _ = found_by(reader, folder)
    build = TraceBuilder(capture)
    reader.read(capture, build)
    return build.finish()


def rows(trace):
    events = trace.events
    columns = (events.track, events.name, events.start_ns, events.dur_ns, events.args)
    return [
        (trace.tracks[t].name, trace.strings[n], s, d, trace.args[a])
        for t, n, s, d, a in zip(*(c.tolist() for c in columns), strict=True)
    ]


@pytest.mark.parametrize("name", torch_files.golden())
def test_golden_inputs_are_what_their_maker_writes(name):
    """But for the one that refers to a class of the maker, whose module has another name here."""
    if "classes" not in name:
        assert (ROOT / "golden" / name).read_bytes() == torch_files.golden()[name]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_says_what_the_json_says(tmp_path, protocol):
    """Of every protocol; tuples are lists, what is unknown is null."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    dump = pickle.loads(torch_files.flight())
    (tmp_path / "a/nccl_trace_rank_1").write_bytes(torch_files.flight(protocol))
    (tmp_path / "b/nccl_trace_rank_1.json").write_text(json.dumps(dump))
    first, second = (read(flight_recorder.READER, tmp_path / folder) for folder in "ab")
    assert rows(first) == rows(second)
    assert len(rows(first)) == 4
    assert first.notes == second.notes


def test_the_json_form_is_preferred(tmp_path):
    """Where both are there."""
    (tmp_path / "nccl_trace_rank_0").write_bytes(torch_files.flight())
    (tmp_path / "nccl_trace_rank_0.json").write_text(
        '{"entries":[{"profiling_name":"nccl:all_reduce","time_created_ns":5}]}'
    )
    captures, _ = found_by(flight_recorder.READER, tmp_path)
    assert [(c.files, c.known, c.rank) for c in captures] == [
        (("nccl_trace_rank_0.json",), ("nccl_trace_rank_0",), 0)
    ]


def test_what_a_pickle_would_run_is_not_run(tmp_path):
    """The message says what is in it, and how to get a dump that can be read."""
    raw = b"\x80\x02}(X\x07\x00\x00\x00entriescposix\nmkdir\n(X\x04\x00\x00\x00madetRu."
    raw = raw.replace(b"}(", b"}(X\x0c\x00\x00\x00nccl_versionK\x01")
    (tmp_path / "nccl_trace_rank_0").write_bytes(raw)
    with pytest.raises(MalformedInputError, match=r"GLOBAL.*_dump_nccl_trace_json"):
        read(flight_recorder.READER, tmp_path)


def test_an_argument_that_multiplies_is_left_out(tmp_path):
    """A few bytes of references would be a terabyte of text."""
    value = [1]
    for _ in range(40):
        value = [value, value]
    dump = pickle.loads(torch_files.flight())
    dump["entries"][0]["input_sizes"] = value
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump, 2))
    trace = read(flight_recorder.READER, tmp_path)
    assert len(trace.events) == 4
    assert trace.issues.count("malformed-record") == 1


# -- memory ------------------------------------------------------------------------------------


def samples(trace, name, group="GPU 0"):
    """(us after the start, MiB) of a curve."""
    [track] = [i for i, t in enumerate(trace.tracks) if (t.name, t.group) == (name, group)]
    counters = trace.counters.take(trace.counters.track == track)
    return [
        ((t // 1000) - START_US, v / MIB)
        for t, v in zip(counters.start_ns.tolist(), counters.value.tolist(), strict=True)
    ]


def test_curves_end_at_what_was_held(tmp_path):
    """Allocated is what blocks in use add up to, reserved what segments do."""
    (tmp_path / "snapshot.pickle").write_bytes(torch_files.memory())
    trace = read(memory_snapshot.READER, tmp_path)
    assert samples(trace, "Allocated") == [(10, 6), (20, 14), (30, 10), (40, 14)]
    assert samples(trace, "Active") == [(10, 8), (20, 16), (35, 12), (36, 11), (40, 15)]
    assert samples(trace, "Reserved") == [(0, 22)]
    assert trace.notes["memory_at_dump"]["0"] == {
        "allocated": 14 * MIB, "active": 15 * MIB, "reserved": 22 * MIB
    }  # fmt: skip


def test_curves_do_not_fall_below_zero(tmp_path):
    """Where the log and the state do not agree; that is counted."""
    (tmp_path / "snapshot.pickle").write_bytes(torch_files.memory())
    trace = read(memory_snapshot.READER, tmp_path)
    assert samples(trace, "Active", "GPU 1") == [(15, 0), (35, 0)]
    assert trace.issues.count("counter-clipped") == 2


def test_blocks_marks_and_ranges(tmp_path):
    """A block lasts to its release, or to the end of the log; frames lose their folders."""
    (tmp_path / "rank7.pickle").write_bytes(torch_files.memory())
    captures, _ = found_by(memory_snapshot.READER, tmp_path)
    assert captures[0].rank == 7
    trace = read(memory_snapshot.READER, tmp_path)
    blocks = sorted(row[1:4] for row in rows(trace) if row[0] == "Largest blocks")
    at = START_US * 1000
    assert blocks == [
        ("1 MiB", at + 35_000, 0), ("2 MiB", at + 15_000, 20_000), ("4 MiB", at + 10_000, 25_000),
        ("4 MiB", at + 40_000, 21_000), ("8 MiB", at + 20_000, 41_000),
    ]  # fmt: skip
    marks = [row for row in rows(trace) if row[0] == "Allocator"]
    assert [row[4].get("device free") for row in marks if row[1] == "oom"] == [30 * MIB]
    assert marks[1][4]["frames"] == ["forward (forward.py:7)", "train (train.py:8)"]
    ranges = [row[1] for row in rows(trace) if row[0] == "Annotations"]
    assert ranges == ["step 1", "step 2"]
    assert "/folder" not in str(rows(trace))


def test_frames_are_those_of_the_program(tmp_path):
    """With frames of C++, as PyTorch records by default, every stack begins with the allocator's
    own: operators and nodes of autograd are kept by name, and Python's frames but for how modules
    are called. Where nothing else was recorded, all frames are kept."""
    inner = ["torch::unwind::unwind()", "c10::cuda::CUDACachingAllocator::Native::malloc(void**)"]
    operator = ["at::_ops::mul_Tensor::redispatch(c10::DispatchKeySet, at::Tensor const&)",
                "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)"]  # fmt: skip
    node = ["torch::autograd::generated::PowBackward0::apply(std::vector<at::Tensor>&&)"]
    stacks = [
        [*cpp(inner + operator + ["PyObject_Vectorcall"]), *torch_files.frames("forward"),
         {"name": "_call_impl", "filename": "/torch/nn/modules/module.py", "line": 1790},
         *torch_files.frames("train")],
        cpp(inner + operator + node), cpp(inner),
    ]  # fmt: skip
    records = [{"action": "alloc", "addr": i, "size": 8, "time_us": START_US + i, "frames": stack}
               for i, stack in enumerate(stacks)]  # fmt: skip
    value = {"segments": [], "device_traces": [records]}
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(value, 4))
    found = rows(read(memory_snapshot.READER, tmp_path))
    assert [row[4]["frames"] for row in found if row[0] == "Allocator"] == [
        ["aten::mul_Tensor", "forward (forward.py:7)", "train (train.py:7)"],
        ["aten::mul_Tensor", "PowBackward0"],
        [f"{name} (??:0)" for name in inner],
    ]


def cpp(names):
    """Frames of C++, as they are where no addresses were looked up."""
    return [{"name": name, "filename": "??", "line": 0} for name in names]


@pytest.mark.parametrize(
    "value",
    [
        {"segments": 5, "device_traces": "x", "total_size": 1},
        {"segments": [1, {"blocks": [2, {"size": "x"}]}], "device_traces": [[3, {"action": 7}]]},
        {"segments": [], "device_traces": [[{"action": "alloc", "time_us": 2**90, "size": -5}]]},
        {"segments": [], "device_traces": [[{"action": "alloc", "time_us": 5.5, "frames": [1]}]]},
        {"segments": [], "device_traces": [], "external_annotations": [1, {"time_us": None}]},
    ],
)
def test_odd_snapshots_end_in_issues(tmp_path, value):
    """Whatever is in the place of numbers and lists."""
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(value, 4))
    trace = read(memory_snapshot.READER, tmp_path)
    assert len(trace.events) <= 1


def test_records_without_times_keep_their_order(tmp_path):
    """As PyTorch 2.0 and 2.1 wrote them: what lives at the peak is known, when is not."""
    records = [("alloc", 1, 2), ("alloc", 2, 8), ("free_requested", 1, 2), ("free_completed", 1, 2)]
    log = [dict(zip(("action", "addr", "size"), one, strict=True)) for one in records]
    value = {"segments": [], "device_traces": [log]}
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(value, 4))
    captures, _ = found_by(memory_snapshot.READER, tmp_path)
    assert captures[0].clock.domain is Domain.RELATIVE
    trace = read(memory_snapshot.READER, tmp_path)
    assert [row[2] for row in rows(trace) if row[0] == "Allocator"] == [1000, 2000, 3000, 4000]
    assert trace.issues.count("time-estimated") == 4
    table = traceconv.stats(str(tmp_path), by="memory_live")["memory_live"]
    assert table["Bytes"].tolist() == [10]
