"""The Python tier's first half: chunks of JSON decoded into typed records."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

BROKEN = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What decoding raises when the text is not what it should be."""

NOTHING = Raw(b"")
_Scalar = int | float | str | None


class Event(Struct, gc=False):
    """One record. Numbers that must stay exact, and what is not looked into, stay text.

    The order is that of most files: members that come in it are found faster.
    """

    ph: str | None = None
    name: str | None = None
    cat: str | None = None
    id: Raw = NOTHING
    pid: _Scalar = None
    tid: _Scalar = None
    ts: Raw = NOTHING
    dur: Raw = NOTHING
    args: Raw = NOTHING
    bp: str | None = None
    graph: _Scalar = None
    step: _Scalar = None
    tdur: Raw = NOTHING
    bind_id: Raw = NOTHING
    flow_in: Raw = NOTHING
    flow_out: Raw = NOTHING
    id2: Raw = NOTHING


class _Loose(Struct, gc=False):
    """The same, whatever the types."""

    ph: Raw = NOTHING
    cat: Raw = NOTHING
    pid: Raw = NOTHING
    tid: Raw = NOTHING
    name: Raw = NOTHING
    ts: Raw = NOTHING
    dur: Raw = NOTHING
    args: Raw = NOTHING
    id: Raw = NOTHING
    bp: Raw = NOTHING
    graph: Raw = NOTHING
    step: Raw = NOTHING
    tdur: Raw = NOTHING
    bind_id: Raw = NOTHING
    flow_in: Raw = NOTHING
    flow_out: Raw = NOTHING
    id2: Raw = NOTHING


_TEXTS = ("ph", "cat", "pid", "tid", "name", "bp")
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")

_decode_list = msgspec.json.Decoder(list[Event]).decode
_decode_lines = msgspec.json.Decoder(Event).decode_lines
_decode_one = msgspec.json.Decoder(Event).decode
_decode_loose = msgspec.json.Decoder(_Loose).decode


def decode_list(text: bytes) -> tuple[list[Event], int]:
    """Events between commas, up to the bracket that may end them.

    Returns:
        The events, and the place of that bracket in ``text``; -1 if the text has none.

    Raises:
        one of BROKEN: it is not that.
    """
    try:
        return _checked(_decode_list(b"".join((b"[", text, b"]"))), text), -1
    except msgspec.DecodeError as e:
        match = _TRAILING.search(str(e))
        if match is None:
            raise
    # one byte was put in front, and the place named is behind the first trailing byte
    end = len(text[: int(match[1]) - 2].rstrip()) - 1
    return _checked(_decode_list(b"".join((b"[", text[:end], b"]"))), text), end


def decode_lines(text: bytes) -> list[Event]:
    """Events that follow each other without commas.

    Raises:
        one of BROKEN: it is not that.
    """
    return _checked(_decode_lines(text), text)


def decode_record(record: bytes) -> Event:
    """One JSON object, with members of any type.

    Raises:
        one of BROKEN: it is not JSON, or no object.
    """
    try:
        return _decode_one(record)
    except msgspec.ValidationError:
        loose = _decode_loose(record)
    fields: dict[str, Any] = {name: getattr(loose, name) for name in Event.__struct_fields__}
    for name in _TEXTS:
        raw = bytes(fields[name])
        fields[name] = None if raw in (b"", b"null") else text_of(raw)
    for name in ("graph", "step"):
        fields[name] = _scalar(bytes(fields[name]))
    return Event(**fields)


def text_of(raw: bytes) -> str:
    """A value as text: the content of a string, JSON of anything else, "" for null."""
    if raw in (b"", b"null"):
        return ""
    return str(msgspec.json.decode(raw)) if raw.startswith(b'"') else raw.decode()


def _scalar(raw: bytes) -> int | float | str | None:
    if raw in (b"", b"null"):
        return None
    try:
        value = msgspec.json.decode(raw)
    except BROKEN:
        return None
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _checked(events: list[Event], text: bytes) -> list[Event]:
    """The events, if all text is valid UTF-8 (decoding does not look into raw parts)."""
    if not text.isascii():
        text.decode()
    return events
