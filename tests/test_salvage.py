"""Saving what can be saved: ``convert --salvage``, and stamps that are hard to believe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import traceconv
from traceconv.cli import run
from traceconv.core.builder import FARTHEST_NS, TraceBuilder
from traceconv.core.model import Capture, Layer
from traceconv.core.source import RecordedSource
from traceconv.passes.timestamp_outliers import FAR_NS, timestamp_outliers

NS_OF_A_YEAR = 31_536_000_000_000_000
UNIX = 1_740_816_000_000_000_000

BROKEN = (
    '{"traceEvents":['
    '{"name":"a","ph":"X","pid":1,"tid":1,"ts":1,"dur":2},'
    '{"name":"b","ph":"X","pid":1,"tid":1,"ts":5,"dur":-2},,'
    '{"name":"c\x01","ph":"X","pid":1,"tid":1,"ts":7,"dur":1,"args":{"x":NaN}}'
    '{"name":"d","ph":"X","pid":1,"tid":1,"ts":9,"dur":1},'
    '{"name":"e","ph":"X","pid":1,"tid":1,"ts":11,"du'
)


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A damaged file in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text(BROKEN)
    return ["convert", "broken.json", "--salvage", "-o", "repaired.json"]


def test_a_repaired_file_and_its_losses(broken, capsys):
    """Strict JSON with what could be read, and an account with place and count of the rest."""
    assert run(broken) == 0
    events = json.loads(Path("repaired.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["a", "c\x01", "d"]
    told = json.loads(Path("repaired.json.losses.json").read_text())
    assert told["events"]["slice"] == {"met": 4, "lost": 1}
    assert [(i["code"], i["count"]) for i in told["losses"]] == [
        ("negative-duration", 1),
        ("truncated", 1),
    ]
    assert told["losses"][1]["places"] == [f"byte {BROKEN.rindex('{')}"]
    assert "saved 3 of 4 events" in capsys.readouterr().err


def test_what_was_repaired_needs_no_repair(broken):
    """The output of a salvage has no loss of its own."""
    run(broken)
    report = traceconv.convert("repaired.json", out="again.json")
    assert [i.code for i in report.issues if i.severity == "loss"] == []


def test_losses_are_not_overwritten_unasked(broken, capsys):
    """The report is refused like any file that is there."""
    assert (run(broken), run(broken), run([*broken, "-f"])) == (0, 2, 0)
    assert "repaired.json.losses.json: exists; pass -f to overwrite it" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["-o", "-"], ["--strict"]])
def test_salvage_wants_a_file_and_puts_up_with_losses(broken, more):
    """What contradicts it is a usage error."""
    assert run([*broken, *more]) == 2


# -- stamps far away -------------------------------------------------------------------------------


def trace(*starts, samples=()):
    build = TraceBuilder(Capture("made", RecordedSource("made", {}), (), rank=0, label="made.json"))
    lane = build.track(Layer.HOST, "Thread 1", thread=1)
    for start in starts:
        build.slice(lane, start, 10, "op" if UNIX <= start < UNIX + 10**9 else "odd")
    counter = build.track(Layer.COUNTER, "HBM", unit="MB/s")
    for start in samples:
        build.counter(counter, start, 1.0)
    return build.finish()


def said(made):
    return [(i.code, i.count, i.places) for i in timestamp_outliers(made).issues]


NEAR = [UNIX + i * 1000 for i in range(200)]


@pytest.mark.parametrize(
    ("odd", "distance"),
    [
        (UNIX + NS_OF_A_YEAR + 199_000, "31536000 s after the others"),
        (UNIX - NS_OF_A_YEAR, "31536000 s before the others"),
        (0, "1740816000 s before the others"),
    ],
)
def test_one_event_far_away_is_left_out_and_named(odd, distance):
    """With its distance; the time that is left is that of the others."""
    made = trace(*NEAR, odd)
    assert said(made) == [("far-stamp", 1, (f"'odd', {distance}",))]
    assert timestamp_outliers(made).span() == (NEAR[0], NEAR[-1] + 10)


@pytest.mark.parametrize("damaged", [1, 150])
@pytest.mark.parametrize("near", [3, 200])
def test_stamps_at_zero_are_damaged_however_many(near, damaged):
    """Beside Unix times they are no recording of their own."""
    made = trace(*[0] * damaged, *NEAR[:near])
    assert [(code, count) for code, count, _ in said(made)] == [("far-stamp", damaged)]
    assert len(timestamp_outliers(made).events) == near


def test_equal_stamps_far_away_are_damaged_however_many():
    """As zeros are that a profiler counts from a base."""
    made = trace(*[UNIX - NS_OF_A_YEAR] * 50, *NEAR)
    assert [(code, count) for code, count, _ in said(made)] == [("far-stamp", 50)]


def test_windows_end_with_what_is_left():
    """No time is known where only damaged stamps were."""
    build = TraceBuilder(Capture("made", RecordedSource("made", {}), (), rank=0, label="made.json"))
    for start in (0, *NEAR):
        build.slice(build.track(Layer.HOST, "Thread 1"), start, 10, "op")
    build.window(0, NEAR[-1] + 10)
    assert timestamp_outliers(build.finish()).windows.tolist() == [[NEAR[0], NEAR[-1] + 10]]


def test_both_ends_may_be_far():
    """Events before and after all others, and a sample."""
    made = trace(*NEAR, UNIX - NS_OF_A_YEAR, samples=[UNIX + NS_OF_A_YEAR])
    assert [(code, count) for code, count, _ in said(made)] == [("far-stamp", 2)]


def test_two_recordings_are_not_far_from_each_other():
    """Many events on either side of a gap are windows of a profiler."""
    assert said(trace(*NEAR, *(start + NS_OF_A_YEAR for start in NEAR))) == []


def test_long_runs_are_not_far():
    """Events all over a day are a day."""
    assert said(trace(*(UNIX + i * FAR_NS for i in range(24)))) == []


def test_stamps_no_clock_shows_are_lost():
    """Beyond 146 years from zero; their arrows go with them, and all is booked."""
    build = TraceBuilder(Capture("made", RecordedSource("made", {}), (), rank=0, label="made"))
    lane = build.track(Layer.HOST, "Thread 1", thread=1)
    rows = [
        build.slice(lane, UNIX, 10, "kept"),
        build.slice(lane, FARTHEST_NS + 1, 10, "late"),
        build.slice(lane, UNIX, FARTHEST_NS, "long"),
        build.slice(lane, -FARTHEST_NS - 1, 10, "early"),
    ]
    build.flow(rows[0], rows[1], "launch")
    made = build.finish()
    assert [made.strings[n] for n in made.events.name.tolist()] == ["kept"]
    assert [(i.code, i.count) for i in made.issues] == [("bad-time", 3), ("flow-unbound", 1)]
    assert made.ledger == {
        ("read", "slice"): 4,
        ("lost", "slice"): -3,
        ("read", "flow"): 1,
        ("lost", "flow"): -1,
    }
