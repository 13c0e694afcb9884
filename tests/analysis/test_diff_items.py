"""Items of steps: every nanosecond is in one of them, and they are the classes of the steps."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceconv
from traceconv.alignment.collective_records import collective_records
from traceconv.analysis.diff.comparison import compare
from traceconv.analysis.diff.items import step_items
from traceconv.analysis.diff.labels import END, lasting
from traceconv.analysis.diff.runs import Run
from traceconv.analysis.diff.stored import restored, stored
from traceconv.analysis.rank_facts import Sort
from traceconv.analysis.utilisation import measured
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import UNKNOWN, Capture, Covered, Layer, OpClass
from traceconv.core.source import RecordedSource
from traceconv.passes import compose
from traceconv.run.stages import passed

BASE = 1_740_816_000_000_000_000
LENGTH, STEPS = 60, 3
CLASSES = {"compute": OpClass.COMPUTE, "communication": OpClass.COMM, "copy": OpClass.COPY}
LANES = (
    ("compute", Layer.DEVICE, "Stream 1"), ("compute", Layer.DEVICE, "Stream 2"),
    ("communication", Layer.COMM, "Stream 3"), ("copy", Layer.DEVICE, "Stream 4"),
)  # fmt: skip


PART = ("item", "at", "ns")


def items_of(trace):
    """The items of a rank as {(step, sort, name, type): ns}, and the object itself."""
    found = step_items(trace, collective_records(trace))
    found.check()
    sums = Counter()
    if len(found):
        for item, at, ns in zip(*(found.parts[k].tolist() for k in PART), strict=True):
            key = tuple(found.items[k][item] for k in ("sort", "name", "type"))
            sums[int(found.steps["step"][at]), *key] += ns
    return sums, found


@pytest.mark.sample(2)
def test_items_are_the_classes_of_the_steps(sampled):
    """Of every golden case: computing, exposed communication, copies, idle and input wait of the
    table of steps, to the ns."""
    for trace in traceconv.open("input", **sampled.reading).traces("detail"):
        steps = measured(trace.steps)
        steps = steps.take(steps.covered == Covered.TIMELINE)
        _, found = items_of(trace)
        sums = {sort: np.zeros(len(steps), np.int64) for sort in (*Sort, "input")}
        columns = [found.parts[k] for k in PART] if len(found) else ()
        for item, at, ns in zip(*columns, strict=True):
            sums[found.items["sort"][item]][at] += ns
            sums["input"][at] += ns * (found.items["type"][item] == "input")
        assert sums[Sort.COMPUTE].tolist() == steps.computing_ns.tolist()
        assert sums[Sort.COMMUNICATION].tolist() == steps.not_overlapped_ns.tolist()
        unhidden = sums[Sort.COPY] + sums[Sort.WAIT] + sums[Sort.UNCLASSIFIED]
        rest = steps.known_ns - steps.computing_ns - steps.not_overlapped_ns
        assert unhidden.tolist() == rest.tolist()
        if trace.hints.vendor != "ascend":
            assert sums[Sort.COPY].tolist() == steps.copy_not_overlapped_ns.tolist()
        waits = np.where(steps.input_wait_ns == UNKNOWN, 0, steps.input_wait_ns)
        assert sums["input"].tolist() == waits.tolist()
        same_when_compared_with_itself(found)


def same_when_compared_with_itself(items):
    """Also if one side was stored in between: nothing changes, and that is known."""
    run = Run.of("run", {0: items})
    again = restored(json.loads(json.dumps(stored({0: items}, 4))), "stored")
    found = compare(run, again)
    if not len(items):
        assert len(found.reasons) == 2 and found.items is None
        return
    assert (found.verdict, found.same) == ("no change", True)
    assert not found.items.delta_ns.any() and set(found.items.verdicts) == {"no change"}
    assert found.items.before_ns.sum() == found.classes.before_ns[0]
    assert not any(found.items.changed)


# -- attribution, against one instant at a time ------------------------------------------------


def made(rows, fetches=(), vendor=""):
    """A rank with three steps of 60 ns that the host marks, and device rows: (lane, start, length,
    launched so long before, or None)."""
    build = TraceBuilder(Capture("made", RecordedSource("made", {}), (), rank=0, label="made"))
    build.hints.vendor = vendor
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    for step in range(STEPS):
        mark = f"ProfilerStep#{step}"
        build.slice(host, BASE + LENGTH * step, LENGTH, mark, op=OpClass.HOST, step=step)
    runtime = build.track(Layer.RUNTIME, "Thread 1", thread=1)
    for start, length in fetches:
        fetch = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        build.slice(host, BASE + start, length, fetch, op=OpClass.HOST)
    tracks = [build.track(layer, name) for _, layer, name in LANES]
    for lane, start, length, before in rows:
        sort = LANES[lane][0]
        name = f"{'allreduce' if sort == 'communication' else sort} {'abc'[start % 3]}"
        work = build.slice(tracks[lane], BASE + start, length, name, op=CLASSES[sort])
        if before is not None:
            call = build.slice(runtime, BASE + start - before, 1, "launch", op=OpClass.HOST)
            build.flow(call, work, "launch")
    return passed(build.finish(), compose("detail"))


def by_instant(trace):
    """The items of a GPU's steps, one ns after the other, from the rows of the trace."""
    events = trace.events
    order = {lane[2]: i for i, lane in enumerate(LANES)}
    rows = []
    for i in np.flatnonzero(trace.rows_of(Layer.DEVICE, Layer.COMM)).tolist():
        sort = next(k for k, op in CLASSES.items() if op == events.op[i])
        name = "allreduce" if sort == "communication" else trace.strings[events.name[i]]
        start = int(events.start_ns[i])
        rank = (list(CLASSES).index(sort), start, order[trace.tracks[events.track[i]].name], i)
        rows.append((rank, sort, name, start, start + int(events.dur_ns[i])))
    rows.sort()
    launched = {int(d): int(events.start_ns[s]) for s, d in
                zip(trace.flows.src, trace.flows.dst, strict=True)}  # fmt: skip
    rows = [(*row, launched.get(row[0][3], -1)) for row in rows if row[4] > row[3]]
    fetches = [(int(events.start_ns[i]), int(events.end_ns[i])) for i in range(len(events))
               if "DataLoader" in trace.strings[events.name[i]]]  # fmt: skip
    found = Counter()
    steps = trace.steps.take(trace.steps.covered == Covered.TIMELINE)
    for step, (low, high) in zip(steps.step.tolist(), steps.device_spans.tolist(), strict=True):
        for now in range(low, high):
            running = next((row for row in rows if row[3] <= now < row[4]), None)
            if running:
                group = "lane 0" if running[1] == "communication" else ""
                found[step, running[1], running[2], group] += 1
                continue
            later = [row for row in rows if row[3] > now]
            first = min(later, key=lambda row: row[3], default=None)
            gap = max((row[4] for row in rows if row[4] <= now), default=0)
            name = first[2] if first and first[3] < high else END
            late = first[5] >= gap if first else bool(launched)
            cause = "host" if late else "unknown"
            if any(a <= now < b for a, b in fetches):
                cause = "input"
            found[step, "wait", name, cause] += 1
    return found


