"""Classes of the tasks of an Ascend device, for timelines, tables, databases and raw logs.

CANN knows two kinds of tasks. One that carries out an operator has the operator's name, and a type
that says what it ran on. One that carries out none is named by its own type: that of CANN's runtime
(``EVENT_WAIT``), or where the host's side of it is missing that of the scheduler (``SDMA_SQE``).
Only tasks of operators compute, as in CANN's own ``Computing`` lane, which also leaves out the
kernels that drive communication on the AI CPU and the vector cores.

Sources, which list every name:

* runtime types: hicann/runtime ``ProfilingAgent::RegisterProfTypeInfo``, ``g_taskDesc`` and
  ``tsTaskType_t`` (2026-08-22);
* scheduler types: Ascend/msprof ``sqe_type_map.py`` (HWTS of 910, STARS of A2 and A3, V6 of 950)
  and ``stars_constant.py`` (parts of FFTS+), 2026-07-21;
* operator types: Ascend/msprof ``number_mapping.cpp`` (``geTaskTypeMap``), and the types above,
  which replace the missing name of an operator (``TaskProcessor::GetTaskType``);
* which tasks compute: Ascend/msprof ``overlap_analysis_processor.cpp`` and ``tree_analyzer.cpp``.
"""

from __future__ import annotations

import re

from traceconv.core.model import OpClass
from traceconv.core.patterns import lazy_regex


def _classes(words: dict[OpClass, str]) -> dict[str, OpClass]:
    return {name: op for op, names in words.items() for name in names.split("|")}


_RUNTIME = _classes({
    # kernels without a known operator: replayed graphs, kernels of libraries
    OpClass.UNCLASSIFIED: "KERNEL_AICORE|KERNEL_AIVEC|KERNEL_MIX_AIC|KERNEL_MIX_AIV|KERNEL_SIMT|"
        "KERNEL_AICPU|KERNEL_FUSION|FUSION_KERNEL|STARS_COMMON|MULTIPLE_TASK|FFTS|FFTS_PLUS",
    OpClass.COPY: "MEMCPY_ASYNC|MEMSET_ASYNC|REDUCE_ASYNC_V2|MEMCPY_ASYNC_SQE_UPDATE|"
        "MEMCPY_ASYNC_SQE_UPDATE_H2D|DQS_ZEROCOPY|DQS_CONDITION_COPY",
    # the runtime has these for HCCL only
    OpClass.COMM_TASK: "RDMA_SEND|RDMA_DB_SEND|RDMA_PI_VALUE_MODIFY|UB_DB_SEND|UB_DIRECT_SEND|"
        "DIRECT_SEND|CCU_LAUNCH",
    OpClass.WAIT: "EVENT_RECORD|EVENT_WAIT|EVENT_RESET|REMOTE_EVENT_WAIT|EXTERNAL_EVENT_WAIT|"
        "DAVID_EVENT_RECORD|DAVID_EVENT_WAIT|DAVID_EVENT_RESET|NOTIFY_RECORD|NOTIFY_WAIT|"
        "NOTIFY_RESET|NOTIFY_RESET_TASK|IPC_INT_NOTICE|IPC_EVENT_RECORD|IPC_EVENT_WAIT|IPC_RECORD|"
        "IPC_WAIT|WRITE_VALUE|WriteValueTask|WriteValuePtrTask|MEM_WRITE_VALUE|MEM_WAIT_VALUE|"
        "MEM_WAIT_PROF|CAPTURE_RECORD|CAPTURE_WAIT|CAPTURE_RECORD_EXTERNAL|CAPTURE_WAIT_EXTERNAL|"
        "CAPTURE_RECORD_EXTERNAL_PLACEHOLDER|CAPTURE_WAIT_EXTERNAL_PLACEHOLDER|BARRIER|"
        "MODEL_SERIAL_SCHED_NOTIFY_WAIT|MODEL_WAIT_COMPLETE|HOSTFUNC_CALLBACK",
    OpClass.OTHER: "MAINTENANCE|CREATE_STREAM|DATA_DUMP|PC_TRACE|CREATE_L2_ADDR|MODEL_MAINTAINCE|"
        "MODEL_EXECUTE|STREAM_SWITCH|STREAM_SWITCH_N|STREAM_ACTIVE|STREAM_CLEAR_TASK|LABEL_SET|"
        "LABEL_SWITCH|LABEL_GOTO|PROFILER_TRACE|PROFILER_TRACE_EX|PROFILER_DYNAMIC_ENABLE|"
        "PROFILER_DYNAMIC_DISABLE|ALLOC_DSA_ADDR|CMO|CMO_TASK|SQE_UPDATE_TASK|TASK_SQE_UPDATE|"
        "PROFILING_ENABLE|PROFILING_DISABLE|PROF_ENABLE|PROF_DISABLE|MODEL_END_GRAPH|"
        "MODEL_TO_AICPU|ACTIVE_AICPU_STREAM|DATADUMP_LOADINFO|ONLINE_PROF_ENABLE|"
        "ONLINE_PROF_DISABLE|STREAM_LABEL_SWITCH_BY_INDEX|STREAM_LABEL_GOTO|DEBUG_REGISTER|"
        "DEBUG_UNREGISTER|FUSIONDUMP_ADDR_SET|MODEL_EXIT_GRAPH|ADC_PROF|"
        "DEVICE_RINGBUFFER_CONTROL|DEBUG_REGISTER_FOR_STREAM|DEBUG_UNREGISTER_FOR_STREAM|"
        "TASK_TIMEOUT_SET|GET_DEVICE_MSG|NPU_GET_FLOAT_STATUS|NPU_CLEAR_FLOAT_STATUS|"
        "OVERFLOW_SWTICH_SET|STREAM_TAG_SET|SET_STREAM_MODE|MODEL_LOAD|GET_STARS_VERSION|"
        "STARS_VERSION|TASK_FLIP|FLIP_TASK|SQ_LOCK_UNLOCK|SQ_UNLOCK|UPDATE_ADDRESS|Update_Address|"
        "MODEL_TASK_UPDATE|AICPU_INFO_LOAD|AICPU_LOADINFO|NOP|COMMON_CMD|CONDITION_OP|"
        "CAPTURE_CONDITION|TSFW_AICPU_MSG_VERSION|DQS_ENQUEUE|DQS_DEQUEUE|DQS_BATCH_DEQUEUE|"
        "DQS_PREPARE|DQS_SCHED_END|DQS_MBUF_FREE|DQS_INTER_CHIP_PREPROC|DQS_INTER_CHIP_POSTPROC|"
        "DQS_ADSPC|DQS_FRAME_ALIGN|MODEL_SERIAL_SCHED_PRE_PROC|MODEL_SERIAL_SCHED_POST_PROC",
})  # fmt: skip
"""Types of CANN's runtime."""

