"""The overlap analysis: its lanes, exact to the nanosecond, and how the source's own compare."""

from pathlib import Path

import numpy as np
import pytest
from effort import effort
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from traceconv.core.builder import TraceBuilder
from traceconv.core.columns import OverlapSums, OverlapTimes
from traceconv.core.model import UNKNOWN, Capture, Layer, OpClass, StepTable
from traceconv.io.sources import FileSource
from traceconv.passes import compose
from traceconv.passes.attribution import attribution
from traceconv.passes.overlap import LANES, overlap
from traceconv.passes.steps import steps

NAMES = ["Computing", "Communication", "Communication(Not Overlapped)", "Free"]


def _build():
    return TraceBuilder(Capture("test", FileSource(Path("x"), "x"), ("x",), rank=0))


@pytest.fixture
def build():
    """A builder for rank 0."""
    return _build()


def _fill(build, kernels, calls=()):
    stream, comm = (
        build.track(Layer.DEVICE, "Stream 1"),
        build.track(Layer.COMM, "Group 0", communicator="Group 0"),
    )
    for start, end in kernels:
        build.slice(stream, start, end - start, "k", op=OpClass.COMPUTE)
    for start, end in calls:
        build.slice(comm, start, end - start, "allReduce", op=OpClass.COMM)


def _own_lanes(build, **lanes):
    """Overlap lanes as the source brings them."""
    for op, name in LANES.items():
        track = build.track(Layer.OVERLAP, name)
        for start, end in lanes.get(op.name.lower(), ()):
            build.slice(track, start, end - start, name, op=op)


def _lanes(trace, names=tuple(NAMES)):
    """Per lane of these names [(start, end), ...], checked for names."""
    found = {name: [] for name in LANES.values()}
    events = trace.events.take(trace.rows_of(Layer.OVERLAP))
    for track, name, start, end in zip(
        events.track, events.name, events.start_ns.tolist(), events.end_ns.tolist(), strict=True
    ):
        lane = trace.tracks[track]
        assert (lane.name, lane.heading) == (trace.strings[name], "Overlap Analysis")
        found[lane.name].append((start, end))
    return [found[name] for name in names]


KERNELS, CALLS = [(0, 10), (8, 15), (30, 40)], [(12, 20), (35, 50)]


def test_the_worked_example(build):
    """Unions, what nothing hides, and what is idle in between."""
    _fill(build, KERNELS, CALLS)
    assert _lanes(overlap(build.finish())) == [
        [(0, 15), (30, 40)],
        [(12, 20), (35, 50)],
        [(15, 20), (40, 50)],
        [(20, 30)],
    ]


def test_lanes_stand_in_order_below_the_steps(build):
    """Computing, Communication, its uncovered part, Free; layers in screen order."""
    _fill(build, KERNELS, CALLS)
    tracks = overlap(build.finish()).tracks
    assert [t.name for t in tracks] == [*NAMES, "Stream 1", "Group 0"]


def test_sums_are_kept(build):
    """In ns, under the names of the classes; known is what was analysed."""
    _fill(build, KERNELS, CALLS)
    found = overlap(build.finish()).overlap
    assert found == OverlapSums("busy", 1, OverlapTimes(25, 23, 15, 10, known=50), 10)
    assert found.sums_ns.known == 50


def test_parts_of_communication_do_not_count(build):
    """Tasks on planes, waits and copies of an NPU are neither computing nor communication."""
    build.hints.vendor = "ascend"
    _fill(build, [(0, 10), (30, 40)])
    stream, plane = build.track(Layer.DEVICE, "Stream 1"), build.track(Layer.COMM, "Plane 0")
    build.slice(plane, 12, 5, "Memcpy", op=OpClass.COMM_TASK)
    build.slice(stream, 20, 5, "MEMCPY_ASYNC", op=OpClass.COPY)
    build.slice(stream, 26, 2, "EVENT_WAIT", op=OpClass.WAIT)
    assert _lanes(overlap(build.finish())) == [[(0, 10), (30, 40)], [], [], [(10, 30)]]


COPIES = ("Memory Copy", "Memory Copy(Not Overlapped)", "Free")


def test_copies_are_no_idle_time_of_a_gpu(build):
    """They have lanes, what nothing hides of them has one, and Free leaves them out."""
    _fill(build, [(0, 10), (30, 40)], [(38, 45)])
    stream = build.track(Layer.DEVICE, "Stream 7")
    for start, end in ((5, 12), (20, 25), (39, 50)):
        build.slice(stream, start, end - start, "Memcpy DtoH", op=OpClass.COPY)
    trace = overlap(build.finish())
    assert _lanes(trace, COPIES) == [
        [(5, 12), (20, 25), (39, 50)],
        [(10, 12), (20, 25), (45, 50)],
        [(12, 20), (25, 30)],
    ]
    assert trace.overlap.sums_ns == OverlapTimes(20, 7, 5, 13, 23, 12, known=50)


