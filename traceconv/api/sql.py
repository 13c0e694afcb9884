"""SQL over captures: only the tables that a query names are made, from ranks that are read once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from traceconv.analysis.sql.engine import Engine, Shown
from traceconv.analysis.sql.perfetto_tables import TABLES as PERFETTO
from traceconv.analysis.sql.perfetto_tables import perfetto_tables
from traceconv.analysis.summarize import SummaryRequest
from traceconv.analysis.tables import catalog
from traceconv.core import frames
from traceconv.core.errors import EmptyResultError, Issues
from traceconv.core.frames import ABSENT, Words, or_absent
from traceconv.core.model import Capture, Trace
from traceconv.core.rank_tables import TABLES as EVENTS
from traceconv.core.rank_tables import arrow_table
from traceconv.core.side_tables import DataTable
from traceconv.core.source import RecordedSource
from traceconv.find.capture_ranks import shape_of_captures
from traceconv.merging.merge_ranks import read_ranks, settled
from traceconv.merging.run_report import known_issues
from traceconv.options.verbs import QueryOptions
from traceconv.run.executor import started
from traceconv.run.rank_loop import stored
from traceconv.run.spill import InMemoryRank, SpilledRank
from traceconv.run.summaries import Summarizing, analysed
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
    if of_stats := sorted(table_names & set(STATS)):
        _add_stats(engine, of_stats, captures, issues, options)
    if of_events := table_names - set(STATS):
        _add_events(engine, of_events, captures, issues, options)
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
    needed = _columns_read(engine, table_names)
    shared = all(capture.source.shared for capture in captures)
    with started(run, [stored(capture) for capture in captures], shared) as executor:
        ranks = read_ranks(captures, options, executor, run, issues)
        done = settled(ranks, options, executor, run.progress)
        run.progress(0, 0, "making tables")
        accounts = {rank.rank: rank.account for rank in done.spilled}
        issues.extend(known_issues(Issues(), done.clock, accounts))
        for name, table in _tables(done.spilled, table_names, done.base_ns, needed).items():
            engine.add(name, table)


def _columns_read(engine: Engine, table_names: set[str]) -> Collection[str] | None:
    """The columns that a query reads, found with tables of a rank without events, before any rank
    is read. None for all: coordinates among the columns of ``ranks`` are known when ranks are.

    Raises:
        OptionError: the SQL is not understood, or names a column that there is not.
    """
    if "ranks" in table_names:
        return None
    nothing = Trace(Capture("", RecordedSource("", {}, {}, False), (), 0))
    return engine.columns_read(_tables([InMemoryRank(nothing)], table_names, 0))


def _tables(
    ranks: Sequence[SpilledRank],
    table_names: set[str],
    base_ns: int,
    needed: Collection[str] | None = None,
) -> dict[str, Any]:
    """Tables by name, as :meth:`Engine.add` takes them; columns that are not needed are empty."""
    args = needed is None or "args" in {*needed, *table_names}
    of_events = {name: list[Any]() for name in table_names & set(EVENTS)}
    for trace in _loaded(ranks, args) if of_events else ():
        for name, of_ranks in of_events.items():
            of_ranks.append(arrow_table(trace, name, needed=needed))
    tables = {name: frames.arrow_below(of_ranks) for name, of_ranks in of_events.items()}
    if perfetto := table_names & set(PERFETTO):
        numbers = [rank.rank for rank in ranks]
        pids = shown_pids({rank.rank: rank.account.capture.pid for rank in ranks}, numbers)
        tables |= perfetto_tables(_loaded(ranks, args), perfetto, base_ns, pids, needed)
    if "ranks" in table_names:
        tables["ranks"] = frames.to_arrow(_ranks(ranks))
    return tables


def _loaded(ranks: Sequence[SpilledRank], args: bool) -> Iterator[Trace]:
    """The ranks, one at a time."""
    for rank in ranks:
        yield rank.load(args)
        rank.release_pages()


def _ranks(ranks: Sequence[SpilledRank]) -> frames.Frame:
    """One row per rank: where it ran, what was recorded, and its coordinates in the job."""
    accounts = [rank.account for rank in ranks]
    captures = [account.capture for account in accounts]
    shape = shape_of_captures(captures)

    def texts(values: Sequence[str]) -> Words:
        return Words.per_row([text or None for text in values])

    def numbers(values: Sequence[int]) -> Any:
        return or_absent(np.array(values, np.int64))

    spans = [account.span or (ABSENT, ABSENT) for account in accounts]
    return {
        "rank": numbers([rank.rank for rank in ranks]),
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
        **{axis: numbers([shape.value(rank.rank, axis) for rank in ranks]) for axis in shape.names},
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
