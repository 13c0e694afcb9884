"""The graph of a job: the operations of all its ranks, and which of them wait for each other.

Operations of several ranks *meet*: a collective transfers when its last member has begun it, a
message when both sides have. Before that a member waits, for as long as the others need; the rest
is its *transfer*. Waits are recomputed in every replay and never kept.

On one clock, or on clocks with an error much smaller than the transfer, the transfer of a member is
measured from the start of the last one. Otherwise it is the shortest time that any member spent in
the operation, which needs no clock.

Steps of all ranks begin together where no rank begins one before the last has ended the step
before, unless ranks begin earlier that ended earlier. Otherwise each rank goes on from its own last
operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.messages import exchanges, messages
from traceconv.analysis.rank_facts import SORTS
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.replay.operations import CAUSES, HOST
from traceconv.analysis.replay.step_numbers import numbered
from traceconv.core.columns import F64, I8, I32, I64, Mask
from traceconv.scratch.memory import give_back

MOST_ERROR = 0.05
"""Relative error of a replay with recorded lengths beyond which nothing is concluded from it."""

_CLOCK_SHARE = 0.1  # of a transfer that clocks may be off for it to be measured by them
SLACK_NS = 1_000
"""What begins or ends so close together does so at once."""

_LATE = 0.01  # of a step: ranks that begin a kernel closer together say nothing
_BARRIER = 0.05  # of how far apart ranks begin a kernel, they end it together if they wait in it
_FOLLOWS = 0.5  # of the time that ranks end apart, they begin the next step apart
_FEWEST = 3  # steps, to tell how long one is; messages between two ranks
_SHORT, _NEARLY_ALL = 3, 0.95  # shortest sends; of the messages between two ranks
_EAGER = (
    0.5  # of the messages that are received much later: if this share end before, all are eager
)


class Clocks(Protocol):
    """The part of an alignment that is used (:class:`traceconv.alignment.plan.Plan`)."""

    @property
    def method(self) -> str:
        """How it was made."""

    def corrected(self, rank: int, ns: I64) -> I64:
        """Stamps of ``rank`` on the shared clock."""

    def error_ns(self, rank: int) -> int | None:
        """How far they may be off, None if unknown."""

    @property
    def several_jobs(self) -> str:
        """What shows that the ranks are of several jobs; "" if nothing does."""


class Graph(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Operations are rows, in the order in which they can be replayed: by *level*, every operation
    behind all that it waits for, and those that meet side by side. Times are ns as float64.

    Attributes:
        ranks:  of the job that are in it, ascending.
        steps:  (steps, 2): recording window and number, in order of time.
        recorded_ns: (steps,): how long each took, from its origin to the end of the last rank.
        pauses_ns: (steps,): from the end of the step before to the origin, in none of the steps.
        tails_ns: (steps,): from there to the end of the device windows, where no step follows.
        since:  (steps,): the step from whose origin replayed times count: the same one where steps
            of all ranks begin together (see the module), else the first of its recording window.
        rank, step: per operation, indexes into ``ranks`` and ``steps``.
        row:    per operation, its row in the operations of its rank.
        call:   per operation, its row in the collectives of its rank; -1 of work.
        start_ns, end_ns: as recorded, on the shared clock.
        length_ns: of work; of communication, its transfer.
        host_ns: before it begins, the host's delay and that without a recorded cause.
        cause_at, cause, cause_ns: the rest of its delay, by rank: the operation, which sort of time
            it went to, and ns.
        before: (operations, edges): rows it waits for; the last row of all, which is no operation,
            ends at 0.
        source: the eager send whose message a receive takes, which it needs besides; else that row.
        levels: where each level begins, and the number of operations.
        meets:  where each set of operations that meet begins; one alone is a set.
        kind:   per operation, index into ``kinds``; -1 of work.
        kinds:  what communication does, by collective, size of the group and bytes.
        name, part, part_ns, part_count: parts of work: index into ``names``, the operation, ns and
            count.
        names, sorts: of parts.
        shortest: whether transfers are the shortest of each operation, because clocks are not
            known well enough.
    """

    ranks: tuple[int, ...]
    steps: I64
    recorded_ns: F64
    pauses_ns: F64
    tails_ns: F64
    since: I64
    rank: I32
    step: I32
    row: I32
    call: I32
    start_ns: I64
    end_ns: I64
    length_ns: F64
    host_ns: F64
    cause_at: I32
    cause: I8
    cause_ns: F64
    before: I32
    source: I32
    levels: I64
    meets: I64
    kind: I32
    kinds: tuple[tuple[str, int, int], ...]
    names: tuple[str, ...]
    sorts: I64
    name: I32
    part: I32
    part_ns: F64
    part_count: F64
    shortest: bool

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def sizes(self) -> I64:
        """(meets,): how many operations meet, 1 for an operation on its own."""
        return np.diff(np.append(self.meets, len(self)))

    @property
    def delay_ns(self) -> F64:
        """(operations,): how long each is delayed, whatever by; not to be written to."""
        return _delays(self.host_ns, self.cause_at, self.cause, self.cause_ns)

    @property
    def delays_by_cause(self) -> F64:
        """(operations, sorts): the same by what it went to, a new array."""
        delays = np.zeros((len(self), len(SORTS)))
        delays[:, HOST] = self.host_ns
        delays[self.cause_at, self.cause] = self.cause_ns
        return delays


