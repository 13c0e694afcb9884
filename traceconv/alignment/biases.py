"""The bias of the ends of collectives: how much later those of one rank come than those of another.

It is what does not average out over many operations: the ends of one rank may always come, or be
stamped, later than those of another. The rank that comes last to an operation is inside for as long
as that takes, plus its own bias; the differences of these times are the bias between ranks. Ranks
whose end is never the latest are assumed to have a bias as large as that of the others. If that is
unknown too, the only constraint is that no rank ends an operation before all have begun it.

Every step is linear in the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import F64
from traceconv.core.robust import Z99, median, scale, student

_ROUNDS, _SWEEPS = 20, 10
_TIED = 1e-3  # what an operation counts in which two ranks come at once
_WILD = 3.0  # standard deviations beyond which a value counts no more
_KNOWN_NS = 1e6  # with a standard error below that, something is known of a bias
_LEAST_NS, _SIZES = 1e3, 10  # the smallest, and how many, other values of a bias are tried
_UNKNOWN_NS = 1e7  # the standard deviation of an unknown bias
_REFUTED = 9.0  # growth of the sum of squares that may be chance
_WILDEST = 4.0  # standard deviations, at which values are cut off there
_FEW_BIASED = 4  # ranks whose bias must be known for it to be expected of others


class Bias(msgspec.Struct, frozen=True):
    """How much later than usual the ends of ranks come after the last rank has come.

    Attributes:
        late:   per column, ns.
        error:  of these, one standard deviation; :data:`_UNKNOWN_NS` where a rank never comes last.
        linked: per column, a number; biases of columns with the same one can be compared.
        dof:    degrees of freedom these are estimated from.
        least:  per column, the shortest time inside, ns. The ends of one rank cannot be that much
            later than those of another: it would have begun when the other had ended. A rank that
            never is the last is expected to end at most twice that time after the others.
        certain: whether ranks wait for each other, so that the rest means something.
    """

    late: F64
    error: F64
    linked: NDArray[np.intp]
    dof: int
    least: F64
    certain: bool

    def between(self, rank: int, other: int, usual: float) -> tuple[float, float]:
        """By how much the ends of one come later than those of another, and how far that may be
        off, 99 of 100 times; ns.

        Args:
            usual: what it is expected to be less than if nothing is known of these two; NaN for
                nothing.
        """
        limit = float(max(self.least[rank], self.least[other]))
        if not self.certain:
            return 0.0, limit
        error = math.hypot(self.error[rank], self.error[other])
        if self.linked[rank] != self.linked[other]:
            error = _UNKNOWN_NS
        later, reach = float(self.late[rank] - self.late[other]), student(Z99, self.dof) * error
        if not math.isnan(usual):  # weigh the measured bias and the expected one
            share = usual**2 / (usual**2 + reach**2)
            later, reach = share * later, math.sqrt(share) * reach
        return (later, reach) if abs(later) + reach < limit else (0.0, limit)


def bias_of(start: F64, took: F64, sort: NDArray[np.intp]) -> Bias:
    """How late the ends of ranks come.

    Starts tell which rank is last, but for the bias. So both are estimated in turns, from two
    sides: without a bias, and as if each rank was last when it was inside for the shortest time.

    Args:
        start, took: (operations, ranks): starts by the fitted clocks and times inside, ns; -inf
            and inf where an operation was not seen.
        sort:  of each operation.
    """
    shortest = np.sort(took, axis=0)[int(0.1 * (len(took) - 1))]
    shortest = np.where(np.isfinite(shortest), shortest, median(shortest))
    estimates = [_by_last(start, took, sort, first) for first in (0 * shortest, shortest)]
    late, error, dof, _ = min(estimates, key=lambda k: k[-1])
    error = np.hypot(error, _otherwise(start, took, sort, late, dof) / Z99)
    last_rank = np.argmax(start + late, axis=1)
    last_ranks = np.unique(last_rank)
    least = took.min(axis=0)
    waiting = np.delete(np.arange(len(least)), last_ranks)
    least[waiting] = np.minimum(least[waiting], 2 * least[last_ranks].max())
    return Bias(late, error, _linked(last_rank, sort, start.shape[1]), dof, least, True)


def _linked(last: NDArray[np.intp], sort: NDArray[np.intp], ranks: int) -> NDArray[np.intp]:
    """A number per rank: equal for ranks that are last in operations of one sort, and for ranks
    that others link so."""
    links = np.arange(ranks)
    while True:
        least = np.full(int(sort.max()) + 1, ranks)
        np.minimum.at(least, sort, links[last])
        before = links.copy()
        np.minimum.at(links, last, least[sort])
        if np.array_equal(before, links):
            return links


def _otherwise(start: F64, took: F64, sort: NDArray[np.intp], late: F64, dof: int) -> F64:
    """(ranks,): by how much the bias of each might be another, if times inside would then scatter
    no more, ns.

    Where ranks have nothing to do between two collectives, or the same, a rank whose ends come late
    begins the next as much later: its times inside are then what they would be if its clock was
    wrong instead, and nothing tells these apart.
    """
    rows, ranks = start.shape
    row_index = np.arange(rows)
    shown, value = start + late, took - late
    order = np.argsort(shown, axis=1)
    last_rank, second = order[:, -1], order[:, -2] if ranks > 1 else order[:, -1]
    usual = value[row_index, last_rank]
    instead = np.where(np.isfinite(value[row_index, second]), value[row_index, second], usual)
    kinds = [np.flatnonzero(sort == number) for number in np.unique(sort).tolist()]
    usual_ns = float(median(usual))
    sizes = np.geomspace(_LEAST_NS, max(usual_ns, 2 * _LEAST_NS), _SIZES)
    residuals = _centered(usual[:, None], kinds)[:, 0]
    sigma = scale(residuals, dof)
    limit = float(np.minimum((residuals / sigma) ** 2, _WILDEST**2).sum()) + _REFUTED
    reach_of = np.zeros(ranks)
    for rank in range(ranks):
        for by in (sizes, -sizes):
            moved = shown[:, rank, None] + by
            latest_other = np.where(
                last_rank == rank, shown[row_index, second], shown[row_index, last_rank]
            )
            hit = moved >= latest_other[:, None]
            usual_at_last = np.where(last_rank == rank, instead, usual)[:, None]
            own_values = np.where(np.isfinite(took[:, rank]), value[:, rank], usual)[:, None] - by
            residuals = _centered(np.where(hit, own_values, usual_at_last), kinds)
            fits = np.minimum((residuals / sigma) ** 2, _WILDEST**2).sum(axis=0) <= limit
            reach = int(np.argmin(fits)) if not fits.all() else _SIZES + 1
            if reach > _SIZES:
                reach_of[rank] = _UNKNOWN_NS
            elif reach:
                reach_of[rank] = max(reach_of[rank], float(sizes[reach - 1]))
    return reach_of


def _centered(values: F64, kinds: Sequence[NDArray[np.intp]]) -> F64:
    """Values by column, less the medians of their kinds."""
    centered = values.copy()
    for rows in kinds:
        centered[rows] -= median(centered[rows].T)
    return centered


def _by_last(
    start: F64, took: F64, sort: NDArray[np.intp], late: F64
) -> tuple[F64, F64, int, float]:
    """See :func:`bias_of`: biases, their errors, degrees of freedom, and the scatter."""
    rows, ranks = start.shape
    sorts = int(sort.max()) + 1
    kinds = [np.flatnonzero(sort == number) for number in range(sorts)]
    last_rank = np.argmax(start + late, axis=1)
    dof, scatter = 1, 0.0
    count: F64 = np.ones(ranks)
    for _ in range(_ROUNDS):
        residuals = took[np.arange(rows), last_rank] - late[last_rank]
        residuals = _centered(residuals[:, None], kinds)[:, 0]
        dof = max(rows - sorts - len(np.unique(last_rank)) + 1, 1)
        scatter, sigma = scale(residuals, dof), np.full(rows, scale(residuals, dof))
        for of_kind in (of_kind for of_kind in kinds if len(of_kind) > 4):
            sigma[of_kind] = scale(residuals[of_kind], len(of_kind) * dof / rows)
        shown = np.partition(start + late, -2, axis=1)
        lead = shown[:, -1] - shown[:, -2]
        weight = np.maximum(lead / (lead + sigma + 1.0), _TIED) / (sigma + 1.0) ** 2
        count = np.bincount(last_rank, weight, ranks).astype(np.float64)
        of_sort = np.bincount(sort, weight, sorts)
        remaining = np.clip(residuals, -_WILD * sigma, _WILD * sigma)
        for _ in range(_SWEEPS):  # the rest is due to ranks and to sorts of operations
            total = np.bincount(last_rank, weight * remaining, ranks)
            off = np.divide(total, count, out=np.zeros(ranks), where=count > 0)
            late, remaining = late + off, remaining - off[last_rank]
            remaining -= (
                np.bincount(sort, weight * remaining, sorts) / np.maximum(of_sort, 1e-300)
            )[sort]
        late = np.where(count > 0, late - (count @ late) / count.sum(), 0.0)
        before, last_rank = last_rank, np.argmax(start + late, axis=1)
        if np.array_equal(before, last_rank):
            break
    return late, 1 / np.sqrt(count + _UNKNOWN_NS**-2), dof, scatter


def usual_bias(biases: Iterable[Bias]) -> float:
    """The expected limit of the bias between two ranks, ns, held 99 of 100 times, from the biases
    of all ranks for which it is known; NaN if these are few."""
    squares, weights, ranks, dof = 0.0, 0.0, 0, 0
    for bias in (bias for bias in biases if bias.certain):
        lead = int(np.argmin(bias.error))
        variance = bias.error**2 + bias.error[lead] ** 2
        is_known = (variance < _KNOWN_NS**2) & (bias.linked == bias.linked[lead])
        if np.count_nonzero(is_known) < 2:
            continue
        late = bias.late[is_known]
        weight = 1 / np.maximum(variance[is_known], median(variance[is_known]))
        centered = late - (weight @ late) / weight.sum()
        squares, weights = squares + float(weight @ centered**2), weights + float(weight.sum())
        ranks, dof = ranks + len(late), dof + len(late) - 1
    if dof < _FEW_BIASED - 1:
        return math.nan
    return math.sqrt(2 * squares / weights * ranks / dof) * student(Z99, dof)
