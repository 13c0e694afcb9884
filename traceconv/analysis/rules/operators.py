"""Rules of operators and memory: conversions of format, shapes of matrices, how full memory is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from traceconv.analysis.losses import COMPUTING
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
    longest,
    of_table,
    rows_of,
    slices,
)
from traceconv.analysis.tables import memory as _memory_tables
from traceconv.analysis.tables.fields import is_ascend, operator_columns
from traceconv.analysis.tables.groups import Groups, numbered
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.utilisation import measured
from traceconv.core.model import OpClass, Trace
from traceconv.core.side_tables import ABSENT

_CONVERSION = re.compile(r"(?:.*/)?(?:aclnn\w*_)?(Cast|TransData)(?![a-z]).*", re.DOTALL)
_CUBE = re.compile(r"(?:Batch)?MatMul\w*|GroupedMatmul\w*")
_UNIT = 16  # a cube core multiplies blocks of 16 x 16
_BLOCKS = (8, 16, 32)  # columns of a block, by the size of the type
_DIGITS = re.compile(r"\d{1,12}")
_GIB = 1 << 30
_MEASURES = re.compile(r"Total Reserved|.*/HBM|.*/Memory|.*Reserved|.*/Total Reserved")

_MEMORY = of_table(_memory_tables.TABLES, "memory")


# -- conversions --------------------------------------------------------------------------


def _conversions(trace: Trace) -> Known | None:
    """Time of all compute tasks, and of those that only convert types or layouts."""
    if not is_ascend(trace) or trace.hints.partial_device:
        return None
    rows = kernels(trace, OpClass.COMPUTE)
    if not len(rows):
        return None
    types = operator_columns(trace, rows)["OP Type"].tolist()
    names = [trace.strings[i] for i in trace.events.name[rows].tolist()]
    kinds = [_CONVERSION.fullmatch(t or n) for t, n in zip(types, names, strict=True)]
    found = np.array([kind is not None for kind in kinds], bool)
    length = trace.events.dur_ns[rows]
    by_kind: Counter[str] = Counter()
    for kind, ns in zip(kinds, length.tolist(), strict=True):
        if kind:
            by_kind[kind[1]] += ns
    return {
        "steps": max(len(measured(trace.steps)), 1),
        "compute_ns": int(length.sum()),
        "count": int(found.sum()),
        "kinds": dict(sorted(by_kind.items())),
        "longest": longest(trace, rows[found]),
    }


def _converting(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    spent = sum(known["kinds"].values())
    value = 100 * spent / known["compute_ns"] if known["compute_ns"] else 0.0
    if value > limits[""]:
        kinds = {f"{kind.lower()}_ns": ns for kind, ns in known["kinds"].items()}
        figures = {"count": known["count"], **kinds, "compute_ns": known["compute_ns"]}
        shown = slices(known["longest"])
        saves = spent / known["steps"]
        yield Case(rank, value, figures, "", (), shown, saves_ns=saves, part_of=(COMPUTING,))


# -- shapes -------------------------------------------------------------------------------


def _shapes(trace: Trace) -> Known | None:
    """Time of matrix operators by whether their shapes fill blocks of 16, and the worst shapes."""
    if not is_ascend(trace) or trace.hints.partial_device:
        return None
    rows = kernels(trace, OpClass.COMPUTE)
    columns = operator_columns(trace, rows) if len(rows) else {}
    pairs = [(t, s) for t, s in zip(*(columns.get(h, np.empty(0)).tolist() for h in
            ("OP Type", "Input Shapes")), strict=True)]  # fmt: skip
    cube = np.array([bool(_CUBE.fullmatch(t)) and bool(s.strip('"')) for t, s in pairs], bool)
    if not cube.any():
        return None
    rows, pairs = (
        rows[cube],
        [one for one, selected in zip(pairs, cube.tolist(), strict=True) if selected],
    )
    groups = Groups.of(*(numbered(np.array(part, object)) for part in zip(*pairs, strict=True)))
    time = groups.total(trace.events.dur_ns[rows])
    odd = np.array([not _aligned(pairs[i][1]) for i in groups.first.tolist()], bool)
    order = np.flatnonzero(odd)[np.argsort(-time[odd], kind="stable")]
    worst = [" ".join(pairs[i]) for i in groups.first[order[:SLICES_KEPT]].tolist()]
    return {
        "steps": max(len(measured(trace.steps)), 1),
        "cube_ns": int(time.sum()),
        "unaligned_ns": int(time[odd].sum()),
        "shapes": worst,
        "longest": longest(trace, rows[groups.spread(odd)]),
    }


def _aligned(shapes: str) -> bool:
    """Whether the rows and columns of both matrices are multiples of 16.

    Layouts in blocks (the last two dimensions are the block) were padded before.
    """
    for one in shapes.strip('" ').split(";")[:2]:
        dims = [int(digits) for digits in _DIGITS.findall(one)]
        blocked = len(dims) >= 4 and dims[-2] == _UNIT and dims[-1] in _BLOCKS
        if len(dims) >= 2 and not blocked and any(dim % _UNIT for dim in dims[-2:]):
            return False
    return True


def _unaligned(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    value = 100 * known["unaligned_ns"] / known["cube_ns"] if known["cube_ns"] else 0.0
    if value > limits[""]:
        figures: dict[str, Any] = {key: known[key] for key in ("cube_ns", "unaligned_ns", "shapes")}
        shown = slices(known["longest"])
        saves = known["unaligned_ns"] / known["steps"]
        yield Case(rank, value, figures, "", (), shown, saves_ns=saves, part_of=(COMPUTING,))


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
    known = {} if top["Capacity(B)"] == ABSENT else {"capacity": top["Capacity(B)"] / _GIB}
    return {
        **known,
        "peak": top["Peak(B)"],
        "where": f"{top['Component']} {top['Measure']}",
        "at_ns": top["Peak Timestamp(ns)"],
    }


def _near_capacity(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    capacity = limits["capacity"] * _GIB
    value = 100 * known["peak"] / capacity
    if value > limits[""]:
        figures = {"peak_bytes": known["peak"], "capacity_bytes": round(capacity)}
        shown = slices([{"name": known["where"], "start_ns": known["at_ns"], "dur_ns": 0}])
        yield Case(rank, value, figures, known["where"], (), shown)


RULES: tuple[Rule, ...] = (
    Rule(
        "format-conversion",
        "Much computing only converts types and layouts",
        "operators",
        "share of Cast and TransData in the time of compute tasks",
        (Limit(10.0, "%", OWN),),
        "compute tasks of an Ascend device",
        "Keep tensors in one type and layout: look at what alternates between half and full "
        "precision, and at operators that need a private format.",
        _conversions,
        each_rank(_converting),
    ),
    Rule(
        "unaligned-shapes",
        "Matrices do not fill the blocks of the cube cores",
        "operators",
        "share of matrix operators with shapes that are no multiples of 16, by time",
        (Limit(10.0, "%", f"{OWN}; the blocks of 16 are the hardware's"),),
        "matrix operators of an Ascend device with their input shapes",
        "Pad or choose sizes (hidden, vocabulary, batch) that are multiples of 16.",
        _shapes,
        each_rank(_unaligned),
    ),
    Rule(
        "memory-capacity",
        "Memory of the device is nearly full",
        "memory",
        "highest memory taken from the device, of its capacity",
        (
            Limit(90.0, "%", OWN),
            Limit(UNSAID, "GB", "of the device, as its capture tells", "capacity"),
        ),
        "counters of memory, and the capacity of the device (properties of GPUs tell it; captures "
        'of Ascend devices do not: `threshold={"memory-capacity.capacity": GB}`)',
        "Fragmentation and retries of allocation are near: lower the batch, recompute "
        "activations, or shard the optimizer's state.",
        _peak,
        each_rank(_near_capacity),
    ),
)
