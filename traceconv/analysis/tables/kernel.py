"""Tables of the device: kernels, copies, how busy each device is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    TIMED,
    Column,
    Ranked,
    Table,
    stacked,
    texts,
    timed,
)
from traceconv.analysis.tables.fields import fields, names_of
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.analysis.tables.host import collective, kernels
from traceconv.analysis.utilisation import measured, utilisation
from traceconv.core.columns import I64
from traceconv.core.intervals import length_within, merged, total, union
from traceconv.core.model import Covered, Layer, OpClass, Trace
from traceconv.core.side_tables import ABSENT, Columns

_KINDS = {
    OpClass.COMPUTE: "compute",
    OpClass.COMM: "communication",
    OpClass.UNCLASSIFIED: "unclassified",
}


def _kernel_facts(trace: Trace) -> Columns:
    """By name; HCCL numbers its operations, so these are taken by kind."""
    rows = kernels(trace, *_KINDS)
    if not len(rows):
        return NOTHING
    events = trace.events
    calls = np.unique(events.name[rows[events.op[rows] == OpClass.COMM]])
    called: dict[str, int] = {}
    alike = np.arange(len(trace.strings))
    for name in calls.tolist():
        alike[name] = called.setdefault(collective(trace.strings[name]), name)
    is_call = events.op[rows] == OpClass.COMM
    groups = Groups.of(np.where(is_call, alike[events.name[rows]], events.name[rows]), is_call)
    first = rows[groups.first]
    names = [trace.strings[i] for i in events.name[first].tolist()]
    kinds = [_KINDS[OpClass(op)] for op in events.op[first].tolist()]
    return {
        "Kernel": texts([collective(name) if kind == _KINDS[OpClass.COMM] else name
                         for name, kind in zip(names, kinds, strict=True)]),
        "Kind": texts(kinds),
        **groups.measured(events.dur_ns[rows]),
    }  # fmt: skip


def _copy_facts(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COPY)
    if not len(rows):
        return NOTHING
    groups = Groups.of(trace.events.name[rows])
    size, big, moved = (text.whole() for text in fields(trace, rows, "bytes", "size", "size(Byte)"))
    return {
        "Copy": names_of(trace, rows[groups.first]).column(),
        **groups.measured(trace.events.dur_ns[rows]),
        "Bytes": groups.total(np.maximum(np.maximum(size, big), moved)),
    }


def _copies(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    ns = rows["Total Time(ns)"]
    speed = np.divide(rows["Bytes"], ns, out=np.full(len(ns), np.nan), where=ns > 0)
    sized = rows["Bytes"] > 0
    return {
        **rows,
        "Bytes": np.where(sized, rows["Bytes"], ABSENT),
        "Bandwidth(GB/s)": np.where(sized, speed, np.nan),
    }


# -- how busy -----------------------------------------------------------------------------


_LANES = {
    OpClass.COMPUTING: "computing",
    OpClass.COMMUNICATION: "communication",
    OpClass.NOT_OVERLAPPED: "exposed",
    OpClass.COPYING: "copies",
    OpClass.COPY_NOT_OVERLAPPED: "copies alone",
    OpClass.UNCLASSIFIED_ALONE: "unclassified",
}
_STATED = {
    "Kernel Time(ns)": "computing_ns",
    "Communication Time(ns)": "communication_ns",
    "Copy Time(ns)": "copying_ns",
    "Idle(ns)": "free_ns",
    "Known(ns)": "known_ns",
}
"""The columns that a vendor's table of steps states."""


def _device_facts(trace: Trace) -> Columns:
    """Per device: what of the steps its overlap lanes cover.

    Where the figures of some steps are from the vendor's table, a single device has these, too.
    """
    steps = measured(trace.steps)
    rows = np.flatnonzero(trace.rows_of(Layer.OVERLAP))
    if not len(steps) or not len(rows):
        return NOTHING
    is_covered = steps.covered == Covered.TIMELINE
    spans = union(*steps.take(is_covered).device_spans.T)
    own_device = trace.capture.device if trace.capture.device >= 0 else ABSENT
    of_track = [t.device if t.device >= 0 else own_device for t in trace.tracks]
    device = np.array(of_track, np.int64)[trace.events.track[rows]]
    numbers = np.unique(device)
    by_device = [_of_device(trace, rows[device == number], spans) for number in numbers.tolist()]
    if len(by_device) == 1:
        uncovered = steps.take(~is_covered)
        for key, name in _STATED.items():
            by_device[0][key] += int(np.maximum(getattr(uncovered, name), 0).sum())
        by_device[0]["Kernel Time(ns)"] += int(uncovered.not_overlapped_ns.sum())
    return {
        "Device": numbers,
        "Steps Time(ns)": np.full(len(numbers), total(union(steps.start_ns, steps.end_ns))),
        **{
            key: np.array([figures[key] for figures in by_device], np.int64) for key in by_device[0]
        },
    }


