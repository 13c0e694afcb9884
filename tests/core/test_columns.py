"""Look-ups, and what is asked of a trace again is computed once."""

import gc
from weakref import ref

import numpy as np
import pytest

from traceconv.core.columns import looked_up, once_each


class Thing:
    """Stands for a trace."""


def test_a_result_is_kept_for_one_thing_and_as_long_as_it_lives():
    """Asked again it is the same; of another it is another; the last one dies with its thing."""
    calls = []

    @once_each
    def result(thing):
        calls.append(thing.number)
        found = Thing()
        found.number = thing.number
        return found

    one, other = Thing(), Thing()
    one.number, other.number = 1, 2
    assert result(one) is result(one)
    assert calls == [1]
    assert [result(x).number for x in (other, one, other)] == [2, 1, 2]
    assert calls == [1, 2, 1, 2]
    calls.clear()
    last = ref(result(other))
    assert last() is not None
    del one, other
    gc.collect()
    assert last() is None


def test_looked_up_in_more_than_one_block():
    """What indexing gives, over borders of blocks; a code that is not in the table is refused."""
    rng = np.random.default_rng(1)
    table, codes = rng.integers(0, 2, 300).astype(bool), rng.integers(0, 300, 200_001, np.int16)
    assert np.array_equal(looked_up(table, codes), table[codes])
    assert looked_up(table, codes[:0]).dtype == bool
    codes[-1] = 300
    with pytest.raises(IndexError):
        looked_up(table, codes)
