"""Offsets from the ends of collectives: fits between two ranks, chained over all ranks.

An operation that all ranks must reach ends at nearly the same true time on each; the ends differ
by microseconds of noise, which averages out. The difference of the ends over time is therefore
the offset between two clocks and its drift.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from traceconv.alignment.collective_matching import Matched, matched
from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.alignment.offsets import Offset
from traceconv.core.clock import MOST_DRIFT_PPT, NO_CORRECTION, PPT, Correction
from traceconv.core.columns import I64
from traceconv.core.robust import median_error, median_ns, slopes, spread

FEWEST = 3
"""Fewer matches than this prove nothing: any two ends are some offset apart."""

_DRIFTING = 16  # matches required before a drift is fitted
_FASTEST_PPT = 200 * 10**6  # quartz is good to 100 ppm, so two differ by at most twice that
_NEAR_NS = 20_000  # a scatter below this is accepted whatever the gap between operations
_SCATTER = 0.1  # a scatter above this share of the gap: the ends are of different operations
_LOOSE = 0.03  # above this share of the gap, used only where "collective" was requested
_BROKEN = 0.1  # share of operations that may end before all have begun

_SYNCHRONOUS = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""Kinds that end on no rank before they have begun on all."""


@dataclass(frozen=True)
class Fit:
    """How a clock relates to another.

    Attributes:
        correction: what is added to its stamps.
        error_ns:   half the width of the interval the offset lies in, 99 of 100 times.
        spread_ns:  how far ends scatter around the fit (one standard deviation).
        matches:    operations it was made from.
        doubt:      why it is rejected, or "".
        loose:      why it is used only where "collective" was requested, or "".
    """

    correction: Correction = NO_CORRECTION
    error_ns: float = 0.0
    spread_ns: float = 0.0
    matches: int = 0
    doubt: str = ""
    loose: str = ""


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


def fitted(own: tuple[I64, I64], other: tuple[I64, I64], synchronous: I64) -> Fit:
    """What puts one rank's stamps on the clock of another.

    Args:
        own, other: (start_ns, end_ns) of the same operations, each on its rank's clock.
        synchronous: bool per operation: whether it ends on no rank before it has begun on all.
    """
    order = np.argsort(own[1], kind="stable")
    end, apart = own[1][order], (other[1] - own[1])[order]
    if len(end) < FEWEST:
        return Fit(matches=len(end), doubt=f"{len(end)} matched operations are too few")
    centre = median_ns(end)
    drift_ppt, drift_error = _drift(end, apart)
    rest = apart + end - Correction(0, drift_ppt, centre).of(end)
    offset = median_ns(rest)
    reach = float(max(end[-1] - centre, centre - end[0]))
    error = math.hypot(median_error((rest - offset).astype(np.float64)), drift_error * reach)
    fit = Fit(
        Correction(offset, drift_ppt, centre),
        error + 1,
        spread((rest - offset).astype(np.float64)),
        len(end),
    )
    gap = float(np.median(np.diff(end)))
    return replace(
        fit,
        doubt=_doubt(fit, own, other, synchronous) or _scattered(fit, gap, _SCATTER),
        loose=_scattered(fit, gap, _LOOSE),
    )


def _drift(end: I64, apart: I64) -> tuple[int, float]:
    """Drift in parts per trillion and its error as a plain ratio; zeros unless it is certain."""
    if len(end) < _DRIFTING:
        return 0, 0.0
    found = slopes(end, apart)
    if not len(found):
        return 0, 0.0
    drift, error = float(np.median(found)), median_error(found)
    certain = error < abs(drift) < MOST_DRIFT_PPT / PPT
    return (round(drift * PPT), error) if certain else (0, 0.0)


def _doubt(fit: Fit, own: tuple[I64, I64], other: tuple[I64, I64], synchronous: I64) -> str:
    """Why a fit is rejected, or ""."""
    if abs(fit.correction.drift_ppt) > _FASTEST_PPT:
        return f"the clocks would differ by {fit.correction.drift_ppt / 1e6:.0f} ppm"
    slack = round(3 * fit.spread_ns + fit.error_ns + _NEAR_NS)
    start, end = (fit.correction.of(column) for column in own)
    broken = synchronous & ((start > other[1] + slack) | (other[0] > end + slack))
    if np.count_nonzero(broken) > _BROKEN * len(start):
        return f"{np.count_nonzero(broken)} of {len(start)} would end before all have begun"
    return ""


def _scattered(fit: Fit, gap_ns: float, most: float) -> str:
    """Message if ends scatter by more than the share ``most`` of the gap, or ""."""
    if fit.spread_ns <= max(_NEAR_NS, most * gap_ns):
        return ""
    return (
        f"ends scatter by {fit.spread_ns / 1e3:.1f} µs, operations are {gap_ns / 1e3:.1f} µs apart"
    )


