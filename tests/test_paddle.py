"""Paddle's timelines: found, repaired, their times recovered, laid out; both formats agree."""

import gzip
import json
import random
import re
import subprocess
import sys

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
    as_profile,
    as_timeline,
    message,
    small,
)

import traceconv
from traceconv.build import TraceBuilder
from traceconv.clock import Domain
from traceconv.errors import Issues, MalformedInputError, RankError
from traceconv.model import Layer
from traceconv.readers import paddle
from traceconv.source import sources

STAMP = "time_2025_02_19_21_20_{:02d}_000137.paddle_trace"


def write(folder, worker, data, second=0, kind=None):
    """A file named as Paddle names its exports."""
    kind = kind or ("json" if isinstance(data, str) else "pb")
    path = folder / f"{worker}_{STAMP.format(second)}.{kind}"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def find(path):
    """What the reader finds below a path, with the issues of finding."""
    (source,) = sources([str(path)])
    issues = Issues()
    return paddle.READER.find(source, source.names(), issues), issues


def read(path):
    """The trace of the only capture below a path."""
    ((capture,), _) = find(path)
    build = TraceBuilder(capture)
    paddle.READER.read(capture, build)
    return build.finish()


def read_json(tmp_path, text):
    return read(write(tmp_path, "rank0", text))


def rows(trace):
    """Every slice: layer, heading, group, track, name, start from T0, duration, class, step."""
    events, found = trace.events, []
    for i in np.flatnonzero(events.kind == 0).tolist():
        track = trace.tracks[events.track[i]]
        found.append(
            (
                *(str(track.layer), track.heading, track.group, track.name),
                *(trace.strings[events.name[i]], int(events.start_ns[i]) - T0),
                *(int(events.dur_ns[i]), int(events.op[i]), int(events.step[i])),
            )
        )
    return sorted(found)


def named(trace, name):
    """Starts from T0 and durations of the slices of one name."""
    return [(row[5], row[6]) for row in rows(trace) if row[4] == name]


def arrows(trace):
    """Names at both ends of every arrow."""
    name = [trace.strings[n] for n in trace.events.name.tolist()]
    ends = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
    return sorted((name[a], name[b]) for a, b in ends)


def codes(trace):
    return {issue.code: issue.count for issue in trace.issues}


def many(count=400, seed=5, gap=9_000):
    """A recording of operators whose starts fall anywhere within a microsecond."""
    rng, at, hosts = random.Random(seed), 0, []
    for i in range(count):
        dur = rng.randrange(200, gap - 1_000)
        hosts.append(Host(f"op{i}", "Operator", at, at + dur))
        at += dur + rng.randrange(1, 1_000)
    return Recording(hosts)


# -- both formats --------------------------------------------------------------------------


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
    """NCCL kernels go to the lanes of NCCL; the user's own words name more of them."""
    ((capture,), _) = find(write(tmp_path, "rank0", form(small())))
    build = TraceBuilder(capture)
    build.comm_words = ("relu",)
    paddle.READER.read(capture, build)
    trace = build.finish()
    comm = [row[4] for row in rows(trace) if row[0] == Layer.COMM]
    assert comm == ["ncclDevKernel_AllReduce_Sum_f32", "relu_kernel"]


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


# -- times of JSON -------------------------------------------------------------------------


def test_starts_are_recovered(tmp_path):
    """Starts are exact against each other, and to the noted uncertainty against 1970."""
    recording = many()
    trace = read_json(tmp_path, as_json(recording))
    found = [(r[5], r[6]) for r in sorted(rows(trace), key=lambda r: r[5])]
    (noted,) = trace.notes["paddle"]
    shift = found[0][0]
    assert [(a - shift, d) for a, d in found] == [
        (h.start, h.end - h.start) for h in recording.hosts
    ]
    assert abs(shift) <= noted["starts_uncertain_ns"] <= 5
    assert codes(trace) == {}


