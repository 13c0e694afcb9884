"""One rank as trace-event JSON: see :mod:`traceconv.writers.chrome`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import Issues
from traceconv.core.model import (
    BACKWARDS,
    I64,
    CounterTable,
    EventTable,
    FlowTable,
    Kind,
    OpClass,
    Trace,
)
from traceconv.writers import Costs, Document, check_times
from traceconv.writers.arguments import Rewritten, fetch, kept, quoted, strict
from traceconv.writers.chrome.lanes import Numbers
from traceconv.writers.template import (
    BLOCK_ROWS,
    cut,
    interleaved,
    joined,
    lengths,
    mapped,
    number_texts,
    us_lengths,
    us_texts,
)

# Chrome JSON: the instants at which arrows touch their slices.
#
# The format binds an arrow to the innermost slice at its time. Perfetto takes the slice that began
# last on the thread instead: there, no arrow can name a parent whose child begins with it.

NEAR_CHILDREN = 64
"""How many children are looked at for a gap between them."""


def ends_ns(events: EventTable, flows: FlowTable, times: Mapping[int, int]) -> tuple[I64, I64]:
    """When each arrow leaves and arrives: at its slices' starts, unless ``times`` says otherwise.

    An arrow must not leave after it arrives because of that; then the start has to do.
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
    """Where arrows touch those slices whose start does not name them.

    If a child begins with its parent, the parent's start belongs to the child: the arrow goes to
    the first gap between children.
    """
    events, flows = trace.events, trace.flows
    rows = np.unique(np.concatenate((flows.src, flows.dst)))
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


ARROWS_PER_RANK = 10**9
"""Ids of arrows are rank times this plus a number: below 2**53."""

EXACT_NS = 2**42 * 1000
"""Up to here (50 days) a double of microseconds has room for three decimals."""

_FIRST_BITS = 7  # of the packed (track, kind, op)


