"""The operations of one rank, and what each of them waited for: its part of the job's graph.

Kernels and copies between two synchronisation points are one operation, so a rank has a few
operations per collective however many kernels it runs; kernels of 1 % of a step are separate.
Unclassified tasks of a device are work like kernels: the device is busy, so they are not idle time.
Synchronisation points are the starts and ends of communication and the boundaries of steps.

Sources do not record which stream waited for which event, so edges follow from the times of the
rank itself:

* work follows the work that ended last before it began, and communication that ended later still;
* work needs what arrived: the last message received and the last data gathered before it began,
  even where these arrived early and nothing waited;
* communication follows the last work before it, the operation before it in its group, and
  whatever ended last.

The time between the end of the last of these and the start of the operation is its *delay*: time
of the host, of input or of a garbage collector, or no recorded cause.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import RECEIVE, CollectiveRecords
from traceconv.analysis.rank_facts import EDGES, Operations
from traceconv.analysis.replay.periods import repeated
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import I64, Mask, once_each
from traceconv.core.intervals import length_within, subtraction, union
from traceconv.core.model import Covered, Kind, Layer, OpClass, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex
from traceconv.passes.host_work import communicates_on_cpus
from traceconv.passes.input_wait import fetches, input_spans

COMPUTE, COPY, HOST, INPUT, COLLECTOR = range(5)
"""What time of a rank goes to besides communication, as in :data:`SORTS`."""

CAUSES = INPUT, COLLECTOR
"""Recorded causes of idle time; the rest of it is the host's."""


_SHARE = 0.01  # of an operation, by which the next one may begin before its recorded end ...
_MOST_NS = 100_000  # ... but no more than this
_LEAST_NS = 1_000
_WAITED = 4  # a rank without work but for a quarter at either end of communication waits for it
_CALL = 0.5  # of the shortest step: longer ranges are steps and epochs, not host calls
_LONG = 0.01  # of a step: a kernel that takes longer is a separate operation
_TOGETHER_NS = 1_000  # operations that end so close together are one batch
_LONGEST = 200  # names with more characters are not tested
_COLLECTOR = lazy_regex(r"\bgc\b|garbage.?collect", re.IGNORECASE)
_OF_COLLECTION = NameTest(lambda name: len(name) <= _LONGEST and _COLLECTOR.search(name))
_ARRIVES = ("allgather", "broadcast", "alltoall", "scatter")


def operations(trace: Trace, records: CollectiveRecords) -> Operations:
    """The operations of a rank.

    Args:
        trace: with operations classified and steps attributed.
        records: its communication operations.
    """
    steps = measured(trace.steps)
    marked = bool(steps.marked.all())
    steps = steps.take(steps.covered == Covered.TIMELINE)
    why = ""
    if not len(steps):
        why = "no device work of its steps was recorded"
        if {"cluster_step_trace_time", "cluster_time_summary"} & trace.side_tables.keys():
            why = (
                "only the table of cluster tools has its steps; `traceconv diagnose` compares those"
            )
    elif trace.hints.partial_device:
        why = "not all of its device work was recorded"
    elif trace.coverage.devices > 1:
        why = f"{trace.coverage.devices} devices are in one capture"
    if why:
        return Operations(why=why, marked=marked)
    spans = steps.device_spans
    order = np.argsort(spans[:, 0], kind="stable")
    numbers = np.stack((steps.window, steps.step), axis=1).astype(np.int64)
    steps_of = np.concatenate((numbers, spans), axis=1)[order]
    if not marked:
        steps_of = repeated(records, int(spans[:, 0].min()), int(spans[:, 1].max()))
    calls = _inside(records.start_ns, records.end_ns, steps_of)
    start, end = records.start_ns[calls], records.end_ns[calls]
    events = trace.events
    device = trace.rows_of(Layer.DEVICE) & (events.kind == Kind.SLICE) & (events.dur_ns > 0)
    kernels = device & np.isin(events.op, (OpClass.COMPUTE, OpClass.UNCLASSIFIED))
    copies = device & (events.op == OpClass.COPY)
    rows = np.flatnonzero((kernels | copies) & ~fetches(trace))
    rows = rows[_inside(events.start_ns[rows], events.ends(rows), steps_of)]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    work = _Work.of(trace, rows, start, end, steps_of)
    idle = _Idle.of(trace, union(*work.spans.T))
    held = {
        COMPUTE: kernels & (events.op == OpClass.COMPUTE),
        COPY: copies,
        HOST: trace.rows_of(Layer.HOST, Layer.RUNTIME)
        & (events.kind == Kind.SLICE)
        & (events.dur_ns < _CALL * (spans[:, 1] - spans[:, 0]).min()),
        INPUT: input_spans(trace),
        COLLECTOR: _collections(trace),
    }
    recorded = tuple(sort for sort, is_cause in held.items() if is_cause.any())
    return _combined(trace, work, idle, records, calls, steps_of, marked, recorded)


