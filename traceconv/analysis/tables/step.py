"""Tables of steps: how long they take, and what of them is compute, communication and idle."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import NOTHING, RANK, Column, Ranked, Table, stacked
from traceconv.analysis.tables.groups import Groups, mean, pooled, share
from traceconv.core.model import EventTable, Layer, OpClass, Trace
from traceconv.core.side_tables import ABSENT, Columns

STYLES = ("torch", "mindspore")
"""The two ways in which Ascend tools compute ``step_trace_time.csv``. Both count whole slices.

"torch" (Ascend PyTorch) counts a slice in the step in whose device time it begins, ``start <= t <
end``; "mindspore" (MindSpore 2.4+) in the step in whose own time it begins, ``start <= t <= end``,
but clips Free to the step and takes the stage from the communication rows.
"""

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
    """The columns of ``step_trace_time.csv``, from steps and overlap lanes: one row per step.

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
    """Length of the parts of non-overlapping slices within ``[start, end)``."""
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


STEPS_NOTED = 1000
"""So many steps of a rank are listed in its notes."""

_PHASES = {"fp_bp": OpClass.FP_BP, "tail": OpClass.TAIL, "interval": OpClass.INTERVAL}


def _noted(trace: Trace, *keys: str) -> dict[str, NDArray[Any]]:
    """The steps of ``notes``: graph, step and ``keys``; ABSENT where a step lacks one."""
    steps = trace.notes.get("steps", ())
    return {
        key: np.array([step.get(key, ABSENT) for step in steps], np.int64)
        for key in ("graph", "step", *keys)
    }


def _step_facts(trace: Trace) -> Columns:
    facts = _noted(trace, "start_ns", "dur_ns", "device_dur_ns")
    if not len(facts["step"]):
        return NOTHING
    return {**facts, **{name: _phase(trace, facts, op) for name, op in _PHASES.items()}}


def _phase(trace: Trace, facts: Columns, op: OpClass) -> NDArray[np.int64]:
    """Length of one part of each step; ABSENT where the source marks none."""
    events = trace.events.take(trace.events.op == op)
    found: dict[tuple[int, int], int] = {}
    for graph, step, dur in zip(
        events.graph.tolist(), events.step.tolist(), events.dur_ns.tolist(), strict=True
    ):
        found[graph, step] = found.get((graph, step), 0) + dur
    keys = zip(facts["graph"].tolist(), facts["step"].tolist(), strict=True)
    return np.array([found.get(key, ABSENT) for key in keys], np.int64)


def _named(rows: Columns, names: dict[str, str]) -> dict[str, NDArray[Any]]:
    graph = np.where(rows["graph"] < 0, ABSENT, rows["graph"])
    return {RANK: rows[RANK], "Graph": graph, **{n: rows[key] for n, key in names.items()}}


def _steps(ranked: Ranked) -> Columns:
    names = {
        "Step": "step", "Start Time(ns)": "start_ns", "Duration(ns)": "dur_ns",
        "Device Time(ns)": "device_dur_ns", "FP_BP Time(ns)": "fp_bp",
        "Iteration Refresh(ns)": "tail", "Data Aug Bound(ns)": "interval",
    }  # fmt: skip
    return _named(stacked(ranked), names)


def _summary_facts(trace: Trace) -> Columns:
    steps = _noted(trace, "dur_ns")
    if not len(steps["step"]):
        return NOTHING
    groups = Groups.of(steps["graph"])
    return {"graph": steps["graph"][groups.first], **groups.measured(steps["dur_ns"])}


