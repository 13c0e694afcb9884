"""Equal work: what the work of each operation has to be multiplied with so that stages, ranks or
micro-batches have equally much."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.replay.graph import Graph
from traceconv.analysis.replay.operations import COMPUTE, COPY
from traceconv.core.columns import F64, I64, Mask

_MOST_CELLS = 64  # parts of a step
_LEAST = 0.1  # of the time of work is in each half
_MAINLY = 0.9  # of the time of work is in whole cells


class EvenWork(msgspec.Struct, frozen=True, eq=False):
    """What makes work even.

    Attributes:
        factor: (operations,) what work has to be multiplied with.
        of_ranks, of_batches: standard deviations that go, as shares of work: of the ranks of a
            step, and of the micro-batches of a rank and step; 0 of the latter where kernels do not
            show how many there are.
        moves: whether it is mostly other ranks or micro-batches in each step that have more.
    """

    factor: F64
    of_ranks: float = 0.0
    of_batches: float = 0.0
    moves: bool = False


def even_stages(graph: Graph, of: I64, work: F64) -> F64 | None:
    """(operations,): so that all pipeline stages have equally much work in a step; None where
    stages are unknown.

    Args:
        of: (ranks,) the stage of each.
        work: (steps, ranks).
    """
    stages = np.unique(of)
    if len(stages) < 2 or stages[0] < 0:
        return None
    table = np.stack([np.median(work[:, of == stage], axis=1) for stage in stages], axis=1)
    factor = table.mean(axis=1, keepdims=True) / np.maximum(table, 1.0)
    column = np.searchsorted(stages, of)[graph.rank]
    return np.where(graph.kind < 0, factor[graph.step, column], 1.0)


def even_work(graph: Graph, roles: I64) -> EvenWork:
    """What is needed so that ranks with the same role have equally much work in a step, and so have
    the micro-batches of a step. What a step has in all stays the same.

    A step is divided into *cells*, as many as there are micro-batches where kernels show how many
    that is: the first cell holds the first share of the runs of every kernel. Cells and steps
    differ in their work, or by noise, which equal work would leave. Work is what two halves of a
    cell (other kernels, as those of the forward and the backward pass) have in common.

    Args:
        roles: (ranks,) ranks with the same number do the same.
    """
    work = np.flatnonzero(np.isin(graph.sorts[graph.name], (COMPUTE, COPY)))
    steps, ranks = len(graph.steps), len(graph.ranks)
    if not len(work):
        return EvenWork(np.ones(len(graph)))
    row = graph.part[work]
    order = np.lexsort((graph.row[row], graph.name[work], graph.step[row], graph.rank[row]))
    work, row = work[order], row[order]
    name, ns, count = graph.name[work], graph.part_ns[work], graph.part_count[work]
    of_step = graph.rank[row].astype(np.int64) * steps + graph.step[row]
    run = _groups(of_step, name)
    total = np.bincount(run, count).astype(np.float64)[run]
    end = np.cumsum(count)
    end -= (end - count)[_firsts(run)]
    cells = _cells(len(run) // (2 * steps * ranks), end - count, end, total, ns)
    cell = ((end - count / 2) * cells / total).astype(np.int64)
    usual = _usual(roles[graph.rank[row]], name, run, total, end - count, end, ns)
    half = _halves(name, end, ns)
    size = 2, ranks, steps, cells
    at = half * (ranks * steps * cells) + of_step * cells + cell
    table, expected = (
        np.bincount(at, of, 2 * ranks * steps * cells).astype(np.float64).reshape(size)
        for of in (ns, usual)
    )
    whole = table.sum(axis=3)
    seen = whole.sum(axis=0) > 0
    usually = np.empty(whole.shape)
    for role in np.unique(roles).tolist():
        mine = roles == role
        typical = whole[:, mine].sum(axis=(1, 2)) / max(seen[mine].sum(), 1)
        usually[:, mine] = typical[:, None, None]
    pace = whole.sum(axis=0) / np.maximum(usually.sum(axis=0), 1.0)
    pace = pace.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    of_ranks = _factor(whole / np.maximum(pace, 1e-9), usually)
    within = np.ones(size[1:])
    if cells > 1:
        share = whole.sum(axis=0) / np.maximum(expected.sum(axis=(0, 3)), 1.0)
        within = _factor(table / np.maximum(share, 1e-9)[:, :, None], expected)
        both = table.sum(axis=0)
        kept = both.sum(axis=2) / np.maximum((both * within).sum(axis=2), 1.0)
        within *= kept[:, :, None]
    factor = (of_ranks[:, :, None] * within).reshape(-1)[of_step * cells + cell]
    before = np.bincount(row, ns, len(graph))
    after = np.bincount(row, ns * factor, len(graph))
    spread = float(np.std(1 / of_ranks[seen])), float(np.std(1 / within[table.sum(axis=0) > 0]))
    return EvenWork(
        np.divide(after, before, out=np.ones(len(graph)), where=before > 0),
        *spread,
        spread[1] > spread[0] or _moves(1 / of_ranks, seen),
    )


def _moves(work: F64, seen: Mask) -> bool:
    """Whether ranks differ from step to step more than in the mean of steps; (ranks, steps)."""
    steps = seen.sum(axis=1)
    mean = np.where(seen, work, 0).sum(axis=1) / np.maximum(steps, 1)
    apart = np.where(seen, work - mean[:, None], 0)
    own = (apart**2).sum() / max(int((steps - 1).sum()), 1)
    return bool(steps.max() > 1 and own > 0.5 * np.var(work[seen]))


def _cells(most: int, begin: F64, end: F64, total: F64, ns: F64) -> int:
    """How many cells a step has: as many as possible, up to ``most``, of which parts of work are
    in one only, but for some of the time.

    Args:
        begin, end, total: per part, its runs among all those of its kernel in the step.
    """
    least = _MAINLY * ns.sum()
    key = np.zeros(len(ns), np.int64)  # many parts are the same runs of other kernels
    for column in (begin, end, total):
        key = key * (int(total.max()) + 1) + column.astype(np.int64)
    _, first, alike = np.unique(key, return_index=True, return_inverse=True)
    begin, end, total = begin[first], end[first], total[first]
    ns = np.bincount(alike, ns).astype(np.float64)
    for cells in range(min(most, _MOST_CELLS), 1, -1):
        if ns[begin * cells // total == (end * cells - 1) // total].sum() >= least:
            return cells
    return 1


def _usual(
    role: I64, name: NDArray[Any], run: I64, total: F64, begin: F64, end: F64, ns: F64
) -> F64:
    """(parts,): what each usually takes: the mean of the same runs of its kernel, of all ranks with
    its role and all steps in which it runs equally often. In some steps several are one part."""
    key = (role * (int(name.max()) + 1) + name) * (int(total.max()) + 1) + total.astype(np.int64)
    _, first, alike = np.unique(key, return_index=True, return_inverse=True)
    size = total[first].astype(np.int64) + 1
    offset = np.cumsum(size) - size
    times = np.bincount(alike[np.flatnonzero(np.diff(run, prepend=-1))])
    low, high = offset[alike] + begin.astype(np.int64), offset[alike] + end.astype(np.int64)
    each = ns / (end - begin) / times[alike]
    cells = int(size.sum())
    of_run = np.cumsum(np.bincount(low, each, cells) - np.bincount(high, each, cells))
    until = np.concatenate(([0.0], np.cumsum(of_run)))
    return np.asarray(until[high] - until[low], np.float64)


def _halves(name: NDArray[Any], end: F64, ns: F64) -> I64:
    """(parts,): which of two halves each belongs to: by name, unless one kernel takes nearly all of
    the time."""
    of_name = np.bincount(name, ns)
    half = np.empty(len(of_name), np.int64)
    half[np.argsort(-of_name, kind="stable")] = np.arange(len(of_name)) % 2
    found: I64 = half[name]
    return found if ns[found == 1].sum() >= _LEAST * ns.sum() else end.astype(np.int64) % 2


def _groups(*keys: NDArray[Any]) -> I64:
    """Numbers of runs of equal keys."""
    changes = np.zeros(len(keys[0]), bool)
    for key in keys:
        changes[1:] |= key[1:] != key[:-1]
    return np.cumsum(changes)


def _firsts(run: I64) -> I64:
    """Where the run of each row begins."""
    found: I64 = np.searchsorted(run, run)
    return found


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
    both = (usual > 0).all(axis=0) & (value > 0)
    one, other = (
        half[both] / typical[both] - 1 for half, typical in zip(halves, usual, strict=True)
    )
    power, n = float((one * one).sum() * (other * other).sum()), len(one)
    if not power or n < 3:
        return np.ones(value.shape)
    alike = max(float((one * other).sum()), 0.0) / np.sqrt(power)
    # chance alone makes a square of 1 / n
    alike = np.sqrt(max(alike * alike - 1 / n, 0.0) / (1 - 1 / n))
    left = np.sqrt(max(1 - 2 * alike / (1 + alike), 0.0))
    return np.asarray((1 + left * off) / (1 + off))
