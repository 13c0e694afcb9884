"""Nsight Systems: tables and columns of an export, kinds of CUPTI's activities."""

from collections.abc import Mapping

from tests.census import COUNTED, DESCRIBES, READ, Inventory
from traceconv.readers.nsight import tables
from traceconv.readers.shared.layouts import RowLayout

_DOCUMENTED = "NVIDIA's SQLite schema reference and reports of 2022.2 to 2026.2"
_DATE = "2026-11"
_CUPTI, _CUPTI_DATE = "the CUPTI activity API, 13.5", "2026-10"

EVENT_TABLES = """
COMPOSITE_EVENTS CUBLAS_EVENTS CUDA_GPU_MEMORY_POOL_EVENTS CUDA_GPU_MEMORY_USAGE_EVENTS
CUDA_GRAPH_EVENTS CUDA_GRAPH_NODE_EVENTS CUDA_HOST_CALLBACK CUDA_UM_CPU_PAGE_FAULT_EVENTS
CUDA_UM_GPU_PAGE_FAULT_EVENTS CUDNN_EVENTS CUPTI_ACTIVITY_KIND_CUDA_EVENT
CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH CUPTI_ACTIVITY_KIND_GRAPH_TRACE
CUPTI_ACTIVITY_KIND_JIT CUPTI_ACTIVITY_KIND_KERNEL CUPTI_ACTIVITY_KIND_MEMCPY
CUPTI_ACTIVITY_KIND_MEMSET CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS CUPTI_ACTIVITY_KIND_OPENACC_DATA
CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH CUPTI_ACTIVITY_KIND_OPENACC_OTHER CUPTI_ACTIVITY_KIND_OVERHEAD
CUPTI_ACTIVITY_KIND_RUNTIME CUPTI_ACTIVITY_KIND_SYNCHRONIZATION CUPTI_ACTIVITY_KIND_WARP_TRACE
D3D11_PIX_DEBUG_API D3D12_PIX_DEBUG_API DEMOTED_BYTES_EVENTS DIAGNOSTIC_EVENT DX12_API
DX12_MEMORY_OPERATION DX12_WORKLOAD ETW_EVENTS ETW_EVENTS_DEPRECATED_TABLE FECS_EVENTS
GENERIC_EVENTS GPU_CONTEXT_SWITCH_EVENTS GPU_MEMORY_BUDGET_EVENTS GPU_MEMORY_USAGE_EVENTS
GPU_METRICS KHR_DEBUG_EVENTS MPI_COLLECTIVES_EVENTS MPI_OTHER_EVENTS MPI_P2P_EVENTS
MPI_START_WAIT_EVENTS NET_NIC_METRIC NVTXT_EVENTS NVTX_EVENTS NVVIDEO_DECODER_API
NVVIDEO_ENCODER_API NV_LOAD_BALANCE_EVENTS NV_LOAD_BALANCE_MASTER_EVENTS OPENACC_DATA_EVENTS
OPENACC_LAUNCH_EVENTS OPENACC_OTHER_EVENTS OPENGL_API OPENGL_WORKLOAD OPENMP_EVENT_KIND_CANCEL
OPENMP_EVENT_KIND_CRITICAL_SECTION OPENMP_EVENT_KIND_DISPATCH OPENMP_EVENT_KIND_FLUSH
OPENMP_EVENT_KIND_LOCK_DESTROY OPENMP_EVENT_KIND_LOCK_INIT OPENMP_EVENT_KIND_MASTER
OPENMP_EVENT_KIND_MUTEX_RELEASED OPENMP_EVENT_KIND_MUTEX_WAIT OPENMP_EVENT_KIND_PARALLEL
OPENMP_EVENT_KIND_REDUCTION OPENMP_EVENT_KIND_SYNC_REGION OPENMP_EVENT_KIND_SYNC_REGION_WAIT
OPENMP_EVENT_KIND_TASK OPENMP_EVENT_KIND_TASK_CREATE OPENMP_EVENT_KIND_TASK_SCHEDULE
OPENMP_EVENT_KIND_THREAD OPENMP_EVENT_KIND_WORKSHARE OSRT_API PMU_EVENTS PROFILER_OVERHEAD
SCHED_EVENTS SLI_P2P SLI_QUERIES SLI_STATS SOC_METRICS TOTAL_BYTES_RESIDENT_IN_SEGMENT_EVENTS
UCP_EVENTS UCP_PROGRESS_EVENTS UCP_SUBMIT_EVENTS VULKAN_API VULKAN_DEBUG_API
VULKAN_PIPELINE_CREATION_EVENTS VULKAN_PIPELINE_STAGE_EVENTS VULKAN_WORKLOAD
WDDM_DMA_PACKET_INFO_EVENTS WDDM_DMA_PACKET_START_EVENTS WDDM_DMA_PACKET_STOP_EVENTS
WDDM_EVICT_ALLOCATION_EVENTS WDDM_HW_QUEUE_EVENTS WDDM_PAGING_QUEUE_PACKET_INFO_EVENTS
WDDM_PAGING_QUEUE_PACKET_START_EVENTS WDDM_PAGING_QUEUE_PACKET_STOP_EVENTS
WDDM_QUEUE_PACKET_INFO_EVENTS WDDM_QUEUE_PACKET_START_EVENTS WDDM_QUEUE_PACKET_STOP_EVENTS
"""

