"""Clocks of all ranks: fits within groups, the bias of their ends, and chains of them.

What does not average out over many operations is a *bias*: the ends of one rank may always come,
or be stamped, later than those of another. Where it is the last to come, the time a rank is inside
is that of the operation itself, with its own bias; so what differs between these times is the bias
between their ends. For ranks that never come last, it is taken to be what it is among the others;
where that is not known either, all that holds is that nobody ends an operation before all have
begun it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.alignment.fits import FEWEST, Fit, fitted
from traceconv.alignment.offsets import Offset
from traceconv.alignment.stamps import SYNCHRONOUS
from traceconv.core.clock import Correction
from traceconv.core.columns import F64, distinct
from traceconv.core.robust import Z99, median, scale, student

_CENTRES = 4  # of stars in a group, at most
_ROUNDS = 20
_TIED = 1e-3  # what an operation counts in which two ranks come at once
_WILD = 3.0  # standard deviations beyond which a value counts no more
_UNKNOWN_NS = 1e7  # what a bias may be where nothing is known of it
_KNOWN_NS = 1e6  # with a standard error below that, something is
_LEAST_NS, _SIZES = 1e3, 10  # the smallest, and how many, other values of a bias are tried
_REFUTED = 9.0  # by how much more squares of scatters add up to where that is no chance
_WILDEST = 4.0  # standard deviations; what is further off counts as that there
_FEW_BIASED = 4  # ranks whose bias must be known for it to be expected of others
_OUTSIDE = 0.05  # so much of a capture outside its matched operations is said

Spans = Mapping[int, tuple[int, int] | None]
"""Earliest start and latest end of every rank, ns on its own clock."""


class _Bias(msgspec.Struct, frozen=True):
    """How much later than usual the ends of ranks come after the last rank has come.

    Attributes:
        late:   per column, ns.
        covariance: of these.
        dof:    degrees of freedom these are estimated from.
        least:  per column, the shortest time inside, ns. The ends of one rank cannot be that much
            later than those of another: it would have begun when the other had ended. Who never
            comes last is not expected to be later than the others by more than twice what these
            need.
        certain: whether ranks wait for each other, so that the rest means something.
    """

    late: F64
    covariance: F64
    dof: int
    least: F64
    certain: bool

    def between(self, one: int, other: int, usual: float) -> tuple[float, float]:
        """By how much the ends of one come later than those of another, and how far that may be
        off, 99 of 100 times; ns.

        Args:
            usual: what it is expected to be less than if nothing is known of these two; NaN for
                nothing.
        """
        most = float(max(self.least[one], self.least[other]))
        if not self.certain:
            return 0.0, most
        c = self.covariance
        error = math.sqrt(max(float(c[one, one] + c[other, other] - 2 * c[one, other]), 0.0))
        later, reach = float(self.late[one] - self.late[other]), student(Z99, self.dof) * error
        if not math.isnan(usual):  # both are known: what was measured, and what is to be expected
            share = usual**2 / (usual**2 + reach**2)
            later, reach = share * later, math.sqrt(share) * reach
        return (later, reach) if abs(later) + reach < most else (0.0, most)


class _Star(msgspec.Struct, frozen=True):
    """Ranks of a group and the fits that lead from each to one of them.

    Attributes:
        group:  theirs.
        centre: column of that one.
        fits:   by column, without doubts.
        bias:   of their ends; columns as in ``columns``.
        columns: int64, ascending.
    """

    group: Matched
    centre: int
    fits: Mapping[int, Fit]
    bias: _Bias
    columns: NDArray[np.intp]

    @property
    def sort(self) -> tuple[int, frozenset[str]]:
        """What its bias depends on: how many ranks do what."""
        return len(self.group.ranks), frozenset(self.group.kinds)

    def between(self, column: int, usual: float) -> tuple[float, float]:
        """The bias between a column and the centre, see :meth:`_Bias.between`."""
        one, other = np.searchsorted(self.columns, [column, self.centre]).tolist()
        return self.bias.between(one, other, usual)


class _Stepped(msgspec.Struct, frozen=True):
    """Two ranks of a group, one of whose clocks seems to have been set."""

    group: Matched
    columns: tuple[int, int]
    step_ns: float

    @property
    def ranks(self) -> tuple[int, int]:
        """Theirs."""
        one, other = self.columns
        return self.group.ranks[one], self.group.ranks[other]

    def apart_ns(self, corrections: Sequence[Correction]) -> float:
        """How far ends are apart by corrections of both clocks, where they are most; single ends
        do not count."""
        rows, _ = _usable(self.group)
        both = rows & (self.group.row[:, self.columns] >= 0).all(axis=1)
        one, other = (
            correction.of(self.group.end_ns[both, column])
            for column, correction in zip(self.columns, corrections, strict=True)
        )
        apart = np.abs(one - other)[np.argsort(one)]
        two = np.minimum(apart[1:], apart[:-1])
        return max(float(two.max(initial=0)), abs(self.step_ns))


def _stars(group: Matched, doubts: dict[int, str], stepped: list[_Stepped]) -> Iterator[_Star]:
    """Stars that hold as many ranks of a group as possible: around the rank with the most
    operations, and, where its clock or the matches make no sense, around others."""
    left = [c for c in range(len(group.ranks)) if c != group.base]
    centre, tried = group.base, 0
    while left and tried < _CENTRES:
        fits = {c: _fit(group, c, centre) for c in left if c != centre}
        for column, fit in fits.items():
            if fit.step_ns:
                stepped.append(_Stepped(group, (column, centre), fit.step_ns))
            if fit.doubt:
                doubts.setdefault(group.ranks[column], f"{group.key}: {fit.doubt}")
        good = {c: f for c, f in fits.items() if not f.doubt}
        if good:
            yield _star(group, centre, good)
        elif fits:
            first = next(iter(fits.values())).doubt
            doubts.setdefault(group.ranks[centre], f"{group.key}: {first}")
        left = [c for c in left if c not in good and c != centre]
        centre, tried = (left[0] if left else -1), tried + 1


def _fit(group: Matched, column: int, other: int) -> Fit:
    if group.doubts[column] or group.doubts[other]:
        return Fit(doubt=group.doubts[column] or group.doubts[other])
    rows, meeting = _usable(group)
    both = rows & (group.row[:, column] >= 0) & (group.row[:, other] >= 0)
    own, theirs = ((group.start_ns[both, c], group.end_ns[both, c]) for c in (column, other))
    return fitted(own, theirs, _synchronous(group)[both], meeting)


def _synchronous(group: Matched) -> NDArray[np.bool_]:
    return np.array([kind in SYNCHRONOUS for kind in group.kinds], bool)


def _usable(group: Matched) -> tuple[NDArray[np.bool_], bool]:
    """The operations of a group whose ends may tell something, and whether its ranks wait for each
    other in them for certain."""
    waits = _synchronous(group)
    if np.count_nonzero(waits) >= FEWEST:
        return waits, group.named
    return np.ones(len(waits), bool), False


def _star(group: Matched, centre: int, fits: Mapping[int, Fit]) -> _Star:
    """A star, with the bias measured."""
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
    if _synchronous(group)[rows[0]]:
        return _Star(group, centre, fits, _bias(start, took, _sorts(group)[rows]), columns)
    longest = float(median(np.where(seen, took, 0).max(axis=1)))  # one side may go on alone
    nothing = np.empty(0), np.empty((0, 0))
    least = np.full(len(columns), longest)
    return _Star(group, centre, fits, _Bias(*nothing, 1, least, False), columns)


def _sorts(group: Matched) -> NDArray[np.intp]:
    """Numbers for the different kinds and sizes of operations."""
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(group.kinds))}
    kind = np.array([kinds[k] for k in group.kinds], np.int64)
    _, size = np.unique(group.sizes, return_inverse=True)
    found: NDArray[np.intp] = np.unique(kind * (len(size) + 1) + size, return_inverse=True)[1]
    return found


def _bias(start: F64, took: F64, sort: NDArray[np.intp]) -> _Bias:
    """How late the ends of ranks come.

    An operation takes its rank that comes last what its sort takes, and its rank's bias. Who comes
    last follows from starts as far as clocks are known, which they are but for that bias; so both
    are looked for in turns, from two sides: as if there was none, and as if each rank's shortest
    time inside was one in which it came last.

    Args:
        start, took: (operations, ranks): starts by the fitted clocks and times inside, ns; -inf
            and inf where an operation was not seen.
        sort:  of each operation.
    """
    shortest = np.sort(took, axis=0)[int(0.1 * (len(took) - 1))]
    shortest = np.where(np.isfinite(shortest), shortest, median(shortest))
    known = [_by_last(start, took, sort, first) for first in (0 * shortest, shortest)]
    late, covariance, dof, _ = min(known, key=lambda k: k[-1])
    covariance = covariance + np.diag((_otherwise(start, took, sort, late, dof) / Z99) ** 2)
    last = distinct(np.argmax(start + late, axis=1))
    least = took.min(axis=0)
    waiting = np.delete(np.arange(len(least)), last)
    least[waiting] = np.minimum(least[waiting], 2 * least[last].max())
    return _Bias(late, covariance, dof, least, True)


def _otherwise(start: F64, took: F64, sort: NDArray[np.intp], late: F64, dof: int) -> F64:
    """(ranks,): by how much the bias of each might be another, if times inside would then scatter
    no more, ns.

    Where ranks have nothing to do between two collectives, or the same, a rank whose ends come late
    begins the next as much later: its times inside are then what they would be if its clock was
    wrong instead, and nothing tells these apart.
    """
    rows, ranks = start.shape
    at = np.arange(rows)
    shown, value = start + late, took - late
    order = np.argsort(shown, axis=1)
    last, second = order[:, -1], order[:, -2] if ranks > 1 else order[:, -1]
    usual = value[at, last]
    instead = np.where(np.isfinite(value[at, second]), value[at, second], usual)
    kinds = [np.flatnonzero(sort == one) for one in distinct(sort).tolist()]
    most = float(median(usual))
    sizes = np.geomspace(_LEAST_NS, max(most, 2 * _LEAST_NS), _SIZES)
    rest = _around(usual[:, None], kinds)[:, 0]
    sigma = scale(rest, dof)
    limit = float(np.minimum((rest / sigma) ** 2, _WILDEST**2).sum()) + _REFUTED
    found = np.zeros(ranks)
    for rank in range(ranks):
        for by in (sizes, -sizes):
            moved = shown[:, rank, None] + by
            others = np.where(last == rank, shown[at, second], shown[at, last])
            hit = moved >= others[:, None]
            other = np.where(last == rank, instead, usual)[:, None]
            own = np.where(np.isfinite(took[:, rank]), value[:, rank], usual)[:, None] - by
            rest = _around(np.where(hit, own, other), kinds)
            fits = np.minimum((rest / sigma) ** 2, _WILDEST**2).sum(axis=0) <= limit
            reach = int(np.argmin(fits)) if not fits.all() else _SIZES + 1
            if reach > _SIZES:
                found[rank] = _UNKNOWN_NS
            elif reach:
                found[rank] = max(found[rank], float(sizes[reach - 1]))
    return found


def _around(values: F64, kinds: Sequence[NDArray[np.intp]]) -> F64:
    """Values by column, less the medians of their kinds."""
    rest = values.copy()
    for rows in kinds:
        rest[rows] -= median(rest[rows].T)
    return rest


def _by_last(
    start: F64, took: F64, sort: NDArray[np.intp], late: F64
) -> tuple[F64, F64, int, float]:
    """See :func:`_bias`: biases, their covariance, its degrees of freedom, and the scatter."""
    rows, ranks = start.shape
    sorts = int(sort.max()) + 1
    last = np.argmax(start + late, axis=1)
    usual, sigma = np.zeros(sorts), np.ones(sorts)
    normal, dof, every = np.eye(ranks), 1, 0.0
    for _ in range(_ROUNDS):
        value = took[np.arange(rows), last]
        for one in distinct(sort).tolist():
            mine = sort == one
            usual[one] = median((value - late[last])[mine])
        rest = value - usual[sort] - late[last]
        dof = max(rows - len(distinct(sort)) - len(distinct(last)) + 1, 1)
        every = scale(rest, dof)
        for one in distinct(sort).tolist():
            mine = sort == one
            n = int(np.count_nonzero(mine))
            sigma[one] = scale(rest[mine], n * dof / rows) if n > 4 else every
        wide = _WILD * sigma[sort]
        value = value - rest + np.clip(rest, -wide, wide)
        ordered = np.sort(start + late, axis=1)
        lead = ordered[:, -1] - ordered[:, -2]
        clear = np.maximum(lead / (lead + sigma[sort]), _TIED)
        normal, right = _two_ways(value, last, sort, clear / (sigma[sort] + 1.0) ** 2, ranks)
        late = np.asarray(np.linalg.solve(normal, right), np.float64)
        before, last = last, np.argmax(start + late, axis=1)
        if np.array_equal(before, last):
            break
    return late, np.asarray(np.linalg.inv(normal), np.float64), dof, every


def _two_ways(
    value: F64, last: NDArray[np.intp], sort: NDArray[np.intp], weight: F64, ranks: int
) -> tuple[F64, F64]:
    """Least squares for what rank and sort of an operation each add to values: the equations of
    that of ranks, whose matrix is the inverse of its covariance. Ranks that nothing connects may
    differ by anything."""
    normal = np.eye(ranks) / _UNKNOWN_NS**2
    right = np.zeros(ranks)
    for one in distinct(sort).tolist():
        mine = sort == one
        count = np.bincount(last[mine], weight[mine], ranks)
        total = np.bincount(last[mine], (weight * value)[mine], ranks)
        normal += np.diag(count) - np.outer(count, count) / count.sum()
        right += total - count * total.sum() / count.sum()
    return normal, right


def _usual_bias(stars: Sequence[_Star]) -> float:
    """What the bias between two ranks is expected to be less than, 99 of 100 times, from those of
    all ranks of such groups for which it is known; NaN if these are few."""
    squares, weights, ranks, dof = 0.0, 0.0, 0, 0
    for bias in (star.bias for star in stars if star.bias.certain):
        lead = int(np.argmin(np.diag(bias.covariance)))
        c = bias.covariance
        variance = np.diag(c) + c[lead, lead] - 2 * c[lead]
        known = variance < _KNOWN_NS**2
        if np.count_nonzero(known) < 2:
            continue
        late = bias.late[known]
        weight = 1 / np.maximum(variance[known], median(variance[known]))
        rest = late - (weight @ late) / weight.sum()
        squares, weights = squares + float(weight @ rest**2), weights + float(weight.sum())
        ranks, dof = ranks + len(late), dof + len(late) - 1
    if dof < _FEW_BIASED - 1:
        return math.nan
    return math.sqrt(2 * squares / weights * ranks / dof) * student(Z99, dof)


# -- all ranks ----------------------------------------------------------------------------


class Solved(msgspec.Struct, frozen=True):
    """Clocks of all ranks that operations connect.

    Attributes:
        root: per rank, the rank whose clock its fit leads to; its own where nothing connects it.
        fits: per rank; of a root: no correction.
        doubts: why links of a rank were rejected.
    """

    root: Mapping[int, int]
    fits: Mapping[int, Fit]
    doubts: Mapping[int, str] = msgspec.field(default_factory=dict)


class _Link(msgspec.Struct, frozen=True):
    """A star's operations of two ranks; ``fit`` leads from that of ``column`` to the centre, and
    holds the bias."""

    star: _Star
    column: int
    fit: Fit

    def other(self, rank: int) -> int:
        """The rank at the end that is not ``rank``'s."""
        one, two = (self.star.group.ranks[c] for c in (self.star.centre, self.column))
        return two if rank == one else one

    def leading_to(self, rank: int) -> Fit:
        """The fit that leads from the other rank to ``rank``."""
        if self.star.group.ranks[self.star.centre] == rank:
            return self.fit
        back = _fit(self.star.group, self.star.centre, self.column)
        return back.biased(-self.fit.bias_ns, self.fit.bias_error_ns)


