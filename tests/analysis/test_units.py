"""Every column of every table is in the unit it names: in Python, CSV, JSON and data frames.

One capture is generated in which every time is a whole number of ticks and every size a whole
number of packets. A tick is a prime number of ns above 1000, so nothing but ns divides by it, and a
capture with ticks twice as long says which columns are times, speeds and squares of times.
"""

import csv
import io
import json
import sys
from decimal import Decimal
from fractions import Fraction
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import traceconv
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.analysis.tables.catalog import TABLES, tables
from traceconv.core.model import Layer, OpClass, TrackKind
from traceconv.core.side_tables import ABSENT
from traceconv.passes import compose
from traceconv.report import table_text

TICK = 1_000_003
PACKET = 1_000_033
GROWTH = {"ns": 2, "GB/s": Fraction(1, 2), "TFLOP/s": Fraction(1, 2), "us^2": 4}
"""What twice as long ticks make of a column; others stay."""


def _host(build, t):
    """Two steps with phases, operators that launch kernels, modules and runtime calls."""
    host, calls = (
        build.track("host", "Thread 1", thread=1),
        build.track("runtime", "Thread 1", title="CUDA", thread=1),
    )
    stream = build.track("device", "Stream 1", "GPU 0", device=0, device_kind="GPU")
    lane = build.track("step", "iterations")
    for step, (start, length) in enumerate(((0, 100), (100, 200))):
        for op, at, ticks in (
            (OpClass.ITERATION, 0, length), (OpClass.FP_BP, 0, 90), (OpClass.TAIL, 90, 10),
            (OpClass.INTERVAL, -4, 4),
        ):  # fmt: skip
            build.slice(lane, (start + at) * t, ticks * t, f"{op.name} {step}", op=op, step=step)
        build.slice(host, start * t, 2 * t, "dataloader", op=OpClass.HOST)
        build.slice(host, (start + 2) * t, 80 * t, "Net.forward", op=OpClass.HOST)
        build.slice(host, (start + 4) * t, 60 * t, "nn.Module: Net_0", op=OpClass.HOST)
        build.slice(host, (start + 5) * t, 40 * t, "train.py(3): step", op=OpClass.HOST)
        build.slice(host, (start + 6) * t, 20 * t, "aten::mm", op=OpClass.HOST,
                    args={"Input Dims": [[PACKET, 1], [1, PACKET]],
                          "Input type": ["signed char", "signed char"]})  # fmt: skip
        build.slice(calls, (start + 50) * t, (1 + 2 * step) * t, "cudaFree")
        call = build.slice(calls, (start + 8) * t, 2 * t, "cudaLaunchKernel", op=OpClass.HOST)
        kernel = build.slice(stream, (start + 20) * t, (10 + 8 * step) * t, "gemm",
                             op=OpClass.COMPUTE)  # fmt: skip
        build.flow(call, kernel, "launch")
        call = build.slice(calls, (start + 11) * t, 2 * t, "cudaGraphLaunch", op=OpClass.HOST)
        node = {"operator": "aten::add", "module": "Net_0", "operator known by": "capture trace",
                "aiv_time(us)": 2 * t / 1e3, "aiv_vec_time(us)": t / 1e3,
                "Block Num": 8}  # fmt: skip
        kernel = build.slice(stream, (start + 40) * t, 2 * t, "add", op=OpClass.COMPUTE, args=node)
        build.flow(call, kernel, "launch")
        build.slice(stream, (start + 60) * t, 4 * t, "Memcpy HtoD", op=OpClass.COPY,
                    args={"bytes": 3 * PACKET})  # fmt: skip
        build.slice(stream, (start + 66) * t, t, "NEW_SQE", op=OpClass.UNCLASSIFIED)


def _communication(build, t):
    """Two operations of a group, each with waits and transfers on a plane."""
    comm = build.track("comm", "Communication", "Group 0")
    plane = build.track("comm", "Plane 0", "Group 0")
    build.slice(comm, 90 * t, 4 * t, "hcom_receive__1_0_1", op=OpClass.COMM)
    for start in (25, 125):
        sizes = {"In msg nelems": PACKET, "Out msg nelems": PACKET, "dtype": "Char",
                 "Group size": 2}  # fmt: skip
        sizes |= {"In split size": [3, 5], "Out split size": [2, 4]}
        build.slice(comm, start * t, 30 * t, f"hcom_allReduce__{start}_0_1", op=OpClass.COMM,
                    args=sizes)  # fmt: skip
        for at, length, name in ((1, 6, "Notify_Wait"), (10, 8, "Memcpy"), (20, 4, "Notify_Wait")):
            args = {"src rank": 0, "dst rank": 1, "link type": "HCCS", "size(Byte)": 5 * PACKET}
            build.slice(plane, (start + at) * t, length * t, name, op=OpClass.COMM_TASK, args=args)


