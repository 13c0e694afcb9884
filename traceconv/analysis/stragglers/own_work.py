"""What a rank did by itself, and what it waited for others: the part that is known of one rank.

Between the starts of two operations of a group a rank computes, waits for input, is paused by its
collector, does nothing that was recorded, or is in communication while it computes nothing. All but
the last is its own work: it can be compared between ranks on the clock of each. The last is what
others make of it: a rank that waits for a slow one must not seem slow itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.core.columns import I32, I64
from traceconv.core.intervals import length_within, merged, subtraction, union
from traceconv.core.model import (
    Covered,
    Kind,
    Layer,
    Mask,
    OpClass,
    StepSource,
    StepTable,
    Trace,
)
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex
from traceconv.passes.attribution import occurrence
from traceconv.passes.input_wait import fetches, input_spans

PARTS = ("compute", "host gap", "input wait", "collector pause", "communication")
"""What the time between two operations is split into; all but the last is a rank's own work."""

OWN = len(PARTS) - 1

_COLLECTOR = lazy_regex(r"\bgc\b|garbage.?collect", re.IGNORECASE)
_PAUSES = 0.01  # of the time of steps: less between them does not matter
_LONGEST = 200  # characters of a name that are looked at
_OF_COLLECTION = NameTest(lambda name: len(name) <= _LONGEST and _COLLECTOR.search(name))


class OwnWork(msgspec.Struct, frozen=True, eq=False):
    """What a rank did around each of its collectives, row by row.

    Attributes:
        before_ns: (operations, parts): see :data:`PARTS`, of the time from the start of the last
            operation in the same group and recording window to the start of this one; -1 where
            there is none before.
        hidden_ns: how much of an operation the rank computed during it: it waited the less.
        idle_ns: how long before the end of an operation the rank had computed last, at most since
            its start: what it waited there at the end; 0 where it went on.
        window:  recording window of the step that an operation belongs to.
        told:    whether that is known: where operations of several groups were recorded and no
            computing, nobody knows during which of them the rank waited.
        marked:  whether the source marks steps; otherwise all operations have one number.
        steps:   (steps, 2): recording window and number of those that are marked and recorded.
        in_step_ns: (steps, parts): the time from the end of the step before to that of each.
        opened:  (n,): rows of operations that are the first of their group in a recording window,
            where the step in which they are begins the window and is marked.
        opening_ns: (n, parts): the time from the start of that step to theirs.
    """

    before_ns: I64 = np.zeros((0, len(PARTS)), np.int64)
    hidden_ns: I64 = np.zeros(0, np.int64)
    idle_ns: I64 = np.zeros(0, np.int64)
    window: I32 = np.zeros(0, np.int32)
    told: bool = True
    marked: bool = True
    steps: I64 = np.zeros((0, 2), np.int64)
    in_step_ns: I64 = np.zeros((0, len(PARTS)), np.int64)
    opened: I64 = np.zeros(0, np.int64)
    opening_ns: I64 = np.zeros((0, len(PARTS)), np.int64)


def own_work(trace: Trace, known: CollectiveRecords) -> OwnWork:
    """What the rank of ``trace`` did between its collectives.

    Args:
        trace: with operations classified and steps attributed.
        known: its collectives; see :mod:`traceconv.alignment.collective_records`.
    """
    steps = trace.steps
    marked = not (steps.source == StepSource.WHOLE_RANGE).any()
    if not len(known):
        return OwnWork(marked=marked)
    events = trace.events
    device = trace.rows_of(Layer.DEVICE) & (events.kind == Kind.SLICE)
    compute = _spans(trace, device & (events.op == OpClass.COMPUTE) & ~fetches(trace))
    comm = subtraction(union(known.start_ns, known.end_ns), compute)
    busy = merged(compute, comm)
    pauses = merged(_spans(trace, events.op == OpClass.INTERVAL), input_spans(trace))
    waiting = subtraction(pauses, busy)
    collecting = subtraction(_spans(trace, _collector_rows(trace)), merged(busy, waiting))
    sets = compute, waiting, collecting, comm
    window = _windows(trace, known)
    spans, follows = _since_last(known, window)
    inside = np.stack((known.start_ns, known.end_ns), axis=1)
    numbers, periods, first = _periods(steps.take((steps.covered == Covered.TIMELINE) & marked))
    opened, openings = _openings(known, window, ~follows, numbers[first], periods[first, 0])
    return OwnWork(
        np.where(follows[:, None], _parts(sets, spans), -1),
        length_within(compute, inside),
        _idle(compute, known),
        window,
        len(compute) > 0 or len(known.groups) == 1,
        marked,
        numbers,
        _parts(sets, periods),
        opened,
        _parts(sets, openings),
    )


