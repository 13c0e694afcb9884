"""Arguments: the JSON of an event as typed DebugAnnotations with interned strings.

This module and the C part follow these rules, byte for byte:

* strings are interned while they are short and the table has room, else written in place;
* integers are ``int_value``; those beyond int64 keep their digits, as a string;
* other numbers are doubles; those of 1e308 and more, and texts longer than 63 characters, keep
  their digits, as a string;
* NaN, Infinity and null are strings of that spelling, so are empty objects and arrays (``{}``);
* a key that occurs twice is written twice; an empty key reads ``(empty)``;
* arguments that are not a JSON object become the argument ``args``: typed for another JSON value,
  as text if they are not JSON or nested deeper than 32 levels. Invalid UTF-8 is replaced.

Our own reader restores the original JSON: strings that represent another value, or that were
written with unusual escapes, have their JSON text next to them in the table
(:data:`~traceconv.protobuf.perfetto_schema.OWN_FIELD`); numbers with trailing zeros have their
number of decimals. Rows that cannot be restored this way are flagged (:attr:`Coded.odd`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv import native
from traceconv.core.model import I32, I64, Args
from traceconv.core.patterns import lazy_regex
from traceconv.protobuf.message import varint_bytes
from traceconv.protobuf.perfetto_schema import (
    OWN_FIELD,
    DebugAnnotation,
    InternedData,
    TrackEvent,
)
from traceconv.writers.arguments import fetch
from traceconv.writers.perfetto.wire import (
    SURROGATES,
    double,
    interned,
    message,
    number,
    tag,
    tag_bytes,
    utf8,
)

MAX_NAMES = 4096
"""Argument names that get a number; further ones are written in place."""

MAX_STRINGS = 65536
"""String values that get a number."""

MAX_BYTES = 256
"""Length up to which a string may be interned."""

_MAX_DEPTH = 32
_MAX_NUMBER = 63
_MAX_EXPONENT = 308

_EXACT, _EXACT_LENGTH = 10**15, 19
"""Numbers below, of fewer characters, come back from a double as they were, if one knows how many
decimals they had."""

_MOST_DECIMALS = 60

_OWN = b"\xff"
"""Prefix of keys for strings that differ only in their JSON text. UTF-8 never has this byte."""


class Coded(msgspec.Struct, frozen=True):
    """The annotations of a block of rows.

    Attributes:
        data:     all of them, as they are in TrackEvents.
        ends:     int64 per row: where its annotations end in ``data``.
        interned: fields of InternedData that must be known before them.
        odd:      uint8 per row: its text is another than a reader makes of its annotations.
        not_json: rows whose arguments are written as text.
        clipped:  numbers that fit neither int64 nor double.
        replaced: texts with bytes or half surrogates that are no UTF-8.
        dropped:  rows of which an argument was not selected.
    """

    data: bytes
    ends: I64
    interned: bytes
    odd: NDArray[np.uint8]
    not_json: int = 0
    clipped: int = 0
    replaced: int = 0
    dropped: int = 0


class Coder(Protocol):
    """Encodes the arguments of one packet sequence, block by block."""

    @property
    def sizes(self) -> tuple[int, int]:
        """How many names and strings have a number."""
        ...

    def block(self, args: Args, ids: I32) -> Coded:
        """The annotations of some rows, given their argument ids (-1 = none)."""
        ...


def coder(selected: frozenset[str] | None) -> Coder:
    """A new coder, the fastest there is. ``selected``: keys to keep, None for all."""
    compiled = native.coder()
    return NativeCoder(compiled, selected) if compiled else PythonCoder(selected)


class NativeCoder:
    """Encodes in C (``native/encode.c``), without holding the interpreter lock."""

    def __init__(self, compiled: type[native.Coder], selected: frozenset[str] | None) -> None:
        keys = None if selected is None else tuple(map(utf8, sorted(selected)))
        seed = int.from_bytes(os.urandom(8))  # of the hash: no input can force collisions
        self._coder = compiled(keys, seed, MAX_NAMES, MAX_STRINGS, MAX_BYTES)
        self._whole = selected is None

    @property
    def sizes(self) -> tuple[int, int]:
        return self._coder.sizes

    def block(self, args: Args, ids: I32) -> Coded:
        has = ids >= 0
        # rows without arguments keep the length 0
        address, length = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int32)
        address[has], length[has] = args.address[ids[has]], args.length[ids[has]]
        data, ends, strings, odd, *counts = self._coder.block(args.blobs, address, length)
        marks = np.frombuffer(odd, np.uint8)
        marks = marks if self._whole else np.zeros(len(ids), np.uint8)
        return Coded(data, np.frombuffer(ends, np.int64), strings, marks, *counts)


class _Object(list[tuple[str, Any]]):
    """The pairs of a JSON object, in order, doubles included."""


class _Token(str):
    """NaN and infinity, as they are written."""

    __slots__ = ()


class _Digits(_Token):
    """A number that fits neither int64 nor double, as it was written."""

    __slots__ = ()


class _Spelt(str):
    """A string that is written with other escapes than it needs: ``json`` is how."""

    __slots__ = ("json",)
    json: bytes


class _OddInt(int):
    """-0."""


class _OddReal(float):
    """A number that is written otherwise than with the fewest digits; ``decimals`` is how many it
    has behind the point, 0 where that does not say how it is written."""

    decimals = 0


def _integer(digits: str) -> int | _Digits:
    value = int(digits) if len(digits) <= 20 else 2**63
    if not -(2**63) <= value < 2**63:
        return _Digits(digits)
    return _OddInt(0) if digits == "-0" else value


def _real(digits: str) -> float | _Digits:
    mantissa, e, exponent = digits.lower().partition("e")
    integer_part, _, fraction = mantissa.lstrip("-").partition(".")
    if len(digits) > _MAX_NUMBER or len(integer_part) + int(exponent or 0) > _MAX_EXPONENT:
        return _Digits(digits)
    value = float(digits)
    if repr(value) == digits:
        return value
    odd = _OddReal(value)
    short = len(integer_part) + 1 + len(fraction) < _EXACT_LENGTH
    if (
        not e
        and short
        and int(integer_part + fraction) < _EXACT
        and len(fraction) <= _MOST_DECIMALS
    ):
        odd.decimals = len(fraction)
    return odd


_JSON = json.JSONDecoder(
    object_pairs_hook=_Object,
    parse_int=_integer,
    parse_float=_real,
    parse_constant=_Token,
    strict=False,
)

_STRING = lazy_regex(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_UNUSUAL = lazy_regex(rb"[\\\x00-\x1f]")


def _parsed(raw: bytes) -> _Object | None:
    """The pairs of an object, or of ``{"args": raw}``; None if it is not JSON, or too deep."""
    try:
        value = _JSON.decode(raw.decode())
        pairs = value if isinstance(value, _Object) else _Object([("args", value)])
        if _depth(pairs) > _MAX_DEPTH:
            return None
    except (ValueError, RecursionError):
        return None
    if not _UNUSUAL.search(raw.strip()):
        return pairs
    strings = iter(_STRING.findall(raw))
    if pairs is value:
        return _Object(_respelt(pairs, strings))
    return _Object([("args", _respelt(value, strings))])


def _respelt(value: Any, strings: Iterator[bytes]) -> Any:
    """``value`` with its strings as they are written; ``strings`` are all of it, in order."""
    if isinstance(value, _Object):
        return _Object([(_as_spelt(k, next(strings)), _respelt(v, strings)) for k, v in value])
    if isinstance(value, list):
        return [_respelt(v, strings) for v in value]
    if isinstance(value, str) and not isinstance(value, _Token):
        return _as_spelt(value, next(strings))
    return value


def _as_spelt(text: str, raw: bytes) -> str:
    if json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass") == raw:
        return text
    spelt = _Spelt(text)
    spelt.json = raw
    return spelt


def _depth(value: Any) -> int:
    if isinstance(value, _Object):
        return 1 + max((_depth(v) for _, v in value), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


class _Table:
    """Strings by number, counted from 1."""

    def __init__(self, field: int, room: int) -> None:
        self._field, self._room = field, room
        self.ids: dict[bytes, int] = {}

    def intern(self, value: bytes, new: list[bytes], json: bytes = b"") -> int:
        """The number of ``value``, 0 if it is written in place; a new entry is added to ``new``.

        Args:
            json: how it is written, if it could be otherwise.
        """
        key = _OWN + json if json else value
        iid = self.ids.get(key)
        if iid is None:
            if max(len(value), len(json)) > MAX_BYTES or len(self.ids) >= self._room:
                return 0
            iid = self.ids[key] = len(self.ids) + 1
            new.append(interned(self._field, iid, value, json))
        return iid


_ITEM = tag_bytes(TrackEvent.DEBUG_ANNOTATIONS)
_ENTRY = tag_bytes(DebugAnnotation.DICT_ENTRIES)
_ELEMENT = tag_bytes(DebugAnnotation.ARRAY_VALUES)
_NAME_IID = tag(DebugAnnotation.NAME_IID)
_INT = tag(DebugAnnotation.INT_VALUE)
_STRING_IID = tag(DebugAnnotation.STRING_VALUE_IID)


class PythonCoder:
    """Encodes without the C part."""

    def __init__(self, selected: frozenset[str] | None) -> None:
        self._selected = None if selected is None else frozenset(map(utf8, selected))
        self._names = _Table(InternedData.DEBUG_ANNOTATION_NAMES, MAX_NAMES)
        self._strings = _Table(InternedData.DEBUG_ANNOTATION_STRING_VALUES, MAX_STRINGS)
        self._new: list[bytes] = []
        self._odd = False
        self._not_json = self._clipped = self._replaced = self._dropped = 0

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self._names.ids), len(self._strings.ids)

    def block(self, args: Args, ids: I32) -> Coded:
        self._new = []
        self._not_json = self._clipped = self._replaced = self._dropped = 0
        odd = np.zeros(len(ids), np.uint8)
        rows = []
        for i, raw in enumerate(fetch(args, ids)):
            self._odd = False
            rows.append(self._row(raw))
            odd[i] = self._odd and self._selected is None
        ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        counts = (self._not_json, self._clipped, self._replaced, self._dropped)
        return Coded(b"".join(rows), ends, b"".join(self._new), odd, *counts)

    def _row(self, raw: bytes) -> bytes:
        if not raw:
            return b""
        sound = raw.decode("utf-8", "replace").encode()
        self._replaced += sound != raw
        pairs = _parsed(sound)
        self._odd = sound != raw or sound.lstrip()[:1] != b"{" or not pairs
        if pairs is None:
            self._not_json += 1
            pairs = _Object([("args", sound.decode())])
        out = []
        for key, value in pairs:
            raw_key = self._text(key)
            if self._selected is None or raw_key in self._selected:
                out.append(self._item(_ITEM, self._name(key), value))
        self._dropped += len(out) < len(pairs)
        return b"".join(out)

    def _item(self, field: bytes, name: bytes, value: Any) -> bytes:
        body = name + self._value(value)
        return field + varint_bytes(len(body)) + body

    def _text(self, value: str) -> bytes:
        raw = utf8(value)
        self._replaced += not value.isascii() and SURROGATES.search(value) is not None
        return raw

    def _name(self, key: str) -> bytes:
        name, json = utf8(key), key.json if isinstance(key, _Spelt) else b""
        if not name:
            name, json = b"(empty)", b'""'
        iid = self._names.intern(name, self._new, json)
        self._odd |= not iid and bool(json)
        return _NAME_IID + varint_bytes(iid) if iid else message(DebugAnnotation.NAME, name)

    def _value(self, value: Any) -> bytes:
        if isinstance(value, str):
            self._clipped += isinstance(value, _Digits)
            return self._string(value)
        if value is None:
            return self._string(_Token("null"))
        if isinstance(value, bool):
            return number(DebugAnnotation.BOOL_VALUE, value)
        if isinstance(value, int):
            self._odd |= isinstance(value, _OddInt)
            return _INT + varint_bytes(value)
        if isinstance(value, float):
            encoded = double(DebugAnnotation.DOUBLE_VALUE, value)
            decimals = value.decimals if isinstance(value, _OddReal) else None
            self._odd |= decimals == 0
            return encoded + number(OWN_FIELD, decimals) if decimals else encoded
        if isinstance(value, _Object):
            for key, _ in value:
                self._text(key)
            entries = [self._item(_ENTRY, self._name(k), v) for k, v in value]
            return b"".join(entries) or self._string(_Token("{}"))
        elements = [self._item(_ELEMENT, b"", v) for v in value]
        return b"".join(elements) or self._string(_Token("[]"))

    def _string(self, value: str) -> bytes:
        raw, json = self._text(value), b""
        if isinstance(value, _Token):
            json = raw
        elif isinstance(value, _Spelt):
            json = value.json
        iid = self._strings.intern(raw, self._new, json)
        self._odd |= not iid and bool(json)
        return (
            _STRING_IID + varint_bytes(iid) if iid else message(DebugAnnotation.STRING_VALUE, raw)
        )
