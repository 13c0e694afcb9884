"""Perfetto traces: which events Perfetto's importer (v58.2) drops or misreads.

The reader of Perfetto files tells what breaks a rule of the format; this module judges what came
of it: tracks, slices and flows.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.protobuf.message import is_utf8
from traceconv.protobuf.message_columns import columns
from traceconv.protobuf.perfetto_schema import (
    INSTANT,
    SLICE_BEGIN,
    SLICE_END,
    STATE,
    SYSTEM_DATA,
    TracePacket,
)
from traceconv.readers.perfetto.events import take_events
from traceconv.readers.perfetto.foreign_file import resolved
from traceconv.readers.perfetto.gpu import Gpu
from traceconv.readers.perfetto.marks import Events, Marks
from traceconv.readers.perfetto.packets import Packets, packets
from traceconv.readers.perfetto.slices import Slices, arrows, old_arrows, slices, touched
from traceconv.readers.perfetto.state import Sequences
from traceconv.readers.perfetto.tracks import LOOP, ROOT, Key
from traceconv.validation.rules import REFUSING, Found, Refused, Tally

MAX_DEPTH = 512
_NOT_FINITE = lazy_regex(rb"(?<=[:,\[])-?(?:NaN|Infinity)(?=[,\]}])")
_TEXT = lazy_regex(rb'"(?:[^"\\]|\\.)*+"')


def judge(source: Source, name: str, label: str, tally: Tally) -> Found:
    """Check a trace.

    Args:
        label: of the file, for messages.

    Raises:
        Refused: viewers refuse the file.
    """

    def fault(rule: str, where: str = "", count: int = 1) -> None:
        if rule in REFUSING:
            raise Refused(label, rule, where)
        tally.add(rule, where, count)

    return _Judge(tally, fault).read(source, name)


class _Judge:
    def __init__(self, tally: Tally, fault: Any) -> None:
        self._tally, self._fault = tally, fault
        self._build = TraceBuilder.of_rank(0)
        self._sequences = Sequences(self._build, fault)
        self._events = Events(self._build, self._sequences)
        self._gpu = Gpu(self._events)
        self._system_data = False

    def read(self, source: Source, name: str) -> Found:
        """All packets, then what they come to."""
        for block in packets(source, name, self._build, self._fault):
            self._packets(block)
            for timed in self._sequences.timed(block):
                take_events(self._events, timed)
                self._gpu.take(timed)
        for timed in self._sequences.late():
            take_events(self._events, timed)
            self._gpu.take(timed)
        marks = self._events.marks()
        resolved(self._events, marks, self._sequences, self._build)
        for issue in self._build.issues:
            if issue.code == "interned-unknown":
                self._tally.add("P04-id", issue.places[0] if issue.places else "", issue.count)
        # names that are not UTF-8, and numbers that are not finite
        for table in (self._events.names, self._events.categories):
            texts = table.texts(self._sequences).values()
            self._tally.add("P22-value", "a name", sum(not is_utf8(raw or b"") for raw in texts))
        args_used = marks.args[marks.args >= 0]
        odd = sum(
            len(_NOT_FINITE.findall(_TEXT.sub(b"", raw)))
            for raw in self._build.args_of(args_used)
            if _NOT_FINITE.search(raw)
        )
        self._tally.add("P22-value", "a number in an argument", odd)
        bad = self._tracks(marks)
        all_slices = slices(marks)
        is_kept = ~bad[marks.lane[all_slices.mark]] & (marks.kind[all_slices.mark] != STATE)
        return self._result(
            marks, all_slices.take(is_kept, ~bad[marks.lane[all_slices.alone]]), bad
        )

    def _packets(self, block: Packets) -> None:
        """Judge packets that are not events, and whether there is data of other sources."""
        fields = block.columns
        early = fields.integer(TracePacket.TIMESTAMP) < 0
        early &= ~fields.is_bytes(TracePacket.TRACK_EVENT)
        if early.any():
            where = block.where(int(np.flatnonzero(early)[0]))
            self._fault("P07-negative", where, int(early.sum()))
        if not self._system_data:
            system_columns = columns(
                block.data, block.start, block.size, tuple(sorted(SYSTEM_DATA))
            )
            self._system_data = any(system_columns.has(n).any() for n in SYSTEM_DATA)

    # -- tracks --------------------------------------------------------------------------------

    def _tracks(self, marks: Marks) -> Any:
        """Judge the tracks that have events; which of them viewers leave out."""
        keys, descriptors = self._events.lanes.keys, self._sequences.descriptors
        events = np.bincount(marks.lane, minlength=len(keys))
        samples = self._events.samples()
        sampled = np.bincount(samples.lane, minlength=len(keys))
        if len(bad_values := np.flatnonzero(~np.isfinite(samples.value))):
            self._tally.add("P22-value", "a counter", len(bad_values))
        bad = np.zeros(len(keys), bool)
        for lane, key in enumerate(keys):
            descriptor, title = descriptors.of(key), _title(key)
            if problem := descriptors.problem(key):
                bad[lane] = True
                rule = "P14-loop" if problem == LOOP else "P14-parent"
                self._tally.add(rule, title, int(events[lane] + sampled[lane]) or 1)
            elif descriptor is None and key[0] == "track" and key[2] != ROOT:
                self._tally.add("P15-track", title, int(events[lane] > 0))
            elif descriptor is not None and descriptor.counter is not None:
                self._tally.add("P18-slice", title, int(events[lane]))
            if descriptor is None or descriptor.counter is None:
                self._tally.add("P18-counter", title, int(sampled[lane]))
        uuid_by_track: dict[object, int] = {}
        for (machine, uuid), described in descriptors.known.items():
            first_uuid = uuid_by_track.setdefault((machine, described.pid, described.tid), uuid)
            if first_uuid != uuid and described.pid is not None:
                self._tally.add("P13-twice", f"uuids {first_uuid} and {uuid}")
        self._counters = int(sampled[~bad & self._counter_lanes()].sum())
        self._used = int(((events > 0) | (sampled > 0) & self._counter_lanes())[~bad].sum())
        return bad

    def _counter_lanes(self) -> Any:
        descriptor_of = self._sequences.descriptors.of
        descriptors = [descriptor_of(key) for key in self._events.lanes.keys]
        return np.array(
            [
                descriptor is not None and descriptor.counter is not None
                for descriptor in descriptors
            ],
            bool,
        )

    # -- slices and flows ----------------------------------------------------------------------

    def _result(self, marks: Marks, kept_slices: Slices, bad: Any) -> Found:
        instant = marks.kind[kept_slices.mark] == INSTANT
        for rule, ends in (
            ("P16-end", kept_slices.alone),
            ("P16-open", kept_slices.mark[kept_slices.open]),
        ):
            for mark in ends[:1].tolist():
                where = f"{_title(self._events.lanes.keys[marks.lane[mark]])} at {marks.time[mark]}"
                self._tally.add(rule, where, len(ends))
        self._tally.add("P17-crossing", "", kept_slices.crossed)
        self._tally.add("P17-misplaced", "", kept_slices.cut)
        deep = self._too_deep(marks)
        self._tally.add("P16-depth", "", deep)
        busy = kept_slices.dur[~instant & ~kept_slices.open].clip(0).sum()
        samples = list(self._gpu.samples())
        return Found(
            "perfetto",
            {
                "slices": int((~instant).sum()) - deep,
                "instants": int(instant.sum()),
                "counters": self._counters + sum(len(times) for _, _, times, _ in samples),
                "flows": self._arrows(marks, kept_slices),
                "tracks": self._used + len(samples),
            },
            int(busy),
            int(marks.time[kept_slices.mark].min()) if len(kept_slices.mark) else None,
            self._recorded(),
            self._system_data,
        )

    def _too_deep(self, marks: Marks) -> int:
        """How many slices begin inside as many others as can be open on a track."""
        pairs = np.flatnonzero((marks.kind == SLICE_BEGIN) | (marks.kind == SLICE_END))
        pairs = pairs[np.lexsort((marks.time[pairs], marks.lane[pairs]))]
        begins = marks.kind[pairs] == SLICE_BEGIN
        depth: I64 = np.cumsum(np.where(begins, 1, -1))
        new = np.flatnonzero(np.diff(marks.lane[pairs], prepend=-1))
        before = np.concatenate(([0], depth))[new]
        depth -= np.repeat(before, np.diff(np.append(new, len(pairs))))
        return int((begins & (depth > MAX_DEPTH)).sum())

    def _arrows(self, marks: Marks, kept_slices: Slices) -> int:
        row = touched(marks, kept_slices)
        start, events = marks.time[kept_slices.mark], self._events
        drawn = [
            arrows(events.flows(), row, marks, start),
            old_arrows(events.legacy_flows, row, marks, start),
        ]
        single = sum(len(flows.single) for flows in drawn)
        if single:
            where = f"at {marks.time[int(np.concatenate([flows.single for flows in drawn])[0])]}"
            self._tally.add("P20-unbound", where, single)
        return sum(len(flows.src) for flows in (*drawn, self._gpu.arrows(row)))

    def _recorded(self) -> dict[str, Any]:
        """The counts that the writer of the file recorded."""
        text = self._sequences.attributes.get("traceconv.counts")
        try:
            decoded = json.loads(text) if isinstance(text, str) else {}
        except (ValueError, RecursionError):
            return {}
        return decoded if isinstance(decoded, dict) else {}


def _title(key: Key) -> str:
    return f"track {key[2]}" if key[0] == "track" else " ".join(map(str, key))
