"""Replaying a graph: when its operations end if their lengths and delays are these.

The compiled part takes 1 ms for 100,000 operations, numpy 200 ms: there, each level of the graph is
a few calls.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from traceconv import native
from traceconv.analysis.replay.graph import Graph
from traceconv.core.columns import F64

_CELLS = 1 << 21
"""Most operations times scenarios in memory at a time."""

_ROWS = 1 << 17
"""Operations whose steps are looked up at a time."""


def step_times(graph: Graph, lengths: F64, delays: F64) -> F64:
    """(scenarios, steps) ns: how long each step takes in each scenario.

    Args:
        lengths, delays: (operations, scenarios) ns; (operations, 1) of what is alike in all.
    """
    scenarios = max(lengths.shape[1], delays.shape[1])
    at_once = max(_CELLS // max(len(graph), 1), 1)
    times = [
        _steps(graph, replayed(graph, _columns(lengths, i, at_once), _columns(delays, i, at_once)))
        for i in range(0, scenarios, at_once)
    ]
    return np.concatenate(times)


def _columns(values: F64, begin: int, count: int) -> F64:
    return values if values.shape[1] == 1 else values[:, begin : begin + count]


def replayed(graph: Graph, lengths: F64, delays: F64) -> F64:
    """(scenarios, operations) ns: when each operation ends, from the origin of the step that
    :attr:`.Graph.since` names."""
    compiled = native.replay()
    if not compiled:
        return _replayed(graph, lengths, delays)
    scenarios = max(lengths.shape[1], delays.shape[1])
    plain = np.ascontiguousarray
    ends = compiled.ends(
        graph.before, graph.source, graph.meets, plain(lengths), plain(delays), scenarios
    )
    return np.frombuffer(ends).reshape(scenarios, -1)[:, :-1]


def _replayed(graph: Graph, lengths: F64, delays: F64) -> F64:
    n = len(graph)
    scenarios = max(lengths.shape[1], delays.shape[1])
    ends = np.zeros((n + 1, scenarios))
    meets, sizes = graph.meets, graph.sizes
    borders = np.searchsorted(meets, graph.levels)
    columns = (graph.levels[:-1], graph.levels[1:], borders[:-1], borders[1:])
    for low, high, first_set, end_set in zip(*(c.tolist() for c in columns), strict=True):
        arrival = ends[graph.before[low:high]].max(axis=1) + delays[low:high]
        np.maximum(arrival, ends[graph.source[low:high]], out=arrival)
        met = np.maximum.reduceat(arrival, meets[first_set:end_set] - low, axis=0)
        ends[low:high] = np.repeat(met, sizes[first_set:end_set], axis=0) + lengths[low:high]
    return ends[:n].T


def _steps(graph: Graph, ends: F64) -> F64:
    times = np.zeros((len(ends), len(graph.steps)))
    for low in range(0, len(graph), _ROWS):
        step = graph.step[low : low + _ROWS]
        for scenario, of_scenario in zip(times, ends[:, low : low + _ROWS], strict=True):
            np.maximum.at(scenario, step, of_scenario)
    bounds = np.append(np.unique(graph.since), len(graph.steps)).tolist()
    for first, end in pairwise(bounds):
        if end - first > 1:  # steps that follow each other
            run = np.maximum.accumulate(times[:, first:end], axis=1)
            run[:, 1:] -= run[:, :-1] + graph.pauses_ns[first + 1 : end]
            times[:, first:end] = run
    return times
