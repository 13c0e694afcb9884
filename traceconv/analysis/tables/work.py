"""The work of operators: floating-point operations and bytes, from name and inputs.

Products of matrices, attention, convolutions, normalization and experts, of PyTorch and of the
libraries that vLLM, SGLang and TensorRT-LLM call. A multiplication and an addition are two
operations. Bytes are those of inputs and output, each moved once. The order of arguments is that of
``native_functions.yaml`` of PyTorch 2.4 to 2.9, ``torch_bindings.cpp`` of vLLM,
``common_extension.cc`` of sgl-kernel, and the Python files of FlashInfer, AITER and TensorRT-LLM.
Attention of servers is counted from lengths that the range of the pass states, as in the
performance models of TraceLens (AMD-AGI/TraceLens, ``PerfModel``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

from traceconv.core.patterns import lazy_regex, natural

GEMM, ATTENTION, CONVOLUTION = "GEMM", "attention", "convolution"
NORMALIZATION, EXPERTS = "normalization", "experts"
MOST = 1 << 62
"""Sizes that no device has."""

Shape = tuple[int, ...]


class Work(NamedTuple):
    """The work of one call of an operator.

    Attributes:
        kind: :data:`GEMM`, :data:`ATTENTION`, :data:`CONVOLUTION`, :data:`NORMALIZATION` or
            :data:`EXPERTS`.
        flops: floating-point operations; -1 if unknown.
        n_bytes: bytes moved; -1 if unknown.
        bits: of an element of what is multiplied; 0 if unknown, or if that is of several types.
    """

    kind: str
    flops: int = -1
    n_bytes: int = -1
    bits: int = 0


class Lengths(NamedTuple):
    """Sums over the requests of a pass of a language model's server.

    ``q`` is the number of new tokens of a request, ``k`` the number of tokens they look at.
    ``c_`` are requests whose prompt is read, ``g_`` requests that generate.
    """

    c_q: int = 0
    c_k: int = 0
    c_qq: int = 0
    c_qk: int = 0
    g_q: int = 0
    g_k: int = 0
    g_qq: int = 0
    g_qk: int = 0


class Call(NamedTuple):
    """An operator's inputs as PyTorch records them: shapes, types, and other values as text."""

    dims: Sequence[Any]
    types: Sequence[str]
    inputs: Sequence[str]
    lengths: Lengths | None = None

    def shape(self, index: int) -> Shape:
        """The shape of an input; () if it is no tensor.

        Raises:
            ValueError: it is a list of tensors, or has no size.
        """
        sizes = self.dims[index]
        if not all(type(size) is int and size >= 0 for size in sizes):
            raise ValueError(sizes)
        return tuple(sizes)

    def bits(self, index: int) -> int:
        """Bits of an element of an input; 0 if unknown."""
        return _bits(self.type(index))

    def type(self, index: int) -> str:
        """The type of an input; "" if it is not recorded."""
        return self.types[index] if index < len(self.types) else ""

    def tensors(self, least: int, most: int = 99) -> list[tuple[int, Shape]]:
        """Index and shape of the inputs that have ``least`` to ``most`` dimensions."""
        shapes = ((i, dims) for i, dims in enumerate(self.dims) if isinstance(dims, list))
        return [(i, tuple(dims)) for i, dims in shapes if least <= len(dims) <= most
                and all(type(size) is int and size >= 0 for size in dims)]  # fmt: skip

    def whole(self, index: int) -> int:
        """A whole number; -1 for other text."""
        text = self.inputs[index] if 0 <= index < len(self.inputs) else ""
        return natural(text)


_BITS = {
    "double": 64, "long int": 64, "long": 64, "float": 32, "int": 32, "c10::Half": 16,
    "c10::BFloat16": 16, "short": 16, "signed char": 8, "unsigned char": 8, "char": 8, "bool": 8,
    "c10::complex<float>": 64, "c10::complex<double>": 128,
}  # fmt: skip


_PAIRS = "c10::Float4_e2m1fn_x2"
"""Elements of one byte that hold two numbers each; shapes count elements."""
_INTEGERS = ("long int", "long", "int", "short")
_BYTES = ("unsigned char", "signed char", "char")
_PACKED = (*_INTEGERS, "unsigned char")
"""Types of weights that may hold several numbers in one; how many, they do not say."""
_PACKED_BITS = (2, 3, 4, 6, 8)


