"""The interval algebra behind the overlap analysis, for one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from traceconv.intervals import EMPTY, breakdown, covered, difference, merged, total, union
from traceconv.model import I64, EventTable, OpClass

RULES = ("busy", "device")
"""What bounds the span that Free is measured in."""


@dataclass(frozen=True)
class Work:
    """What one device's analysis is made from.

    Attributes:
        device:  the group its lanes get, "" if the rank has one device.
        kernels: compute rows.
        calls:   whole communication operations.
        lanes:   the source's own overlap rows, if any.
        others:  gives the set covered by its other tasks; asked for only if needed.
    """

    device: str
    kernels: EventTable
    calls: EventTable
    lanes: EventTable
    others: Callable[[], I64]


@dataclass(frozen=True)
class Analysis:
    """The four classes of one device, as interval sets.

    Attributes:
        sets:  computing, communication, not overlapped, free.
        spans: where Free was looked for; the others lie within.
        rule:  one of :data:`RULES`.
    """

    sets: tuple[I64, I64, I64, I64]
    spans: I64
    rule: str


def analysis(work: Work, windows: I64, rule: str | None, otherwise: str = RULES[0]) -> Analysis:
    """The classes of a device.

    Args:
        windows: set of the collection windows; empty if unknown.
        rule: one of :data:`RULES`; None: the one that fits the source's own Free lane best,
            or ``otherwise`` if it has none.
    """
    compute = _adopted(work.kernels, work.lanes, OpClass.COMPUTING)
    comm = _adopted(work.calls, work.lanes, OpClass.COMMUNICATION)

    def under(rule: str) -> Analysis:
        active = merged(compute, comm)
        reach = merged(active, work.others()) if rule == "device" else active
        spans = _spans(reach, windows)
        pieces = breakdown(compute, comm, spans)  # compute and comm lie within spans
        exposed, free = covered(pieces, [0b110]), covered(pieces, [0b100])
        return Analysis((compute, comm, exposed, free), spans, rule)

    first = under(rule or otherwise)
    idle = int(work.lanes.dur_ns[work.lanes.op == OpClass.FREE].sum())
    if rule or not len(work.lanes) or total(first.sets[3]) == idle:
        return first
    second = under(RULES[1 - RULES.index(first.rule)])
    return min(first, second, key=lambda a: abs(total(a.sets[3]) - idle))


def _adopted(own: EventTable, lanes: EventTable, op: OpClass) -> I64:
    """The set of our rows; with the source's borders, if these differ by splinters of 1 ns."""
    ours = union(own.start_ns, own.end_ns)
    rows = lanes.take(lanes.op == op)
    theirs = union(rows.start_ns, rows.end_ns)
    splinters = difference(ours, theirs)
    return theirs if ((splinters[:, 1] - splinters[:, 0]) <= 1).all() else ours


def _spans(active: I64, windows: I64) -> I64:
    """From the first to the last activity of every collection window that has any.

    Activity outside of all windows makes a window of its own.
    """
    if not len(active):
        return EMPTY
    if not len(windows):
        return np.array([[active[0, 0], active[-1, 1]]], np.int64)
    known = merged(windows, active)
    first = np.searchsorted(active[:, 0], known[:, 0])
    last = np.append(first[1:], len(active))
    some = last > first
    return np.stack((active[first[some], 0], active[last[some] - 1, 1]), axis=1)
