"""ROCm: what rocprofiler-sdk can trace; tables and fields of rocpd, rocprofv3, rocprof and RPD."""

from collections.abc import Iterable

from tests.census import COUNTED, DESCRIBES, LEFT, READ, UNCLASSIFIED, Inventory
from traceconv.readers.rocm import database_content, rpd_tables, tables, tool_json
from traceconv.readers.rocm.database import PLACE
from traceconv.readers.shared.layouts import RowLayout

_SYSTEMS = "ROCm/rocm-systems, projects/rocprofiler-sdk"
_DATE = "2025-08"

BUFFER_KINDS = """
HSA_CORE_API HSA_AMD_EXT_API HSA_IMAGE_EXT_API HSA_FINALIZE_EXT_API HIP_RUNTIME_API
HIP_COMPILER_API MARKER_CORE_API MARKER_CONTROL_API MARKER_NAME_API MEMORY_COPY KERNEL_DISPATCH
PAGE_MIGRATION SCRATCH_MEMORY CORRELATION_ID_RETIREMENT RCCL_API OMPT MEMORY_ALLOCATION
RUNTIME_INITIALIZATION
ROCDECODE_API ROCJPEG_API HIP_STREAM HIP_RUNTIME_API_EXT HIP_COMPILER_API_EXT ROCDECODE_API_EXT
KFD_EVENT_PAGE_MIGRATE KFD_EVENT_PAGE_FAULT KFD_EVENT_QUEUE KFD_EVENT_UNMAP_FROM_GPU
KFD_EVENT_DROPPED_EVENTS KFD_PAGE_MIGRATE KFD_PAGE_FAULT KFD_QUEUE MARKER_CORE_RANGE_API
"""
"""``rocprofiler_buffer_tracing_kind_t``."""

_NO_REGIONS = (
    "SCRATCH_MEMORY",
    "CORRELATION_ID_RETIREMENT",
    "RUNTIME_INITIALIZATION",
    "HIP_STREAM",
)
"""Kinds that no writer puts into a file as calls."""

ROCPD_TABLES = """
metadata string info_node info_process info_thread info_agent info_queue info_stream info_pmc
info_code_object info_kernel_symbol track event arg pmc_event region sample kernel_dispatch
memory_copy memory_allocate timestamp info_category info_pc info_source_code info_address_range
call_stack line_info graph_launch gpu_pc_sample event_operation
"""

_PLACED = "id guid nid pid tid start end name_id event_id extdata"
ROCPD_COLUMNS = (
    (database_content.REGIONS, _PLACED),
    (
        database_content.DISPATCHES,
        """id guid nid pid tid agent_id kernel_id dispatch_id queue_id
    stream_id start end private_segment_size group_segment_size workgroup_size_x workgroup_size_y
    workgroup_size_z grid_size_x grid_size_y grid_size_z region_name_id event_id extdata""",
    ),
    (
        database_content.TRANSFERS,
        """id guid nid pid tid start end name_id dst_agent_id dst_address
    src_agent_id src_address size queue_id stream_id region_name_id event_id extdata""",
    ),
    (
        database_content.ALLOCATED,
        """id guid nid pid tid agent_id type level start end address size
    queue_id stream_id event_id extdata""",
    ),
    (database_content.SAMPLES, "id guid track_id timestamp event_id extdata"),
)

CSV_TABLES = """
hsa_api_trace hip_api_trace marker_api_trace kernel_trace memory_copy_trace scratch_memory_trace
counter_collection rccl_api_trace memory_allocation_trace pc_sampling_host_trap rocdecode_api_trace
rocjpeg_api_trace pc_sampling_stochastic agent_info hsa_api_stats hip_api_stats marker_api_stats
kernel_stats memory_copy_stats scratch_memory_stats rccl_api_stats memory_allocation_stats
rocdecode_api_stats rocjpeg_api_stats domain_stats
"""

CSV_COLUMNS = {
    "kernel_trace": """Kind Agent_Id Queue_Id Stream_Id Thread_Id Dispatch_Id Kernel_Id Kernel_Name
    Correlation_Id Start_Timestamp End_Timestamp LDS_Block_Size Scratch_Size VGPR_Count
    Accum_VGPR_Count SGPR_Count Workgroup_Size_X Workgroup_Size_Y Workgroup_Size_Z Grid_Size_X
    Grid_Size_Y Grid_Size_Z""",
    "memory_copy_trace": """Kind Direction Stream_Id Source_Agent_Id Destination_Agent_Id
    Correlation_Id Start_Timestamp End_Timestamp""",
    "memory_allocation_trace": """Kind Operation Agent_Id Allocation_Size Address Correlation_Id
    Start_Timestamp End_Timestamp""",
    "api_trace": """Domain Function Process_Id Thread_Id Correlation_Id Start_Timestamp
    End_Timestamp""",
    "rocprof v1": """Index KernelName gpu-id queue-id queue-index pid tid grd wgr lds scr vgpr
    arch_vgpr accum_vgpr sgpr fbar wave_size sig obj DispatchNs BeginNs EndNs CompleteNs
    DurationNs""",
    "rocprof v2": """Dispatch_ID GPU_ID Queue_ID Queue_Index PID TID Grid_Size GRD Workgroup_Size
    WGR LDS_Per_Workgroup LDS Scratch_Per_Workitem SCR Arch_VGPR Accum_VGPR ACCUM_VGPR SGPR
    Wave_Size SIG OBJ Kernel_Name Start_Timestamp End_Timestamp Correlation_ID""",
}