def _of_device(trace: Trace, rows: NDArray[np.intp], spans: I64) -> dict[str, int]:
    """Lengths within ``spans`` of the overlap lanes of one device, and what of these is known."""
    events = trace.events.take(rows)
    sets = {
        name: union(*np.stack((events.start_ns, events.end_ns))[:, events.op == op])
        for op, name in _LANES.items()
    }
    recorded = spans
    if len(trace.windows):
        recorded = merged(trace.windows, union(events.start_ns, events.end_ns))
    lengths = {
        name: int(length_within(spans_of_lane, spans).sum()) for name, spans_of_lane in sets.items()
    }
    known_ns = int(length_within(recorded, spans).sum())
    kernels = lengths["computing"] + lengths["exposed"]
    # copies of NPUs are idle time, as the vendor counts
    busy = (
        kernels
        + lengths["unclassified"]
        + (0 if trace.hints.vendor == "ascend" else lengths["copies alone"])
    )
    return {
        "Kernel Time(ns)": kernels,
        "Communication Time(ns)": lengths["communication"],
        "Copy Time(ns)": lengths["copies"],
        "Unclassified Time(ns)": lengths["unclassified"],
        "Idle(ns)": known_ns - busy,
        "Known(ns)": known_ns,
    }


def _device_rows(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    if not rows["Unclassified Time(ns)"].any():
        del rows["Unclassified Time(ns)"]
    return {**rows, "Utilization(%)": utilisation(rows["Idle(ns)"], rows["Known(ns)"])}


# -- host and device by phase -------------------------------------------------------------

_STAGE = {
    OpClass.ITERATION: "Step", OpClass.INTERVAL: "Data Preparation", OpClass.FP_BP:
    "Forward and Backward", OpClass.REDUCE: "Reduce", OpClass.TAIL: "Tail",
}  # fmt: skip


def _stage_facts(trace: Trace) -> Columns:
    events = trace.events
    rows = np.flatnonzero(trace.rows_of(Layer.STEP) & np.isin(events.op, list(_STAGE)))
    if not len(rows) or trace.hints.partial_device:
        return NOTHING
    groups = Groups.of(numbered(events.op[rows]))
    return {
        "Stage": texts([_STAGE[OpClass(op)] for op in events.op[rows[groups.first]].tolist()]),
        **groups.measured(events.dur_ns[rows]),
    }


def _stages(ranked: Ranked) -> Columns:
    """Ratios are of the time of the steps; ratios of gaps are of steps and gaps together."""
    rows = timed(ranked)
    of_step = rows["Stage"] == "Step"
    base = dict(zip(rows[RANK][of_step].tolist(), rows["Total Time(ns)"][of_step].tolist(),
                    strict=True))  # fmt: skip
    step_ns = np.array([base.get(rank, 0) for rank in rows[RANK].tolist()])
    total = rows["Total Time(ns)"]
    pause = rows["Stage"] == _STAGE[OpClass.INTERVAL]
    return {
        **rows,
        "Ratio(%)": share(total, np.where(pause & (step_ns > 0), step_ns + total, step_ns)),
    }


TABLES: Sequence[Table] = (
    Table(
        "kernel",
        "Kernels",
        "Device tasks that compute or are unclassified, and whole communication operations, by "
        "name: Count; Total = "
        "sum of durations; Min, Avg = Total / Count, Max; Ratio = Total / sum of all Totals of "
        "the rank. All of the capture counts, within steps or not; tasks that overlap count twice.",
        "device or communication slices",
        Column.parse(f"Rank, Kernel:text, Kind:text, {TIMED}"),
        _kernel_facts,
        capped=True,
    ),
    Table(
        "copy",
        "Memory copies and fills",
        "As the table of kernels, over copies and memory sets. Bytes = sum of the sizes given; "
        "Bandwidth = Bytes / Total (10^9 bytes per second).",
        "copies on a device",
        Column.parse(f"Rank, Copy:text, {TIMED}, Bytes:B, Bandwidth(GB/s)"),
        _copy_facts,
        _copies,
        capped=True,
    ),
    Table(
        "device",
        "Devices: how busy within steps",
        "Steps Time = length of the union of the steps that have device data. Kernel Time = length "
        "of the union over all streams of kernels (communication among them) within the steps' "
        "device windows; Communication and Copy Time likewise. What runs outside of steps is in "
        "the tables of kernels and copies only. Unclassified Time, where it occurs, = tasks of "
        "types that no table of their producer has, while the device does nothing else. Known = "
        "the part of the windows in which the profiler was collecting. Idle = Known without "
        "kernels and unclassified tasks, and without copies on GPUs. Utilization = 100 - Idle / "
        "Known, as in the table of overlap; Paddle's Device Summary counts neither copies nor "
        "Known, but Kernel Time / Steps Time.",
        "device slices",
        Column.parse(
            "Rank, Device, Steps Time(ns), Kernel Time(ns), Communication Time(ns), "
            "Copy Time(ns), Unclassified Time(ns), Idle(ns), Known(ns), Utilization(%)"
        ),
        _device_facts,
        _device_rows,
    ),
    Table(
        "stage",
        "Stages of a step",
        "The parts of the step trace: Count, sum, min, mean and max of their durations; Ratio = "
        "Total / Total of the steps; of Data Preparation, which is before a step, of both together",
        "a step trace",
        Column.parse(f"Rank, Stage:text, {TIMED}"),
        _stage_facts,
        _stages,
    ),
)  # fmt: skip
