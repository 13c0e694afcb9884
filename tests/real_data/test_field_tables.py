"""Tables of ROCm and Nsight after their writers: what ``data/field/README.md`` says is right."""

import sqlite3
from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from paths import DATA

import traceconv
from traceconv.core.model import Layer, OpClass

FIELD = DATA / "field"


def lone(path):
    """The only rank of a capture, in detail."""
    [trace] = traceconv.open(str(path)).traces("detail")
    return trace


def device_rows(trace):
    """(name, class, start, duration) of all device work."""
    events = trace.events.take(trace.rows_of(Layer.DEVICE, Layer.COMM))
    columns = (events.name, events.op, events.start_ns, events.dur_ns)
    return sorted(
        (trace.strings[n], OpClass(op), start, dur)
        for n, op, start, dur in zip(*(c.tolist() for c in columns), strict=True)
    )


def test_a_table_of_rocprof():
    """``BeginNs`` is the start, in ns, and the collective communicates."""
    assert device_rows(lone(FIELD / "hub/logs/rocprof_v1.csv")) == [
        ("Cijk_Ailk_Bljk_SB_MT64x64", OpClass.COMPUTE, 2000, 500),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", OpClass.COMM, 2400, 600),
    ]


def test_a_table_of_rocprofv2():
    """Start and end are ns; the process is in a column."""
    trace = lone(FIELD / "hub/logs/rocprof_v2.csv")
    assert trace.capture.pid == 4101
    assert device_rows(trace) == [
        ("gemm(float*, int)", OpClass.COMPUTE, 2000, 500),
        ("relu(float*)", OpClass.COMPUTE, 2600, 100),
    ]


@pytest.mark.parametrize("name", ["base", "spm", "spm2"])
def test_samples_within_kernels_are_no_part_of_their_sum(name):
    """The counter of the first kernel is that of the whole dispatch, with samples and without."""
    trace = lone(FIELD / f"hub/rocpd_spm/{name}_results.db")
    texts = [trace.args[i] for i in trace.events.args[trace.events.args >= 0].tolist()]
    assert max(text.get("SQ_WAVES", 0) for text in texts) == 32768


def test_samples_within_kernels_are_counters_at_their_times():
    """Two instances, eight samples each, and no slices without a name."""
    trace = lone(FIELD / "hub/rocpd_spm/spm_results.db")
    sampled = Counter(trace.tracks[i].name for i in trace.counters.track.tolist())
    assert [n for name, n in sampled.items() if name.startswith("SQ_WAVES xcc")] == [8, 8]
    start = trace.counters.start_ns
    assert len(np.unique(start[start >= 1234567000600000])) >= 8
    assert "(no name)" not in {trace.strings[i] for i in trace.events.name.tolist()}


def test_tables_of_later_writers_are_counted_by_name():
    """Graph launches, samples of program counters, operations of events."""
    trace = lone(FIELD / "hub/rocpd_spm/spm_results.db")
    counted = {
        p: one.count for one in trace.issues if one.code == "kind-not-read" for p in one.places
    }
    assert {
        "table rocpd_graph_launch", "table rocpd_gpu_pc_sample", "table rocpd_event_operation"
    } <= counted.keys()  # fmt: skip
    assert trace.issues.count("kind-not-read") == 1 + 5 + 1


def rows_with_a_time(path):
    """Rows of every table of a database that have a start or a stamp."""
    found = {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            columns = {row[1] for row in database.execute(f'PRAGMA table_info("{name}")')}
            if columns & {"start", "timestamp"}:
                [(found[name],)] = database.execute(f'SELECT COUNT(*) FROM "{name}"')
    return found


def test_every_row_of_a_report_is_read_or_counted():
    """298 rows of 25 tables that were once passed over in silence, besides calls and kernels."""
    path = FIELD / "gpu/nsight_tables_not_read/rank0.sqlite"
    trace, rows = lone(path), rows_with_a_time(path)
    own = trace.rows_of(Layer.HOST, Layer.RUNTIME, Layer.DEVICE, Layer.COMM)
    read = int(own.sum()) + len(trace.counters)
    assert read + trace.issues.count("kind-not-read") == sum(rows.values())
    titles = {track.title for track in trace.tracks}
    assert titles >= {
        "UCX", "OpenACC", "OpenMP", "Vulkan", "CUDA Graphs", "CUDA JIT", "Network Metrics"
    }  # fmt: skip


def test_graphs_in_one_row_are_of_no_class():
    """The device is busy for 15 ms, and nobody knows whether it computes or communicates."""
    trace = lone(FIELD / "gpu/nsight_graph_level/report.sqlite")
    graphs = [row for row in device_rows(trace) if row[0].startswith("CUDA Graph")]
    assert {op for _, op, _, _ in graphs} == {OpClass.UNCLASSIFIED}
    assert trace.issues.count("unclassified-tasks") == len(graphs) == 3
    busy = trace.events.op == OpClass.UNCLASSIFIED_ALONE
    assert int(trace.events.dur_ns[busy].sum()) == 15_000_000


def test_a_report_whose_names_are_computed():
    """16 KB that took 92 s and 1.2 GB: forty kernels without a name, of no known class."""
    trace = lone(FIELD / "hard/sqlite_generated_columns/rep.sqlite")
    assert {(name, op) for name, op, *_ in device_rows(trace)} == {
        ("(no name)", OpClass.UNCLASSIFIED)
    }
    assert trace.issues.count("missing-name") == len(device_rows(trace)) == 40


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("tracy.csv", "name=name,ts=ns_since_start:ns,dur=exec_time_ns:ns,thread=thread"),
        ("be.csv", "name=event,ts=start_s:s,end=end_s:s,thread=thread"),
        ("log_iso.jsonl", "name=event,ts=timestamp,dur=duration_ms:ms,rank=rank"),
    ],
)
def test_the_mapping_that_is_proposed(name, wanted):
    """The units and lengths are those that the columns' names say."""
    path = FIELD / "hub/logs" / name
    with pytest.raises(traceconv.TraceconvError) as refused:
        traceconv.open(str(path))
    assert f'mapping="{wanted}"' in str(refused.value)
    [trace] = traceconv.open(str(path), mapping=wanted).traces("detail")
    assert (trace.events.dur_ns > 0).any()
