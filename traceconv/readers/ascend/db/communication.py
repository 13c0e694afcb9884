"""Communication: whole operations on the lane of their group, their parts on its planes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from traceconv.core.model import I64, Layer, OpClass
from traceconv.readers.ascend.db.export import TIMES, Export, graphs
from traceconv.readers.ascend.db.tasks import Tasks
from traceconv.readers.shared.arguments import apart, label, number, text, tracks
from traceconv.readers.shared.sqlite.database import Column

_COMMUNICATION = 5500
"""The number of this kind of call in ENUM_API_TYPE; its name changed over time."""

_ADDRESS = re.compile(r".*%.*|.*\d+\.\d+\.\d+\.\d+.*|\d{6,}", re.DOTALL)
"""Names of groups made from the addresses of hosts, or hashed."""

_NO_PLANE = 4294967295
_NO_NOTIFY = (-1, 2**63 - 1)

_OPERATION = {
    **TIMES, "opName": -1, "connectionId": -1, "groupName": -1, "relay": -1, "retry": -1,
    "dataType": -1, "algType": -1, "count": -1, "opType": -1, "deviceId": -1, "rankSize": -1,
}  # fmt: skip
_PART = {
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
        self._operations = export.database.columns("COMMUNICATION_OP", _OPERATION)
        self._parts = export.database.columns("COMMUNICATION_TASK_INFO", _PART)
        order = np.argsort(self._operations["startNs"], kind="stable")
        used = (self._operations["groupName"][order], self._parts["groupName"])
        self._groups = group_titles(np.concatenate(used), export.strings)

    def operations(self) -> Operations:
        """Put whole operations on the lanes of their groups."""
        export, build = self._export, self._export.build
        rows, dur = export.timed(self._operations, "COMMUNICATION_OP")
        of_task = self._tasks.of_connection("deviceId", rows["connectionId"])
        device = np.where(rows["deviceId"] >= 0, rows["deviceId"], of_task)
        names, said = label(export.enum("ENUM_HCCL_DATA_TYPE")), text(export.strings)
        args = apart(
            build,
            {"connection_id": rows["connectionId"]},
            {
                "data_type": (rows["dataType"], names),
                "alg_type": (rows["algType"], said),
                "count": (rows["count"], number),
                "op_type": (rows["opType"], said),
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
        inner = self._groups.get(group, "")
        above = f"{self._export.device(device)} {inner}".strip()
        name = f"{inner} Communication".strip()
        return self._export.build.track(Layer.COMM, name, above, self._title)

    # -- planes ---------------------------------------------------------------------------

    def parts(self) -> None:
        """Put the parts of operations on planes; their times are those of their tasks."""
        build, columns = self._export.build, self._tasks.columns
        part, task = _paired(self._parts["globalTaskId"], columns["globalTaskId"])
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
        above = f"{self._export.device(device)} {self._groups.get(group, '')}".strip()
        name = f"Plane {0 if plane == _NO_PLANE else plane}"
        return self._export.build.track(Layer.COMM, name, above, self._title, sort=1)

    def _arguments(self, rows: Mapping[str, Column], of: Mapping[str, Column], dur: I64) -> Column:
        said = text(self._export.strings)
        enum = self._export.enum
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
                "task type": (rows["taskType"], said),
                "operator": (rows["name"], said),
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


def group_titles(used: I64, strings: Mapping[int, str]) -> dict[int, str]:
    """What groups are called: by their names, by number if these are addresses; "" for none."""
    titles: dict[int, str] = {}
    numbered = 0
    for group in dict.fromkeys(used.tolist()):
        said = strings.get(group, "")
        if said in ("", "N/A"):
            continue
        if _ADDRESS.fullmatch(said):
            titles[group] = f"Group {numbered}"
            numbered += 1
        else:
            titles[group] = f"Group {said}"
    return titles


def _paired(parts: I64, tasks: I64) -> tuple[I64, I64]:
    """Rows of parts and of tasks with the same global id.

    In graph mode a task runs many times under one id. The k-th row of parts belongs to the k-th
    of tasks; a lone one to all of them.
    """
    by_part, by_task = np.argsort(parts, kind="stable"), np.argsort(tasks, kind="stable")
    ids, start, count = np.unique(parts[by_part], return_index=True, return_counts=True)
    first = np.searchsorted(tasks[by_task], ids, "left")
    runs = np.searchsorted(tasks[by_task], ids, "right") - first
    number = np.where(count == 1, runs, np.minimum(count, runs))
    step = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    part = np.repeat(start, number) + np.where(np.repeat(count, number) == 1, 0, step)
    return by_part[part], by_task[np.repeat(first, number) + step]
