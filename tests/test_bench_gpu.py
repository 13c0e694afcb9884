"""The GPU part of the benchmark: captures of the claimed shape, peers that do the same work."""

import gzip
import json
from collections import Counter

import pytest

import traceconv
from bench import hub, naive_gpu
from bench.generate_gpu import kineto, nsight
from traceconv.validation import decode_perfetto, validate


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of about 2000 events."""
    path = tmp_path_factory.mktemp("report") / "r.sqlite"
    assert nsight(path, 2000) == 2000
    return path


def test_a_trace_of_pytorch_is_what_it_says(tmp_path):
    """Groups of four slices and an arrow, a step per 400 of them; the same bytes every time."""
    first, second = tmp_path / "a.pt.trace.json.gz", tmp_path / "b.pt.trace.json.gz"
    count = kineto(first, 6 * 500)
    kineto(second, 6 * 500)
    assert first.read_bytes() == second.read_bytes()
    events = json.loads(gzip.decompress(first.read_bytes()))["traceEvents"]
    kinds = Counter((e["ph"], e["cat"]) for e in events)
    assert count == len(events)
    assert kinds == {
        ("X", "cpu_op"): 1000, ("X", "cuda_runtime"): 500, ("X", "kernel"): 450,
        ("X", "gpu_memcpy"): 50, ("X", "user_annotation"): 2, ("s", "ac2g"): 500,
        ("f", "ac2g"): 500,
    }  # fmt: skip


def test_a_trace_of_pytorch_is_read_whole(tmp_path):
    """Steps, launches and collectives are found; nothing is lost."""
    path = tmp_path / "a.pt.trace.json.gz"
    kineto(path, 6 * 500)
    report = traceconv.merge(str(path), out=str(tmp_path / "o.pftrace"), mode="detail")
    assert {i.code for i in report.issues} == {
        "launch-mark", "metadata-unused", "steps-from-host",
    }  # fmt: skip
    seen = decode_perfetto(tmp_path / "o.pftrace")
    assert len(seen.flows) == 500
    assert Counter(seen.slices.category)["comm"] == 12


def columns(rows):
    return rows.name, rows.dur.tolist(), rows.track


def test_the_plain_script_writes_what_convert_writes(report, tmp_path):
    """Slices with equal names, times and numbers of arguments, and as many arrows."""
    ours, theirs = tmp_path / "ours.pftrace", tmp_path / "theirs.pftrace"
    traceconv.convert(str(report), str(ours))
    theirs.write_bytes(naive_gpu.nsight(str(report)))
    assert validate(theirs).ok
    found = [decode_perfetto(path) for path in (ours, theirs)]
    assert [len(seen.flows) for seen in found] == [500, 500]
    assert [len(seen.slices) for seen in found] == [2000, 2000]
    device = [
        Counter(
            (name.split(" ")[0], dur)
            for name, dur, track in zip(*columns(s.slices), strict=True)
            if "Stream" in track[-1]
        )
        for s in found
    ]  # fmt: skip
    assert device[0] == device[1]


def test_both_readers_of_columns_are_told_apart_by_what_is_installed(tmp_path):
    """Ours tells seconds and slices; the other one says how to get it."""
    path = tmp_path / "a.pt.trace.json.gz"
    kineto(path, 600)
    assert naive_gpu.columns(str(path))["rows"] == 401
    assert "pip install HolisticTraceAnalysis" in naive_gpu.HTA


@pytest.mark.parametrize(
    ("kind", "ending", "count"), [("xplane", "xplane.pb", 1504), ("rocpd", "db", 1500)]
)
def test_plain_scripts_of_the_hub_write_the_same_slices(tmp_path, kind, ending, count):
    """Names, lengths and arrows; nothing is lost on our side."""
    made, theirs = tmp_path / f"made.{ending}", tmp_path / "theirs.pftrace"
    assert hub.main(["generate", kind, str(made), "--events", "1500"]) == 0
    assert hub.main([kind, str(made), str(theirs)]) == 0
    report = traceconv.convert(str(made), str(tmp_path / "ours.pftrace"))
    assert {issue.code for issue in report.issues} <= {"rank-assumed", "stamp-rounded"}
    ours, plain = (decode_perfetto(path) for path in (tmp_path / "ours.pftrace", theirs))
    assert len(ours.slices) == len(plain.slices) == count
    assert sorted(ours.slices.dur.tolist()) == sorted(plain.slices.dur.tolist())
    assert sorted(ours.slices.name) == sorted(plain.slices.name)
    assert len(ours.flows) == len(plain.flows)
    assert validate(theirs).ok
