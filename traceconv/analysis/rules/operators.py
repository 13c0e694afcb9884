"""Rules of operators and memory: conversions of format, shapes of matrices, processors and types
that operators run on, uneven ones, how full memory is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.excerpts import lane
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
from traceconv.analysis.tables.fields import (
    fields,
    is_ascend,
    names_of,
    operator_columns,
)
from traceconv.analysis.tables.groups import Groups
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.operator import SHAPES, launching
from traceconv.analysis.tables.texts import Texts
from traceconv.analysis.utilisation import measured
from traceconv.core.model import I64, Mask, OpClass, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.ordering import among
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
"""Types of operators that msprof-analyze says how to replace where they run on AI CPUs."""
_FULL = lazy_regex(
    r"(?!.*(?:tensorop|tf32))(?:.*[^a-z])?sgemm(?![a-z]).*|Cijk_\w*?_SB_.*", re.DOTALL | re.I
)
"""Names of kernels of cuBLAS, CUTLASS, cuDNN and Tensile that multiply without tensor cores."""
_OF_FULL_PRECISION = NameTest(lambda name: _FULL.match(name[:500]))
_FLOATS = lazy_regex(r"(?:FLOAT|DT_FLOAT|FP32)(?:;(?:FLOAT|DT_FLOAT|FP32|NULL|N/A|))*")
_FEWEST = 20  # calls; a tail of fewer is none
_TAIL = 1.5  # so many medians are long
_MEASURES = lazy_regex(r"Total Reserved|.*/HBM|.*/Memory|.*Reserved|.*/Total Reserved")

_MEMORY = of_table(_memory_tables.TABLES, "memory")


# -- conversions --------------------------------------------------------------------------


def _conversions(trace: Trace) -> Known | None:
    """Time of all compute tasks, and of those that only convert types or layouts."""
    if not is_ascend(trace) or trace.hints.partial_device:
        return None
    rows = kernels(trace, OpClass.COMPUTE)
    if not len(rows):
        return None
    types = operator_columns(trace, rows)["OP Type"].filled(names_of(trace, rows))
    kinds = types.mapped(_conversion)
    found = kinds.known
    length = trace.events.dur_ns[rows]
    by_kind: Counter[str] = Counter()
    for kind, ns in zip(kinds[found].tolist(), length[found].tolist(), strict=True):
        by_kind[kind] += ns
    return {
        "steps": max(len(measured(trace.steps)), 1),
        "compute_ns": int(length.sum()),
        "count": int(found.sum()),
        "kinds": dict(sorted(by_kind.items())),
        "longest": longest(trace, rows[found]),
    }


def _conversion(kind: str) -> str:
    """What an operator of this type, or name, converts; "" if it does more."""
    match = _CONVERSION.fullmatch(kind)
    return match[1] if match else ""


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
    if not len(rows):
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
    return {
        "steps": max(len(measured(trace.steps)), 1),
        "cube_ns": int(time.sum()),
        "unaligned_ns": int(time[odd].sum()),
        "shapes": worst,
        "longest": longest(trace, rows[groups.spread(odd)]),
    }


def _bare(text: str) -> str:
    """Without the quotes that tables put around shapes."""
    return text.strip('"')


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


# -- where and in which type operators run --------------------------------------------------


def _time(trace: Trace, rows: NDArray[np.intp], found: Mask) -> dict[str, Any]:
    """Time of compute tasks, and of some of them, by name or type."""
    length = trace.events.dur_ns[rows]
    return {
        "steps": max(len(measured(trace.steps)), 1),
        "compute_ns": int(length.sum()),
        "found_ns": int(length[found].sum()),
        "count": int(found.sum()),
        "longest": longest(trace, rows[found]),
    }


def _ai_cpu(trace: Trace) -> Known | None:
    """Time of all compute tasks, and of those on AI CPUs that have an AI Core form, without those
    that fetch input.

    They have one where the same type of operator runs on other cores in this capture, where their
    input is of double precision, and where msprof-analyze says how to replace them.
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
        return None  # of operators of unknown type nobody knows another form
    found = slow & (inputs.fitting(_DOUBLE.search) | kinds.fitting(elsewhere.__contains__))
    types = columns["OP Type"][found].tolist()
    by_type: Counter[str] = Counter()
    for kind, ns in zip(types, trace.events.dur_ns[rows[found]].tolist(), strict=True):
        by_type[kind or UNKNOWN_TYPE] += ns
    most = [kind for kind, _ in by_type.most_common(SLICES_KEPT)]
    others = int(trace.events.dur_ns[rows[slow & ~found]].sum())
    return {**_time(trace, rows, found), "types": most, "without_other_form_ns": others}