def _memory(build, t):
    build.hints.device_memory_bytes[0] = 100 * PACKET
    track = build.track(
        Layer.COUNTER, "GPU 0 Reserved", "Memory", unit="B", kind=TrackKind.ALLOCATOR, device=0
    )
    for at, packets in ((10, 2), (20, 6), (30, 4), (110, 5), (120, 3)):
        build.counter(track, at * t, packets * PACKET)
    host = build.track("host", "Thread 1", thread=1)
    for at, packets, address in ((7, 3, 1), (9, 2, 2), (12, -3, 1)):
        args = {"Bytes": packets * PACKET, "Addr": address, "Device Type": 1, "Device Id": 0,
                "Total Allocated": 8 * PACKET, "Total Reserved": 9 * PACKET}  # fmt: skip
        build.instant(host, at * t, "[memory]", args=args)
    build.instant(host, 10 * t, "oom", args={"size": 7 * PACKET, "device free": PACKET})


def _counters(build, t):
    for name, unit in (("sclk", "MHz"), ("NIC Rx", "MB/s")):
        track = build.track(Layer.COUNTER, name, "Card", unit=unit)
        for at, value in ((0, 200), (50, 600), (150, 300)):
            build.counter(track, at * t, value)


def _own_tables(build, t):
    """What profilers measured themselves: in their own units in the file, as ns when read."""
    text = lambda *values: np.array(values, object)  # noqa: E731
    ms = t / 1e6
    parts = [f"{side} {part}(ms)" for side in ("CPU", "GPU")
             for part in ("Total", "Avg", "Max", "Min")]  # fmt: skip
    for name, columns in {
        "device_queue_profiling": {
            "type": np.array([1, 1, 0, 0, 0]), "subtype": np.array([64, 64, 0, 1, 2]),
            "value": np.array([0, 9, 3 * ms, 4 * ms, 7 * ms]),
        },
        "minddata_pipeline": {
            "op_id": np.array([1]), "op_type": text("Batch"), "parent_id": np.array([0]),
            "num_workers": np.array([4]), "output_queue_average_size": np.array([1.5]),
            "output_queue_length": np.array([8]), "output_queue_usage_rate": np.array([0.25]),
        },
        "paddle_timer": {
            "Block": np.array([0]), "Measure": text("ips"), "Unit": text("samples/s"),
            "Avg": np.array([2.0]), "Max": np.array([3.0]), "Min": np.array([1.0]),
            "Reader Ratio(%)": np.array([40.0]),
        },
        "minddata_cpu_utilization": {
            "scope": text("device"), "op_id": np.array([ABSENT]),
            **{f"{use}_utilization": np.array([n]) for n, use in enumerate(
                ("user", "sys", "io", "idle"), 10)},
        },
        "flops": {
            "full_kernel_name": text("MatMul"), "FLOPs": np.array([5.0]),
            "FLOPS": np.array([6.0]), "FLOPS utilization": np.array([7.0]),
        },
        "paddle_summary": {
            "Section": text("Model"), "Level": np.array([0]), "Name": text("Forward"),
            "Calls": np.array([3]), **{p: np.array([n * t]) for n, p in enumerate(parts, 1)},
            "CPU Ratio(%)": np.array([11.0]), "GPU Ratio(%)": np.array([12.0]),
            "Utilization(%)": np.array([13.0]),
        },
    }.items():  # fmt: skip
        build.side_table(name, f"{name}.csv", lambda columns=columns: columns)


def _cluster(build, t):
    """Three ranks with tables of a cluster tool and nothing else."""
    text = lambda *values: np.array(values, object)  # noqa: E731
    own = np.array([3, 4, 5]) * t
    build.side_table("cluster_step_trace_time", "cluster_step_trace_time.csv", lambda: {
        "Step": np.array([1] * 3), "Type": text(*["rank"] * 3), "Index": np.arange(3),
        "Computing(ns)": own, "Communication(Not Overlapped)(ns)": 10 * t - own,
        "Overlapped(ns)": 0 * own, "Communication(ns)": 10 * t - own, "Free(ns)": 0 * own + t,
    })  # fmt: skip
    build.side_table("cluster_communication_bandwidth", "cluster_communication.json", lambda: {
        "Rank": np.arange(3), "Step": np.array([1] * 3), "Operator": text(*["add"] * 3),
        "Group": text(*["0"] * 3), "Transport Type": text(*["HCCS"] * 3),
        "Transit Size(MB)": np.array([PACKET] * 3) / 1e6, "Transit Time(ns)": own,
    })  # fmt: skip


