"""What operators have to do, by their names and inputs; and what devices can do."""

import json

import pytest

from traceconv.analysis.device_peaks import peaks_of
from traceconv.analysis.tables.work import Lengths, lengths_of, work_of

HALF, EIGHT = "c10::BFloat16", "c10::Float8_e4m3fn"
CAUSAL = ["", "", "", "", "0.0", "True"]


def test_two_numbers_in_an_element_are_two():
    """FP4 in pairs: K is twice the size that the shape has; bytes are those of the elements."""
    types = json.dumps(["c10::Float4_e2m1fn_x2"] * 2)
    found = work_of("aten::_scaled_mm", "[[2, 8], [8, 4]]", types, "[]")
    assert (found.flops, found.n_bytes) == (2 * 2 * 16 * 4, 16 + 32 + 2 * 8)


@pytest.mark.parametrize("types", [(HALF, "int"), (HALF, "unsigned char"), ("unsigned char",) * 2])
def test_products_with_packed_weights_are_of_unknown_size(types):
    """INT4 and FP4 in whole numbers: (128, 8) stands for 64 columns, or for 16."""
    found = work_of("_C::awq_gemm", "[[32, 128], [128, 8]]", json.dumps(types), "[]")
    assert (found.flops, found.n_bytes) == (-1, -1)


