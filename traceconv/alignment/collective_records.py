"""The collectives a rank took part in, as small columns that are passed between processes.

Groups are recognised across ranks by what their profilers say: the name and the members of a
process group (PyTorch), the hash in the names of HCCL's operations, else the title of the lane.
Where a lane names only its stream, lanes represent groups by their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I8, I32, I64, once_each
from traceconv.core.job_shape import Placement
from traceconv.core.json_text import NOT_JSON, Repeated
from traceconv.core.model import Args, Kind, OpClass, Strings, Trace, Track
from traceconv.core.patterns import lazy_regex, natural

UNKNOWN = -1

BLOCK = 1 << 16
"""Operations whose arguments are in memory at a time."""

P2P = "p2p"
"""The kind of sends, receives and exchanges: one side's send is the other's receive."""

SEND, RECEIVE = 1, 2
"""Directions of messages; 0 of an exchange, or where it is unknown."""

_SENDS, _RECEIVES = lazy_regex(r"send(?!recv)|isend"), lazy_regex(r"(?<!send)(recv|receive)")

_KINDS = lazy_regex(
    r"(allreduce|reducescatter|allgather|alltoall|broadcast|barrier)|"
    r"(batchsendrecv|sendrecv|send|receive|recv)|(reduce|gather|scatter)"
)
_PERMUTE = lazy_regex(r"permute", re.IGNORECASE)
"""Operations that pass data on from device to device: they end on one without the others."""

_UNEVEN = ("alltoall", "gather", "scatter", P2P)
"""Kinds whose sizes may differ between the ranks of one operation."""

_PEER = lazy_regex(r"\d+(?:->|<-)(\d{1,9})\b")
"""In names of the flight recorder: "nccl:send 0->1", "nccl:recv 1<-0"."""

_HCCL = lazy_regex(r"hcom_[A-Za-z]+_*?__(\d{1,18})_\d+_\d+")


class _Arguments(msgspec.Struct, rename={
    "name": "Collective name",
    "group": "Process Group Name",
    "members": "Process Group Ranks",
    "ranks": "Group size",
    "rank_size": "rank_size",
    "n_bytes": "bytes",
    "count": "count",
    "run": "run_id",
    "program": "hlo_module",
    "instruction": "hlo_op",
    "target": "Dst Rank",
    "source": "Src Rank",
    "sequence": "Seq",
    "of_group": "process_group",
    "recorded": "collective_seq_id",
}):  # fmt: skip
    """The arguments of an operation that are used; all others are skipped."""

    name: Any = None
    group: Any = None
    members: Any = None
    ranks: Any = None
    rank_size: Any = None
    n_bytes: Any = None
    count: Any = None
    run: Any = None
    program: Any = None
    instruction: Any = None
    target: Any = None
    source: Any = None
    sequence: Any = None
    of_group: Any = None
    recorded: Any = None


_NOTHING = _Arguments()
_decode = msgspec.json.Decoder(_Arguments).decode


SOMETIMES = ("identity", "direction", "peer")
"""Columns of records that are empty where the source never says what they hold."""


class Group(msgspec.Struct, frozen=True):
    """A communicator as one rank knows it.

    Attributes:
        key:  equal on all its ranks.
        size: how many ranks it has, -1 if unknown.
        named: whether the source names it; otherwise a lane represents it.
        name: what people call it; without the hash that HCCL makes anew in every run.
        hashed: whether ``key`` has such a hash.
        members: global ranks, as operations list them; () if they do not.
    """

    key: str
    size: int = UNKNOWN
    named: bool = True
    name: str = ""
    hashed: bool = False
    members: tuple[int, ...] = ()


class CollectiveRecords(msgspec.Struct, frozen=True):
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
        identity: int64 per operation: equal on all its ranks, and to no other of its group but in
            the same run of a program; -1 where the source does not say it, and empty where it never
            does.
        direction, peer: per operation: :data:`SEND`, :data:`RECEIVE` or 0, and the other side as
            its arguments state it, by its place in the group or its global rank, -1 if they do
            not; empty of a rank without messages.
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
    identity: I64 = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    direction: I8 = msgspec.field(default_factory=lambda: np.empty(0, np.int8))
    peer: I32 = msgspec.field(default_factory=lambda: np.empty(0, np.int32))

    @classmethod
    def none(cls, rank: int) -> CollectiveRecords:
        """No operations: no other rank to compare clocks with."""
        code, number = np.empty(0, np.int32), np.empty(0, np.int64)
        return cls(rank, (), (), code, code, number, code, number, number)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def messages(self) -> NDArray[np.bool_]:
        """Which operations are messages between two ranks."""
        is_message: NDArray[np.bool_] = np.isin(
            self.kind, [i for i, kind in enumerate(self.kinds) if kind == P2P]
        )
        return is_message

    def of_group(self, index: int) -> slice:
        """The rows of one group."""
        begin, end = np.searchsorted(self.group, [index, index + 1])
        return slice(int(begin), int(end))


def collective_records(trace: Trace) -> CollectiveRecords:
    """The whole communication operations of ``trace``, before any selection is applied.

    Permutations are left out: their ends on two ranks have nothing to do with each other.
    """
    return recorded_rows(trace)[0]


@once_each
def recorded_rows(trace: Trace) -> tuple[CollectiveRecords, NDArray[np.intp]]:
    """:func:`collective_records`, and the event row of each."""
    events = trace.events
    rows = np.flatnonzero((events.op == OpClass.COMM) & (events.kind == Kind.SLICE))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    names, columns = _said(trace, rows)
    group, kind, size, direction, peer, identity, is_kept = columns
    rows = rows[is_kept.astype(bool)]
    order = np.argsort(group, kind="stable")
    messages = order if P2P in names.kinds else order[:0]
    records = CollectiveRecords(
        trace.rank,
        tuple(names.largest.values()),
        tuple(names.kinds),
        group[order],
        kind[order],
        size[order].astype(np.int64),
        events.step[rows][order],
        events.start_ns[rows][order],
        events.ends(rows)[order],
        identity[order] if (identity >= 0).any() else np.empty(0, np.int64),
        direction[messages].astype(np.int8),
        peer[messages].astype(np.int32),
    )
    return records, rows[order]


def _said(trace: Trace, rows: NDArray[np.intp]) -> tuple[_Numbered, tuple[NDArray[Any], ...]]:
    """What some operations say: passes change neither names nor arguments, and most no lane, so
    an earlier answer is still right."""
    events = trace.events
    used, track = np.unique(events.track[rows], return_inverse=True)
    columns = events.name[rows], events.args[rows], track
    key = tuple(map(trace.tracks.__getitem__, used.tolist())), *(c.tobytes() for c in columns)
    known = _of_reading(trace.strings, trace.args, trace.capture.placement)
    if key not in known:
        names = _Numbered(trace.capture.placement)
        blocks = [names.take(trace, rows[i : i + BLOCK]) for i in range(0, len(rows), BLOCK)]
        said = zip(*blocks, strict=True) if blocks else [[np.empty(0, np.int32)]] * 7
        known.clear()
        known[key] = names, tuple(map(np.concatenate, said))
    return known[key]


@once_each
def _of_reading(
    strings: Strings, args: Args, placement: Placement
) -> dict[Any, tuple[_Numbered, tuple[NDArray[Any], ...]]]:
    """Where :func:`_said` keeps the last operations of a rank, while its names live."""
    return {}


class _Numbered(msgspec.Struct):
    """Numbers for the kinds and groups of operations.

    Attributes:
        placement: of the rank; jobs that state the same ranks have groups of the same names.
        kinds:   by name.
        groups:  by key.
        largest: groups by key, in the order of their numbers.
        lanes:   groups that are but lanes.
        known:   what :meth:`_numbers` gives of operations that say the same.
    """

    placement: Placement
    kinds: dict[str, int] = msgspec.field(default_factory=dict)
    groups: dict[str, int] = msgspec.field(default_factory=dict)
    largest: dict[str, Group] = msgspec.field(default_factory=dict)
    lanes: dict[Track, Group] = msgspec.field(default_factory=dict)
    known: Repeated[tuple[int, int, int, int, int] | None] = msgspec.field(default_factory=Repeated)

    def take(self, trace: Trace, rows: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
        """Group, kind, size, direction, peer and identity of some operations; and which of the rows
        these are."""
        events = trace.events
        numbers, identity = [], []
        is_kept = np.ones(len(rows), bool)
        facts = _facts(trace, events.args[rows].tolist())
        columns = (facts, events.name[rows].tolist(), events.track[rows].tolist())
        for row, (f, n, t) in enumerate(zip(*columns, strict=True)):
            name = _unnumbered(trace.strings[n])
            values = f.name, f.group, f.members, f.ranks, f.rank_size, f.n_bytes, f.count
            recorded = str(f.of_group) if f.of_group else None
            key = name, t, f.target, f.source, recorded, *values
            record_codes = self.known.of(key, self._numbers, f, name, trace.tracks[t])
            if record_codes is None:
                is_kept[row] = False
                continue
            numbers.append(record_codes)
            if f.run is not None:
                identity.append(_identity(f, trace.strings[n]))
            else:  # PyTorch counts the operations of a process group; messages of each pair apart
                collective = record_codes[1] != self.kinds.get(P2P)
                number = f.recorded if f.sequence is None else f.sequence
                identity.append(_count(number) if collective else UNKNOWN)
        group, kind, size, direction, peer = np.array(numbers, np.int64).reshape(-1, 5).T
        codes = group.astype(np.int32), kind.astype(np.int32)
        return *codes, size, direction, peer, np.array(identity, np.int64), is_kept

    def _numbers(
        self, f: _Arguments, name: str, track: Track
    ) -> tuple[int, int, int, int, int] | None:
        """Group, kind, size, direction and peer of an operation by its arguments, its name and its
        lane; None of permutations."""
        recorded = _text(f.name)
        if _PERMUTE.search(recorded or name):
            return None
        # its name says more where "coalesced" is stated
        operation_kind = kind_of(
            recorded if _KINDS.search(_letters(recorded)) else name or recorded
        )
        kind = self.kinds.setdefault(operation_kind, len(self.kinds))
        group_facts = _group(f, name, track, self.lanes)
        if job := self.placement.job:
            key = f"job of rank {job[0][1]} {group_facts.key}"
            members = self.placement.among_all(group_facts.members)
            group_facts = msgspec.structs.replace(group_facts, key=key, members=members)
        group = self.groups.setdefault(group_facts.key, len(self.groups))
        if group_facts.size > self.largest.setdefault(group_facts.key, group_facts).size:
            self.largest[group_facts.key] = group_facts
        direction = (_direction(recorded) or _direction(name)) if operation_kind == P2P else 0
        size = UNKNOWN if operation_kind in _UNEVEN else max(_count(f.n_bytes), _count(f.count))
        return group, kind, size, direction, _peer(f, name, direction)


def _unnumbered(name: str) -> str:
    """``name`` with 0 for the two numbers at its end, which count operations in HCCL.

    Nothing but they tells its operations apart, and neither kind nor group depends on them:
    ``hcom_allReduce__586_12_1`` is an allreduce of group 586.
    """
    before, _, index_in_step = name.rpartition("_")
    before, _, index = before.rpartition("_")
    return f"{before}_0_0" if index.isdecimal() and index_in_step.isdecimal() else name


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
    if not match:
        return letters[:80]
    return match[1] or (P2P if match[2] else match[3])


def _direction(name: str) -> int:
    letters = _letters(name)
    sends, receives = bool(_SENDS.search(letters)), bool(_RECEIVES.search(letters))
    return 0 if sends == receives else SEND if sends else RECEIVE


def _peer(facts: _Arguments, name: str, direction: int) -> int:
    """The other side as stated: by its place in the group or its rank; see :mod:`.messages`."""
    peer = _count(facts.target if direction == SEND else facts.source) if direction else UNKNOWN
    match = _PEER.search(name) if direction and peer < 0 else None
    peer = int(match[1]) if match else peer
    return peer if peer < 2**31 else UNKNOWN


def _members(listed: Any) -> tuple[int, ...]:
    """Global ranks of a group: a list, or its text; () of any other value, and if it is cut."""
    if isinstance(listed, str):
        listed = re.findall(r"\d{1,9}", listed) if "..." not in listed else []
    members = tuple(_count(number) for number in listed) if isinstance(listed, list) else ()
    return members if min(members, default=UNKNOWN) >= 0 else ()


def _facts(trace: Trace, ids: Sequence[int]) -> list[_Arguments]:
    decoded = []
    for number in ids:
        try:
            decoded.append(_decode(trace.args.raw(number)) if number >= 0 else _NOTHING)
        except NOT_JSON:
            decoded.append(_NOTHING)
    return decoded


def _group(facts: _Arguments, name: str, track: Track, lanes: dict[Track, Group]) -> Group:
    """The group of one operation, from the most specific source: arguments, name, lane."""
    size = max(_count(facts.ranks), _count(facts.rank_size))
    members = _members(facts.members)
    of_group = facts.of_group if isinstance(facts.of_group, list) else []
    name_of_group = _text(facts.group) or (_text(of_group[0]) if of_group else "")
    if name_of_group:
        title = f"{name_of_group} {_text(facts.members)}".strip()
        return Group(f"group {title}", max(size, len(members) or -1), name=title, members=members)
    title = track.communicator
    match = _HCCL.match(name)
    if match:
        return Group(f"hccl {match[1]} {title}".strip(), size, name=title, hashed=True)
    if title:
        return Group(title, size, name=title)
    title = f"lane {len(lanes)}"
    return lanes.setdefault(track.whole, Group(title, size, named=False, name=title))


def _identity(facts: _Arguments, name: str) -> int:
    """Of an operation of XLA: what its program, its instruction and the number of the run make it,
    which participants agree on; -1 for any other."""
    run, program = _text(facts.run), _text(facts.program)
    if not run or not program:
        return UNKNOWN
    from hashlib import blake2b  # most merges have none of these

    words = "\0".join((program, _text(facts.instruction) or name, run))
    return int.from_bytes(blake2b(words.encode("utf-8", "replace"), digest_size=8).digest()) >> 1


def _count(value: Any) -> int:
    """A whole number, also as text; -1 for anything else."""
    value = natural(value) if isinstance(value, str) else value
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62
    return value if usable else UNKNOWN


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""
