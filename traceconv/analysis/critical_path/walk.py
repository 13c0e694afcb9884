"""The walk: from the end of a step back to its start, over all ranks.

On a rank the path is its own work, back to the last communication operation that ended while the
rank did nothing else. What the rank waited for there came last of all the members: the path goes
on there, where that operation begins on it. Between lies the communication itself.

A jump is decided if it follows from what is recorded. It is not where clocks cannot tell who came
last, or may have been set unseen, where members have no capture or operations could not be matched,
where only a root is waited for, and where what came next need not have waited for the
communication. Where the choice is between known ranks, the walk goes on from each: as soon as all
of these walks are at the same operation, the path is certain again, whichever of them was right.
Else nothing before is certain.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import P2P, SEND, CollectiveRecords
from traceconv.alignment.messages import messages
from traceconv.alignment.offsets import gathered, one_file, one_host_clock
from traceconv.alignment.plan import Plan
from traceconv.analysis.critical_path.bounds import stated_or_bounded
from traceconv.analysis.critical_path.records import (
    ASIDE,
    COMMUNICATION,
    FIRM,
    LATE,
    NOT_LOOKED_AT,
    OUTSIDE,
    PARTS,
    UNMATCHED,
    PathRecords,
)
from traceconv.analysis.inferred_shape import stated_shape
from traceconv.analysis.rank_summary import RankSummary
from traceconv.core.columns import I64
from traceconv.core.job_shape import NO_SHAPE, JobShape
from traceconv.core.model import Capture

RESOLUTION_NS = 1000
"""Starts that differ by less are not told apart, however well clocks agree: devices stamp no
finer."""

MOST = 5000
"""Operations of one step at which ways are followed that may be the path; then none is certain."""

_ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Operations in which ranks wait for one of them, and not for all."""

UNKNOWN_ERROR = "aligned with an unknown error, which no collective bounds either"
UNCHECKED = "a clock change there would go unnoticed"
UNKNOWN_SIZE = "how many members the group has is unknown"

_FIRST, _START = -1, -2


class RankTime(msgspec.Struct, frozen=True):
    """One rank, on the shared clock.

    Attributes:
        rank:  its number.
        known: its operations.
        path:  what its time went to.
        points: on the shared clock.
        start_ns, end_ns: of its operations.
        steps: start and end by step of the job.
        ends:  rows of the operations that block, by end.
    """

    rank: int
    known: CollectiveRecords
    path: PathRecords
    points: I64
    start_ns: I64
    end_ns: I64
    steps: Mapping[tuple[int, int], tuple[int, int]]
    ends: I64
    when: I64

    @classmethod
    def of(cls, known: CollectiveRecords, path: PathRecords, plan: Plan, rank: int) -> RankTime:
        """Of what is gathered of a rank."""
        start, end = (plan.corrected(rank, one) for one in (known.start_ns, known.end_ns))
        spans = plan.corrected(rank, path.steps[:, 1:])
        seen: dict[int, int] = {}
        steps = {}
        for number, (first, last) in zip(path.steps[:, 0].tolist(), spans.tolist(), strict=True):
            seen[number] = seen.get(number, -1) + 1
            steps[number, seen[number]] = (first, last)
        blocking = np.flatnonzero(path.blocking)
        ends = blocking[np.argsort(end[blocking], kind="stable")]
        points = plan.corrected(rank, path.points)
        return cls(rank, known, path, points, start, end, steps, ends, end[ends])

    def parts(self, start: int, end: int) -> list[int]:
        """What ``[start, end)`` went to, ns by :data:`PARTS`; exactly its length.

        Where the shared clock makes a piece longer or shorter than the rank's own does, or it
        begins or ends between two points (by the error of a clock at most), the longest part of
        that piece differs.
        """
        found = [0] * len(PARTS)
        if end <= start:
            return found
        points, path = self.points, self.path
        low = max(int(np.searchsorted(points, start, "right")) - 1, 0)
        high = int(np.searchsorted(points, end))
        rows = slice(*np.searchsorted(path.at, (low, high)).tolist())
        sums = np.zeros(len(PARTS), np.int64)
        np.add.at(sums, path.part[rows], path.ns[rows])
        found = sums.tolist()
        beyond = max(int(points[0]) - start, 0) + max(end - int(points[-1]), 0)
        found[OUTSIDE] += min(beyond, end - start)
        wrong = sum(found) - (end - start)
        while wrong:
            longest = max(range(len(PARTS)), key=found.__getitem__)
            taken = min(wrong, found[longest]) if wrong > 0 else wrong
            found[longest] -= taken
            wrong -= taken
        return found

    def before(self, time: int) -> int:
        """The last operation that blocks and ends until ``time``, as a place in ``ends``."""
        return int(np.searchsorted(self.when, time, "right")) - 1


