"""Files of PyTorch's own profiler: operators, queue markers, memory, garbage, calls of Python.

``torch.op_range``, ``torch.op_mark``, ``torch.memory_usage`` and ``torch.gc_record`` are complete
by themselves; ``torch.python_tracer_func`` holds calls and returns, whose names are in
``torch.python_tracer_hash``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import structs

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32
from traceconv.core.ordering import combined_key
from traceconv.readers.ascend.db.host import backward_pairs
from traceconv.readers.ascend.raw.framework_rows import (
    RANGES,
    FrameworkClock,
    add_memory,
    place,
    read_table,
)
from traceconv.readers.ascend.raw.slice_files import layout
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.ascend_lanes import marked_steps
from traceconv.readers.shared.layouts import Shown, TableRows, add_rows
from traceconv.readers.shared.pairing import Marks, nested_by_name, paired

_OP = {
    "start": (0, "<i8"), "end": (8, "<i8"), "Sequence number": (16, "<i8"), "pid": (24, "<u8"),
    "thread": (32, "<u8"), "Fwd thread id": (48, "<u8"),
}  # fmt: skip
OP_RANGES = (layout(58, **_OP), layout(57, **_OP))
"""Newer ones hold the scope, too."""
_OP_FIELDS = {
    2: "name", 3: "Input type", 4: "Input Dims", 5: "inputs", 6: "tensor lists", 7: "scalars",
    8: "Call stack", 9: "Module Hierarchy", 10: "flops",
}  # fmt: skip

OP_MARK = layout(
    40, time=(0, "<i8"), category=(8, "<u8"), correlation_id=(16, "<u8"), thread=(24, "<u8"),
    pid=(32, "<u8"),
)  # fmt: skip
_CLOSES, _DEQUEUE = 1, 2
"""Bits of the category of a marker."""

_MEMORY = {
    "start": (8, "<i8"), "allocated": (24, "<i8"), "reserved": (32, "<i8"), "active": (40, "<i8"),
    "device_type": (56, "i1"), "device": (57, "i1"),
}  # fmt: skip
MEMORY = (layout(77, **_MEMORY), layout(76, **_MEMORY), layout(75, **_MEMORY))
_NPU = 20

GC_RECORD = layout(24, pid=(0, "<u8"), start=(8, "<u8"), end=(16, "<u8"))

OPERATORS = structs.replace(
    RANGES, title="Python",
    args=("Sequence number", "Fwd thread id", "Input Dims", "Input type", "Call stack",
          "Module Hierarchy", "flops"),
)  # fmt: skip
QUEUE = structs.replace(
    RANGES, title="Python", name=Shown("shown"), args=("correlation_id", "name")
)
GARBAGE = structs.replace(RANGES, title="Python GC", name=Shown(absent="GC"))
CALLS = structs.replace(RANGES, title="Python")


def read_operators(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``torch.op_range``: operators on threads, flows from forward to backward ones."""
    rows = read_table(data, OP_RANGES, _OP_FIELDS, build)
    for field in ("start", "end"):
        rows.columns[field] = clock.torch_ns(rows[field])
    for field in ("Input Dims", "Input type", "Call stack"):  # separated as in the JSON export
        texts = rows.names[field].items()
        rows.names[field] = {code: text.replace(";", ";\r\n") for code, text in texts}
    place(rows)
    event = add_rows(build, OPERATORS, rows, step=marked_steps(rows))
    rows, event = rows.take(event >= 0), event[event >= 0]
    source, target = backward_pairs(
        rows["Sequence number"], rows["Fwd thread id"] != 0, rows["thread"], rows["start"]
    )
    build.arrows("fwdbwd", event[source], event[target])


