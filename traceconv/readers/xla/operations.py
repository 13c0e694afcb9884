"""What an operation of XLA does: by the category the profiler gives it, its opcode, or its name.

Opcodes, and the groups of devices that collectives run in, are in the programs that a profile
holds beside its events (``HloProto``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import OpClass
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.protobuf_wire import LENGTH, VARINT, Cut, Damaged, fields
from traceconv.readers.xla.space import Plane
from traceconv.readers.xla.wire import fields_of, parts_of

_SAME = {
    **dict.fromkeys(("psum", "psum2", "pmax", "pmin"), "all-reduce"),
    **dict.fromkeys(("psum-scatter", "all-reduce-scatter"), "reduce-scatter"),
    "ppermute": "collective-permute",
    "pbroadcast": "collective-broadcast",
    "psend": "send",
    "precv": "recv",
    "ragged-all-to-all": "all-to-all",
}
"""Names that JAX and the compiler give to collectives of other names.

Source: the primitives of jax-ml/jax ``jax/_src/lax/parallel.py``, 0.4 to 2026-08.
"""

_VARIANT = lazy_regex(r"(?:unreduced-)?(.+?)(?:-invariant|-reduced|-(?:start|done)(?=-))*")
"""Forms of one collective in JAX, by what is known of its operands on other devices
("psum_invariant", "all_gather_reduced", "unreduced_psum")."""

COLLECTIVES = frozenset(
    (
        *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"),
        *("collective-broadcast", "collective-reduce", "send", "recv"),
    )
)
"""Operations in which several devices take part."""

_COPIES = frozenset(("copy", "infeed", "outfeed"))
_CONTAINERS = frozenset(("while", "conditional", "call"))
"""Operations that last as long as others which are within them."""

_UNDECIDED = frozenset(("async", "async-update", "fusion", "custom-call", ""))
"""Words that do not say what is done."""

_COMPUTING = frozenset(
    [
        "abs",
        "acos",
        "acosh",
        "add",
        "add-dependency",
        "after-all",
        "and",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "batch-norm-grad",
        "batch-norm-inference",
        "batch-norm-training",
        "bitcast",
        "bitcast-convert",
        "broadcast",
        "cbrt",
        "ceil",
        "cholesky",
        "clamp",
        "compare",
        "complex",
        "concatenate",
        "constant",
        "convert",
        "convolution",
        "cosh",
        "cosine",
        "count-leading-zeros",
        "divide",
        "domain",
        "dot",
        "dynamic-reshape",
        "dynamic-slice",
        "dynamic-update-slice",
        "erf",
        "exponential",
        "exponential-minus-one",
        "fft",
        "floor",
        "gather",
        "get-dimension-size",
        "get-tuple-element",
        "imag",
        "iota",
        "is-finite",
        "log",
        "log-plus-one",
        "logistic",
        "map",
        "maximum",
        "minimum",
        "mulhi",
        "multiply",
        "negate",
        "not",
        "opt-barrier",
        "or",
        "pad",
        "parameter",
        "partition-id",
        "popcnt",
        "power",
        "ragged-dot",
        "real",
        "reduce",
        "reduce-precision",
        "reduce-window",
        "remainder",
        "replica-id",
        "reshape",
        "reverse",
        "rng",
        "rng-bit-generator",
        "rng-get-and-update-state",
        "round-nearest-afz",
        "round-nearest-even",
        "rsqrt",
        "scaled-dot",
        "scan",
        "scatter",
        "select",
        "select-and-scatter",
        "set-dimension-size",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "shuffle",
        "sign",
        "sine",
        "sinh",
        "slice",
        "sort",
        "sqrt",
        "stochastic-convert",
        "subtract",
        "tan",
        "tanh",
        "topk",
        "transpose",
        "triangular-solve",
        "tuple",
        "xor",
    ]
) | {"data formatting", "non-fusion elementwise"}
"""All other opcodes, and groups of them that the profiler names as categories.

Source: openxla/xla ``xla/hlo/ir/hlo_opcode.h`` (2026-08), ``HloInstruction::ToCategory``.
"""

_NUMBERED = lazy_regex(r"\d+|clone|remat\d*")
_PHASE = lazy_regex(r"-(start|done)\Z")


@dataclass(frozen=True)
class Operation:
    """What is known of an operation.

    Attributes:
        op:    COMM also of the start and the end of an asynchronous collective.
        word:  the collective, "" of others.
        phase: "start" or "done" of asynchronous ones, else "".
    """

    op: OpClass
    word: str = ""
    phase: str = ""


@lru_cache(1 << 14)
def operation(category: str, opcode: str, name: str) -> Operation:
    """The class of an operation, by the first of its three names that says anything.

    Args:
        category: ``hlo_category`` of the profiler ("loop fusion", "all-reduce"), "" if none.
        opcode:   of the instruction in its program, "" if that is not there.
        name:     of the event ("all-reduce.3", "psum").
    """
    phase, unknown = "", False
    for stated, is_name in ((category, False), (opcode, False), (name, True)):
        word = _unnumbered(stated.strip().lower().replace("_", "-"))
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

_MODULE, _MODULE_NAME, _COMPUTATIONS, _INSTRUCTIONS = 1, 1, 3, 2
_NAME, _OPCODE, _GROUPS, _DEVICE_LIST = 1, 2, 49, 87

_PROGRAM = lazy_regex(r"(.*)\((-?\d{1,18})\)\Z", re.DOTALL)
_MOST_DEVICES = 1 << 16


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        opcodes: by name of the instruction.
        groups:  the groups of devices of collectives, by name of the instruction.
    """

    opcodes: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)


