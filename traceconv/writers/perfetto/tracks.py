"""The rows of the viewer: which there are, how they are nested, and in which order.

``Rank N`` (a process) → ``Timeline`` → layer → group → lane. Viewers sort what is directly below a
process by name, so there is one plain group between; below it the order is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from traceconv.core.errors import OutputError
from traceconv.core.model import I64, Capture, Mask, Trace, Track
from traceconv.core.perfetto_fields import (
    CounterDescriptor,
    ProcessDescriptor,
    TracePacket,
    TrackDescriptor,
)
from traceconv.writers.perfetto.wire import (
    message,
    number,
    packet,
    text,
)

_EXPLICIT = 3
_NOT_MERGED, _MERGED_BY_KEY = 2, 3
_SYNTHETIC_PIDS = 1_000_000
_MAX_RANK = 1 << 24

_NEAR, _FAR = 1 << 8, 1 << 20
"""Ids a rank has: near ones, of one to three bytes for its first rows, and far ones of five."""

_BYTES = {"b": 1, "byte": 1, "bytes": 1} | {
    prefix + unit: 1024**power for power, prefix in enumerate("kmgt", 1) for unit in ("b", "ib")
}
"""Bytes in a unit of size. Profilers' KB are 1024 bytes."""

_BUILTIN = {"ns": 1, "count": 2}
_SIZE_BYTES = 3


def track_uuid(rank: int, index: int) -> int:
    """The id of a rank's ``index``-th row, of no other rank; small ones take few bytes.

    Raises:
        OutputError: a rank or a number of tracks that the format's ids have no room for.
    """
    if rank >= _MAX_RANK or index >= _FAR - 1:
        raise OutputError(
            f"rank {rank}: a Perfetto trace can have ranks below {_MAX_RANK} with up to {_FAR - 1} "
            "tracks each; write Chrome JSON, or leave layers out"
        )
    if index < _NEAR - 1:
        return rank * _NEAR + index + 1
    return _MAX_RANK * _NEAR * 2 + rank * _FAR + index


def shown_pid(rank: int, pids: Mapping[int, int], ranks: Container[int]) -> int:
    """The process's own id where it is known and no lower rank has it, else one made from the rank.

    Args:
        pids: of the ranks, as captures know them.
    """
    pid = pids[rank]
    taken = any(other < rank and own == pid for other, own in pids.items())
    if 0 < pid < 2**31 and not taken and pid - _SYNTHETIC_PIDS not in ranks:
        return pid
    return _SYNTHETIC_PIDS + rank


@dataclass
class _Tree:
    """Describes rows, parents before children, and counts children."""

    rank: int
    next: int
    packets: list[bytes] = field(default_factory=list)
    _groups: dict[tuple[str, ...], int] = field(default_factory=dict)
    _children: Counter[int] = field(default_factory=Counter)

    def add(self, parent: int, uuid: int, *fields: bytes) -> None:
        """Describe a row as the next child of ``parent``."""
        self.packets.append(
            _descriptor(
                uuid,
                number(TrackDescriptor.PARENT_UUID, parent),
                number(TrackDescriptor.SIBLING_ORDER_RANK, self._children[parent]),
                *fields,
            )
        )
        self._children[parent] += 1

    def new_uuid(self) -> int:
        self.next += 1
        return track_uuid(self.rank, self.next - 1)

    def group(self, parent: int, *path: str) -> int:
        """The row above others, named by the last name of ``path``; described when new."""
        uuid = self._groups.get(path)
        if uuid is None:
            uuid = self._groups[path] = self.new_uuid()
            ordering = number(TrackDescriptor.CHILD_ORDERING, _EXPLICIT)
            self.add(parent, uuid, text(TrackDescriptor.NAME, path[-1]), ordering)
        return uuid


def uuids(trace: Trace) -> I64:
    """The id of every track. Those without events have one too: ids follow from the index."""
    n = len(trace.tracks)
    return np.fromiter((track_uuid(trace.rank, i) for i in range(n)), np.int64, n)


def descriptors(trace: Trace, used: Mask, pid: int) -> list[bytes]:
    """Packets that describe the process, the ``used`` tracks, and the groups between."""
    tree = _Tree(trace.rank, len(trace.tracks))
    process = tree.new_uuid()
    tree.packets.append(_process(trace.capture, trace.rank, process, pid))
    timeline = tree.group(process, "Timeline")
    lanes = Counter(replace(track, lane=0) for track in trace.tracks)
    first: dict[Track, int] = {}
    for track, uuid, shown in zip(trace.tracks, uuids(trace).tolist(), used.tolist(), strict=True):
        whole = replace(track, lane=0)
        first.setdefault(whole, uuid)
        if not shown:
            continue
        parent = tree.group(timeline, str(track.layer), track.heading)
        if track.group:
            parent = tree.group(parent, str(track.layer), track.heading, track.group)
        key = first[whole] if lanes[whole] > 1 else 0
        tree.add(parent, uuid, *_lane(track, key))
    return tree.packets


def _descriptor(uuid: int, *fields: bytes) -> bytes:
    return packet(
        message(TracePacket.TRACK_DESCRIPTOR, number(TrackDescriptor.UUID, uuid), *fields)
    )


def root() -> bytes:
    """Orders processes by their ranks; once per file."""
    return _descriptor(
        0,
        number(TrackDescriptor.PROCESS_ORDERING, 1),
        number(TrackDescriptor.THREAD_ORDERING, 1),
    )


def _process(capture: Capture, rank: int, uuid: int, pid: int) -> bytes:
    labels = [f"device {capture.device}"] if capture.device >= 0 else []
    labels += [capture.host] if capture.host else []
    labels += [f"pid {capture.pid}"] if capture.pid > 0 and capture.pid != pid else []
    described = message(
        TrackDescriptor.PROCESS,
        number(ProcessDescriptor.PID, pid),
        text(ProcessDescriptor.PROCESS_NAME, capture.name or f"Rank {rank}"),
        *(text(ProcessDescriptor.PROCESS_LABELS, label) for label in labels),
    )
    return _descriptor(uuid, described, number(TrackDescriptor.SIBLING_ORDER_RANK, rank))


def _lane(track: Track, key: int) -> Iterator[bytes]:
    """The fields of a row with events; ``key`` joins sub-lanes, 0 = the lane is one row."""
    yield text(TrackDescriptor.NAME, track.name)
    if track.unit is not None:
        yield message(TrackDescriptor.COUNTER, *_unit(track.unit))
    merging = _MERGED_BY_KEY if key else _NOT_MERGED
    yield number(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, merging)
    if key:
        yield number(TrackDescriptor.SIBLING_MERGE_KEY_INT, key)


def _unit(unit: str) -> Iterator[bytes]:
    """Units the viewer knows how to scale, others by name."""
    factor = _BYTES.get(unit.lower())
    if factor is not None:
        yield number(CounterDescriptor.UNIT, _SIZE_BYTES)
        if factor > 1:
            yield number(CounterDescriptor.UNIT_MULTIPLIER, factor)
    elif unit in _BUILTIN:
        yield number(CounterDescriptor.UNIT, _BUILTIN[unit])
    elif unit:
        yield text(CounterDescriptor.UNIT_NAME, unit)
