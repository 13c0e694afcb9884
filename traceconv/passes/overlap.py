"""The overlap analysis of a rank: computing, communication, copies, the parts not hidden, idle.

K is the union of compute tasks on the device, M of whole communication operations, C of memory
copies and fills. Computing = K, Communication = M, Communication(Not Overlapped) =
M minus K, Memory Copy = C, Memory Copy(Not Overlapped) = C minus K and M. M are the collectives
of a step trace if no operations were recorded. Unclassified is where the device works only on tasks
of a type that no table of their producer has. Free is the rest of the spans in which the profiler
was collecting:

* rule "busy": from the first to the last row of a collection window (profilers so far);
* rule "device": other device tasks extend that span, too (newer CANN).

On GPUs the device windows of the steps that the capture covers extend the span, too: a device
that waits for data at the start of a step is idle. So in every span Computing + Communication(Not
Overlapped) + Memory Copy(Not Overlapped) + Unclassified + Free is its length, to the ns. On NPUs
the first four lanes are those of the vendor, for whom copies and unclassified tasks are neither
work nor in the way of Free: there Computing + Communication(Not Overlapped) + Free is it. Idle
time, in figures, is without unclassified tasks on NPUs, too.

Where steps were recorded whose device work was not, nothing is known: no Free is drawn there, nor
what of other classes is not overlapped. The same holds of a rank whose computing was not recorded,
and of the time in which CANN's profiler had switched itself off.

Where the source has its own lanes they are compared and replaced. A profiler computes them
from stamps finer than the nanosecond that its task rows are rounded to; if its K (or M) differs
from ours by intervals of 1 ns only, its boundaries are used, so that totals agree to the last
digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.clock import us_text
from traceconv.core.columns import OverlapSums, OverlapTimes, looked_up, once_each
from traceconv.core.intervals import (
    breakdown,
    covered,
    difference,
    intersection,
    length_within,
    merged,
    none,
    subtraction,
    total,
    union,
)
from traceconv.core.model import (
    I64,
    STEP_TABLE,
    Covered,
    EventTable,
    Kind,
    Layer,
    OpClass,
    StepTable,
    Trace,
    Track,
)
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.side_tables import ABSENT
from traceconv.passes.places import Device, devices, of_device
from traceconv.scratch.memory import give_back

RULES = ("busy", "device")
"""The rules for the span in which Free is measured."""

Rows = NDArray[np.intp]


class Work(msgspec.Struct, frozen=True):
    """The input of one device's analysis.

    Attributes:
        device:  whose they are; unknown where the rank has one device.
        lanes:   the source's own overlap rows, if any.
        others:  computes the set covered by its other tasks; called only if needed.
        kernels: event rows of compute tasks.
        calls:   ... of whole communication operations.
        copies:  ... of memory copies and fills.
        unclassified: ... of tasks of unknown types.
    """

    device: Device
    lanes: EventTable
    others: Callable[[], I64]
    kernels: Rows
    calls: Rows
    copies: Rows
    unclassified: Rows


class Bounds(msgspec.Struct, frozen=True):
    """Where a rank was recorded, as interval sets.

    Attributes:
        windows: in which the profiler was collecting; empty if unknown.
        steps:   device windows of covered steps.
        unknown: between covered steps, before and after them, where there are steps that are not;
            and where the profiler had switched itself off.
        vendor:  whether Free is as the vendor of NPUs counts it: steps do not stretch the spans,
            and a device that copies is idle.
    """

    windows: I64
    steps: I64
    unknown: I64
    vendor: bool


class Analysis(msgspec.Struct, frozen=True):
    """The classes of one device, as interval sets.

    Attributes:
        work:  its rows.
        sets:  in the order of :data:`LANES`.
        spans: where Free was looked for; the other sets are within, copies of NPUs need not be.
        known: the spans and the recorded part of covered steps.
        rule:  one of :data:`RULES`.
    """

    work: Work
    sets: tuple[I64, ...]
    spans: I64
    known: I64
    rule: str

    def idle(self, bounds: Bounds) -> I64:
        """Where the device is not busy; on NPUs more than the vendor's Free lane."""
        busy = merged(merged(self.sets[0], self.sets[1]), self.sets[_UNCLASSIFIED])
        return subtraction(self.known, busy if bounds.vendor else merged(busy, self.sets[_COPIES]))


