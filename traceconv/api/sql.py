"""SQL over captures: only the tables that a query names are made, from ranks that are read once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from traceconv.analysis.sql.engine import Engine
from traceconv.analysis.sql.perfetto_tables import TABLES as PERFETTO
from traceconv.analysis.sql.perfetto_tables import VIEWS, perfetto_tables
from traceconv.analysis.summarize import SummaryRequest
from traceconv.analysis.tables import catalog
from traceconv.core import frames
from traceconv.core.errors import EmptyResultError, Issues
from traceconv.core.frames import ABSENT, Words, or_absent
from traceconv.core.model import Capture, Trace
from traceconv.core.rank_tables import TABLES as EVENTS
from traceconv.core.rank_tables import arrow_table
from traceconv.core.side_tables import DataTable
from traceconv.find.capture_ranks import shape_of_captures
from traceconv.merging.merge_ranks import Settled, read_ranks, settled
from traceconv.merging.run_report import known_issues
from traceconv.options.verbs import QueryOptions
from traceconv.run.executor import started
from traceconv.run.rank_loop import stored
from traceconv.run.summaries import Summarizing, analysed
from traceconv.writers import SpilledRank
from traceconv.writers.perfetto.tracks import shown_pids

STATS = tuple(name for name in (*catalog.TABLES, *catalog.FILES) if name not in EVENTS)
KNOWN = (*PERFETTO, *EVENTS, "ranks", *STATS)
"""Names of all tables."""


class Rows(DataTable):
    """The rows of a query.

    Attributes:
        issues: what reading the captures lost or doubted.
    """

    issues: Issues


def answer(captures: Sequence[Capture], issues: Issues, sql: str, asked: QueryOptions) -> Rows:
    """What SQL finds in captures.

    Raises:
        MissingExtraError: DuckDB is not installed.
        OptionError: the SQL is not understood, or does what is not allowed.
        TraceconvError: a rank cannot be read.
    """
    engine = Engine(sql, asked.params or {}, asked.run.mem_limit, asked.timeout_ns)
    wanted, issues = engine.named(KNOWN), issues.copy()
    if of_events := wanted - set(STATS):
        _add_events(engine, of_events, captures, issues, asked)
    if of_stats := sorted(wanted & set(STATS)):
        _add_stats(engine, of_stats, captures, issues, asked)
    found = engine.answer(KNOWN)
    rows = Rows(found.name, found.columns, found.units)
    rows.issues = issues
    return rows


def _add_events(
    engine: Engine,
    wanted: set[str],
    captures: Sequence[Capture],
    issues: Issues,
    asked: QueryOptions,
) -> None:
    options, run = asked.merge_options, asked.run
    options.passes()  # refuses early
    shared = all(one.source.shared for one in captures)
    with started(run, [stored(one) for one in captures], shared) as executor:
        ranks = read_ranks(captures, options, executor, run, issues)
        done = settled(ranks, options, executor, run.progress)
        run.progress(0, 0, "making tables")
        accounts = {one.rank: one.account for one in done.spilled}
        own = known_issues(Issues(), done.clock, accounts)
        issues.extend(own)
        parts: dict[str, list[Any]] = {name: [] for name in wanted & set(EVENTS)}
        for trace in _loaded(done.spilled):
            for name, some in parts.items():
                some.append(arrow_table(trace, name))
        for name, some in parts.items():
            engine.add(name, frames.arrow_below(some))
        if perfetto := wanted & set(PERFETTO):
            pids = shown_pids({rank: one.capture.pid for rank, one in accounts.items()}, accounts)
            traces = _loaded(done.spilled)
            for name, table in perfetto_tables(traces, perfetto, done.base_ns, pids).items():
                engine.add(name, table)
            for name in perfetto & set(VIEWS):
                engine.add(name, VIEWS[name])
        if "ranks" in wanted:
            engine.add("ranks", frames.to_arrow(_ranks(done)))


def _loaded(spilled: Sequence[SpilledRank]) -> Iterator[Trace]:
    """The ranks, one at a time."""
    for one in spilled:
        yield one.load()
        one.release_pages()


def _ranks(done: Settled) -> frames.Frame:
    """One row per rank: where it ran, what was recorded, and its coordinates in the job."""
    accounts = [one.account for one in done.spilled]
    captures = [one.capture for one in accounts]
    shape = shape_of_captures(captures)

    def texts(values: Sequence[str]) -> Words:
        return Words.per_row([text or None for text in values])

    def numbers(values: Sequence[int]) -> Any:
        return or_absent(np.array(values, np.int64))

    spans = [one.span or (ABSENT, ABSENT) for one in accounts]
    return {
        "rank": numbers([one.rank for one in done.spilled]),
        "format": texts([one.reader for one in captures]),
        "capture": texts([one.title for one in captures]),
        "host": texts([one.host for one in captures]),
        "device": numbers([one.device for one in captures]),
        "pid": numbers([one.pid for one in captures]),
        "start_ns": np.array([start for start, _ in spans], np.int64),
        "end_ns": np.array([end for _, end in spans], np.int64),
        **{
            kind + "s": numbers([one.counts[kind] for one in accounts])
            for kind in accounts[0].counts
        },
        **{
            axis: numbers([shape.value(one.rank, axis) for one in done.spilled])
            for axis in shape.names
        },
    }


def _add_stats(
    engine: Engine,
    wanted: Sequence[str],
    captures: Sequence[Capture],
    issues: Issues,
    asked: QueryOptions,
) -> None:
    """Tables of ``stats``, with headings as SQL writes names: ``total_time_ns``."""
    work = Summarizing(
        SummaryRequest(tables=tuple(wanted)), replace(asked.merge_options.of_analysis, scope=True)
    )
    with analysed(captures, issues, asked.run) as every:
        _, summaries = every.summaries(work)
        issues.extend(every.issues)
    for result in catalog.tables(summaries):
        if not result.data.columns:
            why = f"no rank has data for it; it needs {result.table.needs}"
            raise EmptyResultError(f"table {result.table.name}: {why}")
        columns: dict[str, Any] = {}
        for heading, column in result.data.columns.items():
            name = re.sub(r"\W+", "_", heading.replace("%", " percent").lower()).strip("_")
            columns[name if name not in columns else f"{name}_{len(columns)}"] = column
        engine.add(result.table.name, frames.to_arrow(columns))
