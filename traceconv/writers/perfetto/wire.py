"""Protobuf by hand: the three shapes that fields take on the wire.

Encoding without the protobuf runtime keeps us independent of its version, and is what makes
whole columns at a time possible. The fields are in
:mod:`traceconv.protobuf.perfetto_schema`.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from traceconv import native
from traceconv.core.patterns import lazy_regex
from traceconv.protobuf.message import varint_bytes
from traceconv.protobuf.perfetto_schema import IID, OWN_FIELD, PACKET, STRING, InternedData

_VARINT, _FIXED64, _BYTES = 0, 1, 2
SURROGATES = lazy_regex("[\ud800-\udfff]")
"""Halves of pairs; alone they are characters UTF-8 has no bytes for."""


@lru_cache(1024)
def tag(field: int, wire_type: int = _VARINT) -> bytes:
    """The bytes before the value of ``field``."""
    return varint_bytes(field << 3 | wire_type)


def tag_fixed64(field: int) -> bytes:
    """The bytes before eight bytes, lowest first."""
    return tag(field, _FIXED64)


def tag_bytes(field: int) -> bytes:
    """The bytes before a length and as many bytes."""
    return tag(field, _BYTES)


def number(field: int, value: int) -> bytes:
    """An integer, enum or bool field."""
    return tag(field) + varint_bytes(value)


def double(field: int, value: float) -> bytes:
    """A double field."""
    return tag_fixed64(field) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """A message or bytes field with the joined ``parts`` as content."""
    body = b"".join(parts)
    return tag_bytes(field) + varint_bytes(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A string field."""
    return message(field, utf8(value))


def packet(*parts: bytes) -> bytes:
    """One TracePacket as it is in a file."""
    return message(PACKET, *parts)


def interned(field: int, iid: int, value: bytes, json: bytes = b"") -> bytes:
    """One entry of a list of :class:`InternedData`.

    Args:
        json: its text in JSON, where that is not the string in quotes.
    """
    own_field = message(OWN_FIELD, json) if json else b""
    body = _IID_TAG + varint_bytes(iid) + _STRING_TAG + varint_bytes(len(value)) + value + own_field
    return tag_bytes(field) + varint_bytes(len(body)) + body


def names(values: list[str], first: int) -> bytes:
    """Entries of names of events, numbered from ``first`` on."""
    if compiled := native.names():
        return compiled(values, first)
    return b"".join(
        interned(InternedData.EVENT_NAMES, iid, utf8(value))
        for iid, value in enumerate(values, first)
    )


_IID_TAG, _STRING_TAG = tag(IID), tag_bytes(STRING)


def utf8(value: str) -> bytes:
    """``value`` as UTF-8; :data:`SURROGATES` become U+FFFD."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return SURROGATES.sub("\ufffd", value).encode()
