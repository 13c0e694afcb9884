"""One rank as lines of text: see :mod:`traceconv.writers.text`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec
import numpy as np

from traceconv.core.model import (
    I64,
    CounterTable,
    EventTable,
    FlowTable,
    Kind,
    OpClass,
    Trace,
    Track,
)
from traceconv.writers import Costs, Document
from traceconv.writers.arguments import Rewritten, fetch, kept, quoted, strict
from traceconv.writers.template import (
    cut,
    int_lengths,
    interleaved,
    joined,
    lengths,
    mapped,
    number_texts,
)

OnTracks = TypeVar("OnTracks", EventTable, CounterTable)

_OPS = {int(op): b" " + op.name.lower().encode() for op in OpClass}


class Lines:
    """One rank as lines."""

    def __init__(self, trace: Trace, document: Document) -> None:
        self.tally = Rewritten()
        self._trace = trace
        self._base = document.base_ns
        self._selected = document.args
        self._choose = kept(document.args, self.tally)

    def of_track(self, number: int, track: Track) -> Iterator[bytes]:
        """A track's header and rows; nothing if it has none."""
        events = _rows_on(self._trace.events, number)
        counters = _rows_on(self._trace.counters, number)
        if len(events) or len(counters):
            yield _header(track)
        for rows in cut(events):
            yield self._events(rows)
        for samples in cut(counters):
            yield interleaved(
                [b"    %d = " % ns for ns in (samples.start_ns - self._base).tolist()],
                number_texts(samples.value)[0],
                [b"\n"] * len(samples),
            )

    def _events(self, rows: EventTable) -> bytes:
        raws = self._choose(strict(fetch(self._trace.args, rows.args), Rewritten()))
        spans = zip(rows.kind.tolist(), rows.dur_ns.tolist(), strict=True)
        return interleaved(
            [b"    %d" % ns for ns in (rows.start_ns - self._base).tolist()],
            [b" !" if kind == Kind.INSTANT else b" +%d" % ns for kind, ns in spans],
            mapped(rows.name, self._name),
            mapped(rows.op, _op),
            mapped(rows.graph, _graph),
            mapped(rows.step, _step),
            [_one_line(raw) for raw in raws],
            [b"\n"] * len(rows),
        )

    def _name(self, string: int) -> bytes:
        return b" " + quoted(self._trace.strings[string])

    def arrows(self) -> Iterator[bytes]:
        """All flows, ordered by their ends."""
        flows = self._trace.flows
        if len(flows):
            yield b"  arrows\n"
        for rows in cut(flows.take(np.lexsort((flows.name, flows.dst, flows.src)))):
            yield self._arrows(rows)

    def _arrows(self, rows: FlowTable) -> bytes:
        ends = []
        for column in (rows.src, rows.dst):
            start = self._trace.events.start_ns[column] - self._base
            ends += [
                mapped(self._trace.events.track[column], self._track),
                [b"@%d" % ns for ns in start.tolist()],
                mapped(self._trace.events.name[column], self._name),
            ]
        n = len(rows)
        names = mapped(rows.name, self._name)
        return interleaved([b"   "] * n, names, *ends[:3], [b" ->"] * n, *ends[3:], [b"\n"] * n)

    def _track(self, number: int) -> bytes:
        return _identity(self._trace.tracks[number])

    def costs(self) -> Costs:
        """The bytes of the lines, row by row; white space in arguments counts."""
        trace = self._trace
        fixed = sum(len(_header(t)) for t in trace.tracks)
        return Costs(
            fixed + len(b"\nrank %d\n  arrows\n" % trace.rank),
            joined([self._event_costs(rows) for rows in cut(trace.events)]),
            joined([self._counter_costs(rows) for rows in cut(trace.counters)]),
            joined([self._arrow_costs(rows) for rows in cut(trace.flows)]),
        )

    def _event_costs(self, rows: EventTable) -> I64:
        size = lengths(rows.name, self._name) + lengths(rows.op, _op)
        size += lengths(rows.graph, _graph) + lengths(rows.step, _step)
        if self._selected is None or self._selected:
            raws = strict(fetch(self._trace.args, rows.args), Rewritten())
            size += np.fromiter(map(len, raws), np.int64, len(raws)) + 1
        size += int_lengths(rows.start_ns - self._base) + int_lengths(rows.dur_ns)
        return size + len(b"     +\n")

    def _counter_costs(self, rows: CounterTable) -> I64:
        texts = number_texts(rows.value)[0]
        size = np.fromiter(map(len, texts), np.int64, len(texts))
        return size + int_lengths(rows.start_ns - self._base) + len(b"     = \n")

    def _arrow_costs(self, rows: FlowTable) -> I64:
        events = self._trace.events
        size = lengths(rows.name, self._name) + len(b"   @ -> @\n")
        for column in (rows.src, rows.dst):
            size += lengths(events.track[column], self._track)
            size += lengths(events.name[column], self._name)
            size += int_lengths(events.start_ns[column] - self._base)
        return size


def _rows_on(table: OnTracks, track: int) -> OnTracks:
    """The rows of one track; tables are sorted by track."""
    first, last = np.searchsorted(table.track, [track, track + 1])
    return table.take(slice(first, last))


def _identity(track: Track) -> bytes:
    lane = b" lane=%d" % track.lane if track.lane else b""
    return b"".join(b" " + quoted(p) for p in (track.heading, track.group, track.name)) + lane


def _header(track: Track) -> bytes:
    unit = b"" if track.unit is None else b" unit=" + quoted(track.unit)
    return b"  track%b layer=%b%b\n" % (_identity(track), track.layer.encode(), unit)


def _op(op: int) -> bytes:
    return _OPS.get(op) or b" %d" % op


def _graph(graph: int) -> bytes:
    return b" graph=%d" % graph if graph >= 0 else b""


def _step(step: int) -> bytes:
    return b" step=%d" % step if step >= 0 else b""


def _one_line(raw: bytes) -> bytes:
    """JSON without white space between its tokens; numbers stay as they are written."""
    if not raw:
        return raw
    try:
        return b" " + msgspec.json.format(raw, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return b" " + raw.replace(b"\n", b" ")