def _statistics(tick):
    """All tables of two ranks that did the same, and of a cluster without timelines."""
    parts, of_ascend = [], []
    for rank, vendor in ((0, ""), (1, ""), (0, "ascend"), (1, "ascend")):
        build = traceconv.TraceBuilder.of_rank(rank)
        build.hints.vendor = vendor
        for fill in (_host, _communication, _memory, _counters, _own_tables):
            fill(build, tick)
        trace = build.finish()
        for one in compose("detail", scope=True):
            trace = one(trace)
        if vendor:
            of_ascend.append(summarize(trace, SummaryRequest(tables=("step_trace_time",))))
        else:
            parts.append(summarize(trace, SummaryRequest(tables=tuple(TABLES))))
    build = traceconv.TraceBuilder.of_rank(0)
    _cluster(build, tick)
    cluster = summarize(build.finish(), SummaryRequest(tables=("cluster", "cluster_bandwidth")))
    results = [*tables(parts), *tables(of_ascend), *tables([cluster])]
    return {result.table.name: result for result in results}


@pytest.fixture(scope="module")
def capture():
    """The tables, and those of the capture whose ticks are twice as long."""
    return _statistics(TICK), _statistics(2 * TICK)


def _columns():
    return [pytest.param(t, c, id=f"{t.name}-{c.key}") for t in TABLES.values() for c in t.columns]


def _present(values):
    return [v for v in values.tolist() if v != ABSENT and v == v and v != ""]


_ZERO = (("launch_queue", "Full Time"), ("collective_wait", "Wait Time"))


@pytest.mark.parametrize(("table", "column"), _columns())
def test_a_column_in_python_holds_what_it_names(capture, table, column):
    """Ticks under ns, packets under B, and nothing else that depends on the length of a tick."""
    short, long = (run[table.name].data for run in capture)
    assert short.units[column.key] == column.unit
    values = _present(short[column.key])
    if column.unit in ("ns", "B"):
        whole = TICK if column.unit == "ns" else PACKET
        # a thousand launches fill a queue; ranks that are alike do not wait
        is_zero = (table.name, column.name) in _ZERO
        assert any(values) != is_zero
        if column.key != "Avg Time(ns)" or table.name not in ("idle", "idle_step"):  # of three
            assert {value % whole for value in values} == {0}
    growth = GROWTH.get(column.unit, 1)
    if column.kind != "text":
        assert _present(long[column.key]) == pytest.approx([float(v * growth) for v in values])


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_name_says_ns_or_no_unit_of_time(name):
    """No key can be taken for another unit than that of its values."""
    for column in TABLES[name].columns:
        assert column.key.endswith("(ns)") == (column.unit == "ns")
        assert not column.key.endswith(("(s)", "(ms)", "(us)"))


@pytest.mark.parametrize("name", sorted(TABLES))
def test_csv_holds_what_its_headings_name(capture, name):
    """Times in us under "(us)", all else as it is."""
    result = capture[0][name]
    heading, *rows = csv.reader(io.StringIO(table_text.csv_text(result)))
    for column, head, *cells in zip(result.table.columns, heading, *rows, strict=True):
        assert ("(us)" in head) == (column.unit == "ns")
        scale = 1000 if column.unit == "ns" else 1
        known = [cell for cell in cells if cell not in ("", "all", "mean", "max")]
        values = _present(result.data[column.key])
        if column.kind == "text":
            assert known == values
        else:
            assert [Decimal(cell) * scale for cell in known] == [Decimal(repr(v)) for v in values]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_json_holds_what_it_names(capture, name):
    """The unit beside the name is that of the values; plain numbers have none."""
    result = capture[0][name]
    (told,) = json.loads(table_text.json_text([result]))["tables"]
    for i, column in enumerate(result.table.columns):
        unit = "" if column.unit == "1" else column.unit
        assert told["columns"][i].items() >= {"name": column.name, "unit": unit}.items()
        found = [row[i] for row in told["rows"] if row[i] not in (None, "")]
        assert found == _present(result.data[column.key])