DESCRIBING_TABLES = """
ANALYSIS_DETAILS ANALYSIS_FILE CUDA_CALLCHAINS EXPORT_META_DATA GENERIC_EVENT_SOURCES
GENERIC_EVENT_TYPES GENERIC_EVENT_TYPE_FIELDS META_DATA_CAPTURE META_DATA_EXPORT MPI_COMMUNICATORS
MPI_RANKS NIC_ID_MAP NVTX_PAYLOAD_SCHEMAS NVTX_PAYLOAD_SCHEMA_ENTRIES OSRT_CALLCHAINS
PERF_EVENT_CALLCHAINS PROCESSES ProcessStreams SAMPLING_CALLCHAINS StringIds
TARGET_INFO_CUDA_CONTEXT_INFO TARGET_INFO_CUDA_DEVICE TARGET_INFO_CUDA_NULL_STREAM
TARGET_INFO_CUDA_STREAM TARGET_INFO_GPU TARGET_INFO_GPU_METRICS TARGET_INFO_NETWORK_METRICS
TARGET_INFO_NIC_INFO TARGET_INFO_NVTX_CUDA_CONTEXT TARGET_INFO_NVTX_CUDA_DEVICE
TARGET_INFO_NVTX_CUDA_STREAM TARGET_INFO_PROCESS TARGET_INFO_SESSION_START_TIME
TARGET_INFO_SYSTEM_ENV TARGET_INFO_WDDM_CONTEXTS TARGET_INFO_XMC_SPEC ThreadNames
UNWIND_METHOD_TYPE UnwindMethodType
"""

ACTIVITIES = """
MEMCPY MEMSET KERNEL DRIVER RUNTIME EVENT METRIC DEVICE CONTEXT CONCURRENT_KERNEL NAME MARKER
MARKER_DATA SOURCE_LOCATOR GLOBAL_ACCESS BRANCH OVERHEAD CDP_KERNEL PREEMPTION ENVIRONMENT
EVENT_INSTANCE MEMCPY2 METRIC_INSTANCE INSTRUCTION_EXECUTION UNIFIED_MEMORY_COUNTER FUNCTION MODULE
DEVICE_ATTRIBUTE SHARED_ACCESS PC_SAMPLING PC_SAMPLING_RECORD_INFO INSTRUCTION_CORRELATION
OPENACC_DATA OPENACC_LAUNCH OPENACC_OTHER CUDA_EVENT STREAM SYNCHRONIZATION EXTERNAL_CORRELATION
NVLINK INSTANTANEOUS_EVENT INSTANTANEOUS_EVENT_INSTANCE INSTANTANEOUS_METRIC
INSTANTANEOUS_METRIC_INSTANCE MEMORY PCIE OPENMP INTERNAL_LAUNCH_API MEMORY2 MEMORY_POOL GRAPH_TRACE
JIT DEVICE_GRAPH_TRACE MEM_DECOMPRESS CONFIDENTIAL_COMPUTE_ROTATION GRAPH_HOST_NODE
COMPUTE_ENGINE_CTX_SWITCH HOST_LAUNCH GREEN_CONTEXT
"""

