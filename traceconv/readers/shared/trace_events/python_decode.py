"""The Python tier, first half: chunks of JSON decoded into typed records, exact times out of them.

Times are decimal numbers in microseconds, as JSON numbers or text; they become int64 nanoseconds,
half up on the digits, a whole column at once where all of it is written in a common way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct
from numpy.typing import NDArray

from traceconv.core.clock import INT64_MAX, decimal_ns
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I64
from traceconv.core.patterns import lazy_regex

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
_TRAILING = lazy_regex(r"trailing characters \(byte (\d+)\)")

_decode_list = msgspec.json.Decoder(list[Event]).decode
_decode_lines = msgspec.json.Decoder(Event).decode_lines
_decode_one = msgspec.json.Decoder(Event).decode
_decode_loose = msgspec.json.Decoder(_Loose).decode


def decode_list(text: bytes) -> tuple[list[Event], int]:
    """Events between commas, up to the bracket that may end them.

    Returns:
        The events, and the place of that bracket in ``text``; -1 if the text has none.

    Raises:
        one of NOT_JSON: it is not that.
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
        one of NOT_JSON: it is not that.
    """
    return _checked(_decode_lines(text), text)


def decode_record(record: bytes) -> Event:
    """One JSON object, with members of any type.

    Raises:
        one of NOT_JSON: it is not JSON, or no object.
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
    except NOT_JSON:
        return None
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _checked(events: list[Event], text: bytes) -> list[Event]:
    """The events, if all text is valid UTF-8 (decoding does not look into raw parts)."""
    if not text.isascii():
        text.decode()
    return events


GOOD, ABSENT, BAD, BEYOND = 0, 1, 2, 3
"""States: a time; nothing (or null); not a number; a number no int64 nanosecond can hold."""

_COMMON = b"0123456789.,-"
_TEN = 10 ** np.arange(19, dtype=np.int64)
_HUNDREDS = np.array([100, 10, 1])
_STAMP = 22  # bytes of "1736408883704643.212", quotes included


class Times(msgspec.Struct, frozen=True):
    """One column of times.

    Attributes:
        ns:      int64; 0 where the state is not GOOD.
        state:   uint8 per row.
        rounded: bool per row: were there digits beyond the nanosecond.
    """

    ns: I64
    state: NDArray[np.uint8]
    rounded: NDArray[np.bool_]


def nanoseconds(tokens: Sequence[Any]) -> Times:
    """Microseconds to nanoseconds.

    Args:
        tokens: JSON numbers or strings of numbers as raw bytes; ``b""`` where there is none.
    """
    n = len(tokens)
    ns = _stamps(b"".join(tokens), n)
    if ns is not None:
        return Times(ns, np.zeros(n, np.uint8), np.zeros(n, bool))
    return _plain(b",".join(tokens), n) or _odd(tokens)


def _stamps(text: bytes, n: int) -> I64 | None:
    """All rows written as msprof writes them: strings of 16 digits, a point and 3 digits."""
    if not n or len(text) != n * _STAMP:
        return None
    grid = np.frombuffer(text, np.uint8).reshape(n, _STAMP)
    marks = (grid[:, 0] == 34) & (grid[:, 17] == 46) & (grid[:, 21] == 34)
    digits = np.empty((n, 19), np.uint8)
    np.subtract(grid[:, 1:17], 48, out=digits[:, :16])
    np.subtract(grid[:, 18:21], 48, out=digits[:, 16:])
    if not marks.all() or int(digits.max()) > 9 or int(digits[:, 0].max()) > 8:
        return None
    halves = np.ascontiguousarray(digits[:, :16]).view("<u8").astype(np.uint64)
    upper, lower = _eight(halves).astype(np.int64).T
    thousandths = digits[:, 16:].astype(np.int64) @ _HUNDREDS
    ns: I64 = (upper * 100_000_000 + lower) * 1000 + thousandths
    return ns


def _eight(digits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers of eight digits, one per byte, the first in the lowest: pairs, fours, eights."""
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return (fours * np.uint64(10000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)


def _plain(text: bytes, n: int) -> Times | None:
    """All rows are digits with at most one point and a minus in front, or strings of such."""
    text = text.replace(b'"', b"")
    parts = text.replace(b".", b"").split(b",")
    if text.translate(None, _COMMON) or len(parts) != n:
        return None
    try:
        digits = np.fromiter(map(int, parts), np.int64, n)
    except (ValueError, OverflowError):
        return None
    places = _places(text, n)
    if places is None or int(places.max(initial=0)) > 21:
        return None
    return _scaled(digits, 3 - places)


def _places(text: bytes, n: int) -> I64 | None:
    """Digits behind the point, per row; None if a row has two points."""
    chars = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(chars == 44), len(chars))
    points = np.flatnonzero(chars == 46)
    rows = np.searchsorted(ends, points)
    if len(rows) > 1 and not (rows[1:] > rows[:-1]).all():
        return None
    places = np.zeros(n, np.int64)
    places[rows] = ends[rows] - points - 1
    return places


def _scaled(digits: I64, shift: I64) -> Times | None:
    """``digits * 10**shift``, half up."""
    limit = INT64_MAX // _TEN[np.maximum(shift, 0)]
    if ((digits > limit) | (digits < -limit)).any():  # the smallest int64 has no absolute value
        return None
    scale = _TEN[np.maximum(-shift, 0)]
    whole, rest = np.divmod(np.abs(digits), scale)
    whole += rest >= scale - rest  # half up; of 1 there is no half: rest is 0
    ns = np.where(digits < 0, -whole, whole) * _TEN[np.maximum(shift, 0)]
    return Times(ns, np.zeros(len(ns), np.uint8), rest > 0)


def _odd(tokens: Sequence[Any]) -> Times:
    """One by one: exponents, blanks, missing values, nonsense."""
    rows = [parse(bytes(token)) for token in tokens]
    return Times(
        np.array([ns for ns, _, _ in rows], np.int64),
        np.array([state for _, state, _ in rows], np.uint8),
        np.array([rounded for _, _, rounded in rows], bool),
    )


def parse(token: bytes) -> tuple[int, int, bool]:
    """One time: ns, state, whether it was rounded."""
    if token in (b"", b"null"):
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
