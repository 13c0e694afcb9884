"""How late each rank comes to the collectives of one group, and how sure that is.

What decides is what a rank did by itself: more than the others, by more than chance explains. It is
looked at twice, from when the group last met and from the last collective with anybody. The first
holds all that may make a rank late, and the scatter of all that; the second is the part before this
collective, in which a delay in one place is visible. What others do to it, by coming late to
collectives in between, is in neither. Both votes on who comes last can only object.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.analysis.rank_summary import RankSummary
from traceconv.core.columns import F64, I64
from traceconv.core.robust import SIGMA, student

_ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Kinds in which not everybody waits for everybody."""

_FEW = 4  # below, the scatter of so many values is not relied on
_EFFICIENCY = 0.5  # of a midmean's error: its degrees of freedom, in those of as many normal values
_ARRIVES = 0.25  # of what a rank did more, so much the others wait for, or it is made up for

WITHIN, VOTES_DIFFER, PASSED_ON = range(3)
REASONS = (
    "that is within the uncertainty",
    "the two votes name different ranks",
    "its own time does not account for it: it was held up itself",
)
"""Why nobody is named."""


class Clocks(Protocol):
    """What is needed of an alignment (:class:`traceconv.alignment.plan.Plan`)."""

    @property
    def method(self) -> str:
        """How it was made."""

    def corrected(self, rank: int, ns: I64) -> I64:
        """Stamps of ``rank`` on the shared clock."""

    def error_ns(self, rank: int) -> int | None:
        """How far they may be off, None if unknown."""


@dataclass(frozen=True)
class Lateness:
    """One group. Columns are ranks, rows operations; ns, NaN where a rank was not seen.

    Attributes:
        ranks, key, kinds: of the group and its operations.
        step:    per operation, -1 if it belongs to none.
        place:   per operation: which of the operations of a step it is.
        late:    how much shorter than the others a rank was inside: free of clocks.
        arrival: how much later than the others it started, by aligned clocks.
        own:     (2, operations, ranks): how much more than the others it did by itself, since they
            last met, and since its last collective with anybody.
        parts:   (operations, ranks, parts): the same by part, with what was passed on to it.
        clock_ns: per rank, how far ``arrival`` may be off for its clock's sake.
        noise_ns: how far ends, which should be equal, scatter.
    """

    ranks: tuple[int, ...]
    key: str
    kinds: tuple[str, ...]
    step: I64
    place: I64
    late: F64
    arrival: F64
    own: F64
    parts: F64
    clock_ns: F64
    noise_ns: float

    @property
    def places(self) -> int:
        """How many places there are."""
        return len(np.unique(self.place))

    def usual(self, z: float) -> Judged:
        """Midmeans over all operations at each place, judged; one row per place.

        Args:
            z: how many standard errors are no chance, were they known.
        """
        spread = self._spread()
        late, arrival, parts, *own = (
            np.stack([midmean(column[rows]) for rows in spread])
            for column in (self.late, self.arrival, self.parts, *self.own)
        )
        u_late, *u_own = (self._unsure(values, spread, z) for values in (self.late, *self.own))
        return self._compared(
            np.array([rows[0] for rows in spread]),
            _less_common(late),
            arrival,
            np.stack([_less_common(values) for values in own]),
            parts,
            u_late,
            np.stack(u_own),
        )

    def each(self, z: float) -> Judged:
        """Every operation, judged by itself."""
        spread = self._spread()
        unsure = np.empty((3, *self.late.shape))
        for values, known in zip((self.late, *self.own), unsure, strict=True):
            rest = [values[rows] - middle(values[rows]) for rows in spread]
            every = max(_sigma(np.concatenate(rest)), self._least())
            for rows, one in zip(spread, rest, strict=True):
                known[rows] = max(every, _sigma(one)) * z
        first = np.arange(len(self.place))
        return self._compared(
            first, self.late, self.arrival, self.own, self.parts, unsure[0], unsure[1:]
        )

    def _spread(self) -> list[NDArray[np.intp]]:
        """The operations at each place."""
        return [np.flatnonzero(self.place == p) for p in np.unique(self.place).tolist()]

    @property
    def _few(self) -> bool:
        """Whether no place is repeated often enough for its scatter to be known."""
        return int(np.unique(self.place, return_counts=True)[1].max()) < _FEW

    def _least(self) -> float:
        """The least scatter to reckon with, ns."""
        return max(self.noise_ns if self._few else 0.0, 1.0)

    def _unsure(self, values: F64, spread: list[NDArray[np.intp]], z: float) -> F64:
        """What midmeans of values may be off by chance, per place and rank. The scatter is that of
        all places and ranks together, which is known best, or a rank's own where that is more."""
        squares, kept = np.stack([scatter(values[rows]) for rows in spread], axis=1)
        free = np.maximum(kept - 1, 0)
        every = max(squares.sum() / max(free.sum(), 1), self._least() ** 2)
        variance = np.maximum(every, squares / np.maximum(free, 1))
        error: F64 = np.sqrt(variance / np.maximum(kept, 1))
        if self._few:
            return error * z
        return error * student(z, _EFFICIENCY * float(free.sum()) * (1 - 1 / len(self.ranks)))

    def _compared(
        self, first: I64, late: F64, arrival: F64, own: F64, parts: F64, u_late: F64, u_own: F64
    ) -> Judged:
        """The rank of each row that did most by itself, if that is certain and no vote differs;
        where nothing is known of what ranks did, the one that comes last."""
        at = np.arange(len(late))
        last, clocks_say = _largest(late), _largest(arrival)
        sure = np.nan_to_num(own / u_own, nan=-np.inf)
        known = np.isfinite(sure).any(axis=(0, 2))
        one = np.where(known, _largest(sure.max(axis=0)), last)
        spent = np.argmax(sure[:, at, one], axis=0)
        made = np.where(known, own[spent, at, one], late[at, last])
        unsure = np.where(known, u_own[spent, at, one], u_late[at, last])
        enough = u_late[at, one] if self._few else _ARRIVES * made
        certain = (made > unsure) & (late[at, one] >= enough)
        doubt = np.hypot(self.clock_ns[clocks_say], self.clock_ns[one]) + u_late[at, one]
        differ = arrival[at, clocks_say] - arrival[at, one] > doubt
        differ |= late[at, last] - late[at, one] > u_late[at, one]
        named = certain & ~differ
        shown = np.where(named, one, last)
        reasons = [certain & differ, late[at, last] > u_late[at, last]]
        return Judged(
            first,
            np.where(named, one, -1),
            shown,
            late[at, shown],
            arrival[at, shown],
            np.where(named, unsure, u_late[at, last]),
            parts[at, shown],
            np.select(reasons, [VOTES_DIFFER, PASSED_ON], WITHIN),
        )


