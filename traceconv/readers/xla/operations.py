"""The class of an operation of XLA: by the profiler's category, its opcode, or its name.

Opcodes and the device groups of collectives are in the programs of the profile (``HloProto``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import OpClass
from traceconv.core.patterns import lazy_regex
from traceconv.protobuf.message import Field, integers, message, whole_fields
from traceconv.protobuf.message_columns import columns
from traceconv.readers.shared.protobuf_wire import nested
from traceconv.readers.xla.space import PROGRAM, Plane

_SAME = {
    **dict.fromkeys(("psum", "psum2", "pmax", "pmin"), "all-reduce"),
    **dict.fromkeys(("psum-scatter", "all-reduce-scatter"), "reduce-scatter"),
    "ppermute": "collective-permute",
    "pbroadcast": "collective-broadcast",
    "psend": "send",
    "precv": "recv",
    "ragged-all-to-all": "all-to-all",
}
"""Other names of collectives in JAX and the compiler.

Source: the primitives of jax-ml/jax ``jax/_src/lax/parallel.py``, 0.4 to 2026-08.
"""

_VARIANT = lazy_regex(r"(?:unreduced-)?(.+?)(?:-invariant|-reduced|-(?:start|done)(?=-))*")
"""Variants of one collective in JAX: "psum_invariant", "all_gather_reduced", "unreduced_psum"."""

COLLECTIVES = frozenset(
    (
        *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"),
        *("collective-broadcast", "collective-reduce", "send", "recv"),
    )
)
"""Operations of several devices together."""

_COPIES = frozenset(("copy", "infeed", "outfeed"))
_CONTAINERS = frozenset(("while", "conditional", "call"))
"""Operations that contain others."""

_UNDECIDED = frozenset(("async", "async-update", "fusion", "custom-call", ""))
"""Words that do not classify an operation."""

_COMPUTING = {
    "abs", "acos", "acosh", "add", "add-dependency", "after-all", "and", "asin", "asinh", "atan",
    "atan2", "atanh", "batch-norm-grad", "batch-norm-inference", "batch-norm-training", "bitcast",
    "bitcast-convert", "broadcast", "cbrt", "ceil", "cholesky", "clamp", "compare", "complex",
    "concatenate", "constant", "convert", "convolution", "cosh", "cosine", "count-leading-zeros",
    "divide", "domain", "dot", "dynamic-reshape", "dynamic-slice", "dynamic-update-slice", "erf",
    "exponential", "exponential-minus-one", "fft", "floor", "gather", "get-dimension-size",
    "get-tuple-element", "imag", "iota", "is-finite", "log", "log-plus-one", "logistic", "map",
    "maximum", "minimum", "mulhi", "multiply", "negate", "not", "opt-barrier", "or", "pad",
    "parameter", "partition-id", "popcnt", "power", "ragged-dot", "real", "reduce",
    "reduce-precision", "reduce-window", "remainder", "replica-id", "reshape", "reverse", "rng",
    "rng-bit-generator", "rng-get-and-update-state", "round-nearest-afz", "round-nearest-even",
    "rsqrt", "scaled-dot", "scan", "scatter", "select", "select-and-scatter", "set-dimension-size",
    "shift-left", "shift-right-arithmetic", "shift-right-logical", "shuffle", "sign", "sine",
    "sinh", "slice", "sort", "sqrt", "stochastic-convert", "subtract", "tan", "tanh", "topk",
    "transpose", "triangular-solve", "tuple", "xor", "data formatting", "non-fusion elementwise",
}  # fmt: skip
"""All other opcodes, and groups of them that the profiler names as categories.

