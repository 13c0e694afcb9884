"""Tasks a device carried out, from the logs of its schedulers: HWTS, STARS and ``ts_track``.

Each log has beginnings and ends. A beginning whose end is missing is the last thing its stream
did before the run died, or its end was lost; either way it is kept. ``ts_track`` (40 bytes a
record) also has the step markers, and the wraps of task numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, NO_GRAPH
from traceconv.core.ordering import Parallel, combined_key
from traceconv.readers.ascend.raw.slice_files import Records, chosen, layout, lost_between
from traceconv.readers.ascend.raw.steps import Markers
from traceconv.readers.shared.ascend_tasks import RUNTIME_TYPES
from traceconv.readers.shared.pairing import latest, paired

MAGIC = 0x6BD3
NO_CONTEXT = -1

HWTS = layout(
    64, head=(0, "u1"), kind=(1, "u1"), magic=(2, "<u2"), task=(6, "<u2"), time=(8, "<u8"),
    stream=(16, "<u4"),
)  # fmt: skip
"""A record of HWTS."""
STARS = layout(
    64, head=(0, "<u2"), magic=(2, "<u2"), stream=(4, "<u2"), task=(6, "<u2"), time=(8, "<u8"),
    subtype=(16, "u1"), context=(18, "<u2"),
)  # fmt: skip
"""A record of STARS, chips 5 to 14."""
STARS_6 = layout(
    32, head=(0, "<u2"), magic=(2, "<u2"), task=(4, "<u4"), time=(8, "<u8"), subtype=(16, "u1"),
    context=(18, "<u2"),
)  # fmt: skip
"""The layout from chip 15 on: one long task number and no stream."""

TASK_KINDS = (
    "AI_CORE", "AI_CPU", "AIV", "PLACE_HOLDER", "EVENT_RECORD", "EVENT_WAIT", "NOTIFY_RECORD",
    "NOTIFY_WAIT", "WRITE_VALUE", "VQ6", "TOF", "SDMA", "VPC", "JPEGE", "JPEGD", "DSA", "ROCCE",
    "PCIE_DMA", "HOST_CPU", "CDQM", "C_CORE",
)  # fmt: skip
"""Kinds of tasks by their number in STARS."""
_TASK_KINDS_6 = (
    "AI_CORE", "AIV", "FUSION", "PLACE_HOLDER", "AICPU_H", "AICPU_D", "NOTIFY_RECORD",
    "NOTIFY_WAIT", "WRITE_VALUE", "UBDMA", "ASYNCDMA", "SDMA", "VPC", "JPEGE", "JPEGD", "CMO",
    "CCU", "TASK_TYPE_17", "TASK_TYPE_18", "TASK_TYPE_19", "CONDITION",
)  # fmt: skip
"""The layout from chip 15 on."""
_HWTS_SDMA, _UNKNOWN = 9, 64
_SUBTASK_KINDS = {
    0: "AIC", 1: "AIV", 3: "NOTIFY_WAIT", 4: "NOTIFY_RECORD", 5: "WRITE_VALUE", 6: "MIX_AIC",
    7: "MIX_AIV", 8: "SDMA", 9: "Data Context", 10: "Invalidate Data Context",
    11: "Writeback Data Context", 12: "AI_CPU", 13: "Load Context", 15: "DSA",
}  # fmt: skip
"""Kinds of subtasks: ``ascend_task_association.cpp`` of Ascend/msprof, 2026-07."""

_EVENT, _WAIT = 3, 4  # with stream expansion: kinds whose numbers stay as they are
_TASK, _SUBTASK = 0, 34
_SUBTASK_BASE = 100
TS_MEMCPY, TS_TYPED = 200, 201
_KINDS_6 = 1000
"""Where the numbers of :data:`_TASK_KINDS_6` begin."""


@dataclass(frozen=True)
class Tasks(Parallel):
    """Tasks in columns, int64; in the order of their beginnings in the log.

    Attributes:
        stream:  -1 where the log has none.
        start, end: ticks of the device; the end of one that never ended is -1.
        kind:    see :func:`kind_name`.
        context: subtask of a fused task, :data:`NO_CONTEXT` for a task.
    """

    stream: I64
    task: I64
    start: I64
    end: I64
    kind: I64
    context: I64


def joined(parts: list[Tasks]) -> Tasks:
    """The tasks of several logs."""
    if not parts:
        return Tasks(*(np.empty(0, np.int64) for _ in Tasks.__dataclass_fields__))
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Tasks(*(np.concatenate(column) for column in columns))


def kind_name(kind: int) -> str:
    """How a kind of task is called."""
    if kind == TS_MEMCPY:
        return "MEMCPY_ASYNC"
    if kind >= _KINDS_6:
        return dict(enumerate(_TASK_KINDS_6)).get(kind - _KINDS_6, f"TASK_TYPE_{kind - _KINDS_6}")
    if kind >= TS_TYPED:
        return RUNTIME_TYPES.get(kind - TS_TYPED) or f"TS_TASK_{kind - TS_TYPED}"
    if kind >= _SUBTASK_BASE:
        return _SUBTASK_KINDS.get(kind - _SUBTASK_BASE, f"SUBTASK_{kind - _SUBTASK_BASE}")
    return TASK_KINDS[kind] if kind < len(TASK_KINDS) else f"TASK_TYPE_{kind}"


def marked(rows: Records) -> NDArray[np.bool_]:
    """Which records carry the magic number."""
    is_marked: NDArray[np.bool_] = rows["magic"] == MAGIC
    return is_marked


# -- HWTS ---------------------------------------------------------------------------------


def hwts_tasks(rows: Records, build: TraceBuilder) -> Tasks:
    """Pairs of an HWTS log, and beginnings without an end."""
    _report_gaps(rows["head"] >> 4, build)
    kind = rows["head"] & 7
    build.skip("kind-not-read", "blocks and counters of a task", int((kind > 1).sum()))
    marks = rows[kind < 2] if int(kind.max(initial=0)) > 1 else rows
    stream, task, time = (_wide(marks[name]) for name in ("stream", "task", "time"))
    types = np.minimum(_wide(marks["kind"]), _HWTS_SDMA + 1)
    types[types > _HWTS_SDMA] = _UNKNOWN
    types[types == _HWTS_SDMA] = TASK_KINDS.index("SDMA")
    none = np.full(len(marks), NO_CONTEXT, np.int64)
    return _paired(Tasks(stream, task, time, time, types, none), marks["head"] & 7 == 0, build)


def _wide(column: NDArray[Any]) -> I64:
    return column.astype(np.int64)


def _report_gaps(sequence: NDArray[Any], build: TraceBuilder) -> None:
    lost = lost_between(sequence.astype(np.uint8))
    build.skip("source-dropped", "gaps in the numbers of records", lost)


def _paired(marks: Tasks, begins: NDArray[np.bool_], build: TraceBuilder) -> Tasks:
    """Markers as tasks: an end belongs to the latest open beginning of the same task."""
    key = combined_key(marks.stream, marks.task, marks.context)
    start, end, matched = paired(key, begins)
    stray = int((~matched & ~begins).sum())
    build.lose("end-without-begin", "tasks", stray)
    begin_rows = np.flatnonzero(begins)
    tasks = marks.take(begin_rows)
    # the end of each beginning, in the order of the log; -1 where it is missing
    ends = np.full(len(key), -1, np.int64)
    ends[start] = marks.start[end]
    return Tasks(tasks.stream, tasks.task, tasks.start, ends[begin_rows], tasks.kind, tasks.context)


# -- STARS --------------------------------------------------------------------------------


def stars_tasks(rows: Records, expanded: bool, build: TraceBuilder) -> Tasks:
    """Tasks and subtasks of a STARS log.

    Args:
        rows: laid out as :data:`STARS` or :data:`STARS_6`.
        expanded: whether numbers are encoded for more streams than eleven bits hold.
    """
    _report_gaps(rows["head"] >> 6 & 15, build)
    function = rows["head"] & 63
    read = np.isin(function, (_TASK, _TASK + 1, _SUBTASK, _SUBTASK + 1))
    build.skip("kind-not-read", "samples, blocks and counters of STARS", int((~read).sum()))
    marks, function = rows[read], function[read]
    kind = _wide(marks["head"] >> 10)
    stream, task = _numbers(marks, kind, expanded)
    inner = function >= _SUBTASK
    context = np.where(inner, _wide(marks["context"]), NO_CONTEXT)
    task_kind = kind if "stream" in (marks.dtype.names or ()) else kind + _KINDS_6
    kind = np.where(inner, _wide(marks["subtype"]) + _SUBTASK_BASE, task_kind)
    time = _wide(marks["time"])
    order = np.argsort(time, kind="stable")  # several schedulers write into one log
    all_marks = Tasks(stream, task, time, time, kind, context).take(order)
    return without_parents(_paired(all_marks, function[order] % 2 == 0, build), build)


def _numbers(marks: Records, kind: I64, expanded: bool) -> tuple[I64, I64]:
    """Stream and task of every record, decoded."""
    task = _wide(marks["task"])
    if "stream" not in (marks.dtype.names or ()):
        return np.full(len(marks), -1, np.int64), task
    stream = _wide(marks["stream"])
    if expanded:
        # the highest bit of the stream: both numbers are swapped
        swapped = (stream & 0x8000 != 0) & (kind != _EVENT) & (kind != _WAIT)
        swapped_task = (task & 0x8000) | (stream & 0x7FFF)
        return np.where(swapped, task & 0x7FFF, stream), np.where(swapped, swapped_task, task)
    # bits of the stream: it has the upper bits of the task, or both are swapped
    longer, moved = stream & 0x1000 != 0, stream & 0x3000 == 0x2000
    long_task = (task & 0x1FFF) | (stream & 0xE000)
    moved_task = (stream & 0x0FFF) | (task & 0xF000)
    plain = np.where(moved, task & 0x0FFF, stream)
    return plain % 2048, np.where(longer, long_task, np.where(moved, moved_task, task))


def without_parents(tasks: Tasks, build: TraceBuilder) -> Tasks:
    """Tasks with logged subtasks are left out, as in the profiler's own exports."""
    key = combined_key(tasks.stream, tasks.task)
    outer, inner = np.flatnonzero(tasks.context == NO_CONTEXT), tasks.context != NO_CONTEXT
    # a task runs many times: a subtask belongs to the run that began last before it
    parents = latest(key[outer], tasks.start[outer], key[inner], tasks.start[inner])
    is_shown = np.ones(len(tasks), bool)
    is_shown[outer[parents[parents >= 0]]] = False
    count = int((~is_shown).sum())
    build.lose("repeated-content", "tasks whose subtasks are shown", count)
    return tasks.take(is_shown)


