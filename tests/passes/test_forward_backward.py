"""Borders of forward and backward, by the names of operators."""

import json

import pytest
from paths import ROOT

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource
from traceconv.passes import compose
from traceconv.run.stages import passed


@pytest.fixture
def build(tmp_path):
    """A builder for a rank whose user names both operators."""
    source = FileSource(tmp_path, "x")
    names = ("net/Conv2D", "loss/AddN_70")
    return TraceBuilder(Capture("test", source, ("x",), rank=0, border_operators=names))


def iteration(build, number, start, graph=1):
    """An iteration of 100 ns with forward at 20 and the end of backward at 70."""
    lane = build.track(Layer.STEP, f"Model ID:{graph}")
    name = f"Iteration {number}"
    build.slice(lane, start, 100, name, op=OpClass.ITERATION, graph=graph, step=number)
    stream = build.track(Layer.DEVICE, f"Stream {graph}")
    for at, name, args in (
        (5, "GetNext", None),
        (20, "Default/net/Conv2D", None),
        (40, "net/Conv2D", None),
        (60, "AddN", {"fullname": "Gradients/loss/AddN_70"}),
        (80, "Momentum", None),
    ):
        build.slice(stream, start + at, 10, name, op=OpClass.COMPUTE, graph=graph, args=args)


def borders(trace):
    trace = passed(trace, compose("summary"))
    rows = trace.events.take((trace.events.op == OpClass.FP_BP) | (trace.events.op == OpClass.TAIL))
    spans = zip(rows.name.tolist(), rows.start_ns.tolist(), rows.end_ns.tolist(), strict=True)
    return [(trace.strings[name], start, end) for name, start, end in spans], trace.issues


def test_borders_are_those_of_the_operators(build):
    """By the end of their names, or by the full name in their arguments."""
    iteration(build, 1, 0)
    iteration(build, 2, 200)
    found, issues = borders(build.finish())
    assert found == [
        ("Forward+backward 1", 20, 70), ("After backward 1", 70, 100),
        ("Forward+backward 2", 220, 270), ("After backward 2", 270, 300),
    ]  # fmt: skip
    assert issues.count("borders-derived") == 2


def test_what_the_profiler_marked_stays(build):
    """Only iterations that lack borders get some."""
    iteration(build, 1, 0)
    iteration(build, 2, 200)
    lane = build.track(Layer.STEP, "Model ID:1")
    build.slice(lane, 201, 5, "FP_BP Time 2", op=OpClass.FP_BP, graph=1, step=2)
    found, issues = borders(build.finish())
    assert [row for row in found if row[0].startswith(("FP_BP", "Forward"))] == [
        ("Forward+backward 1", 20, 70), ("FP_BP Time 2", 201, 206)
    ]  # fmt: skip
    assert issues.count("borders-derived") == 1


def test_operators_of_another_graph_are_no_borders(build):
    """Nor are those that reach out of the iteration."""
    iteration(build, 1, 0)
    lane = build.track(Layer.STEP, "Model ID:2")
    build.slice(lane, 0, 100, "Iteration 1", op=OpClass.ITERATION, graph=2, step=1)
    found, issues = borders(build.finish())
    assert (len(found), issues.count("borders-missing")) == (2, 1)


def test_without_iterations_there_are_none(build):
    """The whole range is no iteration."""
    build.slice(build.track(Layer.DEVICE, "s"), 0, 9, "net/Conv2D", op=OpClass.COMPUTE)
    build.slice(build.track(Layer.DEVICE, "s"), 20, 9, "loss/AddN_70", op=OpClass.COMPUTE)
    assert borders(build.finish())[0] == []


def test_variables_of_the_environment_come_before_what_is_recorded(monkeypatch):
    """They travel with the capture; here the file says Conv2D, which starts at 20 us."""
    case = ROOT / "golden" / "msprof" / "borders_by_name" / "input"
    monkeypatch.setenv("PROFILING_FP_START", "MatMul-op2")
    found = traceconv.open(str(case))
    assert found.found[0].border_operators == ("MatMul-op2", "")
    (trace,) = found.traces("summary")
    fp = trace.events.take(trace.events.op == OpClass.FP_BP)
    base = int(trace.events.start_ns.min())
    recorded = json.loads(next(case.rglob("msprof_*.json")).read_text())
    (at, *_) = [e for e in recorded if e["name"] == "Default/network/MatMul-op2"]
    first = json.loads(next(case.rglob("step_trace_2*.json")).read_text())[2]
    assert int(fp.start_ns[0]) - base == round((float(at["ts"]) - float(first["ts"])) * 1000)
    assert len(fp) == 3