_NUMBERED = (
    "KERNEL_AICORE|KERNEL_AICPU|EVENT_RECORD|EVENT_WAIT|KERNEL_FUSION|MEMCPY_ASYNC|MAINTENANCE|"
    "CREATE_STREAM|DATA_DUMP|REMOTE_EVENT_WAIT|PC_TRACE|CREATE_L2_ADDR|MODEL_MAINTAINCE|"
    "MODEL_EXECUTE|NOTIFY_WAIT|NOTIFY_RECORD|RDMA_SEND||STREAM_SWITCH|STREAM_ACTIVE|LABEL_SET|"
    "LABEL_SWITCH|LABEL_GOTO|PROFILER_TRACE|EVENT_RESET|RDMA_DB_SEND|PROFILER_TRACE_EX|"
    "PROFILER_DYNAMIC_ENABLE|PROFILER_DYNAMIC_DISABLE|ALLOC_DSA_ADDR|CCU_LAUNCH|MEM_WAIT_PROF|"
    "||||||||||||||||||STARS_COMMON|FFTS|FFTS_PLUS|CMO|BARRIER|WRITE_VALUE|MULTIPLE_TASK|"
    "TASK_SQE_UPDATE|||||||PROFILING_ENABLE|PROFILING_DISABLE|KERNEL_AIVEC|MODEL_END_GRAPH|"
    "MODEL_TO_AICPU|ACTIVE_AICPU_STREAM|DATADUMP_LOADINFO|STREAM_SWITCH_N|HOSTFUNC_CALLBACK|"
    "ONLINE_PROF_ENABLE|ONLINE_PROF_DISABLE|STREAM_LABEL_SWITCH_BY_INDEX||STREAM_LABEL_GOTO|"
    "DEBUG_REGISTER|DEBUG_UNREGISTER|FUSIONDUMP_ADDR_SET|MODEL_EXIT_GRAPH|ADC_PROF|"
    "DEVICE_RINGBUFFER_CONTROL|DEBUG_REGISTER_FOR_STREAM|DEBUG_UNREGISTER_FOR_STREAM|"
    "TASK_TIMEOUT_SET|GET_DEVICE_MSG|NPU_GET_FLOAT_STATUS|NPU_CLEAR_FLOAT_STATUS|"
    "MEMCPY_ASYNC|OVERFLOW_SWTICH_SET|REDUCE_ASYNC_V2|STREAM_TAG_SET|SET_STREAM_MODE|"
    "IPC_INT_NOTICE|MODEL_LOAD|GET_STARS_VERSION|FLIP_TASK|SQ_LOCK_UNLOCK|UPDATE_ADDRESS|"
    "MODEL_TASK_UPDATE|AICPU_INFO_LOAD|NOP|COMMON_CMD|UB_DB_SEND|DIRECT_SEND|FUSION_KERNEL|"
    "KERNEL_MIX_AIC|KERNEL_MIX_AIV|DAVID_EVENT_RECORD|DAVID_EVENT_WAIT|DAVID_EVENT_RESET|"
    "MEM_WRITE_VALUE|MEM_WAIT_VALUE|RDMA_PI_VALUE_MODIFY|DQS_ENQUEUE|DQS_DEQUEUE|DQS_PREPARE|"
    "DQS_ZEROCOPY|DQS_SCHED_END|DQS_MBUF_FREE|DQS_INTER_CHIP_PREPROC|DQS_INTER_CHIP_POSTPROC|"
    "DQS_ADSPC|TSFW_AICPU_MSG_VERSION|CAPTURE_RECORD|CAPTURE_WAIT|DQS_BATCH_DEQUEUE|"
    "IPC_EVENT_RECORD|IPC_EVENT_WAIT|DQS_CONDITION_COPY|DQS_FRAME_ALIGN"
)
RUNTIME_TYPES: dict[int, str] = dict(enumerate(_NUMBERED.split("|")))
"""Types of CANN's runtime by their number, "" for unused numbers. Those that it does not register
with the profiler are shown by their number."""

