"""Views: which passes make one, in which order, and what is left."""

import pytest

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import SelectionError
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource
from traceconv.passes import compose


@pytest.fixture
def trace(tmp_path):
    """A rank with something on every layer but the step and overlap lanes."""
    build = TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0))
    for layer, op in (
        (Layer.HOST, OpClass.HOST),
        (Layer.RUNTIME, OpClass.HOST),
        (Layer.SCOPE, OpClass.OTHER),
        (Layer.DEVICE, OpClass.COMPUTE),
        (Layer.COMM, OpClass.COMM),
        (Layer.OTHER, OpClass.OTHER),
    ):
        build.slice(build.track(layer, str(layer)), 10, 10, str(layer), op=op)
    build.slice(build.track(Layer.HOST, "host"), 0, 50, "ProfilerStep#4", op=OpClass.HOST, step=4)
    build.counter(build.track(Layer.COUNTER, "HBM", unit="KB"), 15, 1.0)
    return build.finish()


def _passed(trace, mode, **view):
    for one in compose(mode, **view):
        trace = one(trace)
    return trace


def _layers(trace):
    return [str(t.layer) for t in {t.layer: t for t in trace.tracks}.values()]


def test_the_summary_is_steps_and_overlap(trace):
    """No other lanes, no counters; what went is booked under the view."""
    summary = _passed(trace, "summary")
    assert _layers(summary) == ["step", "overlap"]
    assert (summary.ledger["view", "slice"], summary.ledger["view", "counter"]) == (-7, -1)


def test_the_detail_is_everything_but_scopes(trace):
    """Module scopes come only when asked for."""
    without = ["step", "overlap", "host", "runtime", "device", "comm", "counter", "other"]
    assert _layers(_passed(trace, "detail")) == without
    assert "scope" in _layers(_passed(trace, "detail", scope=True))


def test_the_ledger_of_a_view_sums_to_its_rows(trace):
    """Read, added and taken away, over all passes."""
    for mode in ("summary", "detail"):
        seen = _passed(trace, mode, steps=[4], layers=["step", "overlap", "host"])
        sums = dict.fromkeys(seen.counts(), 0)
        for (_, kind), rows in seen.ledger.items():
            sums[kind] += rows
        assert sums == seen.counts()


def test_filters_add_up(trace):
    """Steps, layers and names, all at once."""
    kept = _passed(trace, "detail", steps=[4], layers=["host", "device"], exclude="^dev")
    assert [kept.strings[i] for i in kept.events.name] == ["ProfilerStep#4", "host"]


def test_a_step_that_is_not_there_leaves_nothing_but_what_can_be_selected(trace):
    """The caller, who knows all ranks, judges by them."""
    nothing = _passed(trace, "summary", steps=[9])
    assert (len(nothing.events), nothing.present.steps.tolist()) == (0, [4])


def test_the_input_is_untouched(trace):
    """Passes share columns and change none."""
    before = {name: column.tolist() for name, column in trace.events.columns().items()}
    _passed(trace, "detail", merge_graphs=False)
    assert before == {name: column.tolist() for name, column in trace.events.columns().items()}


def test_an_unknown_view_is_refused():
    """The message lists those there are."""
    with pytest.raises(SelectionError, match="no view 'full'; choose from summary, detail"):
        compose("full")