def _inside(start: I64, end: I64, steps: I64) -> NDArray[np.intp]:
    """The rows that begin in the device window of a step."""
    step_row = np.searchsorted(steps[:, 2], start, "right") - 1
    limit = np.maximum.accumulate(steps[:, 3])
    return np.flatnonzero(
        (step_row >= 0) & (start < limit[np.maximum(step_row, 0)]) & (end >= start)
    )


def _slack(start: I64, end: I64) -> I64:
    """By how much operations may end later than what waits for them begins: stamps of long ones
    are no better."""
    slack: I64 = np.clip(((end - start) * _SHARE).astype(np.int64), _LEAST_NS, _MOST_NS)
    return np.asarray(np.minimum(slack, np.maximum(end - start - 1, 0)), np.int64)


def _woken(start: I64, end: I64, call: I64) -> I64:
    """How long before the recorded end of communication on CPUs the next work begins, where the
    rank has waited for it since it began; else 0. The record is of a thread that may get the
    processor long after the one that it has woken."""
    calls, work = np.flatnonzero(call >= 0), np.flatnonzero(call < 0)
    woken = np.zeros(len(start), np.int64)
    if len(work):
        position = np.searchsorted(start[work], start[calls], "right")
        until = np.maximum.accumulate(end[work])[np.maximum(position - 1, 0)]
        since = np.where(position > 0, until, start[work[0]])
        following = start[work[np.minimum(position, len(work) - 1)]]
        short = (end - start)[calls] // _WAITED
        waited = (since <= start[calls] + short) & (following >= end[calls] - short)
        woken[calls] = np.where(waited, np.maximum(end[calls] - following, 0), 0)
    return woken


class _Work(msgspec.Struct, frozen=True):
    """Kernels and copies, merged between synchronisation points.

    Attributes:
        rows:  event rows, by start.
        operation: of each row.
        own:   (rows,) ns that belong to it.
        spans: (operations, 2): start and end.
        step:  of each operation.
    """

    rows: NDArray[np.intp]
    operation: I64
    own: I64
    spans: I64
    step: I64

    @classmethod
    def of(cls, trace: Trace, rows: NDArray[np.intp], starts: I64, ends: I64, steps: I64) -> _Work:
        begin, end = trace.events.start_ns[rows], trace.events.ends(rows)
        slack = _slack(begin, end)
        starts, ends = np.sort(starts), np.sort(ends)
        step = np.searchsorted(steps[:, 2], begin, "right") - 1
        begun = np.searchsorted(starts, begin + slack)
        across = np.searchsorted(starts, end - slack) > begun
        ended = np.searchsorted(ends, begin + _LEAST_NS)
        keys = np.stack((step, begun, ended, across), axis=1)
        is_first = np.ones(len(rows), bool)
        alone = end - begin > _LONG * (steps[:, 3] - steps[:, 2])[step]
        is_first[1:] = (keys[1:] != keys[:-1]).any(axis=1) | alone[1:] | alone[:-1]
        operation_of = np.cumsum(is_first) - 1
        heads = np.flatnonzero(is_first)
        reached = np.maximum.accumulate(end) if len(end) else end
        before = np.concatenate((begin[:1], reached[:-1]))
        busy_ns = np.maximum(end - np.maximum(begin, before), 0)
        reached_end = np.maximum.reduceat(end, heads) if len(heads) else end
        spans = np.stack((begin[heads], reached_end), axis=1)
        # of two operations at once, as on two streams, the later begins when the earlier ends
        spans[1:, 0] = np.maximum(spans[1:, 0], reached[heads[1:] - 1]) if len(heads) else 0
        spans[:, 1] = np.maximum(spans[:, 1], spans[:, 0])
        return cls(rows, operation_of, busy_ns, spans, step[heads])


