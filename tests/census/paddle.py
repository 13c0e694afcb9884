"""Paddle: types of tracer events; fields of its protobuf."""

from tests.census import COUNTED, LEFT, READ, Inventory
from traceconv.readers.paddle.layout import MEMORY_TYPES, TYPES

_TYPES = "PaddlePaddle/Paddle, paddle/phi/api/profiler/trace_event.h"
_TREE = "PaddlePaddle/Paddle, paddle/fluid/platform/profiler/dump/nodetree.proto"
_DATE = "2026-08"

FIELDS = """
NodeTreesProto.version NodeTreesProto.span_indx NodeTreesProto.thread_trees
NodeTreesProto.extra_info NodeTreesProto.device_property ThreadNodeTreeProto.thread_id
ThreadNodeTreeProto.host_nodes HostTraceEventNodeProto.id HostTraceEventNodeProto.parentid
HostTraceEventNodeProto.host_trace_event HostTraceEventNodeProto.runtime_nodes
HostTraceEventNodeProto.mem_nodes HostTraceEventNodeProto.op_supplement_nodes
HostTraceEventProto.name HostTraceEventProto.type HostTraceEventProto.start_ns
HostTraceEventProto.end_ns HostTraceEventProto.process_id HostTraceEventProto.thread_id
CudaRuntimeTraceEventProto.name CudaRuntimeTraceEventProto.start_ns
CudaRuntimeTraceEventProto.end_ns CudaRuntimeTraceEventProto.process_id
CudaRuntimeTraceEventProto.thread_id CudaRuntimeTraceEventProto.correlation_id
CudaRuntimeTraceEventProto.callback_id DeviceTraceEventProto.name DeviceTraceEventProto.type
DeviceTraceEventProto.start_ns DeviceTraceEventProto.end_ns DeviceTraceEventProto.device_id
DeviceTraceEventProto.context_id DeviceTraceEventProto.stream_id
DeviceTraceEventProto.correlation_id DeviceTraceEventProto.kernel_info
DeviceTraceEventProto.memcpy_info DeviceTraceEventProto.memset_info MemTraceEventProto.timestamp_ns
MemTraceEventProto.type MemTraceEventProto.addr MemTraceEventProto.process_id
MemTraceEventProto.thread_id MemTraceEventProto.increase_bytes MemTraceEventProto.place
MemTraceEventProto.current_allocated MemTraceEventProto.current_reserved
MemTraceEventProto.peak_allocated MemTraceEventProto.peak_reserved
OperatorSupplementEventProto.timestamp_ns OperatorSupplementEventProto.op_type
OperatorSupplementEventProto.process_id OperatorSupplementEventProto.thread_id
OperatorSupplementEventProto.input_shapes OperatorSupplementEventProto.dtypes
OperatorSupplementEventProto.callstack OperatorSupplementEventProto.op_id
"""

_REPEATED = {
    "ThreadNodeTreeProto.thread_id", "HostTraceEventNodeProto.id",
    "HostTraceEventNodeProto.parentid", "CudaRuntimeTraceEventProto.callback_id",
    "OperatorSupplementEventProto.timestamp_ns", "OperatorSupplementEventProto.process_id",
    "OperatorSupplementEventProto.thread_id",
}  # fmt: skip
"""Fields that repeat what another field of the event or its parent says."""

EVENT_TYPES = """
Operator Dataloader ProfileStep CudaRuntime Kernel Memcpy Memset UserDefined OperatorInner Forward
Backward Optimization Communication PythonOp PythonUserDefined DygraphKernelLaunch
StaticKernelLaunch
"""


def _field(name: str) -> str:
    return LEFT if name in _REPEATED else READ


INVENTORIES = (
    Inventory(
        "paddle",
        "types of events",
        f"{_TYPES}: `TracerEventType`",
        _DATE,
        tuple(EVENT_TYPES.split()),
        lambda name: READ if name in TYPES else COUNTED,
        TYPES,
    ),
    Inventory(
        "paddle",
        "types of memory events",
        f"{_TYPES}: `TracerMemEventType`",
        _DATE,
        ("Allocate", "Free", "ReservedAllocate", "ReservedFree"),
        lambda name: READ if name in MEMORY_TYPES else COUNTED,
        MEMORY_TYPES,
    ),
    Inventory("paddle", "fields of the protobuf", _TREE, _DATE, tuple(FIELDS.split()), _field),
)
