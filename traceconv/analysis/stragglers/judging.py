"""The verdict on a job, from its replay.

It compares what ranks with the same role do by themselves between synchronisation points
(:mod:`traceconv.analysis.replay.own`). A rank that takes longer than its peers by more than chance
(:mod:`traceconv.analysis.statistics`) is a straggler if the job, replayed as if the rank were like
its peers, gains a part of a step that matters. The same test and the same replay decide on groups
whose transfers are slow, and on stages with more work than others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_matching import Matched, matched
from traceconv.alignment.collective_records import P2P
from traceconv.analysis.hang import hang
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.replay.graph import Clocks, Unusable
from traceconv.analysis.replay.job import Once, Replay, each_time, replay_of
from traceconv.analysis.replay.operations import COLLECTOR, COMPUTE, COPY, HOST, INPUT
from traceconv.analysis.statistics import (
    LEVEL,
    by_chance,
    interval,
    limits,
    over_others,
)
from traceconv.analysis.stragglers.links import slow_groups
from traceconv.analysis.stragglers.verdict import (
    CONSTANT,
    INTERMITTENT,
    MATERIAL,
    Finding,
    SlowStage,
    Step,
    UnevenWork,
    Verdict,
    ranks_text,
    some,
)
from traceconv.core.clock import time_text
from traceconv.core.columns import F64
from traceconv.core.robust import median

_FEWEST = 2  # steps: one proves no pattern
_UNMATCHED = 0.05  # of the communication time
_LOST = 0.02  # of the collectives that ranks recorded in steps that others recorded, too
_MOST_SLOW = 0.5  # of the ranks of a role: if more are slow, these are the usual ones
_LATE = 0.3  # of its largest excess a rank exceeds in a step in which it is late
_NEARLY_ALL = 0.9  # of the steps from which on it is slower, a rank is late
_MAINLY = 0.6  # of an excess that one kernel accounts for is mainly of it
_ROUNDS = 3
_NOISE = 5  # times what ranks usually differ by: a step with less has nothing to show
_UNEVEN = 0.05  # of a step
_RECORDED = 4  # times LEVEL: a recorded cause is less likely to be noise


def judge(
    summaries: Sequence[RankSummary],
    clocks: Clocks,
    groups: Sequence[Matched] | None = None,
    material: float = MATERIAL,
    release: bool = False,
    replay: Replay | None = None,
    once: Once = each_time,
) -> Verdict:
    """The verdict over all ranks.

    Args:
        summaries:  the summaries of all ranks.
        clocks: a plan of :mod:`traceconv.alignment.plan`.
        groups: their collectives, if these are matched already.
        material: the part of a step that is gained, at least, where something is named.
        release: see :func:`traceconv.analysis.replay.graph.graph_of`.
        replay: of the job, if there is one already.
        once: for what takes long.
    """
    summaries = sorted(summaries, key=lambda summary: summary.rank)
    dumps = {summary.rank: summary.recorded for summary in summaries}
    verdict = _judged(summaries, clocks, groups, material, release, replay, once)
    return msgspec.structs.replace(verdict, hang=hang(dumps))


def _judged(
    summaries: Sequence[RankSummary],
    clocks: Clocks,
    groups: Sequence[Matched] | None,
    material: float,
    release: bool,
    replay: Replay | None,
    once: Once,
) -> Verdict:
    ranks = tuple(summary.rank for summary in summaries)
    groups = tuple(
        matched([summary.collectives for summary in summaries]) if groups is None else groups
    )
    compared = sum(int(((group.row >= 0).sum(axis=1) >= 2).sum()) for group in groups)
    if clocks.several_jobs:
        why = f"the captures are of several jobs ({clocks.several_jobs}); name those of one"
        return Verdict(ranks, clocks.method, compared=compared, reason=why)
    try:
        replay = replay or replay_of(summaries, clocks, groups, release, once)
    except Unusable as e:
        return Verdict(ranks, clocks.method, compared=compared, reason=str(e))
    basis = Verdict(
        ranks, clocks.method, compared=compared, step_ns=replay.step_ns, replay=replay,
        limits=(*_limits(summaries, replay), *_lost_collectives(summaries, groups)),
    )  # fmt: skip
    if len(summaries) < 2:
        return msgspec.structs.replace(basis, reason="one rank was captured, so it has no peers")
    if not replay.usable:
        why = replay.too_wrong
        if not any(group.named for summary in summaries for group in summary.collectives.groups):
            why += "; the captures do not name the ranks of a group"
        return msgspec.structs.replace(basis, reason=why)
    if not (replay.graph.sizes > 1).any():
        return msgspec.structs.replace(basis, reason=_unmatched(summaries, groups))

    def make() -> Verdict:
        return msgspec.structs.replace(_Judging(replay, material).verdict(basis), replay=None)

    verdict = once(f"verdict with {material}", Verdict, make)
    return msgspec.structs.replace(verdict, replay=replay)


def _unmatched(summaries: Sequence[RankSummary], groups: Sequence[Matched]) -> str:
    """Why no collective of one rank is known to be one of another."""
    silent = [summary.rank for summary in summaries if not len(summary.collectives)]
    if len(silent) == len(summaries):
        return "no collectives of devices were recorded"
    if not groups:
        claimed = Counter(
            group.key for summary in summaries for group in summary.collectives.groups
        )
        key, ranks = claimed.most_common(1)[0]
        if ranks > 1:  # see alignment.collective_matching.matched
            return f"{ranks} ranks recorded collectives of {key}: several groups share that name"
        text = "no two ranks recorded collectives of the same group"
        return text + (f", {ranks_text(silent)} none at all" if silent else "")
    group = max(groups, key=lambda matched_group: len(matched_group.row))
    why = next((f": {doubt}" for doubt in group.doubts if doubt), "")
    count = len(group.row)
    some_of = f"none of the {count} collectives" if count > 1 else "the one collective"
    group_text = group.key
    if group_text.startswith("lane "):  # where the source names no group
        group_text = f"{group_text} of communication, whose group is not recorded,"
    return f"{some_of} of {ranks_text(group.ranks)} in {group_text} was matched{why}"


def _limits(summaries: Sequence[RankSummary], replay: Replay) -> Iterator[str]:
    """Limits of the verdict."""
    why: dict[str, list[int]] = {}
    for summary in summaries:
        if summary.replay.why:
            why.setdefault(summary.replay.why, []).append(summary.rank)
    for text, ranks in why.items():
        yield f"{ranks_text(ranks)} not compared: {text}"
    if replay.cut:
        yield replay.cut
    graph, own = replay.graph, replay.own
    peers = np.bincount(own.roles)[own.roles]
    alone = [rank for rank, count in zip(graph.ranks, peers.tolist(), strict=True) if count < 2]
    if 0 < len(alone) < len(graph.ranks):
        yield f"{ranks_text(alone)} not compared: no other rank has the same role"
    captured: dict[str, list[int]] = {}
    for summary in summaries:
        for group in summary.collectives.groups:
            captured.setdefault(group.key, [group.size]).append(summary.rank)
    absent = _absent(summaries)
    if absent:
        yield (
            f"{ranks_text(absent)} not captured: they may be slow as well, and waits for them stay "
            "as recorded, so gains are lower bounds"
        )
    elif any(size > len(members) for size, *members in captured.values()):
        yield "not all members of the groups were captured; those that were not may be slow as well"
    alone = (np.repeat(graph.sizes, graph.sizes) == 1) & (graph.kind >= 0)
    received = graph.source < len(graph)  # from eager sends
    alone[graph.source[received]] = alone[received] = False
    alone_ns = graph.length_ns[alone]
    share = alone_ns.sum() / max(float(graph.length_ns[graph.kind >= 0].sum()), 1)
    if share > _UNMATCHED and len(graph.ranks) > 1:
        yield (
            f"{100 * share:.0f} % of communication time is in operations that match none of "
            "another rank: waits in them stay as recorded, and gains are lower bounds"
        )


def _absent(summaries: Sequence[RankSummary]) -> list[int]:
    """Members of groups that have no capture."""
    members = (group.members for summary in summaries for group in summary.collectives.groups)
    return sorted(set().union(*members) - {summary.rank for summary in summaries})


def _lost_collectives(summaries: Sequence[RankSummary], groups: Sequence[Matched]) -> Iterator[str]:
    """What follows from collectives that some of their ranks did not record."""
    steps = {summary.rank: np.unique(summary.collectives.step) for summary in summaries}
    step_of = {summary.rank: summary.collectives.step for summary in summaries}
    missing = recorded = 0
    for group in groups:
        base = group.ranks[group.base]
        step = step_of[base][group.row[:, group.base]]
        step = np.where(np.array(group.kinds) == P2P, -2, step)
        for column, rank in enumerate(group.ranks):
            was_recorded = group.row[np.isin(step, steps[rank]), column] >= 0
            missing += int((~was_recorded).sum())
            recorded += len(was_recorded)
    if missing > _LOST * recorded:
        yield (
            f"{100 * missing / recorded:.0f} % of the collectives of others were not recorded: "
            "waits in the gaps they leave stay as recorded, and gains are lower bounds"
        )


class _Judging:
    """The verdict on a job that can be replayed."""

    def __init__(self, replay: Replay, material: float) -> None:
        self.replay, self.own, self.graph = replay, replay.own, replay.graph
        self.least = material * float(np.median(replay.base))
        self.material = material
        self.limits: list[str] = []

    def verdict(self, basis: Verdict) -> Verdict:
        replay = self.replay
        culprits, mended = self._culprits(self._suspects())
        uneven = None if culprits else self._uneven()
        stage = self._stage(mended, uneven is not None)
        slow_ones = slow_groups(replay, self.least)
        by_rank = {finding.rank: finding for finding in culprits}
        steps = self._steps(by_rank)
        is_known = ~np.isnan(self.own.excess)
        excess = np.where(is_known, self.own.excess, 0).sum(axis=0) / np.maximum(
            is_known.sum(axis=0), 1
        )
        bound, reason = None, ""
        if not (culprits or stage or slow_ones):
            bound, reason = self._bound(excess, steps)
        return msgspec.structs.replace(
            basis,
            culprits=tuple(culprits),
            slow_groups=tuple(slow_ones),
            stage=stage,
            steps=steps,
            reason=reason,
            bound_ns=bound,
            limits=(*basis.limits, *self.limits),
            uneven=uneven,
            saves_ns=round(max(float((replay.base - mended).mean()), 0.0)) if culprits else 0,
        )

    # -- ranks ------------------------------------------------------------------------------------

    def _suspects(self) -> list[int]:
        """Ranks that take longer than their peers by more than chance, or whose communication
        begins later."""
        own = self.own
        of_role = (own.members(role) for role in np.unique(own.roles).tolist())
        roles = [members for members in of_role if len(members) > 1]
        suspects: dict[int, None] = {}
        for excess, values in ((own.excess, own.table), (own.later, own.late)):
            if roles:
                table = np.where(np.isnan(excess), np.nan, values)
                suspects |= dict.fromkeys(self._longest(table, roles))
        return list(suspects)

    def _longest(self, table: F64, roles: Sequence[NDArray[np.intp]]) -> list[int]:
        """Ranks with larger values than others of their role, by more than chance and by what
        matters.

        Roles are tested together: a stage of a pipeline has few ranks, but the ranks of all stages
        show what chance does.
        """
        table, longest = table.copy(), list[int]()
        compared = np.concatenate(roles)
        levels = self._levels(compared)
        ends = np.cumsum([len(members) for members in roles])
        places = np.split(np.arange(len(compared)), ends[:-1])
        for _ in range(max(len(compared) // 2, 1)):
            excess = np.concatenate([over_others(table[:, members]) for members in roles], axis=1)
            means = np.nan_to_num(excess).sum(axis=0) / max(len(table), 1)
            sure = means >= self.least
            if not sure.any():
                break
            sure &= by_chance(excess, places, self.least / 10) <= levels
            fresh = [int(compared[i]) for i in np.argsort(-means).tolist() if sure[i]]
            if not fresh:
                break
            longest += fresh
            table[:, fresh] = np.nan
        usual = [m for m in roles if np.isin(m, longest).mean() > _MOST_SLOW]
        return [rank for rank in longest if not any(rank in members for members in usual)]

    def _levels(self, compared: NDArray[np.intp]) -> F64:
        """How unlikely the excess of each rank has to be."""
        parts = self.own.parts.sum(axis=0)
        levels = np.full(len(compared), LEVEL)
        for place, rank in enumerate(compared.tolist()):
            usual = np.median(parts[self.own.members(int(self.own.roles[rank]))], axis=0)
            if np.argmax(parts[rank] - usual) in (INPUT, COLLECTOR):
                levels[place] *= _RECORDED
        return levels

    def _culprits(self, slow: list[int]) -> tuple[list[Finding], F64]:
        """The ranks that cost a material part of a step, and the steps without them."""
        replay = self.replay
        for _ in range(_ROUNDS):
            if not slow:
                return [], replay.base
            without = replay.mended(slow, *([r for r in slow if r != rank] for rank in slow))
            costs = without[1:] - without[0]
            costly = [
                rank for rank, cost in zip(slow, costs, strict=True) if cost.mean() >= self.least
            ]
            if costly == slow:
                break
            slow = costly
        else:
            without = replay.mended(slow, *([r for r in slow if r != rank] for rank in slow))
            costs = without[1:] - without[0]
        if not slow:
            return [], replay.base
        findings = [self._finding(rank, cost, slow) for rank, cost in zip(slow, costs, strict=True)]
        findings.sort(key=lambda finding: (-finding.gain_ns, finding.rank))
        return findings, without[0]

    def _finding(self, column: int, cost: F64, slow: Sequence[int]) -> Finding:
        graph, own = self.graph, self.own
        is_known = ~np.isnan(own.excess[:, column])
        peers = [i for i in own.members(int(own.roles[column])).tolist() if i != column]
        # compared with peers that are slow as well, a step shows less than it costs
        usual = [i for i in peers if i not in slow] or peers
        parts = own.parts[:, column] - np.median(own.parts[:, usual], axis=1)
        values = np.where(
            is_known, own.table[:, column] - np.nanmedian(own.table[:, usual], axis=1), 0
        )
        later = np.nan_to_num(own.later[:, column])
        hidden = bool(later.mean() > values.mean())
        if hidden:  # the host is late with communication that work hides
            values = parts[:, HOST] = later
        late = is_known & (values > _LATE * np.quantile(values, 0.9)) & (values > 0)
        constant = 2 * np.median(values[is_known]) >= values[is_known].mean()
        change = _change(values)
        # the first steps may be left out because they show nothing
        since = bool(
            is_known[:change].any()
            and late[change:].mean() >= _NEARLY_ALL
            and np.median(values[:change]) < _LATE * np.median(values[change:])
        )
        if since:
            late[:change] = False
        constant &= not since
        numbers = [int(n) for n in graph.steps[late, 1]]
        low, high = interval(cost)
        slice_name, start, dur = self._place(column, late)
        return Finding(
            rank=graph.ranks[column],
            pattern=CONSTANT if constant else INTERMITTENT,
            excess_ns=round(float(values.mean())),
            gain_ns=round(float(cost.mean())),
            interval_ns=(round(low), round(high)),
            parts_ns=tuple(round(float(ns)) for ns in parts.mean(axis=0)),
            kernel=self._kernel(column, usual),
            late_steps=tuple(numbers),
            of_steps=int(is_known.sum()),
            since=since,
            peers=len(peers),
            together=tuple(graph.ranks[i] for i in slow if i != column),
            share=float(cost.mean()) / self.replay.step_ns,
            slice_name=slice_name,
            start_ns=start,
            dur_ns=dur,
            coordinates=self.replay.shape.label(graph.ranks[column]),
            hidden=hidden,
            idle=not self._recorded(graph.ranks[column], HOST),
            unclassified=not self._recorded(graph.ranks[column], COMPUTE),
        )

    def _recorded(self, rank: int, sort: int) -> bool:
        """Whether the capture of a rank holds events of a sort."""
        recorded = {summary.rank: summary.replay.recorded for summary in self.replay.every}
        return sort in recorded[rank]

    def _place(self, column: int, late: NDArray[np.bool_]) -> tuple[str, int, int]:
        """The kernel that begins the operation that shows most, its start on the rank's own clock,
        and the length of the operation."""
        graph = self.graph
        rows = np.flatnonzero((graph.rank == column) & late[graph.step] & (graph.kind < 0))
        if not len(rows):
            return "", 0, 0
        extra_ns = graph.length_ns[rows] * (1 - self.own.of_length[rows])
        row = int(graph.row[rows[int(np.argmax(extra_ns))]])
        operations = next(
            summary for summary in self.replay.every if summary.rank == graph.ranks[column]
        ).replay
        if operations.lead[row] < 0:
            return "", 0, 0
        name = operations.names[int(operations.lead[row])]
        return (
            name,
            int(operations.start_ns[row]),
            int(operations.end_ns[row] - operations.start_ns[row]),
        )

    def _kernel(self, column: int, peers: Sequence[int]) -> str:
        """The kernel that accounts for most of the extra computing of a rank; "" without one."""
        graph = self.graph
        cells = graph.rank[graph.part].astype(np.int64) * len(graph.names) + graph.name
        ns = np.bincount(cells, graph.part_ns, len(graph.ranks) * len(graph.names))
        table = ns.reshape(len(graph.ranks), -1)[:, graph.sorts == COMPUTE]
        names = [n for n, s in zip(graph.names, graph.sorts.tolist(), strict=True) if s == COMPUTE]
        if not names:
            return ""
        extra_ns = table[column] - np.median(table[list(peers)], axis=0)
        top = int(np.argmax(extra_ns))
        alone = len(names) > 1 and extra_ns[top] >= _MAINLY * np.maximum(extra_ns, 0).sum() > 0
        return names[top] if alone and self._computes(column, peers) else ""

    def _computes(self, column: int, peers: Sequence[int]) -> bool:
        parts = self.own.parts[:, column] - np.median(self.own.parts[:, list(peers)], axis=1)
        return int(np.argmax(parts.mean(axis=0))) == COMPUTE

    # -- stages, steps, and what is not named ------------------------------------------------------

    def _stage(self, base: F64, uneven: bool) -> SlowStage | None:
        """The stage with more work than the others, if that costs a part of a step that matters.

        Args:
            base: steps without slow ranks.
            uneven: whether ranks wait for uneven work first.
        """
        replay, graph, own = self.replay, self.graph, self.own
        stage_of = replay.stages
        stages = np.unique(stage_of)
        if len(stages) < 2 or stages[0] < 0:
            return None
        work = own.parts[:, :, [COMPUTE, COPY]].sum(axis=2)
        table = np.stack([median(work[:, stage_of == stage]) for stage in stages.tolist()], axis=1)
        excess = over_others(table)
        chance = by_chance(excess)
        top = int(np.argmax(np.nanmean(excess, axis=0)))
        if chance[top] > LEVEL:
            return None
        assert replay.balanced is not None
        shorter = replay.steps(replay.lengths * replay.balanced)
        saved = base - np.minimum(shorter, base)
        if base is not replay.base:
            saved = saved * 0
        others_ns = (table.sum(axis=1) - table[:, top]) / (len(stages) - 1)
        if saved.mean() < self.least:
            longer_ns = float((table[:, top] - others_ns).mean())
            absent = _absent(replay.every)
            if absent and longer_ns > self.least:
                ranks = ranks_text(np.array(graph.ranks)[stage_of == stages[top]].tolist())
                self.limits.append(
                    f"the stage of {ranks} works {time_text(round(longer_ns))} longer per step "
                    f"than others; without {ranks_text(absent)}, what equal stages would save is "
                    "unknown"
                )
            return None
        low, high = interval(saved)
        gain = float(saved.mean())
        usual = np.minimum(others_ns / np.maximum(table[:, top], 1.0), 1.0)
        slow = (graph.kind < 0) & (stage_of == stages[top])[graph.rank]
        lengths = replay.lengths * replay.even.factor if uneven else replay.lengths
        levelled = replay.steps(lengths * np.where(slow, usual[graph.step], 1.0))
        return SlowStage(
            int(stages[top]),
            tuple(np.array(graph.ranks)[stage_of == stages[top]].tolist()),
            round(float((table[:, top] - others_ns).mean())),
            round(gain),
            (round(low), round(high)),
            gain / replay.step_ns,
            round(max(float((replay.steps(lengths) - levelled).mean()), 0.0)),
        )

    def _steps(self, by_rank: Mapping[int, Finding]) -> dict[Step, Finding | None]:
        """Per step, the rank that made it longest, if by a part of it that matters."""
        replay, graph, own = self.replay, self.graph, self.own
        excess = np.where(np.isnan(own.excess), -np.inf, own.excess)
        top = np.argmax(excess, axis=1)
        rows = np.arange(len(graph.steps))
        longest = excess[rows, top]
        deviations = np.abs(own.excess - _column_medians(own.excess))
        deviations = deviations[~np.isnan(deviations)]
        noise = _NOISE * float(np.median(deviations)) if len(deviations) else 0.0
        tried = np.where((longest >= self.material * replay.base) & (longest >= noise), top, -1)
        gain = replay.base - replay.mended_steps(tried)
        findings: dict[Step, Finding | None] = {}
        for row, (window, number) in enumerate(graph.steps.tolist()):
            findings[window, number] = None
            if tried[row] < 0 or gain[row] < max(self.material * replay.base[row], 1):
                continue
            column = int(top[row])
            peers = [i for i in own.members(int(own.roles[column])).tolist() if i != column]
            parts = own.parts[row, column] - np.median(own.parts[row, peers], axis=0)
            rank = graph.ranks[column]
            pattern = by_rank[rank].pattern if rank in by_rank else ""
            findings[window, number] = Finding(
                rank, pattern, round(float(longest[row])), round(float(gain[row])),
                parts_ns=tuple(round(float(ns)) for ns in parts), late_steps=(number,),
                peers=len(peers), step=number, share=float(gain[row] / max(replay.base[row], 1.0)),
                coordinates=replay.shape.label(rank),
                idle=not self._recorded(rank, HOST),
                unclassified=not self._recorded(rank, COMPUTE),
            )  # fmt: skip
        return findings

    def _uneven(self) -> UnevenWork | None:
        """Uneven work, if that costs a part of a step that matters: more than what is named of a
        rank, for single ranks in single steps and noise cost some of it."""
        replay, graph = self.replay, self.graph
        least = max(self.least, _UNEVEN * replay.step_ns)
        waited = np.where(graph.kind >= 0, graph.end_ns - graph.start_ns - graph.length_ns, 0.0)
        if waited.sum() < least * len(graph.ranks) * len(graph.steps):
            return None  # with equal work, ranks are as busy in the mean, and wait less
        saved = replay.base - replay.steps(replay.lengths * replay.even.factor)
        gain, low_high = float(saved.mean()), interval(saved)
        if gain < least or not replay.even.moves:
            return None
        return UnevenWork(
            round(gain), (round(low_high[0]), round(low_high[1])), gain / replay.step_ns,
            replay.even.of_ranks, replay.even.of_batches,
        )  # fmt: skip

    def _bound(self, excess: F64, steps: Mapping[Step, Finding | None]) -> tuple[int | None, str]:
        """The most that a rank can cost, and why no rank is named."""
        graph, own = self.graph, self.own
        compared = np.flatnonzero(np.bincount(own.roles)[own.roles] > 1).tolist()
        late: dict[int, list[int]] = {}
        for finding in filter(None, steps.values()):
            late.setdefault(finding.rank, []).append(finding.step)
        late_text = ""
        if late:
            rank, numbers = max(late.items(), key=lambda item: (len(item[1]), -item[0]))
            late_text = (
                f"; rank {rank} is late in {len(numbers)} of {len(steps)} steps ({some(numbers)})"
            )

        def whom(top: int) -> str:
            peers = [i for i in own.members(int(own.roles[top])).tolist() if i != top]
            return f"rank {graph.ranks[peers[0]]}" if len(peers) == 1 else "its peers"

        if not compared:
            return None, "no two ranks run the same operations, so no rank has peers"
        if len(graph.steps) < _FEWEST:
            marked = any(summary.replay.marked for summary in self.replay.every)
            why = (
                "only one step was captured, too few to show a pattern"
                if marked
                else "no steps are marked, so no pattern can be shown"
            )
            top = max(compared, key=lambda i: excess[i])
            longer = time_text(max(float(excess[top]), 0.0))
            difference = f"rank {graph.ranks[top]} takes {longer} longer than {whom(top)}"
            return None, f"{why}; {difference}"
        excesses = [own.excess[~np.isnan(own.excess[:, i]), i] for i in compared]
        if min(len(values) for values in excesses) < _FEWEST:
            return None, "ranks have too few steps in common"
        alike = [[v for v in excesses if len(v) == steps] for steps in {*map(len, excesses)}]
        upper = max(float(limits(np.stack(some, axis=1), 0.99)[1].max()) for some in alike)
        if upper >= self.least:
            top = max(compared, key=lambda i: excess[i])
            longer, upper_text = time_text(max(float(excess[top]), 0)), time_text(upper)
            return None, (
                f"rank {graph.ranks[top]} takes {longer} longer than {whom(top)} per step, which "
                f"may be chance (99 % interval: up to {upper_text}){late_text}"
            )
        limit = max(upper, 0.0)
        share = 100 * limit / self.replay.step_ns
        by = f" by more than {time_text(limit)} per step ({share:.2g} %)" if round(limit) else ""
        return round(limit), f"no rank takes longer than its peers{by}"


def _change(values: F64) -> int:
    """From which row on values are others, if they are: medians of both sides fit best there. It is
    neither the first nor one of the last two."""
    off = [
        sum(float(np.abs(part - np.median(part)).sum()) for part in (values[:row], values[row:]))
        for row in range(1, len(values) - 2)
    ]
    return int(np.argmin(off)) + 1 if off else 0


def _column_medians(table: F64) -> F64:
    """Medians of columns, NaN of empty ones."""
    medians = np.full(table.shape[1], np.nan)
    for column in range(table.shape[1]):
        values = table[~np.isnan(table[:, column]), column]
        if len(values):
            medians[column] = np.median(values)
    return medians
