"""Which step of one rank is which of another's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import P2P
from traceconv.analysis.rank_summary import RankSummary
from traceconv.core.columns import I32, I64

Step = tuple[int, int]
"""Recording window and number of a step."""

_Node = tuple[int, int]  # a rank and one of its recording windows


def numbered(ranks: Sequence[RankSummary], groups: Sequence[Matched]) -> tuple[list[Step], I32]:
    """The steps of the job in order of time, and the step of each operation of all ranks.

    Each capture may count from its own start: numbers are shifted so that operations that are the
    same are in the same step.
    """
    numbering = _Numbering(ranks, groups)
    named: dict[tuple[_Node, int], list[int]] = {}
    of: list[list[tuple[_Node, int]]] = []
    for one in ranks:
        steps = [(numbering.of(one.rank, w, k), start)
                 for w, k, start, _ in one.replay.steps.tolist()]  # fmt: skip
        of.append([name for name, _ in steps])
        for name, start in steps:
            named.setdefault(name, []).append(start)
    order = sorted(named, key=lambda name: (name[0][1], name[1], name[0][0]))
    place = {name: i for i, name in enumerate(order)}
    step = [
        np.array([place[name] for name in names] or [0], np.int32)[one.replay.step]
        for one, names in zip(ranks, of, strict=True)
    ]
    return [(node[1], number) for node, number in order], np.concatenate(step)


class _Numbering:
    """Which number of one rank's steps is which of another's: differences that most matched
    operations agree on, the best known first."""

    def __init__(self, ranks: Sequence[RankSummary], groups: Sequence[Matched]) -> None:
        self._parent: dict[_Node, _Node] = {}
        self._ahead: dict[_Node, int] = {}  # of the number of the parent
        known = {one.rank: _of_calls(one) for one in ranks}
        links = [link for group in groups for link in _links(known, group)]
        for _, one, other, ahead in sorted(links, key=lambda link: -link[0]):
            self._join(one, other, ahead)
        # without matches, numbers that sources record are those of the job
        windows: dict[int, _Node] = {}
        for rank in ranks:
            for window in np.unique(rank.replay.steps[:, 0]).tolist():
                if rank.replay.marked:
                    first = windows.setdefault(window, (rank.rank, window))
                    self._join(first, (rank.rank, window), 0)

    def _root(self, node: _Node) -> tuple[_Node, int]:
        """Its component, and how far it is ahead of the numbers of that."""
        ahead = 0
        while node in self._parent:
            ahead += self._ahead[node]
            node = self._parent[node]
        return node, ahead

    def _join(self, one: _Node, other: _Node, ahead: int) -> None:
        a, of_a = self._root(one)
        b, of_b = self._root(other)
        if a == b:
            return
        between = of_a + ahead - of_b  # other = one + ahead, so root b = root a + this
        if b < a:
            a, b, between = b, a, -between
        self._parent[b], self._ahead[b] = a, between

    def of(self, rank: int, window: int, number: int) -> tuple[_Node, int]:
        """A step of a rank as all ranks name it."""
        root, ahead = self._root((rank, window))
        return root, number - ahead


def _of_calls(one: RankSummary) -> I64:
    """(collectives of the rank, 2): recording window and number of the step of each, -1 if none."""
    found = np.full((len(one.collectives), 2), -1, np.int64)
    known = one.replay
    calls = np.flatnonzero(known.call >= 0)
    found[known.call[calls]] = known.steps[known.step[calls], :2]
    return found


def _links(known: Mapping[int, I64], group: Matched) -> Iterator[tuple[int, _Node, _Node, int]]:
    """How many operations of two ranks say how far apart their numbers are.

    Messages are alike, and eager ones do not even end together: they move no step of ranks whose
    steps have the same numbers.
    """
    base = group.ranks[group.base]
    if base not in known:
        return
    alone = set(group.kinds) == {P2P}
    for column, rank in enumerate(group.ranks):
        if rank not in known or column == group.base:
            continue
        ours, theirs = group.row[:, group.base], group.row[:, column]
        both = (ours >= 0) & (theirs >= 0)
        a, b = known[base][ours[both]], known[rank][theirs[both]]
        told = (a[:, 1] >= 0) & (b[:, 1] >= 0)
        if alone and np.array_equal(np.unique(known[base]), np.unique(known[rank])):
            told &= a[:, 1] == b[:, 1]
        seen = np.stack((a[told, 0], b[told, 0], b[told, 1] - a[told, 1]), axis=1)
        rows, count = np.unique(seen, axis=0, return_counts=True)
        for (mine, its, ahead), weight in zip(rows.tolist(), count.tolist(), strict=True):
            yield weight, (base, mine), (rank, its), ahead
