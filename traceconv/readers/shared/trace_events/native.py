"""The native tier: the C scanner over a window, its columns given the codes of the tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from traceconv import native
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64
from traceconv.io.window import Window
from traceconv.readers.shared.numbers import count_of
from traceconv.readers.shared.trace_events.contract import Probes
from traceconv.readers.shared.trace_events.python_columns import Ends, Intake
from traceconv.readers.shared.trace_events.salvage import State, decoded
from traceconv.readers.shared.trace_events.tables import Flows, Rows, Samples, Tables

if TYPE_CHECKING:
    from traceconv.native import Scanned, Scanner

MAX_GRAPH_KEYS = 8


def native_scanner(probes: Probes, stays: bool) -> Scanner | None:
    """A new scanner, or None if there is none: see :mod:`traceconv.native`.

    Args:
        stays: whether the input stays addressable, so that arguments need not be copied.
    """
    scanner = native.scanner()
    if scanner is None or len(probes.graph) > MAX_GRAPH_KEYS:
        return None
    keys = tuple(key.encode() for key in probes.graph)
    return scanner(keys, probes.type.encode(), _random(), _random(), not stays)


def _random() -> int:
    """64 bits that cannot be predicted, so that no input can be made of keys that collide."""
    return int.from_bytes(os.urandom(8))


class FlowKeys:
    """Keys of arrow ends as the scanner makes them; see ``intake.FlowKeys``."""

    def __init__(self, scanner: Scanner) -> None:
        self._key = scanner.flow_key

    def __call__(self, ends: Ends) -> I64:
        texts = ("\0".join(end).encode("utf-8", "surrogatepass") for end in ends)
        return np.fromiter(map(self._key, texts), np.int64)


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
        found = self._scanner.take()
        self._learn(found)
        if address < 0 and found["blob"]:
            address = self._build.spill(found["blob"])
        self._tables.rounded_durations += found["rounded_durations"]
        self._tables.rounded_stamps += found["rounded_stamps"]
        count = self._rows(found["rows"], address)
        count += self._flows(found["flows"]) + self._samples(found["samples"])
        self._tables.events += count
        return count + self._others(np.frombuffer(found["others"], np.int64), window)

    def _learn(self, found: Scanned) -> None:
        """Give the scanner's new codes the codes of the tables."""
        shapes, tables = self._tables.shapes, self._tables
        for raw in found["shapes"]:
            parts = [_value(part) for part in raw[1:].split(b"\0")[:3]]
            self._shapes.add(shapes[(chr(raw[0]), *parts)])
        for raw in found["names"]:
            self._names.add(tables.names[_value(b'"%b"' % raw)])
        for raw in found["series"]:
            self._series.add(tables.series[_value(b'"%b"' % raw), ""])
        values = _value(b"[%b]" % b",".join(raw or b"null" for raw in found["values"]))
        self._numbers.extend(list(map(count_of, values)))
        types = tables.types
        self._types.extend([types[v] if isinstance(v, str) else -1 for v in values])

    def _rows(self, columns: Sequence[bytearray], address: int) -> int:
        shape, name, start, dur, args, length, graph, step, type_ = _arrays(
            columns, "i4 i4 i8 i8 i8 i4 i4 i4 i4"
        )
        if len(shape):
            args += max(address, 0)
            self._tables.add_rows(
                Rows(
                    self._shapes[shape], self._names[name], start, dur, args, length,
                    self._numbers.or_none(graph), self._numbers.or_none(step),
                    self._types.or_none(type_),
                )
            )  # fmt: skip
        return len(shape)

    def _flows(self, columns: Sequence[bytearray]) -> int:
        shape, name, start, key, encloses = _arrays(columns, "i4 i4 i8 i8 ?")
        if len(shape):
            flows = Flows(self._shapes[shape], self._names[name], start, key, encloses)
            self._tables.flows.append(flows)
        return len(shape)

    def _samples(self, columns: Sequence[bytearray]) -> int:
        shape, name, series, start, value = _arrays(columns, "i4 i4 i4 i8 f8")
        if len(shape):
            codes = self._shapes[shape], self._names[name], self._series[series]
            self._tables.samples.append(Samples(*codes, start, value))
            self._tables.tally.saw("counter", len(shape))
        return len(shape)

    def _others(self, spans: I64, window: Window) -> int:
        pairs = spans.reshape(-1, 2).tolist()
        records = [(bytes(window.data[a:b]), window.place(a)) for a, b in pairs]
        if records:
            self._intake.take(decoded(records, self._tables.tally))
        return len(records)


class _Map:
    """A code of the tables for every code of the scanner; -1 stays -1."""

    def __init__(self) -> None:
        self._codes = np.full(1024, -1, np.int32)
        self._count = 0

    def add(self, code: int) -> None:
        if self._count == len(self._codes) - 1:  # the last one stays: it represents -1
            self._codes = np.append(self._codes, np.full(len(self._codes), -1, np.int32))
        self._codes[self._count] = code
        self._count += 1

    def extend(self, codes: Sequence[int]) -> None:
        """Add many."""
        end = self._count + len(codes)
        if end >= len(self._codes):
            self._codes = np.append(self._codes, np.full(end, -1, np.int32))
        self._codes[self._count : end] = codes
        self._count = end

    def __getitem__(self, codes: I32) -> I32:
        return self._codes[codes]

    def or_none(self, codes: I32) -> I32 | None:
        """The same; None if no row says anything."""
        found = self._codes[codes] if (codes >= 0).any() else codes
        return found if (found >= 0).any() else None


def _value(token: bytes) -> Any:
    return msgspec.json.decode(token) if token else None


def _arrays(columns: Iterable[bytearray], types: str) -> list[Any]:
    """Copies, in memory that is given back when they are freed (see :mod:`traceconv.io.memory`)."""
    return [np.frombuffer(c, t).copy() for c, t in zip(columns, types.split(), strict=True)]