def read_marks(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``torch.op_mark``: work that enters the queue, and leaves it on another thread."""
    rows = read_table(data, (OP_MARK,), {1: "name"}, build)
    rows.columns["start"] = clock.torch_ns(rows["time"])
    is_known = (rows["category"] >= 0) & (rows["category"] <= _DEQUEUE + _CLOSES)
    build.skip("kind-not-read", "markers of unknown categories", int((~is_known).sum()))
    order = np.argsort(rows["start"], kind="stable")
    rows = rows.take(order[is_known[order]])
    place(rows)
    rows.columns["leaves"] = rows["category"] & _DEQUEUE
    opens = rows["category"] & _CLOSES == 0
    key = combined_key(rows["thread"], rows["leaves"], rows["name"])
    begin, end, matched = paired(key, opens)
    stray, open_ = ~matched & ~opens, np.flatnonzero(~matched & opens)
    build.lose("end-without-begin", "marks", int(stray.sum()))
    build.skip("missing-duration", "markers without an end", len(open_))
    # a marker without an end is a slice from itself to itself
    begin, end = np.concatenate((begin, open_)), np.concatenate((end, open_))
    ranges = rows.take(begin)
    ranges.columns["end"] = rows["start"][end]
    ranges.columns["correlation_id"] = rows["correlation_id"][end]

    def name(leaves: int, operator: str) -> tuple[str, dict[str, Any]]:
        return f"Dequeue@{operator}" if leaves else "Enqueue", {}

    ranges.label("shown", ("leaves", "name"), name)
    event = add_rows(build, QUEUE, ranges)
    ranges, event = ranges.take(event >= 0), event[event >= 0]
    correlation, leaving = ranges["correlation_id"], ranges["leaves"] > 0
    into, out = np.flatnonzero(~leaving), np.flatnonzero(leaving)
    entry = lookup(correlation[into], correlation[out])
    build.lose("flow-without-end", "nothing entered the queue", int((entry < 0).sum()), "flow")
    build.arrows("async_task_queue", picked(event[into], entry), event[out])


def read_memory(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``torch.memory_usage``: memory that the allocator of each device holds."""
    rows = read_table(data, MEMORY, {}, build)
    npu = rows["device_type"] == _NPU
    build.skip("kind-not-read", "memory of the host", int((~npu).sum()))
    rows = rows.take(npu)
    rows.columns["start"] = clock.torch_ns(rows["start"])
    add_memory(build, "PTA", rows, {
        "Total Allocated": "allocated", "Total Reserved": "reserved", "Total Active": "active",
    })  # fmt: skip


def _plain(build: TraceBuilder, data: Any, record: np.dtype[np.void]) -> TableRows:
    """Records without tagged fields."""
    remainder = len(data) % record.itemsize
    if remainder:
        build.skip("truncated", f"byte {len(data) - remainder}")
    rows = np.frombuffer(data, record, len(data) // record.itemsize)
    columns = {name: rows[name].astype(np.int64) for name in record.names or ()}
    return TableRows(columns, "", len(rows))


def read_garbage(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``torch.gc_record``: when Python collected its garbage."""
    rows = _plain(build, data, GC_RECORD)
    for field in ("start", "end"):
        rows.columns[field] = clock.torch_ns(rows[field])
    rows.columns["thread"] = rows["pid"]
    place(rows)
    add_rows(build, GARBAGE, rows)


# -- Python's calls -------------------------------------------------------------------------------

TRACER_FUNC = layout(
    33, time=(0, "<u8"), thread=(8, "<u8"), pid=(16, "<u8"), key=(24, "<u8"), tag=(32, "u1")
)
TRACER_HASH = layout(8, key=(0, "<u8"))
_LAST_TAG = 3  # call, return, call of C, return of C

_MODULE = "######"
"""Separates the name of a module and the number of the instance."""


def read_names(build: TraceBuilder, data: Any) -> dict[int, str]:
    """``torch.python_tracer_hash``: names of functions by their number."""
    rows = read_table(data, (TRACER_HASH,), {1: "name"}, build)
    pairs = zip(rows["key"].tolist(), rows.texts("name"), strict=True)
    return {key: name for key, name in pairs if name}


def read_calls(
    build: TraceBuilder, data: Any, names: Mapping[int, str], clock: FrameworkClock
) -> None:
    """``torch.python_tracer_func``: calls on threads. A return ends the newest open call; calls
    that never end last until the last stamp of their thread.
    """
    rows = _plain(build, data, TRACER_FUNC)
    is_known = (rows["tag"] >= 0) & (rows["tag"] <= _LAST_TAG)
    build.skip("kind-not-read", "records of unknown tags", int((~is_known).sum()))
    rows = rows.take(is_known)
    if not len(rows):
        return
    time = rows.columns["start"] = clock.torch_ns(rows["time"])
    threads, code = np.unique(rows["thread"], return_inverse=True)
    lane: I32 = code.astype(np.int32)
    none = np.full(len(rows), -1, np.int32)
    # the records have no names, so calls nest by their order alone
    begin, end = nested_by_name(Marks(lane, time, none, none, rows["tag"] & 1 == 0))
    stray = begin < 0
    build.lose("end-without-begin", "returns", int(stray.sum()))
    begin, end = begin[~stray], end[~stray]
    build.skip("unfinished-slice", "calls", int((end < 0).sum()))
    last_stamps = np.zeros(len(threads), np.int64)
    np.maximum.at(last_stamps, lane, time)
    place(rows)
    calls = rows.take(begin)
    calls.columns["end"] = np.where(end >= 0, time[end], last_stamps[lane[begin]])
    _name(build, calls, names)
    add_rows(build, CALLS, calls)


def _name(build: TraceBuilder, rows: TableRows, names: Mapping[int, str]) -> None:
    """Add names of functions; instances of a module are numbered in the order of the rows."""
    values, codes = np.unique(rows["key"], return_inverse=True)
    missing = np.array([value not in names for value in values.tolist()], bool)
    build.skip("name-unknown", "torch.python_tracer_hash", int(missing[codes].sum()))
    texts = [names.get(value, str(value % (1 << 64))) for value in values.tolist()]
    count: dict[str, int] = {}
    # codes in the order of their first row: unique sorts them, its indices restore the order
    for code in codes[np.sort(np.unique(codes, return_index=True)[1])].tolist():
        module, separator, _ = texts[code].partition(_MODULE)
        if separator:
            count[module] = count.get(module, -1) + 1
            texts[code] = f"nn.Module: {module}_{count[module]}"
    rows.columns["name"], rows.names["name"] = codes.astype(np.int64), dict(enumerate(texts))