def _periods(steps: StepTable) -> tuple[I64, I64, NDArray[np.bool_]]:
    """(steps, 2): window and number of each step, and from the end of the step before to its own:
    pauses between belong to the later. Of the first of a window that is not known, so it is left
    out unless there are none to speak of; and which are those first ones."""
    spans = steps.device_spans
    named = np.stack((steps.window, steps.step), axis=1).astype(np.int64)
    follows = np.zeros(len(steps), bool)
    follows[1:] = (np.diff(named[:, 0]) == 0) & (np.diff(named[:, 1]) == 1)
    pauses = np.maximum(spans[1:, 0] - spans[:-1, 1], 0)[follows[1:]]
    spans[1:, 0] = np.where(follows[1:], np.minimum(spans[:-1, 1], spans[1:, 0]), spans[1:, 0])
    lengths = spans[:, 1] - spans[:, 0]
    known = follows | (pauses.sum() <= _PAUSES * lengths[follows].sum())
    return named[known], spans[known], ~follows[known]


def _openings(
    known: CollectiveRecords, window: I32, first: NDArray[np.bool_], steps: I64, start_ns: I64
) -> tuple[I64, I64]:
    """Rows of operations, and (rows, 2): from the start of their step to theirs.

    Args:
        first: of their group in a window.
        steps: (n, 2): windows, and the number of the step that begins each.
        start_ns: (n,): when it does.
    """
    rows = np.flatnonzero(first)
    begins = np.stack((window[rows], known.step[rows]), axis=1).astype(np.int64)
    found, at = np.nonzero((begins[:, None] == steps).all(axis=2))
    rows = rows[found]
    spans = np.stack((start_ns[at], known.start_ns[rows]), axis=1)
    ordered = spans[:, 1] >= spans[:, 0]
    return rows[ordered], spans[ordered]


def _parts(sets: Sequence[I64], spans: I64) -> I64:
    """(spans, parts): what they consist of; what is in none of the sets is a gap of the host."""
    compute, waiting, collecting, comm = (length_within(one, spans) for one in sets)
    gap = spans[:, 1] - spans[:, 0] - compute - waiting - collecting - comm
    return np.stack((compute, gap, waiting, collecting, comm), axis=1)


def _idle(compute: I64, known: CollectiveRecords) -> I64:
    """See :attr:`OwnWork.idle_ns`.

    Args:
        compute: a set of intervals.
    """
    begun = np.searchsorted(compute[:, 0], known.end_ns) - 1
    ended = np.concatenate((compute[:, 1], [np.iinfo(np.int64).min]))[begun]  # -1: none
    return np.maximum(known.end_ns - np.maximum(ended, known.start_ns), 0)


def _since_last(known: CollectiveRecords, window: I32) -> tuple[I64, NDArray[np.bool_]]:
    """(operations, 2): from the start of the last operation of the group to that of each; and
    whether there is one before in the same window. Rows are by group, then by start."""
    start = known.start_ns
    follows = np.zeros(len(known), bool)
    follows[1:] = (known.group[1:] == known.group[:-1]) & (window[1:] == window[:-1])
    return np.stack((np.where(follows, np.roll(start, 1), start), start), axis=1), follows


def _windows(trace: Trace, known: CollectiveRecords) -> I32:
    """The recording window of each operation: that of its step, or of its start without one."""
    window = np.maximum(np.searchsorted(trace.windows[:, 0], known.start_ns, "right"), 1)
    at = occurrence(trace.steps, known.step, known.start_ns)
    window[at >= 0] = trace.steps.window[at[at >= 0]]
    return window.astype(np.int32)


def _collector_rows(trace: Trace) -> Mask:
    """Ranges of the host in which a garbage collector runs."""
    found = rows_named(trace, _OF_COLLECTION)
    if found.any():
        found &= trace.rows_of(Layer.HOST) & (trace.events.kind == Kind.SLICE)
    return found


def _spans(trace: Trace, rows: Mask) -> I64:
    return union(trace.events.start_ns[rows], trace.events.ends(rows))
