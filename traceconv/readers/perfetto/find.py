"""Survey a file before its events are read: producer, ranks and clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain, is_unix_ns
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.io.streams import ZSTD
from traceconv.protobuf.message import is_whole, last_values, number, signed, whole_fields
from traceconv.protobuf.message_columns import CUT, Columns, columns, frames
from traceconv.protobuf.perfetto_schema import Clock, ClockSnapshot, TracePacket
from traceconv.readers.perfetto import own_files
from traceconv.readers.perfetto.clock_snapshots import BOOTTIME
from traceconv.readers.perfetto.foreign_file import Part
from traceconv.readers.perfetto.others import DESCRIPTIVE, KINDS, OTHERS_NS
from traceconv.readers.perfetto.packets import FIELDS, Packets, packets, plausible
from traceconv.readers.perfetto.places import RANK, Lanes, Places, Sort
from traceconv.readers.perfetto.tracks import Descriptors, track_key
from traceconv.readers.shared import perfetto_manifest

SURVEYED_BYTES = 4 << 20
"""A file up to this size is looked through; of a larger one the head decides whether it is."""

REALTIME = 1
_CLUES = (b"rank", b"Rank", b"RANK", b"STREAM [", b"HIP Activity", b"GPU Kernel", b"hip_api")
"""Words in the head of a file that may have several ranks."""


def is_trace(head: bytes, whole: bool, named: bool) -> bool:
    """Whether the first bytes of a file are packets.

    Args:
        whole: there are no more.
        named: the file has the suffix of a trace, so packets of other data sources will do.
    """
    found = frames(head, 0, len(head), 64)
    if not len(found.start):
        # one packet that is longer than the head
        return found.how == CUT and not whole and _begins_packet(head)
    if plausible(columns(head, found.start, found.size, FIELDS)).any():
        return True
    packets_ = (head[a : a + n] for a, n in zip(found.start, found.size, strict=True))
    whole_packets = [whole_fields(one) for one in packets_ if named and is_whole(one)]
    data = KINDS.keys() - DESCRIPTIVE
    return len(whole_packets) == len(found.start) and any(
        n in data and isinstance(value, bytes) for one in whole_packets for n, _, value in one
    )


def _begins_packet(head: bytes) -> bool:
    """Whether the fields at the start of a long packet are those of one."""
    at = 1
    while at < len(head) and head[at] >= 0x80:
        at += 1
    found = whole_fields(head[at + 1 :])
    return bool(found) and any(n in FIELDS and n != TracePacket.CLOCK_SNAPSHOT for n, _, _ in found)


@dataclass
class Survey:
    """Tracks and clocks of a file, from its packets.

    Attributes:
        snapshot: readings of clocks by id, of the first snapshot that has several.
        primary:  the clock of the trace.
        latest:   the last time of the packets.
    """

    descriptors: Descriptors = field(default_factory=Descriptors)
    snapshot: dict[int, int] = field(default_factory=dict)
    primary: int = BOOTTIME
    latest: int = 0

    def take(self, some: Packets) -> None:
        """Look at some packets."""
        of = some.columns
        for row in np.flatnonzero(of.is_bytes(TracePacket.TRACK_DESCRIPTOR)).tolist():
            last = last_values(some.bytes_of(row))
            self.descriptors.take(last[TracePacket.TRACK_DESCRIPTOR], number(last.get(98, 0)))
        snapshots = np.flatnonzero(of.is_bytes(TracePacket.CLOCK_SNAPSHOT)).tolist()
        for row in snapshots if not self.snapshot else ():
            self._snapshot(last_values(some.bytes_of(row))[TracePacket.CLOCK_SNAPSHOT])
        if len(of):
            self.latest = max(self.latest, int(of.integer(TracePacket.TIMESTAMP).max()))

    def _snapshot(self, data: Any) -> None:
        found = whole_fields(data)
        readings = [last_values(v) for n, _, v in found if n == ClockSnapshot.CLOCKS]
        clocks = {
            number(of.get(Clock.CLOCK_ID, 0)): signed(of.get(Clock.TIMESTAMP, 0)) for of in readings
        }
        primary = number(last_values(data).get(ClockSnapshot.PRIMARY_TRACE_CLOCK, 0)) or BOOTTIME
        if primary in clocks:
            self.snapshot, self.primary = clocks, primary

    def clock(self) -> Anchor | None:
        """The clock of the timestamps."""
        if is_unix_ns(self.latest):
            return Anchor(Domain.UNIX, evidence="stamps count from 1970")
        if not self.snapshot:
            return None
        if REALTIME in self.snapshot and is_unix_ns(self.snapshot[REALTIME]):
            local, shared = self.snapshot[self.primary], self.snapshot[REALTIME]
            return Anchor(Domain.MONOTONIC, local, shared, "a snapshot of its clocks")
        return Anchor(Domain.MONOTONIC, evidence="its clock counts from boot")

    def parts(self) -> list[tuple[int, Part]]:
        """Ranks, and what of the file is theirs; empty if the file is one rank's."""
        keys = [track_key(*one) for one in self.descriptors.known]
        lanes = Lanes(self.descriptors, keys, [""] * len(keys)).lanes
        threads = [lane for lane in lanes if lane.thread is not None]
        ranks = {lane.rank for lane in threads if lane.rank >= 0}
        if len(ranks) > 1:
            grouped = any(RANK.search(lane.name) for lane in threads)
            return _parts({rank: Part(rank, grouped) for rank in sorted(ranks)})
        places = Places(lanes)
        busy = {
            lane.process
            for lane in lanes
            if lane.process is not None and places.sort(lane, "", None) is Sort.STREAM
        }
        if len(busy) < 2:
            return []
        return _parts({i: Part(process=one) for i, one in enumerate(sorted(busy))})