def test_copies_of_an_npu_are_shown_beside_the_vendors_lanes(build):
    """Its Free covers them; they are drawn."""
    build.hints.vendor = "ascend"
    _fill(build, [(0, 10), (30, 40)])
    build.slice(build.track(Layer.DEVICE, "Stream 2"), 20, 5, "MEMCPY_ASYNC", op=OpClass.COPY)
    assert _lanes(overlap(build.finish()), COPIES) == [[(20, 25)], [(20, 25)], [(10, 30)]]


UNCLASSIFIED = ("Computing", "Unclassified", "Free")


@pytest.mark.parametrize("vendor", ["ascend", ""])
def test_tasks_of_unknown_types_are_a_share_of_their_own(build, vendor):
    """The device is busy, and neither computes nor communicates; their types and time are said."""
    build.hints.vendor = vendor
    _fill(build, [(0, 10), (30, 40)], [(38, 45)])
    stream = build.track(Layer.DEVICE, "Stream 2")
    for start, end, name in ((5, 12, "NEW_SQE"), (20, 25, "NEW_SQE"), (44, 50, "Add")):
        args = {"Task Type": "NEW_CORE"} if name == "Add" else {}
        build.slice(stream, start, end - start, name, op=OpClass.UNCLASSIFIED, args=args)
    trace = overlap(build.finish())
    assert _lanes(trace, UNCLASSIFIED) == [
        [(0, 10), (30, 40)],
        [(10, 12), (20, 25), (45, 50)],
        [(10, 30)] if vendor else [(12, 20), (25, 30)],
    ]
    sums, idle = trace.overlap.sums_ns, trace.overlap.idle_ns
    assert (sums.unclassified, sums.known, idle) == (12, 50, 13)
    assert sums.computing + sums.not_overlapped + sums.unclassified + idle == sums.known
    [issue] = [one for one in trace.issues if one.code == "unclassified-tasks"]
    assert issue.count == 3
    assert issue.places == ("NEW_SQE on Stream 2: 0.007 µs", "type NEW_CORE (Add): 0.005 µs")


@pytest.mark.parametrize("vendor", ["", "ascend"])
def test_a_device_with_tasks_of_unknown_types_alone_is_not_free_in_them(build, vendor):
    """Nothing else says where the vendor's Free would begin and end."""
    build.hints.vendor = vendor
    track = build.track(Layer.DEVICE, "Stream 2")
    for start in (0, 30):
        build.slice(track, start, 10, "NEW", op=OpClass.UNCLASSIFIED)
    trace = overlap(build.finish())
    assert _lanes(trace)[3] == [(10, 30)]
    assert trace.overlap.idle_ns == 20


def test_tasks_of_unknown_types_that_others_hide_are_not_told_of(build):
    """No share, no lane, no issue: it makes no difference what they are."""
    _fill(build, [(0, 10)], [(8, 20)])
    build.slice(build.track(Layer.DEVICE, "Stream 2"), 5, 9, "NEW", op=OpClass.UNCLASSIFIED)
    trace = overlap(build.finish())
    assert "Unclassified" not in [track.name for track in trace.tracks]
    assert not trace.issues.count("unclassified-tasks")


def test_a_gpu_that_only_copies_is_analysed(build):
    """No kernel is needed to know that it is busy."""
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 5, 9, "Memcpy HtoD", op=OpClass.COPY)
    trace = overlap(build.finish())
    assert (_lanes(trace, COPIES)[0], trace.issues.count("no-device-events")) == ([(5, 14)], 0)


def test_collective_kernels_on_streams_count(build):
    """GPU collectives are device rows; their class decides, not their layer."""
    _fill(build, [(0, 10)])
    build.slice(build.track(Layer.DEVICE, "Stream 7"), 5, 10, "ncclKernel", op=OpClass.COMM)
    assert _lanes(overlap(build.finish())) == [[(0, 10)], [(5, 15)], [(10, 15)], []]


def test_time_between_windows_is_not_free(build):
    """Where the profiler was off nothing is known."""
    _fill(build, [(0, 5), (8, 10), (100, 105), (110, 120)])
    build.window(0, 20)
    build.window(95, 130)
    assert _lanes(overlap(build.finish()))[3] == [(5, 8), (105, 110)]


def test_activity_outside_of_every_window_is_a_window_of_its_own(build):
    """Rows the declared windows miss count, and the balance still holds."""
    _fill(build, [(0, 5), (15, 30), (50, 60)])
    build.window(0, 20)
    found = overlap(build.finish()).overlap
    assert (found.spans, found.sums_ns.free) == (2, 10)


