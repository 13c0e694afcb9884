"""Tasks of the hardware streams: table TASK with what other tables say about each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I8, I64, Layer, OpClass
from traceconv.readers.ascend.db.export import TIMES, Export, graphs
from traceconv.readers.shared import ascend_lanes as ops
from traceconv.readers.shared.arguments import (
    Columns,
    apart,
    combined,
    factored,
    label,
    lookup,
    number,
    picked,
    quoted,
    text,
    tracks,
)
from traceconv.readers.shared.sqlite.database import Column

# Readings of the performance counters of tasks: table TASK_PMU_INFO as arguments.


class Pmu:
    """The readings of every task; :meth:`members` gives them as JSON, batch by batch.

    Readings of tasks that are not there, and those that are NULL, are booked.
    """

    def __init__(self, export: Export, tasks: I64) -> None:
        """
        Args:
            tasks: global task ids, in the order of the rows asked for later.
        """
        wanted = {"globalTaskId": -1, "name": -1, "value": math.nan}
        rows = export.database.columns("TASK_PMU_INFO", wanted)
        known = np.isin(rows["globalTaskId"], tasks) & ~np.isnan(rows["value"])
        export.build.skip("metadata-unused", "table TASK_PMU_INFO", int((~known).sum()))
        order = np.flatnonzero(known)
        order = order[np.argsort(rows["globalTaskId"][order], kind="stable")]
        owner = rows["globalTaskId"][order]
        self._start = np.searchsorted(owner, tasks, "left")
        self._stop = np.searchsorted(owner, tasks, "right")
        self._name, self._value = rows["name"][order], rows["value"][order]
        self._keys = {
            i: b"," + quoted(export.strings.get(i, f"pmu {i}")) + b":"
            for i in np.unique(self._name).tolist()
        }

    def members(self, rows: slice) -> list[bytes]:
        """``,"key":value`` of each task's readings; ``b""`` where it has none."""
        start, count = self._start[rows], (self._stop - self._start)[rows]
        if not count.any():
            return [b""] * len(count)
        ends = np.cumsum(count)
        at = np.repeat(start - ends + count, count) + np.arange(ends[-1])
        said = [
            self._keys[name] + b"%.15g" % value
            for name, value in zip(self._name[at].tolist(), self._value[at].tolist(), strict=True)
        ]
        borders = [0, *ends.tolist()]
        return [b"".join(said[a:b]) for a, b in pairwise(borders)]


NO_CONTEXT = NO_CONNECTION = 4294967295

_MARK = "MsTx"
"""Type of the tasks that marks of the host leave on the device."""

_WANTED = {
    **TIMES, "deviceId": -1, "connectionId": -1, "globalTaskId": -1, "taskType": -1,
    "contextId": NO_CONTEXT, "streamId": -1, "taskId": -1, "modelId": -1,
}  # fmt: skip

_OPERATOR = {
    "globalTaskId": -1, "name": -1, "taskType": -1, "opType": -1, "mixBlockDim|mixBlockNum": -1,
    "inputFormats": -1, "inputDataTypes": -1, "inputShapes": -1, "outputFormats": -1,
    "outputDataTypes": -1, "outputShapes": -1, "attrInfo": -1, "opState": -1,
    "hf32Eligible": -1, "gridDim": -1,
}  # fmt: skip
_SAID = {
    "Op Type": "opType", "Input Formats": "inputFormats", "Input Data Types": "inputDataTypes",
    "Input Shapes": "inputShapes", "Output Formats": "outputFormats",
    "Output Data Types": "outputDataTypes", "Output Shapes": "outputShapes", "Attr": "attrInfo",
    "State": "opState", "HF32 Eligible": "hf32Eligible", "Grid Dim": "gridDim",
}  # fmt: skip


COPIES = {
    0: "host to host", 1: "host to device", 2: "device to host", 3: "device to device",
    4: "managed memory", 5: "addr device to device", 6: "host to device ex",
    7: "device to host ex", 65535: "other",
}  # fmt: skip
"""What MEMCPY_INFO calls its operations."""


@dataclass(frozen=True)
class Tasks:
    """The rows of TASK as other tables refer to them.

    Attributes:
        columns:  those of TASK, usable rows only.
        dur_ns:   durations.
        row:      the event of each.
        launched: those that a call on the host is meant to have launched: operators and copies.
        parent:   those that only hold others (the same task, with a context): no arrow ends there.
        mark:     marks of the host.
    """

    columns: dict[str, Column]
    dur_ns: I64
    row: I64
    launched: NDArray[np.bool_]
    parent: NDArray[np.bool_]
    mark: NDArray[np.bool_]

    def of_connection(self, column: str, connections: I64) -> I64:
        """A column's value in the first task of each connection; -1 where there is none."""
        at = lookup(self.columns["connectionId"], connections)
        return picked(self.columns[column], np.where(connected(connections), at, -1))


def connected(connections: I64) -> NDArray[np.bool_]:
    """Which are ids of a connection, and not the stand-in for none."""
    there: NDArray[np.bool_] = (connections >= 0) & (connections < NO_CONNECTION)
    return there


