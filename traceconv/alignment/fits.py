"""Offsets from the ends of collectives: fits between the clocks of two ranks.

An operation that all ranks must reach ends at nearly the same true time on each; the ends differ
by microseconds of noise, which averages out. The difference of the ends over time is therefore
the offset between two clocks and its drift.
"""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from traceconv.core.clock import NO_CORRECTION, PPT, Correction
from traceconv.core.columns import F64, I64
from traceconv.core.robust import (
    Z99,
    Line,
    line,
    median,
    median_ns,
    normal_quantile,
    scale,
    student,
)

FEWEST = 3
"""Fewer matches than this prove nothing: any two ends are some offset apart."""

FASTEST = 200e-6
"""Quartz is good to 100 ppm, so two clocks differ by at most twice that."""

_NEAR_NS = 20_000  # a scatter below this is accepted whatever the gap between operations
_SCATTER = 0.1  # a scatter above this share of the gap: the ends are of different operations
_LOOSE = 0.03  # above this share of the gap, used only where "collective" was requested
_BROKEN = 0.1  # share of operations that may end before all have begun
_MEET = 3.0  # times that ends are nearer to each other than starts, where ranks wait for each other
SETTABLE_NS = 50_000  # a clock that was set by less is uncertain by that, by more it is refused
_SAME_FAMILY = 0.001  # probability of calling a clock set that was not
_FAR = 3.0  # standard deviations that may be chance
_BLOCK = 6  # values per block, at least, whose means are compared with the line
_BLOCKS = 8


class Uncertainty(msgspec.Struct, frozen=True):
    """How far a correction is off at most, 99 of 100 times: more, the further from where it was
    measured: ``sqrt(least_ns**2 + (growth * (t - at_ns))**2)``, t on the clock that is corrected.
    """

    least_ns: float = 0.0
    growth: float = 0.0
    at_ns: int = 0

    def of(self, ns: int) -> float:
        """At an instant, ns."""
        return math.hypot(self.least_ns, self.growth * (ns - self.at_ns))

    def plus(self, other: Uncertainty) -> Uncertainty:
        """The uncertainty of both corrections together; errors are independent."""
        curved = self.growth**2 + other.growth**2
        if not curved:
            return replace(self, least_ns=math.hypot(self.least_ns, other.least_ns))
        between = other.at_ns - self.at_ns
        share = other.growth**2 / curved
        apart = self.growth * math.sqrt(share) * between
        return Uncertainty(
            math.hypot(self.least_ns, other.least_ns, apart),
            math.sqrt(curved),
            self.at_ns + round(share * between),
        )


class Fit(msgspec.Struct, frozen=True):
    """How a clock relates to another.

    Attributes:
        correction: what is added to its stamps.
        error:     how far that may be off, but for the bias.
        bias_ns:   how much later than on the other clock ends seem to come on this, in truth. (They
            are not corrected by it: starts that are stamped too early would look the same.)
        bias_error_ns: how far that may be off; in ``error``.
        spread_ns: how far ends scatter around the fit (one standard deviation).
        matches:   operations it was made from.
        span_ns:   on its clock, the end of the first and of the last of them, or what several fits,
            one after the other, have in common of these: a clock that was set outside of it would
            not show.
        step_ns:   by how much one of both clocks seems to have been set between them, or, where so
            few are before or after that the error holds either way, ends may only have come late; 0
            if none.
        shift_ns:  by how much neighbours among them are off together, for a while: one of both
            clocks was set and set back, or they came late; 0 if none are.
        doubt:     why it is rejected, or "".
        loose:     why it is used only where "collective" was requested, or "".
    """

    correction: Correction = NO_CORRECTION
    error: Uncertainty = Uncertainty()
    bias_ns: float = 0.0
    bias_error_ns: float = 0.0
    spread_ns: float = 0.0
    matches: int = 0
    span_ns: tuple[int, int] = (0, 0)
    step_ns: float = 0.0
    shift_ns: float = 0.0
    doubt: str = ""
    loose: str = ""

    def error_ns(self, first: int, last: int) -> float:
        """How far the correction is off at most, 99 of 100 times, between two instants."""
        return abs(self.bias_ns) + max(self.error.of(first), self.error.of(last))

    def biased(self, ns: float, error_ns: float) -> Fit:
        """The fit with a known bias."""
        total_error = self.error.plus(Uncertainty(error_ns))
        return replace(self, error=total_error, bias_ns=ns, bias_error_ns=error_ns)

    def widened(self, ns: float) -> Fit:
        """The fit with a further error, independent of the rest."""
        return replace(self, error=self.error.plus(Uncertainty(ns)))

    def chained(self, outer: Fit) -> Fit:
        """This fit, and the one of the clock it leads to."""
        if not outer.matches:
            return self
        shift = outer.error.at_ns - self.correction.offset_ns
        first, last = (ns - self.correction.offset_ns for ns in outer.span_ns)
        first, last = max(self.span_ns[0], first), min(self.span_ns[1], last)
        return Fit(
            self.correction.then(outer.correction),
            self.error.plus(replace(outer.error, at_ns=shift)),
            self.bias_ns + outer.bias_ns,
            math.hypot(self.bias_error_ns, outer.bias_error_ns),
            math.hypot(self.spread_ns, outer.spread_ns),
            min(self.matches, outer.matches),
            (first, max(first, last)),
            max(self.step_ns, outer.step_ns, key=abs),
            max(self.shift_ns, outer.shift_ns),
            loose=self.loose or outer.loose,
        )


