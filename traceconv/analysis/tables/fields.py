"""Columns from outside the timeline: members of events' arguments, and of the profiler's tables.

A column that a capture lacks is empty (text) or absent (numbers), so that tables need not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.core.columns import BLOB_BITS, F64, I32, I64, OFFSET_MASK, Mask, once_each
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Args, Layer, Trace
from traceconv.core.ordering import distinct, factored
from traceconv.core.protobuf_columns import codes
from traceconv.core.side_tables import ABSENT, SideTable, in_ns


def fields(trace: Trace, rows: NDArray[Any], *keys: str) -> list[NDArray[Any]]:
    """One text column per key for the event ``rows``; "" where a row lacks it.

    Numbers come as written, lists and objects as JSON without white space.
    """
    ids, back = factored(trace.events.args[rows])
    columns = [np.full(len(ids), "", object) for _ in keys]
    left = _taken(trace.args, ids, keys, columns)
    decoder, needles = _decoder(keys), [msgspec.json.encode(key) for key in keys]
    for i, raw in ((i, trace.args.raw(int(ids[i]))) for i in left.tolist()):
        found = _decoded(decoder, needles, raw)
        if found is not None:
            for member, column in zip(_MEMBERS, columns, strict=False):
                column[i] = _text(getattr(found, member))
    return [column[back.reshape(-1)] if len(ids) else column for column in columns]


def _taken(
    args: Args, ids: NDArray[Any], keys: Sequence[str], columns: list[NDArray[Any]]
) -> NDArray[np.intp]:
    """Fill in what the C part can find, many at once; the rows it cannot."""
    members = native.members()
    if members is None or not all(key.isascii() and key.isprintable() for key in keys):
        return np.flatnonzero(ids >= 0)
    there, left = np.flatnonzero(ids >= 0), [np.empty(0, np.intp)]
    address, size = args.address[ids[there]], args.length[ids[there]].astype(np.int64)
    blob, start = address >> BLOB_BITS, address & OFFSET_MASK
    wanted = tuple(msgspec.json.encode(key)[1:-1] for key in keys)
    for number in distinct(blob).tolist():
        own, data = np.flatnonzero(blob == number), args.blobs[number]
        try:
            made = members(data, start[own], size[own], wanted)
        except (TypeError, BufferError):  # kept as something else than bytes
            left.append(there[own])
            continue
        places, lengths = (
            np.frombuffer(column, dtype).reshape(len(keys), len(own))
            for column, dtype in zip(made, (np.int64, np.int32), strict=False)
        )
        plain = np.frombuffer(made[2], bool)
        left.append(there[own[~plain]])
        for place, length, column in zip(places, lengths, columns, strict=True):
            row = np.flatnonzero(plain & (length >= 0))
            known = codes()
            code = known.texts(data, place[row], length[row].astype(np.int64))
            texts = np.array([*map(_said, known.entries(0)), ""], object)
            column[there[own[row]]] = texts[np.frombuffer(code, np.int32)]
    return np.concatenate(left)


def of_each(
    texts: NDArray[Any], said: Callable[[str], Any], kind: type[np.generic] | type[object] = object
) -> NDArray[Any]:
    """What ``said`` of each text of a column is, asked once for each different one.

    Args:
        kind: of the column that is made.
    """
    values = texts.tolist()
    known = {text: said(text) for text in dict.fromkeys(values)}
    return np.fromiter(map(known.__getitem__, values), kind, len(values))


def fitting(texts: NDArray[Any], fits: Callable[[str], object]) -> Mask:
    """Which texts of a column a pattern, or another test, accepts."""
    return of_each(texts, lambda text: bool(fits(text)), np.bool_)


def mentioned(trace: Trace, *keys: str) -> bool:
    """Whether any argument of the trace may have one of these keys: a look at the bytes alone."""
    needles = [msgspec.json.encode(key) for key in keys]
    return any(_holds(blob, needle) for blob in trace.args.blobs for needle in needles)


def _holds(blob: Any, needle: bytes) -> bool:
    return blob.find(needle) >= 0 if hasattr(blob, "find") else True


def whole(texts: NDArray[Any], absent: int = 0) -> I64:
    """The texts that are digits (with or without a sign) as int64; ``absent`` for the others."""
    return of_each(texts, lambda text: int(text) if _is_whole(text) else absent, np.int64)


def _is_whole(text: str) -> bool:
    return len(text) < 19 and text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()


_MEMBERS = tuple(f"f{number}" for number in range(8))
_NOTHING = msgspec.Raw(b"")


@cache
def _decoder(keys: tuple[str, ...]) -> Any:
    members = [
        (member, msgspec.Raw, msgspec.field(name=key, default=_NOTHING))
        for member, key in zip(_MEMBERS, keys, strict=False)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Fields", members))


def _decoded(decoder: Any, needles: Sequence[bytes], raw: bytes) -> Any:
    """The members of one object; None if none of them can be in it."""
    if not any(needle in raw for needle in needles):
        return None
    try:
        return decoder.decode(raw)
    except NOT_JSON:
        return None  # arguments that are no object are kept as they are, and say nothing here


def _text(value: msgspec.Raw) -> str:
    return "" if value is _NOTHING else _said(bytes(value))


@lru_cache(4096)
def _said(raw: bytes) -> str:
    try:
        if raw[:1] == b'"':
            return str(msgspec.json.decode(raw))
        if raw[:1] in (b"[", b"{"):
            return msgspec.json.format(raw, indent=-1).decode()
    except NOT_JSON:
        pass  # not UTF-8, or half a surrogate pair: as it is written
    return raw.strip(b'"').decode("utf-8", "replace")


# -- the profiler's own tables -------------------------------------------------------------

_LARGEST = 2.0**62
_ARGUMENTS = {
    "OP Type": "Op Type",
    "Core Type": "Task Type",
    "Core Type of the table": "Accelerator Core",
    "Input Shapes": "Input Shapes",
}
"""The timeline's type of a task may be that of its queue entry, so the table's goes before."""
_OF_TASKS = (*_ARGUMENTS.values(), "type", "fullname")
_TYPES_BY_NAME = {
    "framework_raw": ("full_kernel_name", "kernel_type"),
    "output_op_compute_time_detail": ("op_name", "op_type"),
}
"""Tables of MindSpore before 2.4 that say the types of operators: headings of name and type."""
OPERATORS = ("kernel_details", *_TYPES_BY_NAME)
"""The profilers' tables that describe operators."""


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
    assert in_ns(heading) == heading, "times of side tables are ns, under names that say so"
    if heading in side_table:
        return side_table[heading]
    empty = np.empty(len(side_table), object)
    empty[:] = ""
    return empty


