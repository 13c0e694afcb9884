"""A device's work in a database: tasks on streams, communication on lanes and planes.

Table TASK has the times; other tables have what each task is. An operation of communication is
put on the lane of its group as a whole, its parts on the group's planes at the times of their
tasks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I8, I64, Layer, OpClass
from traceconv.core.ordering import combined_key, factored_rows
from traceconv.core.patterns import lazy_regex
from traceconv.readers.ascend.db.export import TIMES, Export, graphs
from traceconv.readers.shared.arguments import (
    Columns,
    apart,
    label,
    lookup,
    number,
    picked,
    quoted,
    text,
    tracks,
)
from traceconv.readers.shared.ascend_lanes import COPY_DIRECTIONS, Communicator
from traceconv.readers.shared.ascend_marks import MARKS, communication_of
from traceconv.readers.shared.ascend_tasks import named_class, task_class
from traceconv.readers.shared.sqlite.database import Column


class Pmu:
    """Performance counters of tasks, table TASK_PMU_INFO; :meth:`Pmu.members` gives them as JSON.

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
        # readings sorted by task: those of a task are between two positions
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
        # positions of all readings of the batch: runs from each start, one after the other
        at = np.repeat(start - ends + count, count) + np.arange(ends[-1])
        texts = [
            self._keys[name] + b"%.15g" % value
            for name, value in zip(self._name[at].tolist(), self._value[at].tolist(), strict=True)
        ]
        borders = [0, *ends.tolist()]
        return [b"".join(texts[a:b]) for a, b in pairwise(borders)]


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
_STRINGS = {
    "Op Type": "opType", "Input Formats": "inputFormats", "Input Data Types": "inputDataTypes",
    "Input Shapes": "inputShapes", "Output Formats": "outputFormats",
    "Output Data Types": "outputDataTypes", "Output Shapes": "outputShapes", "Attr": "attrInfo",
    "State": "opState", "HF32 Eligible": "hf32Eligible", "Grid Dim": "gridDim",
}  # fmt: skip


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
    """Which are ids of a connection, and not the number for none."""
    there: NDArray[np.bool_] = (connections >= 0) & (connections < NO_CONNECTION)
    return there


def tasks(export: Export) -> Tasks:
    """Put every task on its stream."""
    rows, dur = export.timed(export.database.columns("TASK", _WANTED), "TASK")
    facts = _facts(export, rows)
    mark = _is_named(export, rows["taskType"], _MARK)
    message = np.where(mark, _messages(export, rows["connectionId"]), -1)
    said = {
        i: communication
        for i in np.unique(message).tolist()
        if (communication := communication_of(export.strings.get(i, "")))
    }
    operation = np.isin(message, list(said))
    ids = {"Task Id": "taskId", "Subtask Id": "contextId", "connection_id": "connectionId"}
    args = apart(
        export.build,
        {key: rows[name] for key, name in ids.items()},
        {**_arguments(export, rows, facts), **_said(message, said)},
        Pmu(export, rows["globalTaskId"]).members,
    )

    def lane(device: int, number: int, mark: int, message: int) -> int:
        layer, title, of = Layer.DEVICE, "Ascend Hardware", Communicator()
        if message >= 0:
            layer, title = Layer.COMM, "Communication"
            of = Communicator.named(said[message]["groupName"])
        elif mark:
            layer, title = Layer.OTHER, MARKS
        return export.device_track(
            layer,
            f"Stream {number}",
            device,
            title,
            inner=of.title,
            stream=max(number, -1),
            communicator=of.name,
        )

    # in graphs a whole operation of HCCL is a task, too: a part of it, so to say
    calls = export.database.columns("COMMUNICATION_OP", {"connectionId": -1})["connectionId"]
    call = np.isin(rows["connectionId"], calls) & connected(rows["connectionId"])
    call &= facts.op == OpClass.UNCLASSIFIED
    parent = _parents(rows)  # what it does its subtasks do
    op = np.where(parent & (facts.op == OpClass.UNCLASSIFIED), OpClass.OTHER, facts.op)
    parts = export.database.columns("COMMUNICATION_TASK_INFO", {"globalTaskId": -1})
    call |= (op == OpClass.COPY) & np.isin(rows["globalTaskId"], parts["globalTaskId"])
    op = np.where(call, OpClass.COMM_TASK, op)
    op = np.where(mark, np.where(operation, OpClass.COMM, OpClass.OTHER), op)
    shown = (mark.astype(np.int64), np.where(operation, message, -1))
    first = export.build.extend(
        track=tracks((rows["deviceId"], rows["streamId"], *shown), lane),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=export.names(
            np.where(message >= 0, message, facts.name),
            "TASK",
            {i: one["opName"] for i, one in said.items()},
        ),
        op=op.astype(np.int8),
        graph=graphs(rows["modelId"]),
        args=args,
    )
    copies = _is_named(export, rows["taskType"], "MEMCPY_ASYNC")
    row = np.arange(first, first + len(dur), dtype=np.int64)
    return Tasks(rows, dur, row, facts.operator | copies, parent, mark)


