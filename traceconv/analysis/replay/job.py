"""A job that can be replayed: with recorded lengths, with ideal ones, and with some of either.

Definitions follow "Understanding Stragglers in Large Model Training Using What-if Analysis" (arXiv
2505.05713, equations 1 to 5):

* the *ideal* length of work is the mean over all ranks and steps of its kernels, by name and place
  in the step; that of communication is the median transfer of its kind, size and number of ranks;
  ideal operations begin without delay;
* the *slowdown* is the mean step without delays over the mean ideal step;
* the *attribution* to a rank, stage or kind of operation is the mean step in which only its
  operations keep their recorded lengths, over the mean ideal step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import P2P, SEND
from traceconv.analysis.inferred_shape import job_shape, same_role
from traceconv.analysis.rank_facts import (
    COMPUTING,
    COPIES,
    EXPOSED,
    IDLE,
    INPUT,
    PAUSE,
    SORTS,
    Losses,
)
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.replay import operations
from traceconv.analysis.replay.balance import (
    EvenWork,
    even_stages,
    even_work,
    stages_by_messages,
)
from traceconv.analysis.replay.engine import step_times
from traceconv.analysis.replay.graph import MOST_ERROR, Clocks, Graph, graph_of
from traceconv.analysis.replay.operations import COLLECTOR, COMPUTE, COPY, HOST
from traceconv.analysis.replay.own import OwnTime, own_time, work_parts
from traceconv.analysis.statistics import interval
from traceconv.core.columns import F64, I64
from traceconv.core.job_shape import STAGE, JobShape
from traceconv.scratch.memory import give_back, large_apart

_LONG_DELAY = 0.05  # of a step
_ALIKE = 0.5  # of the delays of a rank open steps, as those of a peer do
_SHORTER = 0.02  # of a step: by less a step is as long as before
_FEW_GAPS = 0.005  # of a step: less is shown as 0 %
_RANKS_TRIED = 64

PEERS, STAGES, WAITS, STEP = "peers", "stages", "waits", "step"
"""Time of a rank besides the classes of lost time: more than its peers take, more than other stages
work, waits for other ranks, and more than usual steps take in spikes."""

SPIKE = 1.5
"""A step is a spike if it takes this many times the median."""

_SORTS = {IDLE: [HOST, COLLECTOR], INPUT: [operations.INPUT], COPIES: [COPY], COMPUTING: [COMPUTE]}
"""Sorts of time in the graph, by class of lost time."""

CELLS = 1 << 21
"""Operations times scenarios whose lengths are in memory at a time."""

MOST_RANKS = 64
"""Ranks that a loss is attributed to: those that take most longer than their peers."""

MOST_KINDS = 40
"""Kinds of operations that a loss is attributed to: those that take most of the time."""


T = TypeVar("T")


class Once(Protocol):
    """Computes what is the same for every command on the same ranks."""

    def __call__(self, name: str, kind: type[T], make: Callable[[], T], /) -> T:
        """What ``make`` returns, of that type, now or for an earlier command."""


def each_time(_name: str, _kind: type[T], make: Callable[[], T], /) -> T:
    """The :class:`Once` that keeps nothing."""
    return make()


class Replay:
    """The graph of a job, and its steps if lengths were others. Times are ns.

    Attributes:
        graph: what is replayed.
        shape: where its ranks stand in the job.
        summaries: the summaries of its ranks.
        error: by how much the mean replayed step differs from the recorded one, as a share of it.
        step_ns: the mean recorded step, from the start of the first device window to the end of the
            last.
    """

    def __init__(
        self, graph: Graph, summaries: Sequence[RankSummary], once: Once = each_time
    ) -> None:
        self.graph, self.every, self.once = graph, summaries, once
        self.shape: JobShape = job_shape(summaries)
        self.lengths = graph.length_ns
        self.delays = graph.delay_ns
        self.base = self.steps()
        self.step_ns = float((graph.recorded_ns + graph.tails_ns).mean())
        wrong = np.abs(self.base - graph.recorded_ns).sum()
        self.error = float(wrong / max(graph.recorded_ns.sum(), 1))

    @property
    def usable(self) -> bool:
        """Whether anything may be concluded from it."""
        return self.error <= MOST_ERROR

    @property
    def too_wrong(self) -> str:
        """Why nothing may be concluded from it."""
        return (
            f"replayed steps differ from the recorded ones by {_percent(self.error)}; "
            f"the limit is {_percent(MOST_ERROR)}"
        )

    @property
    def cut(self) -> str:
        """What counts as a step where none is marked; "" where steps are marked."""
        count = len(self.graph.steps)
        if any(summary.replay.marked for summary in self.every):
            return ""
        if count == 1:
            return "no steps are marked: the whole recording counts as one"
        return f"no steps are marked: {count} repetitions of the same collectives count as steps"

    @property
    def error_text(self) -> str:
        """``replay error 0.8 % (2.1 % with the gaps of other steps, 4 % of a step)``; without gaps
        the first figure only."""
        text = f"replay error {_percent(self.error)}"
        if self.held_out is None or self.gaps_share < _FEW_GAPS:
            return text
        gaps = f"the gaps of other steps, {100 * self.gaps_share:.0f} % of a step"
        return f"{text} ({_percent(self.held_out)} with {gaps})"

    @cached_property
    def gaps_share(self) -> float:
        """The share of a step that is gaps without a recorded cause, which a replay keeps."""
        host = np.where(self.openings, 0.0, self.graph.host_ns)
        shorter = self.steps(None, self.delays - host)
        return 1 - float(shorter.mean()) / max(float(self.base.mean()), 1.0)

    @cached_property
    def held_out(self) -> float | None:
        """The replay error if gaps without a recorded cause are those of the other steps, at the
        same place: how much of the difference between steps the recorded operations explain. Gaps
        between steps are kept. None where no two steps have as many operations."""
        graph, host = self.graph, np.where(self.openings, 0.0, self.graph.host_ns)
        order = np.lexsort((graph.row, graph.step, graph.rank))
        cell = (graph.rank.astype(np.int64) * len(graph.steps) + graph.step)[order]
        begins = np.flatnonzero(np.concatenate(([True], np.diff(cell) != 0)))
        counts = np.diff(np.append(begins, len(cell)))
        position = np.arange(len(cell)) - np.repeat(begins, counts)
        width = int(counts.max(initial=0)) + 1
        alike = (cell // len(graph.steps) * width + np.repeat(counts, counts)) * width + position
        alike_index = np.empty(len(cell), np.int64)
        alike_index[order] = np.unique(alike, return_inverse=True)[1].reshape(-1)
        count, total = (
            np.bincount(alike_index)[alike_index],
            np.bincount(alike_index, host)[alike_index],
        )
        if not (count > 1).any():
            return None
        mean_of_others = np.where(count > 1, (total - host) / np.maximum(count - 1, 1), host)
        wrong = np.abs(
            self.steps(None, self.delays - host + mean_of_others) - graph.recorded_ns
        ).sum()
        return float(wrong / max(graph.recorded_ns.sum(), 1))

    def steps(self, lengths: F64 | None = None, delays: F64 | None = None) -> F64:
        """(steps,) or (scenarios, steps): how long steps take.

        Args:
            lengths, delays: per operation, or (operations, scenarios); None for those recorded.
        """
        values_used = [self.lengths if lengths is None else lengths,
                 self.delays if delays is None else delays]  # fmt: skip
        is_single = all(values.ndim == 1 for values in values_used)
        times = step_times(self.graph, *(v[:, None] if v.ndim == 1 else v for v in values_used))
        return times[0] if is_single else times

    # -- the ideal job --------------------------------------------------------------------------

    @cached_property
    def own(self) -> OwnTime:
        """What ranks do by themselves."""
        own = self.once("own time", OwnTime, lambda: own_time(self.graph, self.every))
        give_back()
        return own

    @cached_property
    def _ideal_parts(self) -> F64:
        """(parts,): what each part of work ideally takes; idle time takes none.

        Where every rank and step has as many operations with a kernel, these are compared one by
        one, by their place in the step: kernels of one name may have other shapes there.
        """
        graph = self.graph
        steps = len(graph.steps)
        cell = graph.rank[graph.part].astype(np.int64) * steps + graph.step[graph.part]
        order = np.lexsort((graph.row[graph.part], cell, graph.name))
        name, cell = graph.name[order].astype(np.int64), cell[order]
        is_first = np.concatenate(([True], (np.diff(name) != 0) | (np.diff(cell) != 0)))[
            : len(name)
        ]
        heads = np.flatnonzero(is_first)
        group_of = np.cumsum(is_first) - 1
        counts = np.diff(np.append(heads, len(name)))
        position = np.arange(len(name)) - heads[group_of]
        low, high = np.full(len(graph.names), 2**31), np.zeros(len(graph.names), np.int64)
        np.minimum.at(low, name[heads], counts)
        np.maximum.at(high, name[heads], counts)
        position[(low != high)[name]] = 0
        _, kind = np.unique(
            name * (int(position.max(initial=0)) + 1) + position, return_inverse=True
        )
        kind = kind.reshape(-1)
        ns = np.bincount(kind, graph.part_ns[order])
        count = np.bincount(kind, graph.part_count[order])
        ideal_ns = np.empty(len(name))
        ideal_ns[order] = graph.part_count[order] * (ns / np.maximum(count, 1))[kind]
        ideal_ns[np.isin(graph.sorts[graph.name], (HOST, operations.INPUT, COLLECTOR))] = 0
        return ideal_ns

    @cached_property
    def ideal_lengths(self) -> F64:
        """Ideal length of each operation, ns."""
        graph = self.graph
        lengths = np.bincount(graph.part, self._ideal_parts, len(graph)).astype(np.float64)
        order = np.argsort(graph.kind, kind="stable")
        begins = np.searchsorted(graph.kind[order], np.arange(len(graph.kinds) + 1))
        for low, high in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            if high > low:
                lengths[order[low:high]] = np.median(self.lengths[order[low:high]])
        return lengths

    @cached_property
    def ideal(self) -> F64:
        """(steps,): the ideal job."""
        return self.steps(self.ideal_lengths, np.zeros(len(self.graph)))

    @cached_property
    def without_delays(self) -> F64:
        """(steps,): recorded lengths, and no delay."""
        return self.steps(None, np.zeros(len(self.graph)))

    @property
    def slowdown(self) -> float:
        """The mean step without delays over the mean ideal step."""
        return float(self.without_delays.mean() / max(self.ideal.mean(), 1))

    # -- attribution ------------------------------------------------------------------------------

    def only(self, codes: NDArray[Any], count: int) -> F64:
        """(count,): the slowdown if only operations with each code keep their lengths.

        Args:
            codes: per operation, from 0; -1 of none.
        """
        size = max(CELLS // max(len(self.graph), 1), 1)
        means = []
        for begin in range(0, count, size):
            is_kept = codes[:, None] == np.arange(begin, min(begin + size, count))
            lengths = np.where(is_kept, self.lengths[:, None], self.ideal_lengths[:, None])
            means.append(self.steps(lengths, np.zeros(len(self.graph))).mean(axis=1))
        return np.asarray(np.concatenate(means) / max(float(self.ideal.mean()), 1))

    def attribution(self) -> dict[str, dict[str, float]]:
        """By axis of the job ("rank", "pp", "dp", "node" …) and operation kind: the slowdown if
        only these are not ideal."""
        slowest = np.argsort(-np.nan_to_num(self.own.excess).sum(axis=0), kind="stable")
        slowest_shown = set(slowest[:MOST_RANKS].tolist())
        places = [rank if i in slowest_shown else -1 for i, rank in enumerate(self.graph.ranks)]
        by_axis = {"rank": self._by(places)}
        by_axis["rank"].pop("-1", None)
        for axis, of_axis in zip(self.shape.axes, self.shape.places, strict=True):
            coordinate_of = dict(zip(self.shape.captured, of_axis, strict=True))
            column = [coordinate_of.get(rank, -1) for rank in self.graph.ranks]
            if len(set(column)) > 1 and min(column) >= 0:
                by_axis[axis.name] = self._by(column)
        if STAGE not in by_axis and self.stages.max(initial=-1) > 0:
            by_axis[STAGE] = self._by(self.stages.tolist())
        return {**by_axis, "operation": self.by_kind()}

    def _by(self, place_of: Sequence[int]) -> dict[str, float]:
        values, codes = np.unique(np.array(place_of), return_inverse=True)
        shares = self.only(codes.reshape(-1)[self.graph.rank], len(values))
        return dict(zip(map(str, values.tolist()), shares.tolist(), strict=True))

    def by_kind(self) -> dict[str, float]:
        """The same by kernel and by kind of communication."""
        graph = self.graph
        zero = np.zeros(len(graph))
        total = np.bincount(graph.name, graph.part_ns, len(graph.names))
        total[np.isin(graph.sorts, (HOST, operations.INPUT, COLLECTOR))] = 0
        order = np.argsort(graph.name, kind="stable")
        begins = np.searchsorted(graph.name[order], np.arange(len(graph.names) + 1))
        slowdowns, ideal = {}, max(float(self.ideal.mean()), 1)
        for name in np.argsort(-total, kind="stable")[:MOST_KINDS].tolist():
            rows = order[begins[name] : begins[name + 1]]
            if not total[name]:
                continue
            excess_ns = graph.part_ns[rows] - self._ideal_parts[rows]
            lengths = self.ideal_lengths + np.bincount(graph.part[rows], excess_ns, len(graph))
            slowdowns[graph.names[name]] = float(self.steps(lengths, zero).mean()) / ideal
        for words, kinds in self.kinds_of_communication().items():
            lengths = np.where(np.isin(graph.kind, kinds), self.lengths, self.ideal_lengths)
            slowdowns[words] = float(self.steps(lengths, zero).mean()) / ideal
        return slowdowns

    def kinds_of_communication(self) -> dict[str, list[int]]:
        """Kinds by what they are called: whatever their sizes."""
        by_name: dict[str, list[int]] = {}
        for number, (kind, size, _) in enumerate(self.graph.kinds):
            called = f"{kind} of {size} ranks" if size > 0 else kind
            called = "point-to-point" if kind == P2P else called
            by_name.setdefault(called, []).append(number)
        return dict(list(by_name.items())[:MOST_KINDS])

    # -- gains ------------------------------------------------------------------------------------

    def mended(self, *chosen: Iterable[int]) -> F64:
        """(scenarios, steps): in each, some ranks take as long as their peers between
        synchronisation points; all else is as recorded.

        Args:
            chosen: per scenario, indexes of ranks.
        """
        is_chosen = np.zeros((len(self.graph.ranks), len(chosen)), bool)
        for column, ranks in enumerate(chosen):
            is_chosen[list(ranks), column] = True
        return self._like_peers(is_chosen[self.graph.rank], self.lengths, self.delays)

    def mended_steps(self, ranks: NDArray[np.intp]) -> F64:
        """(steps,): in each step one rank, or none (-1), takes as long as its peers."""
        is_chosen = (ranks[self.graph.step] == self.graph.rank)[:, None]
        times: F64 = self._like_peers(is_chosen, self.lengths, self.delays)[0]
        return times

    def _like_peers(self, is_chosen: NDArray[np.bool_], lengths: F64, delays: F64) -> F64:
        """(scenarios, steps): lengths and delays of (operations, scenarios) are those of peers."""
        at_once = max(CELLS // max(len(self.graph), 1), 1)
        if is_chosen.shape[1] > at_once:
            begins = range(0, is_chosen.shape[1], at_once)
            return np.concatenate(
                [self._like_peers(is_chosen[:, i : i + at_once], lengths, delays) for i in begins]
            )
        changed = [
            values[:, None] * np.where(is_chosen, factor[:, None], np.float32(1))
            for values, factor in ((lengths, self.own.of_length), (delays, self.own.of_delay))
        ]
        return self.steps(*changed)

    @cached_property
    def balanced(self) -> F64 | None:
        """See :func:`traceconv.analysis.replay.balance.even_stages`."""
        work = self.own.parts[:, :, [COMPUTE, COPY]].sum(axis=2)
        return even_stages(self.graph, self.stages, work)

    @cached_property
    def stages(self) -> I64:
        """(ranks,): the pipeline stage of each as its coordinates or, without these, messages tell
        it; -1 where neither does."""
        graph = self.graph
        stages = np.array([self.shape.stage(rank) for rank in graph.ranks])
        if stages.max() >= 0:
            return stages
        sends = np.zeros(len(graph), bool)
        for column, summary in enumerate(sorted(self.every, key=lambda one: one.rank)):
            records = summary.collectives
            if len(records.direction):
                rows = np.flatnonzero((graph.rank == column) & (graph.call >= 0))
                sends[rows] = records.direction[graph.call[rows]] == SEND
        return stages_by_messages(graph, sends)

    @cached_property
    def even(self) -> EvenWork:
        """See :func:`traceconv.analysis.replay.balance.even_work`."""
        return self.once("even work", EvenWork, lambda: even_work(self.graph, self.own.roles))

    @cached_property
    def openings(self) -> NDArray[np.bool_]:
        """(operations,): which nothing in their own step comes before: those after a pause."""
        graph, n = self.graph, len(self.graph)
        earlier = graph.step[np.minimum(graph.before, n - 1)] < graph.step[:, None]
        is_opening: NDArray[np.bool_] = ((graph.before == n) | earlier).all(axis=1)
        return is_opening

    @cached_property
    def gap_ns(self) -> F64:
        """(operations,): the part of their delay that is a gap between steps. Where a rank knows
        its gaps, they are no longer than these: idle time at the ends of steps is in the steps."""
        graph = self.graph
        rows = self.openings & (graph.step > 0)
        host = np.where(rows, graph.delays_by_cause[:, HOST], 0.0)
        for one in self.every:
            known = one.losses.get(one.rank, Losses())
            mine = rows & (np.array(graph.ranks)[graph.rank] == one.rank)
            if mine.any() and known.knows(PAUSE):
                first = np.full(len(graph.steps), np.inf)
                np.minimum.at(first, graph.step[mine], host[mine])
                usual = float(first[np.isfinite(first)].mean())
                host[mine] *= min(known.mean_pause_ns / max(usual, 1.0), 1.0)
        return host

    def saved(self, gone: Mapping[int, Mapping[str, float]]) -> F64 | None:
        """(steps,): how much shorter each step is without some time of ranks; None of one step,
        which does not show how long the device is idle at its end.

        Args:
            gone: per rank, ns per step by class (:mod:`traceconv.analysis.losses`, or
                :data:`PEERS`, :data:`STAGES`, :data:`WAITS`, :data:`STEP`). That much of all the
                rank has of the class goes, in equal shares of every operation; of gaps between
                steps, all.
        """
        graph = self.graph
        if len(graph.steps) < 2:
            return None
        n, steps, ranks = len(graph), len(graph.steps), len(graph.ranks)
        cut = np.zeros((ranks, len(SORTS)))  # shares
        comm, no_gaps, like_peers = np.zeros(ranks), np.zeros(ranks, bool), np.zeros(ranks, bool)
        scale = np.ones(n)
        spikes = waits = False
        work = work_parts(graph)
        delays = graph.delays_by_cause
        idle = delays * (1 - self.own.hidden)[:, None]
        total = np.stack([np.bincount(graph.rank, ns, ranks) for ns in (work + idle).T], axis=1)
        transfer = np.bincount(graph.rank, np.where(graph.kind < 0, 0, self.lengths), ranks)
        for rank, classes in gone.items():
            column = graph.ranks.index(rank)
            for name, ns in classes.items():
                if name in _SORTS:
                    total_ns = max(float(total[column, _SORTS[name]].sum()), 1.0)
                    cut[column, _SORTS[name]] = min(ns * steps / total_ns, 1.0)
                elif name == EXPOSED:
                    comm[column] = min(ns * steps / max(float(transfer[column]), 1.0), 1.0)
                elif name == STAGES:
                    scale = self.balanced if self.balanced is not None else scale
                no_gaps[column] |= name == PAUSE
                like_peers[column] |= name == PEERS
                spikes |= name == STEP
                waits |= name == WAITS
        shares, chosen = cut[graph.rank], like_peers[graph.rank]
        delays -= idle * shares
        delays[:, HOST] -= np.where(no_gaps[graph.rank], self.gap_ns, 0)
        # a transfer takes as long on all that are in it
        moved = np.repeat(np.maximum.reduceat(comm[graph.rank], graph.meets), graph.sizes)
        lengths = np.where(
            graph.kind < 0, self.lengths - (work * shares).sum(axis=1), self.lengths * (1 - moved)
        )
        after = self._like_peers(chosen[:, None], lengths * scale, delays.sum(axis=1))[0]
        saved_ns: F64 = self.base - after
        if waits:  # the schedule lets no rank wait: the one with most own time decides
            saved_ns = np.maximum(saved_ns, self.base - np.nanmax(self.own.table, axis=1))
        if spikes:
            usual = float(np.median(self.base))
            saved_ns += np.where(self.base > SPIKE * usual, self.base - usual, 0)
        return saved_ns

    # -- for people -------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        low, high = interval(self.without_delays / np.maximum(self.ideal, 1))
        return {
            "error": self.error,
            "held_out_error": self.held_out,
            "gaps_share": self.gaps_share,
            "step_ns": round(self.step_ns),
            "step_without_delays_ns": round(float(self.without_delays.mean())),
            "ideal_step_ns": round(float(self.ideal.mean())),
            "slowdown": self.slowdown,
            "slowdown_interval": [low, high],
            "slowdown_if_only_these_stay_slow": self.attribution(),
            "slowdown_of_steps": [
                {"window": window, "step": number, "slowdown": value}
                for (window, number), value in zip(
                    self.graph.steps.tolist(),
                    (self.without_delays / np.maximum(self.ideal, 1)).tolist(),
                    strict=True,
                )
            ],
        }


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 1 else 1}f} %"


def _without_unrecorded_waits(graph: Graph, summaries: Sequence[RankSummary]) -> Graph:
    """The graph without delays that are waits for something that was not recorded.

    A long delay in front of communication, without a recorded cause, is either the host's or a wait
    for another rank: in an operation that the capture does not hold, or through the host. What the
    rank waited for took as long elsewhere, so without such a delay the replayed step is as long as
    before. Without one of the host it is shorter. Ranks with the same role whose steps begin with
    such a delay, as a pause between steps, are treated alike, or one of them would seem slow.
    """
    host, step = graph.host_ns, float(graph.recorded_ns.mean())
    long = (graph.kind >= 0) & (host > _LONG_DELAY * step)
    if not long.any():
        return graph
    delays = graph.delay_ns

    def mean(delays_tried: F64) -> float:
        return float(step_times(graph, graph.length_ns[:, None], delays_tried[:, None]).mean())

    def lost(sets: Iterable[NDArray[np.bool_]]) -> F64:
        """How much shorter the mean step is without each of some delays, as a share."""
        means = np.array([mean(delays - host * removed) for removed in sets])
        return np.asarray((mean(delays) - means) / step)

    if lost([long])[0] > _SHORTER:
        ranks = np.unique(graph.rank[long])[:_RANKS_TRIED]
        shortened = lost(long & (graph.rank == rank) for rank in ranks.tolist())
        own_delays = long & ~np.isin(graph.rank, ranks[shortened <= _SHORTER / 2])
        long &= ~own_delays
        by_rank = {summary.rank: summary for summary in summaries}
        cell = graph.rank.astype(np.int64) * len(graph.steps) + graph.step
        first = np.full(len(graph.ranks) * len(graph.steps), len(graph))
        np.minimum.at(first, cell, graph.row)
        opens = graph.row == first[cell]
        for members in same_role([by_rank[rank] for rank in graph.ranks]):
            of_role = np.isin(np.array(graph.ranks)[graph.rank], members)
            own, waits = own_delays & of_role, long & of_role & opens
            if own.any() and (own & opens).sum() > _ALIKE * own.sum() and waits.any():
                long &= ~of_role
        if not long.any() or lost([long])[0] > _SHORTER:
            return graph
    return msgspec.structs.replace(graph, host_ns=np.where(long, 0.0, host))


def replay_of(
    summaries: Sequence[RankSummary],
    clocks: Clocks,
    groups: Sequence[Matched],
    release: bool = False,
    once: Once = each_time,
) -> Replay:
    """The replay of a job.

    Args:
        release: see :func:`traceconv.analysis.replay.graph.graph_of`.
        once: for what takes long, the graph first.

    Raises:
        traceconv.analysis.replay.graph.Unusable: there is none, with the reason.
    """
    large_apart()

    def make() -> Graph:
        graph = graph_of(summaries, clocks, groups, release)
        return _without_unrecorded_waits(graph, summaries)

    graph = once("graph", Graph, make)
    ranks = dict.fromkeys(graph.ranks)
    replay = Replay(graph, [summary for summary in summaries if summary.rank in ranks], once)
    give_back()
    return replay
