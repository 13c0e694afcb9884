"""How late each rank comes to the collectives of one group, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from traceconv.collectives import Evidence
from traceconv.columns import F64, I64
from traceconv.matching import Matched
from traceconv.robust import SIGMA

_ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Kinds in which not everybody waits for everybody."""

_MIDMEAN = 1.1  # a midmean's standard error, in those of a mean
_FEW = 4  # below, the scatter of so many values is not relied on

WITHIN, VOTES_DIFFER, PASSED_ON = range(3)
REASONS = (
    "that is within the uncertainty",
    "the two votes name different ranks",
    "its own time does not account for it: it was held up itself",
)
"""Why nobody is named."""


class Clocks(Protocol):
    """What is needed of an alignment (:class:`traceconv.mergers.align.Plan`)."""

    @property
    def method(self) -> str:
        """How it was made."""

    def corrected(self, rank: int, ns: I64) -> I64:
        """Stamps of ``rank`` on the shared clock."""

    def error_ns(self, rank: int) -> int | None:
        """How far they may be off, None if unknown."""


class Known(Protocol):
    """What is needed of a rank: its collectives, and the parts of the time before each."""

    @property
    def evidence(self) -> Evidence:
        """Its collectives."""

    @property
    def parts(self) -> I64:
        """(operations, parts), ns; the last is not the rank's own doing; -1 if unknown."""


