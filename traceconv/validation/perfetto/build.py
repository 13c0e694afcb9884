"""Perfetto traces: what the importer (v58.2) makes of a protobuf trace, and which rules it breaks.

The second pass: events, stably sorted by time, become slices, arrows and samples.
"""

from __future__ import annotations

from array import array
from collections import Counter

import numpy as np

from traceconv.core.source import Progress
from traceconv.protobuf import message as wire
from traceconv.validation.container import Buffer, unheard
from traceconv.validation.decoded import I64, Argument, Counters, Decoded, Flows, TrackRow, column
from traceconv.validation.perfetto.arguments import packet_arguments
from traceconv.validation.perfetto.events import (
    BEGIN,
    CATEGORIES,
    END,
    EVENT_NAMES,
    GPU,
    GPU_SPECIFICATIONS,
    INSTANT,
    STATE,
    Columns,
    Shape,
)
from traceconv.validation.perfetto.packets import read_packets
from traceconv.validation.perfetto.tracks import TrackKey, Tracks
from traceconv.validation.rules import Tally
from traceconv.validation.slices import (
    NONE,
    FlowBook,
    LaneSet,
    SliceBook,
    SpanLanes,
    arguments_of,
    samples,
)

_Steady = tuple[int, LaneSet, TrackKey, int, str | None, str | None]

_BLOCK = 1 << 16
_ITERR, _PERR = "interned_data_tokenizer_errors", "track_event_parser_errors"


def decode(data: Buffer, label: str, tally: Tally, advance: Progress = unheard) -> Decoded:
    """Rebuild a trace and count the rules it breaks.

    Args:
        data:  the file, unpacked.
        label: its name, for messages.
        advance: told of bytes that were read.

    Raises:
        Refused: the importer would refuse the file.
    """
    return _Builder(read_packets(data, label, tally, advance), tally).decoded()


