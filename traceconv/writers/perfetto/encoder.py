"""One rank as Perfetto packets: see :mod:`traceconv.writers.perfetto`.

Three steps, block by block: :class:`Encodable` makes of event rows the columns packets consist of,
:mod:`~traceconv.writers.perfetto.arguments` encodes their arguments, and
:mod:`~traceconv.writers.perfetto.packets` makes bytes of both. :func:`costs` measures the result
without making it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.errors import Issues
from traceconv.core.model import I8, I32, I64, Kind, Layer, Mask, OpClass, Trace
from traceconv.protobuf.message import varint_bytes
from traceconv.protobuf.perfetto_schema import (
    ATTRIBUTE,
    NEEDS_STATE,
    STATE_CLEARED,
    Attribute,
    InternedData,
    TracePacket,
    TrackEvent,
)
from traceconv.writers import Costs, Document, check_times
from traceconv.writers.perfetto import own
from traceconv.writers.perfetto.arguments import MAX_NAMES, MAX_STRINGS, Coded, Coder, coder
from traceconv.writers.perfetto.packets import (
    FLOW,
    NONE_OPEN,
    Bytes,
    Rows,
    counter_packets,
    packets,
    varint_sizes,
    whole_numbers,
)
from traceconv.writers.perfetto.tracks import descriptors, root, shared_groups, shown_pids, uuids
from traceconv.writers.perfetto.wire import (
    interned,
    message,
    names,
    number,
    packet,
    tag_fixed64,
    text,
    utf8,
)

BLOCK = 8192
"""Event rows encoded at a time: up to twice as many packets, which fit into the CPU cache."""

NAMES_PER_PACKET = 4096

CATEGORIES: dict[int, bytes] = {op: op.name.lower().encode() for op in OpClass if op}
"""Names of the classes of events; OTHER has none. The number of a name is that of its class."""

_PACKET = 32
"""Bytes of the head of a packet with interned strings, at most."""

_ENTRY = 16
"""Bytes of an entry of a table without its string, at most."""

_RARE = 2
"""Names used no more often count with the rows that use them, others with the table."""

_ODD_PACKET = 24
"""Most bytes of a packet with the original arguments of rows, besides what is of a row."""

_LONGER = 2
"""Bytes by which a few more can lengthen the two length fields around them."""


def head(document: Document) -> bytes:
    """The bytes before the first rank."""
    groups = shared_groups(document.across) if document.across else ()
    facts: Mapping[str, Any] = {**document.facts, "base_ns": document.base_ns}
    attributes = [
        message(ATTRIBUTE, text(Attribute.KEY, f"traceconv.{key}"), _attribute(value))
        for key, value in facts.items()
    ]
    return root() + packet(message(TracePacket.TRACE_ATTRIBUTES, *attributes)) + b"".join(groups)


class Encoder:
    """Encodes ranks of one document; ``issues`` counts what could not be written as it was."""

    def __init__(self, document: Document, issues: Issues) -> None:
        self.issues = issues
        self._document = document
        self._pids: dict[int, int] = {}

    def trace(self, trace: Trace) -> Iterator[bytes]:
        """One rank, in blocks of bounded size.

        Raises:
            ClockError, OutputError: see :meth:`traceconv.writers.perfetto.PerfettoWriter.trace`.
        """
        check_times(trace, self._document.base_ns)
        source = trace
        trace, numbered = with_step_numbers(trace, self._document.args)
        sequence, used = sequence_id(trace.rank), trace.used
        yield own.rank_packet(sequence, source, self._document)
        if trace.rank not in self._pids:
            pids = {trace.rank: trace.capture.pid, **self._document.pids}
            self._pids = shown_pids(pids, self._document.ranks)
        yield b"".join(descriptors(trace, used, self._pids[trace.rank], self._document.across))
        order, _ = name_order(trace)
        flags = STATE_CLEARED
        for strings in tables(trace, order):
            yield _interned(sequence_id(trace.rank), strings, flags)
            flags = NEEDS_STATE
        yield from self._events(trace, order, source, numbered)
        yield from self._counters(trace)

    def _events(self, trace: Trace, order: I64, source: Trace, numbered: Mask) -> Iterator[bytes]:
        """Slices and instants, with arguments and flows; ``source`` is without step numbers."""
        sequence, opened = sequence_id(trace.rank), NONE_OPEN
        encodable = Encodable(trace, order, self._document.base_ns)
        bounds = blocks(trace)
        coded = coded_arguments(trace, bounds, _coder(self._document))
        for block_rows, args in zip(bounds, coded, strict=True):
            data, opened = packets(sequence, encodable.rows(block_rows), args, opened)
            if args.interned:
                yield _interned(sequence, args.interned, NEEDS_STATE)
            yield data
            self.issues.add("args-not-json", count=args.not_json, rank=trace.rank)
            self.issues.add("value-clipped", count=args.clipped, rank=trace.rank)
            self.issues.add("bad-encoding", count=args.replaced, rank=trace.rank)
            self.issues.add("args-dropped", count=args.dropped, rank=trace.rank)
            odd = np.flatnonzero(args.odd | numbered[block_rows]) + block_rows.start
            if len(odd):
                raws = [source.args.raw(i) for i in source.events.args[odd].tolist()]
                yield own.odd_packet(sequence, odd, raws)

    def _counters(self, trace: Trace) -> Iterator[bytes]:
        """Samples. Values that are not finite are left out, because viewers cannot draw them."""
        sequence, tracks = sequence_id(trace.rank), uuids(trace)
        for begin in range(0, len(trace.counters), 2 * BLOCK):
            part = trace.counters.take(slice(begin, begin + 2 * BLOCK))
            finite = np.isfinite(part.value)
            lost = int(np.count_nonzero(~finite))
            if lost:
                part = part.take(finite)
                self.issues.add("counter-not-numeric", count=lost, rank=trace.rank)
            time = part.start_ns - self._document.base_ns
            yield counter_packets(sequence, time, tracks[part.track], part.value)


def _coder(document: Document) -> Coder | None:
    """Encodes the selected arguments; None if none are selected."""
    return None if document.args is not None and not document.args else coder(document.args)


def _interned(sequence: bytes, strings: bytes, flags: int) -> bytes:
    return packet(
        sequence,
        number(TracePacket.SEQUENCE_FLAGS, flags),
        message(TracePacket.INTERNED_DATA, strings),
    )


def _attribute(value: Any) -> bytes:
    if isinstance(value, str):
        return text(Attribute.STRING_VALUE, value)
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return number(Attribute.LONG_VALUE, value)
    return text(Attribute.STRING_VALUE, json.dumps(value, ensure_ascii=False))


def sequence_id(rank: int) -> bytes:
    """The field that names a rank's packet sequence."""
    return number(TracePacket.TRUSTED_PACKET_SEQUENCE_ID, rank + 1)


