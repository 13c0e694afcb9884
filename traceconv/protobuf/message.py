"""Protobuf by hand: the fields of a message, read one by one.

For the few small messages that decide how others are read; columns of many messages are made by
:mod:`traceconv.protobuf.message_columns`. Nothing here knows what a field means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

VARINT, FIXED64 = 0, 1
"""Wire types."""

_MASK64 = 2**64 - 1

Value = int | bytes
Field = tuple[int, int, Value]
"""Field number, wire type, and the value: bytes of nested ones, else a raw unsigned integer."""


class BrokenMessage(ValueError):
    """Bytes that are not a protobuf message. ``fields``: the fields before the damage."""

    def __init__(self, why: str, fields: list[Field] | None = None) -> None:
        self.fields = fields or []
        super().__init__(why)


def varint(data: Any, at: int, end: int) -> tuple[int, int]:
    """The unsigned integer at ``at``, and the position behind it.

    Raises:
        BrokenMessage: it does not end before ``end``, or is longer than 10 bytes.
    """
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, at
        shift += 7
    raise BrokenMessage("a number is cut off, or has more than 10 bytes")


def walk(data: Any, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields in ``data[at:end]``: number, wire type, value, and where the field ends. The value
    of a nested message is its length.

    Raises:
        BrokenMessage: at the first damage.
    """
    while at < end:
        tag, at = varint(data, at, end)
        wire = tag & 7
        if wire == 0:
            value, at = varint(data, at, end)
        elif wire == 2:
            value, at = varint(data, at, end)
            at += value
        elif wire == 1 or wire == 5:
            size = 8 if wire == 1 else 4
            value = int.from_bytes(data[at : at + size], "little")
            at += size
        else:
            raise BrokenMessage(f"wire type {wire}")
        if at > end or not 0 < tag >> 3 < 2**31:
            raise BrokenMessage("a field is cut off")
        yield tag >> 3, wire, value, at


def fields(data: bytes) -> list[Field]:
    """All fields of a message, in order.

    Raises:
        BrokenMessage: with the fields before the damage.
    """
    fields_read: list[Field] = []
    try:
        for n, wire, value, stop in walk(data, 0, len(data)):
            fields_read.append((n, wire, data[stop - value : stop] if wire == 2 else value))
    except BrokenMessage as e:
        raise BrokenMessage(str(e), fields_read) from None
    return fields_read


def whole_fields(data: Value) -> list[Field]:
    """The fields up to the first damage, as lenient parsers read a nested message."""
    try:
        return fields(message(data))
    except BrokenMessage as e:
        return e.fields


def is_whole(data: Value) -> bool:
    """Whether a nested message can be read to its end."""
    try:
        fields(message(data))
    except BrokenMessage:
        return False
    return True


def last_values(data: Value) -> dict[int, Value]:
    """The last value of every field, up to the first damage."""
    return {n: v for n, _, v in whole_fields(data)}


def encoded(field_number: int, value: Value, wire: int | None = None) -> bytes:
    """A field as :func:`fields` read it.

    Args:
        wire: its type; None for what the value is: bytes or a varint.
    """
    if isinstance(value, bytes):
        return varint_bytes(field_number << 3 | 2) + varint_bytes(len(value)) + value
    head = varint_bytes(field_number << 3 | (wire or 0))
    if wire:
        return head + value.to_bytes(8 if wire == FIXED64 else 4, "little")
    return head + varint_bytes(value)


def varint_bytes(value: int) -> bytes:
    """``value`` as a varint; negative numbers in two's complement of 64 bits."""
    value &= _MASK64
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


def number(value: Value) -> int:
    """A raw integer; 0 where the field has another wire type than it should."""
    return value if isinstance(value, int) else 0


def signed(value: Value) -> int:
    """A raw integer as int64."""
    raw = number(value)
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def signed32(value: Value) -> int:
    """A raw integer as int32."""
    low = number(value) & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low


def double(value: Value) -> float:
    """A raw fixed64 as a double."""
    result: float = struct.unpack("<d", number(value).to_bytes(8, "little"))[0]
    return result


def message(value: Value) -> bytes:
    """The bytes of a nested message; empty where the field has another wire type."""
    return value if isinstance(value, bytes) else b""


def text(value: Value) -> str:
    """A string field; bytes that are not UTF-8 survive as surrogates."""
    return message(value).decode("utf-8", "surrogateescape")


def is_utf8(value: Value) -> bool:
    """Whether a string field is valid UTF-8."""
    try:
        message(value).decode()
    except UnicodeDecodeError:
        return False
    return True


def integers(found: list[Field], field_number: int, wire: int = VARINT) -> list[int]:
    """The raw integers of a repeated field, packed or not, up to the first damage."""
    numbers: list[int] = []
    for n, kind, value in found:
        if n != field_number:
            continue
        if isinstance(value, int):
            numbers += [value] if kind == wire else []
        elif wire == FIXED64:
            offsets = range(0, len(value) - 7, 8)
            numbers += [int.from_bytes(value[i : i + 8], "little") for i in offsets]
        else:
            numbers += varints(value)
    return numbers


def varints(data: bytes) -> list[int]:
    """The numbers in a packed field, up to the first damage."""
    numbers, at = [], 0
    try:
        while at < len(data):
            value, at = varint(data, at, len(data))
            numbers.append(value)
    except BrokenMessage:
        pass
    return numbers
