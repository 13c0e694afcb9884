"""Files of PyTorch's own profiler: operators, the work queue between threads, memory, garbage."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64
from traceconv.readers.ascend.raw.framework_rows import (
    FrameworkClock,
    Lanes,
    Names,
    Texts,
    arguments,
    of_texts,
    put_memory,
    put_slices,
    read_table,
    timed,
)
from traceconv.readers.ascend.raw.pairs import combined_key, paired
from traceconv.readers.ascend.raw.slices import layout
from traceconv.readers.shared.arguments import Value, lookup, quoted, text

_OP = {
    "start": (0, "<i8"), "end": (8, "<i8"), "sequence": (16, "<i8"), "pid": (24, "<u8"),
    "thread": (32, "<u8"), "end_thread": (40, "<u8"), "forward": (48, "<u8"),
}  # fmt: skip
OP_RANGES = (layout(58, **_OP), layout(57, **_OP))
"""Newer ones hold the scope, too."""
_OP_FIELDS = (2, 3, 4, 5, 6, 7, 8, 9, 10)

OP_MARK = layout(
    40, time=(0, "<i8"), category=(8, "<u8"), correlation=(16, "<u8"), thread=(24, "<u8"),
    pid=(32, "<u8"),
)  # fmt: skip
_END, _DEQUEUE = 1, 2
"""Bits of the category of a mark."""

_MEMORY = {
    "time": (8, "<i8"), "allocated": (24, "<i8"), "reserved": (32, "<i8"), "active": (40, "<i8"),
    "device_type": (56, "i1"), "device": (57, "i1"),
}  # fmt: skip
MEMORY = (layout(77, **_MEMORY), layout(76, **_MEMORY), layout(75, **_MEMORY))
_NPU = 20

GC_RECORD = layout(24, pid=(0, "<u8"), start=(8, "<u8"), end=(16, "<u8"))


def read_operators(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``torch.op_range``: operators on threads, arrows from forward to backward ones."""
    table = read_table(data, OP_RANGES, _OP_FIELDS, build)
    start, end = (clock.torch_ns(table.column(name)) for name in ("start", "end"))
    kept = timed(build, start, end)
    column = {n: table.column(n)[kept] for n in ("pid", "thread", "sequence", "forward")}
    names = of_texts(table.text(2)).take(kept)
    keys = {"Input Dims": 4, "Input type": 3, "Call stack": 8, "Module Hierarchy": 9, "flops": 10}
    fields = {key: table.text(kind) for key, kind in keys.items()}
    said = {
        key: (t.codes[kept], text(t.mapping()) if kind > 8 else _listed(t))
        for (key, t), kind in zip(fields.items(), keys.values(), strict=True)
    }
    numbers = {"Sequence number": column["sequence"], "Fwd thread id": column["forward"]}
    lanes = Lanes.of(build, "Python", column["pid"])
    rows = put_slices(
        build,
        lanes.tracks(column["pid"], column["thread"]),
        start[kept],
        end[kept],
        names,
        arguments(build, numbers, said),
        names.steps(),
    )
    _backward(build, column["sequence"], column["forward"], column["thread"], start[kept], rows)


def _listed(texts: Texts) -> Value:
    """A list, set apart as in the profiler's own JSON."""

    def value(code: int) -> bytes:
        return quoted(texts.values[code].replace(";", ";\r\n")) if code >= 0 else b""

    return value


def _backward(
    build: TraceBuilder, sequence: I64, forward: I64, thread: I64, start: I64, rows: I64
) -> None:
    """From the innermost forward operator of a sequence number to the first backward one, if
    that runs on another thread.
    """
    order = np.lexsort((start, sequence))
    order = order[sequence[order] >= 0]
    behind = forward[order] != 0
    before, after = order[~behind][::-1], order[behind]
    after = after[np.unique(sequence[after], return_index=True)[1]]
    at = lookup(sequence[before], sequence[after])
    before, after = before[at[at >= 0]], after[at >= 0]
    apart = thread[before] != thread[after]
    build.seen("flow", int(apart.sum()))
    if apart.any():
        build.flows(src=rows[before[apart]], dst=rows[after[apart]], name=build.string("fwdbwd"))


