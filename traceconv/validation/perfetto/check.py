"""Perfetto traces: what the importer (v58.2) makes of a protobuf trace, and which rules it breaks.

Two passes: packets to event columns in file order (:mod:`._tokens`), then, stably sorted by time,
events to slices (:mod:`._slices`), arrows and samples.
"""

from __future__ import annotations

from array import array
from collections import Counter

import numpy as np

from traceconv.validation.arguments import CORRELATIONS, NAMES, STRINGS, flatten
from traceconv.validation.container import Buffer
from traceconv.validation.flows import FlowBook
from traceconv.validation.perfetto.columns import BEGIN, END, GPU, INSTANT, STATE, Shape, Tokens
from traceconv.validation.perfetto.decoded import I64, Argument, Counters, Decoded, Flows, column
from traceconv.validation.perfetto.events import parse
from traceconv.validation.perfetto.gpu import GpuStages, gpu_arguments
from traceconv.validation.perfetto.sequences import CATEGORIES, EVENT_NAMES, Generation
from traceconv.validation.perfetto.tokens import tokenize
from traceconv.validation.perfetto.tracks import Place, TrackKey, Tracks
from traceconv.validation.perfetto.wire import message, number, text, whole_fields
from traceconv.validation.slices import NONE, Labels, SliceBook
from traceconv.validation.tally import Tally

_BLOCK = 1 << 16


def decode(data: Buffer, label: str, tally: Tally) -> Decoded:
    """Rebuild a trace and count the rules it breaks.

    Args:
        data:  the file, unpacked.
        label: its name, for messages.

    Raises:
        Refused: the importer would refuse the file.
    """
    return _Builder(tokenize(data, label, tally), tally).decoded()


