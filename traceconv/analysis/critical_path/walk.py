"""The critical path: the longest path of the graph that :mod:`traceconv.analysis.replay` builds.

From the operation that ends a step last the path goes back to what that operation waited for: of
communication, to the member that came last; on a rank, to the operation that ended last of those
that it follows. The replay decides, so the path is that of the replayed step; it is drawn at the
recorded times, and its intervals tile the step.

The path names what the recording leaves open: where clocks cannot tell who came last, where
members have no capture or were not matched, and where an operation need not have waited for the
communication before it. Where the choice is between known operations, all ways are followed; where
they meet again, the path is certain again. Else nothing before is certain.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import add

import msgspec
import numpy as np
from msgspec.structs import replace

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import P2P
from traceconv.alignment.offsets import gathered, one_file, one_host_clock
from traceconv.alignment.plan import Plan
from traceconv.alignment.stamps import SYNCHRONOUS
from traceconv.analysis.critical_path.bounds import SLACK_NS, bounded
from traceconv.analysis.inferred_shape import stated_shape
from traceconv.analysis.rank_facts import NOT_REQUESTED, SORTS
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.replay.engine import replayed
from traceconv.analysis.replay.graph import Unusable
from traceconv.analysis.replay.job import Once, Replay, each_time, replay_of
from traceconv.analysis.replay.operations import HOST
from traceconv.analysis.replay.own import work_parts
from traceconv.core.clock import time_text
from traceconv.core.columns import I64
from traceconv.core.job_shape import NO_SHAPE, JobShape
from traceconv.core.model import Capture

PARTS = (*SORTS, "communication")
"""Parts of the time on the path. ``host`` includes time without a recorded cause."""

RESOLUTION_NS = 1000
"""Arrivals that differ by less are not told apart, however well clocks agree: devices stamp no
finer."""

BRIEF_NS = 20_000
"""Gaps between kernels are so long without anything to wait for."""

MOST = 5000
"""Operations of one step up to which ways are followed; then nothing more is certain."""

_OUTSIDE = 0.01  # of a capture, so near to where a clock was checked it counts as checked
_ROOTED = ("broadcast", "reduce", "gather", "scatter")  # ranks wait for one of them, not for all

UNKNOWN_ERROR = "by how much clocks are off is unknown, and no collective bounds it"
UNCHECKED = "a clock change there would go unnoticed"
UNKNOWN_SIZE = "how many members the group has is unknown"


class Segment(msgspec.Struct, frozen=True):
    """An interval of the path.

    Attributes:
        step:    (number, occurrence).
        rank:    on which it is.
        start_ns, end_ns: on the shared clock.
        parts:   ns by :data:`PARTS`; they add up to its length.
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
    parts: tuple[int, ...]
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
        error: relative error of the replay that decides; see
            :attr:`traceconv.analysis.replay.job.Replay.error`.
        cut:   what counts as a step where none is marked.
    """

    why: str = ""
    steps: Mapping[tuple[int, int], tuple[int, int, int]] = msgspec.field(default_factory=dict)
    segments: tuple[Segment, ...] = ()
    left_out: Mapping[tuple[int, int], str] = msgspec.field(default_factory=dict)
    missing: int = 0
    unchecked: Mapping[tuple[int, int], tuple[int, ...]] = msgspec.field(default_factory=dict)
    shape: JobShape = NO_SHAPE
    error: float = 0.0
    cut: str = ""


NOT_FOLLOWED = Path("not requested")
"""Where it was not requested."""


def of_job(
    summaries: Sequence[RankSummary],
    plan: Plan,
    groups: Sequence[Matched],
    captures: Sequence[Capture],
    error_ns: int | None = None,
    world_size: int | None = None,
    replay: Replay | None = None,
    once: Once = each_time,
) -> Path:
    """The path of every step of a job.

    Args:
        summaries: with collectives and operations, of all ranks that were read.
        groups: their matched operations.
        captures: of the same ranks.
        error_ns: of clocks whose error is unknown; None if nobody knows it.
        world_size: ranks of the job, for captures that do not state it; None if nobody knows it.
        replay: of the same ranks, where there is one already.
        once: for what takes long.
    """
    if all(summary.replay.why == NOT_REQUESTED for summary in summaries):
        return NOT_FOLLOWED
    shape = stated_shape(summaries)
    why = _unusable(summaries, plan)
    try:
        replay = replay if why or replay else replay_of(summaries, plan, groups, once=once)
    except Unusable as e:
        why = str(e)
    if replay and not why and not replay.usable:
        why = replay.too_wrong
    if why or replay is None:
        return Path(why, shape=shape)
    size = max((summary.world_size for summary in summaries), default=-1)
    size = world_size if size <= 0 and world_size is not None else size
    errors, checked = _clocks(summaries, plan, groups, captures, error_ns)

    def make() -> Path:
        return _Walk(replay, errors, checked, groups, size).path()

    path = once(f"path with {error_ns} and {size}", Path, make)
    missing = max(size - len(summaries), 0) if size > 0 else -1
    return replace(path, missing=missing, shape=shape, error=replay.error, cut=replay.cut)


def _unusable(summaries: Sequence[RankSummary], plan: Plan) -> str:
    """Why no path leads through all ranks, or ""."""
    whys = {summary.rank: summary.replay.why for summary in summaries if summary.replay.why}
    doubted = {issue.rank for issue in plan.issues if issue.code == "unaligned"}
    doubted &= {summary.rank for summary in summaries}
    if doubted and len(summaries) > 1:
        whys.setdefault(
            min(rank for rank in doubted if rank is not None), "its clock is not aligned"
        )
    for rank, why in whys.items():
        others = f" (and {len(whys) - 1} more)" if len(whys) > 1 else ""
        return f"rank {rank}{others}: {why}"
    steps = max((len(summary.replay.steps) for summary in summaries), default=0)
    unmarked = steps < 2 and not any(summary.replay.marked for summary in summaries)
    return "its steps are not marked" if unmarked else ""


def _clocks(
    summaries: Sequence[RankSummary],
    plan: Plan,
    groups: Sequence[Matched],
    captures: Sequence[Capture],
    error_ns: int | None,
) -> tuple[dict[int, float], dict[int, tuple[int, int]]]:
    """Largest error of the clock of each rank, ns, infinite if unknown; and ranks whose clock may
    have been set unseen before or after an instant, on the shared clock.

    Where nothing states an error, what the ranks communicated bounds it.
    """
    ranks = [summary.rank for summary in summaries]
    if (one_file(captures) and not gathered(captures)) or one_host_clock(captures):
        return dict.fromkeys(ranks, 0.0), {}
    spans = {summary.rank: summary.span_ns for summary in summaries if summary.span_ns is not None}
    errors = {rank: plan.error_ns(rank) for rank in ranks}
    if None in errors.values():
        records = {summary.rank: summary.collectives for summary in summaries}
        bounds = (
            dict.fromkeys(ranks, error_ns)
            if error_ns is not None
            else bounded(records, groups, plan, spans)
        )
        errors = {rank: bounds.get(rank) if e is None else e for rank, e in errors.items()}
    checked = {rank: plan.checked(rank, span) for rank, span in spans.items()}
    if len({capture.host for capture in captures}) == 1 and captures[0].host:
        checked = {}  # a clock that is set is set for all of them
    return (
        {rank: math.inf if e is None else float(e) for rank, e in errors.items()},
        {rank: window for rank, window in checked.items() if window is not None},
    )


class _Before(msgspec.Struct, frozen=True):
    """Where the path goes back to from the end of an operation.

    Attributes:
        members: operations that may have come last, the likeliest first.
        waited: operations that these may have waited for, the likeliest first; none where the path
            has come to the start of the step.
        why:  what is not decided.
        lost: whether it could be something that is not known.
    """

    members: Sequence[int]
    waited: Sequence[int]
    why: str
    lost: bool


class _Walk:
    """The ways back through a graph."""

    def __init__(
        self,
        replay: Replay,
        errors: Mapping[int, float],
        checked: Mapping[int, tuple[int, int]],
        groups: Sequence[Matched],
        world_size: int,
    ) -> None:
        graph = replay.graph
        self.graph = graph
        self.every = {rank.rank: rank for rank in replay.every}
        n = self.count = len(graph)
        self.set_of = np.repeat(np.arange(len(graph.meets)), graph.sizes)
        self.borders = np.append(graph.meets, n).tolist()
        self.error = np.array([errors[rank] for rank in graph.ranks])
        if np.isfinite(self.error).all():
            zero = int(graph.start_ns.min())
            start, ends = ((ns - zero).astype(np.float64) for ns in (graph.start_ns, graph.end_ns))
        else:  # recorded times of two ranks tell nothing; those of the replay need no clock
            start = np.full(n, np.inf)
            ends = replayed(graph, replay.lengths[:, None], replay.delays[:, None])[0]
        self.ends = np.append(ends, 0.0)
        before = self.ends[graph.before]
        follows = before.max(axis=1, initial=0.0) + replay.delays
        before[graph.before == n] = -np.inf
        latest = graph.before[np.arange(n), before.argmax(axis=1)]
        is_first = latest == n
        self.latest, self.late = latest, replay.delays > BRIEF_NS
        starts, ended = np.append(graph.start_ns, 0), np.append(graph.end_ns, 0)
        previous = graph.before[:, 0]
        aside = starts[latest] < ended[previous]
        aside &= ended[latest] - ended[previous] <= BRIEF_NS
        self.by_previous = (previous < n) & (self.late | aside)
        self.came = np.where(is_first & np.isfinite(start), start, np.minimum(start, follows))
        # a receive from an eager send: which of both was last
        sender = np.append(graph.rank, 0)[graph.source]
        unsure = self.error[graph.rank] + self.error[sender] + RESOLUTION_NS
        begun = graph.start_ns - np.append(graph.start_ns, 0)[graph.source]
        late, eager = self.ends[graph.source] - self.came, graph.source < n
        self.sender_last = eager & (late >= 0) & (begun < 0)
        sure = self.sender_last & (begun < -unsure) | (late < -unsure)
        self.either = eager & ~sure
        self.came = np.maximum(self.came, self.ends[graph.source])
        self.eager = np.zeros(n + 1, bool)
        self.eager[graph.source] = True
        self.checked = self._checked(checked)
        self.outside: set[int] = set()
        self.claimed = Counter(g.key for rank in replay.every for g in rank.collectives.groups)
        self.all_here = world_size == len(graph.ranks)
        self.doubts = {
            (matched_group.key, rank): doubt
            for matched_group in groups
            for rank, doubt in zip(matched_group.ranks, matched_group.doubts, strict=True)
            if doubt
        }
        work = np.rint(work_parts(graph)).astype(np.int64)
        self.work = np.column_stack((work, np.zeros(n, np.int64)))
        delays = np.rint(graph.delays_by_cause).astype(np.int64)
        self.delays = np.column_stack((delays, np.zeros(n, np.int64)))

    def _checked(self, checked: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """By index of a rank, from when to when its clock was checked. Operations that end at once
        on all ranks in them check it, too, in whatever group they are."""
        graph = self.graph
        if not checked:
            return {}
        waits = np.isin([kind for kind, _, _ in graph.kinds], SYNCHRONOUS)
        ends = [f.reduceat(graph.end_ns, graph.meets) for f in (np.minimum, np.maximum)]
        unsure = 2 * self.error.max() + SLACK_NS
        met_at_once = (graph.sizes > 1) & (ends[1] - ends[0] <= unsure)
        sure = met_at_once[self.set_of] & (graph.kind >= 0) & np.append(waits, False)[graph.kind]
        begin, end = np.full(len(graph.ranks), 2**62), np.full(len(graph.ranks), -(2**62))
        np.minimum.at(begin, graph.rank[sure], graph.start_ns[sure])
        np.maximum.at(end, graph.rank[sure], graph.end_ns[sure])
        slack = int(_OUTSIDE * (graph.end_ns.max() - graph.start_ns.min()))
        column = {rank: index for index, rank in enumerate(graph.ranks)}
        return {
            (met_at_once := column[rank]): (
                min(begin_ns, int(begin[met_at_once])) - slack,
                max(end_ns, int(end[met_at_once])) + slack,
            )
            for rank, (begin_ns, end_ns) in checked.items()
        }

    def path(self) -> Path:
        graph = self.graph
        n_steps, ranks = len(graph.steps), len(graph.ranks)
        present = np.zeros((n_steps, ranks), bool)
        present[graph.step, graph.rank] = True
        ends = np.full(n_steps, -(2**62))
        np.maximum.at(ends, graph.step, graph.end_ns)
        ends = np.maximum.accumulate(ends)
        starts = ends - graph.recorded_ns.astype(np.int64)
        order = np.lexsort((-self.ends[:-1], graph.step))
        borders = np.searchsorted(graph.step[order], np.arange(n_steps + 1))
        steps, left_out, unchecked = {}, {}, {}
        segments: list[Segment] = []
        times: Counter[int] = Counter()
        for row, number in enumerate(graph.steps[:, 1].tolist()):
            step = number, times[number]
            times[number] += 1
            if not present[row].all():
                left_out[step] = f"recorded on {int(present[row].sum())} of {ranks} ranks"
                continue
            start, end = int(starts[row]), int(ends[row])
            if start >= end:
                left_out[step] = "no time of it was recorded"
                continue
            self.outside = set()
            own_segments = self._of_step(step, start, end, order[borders[row] : borders[row + 1]])
            if tail := int(graph.tails_ns[row]):
                last = own_segments[0].rank
                parts = tuple(tail * (part == SORTS[HOST]) for part in PARTS)
                is_sure = own_segments[0].certain
                own_segments.insert(0, Segment(step, last, end, end + tail, parts, certain=is_sure))
            steps[step] = start, end + tail, own_segments[0].rank
            segments += own_segments
            if self.outside:
                unchecked[step] = tuple(graph.ranks[column] for column in sorted(self.outside))
        return Path(
            "" if steps else "no step is on all ranks",
            steps, tuple(segments), left_out, unchecked=unchecked,
        )  # fmt: skip

    def _of_step(self, step: tuple[int, int], start: int, end: int, rows: I64) -> list[Segment]:
        """The intervals of a step, from its end to its start.

        Args:
            rows: the operations of the step, by the replayed end, the last one first.
        """
        graph = self.graph
        _, first_rows = np.unique(graph.rank[rows], return_index=True)
        last_ops = rows[np.sort(first_rows)]
        near = last_ops[self.ends[last_ops] >= self.ends[last_ops[0]] - self._unsure(last_ops)]
        if self._unseen(last_ops):
            near = last_ops
        before_by_set, certain = self._followed(near.tolist(), start)
        segments: list[Segment] = []
        time, op = end, int(near[0])
        while True:
            current = before_by_set.get(int(self.set_of[op])) or self._before(op, start)
            sure = int(self.set_of[op]) in certain
            begin = int(graph.start_ns[current.members[0]])
            if self.sender_last[current.members[0]]:  # the message had not arrived until then
                begin = max(begin, int(graph.end_ns[graph.source[current.members[0]]]))
            begin = min(max(begin, start), time)
            self._draw(segments, step, op, current, begin, time, sure)
            member = current.members[0]
            before = current.waited[0] if current.waited else -1
            time = min(max(int(graph.end_ns[before]), start), begin) if before >= 0 else start
            rank = graph.ranks[graph.rank[member]]
            alone = sure and not current.lost and len(current.members) == 1
            parts = self.delays[member]
            _extend(segments, Segment(step, rank, time, begin, _fitted(parts, begin - time),
                                      certain=alone))  # fmt: skip
            if before < 0 or time <= start:
                return segments
            op = before

    def _draw(
        self, segments: list[Segment], step: tuple[int, int], op: int, current: _Before,
        begin: int, end: int, sure: bool,
    ) -> None:  # fmt: skip
        """Add the interval of an operation."""
        graph = self.graph
        rank = graph.ranks[graph.rank[op]]
        if graph.kind[op] < 0:
            parts = _fitted(self.work[op], end - begin)
            segment = Segment(step, rank, begin, end, parts, why=current.why, certain=sure)
            _extend(segments, segment)
            return
        parts = *(0 for _ in SORTS), end - begin
        last_rank = -1 if current.why else graph.ranks[graph.rank[current.members[0]]]
        kind, group = graph.kinds[graph.kind[op]][0], self._group(op)
        sure &= not current.lost and current.why != UNCHECKED
        if end > begin:
            segments.append(
                Segment(step, rank, begin, end, parts, kind, group, last_rank, current.why, sure)
            )

    def _group(self, op: int) -> str:
        """Key of the group of communication; "" of kernels in which all ranks wait."""
        call = int(self.graph.call[op])
        records = self.every[self.graph.ranks[self.graph.rank[op]]].collectives
        return records.groups[int(records.group[call])].key if call >= 0 else ""

    # -- what may be before --------------------------------------------------------------------

    def _unsure(self, rows: I64) -> I64:
        """Differences between arrivals of the first of some operations and each of them that say
        nothing, ns."""
        errors = self.error[self.graph.rank[rows]]
        unsure = np.where(np.arange(len(rows)) > 0, errors + errors[0] + RESOLUTION_NS, 0.0)
        return np.asarray(unsure)

    def _unseen(self, rows: I64) -> bool:
        """Whether the clock of a rank may have been set before or after operations, unseen."""
        outside = set()
        for op, rank in zip(rows.tolist(), self.graph.rank[rows].tolist(), strict=True):
            checked_from, checked_to = self.checked.get(rank, (-(2**63), 2**63))
            if self.graph.end_ns[op] < checked_from or self.graph.start_ns[op] > checked_to:
                outside.add(rank)
        self.outside |= outside
        return bool(outside)

    def _followed(self, heads: Sequence[int], start: int) -> tuple[dict[int, _Before], set[int]]:
        """The operations that ways lead to, with those before them, and those on all ways, as long
        as there can be any."""
        before_by_set: dict[int, _Before] = {}
        certain: set[int] = set()
        # ways that lead to one meeting go on alike, from whatever rank they come
        sets = {int(self.set_of[op]): op for op in reversed(heads)}
        waiting = [(-self.ends[op], op) for op in sets.values()]
        heapq.heapify(waiting)
        visited, lost = set(sets), False
        while waiting and not lost and len(before_by_set) < MOST:
            _, op = heapq.heappop(waiting)
            number = int(self.set_of[op])
            if not waiting:
                certain.add(number)
            current = before_by_set[number] = self._before(op, start)
            lost = current.lost or (not current.waited and bool(waiting))
            for op_before in current.waited:
                if (number := int(self.set_of[op_before])) not in visited:
                    visited.add(number)
                    heapq.heappush(waiting, (-self.ends[op_before], op_before))
        return before_by_set, certain

    def _before(self, op: int, start: int) -> _Before:
        members, why, lost = [op], "", False
        if self.graph.kind[op] >= 0:
            members, why, lost = self._last(op)
        waited: dict[int, None] = {}
        for member in members if not lost else members[:1]:
            doubt, missing = self._add_waited(member, waited)
            why, lost = why or doubt, lost or missing
        waited_ops = [waited_op for waited_op in waited if self.graph.end_ns[waited_op] > start]
        return _Before(members, waited_ops, why, lost)

    def _add_waited(self, op: int, waited_for: dict[int, None]) -> tuple[str, bool]:
        """Add what an operation may have waited for; why that is not certain, and whether it could
        be something else."""
        graph = self.graph
        if self.sender_last[op]:
            waited_for[int(graph.source[op])] = None
        if self.either[op]:
            self._waited_by_rank(op, waited_for)
            waited_for[int(graph.source[op])] = None
            return "it was received while it was sent", False
        if self.sender_last[op]:
            return "", False
        return self._waited_by_rank(op, waited_for)

    def _waited_by_rank(self, op: int, waited_for: dict[int, None]) -> tuple[str, bool]:
        graph, latest = self.graph, int(self.latest[op])
        if latest == self.count:
            return "", False
        waited_for[latest] = None
        if graph.kind[latest] < 0:
            return "", False
        previous = int(graph.before[op, 0])
        if self.by_previous[op]:
            waited_for[previous] = None
        if self.late[op]:
            return "nothing followed at once when it ended", previous >= self.count
        return "", False

    def _last(self, op: int) -> tuple[list[int], str, bool]:
        """The members of communication that may be the last, the likeliest first; why it is not
        certain who; and whether it could be somebody else."""
        graph, rank = self.graph, self.graph.ranks
        number = int(self.set_of[op])
        rows = np.arange(self.borders[number], self.borders[number + 1])
        if len(rows) == 1 and (self.eager[op] or graph.source[op] < self.count):
            return [op], "", False
        rows = rows[np.lexsort((rows != op, -self.came[rows]))]
        latest = int(rows[0])
        doubt = self._doubt(op, rows)
        if doubt:
            return [latest], doubt, True
        if self.checked and len(rows) > 1 and self._unseen(rows):
            return rows.tolist(), UNCHECKED, False
        unsure = self._unsure(rows)
        if np.isinf(unsure).any():
            return [latest], UNKNOWN_ERROR, True
        if graph.end_ns[op] < graph.start_ns[latest] - unsure.max():
            return [latest], f"it ended before rank {rank[graph.rank[latest]]} had begun it", True
        near = rows[self.came[rows] >= self.came[latest] - unsure].tolist()
        if graph.kinds[graph.kind[op]][0] in _ROOTED and near != [op]:
            return [latest], "ranks wait for its root, which is not known", True
        if len(near) == 1:
            return near, "", False
        names = ", ".join(str(rank[i]) for i in sorted(graph.rank[near].tolist())[:4])
        names += ", ..." * (len(near) > 4)
        sure = time_text(int(unsure[: len(near)].max()))
        return near, f"ranks {names} began within {sure}, the error of their clocks", False

    def _doubt(self, op: int, rows: I64) -> str:
        """Why members may be missing, or other operations matched."""
        graph = self.graph
        kind, size, _ = graph.kinds[graph.kind[op]]
        if graph.call[op] < 0:
            return ""
        records = self.every[graph.ranks[graph.rank[op]]].collectives
        if kind == P2P and records.direction[graph.call[op]]:
            return "" if len(rows) == 2 else "not matched on other ranks"
        key = self._group(op)
        doubts = (self.doubts.get((key, graph.ranks[i])) for i in graph.rank[rows].tolist())
        doubt = next(filter(None, doubts), "") if self.doubts else ""
        if doubt:
            return f"may be another: {doubt}"
        if kind == P2P:  # without directions, only in groups of two
            size = 2
        if size <= 0 and self.all_here:
            size = self.claimed[key]
        if size <= 0:
            return UNKNOWN_SIZE
        if size > self.claimed[key]:
            return "not all members have a capture"
        return "" if len(rows) == size else "not matched on all members"


def _extend(segments: list[Segment], segment: Segment) -> None:
    """Add an interval of a rank's own work; it joins the one after it if that is alike."""
    if segment.end_ns <= segment.start_ns:
        return
    after = segments[-1] if segments else segment
    alike = after.rank == segment.rank and not after.kind and after.certain == segment.certain
    if segments and alike and not after.why:
        parts = tuple(map(add, after.parts, segment.parts))
        segments[-1] = replace(after, start_ns=segment.start_ns, parts=parts, why=segment.why)
    else:
        segments.append(segment)


def _fitted(parts: I64, length: int) -> tuple[int, ...]:
    """Parts that add up to a length. Where the shared clock makes it longer or shorter than the
    rank's own does, or it overlaps what is before it, the longest part differs."""
    fitted_parts = parts.tolist()
    wrong = sum(fitted_parts) - length
    while wrong:
        longest = fitted_parts.index(max(fitted_parts))
        cut = min(wrong, fitted_parts[longest]) if wrong > 0 else wrong
        fitted_parts[longest] -= cut
        wrong -= cut
    return tuple(fitted_parts)
