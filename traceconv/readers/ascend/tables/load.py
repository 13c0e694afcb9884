"""Reading the tables of Ascend captures: CSV, ``communication*.json``, and tables in databases.

All have the headings of the newest generation of CSV.

``communication.json`` and ``communication_matrix.json`` have one layout each for all files of these
names: with steps (``step5``: p2p or collective: operator) from the framework profilers, without
them from CANN, and by groups of ranks from cluster tools (``(0, 1)``: step: operator: rank).

``analysis.db`` and ``communication_analyzer.db`` hold totals, as text or numbers of milli- and
microseconds; the databases of events hold samples of memory and the operators, in ns and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from traceconv.core.errors import Issues
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns, below_each_other
from traceconv.core.source import Source
from traceconv.readers.ascend.db.export import KB, MB
from traceconv.readers.ascend.tables.json_rows import (
    Row,
    cell,
    columns_of,
    doubts_of,
    listed,
    loaded,
    mapping,
    row,
)  # fmt: skip
from traceconv.readers.ascend.tables.names import STEP_TIMES, SUMS
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.csv_tables import Column, Doubt, csv_parts, table, typed
from traceconv.readers.shared.numbers import values
from traceconv.readers.shared.sqlite.database import Database, opened

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


def load(source: Source, table: str, files: tuple[str, ...], issues: Issues) -> Columns:
    """The columns of one table, of one or several files.

    Raises:
        SourceError, MalformedInputError: it cannot be read.
    """
    text = [name for name in files if name.endswith((".csv", ".csv.gz"))]
    parts = [csv_parts(source, text, issues, renamed=_HEADINGS.get(table, {}))] if text else []
    for name in files:
        if name.endswith(".json"):
            parts.append(dict(_JSON[table](source, name, issues)))
        elif name not in text:
            with opened(source, name, salvage=True) as database:
                doubt = doubts_of(source, name, issues)
                parts.append(dict(database_columns(database, table, doubt)))
    columns = below_each_other([part for part in parts if part])
    for heading in ("Step", "Step Id"):
        if heading in columns and columns[heading].dtype == object:
            # every cell was typed before, and its issues reported
            columns[heading] = step_numbers(columns[heading], lambda *_: None)
    return columns


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


def operation_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per communication operator of ``communication.json``.

    Columns: ``Step`` (int64), ``Kind`` ("p2p", "collective"), ``Operator``, ``Group``, then those
    of the file: ``Start Timestamp(us)`` ... ``Synchronization Time Ratio``. Files of cluster tools
    also have ``Rank Set`` and ``Rank``. Totals in the file are left out.

    Raises:
        SourceError: the file cannot be read, or is too large.
        MalformedInputError: it holds no JSON object.
    """
    operators = _operators(source, name, _TIMES)
    rows = [position | row(info[_TIMES]) for position, info in operators if mapping(info[_TIMES])]
    return _typed(source, name, issues, rows)


def bandwidth_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per operator, transport and size of packages of ``communication.json``.

    Transports that carried nothing are left out, as in databases.

    Columns: as :func:`operation_columns`, then ``Transport Type``, ``Transit Size(MB)``,
    ``Transit Time(ms)``, ``Bandwidth(GB/s)``, ``Large Packet Ratio``, ``Package Size(MB)``,
    ``Count``, ``Total Duration(ms)``. Errors as there.
    """
    rows = []
    for position, info in _operators(source, name, _TIMES):
        for transport, figures in mapping(info.get(_BANDWIDTH)).items():
            sums = {key: figure for key, figure in mapping(figures).items() if key != _SIZES}
            row_start = position | {"Transport Type": transport} | row(sums)
            sizes = mapping(mapping(figures).get(_SIZES))
            good = {size: pair for size, pair in sizes.items() if _is_pair(pair)}
            where = f"{position['Operator']}: {_SIZES}"
            issues.add("malformed-record", source.title(name), where, len(sizes) - len(good))
            if not good and not row_start.get("Transit Size(MB)", "").strip("0."):
                continue
            for size, (count, total) in (good or {"0": ("0", "0")}).items():
                package = {"Package Size(MB)": size, "Count": cell(count)}
                rows.append(row_start | package | {"Total Duration(ms)": cell(total)})
    return _typed(source, name, issues, rows)


def matrix_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per operator and link of ``communication_matrix.json``.

    Columns: ``Step`` (int64), ``Kind``, ``Operator``, ``Group``, ``Source`` and ``Target`` (ranks),
    ``Transport Type``, ``Transit Size(MB)``, ``Transit Time(ms)``, ``Bandwidth(GB/s)`` and
    ``Op Name``. Errors as :func:`operation_columns`.
    """
    links = _operators(source, name, "Transport Type")
    rows = [position | row(info, {"op_name": "Op Name"}) for position, info in links]
    return _typed(source, name, issues, rows)


