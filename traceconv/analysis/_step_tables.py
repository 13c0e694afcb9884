"""Tables of steps: how long they take, and what of them is compute, communication and idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis._definition import NOTHING, RANK, Ranked, Table, stacked
from traceconv.analysis._groups import Groups, mean, pooled, share
from traceconv.analysis._step_time import step_trace_time
from traceconv.model import OpClass, Trace
from traceconv.sheets import ABSENT, Columns

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
        "Step": "step", "Start Time(us)": "start_ns", "Duration(us)": "dur_ns",
        "Device Time(us)": "device_dur_ns", "FP_BP Time(us)": "fp_bp",
        "Iteration Refresh(us)": "tail", "Data Aug Bound(us)": "interval",
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
        "Mean(us)": usual,
        "Standard Deviation(us)": np.floor(spread + 0.5).astype(np.int64),
        "Min(us)": rows["low"],
        "Max(us)": rows["high"],
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
        "Total Compute(us)": total,
        "Pure Compute(us)": total - (comm - alone),
        "Communication Overlapped(us)": comm - alone,
        "Communication Not Overlapped(us)": alone,
        "Idle(us)": rows["free_ns"],
        "Known(us)": rows["known_ns"],
        "Compute(%)": share(total, rows["known_ns"]),
        "Exposed Communication(%)": share(alone, rows["known_ns"]),
        "Idle(%)": share(rows["free_ns"], rows["known_ns"]),
    }


def _dense(column: NDArray[Any]) -> NDArray[Any]:
    """Numbers in the order of the steps; what is no step comes last."""
    last = np.where(column == ABSENT, np.iinfo(np.int64).max, column)
    return np.unique(last, return_inverse=True)[1].reshape(-1)


# -- the vendor's own columns -------------------------------------------------------------

_VENDOR = {
    "Computing(us)": "computing_ns",
    "Communication(Not Overlapped)(us)": "not_overlapped_ns",
    "Overlapped(us)": "overlapped_ns",
    "Communication(us)": "communication_ns",
    "Free(us)": "free_ns",
    "Stage(us)": "stage_ns",
    "Bubble(us)": "bubble_ns",
    "Communication(Not Overlapped and Exclude Receive)(us)": "exclude_receive_ns",
    "Preparing(us)": "preparing_ns",
}


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


def _ints(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "int")


TABLES: Sequence[Table] = (
    Table(
        "step_summary",
        "Step times: mean and spread",
        "Mean = sum of Duration / Count. Standard Deviation = root of the mean squared distance "
        "from the mean. Spread = Standard Deviation / Mean. Job-wide rows take all steps of all "
        "ranks together.",
        "steps, or any events",
        {
            **_ints(
                RANK, "Graph", "Count", "Mean(us)", "Standard Deviation(us)", "Min(us)", "Max(us)"
            ),
            "Spread(%)": "float",
        },
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
        _ints(
            RANK, "Graph", "Step", "Start Time(us)", "Duration(us)", "Device Time(us)",
            "FP_BP Time(us)", "Iteration Refresh(us)", "Data Aug Bound(us)",
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
        {
            **_ints(
                RANK, "Graph", "Step", "Total Compute(us)", "Pure Compute(us)",
                "Communication Overlapped(us)", "Communication Not Overlapped(us)", "Idle(us)",
                "Known(us)",
            ),
            "Compute(%)": "float",
            "Exposed Communication(%)": "float",
            "Idle(%)": "float",
        },
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
        _ints(RANK, "Graph", "Step", *_VENDOR),
        _vendor_facts,
        _vendor,
    ),
)  # fmt: skip
