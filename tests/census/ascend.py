"""What msprof, torch_npu and cluster tools can write, and what the Ascend readers do with it."""

from __future__ import annotations

from collections.abc import Callable

from tests.census import COUNTED, DESCRIBES, LEFT, READ, UNCLASSIFIED, Inventory
from traceconv.core.model import OpClass
from traceconv.readers.ascend.db import event_tables as events
from traceconv.readers.ascend.db.counters import GAUGES
from traceconv.readers.ascend.raw import host_launches as raw
from traceconv.readers.ascend.tables.names import SUMS, table_of
from traceconv.readers.shared.ascend_lanes import Classifier
from traceconv.readers.shared.ascend_tasks import OPERATORS
from traceconv.readers.shared.trace_events.contract import Lane

_MSPROF, _MSPROF_DATE = "Ascend/msprof", "2026-07-21"
_DB = f"`msprof_db.cpp` and `db_constant.h` of {_MSPROF}"
_TORCH = "`_constant.py` of Ascend/pytorch (torch_npu), which adds tables to those of CANN"
_CLUSTER = "`tables_config.py`, `constant.py` and recipes of Ascend/msprof-analyze"

# -- databases ------------------------------------------------------------------------------------

_TABLES = (
    "ACC_PMU", "AICORE_FREQ", "CANN_API", "CCU", "COMMUNICATION_OP",
    "COMMUNICATION_SCHEDULE_TASK_INFO", "COMMUNICATION_TASK_INFO", "COMPUTE_TASK_INFO", "CPU_USAGE",
    "DDR", "DPU_TASK", "ENUM_API_TYPE", "ENUM_HCCL_DATA_TYPE", "ENUM_HCCL_LINK_TYPE",
    "ENUM_HCCL_RDMA_TYPE", "ENUM_HCCL_TRANSPORT_TYPE", "ENUM_MEMCPY_OPERATION", "ENUM_MODULE",
    "ENUM_MSTX_EVENT_TYPE", "ENUM_OVERLAP_ANALYSIS_TYPE", "ENUM_PCIE_INFO", "ENUM_PCIE_INFO_V6",
    "HBM", "HCCS", "HOST_DISK_USAGE", "HOST_INFO", "HOST_MEM_USAGE", "HOST_NETWORK_USAGE", "LLC",
    "LOW_POWER", "MEMCPY_INFO", "META_DATA", "METRIC_SUMMARY", "MSTX_EVENTS", "NETDEV_STATS", "NIC",
    "NPU_INFO", "NPU_MEM", "NPU_MODULE_MEM", "NPU_OP_MEM", "OSRT_API", "OVERLAP_ANALYSIS",
    "PA_LINK_INFO", "PCIE", "QOS", "RANK_DEVICE_MAP", "ROCE", "SAMPLE_PMU_SUMMARY",
    "SAMPLE_PMU_TIMELINE", "SESSION_TIME_INFO", "SIO", "SOC_BANDWIDTH_LEVEL", "STRING_IDS", "TASK",
    "TASK_PMU_INFO", "UB",
)  # fmt: skip
_FRAMEWORK_TABLES = (
    "CONNECTION_IDS", "GC_RECORD", "MEMORY_RECORD", "OP_MEMORY", "PYTORCH_API",
    "PYTORCH_CALLCHAINS", "STEP_TIME", "CommAnalyzerBandwidth", "CommAnalyzerMatrix",
    "CommAnalyzerTime", "StepTraceTime",
)  # fmt: skip
_CLUSTER_TABLES = (
    "CommunicationGroup", "ClusterStepTraceTime", "HostInfo", "RankDeviceMap",
    "ClusterCommunicationTime", "ClusterCommunicationBandwidth", "ClusterCommunicationMatrix",
    "CommunicationGroupMapping", "ClusterBaseInfo",
    # of recipes
    "ClusterTimeCompareSummary", "ClusterTimeSummary", "CommunicationBottleneck",
    "ComputationalOperatorMaskingLinearity", "ComputeOpAllRankStats",
    "ComputeOpPerRankStatsByOpName", "ComputeOpPerRankStatsByOpType", "HcclAllRankStats",
    "HcclGroupNameMap", "HcclPerRankStats", "HcclTopOpStats", "MSTXAllCannStats",
    "MSTXAllDeviceStats", "MSTXAllFrameworkStats", "MSTXMarkStats", "ModuleMFU", "ModuleStatistic",
    "OperatorMFU", "SlowLinkOps", "SlowLinkSum",
)  # fmt: skip

_LAYOUTS = {layout.table: layout for layout in events.EVENTS}
_SUMS = dict(SUMS.values())


