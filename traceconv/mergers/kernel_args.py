"""What the table of operators says of a device slice, as arguments of the slice.

Shapes, types, formats and the counters of the cores stand in ``kernel_details``, not in the
timeline. Rows and slices meet by name and start. Databases bring the same as arguments already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.errors import TraceconvError
from traceconv.mergers._kernel_match import matched
from traceconv.model import I64, Kind, Layer, OpClass, Trace
from traceconv.sheets import ABSENT, Columns, unit_of

SHEET = "kernel_details"

_KEYS = {
    "Type": "Op Type", "OP State": "State", "Block Dim": "Block Num",
    "Mix Block Dim": "Mix Block Num",
}  # fmt: skip
"""What databases call these arguments."""

_SAID = frozenset(
    (
        "Name", "Start Time(us)", "Duration(us)", "Step Id", "Device_id", "Model ID", "Model Name",
        "Task ID", "Stream ID", "Accelerator Core", "Context ID", "Infer ID",
    )
)  # fmt: skip
"""What the slice says itself."""

_CLASSES = (OpClass.COMPUTE, OpClass.COMM, OpClass.COMM_TASK, OpClass.OTHER, OpClass.COPY)


_BATCH = 1 << 12


def kernel_args(trace: Trace) -> Trace:
    """The trace with arguments from its table of operators.

    Rows of the table whose slice is not there are booked (``row-unmatched``); a table that cannot
    be read costs its arguments only.
    """
    sheet = trace.sheets.get(SHEET)
    slices = _candidates(trace) if sheet is not None else np.empty(0, np.int64)
    if sheet is None or not len(slices) or _has_them(trace, slices):
        return trace
    issues = trace.issues.copy()
    try:
        columns = sheet.read()
    except TraceconvError as e:
        issues.add("malformed-record", sheet.file, str(e)[:200])
        return replace(trace, issues=issues)
    sheet.account(issues)
    joined, unmatched = _joined(trace, slices, columns)
    issues.add("row-unmatched", sheet.file, _first(columns, unmatched), len(unmatched))
    return replace(joined, issues=issues)


def _candidates(trace: Trace) -> I64:
    """Device slices and communication operators."""
    events = trace.events
    wanted = trace.rows_of(Layer.DEVICE) & np.isin(events.op, _CLASSES)
    wanted |= trace.rows_of(Layer.COMM) & (events.op == OpClass.COMM)
    return np.flatnonzero(wanted & (events.kind == Kind.SLICE))


def _has_them(trace: Trace, slices: I64) -> bool:
    some = trace.events.args[slices[:: max(len(slices) // 50, 1)]]
    return any(b'"Op Type"' in trace.args.raw(i) for i in some.tolist())


def _joined(trace: Trace, slices: I64, columns: Columns) -> tuple[Trace, I64]:
    """With the arguments, and the rows of the table that found no slice."""
    if "Name" not in columns or "Start Time(us)" not in columns:
        return trace, np.empty(0, np.int64)
    timed = np.flatnonzero(columns["Start Time(us)"] != ABSENT)
    events = trace.events.take(slices)
    found = matched(
        [trace.strings[i] for i in events.name.tolist()],
        events.start_ns,
        [str(name) for name in columns["Name"][timed].tolist()],
        columns["Start Time(us)"][timed],
    )
    rows, own = timed[found >= 0], slices[found[found >= 0]]
    told = {heading: column for heading, column in columns.items() if heading not in _SAID}
    members: list[bytes] = []
    for first in range(0, len(rows), _BATCH):
        some = rows[first : first + _BATCH]
        members += _members({heading: c[some] for heading, c in told.items()}, len(some))
    return _extended(trace, own, members), timed[found < 0]


def _extended(trace: Trace, rows: I64, members: Sequence[bytes]) -> Trace:
    """The trace with more arguments of some events; those without any keep what they have."""
    some = np.fromiter(map(bool, members), bool, len(members))
    rows, more = rows[some], filter(None, members)
    had = map(trace.args.raw, trace.events.args[rows].tolist())
    args, first = trace.args.extended(list(map(_with, had, more)))
    column = trace.events.args.copy()
    column[rows] = np.arange(first, first + len(rows), dtype=np.int32)
    return replace(trace, args=args, events=trace.events.with_columns(args=column))


def _with(raw: bytes, members: bytes) -> bytes:
    """A JSON object with more members; one that is none stays as it is."""
    if not raw:
        return b"{" + members[1:] + b"}"
    head = raw.rstrip()
    if not head.endswith(b"}"):
        return raw
    head = head[:-1].rstrip()
    return head + (members[1:] if head == b"{" else members) + b"}"


def _first(columns: Columns, rows: I64) -> str:
    return str(columns["Name"][rows[0]])[:80] if len(rows) else ""


# -- values as JSON -------------------------------------------------------------------------


def _members(columns: Mapping[str, NDArray[Any]], rows: int) -> Sequence[bytes]:
    """``,"key":value`` of every row, empty cells left out."""
    texts = [
        _texts(column, b"," + json.dumps(_KEYS.get(heading, heading)).encode() + b":", heading)
        for heading, column in columns.items()
    ]
    return list(map(b"".join, zip(*texts, strict=True))) if texts else [b""] * rows


def _texts(column: NDArray[Any], key: bytes, heading: str) -> list[bytes]:
    spell = _time(heading) if unit_of(heading) else _value
    values = column.tolist()
    said = {value: spell(value) for value in set(values)}
    whole = {value: key + text if text else b"" for value, text in said.items()}
    return [whole[value] for value in values]


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") if value else b""
    if isinstance(value, float):
        return b"%r" % value if np.isfinite(value) else b""
    return b"" if value == ABSENT else b"%d" % value


def _time(heading: str) -> Callable[[int], bytes]:
    """Nanoseconds in the unit of the heading, exactly."""
    scale = {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit_of(heading)]

    def spelled(ns: int) -> bytes:
        if ns == ABSENT:
            return b""
        whole, rest = divmod(abs(ns), 10**scale)
        digits = f"{rest:0{scale}d}".rstrip("0") if rest else ""
        sign = "-" if ns < 0 else ""
        return f"{sign}{whole}.{digits}".encode() if digits else f"{sign}{whole}".encode()

    return spelled
