"""PyTorch: categories of Kineto's events, keys around them, and the fields of their arguments."""

from tests.census import COUNTED, DESCRIBES, READ, UNCLASSIFIED, Inventory
from traceconv.readers.torch.kineto.lanes import Sort, sort_of
from traceconv.readers.torch.kineto.trace_file import USED_KEYS

_KINETO = "pytorch/kineto, libkineto"
_DATE = "2026-08"

CATEGORIES = """
cpu_op user_annotation gpu_user_annotation gpu_memcpy gpu_memset kernel external_correlation
cuda_runtime cuda_driver cpu_instant_event python_function overhead mtia_runtime mtia_ccp_events
mtia_insight cuda_sync cuda_event mtia_counters glow_runtime cuda_profiler_range hpu_op xpu_runtime
xpu_driver collective_comm privateuse1_runtime privateuse1_driver xpu_scope_profiler xpu_sync
hardware_counters Trace
"""
"""``ActivityType``, and the category of the capture as a whole."""

FIRST_CATEGORIES = "Operator Runtime Kernel Memcpy Memset"
"""Those of PyTorch 1.8 (2021) that are called otherwise today."""

MLU_CATEGORIES = """
mlu_user_annotation mlu_memcpy mlu_memset mlu_runtime mlu_profiler_range mlu_notifier
"""
"""Additions of Cambricon's fork."""

FLOWS = "ac2g fwdbwd async async_gpu async_cpu_to_gpu"

KEYS = """
schemaVersion deviceProperties distributedInfo displayTimeUnit baseTimeNanoseconds traceName
traceEvents trace_id record_shapes profile_memory with_stack with_flops with_modules host_name
cuda_runtime_version cuda_driver_version cupti_version roctracer_version hip_runtime_version
hip_driver_version xpupti_version nccl_version INFO WARNING ERROR metadata username
"""

FIELDS = {
    "kernels and copies": (
        """
        External id|queued|device|context|stream|correlation|registers per thread|shared memory|
        blocks per SM|warps per SM|grid|block|est. achieved occupancy %|graph id|graph node id|
        bytes|memory bandwidth (GB/s)|fromDevice|inDevice|toDevice|fromContext|inContext|toContext|
        kind|kernel_file|kernel_backend|kernel_hash|kernel_kwargs|num_stages|num_warps|priority
        """,
        f"{_KINETO}/src/CuptiActivity.cpp, RocmActivity_inl.h; torch/csrc/profiler",
    ),
    "collectives": (
        """
        Collective name|In msg nelems|Out msg nelems|Group size|dtype|In split size|Out split size|
        Process Group Name|Process Group Description|Process Group Ranks|Process Group ID|Rank|
        Src Rank|Dst Rank|Seq|Comms Id|Input Tensors start|Output Tensors start|Global rank start|
        Global rank stride
        """,
        f"{_KINETO}/src/output_json.cpp; torch/csrc/distributed/c10d/ParamCommsUtils.hpp",
    ),
    "operators, calls and allocations": (
        """
        External id|Record function id|Sequence number|Fwd thread id|Ev Idx|Input Dims|Input type|
        Input Strides|Concrete Inputs|Call stack|Module Hierarchy|Python id|Python parent id|
        Python module id|Addr|Bytes|Total Allocated|Total Reserved|Device Id|Device Type|cbid|cid|
        correlation|kernel|grid|block|shared memory|ptr|src|dst|size|cuda_sync_kind|wait_on_stream|
        wait_on_cuda_event_id|wait_on_cuda_event_record_corr_id|Op count
        """,
        f"torch/csrc/profiler/collection.cpp, kineto_shim.cpp; {_KINETO}/src/RocmActivity_inl.h",
    ),
}

_TITLE = "fields of the arguments of "


def _category(name: str) -> str:
    sort = sort_of(name)
    if sort is Sort.OTHER:
        return UNCLASSIFIED
    return DESCRIBES if sort is Sort.PROFILER else READ


def _key(name: str) -> str:
    if name == "traceEvents":
        return READ
    return DESCRIBES if name in USED_KEYS else COUNTED


def _words(text: str) -> tuple[str, ...]:
    return tuple(" ".join(one.split()) for one in text.split("|"))


INVENTORIES = [
    Inventory("kineto", "categories", f"{_KINETO}/include/ActivityType.h", _DATE,
              tuple(CATEGORIES.split()), _category),
    Inventory("kineto", "categories of the first versions", "pytorch/kineto, tb_plugin/samples",
              "2021-06", tuple(FIRST_CATEGORIES.split()), _category),
    Inventory("kineto", "categories of MLUs", "Cambricon/torch_mlu, ActivityType.cpp", "2024",
              tuple(MLU_CATEGORIES.split()), _category),
    Inventory("kineto", "categories of flows", f"{_KINETO}/src/output_json.cpp", _DATE,
              tuple(FLOWS.split()), lambda name: READ),
    Inventory("kineto", "keys around the events", f"{_KINETO}/src/output_json.cpp, init.cpp", _DATE,
              tuple(KEYS.split()), _key, USED_KEYS),
    *(
        Inventory("kineto", _TITLE + of, source, _DATE, _words(text), lambda name: READ)
        for of, (text, source) in FIELDS.items()
    ),
]  # fmt: skip
