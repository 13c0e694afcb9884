"""Offsets from the ends of collectives: fits between two ranks, chained over all ranks.

An operation that all ranks must reach ends at nearly the same true time on each; the ends differ
by microseconds of noise, which averages out. The difference of the ends over time is therefore
the offset between two clocks and its drift.

What does not average out is a *bias*: the ends of one rank may always come, or be stamped, later
than those of another. Where either is the last to come, the time it is inside is that of the
operation itself, with its own bias; so what differs between these times is the bias between the two
ends. For ranks that never come last, it is taken to be what it is among the others; where that is
not known either, it is taken to be less than the shortest such operation.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_matching import Matched, matched
from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.alignment.offsets import Offset
from traceconv.core.clock import NO_CORRECTION, PPT, Correction
from traceconv.core.columns import F64, I64
from traceconv.core.robust import Z99, Line, line, median_ns, scale, student

FEWEST = 3
"""Fewer matches than this prove nothing: any two ends are some offset apart."""

FASTEST = 200e-6
"""Quartz is good to 100 ppm, so two clocks differ by at most twice that."""

_NEAR_NS = 20_000  # a scatter below this is accepted whatever the gap between operations
_SCATTER = 0.1  # a scatter above this share of the gap: the ends are of different operations
_LOOSE = 0.03  # above this share of the gap, used only where "collective" was requested
_BROKEN = 0.1  # share of operations that may end before all have begun
_MEET = 3.0  # times that ends are nearer to each other than starts, where ranks wait for each other
_SETTABLE_NS = 50_000  # a clock that was set by less is uncertain by that, by more it is refused
_SAME_FAMILY = 0.001  # probability that a clock that was not set is said to have been
_BLOCK = 6  # values per block, at least, whose means are compared with the line
_BLOCKS = 8
_FEW_BIASED = 4  # ranks whose bias must be known for it to be expected of others

_OUTSIDE = 0.2  # so much of a capture outside its matched operations is said

_SYNCHRONOUS = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""Kinds that end on no rank before they have begun on all."""


@dataclass(frozen=True)
class Uncertainty:
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
        """Of both corrections together; errors are independent."""
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


@dataclass(frozen=True)
class Fit:
    """How a clock relates to another.

    Attributes:
        correction: what is added to its stamps.
        error:     how far that may be off.
        spread_ns: how far ends scatter around the fit (one standard deviation).
        matches:   operations it was made from.
        span_ns:   on its clock, the end of the first and of the last of them.
        doubt:     why it is rejected, or "".
        loose:     why it is used only where "collective" was requested, or "".
    """

    correction: Correction = NO_CORRECTION
    error: Uncertainty = Uncertainty()
    spread_ns: float = 0.0
    matches: int = 0
    span_ns: tuple[int, int] = (0, 0)
    doubt: str = ""
    loose: str = ""

    def chained(self, outer: Fit) -> Fit:
        """This fit, and the one of the clock it leads to."""
        if not outer.matches:
            return self
        shift = outer.error.at_ns - self.correction.offset_ns
        return Fit(
            self.correction.then(outer.correction),
            self.error.plus(replace(outer.error, at_ns=shift)),
            math.hypot(self.spread_ns, outer.spread_ns),
            min(self.matches, outer.matches),
            self.span_ns,
            loose=self.loose or outer.loose,
        )


Stamps = tuple[I64, I64]
"""Starts and ends of operations, ns, each on its rank's clock."""

Spans: TypeAlias = Mapping[int, tuple[int, int] | None]
"""Earliest start and latest end of every rank, ns on its own clock."""


