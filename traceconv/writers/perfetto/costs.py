"""What rows take, without writing them: bounds that hold for every selection of rows.

Numbers of strings follow from which rows there are, so each is counted with the widest number of
its table; the tables themselves count once, as a whole.
"""

from __future__ import annotations

import numpy as np

from traceconv.core.model import I64, EventTable, Kind, Trace
from traceconv.writers.perfetto.arguments import MAX_NAMES, MAX_STRINGS, Coder
from traceconv.writers.perfetto.packets import FLOW, varint_sizes, whole_numbers
from traceconv.writers.perfetto.rows import (
    NAMES_PER_PACKET,
    blocks,
    category_numbers,
    name_entry,
    name_order,
    sequence_id,
    tables,
)
from traceconv.writers.perfetto.tracks import uuids
from traceconv.writers.perfetto.wire import varint

_PACKET = 32
"""Head of a packet with interned strings, at most."""

_ENTRY = 16
"""An entry of a table without its string, at most."""

_RARE = 2
"""Names used no more often are paid for by the rows that use them, others by the table."""


def event_costs(trace: Trace, base_ns: int, args: Coder | None) -> tuple[I64, int]:
    """Bytes of every event row, and of the tables of strings they share."""
    order, uses = name_order(trace)
    shared, per_name = _name_costs(trace, order, uses)
    uuid_sizes, sequence = varint_sizes(uuids(trace)), len(sequence_id(trace.rank))
    costs, arguments = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part, coded in blocks(trace, base_ns, args):
        uuid, argument = uuid_sizes[part.track], np.diff(coded.ends, prepend=0)
        costs.append(_packets(part, uuid, argument, sequence) + per_name[part.name])
        arguments.append(argument)
        shared += _PACKET + len(coded.interned)
    cost = np.concatenate(costs)
    if args is not None:
        wider, full = _tables_of_others(np.concatenate(arguments), *args.sizes)
        cost += wider
        shared += full
    return cost, shared


def _packets(part: EventTable, uuid: I64, argument: I64, sequence: int) -> I64:
    """Bytes of the packets of rows, names left out."""
    category = (category_numbers(part.op) > 0) * 2
    begin = framed(part.start_ns, sequence, 3 + uuid + category + argument)
    end = framed(part.end_ns, sequence, 3 + uuid)
    return begin + np.where(part.kind == Kind.SLICE, end, 0)


def framed(time: I64, sequence: int, event: I64) -> I64:
    """Size of packets whose sequence id takes ``sequence`` bytes, their TrackEvent ``event``."""
    body = 4 + sequence + varint_sizes(time) + varint_sizes(event) + event
    return 1 + varint_sizes(body) + body


def _name_costs(trace: Trace, order: I64, uses: I64) -> tuple[int, I64]:
    """What the table of names takes for those used often, and each name wherever it is used."""
    often = order[uses > _RARE]
    shared = sum(_PACKET + len(part) for part in tables(trace, often))
    shared += 3 * len(often) + _PACKET * (len(order) // NAMES_PER_PACKET)
    number = 1 + len(varint(len(order)))
    each = np.full(len(trace.strings), number + _LONGER, np.int64)
    for string in order[uses <= _RARE].tolist():
        each[string] += len(name_entry(trace, string, len(order)))
    return shared, each


_LONGER = 2
"""Bytes by which a few more can lengthen the two length fields around them."""


def _tables_of_others(argument: I64, names: int, strings: int) -> tuple[I64, int]:
    """What rows may take more, and all together, when other rows are left out.

    Numbers may be wider: no argument is shorter than 5 bytes, none with a string by number
    shorter than 7. Tables that are full may hold other strings.
    """
    wider = argument // 5 * (len(varint(names)) - 1) + argument // 7 * (len(varint(strings)) - 1)
    full = MAX_NAMES * (names >= MAX_NAMES) + MAX_STRINGS * (strings >= MAX_STRINGS)
    return wider + _LONGER * (wider > 0), full * _ENTRY


def counter_costs(trace: Trace, base_ns: int) -> I64:
    """Bytes of every counter sample."""
    counters = trace.counters
    whole = whole_numbers(counters.value)
    value = np.where(whole, varint_sizes(np.where(whole, counters.value, 0).astype(np.int64)), 8)
    uuid = varint_sizes(uuids(trace))[counters.track]
    return framed(counters.start_ns - base_ns, len(sequence_id(trace.rank)), 5 + uuid + value)


def flow_costs(trace: Trace) -> I64:
    """Bytes of every arrow: both ends."""
    return np.full(len(trace.flows), 2 * (FLOW.itemsize + _LONGER), np.int64)