@dataclass(frozen=True)
class Judged:
    """Rows, judged.

    Attributes:
        first:   an operation of each row.
        culprit: index of the rank that is late by its own doing, -1 if that is not certain.
        last:    index of that rank; where there is none, of the rank that seems to come last.
        late, arrival, unsure: of that rank, ns.
        parts:   (rows, parts) of that rank, more than the others', ns.
        reason:  index into :data:`REASONS`: why it is not certain, where it is not.
    """

    first: I64
    culprit: NDArray[np.intp]
    last: NDArray[np.intp]
    late: F64
    arrival: F64
    unsure: F64
    parts: F64
    reason: NDArray[np.intp]


def lateness(
    groups: Iterable[Matched], ranks: Mapping[int, RankSummary], clocks: Clocks
) -> Iterator[Lateness]:
    """Each group with at least one collective."""
    alone = {rank: _alone(known.collectives) for rank, known in ranks.items()}
    for group in groups:
        seen = group.row >= 0
        waits = np.array([kind not in _ROOTED for kind in group.kinds], bool)
        rows = np.flatnonzero(waits & (seen.sum(axis=1) >= 2))
        if len(rows):
            yield _of(group, rows, ranks, alone, clocks)


def _of(
    group: Matched,
    rows: NDArray[np.intp],
    ranks: Mapping[int, RankSummary],
    alone: Mapping[int, F64],
    clocks: Clocks,
) -> Lateness:
    row = group.row[rows]
    seen = row >= 0
    start, end, inside, before = (np.full(row.shape, np.nan) for _ in range(4))
    parts = np.full((*row.shape, ranks[group.ranks[0]].before_ns.shape[1]), np.nan)
    zero = int(clocks.corrected(group.ranks[group.base], group.start_ns[rows[:1], group.base])[0])
    for column, rank in enumerate(group.ranks):
        on = seen[:, column]
        began, ended = (t[rows[on], column] for t in (group.start_ns, group.end_ns))
        start[on, column] = clocks.corrected(rank, began) - zero
        end[on, column] = clocks.corrected(rank, ended) - zero
        inside[on, column] = ended - began
        before[on, column] = alone[rank][row[on, column]]
        spent = ranks[rank].before_ns[row[on, column]]
        parts[on, column] = np.where(spent < 0, np.nan, spent)
    base = ranks[group.ranks[group.base]].collectives
    step = base.step[np.maximum(row[:, group.base], 0)].astype(np.int64)
    ends = _over_others(end)
    usual = middle(ends)
    noise = SIGMA * float(np.nanmedian(np.abs(ends - usual)))
    errors = [clocks.error_ns(rank) for rank in group.ranks]
    unknown = [math.sqrt(2) * (abs(u) + noise) for u in usual]  # two of these in the square: a sum
    clock = [u if e is None else float(e) for u, e in zip(unknown, errors, strict=True)]
    kinds = tuple(group.kinds[i] for i in rows.tolist())
    more = np.stack([_over_others(parts[:, :, i]) for i in range(parts.shape[2])], axis=2)
    return Lateness(
        group.ranks,
        group.key,
        kinds,
        step,
        _places(step, kinds),
        -_over_others(inside),
        _over_others(start),
        np.stack((_over_others(parts[:, :, :-1].sum(axis=2)), _over_others(before))),
        more,
        np.nan_to_num(np.array(clock)),
        noise,
    )


