"""Report events so far from all others that their time stamps are implausible.

One broken stamp makes a timeline a year long, on which nothing can be seen. Such events are kept,
for they may be right; they are counted, and the first are reported with their distance, which is
what a window of time needs to leave them out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traceconv.core.errors import Issues
from traceconv.core.model import I64, Trace

FAR_NS = 3_600_000_000_000
"""Nearer than an hour, nothing is far ..."""

FAR_SPANS = 10
"""... nor within so many times what all others span."""

FEW = 100
"""At each end, one event in so many may be far; more are a recording of their own."""

FEWEST = 8
"""Fewer events are not enough to determine the usual range."""

Range = tuple[int, int]
Rows = NDArray[np.intp]


def timestamp_outliers(trace: Trace) -> Trace:
    """The same trace, with an issue for events and samples that stretch its timeline.

    In every collection window they are compared with the others of that window.
    """
    span = trace.span()
    if span is None or span[1] - span[0] <= FAR_NS:
        return trace
    issues = trace.issues.copy()
    borders = trace.windows[1:, 0]
    of_event = np.searchsorted(borders, trace.events.start_ns, "right")
    of_sample = np.searchsorted(borders, trace.counters.start_ns, "right")
    for window in range(len(borders) + 1):
        _book(
            trace, np.flatnonzero(of_event == window), np.flatnonzero(of_sample == window), issues
        )
    return replace(trace, issues=issues)


def _book(trace: Trace, rows: Rows, ticks: Rows, issues: Issues) -> None:
    """Count those of some events and samples that are far from most of them, and place the first.

    Args:
        rows, ticks: of the table of events, and of that of counters.
    """
    events, samples = trace.events, trace.counters
    starts = np.concatenate((events.start_ns[rows], samples.start_ns[ticks]))
    if not len(starts):
        return
    usual, where = _usual(starts), trace.capture.title
    rows = rows[_outside(events.start_ns[rows], usual) | _outside(events.ends(rows), usual)]
    ticks = ticks[_outside(samples.start_ns[ticks], usual)]
    for row in rows[: issues.PLACES_KEPT].tolist():
        name = trace.strings[int(events.name[row])][:60]
        near = int(events.start_ns[row]), int(events.ends(row))
        issues.add("far-stamp", where, f"{name!r}, {_distance(near, usual)}", 1)
    for row in ticks[: issues.PLACES_KEPT].tolist():
        name, ns = trace.tracks[int(samples.track[row])].name, int(samples.start_ns[row])
        issues.add("far-stamp", where, f"{name!r}, {_distance((ns, ns), usual)}", 1)
    located = min(len(rows), issues.PLACES_KEPT) + min(len(ticks), issues.PLACES_KEPT)
    issues.add("far-stamp", where, count=len(rows) + len(ticks) - located)


def _usual(starts: I64) -> Range:
    """The range of starts without the first and the last few, which may be outliers."""
    few = max(1, len(starts) // FEW)
    if len(starts) < FEWEST:
        return int(starts.min()), int(starts.max())
    low, high = np.partition(starts, (few, len(starts) - 1 - few))[[few, -1 - few]]
    return int(low), int(high)


def _outside(ns: I64, usual: Range) -> NDArray[np.bool_]:
    room = max(FAR_NS, FAR_SPANS * (usual[1] - usual[0]))
    low, high = max(usual[0] - room, -(2**63)), min(usual[1] + room, 2**63 - 1)
    return (ns < low) | (ns > high)


def _distance(span: Range, usual: Range) -> str:
    """In words, from the nearest time that is not far."""
    if span[0] < usual[0]:
        return f"{(usual[0] - span[0]) / 1e9:.0f} s before the others"
    return f"{(max(span) - usual[1]) / 1e9:.0f} s after the others"
