"""Tables of FLOPs and rates of operators, with shares of the device's peaks, and of the units of AI
cores that bound them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.device_peaks import peaks_of
from traceconv.analysis.tables.definition import (
    NOTHING,
    TIMED,
    Column,
    Ranked,
    Table,
    grouped,
    timed,
)
from traceconv.analysis.tables.fields import (
    fields,
    is_ascend,
    names_of,
    operator_columns,
    rounded,
)
from traceconv.analysis.tables.groups import Groups, share
from traceconv.analysis.tables.host import kernels, launches, operator_nest
from traceconv.analysis.tables.texts import Texts
from traceconv.analysis.tables.work import (
    NORMALIZATION,
    Lengths,
    Work,
    lengths_of,
    model_of,
    work_of,
)
from traceconv.core.columns import F64, I64, once_each
from traceconv.core.intervals import holding
from traceconv.core.model import Kind, Layer, OpClass, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.passes.graph_replays import replays

_MODELLED = NameTest(model_of)
_PASSES = NameTest(lengths_of)
_SAID = ("Input Dims", "Input type", "Concrete Inputs")


class WorkingCalls(msgspec.Struct, frozen=True):
    """Calls of operators whose work is known, and their kernels.

    Attributes:
        first:   event row of the first kernel of each.
        ns:      sum of the durations of its kernels.
        kernels: their number.
        names, shapes, types: the operator and its inputs, as recorded.
        work:    of each.
    """

    first: NDArray[Any]
    ns: I64
    kernels: I64
    names: NDArray[Any]
    shapes: NDArray[Any]
    types: NDArray[Any]
    work: list[Work]


@once_each
def working_calls(trace: Trace) -> WorkingCalls | None:
    """Calls of operators whose work is known by their name and inputs, on GPUs; None if none is."""
    if is_ascend(trace):
        return None
    rows = kernels(trace, OpClass.COMPUTE, OpClass.COPY)
    parts = [part for part in (_replayed(trace, rows), _launched(trace, rows)) if len(part[0])]
    if not parts:
        return None
    rows, call, launch_ns = (np.concatenate([part[i] for part in parts]) for i in (0, 1, 2))
    columns = [Texts.concat([part[3][i] for part in parts]) for i in range(4)]
    groups = Groups.of(call)
    first = groups.first
    names, *call_facts = (column[first].tolist() for column in columns)
    lengths = _lengths(trace, launch_ns[first])
    models = [work_of(*call_key) for call_key in zip(names, *call_facts, lengths, strict=True)]
    known = np.array([model is not None for model in models], bool)
    if not known.any():
        return None
    names, shapes, types = (
        np.array(values, object)[known] for values in (names, call_facts[0], call_facts[1])
    )
    time = groups.total(trace.events.dur_ns[rows])[known]
    work = [model for model in models if model is not None]
    return WorkingCalls(rows[first][known], time, groups.size[known], names, shapes, types, work)


def _facts(trace: Trace) -> Columns:
    calls = working_calls(trace)
    if calls is None:
        return NOTHING
    peak, memory = _peaks(trace, np.array([work.bits for work in calls.work]))
    flops, n_bytes = (
        np.array([value if value >= 0 else ABSENT for value in values], np.int64)
        for values in ([work.flops for work in calls.work], [work.n_bytes for work in calls.work])
    )
    kinds = np.array([work.kind for work in calls.work], object)
    keys = {"Operator": calls.names, "Kind": kinds, "Input Shapes": calls.shapes,
            "Input Types": calls.types, "FLOPs": flops, "Bytes": n_bytes, "peak": peak,
            "memory": memory}  # fmt: skip
    return grouped(calls.ns, keys, Kernels=calls.kernels)


_Part = tuple[NDArray[Any], I64, I64, list[Texts]]
"""Kernels; a number for each that those of one call of an operator share; a time on the host within
the pass; and the name and the inputs of the operator."""


def _replayed(trace: Trace, rows: NDArray[np.intp]) -> _Part:
    """Kernels of graphs' replays whose arguments state the operator."""
    replayed = replays(trace)
    if not replayed:
        return rows[:0], rows[:0], rows[:0], []
    held = np.isin(replayed.rows, rows)
    rows, replay = replayed.rows[held], replayed.replay[held]
    columns = fields(trace, rows, "operator", *_SAID, "operator call")
    number = columns.pop().whole(ABSENT)
    is_modelled = columns[0].fitting(model_of) & (number != ABSENT)
    rows, replay = rows[is_modelled], replay[is_modelled]
    call = -1 - np.unique(replay * (1 << 32) + number[is_modelled], return_inverse=True)[1]
    launch_ns = trace.events.start_ns[replayed.launch[replay]]
    return rows, call, launch_ns, [column[is_modelled] for column in columns]


