"""Boundaries of forward and backward, from the operators they begin and end with.

MindSpore divides a step at two operators: forward begins with the operator after the data fetch,
backward ends with the operator before the last collective. Users may name others in
``PROFILING_FP_START`` and ``PROFILING_BP_END``. The profiler records the boundaries while it runs;
a capture without them still has the operators.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traceconv.core.errors import Issues, TraceconvError
from traceconv.core.model import EventTable, Kind, Layer, OpClass, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.passes.steps import phase_rows

RECORDED = "step_trace_point_info"
"""The table in which MindSpore writes the names it used."""


def forward_backward(trace: Trace) -> Trace:
    """Add forward/backward and tail to iterations without them.

    In an iteration, the first lasts from the start of the operator forward begins with to the end
    of the operator backward ends with, and the tail from there to its end. Names are those of
    ``Capture.border_operators``, else those the profiler recorded; they are full names of
    operators or what these end in (``conv2d/BatchNorm``). Iterations that lack one of the two
    operators stay as they are, and so does a step that is the whole range.

    Issues: borders-derived, borders-missing.
    """
    if not (any(trace.capture.border_operators) or RECORDED in trace.side_tables):
        return trace
    if not trace.steps.marked.all():
        return trace
    events = trace.events
    step_rows = trace.rows_of(Layer.STEP) & (events.kind == Kind.SLICE)
    steps = events.take(step_rows & (events.op == OpClass.ITERATION) & (events.step >= 0))
    steps = steps.take(np.argsort(steps.start_ns, kind="stable"))
    marked = events.take(step_rows & (events.op == OpClass.FP_BP))
    steps = steps.take(_in_each(steps, marked, first=True) < 0)
    issues = trace.issues.copy()
    forward, backward = _names(trace, issues) if len(steps) else ("", "")
    trace = replace(trace, issues=issues)
    if not (forward and backward):
        return trace
    start = _in_each(steps, _operators(trace, forward), first=True)
    end = _in_each(steps, _operators(trace, backward), first=False)
    bounded = np.flatnonzero((start >= 0) & (end > start))
    where = f"forward from {forward}, backward to {backward}"
    trace = trace.with_issue("borders-missing", where, len(steps) - len(bounded))
    if not len(bounded):
        return trace
    rows = phase_rows(trace, steps.take(bounded), start[bounded], end[bounded])
    tracks = [trace.tracks[i] for i in np.unique(rows.track).tolist()]
    rows = rows.with_columns(track=np.unique(rows.track, return_inverse=True)[1].astype(np.int32))
    return trace.with_issue("borders-derived", where, len(bounded)).add_events(
        "borders", tracks, rows
    )


def _names(trace: Trace, issues: Issues) -> tuple[str, str]:
    """The operators forward begins and backward ends with, "" if unknown."""
    names, table = trace.capture.border_operators, trace.side_tables.get(RECORDED)
    if all(names) or table is None:
        return names
    try:
        columns = table.read()
    except TraceconvError as e:
        issues.add("malformed-record", table.file, str(e)[:200])
        return names
    recorded = (str(next(iter(columns.get(c, ())), "")) for c in ("fp_start", "bp_end"))
    forward, backward = (name or fallback for name, fallback in zip(names, recorded, strict=True))
    return forward, backward


def _operators(trace: Trace, name: str) -> EventTable:
    """Device rows of the operators with this name, in the event name or the arguments."""
    events = trace.events
    work = trace.rows_of(Layer.DEVICE) & (events.kind == Kind.SLICE)
    matching = work & rows_named(trace, NameTest(lambda text: _has_name(text, name)))
    if not matching.any():
        from traceconv.passes.scopes import FULL_NAME

        for row in np.flatnonzero(work & (events.args >= 0)).tolist():
            full = FULL_NAME.search(trace.args.raw(int(events.args[row])))
            matching[row] = full is not None and _has_name(full[1].decode("utf-8", "replace"), name)
    return events.take(matching)


def _has_name(text: str, name: str) -> bool:
    return text == name or text.endswith(f"/{name}")


def _in_each(steps: EventTable, rows: EventTable, *, first: bool) -> NDArray[np.int64]:
    """The earliest start, or the latest end, of the rows within each of some steps; -1 for none.

    A row is within a step if both of its ends are, and it belongs to no other graph.
    """
    bounds = np.full(len(steps), -1, np.int64)
    rows = rows.take(np.argsort(rows.start_ns, kind="stable"))
    for i, (start, end, graph) in enumerate(
        zip(steps.start_ns.tolist(), steps.end_ns.tolist(), steps.graph.tolist(), strict=True)
    ):
        low, high = np.searchsorted(rows.start_ns, (start, end + 1))
        near = rows.take(slice(low, high))
        near = near.take((near.end_ns <= end) & ((near.graph == graph) | (near.graph < 0)))
        if len(near):
            bounds[i] = near.start_ns[0] if first else near.end_ns.max()
    return bounds