def _delays(host: F64, operation: I32, cause: I8, ns: F64) -> F64:
    for number in CAUSES if len(operation) else ():
        rows = cause == number
        host = host + np.bincount(operation[rows], ns[rows], len(host))
    return host


class Unusable(Exception):
    """The reason why no graph could be built."""


def graph_of(
    summaries: Sequence[RankSummary],
    clocks: Clocks,
    groups: Sequence[Matched],
    release: bool = False,
) -> Graph:
    """The graph of a job.

    Args:
        release: whether the operations of ranks and the times of groups are released as soon as the
            graph has them: it is as large as they are.

    Raises:
        Unusable: a rank has no operations, or steps of ranks cannot be told from each other.
    """
    ranks = sorted(
        (summary for summary in summaries if not summary.replay.why),
        key=lambda summary: summary.rank,
    )
    if not ranks:
        whys = {summary.replay.why for summary in summaries}
        raise Unusable(", ".join(sorted(whys)) or "no ranks")
    sizes = [len(summary.replay) for summary in ranks]
    first_rows = np.concatenate(([0], np.cumsum(sizes)))
    n = int(first_rows[-1])
    names_of_steps, step = numbered(ranks, groups)
    steps = np.array(names_of_steps, np.int64).reshape(-1, 2)
    rank = np.repeat(np.arange(len(ranks), dtype=np.int32), sizes)
    start = np.concatenate([clocks.corrected(o.rank, o.replay.start_ns) for o in ranks])
    end = np.concatenate([clocks.corrected(o.rank, o.replay.end_ns) for o in ranks])
    errors = [clocks.error_ns(summary.rank) for summary in ranks]
    error = np.array([np.inf if ns is None else float(ns) for ns in errors])
    ahead = _ahead(end, rank, step, error)
    start -= ahead[rank]
    end -= ahead[rank]
    opened, closed = np.full((2, len(steps)), [[np.iinfo(np.int64).max], [np.iinfo(np.int64).min]])
    for o, f, by in zip(ranks, first_rows.tolist(), ahead.tolist(), strict=False):
        of_step = step[f : f + len(o.replay)]
        for times, column, extreme in ((opened, 2, np.minimum), (closed, 3, np.maximum)):
            at = clocks.corrected(o.rank, o.replay.steps[:, column])[o.replay.step]
            extreme.at(times, of_step, at - by)
    call = np.concatenate([summary.replay.call for summary in ranks])
    before = np.concatenate(
        [np.where(o.replay.before >= 0, o.replay.before + f, n).astype(np.int32)
         for o, f in zip(ranks, first_rows[:-1], strict=True)]
    )  # fmt: skip
    meet, messages = _meetings(ranks, clocks, groups, first_rows)
    kinds, kind = _kinds(ranks)
    names, name, part = _parts(ranks, first_rows)
    part_ns = np.concatenate([summary.replay.ns for summary in ranks], dtype=np.float64)
    part_count = np.concatenate([summary.replay.count for summary in ranks], dtype=np.float64)
    host = np.concatenate([summary.replay.host_ns for summary in ranks], dtype=np.float64)
    cause_at = np.concatenate(
        [o.replay.cause_at + f for o, f in zip(ranks, first_rows[:-1], strict=True)]
    )
    cause = np.concatenate([summary.replay.cause for summary in ranks])
    cause_ns = np.concatenate([summary.replay.cause_ns for summary in ranks], dtype=np.float64)
    if release:
        for summary in ranks:
            summary.replay.release()
        for group in groups:
            group.release()
        give_back()
    barriers = _barriers(name, part, part_count, start, end, step, rank)
    length = (end - start).astype(np.float64)
    source = _eager(messages, meet, length, start, end, rank, error)
    for kernel, rows in barriers:
        lead = rows.min(axis=1)
        meet[rows] = lead[:, None]
        error[:] = 0
        kind[rows] = len(kinds)
        kinds.append((names[kernel][0], len(ranks), -1))
    shortest = _transfers(length, start, end, meet, source, rank, error)
    worked = kind[part] < 0
    name, part = name[worked], part[worked]
    part_ns, part_count = part_ns[worked], part_count[worked]
    origins = _Origins.of(start, end, step, rank, steps, opened, closed)
    if origins.together:  # no edges to other steps
        for column in before.T:
            column[step[np.minimum(column, max(n - 1, 0))] != step] = n
    waits = np.column_stack((before, source)) if (source < n).any() else before
    order, levels, meets = _ordered(waits, meet, start, n)
    del waits, meet
    new_row = np.empty(n + 1, np.int32)
    new_row[order], new_row[n] = np.arange(n), n
    # one after the other, so that nothing is there twice for long
    for column in before.T:
        column[:] = new_row[column[order]]
    start, end, step, host = start[order], end[order], step[order], host[order]
    causes = new_row[cause_at], cause, cause_ns
    origins.begin(before, host, causes, start, step)
    return Graph(
        ranks=tuple(summary.rank for summary in ranks),
        steps=steps,
        recorded_ns=origins.recorded_ns,
        pauses_ns=origins.pauses_ns,
        tails_ns=origins.tails_ns,
        since=origins.since,
        rank=rank[order],
        step=step,
        row=(order - first_rows[rank[order]]).astype(np.int32),
        call=call[order],
        start_ns=start,
        end_ns=end,
        length_ns=length[order],
        host_ns=host,
        cause_at=causes[0],
        cause=causes[1],
        cause_ns=causes[2],
        before=before,
        source=new_row[source[order]],
        levels=levels,
        meets=meets,
        kind=kind[order],
        kinds=tuple(kinds),
        names=tuple(text for text, _ in names),
        sorts=np.array([sort for _, sort in names], np.int64),
        name=name,
        part=new_row[part],
        part_ns=part_ns,
        part_count=part_count,
        shortest=shortest,
    )


