"""The fuzzers themselves, what they found, and how much of damaged files is recovered."""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
from contextlib import closing
from random import Random

import pytest
from effort import THOROUGH, effort

from fuzz import differential, matrix, mutate, run
from fuzz.pipeline import Outcome, examined, invented
from fuzz.seeds import golden
from fuzz.structure import structured
from traceconv import convert
from traceconv import validation as checks
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.find.capture_ranks import resolve
from traceconv.io.sources import FileSource

FLOORS = {
    "cut": 0.7,
    "zeros": 0.95,
    "hole": 0.9,
    "missing_separator": 0.95,
    "bit_flip": 0.7,
    "control_characters": 0.97,
    "lone_backslash": 0.97,
    "bare_nan": 0.95,
}
"""Least share of recoverable events that is recovered, over all readers; 1 where none is named."""

TRACE_EVENTS = ("chrome_json", "kineto", "mindspore", "msprof", "trace_view")


OTHERS = ("ascend_raw", "event_log", "nsight", "xplane")
"""Readers of the usual run beside those of trace events; the thorough one has all."""


@pytest.fixture(scope="module")
def table():
    """The table of damage, every kind in two places."""
    readers = matrix.FILES if THOROUGH else (*TRACE_EVENTS, *OTHERS)
    return matrix.table({name: matrix.FILES[name] for name in readers}, times=2)


def test_no_kind_of_damage_costs_more_than_it_did(table):
    """Over all readers, of the events outside of the damage."""
    below = {
        kind: f"{cell.recovered} of {cell.recoverable}"
        for kind, cell in matrix.by_kind(table).items()
        if cell.share < FLOORS.get(kind, 1)
    }
    assert below == {}


@pytest.mark.parametrize("reader", TRACE_EVENTS)
def test_trace_event_files_lose_nothing_but_the_damage(table, reader):
    """Every event whose record is whole is recovered, whatever happened beside it."""
    assert {kind: cell.share for kind, cell in table[reader].items() if cell.share < 1} == {}


@pytest.mark.parametrize("kind", sorted(mutate.KINDS))
def test_mutations_are_repeatable(kind):
    """One seed, one result; also for no bytes at all."""
    mutation = mutate.KINDS[kind]
    data, other = bytes(range(200)), b"other"
    assert mutation(Random(7), data, other) == mutation(Random(7), data, other)
    assert isinstance(mutation(Random(7), b"", b""), bytes)


def _database():
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE t (start INTEGER, name TEXT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", [(i, f"op {i}") for i in range(20)])
        database.commit()
        return database.serialize()


def _archive():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("rank0.csv"), io.BytesIO())
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (_database(), {"sqlite-rename", "sqlite-view", "sqlite-value", "sqlite-wal"}),
        (b"\x0a\x04\x08\x01\x10\x02\x18\x07", {"protobuf"}),
        (b"start,name\n1,a\n2,b\n", {"csv-columns", "csv-delimiter", "csv-lines", "csv-mark"}),
        (_archive(), {"tar"}),
    ],
    ids=["sqlite", "protobuf", "csv", "tar"],
)
def test_structures_say_something_else_and_stay_structures(data, kinds):
    """In several ways, the same for the same seed."""
    changed = [structured(Random(seed), data, b"") for seed in range(60)]
    assert kinds <= {kind for kind, _ in filter(None, changed)}
    assert len({content for _, content in filter(None, changed)}) >= 4
    assert changed[:5] == [structured(Random(seed), data, b"") for seed in range(5)]


def test_mutants_of_a_reader_hold(capfd):
    """The runner itself, a few inputs long."""
    assert run.main(["--count", "30", "--reader", "mllog"]) == 0
    row = capfd.readouterr().out.splitlines()[1].split()
    assert (row[:2], row[4]) == (["mllog", "30"], "0")


def test_invented_events_are_found():
    """What a file does not hold is told from what it does, and from what issues announce."""
    whole, part = Outcome(clocks={"f": "unix"}), Outcome(clocks={"f": "unix"})
    whole.rows.update([("f", "a", 0, 100, 10), ("f", "b", 0, 200, 10)])
    part.rows.update([("f", "a", 0, 100, 10), ("f", "b", 0, 9_000, 10)])
    assert invented(whole, part) == [("f", "b", 0, 9_000, 10)]
    part.issues = Issues()
    part.issues.add("unfinished-slice")
    assert invented(whole, part) == []


