"""The summary of a rank: its step trace and its overlap analysis."""

from __future__ import annotations

from traceconv.model import Layer, Trace


def summary(trace: Trace, scope: bool = False) -> Trace:
    """Only the step and overlap lanes; what goes is booked under "view". ``scope`` is of no use."""
    counters = trace.counters
    shown = trace.rows_of(Layer.STEP, Layer.OVERLAP)
    if shown.all() and not len(counters):
        return trace
    return trace.keep("view", shown, counters.track < 0)
