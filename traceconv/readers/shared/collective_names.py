"""The library of a communication kernel, by its name: one table for all readers.

Profilers state the name of a kernel, not its purpose. Names are compared in lower case, and the
first matching library counts: a library built upon another one, or with its names among template
arguments, precedes it. Patterns match kernels that communicate, not all kernels of a library.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from traceconv.core.patterns import lazy_regex

OTHER_LIBRARY = "Communication"
"""Title of the tracks of kernels that only match the user's own words."""


class Library(NamedTuple):
    """One row of the table.

    Attributes:
        title:   of the tracks of its kernels.
        pattern: regular expression for lower-case names.
        source:  the code that names the kernels.
        example: a name in a profile.
    """

    title: str
    pattern: str
    source: str
    example: str


LIBRARIES = (
    Library(
        "DeepEP",
        r"deep_ep(?!::layout)|::ep::int(?:er|ra)node",
        "deepseek-ai/DeepEP csrc/kernels; only its layout kernels stay on one device",
        "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*)",
    ),
    Library(
        "MORI",
        r"ep(?:dispatch|combine)int(?:er|ra)node",
        "ROCm/mori src/ops/dispatch_combine",
        "void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>(EpDispatchCombineArgs)",
    ),
    Library(
        "QuickReduce",
        r"quick_?reduce|allreduce_prototype_(?:one|two)shot",
        "vllm-project/vllm csrc/quickreduce; also in sglang and aiter",
        "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4>, __half>",
    ),
    Library(
        "AITER",
        r"aiter::(?:cross_device_reduce|allreduce|allgather|reduce_scatter)",
        "ROCm/aiter csrc/include/custom_all_reduce.cuh",
        "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)",
    ),
    Library(
        "Custom All-Reduce",
        r"cross_device_reduce",
        "vllm-project/vllm csrc/custom_all_reduce.cuh; also in sglang",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*)",
    ),
    Library(
        "Symmetric Memory",
        r"multimem_(?:one_shot_)?(?:all_)?(?:reduce|gather)|(?<!lamport_style_)(?:one|two)_shot_all_"
        r"reduce(?!_norm)|symm_mem|symmetric_memory|intra_node_comm",
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem, intra_node_comm.cu",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
    ),
    Library(
        "TensorRT-LLM",
        r"all_?reduce_fusion_?kernel|(?:one|two)_?shot_?all_?reduce|moea2a(?:dispatch|combine)",
        "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels, customAllReduceKernels;"
        " also in flashinfer and sglang",
        "void allreduce_fusion_kernel_oneshot_lamport<0, __nv_bfloat16, 4, true>(AllReduceParams)",
    ),
    Library(
        "MSCCL++",
        r"mscclpp",
        "microsoft/mscclpp",
        "void mscclpp::allreduceAllPairs<__half>(__half*, __half*)",
    ),
    Library(
        "MSCCL",
        r"mscclkernel",
        "Azure/msccl, ROCm/rccl src/device/msccl_kernel_impl.h",
        "mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
    ),
    Library(
        "RCCL",
        r"rccl|nccldevkernel_generic_\d",
        "ROCm/rccl src/device; kernels named as in NCCL count as NCCL",
        "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
    ),
    Library("NVSHMEM", r"nvshmem", "NVIDIA/nvshmem", "nvshmemi_barrier_all_kernel(int)"),
    Library(
        "Userbuffers",
        r"userbuffers",
        "NVIDIA/TransformerEngine common/comm_gemm_overlap/userbuffers",
        "userbuffers_fp16_sum_inplace_gpu_rw<4>(int, int, int, int)",
    ),
    Library("oneCCL", r"oneccl", "uxlfoundation/oneCCL", "oneccl_allreduce_small<float>"),
    Library("XCCL", r"xccl", "pytorch/pytorch ProcessGroupXCCL", "xccl:all_reduce"),
    Library("HCCL", r"hccl|hcom_", "Ascend CANN", "hcom_allReduce__586_0_1"),
    Library(
        "NCCL",
        r"nccl(?:symk?)?(?:dev)?kernel|nccl:|nccl(?:allreduce|allgather|reduce|broadcast|bcast|"
        r"alltoall|send|recv|gather|scatter)",
        "NVIDIA/nccl src/device (2.19 on), src/collectives/device (before); the names of its calls",
        "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    ),
)
"""All known libraries, more specific ones first."""

_EVERY = lazy_regex("|".join(f"(?P<l{i}>{one.pattern})" for i, one in enumerate(LIBRARIES)))
_EACH = [lazy_regex(one.pattern) for one in LIBRARIES]


def library_of(name: str) -> Library | None:
    """The library of a kernel or call; None if its name matches none."""
    low = name.lower()
    if not _EVERY.search(low):
        return None
    return next(
        library for library, pattern in zip(LIBRARIES, _EACH, strict=True) if pattern.search(low)
    )


@lru_cache(4096)
def lane_title(name: str) -> str:
    """The title of the track of a communication kernel."""
    library = library_of(name)
    return library.title if library else OTHER_LIBRARY


_PIECES = lazy_regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""Words of a name: ``ncclAllReduce``, ``MPI_Iallreduce``, ``all_to_all``."""

_LONGEST = 300
"""Characters of a name that are compared."""

_ARGUMENTS = lazy_regex(r"[(<].*", re.DOTALL)

_COLLECTIVE = lazy_regex(
    r"(?:\A|_)i?(?:all_?(?:reduce|gather|to_?all|2_?all)|reduce_?scatter|send_?recv|a_?2_?a\b)"
)
_IN_A_DEVICE = lazy_regex(
    r"(?:\A|_)(?:block|warp|wave|thread|team|cta|cub|(?:mat|b|q)?(?:mul|mm)|gemm)(?:_|\Z)"
)
"""Words in the names of kernels that reduce within a device, or compute while they communicate."""

_CALL = lazy_regex(
    r"(?P<library>(?:(?:p?mpi|nccl|rccl|hccl|hcom|xccl|oneccl|ucc|gloo|c_10_d|torch|dist|distributed)"
    r"_)*)i?(?:bcast|broadcast|barrier|p_?2_?p|(?:i?send|i?recv|receive|send_?receive)|"
    r"(?P<plain>reduce|gather|scatter)v?)"
    r"(?:_(?:v|objects?|list|tensor|coalesced|async|start|done|op|forward|backward|prev|next|\d+))*"
)


def names_operation(name: str) -> bool:
    """Whether a name is of an operation among ranks, as NCCL, RCCL, HCCL, MPI, Gloo and torch spell
    them: ``ncclAllReduce``, ``MPI_Iallgatherv``, ``c10d::allreduce_``, ``all_to_all_single``,
    ``grad_reduce_scatter``.

    ``reduce``, ``gather`` and ``scatter`` are operations within a device, too: they count behind
    the name of a library.
    """
    without_arguments = _ARGUMENTS.sub("", name[:_LONGEST])
    texts = without_arguments, without_arguments.replace("/", "::").rpartition("::")[2]
    words, own_words = ("_".join(_PIECES.findall(text)).lower() for text in texts)
    if _IN_A_DEVICE.search(own_words):
        return False
    call = _CALL.fullmatch(words) or _CALL.fullmatch(own_words)
    return bool(_COLLECTIVE.search(own_words) or (call and (call["library"] or not call["plain"])))
