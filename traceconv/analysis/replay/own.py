"""What each rank does by itself between the points at which it waits for others, and what ranks
with the same role typically do there.

A rank waits where it communicates and does nothing else at the end of it: at its *synchronisation
points*. Its own time is all the rest: its work, and the gaps in front of its operations. Of
communication that other work hides nothing is own time, and what a rank computes while operations
are queued behind each other is not cut up by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.inferred_shape import same_role
from traceconv.analysis.rank_facts import SORTS
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.replay.graph import SLACK_NS, Graph
from traceconv.analysis.replay.operations import COMPUTE, HOST
from traceconv.analysis.statistics import over_others
from traceconv.core.columns import F64, I32, I64
from traceconv.core.intervals import length_within

_AT_ONCE = 1 << 17  # operations
_APART = 4  # times as far as in the other steps
_BEYOND = 2  # times as far as they usually are in the first step
_FEWEST = 5  # steps
_FEW_RANKS = 4


class OwnTime(msgspec.Struct, frozen=True, eq=False):
    """The own time of the ranks of a graph, ns.

    Attributes:
        roles: (ranks,) ranks with the same number do the same.
        table: (steps, ranks): own time; NaN where a rank has no operation in a step.
        parts: (steps, ranks, sorts): the same by cause.
        late:   (steps, ranks): delay of communication that other work hides, so that it is no own
            time of the rank, but others may wait for it.
        excess: (steps, ranks): own time beyond the median of the others of the role; NaN where a
            first step shows nothing of a rank, because they all differ in it.
        later:  (steps, ranks): the same of ``late``.
        factor: per operation, what its own time has to be multiplied with to become that of its
            peers; 1 where these are unknown.
        hidden: per operation, the share of its delay in which the rank works or communicates.
        sooner: (steps, ranks): what ``late`` has to be multiplied with to become that of the peers.
    """

    roles: I64
    table: F64
    parts: F64
    late: F64
    excess: F64
    later: F64
    factor: F64
    hidden: F64
    sooner: F64

    def members(self, role: int) -> NDArray[np.intp]:
        """Indexes of the ranks of a role."""
        return np.flatnonzero(self.roles == role)


def own_time(graph: Graph, every: Sequence[RankSummary]) -> OwnTime:
    """Own time by rank and step.

    Args:
        every: the summaries of all ranks.
    """
    by_rank = {one.rank: one for one in every}
    roles = _numbers(same_role([by_rank[rank] for rank in graph.ranks]), graph.ranks)
    n, steps, ranks = len(graph), len(graph.steps), len(graph.ranks)
    own, covered, hidden = np.empty(n), np.zeros(n, bool), np.empty(n)
    parts, lates = np.zeros((steps, ranks, len(SORTS))), np.zeros((steps, ranks))
    seen = np.zeros((steps, ranks), bool)
    order = np.lexsort((graph.row, graph.rank)).astype(np.int32)
    ends = [np.searchsorted(of, np.arange(ranks + 1)).tolist() for of in (
        graph.rank[order], graph.rank[graph.part], graph.rank[graph.cause_at])]  # fmt: skip
    for number, borders in enumerate(zip(*(pairwise(one) for one in ends), strict=True)):
        (low, high), worked, caused = borders
        rows = order[low:high]
        found, covered[rows], hidden[rows], late = _of_rank(
            graph, rows, slice(*worked), slice(*caused)
        )
        own[rows], step = found.sum(axis=1), graph.step[rows]
        for sort, values in enumerate(found.T):
            parts[:, number, sort] = np.bincount(step, values, steps)
        lates[:, number] = np.bincount(step, late, steps)
        seen[step, number] = True
    table = np.where(seen, parts.sum(axis=2), np.nan)
    lates[~seen] = np.nan
    excess, later = _over_peers(table, roles), _over_peers(lates, roles)
    factor = _factors(graph, own, _cells(graph, order, covered, roles), roles)
    if (unclear := _unclear_at_first(excess)).any():
        excess[0, unclear] = later[0, unclear] = np.nan
        factor[(graph.step == 0) & unclear[graph.rank]] = 1
    usual = np.minimum(lates, np.where(np.isnan(later), lates, lates - later))
    sooner = np.divide(usual, lates, out=np.ones(lates.shape), where=lates > 0)
    return OwnTime(roles, table, parts, lates, excess, later, factor, hidden, sooner)


def _over_peers(table: F64, roles: I64) -> F64:
    found = np.full(table.shape, np.nan)
    for role in np.unique(roles).tolist():
        members = np.flatnonzero(roles == role)
        found[:, members] = over_others(table[:, members])
    return found


def _unclear_at_first(excess: F64) -> NDArray[np.bool_]:
    """(ranks,): of which the first step shows nothing, because ranks differ in it far more than in
    the others: the profiler starts, or something is compiled. A rank that is late by more than
    that remains."""
    found = np.zeros(excess.shape[1], bool)
    if len(excess) < _FEWEST or len(found) < _FEW_RANKS:
        return found
    off = np.abs(np.nan_to_num(excess))
    apart = np.median(off, axis=1)
    if apart[0] > _APART * np.median(apart[1:]):
        found = off[0] <= _BEYOND * apart[0]
    return found


def work_parts(graph: Graph) -> F64:
    """(operations, sorts): what work consists of."""
    sort = graph.sorts[graph.name] if len(graph.name) else graph.name
    cells = graph.part.astype(np.int64) * len(SORTS) + sort
    found = np.bincount(cells, graph.part_ns, len(graph) * len(SORTS))
    return found.astype(np.float64, copy=False).reshape(len(graph), len(SORTS))


def _of_rank(
    graph: Graph, rows: I32, worked: slice, caused: slice
) -> tuple[F64, NDArray[np.bool_], F64, F64]:
    """Of the operations of a rank, in order of start: own time by cause; which of them is
    communication that overlaps with work at its end; the share of the delay of each in which the
    rank is not idle; and that time of communication.

    Args:
        worked, caused: its parts and causes of delays.
    """
    shape = len(rows), len(SORTS)
    cells = graph.row[graph.part[worked]] * shape[1] + graph.sorts[graph.name[worked]]
    work = np.bincount(cells, graph.part_ns[worked], shape[0] * shape[1]).reshape(shape)
    delay = np.zeros(shape)
    delay[:, HOST] = graph.host_ns[rows]
    delay[graph.row[graph.cause_at[caused]], graph.cause[caused]] = graph.cause_ns[caused]
    start, step = graph.start_ns[rows], graph.step[rows]
    comm = graph.kind[rows] >= 0
    end = graph.end_ns[rows]
    reached = np.maximum.accumulate(end) if len(end) else end
    before = np.concatenate((start[:1], reached[:-1]))
    first = np.concatenate(([True], np.diff(step) != 0)) if len(rows) else np.zeros(0, bool)
    total = delay.sum(axis=1)
    gap = np.where(first, total, np.clip(start - before, 0, None))
    share = np.divide(gap, total, out=np.zeros(len(rows)), where=total > 0)
    found = delay * np.minimum(share, 1)[:, None]
    found[:, :] += np.where(comm[:, None], 0, work)
    busy = np.flatnonzero(~comm)
    # work that begins as communication ends has waited for it
    covers = np.searchsorted(start[busy], end - SLACK_NS) - 1
    hidden = np.zeros(len(rows), bool)
    if len(busy):
        hidden = (covers >= 0) & (end[busy[np.maximum(covers, 0)]] > end + SLACK_NS)
    gaps = np.stack((before, start), axis=1)[start > before]
    length = np.rint(total).astype(np.int64)
    late = np.flatnonzero(length > 0)
    spans = np.stack((start[late] - length[late], start[late]), axis=1)
    idle = np.zeros(len(rows))
    idle[late] = length_within(gaps, spans)
    idle[first] = total[first]
    busy_ns = total - np.minimum(idle, total)
    share = np.divide(busy_ns, total, out=np.zeros(len(rows)), where=total > 0)
    return found, hidden & comm, share, np.where(comm, total * share, 0.0)


def _cells(graph: Graph, order: I32, hidden: NDArray[np.bool_], roles: I64) -> I32:
    """Per operation, the part of its step between two synchronisation points. Of ranks with the
    same role these are the same: where most of them wait."""
    if not len(order):
        return np.zeros(0, np.int32)
    steps = len(graph.steps)
    comm = graph.kind[order] >= 0
    key = graph.rank[order].astype(np.int64) * steps + graph.step[order]
    first = np.flatnonzero(np.concatenate(([True], np.diff(key) != 0)))
    del key
    many = np.diff(np.append(first, len(order)))
    role = roles[graph.rank[order[first]]] * steps + graph.step[order[first]]
    calls = np.add.reduceat(comm, first, dtype=np.int64)
    # communication at one place of a step: of a role, a step, and ranks with as much of it
    width = int(calls.max(initial=0)) + 1
    place = np.repeat((role * width + calls) * width - (np.cumsum(calls) - calls), calls)
    place += np.arange(len(place))
    _, at = np.unique(place, return_inverse=True)
    del place
    at = at.reshape(-1)
    waits = np.bincount(at, ~hidden[order[comm]]) * 2 >= np.bincount(at)
    syncs = np.zeros(len(order), np.int32)
    syncs[comm] = waits[at]
    count = np.cumsum(syncs, dtype=np.int32) - syncs
    found = np.empty(len(order), np.int32)
    found[order] = count - np.repeat(count[first], many)
    return found


def _factors(graph: Graph, own: F64, cell: I32, roles: I64) -> F64:
    """See :attr:`OwnTime.factor`. Parts of a step are compared one by one where all ranks of a role
    have equally many in it, else all of it at once. Before a collective that one rank begins late
    there is other work on it: such parts are joined."""
    steps, ranks = len(graph.steps), len(graph.ranks)
    found = np.ones(len(graph))
    kernels = np.zeros(len(graph), np.float32)
    for some in _slices(len(graph.part)):
        worked = graph.sorts[graph.name[some]] == COMPUTE
        np.add.at(kernels, graph.part[some][worked], graph.part_count[some][worked])
    most = np.zeros((steps, ranks), np.int64)
    np.maximum.at(most, (graph.step, graph.rank), cell + 1)
    roles = _alike(roles, most)
    for role in np.unique(roles).tolist():
        members = np.flatnonzero(roles == role)
        if len(members) < 2:
            continue
        counts = most[:, members]
        seen = counts > 0
        alike = np.where(seen, counts, counts.max(axis=1, keepdims=True)) == counts.max(
            axis=1, keepdims=True
        )
        width = np.maximum(np.where(alike.all(axis=1), counts.max(axis=1), 1), 1)
        column = np.full(ranks, -1, np.int32)
        column[members] = np.arange(len(members))
        rows = np.flatnonzero(column[graph.rank] >= 0).astype(np.int32)
        offset = np.concatenate(([0], np.cumsum(width)))
        step = graph.step[rows]
        at = (offset[step] + np.where(width[step] > 1, cell[rows], 0)).astype(np.int32)
        del step

        # parts at whose ends ranks have run as many kernels are the same ones; others are joined
        ran = np.zeros((int(offset[-1]), len(members)))
        for some in _slices(len(rows)):
            np.add.at(ran, (at[some], column[graph.rank[rows[some]]]), kernels[rows[some]])
        ran = np.cumsum(ran, axis=0)
        ran -= np.repeat(np.concatenate((np.zeros((1, len(members))), ran))[offset[:-1]], width, 0)
        ran = np.where(np.repeat(seen, width, axis=0), ran, ran.max(axis=1, keepdims=True))
        same = np.ptp(ran, axis=1) == 0
        del ran
        same[offset[1:] - 1] = True
        at = (np.cumsum(same, dtype=np.int32) - same)[at]
        width = np.add.reduceat(same, offset[:-1], dtype=np.int64)
        table = np.zeros((int(width.sum()), len(members)))
        for some in _slices(len(rows)):
            np.add.at(table, (at[some], column[graph.rank[rows[some]]]), own[rows[some]])
        table[np.repeat(~seen, width, axis=0)] = np.nan
        typical = table - over_others(table)
        factor = np.divide(typical, table, out=np.ones_like(table), where=table > 0)
        for some in _slices(len(rows)):
            of = column[graph.rank[rows[some]]]
            found[rows[some]] = np.nan_to_num(factor[at[some], of], nan=1.0)
    return found


def _slices(length: int) -> Iterator[slice]:
    """Some rows after others, so that little is in memory besides them."""
    for first in range(0, length, _AT_ONCE):
        yield slice(first, min(first + _AT_ONCE, length))


def _alike(roles: I64, parts: I64) -> I64:
    """Roles, divided by the usual number of parts of a step where several ranks share it."""
    usual = np.median(parts, axis=0)
    _, found, count = np.unique(
        np.stack((roles, usual)), axis=1, return_inverse=True, return_counts=True
    )
    found = found.reshape(-1)
    alone = count[found] < 2
    alike: I64 = np.where(alone, len(count) + roles, found)
    return alike


def _numbers(roles: Sequence[Sequence[int]], ranks: Sequence[int]) -> I64:
    role = {rank: number for number, members in enumerate(roles) for rank in members}
    return np.array([role[rank] for rank in ranks], np.int64)