def solved(ranks: Iterable[int], groups: Iterable[Matched]) -> Solved:
    """The clocks of ``ranks``; those that share no group are chained through those that do.

    Of all chains, the one with the least error counts. The clock of the lowest rank of each
    connected set is the one that its ranks are led to.
    """
    links: dict[int, list[_Link]] = {rank: [] for rank in ranks}
    doubts: dict[int, str] = {}
    stepped: list[_Stepped] = []
    stars = [star for group in groups for star in _stars(group, doubts, stepped)]
    sorts: dict[tuple[int, frozenset[str]], list[_Star]] = {}
    for star in stars:
        sorts.setdefault(star.sort, []).append(star)
    usual = {sort: _usual_bias(alike) for sort, alike in sorts.items()}
    for star in stars:
        for column, fit in star.fits.items():
            link = _Link(star, column, fit.biased(*star.between(column, usual[star.sort])))
            for end in (star.group.ranks[column], star.group.ranks[star.centre]):
                links[end].append(link)
    root: dict[int, int] = {}
    fits: dict[int, Fit] = {}
    for rank in sorted(links):
        if rank not in root:
            for reached, fit in _reached(rank, links, stepped).items():
                root[reached], fits[reached] = rank, fit
    return Solved(root, fits, doubts)


def _reached(
    root: int, links: Mapping[int, list[_Link]], stepped: Sequence[_Stepped]
) -> dict[int, Fit]:
    """Every rank that links connect to ``root``, with the fit that leads to it (Dijkstra)."""
    done: dict[int, Fit] = {}
    came: dict[int, int] = {}
    queue: list[tuple[float, int, int]] = [(0.0, root, 0)]
    ways: list[tuple[int, _Link] | None] = [None]
    while queue:
        cost, rank, number = heapq.heappop(queue)
        if rank in done:
            continue
        way = ways[number]
        done[rank] = way[1].leading_to(way[0]).chained(done[way[0]]) if way else Fit()
        came[rank] = way[0] if way else rank
        for link in links[rank]:
            there = link.other(rank)
            if there not in done:
                ways.append((rank, link))
                error = link.fit.error_ns(*link.fit.span_ns)
                heapq.heappush(queue, (cost + error**2, there, len(ways) - 1))
    return _checked(done, came, links, stepped)


