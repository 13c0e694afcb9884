"""The work of operators: floating-point operations and bytes, from name and inputs.

Products of matrices, attention and convolutions of PyTorch and of the libraries that vLLM, SGLang
and TensorRT-LLM call. A product and a sum are two operations. Bytes are those of inputs and output,
each moved once. Names and the order of arguments are those of ``native_functions.yaml`` of PyTorch
2.4 to 2.9; attention of servers is counted from lengths that the range of the pass states, as in
the performance models of TraceLens (AMD-AGI/TraceLens, ``PerfModel``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from traceconv.core.patterns import lazy_regex

GEMM, ATTENTION, CONVOLUTION = "GEMM", "attention", "convolution"
MOST = 1 << 62
"""Sizes that no device has."""


class Work(NamedTuple):
    """The work of one call of an operator.

    Attributes:
        kind: :data:`GEMM`, :data:`ATTENTION` or :data:`CONVOLUTION`.
        flops: floating-point operations; -1 if unknown.
        n_bytes: bytes moved; -1 if unknown.
        bits: of an element of the first input; 0 if unknown.
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

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an input; () if it is no tensor.

        Raises:
            ValueError: it is a list of tensors, or has no size.
        """
        found = self.dims[index]
        if not all(type(size) is int and size >= 0 for size in found):
            raise ValueError(found)
        return tuple(found)

    def bits(self, index: int) -> int:
        """Bits of an element of an input; 0 if unknown."""
        return _bits(self.types[index]) if index < len(self.types) else 0

    def integers(self, index: int) -> list[int]:
        """A list of numbers, "[1, 2]"."""
        return [int(one) for one in json.loads(self.inputs[index])]


_BITS = {
    "double": 64, "long int": 64, "long": 64, "float": 32, "int": 32, "c10::Half": 16,
    "c10::BFloat16": 16, "short": 16, "signed char": 8, "unsigned char": 8, "char": 8, "bool": 8,
    "c10::complex<float>": 64, "c10::complex<double>": 128,
}  # fmt: skip


_PAIRS = "c10::Float4_e2m1fn_x2"
"""Elements of one byte that hold two numbers each; shapes count elements."""
_INTEGERS = ("long int", "long", "int", "short")
_PACKED = (*_INTEGERS, "unsigned char")
"""Types of weights of INT4 and FP4 that hold several numbers in one; how many, they do not say."""


def _bits(kind: str) -> int:
    return 8 if kind == _PAIRS or kind.startswith("c10::Float8") else _BITS.get(kind, 0)


def _moved(*parts: tuple[int, int]) -> int:
    """Bytes of (elements, bits); -1 if the bits of one are unknown."""
    if any(count and not bits for count, bits in parts):
        return -1
    return sum(count * bits for count, bits in parts) // 8


def _product(call: Call, left: int, right: int, bias: int = -1) -> Work:
    """The product of two inputs, or stacks of them, the second maybe transposed (linear layers)."""
    one, other = call.shape(left), call.shape(right)
    if len(one) < 2 or len(other) < 2:
        raise ValueError(one, other)
    transposed = one[-1] != other[-2]
    if transposed and one[-1] != other[-1]:
        raise ValueError(one, other)
    kinds = [call.types[i] for i in (left, right) if i < len(call.types)]
    if any(kind in _PACKED for kind in kinds) and not all(kind in _INTEGERS for kind in kinds):
        return Work(GEMM, bits=call.bits(left))  # the shape of packed weights is not that of N, K
    inner, columns = one[-1], other[-2] if transposed else other[-1]
    inner *= 2 if _PAIRS in kinds else 1
    rows = math.prod(one[:-1])
    n, added = rows * columns, 0
    parts = [(math.prod(one), call.bits(left)), (math.prod(other), call.bits(right)),
             (n, call.bits(left) if call.bits(left) > 8 else 16)]  # fmt: skip
    if bias >= 0 and (shape := call.shape(bias)):
        added = n
        parts.append((math.prod(shape), call.bits(bias)))
    return Work(GEMM, 2 * n * inner + added, _moved(*parts), call.bits(left))


def _first_product(call: Call) -> Work:
    """Work of the product of the first two inputs that are matrices."""
    tensors = [i for i, dims in enumerate(call.dims) if isinstance(dims, list) and len(dims) > 1]
    return _product(call, tensors[0], tensors[1])


def _grouped(call: Call) -> Work:
    """Rows of the first input, sorted by group, each with the matrix of its group."""
    one, other = call.shape(0), call.shape(1)
    if len(one) != 2 or len(other) != 3 or one[1] != other[1]:
        raise ValueError(one, other)
    n = one[0] * other[2]
    moved = _moved((math.prod(one), call.bits(0)), (math.prod(other), call.bits(1)), (n, 16))
    return Work(GEMM, 2 * n * one[1], moved, call.bits(0))


def _attended(
    first: int, causal: int, heads_first: bool, backward: bool = False
) -> Callable[[Call], Work]:
    """Attention of stacked queries, keys and values.

    Args:
        first: index of the queries.
        causal: index of the input that says whether half is masked.
        heads_first: whether (batch, heads, length, size), else (batch, length, heads, size).
        backward: five products where forward has two.
    """

    def work(call: Call) -> Work:
        query, key, value = (call.shape(first + i) for i in range(3))
        if len(query) != 4 or len(key) != 4 or len(value) != 4 or query[0] != key[0]:
            raise ValueError(query, key)
        length, heads = (2, 1) if heads_first else (1, 2)
        flops = 2 * query[0] * query[heads] * query[length] * key[length] * (query[3] + value[3])
        if call.inputs[causal] in _MASKED and query[length] == key[length]:
            flops //= 2
        out = math.prod(query[:3]) * value[3]
        n = sum(map(math.prod, (query, key, value))) + out
        flops = 5 * flops // 2 if backward else flops
        n = 2 * n if backward else n
        return Work(ATTENTION, flops, _moved((n, call.bits(first))), call.bits(first))

    return work


_MASKED = ("True", "1", "2")
"""Half is masked; numbers are those of ``custom_mask_type``."""


def _paged(call: Call) -> Work:
    """Attention of a server's pass: queries (tokens, heads, size), and keys that are in a cache.

    Layers that only look at a window of the tokens are not told from others.
    """
    query = call.shape(0)
    keys = next(
        shape for i in range(1, len(call.dims))
        if ((shape := call.shape(i)) and len(shape) > 2 and shape[-1] == query[-1]
        and shape != query) or (i == 1 and len(shape) == 3)
    )  # fmt: skip
    if len(query) != 3:
        raise ValueError(query)
    of = call.lengths
    if of is None:
        return Work(ATTENTION, bits=call.bits(0))
    heads, size = query[1], query[2]
    flops = 4 * heads * size * (of.c_qk + of.g_qk) - 2 * heads * size * of.c_qq
    moved = 2 * size * ((of.c_q + of.g_q) * heads + (of.c_k + of.g_k) * keys[-2])
    return Work(ATTENTION, flops, _moved((moved, call.bits(0))), call.bits(0))


def _convolved(call: Call) -> Work:
    """A convolution: input (batch, channels, ...), weights (out, channels / groups, ...)."""
    data, weights = call.shape(0), call.shape(1)
    if len(data) != len(weights) or len(data) < 3:
        raise ValueError(data, weights)
    lists = [one for one in call.inputs[2:] if one.startswith("[")]
    stride, padding, dilation = ([int(n) for n in json.loads(one)] for one in lists[:3])
    spread = len(data) - 2
    out = [
        (size + 2 * pad - reach * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, reach in zip(
            data[2:], weights[2:], *(_each(one, spread) for one in (stride, padding, dilation)),
            strict=True,
        )
    ]  # fmt: skip
    n = data[0] * weights[0] * math.prod(out)
    moved = _moved((math.prod(data), call.bits(0)), (math.prod(weights), call.bits(1)),
                   (n, call.bits(0)))  # fmt: skip
    return Work(CONVOLUTION, 2 * n * math.prod(weights[1:]), moved, call.bits(0))


def _each(values: Sequence[int], count: int) -> Sequence[int]:
    return [*values] * count if len(values) == 1 else values


def _miopen(call: Call) -> Work:
    """(self, weight, bias, padding, stride, dilation, ...): padding precedes stride."""
    lists = [i for i, one in enumerate(call.inputs) if one.startswith("[")]
    inputs = list(call.inputs)
    inputs[lists[0]], inputs[lists[1]] = inputs[lists[1]], inputs[lists[0]]
    return _convolved(call._replace(inputs=inputs))


_KNOWN: dict[str, Callable[[Call], Work]] = {
    **dict.fromkeys(("mm", "bmm", "_int_mm", "matmul"), lambda call: _product(call, 0, 1)),
    **dict.fromkeys(
        ("addmm", "baddbmm", "_addmm_activation"), lambda call: _product(call, 1, 2, bias=0)
    ),
    "linear": lambda call: _product(call, 0, 1, bias=2 if len(call.dims) > 2 else -1),
    "_scaled_mm": lambda call: _product(call, 0, 1),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped),
    "scaled_dot_product_attention": _attended(0, 5, True),
    "_scaled_dot_product_flash_attention": _attended(0, 4, True),
    "_scaled_dot_product_efficient_attention": _attended(0, 6, True),
    "_scaled_dot_product_cudnn_attention": _attended(0, 6, True),
    "_flash_attention_forward": _attended(0, 8, False),
    "_efficient_attention_forward": _attended(0, 9, False),
    "_flash_attn_forward": _attended(0, 5, False),
    "_scaled_dot_product_flash_attention_backward": _attended(1, 11, True, True),
    "_scaled_dot_product_efficient_attention_backward": _attended(1, 11, True, True),
    "_flash_attn_backward": _attended(1, 11, False, True),
    **dict.fromkeys(("convolution", "_convolution", "conv1d", "conv2d", "conv3d"), _convolved),
    **dict.fromkeys(("cudnn_convolution", "miopen_convolution"), _miopen),
}
"""Operators by their name without the library; of ``aten`` unless a library has the same."""

_PRODUCTS = lazy_regex(r"(?:.*_)?(?:gemm|scaled_mm|linear|matmul)(?:_\w+)?")
_ATTENTION = lazy_regex(
    r"(?!.*(?:mla|merge|cache_update|norm|combine|state|meta|backward|bwd))"
    r".*(?:attention|flash_attn|fmha|mha_(?:batch_prefill|varlen_fwd|fwd)).*"
)
_LIBRARY = lazy_regex(r"(?:[A-Za-z_]\w*::)+")


@lru_cache(1 << 12)
def model_of(name: str) -> Callable[[Call], Work] | None:
    """How the work of operators of this name is counted; None if it is not known."""
    library = _LIBRARY.match(name)
    bare = name[library.end() :] if library else name
    if library and bare in _KNOWN:
        return _KNOWN[bare]
    if not library or library[0] == "aten::":
        return None
    if _ATTENTION.fullmatch(bare):
        return _paged
    return _first_product if _PRODUCTS.fullmatch(bare) else None


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
        shapes, kinds, values = (json.loads(one) if one else [] for one in (dims, types, inputs))
        found = count(Call(shapes, kinds, values, lengths))
    except (ValueError, TypeError, IndexError, KeyError, StopIteration, RecursionError):
        return None
    return found if max(found.flops, found.n_bytes) < MOST and found.flops >= -1 else None


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
    own = "c_" if match[1] == "prefill" else "g_"
    stated: dict[str, int] = {}
    for of, what, number, tokens, count in _PAIR.findall(match[2]):
        key = f"{of or own}{'q' if tokens else what.replace('s', '')}"
        stated[key] = int(number or count)
    return Lengths(**{key: value for key, value in stated.items() if key in Lengths._fields})
