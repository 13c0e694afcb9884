"""One run, exported as text and as a database: the same trace, but for what is listed here.

:data:`DIFFERENCES` is the list: exact, since a test fails for one that is missing and for one
that is no longer met. Everything else - slices with their times, classes and steps, lanes,
arrows, counters, overlap, step times - is equal.
"""

from collections import Counter

import pytest
from made_run import NOW, made_run
from made_run_db import write_database
from made_run_text import write_text

import traceconv
from traceconv.analysis.tables.step import step_trace_time
from traceconv.core.model import OpClass

_PARENT = "the text export leaves a task out where its subtasks are written; the database has both"
_DERIVED = "the text export adds what the other series of the process amount to"
_TABLE = "text has them in a table beside the timeline, which only the detail view looks at"
_CALL = "the text export repeats its own name for the call, and how it was launched"
_TASK_TYPE = "text says which engine ran a task without an operator, the database only its own type"
_GRAPH = "text repeats 4294967295, which says that the operator belongs to no graph"

DIFFERENCES = {
    None: {
        ("lane", "Step Trace", "Steps", "database"):
            "the database has a table of steps; the step trace is made of the framework's marks",
        **{("lane", "Overlap Analysis", name, "text"):
            "text brings the lanes; viewers add them to a database, the profiler does not"
            for name in ("Computing", "Communication", "Communication(Not Overlapped)", "Free")},
        **{("lane", "Counters", name, "database"): _TABLE
            for name in ("GE/Total Allocated", "GE/Total Reserved", "PTA/Total Active",
                         "PTA/Total Allocated", "PTA/Total Reserved", "HCCL", "RUNTIME")},
        **{("argument", "Ascend Hardware", key, "database"):
            "text has it in a table beside the timeline, which only the detail view looks at"
            for key in ("Op Type", "Block Num", "Mix Block Num", "Input Shapes",
                        "Input Data Types", "Input Formats", "Output Shapes",
                        "Output Data Types", "Output Formats", "aiv_vec_ratio", "aic_mac_ratio",
                        "aic_total_cycles")},
    },
    "detail": {
        **{("argument", "Step Trace", key, "text"):
            "steps made of the framework's marks keep their arguments; a table of steps has none"
            for key in ("Sequence number", "Fwd thread id")},
    },
    "both": {
        ("slice", "Ascend Hardware", "KERNEL_AICORE", "database"): _PARENT,
        ("slice", "Ascend Hardware", "AI_CORE", "database"): _PARENT,
        ("arrow", "HostToDevice", "EVENT_RECORD", "database"):
            "text draws no arrow to events of streams; the database has the ids of their calls",
        ("arrow", "async_npu", "MEMCPY_ASYNC", "text"):
            "the database connects the framework's rows with operators only",
        ("lane", "Counters", "APP/Memory", "text"): _DERIVED,
        ("lane", "Counters", "Device/Memory", "text"): _DERIVED,
        ("samples", "Counters", "LLC 0 Read/Hit Rate", "differ"):
            "text calls a share of 1 per cent; the database has per cent",
        ("argument", "Python", "Sequence number", "text"): "-1, which says that it has none",
        ("argument", "Python", "correlation_id", "text"): "stands for the arrow of the work queue",
        ("argument", "CANN", "Mode", "text"): _CALL,
        ("argument", "CANN", "id", "text"): _CALL,
        ("argument", "CANN", "item_id", "text"): _CALL,
        ("argument", "Ascend Hardware", "Batch Id", "text"):
            "counts how often ids of tasks began anew; the database needs no such number",
        ("argument", "Ascend Hardware", "Task Type", "differ"): _TASK_TYPE,
        ("argument", "Communication", "model id", "text"): _GRAPH,
        ("argument", "Communication", "duration estimated(us)", "text"):
            "the duration again, before it was rounded",
        ("argument", "Communication", "op_type", "database"): "the kind of operation by itself",
        ("argument", "Communication", "operator", "database"): "the operation a part belongs to",
        ("argument", "Communication", "rdma type", "database"): "the number of a kind of transfer",
        ("argument", "Communication", "bandwidth(GB/s)", "differ"):
            "text has all digits; of the database's size and duration nine are computed",
    },
}  # fmt: skip
"""What differs, by view: (what, process or arrow, lane, slice or key, who has it) and why."""


@pytest.fixture(scope="module")
def run():
    return made_run()


@pytest.fixture(scope="module")
def folders(run, tmp_path_factory):
    """Both exports, each in a folder of its own."""
    root = tmp_path_factory.mktemp("same")
    return write_text(run, root / "text"), write_database(run, root / "database")


@pytest.fixture(scope="module")
def seen(folders):
    """Both traces, by view."""

    def both(mode):
        return [next(traceconv.open(str(folder)).traces(mode)) for folder in folders]

    return {mode: both(mode) for mode in (None, "summary", "detail")}


def slices(trace):
    """(lane, name, start, duration, class, step) of every slice, and its arguments."""
    e = trace.events
    columns = (e.track, e.name, e.start_ns, e.dur_ns, e.op, e.step, e.args)
    return {
        (lane(trace.tracks[t]), trace.strings[n], start, dur, OpClass(op), step): trace.args[args]
        for t, n, start, dur, op, step, args in zip(*(c.tolist() for c in columns), strict=True)
    }