def _table(name: str) -> str:
    if name in events.TOTALS:
        return LEFT
    if name in events.DESCRIBING or name.startswith("ENUM_"):
        return DESCRIBES
    gauges = {gauge.table for gauge in GAUGES}
    known = name in _LAYOUTS or name in gauges or name in events.BESIDE or name in _SUMS
    return READ if known else COUNTED


def _cluster_table(name: str) -> str:
    if name in events.CLUSTER:
        return DESCRIBES
    return READ if name in _SUMS else COUNTED


_COLUMNS: dict[str, tuple[str, ...]] = {
    "TASK": (
        "startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "globalPid", "taskType",
        "contextId", "streamId", "taskId", "modelId",
    ),
    "COMPUTE_TASK_INFO": (
        "name", "globalTaskId", "blockNum", "mixBlockNum", "taskType", "opType", "inputFormats",
        "inputDataTypes", "inputShapes", "outputFormats", "outputDataTypes", "outputShapes",
        "attrInfo", "opState", "hf32Eligible", "gridDim", "blockDim",
    ),
    "COMMUNICATION_OP": (
        "opName", "startNs", "endNs", "connectionId", "groupName", "opId", "relay", "retry",
        "dataType", "algType", "count", "opType", "deviceId", "rankSize",
    ),
    "COMMUNICATION_TASK_INFO": (
        "name", "globalTaskId", "taskType", "planeId", "groupName", "notifyId", "rdmaType",
        "srcRank", "dstRank", "transportType", "size", "dataType", "linkType", "opId", "isMaster",
        "bandwidth",
    ),
    "COMMUNICATION_SCHEDULE_TASK_INFO": ("name", "globalTaskId", "taskType", "opType"),
    "CANN_API": ("startNs", "endNs", "type", "globalTid", "connectionId", "name"),
    "MSTX_EVENTS": (
        "startNs", "endNs", "eventType", "rangeId", "category", "message", "globalTid",
        "endGlobalTid", "domainId", "connectionId",
    ),
    "MEMCPY_INFO": ("globalTaskId", "size", "memcpyOperation"),
    "OSRT_API": ("name", "globalTid", "startNs", "endNs"),
    "OVERLAP_ANALYSIS": ("id", "deviceId", "startNs", "endNs", "type"),
    "CCU": ("deviceId", "globalTaskId", "name", "startNs", "endNs", "args"),
    "DPU_TASK": (
        "dpuDeviceId", "globalTid", "startNs", "endNs", "globalTaskId", "streamId", "taskId",
        "opName", "args",
    ),
    "PYTORCH_API": (
        "startNs", "endNs", "globalTid", "connectionId", "name", "sequenceNumber", "fwdThreadId",
        "inputDtypes", "inputShapes", "callchainId", "type",
    ),
    "STEP_TIME": ("id", "startNs", "endNs"),
    "GC_RECORD": ("startNs", "endNs", "globalTid"),
}  # fmt: skip
_OF_TORCH = ("PYTORCH_API", "STEP_TIME", "GC_RECORD")


def _column(table: str) -> Callable[[str], str]:
    layout = _LAYOUTS[table]
    read = {one for many in layout.sources.values() for name in many for one in name.split("|")}

    def status(column: str) -> str:
        if column in read:
            return READ
        return DESCRIBES if column in layout.links else COUNTED

    return status


