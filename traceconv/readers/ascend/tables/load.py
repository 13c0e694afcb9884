"""Reading the tables of Ascend captures: CSV, ``communication*.json``, and tables in databases.

All have the headings of the newest generation of CSV, whatever they are stored as.

``communication.json`` and ``communication_matrix.json`` have one layout each for all that is called
so: with steps (``step5``: p2p or collective: operator) as the framework profilers write it, without
them as CANN does, and by groups of ranks as the cluster tools do (``(0, 1)``: step: operator:
rank).

``analysis.db`` and ``communication_analyzer.db`` hold sums, as text or numbers of milli- and
microseconds; the databases of events hold the samples of memory and the operators, in ns and bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import I64
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT
from traceconv.core.source import Source
from traceconv.readers.ascend.db.export import KB, MB
from traceconv.readers.ascend.mindspore.text_tables import MAX_BYTES, doubts_of
from traceconv.readers.ascend.tables.names import STEP_TIMES, SUMS
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.csv_tables import Column, Doubt, csv_parts, stacked, table, typed
from traceconv.readers.shared.numbers import values
from traceconv.readers.shared.sqlite.database import Database, opened

Columns = dict[str, Column]

_HEADINGS: Mapping[str, Mapping[str, str]] = {
    "kernel_details": {
        "Op Name": "Name", "OP Type": "Type", "Op Type": "Type", "Task Type": "Accelerator Core",
        "Task Start Time(us)": "Start Time(us)", "Task Duration(us)": "Duration(us)",
        "Task Wait Time(us)": "Wait Time(us)", "Block Num": "Block Dim",
        "Mix Block Num": "Mix Block Dim", "Step ID": "Step Id",
    },
    **dict.fromkeys(("step_trace_time", "cluster_step_trace_time"), STEP_TIMES),
}  # fmt: skip
"""Other headings of the same columns; with the unit where the file leaves it out."""

_STEPS = ("Step", "Step Id")


def load(source: Source, table: str, files: tuple[str, ...], issues: Issues) -> Columns:
    """The columns of one table, of one or several files.

    Raises:
        SourceError, MalformedInputError: it cannot be read.
    """
    text = [name for name in files if name.endswith((".csv", ".csv.gz"))]
    headings = _HEADINGS.get(table, {})
    parts = [csv_parts(source, text, issues, renamed=headings)] if text else []
    parts += [_part(source, table, name, issues) for name in files if name not in text]
    columns = stacked([part for part in parts if part])
    for heading in _STEPS:
        if heading in columns and columns[heading].dtype == object:
            columns[heading] = step_numbers(columns[heading], _ignored)
    return columns


def _part(source: Source, table: str, name: str, issues: Issues) -> Columns:
    if name.endswith(".json"):
        return _JSON[table](source, name, issues)

    with opened(source, name, salvage=True) as database:
        return database_columns(database, table, doubts_of(source, name, issues))


def _ignored(code: str, where: str, count: int) -> None:
    return None  # every cell was typed, and booked, before


# -- communication*.json --------------------------------------------------------------------------

_TIMES, _BANDWIDTH = "Communication Time Info", "Communication Bandwidth Info"
_SIZES = "Size Distribution"
_TOTAL = "Total Op Info"
_NAMES = ("Kind", "Operator", "Group")
_KINDS = ("p2p", "collective")
_STEP = lazy_regex(r"step(\d*)")
_LINK = lazy_regex(r"(\d{1,18})-(\d{1,18})")
_P2P = lazy_regex(r"send|receive|recv", re.IGNORECASE)
_DEEPEST = 6

Row = dict[str, str]


def operation_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per communication operator of ``communication.json``.

    Columns: ``Step`` (int64), ``Kind`` ("p2p", "collective"), ``Operator``, ``Group``, then what
    the file has: ``Start Timestamp(us)`` ... ``Synchronization Time Ratio``. Those of cluster tools
    have ``Rank Set`` and ``Rank``, too. Its own totals are left out: sums would count them twice.

    Raises:
        SourceError: the file cannot be read, or is larger than ``MAX_BYTES``.
        MalformedInputError: it is no such JSON.
    """

    def rows(place: Row, info: Mapping[str, Any]) -> Iterator[Row]:
        times = info[_TIMES]
        if isinstance(times, Mapping):
            yield place | {key: _text(value) for key, value in times.items()}

    return _columns(source, name, issues, _TIMES, rows)


