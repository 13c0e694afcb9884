"""Every analysis keeps the same selection: graphs, steps, a window of time, layers, names."""

import pytest
from paths import ROOT
from training_runs import Plan, write

import traceconv
from traceconv.core.errors import OptionError, SelectionError
from traceconv.core.side_tables import ABSENT

SAMPLE = ROOT / "golden" / "trace_view" / "demo" / "input"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of six steps."""
    folder = tmp_path_factory.mktemp("runs")
    return [write(folder / str(seed), Plan(steps=6, seed=seed)) for seed in (1, 2)]


def window(path, first, last, **kept):
    """The window of some steps, in ns from the first event of all ranks."""
    table = traceconv.stats(path, by="step", align="auto", **kept)["step"].columns
    traces = traceconv.open(path).traces("detail", align="auto", **kept)
    base = min(trace.span()[0] for trace in traces)
    own = (table["Step"] >= first) & (table["Step"] <= last) & (table["Rank"] != ABSENT)
    start = table["Start Time(ns)"][own]
    return int(start.min()) - base, int((start + table["Duration(ns)"][own]).max()) - base


def test_a_window_of_a_comparison_is_its_steps(runs):
    """The steps that lie in it, on both sides."""
    spans = [window(run, 2, 4) for run in runs]
    time = min(start for start, _ in spans), max(end for _, end in spans)
    wanted = traceconv.diff(*runs, steps="2-4")
    found = traceconv.diff(*runs, time=time)
    assert found.comparison.before.steps == wanted.comparison.before.steps
    assert (
        found.classes.columns["After(ns)"].tolist() == wanted.classes.columns["After(ns)"].tolist()
    )


def test_a_comparison_takes_the_ranges_that_are_steps(runs):
    """As every verb that reads ranks."""
    with pytest.raises(OptionError, match="`step_marker`"):
        traceconv.diff(*runs, step_marker="a(")
    assert traceconv.diff(*runs, step_marker=r"ProfilerStep#(\d+)", steps="2-3").items.columns


def test_graphs_and_windows_of_stragglers_and_critical_paths():
    """Steps of one graph, and those that lie in a window; none is an error."""
    assert [*traceconv.stragglers(SAMPLE, graphs=1).verdict.steps] == [(1, 1), (1, 2), (1, 3)]
    time = window(SAMPLE, 1, 1, graphs=1)
    path = traceconv.critical_path(SAMPLE, graphs=1, time=time)
    assert {step for step, _ in path.path.steps} == {1}
    found, wanted = (
        traceconv.stragglers(SAMPLE, graphs=1, **kept).verdict
        for kept in ({"time": time}, {"steps": 1})
    )
    assert (found.steps, found.compared) == (wanted.steps, wanted.compared)
    for verb in (traceconv.stragglers, traceconv.critical_path, traceconv.diagnose):
        with pytest.raises(SelectionError, match="`time` contains no whole step"):
            verb(SAMPLE, time="0ns:10ns")


def test_names_narrow_tables():
    """What is left out is in no table."""
    whole, some = (
        traceconv.stats(SAMPLE, by="op", exclude=exclude)["op"].columns["Operator"].tolist()
        for exclude in (None, "MatMul")
    )
    assert {name for name in whole if "MatMul" not in name} == set(some) < set(whole)
