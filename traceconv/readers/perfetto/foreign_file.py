"""A file of another program, from its packets to the rows of a rank."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I8, I32, I64, Capture, Kind, Layer, Mask, OpClass, Strings
from traceconv.core.ordering import different, factored_rows
from traceconv.protobuf.perfetto_schema import INSTANT, SLICE_END
from traceconv.readers.perfetto.events import take_events
from traceconv.readers.perfetto.gpu import Gpu
from traceconv.readers.perfetto.marks import DROPPED, Events, Marks
from traceconv.readers.perfetto.others import Unread
from traceconv.readers.perfetto.packets import packets
from traceconv.readers.perfetto.places import Lane, Lanes, Places, Sort
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
        for some in packets(capture.source, name, build):
            unread.take(some)
            for timed in sequences.timed(some):
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
        stated = column >= 0
        column[stated] = codes[column[stated]]
        undefined += int((column[stated] < 0).sum())
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
        named = order[marks.name[order] >= 0]
        name = np.full(len(keys), -1, np.int64)  # of the first event of each lane
        name[marks.lane[named]] = marks.name[named]
        names = [self._build.strings[i] if i >= 0 else "" for i in name.tolist()]
        known = Lanes(self._descriptors, keys, names)
        lanes = self._lanes = [self._own(lane) for lane in known.lanes]
        mine = np.array([self._part.has(lane) for lane in known.lanes], bool)
        whole = slices(marks)
        of_none = self._of_none(known.lanes)
        self._book_of_none(whole, of_none)
        own = mine[marks.lane[whole.mark]]
        made = whole.take(own, mine[marks.lane[whole.alone]])
        self._book(made)
        used = np.flatnonzero(np.bincount(marks.lane[made.mark])).tolist()
        self._places = Places([lanes[i] for i in used], build.comm_words)
        row_of = np.full(len(whole.mark), -1, np.int64)
        row_of[own] = self._rows(made)
        self._arrows(whole, row_of, mine)
        self._samples(mine, of_none)

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
            own = marks.lane == lane
            instants = int((own & (marks.kind == INSTANT)).sum())
            ends = int((own & (marks.kind == SLICE_END)).sum())
            begins = int((own & (marks.kind != DROPPED)).sum()) - instants - ends
            for what, count in (("slice", begins), ("instant", instants)):
                build.seen(what, count)
                build.skip("track-unknown", problem, count, what)
            marks.kind[own] = DROPPED

    def _of_none(self, lanes: Sequence[Lane]) -> Mask:
        """Which lanes are of no rank, for the rank that accounts for them; none for the others."""
        parts = (self._part, *self._part.others)
        if len(parts) < 2:
            return np.zeros(len(lanes), bool)
        return np.array([not any(part.has(lane) for part in parts) for lane in lanes], bool)

    def _book_of_none(self, whole: Slices, of_none: Mask) -> None:
        build, marks = self._build, self._marks
        instant = marks.kind[whole.mark] == INSTANT
        lost = of_none[marks.lane[whole.mark]]
        for what, count in (
            ("slice", int((lost & ~instant).sum())),
            ("instant", int((lost & instant).sum())),
        ):
            build.seen(what, count)
            build.skip("track-without-rank", "", count, what)

    def _book(self, made: Slices) -> None:
        build, marks = self._build, self._marks
        instants = int((marks.kind[made.mark] == INSTANT).sum())
        build.seen("slice", len(made.mark) - instants)
        build.seen("instant", instants)
        if len(made.alone):
            keys = self._events.lanes.keys
            where = f"{keys[int(marks.lane[made.alone[0]])][0]} at {marks.time[made.alone[0]]} ns"
            build.skip("end-without-begin", where, len(made.alone))
        build.skip("unfinished-slice", "", int(made.open.sum()))

    # -- rows ------------------------------------------------------------------------------------

    def _rows(self, made: Slices) -> I64:
        """Add the slices and instants; the row of each of ``made``."""
        build, marks, mark = self._build, self._marks, made.mark
        name = marks.name[mark]
        nameless = int((name < 0).sum())
        if nameless:
            name = np.where(name < 0, build.string(""), name).astype(np.int32)
            build.skip("missing-name", "", nameless)
        track, op, step = self._placed(mark, name)
        start, dur = marks.time[mark] + self._part.shift_ns, made.dur
        kind = np.where(marks.kind[mark] == INSTANT, Kind.INSTANT, Kind.SLICE).astype(np.int8)
        args = self._merged_args(made)
        rows, kept = self._each_once(
            (track, start, dur, name, kind, self._alike(args)),
            (marks.lane[mark],),
            (("slice", kind == Kind.SLICE), ("instant", kind == Kind.INSTANT)),
        )
        first = build.extend(
            track=track[kept], start_ns=start[kept], dur_ns=dur[kept], name=name[kept],
            kind=kind[kept], op=op[kept], step=step[kept], args=args[kept],
        )  # fmt: skip
        return rows + first

    def _placed(self, mark: I64, name: I32) -> tuple[I32, I8, I32]:
        """Track, class and step of every row."""
        marks, categories = self._marks, self._categories
        track = np.zeros(len(mark), np.int32)
        op = np.zeros(len(mark), np.int8)
        step = np.full(len(mark), -1, np.int32)
        stages, stage = self._stages(mark)
        wide = len(categories) + 1
        key = (marks.lane[mark].astype(np.int64) * wide + marks.category[mark] + 1) * len(stages)
        for one, rows in grouped(key + stage):
            of, at = divmod(one, len(stages))
            lane, category = self._lanes[of // wide], of % wide - 1
            kind, collective = stages[at]
            sort = self._places.sort(lane, categories[category] if category >= 0 else "", kind)
            if collective and sort is Sort.KERNEL:
                sort = Sort.COLLECTIVE
            names, which = different(name[rows])
            table = np.array([self._place(lane, sort, one) for one in names.tolist()], np.int32)
            track[rows], op[rows], step[rows] = table[which].T
        return track, op, step

    def _place(self, lane: Lane, sort: Sort | None, string: int) -> tuple[int, int, int]:
        """Track, class and step of the rows of one lane, category and name."""
        build, text, done = self._build, self._build.strings[string], OpClass.OTHER
        if sort in (Sort.KERNEL, Sort.COLLECTIVE, Sort.COPY, Sort.STREAM):
            done = self._places.kernel(sort, text)
        elif sort is Sort.WAIT:
            done = OpClass.WAIT
        made = self._places.track(lane, sort, text, done)
        if made.layer in (Layer.DEVICE, Layer.COMM):
            build.hints.free_rule = "device"
        host = made.layer is Layer.HOST
        if (host or made.layer is Layer.RUNTIME) and done is OpClass.OTHER:
            done = OpClass.HOST
        return build.add_track(made), done, step_number(text) if host else -1

    def _stages(self, mark: I64) -> tuple[list[tuple[str | None, bool]], I64]:
        """What GPU packets are, and which of these each row is; 0 = it is of no such packet."""
        stage = np.zeros(len(mark), np.int64)
        marks, _, kinds = self._gpu.stages()
        if len(marks):
            of_mark = np.zeros(self._events.count, np.int64)
            of_mark[marks] = kinds + 1
            stage = of_mark[mark]
        return [(None, False), *self._gpu.kinds], stage

    def _merged_args(self, made: Slices) -> I32:
        """Arguments of rows: those of their first and their last event."""
        marks = self._marks
        own = marks.args[made.mark]
        closed = made.end >= 0
        last = np.where(closed, marks.args[made.end], -1)
        own = np.where(own < 0, last, own).astype(np.int32)
        both = np.flatnonzero((marks.args[made.mark] >= 0) & (last >= 0))
        if len(both):
            ids, which = factored_rows(own[both], last[both])
            early, late = (self._build.args_of(np.array(part)) for part in zip(*ids, strict=True))
            merged = [self._build.args(both_of(*pair)) for pair in zip(early, late, strict=True)]
            own[both] = np.array(merged, np.int32)[which]
        return own

    def _alike(self, args: I32) -> I64:
        """Numbers of arguments: those of one text have one."""
        if not self._part.grouped:
            return args.astype(np.int64)
        distinct, back = np.unique(args, return_inverse=True)
        stated = distinct[distinct >= 0]
        texts: dict[bytes, int] = {}
        codes = [texts.setdefault(text, len(texts)) for text in self._build.args_of(stated)]
        none = [-1] * (len(distinct) - len(stated))
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
        _, what = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        what = what.ravel()
        keys: list[NDArray[Any]] = [*group, what]
        order = np.lexsort(keys)  # rows of one group stay in their order
        new = np.ones(n, bool)
        new[1:] = np.diff(what[order]) != 0
        for column in group:
            new[1:] |= np.diff(column[order]) != 0
        begin = np.maximum.accumulate(np.where(new, np.arange(n), 0))
        nth = np.empty(n, np.int64)
        nth[order] = np.arange(n) - begin
        pairs = np.stack((what, nth), axis=1)
        _, first, back = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        kept = np.zeros(n, bool)
        kept[first] = True
        for kind, of_kind in kinds:
            again = int((~kept & of_kind).sum())
            self._build.skip("repeated-content", "in several groups", again, kind)
        place = np.cumsum(kept) - 1
        return place[first[back.ravel()]], kept

    # -- flows and samples ------------------------------------------------------------------------

    def _arrows(self, whole: Slices, row_of: I64, mine: Mask) -> None:
        """Draw what leads from row to row of the rank.

        Args:
            whole:  the slices of all ranks: a chain of flows leads from one to another.
            row_of: in the rank, of each of them; -1 if it is not of the rank.
        """
        marks, row = self._marks, touched(self._marks, whole)
        start = marks.time[whole.mark]
        flow, launch = self._build.string("flow"), self._build.string("launch")
        for found, name in (
            (arrows(self._events.flows(), row, marks, start), flow),
            (old_arrows(self._events.legacy_flows, row, marks, start), flow),
            (self._gpu.arrows(row), launch),
        ):
            single = int(mine[marks.lane[found.single]].sum())
            self._draw(found, row_of, marks.lane[whole.mark], single, name)

    def _draw(self, found: Arrows, row_of: I64, lane: I32, single: int, name: int) -> None:
        build = self._build
        src, dst = row_of[found.src], row_of[found.dst]
        across = int(((src < 0) & (dst >= 0)).sum())
        own = (src >= 0) & (dst >= 0)
        src, dst = src[own], dst[own]
        build.seen("flow", len(src) + across + single)
        build.skip("flow-without-end", "", single, "flow")
        build.skip("flow-across-ranks", "", across, "flow")
        if self._part.grouped:  # a flow to a copy of its source is dropped
            copy = src == dst
            build.skip("repeated-content", "in several groups", int(copy.sum()), "flow")
            ends = lane[found.src[own]][~copy], lane[found.dst[own]][~copy]
            src, dst = src[~copy], dst[~copy]
            _, kept = self._each_once((src, dst), ends, (("flow", np.ones(len(src), bool)),))
            src, dst = src[kept], dst[kept]
        build.flows(src=src, dst=dst, name=name)

    def _samples(self, mine: Mask, of_none: Mask) -> None:
        build, found = self._build, self._events.samples()
        for lane, rows in grouped(found.lane.astype(np.int64)):
            if not mine[lane] and not of_none[lane]:
                continue
            build.seen("counter", len(rows))
            if of_none[lane]:
                build.skip("track-without-rank", "", len(rows), "counter")
                continue
            key = self._events.lanes.keys[lane]
            known = self._descriptors.of(key)
            problem = self._descriptors.problem(key)
            if known is None or known.counter is None or problem:
                why = problem or f"{key[0]} {key[-1]} is not a counter"
                build.skip("track-unknown", why, len(rows), "counter")
                continue
            value = found.value[rows].copy()
            if known.counter.multiplier > 0:
                value *= known.counter.multiplier
            if known.counter.incremental:
                for _, own in grouped(found.generation[rows].astype(np.int64)):
                    value[own] = np.cumsum(value[own])
            finite = np.isfinite(value)
            build.skip("counter-not-numeric", "", int((~finite).sum()), "counter")
            track = build.add_track(self._places.counter(self._lanes[lane], known.counter.unit))
            times = found.time[rows][finite] + self._part.shift_ns
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
