"""A device's work in a database: tasks on streams, communication on tracks and planes.

Table TASK has the times; other tables say what each task is. An operation of communication is
put on the track of its group as a whole, its parts on the planes of the group at the times of their
tasks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from msgspec import structs

from traceconv.core.model import I64, Layer, Mask, OpClass
from traceconv.core.ordering import combined_key, factored_rows
from traceconv.core.patterns import lazy_regex
from traceconv.readers.ascend.db import event_tables as tables
from traceconv.readers.ascend.db.export import Export, Placed, graphs
from traceconv.readers.shared.arguments import lookup, picked, quoted
from traceconv.readers.shared.ascend_lanes import COPY_DIRECTIONS, Communicator
from traceconv.readers.shared.ascend_marks import MARKS, communication_of
from traceconv.readers.shared.ascend_tasks import named_class, task_class
from traceconv.readers.shared.layouts import Members, TableRows, add_rows

_NO_CONTEXT = _NO_CONNECTION = _NO_PLANE = 4294967295
_NO_NOTIFY = (-1, 2**63 - 1)

_MARK, _COPY = "MsTx", "MEMCPY_ASYNC"
"""Types of the tasks that markers of the host leave on the device, and of copies."""


class Pmu:
    """Performance counters of tasks, table TASK_PMU_INFO, as JSON members.

    Readings of unknown tasks, and those that are NULL, are reported.
    """

    def __init__(self, export: Export, tasks: I64) -> None:
        """
        Args:
            tasks: global task ids, in the order of the rows asked for later.
        """
        requested = {"globalTaskId": -1, "name": -1, "value": math.nan}
        rows = export.database.columns("TASK_PMU_INFO", requested)
        is_known = np.isin(rows["globalTaskId"], tasks) & ~np.isnan(rows["value"])
        export.build.skip("metadata-unused", "table TASK_PMU_INFO", int((~is_known).sum()))
        order = np.flatnonzero(is_known)
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

    def members(self, task_rows: I64) -> list[bytes]:
        """``,"key":value`` of each task's readings; b"" if it has none."""
        start, count = self._start[task_rows], (self._stop - self._start)[task_rows]
        if not count.any():
            return [b""] * len(count)
        ends = np.cumsum(count)
        # positions of all readings of the batch: runs from each start, one after the other
        positions = np.repeat(start - ends + count, count) + np.arange(ends[-1])
        pairs = zip(self._name[positions].tolist(), self._value[positions].tolist(), strict=True)
        texts = [self._keys[name] + b"%.15g" % value for name, value in pairs]
        return [b"".join(texts[a:b]) for a, b in pairwise([0, *ends.tolist()])]


@dataclass(frozen=True)
class Tasks:
    """The rows of TASK as other tables refer to them.

    Attributes:
        rows:     those with usable times.
        event:    the event of each.
        launched: those that a call on the host launched: operators and copies.
        parent:   those that only hold others (the same task, with a context); no flow ends there.
        mark:     markers of the host.
    """

    rows: TableRows
    event: I64
    launched: Mask
    parent: Mask
    mark: Mask

    def of_connection(self, field: str, connections: I64) -> I64:
        """The value of a field in the first task of each connection; -1 without a task."""
        task_rows = lookup(self.rows["connection_id"], connections)
        return picked(self.rows[field], np.where(connected(connections), task_rows, -1))


def connected(connections: I64) -> Mask:
    """Which are ids of a connection, and not the number for none."""
    is_connection: Mask = (connections >= 0) & (connections < _NO_CONNECTION)
    return is_connection


