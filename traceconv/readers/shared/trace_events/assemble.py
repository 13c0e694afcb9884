"""Puts the tables of a whole file into the builder: rows, samples and flows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import Raw
from msgspec.structs import replace
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, Track
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.pairing import Marks, nested_by_name
from traceconv.readers.shared.trace_events.arrows import Arrows, Binder
from traceconv.readers.shared.trace_events.contract import Classify, Placed, Revise, Skipped
from traceconv.readers.shared.trace_events.intake import Series
from traceconv.readers.shared.trace_events.placing import (
    SKIPPED,
    Anchors,
    Lanes,
    Naming,
    Placer,
    Texts,
)
from traceconv.readers.shared.trace_events.tables import BEGIN, Flows, Rows, Samples, Tables
from traceconv.scratch.memory import give_back

_UNIT_SUFFIX = lazy_regex(r"(.*)\(([^()]{1,16})\)", re.DOTALL)
_UNIT = lazy_regex(r"%|[KMG]i?B(?:/s)?|B/s|bytes|[KMG]?Hz|m[WV]|[num]s")

Kinds = list[tuple[int, int, int]]
"""Different (shape, name, series) of samples."""


def titles(name: str, series: Sequence[Series]) -> list[tuple[str, str]]:
    """Name and unit of the tracks of all series that one counter name has in a lane.

    The key says no more than the unit ("KB"), or repeats the end of the name
    ("HBM 0/Read", "Read(MB/s)"): then the name alone is the title.
    """
    several = len({key for key, _ in series}) > 1
    made_titles = [_title(name, key, apart, several) for key, apart in series]
    if len(set(made_titles)) < len(made_titles):  # keys that differ in spelling only
        return [
            (" ".join(filter(None, (name, *pair))), made_titles[i][1])
            for i, pair in enumerate(series)
        ]
    return made_titles


def _title(name: str, key: str, apart: str, several: bool) -> tuple[str, str]:
    base, unit = key, ""
    match = _UNIT_SUFFIX.fullmatch(key)
    if match:
        base, unit = match[1].rstrip(), match[2]
    elif _UNIT.fullmatch(key):
        base, unit = (key if several else ""), key
    elif key == "value" and not several:
        base = ""
    if not several and name.lower().endswith(base.lower()):
        base = ""
    return " ".join(filter(None, (name, base, apart))), unit


class Counters:
    """Puts samples on tracks, one per series.

    Series of one name belong together if they are of one process (the thread does not matter).
    """

    def __init__(self, tables: Tables, lanes: Lanes, texts: Texts, build: TraceBuilder) -> None:
        self._tables, self._lanes, self._texts, self._build = tables, lanes, texts, build
        self._series = list(tables.series)
        self._taken: dict[Track, tuple[str, int, int]] = {}

    def put(self, samples: Samples, placer: Placer) -> None:
        """Add all samples."""
        is_usable = placer.shift(samples.start, np.zeros(len(samples), np.int64))
        if not is_usable.all():
            self._tables.tally.add("bad-time", count=int((~is_usable).sum()), kind="counter")
            samples = samples.take(is_usable)
        if not len(samples):
            return
        lanes = samples.shape.astype(np.int64) * (len(self._tables.names) + 1) + samples.name
        _, lane = np.unique(lanes, return_inverse=True)
        keys = lane * len(self._series) + samples.series
        _, first_rows, kind_of_row = np.unique(keys, return_index=True, return_inverse=True)
        columns = (c[first_rows].tolist() for c in (samples.shape, samples.name, samples.series))
        kinds: Kinds = list(zip(*columns, strict=True))
        tracks = self._tracks(kinds)
        counts = np.bincount(kind_of_row, minlength=len(kinds)).tolist()
        for (shape, _, _), track, count in zip(kinds, tracks.tolist(), counts, strict=True):
            if track < 0:
                placed = self._lanes.place(shape)
                if isinstance(placed, Skipped):
                    where = self._tables.shapes.place(shape)
                    self._tables.tally.add(placed.code, where, count, "counter")
                else:
                    self._tables.tally.saw("counter", -count)
        track = tracks[kind_of_row]
        is_usable = track >= 0
        self._tables.tally.add("missing-name", count=int((samples.name[is_usable] < 0).sum()))
        self._build.counters(
            track=track[is_usable],
            start_ns=samples.start[is_usable],
            value=samples.value[is_usable],
        )

    def _tracks(self, kinds: Kinds) -> I64:
        """Number of the track per kind, -1 or -2 where it has none."""
        groups: defaultdict[tuple[str, int], dict[int, None]] = defaultdict(dict)
        for shape, name, series in kinds:
            groups[self._tables.shapes.pid[shape], name][series] = None
        title_of_kind = {}
        for (pid, name), members in groups.items():
            pairs = titles(self._texts.text(name), [self._series[m] for m in members])
            title_of_kind.update(
                {(pid, name, m): title for m, title in zip(members, pairs, strict=True)}
            )
        return np.array([self._track(*kind, title_of_kind) for kind in kinds], np.int64)

    def _track(
        self,
        shape: int,
        name: int,
        series: int,
        title_of_kind: dict[tuple[str, int, int], tuple[str, str]],
    ) -> int:
        placed = self._lanes.place(shape)
        if not isinstance(placed, Placed):
            return SKIPPED if placed is not None else SKIPPED + 1
        if placed.track.unit is not None:
            return self._build.add_track(placed.track)
        key = self._tables.shapes.pid[shape], name, series
        title, unit = title_of_kind[key]
        track = replace(placed.track, name=title, unit=unit)
        number = 1
        while self._taken.setdefault(track, key)[1:] != key[1:]:
            number += 1  # "a" with key "b" beside "a b"
            track = replace(track, name=f"{title} ({number})")
        return self._build.add_track(track)


EPOCH_NS = 2**50 * 1000
"""After this time (2005) doubles of microseconds are a quarter of a microsecond apart."""

COARSE_STAMPS = 4
"""If at least this many stamps are on the grid of doubles, and none off it, stamps are rounded."""

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
        Earliest start and latest end of the slices, ns; None without slices.
    """
    shapes, tally = tables.shapes, tables.tally
    lanes, texts = Lanes(tables, naming, classify, build), Texts(tables.names.texts(), build)
    flows = tables.flows.whole() if tables.flows else Flows.of([])
    present = np.flatnonzero(np.bincount(flows.shape)).tolist()
    foreign = [code for code in present if lanes.place(code) is None]  # another capture's
    flows = flows.take(~np.isin(flows.shape, foreign)) if foreign else flows
    touched = np.zeros(len(shapes.lanes), bool)
    touched[shapes.lane[flows.shape]] = True
    placer = Placer(tables, lanes, texts, build, offset_ns, touched, revise)
    _check_grid(tables)
    slices, points = _joined(tables, build)
    for rows in (*tables.rows.drain(), *slices):
        placer.put(rows)
    for rows in points:
        placer.put(rows, instants=True)
    if tables.samples:
        Counters(tables, lanes, texts, build).put(tables.samples.whole(), placer)
    give_back()
    is_usable = placer.shift(flows.start, np.zeros(len(flows), np.int64))
    if lost := int((~is_usable).sum()):
        tally.saw("flow", lost)
        tally.add("bad-time", count=lost, kind="flow")
        flows = flows.take(is_usable)
    binder = Binder(*map(Anchors.joined, (placer.slices, placer.points)))
    Arrows(tables, lanes, texts, build).draw(flows, binder)
    tally.add("duration-rounded", count=tables.rounded_durations)
    tally.add("stamp-rounded", count=tables.rounded_stamps)
    tally.add("metadata-unused", count=naming.unused)
    tally.book(build)
    return placer.span