def fitted(own: Stamps, other: Stamps, synchronous: NDArray[np.bool_], meeting: bool) -> Fit:
    """What puts one rank's stamps on the clock of another.

    Args:
        own, other: the same operations.
        synchronous: per operation: whether it ends on no rank before it has begun on all.
        meeting: whether these are operations in which ranks wait for each other, as far as that is
            known beforehand; otherwise it has to show.
    """
    order = np.argsort(own[1], kind="stable")
    own, other = ((t[0][order], t[1][order]) for t in (own, other))
    end, apart = own[1], other[1] - own[1]
    n = len(end)
    if n < FEWEST:
        return Fit(matches=n, doubt=f"{n} matched operations are too few")
    zero, offset = int(end[0]), median_ns(apart)
    x, y = ((t - t0).astype(np.float64) for t, t0 in ((end, zero), (apart, offset)))
    known = _drift_or_not(x, y)
    size, after = _step(x, y, known)
    if abs(size) > _SETTABLE_NS:
        return Fit(matches=n, doubt=_was_set(size, after))
    if abs(known.slope) > FASTEST:
        return Fit(matches=n, doubt=f"the clocks would differ by {known.slope * 1e6:.0f} ppm")
    centre = zero + round(known.at)
    at_centre = offset + round(float(known.levels[0]))
    correction = Correction(at_centre, round(known.slope * PPT), centre)
    grain = (_resolution(own[1]) + _resolution(other[1])) / 2 - 1
    least = math.hypot(_q(known) * known.level_error, _bent(x, known), size, grain) + 1
    growth = _q(known) * known.slope_error if known.slope else FASTEST
    span = int(end[0]), int(end[-1])
    fit = Fit(correction, Uncertainty(least, growth, centre), known.sigma, n, span)
    gap = float(np.median(np.diff(end)))
    return replace(
        fit,
        doubt=_doubt(fit, own, other, synchronous)
        or ("" if meeting else _apart(fit, own, other))
        or _scattered(fit, gap, _SCATTER),
        loose=_scattered(fit, gap, _LOOSE),
    )


def _q(known: Line) -> float:
    """How many standard errors hold the truth 99 of 100 times."""
    return student(Z99, known.dof)


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


# -- what is no line ----------------------------------------------------------------------