# -- what was found --------------------------------------------------------------------------------


def test_arguments_beyond_a_double_are_text(tmp_path):
    """1e999 is Infinity to a viewer; found by mutation."""
    event = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":{"x":1e999,"y":2e5}}'
    (tmp_path / "in.json").write_text(f"[{event}]")
    report = convert(str(tmp_path / "in.json"), str(tmp_path / "out.json"))
    (slice_,) = [
        e for e in json.loads((tmp_path / "out.json").read_text())["traceEvents"] if e["ph"] == "X"
    ]
    assert slice_["args"] == {"x": "1e999", "y": 2e5}
    assert report.issues.count("value-clipped") == 1


def test_fractions_of_the_next_event_are_not_this_ones(tmp_path):
    """A whole stamp far away was flagged for the fraction of its neighbour; found by mutation."""
    far = 2**53 * 1000
    text = f'[{{"ph":"X","name":"a","pid":1,"tid":1,"ts":{far // 1000}.000,"dur":1}},'
    text += '{"ph":"X","name":"b","pid":1,"tid":2,"ts":1.5,"dur":1}]'
    (tmp_path / "far.json").write_text(text)
    assert [f.rule for f in checks.validate(str(tmp_path / "far.json")).findings] == []


def test_negative_lengths_of_operations_are_booked(tmp_path):
    """An operation placed by its length ended before it began; found by mutation."""
    head = {"id": "0x1", "rank": 0, "n_ranks": 1, "nnodes": 1}
    meta = {"dump_timestamp_us": 1_700_000_000_000_000, "hostname": "n", "pid": 1}
    meta |= {"inspector_output_format_version": "v4.0"}
    perf = {"coll": "AllReduce", "coll_sn": 1, "coll_exec_time_us": -5}
    line = {"header": head, "metadata": meta, "coll_perf": perf}
    (tmp_path / "log.jsonl").write_text(json.dumps(line) + "\n")
    outcome = examined(tmp_path / "log.jsonl", tmp_path)
    assert (outcome.rows.total(), outcome.issues.count("negative-duration")) == (0, 1)


def test_clock_files_that_were_cut_are_doubted(tmp_path):
    """A number cut short is a time like any other; that its line has no end is said."""
    seed = next(s for s in golden(tmp_path / "golden", "ascend_raw") if s.name.endswith("chip_6"))
    (log,) = [file for file in seed.files if file.name == "dev_start.log.1"]
    log.write_bytes(log.read_bytes()[:-5])
    assert examined(seed.path, tmp_path).issues.count("unended-line") == 1


def test_counters_of_unknown_speed_are_doubted(tmp_path):
    """A broken info.json made all times of a host ten times too short, in silence."""
    name = "framework_mindspore"
    seed = next(s for s in golden(tmp_path / "golden", "ascend_raw") if s.name.endswith(name))
    (info,) = [file for file in seed.files if file.name == "info.json"]
    info.write_bytes(info.read_bytes()[:20])
    assert examined(seed.path, tmp_path).issues.count("clock-assumed") >= 1


def test_ranks_below_zero_are_none(tmp_path):
    """A damaged table made device -1 rank -1, which no writer can number."""
    capture = Capture("made", FileSource(tmp_path / "a", "a"), ("a",), rank=-1)
    issues = Issues()
    (found,) = resolve([capture], "meta", issues)
    assert (found.rank, found.rank_from) == (0, "assumed")
    assert [issue.code for issue in issues] == ["rank-conflict", "rank-assumed"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("reader", ["chrome_json", "kineto", "msprof", "trace_view"])
def test_all_ways_of_reading_agree(tmp_path, reader):
    """Both tiers, blocks of any size, packed and plain, copied and through the model."""
    rng = Random(f"differential {reader}")
    seeds = list(golden(tmp_path / "golden", reader))
    for _ in range(effort(4, 100)):
        seed = rng.choice(seeds)
        file = rng.choice(seed.files)
        original = file.read_bytes()
        file.write_bytes(mutate.mutated(rng, original, rng.choice(seeds[0].files).read_bytes())[1])
        usual = differential.content(seed.path)
        for name, way in differential.WAYS.items():
            with way(seed, rng) as applies:
                assert not applies or differential.content(seed.path) == usual, name
        differential.copy_and_model(seed.path, tmp_path)
        file.write_bytes(original)
