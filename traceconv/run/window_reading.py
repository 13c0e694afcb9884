"""The captures of one rank, read one by one, as one trace with a collection window each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import msgspec
import numpy as np

from traceconv.alignment.jobs import of_several_times
from traceconv.core.clock import Correction, Domain, time_text
from traceconv.core.columns import (
    BLOB_BITS,
    I64,
    Args,
    CounterTable,
    EventTable,
    FlowTable,
    Strings,
)
from traceconv.core.errors import Issues, TraceconvError
from traceconv.core.hints import Hints
from traceconv.core.intervals import union
from traceconv.core.model import Capture, Layer, OpClass, Trace, Track, arranged
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.side_tables import SideTable, joined_tables
from traceconv.find.capture_windows import NAME_THEM, twice
from traceconv.find.identity import contradiction
from traceconv.passes.places import Device, devices
from traceconv.passes.timestamp_outliers import timestamp_outliers

RUNS_APART_NS = 600_000_000_000
"""Between two windows with the same step numbers that may be of two runs."""

SAME_EVENTS = 0.5
"""Two captures record the same work if, in the time that both cover, more than this share of the
events of the one with fewer events has the same start and duration in both."""


def read_windows(capture: Capture, read: Callable[[Capture], Trace]) -> Trace:
    """The trace of a rank with several captures (``capture.parts``), in the order of time.

    A capture that cannot be read is counted as ``window-failed``, and the others are read.

    Args:
        read: the trace of one capture.

    Raises:
        TraceconvError: none of them can be read.
        RankError: two of them recorded the same events, or two processes at one time.
    """
    traces: list[Trace] = []
    failures: list[TraceconvError] = []
    issues = Issues()
    for part in capture.parts:
        try:
            traces.append(_on_clock(read(part), capture))
        except TraceconvError as e:
            failures.append(e)
            issues.add("window-failed", part.title, str(e)[:300])
    if not traces:
        raise failures[0]
    if not all(trace.hints.supplement for trace in traces):
        traces = [_beside_timeline(trace) for trace in traces]
    spans = {id(trace): _span(trace) for trace in traces}
    traces.sort(key=lambda trace: spans[id(trace)] or (np.iinfo(np.int64).max, 0))
    timelines = [trace for trace in traces if not trace.hints.supplement] or traces
    timed = [(span, trace) for trace in timelines if (span := spans[id(trace)]) is not None]
    _refuse_copies(timelines, timed)
    if runs := of_several_times((span, trace.capture) for span, trace in timed):
        issues.add("jobs-mixed", runs)
    else:
        _note_repeated_steps(timed, issues)
    issues.extend(issue for trace in traces for issue in trace.issues)
    return replace(joined(traces), capture=_described(capture, traces), issues=issues)


def _note_repeated_steps(timed: Sequence[tuple[tuple[int, int], Trace]], issues: Issues) -> None:
    """Count windows with a step number of the window before, which ended long before or is of
    another process: a run that goes on counts on."""
    for ((_, end), trace), ((start, _), later) in pairwise(timed):
        a, b = trace.capture, later.capture
        both = np.intersect1d(trace.events.step, later.events.step)
        both = both[both >= 0].tolist()
        if both and (start - end > RUNS_APART_NS or a.differs(b)):
            where = f"steps {format_ranges(both)} again {time_text(start - end)} after {a.title}"
            issues.add("steps-repeated", b.title, where)


def _beside_timeline(trace: Trace) -> Trace:
    """A trace that counts in no figure and whose times say nothing of windows, if it only
    supplements a timeline: that has recorded the same operations, or others of another time."""
    if not trace.hints.supplement:
        return trace
    events = trace.events
    op = np.where(events.op == OpClass.COMM, np.int8(OpClass.OTHER), events.op)
    return replace(trace, events=events.with_columns(op=op))


def _span(trace: Trace) -> tuple[int, int] | None:
    """First and last time of a trace; damaged stamps would make it overlap with all others."""
    return timestamp_outliers(trace).span()


def _on_clock(trace: Trace, capture: Capture) -> Trace:
    """``trace`` on the clock of the rank, which is that of its captures or Unix time."""
    from traceconv.alignment.plan import shift

    clock, common = trace.capture.clock, capture.clock
    if clock is None or common is None or clock.domain is common.domain is not Domain.RELATIVE:
        return trace
    return shift(trace, Correction(clock.offset_ns)) if clock.offset_ns else trace


def _described(capture: Capture, traces: Sequence[Trace]) -> Capture:
    """The rank's capture with what only reading has shown of its parts."""
    captures = [trace.capture for trace in traces]
    return replace(
        capture,
        host=next((c.host for c in captures if c.host), ""),
        device=next((c.device for c in captures if c.device >= 0), -1),
        pid=next((c.pid for c in captures if c.pid >= 0), -1),
        graphs=tuple(sorted({graph for c in captures for graph in c.graphs})),
        parts=tuple(captures),
    )


