"""Which send of one rank is which receive of another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceconv.alignment.collective_records import SEND, CollectiveRecords, Group
from traceconv.core.columns import I64, Mask


def messages(every: Mapping[int, CollectiveRecords]) -> I64:
    """Sends and receives of the same message: what one rank sends another, in order, where both
    have equally many in a step.

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
        kept = np.isin(peer, list(every)) & (peer != rank)
        rows, group, peer = rows[kept], group[kept], peer[kept]
        key = np.array([keys.setdefault(one.key, len(keys)) for one in known.groups] or [0])
        sends = known.direction[rows] == SEND
        own = np.full(len(rows), rank)
        ends = np.where(sends, own, peer), np.where(sends, peer, own)
        found.append(
            np.stack((key[group], *ends, known.step[rows], sends, known.start_ns[rows], rows), 1)
        )
    table = np.concatenate(found) if found else np.zeros((0, 7), np.int64)
    table = table[np.lexsort((table[:, 5], *table[:, 3::-1].T))]
    sent, received = table[table[:, 4] == 1], table[table[:, 4] == 0]
    same = _equally_many(sent, received), _equally_many(received, sent)
    sent, received = sent[same[0]], received[same[1]]
    return np.stack((sent[:, 1], sent[:, 6], received[:, 2], received[:, 6]), axis=1)


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
