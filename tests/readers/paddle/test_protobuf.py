"""Paddle's protobuf: cut, damaged, with kinds and names nobody knows."""

import os
import subprocess
import sys

from paddle_files import (
    Host,
    as_pb,
    message,
    small,
)
from paddle_traces import codes, named, read, rows, write

from traceconv.core.errors import MalformedInputError
from traceconv.core.model import OpClass


def trees(recording):
    return message("NodeTreesProto").FromString(as_pb(recording))


def test_protobuf_is_cut_anywhere(tmp_path):
    """Every cut is noticed, and keeps what stands before it."""
    raw, seen = as_pb(small()), set()
    for end in range(20, len(raw), 7):
        path = write(tmp_path, "rank0", raw[:end])
        try:
            trace = read(path)
        except MalformedInputError as e:
            assert "not one event" in str(e)
        else:
            seen.add(len(trace.events))
            whole = len(trace.events) == 21
            assert codes(trace).get("truncated") == 1 or whole
    assert (min(seen), max(seen)) == (2, 21)


def test_a_damaged_node_costs_itself(tmp_path):
    """Nodes behind one that cannot be decoded are read."""
    raw = bytearray(as_pb(small()))
    raw[raw.index(b"LeNet") - 2] = 0x0F  # a field of no kind there is
    trace = read(write(tmp_path, "rank0", bytes(raw)))
    assert codes(trace)["malformed-record"] == 1
    assert len(trace.events) == 20


def test_damaged_framing_costs_the_rest_of_a_thread(tmp_path):
    """Lengths beyond repair are booked with the bytes they cost."""
    recording = small()
    recording.threads[101] = "other"
    recording.hosts.append(Host("there", "UserDefined", 1_000, 2_000, tid=101))
    raw = bytearray(as_pb(recording))
    at = raw.index(b"LeNet")
    start = raw.rindex(b"\x12", 0, at - 8)
    raw[start] = 0x17
    trace = read(write(tmp_path, "rank0", bytes(raw)))
    assert codes(trace)["skipped-bytes"] > 0
    assert named(trace, "there") == [(1_000, 1_000)]


def test_unknown_kinds_are_kept(tmp_path):
    """Numbers of kinds that came later do not cost the event."""
    proto = trees(small())
    proto.thread_trees[0].host_event_nodes[3].host_trace_event.type = 99
    trace = read(write(tmp_path, "rank0", proto.SerializeToString()))
    kinds = [trace.args[a].get("type") for a in trace.events.args.tolist()]
    assert (kinds.count("Type 99"), len(kinds)) == (1, 21)


def test_device_events_of_unknown_types_are_unclassified(tmp_path):
    """Numbers of types that came later are neither computing nor copies."""
    proto = trees(small())
    launch = proto.thread_trees[0].host_event_nodes[6].runtime_trace_event_nodes[0]
    launch.device_trace_event_nodes[0].device_trace_event.type = 99
    trace = read(write(tmp_path, "rank0", proto.SerializeToString()))
    assert trace.events.op.tolist().count(OpClass.UNCLASSIFIED) == 1


def test_undecodable_names_are_kept(tmp_path):
    """Bytes that are no text cost neither the event nor the file."""
    proto = trees(small())
    proto.thread_trees[0].host_event_nodes[3].host_trace_event.name = b"caf\xe9"
    trace = read(write(tmp_path, "rank0", proto.SerializeToString()))
    assert named(trace, "caf\ufffd")[0][1] == 39_502
    assert codes(trace)["bad-encoding"] == 1


def test_impossible_times_are_booked(tmp_path):
    """Times beyond int64 and ends before starts lose the event, and its arrow."""
    proto = trees(small())
    nodes = proto.thread_trees[0].host_event_nodes
    nodes[3].host_trace_event.end_ns = nodes[3].host_trace_event.start_ns - 1
    launch = nodes[6].runtime_trace_event_nodes[0]
    launch.runtime_trace_event.start_ns = 2**63
    launch.device_trace_event_nodes[0].device_trace_event.end_ns = 2**64 - 1
    nodes[0].mem_trace_event_nodes[0].mem_event.timestamp_ns = 2**64 - 1
    trace = read(write(tmp_path, "rank0", proto.SerializeToString()))
    assert {"negative-duration": 1, "bad-time": 3, "flow-unbound": 1}.items() <= codes(
        trace
    ).items()
    assert trace.counts() == {"slice": 16, "instant": 1, "counter": 2, "flow": 4}


def test_devices_of_roots_are_read(tmp_path):
    """Calls outside of any host event hang below the root, which itself is no event."""
    proto = trees(small())
    nodes = proto.thread_trees[0].host_event_nodes
    nodes[0].runtime_trace_event_nodes.extend(nodes[6].runtime_trace_event_nodes)
    del nodes[6].runtime_trace_event_nodes[:]
    trace = read(write(tmp_path, "rank0", proto.SerializeToString()))
    assert rows(trace) == rows(read(write(tmp_path, "rank1", as_pb(small()))))


def test_memory_of_devices_is_noted(tmp_path):
    """As the JSON's is."""
    proto = trees(small())
    proto.device_property[0].total_global_memory = 16 << 30
    trace = read(write(tmp_path, "rank0", proto.SerializeToString()))
    assert trace.hints.device_memory_bytes == {0: 16 << 30}


def test_reading_needs_no_protobuf_runtime(tmp_path):
    """Training environments pin versions of it."""
    path = write(tmp_path, "rank0", as_pb(small()))
    code = (
        "import sys, traceconv\n"
        f"traces = list(traceconv.open({str(path)!r}).traces())\n"
        "print(len(traces[0].events), any(m.startswith('google.protobuf') for m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.stdout.split() == ["21", "False"]


def test_bundled_protobuf_is_what_the_tests_write(root):
    """The golden case's binary input comes from ``tests/paddle_files.py``."""
    recording = small()
    recording.threads = {100: "MainThread", 101: "Dataloader_1", 102: "idle"}
    recording.hosts.append(Host("_DataLoaderIterSingleProcess", "Dataloader", 90_500, 94_000))
    recording.hosts.append(Host("reader", "UserDefined", 1_000, 80_000, tid=101))
    (path,) = (root / "golden" / "paddle" / "protobuf" / "input").glob("*.pb")
    assert path.read_bytes() == as_pb(recording)
