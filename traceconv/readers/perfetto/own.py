"""Files of ours: their ranks as they were written.

What Perfetto's messages have no place for is in one packet per rank
(``schemas/proto/traceconv_rank.proto``): identity, tracks, hints, notes and issues as JSON; graphs
and steps of rows, names and directions of arrows as packed columns. Further packets have arguments
that annotations do not say all of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.hints import HintsBuilder
from traceconv.core.model import I32, I64, Capture, Kind, Layer, OpClass, Track
from traceconv.protobuf.message import (
    last_values,
    message,
    number,
    signed,
    text,
    whole_fields,
)
from traceconv.protobuf.message_columns import packed
from traceconv.protobuf.perfetto_schema import (
    GRAPH_ADDED,
    INSTANT,
    STEP_ADDED,
    OwnLane,
    OwnRank,
    TracePacket,
)
from traceconv.readers.perfetto.events import take_events
from traceconv.readers.perfetto.foreign_file import resolved
from traceconv.readers.perfetto.marks import Events, Flows, Marks
from traceconv.readers.perfetto.others import Unread
from traceconv.readers.perfetto.own_files import Own, add_issues, document, windows_of
from traceconv.readers.perfetto.packets import Packets, packets
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


@dataclass
class Said:
    """Takes our own packets of a rank.

    Attributes:
        about:   identity, tracks, windows, hints, notes and issues, as JSON values.
        lanes:   of tracks by id, where they are not in ``about``.
        rows:    how many event rows the rank has; -1 if nothing was said.
        columns: parts of packed fields, by number.
        odd:     arguments of rows, as they were.
        arrow_names: of arrows.
    """

    about: dict[str, Any] = field(default_factory=dict)
    lanes: dict[int, Mapping[int, int | bytes]] = field(default_factory=dict)
    rows: int = -1
    columns: dict[int, list[bytes]] = field(default_factory=dict)
    odd: list[bytes] = field(default_factory=list)
    arrow_names: list[str] = field(default_factory=list)

    def take(self, data: bytes) -> None:
        """Add one packet."""
        for n, _, value in whole_fields(data):
            if n == OwnRank.ABOUT:
                self.about = document(_sound(text(value)))
            elif n == OwnRank.LANES:
                of = last_values(value)
                self.lanes[number(of.get(OwnLane.UUID, 0))] = of
            elif n == OwnRank.ROWS:
                self.rows = number(value)
            elif n == OwnRank.ARROW_NAMES:
                self.arrow_names.append(_sound(text(value)))
            elif n == OwnRank.ODD_ARGUMENTS:
                self.odd.append(message(value))
            elif n in _PACKED:
                self.columns.setdefault(n, []).append(message(value))

    def table(self, field_number: int, width: int) -> I64:
        """A packed field as rows of ``width`` numbers; an incomplete row at its end is dropped."""
        raw = b"".join(self.columns.get(field_number, []))
        numbers = packed(raw, 0, len(raw)).view(np.int64)
        return numbers[: len(numbers) // width * width].reshape(-1, width)

    def distances(self, field_number: int) -> I64:
        """A packed field of distances as places."""
        return np.cumsum(self.table(field_number, 1)[:, 0])

    @property
    def numbered(self) -> dict[int, int]:
        """Rows whose arguments got numbers, and which."""
        rows, which = self.table(OwnRank.NUMBERED, 2).T
        return dict(zip(np.cumsum(rows).tolist(), which.tolist(), strict=True))


_PACKED = frozenset(
    (OwnRank.ARROW_RUNS, OwnRank.ARROWS_TURNED, OwnRank.PLACES, OwnRank.NUMBERED, OwnRank.ODD_ROWS)
)


def _sound(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# -- reading ---------------------------------------------------------------------------------------


def read(capture: Capture, build: TraceBuilder, own: Own) -> None:
    """Put a rank into ``build``, part by part."""
    about: dict[str, Any] = {}
    for name in capture.files:
        build.file = capture.source.title(name)
        content = _Content(build, own)
        for some in packets(capture.source, name, build):
            content.take(some)
        about = content.put() or about
    for name, _ in capture.beside:
        build.file, unread = capture.source.title(name), Unread()
        for some in packets(capture.source, name, build):
            unread.take(some)
        unread.book(build)
    _identify(build, own, about)


def _identify(build: TraceBuilder, own: Own, about: Mapping[str, Any]) -> None:
    """Take over the facts of the rank as a whole."""
    for start, end in windows_of(about.get("windows")):
        build.window(own.base_ns + start, own.base_ns + end)
    numbers = {
        key: value
        for key in ("device", "pid", "world_size")
        if type(value := about.get(key)) is int and 0 <= value <= INT64_MAX
    }
    host = about.get("host")
    build.capture = replace(build.capture, host=host if isinstance(host, str) else "")
    build.capture = replace(
        build.capture,
        device=numbers.get("device", -1),
        pid=numbers.get("pid", -1),
        world_size=numbers.get("world_size", -1),
    )
    notes = about.get("notes")
    build.notes.update(notes if isinstance(notes, dict) else {})
    hints = about.get("hints")
    _take_hints(build.hints, hints if isinstance(hints, dict) else {})
    add_issues(build.issues, about.get("issues"))


def _take_hints(into: HintsBuilder, stated: Mapping[str, Any]) -> None:
    """Hints of the kind they have to be; others are passed over."""
    for name in HintsBuilder.__struct_fields__:
        value: Any = stated.get(name)
        known = getattr(into, name)
        if type(value) is not type(known) or not _is_hint(name, value):
            continue
        if name in ("device_memory_bytes", "device_names"):
            value = {int(n): said for n, said in value.items() if re.fullmatch("[0-9]{1,18}", n)}
        setattr(into, name, value)


def _is_hint(name: str, value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    if name == "device_memory_bytes":
        return all(type(size) is int and 0 < size <= INT64_MAX for size in value.values())
    if name in ("phase_names", "device_names"):
        return all(isinstance(one, str) for one in value.values())
    if name == "cpu_percent":
        return all(
            isinstance(one, list) and all(isinstance(n, int | float) for n in one)
            for one in value.values()
        )
    return True


class _Content:
    """The packets of one rank in one file."""

    def __init__(self, build: TraceBuilder, own: Own) -> None:
        self._build, self._own = build, own
        self._sequences = Sequences(build)
        self._events = Events(build, self._sequences)
        self._said = Said()
        self._sequences.own = self._said.take

    def take(self, some: Packets) -> None:
        """Add what is the rank's of some packets."""
        of = some.columns
        sequence = of.integer(TracePacket.TRUSTED_PACKET_SEQUENCE_ID)
        mine = (sequence == self._own.rank + 1) | of.has(TracePacket.TRACK_DESCRIPTOR)
        if not mine.all():
            some = some.take(mine)
        if len(some):
            for timed in self._sequences.timed(some):
                take_events(self._events, timed)

    def put(self) -> dict[str, Any]:
        """Add all rows; returns the facts of the rank."""
        build = self._build
        marks = self._events.marks()
        categories = resolved(self._events, marks, self._sequences, build)
        made = slices(marks)
        self._book(made, marks)
        ops = [*(_OPS.get(category, OpClass.OTHER) for category in categories), OpClass.OTHER]
        op = np.array(ops, np.int8)[marks.category[made.mark]]  # no category, -1, is the last one
        stated = self._tracks()
        # slices on the track of a counter get a track of their own
        known = [
            msgspec.structs.replace(t, layer=Layer.OTHER, unit=None) if t.is_counter else t
            for t in stated
        ]
        there = np.unique(marks.lane[made.mark]).tolist()
        numbers = np.zeros(len(known), np.int32)
        numbers[there] = [build.add_track(known[i]) for i in there]
        graph, step, args = self._columns(marks, made)
        if any(t.layer is Layer.DEVICE and t.device_kind == "NPU" for t in known):
            build.hints.vendor = build.hints.vendor or "ascend"
        start = marks.time[made.mark] + self._own.base_ns
        instants = marks.kind[made.mark] == INSTANT
        name = marks.name[made.mark]
        first = build.extend(
            track=numbers[marks.lane[made.mark]],
            start_ns=start,
            dur_ns=made.dur,
            name=np.where(name < 0, build.string(""), name).astype(np.int32),
            kind=np.where(instants, Kind.INSTANT, Kind.SLICE).astype(np.int8),
            op=op, graph=graph, step=step, args=args,
        )  # fmt: skip
        self._arrows(marks, made, first)
        self._samples(stated)
        return self._said.about

    def _book(self, made: Slices, marks: Marks) -> None:
        build = self._build
        instants = int((marks.kind[made.mark] == INSTANT).sum())
        build.seen("slice", len(made.mark) - instants)
        build.seen("instant", instants)
        build.skip("missing-name", "", int((marks.name[made.mark] < 0).sum()))
        build.skip("end-without-begin", "", len(made.alone))
        build.skip("unfinished-slice", "", int(made.open.sum()))

    def _tracks(self) -> list[Track]:
        """The track of every lane."""
        stated = self._said.about.get("tracks")
        by_id = stated if isinstance(stated, dict) else {}
        found = []
        for key in self._events.lanes.keys:
            uuid = int(key[2]) if key[0] == "track" else 0
            known = self._sequences.descriptors.known.get((0, uuid), Described())
            one = by_id.get(str(uuid))
            if one is None and uuid in self._said.lanes:
                one = self._lane(uuid, known)
            found.append(_track(one, known))
        return found

    def _lane(self, uuid: int, known: Described) -> dict[str, Any]:
        """A track as outputs had it before tracks were JSON: its groups tell what it does not."""
        of = self._said.lanes[uuid]
        around = [
            one.name or ""
            for one in list(self._sequences.descriptors.ancestors(0, uuid))[1:]
            if one.pid is None
        ]
        heading, group = [*around[::-1][1:3], "", ""][:2]  # the first keeps the order
        name = known.name or ""
        if OwnLane.NAME in of:
            stated = (OwnLane.NAME, OwnLane.GROUP, OwnLane.TITLE)
            name, group, heading = (_sound(text(of.get(n, b""))) for n in stated)
        return {
            **document(_sound(text(of.get(OwnLane.IDENTITY, b"")))),
            "layer": text(of.get(OwnLane.LAYER, b"")),
            "name": name,
            "group": group,
            "title": "" if OwnLane.UNTITLED in of else heading,
            "sort": signed(of.get(OwnLane.SORT, 0)),
            "lane": number(of.get(OwnLane.LANE, 0)),
            "unit": _sound(text(of.get(OwnLane.UNIT, b""))) if known.counter else None,
        }

    def _columns(self, marks: Marks, made: Slices) -> tuple[I32, I32, I32]:
        """Graph, step and arguments of rows."""
        n, said = len(made.mark), self._said
        graph, step = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        args = marks.args[made.mark].copy()
        codes = {issue.code for issue in self._build.issues}
        cut_off = n < said.rows and "truncated" in codes and not _DAMAGE & codes
        if said.rows != n and not cut_off:
            self._build.skip("details-lost", "", n)
            return graph, step, args
        places = said.table(OwnRank.PLACES, 3)
        lengths = places[:, 0]
        if len(lengths) and (lengths >= 0).all() and n:
            at = np.searchsorted(np.cumsum(lengths), np.arange(n), "right")
            of = places[np.minimum(at, len(lengths) - 1), 1:]
            graph, step = np.minimum(of, 2**31 - 1).astype(np.int32).T - np.int32(1)
        self._without_numbers(args, said.numbered, graph, step)
        odd = said.distances(OwnRank.ODD_ROWS).tolist()
        for row, raw in zip(odd, said.odd, strict=False):
            if 0 <= row < n:
                args[row] = self._build.args(raw)
        return graph, step, args

    def _without_numbers(self, args: I32, rows: Mapping[int, int], graph: I32, step: I32) -> None:
        """Take what was added to arguments out of them."""
        at = np.array([row for row in rows if 0 <= row < len(args)], np.int64)
        raws = self._build.args_of(args[at]) if len(at) else []
        for row, raw in zip(at.tolist(), raws, strict=True):
            added = []
            if rows[row] & STEP_ADDED and step[row] >= 0:
                added.append(b'"step":%d' % step[row])
            if rows[row] & GRAPH_ADDED and graph[row] >= 0:
                added.append(b'"graph":%d' % graph[row])
            tail = b",".join(added) + b"}"
            if len(tail) > 1 and raw.endswith(tail):
                rest = raw[: -len(tail)].rstrip(b",")
                args[row] = self._build.args(rest + b"}" if len(rest) > 1 else None)

    # -- arrows and samples ------------------------------------------------------------------------

    def _arrows(self, marks: Marks, made: Slices, first: int) -> None:
        """Arrows, from the ids of both ends."""
        build, said = self._build, self._said
        row = np.full(len(marks), -1, np.int64)
        row[made.mark] = np.arange(len(made.mark))
        pairs, ids, single = _pairs(self._events.flows())
        ends = row[pairs] if len(pairs) else pairs
        there = (ends >= 0).all(axis=1)
        single += 2 * int((~there).sum())
        ends, ids = ends[there], ids[there] & ((1 << _RANK_BITS) - 1)
        order = np.argsort(ids, kind="stable")
        ends, which = ends[order], ids[order] - 1
        build.seen("flow", len(ends) + single)
        build.skip("flow-without-end", "", single, "flow")
        turned = np.isin(which, said.distances(OwnRank.ARROWS_TURNED))
        src, dst = np.where(turned, ends.T[::-1], ends.T)
        build.flows(src=src + first, dst=dst + first, name=self._arrow_names(which))

    def _arrow_names(self, which: I64) -> I32:
        build, said = self._build, self._said
        plain = build.string("flow") if len(which) else 0
        name = np.full(len(which), plain, np.int32)
        runs = said.table(OwnRank.ARROW_RUNS, 2)
        runs = runs[(runs >= 0).all(axis=1)]
        if not len(runs) or not len(which):
            return name
        ends = np.cumsum(runs[:, 0])
        at = np.searchsorted(ends, which, "right")
        known = at < len(runs)
        names = [build.string(text_) for text_ in said.arrow_names]
        chosen = runs[np.minimum(at, len(runs) - 1), 1]
        known &= chosen < len(names)
        name[known] = np.array(names or [0], np.int32)[chosen[known]]
        return name

    def _samples(self, tracks: Sequence[Track]) -> None:
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


def _pairs(flows: Flows) -> tuple[I64, NDArray[np.int64], int]:
    """Marks of both ends of flows (n, 2), their ids, and the count of unmatched ends."""
    order = np.lexsort((flows.closes, flows.flow))
    flow, closes, mark = flows.flow[order], flows.closes[order], flows.mark[order]
    both = (flow[1:] == flow[:-1]) & ~closes[:-1] & closes[1:]
    at = np.flatnonzero(both)
    pairs = np.stack((mark[at], mark[at + 1]), axis=1)
    return pairs, flow[at].view(np.int64), len(flow) - 2 * len(at)


def _track(stated: Any, known: Described) -> Track:
    """A track as a file states it; where that is damaged, one that only has its name.

    Args:
        known: its descriptor.
    """
    unit = None if known.counter is None else ""
    try:
        track = msgspec.convert(stated, Track)
    except msgspec.ValidationError:
        return Track(Layer.OTHER, known.name or "", unit=unit)
    if abs(track.sort) > INT64_MAX or not 0 <= track.lane < 2**31:
        return Track(Layer.OTHER, track.name, unit=unit)
    if track.is_counter is not (known.counter is not None):
        return msgspec.structs.replace(track, unit=unit)
    return track
