"""The tables of an Nsight Systems report, as data. Tables that are not listed are counted.

Tables and columns are those of the export's schema reference (docs.nvidia.com/nsight-systems,
"SQLite Schema Reference", 2021.5 to 2026.2) and of the reports at hand; enumerations are those of
the CUPTI activity API (docs.nvidia.com/cupti, 13.5) and of the ENUM tables of reports.

Synchronisation records are shown with the runtime's calls, a track per stream, as those of PyTorch
are: they say how long the host, or another stream, waited for a stream, and last as long as the
call does. On the stream itself they would cross the kernels they wait for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from traceconv.core.model import Layer, OpClass, TrackKind
from traceconv.readers.nsight.payloads import NUMBERS
from traceconv.readers.shared.layouts import KERNEL, RowLayout, Shown

NO_STREAM = 0xFFFFFFFF
"""As a stream: none."""

COPY_KINDS = {
    0: "unknown", 1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array",
    4: "Array-to-Host", 5: "Array-to-Array", 6: "Array-to-Device", 7: "Device-to-Array",
    8: "Device-to-Device", 9: "Host-to-Host", 10: "Peer-to-Peer", 11: "Unified Host-to-Device",
    12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
"""CUpti_ActivityMemcpyKind; from 11 on what the export adds (ENUM_CUDA_MEMCPY_OPER)."""

SYNC_KINDS = {
    1: "Event Synchronize",
    2: "Stream Wait Event",
    3: "Stream Synchronize",
    4: "Context Synchronize",
}
"""CUpti_ActivitySynchronizationType."""

CALL_CLASSES = (0, 1, 13, 26)
"""Event classes of the runtime table that are calls; others repeat them (67: backtraces)."""

OS_CALL = 27
"""The event class of calls in OSRT_API; other rows are the profiler's own markers."""

_GRAPH_NODE = {"graph node id": "graphNodeId"}
_PLACED = ("device", "context", "stream", "correlation")

DEVICE = RowLayout(
    end="end",
    columns={
        "device": "deviceId", "context": "contextId", "stream": "streamId",
        "correlation": "correlationId", "process": "globalPid",
    },
    layer=Layer.DEVICE,
    title="GPU Hardware",
    lane=Shown("stream", "Stream {}", absent="No stream", of="stream"),
    group=Shown("device", "GPU {}", of="device"),
    track={"device_kind": "GPU"},
    args=_PLACED,
)  # fmt: skip
"""Work of a device."""

HOST = RowLayout(
    end="end",
    unended=True,
    columns={"thread": "globalTid", "class": "eventClass", "name": "nameId"},
    strings=frozenset({"name"}),
    layer=Layer.RUNTIME,
    lane=Shown("thread"),
    group=Shown("process"),
)
"""Calls of threads."""


def _like(
    base: RowLayout, table: str, columns: Mapping[str, Any] = {}, **options: Any
) -> RowLayout:
    """A table with the columns of ``base`` and some more, which become arguments."""
    options = {"args": (*base.args, *columns), **options}
    return structs.replace(base, table=table, columns={**base.columns, **columns}, **options)


_MPI = structs.replace(
    HOST,
    columns={"thread": "globalTid", "name": "textId"},
    title="MPI",
    layer=Layer.HOST,
    track={"kind": TrackKind.MESSAGES},
)

KERNELS = _like(
    DEVICE, "CUPTI_ACTIVITY_KIND_KERNEL",
    {"demangled": "demangledName", "name": "shortName", "grid": ("gridX", "gridY", "gridZ"),
     "block": ("blockX", "blockY", "blockZ"), "registers per thread": "registersPerThread",
     "static": "staticSharedMemory", "dynamic": "dynamicSharedMemory", **_GRAPH_NODE},
    op=KERNEL,
    args=(*_PLACED, "grid", "block", "registers per thread", "shared memory", *_GRAPH_NODE),
)  # fmt: skip

