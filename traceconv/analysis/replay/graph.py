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


class Graph(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Operations are rows, in the order in which they can be replayed: by *level*, every operation
    behind all that it waits for, and those that meet side by side. Times are ns as float64.

    Attributes:
        ranks:  of the job that are in it, ascending.
        steps:  (steps, 2): recording window and number, in order of time.
        recorded_ns: (steps,): how long each took, from its origin to the end of the last rank.
        pauses_ns: (steps,): from the end of the step before to the origin, in none of the steps.
        together: whether steps of all ranks begin together; see the module.
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
    together: bool
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
        found = np.zeros((len(self), len(SORTS)))
        found[:, HOST] = self.host_ns
        found[self.cause_at, self.cause] = self.cause_ns
        return found


def _delays(host: F64, at: I32, cause: I8, ns: F64) -> F64:
    for one in CAUSES if len(at) else ():
        rows = cause == one
        host = host + np.bincount(at[rows], ns[rows], len(host))
    return host


class Unusable(Exception):
    """The reason why no graph could be built."""


def graph_of(every: Sequence[RankSummary], clocks: Clocks, groups: Sequence[Matched]) -> Graph:
    """The graph of a job.

    Raises:
        Unusable: a rank has no operations, or steps of ranks cannot be told from each other.
    """
    ranks = sorted((one for one in every if not one.replay.why), key=lambda one: one.rank)
    if not ranks:
        whys = {one.replay.why for one in every}
        raise Unusable(", ".join(sorted(whys)) or "no ranks")
    sizes = [len(one.replay) for one in ranks]
    first = np.concatenate(([0], np.cumsum(sizes)))
    n = int(first[-1])
    names_of_steps, step = numbered(ranks, groups)
    steps = np.array(names_of_steps, np.int64).reshape(-1, 2)
    rank = np.repeat(np.arange(len(ranks), dtype=np.int32), sizes)
    start = np.concatenate([clocks.corrected(o.rank, o.replay.start_ns) for o in ranks])
    end = np.concatenate([clocks.corrected(o.rank, o.replay.end_ns) for o in ranks])
    errors = [clocks.error_ns(one.rank) for one in ranks]
    error = np.array([np.inf if one is None else float(one) for one in errors])
    ahead = _ahead(end, rank, step, error)
    start -= ahead[rank]
    end -= ahead[rank]
    opened = np.full(len(steps), np.iinfo(np.int64).max)
    for o, f, by in zip(ranks, first.tolist(), ahead.tolist(), strict=False):
        begun = clocks.corrected(o.rank, o.replay.steps[:, 2])[o.replay.step]
        np.minimum.at(opened, step[f : f + len(begun)], begun - by)
    call = np.concatenate([one.replay.call for one in ranks])
    before = np.concatenate(
        [np.where(o.replay.before >= 0, o.replay.before + f, n).astype(np.int32)
         for o, f in zip(ranks, first[:-1], strict=True)]
    )  # fmt: skip
    meet, messages = _meetings(ranks, clocks, groups, first)
    kinds, kind = _kinds(ranks)
    names, name, part = _parts(ranks, first)
    part_ns = np.concatenate([one.replay.ns for one in ranks], dtype=np.float64)
    part_count = np.concatenate([one.replay.count for one in ranks], dtype=np.float64)
    barriers = _barriers(name, part, part_count, start, end, step, rank)
    length = (end - start).astype(np.float64)
    source = _eager(messages, meet, length, start, end, rank, error)
    for one, rows in barriers:
        lead = rows.min(axis=1)
        meet[rows] = lead[:, None]
        error[:] = 0
        kind[rows] = len(kinds)
        kinds.append((names[one][0], len(ranks), -1))
    shortest = _transfers(length, start, end, meet, source, rank, error)
    worked = kind[part] < 0
    name, part = name[worked], part[worked]
    part_ns, part_count = part_ns[worked], part_count[worked]
    origins = _Origins.of(start, end, step, rank, steps, opened)
    if origins.together:  # no edges to other steps
        apart = step[np.minimum(before, max(n - 1, 0))] != step[:, None]
        before[apart] = n
        del apart
    waits = np.column_stack((before, source)) if (source < n).any() else before
    order, levels, meets = _ordered(waits, meet, start, n)
    del waits, meet
    place = np.empty(n + 1, np.int32)
    place[order], place[n] = np.arange(n), n
    # one after the other, so that nothing is there twice for long
    before = place[before[order]]
    start, end, step = start[order], end[order], step[order]
    host = np.concatenate([one.replay.host_ns for one in ranks], dtype=np.float64)[order]
    cause_at = [one.replay.cause_at + f for one, f in zip(ranks, first[:-1], strict=True)]
    causes = (
        place[np.concatenate(cause_at)],
        np.concatenate([one.replay.cause for one in ranks]),
        np.concatenate([one.replay.cause_ns for one in ranks], dtype=np.float64),
    )
    origins.begin(before, host, causes, start, step)
    return Graph(
        ranks=tuple(one.rank for one in ranks),
        steps=steps,
        recorded_ns=origins.recorded_ns,
        pauses_ns=origins.pauses_ns,
        together=origins.together,
        rank=rank[order],
        step=step,
        row=(np.arange(n) - first[rank])[order].astype(np.int32),
        call=call[order],
        start_ns=start,
        end_ns=end,
        length_ns=length[order],
        host_ns=host,
        cause_at=causes[0],
        cause=causes[1],
        cause_ns=causes[2],
        before=before,
        source=place[source[order]],
        levels=levels,
        meets=meets,
        kind=kind[order],
        kinds=tuple(kinds),
        names=tuple(text for text, _ in names),
        sorts=np.array([sort for _, sort in names], np.int64),
        name=name,
        part=place[part],
        part_ns=part_ns,
        part_count=part_count,
        shortest=shortest,
    )


def _ahead(end: I64, rank: I32, step: I32, error: F64) -> I64:
    """By how much the clock of each rank is ahead of the first rank's, where it is unknown and
    most of a step: steps with the same number then end together."""
    steps = int(step.max(initial=-1)) + 1
    found = np.zeros(len(error), np.int64)
    if np.isfinite(error).all() or steps < _FEWEST:
        return found
    ends = np.zeros((len(error), steps), np.int64)
    np.maximum.at(ends, (rank, step), end)
    usual = np.median(np.diff(ends[0])) / 2
    for number in np.flatnonzero(~np.isfinite(error)).tolist():
        both = (ends[number] > 0) & (ends[0] > 0)
        if both.any():
            apart = int(np.median((ends[number] - ends[0])[both]))
            found[number] = apart if abs(apart) > usual else 0
    return found


# -- steps ----------------------------------------------------------------------------------------


class _Origins(msgspec.Struct, frozen=True):
    """When the steps of the job begin.

    Attributes:
        origin_ns: of each step; of one that follows the step before, when that ended on all ranks.
        recorded_ns: from there to the end of the last rank.
        pauses_ns: from the end of the step before to the origin.
        together: whether ranks begin a step when the last has ended the step before.
    """

    origin_ns: I64
    recorded_ns: F64
    pauses_ns: F64
    together: bool

    @classmethod
    def of(cls, start: I64, end: I64, step: I32, rank: I32, named: I64, opened: I64) -> _Origins:
        begins, ends = np.full(len(named), 2**62), np.full(len(named), -(2**62))
        np.minimum.at(begins, step, start)
        np.maximum.at(ends, step, end)
        ends = np.maximum.accumulate(ends)
        follows = (np.diff(named[:, 0]) == 0) & (np.diff(named[:, 1]) == 1)
        together = bool((begins[1:] >= ends[:-1] - SLACK_NS).all())
        together &= _waits(start, end, step, rank, follows)
        begins = np.minimum(begins, opened)
        origin = begins.copy()
        origin[1:] = np.where(follows, ends[:-1], np.maximum(begins[1:], ends[:-1]))
        pauses = np.zeros(len(named))
        pauses[1:] = origin[1:] - ends[:-1]
        return cls(origin, (ends - origin).astype(np.float64), pauses, together)

    def begin(
        self, before: I32, host: F64, causes: tuple[I32, I8, F64], start: I64, step: I32
    ) -> None:
        """Change the delays of operations that wait for nothing: these are late since the origin of
        their step where steps begin together, else since that of the first. Of recorded causes as
        much is kept as fits."""
        n = len(start)
        first = np.flatnonzero((before == n).all(axis=1))
        since = self.origin_ns[step[first] if self.together else 0 * step[first]]
        late = np.maximum(start[first] - since, 0)
        at, _, ns = causes
        share = np.ones(n)
        share[first] = np.minimum(late / np.maximum(_delays(host, *causes)[first], 1), 1)
        host[first] *= share[first]
        ns *= share[at]
        host[first] += late - _delays(host, *causes)[first]


def _waits(start: I64, end: I64, step: I32, rank: I32, follows: Mask) -> bool:
    """Whether the start of a step on each rank depends on the end of the last rank more than on its
    own: a pause after each step may be longer than ranks are apart, and they still do not wait."""
    shape = int(step.max(initial=-1)) + 1, int(rank.max(initial=-1)) + 1
    begins, ends = np.full(shape, np.inf), np.full(shape, -np.inf)
    np.minimum.at(begins, (step, rank), start)
    np.maximum.at(ends, (step, rank), end)
    seen = np.isfinite(begins).all(axis=1)
    seen = seen[1:] & seen[:-1] & follows
    if seen.sum() < _FEWEST:
        return True
    off = []
    for times in (ends[:-1][seen], begins[1:][seen]):
        times -= np.median(times, axis=1, keepdims=True)
        off.append(times - np.median(times, axis=0))
    apart = float((off[0] ** 2).mean())
    return apart <= SLACK_NS**2 or float((off[0] * off[1]).mean()) < _FOLLOWS * apart


# -- meetings -------------------------------------------------------------------------------------


def _meetings(
    ranks: Sequence[RankSummary], clocks: Clocks, groups: Sequence[Matched], first: I64
) -> tuple[I32, I64]:
    """Per operation, the set in which it meets others, as the row of one of them; and (messages,
    2): the sends and receives among these."""
    n = int(first[-1])
    meet = np.arange(n, dtype=np.int32)
    row_of: dict[int, I64] = {}
    directed = {}
    for one, begin in zip(ranks, first[:-1].tolist(), strict=True):
        rows = np.full(len(one.collectives), -1, np.int64)
        calls = np.flatnonzero(one.replay.call >= 0)
        rows[one.replay.call[calls]] = begin + calls
        row_of[one.rank] = rows
        directed[one.rank] = np.zeros(len(rows), bool)
        directed[one.rank][: len(one.collectives.direction)] = one.collectives.direction != 0
    for group in groups:
        at = np.full(group.row.shape, -1, np.int64)
        for column, rank in enumerate(group.ranks):
            if rank in row_of:
                own = group.row[:, column]
                taken = (own >= 0) & ~directed[rank][own]
                at[taken, column] = row_of[rank][own[taken]]
        lead = np.where(at >= 0, at, n).min(axis=1, initial=n)
        some, columns = np.nonzero(at >= 0)
        meet[at[some, columns]] = lead[some]
    known = {one.rank: one.collectives for one in ranks}
    ends = {rank: clocks.corrected(rank, one.end_ns) for rank, one in known.items()}
    found = []
    for pairs in (exchanges(known), messages(known, ends)):
        at = np.full((len(pairs), 2), -1, np.int64)
        for side in range(2):
            for rank in np.unique(pairs[:, 2 * side]).tolist():
                mine = pairs[:, 2 * side] == rank
                at[mine, side] = row_of[rank][pairs[mine, 2 * side + 1]]
        at = at[(at >= 0).all(axis=1)]
        meet[at] = at.min(axis=1, initial=n)[:, None]
        found.append(at)
    return meet, found[1]


def _barriers(
    name: I32, part: I32, count: F64, start: I64, end: I64, step: I32, rank: I32
) -> list[tuple[int, I64]]:
    """Kernels in which all ranks wait for the last one, though nothing says that they communicate:
    they end together however far apart they began. Per name, (occurrences, ranks) operations.

    Clocks have to be one clock for that, so where it shows they are.
    """
    alone = np.bincount(part, minlength=len(start)) == 1
    some = alone[part] & (count == 1)
    found = []
    steps, ranks = int(step.max(initial=-1)) + 1, int(rank.max(initial=-1)) + 1
    least = _LATE * (int(end.max(initial=0)) - int(start.min(initial=2**62))) / max(steps, 1)
    for one in np.unique(name[some]).tolist():
        rows = np.sort(part[some & (name == one)])
        each, odd = divmod(len(rows), steps * ranks)
        if odd or not each or ranks < 2 or len(rows) != np.count_nonzero(name == one):
            continue
        rows = rows[np.lexsort((start[rows], rank[rows], step[rows]))]
        cells = step[rows] * ranks + rank[rows]
        if (np.bincount(cells, minlength=steps * ranks) != each).any():
            continue
        table = rows.reshape(steps, ranks, each).transpose(0, 2, 1).reshape(-1, ranks)
        apart = [np.median(np.ptp(times[table], axis=1)) for times in (start, end)]
        if apart[0] > least and apart[1] <= _BARRIER * apart[0]:
            found.append((one, table))
    return found


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
    pair, of = np.unique(rank[messages], axis=0, return_inverse=True)
    of = of.reshape(-1)
    unknown = ~np.isfinite(error[rank[messages]]).all(axis=1)
    shortest = np.full((2, len(pair)), np.inf)
    for side, rows in enumerate((sent, received)):
        np.minimum.at(shortest[side], of, length[rows])
    count = np.bincount(of, minlength=len(pair))
    short = np.bincount(of, length[sent] <= _SHORT * shortest[0][of], len(pair)) / count
    off = 2 * np.maximum(error[rank[sent]], error[rank[received]])
    later = start[received] - start[sent] > _SHORT * shortest[0][of] + off
    early = later & (end[sent] + off < start[received])
    told = np.bincount(of, later, len(pair))
    share = np.bincount(of, early, len(pair)) / np.maximum(told, 1)
    share = np.where(told >= _FEWEST, share, early.sum() / max(int(later.sum()), 1))
    eager = np.where(unknown, short[of] >= _NEARLY_ALL, share[of] >= _EAGER)
    guessed = eager & unknown
    # the shortest receive, unless all of them wait
    least = np.minimum(shortest[1], 2 * shortest[0])
    length[received[guessed]] = least[of][guessed]
    meet[sent[eager]], meet[received[eager]] = sent[eager], received[eager]
    source[received[eager]] = sent[eager]
    return source


def _transfers(
    length: F64, start: I64, end: I64, meet: I32, source: I32, rank: I32, error: F64
) -> bool:
    """Replace the lengths of operations that meet, and of receives from eager sends, by their
    transfers; whether all of these are the shortest of each operation."""
    n = len(meet)
    known = np.isfinite(error)
    taken = np.flatnonzero((source < n) & known[rank] & known[rank[source % n]])
    length[taken] = np.clip(end[taken] - np.maximum(start, end[source % n])[taken], 0, None)
    several = np.bincount(meet, minlength=n)[meet] > 1
    if not several.any():
        return False
    shortest, last = np.full(n, np.inf), np.full(n, -(2**62))
    np.minimum.at(shortest, meet[several], length[several])
    np.maximum.at(last, meet[several], start[several])
    worst = np.zeros(n)
    np.maximum.at(worst, meet[several], error[rank[several]])
    measured = several & (2 * worst[meet] <= _CLOCK_SHARE * shortest[meet])
    by_clock = np.clip(end - last[meet], 0, length)
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
        level, left = _levels(before, meet, n)
        if not len(left):
            break
        apart = left[np.bincount(meet, minlength=n)[meet[left]] > 1]
        earliest = meet[apart[np.argmin(start[apart])]]
        members = np.flatnonzero(meet == earliest)
        meet[members] = members
    order = np.lexsort((np.arange(n), meet, level))
    levels = np.searchsorted(level[order], np.arange(int(level.max(initial=-1)) + 2))
    sets = np.flatnonzero(np.concatenate(([True], np.diff(meet[order]) != 0)))
    return order, levels, sets[: n or 0]


def _levels(before: I32, meet: I32, n: int) -> tuple[I32, NDArray[np.intp]]:
    """The level of each operation, and the rows that are in a circle or behind one."""
    part = native.replay()
    if part is not None:
        lead = np.full(n, n, np.int32)
        np.minimum.at(lead, meet, np.arange(n, dtype=np.int32))
        found = part.levels(np.ascontiguousarray(before), lead[meet])
        level = np.frombuffer(found, np.int32)
        return level, np.flatnonzero(level < 0)
    level = np.full(n, -1, np.int32)
    known = before.ravel() < n
    target = np.repeat(meet, before.shape[1])[known]
    source = before.ravel()[known]
    waiting = np.bincount(target, minlength=n)
    target = target[np.argsort(source, kind="stable")]
    begin = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=n))))
    del known, source
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
    found: I64 = np.arange(int(size.sum())) + np.repeat(low - (ends - size), size)
    return found


