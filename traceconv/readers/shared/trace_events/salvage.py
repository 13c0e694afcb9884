"""Record by record: where a chunk is not what a tier expects, and where a file is damaged.

A JSON parser finds the end of every record, so boundaries are certain until one cannot be parsed.
Reading then continues at the next object that is an event. The work stays linear: however text is
made, a byte is parsed a bounded number of times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

import msgspec

from traceconv.core.json_text import NOT_JSON
from traceconv.core.patterns import lazy_regex
from traceconv.io.window import MAX_RECORD_BYTES, Window
from traceconv.readers.shared.trace_events.event_records import Event, decode_record, is_null
from traceconv.readers.shared.trace_events.tables import Tally

MAX_MENDED_BYTES = 1 << 20
"""Longer records are not mended."""

_WORD = rb"[+-]?(?i:nan(?:\([a-z0-9]*\))?|inf(?:inity)?)(?![A-Za-z0-9])"
_PIECE = lazy_regex(
    rb'"(?:[^"\\]|\\.)*+"?|(?P<word>' + _WORD + rb")|(?P<comma>,)(?=\s*+[}\]])"
    rb"|(?<![\w.])(?P<whole>-?\d++)\.-(?P<part>\d{1,3})(?!\d)",
    re.DOTALL,
)
_IN_STRING = lazy_regex(
    rb"[\x00-\x1f]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb'|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]|\\'
)
_BRACKET = lazy_regex(r'"(?:[^"\\]|\\.)*+(")?|[{}\[\]]', re.DOTALL)

_KEYS = "ph|cat|name|pid|tid|ts|dur|args|id|bp|s|tts|tdur|cname"
_MEMBER = lazy_regex(rb'"([^"\\]{1,100})"\s*:\s*(")?')
_END = lazy_regex(rb'"(?=\s*,\s*"(?:%b)"\s*:|\s*\}\s*\Z)' % _KEYS.encode())
"""A quote that ends a member of an event, whatever quotes are before it."""

_END_IN_ARGS = lazy_regex(rb'"(?=\s*,\s*"[^"]{1,100}"\s*:|\s*\}\s*(?:[,}]|\Z))')
_MEMBER_OF_EVENT = lazy_regex(rb'"(?:%b)"\s*:' % _KEYS.encode())
_QUOTE = lazy_regex(rb'(?<!\\)"')
_ARGS = lazy_regex(rb'"args"\s*:\s*')
_NEXT = lazy_regex(
    rf'\}}(?=\s*,?\s*(?:(?P<event>\{{\s*"(?:{_KEYS})"\s*:[^{{}}]{{0,500}}?(?<=[,{{\s])"ph"\s*:|'
    r'\{\s*"ph"\s*:)|\]))'
)
"""Where an event may end: another one or the end of their list follows."""

_ENDS_TRIED = 4
_LOOKED_AHEAD = 1 << 16
"""Bytes in which the end of a broken record is looked for."""

_MOST_TRIED, _MOST_TRIED_AT_FIRST = 16, 1 << 16
"""The search for ends of broken records reads at most this many times the bytes read, and this
many more."""


def mended(record: bytes, text_args: bool = True) -> tuple[Event, str] | None:
    """Decode a record that strict JSON refuses.

    Bytes that are not UTF-8 are replaced, bare NaN and Infinity become strings, raw control
    characters in strings and lone backslashes are escaped, halves of surrogate pairs replaced,
    commas before a closing bracket removed. Numbers that C++ printed as two signed halves
    ("0.-12", Kineto before 2025) are read as what was meant. Quotes within strings are escaped
    if the text after them is valid only then.

    Args:
        text_args: arguments that make no sense even then become a text.

    Returns:
        The event, and the issue code of the repair ("" without one); None if it cannot be repaired.
    """
    code, text = "", record
    try:
        if not record.isascii():
            record.decode()
    except UnicodeDecodeError:
        code, text = "bad-encoding", record.decode("utf-8", "replace").encode()
    try:
        return decode_record(text), code
    except NOT_JSON:
        if len(record) > MAX_MENDED_BYTES:
            return None
    for repair, done in _REPAIRS if text_args else _REPAIRS[:-1]:
        with suppress(*NOT_JSON):
            return decode_record(repair(text)), code or done
    return None


def _with_numbers(text: bytes) -> bytes:
    """Remove commas before closing brackets, and repair numbers of two signed halves."""
    return _PIECE.sub(lambda m: _piece(m) if m["comma"] or m["whole"] else m.group(), text)


def _with_pieces(text: bytes) -> bytes:
    return _PIECE.sub(_piece, text)


def _with_quotes(text: bytes) -> bytes:
    """Escape the quotes within strings.

    Raises:
        ValueError: a string ends nowhere.
    """
    done: list[bytes] = []
    at, end = 0, _END
    while match := _MEMBER.search(text, at):
        done.append(text[at : match.end()])
        at = match.end()
        if match[1] == b"args" and not match[2]:
            end = _END_IN_ARGS
        if match[2]:
            closing = end.search(text, at) or _END.search(text, at)
            if not closing:
                raise ValueError("a string ends nowhere")
            content = text[at : closing.start()]
            if _MEMBER_OF_EVENT.search(content) or (
                b'"' in content and end is _END and match[1] != b"name"
            ):
                raise ValueError("parts of several events")
            done += [_QUOTE.sub(rb"\"", content), b'"']
            at = closing.end()
    return _with_pieces(b"".join((*done, text[at:])))


def _with_text_args(text: bytes) -> bytes:
    """Turn the arguments into a text.

    Raises:
        ValueError: it has none, or other strings that end nowhere.
    """
    match = _ARGS.search(text)
    if not match:
        raise ValueError("no arguments")
    head = _with_quotes(text[: match.end()] + b"{}}")
    return (
        head[:-3] + msgspec.json.encode(text[match.end() :].rstrip()[:-1].strip().decode()) + b"}"
    )


_REPAIRS = (
    (_with_numbers, "repaired-record"),
    (_with_pieces, "args-not-json"),
    (_with_quotes, "repaired-record"),
    (_with_text_args, "args-not-json"),
)
"""Repairs in the order in which they are tried, and the issue code of each."""


def decoded(records: Sequence[tuple[bytes, str]], tally: Tally) -> list[Event]:
    """Decode records, mending those that need it.

    Args:
        records: the bytes of each, and its place for messages.
        tally: where is booked what was mended, and what could not be read.
    """
    events = []
    for record, where in records:
        done = mended(record)
        if done is None or is_null(done[0].ph):
            tally.add("malformed-record", where)
            continue
        events.append(done[0])
        if done[1]:
            tally.add(done[1], where)
    return events


def _piece(match: re.Match[bytes]) -> bytes:
    if match["comma"]:
        return b""
    if match["whole"]:  # both halves are negative, or the first one is 0
        return b"-%b.%b" % (match["whole"].lstrip(b"-"), match["part"].zfill(3))
    if match["word"]:
        return b'"%b"' % match["word"]
    return _IN_STRING.sub(_character, match.group())


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


def balanced(text: str, start: int, end: int) -> int:
    """Where the object that begins at ``start`` ends, by its brackets alone; -1 if it does not
    before ``end``.
    """
    depth = 0
    for match in _BRACKET.finditer(text, start, end):
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


TEXT_BYTES = 8192
"""Bytes of text that are parsed first: an error costs time in proportion to them."""

TRIES = 16
"""How often damaged text is parsed from a later place before all of it is given up."""

_PARTLY = 24  # an error so near to the end of the text may only mean that there is more to come
_NESTED = 2000  # bytes given up when nesting is too deep to be parsed

_BETWEEN = lazy_regex(r"[\s,]*")
_OBJECT = lazy_regex(r'\{\s*"[^"\\]{1,64}"\s*:')
_CLOSED = lazy_regex(r"\]\s*+\}?\s*+\Z")


def _outline(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The phase of an object; {} only for an empty one."""
    members = dict(pairs)
    if members.get("ph") is not None:
        return {"ph": members["ph"]}
    return _NO_PHASE if members else {}


