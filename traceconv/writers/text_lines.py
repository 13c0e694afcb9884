"""One rank as lines of text: see :mod:`traceconv.writers.text`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from traceconv.writers.template import cut, interleaved, joined, mapped, number_texts

OnTracks = TypeVar("OnTracks", EventTable, CounterTable)

Pieces = Sequence[list[bytes]]
"""Columns of text: the lines of some rows are the pieces of each row, one after the other."""

_OPS = {int(op): b" " + op.name.lower().encode() for op in OpClass}


class Lines:
    """One rank as lines."""

    def __init__(self, trace: Trace, document: Document) -> None:
        self.tally = Rewritten()
        self._trace = trace
        self._base = document.base_ns
        self._choose = kept(document.args, self.tally)

    def of_track(self, number: int, track: Track) -> Iterator[bytes]:
        """A track's header and rows; nothing if it has none."""
        events = _rows_on(self._trace.events, number)
        counters = _rows_on(self._trace.counters, number)
        if len(events) or len(counters):
            yield _header(track)
        for rows in cut(events):
            yield interleaved(*self._events(rows))
        for samples in cut(counters):
            yield interleaved(*self._counters(samples))

    def arrows(self) -> Iterator[bytes]:
        """All flows, ordered by their ends."""
        flows = self._trace.flows
        if len(flows):
            yield b"  arrows\n"
        for rows in cut(flows.take(np.lexsort((flows.name, flows.dst, flows.src)))):
            yield interleaved(*self._arrows(rows))

    def costs(self) -> Costs:
        """The bytes of the lines, row by row."""
        trace = self._trace
        fixed = sum(len(_header(t)) for t in trace.tracks)
        return Costs(
            fixed + len(b"\nrank %d\n  arrows\n" % trace.rank),
            joined([_lengths(self._events(rows)) for rows in cut(trace.events)]),
            joined([_lengths(self._counters(rows)) for rows in cut(trace.counters)]),
            joined([_lengths(self._arrows(rows)) for rows in cut(trace.flows)]),
        )

    def _events(self, rows: EventTable) -> Pieces:
        raws = self._choose(strict(fetch(self._trace.args, rows.args), Rewritten()))
        spans = zip(rows.kind.tolist(), rows.dur_ns.tolist(), strict=True)
        return [
            [b"    %d" % ns for ns in (rows.start_ns - self._base).tolist()],
            [b" !" if kind == Kind.INSTANT else b" +%d" % ns for kind, ns in spans],
            mapped(rows.name, self._name),
            mapped(rows.op, lambda op: _OPS.get(op) or b" %d" % op),
            mapped(rows.graph, lambda graph: b" graph=%d" % graph if graph >= 0 else b""),
            mapped(rows.step, lambda step: b" step=%d" % step if step >= 0 else b""),
            [_one_line(raw) for raw in raws],
            [b"\n"] * len(rows),
        ]

    def _counters(self, rows: CounterTable) -> Pieces:
        return [
            [b"    %d = " % ns for ns in (rows.start_ns - self._base).tolist()],
            number_texts(rows.value)[0],
            [b"\n"] * len(rows),
        ]

    def _arrows(self, rows: FlowTable) -> Pieces:
        ends = []
        for column in (rows.src, rows.dst):
            start = self._trace.events.start_ns[column] - self._base
            ends += [
                mapped(
                    self._trace.events.track[column], lambda i: _identity(self._trace.tracks[i])
                ),
                [b"@%d" % ns for ns in start.tolist()],
                mapped(self._trace.events.name[column], self._name),
            ]
        n = len(rows)
        names = mapped(rows.name, self._name)
        return [[b"   "] * n, names, *ends[:3], [b" ->"] * n, *ends[3:], [b"\n"] * n]

    def _name(self, string: int) -> bytes:
        return b" " + quoted(self._trace.strings[string])


def _lengths(pieces: Pieces) -> I64:
    """The bytes of every row."""
    lengths: I64 = np.zeros(len(pieces[0]), np.int64)
    for piece in pieces:
        lengths += np.fromiter(map(len, piece), np.int64, len(piece))
    return lengths


def _rows_on(table: OnTracks, track: int) -> OnTracks:
    """The rows of one track; tables are sorted by track."""
    begin, end = np.searchsorted(table.track, [track, track + 1])
    return table.take(slice(begin, end))


def _identity(track: Track) -> bytes:
    lane = b" lane=%d" % track.lane if track.lane else b""
    return b"".join(b" " + quoted(p) for p in (track.heading, track.group, track.name)) + lane


def _header(track: Track) -> bytes:
    unit = b"" if track.unit is None else b" unit=" + quoted(track.unit)
    return b"  track%b layer=%b%b\n" % (_identity(track), track.layer.encode(), unit)


def _one_line(raw: bytes) -> bytes:
    """JSON without white space between its tokens; numbers stay as they are written."""
    if not raw:
        return raw
    try:
        return b" " + msgspec.json.format(raw, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return b" " + raw.replace(b"\n", b" ")
