"""The benchmark's inputs and peers are what they claim to be."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import traceconv
from bench import figures, hashes, naive
from bench.generate import generate
from traceconv.core.clock import to_ns

Event = dict[str, Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of one rank, about 5000 events."""
    return generate(tmp_path_factory.mktemp("capture"), rank=0, events=5000)[0]


@pytest.fixture(scope="module")
def events(path: Path) -> list[Event]:
    """Its events."""
    found: list[Event] = json.loads(path.read_bytes())
    return found


def test_same_arguments_give_the_same_bytes(path: Path, tmp_path: Path) -> None:
    """Two runs of the generator differ in nothing."""
    assert generate(tmp_path, rank=0, events=5000)[0].read_bytes() == path.read_bytes()


def test_mix_of_phases(events: list[Event]) -> None:
    """57 % slices, 39 % flow ends, 4 % counters, metadata aside."""
    phases = Counter(e["ph"] for e in events if e["ph"] != "M")
    total = sum(phases.values())
    shares = {k: round(100 * v / total) for k, v in phases.items()}
    assert shares == {"X": 57, "s": 20, "f": 20, "C": 4}


def test_bytes_per_event(path: Path, events: list[Event]) -> None:
    """About 217 bytes each."""
    assert 210 < path.stat().st_size / len(events) < 224


def test_stamps_have_sixteen_digits_and_three_decimals(events: list[Event]) -> None:
    """Stamps are text of a fixed form."""
    assert {tuple(map(len, e["ts"].split("."))) for e in events if "ts" in e} == {(16, 3)}


def test_slices_nest_on_every_thread(events: list[Event]) -> None:
    """No two slices of a thread cross."""
    lanes = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            start = to_ns(e["ts"])
            lanes[e["pid"], e["tid"]].append((start, -start - to_ns(repr(e["dur"]))))
    assert [lane for lane, spans in lanes.items() if _crossing(spans)] == []


def _crossing(spans: list[tuple[int, int]]) -> bool:
    ends: list[int] = []
    for start, minus_end in sorted(spans):
        while ends and ends[-1] <= start:
            ends.pop()
        if ends and -minus_end > ends[-1]:
            return True
        ends.append(-minus_end)
    return False


def test_arrows_end_at_slices(events: list[Event]) -> None:
    """Every flow end stands at the start of a slice, and every begin has its end."""
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    ends = {e["ph"]: set() for e in events if e["ph"] in "sf"}
    for e in events:
        if e["ph"] in "sf":
            assert (e["pid"], e["tid"], e["ts"]) in slices
            ends[e["ph"]].add((e["cat"], e["id"]))
    assert ends["s"] == ends["f"]


def test_all_ranks_leave_a_collective_together(tmp_path: Path) -> None:
    """Ends of collectives differ between ranks by the skew of their clocks alone."""
    ends = []
    for rank in (0, 1):
        found = json.loads(generate(tmp_path, rank, events=2000)[0].read_bytes())
        ops = [e for e in found if e["name"].startswith("hcom_")]
        ends.append([to_ns(e["ts"]) + to_ns(repr(e["dur"])) for e in ops])
    assert {b - a for a, b in zip(*ends, strict=True)} == {37_411}


def test_overlap_lanes_cover_the_capture(tmp_path: Path) -> None:
    """Computing, bare communication and free time leave no gap and do not overlap."""
    path, _ = generate(tmp_path, rank=0, events=2000, overlap=True)
    found = [e for e in json.loads(path.read_bytes()) if e["ph"] == "X" and "args" not in e]
    spans = sorted(
        (to_ns(e["ts"]), to_ns(e["ts"]) + to_ns(repr(e["dur"])))
        for e in found
        if e["name"] != "Communication"
    )
    assert [a[1] for a in spans[:-1]] == [b[0] for b in spans[1:]]


def test_naive_converter_keeps_everything(path: Path, events: list[Event]) -> None:
    """It writes every slice, sample, argument and arrow."""
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    packets = proto.Trace.FromString(naive.build(events)).packet
    rows = [p.track_event for p in packets if p.HasField("track_event")]
    slices = [e for e in events if e["ph"] == "X"]
    assert Counter(r.type for r in rows) == {
        1: len(slices),
        2: len(slices),
        4: sum(e["ph"] == "C" for e in events),
    }
    assert sum(len(r.debug_annotations) for r in rows) == sum(len(e["args"]) for e in slices)
    assert sum(len(r.flow_ids) for r in rows) == sum(e["ph"] in "sf" for e in events)


def test_naive_columns_are_ours(events: list[Event], tmp_path: Path) -> None:
    """The script reads what the reader reads: rows with their arguments, arrows and samples."""
    pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    path = tmp_path / "naive.pftrace"
    path.write_bytes(naive.build(events))
    theirs = naive.columns(str(path))
    (ours,) = traceconv.open(str(path)).traces(None)
    rows = ours.events
    names = [ours.strings[i] for i in rows.name.tolist()]
    args = [json.dumps(ours.args[i]) if i >= 0 else "" for i in rows.args.tolist()]
    columns = (theirs.start, theirs.duration, theirs.name, theirs.args)
    assert sorted(zip(*columns, strict=True)) == sorted(
        zip(rows.start_ns.tolist(), rows.dur_ns.tolist(), names, args, strict=True)
    )
    assert len(ours.flows) == len(theirs.arrows)
    assert len(ours.counters) == len(theirs.samples)


def test_naive_stamps_are_exact() -> None:
    """No digit of an epoch stamp is lost."""
    assert naive.ns("1718180918997.123") == 1718180918997123


def test_hashes_are_those_of_the_outputs(tmp_path, capsys) -> None:
    """A line per source, view and format; equal in two runs, another for another input."""
    event = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":%d}'
    (tmp_path / "in").mkdir()
    found = []
    for dur in (1, 1, 2):
        (tmp_path / "in" / "a.json").write_text(f"[{event % dur}]")
        (tmp_path / "in" / "b.txt").write_text("no trace")
        hashes.main([str(tmp_path / "in")])
        found.append(capsys.readouterr().out.splitlines())
    assert found[0] == found[1]
    assert [a.split()[:3] for a in found[0]] == [b.split()[:3] for b in found[2]]
    traces, others = found[0][:6], found[0][6:]
    assert not set(traces) & set(found[2])
    assert [line.split()[3] for line in others] == ["UnknownFormatError"] * 6


def test_figures_of_two_trees_are_compared(tmp_path, capsys) -> None:
    """Here of a tree with itself; what differs is named by what changed."""
    (tmp_path / "log.csv").write_text("ts,dur,name,kind\n0,5,a,compute\n9,1,b,comm\n")
    (tmp_path / "none.txt").write_text("nothing")
    figures.main([str(tmp_path), "--before", sys.executable])
    assert "2 paths" in (told := capsys.readouterr().out)
    assert told.endswith("0 of them differ\n")
    (now,) = (one for one in figures.figures([tmp_path]) if not one["error"])
    then = {**now, "issues": ["gone"], "ranks": {"0": {**now["ranks"]["0"], "all free_ns": 1}}}
    assert list(figures.changes(then, now))[:2] == ["event_log: all free_ns", "issue gone gone"]
    assert list(figures.changes({"error": "RankError"}, now)) == ["RankError -> read"]
