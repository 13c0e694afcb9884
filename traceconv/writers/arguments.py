"""Arguments of events as bytes that any JSON parser accepts, without parsing them.

Arguments are written as they were read. Only what viewers are known to fail on is rewritten:
escaped surrogates (Perfetto's importer drops the argument, or the whole file), NaN and Infinity
(no JSON), integers beyond int64 (shown as -1), and decimals beyond a double.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from traceconv.core.columns import BLOB_BITS, OFFSET_MASK
from traceconv.core.model import I32, Args
from traceconv.core.patterns import lazy_regex

_INT64 = range(-(2**63), 2**63)

_RARE = lazy_regex(rb"\\u[dD][89a-fA-F]|NaN|Infinity|\d{19}|\d[eE]\+?\d{3}")
_TOKEN = lazy_regex(
    rb'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?', re.DOTALL
)
_ESCAPE = lazy_regex(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)


def fetch(args: Args, ids: I32) -> list[bytes]:
    """The JSON objects of ``ids``, ``b""`` for -1."""
    if not len(args) or not len(ids) or int(ids.max()) < 0:
        return [b""] * len(ids)
    # rows without arguments (-1) index the last address here; their end is set to their start
    address = args.address[ids]
    start = address & OFFSET_MASK
    end = np.where(ids >= 0, start + args.length[ids], start)
    number = address >> BLOB_BITS
    if (number == number[0]).all():
        blob = _sliceable(args.blobs[int(number[0])])
        return [blob[a:b] for a, b in zip(start.tolist(), end.tolist(), strict=True)]
    blobs = [_sliceable(blob) for blob in args.blobs]
    places = zip(number.tolist(), start.tolist(), end.tolist(), strict=True)
    return [blobs[i][a:b] for i, a, b in places]


def _sliceable(blob: Any) -> Any:
    """``blob``, or a copy where its slices would not be bytes (a memoryview, an array)."""
    return bytes(blob) if not isinstance(blob[:0], bytes) else blob


class Rewritten(msgspec.Struct):
    """How often something could not be written as it was read."""

    numbers: int = 0
    surrogates: int = 0
    filtered: int = 0


def strict(raws: list[bytes], tally: Rewritten) -> list[bytes]:
    """``raws`` (JSON objects) as strict JSON; all others byte for byte as they are."""
    return [strict_one(raw, tally) if _RARE.search(raw) else raw for raw in raws]


def strict_one(raw: bytes, tally: Rewritten) -> bytes:
    """One JSON value as strict JSON. It grows by two bytes per number at most."""

    def rewritten(match: re.Match[bytes]) -> bytes:
        token = match[0]
        if token.startswith(b'"'):
            return _ESCAPE.sub(unescaped, token) if b"\\u" in token else token
        digits = token.removeprefix(b"-")
        huge = len(digits) > 18 and digits.isdigit() and int(token[:400]) not in _INT64
        if huge or not isfinite(float(token)):
            tally.numbers += 1
            return b'"' + token + b'"'
        return token

    def unescaped(match: re.Match[bytes]) -> bytes:
        escape = match[0]
        if len(escape) == 12:
            high, low = int(escape[2:6], 16), int(escape[8:], 16)
            return chr(0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF)).encode()
        if len(escape) == 6:
            tally.surrogates += 1
            return "\ufffd".encode()
        return escape

    return _TOKEN.sub(rewritten, raw)


def kept(selected: frozenset[str] | None, tally: Rewritten) -> Callable[[list[bytes]], list[bytes]]:
    """A function that keeps the ``selected`` keys of each object; ``b""`` where none is left."""
    if selected is None:
        return lambda raws: raws
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def selection_of(raw: bytes) -> bytes:
        if not raw:
            return raw
        try:
            parsed = decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            parsed = {}
        pairs = [quoted(k) + b":" + bytes(v) for k, v in parsed.items() if k in selected]
        tally.filtered += len(pairs) < len(parsed) or not parsed
        return b"{" + b",".join(pairs) + b"}" if pairs else b""

    def all_of(raws: list[bytes]) -> list[bytes]:
        if selected:
            return [selection_of(raw) for raw in raws]
        tally.filtered += sum(map(bool, raws))
        return [b""] * len(raws)

    return all_of


def quoted(text: str) -> bytes:
    """``text`` as a JSON string in UTF-8; half surrogates become U+FFFD."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        sound = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return msgspec.json.encode(sound)