class _Idle(msgspec.Struct, frozen=True):
    """When a rank did not work, by cause: input, garbage collection, anything else."""

    input: I64
    collector: I64

    @classmethod
    def of(cls, trace: Trace, busy: I64) -> _Idle:
        pauses = input_spans(trace)
        collecting = _collections(trace)
        waiting = subtraction(pauses, busy)
        spans = union(trace.events.start_ns[collecting], trace.events.ends(collecting))
        return cls(waiting, subtraction(subtraction(spans, busy), waiting))

    def causes(self, spans: I64) -> I64:
        """(spans, :data:`CAUSES`): how much of each span, all idle, each cause took."""
        return np.stack(
            (length_within(self.input, spans), length_within(self.collector, spans)), axis=1
        )


@once_each
def _collections(trace: Trace) -> Mask:
    """Event rows of garbage collections."""
    is_collection: Mask = rows_named(trace, _OF_COLLECTION)
    if is_collection.any():
        is_collection &= trace.rows_of(Layer.HOST) & (trace.events.kind == Kind.SLICE)
    return is_collection


def _combined(
    trace: Trace, work: _Work, idle: _Idle, records: CollectiveRecords,
    calls: NDArray[np.intp], steps: I64, marked: bool, recorded: tuple[int, ...],
) -> Operations:  # fmt: skip
    start = np.concatenate((work.spans[:, 0], records.start_ns[calls]))
    end = np.concatenate((work.spans[:, 1], records.end_ns[calls]))
    call = np.concatenate((np.full(len(work.spans), -1), calls))
    of_call = np.searchsorted(steps[:, 2], records.start_ns[calls], "right") - 1
    step = np.concatenate((work.step, of_call))
    order = np.lexsort((call, end, start))
    new_row = np.empty(len(order), np.int64)
    new_row[order] = np.arange(len(order))
    start, end, call, step = start[order], end[order], call[order], step[order]
    slack = _slack(start, end)
    if communicates_on_cpus(trace):
        slack = np.maximum(slack, _woken(start, end, call))
    before = _edges(start, end, call, records, slack)
    window = steps[step, 0]  # nothing waits for what an earlier window recorded
    before[(before >= 0) & (window[before] != window[:, None])] = -1
    ends = np.where(before >= 0, end[before], np.iinfo(np.int64).min).max(axis=1, initial=-(2**62))
    follows = (before >= 0).any(axis=1)
    since = np.where(follows, ends, steps[step, 2])
    gaps = np.stack((np.minimum(since, start), start), axis=1)
    causes = idle.causes(gaps)
    caused, cause = np.nonzero(causes)
    names, number, parts = _parts(trace, work, idle, new_row)
    heads = np.flatnonzero(np.diff(work.operation, prepend=-1))
    is_whole = trace.events.start_ns[work.rows[heads]] == work.spans[:, 0]
    lead = np.full(len(order), -1, np.int64)
    lead[new_row[: len(heads)]] = np.where(is_whole, number[heads], -1)
    return Operations(
        why="",
        marked=marked,
        steps=steps,
        start_ns=start,
        end_ns=end,
        step=step.astype(np.int32),
        call=call.astype(np.int32),
        lead=lead.astype(np.int32),
        before=before.astype(np.int32),
        host_ns=gaps[:, 1] - gaps[:, 0] - causes.sum(axis=1),
        cause_at=caused.astype(np.int32),
        cause=np.array(CAUSES, np.int8)[cause],
        cause_ns=causes[caused, cause],
        names=tuple(name for name, _ in names),
        sorts=np.array([sort for _, sort in names], np.int8),
        at=parts[0].astype(np.int32),
        name=parts[1].astype(np.int32),
        ns=parts[2],
        count=parts[3].astype(np.int32),
        recorded=recorded,
    )