class _Builder:
    def __init__(self, tokens: Tokens, tally: Tally) -> None:
        self._tokens, self._tally = tokens, tally
        self._shapes: list[Shape] = list(tokens.shapes)
        self._ts = column(tokens.ts, np.int64)
        self._shape = column(tokens.shape, np.int32)
        self._uses: list[int] = np.bincount(self._shape, minlength=len(self._shapes)).tolist()
        used = dict.fromkeys(s.track for s in self._shapes if s.kind != GPU)
        self._tracks = Tracks(tokens.descriptors, used, len(tokens.machines) > 1)
        self._labels = Labels()
        self._label_of = [
            self._label(shape, n) for shape, n in zip(self._shapes, self._uses, strict=True)
        ]
        self._book = SliceBook(tally, "P16", self._labels)
        self._gpu = GpuStages(tokens, self._tracks, self._book, self._labels, tally)
        self._order: I64 = np.argsort(self._ts, kind="stable")

    def decoded(self) -> Decoded:
        """Everything, in the importer's order."""
        events = self._events_per_track()
        self._judge_tracks(events)
        self._judge_health(events)
        self._judge_arguments()
        row_of = self._replay()
        self._book.finish()
        kinds = np.array([s.kind for s in self._shapes], np.int8)[self._shape[self._order]]
        made = row_of >= 0
        begins = self._order[made & (kinds != END)]
        ends = np.full(len(begins), -1, np.int64)
        ends[row_of[made & (kinds == END)]] = self._order[made & (kinds == END)]
        counters = self._counters()
        return Decoded(
            "perfetto",
            self._book.rows(self._tracks.rows, _ArgumentReader(self._tokens, begins, ends)),
            kinds[made & (kinds != END)] == INSTANT,
            counters,
            self._flows(row_of),
            self._tracks.rows,
            self._tally.stats,
            dict(self._tokens.attributes),
        )

    # -- names ---------------------------------------------------------------------------------

    def _label(self, shape: Shape, uses: int) -> int:
        """Number of a shape's name and category."""
        generation = self._tokens.generations[shape.generation]
        name = shape.name
        if isinstance(name, int):
            name = self._text(generation, EVENT_NAMES, name, "P04-name", shape, uses)
        if len(shape.categories) == 1 and isinstance(iid := shape.categories[0], int):
            found = self._text(generation, CATEGORIES, iid, "P04-category", shape, uses)
            return self._labels.number((name, f"unknown({iid})" if found is None else found))
        categories = [
            self._text(generation, CATEGORIES, c, "P04-category", shape, uses) or ""
            if isinstance(c, int)
            else c
            for c in shape.categories
        ]
        return self._labels.number((name, ",".join(c for c in categories if c) or None))

    def _text(
        self, generation: Generation, table: int, iid: int, rule: str, shape: Shape, uses: int
    ) -> str | None:
        found = generation.text(table, iid)
        if found is None:
            self._tally.add(rule, f"id {iid} on {_track_title(shape.track)}", uses)
        return found

    def _judge_arguments(self) -> None:
        """Ids that were used before, or without, their definition."""
        for (generation, table, iid), count in self._tokens.awaited.items():
            defined = self._tokens.generations[generation].defines(table, iid)
            if defined:
                self._tally.add("P04-late", f"table {table} id {iid}", count)
            elif table in (NAMES, STRINGS, CORRELATIONS):
                self._tally.add("P04-argument", f"table {table} id {iid}", count)

    # -- tracks --------------------------------------------------------------------------------

    def _events_per_track(self) -> Counter[TrackKey]:
        events: Counter[TrackKey] = Counter()
        for shape, uses in zip(self._shapes, self._uses, strict=True):
            if shape.kind != GPU:
                events[shape.track] += uses
        return events

    def _judge_health(self, events: Counter[TrackKey]) -> None:
        """Count what stands on tracks that cannot be used, and their descriptors."""
        descriptors, samples = self._tokens.descriptors, Counter(self._tokens.counter_track)
        total: Counter[TrackKey] = Counter(events)
        for track, index in self._tokens.counter_tracks.items():
            total[track] += samples[index]
        for track, packets in descriptors.packets.items():
            total[track] += packets
        for key, count in total.items():
            if len(key) == 2 and (rule := descriptors.health(key)):
                self._tally.add(rule, _track_title(key), count)

    def _judge_tracks(self, events: Counter[TrackKey]) -> None:
        descriptors = self._tokens.descriptors
        for key, count in events.items():
            if len(key) == 2 and key[1] and descriptors.get(key) is None:
                self._tally.add("P15-track", _track_title(key))
            elif len(key) == 2 and descriptors.counter(key):
                self._tally.add("P18-slice", _track_title(key), count)
        seen: dict[object, int] = {}
        for (machine, uuid), d in descriptors.items():
            if d.pid is not None:
                first = seen.setdefault((machine, d.pid, d.tid), uuid)
                if first != uuid:
                    rule = "P13-process" if d.tid is None else "P13-thread"
                    self._tally.add(rule, f"uuids {first} and {uuid}")
        for name, count in self._tracks.merged():
            self._tally.add("P21-merged", repr(name), count)

    # -- slices --------------------------------------------------------------------------------

    def _replay(self) -> I64:
        """Every event in time order to the book; the row of each, in that order."""
        row_of, book, pairs = array("q"), self._book, self._labels.pairs
        places: list[Place | None] = [None] * len(self._shapes)
        usable = [self._usable(shape) for shape in self._shapes]
        kinds = [shape.kind for shape in self._shapes]
        add_row, label_of = row_of.append, self._label_of
        for start in range(0, len(self._order), _BLOCK):
            block = self._order[start : start + _BLOCK]
            times, shapes = self._ts[block].tolist(), self._shape[block].tolist()
            for t, s, event in zip(times, shapes, block.tolist(), strict=True):
                if not usable[s]:
                    add_row(self._gpu.add(t, event) if kinds[s] == GPU else NONE)
                    continue
                place = places[s]
                if place is None:
                    name = pairs[label_of[s]][0]
                    place = places[s] = self._tracks.place(self._shapes[s].track, name)
                if kinds[s] == BEGIN:
                    add_row(book.begin(place.lane or place.begin(), t, label_of[s]))
                elif kinds[s] == END:
                    add_row(book.end(place.lane or place.end(), t, *pairs[label_of[s]]))
                else:
                    add_row(book.begin(place.lane or place.point(), t, label_of[s], 0))
        return column(row_of, np.int64)

    def _usable(self, shape: Shape) -> bool:
        """Whether events of the shape become slices."""
        if shape.kind in (GPU, STATE):
            return False
        key = shape.track
        return len(key) == 3 or not self._tokens.descriptors.health(key)

    def _counters(self) -> Counters:
        """Samples by time; those on unusable tracks are gone."""
        tokens = self._tokens
        numbers = [
            -1 if tokens.descriptors.health(key) else self._tracks.counter(key)
            for key in tokens.counter_tracks
        ]
        track = np.array(numbers, np.int32)[column(tokens.counter_track, np.int32)]
        ts, value = column(tokens.counter_ts, np.int64), column(tokens.counter_value, np.float64)
        order = np.argsort(ts, kind="stable")
        order = order[track[order] >= 0]
        paths = [row.path for row in self._tracks.rows]
        return Counters(ts[order], value[order], track[order], paths)

    # -- arrows --------------------------------------------------------------------------------

    def _flows(self, row_of: I64) -> Flows:
        tokens, book = self._tokens, FlowBook(self._book.ts)
        rank = np.empty(len(self._order), np.int64)
        rank[self._order] = np.arange(len(self._order))
        at = rank[column(tokens.flow_event, np.int64)]
        order = np.argsort(at, kind="stable")
        rows = row_of[at[order]].tolist()
        ids = column(tokens.flow_id, np.uint64)[order].tolist()
        ends = column(tokens.flow_ends, np.int8)[order].tolist()
        for row, flow, is_end in zip(rows, ids, ends, strict=True):
            if row < 0:
                continue
            if is_end:
                if book.is_open(flow):
                    book.end(flow, row, close=True)
                else:
                    self._tally.add("P20-unopened", f"flow {flow}")
            elif not book.begin(flow, row):
                book.step(flow, row)
        for flow in book.unused():
            self._tally.add("P20-single", f"flow {flow}")
        links = sorted((int(rank[event]), link) for event, link in tokens.gpu_links.items())
        self._gpu.connect(((int(row_of[n]), *link) for n, link in links if row_of[n] >= 0), book)
        return book.flows()