def bandwidth_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per operator, transport and size of packages of ``communication.json``.

    Transports that carried nothing are left out, as they are in databases.

    Columns: as :func:`operation_columns`, then ``Transport Type``, ``Transit Size(MB)``,
    ``Transit Time(ms)``, ``Bandwidth(GB/s)``, ``Large Packet Ratio``, ``Package Size(MB)``,
    ``Count``, ``Total Duration(ms)``. Errors as there.
    """

    def rows(place: Row, info: Mapping[str, Any]) -> Iterator[Row]:
        transports = info.get(_BANDWIDTH)
        for transport, figures in _pairs(transports):
            if not isinstance(figures, Mapping):
                continue
            row = place | {"Transport Type": transport}
            row |= {key: _text(value) for key, value in figures.items() if key != _SIZES}
            listed = _pairs(figures.get(_SIZES))
            sizes = [(size, pair) for size, pair in listed if _is_pair(pair)]
            where = f"{place.get('Operator', '')}: {_SIZES}"
            issues.add("malformed-record", source.title(name), where, len(listed) - len(sizes))
            if not sizes and _is_zero(row.get("Transit Size(MB)")):
                continue
            for size, (count, total) in sizes or [("0", ["0", "0"])]:
                yield row | {
                    "Package Size(MB)": size,
                    "Count": _text(count),
                    "Total Duration(ms)": _text(total),
                }

    return _columns(source, name, issues, _TIMES, rows)


def matrix_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per operator and link of ``communication_matrix.json``.

    Columns: ``Step`` (int64), ``Kind``, ``Operator``, ``Group``, ``Source`` and ``Target`` (ranks),
    ``Transport Type``, ``Transit Size(MB)``, ``Transit Time(ms)``, ``Bandwidth(GB/s)`` and
    ``Op Name``. Errors as :func:`operation_columns`.
    """

    def rows(place: Row, info: Mapping[str, Any]) -> Iterator[Row]:
        figures = {key: _text(value) for key, value in info.items()}
        if "op_name" in figures:
            figures["Op Name"] = figures.pop("op_name")
        yield place | figures

    return _columns(source, name, issues, "Transport Type", rows)


def group_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per group of ranks of ``communication_group.json``.

    Columns: ``Kind`` and ``Rank Set`` ("(0, 1)"). Errors as :func:`operation_columns`.
    """
    found = [
        {"Kind": kind, "Rank Set": f"({', '.join(map(_text, ranks))})"}
        for kind, groups in _pairs(_loaded(source, name))
        if kind in _KINDS and isinstance(groups, list)
        for ranks in groups
        if isinstance(ranks, list)
    ]
    return table(found, _untyped, text=("Kind", "Rank Set"))


def _untyped(code: str, where: str, count: int) -> None:
    raise AssertionError("names are left as they are")


def _columns(
    source: Source,
    name: str,
    issues: Issues,
    sign: str,
    rows: Callable[[Row, Mapping[str, Any]], Iterator[Row]],
) -> Columns:
    found: list[Row] = []
    for path, info in _walk(_loaded(source, name), (), sign):
        if _TOTAL not in path:
            found += rows(_place(path), info)

    doubt = doubts_of(source, name, issues)
    columns = table(found, doubt, text=_NAMES)
    if found:
        columns["Step"] = step_numbers(columns["Step"], doubt)
    return columns


def step_numbers(column: Column, doubt: Doubt) -> Column:
    """A column of steps as int64, ABSENT where there is none ("step50" and "50" are 50)."""
    if column.dtype == np.int64:
        return column
    texts = [str(cell) for cell in column.tolist()]
    found = [match[1] if (match := _STEP.fullmatch(text)) else text for text in texts]
    numbers = typed("", found, doubt)
    return numbers if any(found) else np.full(len(found), ABSENT, np.int64)


def _loaded(source: Source, name: str) -> Any:
    raw = source.read(name, MAX_BYTES)
    try:
        # numbers stay text: times are taken from their digits
        return json.loads(raw, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError) as e:
        raise MalformedInputError(source.title(name), "", f"not JSON: {str(e)[:120]}") from e


def _walk(
    value: Any, path: tuple[str, ...], sign: str
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The objects that have the key ``sign``, with the keys that lead there."""
    if not isinstance(value, Mapping) or len(path) > _DEEPEST:
        return
    if sign in value:
        yield path, value
        return
    for key, inner in value.items():
        yield from _walk(inner, (*path, key), sign)