def name_order(trace: Trace) -> tuple[I64, I64]:
    """Ids of the strings that name events, the most frequent first, and how often they do."""
    counts = np.bincount(trace.events.name, minlength=len(trace.strings))
    used = np.flatnonzero(counts)
    # frequent names first: low numbers take one byte, and there is one in every packet
    order = used[np.argsort(-counts[used], kind="stable")]
    return order, counts[order]


def tables(trace: Trace, order: I64) -> Iterator[bytes]:
    """Contents of InternedData, in parts of bounded size: categories, then names by number."""
    ops = np.unique(trace.events.op).tolist()
    part = [
        interned(InternedData.EVENT_CATEGORIES, op, CATEGORIES[op])
        for op in ops
        if op in CATEGORIES
    ]
    values, done = trace.strings.of(order), 0
    while True:
        block_names = values[done : done + NAMES_PER_PACKET - len(part)]
        yield b"".join(part) + names(block_names, done + 1)
        done, part = done + len(block_names), []
        if done == len(values):
            return


def category_numbers(op: I8) -> Bytes:
    """The category of each class; 0 for those without."""
    numbers = np.zeros(256, np.uint8)
    numbers[list(CATEGORIES)] = list(CATEGORIES)
    return numbers[op.view(np.uint8)]  # an int8 below 0 is read as 128 and more, which have none


def with_step_numbers(trace: Trace, selected: frozenset[str] | None) -> tuple[Trace, Mask]:
    """``trace`` with ``step`` and ``graph``, if selected, among the arguments of its step rows; and
    which rows have got them, where all arguments are written.
    """
    events, numbered = trace.events, np.zeros(len(trace.events), bool)
    columns = {
        key: column
        for key, column in (("step", events.step), ("graph", events.graph))
        if selected is None or key in selected
    }
    rows = np.flatnonzero(trace.rows_of(Layer.STEP)) if columns else np.empty(0, np.int64)
    changed: dict[int, bytes] = {}
    for row in rows.tolist():
        raw = trace.args.raw(int(events.args[row]))
        missing = _missing(raw, {key: int(column[row]) for key, column in columns.items()})
        if missing:
            before = raw.rstrip()[:-1] + b", " if raw.strip(b"{} \t\r\n") else b"{"
            changed[row] = before + json.dumps(missing).encode()[1:]
    if not changed:
        return trace, numbered
    args, first_id = trace.args.extended(list(changed.values()))
    column = events.args.copy()
    column[list(changed)] = np.arange(first_id, first_id + len(changed))
    numbered[list(changed)] = selected is None
    return replace(trace, args=args, events=events.with_columns(args=column)), numbered