def _analysis(
    events: EventTable, work: Work, bounds: Bounds, rule: str | None, otherwise: str
) -> Analysis:
    """The classes of a device.

    Args:
        rule: one of :data:`RULES`; None: the one that fits the source's own Free lane best,
            or ``otherwise`` if it has none.
    """
    compute, comm, copy, unclassified = (
        union(events.start_ns[rows], events.ends(rows))
        for rows in (work.kernels, work.calls, work.copies, work.unclassified)
    )
    compute = _adopted(compute, work.lanes, OpClass.COMPUTING)
    comm = _adopted(comm, work.lanes, OpClass.COMMUNICATION)
    classified = merged(compute, comm) if bounds.vendor else merged(merged(compute, comm), copy)
    unclassified = subtraction(subtraction(unclassified, classified), bounds.unknown)
    # the vendor's Free excludes unclassified tasks only if nothing else ran
    active = classified if bounds.vendor and len(classified) else merged(classified, unclassified)

    def under(rule: str) -> Analysis:
        reach = merged(active, work.others()) if rule == "device" else active
        spans, known = _spans(reach, bounds)
        # bits: compute, communication, copies, spans; the first two are within spans
        pieces = breakdown(compute, comm, copy, spans)
        exposed = covered(pieces, [0b1010, 0b1110])
        alone = subtraction(covered(pieces, [0b0100, 0b1100]), bounds.unknown)
        free = subtraction(spans, active)
        if len(unclassified):
            known = merged(known, unclassified)
        sets = (compute, comm, exposed, free, copy, alone, unclassified)
        return Analysis(work, sets, spans, known, rule)

    preferred = under(rule or otherwise)
    idle = int(work.lanes.dur_ns[work.lanes.op == OpClass.FREE].sum())
    if rule or not len(work.lanes) or total(preferred.sets[_FREE]) == idle:
        return preferred
    alternative = under(RULES[1 - RULES.index(preferred.rule)])
    return min(preferred, alternative, key=lambda a: abs(total(a.sets[_FREE]) - idle))


def _adopted(computed: I64, lanes: EventTable, op: OpClass) -> I64:
    """The union of our rows; the source's boundaries if they differ by at most 1 ns."""
    rows = lanes.take(lanes.op == op)
    if not len(rows):
        return computed
    recorded = union(rows.start_ns, rows.end_ns)
    pieces = difference(computed, recorded)
    return recorded if ((pieces[:, 1] - pieces[:, 0]) <= 1).all() else computed


def _spans(reach: I64, bounds: Bounds) -> tuple[I64, I64]:
    """Where Free is looked for, and all that is known.

    From the first to the last of ``reach`` in every collection window that has any, and the steps;
    without unknown time. Activity outside of all windows counts as a further window.
    """
    spans, inside = _hulls(reach, bounds.windows), bounds.steps
    if len(bounds.windows):
        inside = intersection(inside, merged(bounds.windows, reach))
    all_known = merged(spans, inside)
    spans = spans if bounds.vendor else all_known
    if len(bounds.unknown):
        spans, all_known = (
            subtraction(intervals, bounds.unknown) for intervals in (spans, all_known)
        )
    return spans, all_known