ROWS = st.lists(
    st.tuples(
        st.integers(0, len(LANES) - 1), st.integers(2, LENGTH * STEPS - 2), st.integers(0, 30),
        st.none() | st.integers(0, 40),
    ),
    min_size=1, max_size=14,
)  # fmt: skip


@given(ROWS, st.lists(st.tuples(st.integers(0, 150), st.integers(1, 30)), max_size=2))
def test_every_instant_belongs_to_what_began_first(rows, fetches):
    """Compute before communication before copies before gaps; of one class what began first; gaps
    go to what ends them, and to the host if it launched that after the gap had begun."""
    rows = [(0, 1, 1, None), *rows]  # so that no gap begins before all rows
    trace = made(rows, fetches)
    sums = Counter()
    for (step, sort, name, kind), ns in items_of(trace)[0].items():
        sums[step, sort, name, "" if sort == "compute" else kind] += ns
    assert +sums == by_instant(trace)


def test_names_lose_what_differs_from_run_to_run():
    """Addresses, ids and numbers of steps go; sizes of tiles, layers and types stay."""
    same = {
        "MatMul-op12": "MatMul", "iteration 17": "iteration #", "step#3": "step##",
        "kernel 0x7f00deadbeef": "kernel 0x#", "run 1740816000": "run #",
        "aten::mm, seq = 5, op_id = 7": "aten::mm",
        "ampere_sgemm_128x64_tn": "ampere_sgemm_128x64_tn",
        "layer.3.attention": "layer.3.attention",
    }  # fmt: skip
    assert {name: lasting(name) for name in same} == same
