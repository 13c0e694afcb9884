"""The native tier: the C scanner over a window, its columns given the codes of the tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from traceconv import native
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32
from traceconv.io.window import Window
from traceconv.readers.shared.numbers import counts_of
from traceconv.readers.shared.trace_events.contract import Probes
from traceconv.readers.shared.trace_events.intake import FlowKey, Intake
from traceconv.readers.shared.trace_events.salvage import State, decoded
from traceconv.readers.shared.trace_events.tables import Flows, Rows, Samples, Tables

if TYPE_CHECKING:
    from traceconv.native import Scanned, Scanner

MAX_GRAPH_KEYS = 8


def native_scanner(probes: Probes, stays: bool, keep: bool = False) -> Scanner | None:
    """A new scanner, or None without the C part: see :mod:`traceconv.native`.

    Args:
        stays: whether the input stays addressable, so that arguments need not be copied.
        keep:  see :func:`~traceconv.readers.shared.trace_events.timeline.read_events`.
    """
    scanner = native.scanner()
    if scanner is None or len(probes.graph) > MAX_GRAPH_KEYS:
        return None
    graph = tuple(key.encode() for key in probes.graph)
    # keys that cannot be predicted, so that no input can be made of strings that collide
    keys = int.from_bytes(os.urandom(8)), int.from_bytes(os.urandom(8))
    return scanner(graph, probes.type.encode(), *keys, not stays, keep)


def scanner_key(scanner: Scanner) -> FlowKey:
    """Keys of flow ends as the scanner makes them."""
    return lambda *end: scanner.flow_key("\0".join(end).encode("utf-8", "surrogatepass"))


class Native:
    """Takes what the scanner can read; stops in front of anything else."""

    def __init__(
        self, scanner: Scanner, build: TraceBuilder, tables: Tables, intake: Intake
    ) -> None:
        self._scanner, self._build = scanner, build
        self._tables, self._intake = tables, intake
        self._shapes, self._names, self._series = _Map(), _Map(), _Map()
        self._numbers, self._types = _Map(), _Map()

    def read(self, window: Window) -> State:
        """Scan the bytes brought, or as much as the scanner holds."""
        status, window.pos = self._scanner.scan(window.data, window.pos, window.end)
        return (State.MORE, State.END, State.ODD, State.GOING)[status]

    def take(self, window: Window, address: int) -> int:
        """Empty the scanner into the tables; how many events it held.

        Args:
            address: of the start of the window's mapping, -1 if it has none.
        """
        scanned = self._scanner.take()
        self._learn(scanned)
        blob = self._build.spill(scanned["blob"]) if scanned["blob"] else 0
        for name, times in scanned["unread"]:
            self._tables.tally.add("event-field-unread", name.decode("utf-8", "replace"), times)
        self._tables.rounded_durations += scanned["rounded_durations"]
        self._tables.rounded_stamps += scanned["rounded_stamps"]
        count = self._rows(scanned["rows"], address if address >= 0 else blob, blob)
        shape, name, start, key, encloses = _arrays(scanned["flows"], "i4 i4 i8 i8 ?")
        if len(shape):
            flows = Flows(self._shapes[shape], self._names[name], start, key, encloses)
            self._tables.flows.append(flows)
        count += len(shape)
        shape, name, series, start, value = _arrays(scanned["samples"], "i4 i4 i4 i8 f8")
        if len(shape):
            self._tables.tally.saw("counter", len(shape))
        codes = self._shapes[shape], self._names[name], self._series[series]
        samples = Samples(*codes, start, value)
        other_records = np.frombuffer(scanned["others"], np.int64).reshape(-1, 3).tolist()
        self._tables.events += count + len(samples)
        # samples of equal times keep the order of the file: Python's come between the scanner's
        taken = 0
        for before, group in groupby(other_records, key=itemgetter(2)):
            self._put_samples(samples, taken, before)
            records = [(bytes(window.data[a:b]), window.place(a)) for a, b, _ in group]
            self._intake.take(decoded(records, self._tables.tally))
            taken = before
        self._put_samples(samples, taken, len(samples))
        return count + len(samples) + len(other_records)

    def _learn(self, scanned: Scanned) -> None:
        """Give the scanner's new codes the codes of the tables."""
        shapes, tables = self._tables.shapes, self._tables
        for raw in scanned["shapes"]:
            parts = [_value(part) for part in raw[1:].split(b"\0")[:3]]
            self._shapes.add(shapes[(chr(raw[0]), *parts)])
        if names := scanned["names"]:
            self._names.extend(
                [tables.names[name] for name in _value(b'["%b"]' % b'","'.join(names))]
            )
        for raw in scanned["series"]:
            key, _, apart = raw.partition(b"\0")  # what tells series of one name apart is behind it
            self._series.add(tables.series[_value(b'"%b"' % key), _value(b'"%b"' % apart)])
        if not scanned["first_value"]:  # the scanner counts them anew
            self._numbers, self._types = _Map(), _Map()
        values = _value(b"[%b]" % b",".join(raw or b"null" for raw in scanned["values"]))
        self._numbers.extend(counts_of(values))
        if str in map(type, values):
            types = tables.types
            self._types.extend([types[v] if isinstance(v, str) else -1 for v in values])
        else:  # numbers, which may be many
            self._types.extend(np.full(len(values), -1, np.int32))

    def _rows(self, columns: Sequence[bytearray], address: int, blob: int) -> int:
        shape, name, start, dur, args, length, graph, step, type_ = _arrays(
            columns, "i4 i4 i8 i8 i8 i4 i4 i4 i4"
        )
        if len(shape):
            args = np.where(args < 0, blob - 1 - args, args + address)
            self._tables.add_rows(
                Rows(
                    self._shapes[shape], self._names[name], start, dur, args, length,
                    self._numbers.or_none(graph), self._numbers.or_none(step),
                    self._types.or_none(type_),
                )
            )  # fmt: skip
        return len(shape)

    def _put_samples(self, samples: Samples, start: int, stop: int) -> None:
        if start < stop:
            self._tables.samples.append(samples.take(slice(start, stop)))


class _Map:
    """A code of the tables for every code of the scanner; -1 stays -1."""

    def __init__(self) -> None:
        self._codes = np.full(1024, -1, np.int32)
        self._count = 0
        self._same = True  # every code represents itself

    def add(self, code: int) -> None:
        self._same = self._same and code == self._count
        if self._count == len(self._codes) - 1:  # the last one stays: it represents -1
            self._codes = np.append(self._codes, np.full(len(self._codes), -1, np.int32))
        self._codes[self._count] = code
        self._count += 1

    def extend(self, codes: Sequence[int] | I32) -> None:
        """Add many."""
        end = self._count + len(codes)
        self._same = self._same and np.array_equal(codes, np.arange(self._count, end))
        if end >= len(self._codes):
            self._codes = np.append(self._codes, np.full(end, -1, np.int32))
        self._codes[self._count : end] = codes
        self._count = end

    def __getitem__(self, codes: I32) -> I32:
        return codes if self._same else self._codes.take(codes)

    def or_none(self, codes: I32) -> I32 | None:
        """The codes of the tables; None if all are absent."""
        mapped = self._codes.take(codes) if (codes >= 0).any() else codes
        return mapped if (mapped >= 0).any() else None


def _value(token: bytes) -> Any:
    return msgspec.json.decode(token) if token else None


def _arrays(columns: Iterable[bytearray], types: str) -> list[Any]:
    """Copies, whose memory is given back when they are freed (:mod:`traceconv.scratch.memory`)."""
    return [np.frombuffer(c, t).copy() for c, t in zip(columns, types.split(), strict=True)]
