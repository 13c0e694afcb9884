"""Operators of ``kernel_details`` as slices, for captures that have no timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import structs

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import us_text
from traceconv.core.model import I8, I32, I64, Layer, OpClass
from traceconv.core.ordering import factored_rows
from traceconv.core.side_tables import ABSENT, Columns, SideTable
from traceconv.readers.ascend.db.export import graphs
from traceconv.readers.shared.ascend_tasks import task_class
from traceconv.readers.shared.layouts import (
    CLASS_COLUMN,
    RowLayout,
    Shown,
    TableRows,
    add_rows,
)
from traceconv.readers.shared.table_rows import csv_rows

_START, _DUR = "Start Time(ns)", "Duration(ns)"

KERNELS = RowLayout(
    start=_START, end="end",
    columns={"name": "Name", "Task Type": "Accelerator Core", "device": "Device_id",
             "stream": "Stream ID", "step": "Step Id", "Model Id": "Model ID", "Task Id": "Task ID",
             "Context Id": "Context ID"},
    texts=frozenset({"name", "Task Type"}), name=Shown("name"), layer=Layer.DEVICE,
    title="Ascend Hardware", lane=Shown("lane"), group=Shown("group"),
    track={"device_kind": "NPU"}, op=CLASS_COLUMN,
    args=("Task Type", "Model Id", "Task Id", "Context Id"),
)  # fmt: skip
"""Operators; arguments have the keys of a timeline."""
COLLECTIVES = structs.replace(
    KERNELS, layer=Layer.COMM, title="Communication", lane=Shown(absent="Communication"),
    op=OpClass.COMM,
)  # fmt: skip
STEPS = RowLayout(
    end="end", name=Shown("step", "Step {}"), layer=Layer.STEP, title="Step Trace",
    lane=Shown(absent="Steps"), op=OpClass.ITERATION,
)  # fmt: skip

_OPERATIONS = ("HCCL", "COMMUNICATION")
"""Types of rows that are whole communication operations."""

_COMPUTING = "Computing(ns)"
_CUT = frozenset(("truncated", "unended-line", "malformed-record"))
"""Issues of a table that lacks rows."""

_MOST_OF = 0.99
"""Operators take at least this part of the computing of a step; the rest is rounding."""

_LAST_NS = 2**62
"""Ends of slices must fit into int64."""


def read_kernels(columns: Columns, build: TraceBuilder) -> None:
    """Add a slice for every row with a time; the others are reported."""
    if _START not in columns or "Name" not in columns:
        build.skip("unused-file", "no column Name or Start Time(us)")
        return
    rows = csv_rows(columns, KERNELS, "columns Start Time(us), Duration(us)")
    rows.unread.clear()  # the side table has them
    start = columns[_START]
    dur = columns.get(_DUR, np.full(len(start), ABSENT, np.int64))
    usable = (start >= 0) & (start < _LAST_NS) & (dur < _LAST_NS)
    build.skip("missing-duration", rows.where, int((usable & (dur == ABSENT)).sum()))
    rows.columns["start"] = np.where(usable, start, -1)
    rows.columns["end"] = np.where(usable, start + np.where(dur == ABSENT, 0, dur), -1)
    op = _classes(rows.texts("name"), rows.texts("Task Type"))
    rows.columns["class"] = op.astype(np.int64)
    _place(rows)
    step: I32 = np.where(rows["step"] < 2**31, rows["step"], -1).astype(np.int32)
    added = np.full(len(rows), -1, np.int64)
    for layout, chosen in ((KERNELS, op != OpClass.COMM), (COLLECTIVES, op == OpClass.COMM)):
        part = rows.take(chosen)
        graph = graphs(part["Model Id"])
        added[chosen] = add_rows(build, layout, part, graph=graph, step=step[chosen])
    has_step = (added >= 0) & (step >= 0)
    if has_step.any():
        _add_steps(step[has_step], rows["start"][has_step], rows["end"][has_step], build)


def _classes(names: Sequence[str], cores: Sequence[str]) -> I8:
    """The class of every row."""
    pairs = list(zip(names, cores, strict=True))
    class_of_pair = {
        (name, core): OpClass.COMM if core in _OPERATIONS else task_class(name, core)
        for name, core in set(pairs)
    }
    return np.array([class_of_pair[pair] for pair in pairs], np.int8)


def _place(rows: TableRows) -> None:
    """Name tracks: streams, else kinds of cores; by device if there are several."""
    table, codes = factored_rows(rows["stream"], rows["Task Type"])
    rows.columns["lane"] = codes.astype(np.int64)
    cores = rows.names.get("Task Type", {})
    rows.names["lane"] = {
        i: f"Stream {stream}" if stream >= 0 else cores.get(core, "")
        for i, (stream, core) in enumerate(table)
    }
    rows.identity["lane"] = {i: {"stream": stream} for i, (stream, _) in enumerate(table)}
    devices = np.unique(rows["device"]).tolist()
    rows.columns["group"] = rows["device"]
    rows.names["group"] = {d: f"NPU {d}" if len(devices) > 1 and d >= 0 else "" for d in devices}
    rows.identity["group"] = {d: {"device": d} for d in devices}


def _add_steps(step: I32, start: I64, end: I64, build: TraceBuilder) -> None:
    """The steps that the table names, from the first start to the last end of their operators."""
    order = np.argsort(step, kind="stable")
    numbers, begin = np.unique(step[order], return_index=True)
    build.skip("steps-from-operators", "column Step Id", len(numbers))
    # rows of one step are neighbours now: the least start and the greatest end of each run
    columns = {
        "start": np.minimum.reduceat(start[order], begin),
        "end": np.maximum.reduceat(end[order], begin),
        "step": numbers.astype(np.int64),
    }
    add_rows(build, STEPS, TableRows(columns, "column Step Id", len(numbers)), step=numbers)


def report_missing(table: SideTable, steps: SideTable | None, build: TraceBuilder) -> None:
    """Report if the operators of a table are not all that ran.

    Args:
        table: that :func:`read_kernels` has read.
        steps: the profiler's own table of steps, None if there is none.

    Issues: operators-missing.
    """
    columns = table.columns
    if _START not in columns:
        return
    cuts = {issue.code: issue.count for issue in table.issues if issue.code in _CUT}
    places = [f"{code} x{count}" for code, count in cuts.items()]
    length = columns.get(_DUR, np.full(len(table), ABSENT, np.int64))
    timed = (columns[_START] != ABSENT) & (length >= 0)
    if not timed.all():
        places.append(f"{np.count_nonzero(~timed)} rows without a start or a length")
    places += _incomplete_steps(columns, np.where(timed, length, 0), steps)
    for where in places:
        build.skip("operators-missing", where)
    lacking = ~timed
    lacking[-1:] |= bool(cuts)  # the rows of later steps are missing altogether
    row_steps = columns.get("Step Id", np.full(len(table), ABSENT, np.int64))
    partial = np.unique(row_steps[lacking])
    in_steps = (partial >= 0).all() and not np.isin(row_steps[timed], partial).all()
    if in_steps and steps is None and "malformed-record" not in cuts:
        build.hints.partial_steps = partial.tolist()
    else:
        build.hints.partial_device = bool(places)


def _incomplete_steps(
    columns: Mapping[str, Any], length: I64, steps: SideTable | None
) -> list[str]:
    """The steps that compute for longer than their operators take together."""
    if steps is None or _COMPUTING not in steps or steps[_COMPUTING].dtype != np.int64:
        return []
    empty = np.full(len(length), "", object)
    names, cores = (columns.get(heading, empty) for heading in ("Name", "Accelerator Core"))
    classes = _classes([*map(str, names.tolist())], [*map(str, cores.tolist())])
    computes = classes == OpClass.COMPUTE
    row_steps = columns.get("Step Id", np.full(len(length), ABSENT, np.int64))
    number = steps.columns.get("Step", np.full(len(steps), ABSENT, np.int64))
    incomplete = []
    for step, computing_ns in zip(number.tolist(), steps[_COMPUTING].tolist(), strict=True):
        of_step = computes & (row_steps == step) if step != ABSENT else computes
        spent = int(length[of_step].sum())
        if spent < _MOST_OF * computing_ns:
            where = f"step {step}: " if step != ABSENT else ""
            operators = f"operators of {us_text(spent)} µs"
            incomplete.append(
                f"{where}{operators}, Computing of {us_text(computing_ns)} µs in {steps.name}"
            )
    return incomplete
