"""Which step device and communication rows belong to, the table of steps, and its coverage."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.intervals import holding
from traceconv.core.model import (
    I32,
    I64,
    UNKNOWN,
    Coverage,
    Covered,
    EventTable,
    Layer,
    Mask,
    OpClass,
    StepSource,
    StepTable,
    Trace,
)
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex


def attribution(trace: Trace) -> Trace:
    """Fill the ``step`` column of device and communication rows, ``Trace.steps`` and the steps of
    ``Trace.present``, and find what the capture covers (``Trace.coverage``).

    Iterations of a graph are device time. Steps without a graph are host ranges, and the device
    runs behind the host: a row belongs to the step in which its flow begins, and a row without a
    flow to the last step whose device work had begun. Without steps, the whole range has all rows.

    If no pass has made a table of steps, the iterations that the source recorded are used.
    """
    steps = trace.steps if len(trace.steps) else step_table(trace, step_source(trace))
    device = trace.rows_of(Layer.DEVICE, Layer.COMM)
    todo = device & (trace.events.step < 0)
    step_of = _as_recorded(trace, steps, device & ~todo)
    graphs = np.unique(steps.graph).tolist()  # -1, the framework's own steps, comes first
    for graph in graphs:
        of_graph = np.flatnonzero(steps.graph == graph)
        graph_steps = steps.take(of_graph)
        if not graph_steps.marked.all():
            step_of[todo] = of_graph[0]
        elif graph < 0:
            _by_launch(trace, graph_steps, of_graph, todo, step_of)
            if trace.hints.partial_device or trace.hints.steps_told:
                continue  # the other rows belong to no step, or to an unknown one
            spans = _work_spans(trace, steps, step_of)[of_graph]
        else:
            spans = np.stack((graph_steps.start_ns, graph_steps.end_ns), axis=1)
        rows_left = todo & (step_of < 0)
        if graph >= 0:  # time assigns no row of another graph, or of none if there are several
            graph_of_row = trace.events.graph
            rows_left &= (graph_of_row == graph) | ((graph_of_row < 0) & (len(graphs) == 1))
        rows = np.flatnonzero(rows_left)
        if len(rows):
            nearest = holding(spans, trace.events.start_ns[rows])
            step_of[rows[nearest >= 0]] = of_graph[nearest[nearest >= 0]]
    step = trace.events.step.copy()
    new = todo & (step_of >= 0)
    step[new] = steps.step[step_of[new]]
    trace = replace(trace, events=trace.events.with_columns(step=step))
    present = msgspec.structs.replace(
        trace.present, steps=np.unique(step[step >= 0]), iterations=len(steps)
    )
    steps = _with_coverage(trace, _with_device_time(trace, steps, step_of), step_of)
    layers = dict.fromkeys(track.layer for track in trace.tracks if not track.is_counter)
    covered = {layer: _spans(trace, trace.rows_of(layer)) for layer in layers}
    coverage = Coverage(
        steps=len(steps),
        recorded=int(np.count_nonzero(steps.covered == Covered.TIMELINE)),
        layers={layer: span for layer, span in covered.items() if span},
    )
    return replace(trace, steps=steps, present=present, coverage=coverage)


def step_source(trace: Trace) -> StepSource:
    """How the boundaries of the steps in ``trace`` were determined."""
    return _MADE.get(trace.hints.made_steps, StepSource.RECORDED)


_MADE = {
    "host": StepSource.HOST_MARKS,
    "passes": StepSource.HOST_MARKS,
    "whole": StepSource.WHOLE_RANGE,
}


def step_table(trace: Trace, source: StepSource) -> StepTable:
    """The iterations of the step trace that have a number, by start.

    Device time is that of the step itself, and the figures of the overlap are unknown.

    Args:
        source: how their boundaries were determined.
    """
    events = trace.events
    rows = np.flatnonzero((events.op == OpClass.ITERATION) & (events.step >= 0))
    iterations = events.take(rows[np.argsort(events.start_ns[rows], kind="stable")])
    return StepTable(
        graph=iterations.graph,
        step=iterations.step,
        window=_windows(trace, iterations),
        source=np.full(len(iterations), source, np.int8),
        covered=np.zeros(len(iterations), np.int8),
        start_ns=iterations.start_ns,
        dur_ns=iterations.dur_ns,
        device_start_ns=iterations.start_ns,
        device_dur_ns=iterations.dur_ns,
        work_start_ns=iterations.start_ns,
        **{name: np.full(len(iterations), UNKNOWN, np.int64) for name in StepTable.LENGTHS},
    )


def _windows(trace: Trace, steps: EventTable) -> I32:
    """The recording window of each step, from 1.

    That in which it begins, where the source says when it was collecting; but where numbers of a
    graph start over within what is known, so does the window.
    """
    window = np.maximum(np.searchsorted(trace.windows[:, 0], steps.start_ns, "right"), 1)
    for graph in np.unique(steps.graph).tolist():
        of_graph = np.flatnonzero(steps.graph == graph)
        key = window[of_graph] * (np.int64(1) << 32) + steps.step[of_graph]
        # (window, number) must ascend: where it does not, numbers started over
        again = np.diff(key, prepend=key[:1] - 1) <= 0
        window[of_graph] += np.cumsum(again)
    return window.astype(np.int32)


def _as_recorded(trace: Trace, steps: StepTable, rows: Mask) -> I32:
    """The position in ``steps`` of every event row to which the source gave a step, else -1.

    Args:
        rows: the device and communication rows that have a number.
    """
    events = trace.events
    step_of = np.full(len(events), -1, np.int32)
    graphs = np.unique(steps.graph)[::-1].tolist()  # the framework's own steps take what is left
    for graph in graphs:
        of_graph = np.flatnonzero(steps.graph == graph)
        loose = graph < 0 or len(graphs) == 1
        candidates = np.flatnonzero(rows & (step_of < 0) & ((events.graph == graph) | loose))
        matched = occurrence(
            steps.take(of_graph), events.step[candidates], events.start_ns[candidates]
        )
        step_of[candidates[matched >= 0]] = of_graph[matched[matched >= 0]]
    return step_of


def occurrence(steps: StepTable, number: I32, time: I64) -> NDArray[np.intp]:
    """The position of the step with each number, -1 without such a step.

    If several steps share a number, the last that had begun at ``time``, otherwise the first.

    Args:
        steps: of one graph, by start.
    """
    if not len(steps):
        return np.full(len(number), -1, np.intp)
    # (number, position) as one sorted integer: the last step of a number among those that had begun
    # is the largest key below (number, how many had begun)
    room = len(steps) + 1
    numbers, number_of = np.unique(steps.step, return_inverse=True)
    keys = np.sort(number_of * room + np.arange(len(steps)))  # by number, then by start
    rank = np.minimum(np.searchsorted(numbers, number), len(numbers) - 1)
    begun = np.searchsorted(steps.start_ns, time, "right")
    last_begun = np.searchsorted(keys, rank * room + begun) - 1
    chosen = np.maximum(last_begun, np.searchsorted(keys, rank * room))
    return np.where(numbers[rank] == number, keys[chosen] - rank * room, -1)


def _by_launch(
    trace: Trace, host_steps: StepTable, positions: NDArray[np.intp], todo: Mask, step_of: I32
) -> None:
    """Fill ``step_of`` for rows with a flow from the host; operators take precedence over calls.

    Args:
        host_steps:  host steps; ``positions`` are their positions in the table of all steps.
        todo: the rows that need a step.
    """
    flows, events = trace.flows, trace.events
    spans = np.stack((host_steps.start_ns, host_steps.end_ns), axis=1)
    for layer in (Layer.RUNTIME, Layer.HOST):  # the later assignment wins
        arrows = flows.take(trace.rows_of(layer)[flows.src] & todo[flows.dst])
        launched_in = holding(spans, events.start_ns[arrows.src])
        step_of[arrows.dst[launched_in >= 0]] = positions[launched_in[launched_in >= 0]]


_NEVER = np.iinfo(np.int64).max


def _reach(trace: Trace, steps: StepTable, step_of: I32) -> tuple[I64, I64]:
    """First start and last end of the device rows of each step; :data:`_NEVER` and its negative
    without rows. A wait of a marked step may end with work of a later one, so it does not count."""
    rows = np.flatnonzero(step_of >= 0)
    low, high = np.full(len(steps), _NEVER), np.full(len(steps), -_NEVER)
    np.minimum.at(low, step_of[rows], trace.events.start_ns[rows])
    rows = rows[(trace.events.op[rows] != OpClass.WAIT) | ~steps.marked[step_of[rows]]]
    np.maximum.at(high, step_of[rows], trace.events.ends(rows))
    return low, high


def _work_spans(trace: Trace, steps: StepTable, step_of: I32) -> I64:
    """(n, 2): from the first device row of each step to its last, or to the step's own end.

    Steps without device rows keep their own span. Starts ascend as those of ``steps`` do.
    """
    low, high = _reach(trace, steps, step_of)
    # launches may overtake each other: no device time begins before that of the step before
    start = np.maximum.accumulate(np.where(low < _NEVER, low, steps.start_ns))
    return np.stack((start, np.maximum(high, steps.end_ns)), axis=1)


def _with_device_time(trace: Trace, steps: StepTable, step_of: I32) -> StepTable:
    """``steps`` with their device windows, see :class:`StepTable`; those of graphs stay."""
    marked = np.flatnonzero(steps.graph < 0)
    if not len(marked):
        return steps
    low, high = (column[marked] for column in _reach(trace, steps, step_of))
    host_steps = steps.take(marked)
    start, work = host_steps.start_ns, _work_spans(trace, steps, step_of)[marked, 0]
    # a whole range is its work: it ends with that, not with the host
    is_whole = ~host_steps.marked & (low < _NEVER)
    start = np.where(is_whole, low, start)
    high = np.where(is_whole, high, np.maximum(high, host_steps.end_ns))
    # windows tile time: none begins before the one before it has ended
    end = np.maximum.accumulate(high)
    start = np.maximum(start, np.concatenate((start[:1], end[:-1])))
    if trace.hints.made_steps == "passes":
        # before its first work a device may still be at that of a pass that was not recorded
        first_steps = np.flatnonzero(np.diff(host_steps.window, prepend=0))
        first_steps = first_steps[low[first_steps] < _NEVER]
        start[first_steps] = np.maximum(start[first_steps], low[first_steps])
    columns = {"device_start_ns": start, "device_dur_ns": end - start, "work_start_ns": work}
    changed = {name: getattr(steps, name).copy() for name in columns}
    for name, column in columns.items():
        changed[name][marked] = column
    return steps.with_columns(**changed)


# -- coverage -----------------------------------------------------------------------------

_LAUNCH = lazy_regex(r"launch|memcpy|memset", re.IGNORECASE)
_LAUNCHING = NameTest(lambda name: _LAUNCH.search(name))
"""Calls of a runtime that give the device work to do."""


def _with_coverage(trace: Trace, steps: StepTable, step_of: I32) -> StepTable:
    """``steps``, marked where device work was recorded.

    A step without device rows is not covered if it is an iteration of a graph, lies outside of
    the time in which the device was recorded, or if calls of it launched work. Otherwise the
    device had nothing to do in it. Nor are steps covered whose computing was not recorded,
    whatever else was, or was in part.
    """
    has_work = np.bincount(step_of[step_of >= 0], minlength=len(steps)) > 0
    rows = np.flatnonzero(trace.rows_of(Layer.DEVICE, Layer.COMM))
    quiet = np.zeros(len(steps), bool)
    if len(rows) and not has_work.all():
        spans, events = steps.device_spans, trace.events
        first_ns, last_ns = events.start_ns[rows].min(), events.ends(rows).max()
        quiet = (steps.graph < 0) & (spans[:, 1] > first_ns) & (spans[:, 0] < last_ns)
        calls = np.flatnonzero(trace.rows_of(Layer.RUNTIME) & rows_named(trace, _LAUNCHING))
        launching = holding(
            np.stack((steps.start_ns, steps.end_ns), axis=1), events.start_ns[calls]
        )
        quiet &= np.bincount(launching[launching >= 0], minlength=len(steps)) == 0
    kernels = trace.rows_of(Layer.DEVICE)
    kernels &= np.isin(trace.events.op, (OpClass.COMPUTE, OpClass.UNCLASSIFIED))
    covered = (has_work | quiet) & _computing_recorded(trace, steps, kernels)
    for graph in np.unique(steps.graph).tolist():
        of_graph = np.flatnonzero(steps.graph == graph)
        count = np.bincount(step_of[kernels & (step_of >= 0)], minlength=len(steps))[of_graph]
        covered[of_graph] &= ~_cut(covered[of_graph], count)
    return steps.with_columns(covered=np.where(covered, Covered.TIMELINE, Covered.NOT))


def _computing_recorded(trace: Trace, steps: StepTable, kernels: Mask) -> Mask:
    """The steps in which computing would have been seen.

    On GPUs one record of kernels shows that they were recorded; copies do not, as rocprofv3 traces
    each on demand. NPUs write collectives, tasks of the AI CPU and
    steps to other logs than operators, and these may end earlier: there it is from the first
    operator to the last, in every collection window. Where some operators are missing, or not known
    to be of any step, nowhere.
    """
    recorded, spans = np.zeros(len(steps), bool), steps.device_spans
    if trace.hints.partial_device:
        return recorded
    if trace.hints.vendor != "ascend":
        return np.full(len(steps), bool(kernels.any()))
    for begin, end in _spans(trace, kernels):
        recorded |= (spans[:, 1] > begin) & (spans[:, 0] < end)
    return recorded & ~np.isin(steps.step, trace.hints.partial_steps)


def _cut(covered: Mask, kernels: I64) -> Mask:
    """The steps of a graph in which the recording began or ended: next to one that is not covered,
    with fewer kernels than every other that has any; if that is one only, than half of its.

    Args:
        covered: of each step, by start.
        kernels: how many each has.
    """
    outside = np.concatenate(([True], covered, [True]))
    worked = covered & (kernels > 0)
    is_cut = worked & ~(outside[:-2] & outside[2:])
    for i in np.flatnonzero(is_cut).tolist():
        other_counts = np.delete(kernels, i)[np.delete(worked, i)]
        few = kernels[i] * (2 if len(other_counts) == 1 else 1)
        is_cut[i] = len(other_counts) > 0 and few < other_counts.min()
    return is_cut


def _spans(trace: Trace, mask: Mask) -> tuple[tuple[int, int], ...]:
    """The span of some rows in every collection window that has any."""
    start, end = trace.events.start_ns[mask], trace.events.ends(mask)
    if len(start) and not len(trace.windows):
        return ((int(start.min()), int(end.max())),)
    window = np.searchsorted(trace.windows[:, 0], start, "right")
    return tuple(
        (int(start[window == n].min()), int(end[window == n].max()))
        for n in np.unique(window).tolist()
    )
