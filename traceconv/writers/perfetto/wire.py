"""Protobuf by hand: the fields of Perfetto we write, and the three shapes they take on the wire.

Encoding without the protobuf runtime keeps us independent of its version, and is what makes
whole columns at a time possible. ``schemas/proto/perfetto_trace.proto`` describes the messages.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum

MASK64 = 2**64 - 1


class TracePacket(IntEnum):
    """Field numbers, as in all classes below."""

    TIMESTAMP = 8
    TRUSTED_PACKET_SEQUENCE_ID = 10
    TRACK_EVENT = 11
    INTERNED_DATA = 12
    SEQUENCE_FLAGS = 13
    TRACK_DESCRIPTOR = 60
    TRACE_ATTRIBUTES = 126


class TrackDescriptor(IntEnum):
    """One row of the viewer."""

    UUID = 1
    NAME = 2
    PROCESS = 3
    PARENT_UUID = 5
    COUNTER = 8
    CHILD_ORDERING = 11
    SIBLING_ORDER_RANK = 12
    SIBLING_MERGE_BEHAVIOR = 15
    SIBLING_MERGE_KEY_INT = 17
    PROCESS_ORDERING = 19
    THREAD_ORDERING = 20


class ProcessDescriptor(IntEnum):
    """What makes a track a process."""

    PID = 1
    PROCESS_NAME = 6
    PROCESS_LABELS = 8


class CounterDescriptor(IntEnum):
    """What makes a track a counter."""

    UNIT = 3
    UNIT_MULTIPLIER = 4
    UNIT_NAME = 6


class Attribute(IntEnum):
    """One key of the trace's metadata."""

    KEY = 1
    LONG_VALUE = 2
    STRING_VALUE = 3


class TrackEvent(IntEnum):
    """One mark on a track."""

    CATEGORY_IIDS = 3
    DEBUG_ANNOTATIONS = 4
    TYPE = 9
    NAME_IID = 10
    TRACK_UUID = 11
    COUNTER_VALUE = 30
    DOUBLE_COUNTER_VALUE = 44
    FLOW_IDS = 47
    TERMINATING_FLOW_IDS = 48


class InternedData(IntEnum):
    """Strings that packets refer to by number."""

    EVENT_CATEGORIES = 1
    EVENT_NAMES = 2
    DEBUG_ANNOTATION_NAMES = 3
    DEBUG_ANNOTATION_STRING_VALUES = 29


class DebugAnnotation(IntEnum):
    """One argument of an event."""

    NAME_IID = 1
    BOOL_VALUE = 2
    INT_VALUE = 4
    DOUBLE_VALUE = 5
    STRING_VALUE = 6
    NAME = 10
    DICT_ENTRIES = 11
    ARRAY_VALUES = 12
    STRING_VALUE_IID = 17


PACKET = 1
"""Of ``Trace``, which has no other field."""

SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
"""Values of ``TrackEvent.type``."""

STATE_CLEARED, NEEDS_STATE = 1, 2
"""Values of ``TracePacket.sequence_flags``."""

ATTRIBUTE = 1
"""Of ``TraceAttributes``, which has no other field."""

IID, STRING = 1, 2
"""Fields of every kind of interned string."""

_VARINT, _FIXED64, _BYTES = 0, 1, 2
SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of pairs; alone they are characters UTF-8 has no bytes for."""


def varint(value: int) -> bytes:
    """``value`` as a varint; negative numbers in two's complement of 64 bits."""
    value &= MASK64
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(field: int, wire_type: int = _VARINT) -> bytes:
    """The bytes before the value of ``field``."""
    return varint(field << 3 | wire_type)


def tag_fixed64(field: int) -> bytes:
    """The bytes before eight bytes, lowest first."""
    return tag(field, _FIXED64)


def tag_bytes(field: int) -> bytes:
    """The bytes before a length and as many bytes."""
    return tag(field, _BYTES)


def number(field: int, value: int) -> bytes:
    """An integer, enum or bool field."""
    return tag(field) + varint(value)


def double(field: int, value: float) -> bytes:
    """A double field."""
    return tag_fixed64(field) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """A message or bytes field with the joined ``parts`` as content."""
    body = b"".join(parts)
    return tag_bytes(field) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A string field."""
    return message(field, utf8(value))


def packet(*parts: bytes) -> bytes:
    """One TracePacket as it is in a file."""
    return message(PACKET, *parts)


def interned(field: int, iid: int, value: bytes) -> bytes:
    """One entry of a list of :class:`InternedData`."""
    return message(field, number(IID, iid), message(STRING, value))


def utf8(value: str) -> bytes:
    """``value`` as UTF-8; :data:`SURROGATES` become U+FFFD."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return SURROGATES.sub("\ufffd", value).encode()
