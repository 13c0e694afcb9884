"""The rows of the viewer: which there are, how they are nested, and in which order.

*By rank*: ``Rank N`` (a process) → ``Timeline`` → layer → group → lane. Viewers sort what is
directly below a process by name, so there is one plain group between; below it the order is ours.
*By lane*: ``All ranks`` → layer → group → lane → ``Rank N``, the rank that others wait for first.
*Groups* that would hold one row are not drawn: the row bears their names. *Threads* of the host are
threads of the rank's process, in either order: further lanes of a thread - its runtime calls - are
inside it, for viewers show threads beside each other and nowhere else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from traceconv.core.errors import OutputError
from traceconv.core.model import I64, Capture, Layer, Mask, Trace, Track, TrackKind
from traceconv.protobuf.perfetto_schema import (
    CounterDescriptor,
    ProcessDescriptor,
    ThreadDescriptor,
    TracePacket,
    TrackDescriptor,
)
from traceconv.writers import Across
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


def shown_pids(pids: Mapping[int, int], ranks: Iterable[int]) -> dict[int, int]:
    """The process id shown for each rank: its own where it is known and no lower rank has it, else
    one made from the rank.

    Args:
        pids:  of the ranks, as captures know them.
        ranks: of the whole file.
    """
    synthetic = {_SYNTHETIC_PIDS + rank for rank in ranks}
    shown: dict[int, int] = {}
    used: set[int] = set()
    for rank, pid in sorted(pids.items()):
        is_usable = 0 < pid < 2**31 and pid not in used and pid not in synthetic
        shown[rank] = pid if is_usable else _SYNTHETIC_PIDS + rank
        used.add(pid)
    return shown


# -- where rows are -------------------------------------------------------------------------------

TIMELINE, ALL_RANKS = "Timeline", "All ranks"
"""The plain groups around all others: in a process, and in none."""

_BETWEEN = " \u00b7 "
"""Separates the name of a group that is not drawn from the name of its only track."""


class Thread(NamedTuple):
    """A thread of the host: its number, and its name."""

    tid: int
    name: str


class Place(NamedTuple):
    """Where a track is on screen.

    Attributes:
        above:  names of the groups around it, outermost first; () for what is in a thread.
        name:   of its row.
        thread: it is of; None for what is of none.
        itself: whether its events are those of the thread, and not of a row in it.
    """

    above: tuple[str, ...]
    name: str
    thread: Thread | None = None
    itself: bool = False


def thread_of(track: Track, capture: Capture) -> Thread | None:
    """The thread that a track is of; None if it is of none of the rank's process. Lanes that are
    called otherwise, or nested in something, keep their place among the others."""
    if track.thread <= 0 or track.layer not in (Layer.HOST, Layer.RUNTIME):
        return None
    if track.group and track.process < 0:
        return None
    if track.process not in (-1, capture.pid) or not track.name.startswith(
        f"Thread {track.thread}"
    ):
        return None
    return Thread(track.thread, track.thread_name)


def nested(lanes: Iterable[Track]) -> dict[Track, tuple[tuple[str, ...], str]]:
    """The groups that are drawn around each lane, and its name on screen."""
    layers: dict[tuple[Layer, str], dict[str, list[Track]]] = {}
    for lane in dict.fromkeys(lanes):
        groups = layers.setdefault((lane.layer, lane.heading), {})
        groups.setdefault(lane.group, []).append(lane)
    places = {}
    for (_, heading), groups in layers.items():
        children = len(groups) - ("" in groups) + len(groups.get("", ()))
        for group, members in groups.items():
            for lane in members:
                above = [(heading, children > 1)]
                above += [(group, len(members) > 1)] if group else []
                hidden = [name for name, drawn in above if not drawn]
                shown = tuple(name for name, drawn in above if drawn)
                if shown and hidden and above[0][1] is False:  # a group takes the layer's name
                    shown, hidden = (_joined(heading, shown[0]), *shown[1:]), []
                name = lane.name
                for hidden_name in reversed(hidden):
                    name = _joined(hidden_name, name)
                places[lane] = (shown, name)
    return places


def _joined(group: str, name: str) -> str:
    return name if name.startswith(group) else _BETWEEN.join(filter(None, (group, name)))


def places(trace: Trace, used: Mask, across: Across | None) -> dict[int, Place]:
    """Where the ``used`` tracks are, by their index."""
    shown = [i for i, is_used in enumerate(used.tolist()) if is_used]
    threads = {i: thread_of(trace.tracks[i], trace.capture) for i in shown}
    lane_by_track = {i: trace.tracks[i].whole for i in shown if threads[i] is None}
    if across is None:
        inside = nested(lane_by_track.values())
        tops = {above[:1] or (name,) for above, name in inside.values()}
        top = (TIMELINE,) if len(tops) > 1 else ()
        place_by_track = {
            i: Place((*top, *inside[lane][0]), inside[lane][1]) for i, lane in lane_by_track.items()
        }
    else:
        rank_name = trace.capture.name or f"Rank {trace.rank}"
        inside = nested(across.lanes)
        place_by_track = {
            i: Place((ALL_RANKS, *_path(inside[lane])), rank_name)
            for i, lane in lane_by_track.items()
        }
    return place_by_track | _in_threads(
        trace, {i: thread for i, thread in threads.items() if thread}
    )


def _path(nesting: tuple[tuple[str, ...], str]) -> tuple[str, ...]:
    return (*nesting[0], nesting[1])


def _in_threads(trace: Trace, threads: Mapping[int, Thread]) -> dict[int, Place]:
    """The first lane of a thread is the thread itself, unless it has sub-lanes; a thread without a
    name has that of its layer. Viewers say beside other lanes which thread they are of.
    """
    lanes = Counter(track.whole for track in trace.tracks)
    names: dict[int, set[str]] = {}
    for thread in threads.values():
        names.setdefault(thread.tid, set()).add(thread.name)
    place_by_track: dict[int, Place] = {}
    thread_by_tid: dict[int, Thread] = {}
    for i, thread in threads.items():
        track, tid = trace.tracks[i], thread.tid
        alike = len(names[tid]) == 1
        itself = tid not in thread_by_tid and lanes[track.whole] == 1
        first_thread = thread_by_tid.setdefault(
            tid, Thread(tid, (alike and thread.name) or track.heading)
        )
        name = track.heading if alike else _joined(track.heading, track.name)
        place_by_track[i] = Place((), name, first_thread, itself)
    return place_by_track


# -- their descriptions ---------------------------------------------------------------------------


class _Tree:
    """Describes rows, parents before children, and counts children."""

    def __init__(self, trace: Trace, pid: int, shared: Mapping[tuple[str, ...], int]) -> None:
        self.packets: list[bytes] = []
        self._rank, self._next, self._pid = trace.rank, len(trace.tracks), pid
        self._groups: dict[tuple[str, ...], int] = dict(shared)
        self._threads: dict[int, int] = {}
        self._children: Counter[int] = Counter()
        self._process = self._new_uuid()
        self.packets.append(_process(trace.capture, trace.rank, self._process, pid))

    def add(self, parent: int, uuid: int, *fields: bytes, order: int | None = None) -> None:
        """Describe a row as the next child of ``parent``, or as the one at ``order``."""
        position = self._children[parent] if order is None else order
        self.packets.append(
            _descriptor(
                uuid,
                number(TrackDescriptor.PARENT_UUID, parent),
                number(TrackDescriptor.SIBLING_ORDER_RANK, position),
                *fields,
            )
        )
        self._children[parent] += 1

    def group(self, *path: str) -> int:
        """The row that is called so, within the process; described when new."""
        if not path:
            return self._process
        uuid = self._groups.get(path)
        if uuid is None:
            parent = self.group(*path[:-1])
            uuid = self._groups[path] = self._new_uuid()
            self.add(parent, uuid, *_group(path[-1]))
        return uuid

    def thread(self, thread: Thread, uuid: int | None = None) -> int:
        """The row of a thread; described when new, as ``uuid`` if that is given."""
        if thread.tid not in self._threads:
            uuid = self._new_uuid() if uuid is None else uuid
            self._threads[thread.tid] = uuid
            described = message(
                TrackDescriptor.THREAD,
                number(ThreadDescriptor.PID, self._pid),
                number(ThreadDescriptor.TID, thread.tid),
                text(ThreadDescriptor.THREAD_NAME, thread.name),
            )
            self.packets.append(_descriptor(uuid, described))
        return self._threads[thread.tid]

    def _new_uuid(self) -> int:
        self._next += 1
        return track_uuid(self._rank, self._next - 1)


def uuids(trace: Trace) -> I64:
    """The id of every track. Those without events have one too: ids follow from the index."""
    n = len(trace.tracks)
    return np.fromiter((track_uuid(trace.rank, i) for i in range(n)), np.int64, n)


def descriptors(trace: Trace, used: Mask, pid: int, across: Across | None = None) -> list[bytes]:
    """Packets that describe the process, the ``used`` tracks, and the groups between."""
    tree = _Tree(trace, pid, {} if across is None else _shared(across))
    order = None if across is None else across.ranks.index(trace.rank)
    lanes = Counter(track.whole for track in trace.tracks)
    ids = uuids(trace).tolist()
    first_uuid: dict[Track, int] = {}
    for track, uuid in zip(trace.tracks, ids, strict=True):
        first_uuid.setdefault(track.whole, uuid)
    place_by_track = places(trace, used, across)
    axes = _axes(trace, place_by_track, across is not None)
    for i, place in sorted(place_by_track.items()):
        if place.thread and place.itself:
            tree.thread(place.thread, ids[i])
            continue
        track = trace.tracks[i]
        key = first_uuid[track.whole] if lanes[track.whole] > 1 else 0
        parent = tree.thread(place.thread) if place.thread else tree.group(*place.above)
        axis = axes.get(i, "")
        fields = _lane(track, place.name, key, axis)
        tree.add(parent, ids[i], *fields, order=None if place.thread else order)
    return tree.packets


def _axes(trace: Trace, shown: Mapping[int, Place], alike: bool) -> dict[int, str]:
    """Counters of one kind in one group: of one unit, and of one name but for numbers. ``alike``
    says that a group is one counter of all ranks."""
    kinds: dict[tuple[tuple[str, ...], str, str], list[int]] = {}
    for i, place in shown.items():
        track = trace.tracks[i]
        if track.unit is not None:
            kind = re.sub("[0-9]+", "", track.name)
            kinds.setdefault((place.above, kind, track.unit), []).append(i)
    several = {key: members for key, members in kinds.items() if alike or len(members) > 1}
    return {i: f"{kind} {unit}" for (_, kind, unit), counters in several.items() for i in counters}


_SHARED = 1 << 45
"""Ids of the groups that all ranks are in begin here, beyond those of any rank."""


def _shared(across: Across) -> dict[tuple[str, ...], int]:
    """The groups that all ranks are in, and their ids."""
    paths: dict[tuple[str, ...], None] = {(ALL_RANKS,): None}
    for nesting in nested(across.lanes).values():
        path = (ALL_RANKS, *_path(nesting))
        paths.update(dict.fromkeys(path[:n] for n in range(1, len(path) + 1)))
    return {path: _SHARED + i for i, path in enumerate(paths)}


def shared_groups(across: Across) -> list[bytes]:
    """Packets that describe the groups that all ranks are in; once per file."""
    uuid_by_path, children = _shared(across), Counter[tuple[str, ...]]()
    packets = []
    for path, uuid in uuid_by_path.items():
        parent = path[:-1]
        above = [number(TrackDescriptor.PARENT_UUID, uuid_by_path[parent])] if parent else []
        order = number(TrackDescriptor.SIBLING_ORDER_RANK, children[parent])
        children[parent] += 1
        packets.append(_descriptor(uuid, *above, order, *_group(path[-1])))
    return packets


def _group(name: str) -> tuple[bytes, bytes]:
    return text(TrackDescriptor.NAME, name), number(TrackDescriptor.CHILD_ORDERING, _EXPLICIT)


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


DESCRIPTIONS = {
    "iterations": "Steps, as recorded by the profiler or derived from host annotations. If neither "
    "is present, one step covers the whole capture.",
    "Computing": "Time when at least one compute task runs on the device.",
    "Communication": "Time when at least one collective runs on the device.",
    "Communication(Not Overlapped)": "Communication time without any compute task.",
    "Free": "Idle time: no compute, communication or copy task runs.",
    "Memory Copy": "Time when at least one copy or fill runs on the device.",
    "Memory Copy(Not Overlapped)": "Copy time without any compute task or collective.",
    "Unclassified": "Tasks of unknown type, while nothing else runs on the device.",
    "Findings": "Problems that diagnose found, at the time they occur.",
    "Stragglers": "Ranks that delay other ranks, and for how long.",
    "Critical path": "The chain of work across all ranks that determines the length of each step.",
}
"""Descriptions of computed tracks, which viewers show."""

_RECORDED = {
    Layer.HOST: "Activity of a host thread: operators, functions and annotations.",
    Layer.RUNTIME: "Runtime API calls (CANN, CUDA, HIP and others) of a host thread.",
    Layer.DEVICE: "Tasks that run on the device, by stream, queue or engine.",
    Layer.COMM: "Communication, by communicator, channel, plane or stream.",
    Layer.COUNTER: "Counter samples. Each value holds until the next sample.",
}
"""Descriptions of recorded tracks, by layer."""


def _description(track: Track) -> bytes:
    computed = track.layer in (Layer.STEP, Layer.OVERLAP)
    description = DESCRIPTIONS.get(track.name) if computed else _RECORDED.get(track.layer)
    if track.kind is TrackKind.PROJECTION:
        description = "Host annotations, over the device tasks that they launched."
    if track.process >= 0:  # the process of the viewer is the rank
        thread = f"Thread {track.thread} of process" if track.thread >= 0 else "Process"
        description = f"{description or ''} {thread} {track.process}.".lstrip()
    return text(TrackDescriptor.DESCRIPTION, description) if description else b""


def _lane(track: Track, name: str, key: int, axis: str) -> Iterator[bytes]:
    """The fields of a row with events.

    Args:
        key:  joins sub-lanes; 0 = the lane is one row.
        axis: the counters of one group that have it are drawn to one scale; "" if alone.
    """
    yield text(TrackDescriptor.NAME, name)
    yield _description(track)
    if track.unit is not None:
        shared = text(CounterDescriptor.Y_AXIS_SHARE_KEY, axis) if axis else b""
        yield message(TrackDescriptor.COUNTER, *_unit(track.unit), shared)
    merging = _MERGED_BY_KEY if key else _NOT_MERGED
    yield number(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, merging)
    if key:
        yield number(TrackDescriptor.SIBLING_MERGE_KEY_INT, key)


def shown_unit(unit: str) -> tuple[str, int]:
    """A unit as Perfetto's importer names it, and the factor it multiplies values by."""
    factor = _BYTES.get(unit.lower())
    return (unit, 1) if factor is None else ("bytes", factor)


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
