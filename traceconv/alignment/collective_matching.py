"""Which operation of one rank is which of another: sequences of collectives, side by side.

The ranks of a group issue the same collectives in the same order, but captures begin and end at
different ones, and some operations are missing. Sequences of (kind, size) are therefore aligned
like texts; indexes that profilers print are ignored. Training repeats itself, so many
alignments of the sequences are equally good; among those, the right one is where the ends of the
operations follow each other at the same pace on both ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import P2P, CollectiveRecords
from traceconv.core.columns import F64, I32, I64
from traceconv.core.robust import median_ns, spread

Pairs = tuple[I64, I64]
"""Rows of one sequence and of another that belong together, both ascending."""

_LONGEST = 1 << 14  # operations; above, no longest common subsequence is computed
_FIRST = 8  # shifts tried first; no others if one of them fits
_SHIFTS = 32  # at most so many shifts are tried
_RARE = 256  # occurrences of the rarest operation from which shifts are derived
_VOTERS = 1 << 16  # at most so many pairs of ends vote for an offset
_SLOPES = 4  # fewer slopes do not determine a drift
_LIKENESS = 0.9  # share of equal operations that two shifted sequences need
_STEADY = 1e-3  # a scatter below this share of the gap needs no other candidates
_NEAR_NS = 2_000  # nor does one below this
_CLEAR = 1.5  # alignments below this multiple of the best cost may be right as well
_FAR = 0.1  # above this share of the gap, ends are of different operations
_CLOSE = 0.02  # ends that differ by less than this part vote for the same offset


@dataclass(frozen=True)
class Matched:
    """One group: its operations as rows, its ranks as columns.

    Attributes:
        key:   of the group.
        named: whether profilers name the group; otherwise a lane represents it.
        kinds: of each operation.
        sizes: of each operation, int64, -1 if unknown or uneven.
        ranks: ascending.
        base:  index into ``ranks`` of the one whose operations the rows are.
        start_ns, end_ns: int64 (operations, ranks), on each rank's own clock.
        row:   int32 (operations, ranks): the row in that rank's records, -1 where it has none.
    """

    key: str
    named: bool
    kinds: tuple[str, ...]
    sizes: I64
    ranks: tuple[int, ...]
    base: int
    start_ns: I64
    end_ns: I64
    row: I32


def matched(every: Sequence[CollectiveRecords]) -> Iterator[Matched]:
    """The groups that at least two ranks know, with their operations matched.

    Operations between two of many ranks are left out, because which two is unknown. (Where groups
    have no names they are kept, as libraries build exchanges among all ranks from them.) Groups
    that more ranks claim than they have members are left out as well: several share that name.
    """
    tokens: dict[tuple[str, int], int] = {}
    groups: dict[str, list[tuple[CollectiveRecords, int]]] = {}
    for one in every:
        for index, group in enumerate(one.groups):
            groups.setdefault(group.key, []).append((one, index))
    for key, members in sorted(groups.items()):
        size = max(e.groups[i].size for e, i in members)
        if len(members) >= 2 and not 0 < size < len(members):
            named = members[0][0].groups[members[0][1]].named
            yield _matched(key, members, tokens, not named or max(size, len(members)) == 2)


@dataclass(frozen=True)
class Timed:
    """The operations of one rank in one group; ``token`` is equal for what may be the same."""

    rank: int
    rows: I64
    token: I64
    start_ns: I64
    end_ns: I64

    def __len__(self) -> int:
        return len(self.token)


def _matched(
    key: str,
    members: Sequence[tuple[CollectiveRecords, int]],
    tokens: dict[tuple[str, int], int],
    p2p: bool,
) -> Matched:
    members = sorted(members, key=lambda m: m[0].rank)
    sequences = [_sequence(one, index, tokens, p2p) for one, index in members]
    base = max(range(len(sequences)), key=lambda i: (len(sequences[i]), -i))
    lead = sequences[base]
    shape = (len(lead), len(sequences))
    row = np.full(shape, -1, np.int32)
    start, end = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for column, other in enumerate(sequences):
        ours, theirs = same(lead, other) if column != base else (np.arange(len(lead)),) * 2
        row[ours, column] = other.rows[theirs]
        start[ours, column], end[ours, column] = other.start_ns[theirs], other.end_ns[theirs]
    one, index = members[base]
    kinds = tuple(one.kinds[k] for k in one.kind[lead.rows].tolist())
    ranks = tuple(m[0].rank for m in members)
    named, sizes = one.groups[index].named, one.size[lead.rows]
    return Matched(key, named, kinds, sizes, ranks, base, start, end, row)


def _sequence(
    one: CollectiveRecords, index: int, tokens: dict[tuple[str, int], int], p2p: bool
) -> Timed:
    rows = np.arange(len(one))[one.of_group(index)]
    if not p2p and P2P in one.kinds:
        rows = rows[one.kind[rows] != one.kinds.index(P2P)]
    words = zip(one.kind[rows].tolist(), one.size[rows].tolist(), strict=True)
    token = [tokens.setdefault((one.kinds[kind], size), len(tokens)) for kind, size in words]
    return Timed(one.rank, rows, np.array(token, np.int64), one.start_ns[rows], one.end_ns[rows])


def same(a: Timed, b: Timed) -> Pairs:
    """The pairs of operations that are the same, by order and by pace.

    None where sequences differ and two alignments of them fit about equally well: a program that
    repeats itself to the microsecond does not tell which of its steps were captured.
    """
    equal = len(a) == len(b) and np.array_equal(a.token, b.token)
    straight = np.arange(len(a)), np.arange(len(a))
    tried = [straight if equal else common_subsequence(a.token, b.token)]
    cost = [_cost(a, b, tried[0])]
    shifts, gap = _shifted(a, b), _gap(a)
    for limit, candidates in (
        (_STEADY, islice(shifts, _FIRST)),
        (_CLOSE if equal else _STEADY, shifts),
        (_FAR if equal else _CLOSE, _voted(a, b)),
    ):
        if _scatter(a, b, tried[int(np.argmin(cost))]) > max(_NEAR_NS, limit * gap):
            more = list(candidates)
            tried += more
            cost += [_cost(a, b, pairs) for pairs in more]
    best = tried[int(np.argmin(cost))]
    if not equal and _ambiguous(tried, cost):
        return _none()
    return best if len(best[0]) == len(a) == len(b) else _by_time(a, b, best)


def _ambiguous(tried: Sequence[Pairs], cost: Sequence[float]) -> bool:
    """Whether another alignment, which is not nearly the best, fits nearly as well as that."""
    best = int(np.argmin(cost))
    for number in np.flatnonzero(np.array(cost) < _CLEAR * cost[best]).tolist():
        if number != best:
            shared = np.isin(_codes(tried[number]), _codes(tried[best]))
            if np.mean(shared) < 0.5:
                return True
    return False


def _codes(pairs: Pairs) -> I64:
    """One number per pair."""
    return (pairs[0] << 32) | pairs[1]


def _gap(a: Timed) -> float:
    """The usual time between two operations, ns."""
    return float(np.median(np.diff(np.sort(a.end_ns)))) if len(a) > 1 else 0.0


def _line(a: Timed, b: Timed, pairs: Pairs) -> I64:
    """What has to be added to the ends of ``a`` to meet those of ``b``, by these pairs."""
    ours = a.end_ns[pairs[0]]
    apart = b.end_ns[pairs[1]] - ours
    slope = slopes(ours, apart)
    drift = float(np.median(slope)) if len(slope) >= _SLOPES else 0.0
    turning = a.end_ns - median_ns(ours)
    line: I64 = median_ns(apart) + np.rint(turning * drift).astype(np.int64)
    return line


def slopes(x: I64, y: I64) -> F64:
    """Slopes between values half the list apart: independent of each other, n // 2 of them."""
    half = len(x) // 2
    run = (x[half:][:half] - x[:half]).astype(np.float64)
    rise = (y[half:][:half] - y[:half]).astype(np.float64)
    return rise[run > 0] / run[run > 0]


