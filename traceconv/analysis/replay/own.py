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
from traceconv.core.columns import F32, F64, I32, I64
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
        hidden: per operation, the share of its delay in which the rank works or communicates.
        of_length, of_delay: per operation, what its length and its delay have to be multiplied with
            to become those of its peers; 1 where these are unknown, and of transfers.
    """

    roles: I64
    table: F64
    parts: F64
    late: F64
    excess: F64
    later: F64
    hidden: F32
    of_length: F32
    of_delay: F32

    def members(self, role: int) -> NDArray[np.intp]:
        """Indexes of the ranks of a role."""
        return np.flatnonzero(self.roles == role)


def own_time(graph: Graph, summaries: Sequence[RankSummary]) -> OwnTime:
    """Own time by rank and step.

    Args:
        summaries: the summaries of all ranks.
    """
    by_rank = {summary.rank: summary for summary in summaries}
    same = same_role([by_rank[rank] for rank in graph.ranks])
    role_of = {rank: number for number, members in enumerate(same) for rank in members}
    roles = np.array([role_of[rank] for rank in graph.ranks], np.int64)
    n, steps, ranks = len(graph), len(graph.steps), len(graph.ranks)
    own_ns, hidden = np.empty((2, n), np.float32)
    covered = np.zeros(n, bool)
    parts, lates = np.zeros((steps, ranks, len(SORTS))), np.zeros((steps, ranks))
    present = np.zeros((steps, ranks), bool)
    order = np.lexsort((graph.row, graph.rank)).astype(np.int32)
    ends = [np.searchsorted(sorted_ranks, np.arange(ranks + 1)).tolist() for sorted_ranks in (
        graph.rank[order], graph.rank[graph.part], graph.rank[graph.cause_at])]  # fmt: skip
    for number, borders in enumerate(zip(*(pairwise(bounds) for bounds in ends), strict=True)):
        (low, high), worked, caused = borders
        rows = order[low:high]
        by_cause, covered[rows], hidden[rows], late = _of_rank(
            graph, rows, slice(*worked), slice(*caused)
        )
        own_ns[rows], step = by_cause.sum(axis=1), graph.step[rows]
        for sort, values in enumerate(by_cause.T):
            parts[:, number, sort] = np.bincount(step, values, steps)
        lates[:, number] = np.bincount(step, late, steps)
        present[step, number] = True
    table = np.where(present, parts.sum(axis=2), np.nan)
    lates[~present] = np.nan
    excess, later = _over_peers(table, roles), _over_peers(lates, roles)
    factor = _factors(graph, own_ns, _cells(graph, order, covered, roles), roles)
    if (unclear := _unclear_at_first(excess)).any():
        excess[0, unclear] = later[0, unclear] = np.nan
        factor[(graph.step == 0) & unclear[graph.rank]] = 1
    usual = np.minimum(lates, np.where(np.isnan(later), lates, lates - later))
    sooner = np.divide(usual, lates, out=np.ones(lates.shape), where=lates > 0)
    of_delay = factor * (1 - hidden)
    for some in _slices(n):
        of_delay[some] += hidden[some] * sooner[graph.step[some], graph.rank[some]]
    factor[graph.kind >= 0] = 1
    return OwnTime(roles, table, parts, lates, excess, later, hidden, factor, of_delay)


def _over_peers(table: F64, roles: I64) -> F64:
    excess = np.full(table.shape, np.nan)
    for role in np.unique(roles).tolist():
        members = np.flatnonzero(roles == role)
        excess[:, members] = over_others(table[:, members])
    return excess


def _unclear_at_first(excess: F64) -> NDArray[np.bool_]:
    """(ranks,): of which the first step shows nothing, because ranks differ in it far more than in
    the others: the profiler starts, or something is compiled. A rank that is late by more than
    that remains."""
    is_unclear = np.zeros(excess.shape[1], bool)
    if len(excess) < _FEWEST or len(is_unclear) < _FEW_RANKS:
        return is_unclear
    off = np.abs(np.nan_to_num(excess))
    apart = np.median(off, axis=1)
    if apart[0] > _APART * np.median(apart[1:]):
        is_unclear = off[0] <= _BEYOND * apart[0]
    return is_unclear


def work_parts(graph: Graph) -> F64:
    """(operations, sorts): what work consists of."""
    sort = graph.sorts[graph.name] if len(graph.name) else graph.name
    cells = graph.part.astype(np.int64) * len(SORTS) + sort
    sums = np.bincount(cells, graph.part_ns, len(graph) * len(SORTS))
    return sums.astype(np.float64, copy=False).reshape(len(graph), len(SORTS))


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
    is_first = np.concatenate(([True], np.diff(step) != 0)) if len(rows) else np.zeros(0, bool)
    total = delay.sum(axis=1)
    gap = np.where(is_first, total, np.clip(start - before, 0, None))
    share = np.divide(gap, total, out=np.zeros(len(rows)), where=total > 0)
    own_ns = delay * np.minimum(share, 1)[:, None]
    own_ns[:, :] += np.where(comm[:, None], 0, work)
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
    idle[is_first] = total[is_first]
    busy_ns = total - np.minimum(idle, total)
    share = np.divide(busy_ns, total, out=np.zeros(len(rows)), where=total > 0)
    return own_ns, hidden & comm, share, np.where(comm, total * share, 0.0)


def _cells(graph: Graph, order: I32, hidden: NDArray[np.bool_], roles: I64) -> I32:
    """Per operation, the part of its step between two synchronisation points. Of ranks with the
    same role these are the same: where most of them wait."""
    if not len(order):
        return np.zeros(0, np.int32)
    steps = len(graph.steps)
    comm = graph.kind[order] >= 0
    is_first = np.zeros(len(order), bool)
    is_first[0] = True
    for key in (graph.rank[order], graph.step[order]):
        is_first[1:] |= key[1:] != key[:-1]
    begins = np.flatnonzero(is_first)
    counts = np.diff(np.append(begins, len(order)))
    role = roles[graph.rank[order[begins]]] * steps + graph.step[order[begins]]
    calls = np.add.reduceat(comm, begins, dtype=np.int64)
    # communication at one place of a step: of a role, a step, and ranks with as much of it
    width = int(calls.max(initial=0)) + 1
    position = np.repeat((role * width + calls) * width - (np.cumsum(calls) - calls), calls)
    position += np.arange(len(position))
    _, position_code = np.unique(position, return_inverse=True)
    del position
    position_code = position_code.reshape(-1)
    waits = np.bincount(position_code, ~hidden[order[comm]]) * 2 >= np.bincount(position_code)
    syncs = np.zeros(len(order), np.int32)
    syncs[comm] = waits[position_code]
    count = np.cumsum(syncs, dtype=np.int32) - syncs
    cells = np.empty(len(order), np.int32)
    cells[order] = count - np.repeat(count[begins], counts)
    return cells


def _factors(graph: Graph, own_ns: F32, cell: I32, roles: I64) -> F32:
    """The factor for the own time of each operation. Parts of a step are compared
    one by one where all ranks of a role have equally many in it, else all of it at once. Before a
    collective that one rank begins late there is other work on it: such parts are joined."""
    steps, ranks = len(graph.steps), len(graph.ranks)
    factors = np.ones(len(graph), np.float32)
    kernels = np.zeros(len(graph), np.float32)
    for some in _slices(len(graph.part)):
        worked = graph.sorts[graph.name[some]] == COMPUTE
        np.add.at(kernels, graph.part[some][worked], graph.part_count[some][worked])
    cell_counts = np.zeros((steps, ranks), np.int64)
    for some in _slices(len(cell)):
        np.maximum.at(cell_counts, (graph.step[some], graph.rank[some]), cell[some] + 1)
    roles = _alike(roles, cell_counts)
    for role in np.unique(roles).tolist():
        members = np.flatnonzero(roles == role)
        if len(members) < 2:
            continue
        counts = cell_counts[:, members]
        present = counts > 0
        alike = np.where(present, counts, counts.max(axis=1, keepdims=True)) == counts.max(
            axis=1, keepdims=True
        )
        width = np.maximum(np.where(alike.all(axis=1), counts.max(axis=1), 1), 1)
        column = np.full(ranks, -1, np.int32)
        column[members] = np.arange(len(members))
        rows = np.flatnonzero(column[graph.rank] >= 0).astype(np.int32)
        offset = np.concatenate(([0], np.cumsum(width)))
        cell_row = np.empty(len(rows), np.int32)
        for some in _slices(len(rows)):
            step = graph.step[rows[some]]
            cell_row[some] = offset[step] + np.where(width[step] > 1, cell[rows[some]], 0)
        # parts at whose ends ranks have run as many kernels are the same ones; others are joined
        ran = np.zeros((int(offset[-1]), len(members)))
        for some in _slices(len(rows)):
            np.add.at(ran, (cell_row[some], column[graph.rank[rows[some]]]), kernels[rows[some]])
        ran = np.cumsum(ran, axis=0)
        ran -= np.repeat(np.concatenate((np.zeros((1, len(members))), ran))[offset[:-1]], width, 0)
        ran = np.where(np.repeat(present, width, axis=0), ran, ran.max(axis=1, keepdims=True))
        is_aligned = np.ptp(ran, axis=1) == 0
        del ran
        is_aligned[offset[1:] - 1] = True
        cell_row = (np.cumsum(is_aligned, dtype=np.int32) - is_aligned)[cell_row]
        width = np.add.reduceat(is_aligned, offset[:-1], dtype=np.int64)
        table = np.zeros((int(width.sum()), len(members)))
        for some in _slices(len(rows)):
            np.add.at(table, (cell_row[some], column[graph.rank[rows[some]]]), own_ns[rows[some]])
        table[np.repeat(~present, width, axis=0)] = np.nan
        factor = table - over_others(table)
        factor = np.divide(factor, table, out=np.ones_like(table), where=table > 0)
        for some in _slices(len(rows)):
            member = column[graph.rank[rows[some]]]
            factors[rows[some]] = np.nan_to_num(factor[cell_row[some], member], nan=1.0)
    return factors


def _slices(length: int) -> Iterator[slice]:
    """Some rows after others, so that little is in memory besides them."""
    for first in range(0, length, _AT_ONCE):
        yield slice(first, min(first + _AT_ONCE, length))


def _alike(roles: I64, parts: I64) -> I64:
    """Roles, divided by the usual number of parts of a step where several ranks share it."""
    usual = np.median(parts, axis=0)
    _, role_of, count = np.unique(
        np.stack((roles, usual)), axis=1, return_inverse=True, return_counts=True
    )
    role_of = role_of.reshape(-1)
    alone = count[role_of] < 2
    alike: I64 = np.where(alone, len(count) + roles, role_of)
    return alike
