"""Hypotheses about two sequences of collectives: which are likely, by the times between operations.

The ranks of a group issue the same collectives in the same order, but captures begin and end at
different ones, and some operations are missing. Training repeats itself, so kinds and sizes fit at
many places. What tells these apart is the *pace*: the time from one operation to the next, which
both ranks see alike but for noise, differs from step to step.

Each way to pair the two sequences is a hypothesis. One is chosen, and all others are tested
against it: were the captures shifted by a step, would the times from operation to operation fit
about as well? If so, only numbers of steps or the stamps of the files can tell, and
:class:`Pairing` says which hypotheses are left. How sure the choice is, is stated as the logarithm
of odds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from traceconv.core.columns import F64, I64
from traceconv.core.robust import median

CERTAIN = 5.0
"""Logarithm of the odds at which a hypothesis is accepted: 150 to 1. (On sequences without any pace
these are reached by chance once in 10,000.)"""

_FEW = 20.0  # more for few pairs, divided by their number

FEWEST = 3
"""Fewer pairs than this prove nothing: any two ends are some offset apart."""

_NUMBERED = 10.0  # what numbers of steps count where they are known to be those of the job
_AGREED = 0.8  # share of pairs whose numbers of steps have to be equal for that
_ENOUGH = 0.5  # share of operations that have to be matched where both captures were running
_OVERLAP = 0.5  # of the shorter capture, too: the ends of captures fit by chance if steps are alike
RIVAL = 0.7  # share of the pairs that a hypothesis needs for its fit to count
_FREEDOM = 4.0
_ROUNDS = 12
FLOOR_NS = 500.0  # noise below this is taken for this
_STRANGE = 10.0  # times the usual noise: more than a fifth of these, and operations are missing
_STRANGERS = 0.2
_BY_CHANCE = 0.001
_NO_MORE = 2.0  # times larger values may be by chance
FASTEST = 300e-6  # two clocks never drift apart more than that
_NEAR_NS = 10_000  # stamps are not expected to agree better than that


class Timed(msgspec.Struct, frozen=True):
    """The operations of one rank in one group, by end.

    Attributes:
        rank:  whose.
        rows:  in that rank's records.
        token: int64, equal for what may be the same.
        step:  int64, -1 if it belongs to none.
        start_ns, end_ns: int64, on the rank's own clock.
        identity: int64, see :class:`.CollectiveRecords`; empty if nothing is known.
    """

    rank: int
    rows: I64
    token: I64
    step: I64
    start_ns: I64
    end_ns: I64
    identity: I64

    def __len__(self) -> int:
        return len(self.token)


class Pairing(msgspec.Struct, frozen=True):
    """The most likely hypothesis about two sequences, and what is left of the others.

    Attributes:
        ours, theirs: int64, rows of one and of the other that belong together, both ascending.
        apart_ns: what has to be added to the other's ends to meet those of the one.
        odds:    logarithm of the odds against the most likely other hypothesis.
        rivals_ns: what ``apart_ns`` would be by the other hypotheses that are not refuted.
        unseen:  whether one of them is that the captures have no operation in common.
        common_ns: between which values of ``apart_ns`` they have some.
        doubt:   why it makes no sense, or "".
        identified: whether the source says which belong together.
    """

    ours: I64
    theirs: I64
    apart_ns: int = 0
    odds: float = 0.0
    rivals_ns: I64 = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    unseen: bool = True
    common_ns: tuple[int, int] = (0, 0)
    doubt: str = ""
    identified: bool = False

    def __len__(self) -> int:
        return len(self.ours)

    def why_not(self, stamped_ns: int | None) -> str:
        """Why it is not accepted, or "".

        Args:
            stamped_ns: what ``apart_ns`` is by what the files say of their clocks; None if they say
                nothing. Nobody knows of which order of magnitude clocks are wrong, so an error is
                as much less likely as it is larger.
        """
        if self.doubt or self.identified or self.odds >= CERTAIN:
            return self.doubt
        if stamped_ns is not None:
            far = np.abs(self.rivals_ns - stamped_ns).astype(np.float64)
            low, high = self.common_ns
            if self.unseen:
                away = max(min(stamped_ns - low, high - stamped_ns), 0)
                far = np.append(far, away)
            own_error = max(abs(self.apart_ns - stamped_ns), _NEAR_NS)
            if (
                not len(far)
                or self.odds + math.log(max(float(far.min()), 1.0) / own_error) >= CERTAIN
            ):
                return ""
        if not len(self.rivals_ns):
            return (
                "nothing shows that both captures hold the same operations: they are too few, or "
                "too regular"
            )
        shift = int(np.abs(self.rivals_ns - self.apart_ns).min())
        return (
            f"times between operations are so regular that they fit as well {shift / 1e6:.3f} ms "
            "further on"
        )


def nothing(doubt: str) -> Pairing:
    """No pairs, and why."""
    return Pairing(np.empty(0, np.int64), np.empty(0, np.int64), doubt=doubt)


class Beats:
    """When operations ended that the other rank may have, too; times since the first of them.

    Attributes:
        zero_ns: the end of the first.
        end:   int64, ns.
        token, step: int64.
        gap:   the usual time between two operations of one sort, ns.
        grain: what all stamps are multiples of, ns.
        counts: whether steps are numbered.
    """

    def __init__(self, timed: Timed, rows: NDArray[np.intp]) -> None:
        self.zero_ns = int(timed.end_ns[rows[0]])
        self.end = timed.end_ns[rows] - self.zero_ns
        self.token, self.step = timed.token[rows], timed.step[rows]
        self.grain = int(np.gcd.reduce(self.end)) or 1
        self.counts = bool((self.step >= 0).all() and np.ptp(self.step))
        order = np.lexsort((self.end, self.token))
        same_token = np.diff(self.token[order]) == 0
        gaps = np.diff(self.end[order])[same_token]
        self.gap = float(median(gaps)) if len(gaps) else float(max(self.end[-1], 1))

    def __len__(self) -> int:
        return len(self.end)


class Sides(msgspec.Struct, frozen=True):
    """Two sequences; ``numbered``: numbers of steps are those of the job."""

    a: Beats
    b: Beats
    numbered: bool

    @property
    def floor(self) -> float:
        """The least noise to reckon with, ns."""
        return max(FLOOR_NS, 0.5 * self.a.grain, 0.5 * self.b.grain)

    def agree(self, left: I64, right: I64) -> bool:
        """Whether pairs have equal numbers of steps."""
        return bool(np.mean(self.a.step[left] == self.b.step[right]) >= _AGREED)


# -- hypotheses and how they fit ---------------------------------------------------------------


class Found(msgspec.Struct, frozen=True):
    """A hypothesis: pairs, and how others compare.

    Attributes:
        sides:  the sequences.
        ours, theirs: the pairs.
        noise:  scatter of the times between operations, ns.
        others: what ``apart`` is by the other hypotheses, ns, relative to the first ends.
        odds:   logarithm of the odds against each of them.
        unseen: the same against the captures having nothing in common.
        clean:  whether hardly any of the pairs are off.
        share:  of the operations that both captures should have, those that are matched.
    """

    sides: Sides
    ours: I64
    theirs: I64
    noise: float
    others: I64
    odds: F64
    unseen: float
    clean: bool
    share: float

    @property
    def certain(self) -> bool:
        """Whether nothing else comes near."""
        return min(self.unseen, float(self.odds.min(initial=np.inf))) >= CERTAIN

    def better_than(self, other: Found) -> bool:
        """Whether more pairs fit, or pairs fit better, by more than chance."""
        own_weight, its = (math.sqrt(len(f.ours)) for f in (self, other))
        level = math.log(max(self.noise, other.noise)) + 1.0
        return own_weight * (level - math.log(self.noise)) > its * (level - math.log(other.noise))

    def pairing(self, rows: NDArray[np.intp], other_rows: NDArray[np.intp]) -> Pairing:
        """The pairing, with rows of the whole sequences."""
        a, b = self.sides.a, self.sides.b
        zero = a.zero_ns - b.zero_ns
        apart = zero + int(median(a.end[self.ours] - b.end[self.theirs]))
        least = float(min(self.odds.min(initial=np.inf), self.unseen))
        doubt = ""
        if self.share < _ENOUGH:
            doubt = (
                f"{100 * self.share:.0f} % of the operations match where both captures were "
                f"running; {100 * _ENOUGH:.0f} % needed"
            )
        elif not self.sides.numbered and len(self.ours) < _OVERLAP * min(len(a), len(b)):
            doubt = (
                f"{len(self.ours)} of {min(len(a), len(b))} operations match, which are less than "
                "half of the shorter capture, and no numbers of steps say which these are"
            )
        elif lonely := self._lonely():
            doubt = (
                f"the last {lonely} operations in the time that both captures cover have no match "
                "in the other: a clock was changed, or the programs differ"
            )
        ours, theirs = self._with_late()
        return Pairing(
            rows[ours],
            other_rows[theirs],
            apart,
            least,
            zero + self.others[self.odds < CERTAIN],
            self.unseen < CERTAIN,
            (zero - int(b.end[-1]), zero + int(a.end[-1])),
            doubt,
        )

    def _with_late(self) -> tuple[I64, I64]:
        """The pairs, and operations that one rank ended later than usual: they have the same place
        between the same pairs, and are nearer to each other than to others of their sort."""
        a, b = self.sides.a, self.sides.b
        shift = self.theirs - self.ours
        rows = np.arange(len(a))
        before = np.searchsorted(self.ours, rows, "right") - 1
        after = np.searchsorted(self.ours, rows)
        partner = rows + shift[np.maximum(before, 0)]
        same = partner == rows + shift[np.minimum(after, len(shift) - 1)]
        same &= (partner >= 0) & (partner < len(b))
        rows, partner = rows[same], partner[same]
        apart = np.interp(rows, self.ours, a.end[self.ours] - b.end[self.theirs])
        off = np.abs(a.end[rows] - b.end[partner] - apart)
        paired = np.isin(rows, self.ours)
        late = (a.token[rows] == b.token[partner]) & (off < min(a.gap, b.gap) / 4)
        return rows[paired | late], partner[paired | late]

    def _lonely(self) -> int:
        """How many operations of both at either end have no partner though both captures were
        running; 0 if that may be chance, as others in between have none either."""
        a, b = self.sides.a, self.sides.b
        slack = int(max(a.gap, b.gap) / 2)
        count = len(self.ours)
        spans = [int(rows[-1] - rows[0]) + 1 - count for rows in (self.ours, self.theirs)]
        usual = (min(spans) + 1) / (count + min(spans) + 1)
        loneliest = 0
        for sign, edge in ((-1, 0), (1, -1)):
            apart = int(a.end[self.ours[edge]] - b.end[self.theirs[edge]])
            end = int(sign * min(sign * int(a.end[edge]), sign * (int(b.end[edge]) + apart)))
            last_end = int(a.end[self.ours[edge]])
            outside = [
                int(np.count_nonzero((sign * (t - last_end) > 0) & (sign * (t - end) <= -slack)))
                for t in (a.end, b.end + apart)
            ]
            loneliest = max(loneliest, min(outside))
        return loneliest if usual**loneliest < _BY_CHANCE else 0


def steps_between(sides: Sides, rows: I64, other_rows: I64) -> tuple[F64, F64]:
    """By how much the times from pair to pair differ between the ranks, and these times."""
    long = np.diff(sides.b.end[other_rows]).astype(np.float64)
    return np.diff(sides.a.end[rows]) - long, long


def drift_of(differ: F64, long: F64) -> float:
    """By how much the times between pairs differ per time, within the drift of clocks."""
    positive = long > 0
    if not positive.any():
        return 0.0
    return float(np.clip(median(differ[positive] / long[positive]), -FASTEST, FASTEST))


def usual_size(values: F64, floor: float) -> F64:
    """The geometric mean of the sizes of values by row, which single ones do not spoil; NaN is no
    value."""
    is_known = ~np.isnan(values)
    logs = np.where(is_known, np.log(np.abs(values) + floor), 0.0).sum(axis=1)
    size: F64 = np.exp(logs / np.maximum(is_known.sum(axis=1), 1))
    return size


def _likelihood(values: F64, floor: float) -> tuple[F64, F64]:
    """The logarithm of how likely rows of values are, as noise of that scale that makes them
    likeliest, and that scale; NaN is no value. Noise is taken as Student's: single values may be
    far off."""
    is_known = ~np.isnan(values)
    count = np.maximum(is_known.sum(axis=1), 1)
    square = np.where(is_known, values * values, 0.0)
    scale = 2.5 * usual_size(values, floor) ** 2
    weighted = np.empty_like(square)
    for _ in range(_ROUNDS):
        # The mean of the squares, each weighted by (_FREEDOM + 1) / (_FREEDOM + square / scale).
        np.add(square, _FREEDOM * scale[:, None], out=weighted)
        np.divide(square, weighted, out=weighted)
        scale = np.maximum(
            (_FREEDOM + 1) * scale * np.add.reduce(weighted, axis=1) / count, floor**2
        )
    deviation = (_FREEDOM + 1) / 2 * np.log1p(square / scale[:, None] / _FREEDOM).sum(axis=1)
    return -count * np.log(scale) / 2 - deviation, np.sqrt(scale)


def _likelihoods(floor: float, *tables: F64) -> list[F64]:
    """The first of :func:`_likelihood` for several tables at once: a call costs more than rows."""
    rows = np.cumsum([0, *map(len, tables)])
    stacked = np.full((rows[-1], max(table.shape[1] for table in tables)), np.nan)
    for begin, table in zip(rows.tolist(), tables, strict=False):
        stacked[begin : begin + len(table), : table.shape[1]] = table
    return np.split(_likelihood(stacked, floor)[0], rows[1:-1])


def _contrast(reference: F64, candidates: F64, floor: float, usual: F64 | None = None) -> F64:
    """Per row of others, the logarithm of how much likelier it is that its noise is larger than
    that of ``reference`` than that it is the same; negative where it is less.

    Args:
        usual: values that are from the larger one of both, if some are known.
    """
    known_usual = np.empty(0) if usual is None else usual
    repeated, large = (
        np.broadcast_to(v, (len(candidates), len(v))) for v in (reference, known_usual)
    )
    if usual is None:
        own_fit, its, all_same = _likelihoods(
            floor, reference[None], candidates, np.hstack((repeated, candidates))
        )
        count = np.maximum((~np.isnan(candidates)).sum(axis=1), 1)
        ratio = own_fit + its - all_same
        return np.where(own_fit / len(reference) >= its / count, ratio, -ratio)
    tables = (
        reference[None],
        candidates,
        np.hstack((candidates, large)),
        np.hstack((repeated, large)),
    )
    own_fit, its, both_large, apart = _likelihoods(floor, *tables)
    return own_fit + both_large - its - apart


class Contrast(msgspec.Struct, frozen=True):
    """Other hypotheses against the chosen one, one per row, by times between pairs so far apart.

    Attributes:
        own:    by how much these times differ by the chosen one, ns.
        others: the same by the others; NaN where there is no pair.
        odds:   see :func:`_contrast`.
        few:    how much less sure these are.
    """

    own: F64
    others: F64
    odds: F64
    few: float

    def of(self, rows: NDArray[Any]) -> Contrast:
        """The contrast of some rows."""
        return replace(self, others=self.others[rows], odds=self.odds[rows])


def contrasts(differ: Sequence[F64], row: int, floor: float) -> tuple[Contrast, ...]:
    """All rows against one, by each distance at which that has enough pairs.

    Args:
        differ: by how much times from pair to pair differ by each hypothesis, ns, NaN where there
            is no pair: for neighbours, and once each for some distances. Noise of ends does not add
            up between these, but what differs from step to step does.
    """
    reference = [by_distance[row] for by_distance in differ]
    return tuple(
        Contrast(
            own_values,
            its,
            _contrast(own_values, its, floor),
            _FEW / np.count_nonzero(~np.isnan(by_distance)),
        )
        for by_distance, own_values, its in zip(
            reference, _pooled(reference, floor), differ, strict=True
        )
        if len(own_values) >= FEWEST
    )


class Rivals(msgspec.Struct, frozen=True):
    """Other hypotheses, one per row.

    Attributes:
        contrasts: how they compare with the chosen one.
        pairs:  how many pairs each has.
        apart:  int64, ns.
        agree:  whether numbers of steps do.
    """

    contrasts: tuple[Contrast, ...]
    pairs: I64
    apart: I64
    agree: NDArray[np.bool_]


def tested(sides: Sides, rows: I64, other_rows: I64, rivals: Rivals, share: float) -> Found:
    """A hypothesis, tested against others.

    What counts is how much likelier two different scales of noise are than one. Others that have
    too few pairs to say something by themselves, and that the captures have nothing in common,
    are as likely as the likeliest of the rest, as then the fit of this one were chance, too; unless
    those few are so far off that they say something after all.
    """
    differ, long = steps_between(sides, rows, other_rows)
    differ = differ - drift_of(differ, long) * long
    low = max(float(np.quantile(np.abs(differ), 0.25)) / 0.32, sides.floor)
    clean = float(np.mean(np.abs(differ) > _STRANGE * low)) <= _STRANGERS
    noise = float(_likelihood(differ[None], sides.floor)[1][0])
    odds, unseen = np.zeros(len(rivals.pairs)), 0.0
    has_enough = rivals.pairs - 1 >= max(
        RIVAL * min(len(differ), rivals.pairs.max(initial=0)), FEWEST
    )
    if has_enough.any():
        odds = _odds(rivals.contrasts, has_enough, sides.floor)
        unseen = max(float(odds[has_enough].min()), 0.0)
    if sides.numbered:
        agree = sides.agree(rows, other_rows)
        odds = odds + _NUMBERED * (float(agree) - rivals.agree)
        unseen += _NUMBERED * (1 if agree else -1)
    odds = np.maximum(odds, 0.0)
    return Found(sides, rows, other_rows, noise, rivals.apart, odds, max(unseen, 0.0), clean, share)


def _odds(compared: Sequence[Contrast], has_enough: NDArray[np.bool_], floor: float) -> F64:
    """Logarithm of the odds against each of others, by that distance that tells most; see
    :func:`tested`."""
    odds = np.full(len(has_enough), -math.inf)
    for by in compared:
        odds[has_enough] = np.maximum(odds[has_enough], _less(by.odds[has_enough], by.few))
    if has_enough.all():
        return odds
    least = np.flatnonzero(has_enough)[np.argmin(odds[has_enough])]
    for by in compared:
        usual = by.others[least][~np.isnan(by.others[least])]
        sparse = by.others[~has_enough]
        alone = _FEW / np.maximum((~np.isnan(sparse)).sum(axis=1), 1)
        fair = _less(_contrast(by.own, sparse, floor, usual), by.few)
        off = _less(by.odds[~has_enough], np.maximum(alone, by.few))
        odds[~has_enough] = np.maximum(odds[~has_enough], np.maximum(fair, off))
    return odds


def _less(odds: F64, few: float | F64) -> F64:
    """Odds, reduced towards 0 by ``few``."""
    return np.where(odds > 0, np.maximum(odds - few, 0.0), odds)


def _pooled(reference: Sequence[F64], floor: float) -> Iterator[F64]:
    """Values by distance, without NaN. If noise does not add up (values of a larger distance do not
    exceed those of neighbours), the values of neighbours are used there, too."""
    near = reference[0][~np.isnan(reference[0])]
    yield near
    for values in reference[1:]:
        far = values[~np.isnan(values)]
        if len(far) and usual_size(far[None], floor) < _NO_MORE * usual_size(near[None], floor):
            far = np.concatenate((near, far))
        yield far


def likeliest(differ: Sequence[F64], pairs: I64, floor: float) -> int:
    """The row whose values are smaller than usual by the least chance: of neighbours, unless these
    do not tell it from one that is better by larger distances."""
    has_enough = pairs >= pairs.max() / 2
    best = _smallest(differ[0], has_enough, floor)
    long = pairs >= RIVAL * pairs.max()
    for by_distance in differ[1:]:
        candidate = _smallest(np.where(long[:, None], by_distance, np.nan), has_enough, floor)
        samples = [
            d[r][~np.isnan(d[r])] for d in (differ[0], by_distance) for r in (best, candidate)
        ]
        if candidate == best or min(map(len, samples)) < FEWEST:
            continue
        sure = float(_contrast(samples[0], samples[1][None], floor)[0])
        if sure < CERTAIN <= float(_contrast(samples[3], samples[2][None], floor)[0]):
            best = candidate
    return best


def _smallest(differ: F64, has_enough: NDArray[np.bool_], floor: float) -> int:
    count = (~np.isnan(differ)).sum(axis=1)
    size = np.log(usual_size(differ, floor))
    usual = (
        float(median(size[has_enough & (count > 0)])) if (has_enough & (count > 0)).any() else 0.0
    )
    return int(np.argmax(np.where(count > 0, np.sqrt(count) * (usual - size), -np.inf)))


def preferred(
    sides: Sides,
    differ: Sequence[F64],
    pairs: I64,
    agree: NDArray[np.bool_],
    best: int,
    straight: NDArray[np.intp],
) -> tuple[int, tuple[Contrast, ...]]:
    """Among the rows that fit about as well as the best: the one whose numbers of steps agree, if
    these are those of the job, else the one that is not shifted; and how all compare with it."""
    about = np.ones(len(pairs), bool)
    compared = contrasts(differ, best, sides.floor)
    for by in compared:
        about &= by.odds < CERTAIN
    chosen = best
    if sides.numbered and (about & agree).any():
        chosen = int(np.argmax(np.where(about & agree, pairs, -1)))
    elif len(straight) and len(sides.a) == len(sides.b) and about[straight[0]]:
        chosen = int(straight[0])
    return chosen, compared if chosen == best else contrasts(differ, chosen, sides.floor)