UNKNOWN_TYPE = "of unknown type"


def _full_precision(trace: Trace) -> Known | None:
    """Time of all compute tasks, and of those that multiply matrices of single precision."""
    rows = kernels(trace, OpClass.COMPUTE)
    if not len(rows) or trace.hints.partial_device:
        return None
    if not is_ascend(trace):
        return _time(trace, rows, rows_named(trace, _OF_FULL_PRECISION)[rows])
    cube = operator_columns(trace, rows)["OP Type"].fitting(_CUBE.fullmatch)
    (types,) = fields(trace, rows[cube], "Input Data Types")
    if not types.fitting(_bare).any():
        return None
    found = np.zeros(len(rows), bool)
    found[cube] = types.fitting(lambda one: _FLOATS.fullmatch(_bare(one).upper()))
    return _time(trace, rows, found)


def _much_time(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    """By their share in the time of compute tasks."""
    value = 100 * known["found_ns"] / known["compute_ns"] if known["compute_ns"] else 0.0
    if value > limits[""]:
        figures = {"count": known["count"], "compute_ns": known["compute_ns"]}
        extra = ("types", "without_other_form_ns")
        figures |= {key: known[key] for key in extra if known.get(key)}
        yield Case(
            rank, value, figures, "", (), slices(known["longest"]),
            saves_ns=known["found_ns"] / known["steps"], part_of=(COMPUTING,),
        )  # fmt: skip


# -- operators with a tail ----------------------------------------------------------------


def _uneven(trace: Trace) -> Known | None:
    """Of the operator with the longest tail, what its calls of one shape take beyond 1.5 medians.

    Calls are equal if their name is, and the shapes of their input; those without any are not
    looked at.
    """
    rows = kernels(trace, OpClass.COMPUTE)
    if not len(rows) or trace.hints.partial_device:
        return None
    events = trace.events
    name = events.name[rows].astype(np.int64)
    whole, steps = int(events.dur_ns[rows].sum()), max(len(measured(trace.steps)), 1)
    # shapes are looked up of those only that can have a tail: the others take most of the time
    some = rows[_beyond(Groups.of(name), events.dur_ns[rows]) > 0]
    some = rows[among(name, np.unique(events.name[some]))]
    shapes = _input_shapes(trace, some)
    said = shapes.known
    if len(some) and not said.any():
        return None
    some, shapes = some[said], shapes[said]
    groups = Groups.of(events.name[some].astype(np.int64), shapes.numbers())
    length = events.dur_ns[some]
    beyond = _beyond(groups, length)
    sums = groups.total(beyond)
    known = {"steps": steps, "compute_ns": whole}
    if not len(sums) or not sums.max():
        return {**known, "tail_ns": 0}
    worst = int(sums.argmax())
    mine = groups.order[groups.start[worst] :][: groups.size[worst]]
    return {
        **known,
        "tail_ns": int(sums[worst]),
        "all_tails_ns": int(sums.sum()),
        "operator": trace.strings[int(events.name[some[mine[0]]])][:200],
        "shape": shapes.at(mine[0])[:200],
        "calls": len(mine),
        "median_ns": round(float(median(length[mine]))),
        "longest_ns": int(length[mine].max()),
        "longest": longest(trace, some[mine]),
    }


def _input_shapes(trace: Trace, rows: NDArray[np.intp]) -> Texts:
    """Shapes as text, "" where nothing says."""
    if is_ascend(trace):
        return operator_columns(trace, rows)["Input Shapes"].mapped(_bare)
    call = launching(trace, rows)
    dims, other = fields(trace, np.maximum(call, 0), *SHAPES)
    return dims.filled(other).kept(call >= 0)


def _beyond(groups: Groups, length: I64) -> I64:
    """What each row takes beyond 1.5 medians of its group; 0 in groups of few."""
    found = np.zeros(len(length), np.int64)
    for first, size in zip(groups.start.tolist(), groups.size.tolist(), strict=True):
        if size >= _FEWEST:
            mine = groups.order[first : first + size]
            usual = int(_TAIL * float(median(length[mine])))
            found[mine] = np.maximum(length[mine] - usual, 0)
    return found


def _tailed(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    value = 100 * known["tail_ns"] / known["compute_ns"] if known["compute_ns"] else 0.0
    if value > limits[""] and known["tail_ns"]:
        names = ("calls", "median_ns", "longest_ns", "shape", "all_tails_ns", "compute_ns")
        yield Case(
            rank, value, {key: known[key] for key in names}, known["operator"], (),
            slices(known["longest"]), saves_ns=known["tail_ns"] / known["steps"],
            part_of=(COMPUTING,),
        )  # fmt: skip


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
        "at": {
            "name": f"{top['Component']} {top['Measure']}",
            "start_ns": top["Peak Timestamp(ns)"],
            "dur_ns": 0,
            "lane": _counter(trace, top["Component"], top["Measure"]),
        },
    }


def _counter(trace: Trace, component: str, measure: str) -> str:
    """The lane of a counter, by what the table of memory calls it."""
    tracks = [track for track in trace.tracks if track.is_counter and track.name == measure]
    found = (lane(one) for one in tracks if component in (one.group, one.heading))
    return next(found, "")


def _near_capacity(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    capacity = limits["capacity"] * _GIB
    value = 100 * known["peak"] / capacity
    if value > limits[""]:
        figures = {"peak_bytes": known["peak"], "capacity_bytes": round(capacity)}
        yield Case(rank, value, figures, known["where"], (), slices([known["at"]]))


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
        "ai-cpu",
        "Operators run on AI CPUs that have a form for AI Cores",
        "operators",
        "share of AI CPU operators that have one (their type also runs on other cores here, their "
        "input is of double precision, or msprof-analyze says how to replace them: "
        f"{', '.join(_REPLACED)}) in the time of compute tasks",
        (Limit(2.0, "%", f"{OWN}; what can be replaced is msprof-analyze's"),),
        "compute tasks of an Ascend device, and on which cores they ran",
        "Replace them by operators that run on AI Cores: often another type of the input (int64, "
        "double) or another form of the same operator is enough.",
        _ai_cpu,
        each_rank(_much_time),
    ),
    Rule(
        "full-precision",
        "Matrices are multiplied in single precision",
        "operators",
        "share of matrix operators of single precision in the time of compute tasks",
        (Limit(10.0, "%", OWN),),
        "compute tasks of a device; on Ascend with the types of their input",
        "Use half precision (autocast, bf16) or TF32 and HF32, if the device has units for them "
        "and the model permits.",
        _full_precision,
        each_rank(_much_time),
    ),
    Rule(
        "uneven-operator",
        "One operator takes much longer at times, on the same shapes",
        "operators",
        "what calls of one operator on one shape take beyond 1.5 of their median, of the time of "
        "compute tasks",
        (Limit(5.0, "%", OWN),),
        "operators of a device with the shapes of their input",
        "Look at what else runs meanwhile: communication that takes bandwidth, another stream, a "
        "lower clock of the device; and whether values of the input decide on the work.",
        _uneven,
        each_rank(_tailed),
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
