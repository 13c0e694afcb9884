"""Columns of the table of operators as arguments of the device slices they describe.

Shapes, types, formats and the counters of the cores are in ``kernel_details``, not in the
timeline. Rows and slices meet by name and start. Databases bring the same as arguments already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.errors import TraceconvError
from traceconv.core.model import I64, Kind, Layer, OpClass, Trace
from traceconv.core.side_tables import ABSENT, Columns, unit_of

TOLERANCE_NS = 512
"""Largest difference between the starts of a row and its slice: tables written as floats have a
resolution of 250 ns, and two starts of one operator are never so near."""


def matched(names: Sequence[str], start_ns: I64, row_names: Sequence[str], row_start: I64) -> I64:
    """For every row the slice of its name that starts when it does (or nearest to it, within
    :data:`TOLERANCE_NS`); -1 where there is none. No slice is given to two rows.

    Args:
        names, start_ns: of the slices.
        row_names, row_start: of the rows.
    """
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    slices = np.array([numbers[name] for name in names], np.int64)
    rows = np.array([numbers.get(name, -1) for name in row_names], np.int64)
    # slices by name and start, and the first of each name: a name's slices are one ascending run
    order = np.lexsort((start_ns, slices))
    first_of_name = np.searchsorted(slices[order], np.arange(len(numbers) + 1))
    slice_of = np.full(len(rows), -1, np.int64)
    of_name = np.argsort(rows, kind="stable")
    borders = np.searchsorted(rows[of_name], np.arange(len(numbers) + 1))
    for i in np.unique(rows[rows >= 0]).tolist():
        rows_of_name = of_name[borders[i] : borders[i + 1]]
        candidates = order[first_of_name[i] : first_of_name[i + 1]]
        starts, times = start_ns[candidates], row_start[rows_of_name]
        after = np.searchsorted(starts, times)
        low, high = np.maximum(after - 1, 0), np.minimum(after, len(starts) - 1)
        below, above = np.abs(times - starts[low]), np.abs(starts[high] - times)
        nearest = candidates[np.where(below < above, low, high)]
        slice_of[rows_of_name] = np.where(np.minimum(below, above) <= TOLERANCE_NS, nearest, -1)
    # every slice is of the nearest row only
    distance = np.abs(start_ns[slice_of] - row_start) if len(start_ns) else slice_of
    order = np.lexsort((distance, slice_of))
    slice_of[order[1:][np.diff(slice_of[order]) == 0]] = -1
    return slice_of


SHEET = "kernel_details"

_KEYS = {
    "Type": "Op Type", "OP State": "State", "Block Dim": "Block Num",
    "Mix Block Dim": "Mix Block Num",
}  # fmt: skip
"""Names of these arguments in databases of the same profiler."""

_IN_SLICE = frozenset(
    (
        "Name", "Start Time(ns)", "Duration(ns)", "Step Id", "Device_id", "Model ID", "Model Name",
        "Task ID", "Stream ID", "Context ID", "Infer ID",
    )
)  # fmt: skip
"""Columns whose value the slice has already."""

_CORE = "Accelerator Core"
"""The kind of core of a compute task. It is added where the slice does not have it: timelines have
the type of the queue entry, which is ``AI_CORE`` for vector cores, too."""

_CLASSES = (
    OpClass.COMPUTE, OpClass.COMM, OpClass.COMM_TASK, OpClass.OTHER, OpClass.COPY,
    OpClass.UNCLASSIFIED,
)  # fmt: skip


_BATCH = 1 << 12


def kernel_args(trace: Trace) -> Trace:
    """The trace with arguments from its table of operators.

    Rows of the table without a slice are booked (``row-unmatched``); a table that cannot
    be read only loses its arguments.
    """
    side_table, events = trace.side_tables.get(SHEET), trace.events
    if side_table is None:
        return trace
    candidates = trace.rows_of(Layer.DEVICE) & np.isin(events.op, _CLASSES)
    candidates |= trace.rows_of(Layer.COMM) & (events.op == OpClass.COMM)
    slices = np.flatnonzero(candidates & (events.kind == Kind.SLICE))
    sample = events.args[slices[:: max(len(slices) // 50, 1)]].tolist()
    if not sample or any(b'"Op Type"' in trace.args.raw(i) for i in sample):
        return trace
    issues = trace.issues.copy()
    try:
        columns = side_table.read()
    except TraceconvError as e:
        issues.add("malformed-record", side_table.file, str(e)[:200])
        return replace(trace, issues=issues)
    side_table.account(issues)
    joined, unmatched = _with_table(trace, slices, columns, side_table.headings)
    first_name = str(columns["Name"][unmatched[0]])[:80] if len(unmatched) else ""
    issues.add("row-unmatched", side_table.file, first_name, len(unmatched))
    return replace(joined, issues=issues)


def _with_table(
    trace: Trace, slices: I64, columns: Columns, headings: Mapping[str, str]
) -> tuple[Trace, I64]:
    """The trace with arguments under the profiler's headings, and the rows without a slice."""
    if "Name" not in columns or "Start Time(ns)" not in columns:
        return trace, np.empty(0, np.int64)
    timed = np.flatnonzero(columns["Start Time(ns)"] != ABSENT)
    events = trace.events.take(slices)
    names: list[str] = [trace.strings[i] for i in events.name.tolist()]
    row_names = [str(name) for name in columns["Name"][timed].tolist()]
    devices = [trace.tracks[i].device for i in events.track.tolist()]
    if "Device_id" in columns and len(set(devices)) > 1:  # may run the same at one time
        names = [f"{device} {name}" for device, name in zip(devices, names, strict=True)]
        row_devices = columns["Device_id"][timed].tolist()
        row_names = [
            f"{device} {name}" for device, name in zip(row_devices, row_names, strict=True)
        ]
    slice_of = matched(names, events.start_ns, row_names, columns["Start Time(ns)"][timed])
    rows, matched_slices = timed[slice_of >= 0], slices[slice_of[slice_of >= 0]]
    shown = {headings[name]: column for name, column in columns.items() if name not in _IN_SLICE}
    members: list[bytes] = []
    for begin in range(0, len(rows), _BATCH):
        chunk = rows[begin : begin + _BATCH]
        values = {heading: c[chunk] for heading, c in shown.items()}
        if _CORE in values:
            # only cores of compute tasks that their slices do not name
            batch, cores = matched_slices[begin : begin + _BATCH], values[_CORE]
            raws = map(trace.args.raw, trace.events.args[batch].tolist())
            texts = {core: json.dumps(core).encode() for core in set(cores.tolist())}
            differs = [
                texts[core] not in raw for core, raw in zip(cores.tolist(), raws, strict=True)
            ]
            compute = trace.events.op[batch] == OpClass.COMPUTE
            values[_CORE] = np.where(compute & np.array(differs, bool), cores, "")
        members += _members(values, len(chunk))
    chunk = np.fromiter(map(bool, members), bool, len(members))
    return trace.with_arguments(matched_slices[chunk], [*filter(None, members)]), timed[
        slice_of < 0
    ]