def _is_named(export: Export, ids: I64, name: str) -> NDArray[np.bool_]:
    return np.isin(ids, [i for i, string in export.strings.items() if string == name])


def _messages(export: Export, connections: I64) -> I64:
    """The messages of the host's marks by their connections; -1 where there is none."""
    marks = export.database.columns("MSTX_EVENTS", {"connectionId": -1, "message": -1})
    return picked(marks["message"], lookup(marks["connectionId"], connections))


def _said(message: I64, said: Mapping[int, Mapping[str, Any]]) -> Columns:
    """Members of the operations of HCCL that marks tell of."""
    keys = {key: None for one in said.values() for key in one}

    def value(key: str) -> Callable[[int], bytes]:
        return lambda i: json.dumps(said[i][key]).encode() if key in said.get(i, ()) else b""

    return {key: (message, value(key)) for key in keys}


@dataclass(frozen=True)
class _Facts:
    """What is in the tables beside TASK about its rows.

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
    # 2: an operator, 1: scheduled for a communication, 0: neither
    kind = np.where(at >= 0, 2, np.where(scheduled >= 0, 1, 0))
    name = np.where(kind == 1, picked(schedule["name"], scheduled), rows["taskType"])
    name = np.where(kind == 2, columns["name"], name)
    table, codes = factored_rows(name, kind, columns["taskType"])
    classes = [_class(export, *row) for row in table]
    return _Facts(name, kind > 0, np.array(classes, np.int8)[codes], columns)


def _class(export: Export, name: int, kind: int, task_type: int) -> OpClass:
    """What a task does. Only tasks with an operator's name compute."""
    if kind == 1:
        return OpClass.COMM_TASK
    string = export.strings.get(name, "")
    if kind == 2:
        return task_class(string, export.strings.get(task_type, ""))
    op = named_class(string)
    return OpClass.UNCLASSIFIED if op is None else op


def _parents(rows: dict[str, Column]) -> NDArray[np.bool_]:
    """Tasks without a context, where others of the same task have one."""
    task = combined_key(*(rows[n] for n in ("deviceId", "streamId", "taskId", "connectionId")))
    inner: NDArray[np.bool_] = rows["contextId"] != NO_CONTEXT
    different, which = np.unique(task, return_inverse=True)
    has_inner = np.zeros(len(different), bool)
    has_inner[which[inner]] = True
    return ~inner & has_inner[which]


def _arguments(export: Export, rows: dict[str, Column], facts: _Facts) -> Columns:
    """Members under the keys the JSON export has for them, then those of the operator's row."""
    string, columns = text(export.strings), facts.columns
    copies = export.database.columns(
        "MEMCPY_INFO", {"globalTaskId": -1, "size": -1, "memcpyOperation": -1}
    )
    at = lookup(copies["globalTaskId"], rows["globalTaskId"])
    return {
        "Model Id": (rows["modelId"], number),
        "Task Type": (
            np.where(columns["taskType"] >= 0, columns["taskType"], rows["taskType"]),
            string,
        ),
        "Physic Stream Id": (rows["streamId"], number),
        **{key: (columns[name], string) for key, name in _STRINGS.items()},
        "Block Num": (columns["blockNum"], number),
        "Mix Block Num": (columns["mixBlockDim"], number),
        "size(B)": (picked(copies["size"], at), number),
        "operation": (
            picked(copies["memcpyOperation"], at),
            label(export.enum("ENUM_MEMCPY_OPERATION", {**COPY_DIRECTIONS, 65535: "other"})),
        ),
    }


