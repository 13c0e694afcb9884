"""Records that are almost JSON, made JSON: without touching what was right in them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceconv.readers._trace_events.decode import BROKEN, Event, decode_list, decode_record
from traceconv.readers._trace_events.tables import Tally

MAX_MENDED_BYTES = 1 << 20
"""Longer records are not mended."""

FEW = 32
"""So many records are decoded together where one among more could not be."""

_WORD = rb"[+-]?(?i:nan(?:\([a-z0-9]*\))?|inf(?:inity)?)(?![A-Za-z0-9])"
MENDABLE = re.compile(_WORD.decode())
"""What may stand where JSON has a number, and does not."""

_PIECE = re.compile(rb'"(?:[^"\\]|\\.)*+"?|' + _WORD, re.DOTALL)
_IN_STRING = re.compile(
    rb"[\x00-\x1f]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb'|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]|\\'
)
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+(")?|[{}\[\]]', re.DOTALL)


def mended(record: bytes) -> tuple[Event, bytes, str] | None:
    """Decode a record that strict JSON refuses.

    Bytes that are not UTF-8 are replaced, bare NaN and Infinity become strings, raw control
    characters in strings and lone backslashes are escaped, halves of surrogate pairs replaced.

    Returns:
        The event, the record as it was decoded, and the issue code of what was done ("" if
        nothing was); None if it cannot be mended.
    """
    code, text = "", record
    try:
        if not record.isascii():
            record.decode()
    except UnicodeDecodeError:
        code, text = "bad-encoding", record.decode("utf-8", "replace").encode()
    try:
        return decode_record(text), text, code
    except BROKEN:
        if len(record) > MAX_MENDED_BYTES:
            return None
    text = _PIECE.sub(_piece, text)
    try:
        return decode_record(text), text, code or "args-not-json"
    except BROKEN:
        return None


def decoded(records: Sequence[tuple[bytes, str]], tally: Tally) -> list[Event]:
    """Decode records, mending those that need it.

    Args:
        records: the bytes of each, and its place for messages.
        tally: where is booked what was mended, and what could not be read.
    """
    try:
        return decode_list(b",".join(record for record, _ in records))[0]
    except BROKEN:
        if len(records) > FEW:
            parts = (records[at : at + FEW] for at in range(0, len(records), FEW))
            return [event for part in parts for event in decoded(part, tally)]
    events = []
    for record, place in records:
        done = mended(record)
        if done is None or done[0].ph is None:
            tally.add("malformed-record", place)
            continue
        events.append(done[0])
        if done[2]:
            tally.add(done[2], place)
    return events


def _piece(match: re.Match[bytes]) -> bytes:
    piece = match.group()
    return _IN_STRING.sub(_character, piece) if piece.startswith(b'"') else b'"%b"' % piece


def _character(match: re.Match[bytes]) -> bytes:
    text = match.group()
    if len(text) in (12, 2):
        return text  # a pair of surrogates, a known escape
    if text == b"\\":
        return b"\\\\"
    if len(text) == 1:
        return b"\\u%04x" % text[0]
    return b"\\ufffd" if text[2:4].lower() in _HALVES else text


_HALVES = frozenset(b"d%x" % digit for digit in range(8, 16))


def balanced(text: str, start: int) -> int:
    """Where the object that begins at ``start`` ends, by its brackets alone; -1 if it does not
    within :data:`MAX_MENDED_BYTES`.
    """
    depth = 0
    for match in _BRACKET.finditer(text, start, min(len(text), start + MAX_MENDED_BYTES)):
        token = match.group()
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
            if depth == 0:
                return match.end()
        elif match[1] is None:
            return -1
    return -1
