"""Reads outputs of traceconv: ranks as they were written.

What Perfetto's messages have no place for is in a packet per rank, which
:mod:`traceconv.protobuf.own_rank` describes. Further packets have arguments that annotations do not
say all of.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.model import I32, I64, Capture, Kind, Layer, OpClass, Track
from traceconv.protobuf.message import Value, message, number, whole_fields
from traceconv.protobuf.own_rank import About, OwnRank, about_of, of_runs
from traceconv.protobuf.perfetto_schema import INSTANT, TracePacket
from traceconv.readers.perfetto.events import take_events
from traceconv.readers.perfetto.foreign_file import resolved
from traceconv.readers.perfetto.marks import Events, Marks
from traceconv.readers.perfetto.others import Unread
from traceconv.readers.perfetto.own_files import Own, add_issues
from traceconv.readers.perfetto.packets import packets
from traceconv.readers.perfetto.slices import Slices, slices
from traceconv.readers.perfetto.state import Sequences
from traceconv.readers.perfetto.tracks import Described

_RANK_BITS = 40
"""The bits of a flow id below those of the rank."""

_OPS = {op.name.lower(): op for op in OpClass}

_DAMAGE = frozenset(
    ("malformed-record", "skipped-bytes", "bad-time", "state-lost", "clock-unknown")
)
"""Issues of files in which rows may be missing before others."""


def read(capture: Capture, build: TraceBuilder, own: Own) -> None:
    """Put a rank into ``build``, part by part."""
    about = About()
    for name in capture.files:
        build.file = capture.source.title(name)
        about = _Part(build, own).read(capture, name) or about
    for name, _ in capture.beside:
        build.file, unread = capture.source.title(name), Unread()
        for batch in packets(capture.source, name, build):
            unread.take(batch)
        unread.book(build)
    for start, end in about.windows:
        build.window(own.base_ns + start, own.base_ns + end)
    build.capture = replace(
        build.capture,
        host=about.host,
        device=about.device,
        pid=about.pid,
        world_size=about.world_size,
    )
    memory = about.hints.device_memory_bytes
    about.hints.device_memory_bytes = {n: m for n, m in memory.items() if 0 < m <= INT64_MAX}
    about.hints.vendor = about.hints.vendor or build.hints.vendor
    build.hints = about.hints
    build.notes.update(about.notes)
    add_issues(build.issues, about.issues)


@dataclass
class _Told:
    """What our own packets say of a rank, by field."""

    values: defaultdict[int, list[Value]] = field(default_factory=lambda: defaultdict(list))

    def take(self, data: bytes) -> None:
        """Add one packet."""
        for n, _, value in whole_fields(data):
            self.values[n].append(value)

    def column(self, field_number: int, rows: I64) -> I64:
        """The values of some rows."""
        return of_runs(b"".join(map(message, self.values[field_number])), rows)


class _Part:
    """The packets of one rank in one file."""

    def __init__(self, build: TraceBuilder, own: Own) -> None:
        self._build, self._own, self._told = build, own, _Told()
        self._sequences = Sequences(build)
        self._sequences.own = self._told.take
        self._events = Events(build, self._sequences)

    def read(self, capture: Capture, name: str) -> About | None:
        """Add all rows of a file; returns the facts of the rank."""
        for batch in packets(capture.source, name, self._build):
            packet_columns = batch.columns
            is_own = (
                packet_columns.integer(TracePacket.TRUSTED_PACKET_SEQUENCE_ID) == self._own.rank + 1
            )
            is_own |= packet_columns.has(TracePacket.TRACK_DESCRIPTOR)
            if is_own.any():
                for timed in self._sequences.timed(batch if is_own.all() else batch.take(is_own)):
                    take_events(self._events, timed)
        about_texts = self._told.values[OwnRank.ABOUT]
        about = about_of(message(about_texts[-1])) if about_texts else None
        self._put(about)
        return about

    def _put(self, about: About | None) -> None:
        build = self._build
        marks = self._events.marks()
        categories = resolved(self._events, marks, self._sequences, build)
        rows = slices(marks)
        kind = np.where(marks.kind[rows.mark] == INSTANT, Kind.INSTANT, Kind.SLICE)
        instants = int((kind == Kind.INSTANT).sum())
        build.seen("slice", len(kind) - instants)
        build.seen("instant", instants)
        build.skip("end-without-begin", "", len(rows.alone))
        build.skip("unfinished-slice", "", int(rows.open.sum()))
        ops = [*(_OPS.get(category, OpClass.OTHER) for category in categories), OpClass.OTHER]
        op = np.array(ops, np.int8)[marks.category[rows.mark]]  # no category, -1, is the last one
        tracks = self._tracks({} if about is None else about.tracks)
        numbers = np.zeros(len(tracks), np.int32)
        for lane in np.unique(marks.lane[rows.mark]).tolist():
            track = tracks[lane]
            if track.is_counter:  # its slices get a separate track
                track = msgspec.structs.replace(track, layer=Layer.OTHER, unit=None)
            numbers[lane] = build.add_track(track)
            if track.layer is Layer.DEVICE and track.device_kind == "NPU":
                build.hints.vendor = "ascend"
        name = marks.name[rows.mark]
        build.skip("missing-name", "", int((name < 0).sum()))
        graph, step, args = self._columns(marks, rows, about)
        first_row = build.extend(
            track=numbers[marks.lane[rows.mark]],
            start_ns=marks.time[rows.mark] + self._own.base_ns,
            dur_ns=rows.dur,
            name=np.where(name < 0, build.string(""), name).astype(np.int32),
            kind=kind.astype(np.int8),
            op=op, graph=graph, step=step, args=args,
        )  # fmt: skip
        self._flows(marks, rows, first_row)
        self._samples(tracks)

    def _tracks(self, track_by_uuid: dict[int, Track]) -> list[Track]:
        """The track of every lane; where none is stated, one that has its name only."""
        tracks = []
        for key in self._events.lanes.keys:
            uuid = int(key[2]) if key[0] == "track" else 0
            descriptor = self._sequences.descriptors.known.get((0, uuid), Described())
            track = track_by_uuid.get(uuid) or Track(Layer.OTHER, descriptor.name or "")
            if track.is_counter is not (descriptor.counter is not None):
                track = msgspec.structs.replace(track, unit=None if track.is_counter else "")
            tracks.append(track)
        return tracks

    def _columns(
        self, marks: Marks, rows_made: Slices, about: About | None
    ) -> tuple[I32, I32, I32]:
        """Graph, step and arguments of rows."""
        n, own_facts = len(rows_made.mark), self._told
        graph, step = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        args = marks.args[rows_made.mark].copy()
        rows = number((own_facts.values[OwnRank.ROWS] or [-1])[-1])
        codes = {issue.code for issue in self._build.issues}
        cut_off = n < rows and "truncated" in codes and not _DAMAGE & codes
        if about is None or (rows != n and not cut_off):
            self._build.skip("details-lost", "", n)
            return graph, step, args
        for column, field_number in ((graph, OwnRank.GRAPHS), (step, OwnRank.STEPS)):
            column[:] = np.clip(own_facts.column(field_number, np.arange(n)), 0, 2**31 - 1) - 1
        odd = zip(
            own_facts.values[OwnRank.ODD_ROWS],
            own_facts.values[OwnRank.ODD_ARGUMENTS],
            strict=False,
        )
        for row, raw in odd:
            if number(row) < n:
                args[number(row)] = self._build.args(message(raw) or None)
        return graph, step, args

    def _flows(self, marks: Marks, rows_made: Slices, first_row: int) -> None:
        """Flows, from the ids of both ends."""
        build, own_facts, flows = self._build, self._told, self._events.flows()
        row = np.full(len(marks), -1, np.int64)
        row[rows_made.mark] = np.arange(len(rows_made.mark))
        order = np.lexsort((flows.closes, flows.flow))
        flow, closes, mark = flows.flow[order], flows.closes[order], flows.mark[order]
        begins = np.flatnonzero((flow[1:] == flow[:-1]) & ~closes[:-1] & closes[1:])
        ends = row[np.stack((mark[begins], mark[begins + 1]), axis=1)]
        has_rows = (ends >= 0).all(axis=1)
        number_ = flow[begins][has_rows].view(np.int64) & ((1 << _RANK_BITS) - 1)
        order = np.argsort(number_, kind="stable")
        ends, flow_number = ends[has_rows][order], number_[order] - 1
        single = len(flow) - 2 * len(flow_number)
        build.seen("flow", len(flow_number) + single)
        build.skip("flow-without-end", "", single, "flow")
        if not len(flow_number):
            return
        turned = own_facts.column(OwnRank.TURNED_FLOWS, flow_number) == 1
        src, dst = np.where(turned, ends.T[::-1], ends.T)
        name_texts = own_facts.values[OwnRank.FLOW_NAMES] or [b"flow"]
        names = [
            build.string(message(name_text).decode("utf-8", "replace")) for name_text in name_texts
        ]
        name = np.clip(own_facts.column(OwnRank.FLOW_NAME, flow_number), 0, len(names) - 1)
        build.flows(src=src + first_row, dst=dst + first_row, name=np.array(names, np.int32)[name])

    def _samples(self, tracks: list[Track]) -> None:
        build, samples = self._build, self._events.samples()
        if not len(samples.time):
            return
        build.seen("counter", len(samples.time))
        counts = np.array([track.is_counter for track in tracks], bool)[samples.lane]
        build.skip("track-unknown", "no counter", int((~counts).sum()), "counter")
        finite = np.isfinite(samples.value)
        build.skip("counter-not-numeric", "", int((counts & ~finite).sum()), "counter")
        is_sample = counts & finite
        numbers = np.array([build.add_track(track) for track in tracks], np.int32)
        build.counters(
            track=numbers[samples.lane[is_sample]],
            start_ns=samples.time[is_sample] + self._own.base_ns,
            value=samples.value[is_sample],
        )