# -- windows or copies ------------------------------------------------------------------------


def _refuse_copies(traces: Sequence[Trace], timed: Sequence[tuple[tuple[int, int], Trace]]) -> None:
    """Raise RankError if two captures cannot be windows of one rank.

    Args:
        timed: those that have events, with their first and last time.
    """
    working = [trace for trace in traces if (trace.events.op == OpClass.COMPUTE).any()]
    for trace, later in combinations(working, 2):
        if trace.hints.vendor != later.hints.vendor:
            a, b = trace.capture, later.capture
            kinds = (_DEVICES[trace.hints.vendor == "ascend"] for trace in (trace, later))
            why = "one ran on {}, the other on {}".format(*kinds)
            raise twice(a, b, why, _choices(a, b))
    for trace, later in pairwise(traces):  # by their names
        a, b = trace.capture, later.capture
        if a.reader == b.reader and (why := contradiction(a, None, b, None)):
            raise twice(a, b, why, NAME_THEM)
    for ((low, high), trace), ((start, end), later) in combinations(timed, 2):
        if min(high, end) > max(low, start):
            _refuse_copy(trace, later, max(low, start), min(high, end))


def _refuse_copy(trace: Trace, later: Trace, low: int, high: int) -> None:
    """Refuse two captures that overlap in time and hold the same events."""
    events_in_overlap, later_events = (
        trace.events.take(
            (trace.events.start_ns >= low)
            & (trace.events.start_ns <= high)
            & (trace.events.dur_ns > 0)
        )
        for trace in (trace, later)
    )
    a, b = trace.capture, later.capture
    if len(events_in_overlap) and len(later_events):  # else their times alone decide
        if a.reader != b.reader:
            why = f"both recorded the same {(high - low) / 1e6:.3f} ms, in two formats"
            raise twice(a, b, why, _choices(a, b))
        equal = len(np.intersect1d(_identity(events_in_overlap), _identity(later_events)))
        if equal > SAME_EVENTS * min(len(events_in_overlap), len(later_events)):
            raise twice(a, b, f"{equal} of their events are the same")
    if a.reader == b.reader and (why := contradiction(a, _span(trace), b, _span(later))):
        raise twice(a, b, why, NAME_THEM)


_DEVICES = ("a GPU", "an NPU")


def _choices(a: Capture, b: Capture) -> str:
    """What to do about two captures of different readers."""
    choices = f'`reader="{a.reader}"` or `reader="{b.reader}"`'
    return f"Choose one with {choices}, or name one of them only."


def _identity(events: EventTable) -> I64:
    """A number for every start and length; wraps around, as hashes do."""
    return events.start_ns * 1_000_003 ^ events.dur_ns


# -- one trace of several ---------------------------------------------------------------------


