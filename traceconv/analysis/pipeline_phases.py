"""Forward and backward passes and bubbles of a rank, as a stage of a pipeline."""

from __future__ import annotations

import numpy as np

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.analysis.diff.items import placed
from traceconv.analysis.rank_facts import KEY, Sort
from traceconv.analysis.tables.host import Nest, launches
from traceconv.analysis.tables.module import marked_phases
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import I64
from traceconv.core.intervals import intersection, subtraction, union
from traceconv.core.model import Covered, Kind, Layer, StepSource, Trace
from traceconv.passes.overlap import device_times

PHASES = FORWARD, BACKWARD, BUBBLE, UNTOLD = range(4)
"""Computing launched within ranges that are a forward or a backward pass (as in the table "phase"),
waiting for neighbours, in which the rank only sends or receives, and computing of an unknown pass.
Messages do not tell the pass: in a V-shaped schedule each pass sends both ways, and the last
stage sends nothing between its passes."""

PHASE_NAMES = ("forward", "backward", "bubble", "pass unknown")

NO_PHASES: I64 = np.zeros((0, 3), np.int64)


def bubbles(known: CollectiveRecords, exposed: I64) -> I64:
    """When a rank does nothing but send or receive.

    Args:
        exposed: when it communicates and does not compute.
    """
    messages = known.messages
    others = union(known.start_ns[~messages], known.end_ns[~messages])
    return intersection(
        exposed, subtraction(union(known.start_ns[messages], known.end_ns[messages]), others)
    )


def phases(trace: Trace, known: CollectiveRecords) -> I64:
    """The passes and bubbles of a rank.

    Args:
        trace: after the passes of the detail view.
        known: its communication operations.

    Returns:
        (n, 3): one of :data:`PHASES`, start and end, int64 ns on the rank's own clock; disjoint, by
        start. A pass lasts from its first task to the last before the other one, a bubble or other
        work. Without bubbles where no messages were recorded; empty where neither was.
    """
    steps = measured(trace.steps)
    steps = steps.take(
        (steps.covered == Covered.TIMELINE) & (steps.source != StepSource.WHOLE_RANGE)
    )
    devices = device_times(trace) if len(steps) else ()
    if len(devices) != 1 or trace.hints.partial_device:
        return NO_PHASES
    waits = bubbles(known, devices[0].exposed)
    where, phase = placed(trace, known), _launched_in(trace)
    compute = np.array([key[KEY.index("sort")] == Sort.COMPUTE for key in where.keys], bool)
    own = np.flatnonzero((where.row >= 0) & compute[where.item]) if len(compute) else where.row
    passes = phase[where.row[own]]
    if len(waits) and (passes < 0).all():
        passes = np.full(len(own), UNTOLD)
    kinds = np.concatenate((passes, np.full(len(waits), BUBBLE)))
    spans = np.concatenate((where.spans[own], waits))
    if not len(kinds):
        return NO_PHASES
    order = np.argsort(spans[:, 0], kind="stable")
    kinds, spans = kinds[order], spans[order]
    step = np.searchsorted(np.sort(steps.device_start_ns), spans[:, 0], "right")
    follows = (kinds[1:] == kinds[:-1]) & (step[1:] == step[:-1])
    follows &= (kinds[1:] != BUBBLE) | (spans[1:, 0] == spans[:-1, 1])
    first = np.flatnonzero(np.concatenate(([True], ~follows)))
    last = np.append(first[1:], len(kinds)) - 1
    found = np.stack((kinds[first], spans[first, 0], spans[last, 1]), axis=1)
    kept: I64 = found[found[:, 0] >= 0]
    return kept


def _launched_in(trace: Trace) -> I64:
    """The pass in whose outermost range the call that launched each event row was, -1 if none."""
    found = np.full(len(trace.events), -1, np.int64)
    host = trace.rows_of(Layer.HOST) & (trace.events.kind == Kind.SLICE) & (trace.events.step < 0)
    rows, names = marked_phases(trace, np.flatnonzero(host))
    if not len(rows):
        return found
    nest, calls = Nest.of(trace, rows), launches(trace)
    at = nest.at(calls.thread, calls.time_ns)
    while (inner := (at >= 0) & (nest.parent[at] >= 0)).any():
        at = np.where(inner, nest.parent[at], at)
    kind = np.select([names.among("Forward"), names.among("Backward")], [FORWARD, BACKWARD], -1)
    of = kind[np.searchsorted(rows, nest.rows)]
    held = at >= 0
    found[calls.device[held]] = of[at[held]]
    return found
