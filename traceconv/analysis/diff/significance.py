"""Whether a difference between two runs is more than the steps of a run differ among themselves.

Steps are drawn again, with replacement, a thousand times, the same steps for everything that is
measured on any rank; how far the means of the draws scatter is the standard error of a mean. What
scatters has two parts: the pace that everything of one sort has in common (clocks of the device,
the length of the input), and what each item does besides. The latter is judged by all items of a
sort together, for few steps say little of a single one: variances are drawn towards what is usual
for items of that size, by as much as they resemble each other (the moderated t statistic of Smyth,
2004).

The width of the interval of a difference in standard errors follows from Student's t, the number of
steps and the number of comparisons, so that all intervals of a comparison hold together: of 100
comparisons of equal runs at most two have a wrong verdict. Each item may be wrong in proportion to
its share of the step, so that many small ones do not widen the interval of a large one. Steps that
resemble the one before them say less than independent ones, a run that becomes slower all the time
says little of one after it, and time stamps of a coarse resolution add their rounding: all of that
widens the intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import F64, I64
from traceconv.core.robust import normal_quantile, student

DRAWS, _FEWER = 1000, 250
"""How often steps are drawn again, and how often at least where there are very many."""

_SEED = 20_240_229  # the same in every run: equal input gives equal output

ERROR = {"step": 0.005, "class": 0.0025, "operator": 0.0025, "item": 0.0025}
"""How often a verdict of each kind may be wrong, of equal runs; two-sided, all of a kind together.
"""

_FEWEST_RELATED = 6  # steps per run; fewer do not show whether neighbours are alike
_FEWEST_ALIKE = 3  # items, to say what is usual for them
_FEWEST_SIZED = 10  # items, to say how that depends on their size
_HIGHEST = 0.95  # of correlations
_MOST_FREEDOM = 3  # times that of one item: measured tails are not normal
_TREND = 1.5  # standard errors from which on a trend is one
_ROWS = 512  # drawn at a time


class DifferenceVerdict(StrEnum):
    """The verdict on a difference."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no change"
    UNSURE = "no verdict"


@dataclass(frozen=True)
class Series:
    """The measurements of one run.

    Attributes:
        values: (rows, steps) float64 ns: of everything that is compared, in every step.
        counts: (rows,) float64: of how many lengths each value is the sum, on average.
        resolution_ns: of the time stamps.
    """

    values: F64
    counts: F64
    resolution_ns: int = 1

    @property
    def steps(self) -> int:
        """How many there are."""
        return int(self.values.shape[1])

    @property
    def means(self) -> F64:
        """Mean of each row, ns."""
        return np.asarray(self.values.mean(axis=1))

    def rows(self, which: Any) -> Series:
        """Only some rows, by a mask or a slice."""
        return Series(self.values[which], self.counts[which], self.resolution_ns)

    def summed(self, group: NDArray[np.intp], groups: int) -> Series:
        """The rows of each group together."""
        values, counts = np.zeros((groups, self.steps)), np.zeros(groups)
        np.add.at(values, group, self.values)
        np.add.at(counts, group, self.counts)
        return Series(values, counts, self.resolution_ns)


def half_widths(
    before: Series,
    after: Series,
    kind: str,
    group: NDArray[np.intp] | None = None,
    among: float = 1,
    alike: bool = False,
) -> F64:
    """Half the width of the interval of every difference of means, ns; infinite if unknown.

    Args:
        kind:  key of :data:`ERROR`; an item gets a share of that error equal to its share of time.
        group: number per row of the group whose rows vary together; None: rows are independent.
        among: how many times as many intervals are to hold together.
        alike: whether the rows are one figure of several ranks, whose steps follow one another
            alike: a few steps of one rank do not tell how much neighbours have in common.
    """
    rows = len(before.values)
    size = np.maximum(before.means, after.means)
    if not rows or min(before.steps, after.steps) < 2:
        return np.where(size > 0, np.inf, 0.0)
    share = size / size.sum() if size.sum() > 0 else np.ones(rows)
    if group is None:
        return _joint_widths(before, after, ERROR[kind] / among * share, alike)
    groups = int(group.max()) + 1
    summed = before.summed(group, groups), after.summed(group, groups)
    level = np.maximum(*(group_series.means for group_series in summed))
    common = _joint_widths(*summed, np.full(groups, ERROR[kind] / 2 / groups))
    common = np.divide(common, level, out=np.zeros(groups), where=level > 0)[group] * size
    residual = [
        _without_pace(series, group_series, group)
        for series, group_series in zip((before, after), summed, strict=True)
    ]
    alone = np.zeros(rows)
    for number in range(groups):
        of_group = group == number
        error = ERROR[kind] / 2 * share[of_group]
        alone[of_group] = _alone(
            residual[0].rows(of_group), residual[1].rows(of_group), size[of_group], error
        )
    return np.asarray(np.hypot(common, alone))


