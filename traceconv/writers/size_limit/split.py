"""Splitting the output into ranges of time, so that each file stays below the limit.

Costs are summed per bin of time, one rank at a time; bins with too much in them are split and
summed again, down to single nanoseconds if need be. Files are cut at edges of bins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from traceconv.core.errors import Issues, SizeLimitError
from traceconv.core.model import I64, KINDS, Kind, Trace
from traceconv.writers import Costs, Document, Part, Plan, SpilledRank
from traceconv.writers.size_limit.measure import (
    Derived,
    Job,
    Measured,
    Size,
    summed,
    with_counts,
    with_issues,
)

BINS = 65536
"""Bins the whole time is divided into at first."""

FINER = 64
"""Bins that a bin with too much in it is divided into, per file's worth of rows."""

COARSE = 8
"""A bin may have an eighth of a file in it: at most that much of a file stays empty."""

MAX_PARTS = 9999
"""More files than this are assumed to be a mistake."""

ENDLESS = 2**63 - 1

Found = TypeVar("Found")


def split(job: Job, room: Size, ranks: Sequence[Measured]) -> Plan:
    """The plan for as many files as it takes.

    Raises:
        SizeLimitError: not even the rows that start in one nanosecond fit.
    """
    widest = {"number": MAX_PARTS, "of": MAX_PARTS, "start_ns": -ENDLESS, "end_ns": -ENDLESS}
    head = job.header(_document(job.document, widest, ENDLESS))
    head = head.plus(Size(sum(rank.fixed for rank in ranks), 0))
    space = room.minus(head)
    _check(space, head, summed([rank.total for rank in ranks]))
    edges, sizes = _binned(job, space, [rank.starts for rank in ranks if rank.starts])
    inner = _cuts(edges, sizes, space)
    issues, rows = Issues(), np.zeros((len(KINDS), len(inner) + 1), np.int64)
    tallies = job.each(partial(_of_rank, measure=partial(_tally, cuts=inner)), job.spilled)
    for spilled, (rank_rows, torn) in zip(job.spilled, tallies, strict=True):
        rows += rank_rows
        issues.add("flow-split", count=torn, rank=spilled.rank)
    parts = _parts(job, inner.tolist(), rows, issues.count("flow-split"))
    return Plan(parts, room.bytes, int(sizes[0].sum()) + len(parts) * head.bytes, issues)


