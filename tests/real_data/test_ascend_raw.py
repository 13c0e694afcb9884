"""Raw Ascend data of 2020: what the framework of then made of the same bytes."""

import csv

import numpy as np
import pytest
from paths import ASCEND

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain, to_ns
from traceconv.core.errors import Issues
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import sources
from traceconv.readers.ascend.raw import reader as ascend_raw
from traceconv.readers.ascend.raw import scheduler_logs as logs
from traceconv.readers.ascend.raw import steps
from traceconv.readers.ascend.raw.slice_files import records

MINDINSIGHT = ASCEND / "mindinsight"
JOB = MINDINSIGHT / "JOB3"
OUTPUT = MINDINSIGHT / "run_1" / "normal_run" / "profiler"
TICK_NS = 10


def builder():
    (source,) = sources([str(JOB)])
    return TraceBuilder(Capture("ascend_raw", source, ("x",), rank=0))


def read(folder):
    (source,) = sources([str(MINDINSIGHT / folder)])
    (capture,) = ascend_raw.READER.find(source, source.names(), Issues())
    build = TraceBuilder(capture)
    ascend_raw.READER.read(capture, build)
    return capture, build.finish()


@pytest.fixture(scope="module")
def job():
    return read("JOB3")


@pytest.fixture(scope="module")
def marks():
    (file,) = (JOB / "data").glob("training_trace.*")
    return steps.old_markers(records(file.read_bytes(), steps.OLD, steps.plausible_old, builder()))


@pytest.fixture(scope="module")
def tasks():
    (file,) = JOB.glob("hwts.*")
    build = builder()
    return logs.hwts_tasks(records(file.read_bytes(), logs.HWTS, logs.marked, build), build)


@pytest.fixture(scope="module")
def table():
    with (OUTPUT / "step_trace_raw_1_detail_time.csv").open() as file:
        header, *rows = csv.reader(file)
    return header, rows


def table_of(marks):
    """The framework's step table, made of the marks: a row of ticks per step."""
    found = steps.old_iterations(marks)
    columns = [
        found.number, found.start, found.end, found.end - found.start, found.forward,
        found.backward, found.forward - found.start, found.backward - found.forward,
        found.end - found.backward,
    ]  # fmt: skip
    reduces = steps.old_reduces(marks, found)
    for stream in sorted(set(reduces["Stream Id"].tolist())):
        of = np.flatnonzero(reduces["Stream Id"] == stream)
        of = of[np.argsort(reduces["step"][of], kind="stable")]
        start, end = reduces["start"][of], reduces["end"][of]
        columns += [start, end, end - start]
    return np.stack(columns, axis=1)


def test_every_column_of_every_step(marks, table):
    """All 322 rows of the framework's own step table come out, collectives included."""
    _, rows = table
    ours = table_of(marks)
    assert ours.tolist() == [[int(cell) for cell in row] for row in rows[:-1]]
    assert ours.shape == (322, 42)


