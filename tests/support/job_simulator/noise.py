"""Shapes of jitter, all of location about 0 and comparable width.

Those with a variance have standard deviation 1. Pareto (here with tail index 2) and Cauchy have
none; their interquartile range is that of the normal distribution. What a simulated machine does
is finite: values are cut at 1000.
"""

import numpy as np

_MOST = 1000.0
_IQR = 1.34898  # of the standard normal distribution


def _lognormal(rng, n):
    mean, deviation = np.exp(0.5), np.sqrt((np.e - 1) * np.e)
    return (rng.lognormal(0, 1, n) - mean) / deviation


def _pareto(rng, n):
    """1 + Lomax of index 2: median sqrt(2), quartiles (4/3)^(1/2) and 2."""
    return (rng.pareto(2, n) + 1 - 2**0.5) / (2 - (4 / 3) ** 0.5) * _IQR


def _bimodal(rng, n):
    """A clock frequency that changes: two modes, 2 apart."""
    return rng.choice((-0.98, 0.98), n) + 0.2 * rng.standard_normal(n)


SHAPES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "exponential": lambda rng, n: rng.standard_exponential(n) - 1,
    "t3": lambda rng, n: rng.standard_t(3, n) / 3**0.5,
    "lognormal": _lognormal,
    "pareto": _pareto,
    "cauchy": lambda rng, n: rng.standard_cauchy(n) * _IQR / 2,
    "bimodal": _bimodal,
}


def draw(shape, rng, n):
    """``n`` values of a shape, a key of :data:`SHAPES`."""
    return np.clip(SHAPES[shape](rng, n), -_MOST, _MOST)
