"""Files of ``FRAMEWORK``: tagged fields, and what MindSpore and PyTorch write about themselves."""

import json
import struct

import ascend_raw_host_made as made
import numpy as np
import pytest

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture, Kind
from traceconv.io.sources import sources
from traceconv.readers.ascend.common.identity import Identity
from traceconv.readers.ascend.raw.clock import read_clock
from traceconv.readers.ascend.raw.device_records import read_framework
from traceconv.readers.ascend.raw.framework_rows import read_table

T = 10_000_000
MS, PT = "node_4242_20250301080000123_ascend_ms", "node_4242_20250301080000123_ascend_pt"
PROF = "PROF_000001_20250301080000123_ABCDEFGH"
SYSCNT = {"syscnt_enable": True, "freq": 50.0, "start_cnt": 1000, "start_monotonic": 6_000_000_000}


class Folder:
    """A folder of a framework's profiler, written for one test."""

    def __init__(self, root, name):
        self.root, self.name = root, name
        for path, content in made.clock_files(f"{PROF}/host").items():
            self.put(path, content)

    def put(self, path, content):
        path = self.root / self.name / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return self

    def write(self, file, *records):
        return self.put(f"FRAMEWORK/{file}", b"".join(records))

    def read(self):
        (source,) = sources([str(self.root)])
        names = source.names()
        clock = read_clock(Identity(source, Issues()), names, -1)
        self.build = TraceBuilder(Capture("ascend_raw", source, (), rank=0))
        read_framework(self.build, source, [n for n in names if "/FRAMEWORK/" in n], clock)
        self.trace = self.build.finish()
        return self

    def issues(self):
        return {(i.code, i.count) for i in self.build.issues}

    def rows(self):
        """Name, lane, start and duration of every event, by lane and time."""
        trace, events = self.trace, self.trace.events
        columns = (events.name, events.track, events.start_ns.tolist(), events.dur_ns.tolist())
        return [
            (trace.strings[n], trace.tracks[t].name, s, d)
            for n, t, s, d in zip(*columns, strict=True)
        ]

    def names(self):
        return [row[0] for row in self.rows()]

    def args(self):
        return [self.trace.args[i] for i in self.trace.events.args.tolist()]

    def arrows(self):
        """Names of both ends and of every arrow."""
        names, flows = self.names(), self.trace.flows
        columns = (flows.src.tolist(), flows.dst.tolist(), flows.name.tolist())
        return [
            (names[a], names[b], self.trace.strings[n]) for a, b, n in zip(*columns, strict=True)
        ]

    def samples(self):
        trace, counters = self.trace, self.trace.counters
        columns = (counters.track, counters.start_ns.tolist(), counters.value.tolist())
        return [
            (trace.tracks[t].group, trace.tracks[t].name, s, v)
            for t, s, v in zip(*columns, strict=True)
        ]


@pytest.fixture
def mindspore(tmp_path):
    return Folder(tmp_path, MS)


@pytest.fixture
def pytorch(tmp_path):
    folder = Folder(tmp_path, PT)
    return folder.put("profiler_info_0.json", {"start_info": SYSCNT, "rank_id": 0})


def torch_ns(tick):
    """The time of a tick of PyTorch's profiler (50 MHz)."""
    return (tick - 1000) * 20 + 6_000_000_000 + made.OFFSET


# -- tagged fields ------------------------------------------------------------------------

PAIR = np.dtype([("a", "<u4"), ("b", "<u2")])


class Booked:
    """Takes the place of a builder."""

    def __init__(self):
        self.codes = {}

    def skip(self, code, where="", count=1, kind=None):
        if count:
            self.codes[code] = self.codes.get(code, 0) + count


def table(data, layouts=(PAIR,)):
    booked = Booked()
    return read_table(data, layouts, {1: "one", 2: "two"}, booked), booked.codes


def pairs(*rows):
    return b"".join(made.record(struct.pack("<IH", a, b), texts) for a, b, texts in rows)


