"""What a trace brings, as the numbers and bytes its packets are made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64, EventTable, Layer, OpClass, Trace
from traceconv.writers.perfetto.arguments import Coded, Coder
from traceconv.writers.perfetto.packets import FLOW, Bytes, Rows
from traceconv.writers.perfetto.tracks import uuids
from traceconv.writers.perfetto.wire import (
    InternedData,
    TracePacket,
    TrackEvent,
    interned,
    number,
    tag_fixed64,
    utf8,
)

BLOCK = 8192
"""Event rows encoded at a time: up to twice as many packets, which stay in the cache."""

NAMES_PER_PACKET = 4096

CATEGORIES: dict[int, bytes] = {op: op.name.lower().encode() for op in OpClass if op}
"""How the class of an event is called; OTHER has no name. The number is that of the class."""


def sequence_id(rank: int) -> bytes:
    """The field that names a rank's packet sequence."""
    return number(TracePacket.TRUSTED_PACKET_SEQUENCE_ID, rank + 1)


def name_order(trace: Trace) -> tuple[I64, I64]:
    """Ids of the strings that name events, the most frequent first, and how often they do."""
    counts = np.bincount(trace.events.name, minlength=len(trace.strings))
    used = np.flatnonzero(counts)
    order = used[np.argsort(-counts[used], kind="stable")]
    return order, counts[order]


def name_entry(trace: Trace, string: int, iid: int) -> bytes:
    """What makes a name known."""
    return interned(InternedData.EVENT_NAMES, iid, utf8(trace.strings[string]))


def tables(trace: Trace, order: I64) -> Iterator[bytes]:
    """Contents of InternedData, in parts of bounded size: categories, then names by number."""
    ops = np.unique(trace.events.op).tolist()
    part = [
        interned(InternedData.EVENT_CATEGORIES, op, CATEGORIES[op])
        for op in ops
        if op in CATEGORIES
    ]
    for iid, string in enumerate(order.tolist(), 1):
        if len(part) >= NAMES_PER_PACKET:
            yield b"".join(part)
            part = []
        part.append(name_entry(trace, string, iid))
    yield b"".join(part)


def category_numbers(op: NDArray[Any]) -> Bytes:
    """The category of each class; 0 for those without."""
    known = np.zeros(256, np.uint8)
    known[list(CATEGORIES)] = list(CATEGORIES)
    return known[op.view(np.uint8)]


def with_marks(trace: Trace, wanted: frozenset[str] | None) -> Trace:
    """``trace`` with ``step`` and ``graph``, if wanted, among the arguments of its step rows."""
    events = trace.events
    columns = {
        key: column
        for key, column in (("step", events.step), ("graph", events.graph))
        if wanted is None or key in wanted
    }
    rows = np.flatnonzero(trace.rows_of(Layer.STEP)) if columns else np.empty(0, np.int64)
    marked: dict[int, bytes] = {}
    for row in rows.tolist():
        raw = trace.args.raw(int(events.args[row]))
        marks = {key: int(column[row]) for key, column in columns.items()}
        added = _marked(raw, marks)
        if added != raw:
            marked[row] = added
    if not marked:
        return trace
    args, first = trace.args.extended(list(marked.values()))
    column = events.args.copy()
    column[list(marked)] = np.arange(first, first + len(marked))
    return replace(trace, args=args, events=events.with_columns(args=column))


def _marked(raw: bytes, marks: dict[str, int]) -> bytes:
    """A JSON object with those marks that exist and are not yet in it."""
    try:
        held = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return raw
    if not isinstance(held, dict):
        return raw
    missing = {k: v for k, v in marks.items() if v >= 0 and k not in held}
    if not missing:
        return raw
    before = raw.rstrip()[:-1] + b", " if held else b"{"
    return before + json.dumps(missing).encode()[1:]


def arrow_ends(trace: Trace) -> tuple[I64, NDArray[Any]]:
    """Both ends of every arrow: the event rows, rising, and the fields for their packets.

    The event that begins first opens the arrow, as an end before its opening would be lost.
    """
    flows, start = trace.flows, trace.events.start_ns
    src, dst = flows.src.astype(np.int64), flows.dst.astype(np.int64)
    turned = (start[dst] < start[src]) | ((start[dst] == start[src]) & (dst < src))
    rows = np.concatenate((np.where(turned, dst, src), np.where(turned, src, dst)))
    n = len(flows)
    ends = np.empty(2 * n, FLOW)
    ends["tag"][:n] = tuple(tag_fixed64(TrackEvent.FLOW_IDS))
    ends["tag"][n:] = tuple(tag_fixed64(TrackEvent.TERMINATING_FLOW_IDS))
    ends["id"] = np.tile(np.arange(1, n + 1, dtype=np.uint64) | np.uint64(trace.rank << 40), 2)
    order = np.argsort(rows, kind="stable")
    return rows[order], ends[order]


def blocks(trace: Trace, base_ns: int, args: Coder | None) -> Iterator[tuple[EventTable, Coded]]:
    """The event rows of a trace in blocks, stamps counted from ``base_ns``, with their arguments.

    Args:
        args: encodes arguments; None leaves them out.
    """
    for first in range(0, len(trace.events), BLOCK):
        part = trace.events.take(slice(first, first + BLOCK))
        part = part.with_columns(start_ns=part.start_ns - base_ns)
        if args is not None:
            yield part, args.block(trace.args, part.args)
        else:
            none, lost = np.zeros(len(part), np.int64), int(np.count_nonzero(part.args >= 0))
            yield part, Coded(b"", none, b"", dropped=lost)


class Encodable:
    """Turns the blocks of one trace into the columns packets are made of, in order.

    Args:
        order: from :func:`name_order`.
    """

    def __init__(self, trace: Trace, order: I64) -> None:
        self._track = trace.events.track
        self._uuids = uuids(trace)
        self._iids = np.zeros(len(trace.strings), np.int32)
        self._iids[order] = np.arange(1, len(order) + 1)
        self._arrow_rows, self._arrows = arrow_ends(trace)
        self._first = 0

    def rows(self, part: EventTable, coded: Coded) -> Rows:
        """The columns of the next block."""
        first, stop = self._first, self._first + len(part)
        self._first = stop
        last = np.ones(len(part), bool)
        following = self._track[first + 1 : stop + 1]
        last[: len(following)] = part.track[: len(following)] != following
        bounds = np.searchsorted(self._arrow_rows, np.arange(first, stop + 1))
        return Rows(
            kind=part.kind,
            last=last,
            time=part.start_ns,
            dur=part.dur_ns,
            uuid=self._uuids[part.track],
            name=self._iids[part.name],
            category=category_numbers(part.op),
            flow_ends=bounds[1:] - bounds[0],
            flows=self._arrows[bounds[0] : bounds[-1]],
            arg_ends=coded.ends,
            args=coded.data,
        )