_CORES = (
    "AI_CORE|AI_VECTOR_CORE|AI_CPU|AIV_SQE|AIC|AIV|MIX_AIC|MIX_AIV|FUSION|AICPU_H|AICPU_D|DSA|"
    "DSA_SQE"
)
_MEDIA = "DVPP|VPC|VPC_SQE|JPEGE|JPEGE_SQE|JPEGD|JPEGD_SQE|VQ6|VQ6_SQE|TOF|TOF_SQE"
_HCCL = "HCCL|COMMUNICATION|HCCL_AI_CPU"
_SCHEDULER = _classes({
    OpClass.COPY: "SDMA|SDMA_SQE|PCIE_DMA|PCIE_DMA_SQE|ASYNCDMA",
    OpClass.COMM_TASK: "ROCCE|ROCCE_SQE|UBDMA|CCU|CCU_SQE",
    OpClass.WAIT: "EVENT_RECORD_SQE|EVENT_WAIT_SQE|NOTIFY_RECORD_SQE|NOTIFY_WAIT_SQE|"
        "WRITE_VALUE_SQE|Notify Wait|Notify Record|Write Value",
    # C cores run the conditions and waits of streams; the DMU contexts move no data of the user's
    OpClass.OTHER: "PLACE_HOLDER|PLACE_HOLDER_SQE|HOST_CPU|HOST_CPU_SQE|CDQM|CDQM_SQE|C_CORE|"
        "C_CORE_SQE|CONDITION|CONDITION_SQE|CMO_SQE|MAX_SQE|END_SQE|DATA_LOAD|Data Context|"
        "Invalidate Data Context|Writeback Data Context|"
        "Load Context|WRITE_BACK",
})  # fmt: skip
"""Types of the task scheduler other than cores."""

UNNAMED: dict[str, OpClass] = {
    **_classes({OpClass.UNCLASSIFIED: _CORES, OpClass.OTHER: _MEDIA, OpClass.COMM_TASK: _HCCL}),
    **_SCHEDULER,
    **_RUNTIME,
    **{str(number): _RUNTIME[name] for number, name in RUNTIME_TYPES.items() if name},
}
"""Class of a task that is named by its type: it carries out no operator that is known."""

OPERATORS: dict[str, OpClass] = {
    **_RUNTIME,
    **_SCHEDULER,
    **_classes({
        OpClass.COMPUTE: f"{_CORES}|{_MEDIA}|FFTS_PLUS|STARS_COMMON|KERNEL_AICORE|"
            "KERNEL_AIVEC|KERNEL_MIX_AIC|KERNEL_MIX_AIV|KERNEL_SIMT|KERNEL_AICPU|KERNEL_FUSION|"
            "FUSION_KERNEL|MULTIPLE_TASK|FFTS|INVALID|Other|N/A|",
        OpClass.COMM_TASK: _HCCL,
    }),
}  # fmt: skip
"""Class of a task that has the name of an operator, by its type; empty types were not recorded.
"""

_COMMUNICATES = lazy_regex(r"hcom_.*|.*(?:AicpuKernel|AivKernel|Aicpu)", re.DOTALL)
"""Names of whole communication operators, and of the tasks that drive them: kernels of HCCL on the
AI CPU and the vector cores, and the server of a fused operator (``MatmulAllReduceAicpu``)."""


def named_class(name: str) -> OpClass | None:
    """The class that the name of a task says; None for the name of an operator, whose type says it.

    ``name`` is as the profiler shows it.
    """
    if (op := UNNAMED.get(name)) is not None:
        return op
    return OpClass.COMM_TASK if _COMMUNICATES.fullmatch(name) else None


def task_class(name: str, kind: str) -> OpClass:
    """The class of a task: UNCLASSIFIED where neither its name nor its type is known."""
    op = named_class(name)
    return OPERATORS.get(kind, OpClass.UNCLASSIFIED) if op is None else op