# -- communication --------------------------------------------------------------------------------

_COMMUNICATION = 5500
"""The number of this kind of call in ENUM_API_TYPE; its name changed over time."""

_ADDRESS = lazy_regex(r"%|\d\.\d+\.\d+\.\d|\A\d{6,}\Z")
"""Names of groups made from the addresses of hosts, or hashed."""

_NO_PLANE = 4294967295
_NO_NOTIFY = (-1, 2**63 - 1)

_WHOLE = {
    **TIMES, "opName": -1, "connectionId": -1, "groupName": -1, "relay": -1, "retry": -1,
    "dataType": -1, "algType": -1, "count": -1, "opType": -1, "deviceId": -1, "rankSize": -1,
}  # fmt: skip
_PARTS = {
    "globalTaskId": -1, "name": -1, "taskType": -1, "planeId": 0, "groupName": -1, "notifyId": -1,
    "rdmaType": -1, "srcRank": -1, "dstRank": -1, "transportType": -1, "size": -1,
    "dataType": -1, "linkType": -1,
}  # fmt: skip


@dataclass(frozen=True)
class Operations:
    """Whole operations as arrows refer to them: connections, and the event of each."""

    connection: I64
    row: I64


class Communication:
    """Reads the tables of communication; groups are named as the JSON export names them."""

    def __init__(self, export: Export, tasks: Tasks) -> None:
        self._export, self._tasks = export, tasks
        api = export.database.texts("ENUM_API_TYPE", "id", "name")
        self._title = "HCCL" if api.get(_COMMUNICATION) == "hccl" else "Communication"
        self._operations = export.database.columns("COMMUNICATION_OP", _WHOLE)
        self._parts = export.database.columns("COMMUNICATION_TASK_INFO", _PARTS)
        order = np.argsort(self._operations["startNs"], kind="stable")
        used = (self._operations["groupName"][order], self._parts["groupName"])
        self._groups = communicators(np.concatenate(used), export.strings)

    def operations(self) -> Operations:
        """Put whole operations on the lanes of their groups."""
        export, build = self._export, self._export.build
        rows, dur = export.timed(self._operations, "COMMUNICATION_OP")
        of_task = self._tasks.of_connection("deviceId", rows["connectionId"])
        device = np.where(rows["deviceId"] >= 0, rows["deviceId"], of_task)
        names, string = label(export.enum("ENUM_HCCL_DATA_TYPE")), text(export.strings)
        args = apart(
            build,
            {"connection_id": rows["connectionId"]},
            {
                "data_type": (rows["dataType"], names),
                "alg_type": (rows["algType"], string),
                "count": (rows["count"], number),
                "op_type": (rows["opType"], string),
                "rank_size": (rows["rankSize"], number),
                "relay": (rows["relay"], label({0: "no", 1: "yes"})),
                "retry": (rows["retry"], label({0: "no", 1: "yes"})),
            },
        )
        first = build.extend(
            track=tracks((device, rows["groupName"]), self._lane),
            start_ns=rows["startNs"],
            dur_ns=dur,
            name=export.names(rows["opName"], "COMMUNICATION_OP"),
            op=OpClass.COMM,
            graph=graphs(self._tasks.of_connection("modelId", rows["connectionId"])),
            args=args,
        )
        return Operations(rows["connectionId"], np.arange(first, first + len(dur)))

    def _lane(self, device: int, group: int) -> int:
        title = self._groups.get(group, Communicator()).title
        return self._track(device, group, f"{title} Communication".strip(), 0)

    def _track(self, device: int, group: int, name: str, sort: int) -> int:
        of = self._groups.get(group, Communicator())
        return self._export.device_track(
            Layer.COMM,
            name,
            device,
            self._title,
            inner=of.title,
            sort=sort,
            communicator=of.name,
            communicator_index=of.index,
        )

    # -- planes ---------------------------------------------------------------------------

    def parts(self) -> None:
        """Put the parts of operations on planes; their times are those of their tasks."""
        build, columns = self._export.build, self._tasks.columns
        part, task = _by_task(self._parts["globalTaskId"], columns["globalTaskId"])
        lost = len(self._parts["globalTaskId"]) - len(np.unique(part))
        build.seen("slice", len(part) + lost)
        build.skip("bad-time", "table COMMUNICATION_TASK_INFO", lost, "slice")
        rows = {name: column[part] for name, column in self._parts.items()}
        of = {name: column[task] for name, column in columns.items()}
        build.extend(
            track=tracks((of["deviceId"], rows["groupName"], rows["planeId"]), self._plane),
            start_ns=of["startNs"],
            dur_ns=self._tasks.dur_ns[task],
            name=self._export.names(rows["taskType"], "COMMUNICATION_TASK_INFO"),
            op=OpClass.COMM_TASK,
            graph=graphs(of["modelId"]),
            args=self._arguments(rows, of, self._tasks.dur_ns[task]),
        )

    def _plane(self, device: int, group: int, plane: int) -> int:
        return self._track(device, group, f"Plane {0 if plane == _NO_PLANE else plane}", 1)

    def _arguments(self, rows: Mapping[str, Column], of: Mapping[str, Column], dur: I64) -> Column:
        string = text(self._export.strings)
        enum = self._export.enum
        # bytes per ns are GB/s
        speed = np.where((rows["size"] > 0) & (dur > 0), rows["size"] / np.maximum(dur, 1), 0.0)
        notify = rows["notifyId"]

        def more(part: slice) -> list[bytes]:
            return [
                b',"bandwidth(GB/s)":%.9g' % s
                + (b"" if n in _NO_NOTIFY else b',"notify_id":"%d"' % n)
                for s, n in zip(speed[part].tolist(), notify[part].tolist(), strict=True)
            ]

        return apart(
            self._export.build,
            {"task id": of["taskId"], "context id": of["contextId"]},
            {
                "stream id": (of["streamId"], number),
                "task type": (rows["taskType"], string),
                "operator": (rows["name"], string),
                "src rank": (rows["srcRank"], number),
                "dst rank": (rows["dstRank"], number),
                "transport type": (rows["transportType"], label(enum("ENUM_HCCL_TRANSPORT_TYPE"))),
                "size(Byte)": (rows["size"], number),
                "data type": (rows["dataType"], label(enum("ENUM_HCCL_DATA_TYPE"))),
                "link type": (rows["linkType"], label(enum("ENUM_HCCL_LINK_TYPE"))),
                "rdma type": (rows["rdmaType"], label(enum("ENUM_HCCL_RDMA_TYPE"))),
            },
            more,
        )