# -- values as JSON -------------------------------------------------------------------------


def _members(columns: Mapping[str, NDArray[Any]], rows: int) -> Sequence[bytes]:
    """``,"key":value`` of every row, empty cells left out."""
    texts = [
        _texts(column, b"," + json.dumps(_KEYS.get(heading, heading)).encode() + b":", heading)
        for heading, column in columns.items()
    ]
    return list(map(b"".join, zip(*texts, strict=True))) if texts else [b""] * rows


def _texts(column: NDArray[Any], key: bytes, heading: str) -> list[bytes]:
    to_json = _time(heading) if unit_of(heading) else _value
    values = column.tolist()
    texts = {value: to_json(value) for value in set(values)}  # most columns have few values
    members = {value: key + text if text else b"" for value, text in texts.items()}
    return [members[value] for value in values]


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") if value else b""
    if isinstance(value, float):
        return b"%r" % value if np.isfinite(value) else b""
    return b"" if value == ABSENT else b"%d" % value


def _time(heading: str) -> Callable[[int], bytes]:
    """Nanoseconds in the unit of the heading, exactly."""
    scale = {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit_of(heading)]

    def to_json(ns: int) -> bytes:
        if ns == ABSENT:
            return b""
        integer, fraction = divmod(abs(ns), 10**scale)
        digits = f"{fraction:0{scale}d}".rstrip("0") if fraction else ""
        sign = "-" if ns < 0 else ""
        return f"{sign}{integer}.{digits}".encode() if digits else f"{sign}{integer}".encode()

    return to_json
