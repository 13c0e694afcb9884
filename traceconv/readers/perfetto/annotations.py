"""Arguments: DebugAnnotations as JSON objects.

What becomes what, here and in the C part (``native/wire.c``), byte for byte: dictionaries become
objects, arrays arrays; integers, doubles and booleans are as in JSON, doubles with as few digits
as tell them from others; pointers are strings of hexadecimal digits; NaN and infinity are spelt so.
An annotation without a name (in a dictionary) or without a value is left out. Bytes that are no
UTF-8 are replaced.

Files of ours say more (:data:`~traceconv.protobuf.perfetto_schema.OWN_FIELD`): a string that stands
for ``null``, a number with more zeros than it needs. These come back as they were.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceconv import native
from traceconv.core.model import I32, I64
from traceconv.protobuf.message import (
    Field,
    Value,
    double,
    message,
    number,
    signed,
    whole_fields,
)
from traceconv.protobuf.perfetto_schema import OWN_FIELD, DebugAnnotation
from traceconv.readers.shared.arguments import quoted

UNDEFINED, PYTHON = 1, 2
"""Why the C part leaves a row: it refers to what is not defined (yet), or is unusual."""

MOST_NESTED = 100
"""Annotations nested deeper than this are left out."""

MOST_DECIMALS = 60
_MOST_LISTED = 1 << 20
"""Texts with numbers up to here are in a list, others in a dictionary."""


@dataclass
class Table:
    """Interned texts by number, as they are in JSON."""

    listed: list[bytes | None] = field(default_factory=list)
    others: dict[int, bytes] = field(default_factory=dict)

    def add(self, iid: int, text: bytes) -> None:
        """Define a number; the first definition counts."""
        if iid >= _MOST_LISTED:
            self.others.setdefault(iid, text)
            return
        if iid >= len(self.listed):
            self.listed.extend([None] * (iid + 1 - len(self.listed)))
        if self.listed[iid] is None:
            self.listed[iid] = text

    def get(self, iid: int) -> bytes | None:
        """The text of a number; None if it is not defined."""
        return self.listed[iid] if iid < len(self.listed) else self.others.get(iid)


@dataclass
class Texts:
    """What annotations of one sequence refer to by number: keys with their colon, and strings."""

    names: Table = field(default_factory=Table)
    strings: Table = field(default_factory=Table)


_PROTO_VALUE = 14


@dataclass(frozen=True)
class Objects:
    """The arguments of some rows.

    Attributes:
        text:   all objects.
        length: int32 per row, bytes.
        undefined: rows with a number that is not defined; their objects lack it.
        replaced: how many texts had bytes that are no UTF-8.
        protos: how many values are messages of a type that only an extension describes.
    """

    text: bytes
    length: I32
    undefined: Sequence[int] = ()
    replaced: int = 0
    protos: int = 0


def objects(data: Any, start: I64, size: I64, ends: I64, texts: Texts) -> Objects:
    """The JSON objects of rows.

    Args:
        data:   buffer with the annotations.
        start, size: int64 per annotation.
        ends:   int64 per row: the annotations up to this one are its, and those of rows before.
        texts:  of the sequence.
    """
    compiled = native.wire()
    names, strings = texts.names, texts.strings
    if not compiled:
        odd = np.arange(len(ends))
        compiled_text, length = b"", np.zeros(len(ends), np.int32)
    else:
        compiled_text, lengths, odds = compiled.annotations(
            *(data, start, size, np.ascontiguousarray(ends)),
            *(names.listed, names.others, strings.listed, strings.others),
        )
        length = np.frombuffer(lengths, np.int32)
        odd = np.flatnonzero(np.frombuffer(odds, np.uint8))
    if not len(odd):
        return Objects(compiled_text, length)
    reader = _Reader(texts)
    parts, copied = [], 0
    length = length.copy()
    before = np.concatenate(([0], np.cumsum(length, dtype=np.int64)))
    undefined = []
    for row in odd.tolist():
        begin = int(ends[row - 1]) if row else 0
        of_row = slice(begin, int(ends[row]))
        spans = zip(start[of_row].tolist(), size[of_row].tolist(), strict=True)
        reader.undefined = False
        text = reader.row([bytes(data[a : a + n]) for a, n in spans])
        if reader.undefined:
            undefined.append(row)
        parts += [compiled_text[copied : int(before[row])], text]
        copied = int(before[row])
        length[row] = len(text)
    return Objects(
        b"".join([*parts, compiled_text[copied:]]),
        length,
        undefined,
        reader.replaced,
        reader.protos,
    )


class _Reader:
    """Annotations without the C part.

    Attributes:
        undefined: whether something referred to a number that is not defined.
        replaced:  texts with bytes that are no UTF-8.
        protos:    values that are messages of an unknown type.
    """

    def __init__(self, texts: Texts) -> None:
        self.undefined, self.replaced, self.protos = False, 0, 0
        self._texts = texts
        self._known: dict[bytes, bytes | None] = {}

    def row(self, annotations: Sequence[bytes]) -> bytes:
        """The object of one row."""
        members = []
        for annotation in annotations:
            if annotation not in self._known:
                counts = self.undefined, self.replaced, self.protos
                text = self._annotation(whole_fields(annotation), True, 0)
                if counts != (
                    self.undefined,
                    self.replaced,
                    self.protos,
                ):  # has to be counted every time
                    members.append(text)
                    continue
                self._known[annotation] = text
            members.append(self._known[annotation])
        return b"{" + b",".join(filter(None, members)) + b"}"

    def _annotation(self, fields_read: list[Field], has_key: bool, depth: int) -> bytes | None:
        by_number = {n: v for n, _, v in fields_read}
        key = self._key(by_number) if has_key else b""
        value = None if key is None else self._value(fields_read, by_number, depth)
        return None if key is None or value is None else key + value

    def _key(self, by_number: dict[int, Value]) -> bytes | None:
        if iid := number(by_number.get(DebugAnnotation.NAME_IID, 0)):
            return self._interned(self._texts.names, iid)
        name = by_number.get(DebugAnnotation.NAME)
        return self.quoted(name) + b":" if isinstance(name, bytes) else None

    def _interned(self, table: Table, iid: int) -> bytes | None:
        text = table.get(iid)
        self.undefined |= text is None
        return text

    def quoted(self, raw: bytes) -> bytes:
        """Bytes as a JSON string."""
        text = raw.decode("utf-8", "replace")
        self.replaced += "\ufffd" in text and text.encode() != raw
        return quoted(text)

    def _value(
        self, fields_read: list[Field], by_number: dict[int, Value], depth: int
    ) -> bytes | None:
        for kind, brackets in ((11, b"{%b}"), (12, b"[%b]")):
            if kind in by_number:
                return brackets % self._nested(fields_read, kind, depth)
        if 8 in by_number and not _SCALARS & by_number.keys():
            return self._old(whole_fields(by_number[8]), depth)
        own_text = by_number.get(OWN_FIELD)
        for kind in _ORDER:
            if kind in by_number:
                return self._scalar(kind, by_number[kind], own_text)
        self.protos += _PROTO_VALUE in by_number
        return None

    def _nested(self, fields_read: list[Field], kind: int, depth: int) -> bytes:
        if depth >= MOST_NESTED:
            return b""
        inner = (
            self._annotation(whole_fields(value), kind == DebugAnnotation.DICT_ENTRIES, depth + 1)
            for n, _, value in fields_read
            if n == kind and isinstance(value, bytes)
        )
        return b",".join(filter(None, inner))

    def _scalar(self, kind: int, value: Value, own_text: Value | None) -> bytes | None:
        if kind == DebugAnnotation.DOUBLE_VALUE:
            return real(double(value), own_text if isinstance(own_text, int) else None)
        if kind == DebugAnnotation.STRING_VALUE:
            json_text = _json_text(own_text) if isinstance(own_text, bytes) else None
            return self.quoted(message(value)) if json_text is None else json_text
        if kind == DebugAnnotation.STRING_VALUE_IID:
            return self._interned(self._texts.strings, number(value))
        if kind == DebugAnnotation.LEGACY_JSON_VALUE:
            json_text = _json_text(message(value))
            return self.quoted(message(value)) if json_text is None else json_text
        return _PLAIN[kind](value)

    def _old(self, fields_read: list[Field], depth: int) -> bytes | None:
        """A NestedValue, as SDKs of 2020 wrote: keys and values of a dictionary, or an array."""
        if depth >= MOST_NESTED:
            return None
        by_number = {n: v for n, _, v in fields_read}
        keys = [self.quoted(message(v)) for n, _, v in fields_read if n == 2]
        values = [self._old(whole_fields(v), depth + 1) for n, _, v in fields_read if n in (3, 4)]
        if keys:
            pairs = zip(keys, values, strict=False)
            return b"{" + b",".join(k + b":" + v for k, v in pairs if v is not None) + b"}"
        if values or number(by_number.get(1, 0)) in (1, 2):
            return b"[" + b",".join(v for v in values if v is not None) + b"]"
        for kind, value in by_number.items():
            if kind in _OLD:
                return self.quoted(message(value)) if kind == 8 else _OLD[kind](value)
        return None


def real(value: float, decimals: int | None = None) -> bytes:
    """A double as JSON, with ``decimals`` decimals if that is the same number."""
    if not math.isfinite(value):
        return b"NaN" if math.isnan(value) else b"-Infinity" if value < 0 else b"Infinity"
    if decimals is not None and decimals <= MOST_DECIMALS:
        text = f"{value:.{decimals}f}"
        if float(text) == value:
            return text.encode()
    return repr(value).encode()


def _json_text(text: bytes) -> bytes | None:
    """JSON text as it is; None for other text."""
    try:
        json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    return text.strip()


def interned_text(raw: bytes, own: Value | None, name: bool = False) -> bytes:
    """The JSON text of an interned string or name.

    Args:
        own:  what a file of ours says of it.
        name: it is a key, so a string.
    """
    json_text = _json_text(own) if isinstance(own, bytes) else None
    if json_text is not None and name and not json_text.startswith(b'"'):
        json_text = None
    return quoted(raw.decode("utf-8", "replace")) if json_text is None else json_text


_ORDER = (
    *(DebugAnnotation.BOOL_VALUE, DebugAnnotation.UINT_VALUE, DebugAnnotation.INT_VALUE),
    *(DebugAnnotation.DOUBLE_VALUE, DebugAnnotation.STRING_VALUE),
    *(DebugAnnotation.STRING_VALUE_IID, DebugAnnotation.POINTER_VALUE),
    DebugAnnotation.LEGACY_JSON_VALUE,
)
"""Fields of values; the first of several counts."""

_SCALARS = frozenset(map(int, _ORDER))

_PLAIN: dict[int, Callable[[Value], bytes]] = {
    DebugAnnotation.BOOL_VALUE: lambda value: b"true" if number(value) else b"false",
    DebugAnnotation.UINT_VALUE: lambda value: b"%d" % number(value),
    DebugAnnotation.INT_VALUE: lambda value: b"%d" % signed(value),
    DebugAnnotation.POINTER_VALUE: lambda value: b'"0x%x"' % number(value),
}

_OLD: dict[int, Callable[[Value], bytes]] = {
    5: lambda value: b"%d" % signed(value),
    6: lambda value: real(double(value)),
    7: lambda value: b"true" if number(value) else b"false",
    8: lambda value: b"",
}
