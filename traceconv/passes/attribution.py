"""Which step device and communication rows belong to, and the table of steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import (
    I32,
    I64,
    UNKNOWN,
    Layer,
    OpClass,
    StepSource,
    StepTable,
    Trace,
)


def attribution(trace: Trace) -> Trace:
    """Fill the ``step`` column of device and communication rows, ``Trace.steps`` and the steps of
    ``Trace.present``.

    Iterations of a graph are device time. Steps without a graph are marks of the host, and the
    device works behind: there a row belongs to the step in which an arrow to it begins, and rows
    without an arrow to the last step whose device work had begun.

    Where no pass has made a table of steps, the iterations that the source recorded are taken.
    """
    steps = trace.steps if len(trace.steps) else step_table(trace, StepSource.RECORDED)
    todo = trace.rows_of(Layer.DEVICE, Layer.COMM) & (trace.events.step < 0)
    graphs = np.unique(steps.graph).tolist()  # -1, the framework's own steps, comes first
    step = trace.events.step.copy()
    for graph in graphs:
        own = steps.take(steps.graph == graph)
        if graph < 0:
            _by_launch(trace, own, todo, step)
            spans = _device_spans(trace, own, step)
        else:
            spans = np.stack((own.start_ns, own.end_ns), axis=1)
        rows = np.flatnonzero(todo & (step < 0) & _may_belong(trace, graph, graphs))
        found = _holding(spans, trace.events.start_ns[rows])
        step[rows[found >= 0]] = own.step[found[found >= 0]]
    trace = replace(trace, events=trace.events.with_columns(step=step))
    present = replace(trace.present, steps=np.unique(step[step >= 0]), iterations=len(steps))
    return replace(trace, steps=_with_device_time(trace, steps), present=present)


def step_table(trace: Trace, source: StepSource) -> StepTable:
    """The iterations of the step trace that have a number, by start.

    Device time is that of the step itself, and the figures of the overlap are unknown.

    Args:
        source: where the borders of all of them come from.
    """
    events = trace.events
    rows = np.flatnonzero((events.op == OpClass.ITERATION) & (events.step >= 0))
    own = events.take(rows[np.argsort(events.start_ns[rows], kind="stable")])
    return StepTable(
        graph=own.graph,
        step=own.step,
        source=np.full(len(own), source, np.int8),
        start_ns=own.start_ns,
        dur_ns=own.dur_ns,
        device_start_ns=own.start_ns,
        device_dur_ns=own.dur_ns,
        **{name: np.full(len(own), UNKNOWN, np.int64) for name in StepTable.FIGURES},
    )


def _may_belong(trace: Trace, graph: int, graphs: list[int]) -> NDArray[np.bool_]:
    """Rows that time alone puts into steps of ``graph``: those of no other graph. If the rank has
    several graphs, a row without one may belong to any of them."""
    column = trace.events.graph
    if graph < 0:
        return np.ones(len(column), bool)
    may: NDArray[np.bool_] = (column == graph) | ((column < 0) & (len(graphs) == 1))
    return may


def _by_launch(trace: Trace, steps: StepTable, todo: NDArray[np.bool_], step: I32) -> None:
    """Fill ``step`` where an arrow leads from the host; operators take precedence over calls."""
    flows, events = trace.flows, trace.events
    spans = np.stack((steps.start_ns, steps.end_ns), axis=1)
    for layer in (Layer.RUNTIME, Layer.HOST):  # the later assignment wins
        arrows = flows.take(trace.rows_of(layer)[flows.src] & todo[flows.dst])
        found = _holding(spans, events.start_ns[arrows.src])
        step[arrows.dst[found >= 0]] = steps.step[found[found >= 0]]


def _holding(spans: I64, time: I64) -> NDArray[np.intp]:
    """Which span holds each instant, the latest begun if several; -1 = none."""
    at = np.searchsorted(spans[:, 0], time, "right") - 1
    return np.where((at >= 0) & (time < spans[np.maximum(at, 0), 1]), at, -1)


def _device_spans(trace: Trace, steps: StepTable, step: I32) -> I64:
    """From the first device row of each step to its last, or to the step's own end if later.

    Steps without device rows keep their own span. Starts ascend as those of ``steps`` do.

    Args:
        step: the step of every event row.
    """
    own = np.stack((steps.start_ns, steps.end_ns), axis=1)
    events = trace.events
    rows = np.flatnonzero((step >= 0) & trace.rows_of(Layer.DEVICE, Layer.COMM))
    if not len(rows):
        return own
    # the position in ``steps`` of the number each row carries; rows of other graphs fall out
    order = np.argsort(steps.step, kind="stable")
    found = np.searchsorted(steps.step, step[rows], sorter=order)
    position = order[np.minimum(found, len(steps) - 1)]
    same = steps.step[position] == step[rows]
    rows, position = rows[same], position[same]
    low, high = np.full(len(steps), np.iinfo(np.int64).max), own[:, 1].copy()
    np.minimum.at(low, position, events.start_ns[rows])
    np.maximum.at(high, position, events.end_ns[rows])
    worked = low < np.iinfo(np.int64).max
    # launches may overtake each other: no device time begins before that of the step before
    start = np.maximum.accumulate(np.where(worked, low, own[:, 0]))
    return np.stack((start, np.where(worked, high, own[:, 1])), axis=1)


def _with_device_time(trace: Trace, steps: StepTable) -> StepTable:
    """``steps`` with the time their device work takes, where the host marked them."""
    marked = steps.graph < 0
    if not marked.any():
        return steps
    spans = _device_spans(trace, steps.take(marked), trace.events.step)
    start, dur = steps.device_start_ns.copy(), steps.device_dur_ns.copy()
    start[marked], dur[marked] = spans[:, 0], spans[:, 1] - spans[:, 0]
    return steps.with_columns(device_start_ns=start, device_dur_ns=dur)