def test_starts_beyond_exact_floats_are_nearly_recovered(tmp_path):
    """A second after the first event, floats of microseconds err by less than 125 ns."""
    recording = many()
    at = range(10**9, 10**9 + 10**7, 10_007)
    late = [Host(f"late{i}", "Operator", t, t + 500) for i, t in enumerate(at)]
    recording.hosts += late
    trace = read_json(tmp_path, as_json(recording))
    shift = named(trace, "op0")[0][0]
    errors = [abs(named(trace, h.name)[0][0] - shift - h.start) for h in late[::50]]
    assert 0 < max(errors) <= 125


def test_late_starts_stay_as_stamped(tmp_path):
    """Beyond four seconds the finer times are of no use: whole microseconds, and a doubt."""
    recording = many(50)
    recording.hosts.append(Host("late", "Operator", 5_000_000_789, 5_000_001_789))
    trace = read_json(tmp_path, as_json(recording))
    assert named(trace, "late") == [(5_000_000_789 - (T0 + 789) % 1000, 1000)]
    assert codes(trace) == {"time-rounded": 1}


def test_times_that_contradict_the_stamps_are_not_used(tmp_path):
    """If no start of the first event fits all stamps, they are kept as they are."""
    text = as_json(many(50)).replace('"start_time": "0.000 us"', '"start_time": "7.000 us"', 1)
    trace = read_json(tmp_path, text)
    assert {(start + T0) % 1000 for _, *_, start, _, _, _ in rows(trace)} == {0}
    assert codes(trace)["time-rounded"] == 50


def test_stamps_of_another_grid_are_left_alone(tmp_path):
    """A stamp with digits behind the point needs no recovery."""
    text = re.sub(r'"ts": (\d+)', r'"ts": \1.125', as_json(many(50)))
    trace = read_json(tmp_path, text)
    assert {(start + T0) % 1000 for _, *_, start, _, _, _ in rows(trace)} == {125}
    assert codes(trace) == {}


COARSE = 6_000_000_000


def coarse(*hosts):
    """Operators so late that their starts stay whole microseconds, behind a first event."""
    moved = [
        Host(n, "Operator", COARSE - T0 % 1000 + a, COARSE - T0 % 1000 + b) for n, a, b in hosts
    ]
    return as_json(Recording([Host("first", "Operator", 0, 10), *moved]))


@pytest.mark.parametrize(
    ("hosts", "trimmed"),
    [
        ([("outer", 5_900, 9_000), ("inner", 6_100, 8_990)], {"inner": 2_100}),
        ([("one", 5_000, 6_900), ("two", 7_905, 9_000)], {}),
        ([("one", 5_000, 7_900), ("two", 7_905, 12_000)], {"one": 2_000}),
        ([("one", 5_000, 9_000), ("two", 7_500, 11_000)], {}),
        ([("outer", 5_900, 9_000), ("same", 5_900, 9_000)], {}),
    ],
    ids=["child", "apart", "sibling", "crossing", "equal"],
)
def test_slices_that_cross_by_less_than_their_stamps_say_are_cut(tmp_path, hosts, trimmed):
    """Children end with their parents, and siblings before the next; real crossings stay."""
    trace = read_json(tmp_path, coarse(*hosts))
    durations = {row[4]: row[6] for row in rows(trace) if row[4] != "first"}
    assert durations == {name: b - a for name, a, b in hosts} | trimmed
    assert codes(trace).get("slice-trimmed", 0) == len(trimmed)


def test_exact_slices_are_never_cut(tmp_path):
    """Where starts were recovered, slices that cross by a nanosecond really do."""
    recording = many(100)
    recording.hosts.append(Host("a", "Operator", 1_000_000, 1_001_000))
    recording.hosts.append(Host("b", "Operator", 1_000_999, 1_002_000))
    trace = read_json(tmp_path, as_json(recording))
    assert (named(trace, "a")[0][1], named(trace, "b")[0][1]) == (1000, 1001)


