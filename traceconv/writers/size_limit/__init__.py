"""The size limit: applied before the first byte, from what the writer says rows cost.

The limit counts bytes before compression, for those are what a viewer keeps in memory; costs are
upper bounds, so what is planned to fit does fit. Three policies:

* *fail* refuses.
* *split* writes several files, each a range of time of all ranks, each complete in itself. Every
  row is in exactly one of them, by its start.
* *reduce* keeps the step trace and the overlap analysis whole, and shares the remaining room among
  the ranks (see :mod:`traceconv.writers.size_limit.measure`). Within a rank, counters are
  downsampled first, then small slices are coalesced (see
  :mod:`traceconv.writers.size_limit.coalesce`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from traceconv.core.errors import Issues, SizeLimitError
from traceconv.core.model import Trace
from traceconv.writers import (
    Capacity,
    Costs,
    Document,
    DroppedRows,
    Part,
    Plan,
    SpilledRank,
    WriterFactory,
)
from traceconv.writers.size_limit.measure import (
    Derived,
    Each,
    Job,
    Measured,
    Size,
    summed,
    total,
    with_counts,
    with_issues,
)

if TYPE_CHECKING:
    from traceconv.writers.size_limit.reduce import Cut

VIEWERS: dict[str, Capacity] = {
    "perfetto": Capacity(1 << 30, 10_000_000),
    "chrome": Capacity(256 << 20, 2_000_000),
    "none": Capacity(),
}
"""What viewers open without trouble, and how that is known.

* *perfetto*: a 32-bit build of ui.perfetto.dev may use 4 GB. Its importer takes 250 to 265 bytes
  per slice with three arguments (measured, release 58.2) and the opened viewer about 105 more: 4 GB
  are full at 11 million slices. Where the browser has 64-bit memory, four times that fits.
* *chrome*: chrome://tracing reads the file into one string, which may have 512 MB; 100 to 300 MB
  are what people open.