def _launched(trace: Trace, rows: NDArray[np.intp]) -> _Part:
    """Kernels that operators launched: the innermost one whose work is known."""
    nest, calls = operator_nest(trace), launches(trace)
    modelled = np.append(rows_named(trace, _MODELLED)[nest.rows], True)  # the last: of none
    callers = nest.at(calls.thread, calls.time_ns)
    while len(out := np.flatnonzero(~modelled[callers])):
        callers[out] = nest.parent[callers[out]]
    # an operator around a known one does the rest of its work: a bias added, a layout changed
    outer, up = np.zeros(len(nest.rows) + 1, bool), np.unique(nest.parent[callers[callers >= 0]])
    while (up >= 0).any():
        outer[up[up >= 0]] = True
        up = np.unique(nest.parent[up[up >= 0]])
    is_modelled = np.isin(calls.device, rows) & (callers >= 0) & ~outer[callers]
    call = nest.rows[callers[is_modelled]]
    columns = [names_of(trace, call), *fields(trace, call, *_SAID)]
    return calls.device[is_modelled], call.astype(np.int64), trace.events.start_ns[call], columns


def _lengths(trace: Trace, time: I64) -> list[Lengths | None]:
    """The lengths of requests that the pass at each time states, or None."""
    events = trace.events
    rows = np.flatnonzero(
        trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE) & rows_named(trace, _PASSES)
    )
    if not len(rows):
        return [None] * len(time)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    spans = np.stack((events.start_ns[rows], events.ends(rows)), axis=1)
    request_lengths = [lengths_of(trace.strings[name]) for name in events.name[rows].tolist()]
    return [request_lengths[i] if i >= 0 else None for i in holding(spans, time).tolist()]


def _peaks(trace: Trace, bits: NDArray[Any]) -> tuple[I64, I64]:
    """Peaks of the device for elements of these bits, 10^9 operations per second, and of its
    memory, 10^6 bytes per second; ABSENT where unknown, or if the devices of the rank differ."""
    names = set(trace.hints.device_names.values())
    peaks = peaks_of(names.pop()) if len(names) == 1 else None
    if not peaks:
        return np.full(len(bits), ABSENT), np.full(len(bits), ABSENT)
    of_bits: Mapping[int, float] = {16: peaks.half, 8: peaks.eight}
    by_bits = [round(1000 * of_bits.get(n_bits, 0)) or ABSENT for n_bits in bits.tolist()]
    return np.array(by_bits, np.int64), np.full(len(bits), round(1000 * peaks.memory))


