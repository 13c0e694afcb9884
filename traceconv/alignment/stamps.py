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
    for own_rank, other_rank, difference in _compared(records, corrections):
        if difference:
            against.setdefault(own_rank, {})[other_rank] = difference
            against.setdefault(other_rank, {})[own_rank] = difference
        elif agree[own_rank] is not agree[other_rank]:
            fewer, larger_list = sorted((agree[own_rank], agree[other_rank]), key=len)
            larger_list += fewer  # each rank moves to a list twice as long: n log n in all
            agree.update(dict.fromkeys(fewer, larger_list))
    reasons: dict[int, str] = {}
    for rank, contradicting in against.items():
        strangers = [stranger for stranger in contradicting if agree[stranger] is not agree[rank]]
        larger = [stranger for stranger in strangers if len(agree[stranger]) >= len(agree[rank])]
        if larger and rank not in reasons:
            why = f"with rank {larger[0]}: {contradicting[larger[0]]}"
            reasons.update(dict.fromkeys(agree[rank], why))
    return reasons


def _compared(
    records: Sequence[CollectiveRecords], corrections: Mapping[int, Correction]
) -> Iterator[tuple[int, int, str]]:
    """Pairs of ranks of one group with "" where their operations meet, else how they do not."""
    groups: dict[str, list[_Timed]] = {}
    for rank_records in records:
        if rank_records.rank in corrections:
            for index, group in enumerate(rank_records.groups):
                groups.setdefault(group.key, []).append(
                    _timed(rank_records, index, corrections[rank_records.rank])
                )
    for members in groups.values():
        members.sort(key=lambda m: m.rank)
        pairs: Iterable[tuple[_Timed, _Timed]] = combinations(members, 2)
        if len(members) > _ALL_PAIRS:
            pairs = [*pairwise(members), *((members[0], member) for member in members[2:])]
        for timed, its in pairs:
            difference = _meeting(timed, its)
            if difference is not None:
                yield timed.rank, its.rank, difference


class _Timed(msgspec.Struct, frozen=True):
    """Operations of a rank in a group, by start, on the shared clock; ``waits``: in which ranks
    wait for each other."""

    rank: int
    token: NDArray[np.intp]
    waits: NDArray[np.bool_]
    start_ns: I64
    end_ns: I64


def _timed(records: CollectiveRecords, index: int, by: Correction) -> _Timed:
    rows = records.of_group(index)
    words = zip(records.kind[rows].tolist(), records.size[rows].tolist(), strict=True)
    token = [hash((records.kinds[kind], size)) for kind, size in words]
    waits = [records.kinds[kind] in SYNCHRONOUS for kind in records.kind[rows].tolist()]
    return _Timed(
        records.rank,
        np.array(token, np.int64),
        np.array(waits, bool),
        by.of(records.start_ns[rows]),
        by.of(records.end_ns[rows]),
    )


def _meeting(timed: _Timed, other: _Timed) -> str | None:
    """ "" if most operations of both meet, how they do not, or None if it is unknown."""
    if min(len(timed.token), len(other.token)) == 0:
        return None
    begin = max(int(timed.start_ns[0]), int(other.start_ns[0]))
    end = min(int(timed.end_ns.max()), int(other.end_ns.max()))
    if end < begin - _SLACK_NS:
        return (
            f"by their stamps their collectives are {(begin - end) / 1e6:.3f} ms apart, and never "
            "at one time"
        )
    inside = [
        np.flatnonzero(m.waits & (m.end_ns >= begin - _SLACK_NS) & (m.start_ns <= end + _SLACK_NS))
        for m in (timed, other)
    ]
    fewer, longer = (timed, other) if len(inside[0]) <= len(inside[1]) else (other, timed)
    rows = min(inside, key=len)
    if len(rows) < _FEWEST:
        return None
    met = 0
    for token in np.unique(fewer.token[rows]).tolist():
        own_rows = rows[fewer.token[rows] == token]
        candidates = np.flatnonzero(longer.token == token)
        ends = np.maximum.accumulate(longer.end_ns[candidates])
        position = np.searchsorted(ends, fewer.start_ns[own_rows] - _SLACK_NS)
        near = (
            candidates[np.minimum(position, len(candidates) - 1)] if len(candidates) else candidates
        )
        if len(candidates):
            begun = longer.start_ns[near] <= fewer.end_ns[own_rows] + _SLACK_NS
            met += int(np.count_nonzero(begun & (position < len(candidates))))
    if met >= _AGREE * len(rows):
        return ""
    if met > _REFUTED * len(rows):
        return None
    return (
        f"by their stamps, they are inside {met} of {len(rows)} collectives at the same time, "
        "though no rank can end one before all have begun it"
    )