NO_PROGRAM = Program()


@dataclass
class Programs:
    """The programs of a file, found by their number or, where that is not known, by their name."""

    by_id: dict[int, Program] = field(default_factory=dict)
    by_name: dict[str, Program] = field(default_factory=dict)

    def find(self, program_id: int | None, module: str) -> Program:
        """A program; an empty one if it is not in the file."""
        if program_id is not None and program_id in self.by_id:
            return self.by_id[program_id]
        return self.by_name.get(module, NO_PROGRAM)


def programs(planes: list[Plane]) -> Programs:
    """The programs in the planes of metadata."""
    found = Programs()
    for plane in planes:
        for kind, at, end in plane.metadata_bytes("Hlo Proto"):
            match = _PROGRAM.match(plane.kinds[kind])
            program = _program(plane, at, end)
            if match:
                number = int(match[2])
                if -(1 << 63) <= number < 1 << 64:
                    found.by_id[number - (1 << 64) if number >> 63 == 1 else number] = program
            found.by_name.setdefault(match[1] if match else plane.kinds[kind], program)
    return found


def _program(plane: Plane, at: int, end: int) -> Program:
    opcodes: dict[str, str] = {}
    groups: dict[str, tuple[tuple[int, ...], ...]] = {}
    module = next((o for o in parts_of(plane.data, at, end, _MODULE).bounds()), None)
    if module is None:
        return NO_PROGRAM
    starts, ends = [], []
    for computation in parts_of(plane.data, *module, _COMPUTATIONS).bounds():
        for bounds in parts_of(plane.data, *computation, _INSTRUCTIONS).bounds():
            starts.append(bounds[0])
            ends.append(bounds[1])
    inner = fields_of(plane.raw, np.array(starts, np.int64), np.array(ends, np.int64))

    def texts(number: int) -> dict[int, str]:
        rows = inner.rows(number, LENGTH)
        return {
            owner: plane.text(start, size)
            for owner, start, size in zip(
                inner.message[rows].tolist(),
                inner.start[rows].tolist(),
                inner.value[rows].tolist(),
                strict=True,
            )
        }

    names, codes = texts(_NAME), texts(_OPCODE)
    for instruction, name in names.items():
        opcodes[name] = codes.get(instruction, "")
    listed: dict[int, list[tuple[int, ...]]] = {}
    rows = np.flatnonzero(np.isin(inner.number, (_GROUPS, _DEVICE_LIST)) & (inner.kind == LENGTH))
    for row in rows.tolist():
        owner, start = int(inner.message[row]), int(inner.start[row])
        raw = bytes(plane.data[start : start + int(inner.value[row])])
        both = listed.setdefault(owner, [])
        both += [_numbers(raw)] if inner.number[row] == _GROUPS else _device_list(raw)
    for owner, found in listed.items():
        if owner in names:
            groups[names[owner]] = tuple(group for group in dict.fromkeys(found) if group)
    return Program(opcodes, groups)


def _numbers(raw: bytes, number: int = 1) -> tuple[int, ...]:
    """A repeated field of whole numbers, packed or not."""
    found: list[int] = []
    try:
        for one in fields(raw, 0, len(raw)):
            if one.number == number and one.kind == VARINT:
                found.append(one.value)
            elif one.number == number and one.kind == LENGTH:
                found += _packed(raw[one.start : one.end])
            if len(found) > _MOST_DEVICES:
                return ()
    except (Cut, Damaged):
        return ()
    return tuple(found)


def _packed(raw: bytes) -> list[int]:
    found, value, shift = [], 0, 0
    for byte in raw:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found


def _device_list(raw: bytes) -> list[tuple[int, ...]]:
    """The groups of a CollectiveDeviceList: listed, or as a grid, transposed."""
    found: list[tuple[int, ...]] = []
    try:
        for one in fields(raw, 0, len(raw)):
            inner = raw[one.start : one.end]
            if one.number == 1 and one.kind == LENGTH:
                found.append(_numbers(inner))
            elif one.number == 2 and one.kind == LENGTH:
                found += _grid(inner)
    except (Cut, Damaged):
        return []
    return found


def _grid(raw: bytes) -> list[tuple[int, ...]]:
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


def _unnumbered(name: str) -> str:
    """A name without what the compiler appends to make it unique: ".3", ".clone", ".remat2"."""
    parts = name.split(".")
    count = len(parts)
    while count > 1 and _NUMBERED.fullmatch(parts[count - 1]):
        count -= 1
    return ".".join(parts[:count])