def lane(track):
    """All that tells a lane apart, the heading first."""
    return track.heading, track.name, track.group, track.layer, track.sort, track.unit


def samples(trace):
    """Samples by lane."""
    c, found = trace.counters, {}
    for track, at, value in zip(*(x.tolist() for x in (c.track, c.start_ns, c.value)), strict=True):
        found.setdefault(lane(trace.tracks[track]), []).append((at, value))
    return found


def arrows(trace):
    """Every arrow: its name, and the lane, name and start of both ends."""
    e, flows = trace.events, trace.flows

    def end(row):
        return lane(trace.tracks[e.track[row]]), trace.strings[e.name[row]], int(e.start_ns[row])

    ends = zip(flows.name.tolist(), flows.src.tolist(), flows.dst.tolist(), strict=True)
    return Counter((trace.strings[name], end(src), end(dst)) for name, src, dst in ends)


def differences(text, database):
    """What one of two traces has and the other does not, named as in :data:`DIFFERENCES`."""
    sides = {"text": text, "database": database}
    lanes = {side: {lane(t) for t in trace.tracks} for side, trace in sides.items()}
    rows = {side: slices(trace) for side, trace in sides.items()}
    told = {side: samples(trace) for side, trace in sides.items()}
    found = set()
    for side, other in (("text", "database"), ("database", "text")):
        alone = lanes[side] - lanes[other]
        found |= {("lane", heading, name, side) for heading, name, *_ in alone}
        rest = {row for row in rows[side].keys() - rows[other].keys() if row[0] not in alone}
        found |= {("slice", row[0][0], row[1], side) for row in rest}
        more = arrows(sides[side]) - arrows(sides[other])
        found |= {("arrow", name, target, side) for name, _, (_, target, _) in more}
        for row in rows[side].keys() & rows[other].keys():
            keys = rows[side][row].keys() - rows[other][row].keys()
            found |= {("argument", row[0][0], key, side) for key in keys}
    for row in rows["text"].keys() & rows["database"].keys():
        mine, theirs = rows["text"][row], rows["database"][row]
        unlike = {key for key in mine.keys() & theirs.keys() if mine[key] != theirs[key]}
        found |= {("argument", row[0][0], key, "differ") for key in unlike}
    common = told["text"].keys() & told["database"].keys()
    unlike = {one for one in common if told["text"][one] != told["database"][one]}
    return found | {("samples", heading, name, "differ") for heading, name, *_ in unlike}


@pytest.mark.parametrize("mode", [None, "detail"])
def test_nothing_differs_but_what_is_listed(seen, mode):
    """Slices, lanes, samples, arrows and arguments; as read, and in the detail view."""
    assert differences(*seen[mode]) == {*DIFFERENCES[mode], *DIFFERENCES["both"]}


def test_slices_are_there_once(seen):
    """No two rows of a trace are alike: comparing them as sets has hidden none."""
    for trace in (*seen[None], *seen["detail"]):
        assert len(slices(trace)) == len(trace.events)


def test_summaries_are_the_same(seen):
    """Steps and overlap, row for row."""
    text, database = seen["summary"]
    assert slices(text).keys() == slices(database).keys()
    assert text.tracks == database.tracks


def test_arrows_are_those_of_the_run(run, seen):
    """One per call, per launched task of an operator, per queued pair and per backward pass; what
    one of the exports has not is in the other.
    """
    text, database = seen["detail"]
    names = Counter(name for name, _, _ in (arrows(text) | arrows(database)).elements())
    assert names == {
        "HostToDevice": len(run.calls),
        "async_npu": sum(len(o.launched) for o in run.operators),
        "async_task_queue": len({o.queued for o in run.operators} - {0}),
        "fwdbwd": len({o.sequence for o in run.operators} - {-1}),
    }


def test_overlap_is_that_of_the_run(run, seen):
    """Counted nanosecond by nanosecond: the same from both, in every view."""
    expected = Counter()
    for name, start, end in run.overlap():
        expected[name] += end - start
    sums = tuple(expected.values())
    for mode in ("summary", "detail"):
        assert [t.overlap.sums_ns[:4] for t in seen[mode]] == [sums, sums]


def test_overlap_of_the_text_is_what_its_lanes_say(seen):
    """The exporter's own lanes are replaced by equal ones: no doubt is left."""
    assert [i.code for i in seen["detail"][0].issues] == ["steps-from-host", "overlap-recomputed"]


def test_step_times_are_the_same(run, seen):
    """Every column of the step table, for both steps."""
    text, database = (step_trace_time(trace) for trace in seen["summary"])
    assert {k: c.tolist() for k, c in text.items()} == {k: c.tolist() for k, c in database.items()}
    assert list(zip(text["step"], text["computing_ns"], strict=True)) == [
        (number, sum(k.dur for k in run.kernels if start <= k.start < start + 12_000))
        for number, start, _ in run.steps
    ]


def test_steps_are_those_of_the_run(run, seen):
    """Number, start and end."""
    for trace in seen["summary"]:
        e = trace.events.take(trace.events.op == OpClass.ITERATION)
        rows = zip(e.step.tolist(), e.start_ns.tolist(), e.end_ns.tolist(), strict=True)
        assert list(rows) == [(n, NOW + start, NOW + end) for n, start, end in run.steps]


def test_the_database_has_nothing_to_say(seen):
    """It is read whole, without a doubt."""
    assert [i.code for i in seen["detail"][1].issues] == []