def _hulls(active: I64, windows: I64) -> I64:
    if not len(active):
        return none()
    if not len(windows):
        return np.array([[active[0, 0], active[-1, 1]]], np.int64)
    all_windows = merged(windows, active)
    # the activities of each window are one run of positions, for both ascend
    first_active = np.searchsorted(active[:, 0], all_windows[:, 0])
    end_active = np.append(first_active[1:], len(active))
    has_activity = end_active > first_active
    return np.stack(
        (active[first_active[has_activity], 0], active[end_active[has_activity] - 1, 1]), axis=1
    )


LANES: dict[OpClass, str] = {
    OpClass.COMPUTING: "Computing",
    OpClass.COMMUNICATION: "Communication",
    OpClass.NOT_OVERLAPPED: "Communication(Not Overlapped)",
    OpClass.FREE: "Free",
    OpClass.COPYING: "Memory Copy",
    OpClass.COPY_NOT_OVERLAPPED: "Memory Copy(Not Overlapped)",
    OpClass.UNCLASSIFIED_ALONE: "Unclassified",
}
"""Lane and slice name of each class, in screen order. Those of copies and of unclassified tasks are
there where such tasks are.
"""

_FREE = list(LANES).index(OpClass.FREE)
_COPIES = list(LANES).index(OpClass.COPYING)
_UNCLASSIFIED = list(LANES).index(OpClass.UNCLASSIFIED_ALONE)

_OUTSIDE = NameTest(
    {
        "KERNEL_AICORE",
        "KERNEL_AIVEC",
        "FFTS_PLUS",
        "KERNEL_MIX_AIC",
        "KERNEL_MIX_AIV",
        "PROFILING_ENABLE",
        "PROFILING_DISABLE",
    }.__contains__
)
"""Task types that do not extend the span under rule "device". A task without an operator is
named by its type, so the type is found as its name."""


def overlap(trace: Trace, free_rule: str | None = None) -> Trace:
    """Replace the source's own overlap tracks by computed ones, once per device.

    Fills ``Trace.overlap`` and, clipped to the device window of every step that is covered, the
    figures of ``Trace.steps``. Steps that are not covered get those of the vendor's own table of
    steps, if there is one beside the timeline.

    Args:
        free_rule: one of :data:`RULES`; None: the one that fits the source's own lane, else the
            one in ``Trace.hints.free_rule``, else "busy".

    Issues: no-device-events, computing-unknown, work-outside-steps, steps-uncovered,
    overlap-recomputed, overlap-differs, unclassified-tasks, collection-paused.
    """
    give_back()  # here and below: most memory is in use while lanes are made and inserted
    source_lanes = trace.rows_of(Layer.OVERLAP)
    bounds = _bounds(trace)
    analysed = _analysed(trace, bounds, free_rule)
    trace = _from_vendor(trace)
    covered_steps = trace.coverage
    if covered_steps.text:
        unknown = covered_steps.steps - covered_steps.recorded - covered_steps.vendor
        trace = trace.with_issue("steps-uncovered", covered_steps.text, unknown)
    if not analysed:
        missing = len(trace.events) and not source_lanes.any()
        return trace.with_issue("no-device-events") if missing else trace
    trace = _with_unclassified(trace, analysed)
    gaps = collection_gaps(trace)
    trace = trace.with_issue("collection-paused", f"{us_text(total(gaps))} µs", len(gaps))
    sums = _sums_of(analysed, bounds)
    trace = replace(
        _compared(trace, analysed) if sums.sums_ns.known else _unknown(trace, analysed),
        overlap=sums if sums.sums_ns.known else None,
        steps=_with_figures(trace.steps, analysed, bounds),
        coverage=msgspec.structs.replace(trace.coverage, devices=len(analysed)),
    )
    if source_lanes.any():
        trace = trace.keep("overlap", ~source_lanes)
    tracks: list[Track] = []
    added = EventTable.concat([_lane_slices(trace, result, tracks) for result in analysed])
    del analysed, source_lanes  # room for the new table
    trace = trace.add_events("overlap", tracks, added)
    give_back()
    return trace