@pytest.mark.parametrize("name", sorted(TABLES))
def test_pandas_has_the_names_and_values_of_python(capture, name, monkeypatch):
    """With pandas, or where it is not installed with what is asked of it."""
    try:
        import pandas
    except ImportError:
        pandas = ModuleType("pandas")
        pandas.DataFrame = dict
        pandas.arrays = SimpleNamespace(
            IntegerArray=lambda values, mask: np.ma.array(values, mask=mask)
        )
        monkeypatch.setitem(sys.modules, "pandas", pandas)
    data = capture[0][name].data
    frame = data.to_pandas()
    assert list(frame) == [column.key for column in TABLES[name].columns]
    for key, values in data.columns.items():
        column = frame[key].dropna() if hasattr(frame[key], "dropna") else frame[key]
        found = [v for v in column.tolist() if v is not None and v == v and v != ""]
        assert found == _present(values)


def test_truth_of_single_figures(capture):
    """What the tables say is what was put into the capture."""
    found = {name: result.data for name, result in capture[0].items()}
    assert found["step"]["Duration(ns)"].tolist()[:2] == [100 * TICK, 200 * TICK]
    assert found["step_summary"]["Mean(ns)"].tolist() == [150 * TICK] * 3
    assert found["step_summary"]["Standard Deviation(ns)"].tolist() == [50 * TICK] * 3
    types = {
        name: found["type"]["Total Time(ns)"][found["type"]["OP Type"] == name].tolist()
        for name in ("aten::mm", "aten::add")
    }
    assert types == {"aten::mm": [28 * TICK, 28 * TICK, 56 * TICK],
                     "aten::add": [4 * TICK, 4 * TICK, 8 * TICK]}  # fmt: skip
    reduced = found["comm"]["Operation"] == "hcom_allReduce"
    transit = found["comm"]["Transit Time(ns)"][reduced]
    assert transit.tolist() == [16 * TICK, 16 * TICK, 32 * TICK]
    assert found["link"]["Bytes"].tolist() == [10 * PACKET, 10 * PACKET, 20 * PACKET]
    assert found["link"]["Bandwidth(GB/s)"][0] == pytest.approx(10 * PACKET / (16 * TICK))
    assert found["memory"]["Peak(B)"].tolist() == [6 * PACKET] * 3
    assert found["memory"]["Peak of Capacity(%)"].tolist() == pytest.approx([6.0] * 3)
    live = found["memory_live"]
    rows = zip(live["Operator"].tolist(), live["Bytes"].tolist(), strict=True)
    assert dict(rows) == {"aten::mm": 5 * PACKET, "(before the recording)": 3 * PACKET,
                          "(reserved, not allocated)": PACKET}  # fmt: skip
    assert found["memory_step"]["Growth(B)"].tolist() == [ABSENT, -PACKET] * 2
    assert found["frequency"]["Mean"].tolist()[:2] == [
        400.0,
        375.0,
    ]  # 200 and 600; 600 to 150, then 300
    assert found["expert"]["Received"].tolist() == found["expert"]["Routed"].tolist() == [12, 12]
    assert found["expert"]["Load(%)"].tolist() == [100.0, 100.0]
    line = found["stack"]["Line"] == "train.py(3): step"
    assert found["stack"]["Device Time(ns)"][line].tolist() == [32 * TICK] * 2 + [64 * TICK]
    module = found["range"]["Range"] == "Net_0"
    assert found["range"]["Busy Time(ns)"][module].tolist() == [32 * TICK] * 2 + [64 * TICK]
    assert found["data"]["Push Time(ns)"].tolist() == [4 * TICK] * 2
    assert found["paddle_summary"]["CPU Max(ns)"].tolist() == [3 * TICK] * 2
    free = found["api"]["API Name"] == "cudaFree"
    assert found["api"]["Variance"][free][0] == pytest.approx((TICK / 1000) ** 2)
    assert found["type"]["Ratio(%)"].tolist() == [87.5, 12.5] * 3


def test_a_heading_in_another_unit_is_answered_with_the_right_name(capture):
    """Who types what CSV says is told what to type."""
    with pytest.raises(KeyError, match=r"times are in ns: 'Total Time\(ns\)'"):
        capture[0]["type"].data["Total Time(us)"]
    with pytest.raises(KeyError, match="there are: Rank, OP Type"):
        capture[0]["type"].data["colour"]
