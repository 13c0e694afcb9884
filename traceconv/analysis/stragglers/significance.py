"""Whether a rank does more than its peers, or whether that is chance.

Tables have axes (places, steps, ranks): how long each rank worked by itself. What a rank does more
than the median of the others, step by step, has the pace of the step taken out. Two tests look at
whether it does more in all steps, and either is enough: Student's, and one for noise of any kind,
where there are enough values: if nobody were slow, those of a rank might as well be any, of six
ranks or more; of fewer, those of a step might be those of other ranks. Student's takes noise
for normal. Between two or three ranks differences are symmetric whatever it is; among more a few
wild values fall on one rank too often, so its values have to stand apart from all others, too. A
last test looks at whether what is wild falls on one rank more often than on others, or regularly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import F64
from traceconv.core.ordering import distinct
from traceconv.core.robust import SIGMA, median, normal_quantile, saddle_point_tail, student

FAMILY = 0.003
"""Probability that a run without a straggler has one by chance that is late in most steps."""

FEW_FAMILY = 0.002
"""The same where there are few values: to be surer, any delay would be too small."""

RECURS = 0.006
"""The same of one that is late in some steps, where spikes occur at all."""

_FEW_VALUES = 12  # degrees of freedom of the differences between ranks
_FEW = 4  # ranks or steps; below, medians over them mean nothing
_SEVERAL = 6  # ranks; of fewer one is too large a part of all that is drawn from
_WILD = 6.0  # times the usual scatter between ranks: a step like no other
_CLIPPED = 3.0  # standard deviations; what is further says no more
_PRONE = 0.99  # a rank whose variance exceeds that of others so rarely by chance has its own
_ALIKE = 0.25  # of the usual variance over places is the least to reckon with
_STEADY = 8  # pairs of steps from which correlation between them is estimated
_WORTH = 0.7  # of the standard errors that a normal distribution needs: less is not looked at
_PERIODS = 100  # steps: what comes back after more is not looked for
_LOOKS = 3.0  # times as likely is the best of all ways in which values may stand apart
_FROM = 1.0  # standard deviations; nearer are most values, which tells nothing of tails
_BOUNDED = 2.0  # standard deviations; what is further counts as that among draws
_OWN = 0.95  # the same where values are bounded: of a slow rank most are at the bound
_UNLIKE = 2.5  # standard errors, about, of how far a rank scatters, by medians
_NEWTON, _STEEP = 60, 300.0  # rounds, and the largest exponent
_FURTHEST = 1e3  # times as far as others; what is further says no more
_INERT = 2.2  # standard errors; less is no correlation


class Compared(msgspec.Struct, frozen=True):
    """Tables, judged. All but ``more`` have axes (places, ranks).

    Attributes:
        more: (places, steps, ranks): more than the median of the others; NaN where unknown.
        usual: midmean of it over the steps.
        unsure: what that may be off by chance.
        certain: whether a rank does more in most steps.
        steps: how many are known.
        noise: (places,): usual scatter of one value of ``more`` around that of its rank.
    """

    more: F64
    usual: F64
    unsure: F64
    certain: NDArray[np.bool_]
    steps: NDArray[np.intp]
    noise: F64


def tests(table: F64) -> NDArray[np.intp]:
    """(places,): how many ranks are looked at."""
    enough: NDArray[np.intp] = ((~np.isnan(table)).sum(axis=1) >= 2).sum(axis=1)
    return enough


def compared(table: F64, kind: NDArray[np.intp], among: Sequence[int]) -> Compared:
    """Who does more than the others.

    Args:
        table: (places, steps, ranks).
        kind:  (places,): what they are parts of. Probabilities of chance are shared out among
            kinds, then among what is looked at of each; variances of a kind are much alike.
        among: by kind, how many ranks and places are looked at in all; see :func:`tests`.
    """
    places, steps, ranks = table.shape
    few = (steps - 1) * (ranks - 1) <= _FEW_VALUES
    shared = np.maximum(among, 1) * max(np.count_nonzero(among), 1)
    level = each_level = (FEW_FAMILY if few else FAMILY) / shared[kind]
    both = steps * math.log(max(ranks, 2)) > -np.log(level / 2)  # else only one test can tell
    level = level / (1 + both)
    z = np.array([-normal_quantile(max(one, 1e-300)) for one in level.tolist()])
    more = over_others(table.reshape(-1, ranks)).reshape(table.shape)
    more = np.where(_wild(table)[..., None], np.nan, more)
    known = ~np.isnan(more)
    count = known.sum(axis=1)
    mean = _ratio(np.where(known, more, 0).sum(axis=1), count)
    rest = np.where(known, more - mean[:, None], 0)
    variance = _ratio((rest * rest).sum(axis=1), count - 1)
    every, free = _common_variance(variance, count, kind)
    each = every[:, None] * _unsteady(variance, count, every)
    prone = variance > each * _chance(count - 1, _PRONE)
    spread = np.maximum(variance, each)
    of_kind = {one: _inertia(rest[kind == one], known[kind == one]) for one in set(kind.tolist())}
    inertia = np.array([of_kind[one] for one in kind.tolist()])
    values = count / inertia[:, None]
    degrees = np.where(prone, values - 1, (free / inertia)[:, None])
    error = np.sqrt(_ratio(spread, values))
    least = np.vectorize(student, otypes=[float])(z[:, None], np.maximum(degrees, 1.0))
    unsure = np.where(count >= 2, error * least, np.nan)
    usual = np.where(count >= 2, _midmeans(more), np.nan)
    with np.errstate(invalid="ignore"):
        certain = mean > unsure
    for place, rank in np.argwhere(certain).tolist():
        if np.count_nonzero(count[place] >= 2) >= _FEW:
            own, rest = more[place, :, rank], np.delete(more[place], rank, axis=1)
            certain[place, rank] = _apart(own, rest) < each_level[place]
    table = np.where(known, table, np.nan)
    if ranks >= _SEVERAL:
        certain |= _drawn(table, level**inertia)
    else:
        certain |= _permuted(table, level**inertia)
    certain &= usual > 0
    rest = more - usual[:, None]  # NaN of ranks of which only one value is known
    noise = np.array([_sigma(rest[place]) for place in range(places)])
    return Compared(more, usual, unsure, certain, count, noise)


def over_others(values: F64) -> F64:
    """By how much each rank exceeds the median of the others, by row; NaN where there are none."""
    order = np.argsort(values, axis=1)  # NaN come last
    place = np.argsort(order, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    count = np.count_nonzero(~np.isnan(values), axis=1, keepdims=True)
    low, high = (
        np.take_along_axis(ordered, at + (at >= place), axis=1)
        for at in (np.maximum(count - 2, 0) // 2, np.maximum(count - 1, 0) // 2)
    )
    over: F64 = np.where(count > 1, values - (low + high) / 2, np.nan)
    return over


def _ratio(over: F64, under: F64 | NDArray[np.intp]) -> F64:
    """0 where nothing is divided by."""
    found: F64 = np.divide(over, under, out=np.zeros(np.shape(over)), where=np.asarray(under) > 0)
    return found


def _sigma(values: F64) -> float:
    """Infinite where nothing is known."""
    known = np.abs(values[~np.isnan(values)])
    return SIGMA * float(median(known)) if len(known) else math.inf


def _wild(table: F64) -> NDArray[np.bool_]:
    """(places, steps): where ranks scatter like in no other step: while caches fill, say."""
    places, steps, ranks = table.shape
    if ranks < _FEW or steps < _FEW:
        return np.zeros((places, steps), bool)
    between = np.abs(table - medians(table, 2)[..., None])
    scatter = medians(between, 2)
    usual = medians(scatter, 1)[:, None]
    with np.errstate(invalid="ignore"):
        found: NDArray[np.bool_] = (scatter > _WILD * usual) & (usual > 0)
    return found


def medians(values: F64, axis: int) -> F64:
    """Medians along an axis, of what is known; NaN where nothing is."""
    ordered = np.moveaxis(np.sort(values, axis=axis), axis, 0)  # NaN come last
    count = np.count_nonzero(~np.isnan(ordered), axis=0)[None]
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=0)
    high = np.take_along_axis(ordered, np.minimum(count // 2, len(ordered) - 1), axis=0)
    found: F64 = np.where(count > 0, (low + high) / 2, np.nan)[0]
    return found


def _midmeans(values: F64) -> F64:
    """(places, ranks): means of the middle half over the steps: as hard to move as medians,
    nearly, and surer where nothing is wild."""
    ordered = np.sort(values, axis=1)
    count = np.count_nonzero(~np.isnan(ordered), axis=1)[:, None]
    low, high = count // 4, count - count // 4
    at = np.arange(values.shape[1])[None, :, None]
    kept = (at >= low) & (at < high)
    found: F64 = np.where(kept, ordered, 0.0).sum(axis=1) / np.maximum(high - low, 1)[:, 0]
    return np.where(count[:, 0] > 0, found, np.nan)


# -- Student's test -----------------------------------------------------------------------------


def _common_variance(
    variance: F64, count: NDArray[np.intp], kind: NDArray[np.intp]
) -> tuple[F64, F64]:
    """(places,): the variance of a value that ranks have in common, and its degrees of freedom.

    Of many ranks the median, which one that is slow in some steps does not move. Where variances of
    places of one kind are alike, each is known the better for the others.
    """
    ranks = variance.shape[1]
    known = count >= 2
    free = np.where(known, count - 1, 0)
    if ranks >= _FEW:
        usual = _ratio(variance, _chance(count - 1, 0.5))
        every = np.nan_to_num(medians(np.where(known, usual, np.nan), 1))
        degrees = 0.6 * free.sum(axis=1) * (1 - 1 / ranks)
    else:
        every = _ratio((variance * free).sum(axis=1), free.sum(axis=1))
        degrees = free.sum(axis=1) * (ranks - 1) / ranks
    every, degrees = np.maximum(every, 1.0), degrees.astype(np.float64)
    for one in distinct(kind).tolist():
        mine = np.flatnonzero((kind == one) & (degrees > 0))
        if len(mine) > 1:
            every[mine] = np.maximum(every[mine], _ALIKE * float(median(every[mine])))
        if len(mine) >= _FEW:
            prior, weight = _prior(every[mine], degrees[mine])
            every[mine] = (every[mine] * degrees[mine] + prior * weight) / (degrees[mine] + weight)
            degrees[mine] += weight
    return every, np.maximum(degrees, 1.0)


def _unsteady(variance: F64, count: NDArray[np.intp], every: F64) -> F64:
    """(ranks,): how many times as much as others a rank varies, if it does so in most places."""
    free = np.maximum(count - 1, 0)
    times = _ratio(variance, every[:, None] * _chance(free, 0.5))
    usual = np.nan_to_num(medians(np.where(free > 0, times, np.nan), 0), nan=1.0)
    if len(every) < _FEW:
        return np.ones(len(usual))
    # a median of estimates is worth about two thirds of all their degrees of freedom
    least = _chance(np.maximum(free.sum(axis=0) * 2 // 3, 1), _PRONE)
    return np.where(usual > least, usual, 1.0)


def _prior(variance: F64, degrees: F64) -> tuple[float, float]:
    """What variances have in common, and of how many degrees of freedom that is worth: as many as
    explain by how much they differ (Smyth's moderated t)."""
    half = degrees / 2
    logs = np.log(variance) - _digamma(half) + np.log(half)
    excess = float(np.var(logs, ddof=1) - _trigamma(half).mean())
    most = float(degrees.sum() - degrees.max())
    low, high = 0.25, max(most / 2, 0.25)
    if excess <= float(_trigamma(np.array(high))):
        worth = high
    else:
        for _ in range(50):
            middle = (low + high) / 2
            more = float(_trigamma(np.array(middle))) > excess
            low, high = (middle, high) if more else (low, middle)
        worth = (low + high) / 2
    at = float(np.mean(logs) + _digamma(np.array(worth)) - math.log(worth))
    return math.exp(at), 2 * worth


def _digamma(x: F64) -> F64:
    """By the asymptotic series, from x + 6 down."""
    steps = sum(1 / (x + k) for k in range(6))
    y = x + 6
    found: F64 = np.log(y) - 1 / (2 * y) - 1 / (12 * y**2) + 1 / (120 * y**4) - steps
    return found


def _trigamma(x: F64) -> F64:
    """The same for its derivative."""
    steps = sum(1 / (x + k) ** 2 for k in range(6))
    y = x + 6
    found: F64 = 1 / y + 1 / (2 * y**2) + 1 / (6 * y**3) - 1 / (30 * y**5) + steps
    return found


def _chance(free: NDArray[np.intp], share: float) -> F64:
    """Estimates of a variance of 1 with so many degrees of freedom are below this in that share
    of cases (Wilson and Hilferty)."""
    one = 2 / (9 * np.maximum(free, 1))
    found: F64 = (1 - one + normal_quantile(share) * np.sqrt(one)) ** 3
    return found


def _inertia(rest: F64, known: NDArray[np.bool_]) -> float:
    """How many steps count for one, because ranks that were slow stay slow for a while."""
    both = known[:, 1:] & known[:, :-1]
    ranks = rest.shape[2]
    pairs = int(both.sum()) * (1 - 1 / ranks)  # what all have in common is taken out
    if pairs < _STEADY or not rest.any():
        return 1.0
    scale = np.sqrt(_ratio((rest * rest).sum(axis=1), known.sum(axis=1)))[:, None]
    scaled = np.clip(rest / np.maximum(scale, 1.0), -_CLIPPED, _CLIPPED)
    share = (scaled * scaled).sum(axis=(0, 1)) / np.maximum(known.sum(axis=(0, 1)), 1)
    after = (scaled[:, 1:] * scaled[:, :-1] * both).sum(axis=(0, 1)) / both.sum(axis=(0, 1)).clip(1)
    of_rank = (after / np.maximum(share, 1e-9))[both.any(axis=(0, 1))]
    # one of several that gets slower all the time says nothing of the others
    rho = float(median(of_rank) if len(of_rank) >= _FEW else of_rank.mean())
    # values are close to the mean of few of them, which makes neighbours differ
    if rho + 1 / rest.shape[1] < _INERT / math.sqrt(pairs):
        return 1.0
    rho = min(rho + (1 + 3 * max(rho, 0.0)) / rest.shape[1], 0.9)
    return float(min((1 + rho) / (1 - rho), max(rest.shape[1] / 2, 1.0)))


# -- values that stand apart --------------------------------------------------------------------


def _apart(own: F64, rest: F64) -> float:
    """How likely it is by chance that most values of one rank are as far beyond those of others.

    Any values might be the largest of all. That they exceed others by a factor is the less likely,
    too: with tails as heavy as those of a Cauchy distribution, in the inverse proportion. No place
    for that is where most values are.
    """
    own, rest = np.sort(own[~np.isnan(own)])[::-1], np.sort(rest[~np.isnan(rest)])[::-1]
    n, every = len(own), len(own) + len(rest)
    if n and len(rest):  # less than 0 where several ranks are slow
        own, rest = own - median(rest), rest - median(rest)
    least = max(_FROM * _sigma(rest), 1.0)
    limits = rest[: np.count_nonzero(rest > least) + 1]
    if not n or not len(limits):
        return 1.0
    best = 0.0
    for above, limit in enumerate(np.maximum(limits, least).tolist()):
        for often in range((n + 1) // 2, n + 1):
            times = float(own[often - 1]) / limit
            if times <= 1:
                break
            # of the largest of all so many are of this rank
            chance = _ways(often + above, often) + _ways(every - often - above, n - often)
            chance -= _ways(every, n) + often * math.log(min(times, _FURTHEST))
            best = min(best, chance)
    return min(_LOOKS * math.exp(best), 1.0)


def _ways(n: int, k: int) -> float:
    """The logarithm of the number of ways to draw ``k`` of ``n``."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


# -- a test of permutations ---------------------------------------------------------------------


def _permuted(table: F64, levels: F64) -> NDArray[np.bool_]:
    """(places, ranks): whether a rank's values, clipped, add up to more than those of a rank that
    is drawn anew in each step would in a share ``levels`` of cases."""
    places, _, ranks = table.shape
    found = np.zeros((places, ranks), bool)
    values = table - medians(table, 2)[..., None]
    for place, level in enumerate(levels.tolist()):
        scale = _sigma(values[place])
        if not 0 < scale < math.inf:
            continue
        scores = np.clip(values[place] / scale, -_CLIPPED, _CLIPPED)
        seen = ~np.isnan(scores)
        usable = seen.sum(axis=1) > 1
        if not usable.any():
            continue
        scores, seen = np.where(seen, scores, 0.0)[usable], seen[usable]
        # nothing to look for where even the largest of every step would be too frequent
        if -np.log(seen.sum(axis=1)).sum() > math.log(level):
            continue
        least = _WORTH * -normal_quantile(max(level, 1e-300))
        spread = np.sqrt((scores**2).sum(axis=1) / seen.sum(axis=1) @ seen)
        for rank in np.flatnonzero(scores.sum(axis=0) > least * spread).tolist():
            rows = seen[:, rank]
            total = float(scores[rows, rank].sum())
            found[place, rank] = _tail(scores[rows], seen[rows], total) < level
    return found


def _tail(scores: F64, seen: NDArray[np.bool_], total: float) -> float:
    """How likely one value per step, drawn at random, add up to at least ``total``: the saddle
    point approximation of Lugannani and Rice."""
    count = seen.sum(axis=1)
    largest = np.where(seen, scores, -np.inf).max(axis=1)
    if total >= largest.sum() - 1e-9:
        ties = ((scores >= largest[:, None] - 1e-12) & seen).sum(axis=1)
        return float(np.prod(ties / count))
    low, high = 0.0, 1.0
    while high < 1e3 and _slope(scores, seen, count, high)[0] < total:
        low, high = high, 2 * high
    for _ in range(60):
        at = (low + high) / 2
        low, high = (at, high) if _slope(scores, seen, count, at)[0] < total else (low, at)
    at = (low + high) / 2
    _, bend, height = _slope(scores, seen, count, at)
    bound = math.exp(min(height - at * total, 0.0))
    root = math.sqrt(2 * max(at * total - height, 0.0))
    u = at * math.sqrt(max(bend, 0.0))
    if root < 1e-3 or u < 1e-3:
        return bound
    tail = saddle_point_tail(root, u)
    return min(tail, bound) if tail > 0 else bound


def _slope(
    scores: F64, seen: NDArray[np.bool_], count: NDArray[np.intp], at: float
) -> tuple[float, float, float]:
    """First and second derivative of the cumulant generating function at ``at``, and itself."""
    top = scores.max(axis=1, keepdims=True)
    weight = np.where(seen, np.exp(at * (scores - top)), 0.0)
    every = weight.sum(axis=1)
    mean = (weight * scores).sum(axis=1) / every
    square = (weight * scores**2).sum(axis=1) / every
    height = np.log(every / count) + at * top[:, 0]
    return float(mean.sum()), float((square - mean**2).sum()), float(height.sum())


# -- a test of drawing from all values ----------------------------------------------------------


def _drawn(table: F64, levels: F64) -> NDArray[np.bool_]:
    """(places, ranks): whether a rank's values, clipped, add up to more than as many that are drawn
    from those of all ranks and steps would in a share ``levels`` of cases.

    Of eight steps of eight ranks there are 10^9 draws, where a rank per step can be drawn in 10^7
    ways, so this tells more; but steps have to be alike (what makes them differ makes draws differ
    more, too), and ranks to scatter alike: of one that scatters more, the mean of its own values
    has to be beyond what they scatter by.
    """
    places, _, ranks = table.shape
    found = np.zeros((places, ranks), bool)
    values = table - medians(table, 2)[..., None]
    values = values / _scatter(values)
    # the middle of a step, of which it is a part, is nearer to a value than to none
    nearer = math.sqrt((ranks - 1) / ranks)
    for place, level in enumerate(levels.tolist()):
        scale = _sigma(values[place])
        if not 0 < scale < math.inf:
            continue
        scores = np.clip(values[place] / scale, -_BOUNDED, _BOUNDED)
        own = np.clip(values[place] * nearer / scale, -_BOUNDED, _BOUNDED)
        seen = ~np.isnan(scores)
        count, every = seen.sum(axis=0), scores[seen]
        least = _WORTH * -normal_quantile(max(level, 1e-300))
        beyond = np.nansum(own, axis=0) - count * every.mean()
        for rank in np.flatnonzero(beyond > least * every.std() * np.sqrt(count)).tolist():
            n = int(count[rank])
            mine, rest = own[seen[:, rank], rank], np.delete(scores, rank, axis=1)
            rest = rest[~np.isnan(rest)]
            if n < 2 or not len(rest):
                continue
            spread = float(mine.std(ddof=1))
            if spread > float(rest.std()) * math.sqrt(_chance(np.array([n - 1]), _OWN)[0]):
                z = student(-normal_quantile(max(level, 1e-300)), n - 1)
                if mine.mean() - rest.mean() <= z * spread / math.sqrt(n):
                    continue
            found[place, rank] = (
                share_of_draws(np.concatenate((mine, rest)), n, float(mine.sum())) < level
            )
    return found


def _scatter(values: F64) -> F64:
    """(ranks,): how many times as far as that of others what a rank does scatters in most places;
    1 where that may be chance."""
    off = np.abs(values - medians(values, 1)[:, None])
    off = off / np.maximum(medians(off.reshape(len(off), -1), 1), 1.0)[:, None, None]
    every = off.reshape(-1, off.shape[2])
    times = medians(every, 0)
    times = times / max(float(median(times[~np.isnan(times)])), 1e-9)
    count = np.maximum((~np.isnan(every)).sum(axis=0), 1)
    unlike: F64 = np.where(times > 1 + _UNLIKE / np.sqrt(count), times, 1.0)
    return unlike


def share_of_draws(values: F64, drawn: int, total: float) -> float:
    """The share of draws of so many of ``values`` that add up to at least ``total``: the double
    saddle point approximation (Skovgaard; Robinson for permutations), exact at the end.

    Args:
        values: any, without NaN.
        drawn:  fewer than these, without putting any back.
    """
    every = len(values)
    ordered = np.sort(values)[::-1]
    if total >= ordered[:drawn].sum() - 1e-9:
        limit = ordered[drawn - 1]
        above = int((ordered > limit + 1e-9).sum())
        ties = int((ordered > limit - 1e-9).sum()) - above
        return math.exp(_ways(ties, drawn - above) - _ways(every, drawn))
    part = drawn / every
    a, target = values - values.mean(), total - drawn * float(values.mean())
    if target <= 0:
        return 1.0
    at = np.zeros(2)
    for _ in range(_NEWTON):
        hit, bend = _tilted(a, part, at)
        move = np.linalg.lstsq(bend, np.array([hit.sum() - drawn, hit @ a - target]), rcond=None)[0]
        most = float(np.abs(move * (1.0, np.abs(a).max())).max())
        at = at - move * min(1.0, 2 / max(most, 1e-300))
        if most < 1e-8:
            break
    exponents = np.clip(at[0] + at[1] * a, -_STEEP, _STEEP)
    height = float(np.log1p(part * np.expm1(exponents)).sum())
    root = math.sqrt(2 * max(at[0] * drawn + at[1] * target - height, 0.0))
    _, bend = _tilted(a, part, at)
    u = at[1] * math.sqrt(max(float(np.linalg.det(bend)), 0.0) / (every * part * (1 - part)))
    if root < 1e-3 or u < 1e-3:
        return 0.5
    return float(min(max(saddle_point_tail(root, u), 0.0), 1.0))


def _tilted(a: F64, part: float, at: F64) -> tuple[F64, F64]:
    """How likely each value is drawn, tilted; and the second derivatives."""
    odds = part * np.exp(np.clip(at[0] + at[1] * a, -_STEEP, _STEEP))
    hit = odds / (1 - part + odds)
    v = hit * (1 - hit)
    return hit, np.array([[v.sum(), v @ a], [v @ a, v @ (a * a)]])


# -- what happens in some steps -----------------------------------------------------------------


def recurring(more: F64, rank: int, numbers: NDArray[np.int64], least: float) -> float:
    """How likely it is by chance that what is large in one place falls on a rank as often as it
    does, or as regularly.

    Args:
        more: (steps, ranks).
        numbers: of the steps.
        least: what is large.
    """
    own = more[:, rank]
    known = ~np.isnan(own)
    order = np.argsort(np.where(known, -own, np.inf), kind="stable")
    ranks = int((~np.isnan(more)).any(axis=0).sum())
    best = 1.0
    for often in _counts(int((own[known] > least).sum())):
        limit = own[order[often - 1]]
        with np.errstate(invalid="ignore"):
            large = int((more >= limit).sum())
        falls = min(ranks * _binomial(large, 1 / ranks, often), 1.0)
        regular = _regular(numbers[known], numbers[order[:often]])
        both = falls * regular
        best = min(best, both * (1 - math.log(both)) if both > 0 else 0.0)
    return min(best * 2, 1.0)


def _counts(most: int) -> list[int]:
    """How many of the largest values are looked at."""
    return [n for n in (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64) if n < most] + (
        [most] if most >= 2 else []
    )


def _binomial(trials: int, share: float, least: int) -> float:
    """The probability of at least so many hits."""
    if least <= 0:
        return 1.0
    logs = [
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(share) + (trials - k) * math.log1p(-share)
        for k in range(least, min(trials, least + 60) + 1)
    ]  # fmt: skip
    return min(sum(math.exp(one) for one in logs), 1.0)


def _regular(every: NDArray[np.int64], hit: NDArray[np.int64]) -> float:
    """How likely it is by chance that steps are as regular as those that are hit."""
    n, k = len(every), len(hit)
    best, sizes = 1.0, Counter[int]()
    for period in range(2, min(int(np.ptp(every)) // 2, _PERIODS) + 2):
        size = np.bincount(every % period, minlength=period)
        hits = np.bincount(hit % period, minlength=period)
        sizes.update(size[size > 1].tolist())
        for phase in np.flatnonzero(hits > 1).tolist():
            best = min(best, _hypergeometric(n, int(size[phase]), k, int(hits[phase])))
    if best >= 1:
        return 1.0
    # of every phase, how likely it is to be hit so that it would seem as rare
    return min(sum(count * _as_rare(n, size, k, best) for size, count in sizes.items()), 1.0)


def _as_rare(n: int, size: int, drawn: int, chance: float) -> float:
    """The probability of a number of hits that is as unlikely as ``chance``, or more so."""
    for least in range(2, min(size, drawn) + 1):
        found = _hypergeometric(n, size, drawn, least)
        if found <= chance * (1 + 1e-9):
            return found
    return 0.0


@lru_cache(1 << 14)
def _hypergeometric(n: int, size: int, drawn: int, least: int) -> float:
    """The probability that of so many drawn from ``n`` at least ``least`` are in a part of them."""
    total = math.comb(n, drawn)
    return (
        sum(
            math.comb(size, hits) * math.comb(n - size, drawn - hits)
            for hits in range(least, min(size, drawn) + 1)
        )
        / total
    )
