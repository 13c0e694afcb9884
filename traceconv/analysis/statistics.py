"""Chance: whether a column of a table is larger than the others by more than that, and how far a
mean may be off.

There is one test. Where ranks that do the same are alike, any of them could have been the one that
took longest in a step, so in each step the values may be exchanged between them. The test counts
how often a table that was shuffled so has a column whose mean is as large. It assumes no
distribution and no spread, and it needs the steps to be independent: where a rank that is slow in
one step is slow in the next by chance as well, neighbouring steps are exchanged together.
"""

from __future__ import annotations

import numpy as np

from traceconv.core.columns import F64

LEVEL = 0.005
"""Probability that one of many columns that are alike is taken for larger."""

_DRAWS = (500, 20_000)
_CELLS = 1 << 21  # values that are shuffled in all, unless that is too few draws
_FEWEST = 5
_CLEAR = 10
_TAIL = 0.06  # of values of a Cauchy distribution are as far from its median
_CUT = 4  # median absolute deviations
_TOGETHER = 3  # columns that are tested as one
_QUARTER = 0.4506  # of the absolute difference of two normal values are below, a quarter of them
_BLOCKS = 8  # steps are joined as long as this many blocks are left
_SEED = 1


def over_others(values: F64) -> F64:
    """(steps, columns): each value minus the median of the others in its step; NaN where it is NaN
    or no other exists."""
    steps, columns = values.shape
    found = np.full(values.shape, np.nan)
    if columns < 2:
        return found
    order = np.argsort(values, axis=1)  # NaN is sorted to the end
    ranked = np.take_along_axis(values, order, axis=1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(columns), order.shape), axis=1)
    count = (~np.isnan(values)).sum(axis=1)
    rest = np.maximum(count - 1, 1)
    low, high = (rest - 1) // 2, rest // 2
    row = np.arange(steps)[:, None]
    middle = [
        ranked[row, np.minimum(at[:, None] + (place <= at[:, None]), columns - 1)]
        for at in (low, high)
    ]
    known = ~np.isnan(values) & (count > 1)[:, None]
    found[known] = (values - (middle[0] + middle[1]) / 2)[known]
    return found


def by_chance(excess: F64) -> F64:
    """(columns,): how often a table that was shuffled has means as large as that of each column.

    What is large in single steps decides on a plain mean, and hides what is there in all of them.
    So the test is made with the values, and with large ones cut off at what most stay below; the
    smaller chance counts. Few steps allow few exchanges; there a column also counts as larger that
    exceeds what columns scatter by from step to step ten times in every step.

    Args:
        excess: (steps, columns), as :func:`over_others` returns it.
    """
    excess = excess[~np.isnan(excess).all(axis=1)]
    steps, columns = excess.shape
    if steps < 2 or columns < 2:
        return np.ones(columns)
    filled = np.nan_to_num(excess)
    size = _block(excess)
    centre = np.median(filled, axis=0)
    most = _CUT * float(np.median(np.abs(filled - centre))) + float(np.abs(centre).max())
    chances = [_shuffled(values, size) for values in (filled, np.clip(filled, -most, most))]
    found: F64 = np.minimum(*chances)
    if steps >= _FEWEST:
        noise = float(np.median(np.abs(filled - centre)))
        clear = (filled.min(axis=0) > _CLEAR * noise) & (filled.min(axis=0) > 0)
        found[clear] = np.minimum(found[clear], columns * _TAIL**steps)
    return found


def scatter(excess: F64) -> float:
    """What values vary by from step to step, as the standard deviation of normal noise: by the
    smaller differences of neighbouring steps, so that a column that becomes larger, or is so in
    some steps, does not count. 0 where fewer than two steps are known."""
    steps = np.abs(np.diff(excess, axis=0))
    steps = steps[~np.isnan(steps)]
    return float(np.quantile(steps, 0.25)) / _QUARTER if len(steps) else 0.0


def _shuffled(values: F64, size: int) -> F64:
    """:func:`by_chance` of values as they are.

    Columns may share the steps between them, as ranks that are slow in turn do. So the sum of the
    two and three largest means is compared as well, as long as each is at least half of the first.

    Args:
        size: how many steps are exchanged together.
    """
    steps, columns = values.shape
    found = np.ones(columns)
    sums = np.stack([values[first : first + size].sum(axis=0) for first in range(0, steps, size)])
    means = sums.sum(axis=0) / steps
    order = np.argsort(-means)
    most = min(_TOGETHER, columns - 1)
    rng = np.random.default_rng(_SEED)
    draws = int(np.clip(_CELLS // sums.size, *_DRAWS))
    largest = np.empty((draws, most))
    each = max(_CELLS // sums.size, 1)
    for first in range(0, draws, each):
        some = np.broadcast_to(sums, (min(each, draws - first), *sums.shape))
        drawn = np.sort(rng.permuted(some, axis=2).sum(axis=1), axis=1)[:, : -most - 1 : -1]
        largest[first : first + each] = np.cumsum(drawn, axis=1) / steps
    least = float(columns) ** -min(len(sums) - 1, 30)
    for k in range(most):
        if means[order[k]] <= 0 or 2 * means[order[k]] < means[order[0]]:
            break
        observed = means[order[: k + 1]].sum()
        chance = max((k + 1) * _share_above(largest[:, k], float(observed)), least)
        found[order[: k + 1]] = np.minimum(found[order[: k + 1]], chance)
    return found


def _share_above(drawn: F64, value: float) -> float:
    """How many of the draws reach a value; of one beyond all of them, by Gumbel's law of largest
    values."""
    reached = int((drawn >= value * (1 - 1e-9)).sum())
    if reached:
        return reached / len(drawn)
    spread = float(drawn.std()) * np.sqrt(6) / np.pi
    beyond = float(np.exp(-(value - float(drawn.mean())) / spread)) if spread else 0.0
    return min(0.5 / len(drawn), beyond)


def _block(excess: F64) -> int:
    """How many steps belong together: 1 unless a column that is above its own mean in one step
    tends to be in the next."""
    steps = len(excess)
    known = ~np.isnan(excess)
    mean = np.where(known, excess, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    centred = np.nan_to_num(excess - mean)
    # rare large values say nothing about memory
    limit = 3 * float(np.median(np.abs(centred))) + 1e-9
    clipped = np.clip(centred, -limit, limit)
    power = (clipped * clipped).sum(axis=0)
    varies = power > 0
    if not varies.any():
        return 1
    size = 1
    # a column that becomes larger at some step is no memory: all of them would have one
    while steps // (2 * size) >= _BLOCKS and float(
        np.median((clipped[size:] * clipped[:-size]).sum(axis=0)[varies] / power[varies])
    ) > 2 / np.sqrt(clipped.size):
        size *= 2
    return size


def interval(values: F64, level: float = 0.95, draws: int = 2000) -> tuple[float, float]:
    """Between which limits the mean of ``values`` is, by drawing them again with replacement."""
    if len(values) < 2:
        return (float(values.mean()),) * 2 if len(values) else (np.nan, np.nan)
    rng = np.random.default_rng(_SEED)
    means = rng.choice(values, (draws, len(values))).mean(axis=1)
    # of few values, those drawn scatter by less than the mean does
    wider = float(np.sqrt(len(values) / (len(values) - 1)))
    low, high = np.quantile(means, ((1 - level) / 2, (1 + level) / 2))
    centre = float(values.mean())
    return centre + (float(low) - centre) * wider, centre + (float(high) - centre) * wider
