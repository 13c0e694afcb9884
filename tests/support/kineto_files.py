"""Small PyTorch traces: their events, the files they are in, and what is read from those."""

import gzip
import json
from dataclasses import replace

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import OpClass
from traceconv.io.sources import sources
from traceconv.readers.torch.kineto.reader import READER


def row(cat, name, pid, tid, ts, dur, **args):
    """A complete slice; underscores in argument names become blanks."""
    args = {key.replace("_", " "): value for key, value in args.items()}
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
    return {**event, "cat": cat} if cat else event


def arrow(ph, cat, number, pid, tid, ts):
    bound = {"bp": "e"} if ph == "f" else {}
    event = {"ph": ph, "cat": cat, "name": cat, "id": number, "pid": pid, "tid": tid, "ts": ts}
    return {**event, **bound}


OPERATOR = row("cpu_op", "aten::mm", 900, 900, 10, 50)
CALL = row("cuda_runtime", "cudaLaunchKernel", 900, 900, 20, 5, correlation=7)
KERNEL = row("kernel", "gemm", 0, 7, 40, 30, correlation=7)
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def write(path, events, before=None, after=None):
    """A trace file with keys before and behind its events, compressed if its name says so."""
    keys = {"schemaVersion": 1} if before is None else before
    text = json.dumps({**keys, "traceEvents": events, **(after or {})}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)
    return path


def found(path):
    [source] = sources([str(path)])
    return READER.find(source, source.names(), Issues())


def read(path):
    [capture] = found(path)
    build = TraceBuilder(capture if capture.rank is not None else replace(capture, rank=0))
    READER.read(capture, build)
    return build.finish()


def placed(trace, layer=None):
    """Rows as (layer, title, group, lane, name, class)."""
    tracks, events = trace.tracks, trace.events
    rows = zip(events.track.tolist(), events.name.tolist(), events.op.tolist(), strict=True)
    return [
        (t.layer, t.heading, t.group, t.name, trace.strings[name], OpClass(op))
        for t, name, op in ((tracks[t], name, op) for t, name, op in rows)
        if layer is None or t.layer is layer
    ]


def arrows(trace):
    """Arrows as (name, start of the tail, start of the head)."""
    start = trace.events.start_ns
    ends = zip(trace.flows.name, trace.flows.src, trace.flows.dst, strict=True)
    return sorted((trace.strings[n], int(start[a]), int(start[b])) for n, a, b in ends)