def _analysed(trace: Trace, bounds: Bounds, free_rule: str | None = None) -> list[Analysis]:
    """The classes of every device that did anything."""
    otherwise = trace.hints.free_rule or RULES[0]
    return [
        _analysis(trace.events, work, bounds, free_rule, otherwise)
        for work in _works(trace)
        if len(work.kernels)
        or len(work.calls)
        or len(work.unclassified)
        or (len(work.copies) and not bounds.vendor)
    ]


class DeviceTime(msgspec.Struct, frozen=True):
    """The time of one device by class, as interval sets. The figures of steps are computed from it.

    Attributes:
        kernels, calls, copies, unclassified_tasks: event rows of compute tasks, whole communication
            operations, copies and fills, and tasks of unknown types.
        computing: where it computes.
        exposed:   where it communicates and does not compute.
        copying:   where it copies and does neither of these.
        unclassified: where it works on tasks of unknown types and does none of these.
        known:     what was recorded; the four above are within.
    """

    kernels: Rows
    calls: Rows
    copies: Rows
    unclassified_tasks: Rows
    computing: I64
    exposed: I64
    copying: I64
    unclassified: I64
    known: I64


@once_each
def device_times(trace: Trace) -> list[DeviceTime]:
    """The device times of a rank with overlap lanes, one per device that did anything.

    Clipped to the device window of a covered step, the lengths are its figures
    (:class:`StepTable`): what is known and in none of the others is idle. On NPUs what is in
    ``copying`` is idle, too.
    """
    rule = trace.overlap.free_rule if trace.overlap else ""
    analysed = _analysed(trace, _bounds(trace), rule if rule in RULES else None)
    return [
        DeviceTime(
            result.work.kernels,
            result.work.calls,
            result.work.copies,
            result.work.unclassified,
            result.sets[0],
            result.sets[2],
            intersection(result.sets[_COPIES + 1], result.known),
            intersection(result.sets[_UNCLASSIFIED], result.known),
            result.known,
        )
        for result in analysed
    ]


_TYPE_KEYS = ("Task Type", "Accelerator Core", "type", "hlo_category")
"""Arguments that give the type of a task. Without them its track may name it."""


def _with_unclassified(trace: Trace, analyses: Sequence[Analysis]) -> Trace:
    """Add an issue per type of unclassified tasks: their number and their time.

    Tasks that others hide take nothing.
    """
    events = trace.events
    by_name: dict[int, tuple[int, int, int]] = {}  # by name: time, tasks, one of them
    for result in analyses:
        rows = result.work.unclassified
        spans = np.stack((events.start_ns[rows], events.ends(rows)), axis=1)
        alone = length_within(result.sets[_UNCLASSIFIED], spans)
        if trace.hints.partial_device:  # what hides them is not known
            alone = events.dur_ns[rows]
        rows, alone = rows[alone > 0], alone[alone > 0]
        for name in np.unique(events.name[rows]).tolist():
            of_name = events.name[rows] == name
            before, count, _ = by_name.get(name, (0, 0, 0))
            by_name[name] = (
                before + int(alone[of_name].sum()),
                count + int(of_name.sum()),
                rows[of_name][0],
            )
    types: dict[tuple[str, str, str], list[tuple[int, int, str]]] = {}
    for name, (ns, count, row) in by_name.items():
        args, called = trace.args[int(events.args[row])], trace.strings[name][:80] or "no name"
        typed = str(next((args[key] for key in _TYPE_KEYS if args.get(key)), ""))[:80]
        on_track = ("", f" on {trace.tracks[int(events.track[row])].name}")
        around = (f"type {typed} (", ")") if typed else on_track
        key = ("", "", typed) if typed == called else (*around, typed)
        types.setdefault(key, []).append((ns, count, called))
    if types:  # the run that wrote a merged trace has counted the same tasks
        trace = replace(trace, issues=trace.issues.copy(without="unclassified-tasks"))
    times = {key: sum(ns for ns, _, _ in names) for key, names in types.items()}
    for key, ns in sorted(times.items(), key=lambda item: -item[1]):
        where = f"{key[0]}{max(types[key])[2]}{key[1]}: {us_text(ns)} µs"
        trace = trace.with_issue("unclassified-tasks", where, sum(n for _, n, _ in types[key]))
    return trace


