"""Which send of one rank is which receive of another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceconv.alignment.collective_records import SEND, CollectiveRecords


def messages(every: Mapping[int, CollectiveRecords]) -> dict[tuple[int, int], tuple[int, int]]:
    """Sends and receives of the same message, both ways, by rank and row: what one rank sends
    another, in order, where both have equally many in a step."""
    sides: dict[tuple[str, int, int, int], tuple[list[int], list[int]]] = {}
    pairs = _pairs(every)
    for number, known in every.items():
        rows = np.flatnonzero(known.direction != 0)
        for row in rows[np.argsort(known.start_ns[rows], kind="stable")].tolist():
            key = known.groups[int(known.group[row])].key
            peer = int(known.peer[row])
            peer = pairs.get((key, number), -1) if peer < 0 else peer
            if peer not in every or peer == number:
                continue
            sends = int(known.direction[row]) == SEND
            ends = (number, peer) if sends else (peer, number)
            both = sides.setdefault((key, *ends, int(known.step[row])), ([], []))
            both[0 if sends else 1].append(row)
    found = {}
    for (_, source, target, _), (sent, received) in sides.items():
        if len(sent) == len(received):
            for one, other in zip(sent, received, strict=True):
                found[source, one], found[target, other] = (target, other), (source, one)
    return found


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
