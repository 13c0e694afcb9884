"""Folders of old MindSpore as published: every figure against the file it comes from."""

import csv

import numpy as np
import pytest
from ascend_files import READERS, read
from paths import ASCEND

from traceconv.core.errors import Issues
from traceconv.core.model import Layer, OpClass
from traceconv.io.sources import sources

MINDINSIGHT = ASCEND / "mindinsight"
RUN = MINDINSIGHT / "run_1" / "normal_run" / "profiler"


def find(below, reader="mindspore"):
    (source,) = sources([str(MINDINSIGHT / below)])
    return {c.rank: c for c in READERS[reader].find(source, source.names(), Issues())}


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def column(rows, heading):
    return [int(row[heading]) * 10 for row in rows]  # ticks to ns


@pytest.fixture(scope="module")
def run():
    return read(find("run_1")[1])


@pytest.fixture(scope="module")
def stated():
    """The 322 rows of the step table, without the average."""
    return table(RUN / "step_trace_raw_1_detail_time.csv")[:-1]


@pytest.mark.parametrize(
    ("op", "start", "length"),
    [
        (OpClass.ITERATION, "start_point", "total"),
        (OpClass.FP_BP, "fp_point", "fp_and_bp"),
        (OpClass.TAIL, "bp_point", "tail"),
    ],
)
def test_steps_are_those_of_the_table(run, stated, op, start, length):
    """All 322 of them, to the tick."""
    events = run.events.take(run.events.op == op)
    assert events.step.tolist() == list(range(1, 323))
    assert events.start_ns.tolist() == column(stated, start)
    assert events.dur_ns.tolist() == column(stated, length)


def test_intervals_are_those_of_the_table(run, stated):
    """The first step has none."""
    events = run.events.take(run.events.op == OpClass.INTERVAL)
    assert events.dur_ns.tolist() == column(stated, "iteration_interval")[1:]


def test_the_last_row_is_the_mean_of_all_but_the_first(run):
    """Cut down to whole ticks, or rounded, depending on the column."""
    side_table = run.side_tables["step_trace_raw"]
    assert (len(side_table), side_table["step_num"].tolist()[-1]) == (323, "-")
    for heading, values in side_table.columns.items():
        if heading != "step_num":
            assert abs(values[-1] - values[1:-1].mean()) <= 1


@pytest.mark.parametrize("rank", [0, 2])
def test_averages_of_a_cut_table_are_not_of_its_rows(rank):
    """Five steps of a longer run: the last row cannot be checked, and is no step either."""
    trace = read(find("cluster_propose")[rank])
    total = trace.side_tables["step_trace_raw"]["total"]
    assert (len(total), abs(total[-1] - total[1:-1].mean()) > 1000) == (6, True)
    assert int((trace.events.op == OpClass.ITERATION).sum()) == 5


def test_operators_are_those_of_the_text_file(run):
    """2817 rows; the display file shows them, moved by the first stamp of the device's counter."""
    lines = (RUN / "output_timeline_data_1.txt").read_text().splitlines()[1:]
    rows = (line.rsplit(",", 3) for line in lines)
    text = sorted(
        (round(float(start) * 1e5) * 10, round(float(length) * 1e5) * 10, name.rpartition("/")[2])
        for name, _, start, length in rows
    )
    events = run.events.take(run.rows_of(Layer.DEVICE))
    names = [run.strings[i] for i in events.name.tolist()]
    shown = zip(events.start_ns.tolist(), events.dur_ns.tolist(), names, strict=True)
    assert (len(text), sorted(shown)) == (2817, text)


def test_operators_alone_are_the_same(tmp_path, run):
    """Without the display file the text file gives the same rows."""
    name = "output_timeline_data_1.txt"
    (tmp_path / name).symlink_to(RUN / name)
    (source,) = sources([str(tmp_path)])
    (found,) = READERS["mindspore"].find(source, source.names(), Issues())
    alone, shown = read(found), run.events.take(run.rows_of(Layer.DEVICE))
    assert sorted(alone.events.start_ns.tolist()) == sorted(shown.start_ns.tolist())
    assert int(alone.events.dur_ns.sum()) == int(shown.dur_ns.sum())


