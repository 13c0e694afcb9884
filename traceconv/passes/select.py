"""Leave out what was not selected: graphs, steps, layers, names, a window of time.

Rows are kept whole: nothing is clipped. Lane names and the flows between kept rows are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace

import msgspec
import numpy as np

from traceconv.core.errors import SelectionError
from traceconv.core.intervals import merged, union
from traceconv.core.model import I64, Layer, Mask, OpClass, Trace
from traceconv.core.patterns import compiled

_HOST_SIDE = (Layer.HOST, Layer.RUNTIME, Layer.SCOPE, Layer.OTHER)
_DEVICE_SIDE = (Layer.DEVICE, Layer.COMM, Layer.OVERLAP)


def by_graph(trace: Trace, selected: Collection[int] | None = None) -> Trace:
    """Only what belongs to some graphs; ``Trace.present`` lists all that the rank has.

    A selection of every graph of the rank leaves the rank as it is. Otherwise a row is kept if it
    has one of the graphs. Host rows have none: those with a flow to or from a kept row are kept,
    as are the framework's step markers. The profiler's own overlap lanes mix all graphs and are
    left out. Counters are kept.

    Args:
        selected: graph ids; None = all. Whether they exist at all is checked by the caller, who
            knows every rank.
    """
    column = trace.events.graph
    graphs = np.unique(column[column >= 0])
    trace = replace(trace, present=msgspec.structs.replace(trace.present, graphs=graphs))
    if selected is None or (len(graphs) and set(graphs.tolist()) <= set(selected)):
        return trace
    events, flows = trace.events, trace.flows
    member = np.isin(events.graph, list(selected))
    host = trace.rows_of(*_HOST_SIDE)
    keep = member | (host & (events.step >= 0) & (events.op == OpClass.HOST))
    for end, far_end in ((flows.src, flows.dst), (flows.dst, flows.src)):
        keep[end[member[far_end] & host[end]]] = True
    return _keep(trace, "select-graphs", keep)


def by_step(trace: Trace, selected: Collection[int]) -> Trace:
    """Only what belongs to some steps: rows that have their number, and rows that have none and
    touch their time (on the device: the time their device work takes).

    Args:
        selected: step numbers, as in the ``step`` column.
    """
    events = trace.events
    member = np.isin(events.step, list(selected))
    iterations = member & trace.rows_of(Layer.STEP) & (events.op == OpClass.ITERATION)
    steps = union(events.start_ns[iterations], events.ends(iterations))
    work = _hulls(trace, member & trace.rows_of(Layer.DEVICE, Layer.COMM))
    device = trace.rows_of(*_DEVICE_SIDE)
    loose = events.step < 0
    keep = member
    keep |= loose & ~device & _touching(events.start_ns, events.end_ns, steps)
    keep |= loose & device & _touching(events.start_ns, events.end_ns, work if len(work) else steps)
    either = merged(steps, work)
    samples = trace.counters.start_ns
    trace = replace(trace, steps=trace.steps.take(np.isin(trace.steps.step, list(selected))))
    return _keep(trace, "select-steps", keep, _touching(samples, samples, either))


def by_layer(layers: Collection[str]) -> Callable[[Trace], Trace]:
    """A pass that keeps only some layers, with their counters.

    Raises:
        SelectionError: no such layer.
    """
    layer_names = [str(layer) for layer in Layer]
    unknown = sorted(set(layers) - set(layer_names))
    if unknown:
        raise SelectionError(f"no layer {', '.join(unknown)}; choose from {', '.join(layer_names)}")
    selected = {Layer(layer) for layer in layers}

    def pick(trace: Trace) -> Trace:
        """Only the rows on tracks of the selected layers."""
        shown = np.array([track.layer in selected for track in trace.tracks], bool)
        return _keep(trace, "select-layers", shown[trace.events.track], shown[trace.counters.track])

    return pick


def by_name(exclude: str) -> Callable[[Trace], Trace]:
    """A pass that leaves out the events in whose name a regular expression finds a match.

    Raises:
        SelectionError: it is not a regular expression.
    """
    try:
        pattern = compiled(exclude)
    except re.error as e:
        raise SelectionError(f"not a regular expression: {exclude!r}: {e}") from e

    def pick(trace: Trace) -> Trace:
        """Only the rows whose name has no match."""
        names = trace.events.name
        shown = np.ones(len(trace.strings), bool)
        for name in np.flatnonzero(np.bincount(names, minlength=len(shown))).tolist():
            shown[name] = pattern.search(trace.strings[name]) is None
        return _keep(trace, "select-names", shown[names])

    return pick


def time_window(trace: Trace, start_ns: int | None, end_ns: int | None) -> Trace:
    """Only the slices that touch ``[start_ns, end_ns)``, and the instants and samples in it.

    Units: ns on the clock of ``trace``; None = open.
    """
    events, samples = trace.events, trace.counters.start_ns
    keep, keep_samples = np.ones(len(events), bool), np.ones(len(samples), bool)
    if start_ns is not None:
        keep &= (events.end_ns > start_ns) | (events.start_ns >= start_ns)
        keep_samples &= samples >= start_ns
    if end_ns is not None:
        keep &= events.start_ns < end_ns
        keep_samples &= samples < end_ns
    return _keep(trace, "select-time", keep, keep_samples)


def _keep(trace: Trace, stage: str, events: Mask, counters: Mask | None = None) -> Trace:
    if events.all() and (counters is None or counters.all()):
        return trace
    return trace.keep(stage, events, counters)


def _hulls(trace: Trace, rows: Mask) -> I64:
    """The set covered by the spans from first start to last end of each step's ``rows``."""
    events = trace.events.take(rows)
    numbers, step_of = np.unique(events.step, return_inverse=True)
    low = np.full(len(numbers), np.iinfo(np.int64).max)
    high = np.full(len(numbers), np.iinfo(np.int64).min)
    np.minimum.at(low, step_of, events.start_ns)
    np.maximum.at(high, step_of, events.end_ns)
    return union(low, high)


def _touching(start: I64, end: I64, spans: I64) -> Mask:
    """Which ``[start, end)`` share time with a set; an empty one counts as its instant."""
    if not len(spans):
        return np.zeros(len(start), bool)
    candidate = np.searchsorted(spans[:, 1], start, "right")  # first span that ends after start
    exists = candidate < len(spans)
    begin = spans[np.minimum(candidate, len(spans) - 1), 0]
    touching: Mask = exists & (begin < np.maximum(end, start + 1))
    return touching


def without_zero_counters(trace: Trace) -> Trace:
    """``trace`` without counters that are zero throughout; booked under "view", and an issue says
    which."""
    counters = trace.counters
    if not len(counters):
        return trace
    idle = np.ones(len(trace.tracks), bool)
    idle[counters.track[counters.value != 0]] = False  # NaN is not zero
    left_out = idle[counters.track]
    if not left_out.any():
        return trace
    issues = trace.issues.copy()
    samples = np.bincount(counters.track[left_out], minlength=len(trace.tracks))
    for i in np.flatnonzero(samples).tolist():
        track = trace.tracks[i]
        where = " > ".join(name for name in (track.heading, track.group, track.name) if name)
        issues.add("counter-zero", "", where, int(samples[i]), trace.rank)
    reduced = trace.keep("view", np.ones(len(trace.events), bool), ~left_out)
    return replace(reduced, issues=issues)
