"""Tables of operators: by type, by name, by shape, and their floating-point operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    TIMED,
    Column,
    Ranked,
    Table,
    grouped,
    joined,
    ordered,
    texts,
    timed,
    with_job,
)
from traceconv.analysis.tables.fields import (
    OPERATORS,
    fields,
    floats,
    is_ascend,
    mentioned,
    named,
    names_of,
    numbers,
    operator_columns,
)
from traceconv.analysis.tables.groups import Groups, mean
from traceconv.analysis.tables.host import (
    kernels,
    launched_within,
    launches,
    operator_nest,
    operators,
)
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import I64, once_each
from traceconv.core.intervals import holding
from traceconv.core.model import Layer, OpClass, Trace
from traceconv.core.side_tables import ABSENT, Columns, SideTable
from traceconv.passes.graph_replays import KNOWN_BY

HOST = "Host CPU"
"""Ends of the titles of device tracks, after the kind of device."""


SHAPES = ("Input Dims", "input_shapes")
"""Arguments of host operators that say the shapes of inputs: PyTorch's and Paddle's."""


@once_each
def launching(trace: Trace) -> I64:
    """For each event row of the device the event row of the innermost framework operator that
    launched it; -1 if none."""
    nest, calls = operator_nest(trace), launches(trace)
    callers = nest.at(calls.thread, calls.time_ns)
    operator_rows = np.full(len(trace.events), -1, np.int64)
    held = callers >= 0
    operator_rows[calls.device[held]] = nest.rows[callers[held]]
    return operator_rows


def _typed(trace: Trace, rows: NDArray[np.intp]) -> tuple[Texts, Texts]:
    """Operator type and core type of compute rows of the device; "" where they are unknown."""
    if is_ascend(trace):
        columns = operator_columns(trace, rows)
        return columns["OP Type"], columns["Core Type"]
    launched = names_of(trace, launching(trace)[rows])
    if mentioned(trace, KNOWN_BY):
        operator, known_by = fields(trace, rows, "operator", KNOWN_BY)
        launched = operator.kept(known_by.known).filled(launched)
    loose = np.flatnonzero(~launched.known)
    (category,) = fields(trace, rows[loose], "hlo_category")
    code = launched.code + len(category.values)
    code[loose] = category.code
    kinds = [t.device_kind if t.layer is Layer.DEVICE else "" for t in trace.tracks]
    return Texts([*category.values, *launched.values], code), Texts(kinds, trace.events.track[rows])


def _type_facts(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COMPUTE)
    if not len(rows):
        return NOTHING
    kind, core = _typed(trace, rows)
    return grouped(trace.events.dur_ns[rows], {"OP Type": kind, "Core Type": core})


# -- by name ------------------------------------------------------------------------------


def _op_facts(trace: Trace) -> Columns:
    """Operators on the device of an Ascend rank, and the framework's own on the host."""
    parts = [part for part in (_device_ops(trace), _host_ops(trace)) if part]
    if not parts:
        return NOTHING
    return joined(parts)


def _device_ops(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COMPUTE)
    if not len(rows) or not is_ascend(trace):
        return NOTHING
    core = _typed(trace, rows)[1]
    groups = Groups.of(trace.events.name[rows], core.numbers())
    facts = _facts_by_name(trace, rows, groups, core)
    return {**facts, "Self Time(ns)": facts["total"], "Device Time(ns)": facts["total"]}


def _host_ops(trace: Trace) -> Columns:
    nest = operator_nest(trace)
    if not len(nest.rows):
        return NOTHING
    groups = Groups.of(trace.events.name[nest.rows])
    return {
        **_facts_by_name(trace, nest.rows, groups, Texts.same(HOST, len(nest.rows))),
        "Self Time(ns)": groups.total(nest.self_ns()),
        "Device Time(ns)": groups.known_total(launched_within(trace, nest)),
    }


def _facts_by_name(
    trace: Trace, rows: NDArray[np.intp], groups: Groups, core: Texts
) -> dict[str, NDArray[Any]]:
    names = trace.events.name[rows[groups.first]].tolist()
    return {
        "Operator": texts([trace.strings[i] for i in names]),
        "Core Type": core[groups.first].column(),
        **groups.measured(trace.events.dur_ns[rows]),
    }


# -- by shape -----------------------------------------------------------------------------


def _shape_facts(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COMPUTE)
    if is_ascend(trace) and len(rows):
        shapes = operator_columns(trace, rows)["Input Shapes"]
        kinds = _typed(trace, rows)[0]
    elif not mentioned(trace, *SHAPES):
        return _dynamic_shapes(trace)
    else:
        rows = operators(trace)
        dims, shapes_alone = fields(trace, rows, *SHAPES)
        shapes, kinds = dims.filled(shapes_alone), names_of(trace, rows)
    has_shape = shapes.known
    if not has_shape.any():
        return _dynamic_shapes(trace)
    rows = rows[has_shape]
    step = trace.events.step[rows].astype(np.int64)
    if (step < 0).any():
        spans = np.stack((trace.steps.start_ns, trace.steps.end_ns), axis=1)
        step_rows = holding(spans, trace.events.start_ns[rows])
        around = np.append(trace.steps.step, -1).astype(np.int64)[
            step_rows
        ]  # the last one: no step
        step = np.where(step < 0, around, step)
    step = np.where(step < 0, ABSENT, step)
    keys = {"Step": step, "OP Type": kinds[has_shape], "Input Shapes": shapes[has_shape]}
    return grouped(trace.events.dur_ns[rows], keys)


