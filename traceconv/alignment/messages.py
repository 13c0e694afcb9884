"""Which send of one rank is which receive of another, and which exchanges are the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import SEND, CollectiveRecords
from traceconv.core.columns import I64, Mask

MOST_MEMBERS = 64
"""Most ranks of a group whose messages are paired by time; pipelines have fewer stages."""

MOST_CLEAR = 0.9
"""Share of the messages of a group that have to be clear."""

CLEAR = 5
"""A message is clear if the next candidate ends this many times as far away as the nearest."""

_TOGETHER = 0.1
"""The ends of one exchange scatter by less than this share of the time to the next exchange."""


def messages(
    records: Mapping[int, CollectiveRecords], ends: Mapping[int, I64] | None = None
) -> I64:
    """Sends and receives of the same message: those between two ranks, in order, in steps in
    which both ranks have equally many.

    The other side of a message is what the source states, the other rank of a group of two, or the
    rank whose operation ends at the same time; see :func:`_pair_by_time`.

    Args:
        records: the operations of each rank.
        ends:  of each rank, when its operations end on the clock of all ranks, ns; without it
            nothing is concluded from times.

    Returns:
        (messages, 4): the rank that sends, its row, the rank that receives, its row.
    """
    globally = _global(records)
    keys: dict[str, int] = {}
    pairs = _pairs(records)
    tables = []
    for rank, rank_records in records.items():
        rows = np.flatnonzero(rank_records.direction != 0)
        group = rank_records.group[rows]
        peer = _peers(rank_records, rows, globally)
        alone = np.array(
            [pairs.get((group_of.key, rank), -1) for group_of in rank_records.groups] or [-1]
        )
        peer = np.where(peer < 0, alone[group], peer)
        key = np.array(
            [keys.setdefault(group_of.key, len(keys)) for group_of in rank_records.groups] or [0]
        )
        sends = rank_records.direction[rows] == SEND
        columns = key[group], np.full(len(rows), rank), peer, rank_records.step[rows], sends
        end = rank_records.end_ns[rows] if ends is None else ends[rank][rows]
        tables.append(np.stack((*columns, rank_records.start_ns[rows], rows, end), axis=1))
    table = np.concatenate(tables) if tables else np.zeros((0, 8), np.int64)
    if ends is not None:
        _pair_by_time(table)
    table = table[np.isin(table[:, 2], list(records)) & (table[:, 1] != table[:, 2])]
    received = table[:, 4] == 0
    table[received, 1:3] = table[received, 2:0:-1]  # from, to
    table = table[np.lexsort((table[:, 5], *table[:, 3::-1].T))]
    sent, received = table[table[:, 4] == 1], table[table[:, 4] == 0]
    balanced = _equally_many(sent, received), _equally_many(received, sent)
    sent, received = sent[balanced[0]], received[balanced[1]]
    return np.stack((sent[:, 1], sent[:, 6], received[:, 2], received[:, 6]), axis=1)


def exchanges(records: Mapping[int, CollectiveRecords]) -> I64:
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
    for rank, rank_records in records.items():
        for number, group in enumerate(rank_records.groups):
            if (
                group.named
                and len(rank_records.direction)
                and rank_records.messages[rank_records.of_group(number)].any()
            ):
                position = group.members.index(rank) if rank in group.members else rank
                stages.setdefault(group.key, []).append((position, rank_records, number))
    pairs = [np.zeros((0, 4), np.int64)]
    for of_group in stages.values():
        of_group.sort(key=lambda member: member[0])
        if 2 < len(of_group) <= MOST_MEMBERS:
            pairs += _of_pipeline([(rank_records, number) for _, rank_records, number in of_group])
    return np.concatenate(pairs)


def _of_pipeline(stages: Sequence[tuple[CollectiveRecords, int]]) -> list[I64]:
    """The exchanges between each stage and the next."""
    rows = []
    for records, number in stages:
        exchange_rows = np.arange(len(records))[records.of_group(number)]
        exchange_rows = exchange_rows[
            records.messages[exchange_rows]
            & (records.direction[exchange_rows] == 0)
            & (records.step[exchange_rows] >= 0)
        ]
        rows.append(exchange_rows[np.argsort(records.start_ns[exchange_rows], kind="stable")])
    onwards: list[list[I64]] = [[] for _ in stages[1:]]
    for step in np.unique(stages[0][0].step).tolist():
        of_step = [
            stage_rows[records.step[stage_rows] == step]
            for stage_rows, (records, _) in zip(rows, stages, strict=True)
        ]
        following, before = 0, []  # how many a stage has with the one before
        for step_rows in of_step:
            before.append(following)
            following = len(step_rows) - following
        after = [*before[1:], following]
        if following or any(
            not 0 <= n - b <= 1 for b, n in zip(before[1:-1], after[1:-1], strict=True)
        ):
            continue
        for stage, link in enumerate(onwards):
            own_rows, next_rows = of_step[stage], of_step[stage + 1]
            own_rows = own_rows[::2] if stage else own_rows
            next_rows = next_rows[1::2] if stage < len(onwards) - 1 else next_rows
            link.append(np.stack((own_rows, next_rows), axis=1))
    exchanged = []
    for stage, link in enumerate(onwards):
        (stage_records, _), (next_records, _) = stages[stage], stages[stage + 1]
        apart = [
            stage_records.end_ns[pairs[:, 0]] - next_records.end_ns[pairs[:, 1]]
            for pairs in link
            if len(pairs)
        ]
        if not apart:
            continue
        pairs = np.concatenate(link)
        scatter = np.median(np.abs(np.concatenate([ns - np.median(ns) for ns in apart])))
        apart_ns = (
            np.median(np.diff(np.sort(stage_records.end_ns[pairs[:, 0]]))) if len(pairs) > 1 else 0
        )
        if scatter <= _TOGETHER * apart_ns:
            ranks = (
                np.full((len(pairs), 1), stage_records.rank),
                np.full((len(pairs), 1), next_records.rank),
            )
            exchanged.append(np.hstack((ranks[0], pairs[:, :1], ranks[1], pairs[:, 1:])))
    return exchanged


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


def _nearest(
    table: I64, rows: I64, candidates_of: I64, ranks: I64
) -> tuple[NDArray[np.intp], Mask]:
    """Per row, which of the other side ends nearest on another rank, and whether it is clear."""
    nearest, clear = np.zeros(len(rows), np.intp), np.zeros(len(rows), bool)
    others_end, order = table[candidates_of, 7], np.argsort(table[candidates_of, 7], kind="stable")
    for rank in ranks.tolist():
        own_rows = np.flatnonzero(table[rows, 1] == rank)
        candidates = order[table[candidates_of[order], 1] != rank]
        ends = others_end[candidates]
        highest = len(ends) - 1
        if highest < 0:
            continue
        position = np.searchsorted(ends, table[rows[own_rows], 7])
        near = np.clip(position[:, None] + np.arange(-2, 2), 0, highest)
        away = np.abs(ends[near] - table[rows[own_rows], 7][:, None])
        away[:, 1:][near[:, 1:] == near[:, :-1]] = np.iinfo(np.int64).max  # at the edges, the same
        by = np.argsort(away, axis=1, kind="stable")
        nearest[own_rows] = candidates[np.take_along_axis(near, by, axis=1)[:, 0]]
        nearest_ns, second_ns = np.take_along_axis(away, by[:, :2], axis=1).T
        clear[own_rows] = second_ns // CLEAR > nearest_ns
    return nearest, clear


def _equally_many(rows: I64, other_rows: I64) -> Mask:
    """Rows whose group, ranks and step occur as often on the other side."""
    used, key_of, counts = np.unique(
        np.concatenate((rows[:, :4], other_rows[:, :4])), axis=0, return_inverse=True,
        return_counts=True,
    )  # fmt: skip
    key_of = key_of.reshape(-1)
    own_counts = np.bincount(key_of[: len(rows)], minlength=len(used))
    balanced: Mask = (2 * own_counts == counts)[key_of[: len(rows)]]
    return balanced


def _global(records: Mapping[int, CollectiveRecords]) -> bool:
    """Whether sources state the other side as a global rank, and not as its place in the group:
    what more of their messages can be, and if all can be both, its place, as PyTorch states it."""
    places, rank = 0, 0
    for rank_records in records.values():
        for number, group in enumerate(rank_records.groups):
            if not len(rank_records.peer) or not len(group.members):
                continue
            peers = rank_records.peer[rank_records.of_group(number)]
            peers = peers[peers >= 0]
            if len(peers):
                places += int((peers < len(group.members)).sum())
                rank += int(np.isin(peers, group.members).sum())
    return rank > places


def _peers(records: CollectiveRecords, rows: I64, globally: bool) -> I64:
    """The global rank of the other side, -1 if unknown."""
    peers = np.full(len(rows), -1, np.int64)
    group, recorded = records.group[rows], records.peer[rows].astype(np.int64)
    for number, peer_group in enumerate(records.groups):
        of_group = np.flatnonzero(group == number)
        stated, members = recorded[of_group], np.array(peer_group.members, np.int64)
        if globally or not len(members):
            peers[of_group] = np.where(np.isin(stated, members), stated, -1)
        else:
            inside = (stated >= 0) & (stated < len(members))
            peers[of_group[inside]] = members[stated[inside]]
    return peers


def _pairs(records: Mapping[int, CollectiveRecords]) -> dict[tuple[str, int], int]:
    """The other rank of groups of two, by group and rank."""
    members: dict[str, list[int]] = {}
    for number, rank_records in records.items():
        for group in rank_records.groups:
            if group.size == 2 and group.named:
                members.setdefault(group.key, []).append(number)
    return {
        (key, rank): partner
        for key, pair in members.items()
        if len(pair) == 2
        for rank, partner in (pair, pair[::-1])
    }
