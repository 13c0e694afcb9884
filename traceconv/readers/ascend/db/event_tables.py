"""The tables of events in databases of Ascend captures, as layouts.

Columns are read by name, since versions add and rename them. Arguments have the keys of the JSON
export. Source: CANN's guide to the msprof database; ``db_assembler.cpp`` of Ascend/msprof;
``fwk_api_db_parser`` and ``mstx`` parsers of Ascend/pytorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from traceconv.core.model import Layer, OpClass, TrackKind
from traceconv.readers.shared.ascend_lanes import OVERLAP_LANES
from traceconv.readers.shared.layouts import CLASS_COLUMN, Classes, RowLayout, Shown

_NAME = Shown("name", "")

BASE = RowLayout(
    start="startNs", end="endNs", columns={"name": "name"}, name=_NAME,
    links=frozenset({"depth", "waitNs"}),  # added by MindStudio Insight
)  # fmt: skip


DESCRIBING = (
    "STRING_IDS", "SESSION_TIME_INFO", "NPU_INFO", "RANK_DEVICE_MAP", "HOST_INFO", "META_DATA",
)  # fmt: skip
"""Tables that describe a recording."""

CLUSTER = (
    "CommunicationGroup", "CommunicationGroupMapping", "ClusterBaseInfo", "HostInfo",
    "RankDeviceMap",
)  # fmt: skip
"""Tables of cluster tools that describe ranks and their groups."""

TOTALS = ("SAMPLE_PMU_SUMMARY", "METRIC_SUMMARY")
"""Tables of totals, which have no times."""

VIEWER = ("status_info", "connectionCats")
"""Tables that MindStudio Insight adds to the files it opens."""

BESIDE = ("TASK_PMU_INFO", "CONNECTION_IDS", "PYTORCH_CALLCHAINS")
"""Tables whose rows become arguments and flows."""


def _like(base: RowLayout, table: str, columns: Mapping[str, str], **changes: Any) -> RowLayout:
    links = base.links | changes.pop("links", frozenset())
    return structs.replace(base, table=table, columns=columns, links=links, **changes)


_DEVICE = structs.replace(
    BASE, layer=Layer.DEVICE, group=Shown("group"), track={"device_kind": "NPU"}
)
_HOST = structs.replace(BASE, lane=Shown("thread"), group=Shown("process"))

# -- the device -----------------------------------------------------------------------------------

_OF_OPERATOR = {
    "Op Type": "opType", "Input Formats": "inputFormats", "Input Data Types": "inputDataTypes",
    "Input Shapes": "inputShapes", "Output Formats": "outputFormats",
    "Output Data Types": "outputDataTypes", "Output Shapes": "outputShapes", "Attr": "attrInfo",
    "State": "opState", "HF32 Eligible": "hf32Eligible", "Grid Dim": "gridDim",
}  # fmt: skip

OPERATORS = RowLayout(
    table="COMPUTE_TASK_INFO",
    columns={
        "task": "globalTaskId", "name": "name", "core": "taskType", **_OF_OPERATOR,
        "Block Num": "blockNum|block_dim|blockDim",  # newer ones mean something else by blockDim
        "Mix Block Num": "mixBlockDim|mixBlockNum",
    },
    strings=frozenset({"name", "core", *_OF_OPERATOR}),
    links=BASE.links,
)  # fmt: skip
"""The operators that tasks carry out."""

TASKS = _like(
    _DEVICE, "TASK",
    {"device": "deviceId", "task": "globalTaskId", "Task Id": "taskId", "Subtask Id": "contextId",
     "connection_id": "connectionId", "Model Id": "modelId", "Task Type": "taskType",
     "Physic Stream Id": "streamId"},
    strings=frozenset({"Task Type"}), links=frozenset({"globalPid"}),
    title="Ascend Hardware",
    lane=Shown("Physic Stream Id", "Stream {}", absent="Stream -1", of="stream"),
    op=CLASS_COLUMN,
    args=("Task Id", "Subtask Id", "connection_id", "Model Id", "Task Type", "Physic Stream Id",
          *_OF_OPERATOR, "Block Num", "Mix Block Num", "size(B)", "operation"),
)  # fmt: skip

_COMM = structs.replace(
    _DEVICE, layer=Layer.COMM, title="Communication", op=OpClass.COMM, lane=Shown("lane")
)

OPERATIONS = _like(
    _COMM, "COMMUNICATION_OP",
    {"name": "opName", "connection_id": "connectionId", "communicator": "groupName",
     "data_type": "dataType", "alg_type": "algType", "count": "count", "op_type": "opType",
     "rank_size": "rankSize", "relay": "relay", "retry": "retry", "device": "deviceId"},
    strings=frozenset({"name", "alg_type", "op_type"}), links=frozenset({"opId"}),
    names={key: {0: "no", 1: "yes"} for key in ("relay", "retry")},
    args=("connection_id", "data_type", "alg_type", "count", "op_type", "rank_size", "relay",
          "retry"),
)  # fmt: skip
"""Whole operations of communication."""

PARTS = _like(
    structs.replace(_COMM, start="start", end="end"), "COMMUNICATION_TASK_INFO",
    {"task": "globalTaskId", "operator": "name", "task type": "taskType", "plane": "planeId",
     "communicator": "groupName", "notify": "notifyId", "rdma type": "rdmaType",
     "src rank": "srcRank", "dst rank": "dstRank", "transport type": "transportType",
     "size(Byte)": "size", "data type": "dataType", "link type": "linkType"},
    name=Shown("task type", ""), strings=frozenset({"task type", "operator"}),
    links=frozenset({"opId", "isMaster", "bandwidth"}),
    lane=Shown("plane", "Plane {}", absent="Plane 0"), op=OpClass.COMM_TASK,
    track={"device_kind": "NPU", "sort": 1},
    args=("task id", "context id", "stream id", "task type", "operator", "src rank", "dst rank",
          "transport type", "size(Byte)", "data type", "link type", "rdma type"),
)  # fmt: skip
"""The parts of such operations; their times are those of their tasks."""

SCHEDULED = RowLayout(
    table="COMMUNICATION_SCHEDULE_TASK_INFO", columns={"task": "globalTaskId", "name": "name"},
    strings=frozenset({"name"}), links=frozenset({"taskType", "opType"}),
)  # fmt: skip
"""Tasks of the AI CPU that drive communication."""

COPIES = RowLayout(
    table="MEMCPY_INFO",
    columns={"task": "globalTaskId", "size(B)": "size", "operation": "memcpyOperation"},
)

UNITS = tuple(
    _like(
        _DEVICE, table, {"device": device, "name": name, "args": "args"},
        strings=frozenset({"name", "args"}), title=title, lane=Shown(absent=title),
        op=OpClass.OTHER, args=("args",),
    )
    for table, title, device, name in (
        ("CCU", "CCU", "deviceId", "name"), ("DPU_TASK", "DPU", "dpuDeviceId", "opName"),
    )
)  # fmt: skip
"""Units that work without streams."""

OVERLAP = _like(
    _DEVICE, "OVERLAP_ANALYSIS", {"device": "deviceId", "type": "type"},
    links=frozenset({"id"}), names={"type": dict(enumerate(OVERLAP_LANES))}, name=Shown("type"),
    layer=Layer.OVERLAP, title="Overlap Analysis", lane=Shown("type"),
    op=Classes("type", {name: op for name, (_, op) in OVERLAP_LANES.items()}),
)  # fmt: skip
"""The overlap analysis that newer exporters, and viewers, leave in the database."""

# -- the host -------------------------------------------------------------------------------------

STEPS = _like(
    BASE, "STEP_TIME", {"step": "id"}, name=Shown("step", "ProfilerStep#{}", absent="ProfilerStep"),
    layer=Layer.STEP, title="Step Trace", lane=Shown(absent="Steps"), op=OpClass.ITERATION,
)  # fmt: skip

CALLS = _like(
    _HOST, "CANN_API",
    {"global": "globalTid", "connection_id": "connectionId", "level": "type", "string": "name"},
    layer=Layer.RUNTIME, title="CANN", args=("connection_id", "Thread Id", "level"),
)  # fmt: skip

EVENT_KINDS = {0: "marker", 1: "push/pop", 2: "start/end", 3: "marker_ex"}
MARKERS = _like(
    _HOST, "MSTX_EVENTS",
    {"global": "globalTid", "name": "message", "event_type": "eventType", "domain": "domainId",
     "connection": "connectionId", "category": "category"},
    strings=frozenset({"name", "domain"}), links=frozenset({"rangeId", "endGlobalTid"}),
    names={"event_type": EVENT_KINDS}, title="PID Name", track={"kind": TrackKind.RANGES},
    args=("event_type", "domain", "category"),
)  # fmt: skip
"""Markers and ranges of the program, made with MSTX."""

_SHAPES = frozenset({"Input Dims", "Input type"})
FRAMEWORK = _like(
    _HOST, "PYTORCH_API",
    {"global": "globalTid", "connection": "connectionId", "name": "name",
     "Sequence number": "sequenceNumber", "Fwd thread id": "fwdThreadId",
     "Input type": "inputDtypes", "Input Dims": "inputShapes", "Call stack": "callchainId",
     "type": "type"},
    strings=frozenset({"name", *_SHAPES}),
    args=("Sequence number", "Fwd thread id", "Input Dims", "Input type", "Call stack"),
)  # fmt: skip

SYSTEM_CALLS = _like(
    _HOST, "OSRT_API", {"global": "globalTid", "name": "name"}, strings=frozenset({"name"}),
    layer=Layer.RUNTIME, title="OS Runtime API",
)  # fmt: skip
GARBAGE = _like(
    _HOST, "GC_RECORD", {"global": "globalTid"}, name=Shown(absent="GC"), title="Python GC"
)
"""When Python collected garbage."""

EVENTS = (
    TASKS, OPERATORS, OPERATIONS, PARTS, SCHEDULED, COPIES, *UNITS, OVERLAP, STEPS, CALLS, MARKERS,
    FRAMEWORK, SYSTEM_CALLS, GARBAGE,
)  # fmt: skip
