"""The bias of the ends of collectives: how much later those of one rank come than those of another.

It is what does not average out over many operations: the ends of one rank may always come, or be
stamped, later than those of another. Where it is the last to come, the time a rank is inside
is that of the operation itself, with its own bias; so what differs between these times is the bias
between their ends. For ranks that never come last, it is taken to be what it is among the others;
where that is not known either, all that holds is that nobody ends an operation before all have
begun it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import F64
from traceconv.core.robust import Z99, median, scale, student

_ROUNDS = 20
_TIED = 1e-3  # what an operation counts in which two ranks come at once
_WILD = 3.0  # standard deviations beyond which a value counts no more
_UNKNOWN_NS = 1e7  # what a bias may be where nothing is known of it
_KNOWN_NS = 1e6  # with a standard error below that, something is
_LEAST_NS, _SIZES = 1e3, 10  # the smallest, and how many, other values of a bias are tried
_REFUTED = 9.0  # by how much more squares of scatters add up to where that is no chance
_WILDEST = 4.0  # standard deviations; what is further off counts as that there
_FEW_BIASED = 4  # ranks whose bias must be known for it to be expected of others


class Bias(msgspec.Struct, frozen=True):
    """How much later than usual the ends of ranks come after the last rank has come.

    Attributes:
        late:   per column, ns.
        covariance: of these.
        dof:    degrees of freedom these are estimated from.
        least:  per column, the shortest time inside, ns. The ends of one rank cannot be that much
            later than those of another: it would have begun when the other had ended. Who never
            comes last is not expected to be later than the others by more than twice what these
            need.
        certain: whether ranks wait for each other, so that the rest means something.
    """

    late: F64
    covariance: F64
    dof: int
    least: F64
    certain: bool

    def between(self, one: int, other: int, usual: float) -> tuple[float, float]:
        """By how much the ends of one come later than those of another, and how far that may be
        off, 99 of 100 times; ns.

        Args:
            usual: what it is expected to be less than if nothing is known of these two; NaN for
                nothing.
        """
        most = float(max(self.least[one], self.least[other]))
        if not self.certain:
            return 0.0, most
        c = self.covariance
        error = math.sqrt(max(float(c[one, one] + c[other, other] - 2 * c[one, other]), 0.0))
        later, reach = float(self.late[one] - self.late[other]), student(Z99, self.dof) * error
        if not math.isnan(usual):  # both are known: what was measured, and what is to be expected
            share = usual**2 / (usual**2 + reach**2)
            later, reach = share * later, math.sqrt(share) * reach
        return (later, reach) if abs(later) + reach < most else (0.0, most)


def bias_of(start: F64, took: F64, sort: NDArray[np.intp]) -> Bias:
    """How late the ends of ranks come.

    An operation takes its rank that comes last what its sort takes, and its rank's bias. Who comes
    last follows from starts as far as clocks are known, which they are but for that bias; so both
    are looked for in turns, from two sides: as if there was none, and as if each rank's shortest
    time inside was one in which it came last.

    Args:
        start, took: (operations, ranks): starts by the fitted clocks and times inside, ns; -inf
            and inf where an operation was not seen.
        sort:  of each operation.
    """
    shortest = np.sort(took, axis=0)[int(0.1 * (len(took) - 1))]
    shortest = np.where(np.isfinite(shortest), shortest, median(shortest))
    known = [_by_last(start, took, sort, first) for first in (0 * shortest, shortest)]
    late, covariance, dof, _ = min(known, key=lambda k: k[-1])
    covariance = covariance + np.diag((_otherwise(start, took, sort, late, dof) / Z99) ** 2)
    last = np.unique(np.argmax(start + late, axis=1))
    least = took.min(axis=0)
    waiting = np.delete(np.arange(len(least)), last)
    least[waiting] = np.minimum(least[waiting], 2 * least[last].max())
    return Bias(late, covariance, dof, least, True)


def _otherwise(start: F64, took: F64, sort: NDArray[np.intp], late: F64, dof: int) -> F64:
    """(ranks,): by how much the bias of each might be another, if times inside would then scatter
    no more, ns.

    Where ranks have nothing to do between two collectives, or the same, a rank whose ends come late
    begins the next as much later: its times inside are then what they would be if its clock was
    wrong instead, and nothing tells these apart.
    """
    rows, ranks = start.shape
    at = np.arange(rows)
    shown, value = start + late, took - late
    order = np.argsort(shown, axis=1)
    last, second = order[:, -1], order[:, -2] if ranks > 1 else order[:, -1]
    usual = value[at, last]
    instead = np.where(np.isfinite(value[at, second]), value[at, second], usual)
    kinds = [np.flatnonzero(sort == one) for one in np.unique(sort).tolist()]
    most = float(median(usual))
    sizes = np.geomspace(_LEAST_NS, max(most, 2 * _LEAST_NS), _SIZES)
    rest = _around(usual[:, None], kinds)[:, 0]
    sigma = scale(rest, dof)
    limit = float(np.minimum((rest / sigma) ** 2, _WILDEST**2).sum()) + _REFUTED
    found = np.zeros(ranks)
    for rank in range(ranks):
        for by in (sizes, -sizes):
            moved = shown[:, rank, None] + by
            others = np.where(last == rank, shown[at, second], shown[at, last])
            hit = moved >= others[:, None]
            other = np.where(last == rank, instead, usual)[:, None]
            own = np.where(np.isfinite(took[:, rank]), value[:, rank], usual)[:, None] - by
            rest = _around(np.where(hit, own, other), kinds)
            fits = np.minimum((rest / sigma) ** 2, _WILDEST**2).sum(axis=0) <= limit
            reach = int(np.argmin(fits)) if not fits.all() else _SIZES + 1
            if reach > _SIZES:
                found[rank] = _UNKNOWN_NS
            elif reach:
                found[rank] = max(found[rank], float(sizes[reach - 1]))
    return found


def _around(values: F64, kinds: Sequence[NDArray[np.intp]]) -> F64:
    """Values by column, less the medians of their kinds."""
    rest = values.copy()
    for rows in kinds:
        rest[rows] -= median(rest[rows].T)
    return rest


def _by_last(
    start: F64, took: F64, sort: NDArray[np.intp], late: F64
) -> tuple[F64, F64, int, float]:
    """See :func:`bias_of`: biases, their covariance, its degrees of freedom, and the scatter."""
    rows, ranks = start.shape
    sorts = int(sort.max()) + 1
    last = np.argmax(start + late, axis=1)
    usual, sigma = np.zeros(sorts), np.ones(sorts)
    normal, dof, every = np.eye(ranks), 1, 0.0
    for _ in range(_ROUNDS):
        value = took[np.arange(rows), last]
        for one in np.unique(sort).tolist():
            mine = sort == one
            usual[one] = median((value - late[last])[mine])
        rest = value - usual[sort] - late[last]
        dof = max(rows - len(np.unique(sort)) - len(np.unique(last)) + 1, 1)
        every = scale(rest, dof)
        for one in np.unique(sort).tolist():
            mine = sort == one
            n = int(np.count_nonzero(mine))
            sigma[one] = scale(rest[mine], n * dof / rows) if n > 4 else every
        wide = _WILD * sigma[sort]
        value = value - rest + np.clip(rest, -wide, wide)
        ordered = np.sort(start + late, axis=1)
        lead = ordered[:, -1] - ordered[:, -2]
        clear = np.maximum(lead / (lead + sigma[sort]), _TIED)
        normal, right = _two_ways(value, last, sort, clear / (sigma[sort] + 1.0) ** 2, ranks)
        late = np.asarray(np.linalg.solve(normal, right), np.float64)
        before, last = last, np.argmax(start + late, axis=1)
        if np.array_equal(before, last):
            break
    return late, np.asarray(np.linalg.inv(normal), np.float64), dof, every


def _two_ways(
    value: F64, last: NDArray[np.intp], sort: NDArray[np.intp], weight: F64, ranks: int
) -> tuple[F64, F64]:
    """Least squares for what rank and sort of an operation each add to values: the equations of
    that of ranks, whose matrix is the inverse of its covariance. Ranks that nothing connects may
    differ by anything."""
    normal = np.eye(ranks) / _UNKNOWN_NS**2
    right = np.zeros(ranks)
    for one in np.unique(sort).tolist():
        mine = sort == one
        count = np.bincount(last[mine], weight[mine], ranks)
        total = np.bincount(last[mine], (weight * value)[mine], ranks)
        normal += np.diag(count) - np.outer(count, count) / count.sum()
        right += total - count * total.sum() / count.sum()
    return normal, right


def usual_bias(biases: Iterable[Bias]) -> float:
    """What the bias between two ranks is expected to be less than, ns, 99 of 100 times, from those
    of all ranks for which it is known; NaN if these are few."""
    squares, weights, ranks, dof = 0.0, 0.0, 0, 0
    for bias in (bias for bias in biases if bias.certain):
        lead = int(np.argmin(np.diag(bias.covariance)))
        c = bias.covariance
        variance = np.diag(c) + c[lead, lead] - 2 * c[lead]
        known = variance < _KNOWN_NS**2
        if np.count_nonzero(known) < 2:
            continue
        late = bias.late[known]
        weight = 1 / np.maximum(variance[known], median(variance[known]))
        rest = late - (weight @ late) / weight.sum()
        squares, weights = squares + float(weight @ rest**2), weights + float(weight.sum())
        ranks, dof = ranks + len(late), dof + len(late) - 1
    if dof < _FEW_BIASED - 1:
        return math.nan
    return math.sqrt(2 * squares / weights * ranks / dof) * student(Z99, dof)
