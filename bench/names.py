"""Names and argument values for generated captures: invented, of the usual lengths."""

from __future__ import annotations

from itertools import product

_KERNELS = (
    "Matmul", "Add", "Mul", "Cast", "LayerNorm", "Softmax", "Transpose", "ReduceSum", "Gelu",
    "Slice", "Concat", "DropoutDoMask", "BatchMatMul", "StridedSlice", "FlashAttentionScore",
)  # fmt: skip
_WORDS = ("matmul", "add_", "mul", "to", "native_layer_norm", "softmax", "transpose", "sum")
_PLACES = ("attention", "feed_forward", "embedding", "projection", "optimizer", "loss")
_ACTS = ("forward", "backward", "apply", "step", "reshape_for_heads", "all_gather")
_SIZES = (1, 4, 32, 128, 1024, 4096)
_DTYPES = ("float", "c10::BFloat16", "c10::Half", "long int")

KERNELS = [f"aclnn{a}_{b}AiCore_{b}" for a, b in product(_KERNELS, _KERNELS)]
"""Device kernels; the API that launches one is named by the part before the first "_"."""
APIS = sorted({name.split("_")[0] for name in KERNELS})
OPS = [f"aten::{a}" for a in _WORDS] + [f"npu::{a}_{b}" for a, b in product(_WORDS, _PLACES)]
MODULES = [
    f"model/{a}.py({line}): {b}" for line in range(40, 400, 23) for a, b in product(_PLACES, _ACTS)
]
STACKS = [
    ";\\r\\n".join(
        (a, b, MODULES[7], MODULES[3], MODULES[-1], "pretrain_language_model.py(188): main_worker")
    )
    for a, b in zip(MODULES, MODULES[40:], strict=False)
]
DIMS = [
    f"{a},{b},{c};\\r\\n{c},{d};\\r\\n"
    for a, b, c, d in product(_SIZES, _SIZES[1:], _SIZES[2:], _SIZES[2:])
]
DTYPES = [f"{a};\\r\\n{b};\\r\\nScalar" for a, b in product(_DTYPES, _DTYPES)]
TASK_TYPES = ["AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "AI_CPU"]
