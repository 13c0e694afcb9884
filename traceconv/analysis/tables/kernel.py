"""Tables of the device: kernels, copies, how busy each device is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import (
    BANDWIDTH,
    BYTES,
    NOTHING,
    RANK,
    TIMED,
    Column,
    Keys,
    Ranked,
    Table,
    stacked,
    texts,
    timed,
)
from traceconv.analysis.tables.fields import fields, whole
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.analysis.tables.host import collective, kernels
from traceconv.core.columns import I64
from traceconv.core.intervals import length_within, total, union
from traceconv.core.model import Layer, OpClass, Trace
from traceconv.core.side_tables import ABSENT, Columns

_KINDS = {OpClass.COMPUTE: "compute", OpClass.COMM: "communication"}
_KERNEL = Keys(("Kernel", "Kind"))
_COPY = Keys(("Copy",), ("Bytes",))
_DEVICE = re.compile(r"(?:NPU|GPU) (\d+)")


def _names(trace: Trace, ids: NDArray[Any]) -> NDArray[Any]:
    return texts([trace.strings[i] for i in ids.tolist()])


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


def _kernels(ranked: Ranked) -> Columns:
    return timed(ranked, _KERNEL)


def _copy_facts(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COPY)
    if not len(rows):
        return NOTHING
    groups = Groups.of(trace.events.name[rows])
    size, big, moved = (whole(text) for text in fields(trace, rows, "bytes", "size", "size(Byte)"))
    return {
        "Copy": _names(trace, trace.events.name[rows[groups.first]]),
        **groups.measured(trace.events.dur_ns[rows]),
        "Bytes": groups.total(np.maximum(np.maximum(size, big), moved)),
    }


def _copies(ranked: Ranked) -> Columns:
    rows = timed(ranked, _COPY)
    ns = rows["Total Time(ns)"]
    speed = np.divide(rows["Bytes"], ns, out=np.full(len(ns), np.nan), where=ns > 0)
    sized = rows["Bytes"] > 0
    return {
        **rows,
        "Bytes": np.where(sized, rows["Bytes"], ABSENT),
        "Bandwidth(GB/s)": np.where(sized, speed, np.nan),
    }


# -- how busy -----------------------------------------------------------------------------


def _device_facts(trace: Trace) -> Columns:
    """Per device: the time of all steps, and what of it kernels, collectives and copies cover."""
    rows = kernels(trace, OpClass.COMPUTE, OpClass.COMM, OpClass.COPY)
    steps = trace.steps.take(trace.steps.dur_ns > 0)
    if not len(rows) or not len(steps):
        return NOTHING
    spans = steps.device_spans
    elapsed = total(union(steps.start_ns, steps.end_ns))
    device = _devices(trace)[trace.events.track[rows]]
    numbers = np.unique(device)
    busy = np.array(
        [_busy(trace, rows[device == n], union(spans[:, 0], spans[:, 1])) for n in numbers.tolist()]
    )
    return {
        "Device": numbers,
        "Steps Time(ns)": np.full(len(numbers), elapsed, np.int64),
        "Kernel Time(ns)": busy[:, 0],
        "Communication Time(ns)": busy[:, 1],
        "Copy Time(ns)": busy[:, 2],
    }


def _devices(trace: Trace) -> I64:
    """The device each track belongs to: the one its group names, else the capture's; ABSENT
    where neither is known.
    """
    found = [_DEVICE.search(track.group) for track in trace.tracks]
    other = trace.capture.device if trace.capture.device >= 0 else ABSENT
    return np.array([int(m[1]) if m else other for m in found], np.int64)


def _busy(trace: Trace, rows: NDArray[np.intp], spans: I64) -> list[int]:
    """Length within ``spans`` of: any kernel, collectives, copies; streams merged."""
    lengths = []
    for classes in ((OpClass.COMPUTE, OpClass.COMM), (OpClass.COMM,), (OpClass.COPY,)):
        events = trace.events.take(rows[np.isin(trace.events.op[rows], classes)])
        covered = union(events.start_ns, events.end_ns)
        lengths.append(int(length_within(covered, spans).sum()))
    return lengths


def _device_rows(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    return {**rows, "Utilization(%)": share(rows["Kernel Time(ns)"], rows["Steps Time(ns)"])}


# -- host and device by phase -------------------------------------------------------------

_STAGE = {
    OpClass.ITERATION: "Step", OpClass.INTERVAL: "Data Preparation", OpClass.FP_BP:
    "Forward and Backward", OpClass.REDUCE: "Reduce", OpClass.TAIL: "Tail",
}  # fmt: skip


def _stage_facts(trace: Trace) -> Columns:
    events = trace.events
    rows = np.flatnonzero(trace.rows_of(Layer.STEP) & np.isin(events.op, list(_STAGE)))
    if not len(rows):
        return NOTHING
    groups = Groups.of(numbered(events.op[rows]))
    return {
        "Stage": texts([_STAGE[OpClass(op)] for op in events.op[rows[groups.first]].tolist()]),
        **groups.measured(events.dur_ns[rows]),
    }


def _stages(ranked: Ranked) -> Columns:
    """Ratios are of the steps' own time."""
    rows = timed(ranked, Keys(("Stage",)))
    of_step = rows["Stage"] == "Step"
    base = dict(zip(rows[RANK][of_step].tolist(), rows["Total Time(ns)"][of_step].tolist(),
                    strict=True))  # fmt: skip
    whole = np.array([base.get(rank, 0) for rank in rows[RANK].tolist()])
    return {**rows, "Ratio(%)": share(rows["Total Time(ns)"], whole)}


TABLES: Sequence[Table] = (
    Table(
        "kernel",
        "Kernels",
        "Device tasks that compute, and whole communication operations, by name: Count; Total = "
        "sum of durations; Min, Avg = Total / Count, Max; Ratio = Total / sum of all Totals of "
        "the rank. Tasks that overlap count twice.",
        "device or communication slices",
        (*Column.whole(RANK), *Column.text("Kernel", "Kind"), *TIMED),
        _kernel_facts,
        _kernels,
        capped=True,
    ),
    Table(
        "copy",
        "Memory copies and fills",
        "As the table of kernels, over copies and memory sets. Bytes = sum of the sizes given; "
        "Bandwidth = Bytes / Total (10^9 bytes per second).",
        "copies on a device",
        (*Column.whole(RANK), *Column.text("Copy"), *TIMED, BYTES, BANDWIDTH),
        _copy_facts,
        _copies,
        capped=True,
    ),
    Table(
        "device",
        "Devices: how busy",
        "Steps Time = length of the union of all steps. Kernel Time = length of the union over "
        "all streams of kernels (communication among them) within the steps' device time. "
        "Communication and Copy Time likewise. Utilization = Kernel Time / Steps Time; copies do "
        "not count, as in Paddle's Device Summary.",
        "device slices",
        (
            *Column.whole(RANK, "Device"),
            *Column.ns("Steps Time", "Kernel Time", "Communication Time", "Copy Time"),
            *Column.percent("Utilization"),
        ),
        _device_facts,
        _device_rows,
    ),
    Table(
        "stage",
        "Stages of a step",
        "The parts of the step trace: Count, sum, min, mean and max of their durations; Ratio = "
        "Total / Total of the steps.",
        "a step trace",
        (*Column.whole(RANK), *Column.text("Stage"), *TIMED),
        _stage_facts,
        _stages,
    ),
)  # fmt: skip
