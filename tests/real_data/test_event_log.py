"""Raw event logs of real runs; skipped where the sample data is not at hand."""

import numpy as np
from paths import GPU

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Layer, OpClass

CALLS = GPU / "raw" / "cloverleaf_gpu_trace.csv"
REPORT = GPU / "nsys" / "perlmutter-cloverleaf-cuda.sqlite"


def device_work(path):
    """Starts, ends and classes of kernels and copies, by time; the table has no Unix time."""
    (trace,) = traceconv.open(str(path)).traces(align="none")
    work = trace.rows_of(Layer.DEVICE, Layer.COMM)
    work &= np.isin(trace.events.op, (OpClass.COMPUTE, OpClass.COMM, OpClass.COPY))
    events = trace.events.take(work)
    order = np.lexsort((events.end_ns, events.start_ns))
    return tuple(column[order].tolist() for column in (events.start_ns, events.end_ns, events.op))


def test_enter_leave_table_is_the_report_it_was_made_of():
    """All 1591 kernels and copies have the same starts, ends and classes in both forms."""
    calls, report = device_work(CALLS), device_work(REPORT)
    assert len(calls[0]) == 1591
    assert calls == report


def test_enter_leave_table_is_whole():
    """3182 rows are 1591 pairs, 1312 kernels and 279 copies on one stream; nothing is lost."""
    (trace,) = traceconv.open(str(CALLS)).traces()
    kinds = np.bincount(trace.events.op, minlength=5)
    assert (int(kinds[OpClass.COMPUTE]), int(kinds[OpClass.COPY])) == (1312, 279)
    assert [track.name for track in trace.tracks] == ["Stream 7"]
    assert (trace.ledger, list(trace.issues)) == ({("read", "slice"): 1591}, [])


def test_bytes_of_copies():
    """Payloads of the table are the sums that were counted in the report."""
    (trace,) = traceconv.open(str(CALLS)).traces()
    sums = {}
    for name, args in zip(trace.events.name, trace.events.args, strict=True):
        size = trace.args[int(args)].get("bytes", 0)
        sums[trace.strings[name]] = sums.get(trace.strings[name], 0) + size
    assert sums["CUDA_MEMCPY_KIND_HTOD"] == 225065752
    assert sums["CUDA_MEMCPY_KIND_DTOH"] == 51200


def test_same_table_by_a_mapping_of_ones_own():
    """A mapping a user would write gives the same rows as the preset."""
    from traceconv.io.sources import sources
    from traceconv.readers.event_log import reader as event_log

    mapping = (
        "name=Name,ts=Timestamp (ns):ns,ph=Event Type,stream=streamId,"
        "ignore=_depth,ignore=_parent,ignore=_children"
    )
    source = sources([str(CALLS)])[0]
    reader = event_log.with_mapping(mapping)
    (capture,) = reader.find(source, source.names(), Issues())
    build = TraceBuilder(capture)
    reader.read(capture, build)
    trace = build.finish()
    assert sorted(trace.events.start_ns.tolist()) == device_work(CALLS)[0]