def _step(x: F64, y: F64, known: Line) -> tuple[float, float]:
    """By how much a clock was set, ns, and after which ``x``; zeros if it was not.

    The place is where medians left and right differ most. A step needs three values on either
    side, or to be clearly more than any other value is off.
    """
    n = len(x)
    if n < 2 * FEWEST:
        return 0.0, 0.0
    width = min(5, n // 2)
    windows = np.median(np.lib.stride_tricks.sliding_window_view(known.rest, width), axis=1)
    jump = np.zeros(n)
    jump[width : n - width + 1] = windows[width:] - windows[:-width]
    for few in range(1, width):
        jump[few] = np.median(known.rest[few : few + width]) - np.median(known.rest[:few])
        ahead = known.rest[max(n - few - width, 0) : n - few]
        jump[n - few] = np.median(known.rest[n - few :]) - np.median(ahead)
    least = np.minimum(np.arange(n), n - np.arange(n))
    for at in np.argsort(-np.abs(jump) * np.sqrt(np.minimum(least, width)))[:2].tolist():
        if least[at] >= FEWEST:
            found = line(x, y, step=at)
            z = _normal(1 - _SAME_FAMILY / 2 / n)
            size = float(found.levels[0])
            if abs(size) > student(z, found.dof) * found.level_error:
                return size, float(x[at])
            continue
        alone = np.arange(n) < at if at < FEWEST else np.arange(n) >= at
        if abs(jump[at]) > 4 * np.abs(known.rest[~alone]).max() + known.sigma:
            return float(jump[at]), float(x[at])
    return 0.0, 0.0


def _normal(share: float) -> float:
    return NormalDist().inv_cdf(share)


def _was_set(size: float, after: float) -> str:
    return (
        f"a clock was set by {abs(size) / 1e3:.1f} µs {after / 1e9:.3f} s after their first match"
    )


def _bent(x: F64, known: Line) -> float:
    """How far means of neighbours are from the line if that is no chance, ns: a clock whose pace
    changes, as it does with temperature."""
    n = len(x)
    blocks = min(_BLOCKS, n // _BLOCK)
    if blocks < 3:
        return 0.0
    drawn = np.clip(known.rest, -1.5 * known.sigma, 1.5 * known.sigma)
    edges = np.linspace(0, n, blocks + 1).astype(int)
    means = np.add.reduceat(drawn, edges[:-1]) / np.diff(edges)
    usual = float(drawn.std()) + 1e-6
    dof = blocks - 2
    chi = float((means**2 * np.diff(edges)).sum()) / usual**2
    most = dof * (1 - 2 / (9 * dof) + Z99 * math.sqrt(2 / (9 * dof))) ** 3
    return 2 * float(np.abs(means).max()) if chi > most else 0.0


# -- what makes no sense ------------------------------------------------------------------


def _doubt(fit: Fit, own: Stamps, other: Stamps, synchronous: NDArray[np.bool_]) -> str:
    """Message if operations would end before they have begun everywhere, or ""."""
    slack = round(3 * fit.spread_ns + fit.error.least_ns + _NEAR_NS)
    start, end = (fit.correction.of(column) for column in own)
    broken = synchronous & ((start > other[1] + slack) | (other[0] > end + slack))
    if np.count_nonzero(broken) > _BROKEN * len(start):
        return f"{np.count_nonzero(broken)} of {len(start)} would end before all have begun"
    return ""


def _apart(fit: Fit, own: Stamps, other: Stamps) -> str:
    """Message if ends are no nearer to each other than starts, or ""."""
    starts = other[0] - fit.correction.of(own[0])
    apart = scale((starts - median_ns(starts)).astype(np.float64), len(starts))
    if fit.spread_ns < max(apart / _MEET, _NEAR_NS):
        return ""
    return (
        f"ends scatter by {fit.spread_ns / 1e3:.1f} µs, starts by {apart / 1e3:.1f} µs: nothing "
        "shows that ranks wait for each other there"
    )


def _scattered(fit: Fit, gap_ns: float, most: float) -> str:
    """Message if ends scatter by more than the share ``most`` of the gap, or ""."""
    if fit.spread_ns <= max(_NEAR_NS, most * gap_ns):
        return ""
    return (
        f"ends scatter by {fit.spread_ns / 1e3:.1f} µs, operations are {gap_ns / 1e3:.1f} µs apart"
    )


# -- groups -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Star:
    """Ranks of a group and the fits that lead from each to one of them.

    Attributes:
        group:  theirs.
        centre: column of that one.
        fits:   by column, without doubts.
        bias:   per column, by how much the ends of operations come later after the last rank has
            come, if it is that one itself, than usual; ns, NaN if it never is.
        error:  per column, standard error of that.
        dof:    degrees of freedom of that error.
        most:   the most that the bias between two ranks may be, ns.
        waiting: whether ranks wait for each other in these operations, as their kinds say.
    """

    group: Matched
    centre: int
    fits: Mapping[int, Fit]
    bias: F64
    error: F64
    dof: int
    most: float
    waiting: bool

    def between(self, column: int, usual: float) -> float:
        """Half the interval of the bias between the ends of a column and the centre.

        Args:
            usual: what it is expected to be if nothing is known of these two.
        """
        if not self.waiting:
            return self.most
        both = [column, self.centre]
        apart = abs(self.bias[column] - self.bias[self.centre])
        known = apart + student(Z99, max(self.dof, 1)) * math.hypot(*self.error[both])
        return min(v for v in (known, usual, self.most) if not math.isnan(v))


def _stars(group: Matched, doubts: dict[int, str]) -> Iterator[_Star]:
    """Stars that hold as many ranks of a group as possible: around the rank with the most
    operations, and, where its clock or the matches make no sense, around others."""
    left = [c for c in range(len(group.ranks)) if c != group.base]
    centre, tried = group.base, 0
    while left and tried < 4:
        fits = {c: _fit(group, c, centre) for c in left if c != centre}
        for column, fit in fits.items():
            if fit.doubt:
                doubts.setdefault(group.ranks[column], f"{group.key}: {fit.doubt}")
        good = {c: f for c, f in fits.items() if not f.doubt}
        if good:
            yield _star(group, centre, good)
        elif fits:
            doubts.setdefault(
                group.ranks[centre], f"{group.key}: {next(iter(fits.values())).doubt}"
            )
        left = [c for c in left if c not in good and c != centre]
        centre, tried = (left[0] if left else -1), tried + 1


def _fit(group: Matched, column: int, other: int) -> Fit:
    rows, meeting = _usable(group)
    both = rows & (group.row[:, column] >= 0) & (group.row[:, other] >= 0)
    own, theirs = ((group.start_ns[both, c], group.end_ns[both, c]) for c in (column, other))
    return fitted(own, theirs, _synchronous(group)[both], meeting)


def _synchronous(group: Matched) -> NDArray[np.bool_]:
    return np.array([kind in _SYNCHRONOUS for kind in group.kinds], bool)


def _usable(group: Matched) -> tuple[NDArray[np.bool_], bool]:
    """The operations of a group whose ends may tell something, and whether its ranks wait for each
    other in them for certain."""
    waits = _synchronous(group)
    if np.count_nonzero(waits) >= FEWEST:
        return waits, group.named
    return np.ones(len(waits), bool), False


def _star(group: Matched, centre: int, fits: Mapping[int, Fit]) -> _Star:
    """Measure the biases: see above."""
    columns = np.array(sorted((centre, *fits)))
    rows = np.flatnonzero(_usable(group)[0] & ((group.row[:, columns] >= 0).sum(axis=1) >= 2))
    seen = group.row[np.ix_(rows, columns)] >= 0
    start = np.full(seen.shape, -np.inf)
    took = np.full(seen.shape, np.inf)
    zero = int(group.start_ns[rows[0], centre])
    for i, column in enumerate(columns.tolist()):
        on = seen[:, i]
        began = group.start_ns[rows[on], column]
        moved = fits[column].correction.of(began) if column != centre else began
        start[on, i] = moved - zero
        took[on, i] = group.end_ns[rows[on], column] - began
    sort = _sorts(group)[rows]
    waiting = bool(_synchronous(group)[rows[0]])
    longest = float(np.median(np.where(seen, took, 0).max(axis=1)))
    most = float(took.min()) if waiting else longest  # one side may go on while the other waits
    bias, error = np.zeros(len(columns)), np.full(len(columns), np.inf)
    dof = 1
    for _ in range(3):  # who is last depends on the bias, if only a little
        last = np.argmax(start + np.nan_to_num(bias), axis=1)
        value = took[np.arange(len(rows)), last]
        bias, error, dof = _by_last(value, last, sort, len(columns))
    every = np.full((2, len(group.ranks)), np.nan)
    every[:, columns] = bias, error
    return _Star(group, centre, fits, every[0], every[1], dof, most, waiting)


def _sorts(group: Matched) -> NDArray[np.intp]:
    """Numbers for the different kinds and sizes of operations."""
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(group.kinds))}
    kind = np.array([kinds[k] for k in group.kinds], np.int64)
    _, size = np.unique(group.sizes, return_inverse=True)
    found: NDArray[np.intp] = np.unique(kind * (len(size) + 1) + size, return_inverse=True)[1]
    return found


