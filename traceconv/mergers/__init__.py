"""Mergers: passes from one trace to another. A pass is a function; parameters via ``partial``.

The passes know nothing of each other; this module is the one place that puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from traceconv.errors import SelectionError
from traceconv.mergers.attribution import attribution
from traceconv.mergers.detail import detail
from traceconv.mergers.far_stamps import far_stamps
from traceconv.mergers.lanes import lanes
from traceconv.mergers.select import by_graph, by_layer, by_name, by_step
from traceconv.mergers.summary import summary
from traceconv.model import Trace

Pass = Callable[[Trace], Trace]

VIEWS: dict[str, Callable[..., Trace]] = {"summary": summary, "detail": detail}
"""What a view keeps; each takes a trace and ``scope`` (whether module scopes are wanted)."""


def compose(
    mode: str | None,
    *,
    graphs: Collection[int] | None = None,
    merge_graphs: bool = True,
    steps: Collection[int] | None = None,
    layers: Collection[str] | None = None,
    exclude: str | None = None,
    scope: bool = False,
) -> list[Pass]:
    """The passes that make a view of one rank, in order.

    Graphs are chosen first, so that steps and overlap are those of the chosen graphs. All other
    choices come after the overlap analysis: they narrow what is shown, never what is counted.

    Args:
        mode:   a key of :data:`VIEWS`; None for what the source holds, with nothing derived:
            no steps and no overlap are made, the source's own stay.
        graphs: graph ids to keep; None = all.
        merge_graphs: one lane of steps for all graphs, or one lane each.
        steps:  step numbers to keep; None = all.
        layers: names of :class:`~traceconv.model.Layer` to keep; None = those of the view.
        exclude: regular expression; events whose name it finds are left out.
        scope:  show module scopes, made from the operators' names if need be (detail only).

    Raises:
        SelectionError: an unknown view or layer, or a broken regular expression.
    """
    if mode is not None and mode not in VIEWS:
        raise SelectionError(f"no view {mode!r}; there are {', '.join(VIEWS)}")
    passes: list[Pass] = []
    if mode == "detail":
        from traceconv.mergers.kernel_args import kernel_args
        from traceconv.mergers.sheet_counters import sheet_counters

        passes += [kernel_args, sheet_counters]
    passes += [far_stamps, partial(by_graph, wanted=graphs)]
    if mode is not None:
        from traceconv.mergers.steps import steps as step_trace

        passes.append(partial(step_trace, merge_graphs=merge_graphs))
    passes.append(attribution)
    if mode is not None:
        from traceconv.mergers.overlap import overlap

        passes.append(overlap)
    if steps is not None:
        passes.append(partial(by_step, wanted=steps))
    if scope and mode == "detail":
        from traceconv.mergers.projection import projection
        from traceconv.mergers.scopes import scopes

        passes += [scopes, projection]
    if layers is not None:
        passes.append(by_layer(layers))
    if exclude:
        passes.append(by_name(exclude))
    if mode is not None:
        passes.append(partial(VIEWS[mode], scope=scope))
    return [*passes, lanes]
