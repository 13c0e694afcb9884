"""Passes: functions from one trace to another; their parameters are bound by ``partial``.

The passes do not depend on each other; only this module puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from traceconv.core.errors import SelectionError
from traceconv.core.model import Layer, Trace
from traceconv.passes.attribution import attribution
from traceconv.passes.lanes import lanes
from traceconv.passes.select import by_graph, by_layer, by_name, by_step, without_zero_counters
from traceconv.passes.timestamp_outliers import timestamp_outliers


def summary(trace: Trace, scope: bool = False) -> Trace:
    """The summary of a rank: its step trace and its overlap analysis.

    Rows that are left out are counted under "view". ``scope`` has no effect.
    """
    counters = trace.counters
    shown = trace.rows_of(Layer.STEP, Layer.OVERLAP)
    if shown.all() and not len(counters):
        return trace
    return trace.keep("view", shown, counters.track < 0)


def detail(trace: Trace, scope: bool = False) -> Trace:
    """The detail of a rank: the summary and every hardware stream, communication plane, host and
    runtime call and counter; module scopes only with ``scope``.

    Rows that are left out are counted under "view".
    """
    hidden = trace.rows_of() if scope else trace.rows_of(Layer.SCOPE)
    return trace.keep("view", ~hidden) if hidden.any() else trace


Pass = Callable[[Trace], Trace]

VIEWS: dict[str, Callable[..., Trace]] = {"summary": summary, "detail": detail}
"""The views; each takes a trace and ``scope`` (whether module scopes are shown)."""


def compose(
    mode: str | None,
    *,
    graphs: Collection[int] | None = None,
    merge_graphs: bool = True,
    step_marker: str | None = None,
    steps: Collection[int] | None = None,
    layers: Collection[str] | None = None,
    exclude: str | None = None,
    scope: bool = False,
    queues: bool = False,
    zero_counters: bool = True,
) -> list[Pass]:
    """The passes that make a view of one rank, in order.

    Graphs are selected first, so that steps and overlap are those of the selected graphs. All
    other selections come after the overlap analysis: they narrow what is shown, never what is
    counted.

    Args:
        mode:   a key of :data:`VIEWS`; None keeps the source as it is: no steps and no overlap are
            derived, the source's own are kept.
        graphs: graph ids to keep; None = all.
        merge_graphs: one track of steps for all graphs, or one per graph.
        step_marker: regular expression; the host slices whose name it matches are the steps, even
            if ``mode`` derives none. See :func:`traceconv.passes.steps.steps`.
        steps:  step numbers to keep; None = all.
        layers: names of :class:`~traceconv.core.model.Layer` to keep; None = those of the view.
        exclude: regular expression; events whose name contains a match are left out.
        scope:  show module scopes, if need be derived from operator names (detail only).
        queues: count the tasks that wait on each stream (detail only).
        zero_counters: keep counters that are zero throughout (detail only).

    Raises:
        SelectionError: an unknown view or layer, or a broken regular expression.
    """
    if mode is not None and mode not in VIEWS:
        raise SelectionError(f"no view {mode!r}; choose from {', '.join(VIEWS)}")
    passes: list[Pass] = []
    if mode == "detail":
        from traceconv.passes.graph_replays import graph_replays
        from traceconv.passes.kernel_args import kernel_args
        from traceconv.passes.table_counters import side_table_counters

        passes += [kernel_args, graph_replays, side_table_counters]
    if mode is not None:  # the view source keeps what the files hold
        from traceconv.passes.host_work import host_work

        passes += [timestamp_outliers, host_work]
    passes.append(partial(by_graph, selected=graphs))
    if mode is not None or step_marker:
        from traceconv.passes.steps import steps as step_trace

        passes.append(partial(step_trace, merge_graphs=merge_graphs, step_marker=step_marker))
    passes.append(attribution)
    if mode is not None:
        from traceconv.passes.forward_backward import forward_backward
        from traceconv.passes.input_wait import input_wait
        from traceconv.passes.overlap import overlap

        passes += [forward_backward, overlap, input_wait]
    if steps is not None:
        passes.append(partial(by_step, selected=steps))
    if scope and mode == "detail":
        from traceconv.passes.projection import projection
        from traceconv.passes.scopes import scopes

        passes += [scopes, projection]
    if queues and mode == "detail":
        from traceconv.passes.queue_length import queue_length

        passes.append(queue_length)
    if layers is not None:
        passes.append(by_layer(layers))
    if exclude:
        passes.append(by_name(exclude))
    if mode is not None:
        passes.append(partial(VIEWS[mode], scope=scope))
    if mode == "detail" and not zero_counters:
        passes.append(without_zero_counters)
    return [*passes, lanes]
