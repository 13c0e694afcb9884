"""Which step device and communication rows belong to, and where every step lies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, I64, EventTable, Layer, OpClass, Trace

STEPS_NOTED = 1000
"""So many steps stand in ``notes["steps"]``; ``notes["steps_total"]`` says how many there are."""


def attribution(trace: Trace) -> Trace:
    """Fill the ``step`` column of device and communication rows; note where the steps lie.

    Iterations of a graph are device time. Steps without a graph are marks of the host, and the
    device works behind: there a row belongs to the step in which an arrow to it begins, and rows
    without an arrow to the last step whose device work had begun.
    """
    todo = trace.rows_of(Layer.DEVICE, Layer.COMM) & (trace.events.step < 0)
    iterations = _iterations(trace)
    graphs = np.unique(iterations.graph).tolist()  # -1, the framework's own steps, comes first
    step = trace.events.step.copy()
    for graph in graphs:
        runs = iterations.take(iterations.graph == graph)
        if graph < 0:
            _by_launch(trace, runs, todo, step)
            spans = _device_spans(trace, runs, step)
        else:
            spans = np.stack((runs.start_ns, runs.end_ns), axis=1)
        rows = np.flatnonzero(todo & (step < 0) & _may_belong(trace, graph, graphs))
        found = _holding(spans, trace.events.start_ns[rows])
        step[rows[found >= 0]] = runs.step[found[found >= 0]]
    return _noted(replace(trace, events=trace.events.with_columns(step=step)))


def _may_belong(trace: Trace, graph: int, graphs: list[int]) -> NDArray[np.bool_]:
    """Rows that time alone puts into steps of ``graph``: of no other graph; with several graphs
    around, a row without one could be anybody's."""
    column = trace.events.graph
    if graph < 0:
        return np.ones(len(column), bool)
    may: NDArray[np.bool_] = (column == graph) | ((column < 0) & (len(graphs) == 1))
    return may


def _iterations(trace: Trace) -> EventTable:
    """The rows of the step trace that are iterations with a number, by start."""
    events = trace.events
    rows = np.flatnonzero((events.op == OpClass.ITERATION) & (events.step >= 0))
    return events.take(rows[np.argsort(events.start_ns[rows], kind="stable")])


def _by_launch(trace: Trace, runs: EventTable, todo: NDArray[np.bool_], step: I32) -> None:
    """Fill ``step`` where an arrow leads from the host; framework operators go before calls."""
    flows, events = trace.flows, trace.events
    spans = np.stack((runs.start_ns, runs.end_ns), axis=1)
    for layer in (Layer.RUNTIME, Layer.HOST):
        arrows = flows.take(trace.rows_of(layer)[flows.src] & todo[flows.dst])
        found = _holding(spans, events.start_ns[arrows.src])
        step[arrows.dst[found >= 0]] = runs.step[found[found >= 0]]


def _holding(spans: I64, time: I64) -> NDArray[np.intp]:
    """Which span holds each instant, the latest begun if several; -1 = none."""
    at = np.searchsorted(spans[:, 0], time, "right") - 1
    return np.where((at >= 0) & (time < spans[np.maximum(at, 0), 1]), at, -1)


def _device_spans(trace: Trace, runs: EventTable, step: I32) -> I64:
    """From the first device row of each step to its last, or to the step's own end if later.

    Steps without device rows keep their own span. Starts ascend as those of ``runs`` do.
    """
    own = np.stack((runs.start_ns, runs.end_ns), axis=1)
    events = trace.events
    rows = np.flatnonzero((step >= 0) & trace.rows_of(Layer.DEVICE, Layer.COMM))
    if not len(rows):
        return own
    order = np.argsort(runs.step, kind="stable")
    place = order[np.minimum(np.searchsorted(runs.step, step[rows], sorter=order), len(runs) - 1)]
    rows, place = rows[runs.step[place] == step[rows]], place[runs.step[place] == step[rows]]
    low, high = np.full(len(runs), np.iinfo(np.int64).max), own[:, 1].copy()
    np.minimum.at(low, place, events.start_ns[rows])
    np.maximum.at(high, place, events.end_ns[rows])
    worked = low < np.iinfo(np.int64).max
    start = np.maximum.accumulate(np.where(worked, low, own[:, 0]))
    return np.stack((start, np.where(worked, high, own[:, 1])), axis=1)


def _noted(trace: Trace) -> Trace:
    """With ``notes``: "steps_found" (numbers), "steps_total" and "steps" (the first ones).

    A step is {graph, step, start_ns, dur_ns, device_start_ns, device_dur_ns}; device times are
    those in which its device work lies.
    """
    runs = _iterations(trace)
    device = np.stack((runs.start_ns, runs.end_ns), axis=1)
    free = runs.graph < 0
    if free.any():
        device[free] = _device_spans(trace, runs.take(free), trace.events.step)
    listed: list[dict[str, Any]] = [
        {
            "graph": graph,
            "step": step,
            "start_ns": start,
            "dur_ns": dur,
            "device_start_ns": first,
            "device_dur_ns": last - first,
        }
        for graph, step, start, dur, (first, last) in zip(
            *(c[:STEPS_NOTED].tolist() for c in (runs.graph, runs.step, runs.start_ns)),
            runs.dur_ns[:STEPS_NOTED].tolist(),
            device[:STEPS_NOTED].tolist(),
            strict=True,
        )
    ]
    found = np.unique(trace.events.step[trace.events.step >= 0]).tolist()
    notes = {"steps_found": found, "steps_total": len(runs), "steps": listed}
    return replace(trace, notes={**trace.notes, **notes})