def test_the_device_rule_stretches_the_span(build):
    """Other tasks count towards the span, except those that are known not to."""
    build.hints.vendor = "ascend"
    _fill(build, [(10, 20)])
    stream = build.track(Layer.DEVICE, "Stream 1")
    build.slice(stream, 2, 1, "MEMCPY_ASYNC", op=OpClass.COPY)
    build.slice(stream, 0, 1, "PROFILING_ENABLE")
    build.slice(stream, 25, 5, "EVENT_RECORD", op=OpClass.WAIT)
    assert _lanes(overlap(build.finish(), "device"))[3] == [(2, 10), (20, 30)]


def test_waiting_of_a_gpu_does_not_stretch_the_span(build):
    """Its records of synchronisation are no work of the device."""
    _fill(build, [(10, 20)])
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 25, 5, "Sync", op=OpClass.WAIT)
    assert _lanes(overlap(build.finish(), "device"))[3] == []


def test_a_reader_can_name_the_rule(build):
    """Sources whose span is that of all device rows say so in their hints."""
    _fill(build, [(10, 20)])
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 2, 1, "graph launch")
    build.hints.free_rule = "device"
    assert _lanes(overlap(build.finish()))[3] == [(2, 10)]


def test_the_rule_is_that_of_the_sources_own_lane(build):
    """If only the device rule explains the profiler's idle time, that rule is taken."""
    build.hints.vendor = "ascend"
    _fill(build, [(10, 20)])
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 2, 1, "EVENT_WAIT", op=OpClass.WAIT)
    _own_lanes(build, computing=[(10, 20)], free=[(2, 10)])
    trace = overlap(build.finish())
    assert trace.overlap.free_rule == "device"
    assert trace.issues.count("overlap-differs") == 0


def test_the_sources_lanes_are_replaced_and_booked(build):
    """Three rows go, five come; the ledger holds the difference, the issue the count."""
    _fill(build, [(0, 10), (20, 30)], [(5, 15)])
    _own_lanes(build, computing=[(0, 10), (20, 30)], communication=[(5, 15)])
    trace = overlap(build.finish())
    assert trace.issues.count("overlap-recomputed") == 3
    assert sum(len(lane) for lane in _lanes(trace)) == 5
    assert trace.ledger["overlap", "slice"] == 2


def test_a_difference_is_told_with_both_figures(build):
    """A lane that holds another sum is a doubt with place and figures."""
    _fill(build, [(0, 10), (20, 30)])
    _own_lanes(build, computing=[(0, 10), (20, 34)], free=[(10, 20)])
    (issue,) = [i for i in overlap(build.finish()).issues if i.code == "overlap-differs"]
    assert issue.places == ("Computing: 20 ns here, 24 ns in the profiler's lane (window 1)",)


def test_differences_are_counted_per_window(build):
    """Each window is compared alone, so that errors cannot cancel out."""
    _fill(build, [(0, 10), (100, 110)])
    build.window(0, 20)
    build.window(95, 115)
    _own_lanes(build, computing=[(0, 14), (100, 106)])
    assert overlap(build.finish()).issues.count("overlap-differs") == 2


def test_windows_the_source_did_not_analyse_are_no_difference(build):
    """Its lanes may be there for one window only."""
    _fill(build, [(0, 10), (100, 110)])
    build.window(0, 20)
    build.window(95, 115)
    _own_lanes(build, computing=[(0, 10)])
    assert overlap(build.finish()).issues.count("overlap-differs") == 0


def test_borders_finer_than_our_rows_are_taken_from_the_source(build):
    """The profiler cut its stamps after adding finer ones: its borders, off by 1 ns, stand."""
    _fill(build, [(0, 10), (20, 30)], [(8, 25)])
    _own_lanes(build, computing=[(0, 11), (20, 30)], communication=[(8, 25)],
               not_overlapped=[(11, 20)])  # fmt: skip
    trace = overlap(build.finish())
    assert _lanes(trace) == [[(0, 11), (20, 30)], [(8, 25)], [(11, 20)], []]
    assert trace.issues.count("overlap-differs") == 0


def test_rounded_durations_excuse_a_nanosecond_per_slice(build):
    """Sums of slices that were each rounded may be off by one per slice, and no more."""
    _fill(build, [(0, 10), (20, 30), (50, 60)])
    build.skip("duration-rounded", count=3)
    lanes = {"computing": [(0, 10), (20, 30), (50, 60)], "free": [(10, 21), (30, 51)]}
    _own_lanes(build, **lanes)
    assert overlap(build.finish()).issues.count("overlap-differs") == 0


