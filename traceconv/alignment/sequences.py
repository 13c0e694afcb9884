"""Which operation of one rank is which of another's: two sequences side by side.

Where nothing is missing, all shifts of one against the other are tried; else all ways to let one
operation fall on another, and the rest is matched by time. :mod:`.hypotheses` judges which
is likely.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.hypotheses import (
    FASTEST,
    FEWEST,
    FLOOR_NS,
    RIVAL,
    Beats,
    Found,
    Pairing,
    Rivals,
    Sides,
    Timed,
    drift_of,
    likeliest,
    nothing,
    preferred,
    steps_between,
    tested,
    usual_size,
)
from traceconv.core.clock import Correction
from traceconv.core.columns import F64, I64
from traceconv.core.robust import median

_LIKENESS = 0.9  # share of operations that have to be of one kind and size, side by side
_RIVALS = 12  # others that are compared, and as many with few pairs
_SCREENED = 48  # times between operations that are compared for every shift
_SAMPLE = 192  # the same for shifts that may be right
_PARTS = (32, 12)
_PIVOTS = (0.5, 1 / 6, 5 / 6)
_AROUND = 24  # operations around a pivot
_SETTLED = 100.0  # logarithm of odds from which a part of the operations tells as much as all
_FOLLOWED = 8  # hypotheses that are followed through the whole sequence


def paired(a: Timed, b: Timed, numbered: bool = False) -> Pairing:
    """The pairs of operations that are the same, by order and by pace.

    Args:
        a, b: of two ranks of one group.
        numbered: whether the numbers of steps are known to be those of the job; otherwise each
            capture may count from its own start.
    """
    if (identified := _identified(a, b)) is not None:
        return identified
    left_rows = np.flatnonzero(np.isin(a.token, b.token))
    right_rows = np.flatnonzero(np.isin(b.token, a.token))
    fewer = min(len(left_rows), len(right_rows))
    if fewer < FEWEST:
        return nothing(f"{fewer} operations in common are too few, {FEWEST} are needed")
    x, y = Beats(a, left_rows), Beats(b, right_rows)
    sides = Sides(x, y, numbered and x.counts and y.counts)
    hypothesis = _by_index(sides)
    settled = False
    if hypothesis is not None and hypothesis.clean:
        # where operations are missing, a part between two losses may fit by chance
        equal = len(x) == len(y) and np.array_equal(x.token, y.token)
        is_complete = len(hypothesis.ours) == min(len(x), len(y))
        sure = is_complete or float(hypothesis.odds.min(initial=np.inf)) >= _SETTLED
        settled = equal or (hypothesis.certain and sure)
    if not settled:
        alternative = _by_time(sides)
        if alternative is not None and (hypothesis is None or alternative.better_than(hypothesis)):
            hypothesis = alternative
    if hypothesis is None:
        return nothing("kinds and sizes of operations do not follow each other alike")
    return hypothesis.pairing(left_rows, right_rows)


def _identified(a: Timed, b: Timed) -> Pairing | None:
    """The pairs by what the source says which operation each is; None if it says too little.

    What occurs more than once on a rank, as in a loop of a program, is left out: the first may be
    missing, and nothing says so.
    """
    if min(len(a.identity), len(b.identity)) < FEWEST:
        return None
    left_rows, right_rows = _once(a.identity), _once(b.identity)
    if min(len(left_rows), len(right_rows)) < FEWEST:
        return None
    _, in_left, in_right = np.intersect1d(
        a.identity[left_rows], b.identity[right_rows], assume_unique=True, return_indices=True
    )
    left_rows, right_rows = left_rows[in_left], right_rows[in_right]
    same_token = a.token[left_rows] == b.token[right_rows]
    order = np.argsort(left_rows[same_token])
    if len(order) < FEWEST:
        return nothing(
            f"{len(order)} operations are of the same run of a program in both captures, "
            f"{FEWEST} are needed"
        )
    return Pairing(left_rows[same_token][order], right_rows[same_token][order], identified=True)


def _once(identity: I64) -> NDArray[np.intp]:
    """The rows of identities that occur once."""
    values, first_rows, count = np.unique(identity, return_index=True, return_counts=True)
    return np.asarray(first_rows[(count == 1) & (values >= 0)])


# -- by index: nothing is missing --------------------------------------------------------------


def _by_index(sides: Sides) -> Found | None:
    """The best of all shifts of whole sequences; None if kinds and sizes fit at none."""
    a, b = sides.a, sides.b
    shifts = np.arange(FEWEST - len(b), len(a) - FEWEST + 1)
    if len(b) > 2 * _SCREENED:  # a few places tell which shifts are worth a closer look
        differ, _, good = _shifted(sides, shifts, _sample(b, _SCREENED))
        if not len(good):
            return None
        shifts = shifts[good]
        pairs = np.minimum(len(a), len(b) + shifts) - np.maximum(shifts, 0)
        likely = _alikest(differ, pairs, sides.floor)
        preset = np.flatnonzero(np.isin(shifts, (0, *_by_numbers(sides))))
        shifts = shifts[np.unique(np.concatenate((likely, preset)))]
    differ, long, good = _shifted(sides, shifts, _sample(b, _SAMPLE))
    if not len(good):
        return None
    shifts = shifts[good]
    pairs = np.minimum(len(a), len(b) + shifts) - np.maximum(shifts, 0)
    by_distance = [(differ, long), *_far(sides, shifts)]
    best = likeliest([table for table, _ in by_distance], pairs, sides.floor)
    preset = ~np.isnan(differ[best])
    drift = drift_of(differ[best][preset], long[preset])
    near = tuple(table - drift * length for table, length in by_distance)
    agree = np.array([sides.agree(*_diagonal(sides, k)) for k in shifts.tolist()])
    best, compared = preferred(sides, near, pairs, agree, best, np.flatnonzero(shifts == 0))
    left_rows, right_rows = _diagonal(sides, int(shifts[best]))
    same_token = a.token[left_rows] == b.token[right_rows]
    left_rows, right_rows = left_rows[same_token], right_rows[same_token]
    if len(left_rows) < FEWEST:
        return None
    alike = [_alikest(table, pairs, sides.floor, but=best) for table in near]
    rival_rows = np.unique(np.concatenate(alike))
    apart = np.array(
        [median(a.end[o] - b.end[t]) for o, t in (_diagonal(sides, k) for k in shifts[rival_rows])]
    ).astype(np.int64)
    rivals = Rivals(
        tuple(by.of(rival_rows) for by in compared), pairs[rival_rows], apart, agree[rival_rows]
    )
    return tested(sides, left_rows, right_rows, rivals, float(same_token.mean()))


def _shifted(
    sides: Sides, shifts: I64, places: NDArray[np.intp]
) -> tuple[F64, F64, NDArray[np.intp]]:
    """By how much times between operations differ, by shift and place, NaN where one of the
    sequences has none or one of another sort; these times; and the shifts at which sorts fit,
    which are those of the rows."""
    a, b = sides.a, sides.b
    left_rows = places[None, :] + shifts[:, None]
    valid = (left_rows >= 0) & (left_rows < len(a) - 1)
    left_rows = np.clip(left_rows, 0, len(a) - 2)
    sort = a.token[:-1] * (int(max(a.token.max(), b.token.max())) + 1) + a.token[1:]
    right_sort = b.token[:-1] * (int(max(a.token.max(), b.token.max())) + 1) + b.token[1:]
    good = valid & (sort[left_rows] == right_sort[places])
    count = valid.sum(axis=1)
    fits = (good.sum(axis=1) >= _LIKENESS * count) & (count >= min(FEWEST - 1, len(places)))
    rows = np.flatnonzero(fits)
    long = np.diff(b.end)[places].astype(np.float64)
    differ = np.where(good[rows], np.diff(a.end)[left_rows[rows]] - long, np.nan)
    return differ, long, rows


def _far(sides: Sides, shifts: I64) -> Iterator[tuple[F64, F64]]:
    """The same for operations that are some others apart, and these times: there are as many
    values as _PARTS say."""
    a, b = sides.a, sides.b
    for count in _PARTS:
        by = len(b) // count
        if by < 2:
            continue
        places = np.arange(0, len(b) - by, by)
        left_rows = places[None, :] + shifts[:, None]
        valid = (left_rows >= 0) & (left_rows + by < len(a))
        left_rows = np.clip(left_rows, 0, max(len(a) - by - 1, 0))
        later_rows = np.minimum(left_rows + by, len(a) - 1)
        same_token = (a.token[left_rows] == b.token[places]) & (
            a.token[later_rows] == b.token[places + by]
        )
        long = (b.end[places + by] - b.end[places]).astype(np.float64)
        yield (
            np.where(valid & same_token, a.end[later_rows] - a.end[left_rows] - long, np.nan),
            long,
        )


def _alikest(differ: F64, pairs: I64, floor: float, but: int = -1) -> NDArray[np.intp]:
    """The rows that fit best: those that have enough pairs to say something, and some others;
    without the row ``but``."""
    order = np.argsort(usual_size(differ, floor), kind="stable")
    order = order[order != but]
    long = pairs[order] >= RIVAL * pairs.max()
    return np.sort(np.concatenate((order[long][:_RIVALS], order[~long][:_RIVALS])))


def _by_numbers(sides: Sides) -> list[int]:
    """The shift at which most numbers of steps agree, if these are those of the job."""
    steps = np.unique(sides.a.step) if sides.numbered else np.empty(0, np.int64)
    steps = steps[np.isin(steps, sides.b.step)]
    if not len(steps):
        return []
    first_rows = [np.searchsorted(side.step, steps) for side in (sides.a, sides.b)]
    return [int(median(first_rows[0] - first_rows[1]))]


def _sample(b: Beats, limit: int) -> NDArray[np.intp]:
    """Which times between operations are compared: the longest, which differ most from step to
    step, and others anywhere."""
    all_places = np.arange(len(b) - 1)
    if len(all_places) <= limit:
        return all_places
    longest = np.argsort(-np.diff(b.end), kind="stable")[: limit // 2]
    spread = np.linspace(0, len(all_places) - 1, limit // 2).astype(np.intp)
    return np.unique(np.concatenate((longest, spread)))


def _diagonal(sides: Sides, shift: int) -> tuple[I64, I64]:
    begin, stop = max(0, -shift), min(len(sides.b), len(sides.a) - shift)
    right_rows = np.arange(begin, max(begin, stop))
    return right_rows + shift, right_rows


# -- by time: operations are missing -----------------------------------------------------------


def _by_time(sides: Sides) -> Found | None:
    """The best of all ways to let one operation fall on another, each of the rest being matched
    with the nearest in time."""
    swapped = len(sides.a) < len(sides.b)
    x, y = (sides.a, sides.b) if swapped else (sides.b, sides.a)
    look = _Nearest(y, 4 * int(x.end[-1] + y.end[-1]) + 1)
    near = max(2.0 * max(x.grain, y.grain), min(x.gap, y.gap) / 4)
    tried = [c for share in _PIVOTS for c in _candidates(x, y, look, share, near, sides.floor)]
    tried.sort(key=lambda c: -c[0])
    hypotheses: list[tuple[I64, I64]] = []
    codes: list[I64] = []
    for _, pivot, offset in tried[: 3 * _FOLLOWED]:
        pairs = _follow(x, look, pivot, offset, near)
        code = (pairs[0] << 32) | pairs[1]
        if len(code) >= FEWEST and not any(
            np.isin(code, other_code).mean() > 0.5 for other_code in codes
        ):
            hypotheses.append(pairs)
            codes.append(code)
        if len(hypotheses) == _FOLLOWED:
            break
    if not hypotheses:
        return None
    oriented = [(p, q) if swapped else (q, p) for p, q in hypotheses]
    return _chosen(sides, oriented)


def _chosen(sides: Sides, hypotheses: list[tuple[I64, I64]]) -> Found:
    """The likeliest of a few hypotheses, tested against the others."""
    steps = [steps_between(sides, o, t) for o, t in hypotheses]
    width = max(len(s[0]) for s in steps)
    differ, long = (np.full((len(hypotheses), width), np.nan) for _ in range(2))
    for row, (differences, time) in enumerate(steps):
        differ[row, : len(differences)], long[row, : len(differences)] = differences, time
    pairs = np.array([len(o) for o, _ in hypotheses])
    best = likeliest([differ], pairs, sides.floor)
    differ = differ - drift_of(*steps[best]) * long
    agree = np.array([sides.agree(o, t) for o, t in hypotheses])
    best, compared = preferred(sides, [differ], pairs, agree, best, np.empty(0, np.intp))
    share = np.array([_share(sides, o, t) for o, t in hypotheses])
    is_rival = (np.arange(len(hypotheses)) != best) & (share > 0.7 * share[best])
    apart = np.array(
        [int(median(sides.a.end[o] - sides.b.end[t])) for o, t in hypotheses], np.int64
    )
    compared = tuple(by.of(is_rival) for by in compared)
    rivals = Rivals(compared, pairs[is_rival], apart[is_rival], agree[is_rival])
    return tested(sides, *hypotheses[best], rivals, float(share[best]))


def _share(sides: Sides, left_rows: I64, right_rows: I64) -> float:
    """The share of operations that is matched, from the first to the last pair, of the rank with
    fewer operations there."""
    apart = int(median(sides.a.end[left_rows] - sides.b.end[right_rows]))
    slack = int(max(sides.a.gap, sides.b.gap) / 2)
    begin = max(0, apart) - slack
    stop = min(int(sides.a.end[-1]), int(sides.b.end[-1]) + apart) + slack
    inside = [
        int(np.count_nonzero((end >= begin) & (end <= stop)))
        for end in (sides.a.end, sides.b.end + apart)
    ]
    return len(left_rows) / max(min(inside), 1)


class _Nearest:
    """Finds the operation of a sequence that is of a kind and nearest to a time."""

    def __init__(self, beats: Beats, apart: int) -> None:
        self.of, self._apart = beats, apart
        key = beats.end + beats.token * apart
        self._order = np.argsort(key, kind="stable")
        self._key = key[self._order]

    def __call__(self, token: I64, time: I64) -> tuple[I64, I64]:
        """Row of the nearest, and how much later it is, ns; very large without candidates."""
        keys = time + token * self._apart
        after = np.clip(np.searchsorted(self._key, keys), 1, len(self._key) - 1)
        later, sooner = self._key[after] - keys, keys - self._key[after - 1]
        take = np.where(later < sooner, after, after - 1)
        return self._order[take], np.where(later < sooner, later, -sooner)


def _candidates(
    x: Beats, y: Beats, look: _Nearest, share: float, near: float, floor: float
) -> list[tuple[float, int, int]]:
    """Ways to let an operation of ``x`` fall on one of ``y``: how much better than usual those
    around it fit, the operation, and what is added to times of ``x``."""
    middle = int(share * (len(x) - 1))
    close = np.abs(np.arange(len(x)) - middle) <= max(len(x) // 12, 2)
    tokens, times = np.unique(y.token, return_counts=True)
    rare = np.where(close, times[np.searchsorted(tokens, x.token)], len(y) + 1)
    pivot = int(np.argmin(rare * (len(x) + 1) + np.abs(np.arange(len(x)) - middle)))
    low = int(np.clip(pivot - _AROUND // 2, 0, max(len(x) - _AROUND, 0)))
    around = np.arange(low, min(low + _AROUND, len(x)))
    around = around[around != pivot]
    offset = y.end[y.token == x.token[pivot]] - x.end[pivot]
    time = x.end[around] + offset[:, None]
    _, off = look(np.broadcast_to(x.token[around], time.shape), time)
    inside = (time > -near) & (time < float(y.end[-1]) + near)
    size = np.where(inside & (np.abs(off) <= near), off, np.nan).astype(np.float64)
    missed = (inside & np.isnan(size)).sum(axis=1)
    middle_of = _middle(size)
    logs = np.log(np.abs(np.nan_to_num(size - middle_of[:, None])) + floor)
    logs = np.where(np.isnan(size), 0.0, logs).sum(axis=1) + missed * math.log(near)
    count = inside.sum(axis=1)
    enough = (count >= FEWEST - 1) & (count - missed >= 2)
    if not enough.any():
        return []
    mean = logs / np.maximum(count, 1)
    usual = max(float(median(mean[enough])), math.log(near) - 1.5)
    better = np.sqrt(count) * (usual - mean)
    order = np.flatnonzero(enough)[np.argsort(-better[enough], kind="stable")][: 2 * _FOLLOWED]
    return [(float(better[i]), pivot, int(offset[i] + middle_of[i])) for i in order.tolist()]


def _middle(values: F64) -> F64:
    """Medians of rows, 0 of empty rows."""
    ordered = np.sort(values, axis=1)
    count = (~np.isnan(values)).sum(axis=1)
    middle = np.maximum(count - 1, 0) // 2
    return np.where(count > 0, np.nan_to_num(ordered[np.arange(len(values)), middle]), 0.0)


def _follow(x: Beats, look: _Nearest, pivot: int, offset: int, near: float) -> tuple[I64, I64]:
    """Pairs by time, from a first one on in both directions: the offset and drift of one part of
    the sequence predict the matches in the next part, which is three times as long."""
    correction = Correction(offset)
    reach, limit = _AROUND // 2, near
    while True:
        rows = np.arange(max(pivot - reach, 0), min(pivot + reach, len(x)))
        partner, off = look(x.token[rows], correction.of(x.end[rows]))
        good = np.abs(off) <= limit
        if np.count_nonzero(good) < FEWEST:
            break
        correction = _corrected(x.end[rows[good]], look.of.end[partner[good]], correction)
        if len(rows) == len(x):
            break
        reach *= 3
    partner, off = look(x.token, correction.of(x.end))
    usual = float(median(np.abs(off[np.abs(off) <= limit]))) if len(off) else 0.0
    good = np.abs(off) <= min(limit, max(20 * usual, 20.0 * FLOOR_NS))
    rows = np.flatnonzero(good)
    order = np.lexsort((np.abs(off[rows]), partner[rows]))  # each has one partner
    is_first = np.ones(len(order), bool)
    is_first[1:] = np.diff(partner[rows][order]) > 0
    chosen = np.sort(rows[order][is_first])
    ascending = np.ones(len(chosen), bool)
    ascending[1:] = partner[chosen][1:] > np.maximum.accumulate(partner[chosen])[:-1]
    chosen = chosen[ascending]
    return chosen, partner[chosen]


def _corrected(end: I64, other_end: I64, before: Correction) -> Correction:
    """The line through ends that belong together."""
    apart = other_end - end
    middle = int(median(end))
    drift = before.drift_ppt / 1e12
    half = len(end) // 2
    if half >= 4:
        run = (end[half:][:half] - end[:half]).astype(np.float64)
        rise = (apart[half:][:half] - apart[:half])[run > 0] / run[run > 0]
        drift = float(np.clip(median(rise), -FASTEST, FASTEST)) if len(rise) else drift
    residuals = apart - drift * (end - middle)
    return Correction(int(median(residuals)), round(drift * 1e12), middle)
