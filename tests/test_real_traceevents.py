"""Real captures read as trace events, counted against plain ``json`` and exact decimals."""

import gzip
import json
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

from traceconv.build import TraceBuilder
from traceconv.model import Capture, Kind, Layer, Track
from traceconv.readers._traceevents import Lane, Placed, read_events
from traceconv.source import FileSource

DATA = Path(__file__).parents[1].parent / "shared" / "data"
SAMPLES = [
    *DATA.glob("ascend/**/trace_view.json"),
    *DATA.glob("ascend/**/trace_view_tiny.json"),
    *DATA.glob("ascend/**/timeline/*_1.json"),
    *DATA.glob("ascend/**/*timeline_display_*.json"),
    *DATA.glob("gpu/kineto/*.json.gz"),
    *DATA.glob("gpu/paddle/rank*.json"),
    *DATA.glob("gpu/chrome_edge/*.json"),
]
UNCLOSED = ("simple-partial-trailing-comma.json", "simple-partial-whitespace.json")

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the captures are not here")


def label(path):
    return str(path.relative_to(DATA)).replace("PROF_000001_", "")[-60:]


@pytest.fixture(params=["native", "python"])
def tier(request, monkeypatch):
    """Both tiers in turn."""
    monkeypatch.setenv("TRACECONV_NATIVE", "1" if request.param == "native" else "0")


def anywhere(lane: Lane) -> Placed:
    """A track per lane and category, named by numbers alone."""
    layer = Layer.COUNTER if lane.phase == "C" else Layer.OTHER
    return Placed(Track(layer, lane.tid, lane.pid, f"{lane.category}|{lane.phase}"))


def read(path):
    source = FileSource(path, path.name)
    build = TraceBuilder(Capture("test", source, source.names()))
    read_events(source, path.name, build, anywhere)
    return build.finish()


def plain_events(path):
    """All events by the standard library, numbers as decimals."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    if path.name in UNCLOSED:
        text = text.rstrip().rstrip(",") + "]"
    loaded = json.loads(text, parse_float=Decimal, strict=False)
    events = loaded if isinstance(loaded, list) else loaded["traceEvents"]
    return [event for event in events if event]


def ns(us):
    return int((Decimal(us) * 1000).quantize(Decimal(1), ROUND_HALF_UP))


def lane_text(value):
    return "" if value is None else str(value)


def slices_of(events):
    """Complete slices as (pid, tid, category, name, start, duration), counted."""
    return Counter(
        (
            lane_text(e.get("pid")),
            lane_text(e.get("tid")),
            e.get("cat", ""),
            e["name"],
            ns(e["ts"]),
            ns(e.get("dur", e.get("tdur", 0))),
        )
        for e in events
        if e["ph"] == "X"
    )


def rows_of(trace, kind):
    events = trace.events
    columns = (events.track, events.kind, events.name, events.start_ns, events.dur_ns)
    for track, k, name, start, dur in zip(*(c.tolist() for c in columns), strict=True):
        if k == kind:
            at = trace.tracks[track]
            yield at.group, at.name, at.title.partition("|")[0], trace.strings[name], start, dur


@pytest.mark.parametrize("path", SAMPLES, ids=label)
def test_slices_are_those_of_the_file(path, tier):
    """Every complete event is there once, with exact times; pairs of B and E come on top."""
    events = plain_events(path)
    wanted = slices_of(events)
    found = Counter(rows_of(read(path), Kind.SLICE))
    assert wanted - found == Counter()
    assert found.total() - wanted.total() == sum(e["ph"] == "B" for e in events)


@pytest.mark.parametrize("path", SAMPLES, ids=label)
def test_every_phase_is_accounted_for(path, tier):
    """What the accounts say was seen is what a plain loop counts."""
    events = plain_events(path)
    phases = Counter(e["ph"] for e in events)
    trace = read(path)
    seen = {kind: n for (stage, kind), n in trace.ledger.items() if stage == "read"}
    samples = sum(key != "acc_id" for e in events if e["ph"] == "C" for key in e["args"])
    heads = phases["f"] + phases["t"]
    assert seen.get("slice", 0) == phases["X"] + phases["B"]
    assert seen.get("instant", 0) == phases["i"] + phases["I"]
    assert seen.get("counter", 0) == samples
    assert seen.get("flow", 0) - heads == lonely_starts(events)


def lonely_starts(events):
    """Starts of arrows none of whose heads comes from them."""

    def key(e):
        return e.get("cat"), e.get("name"), str(e.get("id"))

    starts, headed = Counter(), set()
    for e in events:
        if e["ph"] == "s":
            starts[key(e)] += 1
        elif e["ph"] in ("t", "f"):
            headed.add(key(e))
    return sum(n - (k in headed) for k, n in starts.items())


@pytest.mark.parametrize("path", SAMPLES, ids=label)
def test_arguments_are_those_of_the_file(path, tier):
    """Arguments of complete slices come back as they were written."""
    trace = read(path)
    found = Counter(
        json.dumps(trace.args[i], sort_keys=True) for i in trace.events.args.tolist() if i >= 0
    )
    wanted = Counter(
        json.dumps(json.loads(json.dumps(e["args"], default=float)), sort_keys=True)
        for e in plain_events(path)
        if e["ph"] in ("X", "i", "I") and e.get("args")
    )
    assert wanted - found == Counter()
