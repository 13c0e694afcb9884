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
from traceconv.core.model import Covered, Kind, Layer, Trace
from traceconv.passes.overlap import device_times

PHASES = FORWARD, BACKWARD, BUBBLE, UNTOLD = range(4)
"""Computing launched within ranges that are a forward or a backward pass (as in the table "phase"),
waiting for neighbours, in which the rank only sends or receives, and computing of an unknown pass.
Messages do not tell the pass: in a V-shaped schedule each pass sends both ways, and the last
stage sends nothing between its passes."""

PHASE_NAMES = ("forward", "backward", "bubble", "pass unknown")

NO_PHASES: I64 = np.zeros((0, 3), np.int64)


def bubbles(records: CollectiveRecords, exposed: I64) -> I64:
    """When a rank does nothing but send or receive.

    Args:
        exposed: when it communicates and does not compute.
    """
    messages = records.messages
    collectives = union(records.start_ns[~messages], records.end_ns[~messages])
    return intersection(
        exposed,
        subtraction(union(records.start_ns[messages], records.end_ns[messages]), collectives),
    )


def phases(trace: Trace, records: CollectiveRecords) -> I64:
    """The passes and bubbles of a rank.

    Args:
        trace: after the passes of the detail view.
        records: its communication operations.

    Returns:
        (n, 3): one of :data:`PHASES`, start and end, int64 ns on the rank's own clock; disjoint, by
        start. A pass lasts from its first task to the last before the other one, a bubble or other
        work. Without bubbles where no messages were recorded; empty where neither was.
    """
    steps = measured(trace.steps)
    steps = steps.take((steps.covered == Covered.TIMELINE) & steps.marked)
    devices = device_times(trace) if len(steps) else ()
    if len(devices) != 1 or trace.hints.partial_device:
        return NO_PHASES
    waits = bubbles(records, devices[0].exposed)
    where, phase = placed(trace, records), _launched_in(trace)
    compute = np.array([key[KEY.index("sort")] == Sort.COMPUTE for key in where.keys], bool)
    computing = (
        np.flatnonzero((where.row >= 0) & compute[where.item]) if len(compute) else where.row
    )
    passes = phase[where.row[computing]]
    if len(waits) and (passes < 0).all():
        passes = np.full(len(computing), UNTOLD)
    kinds = np.concatenate((passes, np.full(len(waits), BUBBLE)))
    spans = np.concatenate((where.spans[computing], waits))
    if not len(kinds):
        return NO_PHASES
    order = np.argsort(spans[:, 0], kind="stable")
    kinds, spans = kinds[order], spans[order]
    step = np.searchsorted(np.sort(steps.device_start_ns), spans[:, 0], "right")
    follows = (kinds[1:] == kinds[:-1]) & (step[1:] == step[:-1])
    follows &= (kinds[1:] != BUBBLE) | (spans[1:, 0] == spans[:-1, 1])
    begins = np.flatnonzero(np.concatenate(([True], ~follows)))
    ends = np.append(begins[1:], len(kinds)) - 1
    merged_phases = np.stack((kinds[begins], spans[begins, 0], spans[ends, 1]), axis=1)
    known_phases: I64 = merged_phases[merged_phases[:, 0] >= 0]
    return known_phases


def _launched_in(trace: Trace) -> I64:
    """The pass in whose outermost range the call that launched each event row was, -1 if none."""
    pass_of = np.full(len(trace.events), -1, np.int64)
    host = trace.rows_of(Layer.HOST) & (trace.events.kind == Kind.SLICE) & (trace.events.step < 0)
    rows, names = marked_phases(trace, np.flatnonzero(host))
    if not len(rows):
        return pass_of
    nest, calls = Nest.of(trace, rows), launches(trace)
    range_index = nest.at(calls.thread, calls.time_ns)
    while (inner := (range_index >= 0) & (nest.parent[range_index] >= 0)).any():
        range_index = np.where(inner, nest.parent[range_index], range_index)
    kind = np.select([names.among("Forward"), names.among("Backward")], [FORWARD, BACKWARD], -1)
    kind_of_range = kind[np.searchsorted(rows, nest.rows)]
    held = range_index >= 0
    pass_of[calls.device[held]] = kind_of_range[range_index[held]]
    return pass_of
