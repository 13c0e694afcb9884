"""Real captures read as trace events, counted against plain ``json`` and exact decimals."""

import gzip
import json
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from functools import cache

import pytest
from effort import effort
from paths import DATA
from trace_events import plain, read, rows

import traceconv
from traceconv.io.sources import FileSource
from traceconv.readers.shared.trace_events import timeline

SAMPLES = sorted(
    [
        *DATA.glob("ascend/**/trace_view.json"),
        *DATA.glob("ascend/**/trace_view_tiny.json"),
        *DATA.glob("ascend/**/timeline/*_1.json"),
        *DATA.glob("ascend/**/*timeline_display_*.json"),
        *(
            p
            for p in DATA.glob("gpu/kineto/*.json.gz")
            if p.stat().st_size < effort(300_000, 10**6)
        ),
        *DATA.glob("gpu/paddle/rank*.json"),
        *DATA.glob("gpu/chrome_edge/*.json"),
    ]
)
UNCLOSED = ("simple-partial-trailing-comma.json", "simple-partial-whitespace.json")


def label(path):
    return str(path.relative_to(DATA)).replace("PROF_000001_", "")[-60:]


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


def complete(e):
    """A complete event as (pid, tid, name, start, duration)."""
    start, dur = ns(e["ts"]), ns(e.get("dur", e.get("tdur", 0)))
    return lane_text(e.get("pid")), lane_text(e.get("tid")), e["name"], start, dur


def arrow_key(e):
    return e.get("cat"), e.get("name"), str(e.get("id"))


def lonely_starts(events):
    """Starts of arrows none of whose heads comes from them."""
    starts = Counter(arrow_key(e) for e in events if e["ph"] == "s")
    headed = {arrow_key(e) for e in events if e["ph"] in ("t", "f")}
    return sum(n - (key in headed) for key, n in starts.items())


@cache
def wanted(path):
    """What a plain loop finds: slices, rows by kind, arguments."""
    events = plain_events(path)
    phases = Counter(e["ph"] for e in events)
    told = (e["args"] for e in events if e["ph"] in ("X", "i", "I") and e.get("args"))
    return (
        Counter(complete(e) for e in events if e["ph"] == "X"),
        {
            "slice": phases["X"] + phases["B"],
            "instant": phases["i"] + phases["I"],
            "counter": sum(k != "acc_id" for e in events if e["ph"] == "C" for k in e["args"]),
            "flow": phases["f"] + phases["t"] + lonely_starts(events),
        },
        Counter(json.dumps(args, sort_keys=True, default=float) for args in told),
    )


@pytest.fixture(scope="module", params=SAMPLES, ids=label)
def path(request):
    return request.param


@pytest.fixture(scope="module", params=["native", "python"])
def found(request, path):
    """The trace, by both tiers in turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACECONV_NATIVE", "1" if request.param == "native" else "0")
        return read(b"", lambda lane: plain(as_numbered(lane)), FileSource(path, path.name))


def as_numbered(lane):
    """A lane without its names, so that its track is called by its numbers."""
    return type(lane)(lane.pid, lane.tid, category=lane.category, phase=lane.phase)


@pytest.mark.sample(3)
def test_slices_are_those_of_the_file(path, found):
    """Every complete event is there once, with exact times; pairs of B and E come on top."""
    slices, counts, _ = wanted(path)
    full = rows(found, "track", "name", "start", "dur", "kind")
    read_ = Counter((t.group, t.name, n, s, d) for t, n, s, d, kind in full if kind == "slice")
    assert (slices - read_, read_.total()) == (Counter(), counts["slice"])


def test_every_phase_is_accounted_for(path, found):
    """What the accounts say was seen is what a plain loop counts."""
    seen = {kind: found.ledger.get(("read", kind), 0) for kind in wanted(path)[1]}
    assert seen == wanted(path)[1]


@pytest.mark.sample(2)
def test_arguments_are_those_of_the_file(path, found):
    """Arguments of complete slices come back as they were written."""
    told = Counter(
        json.dumps(found.args[i], sort_keys=True) for i in found.events.args.tolist() if i >= 0
    )
    assert wanted(path)[2] - told == Counter()


LARGE = sorted(SAMPLES, key=lambda path: path.stat().st_size)[-effort(1, 3) :]


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", LARGE, ids=label)
@pytest.mark.parametrize("tier", ["1", "0"])
def test_bytes_do_not_depend_on_threads(path, tier, tmp_path, monkeypatch):
    """Blocks far smaller than usual, so that there are many; outputs plain and compressed."""
    monkeypatch.setenv("TRACECONV_NATIVE", tier)
    monkeypatch.setattr(timeline, "CHUNK_BYTES", 4096)
    for name in ("out.pftrace", "out.json.gz"):
        written = set()
        for jobs in (1, 4, 2)[: effort(2, 3)]:
            traceconv.convert(str(path), str(tmp_path / name), jobs=jobs, force=True)
            written.add((tmp_path / name).read_bytes())
        assert len(written) == 1
