"""SQL over captures: only the tables that a query names are made, from ranks that are read once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from traceconv.analysis.sql.engine import Engine, Shown
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


def answer(
    captures: Sequence[Capture],
    issues: Issues,
    sql: str,
    options: QueryOptions,
    shown: Shown | None = None,
) -> Rows:
    """What SQL finds in captures.

    Args:
        shown: as of :class:`~traceconv.analysis.sql.engine.Engine`.

    Raises:
        MissingExtraError: DuckDB is not installed.
        OptionError: the SQL is not understood, or does what is not allowed.
        TraceconvError: a rank cannot be read.
    """
    run = options.run
    engine = Engine(sql, options.params or {}, run.mem_limit, options.timeout_ns, shown)
    table_names, issues = engine.named(KNOWN), issues.copy()
    if of_events := table_names - set(STATS):
        _add_events(engine, of_events, captures, issues, options)
    if of_stats := sorted(table_names & set(STATS)):
        _add_stats(engine, of_stats, captures, issues, options)
    result = engine.answer(KNOWN)
    rows = Rows(result.name, result.columns, result.units)
    rows.issues = issues
    return rows


def _add_events(
    engine: Engine,
    table_names: set[str],
    captures: Sequence[Capture],
    issues: Issues,
    query_options: QueryOptions,
) -> None:
    options, run = query_options.merge_options, query_options.run
    options.passes()  # refuses early
    shared = all(capture.source.shared for capture in captures)
    with started(run, [stored(capture) for capture in captures], shared) as executor:
        ranks = read_ranks(captures, options, executor, run, issues)
        done = settled(ranks, options, executor, run.progress)
        run.progress(0, 0, "making tables")
        accounts = {rank.rank: rank.account for rank in done.spilled}
        rank_issues = known_issues(Issues(), done.clock, accounts)
        issues.extend(rank_issues)
        tables_by_name: dict[str, list[Any]] = {name: [] for name in table_names & set(EVENTS)}
        for trace in _loaded(done.spilled):
            for name, tables in tables_by_name.items():
                tables.append(arrow_table(trace, name))
        for name, tables in tables_by_name.items():
            engine.add(name, frames.arrow_below(tables))
        if perfetto := table_names & set(PERFETTO):
            pids = shown_pids(
                {rank: account.capture.pid for rank, account in accounts.items()}, accounts
            )
            traces = _loaded(done.spilled)
            for name, table in perfetto_tables(traces, perfetto, done.base_ns, pids).items():
                engine.add(name, table)
            for name in perfetto & set(VIEWS):
                engine.add(name, VIEWS[name])
        if "ranks" in table_names:
            engine.add("ranks", frames.to_arrow(_ranks(done)))


def _loaded(spilled: Sequence[SpilledRank]) -> Iterator[Trace]:
    """The ranks, one at a time."""
    for rank in spilled:
        yield rank.load()
        rank.release_pages()


def _ranks(done: Settled) -> frames.Frame:
    """One row per rank: where it ran, what was recorded, and its coordinates in the job."""
    accounts = [rank.account for rank in done.spilled]
    captures = [account.capture for account in accounts]
    shape = shape_of_captures(captures)

    def texts(values: Sequence[str]) -> Words:
        return Words.per_row([text or None for text in values])

    def numbers(values: Sequence[int]) -> Any:
        return or_absent(np.array(values, np.int64))

    spans = [account.span or (ABSENT, ABSENT) for account in accounts]
    return {
        "rank": numbers([rank.rank for rank in done.spilled]),
        "format": texts([capture.reader for capture in captures]),
        "capture": texts([capture.title for capture in captures]),
        "host": texts([capture.host for capture in captures]),
        "device": numbers([capture.device for capture in captures]),
        "pid": numbers([capture.pid for capture in captures]),
        "start_ns": np.array([start for start, _ in spans], np.int64),
        "end_ns": np.array([end for _, end in spans], np.int64),
        **{
            kind + "s": numbers([account.counts[kind] for account in accounts])
            for kind in accounts[0].counts
        },
        **{
            axis: numbers([shape.value(rank.rank, axis) for rank in done.spilled])
            for axis in shape.names
        },
    }


def _add_stats(
    engine: Engine,
    table_names: Sequence[str],
    captures: Sequence[Capture],
    issues: Issues,
    options: QueryOptions,
) -> None:
    """Tables of ``stats``, with headings as SQL writes names: ``total_time_ns``."""
    work = Summarizing(
        SummaryRequest(tables=tuple(table_names)),
        replace(options.merge_options.of_analysis, scope=True),
    )
    with analysed(captures, issues, options.run) as ranks:
        _, summaries = ranks.summaries(work)
        issues.extend(ranks.issues)
    for result in catalog.tables(summaries):
        if not result.data.columns:
            why = f"no rank has data for it; it needs {result.table.needs}"
            raise EmptyResultError(f"table {result.table.name}: {why}")
        columns: dict[str, Any] = {}
        for heading, column in result.data.columns.items():
            name = re.sub(r"\W+", "_", heading.replace("%", " percent").lower()).strip("_")
            columns[name if name not in columns else f"{name}_{len(columns)}"] = column
        engine.add(result.table.name, frames.to_arrow(columns))
