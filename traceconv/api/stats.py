"""Tables of the ranks: steps, overlap, operators, kernels, communication, memory and more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

import numpy as np

from traceconv.alignment import plan as clocks
from traceconv.analysis.inferred_shape import job_shape
from traceconv.analysis.summarize import SummaryRequest
from traceconv.analysis.tables import catalog as tables
from traceconv.analysis.tables.catalog import Statistics
from traceconv.api.arrangement import Arrangement, Matching, arranged, matching
from traceconv.api.reading import Window, bounds, opened, shared_clock
from traceconv.core.model import Trace
from traceconv.find.rank_selection import refuse_missing, refuse_unknown_axes
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.verbs import StatsOptions
from traceconv.passes.select import time_window
from traceconv.run.summaries import Summarizing, found_numbers

if TYPE_CHECKING:
    from traceconv.options.arguments import StatsArguments


@takes(StatsOptions)
def stats(*paths: values.Paths, **keywords: Unpack[StatsArguments]) -> Statistics:
    """Tables of the ranks found below ``paths``.

    Tables that repeat the profiler's own files (memory records, data pipeline, FLOPs) are always of
    the whole capture. A window keeps what touches it, whole, and the steps that do. With several
    ranks, a window and ``align="auto"`` read every file twice. Each worker has one rank in memory.

    Raises:
        OptionError: an argument is not understood, or a table does not exist.
        SelectionError: a graph or step is in none of the ranks; nothing is known of an axis.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    return tables_of(paths, StatsOptions.of(keywords))


def tables_of(
    paths: Sequence[values.Paths], options: StatsOptions, matching: Matching = matching
) -> Statistics:
    """As :func:`stats`, of options that have been checked.

    Args:
        matching: for the regular expressions of filters.
    """
    names, selection = tuple(tables.chosen(options.by)), options.view.selection
    axes = tuple(word.lower() for word in options.group_by)
    arrangement = Arrangement.of(
        options.columns, options.sort, options.filters, options.top, names, axes, matching
    )
    view = replace(options.view, scope=not {*names}.isdisjoint(tables.WITH_SCOPES))
    work = Summarizing(SummaryRequest(tables=names, lateness=bool(axes)), view)
    with opened(paths, options.input, options.run, selection.ranks) as ranks:
        if selection.time is not None or options.align != "none":
            ranks, plan, base_ns = shared_clock(ranks, work, options.align)
            ranks.issues.extend(plan.issues)
            change = partial(_changed, plan=plan, time=selection.time, base_ns=base_ns)
            work = replace(work, change=change)
        _, summaries = ranks.summaries(work)
    options.run.progress(0, 0, "making tables")
    refuse_missing(selection.numbers, found_numbers(summaries))
    shape, limit = job_shape(summaries), None if arrangement.changes_rows else options.top
    unmade: tuple[tuple[str, str], ...] = ()
    if axes:
        refuse_unknown_axes(axes, shape)
        made_tables, unmade = tables.grouped_tables(summaries, shape, axes, limit)
    else:
        made_tables = tables.tables(summaries, limit)
    results, left_out = arranged(made_tables, arrangement)
    numbers = tuple(summary.rank for summary in summaries)
    known_steps = {
        rank: text for summary in summaries for rank, text in summary.known_steps.items()
    }
    return Statistics(results, numbers, ranks.issues, (*unmade, *left_out), known_steps, shape)


def _changed(trace: Trace, *, plan: clocks.Plan, time: Window | None, base_ns: int | None) -> Trace:
    """A rank on the shared clock, and what of it touches a window."""
    trace = clocks.aligned(trace, plan)
    if time is None:
        return trace
    start, end = bounds(trace, time, base_ns)
    return _touching(time_window(trace, start, end), start, end)


def _touching(trace: Trace, start: int | None, end: int | None) -> Trace:
    """The trace with the steps that touch the window, without the sums of the whole rank."""
    steps = trace.steps
    touching = np.ones(len(steps), bool)
    if start is not None:
        touching &= steps.end_ns > start
    if end is not None:
        touching &= steps.start_ns < end
    return replace(trace, steps=steps.take(touching), overlap=None)