Stamps = tuple[I64, I64]
"""Starts and ends of operations, ns, each on its rank's clock."""


def fitted(
    own: Stamps,
    other: Stamps,
    synchronous: NDArray[np.bool_],
    meeting: bool,
    identified: bool = False,
) -> Fit:
    """What puts one rank's stamps on the clock of another.

    Args:
        own, other: the same operations.
        synchronous: per operation: whether it ends on no rank before it has begun on all.
        meeting: whether these are operations in which ranks wait for each other, as far as that is
            known beforehand; otherwise it has to show.
        identified: whether the source says which operations are the same: then ends may scatter as
            they like, which the error holds.
    """
    order = np.argsort(own[1], kind="stable")
    own, other = ((t[0][order], t[1][order]) for t in (own, other))
    end, apart = own[1], other[1] - own[1]
    n = len(end)
    if n < FEWEST:
        return Fit(matches=n, doubt=f"{n} matched operations are too few, {FEWEST} are needed")
    zero, offset = int(end[0]), median_ns(apart)
    x, y = ((t - t0).astype(np.float64) for t, t0 in ((end, zero), (apart, offset)))
    trend = _drift_or_not(x, y)
    size, after = _step(x, y, trend)
    beyond = int(np.count_nonzero(x >= after))
    edge = size != 0 and min(beyond, n - beyond) < FEWEST
    if abs(size) > SETTABLE_NS and not (edge and identified):
        return Fit(
            matches=n,
            step_ns=size,
            doubt=(
                f"from {after / 1e9:.3f} s after their first match on, ends are "
                f"{abs(size) / 1e3:.1f} µs further apart than before: a clock was set, or one of "
                "the ranks ended later from then on"
            ),
        )
    if abs(trend.slope) > FASTEST:
        return Fit(matches=n, doubt=f"the clocks would differ by {trend.slope * 1e6:.0f} ppm")
    centre = zero + round(trend.at)
    at_centre = offset + round(float(trend.levels[0]))
    correction = Correction(at_centre, round(trend.slope * PPT), centre)
    grain = (_resolution(own[1]) + _resolution(other[1])) / 2 - 1
    unexplained = abs(size) + _q(trend) * trend.sigma if edge else size
    least = math.hypot(_q(trend) * trend.level_error, _bent(x, trend), unexplained, grain) + 1
    shift = _shifted(trend, least)
    least += shift + _q(trend) * trend.sigma * (shift > 0)
    growth = _q(trend) * trend.slope_error if trend.slope else FASTEST
    span = int(end[0]), int(end[-1])
    error = Uncertainty(least, growth, centre)
    fit = Fit(
        correction, error, spread_ns=trend.sigma, matches=n, span_ns=span, step_ns=size,
        shift_ns=shift,
    )  # fmt: skip
    gap = float(median(np.diff(end)))
    return replace(
        fit,
        doubt=_doubt(fit, own, other, synchronous)
        or ("" if meeting else _as_far_apart(fit, own, other))
        or ("" if identified else _scatter_message(fit, gap, _SCATTER)),
        loose=_scatter_message(fit, gap, _LOOSE),
    )


def _q(trend: Line) -> float:
    """How many standard errors hold the truth 99 of 100 times."""
    return student(Z99, trend.dof)


def _drift_or_not(x: F64, y: F64) -> Line:
    """The line that is less uncertain at the ends: with a drift, or without one, but for what any
    clock may drift."""
    flat = line(x, y, drifting=False)
    reach = max(flat.at - x[0], x[-1] - flat.at)
    if len(x) < FEWEST + 1:
        return flat
    steep = line(x, y)
    possible = _q(steep) * steep.slope_error + FASTEST
    if FASTEST < abs(steep.slope) < possible:
        return flat
    errors = (
        math.hypot(_q(flat) * flat.level_error, FASTEST * reach),
        _q(steep) * math.hypot(steep.level_error, steep.slope_error * reach),
    )
    return steep if errors[1] < errors[0] else flat


def _resolution(stamps: I64) -> int:
    """The largest unit that all stamps are multiples of, apart from where they begin; ns."""
    return int(np.gcd.reduce(stamps - stamps[0])) or 1


# -- clocks that were set ----------------------------------------------------------------------