def texts_of(found, kind):
    return [text or None for text in found.texts({1: "one", 2: "two"}[kind])]


def test_records_are_a_struct_and_texts():
    """Numbers come as columns, texts by the type of their field; those not asked for are left."""
    found, codes = table(
        pairs((1, 2, {1: "one", 2: "zwei"}), (3, 4, {2: "zwei", 9: "x"}), (5, 6, {}))
    )
    assert (
        found["a"].tolist(),
        found["b"].tolist(),
        codes,
    ) == ([1, 3, 5], [2, 4, 6], {})
    assert (texts_of(found, 1), texts_of(found, 2)) == (["one", None, None], ["zwei", "zwei", None])


def test_text_that_cannot_be_decoded_is_not_available():
    """It stands as the profiler's own tools show it, and is booked."""
    found, codes = table(pairs((1, 2, {1: b"\xff\xfe"}), (1, 2, {1: "fine"})))
    assert (texts_of(found, 1), codes) == (["N/A", "fine"], {"bad-encoding": 1})


def test_a_record_shorter_than_its_struct_is_skipped():
    """The ones around it are kept."""
    data = pairs((1, 2, {})) + made.tlv(1, b"abc") + pairs((3, 4, {}))
    found, codes = table(data)
    assert (found["a"].tolist(), codes) == ([1, 3], {"malformed-record": 1})


def test_a_field_longer_than_its_record_ends_it():
    """What was read before is kept."""
    broken = made.tlv(1, struct.pack("<IH", 7, 8) + made.tlv(1, b"one") + struct.pack("<HI", 2, 99))
    found, codes = table(broken + pairs((3, 4, {})))
    assert (texts_of(found, 1), codes) == (["one", None], {"malformed-record": 1})


@pytest.mark.parametrize("fields", [0, 1])
def test_a_file_cut_anywhere_keeps_its_whole_records(fields):
    """Every length of a file of three records, with and without texts."""
    one = pairs((1, 2, {1: "abc"} if fields else {}))
    for length in range(3 * len(one) + 1):
        found, codes = table((3 * one)[:length])
        whole, rest = divmod(length, len(one))
        assert (whole, {"truncated": 1} if rest else {}) == (len(found), codes)


def test_the_layout_whose_fields_read_cleanest_is_taken():
    """Versions differ by a few bytes in the struct."""
    longer = np.dtype([("a", "<u4"), ("b", "<u2"), ("c", "<u4")])
    old = pairs(*((i, 7, {1: "name", 2: "x" * i}) for i in range(20)))
    new = b"".join(made.record(struct.pack("<IHI", i, 7, i), {1: "name"}) for i in range(20))
    assert ["c" in table(data, (longer, PAIR))[0].columns for data in (old, new)] == [False, True]


def test_endless_empty_fields_do_not_take_endless_time():
    """A record of thousands of fields is read as far as sensible, and booked."""
    found, codes = table(made.tlv(1, struct.pack("<IH", 7, 8) + made.tlv(1, b"") * 100_000))
    assert (len(found), codes) == (1, {"malformed-record": 1})


# -- MindSpore ----------------------------------------------------------------------------


def test_ranges_are_named_by_their_kind(mindspore):
    """Stacks by their own name, graphs and stages by theirs, others by module and event; events
    beyond the known ones by number.
    """
    mindspore.write(
        "mindspore.op_range",
        made.ms_op(77, T, T + 1, {13: "train.py(3)"}, stack=True),
        made.ms_op(77, T + 2, T + 3, {13: "Add", 15: "Graph", 16: "Run"}, graph=True),
        made.ms_op(77, T + 4, T + 5, {13: "x"}, is_stage=True, stage=5),
        made.ms_op(77, T + 6, T + 7, {13: "Add", 14: "Default/net/Add-op1"}, module=2, event=4),
        made.ms_op(77, T + 8, T + 9, {13: "Add"}, module=99, event=500),
    )
    assert mindspore.read().names() == [
        "train.py(3)", "Graph::Run::Add", "RunOp",
        "RuntimeFramework::KernelLaunch::Default/net/Add-op1", "Default::500::Add",
    ]  # fmt: skip


