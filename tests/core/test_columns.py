"""What is asked of a trace again is computed once."""

import gc
from weakref import ref

from traceconv.core.columns import once_each


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