def test_last_row_is_the_mean_without_the_first_step(marks, table):
    """The row without a number averages steps 2 to 322, rounded to the nearest tick."""
    _, rows = table
    sums = [sum(column) for column in table_of(marks)[1:, 1:].T.tolist()]
    assert rows[-1] == ["-", *(str((2 * total + 321) // 642) for total in sums)]


def test_tasks_pair_as_published(tasks):
    """31 462 beginnings, 31 385 of them with an end; no end lacks its beginning."""
    assert (len(tasks), int((tasks.end >= 0).sum())) == (31_462, 31_385)


def timeline():
    """The framework's own list of tasks: name, stream, start and duration in ticks."""
    with (OUTPUT / "output_timeline_data_1.txt").open() as file:
        rows = list(csv.reader(file))[1:]
    return [
        (name, int(stream), to_ns(start, "ms") // TICK_NS, to_ns(dur, "ms") // TICK_NS)
        for name, stream, start, dur in rows
    ]


def test_every_task_of_the_timeline_is_found(tasks):
    """All 2 817 rows of the framework's own timeline are pairs of ours."""
    done = tasks.take(tasks.end >= 0)
    ours = set(
        zip(
            done.stream.tolist(), done.start.tolist(), (done.end - done.start).tolist(), strict=True
        )
    )
    rows = timeline()
    assert sum((stream, start, dur) in ours for _, stream, start, dur in rows) == len(rows) == 2817


def test_every_name_of_the_timeline_is_found(job, tasks):
    """The operators of the trace are those rows, by name, stream and time."""
    _, trace = job
    first = int(min(tasks.start.min(), 38753186165))
    rows = np.flatnonzero((trace.events.op == OpClass.COMPUTE) & trace.rows_of(Layer.DEVICE))
    ours = sorted(
        (trace.strings[int(e.name[0])], trace.tracks[int(e.track[0])].name,
         int(e.start_ns[0]), int(e.dur_ns[0]))
        for e in (trace.events.take([r]) for r in rows.tolist())
    )  # fmt: skip
    theirs = sorted(
        (name, f"Stream {stream}", (start - first) * TICK_NS, dur * TICK_NS)
        for name, stream, start, dur in timeline()
    )
    assert ours == theirs


def test_capture_of_a_job_folder(job):
    """Device and files are known; the times count from the first record, by a frequency that is
    in no file, and that is said."""
    capture, trace = job
    assert (capture.device, capture.rank, capture.clock.domain) == (1, None, Domain.RELATIVE)
    assert trace.events.start_ns.min() == 0
    codes = {issue.code: issue.count for issue in trace.issues}
    assert codes == {
        "clock-assumed": 2,
        "unfinished-slice": 4,
        "missing-duration": 73,
    }


def test_steps_of_the_trace(job):
    """322 iterations, their forward and backward parts and tails, 11 collectives in each."""
    _, trace = job
    counts = {op: int((trace.events.op == op).sum()) for op in OpClass}
    expected = {
        OpClass.ITERATION: 322, OpClass.FP_BP: 322, OpClass.TAIL: 322, OpClass.REDUCE: 3542,
        OpClass.INTERVAL: 321,
    }  # fmt: skip
    assert {op: counts[op] for op in expected} == expected


def test_ai_cpu_table():
    """The text of the AI CPU gives the framework's own table of it."""
    _, trace = read("JOB_AICPU")
    text = (MINDINSIGHT / "JOB_AICPU" / "expect" / "output_data_preprocess_aicpu_0.txt").read_text()
    theirs = [line.split()[1:] for line in text.splitlines()[2:5]]
    side_table = trace.side_tables["output_data_preprocess_aicpu"]
    ours = [
        [name, to_ns(total, "ns"), to_ns(dispatch, "ns"), began, ended]
        for name, total, dispatch, began, ended in zip(
            *(side_table[c].tolist() for c in side_table.columns), strict=True
        )
    ]
    assert ours == [
        [name, to_ns(total, "ms"), to_ns(dispatch, "ms"), int(began), int(ended)]
        for name, total, dispatch, began, ended in theirs
    ]
    assert int(side_table["total_time(ns)"].sum()) == to_ns("4.122000", "ms")


def test_the_log_of_the_data_queue():
    """966 batches for 322 steps, enqueued from before the first step on: how full the queue is."""
    (trace,) = traceconv.open(str(JOB)).traces("detail")
    queue = trace.side_tables["dp"]
    assert len(queue) == len(trace.counters) == 966 == 3 * 322
    assert queue["Index"].tolist() == list(range(1, 967))
    assert set(queue["Action"]) == {"Enqueue data to dp"}
    size = queue["Cached Buffer Size"]
    assert (size[0], size[-1], trace.counters.value[-1]) == (0, 0, 0)
    time = queue["Timestamp(ns)"]
    assert (np.diff(time) > 0).all()
    assert time.tolist() == trace.counters.start_ns.tolist()
    steps = trace.steps
    assert time[0] < steps.start_ns[0] < time[-1] < steps.end_ns[-1]
    assert trace.issues.count("kind-not-read") == 0


def test_job_with_names_only_gives_no_events():
    """A folder that holds the framework's texts and no records is known and empty."""
    capture, trace = read("JOB4")
    assert (len(capture.files), sum(trace.counts().values())) == (3, 0)