def _by_last(
    took: F64, last: NDArray[np.intp], sort: NDArray[np.intp], count: int
) -> tuple[F64, F64, int]:
    """By how much operations take longer where one of ``count`` ranks is the last to come, the
    standard error, and its degrees of freedom; NaN for ranks that never are."""
    weight, value = np.zeros(len(took)), np.zeros(len(took))
    free = 0
    for one in np.unique(sort).tolist():
        rows = np.flatnonzero(sort == one)
        ranks, which, times = np.unique(last[rows], return_inverse=True, return_counts=True)
        own = np.array([np.median(took[rows][which == i]) for i in range(len(ranks))])[which]
        rest, again = took[rows] - own, times[which] > 1
        dof = int(np.count_nonzero(again) - np.count_nonzero(times > 1))
        if dof:
            sigma = scale(rest[again], dof)
        else:
            sigma, again = scale(took[rows] - np.median(took[rows]), len(rows) - 1), again[:0]
        free += dof
        sigma += 1.0
        weight[rows] = 1 / sigma**2
        value[rows] = own - np.median(took[rows]) + np.clip(rest, -3 * sigma, 3 * sigma)
    total = np.bincount(last, weight, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(last, weight * value, count) / total
        error = 1 / np.sqrt(total)
    return np.where(total > 0, mean, np.nan), np.where(total > 0, error, np.nan), max(free, 1)


def _usual_bias(stars: Sequence[_Star]) -> float:
    """What the bias between two ranks is expected to be less than, 99 of 100 times, from those of
    all ranks for which it is known; NaN if these are few."""
    squares, weights, ranks, dof = 0.0, 0.0, 0, 0
    for star in stars:
        known = ~np.isnan(star.bias)
        weight = 1 / star.error[known] ** 2
        if len(weight) < 2:
            continue
        rest = star.bias[known] - (weight @ star.bias[known]) / weight.sum()
        squares, weights = squares + float(weight @ rest**2), weights + float(weight.sum())
        ranks, dof = ranks + len(weight), dof + len(weight) - 1
    if dof < _FEW_BIASED - 1:
        return math.nan
    return math.sqrt(2 * squares / weights * ranks / dof) * student(Z99, dof)


# -- all ranks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Solved:
    """Clocks of all ranks that operations connect.

    Attributes:
        root: per rank, the rank whose clock its fit leads to; its own where nothing connects it.
        fits: per rank; of a root: no correction.
        doubts: why links of a rank were rejected.
    """

    root: Mapping[int, int]
    fits: Mapping[int, Fit]
    doubts: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Link:
    """A star's operations of two ranks; ``fit`` leads from that of ``column`` to the centre."""

    star: _Star
    column: int
    fit: Fit
    bias: float

    def other(self, rank: int) -> int:
        """The rank at the end that is not ``rank``'s."""
        one, two = (self.star.group.ranks[c] for c in (self.star.centre, self.column))
        return two if rank == one else one

    def leading_to(self, rank: int) -> Fit:
        """The fit that leads from the other rank to ``rank``."""
        fit = self.fit
        if self.star.group.ranks[self.star.centre] != rank:
            fit = _fit(self.star.group, self.star.centre, self.column)
        least = math.hypot(fit.error.least_ns, self.bias)
        return replace(fit, error=replace(fit.error, least_ns=least))


def solved(ranks: Iterable[int], groups: Iterable[Matched]) -> Solved:
    """The clocks of ``ranks``; those that share no group are chained through those that do.

    Of all chains, the one with the least error counts. The clock of the lowest rank of each
    connected set is the one that its ranks are led to.
    """
    links: dict[int, list[_Link]] = {rank: [] for rank in ranks}
    doubts: dict[int, str] = {}
    stars = [star for group in groups for star in _stars(group, doubts)]
    usual = _usual_bias(stars)
    for star in stars:
        for column, fit in star.fits.items():
            link = _Link(star, column, fit, star.between(column, usual))
            for end in (star.group.ranks[column], star.group.ranks[star.centre]):
                links[end].append(link)
    root: dict[int, int] = {}
    fits: dict[int, Fit] = {}
    for rank in sorted(links):
        if rank not in root:
            for reached, fit in _reached(rank, links).items():
                root[reached], fits[reached] = rank, fit
    return Solved(root, fits, doubts)


def _reached(root: int, links: Mapping[int, list[_Link]]) -> dict[int, Fit]:
    """Every rank that links connect to ``root``, with the fit that leads to it (Dijkstra)."""
    done: dict[int, Fit] = {}
    queue: list[tuple[float, int, int]] = [(0.0, root, 0)]
    ways: list[tuple[int, _Link] | None] = [None]
    while queue:
        cost, rank, way = heapq.heappop(queue)
        if rank in done:
            continue
        came = ways[way]
        done[rank] = came[1].leading_to(came[0]).chained(done[came[0]]) if came else Fit()
        for link in links[rank]:
            there = link.other(rank)
            if there not in done:
                ways.append((rank, link))
                error = math.hypot(max(map(link.fit.error.of, link.fit.span_ns)), link.bias)
                heapq.heappush(queue, (cost + error**2, there, len(ways) - 1))
    return done


ENOUGH = 8
"""Operations a rank must share with others before "auto" uses collectives."""

_FAR_NS = 3600 * 10**9  # clocks set by people or over the network are not wrong by an hour


@dataclass(frozen=True)
class Found:
    """Offsets of all ranks that were accepted.

    Attributes:
        offsets: per rank.
        alone:   ranks that no operation connects to the others, and why.
        loose:   ranks whose offset is used only where "collective" was requested, and why.
    """

    offsets: dict[int, Offset]
    alone: Mapping[int, str]
    loose: Mapping[int, str]


def by_collectives(
    records: Sequence[CollectiveRecords],
    anchors: Mapping[int, Offset],
    groups: Sequence[Matched] | None = None,
    spans: Spans | None = None,
) -> Found:
    """The offset of every rank against the one that most ranks are connected with.

    Args:
        anchors: known offsets to Unix time. That of the root rank applies to all ranks connected
            with it; ranks without connection keep their own.
        groups: as :func:`.collective_matching.matched` returns them, if known already.
        spans: earliest start and latest end of every rank; errors hold for all of that. Without
            them, from the first collective to the last.
    """
    result = solved((e.rank for e in records), matched(records) if groups is None else groups)
    sizes = Counter(result.root.values())
    main = min(sizes, key=lambda rank: (-sizes[rank], rank), default=-1)
    every = {one.rank: _span(one) for one in records} | dict(spans or {})
    offsets, alone = {}, {}
    for rank, root in result.root.items():
        if root == main and sizes[main] > 1:
            anchor = anchors.get(root, Offset())
            offsets[rank] = _offset(result.fits[rank], root, anchor, every[rank])
            continue
        offsets[rank] = anchors.get(rank, Offset())
        if len(result.root) > 1:
            alone[rank] = result.doubts.get(rank, "no collective matches the other ranks'")
    loose = {rank: fit.loose for rank, fit in result.fits.items() if fit.loose}
    return Found(offsets, alone, loose)


def _span(one: CollectiveRecords) -> tuple[int, int] | None:
    return (int(one.start_ns.min()), int(one.end_ns.max())) if len(one) else None


def _offset(fit: Fit, root: int, anchor: Offset, span: tuple[int, int] | None) -> Offset:
    """The fit of one rank, and on top of it what puts the leading rank on Unix time."""
    if not fit.matches:
        lead = f"leads; {anchor.evidence}" if anchor.evidence else "leads"
        return Offset(anchor.offset_ns, "collective", lead, error_ns=0)
    ours = fit.correction
    evidence = f"{fit.matches} operations shared, led by rank {root}"
    first, last = span or fit.span_ns
    outside = max(fit.span_ns[0] - first, 0) + max(last - fit.span_ns[1], 0)
    if outside > _OUTSIDE * (last - first):
        evidence += f"; {100 * outside / (last - first):.0f} % of the capture is outside of them"
    return Offset(
        ours.offset_ns + anchor.offset_ns,
        "collective",
        evidence,
        round(fit.spread_ns),
        ours.drift_ppt,
        ours.at_ns if ours.drift_ppt else 0,
        math.ceil(max(fit.error.of(first), fit.error.of(last))),
        fit.matches,
    )


def why_not(
    found: Found, records: Sequence[CollectiveRecords], anchors: Mapping[int, Offset]
) -> str:
    """Why "auto" does not use collectives for all ranks; "" if it does."""
    if not any(len(one) for one in records):
        return "there are none"
    for doubts in (found.alone, found.loose):
        if doubts:
            rank = max(doubts)  # the first may be alone because the others are
            return f"rank {rank}: {doubts[rank]}"
    for rank, one in found.offsets.items():
        if one.error_ns and one.matches < ENOUGH:
            return f"rank {rank}: {one.matches} matched operations, wanted are {ENOUGH}"
        known = anchors.get(rank)
        if known and abs(one.offset_ns - known.offset_ns) > _FAR_NS:
            return f"rank {rank} would move by more than an hour: another run?"
    return ""
