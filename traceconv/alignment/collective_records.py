"""The collectives a rank took part in, as small columns that are passed between processes.

Groups are recognised across ranks by what their profilers say: the name and the members of a
process group (PyTorch), the hash in the names of HCCL's operations, else the title of the lane.
Where a lane says no more than its stream, lanes stand for groups by their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I32, I64
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Kind, OpClass, Trace, Track
from traceconv.core.records import dataclass

UNKNOWN = -1

P2P = "p2p"
"""The kind of sends, receives and exchanges: one side's send is the other's receive."""

_KINDS = re.compile(
    r"(allreduce|reducescatter|allgather|alltoall|broadcast|barrier)|"
    r"(batchsendrecv|sendrecv|send|receive|recv)|(reduce|gather|scatter)"
)
_PERMUTE = re.compile(r"permute", re.IGNORECASE)
"""Operations that pass data on from device to device: they end on one without the others."""

_UNEVEN = ("alltoall", "gather", "scatter", P2P)
"""Kinds whose sizes may differ between the ranks of one operation."""

_HCCL = re.compile(r"hcom_[A-Za-z]+_*?__(\d+)_\d+_\d+")
_NUMBERED = re.compile(r"Group \d+( Communication)?\Z")
_DEVICE = re.compile(r"(GPU|NPU|TPU|CPU) \d+\Z")
_LANE = re.compile(
    r"(Stream|Plane|Lane|Thread) |Communication( Kernel)?\Z|Operations\Z|Collectives\Z"
)


class _Arguments(msgspec.Struct, rename={
    "name": "Collective name",
    "group": "Process Group Name",
    "members": "Process Group Ranks",
    "ranks": "Group size",
    "rank_size": "rank_size",
    "n_bytes": "bytes",
    "count": "count",
}):  # fmt: skip
    """The arguments of an operation that are used; all others are skipped."""

    name: Any = None
    group: Any = None
    members: Any = None
    ranks: Any = None
    rank_size: Any = None
    n_bytes: Any = None
    count: Any = None


_NOTHING = _Arguments()
_decode = msgspec.json.Decoder(_Arguments).decode


@dataclass(frozen=True)
class Group:
    """A communicator as one rank knows it.

    Attributes:
        key:  equal on all its ranks.
        size: how many ranks it has, -1 if unknown.
        named: whether the source names it; otherwise a lane represents it.
    """

    key: str
    size: int = UNKNOWN
    named: bool = True


@dataclass(frozen=True)
class CollectiveRecords:
    """The collectives of one rank, by group and, within a group, by start.

    Attributes:
        rank:   global rank.
        groups: its groups.
        kinds:  names of kinds: "allreduce".
        group:  int32 per operation, index into ``groups``.
        kind:   int32 per operation, index into ``kinds``.
        size:   int64 per operation: bytes or elements, -1 if unknown or uneven.
        step:   int32 per operation, -1 if it belongs to none.
        start_ns, end_ns: int64, on the rank's own clock.
    """

    rank: int
    groups: tuple[Group, ...]
    kinds: tuple[str, ...]
    group: I32
    kind: I32
    size: I64
    step: I32
    start_ns: I64
    end_ns: I64

    def __len__(self) -> int:
        return len(self.group)

    @property
    def messages(self) -> NDArray[np.bool_]:
        """Which operations are messages between two ranks."""
        found: NDArray[np.bool_] = np.isin(
            self.kind, [i for i, kind in enumerate(self.kinds) if kind == P2P]
        )
        return found

    def of_group(self, index: int) -> slice:
        """The rows of one group."""
        first, last = np.searchsorted(self.group, [index, index + 1])
        return slice(int(first), int(last))


def collective_records(trace: Trace) -> CollectiveRecords:
    """The whole communication operations of ``trace``, before any selection is applied.

    Permutations are left out: their ends on two ranks have nothing to do with each other.
    """
    events = trace.events
    rows = np.flatnonzero((events.op == OpClass.COMM) & (events.kind == Kind.SLICE))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    facts = _facts(trace, events.args[rows].tolist())
    names = [trace.strings[i] for i in events.name[rows].tolist()]
    kept = [not _PERMUTE.search(_text(f.name) or n) for f, n in zip(facts, names, strict=True)]
    rows = rows[kept]
    facts = [one for one, yes in zip(facts, kept, strict=True) if yes]
    names = [one for one, yes in zip(names, kept, strict=True) if yes]
    kinds: dict[str, int] = {}
    kind = [
        kinds.setdefault(_kind(_text(f.name), n), len(kinds))
        for f, n in zip(facts, names, strict=True)
    ]
    known = tuple(kinds)
    size = [UNKNOWN if known[k] in _UNEVEN else _size(f) for k, f in zip(kind, facts, strict=True)]
    groups: dict[str, int] = {}
    largest: dict[str, Group] = {}
    lanes: dict[Track, Group] = {}
    group = []
    for f, n, t in zip(facts, names, events.track[rows].tolist(), strict=True):
        one = _group(f, n, trace.tracks[t], lanes)
        group.append(groups.setdefault(one.key, len(groups)))
        largest[one.key] = max(one, largest.get(one.key, one), key=lambda g: g.size)
    order = np.argsort(np.array(group, np.int32), kind="stable")
    return CollectiveRecords(
        trace.rank,
        tuple(largest.values()),
        known,
        np.array(group, np.int32)[order],
        np.array(kind, np.int32)[order],
        np.array(size, np.int64)[order],
        events.step[rows][order],
        events.start_ns[rows][order],
        events.end_ns[rows][order],
    )


def _kind(stated: str, name: str) -> str:
    """What is stated of an operation; its name says more where that is "coalesced"."""
    return kind_of(stated if _KINDS.search(_letters(stated)) else name or stated)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


@lru_cache(4096)
def kind_of(name: str) -> str:
    """What an operation does, whatever its library calls it; printed indexes do not matter.

    ``hcom_allReduce__586_0_1``, ``ncclDevKernel_AllReduce_Sum_f32_RING_LL`` and
    ``Default/AllReduce-op534_0`` are all "allreduce".
    """
    letters = _letters(name)
    match = _KINDS.search(letters)
    if match is None:
        return letters[:80]
    return match[1] or (P2P if match[2] else match[3])


def _facts(trace: Trace, ids: Sequence[int]) -> list[_Arguments]:
    found = []
    for number in ids:
        try:
            found.append(_decode(trace.args.raw(number)) if number >= 0 else _NOTHING)
        except NOT_JSON:
            found.append(_NOTHING)
    return found


def _group(facts: _Arguments, name: str, track: Track, lanes: dict[Track, Group]) -> Group:
    """The group of one operation, from the most specific source: arguments, name, lane."""
    size = max(_count(facts.ranks), _count(facts.rank_size))
    name_of_group = _text(facts.group)
    if name_of_group:
        return Group(f"group {name_of_group} {_text(facts.members)}".strip(), size)
    title = _title(track)
    match = _HCCL.match(name)
    if match:
        return Group(f"hccl {match[1]} {title}".strip(), size)
    if title:
        return Group(title, size)
    lane = Group(f"lane {len(lanes)}", size, named=False)
    return lanes.setdefault(replace(track, lane=0), lane)


def _title(track: Track) -> str:
    """The name of a group in its lane's title; "" for mere numbers, which differ between ranks."""
    title = track.group if _LANE.match(track.name) else track.name
    return "" if _NUMBERED.match(title) or _DEVICE.match(title) else title


def _size(facts: _Arguments) -> int:
    return max(_count(facts.n_bytes), _count(facts.count))


def _count(value: Any) -> int:
    """A whole number, also as text; -1 for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62
    return value if usable else UNKNOWN


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""