def _bounds(trace: Trace) -> Bounds:
    steps = trace.steps
    is_covered = steps.covered == Covered.TIMELINE
    spans = steps.device_spans
    inside = union(*spans[is_covered].T)
    around = subtraction(np.array([[-_EVER, _EVER]], np.int64), inside)
    unknown = around[length_within(union(*spans[~is_covered].T), around) > 0]
    return Bounds(
        windows=trace.windows,
        steps=inside,
        unknown=merged(unknown, collection_gaps(trace)),
        vendor=trace.hints.vendor == "ascend",
    )


_PAUSES = NameTest({"MEM_WAIT_VALUE", "CAPTURE_WAIT"}.__contains__)
_RESUMES = NameTest({"MEM_WRITE_VALUE", "CAPTURE_RECORD"}.__contains__)


@once_each
def collection_gaps(trace: Trace) -> I64:
    """Where CANN's profiler had switched itself off, as an interval set.

    It does so while a stream repeats a wait for a value: after the last wait nothing is recorded,
    until the value is written and the profiler has started again (Ascend/msprof,
    ``profile_data_file_references.md``, on the layer Ascend Hardware).
    """
    events = trace.events
    if trace.hints.vendor != "ascend" or not rows_named(trace, _PAUSES).any():
        return none()
    rows = trace.rows_of(Layer.DEVICE, Layer.COMM) & (events.kind == Kind.SLICE)
    work = np.flatnonzero(rows & ~rows_named(trace, _RESUMES))
    work = work[np.argsort(events.start_ns[work], kind="stable")]
    reach, start = np.maximum.accumulate(events.ends(work))[:-1], events.start_ns[work][1:]
    gap = (start > reach) & rows_named(trace, _PAUSES)[work[:-1]]
    return np.stack((reach[gap], start[gap]), axis=1)


_EVER = np.int64(2**62)
"""Later than any stamp."""


def _works(trace: Trace) -> list[Work]:
    """The rows to analyse, apart for each device.

    Rows on lanes that name no device count for each of them.
    """
    events = trace.events
    slices = events.kind == Kind.SLICE
    kernels = trace.rows_of(Layer.DEVICE) & (events.op == OpClass.COMPUTE) & slices
    calls = (events.op == OpClass.COMM) & slices
    if not calls.any():
        calls = (events.op == OpClass.REDUCE) & slices
    copies = trace.rows_of(Layer.DEVICE) & (events.op == OpClass.COPY) & slices
    unclassified = trace.rows_of(Layer.DEVICE) & (events.op == OpClass.UNCLASSIFIED) & slices
    lanes = trace.rows_of(Layer.OVERLAP) & slices

    def work(device: Device, on: Any) -> Work:
        rows = (np.flatnonzero(mask & on) for mask in (kernels, calls, copies, unclassified))
        return Work(device, events.take(lanes & on), lambda: _other_tasks(trace, on), *rows)

    devices_seen = devices(trace.tracks)
    if len(devices_seen) < 2:
        return [work(Device(), True)]
    return [
        work(device, looked_up(of_device(trace, device), events.track)) for device in devices_seen
    ]


def _other_tasks(trace: Trace, on: Any) -> I64:
    events = trace.events
    rows = trace.rows_of(Layer.DEVICE) & (events.op != OpClass.COMPUTE) & on
    rows &= ~rows_named(trace, _OUTSIDE)
    if trace.hints.vendor != "ascend":  # GPU: a record of waiting is not device work
        rows &= events.op != OpClass.WAIT
    return union(events.start_ns[rows], events.ends(rows))


