"""Leave out events whose time stamps are damaged, and say which.

One broken stamp makes a timeline a year long, on which nothing can be seen, and all of it idle.
Profilers write 0 where the device recorded no time, for one kernel or for thousands of them. Such
events are in no timeline and in no figure; they are counted, and the first are named with their
distance from all others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceconv.core.errors import Issues
from traceconv.core.model import I64, Trace
from traceconv.core.robust import FAR_NS, Range, far_from, usual_range


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
        usual = usual_range(starts)
        ends = events.ends(rows)
        near[rows] = ~(far_from(events.start_ns[rows], usual) | far_from(ends, usual))
        near_samples[ticks] = ~far_from(samples.start_ns[ticks], usual)
        sound = rows[near[rows]]
        if len(sound) < len(rows) and len(sound) and number < len(windows):
            first_ns, last_ns = events.start_ns[sound].min(), events.ends(sound).max()
            windows[number] = np.clip(windows[number], first_ns, last_ns)
        _book(trace, rows[~near[rows]], ticks[~near_samples[ticks]], usual, issues)
    if near.all() and near_samples.all():
        return trace
    return replace(trace.keep("damaged", near, near_samples), issues=issues, windows=windows)


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