def test_collectives_are_those_of_the_table(run, stated):
    """322 steps with 11 each, of the display file; not one more from the table."""
    events = run.events.take(run.rows_of(Layer.COMM))
    starts = [h for h in stated[0] if h.startswith("stream_") and h.endswith("_start_point")]
    expected = sorted(ns for heading in starts for ns in column(stated, heading))
    assert sorted(events.start_ns.tolist()) == expected
    repeated = {
        i.file.rpartition("/")[2]: i.count for i in run.issues if i.code == "repeated-content"
    }
    assert repeated == {
        "output_timeline_data_1.txt": 2817,
        "step_trace_raw_1_detail_time.csv": 3542,
    }


def test_collectives_of_a_table_alone(run):
    """97 and 349 collectives a step; their costs are those of the other table."""
    for rank, number in ((0, 97), (2, 349)):
        trace = read(find("cluster_propose")[rank])
        assert int(trace.rows_of(Layer.COMM).sum()) == 5 * number
        given = int((trace.events.args[trace.rows_of(Layer.COMM)] >= 0).sum())
        assert given == (5 * number if rank == 0 else 0)


def test_every_file_is_known():
    """Nothing but raw data is left to others."""
    for below in ("run_1", "run_3", "cluster_propose", "parallel_strategy"):
        (source,) = sources([str(MINDINSIGHT / below)])
        taken = {n for c in find(below).values() for n in (*c.files, *c.known)}
        assert set(source.names()) - taken == set()


@pytest.mark.parametrize(
    ("below", "reader", "rank", "rows"),
    [
        ("run_1", "mindspore", 1, {
            "step_trace_raw": 323, "step_trace_point_info": 1, "aicore_detail": 69,
            "aicore_type": 24, "output_op_compute_time": 199, "output_op_compute_time_type": 29,
            "output_op_compute_time_detail": 199, "framework_raw": 81, "timeline_summary": 1,
            "min_cycle_counter": 1, "minddata_pipeline": 4, "minddata_pipeline_samples": 9,
            "flops": 199,
        }),
        ("run_3", "mindspore", 1, {"step_trace_raw": 2, "cluster_analyse": 1}),
        ("cluster_propose", "mindspore", 0, {
            "step_trace_raw": 6, "hccl_raw": 7, "hccl_raw_links": 1158, "cluster_analyse": 6,
        }),
        ("cluster_propose", "mindspore", 1, {"cluster_analyse": 6}),
        ("JOB_AICPU/expect", "mindspore", 0, {"output_data_preprocess_aicpu": 3}),
        ("profiler", "msprof", 0, {
            "device_queue_profiling": 4, "dynamic_shape_info": 19 + 9, "flops": 4,
            "flops_summary": 1,
            "framework_raw": 4, "minddata_cpu_utilization": 9, "minddata_pipeline": 4,
            "minddata_pipeline_samples": 8, "timeline_summary": 1,
        }),
        ("profiler", "msprof", 1, {
            "aicore_detail": 10, "aicore_type": 5, "framework_raw": 10, "minddata_pipeline": 5,
            "flops": 10,
        }),
    ],
)  # fmt: skip
def test_rows_of_tables(below, reader, rank, rows):
    """As the samples' list has them, or as counted."""
    found = read(find(below, reader)[rank]).side_tables
    assert {name: len(found[name]) for name in rows} == rows


def test_costs_of_a_step_are_the_sums_of_its_operators():
    """The row of the step, and its operators, each once."""
    found = read(find("cluster_propose")[0]).side_tables
    steps, links = found["hccl_raw"], found["hccl_raw_links"]
    for i, step in enumerate(steps["step_num"].tolist()[:-1]):
        mine = (links["step_num"] == step) & (links["operator"] != "")
        _, first = np.unique(links["operator"][mine], return_index=True)
        costs = links["communication_cost(ns)"][mine][first]
        assert abs(int(costs.sum()) - int(steps["communication_cost(ns)"][i])) <= 100
