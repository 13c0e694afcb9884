"""One training program, profiled once as text and once as a database: the same trace, but for
what two runs cannot have in common and what the two exports spell differently.

Of the runs: other times, thread numbers and addresses of Python objects, the hash in the names of
collectives, three calls more that ask whether an event has come, and one sample more of the
frequency. Of the exports:

* text leaves out tasks whose subtasks it writes; the database has all 17 (``PARENTS``);
* text draws no arrows to events of streams, the database none from operators to copies, since its
  table of connections names operators only;
* text adds ``APP/Memory`` and ``Device/Memory``, which are sums, and the memory of the process
  (``APP/Total Reserved``); the database has ``GE/Total Active``, always 0;
* one level of bandwidth is called ``write_band_width`` there and ``write_bandwidth`` here, and one
  module ``AML`` there and ``AMP`` here, by version;
* ``QoS`` was collected for the text only;
* types of tasks without an operator are those of the engine there, those of the launch here, so
  that only arguments differ: both are named by the launch.
"""

import re
from collections import Counter

import pytest
from paths import ASCEND

import traceconv
from traceconv.core.model import Layer, OpClass

TORCH = ASCEND / "msinsight" / "test" / "data" / "pytorch"

PARENTS = {("Stream 2", "KERNEL_AICORE"): 8, ("Stream 2", "AI_CORE"): 5, ("Stream 4", "AI_CORE"): 4}
MORE_ARROWS = {
    "text": {("async_npu", "MEMCPY_ASYNC"): 19},
    "database": {("HostToDevice", "EVENT_RECORD"): 16, ("HostToDevice", "EVENT_WAIT"): 10},
}
MORE_COUNTERS = {
    "text": {
        ("Acc PMU", "write_band_width acc_id"): 688, ("NPU MEM", "APP/Memory"): 14,
        ("NPU MEM", "Device/Memory"): 14, ("Memory", "APP/Total Reserved"): 14,
        ("NPU Module Mem", "AML"): 14, ("QoS", "QoS OTHERS"): 1405,
    },
    "database": {
        ("Acc PMU", "write_bandwidth acc_id"): 688, ("Memory", "GE/Total Active"): 114,
        ("NPU Module Mem", "AMP"): 14, ("AI Core Freq", "AI Core Freq"): 1,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def both():
    """The detail views of rank 0 at level 1: of the text, and of the database."""
    folders = (TORCH / kind / "level1" / "rank0_ascend_pt" for kind in ("text", "db"))
    return [next(traceconv.open(str(folder)).traces("detail")) for folder in folders]


def alike(name):
    """A name without what differs from run to run."""
    return re.sub(r"hcom_(\w+?)__\d+_", r"hcom_\1_", re.sub(r"at 0x[0-9a-f]+", "", name))


def slices(trace, *layers, lane=True):
    """How often every (lane, name, class) is there."""
    rows = trace.events.take(trace.rows_of(*layers))
    named = (rows.track.tolist(), rows.name.tolist(), rows.op.tolist())
    return Counter(
        (trace.tracks[t].name if lane else "", alike(trace.strings[n]), OpClass(op))
        for t, n, op in zip(*named, strict=True)
    )


def lanes(trace, *layers):
    return {(t.heading, t.group, t.name, t.sort) for t in trace.tracks if t.layer in layers}


def test_lanes_of_the_device_are_the_same(both):
    """Streams, eight planes of one group, four lanes of overlap, one of steps."""
    layers = (Layer.STEP, Layer.OVERLAP, Layer.DEVICE, Layer.COMM)
    text, database = (lanes(trace, *layers) for trace in both)
    assert text == database
    assert len([name for _, _, name, _ in text if name.startswith("Plane")]) == 8


def test_threads_of_the_host_are_as_many(both):
    """Of Python and of CANN; they are called by numbers that the system gave them."""
    text, database = (
        Counter(heading for heading, *_ in lanes(trace, Layer.HOST, Layer.RUNTIME))
        for trace in both
    )
    assert text == database == {"Python": 3, "CANN": 4}


def test_streams_hold_the_same_operators(both):
    """Name by name on every stream, but for the tasks that only hold others."""
    text, database = (slices(trace, Layer.DEVICE) for trace in both)
    assert text - database == {}
    assert {key[:2]: n for key, n in (database - text).items()} == PARENTS
    assert {key[2] for key in database - text} <= {OpClass.OTHER, OpClass.COMM_TASK}
    assert sum(n for key, n in text.items() if key[2] == OpClass.COMPUTE) == 187


def test_groups_and_planes_hold_the_same(both):
    """Four collectives and 296 parts of them, plane by plane."""
    text, database = (slices(trace, Layer.COMM) for trace in both)
    assert text == database
    assert Counter(key[2] for key in text.elements()) == {OpClass.COMM: 4, OpClass.COMM_TASK: 296}


def test_host_ran_the_same_program(both):
    """2460 rows of the framework and 707 calls of CANN, on whatever thread."""
    text, database = (slices(trace, Layer.HOST, lane=False) for trace in both)
    assert text == database
    text, database = (slices(trace, Layer.RUNTIME, lane=False) for trace in both)
    assert text - database == {}
    assert database - text == {("", "AscendCL@aclrtQueryEventStatus", OpClass.HOST): 3}


def test_overlap_has_the_same_rows(both):
    """So many of every class: the order of kernels and collectives is the same."""
    text, database = (slices(trace, Layer.OVERLAP) for trace in both)
    assert text == database
    assert {key[2]: n for key, n in text.items()} == {
        OpClass.COMPUTING: 187, OpClass.COMMUNICATION: 4, OpClass.NOT_OVERLAPPED: 101,
        OpClass.FREE: 90, OpClass.COPYING: 24, OpClass.COPY_NOT_OVERLAPPED: 13,
    }  # fmt: skip


def test_kernels_come_in_the_same_order(both):
    """On every stream, all 187 of them; no two stamps are equal."""
    text, database = (
        [
            (trace.tracks[t].name, trace.strings[n])
            for t, n, op in zip(
                *(c.tolist() for c in (trace.events.track, trace.events.name, trace.events.op)),
                strict=True,
            )
            if op == OpClass.COMPUTE
        ]
        for trace in both
    )
    assert text == database


def test_the_step_is_the_same(both):
    """Step 50, made of the framework's mark there, of a table here."""
    text, database = (slices(trace, Layer.STEP) for trace in both)
    assert text == database == {("iterations", "ProfilerStep#50", OpClass.ITERATION): 1}


def arrows(trace):
    """How often each kind of arrow leads to each kind of task."""
    names, ends = trace.flows.name.tolist(), trace.events.name[trace.flows.dst].tolist()
    return Counter(
        (trace.strings[name], alike(trace.strings[end]))
        for name, end in zip(names, ends, strict=True)
    )


def test_arrows_lead_to_the_same(both):
    """Launches, the work queue, the backward pass; one export has more than the other."""
    text, database = map(arrows, both)
    assert text - database == MORE_ARROWS["text"]
    assert database - text == MORE_ARROWS["database"]


def samples(trace):
    """How many samples every series has; those of accelerators counted as one."""
    series = [(t.group, re.sub(r"(acc_id) \d+", r"\1", t.name)) for t in trace.tracks]
    return Counter(series[track] for track in trace.counters.track.tolist())


def test_counters_are_the_same_series(both):
    """As many samples of each, but for those that are listed."""
    text, database = map(samples, both)
    assert text - database == MORE_COUNTERS["text"]
    assert database - text == MORE_COUNTERS["database"]