def _check(space: Size, head: Size, job_size: Size) -> None:
    if space.bytes <= 0 or space.rows <= 0:
        raise SizeLimitError(
            f"every file needs {head.bytes} bytes for its head and the names of its tracks alone; "
            "raise the limit, or select fewer ranks or layers"
        )
    needed = max(job_size.bytes // space.bytes, job_size.rows // space.rows)
    if needed > MAX_PARTS:
        raise SizeLimitError(
            f"at this limit it would take some {needed} files; raise it, or pass "
            '`over_limit="reduce"`'
        )


def _parts(job: Job, inner: list[int], rows: I64, torn: int) -> tuple[Part, ...]:
    cuts, document = [-ENDLESS, *inner, ENDLESS], job.document
    shown = [None, *(cut - document.base_ns for cut in inner), None]
    parts = []
    for i in range(len(cuts) - 1):
        part = {"number": i + 1, "of": len(cuts) - 1, "start_ns": shown[i], "end_ns": shown[i + 1]}
        window = partial(_within, stage=f"part {i + 1}", start_ns=cuts[i], end_ns=cuts[i + 1])
        traces = tuple(Derived(spilled, window) for spilled in job.spilled)
        counts = dict(zip(KINDS, rows[:, i].tolist(), strict=True))
        counted = replace(document, facts=with_counts(document.facts, counts))
        parts.append(Part(_document(counted, part, torn), traces))
    return tuple(parts)


def _document(document: Document, part: Mapping[str, int | None], torn: int) -> Document:
    """The head of one part: its number, and its time, ns since the base, null where open."""
    facts = {**document.facts, "part": dict(part)}
    return replace(document, facts=with_issues(facts, {"flow-split": torn}))


def _within(trace: Trace, stage: str, start_ns: int, end_ns: int) -> Trace:
    """The rows that start in a range of time."""
    masks = [
        (start_ns <= column) & (column < end_ns)
        for column in (trace.events.start_ns, trace.counters.start_ns)
    ]
    return trace.keep(stage, *masks)


def _binned(job: Job, space: Size, starts: Sequence[tuple[int, int]]) -> tuple[I64, I64]:
    """Edges of bins fine enough, and what starts in each: bytes and rows, shape (2, bins)."""
    begin = min((a for a, _ in starts), default=0)
    length = max((b for _, b in starts), default=0) + 1 - begin
    step = -(-length // BINS)
    edges = begin + step * np.arange(-(-length // step) + 1, dtype=np.int64)
    limits = np.array([space], np.int64).T
    while True:
        sizes = np.zeros((2, len(edges) - 1), np.int64)
        measure = partial(_sizes, cost_of=job.cost_of, edges=edges)
        for rank_sizes in job.each(partial(_of_rank, measure=measure), job.spilled):
            sizes += rank_sizes
        width = np.diff(edges)
        if ((sizes > limits).any(axis=0) & (width == 1)).any():
            raise SizeLimitError(
                "the rows that start in one nanosecond do not fit into a file; raise the limit, "
                'or pass `over_limit="reduce"`'
            )
        # how many times over a bin exceeds its eighth of a file, in bytes or rows
        load = np.max(COARSE * (sizes / limits), axis=0)
        coarse = (load > 1) & (width > 1)
        if not coarse.any():
            return edges, sizes
        edges = _finer(edges, np.where(coarse, np.minimum(width, FINER * np.ceil(load)), 1))


def _of_rank(spilled: SpilledRank, measure: Callable[[Trace], Found]) -> Found:
    """What ``measure`` finds in one rank."""
    measured = measure(spilled.load())
    spilled.release_pages()
    return measured


def _finer(edges: I64, pieces: NDArray[np.float64]) -> I64:
    """Divide each bin into about ``pieces`` parts of equal, whole width."""
    counts = pieces.astype(np.int64)
    step = -(-np.diff(edges) // counts)
    # rounding the width up can reduce the number of parts
    counts = -(-np.diff(edges) // step)
    # 0, 1, 2 ... within each old bin
    position = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    finer = np.repeat(edges[:-1], counts) + position * np.repeat(step, counts)
    return np.append(finer, edges[-1])


def _sizes(trace: Trace, cost_of: Callable[[Trace], Costs], edges: I64) -> I64:
    """Bytes and rows of one rank per bin; a flow counts where it begins."""
    costs = cost_of(trace)
    begun = trace.events.start_ns[trace.flows.src]
    start = np.concatenate((trace.events.start_ns, trace.counters.start_ns, begun))
    size = np.concatenate((costs.events, costs.counters, costs.flows))
    where = np.searchsorted(edges, start, side="right") - 1
    bins = len(edges) - 1
    bytes_ = np.bincount(where, size, bins)  # sums below 2**53 are exact
    return np.stack((bytes_.astype(np.int64), np.bincount(where, minlength=bins)))


def _cuts(edges: I64, sizes: I64, space: Size) -> I64:
    """The edges between files: every file takes as many bins as fit."""
    # sums from the first bin on: how many bins fit behind a cut is then one binary search
    before = np.concatenate((np.zeros((2, 1), np.int64), np.cumsum(sizes, axis=1)), axis=1)
    cuts: list[int] = []
    cut, last_edge = 0, len(edges) - 1
    while True:
        ends = [
            int(np.searchsorted(sums, min(sums[cut] + limit, 2**62), side="right")) - 1
            for sums, limit in zip(before, space, strict=True)
        ]
        cut = min(ends)
        if cut >= last_edge:
            return edges[cuts]
        cuts.append(cut)


def _tally(trace: Trace, cuts: I64) -> tuple[I64, int]:
    """Rows by kind and part, and how many flows have their ends in two parts."""
    events, flows = trace.events, trace.flows
    part = np.searchsorted(cuts, events.start_ns, side="right")
    sample = np.searchsorted(cuts, trace.counters.start_ns, side="right")
    source, is_within = part[flows.src], part[flows.src] == part[flows.dst]
    instant = events.kind == Kind.INSTANT
    columns = {
        "slice": part[~instant],
        "instant": part[instant],
        "counter": sample,
        "flow": source[is_within],
    }
    counts = [np.bincount(columns[kind], minlength=len(cuts) + 1) for kind in KINDS]
    return np.stack(counts), int(np.count_nonzero(~is_within))
