"""Files of MindSpore's own profiler: ranges of its framework, and its memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, Kind, OpClass
from traceconv.core.ordering import factored_rows
from traceconv.readers.ascend.raw.clock import timed
from traceconv.readers.ascend.raw.framework_rows import (
    FrameworkClock,
    Lanes,
    Names,
    Table,
    arguments,
    of_texts,
    put_memory,
    put_slices,
    read_table,
)
from traceconv.readers.ascend.raw.slice_files import layout
from traceconv.readers.shared.arguments import Value, lookup, quoted, shared, text

OP_RANGE = layout(
    54, thread=(0, "<u8"), flow=(8, "<u8"), step=(16, "<u8"), start=(24, "<u8"), end=(32, "<u8"),
    pid=(40, "<i4"), module=(44, "<u2"), event=(46, "<u2"), stage=(48, "<u2"), level=(50, "i1"),
    is_graph=(51, "u1"), is_stage=(52, "u1"), is_stack=(53, "u1"),
)  # fmt: skip
_NAME, _FULL_NAME, _MODULE, _EVENT, _CUSTOM = 13, 14, 15, 16, 17

_OLD = {
    "start": (0, "<i8"), "end": (8, "<i8"), "sequence": (16, "<i8"), "pid": (24, "<u8"),
    "thread": (32, "<u8"), "end_thread": (40, "<u8"), "forward": (48, "<u8"),
}  # fmt: skip
OLD_OP_RANGES = (layout(65, **_OLD, flow=(56, "<u8")), layout(57, **_OLD))
"""Of 2.3 and 2.2."""
_OLD_FIELDS = (3, 4, 5, 6, 7, 8)

MEMORY = layout(
    100, device=(0, "<i4"), time=(20, "<u8"), size=(36, "<u8"), used=(44, "<u8"),
    alloc=(60, "<u8"),
)  # fmt: skip
_OWNER = 13

NO_FLOW = -1
FLOW = "flow"
"""The name of a range that only marks where an arrow starts."""

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
    """``mindspore.op_range``: ranges and instants on threads, arrows between them."""
    table = read_table(data, (OP_RANGE,), (_NAME, _FULL_NAME, _MODULE, _EVENT, _CUSTOM), build)
    begun = table.column("start") != 0
    build.seen("slice", int((~begun).sum()))
    build.skip("bad-time", "ranges that never began", int((~begun).sum()), "slice")
    start, end = (clock.ticks_ns(table.column(name)) for name in ("start", "end"))
    instant = begun & (start == end) & (start >= 0)
    build.seen("instant", int(instant.sum()))
    whole = begun & ~instant
    at = np.flatnonzero(whole)
    kept = at[timed(build, start[at], end[at])]
    # rows of the trace: the slices, then the instants
    order = np.concatenate((kept, np.flatnonzero(instant)))
    names, columns = _names(table), {n: table.column(n) for n in OP_RANGE.names or ()}
    lanes = Lanes.of(build, "MindSpore", columns["pid"])
    step = columns["step"][order]
    first = build.extend(
        track=lanes.tracks(columns["pid"], columns["thread"])[order],
        kind=np.where(instant[order], Kind.INSTANT, Kind.SLICE).astype(np.int8),
        start_ns=start[order],
        dur_ns=(end - start)[order],
        name=names.take(order).ids(build),
        op=OpClass.HOST,
        step=_steps(names.take(order), step),
        args=_arguments(build, table, order),
    )
    _arrows(build, table, columns["flow"], order, first)


def _steps(names: Names, step: I64) -> I32:
    """The step a mark names, else the one in the record; -1 for none."""
    marked = names.steps()
    plausible = (step > 0) & (step < 1 << 31)
    return np.where(marked >= 0, marked, np.where(plausible, step, -1)).astype(np.int32)


def _names(table: Table) -> Names:
    """What ranges are called, by the rules of the profiler's own timeline."""
    texts = [table.text(kind) for kind in (_NAME, _FULL_NAME, _MODULE, _EVENT)]
    flags = ("module", "event", "stage", "is_graph", "is_stage", "is_stack")
    columns = (*(table.column(flag) for flag in flags), *(t.codes for t in texts))
    spelled = [[*t.values, ""] for t in texts]  # code -1 finds the last
    rows, codes = factored_rows(*columns)
    return Names(
        codes,
        [_spelled(row, [v[c] for v, c in zip(spelled, row[6:], strict=True)]) for row in rows],
    )


