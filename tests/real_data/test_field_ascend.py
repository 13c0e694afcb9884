"""Inputs made after bug reports and after the producers' writers, ``data/field/ascend``: what is
right is in the README there.
"""

import csv

import pytest
from paths import DATA

import traceconv
from traceconv.core.side_tables import ABSENT

FIELD = DATA / "field" / "ascend"
pytestmark = pytest.mark.skipif(not FIELD.is_dir(), reason="the sample data is not here")

US = 1000


def summary(name):
    """The only rank of an input, as the summary shows it."""
    return next(traceconv.open(str(FIELD / name)).traces("summary"))


def stats(name, table):
    """Rows of a table, as dicts."""
    data = traceconv.stats(str(FIELD / name), by=[table])[table].columns
    return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]


@pytest.mark.parametrize(
    ("name", "computing", "exposed", "free"),
    [
        ("mstx_device", 20, 13, 7),
        ("mc2_kfc", 30, 35, 15),
        ("csv_mc2", 20, 43, 7),
        ("csv_aicpu_expansion", 20, 43, 7),
        ("task_types_2026", 20, 38, 32),
    ],
)
def test_tasks_are_of_the_class_that_the_vendor_gives_them(name, computing, exposed, free):
    """Marks, turns of MC2, kernels that drive communication, waits: none of them computes."""
    trace = summary(name)
    sums = trace.overlap.sums_ns
    expected = (computing * US, exposed * US, free * US)
    assert (sums.computing, sums.not_overlapped, sums.free) == expected
    assert trace.overlap.idle_ns == free * US
    assert not trace.issues.count("overlap-differs") + trace.issues.count("unclassified-tasks")


def test_kernels_without_an_operator_are_busy_and_unclassified():
    """90 of 112 us run on AI cores; the vendor's Free, which says otherwise, is there, too."""
    trace = summary("aclgraph_unnamed")
    assert trace.overlap.idle_ns == 2 * US
    assert (trace.overlap.sums_ns.unclassified, trace.overlap.sums_ns.free) == (90 * US, 92 * US)
    [issue] = [one for one in trace.issues if one.code == "unclassified-tasks"]
    assert issue.count == 20
    assert "KERNEL_AICORE" in " ".join(issue.places)


def test_collectives_that_are_only_marked_are_communication():
    """Of a capture at level none: five operations per step; of computing nothing is known."""
    rows = stats("level_none_mstx", "step_trace_time")
    assert [row["Communication(ns)"] for row in rows] == [250 * US] * 3
    assert {row["Computing(ns)"] for row in rows} == {ABSENT}
    trace = summary("level_none_mstx")
    assert trace.overlap is None
    assert trace.issues.count("computing-unknown")


def test_a_stamp_of_zero_is_in_no_figure():
    """It is counted; the rest is as if it were not there."""
    trace = summary("ts_zero_hw")
    assert [(i.code, i.count) for i in trace.issues if i.code == "far-stamp"] == [("far-stamp", 1)]
    sums = trace.overlap.sums_ns
    assert (sums.computing, sums.not_overlapped, sums.free) == (20 * US, 2 * US, 3 * US)
    assert trace.overlap.idle_ns <= 50 * US


def test_a_file_that_was_exported_twice_is_read_once():
    """The second export, behind the end of the first, is counted."""
    trace = summary("json_appended_after_end")
    assert trace.overlap.sums_ns.computing == 20 * US
    assert len(trace.rows_of("device")) and trace.counts()["slice"] < 8
    [issue] = [one for one in trace.issues if one.code == "repeated-content"]
    assert issue.count == 7


def test_work_before_the_first_step_is_said_to_be_there():
    """It is none of the steps', and no lack of device slices."""
    trace = summary("work_before_steps")
    [issue] = [one for one in trace.issues if one.code == "work-outside-steps"]
    assert (issue.count, issue.places) == (2, ("ends 70.000 µs before the first step",))
    assert not trace.issues.count("computing-unknown")


def test_steps_of_two_windows_follow_one_rule():
    """Each is idle before its first task; Free of the one does not reach up to the other."""
    steps = summary("csv_two_windows_steps").steps
    assert steps.step.tolist() == [5, 6]
    assert steps.known_ns.tolist() == [71 * US, 141 * US]
    assert steps.free_ns.tolist() == [51 * US, 101 * US]
    assert steps.input_wait_ns.tolist() == [1 * US, 1 * US]


