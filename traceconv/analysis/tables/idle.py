"""Tables of idle intervals of devices, with their causes, and of launches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import (
    NOTHING,
    TIMED,
    Column,
    Ranked,
    Table,
    grouped,
    ordered,
    stacked,
    texts,
    timed,
)
from traceconv.analysis.tables.fields import is_ascend, names_of
from traceconv.analysis.tables.groups import Groups, mean, share
from traceconv.analysis.tables.host import (
    COLLECTION,
    SYNCHRONISATION,
    kernels,
    launches,
    leading_rows,
)
from traceconv.analysis.tables.texts import Texts
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import I64, Mask, once_each
from traceconv.core.intervals import intersection, length_within, merged, subtraction, union
from traceconv.core.model import Covered, Kind, Layer, OpClass, Trace
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.passes.input_wait import input_spans
from traceconv.passes.overlap import DeviceTime, device_times
from traceconv.passes.queue_length import queues

GAPS_KEPT = 1000
"""Longest idle intervals of a rank that are listed."""

FULL = 1024
"""Launches that a stream of CUDA holds before calls wait (Holistic Trace Analysis)."""

CAUSES = ("input", "garbage collection", "synchronisation", "late launch", "copy", "dependency",
          "unknown")  # fmt: skip
_INPUT, _COLLECTION, _SYNCHRONISATION, _LATE, _COPY, _DEPENDENCY, _UNKNOWN = range(len(CAUSES))


@once_each
def _gaps(trace: Trace) -> tuple[I64, I64, I64, I64, NDArray[np.intp]]:
    """Idle intervals in the steps, of all devices: (n, 2) start and end, step, device, cause, and
    the row of the work that ends each (-1 if none does)."""
    steps = measured(trace.steps)
    steps = steps.take(steps.covered == Covered.TIMELINE)
    devices = device_times(trace) if len(steps) and not trace.hints.partial_device else []
    gaps = [_of_device(trace, device_time, steps.device_spans) for device_time in devices]
    if not gaps:
        none = np.zeros(0, np.int64)
        return np.zeros((0, 2), np.int64), none, none, none, np.zeros(0, np.intp)
    spans, i_step, cause, row = (np.concatenate(column) for column in zip(*gaps, strict=True))
    device_of_track = np.array([track.device for track in trace.tracks], np.int64)
    rows = [np.concatenate((d.kernels, d.calls, d.copies, d.unclassified_tasks)) for d in devices]
    numbers = [
        int(device_of_track[trace.events.track[rows_of_device[0]]]) if len(rows_of_device) else -1
        for rows_of_device in rows
    ]
    device = np.repeat(numbers, [len(gaps_of_device[0]) for gaps_of_device in gaps])
    return spans, steps.step[i_step].astype(np.int64), device, cause, row


def idle_of(trace: Trace, device_time: DeviceTime) -> I64:
    """When a device does nothing; copies of NPUs are idle time, as the vendor counts."""
    busy = merged(device_time.computing, device_time.exposed, device_time.unclassified)
    if not is_ascend(trace):
        busy = merged(busy, device_time.copying)
    return subtraction(device_time.known, busy)


def _of_device(
    trace: Trace, device_time: DeviceTime, steps: I64
) -> tuple[I64, NDArray[np.intp], I64, NDArray[np.intp]]:
    events = trace.events
    idle = intersection(idle_of(trace, device_time), union(*steps.T))
    i_step = np.maximum(np.searchsorted(steps[:, 0], idle[:, 0], "right") - 1, 0)
    rows = np.concatenate(
        (device_time.kernels, device_time.calls, device_time.copies, device_time.unclassified_tasks)
    )
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    # boundaries from the profiler's own lanes may be 1 ns before a row
    after = np.searchsorted(events.start_ns[rows], idle[:, 1] - 1)
    row = np.append(rows, -1)[np.minimum(after, len(rows))]
    calls = launches(trace)
    launched = np.full(len(events) + 1, -1, np.int64)  # the last one is row -1
    launched[calls.device] = calls.time_ns
    time = launched[row]
    cause = np.where(time < 0, _UNKNOWN, np.where(time >= idle[:, 0], _LATE, _DEPENDENCY))
    synchronising, collections = _calls(trace)
    waiting = length_within(synchronising, np.stack((idle[:, 0], idle[:, 0] + 1), 1))
    cause[(cause == _LATE) & (waiting > 0)] = _SYNCHRONISATION
    if is_ascend(trace):
        cause[(cause == _DEPENDENCY) & _fills(device_time.copying, idle)] = _COPY
    cause[_fills(collections, idle)] = _COLLECTION
    cause[_fills(input_spans(trace), idle)] = _INPUT
    return idle, i_step, cause.astype(np.int64), row.astype(np.intp)


@once_each
def _calls(trace: Trace) -> tuple[I64, I64]:
    """When threads that launch work synchronise, and when they collect garbage."""
    events = trace.events
    synchronising, collections = (
        union(events.start_ns[rows], events.ends(rows))
        for rows in (
            leading_rows(trace, SYNCHRONISATION, Layer.RUNTIME),
            leading_rows(trace, COLLECTION, Layer.HOST, Layer.RUNTIME),
        )
    )
    return synchronising, collections


def _fills(spans: I64, idle: I64) -> Mask:
    """Whether the spans take most of each interval."""
    is_filled: Mask = 2 * length_within(spans, idle) > idle[:, 1] - idle[:, 0]
    return is_filled


def _idle_facts(trace: Trace) -> Columns:
    spans, _, _, cause, _ = _gaps(trace)
    if not len(spans):
        return NOTHING
    return grouped(spans[:, 1] - spans[:, 0], {"Cause": Texts(CAUSES, cause)})


def _step_facts(trace: Trace) -> Columns:
    spans, step, _, cause, _ = _gaps(trace)
    if not len(spans):
        return NOTHING
    causes = Texts(CAUSES, cause)
    keys = {"Step": np.where(step < 0, ABSENT, step), "Cause": causes}
    return grouped(spans[:, 1] - spans[:, 0], keys)


def _steps(ranked: Ranked) -> Columns:
    rows = timed(ranked, within=("Step",))
    return ordered(rows, rows["Step"], -rows["Total Time(ns)"])


def _gap_facts(trace: Trace) -> Columns:
    spans, step, device, cause, row = _gaps(trace)
    if not len(spans):
        return NOTHING
    length = spans[:, 1] - spans[:, 0]
    longest = np.argsort(-length, kind="stable")[:GAPS_KEPT]
    return {
        "Step": np.where(step[longest] < 0, ABSENT, step[longest]),
        "Device": np.where(device[longest] < 0, ABSENT, device[longest]),
        "Start Time(ns)": spans[longest, 0],
        "Length(ns)": length[longest],
        "Cause": Texts(CAUSES, cause[longest]).column(),
        "Before": names_of(trace, row[longest]).column(),
    }


def _listed(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    return ordered(rows, -rows["Length(ns)"])


def _launch_facts(trace: Trace) -> Columns:
    """Kernels with the runtime call that launched each."""
    events, flows = trace.events, trace.flows
    is_kernel = np.zeros(len(events), bool)
    is_kernel[kernels(trace, OpClass.COMPUTE, OpClass.UNCLASSIFIED)] = True
    launching = flows.take(trace.rows_of(Layer.RUNTIME)[flows.src] & is_kernel[flows.dst])
    launching = launching.take(events.kind[launching.src] == Kind.SLICE)
    if not len(launching):
        return NOTHING
    _, first = np.unique(launching.dst, return_index=True)
    call, kernel = launching.src[first], launching.dst[first]
    length = events.dur_ns[kernel]
    groups = Groups.of(events.name[kernel])
    queue = np.maximum(events.start_ns[kernel] - events.ends(call), 0)
    return {
        "Kernel": names_of(trace, kernel[groups.first]).column(),
        **groups.measured(length),
        "API Total(ns)": groups.total(events.dur_ns[call]),
        "Queue Total(ns)": groups.total(queue),
        "Short": groups.total((events.dur_ns[call] > length).astype(np.int64)),
    }


def _launches(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    return {
        **rows,
        "API Avg Time(ns)": mean(rows["API Total(ns)"], rows["Count"]),
        "Queue Avg Time(ns)": mean(rows["Queue Total(ns)"], rows["Count"]),
        "Launch Bound(%)": share(rows["Short"], rows["Count"]),
    }


def _queue_facts(trace: Trace) -> Columns:
    found_queues = list(queues(trace))
    if not found_queues:
        return NOTHING
    spans = [int(time[-1] - time[0]) for _, time, _, _ in found_queues]
    waits = [int((np.diff(time) * length[:-1]).sum()) for _, time, length, _ in found_queues]
    return {
        "Device": np.array([t.device if t.device >= 0 else ABSENT for t, *_ in found_queues]),
        "Stream": texts([track.name for track, *_ in found_queues]),
        "Launches": np.array([n for *_, n in found_queues], np.int64),
        "Max Length": np.array([length.max() for _, _, length, _ in found_queues], np.int64),
        "Mean Length": np.array(waits) / np.maximum(spans, 1),
        "Full Time(ns)": np.array(
            [np.diff(time)[length[:-1] >= FULL].sum() for _, time, length, _ in found_queues],
            np.int64,
        ),
    }


_FORMULA = (
    "Intervals within steps in which a device does nothing, by the first cause that applies. input "
    "= waiting for input takes most of the interval. garbage collection = that of Python does, on "
    "a thread that launches work. synchronisation = as late launch, and the interval begins while "
    "such a thread waits for the device in a call of the runtime. late launch = the call that "
    "launches the work after it begins in the interval or later: the host was late. copy = copies "
    "take most of the interval: on NPUs copies are idle time. dependency = the work after it was "
    "launched before: it waited for another stream or an event. unknown = no launch was recorded. "
    "Waiting in a collective is exposed communication, not idle time: see collective_wait."
)

TABLES: Sequence[Table] = (
    Table(
        "idle",
        "Idle time by cause",
        f"{_FORMULA} Count, Total, Min, Avg, Max of lengths; Ratio = Total / idle time of the "
        "rank.",
        "device work in steps",
        Column.parse(f"Rank, Cause:text, {TIMED}"),
        _idle_facts,
    ),
    Table(
        "idle_step",
        "Idle time by step and cause",
        "As the table idle, by step; Ratio = Total / idle time of the step.",
        "device work in steps",
        Column.parse(f"Rank, Step, Cause:text, {TIMED}"),
        _step_facts,
        _steps,
        capped=True,
    ),
    Table(
        "idle_gap",
        "The longest idle intervals",
        f"Up to {GAPS_KEPT} of a rank: step, device, start, length, cause as in the table idle, "
        "and the work that ends it.",
        "device work in steps",
        Column.parse("Rank, Step, Device, Start Time(ns), Length(ns), Cause:text, Before:text"),
        _gap_facts,
        _listed,
        capped=True,
    ),
    Table(
        "launch",
        "Launches: API, queue and kernel time",
        "Kernels with a recorded launch, by name: Count; Total, Min, Avg, Max of kernel durations; "
        "Ratio = Total / sum of Totals. API Avg = mean duration of the runtime call. Queue Avg = "
        "mean time from its end to the start of the kernel, 0 where the kernel starts before. "
        "Launch Bound = share of launches whose kernel is shorter than its runtime call.",
        "device work with launch flows from runtime calls",
        Column.parse(
            f"Rank, Kernel:text, {TIMED}, API Avg Time(ns), Queue Avg Time(ns), Launch Bound(%)"
        ),
        _launch_facts,
        _launches,
        capped=True,
    ),
    Table(
        "launch_queue",
        "Length of the queue of each stream",
        "Tasks of a stream that wait: from the start of the runtime call that launches them to "
        "their own start. Launches = tasks; Max and Mean Length = of the number that waits, the "
        f"mean over time; Full Time = how long at least {FULL} wait, which is where CUDA's calls "
        "begin to block.",
        "device work with launch flows from runtime calls",
        Column.parse(
            "Rank, Device, Stream:text, Launches, Max Length, Mean Length:float, Full Time(ns)"
        ),
        _queue_facts,
        capped=True,
    ),
)  # fmt: skip
