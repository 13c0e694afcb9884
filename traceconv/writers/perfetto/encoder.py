"""One rank as Perfetto packets: see :mod:`traceconv.writers.perfetto`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from traceconv.core.errors import Issues
from traceconv.core.model import I64, Mask, Trace
from traceconv.writers import Costs, Document, check_times
from traceconv.writers.perfetto.arguments import Coded, Coder, coder
from traceconv.writers.perfetto.costs import counter_costs, event_costs, flow_costs
from traceconv.writers.perfetto.packets import NONE_OPEN, counter_packets, packets
from traceconv.writers.perfetto.rows import (
    BLOCK,
    Encodable,
    blocks,
    name_order,
    sequence_id,
    tables,
    with_marks,
)
from traceconv.writers.perfetto.tracks import descriptors, root, shown_pid, uuids
from traceconv.writers.perfetto.wire import (
    ATTRIBUTE,
    NEEDS_STATE,
    STATE_CLEARED,
    Attribute,
    TracePacket,
    message,
    number,
    packet,
    text,
)


def head(document: Document) -> bytes:
    """What stands before the first rank."""
    return root() + _attributes(document)


class Encoder:
    """Encodes ranks of one document; books into ``issues`` what could not be written as it was."""

    def __init__(self, document: Document, issues: Issues) -> None:
        self.issues = issues
        self._document = document

    def trace(self, trace: Trace) -> Iterator[bytes]:
        """One rank, in blocks of bounded size.

        Raises:
            ClockError, OutputError: see :meth:`traceconv.writers.perfetto.PerfettoWriter.trace`.
        """
        check_times(trace, self._document.base_ns)
        trace = with_marks(trace, self._document.args)
        yield b"".join(descriptors(trace, _used(trace), self._pid(trace)))
        order, _ = name_order(trace)
        flags = STATE_CLEARED
        for strings in tables(trace, order):
            yield _interned(sequence_id(trace.rank), strings, flags)
            flags = NEEDS_STATE
        yield from self._events(trace, order)
        yield from self._counters(trace)

    def _pid(self, trace: Trace) -> int:
        """The process id shown for a rank, the same for the whole file."""
        pids = {trace.rank: trace.capture.pid, **self._document.pids}
        return shown_pid(trace.rank, pids, self._document.ranks)

    def _events(self, trace: Trace, order: I64) -> Iterator[bytes]:
        """Slices and instants, with arguments and arrows."""
        sequence, opened = sequence_id(trace.rank), NONE_OPEN
        encodable = Encodable(trace, order)
        for part, coded in blocks(trace, self._document.base_ns, _coder(self._document)):
            data, opened = packets(sequence, encodable.rows(part, coded), opened)
            if coded.interned:
                data = _interned(sequence, coded.interned, NEEDS_STATE) + data
            self._book(coded, trace.rank)
            yield data

    def _book(self, coded: Coded, rank: int) -> None:
        self.issues.add("args-not-json", count=coded.not_json, rank=rank)
        self.issues.add("value-clipped", count=coded.clipped, rank=rank)
        self.issues.add("bad-encoding", count=coded.replaced, rank=rank)
        self.issues.add("args-dropped", count=coded.dropped, rank=rank)

    def _counters(self, trace: Trace) -> Iterator[bytes]:
        """Samples. Those that are no finite number cannot be drawn."""
        sequence, tracks = sequence_id(trace.rank), uuids(trace)
        for first in range(0, len(trace.counters), 2 * BLOCK):
            part = trace.counters.take(slice(first, first + 2 * BLOCK))
            finite = np.isfinite(part.value)
            lost = int(np.count_nonzero(~finite))
            if lost:
                part = part.take(finite)
                self.issues.add("counter-not-numeric", count=lost, rank=trace.rank)
            time = part.start_ns - self._document.base_ns
            yield counter_packets(sequence, time, tracks[part.track], part.value)


def costs(trace: Trace, document: Document) -> Costs:
    """What rows take; reads and encodes their arguments once.

    Raises:
        ClockError, OutputError: as :meth:`Encoder.trace`.
    """
    check_times(trace, document.base_ns)
    trace = with_marks(trace, document.args)
    events, shared = event_costs(trace, document.base_ns, _coder(document))
    header = len(head(document))
    share = -(-header // max(len(document.ranks), 1))
    tracks = sum(map(len, descriptors(trace, _used(trace), 2**31 - 1)))
    return Costs(
        fixed=share + tracks + shared,
        events=events,
        counters=counter_costs(trace, document.base_ns),
        flows=flow_costs(trace),
    )


def _coder(document: Document) -> Coder | None:
    """Encodes the arguments that are wanted; None if there are none of them."""
    return None if document.args is not None and not document.args else coder(document.args)


def _used(trace: Trace) -> Mask:
    """Which tracks have events or samples."""
    used = np.zeros(len(trace.tracks), bool)
    used[trace.events.track] = True
    used[trace.counters.track] = True
    return used


def _interned(sequence: bytes, strings: bytes, flags: int) -> bytes:
    return packet(
        sequence,
        number(TracePacket.SEQUENCE_FLAGS, flags),
        message(TracePacket.INTERNED_DATA, strings),
    )


def _attributes(document: Document) -> bytes:
    """The metadata of the trace: scalars as they are, everything else as JSON text."""
    facts: Mapping[str, Any] = {**document.facts, "base_ns": document.base_ns}
    attributes = [
        message(ATTRIBUTE, text(Attribute.KEY, f"traceconv.{key}"), _attribute(value))
        for key, value in facts.items()
    ]
    return packet(message(TracePacket.TRACE_ATTRIBUTES, *attributes))


def _attribute(value: Any) -> bytes:
    if isinstance(value, str):
        return text(Attribute.STRING_VALUE, value)
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return number(Attribute.LONG_VALUE, value)
    return text(Attribute.STRING_VALUE, json.dumps(value, ensure_ascii=False))