# -- what operations are --------------------------------------------------------------------------


def _kinds(ranks: Sequence[RankSummary]) -> tuple[list[tuple[str, int, int]], I32]:
    """Kinds of communication, and the one of each operation."""
    number: dict[tuple[str, int, int], int] = {}
    found = []
    for one in ranks:
        known = one.collectives
        columns = np.stack((known.kind, known.group, known.size), axis=1).astype(np.int64)
        used, which = np.unique(columns.reshape(-1, 3), axis=0, return_inverse=True)
        codes = np.array(
            [number.setdefault((known.kinds[k], known.groups[g].size, size), len(number))
             for k, g, size in used.tolist()], np.int32,
        )[which.reshape(-1)]  # fmt: skip
        call = one.replay.call
        own = np.full(len(call), -1, np.int32)
        own[call >= 0] = codes[call[call >= 0]]
        found.append(own)
    return list(number), np.concatenate(found)


def _parts(ranks: Sequence[RankSummary], first: I64) -> tuple[list[tuple[str, int]], I32, I32]:
    """Names with sorts, and per part the index of its name and its operation."""
    number: dict[tuple[str, int], int] = {}
    names, parts = [], []
    for one, begin in zip(ranks, first[:-1].tolist(), strict=True):
        known = one.replay
        keys = zip(known.names, known.sorts.tolist(), strict=True)
        codes = np.array([number.setdefault(key, len(number)) for key in keys], np.int32)
        names.append(codes[known.name])
        parts.append(known.at + np.int32(begin))
    return list(number), np.concatenate(names), np.concatenate(parts)
