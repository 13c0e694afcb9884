"""One trace event at a time: a JSON object decoded into text, and exact times out of it.

Times are decimal numbers in microseconds, as JSON numbers or text; they become int64 nanoseconds,
half up on the digits.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from traceconv.core.clock import decimal_ns
from traceconv.core.json_text import NOT_JSON

NOTHING = Raw(b"")


class Event(Struct, gc=False):
    """The members of an event that are read, each as it is written; empty where absent. ``more``
    has the others.
    """

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
    bind_id: Raw = NOTHING
    id2: Raw = NOTHING
    more: dict[str, Raw] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_READ = frozenset(Event.__struct_fields__) - {"more"}


def decode_record(record: bytes) -> Event:
    """One JSON object, with members of any type.

    Raises:
        one of NOT_JSON: it is not JSON, or not an object.
    """
    members = _decode(record)
    read_members = {key: members.pop(key) for key in _READ & members.keys()}
    return Event(**read_members, more=members)


def is_null(raw: bytes | Raw) -> bool:
    """Whether a member is absent, or null."""
    return bytes(raw) in (b"", b"null")


def text_of(raw: bytes | Raw) -> str:
    """A value as text: the content of a string, JSON of anything else, "" for null."""
    raw = bytes(raw)
    if is_null(raw):
        return ""
    return str(msgspec.json.decode(raw)) if raw.startswith(b'"') else raw.decode()


def scalar_of(raw: bytes | Raw) -> int | float | str | None:
    """A number or a text; None for anything else."""
    raw = bytes(raw)
    if is_null(raw):
        return None
    try:
        value = msgspec.json.decode(raw)
    except NOT_JSON:
        return None
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


GOOD, ABSENT, BAD, BEYOND = 0, 1, 2, 3
"""States of a time: a time; nothing (or null); not a number; outside int64 nanoseconds."""


def exact_ns(token: bytes | Raw) -> tuple[int, int, bool]:
    """A time in microseconds, a JSON number or string: ns, state, and whether it was rounded."""
    token = bytes(token)
    if is_null(token):
        return 0, ABSENT, False
    text = token.decode("ascii", "replace")
    if token.startswith(b'"'):
        try:
            text = msgspec.json.decode(token, type=str)
        except NOT_JSON:
            return 0, BAD, False
    try:
        ns, rounded = decimal_ns(text)
    except ValueError:
        return 0, BAD, False
    except OverflowError:
        return 0, BEYOND, False
    return ns, GOOD, rounded