class Segment(msgspec.Struct, frozen=True):
    """A stretch of the path.

    Attributes:
        step:    (number, occurrence).
        rank:    on which it is.
        start_ns, end_ns: on the shared clock.
        parts:   ns by :data:`PARTS`; of communication all of it.
        kind:    kind of the operation, "" of a rank's own work.
        group:   of the operation.
        last:    the rank that came last, on which the path goes on; -1 if that is not decided.
        why:     why not.
        certain: whether the path leads here, as far as is known.
    """

    step: tuple[int, int]
    rank: int
    start_ns: int
    end_ns: int
    parts: Sequence[int]
    kind: str = ""
    group: str = ""
    last: int = -1
    why: str = ""
    certain: bool = True


class Path(msgspec.Struct, frozen=True):
    """The paths of all steps.

    Attributes:
        why:   why there are none; "" if there are.
        steps: the steps, start and end on the shared clock, and the rank that ends last.
        segments: backwards in time within a step.
        left_out: steps without a path, and why.
        missing: ranks of the job that have no capture; -1 if how many there are is unknown.
        unchecked: steps that are partly where no collective checked clocks, and the ranks whose.
        shape: by which texts name ranks.
    """

    why: str = ""
    steps: Mapping[tuple[int, int], tuple[int, int, int]] = msgspec.field(default_factory=dict)
    segments: tuple[Segment, ...] = ()
    left_out: Mapping[tuple[int, int], str] = msgspec.field(default_factory=dict)
    missing: int = 0
    unchecked: Mapping[tuple[int, int], tuple[int, ...]] = msgspec.field(default_factory=dict)
    shape: JobShape = NO_SHAPE


NOT_FOLLOWED = Path(NOT_LOOKED_AT)
"""Where nobody asked for it."""

Node = tuple[int, int, int]
"""Rank, time, and where to look on: a place in :attr:`RankTime.ends` from 0, ``_FIRST`` to find
it, ``_START`` where there is none, or below that an operation: ``-3 - row``."""


class _Found(msgspec.Struct, frozen=True):
    """What is before a node: stretches, nodes, and whether that is all there can be."""

    segments: tuple[Segment, ...]
    nodes: tuple[Node, ...]
    lost: bool = False


class _Meeting(msgspec.Struct, frozen=True):
    """One operation on several ranks: rows by rank, and what is known of it."""

    rows: Mapping[int, int]
    doubt: str = ""


def of_job(
    summaries: Sequence[RankSummary],
    plan: Plan,
    groups: Sequence[Matched],
    captures: Sequence[Capture],
    error_ns: int | None = None,
    world_size: int | None = None,
) -> Path:
    """The path of every step of a job.

    Where nothing states the error of a clock, what the ranks communicated bounds it.

    Args:
        summaries: with collectives and what the path needs, of all ranks that were read.
        groups: their matched operations.
        captures: of the same ranks.
        error_ns: of clocks whose error is unknown; None if nobody knows it.
        world_size: ranks of the job, for captures that do not state it; None if nobody knows it.
    """
    if all(one.path.why == NOT_LOOKED_AT for one in summaries):
        return NOT_FOLLOWED
    size = max((one.world_size for one in summaries), default=-1)
    size = world_size if size <= 0 and world_size is not None else size
    known = {one.rank: one.collectives for one in summaries}
    paths = {one.rank: one.path for one in summaries}
    spans = {one.rank: one.span_ns for one in summaries if one.span_ns is not None}
    if (one_file(captures) and not gathered(captures)) or one_host_clock(captures):
        errors: dict[int, int | None] = dict.fromkeys(paths, 0)
        checked = {}
    else:
        errors = stated_or_bounded(sorted(paths), groups, plan, spans, error_ns)
        every = {rank: plan.checked(rank, span) for rank, span in spans.items()}
        checked = {rank: one for rank, one in every.items() if one is not None}
    found = walk(known, paths, plan, errors, groups, size, checked)
    return replace(found, shape=stated_shape(summaries))


