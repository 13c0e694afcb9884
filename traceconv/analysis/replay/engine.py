"""Replaying a graph: when its operations end if their lengths and delays are these.

The compiled part takes 1 ms for 100,000 operations, numpy 200 ms: there, each level of the graph is
a few calls.
"""

from __future__ import annotations

import numpy as np

from traceconv import native
from traceconv.analysis.replay.graph import Graph
from traceconv.core.columns import F64

_CELLS = 1 << 21
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
    """(scenarios, operations) ns: when each operation ends, from the origin of its step where steps
    begin together, else from that of the first."""
    part = native.replay()
    if part is None:
        return _replayed(graph, lengths, delays)
    scenarios = max(lengths.shape[1], delays.shape[1])
    plain = np.ascontiguousarray
    ends = part.ends(
        graph.before, graph.source, graph.meets, plain(lengths), plain(delays), scenarios
    )
    return np.frombuffer(ends).reshape(scenarios, len(graph))


def _replayed(graph: Graph, lengths: F64, delays: F64) -> F64:
    n = len(graph)
    scenarios = max(lengths.shape[1], delays.shape[1])
    ends = np.zeros((n + 1, scenarios))
    meets, sizes = graph.meets, graph.sizes
    borders = np.searchsorted(meets, graph.levels)
    columns = (graph.levels[:-1], graph.levels[1:], borders[:-1], borders[1:])
    for low, high, first, last in zip(*(c.tolist() for c in columns), strict=True):
        arrival = ends[graph.before[low:high]].max(axis=1) + delays[low:high]
        np.maximum(arrival, ends[graph.source[low:high]], out=arrival)
        met = np.maximum.reduceat(arrival, meets[first:last] - low, axis=0)
        ends[low:high] = np.repeat(met, sizes[first:last], axis=0) + lengths[low:high]
    return ends[:n].T


def _steps(graph: Graph, ends: F64) -> F64:
    found = np.zeros((len(ends), len(graph.steps)))
    for scenario, of_scenario in zip(found, ends, strict=True):
        np.maximum.at(scenario, graph.step, of_scenario)
    if not graph.together:
        found = np.maximum.accumulate(found, axis=1)
        found[:, 1:] -= found[:, :-1] + graph.pauses_ns[1:]
    return found
