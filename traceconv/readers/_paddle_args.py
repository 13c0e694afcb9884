"""What Paddle's JSON keeps among the arguments of events: times, correlation ids, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import F64, I32, I64
from traceconv.readers._trace_events.decimals import GOOD, nanoseconds
from traceconv.readers._trace_events.decode import BROKEN
from traceconv.readers._trace_events.tables import Rows

BATCH_ROWS = 16384
SPAN_BYTES = 64 << 20
"""Arguments of a batch that lie within so many bytes are fetched at once."""

TIMED, RICH, MEMORY, RAW = range(4)
"""What is expected of a category: nothing but times; more; figures of memory; anything."""

CORRELATION = "correlation id"
_SKIPPED = ("start_time", "end_time")  # they are the times of the event itself
_NOTHING: tuple[Any, ...] = ({}, "")


class _Times(Struct, gc=False, forbid_unknown_fields=True):
    start_time: str
    end_time: str


class _Memory(Struct, gc=False):
    place: str = ""
    current_allocated: int | float | None = None
    current_reserved: int | float | None = None


_decode_times = msgspec.json.Decoder(list[_Times]).decode
_decode_memory = msgspec.json.Decoder(list[_Memory]).decode
_decode_any = msgspec.json.Decoder(list[dict[str, Any]]).decode
_encode = msgspec.json.encode


@dataclass
class Said:
    """What the arguments of rows say.

    Attributes:
        since: time since the first event of the file, ns; where ``timed``.
        correlation: id that calls share with what they launch; where ``launches``.
        args:  ids of the builder for the rest, -1 if there is none.
        memory: (rows, places, bytes allocated, bytes reserved) of each batch of memory events.
    """

    since: I64
    timed: NDArray[np.bool_]
    correlation: I64
    launches: NDArray[np.bool_]
    args: I32
    memory: list[tuple[I64, list[str], F64, F64]] = field(default_factory=list)


def look(rows: Rows, expect: Sequence[int], types: Sequence[str], build: TraceBuilder) -> Said:
    """Look into the arguments of all rows.

    Args:
        expect: TIMED, RICH, MEMORY or RAW by shape.
        types:  by shape, what is put among the arguments as "type"; "" for nothing.
    """
    n = len(rows)
    said = Said(
        np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, np.int64), np.zeros(n, bool),
        np.full(n, -1, np.int32),
    )  # fmt: skip
    _Looking(rows, types, build, said).run(np.array(expect, np.int8))
    return said


class _Looking:
    def __init__(self, rows: Rows, types: Sequence[str], build: TraceBuilder, said: Said) -> None:
        self._rows, self._types, self._build, self._said = rows, types, build, said
        self._plain = np.full(len(types), -1, np.int32)  # args that hold nothing but the type

    def run(self, expect: NDArray[np.int8]) -> None:
        rows, takes = self._rows, (self._timed, self._rich, self._memory, self._raw)
        self._said.args[:] = self._types_of(rows.shape)
        for at in range(0, len(rows), BATCH_ROWS):
            batch = np.arange(at, min(at + BATCH_ROWS, len(rows)))
            batch = batch[rows.length[batch] > 0]
            raws = np.array([*self._raws(batch), None], object)[:-1]  # objects, whatever they hold
            of_batch = expect[rows.shape[batch]]
            for what, take in enumerate(takes):
                chosen = of_batch == what
                if chosen.any():
                    take(batch[chosen], raws[chosen].tolist())

    def _types_of(self, shape: I32) -> I32:
        """Ids of arguments that hold nothing but the type."""
        for code in np.unique(shape).tolist():
            if self._types[code]:
                self._plain[code] = self._build.args({"type": self._types[code]})
        found: I32 = self._plain[shape]
        return found

    def _raws(self, batch: I64) -> list[bytes]:
        """The arguments of rows, fetched at once where they lie close together."""
        address, length = self._rows.args[batch], self._rows.length[batch]
        if not len(batch):
            return []
        first, last = int(address.min()), int((address + length).max())
        if last - first > SPAN_BYTES:
            pairs = zip(address.tolist(), length.tolist(), strict=True)
            return [self._build.stored(a, n) for a, n in pairs]
        text = self._build.stored(first, last - first)
        start = address - first
        ends = zip(start.tolist(), (start + length).tolist(), strict=True)
        return [text[a:b] for a, b in ends]

    def _timed(self, batch: I64, raws: list[bytes]) -> None:
        try:
            found = _decode_times(_list(raws))
        except BROKEN:
            self._rich(batch, raws)
            return
        self._take_since(batch, [one.start_time for one in found])

    def _rich(self, batch: I64, raws: list[bytes]) -> None:
        try:
            found = _decode_any(_list(raws))
        except BROKEN:
            found = [_any(raw) for raw in raws]
        self._take_since(batch, [str(args.get("start_time", "")) for args in found])
        ids = [args.get(CORRELATION) for args in found]
        there = np.array([type(i) is int and -(2**63) <= i < 2**63 for i in ids])
        self._said.launches[batch] = there
        chosen: Any = list(compress(ids, there.tolist()))
        self._said.correlation[batch[there]] = chosen
        self._keep(batch, [_rest(args) for args in found])

    def _keep(self, batch: I64, rest: list[dict[str, Any]]) -> None:
        """Register what is left of arguments."""
        full = np.array([bool(args) for args in rest])
        if not full.any():
            return
        shapes = self._rows.shape[batch].tolist()
        texts = [
            _encode({"type": self._types[s], **args} if self._types[s] else args)
            for s, args in zip(shapes, rest, strict=True)
            if args
        ]
        length = np.array([len(text) for text in texts], np.int32)
        first = self._build.args_bytes(b"".join(texts), length)
        self._said.args[batch[full]] = np.arange(first, first + len(texts))

    def _memory(self, batch: I64, raws: list[bytes]) -> None:
        self._raw(batch, raws)
        try:
            found = _decode_memory(_list(raws))
        except BROKEN:
            return  # it stays an instant with these arguments
        figures = ((m.current_allocated, m.current_reserved) for m in found)
        values = np.array([[np.nan if v is None else v for v in pair] for pair in figures], float)
        places = [m.place for m in found]
        self._said.memory.append((batch, places, values[:, 0], values[:, 1]))

    def _raw(self, batch: I64, raws: list[bytes]) -> None:
        first = self._build.args_at(self._rows.args[batch], self._rows.length[batch])
        self._said.args[batch] = np.arange(first, first + len(raws))

    def _take_since(self, batch: I64, texts: list[str]) -> None:
        times = nanoseconds([text.removesuffix(" us").encode() for text in texts])
        self._said.timed[batch] = times.state == GOOD
        self._said.since[batch] = times.ns


def _list(raws: list[bytes]) -> bytes:
    return b"".join((b"[", b",".join(raws), b"]"))


def _any(raw: bytes) -> dict[str, Any]:
    try:
        args = msgspec.json.decode(raw)
    except BROKEN:
        args = raw.decode("utf-8", "replace")
    return args if isinstance(args, dict) else {"args": args}


def _rest(args: dict[str, Any]) -> dict[str, Any]:
    """What is worth keeping: no times, nothing empty."""
    return {k: v for k, v in args.items() if k not in _SKIPPED and v not in _NOTHING}