def _build(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    time = rows["Avg Time(ns)"].astype(np.float64)
    exact = rows["Total Time(ns)"] / np.maximum(rows["Count"], 1)
    time = np.where(exact > 0, exact, np.nan)
    flops, n_bytes, peak, memory = (
        np.where(rows[key] == ABSENT, np.nan, rows[key].astype(np.float64))
        for key in ("FLOPs", "Bytes", "peak", "memory")
    )
    rate, speed = flops / time / 1000, n_bytes / time
    intensity = flops / np.where(n_bytes > 0, n_bytes, np.nan)
    # units that normalize have a lower peak than those of products, but none below its intensity
    ridge = np.where(rows["Kind"] == NORMALIZATION, np.inf, peak) / memory * 1000
    bound = np.where(
        np.isnan(intensity + ridge), "", np.where(intensity < ridge, "memory", "compute")
    )
    return {
        **rows,
        "Rate(TFLOP/s)": rate,
        "Peak(%)": share(rate, peak / 1000),
        "Intensity(FLOP/B)": intensity,
        "Bandwidth(GB/s)": speed,
        "Bandwidth Peak(%)": share(speed, memory / 1000),
        "Bound": bound.astype(object),
    }


# -- what bounds operators of AI cores -----------------------------------------------------

_CUBE_CORE, _VECTOR_CORE, _BLOCKS = "aicore_time(us)", "aiv_time(us)", "Block Num"
"""Arguments of tasks: how long their cores work, and the number of blocks."""
_PREFIXES = ("", "aic_", "aiv_")
"""Beginnings of the counters of cores with cube and vector units, of cube and of vector cores."""
_UNITS = {"mac": "Cube", "vec": "Vector", "scalar": "Scalar", "mte1": "MTE1", "mte2": "MTE2",
          "mte3": "MTE3", "fixpipe": "FixPipe"}  # fmt: skip
"""Units, and what they are called: MTE move data into and out of the memory of a core."""
BOUND_PERCENT = 80.0
"""A unit that works so long bounds the operator, as msprof-analyze counts (operator_bound)."""


def _numbers(column: Texts) -> F64:
    """Numbers as written; NaN for other texts."""
    values = [float(text) if text.replace(".", "", 1).isdigit() else np.nan
              for text in column.values]  # fmt: skip
    found: F64 = np.array(values, np.float64)[column.code]
    return found


def _bound_facts(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COMPUTE)
    if not any(column.known.any() for column in fields(trace, rows, _CUBE_CORE, _VECTOR_CORE)):
        return NOTHING
    counters = [f"{prefix}{unit}_time(us)" for unit in _UNITS for prefix in _PREFIXES]
    names = (_CUBE_CORE, _VECTOR_CORE, _BLOCKS, *counters)
    columns = np.array([_numbers(column) for column in fields(trace, rows, *names)])
    known = np.isfinite(columns[:2]).any(axis=0)
    if not known.any():
        return NOTHING
    rows = rows[known]
    cube, vector, blocks, *times = np.nan_to_num(columns[:, known])
    spent = rounded(np.array(times) * 1000).reshape(len(_UNITS), len(_PREFIXES), -1).sum(axis=1)
    sums = {"core": rounded((cube + vector) * 1000), "blocks": rounded(blocks)}
    sums |= zip(_UNITS.values(), spent, strict=True)
    described = operator_columns(trace, rows)
    keys = {name: described[name] for name in ("OP Type", "Core Type")}
    return grouped(trace.events.dur_ns[rows], keys, **sums)


def _bounds(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    shares = {f"{name}(%)": share(rows[name], rows["core"]) for name in _UNITS.values()}
    every = np.nan_to_num(np.array([*shares.values()]))
    names = np.array([*_UNITS.values()], object)
    bound = np.where(every.max(axis=0) >= BOUND_PERCENT, names[every.argmax(axis=0)], "none")
    return {
        **rows,
        **shares,
        "Bound": bound.astype(object),
        "Block Dim": rows["blocks"] / np.maximum(rows["Count"], 1),
    }


TABLES: Sequence[Table] = (
    Table(
        "operator_flops",
        "Floating-point operations and bytes of operators",
        "Calls of operators with equal inputs, with the kernels and fills of memory that each "
        "launched, or that a replayed graph ran for it: of operators within each other the "
        "innermost that is known. Count = calls; Kernels of all of them; Total, Min, Avg and Max "
        "of the time of a call, which is the sum of its kernels. FLOPs of a call: product of "
        "matrices 2 M N K, and M N for a bias; attention 2 B H Lq Lk (Dqk + Dv), half of it where "
        "it is causal, 2.5 times as many backward; in a server's pass 4 H D (sum of q k - half of "
        "the sum of q q of prompts), from the lengths that its range states; convolution 2 N Cout "
        "(output size) Cin / groups (kernel size), backward once for each gradient; experts 2 T k "
        "K (N1 + N2) of T tokens with k experts each; normalization 5 per element, by the root "
        "mean square 4, with a residual 5, backward 9 and 8. Bytes: inputs and output, moved once. "
        "Rate = FLOPs / Avg; Intensity = FLOPs / Bytes; Bandwidth = Bytes / Avg; shares are of the "
        "device's peaks for elements of 8 or 16 bits, from data sheets; Bound = memory where "
        "Intensity is below the ratio of both peaks. Unknown where inputs, lengths or the device "
        "are; of packed weights (GPTQ, AWQ, Marlin, FP4) where nothing states their columns.",
        "shapes of operators (record_shapes), and launches",
        Column.parse(
            f"Rank, Operator:text, Kind:text, Rate(TFLOP/s), Peak(%), Bound:text, {TIMED}, "
            "Kernels, FLOPs, Bytes:B, Intensity(FLOP/B), Bandwidth(GB/s), Bandwidth Peak(%), "
            "Input Shapes:text, Input Types:text"
        ),
        _facts,
        _build,
        capped=True,
    ),
    Table(
        "operator_bound",
        "What bounds operators on AI cores",
        "Compute tasks with counters of their cores, by operator type and core type: Count; Total, "
        "Min, Avg, Max of durations; Ratio = Total / sum of Totals. Cube, Vector, Scalar, MTE1 to "
        "MTE3 (moving data) and FixPipe = time that the unit works / time that the core works, "
        "sums over the tasks, of cube and vector cores together. Bound = the unit with the largest "
        f"share, if that is {BOUND_PERCENT:.0f} % or more, else none: then units wait for each "
        "other. Block Dim = mean number of blocks; a core runs one of them.",
        "counters of AI cores: level 1 of the Ascend PyTorch profiler with aic_metrics "
        "(kernel_details, databases)",
        Column.parse(
            f"Rank, OP Type:text, Core Type:text, Bound:text, {TIMED}, Block Dim:float, Cube(%), "
            "Vector(%), Scalar(%), MTE1(%), MTE2(%), MTE3(%), FixPipe(%)"
        ),
        _bound_facts,
        _bounds,
        capped=True,
        reads=("kernel_details",),
    ),
)  # fmt: skip
