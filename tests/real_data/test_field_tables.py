"""Tables of ROCm and Nsight after their writers: what ``data/field/README.md`` says is right."""

from collections import Counter

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