def _checked(
    done: Mapping[int, Fit],
    came: Mapping[int, int],
    links: Mapping[int, list[_Link]],
    stepped: Sequence[_Stepped],
) -> dict[int, Fit]:
    """The same with the errors of ranks that another way leads elsewhere: as far as that is.

    Which of both ways is right, nobody knows; whoever is reached by way of such a rank is no surer.
    The same holds for two ranks one of whose clocks was set, by operations in another group than
    those they were fitted by.
    """
    more = dict.fromkeys(done, 0.0)
    for one in stepped:
        if all(rank in done for rank in one.ranks):
            apart = one.apart_ns([done[rank].correction for rank in one.ranks])
            for rank in one.ranks:
                if done[rank].matches and apart > done[rank].error_ns(*done[rank].span_ns):
                    more[rank] = max(more[rank], apart)
    for rank in done:
        for link in links[rank]:
            other = link.other(rank)
            if link.star.group.ranks[link.column] != rank or rank == came[other]:
                continue
            apart = max(_differ(done[rank], link.fit, done[other], ns) for ns in link.fit.span_ns)
            for end in (rank, other):
                if done[end].matches and apart > done[end].error_ns(*done[end].span_ns):
                    more[end] = max(more[end], apart)
    found = {}
    for rank, fit in done.items():  # in the order they were reached
        more[rank] = max(more[rank], more[came[rank]])
        found[rank] = fit.widened(more[rank]) if fit.matches else fit
    return found


