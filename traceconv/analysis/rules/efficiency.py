"""Rules on the performance of operators, relative to the peak of the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.device_peaks import peaks_of
from traceconv.analysis.rank_facts import COMPUTING
from traceconv.analysis.rules.definition import (
    OWN,
    UNSAID,
    Case,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    facts_of,
    longest,
    slices,
)
from traceconv.analysis.tables.fields import fields, is_ascend, operator_columns
from traceconv.analysis.tables.groups import Groups
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.work import ATTENTION, GEMM, Work, flat_product
from traceconv.analysis.tables.work_table import working_calls
from traceconv.analysis.utilisation import measured
from traceconv.core.model import OpClass, Trace
from traceconv.core.patterns import lazy_regex
from traceconv.core.robust import median

THEME = "operators"

# -- products of matrices -----------------------------------------------------------------

_DATA_SHEETS = "data sheets of NVIDIA and AMD; of Ascend the cores and clock it states"
_CUBES = lazy_regex(r"Ascend chip [15]: (\d{1,4}) cores at (\d{1,5}) MHz")
"""How readers call an NPU whose ``info.json`` says this. In a cycle, each core multiplies two
matrices of 16 x 16 in half precision (CANN, Ascend C: Basic Architecture), which is 4096 products
and sums; 32 cores at 1 GHz are the 256 * 10^12 operations of the data sheet of an Ascend 910."""
_PER_CYCLE = 2 * 16**3
_SLOW_GBS = 400.0
"""What memory of an NPU at least does: sources differ on what it reaches. Products that would be
bound by a memory as slow as this are not judged there."""

_HALF = {"FLOAT16", "DT_FLOAT16", "BF16", "DT_BF16", "BFLOAT16"}
_PRODUCT = lazy_regex(r"MatMul(?:V[23])?")
_EIGHT, _SIXTEEN = 8, 16  # bits
_LEAST_NS = 10_000  # what takes less is a matter of launches
_SHAPES_KEPT = 500

_Call = tuple[int, int, str, Work]
"""An operator's first kernel, the time of all, ns, its shapes, and its work."""


def _done(trace: Trace, kind: str) -> Known | None:
    """Time of operators of a kind in half precision and of 8 bits, by their work as the table of
    FLOPs counts it."""
    rows = kernels(trace, OpClass.COMPUTE)
    ascend = is_ascend(trace)
    if not len(rows) or trace.hints.partial_device or (ascend and kind != GEMM):
        return None
    names = set(trace.hints.device_names.values())
    device = _peaks(names.pop() if len(names) == 1 else "")
    sums_by_work: dict[tuple[str, Work], list[int]] = {}
    shown = []
    for first_row, ns, text, work in (_ascend_products if ascend else _of_table)(trace):
        if ns < _LEAST_NS or work.kind != kind or min(work.flops, work.n_bytes) <= 0:
            continue
        if work.bits not in (_EIGHT, _SIXTEEN) or (work.bits == _EIGHT and "faster" not in device):
            continue
        if (
            "slowest" in device
            and work.n_bytes / device["slowest"] > work.flops / device["peak"] / 1e3
        ):
            continue  # bound by a memory whose bandwidth is not known
        sums = sums_by_work.setdefault((text, work), [0, 0])
        sums[0] += ns
        sums[1] += 1
        shown.append(first_row)
    if not sums_by_work:
        return None
    longest_work = sorted(sums_by_work.items(), key=lambda item: -item[1][0])[:_SHAPES_KEPT]
    return {
        **device,
        "steps": max(len(measured(trace.steps)), 1),
        "compute_ns": int(trace.events.dur_ns[rows].sum()),
        "products": [
            (text, work.flops, work.n_bytes, work.bits == _EIGHT, *sums)
            for (text, work), sums in longest_work
        ],
        "longest": longest(trace, np.array(shown, np.intp)),
    }


def _peaks(name: str) -> dict[str, Any]:
    """The known peaks of a device of this name; {} for an unknown device.

    ``faster`` is the factor of 8-bit operations, and ``slowest`` the least bandwidth that its
    memory has if no more is known.
    """
    if peaks := peaks_of(name):
        figures = {"device": name, "peak": float(peaks.half), "bandwidth": float(peaks.memory)}
        return {**figures, "faster": round(peaks.eight / peaks.half, 1)} if peaks.eight else figures
    if cubes := _CUBES.fullmatch(name):
        peak = int(cubes[1]) * int(cubes[2]) * _PER_CYCLE / 1e6
        slow = {"bandwidth": _SLOW_GBS, "slowest": _SLOW_GBS}
        return {"device": name, "peak": peak, **slow} if peak else {}
    return {}


def _of_table(trace: Trace) -> Iterator[_Call]:
    """Operators with a formula for their work."""
    calls = working_calls(trace)
    if calls is not None:
        yield from zip(
            calls.first.tolist(), calls.ns.tolist(), calls.shapes.tolist(), calls.work, strict=True
        )


