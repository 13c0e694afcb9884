"""How every analysis gets its ranks: found, read by workers, summarized, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from traceconv.alignment import plan as clocks
from traceconv.alignment.collective_matching import Matched, matched
from traceconv.alignment.offsets import stamped
from traceconv.analysis.rank_summary import RankSummary, decoded, packed
from traceconv.analysis.replay.job import Once
from traceconv.analysis.summarize import SummaryRequest
from traceconv.api.open import Captures, found_below
from traceconv.core.errors import Issues, SelectionError
from traceconv.core.model import Capture, Trace
from traceconv.find.rank_selection import refuse_missing
from traceconv.options.verbs import Analysis
from traceconv.passes.select import by_step
from traceconv.run.summaries import Ranks, Summarizing, analysed, found_numbers, spans_of
from traceconv.store.cache import Kept

if TYPE_CHECKING:
    from traceconv.options.groups import Input, RunOptions
    from traceconv.options.values import Paths, SelectedRanks

Window = tuple[int | None, int | None]
T = TypeVar("T")

MOST_BYTES = 256 << 20
"""Of columns in a result over all ranks that is kept."""


@contextmanager
def opened(
    paths: Sequence[Paths],
    source: Input,
    run: RunOptions,
    ranks: SelectedRanks,
    found: Captures | None = None,
) -> Iterator[Ranks]:
    """The captures of some ranks, with workers for as long as the context lasts.

    Args:
        found: the captures below ``paths``, if they are known already.
    """
    below = found_below(paths, source) if found is None else found
    captures = below.ranks(ranks, run.allow_missing_ranks)
    with analysed(captures.found, captures.issues, run) as ranks_below:
        yield ranks_below


@dataclass(frozen=True)
class Read:
    """Ranks on one clock.

    Attributes:
        captures:  those that could be read.
        summaries: one for each.
        groups:    collectives that belong together.
        plan:      how clocks are aligned.
        issues:    what finding and reading the ranks noted.
        once:      computes something over these ranks, or has it from an earlier command.
    """

    captures: tuple[Capture, ...]
    summaries: list[RankSummary]
    groups: tuple[Matched, ...]
    plan: clocks.Plan
    issues: Issues
    once: Once


@dataclass(frozen=True)
class _Cached:
    """The :class:`Once` of some ranks; it keeps results in the cache.

    Attributes:
        kept: of these ranks.
        question: everything besides them that all results depend on.
    """

    kept: Kept
    question: Sequence[Any]

    def __call__(self, name: str, kind: type[T], make: Callable[[], T], /) -> T:
        kept = self.kept.of([name, *self.question])
        for _, content in kept.found():
            with suppress(msgspec.MsgspecError):
                return decoded(content, kind)
        made, room = make(), MOST_BYTES

        def counted(column: Any) -> Any:
            nonlocal room
            room -= column.nbytes
            if room < 0:
                raise ValueError("it is too large")
            return packed(column)

        if kept.active:
            with suppress(ValueError):  # or half surrogates, which UTF-8 does not have
                kept.keep({0: msgspec.msgpack.encode(made, enc_hook=counted)})
        return made


def read(
    paths: Sequence[Paths],
    options: Analysis,
    requested: SummaryRequest,
    align: str,
    max_error_ns: int | None = None,
    found: Captures | None = None,
) -> Read:
    """The ranks of an analysis, summarized.

    Args:
        found: the captures below ``paths``, if they are known already.

    Raises:
        SelectionError: a graph or step is in none of the ranks, or no step lies in the window.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    selection = options.view.selection
    work = Summarizing(requested, options.view)
    with opened(paths, options.input, options.run, selection.ranks, found) as ranks:
        ranks, work = within(ranks, work, align, selection.time)
        captures, summaries = ranks.summaries(work)
        refuse_missing(selection.numbers, found_numbers(summaries))
        if selection.time is not None and not any(summary.span_ns for summary in summaries):
            raise SelectionError("`time` contains no whole step; pass a longer window")
        if len(captures) > 1:
            options.run.progress(0, 0, f"comparing {len(captures)} ranks")
        records = [summary.collectives for summary in summaries]
        spans, each = spans_of(summaries), ranks.executor.each
        kept = ranks.kept.of_all(capture.rank for capture in captures)
        once = _Cached(kept, [work.of_any_rank, align, max_error_ns])
        groups = once(
            "groups",
            tuple[Matched, ...],
            lambda: tuple(matched(records, stamped(captures), each)),
        )
        plan = once(
            "plan",
            clocks.Plan,
            lambda: clocks.plan(captures, align, records, max_error_ns, groups, spans, each),
        )
    ranks.issues.extend(plan.issues)
    return Read(captures, summaries, groups, plan, ranks.issues, once)


def within(
    ranks: Ranks, work: Summarizing, align: str, time: Window | None
) -> tuple[Ranks, Summarizing]:
    """The work on those steps only that lie in a window; and the ranks that are left."""
    if time is None:
        return ranks, work
    ranks, plan, base_ns = shared_clock(ranks, work, align)
    return ranks, replace(
        work, change=partial(_steps_within, plan=plan, time=time, base_ns=base_ns)
    )


def shared_clock(
    ranks: Ranks, work: Summarizing, align: str
) -> tuple[Ranks, clocks.Plan, int | None]:
    """The ranks that can be read, their clocks, and the earliest event of all of them.

    Ranks are read for it only where several of them decide: on clocks by their collectives, on the
    start of a window by their earliest events; None as the time where each rank decides.
    """
    if len(ranks.captures) == 1:
        return ranks, clocks.plan(ranks.captures, align, None), None
    by_events = align in clocks.FROM_EVENTS
    first_work = replace(work, requested=SummaryRequest(as_read=by_events, issues=False))
    captures, summaries = ranks.summaries(first_work, "looking through")
    spans = spans_of(summaries)
    records = [summary.as_read.collectives for summary in summaries] if by_events else None
    plan = clocks.plan(captures, align, records, spans=spans)
    starts = [span[0] for span in plan.aligned_spans(spans).values() if span]
    return replace(ranks, captures=captures), plan, min(starts, default=0)


def bounds(trace: Trace, time: Window, base_ns: int | None) -> Window:
    """A window on the clock of a trace; it counts from the first event if nothing else is known."""
    if base_ns is None:
        span = trace.span()
        base_ns = span[0] if span else 0
    start, end = (None if t is None else base_ns + t for t in time)
    return start, end


def _steps_within(trace: Trace, *, plan: clocks.Plan, time: Window, base_ns: int | None) -> Trace:
    """A rank, on its own clock, with those steps only that lie in a window of the shared clock."""
    moved = clocks.aligned(trace, plan)
    start, end = bounds(moved, time, base_ns)
    steps = moved.steps
    inside = np.ones(len(steps), bool)
    if start is not None:
        inside &= steps.start_ns >= start
    if end is not None:
        inside &= steps.end_ns <= end
    return by_step(trace, steps.step[inside].tolist())