def test_ranges_lie_on_their_threads_with_step_and_path(mindspore):
    """Times are those of the host's counter; the path stays for the scope lanes."""
    mindspore.write(
        "mindspore.op_range",
        made.ms_op(
            78, T, T + 5, {13: "Add", 14: "Default/net/Add-op1", 17: "k:v"}, step=3, module=4
        ),
        made.ms_op(77, T, T + 4, {13: "ProfilerStep#7"}, stack=True),
    )
    mindspore.read()
    assert [
        ("ProfilerStep#7", "Thread 77", made.ns(T), 40),
        ("Kernel::Default::Default/net/Add-op1", "Thread 78", made.ns(T), 50),
    ] == mindspore.rows()
    assert mindspore.trace.events.step.tolist() == [7, 3]
    assert mindspore.args()[1] == {
        "op_name": "Default/net/Add-op1",
        "custom_info": "k:v",
    }


def test_a_range_without_length_is_an_instant(mindspore):
    """And one that never began is discarded."""
    mindspore.write(
        "mindspore.op_range",
        made.ms_op(77, T, T, {13: "here"}, stack=True),
        made.ms_op(77, 0, T, {13: "never"}, stack=True),
    )
    mindspore.read()
    assert [("here", "Thread 77", made.ns(T), 0)] == mindspore.rows()
    assert ([Kind.INSTANT], {("bad-time", 1)}) == (
        mindspore.trace.events.kind.tolist(), mindspore.issues()
    )  # fmt: skip


def test_a_flow_leads_from_its_mark_to_the_range_with_its_number(mindspore):
    """A number that several ranges carry is drawn to none of them."""
    mindspore.write(
        "mindspore.op_range",
        made.ms_op(77, T, T + 1, {13: "flow"}, flow=5),
        made.ms_op(78, T + 9, T + 10, {13: "target"}, flow=5, stack=True),
        made.ms_op(77, T + 2, T + 3, {13: "flow"}, flow=6),
        made.ms_op(78, T + 11, T + 12, {13: "one"}, flow=6, stack=True),
        made.ms_op(78, T + 13, T + 14, {13: "other"}, flow=6, stack=True),
        made.ms_op(78, T + 15, T + 16, {13: "alone"}, stack=True),
    )
    mindspore.read()
    assert mindspore.arrows() == [("flow", "target", "async_mindspore")]
    assert {("flow-unbound", 1)} == mindspore.issues()


def test_memory_of_the_pool_is_sampled(mindspore):
    """What is handed out, and what was taken from the device, in MB."""
    mindspore.write(
        "mindspore.memory_usage",
        made.ms_memory(T, 3 << 20, 8 << 20),
        made.ms_memory(T + 5, 1 << 19, 8 << 20, size=made.NEVER),
    )
    mindspore.read()
    assert [
        ("Memory", "MindSpore/Total Allocated", made.ns(T), 3.0),
        ("Memory", "MindSpore/Total Allocated", made.ns(T + 5), 0.5),
        ("Memory", "MindSpore/Total Reserved", made.ns(T), 8.0),
        ("Memory", "MindSpore/Total Reserved", made.ns(T + 5), 8.0),
    ] == mindspore.samples()


@pytest.mark.parametrize("flow", [None, 5])
def test_ranges_of_older_versions_are_read(tmp_path, flow):
    """2.2 and 2.3 differ in their struct; a call stack is set apart by bars."""
    folder = Folder(tmp_path, "profiler")
    texts = {3: "Add", 4: "float", 5: "2,3", 6: "a.py(1)|b.py(2)", 8: "12"}
    folder.write("op_range_0", made.old_op(77, T, T + 5, texts, sequence=4, flow=flow))
    folder.read()
    assert [("Add", "Thread 77", made.ns(T), 50)] == folder.rows()
    assert folder.args() == [
        {"Sequence number": 4, "Fwd thread id": 0, "Input type": "float", "Input Dims": "2,3",
         "Call stack": "a.py(1);\r\nb.py(2)", "flops": "12"}
    ]  # fmt: skip