_GAUGE_COLUMNS: dict[str, tuple[str, ...]] = {
    "NPU_MEM": ("type", "ddr", "hbm", "timestampNs", "deviceId"),
    "NPU_MODULE_MEM": ("moduleId", "timestampNs", "totalReserved", "deviceId"),
    "NPU_OP_MEM": (
        "operatorName", "addr", "type", "size", "timestampNs", "globalTid", "totalAllocate",
        "totalReserve", "component", "deviceId",
    ),
    "NIC": (
        "deviceId", "timestampNs", "bandwidth", "rxPacketRate", "rxByteRate", "rxPackets",
        "rxBytes", "rxErrors", "rxDropped", "txPacketRate", "txByteRate", "txPackets", "txBytes",
        "txErrors", "txDropped", "funcId",
    ),
    "ROCE": (
        "deviceId", "timestampNs", "bandwidth", "rxPacketRate", "rxByteRate", "rxPackets",
        "rxBytes", "rxErrors", "rxDropped", "txPacketRate", "txByteRate", "txPackets", "txBytes",
        "txErrors", "txDropped", "funcId",
    ),
    "HBM": ("deviceId", "timestampNs", "bandwidth", "hbmId", "type"),
    "DDR": ("deviceId", "timestampNs", "read", "write"),
    "LLC": ("deviceId", "llcId", "timestampNs", "hitRate", "throughput", "mode"),
    "SAMPLE_PMU_TIMELINE": (
        "deviceId", "timestampNs", "totalCycle", "usage", "freq", "coreId", "coreType",
    ),
    "HCCS": ("deviceId", "timestampNs", "txThroughput", "rxThroughput"),
    "ACC_PMU": (
        "accId", "readBwLevel", "writeBwLevel", "readOstLevel", "writeOstLevel", "timestampNs",
        "deviceId",
    ),
    "SOC_BANDWIDTH_LEVEL": ("l2BufferBwLevel", "mataBwLevel", "timestampNs", "deviceId"),
    "AICORE_FREQ": ("deviceId", "timestampNs", "freq", "dieId"),
    "QOS": ("deviceId", "eventName", "bandwidth", "timestampNs", "dieId"),
    "UB": ("deviceId", "portId", "timestampNs", "rxUdmaBind", "txUdmaBind"),
    "SIO": (
        "deviceId", "name", "timestampNs", "rxReq", "rxRsp", "rxSnp", "rxDat", "txReq", "txRsp",
        "txSnp", "txDat",
    ),
    "PCIE": (
        "deviceId", "timestampNs", "txPostMin", "txPostMax", "txPostAvg", "txNonpostMin",
        "txNonpostMax", "txNonpostAvg", "txCplMin", "txCplMax", "txCplAvg", "txNonpostLatencyMin",
        "txNonpostLatencyMax", "txNonpostLatencyAvg", "rxPostMin", "rxPostMax", "rxPostAvg",
        "rxNonpostMin", "rxNonpostMax", "rxNonpostAvg", "rxCplMin", "rxCplMax", "rxCplAvg",
    ),
    "NETDEV_STATS": (
        "deviceId", "timestampNs", "macTxPfcPkt", "macRxPfcPkt", "macTxByte", "macTxBandwidth",
        "macRxByte", "macRxBandwidth", "macTxBadByte", "macRxBadByte", "roceTxPkt", "roceRxPkt",
        "roceTxErrPkt", "roceRxErrPkt", "roceTxCnpPkt", "roceRxCnpPkt", "roceNewPktRty",
        "nicTxByte", "nicTxBandwidth", "nicRxByte", "nicRxBandwidth",
    ),
    "CPU_USAGE": ("timestampNs", "cpuId", "usage"),
    "HOST_MEM_USAGE": ("timestampNs", "usage"),
    "HOST_DISK_USAGE": ("timestampNs", "readRate", "writeRate", "usage"),
    "HOST_NETWORK_USAGE": ("timestampNs", "usage", "speed"),
}  # fmt: skip


def _gauge_column(name: str) -> str:
    table, _, column = name.partition(".")
    read = {"deviceId"}
    for gauge in GAUGES:
        if gauge.table == table:
            read |= {*gauge.time.split("|"), *gauge.ids, *gauge.series}
    return READ if column in read else COUNTED


# -- timelines ------------------------------------------------------------------------------------

_PROCESSES = (
    "PID Name", "CANN", "Ascend Hardware", "Communication", "CCU", "Overlap Analysis", "CPU Usage",
    "Memory Usage", "Network Usage", "Disk Usage", "OS Runtime API", "AI Core Freq", "Low Power",
    "NPU MEM", "DDR", "Acc PMU", "HCCS", "NIC", "RoCE", "PCIe", "HBM", "Stars Soc Info",
    "Stars Chip Trans", "LLC", "SIO", "QoS", "Biu Perf", "Ub", "Block Detail", "DPU", "Fusion Task",
    "AI Core Utilization", "Step Trace",
)  # fmt: skip


def _process(name: str) -> str:
    lane = Lane("1", "2", process=name, thread="Stream 2")
    return READ if Classifier()(lane) is not None else COUNTED


_CSV = (
    "op_summary", "npu_mem", "npu_module_mem", "api_statistic", "fusion_op", "task_time",
    "step_trace", "communication_statistic", "op_statistic", "page_fault",
)  # fmt: skip


def _csv(name: str) -> str:
    return READ if table_of(f"{name}_20260701120000.csv") else COUNTED


# -- types ----------------------------------------------------------------------------------------