def _step(x: F64, y: F64, trend: Line) -> tuple[float, float]:
    """By how much a clock was set, ns, and after which ``x``; zeros if it was not.

    The place is where medians left and right differ most. A step needs three values on either
    side, or to be clearly more than any other value is off.
    """
    n = len(x)
    if n < 2 * FEWEST:
        return 0.0, 0.0
    width = min(5, n // 2)
    windows = median(np.lib.stride_tricks.sliding_window_view(trend.rest, width))
    jump = np.zeros(n)
    jump[width : n - width + 1] = windows[width:] - windows[:-width]
    for few in range(1, width):
        jump[few] = median(trend.rest[few : few + width]) - median(trend.rest[:few])
        ahead = trend.rest[max(n - few - width, 0) : n - few]
        jump[n - few] = median(trend.rest[n - few :]) - median(ahead)
    least = np.minimum(np.arange(n), n - np.arange(n))
    for position in np.argsort(-np.abs(jump) * np.sqrt(np.minimum(least, width)))[:2].tolist():
        if least[position] >= FEWEST:
            stepped = line(x, y, step=position)
            size, error = float(stepped.levels[0]), stepped.level_error
            if abs(size) > student(Z99, stepped.dof) * error:  # else it is less than what counts
                z = normal_quantile(1 - _SAME_FAMILY / 2 / n)
                if abs(size) > student(z, stepped.dof) * error:
                    return size, float(x[position])
            continue
        alone = np.arange(n) < position if position < FEWEST else np.arange(n) >= position
        if abs(jump[position]) > 4 * np.abs(trend.rest[~alone]).max() + trend.sigma:
            return float(jump[position]), float(x[position])
    return 0.0, 0.0


def _shifted(trend: Line, error: float) -> float:
    """By how much neighbours are off together at most, ns, by more than is stated and scatters; 0
    if none are beyond chance.

    Any values might be the largest, and any are next to each other. That they exceed all others by
    a factor is the less likely, with tails as heavy as those of a Cauchy distribution in inverse
    proportion.
    """
    n, off = len(trend.rest), np.abs(trend.rest)
    far = np.where(off > max(error, _FAR * trend.sigma), np.sign(trend.rest), 0)
    borders = np.flatnonzero(np.diff(far, prepend=0, append=0)).tolist()
    largest = 0.0
    for start, stop in pairwise(borders):
        often = stop - start
        if far[start] == 0 or often < 2:
            continue
        least = float(off[start:stop].min())
        elsewhere = np.delete(off, np.s_[start:stop])
        above = int(np.count_nonzero(elsewhere >= least))
        times = max(least / max(float(elsewhere.max(initial=0)), 1.0), 1.0)
        chance = math.log(n) + often * math.log((above + often) / n / 2 / times) + math.log(2)
        if chance < math.log(_SAME_FAMILY):
            largest = max(largest, float(off[start:stop].max()))
    return largest


def _bent(x: F64, trend: Line) -> float:
    """How far means of neighbours are from the line beyond chance, ns: a clock whose pace
    changes, as it does with temperature."""
    n = len(x)
    blocks = min(_BLOCKS, n // _BLOCK)
    if blocks < 3:
        return 0.0
    drawn = np.clip(trend.rest, -1.5 * trend.sigma, 1.5 * trend.sigma)
    edges = np.linspace(0, n, blocks + 1).astype(int)
    means = np.add.reduceat(drawn, edges[:-1]) / np.diff(edges)
    usual = float(drawn.std()) + 1e-6
    dof = blocks - 2
    chi = float((means**2 * np.diff(edges)).sum()) / usual**2
    bound = dof * (1 - 2 / (9 * dof) + Z99 * math.sqrt(2 / (9 * dof))) ** 3
    return 2 * float(np.abs(means).max()) if chi > bound else 0.0


# -- what makes no sense ------------------------------------------------------------------


def _doubt(fit: Fit, own: Stamps, other: Stamps, synchronous: NDArray[np.bool_]) -> str:
    """Message if operations would end before they have begun everywhere, or ""."""
    slack = round(3 * fit.spread_ns + fit.error.least_ns + _NEAR_NS)
    start, end = (fit.correction.of(column) for column in own)
    broken = synchronous & ((start > other[1] + slack) | (other[0] > end + slack))
    if np.count_nonzero(broken) > _BROKEN * len(start):
        return f"{np.count_nonzero(broken)} of {len(start)} would end before all have begun"
    return ""


def _as_far_apart(fit: Fit, own: Stamps, other: Stamps) -> str:
    """Message if ends are as far from each other as starts, or ""."""
    starts = other[0] - fit.correction.of(own[0])
    apart = scale((starts - median_ns(starts)).astype(np.float64), len(starts))
    if fit.spread_ns < max(apart / _MEET, _NEAR_NS):
        return ""
    return (
        f"ends scatter by {fit.spread_ns / 1e3:.1f} µs, starts by {apart / 1e3:.1f} µs: nothing "
        "shows that ranks wait for each other there"
    )


def _scatter_message(fit: Fit, gap_ns: float, limit: float) -> str:
    """Message if ends scatter by more than the share ``limit`` of the gap, or ""."""
    if fit.spread_ns <= max(_NEAR_NS, limit * gap_ns):
        return ""
    return (
        f"ends scatter by {fit.spread_ns / 1e3:.1f} µs, operations are {gap_ns / 1e3:.1f} µs apart"
    )
