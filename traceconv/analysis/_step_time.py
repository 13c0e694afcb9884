"""The columns of ``step_trace_time.csv``, recomputed from a rank's steps and overlap lanes.

Two styles are in circulation. Both count a slice where it begins, whole:

* "torch" (Ascend PyTorch): in a step lies what begins in its device time, ``start <= t < end``;
* "mindspore" (MindSpore 2.4+): what begins in the step's own time, ``start <= t <= end``; Free
  alone is clipped to it, and the stage is that of the communication rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.model import EventTable, Layer, OpClass, Trace

STYLES = ("torch", "mindspore")

_COUNTED = (OpClass.COMPUTING, OpClass.COMMUNICATION, OpClass.NOT_OVERLAPPED, OpClass.FREE)
_TORCH_RECEIVES = re.compile(r"hcom_receive")
_MINDSPORE_TRANSFERS = re.compile(
    r"hcom_\w+SendRecv__\d+|hcom_send__\d+|hcom_receive__\d+|Receive-op|Send-op"
)


@dataclass(frozen=True)
class StepTime:
    """One row; every time in ns.

    Attributes:
        graph: -1 if the step belongs to none.
        step:  None where the source marks no steps and the row covers everything.
        overlapped_ns: communication hidden behind computing.
        stage_ns:  from the first to the last activity, without the bubble.
        bubble_ns: waiting for another pipeline stage.
        exclude_receive_ns: communication not overlapped, without the bubble.
        preparing_ns: from the start of the step to its first computing or communication.
    """

    graph: int
    step: int | None
    computing_ns: int
    not_overlapped_ns: int
    overlapped_ns: int
    communication_ns: int
    free_ns: int
    stage_ns: int
    bubble_ns: int
    exclude_receive_ns: int
    preparing_ns: int


def step_trace_time(trace: Trace, style: str = "torch") -> list[StepTime]:
    """One row per step of ``notes["steps"]``.

    Args:
        trace: with its steps, their attribution and its overlap lanes; communication rows kept.
        style: one of :data:`STYLES`.
    """
    events = trace.events
    torch = style == "torch"
    mask = trace.rows_of(Layer.COMM)
    comm = _by_start(events, mask & (events.op == OpClass.COMM) if torch else mask)
    named = _TORCH_RECEIVES if torch else _MINDSPORE_TRANSFERS
    transfer = [i for i, name in enumerate(trace.strings) if named.match(name)]
    rows = _Rows(
        classes={op: _by_start(events, events.op == op) for op in _COUNTED},
        comm=comm,
        transfers=comm.take(np.isin(comm.name, transfer)),
    )
    marked = not trace.issues.count("no-steps")
    prepared = marked and bool(trace.rows_of(Layer.HOST, Layer.RUNTIME).any())
    fill = _torch if torch else _mindspore
    return [fill(step, rows, marked, prepared) for step in trace.notes.get("steps", ())]


def _by_start(events: EventTable, mask: NDArray[np.bool_]) -> EventTable:
    rows = np.flatnonzero(mask)
    return events.take(rows[np.argsort(events.start_ns[rows], kind="stable")])


@dataclass(frozen=True)
class _Rows:
    """What is counted: the overlap lanes, communication, and what of it moves between stages.

    All tables by start, so that a step is a slice of each.
    """

    classes: Mapping[OpClass, EventTable]
    comm: EventTable
    transfers: EventTable

    def beginning_in(self, start: int, end: int) -> _Rows:
        """Those that begin in ``[start, end)``."""

        def inside(table: EventTable) -> EventTable:
            return table.take(slice(*np.searchsorted(table.start_ns, [start, end])))

        classes = {op: inside(table) for op, table in self.classes.items()}
        return _Rows(classes, inside(self.comm), inside(self.transfers))

    def sums(self) -> dict[OpClass, int]:
        """Durations by class."""
        return {op: int(table.dur_ns.sum()) for op, table in self.classes.items()}


Step = Mapping[str, Any]


def _torch(step: Step, rows: _Rows, marked: bool, prepared: bool) -> StepTime:
    start = step["device_start_ns"]
    inside = rows.beginning_in(start, start + step["device_dur_ns"])
    sums, bubble = inside.sums(), int(inside.transfers.dur_ns.sum())
    every = EventTable.concat([*inside.classes.values(), inside.transfers])
    stage = int(every.end_ns.max()) - int(every.start_ns.min()) - bubble if len(every) else 0
    exclude = max(sums[OpClass.NOT_OVERLAPPED] - bubble, 0)
    preparing = _preparing(step, inside) if prepared else 0
    return _row(step, marked, sums, (stage, bubble, exclude, preparing))


def _mindspore(step: Step, rows: _Rows, marked: bool, prepared: bool) -> StepTime:
    start = step["start_ns"]
    end = start + step["dur_ns"]
    inside = rows.beginning_in(start, end + 1)
    sums, bubble = inside.sums(), int(inside.transfers.dur_ns.sum())
    sums[OpClass.FREE] = _clipped(rows.classes[OpClass.FREE], start, end)
    stage, comm = 0, inside.comm
    if len(comm):
        stage = int(comm.end_ns[np.argmax(comm.start_ns)]) - int(comm.start_ns.min()) - bubble
    exclude = sums[OpClass.NOT_OVERLAPPED] - bubble
    preparing = _preparing(step, inside) if prepared else 0
    return _row(step, marked, sums, (stage, bubble, exclude, preparing))


def _clipped(free: EventTable, start: int, end: int) -> int:
    """What of some slices that do not overlap lies in ``[start, end)``."""
    first, stop = np.searchsorted(free.start_ns, [start, end])
    part = free.take(slice(max(int(first) - 1, 0), int(stop)))
    shown = np.minimum(part.end_ns, end) - np.maximum(part.start_ns, start)
    return int(np.maximum(shown, 0).sum())


def _preparing(step: Step, inside: _Rows) -> int:
    work = (inside.classes[op].start_ns for op in (OpClass.COMPUTING, OpClass.COMMUNICATION))
    first = np.concatenate(list(work))
    return int(first.min()) - int(step["start_ns"]) if len(first) else 0


def _row(
    step: Step, marked: bool, sums: Mapping[OpClass, int], rest: tuple[int, int, int, int]
) -> StepTime:
    exposed, communication = sums[OpClass.NOT_OVERLAPPED], sums[OpClass.COMMUNICATION]
    stage, bubble, exclude, preparing = rest
    return StepTime(
        graph=step["graph"],
        step=step["step"] if marked else None,
        computing_ns=sums[OpClass.COMPUTING],
        not_overlapped_ns=exposed,
        overlapped_ns=communication - exposed,
        communication_ns=communication,
        free_ns=sums[OpClass.FREE],
        stage_ns=stage,
        bubble_ns=bubble,
        exclude_receive_ns=exclude,
        preparing_ns=preparing,
    )