def _differ(own: Fit, link: Fit, other: Fit, ns: int) -> float:
    """How far the ways from a rank's clock at an instant differ, ns: its own, and that by way of
    another rank."""
    way = other.correction.of(link.correction.of(ns))
    return float(abs(own.correction.of(ns) - way))


class Found(msgspec.Struct, frozen=True):
    """Offsets of all ranks that were accepted.

    Attributes:
        offsets: of the ranks that operations connect.
        alone:   the others, and why.
        loose:   ranks whose ends scatter much, and how much.
    """

    offsets: Mapping[int, Offset]
    alone: Mapping[int, str]
    loose: Mapping[int, str]


def by_collectives(
    records: Sequence[CollectiveRecords],
    anchors: Mapping[int, Offset],
    groups: Iterable[Matched],
    spans: Spans | None = None,
) -> Found:
    """The offset of every rank against the one that most ranks are connected with.

    Args:
        anchors: known offsets to Unix time. That of the root rank applies to all ranks connected
            with it.
        groups: as :func:`.collective_matching.matched` returns them.
        spans: earliest start and latest end of every rank; errors hold for all of that. Without
            them, from the first collective to the last.
    """
    result = solved((e.rank for e in records), groups)
    sizes = Counter(result.root.values())
    main = min(sizes, key=lambda rank: (-sizes[rank], rank), default=-1)
    every = {one.rank: _span(one) for one in records} | dict(spans or {})
    offsets, alone = {}, {}
    for rank, root in result.root.items():
        if root == main and sizes[main] > 1:
            anchor = anchors.get(root, Offset())
            offsets[rank] = _offset(result.fits[rank], root, anchor, every[rank])
        elif len(result.root) > 1:
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
        math.ceil(fit.error_ns(first, last)),
        fit.matches,
    )