_STARS = (
    "AI_CORE", "AI_CPU", "AIV_SQE", "PLACE_HOLDER_SQE", "EVENT_RECORD_SQE", "EVENT_WAIT_SQE",
    "NOTIFY_RECORD_SQE", "NOTIFY_WAIT_SQE", "WRITE_VALUE_SQE", "VQ6_SQE", "TOF_SQE", "SDMA_SQE",
    "VPC_SQE", "JPEGE_SQE", "JPEGD_SQE", "DSA_SQE", "ROCCE_SQE", "PCIE_DMA_SQE", "HOST_CPU_SQE",
    "CDQM_SQE", "C_CORE_SQE", "MAX_SQE",
)  # fmt: skip
_V6 = (
    "AI_CORE", "AIV_SQE", "FUSION", "PLACE_HOLDER_SQE", "AICPU_H", "AICPU_D", "NOTIFY_RECORD_SQE",
    "NOTIFY_WAIT_SQE", "WRITE_VALUE_SQE", "UBDMA", "ASYNCDMA", "SDMA_SQE", "VPC_SQE", "JPEGE_SQE",
    "JPEGD_SQE", "CMO_SQE", "CCU_SQE", "CONDITION_SQE", "END_SQE",
)  # fmt: skip
_RUNTIME = """
ACTIVE_AICPU_STREAM ADC_PROF AICPU_INFO_LOAD AICPU_LOADINFO BARRIER CAPTURE_CONDITION
CAPTURE_RECORD CAPTURE_RECORD_EXTERNAL CAPTURE_WAIT CAPTURE_WAIT_EXTERNAL CCU_LAUNCH CMO
CMO_TASK COMMON_CMD CREATE_L2_ADDR CREATE_STREAM DATADUMP_LOADINFO DATA_DUMP DAVID_EVENT_RECORD
DAVID_EVENT_RESET DAVID_EVENT_WAIT DEBUG_REGISTER DEBUG_REGISTER_FOR_STREAM DEBUG_UNREGISTER
DEBUG_UNREGISTER_FOR_STREAM DEVICE_RINGBUFFER_CONTROL DIRECT_SEND DQS_ADSPC DQS_BATCH_DEQUEUE
DQS_CONDITION_COPY DQS_DEQUEUE DQS_ENQUEUE DQS_FRAME_ALIGN DQS_INTER_CHIP_POSTPROC
DQS_INTER_CHIP_PREPROC DQS_MBUF_FREE DQS_PREPARE DQS_SCHED_END DQS_ZEROCOPY EVENT_RECORD
EVENT_RESET EVENT_WAIT FFTS_PLUS FLIP_TASK FUSIONDUMP_ADDR_SET FUSION_KERNEL GET_DEVICE_MSG
GET_STARS_VERSION HOSTFUNC_CALLBACK IPC_EVENT_RECORD IPC_EVENT_WAIT IPC_INT_NOTICE KERNEL_AICORE
KERNEL_AICPU KERNEL_AIVEC KERNEL_FUSION KERNEL_MIX_AIC KERNEL_MIX_AIV LABEL_GOTO LABEL_SET
LABEL_SWITCH MAINTENANCE MEMCPY_ASYNC MEMSET_ASYNC MEM_WAIT_VALUE MEM_WRITE_VALUE
MODEL_END_GRAPH MODEL_EXECUTE MODEL_EXIT_GRAPH MODEL_LOAD MODEL_MAINTAINCE
MODEL_SERIAL_SCHED_NOTIFY_WAIT MODEL_SERIAL_SCHED_POST_PROC MODEL_SERIAL_SCHED_PRE_PROC
MODEL_TASK_UPDATE MODEL_TO_AICPU MULTIPLE_TASK NOP NOTIFY_RECORD NOTIFY_WAIT
NPU_CLEAR_FLOAT_STATUS NPU_GET_FLOAT_STATUS ONLINE_PROF_DISABLE ONLINE_PROF_ENABLE
OVERFLOW_SWTICH_SET PROFILER_DYNAMIC_DISABLE PROFILER_DYNAMIC_ENABLE PROFILER_TRACE
PROFILER_TRACE_EX PROFILING_DISABLE PROFILING_ENABLE RDMA_DB_SEND RDMA_PI_VALUE_MODIFY RDMA_SEND
REDUCE_ASYNC_V2 REMOTE_EVENT_WAIT SET_STREAM_MODE SQE_UPDATE_TASK SQ_LOCK_UNLOCK STARS_COMMON
STREAM_ACTIVE STREAM_LABEL_GOTO STREAM_LABEL_SWITCH_BY_INDEX STREAM_SWITCH STREAM_SWITCH_N
STREAM_TAG_SET TASK_FLIP TASK_SQE_UPDATE TASK_TIMEOUT_SET TSFW_AICPU_MSG_VERSION UB_DB_SEND
UPDATE_ADDRESS WRITE_VALUE WriteValueTask
"""
_SUBTASKS = (
    "AIC", "AIV", "Notify Wait", "Notify Record", "Write Value", "MIX_AIC", "MIX_AIV", "SDMA",
    "Data Context", "Invalidate Data Context", "Writeback Data Context", "AI_CPU", "Load Context",
    "DSA",
)  # fmt: skip
_UNITS = (
    "AI_CORE", "AI_CPU", "AI_VECTOR_CORE", "WRITE_BACK", "MIX_AIC", "MIX_AIV", "FFTS_PLUS",
    "DSA_SQE", "DVPP", "COMMUNICATION", "FUSION", "INVALID", "HCCL_AI_CPU",
)  # fmt: skip


