"""Leave out events whose time stamps are damaged, and say which.

One broken stamp makes a timeline a year long, on which nothing can be seen, and all of it idle.
Profilers write 0 where the device recorded no time, for one kernel or for thousands of them. Such
events are in no timeline and in no figure; they are counted, and the first are named with their
distance from all others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traceconv.core.errors import Issues
from traceconv.core.model import I64, Mask, Trace

FAR_NS = 3_600_000_000_000
"""Nearer than an hour, nothing is far ..."""

FAR_SPANS = 10
"""... nor within this many times the span of all others."""

FEW = 100
"""One event in this many may be far at each end. More are a separate recording, unless all of them
have the same stamp."""

FEWEST = 8
"""Fewer events are not enough to determine the usual range."""

_FIRST_DAY, _UNIX = 86_400_000_000_000, 10**18
"""A stamp of the first day of 1970 is damaged if others are after 2001."""

Range = tuple[int, int]


def timestamp_outliers(trace: Trace) -> Trace:
    """The trace without events and samples whose stamps are damaged: at zero, or far from others.

    In every collection window they are compared with the others of that window, which then ends
    with those.

    Issues: far-stamp.
    """
    span = trace.span()
    if span is None or span[1] - span[0] <= FAR_NS:
        return trace
    events, samples, issues = trace.events, trace.counters, trace.issues.copy()
    borders = trace.windows[1:, 0]
    of_event = np.searchsorted(borders, events.start_ns, "right")
    of_sample = np.searchsorted(borders, samples.start_ns, "right")
    near, near_samples = np.ones(len(events), bool), np.ones(len(samples), bool)
    windows = trace.windows.copy()
    for number in range(len(borders) + 1):
        rows, ticks = np.flatnonzero(of_event == number), np.flatnonzero(of_sample == number)
        starts = np.concatenate((events.start_ns[rows], samples.start_ns[ticks]))
        if not len(starts):
            continue
        usual = _usual(starts)
        ends = events.ends(rows)
        near[rows] = ~(_outside(events.start_ns[rows], usual) | _outside(ends, usual))
        near_samples[ticks] = ~_outside(samples.start_ns[ticks], usual)
        kept = rows[near[rows]]
        if len(kept) < len(rows) and len(kept) and number < len(windows):
            first, last = events.start_ns[kept].min(), events.ends(kept).max()
            windows[number] = np.clip(windows[number], first, last)
        _book(trace, rows[~near[rows]], ticks[~near_samples[ticks]], usual, issues)
    if near.all() and near_samples.all():
        return trace
    return replace(trace.keep("damaged", near, near_samples), issues=issues, windows=windows)


def _usual(starts: I64) -> Range:
    """The range of starts without damaged ones, and without the first and the last few."""
    at = np.sort(starts)
    if at[-1] > _UNIX:
        at = at[np.abs(at) > _FIRST_DAY]
    at = at[~_alone(at)]
    few = max(1, len(at) // FEW)
    if len(at) < FEWEST:
        return int(at[0]), int(at[-1])
    return int(at[few]), int(at[-1 - few])


def _alone(at: I64) -> Mask:
    """Starts at either end of an ascending column that are equal and far from all others."""
    found = np.zeros(len(at), bool)
    first, last = np.searchsorted(at, at[0], "right"), np.searchsorted(at, at[-1], "left")
    for mine, rest in ((slice(0, first), at[first:]), (slice(last, None), at[:last])):
        if len(at[mine]) > 1 and len(rest) >= FEWEST:
            room = max(FAR_NS, FAR_SPANS * int(rest[-1] - rest[0]))
            found[mine] = np.abs(rest - at[mine][0]).min() > room
    return found


def _outside(ns: I64, usual: Range) -> NDArray[np.bool_]:
    room = max(FAR_NS, FAR_SPANS * (usual[1] - usual[0]))
    low, high = max(usual[0] - room, -(2**63)), min(usual[1] + room, 2**63 - 1)
    return (ns < low) | (ns > high)


def _book(trace: Trace, rows: I64, ticks: I64, usual: Range, issues: Issues) -> None:
    """Count events and samples that are far from the others, and place the first.

    Args:
        rows, ticks: of the table of events, and of that of counters.
    """
    events, samples, where = trace.events, trace.counters, trace.capture.title
    for row in rows[: issues.PLACES_KEPT].tolist():
        name = trace.strings[int(events.name[row])][:60]
        near = int(events.start_ns[row]), int(events.ends(row))
        issues.add("far-stamp", where, f"{name!r}, {_distance(near, usual)}", 1)
    for row in ticks[: issues.PLACES_KEPT].tolist():
        name, ns = trace.tracks[int(samples.track[row])].name, int(samples.start_ns[row])
        issues.add("far-stamp", where, f"{name!r}, {_distance((ns, ns), usual)}", 1)
    located = min(len(rows), issues.PLACES_KEPT) + min(len(ticks), issues.PLACES_KEPT)
    issues.add("far-stamp", where, count=len(rows) + len(ticks) - located)


def _distance(span: Range, usual: Range) -> str:
    """In words, from the nearest time that is not far."""
    if span[0] < usual[0]:
        return f"{(usual[0] - span[0]) / 1e9:.0f} s before the others"
    return f"{(max(span) - usual[1]) / 1e9:.0f} s after the others"