def _unknown(trace: Trace, analyses: Sequence[Analysis]) -> Trace:
    """Add an issue that says why no figure is known."""
    if trace.hints.partial_device:
        return trace  # its reader has an issue for that
    works = [result.work for result in analyses]
    rows = np.concatenate([rows for work in works for rows in (work.kernels, work.unclassified)])
    tasks = trace.events.take(rows)
    if not tasks.dur_ns.any() or not trace.steps.marked.all():
        return trace.with_issue("computing-unknown")
    first_ns, last_ns = int(tasks.start_ns.min()), int(tasks.end_ns.max())
    before = int(trace.steps.start_ns.min()) - last_ns
    after = first_ns - int(trace.steps.end_ns.max())
    where = f"between the steps, {us_text(last_ns - first_ns)} µs"
    if before >= 0:
        where = f"ends {us_text(before)} µs before the first step"
    elif after >= 0:
        where = f"begins {us_text(after)} µs after the last step"
    return trace.with_issue("work-outside-steps", where, len(tasks))


# -- the source's own lanes ---------------------------------------------------------------


def _compared(trace: Trace, analyses: Sequence[Analysis]) -> Trace:
    """Book that the source's lanes are replaced, and where their sums differ from ours."""
    rounded = any(trace.issues.count(code) for code in ("duration-rounded", "stamp-rounded"))
    for result in analyses:
        if len(result.work.lanes):
            trace = trace.with_issue("overlap-recomputed", count=len(result.work.lanes))
            for where in _differences(result, rounded):
                location = f"{result.work.device.heading} {where}".strip()
                trace = trace.with_issue("overlap-differs", location)
    return trace


