"""Files of PyTorch's own profiler: operators, queue marks, memory, garbage, calls of Python.

``torch.op_range``, ``torch.op_mark``, ``torch.memory_usage`` and ``torch.gc_record`` are complete
by themselves; ``torch.python_tracer_func`` holds calls and returns, whose names are in
``torch.python_tracer_hash``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64
from traceconv.core.ordering import combined_key
from traceconv.readers.ascend.db.host import backward_pairs
from traceconv.readers.ascend.raw.clock import timed
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
)
from traceconv.readers.ascend.raw.slice_files import layout
from traceconv.readers.shared.arguments import Value, lookup, quoted, text
from traceconv.readers.shared.pairing import Marks, nested_by_name, paired

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
_CLOSES, _DEQUEUE = 1, 2
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
    members = {
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
        arguments(build, numbers, members),
        names.steps(),
    )
    source, target = backward_pairs(
        column["sequence"], column["forward"] != 0, column["thread"], start[kept]
    )
    build.seen("flow", len(source))
    if len(source):
        build.flows(src=rows[source], dst=rows[target], name=build.string("fwdbwd"))


def _listed(texts: Texts) -> Value:
    """A list, set apart as in the profiler's own JSON."""

    def value(code: int) -> bytes:
        return quoted(texts.values[code].replace(";", ";\r\n")) if code >= 0 else b""

    return value


def read_marks(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``torch.op_mark``: work going into the queue, and coming out of it on another thread."""
    table = read_table(data, (OP_MARK,), (1,), build)
    time_ns = clock.torch_ns(table.column("time"))
    category = table.column("category")
    known = (category >= 0) & (category <= _DEQUEUE + _CLOSES)
    build.skip("kind-not-read", "marks of unknown categories", int((~known).sum()))
    order = np.argsort(time_ns, kind="stable")
    order = order[known[order]]
    what = of_texts(table.text(1)).take(order)
    column = {n: table.column(n)[order] for n in ("category", "correlation", "thread", "pid")}
    opens = column["category"] & _CLOSES == 0
    leaving = column["category"] & _DEQUEUE
    begin, end, matched = paired(combined_key(column["thread"], leaving, what.codes), opens)
    stray, open_ = ~matched & ~opens, np.flatnonzero(~matched & opens)
    build.seen("slice", int(stray.sum()))
    build.skip("end-without-begin", "marks", int(stray.sum()), "slice")
    build.skip("missing-duration", "marks without an end", len(open_))
    # a mark without an end is a slice from itself to itself
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
    build.skip("flow-without-end", "nothing went into the queue", int((~found).sum()), "flow")
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


# -- Python's calls -------------------------------------------------------------------------------

TRACER_FUNC = layout(
    33, time=(0, "<u8"), thread=(8, "<u8"), pid=(16, "<u8"), key=(24, "<u8"), tag=(32, "u1")
)
TRACER_HASH = layout(8, key=(0, "<u8"))
_LAST_TAG = 3  # call, return, call of C, return of C

_MODULE = "######"
"""Sets the name of a module apart from the number of the instance."""


def read_names(build: TraceBuilder, data: Any) -> dict[int, str]:
    """``torch.python_tracer_hash``: names of functions by their number."""
    table = read_table(data, (TRACER_HASH,), (1,), build)
    functions = table.text(1)
    keys = table.column("key").tolist()
    return {
        key: functions.values[c]
        for key, c in zip(keys, functions.codes.tolist(), strict=True)
        if c >= 0
    }


def read_calls(
    build: TraceBuilder, data: Any, names: Mapping[int, str], clock: FrameworkClock
) -> None:
    """``torch.python_tracer_func``: calls on threads. A return ends the newest open call; those
    that were never ended last until the last stamp of their thread.
    """
    rest = len(data) % TRACER_FUNC.itemsize
    if rest:
        build.skip("truncated", f"byte {len(data) - rest}")
    rows = np.frombuffer(data, TRACER_FUNC, len(data) // TRACER_FUNC.itemsize)
    rows = rows[_known(build, rows["tag"])]
    column = {n: rows[n].astype(np.int64) for n in ("thread", "pid", "key", "tag")}
    time_ns = clock.torch_ns(rows["time"].astype(np.int64))
    threads, code = np.unique(column["thread"], return_inverse=True)
    lane: I32 = code.astype(np.int32)
    none = np.full(len(rows), -1, np.int32)
    if not len(rows):
        return
    # names are not in the marks, so calls nest by their order alone
    begin, end = nested_by_name(Marks(lane, time_ns, none, none, column["tag"] & 1 == 0))
    stray = begin < 0
    build.seen("slice", int(stray.sum()))
    build.skip("end-without-begin", "returns", int(stray.sum()), "slice")
    begin, end = begin[~stray], end[~stray]
    build.skip("unfinished-slice", "calls", int((end < 0).sum()))
    last = np.zeros(len(threads), np.int64)
    np.maximum.at(last, lane, time_ns)
    start = time_ns[begin]
    stop = np.where(end >= 0, time_ns[end], last[lane[begin]])
    kept = timed(build, start, stop)
    begin = begin[kept]
    lanes = Lanes.of(build, "Python", column["pid"])
    put_slices(
        build,
        lanes.tracks(column["pid"], column["thread"])[begin],
        start[kept],
        stop[kept],
        _named(build, column["key"][begin], names),
    )


def _known(build: TraceBuilder, tag: Any) -> Any:
    known = tag <= _LAST_TAG
    build.skip("kind-not-read", "records of unknown tags", int((~known).sum()))
    return known


def _named(build: TraceBuilder, keys: I64, names: Mapping[int, str]) -> Names:
    """Names of functions; instances of a module are numbered in the order of the rows."""
    values, codes = np.unique(keys, return_inverse=True)
    lacking = np.array([value not in names for value in values.tolist()], bool)
    build.skip("name-unknown", "torch.python_tracer_hash", int(lacking[codes].sum()))
    spelled = [names.get(value, str(value % (1 << 64))) for value in values.tolist()]
    count: dict[str, int] = {}
    # codes in the order of their first row: unique sorts them, its indices restore the order
    for code in codes[np.sort(np.unique(codes, return_index=True)[1])].tolist():
        module, apart, _ = spelled[code].partition(_MODULE)
        if apart:
            count[module] = count.get(module, -1) + 1
            spelled[code] = f"nn.Module: {module}_{count[module]}"
    return Names(codes, spelled)
