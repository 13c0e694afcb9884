"""Arguments of events in the Python tier: where their bytes lie, and the probed values in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64
from traceconv.readers.shared.trace_events.contract import Probes
from traceconv.readers.shared.trace_events.decode import BROKEN, NOTHING
from traceconv.readers.shared.trace_events.tables import Codes, whole_number

_BLANK, _SPACE, _QUOTE, _COLON, _OPEN, _CLOSE = 33, 32, 34, 58, 123, 125
_KEY = re.compile(rb'"args"\s*:\s*(?=\{)')


@dataclass(frozen=True)
class Located:
    """Arguments of many rows: address, length (0 where there are none), and the bytes, ``b""``
    for none.
    """

    address: I64
    length: I32
    raws: list[bytes]

    def take(self, rows: NDArray[np.bool_]) -> Located:
        """The marked rows."""
        raws = list(compress(self.raws, rows.tolist()))
        return Located(self.address[rows], self.length[rows], raws)


class Arguments:
    """Finds or stores argument bytes, and probes them.

    Args:
        types: codes of the values of the type probe, shared by all batches of a file.
    """

    def __init__(self, build: TraceBuilder, probes: Probes, types: Codes[str]) -> None:
        self._build = build
        keys = [*probes.graph, probes.type]
        self._fast = _decoder(keys, int | float | str | None)
        self._slow = _decoder(keys, msgspec.Raw)
        self._numbers, self._answers = _Numbers(), _Answers(types)
        self._finder = _Finder()

    def locate(self, values: Sequence[Any], text: bytes, address: int) -> Located:
        """Find or store arguments.

        Args:
            values: JSON per row, ``b""`` where there is none.
            text, address: see ``Intake.take``.
        """
        raws = [b"" if value is NOTHING else bytes(value) for value in values]
        blob = np.frombuffer(b"".join(raws), np.uint8)
        length = np.fromiter(map(len, raws), np.int32, len(raws))
        start = np.cumsum(length, dtype=np.int64) - length
        there = length > 0
        if (blob[start[there]] != _OPEN).any():
            return self.locate([_object(raw) for raw in raws], b"", -1)
        second = blob[start[there] + 1]
        odd = np.flatnonzero(there)[(second < _BLANK) | (second == _CLOSE)]
        full = there.copy()
        full[odd] = [bool(raws[i][1:-1].strip()) for i in odd.tolist()]
        if address >= 0:
            inner = list(compress(raws, there.tolist()))
            start[there] = self._finder.places(inner, text)
            start += address
        elif len(blob):
            start += self._build.spill(blob.tobytes())
        return Located(start, np.where(full, length, np.int32(0)), raws)

    def probe(self, raws: Sequence[bytes]) -> tuple[I32 | None, I32 | None]:
        """Graph per row, and code of the type; None where no row has any."""
        text = b"[" + b",".join(filter(None, raws)) + b"]"
        known = self._answers
        try:
            found = list(map(known.__getitem__, map(astuple, self._fast(text))))
        except BROKEN:
            found = [known[_scalars(probed)] for probed in self._slow(text)]
        packed = np.array(found, np.int64)
        graph, type_ = packed >> 32, (packed & 0xFFFFFFFF) - 1
        return _spread(graph, raws), _spread(type_, raws)

    def numbers(self, values: Sequence[int | float | str | None]) -> list[int]:
        """Graphs or steps of argument values, -1 where there is none."""
        return list(map(self._numbers.__getitem__, values))


def _object(raw: bytes) -> bytes:
    """Arguments as an object: anything else becomes its only member."""
    if raw in (b"", b"null"):
        return b""
    return raw if raw.startswith(b"{") else b'{"args": ' + raw + b"}"


class _Finder:
    """Finds arguments in the text they were decoded from."""

    def __init__(self) -> None:
        self._scratch = np.empty((2, 0), bool)  # kept: fresh pages would cost more than the search

    def places(self, raws: list[bytes], text: bytes) -> list[int]:
        """Where each of ``raws`` stands, in their order (or equal bytes before it).

        Usually the objects behind ``"args":`` are just those; a string or an inner object may
        look like more.
        """
        places = self._behind_keys(text)
        if len(places) == len(raws) and all(map(text.startswith, raws, places)):
            return places
        at, places = 0, []
        for raw in raws:
            match = _KEY.search(text, at)
            at = match.end() if match and text.startswith(raw, match.end()) else text.find(raw, at)
            places.append(at)
            at += len(raw)
        return places

    def _behind_keys(self, text: bytes) -> list[int]:
        """Where ``{`` stands behind ``"args":`` and at most one blank."""
        n = max(len(text) - 9, 0)
        if self._scratch.shape[1] < n:
            self._scratch = np.empty((2, n), bool)
        chars = np.frombuffer(text, np.uint8)
        found = np.equal(chars[:n], _QUOTE, out=self._scratch[0, :n])
        found &= np.equal(chars[1 : n + 1], ord("a"), out=self._scratch[1, :n])
        at = np.flatnonzero(found)
        for i, char in enumerate(b'rgs":', 2):
            at = at[chars[at + i] == char]
        at += 7
        at += chars[at] == _SPACE
        places: list[int] = at[chars[at] == _OPEN].tolist()
        return places


class _Numbers(dict[Any, int]):
    def __missing__(self, value: Any) -> int:
        number = self[value] = whole_number(value)
        return number


class _Answers(dict[tuple[Any, ...], int]):
    """What probes find in arguments: graph in the upper half of an integer, in the lower one the
    code of the type plus 1. There are few combinations, met many times.
    """

    def __init__(self, types: Codes[str]) -> None:
        super().__init__()
        self._types = types

    def __missing__(self, values: tuple[Any, ...]) -> int:
        *graphs, type_ = values
        graph = whole_number(next((g for g in graphs if g is not None), None))
        code = self._types[type_] if isinstance(type_, str) else -1
        packed = self[values] = (graph << 32) | (code + 1)
        return packed


_ODD = object()


def _scalars(probed: Any) -> tuple[Any, ...]:
    """Probed values of any type; those that mean nothing are one."""
    return tuple(v if v is None else _scalar(bytes(v)) for v in astuple(probed))


def _scalar(raw: bytes) -> Any:
    try:
        value = msgspec.json.decode(raw)
    except BROKEN:  # a number beyond any double
        return _ODD
    plain = isinstance(value, int | float | str) and not isinstance(value, bool)
    return value if value is None or plain else _ODD


def _spread(found: I64, raws: Sequence[bytes]) -> I32 | None:
    """``found`` for the rows that have arguments, -1 for the others; None if it says nothing."""
    if not (found >= 0).any():
        return None
    if len(found) == len(raws):
        return found.astype(np.int32)
    column = np.full(len(raws), -1, np.int32)
    column[[bool(raw) for raw in raws]] = found
    return column


def _decoder(keys: Sequence[str], type_: Any) -> Any:
    """Decodes a list of objects, of which only ``keys`` are looked at."""
    fields = [
        (f"key{i}", type_, msgspec.field(name=key, default=None)) for i, key in enumerate(keys)
    ]
    return msgspec.json.Decoder(list[msgspec.defstruct("Probed", fields, gc=False)]).decode  # type: ignore[misc]