WORK = (
    _like(
        DEVICE, "CUPTI_ACTIVITY_KIND_MEMCPY", {"bytes": "bytes", "kind": "copyKind", **_GRAPH_NODE},
        name=Shown("kind", "Memcpy {}", "Memcpy {}", "Memcpy unknown"), names={"kind": COPY_KINDS},
        op=OpClass.COPY,
    ),
    _like(
        DEVICE, "CUPTI_ACTIVITY_KIND_MEMSET", {"bytes": "bytes", "value": "value", **_GRAPH_NODE},
        name=Shown(absent="Memset"), op=OpClass.COPY,
    ),
    # batches of copies that are to be decompressed
    _like(
        DEVICE, "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS",
        {"bytes": "sourceBytes", "channel": "ChannelID"},
        name=Shown(absent="Memory Decompression"), op=OpClass.COPY,
    ),
    # a whole graph in a row: what of it computes and what communicates, nothing says
    _like(
        DEVICE, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {"graph": "graphId"},
        name=Shown("graph", "CUDA Graph {}", absent="CUDA Graph"), op=OpClass.UNCLASSIFIED,
    ),
    _like(
        DEVICE, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", {"kind": "syncType"}, args=_PLACED,
        name=Shown("kind", "Synchronize {}", absent="Synchronize"), names={"kind": SYNC_KINDS},
        layer=Layer.RUNTIME, title="GPU Synchronization", op=OpClass.WAIT,
    ),
    # functions of the host in a stream, which waits for them
    _like(
        DEVICE, "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH",
        {"graph": "graphId", "node": "graphNodeId"}, name=Shown(absent="Host Function"),
        layer=Layer.RUNTIME, title="CUDA Host Functions", op=OpClass.WAIT,
    ),
)  # fmt: skip
"""Device work other than kernels."""

RUNTIME = _like(
    HOST, "CUPTI_ACTIVITY_KIND_RUNTIME", {"correlation": "correlationId", "result": "returnValue"},
    title="CUDA",
)  # fmt: skip

_UCX = {"bytes": "packedSize", "tag": "tag"}

CALLS = (
    _like(HOST, "OSRT_API", title="OS Runtime", track={"kind": TrackKind.SYSTEM_CALLS}),
    _like(HOST, "CUDNN_EVENTS", title="cuDNN"),
    _like(HOST, "CUBLAS_EVENTS", title="cuBLAS"),
    _like(_MPI, "MPI_P2P_EVENTS", {"bytes": "size", "peer": "remoteRank"}),
    _like(_MPI, "MPI_COLLECTIVES_EVENTS", {"bytes": "size", "root": "rootRank"}),
    _like(_MPI, "MPI_START_WAIT_EVENTS"),
    _like(_MPI, "MPI_OTHER_EVENTS"),
    _like(_MPI, "UCP_SUBMIT_EVENTS", _UCX, title="UCX"),
    _like(_MPI, "UCP_PROGRESS_EVENTS", _UCX, title="UCX"),
    _like(_MPI, "UCP_EVENTS", title="UCX"),
    _like(HOST, "CUDA_HOST_CALLBACK", {"correlation": "correlationId"}, title="CUDA Callbacks"),
    _like(HOST, "CUPTI_ACTIVITY_KIND_JIT", title="CUDA JIT"),
    _like(
        HOST, "CUDA_GRAPH_EVENTS", {"graph": "graphId", "executable": "graphExecId"},
        title="CUDA Graphs",
    ),
    _like(HOST, "CUDA_GRAPH_NODE_EVENTS", {"node": "graphNodeId"}, title="CUDA Graph Nodes"),
    _like(
        HOST, "NVTXT_EVENTS", {"name": "text"}, texts=frozenset({"name"}), strings=frozenset(),
        args=(), layer=Layer.HOST, title="NVTX Text",
    ),
)  # fmt: skip
"""Calls into libraries, and what the driver does on threads."""

FAMILIES: Mapping[str, tuple[str, Layer]] = {
    "CUPTI_ACTIVITY_KIND_OPENACC_": ("OpenACC", Layer.RUNTIME),
    "OPENACC_": ("OpenACC", Layer.RUNTIME),
    "OPENMP_EVENT_KIND_": ("OpenMP", Layer.HOST),
    "VULKAN_API": ("Vulkan", Layer.RUNTIME),
    "OPENGL_API": ("OpenGL", Layer.RUNTIME),
    "DX12_API": ("Direct3D", Layer.RUNTIME),
    "D3D12_API": ("Direct3D", Layer.RUNTIME),
    "NVVIDEO_": ("Video Codecs", Layer.RUNTIME),
    "CUSOLVER_": ("cuSOLVER", Layer.RUNTIME),
}
"""Tables of calls by prefix, read if they have times, a thread and a name."""

