"""Names of kernels that communicate, as profilers print them, and names that only look alike."""

import re

import pytest

from traceconv.core.model import OpClass
from traceconv.readers.shared.collective_names import (
    LIBRARIES,
    OTHER_LIBRARY,
    lane_title,
    names_operation,
)
from traceconv.readers.shared.gpu_kernels import kernel_class

SEEN = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "NCCL",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "NCCL",
    "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)": "NCCL",
    "ncclReduceScatterRingLLKernel_sum_f16(ncclColl)": "NCCL",
    "ncclSendRecvKernel_copy_i8(ncclColl)": "NCCL",
    "nccl:all_reduce": "NCCL",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "RCCL",
    "multimem_one_shot_all_reduce_kernel": "Symmetric Memory",
    "void c10d::intra_node_comm::oneShotAllReduceKernel<8u, true>(at::BFloat16*)": (
        "Symmetric Memory"
    ),
    "void tensorrt_llm::kernels::ar_fusion::lamport_style_one_shot_all_reduce_norm_kernel<8>()": (
        "TensorRT-LLM"
    ),
    "void oneshotAllreduceFusionKernel<4, __nv_bfloat16, true>(AllReduceFusionParams)": (
        "TensorRT-LLM"
    ),
    "void moe_comm::moeA2ACombineKernel<__nv_bfloat16, 8>(CombineKernelPointers)": "TensorRT-LLM",
    "void sglang::cross_device_reduce_2stage<half, 8>(RankData*)": "Custom All-Reduce",
    "void pkg::ep::intranode::combine<__nv_bfloat16, 8>(void*)": "DeepEP",
    "mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)": "MSCCL",
    "nvshmemi_barrier_all_kernel": "NVSHMEM",
}

COMPUTE = (
    "ncclGroupStart",
    "ncclCommInitRank",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "void rmsNormLamport<__nv_bfloat16>(__nv_bfloat16*)",
    "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, long*>>(long*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp)",
    "void softmax_kernel<BlockAllReduce<SumOp, float>>(float*)",
    "moeA2APrepareCombineKernel",
    "local_dma_request_fill",
)


@pytest.mark.parametrize(("name", "title"), SEEN.items())
def test_the_library_of_a_name(name, title):
    """The most specific library a name is of heads its lane."""
    assert (kernel_class(name), lane_title(name)) == (OpClass.COMM, title)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda one: one.title)
def test_every_row_is_found_by_its_example(library):
    """No row is hidden by one before it, and each says where its names come from."""
    assert lane_title(library.example) == library.title
    assert re.search(library.pattern, library.example.lower())
    assert library.source


@pytest.mark.parametrize("name", COMPUTE)
def test_names_that_only_look_alike(name):
    """What is done on one device is not communication."""
    assert kernel_class(name) is OpClass.COMPUTE


def test_transfers_among_kernels_are_copies():
    """MTIA reports them as kernels."""
    assert kernel_class("dma_request") is OpClass.COPY


def test_words_of_the_user_name_no_library():
    """They make communication, on lanes of a neutral title."""
    assert kernel_class("relu_kernel", ("relu",)) is OpClass.COMM
    assert lane_title("relu_kernel") == OTHER_LIBRARY


@pytest.mark.parametrize(
    "name",
    [
        "allreduce", "all_reduce", "AllReduce", "ALLREDUCE", "nccl_all_reduce", "grad_allreduce",
        "all_to_all_single", "alltoallv", "c10d::_allgather_base_", "reduce_scatter_tensor",
        "MPI_Iallreduce", "MPI_Reduce", "ncclGather", "gloo:all_gather",
        "Default/AllReduce-op534_0",
        "HcclBatchSendRecv", "hcom_broadcast__1_2_3", "broadcast_", "send", "MPI_Irecv(int, float)",
        "recv_forward", "dist.barrier",
    ],
)  # fmt: skip
def test_names_of_operations_among_ranks(name):
    """In the spelling of any library."""
    assert names_operation(name)


@pytest.mark.parametrize(
    "name",
    [
        *COMPUTE, "reduce", "gather", "scatter_add", "BroadcastTo", "blockAllReduce",
        "MatmulAllReduce", "npu_mm_all_reduce_base", "sender", "matmul",
    ],
)  # fmt: skip
def test_names_of_no_operation_among_ranks(name):
    """What may be done within one device is not communication."""
    assert not names_operation(name)