def _without_pace(series: Series, group_series: Series, group: NDArray[np.intp]) -> Series:
    """What rows do besides the pace of their group."""
    usual = group_series.means
    pace = np.divide(group_series.values, usual[:, None], out=np.ones(group_series.values.shape),
                     where=usual[:, None] > 0)  # fmt: skip
    values = series.values - series.means[:, None] * pace[group]
    return Series(values, series.counts, series.resolution_ns)


def _joint_widths(before: Series, after: Series, error: F64, alike: bool = False) -> F64:
    """Half widths by what each row itself says."""
    variances = [_variance(series) for series in (before, after)]
    total = variances[0] + variances[1]
    # Welch and Satterthwaite: degrees of freedom of a sum of two estimated variances
    estimated = np.zeros(len(total))
    for series, variance in zip((before, after), variances, strict=True):
        estimated += variance**2 / (series.steps - 1)
    most_freedom = float(before.steps + after.steps - 2)
    freedom = np.divide(
        total**2, estimated, out=np.full(len(total), most_freedom), where=estimated > 0
    )
    related = (
        _correlation(_standard(before), _standard(after), pooled=True)
        if alike
        else _correlation(before.values, after.values)
    )
    inflation = np.asarray((1 + related) / (1 - related))
    wide = _wide(error, np.minimum(freedom, most_freedom) / inflation)
    width: F64 = wide * np.sqrt(total * inflation + _rounding(before, after))
    return width + _drift(before, after)


def _alone(before: Series, after: Series, size: F64, error: F64) -> F64:
    """Half widths of the variation of rows of one sort around their common pace."""
    total = _variance(before) + _variance(after) + _rounding(before, after)
    freedom = float(before.steps + after.steps - 2)
    scale = size**2 * (1 / before.steps + 1 / after.steps)
    usual, worth = _usual(np.divide(total, scale, out=np.zeros(len(size)), where=scale > 0),
                          size, freedom)  # fmt: skip
    total = (worth * usual * scale + freedom * total) / (worth + freedom)
    related = _correlation(_standard(before), _standard(after), pooled=True)
    inflation = (1 + related) / (1 - related)
    freedom = min(worth + freedom, _MOST_FREEDOM * freedom)
    wide = _wide(error, np.full(len(size), freedom) / inflation)
    return np.asarray(wide * np.sqrt(total * inflation))


def _standard(series: Series) -> F64:
    scatter = series.values.std(axis=1, keepdims=True)
    scaled: F64 = np.divide(
        series.values, scatter, out=np.zeros(series.values.shape), where=scatter > 0
    )
    return scaled


def _wide(error: F64, freedom: F64) -> F64:
    """How many standard errors are exceeded as rarely as ``error`` says."""
    pairs = zip(np.maximum(error, 1e-12).tolist(), freedom.tolist(), strict=True)
    return np.array([student(normal_quantile(1 - e / 2), max(f, 3.0)) for e, f in pairs])


def _rounding(before: Series, after: Series) -> F64:
    """Variance of the difference that time stamps' resolution causes."""
    variance = np.zeros(len(before.counts))
    for series in (before, after):
        if series.resolution_ns > 1:  # both ends of a length are off by up to half a unit
            variance += series.counts * series.resolution_ns**2 / (6 * series.steps)
    return variance


