"""The GPU part of the benchmark: captures of the claimed shape, peers that do the same work."""

import gzip
import json
from collections import Counter

import pytest
from decoded import decode

import traceconv
from bench import generate_hub
from bench.generate_gpu import kineto


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
    seen = decode(tmp_path / "o.pftrace")
    assert len(seen.flows) == 500
    assert Counter(seen.slices.category)["comm"] == 12


@pytest.mark.parametrize(
    ("kind", "ending", "count"), [("xplane", "xplane.pb", 1504), ("rocpd", "db", 1500)]
)
def test_captures_of_the_hub_are_read_whole(tmp_path, kind, ending, count):
    """Every generated slice is written; nothing is lost."""
    made = tmp_path / f"made.{ending}"
    assert generate_hub.main([kind, str(made), "--events", "1500"]) == 0
    report = traceconv.convert(str(made), str(tmp_path / "ours.pftrace"))
    assert {issue.code for issue in report.issues} <= {"rank-assumed", "stamp-rounded"}
    assert len(decode(tmp_path / "ours.pftrace").slices) == count