def tasks(export: Export) -> Tasks:
    """Put every task on its stream."""
    rows = export.rows(tables.TASKS)
    kind = rows["Task Type"]
    types = rows.names["Task Type"]
    mark = np.isin(kind, [i for i, name in types.items() if name == _MARK])
    copies = np.isin(kind, [i for i, name in types.items() if name == _COPY])
    operator = _describe(export, rows)
    parent = _parents(rows)
    rows.columns["class"] = _classes(export, rows, parent)
    pmu = Pmu(export, rows["task"])

    rows.label("group", ("device",), export.of_device)
    event = np.full(len(rows), -1, np.int64)
    shown = np.flatnonzero(~mark)
    plain = rows.take(shown)
    event[shown] = add_rows(
        export.build, tables.TASKS, plain, lambda chosen: pmu.members(shown[chosen]),
        graph=graphs(plain["Model Id"]),
    )  # fmt: skip
    if mark.any():
        _add_marks(export, rows, np.flatnonzero(mark), event, pmu)
    good = event >= 0
    rows.keep(
        "start", "end", "device", "task", "connection_id", "Model Id", "Task Id", "Subtask Id",
        "Physic Stream Id",
    )  # fmt: skip
    launched = (operator | copies)[good]
    return Tasks(rows.take(good), event[good], launched, parent[good], mark[good])


def _describe(export: Export, rows: TableRows) -> Mask:
    """Add names and arguments from the other tables; which rows carry out an operator."""
    task, own_type = rows["task"], rows["Task Type"]
    copies = export.rows(tables.COPIES)
    directions = export.enum("ENUM_MEMCPY_OPERATION", {**COPY_DIRECTIONS, 65535: "other"})
    copies.names["operation"] = directions
    export.join(rows, task, copies)
    operators = export.rows(tables.OPERATORS)
    operator_rows = export.join(rows, task, operators)
    scheduled = export.rows(tables.SCHEDULED)
    of_schedule = np.where(operator_rows < 0, lookup(scheduled["task"], task), -1)
    name = np.where(operator_rows >= 0, rows["name"], own_type)
    rows.columns["name"] = np.where(of_schedule >= 0, picked(scheduled["name"], of_schedule), name)
    rows.names["name"] = export.strings
    rows.columns["Task Type"] = np.where(rows["core"] >= 0, rows["core"], own_type)
    # 2: an operator, 1: scheduled for a communication, 0: neither
    rows.columns["source"] = np.where(operator_rows >= 0, 2, np.where(of_schedule >= 0, 1, 0))
    return rows["source"] > 0


def _parents(rows: TableRows) -> Mask:
    """Tasks without a context, where others of the same task have one."""
    fields = ("device", "Physic Stream Id", "Task Id", "connection_id")
    inner = (rows["Subtask Id"] >= 0) & (rows["Subtask Id"] != _NO_CONTEXT)
    different, task_of_row = np.unique(
        combined_key(*(rows[f] for f in fields)), return_inverse=True
    )
    has_inner = np.zeros(len(different), bool)
    has_inner[task_of_row[inner]] = True
    is_parent: Mask = ~inner & has_inner[task_of_row]
    return is_parent


def _classes(export: Export, rows: TableRows, parent: Mask) -> I64:
    """The class of each task. Only tasks with an operator's name compute."""
    table, codes = factored_rows(rows["name"], rows["source"], rows["core"])
    classes = []
    for name, source, core in table:
        string = export.strings.get(name, "")
        class_by_name = named_class(string)
        if source == 1:
            classes.append(OpClass.COMM_TASK)
        elif source == 2:
            classes.append(task_class(string, export.strings.get(core, "")))
        else:
            classes.append(OpClass.UNCLASSIFIED if class_by_name is None else class_by_name)
    op = np.array(classes, np.int64)[codes]
    # in graph mode a whole operation of HCCL is a task, too
    connections = export.database.columns("COMMUNICATION_OP", {"connectionId": -1})["connectionId"]
    is_part = np.isin(rows["connection_id"], connections) & connected(rows["connection_id"])
    is_part &= op == OpClass.UNCLASSIFIED
    # the subtasks of a parent do its work
    op = np.where(parent & (op == OpClass.UNCLASSIFIED), int(OpClass.OTHER), op)
    parts = export.database.columns("COMMUNICATION_TASK_INFO", {"globalTaskId": -1})["globalTaskId"]
    is_part |= (op == OpClass.COPY) & np.isin(rows["task"], parts)
    return np.where(is_part, int(OpClass.COMM_TASK), op)


