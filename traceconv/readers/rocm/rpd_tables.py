"""Read the events of one process in an RPD database."""

from __future__ import annotations

import numpy as np
from msgspec import structs

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, Layer, OpClass
from traceconv.readers.rocm.process import (
    CALLS,
    KERNELS,
    MARKERS,
    QUEUES,
    Category,
    Process,
    RpdProcess,
)
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.layouts import (
    KERNEL,
    Classes,
    Members,
    RowLayout,
    Shown,
    TableRows,
    add_arrows,
    add_rows,
    add_samples,
)
from traceconv.readers.shared.numbers import values
from traceconv.readers.shared.sqlite.database import Database
from traceconv.readers.shared.table_rows import database_rows

API = structs.replace(
    CALLS,
    table="rocpd_api",
    end="end",
    columns={
        "id": "id", "pid": "pid", "thread": "tid", "name": "apiName_id", "arguments": "args_id",
    },
    args=("id",),
)  # fmt: skip
_TYPES: dict[str, OpClass | None] = {
    **dict.fromkeys(
        ("KernelExecution", "Task", "NativeKernel", "Kernel", "ConcurrentKernel",
         "hcCommandKernel"),
        KERNEL,
    ),
    **dict.fromkeys(
        ("CopyDeviceToHost", "CopyHostToDevice", "CopyDeviceToDevice", "CopyDeviceToHost2D",
         "CopyHostToDevice2D", "CopyDeviceToDevice2D", "FillBuffer", "FillImage", "ReadImage",
         "WriteImage", "CopyImage", "CopyImageToBuffer", "CopyBufferToImage", "MigrateMemObjects",
         "SvmMemcpy", "SvmMemFill", "Memcpy", "Memset", "hcMemcpyDeviceToHost",
         "hcMemcpyHostToDevice", "hcMemcpyDeviceToDevice", "hcMemcpyHostToHost",
         "MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE",
         "MEMORY_COPY_DEVICE_TO_HOST", "MEMORY_COPY_DEVICE_TO_DEVICE"),
        OpClass.COPY,
    ),
    **dict.fromkeys(
        ("Marker", "InternalMarker", "Barrier", "StreamWait", "User", "hcCommandMarker"),
        OpClass.WAIT,
    ),
    **dict.fromkeys(
        ("MapBuffer", "MapImage", "UnmapMemObject", "SvmMap", "SvmUnmap", "SvmFree", "StreamWrite",
         "AcquireGLObjects", "ReleaseGLObjects"),
        OpClass.OTHER,
    ),
}  # fmt: skip

OPERATIONS = structs.replace(
    KERNELS,
    table="rocpd_op",
    end="end",
    columns={
        "id": "id", "device": "gpuId", "queue": "queueId", "name": "description_id",
        "type": "opType_id",
    },
    lane=QUEUES,
    op=Classes(
        "type",
        _TYPES,
        "getOclCommandKindString in ROCm's rocclr (activity.cpp, 2026), RocprofDataSource.cpp and "
        "CuptiDataSource.cpp of ROCm/rocmProfileData (2026-03)",
    ),
    args=("queue", "call", "type"),
)  # fmt: skip
MONITORS = RowLayout(
    table="rocpd_monitor",
    first_ns=1,
    columns={
        "device": "deviceId", "kind": "deviceType", "monitor": "monitorType", "stated": "value",
    },
    texts=frozenset({"kind", "monitor", "stated"}),
    links=API.links | {"end"},
    title="Monitors",
    lane=Shown("monitor", absent="monitor"),
    group=Shown("place"),
)  # fmt: skip
_SHAPE = ("gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ")

_MARKER = "UserMarker"
_OVERHEAD = ("hcc_activity_callback",)
_WRITER = "Table::writeRows"
_CALL, _MARK, _OWN = range(3)
_CATEGORIES = {
    _CALL: Category(Layer.RUNTIME, "HIP"),
    _MARK: MARKERS,
    _OWN: Category(Layer.OTHER, "Profiler", op=OpClass.OTHER),
}