def tasks(export: Export) -> Tasks:
    """Put every task on its stream."""
    rows, dur = export.timed(export.database.columns("TASK", _WANTED), "TASK")
    facts = _facts(export, rows)
    mark = _is_named(export, rows["taskType"], _MARK)
    ids = {"Task Id": "taskId", "Subtask Id": "contextId", "connection_id": "connectionId"}
    args = apart(
        export.build,
        {key: rows[name] for key, name in ids.items()},
        _arguments(export, rows, facts),
        Pmu(export, rows["globalTaskId"]).members,
    )

    def stream(device: int, number: int) -> int:
        name = f"Stream {number}"
        return export.build.track(Layer.DEVICE, name, export.device(device), "Ascend Hardware")

    first = export.build.extend(
        track=tracks((rows["deviceId"], rows["streamId"]), stream),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=export.names(_marked(export, mark, rows["connectionId"], facts.name), "TASK"),
        op=facts.op,
        graph=graphs(rows["modelId"]),
        args=args,
    )
    copies = _is_named(export, rows["taskType"], "MEMCPY_ASYNC")
    row = np.arange(first, first + len(dur), dtype=np.int64)
    return Tasks(rows, dur, row, facts.operator | copies, _parents(rows), mark)


def _is_named(export: Export, ids: I64, name: str) -> NDArray[np.bool_]:
    return np.isin(ids, [i for i, said in export.strings.items() if said == name])


def _marked(export: Export, mark: NDArray[np.bool_], connections: I64, names: I64) -> I64:
    """The names, for marks those that the host gave them."""
    if not mark.any():
        return names
    said = export.database.columns("MSTX_EVENTS", {"connectionId": -1, "message": -1})
    message = picked(said["message"], lookup(said["connectionId"], connections))
    return np.where(mark & (message >= 0), message, names)


@dataclass(frozen=True)
class _Facts:
    """What the tables beside TASK say of its rows.

    Attributes:
        operator: whether a row carries out an operator.
        columns:  those of COMPUTE_TASK_INFO, -1 where there is none.
    """

    name: I64
    operator: NDArray[np.bool_]
    op: I8
    columns: dict[str, I64]


def _facts(export: Export, rows: dict[str, Column]) -> _Facts:
    block = "blockNum|block_dim|blockDim"  # newer ones mean something else by "blockDim"
    compute = export.database.columns("COMPUTE_TASK_INFO", {**_OPERATOR, block: -1})
    schedule = export.database.columns(
        "COMMUNICATION_SCHEDULE_TASK_INFO", {"globalTaskId": -1, "name": -1}
    )
    at = lookup(compute.pop("globalTaskId"), rows["globalTaskId"])
    columns = {name: picked(column, at) for name, column in compute.items()}
    scheduled = lookup(schedule["globalTaskId"], rows["globalTaskId"])
    kind = np.where(at >= 0, 2, np.where(scheduled >= 0, 1, 0))
    name = np.where(kind == 1, picked(schedule["name"], scheduled), rows["taskType"])
    name = np.where(kind == 2, columns["name"], name)
    codes, table = combined(name, kind, columns["taskType"])
    classes = [_class(export, *row) for row in table]
    return _Facts(name, kind > 0, np.array(classes, np.int8)[codes], columns)


def _class(export: Export, name: int, kind: int, task_type: int) -> OpClass:
    """What a task does. Only tasks with an operator's name compute."""
    said = export.strings.get(name, "")
    named = ops.task_named(said)
    if kind == 1 or (named and named.op == OpClass.COMM_TASK):
        return OpClass.COMM_TASK
    if kind == 2:
        of_type = ops.BY_TASK_TYPE.get(export.strings.get(task_type, ""))
        return OpClass.COMM_TASK if of_type == OpClass.COMM_TASK else OpClass.COMPUTE
    op = named.op if named else ops.BY_TASK_TYPE.get(said, OpClass.OTHER)
    return OpClass.OTHER if op == OpClass.COMPUTE else op


def _parents(rows: dict[str, Column]) -> NDArray[np.bool_]:
    """Tasks without a context, where others of the same task have one."""
    columns = (rows[n] for n in ("deviceId", "streamId", "taskId", "connectionId"))
    codes, _ = combined(*columns)
    inner: NDArray[np.bool_] = rows["contextId"] != NO_CONTEXT
    return ~inner & np.isin(codes, factored(codes[inner])[0])


def _arguments(export: Export, rows: dict[str, Column], facts: _Facts) -> Columns:
    """Members under the keys the JSON export has for them, then what the operator's row says."""
    said, columns = text(export.strings), facts.columns
    copies = export.database.columns(
        "MEMCPY_INFO", {"globalTaskId": -1, "size": -1, "memcpyOperation": -1}
    )
    at = lookup(copies["globalTaskId"], rows["globalTaskId"])
    return {
        "Model Id": (rows["modelId"], number),
        "Task Type": (
            np.where(columns["taskType"] >= 0, columns["taskType"], rows["taskType"]),
            said,
        ),
        "Physic Stream Id": (rows["streamId"], number),
        **{key: (columns[name], said) for key, name in _SAID.items()},
        "Block Num": (columns["blockNum"], number),
        "Mix Block Num": (columns["mixBlockDim"], number),
        "size(B)": (picked(copies["size"], at), number),
        "operation": (
            picked(copies["memcpyOperation"], at),
            label(export.enum("ENUM_MEMCPY_OPERATION", COPIES)),
        ),
    }
