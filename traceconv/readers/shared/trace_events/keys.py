"""Around the events: where their list begins, and the other keys of the outermost object."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import msgspec

from traceconv.core.json_text import NOT_JSON
from traceconv.core.patterns import lazy_regex
from traceconv.io.window import MAX_RECORD_BYTES, Window

KEPT_BYTES = 1 << 20
"""Longer values of other keys are not kept."""

_HEAD_BYTES = 65536
_PIECE_BYTES = 1 << 16  # looked at first: the list mostly begins in it
_BEGIN = lazy_regex(rb'\[(?=\s*(?:[{\]]|\Z))|\{(?=\s*["}])')
_STRING = rb'"(?:[^"\\]|\\.)*+"'
_OUTER = lazy_regex(rb'(?:[^"{}\[\],:]++|' + _STRING + rb")*+([{}\[\],:])", re.DOTALL)
_INNER = lazy_regex(rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+([{}\[\]])", re.DOTALL)
_REST = lazy_regex(rb'(?:[^"]++|' + _STRING + rb")*+", re.DOTALL)
_OPEN, _CLOSE = b"{[", b"}]"


class Form(Enum):
    """How events are written down."""

    ARRAY = "[e, e]"
    OBJECT = '{"traceEvents": [e, e]}'
    LINES = "e newline e"
    EMPTY = ""
    OTHER = "anything else"


class Keys:
    """The members of the outermost object, token by token.

    Attributes:
        found: values of keys other than ``traceEvents``, parsed; long or broken ones are not kept.
        names: all keys found, as spelled.
    """

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.names: set[bytes] = set()
        self._depth = 0
        self._key = b""
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def closed(self) -> bool:
        """Whether the object's last brace has been passed."""
        return self._depth <= 0

    def resume(self) -> None:
        """Go on behind the list of events."""
        self._depth, self._key, self._pieces, self._size = 1, b"", [], 0

    def seek(self, window: Window) -> bool:
        """Move ``window.pos`` behind the bracket that opens the list of events.

        Returns:
            Whether there is one; if not, the object or the file has ended.
        """
        size = _PIECE_BYTES
        while True:
            piece = window.data[window.pos : min(window.end, window.pos + size)]
            used, has_list = self.feed(piece)
            window.pos += used
            if has_list is not None:
                return has_list
            if window.end - window.pos > len(piece) - used:
                size *= 2  # there is more of it here
            elif window.end - window.pos > MAX_RECORD_BYTES or not window.more():
                return False

    def feed(self, text: bytes) -> tuple[int, bool | None]:
        """Go through the next bytes.

        Returns:
            How many are done with (a string may go on in bytes still to come), and whether the
            list was found; None if neither it nor the end of the object was found yet.
        """
        done = at = 0  # text[done:at] belongs to the current key or value
        while match := (_OUTER if self._depth <= 1 else _INNER).match(text, at):
            at = match.end()
            token = match[1]
            if token in _OPEN:
                if self._depth == 1 and token == b"[" and self._key == b'"traceEvents"':
                    return at, True
                self._depth += 1
                done = at if self._depth == 1 else done
            elif token in _CLOSE:
                self._depth -= 1
                if self._depth <= 0:
                    self._value(text[done : at - 1])
                    return at, False
            elif self._depth == 1:
                if token == b",":
                    self._value(text[done : at - 1])
                else:
                    self._keep(text[done : at - 1])
                    self._key = b"".join(self._pieces).strip()
                    self._pieces, self._size = [], 0
                    self.names.add(self._key)
                done = at
        stop = _REST.match(text, at).end()  # type: ignore[union-attr]
        self._keep(text[done:stop])
        return stop, None

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= KEPT_BYTES:
            self._pieces.append(piece)

    def _value(self, value_end: bytes) -> None:
        """The value of the current key is complete."""
        self._keep(value_end)
        text = b"".join(self._pieces)
        key, is_whole = self._key, self._size <= KEPT_BYTES
        self._key, self._pieces, self._size = b"", [], 0
        if not (key and is_whole):
            return
        try:
            self.found[str(msgspec.json.decode(key))] = msgspec.json.decode(text)
        except NOT_JSON:
            return


def find_events(window: Window, keys: Keys) -> tuple[Form, int]:
    """Move ``window.pos`` to the first event.

    Returns:
        The form of the file, and how many bytes of something else precede it.
    """
    while window.end - window.pos < _HEAD_BYTES and window.more():
        pass
    text = bytes(window.data[window.pos : min(window.end, window.pos + _HEAD_BYTES)])
    match = _BEGIN.search(text)
    junk = len(text[: match.start() if match else None].removeprefix(b"\xef\xbb\xbf").strip())
    if not match:
        return (Form.OTHER if junk else Form.EMPTY), 0
    window.pos += match.start()
    if match.group() == b"[":
        window.pos += 1
        return Form.ARRAY, junk
    first_keys = Keys()
    first_keys.feed(text[match.start() :])
    if b'"ph"' in first_keys.names:
        return Form.LINES, junk
    return (Form.OBJECT if keys.seek(window) else Form.OTHER), junk