@dataclass(frozen=True)
class Lateness:
    """One group. Columns are ranks, rows operations; ns, NaN where a rank was not seen.

    Attributes:
        ranks, key, kinds: of the group and its operations.
        step:    per operation, -1 if it belongs to none.
        place:   per operation: which of the operations of a step it is.
        late:    how much shorter than the others a rank was inside: free of clocks.
        arrival: how much later than the others it started, by aligned clocks.
        own:     how much more than the others it did by itself since they last met.
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
        """Midmeans over all operations at each place, judged; one row per place."""
        rows = [np.flatnonzero(self.place == p) for p in np.unique(self.place).tolist()]
        return self._judged(rows, z, [_MIDMEAN / math.sqrt(len(r)) for r in rows])

    def each(self, z: float) -> Judged:
        """Every operation, judged by itself."""
        usual = self.usual(z)
        spread = [np.flatnonzero(self.place == p) for p in np.unique(self.place).tolist()]
        late, own = (np.empty(len(self.place)) for _ in range(2))
        for number, rows in enumerate(spread):
            late[rows] = usual.sigma_late[number] * z
            own[rows] = usual.sigma_own[number] * z
        first = np.arange(len(self.place))
        return self._compared(first, self.late, self.arrival, self.own, self.parts, late, own)

    def _judged(self, groups: list[NDArray[np.intp]], z: float, error: list[float]) -> Judged:
        late, arrival, own, parts = (
            np.stack([midmean(column[r]) for r in groups])
            for column in (self.late, self.arrival, self.own, self.parts)
        )
        sigma_late = self._sigmas(self.late, groups)
        sigma_own = self._sigmas(self.own, groups)
        scale = z * np.array(error)
        first = np.array([r[0] for r in groups])
        judged = self._compared(
            first, late, arrival, own, parts, scale * sigma_late, scale * sigma_own
        )
        return Judged(**{**vars(judged), "sigma_late": sigma_late, "sigma_own": sigma_own})

    def _sigmas(self, values: F64, groups: list[NDArray[np.intp]]) -> F64:
        """The scatter of values around the median of their rank and place, per place; that of all
        places together where it is more, for it is known better."""
        rest = np.concatenate([np.abs(values[r] - middle(values[r])) for r in groups])
        least = self.noise_ns if max(len(r) for r in groups) < _FEW else 0.0
        every = max(_sigma(rest), least, 1.0)
        return np.array([max(every, _sigma(values[r] - middle(values[r]))) for r in groups])

    def _compared(
        self, first: I64, late: F64, arrival: F64, own: F64, parts: F64, u_late: F64, u_own: F64
    ) -> Judged:
        """The rank that comes last in each row, if both votes and its own time say so."""
        at = np.arange(len(late))
        last = np.argmax(np.where(np.isnan(late), -np.inf, late), axis=1)
        clocks_say = np.argmax(np.where(np.isnan(arrival), -np.inf, arrival), axis=1)
        behind = arrival[at, clocks_say] - arrival[at, last]
        doubt = np.hypot(self.clock_ns[clocks_say], self.clock_ns[last]) + u_late
        mine, made = late[at, last], own[at, last]
        known = ~np.isnan(made)
        unsure = np.where(known, u_own, u_late)
        sure = np.where(known, np.fmin(made, mine), mine) > unsure
        return Judged(
            first,
            np.where(sure & (behind <= doubt), last, -1),
            last,
            mine,
            arrival[at, last],
            unsure,
            parts[at, last],
            np.select([behind > doubt, mine > unsure], [VOTES_DIFFER, PASSED_ON], WITHIN),
            u_late,
            u_own,
        )


@dataclass(frozen=True)
class Judged:
    """Rows, judged.

    Attributes:
        first:   an operation of each row.
        culprit: index of the rank that is late by its own doing, -1 if that is not certain.
        last:    index of the rank that comes last, certain or not.
        late, arrival, unsure: of that rank, ns.
        parts:   (rows, parts) of that rank, more than the others', ns.
        reason:  index into :data:`REASONS`: why it is not certain, where it is not.
        sigma_late, sigma_own: scatter of what was judged by.
    """

    first: I64
    culprit: NDArray[np.intp]
    last: NDArray[np.intp]
    late: F64
    arrival: F64
    unsure: F64
    parts: F64
    reason: NDArray[np.intp]
    sigma_late: F64
    sigma_own: F64


def lateness(
    groups: Iterable[Matched], ranks: Mapping[int, Known], clocks: Clocks
) -> Iterator[Lateness]:
    """Each group that met at least once."""
    for group in groups:
        seen = group.row >= 0
        waits = np.array([kind not in _ROOTED for kind in group.kinds], bool)
        rows = np.flatnonzero(waits & (seen.sum(axis=1) >= 2))
        if len(rows):
            yield _of(group, rows, ranks, clocks)


def _of(
    group: Matched, rows: NDArray[np.intp], ranks: Mapping[int, Known], clocks: Clocks
) -> Lateness:
    row = group.row[rows]
    seen = row >= 0
    start, end, inside = (np.full(row.shape, np.nan) for _ in range(3))
    parts = np.full((*row.shape, ranks[group.ranks[0]].parts.shape[1]), np.nan)
    zero = int(clocks.corrected(group.ranks[group.base], group.start_ns[rows[:1], group.base])[0])
    for column, rank in enumerate(group.ranks):
        on = seen[:, column]
        began, ended = (t[rows[on], column] for t in (group.start_ns, group.end_ns))
        start[on, column] = clocks.corrected(rank, began) - zero
        end[on, column] = clocks.corrected(rank, ended) - zero
        inside[on, column] = ended - began
        told = ranks[rank].parts[row[on, column]]
        parts[on, column] = np.where(told < 0, np.nan, told)
    base = ranks[group.ranks[group.base]].evidence
    step = base.step[np.maximum(row[:, group.base], 0)].astype(np.int64)
    ends = _over_others(end)
    usual = middle(ends)
    noise = SIGMA * float(np.nanmedian(np.abs(ends - usual)))
    errors = [clocks.error_ns(rank) for rank in group.ranks]
    clock = [abs(u) + noise if e is None else float(e) for u, e in zip(usual, errors, strict=True)]
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
        _over_others(parts[:, :, :-1].sum(axis=2)),
        more,
        np.nan_to_num(np.array(clock)),
        noise,
    )


def _sigma(rest: F64) -> float:
    known = np.abs(rest[~np.isnan(rest)])
    return SIGMA * float(np.median(known)) if len(known) else 0.0


def _places(step: I64, kinds: tuple[str, ...]) -> I64:
    """Which operation of its step each is; without steps, kinds stand for places."""
    order = {kind: -1 - i for i, kind in enumerate(dict.fromkeys(kinds))}
    place = np.array([order[kind] for kind in kinds], np.int64)
    inside = np.flatnonzero(step >= 0)
    if len(inside):
        sort = inside[np.argsort(step[inside], kind="stable")]
        fresh = np.flatnonzero(np.diff(step[sort], prepend=-1))
        place[sort] = np.arange(len(sort)) - np.repeat(fresh, np.diff(fresh, append=len(sort)))
    return place


def _over_others(values: F64) -> F64:
    """By how much each rank exceeds the median of all, by row; of two ranks, the other."""
    count = np.count_nonzero(~np.isnan(values), axis=1, keepdims=True)
    over: F64 = (values - middle(values.T)[:, None]) * np.where(count == 2, 2, 1)
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
    count = np.count_nonzero(~np.isnan(values), axis=0)[None]
    at = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    kept = (at >= count // 4) & (at < count - count // 4)
    sums = np.where(kept, ordered, 0.0).sum(axis=0)
    found: F64 = np.where(count > 0, sums / np.maximum(kept.sum(axis=0), 1), np.nan)[0]
    return found