def read_marks(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``torch.op_mark``: work going into the queue, and coming out of it on another thread."""
    table = read_table(data, (OP_MARK,), (1,), build)
    time_ns = clock.torch_ns(table.column("time"))
    category = table.column("category")
    known = (category >= 0) & (category <= _DEQUEUE + _END)
    build.skip("kind-not-read", "marks of unknown categories", int((~known).sum()))
    order = np.argsort(time_ns, kind="stable")
    order = order[known[order]]
    what = of_texts(table.text(1)).take(order)
    column = {n: table.column(n)[order] for n in ("category", "correlation", "thread", "pid")}
    opens = column["category"] & _END == 0
    leaving = column["category"] & _DEQUEUE
    begin, end, matched = paired(combined_key(column["thread"], leaving, what.codes), opens)
    stray, open_ = ~matched & ~opens, np.flatnonzero(~matched & opens)
    build.seen("slice", int(stray.sum()))
    build.skip("end-without-begin", "marks", int(stray.sum()), "slice")
    build.skip("missing-duration", "marks without an end", len(open_))
    begin, end = np.concatenate((begin, open_)), np.concatenate((end, open_))
    start, stop = time_ns[order][begin], time_ns[order][end]
    kept = timed(build, start, stop)
    begin, end = begin[kept], end[kept]
    names = _of_queue(what, leaving > 0).take(begin)
    correlation = column["correlation"][end]
    lanes = Lanes.of(build, "Python", column["pid"])
    rows = put_slices(
        build,
        lanes.tracks(column["pid"], column["thread"])[begin],
        start[kept],
        stop[kept],
        names,
        arguments(build, {"correlation_id": correlation}, {"name": _of(what.take(begin))}),
    )
    _queue(build, correlation, leaving[begin] > 0, rows)


def _of(names: Names) -> tuple[I64, Value]:
    return names.codes, text(dict(enumerate(names.values)))


def _of_queue(what: Names, leaving: Any) -> Names:
    """What slices are called: "Enqueue", or "Dequeue@" and the operator."""
    n = len(what.values)
    values = ["Enqueue"] * n + [f"Dequeue@{value}" for value in what.values]
    return Names(what.codes + np.where(leaving, n, 0), values)


def _queue(build: TraceBuilder, correlation: I64, leaving: Any, rows: I64) -> None:
    """From what went into the queue to what came out of it."""
    into, out = np.flatnonzero(~leaving), np.flatnonzero(leaving)
    at = lookup(correlation[into], correlation[out])
    found = at >= 0
    build.seen("flow", len(out))
    build.skip("flow-unbound", "nothing went into the queue", int((~found).sum()), "flow")
    if found.any():
        build.flows(
            src=rows[into[at[found]]], dst=rows[out[found]],
            name=build.string("async_task_queue"),
        )  # fmt: skip


def read_memory(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``torch.memory_usage``: what the allocator of each device holds."""
    table = read_table(data, MEMORY, (), build)
    npu = table.column("device_type") == _NPU
    build.skip("kind-not-read", "memory of the host", int((~npu).sum()))
    time_ns = clock.torch_ns(table.column("time"))[npu]
    keys = ("allocated", "reserved", "active")
    sums = {f"Total {key.title()}": table.column(key)[npu] for key in keys}
    put_memory(build, "PTA", table.column("device")[npu], time_ns, sums)


def read_garbage(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``torch.gc_record``: when Python collected its garbage."""
    rest = len(data) % GC_RECORD.itemsize
    if rest:
        build.skip("truncated", f"byte {len(data) - rest}")
    rows = np.frombuffer(data, GC_RECORD, len(data) // GC_RECORD.itemsize)
    pid, *stamps = (rows[name].astype(np.int64) for name in ("pid", "start", "end"))
    start, end = (clock.torch_ns(stamp) for stamp in stamps)
    kept = timed(build, start, end)
    names = Names(np.zeros(int(kept.sum()), np.int64), ["GC"])
    lanes = Lanes.of(build, "Python GC", pid)
    put_slices(build, lanes.tracks(pid, pid)[kept], start[kept], end[kept], names)