def _ascend_products(trace: Trace) -> Iterator[_Call]:
    """Tasks that multiply two plain matrices in half precision."""
    rows = kernels(trace, OpClass.COMPUTE)
    rows = rows[operator_columns(trace, rows)["OP Type"].fitting(_PRODUCT.fullmatch)]
    columns = fields(
        trace, rows, "Input Shapes", "Output Shapes", "Input Data Types", "Input Formats"
    )
    bare = (column.mapped(lambda text: text.strip(QUOTE)).tolist() for column in columns)
    for row, ns, shape, result, types, formats in zip(
        rows.tolist(), trace.events.dur_ns[rows].tolist(), *bare, strict=True
    ):
        text = f"{shape} -> {result}"
        work = _stated(text, types, formats)
        if work is not None:
            yield row, ns, text, work


QUOTE = '"'


@lru_cache(10_000)
def _stated(text: str, types: str, formats: str) -> Work | None:
    """The product of two plain matrices in half precision; None of other inputs."""
    inputs, _, result = text.partition(" -> ")
    try:
        shapes = [tuple(map(int, one.split(","))) for one in (*inputs.split(";")[:2], result)]
    except ValueError:
        return None
    plain = all(one == "ND" for one in formats.split(";")[:2])
    half = len(types.split(";")) > 1 and {*types.upper().split(";")[:2]} <= _HALF
    if not plain or not half or len(shapes) < 3 or any(len(shape) != 2 for shape in shapes):
        return None
    return flat_product(*map(math.prod, shapes))


