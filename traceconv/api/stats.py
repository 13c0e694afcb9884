"""From captures to tables: every rank is read, boiled down to facts, and let go again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from traceconv.analysis.tables import catalog as tables
from traceconv.analysis.tables.catalog import Statistics
from traceconv.api.merge import Captures
from traceconv.api.merge import open as find
from traceconv.core.model import Trace
from traceconv.core.ranks import refuse_missing
from traceconv.passes.select import time_window
from traceconv.writers.output import Progress, silent

Window = tuple[int | None, int | None]


def stats(
    *paths: str,
    by: Sequence[str] = ("step", "overlap"),
    ranks: Sequence[int] | None = None,
    graphs: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    time: Window | None = None,
    top: int | None = None,
    align: str = "none",
    rank_from: str = "meta",
    allow_missing_ranks: bool = False,
    reader: str | None = None,
    mapping: str | None = None,
    comm_patterns: Sequence[str] = (),
    progress: Progress = silent,
) -> Statistics:
    """Tables of the ranks found below ``paths``.

    Args:
        by:    which tables: keys of :data:`traceconv.analysis.tables.catalog.BY`, names of tables, "all".
        steps: only what belongs to these steps. Tables that repeat the profiler's own files
            (memory records, data pipeline, FLOPs) are always of the whole capture.
        time:  (start, end) in ns, counted from the earliest event of all ranks: what touches the
            window, whole, and the steps that do. With several ranks every file is read twice.
        top:   rows kept per rank of tables that are usually long; None = all.
        align: as in :func:`traceconv.merge`; it moves stamps and the window, not lengths.

    The other arguments are those of :func:`traceconv.merge`.

    Raises:
        TraceconvError: see :mod:`traceconv.core.errors`; ``SelectionError`` for a table, graph or step
            that is not there.
    """
    tables.chosen(by)  # refuses unknown ones before anything is read
    found = find(*paths, reader=reader, rank_from=rank_from, mapping=mapping)
    captures = found.ranks(ranks, allow_missing_ranks)
    read = partial(
        captures.traces,
        "detail",
        align_by=align,
        progress=progress,
        comm_patterns=comm_patterns,
        graphs=graphs,
        steps=steps,
        scope=True,
    )
    issues = captures.issues.copy()
    parts, present = [], []
    for trace in _within(captures, read, time):
        parts.append(tables.facts(trace, by))
        met = trace.issues.copy()
        for side_table in trace.side_tables.values():
            side_table.account(met)
        issues.extend(met, rank=trace.rank)
        present.append(trace.present)
        del trace  # one rank at a time
    refuse_missing(graphs, steps, present)
    results = tuple(tables.tables(parts, top))
    return Statistics(results, tuple(part.rank for part in parts), issues)


def _within(
    captures: Captures, read: partial[Iterator[Trace]], time: Window | None
) -> Iterator[Trace]:
    """The traces, or what of them touches a window."""
    if time is None:
        yield from read()
        return
    alone = len(captures.found) == 1
    spans = [] if alone else [span for trace in read() if (span := trace.span())]
    for trace in read():
        own = trace.span()
        base = min((span[0] for span in spans), default=own[0] if own else 0)
        start, end = (None if t is None else base + t for t in time)
        yield _touching(time_window(trace, start, end), start, end)


def _touching(trace: Trace, start: int | None, end: int | None) -> Trace:
    """With the steps that touch the window, and without the sums of the whole rank."""
    steps = trace.steps
    touching = np.ones(len(steps), bool)
    if start is not None:
        touching &= steps.end_ns > start
    if end is not None:
        touching &= steps.start_ns < end
    return replace(trace, steps=steps.take(touching), overlap=None)
