"""Replaying a graph: when its operations end if their lengths and delays are these."""

from __future__ import annotations

import numpy as np

from traceconv.analysis.replay.graph import Graph
from traceconv.core.columns import F64

_CELLS = 1 << 23
"""Most operations times scenarios in memory at a time."""


def step_times(graph: Graph, lengths: F64, delays: F64) -> F64:
    """(scenarios, steps) ns: how long each step takes in each scenario.

    Args:
        lengths, delays: (operations, scenarios) ns; (operations, 1) of what is alike in all.
    """
    scenarios = max(lengths.shape[1], delays.shape[1])
    most = max(_CELLS // max(len(graph), 1), 1)
    found = [
        _steps(graph, replayed(graph, _some(lengths, i, most), _some(delays, i, most)))
        for i in range(0, scenarios, most)
    ]
    return np.concatenate(found)


def _some(values: F64, first: int, most: int) -> F64:
    return values if values.shape[1] == 1 else values[:, first : first + most]


def replayed(graph: Graph, lengths: F64, delays: F64) -> F64:
    """(operations, scenarios) ns: when each operation ends, from the origin of its step where steps
    begin together, else from that of the first."""
    n = len(graph)
    scenarios = max(lengths.shape[1], delays.shape[1])
    ends = np.zeros((n + 1, scenarios))
    meets, sizes = graph.meets, graph.sizes
    borders = np.searchsorted(meets, graph.levels)
    alone = np.add.reduceat(sizes > 1, borders[:-1]) == 0 if n else np.zeros(0, bool)
    columns = (graph.levels[:-1], graph.levels[1:], borders[:-1], borders[1:], alone)
    for low, high, first, last, single in zip(*(c.tolist() for c in columns), strict=True):
        waited = graph.before[low:high]
        arrival = ends[waited[:, 0]]
        for column in range(1, waited.shape[1]):
            np.maximum(arrival, ends[waited[:, column]], out=arrival)
        arrival += delays[low:high]
        np.maximum(arrival, ends[graph.source[low:high]], out=arrival)
        if not single:
            met = np.maximum.reduceat(arrival, meets[first:last] - low, axis=0)
            arrival = np.repeat(met, sizes[first:last], axis=0)
        ends[low:high] = arrival + lengths[low:high]
    return ends[:n]


def _steps(graph: Graph, ends: F64) -> F64:
    found = np.zeros((len(graph.steps), ends.shape[1]))
    order = np.argsort(graph.step, kind="stable")
    first = np.flatnonzero(np.diff(graph.step[order], prepend=-1) != 0)
    found[graph.step[order][first]] = np.maximum.reduceat(ends[order], first, axis=0)
    if not graph.together:
        found = np.maximum.accumulate(found, axis=0)
        found[1:] -= found[:-1] + graph.pauses_ns[1:, None]
    return found.T
