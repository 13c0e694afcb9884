"""The overlap analysis of a rank: computing, communication, the part not hidden, idle.

K is the union of compute tasks on the device, M the union of whole communication operations.
Computing = K, Communication = M, Communication(Not Overlapped) = M minus K, and Free is what is
neither, within spans the profiler was collecting in:

* rule "busy": from the first to the last row of K and M of a collection window (profilers so far);
* rule "device": other device tasks stretch that span, too (newer CANN).

So in every span Computing + Communication(Not Overlapped) + Free is its length, to the ns.

Where the source has its own lanes they are compared and replaced. A profiler computes them
from stamps finer than the nanosecond that its task rows are rounded to; if its K (or M) differs
from ours by pieces of 1 ns only, its borders are taken, so that sums agree to the last digit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from traceconv.core.intervals import (
    EMPTY,
    breakdown,
    covered,
    difference,
    length_within,
    merged,
    total,
    union,
)
from traceconv.core.model import (
    I64,
    EventTable,
    Kind,
    Layer,
    OpClass,
    OverlapSums,
    OverlapTimes,
    StepTable,
    Trace,
    Track,
)

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
        others:  computes the set covered by its other tasks; called only if needed.
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
        spans: where Free was looked for; the other sets are within.
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
        pieces = breakdown(
            compute, comm, spans
        )  # compute and comm are within spans; bit 2 is the spans
        exposed, free = covered(pieces, [0b110]), covered(pieces, [0b100])
        return Analysis((compute, comm, exposed, free), spans, rule)

    first = under(rule or otherwise)
    idle = int(work.lanes.dur_ns[work.lanes.op == OpClass.FREE].sum())
    if rule or not len(work.lanes) or total(first.sets[3]) == idle:
        return first
    second = under(RULES[1 - RULES.index(first.rule)])
    return min(first, second, key=lambda a: abs(total(a.sets[3]) - idle))


def _adopted(own: EventTable, lanes: EventTable, op: OpClass) -> I64:
    """The set of our rows; with the source's borders, if these differ by pieces of 1 ns."""
    ours = union(own.start_ns, own.end_ns)
    rows = lanes.take(lanes.op == op)
    theirs = union(rows.start_ns, rows.end_ns)
    pieces = difference(ours, theirs)
    return theirs if ((pieces[:, 1] - pieces[:, 0]) <= 1).all() else ours


def _spans(active: I64, windows: I64) -> I64:
    """From the first to the last activity of every collection window that has any.

    Activity outside of all windows is a window of its own.
    """
    if not len(active):
        return EMPTY
    if not len(windows):
        return np.array([[active[0, 0], active[-1, 1]]], np.int64)
    known = merged(windows, active)
    # the activities of each window are one run of positions, for both ascend
    first = np.searchsorted(active[:, 0], known[:, 0])
    last = np.append(first[1:], len(active))
    some = last > first
    return np.stack((active[first[some], 0], active[last[some] - 1, 1]), axis=1)


LANES: dict[OpClass, str] = {
    OpClass.COMPUTING: "Computing",
    OpClass.COMMUNICATION: "Communication",
    OpClass.NOT_OVERLAPPED: "Communication(Not Overlapped)",
    OpClass.FREE: "Free",
}
"""Lane and slice name of each class, in screen order."""

_OUTSIDE_SPAN = frozenset(
    (
        "KERNEL_AICORE",
        "KERNEL_AIVEC",
        "FFTS_PLUS",
        "KERNEL_MIX_AIC",
        "KERNEL_MIX_AIV",
        "PROFILING_ENABLE",
        "PROFILING_DISABLE",
    )
)
"""Task types that do not stretch the span under rule "device". A task without an operator is
named by its type, so the type is found as its name."""


_DEVICE = re.compile(r"(?:NPU|GPU) \d+")
"""How the group of a lane begins where a file has several devices."""


def overlap(trace: Trace, free_rule: str | None = None) -> Trace:
    """Add the four overlap lanes, in place of the source's own; once per device.

    Fills ``Trace.overlap`` and, clipped to the device time of every step, the figures of
    ``Trace.steps``.

    Args:
        free_rule: one of :data:`RULES`; None: the one that fits the source's own lane, else the
            one in ``Trace.hints.free_rule``, else "busy".

    Issues: no-device-events, overlap-recomputed, overlap-differs.
    """
    own = trace.rows_of(Layer.OVERLAP)
    works = [w for w in _works(trace) if len(w.kernels) or len(w.calls)]
    if not works:
        return trace if own.any() or not len(trace.events) else _nothing(trace)
    otherwise = trace.hints.free_rule or RULES[0]
    found = [analysis(work, trace.windows, free_rule, otherwise) for work in works]
    trace = replace(
        _compared(trace, works, found),
        overlap=_sums_of(works, found),
        steps=_with_figures(trace.steps, found),
    )
    if own.any():
        trace = trace.keep("overlap", ~own)
    rows = [_rows(trace, a, i) for i, a in enumerate(found)]
    return trace.add_events("overlap", _tracks(works), EventTable.concat(rows))


def _works(trace: Trace) -> list[Work]:
    """The rows to analyse, apart for each device.

    Rows on lanes that name no device count for each of them.
    """
    events = trace.events
    slices = events.kind == Kind.SLICE
    kernels = trace.rows_of(Layer.DEVICE) & (events.op == OpClass.COMPUTE) & slices
    calls = (events.op == OpClass.COMM) & slices
    lanes = trace.rows_of(Layer.OVERLAP) & slices

    def work(device: str, on: Any) -> Work:
        return Work(
            device,
            events.take(kernels & on),
            events.take(calls & on),
            events.take(lanes & on),
            lambda: _other_tasks(trace, on),
        )

    named = [_DEVICE.match(track.group) for track in trace.tracks]
    devices = sorted({m[0] for m in named if m})
    if len(devices) < 2:
        return [work("", True)]
    lane = {d: np.array([m is None or m[0] == d for m in named], bool) for d in devices}
    return [work(device, lane[device][events.track]) for device in devices]