# -- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0.0", "1.0.1", "1.0.2"])
@pytest.mark.parametrize(
    "name", ["plain", "range[3.000 us]", "list[8]", "x[1.500 ms]", "[0.500 us]"]
)
def test_only_the_appended_duration_goes(tmp_path, version, name):
    """What looks like a duration and stands before the writer's own is the user's."""
    trace = read_json(tmp_path, as_json(Recording([Host(name, "Operator", 0, 1_500)]), version))
    assert [row[4] for row in rows(trace)] == [name]


def test_a_duration_that_is_not_the_events_stays(tmp_path):
    """A name is only cut where it ends in the event's own duration."""
    text = as_json(Recording([Host("op", "Operator", 0, 1_500)])).replace(
        "[1.500 us]", "[1.502 us]"
    )
    assert [row[4] for row in rows(read_json(tmp_path, text))] == ["op[1.502 us]"]


def test_long_durations_in_names_may_be_rounded(tmp_path):
    """Milliseconds with three digits, through a float of 32 bits."""
    text = as_json(Recording([Host("op", "Operator", 0, 123_456_789_012)]))
    text = text.replace("[123456.789 ms]", "[123456.789 ms]".replace("789", "785"))
    assert [row[4] for row in rows(read_json(tmp_path, text))] == ["op"]


# -- repair --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ['a "b" c', "back\\slash", 'ends", "pid": 7, "x": "', "tab\tand\nline", '"', "\\", 'é "ü"'],
)
def test_names_are_repaired(tmp_path, name):
    """Whatever stands in a name comes out as it was."""
    recording = small()
    recording.hosts[2].name = name
    recording.hosts[3].name = 'surely "broken"'
    trace = read_json(tmp_path, as_json(recording))
    assert named(trace, name)[0][1] == 39_502
    assert codes(trace)["repaired-record"] == 2
    assert len(trace.events) == 21


def test_numbers_that_are_none_become_null(tmp_path):
    """C prints nan and inf where JSON has no word."""
    text = as_json(small())
    for word in ("-nan", "inf"):
        text = text.replace("50.000000", word, 1)
    trace = read_json(tmp_path, text)
    raw = [trace.args.raw(a) for a in trace.events.args.tolist()]
    assert sum(b'occupancy %":null' in r for r in raw) == 2
    assert codes(trace)["repaired-record"] == 2


def test_names_of_threads_are_repaired(tmp_path):
    """They stand in two places, neither of which costs an event."""
    recording = small()
    recording.threads[100] = 'a "main" \\ thread'
    trace = read_json(tmp_path, as_json(recording))
    assert trace.notes["paddle"][0]["extra_info"]["100"] == 'a "main" \\ thread'
    assert len(trace.events) == 21


def test_sound_files_are_not_repaired(tmp_path):
    """Strict JSON is taken at its word, escapes and all."""
    text = as_json(small()).replace("LeNet", 'a \\"b\\"')
    trace = read_json(tmp_path, text)
    assert named(trace, 'a "b"')[0][1] == 39_502
    assert "repaired-record" not in codes(trace)


def test_repair_and_loss_are_both_counted(tmp_path):
    """A cut file with broken names loses its end only."""
    recording = small()
    recording.hosts[2].name = 'a "b"'
    text = as_json(recording)
    trace = read_json(tmp_path, text[: text.index("cudaMemsetAsync")])
    assert {"repaired-record": 1, "truncated": 1}.items() <= codes(trace).items()
    assert named(trace, 'a "b"') != []


def test_blocks_may_end_anywhere(tmp_path, monkeypatch):
    """What is repaired does not depend on where the bytes that are read at once end."""
    recording = small()
    recording.hosts[2].name, recording.hosts[6].name = 'a "b"', "two\nlines"
    path = write(tmp_path, "rank0", as_json(recording).replace("50.000000", "nan", 1))
    usual = read(path)
    for size in (1, 64, 1000):
        monkeypatch.setattr("traceconv.readers._paddle_repair.BLOCK_BYTES", size)
        assert (rows(read(path)), codes(read(path))) == (rows(usual), codes(usual))