"""


POLICIES = ("reduce", "split", "fail")

UNLIMITED = 2**62

TABLE_ROWS, TABLE_LEAST, TABLE_SHARE = 1000, 4, 4096
"""Rows of the dropped table in the file: one per 4 KiB of the limit, within these bounds."""


@dataclass(frozen=True)
class SizeLimit:
    """How large one output file may be, and what to do about it.

    Attributes:
        max_bytes:  before compression; None = any.
        max_events: rows of all kinds (slices, instants, samples, flows); None = any.
        policy:     "reduce", "split" or "fail".
    """

    max_bytes: int | None = None
    max_events: int | None = None
    policy: str = "reduce"

    @classmethod
    def of_viewer(
        cls,
        viewer: str,
        max_bytes: int | None = None,
        max_events: int | None = None,
        policy: str = "reduce",
    ) -> SizeLimit | None:
        """The limit that suits a viewer, "perfetto" or "chrome"; None if nothing limits anything.

        Args:
            viewer: one of :data:`~traceconv.writers.size_limit.VIEWERS`.
            max_bytes, max_events: override what suits the viewer.

        Raises:
            SizeLimitError: there is no such viewer or policy.
        """
        if viewer not in VIEWERS:
            raise SizeLimitError(f"no viewer {viewer!r}; there are: {', '.join(VIEWERS)}")
        capacity = VIEWERS[viewer]
        limit = cls(
            capacity.max_bytes if max_bytes is None else max_bytes,
            capacity.max_events if max_events is None else max_events,
            policy,
        )
        return None if limit.max_bytes is None and limit.max_events is None else limit

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise SizeLimitError(f"no policy {self.policy!r}; there are: {', '.join(POLICIES)}")

    @property
    def room(self) -> Size:
        """The limit as numbers."""
        return _room(self.max_bytes, self.max_events)


def _room(max_bytes: int | None, max_events: int | None) -> Size:
    return Size(
        UNLIMITED if max_bytes is None else max_bytes,
        UNLIMITED if max_events is None else max_events,
    )


def plan(
    spilled: Sequence[SpilledRank],
    document: Document,
    writer_factory: WriterFactory,
    limit: SizeLimit | None,
    each: Each = map,
) -> Plan:
    """What to write so that no file grows beyond ``limit``.

    Args:
        spilled: all ranks, ascending; loaded one at a time, several times.
        each:    as ``map`` of one argument: does the work on ranks, possibly elsewhere.

    Raises:
        SizeLimitError: the policy is "fail" and it does not fit; or it cannot be made to fit.
    """
    job = Job(spilled, document, writer_factory, each)
    member = writer_factory().member_capacity
    if member is not None:
        room = _room(member.max_bytes, member.max_events)
        if limit is None or not limit.room.fits(room):
            inner = _reduced_members(job, room)
            if inner.dropped:
                [reduced_part] = inner.parts
                joint = _whole(
                    replace(job, spilled=reduced_part.traces, document=reduced_part.document), limit
                )
                issues = inner.issues.copy()
                issues.extend(joint.issues)
                return replace(joint, issues=issues, dropped=(*inner.dropped, *joint.dropped))
    return _whole(job, limit)


def _whole(job: Job, limit: SizeLimit | None) -> Plan:
    """The plan for all ranks together; members of archives fit already."""
    if limit is None or (limit.max_bytes is None and limit.max_events is None):
        return job.whole()
    from traceconv.writers.size_limit.reduce import least

    room, reduces = limit.room, limit.policy == "reduce"
    planned = _with_run_args(job) if reduces else job
    ranks = planned.measured(least if reduces else None)
    size = job.header(job.document).plus(summed([rank.total for rank in ranks]))
    if size.fits(room):
        return replace(job.whole(), max_bytes=limit.max_bytes, predicted=size.bytes)
    if limit.policy == "fail":
        raise SizeLimitError(
            f"the output would take up to {_size_text(size)}, the limit is {_size_text(room)}; "
            'pass `over_limit="reduce"` or `over_limit="split"`, raise the limit, or select fewer '
            "ranks, steps or layers"
        )
    if limit.policy == "split":
        from traceconv.writers.size_limit.split import split

        planned_parts = split(job, room, ranks)
    else:
        planned_parts = _reduced(planned, room, ranks)
    return replace(planned_parts, max_bytes=limit.max_bytes)


def _reduced_members(job: Job, room: Size) -> Plan:
    """The ranks as members of an archive: those too large for a viewer are reduced, each alone."""
    from traceconv.writers.size_limit.reduce import least, shortened

    planned = _with_run_args(job)
    traces: list[SpilledRank] = []
    issues = Issues()
    table: list[DroppedRows] = []
    for spilled, size in zip(job.spilled, planned.measured(least), strict=True):
        if size.total.fits(room):
            traces.append(spilled)
            continue
        lone = replace(planned.document, ranks=(spilled.rank,))
        reduced = _reduced(replace(planned, spilled=[spilled], document=lone), room, [size])
        traces += reduced.parts[0].traces
        issues.extend(reduced.issues)
        table += reduced.dropped
    counts = issues.count("size-limit"), issues.count("size-coalesced")
    head = job.document
    if table:
        head = _with_dropped(planned.document, shortened(table, TABLE_ROWS), *counts)
    return Plan((Part(head, tuple(traces)),), None, 0, issues, tuple(table))


def _size_text(size: Size) -> str:
    """A size for people."""
    n_bytes = "" if size.bytes >= UNLIMITED else f"{size.bytes} bytes"
    if 2**20 <= size.bytes < UNLIMITED:
        n_bytes = f"{size.bytes / 2**20:.1f} MiB"
    rows = "" if size.rows >= UNLIMITED else f"{size.rows} events"
    return " and ".join(word for word in (n_bytes, rows) if word)


def _with_run_args(job: Job) -> Job:
    """The arguments of coalesced slices are written even where other arguments are not."""
    if job.document.args is None:
        return job
    args = job.document.args | {"count", "busy_ns", "longest"}
    return replace(job, document=replace(job.document, args=args))


def _reduced(job: Job, room: Size, ranks: Sequence[Measured]) -> Plan:
    """One file in which every rank keeps what always stays, and its share of the rest."""
    from traceconv.writers.size_limit.measure import shares
    from traceconv.writers.size_limit.reduce import longest_row, shortened

    document = job.document
    shown = min(TABLE_ROWS, max(TABLE_LEAST, room.bytes // TABLE_SHARE))
    worst = [longest_row(rank.longest for rank in ranks)] * (shown + 1)
    head = job.header(_with_dropped(document, worst, UNLIMITED, UNLIMITED))
    bottom = head.plus(summed([rank.least for rank in ranks]))
    if not bottom.fits(room):
        raise SizeLimitError(
            f"step trace, overlap analysis and the names of tracks alone take up to "
            f'{_size_text(bottom)}, the limit is {_size_text(room)}; pass `over_limit="split"`, '
            "raise it, or select fewer ranks or steps"
        )
    spare = room.minus(bottom)
    needs = [rank.total.minus(rank.least) for rank in ranks]
    issues, predicted = Issues(), head
    table: list[DroppedRows] = []
    traces: list[SpilledRank] = []
    rows: Counter[str] = Counter()
    parts = [
        rank.least.plus(share) for rank, share in zip(ranks, shares(spare, needs), strict=True)
    ]
    shrink = partial(_shrunk, cost_of=job.cost_of)
    shrunk = job.each(shrink, list(zip(job.spilled, parts, strict=True)))
    for spilled, done in zip(job.spilled, shrunk, strict=True):
        table += done.dropped
        _count_dropped(issues, spilled.rank, done.dropped)
        traces.append(Derived(spilled, partial(_cut, cut=done.cut)))
        predicted = predicted.plus(done.size)
        rows.update(done.counts)
    counts = issues.count("size-limit"), issues.count("size-coalesced")
    counted = replace(document, facts=with_counts(document.facts, rows))
    final = _with_dropped(counted, shortened(table, shown), *counts)
    return Plan((Part(final, tuple(traces)),), None, predicted.bytes, issues, tuple(table))


class _Shrunk(msgspec.Struct, frozen=True):
    """The decision for one rank: its cut, the dropped rows, and the remaining size."""

    cut: Cut
    dropped: list[DroppedRows]
    size: Size
    counts: dict[str, int]


def _shrunk(rank_and_share: tuple[SpilledRank, Size], cost_of: Callable[[Trace], Costs]) -> _Shrunk:
    """The mildest cut with which a rank fits into its share."""
    from traceconv.writers.size_limit.reduce import choose

    spilled, share = rank_and_share
    done = choose(spilled.load(), cost_of, share)
    shrunk = _Shrunk(done.cut, done.dropped, total(cost_of(done.trace)), done.trace.counts())
    del done  # one rank at a time is in memory
    spilled.release_pages()
    return shrunk


def _cut(trace: Trace, cut: Cut) -> Trace:
    from traceconv.writers.size_limit.reduce import apply

    return apply(trace, cut).trace


def _with_dropped(
    document: Document, table: Sequence[DroppedRows], lost: int, coalesced: int
) -> Document:
    """``document`` with what the limit took in its metadata."""
    facts = {**document.facts, "dropped": list(table)}
    counts = {"size-limit": lost, "size-coalesced": coalesced}
    return replace(document, facts=with_issues(facts, counts))


def _count_dropped(issues: Issues, rank: int, table: Sequence[DroppedRows]) -> None:
    """Count what a rank lost, by heading."""
    from traceconv.writers.size_limit.reduce import COALESCED

    for code, coalesced in (("size-coalesced", True), ("size-limit", False)):
        counts: Counter[str] = Counter()
        for row in table:
            if (row["reason"] == COALESCED) == coalesced:
                counts[row["heading"] or row["reason"]] += row["rows"]
        for heading, rows in counts.items():
            issues.add(code, where=f"{heading}: {rows}", count=rows, rank=rank)