def _other_tasks(trace: Trace, on: Any) -> I64:
    events = trace.events
    outside = [i for i, name in enumerate(trace.strings) if name in _OUTSIDE_SPAN]
    rows = trace.rows_of(Layer.DEVICE) & (events.op != OpClass.COMPUTE) & on
    rows &= ~np.isin(events.name, outside)
    if trace.hints.vendor != "ascend":  # GPU: a record of waiting is no work of the device
        rows &= events.op != OpClass.WAIT
    return union(events.start_ns[rows], events.end_ns[rows])


def _nothing(trace: Trace) -> Trace:
    issues = trace.issues.copy()
    issues.add("no-device-events", rank=trace.rank)
    return replace(trace, issues=issues)


# -- the source's own lanes ---------------------------------------------------------------


def _compared(trace: Trace, works: Sequence[Work], found: Sequence[Analysis]) -> Trace:
    """Book that the source's lanes are replaced, and where their sums differ from ours."""
    issues = trace.issues.copy()
    rounded = bool(issues.count("duration-rounded") or issues.count("stamp-rounded"))
    for work, one in zip(works, found, strict=True):
        if not len(work.lanes):
            continue
        issues.add("overlap-recomputed", count=len(work.lanes), rank=trace.rank)
        for where in _differences(work.lanes, one, rounded):
            place = f"{work.device} {where}".strip()
            issues.add("overlap-differs", where=place, rank=trace.rank)
    return replace(trace, issues=issues)


def _differences(lanes: EventTable, found: Analysis, rounded: bool) -> list[str]:
    """Class, figures and window of every sum that is not the source's.

    If times were rounded, each of its slices may be off by a nanosecond. Windows it has no
    lanes for are passed over.
    """
    theirs = np.stack([_sums(lanes.take(lanes.op == op), found.spans) for op in LANES])
    ours = np.stack([length_within(a, found.spans) for a in found.sets])
    slack = np.array([[int((lanes.op == op).sum()) if rounded else 0] for op in LANES])
    wrong = (np.abs(ours - theirs) > slack) & theirs.any(axis=0)
    names = list(LANES.values())
    return [
        f"{names[lane]}: {ours[lane, span]} ns here, {theirs[lane, span]} ns in the profiler's "
        f"lane (window {span + 1})"
        for span, lane in np.argwhere(wrong.T).tolist()
    ]


def _sums(rows: EventTable, spans: I64) -> I64:
    """Sum of the durations of ``rows`` (one class, by start) that begin in or after each span
    and before the next one."""
    order = np.argsort(rows.start_ns, kind="stable")
    sums = np.concatenate(([0], np.cumsum(rows.dur_ns[order])))
    border = np.searchsorted(rows.start_ns[order], spans[:, 0])
    border[:1] = 0
    between: I64 = sums[np.append(border[1:], len(rows))] - sums[border]
    return between


# -- results ------------------------------------------------------------------------------


def _tracks(works: Sequence[Work]) -> list[Track]:
    return [
        Track(Layer.OVERLAP, name, work.device, sort=i)
        for work in works
        for i, name in enumerate(LANES.values())
    ]


def _rows(trace: Trace, found: Analysis, device: int) -> EventTable:
    """The slices of one device; tracks count from the first of the first device."""
    names = np.array([trace.strings.intern(name) for name in LANES.values()], np.int32)
    which = np.repeat(np.arange(len(LANES), dtype=np.int32), [len(a) for a in found.sets])
    spans = np.concatenate(found.sets)
    none = np.full(len(spans), -1, np.int32)
    return EventTable(
        track=which + np.int32(len(LANES) * device),
        kind=np.zeros(len(spans), np.int8),
        op=np.array(list(LANES), np.int8)[which],
        start_ns=spans[:, 0],
        dur_ns=spans[:, 1] - spans[:, 0],
        name=names[which],
        graph=none,
        step=none,
        args=none,
    )


def _sums_of(works: Sequence[Work], found: Sequence[Analysis]) -> OverlapSums:
    """The sums over devices, computed here and in the source's own lanes."""
    lanes = EventTable.concat([work.lanes for work in works])
    theirs = OverlapTimes(*(int(lanes.dur_ns[lanes.op == op].sum()) for op in LANES))
    return OverlapSums(
        free_rule=" + ".join(sorted({a.rule for a in found})),
        spans=sum(len(a.spans) for a in found),
        sums_ns=OverlapTimes(*(sum(total(a.sets[i]) for a in found) for i in range(len(LANES)))),
        vendor_sums_ns=theirs if len(lanes) else None,
    )


def _with_figures(steps: StepTable, found: Sequence[Analysis]) -> StepTable:
    """The steps with their share of each class, clipped to the step's device time."""
    spans = steps.device_spans
    # a row per class, and the last for the spans of the analysis; devices add up
    shares = np.zeros((len(StepTable.FIGURES), len(steps)), np.int64)
    for one in found:
        shares += np.stack([length_within(a, spans) for a in (*one.sets, one.spans)])
    return steps.with_columns(**dict(zip(StepTable.FIGURES, shares, strict=True)))