def _alone(known: CollectiveRecords) -> F64:
    """How long a rank was in no collective before each of its own, ns; NaN before the first."""
    alone = np.full(len(known), np.nan)
    order = np.argsort(known.start_ns, kind="stable")
    ended = np.maximum.accumulate(known.end_ns[order])
    alone[order[1:]] = np.maximum(known.start_ns[order[1:]] - ended[:-1], 0)
    return alone


def _largest(values: F64) -> NDArray[np.intp]:
    """Index of the largest value of each row."""
    found: NDArray[np.intp] = np.argmax(np.where(np.isnan(values), -np.inf, values), axis=1)
    return found


def _less_common(values: F64) -> F64:
    """Without what all ranks have in common: where scatter leans to one side, all seem late."""
    less: F64 = values - np.maximum(middle(values.T), 0)[:, None]
    return less


def _sigma(rest: F64) -> float:
    known = np.abs(rest[~np.isnan(rest)])
    return SIGMA * float(np.median(known)) if len(known) else 0.0


def _places(step: I64, kinds: tuple[str, ...]) -> I64:
    """Which operation of its step each is; without steps, kinds replace positions."""
    order = {kind: -1 - i for i, kind in enumerate(dict.fromkeys(kinds))}
    place = np.array([order[kind] for kind in kinds], np.int64)
    inside = np.flatnonzero(step >= 0)
    if len(inside):
        sort = inside[np.argsort(step[inside], kind="stable")]
        fresh = np.flatnonzero(np.diff(step[sort], prepend=-1))
        place[sort] = np.arange(len(sort)) - np.repeat(fresh, np.diff(fresh, append=len(sort)))
    return place


def _over_others(values: F64) -> F64:
    """By how much each rank exceeds the median of the others, by row; NaN where there are none."""
    order = np.argsort(values, axis=1)  # NaN come last
    place = np.argsort(order, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    count = np.count_nonzero(~np.isnan(values), axis=1, keepdims=True)
    low, high = (
        np.take_along_axis(ordered, at + (at >= place), axis=1)
        for at in (np.maximum(count - 2, 0) // 2, np.maximum(count - 1, 0) // 2)
    )
    over: F64 = np.where(count > 1, values - (low + high) / 2, np.nan)
    return over


def middle(values: F64) -> F64:
    """Medians over the first axis; NaN where there is no value."""
    ordered = np.sort(values, axis=0)  # NaN come last
    count = np.count_nonzero(~np.isnan(values), axis=0)[None]
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=0)
    high = np.take_along_axis(ordered, np.minimum(count // 2, len(values) - 1), axis=0)
    found: F64 = np.where(count > 0, (low + high) / 2, np.nan)[0]
    return found


def midmean(values: F64) -> F64:
    """Means of the middle half over the first axis: as hard to move as medians, nearly, and surer
    where nothing is wild; NaN where there is no value."""
    ordered = np.sort(values, axis=0)
    low, high = _half(ordered)
    at = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    sums = np.where((at >= low) & (at < high), ordered, 0.0).sum(axis=0)
    found: F64 = np.where(high > low, sums / np.maximum(high - low, 1), np.nan)[0]
    return found


def scatter(values: F64) -> tuple[F64, F64]:
    """What the error of :func:`midmean` follows from, whatever the distribution (Tukey and
    McLaughlin): the sum of squares around the mean, with the outer quarters drawn in to the middle
    half, and the number of values in that, one more than its degrees of freedom."""
    ordered = np.sort(values, axis=0)
    low, high = _half(ordered)
    count = np.count_nonzero(~np.isnan(ordered), axis=0)
    at = np.arange(len(values))[:, None]
    inner = np.clip(at, low, np.maximum(high - 1, 0))
    drawn = np.where(at < count, np.take_along_axis(ordered, inner, axis=0), 0.0)
    rest = np.where(at < count, drawn - drawn.sum(axis=0) / np.maximum(count, 1), 0.0)
    return (rest * rest).sum(axis=0), (high - low)[0].astype(np.float64)


def _half(ordered: F64) -> tuple[I64, I64]:
    """Where the middle half of the values begins and ends, along the first axis, of length one."""
    count = np.count_nonzero(~np.isnan(ordered), axis=0)[None]
    return count // 4, count - count // 4
