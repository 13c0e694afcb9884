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