def _type(name: str) -> str:
    known = OPERATORS.get(name, OpClass.UNCLASSIFIED) != OpClass.UNCLASSIFIED
    return READ if known else UNCLASSIFIED


_HCCL = {
    "data types": (
        raw.DATA_TYPES,
        ("INT8", "INT16", "INT32", "FP16", "FP32", "INT64", "UINT64", "UINT8", "UINT16", "UINT32",
         "FP64", "BFP16", "INT128", "HIF8", "FP8E4M3", "FP8E5M2", "FP8E8M0", "RESERVED",
         "INVALID_TYPE"),
    ),
    "link types": (
        raw.LINKS,
        ("ON_CHIP", "HCCS", "PCIE", "ROCE", "SIO", "HCCS_SW", "STANDARD_ROCE", "UB", "UBoE",
         "RESERVED", "INVALID_TYPE"),
    ),
    "transport types": (
        raw.TRANSPORTS, ("SDMA", "RDMA", "LOCAL", "UB", "ROCE", "RESERVED", "INVALID_TYPE"),
    ),
}  # fmt: skip


def _named(names: dict[int, str]) -> Callable[[str], str]:
    return lambda name: READ if name in names.values() else COUNTED


INVENTORIES = (
    Inventory("ascend_db", "tables of msprof databases", _DB, _MSPROF_DATE, _TABLES, _table),
    Inventory(
        "ascend_db", "tables of framework databases", _TORCH, "2026-08-21", _FRAMEWORK_TABLES,
        _table,
    ),
    *(
        Inventory(
            "ascend_db", f"columns of {table}", _TORCH if table in _OF_TORCH else _DB,
            "2026-08-21" if table in _OF_TORCH else _MSPROF_DATE, columns, _column(table),
        )
        for table, columns in _COLUMNS.items()
    ),
    Inventory(
        "ascend_db", "columns of counter tables", _DB, _MSPROF_DATE,
        tuple(f"{table}.{one}" for table, columns in _GAUGE_COLUMNS.items() for one in columns),
        _gauge_column,
    ),
    Inventory(
        "ascend_tables", "tables of cluster_analysis.db", _CLUSTER, "2026-08-20", _CLUSTER_TABLES,
        _cluster_table,
    ),
    Inventory(
        "ascend_tables", "CSV tables of msprof", f"`summary_constant.h` of {_MSPROF}",
        _MSPROF_DATE, _CSV, _csv,
    ),
    Inventory(
        "msprof", "processes of timelines", f"`meta_data_event.h` of {_MSPROF}", _MSPROF_DATE,
        _PROCESSES, _process,
    ),
    Inventory(
        "msprof", "types of device tasks", f"`ascend_task_association.cpp` of {_MSPROF}",
        _MSPROF_DATE, _STARS, _type,
    ),
    Inventory(
        "msprof", "types of device tasks of chip V6 (950)", f"`sqe_type_map.py` of {_MSPROF}",
        _MSPROF_DATE, _V6, _type,
    ),
    Inventory(
        "msprof", "types of runtime tasks",
        "`profiling_agent.cc` and `task_manager.cc` of hicann/runtime", "2026-08-22",
        tuple(_RUNTIME.split()), _type,
    ),
    Inventory(
        "msprof", "types of subtasks", f"`ascend_task_association.cpp` of {_MSPROF}", _MSPROF_DATE,
        _SUBTASKS, _type,
    ),
    Inventory(
        "msprof", "types of operators", f"`number_mapping.cpp` of {_MSPROF}", _MSPROF_DATE, _UNITS,
        _type,
    ),
    *(
        Inventory(
            "ascend_raw", f"{title} of HCCL", _DB, _MSPROF_DATE, entries, _named(names),
            known=names.values(),
        )
        for title, (names, entries) in _HCCL.items()
    ),
)  # fmt: skip