def test_older_stamps_are_nanoseconds_where_the_frequency_is_no_decimal(tmp_path):
    """Then the host had no counter to read."""
    folder = Folder(tmp_path, "profiler").write("op_range_0", made.old_op(77, T, T + 5, {3: "Add"}))
    folder.put(f"{PROF}/host/info.json", {"CPU": [{"Frequency": "100"}]})
    assert folder.read().rows() == [("Add", "Thread 77", T + made.OFFSET, 5)]


# -- PyTorch ------------------------------------------------------------------------------


def test_operators_have_the_arguments_of_the_exported_timeline(pytorch):
    """Lists are set apart as there; the step of a mark is known."""
    pytorch.write(
        "torch.op_range",
        made.torch_op(77, 2000, 2500, {2: "ProfilerStep#4"}),
        made.torch_op(77, 2100, 2200, {2: "aten::add", 3: "float;int", 4: "2,3;", 5: "raw",
                                       8: "a.py(1): f;b.py(2): g", 9: "net.fc", 10: "12"}, 6, 77),
    )  # fmt: skip
    pytorch.read()
    assert [
        ("ProfilerStep#4", "Thread 77", torch_ns(2000), 10_000),
        ("aten::add", "Thread 77", torch_ns(2100), 2000),
    ] == pytorch.rows()
    assert pytorch.trace.events.step.tolist() == [4, -1]
    assert pytorch.args() == [
        {"Fwd thread id": 0},
        {"Sequence number": 6, "Fwd thread id": 77, "Input Dims": "2,3;\r\n",
         "Input type": "float;\r\nint", "Call stack": "a.py(1): f;\r\nb.py(2): g",
         "Module Hierarchy": "net.fc", "flops": "12"},
    ]  # fmt: skip


def test_operators_of_older_versions_have_no_scope(pytorch):
    """Their struct is a byte shorter."""
    pytorch.write("torch.op_range", made.torch_op(77, 2000, 2500, {2: "aten::add"}, scope=b""))
    assert pytorch.read().names() == ["aten::add"]


def test_a_forward_operator_points_at_its_backward_one(pytorch):
    """On another thread, by sequence number; the innermost forward one to the first backward."""
    pytorch.write(
        "torch.op_range",
        made.torch_op(77, 2000, 2500, {2: "outer"}, sequence=1),
        made.torch_op(77, 2100, 2200, {2: "inner"}, sequence=1),
        made.torch_op(79, 3000, 3100, {2: "Backward"}, sequence=1, forward=77),
        made.torch_op(79, 3200, 3300, {2: "again"}, sequence=1, forward=77),
        made.torch_op(77, 3400, 3500, {2: "here"}, sequence=2),
        made.torch_op(77, 3600, 3700, {2: "same thread"}, sequence=2, forward=77),
    )
    assert pytorch.read().arrows() == [("inner", "Backward", "fwdbwd")]


def test_threads_of_another_process_stand_apart(pytorch):
    """Most rows say which process is the main one."""
    pytorch.write(
        "torch.op_range",
        *(made.torch_op(77, 2000 + i, 2001 + i, {2: "a"}) for i in range(3)),
        made.torch_op(77, 2000, 2001, {2: "b"}, pid=5),
    )
    groups = {t.group for t in pytorch.read().trace.tracks}
    assert {"", "Process 5"} == groups


def marks(*rows):
    return [made.torch_mark(thread, time, *more) for thread, time, *more in rows]


def test_work_goes_through_the_queue(pytorch):
    """Entering and leaving are slices, joined by an arrow."""
    pytorch.write(
        "torch.op_mark",
        *marks((77, 2000, 0, 8, "add"), (77, 2100, 1, 8, "add"), (79, 2200, 2, 8, "add"),
               (79, 2300, 3, 8, "add")),
    )  # fmt: skip
    pytorch.read()
    assert [
        ("Enqueue", "Thread 77", torch_ns(2000), 2000),
        ("Dequeue@add", "Thread 79", torch_ns(2200), 2000),
    ] == pytorch.rows()
    assert pytorch.arrows() == [("Enqueue", "Dequeue@add", "async_task_queue")]
    assert pytorch.args() == [{"correlation_id": 8, "name": "add"}] * 2