# -- ts_track -----------------------------------------------------------------------------------

TRACK = layout(40, type=(1, "u1"), size=(2, "<u2"), time=(8, "<u8"))
"""The head every record has."""
SIZE = TRACK.itemsize

_MARK = layout(
    40, type=(1, "u1"), time=(8, "<u8"), index=(16, "<u8"), graph=(24, "<u8"), stream=(32, "<u2"),
    task=(34, "<u2"), tag=(36, "<u2"),
)  # fmt: skip
_MARK_6 = layout(
    40, type=(1, "u1"), time=(8, "<u8"), index=(16, "<u8"), graph=(24, "<u8"), tag=(32, "<u2"),
    stream=(34, "<u2"), task=(36, "<u4"),
)  # fmt: skip
_COPY = layout(
    40, time=(8, "<u8"), stream=(16, "<u2"), task=(18, "<u2"), state=(20, "u1")
)  # fmt: skip
_TYPED = layout(
    40, time=(8, "<u8"), stream=(16, "<u2"), task=(18, "<u2"), kind=(20, "<u2"), state=(22, "u1")
)  # fmt: skip
_FLIP = layout(
    40, time=(8, "<u8"), stream=(16, "<u2"), number=(18, "<u2"), task=(22, "<u2")
)  # fmt: skip

