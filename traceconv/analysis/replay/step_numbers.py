"""Which step of one rank is which of another's."""

from __future__ import annotations

from collections import Counter
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
    starts_by_name: dict[tuple[_Node, int], list[int]] = {}
    names_of_ranks: list[list[tuple[_Node, int]]] = []
    for summary in ranks:
        steps = [(numbering.of(summary.rank, w, k), start)
                 for w, k, start, _ in summary.replay.steps.tolist()]  # fmt: skip
        names_of_ranks.append([name for name, _ in steps])
        for name, start in steps:
            starts_by_name.setdefault(name, []).append(start)
    order = sorted(starts_by_name, key=lambda name: (name[0][1], name[1], name[0][0]))
    position = {name: i for i, name in enumerate(order)}
    step = [
        np.array([position[name] for name in names] or [0], np.int32)[summary.replay.step]
        for summary, names in zip(ranks, names_of_ranks, strict=True)
    ]
    return [(node[1], number) for node, number in order], np.concatenate(step)


class _Numbering:
    """Which number of one rank's steps is which of another's: differences that most matched
    operations agree on, the best known first."""

    def __init__(self, ranks: Sequence[RankSummary], groups: Sequence[Matched]) -> None:
        self._parent: dict[_Node, _Node] = {}
        self._ahead: dict[_Node, int] = {}  # of the number of the parent
        steps_of_calls = {summary.rank: _of_calls(summary) for summary in ranks}
        links = [link for group in groups for link in _links(steps_of_calls, group)]
        for _, node, other_node, ahead in sorted(links, key=lambda link: -link[0]):
            self._join(node, other_node, ahead)
        # without matches, numbers that sources record are those of the job; whole recordings count
        # as one step
        whole = all(len(rank.replay.steps) == 1 for rank in ranks)
        windows: dict[int, _Node] = {}
        for rank in ranks:
            for window in np.unique(rank.replay.steps[:, 0]).tolist():
                if rank.replay.marked or whole:
                    first_node = windows.setdefault(window, (rank.rank, window))
                    self._join(first_node, (rank.rank, window), 0)

    def _root(self, node: _Node) -> tuple[_Node, int]:
        """Its component, and how far it is ahead of the numbers of that."""
        ahead = 0
        while node in self._parent:
            ahead += self._ahead[node]
            node = self._parent[node]
        return node, ahead

    def _join(self, node: _Node, other_node: _Node, ahead: int) -> None:
        a, of_a = self._root(node)
        b, of_b = self._root(other_node)
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


def _of_calls(summary: RankSummary) -> I64:
    """(collectives of the rank, 2): recording window and number of the step of each, -1 if none."""
    steps_of_calls = np.full((len(summary.collectives), 2), -1, np.int64)
    operations = summary.replay
    calls = np.flatnonzero(operations.call >= 0)
    steps_of_calls[operations.call[calls]] = operations.steps[operations.step[calls], :2]
    return steps_of_calls


def _links(
    steps_of_calls: Mapping[int, I64], group: Matched
) -> Iterator[tuple[int, _Node, _Node, int]]:
    """How many operations of two ranks say how far apart their numbers are.

    Messages are alike, and eager ones do not even end together: they move no step of ranks whose
    steps have the same numbers.
    """
    base = group.ranks[group.base]
    if base not in steps_of_calls:
        return
    alone = set(group.kinds) == {P2P}
    base_rows = group.row[:, group.base]
    for column, rank in enumerate(group.ranks):
        if rank not in steps_of_calls or column == group.base:
            continue
        own_rows = group.row[:, column]
        in_both = (base_rows >= 0) & (own_rows >= 0)
        a, b = steps_of_calls[base][base_rows[in_both]], steps_of_calls[rank][own_rows[in_both]]
        has_steps = (a[:, 1] >= 0) & (b[:, 1] >= 0)
        if alone and np.array_equal(
            np.unique(steps_of_calls[base]), np.unique(steps_of_calls[rank])
        ):
            has_steps &= a[:, 1] == b[:, 1]
        windows = zip(a[has_steps, 0].tolist(), b[has_steps, 0].tolist(), strict=True)
        ahead = (b[has_steps, 1] - a[has_steps, 1]).tolist()
        seen = Counter(zip(windows, ahead, strict=True))
        for ((base_window, its), by), weight in sorted(seen.items()):
            yield weight, (base, base_window), (rank, its), by