def _ahead(end: I64, rank: I32, step: I32, error: F64) -> I64:
    """By how much the clock of each rank is ahead of the first rank's, where it is unknown and
    most of a step: steps with the same number then end together."""
    steps = int(step.max(initial=-1)) + 1
    ahead_ns = np.zeros(len(error), np.int64)
    if np.isfinite(error).all() or steps < _FEWEST:
        return ahead_ns
    ends = np.zeros((len(error), steps), np.int64)
    np.maximum.at(ends, (rank, step), end)
    usual = np.median(np.diff(ends[0])) / 2
    for number in np.flatnonzero(~np.isfinite(error)).tolist():
        in_both = (ends[number] > 0) & (ends[0] > 0)
        if in_both.any():
            apart = int(np.median((ends[number] - ends[0])[in_both]))
            ahead_ns[number] = apart if abs(apart) > usual else 0
    return ahead_ns


# -- steps ----------------------------------------------------------------------------------------


class _Origins(msgspec.Struct, frozen=True):
    """When the steps of the job begin.

    Attributes:
        origin_ns: of each step; of one that follows the step before, when that ended on all ranks.
        recorded_ns: from there to the end of the last rank.
        pauses_ns: from the end of the step before to the origin.
        tails_ns: as in :class:`Graph`.
        together: whether ranks begin a step when the last has ended the step before.
        since: as in :class:`Graph`.
    """

    origin_ns: I64
    recorded_ns: F64
    pauses_ns: F64
    tails_ns: F64
    together: bool
    since: I64

    @classmethod
    def of(
        cls, start: I64, end: I64, step: I32, rank: I32, step_names: I64, opened: I64, closed: I64
    ) -> _Origins:
        begins, ends = np.full(len(step_names), 2**62), np.full(len(step_names), -(2**62))
        np.minimum.at(begins, step, start)
        np.maximum.at(ends, step, end)
        ends = np.maximum.accumulate(ends)
        follows = (np.diff(step_names[:, 0]) == 0) & (np.diff(step_names[:, 1]) == 1)
        together = bool((begins[1:] >= ends[:-1] - SLACK_NS).all())
        together &= _waits(start, end, step, rank, follows)
        begins = np.minimum(begins, opened)
        origin = begins.copy()
        origin[1:] = np.where(follows, ends[:-1], np.maximum(begins[1:], ends[:-1]))
        pauses = np.zeros(len(step_names))
        pauses[1:] = origin[1:] - ends[:-1]
        tails = np.where(np.append(follows, False), 0.0, np.maximum(closed - ends, 0))
        number = np.arange(len(step_names))
        opens = together | (np.diff(step_names[:, 0], prepend=-1) != 0)
        since = np.maximum.accumulate(np.where(opens, number, 0))
        return cls(origin, (ends - origin).astype(np.float64), pauses, tails, together, since)

    def begin(
        self, before: I32, host: F64, causes: tuple[I32, I8, F64], start: I64, step: I32
    ) -> None:
        """Change the delays of operations that wait for nothing: these are late since the origin
        from which times count. Of recorded causes as much is kept as fits."""
        n = len(start)
        openings = np.flatnonzero((before == n).all(axis=1))
        late = np.maximum(start[openings] - self.origin_ns[self.since[step[openings]]], 0)
        delayed, _, ns = causes
        share = np.ones(n)
        share[openings] = np.minimum(late / np.maximum(_delays(host, *causes)[openings], 1), 1)
        host[openings] *= share[openings]
        ns *= share[delayed]
        host[openings] += late - _delays(host, *causes)[openings]


