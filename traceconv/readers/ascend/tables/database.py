"""Tables that lie in databases, under the headings of the CSV and JSON that say the same.

``analysis.db`` and ``communication_analyzer.db`` hold sums, as text or numbers of milli- and
microseconds; the databases of events hold the samples of memory and the operators, in ns and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from traceconv.core.model import I64
from traceconv.core.side_tables import ABSENT
from traceconv.readers.ascend.db.gauges import KB, MB
from traceconv.readers.ascend.tables.communication_json import whole
from traceconv.readers.ascend.tables.names import SUMS
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.csv_tables import Column, Doubt, table
from traceconv.readers.shared.sqlite.database import Database

Columns = dict[str, Column]

_NAMES = ("Kind", "Operator", "Group", "Op Name", "Transport Type")


def database_columns(database: Database, side_table: str, doubt: Doubt) -> Columns:
    """The columns of a side table that a database holds; see :class:`traceconv.core.side_tables.SideTable`."""
    if side_table in SUMS:
        return _sums(database, *SUMS[side_table], doubt)
    return _MADE[side_table](database)


def _sums(database: Database, name: str, headings: Mapping[str, str], doubt: Doubt) -> Columns:
    there = [column for column in headings if column in database.tables[name]]
    found = [
        {headings[c]: _text(v) for c, v in zip(there, row, strict=True)}
        for row in database.rows(name, *there)
    ]
    columns = table(found, doubt, text=_NAMES)
    if "Step" in columns:
        columns["Step"] = whole(columns["Step"], doubt)
    return columns


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


# -- tables of events -----------------------------------------------------------------------


def _strings(database: Database) -> Callable[[I64], Column]:
    return _named(database.texts("STRING_IDS", "id", "value"))


def _named(names: Mapping[int, str]) -> Callable[[I64], Column]:
    """Numbers of names as names; "" for none and for what is not available."""

    def of(codes: I64) -> Column:
        said = {c: names.get(c, "") for c in np.unique(codes).tolist()}
        found = np.empty(len(codes), object)
        found[:] = ["" if said[c] == "N/A" else said[c] for c in codes.tolist()]
        return found

    return of


def _absent(column: I64) -> I64:
    """Without the stand-in of :meth:`Database.columns` for what is not there."""
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
    said = _strings(database)
    own = {heading: said(picked(info[column], at)) for heading, column in _KERNEL.items()}
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