class _ArgumentReader:
    """Reads the arguments of a row from its packets when asked."""

    def __init__(self, tokens: Tokens, begins: I64, ends: I64) -> None:
        self._tokens, self._begins, self._ends = tokens, begins, ends

    def __call__(self, row: int, renamed: bool) -> list[Argument]:
        begin, end = int(self._begins[row]), int(self._ends[row])
        if self._tokens.shape_at(begin).kind == GPU:
            generation = self._tokens.generations[self._tokens.shape_at(begin).generation]
            return gpu_arguments(self._packet(begin), generation)
        found = self._of_event(begin, renamed)
        if end >= 0:
            found = found + self._of_event(end, renamed)
        return list({a.key: a for a in found}.values())

    def _packet(self, event: int) -> bytes:
        return self._tokens.packets.packet(self._tokens.place[event])

    def _of_event(self, number_: int, renamed: bool) -> list[Argument]:
        generation = self._tokens.generations[self._tokens.shape_at(number_).generation]
        whole = {n: v for n, _, v in whole_fields(self._packet(number_))}
        event = parse(message(whole.get(11, b"")))
        found: list[Argument] = []
        if 52 in event.last:
            found.append(Argument("correlation_id", "string", f"tp:#{number(event.last[52])}"))
        elif 53 in event.last:
            found.append(Argument("correlation_id", "string", text(event.last[53])))
        elif 54 in event.last:
            named = generation.text(CORRELATIONS, number(event.last[54]))
            if named is not None:
                found.append(Argument("correlation_id", "string", named))
        for link in event.all(3000):
            found.extend(_gpu_links(link))
        for annotation in event.all(4):
            found.extend(flatten(annotation, generation.text, renamed))
        return found


def _gpu_links(data: bytes) -> list[Argument]:
    links = parse(data)
    named = {1: "render_stage_submission_event_ids", 2: "render_stage_wait_event_ids"}
    return [
        Argument(f"gpu_correlation.{name}[{i}]", "uint", gpu)
        for n, name in named.items()
        for i, gpu in enumerate(links.integers(n))
    ]


def _track_title(key: TrackKey) -> str:
    return f"uuid {key[1]}" if len(key) == 2 else f"tid {key[2]}"