class _Builder:
    def __init__(self, columns: Columns, tally: Tally) -> None:
        self._columns, self._tally = columns, tally
        self._descriptors = columns.descriptors
        self._shapes = list(columns.shapes)
        self._ts = column(columns.ts, np.int64)
        self._shape = column(columns.shape, np.int32)
        self._uses: list[int] = np.bincount(self._shape, minlength=len(self._shapes)).tolist()
        self._tracks = Tracks(self._descriptors, columns.machines > 1)
        self._book = SliceBook(tally)
        self._labels = [self._label(*of) for of in zip(self._shapes, self._uses, strict=True)]
        self._gpu = _GpuStages(self)
        self._order: I64 = np.argsort(self._ts, kind="stable")

    def decoded(self) -> Decoded:
        """Everything, in the importer's order."""
        self._descriptors.judge()
        self._judge_tracks()
        self._judge_arguments()
        row_of = self._replay()
        kinds = np.array([s.kind for s in self._shapes], np.int8)[self._shape[self._order]]
        began = (row_of >= 0) & (kinds != END)
        ended = (row_of >= 0) & (kinds == END)
        begins = self._order[began]
        ends = np.full(len(begins), -1, np.int64)
        ends[row_of[ended]] = self._order[ended]
        counters, flows = self._counters(), self._flows(row_of)
        return Decoded(
            "perfetto",
            self._book.finish(self._tracks.rows, arguments_of(begins, ends, self._arguments)),
            kinds[began] == INSTANT,
            counters,
            flows,
            self._tracks.rows,
            self._tally.stats,
            dict(self._columns.attributes),
            self._columns.other_sources,
        )

    # -- names and tracks ----------------------------------------------------------------------

    def _label(self, shape: Shape, uses: int) -> int:
        """Number of a shape's name and category."""
        name, texts = shape.name, list[str]()
        if isinstance(name, int):
            name = self._text(shape, EVENT_NAMES, name, uses)
        for category in shape.categories:
            if isinstance(category, str):
                texts.append(category)
            else:
                found = self._text(shape, CATEGORIES, category, uses)
                alone = f"unknown({category})" if len(shape.categories) == 1 else ""
                texts.append(alone if found is None else found)
        if len(shape.categories) > 1:
            texts = [t for t in texts if t]
        return self._book.number(name, ",".join(texts) or None)

    def _text(self, shape: Shape, table: int, iid: int, uses: int) -> str | None:
        found = shape.generation.text(table, iid)
        if found is None:
            what = "name" if table == EVENT_NAMES else "category"
            self._tally.add("P04-id", f"{what} {iid} on {_title(shape.track)}", _ITERR, count=uses)
        return found

    def _judge_arguments(self) -> None:
        """Ids that were used without their definition."""
        for (generation, table, iid), count in self._columns.awaited.items():
            if (table, iid) not in generation.entries:
                self._tally.add("P04-id", f"table {table} id {iid}", _ITERR, _PERR, count=count)

    def _judge_tracks(self) -> None:
        """Tracks that are not what their events need, and all packets on unusable ones."""
        events: Counter[TrackKey] = Counter()
        for shape, uses in zip(self._shapes, self._uses, strict=True):
            if shape.kind != GPU:
                events[shape.track] += uses
        for key, count in events.items():
            if len(key) == 2 and key[1] and key not in self._descriptors.known:
                self._tally.add("P15-track", _title(key))
            elif len(key) == 2 and self._descriptors.counter(key):
                self._tally.add("P18-slice", _title(key), count=count)
        events.update(self._descriptors.packets)
        samples = Counter(self._columns.counter_track)
        for track, index in self._columns.counter_tracks.items():
            events[track] += samples[index]
        for key, count in events.items():
            if broken := self._descriptors.health(key):
                self._tally.add(broken[0], _title(key), *broken[1:], count=count)

    # -- slices --------------------------------------------------------------------------------

    def _replay(self) -> I64:
        """Every event in time order to the book; the row of each, in that order."""
        book, names, row_of = self._book, self._book.labels, array("q")
        usable = [s.kind not in (GPU, STATE) and not self._health(s) for s in self._shapes]
        # by shape, once it is seen: kind, lanes, track, label, and its words
        known: list[_Steady | None] = [None] * len(self._shapes)
        add_row = row_of.append
        for start in range(0, len(self._order), _BLOCK):
            block = self._order[start : start + _BLOCK]
            times, shapes = self._ts[block].tolist(), self._shape[block].tolist()
            for t, s, event in zip(times, shapes, block.tolist(), strict=True):
                steady = known[s]
                if steady is None:
                    kind, track = self._shapes[s][:2]
                    if not usable[s]:
                        add_row(self._gpu.add(t, event, self._shapes[s]) if kind == GPU else NONE)
                        continue
                    label = self._labels[s]
                    lanes = self._tracks.place(track, names[label][0])
                    steady = known[s] = (kind, lanes, track, label, *names[label])
                kind, lanes, track, label, name, category = steady
                if kind == BEGIN:
                    add_row(book.begin(lanes.begin(track), t, label))
                elif kind == END:
                    add_row(book.end(lanes.end(track), t, name, category))
                else:
                    add_row(book.begin(lanes.point(track), t, label, 0))
        return column(row_of, np.int64)

    def _health(self, shape: Shape) -> tuple[str, ...]:
        return self._descriptors.health(shape.track)

    def _counters(self) -> Counters:
        """Samples by time; those on unusable tracks are left out."""
        of, health = self._columns, self._descriptors.health
        numbers = [-1 if health(key) else self._tracks.counter(key) for key in of.counter_tracks]
        columns = (of.counter_ts, of.counter_value, of.counter_track)
        return samples(*columns, numbers, self._tracks.rows)

    def _arguments(self, event: int, renamed: bool) -> list[Argument]:
        packet = self._columns.packets.packet(self._columns.place[event])
        return packet_arguments(packet, self._shapes[self._shape[event]], renamed)

    # -- arrows --------------------------------------------------------------------------------

    def _flows(self, row_of: I64) -> Flows:
        columns, book = self._columns, FlowBook(self._book.ts, self._tally)
        rank = np.empty(len(self._order), np.int64)  # of every event by time
        rank[self._order] = np.arange(len(self._order))
        at = rank[column(columns.flow_event, np.int64)]
        order = np.argsort(at, kind="stable")
        rows = row_of[at[order]].tolist()
        ids = column(columns.flow_id, np.uint64)[order].tolist()
        ends = column(columns.flow_ends, np.int8)[order].tolist()
        for row, flow, is_end in zip(rows, ids, ends, strict=True):
            if row < 0:
                continue
            if is_end:
                book.end(flow, row, close=True)
            elif not book.begin(flow, row):
                book.step(flow, row)
        links = sorted((int(rank[event]), link) for event, link in columns.gpu_links.items())
        self._gpu.connect([(int(row_of[n]), *link) for n, link in links if row_of[n] >= 0], book)
        return book.finish()


