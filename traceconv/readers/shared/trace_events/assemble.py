"""From the tables of a whole file to rows, samples and arrows in the builder."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import BACKWARDS, I32, I64, Track
from traceconv.readers.shared.trace_events.binding import Binder
from traceconv.readers.shared.trace_events.contract import Classify, Placed, Revise, Skipped
from traceconv.readers.shared.trace_events.intake import titles
from traceconv.readers.shared.trace_events.lanes import SKIPPED, Lanes, Naming, Texts
from traceconv.readers.shared.trace_events.pairs import Joiner
from traceconv.readers.shared.trace_events.place import Anchors, Placer
from traceconv.readers.shared.trace_events.tables import BEGIN, Asyncs, Flows, Rows, Samples, Tables

# Counter samples into the builder, each series on a track of its own.

Kinds = list[tuple[int, int, int]]
"""Different (shape, name, series) of samples."""


class Counters:
    """Puts samples on tracks.

    Series of one name belong together if they are of one process (the thread does not matter).
    """

    def __init__(self, tables: Tables, lanes: Lanes, texts: Texts, build: TraceBuilder) -> None:
        self._tables, self._lanes, self._texts, self._build = tables, lanes, texts, build
        self._series = list(tables.series)
        self._taken: dict[Track, tuple[str, int, int]] = {}

    def put(self, samples: Samples, placer: Placer) -> None:
        """Add all samples."""
        kept = placer.shift(samples.start, np.zeros(len(samples), np.int64))
        if not kept.all():
            self._tables.tally.add("bad-time", count=int((~kept).sum()), kind="counter")
            samples = samples.take(kept)
        if not len(samples):
            return
        kinds, which = self._kinds(samples)
        tracks = self._tracks(kinds)
        counts = np.bincount(which, minlength=len(kinds)).tolist()
        for (shape, _, _), track, count in zip(kinds, tracks.tolist(), counts, strict=True):
            if track < 0:
                self._leave(shape, track, count)
        track = tracks[which]
        kept = track >= 0
        self._tables.tally.add("missing-name", count=int((samples.name[kept] < 0).sum()))
        self._build.counters(
            track=track[kept], start_ns=samples.start[kept], value=samples.value[kept]
        )

    def _leave(self, shape: int, track: int, count: int) -> None:
        """Book samples of a lane that is left out."""
        place = self._lanes.place(shape)
        if isinstance(place, Skipped):
            where = self._tables.shapes.place(shape)
            self._tables.tally.add(place.code, where, count, "counter")
        else:
            self._tables.tally.saw("counter", -count)

    def _kinds(self, samples: Samples) -> tuple[Kinds, I64]:
        """The different kinds of samples, and which one each row is of."""
        lanes = samples.shape.astype(np.int64) * (len(self._tables.names) + 1) + samples.name
        _, lane = np.unique(lanes, return_inverse=True)
        keys = lane * len(self._series) + samples.series
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        columns = (c[first].tolist() for c in (samples.shape, samples.name, samples.series))
        return list(zip(*columns, strict=True)), which

    def _tracks(self, kinds: Kinds) -> I64:
        """Number of the track per kind, -1 or -2 where it has none."""
        groups: defaultdict[tuple[str, int], dict[int, None]] = defaultdict(dict)
        for shape, name, series in kinds:
            groups[self._tables.shapes.pid[shape], name][series] = None
        made = {}
        for (pid, name), members in groups.items():
            named = titles(self._texts.text(name), [self._series[m] for m in members])
            made.update({(pid, name, m): title for m, title in zip(members, named, strict=True)})
        return np.array([self._track(*kind, made) for kind in kinds], np.int64)

    def _track(
        self, shape: int, name: int, series: int, made: dict[tuple[str, int, int], tuple[str, str]]
    ) -> int:
        place = self._lanes.place(shape)
        if not isinstance(place, Placed):
            return SKIPPED if place is not None else SKIPPED + 1
        if place.track.unit is not None:
            return self._build.add_track(place.track)
        key = self._tables.shapes.pid[shape], name, series
        title, unit = made[key]
        track = replace(place.track, name=title, unit=unit)
        number = 1
        while self._taken.setdefault(track, key)[1:] != key[1:]:
            number += 1  # "a" with key "b" beside "a b"
            track = replace(track, name=f"{title} ({number})")
        return self._build.add_track(track)


# Arrows: ends of flows joined to each other and bound to slices.

Index = NDArray[np.intp]

_NUMBER = re.compile(r"[\s_:#-]*\d+\Z")
_START, _STEP, _FINISH = 0, 1, 2
_STAGES = {"s": _START, "t": _STEP, "f": _FINISH}


def joined(key: NDArray[np.int64], stage: NDArray[np.int8], start: NDArray[np.int64]) -> Index:
    """For every end, the end its arrow comes from; -1 for starts, and where there is none.

    Ends of one key belong together. Every step and finish is the head of an arrow from the start
    or step before it, in time; if there is none before it, from the first start (clocks of host
    and device may differ a little). One start may have many finishes.
    """
    n = len(key)
    tail = np.full(n, -1, np.intp)
    order = np.argsort(key)
    group = np.empty(n, np.int32)
    group[order] = np.cumsum(np.append(True, key[order[1:]] != key[order[:-1]])) - 1
    count = int(group.max()) + 1 if n else 0
    starts = stage == _START
    first = np.full(count, -1, np.intp)
    first[group[starts]] = np.flatnonzero(starts)
    many = np.bincount(group[starts], minlength=count) > 1
    many[group[stage == _STEP]] = True
    simple = ~many[group] & ~starts
    tail[simple] = first[group[simple]]
    rest = np.flatnonzero(many[group])
    if len(rest):
        tail[rest] = _chained(rest, group[rest], stage[rest], start[rest])
    return tail


def _chained(rows: Index, group: I32, stage: NDArray[np.int8], start: NDArray[np.int64]) -> Index:
    """The same, for groups with steps or several starts."""
    order = np.lexsort((stage, start, group))
    group, stage = group[order], stage[order]
    n = len(order)
    new = np.append(True, group[1:] != group[:-1])
    begin = np.maximum.accumulate(np.where(new, np.arange(n), 0))
    open_ = np.where(stage != _FINISH, np.arange(n), -1)
    before = np.append(-1, np.maximum.accumulate(open_)[:-1])
    before = np.where(before >= begin, before, -1)
    of_group = np.cumsum(new) - 1
    first = np.full(int(of_group[-1]) + 1, n)
    at = np.flatnonzero(stage == _START)
    np.minimum.at(first, of_group[at], at)
    first = np.where(first < n, first, -1)[of_group]
    from_ = np.where(stage == _START, -1, np.where(before >= 0, before, first))
    tail = np.empty(n, np.intp)
    tail[order] = np.where(from_ >= 0, rows[order[from_]], -1)
    return tail


@dataclass
class Arrows:
    """Draws the arrows of a file. Ends in lanes the reader leaves out are booked as it says."""

    tables: Tables
    lanes: Lanes
    texts: Texts
    build: TraceBuilder

    def draw(self, flows: Flows, binder: Binder) -> None:
        """Join, bind and add all arrows.

        Args:
            flows: ends of lanes that concern this capture.
        """
        if not len(flows):
            return
        stage = self._stages()[flows.shape]
        tail = joined(flows.key, stage, flows.start)
        flows.key = np.empty(0, np.int64)
        head = np.flatnonzero(stage != _START)
        used = np.zeros(len(flows), bool)
        used[tail[head][tail[head] >= 0]] = True
        lonely = np.flatnonzero((stage == _START) & ~used)
        self.tables.tally.saw("flow", len(head) + len(lonely))
        left_out = self._left_out()
        head = self._book_skipped(flows, head, tail, left_out)
        lonely = self._book_skipped(flows, lonely, tail, left_out)
        whole = tail[head] >= 0
        self._lose("flow-without-end", flows, np.concatenate((lonely, head[~whole])))
        self._bind(flows, head[whole], tail[head[whole]], binder)

    def _stages(self) -> NDArray[np.int8]:
        phases = self.tables.shapes.phase
        return np.array([_STAGES.get(phase, -1) for phase in phases], np.int8)

    def _left_out(self) -> list[str]:
        """Issue code by shape, "" for those that are not left out."""
        shapes = self.tables.shapes
        codes = []
        for code, phase in enumerate(shapes.phase):
            place = self.lanes.place(code) if phase in _STAGES else None
            codes.append(place.code if isinstance(place, Skipped) else "")
        return codes

    def _book_skipped(self, flows: Flows, ends: Index, tail: Index, codes: list[str]) -> Index:
        """The arrows none of whose ends is left out."""
        if not any(codes):
            return ends
        skipped = np.array([bool(code) for code in codes])
        own = skipped[flows.shape[ends]]
        other = (tail[ends] >= 0) & skipped[flows.shape[tail[ends]]]
        for of in (flows.shape[ends[own]], flows.shape[tail[ends[other & ~own]]]):
            self._book(of, codes)
        kept: Index = ends[~own & ~other]
        return kept

    def _book(self, shape: I32, codes: list[str]) -> None:
        for code, count in zip(*np.unique(shape, return_counts=True), strict=True):
            place = self.tables.shapes.place(int(code))
            self.tables.tally.add(codes[code], place, count, "flow")

    def _lose(self, code: str, flows: Flows, ends: Index) -> None:
        self._book(flows.shape[ends], [code] * len(self.tables.shapes.phase))

    def _bind(self, flows: Flows, head: Index, tail: Index, binder: Binder) -> None:
        lane, stage = self.tables.shapes.lane[flows.shape], self._stages()[flows.shape]
        encloses = flows.encloses | (stage != _FINISH)
        row = binder.rows(lane, flows.start, encloses)
        drawn = (row[head] >= 0) & (row[tail] >= 0)
        loose = np.where(row[head] < 0, head, tail)[~drawn]
        self._lose("flow-unbound", flows, loose)
        head, tail = head[drawn], tail[drawn]
        if len(head):
            names = self._names(flows.shape[head], flows.name[head])
            back = self._backwards()[flows.shape[head]]
            tail, head = np.where(back, head, tail), np.where(back, tail, head)
            self.build.flows(src=row[tail], dst=row[head], name=names)

    def _backwards(self) -> NDArray[np.bool_]:
        """By shape: arrows that stand in the file against their direction (our own files)."""
        return np.array([c.endswith(BACKWARDS) for c in self.tables.shapes.category], bool)

    def _names(self, shape: I32, name: I32) -> I32:
        """What arrows are called: their category, else their name without its number."""
        shapes = self.tables.shapes
        ids = np.full(len(shapes.phase), -1, np.int32)
        for code in np.unique(shape).tolist():
            if shapes.category[code]:
                ids[code] = self.build.string(shapes.category[code].removesuffix(BACKWARDS))
        found = ids[shape]
        for i in np.flatnonzero(found < 0).tolist():
            text = self.texts.text(int(name[i]))
            found[i] = self.build.string(_NUMBER.sub("", text) or text)
        return found


EPOCH_NS = 2**50 * 1000
"""From here on (2005) doubles of microseconds are a quarter of one apart."""

COARSE_STAMPS = 4
"""So many stamps on the grid of doubles, and none off it, are no accident."""

_GRID = np.zeros(1000, bool)
_GRID[[200, 250, 500, 750, 800]] = True  # .25 and .75 as they are, and as shortest texts

_ASYNC_BEGINS, _ASYNC_ENDS = ("b", "S"), ("e", "F")


def assemble(
    tables: Tables,
    naming: Naming,
    classify: Classify,
    build: TraceBuilder,
    offset_ns: int,
    revise: Revise | None = None,
) -> tuple[int, int] | None:
    """Put everything into ``build`` and book the accounts; empties ``tables``.

    Args:
        offset_ns: added to every stamp.
        revise: see ``contract.Revise``.

    Returns:
        Earliest start and latest end of the slices, ns; None if there are none.
    """
    return _Assembly(tables, naming, classify, build, offset_ns, revise).run()


class _Assembly:
    def __init__(
        self,
        tables: Tables,
        naming: Naming,
        classify: Classify,
        build: TraceBuilder,
        offset_ns: int,
        revise: Revise | None,
    ) -> None:
        self._tables, self._naming, self._build = tables, naming, build
        self._lanes = Lanes(tables, naming, classify, build)
        self._texts = Texts(tables.names.texts(), build)
        self._flows = self._concerned_flows()
        touched = np.zeros(len(tables.shapes.lanes), bool)
        touched[tables.shapes.lane[self._flows.shape]] = True
        self._placer = Placer(tables, self._lanes, self._texts, build, offset_ns, touched, revise)

    def run(self) -> tuple[int, int] | None:
        tables = self._tables
        self._look_at_grid()
        joiner = Joiner(tables, self._build, self._last_ns)
        marks = self._pairs(joiner)
        asyncs, points = self._asyncs(joiner)
        for rows in tables.rows.drain():
            self._placer.put(rows)
        for rows in marks + asyncs:
            self._placer.put(rows)
        for rows in points:
            self._placer.put(rows, instants=True)
        if tables.samples:
            counters = Counters(tables, self._lanes, self._texts, self._build)
            counters.put(tables.samples.whole(), self._placer)
        self._draw()
        self._book()
        return self._placer.span

    def _concerned_flows(self) -> Flows:
        """All ends of arrows, without those of lanes that belong to another capture."""
        flows = self._tables.flows.whole() if self._tables.flows else Flows.empty()
        present = np.flatnonzero(np.bincount(flows.shape)).tolist()
        out = [code for code in present if self._lanes.place(code) is None]
        return flows.take(~np.isin(flows.shape, out)) if out else flows

    def _pairs(self, joiner: Joiner) -> list[Rows]:
        """Slices of B and E."""
        if not self._tables.marks:
            return []
        marks, shapes = self._tables.marks.whole(), self._tables.shapes
        self._tables.marks.append(marks)  # the joiner may ask for the last stamps
        slices = joiner.slices(marks, shapes.lane[marks.shape], shapes.kind[marks.shape] == BEGIN)
        self._tables.marks.whole()
        return [slices]

    def _asyncs(self, joiner: Joiner) -> tuple[list[Rows], list[Rows]]:
        """Slices of b and e (S and F), and instants of the steps between."""
        if not self._tables.asyncs:
            return [], []
        asyncs = self._tables.asyncs.whole()
        self._tables.asyncs.append(asyncs)
        opens, closes = (self._of_phases(asyncs, p) for p in (_ASYNC_BEGINS, _ASYNC_ENDS))
        rows = Rows(
            asyncs.shape, asyncs.name, asyncs.start, np.zeros(len(asyncs), np.int64),
            asyncs.args, asyncs.length,
        )  # fmt: skip
        ends = opens | closes
        points = [rows.take(~ends)] if not ends.all() else []
        slices = (
            [joiner.slices(rows.take(ends), asyncs.key[ends], opens[ends])] if ends.any() else []
        )
        self._tables.asyncs.whole()
        return slices, points

    def _of_phases(self, asyncs: Asyncs, phases: Sequence[str]) -> NDArray[np.bool_]:
        wanted = np.array([phase in phases for phase in self._tables.shapes.phase], bool)
        found: NDArray[np.bool_] = wanted[asyncs.shape]
        return found

    def _last_ns(self) -> I64:
        """The last stamp of every lane."""
        last = np.full(len(self._tables.shapes.lanes), np.iinfo(np.int64).min)
        lane = self._tables.shapes.lane
        for batch in (*self._tables.rows, *self._tables.marks):
            np.maximum.at(last, lane[batch.shape], batch.start + batch.dur)
        for asyncs in self._tables.asyncs:
            np.maximum.at(last, lane[asyncs.shape], asyncs.start)
        return last

    def _draw(self) -> None:
        flows, self._flows = self._flows, Flows.empty()
        kept = self._placer.shift(flows.start, np.zeros(len(flows), np.int64))
        if not kept.all():
            self._tables.tally.saw("flow", int((~kept).sum()))
            self._tables.tally.add("bad-time", count=int((~kept).sum()), kind="flow")
            flows = flows.take(kept)
        binder = Binder(Anchors.joined(self._placer.anchors))
        self._placer.anchors = []
        Arrows(self._tables, self._lanes, self._texts, self._build).draw(flows, binder)

    def _look_at_grid(self) -> None:
        """Book a doubt if all stamps lie where doubles of microseconds since 1970 would."""
        rows = coarse = 0
        for batch in (*self._tables.rows, *self._tables.marks):
            fraction = batch.start[batch.start >= EPOCH_NS] % 1000
            fraction_ = fraction[fraction > 0]
            if not _GRID[fraction_].all():
                return
            rows, coarse = rows + len(fraction), coarse + len(fraction_)
        if coarse >= COARSE_STAMPS:
            self._tables.tally.add("time-rounded", count=rows)

    def _book(self) -> None:
        tables, tally = self._tables, self._tables.tally
        tally.add("duration-rounded", count=tables.rounded_durations)
        tally.add("stamp-rounded", count=tables.rounded_stamps)
        tally.add("metadata-unused", count=self._naming.unused)
        tally.book(self._build)
