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
        for some in packets(capture.source, name, build):
            unread.take(some)
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
        for some in packets(capture.source, name, self._build):
            of = some.columns
            mine = of.integer(TracePacket.TRUSTED_PACKET_SEQUENCE_ID) == self._own.rank + 1
            mine |= of.has(TracePacket.TRACK_DESCRIPTOR)
            if mine.any():
                for timed in self._sequences.timed(some if mine.all() else some.take(mine)):
                    take_events(self._events, timed)
        stated = self._told.values[OwnRank.ABOUT]
        about = about_of(message(stated[-1])) if stated else None
        self._put(about)
        return about

    def _put(self, about: About | None) -> None:
        build = self._build
        marks = self._events.marks()
        categories = resolved(self._events, marks, self._sequences, build)
        made = slices(marks)
        kind = np.where(marks.kind[made.mark] == INSTANT, Kind.INSTANT, Kind.SLICE)
        instants = int((kind == Kind.INSTANT).sum())
        build.seen("slice", len(kind) - instants)
        build.seen("instant", instants)
        build.skip("end-without-begin", "", len(made.alone))
        build.skip("unfinished-slice", "", int(made.open.sum()))
        ops = [*(_OPS.get(category, OpClass.OTHER) for category in categories), OpClass.OTHER]
        op = np.array(ops, np.int8)[marks.category[made.mark]]  # no category, -1, is the last one
        tracks = self._tracks({} if about is None else about.tracks)
        numbers = np.zeros(len(tracks), np.int32)
        for lane in np.unique(marks.lane[made.mark]).tolist():
            track = tracks[lane]
            if track.is_counter:  # its slices get a separate track
                track = msgspec.structs.replace(track, layer=Layer.OTHER, unit=None)
            numbers[lane] = build.add_track(track)
            if track.layer is Layer.DEVICE and track.device_kind == "NPU":
                build.hints.vendor = "ascend"
        name = marks.name[made.mark]
        build.skip("missing-name", "", int((name < 0).sum()))
        graph, step, args = self._columns(marks, made, about)
        first = build.extend(
            track=numbers[marks.lane[made.mark]],
            start_ns=marks.time[made.mark] + self._own.base_ns,
            dur_ns=made.dur,
            name=np.where(name < 0, build.string(""), name).astype(np.int32),
            kind=kind.astype(np.int8),
            op=op, graph=graph, step=step, args=args,
        )  # fmt: skip
        self._flows(marks, made, first)
        self._samples(tracks)

    def _tracks(self, stated: dict[int, Track]) -> list[Track]:
        """The track of every lane; where none is stated, one that has its name only."""
        found = []
        for key in self._events.lanes.keys:
            uuid = int(key[2]) if key[0] == "track" else 0
            known = self._sequences.descriptors.known.get((0, uuid), Described())
            track = stated.get(uuid) or Track(Layer.OTHER, known.name or "")
            if track.is_counter is not (known.counter is not None):
                track = msgspec.structs.replace(track, unit=None if track.is_counter else "")
            found.append(track)
        return found

    def _columns(self, marks: Marks, made: Slices, about: About | None) -> tuple[I32, I32, I32]:
        """Graph, step and arguments of rows."""
        n, told = len(made.mark), self._told
        graph, step = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        args = marks.args[made.mark].copy()
        rows = number((told.values[OwnRank.ROWS] or [-1])[-1])
        codes = {issue.code for issue in self._build.issues}
        cut_off = n < rows and "truncated" in codes and not _DAMAGE & codes
        if about is None or (rows != n and not cut_off):
            self._build.skip("details-lost", "", n)
            return graph, step, args
        for column, field_number in ((graph, OwnRank.GRAPHS), (step, OwnRank.STEPS)):
            column[:] = np.clip(told.column(field_number, np.arange(n)), 0, 2**31 - 1) - 1
        odd = zip(told.values[OwnRank.ODD_ROWS], told.values[OwnRank.ODD_ARGUMENTS], strict=False)
        for row, raw in odd:
            if number(row) < n:
                args[number(row)] = self._build.args(message(raw) or None)
        return graph, step, args

    def _flows(self, marks: Marks, made: Slices, first: int) -> None:
        """Flows, from the ids of both ends."""
        build, told, flows = self._build, self._told, self._events.flows()
        row = np.full(len(marks), -1, np.int64)
        row[made.mark] = np.arange(len(made.mark))
        order = np.lexsort((flows.closes, flows.flow))
        flow, closes, mark = flows.flow[order], flows.closes[order], flows.mark[order]
        at = np.flatnonzero((flow[1:] == flow[:-1]) & ~closes[:-1] & closes[1:])
        ends = row[np.stack((mark[at], mark[at + 1]), axis=1)]
        there = (ends >= 0).all(axis=1)
        number_ = flow[at][there].view(np.int64) & ((1 << _RANK_BITS) - 1)
        order = np.argsort(number_, kind="stable")
        ends, which = ends[there][order], number_[order] - 1
        single = len(flow) - 2 * len(which)
        build.seen("flow", len(which) + single)
        build.skip("flow-without-end", "", single, "flow")
        if not len(which):
            return
        turned = told.column(OwnRank.TURNED_FLOWS, which) == 1
        src, dst = np.where(turned, ends.T[::-1], ends.T)
        stated = told.values[OwnRank.FLOW_NAMES] or [b"flow"]
        names = [build.string(message(one).decode("utf-8", "replace")) for one in stated]
        name = np.clip(told.column(OwnRank.FLOW_NAME, which), 0, len(names) - 1)
        build.flows(src=src + first, dst=dst + first, name=np.array(names, np.int32)[name])

    def _samples(self, tracks: list[Track]) -> None:
        build, found = self._build, self._events.samples()
        if not len(found.time):
            return
        build.seen("counter", len(found.time))
        counts = np.array([track.is_counter for track in tracks], bool)[found.lane]
        build.skip("track-unknown", "no counter", int((~counts).sum()), "counter")
        finite = np.isfinite(found.value)
        build.skip("counter-not-numeric", "", int((counts & ~finite).sum()), "counter")
        kept = counts & finite
        numbers = np.array([build.add_track(track) for track in tracks], np.int32)
        build.counters(
            track=numbers[found.lane[kept]],
            start_ns=found.time[kept] + self._own.base_ns,
            value=found.value[kept],
        )
