"""Clocks of all ranks: stars of fits within groups, and chains of these.

A star holds the fits that lead from ranks of a group to one of them.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.biases import Bias, bias_of, usual_bias
from traceconv.alignment.collective_matching import COLUMNS, Each, Matched
from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.alignment.fits import FEWEST, SETTABLE_NS, Fit, fitted
from traceconv.alignment.offsets import Offset, unchecked_ns
from traceconv.alignment.stamps import SYNCHRONOUS
from traceconv.core.clock import Correction, time_text
from traceconv.core.robust import median

_CENTRES = 4  # of stars in a group, at most

Spans = Mapping[int, tuple[int, int] | None]
"""Earliest start and latest end of every rank, ns on its own clock."""


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
    bias: Bias
    columns: NDArray[np.intp]

    @property
    def sort(self) -> tuple[int, frozenset[str]]:
        """What its bias depends on: how many ranks do what."""
        return len(self.group.ranks), frozenset(self.group.kinds)

    def between(self, column: int, usual: float) -> tuple[float, float]:
        """The bias between a column and the centre, see :meth:`Bias.between`."""
        row, centre_row = np.searchsorted(self.columns, [column, self.centre]).tolist()
        return self.bias.between(row, centre_row, usual)


class _Stepped(msgspec.Struct, frozen=True):
    """Two ranks of a group; one of their clocks seems to have been set, or for a while."""

    group: Matched
    columns: tuple[int, int]
    step_ns: float

    @property
    def ranks(self) -> tuple[int, int]:
        """Theirs."""
        column, other_column = self.columns
        return self.group.ranks[column], self.group.ranks[other_column]

    def apart_ns(self, corrections: Sequence[Correction]) -> float:
        """How far ends are apart by corrections of both clocks, where they are most; single ends
        do not count."""
        rows, _ = _usable(self.group)
        shared = rows & (self.group.row[:, self.columns] >= 0).all(axis=1)
        ends, other_ends = (
            correction.of(self.group.end_ns[shared, column])
            for column, correction in zip(self.columns, corrections, strict=True)
        )
        apart = np.abs(ends - other_ends)[np.argsort(ends)]
        two = np.minimum(apart[1:], apart[:-1])
        return max(float(two.max(initial=0)), abs(self.step_ns))


def _stars(
    group: Matched, to_base: Mapping[int, Fit], doubts: dict[int, str], stepped: list[_Stepped]
) -> Iterator[_Star]:
    """Stars that hold as many ranks of a group as possible: around the rank with the most
    operations, and, where its clock or the matches make no sense, around others.

    Args:
        to_base: the fits to the rank with the most operations, by column.
    """
    unfitted = [*to_base]
    centre, tried = group.base, 0
    while unfitted and tried < _CENTRES:
        fits = {c: _fit(group, c, centre) for c in unfitted if c != centre} if tried else to_base
        for column, fit in fits.items():
            if fit.step_ns or fit.shift_ns:
                stepped.append(_Stepped(group, (column, centre), fit.step_ns))
            if fit.doubt:
                doubts.setdefault(group.ranks[column], f"{group.key}: {fit.doubt}")
        good = {c: f for c, f in fits.items() if not f.doubt}
        if good:
            yield _star(group, centre, good)
        elif fits:
            first_doubt = next(iter(fits.values())).doubt
            doubts.setdefault(group.ranks[centre], f"{group.key}: {first_doubt}")
        unfitted = [c for c in unfitted if c not in good and c != centre]
        centre, tried = (unfitted[0] if unfitted else -1), tried + 1


def _to_first(group: Matched) -> list[Fit]:
    """The fits of all columns but the first to that one."""
    return [_fit(group, column, 0) for column in range(1, len(group.ranks))]


def _to_base(groups: Sequence[Matched], each: Each) -> Iterator[dict[int, Fit]]:
    """Per group, the fits to the rank with the most operations, by column."""
    others = [[c for c in range(len(group.ranks)) if c != group.base] for group in groups]
    jobs = [
        group.of_columns([group.base, *columns[begin : begin + COLUMNS]])
        for group, columns in zip(groups, others, strict=True)
        for begin in range(0, len(columns), COLUMNS)
    ]
    fits = chain.from_iterable(each(_to_first, jobs))
    for columns in others:
        yield dict(zip(columns, islice(fits, len(columns)), strict=True))


def _fit(group: Matched, column: int, other: int) -> Fit:
    if group.doubts[column] or group.doubts[other]:
        return Fit(doubt=group.doubts[column] or group.doubts[other])
    rows, meeting = _usable(group)
    shared = rows & (group.row[:, column] >= 0) & (group.row[:, other] >= 0)
    own_stamps, other_stamps = (
        (group.start_ns[shared, c], group.end_ns[shared, c]) for c in (column, other)
    )
    is_identified = bool(group.identified) and group.identified[column] and group.identified[other]
    return fitted(own_stamps, other_stamps, _synchronous(group)[shared], meeting, is_identified)


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
    recorded = group.row[np.ix_(rows, columns)] >= 0
    start = np.full(recorded.shape, -np.inf)
    took = np.full(recorded.shape, np.inf)
    zero = int(group.start_ns[rows[0], centre])
    for i, column in enumerate(columns.tolist()):
        on = recorded[:, i]
        began = group.start_ns[rows[on], column]
        moved = fits[column].correction.of(began) if column != centre else began
        start[on, i] = moved - zero
        took[on, i] = group.end_ns[rows[on], column] - began
    if _synchronous(group)[rows[0]]:
        return _Star(group, centre, fits, bias_of(start, took, _sorts(group)[rows]), columns)
    longest = float(median(np.where(recorded, took, 0).max(axis=1)))  # one side may go on alone
    nothing = np.empty(0), np.empty(0), np.empty(0, np.intp)
    least = np.full(len(columns), longest)
    return _Star(group, centre, fits, Bias(*nothing, 1, least, False), columns)


def _sorts(group: Matched) -> NDArray[np.intp]:
    """Numbers for the different kinds and sizes of operations."""
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(group.kinds))}
    kind = np.array([kinds[k] for k in group.kinds], np.int64)
    _, size = np.unique(group.sizes, return_inverse=True)
    numbers: NDArray[np.intp] = np.unique(kind * (len(size) + 1) + size, return_inverse=True)[1]
    return numbers


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
        centre_rank, two = (self.star.group.ranks[c] for c in (self.star.centre, self.column))
        return two if rank == centre_rank else centre_rank

    def leading_to(self, rank: int) -> Fit:
        """The fit that leads from the other rank to ``rank``."""
        if self.star.group.ranks[self.star.centre] == rank:
            return self.fit
        back = _fit(self.star.group, self.star.centre, self.column)
        return back.biased(-self.fit.bias_ns, self.fit.bias_error_ns)


def solved(ranks: Iterable[int], groups: Sequence[Matched], each: Each = map) -> Solved:
    """The clocks of ``ranks``; those that share no group are chained through those that do.

    Of all chains, the one with the least error counts. The clock of the lowest rank of each
    connected set is the one that its ranks are led to.

    Args:
        each: makes the fits of a few ranks per job.
    """
    links: dict[int, list[_Link]] = {rank: [] for rank in ranks}
    doubts: dict[int, str] = {}
    stepped: list[_Stepped] = []
    stars = [
        star
        for group, to_base in zip(groups, _to_base(groups, each), strict=True)
        for star in _stars(group, to_base, doubts, stepped)
    ]
    sorts: dict[tuple[int, frozenset[str]], list[_Star]] = {}
    for star in stars:
        sorts.setdefault(star.sort, []).append(star)
    usual = {sort: usual_bias(star.bias for star in alike) for sort, alike in sorts.items()}
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
            neighbour = link.other(rank)
            if neighbour not in done:
                ways.append((rank, link))
                error = link.fit.error_ns(*link.fit.span_ns)
                heapq.heappush(queue, (cost + error**2, neighbour, len(ways) - 1))
    return _checked(done, came, links, stepped)


def _checked(
    done: Mapping[int, Fit],
    came: Mapping[int, int],
    links: Mapping[int, list[_Link]],
    stepped: Sequence[_Stepped],
) -> dict[int, Fit]:
    """The same with the errors of ranks that another way leads elsewhere: as far as that is.

    Either way may be right, so a rank that is reached through such a rank is as unsure. The same
    holds for two ranks if a clock was set, by operations in another group than they were fitted by.
    """
    widening = dict.fromkeys(done, 0.0)
    for stepped_pair in stepped:
        if all(rank in done for rank in stepped_pair.ranks):
            apart = stepped_pair.apart_ns([done[rank].correction for rank in stepped_pair.ranks])
            for rank in stepped_pair.ranks:
                if done[rank].matches and apart > done[rank].error_ns(*done[rank].span_ns):
                    widening[rank] = max(widening[rank], apart)
    for rank in done:
        for link in links[rank]:
            neighbour = link.other(rank)
            if link.star.group.ranks[link.column] != rank or rank == came[neighbour]:
                continue
            ways = (  # from the rank's clock, its own and that by way of the other
                (
                    done[rank].correction.of(ns),
                    done[neighbour].correction.of(link.fit.correction.of(ns)),
                )
                for ns in link.fit.span_ns
            )
            apart = float(max(abs(direct - way) for direct, way in ways))
            for end in (rank, neighbour):
                if done[end].matches and apart > done[end].error_ns(*done[end].span_ns):
                    widening[end] = max(widening[end], apart)
    widened = {}
    for rank, fit in done.items():  # in the order they were reached
        widening[rank] = max(widening[rank], widening[came[rank]])
        widened[rank] = fit.widened(widening[rank]) if fit.matches else fit
    return widened


class Found(msgspec.Struct, frozen=True):
    """Offsets of all ranks that were accepted.

    Attributes:
        offsets: of the ranks that operations connect.
        alone:   the others, and why.
        loose:   ranks whose ends scatter much, and how much.
        unchecked: ranks in much of whose capture a clock that was set would not show, and where.
    """

    offsets: Mapping[int, Offset]
    alone: Mapping[int, str]
    loose: Mapping[int, str]
    unchecked: Mapping[int, str]


def by_collectives(
    records: Sequence[CollectiveRecords],
    anchors: Mapping[int, Offset],
    groups: Iterable[Matched],
    spans: Spans | None = None,
    each: Each = map,
) -> Found:
    """The offset of every rank against the one that most ranks are connected with.

    Args:
        anchors: known offsets to Unix time. That of the root rank applies to all ranks connected
            with it.
        groups: as :func:`.collective_matching.matched` returns them.
        spans: earliest start and latest end of every rank; errors hold for all of that. Without
            them, from the first collective to the last.
        each: makes the fits of a few ranks per job.
    """
    result = solved((e.rank for e in records), tuple(groups), each)
    sizes = Counter(result.root.values())
    main = min(sizes, key=lambda rank: (-sizes[rank], rank), default=-1)
    span_of: dict[int, tuple[int, int] | None] = {
        rank_records.rank: (int(rank_records.start_ns.min()), int(rank_records.end_ns.max()))
        if len(rank_records)
        else None
        for rank_records in records
    }
    span_of |= dict(spans or {})
    offsets, alone, unchecked = {}, {}, {}
    for rank, root in result.root.items():
        if root == main and sizes[main] > 1:
            anchor = anchors.get(root, Offset())
            fit = result.fits[rank]
            span = span_of[rank] or fit.span_ns
            if where := _unchecked(fit, *span):
                unchecked[rank] = where
            offsets[rank] = _offset(fit, root, anchor, span, where)
        elif len(result.root) > 1:
            alone[rank] = result.doubts.get(rank, "no collective matches the other ranks'")
    loose = {rank: fit.loose for rank, fit in result.fits.items() if fit.loose}
    return Found(offsets, alone, loose, unchecked)


def _unchecked(fit: Fit, first: int, last: int) -> str:
    """In which parts of a capture a clock that was set would not show, in words; "" if these are
    none to speak of."""
    if not fit.matches:
        return ""
    ends = zip(("first", "last"), unchecked_ns(fit.span_ns, first, last), strict=True)
    return " and ".join(f"the {where} {time_text(ns)}" for where, ns in ends if ns)


def _offset(fit: Fit, root: int, anchor: Offset, span: tuple[int, int], unchecked: str) -> Offset:
    """The fit of one rank, and on top of it what puts the leading rank on Unix time."""
    if not fit.matches:
        lead = f"leads; {anchor.evidence}" if anchor.evidence else "leads"
        return Offset(anchor.offset_ns, "collective", lead, error_ns=0)
    correction = fit.correction
    evidence = f"{fit.matches} operations shared, led by rank {root}"
    if abs(fit.step_ns) > SETTABLE_NS:
        evidence += (
            f"; at one end of them, ends are {time_text(abs(round(fit.step_ns)))} further apart: "
            "late, or a clock was set"
        )
    if fit.shift_ns:
        evidence += (
            f"; for a while, ends are {time_text(round(fit.shift_ns))} further apart: late, or a "
            "clock was set and set back"
        )
    if unchecked:
        evidence += f"; a clock change in {unchecked} would go unnoticed"
    return Offset(
        correction.offset_ns + anchor.offset_ns,
        "collective",
        evidence,
        round(fit.spread_ns),
        correction.drift_ppt,
        correction.at_ns if correction.drift_ppt else 0,
        math.ceil(fit.error_ns(*span)),
        fit.matches,
        fit.span_ns,
    )