_EXPORTED_AS = {
    "DRIVER": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CONCURRENT_KERNEL": "CUPTI_ACTIVITY_KIND_KERNEL",
    "MEMCPY2": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "OPENMP": "OPENMP_EVENT_KIND_PARALLEL",
    "GRAPH_HOST_NODE": "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH",
    "HOST_LAUNCH": "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH",
    "MARKER": "NVTX_EVENTS",
}
"""Activities whose table in an export has another name."""

_GPU = "start end deviceId contextId greenContextId streamId correlationId globalPid "
COLUMNS = (
    (
        tables.KERNELS,
        _GPU
        + """demangledName shortName mangledName launchType cacheConfig registersPerThread gridX
    gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread
    localMemoryTotal gridId sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig
    qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ
    clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters
    sharedMemoryRequestedPercentage tensorSizeMinusOneElements""",
    ),
    (
        tables.WORK[0],
        _GPU
        + """bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId
    dstContextId migrationCause graphNodeId virtualAddress copyCount""",
    ),
    (tables.WORK[1], _GPU + "value bytes graphNodeId memKind"),
    (tables.WORK[3], _GPU + "graphId graphExecId"),
    (tables.WORK[4], _GPU + "deprecatedSyncType syncType eventId eventSyncId"),
    (tables.RUNTIME, "start end eventClass globalTid correlationId nameId returnValue callchainId"),
    (
        tables.NVTX,
        """start end eventType rangeId category color text globalTid endGlobalTid textId
    domainId uint64Value int64Value doubleValue uint32Value int32Value floatValue jsonTextId
    jsonText binaryData eventId""",
    ),
    (
        tables.CALLS[0],
        """start end eventClass globalTid nameId returnValue nestingLevel callchainId""",
    ),
)
"""Columns of the tables that nearly every report has."""


def _table(name: str) -> str:
    if name in tables.READ or name.startswith(tuple(tables.FAMILIES)):
        return READ
    described = name in tables.DESCRIBING or name.startswith(tables.DESCRIBED)
    return DESCRIBES if described else COUNTED


def _columns(layout: RowLayout, names: str) -> Inventory:
    used = {one for many in layout.sources.values() for name in many for one in name.split("|")}
    used |= layout.links
    return Inventory(
        "nsight",
        f"columns of {layout.table}",
        _DOCUMENTED,
        _DATE,
        tuple(names.split()),
        lambda name: READ if name in used else COUNTED,
    )


def _numbers(title: str, source: str, date: str, count: int, names: Mapping[int, str]) -> Inventory:
    """Numbers of an enumeration; one without a name is shown as it is."""
    numbers = tuple(map(str, range(count)))
    return Inventory("nsight", title, source, date, numbers, lambda _: READ, [*map(str, names)])


INVENTORIES = (
    _numbers("kinds of copies", "`ENUM_CUDA_MEMCPY_OPER` of reports", _DATE, 14, tables.COPY_KINDS),
    _numbers(
        "kinds of memory",
        f"`CUpti_ActivityMemoryKind` of {_CUPTI}",
        _CUPTI_DATE,
        8,
        tables.MEMORY_KINDS,
    ),
    _numbers(
        "kinds of waits",
        f"`CUpti_ActivitySynchronizationType` of {_CUPTI}",
        _CUPTI_DATE,
        5,
        tables.SYNC_KINDS,
    ),
    Inventory(
        "nsight",
        "tables of events",
        _DOCUMENTED,
        _DATE,
        tuple(EVENT_TABLES.split()),
        _table,
        tables.READ,
    ),
    Inventory(
        "nsight",
        "tables that describe events",
        _DOCUMENTED,
        _DATE,
        tuple(DESCRIBING_TABLES.split()),
        _table,
        tables.DESCRIBING,
    ),
    Inventory(
        "nsight",
        "kinds of activities of CUPTI",
        f"`CUpti_ActivityKind` of {_CUPTI}",
        _CUPTI_DATE,
        tuple(ACTIVITIES.split()),
        lambda name: _table(_EXPORTED_AS.get(name, f"CUPTI_ACTIVITY_KIND_{name}")),
    ),
    *(_columns(layout, names) for layout, names in COLUMNS),
)
