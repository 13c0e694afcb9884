"""What a whole job would gain if ranks did less: a pipeline waits for whoever is last in any stage,
so what others wait for a rank within its stage may be lost again at the next message.

The recorded operations of all ranks are gone through once more. What a rank does less, it does
earlier; an operation ends by as much earlier as the last of its members comes earlier, with the
time by which each came before the last; a rank goes on by as much earlier as the operation ends, if
it waited for that. What the rank that gains least gains, the job does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import P2P, SEND, CollectiveRecords
from traceconv.alignment.messages import messages
from traceconv.analysis.critical_path.records import BRIEF_NS, adjacent
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.peers import Program
from traceconv.analysis.stragglers.significance import medians
from traceconv.analysis.stragglers.suspects import Suspect
from traceconv.analysis.stragglers.waits import Clocks, Waits
from traceconv.core.columns import F64, I64
from traceconv.core.robust import quantile

_MATCHED = 0.9  # of the messages, or nothing couples the stages
_HANDED_OVER = 0.5  # of the time in which one side receives: the other did not wait for that
_AT_ONCE = 1.5  # times the shortest time in which a message is received: it was there before
_LONG = 1 << 60  # ns: nobody waits so long
_SEEN = 0.5  # of what a rank does more, at least, or it is not seen where
_MOST = 1 << 23  # operations, times what is asked of them: 64 MB
_COVERED = 0.9  # of the time in which a rank was judged, or another says nothing of what is gained


class Replay(msgspec.Struct, frozen=True):
    """The operations of all ranks, one rank after the other, each in the order of starts.

    Attributes:
        ranks:   in their order.
        clocks:  by which captures of different times are told apart; nothing else needs them.
        first:   (ranks + 1,): where the operations of each begin.
        row:     (operations,): in the records of its rank.
        start_ns: on the rank's own clock.
        waited_ns: how long before the end the rank did nothing else; 0 where it went on.
        meeting: number of the operation among those of all ranks, -1 where it was not matched.
        holds:   whether it ends only when all have come.
        early_ns: how long before the last member the rank came.
        behind:  the operation that this one was queued behind, -1 if behind none.
        event, begins: (2 * operations,): starts and ends of operations, by rank and time: of which
            operation, and whether it is the start.
        since_ns: (2 * operations,): how long after the one before it on its rank each is.
        before_ns: the same of the starts, by operation.
    """

    ranks: tuple[int, ...]
    clocks: Clocks
    first: I64
    row: I64
    start_ns: I64
    waited_ns: I64
    meeting: I64
    holds: NDArray[np.bool_]
    early_ns: I64
    behind: I64
    event: I64
    begins: NDArray[np.bool_]
    since_ns: I64
    before_ns: I64

    @classmethod
    def of(cls, every: Mapping[int, RankSummary], waits: Waits, clocks: Clocks) -> Replay | None:
        """Of a job with stages; None if it has none, or it is not known what couples them."""
        sent = {rank: one.collectives.messages for rank, one in every.items()}
        if not any(one.any() for one in sent.values()):
            return None
        ranks = tuple(sorted(every))
        if any(len(every[rank].work.idle_ns) != len(sent[rank]) for rank in ranks):
            return None
        met = _meetings(every, waits)
        if np.mean(np.concatenate([met[r].number[sent[r]] for r in ranks]) >= 0) < _MATCHED:
            return None
        pieces = [_of_rank(every[rank], met[rank]) for rank in ranks]
        first = np.cumsum([0, *(len(piece[0]) for piece in pieces)])
        row, start, end, waited, meeting, holds, early, behind = (
            np.concatenate(columns) for columns in zip(*pieces, strict=True)
        )
        behind = np.where(behind >= 0, behind + np.repeat(first[:-1], np.diff(first)), -1)
        behind = np.where((behind >= 0) & holds[behind], behind, -1)
        columns = row, start, waited, meeting, holds, early, behind
        return cls(ranks, clocks, first, *columns, *_events(first, start, end))

    def gains(self, suspects: Sequence[Suspect]) -> F64:
        """(suspects,): what each adds to what the job gains per step, ns: by itself, or to what it
        gains where all the others are like their peers already; NaN where that is unknown, and
        where there are so many of them that it would take too long."""
        count = len(suspects)
        if (2 * count + 1) * len(self.row) > _MOST:
            return np.full(count, np.nan)
        like = np.zeros((2 * count + 1, count), bool)
        like[0] = True
        like[1 : count + 1] = np.eye(count, dtype=bool)
        like[count + 1 :] = ~np.eye(count, dtype=bool)
        less, of_rank = np.zeros(len(self.row)), np.full(len(self.ranks), -1)
        for number, one in enumerate(suspects):
            less += self._less(one)
            of_rank[self.ranks.index(one.rank)] = number
        does_less = np.where(of_rank >= 0, like[:, of_rank], False).T
        earlier = self._earlier(less, does_less)
        if earlier is None:
            return np.full(count, np.nan)
        found = np.full(count, np.nan)
        for number, one in enumerate(suspects):
            there = self._there(one)
            if there.any():
                steps = int((~np.isnan(one.excess)).sum())
                least = earlier[there].min(axis=0) / steps
                found[number] = max(least[1 + number], least[0] - least[1 + count + number])
        return found

    def _less(self, one: Suspect) -> F64:
        """(operations,): what a suspect does less before each if it is like its peers, ns: where it
        does more than they, or in parts of a step that are as long, if that is not seen."""
        found = np.zeros(len(self.row))
        program = one.judged.program
        within = [self._within(program, column) for column in range(len(program.ranks))]
        mine, known = within[one.column], np.flatnonzero(~np.isnan(one.excess)).tolist()
        size = int(quantile([len(mine[step]) for step in known], 0.5))
        late = [step for step in known if one.late[step] and len(mine[step]) == size]
        more = np.zeros(size)
        others = within[: one.column] + within[one.column + 1 :]
        for step in late:
            peers = [self.before_ns[rows[step]] for rows in others if len(rows[step]) == size]
            if peers:
                more += self.before_ns[mine[step]] - medians(np.array(peers, np.float64), 0)
        more = np.maximum(more / max(len(late), 1), 0)
        seen = more.sum() >= _SEEN * np.mean(one.excess[late]) if late else False
        for step in known:
            rows = mine[step]
            weights = more if seen and len(rows) == size else self.before_ns[rows].astype(float)
            found[rows] += one.excess[step] * weights / max(float(weights.sum()), 1.0)
        return found

    def _within(self, program: Program, column: int) -> list[I64]:
        """By step of a program, the operations of one of its ranks: from the last collective of the
        step before to its own last."""
        rank = self.ranks.index(program.ranks[column])
        rows = self.row[self.first[rank] : self.first[rank + 1]]
        at = np.empty(len(rows), np.int64)
        at[rows] = np.arange(self.first[rank], self.first[rank + 1])
        found: list[I64] = []
        ended = begins = int(self.first[rank]) - 1
        for step in range(len(program.steps)):
            of_step = np.concatenate([role.rows[step, :, column] for role in program.roles])
            places = at[of_step[of_step >= 0]]
            first, last = (int(places.min()), int(places.max())) if len(places) else (0, -1)
            found.append(np.arange(ended + 1 if begins < ended < first else first, last + 1))
            ended = last
        if len(found) > 1 and len(found[0]):  # nothing says where the first began but the second
            last = int(found[0][-1])
            found[0] = np.arange(max(last + 1 - len(found[1]), begins + 1), last + 1)
        return found

    def _there(self, one: Suspect) -> NDArray[np.bool_]:
        """(ranks,): whose capture covers what the suspect was judged by."""
        found = np.zeros(len(self.ranks), bool)
        first, last = self._span(self.ranks.index(one.rank))
        for number in np.flatnonzero(np.diff(self.first)).tolist():
            begun, ended = self._span(number)
            found[number] = min(last, ended) - max(first, begun) >= _COVERED * (last - first)
        return found

    def _span(self, number: int) -> tuple[int, int]:
        """When the first and the last operation of a rank begin, on the shared clock."""
        rows = np.array((self.first[number], self.first[number + 1] - 1))
        first, last = self.clocks.corrected(self.ranks[number], self.start_ns[rows]).tolist()
        return first, last

    def _earlier(self, less: F64, does_less: NDArray[np.bool_]) -> F64 | None:
        """By how much earlier each rank ends its capture; None if operations wait for each other.

        Args:
            less: (operations,): what is done less before each, ns.
            does_less: (ranks, cases): which ranks do.

        Returns:
            (ranks, cases), ns.
        """
        cases = does_less.shape[1]
        ahead = np.zeros((len(self.ranks), cases))
        members = np.bincount(self.meeting[self.meeting >= 0])
        come = np.zeros(len(members), np.int64)
        ended = np.full((len(members), cases), np.inf)
        at, stop = 2 * self.first[:-1], 2 * self.first[1:]
        while len(ranks := np.flatnonzero(at < stop)):
            here = at[ranks]
            one = self.event[here]
            met = self.meeting[one]
            ready = self.begins[here] | ~self.holds[one] | (come[met] == members[met])
            if not ready.any():
                return None
            ranks, here, one, met = ranks[ready], here[ready], one[ready], met[ready]
            at[ranks] += 1
            starts = self.begins[here]
            rank, row, to = ranks[starts], one[starts], met[starts]
            ahead[rank] += less[row, None] * does_less[rank]
            arrives, queued = ahead[rank], self.behind[row] >= 0
            arrives[queued] = ended[self.meeting[self.behind[row[queued]]]]
            some = to >= 0
            np.minimum.at(ended, to[some], arrives[some] + self.early_ns[row[some], None])
            np.add.at(come, to[some], 1)
            ends = ~starts & self.holds[one]
            rank, row, to = ranks[ends], one[ends], met[ends]
            waited = np.minimum(self.waited_ns[row], self.since_ns[here[ends]])
            own = ahead[rank] + waited[:, None]
            ahead[rank] = np.where(waited[:, None] > 0, np.minimum(own, ended[to]), ahead[rank])
        return ahead


def _events(first: I64, start: I64, end: I64) -> tuple[I64, NDArray[np.bool_], I64, I64]:
    """The last columns of :class:`Replay`."""
    count = len(start)
    rank = np.repeat(np.arange(len(first) - 1), np.diff(first))
    times = np.concatenate((start, end))
    # what ends at an instant does so before what starts then, unless it lasted no time
    turn = np.concatenate((np.full(count, 1), np.where(end <= start, 2, 0)))
    order = np.lexsort((turn, times, np.tile(rank, 2)))
    since = np.diff(times[order], prepend=0)
    since[2 * first[:-1][np.diff(first) > 0]] = 0
    event, begins, before = order % count, order < count, np.empty(count, np.int64)
    before[event[begins]] = since[begins]
    return event, begins, since, before


class _Met(msgspec.Struct, frozen=True):
    """What operations of a rank are among those of all, by row; see :class:`Replay`."""

    number: I64
    holds: NDArray[np.bool_]
    early_ns: I64

    @classmethod
    def none(cls, operations: int) -> _Met:
        """As nothing is matched."""
        numbers = np.full(operations, -1), np.zeros(operations, np.int64)
        return cls(numbers[0], np.zeros(operations, bool), numbers[1])

    def note(self, row: NDArray[Any], number: I64, holds: NDArray[np.bool_], early: I64) -> None:
        """What some rows are."""
        self.number[row], self.holds[row], self.early_ns[row] = number, holds, early


def _meetings(every: Mapping[int, RankSummary], waits: Waits) -> dict[int, _Met]:
    """By rank. All members end at once, so who is inside for longer came earlier; but a message may
    be handed over before it is received."""
    known = {rank: one.collectives for rank, one in every.items()}
    found = {rank: _Met.none(len(one)) for rank, one in known.items()}
    count, exchanges = 0, {}
    for group in waits.groups:
        inside = np.where(group.row >= 0, group.end_ns - group.start_ns, _LONG)
        early = inside - inside.min(axis=1, keepdims=True)
        numbers = count + np.arange(len(group.kinds))
        count += len(numbers)
        mutual = group.row >= 0  # sends and receives are looked up on their own
        for column, rank in enumerate(group.ranks):
            if len(known[rank].direction):
                mutual[:, column] &= known[rank].direction[group.row[:, column]] == 0
            seen = mutual[:, column]
            row = group.row[seen, column]
            found[rank].note(row, numbers[seen], np.ones(len(row), bool), early[seen, column])
        both = np.array([kind == P2P for kind in group.kinds], bool) & mutual.all(axis=1)
        if both.any():
            exchanges[group.ranks] = int(inside[both].min())
    sent = _sent(known)
    for (source, target), one in sent.items():
        # what is received in as short a time as any was there before
        usual = exchanges.get((min(source, target), max(source, target)), _LONG)
        ways = one, sent.get((target, source), one)
        usual = min(usual, *(int(way.inside_ns[1].min()) for way in ways))
        inside = one.inside_ns
        early = np.maximum(inside - np.maximum(inside[::-1], usual), 0)
        handed = inside[0] < _HANDED_OVER * inside[1]
        early[0, handed & (inside[1] <= _AT_ONCE * usual)] = _LONG
        early -= early.min(axis=0)
        numbers = count + np.arange(len(one.rows))
        count += len(numbers)
        found[source].note(one.rows[:, 0], numbers, ~handed, early[0])
        found[target].note(one.rows[:, 1], numbers, np.ones(len(numbers), bool), early[1])
    return found


class _Sent(msgspec.Struct, frozen=True):
    """Messages from one rank to another: (messages, 2) rows of both, and (2, messages), ns: how
    long both were inside."""

    rows: I64
    inside_ns: I64

    @classmethod
    def of(
        cls, rows: list[tuple[int, int]], source: CollectiveRecords, target: CollectiveRecords
    ) -> _Sent:
        """Those of two ranks' records."""
        both = np.array(rows, np.int64)
        sides = zip((source, target), both.T, strict=True)
        return cls(both, np.stack([(one.end_ns - one.start_ns)[row] for one, row in sides]))