def _scatter(a: Timed, b: Timed, pairs: Pairs) -> float:
    """How far the ends of pairs lie from where most of them say they should, ns; neither the
    offset between the clocks nor their drift matters."""
    if len(pairs[0]) < 3:
        return np.inf
    return spread(b.end_ns[pairs[1]] - (a.end_ns + _line(a, b, pairs))[pairs[0]])


def _cost(a: Timed, b: Timed, pairs: Pairs) -> float:
    """Scatter, made worse by every operation that stays alone."""
    if not len(pairs[0]):
        return np.inf
    share = min(len(a), len(b)) / len(pairs[0])
    return (_scatter(a, b, pairs) + _NEAR_NS) * share * share


# -- candidates ---------------------------------------------------------------------------


def common_subsequence(a: I64, b: I64) -> Pairs:
    """A longest common subsequence of two columns of tokens.

    Bit vectors: row j of the table of lengths is one integer, whose bit i is 0 where the length
    grows from i to i + 1; a row follows from the one before by four operations on such integers.
    Nothing for columns of more than 16384.
    """
    if max(len(a), len(b)) > _LONGEST:
        return _none()
    bits = {t: _mask(a == t) for t in np.unique(b).tolist()}
    every = (1 << len(a)) - 1
    row, rows = every, []
    for token in b.tolist():
        hit = row & bits[token]
        row = ((row + hit) | (row - hit)) & every
        rows.append(row)
    return _traced(rows, len(a))


