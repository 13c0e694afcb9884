"""Protobuf wire form: varints and fields, as far as a trace needs them."""

from __future__ import annotations

import struct

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""

Value = int | bytes
Field = tuple[int, int, Value]
"""Field number, wire type, and the value: bytes for :data:`BYTES`, else a raw unsigned integer."""


class BrokenMessage(ValueError):
    """Bytes that are no protobuf message. ``fields`` holds what stood before the damage."""

    def __init__(self, why: str, fields: list[Field] | None = None) -> None:
        self.fields = fields or []
        super().__init__(why)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned integer at ``at``, and the position behind it.

    Raises:
        BrokenMessage: it is cut off, or longer than 10 bytes.
    """
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, at
            shift += 7
            if shift > 63:
                raise BrokenMessage("a number of more than 10 bytes")
    except IndexError:
        raise BrokenMessage("a number is cut off") from None


def fields(data: bytes) -> list[Field]:
    """All fields of a message, in order.

    Raises:
        BrokenMessage: with the fields before the damage.
    """
    found: list[Field] = []
    try:
        at, end = 0, len(data)
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = varint(data, at - 1)
            wire = tag & 7
            if wire == 0:
                value: Value = data[at]
                at += 1
                if data[at - 1] >= 0x80:
                    value, at = varint(data, at - 1)
            elif wire == 2:
                size = data[at]
                at += 1
                if size >= 0x80:
                    size, at = varint(data, at - 1)
                value = data[at : at + size]
                at += size
            elif wire == 1:
                value = int.from_bytes(data[at : at + 8], "little")
                at += 8
            elif wire == 5:
                value = int.from_bytes(data[at : at + 4], "little")
                at += 4
            else:
                raise BrokenMessage(f"wire type {wire}")
            if at > end or tag < 8:
                raise BrokenMessage("a field is cut off")
            found.append((tag >> 3, wire, value))
    except IndexError:
        raise BrokenMessage("a field is cut off", found) from None
    except BrokenMessage as e:
        e.fields = found
        raise
    return found


def whole_fields(data: bytes) -> list[Field]:
    """The fields up to the first damage, as lenient parsers read a message."""
    try:
        return fields(data)
    except BrokenMessage as e:
        return e.fields


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


def packed(wire: int, value: Value) -> list[int]:
    """The integers of a repeated varint field, packed or not, up to the first damage."""
    if isinstance(value, int):
        return [value] if wire == VARINT else []
    numbers, at = [], 0
    try:
        while at < len(value):
            one, at = varint(value, at)
            numbers.append(one)
    except BrokenMessage:
        pass
    return numbers


def packed_fixed64(wire: int, value: Value) -> list[int]:
    """The raw integers of a repeated fixed64 field, whether packed or not."""
    if isinstance(value, int):
        return [value] if wire == FIXED64 else []
    whole = len(value) - len(value) % 8
    return [int.from_bytes(value[i : i + 8], "little") for i in range(0, whole, 8)]


def text(value: Value) -> str:
    """A string field; bytes that are not UTF-8 survive as surrogates."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else ""