def _add_marks(export: Export, rows: TableRows, mark_rows: I64, event: I64, pmu: Pmu) -> None:
    """Add the markers of the host; those of HCCL are operations of communication."""
    marks = export.database.columns("MSTX_EVENTS", {"connectionId": -1, "message": -1})
    message = picked(
        marks["message"], lookup(marks["connectionId"], rows["connection_id"][mark_rows])
    )
    operations = {
        i: operation
        for i in np.unique(message).tolist()
        if (operation := communication_of(export.strings.get(i, "")))
    }
    is_operation = np.isin(message, list(operations))
    for with_operations, layer, title, op in (
        (False, Layer.OTHER, MARKS, OpClass.OTHER),
        (True, Layer.COMM, "Communication", OpClass.COMM),
    ):
        selected = np.flatnonzero(is_operation == with_operations)
        marks_rows, text = rows.take(mark_rows[selected]), message[selected]
        names = (
            {i: str(operation["opName"]) for i, operation in operations.items()}
            if with_operations
            else {}
        )
        marks_rows.columns["name"] = np.where(text >= 0, text, marks_rows["name"])
        marks_rows.names["name"] = {**export.strings, **names}

        def group(device: int, message: int) -> Placed:
            if message not in operations:
                return export.of_device(device)
            communicator = Communicator.named(operations[message]["groupName"])
            return export.of_device(device, communicator.title, communicator=communicator.name)

        def members(chosen: I64, text: I64 = text, selected: I64 = selected) -> list[bytes]:
            chosen_operations = [operations.get(code, {}) for code in text[chosen].tolist()]
            readings = pmu.members(mark_rows[selected[chosen]])
            return [
                b"".join(
                    b",%b:%b" % (quoted(k), json.dumps(v).encode()) for k, v in operation.items()
                )
                + pmu_members
                for operation, pmu_members in zip(chosen_operations, readings, strict=True)
            ]

        marks_rows.columns["message"] = text
        marks_rows.label("group", ("device", "message"), group)
        layout = structs.replace(tables.TASKS, layer=layer, title=title, op=op)
        graph = graphs(marks_rows["Model Id"])
        event[mark_rows[selected]] = add_rows(
            export.build, layout, marks_rows, members, graph=graph
        )


# -- communication --------------------------------------------------------------------------------

_COMMUNICATION = 5500
"""The number of this kind of call in ENUM_API_TYPE; its name changed over time."""

_ADDRESS = lazy_regex(r"%|\d\.\d+\.\d+\.\d|\A\d{6,}\Z")
"""Names of groups made from the addresses of hosts, or hashed."""


@dataclass(frozen=True)
class Connected:
    """Calls or whole operations as flows refer to them: connections, and the event of each."""

    connection: I64
    event: I64


def communication(export: Export, tasks: Tasks) -> Connected:
    """Put operations on the tracks of their groups, and their parts on planes.

    Groups are named as in the JSON export.
    """
    operations, parts = export.rows(tables.OPERATIONS), export.rows(tables.PARTS)
    title = "Communication"
    if export.database.texts("ENUM_API_TYPE", "id", "name").get(_COMMUNICATION) == "hccl":
        title = "HCCL"
    order = np.argsort(operations["start"], kind="stable")
    used = np.concatenate((operations["communicator"][order], parts["communicator"]))
    groups = communicators(used, export.strings)

    def group(device: int, communicator: int) -> Placed:
        communicator_facts = groups.get(communicator, Communicator())
        return export.of_device(
            device,
            communicator_facts.title,
            communicator=communicator_facts.name,
            communicator_index=communicator_facts.index,
        )

    def lane(communicator: int) -> Placed:
        communicator_facts = groups.get(communicator, Communicator())
        return f"{communicator_facts.title} Communication".strip(), {}

    connection = operations["connection_id"]
    device = operations["device"]
    of_task = tasks.of_connection("device", connection)
    operations.columns["device"] = np.where(device >= 0, device, of_task)
    operations.label("group", ("device", "communicator"), group)
    operations.label("lane", ("communicator",), lane)
    operations.names["data_type"] = export.enum("ENUM_HCCL_DATA_TYPE")
    event = add_rows(
        export.build, structs.replace(tables.OPERATIONS, title=title), operations,
        graph=graphs(tasks.of_connection("Model Id", connection)),
    )  # fmt: skip

    parts = _timed_parts(export, parts, tasks.rows)
    parts.label("group", ("device", "communicator"), group)
    layout = structs.replace(tables.PARTS, title=title)
    add_rows(export.build, layout, parts, _speed(parts), graph=graphs(parts["Model Id"]))
    return Connected(connection[event >= 0], event[event >= 0])


