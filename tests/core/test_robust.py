"""Medians and quantiles are those of numpy."""

import numpy as np
import pytest

from traceconv.core.robust import median, quantile

VALUES = {
    "one": [3.0],
    "odd": [3.0, 1.0, 2.0],
    "even": [4.0, 1.0, 2.0, 3.0],
    "whole": np.array([2**60 + 1, 2**60 + 3, -5, 2**60 + 9]),
    "with NaN": [1.0, np.nan, 2.0],
    "infinite": [1.0, np.inf, np.inf, 2.0],
    "rows": [[1.0, 5.0, 2.0, 7.0], [np.nan, 1.0, 2.0, 3.0]],
}


@pytest.mark.parametrize("name", VALUES)
def test_they_are_those_of_numpy(name):
    """Of odd and even counts, whole numbers, NaN, and by row."""
    values = np.asarray(VALUES[name])
    assert np.array_equal(median(values), np.median(values, axis=-1), equal_nan=True)


def test_of_nothing_there_is_none():
    """NaN, without a warning."""
    assert np.isnan(median([]))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_quantiles_are_those_of_numpy(count, kind):
    """To the last bit, in no order, at the ends and between."""
    values = (np.random.default_rng(count).normal(0, 1e9, count)).astype(kind)
    for share in (0.0, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.95, 1.0):
        assert quantile(values, share) == np.quantile(values, share)