def group_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per group of ranks of ``communication_group.json``.

    Columns: ``Kind`` and ``Rank Set`` ("(0, 1)"). Errors as :func:`operation_columns`.
    """
    rows = [
        {"Kind": kind, "Rank Set": f"({', '.join(map(cell, ranks))})"}
        for kind, groups in loaded(source, name).items()
        if kind in _KINDS
        for ranks in listed(groups)
        if isinstance(ranks, list)
    ]
    return columns_of(source, name, issues, rows, text=("Kind", "Rank Set"))


_JSON: dict[str, Callable[[Source, str, Issues], Columns]] = {
    "communication": operation_columns,
    "communication_bandwidth": bandwidth_columns,
    "communication_matrix": matrix_columns,
    "cluster_communication": operation_columns,
    "cluster_communication_bandwidth": bandwidth_columns,
    "cluster_communication_matrix": matrix_columns,
    "communication_group": group_columns,
}


def _operators(source: Source, name: str, sign: str) -> Iterator[tuple[Row, Mapping[str, Any]]]:
    """The objects that have the key ``sign``, with the place that the keys above them name."""
    stack: list[tuple[tuple[str, ...], Any]] = [((), loaded(source, name))]
    while stack:
        path, value = stack.pop()
        if sign in mapping(value):
            yield _place(path), value
        elif len(path) <= _DEEPEST:
            inner = [
                ((*path, key), member) for key, member in mapping(value).items() if key != _TOTAL
            ]
            stack += reversed(inner)


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
            row["Operator"], _, row["Group"] = key.partition("@")
    row["Kind"] = row["Kind"] or _KINDS[0 if _P2P.search(row["Operator"]) else 1]
    return row


def _typed(source: Source, name: str, issues: Issues, rows: list[Row]) -> Columns:
    columns = columns_of(source, name, issues, rows, text=_NAMES)
    if rows:
        columns["Step"] = step_numbers(columns["Step"], doubts_of(source, name, issues))
    return columns


def step_numbers(column: Column, doubt: Doubt) -> Column:
    """A column of steps as int64, ABSENT for empty cells ("step50" and "50" are 50)."""
    if column.dtype == np.int64:
        return column
    texts = [str(cell) for cell in column.tolist()]
    number_texts = [match[1] if (match := _STEP.fullmatch(text)) else text for text in texts]
    numbers = typed("", number_texts, doubt)
    return numbers if any(number_texts) else np.full(len(number_texts), ABSENT, np.int64)


def _is_pair(value: Any) -> bool:
    """Whether it is a count and a duration; numbers may be written as texts."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    return bool((values([cell(member) for member in value]) >= 0).all())  # NaN is not


# -- databases ------------------------------------------------------------------------------------

_TEXT_HEADINGS = ("Kind", "Operator", "Group", "Op Name", "Transport Type", "Type", "Index")

_STRINGS, _MODULES, _NPU = "STRING_IDS", "ENUM_MODULE", "NPU"
"""How a number is shown: by its string, as a component of the NPU, as a device ("NPU:0")."""

Cells = tuple[str, str | float | None]
"""A column, and how it is shown: by one of the names above, in a unit, or as it is."""


def _totals(prefix: str = "", when: str = "") -> dict[str, Cells]:
    totals = ("Allocated", "Reserved", "Active")
    return {
        f"{prefix}Total {sort_of_total}(MB)": (f"{when}otal{sort_of_total}", MB)
        for sort_of_total in totals
    }


_KERNEL_TEXTS = {
    "Name": "name", "Type": "opType", "OP State": "opState", "Accelerator Core": "taskType",
    "HF32 Eligible": "hf32Eligible", "Input Shapes": "inputShapes",
    "Input Data Types": "inputDataTypes", "Input Formats": "inputFormats",
    "Output Shapes": "outputShapes", "Output Data Types": "outputDataTypes",
    "Output Formats": "outputFormats",
}  # fmt: skip