def _timed_parts(export: Export, parts: TableRows, tasks: TableRows) -> TableRows:
    """Parts at the times of their tasks, those of an unknown task left out and reported."""
    part, task = _by_task(parts["task"], tasks["task"])
    lost = len(parts) - len(np.unique(part))
    export.build.lose("bad-time", parts.where, lost)
    parts = parts.take(part)
    for field, of_task in {
        "start": "start", "end": "end", "task id": "Task Id", "context id": "Subtask Id",
        "stream id": "Physic Stream Id", "device": "device", "Model Id": "Model Id",
    }.items():  # fmt: skip
        parts.columns[field] = tasks[of_task][task]
    parts.columns["plane"] = np.where(parts["plane"] == _NO_PLANE, 0, parts["plane"])
    for field, table in (
        ("transport type", "TRANSPORT_TYPE"), ("data type", "DATA_TYPE"),
        ("link type", "LINK_TYPE"), ("rdma type", "RDMA_TYPE"),
    ):  # fmt: skip
        parts.names[field] = export.enum(f"ENUM_HCCL_{table}")
    return parts


def _speed(parts: TableRows) -> Members:
    """Bandwidth and notification of parts, as further members of their arguments."""
    size, dur, notify = parts["size(Byte)"], parts["end"] - parts["start"], parts["notify"]
    # bytes per ns are GB/s
    speed = np.where((size > 0) & (dur > 0), size / np.maximum(dur, 1), 0.0)

    def members(part_rows: I64) -> list[bytes]:
        return [
            b',"bandwidth(GB/s)":%.9g' % s + (b"" if n in _NO_NOTIFY else b',"notify_id":"%d"' % n)
            for s, n in zip(speed[part_rows].tolist(), notify[part_rows].tolist(), strict=True)
        ]

    return members


def communicators(used: I64, strings: Mapping[int, str]) -> dict[int, Communicator]:
    """Groups by their ids: with their names, numbered if these are addresses."""
    by_id: dict[int, Communicator] = {}
    numbered = 0
    for group in dict.fromkeys(used.tolist()):
        string = strings.get(group, "")
        if string in ("", "N/A"):
            continue
        if _ADDRESS.search(string):
            by_id[group] = Communicator.numbered(numbered)
            numbered += 1
        else:
            by_id[group] = Communicator.named(string)
    return by_id


def _by_task(parts: I64, tasks: I64) -> tuple[I64, I64]:
    """Rows of parts and of tasks with the same global id.

    In graph mode a task runs many times under one id. The k-th row of parts belongs to the k-th
    of tasks; a lone one to all of them.
    """
    by_part, by_task = np.argsort(parts, kind="stable"), np.argsort(tasks, kind="stable")
    ids, start, count = np.unique(parts[by_part], return_index=True, return_counts=True)
    begin = np.searchsorted(tasks[by_task], ids, "left")
    runs = np.searchsorted(tasks[by_task], ids, "right") - begin
    # pairs per id: a lone part goes with every run, else k-th with k-th as far as both reach
    number = np.where(count == 1, runs, np.minimum(count, runs))
    # 0, 1, ... within the pairs of each id
    step = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    part = np.repeat(start, number) + np.where(np.repeat(count, number) == 1, 0, step)
    return by_part[part], by_task[np.repeat(begin, number) + step]
