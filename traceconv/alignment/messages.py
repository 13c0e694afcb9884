"""Which send of one rank is which receive of another, and which exchanges are the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import SEND, CollectiveRecords, Group
from traceconv.core.columns import I64, Mask

MOST_MEMBERS = 64
"""Most ranks of a group whose messages are paired by time; pipelines have fewer stages."""

MOST_CLEAR = 0.9
"""Share of the messages of a group that have to be clear."""

CLEAR = 5
"""A message is clear if the next candidate ends this many times as far away as the nearest."""

_TOGETHER = 0.1
"""The ends of one exchange scatter by less than this share of the time to the next exchange."""


def messages(every: Mapping[int, CollectiveRecords], ends: Mapping[int, I64] | None = None) -> I64:
    """Sends and receives of the same message: those between two ranks, in order, in steps in
    which both ranks have equally many.

    The other side of a message is what the source states, the other rank of a group of two, or the
    rank whose operation ends at the same time; see :func:`_pair_by_time`.

    Args:
        every: the operations of each rank.
        ends:  of each rank, when its operations end on the clock of all ranks, ns; without it
            nothing is concluded from times.

    Returns:
        (messages, 4): the rank that sends, its row, the rank that receives, its row.
    """
    globally = _global(every)
    keys: dict[str, int] = {}
    pairs = _pairs(every)
    found = []
    for rank, known in every.items():
        rows = np.flatnonzero(known.direction != 0)
        group = known.group[rows]
        peer = _peers(known, rows, globally)
        alone = np.array([pairs.get((one.key, rank), -1) for one in known.groups] or [-1])
        peer = np.where(peer < 0, alone[group], peer)
        key = np.array([keys.setdefault(one.key, len(keys)) for one in known.groups] or [0])
        sends = known.direction[rows] == SEND
        columns = key[group], np.full(len(rows), rank), peer, known.step[rows], sends
        end = known.end_ns[rows] if ends is None else ends[rank][rows]
        found.append(np.stack((*columns, known.start_ns[rows], rows, end), axis=1))
    table = np.concatenate(found) if found else np.zeros((0, 8), np.int64)
    if ends is not None:
        _pair_by_time(table)
    table = table[np.isin(table[:, 2], list(every)) & (table[:, 1] != table[:, 2])]
    received = table[:, 4] == 0
    table[received, 1:3] = table[received, 2:0:-1]  # from, to
    table = table[np.lexsort((table[:, 5], *table[:, 3::-1].T))]
    sent, received = table[table[:, 4] == 1], table[table[:, 4] == 0]
    same = _equally_many(sent, received), _equally_many(received, sent)
    sent, received = sent[same[0]], received[same[1]]
    return np.stack((sent[:, 1], sent[:, 6], received[:, 2], received[:, 6]), axis=1)


def exchanges(every: Mapping[int, CollectiveRecords]) -> I64:
    """Exchanges of pipelines: operations that send to a neighbouring stage and receive from it,
    recorded as one, with neither side nor direction.

    In a pipeline that alternates forward and backward passes (1F1B), a stage exchanges with the
    next stage and the one before in turn. The first stage has only a next one, so the number of
    exchanges of each rank in a step tells, from one end to the other, how many it has with each
    neighbour: as many or one more with the next. Groups and steps in which these numbers do not
    come out, and ends that drift apart on the two ranks, are left out. Groups of two are matched
    as collectives (:mod:`.collective_matching`).

    Returns:
        (exchanges, 4): a rank, its row, the rank of the next stage, its row.
    """
    stages: dict[str, list[tuple[int, CollectiveRecords, int]]] = {}
    for rank, known in every.items():
        for number, group in enumerate(known.groups):
            if (
                group.named
                and len(known.direction)
                and known.messages[known.of_group(number)].any()
            ):
                place = group.members.index(rank) if rank in group.members else rank
                stages.setdefault(group.key, []).append((place, known, number))
    found = [np.zeros((0, 4), np.int64)]
    for of_group in stages.values():
        of_group.sort(key=lambda one: one[0])
        if 2 < len(of_group) <= MOST_MEMBERS:
            found += _of_pipeline([(known, number) for _, known, number in of_group])
    return np.concatenate(found)


def _of_pipeline(stages: Sequence[tuple[CollectiveRecords, int]]) -> list[I64]:
    """The exchanges between each stage and the next."""
    rows = []
    for known, number in stages:
        mine = np.arange(len(known))[known.of_group(number)]
        mine = mine[known.messages[mine] & (known.direction[mine] == 0) & (known.step[mine] >= 0)]
        rows.append(mine[np.argsort(known.start_ns[mine], kind="stable")])
    onwards: list[list[I64]] = [[] for _ in stages[1:]]
    for step in np.unique(stages[0][0].step).tolist():
        of_step = [
            mine[one.step[mine] == step] for mine, (one, _) in zip(rows, stages, strict=True)
        ]
        following, before = 0, []  # how many a stage has with the one before
        for mine in of_step:
            before.append(following)
            following = len(mine) - following
        after = [*before[1:], following]
        if following or any(
            not 0 <= n - b <= 1 for b, n in zip(before[1:-1], after[1:-1], strict=True)
        ):
            continue
        for stage, link in enumerate(onwards):
            ours, theirs = of_step[stage], of_step[stage + 1]
            ours = ours[::2] if stage else ours
            theirs = theirs[1::2] if stage < len(onwards) - 1 else theirs
            link.append(np.stack((ours, theirs), axis=1))
    found = []
    for stage, link in enumerate(onwards):
        (one, _), (other, _) = stages[stage], stages[stage + 1]
        apart = [
            one.end_ns[pairs[:, 0]] - other.end_ns[pairs[:, 1]] for pairs in link if len(pairs)
        ]
        if not apart:
            continue
        pairs = np.concatenate(link)
        scatter = np.median(np.abs(np.concatenate([ns - np.median(ns) for ns in apart])))
        apart_ns = np.median(np.diff(np.sort(one.end_ns[pairs[:, 0]]))) if len(pairs) > 1 else 0
        if scatter <= _TOGETHER * apart_ns:
            ranks = np.full((len(pairs), 1), one.rank), np.full((len(pairs), 1), other.rank)
            found.append(np.hstack((ranks[0], pairs[:, :1], ranks[1], pairs[:, 1:])))
    return found


def _pair_by_time(table: I64) -> None:
    """Fill in the other side (column 2) where a group states none, from when messages end.

    A send and its receive end together, but for the time of a small message. A group is filled in
    if nearly all of its sends and receives are each other's nearest and no other comes close; else
    its messages stay unknown.
    """
    unknown = np.flatnonzero(table[:, 2] < 0)
    for group in np.unique(table[unknown, 0]).tolist():
        rows = unknown[table[unknown, 0] == group]
        ranks = np.unique(table[rows, 1])
        if not 2 < len(ranks) <= MOST_MEMBERS:
            continue
        sends, receives = (rows[table[rows, 4] == side] for side in (1, 0))
        if len(sends) != len(receives):
            continue
        to, clear = _nearest(table, sends, receives, ranks)
        back, _ = _nearest(table, receives, sends, ranks)
        mutual = back[to] == np.arange(len(sends))
        if mutual.mean() > MOST_CLEAR and clear.mean() > MOST_CLEAR:
            pairs = sends[mutual], receives[to[mutual]]
            table[pairs[0], 2], table[pairs[1], 2] = table[pairs[1], 1], table[pairs[0], 1]


def _nearest(table: I64, rows: I64, others: I64, ranks: I64) -> tuple[NDArray[np.intp], Mask]:
    """Per row, which of the other side ends nearest on another rank, and whether it is clear."""
    found, clear = np.zeros(len(rows), np.intp), np.zeros(len(rows), bool)
    others_end, order = table[others, 7], np.argsort(table[others, 7], kind="stable")
    for rank in ranks.tolist():
        mine = np.flatnonzero(table[rows, 1] == rank)
        candidates = order[table[others[order], 1] != rank]
        ends = others_end[candidates]
        last = len(ends) - 1
        if last < 0:
            continue
        at = np.searchsorted(ends, table[rows[mine], 7])
        near = np.clip(at[:, None] + np.arange(-2, 2), 0, last)
        away = np.abs(ends[near] - table[rows[mine], 7][:, None])
        away[:, 1:][near[:, 1:] == near[:, :-1]] = np.iinfo(np.int64).max  # at the edges, the same
        by = np.argsort(away, axis=1, kind="stable")
        found[mine] = candidates[np.take_along_axis(near, by, axis=1)[:, 0]]
        first, second = np.take_along_axis(away, by[:, :2], axis=1).T
        clear[mine] = second // CLEAR > first
    return found, clear


def _equally_many(ours: I64, theirs: I64) -> Mask:
    """Rows whose group, ranks and step occur as often on the other side."""
    used, which, counts = np.unique(
        np.concatenate((ours[:, :4], theirs[:, :4])), axis=0, return_inverse=True,
        return_counts=True,
    )  # fmt: skip
    which = which.reshape(-1)
    mine = np.bincount(which[: len(ours)], minlength=len(used))
    found: Mask = (2 * mine == counts)[which[: len(ours)]]
    return found


def _global(every: Mapping[int, CollectiveRecords]) -> bool:
    """Whether sources state the other side as a global rank, and not as its place in the group:
    what more of their messages can be, and if all can be both, its place, as PyTorch states it."""
    place, rank = 0, 0
    for known in every.values():
        for number, group in enumerate(known.groups):
            stated = known.peer[known.of_group(number)] if len(known.peer) else known.peer
            stated = stated[stated >= 0]
            if len(group.members):
                place += int((stated < len(group.members)).sum())
                rank += int(np.isin(stated, group.members).sum())
    return rank > place


def _peers(known: CollectiveRecords, rows: I64, globally: bool) -> I64:
    """The global rank of the other side, -1 if unknown."""
    found = np.full(len(rows), -1, np.int64)
    group, stated = known.group[rows], known.peer[rows].astype(np.int64)
    for number, one in enumerate(known.groups):
        mine = np.flatnonzero(group == number)
        found[mine] = _within(one, stated[mine], globally)
    return found


def _within(group: Group, stated: I64, globally: bool) -> I64:
    members = np.array(group.members, np.int64)
    if globally or not len(members):
        return np.where(np.isin(stated, members), stated, -1)
    inside = (stated >= 0) & (stated < len(members))
    return np.where(inside, members[np.where(inside, stated, 0)], -1)


def _pairs(every: Mapping[int, CollectiveRecords]) -> dict[tuple[str, int], int]:
    """The other rank of groups of two, by group and rank."""
    members: dict[str, list[int]] = {}
    for number, known in every.items():
        for group in known.groups:
            if group.size == 2 and group.named:
                members.setdefault(group.key, []).append(number)
    return {
        (key, one): other
        for key, both in members.items()
        if len(both) == 2
        for one, other in (both, both[::-1])
    }