@pytest.mark.parametrize(
    ("name", "dims", "inputs", "flops", "n_bytes"),
    [
        ("aten::mm", [[2, 3], [3, 4]], [], 48, 2 * (6 + 12 + 8)),
        ("aten::bmm", [[5, 2, 3], [5, 3, 4]], [], 5 * 48, 10 * (6 + 12 + 8)),
        ("aten::addmm", [[4], [2, 3], [3, 4], [], []], [], 48 + 8, 2 * (6 + 12 + 8 + 4)),
        ("aten::linear", [[7, 2, 3], [4, 3]], [], 7 * 48, 2 * (42 + 12 + 56)),
        ("vllm::rocm_unquantized_gemm", [[2, 3], [4, 3], [4]], [], 48, 2 * (6 + 12 + 8)),
        ("aten::_grouped_mm", [[8, 3], [2, 3, 4], [2]], [], 2 * 8 * 3 * 4, 2 * (24 + 24 + 32)),
        ("aten::scaled_dot_product_attention", [[1, 2, 6, 8]] * 3, CAUSAL,
         2 * 2 * 6 * 6 * 16 // 2, 2 * 4 * 96),
        ("aten::_flash_attention_forward", [[1, 6, 2, 8], [1, 9, 2, 8], [1, 9, 2, 8]],
         ["False"] * 9, 2 * 2 * 6 * 9 * 16, 2 * (96 + 144 + 144 + 96)),
        ("aiter::mha_bwd", [[1, 6, 2, 8], [1, 6, 2, 8], [1, 6, 2, 8], [1, 6, 2, 8]],
         ["False"] * 8 + ["True"], 5 * (2 * 2 * 6 * 6 * 16 // 2) // 2, 2 * 2 * 4 * 96),
        ("aten::convolution", [[1, 4, 8, 8], [6, 2, 3, 3], [6], [], [], []],
         ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]"], 2 * 6 * 16 * 18, 2 * (256 + 108 + 96)),
        ("aten::miopen_convolution", [[1, 4, 8, 8], [6, 4, 3, 3], [6], [], [], []],
         ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]"], 2 * 6 * 16 * 36, 2 * (256 + 216 + 96)),
    ],
)  # fmt: skip
def test_work_of_an_operator(name, dims, inputs, flops, n_bytes):
    """Operations, and bytes of inputs and output, each moved once."""
    types = json.dumps([HALF] * len(dims))
    found = work_of(name, json.dumps(dims), types, json.dumps(inputs))
    assert (found.flops, found.n_bytes, found.bits) == (flops, n_bytes, 16)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("aten::add", [[2, 3], [2, 3]]),
        ("aten::mm", [[2, 3], [5, 4]]),
        ("aten::mm", [[2, -3], [3, 4]]),
        ("aten::mm", [[1 << 40, 1 << 40], [1 << 40, 1 << 40]]),
        ("gemm", [[2, 3], [3, 4]]),
        ("vllm::unified_kv_cache_update", [[2, 4, 8], [2, 4, 8]]),
        ("aten::mm", "no list"),
    ],
)
def test_what_is_not_known_is_no_work(name, dims):
    """Other operators, shapes that do not fit together, sizes that no device has."""
    assert work_of(name, json.dumps(dims), json.dumps([HALF] * len(dims)), "[]") is None


def test_types_decide_on_bytes_and_peak():
    """Of FP8 the output is of 16 bits; types that are not known leave bytes unknown."""
    dims = "[[2, 3], [3, 4]]"
    assert work_of("aten::_scaled_mm", dims, json.dumps([EIGHT] * 2), "[]")[1:] == (48, 34, 8)
    assert work_of("aten::mm", dims, '["c10::New", "c10::New"]', "[]")[1:] == (48, -1, 0)


ATTENTION = "vllm::unified_attention_with_output", "[[5, 4, 8], [5, 2, 8], [5, 2, 8]]"


def test_attention_of_a_pass_needs_its_lengths():
    """Prompts look back at half of themselves, generated tokens at all before them."""
    types = json.dumps([HALF] * 3)
    assert work_of(*ATTENTION, types, "[]").flops == -1
    of = Lengths(c_q=3, c_k=3, c_qq=9, c_qk=9, g_q=2, g_k=20, g_qq=2, g_qk=20)
    found = work_of(*ATTENTION, types, "[]", of)
    assert found.flops == 4 * 4 * 8 * (9 + 20) - 2 * 4 * 8 * 9
    assert found.n_bytes == 2 * 2 * 8 * (5 * 4 + 23 * 2)


BF, INT, BYTE = HALF, "int", "unsigned char"
SERVED = [
    # vLLM, csrc/torch_bindings.cpp and csrc/libtorch_stable/torch_bindings.cpp
    ("_C::cutlass_scaled_mm", [[2, 8], [2, 8], [8, 8], [2, 1], [8, 1], []],
     [BF, EIGHT, EIGHT, "float", "float", ""], [], 2 * 2 * 8 * 8, 16 + 64 + 2 * 16),
    ("_C::gptq_gemm", [[2, 64], [8, 16], [1, 2], [1, 16], [64], [], []],
     [BF, INT, INT, BF, INT], [], 2 * 2 * 64 * 16, 2 * 128 + 512 + 2 * 32),
    ("_C::awq_gemm", [[2, 64], [64, 2], [1, 16], [1, 2], []],
     [BF, INT, BF, INT, ""], [], 2 * 2 * 64 * 16, 2 * 128 + 512 + 2 * 32),
    ("_C::marlin_gemm", [[2, 64], [], [4, 32], [], [1, 16], [], [], []],
     [BF, "", INT, "", BF], ["", "", "", "", "", "", "", "1", "2", "16", "64", "True"],
     2 * 2 * 64 * 16, 2 * 128 + 512 + 2 * 32),
    ("_C::cutlass_scaled_fp4_mm", [[2, 16], [2, 32], [16, 32], [128, 4], [128, 4], [1]],
     [BF, BYTE, BYTE, EIGHT, EIGHT, "float"], [], 2 * 2 * 64 * 16, 64 + 512 + 2 * 32),
    ("_C::cutlass_moe_mm", [[6, 16], [6, 8], [3, 16, 8], [6, 1], [3, 1]],
     [BF, EIGHT, EIGHT, "float", "float"], [], 2 * 6 * 8 * 16, 48 + 384 + 2 * 96),
    ("vllm::inplace_fused_experts", [[4, 8], [3, 20, 8], [3, 8, 10], [4, 2], [4, 2]],
     [BF, BF, BF, "float", INT], [], 2 * 4 * 2 * 8 * 30, -1),
    ("vllm::moe_forward", [[4, 8], [4, 3], []], [BF, BF, ""], [], -1, -1),
    ("_C::fused_add_rms_norm", [[4, 8], [4, 8], [8], []], [BF] * 3, [], 5 * 32, 8 * 32 + 16),
    ("_C::rms_norm_static_fp8_quant", [[4, 8], [4, 8], [8], [1], []],
     [EIGHT, BF, BF, "float"], [], 4 * 32, 3 * 32 + 16),
    # SGLang, sgl-kernel/csrc/common_extension.cc
    ("sgl_kernel::fp8_scaled_mm", [[2, 8], [8, 4], [2, 1], [1, 4], [], []],
     [EIGHT, EIGHT, "float", "float"], [], 2 * 2 * 8 * 4, 16 + 32 + 2 * 8),
    ("sgl_kernel::moe_wna16_marlin_gemm", [[4, 64], [], [3, 4, 32]], [BF, "", INT],
     [*[""] * 12, "16", "2", "False", "False", "1", "4", "16", "64"], 2 * 4 * 2 * 64 * 16, -1),
    ("sgl_kernel::fwd", [[4, 8, 16], [9, 1, 2, 16], [9, 1, 2, 16]], [BF] * 3, [], -1, -1),
    # TensorRT-LLM, FlashInfer, Inductor
    ("trtllm::fp4_fp8_gemm_trtllmgen", [[2, 64], [16, 32]], [EIGHT, BYTE], [],
     2 * 2 * 64 * 16, 128 + 512 + 2 * 32),
    ("flashinfer::rmsnorm", [[4, 8], [4, 8], [8], [], []], [BF] * 3, [], 4 * 32, 4 * 32 + 16),
    ("triton_tem_fused_addmm_3", [[4], [2, 8], [8, 4], [2, 4]], [BF] * 4, [],
     2 * 2 * 8 * 4, 2 * (16 + 32 + 8)),
    # PyTorch, aten/src/ATen/native/native_functions.yaml
    ("aten::convolution", [[1, 4, 8, 8], [4, 3, 2, 2], [], [], [], [], [], [], []],
     [BF] * 2, ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"],
     2 * 256 * 12, 2 * (256 + 48 + 3 * 256)),
    ("aten::convolution_backward", [[1, 6, 8, 8], [1, 4, 8, 8], [6, 4, 3, 3]], [BF] * 3,
     ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1",
      "[True, True, False]"], 2 * 2 * 384 * 36, 2 * 2 * (384 + 256 + 216)),
    ("aten::native_layer_norm", [[4, 8], [], [8], [8], []], [BF, "", BF, BF], [], 160, 160),
    ("aten::native_batch_norm_backward", [[2, 3, 4], [2, 3, 4], [3]], [BF] * 3, [], 216, 150),
    ("aten::_efficient_attention_forward",
     [[1, 6, 2, 8], [1, 6, 2, 8], [1, 6, 2, 8], [], [3], [3]], [BF] * 3, ["0"] * 10, -1, -1),
]  # fmt: skip
"""Operators with inputs as their libraries declare them: operations and bytes, -1 where unknown."""


