"""Columns from outside the timeline: members of events' arguments, and of the profiler's tables.

A column that a capture lacks is empty (text) or absent (numbers), so that tables need not ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import BLOB_BITS, F64, I32, I64, OFFSET_MASK, Mask, once_each
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Args, Layer, OpClass, Trace
from traceconv.core.side_tables import ABSENT, SideTable, in_ns
from traceconv.protobuf.message_columns import codes


def fields(trace: Trace, rows: NDArray[Any], *keys: str) -> list[Texts]:
    """One column per key for the event ``rows``; "" where a row lacks it.

    Numbers come as written, lists and objects as JSON without white space.
    """
    requested, first_row = frozenset(keys), int(rows[0]) if len(rows) else -1
    layer = trace.tracks[int(trace.events.track[first_row])].layer if first_row >= 0 else None
    if requested <= _TASK_KEYS and layer is Layer.DEVICE:
        place_of_row, columns = _of_tasks(trace)
    elif (
        first_row >= 0
        and requested <= _MESSAGE_KEYS
        and trace.events.op[first_row] == OpClass.COMM_TASK
    ):
        place_of_row, columns = _of_messages(trace)
    else:
        return _read(trace, rows, keys)
    positions = place_of_row[rows]
    return (
        [columns[key][positions] for key in keys]
        if positions.min() >= 0
        else _read(trace, rows, keys)
    )


def _read(trace: Trace, rows: NDArray[Any], keys: Sequence[str]) -> list[Texts]:
    ids, back = np.unique(trace.events.args[rows], return_inverse=True)
    columns = [_Column([""], np.zeros(len(ids), np.int32)) for _ in keys]
    unread = _read_compiled(trace.args, ids, keys, columns)
    decoder, needles = _decoder(tuple(keys)), [msgspec.json.encode(key) for key in keys]
    for i, raw in ((i, trace.args.raw(int(ids[i]))) for i in unread.tolist()):
        members = _decoded(decoder, needles, raw)
        if members is not None:
            for column, member in zip(columns, msgspec.structs.astuple(members), strict=True):
                text = "" if member is _NOTHING else _text_of_json(bytes(member))
                column.put([i], [text], np.zeros(1, np.int32))
    return [Texts(column.values, column.code[back]) for column in columns]


class _Column(msgspec.Struct):
    """Texts while they are found; the first is "", of rows that lack one."""

    values: list[str]
    code: I32

    def put(self, rows: Any, texts: Iterable[str], code: I32) -> None:
        self.code[rows] = code + np.int32(len(self.values))
        self.values.extend(texts)


@once_each
def _of_tasks(trace: Trace) -> tuple[I32, dict[str, Texts]]:
    """What arguments say of the device's tasks: where each event row is in the columns, -1 for
    those of other layers. Asked by one rule and table after the other.
    """
    return _columns_of_rows(trace, trace.rows_of(Layer.DEVICE), _TASK_KEYS)


@once_each
def _of_messages(trace: Trace) -> tuple[I32, dict[str, Texts]]:
    """As :func:`_of_tasks`, of the parts of collectives on their planes."""
    return _columns_of_rows(trace, trace.events.op == OpClass.COMM_TASK, _MESSAGE_KEYS)


def _columns_of_rows(
    trace: Trace, chosen: Mask, keys: Iterable[str]
) -> tuple[I32, dict[str, Texts]]:
    rows, keys = np.flatnonzero(chosen), sorted(keys)
    place_of_row = np.full(len(trace.events), -1, np.int32)
    place_of_row[rows] = np.arange(len(rows), dtype=np.int32)
    return place_of_row, dict(zip(keys, _read(trace, rows, keys), strict=True))


def _read_compiled(
    args: Args, ids: NDArray[Any], keys: Sequence[str], columns: Sequence[_Column]
) -> NDArray[np.intp]:
    """Fill in what the C part can find, many at once; the rows it cannot."""
    members = native.members()
    if members is None or not all(key.isascii() and key.isprintable() for key in keys):
        return np.flatnonzero(ids >= 0)
    with_args, unread = np.flatnonzero(ids >= 0), [np.empty(0, np.intp)]
    address, size = args.address[ids[with_args]], args.length[ids[with_args]].astype(np.int64)
    blob, start = address >> BLOB_BITS, address & OFFSET_MASK
    key_texts = tuple(msgspec.json.encode(key)[1:-1] for key in keys)
    for number in np.unique(blob).tolist():
        in_blob, data = np.flatnonzero(blob == number), args.blobs[number]
        try:
            compiled_columns = members(data, start[in_blob], size[in_blob], key_texts)
        except (TypeError, BufferError):  # kept as something else than bytes
            unread.append(with_args[in_blob])
            continue
        places, lengths = (
            np.frombuffer(column, dtype).reshape(len(keys), len(in_blob))
            for column, dtype in zip(compiled_columns, (np.int64, np.int32), strict=False)
        )
        plain = np.frombuffer(compiled_columns[2], bool)
        unread.append(with_args[in_blob[~plain]])
        for starts, length, column in zip(places, lengths, columns, strict=True):
            row = np.flatnonzero(plain & (length >= 0))
            if len(row):
                text_codes = codes()
                code = text_codes.texts(data, starts[row], length[row].astype(np.int64))
                texts = map(_text_of_json, text_codes.entries(0))
                column.put(with_args[in_blob[row]], texts, np.frombuffer(code, np.int32))
    return np.concatenate(unread)


def names_of(trace: Trace, rows: NDArray[Any]) -> Texts:
    """Names of event rows; "" of row -1."""
    ids = np.where(rows >= 0, trace.events.name[rows] + 1, 0)
    is_used = np.bincount(ids) > 0
    texts = [trace.strings[i - 1] if i else "" for i in np.flatnonzero(is_used).tolist()]
    return Texts(texts, np.cumsum(is_used)[ids] - 1)


def mentioned(trace: Trace, *keys: str) -> bool:
    """Whether any argument of the trace may have one of these keys: a look at the bytes alone."""
    needles = [msgspec.json.encode(key) for key in keys]
    return any(
        not hasattr(blob, "find") or blob.find(needle) >= 0
        for blob in trace.args.blobs
        for needle in needles
    )


_NOTHING = msgspec.Raw(b"")


@cache
def _decoder(keys: tuple[str, ...]) -> Any:
    members = [
        (f"f{number}", msgspec.Raw, msgspec.field(name=key, default=_NOTHING))
        for number, key in enumerate(keys)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Fields", members))


def _decoded(decoder: Any, needles: Sequence[bytes], raw: bytes) -> Any:
    """The members of one object; None if none of them can be in it."""
    if not any(needle in raw for needle in needles):
        return None
    try:
        return decoder.decode(raw)
    except NOT_JSON:
        return None  # arguments that are not an object are kept as they are, and not used here


@lru_cache(4096)
def _text_of_json(raw: bytes) -> str:
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
_DESCRIBING = (
    "Op Type", "Accelerator Core", "Task Type", "Input Shapes", "type", "fullname",
)  # fmt: skip
"""The timeline's type of a task may be that of its queue entry, so the core in the table of kernels
goes before."""
_TASK_KEYS = frozenset(
    (*_DESCRIBING, "op_full_name", "full_name", "Output Shapes", "Input Data Types",
     "Input Formats", "Output Formats")
)  # fmt: skip
_MESSAGE_KEYS = frozenset(("src rank", "dst rank", "size(Byte)", "link type", "transport type"))
"""Fields of device tasks and of parts of collectives that several tables use."""
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
    """A column of a side table as int64; ABSENT for missing numbers."""
    column = _column(side_table, heading)
    if column.dtype == object:
        return np.full(len(column), ABSENT, np.int64)
    return rounded(column) if column.dtype == np.float64 else column


def floats(side_table: SideTable, heading: str) -> F64:
    """A column of a side table as float64; NaN for missing numbers."""
    column = _column(side_table, heading)
    if column.dtype == object:
        return np.full(len(column), np.nan)
    return np.where(column == ABSENT, np.nan, column.astype(np.float64))


def rounded(value: F64) -> I64:
    """Whole numbers, rounded half up; ABSENT for NaN and what does not fit int64."""
    fits = np.abs(value) < _LARGEST  # false for NaN
    return np.where(fits, np.floor(np.where(fits, value, 0) + 0.5).astype(np.int64), ABSENT)


def _column(side_table: SideTable, heading: str) -> NDArray[Any]:
    assert in_ns(heading) == heading, "times of side tables are ns; their names have the unit"
    if heading in side_table:
        return side_table[heading]
    empty = np.empty(len(side_table), object)
    empty[:] = ""
    return empty


def operator_columns(trace: Trace, rows: NDArray[np.intp]) -> dict[str, Texts]:
    """Operator type, core type and input shapes of device tasks; "" where nothing says.

    From their arguments, among which the profiler's table of kernels is where there is one
    (:mod:`traceconv.passes.kernel_args`); of MindSpore before 2.4, from those its timeline has and
    its tables, joined by full name.
    """
    place_of_row, columns = _operators(trace)
    positions = place_of_row[rows]
    if len(positions) and positions.min() < 0:
        return _described(trace, fields(trace, rows, *_DESCRIBING))
    return {name: column[positions] for name, column in columns.items()}


@once_each
def _operators(trace: Trace) -> tuple[I32, dict[str, Texts]]:
    """:func:`operator_columns` of all device tasks, and where each event row is in them."""
    place_of_row, columns = _of_tasks(trace)
    return place_of_row, _described(trace, [columns[key] for key in _DESCRIBING])


def _described(trace: Trace, columns: Sequence[Texts]) -> dict[str, Texts]:
    op_type, core, of_timeline, shapes, kind, full_name = columns
    named_fully = full_name.known
    if named_fully.any():
        kind = kind.kept(named_fully)  # elsewhere "type" may be anything
        op_type = op_type.filled(kind).filled(_types_by_name(trace, full_name))
    return {"OP Type": op_type, "Core Type": core.filled(of_timeline), "Input Shapes": shapes}


def _types_by_name(trace: Trace, full_names: Texts) -> Texts:
    """The type of each operator by its full name, or the last part of it, which is unique, too; ""
    where no table has it.
    """
    types: dict[str, str] = {}
    for name, headings in _TYPES_BY_NAME.items():
        table = trace.side_tables.get(name)
        if table:
            pairs = zip(*(named(table, heading).tolist() for heading in headings), strict=True)
            types = dict(pairs) | types
    return full_names.mapped(lambda name: types.get(name) or types.get(name.rpartition("/")[2], ""))
