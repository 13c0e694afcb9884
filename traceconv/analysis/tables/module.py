"""Tables of modules and of the phases of a step, host and device side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
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
    joined,
    ordered,
    texts,
    timed,
)
from traceconv.analysis.tables.fields import names_of
from traceconv.analysis.tables.groups import Groups, share
from traceconv.analysis.tables.host import Nest, launched_within, modules, paddle_types
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import I64
from traceconv.core.model import Kind, Layer, OpClass, Trace
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns


def _module_facts(trace: Trace) -> Columns:
    nest = Nest.of(trace, modules(trace))
    if not len(nest.rows):
        return NOTHING
    groups = Groups.of(trace.events.name[nest.rows])
    first = trace.events.name[nest.rows[groups.first]].tolist()
    return {
        "Module": texts([trace.strings[i].removeprefix("nn.Module: ") for i in first]),
        **groups.measured(trace.events.dur_ns[nest.rows]),
        "Device Time(ns)": groups.known_total(launched_within(trace, nest)),
    }


# -- phases: Paddle's Model Summary, from any source ----------------------------------------

_PHASE_ORDER = ("Step", "Dataloader", "Forward", "Backward", "Optimization", "Others")
_PADDLE_PHASES = {"module": "Forward"}
_NAMED = lazy_regex(
    r"(?P<Dataloader>enumerate\(DataLoader\).*|.*DataLoader.*__next__|dataloader)"
    r"|(?P<Forward>(?:\S*\.)?(?:forward|fwd)|## forward ##)"
    r"|(?P<Backward>(?:\S*\.)?(?:backward|bwd)|## backward ##|Gradient Backward"
    r"|autograd::engine::evaluate_function: .*)"
    r"|(?P<Optimization>Optimizer\.step#.*|optimizer|Optimization Step)",
    re.IGNORECASE | re.DOTALL,
)
"""How frameworks and people call the phases of a step."""


@lru_cache(1 << 12)
def _phase_called(name: str) -> str:
    match = _NAMED.fullmatch(name)
    return str(match.lastgroup) if match else ""


def _phase_facts(trace: Trace) -> Columns:
    """Steps, the outermost phases, and what the phases leave of the steps."""
    events = trace.events
    steps = np.flatnonzero((events.op == OpClass.ITERATION) & trace.rows_of(Layer.STEP))
    host = trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE) & (events.step < 0)
    rows, phase = marked_phases(trace, np.flatnonzero(host))
    if not len(rows) or not len(steps):
        return NOTHING
    nest = Nest.of(trace, rows)
    outer = nest.parent < 0
    kind = phase[np.searchsorted(rows, nest.rows)][outer]
    spent, rows = launched_within(trace, nest)[outer], nest.rows[outer]
    start, length = events.start_ns[rows], events.dur_ns[rows]
    work = trace.rows_of(Layer.DEVICE, Layer.COMM)
    in_steps = events.step >= 0
    in_steps &= np.isin(events.op, (OpClass.COMPUTE, OpClass.COMM, OpClass.COPY))
    worked = int(events.dur_ns[work & in_steps].sum()) if work.any() else ABSENT
    parts = [_phase("Step", events.dur_ns[steps], worked)]
    for name in _PHASE_ORDER[1:-1]:
        is_phase = kind.among(name)
        if is_phase.any():
            alone = outermost(start[is_phase], length[is_phase])
            device_ns = ABSENT if ABSENT in spent else int(spent[is_phase].sum())
            parts.append(_phase(name, length[is_phase][alone], device_ns))
    host_ns = [int(part["total"][0]) for part in parts]
    device = [int(part["Device Time(ns)"][0]) for part in parts]
    left_ns = ABSENT if ABSENT in device else max(2 * device[0] - sum(device), 0)
    others = np.array([max(2 * host_ns[0] - sum(host_ns), 0)])
    parts.append(_phase("Others", others, left_ns))
    return joined(parts)


def outermost(start: I64, length: I64) -> NDArray[np.bool_]:
    """Which ranges are in no other one, on any thread: autograd works in separate threads,
    within the backward range of the main thread."""
    order = np.lexsort((-length, start))
    reached = np.maximum.accumulate((start + length)[order])
    alone = np.ones(len(start), bool)
    alone[order[1:]] = (start + length)[order[1:]] > reached[:-1]
    return alone


def marked_phases(trace: Trace, host: NDArray[np.intp]) -> tuple[NDArray[np.intp], Texts]:
    """Which of these host rows are phases of a step, ascending, and which phases: "Dataloader",
    "Forward", "Backward" or "Optimization"."""
    if trace.capture.reader == "paddle":
        phase = paddle_types(trace, host).mapped(lambda kind: _PADDLE_PHASES.get(kind, kind))
    else:
        phase = names_of(trace, host).mapped(_phase_called)
    chosen = phase.among(*_PHASE_ORDER[1:-1])
    return host[chosen], phase[chosen]


def _phase(name: str, dur: NDArray[Any], device_ns: int) -> dict[str, NDArray[Any]]:
    measures = Groups.of(np.zeros(len(dur), np.int64)).measured(dur)
    return {"Phase": texts([name]), **measures, "Device Time(ns)": np.array([device_ns])}


def _phases(ranked: Ranked) -> Columns:
    """In the order of a step; ratios are of the steps; the rest has no count."""
    rows = timed(ranked)
    position = np.array([_PHASE_ORDER.index(name) for name in rows["Phase"].tolist()])
    rows = ordered(rows, position)
    steps, rank = rows["Phase"] == "Step", rows[RANK]
    base = {
        key: dict(zip(rank[steps].tolist(), rows[key][steps].tolist(), strict=True))
        for key in ("Total Time(ns)", "Device Time(ns)")
    }
    step_ns = {key: np.array([by_rank[r] for r in rank.tolist()]) for key, by_rank in base.items()}
    is_rest = rows["Phase"] == "Others"
    counted = ("Count", "Min Time(ns)", "Avg Time(ns)", "Max Time(ns)")
    return {
        **rows,
        **{key: np.where(is_rest, ABSENT, rows[key]) for key in counted},
        "Ratio(%)": share(rows["Total Time(ns)"], step_ns["Total Time(ns)"]),
        "Device Ratio(%)": np.where(
            (rows["Device Time(ns)"] == ABSENT) | (step_ns["Device Time(ns)"] == ABSENT),
            np.nan,
            share(rows["Device Time(ns)"], step_ns["Device Time(ns)"]),
        ),
    }


TABLES: Sequence[Table] = (
    Table(
        "module",
        "Modules",
        "Calls of a module (scope lanes, nn.Module, Paddle's Forward): Count; Total, Min, Avg = "
        "Total / Count, Max of durations; modules within count in their parents, too. Ratio = "
        "Total / sum of all Totals. Device = tasks launched within, summed.",
        "module calls: with_stack and with_modules, or scope lanes",
        Column.parse(f"Rank, Module:text, {TIMED}, Device Time(ns)"),
        _module_facts,
        capped=True,
    ),
    Table(
        "phase",
        "Phases of a step (Paddle's Model Summary)",
        "Steps, and the outermost ranges that are data loading, forward, backward and optimizer, "
        "as Paddle types them or as their names say: Count, sum, min, mean, max of host time. "
        "Device = device work launched within, summed; a range within one of its kind on "
        "another thread counts for the device only. Others = Step - all phases. Ratios are of "
        "Step.",
        "steps, and ranges named forward, backward, optimizer or DataLoader on the host",
        Column.parse(f"Rank, Phase:text, {TIMED}, Device Time(ns), Device Ratio(%)"),
        _phase_facts,
        _phases,
    ),
)  # fmt: skip
