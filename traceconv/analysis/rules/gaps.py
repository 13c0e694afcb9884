"""Rules of gaps between kernels: kernels launched too late to overlap communication, pauses of the
host, threads off the CPU and what runs there instead, and repeated sequences of short kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.rank_facts import EXPOSED, IDLE
from traceconv.analysis.rules.definition import (
    OWN,
    SLICES_KEPT,
    STEPS_KEPT,
    Case,
    FindingSeverity,
    Known,
    Limit,
    Limits,
    Rule,
    as_case,
    longest,
    lost,
    slices_of,
)
from traceconv.analysis.rules.host import (
    BOUND_NS,
    MSPROF_ANALYZE,
    SHORT_NS,
    THEME,
    idle_gaps,
    inside,
)
from traceconv.analysis.tables.fields import fields, is_ascend
from traceconv.analysis.tables.groups import Groups
from traceconv.analysis.tables.host import Nest, kernels, launches
from traceconv.analysis.tables.operator import launching
from traceconv.analysis.tables.texts import Texts
from traceconv.analysis.utilisation import measured, share
from traceconv.core.clock import time_text
from traceconv.core.columns import once_each
from traceconv.core.intervals import (
    intersection,
    length_within,
    merged,
    subtraction,
    total,
    union,
)
from traceconv.core.model import I64, Kind, Layer, OpClass, StepTable, Trace, TrackKind
from traceconv.passes.input_wait import leading
from traceconv.passes.overlap import DeviceTime, device_times

_PAUSE_NS = 1_000_000  # the shortest collection that msprof-analyze reports
_RECORDED = 0.9  # of the kernels: launched within recorded operators
_LAUNCHES_PER_PAUSE = 50  # fewer: the host was recorded in part
_LONGEST = 8  # kernels of a sequence
_CANDIDATES = 100  # sequences of one length that are tried
_REPEATS = 10  # occurrences of a sequence, at least


# -- launched late beside communication -----------------------------------------------------


def _late(trace: Trace) -> Known | None:
    """Exposed communication before kernels that do not need it and are launched in that time."""
    steps, events = measured(trace.steps), trace.events
    calls = launches(trace)
    if not len(steps) or not len(calls.device) or trace.hints.partial_device:
        return None
    spans = steps.device_spans
    within = union(spans[:, 0], spans[:, 1])
    devices = device_times(trace)
    if not any(len(device.calls) for device in devices):
        return None
    late_waits = [np.zeros((0, 2), np.int64)]
    for device in devices:
        waits = _waits(trace, device, intersection(device.exposed, within))
        called = np.isin(calls.device, device.kernels)
        start, time = events.start_ns[calls.device[called]], calls.time_ns[called]
        order = np.lexsort((time, start))  # of kernels that start together the first launched
        start, time = start[order], time[order]
        if len(waits) and len(start):
            next_kernel = np.minimum(np.searchsorted(start, waits[:, 1]), len(start) - 1)
            late = (time[next_kernel] > waits[:, 0]) & (time[next_kernel] < waits[:, 1])
            late_waits.append(waits[late & (start[next_kernel] == waits[:, 1])])
    waits = np.concatenate(late_waits)
    ns = waits[:, 1] - waits[:, 0]
    shown = slices_of(trace, OpClass.NOT_OVERLAPPED)
    shown = shown[np.isin(events.ends(shown), waits[:, 1])]
    return lost(
        len(steps), int(ns.sum()), int(steps.known_ns.sum()), EXPOSED, longest(trace, shown),
        {"waits": len(ns), "longest_ns": int(ns.max(initial=0))},
    )  # fmt: skip


def _waits(trace: Trace, device: DeviceTime, exposed: I64) -> I64:
    """Exposed communication that ends while a collective runs on: the kernel that starts then does
    not need the result. Each begins when the last work that the kernel may have waited for ended:
    computing, another collective, a copy.
    """
    start, end = trace.events.start_ns[device.calls], trace.events.ends(device.calls)
    if not len(exposed) or not len(start):
        return exposed[:0]
    order = np.argsort(start, kind="stable")
    latest = np.maximum.accumulate(end[order])
    before = np.searchsorted(start[order], exposed[:, 1]) - 1
    goes_on = (before >= 0) & (latest[np.maximum(before, 0)] > exposed[:, 1])
    ended = np.sort(np.concatenate((end, trace.events.ends(device.copies))))
    last_ended = np.searchsorted(ended, exposed[:, 1], "right") - 1
    begin = np.where(last_ended >= 0, ended[np.maximum(last_ended, 0)], exposed[:, 0])
    waits = np.stack((np.maximum(begin, exposed[:, 0]), exposed[:, 1]), axis=1)
    late_waits: I64 = waits[goes_on & (waits[:, 1] > waits[:, 0])]
    return late_waits


# -- pauses of the host ---------------------------------------------------------------------


def _paused(trace: Trace) -> Known | None:
    """Idle time of the device while no recorded call of the host runs on any thread for a
    millisecond or more; ranges around other calls do not count as calls.

    Only of ranks whose kernels are launched within recorded operators and that pause rarely: of
    others the host was recorded in part, and an unrecorded time may be work. A capture without
    steps may hold the start of the program.
    """
    steps, events = measured(trace.steps), trace.events
    hull = trace.coverage.layers.get(Layer.HOST, ())
    work = kernels(trace, OpClass.COMPUTE)
    if (
        not len(steps)
        or not hull
        or trace.hints.partial_device
        # there the ranges are all that is recorded of operators; on NPUs they are recorded beside
        or (not is_ascend(trace) and any(t.kind is TrackKind.RANGES for t in trace.tracks))
        or not steps.marked.all()
        or not len(work)
        or np.mean(launching(trace)[work] >= 0) < _RECORDED
    ):
        return None
    marks = trace.rows_of(Layer.HOST) & (events.step >= 0)
    rows = trace.rows_of(Layer.HOST, Layer.RUNTIME) & (events.kind == Kind.SLICE) & ~marks
    nest = Nest.of(trace, np.flatnonzero(rows))
    if not len(nest.rows):
        return None
    innermost = np.ones(len(nest.rows), bool)
    innermost[nest.parent[nest.parent >= 0]] = False
    calls = nest.rows[innermost]
    recorded = np.array(hull, np.int64).reshape(-1, 2)
    pauses = subtraction(
        union(recorded[:, 0], recorded[:, 1]), union(events.start_ns[calls], events.ends(calls))
    )
    pauses = pauses[pauses[:, 1] - pauses[:, 0] >= _PAUSE_NS]
    if len(pauses) * _LAUNCHES_PER_PAUSE > len(work):
        return None
    idle = [intersection(gaps, pauses) for _, gaps in idle_gaps(trace, steps)]
    idle_pauses = np.concatenate([pauses[:0], *idle])
    free = slices_of(trace, OpClass.FREE)
    spans = np.stack((events.start_ns[free], events.ends(free)), axis=1)
    shared = length_within(union(idle_pauses[:, 0], idle_pauses[:, 1]), spans)
    shown = free[np.argsort(-shared, kind="stable")[:SLICES_KEPT]]
    shown = shown[np.sort(-shared)[: len(shown)] < 0]
    figures = {
        "pauses": len(np.unique(np.searchsorted(pauses[:, 1], idle_pauses[:, 0], "right"))),
        "longest_ns": int((pauses[:, 1] - pauses[:, 0]).max(initial=0)),
    }
    known_ns = int(steps.known_ns.sum())
    return lost(len(steps), total(idle_pauses), known_ns, IDLE, longest(trace, shown), figures)


# -- off the CPU --------------------------------------------------------------------------

_BLOCKING = (TrackKind.SYSTEM_CALLS, TrackKind.MESSAGES)
"""Kinds of tracks with calls that may block, besides those of the runtime."""
_ON = "other processes on from CPU (ns)"
"""An argument of slices off the CPU where every process of the machine was recorded."""
_NAMED = 5  # processes that a finding names at most
_SAID = {False: "not recorded", True: "not all recorded"}


class _Away(NamedTuple):
    """When threads that launch work are off the CPU and in no recorded call that may block.

    Attributes:
        rows:  their slices off the CPU.
        idle:  of each device, the part in which the device is idle within steps.
        others: the part in which another process ran on the CPU that a thread had lost or came
            back to; and ns of each run of one. None if no other process was recorded.
        whole: whether every process of the machine was recorded.
    """

    rows: NDArray[np.intp]
    idle: list[I64]
    others: tuple[I64, dict[int, int]] | None
    whole: bool

    def idle_within(self, spans: I64) -> int:
        """Idle time of the devices within some spans, ns."""
        return sum(total(intersection(idle, spans)) for idle in self.idle)


@once_each
def _away(trace: Trace, steps: StepTable) -> _Away | None:
    """None if slices off the CPU, or calls of the system, were not recorded."""
    events, lead = trace.events, leading(trace)
    kinds = [t.kind if leads else None for t, leads in zip(trace.tracks, lead, strict=True)]
    off = np.flatnonzero(np.array([k is TrackKind.OFF_CPU for k in kinds], bool)[events.track])
    if not len(steps) or not len(off) or TrackKind.SYSTEM_CALLS not in kinds:
        return None
    blocking = np.array([k in _BLOCKING for k in kinds], bool)[events.track]
    blocking |= trace.rows_of(Layer.RUNTIME) & lead[events.track]
    calls = np.flatnonzero(blocking & (events.kind == Kind.SLICE))
    away = subtraction(
        union(events.start_ns[off], events.ends(off)),
        union(events.start_ns[calls], events.ends(calls)),
    )
    idle = [intersection(gaps, away) for _, gaps in idle_gaps(trace, steps)]
    (other_process,) = fields(trace, off, _ON)
    in_place = _in_their_place(trace, off, merged(*idle))
    is_complete = bool(other_process.known.all())
    return _Away(
        off, idle, (away[:0], {}) if in_place is None and is_complete else in_place, is_complete
    )


def _in_their_place(
    trace: Trace, off: NDArray[np.intp], within: I64
) -> tuple[I64, dict[int, int]] | None:
    """The part of ``within`` in which another process ran on a CPU that one of the threads had
    lost or came back to: when, and ns of each run; None without tracks of other processes."""
    events, edges = trace.events, fields(trace, off, "from CPU", "to CPU")
    lanes: dict[str, list[int]] = {}  # several for a CPU where runs overlap
    for number, track in enumerate(trace.tracks):
        if track.kind is TrackKind.CPU:
            lanes.setdefault(str(track.device), []).append(number)
    if not lanes:
        return None
    ns_by_run: dict[int, int] = {}
    intervals = []
    for cpu, tracks_of_cpu in lanes.items():
        switches = off[edges[0].among(cpu) | edges[1].among(cpu)]
        free = intersection(within, union(events.start_ns[switches], events.ends(switches)))
        runs = np.flatnonzero(np.isin(events.track, tracks_of_cpu) & (events.kind == Kind.SLICE))
        spans = np.stack((events.start_ns[runs], events.ends(runs)), axis=1)
        intervals.append(intersection(free, union(spans[:, 0], spans[:, 1])))
        overlap_ns = length_within(free, spans)
        ns_by_run |= dict(
            zip(runs[overlap_ns > 0].tolist(), overlap_ns[overlap_ns > 0].tolist(), strict=True)
        )
    return merged(*intervals), ns_by_run


def _descheduled(trace: Trace) -> Known | None:
    """Idle time of the device while a thread that launches work is off the CPU and in no recorded
    call that may block."""
    steps, events = measured(trace.steps), trace.events
    away = _away(trace, steps)
    if not away:
        return None
    off, count = away.rows, len(steps)
    spans = np.stack((events.start_ns[off], events.ends(off)), axis=1)
    shared = length_within(merged(*away.idle), spans)
    moves = Texts.concat(fields(trace, off, "from CPU", "to CPU")).numbers().reshape(2, -1)
    within = inside(events.start_ns[off], union(steps.start_ns, steps.end_ns))
    ns = sum(map(total, away.idle))
    others_ns = 0 if away.others is None else away.idle_within(away.others[0])
    moved = int((within & (moves[0] != moves[1])).sum())
    figures: dict[str, Any] = {"switches_per_step": int(within.sum()) / count,
                               "moved_to_another_cpu_per_step": moved / count}  # fmt: skip
    if others_ns or away.whole:
        figures["while_another_process_ran_there_percent"] = float(share(others_ns, ns))
    if not away.whole:
        figures["other_processes"] = _SAID[away.others is not None]
    known_ns, shown = int(steps.known_ns.sum()), longest(trace, off[shared > 0])
    return lost(count, ns, known_ns, IDLE, shown, figures)


def _displaced(trace: Trace) -> Known | None:
    """The part of that in which another process ran in the thread's place, and its name. Only of
    ranks with all processes of the machine recorded, or one that did so."""
    steps, events = measured(trace.steps), trace.events
    away = _away(trace, steps)
    if not away or away.others is None:
        return None
    spans, ran = away.others
    ns, count = away.idle_within(spans), len(steps)
    if not ns and not away.whole:
        return None
    rows = np.array(list(ran), np.intp)
    ns_by_name: dict[str, int] = {}
    for row, length in ran.items():
        name = trace.strings[int(events.name[row])]
        ns_by_name[name] = ns_by_name.get(name, 0) + length
    by_length = sorted(ns_by_name.items(), key=lambda item: (-item[1], item[0]))
    names = [f"{name} {time_text(length / count)}" for name, length in by_length[:_NAMED]]
    has_overlap = length_within(spans, steps.device_spans) > 0
    figures = {
        "processes": len(by_length),
        "most_per_step": names,
        "runs_per_step": len(rows) / count,
    }
    figures |= {} if away.whole else {"other_processes": _SAID[True]}
    return lost(
        count, ns, int(steps.known_ns.sum()), IDLE, longest(trace, rows), figures,
        steps=steps.step[has_overlap].tolist()[:STEPS_KEPT], whole=away.whole,
    )  # fmt: skip


def _foreign(facts_by_rank: Mapping[int, Known], limits: Limits) -> list[Case] | None:
    """None if no rank is reported, and only some processes of one were recorded."""
    cases = [
        as_case(rank, facts) for rank, facts in facts_by_rank.items() if facts["value"] > limits[""]
    ]
    return cases if cases or all(facts["whole"] for facts in facts_by_rank.values()) else None


# -- sequences of short kernels -------------------------------------------------------------


class _Sequence(NamedTuple):
    """A repeated sequence of kernels: positions where it begins, its length, and the idle time
    between the kernels of all occurrences, ns."""

    at: NDArray[np.intp]
    length: int
    lost_ns: int


def _sequences(trace: Trace) -> Known | None:
    """The sequence of short kernels of one stream with most idle time between its kernels."""
    steps, events = measured(trace.steps), trace.events
    if not len(steps) or trace.hints.partial_device or trace.hints.tables_only:
        return None
    spans = steps.device_spans
    within = union(spans[:, 0], spans[:, 1])
    best, rows, has_kernels = _Sequence(np.zeros(0, np.intp), 0, 0), np.zeros(0, np.intp), False
    for device, gaps in idle_gaps(trace, steps):
        kernel_rows = device.kernels[inside(events.start_ns[device.kernels], within)]
        kernel_rows = kernel_rows[
            np.lexsort((events.start_ns[kernel_rows], events.track[kernel_rows]))
        ]
        has_kernels |= len(kernel_rows) > 0
        sequence = _repeated(trace, kernel_rows, gaps)
        if sequence.lost_ns > best.lost_ns:
            best, rows = sequence, kernel_rows
    if not has_kernels:
        return None
    example = rows[best.at[0] : best.at[0] + best.length] if best.length else rows[:0]
    names = [trace.strings[i][:60] for i in events.name[example].tolist()]
    figures: dict[str, Any] = {"kernels": names, "count": len(best.at)}
    if best.length:
        figures["between_ns"] = round(best.lost_ns / len(best.at))
    where = trace.tracks[int(events.track[example[0]])].name if best.length else ""
    return lost(len(steps), best.lost_ns, int(steps.known_ns.sum()), IDLE, longest(trace, example),
                figures, where=where)  # fmt: skip


def _repeated(trace: Trace, rows: NDArray[np.intp], gaps: I64) -> _Sequence:
    """The repeated sequence of kernels, by stream and start; occurrences do not share kernels."""
    events, best = trace.events, _Sequence(np.zeros(0, np.intp), 0, 0)
    start, end, name = events.start_ns[rows], events.ends(rows), events.name[rows]
    short = events.dur_ns[rows] < SHORT_NS
    follows = np.zeros(len(rows), bool)  # the kernel before, closely
    follows[1:] = short[1:] & short[:-1] & (events.track[rows][1:] == events.track[rows][:-1])
    follows[1:] &= (start[1:] >= end[:-1]) & (start[1:] - end[:-1] <= BOUND_NS)
    gap = np.zeros(len(rows), np.int64)  # idle time since that kernel
    next_gap = np.minimum(np.searchsorted(gaps[:, 1], start), max(len(gaps) - 1, 0))
    if len(gaps):
        idle = follows & (gaps[next_gap, 1] == start)
        idle[1:] &= gaps[next_gap, 0][1:] == end[:-1]
        gap[idle] = (start - gaps[next_gap, 0])[idle]
    if not gap.any():
        return best
    sums = np.cumsum(gap)
    streams = Groups.of(name.astype(np.int64), events.track[rows].astype(np.int64))
    key, valid = streams.spread(np.arange(len(streams))), np.arange(len(rows))
    for length in range(2, _LONGEST + 1):
        valid = valid[valid + length - 1 < len(rows)]
        valid = valid[follows[valid + length - 1]]
        if not len(valid):
            break
        groups = Groups.of(key[valid], name[valid + length - 1].astype(np.int64))
        key = np.zeros(len(rows), np.int64)
        key[valid] = groups.spread(np.arange(len(groups)))
        between = sums[valid + length - 1] - sums[valid]
        totals = np.where(groups.size >= _REPEATS, groups.total(between), 0)
        for number in np.argsort(-totals, kind="stable")[:_CANDIDATES].tolist():
            if totals[number] <= best.lost_ns:
                break
            occurrences = groups.order[groups.start[number] :][: groups.size[number]]
            apart = _without_shared(valid[occurrences], length)
            ns = int((sums[apart + length - 1] - sums[apart]).sum())
            if len(apart) >= _REPEATS and ns > best.lost_ns:
                best = _Sequence(apart, length, ns)
    return best


def _without_shared(positions: NDArray[np.intp], length: int) -> NDArray[np.intp]:
    """The positions that are at least ``length`` from the one kept before."""
    positions = np.sort(positions)
    if not len(positions) or (np.diff(positions) >= length).all():
        return positions
    chosen, previous = [], -length
    for position in positions.tolist():
        if position - previous >= length:
            chosen.append(position)
            previous = position
    return np.array(chosen, np.intp)


RULES: tuple[Rule, ...] = (
    Rule(
        "late-overlap",
        "Computing that could overlap communication is launched late",
        "communication",
        "share of the steps in which communication is exposed before a kernel that does not need "
        "it (it starts while the collective runs) and that the host launches only then",
        (Limit(2.0, "%", OWN),),
        "collectives, and launch flows to kernels, within steps",
        "The host launches work that does not depend on the collective too late: let it run "
        "ahead (fewer synchronisations, less work between launches, whole graphs).",
        _late,
    ),
    Rule(
        "host-pause",
        "The host pauses for 1 ms and more while the device is idle",
        THEME,
        "share of the steps in which the device is idle during pauses of the host of 1 ms and more",
        (Limit(2.0, "%", f"{OWN}; 1 ms is {MSPROF_ANALYZE}'s of collections"),),
        "operators of the host that launch nine of ten kernels, marked steps with device work, and "
        "at most one pause per 50 kernels: of others the host was not recorded as a whole",
        "Unrecorded work takes this time: Python code between operators, garbage collection, "
        "logging, files, or other load of the machine; record Python's stack, or collections "
        "(torch_npu: gc_detect_threshold), to tell these apart.",
        _paused,
        severity=FindingSeverity.NOTE,
    ),
    Rule(
        "off-cpu",
        "The thread that launches work is off the CPU while the device is idle",
        THEME,
        "share of the steps in which a launching thread is off the CPU outside of recorded calls "
        "that may block, while the device is idle",
        (Limit(2.0, "%", OWN),),
        "records of the scheduler and calls of the operating system (nsys --cpuctxsw, osrt)",
        "Look for other processes and for more threads than processors on this machine, and bind "
        "the process to dedicated processors near its device.",
        _descheduled,
    ),
    Rule(
        "foreign-process",
        "Another process runs where the launching thread did, while the device is idle",
        THEME,
        "share of the steps in which a launching thread is off the CPU outside of recorded calls "
        "that may block, another process runs on the CPU that it lost or comes back to, and the "
        "device is idle",
        (Limit(2.0, "%", OWN),),
        "records of the scheduler of every process of the machine, and calls of the operating "
        "system (nsys --cpuctxsw=system-wide, osrt)",
        "Bind the process to dedicated processors (cpusets, numactl, the job manager's binding), "
        "and give its workers, other ranks, daemons and other jobs the rest.",
        _displaced,
        _foreign,
    ),
    Rule(
        "kernel-sequence",
        "One sequence of short kernels repeats, with idle time between its kernels",
        THEME,
        "share of the steps that is idle between kernels of the sequence (of up to 8 kernels of "
        "less than 10 µs on one stream, at least 10 times)",
        (Limit(2.0, "%", f"{OWN}; the limit of short kernels is HTA's"),),
        "kernels of the device within steps",
        "Fuse these kernels where what they compute permits (a compiler, a fused operator, "
        "foreach), or launch them as a graph.",
        _sequences,
    ),
)