def test_repair_of_endless_lines_ends(tmp_path):
    """Lines made to be slow are passed over in one go."""
    blanks = '"callstack": "' + '" ' * 200_000 + " " * 400_000 + "x\n"
    head = as_json(many(3)).replace('"callstack": ""\n', blanks, 1)
    assert [row[4] for row in rows(read_json(tmp_path, head))] == ["op1", "op2"]


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
    """Heads without a call are lost arrows, calls that launched nothing only decoration."""
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


# -- protobuf ------------------------------------------------------------------------------


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


def test_json_needs_no_protobuf(tmp_path):
    """Where it is not installed, or too new or too old, the JSON is read all the same."""
    path = write(tmp_path, "rank0", as_json(small()))
    code = (
        "import sys, traceconv\n"
        f"traces = list(traceconv.open({str(path)!r}).traces())\n"
        "print(len(traces[0].events), any(m.startswith('google.protobuf') for m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PYTHONPATH": ":".join(sys.path)},
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


# -- finding -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("worker", "rank", "host"),
    [
        ("rank3", 3, ""),
        ("job_rank_12", 12, ""),
        ("trainer4", 4, ""),
        ("worker-5", 5, ""),
        ("single_rank0", 0, ""),
        ("worker1_rank9", 9, ""),
        ("Rank7", 7, ""),
        ("frank2", None, ""),
        ("myrun", None, ""),
        ("host_node-worker3pid_77", None, "node-worker3"),
        ("host_rank1.clusterpid_5", None, "rank1.cluster"),
    ],
)
@pytest.mark.parametrize("form", [as_json, as_pb])
def test_rank_is_what_the_worker_was_named(tmp_path, worker, rank, host, form):
    """A name given by the user may say the rank; the name of a host does not."""
    ((capture,), _) = find(write(tmp_path, worker, form(small())))
    assert (capture.rank, capture.host, capture.pid) == (rank, host, 100)
    assert capture.clock.domain is Domain.UNIX


@pytest.mark.parametrize("form", [as_json, as_pb])
@pytest.mark.parametrize("packed", [False, True])
def test_content_is_enough(tmp_path, form, packed):
    """Files of any name are known by their first bytes, packed or not."""
    data = form(small())
    data = data.encode() if isinstance(data, str) else data
    (tmp_path / "any").write_bytes(gzip.compress(data) if packed else data)
    assert len(rows(read(tmp_path / "any"))) == 19


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"traceEvents": []}',
        b"\n\x03abc",
        b"\n\n\n\n",
        b"plain text",
        bytes(range(64)),
    ],
)
def test_other_files_are_left_alone(tmp_path, data):
    """What is not Paddle's is not claimed."""
    (tmp_path / "any.json").write_bytes(data)
    assert find(tmp_path)[0] == []


def later(seconds, index):
    """A small window some time after the first."""
    moved = seconds * 10**9
    host = Host(f"ProfileStep#{index}", "ProfileStep", moved, moved + 5_000)
    return Recording([host], span_index=index)


def test_windows_of_a_process_are_one_rank(tmp_path):
    """In the order of their times, whatever their names; between them nothing is known."""
    write(tmp_path, "rank0", as_json(later(9, 2)), second=0)
    write(tmp_path, "rank0", as_json(later(0, 0)), second=3)
    write(tmp_path, "rank0", as_pb(later(4, 1)), second=2)
    trace = read(tmp_path)
    assert trace.events.step.tolist() == [0, 1, 2]
    assert len(trace.windows) == 3


def test_one_broken_window_does_not_cost_the_others(tmp_path):
    """Its loss is booked."""
    write(tmp_path, "rank0", as_json(later(0, 0)), second=0)
    broken = as_json(later(9, 1))
    write(tmp_path, "rank0", broken[: broken.index('"ph"')], second=1)
    trace = read(tmp_path)
    assert (trace.events.step.tolist(), codes(trace)["malformed-record"]) == ([0], 1)