def _missing(raw: bytes, numbers: dict[str, int]) -> dict[str, int]:
    """The numbers that are known (not -1) and not in a JSON object yet."""
    try:
        present = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(present, dict):
        return {}
    return {k: v for k, v in numbers.items() if v >= 0 and k not in present}


_FLOW_TAGS = np.array(
    [tuple(tag_fixed64(field)) for field in (TrackEvent.FLOW_IDS, TrackEvent.TERMINATING_FLOW_IDS)],
    np.uint8,
)


class ArrowEnds(msgspec.Struct, frozen=True):
    """Both ends of every flow of a rank, by the event row they are at.

    Attributes:
        rank: global rank.
        row:  int32 per end, ascending.
        end:  int32 per end: the number of its flow, more by the number of flows where it ends.
    """

    rank: int
    row: I32
    end: I32

    @classmethod
    def of(cls, trace: Trace) -> ArrowEnds:
        """The ends of the flows of ``trace``.

        The event that begins first opens the flow: viewers drop an end before its opening.
        """
        src, dst = trace.flows.src, trace.flows.dst
        turned = own.turned_flows(trace)
        # all openings, then all ends, so that one stable sort keeps an opening before its end
        row = np.concatenate((np.where(turned, dst, src), np.where(turned, src, dst)))
        end = np.argsort(row, kind="stable").astype(np.int32)
        return cls(trace.rank, row.take(end), end)

    def of_rows(self, first: int, stop: int) -> tuple[I64, NDArray[Any]]:
        """The flow ends of rows from ``first`` up to ``stop``: where those of each row end."""
        low, high = np.searchsorted(self.row, np.array([first, stop], np.int32)).tolist()
        counts = np.bincount(self.row[low:high] - np.int32(first), minlength=stop - first)
        end, arrows = self.end[low:high], np.int32(len(self.end) // 2)
        closes = end >= arrows
        flow_fields = np.empty(len(end), FLOW)
        flow_fields["tag"] = _FLOW_TAGS.take(closes, axis=0)
        # ids are unique in a file: the rank is in the bits from 40 up
        flow_fields["id"] = (end - closes * arrows).astype(np.uint64) + np.uint64(
            (self.rank << 40) + 1
        )
        return np.cumsum(counts, dtype=np.int64), flow_fields


def blocks(trace: Trace) -> list[slice]:
    """The event rows that are encoded at a time."""
    return [slice(first, first + BLOCK) for first in range(0, len(trace.events), BLOCK)]


def coded_arguments(trace: Trace, bounds: list[slice], args: Coder | None) -> Iterator[Coded]:
    """The arguments of the rows of every block; ``args`` encodes them, None leaves them out."""
    ids = (trace.events.args[block_rows] for block_rows in bounds)
    return (
        map(_without_arguments, ids) if args is None else map(partial(args.block, trace.args), ids)
    )


def _without_arguments(ids: I32) -> Coded:
    lost = int(np.count_nonzero(ids >= 0))
    return Coded(b"", np.zeros(len(ids), np.int64), b"", np.zeros(len(ids), np.uint8), dropped=lost)


class Encodable:
    """Turns blocks of a trace into the columns packets consist of.

    Args:
        order: from :func:`name_order`.
    """

    def __init__(self, trace: Trace, order: I64, base_ns: int) -> None:
        self._events, self._base_ns = trace.events, base_ns
        self._uuids = uuids(trace)
        self._iids = np.zeros(len(trace.strings), np.int32)
        self._iids[order] = np.arange(1, len(order) + 1)
        self._arrows = ArrowEnds.of(trace)

    def rows(self, some: slice) -> Rows:
        """The columns of a block."""
        part = self._events.take(some)
        # the last row of a track is followed by another track; the last of all by nothing
        is_last = np.ones(len(part), bool)
        following = self._events.track[some.start + 1 : some.stop + 1]
        is_last[: len(following)] = part.track[: len(following)] != following
        flow_ends, flows = self._arrows.of_rows(some.start, some.start + len(part))
        return Rows(
            kind=part.kind,
            last=is_last,
            time=part.start_ns - self._base_ns,
            dur=part.dur_ns,
            uuid=self._uuids.take(part.track),
            name=self._iids.take(part.name),
            category=category_numbers(part.op),
            flow_ends=flow_ends,
            flows=flows,
        )


def costs(trace: Trace, document: Document) -> Costs:
    """What rows take, without writing them; reads and encodes their arguments once.

    The bounds hold for every selection of rows. Numbers of strings depend on which rows there
    are, so each is counted with the widest number of its table; the tables count once, as a whole.

    Raises:
        ClockError, OutputError: as :meth:`Encoder.trace`.
    """
    check_times(trace, document.base_ns)
    own_bytes, rows, flows = own.costs(sequence_id(trace.rank), trace, document)
    trace, numbered = with_step_numbers(trace, document.args)
    events, shared = event_costs(trace, document.base_ns, _coder(document), numbered)
    share = -(-len(head(document)) // max(len(document.ranks), 1))
    tracks = sum(map(len, descriptors(trace, trace.used, 2**31 - 1, document.across)))
    return Costs(
        fixed=share + tracks + shared + own_bytes,
        events=events + rows,
        counters=counter_costs(trace, document.base_ns),
        flows=flow_costs(trace) + flows,
    )


def event_costs(trace: Trace, base_ns: int, args: Coder | None, numbered: Mask) -> tuple[I64, int]:
    """Bytes of every event row, and of the tables of strings they share.

    Args:
        numbered: rows whose arguments are written as they were, too.
    """
    order, uses = name_order(trace)
    shared, per_name = _name_costs(trace, order, uses)
    uuid_sizes, sequence = varint_sizes(uuids(trace)), len(sequence_id(trace.rank))
    costs, arguments = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    bounds = blocks(trace)
    for block_rows, coded in zip(bounds, coded_arguments(trace, bounds, args), strict=True):
        part = trace.events.take(block_rows)
        part = part.with_columns(start_ns=part.start_ns - base_ns)
        uuid, argument = uuid_sizes[part.track], np.diff(coded.ends, prepend=0)
        category = (category_numbers(part.op) > 0) * 2
        begin = framed(part.start_ns, sequence, 3 + uuid + category + argument)
        end = framed(part.end_ns, sequence, 3 + uuid)
        cost = begin + np.where(part.kind == Kind.SLICE, end, 0) + per_name[part.name]
        odd = np.flatnonzero(coded.odd | numbered[block_rows])
        length = trace.args.length[part.args[odd]]
        cost[odd] += 2 + len(varint_bytes(len(trace.events))) + varint_sizes(length) + length
        shared += _ODD_PACKET * bool(len(odd))
        costs.append(cost)
        arguments.append(argument)
        shared += _PACKET + len(coded.interned)
    total = np.concatenate(costs)
    if args is not None:
        wider, full = _selection_slack(np.concatenate(arguments), *args.sizes)
        total += wider
        shared += full
    return total, shared


def framed(time: I64, sequence: int, event: I64) -> I64:
    """Size of packets whose sequence id takes ``sequence`` bytes, their TrackEvent ``event``."""
    body = 4 + sequence + varint_sizes(time) + varint_sizes(event) + event
    return 1 + varint_sizes(body) + body


def _name_costs(trace: Trace, order: I64, uses: I64) -> tuple[int, I64]:
    """Bytes of the table of frequent names, and of each name wherever it is used."""
    often = order[uses > _RARE]
    shared = sum(_PACKET + len(part) for part in tables(trace, often))
    shared += 3 * len(often) + _PACKET * (len(order) // NAMES_PER_PACKET)
    number = 1 + len(varint_bytes(len(order)))
    per_name = np.full(len(trace.strings), number + _LONGER, np.int64)
    for string in order[uses <= _RARE].tolist():
        entry = interned(InternedData.EVENT_NAMES, len(order), utf8(trace.strings[string]))
        per_name[string] += len(entry)
    return shared, per_name


def _selection_slack(argument: I64, names: int, strings: int) -> tuple[I64, int]:
    """What single rows, and all together, may take more when other rows are left out.

    Numbers may be wider: no argument is shorter than 5 bytes, none with a string by number
    shorter than 7. Tables that are full may then have other strings in them.
    """
    wider = argument // 5 * (len(varint_bytes(names)) - 1) + argument // 7 * (
        len(varint_bytes(strings)) - 1
    )
    full = MAX_NAMES * (names >= MAX_NAMES) + MAX_STRINGS * (strings >= MAX_STRINGS)
    return wider + _LONGER * (wider > 0), full * _ENTRY


def counter_costs(trace: Trace, base_ns: int) -> I64:
    """Bytes of every counter sample."""
    counters = trace.counters
    is_whole = whole_numbers(counters.value)
    value = np.where(
        is_whole, varint_sizes(np.where(is_whole, counters.value, 0).astype(np.int64)), 8
    )
    uuid = varint_sizes(uuids(trace))[counters.track]
    return framed(counters.start_ns - base_ns, len(sequence_id(trace.rank)), 5 + uuid + value)


def flow_costs(trace: Trace) -> I64:
    """Bytes of every flow: both ends."""
    return np.full(len(trace.flows), 2 * (FLOW.itemsize + _LONGER), np.int64)
