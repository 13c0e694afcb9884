"""Lanes: every track nests, nothing is lost, and the fewest lanes are used."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, EventTable, Kind, Layer
from traceconv.io.sources import FileSource
from traceconv.passes.lanes import FIRST_FIT, MAX_DEPTH, lanes


def _build():
    return TraceBuilder(Capture("test", FileSource(Path("x"), "x"), ("x",), rank=0))


def _trace(spans, layer=Layer.HOST, name="t"):
    build = _build()
    track = build.track(layer, name)
    for start, end in spans:
        build.slice(track, start, end - start, f"{start}-{end}")
    return build.finish()


def _by_lane(trace):
    """{lane: [(start, end), ...]} of a trace with one track, sub-lanes apart."""
    found = {}
    for track, start, end in zip(
        trace.events.track,
        trace.events.start_ns.tolist(),
        trace.events.end_ns.tolist(),
        strict=True,
    ):
        found.setdefault(trace.tracks[track].lane, []).append((start, end))
    return found


def _nests(spans):
    """Whether slices sorted by (start, -end) nest."""
    stack = []
    for start, end in sorted(spans, key=lambda s: (s[0], -s[1])):
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            return False
        stack.append(end)
    return True


def test_nested_slices_stay_on_one_lane():
    """Parents, children, neighbours that touch, equal slices, slices of no length."""
    spans = [(0, 100), (0, 50), (0, 50), (50, 100), (60, 60), (100, 120), (120, 120), (130, 130)]
    assert list(_by_lane(lanes(_trace(spans)))) == [0]


def test_crossing_slices_part():
    """The later one goes to the next lane; what fits the first lane goes back to it."""
    spans = [(0, 10), (5, 15), (10, 20), (12, 14), (30, 40)]
    assert _by_lane(lanes(_trace(spans))) == {
        0: [(0, 10), (10, 20), (12, 14), (30, 40)],
        1: [(5, 15)],
    }


def test_a_crossing_deep_down_is_found():
    """Three levels below a slice that holds everything."""
    spans = [(0, 100), (10, 90), (20, 50), (40, 60), (70, 80)]
    assert _by_lane(lanes(_trace(spans)))[1] == [(40, 60)]


def test_lanes_keep_the_tracks_name():
    """Viewers show them as one row: only the number differs."""
    tracks = lanes(_trace([(0, 10), (5, 15)], Layer.STEP, "iterations")).tracks
    assert [(t.name, t.lane) for t in tracks] == [("iterations", 0), ("iterations", 1)]


def test_instants_stay_where_they_are():
    """They take no room, whatever is open."""
    build = _build()
    track = build.track(Layer.HOST, "t")
    build.slice(track, 0, 10, "a")
    build.slice(track, 5, 10, "b")
    for at in (0, 5, 7, 10, 15):
        build.instant(track, at, "mark")
    trace = lanes(build.finish())
    instants = trace.events.take(trace.events.kind == Kind.INSTANT)
    assert {trace.tracks[t].lane for t in instants.track} == {0}


def test_tracks_do_not_disturb_each_other():
    """The same times on another track are no crossing."""
    build = _build()
    for name in ("a", "b", "c"):
        track = build.track(Layer.DEVICE, name)
        build.slice(track, 0, 10, "x")
        build.slice(track, 10 if name != "b" else 5, 10, "y")
    found = [(t.name, t.lane) for t in lanes(build.finish()).tracks]
    assert found == [("a", 0), ("b", 0), ("b", 1), ("c", 0)]


def test_arrows_follow_slices_to_their_lane():
    """An arrow between moved slices points at the same slices."""
    build = _build()
    track = build.track(Layer.HOST, "t")
    rows = [build.slice(track, s, 10, str(s)) for s in (0, 5, 20)]
    build.flow(rows[1], rows[2], "f")
    trace = lanes(build.finish())
    ends = (int(trace.flows.src[0]), int(trace.flows.dst[0]))
    assert [trace.strings[trace.events.name[i]] for i in ends] == ["5", "20"]


def test_tracks_without_rows_go():
    """Slices and counters keep theirs."""
    build = _build()
    build.track(Layer.COMM, "Plane 0")
    build.slice(build.track(Layer.HOST, "t"), 0, 1, "x")
    build.counter(build.track(Layer.COUNTER, "HBM", unit="KB"), 0, 1.0)
    trace = lanes(build.finish())
    assert [t.name for t in trace.tracks] == ["t", "HBM"]
    assert trace.counters.track.tolist() == [1]


def test_laying_out_twice_is_laying_out_once():
    """Lanes of a trace that was written and read again are joined first."""
    once = lanes(_trace([(0, 10), (5, 15), (8, 30), (16, 20)]))
    twice = lanes(once)
    assert (twice.tracks, _by_lane(twice)) == (once.tracks, _by_lane(once))


def test_too_deep_goes_to_the_next_lane():
    """Viewers drop slices below a depth; an issue counts those that were moved."""
    deep = MAX_DEPTH + 7
    trace = lanes(_trace([(i, 10_000 - i) for i in range(deep)]))
    assert {k: len(v) for k, v in _by_lane(trace).items()} == {0: MAX_DEPTH, 1: 7}
    assert trace.issues.count("nested-deep") == 7


def test_thousands_that_all_cross():
    """Beyond the lanes that nest, every lane is used again."""
    many = 500
    stairs = [(i, i + many) for i in range(many)]
    trace = lanes(_trace(stairs + [(s + 10 * many, e + 10 * many) for s, e in stairs]))
    found = _by_lane(trace)
    assert len(found) == many > FIRST_FIT
    assert all(_nests(spans) for spans in found.values())


@pytest.mark.parametrize("native", ["0", "1"])
def test_thousands_that_are_equal(native, monkeypatch):
    """They nest in as few lanes as viewers draw."""
    monkeypatch.setitem(lanes.__globals__, "MAX_DEPTH", 2)
    monkeypatch.setenv("TRACECONV_NATIVE", native)
    many = 2 * FIRST_FIT + 7
    trace = lanes(_trace([(0, 9)] * many + [(20, 29)] * many))
    assert [len(spans) for _, spans in sorted(_by_lane(trace).items())] == [4] * (many // 2) + [2]


def test_times_too_long_to_stand_in_a_row():
    """Spans that together leave int64 are told apart by their order."""
    build = _build()
    for name in ("a", "b", "c"):
        track = build.track(Layer.HOST, name)
        build.slice(track, 0, 2**61, "x")
        build.slice(track, 2**60, 2**61, "y")
    assert [t.lane for t in lanes(build.finish()).tracks] == [0, 1] * 3


spans = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 15)), max_size=40)


@given(spans, st.sampled_from("01"))
def test_every_lane_nests_and_holds_what_came(rows, native):
    """With the compiled part and without: all slices are there, and no two of a lane cross."""
    build = _build()
    for track, start, dur in rows:
        build.slice(build.track(Layer.HOST, f"t{track}"), start, dur, "x")
    trace = build.finish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACECONV_NATIVE", native)
        laid = lanes(trace)
    found = {}
    for track, start, end in zip(
        laid.events.track, laid.events.start_ns.tolist(), laid.events.end_ns.tolist(), strict=True
    ):
        lane = laid.tracks[track]
        found.setdefault((lane.name, lane.lane), []).append((start, end))
    assert all(_nests(spans) for spans in found.values())
    before = sorted((f"t{t}", s, s + d) for t, s, d in rows)
    assert before == sorted((n, s, e) for (n, _), v in found.items() for s, e in v)
    crossing = {f"t{k}" for k in range(3) if not _nests([(s, s + d) for t, s, d in rows if t == k])}
    assert crossing == {name for name, lane in found if lane}


@pytest.mark.sample(3)
@pytest.mark.parametrize("longest", [3, 40, 400, 3000])
@pytest.mark.parametrize("depth", [2, MAX_DEPTH])
def test_both_tiers_give_the_same_lanes(monkeypatch, longest, depth):
    """Slices that hardly cross, and slices of which hundreds are open at once."""
    monkeypatch.setitem(lanes.__globals__, "MAX_DEPTH", depth)
    rng = random.Random(longest)
    starts = [rng.randrange(3000) for _ in range(3000)]
    trace = _trace([(start, start + rng.randrange(longest)) for start in starts])
    laid = []
    for tier in "01":
        monkeypatch.setenv("TRACECONV_NATIVE", tier)
        laid.append(lanes(trace))
    assert _by_lane(laid[0]) == _by_lane(laid[1])
    assert laid[0].issues.count("nested-deep") == laid[1].issues.count("nested-deep")
    assert len(_by_lane(laid[0])) > (FIRST_FIT if longest > 100 else 1)


@pytest.mark.parametrize("span", [1, 40, 10**11, 2**63 - 1])
@pytest.mark.parametrize("tracks", [1, 7, 300, 5000])
def test_table_order_is_that_of_a_plain_sort(tracks, span):
    """By track, start and falling duration, ties in input order: however far apart stamps are."""
    rng, n = np.random.default_rng(tracks), 6000
    columns = {name: np.zeros(n, t) for name, t in EventTable.COLUMNS.items()}
    track = columns["track"] = rng.integers(0, tracks, n).astype(np.int32)
    start, dur = rng.integers(-span, span, n), rng.integers(0, 4, n)
    start[track % 3 == 0] = np.sort(start[track % 3 == 0])
    columns |= {"start_ns": start, "dur_ns": dur}
    expected = sorted(range(n), key=lambda i: (track[i], start[i], -dur[i]))
    assert EventTable(**columns).sort_order().tolist() == expected