def _variance(series: Series) -> F64:
    """Variance of the mean of every row, from draws of its steps."""
    steps = series.steps
    draws = min(DRAWS, max(_FEWER, 500 * DRAWS // steps))
    drawn = np.random.default_rng(_SEED).integers(0, steps, (draws, steps))
    weight = np.zeros((steps, draws))
    np.add.at(weight, (drawn.T, np.arange(draws)), 1 / steps)
    variances = np.empty(len(series.values))
    for row in range(0, len(variances), _ROWS):
        chunk = series.values[row : row + _ROWS]
        variances[row : row + _ROWS] = ((chunk - chunk.mean(axis=1, keepdims=True)) @ weight).var(
            axis=1
        )
    # the spread of the draws themselves is known, and so is that few steps scatter too little
    usual = weight.var(axis=1).mean() * steps**2
    return np.asarray(variances / usual)


def _correlation(before: F64, after: F64, pooled: bool = False) -> F64:
    """The correlation of neighbouring steps of each row, or of all of them, 0 to 0.95.

    Of both runs together, corrected for what estimating it from few steps loses (Kendall); only
    what is beyond its own standard error counts.
    """
    steps = (before.shape[1] + after.shape[1]) / 2
    together, alone = np.zeros(len(before)), np.zeros(len(before))
    for values in (before, after):
        off = values - values.mean(axis=1, keepdims=True)
        together += (off[:, 1:] * off[:, :-1]).sum(axis=1)
        alone += (off * off).sum(axis=1)
    if pooled:
        together, alone = np.full(len(before), together.sum()), np.full(len(before), alone.sum())
    if steps < _FEWEST_RELATED:
        return np.zeros(len(before))
    related = np.divide(together, alone, out=np.zeros(len(before)), where=alone > 0)
    related = (steps * related + 1) / (steps - 3) - 0.5 / np.sqrt(2 * steps - 2)
    return np.asarray(np.clip(related, 0.0, _HIGHEST))


def _drift(before: Series, after: Series) -> F64:
    """By how much the runs differ if one is but the continuation of the other: the sum of the trend
    that their steps have in common, if any."""
    rise, squares = np.zeros(len(before.values)), 0.0
    for series in (before, after):
        time = np.arange(series.steps) - (series.steps - 1) / 2
        rise += series.values @ time
        squares += float((time**2).sum())
    slope, residual, freedom = rise / squares, np.zeros(len(rise)), -1
    for series in (before, after):
        time = np.arange(series.steps) - (series.steps - 1) / 2
        off = series.values - series.values.mean(axis=1, keepdims=True) - slope[:, None] * time
        residual += (off**2).sum(axis=1)
        freedom += series.steps - 1
    unsure = np.sqrt(residual / max(freedom, 1) / squares)
    drift = np.abs(slope) * (before.steps + after.steps) / 2
    return np.asarray(np.where(np.abs(slope) > _TREND * unsure, drift, 0.0))


# -- what is usual for items of one sort ------------------------------------------------------


def _usual(relative: F64, size: F64, freedom: float) -> tuple[F64, float]:
    """The usual relative variance of items of each size, and how many steps that is worth.

    Args:
        relative: variances, of values divided by ``size``; 0 if unknown.
        freedom:  degrees of freedom that each was estimated with.
    """
    is_known = (relative > 0) & (size > 0)
    if int(is_known.sum()) < _FEWEST_ALIKE:
        return np.zeros(len(size)), 0.0
    log = np.log(relative[is_known]) - _digamma(freedom / 2) + math.log(freedom / 2)
    x = np.log(size[is_known]) - np.log(size[is_known]).mean()
    spread = float((x**2).sum())
    sized = len(log) >= _FEWEST_SIZED and spread > 0
    slope = float(x @ log) / spread if sized else 0.0
    fitted = log.mean() + slope * x
    excess = float(((log - fitted) ** 2).sum()) / (len(log) - 1 - sized) - _trigamma(freedom / 2)
    usual = np.zeros(len(size))
    usual[is_known] = np.exp(fitted)
    if excess <= 0:  # they differ no more than by chance
        return usual, 1e6
    worth = 2 * _inverse_trigamma(excess)
    usual[is_known] = np.exp(fitted + _digamma(worth / 2) - math.log(worth / 2))
    return usual, worth


def _digamma(x: float) -> float:
    shift = 0.0
    while x < 8:
        shift -= 1 / x
        x += 1
    return shift + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4)


def _trigamma(x: float) -> float:
    shift = 0.0
    while x < 8:
        shift += 1 / x**2
        x += 1
    return shift + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5)


def _inverse_trigamma(value: float) -> float:
    """By halving: trigamma falls from infinity to 0."""
    low, high = 1e-6, 1e7
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)


# -- verdicts ---------------------------------------------------------------------------------


def resolution(values: I64) -> int:
    """The unit that all lengths are multiples of, up to a microsecond: 1, 10, 250, 1000 ns."""
    common = int(np.gcd.reduce(values)) if len(values) else 0
    return int(np.gcd(common, 1000)) if common else 1


def verdicts(
    delta_ns: F64, half_ns: F64, tolerance_ns: F64, small_ns: float = 0.0
) -> list[DifferenceVerdict]:
    """The verdict on every difference: *slower* or *faster* if it is above the tolerance and its
    interval excludes 0; *no change* if the whole interval is within the tolerance; else *no
    verdict*.

    Args:
        small_ns: a tolerance that is the least for *no change*: what matters to no step.
    """
    low, high = delta_ns - half_ns, delta_ns + half_ns
    least = np.maximum(tolerance_ns, small_ns)
    words = np.select(
        [(low > 0) & (delta_ns > tolerance_ns), (high < 0) & (delta_ns < -tolerance_ns),
         (low >= -least) & (high <= least)],
        [str(DifferenceVerdict.SLOWER), str(DifferenceVerdict.FASTER), str(DifferenceVerdict.SAME)],
        str(DifferenceVerdict.UNSURE),
    )  # fmt: skip
    return [DifferenceVerdict(word) for word in words.tolist()]