# -- all ranks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Link:
    """A group's operations of two ranks; ``fit`` leads from ``rank`` to ``base``."""

    group: Matched
    base: int
    column: int
    fit: Fit

    def other(self, rank: int) -> int:
        """The rank at the end that is not ``rank``'s."""
        one, two = self.group.ranks[self.base], self.group.ranks[self.column]
        return two if rank == one else one

    def leading_to(self, rank: int) -> Fit:
        """The fit that leads from the other rank to ``rank``."""
        if self.group.ranks[self.base] == rank:
            return self.fit
        return _fit(self.group, self.base, self.column)


def solved(ranks: Iterable[int], groups: Iterable[Matched]) -> Solved:
    """The clocks of ``ranks``; those that share no group are chained through those that do.

    Of all chains, the one with the least error counts. The clock of the lowest rank of each
    connected set is the one that its ranks are led to.
    """
    links: dict[int, list[_Link]] = {rank: [] for rank in ranks}
    doubts: dict[int, str] = {}
    for group in groups:
        for column, rank in enumerate(group.ranks):
            if column == group.base:
                continue
            fit = _fit(group, column, group.base)
            if fit.doubt:
                doubts.setdefault(rank, f"{group.key}: {fit.doubt}")
                continue
            link = _Link(group, group.base, column, fit)
            for end in (rank, group.ranks[group.base]):
                links[end].append(link)
    root: dict[int, int] = {}
    fits: dict[int, Fit] = {}
    for rank in sorted(links):
        if rank not in root:
            for reached, fit in _reached(rank, links).items():
                root[reached], fits[reached] = rank, fit
    return Solved(root, fits, doubts)


def _fit(group: Matched, column: int, other: int) -> Fit:
    both = (group.row[:, column] >= 0) & (group.row[:, other] >= 0)
    kinds = np.array([kind in _SYNCHRONOUS for kind in group.kinds], bool)
    own, theirs = ((group.start_ns[both, c], group.end_ns[both, c]) for c in (column, other))
    return fitted(own, theirs, kinds[both])


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
        done[rank] = _chained(came[1].leading_to(came[0]), done[came[0]]) if came else Fit()
        for link in links[rank]:
            there = link.other(rank)
            if there not in done:
                ways.append((rank, link))
                heapq.heappush(queue, (cost + link.fit.error_ns**2, there, len(ways) - 1))
    return done


def _chained(inner: Fit, outer: Fit) -> Fit:
    """A fit, and the one of the clock it leads to; errors are independent."""
    return Fit(
        inner.correction.then(outer.correction),
        math.hypot(inner.error_ns, outer.error_ns),
        math.hypot(inner.spread_ns, outer.spread_ns),
        min(inner.matches, outer.matches) if outer.matches else inner.matches,
        loose=inner.loose or outer.loose,
    )


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
) -> Found:
    """The offset of every rank against the one that most ranks are connected with.

    Args:
        anchors: known offsets to Unix time. That of the root rank applies to all ranks connected
            with it; ranks without connection keep their own.
        groups: as :func:`.collective_matching.matched` returns them, if known already.
    """
    result = solved((e.rank for e in records), matched(records) if groups is None else groups)
    sizes = Counter(result.root.values())
    main = min(sizes, key=lambda rank: (-sizes[rank], rank), default=-1)
    offsets, alone = {}, {}
    for rank, root in result.root.items():
        if root == main and sizes[main] > 1:
            offsets[rank] = _offset(result.fits[rank], root, anchors.get(root, Offset()))
            continue
        offsets[rank] = anchors.get(rank, Offset())
        if len(result.root) > 1:
            alone[rank] = result.doubts.get(rank, "no collective matches the other ranks'")
    loose = {rank: fit.loose for rank, fit in result.fits.items() if fit.loose}
    return Found(offsets, alone, loose)


def _offset(fit: Fit, root: int, anchor: Offset) -> Offset:
    """The fit of one rank, and on top of it what puts the leading rank on Unix time."""
    ours = fit.correction
    leads = not fit.matches
    lead = f"leads; {anchor.evidence}" if anchor.evidence else "leads"
    return Offset(
        ours.offset_ns + anchor.offset_ns,
        "collective",
        lead if leads else f"{fit.matches} operations shared, led by rank {root}",
        None if leads else round(fit.spread_ns),
        ours.drift_ppt,
        ours.at_ns if ours.drift_ppt else 0,
        0 if leads else math.ceil(fit.error_ns),
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
