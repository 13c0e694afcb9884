"""Equal work: the factor for the work of each operation with which stages, ranks or micro-batches
have the same amount."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray  # noqa: F401 - in the types of columns

from traceconv.analysis.replay.graph import Graph
from traceconv.analysis.replay.operations import COMPUTE, COPY
from traceconv.core.columns import F32, F64, I32, I64, Mask

_MOST_CELLS = 64  # parts of a step
_AT_ONCE = 1 << 16  # parts of work: 5 MB
_KEPT = 8  # blocks of them
_LEAST = 0.1  # of the time of work is in each half
_CHANCE = 2  # times the variance that means have by chance, 95 % of variances stay below it
_MAINLY = 0.9  # of the time of work is in whole cells
_RUN_BITS = 32
_RUN_MASK = (1 << _RUN_BITS) - 1


class EvenWork(msgspec.Struct, frozen=True, eq=False):
    """What makes work even.

    Attributes:
        factor: (operations,) what work has to be multiplied with.
        of_ranks, of_batches: standard deviations that go, as shares of work: of the ranks of a
            step, and of the micro-batches of a rank and step; 0 of the latter where kernels do not
            show how many there are.
        moves: whether it is mostly other ranks or micro-batches in each step that have more.
    """

    factor: F32
    of_ranks: float = 0.0
    of_batches: float = 0.0
    moves: bool = False


def even_stages(graph: Graph, stage_of: I64, work: F64) -> F64 | None:
    """(operations,): so that all pipeline stages have equally much work in a step; None where
    stages are unknown.

    Args:
        stage_of: (ranks,) the stage of each.
        work: (steps, ranks).
    """
    stages = np.unique(stage_of)
    if len(stages) < 2 or stages[0] < 0:
        return None
    table = np.stack([np.median(work[:, stage_of == stage], axis=1) for stage in stages], axis=1)
    factor = table.mean(axis=1, keepdims=True) / np.maximum(table, 1.0)
    column = np.searchsorted(stages, stage_of)[graph.rank]
    return np.where(graph.kind < 0, factor[graph.step, column], 1.0)


def stages_by_messages(graph: Graph, sends: Mask) -> I64:
    """(ranks,) the pipeline stage of each, as messages tell it; -1 of all where they do not.

    The first stage of a pipeline begins each step with a send. Each stage but the last sends first
    to the next one: it has no gradient yet that it could send back.

    Args:
        sends: (operations,) which are sends.
    """
    stages = np.full(len(graph.ranks), -1)
    pairs = graph.meets[graph.sizes == 2]
    pairs = np.stack((pairs, pairs + 1), axis=1)
    pairs = pairs[sends[pairs].sum(axis=1) == 1]
    received = np.flatnonzero(graph.source < len(graph))
    sent = np.concatenate((pairs[sends[pairs]], graph.source[received]))
    received = np.concatenate((pairs[~sends[pairs]], received))
    following: dict[int, int] = {}
    opens = dict.fromkeys(np.unique(graph.rank[sent]).tolist(), True)
    first_send = _first_in_step(graph, sent)
    for sender, receiver in graph.rank[np.stack((sent, received), axis=1)[first_send]].tolist():
        if following.setdefault(sender, receiver) != receiver:
            return stages
    every = np.concatenate((sent, received))
    for row in every[_first_in_step(graph, every)].tolist():
        opens[graph.rank[row]] = opens.get(graph.rank[row], True) and sends[row]
    chains = []
    for rank in [rank for rank, begins in opens.items() if begins]:
        chain = [rank]
        while (rank := following.get(rank, chain[0])) not in chain:
            chain.append(rank)
        chains.append(chain)
    members = [rank for chain in chains for rank in chain]
    if sorted(members) == list(range(len(stages))) and len({len(chain) for chain in chains}) == 1:
        for chain in chains:
            stages[chain] = np.arange(len(chain))
    return stages


def _first_in_step(graph: Graph, rows: I64) -> I64:
    """Indexes of the rows that end first in their rank and step."""
    order = np.lexsort((graph.end_ns[rows], graph.step[rows], graph.rank[rows]))
    cell = graph.rank[rows].astype(np.int64) * len(graph.steps) + graph.step[rows]
    return np.asarray(order[np.diff(cell[order], prepend=-1) != 0])


def even_work(graph: Graph, roles: I64) -> EvenWork:
    """The factors with which ranks with the same role have the same work in a step, and so have the
    micro-batches of a step. The total of a step stays the same.

    A step is divided into *cells*, as many as there are micro-batches where kernels show how many
    that is: the first cell holds the first share of the runs of every kernel. Cells and steps
    differ in their work, or by noise, which equal work would leave. Work is what two halves of a
    cell (other kernels, as those of the forward and the backward pass) have in common.

    Args:
        roles: (ranks,) ranks with the same number do the same.
    """
    blocks = _blocks(graph)
    if (sample := next((parts for parts in blocks() if len(parts.ns)), None)) is None:
        return EvenWork(np.ones(len(graph), np.float32))
    work, usual = _by_cell(graph, roles, blocks, _cells(sample))
    works = work.sum(axis=0) > 0
    of_ranks, within = _even_ranks(work.sum(axis=3), roles), _even_cells(work, usual)
    del work, usual
    spread = float(np.std(1 / of_ranks[works.any(axis=2)])), float(np.std(1 / within[works]))
    moves = spread[1] > spread[0] or _moves(1 / of_ranks, works.any(axis=2))
    factor = _of_operations(graph, blocks, of_ranks[:, :, None] * within)
    return EvenWork(factor, *spread, moves)


def _by_cell(graph: Graph, roles: I64, blocks: _Blocks, cells: int) -> tuple[F64, F64]:
    """(2, ranks, steps, cells): the work of each half of a cell, and what it usually is.

    The kernels that take longest are in one half and the other in turn; where one of them is nearly
    all of the work, its runs are.
    """
    size = 2, len(graph.ranks), len(graph.steps), cells
    work, usual = np.zeros(size), np.zeros(size)
    curves, of_name = _Curves.of(graph, roles, blocks)
    half_of = np.empty(len(of_name), np.int64)
    half_of[np.argsort(-of_name, kind="stable")] = np.arange(len(of_name)) % 2
    by_name = of_name[half_of == 1].sum() >= _LEAST * of_name.sum()
    for parts in blocks():
        half = half_of[parts.name] if by_name else parts.end.astype(np.int64) % 2
        cell = np.ravel_multi_index((half, parts.rank, parts.step, parts.cell(cells)), size)
        np.add.at(work.reshape(-1), cell, parts.ns)
        np.add.at(usual.reshape(-1), cell, curves.usual(parts))
    return work, usual


def _even_ranks(work: F64, roles: I64) -> F64:
    """(ranks, steps): the factors with which ranks of a role have the same work in a step.

    Args:
        work: (2, ranks, steps) of each half.
    """
    works = work.sum(axis=0) > 0
    usual = np.empty(work.shape)
    for role in np.unique(roles).tolist():
        in_role = roles == role
        mean = work[:, in_role].sum(axis=(1, 2)) / max(works[in_role].sum(), 1)
        usual[:, in_role] = mean[:, None, None]
    pace = work.sum(axis=0) / np.maximum(usual.sum(axis=0), 1.0)
    pace = pace.sum(axis=0) / np.maximum(works.sum(axis=0), 1)  # steps may differ
    return _factor(work / np.maximum(pace, 1e-9), usual)


def _even_cells(work: F64, usual: F64) -> F64:
    """(ranks, steps, cells): the factors with which the cells of a rank and step have the work
    that they usually have, of the same total."""
    total = work.sum(axis=0)
    if total.shape[2] == 1:
        return np.ones(total.shape)
    share = total.sum(axis=2) / np.maximum(usual.sum(axis=(0, 3)), 1.0)
    factor = _factor(work / np.maximum(share, 1e-9)[:, :, None], usual)
    restored = total.sum(axis=2) / np.maximum((total * factor).sum(axis=2), 1.0)
    return factor * np.asarray(restored[:, :, None], np.float64)


def _of_operations(graph: Graph, blocks: _Blocks, of_cells: F64) -> F32:
    """(operations,): the factor of each, from those of the cells of its parts."""
    before, after = np.zeros((2, len(graph)), np.float32)
    for parts in blocks():
        weights = of_cells[parts.rank, parts.step, parts.cell(of_cells.shape[2])]
        np.add.at(before, parts.row, parts.ns.astype(np.float32))
        np.add.at(after, parts.row, (parts.ns * weights).astype(np.float32))
    return np.divide(after, before, out=np.ones_like(after), where=before > 0)


class _Parts(msgspec.Struct, frozen=True):
    """Parts of the work of some ranks, by rank, step and kernel.

    Attributes:
        row:   the operation of each.
        rank, step, name: of each.
        ns:    its length.
        begin, end, total: which runs of its kernel in the step they are, and of how many.
        run:   number of the rank, step and kernel.
    """

    row: I32
    rank: I32
    step: I32
    name: I32
    ns: F64
    begin: F64
    end: F64
    total: F64
    run: I64

    @classmethod
    def of(cls, graph: Graph, block: slice) -> _Parts:
        kept = np.isin(graph.sorts[graph.name[block]], (COMPUTE, COPY))
        row, name = graph.part[block][kept], graph.name[block][kept]
        step_of_rank = graph.rank[row].astype(np.int64) * len(graph.steps) + graph.step[row]
        of_run = step_of_rank * len(graph.names) + name
        order = np.lexsort((graph.row[row], of_run))
        row, name = row[order], name[order]
        rank, step = graph.rank[row], graph.step[row]
        count, ns = graph.part_count[block][kept][order], graph.part_ns[block][kept][order]
        changes = np.diff(of_run[order], prepend=of_run[order[:1]]) != 0
        run = np.cumsum(changes)
        heads = np.flatnonzero(np.append(True, changes[1:])) if len(run) else run
        total = np.bincount(run, count).astype(np.float64)[run] if len(run) else count
        end = np.cumsum(count)
        end -= (end - count)[heads[run]]
        return cls(row, rank, step, name, ns, end - count, end, total, run)

    def cell(self, cells: int) -> I64:
        """The cell of each: that of its middle."""
        return ((self.begin + self.end) / 2 * cells / self.total).astype(np.int64)

    def alike(self, first_name: I64) -> I64:
        """A number per part: the same for the same role, kernel, and number of its runs in the
        step, which are the lowest 32 bits.

        Args:
            first_name: (ranks,) the number of the first kernel of its role.
        """
        of_kernel = first_name[self.rank] + self.name
        return np.asarray(of_kernel << _RUN_BITS | self.total.astype(np.int64))


class _Curves(msgspec.Struct, frozen=True):
    """The usual time of the first 0, 1, 2 ... runs of a kernel in a step together (in some steps
    several are one part), by role, kernel and number of runs: one curve after the other.

    Runs of a kernel usually take equally long, unless their means over steps differ by more than
    means of uneven runs do: else what few steps happen to have in common would remain uneven.

    Attributes:
        first_name: see :meth:`_Parts.alike`.
        keys:   what each curve is of, ascending; see :meth:`_Parts.alike`.
        begins: where each begins in ``ns``.
        ns:     the curves; each begins where the one before ends.
    """

    first_name: I64
    keys: I64
    begins: I64
    ns: F64

    @classmethod
    def of(cls, graph: Graph, roles: I64, blocks: _Blocks) -> tuple[_Curves, F64]:
        """The curves, and the time of each kernel."""
        first_name = roles * len(graph.names)
        keys = np.unique(np.concatenate([np.unique(p.alike(first_name)) for p in blocks()]))
        sizes = (keys & _RUN_MASK) + 1
        ends = np.cumsum(sizes)
        begins, of_name = ends - sizes, np.zeros(len(graph.names))
        change = np.zeros((2, ends[-1]))  # of the sums of times and of their squares
        times = np.zeros(len(keys), np.int64)
        for parts in blocks():
            of_name += np.bincount(parts.name, parts.ns, len(of_name))
            curve = np.searchsorted(keys, parts.alike(first_name))
            each, at = parts.ns / (parts.end - parts.begin), begins[curve]
            for sums, power in zip(change, (each, each * each), strict=True):
                np.add.at(sums, at + parts.begin.astype(np.int64), power)
                np.add.at(sums, at + parts.end.astype(np.int64), -power)
            times += np.bincount(curve[np.diff(parts.run, prepend=-1) > 0], minlength=len(keys))
        usual, squares = np.cumsum(change, axis=1) / np.repeat(times, sizes)
        runs = np.delete(np.arange(ends[-1]), ends - 1)  # a curve has a point more than runs
        curve = np.repeat(np.arange(len(keys)), sizes - 1)
        chance = np.maximum(squares - usual * usual, 0)[runs] / np.maximum(times - 1, 1)[curve]
        usual[runs] = _levelled(usual[runs], chance, curve)
        return cls(first_name, keys, begins, np.cumsum(usual) - usual), of_name

    def usual(self, parts: _Parts) -> F64:
        """What each part usually takes."""
        at = self.begins[np.searchsorted(self.keys, parts.alike(self.first_name))]
        begin, end = parts.begin.astype(np.int64), parts.end.astype(np.int64)
        return np.asarray(self.ns[at + end] - self.ns[at + begin])


def _levelled(means: F64, chance: F64, curve: I64) -> F64:
    """The usual time of each run of a kernel, from means and the variance of each by chance.

    Args:
        curve: the number of the curve that each run is of.
    """
    count = np.bincount(curve)
    mean, by_chance = (np.bincount(curve, values) / count for values in (means, chance))
    off = means - mean[curve]
    between = np.bincount(curve, off * off) / np.maximum(count - 1, 1)
    real = 1 - np.divide(by_chance, between, out=np.ones(len(count)), where=between > 0)
    real[between <= _CHANCE * by_chance] = 0
    return np.asarray(mean[curve] + real[curve] * off)


_Blocks = Callable[[], Iterable[_Parts]]


def _blocks(graph: Graph) -> _Blocks:
    """Makes the parts of whole ranks, not too many at once; a few are made only once."""
    ends = np.searchsorted(graph.rank[graph.part], np.arange(len(graph.ranks) + 1)).tolist()
    blocks, first = [], 0
    for low, high in pairwise(ends):
        if high - first > _AT_ONCE and low > first:
            blocks.append(slice(first, low))
            first = low
    blocks.append(slice(first, ends[-1]))
    if len(blocks) <= _KEPT:
        made = [_Parts.of(graph, block) for block in blocks]
        return lambda: made
    return lambda: (_Parts.of(graph, block) for block in blocks)


def _cells(parts: _Parts) -> int:
    """How many cells a step has: the most with which nearly all work is in parts that are in one
    cell each."""
    ranks, steps = int(np.ptp(parts.rank)) + 1, int(parts.step.max()) + 1
    limit = min(len(parts.run) // (2 * ranks * steps), _MOST_CELLS)  # a cell has two halves
    # many parts are the same runs of other kernels
    of = [column.astype(np.int64) for column in (parts.begin, parts.end, parts.total)]
    _, first, alike = np.unique(_numbers(*of), return_index=True, return_inverse=True)
    begin, end, total = (column[first] for column in of)
    ns = np.bincount(alike, parts.ns)
    for cells in range(limit, 1, -1):
        if ns[begin * cells // total == (end * cells - 1) // total].sum() >= _MAINLY * ns.sum():
            return cells
    return 1


def _numbers(*columns: I64) -> I64:
    """A number per row, the same where all columns are."""
    found = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        found = found * (int(column.max(initial=0)) + 1) + column
    return found


def _moves(work: F64, seen: Mask) -> bool:
    """Whether ranks differ from step to step more than in the mean of steps; (ranks, steps)."""
    steps = seen.sum(axis=1)
    mean = np.where(seen, work, 0).sum(axis=1) / np.maximum(steps, 1)
    apart = np.where(seen, work - mean[:, None], 0)
    own = (apart**2).sum() / max(int((steps - 1).sum()), 1)
    return bool(steps.max() > 1 and own > 0.5 * np.var(work[seen]))


def _factor(halves: F64, usual: F64) -> F64:
    """What values have to be multiplied with so that they differ by noise only: by what the two
    halves of each do not have in common. The share of the variance that they have in common is that
    of Spearman and Brown.

    Args:
        halves: (2, ...) of each value.
        usual: (2, ...) what they usually are.
    """
    value, mean = halves.sum(axis=0), usual.sum(axis=0)
    off = np.divide(value, mean, out=np.ones(value.shape), where=mean > 0) - 1
    off[value <= 0] = 0
    measured = (usual > 0).all(axis=0) & (value > 0)
    first_half, second_half = (
        half[measured] / typical[measured] - 1 for half, typical in zip(halves, usual, strict=True)
    )
    power, n = (
        float((first_half * first_half).sum() * (second_half * second_half).sum()),
        len(first_half),
    )
    if not power or n < 3:
        return np.ones(value.shape)
    alike = max(float((first_half * second_half).sum()), 0.0) / np.sqrt(power)
    # chance alone makes a square of 1 / n
    alike = np.sqrt(max(alike * alike - 1 / n, 0.0) / (1 - 1 / n))
    noise_share = np.sqrt(max(1 - 2 * alike / (1 + alike), 0.0))
    return np.asarray((1 + noise_share * off) / (1 + off))
