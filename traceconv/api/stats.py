"""Tables of the ranks: steps, overlap, operators, kernels, communication, memory and more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np

from traceconv.alignment import plan as clocks
from traceconv.analysis.inferred_shape import job_shape
from traceconv.analysis.summarize import SummaryRequest
from traceconv.analysis.tables import catalog as tables
from traceconv.analysis.tables.catalog import Statistics
from traceconv.api import options
from traceconv.api.arrangement import Arrangement, arranged
from traceconv.api.reading import RankArguments, asked
from traceconv.core.model import Trace
from traceconv.find.rank_selection import refuse_missing, refuse_unknown_axes
from traceconv.passes.select import time_window
from traceconv.run.settings import Selection
from traceconv.run.summaries import Ranks, Summarizing, found_numbers, spans_of

Window = tuple[int | None, int | None]


def stats(
    *paths: options.Paths,
    by: options.Names = ("step", "overlap"),
    ranks: options.Ranks | None = None,
    graphs: options.Numbers | None = None,
    steps: options.Numbers | None = None,
    time: options.Window | None = None,
    selection: Selection | None = None,
    group_by: options.Names = (),
    columns: options.Names = (),
    sort: options.Names = (),
    filters: options.Names = (),
    top: int | None = None,
    align: options.Align = "none",
    step_marker: str | None = None,
    **given: Unpack[RankArguments],
) -> Statistics:
    """Tables of the ranks found below ``paths``.

    Args:
        by:    which tables: keys of :data:`traceconv.analysis.tables.catalog.BY`, names of tables,
            "all"; one, or several.
        steps: only what belongs to these steps. Tables that repeat the profiler's own files
            (memory records, data pipeline, FLOPs) are always of the whole capture.
        time:  a window, counted from the earliest event of all ranks: ``"1.2s:1.5s"``, or (start,
            end) in ns: what touches the window, whole, and the steps that do. With several ranks
            every file is read twice.
        selection: ``ranks`` to ``time`` at once, in place of these.
        group_by: axes ("pp", "tp", "node"): ranks with equal coordinates are one row, as all ranks
            are without it; those of which a coordinate is unknown are a group of their own.
        columns: names of columns that are kept, in this order; () for all. Tables without any of
            them are left out (:attr:`Statistics.left_out`).
        sort:  by these columns, the weightiest first: ``"Max Time"``, ``"Kernel:desc"``; numbers
            fall and texts rise unless ``:asc`` or ``:desc`` says otherwise; unknown values come
            last.
        filters: rows for which all of these hold: ``"Total Time>1ms"``, ``"Rank=all"``,
            ``"Kernel~gemm"`` (a regular expression is found in it); =, !=, <, <=, >, >=, ~, !~.
            An unknown value passes none. Tables without the column are left out.
        top:   rows kept per rank of tables that are usually long - of those that are sorted, in
            all; None = every row.
        align: as in :func:`traceconv.merge`; it moves stamps and the window, not lengths. With
            several ranks, "auto" and "collective" read every file twice.

    The other arguments, :class:`.RankArguments`, are those of :func:`traceconv.merge`. Each worker
    has one rank in memory.

    Raises:
        OptionError: an argument is not understood; there is no such table.
        SelectionError: a graph or step is in none of the ranks; nothing is known of an axis.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    names = tables.chosen(options.words(by, "by") or ())
    kept = options.selection(selection, ranks=ranks, graphs=graphs, steps=steps, time=time)
    options.refuse_others(kept, ("ranks", "graphs", "steps", "time"))
    reading = asked(given)
    rows, how = options.count(top, "top"), options.align(align)
    axes = tuple(word.lower() for word in options.words(group_by, "group_by") or ())
    arrangement = Arrangement.of(columns, sort, filters, rows, names, axes)
    view = {"mode": "detail", "graphs": kept.graphs, "steps": kept.steps, "scope": True}
    view["step_marker"] = options.pattern(step_marker, "step_marker")
    work = Summarizing(
        SummaryRequest(tables=names, lateness=bool(axes)), view, reading.comm_patterns
    )
    with reading.opened(*paths, ranks=kept.ranks) as every:
        every, work = _on_one_clock(every, work, how, kept.time)
        _, summaries = every.summaries(work)
    reading.run.progress(0, 0, "making tables")
    refuse_missing(kept.numbers, found_numbers(summaries))
    shape, most = job_shape(summaries), None if arrangement.changes_rows else rows
    unmade: tuple[tuple[str, str], ...] = ()
    if axes:
        refuse_unknown_axes(axes, shape)
        made, unmade = tables.grouped_tables(summaries, shape, axes, most)
    else:
        made = tables.tables(summaries, most)
    results, left_out = arranged(made, arrangement)
    numbers = tuple(one.rank for one in summaries)
    known = {rank: text for one in summaries for rank, text in one.known_steps.items()}
    return Statistics(results, numbers, every.issues, (*unmade, *left_out), known, shape)


def _on_one_clock(
    every: Ranks, work: Summarizing, align: str, time: Window | None
) -> tuple[Ranks, Summarizing]:
    """The work on clocks that are aligned, and within a window; and the ranks that are left.

    Ranks are read for it only where several of them decide: on clocks by their collectives, on the
    start of the window by their earliest events.
    """
    several = len(every.captures) > 1
    by_events = several and align in clocks.FROM_EVENTS
    records = None
    spans: dict[int, tuple[int, int] | None] = {}
    if by_events or (several and time is not None):
        first = replace(work, requested=SummaryRequest(issues=False), collectives=by_events)
        read, summaries = every.summaries(first, "looking through")
        every = replace(every, captures=read)
        spans = spans_of(summaries)
        records = [one.collectives for one in summaries] if by_events else None
    plan = clocks.plan(every.captures, align, records, spans=spans)
    every.issues.extend(plan.issues)
    starts = [plan.offsets[r].correction.of(span[0]) for r, span in spans.items() if span]
    base_ns = min(starts, default=0) if several else None
    return every, replace(work, change=partial(_changed, plan=plan, time=time, base_ns=base_ns))


def _changed(trace: Trace, *, plan: clocks.Plan, time: Window | None, base_ns: int | None) -> Trace:
    """A rank on the shared clock, and what of it touches a window.

    Args:
        base_ns: from where the window is counted; None for the earliest event of the rank.
    """
    trace = clocks.aligned(trace, plan)
    if time is None:
        return trace
    if base_ns is None:
        span = trace.span()
        base_ns = span[0] if span else 0
    start, end = (None if t is None else base_ns + t for t in time)
    return _touching(time_window(trace, start, end), start, end)


def _touching(trace: Trace, start: int | None, end: int | None) -> Trace:
    """With the steps that touch the window, and without the sums of the whole rank."""
    steps = trace.steps
    touching = np.ones(len(steps), bool)
    if start is not None:
        touching &= steps.end_ns > start
    if end is not None:
        touching &= steps.start_ns < end
    return replace(trace, steps=steps.take(touching), overlap=None)