def _inefficient(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """By the time that these products take at least: for their operations at the peak, or to move
    their matrices once."""
    spent = best = operations = 0.0
    worst: tuple[float, str] = (0.0, "")
    faster = facts.get("faster", 1.0)
    for text, n_operations, n_bytes, eight_bits, ns, calls in facts["products"]:
        peak = limits["peak"] * (faster if eight_bits else 1)
        least = calls * max(n_operations / peak / 1e3, n_bytes / limits["bandwidth"])
        spent, best, operations = spent + ns, best + least, operations + calls * n_operations
        worst = max(worst, (ns - least, text))
    value = 100 * best / spent
    share_percent = 100 * spent / facts["compute_ns"]
    if value < limits[""] and share_percent > limits["share"]:
        figures = {
            "share_percent": share_percent,
            "reached_tflops": operations / spent / 1e3,
            "peak_tflops": limits["peak"],
        }
        if any(eight_bits for *_, eight_bits, _, _ in facts["products"]):
            figures["peak_of_8_bits_tflops"] = faster * limits["peak"]
        figures |= {} if "slowest" in facts else {"memory_gbs": limits["bandwidth"]}
        words = {"most_lost_on": worst[1][:100]}
        words |= {"device": facts["device"]} if "device" in facts else {}
        yield Case(
            rank, value, {**figures, **words}, "", (), slices(facts["longest"]),
            gone={COMPUTING: max(spent - best, 0.0) / facts["steps"]},
        )  # fmt: skip


# -- shapes that are served badly -----------------------------------------------------------

_CALLS = 5  # of a shape, so that its median says something
_SHAPES = 64  # of an operator, those that take most
_MUCH = 1.5


def _odd_shapes(trace: Trace) -> Known | None:
    """Time of operators that take longer on shapes whose every dimension, of inputs and outputs, is
    at most that of others."""
    if not is_ascend(trace) or trace.hints.partial_device:
        return None
    rows = kernels(trace, OpClass.COMPUTE)
    names = ("Input Shapes", "Output Shapes", "Input Data Types", "Input Formats", "Output Formats")
    columns = fields(trace, rows, *names) if len(rows) else []
    is_known = columns[0].known & columns[1].known if columns else np.zeros(0, bool)
    if not is_known.any():
        return None
    kinds = operator_columns(trace, rows)["OP Type"]
    is_known &= kinds.known
    rows, columns = rows[is_known], [column[is_known] for column in (kinds, *columns)]
    length = trace.events.dur_ns[rows]
    groups = Groups.of(*(column.numbers() for column in columns))
    operators: dict[tuple[str, ...], list[_Shape]] = {}
    for number, first_row in enumerate(groups.first.tolist()):
        if groups.size[number] < _CALLS:
            continue
        kind, inputs, outputs, *how = (column.at(first_row).strip(QUOTE) for column in columns)
        rows_of_shape = groups.order[groups.start[number] :][: groups.size[number]]
        text = f"{inputs} -> {outputs}"
        separators = _DIMENSIONS.split(text)
        shape = _Shape(text, tuple(map(int, _DIMENSIONS.findall(text))), len(rows_of_shape),
                       float(median(length[rows_of_shape])), rows_of_shape)  # fmt: skip
        operators.setdefault((kind, *how, *separators), []).append(shape)
    slower = []
    for (kind, *_), shapes in operators.items():
        shapes = sorted(shapes, key=lambda candidate: -candidate.calls * candidate.median)[:_SHAPES]
        for shape_of_calls in shapes:
            larger = [
                candidate
                for candidate in shapes
                if candidate is not shape_of_calls and candidate.holds(shape_of_calls)
            ]
            fastest = min(larger, key=lambda candidate: candidate.median, default=shape_of_calls)
            if shape_of_calls.median > _MUCH * fastest.median:
                slower.append(
                    (
                        shape_of_calls.calls * (shape_of_calls.median - fastest.median),
                        kind,
                        shape_of_calls,
                        fastest,
                    )
                )
    total_ns, steps = int(length.sum()), max(len(measured(trace.steps)), 1)
    if not slower:
        return facts_of(0.0, {})
    ns = sum(lost_ns for lost_ns, *_ in slower)
    _, kind, shape_of_calls, fastest = max(slower, key=lambda item: item[0])
    figures = {
        "shape": shape_of_calls.text[:200],
        "median_ns": round(shape_of_calls.median),
        "calls": shape_of_calls.calls,
        "larger_shape": fastest.text[:200],
        "larger_median_ns": round(fastest.median),
        "compute_ns": total_ns,
    }
    value = 100 * ns / total_ns if total_ns else 0.0
    examples = longest(trace, rows[shape_of_calls.rows])
    return facts_of(value, {COMPUTING: ns / steps}, examples, figures, where=kind)


_DIMENSIONS = lazy_regex(r"\d{1,12}")


class _Shape(NamedTuple):
    """Calls of an operator on one shape."""

    text: str
    dims: tuple[int, ...]
    calls: int
    median: float
    rows: NDArray[np.intp]

    def holds(self, other: _Shape) -> bool:
        """Whether it is at least as large in every dimension."""
        return all(own_size >= its for own_size, its in zip(self.dims, other.dims, strict=True))


RULES: tuple[Rule, ...] = (
    Rule(
        "matmul-efficiency",
        "Matrix products take much longer than the device needs",
        THEME,
        "least time of products in half precision and FP8 (operations at the device's peak, or "
        "moving the matrices once, whichever is longer) as a share of the time that they take; "
        "products of 10 µs and more",
        (
            Limit(40.0, "%", OWN, below=True),
            Limit(5.0, "%", f"{OWN}: of the time of compute tasks", "share"),
            Limit(UNSAID, "TFLOP/s", f"{_DATA_SHEETS}, where the device is known", "peak"),
            Limit(UNSAID, "GB/s", f"{_DATA_SHEETS}, where the device is known", "bandwidth"),
        ),
        "shapes and types of products of matrices (record_shapes; Ascend: level 1), and peak and "
        "bandwidth of the device (known of some GPUs by their name, and of Ascend 910 by its cores "
        "and clock in info.json; else "
        '`threshold={"matmul-efficiency.peak": TFLOP/s, "matmul-efficiency.bandwidth": GB/s}`)',
        "Look at the shapes named: sizes that are not multiples of the tiles, few rows, layouts "
        "that are converted on the way, a library without a kernel for them, or a lower clock.",
        partial(_done, kind=GEMM),
        each_rank(_inefficient),
    ),
    Rule(
        "attention-efficiency",
        "Attention takes much longer than the device needs",
        THEME,
        "least time of attention in half precision and FP8 (operations at the device's peak, half "
        "of them where it is causal, or moving queries, keys, values and results once, whichever "
        "is longer), of the time that it takes; of calls of 10 µs and more",
        (
            Limit(
                20.0,
                "%",
                f"{OWN}: kernels also take exponentials, which no peak counts",
                below=True,
            ),
            Limit(5.0, "%", f"{OWN}: of the time of compute tasks", "share"),
            Limit(UNSAID, "TFLOP/s", f"{_DATA_SHEETS}, where the device is known", "peak"),
            Limit(UNSAID, "GB/s", f"{_DATA_SHEETS}, where the device is known", "bandwidth"),
        ),
        "shapes, types and values of the arguments of attention that the table of FLOPs knows "
        "(record_shapes), and peak and bandwidth of the device (known of some GPUs by their name; "
        'else `threshold={"attention-efficiency.peak": TFLOP/s, "attention-efficiency.bandwidth": '
        "GB/s}`)",
        "Look at the shapes named: short sequences, few heads and sizes of heads that kernels are "
        "not made for fill the device badly; a newer kernel may be faster.",
        partial(_done, kind=ATTENTION),
        each_rank(_inefficient),
    ),
    Rule(
        "slow-shape",
        "An operator takes longer on a shape than on a larger one",
        THEME,
        "what operators take beyond their time on a shape that is at least as large in every "
        "dimension of every input and output (medians of 5 calls and more that differ by half), of "
        "the time of compute tasks",
        (Limit(5.0, "%", OWN),),
        "compute tasks of an Ascend device with shapes of their input and output",
        "Pad to the larger shape, or choose sizes that the operator is tuned for; if only values "
        "or attributes decide on the work, leave it.",
        _odd_shapes,
    ),
)
