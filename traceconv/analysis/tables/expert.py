"""Tables of expert parallelism: tokens that ranks send to and receive from each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import msgspec
import numpy as np

from traceconv.analysis.tables.collective import group_names
from traceconv.analysis.tables.definition import NOTHING, Column, Ranked, Table, stacked, texts
from traceconv.analysis.tables.fields import fields
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.texts import Texts
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Layer, OpClass, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.side_tables import Columns

_SUMS = ("Count", "Sent", "Received", "Routed")
_ALL_TO_ALL = NameTest(lambda name: name == "c10d::alltoall_base_")
"""Inputs: output, input, group, rows received from and sent to each rank (c10d/Ops.cpp)."""


@lru_cache(1 << 12)
def _split_sizes(text: str) -> tuple[int, ...]:
    """Rows for each rank, "[3, 5]"; () if they are equal ("[]") or the list was shortened."""
    try:
        sizes = msgspec.json.decode(text) if text else []
    except NOT_JSON:
        return ()
    plain = isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)
    return tuple(sizes) if plain else ()


def _input(number: int, text: str) -> str:
    """One of an operator's "Concrete Inputs"."""
    try:
        return str(msgspec.json.decode(text)[number]) if text else ""
    except (*NOT_JSON, IndexError, TypeError, KeyError):
        return ""


def _peer_facts(trace: Trace) -> Columns:
    for sent, received, group in _exchanges(trace):
        peers = _by_peer(sent, received, group)
        if peers:
            return peers
    return NOTHING


def _exchanges(trace: Trace) -> Iterator[tuple[Texts, Texts, Texts]]:
    """Lists of rows sent and received, and the group, of each collective: as the device states
    them; else as the operators of the host do, whose group is unknown."""
    rows = kernels(trace, OpClass.COMM)
    sent, received = fields(trace, rows, "In split size", "Out split size")
    yield sent, received, group_names(trace, rows)
    rows = np.flatnonzero(trace.rows_of(Layer.HOST) & rows_named(trace, _ALL_TO_ALL))
    (inputs,) = fields(trace, rows, "Concrete Inputs")
    received, sent = (inputs.mapped(partial(_input, number)) for number in (3, 4))
    yield sent, received, Texts.same("", len(rows))


def _by_peer(sent: Texts, received: Texts, group: Texts) -> Columns:
    is_readable = sent.fitting(_split_sizes) & received.fitting(_split_sizes)
    sent, received, group = (column[is_readable] for column in (sent, received, group))
    sums_by_peer: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    pending: Counter[tuple[str, ...]] = Counter()
    for name, out, back in zip(group.tolist(), sent.tolist(), received.tolist(), strict=True):
        returns = pending[name, back, out] > 0
        pending[(name, back, out) if returns else (name, out, back)] += -1 if returns else 1
        for peer, (to, of) in enumerate(zip(_split_sizes(out), _split_sizes(back), strict=False)):
            peer_sums = sums_by_peer[name, peer]
            for i, value in enumerate((1, to, of, 0 if returns else of)):
                peer_sums[i] += value
    if not sums_by_peer:
        return NOTHING
    sums = np.array([*sums_by_peer.values()], np.int64)
    return {
        "Group": texts([name for name, _ in sums_by_peer]),
        "Peer": np.array([peer for _, peer in sums_by_peer], np.int64),
        **dict(zip(_SUMS, sums.T, strict=True)),
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
        **{name: groups.total(peers[name]) for name in _SUMS[1:]},
    }


def _loads(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    groups = Groups.of(numbered(rows["Group"]))
    mean = groups.spread(groups.total(rows["Routed"])) / groups.spread(groups.size)
    return {**rows, "Load(%)": share(rows["Routed"], mean)}


_FORMULA = (
    "Of collectives that state how many rows each rank gets (of mixtures of experts, rows are "
    "tokens): all_to_allv on the device (In split size, Out split size), or, where those state "
    "nothing, c10d::alltoall_base_ on the host, whose group is unknown. Count = operations, Sent "
    "and Received = sums of rows, to and from the rank itself included. Routed = rows received by "
    "operations that do not return the rows of an earlier one: that send what it received, and "
    "receive what it sent. Operations with equal parts, and lists that PyTorch shortens, are left "
    "out. "
)
_NEEDS = (
    "collectives with uneven parts: In split size and Out split size of PyTorch, or "
    "c10d::alltoall_base_ recorded with record_shapes"
)

TABLES: Sequence[Table] = (
    Table(
        "expert",
        "Load of ranks by all-to-all (experts)",
        f"{_FORMULA}Load = Routed / mean Routed of the ranks read of the group: 100 = even.",
        _NEEDS,
        Column.parse("Rank, Group:text, Peers, Count, Sent, Received, Routed, Load(%)"),
        _facts,
        _loads,
    ),
    Table(
        "expert_peer",
        "Rows that ranks exchange by all-to-all (experts)",
        f"{_FORMULA}Peer = number of the other rank within the group.",
        _NEEDS,
        Column.parse("Rank, Group:text, Peer, Count, Sent, Received, Routed"),
        _peer_facts,
        capped=True,
    ),
)  # fmt: skip
