"""How long the members of a group wait for one of them: by the time each is inside, so without
clocks. Who comes last is inside for the shortest time; computing meanwhile is no waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import P2P
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.significance import over_others
from traceconv.core.clock import time_text
from traceconv.core.columns import F64, I32, I64
from traceconv.core.ordering import distinct
from traceconv.core.robust import quantile

_SHORT = 0.05  # of the operations of a group wait for nobody, more or less


class Clocks(Protocol):
    """What is needed of an alignment (:class:`traceconv.alignment.plan.Plan`)."""

    @property
    def method(self) -> str:
        """How it was made."""

    def corrected(self, rank: int, ns: I64) -> I64:
        """Stamps of ``rank`` on the shared clock."""

    def error_ns(self, rank: int) -> int | None:
        """How far they may be off, None if unknown."""


class Waits:
    """The collectives of all ranks, matched.

    Attributes:
        groups: in which ranks meet.
        at:     by rank, where each of its operations is: (operations, 2): index into ``groups``
            and operation in that; -1 where it was not matched.
        of_key: index into ``groups`` by the group's key.
    """

    def __init__(self, every: Mapping[int, RankSummary], groups: Sequence[Matched]) -> None:
        self._every = every
        self.groups = groups
        self.at: dict[int, I32] = {
            rank: np.full((len(one.collectives), 2), -1, np.int32) for rank, one in every.items()
        }
        self.of_key = {group.key: index for index, group in enumerate(groups)}
        for index, group in enumerate(groups):
            for column, rank in enumerate(group.ranks):
                seen = np.flatnonzero(group.row[:, column] >= 0)
                self.at[rank][group.row[seen, column]] = np.stack(
                    (np.full(len(seen), index), seen), axis=1
                )
        self._waiting: dict[int, F64] = {}
        self._captured = Counter(
            group.key for one in every.values() for group in one.collectives.groups
        )

    def waiting(self, index: int) -> F64:
        """(operations, ranks) of a group, ns: time inside in which a rank computes nothing; NaN
        where it was not seen."""
        if index not in self._waiting:
            group = self.groups[index]
            inside = (group.end_ns - group.start_ns).astype(np.float64)
            for column, rank in enumerate(group.ranks):
                hidden = self._every[rank].work.hidden_ns
                if len(hidden):
                    inside[:, column] -= hidden[group.row[:, column]]
            messages = np.array([kind == P2P for kind in group.kinds], bool)
            inside[(group.row < 0) | messages[:, None]] = np.nan
            self._waiting[index] = inside
        return self._waiting[index]

    def for_one(self, rank: int, key: str, without: Collection[int]) -> F64:
        """Per operation of the rank: how long all others of a group wait for it at least.

        Args:
            key:     of the group.
            without: ranks that do not count among the others.

        Returns:
            ns; NaN where it is not in the group or none of the others was seen.
        """
        at = self.at[rank]
        found = np.full(len(at), np.nan)
        index = self.of_key.get(key, -1)
        mine = np.flatnonzero((at[:, 0] == index) & (at[:, 0] >= 0))
        if not len(mine):
            return found
        group, waiting = self.groups[index], self.waiting(index)
        others = [i for i, one in enumerate(group.ranks) if one not in without and one != rank]
        if not others:
            return found
        rows = at[mine, 1]
        theirs = waiting[np.ix_(rows, others)]
        least = np.where(np.isnan(theirs), np.inf, theirs).min(axis=1)
        own = waiting[rows, group.ranks.index(rank)]
        found[mine] = np.where(np.isinf(least), np.nan, np.maximum(least - own, 0))
        return found

    def arrival(self, rank: int, key: str, clocks: Clocks) -> tuple[F64, float | None]:
        """Per operation of the rank: how much later than the median of the others in a group it
        starts, by aligned clocks, ns; NaN where that is unknown. And how far clocks may be off for
        that; None if nobody knows."""
        at = self.at[rank]
        found = np.full(len(at), np.nan)
        index = self.of_key.get(key, -1)
        mine = np.flatnonzero((at[:, 0] == index) & (at[:, 0] >= 0))
        if not len(mine):
            return found, None
        group, rows = self.groups[index], at[mine, 1]
        start = np.full((len(rows), len(group.ranks)), np.nan)
        zero = int(clocks.corrected(rank, group.start_ns[rows[:1], group.ranks.index(rank)])[0])
        for column, one in enumerate(group.ranks):
            seen = group.row[rows, column] >= 0
            stamps = group.start_ns[rows[seen], column]
            start[seen, column] = clocks.corrected(one, stamps) - zero
        found[mine] = over_others(start)[:, group.ranks.index(rank)]
        errors = [clocks.error_ns(one) for one in group.ranks]
        known = [error for error in errors if error is not None]
        return found, 2.0 * max(known) if len(known) == len(errors) else None

    def exchanges(self, rank: int, first: int, last: int) -> bool:
        """Whether a rank sends or receives messages between two of its operations."""
        known = self._every[rank].collectives
        start = known.start_ns[known.messages]
        return bool(((start > known.start_ns[first]) & (start < known.start_ns[last])).any())

    def partners(self, ranks: Collection[int]) -> set[int]:
        """Those with which ranks exchange messages."""
        keys = {
            one.groups[group].key
            for one in (self._every[rank].collectives for rank in ranks)
            for group in distinct(one.group[one.messages]).tolist()
        }
        return {
            rank
            for rank, one in self._every.items()
            if keys and any(group.key in keys for group in one.collectives.groups)
        }

    def incomplete(self, rank: int) -> bool:
        """Whether a group of the rank has members that were not captured."""
        return any(
            group.size > self._captured[group.key] for group in self._every[rank].collectives.groups
        )

    def latest(self, only: int | None = None) -> tuple[float, int, str]:
        """Who came last by how much, at the collective where that was most: ns, the rank, and "came
        last to allreduce of ...".

        Args:
            only: this rank.
        """
        best = (0.0, -1, "")
        for index, group in enumerate(self.groups):
            if only is not None and only not in group.ranks:
                continue
            late = np.nan_to_num(-over_others(self.waiting(index)))
            if only is not None:
                late[:, [rank != only for rank in group.ranks]] = 0.0
            if not late.size:
                continue
            row, column = np.unravel_index(int(np.argmax(late)), late.shape)
            if late[row, column] <= 0:
                continue
            text = (
                f"came last to {group.kinds[int(row)]} of {group.key}, by "
                f"{time_text(float(late[row, column]))}"
            )
            best = max(best, (float(late[row, column]), group.ranks[int(column)], text))
        return best

    def for_missing(self, least_ns: float) -> str:
        """Where captured members of a group wait for one that was not, if for long."""
        best = (least_ns, "")
        for rank, one in self._every.items():
            known, hidden = one.collectives, one.work.hidden_ns
            for number, group in enumerate(known.groups):
                captured, index = self._captured[group.key], self.of_key.get(group.key, -1)
                if group.size <= captured or not len(hidden):
                    continue
                rows = known.of_group(number)
                least = (known.end_ns - known.start_ns - hidden)[rows].astype(np.float64)
                if index >= 0:
                    if self.groups[index].ranks[0] != rank:
                        continue
                    least = self.waiting(index).min(axis=1)
                least = least[~np.isnan(least)]
                if len(least) < 2:
                    continue
                steps = max(len(distinct(known.step[rows])), 1)
                wait = float((least - quantile(least, _SHORT)).sum()) / steps
                who = f"the {captured} captured members" if captured > 1 else "the captured member"
                text = (
                    f"; {who} of {group.key} (of {group.size}) "
                    f"wait{'' if captured > 1 else 's'} {time_text(wait)} per step"
                )
                best = max(best, (wait, text))
        return best[1]

    def _first(self, group: Matched) -> NDArray[np.bool_]:
        """(operations,): which of a group are the first that some member recorded."""
        first = np.zeros(len(group.kinds), bool)
        for column, rank in enumerate(group.ranks):
            before, row = self._every[rank].work.before_ns, group.row[:, column]
            if len(before):
                first |= (row >= 0) & (before[row, 0] < 0)
        return first

    def lateness(self) -> dict[tuple[int, int], int]:
        """By rank and number of step: the most that a rank came later than the median of the others
        to one collective, ns, by the time inside; the first of a capture left out."""
        worst: dict[tuple[int, int], int] = {}
        for index, group in enumerate(self.groups):
            late = np.maximum(-over_others(self.waiting(index)), 0)
            late[self._first(group)] = np.nan
            base = self._every[group.ranks[group.base]].collectives
            step = base.step[np.maximum(group.row[:, group.base], 0)]
            for number in distinct(step[step >= 0]).tolist():
                for rank, column in zip(group.ranks, late[step == number].T, strict=True):
                    seen = column[~np.isnan(column)]
                    if len(seen):
                        value = round(float(seen.max()))
                        worst[rank, number] = max(worst.get((rank, number), 0), value)
        return worst
