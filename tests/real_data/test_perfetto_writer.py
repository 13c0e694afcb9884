"""The Perfetto writer on arguments and names of real captures."""

import gzip
import json

import pytest
from paths import DATA
from perfetto_decoded import decoded

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer
from traceconv.writers import Document
from traceconv.writers.perfetto import PerfettoWriter

FILES = [
    "ascend/msinsight/test/data/pytorch/text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "ascend/mindinsight/profiler/PROF_000001_20230818142704322_COJGGGCANRMICFBC/device_0/timeline/msprof_0_2_1.json",
    "gpu/kineto/tracelens_b200_eager_rank0of8.json.gz",
]


def events(name):
    """Some events with arguments, from all over the file."""
    raw = (DATA / name).read_bytes()
    parsed = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)
    found = parsed["traceEvents"] if isinstance(parsed, dict) else parsed
    found = [e for e in found if e.get("ph") == "X" and e.get("args")]
    return found[:: max(1, len(found) // 1500)]


def as_written(value):
    """A JSON value in the form the writer promises."""
    if isinstance(value, dict) and value:
        return {k: as_written(v) for k, v in value.items()}
    if isinstance(value, list) and value:
        return [as_written(v) for v in value]
    if value is None or value == {} or value == []:
        return json.dumps(value)
    return str(value) if isinstance(value, int) and abs(value) >= 2**63 else value


@pytest.mark.sample(2)
@pytest.mark.parametrize("tier", ["1", "0"], ids=["native", "python"])
@pytest.mark.parametrize("name", FILES, ids=lambda n: n.rsplit("/", 1)[1])
def test_names_and_arguments_survive(name, tier, monkeypatch):
    """Every name and every argument of real events comes back with its type."""
    monkeypatch.setenv("TRACECONV_NATIVE", tier)
    found = events(name)
    build = TraceBuilder(Capture("test", None, (), rank=0))
    track = build.track(Layer.DEVICE, "Stream 0")
    for i, event in enumerate(found):
        build.slice(track, i, 1, event["name"], args=event["args"])
    writer = PerfettoWriter()
    head = writer.begin(Document(0, (0,)))
    out = decoded(head + b"".join(writer.trace(build.finish())))
    assert [(e["name"], as_written(e["args"])) for e in found] == [
        (m.name, m.args) for m in out.marks
    ]
    assert len(writer.issues) == 0