class Reading:
    """Reads one process into ``build``."""

    def __init__(self, build: TraceBuilder, database: Database, process: RpdProcess) -> None:
        self._build, self._database, self._process = build, database, process

    def read(self) -> None:
        """Put everything into the trace."""
        all_calls = database_rows(self._database, API)
        is_own = all_calls["pid"] == self._process.pid
        if self._process.first:
            is_own |= all_calls["pid"] < 0
        calls = all_calls.take(is_own)
        first_thread = self._process.node * self._process.pid_stride
        calls.columns["thread"] = _of_node(calls["thread"], first_thread)
        self._operations(calls, self._calls(calls), all_calls["id"])
        if self._process.first_of_node:
            self._monitors()
        if self._process.first:
            for name in self._database.tables:
                if name not in READ and not name.startswith("sqlite_"):
                    self._build.skip("kind-not-read", f"table {name}", self._database.count(name))

    @property
    def _first_gpu(self) -> int:
        return self._process.node * self._process.gpu_stride

    def _texts(self, ids: I64) -> dict[int, str]:
        requested = np.unique(ids[ids >= 0])
        shared = self._database.texts("rocpd_string", "id", "string", requested)
        unique = self._database.texts("rocpd_ustring", "id", "string", requested)
        return {**unique, **shared}

    def _calls(self, rows: TableRows) -> I64:
        """Add the calls, and return their event rows."""
        names = self._texts(rows["name"])
        sort = {
            i: _OWN if text in _OVERHEAD or text.endswith(_WRITER) else _CALL
            for i, text in names.items()
        } | {i: _MARK for i, text in names.items() if text == _MARKER}
        codes = rows["name"]
        rows.columns["category"] = np.array([sort.get(c, _CALL) for c in codes.tolist()], np.int64)
        message_ids = np.where(rows["category"] == _MARK, rows["arguments"], -1)
        messages = {i: text for i, text in self._texts(message_ids).items() if text}
        rows.columns["name"] = np.where(np.isin(message_ids, [*messages]), message_ids, codes)
        rows.names["name"] = {**names, **messages}
        process = Process(self._build)
        return process.calls(API, rows, _CATEGORIES, self._sizes(rows["id"]))

    def _sizes(self, calls: I64) -> Members:
        """Grid and block of launches and bytes of copies, by call."""
        by_call: dict[int, bytes] = {}
        rows = self._database.columns(
            "rocpd_kernelapi", {"api_ptr_id": -1, **dict.fromkeys(_SHAPE, -1)}
        )
        columns = (rows[name].tolist() for name in ("api_ptr_id", *_SHAPE))
        for call, *sizes in zip(*columns, strict=True):
            by_call[call] = b',"grid":[%d,%d,%d],"block":[%d,%d,%d]' % tuple(sizes)
        copies = self._database.columns("rocpd_copyapi", {"api_ptr_id": -1, "size": -1})
        for call, size in zip(copies["api_ptr_id"].tolist(), copies["size"].tolist(), strict=True):
            if size >= 0:
                by_call[call] = b',"bytes":%d' % size
        return lambda rows: [by_call.get(call, b"") for call in calls[rows].tolist()]

    def _operations(self, calls: TableRows, added: I64, every_call: I64) -> None:
        """Add device work, and the flows to it."""
        rows = database_rows(self._database, OPERATIONS)
        arrows = self._database.columns("rocpd_api_ops", {"api_id": -1, "op_id": -1})
        call = picked(arrows["api_id"], lookup(arrows["op_id"], rows["id"]))
        is_own = np.isin(call, calls["id"])
        free = ~np.isin(call, every_call)
        if stride := self._process.gpu_stride:
            free &= rows["device"] // stride == self._process.node
        if self._process.first_of_node:
            is_own |= free
        rows, call = rows.take(is_own), call[is_own]
        rows.columns["device"] = _of_node(rows["device"], self._first_gpu)
        rows.columns["call"] = call
        kinds, texts = self._texts(rows["type"]), self._texts(rows["name"])
        described = np.isin(rows["name"], [i for i, text in texts.items() if text])
        rows.columns["name"] = np.where(described, rows["name"], rows["type"])
        rows.names["name"] = {**kinds, **texts}
        rows.names["type"] = kinds
        placed = add_rows(self._build, OPERATIONS, rows, self._sizes(call))
        of_process = np.isin(arrows["op_id"], rows["id"])
        add_arrows(
            self._build,
            picked(added, lookup(calls["id"], arrows["api_id"][of_process])),
            picked(placed, lookup(rows["id"], arrows["op_id"][of_process])),
        )

    def _monitors(self) -> None:
        """Add samples of monitors, such as clocks and power."""
        rows = database_rows(self._database, MONITORS)
        if stride := self._process.gpu_stride:
            rows = rows.take(rows["device"] // stride == self._process.node)
            rows.columns["device"] = _of_node(rows["device"], self._first_gpu)
        numbers = rows["device"].tolist()
        places = [
            (kind.upper(), number) for kind, number in zip(rows.texts("kind"), numbers, strict=True)
        ]
        rows.coded("place", [f"{kind} {number}".strip() for kind, number in places])
        rows.identity["place"] = {
            code: {"device_kind": kind, "device": number}
            for code, (kind, number) in zip(rows["place"].tolist(), places, strict=True)
        }
        rows.columns["value"] = values(rows.texts("stated"))
        add_samples(self._build, MONITORS, rows)


def _of_node(numbers: I64, first: int) -> I64:
    """Numbers of one node in a file that joins several, as the node counts them."""
    return np.where(numbers >= first, numbers - first, numbers)


READ = {
    *(one.table for one in (API, OPERATIONS, MONITORS)), "rocpd_api_ops", "rocpd_string",
    "rocpd_ustring", "rocpd_kernelapi", "rocpd_copyapi", "rocpd_metadata",
}  # fmt: skip
"""Tables that are read, or that describe the rows of others."""