def test_time_in_which_the_profiler_was_off_is_not_idle():
    """After a wait for a value CANN records nothing until the value is written: unknown."""
    trace = summary("collection_gap")
    assert trace.overlap.sums_ns.known == 20 * US
    assert trace.overlap.idle_ns == 0
    [issue] = [one for one in trace.issues if one.code == "collection-paused"]
    assert (issue.count, issue.places) == (1, ("990.000 µs",))
    assert trace.issues.count("overlap-differs")  # the vendor's Free, which has it all


def test_a_database_of_cluster_tools_is_read_like_their_tables():
    """ClusterStepTraceTime: the steps of 16 ranks, of which the last eight compute longer."""
    rows = [row for row in stats("cluster_db", "overlap") if row["Rank"] != ABSENT]
    assert [row["Rank"] for row in rows] == list(range(16))
    assert rows[0]["Total Compute(ns)"] == 75_174_575
    assert rows[0]["Idle(ns)"] == 69_909_504
    assert min(row["Total Compute(ns)"] for row in rows[8:]) > 79_000_000


def test_stragglers_of_a_cluster_table_are_those_of_diagnose():
    """Without a timeline no rank is compared; the reason names the command that compares ranks."""
    verdict = traceconv.stragglers(str(FIELD / "cluster_db")).verdict
    assert verdict.reason.endswith("`traceconv diagnose` compares those")


def test_two_devices_of_a_process_have_a_row_each():
    """As in the profiler's own table. Its Stage of 50 us was typed in: by the writer's rule it is
    the time from the first to the last row of the device's lanes (``_trace_step_time_parser.py`` of
    Ascend/pytorch), so both are stated."""
    rows = stats("two_devices", "step_trace_time")
    names = ("Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free")
    assert [(row["Device"], *(row[f"{name}(ns)"] // US for name in names)) for row in rows] == [
        (0, 20, 15, 2, 17, 5),
        (1, 18, 30, 5, 35, 0),
    ]
    assert [row["Stage(ns)"] // US for row in rows] == [40, 48]
    found = traceconv.stats(str(FIELD / "two_devices"), by=["step_trace_time"]).issues
    [issue] = [one for one in found if one.code == "figures-differ"]
    assert issue.places[1] == "Stage 48.000 µs, 50.000 µs in step_trace_time"


def test_exports_of_single_operators_are_one_capture():
    """CANN 5 to 6.3: the device's, the host's and both together say one thing, of rank 0."""
    [capture] = traceconv.open(str(FIELD / "old_single_op")).found
    assert (capture.reader, capture.rank, capture.device) == ("msprof", 0, 0)
    trace = summary("old_single_op")
    assert (trace.overlap.sums_ns.computing, trace.overlap.idle_ns) == (20 * US, 5 * US)
    detail = next(traceconv.open(str(FIELD / "old_single_op")).traces("detail"))
    assert [int(detail.rows_of(layer).sum()) for layer in ("runtime", "device")] == [1, 2]


def test_step_times_of_receives_that_run_ahead_are_the_vendors():
    """Every figure of its CSV: windows begin with the first launch, and the first one wins."""
    rows = stats("multi_step_pipeline", "step_trace_time")
    [path] = (FIELD / "multi_step_pipeline").glob("*/*/step_trace_time.csv")
    with path.open() as text:
        stated = list(csv.DictReader(text))
    assert [row["Step"] for row in rows] == [10, 11, 12, 13]
    for row, told in zip(rows, stated, strict=True):
        names = [name for name in told if name not in ("Device_id", "Step")]
        assert {name: row[f"{name}(ns)"] for name in names} == {
            name: round(float(told[name]) * US) for name in names
        }


def test_steps_without_recorded_time_have_no_path():
    """Two of four steps of ``msprof_cli`` have work, but no time: the path says so."""
    path = traceconv.critical_path(str(FIELD / "msprof_cli")).path
    assert [step for step, _ in path.left_out] == [2, 3]
    assert set(path.left_out.values()) == {"no time of it was recorded"}
    assert path.steps and len(path.segments)


def test_copies_of_collectives_communicate():
    """4.292 of 5.159 ms that SDMA engines copied were tasks of HCCL, on its planes."""
    where = "ascend/msinsight/test/data/pytorch/db/level1/rank0_ascend_pt"
    trace = next(traceconv.open(str(DATA / where)).traces("summary"))
    assert trace.overlap.sums_ns.copying == 866_699
