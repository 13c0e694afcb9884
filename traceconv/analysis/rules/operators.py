"""Rules of operators and memory: conversions of format, shapes of matrices, processors and types
that operators run on, uneven ones, and full memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.excerpts import lane
from traceconv.analysis.rank_facts import COMPUTING
from traceconv.analysis.rules.definition import (
    OWN,
    SLICES_KEPT,
    UNSAID,
    Case,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    facts_of,
    longest,
    of_table,
    rows_of,
    slices,
)
from traceconv.analysis.tables import memory as _memory_tables
from traceconv.analysis.tables.fields import fields, is_ascend, names_of, operator_columns
from traceconv.analysis.tables.groups import Groups
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.operator import SHAPES, launching
from traceconv.analysis.tables.texts import Texts
from traceconv.analysis.utilisation import measured
from traceconv.core.model import I64, OpClass, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex
from traceconv.core.robust import median
from traceconv.core.side_tables import ABSENT
from traceconv.passes.input_wait import fetches

_CONVERSION = lazy_regex(r"(?:.*/)?(?:aclnn\w*_)?(Cast|TransData)(?![a-z]).*", re.DOTALL)
_CUBE = lazy_regex(r"(?:Batch)?MatMul\w*|GroupedMatmul\w*")
_UNIT = 16  # a cube core multiplies blocks of 16 x 16
_BLOCKS = (8, 16, 32)  # columns of a block, by the size of the type
_DIGITS = lazy_regex(r"\d{1,12}")
_GIB = 1 << 30
_AI_CPU = lazy_regex(r"(?:KERNEL_)?AI_?CPU")
_VERSION = lazy_regex("V[23]$")
_DOUBLE = lazy_regex(r"(?<![A-Z0-9])(?:DT_)?(?:DOUBLE|FLOAT64)(?![A-Z0-9])", re.I)
_REPLACED = ("argmin", "cast", "equal", "index", "indexput", "mul", "nonzero", "tensorequal")
"""Types of operators that msprof-analyze gives a replacement for where they run on AI CPUs."""
_FULL = lazy_regex(
    r"(?!.*(?:tensorop|tf32))(?:.*[^a-z])?sgemm(?![a-z]).*|Cijk_\w*?_SB_.*"
    r"|(?!.*(?:tensor_?op|tf32|s\d{4,5}gemm)).*_(?:xmma_)?(?:gemm|fprop|dgrad|wgrad)\w*_"
    r"f32f32_f32f32_f32_.*|(?:.*\s)?gemm\w*_kernel<float,.*",
    re.DOTALL | re.I,
)
"""Names of kernels that multiply single precision without tensor cores: sgemm of cuBLAS, CUTLASS
and cuDNN, ``SB`` of Tensile, xmma kernels of cuBLAS and cuDNN with FP32 in and out, which name the
types of A, B, C and of the accumulator (TF32 is written tf32f32), and small products of cuBLAS."""
_OF_FULL_PRECISION = NameTest(lambda name: _FULL.match(name[:500]))
_FLOATS = lazy_regex(r"(?:FLOAT|DT_FLOAT|FP32)(?:;(?:FLOAT|DT_FLOAT|FP32|NULL|N/A|))*")
_TWICE = 2.0  # as fast: a gain that other units, types and shapes usually exceed
_FEWEST = 20  # calls; fewer have no tail
_TAIL = 1.5  # medians: longer calls are the tail
_MEASURES = lazy_regex(r"Total Reserved|.*/HBM|.*/Memory|.*Reserved|.*/Total Reserved")

_MEMORY = of_table(_memory_tables.TABLES, "memory")


def _computing(
    trace: Trace, whole_ns: int, ns: int, rows: NDArray[np.intp], figures: Mapping[str, Any],
    faster: float = np.inf, **details: Any,
) -> dict[str, Any]:  # fmt: skip
    """Facts about a part of the time of compute tasks: the value is its share.

    Args:
        faster: how many times as fast it could be.
    """
    steps = max(len(measured(trace.steps)), 1)
    value = 100 * ns / whole_ns if whole_ns else 0.0
    gone = {COMPUTING: ns * (1 - 1 / faster) / steps}
    return facts_of(value, gone, longest(trace, rows), figures, **details)


def _bare(text: str) -> str:
    """A shape without the quotes that tables put around it."""
    return text.strip('"')


# -- conversions and shapes ---------------------------------------------------------------


def _conversions(trace: Trace) -> Known | None:
    """Time of compute tasks that only convert types or layouts."""
    rows = kernels(trace, OpClass.COMPUTE)
    if not is_ascend(trace) or trace.hints.partial_device or not len(rows):
        return None
    types = operator_columns(trace, rows)["OP Type"].filled(names_of(trace, rows))
    kinds = types.mapped(lambda kind: m[1] if (m := _CONVERSION.fullmatch(kind)) else "")
    converts = kinds.known
    length = trace.events.dur_ns[rows]
    by_kind: Counter[str] = Counter()
    for kind, ns in zip(kinds[converts].tolist(), length[converts].tolist(), strict=True):
        by_kind[f"{kind.lower()}_ns"] += ns
    total_ns = int(length.sum())
    figures = {
        "count": int(converts.sum()),
        **dict(sorted(by_kind.items())),
        "compute_ns": total_ns,
    }
    return _computing(trace, total_ns, by_kind.total(), rows[converts], figures)


def _shapes(trace: Trace) -> Known | None:
    """Time of matrix operators by whether their shapes fill blocks of 16, and the worst shapes."""
    rows = kernels(trace, OpClass.COMPUTE)
    if not is_ascend(trace) or trace.hints.partial_device or not len(rows):
        return None
    columns = operator_columns(trace, rows)
    kinds, shapes = columns["OP Type"], columns["Input Shapes"]
    cube = kinds.fitting(_CUBE.fullmatch) & shapes.fitting(_bare)
    if not cube.any():
        return None
    rows, kinds, shapes = rows[cube], kinds[cube], shapes[cube]
    groups = Groups.of(kinds.numbers(), shapes.numbers())
    time = groups.total(trace.events.dur_ns[rows])
    odd = ~shapes[groups.first].fitting(_aligned)
    order = np.flatnonzero(odd)[np.argsort(-time[odd], kind="stable")]
    worst = [f"{kinds.at(i)} {shapes.at(i)}" for i in groups.first[order[:SLICES_KEPT]].tolist()]
    total_ns, ns = int(time.sum()), int(time[odd].sum())
    figures = {"cube_ns": total_ns, "unaligned_ns": ns, "shapes": worst}
    return _computing(trace, total_ns, ns, rows[groups.spread(odd)], figures, _TWICE)


def _aligned(shapes: str) -> bool:
    """Whether the rows and columns of both matrices are multiples of 16.

    Layouts in blocks (the last two dimensions are the block) were padded before.
    """
    for matrix in shapes.strip('" ').split(";")[:2]:
        dims = [int(digits) for digits in _DIGITS.findall(matrix)]
        blocked = len(dims) >= 4 and dims[-2] == _UNIT and dims[-1] in _BLOCKS
        if len(dims) >= 2 and not blocked and any(dim % _UNIT for dim in dims[-2:]):
            return False
    return True


# -- where and in which type operators run --------------------------------------------------


def _ai_cpu(trace: Trace) -> Known | None:
    """Time of compute tasks on AI CPUs that have an AI Core form, without those that fetch input:
    the same type of operator runs on other cores in this capture, the input is of double precision,
    or msprof-analyze names a replacement.
    """
    if not is_ascend(trace) or trace.hints.partial_device:
        return None
    rows = kernels(trace, OpClass.COMPUTE)
    rows = rows[~fetches(trace)[rows]]
    columns = operator_columns(trace, rows)
    cores = columns["Core Type"]
    if not cores.known.any():
        return None
    slow = cores.fitting(_AI_CPU.fullmatch)
    kinds = columns["OP Type"].mapped(lambda kind: _VERSION.sub("", kind).lower())
    elsewhere = {*_REPLACED, *kinds[~slow & cores.known].tolist()} - {""}
    (inputs,) = fields(trace, rows, "Input Data Types")
    if slow.any() and not (slow & (kinds.known | inputs.known)).any():
        return None  # operators of unknown type: another form is unknown
    has_other_form = slow & (inputs.fitting(_DOUBLE.search) | kinds.fitting(elsewhere.__contains__))
    length = trace.events.dur_ns[rows]
    by_type: Counter[str] = Counter()
    for kind, ns in zip(
        columns["OP Type"][has_other_form].tolist(), length[has_other_form].tolist(), strict=True
    ):
        by_type[kind or "of unknown type"] += ns
    total_ns = int(length.sum())
    figures: dict[str, Any] = {"count": int(has_other_form.sum()), "compute_ns": total_ns}
    if by_type:
        figures["types"] = [kind for kind, _ in by_type.most_common(SLICES_KEPT)]
    if without_form_ns := int(length[slow & ~has_other_form].sum()):
        figures["without_other_form_ns"] = without_form_ns
    return _computing(trace, total_ns, by_type.total(), rows[has_other_form], figures, _TWICE)


def _full_precision(trace: Trace) -> Known | None:
    """Time of compute tasks that multiply matrices of single precision."""
    rows = kernels(trace, OpClass.COMPUTE)
    if not len(rows) or trace.hints.partial_device:
        return None
    if is_ascend(trace):
        cube = operator_columns(trace, rows)["OP Type"].fitting(_CUBE.fullmatch)
        (types,) = fields(trace, rows[cube], "Input Data Types")
        if not types.fitting(_bare).any():
            return None
        is_single = np.zeros(len(rows), bool)
        is_single[cube] = types.fitting(lambda dtype: _FLOATS.fullmatch(_bare(dtype).upper()))
    else:
        is_single = rows_named(trace, _OF_FULL_PRECISION)[rows]
    length = trace.events.dur_ns[rows]
    total_ns = int(length.sum())
    figures = {"count": int(is_single.sum()), "compute_ns": total_ns}
    return _computing(
        trace, total_ns, int(length[is_single].sum()), rows[is_single], figures, _TWICE
    )


# -- operators with a tail ----------------------------------------------------------------


def _uneven(trace: Trace) -> Known | None:
    """Time of calls of one shape beyond 1.5 medians, for the operator with the longest tail.

    Calls are alike if they have the same name and shapes of their input; those without shapes are
    left out.
    """
    rows = kernels(trace, OpClass.COMPUTE)
    if not len(rows) or trace.hints.partial_device:
        return None
    events = trace.events
    name = events.name[rows].astype(np.int64)
    total_ns = int(events.dur_ns[rows].sum())
    # shapes are looked up only for names with a tail: looking them up takes most of the time
    tail_rows = rows[_beyond(Groups.of(name), events.dur_ns[rows]) > 0]
    tail_rows = rows[np.isin(name, events.name[tail_rows])]
    shapes = _input_shapes(trace, tail_rows)
    has_shape = shapes.known
    if len(tail_rows) and not has_shape.any():
        return None
    tail_rows, shapes = tail_rows[has_shape], shapes[has_shape]
    groups = Groups.of(events.name[tail_rows].astype(np.int64), shapes.numbers())
    length = events.dur_ns[tail_rows]
    sums = groups.total(_beyond(groups, length))
    if not len(sums) or not sums.max():
        return _computing(trace, total_ns, 0, rows[:0], {})
    worst = int(sums.argmax())
    worst_calls = groups.order[groups.start[worst] :][: groups.size[worst]]
    figures = {
        "calls": len(worst_calls),
        "median_ns": round(float(median(length[worst_calls]))),
        "longest_ns": int(length[worst_calls].max()),
        "shape": shapes.at(worst_calls[0])[:200],
        "all_tails_ns": int(sums.sum()),
        "compute_ns": total_ns,
    }
    where = trace.strings[int(events.name[tail_rows[worst_calls[0]]])][:200]
    return _computing(
        trace, total_ns, int(sums[worst]), tail_rows[worst_calls], figures, where=where
    )


def _input_shapes(trace: Trace, rows: NDArray[np.intp]) -> Texts:
    """Shapes as text, "" where they are not recorded."""
    if is_ascend(trace):
        return operator_columns(trace, rows)["Input Shapes"].mapped(_bare)
    call = launching(trace)[rows]
    dims, alternative = fields(trace, np.maximum(call, 0), *SHAPES)
    return dims.filled(alternative).kept(call >= 0)


def _beyond(groups: Groups, length: I64) -> I64:
    """The time of each row beyond 1.5 medians of its group; 0 in small groups."""
    beyond_ns = np.zeros(len(length), np.int64)
    for begin, size in zip(groups.start.tolist(), groups.size.tolist(), strict=True):
        if size >= _FEWEST:
            group_rows = groups.order[begin : begin + size]
            usual = int(_TAIL * float(median(length[group_rows])))
            beyond_ns[group_rows] = np.maximum(length[group_rows] - usual, 0)
    return beyond_ns


# -- memory -------------------------------------------------------------------------------


def _peak(trace: Trace) -> Known | None:
    """The highest sum of memory taken from the device."""
    rows = [
        row
        for row in rows_of(_MEMORY(trace) or {})
        if _MEASURES.fullmatch(row["Measure"]) and not row["Measure"].startswith("CPU")
    ]
    if not rows:
        return None
    top = max(rows, key=lambda row: row["Peak(B)"])
    component, measure, capacity = top["Component"], top["Measure"], top["Capacity(B)"]
    tracks = (track for track in trace.tracks if track.is_counter and track.name == measure)
    drawn = next((lane(track) for track in tracks if component in (track.group, track.heading)), "")
    where = f"{component} {measure}"
    return {
        **({} if capacity == ABSENT else {"capacity": capacity / _GIB}),
        "peak": top["Peak(B)"],
        "where": where,
        "at": {"name": where, "start_ns": top["Peak Timestamp(ns)"], "dur_ns": 0, "lane": drawn},
    }


def _near_capacity(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    capacity = limits["capacity"] * _GIB
    value = 100 * facts["peak"] / capacity
    if value > limits[""]:
        figures = {"peak_bytes": facts["peak"], "capacity_bytes": round(capacity)}
        yield Case(rank, value, figures, facts["where"], (), slices([facts["at"]]))


RULES: tuple[Rule, ...] = (
    Rule(
        "format-conversion",
        "Much computing only converts types and layouts",
        "operators",
        "share of Cast and TransData in the time of compute tasks",
        (Limit(10.0, "%", OWN),),
        "compute tasks of an Ascend device",
        "Keep tensors in one type and layout: look at tensors that alternate between half and full "
        "precision, and at operators that need a private format.",
        _conversions,
    ),
    Rule(
        "unaligned-shapes",
        "Matrices do not fill the blocks of the cube cores",
        "operators",
        "share of matrix operators with shapes that are not multiples of 16, by time",
        (Limit(10.0, "%", f"{OWN}; the blocks of 16 are the hardware's"),),
        "matrix operators of an Ascend device with their input shapes",
        "Pad or choose sizes (hidden, vocabulary, batch) that are multiples of 16; the gain is "
        "that of twice the speed.",
        _shapes,
    ),
    Rule(
        "ai-cpu",
        "Operators run on AI CPUs although AI Cores could run them",
        "operators",
        "share of AI CPU operators that have one (their type also runs on other cores here, their "
        "input is of double precision, or msprof-analyze gives a replacement: "
        f"{', '.join(_REPLACED)}) in the time of compute tasks",
        (Limit(2.0, "%", f"{OWN}; the replacements are msprof-analyze's"),),
        "compute tasks of an Ascend device, and on which cores they ran",
        "Replace them by operators that run on AI Cores: often another type of the input (int64, "
        "double) or another form of the same operator is enough; the gain is that of twice the "
        "speed.",
        _ai_cpu,
    ),
    Rule(
        "full-precision",
        "Matrices are multiplied in single precision",
        "operators",
        "share of matrix operators of single precision in the time of compute tasks",
        (Limit(10.0, "%", OWN),),
        "compute tasks of a device; on Ascend with the types of their input",
        "Use half precision (autocast, bf16) or TF32 and HF32, if the device has units for them "
        "and the model permits; the gain is that of twice the speed.",
        _full_precision,
    ),
    Rule(
        "uneven-operator",
        "One operator takes much longer at times, on the same shapes",
        "operators",
        "time of calls of one operator on one shape beyond 1.5 of their median, of the time of "
        "compute tasks",
        (Limit(5.0, "%", OWN),),
        "operators of a device with the shapes of their input",
        "Look at what else runs meanwhile: communication that takes bandwidth, another stream, a "
        "lower clock of the device; and whether values of the input decide on the work.",
        _uneven,
    ),
    Rule(
        "memory-capacity",
        "Memory of the device is nearly full",
        "memory",
        "highest memory taken from the device, of its capacity",
        (
            Limit(90.0, "%", OWN),
            Limit(UNSAID, "GB", "of the device, if its capture records it", "capacity"),
        ),
        "counters of memory, and the capacity of the device (properties of GPUs hold it; captures "
        'of Ascend devices do not: `threshold={"memory-capacity.capacity": GB}`)',
        "Fragmentation and retries of allocation are near: lower the batch, recompute "
        "activations, or shard the optimizer's state.",
        _peak,
        each_rank(_near_capacity),
    ),
)