def _waits(start: I64, end: I64, step: I32, rank: I32, follows: Mask) -> bool:
    """Whether the start of a step on each rank depends on the end of the last rank more than on its
    own: a pause after each step may be longer than ranks are apart, and they still do not wait."""
    shape = int(step.max(initial=-1)) + 1, int(rank.max(initial=-1)) + 1
    begins, ends = np.full(shape, np.inf), np.full(shape, -np.inf)
    np.minimum.at(begins, (step, rank), start)
    np.maximum.at(ends, (step, rank), end)
    complete = np.isfinite(begins).all(axis=1)
    complete = complete[1:] & complete[:-1] & follows
    if complete.sum() < _FEWEST:
        return True
    off = []
    for times in (ends[:-1][complete], begins[1:][complete]):
        times -= np.median(times, axis=1, keepdims=True)
        off.append(times - np.median(times, axis=0))
    apart = float((off[0] ** 2).mean())
    return apart <= SLACK_NS**2 or float((off[0] * off[1]).mean()) < _FOLLOWS * apart


# -- meetings -------------------------------------------------------------------------------------


def _meetings(
    ranks: Sequence[RankSummary], clocks: Clocks, groups: Sequence[Matched], first_rows: I64
) -> tuple[I32, I64]:
    """Per operation, the set in which it meets others, as the row of one of them; and (messages,
    2): the sends and receives among these."""
    n = int(first_rows[-1])
    meet = np.arange(n, dtype=np.int32)
    row_of: dict[int, I64] = {}
    directed = {}
    for summary, begin in zip(ranks, first_rows[:-1].tolist(), strict=True):
        rows = np.full(len(summary.collectives), -1, np.int64)
        calls = np.flatnonzero(summary.replay.call >= 0)
        rows[summary.replay.call[calls]] = begin + calls
        row_of[summary.rank] = rows
        directed[summary.rank] = np.zeros(len(rows), bool)
        directed[summary.rank][: len(summary.collectives.direction)] = (
            summary.collectives.direction != 0
        )
    for group in groups:
        operation_rows = np.full(group.row.shape, -1, np.int64)
        for column, rank in enumerate(group.ranks):
            if rank in row_of:
                call_rows = group.row[:, column]
                undirected = (call_rows >= 0) & ~directed[rank][call_rows]
                operation_rows[undirected, column] = row_of[rank][call_rows[undirected]]
        lead = np.where(operation_rows >= 0, operation_rows, n).min(axis=1, initial=n)
        group_rows, columns = np.nonzero(operation_rows >= 0)
        meet[operation_rows[group_rows, columns]] = lead[group_rows]
    records_by_rank = {summary.rank: summary.collectives for summary in ranks}
    ends = {
        rank: clocks.corrected(rank, records.end_ns) for rank, records in records_by_rank.items()
    }
    pairs_found = []
    for pairs in (exchanges(records_by_rank), messages(records_by_rank, ends)):
        row_pairs = np.full((len(pairs), 2), -1, np.int64)
        for side in range(2):
            for rank in np.unique(pairs[:, 2 * side]).tolist():
                of_rank = pairs[:, 2 * side] == rank
                row_pairs[of_rank, side] = row_of[rank][pairs[of_rank, 2 * side + 1]]
        row_pairs = row_pairs[(row_pairs >= 0).all(axis=1)]
        meet[row_pairs] = row_pairs.min(axis=1, initial=n)[:, None]
        pairs_found.append(row_pairs)
    return meet, pairs_found[1]


