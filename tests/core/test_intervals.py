"""The algebra of interval sets, against counting single nanoseconds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceconv.core.intervals import (
    breakdown,
    covered,
    difference,
    holding,
    intersection,
    length_before,
    length_within,
    merged,
    none,
    subtraction,
    total,
    union,
)

EPOCH = 1_736_408_883_704_643_212

raw = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=25)


def _set(pairs, base=EPOCH):
    start = np.array([base + s for s, _ in pairs], np.int64)
    return union(start, start + np.array([d for _, d in pairs], np.int64))


def _points(a, base=EPOCH):
    return {t for s, e in a.tolist() for t in range(s - base, e - base)}


def _is_a_set(a):
    flat = a.ravel()
    return a.dtype == np.int64 and a.shape[1] == 2 and bool((flat[1:] > flat[:-1]).all())


@given(raw)
def test_union_covers_what_its_intervals_cover(pairs):
    """Every nanosecond of an interval is in the union, and no other; rows never touch."""
    points = {t for s, d in pairs for t in range(s, s + d)}
    assert _is_a_set(_set(pairs))
    assert points == _points(_set(pairs))


@given(raw, raw)
def test_two_sets_behave_like_sets_of_nanoseconds(a, b):
    """Intersection, subtraction, difference and merge are those of the points."""
    a, b = _set(a), _set(b)
    p, q = _points(a), _points(b)
    expected = {intersection: p & q, subtraction: p - q, difference: p ^ q, merged: p | q}
    for operation, points in expected.items():
        assert _is_a_set(operation(a, b))
        assert points == _points(operation(a, b))


@given(raw, st.lists(st.integers(-3, 75), max_size=20))
def test_what_holds_an_instant(pairs, times):
    """The span that began last, if it has not ended by then; spans may overlap, or be none."""
    spans = np.array(sorted((s, s + d) for s, d in pairs), np.int64).reshape(-1, 2)
    begun = [[i for i, (s, _) in enumerate(spans.tolist()) if s <= t] for t in times]
    expected = [
        b[-1] if b and t < spans[b[-1], 1] else -1 for b, t in zip(begun, times, strict=True)
    ]
    assert holding(spans, np.array(times, np.int64)).tolist() == expected


@given(raw, raw, raw)
def test_a_breakdown_answers_for_every_combination(a, b, c):
    """Each cell of three sets is what its bit mask says."""
    sets = [_set(a), _set(b), _set(c)]
    points = [_points(s) for s in sets]
    everything = set.union(*points)
    cells = breakdown(*sets)
    for mask in range(1, 8):
        inside = [points[k] if mask >> k & 1 else everything - points[k] for k in range(3)]
        assert set.intersection(*inside) == _points(covered(cells, [mask]))


@given(raw, st.lists(st.integers(-3, 80), max_size=8))
def test_length_before_counts_from_the_left(pairs, times):
    """The part of a set before an instant, for instants inside, between and outside."""
    a, points = _set(pairs), sorted(_points(_set(pairs)))
    expected = [sum(p < t for p in points) for t in times]
    assert expected == length_before(a, EPOCH + np.array(times, np.int64)).tolist()


def test_length_within_takes_spans_that_overlap_each_other():
    """Spans are measured one by one."""
    spans = np.array([[0, 10], [5, 40], [12, 12]], np.int64)
    a = np.array([[2, 8], [20, 30]], np.int64)
    assert length_within(a, spans).tolist() == [6, 13, 0]


def test_touching_intervals_are_one():
    """[0, 5) and [5, 9) are [0, 9); an empty interval vanishes."""
    touching = union(np.array([0, 5, 3]), np.array([5, 9, 3]))
    assert touching.tolist() == [[0, 9]]


def test_borders_farther_apart_than_packing_allows():
    """Times that span nearly all of int64 take the slower sort and come out the same."""
    far = np.array([[-(2**62), -(2**62) + 5], [2**62, 2**62 + 7]], np.int64)
    near = np.array([[-(2**62) + 3, 2**62 + 1]], np.int64)
    expected = [[-(2**62) + 3, -(2**62) + 5], [2**62, 2**62 + 1]]
    assert intersection(far, near).tolist() == expected


def test_empty_sets():
    """Nothing in, nothing out, everywhere."""
    assert len(breakdown(none(), none())[1]) == 0
    assert [total(f(none(), none())) for f in (intersection, subtraction, merged)] == [0, 0, 0]
