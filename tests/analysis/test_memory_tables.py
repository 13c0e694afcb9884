"""Tables of memory: when an allocation fails, and by phase of a step."""

import json

import pytest
from paths import ROOT

import traceconv
from traceconv.analysis.tables import memory
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer
from traceconv.io.sources import FileSource

MIB = 1 << 20


def test_what_lives_when_an_allocation_fails():
    """The blocks of the recorded device, the requested size, and the free memory."""
    path = ROOT / "golden" / "memory_snapshot" / "training" / "input"
    table = traceconv.stats(str(path), by="memory_oom")["memory_oom"].columns
    assert table["Operator"].tolist() == ["load (load.py:7)", "forward (forward.py:7)"]
    assert table["Bytes"].tolist() == [8 * MIB, 4 * MIB]
    assert set(table["Requested(B)"].tolist()) == {64 * MIB}
    assert set(table["Device Free(B)"].tolist()) == {30 * MIB}
    assert table["Ratio(%)"].sum() == pytest.approx(100)


def test_what_lives_when_the_profiler_records_a_failure(tmp_path):
    """It has the device and the totals that the record states. Free memory is unknown."""

    def record(name, us, size, allocated, device, **more):
        kind = {"Device Type": 1, "Device Id": device} if device >= 0 else {"Device Type": 0}
        args = {"Bytes": size, "Total Allocated": allocated, "Total Reserved": 100, **kind, **more}
        return {"ph": "i", "name": name, "pid": 1, "tid": 1, "ts": us, "s": "t", "args": args}

    operator = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "dur": 5}
    events = [
        {**operator, "name": "aten::mm", "ts": 10}, {**operator, "name": "aten::add", "ts": 20},
        record("[memory]", 12, 40, 60, 0, Addr=4096), record("[memory]", 13, 7, 7, -1, Addr=1),
        record("[OutOfMemory]", 22, 900, 60, 0),
    ]  # fmt: skip
    document = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}
    (tmp_path / "rank0.pt.trace.json").write_text(json.dumps(document))
    table = traceconv.stats(str(tmp_path), by="memory_oom")["memory_oom"].columns
    names = ("Device", "Operator", "Bytes", "Requested(B)")
    assert list(zip(*(table[name].tolist() for name in names), strict=True)) == [
        ("GPU 0", "aten::mm", 40, 900), ("GPU 0", "(reserved, not allocated)", 40, 900),
        ("GPU 0", "(before the recording)", 20, 900),
    ]  # fmt: skip
    assert set(table["Device Free(B)"].tolist()) == {-(2**63)}


def test_what_lives_at_the_peak_by_path():
    """All frames, outermost first; sums are those by operator."""
    path = ROOT / "golden" / "memory_snapshot" / "training" / "input"
    stats = traceconv.stats(str(path), by="memory_path,memory_live")
    by_path, by_operator = (stats[name].columns for name in ("memory_path", "memory_live"))
    assert by_path["Path"].tolist() == [
        "train (train.py:8);load (load.py:7)",
        "train (train.py:8);forward (forward.py:7)",
        "train (train.py:8);forward (forward.py:7)",
    ]
    for name in ("Bytes", "Ratio(%)", "Largest(B)"):
        assert by_path[name].tolist() == by_operator[name].tolist()


def test_categories_of_a_memory_timeline_have_peaks():
    """Changes at one instant are one sample; what existed before counts from the first change."""
    path = ROOT / "golden" / "memory_timeline" / "raw" / "input"
    table = traceconv.stats(str(path), by="memory")["memory"].columns
    peaks = dict(zip(table["Measure"].tolist(), table["Peak(B)"].tolist(), strict=True))
    assert peaks["Total"] == 4096 + 8192 + 1024 + 256
    assert peaks["Parameter"] == 4096 and peaks["Optimizer State"] == 8192
    assert peaks["Activation"] == peaks["Gradient"] == 1024
    assert peaks["Temporary"] == 0


def test_memory_by_phase_is_over_its_ranges(tmp_path):
    """Two forward passes that begin at 10 and 30 bytes and grow by 20 and 30; a range without
    samples is left out."""
    build = TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0))
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    for start, name in ((100, "forward"), (200, "forward"), (300, "backward"), (400, "optimizer")):
        build.slice(host, start, 50, name)
    held = build.track(Layer.COUNTER, "Allocated", "GPU 0", unit="B")
    for time, size in ((50, 10), (120, 90), (140, 30), (210, 60), (320, 5)):
        build.counter(held, time, size)
    facts = memory.TABLES[-1].facts(build.finish())
    keys = ("Phase", "Count", "First(B)", "Peak(B)", "Growth(B)")
    rows = zip(*(facts[key].tolist() for key in keys), strict=True)
    assert sorted(rows) == [("Backward", 1, 60, 60, -55), ("Forward", 2, 20, 90, 25)]


def test_a_phase_within_a_phase_of_its_kind_counts_once(tmp_path):
    """Autograd marks each operator of the backward range; memory grows by 6 during the range."""
    build = TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0))
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    curve = build.track(Layer.COUNTER, "CPU Allocated", "Memory", unit="B")
    build.slice(host, 0, 100, "backward")
    for start in (10, 50):
        build.slice(host, start, 30, "autograd::engine::evaluate_function: AddmmBackward0")
    for time, size in ((-5, 4), (20, 9), (60, 12), (90, 10)):
        build.counter(curve, time, size)
    table = next(table for table in memory.TABLES if table.name == "memory_phase")
    facts = {name: column.tolist() for name, column in table.facts(build.finish()).items()}
    assert facts == {
        "Phase": ["Backward"], "Component": ["Memory"], "Measure": ["CPU Allocated"],
        "Count": [1], "First(B)": [4], "Peak(B)": [12], "Growth(B)": [6],
    }  # fmt: skip