_NO_PHASE: dict[str, Any] = {"ph": None}

_parse = json.JSONDecoder(
    object_pairs_hook=_outline, parse_int=len, parse_float=len, parse_constant=len, strict=False
).raw_decode


class State(Enum):
    """Why reading stopped."""

    GOING = "it can go on"
    MORE = "the bytes brought are used up"
    END = "the list of events is closed"
    ODD = "something a tier leaves to salvage"


class _Stop(Exception):
    """The text at hand is of no more use behind ``at``: it ends within a record, or is long."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Salvage:
    """Reads records one by one.

    Args:
        take: gets records, each with its place.

    Attributes:
        doubled: place of the first of two commas in a row, which reading passes over.
    """

    def __init__(self, take: Callable[[list[tuple[bytes, str]]], None], tally: Tally) -> None:
        self._take, self._tally = take, tally
        self.doubled = ""
        self._pending: list[tuple[bytes, str]] = []
        self._lost = False  # looking for the next event behind damage
        self._suspect = ""  # place of a record that the file ends in, as far as known
        self._high = self._tries = 0  # furthest error in the file; places tried before it
        self._text, self._base, self._final = "", 0, False
        self._tried = 0  # bytes looked at for the ends of records that cannot be parsed

    def read(self, window: Window, span: int = 1) -> State:
        """Take all records that begin in the next ``span`` bytes.

        Returns:
            GOING, END (``window.pos`` is at the bracket), or MORE when the file is used up.
        """
        target, size = window.offset + span, TEXT_BYTES
        try:
            while True:
                self._show(window, size)
                try:
                    state, at = self._pass(target - self._base)
                except _Stop as stop:
                    state, at = State.GOING, stop.at
                    size = TEXT_BYTES if at else min(size * 4, MAX_RECORD_BYTES + 1)
                    window.pos += at
                    continue
                window.pos += at
                if state is not State.MORE or self._final:
                    return state
                size = TEXT_BYTES
        finally:
            self._take(self._pending)
            self._pending, self._text = [], ""

    def _show(self, window: Window, size: int) -> None:
        """Look at the next ``size`` bytes, as characters of their values."""
        while window.end - window.pos < size and window.more():
            pass
        stop = min(window.end, window.pos + size)
        self._text = bytes(window.data[window.pos : stop]).decode("latin-1")
        self._base, self._final = window.offset, stop - window.pos < size

    @property
    def _enough(self) -> bool:
        """Whether a record that does not end in the text will not end at all."""
        return self._final or len(self._text) > MAX_RECORD_BYTES

    def finish(self) -> bool:
        """Settle what the end of the file cut off; whether it did."""
        if self._suspect:
            self._tally.add("truncated", self._suspect)
        return bool(self._suspect)

    def _pass(self, span: int) -> tuple[State, int]:
        """Go through the text; why it stopped, and where."""
        at, text = 0, self._text
        while True:
            if self._lost:
                at = self._event_behind(at)
            before, at = at, _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
            if text.count(",", before, at) > 1:
                self.doubled = self.doubled or self._place(before)
            if at == len(text):
                return State.MORE, at
            if at >= span:
                return State.GOING, at
            if text[at] == "]":
                return State.END, at
            at = self._record(at)

    # -- one record --------------------------------------------------------------------------

    def _record(self, at: int) -> int:
        """Take the record at ``at``; where it ends, or where to look for the next one."""
        try:
            value, stop = _parse(self._text, at)
        except json.JSONDecodeError as e:
            return self._broken(at, e)
        except (ValueError, RecursionError):
            return self._damaged(at, at + _NESTED)
        if isinstance(value, list) and any(isinstance(member, dict) for member in value):
            return self._damaged(at, at + 1)  # a bracket too many: events are behind it
        if not isinstance(value, dict):
            if stop == len(self._text) and not self._enough:
                raise _Stop(at)  # a number may go on
            self._tally.add("malformed-record", self._place(at))
        elif value.get("ph") is not None:
            self._pending.append((self._bytes(at, stop), self._place(at)))
        elif value:
            self._tally.add("unknown-phase", self._place(at))
        return stop

    def _broken(self, at: int, error: json.JSONDecodeError) -> int:
        """A record that cannot be parsed: go on behind it, if its end can be found."""
        partly = self._is_partly(error)
        if partly and not self._enough:
            raise _Stop(at)
        stop = self._mend(at)
        if stop >= 0:
            return stop
        if partly and self._final:
            self._suspect, self._lost = self._suspect or self._place(at), True
            return at + 1
        return self._damaged(at, error.pos)

    def _mend(self, at: int) -> int:
        """Where a record ends that only breaks small rules and was taken; -1 if it was not."""
        if self._tried > _MOST_TRIED * (self._base + at + _MOST_TRIED_AT_FIRST):
            return -1
        ends = self._ends(at)
        self._tried += ends[-1] - at if ends else _LOOKED_AHEAD
        for end in ends:
            if self._is_mended(at, end, text_args=False):
                return end
        return ends[-1] if ends and self._is_mended(at, ends[-1], text_args=True) else -1

    def _is_mended(self, at: int, end: int, text_args: bool) -> bool:
        """Whether these bytes are an event that can be mended; it is taken then."""
        record = self._bytes(at, end)
        done = mended(record, text_args)
        if done is None or is_null(done[0].ph):
            return False
        self._pending.append((record, self._place(at)))
        return True

    def _ends(self, at: int) -> list[int]:
        """Where a broken record may end: by its brackets, or before what is surely an event."""
        text, ends = self._text, []
        stop = min(at + _LOOKED_AHEAD, len(text))
        for match in _NEXT.finditer(text, at, stop):
            ends.append(match.end())
            if match["event"]:
                break
        else:
            if stop < at + _LOOKED_AHEAD and not self._enough:
                raise _Stop(at)
        if (end := balanced(text, at, ends[-1] if ends else stop)) >= 0:
            ends = sorted({end, *ends})
        return ends[-_ENDS_TRIED:]

    def _is_partly(self, error: json.JSONDecodeError) -> bool:
        near = error.pos >= len(self._text) - _PARTLY
        return near or error.msg.startswith("Unterminated")

    # -- damage ------------------------------------------------------------------------------

    def _damaged(self, at: int, error: int) -> int:
        self._tally.add("malformed-record", self._place(at))
        self._lost, self._tries = True, 0
        self._high = max(self._high, self._base + error)
        return self._short(at + 1)

    def _short(self, at: int) -> int:
        """``at``, if the text is short; a long one is given up, since every error in it costs."""
        if len(self._text) > TEXT_BYTES:
            raise _Stop(at)
        return at

    def _event_behind(self, at: int) -> int:
        """The next place at or behind ``at`` where an event begins, or the end."""
        text = self._text
        while match := _OBJECT.search(text, at):
            at = match.start()
            try:
                value, stop = _parse(text, at)
            except json.JSONDecodeError as e:
                if self._is_partly(e) and not self._enough:
                    raise _Stop(at) from None
                at = self._short(self._behind(at, e.pos))
            except (ValueError, RecursionError):
                at = self._short(self._behind(at, at + _NESTED))
            else:
                if isinstance(value, dict) and value.get("ph") is not None:
                    # an event follows the damage, so the file did not end there
                    if self._suspect:
                        self._tally.add("malformed-record", self._suspect)
                    self._lost, self._suspect = False, ""
                    return at
                at = stop
        if not self._final:
            raise _Stop(max(at, len(text) - _PARTLY))
        # no event follows the damage
        self._lost = False
        if self._suspect and _CLOSED.search(self._text[-TEXT_BYTES:]):
            self._tally.add("malformed-record", self._suspect)
            self._suspect = ""
        return len(text)

    def _behind(self, at: int, error: int) -> int:
        """Where to look on after an error: a little further, or behind all errors so far."""
        self._tries += 1
        if self._base + at >= self._high:
            self._tries = 0
        self._high = max(self._high, self._base + error)
        ahead = self._high - self._base if self._tries >= TRIES else 0
        return min(max(at + 1, ahead), len(self._text))

    # -- taking ------------------------------------------------------------------------------

    def _bytes(self, at: int, stop: int) -> bytes:
        return self._text[at:stop].encode("latin-1")

    def _place(self, at: int) -> str:
        return f"byte {self._base + at}"