def walk(
    known: Mapping[int, CollectiveRecords],
    paths: Mapping[int, PathRecords],
    plan: Plan,
    errors: Mapping[int, int | None],
    groups: Sequence[Matched],
    world_size: int,
    checked: Mapping[int, tuple[int, int]] | None = None,
) -> Path:
    """The path of every step of a job.

    Args:
        known:  operations by rank.
        paths:  what the time of these ranks went to.
        errors: of their clocks, ns; None if unknown.
        groups: matched operations.
        world_size: ranks of the job, -1 if unknown.
        checked: ranks whose clock may have been set unseen before or after an instant, on the
            shared clock.
    """
    unusable = {rank: one.why for rank, one in paths.items() if one.why}
    if unusable:
        rank, why = next(iter(unusable.items()))
        more = f" (and {len(unusable) - 1} more)" if len(unusable) > 1 else ""
        return Path(f"rank {rank}{more}: {why}")
    if len(paths) > 1:
        doubted = {one.rank for one in plan.issues if one.code == "unaligned"}
        for rank, error in errors.items():
            if error is None or rank in doubted:
                what = "not aligned" if rank in doubted else UNKNOWN_ERROR
                return Path(f"the clock of rank {rank} is {what}")
    ranks = {rank: RankTime.of(known[rank], one, plan, rank) for rank, one in paths.items()}
    checked = checked or {}
    job = _Job(ranks, {r: e or 0 for r, e in errors.items()}, groups, world_size, checked)
    steps, left_out = _steps(ranks)
    found: list[Segment] = []
    ends = {}
    for step, (start, end) in steps.items():
        segments = job.path(step, start, end)
        ends[step] = (start, end, segments[0].rank)
        found += segments
    missing = max(world_size - len(ranks), 0) if world_size > 0 else -1
    outside = {step: tuple(r for r, (first, last) in checked.items() if start < first or end > last)
               for step, (start, end) in steps.items()}  # fmt: skip
    unchecked = {step: ranks for step, ranks in outside.items() if ranks}
    why = "" if steps else "no step is on all ranks"
    return Path(why, ends, tuple(found), left_out, missing, unchecked)


def _steps(
    ranks: Mapping[int, RankTime],
) -> tuple[dict[tuple[int, int], tuple[int, int]], dict[tuple[int, int], str]]:
    """Start and end of every step that is on all ranks, and the others: from where the first rank
    begins it, but not before the last one has ended the step before, to where the last one ends."""
    first: dict[tuple[int, int], int] = {}
    for one in ranks.values():
        for step, (start, _) in one.steps.items():
            first[step] = min(start, first.get(step, start))
    every = sorted(first, key=first.__getitem__)
    found, left_out = {}, {}
    ended = min(first.values(), default=0)
    for step in every:
        spans = np.array([one.steps[step] for one in ranks.values() if step in one.steps])
        if len(spans) < len(ranks):
            left_out[step] = f"recorded on {len(spans)} of {len(ranks)} ranks"
        elif spans[:, 0].max() >= spans[:, 1].min():
            left_out[step] = "the steps of this number are at different times"
        else:
            found[step] = (max(int(spans[:, 0].min()), ended), int(spans[:, 1].max()))
            ended = found[step][1]
    return found, left_out


