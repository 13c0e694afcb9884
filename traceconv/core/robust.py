"""Statistics that a few wild values do not move: medians, their error, and slopes.

Collectives that were matched wrongly, or that ended late on one rank for reasons of its own, are
among the values; a mean would follow them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from traceconv.core.columns import F64, I64

SIGMA = 1.4826
"""A normal distribution's standard deviation, per median absolute deviation."""

_Z = 2.5758  # 99 % of a normal distribution is within so many standard deviations
_FEW = 9  # below, the whole range is taken as the interval, and widened
_WIDER = {2: 40.0, 3: 6.0, 4: 3.0, 5: 2.1, 6: 1.7, 7: 1.4, 8: 1.2}


def spread(values: ArrayLike) -> float:
    """How far values scatter around their median, as the standard deviation of a normal
    distribution with the same median absolute deviation; 0.0 for fewer than two."""
    array = np.asarray(values, np.float64)
    if len(array) < 2:
        return 0.0
    return SIGMA * float(np.median(np.abs(array - np.median(array))))


def median_ns(values: I64) -> int:
    """The median of int64 values, exact; of two middle ones the mean, rounded half up."""
    middle = np.sort(values)[[(len(values) - 1) // 2, len(values) // 2]]
    low, high = int(middle[0]), int(middle[1])
    return low + (high - low + 1) // 2


def median_error(values: ArrayLike) -> float:
    """Half the width of an interval that contains the true median in 99 of 100 cases.

    It is spanned by order statistics, so nothing is assumed of the distribution: values that
    gather in two heaps, as the ends of exchanges do whose direction alternates, give an interval
    that reaches from one to the other. For fewer than nine values their range is widened by what
    keeps the promise for normal ones; infinite for a single value.
    """
    array = np.sort(np.asarray(values, np.float64))
    n, middle = len(array), float(np.median(array)) if len(array) else 0.0
    if n < 2:
        return math.inf
    if n < _FEW:
        return _WIDER[n] * float(max(array[-1] - middle, middle - array[0]))
    reach = math.ceil(_Z * math.sqrt(n) / 2)
    low, high = max((n - 1) // 2 - reach, 0), min(n // 2 + reach, n - 1)
    return float(max(array[high] - middle, middle - array[low]))


def student(z: float, dof: float) -> float:
    """Student's t that is exceeded as rarely as ``z`` is by a normal variable: how many standard
    errors are no chance if these are themselves estimated.

    From three degrees of freedom by the approximation of Gaver and Kafadar, good to a few percent;
    below, that of two or one, exact.

    Args:
        dof: degrees of freedom of the standard error; less than one is taken for one.
    """
    if dof >= 3:
        return math.sqrt(dof * math.expm1(z * z * (dof - 1.5) / (dof - 1) ** 2))
    tail = math.erfc(z / math.sqrt(2)) / 2
    if dof >= 2:
        return (1 - 2 * tail) / math.sqrt(2 * tail * (1 - tail))
    return 1 / math.tan(math.pi * tail)


def slopes(x: I64, y: I64) -> F64:
    """Slopes between values half the list apart: independent of each other, n // 2 of them.

    Their median is the slope of Theil and Sen in the form that takes n / 2 instead of n^2 / 2
    pairs; every value is in one, and these are the pairs that say most.

    Args:
        x, y: int64, in order of x.
    """
    half = len(x) // 2
    run = (x[half:][:half] - x[:half]).astype(np.float64)
    rise = (y[half:][:half] - y[:half]).astype(np.float64)
    return rise[run > 0] / run[run > 0]
