"""The model: order of tables, arrows that follow their events, accounts."""

import numpy as np
import pytest

from traceconv.alignment.collective_records import collective_records
from traceconv.core.builder import SPILL_AFTER, TraceBuilder
from traceconv.core.codes import Severity
from traceconv.core.errors import Issues, PluginError
from traceconv.core.model import Args, Capture, EventTable, Kind, Layer, OpClass, Strings, Track
from traceconv.io.sources import FileSource
from traceconv.run.spill import compact, spill


@pytest.fixture
def build(tmp_path):
    """A builder for rank 0."""
    return TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0))


def _names(trace):
    return [trace.strings[i] for i in trace.events.name.tolist()]


def test_tracks_come_in_screen_order(build):
    """Layers first, then numbers as numbers."""
    for layer, name in [
        (Layer.DEVICE, "Stream 12"),
        (Layer.COMM, "Plane 0"),
        (Layer.DEVICE, "Stream 3"),
        (Layer.STEP, "iterations"),
    ]:
        build.track(layer, name)
    names = [t.name for t in build.finish().tracks]
    assert names == ["iterations", "Stream 3", "Stream 12", "Plane 0"]


def test_work_that_begins_before_its_launch_is_booked_once(build):
    """The device's clock is ahead; arrows between calls, and those forward in time, are not."""
    calls, stream = (
        build.track(Layer.RUNTIME, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 7"),
    )
    call = build.slice(calls, 100, 10, "launch")
    for start in (90, 99, 100, 140):
        build.flow(call, build.slice(stream, start, 5, "gemm"), "launch")
    build.flow(build.slice(calls, 150, 5, "b"), call, "back")
    [issue] = build.finish().issues
    assert (issue.code, issue.severity, issue.count) == ("launch-backwards", Severity.INFO, 2)
    assert issue.places == ("by up to 10 ns",)


def test_rows_sort_by_track_start_and_longest_first(build):
    """Equal starts: the longer slice first, so that it can hold the shorter one."""
    late, early = build.track(Layer.DEVICE, "b"), build.track(Layer.DEVICE, "a")
    build.slice(late, 5, 1, "four")
    build.slice(early, 7, 1, "three")
    build.slice(early, 5, 1, "two")
    build.slice(early, 5, 9, "one")
    assert _names(build.finish()) == ["one", "two", "three", "four"]


def test_arrows_follow_their_events_through_sorting(build):
    """Rows move, arrows point at the same events."""
    track = build.track(Layer.HOST, "t")
    kernel = build.slice(track, 50, 1, "kernel")
    launch = build.slice(track, 10, 1, "launch")
    build.flow(launch, kernel, "HostToDevice")
    trace = build.finish()
    ends = (trace.flows.src[0], trace.flows.dst[0])
    assert [_names(trace)[i] for i in ends] == ["launch", "kernel"]


def test_keep_drops_arrows_that_lost_an_end(build):
    """An arrow whose target is left out goes too, and is booked."""
    track = build.track(Layer.HOST, "t")
    rows = [build.slice(track, t, 1, str(t)) for t in range(3)]
    build.flow(rows[0], rows[1], "f")
    build.flow(rows[1], rows[2], "f")
    kept = build.finish().keep("select", np.array([False, True, True]))
    assert (kept.flows.src.tolist(), kept.flows.dst.tolist()) == ([0], [1])
    assert kept.ledger["select", "flow"] == -1
    assert kept.ledger["select", "slice"] == -1


def test_the_ledger_sums_to_what_the_trace_holds(build):
    """Seen, lost and every later stage add up to the rows present, for every kind."""
    track, samples = build.track(Layer.HOST, "t"), build.track(Layer.COUNTER, "c", unit="MB")
    for t in range(4):
        build.slice(track, t, 1, "s")
        build.counter(samples, t, 1.0)
    build.seen("slice")
    build.skip("negative-duration", "here", kind="slice")
    trace = build.finish().keep("select", np.array([True, False, True, True]))
    sums = dict.fromkeys(trace.counts(), 0)
    for (_, kind), rows in trace.ledger.items():
        sums[kind] += rows
    assert sums == trace.counts()


def test_unbalanced_accounts_are_a_fault(build):
    """A reader that loses a record without saying so is caught."""
    build.seen("slice", 2)
    with pytest.raises(AssertionError, match="slice: saw 2, lost 0, kept 0"):
        build.finish()


def test_arguments_spill_to_disk_and_come_back(build):
    """Large argument blobs leave memory; every object reads back as written."""
    track = build.track(Layer.HOST, "t")
    raw = b'{"k":"' + b"x" * 1000 + b'"}'
    count = SPILL_AFTER // len(raw) + 10
    first = build.args_bytes(raw * count, np.full(count, len(raw), np.int32))
    after = build.args({"last": 1})
    build.seen("slice", 1)
    build.extend(track=track, start_ns=np.array([1]), name=build.string("n"), args=after)
    trace = build.finish()
    assert trace.args.raw(first + count - 1) == raw
    assert trace.args[int(trace.events.args[0])] == {"last": 1}


def test_attached_buffers_are_read_in_place(build):
    """Arguments may stay in the mapped input."""
    base = build.attach(b'..{"a":1}..')
    first = build.args_at(np.array([base + 2]), np.array([7], np.int32))
    assert build.finish().args[first] == {"a": 1}


def test_extended_args_keep_the_old_ones():
    """New arguments take the next ids."""
    args, first = Args().extended([b'{"a":1}'])
    args, second = args.extended([b'{"b":2}', b'{"c":3}'])
    assert (first, second, args[0], args[2], args[-1]) == (0, 1, {"a": 1}, {"c": 3}, {})


def test_windows_are_joined_and_ordered(build):
    """Overlapping collection windows are one."""
    for start, end in [(20, 30), (0, 5), (25, 40), (7, 7)]:
        build.window(start, end)
    assert build.finish().windows.tolist() == [[0, 5], [20, 40]]


def _iteration(trace):
    """One row, of a step."""
    return EventTable(
        track=np.zeros(1, "i4"), kind=np.zeros(1, "i1"), op=np.full(1, OpClass.ITERATION, "i1"),
        start_ns=np.array([1]), dur_ns=np.array([9]), name=np.array([trace.strings.intern("it")]),
        graph=np.array([-1]), step=np.array([1]), args=np.array([-1]),
    )  # fmt: skip


def test_add_events_arranges_tracks_and_rows(build):
    """Added rows land on their own tracks, in screen order."""
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 5, 1, "kernel")
    trace = build.finish()
    grown = trace.add_events("steps", [Track(Layer.STEP, "iterations")], _iteration(trace))
    assert [t.name for t in grown.tracks] == ["iterations", "Stream 1"]
    assert _names(grown) == ["it", "kernel"]
    assert grown.ledger["steps", "slice"] == 1


