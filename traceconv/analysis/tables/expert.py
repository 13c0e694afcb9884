"""Tables of expert parallelism: tokens that ranks send to and receive from each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np

from traceconv.analysis.tables.collective import group_names
from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    Column,
    Ranked,
    Table,
    stacked,
    texts,
)
from traceconv.analysis.tables.fields import fields
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.analysis.tables.host import kernels
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import OpClass, Trace
from traceconv.core.side_tables import Columns


@lru_cache(1 << 12)
def _split_sizes(text: str) -> tuple[int, ...]:
    """Rows for each rank, "[3, 5]"; () if they are equal ("[]") or the list was shortened."""
    try:
        sizes = msgspec.json.decode(text) if text else []
    except NOT_JSON:
        return ()
    plain = isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)
    return tuple(sizes) if plain else ()


def _peer_facts(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COMM)
    if not len(rows):
        return NOTHING
    sent, received = fields(trace, rows, "In split size", "Out split size")
    is_readable = sent.fitting(_split_sizes) & received.fitting(_split_sizes)
    sent, received, group = (
        sent[is_readable],
        received[is_readable],
        group_names(trace, rows[is_readable]),
    )
    alike = Groups.of(group.numbers(), sent.numbers(), received.numbers())
    sums_by_peer: dict[tuple[str, int], list[int]] = {}
    for first, times in zip(alike.first.tolist(), alike.size.tolist(), strict=True):
        pairs = zip(_split_sizes(sent.at(first)), _split_sizes(received.at(first)), strict=False)
        for peer, (out, back) in enumerate(pairs):
            peer_sums = sums_by_peer.setdefault((group.at(first), peer), [0, 0, 0])
            for i, value in enumerate((1, out, back)):
                peer_sums[i] += times * value
    if not sums_by_peer:
        return NOTHING
    sums = np.array([*sums_by_peer.values()], np.int64)
    return {
        "Group": texts([name for name, _ in sums_by_peer]),
        "Peer": np.array([peer for _, peer in sums_by_peer], np.int64),
        "Count": sums[:, 0],
        "Sent": sums[:, 1],
        "Received": sums[:, 2],
    }


def _facts(trace: Trace) -> Columns:
    peers = _peer_facts(trace)
    if not peers:
        return NOTHING
    groups = Groups.of(numbered(peers["Group"]))
    return {
        "Group": peers["Group"][groups.first],
        "Peers": groups.size,
        "Count": groups.high(peers["Count"]),
        "Sent": groups.total(peers["Sent"]),
        "Received": groups.total(peers["Received"]),
    }


def _loads(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    groups = Groups.of(numbered(rows["Group"]))
    mean = groups.spread(groups.total(rows["Received"])) / groups.spread(groups.size)
    return {**rows, "Load(%)": share(rows["Received"], mean)}


_FORMULA = (
    "Of collectives that state how many rows each rank gets (all_to_allv: In split size, Out split "
    "size; of mixtures of experts, rows are tokens): Count = operations, Sent and Received = sums "
    "of rows, to and from the rank itself included. Operations with equal parts, and lists that "
    "PyTorch shortens, are left out. "
)
_NEEDS = "collectives with uneven parts: In split size and Out split size of PyTorch"

TABLES: Sequence[Table] = (
    Table(
        "expert",
        "Load of ranks by all-to-all (experts)",
        f"{_FORMULA}Load = Received / mean Received of the ranks read of the group: 100 = even.",
        _NEEDS,
        (
            *Column.whole(RANK), *Column.text("Group"),
            *Column.whole("Peers", "Count", "Sent", "Received"), *Column.percent("Load"),
        ),
        _facts,
        _loads,
    ),
    Table(
        "expert_peer",
        "Rows that ranks exchange by all-to-all (experts)",
        f"{_FORMULA}Peer = number of the other rank within the group.",
        _NEEDS,
        (
            *Column.whole(RANK), *Column.text("Group"),
            *Column.whole("Peer", "Count", "Sent", "Received"),
        ),
        _peer_facts,
        stacked,
        capped=True,
    ),
)  # fmt: skip
