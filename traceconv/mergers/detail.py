"""The detail of a rank: the summary and every hardware stream, communication plane, host and
runtime call and counter; module scopes only if asked for."""

from __future__ import annotations

from traceconv.model import Layer, Trace


def detail(trace: Trace, scope: bool = False) -> Trace:
    """Everything, or everything but the scope lanes. What goes is booked under "view"."""
    hidden = trace.rows_of() if scope else trace.rows_of(Layer.SCOPE)
    return trace.keep("view", ~hidden) if hidden.any() else trace