def _differences(result: Analysis, rounded: bool) -> list[str]:
    """Class, figures and window of every sum that is not the source's.

    If times were rounded, each of its slices may be off by a nanosecond. Windows it has no
    lanes for are passed over.
    """
    lanes = result.work.lanes
    ops = list(LANES)[:_COPIES]  # no profiler has lanes of copies
    recorded_ns = np.stack([_sums(lanes.take(lanes.op == op), result.spans) for op in ops])
    computed_ns = np.stack([length_within(a, result.spans) for a in result.sets[:_COPIES]])
    slack = np.array([[int((lanes.op == op).sum()) if rounded else 0] for op in ops])
    wrong = (np.abs(computed_ns - recorded_ns) > slack) & recorded_ns.any(axis=0)
    names = list(LANES.values())
    return [
        f"{names[lane]}: {computed_ns[lane, span]} ns here, {recorded_ns[lane, span]} ns in the "
        f"profiler's lane (window {span + 1})"
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


def _lane_slices(trace: Trace, result: Analysis, tracks: list[Track]) -> EventTable:
    """The slices of one device, whose lanes are added to ``tracks``."""
    copies = {OpClass.COPYING, OpClass.COPY_NOT_OVERLAPPED}
    left_out = set() if len(result.work.copies) else copies
    left_out |= set() if len(result.sets[_UNCLASSIFIED]) else {OpClass.UNCLASSIFIED_ALONE}
    lanes = {op: i for i, op in enumerate(LANES) if op not in left_out}
    sets = [result.sets[i] for i in lanes.values()]
    names = np.array([trace.strings.intern(LANES[op]) for op in lanes], np.int32)
    lane_of = np.repeat(np.arange(len(sets), dtype=np.int32), [*map(len, sets)])
    spans = np.concatenate(sets)
    first_track, device = np.int32(len(tracks)), result.work.device
    tracks += [
        Track(Layer.OVERLAP, LANES[op], device.heading, sort=i, device=device.number,
              device_kind=device.kind)
        for op, i in lanes.items()
    ]  # fmt: skip
    op = np.array(list(lanes), np.int8)[lane_of]
    start, length = spans[:, 0], spans[:, 1] - spans[:, 0]
    return EventTable.filled(start, length, track=lane_of + first_track, name=names[lane_of], op=op)


def _sums_of(analyses: Sequence[Analysis], bounds: Bounds) -> OverlapSums:
    """The sums over devices, computed here and in the source's own lanes."""
    lanes = EventTable.concat([result.work.lanes for result in analyses])
    recorded = [int(lanes.dur_ns[lanes.op == op].sum()) for op in LANES]
    recorded_total = recorded[0] + recorded[2] + recorded[_FREE]
    computed = [
        sum(total(subtraction(a.sets[i], bounds.unknown)) for a in analyses)
        for i in range(len(LANES))
    ]
    return OverlapSums(
        free_rule=" + ".join(sorted({a.rule for a in analyses})),
        spans=sum(len(a.spans) for a in analyses),
        sums_ns=OverlapTimes._make((*computed, sum(total(a.known) for a in analyses))),
        idle_ns=sum(total(a.idle(bounds)) for a in analyses),
        vendor_sums_ns=OverlapTimes._make((*recorded, recorded_total)) if len(lanes) else None,
    )


def _with_figures(steps: StepTable, analyses: Sequence[Analysis], bounds: Bounds) -> StepTable:
    """The steps with their share of each class, clipped to the step's device window.

    Idle is all that is known and not busy: also what is before the first task and after the last,
    where the vendor draws no Free lane.
    """
    spans = steps.device_spans
    shares = np.zeros((len(StepTable.FIGURES), len(steps)), np.int64)
    for result in analyses:
        sets = [*result.sets, result.known]
        sets[_FREE] = result.idle(bounds)
        shares += np.stack([length_within(a, spans) for a in sets])
    covered = steps.covered == Covered.TIMELINE
    return steps.with_columns(
        **{
            name: np.where(covered, share, getattr(steps, name))
            for name, share in zip(StepTable.FIGURES, shares, strict=True)
        }
    )


_OWN_FIGURES = {
    "computing_ns": "Computing(ns)",
    "communication_ns": "Communication(ns)",
    "not_overlapped_ns": "Communication(Not Overlapped)(ns)",
    "free_ns": "Free(ns)",
}
"""Columns of the vendor's table of steps, by what they are here."""


def _from_vendor(trace: Trace) -> Trace:
    """Figures of the vendor's own table for the steps whose device work was not recorded.

    Where event rows were made of tables of operators, for all: it was made from the timeline.
    """
    steps, table = trace.steps, trace.side_tables.get(STEP_TABLE)
    unseen = steps.covered == Covered.NOT
    missing = np.flatnonzero(unseen | trace.hints.tables_only)
    if table is None or not len(missing):
        return trace
    columns = table.columns
    number = columns.get("Step", missing[:0])
    if number.dtype == object or not set(_OWN_FIGURES.values()) <= columns.keys():
        return trace
    step_index, table_index = np.nonzero(steps.step[missing][:, None] == number)
    matches = np.bincount(step_index, minlength=len(missing))
    once = matches[step_index] == 1  # else it is of several devices
    rows, table_rows = missing[step_index[once]], table_index[once]
    figures = {name: columns[heading][table_rows] for name, heading in _OWN_FIGURES.items()}
    full = np.logical_and.reduce([column != ABSENT for column in figures.values()])
    busy = figures["computing_ns"] + figures["not_overlapped_ns"]
    figures["known_ns"] = busy + figures["free_ns"]
    changed = {name: getattr(steps, name).copy() for name in (*figures, "covered")}
    for name, column in figures.items():
        changed[name][rows[full]] = column[full]
    changed["covered"][rows[full]] = Covered.VENDOR_TABLE
    issues = trace.issues.copy()
    table.account(issues)
    vendor = int(np.count_nonzero(unseen[rows[full]]))
    coverage = msgspec.structs.replace(trace.coverage, vendor=vendor)
    return replace(trace, steps=steps.with_columns(**changed), coverage=coverage, issues=issues)