MEMORY_KINDS = {
    0: "unknown", 1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed",
    6: "device static", 7: "managed static",
}  # fmt: skip
"""CUpti_ActivityMemoryKind."""

_SAMPLED = RowLayout(
    floats=frozenset({"value"}), lane=Shown("name"), unit=Shown("unit", "")
)  # fmt: skip
METRICS = structs.replace(
    _SAMPLED, table="GPU_METRICS", start="timestamp", title="GPU Metrics",
    columns={"type": "typeId", "metric": "metricId", "value": "value"},
    group=DEVICE.group, track=DEVICE.track,
)  # fmt: skip
NETWORK = structs.replace(
    _SAMPLED, table="NET_NIC_METRIC", title="Network Metrics",
    columns={"card": "globalId", "list": "metricsListId", "metric": "metricsIdx", "port": "portId",
             "value": "value"},
    links=frozenset({"end"}),  # a value holds until the next one
    group=Shown("card", "NIC {}"),
)  # fmt: skip

MEMORY = structs.replace(
    _SAMPLED, table="CUDA_GPU_MEMORY_USAGE_EVENTS", title="Memory since the recording began",
    columns={"device": "deviceId", "process": "globalPid", "bytes": "bytes", "kind": "memKind",
             "operation": "memoryOperationType"},
    links=frozenset({"contextId", "address", "correlationId", "pc"}),
    names={"kind": MEMORY_KINDS}, lane=Shown("kind", "Allocated ({})", "Allocated ({})"),
    group=DEVICE.group, track=DEVICE.track, unit=Shown(absent="B"),
)  # fmt: skip
"""Allocations and releases (``memoryOperationType`` 1), which say what they change."""

DIAGNOSTICS = "DIAGNOSTIC_EVENT"
"""The profiler's errors and warnings about its own work."""

DESCRIBING = {
    "StringIds", "ThreadNames", "PROCESSES", "ProcessStreams", "ANALYSIS_DETAILS", "ANALYSIS_FILE",
    "META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE", "NVTX_PAYLOAD_SCHEMAS",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES", "MPI_RANKS", "MPI_COMMUNICATORS", "NIC_ID_MAP",
    "GENERIC_EVENT_TYPES", "GENERIC_EVENT_TYPE_FIELDS", "GENERIC_EVENT_SOURCES",
    "SAMPLING_CALLCHAINS", "CUDA_CALLCHAINS", "OSRT_CALLCHAINS", "PERF_EVENT_CALLCHAINS",
    "UNWIND_METHOD_TYPE", "UnwindMethodType",
}  # fmt: skip
"""Tables whose rows are not events."""

DESCRIBED = ("TARGET_INFO_", "ENUM_", "sqlite_")
"""Prefixes of further such tables."""

READ = {
    *(one.table for one in (KERNELS, RUNTIME, METRICS, NETWORK, MEMORY, *WORK, *CALLS)),
    "NVTX_EVENTS", "SCHED_EVENTS", DIAGNOSTICS,
}  # fmt: skip
"""Tables whose rows become events."""

NVTX = _like(
    HOST, "NVTX_EVENTS",
    {"name": "textId", "type": "eventType", "domain": "domainId", "rowid": "rowid"},
    strings=frozenset(),
    links=frozenset({"text", "jsonText", "binaryData", *NUMBERS}),  # see .nvtx, .payloads
    layer=Layer.HOST, steps=True, args=(),
)  # fmt: skip
"""Ranges and markers; their texts are in the rows, or in the table of strings."""

OFF_CPU = structs.replace(
    HOST, name=Shown(absent="Off CPU"), layer=Layer.OTHER, title="CPU Scheduling",
    track={"kind": TrackKind.OFF_CPU}, op=OpClass.OTHER,
)  # fmt: skip
"""Threads that lost their CPU, made from pairs of scheduler records."""

RUNS = structs.replace(
    OFF_CPU, name=Shown("pid"), title="Other Processes", lane=Shown("cpu", "CPU {}", of="device"),
    group=Shown(), track={"kind": TrackKind.CPU, "device_kind": "CPU"},
)  # fmt: skip
"""What ran on that CPU meanwhile, made in the same way."""