def _barriers(
    name: I32, part: I32, count: F64, start: I64, end: I64, step: I32, rank: I32
) -> list[tuple[int, I64]]:
    """Kernels in which all ranks wait for the last one, though nothing says that they communicate:
    they end together however far apart they began. Per name, (occurrences, ranks) operations.

    Clocks have to be one clock for that, so where it shows they are.
    """
    alone = np.bincount(part, minlength=len(start)) == 1
    single = alone[part] & (count == 1)
    barriers = []
    steps, ranks = int(step.max(initial=-1)) + 1, int(rank.max(initial=-1)) + 1
    least = _LATE * (int(end.max(initial=0)) - int(start.min(initial=2**62))) / max(steps, 1)
    for kernel in np.unique(name[single]).tolist():
        rows = np.sort(part[single & (name == kernel)])
        per_cell, odd = divmod(len(rows), steps * ranks)
        if odd or not per_cell or ranks < 2 or len(rows) != np.count_nonzero(name == kernel):
            continue
        rows = rows[np.lexsort((start[rows], rank[rows], step[rows]))]
        cells = step[rows] * ranks + rank[rows]
        if (np.bincount(cells, minlength=steps * ranks) != per_cell).any():
            continue
        table = rows.reshape(steps, ranks, per_cell).transpose(0, 2, 1).reshape(-1, ranks)
        apart = [np.median(np.ptp(times[table], axis=1)) for times in (start, end)]
        if apart[0] > least and apart[1] <= _BARRIER * apart[0]:
            barriers.append((kernel, table))
    return barriers


