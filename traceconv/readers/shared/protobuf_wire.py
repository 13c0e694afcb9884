"""The outermost framing of protobuf messages, walked field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from traceconv.core.columns import I64
from traceconv.core.source import Source
from traceconv.protobuf.message_columns import DAMAGED, columns, repeated

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types."""

_FIELDS = 1 << 29
"""No field has a larger number."""


class Cut(Exception):
    """The bytes end within the field at this place."""


class Damaged(Exception):
    """The bytes at this place are not a field."""


@dataclass(frozen=True)
class Field:
    """One field of a message: a number, or the bytes ``[start, end)``, which may end beyond a cut
    message. ``kind`` is the wire type.
    """

    number: int
    value: int
    begin: int
    start: int
    end: int
    kind: int


def fields(data: Any, at: int, end: int) -> Iterator[Field]:
    """The fields of the message ``data[at:end]``.

    Raises:
        Cut: the message ends within a field's head.
        Damaged: a field is of no known kind.
    """
    while at < end:
        begin = at
        tag, at = _varint(data, at, end)
        value, start = 0, at
        kind = tag & 7
        if kind == VARINT:
            value, at = _varint(data, at, end)
        elif kind == LENGTH:
            value, start = _varint(data, at, end)
            at = start + value
        elif kind in (FIXED32, FIXED64):
            at += 4 if kind == FIXED32 else 8
        else:
            raise Damaged(begin)
        yield Field(tag >> 3, value, begin, start, at, kind)


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise Damaged(at)
    raise Cut(at)


class Damage(NamedTuple):
    """Where a message cannot be read on.

    Attributes:
        at:     the field that is damaged or cut off; -1: the message is whole.
        inside: where the content of that field begins, if it is the requested one and cut off.
        cut:    the message ends too early; else its bytes are no field.
    """

    at: int = -1
    inside: int | None = None
    cut: bool = False


def damage_in(data: Any, at: int, end: int, number: int) -> Damage:
    """Where the message ``data[at:end]`` with the repeated field ``number`` is damaged."""
    if not columns(data, np.array([at]), np.array([end - at]), (number,)).rest[0] & DAMAGED:
        return Damage()
    begin = at
    try:
        for message_field in fields(data, at, end):
            begin = message_field.begin
            if not 0 < message_field.number < _FIELDS:
                return Damage(begin)
            if message_field.end > end:
                inside = (
                    message_field.number == number
                    and message_field.kind == LENGTH
                    and message_field.start <= end
                )
                return Damage(begin, message_field.start if inside else None, cut=True)
            begin = message_field.end
    except (Cut, Damaged) as e:
        return Damage(begin, cut=isinstance(e, Cut))
    return Damage()


def nested(data: Any, start: I64, size: I64, number: int) -> tuple[I64, I64, I64]:
    """The messages in a repeated field of some messages: owner, start and size of each."""
    fields_found = repeated(data, start, size, number)
    is_message = np.flatnonzero(fields_found.length >= 0)
    return (
        fields_found.owner[is_message],
        fields_found.value[is_message].view(np.int64),
        fields_found.length[is_message].astype(np.int64),
    )


def content(source: Source, name: str) -> Any:
    """A whole file: mapped, or unpacked into memory."""
    with source.open(name) as stream:
        if stream.mapped is not None:
            stream.advance(len(stream.mapped))
            return stream.mapped
        parts = []
        while part := stream.read(1 << 20):
            parts.append(part)
        return b"".join(parts)