_STEP, _COPIED, _TASK_TYPE, _WRAPPED, _BLOCKS = 10, 11, 12, 14, 15
_RECEIVED, _STARTED = 0, 1
_STREAMS = 2047


@dataclass(frozen=True)
class Flips:
    """Where task numbers of a stream started anew: ticks, and how often they had by then."""

    stream: I64
    time: I64
    number: I64


def plausible(rows: Records) -> NDArray[np.bool_]:
    """Which records state their right size."""
    is_plausible: NDArray[np.bool_] = rows["size"] == SIZE
    return is_plausible


def markers(rows: Records, chip_6: bool) -> Markers:
    """The step markers, laid out as the chip's generation does."""
    marks = chosen(rows, rows["type"] == _STEP).view(_MARK_6 if chip_6 else _MARK)
    tag, time, stream, task, graph, index = (
        marks[name].astype(np.int64) for name in ("tag", "time", "stream", "task", "graph", "index")
    )
    real = (graph >= 0) & (graph < NO_GRAPH)
    return Markers(tag, time, stream & _STREAMS, task, np.where(real, graph, -1), index)


def tasks(rows: Records, build: TraceBuilder) -> Tasks:
    """Tasks the scheduler carried out or watched itself, those with both ends."""
    known_types = (_STEP, _COPIED, _TASK_TYPE, _WRAPPED, _BLOCKS)
    strange = int((~np.isin(rows["type"], known_types)).sum())
    build.skip("kind-not-read", "records of other types", strange)
    build.skip("metadata-unused", "numbers of blocks", int((rows["type"] == _BLOCKS).sum()))
    copies = chosen(rows, rows["type"] == _COPIED).view(_COPY)
    typed = chosen(rows, rows["type"] == _TASK_TYPE).view(_TYPED)
    columns = [
        np.concatenate((copies[name], typed[name])).astype(np.int64)
        for name in ("stream", "task", "time", "state")
    ]
    kind = np.concatenate((np.full(len(copies), TS_MEMCPY), TS_TYPED + typed["kind"].astype("i8")))
    order = np.argsort(columns[2], kind="stable")
    stream, task, time, state = (column[order] for column in columns)
    kind = kind[order]
    moving = state != _RECEIVED
    build.skip("metadata-unused", "tasks being received", int((~moving).sum()))
    stream, task, time, kind = stream[moving] & _STREAMS, task[moving], time[moving], kind[moving]
    start, end, matched = paired(combined_key(stream, task, kind), state[moving] == _STARTED)
    n_unmatched = int((~matched).sum())
    build.lose("end-without-begin", "states of tasks without their other end", n_unmatched)
    none = np.full(len(start), NO_CONTEXT, np.int64)
    return Tasks(stream[start], task[start], time[start], time[end], kind[start], none)


def flips(rows: Records) -> Flips:
    """The wraps of task numbers, in the order of time."""
    wrapped = chosen(rows, rows["type"] == _WRAPPED).view(_FLIP)
    wrapped = wrapped[np.argsort(wrapped["time"], kind="stable")]
    stream, time, number = (wrapped[name].astype(np.int64) for name in ("stream", "time", "number"))
    return Flips(stream & _STREAMS, time, number)