def _eager(
    messages: I64, meet: I32, length: F64, start: I64, end: I64, rank: I32, error: F64
) -> I32:
    """Take eager sends out of their sets, with all others between the same ranks; and per
    operation, the eager send that it receives, else the number of operations.

    They end before they are received, where that begins much later; pairs of ranks in which it
    never does are like the others. Where clocks are unknown, sends are eager if nearly all of them
    are short, whenever they are received.
    """
    source = np.full(len(meet), len(meet), np.int32)
    sent, received = messages.T
    if not len(messages):
        return source
    pair, pair_of = np.unique(rank[messages], axis=0, return_inverse=True)
    pair_of = pair_of.reshape(-1)
    unknown = ~np.isfinite(error[rank[messages]]).all(axis=1)
    shortest = np.full((2, len(pair)), np.inf)
    for side, rows in enumerate((sent, received)):
        np.minimum.at(shortest[side], pair_of, length[rows])
    count = np.bincount(pair_of, minlength=len(pair))
    short = np.bincount(pair_of, length[sent] <= _SHORT * shortest[0][pair_of], len(pair)) / count
    off = 2 * np.maximum(error[rank[sent]], error[rank[received]])
    later = start[received] - start[sent] > _SHORT * shortest[0][pair_of] + off
    early = later & (end[sent] + off < start[received])
    later_count = np.bincount(pair_of, later, len(pair))
    share = np.bincount(pair_of, early, len(pair)) / np.maximum(later_count, 1)
    share = np.where(later_count >= _FEWEST, share, early.sum() / max(int(later.sum()), 1))
    eager = np.where(unknown, short[pair_of] >= _NEARLY_ALL, share[pair_of] >= _EAGER)
    guessed = eager & unknown
    # the shortest receive, unless all of them wait
    least = np.minimum(shortest[1], 2 * shortest[0])
    length[received[guessed]] = least[pair_of][guessed]
    meet[sent[eager]], meet[received[eager]] = sent[eager], received[eager]
    source[received[eager]] = sent[eager]
    return source


def _transfers(
    length: F64, start: I64, end: I64, meet: I32, source: I32, rank: I32, error: F64
) -> bool:
    """Replace the lengths of operations that meet, and of receives from eager sends, by their
    transfers; whether all of these are the shortest of each operation."""
    n = len(meet)
    has_clock = np.isfinite(error)
    received = np.flatnonzero((source < n) & has_clock[rank] & has_clock[rank[source % n]])
    length[received] = np.clip(
        end[received] - np.maximum(start, end[source % n])[received], 0, None
    )
    several = np.bincount(meet, minlength=n)[meet] > 1
    if not several.any():
        return False
    shortest, last_start = np.full(n, np.inf), np.full(n, -(2**62))
    np.minimum.at(shortest, meet[several], length[several])
    np.maximum.at(last_start, meet[several], start[several])
    worst = np.zeros(n)
    np.maximum.at(worst, meet[several], error[rank[several]])
    measured = several & (2 * worst[meet] <= _CLOCK_SHARE * shortest[meet])
    by_clock = np.clip(end - last_start[meet], 0, length)
    length[several] = np.where(measured, by_clock, shortest[meet])[several]
    return not measured.any()


# -- order ----------------------------------------------------------------------------------------


def _ordered(before: I32, meet: I32, start: I64, n: int) -> tuple[NDArray[np.intp], I64, I64]:
    """Operations by level and set, where levels begin, and where sets begin.

    Operations that were matched wrongly may wait for each other in a circle: sets in it are taken
    apart, the earliest first.
    """
    meet = meet.copy()
    while True:
        level, circular = _levels(before, meet, n)
        if not len(circular):
            break
        apart = circular[np.bincount(meet, minlength=n)[meet[circular]] > 1]
        earliest = meet[apart[np.argmin(start[apart])]]
        members = np.flatnonzero(meet == earliest)
        meet[members] = members
    order = np.lexsort((np.arange(n), meet, level))
    levels = np.searchsorted(level[order], np.arange(int(level.max(initial=-1)) + 2))
    sets = np.flatnonzero(np.concatenate(([True], np.diff(meet[order]) != 0)))
    return order, levels, sets[: n or 0]