def _spelled(row: tuple[int, ...], texts: list[str]) -> str:
    module, event, stage, is_graph, is_stage, is_stack = row[:6]
    name, full_name, module_graph, event_graph = texts
    if is_stack or name == FLOW:
        return name
    if is_graph:
        return f"{module_graph}::{event_graph}::{name}"
    if is_stage:
        return _listed(STAGES, stage)
    what = str(event) if event >= len(EVENTS) else EVENTS[event]
    return f"{_listed(MODULES, module)}::{what}::{full_name or name}"


def _listed(names: tuple[str, ...], index: int) -> str:
    return names[index] if index < len(names) else names[0]


def _arguments(build: TraceBuilder, table: Table, order: I64) -> I32:
    fields = {"op_name": table.text(_FULL_NAME), "custom_info": table.text(_CUSTOM)}
    columns = {key: (t.codes[order], text(t.mapping())) for key, t in fields.items()}
    return shared(build, columns)


def _arrows(build: TraceBuilder, table: Table, flow: I64, order: I64, first: int) -> None:
    """From the mark of a flow to the one other range with its number."""
    names = of_texts(table.text(_NAME)).take(order)
    marks = np.array([value == FLOW for value in names.values], bool)[names.codes]
    number = flow[order]
    source = np.flatnonzero(marks & (number != NO_FLOW))
    target = np.flatnonzero(~marks & (number != NO_FLOW))
    at = lookup(number[source], number[target])
    # a number that several ranges carry is no arrow
    _, once, count = np.unique(number[target], return_index=True, return_counts=True)
    alone = np.zeros(len(target), bool)
    alone[once[count == 1]] = True
    drawn = (at >= 0) & alone
    build.seen("flow", len(source))
    ended = int(np.isin(number[source], number[target]).sum())
    build.skip("flow-without-end", "flow", len(source) - ended, "flow")
    build.skip("flow-unbound", "several ends", ended - int(drawn.sum()), "flow")
    if drawn.any():
        build.flows(
            src=first + source[at[drawn]], dst=first + target[drawn],
            name=build.string("async_mindspore"),
        )  # fmt: skip


def read_old_ranges(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``op_range_<rank>`` of 2.2 and 2.3: ranges on threads."""
    table = read_table(data, OLD_OP_RANGES, _OLD_FIELDS, build)
    start, end = (clock.old_ns(table.column(name)) for name in ("start", "end"))
    kept = timed(build, start, end)
    pid, thread = table.column("pid"), table.column("thread")
    lanes = Lanes.of(build, "MindSpore", pid)
    names = of_texts(table.text(3)).take(kept)
    keys = {"Input type": 4, "Input Dims": 5, "Call stack": 6, "Module Hierarchy": 7, "flops": 8}
    fields = {key: table.text(kind) for key, kind in keys.items()}
    members = {
        key: (t.codes[kept], _stack(t.mapping()) if key == "Call stack" else text(t.mapping()))
        for key, t in fields.items()
    }
    numbers = {
        "Sequence number": table.column("sequence"),
        "Fwd thread id": table.column("forward"),
    }
    put_slices(
        build,
        lanes.tracks(pid, thread)[kept],
        start[kept],
        end[kept],
        names,
        arguments(build, {key: column[kept] for key, column in numbers.items()}, members),
        names.steps(),
    )


def _stack(texts: dict[int, str]) -> Value:
    """A call stack, whose parts are set apart by bars."""

    def value(code: int) -> bytes:
        return quoted(texts[code].replace("|", ";\r\n")) if texts.get(code) else b""

    return value


def read_memory(build: TraceBuilder, data: Any, clock: FrameworkClock) -> None:
    """``mindspore.memory_usage``: what the pool had handed out, and had taken."""
    table = read_table(data, (MEMORY,), (_OWNER,), build)
    sums = {
        "Total Allocated": table.column("used"),
        "Total Reserved": table.column("alloc"),
    }
    time_ns = clock.ticks_ns(table.column("time"))
    put_memory(build, "MindSpore", table.column("device"), time_ns, sums)