def _bits(kind: str) -> int:
    return 8 if kind == _PAIRS or kind.startswith("c10::Float8") else _BITS.get(kind, 0)


def _moved(*parts: tuple[int, int]) -> int:
    """Bytes of (elements, bits); -1 if the bits of one are unknown."""
    if any(count and not bits for count, bits in parts):
        return -1
    return sum(count * bits for count, bits in parts) // 8


# -- products of matrices ---------------------------------------------------------------------


def _product(call: Call, left: int, right: int, bias: int = -1, pairs: bool = False) -> Work:
    """The product of two inputs, or stacks of them, the second maybe transposed (linear layers).

    Args:
        pairs: bytes are pairs of FP4.
    """
    left_shape, right_shape = call.shape(left), call.shape(right)
    kinds = [call.type(i) for i in (left, right)]
    pairs = _PAIRS in kinds or (pairs and all(kind in _BYTES for kind in kinds))
    alike = len({("Float8" in kind, _bits(kind)) for kind in kinds}) == 1
    bits = 4 if pairs else call.bits(left) if alike else 0
    if any(kind in _PACKED for kind in kinds) and not pairs:
        if not all(kind in _INTEGERS for kind in kinds):
            return _of_packed(call, left, right)
    elif len(left_shape) < 2 or len(right_shape) < 2:
        raise ValueError(left_shape, right_shape)
    transposed = left_shape[-1] != right_shape[-2]
    if transposed and left_shape[-1] != right_shape[-1]:
        raise ValueError(left_shape, right_shape)
    inner, columns = left_shape[-1], right_shape[-2] if transposed else right_shape[-1]
    inner *= 2 if pairs else 1
    n, added = math.prod(left_shape[:-1]) * columns, 0
    parts = [(math.prod(left_shape), call.bits(left)), (math.prod(right_shape), call.bits(right)),
             (n, call.bits(left) if call.bits(left) > 8 else 16)]  # fmt: skip
    if bias >= 0 and (shape := call.shape(bias)):
        added = n
        parts.append((math.prod(shape), call.bits(bias)))
    return Work(GEMM, 2 * n * inner + added, _moved(*parts), bits)