def test_marks_of_the_queue_without_their_other_half_are_booked(pytorch):
    """A start is kept without a length, an end is lost, as is an arrow from nowhere."""
    pytorch.write(
        "torch.op_mark",
        *marks((77, 2000, 0, 8, "add"), (79, 2050, 3, 8, "add"), (79, 2200, 2, 9, "mul"),
               (79, 2300, 3, 9, "mul"), (77, 2400, 7, 9, "mul")),
    )  # fmt: skip
    pytorch.read()
    assert [(r[0], r[3]) for r in pytorch.rows()] == [("Enqueue", 0), ("Dequeue@mul", 2000)]
    assert {
        ("kind-not-read", 1), ("end-without-begin", 1), ("missing-duration", 1),
        ("flow-without-end", 1),
    } == pytorch.issues()  # fmt: skip


def test_memory_of_each_card_is_sampled(pytorch):
    """What the allocator holds of the device, in MB; the host's own memory is left out."""
    pytorch.write(
        "torch.memory_usage",
        made.torch_memory(2000, 1 << 20, 2 << 20, 3 << 20, device=0),
        made.torch_memory(2100, 4 << 20, 5 << 20, 6 << 20, device=1),
        made.torch_memory(2200, 1, 1, 1, device_type=0),
    )
    pytorch.read()
    assert [
        ("NPU 0 Memory", "PTA/Total Active", torch_ns(2000), 3.0),
        ("NPU 0 Memory", "PTA/Total Allocated", torch_ns(2000), 1.0),
        ("NPU 0 Memory", "PTA/Total Reserved", torch_ns(2000), 2.0),
        ("NPU 1 Memory", "PTA/Total Active", torch_ns(2100), 6.0),
        ("NPU 1 Memory", "PTA/Total Allocated", torch_ns(2100), 4.0),
        ("NPU 1 Memory", "PTA/Total Reserved", torch_ns(2100), 5.0),
    ] == pytorch.samples()
    assert {("kind-not-read", 1)} == pytorch.issues()


def test_collections_of_garbage_are_slices(pytorch):
    """Plain records; a cut at the end is booked."""
    pytorch.write("torch.gc_record", made.gc_record(2000, 2500), made.gc_record(2600, 2700)[:-1])
    pytorch.read()
    assert [("GC", "Thread 4242", torch_ns(2000), 10_000)] == pytorch.rows()
    assert {("truncated", 1)} == pytorch.issues()


def test_calls_of_python_nest(pytorch):
    """A return ends the newest open call; modules are numbered, unknown functions stay numbers."""
    names = {1: "a.py(1): f", 2: "Linear######140", 3: "Linear######141"}
    pytorch.write("torch.python_tracer_hash", *(made.tracer_hash(*n) for n in names.items()))
    pytorch.write(
        "torch.python_tracer_func",
        *(made.tracer_func(77, time, key, tag) for time, key, tag in
          ((2000, 1, 0), (2010, 2, 0), (2020, 0, 1), (2030, 3, 0), (2040, 9, 2), (2050, 0, 3),
           (2060, 0, 1), (2070, 0, 1))),
    )  # fmt: skip
    pytorch.read()
    assert [
        ("a.py(1): f", "Thread 77", torch_ns(2000), 1400),
        ("nn.Module: Linear_0", "Thread 77", torch_ns(2010), 200),
        ("nn.Module: Linear_1", "Thread 77", torch_ns(2030), 600),
        ("9", "Thread 77", torch_ns(2040), 200),
    ] == pytorch.rows()
    assert {("name-unknown", 1)} == pytorch.issues()