def _mask(flags: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def _traced(rows: Sequence[int], width: int) -> Pairs:
    """The pairs on a path back through the table."""
    ours, theirs = [], []
    i, j = width, len(rows)
    while i and j:
        if rows[j - 1] >> (i - 1) & 1:
            i -= 1
            continue
        j -= 1
        if j and not rows[j - 1] >> (i - 1) & 1:
            continue
        i -= 1
        ours.append(i)
        theirs.append(j)
    return np.array(ours[::-1], np.int64), np.array(theirs[::-1], np.int64)


def _shifted(a: Timed, b: Timed) -> Iterator[Pairs]:
    """Alignments of the whole sequences, shifted against each other: where the operation that is
    rarest falls on itself and most others do, too. The least shifted come first."""
    shared = np.intersect1d(a.token, b.token)
    if not len(shared):
        return
    rare = shared[np.argmin([np.count_nonzero(a.token == t) for t in shared.tolist()])]
    at, bt = np.flatnonzero(a.token == rare), np.flatnonzero(b.token == rare)
    shifts = np.unique(np.subtract.outer(bt[:_RARE], at[:_RARE]))
    shifts = shifts[np.argsort(np.abs(shifts), kind="stable")][:_SHIFTS]
    yield from (p for k in shifts.tolist() if _alike(a, b, p := _diagonal(a, b, k)))


def _diagonal(a: Timed, b: Timed, shift: int) -> Pairs:
    first, last = max(0, -shift), min(len(a), len(b) - shift)
    ours = np.arange(first, max(first, last))
    return ours, ours + shift


def _alike(a: Timed, b: Timed, pairs: Pairs) -> bool:
    if len(pairs[0]) < max(min(len(a), len(b)) / 2, 3):
        return False
    return float(np.mean(a.token[pairs[0]] == b.token[pairs[1]])) >= _LIKENESS


def _voted(a: Timed, b: Timed) -> Iterator[Pairs]:
    """The alignment by the offset that most pairs of equal operations would agree on; the rarest
    operations vote."""
    kinds, times = np.unique(np.concatenate((a.token, b.token)), return_counts=True)
    offsets, voters = [], 0
    for token in kinds[np.argsort(times, kind="stable")].tolist():
        x, y = a.end_ns[a.token == token], b.end_ns[b.token == token]
        if voters + len(x) * len(y) <= _VOTERS:
            offsets.append(np.subtract.outer(y, x).ravel())
            voters += len(x) * len(y)
    if not voters:
        return
    offset = np.sort(np.concatenate(offsets))
    width = int(max(_NEAR_NS, _CLOSE * _gap(a)))
    votes = np.searchsorted(offset, offset + width, "right") - np.arange(len(offset))
    best = int(np.argmax(votes))
    middle = int(offset[best + int(votes[best]) // 2])
    yield _nearest(a, b, np.full(len(a), middle), width)


# -- by time ------------------------------------------------------------------------------


def _by_time(a: Timed, b: Timed, pairs: Pairs) -> Pairs:
    """The pairs once more, each operation with the equal one that is nearest in time.

    Which of several equal operations in a row is missing, their sequence does not tell.
    """
    if len(pairs[0]) < 3:
        return pairs
    line = _line(a, b, pairs)
    near = max(_NEAR_NS, _CLOSE * _gap(a), 8 * _scatter(a, b, pairs))
    return _nearest(a, b, line, int(min(near, max(_NEAR_NS, _gap(a) / 4))))


def _nearest(a: Timed, b: Timed, offset: I64, within_ns: int) -> Pairs:
    """Equal operations that are each other's nearest once ``offset`` is added to those of a."""
    ours, theirs = [], []
    for token in np.intersect1d(a.token, b.token).tolist():
        at, bt = np.flatnonzero(a.token == token), np.flatnonzero(b.token == token)
        x, y = a.end_ns[at] + offset[at], b.end_ns[bt]
        there, back = _closest(x, y), _closest(y, x)
        good = (back[there] == np.arange(len(x))) & (np.abs(y[there] - x) <= within_ns)
        ours.append(at[good])
        theirs.append(bt[there[good]])
    if not ours:
        return _none()
    left, right = np.concatenate(ours), np.concatenate(theirs)
    order = np.argsort(left, kind="stable")
    return left[order], right[order]


def _closest(x: I64, y: I64) -> NDArray[np.intp]:
    """Index into ``y`` of the value nearest to each of ``x``."""
    order = np.argsort(y, kind="stable")
    after = np.clip(np.searchsorted(y[order], x), 1, max(len(y) - 1, 1))
    before, after = order[after - 1], order[np.minimum(after, len(y) - 1)]
    return np.where(np.abs(y[before] - x) <= np.abs(y[after] - x), before, after)


def _none() -> Pairs:
    return np.empty(0, np.int64), np.empty(0, np.int64)
