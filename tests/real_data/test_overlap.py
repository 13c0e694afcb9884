"""Overlap and step times of real captures, against the profilers' own figures, to the ns."""

import csv
import sqlite3
from decimal import Decimal

import pytest
from paths import ASCEND

import traceconv
from traceconv.analysis.tables.step import step_trace_time
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import UNKNOWN, Capture, Layer, OpClass
from traceconv.io.sources import FileSource
from traceconv.passes.overlap import overlap

TORCH = ASCEND / "msinsight" / "test" / "data" / "pytorch"
MINDSPORE = ASCEND / "mindinsight" / "profiler"
ADVICE = ASCEND / "msprof-analyze" / "ut" / "advisor" / "timeline_advice"

CAPTURES = [
    "text/level0/rank0_ascend_pt",
    "text/level1/rank0_ascend_pt",
    "text/level1/rank1_ascend_pt",
]
DATABASES = ["db/level1/rank0_ascend_pt", "db/level1/rank1_ascend_pt", "db/level2/rank0_ascend_pt"]


def _detail(path):
    return list(traceconv.open(str(path)).traces("detail"))


def _written(capture):
    """The row of the profiler's own table, in ns."""
    path = TORCH / capture / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv"
    with path.open() as file:
        (row,) = csv.DictReader(file)
    return {title: round(Decimal(value) * 1000) for title, value in row.items()}


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_columns_of_step_trace_time(capture):
    """Sums are equal; stage and preparing lie on the 250 ns grid of a double in the table."""
    (trace,) = _detail(TORCH / capture)
    row = {key: column.item() for key, column in step_trace_time(trace).items()}
    told = _written(capture)
    assert (row["computing_ns"], row["communication_ns"], row["overlapped_ns"], row["free_ns"]) == (
        told["Computing"], told["Communication"], told["Overlapped"], told["Free"],
    )  # fmt: skip
    assert (row["not_overlapped_ns"], row["exclude_receive_ns"], row["bubble_ns"]) == (
        told["Communication(Not Overlapped)"],
        told["Communication(Not Overlapped and Exclude Receive)"],
        told["Bubble"],
    )
    assert row["step"] == told["Step"] // 1000
    assert abs(row["stage_ns"] - told["Stage"]) <= 250
    assert abs(row["preparing_ns"] - told["Preparing"]) <= 250


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_profilers_own_lanes_agree(capture):
    """The lanes in the file hold the same sums under the older rule for Free."""
    (trace,) = _detail(TORCH / capture)
    found = trace.overlap
    assert found.vendor_sums_ns[:4] == found.sums_ns[:4]
    assert (found.free_rule, trace.issues.count("overlap-differs")) == ("busy", 0)


def test_lanes_finer_than_a_nanosecond():
    """Half nanoseconds, rounded slice by slice: Free differs by less than one per slice."""
    (trace,) = _detail(ADVICE)
    found = trace.overlap
    assert found.vendor_sums_ns.computing == found.sums_ns.computing
    assert 0 < found.vendor_sums_ns.free - found.sums_ns.free < 273
    assert trace.issues.count("overlap-differs") == 0


@pytest.fixture(scope="module")
def mindspore():
    """Both ranks of the graph mode sample, in detail."""
    return _detail(MINDSPORE)


def test_the_first_iterations_of_graph_mode(mindspore):
    """Figures of iteration 1 on both ranks, as in the profiler's own lanes."""
    keys = ("graph", "dur_ns", "computing_ns", "communication_ns", "not_overlapped_ns", "free_ns")
    assert [[getattr(t.steps, key)[0] for key in keys] for t in mindspore] == [
        [2, 47_587_810, 5_914_580, 41_534_300, 41_534_300, 113_630],
        [0, 57_532_960, 5_927_580, 51_464_470, 51_464_470, 115_110],
    ]


def test_every_iteration_agrees_with_its_own_lanes(mindspore):
    """Four windows per rank; nothing between them is called free."""
    for trace in mindspore:
        found = trace.overlap
        assert (found.spans, found.sums_ns[:4]) == (4, found.vendor_sums_ns[:4])
        assert trace.issues.count("overlap-differs") == 0


def test_iterations_without_device_data_have_no_figures(mindspore):
    """Ten iterations, four of them exported with device rows: the others are unknown."""
    for trace in mindspore:
        assert trace.coverage.text == "device data for 4 of 10 iterations"
        assert trace.steps.covered.tolist() == [1] * 4 + [0] * 6
        for name in trace.steps.FIGURES:
            figures = getattr(trace.steps, name)
            assert (figures[:4] >= 0).all() and (figures[4:] == UNKNOWN).all()
        last = int(trace.steps.end_ns[3])
        idle = trace.events.take(trace.events.op == OpClass.FREE)
        assert int(idle.end_ns.max()) <= last  # nothing is drawn in the other six


def test_ten_iterations_on_one_lane(mindspore):
    """Names carry the graph; the pauses between iterations stand among them."""
    for trace, graph in zip(mindspore, (2, 0), strict=True):
        rows = trace.events.take(trace.rows_of(Layer.STEP))
        names = [trace.strings[i] for i in rows.name]
        assert {trace.tracks[t].name for t in rows.track} == {"iterations"}
        assert [n for n in names if n.startswith("Model")] == [
            f"Model {graph} Iteration {i}" for i in range(1, 11)
        ]
        assert sum(n.startswith("Iteration Interval") for n in names) == 9
        assert len(names) == 49


def test_every_row_belongs_to_the_iteration_it_was_exported_with(mindspore):
    """Device rows of the four exported iterations carry the numbers 1 to 4."""
    for trace in mindspore:
        device = trace.events.take(trace.rows_of(Layer.DEVICE))
        assert sorted(set(device.step.tolist())) == [1, 2, 3, 4]


@pytest.mark.parametrize("capture", DATABASES)
def test_databases_to_the_last_digit(capture):
    """From tasks and operations alone, exact ns in and out."""
    folder = TORCH / capture / "ASCEND_PROFILER_OUTPUT"
    (path,) = folder.glob("ascend_pytorch_profiler_*.db")
    found = overlap(_from_tables(path)).overlap.sums_ns
    with sqlite3.connect(f"file:{folder / 'analysis.db'}?mode=ro&immutable=1", uri=True) as db:
        columns = "computing, communication, communication_not_overlapped, free"
        (told,) = db.execute(f"select {columns} from StepTraceTime").fetchall()
    db.close()
    assert list(found[:4]) == [round(Decimal(str(value)) * 1000) for value in told]


def _from_tables(path):
    """Only what the analysis needs: compute tasks and communication operations."""
    build = TraceBuilder(Capture("test", FileSource(path, "db"), ("db",), rank=0))
    stream, comm = build.track(Layer.DEVICE, "Stream"), build.track(Layer.COMM, "Group")
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        tasks = db.execute(
            "select startNs, endNs from TASK join COMPUTE_TASK_INFO using (globalTaskId)"
        ).fetchall()
        calls = db.execute("select startNs, endNs from COMMUNICATION_OP").fetchall()
    db.close()
    for start, end in tasks:
        build.slice(stream, start, end - start, "task", op=OpClass.COMPUTE)
    for start, end in calls:
        build.slice(comm, start, end - start, "operation", op=OpClass.COMM)
    return build.finish()