Source: openxla/xla ``xla/hlo/ir/hlo_opcode.h`` (2026-08), ``HloInstruction::ToCategory``.
"""

_UNIQUE = lazy_regex(r"(?<=.)(?:\.(?:\d+|clone|remat\d*))+\Z", re.DOTALL)
"""Suffixes that make names unique: ".3", ".clone", ".remat2"."""

_PHASE = lazy_regex(r"-(start|done)\Z")


class Operation(NamedTuple):
    """An operation.

    Attributes:
        op:    its class; COMM for the start and the end of an asynchronous collective, too.
        word:  the collective; "" if it is none.
        phase: "start" or "done" of an asynchronous operation, else "".
    """

    op: OpClass
    word: str = ""
    phase: str = ""


@lru_cache(1 << 14)
def operation(category: str, opcode: str, name: str) -> Operation:
    """Classify an operation by the first of its three names that is known.

    Args:
        category: ``hlo_category`` of the profiler ("loop fusion", "all-reduce"), "" if none.
        opcode:   of the instruction in its program, "" if that is not there.
        name:     of the event ("all-reduce.3", "psum").
    """
    phase, unknown = "", False
    for candidate, is_name in ((category, False), (opcode, False), (name, True)):
        word = _UNIQUE.sub("", candidate.strip().lower().replace("_", "-"))
        if match := _PHASE.search(word):
            word, phase = word[: match.start()], phase or match[1]
        is_fusion = word.endswith(" fusion")
        word = word.removesuffix(" fusion")
        if variant := _VARIANT.fullmatch(word):
            word = _SAME.get(variant[1], variant[1])
        if word in COLLECTIVES:
            return Operation(OpClass.COMM, word, phase)
        if word in _COPIES:
            return Operation(OpClass.COPY, "", phase)
        if word in _CONTAINERS:
            return Operation(OpClass.OTHER)
        if word in _COMPUTING or is_fusion:
            return Operation(OpClass.COMPUTE)
        unknown = unknown or (word not in _UNDECIDED and not is_name)
    if phase:
        return Operation(OpClass.WAIT if phase == "done" else OpClass.OTHER, "", phase)
    return Operation(OpClass.UNCLASSIFIED if unknown else OpClass.COMPUTE)


# -- programs ----------------------------------------------------------------------------------

# fields of HloProto, HloModuleProto, HloComputationProto and HloInstructionProto
_MODULE, _COMPUTATIONS, _INSTRUCTIONS = 1, 3, 2
_NAME, _OPCODE, _GROUPS, _DEVICE_LIST = 1, 2, 49, 87

_PROGRAM = lazy_regex(r"(.*)\((-?\d{1,18})\)\Z", re.DOTALL)
_MOST_DEVICES = 1 << 16

Groups = tuple[tuple[int, ...], ...]


class Program(NamedTuple):
    """Opcodes of the instructions of a program, and device groups of its collectives, by name."""

    opcodes: Mapping[str, str] = {}
    groups: Mapping[str, Groups] = {}


NO_PROGRAM = Program()


class Programs(NamedTuple):
    """The programs of a file, by number and by name."""

    by_id: dict[int, Program]
    by_name: dict[str, Program]

    def find(self, program_id: int | None, module: str) -> Program:
        """A program, by its number if that is known; an empty one if it is not in the file."""
        if program_id is not None and program_id in self.by_id:
            return self.by_id[program_id]
        return self.by_name.get(module, NO_PROGRAM)


def programs(planes: list[Plane]) -> Programs:
    """The programs in the planes of metadata."""
    known_programs = Programs({}, {})
    for plane in planes:
        for kind, offset, size in plane.metadata_bytes(PROGRAM):
            match = _PROGRAM.match(plane.kinds[kind])
            program = _program(plane, offset, size)
            if match:
                number = int(match[2])
                if -(1 << 63) <= number < 1 << 64:
                    known_programs.by_id[number - (1 << 64) if number >> 63 == 1 else number] = (
                        program
                    )
            known_programs.by_name.setdefault(match[1] if match else plane.kinds[kind], program)
    return known_programs


def _program(plane: Plane, offset: int, size: int) -> Program:
    start, length = np.array([offset]), np.array([size])
    for number in (_MODULE, _COMPUTATIONS, _INSTRUCTIONS):
        _, start, length = nested(plane.data, start, length, number)
    instructions = columns(plane.data, start, length, (_NAME, _OPCODE))
    names = plane.texts_in(instructions, _NAME)
    opcodes = dict(zip(names, plane.texts_in(instructions, _OPCODE), strict=True))
    groups: dict[str, Groups] = {}
    for number, read in ((_GROUPS, _group), (_DEVICE_LIST, _device_list)):
        listed = nested(plane.data, start, length, number)
        for owner, first, count in zip(*(column.tolist() for column in listed), strict=True):
            added = read(bytes(plane.data[first : first + count]))
            groups[names[owner]] = groups.get(names[owner], ()) + tuple(filter(None, added))
    return Program(
        opcodes,
        {name: tuple(dict.fromkeys(member_groups)) for name, member_groups in groups.items()},
    )


def _group(raw: bytes) -> Sequence[tuple[int, ...]]:
    """The one group of a ReplicaGroup."""
    return [_numbers(whole_fields(raw), 1)]


def _device_list(raw: bytes) -> Sequence[tuple[int, ...]]:
    """The groups of a CollectiveDeviceList: listed, or as a grid, transposed."""
    device_groups: list[tuple[int, ...]] = []
    for number, _, value in whole_fields(raw):
        if number == 1:
            device_groups += _group(message(value))
        elif number == 2:
            device_groups += _grid(whole_fields(value))
    return device_groups


def _grid(raw: list[Field]) -> Sequence[tuple[int, ...]]:
    groups, size = (next(iter(_numbers(raw, n)), 0) for n in (1, 2))
    shape, order = _numbers(raw, 3), _numbers(raw, 4)
    total = groups * size
    if not 0 < total <= _MOST_DEVICES or any(not 0 < n <= _MOST_DEVICES for n in shape):
        return []
    ids: NDArray[np.int64] = np.arange(total)
    if shape:
        if int(np.prod(shape, dtype=np.float64)) != total or (
            order and sorted(order) != list(range(len(shape)))
        ):
            return []
        ids = ids.reshape(shape).transpose(order or None)
    return [tuple(row) for row in ids.reshape(groups, size).tolist()]


def _numbers(raw: list[Field], number: int) -> tuple[int, ...]:
    values = integers(raw, number)
    return tuple(values) if len(values) <= _MOST_DEVICES else ()
