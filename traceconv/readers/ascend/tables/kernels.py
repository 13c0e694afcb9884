"""Operators of ``kernel_details`` as slices, for captures that have no timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import us_text
from traceconv.core.model import I8, I32, I64, NO_GRAPH, Layer, OpClass
from traceconv.core.ordering import factored_rows
from traceconv.core.side_tables import ABSENT, SideTable
from traceconv.readers.shared.arguments import number, quoted, shared
from traceconv.readers.shared.ascend_lanes import step_lane
from traceconv.readers.shared.ascend_tasks import task_class
from traceconv.readers.shared.csv_tables import Column

_START, _DUR = "Start Time(ns)", "Duration(ns)"
_COMPUTING = "Computing(ns)"
_CUT = frozenset(("truncated", "unended-line", "malformed-record"))
"""Issues of a table that lacks rows."""

_MOST_OF = 0.99
"""Of the computing of a step: operators do not take less together, but for rounding."""
_INT32_MAX = 2**31 - 1
_IDS = {"Model ID": "Model Id", "Task ID": "Task Id", "Context ID": "Context Id"}
"""Columns that become arguments, and their keys there: those of a timeline."""

_LAST_NS = 2**62
"""Ends of slices must fit into int64."""


def read_kernels(columns: Mapping[str, Column], build: TraceBuilder) -> None:
    """Add a slice for every row with a time; the others are booked."""
    if _START not in columns or "Name" not in columns:
        build.skip("unused-file", "no column Name or Start Time(us)")
        return
    start = columns[_START]
    dur = columns.get(_DUR, np.full(len(start), ABSENT, np.int64))
    bad = dur == ABSENT
    known = (start > -_LAST_NS) & (start < _LAST_NS) & (dur < _LAST_NS)  # so ABSENT is not
    negative = known & ~bad & (dur < 0)
    kept = np.flatnonzero(known & ~negative)
    build.seen("slice", len(start))
    build.skip("bad-time", "column Start Time(us)", int((~known).sum()), "slice")
    build.skip("negative-duration", "column Duration(us)", int(negative.sum()), "slice")
    build.skip("missing-duration", "column Duration(us)", int((bad & known).sum()))
    rows = {heading: column[kept] for heading, column in columns.items()}
    length = np.where(bad, 0, dur)[kept]
    cores, of_row = _factored(rows.get("Accelerator Core", np.full(len(kept), "", object)))
    names, of_name = _factored(rows["Name"])
    op = _classes(names, of_name, cores, of_row)
    step = _whole(rows, "Step Id", _INT32_MAX)
    build.extend(
        track=_tracks(rows, op, np.array(cores, object)[of_row], build),
        start_ns=rows[_START],
        dur_ns=length,
        name=np.array([build.string(n) for n in names], np.int32)[of_name],
        op=op,
        graph=_whole(rows, "Model ID", NO_GRAPH),
        step=step,
        args=_arguments(rows, cores, of_row, build),
    )
    named = np.flatnonzero(step >= 0)
    if len(named):
        _add_steps(step[named], rows[_START][named], length[named], build)


_OPERATIONS = ("HCCL", "COMMUNICATION")
"""Types of rows that are whole communication operations."""


def _classes(names: Sequence[str], of_name: I64, cores: Sequence[str], of_row: I64) -> I8:
    """What every row does, given the different names and types and which of them each has."""
    pairs, which = factored_rows(of_name, of_row)
    found = [
        OpClass.COMM if cores[core] in _OPERATIONS else task_class(names[name], cores[core])
        for name, core in pairs
    ]
    return np.array(found, np.int8)[which]


def book_missing(table: SideTable, steps: SideTable | None, build: TraceBuilder) -> None:
    """Say so if the operators of a table are not all that ran.

    Args:
        table: that :func:`read_kernels` has read.
        steps: the profiler's own table of steps, None if there is none.

    Issues: operators-missing.
    """
    columns = table.columns
    if _START not in columns:
        return
    places = [f"{one.code} x{one.count}" for one in table.issues if one.code in _CUT]
    length = columns.get(_DUR, np.full(len(table), ABSENT, np.int64))
    timed = (columns[_START] != ABSENT) & (length >= 0)
    if not timed.all():
        places.append(f"{np.count_nonzero(~timed)} rows without a start or a length")
    places += _less_than_stated(columns, np.where(timed, length, 0), steps)
    for where in places:
        build.skip("operators-missing", where)
    build.hints.partial_device = bool(places)


def _less_than_stated(
    columns: Mapping[str, Column], length: I64, steps: SideTable | None
) -> list[str]:
    """The steps that compute for longer than their operators take together."""
    if steps is None or _COMPUTING not in steps or steps[_COMPUTING].dtype != np.int64:
        return []
    cores, of_row = _factored(columns.get("Accelerator Core", np.full(len(length), "", object)))
    names, of_name = _factored(columns.get("Name", np.full(len(length), "", object)))
    computes = _classes(names, of_name, cores, of_row) == OpClass.COMPUTE
    own = columns.get("Step Id", np.full(len(length), ABSENT, np.int64))
    number = steps.columns.get("Step", np.full(len(steps), ABSENT, np.int64))
    found = []
    for step, stated in zip(number.tolist(), steps[_COMPUTING].tolist(), strict=True):
        mine = computes & (own == step) if step != ABSENT else computes
        spent = int(length[mine].sum())
        if spent < _MOST_OF * stated:
            where = f"step {step}: " if step != ABSENT else ""
            found.append(
                f"{where}operators of {us_text(spent)} µs, Computing of {us_text(stated)} µs in "
                f"{steps.name}"
            )
    return found


def _add_steps(step: I32, start: I64, length: I64, build: TraceBuilder) -> None:
    """The steps the table names, from the first start to the last end of their operators."""
    order = np.argsort(step, kind="stable")
    numbers, first = np.unique(step[order], return_index=True)
    # rows of one step are neighbours now: the least start and the greatest end of each run
    begin = np.minimum.reduceat(start[order], first)
    end = np.maximum.reduceat((start + length)[order], first)
    build.seen("slice", len(numbers))
    build.skip("steps-from-operators", "column Step Id", len(numbers))
    build.extend(
        track=build.add_track(step_lane(-1).track),
        start_ns=begin,
        dur_ns=end - begin,
        name=np.array([build.string(f"Step {n}") for n in numbers.tolist()], np.int32),
        op=OpClass.ITERATION,
        step=numbers,
    )


def _arguments(
    rows: Mapping[str, Column], cores: list[str], of_row: I64, build: TraceBuilder
) -> I32:
    """What a timeline says of a task: the kind of its core, and ids. Empty cells are left out."""
    columns = {"Task Type": (of_row, lambda code: quoted(cores[code]) if cores[code] else b"")}
    for heading, key in _IDS.items():
        if heading in rows and rows[heading].dtype == np.int64:
            columns[key] = (rows[heading], number)
    return shared(build, columns)


def _factored(column: Column) -> tuple[list[str], I64]:
    """The different texts of a column, and for every row which of them it is."""
    cells = [str(cell) for cell in column.tolist()]
    codes = {cell: i for i, cell in enumerate(dict.fromkeys(cells))}
    return list(codes), np.array([codes[cell] for cell in cells], np.int64)


def _tracks(rows: Mapping[str, Column], op: I8, cores: Column, build: TraceBuilder) -> I32:
    """Streams, else kinds of cores; communication on a lane of its own, as in timelines."""
    stream = rows.get("Stream ID", np.empty(0, object))
    device = rows.get("Device_id", np.empty(0, object))
    where = stream if stream.dtype == np.int64 else cores
    groups = [str(d) for d in device.tolist()] if device.dtype == np.int64 else [""] * len(op)
    several = len(set(groups)) > 1
    places = list(zip(groups, (op == OpClass.COMM).tolist(), where.tolist(), strict=True))
    numbers = {place: _track(*place, several, build) for place in dict.fromkeys(places)}
    return np.array([numbers[place] for place in places], np.int32)


def _track(device: str, comm: bool, where: object, several: bool, build: TraceBuilder) -> int:
    group = f"NPU {device}" if several else ""
    of: dict[str, Any] = {"device": int(device) if device else -1, "device_kind": "NPU"}
    if comm:
        return build.track(Layer.COMM, "Communication", group, "Communication", **of)
    stream = where if isinstance(where, int) and where != ABSENT else -1
    named = f"Stream {stream}" if isinstance(where, int) and where != ABSENT else str(where or "")
    named = named if where != ABSENT else ""
    return build.track(Layer.DEVICE, named, group, "Ascend Hardware", **of, stream=max(stream, -1))


def _whole(rows: Mapping[str, Column], heading: str, limit: int) -> I32:
    """Ids that fit the model's columns, -1 for the others and for none."""
    column = rows.get(heading)
    if column is None or column.dtype == object:
        return np.full(len(rows[_START]), -1, np.int32)
    numbers = np.nan_to_num(column, nan=-1.0) if column.dtype.kind == "f" else column
    fits = (numbers >= 0) & (numbers < min(limit, _INT32_MAX))
    return np.where(fits, numbers, -1).astype(np.int32)
