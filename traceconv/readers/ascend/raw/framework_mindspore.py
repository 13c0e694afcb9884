"""Files of MindSpore's own profiler: ranges of its framework, and its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, Kind
from traceconv.readers.ascend.raw.framework_rows import (
    RANGES,
    FrameworkClock,
    add_memory,
    place,
    read_table,
)
from traceconv.readers.ascend.raw.slice_files import layout
from traceconv.readers.shared.arguments import lookup
from traceconv.readers.shared.ascend_lanes import marked_steps
from traceconv.readers.shared.layouts import TableRows, add_rows

OP_RANGE = layout(
    54, thread=(0, "<u8"), flow=(8, "<u8"), step=(16, "<u8"), start=(24, "<u8"), end=(32, "<u8"),
    pid=(40, "<i4"), module=(44, "<u2"), event=(46, "<u2"), stage=(48, "<u2"), level=(50, "i1"),
    is_graph=(51, "u1"), is_stage=(52, "u1"), is_stack=(53, "u1"),
)  # fmt: skip
_FIELDS = {13: "short name", 14: "op_name", 15: "graph module", 16: "graph event",
           17: "custom_info"}  # fmt: skip

_OLD = {
    "start": (0, "<i8"), "end": (8, "<i8"), "Sequence number": (16, "<i8"), "pid": (24, "<u8"),
    "thread": (32, "<u8"), "Fwd thread id": (48, "<u8"),
}  # fmt: skip
OLD_OP_RANGES = (layout(65, **_OLD, flow=(56, "<u8")), layout(57, **_OLD))
"""Layouts of MindSpore 2.3 and 2.2."""
_OLD_FIELDS = {3: "name", 4: "Input type", 5: "Input Dims", 6: "Call stack",
               7: "Module Hierarchy", 8: "flops"}  # fmt: skip

MEMORY = layout(
    100, device=(0, "<i4"), start=(20, "<u8"), size=(36, "<u8"), used=(44, "<u8"),
    alloc=(60, "<u8"),
)  # fmt: skip
_MEMORY_FIELDS = {13: "owner"}

SLICES = structs.replace(RANGES, title="MindSpore", args=("op_name", "custom_info"))
INSTANTS = structs.replace(SLICES, kind=Kind.INSTANT)
OLD_RANGES = structs.replace(
    RANGES, title="MindSpore",
    args=("Sequence number", "Fwd thread id", "Input type", "Input Dims", "Call stack",
          "Module Hierarchy", "flops"),
)  # fmt: skip

_NO_FLOW = -1
FLOW = "flow"
"""The name of a range that is only the start of a flow."""

MODULES = (
    "Default", "GraphExecutorPy", "RuntimeFramework", "PynativeFramework", "Kernel", "Python",
    "Capture", "Other",
)  # fmt: skip
STAGES = (
    "Default", "Python", "Capture", "RunGraph", "RunGrad", "RunOp", "Asnumpy", "CompileGradGraph",
    "WaitPipeline", "SyncStream",
)  # fmt: skip
EVENTS = (
    "Default", "KernelInfer", "KernelResize", "KernelInferAndResize", "KernelLaunch",
    "KernelLaunckCallback", "KernelUpdate", "KernelPrepareData", "GraphLaunch", "InputProcess",
    "OutputProcess", "WaitTaskFinish", "PreLaunch", "PostLaunch", "SendOutput", "MemoryAlloc",
    "MemoryFree", "CopyData", "StreamSync", "ProcessMultiStream", "WaitKernelsInferFinish",
    "WaitKernelsResizeFinish", "WaitKernelsLaunchFinish", "KernelInferInner",
    "KernelInferDataSync", "KernelResizeInner", "KernelLaunchInner", "BackendGraphRunInner",
    "RunOp", "PyNativeFrontendTask", "PyNativeBackendTask", "PyNativeDeviceTask",
)  # fmt: skip
"""Spelled as MindSpore spells them. Later versions know more, and number them in other ways."""


def read_ranges(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``mindspore.op_range``: ranges and instants on threads, and flows."""
    rows = read_table(data, (OP_RANGE,), _FIELDS, build)
    begun = rows["start"] != 0
    build.lose("bad-time", "ranges that never began", int((~begun).sum()))
    rows = rows.take(begun)
    for field in ("start", "end"):
        rows.columns[field] = clock.ticks_ns(rows[field])
    fields = ("module", "event", "stage", "is_graph", "is_stage", "is_stack", *_FIELDS.values())
    rows.label("name", fields[:-1], _name)
    marked, step = marked_steps(rows), rows["step"]
    step = np.where(marked >= 0, marked, np.where((step > 0) & (step < 1 << 31), step, -1))
    instant = (rows["start"] == rows["end"]) & (rows["start"] >= 0)
    place(rows)
    event = np.empty(len(rows), np.int64)
    for ranges, chosen in ((SLICES, ~instant), (INSTANTS, instant)):
        chosen_steps = step[chosen].astype(np.int32)
        event[chosen] = add_rows(build, ranges, rows.take(chosen), step=chosen_steps)
    _add_flows(build, rows.take(event >= 0), event[event >= 0])