def _place(path: tuple[str, ...]) -> Row:
    """Step, kind, operator, group and ranks, from the keys above an object."""
    row = dict.fromkeys(("Step", *_NAMES), "")
    for key in path:
        if key in _KINDS and not row["Kind"]:
            row["Kind"] = key
        elif match := _STEP.fullmatch(key):
            row["Step"] = match[1]
        elif match := _LINK.fullmatch(key):
            row |= {"Source": match[1], "Target": match[2]}
        elif key.startswith("("):
            row |= {"Rank Set": key, "Kind": row["Kind"] or "collective"}
        elif key.isdecimal() and row["Operator"]:
            row["Rank"] = key
        else:
            operator, _, row["Group"] = key.partition("@")
            row["Operator"] = operator
    row["Kind"] = row["Kind"] or _KINDS[0 if _P2P.search(row["Operator"]) else 1]
    return row


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _is_pair(value: Any) -> bool:
    """Whether it is a count and a duration; numbers may be written as texts."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    return bool((values([_text(one) for one in value]) >= 0).all())  # NaN is not


def _is_zero(text: str | None) -> bool:
    return not (text or "").strip("0.")


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


_JSON: dict[str, Callable[[Source, str, Issues], Columns]] = {
    "communication": operation_columns,
    "communication_bandwidth": bandwidth_columns,
    "communication_matrix": matrix_columns,
    "cluster_communication": operation_columns,
    "cluster_communication_bandwidth": bandwidth_columns,
    "cluster_communication_matrix": matrix_columns,
    "communication_group": group_columns,
}


# -- databases ------------------------------------------------------------------------------------


_TEXT_HEADINGS = ("Kind", "Operator", "Group", "Op Name", "Transport Type", "Type", "Index")


def database_columns(database: Database, side_table: str, doubt: Doubt) -> Columns:
    """The columns of a side table that a database holds; see
    :class:`traceconv.core.side_tables.SideTable`.
    """
    if side_table in SUMS:
        return _sums(database, *SUMS[side_table], doubt)
    return _MADE[side_table](database)


def _sums(database: Database, name: str, headings: Mapping[str, str], doubt: Doubt) -> Columns:
    there = [column for column in headings if column in database.tables[name]]
    found = [
        {headings[c]: _cell_text(v) for c, v in zip(there, row, strict=True)}
        for row in database.rows(name, *there)
        if _TOTAL not in row  # sums of the others
    ]
    columns = table(found, doubt, text=_TEXT_HEADINGS)
    if "Step" in columns:
        columns["Step"] = step_numbers(columns["Step"], doubt)
    return columns


def _cell_text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _strings(database: Database) -> Callable[[I64], Column]:
    return _named(database.texts("STRING_IDS", "id", "value"))


def _named(names: Mapping[int, str]) -> Callable[[I64], Column]:
    """Numbers of names as names; "" for none and for what is not available."""

    def of(codes: I64) -> Column:
        texts = {c: names.get(c, "") for c in np.unique(codes).tolist()}
        found = np.empty(len(codes), object)
        found[:] = ["" if texts[c] == "N/A" else texts[c] for c in codes.tolist()]
        return found

    return of


def _absent(column: I64) -> I64:
    """Negative numbers, which :meth:`~Database.columns` gives for NULL, as ABSENT."""
    return np.where(column < 0, ABSENT, column)


def _npu(devices: I64) -> Column:
    return _named({d: f"NPU:{d}" for d in np.unique(devices).tolist() if d >= 0})(devices)


def _memory_record(database: Database) -> Columns:
    totals = ("totalAllocated", "totalReserved", "totalActive")
    time = "timestamp|timestampNs"
    wanted = {"component": -1, time: -1, "streamPtr": -1, "deviceId": -1}
    rows = database.columns("MEMORY_RECORD", wanted | dict.fromkeys(totals, np.nan))
    return {
        "Component": _strings(database)(rows["component"]),
        "Timestamp(us)": _absent(rows["timestamp"]),
        "Total Allocated(MB)": rows["totalAllocated"] * MB,
        "Total Reserved(MB)": rows["totalReserved"] * MB,
        "Total Active(MB)": rows["totalActive"] * MB,
        "Stream Ptr": _absent(rows["streamPtr"]),
        "Device Type": _npu(rows["deviceId"]),
    }


def _operator_memory(database: Database) -> Columns:
    times = ("allocationTime", "releaseTime", "activeReleaseTime", "duration", "activeDuration")
    when, totals = ("Allocation", "Release"), ("Allocated", "Reserved", "Active")
    sizes = [f"{w.lower()}Total{t}" for w in when for t in totals]
    wanted = {"name": -1, "streamPtr": -1, "deviceId": -1} | dict.fromkeys(times, -1)
    rows = database.columns("OP_MEMORY", wanted | dict.fromkeys(("size", *sizes), np.nan))
    headings = (
        "Allocation Time", "Release Time", "Active Release Time", "Duration", "Active Duration",
    )  # fmt: skip
    return {
        "Name": _strings(database)(rows["name"]),
        "Size(KB)": rows["size"] * KB,
        **{f"{h}(us)": _absent(rows[t]) for h, t in zip(headings, times, strict=True)},
        **{f"{w} Total {t}(MB)": rows[f"{w.lower()}Total{t}"] * MB for w in when for t in totals},
        "Stream Ptr": _absent(rows["streamPtr"]),
        "Device Type": _npu(rows["deviceId"]),
    }


def _npu_module_mem(database: Database) -> Columns:
    wanted = {"moduleId": -1, "timestampNs": -1, "deviceId": -1, "totalReserved": np.nan}
    rows = database.columns("NPU_MODULE_MEM", wanted)
    return {
        "Component": _named(database.texts("ENUM_MODULE", "id", "name"))(rows["moduleId"]),
        "Timestamp(us)": _absent(rows["timestampNs"]),
        "Total Reserved(MB)": rows["totalReserved"] * MB,
        "Device": _npu(rows["deviceId"]),
    }


_KERNEL = {
    "Name": "name", "Type": "opType", "OP State": "opState", "Accelerator Core": "taskType",
    "HF32 Eligible": "hf32Eligible", "Input Shapes": "inputShapes",
    "Input Data Types": "inputDataTypes", "Input Formats": "inputFormats",
    "Output Shapes": "outputShapes", "Output Data Types": "outputDataTypes",
    "Output Formats": "outputFormats",
}  # fmt: skip


def _kernel_details(database: Database) -> Columns:
    """One row per compute task, in the order of their starts."""
    wanted = {"startNs": -1, "endNs": -1, "globalTaskId": -1, "deviceId": -1}
    tasks = database.columns("TASK", wanted | {"streamId": -1, "taskId": -1, "modelId": -1})
    block, mix = "blockNum|block_dim|blockDim", "mixBlockDim|mixBlockNum"
    names = dict.fromkeys(_KERNEL.values(), -1)
    info = database.columns(
        "COMPUTE_TASK_INFO", {"globalTaskId": -1, block: -1, mix: -1, "waitNs": -1, **names}
    )
    at = lookup(info["globalTaskId"], tasks["globalTaskId"])
    kept = np.flatnonzero((at >= 0) & (tasks["startNs"] >= 0))
    kept = kept[np.argsort(tasks["startNs"][kept], kind="stable")]
    at, tasks = at[kept], {name: column[kept] for name, column in tasks.items()}
    named = _strings(database)
    own = {heading: named(picked(info[column], at)) for heading, column in _KERNEL.items()}
    return {
        "Device_id": _absent(tasks["deviceId"]),
        "Model ID": _absent(tasks["modelId"]),
        "Task ID": _absent(tasks["taskId"]),
        "Stream ID": _absent(tasks["streamId"]),
        "Start Time(us)": tasks["startNs"],
        "Duration(us)": np.maximum(tasks["endNs"] - tasks["startNs"], 0),
        "Wait Time(us)": _absent(picked(info["waitNs"], at)),
        "Block Dim": _absent(picked(info["blockNum"], at)),
        "Mix Block Dim": _absent(picked(info["mixBlockDim"], at)),
        **own,
    }


_MADE: Mapping[str, Callable[[Database], Columns]] = {
    "kernel_details": _kernel_details,
    "memory_record": _memory_record,
    "operator_memory": _operator_memory,
    "npu_module_mem": _npu_module_mem,
}