def _summary(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    if len(ranked) > 1:
        groups = Groups.of(rows["graph"])
        job = {
            RANK: np.full(len(groups), ABSENT, np.int64),
            "graph": rows["graph"][groups.first],
            **pooled(rows, groups),
        }
        rows = {name: np.concatenate((column, job[name])) for name, column in rows.items()}
    usual = mean(rows["total"], rows["count"])
    spread = np.sqrt(rows["m2"] / np.maximum(rows["count"], 1))
    return {
        **_named(rows, {}),
        "Count": rows["count"],
        "Mean(ns)": usual,
        "Standard Deviation(ns)": np.floor(spread + 0.5).astype(np.int64),
        "Min(ns)": rows["low"],
        "Max(ns)": rows["high"],
        "Spread(%)": share(spread, usual),
    }


# -- overlap ------------------------------------------------------------------------------

_LEGENDS = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns", "known_ns")


def _overlap_facts(trace: Trace) -> Columns:
    """Per step, and for the whole rank (step ABSENT) where the sums are known."""
    steps = _noted(trace, *_LEGENDS)
    rows = {key: column[steps["known_ns"] != ABSENT] for key, column in steps.items()}
    sums = trace.notes.get("overlap", {}).get("sums_ns")
    if sums and not _narrowed(trace):
        parts = [sums[k.removesuffix("_ns")] for k in _LEGENDS[:-1]]
        whole = [-1, ABSENT, *parts, parts[0] + parts[2] + parts[3]]
        rows = {k: np.append(c, w) for (k, c), w in zip(rows.items(), whole, strict=True)}
    return rows if len(rows["step"]) else NOTHING


def _narrowed(trace: Trace) -> bool:
    """Whether only some of the steps were asked for: sums of the whole rank would mislead."""
    listed, total = len(trace.notes.get("steps", ())), trace.notes.get("steps_total", 0)
    return bool(listed < min(total, STEPS_NOTED))


def _overlap(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    if len(ranked) > 1:
        groups = Groups.of(rows["graph"], _dense(rows["step"]))
        job = {name: mean(groups.total(rows[name]), groups.size) for name in _LEGENDS}
        job |= {key: rows[key][groups.first] for key in ("graph", "step")}
        job[RANK] = np.full(len(groups), ABSENT, np.int64)
        rows = {name: np.concatenate((column, job[name])) for name, column in rows.items()}
    total, comm, alone = (rows[key] for key in _LEGENDS[:3])
    return {
        **_named(rows, {"Step": "step"}),
        "Total Compute(ns)": total,
        "Pure Compute(ns)": total - (comm - alone),
        "Communication Overlapped(ns)": comm - alone,
        "Communication Not Overlapped(ns)": alone,
        "Idle(ns)": rows["free_ns"],
        "Known(ns)": rows["known_ns"],
        "Compute(%)": share(total, rows["known_ns"]),
        "Exposed Communication(%)": share(alone, rows["known_ns"]),
        "Idle(%)": share(rows["free_ns"], rows["known_ns"]),
    }


def _dense(column: NDArray[Any]) -> NDArray[Any]:
    """Numbers in the order of the steps; what is no step comes last."""
    last = np.where(column == ABSENT, np.iinfo(np.int64).max, column)
    return np.unique(last, return_inverse=True)[1].reshape(-1)


# -- the vendor's own columns -------------------------------------------------------------

_VENDOR_NAMES = {
    "Computing": "computing_ns",
    "Communication(Not Overlapped)": "not_overlapped_ns",
    "Overlapped": "overlapped_ns",
    "Communication": "communication_ns",
    "Free": "free_ns",
    "Stage": "stage_ns",
    "Bubble": "bubble_ns",
    "Communication(Not Overlapped and Exclude Receive)": "exclude_receive_ns",
    "Preparing": "preparing_ns",
}
_VENDOR_COLUMNS = Column.ns(*_VENDOR_NAMES)
_VENDOR = {column.key: _VENDOR_NAMES[column.name] for column in _VENDOR_COLUMNS}


def _vendor_facts(trace: Trace) -> Columns:
    if "overlap" not in trace.notes:
        return NOTHING
    style = "mindspore" if _is_mindspore(trace) else "torch"
    rows = [asdict(row) for row in step_trace_time(trace, style)]
    if not rows:
        return NOTHING
    return {
        key: np.array([ABSENT if row[key] is None else row[key] for row in rows], np.int64)
        for key in ("graph", "step", *_VENDOR.values())
    }


def _is_mindspore(trace: Trace) -> bool:
    where = (trace.capture.label, *trace.capture.files, *trace.capture.known)
    return any("_ascend_ms" in path or "mindspore" in path for path in where)


def _vendor(ranked: Ranked) -> Columns:
    """Rows of the ranks, then the largest of all ranks, as cluster tables give a stage."""
    rows = stacked(ranked)
    if len(ranked) > 1:
        groups = Groups.of(rows["graph"], _dense(rows["step"]))
        job = {key: groups.high(rows[key]) for key in ("graph", "step", *_VENDOR.values())}
        job[RANK] = np.full(len(groups), ABSENT, np.int64)
        rows = {name: np.concatenate((column, job[name])) for name, column in rows.items()}
    return _named(rows, {"Step": "step", **_VENDOR})


TABLES: Sequence[Table] = (
    Table(
        "step_summary",
        "Step times: mean and spread",
        "Mean = sum of Duration / Count. Standard Deviation = root of the mean squared distance "
        "from the mean. Spread = Standard Deviation / Mean. Job-wide rows take all steps of all "
        "ranks together.",
        "steps, or any events",
        (
            *Column.whole(RANK, "Graph", "Count"),
            *Column.ns("Mean", "Standard Deviation", "Min", "Max"), *Column.percent("Spread"),
        ),
        _summary_facts,
        _summary,
    ),
    Table(
        "step",
        "Steps",
        "Duration = end - start of the step as marked. Device Time = from the first to the last "
        "device or communication row of the step, or to its end if later. FP_BP, Iteration "
        "Refresh (tail) and Data Aug Bound (the pause before the step) as the source marks them. "
        "The first 1000 steps of a rank.",
        "steps, or any events",
        (
            *Column.whole(RANK, "Graph", "Step"),
            *Column.ns(
                "Start Time", "Duration", "Device Time", "FP_BP Time", "Iteration Refresh",
                "Data Aug Bound",
            ),
        ),
        _step_facts,
        _steps,
        capped=True,
    ),
    Table(
        "overlap",
        "Overlap: five legends per rank and step",
        "K = union of compute tasks, M = union of communication operations, both on the device. "
        "Total Compute = |K|. Pure Compute = |K| - |K and M|. Communication Overlapped = |K and "
        "M|. Communication Not Overlapped = |M| - |K and M|. Idle = |Known| - |K or M|. Known = "
        "the part of the step's device time in which the profiler was collecting = Total Compute "
        "+ Communication Not Overlapped + Idle. Percentages are of Known. A row without a step is "
        "the whole rank; a row without a rank is the mean over ranks.",
        "device or communication slices",
        (
            *Column.whole(RANK, "Graph", "Step"),
            *Column.ns(
                "Total Compute", "Pure Compute", "Communication Overlapped",
                "Communication Not Overlapped", "Idle", "Known",
            ),
            *Column.percent("Compute", "Exposed Communication", "Idle"),
        ),
        _overlap_facts,
        _overlap,
    ),
    Table(
        "step_trace_time",
        "Step time as the Ascend tools count it (step_trace_time.csv)",
        "A slice of the overlap lanes counts, whole, in the step in whose device time it begins "
        "(MindSpore: in whose own time; Free is clipped). Overlapped = Communication - "
        "Communication(Not Overlapped). Bubble = operations that receive from another pipeline "
        "stage. Stage = first start to last end - Bubble. Exclude Receive = Communication(Not "
        "Overlapped) - Bubble. Preparing = first work - start of the step. A row without a rank "
        "is the largest of all ranks, column by column.",
        "device or communication slices",
        (*Column.whole(RANK, "Graph", "Step"), *_VENDOR_COLUMNS),
        _vendor_facts,
        _vendor,
    ),
)  # fmt: skip