def _parts(
    trace: Trace, work: _Work, idle: _Idle, new_row: I64
) -> tuple[list[tuple[str, int]], I64, tuple[I64, I64, I64, I64]]:
    """Names with their sorts; the name of each row; and operation, name, ns and count of every part
    of work."""
    sort = np.where(trace.events.op[work.rows] == OpClass.COPY, COPY, COMPUTE)
    keys = trace.events.name[work.rows].astype(np.int64) * 2 + (sort == COPY)
    used = np.flatnonzero(np.bincount(keys))
    number = np.searchsorted(used, keys)
    names = [(trace.strings[int(key) // 2], COPY if key % 2 else COMPUTE) for key in used.tolist()]
    names += [("idle: host", HOST), ("idle: input", INPUT), ("idle: garbage collection", COLLECTOR)]
    cell = work.operation * len(names) + number
    cells, cell_of = np.unique(cell, return_inverse=True)
    ns, count = (
        np.bincount(cell_of.reshape(-1), weights, len(cells)).astype(np.int64)
        for weights in (work.own.astype(np.float64), None)
    )
    operation_of, name = cells // len(names), cells % len(names)
    busy = np.bincount(operation_of, ns, len(work.spans)).astype(np.int64)
    # idle time within an operation, by cause; what covers it last is the rest
    inside = idle.causes(work.spans)
    idle_ns = work.spans[:, 1] - work.spans[:, 0] - busy
    inside = np.minimum(inside, np.maximum(idle_ns[:, None], 0))
    inside[:, 1] = np.minimum(inside[:, 1], idle_ns - inside[:, 0])
    gaps = np.stack((idle_ns - inside.sum(axis=1), inside[:, 0], inside[:, 1]), axis=1)
    row, column = np.nonzero(gaps)
    idle_names = len(names) - 3 + column
    return (
        names,
        number,
        (
            new_row[np.concatenate((operation_of, row))],
            np.concatenate((name, idle_names)),
            np.concatenate((ns, gaps[row, column])),
            np.concatenate((count, np.ones(len(row), np.int64))),
        ),
    )


def _edges(start: I64, end: I64, call: I64, records: CollectiveRecords, slack: I64) -> I64:
    """(operations, EDGES): what each waits for; see the module."""
    n = len(start)
    edges = np.full((n, EDGES), -1, np.int64)
    if not n:
        return edges
    comm = call >= 0
    all_rows = np.arange(n)
    work, calls = all_rows[~comm], all_rows[comm]
    last_work, _ = _latest(work, start, end, slack, all_rows)
    last_call, mate = _latest(calls, start, end, slack, all_rows)
    late = np.where(last_call >= 0, end[last_call], -(2**62))
    since = np.where(last_work >= 0, end[last_work], -(2**62))
    later = late >= since - _LEAST_NS
    edges[:, 0] = last_work
    edges[:, 1] = np.where(later, last_call, -1)
    edges[:, 2] = np.where(later, mate, -1)
    # work needs the last data that arrived before it, whether or not it waited for it
    kinds = np.array([records.kinds[k] in _ARRIVES for k in range(len(records.kinds))] or [False])
    arrives = np.zeros(n, bool)
    arrives[calls] = kinds[records.kind[call[calls]]]
    receives = np.zeros(n, bool)
    if len(records.direction):
        receives[calls] = records.direction[call[calls]] == RECEIVE
    arrived, _ = _latest(all_rows[receives | arrives], start, end, slack, work)
    is_listed = (edges[work, 1] == arrived) | (edges[work, 2] == arrived)
    edges[work, 3] = np.where(is_listed, -1, arrived)
    edges[calls, 3] = _previous_in_group(calls, call, start, end, slack, records)
    edges[edges >= all_rows[:, None]] = -1
    for column in range(1, EDGES):
        is_repeated = (edges[:, :column] == edges[:, [column]]).any(axis=1)
        edges[is_repeated, column] = -1
    return edges


def _latest(
    among: NDArray[np.intp], start: I64, end: I64, slack: I64, rows: NDArray[np.intp]
) -> tuple[I64, I64]:
    """The operation of ``among`` that ended last before each operation began, and the one before
    that if both ended together; -1 without one."""
    until = end - slack
    order = among[np.argsort(until[among], kind="stable")]
    position = np.searchsorted(until[order], start[rows], "right") - 1
    padded = np.concatenate((order, [-1]))
    latest, second = padded[position], padded[np.maximum(position - 1, -1)]
    together = (position > 0) & (np.abs(end[second] - end[latest]) <= _TOGETHER_NS)
    return latest, np.where(together, second, -1)


def _previous_in_group(
    calls: NDArray[np.intp], call: I64, start: I64, end: I64, slack: I64, records: CollectiveRecords
) -> I64:
    """The operation before each in its group, if that had ended."""
    previous = np.full(len(calls), -1, np.int64)
    group = records.group[call[calls]]
    order = np.argsort(group, kind="stable")
    later, earlier = calls[order[1:]], calls[order[:-1]]
    follows = (np.diff(group[order]) == 0) & ((end - slack)[earlier] <= start[later])
    previous[order[1:]] = np.where(follows, earlier, -1)
    return previous