def _check_grid(tables: Tables) -> None:
    """Book a doubt if all stamps are where doubles of microseconds since 1970 would be."""
    rows = coarse = 0
    for batch in (*tables.rows, *tables.marks):
        fraction = batch.start[batch.start >= EPOCH_NS] % 1000
        fraction_ = fraction[fraction > 0]
        if not _GRID[fraction_].all():
            return
        rows, coarse = rows + len(fraction), coarse + len(fraction_)
    if coarse >= COARSE_STAMPS:
        tables.tally.add("time-rounded", count=rows)


def _joined(tables: Tables, build: TraceBuilder) -> tuple[list[Rows], list[Rows]]:
    """Slices of B and E, and of b and e (S and F); and instants of the steps between the latter."""
    if not (tables.marks or tables.asyncs):
        return [], []
    shapes, slices, points = tables.shapes, list[Rows](), list[Rows]()
    last_stamps = np.full(len(shapes.lanes), np.iinfo(np.int64).min)  # stamp of every lane
    for batch in (*tables.rows, *tables.marks):
        np.maximum.at(last_stamps, shapes.lane[batch.shape], batch.start + batch.dur)
    for batch in tables.asyncs:
        np.maximum.at(last_stamps, shapes.lane[batch.shape], batch.start)
    joiner = Joiner(tables, build, last_stamps)
    if tables.marks:
        marks = tables.marks.whole()
        slices.append(
            joiner.slices(marks, shapes.lane[marks.shape], shapes.kind[marks.shape] == BEGIN)
        )
    if tables.asyncs:
        asyncs = tables.asyncs.whole()
        opens, closes = (
            np.array([phase in phases for phase in shapes.phase], bool)[asyncs.shape]
            for phases in (_ASYNC_BEGINS, _ASYNC_ENDS)
        )
        none = np.zeros(len(asyncs), np.int64)
        rows = Rows(asyncs.shape, asyncs.name, asyncs.start, none, asyncs.args, asyncs.length)
        ends = opens | closes
        if not ends.all():
            points.append(rows.take(~ends))
        if ends.any():
            slices.append(joiner.slices(rows.take(ends), asyncs.key[ends], opens[ends]))
    return slices, points


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Joiner:
    """Makes slices of begins and ends: B/E per thread, b/e (S/F) per asynchronous id.

    In a lane an end closes the newest open begin whose name and category agree with its own; a name
    or category that is missing agrees with any.

    Args:
        last_ns: last stamp per lane code of a shape.
    """

    def __init__(self, tables: Tables, build: TraceBuilder, last_ns: I64) -> None:
        self._tables, self._build, self._last_ns = tables, build, last_ns

    def slices(self, rows: Rows, lane: I32, opens: NDArray[np.bool_]) -> Rows:
        """The slices of begins and ends; the others are counted as skipped.

        Args:
            lane: what each row is paired within.
        """
        shapes = self._tables.shapes
        category_codes: dict[str, int] = {"": -1}
        codes = [category_codes.setdefault(text, len(category_codes)) for text in shapes.category]
        category = np.array(codes, np.int32)[rows.shape]
        name = np.where(rows.name == self._tables.names.get("", -1), np.int32(-1), rows.name)
        begin, end = nested_by_name(Marks(lane, rows.start, name, category, opens))
        for code in rows.shape[end[begin < 0]].tolist():
            self._tables.tally.add("end-without-begin", shapes.place(code))
        begin, end = begin[begin >= 0], end[begin >= 0]
        in_order = np.argsort(begin)
        begin, end = begin[in_order], end[in_order]
        slices, closed = rows.take(begin), end >= 0
        slices.dur = np.where(closed, rows.start[end] - slices.start, 0)
        self._close(slices, ~closed)
        # give slices the arguments of their ends too
        has_end_args = (end >= 0) & (rows.length[end] > 0)
        alone = has_end_args & (slices.length == 0)
        for i in np.flatnonzero(has_end_args & ~alone).tolist():
            self._add_args(slices, i, self._members(rows, int(end[i])))
        slices.args[alone], slices.length[alone] = rows.args[end[alone]], rows.length[end[alone]]
        return slices

    def _close(self, slices: Rows, unfinished: NDArray[np.bool_]) -> None:
        """End what was never ended at the last stamp of its lane."""
        if not unfinished.any():
            return
        shapes = self._tables.shapes
        lane_end = self._last_ns[shapes.lane[slices.shape[unfinished]]]
        slices.dur[unfinished] = np.maximum(lane_end - slices.start[unfinished], 0)
        for i in np.flatnonzero(unfinished).tolist():
            self._tables.tally.add("unfinished-slice", shapes.place(int(slices.shape[i])))
            self._add_args(slices, i, {"unfinished": Raw(b"true")})

    def _add_args(self, slices: Rows, i: int, members: dict[str, Raw]) -> None:
        raw = msgspec.json.encode({**self._members(slices, i), **members})
        slices.args[i], slices.length[i] = self._build.spill(raw), len(raw)

    def _members(self, rows: Rows, i: int) -> dict[str, Raw]:
        """The members of a row's arguments, their values as they are."""
        if not rows.length[i]:
            return {}
        return _decode_members(self._build.stored(int(rows.args[i]), int(rows.length[i])))