class Encoder:
    """One rank as bytes. Every record is ``,`` newline ``{...}``."""

    def __init__(self, trace: Trace, document: Document) -> None:
        check_times(trace, document.base_ns, -INT64_MAX)
        self._trace = trace
        self._base = document.base_ns
        self._wanted = document.args
        self._numbers = Numbers(trace, document)
        self._tally = Rewritten()

    def blocks(self, issues: Issues) -> Iterator[bytes]:
        """The whole rank, in blocks of :data:`BLOCK_ROWS` rows; books into ``issues``."""
        trace, rank = self._trace, self._trace.rank
        used = np.zeros(len(trace.tracks), bool)
        used[trace.events.track] = True
        used[trace.counters.track] = True
        if names := self._numbers.descriptions(np.flatnonzero(used).tolist()):
            yield names
        choose = kept(self._wanted, self._tally)
        for events in cut(trace.events):
            yield self._events(events, choose)
        for counters in cut(trace.counters):
            yield self._counters(counters)
        times: Mapping[int, int] = {}
        if len(trace.flows):
            times = binding_ns(trace)
            for i, flows in enumerate(cut(trace.flows)):
                yield self._flows(flows, times, i * BLOCK_ROWS)
        issues.add("viewer-rounds", count=self._rounded(times), rank=rank)
        issues.add("value-clipped", count=self._tally.numbers, rank=rank)
        issues.add("bad-encoding", count=self._tally.surrogates, rank=rank)
        issues.add("args-dropped", count=self._tally.filtered, rank=rank)

    def _rounded(self, times: Mapping[int, int]) -> int:
        """Rows whose time, and arrows' own ``times``, that no double of microseconds holds."""
        counts, own = 0, np.fromiter(times.values(), np.int64, len(times))
        for stamps in (self._trace.events.start_ns, self._trace.counters.start_ns, own):
            far = stamps - self._base
            counts += int(np.count_nonzero((far >= EXACT_NS) & (far % 1000 != 0)))
        return counts

    def _events(self, rows: EventTable, choose: Callable[[list[bytes]], list[bytes]]) -> bytes:
        raws = choose(strict(fetch(self._trace.args, rows.args), self._tally))
        dur = us_texts(rows.dur_ns, b',"dur":')
        instants = np.flatnonzero(rows.kind == Kind.INSTANT)
        for i in instants.tolist():
            dur[i] = b""
        return interleaved(
            mapped(_packed(rows), self._event_head),
            us_texts(rows.start_ns - self._base),
            dur,
            mapped(rows.name, self._name),
            mapped(rows.graph, _graph),
            mapped(rows.step, _step),
            [b',"args":' if raw else b"" for raw in raws],
            raws,
            [b"}"] * len(rows),
        )

    def _event_head(self, packed: int) -> bytes:
        track, kind, op = packed >> _FIRST_BITS + 1, packed >> _FIRST_BITS & 1, packed & 127
        phase = b'"ph":"i","s":"t"' if kind == Kind.INSTANT else b'"ph":"X"'
        return b",\n{%b%b,%b" % (phase, _CATEGORIES.get(op, b""), self._numbers.lanes[track])

    def _name(self, string: int) -> bytes:
        return b',"name":' + quoted(self._trace.strings[string])

    def _counters(self, rows: CounterTable) -> bytes:
        texts, odd = number_texts(rows.value)
        self._tally.numbers += odd
        return interleaved(
            mapped(rows.track, self._counter_head),
            us_texts(rows.start_ns - self._base),
            mapped(rows.track, self._counter_key),
            texts,
            [b"}}"] * len(rows),
        )

    def _counter_head(self, track: int) -> bytes:
        shown = quoted(self._numbers.names[track])
        return b',\n{"ph":"C","name":%b,%b' % (shown, self._numbers.lanes[track])

    def _counter_key(self, track: int) -> bytes:
        return b',"args":{%b:' % quoted(self._trace.tracks[track].unit or "value")

    def _flows(self, rows: FlowTable, times: Mapping[int, int], first: int) -> bytes:
        origin = self._numbers.place * ARROWS_PER_RANK + 1 + first
        ids = [b"%d" % i for i in range(origin, origin + len(rows))]
        events, n, ends = self._trace.events, len(rows), []
        leave, arrive = ends_ns(events, rows, times)
        back = leave > arrive
        names = mapped(rows.name << 1 | back, self._flow_name)
        tail, tip = np.where(back, rows.dst, rows.src), np.where(back, rows.src, rows.dst)
        when = (np.minimum(leave, arrive), np.maximum(leave, arrive))
        heads = (_FLOW_START, _FLOW_END)
        for head, column, ns in zip(heads, (tail, tip), when, strict=True):
            lanes = mapped(events.track[column], self._numbers.lanes.__getitem__)
            texts = us_texts(ns - self._base)
            ends += [[head] * n, names, ids, [b","] * n, lanes, texts, [b"}"] * n]
        return interleaved(*ends)

    def _flow_name(self, packed: int) -> bytes:
        """Category and name of an arrow; the lowest bit says that it runs backwards in time."""
        name = quoted(self._trace.strings[packed >> 1] + BACKWARDS * (packed & 1))
        return b'"cat":%b,"name":%b,"id":' % (name, name)

    def costs(self) -> Costs:
        """What :meth:`blocks` will write, row by row. Exact where no argument is filtered."""
        tracks = range(len(self._trace.tracks))
        return Costs(
            len(self._numbers.descriptions(tracks)),
            joined([self._event_costs(rows) for rows in cut(self._trace.events)]),
            joined([self._counter_costs(rows) for rows in cut(self._trace.counters)]),
            self._flow_costs(),
        )

    def _event_costs(self, rows: EventTable) -> I64:
        size = lengths(_packed(rows), self._event_head) + lengths(rows.name, self._name)
        size += lengths(rows.graph, _graph) + lengths(rows.step, _step)
        size += us_lengths(rows.start_ns - self._base) + len(b"}")
        slices = rows.kind != Kind.INSTANT
        size += np.where(slices, us_lengths(rows.dur_ns) + len(b',"dur":'), 0)
        if self._wanted is None or self._wanted:
            raws = strict(fetch(self._trace.args, rows.args), Rewritten())
            length = np.fromiter(map(len, raws), np.int64, len(raws))
            size += length + np.where(length > 0, len(b',"args":'), 0)
        return size

    def _counter_costs(self, rows: CounterTable) -> I64:
        texts, _ = number_texts(rows.value)
        size = lengths(rows.track, self._counter_head) + lengths(rows.track, self._counter_key)
        size += np.fromiter(map(len, texts), np.int64, len(texts)) + len(b"}}")
        return size + us_lengths(rows.start_ns - self._base)

    def _flow_costs(self) -> I64:
        flows, events = self._trace.flows, self._trace.events
        last = self._numbers.place * ARROWS_PER_RANK + len(flows)
        back = events.start_ns[flows.src] > events.start_ns[flows.dst]
        named = lengths(flows.name << 1 | back, self._flow_name)
        size = 2 * (named + len(b"%d" % last) + len(b",}"))
        size += len(_FLOW_START) + len(_FLOW_END)
        for column in (flows.src, flows.dst):
            size += lengths(events.track[column], self._numbers.lanes.__getitem__)
            latest = np.maximum(events.start_ns[column], events.end_ns[column])
            earliest = us_lengths(events.start_ns[column] - self._base)
            size += np.maximum(earliest, us_lengths(latest - self._base))
        return size


_FLOW_START, _FLOW_END = b',\n{"ph":"s",', b',\n{"ph":"f","bp":"e",'
_CATEGORIES = {int(op): b',"cat":"%b"' % op.name.lower().encode() for op in OpClass if op}


def _graph(graph: int) -> bytes:
    return b',"graph":%d' % graph if graph >= 0 else b""


def _step(step: int) -> bytes:
    return b',"step":%d' % step if step >= 0 else b""


def _packed(rows: EventTable) -> I64:
    """Track, kind and class of each row as one number."""
    track = rows.track.astype(np.int64) << _FIRST_BITS + 1
    return track | rows.kind.astype(np.int64) << _FIRST_BITS | rows.op
