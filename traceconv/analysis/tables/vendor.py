"""Columns that only a vendor's own tables have, joined to the timeline where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.fields import fields
from traceconv.core.columns import F64, I64
from traceconv.core.model import Trace
from traceconv.core.side_tables import ABSENT, SideTable

_COLUMNS = {
    "OP Type": "Type",
    "Core Type": "Accelerator Core",
    "Input Shapes": "Input Shapes",
}
_LARGEST = 2.0**62
_ARGUMENTS = {"OP Type": "Op Type", "Core Type": "Task Type", "Input Shapes": "Input Shapes"}


def is_ascend(trace: Trace) -> bool:
    """Whether device rows are tasks that carry out operators, not kernels that these launch."""
    return trace.hints.vendor == "ascend"


def named(side_table: SideTable, heading: str) -> NDArray[Any]:
    """A column of a side table as text; "" where there is nothing."""
    column = _column(side_table, heading)
    if column.dtype == object:
        return column
    texts = np.empty(len(column), object)
    texts[:] = ["" if v == ABSENT or v != v else str(v) for v in column.tolist()]
    return texts


def numbers(side_table: SideTable, heading: str) -> I64:
    """A column of a side table as int64; ABSENT where there is no number."""
    column = _column(side_table, heading)
    if column.dtype == object:
        return np.full(len(column), ABSENT, np.int64)
    return rounded(column) if column.dtype == np.float64 else column


def floats(side_table: SideTable, heading: str) -> F64:
    """A column of a side table as float64; NaN where there is no number."""
    column = _column(side_table, heading)
    if column.dtype == object:
        return np.full(len(column), np.nan)
    return np.where(column == ABSENT, np.nan, column.astype(np.float64))


def rounded(value: F64) -> I64:
    """Whole numbers, half up; ABSENT for what is no number or fits no int64."""
    fits = np.abs(value) < _LARGEST  # false for NaN
    return np.where(fits, np.floor(np.where(fits, value, 0) + 0.5).astype(np.int64), ABSENT)


def _column(side_table: SideTable, heading: str) -> NDArray[Any]:
    if heading in side_table:
        return side_table[heading]
    empty = np.empty(len(side_table), object)
    empty[:] = ""
    return empty


def operator_columns(trace: Trace, rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
    """Operator type, core type and input shapes of device tasks; "" where nothing says.

    From the profiler's table of kernels, joined by start time, else from the arguments.
    """
    found = dict(zip(_ARGUMENTS, fields(trace, rows, *_ARGUMENTS.values()), strict=True))
    side_table = trace.side_tables.get("kernel_details")
    if side_table is None or not len(side_table):
        return found
    start = numbers(side_table, "Start Time(us)")
    order = np.argsort(start, kind="stable")
    wanted = trace.events.start_ns[rows]
    at = order[np.minimum(np.searchsorted(start[order], wanted), len(order) - 1)]
    known = start[at] == wanted
    for name, heading in _COLUMNS.items():
        told = named(side_table, heading)[at]
        found[name] = np.where(known & (told != ""), told, found[name])
    return found