def test_compacting_keeps_only_what_is_used(build):
    """Strings and arguments that no row refers to are gone."""
    track = build.track(Layer.HOST, "t")
    for i in range(3):
        build.slice(track, i, 1, f"name{i}", args={"i": i})
    small = compact(build.finish().keep("select", np.array([False, True, False])))
    assert list(small.strings) == ["name1"]
    assert (len(small.args), small.args[int(small.events.args[0])]) == (1, {"i": 1})


def test_parked_traces_come_back_unchanged(build, tmp_path):
    """What is set aside on disk is what was there."""
    n = 50_000
    track = build.track(Layer.HOST, "t")
    build.seen("slice", n)
    build.extend(track=track, start_ns=np.arange(n), dur_ns=1, name=build.string("n"))
    trace = build.finish()
    back = spill(trace, collective_records(trace), tmp_path / "rank").load()
    for name, column in trace.events.columns().items():
        assert np.array_equal(column, getattr(back.events, name)), name
    assert not back.events.start_ns.flags.writeable


def test_instants_and_slices_are_counted_apart(build):
    """Kinds have their own accounts."""
    track = build.track(Layer.HOST, "t")
    build.slice(track, 0, 1, "s")
    build.instant(track, 3, "i")
    trace = build.finish()
    assert (trace.counts()["slice"], trace.counts()["instant"]) == (1, 1)
    assert trace.events.kind.tolist() == [Kind.SLICE, Kind.INSTANT]


def test_strings_are_interned_once():
    """Equal strings share an id."""
    strings = Strings(["a", "b", "a"])
    assert (list(strings), strings.intern("b")) == (["a", "b"], 1)
    assert ([strings.intern(v) for v in ("c", "a", "c", "d")], strings[2]) == ([2, 0, 2, 3], "c")


def test_issues_are_counted_and_the_first_placed():
    """Equal codes of a file add up; only a few places are kept."""
    issues = Issues()
    for i in range(9):
        issues.add("bad-time", "f.json", f"byte {i}", 2)
    [issue] = issues
    assert (issue.count, issue.severity, len(issue.places)) == (18, Severity.LOSS, 5)


def test_an_unknown_code_is_a_fault():
    """The table of codes is closed."""
    with pytest.raises(KeyError, match="unknown issue code"):
        Issues().add("no-such-code")


def test_a_plugin_code_carries_its_name():
    """Foreign codes cannot pass for ours."""
    with pytest.raises(PluginError, match="must begin with 'foo-'"):
        Issues.register("foo", "bad-time", Severity.LOSS, "advice")