def _levels(before: I32, meet: I32, n: int) -> tuple[I32, NDArray[np.intp]]:
    """The level of each operation, and the rows that are in a circle or behind one."""
    compiled = native.replay()
    if compiled is not None:
        lead = np.full(n, n, np.int32)
        np.minimum.at(lead, meet, np.arange(n, dtype=np.int32))
        level_bytes = compiled.levels(np.ascontiguousarray(before), lead[meet])
        level = np.frombuffer(level_bytes, np.int32)
        return level, np.flatnonzero(level < 0)
    level = np.full(n, -1, np.int32)
    is_edge = before.ravel() < n
    target = np.repeat(meet, before.shape[1])[is_edge]
    source = before.ravel()[is_edge]
    waiting = np.bincount(target, minlength=n)
    target = target[np.argsort(source, kind="stable")]
    begin = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=n))))
    del is_edge, source
    by_set = np.argsort(meet, kind="stable")
    members = np.searchsorted(meet[by_set], np.arange(n + 1))
    heads = np.flatnonzero(np.diff(members) > 0)
    ready = heads[waiting[heads] == 0]
    number = 0
    while len(ready):
        rows = by_set[_ranges(members[ready], members[ready + 1])]
        level[rows] = number
        reached = target[_ranges(begin[rows], begin[rows + 1])]
        np.subtract.at(waiting, reached, 1)
        ready = np.unique(reached[waiting[reached] == 0])
        number += 1
    return level, np.flatnonzero(level < 0)


def _ranges(low: I64, high: I64) -> I64:
    """The numbers from each ``low`` up to its ``high``, one after the other."""
    size = high - low
    ends = np.cumsum(size)
    numbers: I64 = np.arange(int(size.sum())) + np.repeat(low - (ends - size), size)
    return numbers


# -- what operations are --------------------------------------------------------------------------


def _kinds(ranks: Sequence[RankSummary]) -> tuple[list[tuple[str, int, int]], I32]:
    """Kinds of communication, and the one of each operation."""
    number: dict[tuple[str, int, int], int] = {}
    kinds_by_rank = []
    for summary in ranks:
        records = summary.collectives
        sizes, size_of = np.unique(records.size, return_inverse=True)
        cells = (records.kind.astype(np.int64) * len(records.groups) + records.group) * len(sizes)
        used, used_index = np.unique(cells + size_of, return_inverse=True)
        pairs, size = np.divmod(used, max(len(sizes), 1))
        kind, group = np.divmod(pairs, max(len(records.groups), 1))
        codes = np.array(
            [number.setdefault((records.kinds[k], records.groups[g].size, s), len(number))
             for k, g, s in zip(kind.tolist(), group.tolist(), sizes[size].tolist(), strict=True)],
            np.int32,
        )[used_index]  # fmt: skip
        call = summary.replay.call
        kinds_of_rank = np.full(len(call), -1, np.int32)
        kinds_of_rank[call >= 0] = codes[call[call >= 0]]
        kinds_by_rank.append(kinds_of_rank)
    return list(number), np.concatenate(kinds_by_rank)


def _parts(ranks: Sequence[RankSummary], first_rows: I64) -> tuple[list[tuple[str, int]], I32, I32]:
    """Names with sorts, and per part the index of its name and its operation."""
    number: dict[tuple[str, int], int] = {}
    names, parts = [], []
    for summary, begin in zip(ranks, first_rows[:-1].tolist(), strict=True):
        operations = summary.replay
        keys = zip(operations.names, operations.sorts.tolist(), strict=True)
        codes = np.array([number.setdefault(key, len(number)) for key in keys], np.int32)
        names.append(codes[operations.name])
        parts.append(operations.at + np.int32(begin))
    return list(number), np.concatenate(names), np.concatenate(parts)