def operator_columns(trace: Trace, rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
    """Operator type, core type and input shapes of device tasks; "" where nothing says.

    From their arguments, among which the profiler's table of kernels is where there is one
    (:mod:`traceconv.passes.kernel_args`); of MindSpore before 2.4, from those its timeline has and
    its tables, joined by full name.
    """
    number, every = _of_tasks(trace)
    at = number[rows]
    if (at >= 0).all():
        *columns, kind, full_name = [column[at] for column in every]
    else:
        *columns, kind, full_name = fields(trace, rows, *_OF_TASKS)
    found = dict(zip(_ARGUMENTS, columns, strict=True))
    core = found.pop("Core Type of the table")
    found["Core Type"] = np.where(core == "", found["Core Type"], core)
    if (full_name != "").any():
        kind = np.where(full_name != "", kind, "")  # elsewhere "type" may be anything
        for stated in (kind, _types_by_name(trace, full_name)):
            found["OP Type"] = np.where(found["OP Type"] == "", stated, found["OP Type"])
    return found


@once_each
def _of_tasks(trace: Trace) -> tuple[I32, list[NDArray[Any]]]:
    """What arguments say of the device's tasks: where each row's is in the columns, -1 for rows of
    other layers. Asked by one rule and table after the other.
    """
    rows = np.flatnonzero(trace.rows_of(Layer.DEVICE))
    number = np.full(len(trace.events), -1, np.int32)
    number[rows] = np.arange(len(rows), dtype=np.int32)
    return number, fields(trace, rows, *_OF_TASKS)


def _types_by_name(trace: Trace, full_names: NDArray[Any]) -> NDArray[Any]:
    """The type of each operator by its full name, or the last part of it, which is unique, too; ""
    where no table has it.
    """
    types: dict[str, str] = {}
    for name, headings in _TYPES_BY_NAME.items():
        table = trace.side_tables.get(name)
        if table is not None and len(table):
            stated = zip(*(named(table, heading).tolist() for heading in headings), strict=True)
            types = dict(stated) | types
    return of_each(
        full_names, lambda name: types.get(name) or types.get(name.rpartition("/")[2], "")
    )