def communicators(used: I64, strings: Mapping[int, str]) -> dict[int, Communicator]:
    """Groups by their ids: with their names, numbered if these are addresses."""
    found: dict[int, Communicator] = {}
    numbered = 0
    for group in dict.fromkeys(used.tolist()):
        string = strings.get(group, "")
        if string in ("", "N/A"):
            continue
        if _ADDRESS.search(string):
            found[group] = Communicator.numbered(numbered)
            numbered += 1
        else:
            found[group] = Communicator.named(string)
    return found


def _by_task(parts: I64, tasks: I64) -> tuple[I64, I64]:
    """Rows of parts and of tasks with the same global id.

    In graph mode a task runs many times under one id. The k-th row of parts belongs to the k-th
    of tasks; a lone one to all of them.
    """
    by_part, by_task = np.argsort(parts, kind="stable"), np.argsort(tasks, kind="stable")
    ids, start, count = np.unique(parts[by_part], return_index=True, return_counts=True)
    first = np.searchsorted(tasks[by_task], ids, "left")
    runs = np.searchsorted(tasks[by_task], ids, "right") - first
    # pairs per id: a lone part goes with every run, else k-th with k-th as far as both reach
    number = np.where(count == 1, runs, np.minimum(count, runs))
    # 0, 1, ... within the pairs of each id
    step = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    part = np.repeat(start, number) + np.where(np.repeat(count, number) == 1, 0, step)
    return by_part[part], by_task[np.repeat(first, number) + step]