_MADE: Mapping[str, tuple[str, Mapping[str, Cells]]] = {
    "memory_record": ("MEMORY_RECORD", {
        "Component": ("component", _STRINGS), "Timestamp(us)": ("timestamp|timestampNs", None),
        **_totals(when="t"), "Stream Ptr": ("streamPtr", None), "Device Type": ("deviceId", _NPU),
    }),
    "operator_memory": ("OP_MEMORY", {
        "Name": ("name", _STRINGS), "Size(KB)": ("size", KB),
        "Allocation Time(us)": ("allocationTime", None), "Release Time(us)": ("releaseTime", None),
        "Active Release Time(us)": ("activeReleaseTime", None), "Duration(us)": ("duration", None),
        "Active Duration(us)": ("activeDuration", None),
        **_totals("Allocation ", "allocationT"), **_totals("Release ", "releaseT"),
        "Stream Ptr": ("streamPtr", None), "Device Type": ("deviceId", _NPU),
    }),
    "npu_module_mem": ("NPU_MODULE_MEM", {
        "Component": ("moduleId", _MODULES), "Timestamp(us)": ("timestampNs", None),
        "Total Reserved(MB)": ("totalReserved", MB), "Device": ("deviceId", _NPU),
    }),
    "kernel_details": ("", {
        "Device_id": ("deviceId", None), "Model ID": ("modelId", None), "Task ID": ("taskId", None),
        "Stream ID": ("streamId", None), "Start Time(us)": ("startNs", None),
        "Duration(us)": ("duration", None), "Wait Time(us)": ("waitNs", None),
        "Block Dim": ("blockNum|block_dim|blockDim", None),
        "Mix Block Dim": ("mixBlockDim|mixBlockNum", None),
        **{heading: (column, _STRINGS) for heading, column in _KERNEL_TEXTS.items()},
    }),
}  # fmt: skip
"""Side tables made of tables of events: the table, and each column by its heading."""


def database_columns(database: Database, side_table: str, doubt: Doubt) -> Columns:
    """The columns of a side table that a database holds; see
    :class:`traceconv.core.side_tables.SideTable`.
    """
    if side_table in SUMS:
        return _sums(database, *SUMS[side_table], doubt)
    name, headings = _MADE[side_table]
    requested = {
        column: np.nan if isinstance(how, float) else -1 for column, how in headings.values()
    }
    rows = database.columns(name, requested) if name else _kernels(database, requested)
    return {
        heading: _written(database, rows[column.partition("|")[0]], how)
        for heading, (column, how) in headings.items()
    }


def _written(database: Database, column: Column, how: str | float | None) -> Column:
    if how is None:  # NULL reads as a negative number
        return np.where(column < 0, ABSENT, column)
    if isinstance(how, float):
        return column * how
    codes, back = np.unique(column, return_inverse=True)
    if how == _NPU:
        names = {code: f"NPU:{code}" for code in codes.tolist() if code >= 0}
    else:
        names = database.texts(how, "id", "value" if how == _STRINGS else "name")
    texts = np.array([names.get(code, "") for code in codes.tolist()], object)
    return np.where(texts == "N/A", "", texts)[back] if len(texts) else texts


def _kernels(database: Database, requested: Mapping[str, Any]) -> Columns:
    """The compute tasks in the order of their starts."""
    task_fields = ("startNs", "endNs", "globalTaskId", "deviceId", "streamId", "taskId", "modelId")
    tasks = database.columns("TASK", dict.fromkeys(task_fields, -1))
    of_info = {column: -1 for column in requested if column not in task_fields}
    info = database.columns("COMPUTE_TASK_INFO", {"globalTaskId": -1, **of_info})
    info_rows = lookup(info["globalTaskId"], tasks["globalTaskId"])
    chosen = np.flatnonzero((info_rows >= 0) & (tasks["startNs"] >= 0))
    chosen = chosen[np.argsort(tasks["startNs"][chosen], kind="stable")]
    rows = {name: picked(column, info_rows[chosen]) for name, column in info.items()}
    rows |= {name: column[chosen] for name, column in tasks.items()}
    return {**rows, "duration": np.maximum(rows["endNs"] - rows["startNs"], 0)}


def _sums(database: Database, name: str, headings: Mapping[str, str], doubt: Doubt) -> Columns:
    present = [column for column in headings if column in database.tables[name]]

    def text(value: object) -> str:
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return "" if value is None else str(value)

    texts = [
        {headings[c]: text(v) for c, v in zip(present, stored, strict=True)}
        for stored in database.rows(name, *present)
        if _TOTAL not in stored
    ]
    columns = table(texts, doubt, text=_TEXT_HEADINGS)
    if "Step" in columns:
        columns["Step"] = step_numbers(columns["Step"], doubt)
    return columns