def test_json_beside_its_protobuf_is_not_read(tmp_path):
    """One recording in both formats counts once; the exact one is taken."""
    text = write(tmp_path, "rank0", as_json(small()), second=1)
    raw = write(tmp_path, "rank0", as_pb(small()), second=2)
    ((capture,), issues) = find(tmp_path)
    assert (capture.files, capture.known) == ((raw.name,), (text.name,))
    assert issues.count("repeated-content") == 1


def test_json_of_another_process_is_read(tmp_path):
    """Only files of one worker can hold one recording."""
    write(tmp_path, "rank0", as_json(small()))
    write(tmp_path, "rank1", as_pb(small()))
    assert [c.rank for c in find(tmp_path)[0]] == [0, 1]


def test_windows_that_claim_one_time_are_refused(tmp_path):
    """Two files of one worker and process about the same time cannot both be its windows."""
    write(tmp_path, "rank0", as_json(small()), second=1)
    write(tmp_path, "rank0", as_json(small()), second=2)
    with pytest.raises(RankError, match="rank 0 is claimed twice"):
        traceconv.open(str(tmp_path))


def test_exports_of_one_name_are_one_recording(tmp_path):
    """``Profiler.export`` takes any name; the same in both formats is the same recording."""
    (tmp_path / "mine.json").write_text(as_json(small()))
    (tmp_path / "mine.pb").write_bytes(as_pb(small()))
    ((capture,), _) = find(tmp_path)
    assert capture.files == ("mine.pb",)


# -- before 2.3 ----------------------------------------------------------------------------


def test_old_profiles_are_read(tmp_path):
    """A ``Profile`` message has the same events in other words; a few bytes tell it from others."""
    (tmp_path / "profile").write_bytes(as_profile(small()))
    (tmp_path / "new").write_bytes(as_pb(small()))
    old, new = rows(read(tmp_path / "profile")), rows(read(tmp_path / "new"))
    assert sorted(r[4:8] for r in old) == sorted(r[4:8] for r in new)


def test_old_timelines_are_a_thousand_times_shorter(tmp_path, monkeypatch):
    """``timeline.py`` wrote nanoseconds; every trainer in it is a rank."""
    monkeypatch.setattr("traceconv.readers._paddle_timeline.BLOCK_BYTES", 97)
    text = as_timeline({"trainer2": small(), "trainer5": Recording([Host("x", "Forward", 5, 9)])})
    (tmp_path / "timeline").write_text(text)
    first, second = traceconv.open(str(tmp_path / "timeline")).traces()
    assert ((first.rank, second.rank), named(second, "x")) == ((2, 5), [(5, 4)])
    (tmp_path / "profile").write_bytes(as_profile(small()))
    assert sorted(r[4:8] for r in rows(first)) == sorted(
        r[4:8] for r in rows(read(tmp_path / "profile"))
    )


def test_memory_of_other_places_is_named(tmp_path):
    """Host memory is of the CPU."""
    recording = Recording(small().hosts, [Memory("Allocate", 10, 64, 64, 64, place="cpu")])
    trace = read_json(tmp_path, as_json(recording))
    assert {t.name for t in trace.tracks if t.is_counter} == {"CPU Allocated", "CPU Reserved"}


@pytest.mark.parametrize("form", [as_json, as_pb])
def test_phases_of_steps_are_known_by_their_type(tmp_path, form):
    """Forward ranges are called as their layers; from the first to the last backward is FP_BP."""
    path = write(tmp_path, "rank0", form(small()))
    (trace,) = traceconv.open(str(path)).traces("summary")
    first = int(trace.events.start_ns.min())
    found = [(row[4], row[5] + T0 - first, row[6]) for row in rows(trace) if row[0] == Layer.STEP]
    assert found == [
        ("FP_BP Time 0", 2_001, 78_776),
        ("Iteration Refresh 0", 80_777, 9_473),
        ("ProfileStep#0", 0, 90_250),
        ("ProfileStep#1", 95_100, 84_930),
    ]
