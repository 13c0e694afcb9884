"""Whether the stamps of files agree with collectives, where ranks keep these.

All ranks of a collective are in it at one time: none ends before all have begun. Stamps by which
they are not are refuted, whatever the profilers say of their clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.core.clock import Correction
from traceconv.core.columns import I64

SYNCHRONOUS = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""Kinds that end on no rank before they have begun on all."""

_SLACK_NS = 20_000  # stamps may be off by that without contradicting anything
_FEWEST = 3
_AGREE = 0.9  # share of operations that meet if stamps are right; some are missing
_REFUTED = 0.5
_ALL_PAIRS = 8  # ranks of a group up to which all pairs are compared


def refuted(
    records: Sequence[CollectiveRecords], corrections: Mapping[int, Correction]
) -> dict[int, str]:
    """The ranks that cannot be compared by these clocks, and why.

    Of ranks that contradict each other, those that agree with most others are right; if there are
    as many on either side, all are in doubt.

    Args:
        records: the collectives of every rank.
        corrections: of the ranks whose clocks are in question, and of those to compare them with.
    """
    agree = {rank: [rank] for rank in corrections}  # those that agree share one list
    against: dict[int, dict[int, str]] = {}
    for one, other, found in _compared(records, corrections):
        if found:
            against.setdefault(one, {})[other] = found
            against.setdefault(other, {})[one] = found
        elif agree[one] is not agree[other]:
            fewer, more = sorted((agree[one], agree[other]), key=len)
            more += fewer  # each rank moves to a list twice as long: n log n in all
            agree.update(dict.fromkeys(fewer, more))
    said: dict[int, str] = {}
    for rank, others in against.items():
        strangers = [other for other in others if agree[other] is not agree[rank]]
        larger = [other for other in strangers if len(agree[other]) >= len(agree[rank])]
        if larger and rank not in said:
            why = f"with rank {larger[0]}: {others[larger[0]]}"
            said.update(dict.fromkeys(agree[rank], why))
    return said


def _compared(
    records: Sequence[CollectiveRecords], corrections: Mapping[int, Correction]
) -> Iterator[tuple[int, int, str]]:
    """Pairs of ranks of one group with "" where their operations meet, else how they do not."""
    groups: dict[str, list[_Timed]] = {}
    for one in records:
        if one.rank in corrections:
            for index, group in enumerate(one.groups):
                groups.setdefault(group.key, []).append(_timed(one, index, corrections[one.rank]))
    for members in groups.values():
        members.sort(key=lambda m: m.rank)
        pairs: Iterable[tuple[_Timed, _Timed]] = combinations(members, 2)
        if len(members) > _ALL_PAIRS:
            pairs = [*pairwise(members), *((members[0], other) for other in members[2:])]
        for mine, its in pairs:
            found = _meeting(mine, its)
            if found is not None:
                yield mine.rank, its.rank, found


class _Timed(msgspec.Struct, frozen=True):
    """Operations of a rank in a group, by start, on the shared clock; ``waits``: in which ranks
    wait for each other."""

    rank: int
    token: NDArray[np.intp]
    waits: NDArray[np.bool_]
    start_ns: I64
    end_ns: I64


def _timed(one: CollectiveRecords, index: int, by: Correction) -> _Timed:
    rows = one.of_group(index)
    words = zip(one.kind[rows].tolist(), one.size[rows].tolist(), strict=True)
    token = [hash((one.kinds[kind], size)) for kind, size in words]
    waits = [one.kinds[kind] in SYNCHRONOUS for kind in one.kind[rows].tolist()]
    return _Timed(
        one.rank,
        np.array(token, np.int64),
        np.array(waits, bool),
        by.of(one.start_ns[rows]),
        by.of(one.end_ns[rows]),
    )


def _meeting(one: _Timed, other: _Timed) -> str | None:
    """ "" if most operations of both meet, how they do not, or None if it is unknown."""
    if min(len(one.token), len(other.token)) == 0:
        return None
    first = max(int(one.start_ns[0]), int(other.start_ns[0]))
    last = min(int(one.end_ns.max()), int(other.end_ns.max()))
    if last < first - _SLACK_NS:
        return (
            f"by their stamps their collectives are {(first - last) / 1e6:.3f} ms apart, and never "
            "at one time"
        )
    inside = [
        np.flatnonzero(m.waits & (m.end_ns >= first - _SLACK_NS) & (m.start_ns <= last + _SLACK_NS))
        for m in (one, other)
    ]
    fewer, more = (one, other) if len(inside[0]) <= len(inside[1]) else (other, one)
    rows = min(inside, key=len)
    if len(rows) < _FEWEST:
        return None
    met = 0
    for token in np.unique(fewer.token[rows]).tolist():
        asked = rows[fewer.token[rows] == token]
        there = np.flatnonzero(more.token == token)
        ends = np.maximum.accumulate(more.end_ns[there])
        at = np.searchsorted(ends, fewer.start_ns[asked] - _SLACK_NS)
        near = there[np.minimum(at, len(there) - 1)] if len(there) else there
        if len(there):
            begun = more.start_ns[near] <= fewer.end_ns[asked] + _SLACK_NS
            met += int(np.count_nonzero(begun & (at < len(there))))
    if met >= _AGREE * len(rows):
        return ""
    if met > _REFUTED * len(rows):
        return None
    return (
        f"by their stamps, they are inside {met} of {len(rows)} collectives at the same time, "
        "though no rank can end one before all have begun it"
    )