def _of_packed(call: Call, left: int, right: int) -> Work:
    """The product with weights that hold several numbers in an element (GPTQ, AWQ, Marlin, FP4).

    The number of columns is an argument next to the numbers of rows and of the inner size, or it is
    the number of scales, or of rows of bytes that hold two numbers each: whichever explains the
    size of the weights.
    """
    left_shape, weights = call.shape(left), call.shape(right)
    rows, inner = math.prod(left_shape[:-1]), left_shape[-1]
    stated_columns = (call.whole(i + 1) for i in range(len(call.inputs))
              if (call.whole(i), call.whole(i + 2)) == (rows, inner))  # fmt: skip
    scales = (
        shape[1]
        for i, shape in call.tensors(2, 2)
        if i > right and call.type(i) not in _INTEGERS and shape[0] and not inner % shape[0]
    )
    halves = [weights[0]] if call.type(right) in _BYTES and 2 * weights[-1] == inner else []
    held = math.prod(weights) * call.bits(right)
    for columns in (*stated_columns, *scales, *halves):
        if columns > 0 and any(held == inner * columns * bits for bits in _PACKED_BITS):
            moved = _moved((rows * inner, call.bits(left)), (held // 8, 8), (rows * columns, 16))
            return Work(GEMM, 2 * rows * columns * inner, moved, call.bits(left))
    return Work(GEMM, bits=call.bits(left))


def _is_product(result: Shape, left: Shape, right: Shape) -> bool:
    """Whether a matrix has the shape of the product of two, the second maybe transposed."""
    sizes = left[-1], result[-1]
    return result[:-1] == left[:-1] and right[-2:] in (sizes, sizes[::-1])


def _of_library(call: Call, pairs: bool = False) -> Work:
    """The product of the first two inputs that are matrices, or of two behind their result."""
    tensors = call.tensors(2)
    (left, left_shape), (right, right_shape) = tensors[:2]
    if len(tensors) > 2 and _is_product(left_shape, right_shape, tensors[2][1]):
        left, right = right, tensors[2][0]
    return _product(call, left, right, pairs=pairs)


def _of_template(call: Call) -> Work:
    """The product in a kernel of Inductor: two matrices somewhere before their result."""
    tensors = call.tensors(2, 3)
    for (left, left_shape), (right, right_shape), (_, result) in zip(
        tensors, tensors[1:], tensors[2:], strict=False
    ):
        if _is_product(result, left_shape, right_shape):
            return _product(call, left, right)
    raise ValueError(call.dims)


def _groups_of(call: Call) -> Sequence[tuple[int, Shape]]:
    """Index and shape of the rows and of the matrices of a grouped product."""
    tensors = call.tensors(2)
    if tensors[1][1] == tensors[0][1] or (
        len(tensors) > 2 and len(tensors[1][1]) == 2 < len(tensors[2][1])
    ):
        tensors = tensors[1:]  # behind their result
    return tensors[:2]


def grouped_rows(dims: str) -> int:
    """Rows of a grouped product with the argument "Input Dims"; -1 where it has no matrices."""
    try:
        (_, rows), (_, matrices) = _groups_of(Call(json.loads(dims) if dims else [], [], []))
    except (ValueError, TypeError, IndexError, RecursionError):
        return -1
    return rows[0] if len(rows) == 2 and len(matrices) == 3 else -1


def _grouped(call: Call, pairs: bool = False) -> Work:
    """Rows of the first input, sorted by group, each with the matrix of its group."""
    (left, left_shape), (right, right_shape) = _groups_of(call)
    if len(left_shape) != 2 or len(right_shape) != 3:
        return _product(call, left, right, pairs=pairs)
    if left_shape[1] not in right_shape[1:]:
        raise ValueError(left_shape, right_shape)
    columns = right_shape[2] if left_shape[1] == right_shape[1] else right_shape[1]
    pairs = _PAIRS in call.types or (pairs and call.type(left) in _BYTES)
    n, bits = left_shape[0] * columns, call.bits(left)
    moved = _moved(
        (math.prod(left_shape), bits), (math.prod(right_shape), call.bits(right)), (n, 16)
    )
    return Work(GEMM, 2 * n * left_shape[1] * (2 if pairs else 1), moved, 4 if pairs else bits)


def _of_marlin_experts(call: Call) -> Work:
    """``moe_wna16_marlin_gemm``: ``top_k, mul_topk_weights, is_ep, b_q_type, size_m, size_n,
    size_k``; with experts on several ranks it is unknown how many rows are this rank's."""
    rows, inner = call.shape(0)
    for i in range(4, len(call.inputs) - 2):
        if (call.whole(i), call.whole(i + 2)) == (rows, inner) and call.whole(i - 4) > 0:
            is_known = call.inputs[i - 2] == "False"
            flops = 2 * call.whole(i - 4) * rows * inner * call.whole(i + 1) if is_known else -1
            return Work(EXPERTS, flops, bits=call.bits(0))
    return Work(EXPERTS, bits=call.bits(0))


def _experts(call: Call) -> Work:
    """Two products of each token with the matrices of its experts, (E, N, K) and (E, K, N).

    How many experts a token has, two tensors with their numbers and weights say. Which experts are
    used, and so how many bytes are moved, is not recorded; neither is how many tokens stay on this
    rank where experts are on several (a map of more experts than there are matrices).
    """
    unknown = Work(EXPERTS, bits=call.bits(0))
    tokens, stacks = call.shape(0), call.tensors(3, 3)
    chosen = [shape for _, shape in call.tensors(2, 2)[1:] if shape[0] == tokens[0]]
    top = next((a[1] for a, b in pairwise(chosen) if a == b), 0)
    if len(tokens) != 2 or len(stacks) < 2 or not top:
        return unknown
    (_, up), (_, down) = stacks[:2]
    packed, remainder = divmod(tokens[1], up[2]) if up[2] else (0, 1)
    hidden = down[2] * packed
    mapped = any(shape[0] > up[0] for i, shape in call.tensors(1, 1)
                 if call.type(i) in _INTEGERS)  # fmt: skip
    fits = up[0] == down[0] and down[1] == tokens[1] and up[1] in (hidden, 2 * hidden)
    if remainder or mapped or not fits or (packed > 1 and call.type(stacks[0][0]) not in _PACKED):
        return unknown
    return unknown._replace(flops=2 * tokens[0] * top * tokens[1] * (up[1] + hidden))


def flat_product(left: int, right: int, result: int, bits: int = 16) -> Work | None:
    """The product of two matrices with these numbers of elements, whichever is transposed; None if
    no matrices have such sizes."""
    if min(left, right, result) <= 0 or left * right % result:
        return None
    inner = math.isqrt(left * right // result)
    if inner * inner * result != left * right or left % inner or right % inner:
        return None
    return _possible(Work(GEMM, 2 * result * inner, (left + right + result) * bits // 8, bits))


# -- attention --------------------------------------------------------------------------------


def _attended(
    first: int, causal: int, heads_first: bool = False, backward: bool = False,
    packed: int = -1, window: int = -1,
) -> Callable[[Call], Work]:  # fmt: skip
    """Attention of stacked queries, keys and values.

    Args:
        first: index of the queries.
        causal: index of the input that says whether half is masked.
        heads_first: whether (batch, heads, length, size), else (batch, length, heads, size).
        backward: five products where forward has two.
        packed: index of the lengths of sequences that are packed into one, which are not recorded.
        window: index of the two inputs that say how far a query looks.
    """

    def work(call: Call) -> Work:
        query, key, value = (call.shape(first + i) for i in range(3))
        if len(query) != 4 or len(key) != 4 or len(value) != 4 or query[0] != key[0]:
            raise ValueError(query, key)
        length, heads = (2, 1) if heads_first else (1, 2)
        if not key[heads] or query[heads] % key[heads] or query[3] != key[3]:
            raise ValueError(query, key)
        looks = call.inputs[window : window + 2] if window >= 0 else []
        half = call.inputs[causal] in _MASKED
        unsure = call.inputs[causal] not in (*_MASKED, "False", "0")
        unsure |= half and query[length] != key[length]  # which half, operators do not agree on
        unsure |= packed >= 0 and any(call.dims[packed : packed + 1])
        if unsure or any(look not in ("", "-1") for look in looks):
            return Work(ATTENTION, bits=call.bits(first))
        flops = 2 * query[0] * query[heads] * query[length] * key[length] * (query[3] + value[3])
        flops //= 2 if half else 1
        out = math.prod(query[:3]) * value[3]
        n = sum(map(math.prod, (query, key, value))) + out
        flops = 5 * flops // 2 if backward else flops
        n = 2 * n if backward else n
        return Work(ATTENTION, flops, _moved((n, call.bits(first))), call.bits(first))

    return work


_MASKED = ("True", "1", "2")
"""Half is masked; numbers are those of ``custom_mask_type``."""


def _paged(call: Call, by_page: bool = True) -> Work:
    """Attention of a server's pass: queries (tokens, heads, size), and keys that are in a cache.

    Layers that only look at a window of the tokens are not told from others.

    Args:
        by_page: the cache is (pages, length of a page, heads, size); FlashInfer's may be
            (pages, heads, length of a page, size), so that the number of heads is unknown.
    """
    tensors = call.tensors(3)
    i_query, query = next(((i, shape) for i, shape in tensors if len(shape) < 5), (0, ()))
    key = next((shape for i, shape in tensors if i > i_query and shape[-1] == query[-1]
                and (shape != query or (i == i_query + 1 and by_page))), None)  # fmt: skip
    lengths, bits = call.lengths, call.bits(i_query)
    if lengths is None or not query:
        return Work(ATTENTION, bits=bits)
    heads, size = query[-2:]
    flops = 4 * heads * size * (lengths.c_qk + lengths.g_qk) - 2 * heads * size * lengths.c_qq
    if key is None or (len(key) > 3 and not by_page):
        return Work(ATTENTION, flops, -1, bits)
    moved = 2 * size * ((lengths.c_q + lengths.g_q) * heads + (lengths.c_k + lengths.g_k) * key[-2])
    return Work(ATTENTION, flops, _moved((moved, bits)), bits)


# -- convolutions and normalization ---------------------------------------------------------


def _convolved(call: Call, order: Sequence[int] = (0, 1, 2), transposed: bool = False) -> Work:
    """A convolution: input (batch, channels, ...), weights (out, channels / groups, ...).

    Args:
        order: where stride, padding and dilation are among the lists of numbers.
        transposed: weights are (channels, out / groups, ...), and a further list is added to the
            size of the output; of operators that do not state it.
    """
    data, weights = call.shape(0), call.shape(1)
    if len(data) != len(weights) or len(data) < 3:
        raise ValueError(data, weights)
    lists = [json.loads(text) for text in call.inputs[2:] if text.startswith("[")]
    spread = len(data) - 2
    stride, padding, dilation, *_ = (
        numbers * spread if len(numbers) == 1 else numbers for numbers in (lists[i] for i in order)
    )
    reach = [gap * (size - 1) for gap, size in zip(dilation, weights[2:], strict=True)]
    if transposed or (len(call.inputs) > 6 and call.inputs[6] == "True"):
        padding_out = lists[order[3] if len(order) > 3 else 3]
        out = [(size - 1) * step - 2 * pad + far + extra + 1 for size, step, pad, far, extra
               in zip(data[2:], stride, padding, reach, padding_out, strict=True)]  # fmt: skip
        # the last whole number of the inputs: of convolutions the number of groups
        numbers = (call.whole(i) for i in range(len(call.inputs) - 1, 1, -1))
        n_groups = next(number for number in numbers if number >= 0)
        columns, n_products = weights[1] * n_groups, math.prod(data)
    else:
        out = [(size + 2 * pad - far - 1) // step + 1 for size, step, pad, far
               in zip(data[2:], stride, padding, reach, strict=True)]  # fmt: skip
        columns, n_products = weights[0], data[0] * weights[0] * math.prod(out)
    n = data[0] * columns * math.prod(out)
    moved = _moved((math.prod(data), call.bits(0)), (math.prod(weights), call.bits(1)),
                   (n, call.bits(0)))  # fmt: skip
    return Work(CONVOLUTION, 2 * n_products * math.prod(weights[1:]), moved, call.bits(0))


def _convolved_back(call: Call) -> Work:
    """``convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
    transposed, output_padding, groups, output_mask)``: a product of the result's gradient for
    the gradient of the input, and one for that of the weights, and each reads it."""
    result, data, weights = (call.shape(i) for i in range(3))
    is_made = json.loads(call.inputs[10].lower())
    n_products = math.prod(data if call.inputs[7] == "True" else result) * math.prod(weights[1:])
    moved = []
    for is_wanted, read, made in zip(is_made, (weights, data), (data, weights), strict=False):
        if is_wanted:
            moved += [(math.prod(result), call.bits(0))]
            moved += [(math.prod(shape), call.bits(1)) for shape in (read, made)]
    return Work(CONVOLUTION, 2 * n_products * sum(is_made[:2]), _moved(*moved), call.bits(0))


def _normalized(call: Call, per_element: int, arrays: int = 2, first: int = 0) -> Work:
    """Operations per element; arrays of this size that are read and written; and vectors, once.

    Its bits are unknown: no unit for products of matrices does it.
    """
    n, bits = math.prod(call.shape(first)), call.bits(first)
    vectors = [(shape[0], call.bits(i)) for i, shape in call.tensors(1, 1)]
    return Work(NORMALIZATION, per_element * n, _moved((arrays * n, bits), *vectors))


def _normalized_by_library(call: Call, added: bool) -> Work:
    """Normalization by the root mean square, maybe after adding a residual, which is written, too.

    Arrays that are not among the inputs are of the first one's type.
    """
    tensors = call.tensors(2)
    shape, n = tensors[0][1], math.prod(tensors[0][1])
    bits = [call.bits(i) for i, dims in tensors if dims == shape][: 4 if added else 2]
    bits += [bits[-1]] * ((4 if added else 2) - len(bits))
    vectors = [(size, call.bits(i)) for i, (size,) in call.tensors(1, 1) if size == shape[-1]]
    return Work(NORMALIZATION, (5 if added else 4) * n, _moved(*((n, b) for b in bits), *vectors))


_FLASH, _EFFICIENT = "scaled_dot_product_flash_attention", "scaled_dot_product_efficient_attention"
_CUDNN = "scaled_dot_product_cudnn_attention"
_KNOWN: dict[str, Callable[[Call], Work]] = {
    **dict.fromkeys(("mm", "bmm", "_int_mm", "matmul"), lambda call: _product(call, 0, 1)),
    **dict.fromkeys(
        ("addmm", "baddbmm", "_addmm_activation"), lambda call: _product(call, 1, 2, bias=0)
    ),
    "linear": lambda call: _product(call, 0, 1, bias=2 if len(call.dims) > 2 else -1),
    "_scaled_mm": lambda call: _product(call, 0, 1),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped),
    "scaled_dot_product_attention": _attended(0, 5, True),
    f"_{_FLASH}": _attended(0, 4, True),
    f"_{_EFFICIENT}": _attended(0, 6, True),
    f"_{_CUDNN}": _attended(0, 6, True),
    "_scaled_dot_product_fused_attention_overrideable": _attended(0, 5, True),
    "_flash_attention_forward": _attended(0, 8, packed=3, window=11),
    "_efficient_attention_forward": _attended(0, 9, packed=4),
    "_flash_attn_forward": _attended(0, 5),
    **dict.fromkeys(("mha_fwd", "fmha_v3_fwd"), _attended(0, 5)),
    f"_{_FLASH}_backward": _attended(1, 11, True, True),
    f"_{_EFFICIENT}_backward": _attended(1, 11, True, True),
    f"_{_CUDNN}_backward": _attended(1, 14, True, True),
    "_flash_attention_backward": _attended(1, 11, False, True, packed=6),
    "_efficient_attention_backward": _attended(1, 14, False, True, packed=7),
    "_flash_attn_backward": _attended(1, 11, False, True),
    **dict.fromkeys(("mha_bwd", "fmha_v3_bwd"), _attended(1, 8, False, True)),
    **dict.fromkeys(("convolution", "_convolution", "conv1d", "conv2d", "conv3d"), _convolved),
    **dict.fromkeys(
        ("cudnn_convolution", "miopen_convolution"), partial(_convolved, order=(1, 0, 2))
    ),
    **dict.fromkeys(
        ("cudnn_convolution_transpose", "miopen_convolution_transpose"),
        partial(_convolved, order=(2, 0, 3, 1), transposed=True),
    ),
    "convolution_backward": _convolved_back,
    **{
        f"{library}{of}_norm{end}": partial(
            _normalized, per_element=9 if end else 5, arrays=3 if end else 2, first=len(end) and 1
        )
        for of in ("batch", "layer", "group", "instance")
        for library in ("", "native_", "cudnn_", "miopen_")
        for end in ("", "_backward")
    },
    **dict.fromkeys(("rms_norm", "_fused_rms_norm"), partial(_normalized, per_element=4)),
    "_fused_rms_norm_backward": partial(_normalized, per_element=8, arrays=3, first=1),
    "_groupnorm_run": partial(_normalized, per_element=5),
    "moe_wna16_marlin_gemm": _of_marlin_experts,
}
"""Operators by their name without the library; of ``aten`` unless a library has the same."""

_NO_PRODUCT = lazy_regex(r".*(?:all_?gather|all_?reduce|reduce_scatter|attention|moe_align).*")
_PRODUCTS = lazy_regex(r"(?:.*_)?(?:gemm|gemv|b?mm|linear|matmul|mul_mat)(?:_\w+)?")
_GROUPS = lazy_regex(
    r"(?:.*_)?(?:group(?:ed)?|moe|segment)_(?:mm|gemm)(?:_\w+)?|ck_grouped_gemm(?:_\w+)?"
)
_EXPERTS = lazy_regex(r"(?:.*_)?(?:fused_experts|fused_moe|moe_forward|fmoe)(?:_\w*)?|\w+_moe")
_NO_ATTENTION = lazy_regex(
    r".*(?:mla|merge|cache_update|norm|combine|state|meta|backward|bwd|linear|lightning|gdn|sparse"
    r"|workspace|plan).*"
)
_ATTENTION = lazy_regex(
    r".*(?:attention|flash_attn|fmha|mha_(?:batch_prefill|varlen_fwd|fwd)).*"
    r"|(?:batch|single)_(?:prefill|decode)_with_kv_cache\w*_run|pa_(?:fwd|decode)\w*"
)
_FLASH_ATTENTION = lazy_regex(
    r"(?:_vllm_fa\d_C|sgl_kernel|flash_attn_\d)::(?:varlen_)?fwd(?:_\w+)?"
)
_NORMS = lazy_regex(r".*rms_?norm(?:2d)?(?:_\w+)?")
_TEMPLATE = lazy_regex(r"triton_tem_fused_(?:\w*_)?(?:add|b|badd)?mm(?:_\w+)?")
_LIBRARY = lazy_regex(r"(?:[A-Za-z_]\w*::)+")


@lru_cache(1 << 12)
def model_of(name: str) -> Callable[[Call], Work] | None:
    """How the work of operators of this name is counted; None if it is not known."""
    library = _LIBRARY.match(name)
    bare = name[library.end() :] if library else name
    if library and bare in _KNOWN:
        return _KNOWN[bare]
    if not library:
        return _of_template if _TEMPLATE.fullmatch(bare) else None
    if library[0] == "aten::":
        return None
    return next(_of_libraries(name, bare), None)


def is_grouped(name: str) -> bool:
    """Whether operators of this name multiply rows of several groups, each with a matrix."""
    model = model_of(name)
    return getattr(model, "func", model) is _grouped


def _of_libraries(name: str, bare: str) -> Iterator[Callable[[Call], Work]]:
    """How operators of libraries beside PyTorch are counted, the likeliest way first."""
    if _NO_PRODUCT.fullmatch(bare) is None:
        pairs = "fp4" in bare
        if _GROUPS.fullmatch(bare):
            yield partial(_grouped, pairs=pairs)
        if _EXPERTS.fullmatch(bare):
            yield _experts
        if _PRODUCTS.fullmatch(bare) and "moe" not in bare:
            yield partial(_of_library, pairs=pairs)
    attends = _ATTENTION.fullmatch(bare) or _FLASH_ATTENTION.fullmatch(name)
    if attends and _NO_ATTENTION.fullmatch(bare) is None:
        by_page = "flashinfer" not in name and not bare.startswith("paged_attention_v")
        yield partial(_paged, by_page=by_page)
    if _NORMS.fullmatch(bare) and "rope" not in bare and "reduce" not in bare:
        yield partial(_normalized_by_library, added="add" in bare)


@lru_cache(1 << 12)
def work_of(
    name: str, dims: str, types: str, inputs: str, lengths: Lengths | None = None
) -> Work | None:
    """The work of a call of an operator; None if its name or inputs do not determine it.

    Args:
        dims, types, inputs: arguments "Input Dims", "Input type" and "Concrete Inputs", as JSON.
        lengths: of the pass it is in.
    """
    count = model_of(name)
    if count is None or not dims:
        return None
    try:
        shapes, kinds, values = (json.loads(text) if text else [] for text in (dims, types, inputs))
        work = count(Call(shapes, kinds, values, lengths))
    except (ValueError, TypeError, IndexError, KeyError, StopIteration, RecursionError):
        return None
    return _possible(work)


def _possible(work: Work) -> Work | None:
    return work if max(work.flops, work.n_bytes) < MOST and work.flops >= -1 else None


_DETAILED = lazy_regex(
    r"execute_\d+_context_\d+\(sq(\d{1,18})sk(\d{1,18})sqsq(\d{1,18})sqsk(\d{1,18})\)"
    r"_generation_\d+\(sq(\d{1,18})sk(\d{1,18})sqsq(\d{1,18})sqsk(\d{1,18})\)"
)
_LISTED = lazy_regex(r"(step|prefill|decode)\[(.*)\]")
_PAIR = lazy_regex(r"\b(?:([cg]_)?(sq|sk|sqsq|sqsk)=(\d{1,18})|(tok)=(\d{1,18}))(?!\d)")


@lru_cache(1 << 12)
def lengths_of(name: str) -> Lengths | None:
    """The lengths that the range of a pass states, as vLLM, SGLang and ATOM name it with the
    patches of TraceLens; None if it does not."""
    if match := _DETAILED.match(name):
        return Lengths(*map(int, match.groups()))
    match = _LISTED.fullmatch(name)
    if not match or "sqsk=" not in name:
        return None
    own_prefix = "c_" if match[1] == "prefill" else "g_"
    lengths: dict[str, int] = {}
    for prefix, kind, number, tokens, count in _PAIR.findall(match[2]):
        key = f"{prefix or own_prefix}{'q' if tokens else kind.replace('s', '')}"
        lengths[key] = int(number or count)
    return Lengths(**{key: value for key, value in lengths.items() if key in Lengths._fields})