def _name(
    module: int, event: int, stage: int, is_graph: int, is_stage: int, is_stack: int,
    name: str, full_name: str, graph_module: str, graph_event: str,
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """The name of a range, by the rules of the profiler's own timeline."""

    def listed(names: tuple[str, ...], index: int) -> str:
        return names[index] if index < len(names) else names[0]

    if is_stack or name == FLOW:
        return name, {}
    if is_graph:
        return f"{graph_module}::{graph_event}::{name}", {}
    if is_stage:
        return listed(STAGES, stage), {}
    event_name = EVENTS[event] if event < len(EVENTS) else str(event)
    return f"{listed(MODULES, module)}::{event_name}::{full_name or name}", {}


def _add_flows(build: TraceBuilder, rows: TableRows, event: I64) -> None:
    """Add flows from each start of a flow to the only other range with its number."""
    marks = np.array([name == FLOW for name in rows.texts("short name")], bool)
    number = rows["flow"]
    source = np.flatnonzero(marks & (number != _NO_FLOW))
    target = np.flatnonzero(~marks & (number != _NO_FLOW))
    source_rows = lookup(number[source], number[target])
    # a number of several ranges is ambiguous
    _, once, count = np.unique(number[target], return_index=True, return_counts=True)
    alone = np.zeros(len(target), bool)
    alone[once[count == 1]] = True
    drawn = (source_rows >= 0) & alone
    ended = int(np.isin(number[source], number[target]).sum())
    build.lose("flow-without-end", "flow", len(source) - ended, "flow")
    build.lose("flow-unbound", "several ends", ended - int(drawn.sum()), "flow")
    build.arrows("async_mindspore", event[source[source_rows[drawn]]], event[target[drawn]])


def read_old_ranges(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``op_range_<rank>`` of 2.2 and 2.3: ranges on threads."""
    rows = read_table(data, OLD_OP_RANGES, _OLD_FIELDS, build)
    for field in ("start", "end"):
        rows.columns[field] = clock.old_ns(rows[field])
    stacks = rows.names["Call stack"].items()
    rows.names["Call stack"] = {code: text.replace("|", ";\r\n") for code, text in stacks}
    place(rows)
    add_rows(build, OLD_RANGES, rows, step=marked_steps(rows))


def read_memory(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``mindspore.memory_usage``: memory that the pool handed out, and holds."""
    rows = read_table(data, (MEMORY,), _MEMORY_FIELDS, build)
    rows.columns["start"] = clock.ticks_ns(rows["start"])
    add_memory(build, "MindSpore", rows, {"Total Allocated": "used", "Total Reserved": "alloc"})
