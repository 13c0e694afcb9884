"""One rank as trace-event JSON: see :mod:`traceconv.writers.chrome`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import Issues
from traceconv.core.model import (
    BACKWARDS,
    I32,
    I64,
    CounterTable,
    EventTable,
    FlowTable,
    Kind,
    Layer,
    Mask,
    OpClass,
    Trace,
    Track,
)
from traceconv.writers import Costs, Document, check_times
from traceconv.writers.arguments import Rewritten, fetch, kept, quoted, strict
from traceconv.writers.template import (
    BLOCK_ROWS,
    Memo,
    Piece,
    arguments,
    cut,
    joined,
    micros,
    number_texts,
    numbered,
    numbers,
    same,
    sizes,
    texts,
    us_lengths,
    written,
)

MAX_RANK = 10**5
"""Ranks beyond are numbered by their index: a pid must stay below 2**31."""

NEAR_CHILDREN = 64
"""How many children are searched for a gap between them."""

ARROWS_PER_RANK = 10**9
"""Ids of flows are rank times this plus a number: below 2**53."""

DRAWN_DEPTH = 512
"""Viewers draw this many slices inside each other, and drop what is deeper."""

EXACT_NS = 2**42 * 1000
"""Up to here (50 days) a double of microseconds has room for three decimals."""

_FIRST_BITS = 7  # of the packed (track, kind, op)

_FLOW_START, _FLOW_END = b',\n{"ph":"s",', b',\n{"ph":"f","bp":"e",'
_CATEGORIES = {int(op): b',"cat":"%b"' % op.name.lower().encode() for op in OpClass if op}


class Encoder:
    """One rank as bytes. Every record is ``,`` newline ``{...}``."""

    def __init__(self, trace: Trace, document: Document) -> None:
        check_times(trace, document.base_ns, -INT64_MAX)
        self._trace = trace
        self._base = document.base_ns
        self._selected = document.args
        self._numbers = Numbers(trace, document)
        self._tally = Rewritten()
        # texts of values that recur in every block
        strings, tracks = len(trace.strings), len(trace.tracks)
        self._heads = Memo(self._event_head, tracks << _FIRST_BITS + 1)
        self._shown = Memo(self._name, strings)
        self._samples = Memo(self._counter_head, tracks), Memo(self._counter_key, tracks)

    def blocks(self, issues: Issues) -> Iterator[bytes]:
        """The whole rank, in blocks of :data:`BLOCK_ROWS` rows; ``issues`` counts what is lost."""
        trace, rank = self._trace, self._trace.rank
        if names := self._numbers.descriptions(np.flatnonzero(trace.used).tolist()):
            yield names
        choose = kept(self._selected, self._tally)
        for events in cut(trace.events):
            yield self._events(events, choose)
        for counters in cut(trace.counters):
            values, odd = number_texts(counters.value)
            self._tally.numbers += odd
            yield written(self._counter_pieces(counters, values), len(counters)) or b""
        times: Mapping[int, int] = {}
        if len(trace.flows):
            times = binding_ns(trace)
            for i, flows in enumerate(cut(trace.flows)):
                yield self._flows(flows, times, i * BLOCK_ROWS)
        inexact, own = 0, np.fromiter(times.values(), np.int64, len(times))
        for stamps in (self._trace.events.start_ns, self._trace.counters.start_ns, own):
            far = stamps - self._base
            inexact += int(np.count_nonzero(far[far >= EXACT_NS] % 1000))
        issues.add("viewer-rounds", count=inexact, rank=rank)
        issues.add("viewer-drops", count=self._too_deep(), rank=rank)
        issues.add("value-clipped", count=self._tally.numbers, rank=rank)
        issues.add("bad-encoding", count=self._tally.surrogates, rank=rank)
        issues.add("args-dropped", count=self._tally.filtered, rank=rank)

    def _too_deep(self) -> int:
        """Rows without length of one time and track, which viewers nest, beyond what they draw."""
        events = self._trace.events
        point = events.dur_ns == 0
        if np.count_nonzero(point) <= DRAWN_DEPTH:
            return 0
        new = ~point
        new[1:] |= np.diff(events.track) != 0
        new[1:] |= (np.diff(events.start_ns) != 0) | ~point[:-1]
        runs = np.bincount(np.cumsum(new)[point])
        return int(np.maximum(runs - DRAWN_DEPTH, 0).sum())

    def _events(self, rows: EventTable, choose: Callable[[list[bytes]], list[bytes]]) -> bytes:
        if self._selected is None and native.records() is not None:
            args = arguments(self._trace.args, rows.args, b',"args":')
            if (made := written(self._event_pieces(rows, args), len(rows))) is not None:
                return made
        args = self._strict(rows, choose, self._tally)
        return written(self._event_pieces(rows, args), len(rows)) or b""

    def _strict(
        self, rows: EventTable, choose: Callable[[list[bytes]], list[bytes]], tally: Rewritten
    ) -> Piece:
        """The selected arguments as strict JSON."""
        raws = choose(strict(fetch(self._trace.args, rows.args), tally))
        return texts([b',"args":' + raw if raw else b"" for raw in raws])

    def _event_pieces(self, rows: EventTable, args: Piece) -> list[Piece]:
        return [
            self._heads.piece(_packed(rows)),
            micros(rows.start_ns - self._base),
            micros(rows.dur_ns, b',"dur":', rows.kind == Kind.INSTANT),
            self._shown.piece(rows.name),
            numbered(rows.graph, lambda n: b',"graph":%d' % n if n >= 0 else b""),
            numbered(rows.step, lambda n: b',"step":%d' % n if n >= 0 else b""),
            args,
            same(b"}"),
        ]

    def _event_head(self, packed: int) -> bytes:
        track, kind, op = packed >> _FIRST_BITS + 1, packed >> _FIRST_BITS & 1, packed & 127
        phase = b'"ph":"i","s":"t"' if kind == Kind.INSTANT else b'"ph":"X"'
        return b",\n{%b%b,%b" % (phase, _CATEGORIES.get(op, b""), self._numbers.lanes[track])

    def _name(self, string: int) -> bytes:
        return b',"name":' + quoted(self._trace.strings[string])

    def _counter_pieces(self, rows: CounterTable, values: list[bytes]) -> list[Piece]:
        heads, keys = (memo.piece(rows.track) for memo in self._samples)
        return [heads, micros(rows.start_ns - self._base), keys, texts(values), same(b"}}")]

    def _counter_head(self, track: int) -> bytes:
        shown = quoted(self._numbers.names[track])
        return b',\n{"ph":"C","name":%b,%b' % (shown, self._numbers.lanes[track])

    def _counter_key(self, track: int) -> bytes:
        return b',"args":{%b:' % quoted(self._trace.tracks[track].unit or "value")

    def _flows(self, rows: FlowTable, times: Mapping[int, int], first: int) -> bytes:
        origin = self._numbers.place * ARROWS_PER_RANK + 1 + first
        ids = np.arange(origin, origin + len(rows), dtype=np.int64)
        leave, arrive = ends_ns(self._trace.events, rows, times)
        # what arrives before it leaves is written from the earlier end to the later
        back = leave > arrive
        ends = (
            (np.where(back, rows.dst, rows.src), np.minimum(leave, arrive)),
            (np.where(back, rows.src, rows.dst), np.maximum(leave, arrive)),
        )
        return written(self._flow_pieces(rows.name, back, ids, ends), len(rows)) or b""

    def _flow_pieces(
        self, name: I32, back: Mask, ids: I64, ends: Sequence[tuple[I32, I64]]
    ) -> list[Piece]:
        """Both records of each flow; ``ends`` are event rows, and times in ns."""
        called, pieces = numbered(name << 1 | back, self._flow_name), []
        for head, (rows, ns) in zip((_FLOW_START, _FLOW_END), ends, strict=True):
            lane = numbered(self._trace.events.track[rows], self._numbers.lanes.__getitem__)
            time = micros(ns - self._base)
            pieces += [same(head), called, numbers(ids), same(b","), lane, time, same(b"}")]
        return pieces

    def _flow_name(self, packed: int) -> bytes:
        """Category and name of a flow; the lowest bit is set if it runs backwards in time."""
        name = quoted(self._trace.strings[packed >> 1] + BACKWARDS * (packed & 1))
        return b'"cat":%b,"name":%b,"id":' % (name, name)

    def costs(self) -> Costs:
        """Bytes that :meth:`blocks` will write, by row; the longer text where others decide."""
        trace, tally = self._trace, Rewritten()
        choose = kept(self._selected, tally)
        events = [
            sizes(self._event_pieces(rows, self._strict(rows, choose, tally)), len(rows))
            for rows in cut(trace.events)
        ]
        counters = [
            sizes(self._counter_pieces(rows, number_texts(rows.value)[0]), len(rows))
            for rows in cut(trace.counters)
        ]
        descriptions = self._numbers.descriptions(range(len(trace.tracks)))
        return Costs(len(descriptions), joined(events), joined(counters), self._flow_costs())

    def _flow_costs(self) -> I64:
        """A flow touches its slices anywhere from start to end: the longer of both texts counts."""
        flows, events = self._trace.flows, self._trace.events
        if not len(flows):
            return np.empty(0, np.int64)
        last = np.full(len(flows), self._numbers.place * ARROWS_PER_RANK + len(flows))
        back = events.start_ns[flows.src] > events.start_ns[flows.dst]
        ends = []
        for rows in (flows.src, flows.dst):
            first, until = events.start_ns[rows], events.ends(rows)
            longer = us_lengths(until - self._base) > us_lengths(first - self._base)
            ends.append((rows, np.where(longer, until, first)))
        return sizes(self._flow_pieces(flows.name, back, last, ends), len(flows))


def _packed(rows: EventTable) -> I64:
    """Track, kind and class of each row as one number: rows that share it begin alike."""
    track = rows.track.astype(np.int64) << _FIRST_BITS + 1
    return track | rows.kind.astype(np.int64) << _FIRST_BITS | rows.op


class Numbers:
    """Process and thread numbers of one rank, and the names on screen.

    Attributes:
        place: the rank, or its index among the ranks if they are huge.
        names: by track: of the thread, or of the counter; a counter's is unique in its process.
        lanes: by track: ``"pid":..,"tid":..,"ts":`` of its events.
    """

    def __init__(self, trace: Trace, document: Document) -> None:
        ranks, rank = document.ranks, trace.rank
        self._rank, self._tracks = rank, trace.tracks
        top = max((*ranks, rank))
        self.place = rank if top < MAX_RANK else bisect_left(ranks, rank)
        self._places = top + 1 if top < MAX_RANK else len(ranks)
        self._processes: dict[tuple[Layer, str], int] = {}
        for track in self._tracks:
            key = (track.layer, track.heading)
            self._processes.setdefault(key, self._number(len(self._processes)))
        first = len(self._processes)
        self._pids = [self._processes[t.layer, t.heading] for t in self._tracks]
        self._tids = [self._number(first + i) for i in range(len(self._tracks))]
        self.names = _unique_names(self._tracks, self._pids)
        self.lanes = [
            b'"pid":%d,"tid":%d,"ts":' % (pid, tid)
            for pid, tid in zip(self._pids, self._tids, strict=True)
        ]
        self._labels = _labels(trace)
        self._name = trace.capture.name or f"Rank {trace.rank}"

    def _number(self, k: int) -> int:
        """The k-th number of the rank: blocks of 1000 per rank, more blocks after the last."""
        block, within = divmod(k, 999)
        return (block * self._places + self.place) * 1000 + 1 + within

    def descriptions(self, tracks: Sequence[int]) -> bytes:
        """The metadata records of ``tracks`` and their processes."""
        used = {self._pids[i] for i in tracks}
        records = []
        for (_, heading), pid in self._processes.items():
            if pid in used:
                name = f"{self._name} {heading}"
                records.append(_record("process_name", pid, name=name, rank=self._rank))
                records.append(_record("process_sort_index", pid, sort_index=pid))
                if self._labels:
                    records.append(_record("process_labels", pid, labels=self._labels))
        for i in tracks:
            pid, tid = self._pids[i], self._tids[i]
            track = msgspec.to_builtins(self._tracks[i])  # its fields, for our own reader
            fields = {"name": self.names[i], "layer": track.pop("layer"), "title": "", "group": ""}
            fields |= {"track": track.pop("name"), "sort": 0, "lane": 0, **track}
            records.append(_record("thread_name", pid, tid, **fields))
            records.append(_record("thread_sort_index", pid, tid, sort_index=tid))
        return b"".join(records)


def _record(what: str, pid: int, tid: int | None = None, /, **args: Any) -> bytes:
    lane = b'"pid":%d' % pid if tid is None else b'"pid":%d,"tid":%d' % (pid, tid)
    pairs = b",".join(
        quoted(key) + b":" + (quoted(v) if isinstance(v, str) else b"%d" % v)
        for key, v in args.items()
    )
    return b',\n{"ph":"M","name":"%b",%b,"args":{%b}}' % (what.encode(), lane, pairs)


def _unique_names(tracks: Sequence[Track], pids: Sequence[int]) -> list[str]:
    """Names on screen. Viewers join counters of one name, so those are made to differ."""
    taken: set[tuple[int, str]] = set()
    names = []
    for track, pid in zip(tracks, pids, strict=True):
        plain = _under(track.group, track.name) or "(no name)"
        name = f"{plain} ({track.lane + 1})" if track.lane else plain
        number = track.lane + 1
        while track.is_counter and (pid, name) in taken:
            number += 1
            name = f"{plain} ({number})"
        taken.add((pid, name))
        names.append(name)
    return names


def _under(group: str, name: str) -> str:
    """A name below its group; words in which both overlap are written once."""
    words = group.split(" ") if group else []
    for first in range(len(words)):
        if name.startswith(" ".join(words[first:])):
            return " ".join([*words[:first], name])
    return f"{group} {name}".strip(" ") if group else name


def _labels(trace: Trace) -> str:
    device = f"device {trace.capture.device}" if trace.capture.device >= 0 else ""
    return ", ".join(word for word in (trace.capture.host, device) if word)


def ends_ns(events: EventTable, flows: FlowTable, times: Mapping[int, int]) -> tuple[I64, I64]:
    """When each flow leaves and arrives, ns: at its slices' starts, or where ``times`` says.

    The format binds a flow to the innermost slice at its time; Perfetto to the slice that began
    last on the thread, where no flow can name a parent whose child begins with it. ``times`` must
    not make a flow leave after it arrives: then it leaves at the start.
    """
    src, dst = _ends(events, flows.src, times), _ends(events, flows.dst, times)
    return np.where(src > dst, events.start_ns[flows.src], src), dst


def _ends(events: EventTable, rows: NDArray[np.int32], times: Mapping[int, int]) -> I64:
    ns = events.start_ns[rows]
    if times:
        moved = np.flatnonzero(np.isin(rows, np.fromiter(times, np.int32)))
        ns[moved] = [times[row] for row in rows[moved].tolist()]
    return ns


def binding_ns(trace: Trace) -> dict[int, int]:
    """By row: the time, ns, of flows at slices whose start does not identify them.

    If a child begins with its parent, a flow at this time would be bound to the child: it is
    moved to the first gap between children.
    """
    events, flows = trace.events, trace.flows
    rows = np.unique(np.concatenate((flows.src, flows.dst)))
    # in table order the first child is the next row
    after = np.minimum(rows + 1, len(events) - 1)
    shared = (rows < after) & (events.track[rows] == events.track[after])
    shared &= events.start_ns[rows] == events.start_ns[after]
    found = ((row, _first_gap(events, row)) for row in rows[shared].tolist())
    return {row: ns for row, ns in found if ns is not None}


def _first_gap(events: EventTable, row: int) -> int | None:
    """The first ns at which ``row`` has no open child (a slice is open at its end), if any."""
    track, ns = events.track[row], int(events.start_ns[row])
    end = ns + int(events.dur_ns[row])
    for child in range(row + 1, min(row + 1 + NEAR_CHILDREN, len(events))):
        start = int(events.start_ns[child])
        if events.track[child] != track or start > ns:
            return ns if ns < end else None
        ns = max(ns, start + int(events.dur_ns[child]) + 1)
    return ns if row + 1 + NEAR_CHILDREN > len(events) and ns < end else None