def _title(key: TrackKey) -> str:
    return f"uuid {key[1]}" if len(key) == 2 else f"tid {key[2]}"


class _GpuStages:
    """GpuRenderStageEvents: slices of known length, in rows of their hardware queue."""

    def __init__(self, builder: _Builder) -> None:
        self._columns, self._tally = builder._columns, builder._tally
        self._tracks, self._book = builder._tracks, builder._book
        self._lanes: dict[tuple[int, int, str, int], SpanLanes] = {}
        self._rows: list[tuple[int, int, list[int]]] = []  # row, GPU event id, awaited ids

    def add(self, ts: int, event: int, shape: Shape) -> int:
        """The row of a GPU event; NONE if it makes no slice."""
        packet = self._columns.packets.packet(self._columns.place[event])
        found = wire.whole_fields(wire.last_values(packet).get(53, b""))
        last = {n: v for n, _, v in found}
        if 1 not in last:
            return NONE
        of = {n: wire.number(last.get(n, 0)) for n in (1, 3, 4, 11, 13, 14, 20)}
        queue: str | None = f"Unknown GPU Queue {of[3]}"
        if 13 in last:
            queue = shape.generation.text(GPU_SPECIFICATIONS, of[13])
        if queue is None:
            self._tally.add("P04-id", f"GPU queue {of[13]}", _ITERR)
            return NONE
        key = (shape.track[0], of[11], queue, of[13] or of[3])
        if key not in self._lanes:
            row = TrackRow((f"GPU {of[11]}", queue), "gpu_render_stage", queue)
            self._lanes[key] = SpanLanes(lambda: self._tracks.add(row), nesting=False)
        name: str | None = f"render stage({of[4]})"
        if 20 in last:
            name = shape.generation.text(EVENT_NAMES, of[20])
        elif 17 in last:
            name = wire.text(last[17])
        elif 14 in last:
            name = shape.generation.text(GPU_SPECIFICATIONS, of[14])
        dur = max(wire.signed(last.get(2, 0)), 0)
        lane = self._lanes[key].place(ts, dur)
        made = self._book.begin(lane, ts, self._book.number(name, None), dur)
        if made >= 0:
            self._rows.append((made, of[1], wire.integers(found, 18)))
        return made

    def connect(self, links: list[tuple[int, list[int], list[int]]], flows: FlowBook) -> None:
        """Draw the arrows between host and GPU slices.

        Args:
            links: (row of a host slice, GPU events it submits, GPU events it awaits), in time
                order; of several for one GPU event the last one counts.
        """
        submitted = {gpu: row for row, submits, _ in links for gpu in submits}
        awaited = {gpu: row for row, _, awaits in links for gpu in awaits}
        done: dict[int, list[int]] = {}
        for row, gpu, _ in self._rows:
            done.setdefault(gpu, []).append(row)
        for row, gpu, waits in self._rows:
            if gpu in submitted:
                flows.draw(submitted[gpu], row)
            if gpu in awaited:
                flows.draw(row, awaited[gpu])
            for source in (s for waited in waits for s in done.get(waited, [])):
                flows.draw(source, row)
