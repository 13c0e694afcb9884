"""Scope lanes made from the full names of operators."""

import pytest

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass, Track
from traceconv.io.sources import FileSource
from traceconv.passes import compose
from traceconv.passes.scopes import scopes, spans


@pytest.fixture
def build(tmp_path):
    return TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0))


def add(build, name, start, end, stream=1, **more):
    track = build.track(Layer.DEVICE, f"Stream {stream}")
    build.slice(track, start, end - start, name, **{"op": OpClass.COMPUTE, **more})


def lanes(trace):
    """Slices of the scope lanes: {lane: [(name, start, end)]}."""
    events, found = trace.events, {}
    for row in trace.rows_of(Layer.SCOPE).nonzero()[0].tolist():
        one = (trace.strings[events.name[row]], int(events.start_ns[row]), int(events.end_ns[row]))
        found.setdefault(trace.tracks[events.track[row]].name, []).append(one)
    return found


def test_a_scope_lasts_while_operators_share_it(build):
    """The worked example of the format's description."""
    add(build, "Default/net/conv1/Conv-op1", 0, 10)
    add(build, "Default/net/conv1/Relu-op2", 10, 12)
    add(build, "Default/net/fc/MatMul-op3", 12, 20)
    assert lanes(scopes(build.finish())) == {
        "layer0": [("Default", 0, 20)],
        "layer1": [("net", 0, 20)],
        "layer2": [("conv1", 0, 12), ("fc", 12, 20)],
    }


def test_an_operator_beside_another_is_passed_over(build):
    """Its scope would cross the one that is open."""
    add(build, "Default/net/Conv-op1", 0, 10)
    add(build, "Gradients/net/Conv-op9", 5, 30, stream=2)
    add(build, "Default/net/Relu-op2", 10, 12)
    assert lanes(scopes(build.finish())) == {
        "layer0": [("Default", 0, 12)],
        "layer1": [("net", 0, 12)],
    }


def test_a_shorter_path_leaves_deeper_scopes_open():
    """They go on if the next operator comes back to them."""
    paths = [("Default", "net", "a"), ("Default", "net"), ("Default", "net", "a")]
    found = list(spans(paths, [0, 10, 20], [10, 20, 30]))
    assert found == [(0, "Default", 0, 30), (1, "net", 0, 30), (2, "a", 0, 30)]


def test_a_scope_ends_with_the_one_around_it():
    """One of the same name under another parent is another scope."""
    paths = [("Default", "x", "a"), ("Default", "y"), ("Default", "y", "a")]
    found = list(spans(paths, [0, 10, 20], [10, 20, 30]))
    assert sorted(found) == [
        (0, "Default", 0, 30),
        (1, "x", 0, 10),
        (1, "y", 10, 30),
        (2, "a", 0, 10),
        (2, "a", 20, 30),
    ]


def test_a_scope_ends_with_its_collection_window(build):
    """Nothing is known of the time between two windows."""
    add(build, "Default/net/Conv-op1", 0, 10)
    add(build, "Default/net/Conv-op1", 100, 110)
    build.window(0, 20)
    build.window(90, 120)
    assert lanes(scopes(build.finish()))["layer0"] == [("Default", 0, 10), ("Default", 100, 110)]


@pytest.mark.parametrize("key", ["fullname", "op_full_name"])
def test_the_full_name_may_stand_in_the_arguments(build, key):
    """Display files shorten the name of a slice to its last part."""
    add(build, "MatMul-op3", 5, 7, args={"type": "MatMul", key: "Gradients/fc/MatMul-op3"})
    assert lanes(scopes(build.finish())) == {
        "layer0": [("Gradients", 5, 7)],
        "layer1": [("fc", 5, 7)],
    }


def test_operators_of_the_host_have_scopes(build):
    """Host operators carry full names, too; calls that only mention one do not count."""
    for name, start in (("Default/a/Add-op1", 0), ("Kernel::KernelLaunch::Default/b/Mul-op2", 9)):
        track = build.track(Layer.HOST, "Thread 7", title="CPU OP", thread=7)
        build.slice(track, start, 4, name, op=OpClass.HOST)
    assert lanes(scopes(build.finish())) == {"layer0": [("Default", 0, 4)], "layer1": [("a", 0, 4)]}


@pytest.mark.parametrize("name", ["aten::add", "MatMul-op1", "Defaults/a/B", "/Default/a/B"])
def test_names_that_are_no_paths_make_no_scopes(build, name):
    """Nothing changes, not even the ledger."""
    add(build, name, 0, 4)
    trace = build.finish()
    assert scopes(trace) is trace


def test_scopes_of_the_source_stay_alone(build):
    """What the profiler drew is not drawn again."""
    add(build, "Default/net/Conv-op1", 0, 10)
    build.slice(build.add_track(Track(Layer.SCOPE, "Thread 0")), 0, 10, "Default")
    trace = build.finish()
    assert scopes(trace) is trace


def test_rows_are_booked(build):
    """The ledger says how many were made."""
    add(build, "Default/net/Conv-op1", 0, 10)
    assert scopes(build.finish()).ledger["scopes", "slice"] == 2


@pytest.mark.parametrize(
    ("mode", "scope", "shown"),
    [("detail", True, 2), ("detail", False, 0), ("summary", True, 0), (None, True, 0)],
)
def test_scopes_are_made_for_the_detail_that_asks_for_them(build, mode, scope, shown):
    """Not for the summary, nor where nothing is to be derived."""
    add(build, "Default/net/Conv-op1", 0, 10)
    trace = build.finish()
    for one in compose(mode, scope=scope):
        trace = one(trace)
    assert int(trace.rows_of(Layer.SCOPE).sum()) == shown