class _Job:
    """All ranks, and which of their operations are the same."""

    def __init__(
        self,
        ranks: Mapping[int, RankTime],
        errors: Mapping[int, int],
        groups: Sequence[Matched],
        world_size: int,
        checked: Mapping[int, tuple[int, int]],
    ) -> None:
        self.ranks, self.errors, self.groups, self.checked = ranks, errors, groups, checked
        self.all_here = world_size == len(ranks)
        self.place = self._places()
        self.members = Counter(g.key for one in ranks.values() for g in one.known.groups)
        self.messages: dict[tuple[int, int], tuple[int, int]] = {}
        for sent in messages({rank: one.known for rank, one in ranks.items()}).tolist():
            one_side, other_side = (sent[0], sent[1]), (sent[2], sent[3])
            self.messages[one_side], self.messages[other_side] = other_side, one_side

    def _places(self) -> dict[int, tuple[I64, I64]]:
        """By rank: per operation the index of its matched group, and its row there; -1."""
        found = {
            rank: (np.full(len(one.known), -1, np.int64), np.full(len(one.known), -1, np.int64))
            for rank, one in self.ranks.items()
        }
        for number, group in enumerate(self.groups):
            for column, rank in enumerate(group.ranks):
                if rank not in found:
                    continue
                rows = np.flatnonzero(group.row[:, column] >= 0)
                own = group.row[rows, column]
                found[rank][0][own], found[rank][1][own] = number, rows
        return found

    def path(self, step: tuple[int, int], start: int, end: int) -> list[Segment]:
        """The stretches of one step, from its end to its start."""
        last = {rank: one.steps[step][1] for rank, one in self.ranks.items()}
        order = sorted(last, key=lambda rank: (-last[rank], rank))
        first = order[0]
        near = [r for r in order if last[first] - last[r] <= self._unsure(first, r)]
        near = order if any(self._unseen(r, last[r], last[r]) for r in order) else near
        heads = [(rank, last[rank], _FIRST) for rank in near]
        found, certain = self._explored(step, start, heads)
        segments: list[Segment] = []
        nodes: tuple[Node, ...] = (heads[0],)
        seen: set[Node] = set()
        while nodes:
            node = nodes[0]
            if node in seen:  # operations without length that wait for each other
                own = self._own(step, self.ranks[node[0]], start, node[1])
                return segments + [replace(one, certain=False) for one in own]
            seen.add(node)
            here = found.get(node) or self._before(step, start, node)
            sure = node in certain
            segments += [one if sure else replace(one, certain=False) for one in here.segments]
            nodes = here.nodes
        return segments

    def _unsure(self, one: int, other: int) -> int:
        """Differences between times of two ranks that say nothing."""
        if one == other:
            return 0
        return RESOLUTION_NS + self.errors[one] + self.errors[other]

    def _unseen(self, rank: int, start: int, end: int) -> bool:
        """Whether the clock of a rank may have been set before or after something, unseen."""
        first, last = self.checked.get(rank, (start, end))
        return end < first or start > last

    def _explored(
        self, step: tuple[int, int], start: int, heads: Sequence[Node]
    ) -> tuple[dict[Node, _Found], set[Node]]:
        """What is before the nodes that walks may come to, and the nodes they all come to, as long
        as there can be any."""
        found: dict[Node, _Found] = {}
        certain: set[Node] = set()
        waiting = [(-time, rank, at) for rank, time, at in heads]
        heapq.heapify(waiting)
        seen = set(heads)
        lost = False
        while waiting and not lost and len(found) < MOST:
            negative, rank, at = heapq.heappop(waiting)
            node = (rank, -negative, at)
            if not waiting:
                certain.add(node)
            here = found[node] = self._before(step, start, node)
            lost = here.lost or (not here.nodes and bool(waiting))
            for one in here.nodes:
                if one not in seen:
                    seen.add(one)
                    heapq.heappush(waiting, (-one[1], one[0], one[2]))
        return found, certain

    def _before(self, step: tuple[int, int], start: int, node: Node) -> _Found:
        """The rank's own work before a node, and the communication that this waited for."""
        number, time, at = node
        rank = self.ranks[number]
        if at == _FIRST:
            at = rank.before(time)
        row = -1 if at == _START or at == -1 else -3 - at if at <= -3 else int(rank.ends[at])
        released = min(int(rank.end_ns[row]), time) if row >= 0 else start
        first = row < 0 or released <= start
        own = self._own(step, rank, start if first else released, time)
        lost = any(one.why for one in own)
        if first:
            return _Found(own, (), lost)
        if own and not lost and int(rank.path.loose[row]) == ASIDE:
            why = "communication ended before it that had been hidden, maybe by chance"
            own = (replace(own[0], why=why),)
        after = self._released(step, start, rank, row, at, released)
        return _Found((*own, *after.segments), after.nodes, after.lost or lost)

    def _own(
        self, step: tuple[int, int], rank: RankTime, start: int, end: int
    ) -> tuple[Segment, ...]:
        """A rank's own work. Communication in it that nothing is known of may have waited."""
        if start >= end:
            return ()
        parts = rank.parts(start, end)
        lost = parts[UNMATCHED] > 0
        why = "communication that could not be looked up on other ranks" if lost else ""
        return (Segment(step, rank.rank, start, end, parts, why=why, certain=not lost),)

    def _released(
        self, step: tuple[int, int], start: int, rank: RankTime, row: int, at: int, end: int
    ) -> _Found:
        """The communication that ended, and where the path may go on."""
        members, why, lost = self._last(rank, row)
        begun = {r: min(int(self.ranks[r].start_ns[n]), end) for r, n in members.items()}
        nodes = tuple(
            (r, begun[r], self._queue(self.ranks[r], members[r]))
            for r in begun
            if begun[r] > start
        )  # fmt: skip
        main = next(iter(begun))
        loose = int(rank.path.loose[row]) if at > _FIRST else FIRM
        own = (rank.rank, end, at - 1 if at > 0 else _START)
        if loose == ASIDE:
            return _Found((), (own, *nodes), lost)
        if loose == LATE:
            why = why or "nothing followed at once when it ended"
            nodes = (*nodes, own) if begun[main] > start else ()
        known = rank.known
        begin = max(begun[main], start)
        segment = Segment(
            step,
            rank.rank,
            begin,
            end,
            _only(COMMUNICATION, end - begin),
            known.kinds[int(known.kind[row])],
            known.groups[int(known.group[row])].key,
            -1 if why else main,
            why,
            loose == FIRM and not lost,
        )
        return _Found((segment,) if end > begin else (), nodes, lost)

    def _queue(self, rank: RankTime, row: int) -> int:
        """Where to look on before the start of an operation: at the one it was queued behind."""
        return -3 - (row - 1) if bool(rank.path.queued[row]) else _FIRST

    def _last(self, rank: RankTime, row: int) -> tuple[dict[int, int], str, bool]:
        """The ranks that may have come last, the likeliest first, with their operations; why it
        is not certain who; and whether it could be somebody else."""
        alone = {rank.rank: row}
        found = self._meeting(rank, row)
        if found is None:
            return alone, "not matched on other ranks", True
        starts = {r: int(self.ranks[r].start_ns[n]) for r, n in found.rows.items()}
        end = int(rank.end_ns[row])
        last = max(starts, key=lambda r: (starts[r], r == rank.rank, -r))
        order = sorted(starts, key=lambda r: (-starts[r], r != last, r))
        near = {
            r: found.rows[r] for r in order if starts[last] - starts[r] <= self._unsure(r, last)
        }
        unseen = len(order) > 1 and any(
            self._unseen(r, starts[r], int(self.ranks[r].end_ns[n])) for r, n in found.rows.items()
        )
        message = rank.known.kinds[int(rank.known.kind[row])] == P2P
        sent = message and int(rank.known.direction[row]) == SEND and not unseen
        if sent and end < starts[last]:
            return alone, "", False  # it was handed over before anybody received it
        if found.doubt:
            return alone, found.doubt, True
        if unseen:
            near = {r: found.rows[r] for r in order}
        elif end < starts[last] - self._unsure(rank.rank, last):
            return alone, f"it ended before rank {last} had begun it", True
        if rank.known.kinds[int(rank.known.kind[row])] in _ROOTED and near.keys() != alone.keys():
            return alone, "ranks wait for its root, which is not known", True
        if unseen:
            return near, UNCHECKED, False
        if len(near) > 1:
            error = max(self._unsure(r, last) for r in near if r != last)
            names = ", ".join(map(str, sorted(near)[:4])) + ", ..." * (len(near) > 4)
            return (
                near,
                f"ranks {names} began within {error / 1e3:.1f} us, as sure as clocks are",
                False,
            )
        return near, "", False

    def _meeting(self, rank: RankTime, row: int) -> _Meeting | None:
        """The same operation on the other ranks; None where that is not known."""
        known = rank.known
        if len(self.ranks) == 1 and self.all_here:
            return _Meeting({rank.rank: row})
        message = known.kinds[int(known.kind[row])] == P2P
        if message and int(known.direction[row]):
            other = self.messages.get((rank.rank, row))
            return other and _Meeting({rank.rank: row, other[0]: other[1]})
        group, place = (int(one[row]) for one in self.place[rank.rank])
        size = known.groups[int(known.group[row])].size
        if group < 0:
            if size > self.members[known.groups[int(known.group[row])].key]:
                return _Meeting({rank.rank: row}, "not all members have a capture")
            return _Meeting({rank.rank: row}) if size == 1 else None
        one = self.groups[group]
        columns = [c for c, r in enumerate(one.ranks) if one.row[place, c] >= 0 and r in self.ranks]
        rows = {one.ranks[c]: int(one.row[place, c]) for c in columns}
        if message and len(one.ranks) != 2:
            return None
        if size <= 0 and self.all_here and (one.named or len(self.ranks) == 2):
            size = len(one.ranks)
        if message and any(int(self.ranks[r].known.direction[n]) for r, n in rows.items()):
            return None
        doubt = next((f"may be another: {one.doubts[c]}" for c in columns if one.doubts[c]), "")
        if size <= 0:
            doubt = UNKNOWN_SIZE
        elif len(one.ranks) != size:
            doubt = "not all members have a capture"
        elif len(rows) != size:
            doubt = "not matched on all members"
        return _Meeting(rows, doubt)


def _only(part: int, ns: int) -> list[int]:
    return [ns if number == part else 0 for number in range(len(PARTS))]