def test_a_rank_without_device_rows_says_so(build):
    """Nothing to analyse is an issue, not an empty lane."""
    build.slice(build.track(Layer.HOST, "Thread 1", thread=1), 0, 5, "op", op=OpClass.HOST)
    trace = overlap(build.finish())
    assert (trace.issues.count("no-device-events"), len(trace.events)) == (1, 1)


def test_lanes_without_anything_to_recompute_them_from_stay(build):
    """A summary that is read again has overlap lanes and no device rows."""
    _own_lanes(build, computing=[(0, 5)], free=[(5, 9)])
    trace = overlap(build.finish())
    assert (_lanes(trace)[3], trace.issues.count("no-device-events")) == ([(5, 9)], 0)


def test_devices_of_one_rank_are_analysed_apart(build):
    """A file of two devices: one is idle while the other computes; sums are over both."""
    for device, kernels in ((0, [(0, 10), (20, 30)]), (1, [(10, 20), (25, 30)])):
        stream = build.track(Layer.DEVICE, "Stream 1", device=device, device_kind="NPU")
        for start, end in kernels:
            build.slice(stream, start, end - start, "k", op=OpClass.COMPUTE)
    trace = overlap(build.finish())
    free = [
        (trace.tracks[t].group, start)
        for t, start, op in zip(
            trace.events.track, trace.events.start_ns.tolist(), trace.events.op, strict=True
        )
        if op == OpClass.FREE
    ]
    assert free == [("NPU 0", 10), ("NPU 1", 20)]
    assert trace.overlap.sums_ns.computing == 35


def test_steps_get_their_share(build):
    """Each step's figures are clipped to it; of an iteration without tasks nothing is known."""
    track = build.track(Layer.STEP, "Model 1")
    for n, (start, end) in enumerate([(0, 25), (25, 50), (60, 90)], 1):
        build.slice(track, start, end - start, f"Iteration {n}", op=OpClass.ITERATION, graph=1,
                    step=n)  # fmt: skip
    _fill(build, KERNELS, CALLS)
    found = overlap(attribution(steps(build.finish()))).steps
    figures = np.stack([getattr(found, name) for name in StepTable.FIGURES], axis=1)
    assert figures.tolist() == [
        [15, 8, 5, 5, 0, 0, 0, 25],
        [10, 15, 10, 5, 0, 0, 0, 25],
        [UNKNOWN] * 8,
    ]


def test_excluded_names_still_count(build):
    """What is not shown is still computed with."""
    _fill(build, KERNELS, CALLS)
    trace = build.finish()
    for one in compose("detail", exclude="^k$|^allReduce$", layers=["overlap", "device"]):
        trace = one(trace)
    assert _lanes(trace)[0] == [(0, 15), (30, 40)]
    assert {t.layer for t in trace.tracks} == {Layer.OVERLAP}


def test_a_chosen_graph_is_analysed_alone(build):
    """Computing under a graph filter is that of the graph."""
    stream = build.track(Layer.DEVICE, "Stream 1")
    build.slice(stream, 0, 10, "a", op=OpClass.COMPUTE, graph=1)
    build.slice(stream, 20, 10, "b", op=OpClass.COMPUTE, graph=2)
    trace = build.finish()
    for one in compose("summary", graphs=[2]):
        trace = one(trace)
    assert _lanes(trace)[0] == [(20, 30)]


intervals = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), max_size=20)


@settings(max_examples=effort(30, 60), deadline=None)
@given(intervals, intervals, intervals, intervals, st.sampled_from(["busy", "device"]))
def test_the_balance_holds_in_every_window(kernels, calls, others, windows, rule):
    """The classes of which none hides another, and Free, are the length of the spans, exactly."""
    assume(kernels or calls)
    build = _build()
    _fill(build, [(s, s + d) for s, d in kernels], [(s, s + d) for s, d in calls])
    build.slice(build.track(Layer.DEVICE, "Stream 2"), 90, 7, "copy", op=OpClass.COPY)
    for start, dur in others:
        build.slice(build.track(Layer.DEVICE, "Stream 3"), start, dur, "?", op=OpClass.UNCLASSIFIED)
    for start, dur in windows:
        build.window(start, start + dur)
    trace = overlap(build.finish(), rule)
    compute, comm, exposed, free, copy, alone, rest = [
        {t for s, e in lane for t in range(s, e)} for lane in _lanes(trace, LANES.values())
    ]
    assert exposed == comm - compute
    assert alone == copy - compute - comm
    busy = compute | comm | copy
    assert not rest & busy
    assert rest == {t for s, d in others for t in range(s, s + d)} - busy
    busy |= rest
    assert not free & busy
    if rule == "busy" and not windows:
        assert busy | free == set(range(min(busy), max(busy) + 1))
    assert trace.overlap.sums_ns.known == len(busy | free)