def joined(traces: Sequence[Trace]) -> Trace:
    """The rows, tables and windows of several traces of one rank, as one trace.

    Counts are added up. A trace without windows becomes one window from its first to its last
    event. Tables of one name are below each other, in the order of windows.
    """
    if len(traces) == 1:
        return replace(traces[0], windows=_windows(traces))
    strings = Strings()
    tables = [_renumbered(traces, number, strings) for number in range(len(traces))]
    events, counters, flows = zip(*tables, strict=True)
    ledger: Counter[tuple[str, str]] = Counter()
    side_tables: dict[str, list[SideTable]] = {}
    for trace in traces:
        for key, rows in trace.ledger.items():
            ledger[key] += rows
        for name, table in trace.side_tables.items():
            side_tables.setdefault(name, []).append(table)
    return arranged(
        replace(
            traces[0],
            tracks=_by_device([track for trace in traces for track in trace.tracks]),
            strings=strings,
            events=EventTable.concat(events),
            counters=CounterTable.concat(counters),
            flows=FlowTable.concat(flows),
            args=_args([trace.args for trace in traces]),
            windows=_windows(traces),
            ledger=dict(ledger),
            hints=_hints([trace.hints for trace in traces]),
            notes={key: v for trace in reversed(traces) for key, v in trace.notes.items()},
            side_tables={
                name: tables_of_name[0]
                if len(tables_of_name) == 1
                else joined_tables(tables_of_name)
                for name, tables_of_name in side_tables.items()
            },
        )
    )


def _by_device(tracks: Sequence[Track]) -> tuple[Track, ...]:
    """Tracks of devices in a group each, as where one capture has several devices."""
    if len(devices(tracks)) < 2:
        return tuple(tracks)
    return tuple(
        msgspec.structs.replace(track, group=track.group or Device.of(track).heading)
        if track.layer in (Layer.DEVICE, Layer.COMM)
        else track
        for track in tracks
    )


def _renumbered(
    traces: Sequence[Trace], number: int, strings: Strings
) -> tuple[EventTable, CounterTable, FlowTable]:
    """The tables of one trace as they refer to what all traces have."""
    trace, before = traces[number], traces[:number]
    track, row, args = (
        np.int32(sum(len(getattr(t, name)) for t in before))
        for name in ("tracks", "events", "args")
    )
    name = np.array([strings.intern(text) for text in trace.strings] or [0], np.int32)
    events, flows = trace.events, trace.flows
    return (
        events.with_columns(
            track=events.track + track,
            name=name[events.name],
            args=np.where(events.args < 0, np.int32(-1), events.args + args),
        ),
        trace.counters.with_columns(track=trace.counters.track + track),
        flows.with_columns(src=flows.src + row, dst=flows.dst + row, name=name[flows.name]),
    )


def _args(tables: Sequence[Args]) -> Args:
    blobs: list[Any] = []
    address = []
    for args in tables:
        address.append(args.address + (len(blobs) << BLOB_BITS))
        blobs += args.blobs
    return Args(
        tuple(blobs), np.concatenate(address), np.concatenate([args.length for args in tables])
    )


def _windows(traces: Sequence[Trace]) -> I64:
    traces = [trace for trace in traces if not trace.hints.supplement] or traces
    recorded = [trace.windows for trace in traces if len(trace.windows)]
    alone = [_span(trace) for trace in traces if not len(trace.windows)]
    recorded += [np.array([span], np.int64) for span in alone if span is not None]
    bounds = np.concatenate(recorded) if recorded else np.empty((0, 2), np.int64)
    return union(bounds[:, 0], bounds[:, 1])


def _hints(hints_of_parts: Sequence[Hints]) -> Hints:
    """What any of them says; where two say different things, the first counts. Only of tables
    without a timeline is what all are."""
    merged: dict[str, Any] = {}
    for name in Hints.__struct_fields__:
        values = [value for hints in hints_of_parts if (value := getattr(hints, name))]
        if not values or isinstance(values[0], str | bool):
            merged |= {name: values[0]} if values else {}
        elif isinstance(values[0], list):
            merged[name] = list(dict.fromkeys(item for value in values for item in value))
        else:
            merged[name] = {key: v for value in reversed(values) for key, v in value.items()}
    scopes = dict.fromkeys(scope for hints in hints_of_parts for scope in hints.cpu_percent)
    percent = {
        s: [percentage for h in hints_of_parts for percentage in h.cpu_percent.get(s, ())]
        for s in scopes
    }
    of_all = ("tables_only", "supplement")  # else there is a timeline to measure
    alone = {name: all(getattr(h, name) for h in hints_of_parts) for name in of_all}
    return msgspec.structs.replace(Hints(**merged), cpu_percent=percent, **alone)
