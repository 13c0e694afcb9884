"""Files of ours: what they say of themselves, and their ranks as they were.

A file names its ranks and the base of its times in the attributes of the trace. What the format has
no place for is in packets of our own (``schemas/proto/traceconv_rank.proto``). Files of older
versions have none: their layers are told by their headings, the steps of step rows by arguments.
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
from traceconv.core.model import I8, I32, I64, TITLES, Capture, Kind, Layer, OpClass, Track
from traceconv.core.ordering import distinct, factored
from traceconv.core.patterns import lazy_regex
from traceconv.protobuf.message import (
    Field,
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
from traceconv.readers.perfetto.tracks import BY_KEY, Described, Descriptors, Key
from traceconv.readers.shared.collective_names import LIBRARIES
from traceconv.readers.shared.gpu_kernels import step_number

_RANK_BITS = 40
"""Ids of arrows have the rank above so many bits."""

_MODEL = lazy_regex(rb'"[Mm]odel [Ii]d":(\d{1,9})[,}]')
"""The graph of a task of an NPU, in its arguments."""

_OPS = {op.name.lower(): op for op in OpClass}


# -- what a file says of a rank --------------------------------------------------------------------


@dataclass
class Said:
    """Takes our own packets.

    Attributes:
        about:   identity, windows, hints, notes and issues, as JSON values.
        lanes:   by track id.
        arrow_names: of arrows.
        arrow_runs: int64, in pairs: how many arrows, and which name.
        turned:  numbers of the arrows whose target begins first, from 0.
        graph, step: of rows, where they are known: (first row, values).
        numbered: rows whose arguments got numbers, and which.
        odd:     arguments of rows, as they were.
        lost:    rows in blocks of which something is missing.
    """

    events: Events
    about: dict[str, Any] = field(default_factory=dict)
    lanes: dict[int, Mapping[int, int | bytes]] = field(default_factory=dict)
    arrow_names: list[str] = field(default_factory=list)
    arrow_runs: list[I64] = field(default_factory=list)
    turned: list[I64] = field(default_factory=list)
    places: list[tuple[int, I32, I32]] = field(default_factory=list)
    numbered: dict[int, int] = field(default_factory=dict)
    odd: dict[int, bytes] = field(default_factory=dict)
    lost: int = 0
    known: bool = False
    _rows: int = 0
    _begun: int = 0
    _odd: int = 0
    _arrow: int = 0

    def take(self, data: bytes) -> None:
        """Add one packet; the events before it are there."""
        self.known = True
        found = whole_fields(data)
        last = {n: v for n, _, v in found}
        if OwnRank.ABOUT in last:
            self.about = document(text(last[OwnRank.ABOUT]))
        for value in (v for n, _, v in found if n == OwnRank.LANES):
            of = last_values(value)
            self.lanes[number(of.get(OwnLane.UUID, 0))] = of
        names = [text(v) for n, _, v in found if n == OwnRank.ARROW_NAMES]
        self.arrow_names += [_sound(name) for name in names]
        runs = _numbers(last, OwnRank.ARROW_RUNS)
        self.arrow_runs.append(runs[: len(runs) // 2 * 2].reshape(-1, 2))
        self._turn(_numbers(last, OwnRank.ARROWS_TURNED))
        pairs = _numbers(last, OwnRank.NUMBERED)
        pairs = pairs[: len(pairs) // 2 * 2].reshape(-1, 2)
        self.numbered.update(
            zip(np.cumsum(pairs[:, 0]).tolist(), pairs[:, 1].tolist(), strict=True)
        )
        if OwnRank.ROWS in last:
            self._block(found, last)

    def _turn(self, gaps: I64) -> None:
        if len(gaps):
            turned = np.cumsum(gaps) + self._arrow
            self._arrow = int(turned[-1])
            self.turned.append(turned)

    def _block(self, found: list[Field], last: Mapping[int, int | bytes]) -> None:
        """What is said of the rows since the last such packet."""
        rows, begun = number(last[OwnRank.ROWS]), self.events.begun
        said, there = rows - self._rows, begun - self._begun
        first = self._begun  # where these rows are in what was read
        shift = first - self._rows
        self._rows, self._begun = rows, begun
        gaps = _numbers(last, OwnRank.ODD_ROWS)
        odd = np.cumsum(gaps) + self._odd
        self._odd = int(odd[-1]) if len(odd) else self._odd
        if said != there:
            self.lost += there
            return
        runs = _numbers(last, OwnRank.PLACES)
        runs = runs[: len(runs) // 3 * 3].reshape(-1, 3)
        if len(runs) and (runs[:, 0] >= 0).all() and int(runs[:, 0].sum()) <= said:
            # a block ends where this packet is; what is before it is of no graph and no step
            at = first + said - int(runs[:, 0].sum())
            number_of = np.minimum(runs[:, 1:], 2**31 - 1).astype(np.int32) - np.int32(1)
            graph, step = (np.repeat(number_of[:, i], runs[:, 0]) for i in (0, 1))
            self.places.append((at, graph, step))
        raws = [message(v) for n, _, v in found if n == OwnRank.ODD_ARGUMENTS]
        self.odd.update(zip((odd + shift).tolist(), raws, strict=False))


def _numbers(last: Mapping[int, int | bytes], field_number: int) -> I64:
    raw = message(last.get(field_number, b""))
    return packed(raw, 0, len(raw)).view(np.int64)


def _sound(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# -- reading ---------------------------------------------------------------------------------------


def read(capture: Capture, build: TraceBuilder, own: Own) -> None:
    """Put a rank into ``build``, part by part."""
    about: dict[str, Any] = {}
    before = _Before()
    for name in capture.files:
        build.file = capture.source.title(name)
        content = _Content(build, own, before)
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
    """What is known of the rank as a whole."""
    for start, end in windows_of(about.get("windows")) or own.windows:
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


@dataclass
class _Before:
    """What the parts before one have, where a file of an older version does not say it again.

    Attributes:
        tracks:     by all but their order, which begins anew in every part.
        iterations: graph, step, start and length of step rows, ns from the base.
    """

    tracks: dict[Track, Track] = field(default_factory=dict)
    iterations: list[I64] = field(default_factory=list)


class _Content:
    """The packets of one rank in one file."""

    def __init__(self, build: TraceBuilder, own: Own, before: _Before) -> None:
        self._build, self._own, self._before = build, own, before
        self._sequences = Sequences(build)
        self._events = Events(build, self._sequences)
        self._said = Said(self._events)
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
        """Add everything; what was said of the rank."""
        build, said = self._build, self._said
        marks = self._events.marks()
        categories = resolved(self._events, marks, self._sequences, build)
        made = slices(marks)
        self._book(made, marks)
        lanes = _Lanes(self._sequences.descriptors, said, self._events.lanes.keys)
        op = _classes(marks, made, categories)
        lanes.guess(marks.lane[made.mark], op)
        stated = [lanes.track(i) for i in range(len(self._events.lanes.keys))]
        if not said.known:
            firsts = self._before.tracks
            stated = [
                firsts.setdefault(msgspec.structs.replace(track, sort=0), track) for track in stated
            ]
        # what is no sample on a track of samples is on one beside it
        known = [
            msgspec.structs.replace(t, layer=Layer.OTHER, unit=None) if t.is_counter else t
            for t in stated
        ]
        there = distinct(marks.lane[made.mark]).tolist()
        numbers = np.zeros(len(known), np.int32)
        numbers[there] = [build.add_track(known[i]) for i in there]
        graph, step, args = self._columns(marks, made, known)
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
        if said.lost:
            build.skip("details-lost", "", said.lost)
        return said.about

    def _book(self, made: Slices, marks: Marks) -> None:
        build = self._build
        instants = int((marks.kind[made.mark] == INSTANT).sum())
        build.seen("slice", len(made.mark) - instants)
        build.seen("instant", instants)
        build.skip("missing-name", "", int((marks.name[made.mark] < 0).sum()))
        build.skip("end-without-begin", "", len(made.alone))
        build.skip("unfinished-slice", "", int(made.open.sum()))

    def _columns(self, marks: Marks, made: Slices, tracks: Sequence[Track]) -> tuple[I32, I32, I32]:
        """Graph, step and arguments of rows."""
        n, said = len(made.mark), self._said
        graph, step = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        for first, graphs, steps in said.places:
            stop = min(first + len(graphs), n)
            graph[first:stop], step[first:stop] = graphs[: stop - first], steps[: stop - first]
        args = marks.args[made.mark].copy()
        numbered = said.numbered
        if not said.known:
            steps_of = np.array([t.layer is Layer.STEP and not t.title for t in tracks], bool)
            rows = np.flatnonzero(steps_of[marks.lane[made.mark]]).tolist() if len(tracks) else []
            numbered = dict.fromkeys(rows, STEP_ADDED | GRAPH_ADDED)
            self._step_numbers(args, numbered, graph, step)
            self._host_steps(marks, made, tracks, step)
            self._model_steps(marks, made, tracks, args, graph, step)
        self._without_numbers(args, numbered, graph, step)
        for row, raw in said.odd.items():
            if row < n:
                args[row] = self._build.args(raw)
        return graph, step, args

    def _step_numbers(self, args: I32, rows: Mapping[int, int], graph: I32, step: I32) -> None:
        """Graphs and steps of step rows, as their arguments tell them."""
        at = np.fromiter(rows, np.int64, len(rows))
        for row, raw in zip(at.tolist(), self._build.args_of(args[at]), strict=True):
            of = document(raw.decode("utf-8", "replace"))
            for key, column in (("graph", graph), ("step", step)):
                value = of.get(key)
                if type(value) is int and 0 <= value < 2**31:
                    column[row] = value

    def _host_steps(self, marks: Marks, made: Slices, tracks: Sequence[Track], step: I32) -> None:
        """Steps of host ranges that bear their number in their name."""
        host = np.array([track.layer is Layer.HOST for track in tracks], bool)
        rows = np.flatnonzero(host[marks.lane[made.mark]]) if len(tracks) else np.empty(0, np.intp)
        names, back = factored(marks.name[made.mark][rows])
        strings = self._build.strings
        known = [step_number(strings[i]) if i >= 0 else -1 for i in names.tolist()]
        step[rows] = np.array(known, np.int32)[back] if len(rows) else -1

    def _model_steps(
        self,
        marks: Marks,
        made: Slices,
        tracks: Sequence[Track],
        args: I32,
        graph: I32,
        step: I32,
    ) -> None:
        """Graphs and steps of device rows whose arguments name a model that has iterations: the one
        they begin in."""
        layers = np.array([track.layer for track in tracks], object)[marks.lane[made.mark]]
        start, before = marks.time[made.mark], self._before.iterations
        of_steps = (layers == Layer.STEP) & (graph >= 0) & (step >= 0)
        before.append(np.stack((graph, step, start, made.dur), axis=1)[of_steps])
        iterations = np.concatenate(before)
        rows = np.flatnonzero(((layers == Layer.DEVICE) | (layers == Layer.COMM)) & (args >= 0))
        if not len(iterations) or not len(rows):
            return
        found = [_MODEL.search(raw) for raw in self._build.args_of(args[rows])]
        model = np.array([int(m[1]) if m else -1 for m in found], np.int64)
        for one in np.intersect1d(model, iterations[:, 0]).tolist():
            own = rows[model == one]
            steps = iterations[iterations[:, 0] == one]
            steps = steps[np.lexsort((-steps[:, 3], steps[:, 1]))]
            steps = steps[
                np.append(True, np.diff(steps[:, 1]) != 0)
            ]  # the longest is the iteration
            steps = steps[np.argsort(steps[:, 2], kind="stable")]
            around = steps[np.maximum(np.searchsorted(steps[:, 2], start[own], "right") - 1, 0)]
            since = start[own] - around[:, 2]
            graph[own] = one
            step[own] = np.where((since >= 0) & (since <= around[:, 3]), around[:, 1], -1)

    def _without_numbers(self, args: I32, rows: Mapping[int, int], graph: I32, step: I32) -> None:
        """Take what was added to arguments out of them."""
        at = np.array([row for row in rows if row < len(args)], np.int64)
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
        turned = np.isin(which, np.concatenate(said.turned)) if said.turned else None
        src, dst = ends[:, 0], ends[:, 1]
        if turned is not None:
            src, dst = np.where(turned, dst, src), np.where(turned, src, dst)
        build.flows(src=src + first, dst=dst + first, name=self._arrow_names(which))

    def _arrow_names(self, which: I64) -> I32:
        build, said = self._build, self._said
        plain = build.string("flow") if len(which) else 0
        name = np.full(len(which), plain, np.int32)
        runs = np.concatenate(said.arrow_runs) if said.arrow_runs else np.empty((0, 2), np.int64)
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
    """Marks of both ends of arrows (n, 2), their ids, and how many ends are alone."""
    order = np.lexsort((flows.closes, flows.flow))
    flow, closes, mark = flows.flow[order], flows.closes[order], flows.mark[order]
    both = (flow[1:] == flow[:-1]) & ~closes[:-1] & closes[1:]
    at = np.flatnonzero(both)
    pairs = np.stack((mark[at], mark[at + 1]), axis=1)
    return pairs, flow[at].view(np.int64), len(flow) - 2 * len(at)


def _classes(marks: Marks, made: Slices, categories: Sequence[str]) -> I8:
    """Classes of rows, by their categories."""
    table = np.array([*(_OPS.get(c, OpClass.OTHER) for c in categories), OpClass.OTHER], np.int8)
    found: I8 = table[marks.category[made.mark]]  # -1 is the last one
    return found


# -- tracks ----------------------------------------------------------------------------------------

_HEADINGS = {
    **{title: layer for layer, title in TITLES.items()},
    **dict.fromkeys(
        ("Python", "MindSpore", "MindSpore Host", "Paddle", "NVTX", "NVTX NCCL", "MPI", "Python GC",
         "MLPerf", "Memory", "Data Pipeline", "CPU OP", "Host Ops", "OS Runtime"),
        Layer.HOST,
    ),
    **dict.fromkeys(
        ("CANN", "CUDA", "HIP", "cuDNN", "cuBLAS", "GPU Synchronization", "OS Runtime API"),
        Layer.RUNTIME,
    ),
    **dict.fromkeys(("Ascend Hardware", "GPU Hardware", "AI CPU"), Layer.DEVICE),
    **dict.fromkeys(("GPU Annotations", "Scope Name", "Scope Layer"), Layer.SCOPE),
    **dict.fromkeys(("HCCL", "Collectives", *(one.title for one in LIBRARIES)), Layer.COMM),
    "Findings": Layer.STEP,
    "Profiler": Layer.OTHER,
}  # fmt: skip
"""Layers of the headings of older files."""

_PROJECTION = " (device projection)"

_LAYER_OF = {
    **dict.fromkeys((OpClass.COMPUTE, OpClass.COPY), Layer.DEVICE),
    **dict.fromkeys((OpClass.COMM, OpClass.COMM_TASK), Layer.COMM),
    OpClass.HOST: Layer.HOST,
    OpClass.ITERATION: Layer.STEP,
    OpClass.COMPUTING: Layer.OVERLAP,
}
"""Layers of headings that are not known, by the class of what is there."""


class _Lanes:
    """Tracks of a rank, by what is said of them, or by their names."""

    def __init__(self, descriptors: Descriptors, said: Said, keys: Sequence[Key]) -> None:
        self._descriptors, self._said, self._keys = descriptors, said, keys
        self._guessed: dict[int, Layer] = {}
        self._sub_lanes: dict[str, list[int]] = {}
        for (_, uuid), one in sorted(descriptors.known.items()):
            if one.merge == BY_KEY:
                self._sub_lanes.setdefault(one.merge_key, []).append(uuid)

    def guess(self, lane: I32, op: I8) -> None:
        """Take note of the classes of rows."""
        if self._said.lanes:
            return
        for one in range(len(self._keys)):
            found = set(distinct(op[lane == one]).tolist())
            layers = [layer for kind, layer in _LAYER_OF.items() if kind in found]
            if layers:
                self._guessed[one] = layers[0]

    def track(self, lane: int) -> Track:
        """The track of a lane."""
        key = self._keys[lane]
        uuid = int(key[2]) if key[0] == "track" else 0
        known = self._descriptors.known.get((0, uuid), Described())
        heading, group = self._around(uuid)
        name = known.name or ""
        of = self._said.lanes.get(uuid)
        if of is None:
            return self._old(lane, uuid, known, heading, group)
        layer = text(of.get(OwnLane.LAYER, b""))
        unit = _sound(text(of.get(OwnLane.UNIT, b""))) if known.counter is not None else None
        if OwnLane.NAME in of:
            name, group, heading = (
                _sound(text(of.get(field_number, b"")))
                for field_number in (OwnLane.NAME, OwnLane.GROUP, OwnLane.TITLE)
            )
        track = Track(
            Layer(layer) if layer in set(Layer) else Layer.OTHER,
            name,
            group,
            "" if number(of.get(OwnLane.UNTITLED, 0)) else heading,
            max(min(signed(of.get(OwnLane.SORT, 0)), INT64_MAX), -INT64_MAX),
            unit,
            number(of.get(OwnLane.LANE, 0)) & 0x7FFFFFFF,
        )
        stated = of.get(OwnLane.IDENTITY)
        return _by_name(track) if stated is None else track.with_identity(message(stated))

    def _around(self, uuid: int) -> tuple[str, str]:
        """Names of the layer and the group a track is in."""
        names = []
        for one in list(self._descriptors.ancestors(0, uuid))[1:]:
            if one.pid is not None:
                break
            names.append(one.name or "")
        names = names[::-1][1:]  # the first is the group that keeps the order
        return (names[0] if names else ""), (names[1] if len(names) > 1 else "")

    def _old(self, lane: int, uuid: int, known: Described, heading: str, group: str) -> Track:
        layer = _HEADINGS.get(heading)
        if heading.endswith(_PROJECTION):
            layer = Layer.SCOPE
        unit = None
        if known.counter is not None:
            layer, unit = Layer.COUNTER, _unit(known)
        if layer is None:
            layer = self._guessed.get(lane, Layer.OTHER)
        title = "" if TITLES[layer] == heading else heading
        siblings = self._sub_lanes.get(known.merge_key, []) if known.merge == BY_KEY else []
        lane_number = siblings.index(uuid) if uuid in siblings else 0
        first = self._descriptors.known.get((0, siblings[0]), known) if siblings else known
        return _by_name(
            Track(layer, known.name or "", group, title, first.order, unit, lane_number)
        )


_THREAD = lazy_regex(r"Thread (\d{1,18})(?: \((.+)\))?", re.DOTALL)


def _by_name(track: Track) -> Track:
    """A track of an older file, which says what it is of by its headings alone."""
    thread = _THREAD.fullmatch(track.name)
    return msgspec.structs.replace(
        track,
        device_kind="NPU" if track.title == "Ascend Hardware" else "",
        thread=int(thread[1]) if thread else -1,
        thread_name=(thread[2] or "") if thread else "",
    )


_SIZES = {0: "B", 1: "B", 1 << 10: "KB", 1 << 20: "MB", 1 << 30: "GB", 1 << 40: "TB"}


def _unit(known: Described) -> str:
    """The unit of a counter of an older file."""
    counter = known.counter
    if counter is None or counter.unit != "B":
        return "" if counter is None else counter.unit
    return _SIZES.get(counter.multiplier, "B")
