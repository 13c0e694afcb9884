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
    first_frames = frames(head, 0, len(head), 64)
    if not len(first_frames.start):
        # one packet that is longer than the head
        return first_frames.how == CUT and not whole and _begins_packet(head)
    if plausible(columns(head, first_frames.start, first_frames.size, FIELDS)).any():
        return True
    packets_ = (head[a : a + n] for a, n in zip(first_frames.start, first_frames.size, strict=True))
    whole_packets = [
        whole_fields(raw_packet) for raw_packet in packets_ if named and is_whole(raw_packet)
    ]
    data = KINDS.keys() - DESCRIPTIVE
    return len(whole_packets) == len(first_frames.start) and any(
        n in data and isinstance(value, bytes)
        for packet_fields in whole_packets
        for n, _, value in packet_fields
    )


def _begins_packet(head: bytes) -> bool:
    """Whether the fields at the start of a long packet are those of one."""
    position = 1
    while position < len(head) and head[position] >= 0x80:
        position += 1
    packet_fields = whole_fields(head[position + 1 :])
    return bool(packet_fields) and any(
        n in FIELDS and n != TracePacket.CLOCK_SNAPSHOT for n, _, _ in packet_fields
    )


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

    def take(self, batch: Packets) -> None:
        """Look at some packets."""
        packet_columns = batch.columns
        for row in np.flatnonzero(packet_columns.is_bytes(TracePacket.TRACK_DESCRIPTOR)).tolist():
            by_number = last_values(batch.bytes_of(row))
            self.descriptors.take(
                by_number[TracePacket.TRACK_DESCRIPTOR], number(by_number.get(98, 0))
            )
        snapshots = np.flatnonzero(packet_columns.is_bytes(TracePacket.CLOCK_SNAPSHOT)).tolist()
        for row in snapshots if not self.snapshot else ():
            self._snapshot(last_values(batch.bytes_of(row))[TracePacket.CLOCK_SNAPSHOT])
        if len(packet_columns):
            self.latest = max(self.latest, int(packet_columns.integer(TracePacket.TIMESTAMP).max()))

    def _snapshot(self, data: Any) -> None:
        snapshot_fields = whole_fields(data)
        readings = [last_values(v) for n, _, v in snapshot_fields if n == ClockSnapshot.CLOCKS]
        clocks = {
            number(reading.get(Clock.CLOCK_ID, 0)): signed(reading.get(Clock.TIMESTAMP, 0))
            for reading in readings
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
        keys = [track_key(*known_key) for known_key in self.descriptors.known]
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
        return _parts({i: Part(process=process) for i, process in enumerate(sorted(busy))})


def _parts(part_by_rank: dict[int, Part]) -> list[tuple[int, Part]]:
    """Ranks with their parts. The first part also counts tracks that belong to no rank."""
    (rank, first), *other_parts = part_by_rank.items()
    return [(rank, replace(first, others=tuple(part for _, part in other_parts))), *other_parts]


def captures(
    source: Source, names: Sequence[str], heads: Mapping[str, bytes], issues: Issues
) -> list[Capture]:
    """The captures of some files.

    Args:
        names: all files that are there.
        heads: first bytes of those that are traces, by name.
    """
    facts = {name: own_files.attributes(source, name, head) for name, head in heads.items()}
    bundles = {
        own_files.folder(name) for name, attributes_of in facts.items() if "ranks" in attributes_of
    }
    for name, attributes_of in facts.items():
        if OTHERS_NS in attributes_of and own_files.folder(name) not in bundles:
            facts[name] = {}  # taken out of its bundle
    ours = {name: attributes_of for name, attributes_of in facts.items() if attributes_of}
    found = own_files.captures(source, names, ours, heads, issues)
    foreign = {name: head for name, head in heads.items() if name not in ours}
    placed = perfetto_manifest.found_in(source, names, issues) if foreign else {}
    for name, head in foreign.items():
        ranks = _foreign(source, name, head)
        if (place := placed.get(name)) is not None:
            ranks = [
                replace(
                    capture,
                    host=place.machine,
                    clock=place.clock,
                    detail=replace(capture.detail, shift_ns=place.shift_ns),
                )
                for capture in ranks
            ]
        found += ranks
    return found


def _foreign(source: Source, name: str, head: bytes) -> list[Capture]:
    """The captures of a file of another program."""
    survey = _survey(source, name, head)
    common: dict[str, Any] = {
        "reader": "perfetto",
        "source": source,
        "files": (name,),
        "clock": survey.clock(),
        "beside": ((name, 0),),
        "label": source.title(name),
    }
    parts = survey.parts()
    if not parts:
        pids = {
            descriptor.pid for descriptor in survey.descriptors.known.values() if descriptor.pid
        }
        pid = pids.pop() if len(pids) == 1 else -1
        return [Capture(**common, pid=pid, detail=Part())]
    if parts[0][1].rank >= 0:
        origin = "names of threads and processes"
        return [Capture(**common, rank=r, rank_from=origin, detail=p) for r, p in parts]
    title = common.pop("label")
    return [
        Capture(**common, detail=p, pid=pid, label=f"{title} (process {pid})")
        for _, p in parts
        for pid in [(p.process or (0, -1))[1]]
    ]


def _survey(source: Source, name: str, head: bytes) -> Survey:
    survey = Survey()
    if head.startswith(ZSTD):  # it cannot be unpacked here; reading it says what to install
        return survey
    if source.size(name) <= SURVEYED_BYTES or any(clue in head for clue in _CLUES):
        batches: Iterable[Packets] = packets(source, name, TraceBuilder.of_rank(0))
    else:
        first_frames = frames(head, 0, len(head), 1 << 62)
        packet_columns: Columns = columns(head, first_frames.start, first_frames.size, FIELDS)
        batches = [Packets(head, first_frames.start, first_frames.size, packet_columns, 0)]
    for batch in batches:
        survey.take(batch)
    return survey