def _dynamic_shapes(trace: Trace) -> Columns:
    """What MindSpore wrote of operators with dynamic shapes."""
    side_table = trace.side_tables.get("dynamic_shape_info")
    if not side_table:
        return NOTHING
    timed_rows = (named(side_table, "side") == "operator") & (
        numbers(side_table, "dur(ns)") != ABSENT
    )
    step, length = (
        numbers(side_table, "step")[timed_rows],
        numbers(side_table, "dur(ns)")[timed_rows],
    )
    kinds, shapes = (named(side_table, h)[timed_rows] for h in ("op_type", "shape_info"))
    if not len(step):
        return NOTHING
    return grouped(length, {"Step": step, "OP Type": kinds, "Input Shapes": shapes})


def _shapes(ranked: Ranked) -> Columns:
    rows = with_job(ranked)
    rows = ordered(rows, rows["Step"], -rows["total"])
    return {
        RANK: rows[RANK], **{name: rows[name] for name in ("Step", "OP Type", "Input Shapes")},
        "Count": rows["count"], "Total Time(ns)": rows["total"], "Min Time(ns)": rows["low"],
        "Avg Time(ns)": mean(rows["total"], rows["count"]), "Max Time(ns)": rows["high"],
    }  # fmt: skip


# -- FLOPs --------------------------------------------------------------------------------


MODEL = "(model)"
"""All operators together; a separate file has their totals."""

_FLOPS = {
    "FLOPs": "FLOPs",
    "FLOPS": "FLOPS",
    "Utilization(%)": "FLOPS utilization",
    "Cube FLOPs": "MFLOPs(10^6 cube)",
    "Cube FLOPS": "GFLOPS(10^9 cube)",
    "Cube Utilization(%)": "FLOPS utilization(cube)",
    "Vector FLOPs": "MFLOPs(10^6 vector)",
    "Vector FLOPS": "GFLOPS(10^9 vector)",
    "Vector Utilization(%)": "FLOPS utilization(vec)",
}
"""Columns, and the file's headings: one set of three, or one each for cube and vector units."""


def _flops_facts(trace: Trace) -> Columns:
    """The whole model first, then the operators."""
    parts = []
    model, single = (trace.side_tables.get(name) for name in ("flops_summary", "flops"))
    if model:
        headings = {**_FLOPS, "Utilization(%)": "FLOPS_Utilization"}
        parts.append(_flops_rows(model, headings, texts([MODEL] * len(model))))
    if single is not None and len(single):
        parts.append(_flops_rows(single, _FLOPS, named(single, "full_kernel_name")))
    if not parts:
        return NOTHING
    return joined(parts)


def _flops_rows(
    table: SideTable, headings: Mapping[str, str], operator: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    return {"Operator": operator, **{key: floats(table, h) for key, h in headings.items()}}


TABLES: Sequence[Table] = (
    Table(
        "type",
        "Operators by type",
        "Over the compute tasks of the device with one operator type and core type: Count; Total "
        "= sum of durations; Min, Max; Avg = Total / Count; Ratio = Total / sum of all Totals of "
        "the rank. The type is the one the profiler names (MindSpore before 2.4: in its timeline, "
        "or by full name in its tables of operators); on a GPU, the innermost framework operator "
        "that launched the kernel, of a replayed graph as far as it is known; of operations of "
        "XLA without one, their category.",
        "compute tasks on a device",
        Column.parse(f"Rank, OP Type:text, Core Type:text, {TIMED}"),
        _type_facts,
        capped=True,
        reads=OPERATORS,
    ),
    Table(
        "op",
        "Operators by name and core type",
        "Device operators (AI_CORE, AI_CPU ...) count their tasks; framework operators (Host "
        "CPU) count their calls; modules, Python functions and queues (Enqueue, Dequeue) are "
        "none: their time is of the operator around them. Total, Min, Avg, Max of durations; "
        "Ratio = Total / sum of Totals of the core type. Self = duration - operators called "
        "within. Device = tasks launched within, summed; tasks that overlap count twice.",
        "operators on the device or the host",
        Column.parse(
            f"Rank, Operator:text, Core Type:text, {TIMED}, Self Time(ns), Device Time(ns)"
        ),
        _op_facts,
        partial(timed, within=("Core Type",)),
        capped=True,
        reads=OPERATORS,
    ),
    Table(
        "shape",
        "Operators by step and input shapes",
        "Rows with one step, operator type and text of input shapes: Count, sum, min, mean and "
        "max of their durations. More than one row for a type is a dynamic shape. Host operators "
        "are put into the step in whose span they start.",
        "shapes: record_shapes, profiler level 1, or dynamic_shape_info",
        Column.parse(
            "Rank, Step, OP Type:text, Input Shapes:text, Count, Total Time(ns), Min Time(ns), "
            "Avg Time(ns), Max Time(ns)"
        ),
        _shape_facts,
        _shapes,
        capped=True,
        reads=("kernel_details", "dynamic_shape_info"),
    ),
    Table(
        "flops",
        "Floating-point operations by operator",
        "As the profiler wrote them: FLOPs in 10^6 operations, FLOPS in 10^9 per second, "
        "Utilization = FLOPS / peak of the device; apart for cube and vector units where the "
        f"device has both. {MODEL} = the profiler's sum of FLOPs, and its means of the others, "
        "over all operators.",
        "flops_<rank>.txt or flops_summary_<rank>.json of MindSpore",
        Column.parse(
            "Rank, Operator:text, FLOPs:MFLOP, FLOPS:GFLOP/s, Utilization(%), Cube FLOPs:MFLOP, "
            "Cube FLOPS:GFLOP/s, Cube Utilization(%), Vector FLOPs:MFLOP, Vector FLOPS:GFLOP/s, "
            "Vector Utilization(%)"
        ),
        _flops_facts,
        capped=True,
        reads=("flops_summary", "flops"),
    ),
)  # fmt: skip
