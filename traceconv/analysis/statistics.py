"""Chance: whether a column of a table is larger than the others by more than that, and how far a
mean may be off.

There is one test. Where ranks that do the same are alike, any of them could have been the one that
took longest in a step, so in each step the values may be exchanged between them. The test counts
how often a table that was shuffled so has a column whose mean is as large. It assumes no
distribution and no spread, and it needs the steps to be independent: where a rank that is slow in
one step is slow in the next by chance as well, neighbouring steps are exchanged together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import F64

LEVEL = 0.005
"""Probability that one of many columns that are alike is taken for larger."""

_DRAWS = (500, 20_000)
_FIRST = 1_000  # draws, after which chances that are far from any limit are known well enough
_SETTLED = (LEVEL / 20, 20 * LEVEL)
_CELLS = 1 << 21  # values that are shuffled in all, unless that is too few draws
_AT_ONCE = 1 << 18  # values that are ranked
_FEWEST = 5
_CLEAR = 10
_TAIL = 0.06  # of values of a Cauchy distribution are as far from its median
_CUT = 4  # median absolute deviations
_TOGETHER = 3  # columns that are tested as one
_BLOCKS = 8  # steps are joined as long as this many blocks are left
_SEED = 1
_REDRAWN = 2000  # means that an interval is made from


def over_others(values: F64) -> F64:
    """(steps, columns): each value minus the median of the others in its step; NaN where it is NaN
    or no other exists."""
    steps, columns = values.shape
    excess = np.full(values.shape, np.nan)
    if columns < 2:
        return excess
    if (at_once := max(_AT_ONCE // columns, 1)) < steps:  # steps are apart from each other
        return np.concatenate(
            [over_others(values[i : i + at_once]) for i in range(0, steps, at_once)]
        )
    order = np.argsort(values, axis=1)  # NaN is sorted to the end
    ranked = np.take_along_axis(values, order, axis=1)
    ranks_in_step = np.empty_like(order)
    np.put_along_axis(
        ranks_in_step, order, np.broadcast_to(np.arange(columns), order.shape), axis=1
    )
    count = (~np.isnan(values)).sum(axis=1)
    other_count = np.maximum(count - 1, 1)
    low, high = (other_count - 1) // 2, other_count // 2
    row = np.arange(steps)[:, None]
    middle = [
        ranked[
            row, np.minimum(positions[:, None] + (ranks_in_step <= positions[:, None]), columns - 1)
        ]
        for positions in (low, high)
    ]
    is_known = ~np.isnan(values) & (count > 1)[:, None]
    excess[is_known] = (values - (middle[0] + middle[1]) / 2)[is_known]
    return excess


def by_chance(
    excess: F64, roles: Sequence[NDArray[np.intp]] | None = None, least: float = 0.0
) -> F64:
    """(columns,): how often a table that was shuffled has means as large as that of each column.

    The values of a step are exchanged between the columns of a role, and those of a whole role with
    those of another of its size. Roles scatter by different amounts, so means are compared in units
    of the scatter of their role. Few steps give a bad estimate of the scatter, and a role with too
    small an estimate would be named, so each shuffled table has its own unit.
    A column that is larger in all steps hides the scatter of a small role, so each role is tested
    on its own as well. The smaller chance counts, twice, for there are two tests.

    What is large in single steps decides on a plain mean, and hides what is there in all of them.
    So the test is made with the values, and with large ones cut off at what most stay below; the
    smaller chance counts. Both leave out the largest value of each column: what is there once is no
    pattern. Few steps allow few exchanges; there a column also counts as larger that
    exceeds what columns scatter by from step to step ten times in every step.

    Args:
        excess: (steps, columns), as :func:`over_others` returns it of the columns of each role.
        roles: the columns of each role; without, all columns have the same.
        least: the smallest scatter that is told from none.
    """
    excess = excess[~np.isnan(excess).all(axis=1)]
    steps, columns = excess.shape
    if steps < 2 or columns < 2:
        return np.ones(columns)
    if roles is None:
        roles = [np.arange(columns)]
    units = np.ones(columns)
    for members in roles if len(roles) > 1 else ():
        units[members] = max(float(_scatter(_step_scatter(excess[:, members]))), least, 1e-9)
    excess = excess / units
    least /= float(units.max())
    filled = np.nan_to_num(excess)
    size = _block(excess, len(roles))
    centre = np.median(filled, axis=0)
    limit = _CUT * float(np.median(np.abs(filled - centre))) + float(np.abs(centre).max())
    chances = [
        _shuffled(values, size, roles, least) for values in (excess, np.clip(excess, -limit, limit))
    ]
    probabilities: F64 = np.minimum(*chances)
    for members in roles if len(roles) > 1 else ():
        alone = len(roles) * by_chance(excess[:, members])
        probabilities[members] = np.minimum(2 * np.minimum(probabilities[members], alone), 1)
    if steps >= _FEWEST:
        noise = float(np.median(np.abs(filled - centre)))
        clear = (filled.min(axis=0) > _CLEAR * noise) & (filled.min(axis=0) > 0)
        probabilities[clear] = np.minimum(probabilities[clear], columns * _TAIL**steps)
    return probabilities


def _step_scatter(excess: F64) -> F64:
    """(steps, ...): by how much the columns of a role, the last axis, are off in each step: from
    their usual value or from the step before, so that neither a column that is larger in all steps
    counts nor one that is from a step on; 1 where nothing is known."""
    is_known = ~np.isnan(excess).all(axis=-1)
    usual = np.median(np.nan_to_num(excess), axis=0)
    before = np.concatenate((excess[1:2], excess[:-1]))
    off = np.fmin(np.abs(excess - usual), np.abs(excess - before))
    off_usual = np.ones(is_known.shape)
    off_usual[is_known] = np.nanmedian(off[is_known], axis=-1)
    return off_usual


def _scatter(apart: F64) -> F64:
    """What columns scatter by over steps, the first axis: the mean of the calmer half of steps, so
    that a column that becomes larger, or is so in some steps, does not count."""
    half = (len(apart) + 1) // 2
    return np.asarray(np.partition(apart, half - 1, axis=0)[:half].mean(axis=0))


def _shuffled(values: F64, size: int, roles: Sequence[NDArray[np.intp]], least: float) -> F64:
    """:func:`by_chance` of values in units of their roles.

    Columns may share the steps between them, as ranks that are slow in turn do. So the sum of the
    two and three largest means is compared as well, as long as each is at least half of the first.

    Args:
        size: how many steps are exchanged together.
    """
    steps, columns = values.shape
    chances = np.ones(columns)
    blocks = range(0, steps, size)
    sums = np.add.reduceat(np.nan_to_num(values), blocks)
    is_known = np.add.reduceat(~np.isnan(values), blocks) > 0
    alike = [
        np.stack(
            [members for members in roles if len(members) == size_of_role]
        )  # (roles, columns of each)
        for size_of_role in sorted({len(members) for members in roles})
    ]
    apart = [
        _step_scatter(np.where(is_known, sums, np.nan)[:, columns_of_roles])
        for columns_of_roles in alike
    ]
    least = max(least, 1e-9)
    means = np.zeros(columns)
    for columns_of_roles, spread in zip(alike, apart, strict=True):
        unit = np.maximum(_scatter(spread), least)[:, None]
        means[columns_of_roles] = _lasting(sums[:, columns_of_roles]) / unit / steps
    order = np.argsort(-means)
    most_together = min(_TOGETHER, columns - 1)
    rng = np.random.default_rng(_SEED)
    draws = int(np.clip(_CELLS // sums.size, *_DRAWS))
    least_chance = float(columns) ** -min(len(sums) - 1, 30)
    largest = np.empty((0, most_together))
    at_once = max(_CELLS // sums.size, 1)
    while len(largest) < draws:
        count = min(max(len(largest), _FIRST), draws - len(largest), at_once)
        draws_by_size = [
            _drawn(rng, sums[:, columns_of_roles], spread, least, count)
            for columns_of_roles, spread in zip(alike, apart, strict=True)
        ]
        drawn = np.sort(np.concatenate(draws_by_size, axis=1), axis=1)[:, : -most_together - 1 : -1]
        largest = np.concatenate((largest, np.cumsum(drawn, axis=1) / steps))
        if len(largest) < min(_FIRST, draws):
            continue
        chances[:] = 1
        for k in range(most_together):
            if means[order[k]] <= 0 or 2 * means[order[k]] < means[order[0]]:
                break
            observed = means[order[: k + 1]].sum()
            chance = max((k + 1) * _share_above(largest[:, k], float(observed)), least_chance)
            chances[order[: k + 1]] = np.minimum(chances[order[: k + 1]], chance)
        if ((chances < _SETTLED[0]) | (chances > _SETTLED[1])).all():
            break
    return chances


def _lasting(sums: F64) -> F64:
    """Sums over blocks, the first axis, without the largest of each column."""
    total = sums.sum(axis=0)
    return np.asarray(total - sums.max(axis=0) if len(sums) >= _FEWEST else total)


def _drawn(rng: np.random.Generator, sums: F64, apart: F64, least: float, count: int) -> F64:
    """(count, columns): sums over blocks of shuffled roles of one size, in units of each."""
    blocks, roles, members = sums.shape
    order = rng.random((blocks, count, roles)).argsort(axis=2)
    row = np.arange(blocks)[:, None, None]
    unit = np.maximum(_scatter(apart[row, order]), least)
    shuffled = _lasting(rng.permuted(sums[row, order], axis=3))
    return np.asarray((shuffled / unit[:, :, None]).reshape(count, roles * members))


def _share_above(drawn: F64, value: float) -> float:
    """How many of the draws reach a value; of one beyond all of them, by Gumbel's law of largest
    values."""
    reached = int((drawn >= value * (1 - 1e-9)).sum())
    if reached:
        return reached / len(drawn)
    spread = float(drawn.std()) * np.sqrt(6) / np.pi
    beyond = float(np.exp(-(value - float(drawn.mean())) / spread)) if spread else 0.0
    return min(0.5 / len(drawn), beyond)


def _block(excess: F64, roles: int) -> int:
    """How many steps belong together: 1 unless a column that is above its own mean in one step
    tends to be in the next, by more than chance. Of two columns of a role one is the mirror of the
    other, so a role has one independent column less than it has columns."""
    steps, columns = excess.shape
    is_known = ~np.isnan(excess)
    mean = np.where(is_known, excess, 0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    centred = np.nan_to_num(excess - mean)
    # rare large values say nothing about memory
    limit = 3 * float(np.median(np.abs(centred))) + 1e-9
    clipped = np.clip(centred, -limit, limit)
    power = (clipped * clipped).sum(axis=0)
    varies = power > 0
    if not varies.any():
        return 1
    size = 1
    # a column that becomes larger at some step does not count as memory: all of them would have one
    while steps // (2 * size) >= _BLOCKS and float(
        np.median((clipped[size:] * clipped[:-size]).sum(axis=0)[varies] / power[varies])
    ) > 2 / np.sqrt(steps * max(columns - roles, 1)):
        size *= 2
    return size


def interval(values: F64, level: float = 0.95) -> tuple[float, float]:
    """Between which limits the mean of ``values`` is, by drawing them again with replacement."""
    low, high = limits(values[:, None], level)
    return float(low[0]), float(high[0])


def limits(table: F64, level: float = 0.95) -> tuple[F64, F64]:
    """(columns,) twice: the same of each column of (values, columns)."""
    count, columns = table.shape
    if count < 2:
        means = table[0] if count else np.full(columns, np.nan)
        return means, means
    redrawn = np.random.default_rng(_SEED).integers(0, count, (_REDRAWN, count))
    redrawn += count * np.arange(_REDRAWN)[:, None]
    times = np.bincount(redrawn.ravel(), minlength=_REDRAWN * count).reshape(redrawn.shape)
    means = times.astype(np.float64) @ table / count
    quantiles = np.quantile(means, ((1 - level) / 2, (1 + level) / 2), axis=0)
    # of few values, those drawn scatter by less than the mean does
    centre, wider = table.mean(axis=0), np.sqrt(count / (count - 1))
    low, high = centre + (quantiles - centre) * wider
    return low, high