@pytest.mark.parametrize(
    ("name", "dims", "types", "inputs", "flops", "n_bytes"), SERVED, ids=[one[0] for one in SERVED]
)
def test_work_of_servers_and_training(name, dims, types, inputs, flops, n_bytes):
    """Quantized products, experts, normalization, attention of servers, convolutions backward."""
    found = work_of(name, json.dumps(dims), json.dumps(types), json.dumps(inputs))
    assert (found.flops, found.n_bytes) == (flops, n_bytes)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("vllm::moe_align_block_size", [[4, 2], [3]]),
        ("symm_mem::fused_all_gather_matmul", [[2, 8], [8, 4]]),
        ("vllm::gdn_attention_core", [[4, 8, 16], [4, 8, 16]]),
        ("_C::merge_attn_states", [[4, 8, 16], [4, 8, 16]]),
        ("triton_poi_fused_mm_0", [[2, 8], [8, 4], [2, 4]]),
        ("triton_tem_fused_mm_0", [[2, 8], [8, 4], [2, 5]]),
    ],
)
def test_names_alike_that_do_other_work(name, dims):
    """Sorting of tokens, products with communication within, linear attention, merging."""
    assert work_of(name, json.dumps(dims), json.dumps([BF] * len(dims)), "[]") is None


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("execute_5_context_1(sq3sk3sqsq9sqsk9)_generation_2(sq2sk20sqsq2sqsk20)",
         Lengths(3, 3, 9, 9, 2, 20, 2, 20)),
        ("step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk=20 g_sk=20]", Lengths(0, 0, 0, 0, 2, 20, 2, 20)),
        ("decode[bs=2 tok=2 d=2 sqsq=2 sqsk=20 sk=20]", Lengths(0, 0, 0, 0, 2, 20, 2, 20)),
        ("prefill[bs=1 tok=3 ctx=[3] sqsq=9 sqsk=9 sk=3]", Lengths(3, 3, 9, 9)),
        ("step[DECODE bs=32]", None),
        ("execute_context_1(3)_generation_0(0)", None),
    ],
)  # fmt: skip
def test_lengths_that_a_pass_states(name, lengths):
    """As vLLM, SGLang and ATOM write them."""
    assert lengths_of(name) == lengths


def test_peaks_of_devices():
    """By the whole name; nothing of names that several sorts of a device share."""
    assert peaks_of("AMD Instinct MI300X").half == 1307.4
    assert peaks_of("NVIDIA A100-SXM4-80GB").eight == 0
    assert peaks_of("NVIDIA H100") is peaks_of("") is None