def _parts(of: dict[int, Part]) -> list[tuple[int, Part]]:
    """Ranks with their parts. The first part also counts tracks that belong to no rank."""
    (rank, first), *others = of.items()
    return [(rank, replace(first, others=tuple(part for _, part in others))), *others]


def captures(
    source: Source, names: Sequence[str], heads: Mapping[str, bytes], issues: Issues
) -> list[Capture]:
    """The captures of some files.

    Args:
        names: all files that are there.
        heads: first bytes of those that are traces, by name.
    """
    facts = {name: own_files.attributes(source, name, head) for name, head in heads.items()}
    bundles = {own_files.folder(name) for name, of in facts.items() if "ranks" in of}
    for name, of in facts.items():
        if OTHERS_NS in of and own_files.folder(name) not in bundles:
            facts[name] = {}  # taken out of its bundle
    ours = {name: of for name, of in facts.items() if of}
    found = own_files.captures(source, names, ours, heads, issues)
    foreign = {name: head for name, head in heads.items() if name not in ours}
    placed = perfetto_manifest.found_in(source, names, issues) if foreign else {}
    for name, head in foreign.items():
        ranks = _foreign(source, name, head)
        if (place := placed.get(name)) is not None:
            ranks = [
                replace(
                    one,
                    host=place.machine,
                    clock=place.clock,
                    detail=replace(one.detail, shift_ns=place.shift_ns),
                )
                for one in ranks
            ]
        found += ranks
    return found


def _foreign(source: Source, name: str, head: bytes) -> list[Capture]:
    """The captures of a file of another program."""
    survey = _survey(source, name, head)
    known: dict[str, Any] = {
        "reader": "perfetto",
        "source": source,
        "files": (name,),
        "clock": survey.clock(),
        "beside": ((name, 0),),
        "label": source.title(name),
    }
    parts = survey.parts()
    if not parts:
        pids = {one.pid for one in survey.descriptors.known.values() if one.pid}
        pid = pids.pop() if len(pids) == 1 else -1
        return [Capture(**known, pid=pid, detail=Part())]
    if parts[0][1].rank >= 0:
        said = "names of threads and processes"
        return [Capture(**known, rank=r, rank_from=said, detail=p) for r, p in parts]
    title = known.pop("label")
    return [
        Capture(**known, detail=p, pid=pid, label=f"{title} (process {pid})")
        for _, p in parts
        for pid in [(p.process or (0, -1))[1]]
    ]


def _survey(source: Source, name: str, head: bytes) -> Survey:
    survey = Survey()
    if head.startswith(ZSTD):  # it cannot be unpacked here; reading it says what to install
        return survey
    if source.size(name) <= SURVEYED_BYTES or any(clue in head for clue in _CLUES):
        some: Iterable[Packets] = packets(source, name, TraceBuilder.of_rank(0))
    else:
        found = frames(head, 0, len(head), 1 << 62)
        of: Columns = columns(head, found.start, found.size, FIELDS)
        some = [Packets(head, found.start, found.size, of, 0)]
    for one in some:
        survey.take(one)
    return survey
