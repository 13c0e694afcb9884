"""A file of another program, from its packets to the rows of a rank."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I8, I32, I64, Capture, Kind, Layer, Mask, OpClass, Strings
from traceconv.core.ordering import factored_rows, mapped
from traceconv.protobuf.perfetto_schema import INSTANT, SLICE_END
from traceconv.readers.perfetto.events import take_events
from traceconv.readers.perfetto.gpu import Gpu
from traceconv.readers.perfetto.marks import DROPPED, Events, Marks
from traceconv.readers.perfetto.others import Unread
from traceconv.readers.perfetto.packets import packets
from traceconv.readers.perfetto.places import Lane, Lanes, Places, Sort, is_known
from traceconv.readers.perfetto.slices import (
    Arrows,
    Slices,
    arrows,
    old_arrows,
    slices,
    touched,
)
from traceconv.readers.perfetto.state import Sequences
from traceconv.readers.perfetto.tracks import Descriptors
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.gpu_kernels import step_number


@dataclass(frozen=True)
class Part:
    """Which tracks of a file are those of a rank; all, if nothing is named.

    Attributes:
        rank:    in the names of its threads or its process, -1 = not by these.
        grouped: threads are below the groups the rank is in, not below a process: what is on them
            is there once per group.
        process: (machine, pid).
        others:  the other ranks, at the one that accounts for what is of none.
        shift_ns: what a manifest adds to every time.
    """

    rank: int = -1
    grouped: bool = False
    process: tuple[int, int] | None = None
    others: tuple[Part, ...] = ()
    shift_ns: int = 0

    def has(self, lane: Lane) -> bool:
        """Whether a lane is one of the rank."""
        if self.rank >= 0:
            return lane.rank == self.rank
        return self.process is None or lane.process in (None, self.process)


def read(capture: Capture, build: TraceBuilder) -> None:
    """Put the events of a file into ``build``.

    Raises:
        MalformedInputError: there are none.
    """
    sequences = Sequences(build)
    events, unread = Events(build, sequences), Unread()
    gpu = Gpu(events)
    for name in capture.files:
        build.file = capture.source.title(name)
        for batch in packets(capture.source, name, build):
            unread.take(batch)
            for timed in sequences.timed(batch):
                take_events(events, timed)
                gpu.take(timed)
    for timed in sequences.late():
        take_events(events, timed)
        gpu.take(timed)
    unread.book(build)
    fields = sequences.descriptors.unread
    listed = ", ".join(f"{name}: {count}" for name, count in sorted(fields.items()))
    build.skip("perfetto-field-unread", f"descriptors: {listed}", fields.total())
    part = capture.detail if isinstance(capture.detail, Part) else Part()
    _Content(build, sequences, events, gpu, part).put()
    if not build.rows and not build.issues.worst() == "loss" and unread.text():
        raise MalformedInputError(
            build.file,
            "",
            f"no TrackEvents and no GPU packets in it, only {unread.text()}; "
            "open it in ui.perfetto.dev",
        )


_Kinds = Sequence[tuple[str, Mask]]


def resolved(events: Events, marks: Marks, sequences: Sequences, build: TraceBuilder) -> list[str]:
    """Make names string ids and categories indices of the list that is returned; -1 = none."""
    undefined = 0
    categories = Strings()
    for column, table, number in (
        (marks.name, events.names, build.string),
        (marks.category, events.categories, categories.intern),
    ):
        texts = table.texts(sequences)
        codes = np.full(max(texts, default=-1) + 1, -1, np.int32)
        for code, raw in sorted(texts.items()):
            if raw is not None:
                codes[code] = number(raw.decode("utf-8", "replace"))
        has_text = column >= 0
        column[has_text] = codes[column[has_text]]
        undefined += int((column[has_text] < 0).sum())
    build.skip("interned-unknown", "names and categories", undefined)
    return list(categories)


class _Content:
    """Adds the collected content of a file to a builder."""

    def __init__(
        self, build: TraceBuilder, sequences: Sequences, events: Events, gpu: Gpu, part: Part
    ) -> None:
        self._build, self._sequences, self._events = build, sequences, events
        self._gpu, self._part = gpu, part
        self._descriptors: Descriptors = sequences.descriptors

    def put(self) -> None:
        """Add everything."""
        events, build = self._events, self._build
        marks = self._marks = events.marks()
        self._categories = resolved(events, marks, self._sequences, build)
        self._refuse()
        keys = events.lanes.keys
        order = np.argsort(marks.time, kind="stable")[::-1]
        with_names = order[marks.name[order] >= 0]
        name = np.full(len(keys), -1, np.int64)  # of the first event of each lane
        name[marks.lane[with_names]] = marks.name[with_names]
        names = [self._build.strings[i] if i >= 0 else "" for i in name.tolist()]
        described = Lanes(self._descriptors, keys, names)
        lanes = self._lanes = [self._own(lane) for lane in described.lanes]
        is_own = np.array([self._part.has(lane) for lane in described.lanes], bool)
        all_slices = slices(marks)
        of_none = self._of_none(described.lanes)
        self._book_of_none(all_slices, of_none)
        own_slices = is_own[marks.lane[all_slices.mark]]
        own_rows = all_slices.take(own_slices, is_own[marks.lane[all_slices.alone]])
        self._book(own_rows)
        used = np.flatnonzero(np.bincount(marks.lane[own_rows.mark])).tolist()
        self._places = Places([lanes[i] for i in used], build.comm_words)
        for (_, pid), title in self._places.unshown.items():
            build.skip("metadata-unused", f"name of process {pid}: {title}")
        row_of = np.full(len(all_slices.mark), -1, np.int64)
        row_of[own_slices] = self._rows(own_rows)
        self._arrows(all_slices, row_of, is_own)
        self._samples(is_own, of_none)

    def _own(self, lane: Lane) -> Lane:
        """A lane as that of its rank, if the file has several ranks."""
        if not self._part.grouped:
            return lane
        words = lane.name.split()
        name = " ".join(words[2:]) if len(words) > 2 else lane.name
        return replace(lane, name=name, process=None, identity=("rank", name))

    def _refuse(self) -> None:
        """Drop events on tracks that cannot have any."""
        build, marks = self._build, self._marks
        for lane, key in enumerate(self._events.lanes.keys):
            problem = self._descriptors.problem(key)
            if not problem:
                continue
            on_lane = marks.lane == lane
            instants = int((on_lane & (marks.kind == INSTANT)).sum())
            ends = int((on_lane & (marks.kind == SLICE_END)).sum())
            begins = int((on_lane & (marks.kind != DROPPED)).sum()) - instants - ends
            for kind_name, count in (("slice", begins), ("instant", instants)):
                build.seen(kind_name, count)
                build.skip("track-unknown", problem, count, kind_name)
            marks.kind[on_lane] = DROPPED

    def _of_none(self, lanes: Sequence[Lane]) -> Mask:
        """Which lanes are of no rank, for the rank that accounts for them; none for the others."""
        parts = (self._part, *self._part.others)
        if len(parts) < 2:
            return np.zeros(len(lanes), bool)
        return np.array([not any(part.has(lane) for part in parts) for lane in lanes], bool)

    def _book_of_none(self, all_slices: Slices, of_none: Mask) -> None:
        build, marks = self._build, self._marks
        instant = marks.kind[all_slices.mark] == INSTANT
        lost = of_none[marks.lane[all_slices.mark]]
        for kind_name, count in (
            ("slice", int((lost & ~instant).sum())),
            ("instant", int((lost & instant).sum())),
        ):
            build.seen(kind_name, count)
            build.skip("track-without-rank", "", count, kind_name)

    def _book(self, own_slices: Slices) -> None:
        build, marks = self._build, self._marks
        instants = int((marks.kind[own_slices.mark] == INSTANT).sum())
        build.seen("slice", len(own_slices.mark) - instants)
        build.seen("instant", instants)
        if len(own_slices.alone):
            keys = self._events.lanes.keys
            end = own_slices.alone[0]
            where = f"{keys[int(marks.lane[end])][0]} at {marks.time[end]} ns"
            build.skip("end-without-begin", where, len(own_slices.alone))
        build.skip("unfinished-slice", "", int(own_slices.open.sum()))

    # -- rows ------------------------------------------------------------------------------------

    def _rows(self, own_slices: Slices) -> I64:
        """Add the slices and instants; the row of each of ``own_slices``."""
        build, marks, mark = self._build, self._marks, own_slices.mark
        name = marks.name[mark]
        nameless = int((name < 0).sum())
        if nameless:
            name = np.where(name < 0, build.string(""), name).astype(np.int32)
            build.skip("missing-name", "", nameless)
        track, op, step = self._placed(mark, name)
        start, dur = marks.time[mark] + self._part.shift_ns, own_slices.dur
        kind = np.where(marks.kind[mark] == INSTANT, Kind.INSTANT, Kind.SLICE).astype(np.int8)
        args = self._with_categories(self._merged_args(own_slices), marks.category[mark])
        rows, is_new = self._each_once(
            (track, start, dur, name, kind, self._alike(args)),
            (marks.lane[mark],),
            (("slice", kind == Kind.SLICE), ("instant", kind == Kind.INSTANT)),
        )
        first_row = build.extend(
            track=track[is_new], start_ns=start[is_new], dur_ns=dur[is_new], name=name[is_new],
            kind=kind[is_new], op=op[is_new], step=step[is_new], args=args[is_new],
        )  # fmt: skip
        return rows + first_row

    def _placed(self, mark: I64, name: I32) -> tuple[I32, I8, I32]:
        """Track, class and step of every row."""
        marks, categories = self._marks, self._categories
        track = np.zeros(len(mark), np.int32)
        op = np.zeros(len(mark), np.int8)
        step = np.full(len(mark), -1, np.int32)
        stages, stage = self._stages(mark)
        wide = len(categories) + 1
        key = (marks.lane[mark].astype(np.int64) * wide + marks.category[mark] + 1) * len(stages)
        for combined, rows in grouped(key + stage):
            lane_category, i_stage = divmod(combined, len(stages))
            lane, category = self._lanes[lane_category // wide], lane_category % wide - 1
            kind, collective = stages[i_stage]
            sort = self._places.sort(lane, categories[category] if category >= 0 else "", kind)
            if collective and sort is Sort.KERNEL:
                sort = Sort.COLLECTIVE
            places = mapped(name[rows], partial(self._place, lane, sort), np.int32)
            track[rows], op[rows], step[rows] = places.T
        return track, op, step

    def _place(self, lane: Lane, sort: Sort | None, string: int) -> tuple[int, int, int]:
        """Track, class and step of the rows of one lane, category and name."""
        build, text, done = self._build, self._build.strings[string], OpClass.OTHER
        if sort in (Sort.KERNEL, Sort.COLLECTIVE, Sort.COPY, Sort.STREAM):
            done = self._places.kernel(sort, text)
        elif sort is Sort.WAIT:
            done = OpClass.WAIT
        track = self._places.track(lane, sort, text, done)
        if track.layer in (Layer.DEVICE, Layer.COMM):
            build.hints.free_rule = "device"
        host = track.layer is Layer.HOST
        if (host or track.layer is Layer.RUNTIME) and done is OpClass.OTHER:
            done = OpClass.HOST
        return build.add_track(track), done, step_number(text) if host else -1

    def _stages(self, mark: I64) -> tuple[list[tuple[str | None, bool]], I64]:
        """What GPU packets are, and which of these each row is; 0 = it is of no such packet."""
        stage = np.zeros(len(mark), np.int64)
        marks, _, kinds = self._gpu.stages()
        if len(marks):
            of_mark = np.zeros(self._events.count, np.int64)
            of_mark[marks] = kinds + 1
            stage = of_mark[mark]
        return [(None, False), *self._gpu.kinds], stage

    def _merged_args(self, own_slices: Slices) -> I32:
        """Arguments of rows: those of their first and their last event."""
        marks = self._marks
        merged_args = marks.args[own_slices.mark]
        closed = own_slices.end >= 0
        end_args = np.where(closed, marks.args[own_slices.end], -1)
        merged_args = np.where(merged_args < 0, end_args, merged_args).astype(np.int32)
        with_both = np.flatnonzero((marks.args[own_slices.mark] >= 0) & (end_args >= 0))
        if len(with_both):
            ids, pair_of_row = factored_rows(merged_args[with_both], end_args[with_both])
            early, late = (self._build.args_of(np.array(part)) for part in zip(*ids, strict=True))
            merged = [self._build.args(both_of(*pair)) for pair in zip(early, late, strict=True)]
            merged_args[with_both] = np.array(merged, np.int32)[pair_of_row]
        return merged_args

    def _with_categories(self, args: I32, category: I32) -> I32:
        """Arguments of rows with the categories that decide nothing, as the argument
        ``trace_event``."""
        kept = np.array([bool(text) and not is_known(text) for text in self._categories] + [False])
        rows = np.flatnonzero(kept[category])
        if not len(rows):
            return args
        pairs, pair_of_row = factored_rows(args[rows], category[rows])
        texts = self._build.args_of(np.array([i for i, _ in pairs]))
        members = [b'"trace_event":{"cat":' + quoted(text) + b"}}" for text in self._categories]
        made = [
            (text[:-1] + b"," if text[1:-1].strip() else b"{") + members[code]
            for text, (_, code) in zip(texts, pairs, strict=True)
        ]
        first = self._build.args_bytes(b"".join(made), np.array([*map(len, made)], np.int32))
        with_categories = args.copy()
        with_categories[rows] = first + pair_of_row
        return with_categories

    def _alike(self, args: I32) -> I64:
        """Numbers of arguments: those of one text have one."""
        if not self._part.grouped:
            return args.astype(np.int64)
        distinct, back = np.unique(args, return_inverse=True)
        with_args = distinct[distinct >= 0]
        texts: dict[bytes, int] = {}
        codes = [texts.setdefault(text, len(texts)) for text in self._build.args_of(with_args)]
        none = [-1] * (len(distinct) - len(with_args))
        return np.array(none + codes, np.int64)[back.ravel()]

    def _each_once(
        self, columns: tuple[NDArray[Any], ...], group: tuple[I32, ...], kinds: _Kinds
    ) -> tuple[I64, Mask]:
        """The place of each row among those that are kept, and which are: where a rank is in
        several groups of a file, what is its own is there once per group. A row that a group has
        twice is two rows.

        Args:
            columns: what tells rows apart.
            group:   what tells the groups apart.
            kinds:   what of the rows is of which kind, for the account.
        """
        n = len(columns[0])
        if not self._part.grouped or not n:
            return np.arange(n), np.ones(n, bool)
        _, content = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        content = content.ravel()
        keys: list[NDArray[Any]] = [*group, content]
        order = np.lexsort(keys)  # rows of one group stay in their order
        new = np.ones(n, bool)
        new[1:] = np.diff(content[order]) != 0
        for column in group:
            new[1:] |= np.diff(column[order]) != 0
        begin = np.maximum.accumulate(np.where(new, np.arange(n), 0))
        nth = np.empty(n, np.int64)
        nth[order] = np.arange(n) - begin
        pairs = np.stack((content, nth), axis=1)
        _, first_rows, back = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        is_new = np.zeros(n, bool)
        is_new[first_rows] = True
        for kind, of_kind in kinds:
            again = int((~is_new & of_kind).sum())
            self._build.skip("repeated-content", "in several groups", again, kind)
        new_rows = np.cumsum(is_new) - 1
        return new_rows[first_rows[back.ravel()]], is_new

    # -- flows and samples ------------------------------------------------------------------------

    def _arrows(self, all_slices: Slices, row_of: I64, is_own: Mask) -> None:
        """Draw what leads from row to row of the rank.

        Args:
            all_slices:  the slices of all ranks: a chain of flows leads from one to another.
            row_of: in the rank, of each of them; -1 if it is not of the rank.
        """
        marks, row = self._marks, touched(self._marks, all_slices)
        start = marks.time[all_slices.mark]
        flow, launch = self._build.string("flow"), self._build.string("launch")
        for drawn, name in (
            (arrows(self._events.flows(), row, marks, start), flow),
            (old_arrows(self._events.legacy_flows, row, marks, start), flow),
            (self._gpu.arrows(row), launch),
        ):
            single = int(is_own[marks.lane[drawn.single]].sum())
            self._draw(drawn, row_of, marks.lane[all_slices.mark], single, name)

    def _draw(self, drawn: Arrows, row_of: I64, lane: I32, single: int, name: int) -> None:
        build = self._build
        src, dst = row_of[drawn.src], row_of[drawn.dst]
        across = int(((src < 0) & (dst >= 0)).sum())
        within_rank = (src >= 0) & (dst >= 0)
        src, dst = src[within_rank], dst[within_rank]
        build.seen("flow", len(src) + across + single)
        build.skip("flow-without-end", "", single, "flow")
        build.skip("flow-across-ranks", "", across, "flow")
        if self._part.grouped:  # a flow to a copy of its source is dropped
            copy = src == dst
            build.skip("repeated-content", "in several groups", int(copy.sum()), "flow")
            ends = lane[drawn.src[within_rank]][~copy], lane[drawn.dst[within_rank]][~copy]
            src, dst = src[~copy], dst[~copy]
            _, is_new = self._each_once((src, dst), ends, (("flow", np.ones(len(src), bool)),))
            src, dst = src[is_new], dst[is_new]
        build.flows(src=src, dst=dst, name=name)

    def _samples(self, is_own: Mask, of_none: Mask) -> None:
        build, samples = self._build, self._events.samples()
        for lane, rows in grouped(samples.lane.astype(np.int64)):
            if not is_own[lane] and not of_none[lane]:
                continue
            build.seen("counter", len(rows))
            if of_none[lane]:
                build.skip("track-without-rank", "", len(rows), "counter")
                continue
            key = self._events.lanes.keys[lane]
            descriptor = self._descriptors.of(key)
            problem = self._descriptors.problem(key)
            if descriptor is None or descriptor.counter is None or problem:
                why = problem or f"{key[0]} {key[-1]} is not a counter"
                build.skip("track-unknown", why, len(rows), "counter")
                continue
            value = samples.value[rows].copy()
            if descriptor.counter.multiplier > 0:
                value *= descriptor.counter.multiplier
            if descriptor.counter.incremental:
                for _, of_generation in grouped(samples.generation[rows].astype(np.int64)):
                    value[of_generation] = np.cumsum(value[of_generation])
            finite = np.isfinite(value)
            build.skip("counter-not-numeric", "", int((~finite).sum()), "counter")
            track = build.add_track(
                self._places.counter(self._lanes[lane], descriptor.counter.unit)
            )
            times = samples.time[rows][finite] + self._part.shift_ns
            build.counters(track=track, start_ns=times, value=value[finite])
        for gpu, name, times, values in self._gpu.samples():
            unit = name[name.rindex("(") + 1 : -1] if name.endswith(")") and "(" in name else ""
            track = build.track(
                Layer.COUNTER, name, f"GPU {gpu}", "GPU Counters", unit=unit, device=gpu,
                device_kind="GPU",
            )  # fmt: skip
            build.counters(track=track, start_ns=times + self._part.shift_ns, value=values)


def grouped(key: I64) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield every value with its rows."""
    if not len(key):
        return
    order = np.argsort(key, kind="stable")
    borders = np.flatnonzero(np.diff(key[order])) + 1
    for rows in np.split(order, borders):
        yield int(key[rows[0]]), rows


def both_of(a: bytes, b: bytes) -> bytes:
    """One JSON object of two: members of both, arrays one after the other."""
    return json.dumps(_joined(json.loads(a), json.loads(b)), ensure_ascii=False).encode()


def _joined(a: Any, b: Any) -> Any:
    if isinstance(a, dict) and isinstance(b, dict):
        return {**a, **{key: _joined(a[key], v) if key in a else v for key, v in b.items()}}
    return [*a, *b] if isinstance(a, list) and isinstance(b, list) else b