def test_calls_of_python_that_never_returned_last_until_the_end(pytorch):
    """So a run that crashed shows where it was."""
    pytorch.write("torch.python_tracer_hash", made.tracer_hash(1, "f"), made.tracer_hash(2, "g"))
    pytorch.write(
        "torch.python_tracer_func",
        made.tracer_func(77, 2000, 0, 1), made.tracer_func(77, 2010, 1, 0),
        made.tracer_func(77, 2020, 2, 0), made.tracer_func(77, 2050, 0, 1),
    )  # fmt: skip
    pytorch.read()
    assert [(r[0], r[3]) for r in pytorch.rows()] == [("f", 800), ("g", 600)]
    assert {("end-without-begin", 1), ("unfinished-slice", 1)} == pytorch.issues()


# -- clocks -------------------------------------------------------------------------------


def one_operator(folder):
    return (
        folder.write("torch.op_range", made.torch_op(77, T, T + 5, {2: "a"})).read().rows()[0][2:]
    )


def test_without_a_counter_stamps_are_of_the_monotonic_clock(pytorch):
    """What the collector's folder says ties it to Unix time."""
    pytorch.put("profiler_info_0.json", {"start_info": {**SYSCNT, "syscnt_enable": False}})
    assert one_operator(pytorch) == (T + made.OFFSET, 5)


def test_without_a_collector_the_end_of_profiling_ties_the_clock(tmp_path):
    """Both clocks at one instant stand in profiler_info."""
    folder = Folder(tmp_path, PT)
    for path in (tmp_path / PT / PROF).rglob("*"):
        if path.is_file():
            path.unlink()
    end = {"collectionTimeEnd": 1_740_816_000_000_000_777, "MonotonicTimeEnd": 777}
    folder.put("profiler_info_0.json", {"start_info": {"syscnt_enable": False}, "end_info": end})
    assert one_operator(folder) == (T + 1_740_816_000_000_000_000, 5)


def test_without_profiler_info_the_counter_is_the_hosts(tmp_path):
    """A run that crashed early has written none; that is said."""
    folder = Folder(tmp_path, PT)
    assert (made.ns(T), 50) == one_operator(folder)
    assert {("clock-assumed", 1)} == folder.issues()


def test_stamps_outside_any_clock_are_lost_and_counted(pytorch):
    """They do not move the others."""
    pytorch.write(
        "torch.op_range",
        made.torch_op(77, 2**63 - 1, 2**63 - 1, {2: "a"}),
        made.torch_op(77, -(2**63), 2000, {2: "a"}),
        made.torch_op(77, 2000, 1999, {2: "a"}),
        made.torch_op(77, 2000, 2001, {2: "b"}),
    )
    assert pytorch.read().names() == ["b"]
    assert {("bad-time", 2), ("negative-duration", 1)} == pytorch.issues()


FILES = {
    "torch.op_range": made.torch_op(77, 2000, 2001, {2: "a", 3: "float"}),
    "torch.op_mark": made.torch_mark(77, 2000, 0, 8, "add"),
    "torch.memory_usage": made.torch_memory(2000, 1, 1, 1),
    "torch.gc_record": made.gc_record(2000, 2001),
    "torch.python_tracer_func": made.tracer_func(77, 2000, 1, 0),
    "torch.python_tracer_hash": made.tracer_hash(1, "f"),
    "mindspore.op_range": made.ms_op(77, T, T + 1, {13: "a", 14: "b"}, flow=4),
    "mindspore.memory_usage": made.ms_memory(T, 1, 1),
    "op_range_0": made.old_op(77, T, T + 1, {3: "a"}),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("file", FILES)
def test_a_file_of_any_kind_may_be_cut_anywhere(pytorch, file):
    """Nothing but whole records is read, and nothing raised."""
    blob = FILES[file] * 2
    whole = {}
    for length in range(len(blob) + 1):
        counts = pytorch.write(file, blob[:length]).read().trace.counts()
        whole.setdefault(length // len(FILES[file]), set()).add(json.dumps(counts))
    assert [len(counts) for counts in whole.values()] == [1, 1, 1]
