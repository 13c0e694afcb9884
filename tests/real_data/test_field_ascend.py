"""Inputs made after bug reports and after the producers' writers, ``data/field/ascend``: what is
right is in the README there.
"""

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
