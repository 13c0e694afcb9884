"""The summaries of all ranks: what tables, alignment, stragglers and findings are made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from traceconv.analysis.rank_summary import NOT_REQUESTED, AsRead, RankSummary, decode, encode
from traceconv.analysis.summarize import (
    NO_PARTS,
    Parts,
    SummaryRequest,
    part,
    spare_parts,
    with_more,
)
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Capture, Trace
from traceconv.core.source import Progress
from traceconv.options.groups import RunOptions, View
from traceconv.run.emptiness import nothing_read, unread
from traceconv.run.executor import Executor, started
from traceconv.run.rank_loop import map_ranks, stored
from traceconv.run.stages import collectives, events, passed
from traceconv.scratch.memory import give_back
from traceconv.store.cache import Kept
from traceconv.store.store_file import StoredSource

BATCH_BYTES = 32 << 20
"""Encoded summaries that are in memory, and in one file of the cache."""

_OTHER_VERSION = (MalformedInputError, msgspec.MsgspecError, KeyError)
"""Errors of a summary that another version of traceconv packed."""


@dataclass(frozen=True)
class Summarizing:
    """Read one rank, make its view, summarize it.

    Attributes:
        requested: what the summary holds.
        view:    what is made of the events.
        as_read: the view is not made; what is requested is of the events as read only.
        change:  what is done with the view before it is summarized.
        spare:   parts that are made for the cache besides.
    """

    requested: SummaryRequest
    view: View = View(mode="detail")
    as_read: bool = False
    change: Callable[[Trace], Trace] | None = None
    spare: SummaryRequest = NO_PARTS

    @property
    def of_any_rank(self) -> Summarizing:
        """The same of all ranks and parts: what decides on the summary of each."""
        selection = dataclasses.replace(self.view.selection, ranks=None)
        view = dataclasses.replace(self.view, selection=selection)
        return dataclasses.replace(self, requested=NO_PARTS, view=view, as_read=False)

    def __call__(self, capture: Capture, advance: Progress) -> bytes:
        """The parts that were made of a rank, and its summary, encoded; ``advance`` hears of the
        bytes that are read.

        Raises:
            TraceconvError: the rank cannot be read.
        """
        return self.of(capture, events(capture, advance, self.view.comm_patterns))

    def of(self, capture: Capture, trace: Trace) -> bytes:
        """The same of a rank that has been read."""
        wanted = self.requested.as_read or self.spare.as_read
        as_read = _as_read(capture, trace) if wanted else NOT_REQUESTED
        if not self.as_read:
            trace = passed(trace, self.view.passes())
        if self.change is not None:
            trace = self.change(trace)
        parts, summary = with_more(trace, self.requested, self.spare, as_read)
        return msgspec.msgpack.encode((parts, encode(summary)))


def _as_read(capture: Capture, trace: Trace) -> AsRead:
    issues = trace.issues.copy()
    for table in trace.side_tables.values():
        if not table.accounted:
            issues.extend(table.issues)
    return AsRead(collectives(capture, trace), trace.span(), tuple(issues))


@dataclass(frozen=True)
class Ranks:
    """The ranks of an analysis, and those who read them.

    Attributes:
        captures: with ranks, ascending.
        executor: the workers.
        run:      how they work.
        issues:   everything that is lost or in doubt so far; grows.
        kept:     what the cache has of them.
    """

    captures: tuple[Capture, ...]
    executor: Executor
    run: RunOptions
    issues: Issues
    kept: Kept

    def summaries(
        self, work: Summarizing, what: str = "reading"
    ) -> tuple[tuple[Capture, ...], list[RankSummary]]:
        """The captures that could be read, and their summaries; their issues are taken in.

        Raises:
            EmptyResultError: not one of them holds events or tables.
            TraceconvError: see :func:`traceconv.run.rank_loop.map_ranks`.
        """
        encoded = self._encoded(work, what)
        read = [capture for capture in self.captures if capture.rank in encoded]
        decoded = [encoded[r] for capture in read if (r := capture.rank) is not None]
        for summary in decoded:
            noted = summary.as_read.issues if work.as_read else summary.issues
            self.issues.extend(noted, rank=summary.rank)
        if decoded and all(summary.holds_nothing for summary in decoded):
            raise nothing_read(read, lost=unread(self.issues))
        return tuple(read), decoded

    def _encoded(self, work: Summarizing, what: str) -> dict[int, RankSummary]:
        """The summaries: those that are kept, and those of ranks that are read now."""
        cached = self.kept.of(work.of_any_rank)
        found: dict[int, RankSummary] = {}
        groups: dict[Any, Any] = {}

        def take(rank: int, content: bytes) -> None:
            parts, body = msgspec.msgpack.decode(content, type=tuple[Parts, memoryview])
            if rank not in found and parts.answer(work.requested):
                wanted = part(body, work.requested) if parts.divisible else body
                found[rank] = decode(wanted, f"summary of rank {rank}", groups)

        if self.run.cache:
            for rank, content in _stored(self.captures, work.of_any_rank):
                with suppress(*_OTHER_VERSION):
                    take(rank, content)
        for rank, content in cached.found():
            take(rank, content)
        missing = [capture for capture in self.captures if capture.rank not in found]
        reading = work
        if cached.active and not work.requested.as_read:
            reading = dataclasses.replace(work, spare=spare_parts(work.requested))
        batch: dict[int, bytes] = {}
        results = map_ranks(reading, missing, self.executor, self.run, self.issues, what=what)
        for capture, content in results:
            if capture.rank is None:
                continue
            take(capture.rank, content)
            batch[capture.rank] = content
            if sum(map(len, batch.values())) > BATCH_BYTES:
                cached.keep(batch)
                batch.clear()
        cached.keep(batch)
        give_back()
        return found


def _stored(captures: Sequence[Capture], work: Summarizing) -> Iterator[tuple[int, bytes]]:
    """The summaries that stores hold, if they are of this work, by rank."""
    for capture in captures:
        source = capture.source
        if isinstance(source, StoredSource) and capture.rank is not None and source.summary:
            source.refuse_patterns(work.view.comm_patterns)
            view = View(mode="detail", comm_patterns=work.view.comm_patterns)
            if work == Summarizing(NO_PARTS, view) and source.as_packed(capture):
                yield capture.rank, source.kept_summary()


@contextmanager
def analysed(captures: Sequence[Capture], issues: Issues, run: RunOptions) -> Iterator[Ranks]:
    """The captures, with workers that suit them for as long as the context lasts.

    Args:
        issues: what finding them noted.
    """
    shared = all(capture.source.shared for capture in captures)
    with started(run, [stored(capture) for capture in captures], shared) as executor:
        kept = Kept.of_captures(captures, run.cache)
        yield Ranks(tuple(captures), executor, run, issues.copy(), kept)


def spans_of(summaries: Sequence[RankSummary]) -> dict[int, tuple[int, int] | None]:
    """Earliest start and latest end by rank, for :func:`traceconv.alignment.plan.plan`."""
    return {summary.rank: summary.span_ns for summary in summaries}


def found_numbers(summaries: Sequence[RankSummary]) -> dict[str, set[int]]:
    """Graphs and steps of all ranks, for :func:`traceconv.find.rank_selection.refuse_missing`."""
    return {
        "graph": {n for summary in summaries for n in summary.graphs},
        "step": {n for summary in summaries for n in summary.steps},
    }
