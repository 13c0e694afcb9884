"""Sets of half-open intervals as sorted, disjoint pairs of integers; nothing but loops."""

from bisect import bisect_right
from itertools import accumulate, pairwise


def union(pairs):
    """What any of the pairs covers; those that touch are one."""
    found = []
    for start, end in sorted(pair for pair in pairs if pair[1] > pair[0]):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return [tuple(one) for one in found]


def total(cover):
    """The length of a set."""
    return sum(end - start for start, end in cover)


def where(test, *covers):
    """The set of all instants for which ``test`` holds of "is in this set", set by set."""
    edges = sorted({edge for cover in covers for pair in cover for edge in pair})
    changes = [{edge for pair in cover for edge in pair} for cover in covers]
    inside, found = [False] * len(covers), []
    for start, end in pairwise(edges):
        inside = [now != (start in edge) for now, edge in zip(inside, changes, strict=True)]
        if test(*inside):
            found.append((start, end))
    return union(found)


def minus(a, b):
    """What is in ``a`` and not in ``b``."""
    return where(lambda in_a, in_b: in_a and not in_b, a, b)


def common(a, b):
    """What is in both."""
    return where(lambda in_a, in_b: in_a and in_b, a, b)


def differing(a, b):
    """What is in one of both only, as the pieces between borders."""
    return where(lambda in_a, in_b: in_a != in_b, a, b)


class Length:
    """How much of a set lies in spans of time, for many spans of one set."""

    def __init__(self, cover):
        self._cover = cover
        self._starts = [start for start, _ in cover]
        self._sums = [0, *accumulate(end - start for start, end in cover)]

    def _before(self, instant):
        at = bisect_right(self._starts, instant)
        over = max(self._cover[at - 1][1] - instant, 0) if at else 0
        return self._sums[at] - over

    def within(self, start, end):
        """The length of the set from ``start`` to ``end``."""
        return self._before(end) - self._before(start)