JSON_LISTS = """
kernel_dispatch hip_api hsa_api marker_api rccl_api memory_copy memory_allocation scratch_memory
rocdecode_api rocjpeg_api pc_sample_host_trap pc_sample_stochastic counter_collection
"""

RPD_TABLES = """
rocpd_metadata rocpd_string rocpd_ustring rocpd_api rocpd_copyapi rocpd_kernelapi rocpd_op
rocpd_api_ops rocpd_monitor rocpd_counter rocpd_stackframe
"""

OPERATION_TYPES = """
InternalMarker Marker KernelExecution CopyDeviceToHost CopyHostToDevice CopyDeviceToDevice
CopyDeviceToHost2D CopyHostToDevice2D CopyDeviceToDevice2D FillBuffer Task NativeKernel ReadImage
WriteImage CopyImage CopyImageToBuffer CopyBufferToImage MapBuffer MapImage UnmapMemObject
AcquireGLObjects ReleaseGLObjects User Barrier MigrateMemObjects FillImage SvmFree SvmMemcpy
SvmMemFill SvmMap SvmUnmap StreamWait StreamWrite Memcpy Memset Kernel ConcurrentKernel
MEMORY_COPY_NONE MEMORY_COPY_HOST_TO_HOST MEMORY_COPY_HOST_TO_DEVICE MEMORY_COPY_DEVICE_TO_HOST
MEMORY_COPY_DEVICE_TO_DEVICE hcCommandKernel hcCommandMarker hcMemcpyDeviceToHost
hcMemcpyHostToDevice hcMemcpyDeviceToDevice hcMemcpyHostToHost
"""

_ROCPD_OTHER = {"extdata", "track_id"}
"""The text of markers, and the place of a row."""


def _csv(name: str) -> str:
    if name.endswith("_stats"):
        return LEFT
    if name == "agent_info":
        return DESCRIBES
    read = name == "counter_collection" or name.endswith(tuple(tables.LAYOUTS))
    return READ if read else COUNTED


def _json(name: str) -> str:
    read = name in tool_json.LAYOUTS or name.endswith("_api") or name == "counter_collection"
    return READ if read else COUNTED


def _used(layout: RowLayout, more: Iterable[str] = ()) -> set[str]:
    every = (one for many in layout.sources.values() for name in many for one in name.split("|"))
    return {*every, *layout.links, *more}


def _fields(title: str, names: str, source: str, used: set[str]) -> Inventory:
    status = lambda name: READ if name in used else COUNTED  # noqa: E731
    return Inventory("rocprof", f"columns of {title}", source, _DATE, tuple(names.split()), status)


_OPERATIONS = rpd_tables.OPERATIONS.op

INVENTORIES = (
    Inventory(
        "rocprof",
        "kinds of buffer tracing",
        f"`rocprofiler_buffer_tracing_kind_t` of {_SYSTEMS}, include/rocprofiler-sdk/fwd.h",
        _DATE,
        tuple(BUFFER_KINDS.split()),
        lambda name: COUNTED if name in _NO_REGIONS else READ,
    ),
    Inventory(
        "rocprof",
        "tables of rocpd databases",
        f"{_SYSTEMS}, share/rocprofiler-sdk-rocpd/rocpd_tables.sql; schemas 3.0.3 and 4.0.0",
        _DATE,
        tuple(ROCPD_TABLES.split()),
        lambda name: READ if name in database_content.READ else COUNTED,
        database_content.READ,
    ),
    *(
        _fields(
            f"rocpd_{layout.table}",
            names,
            f"{_SYSTEMS}, rocpd_tables.sql",
            _used(layout, {*PLACE.values(), *_ROCPD_OTHER}),
        )
        for layout, names in ROCPD_COLUMNS
    ),
    Inventory(
        "rocprof",
        "CSV tables",
        f"{_SYSTEMS}, lib/output/domain_type.cpp",
        _DATE,
        tuple(CSV_TABLES.split()),
        _csv,
    ),
    *(
        _fields(
            name,
            names,
            f"{_SYSTEMS}, lib/output/generateCSV.cpp"
            if "rocprof" not in name
            else "ROCm/rocm-systems, projects/rocprofiler, bin/tblextr.py and plugin/file/file.cpp",
            _used(tables.LAYOUTS[name]),
        )
        for name, names in CSV_COLUMNS.items()
    ),
    Inventory(
        "rocprof",
        "lists of records in JSON",
        f"{_SYSTEMS}, lib/output/generateJSON.cpp",
        _DATE,
        tuple(JSON_LISTS.split()),
        _json,
        set(tool_json.LAYOUTS) - {"api"},
    ),
    Inventory(
        "rpd",
        "tables of RPD databases",
        "ROCm/rocmProfileData, rocpd_python/rocpd/schema_data/tableSchema.cmd",
        "2026-03",
        tuple(RPD_TABLES.split()),
        lambda name: READ if name in rpd_tables.READ else COUNTED,
        rpd_tables.READ,
    ),
    Inventory(
        "rpd",
        "types of operations",
        _OPERATIONS.source,
        "2026-03",
        tuple(OPERATION_TYPES.split()),
        lambda name: READ if name in _OPERATIONS.table else UNCLASSIFIED,
        set(_OPERATIONS.table),
    ),
)
