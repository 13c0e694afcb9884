"""What a Python user sees: short texts, one frame over all ranks, aligned clocks, drawings."""

from itertools import pairwise

import pytest
from paths import ROOT

import traceconv
from traceconv.core import frames

DEMO = str(ROOT / "golden/trace_view/demo/input")
JOB = str(ROOT / "examples/job")


def test_captures_are_a_short_list():
    """Of captures, one per rank."""
    captures = traceconv.open(DEMO)
    assert repr(captures) == "<Captures: ranks 0-1 (trace_view)>"
    assert (len(captures), [one.rank for one in captures]) == (2, [0, 1])
    assert captures._repr_html_().count("<tr>") == 3
    assert repr(list(captures)[1]).startswith("<Capture of rank 1 (trace_view): ")
    assert repr(captures.events()).startswith("<RankFrames of Captures: ranks 0-1 (trace_view); ")


def test_results_are_named_in_a_line(tmp_path):
    """Whatever they hold."""
    out = str(tmp_path / "t.pftrace")
    (trace, _) = traceconv.open(DEMO).traces("summary")
    stats = traceconv.stats(DEMO, by="step,overlap")
    found = {
        "<Report: summary of ranks 0-1, wrote": traceconv.merge(DEMO, out=out),
        "<Trace of rank 0: ": trace,
        "<EventTable: ": trace.events,
        "<Statistics of ranks 0-1: step_summary, step, stage, overlap": stats,
        "<DataTable overlap: ": stats["overlap"],
        "<Diagnosis of ranks 0-1: ": traceconv.diagnose(DEMO),
        "<StragglerReport: no verdict: ": traceconv.stragglers(DEMO),
        "<CriticalPath: ": traceconv.critical_path(DEMO),
        "<Alignment of ranks 0-1: ": traceconv.align(DEMO),
        "<Inspection: 2 captures, ranks 0-1>": traceconv.inspect(DEMO),
        "<DiffReport: no change: ": traceconv.diff(DEMO, DEMO),
        "<WhatIfReport: rank:0=peers: ": traceconv.what_if(DEMO, change=["rank:0=peers"]),
    }
    diagnosis = found["<Diagnosis of ranks 0-1: "]
    assert str(diagnosis) == diagnosis.text()
    found["<Verdict: no verdict: "] = diagnosis.verdict
    for start, result in found.items():
        assert repr(result).startswith(start)
        assert len(repr(result)) < 400
    assert list(stats) == ["step_summary", "step", "stage", "overlap", "step_trace_time"]


def test_a_printed_table_shows_its_first_rows():
    """Aligned, within a width, with the number of rows and columns that are left out."""
    table = traceconv.stats(DEMO, by="step,overlap")["overlap"]
    head, names, *rows, rest = str(table).splitlines()
    assert head == repr(table)
    assert names.split()[:2] == list(table.columns)[:2]
    assert len(rows) == 10
    assert rest.endswith(" more columns")
    assert all(len(line) <= 100 for line in (names, *rows))


def test_events_of_all_ranks_are_one_frame():
    """With the rank in front, and the rows of every trace."""
    pandas = pytest.importorskip("pandas")
    captures = traceconv.open(DEMO)
    frame = captures.events("detail").to_pandas(args="none")
    traces = list(captures.traces("detail"))
    assert list(frame.columns)[:1] == ["rank"]
    assert frame.groupby("rank").size().tolist() == [len(t.events) for t in traces]
    single = traces[1].events.to_pandas(args="none")
    mine = frame[frame["rank"] == 1].drop(columns="rank").reset_index(drop=True)
    assert (mine["name"].astype(str) == single["name"].astype(str)).all()
    assert pandas.api.types.is_integer_dtype(frame["start_ns"])
    assert (mine["start_ns"] == single["start_ns"]).all()


def test_texts_of_frames_are_joined():
    """Codes follow their texts; what is absent stays absent."""
    parts = [
        {"x": frames.Words.of(frames.np.array(ids), lambda i, t=texts: t[i])}
        for ids, texts in (([0, 1, -1], "ab"), ([0, -1, 1], "bc"))
    ]
    assert frames.below(parts)["x"].texts().tolist() == ["a", "b", None, "b", None, "c"]


def test_traces_are_on_the_clock_of_a_merge(tmp_path):
    """By default; without it, writing several warns and names the ranks."""
    captures = traceconv.open(JOB).ranks("0-1")
    shared = {t.rank: int(t.events.start_ns.min()) for t in captures.traces("detail")}
    out = tmp_path / "t.txt"
    merged = traceconv.merge(JOB, ranks="0-1", mode="detail", out=str(out))
    recorded = list(captures.traces("detail", align="none"))
    moved = {t.rank: shared[t.rank] - int(t.events.start_ns.min()) for t in recorded}
    offsets = {int(r): int(one["offset_ns"]) for r, one in merged.clock["ranks"].items()}
    assert moved == offsets
    with pytest.warns(UserWarning, match="clocks of ranks 0-1 were not aligned"):
        report = traceconv.write(recorded, tmp_path / "apart.txt")
    assert [i.rank for i in report.issues if i.code == "unaligned"] == [0, 1]
    report = traceconv.write(captures.traces("detail"), tmp_path / "together.txt")
    assert [i for i in report.issues if i.code == "unaligned"] == []


@pytest.mark.parametrize("kind", ["overlap", "ranks"])
def test_overlap_is_drawn(kind):
    """A bar per step and rank, or per rank; four parts each."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    stats = traceconv.stats(DEMO, by="overlap")
    axes = stats.plot(kind)
    axes.figure.canvas.draw()
    boxes = [one.get_window_extent() for one in axes.get_xticklabels() if one.get_text()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    rows = stats["overlap"].columns
    steps = (rows["Rank"] >= 0) & (rows["Step"] >= 0) & (rows["Known(ns)"] > 0)
    assert len(axes.patches) == 4 * (2 if kind == "ranks" else steps.sum())
    with pytest.raises(traceconv.OptionError, match="overlap"):
        stats.plot("pie")


def test_who_is_late_is_drawn():
    """Ranks by steps."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    found = traceconv.stragglers(JOB)
    shape = found.verdict.replay.own.excess.shape
    assert found.plot().images[0].get_array().shape == shape[::-1]
