"""Medians are those of numpy."""

import numpy as np
import pytest

from traceconv.core.robust import median

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