def _sent(known: Mapping[int, CollectiveRecords]) -> dict[tuple[int, int], _Sent]:
    """The messages of which it is known who sends them, by that rank and the other."""
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (source, sent), (target, received) in messages(known).items():
        if known[source].direction[sent] == SEND:
            rows.setdefault((source, target), []).append((sent, received))
    return {pair: _Sent.of(both, *(known[rank] for rank in pair)) for pair, both in rows.items()}


def _of_rank(one: RankSummary, met: _Met) -> tuple[NDArray[Any], ...]:
    """Columns of one rank's operations, by start: row, start, end, how long it waited at the end,
    meeting, whether it holds, how early the rank came, and which operation it is queued behind,
    counted from the first of the rank."""
    known, work = one.collectives, one.work
    order = np.argsort(known.start_ns, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    computing = work.idle_ns < known.end_ns - known.start_ns
    waited = np.where(computing & (work.idle_ns <= BRIEF_NS), 0, work.idle_ns)
    behind = np.full(len(known), -1, np.int64)
    queued = 1 + np.flatnonzero(adjacent(known) & computing[1:])
    behind[queued] = place[queued - 1]
    columns = known.start_ns, known.end_ns, waited, met.number, met.holds, met.early_ns, behind
    return order, *(column[order] for column in columns)
