"""Robust statistics: medians, spreads, straight lines and their error.

The values include collectives that were matched wrongly or that ended late on one rank only; a mean
would follow such outliers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from traceconv.core.columns import F64, I64, Mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SIGMA = 1.4826
"""A normal distribution's standard deviation, per median absolute deviation."""

Z99 = 2.5758
"""Standard deviations that cover 99 % of a normal distribution."""

_OUTER = 0.8, 1.2816  # a share of absolute deviations, and where it is of a normal distribution
_HUBER = 1.5  # standard deviations up to which a value counts in full
_ROUNDS = 30


def median(values: ArrayLike) -> F64:
    """Medians along the last axis; NaN if a value is NaN, or without values."""
    table = np.asarray(values)
    count = table.shape[-1]
    if not count:
        return np.full(table.shape[:-1], np.nan)
    # half the time of ``np.median``, which most calls spend on a few values
    low, high = (count - 1) // 2, count // 2
    ordered = np.partition(table, (low, high, count - 1), axis=-1)
    middle = (ordered[..., low].astype(np.float64) + ordered[..., high]) / 2
    return np.where(np.isnan(ordered[..., -1]), np.nan, middle)


def median_ns(values: I64) -> int:
    """The median of int64 values, exact; of two middle ones the mean, rounded half up."""
    middle = np.sort(values)[[(len(values) - 1) // 2, len(values) // 2]]
    low, high = int(middle[0]), int(middle[1])
    return low + (high - low + 1) // 2


def normal_quantile(share: float) -> float:
    """The quantile of the standard normal distribution at probability ``share``."""
    from statistics import NormalDist  # takes 1 % of a small merge, and is rarely needed

    return NormalDist().inv_cdf(share)


def student(z: float, dof: float) -> float:
    """The quantile of Student's t that is as unlikely as ``z`` is for a normal distribution: the
    number of standard errors for significance where the standard error itself is estimated.

    With three or more degrees of freedom it uses the approximation of Gaver and Kafadar, good to a
    few percent; with one or two it is exact.

    Args:
        dof: degrees of freedom of the standard error; values below one count as one.
    """
    if dof >= 3:
        return math.sqrt(dof * math.expm1(z * z * (dof - 1.5) / (dof - 1) ** 2))
    tail = math.erfc(z / math.sqrt(2)) / 2
    if dof >= 2:
        return (1 - 2 * tail) / math.sqrt(2 * tail * (1 - tail))
    return 1 / math.tan(math.pi * tail)


class Line(msgspec.Struct, frozen=True):
    """A fit through values with noise: ``levels[g] + slope * (x - at)``.

    Attributes:
        levels:  per group of values, at ``at``; one where there are no groups.
        slope:   common to all groups.
        at:      the centre of the values.
        rest:    what is left of each value.
        sigma:   how far that scatters, as the standard deviation of a normal distribution.
        level_error, slope_error: standard errors of the first level and of the slope.
        dof:     degrees of freedom these are estimated from.
    """

    levels: F64
    slope: float
    at: float
    rest: F64
    sigma: float
    level_error: float
    slope_error: float
    dof: int


def line(x: F64, y: F64, drifting: bool = True, step: int = 0) -> Line:
    """Fit a line by Huber's method: least squares in which outliers count as if they were at 1.5
    standard deviations. The errors follow Huber's theory.

    The scatter is estimated from the median of the absolute deviations and from their outer fifth;
    the larger one counts, because values form two clusters where directions alternate.

    Args:
        x, y: of equal length, sorted by x.
        drifting: False for a slope of 0.
        step: how many values come before a step in the line; 0 for no step. The first level is then
            the height of the step, the second the line before it.
    """
    n = len(x)
    columns = [np.ones(n)]
    center = float(x.mean())
    if step:
        columns = [(np.arange(n) >= step).astype(np.float64), *columns]
    if drifting:
        columns.append(x - center)
    design = np.stack(columns, axis=1)
    width = max(float(np.ptp(x)), 1.0)
    if drifting:
        design[:, -1] /= width
    dof = n - len(columns)
    coefficients = _start(design, y, drifting)
    sigma, residuals = 1.0, y
    for _ in range(_ROUNDS):
        residuals = y - design @ coefficients
        sigma = scale(residuals, dof)
        weight = np.minimum(1.0, _HUBER * sigma / np.maximum(np.abs(residuals), 1e-9))
        weighted = design * weight[:, None]
        before, coefficients = coefficients, _least_squares(weighted.T @ design, weighted.T @ y)
        if np.abs(coefficients - before).max() < 1e-4 * sigma:
            break
    residuals = y - design @ coefficients
    inside = max(float(np.mean(np.abs(residuals) <= _HUBER * sigma)), 0.1)
    drawn = np.clip(residuals, -_HUBER * sigma, _HUBER * sigma)
    wider = 1 + len(columns) / n * (1 - inside) / inside
    variance = wider**2 * float(drawn @ drawn) / max(dof, 1) / inside**2
    covariance = np.linalg.pinv(design.T @ design) * variance
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    slope, slope_error = (coefficients[-1] / width, error[-1] / width) if drifting else (0.0, 0.0)
    levels: F64 = coefficients[: 2 if step else 1]
    return Line(
        levels,
        float(slope),
        center,
        residuals,
        sigma,
        float(error[0]),
        float(slope_error),
        max(dof, 1),
    )


def _start(design: F64, y: F64, drifting: bool) -> F64:
    """A first guess that single values do not spoil, if there are enough."""
    n, terms = design.shape
    if n < 8 or terms - drifting > 1:
        return _least_squares(design, y)
    slope = 0.0
    if drifting:
        half = n // 2
        run, rise = (v[half:][:half] - v[:half] for v in (design[:, -1], y))
        slope = float(median(rise[run > 0] / run[run > 0])) if (run > 0).any() else 0.0
        return np.array([median(y - slope * design[:, -1]), slope])
    return np.array([median(y)])


def _least_squares(design: F64, y: F64) -> F64:
    return np.asarray(np.linalg.lstsq(design, y, rcond=None)[0], np.float64)


def scale(residuals: F64, dof: int) -> float:
    """How far values scatter around 0, as the standard deviation of a normal distribution; see
    :func:`line`. Never 0.

    Args:
        residuals: what is left of values after a fit.
        dof:  degrees of freedom that are left, too.
    """
    size = np.sort(np.abs(residuals))
    n = len(size)
    share, quantile = _OUTER
    middle = float(size[(n - 1) // 2] + size[n // 2]) / 2
    deviation = max(SIGMA * middle, float(size[min(int(share * n), n - 1)]) / quantile)
    return deviation * math.sqrt(n / max(dof, 1)) + 1e-6


# -- damaged stamps ------------------------------------------------------------------------------

FAR_NS = 3_600_000_000_000
"""Nearer than an hour, nothing is far ..."""

FAR_SPANS = 10
"""... nor within this many times the span of all others."""

FEW = 100
"""One event in this many may be far at each end. More are a separate recording, unless all of them
have the same stamp."""

FEWEST = 8
"""Fewer events are not enough to determine the usual range."""

_FIRST_DAY, _UNIX = 86_400_000_000_000, 10**18
"""A stamp of the first day of 1970 is damaged if others are after 2001."""

Range = tuple[int, int]


def usual_range(starts: I64) -> Range:
    """The range of starts without damaged ones, and without the first and the last few."""
    ordered = np.sort(starts)
    if ordered[-1] > _UNIX:
        ordered = ordered[np.abs(ordered) > _FIRST_DAY]
    ordered = ordered[~_alone(ordered)]
    few = max(1, len(ordered) // FEW)
    if len(ordered) < FEWEST:
        return int(ordered[0]), int(ordered[-1])
    return int(ordered[few]), int(ordered[-1 - few])


def _alone(ordered: I64) -> Mask:
    """Starts at either end of an ascending column that are equal and far from all others."""
    alone = np.zeros(len(ordered), bool)
    after_first, first_of_last = (
        np.searchsorted(ordered, ordered[0], "right"),
        np.searchsorted(ordered, ordered[-1], "left"),
    )
    for chosen, others in (
        (slice(0, after_first), ordered[after_first:]),
        (slice(first_of_last, None), ordered[:first_of_last]),
    ):
        if len(ordered[chosen]) > 1 and len(others) >= FEWEST:
            room = max(FAR_NS, FAR_SPANS * int(others[-1] - others[0]))
            alone[chosen] = np.abs(others - ordered[chosen][0]).min() > room
    return alone


def far_from(ns: I64, usual: Range) -> Mask:
    """Which times are far from the range of all others."""
    room = max(FAR_NS, FAR_SPANS * (usual[1] - usual[0]))
    low, high = max(usual[0] - room, -(2**63)), min(usual[1] + room, 2**63 - 1)
    return (ns < low) | (ns > high)
