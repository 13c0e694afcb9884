"""A Chrome JSON file as text in pieces, and its events one by one, as the importer reads them."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

from traceconv.validation.container import Buffer, has_bom
from traceconv.validation.lenient import (
    SURROGATE_ESCAPE,
    Incomplete,
    LenientError,
    Span,
    object_fields,
    string,
    value,
)
from traceconv.validation.tally import Refused, Tally

_PIECE = 1 << 20
_SHIFT = 32
"""A place is ``piece << 32 | position in its text``."""

_GAP = re.compile(r"[ \t\n\r]*(?:,[ \t\n\r]*)?")
_BLANK = re.compile(r"\s*")
_KEY_GAP = re.compile(r"[\s,]*")
_BAD_BYTES = re.compile("[\udc80-\udcff]")
_CONTROL = re.compile("[\x00-\x1f\x7f]")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_STRICT = cast(Any, json.JSONDecoder(parse_constant=_no_constant)).scan_once
_LOOSE = cast(Any, json.JSONDecoder(parse_constant=_no_constant, strict=False)).scan_once
_UNREADABLE = (ValueError, StopIteration, RecursionError)


class Text:
    """The file's text: a window that is moved on, and earlier windows again by number."""

    def __init__(self, data: Buffer, tally: Tally) -> None:
        self._data, self._tally = data, tally
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._read = 0
        self._begin = 0
        self._spans: list[tuple[int, int]] = [(0, 0)]
        self._again: tuple[int, str] = (-1, "")
        self._clean = True
        self.window = ""
        self.surrogates = False

    @property
    def number(self) -> int:
        """Of the current window."""
        return len(self._spans) - 1

    def more(self, keep: int) -> bool:
        """Drop the window before ``keep`` and append the next piece; False at the end."""
        if self._read >= len(self._data):
            return False
        size = max(_PIECE, len(self.window) - keep)
        piece = bytes(self._data[self._read : self._read + size])
        self._read += len(piece)
        self._begin += len(self.window[:keep].encode("utf-8", "surrogateescape"))
        last = self._read >= len(self._data)
        self.window = self.window[keep:] + self._decoder.decode(piece, last)
        self._spans.append((self._begin, self._read))
        self._judge()
        return True

    def _judge(self) -> None:
        if self._clean and not self.window.isascii() and _BAD_BYTES.search(self.window):
            self._clean = False
            self._tally.add("J16-utf8", f"after byte {self._begin}")
        self.surrogates = "\\u" in self.window and bool(SURROGATE_ESCAPE.search(self.window))

    def at(self, place: int) -> tuple[str, int]:
        """The window of a place, and the position in it."""
        number, position = place >> _SHIFT, place & ((1 << _SHIFT) - 1)
        if self._again[0] != number:
            begin, end = self._spans[number]
            raw = bytes(self._data[begin:end])
            self._again = (number, raw.decode("utf-8", "surrogateescape"))
        return self._again[1], position


class Reader:
    """The events of a file, and its metadata.

    Attributes:
        metadata: the top-level ``metadata`` object.
        text:     to read an event again.
    """

    def __init__(self, data: Buffer, label: str, tally: Tally) -> None:
        if has_bom(data):
            raise Refused(label, "J16-bom", "")
        self._label, self._tally = label, tally
        self.text = Text(data, tally)
        self.metadata: dict[str, Any] = {}
        self._at = 0
        self._events = 0
        self._whole = self._stopped = False

    def __iter__(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Every event with its place. Nested values of damaged events are a :class:`Span`.

        Raises:
            Refused: the importer would refuse the file.
        """
        self._skip(_BLANK)
        self._at += 1
        if self.text.window[self._at - 1] == "[":
            yield from self._array()
            return
        self._whole = True
        while (key := self._key()) is not None:
            if key == "traceEvents":
                if self.text.window[self._at] != "[":
                    self._refuse("J16-syntax")
                self._at += 1
                yield from self._array()
                continue
            content = self._value(key == "metadata")
            if key == "metadata" and isinstance(content, dict):
                self.metadata = content

    def where(self) -> str:
        """The current event for people."""
        return f"event {self._events}"

    def stop(self, rule: str) -> None:
        """Read no further, as the importer does; inside an outer object it refuses the file."""
        if self._whole:
            self._refuse(rule)
        self._stopped = True

    # -- events --------------------------------------------------------------------------------

    def _array(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Events up to the closing bracket, which must be there inside an outer object."""
        text = self.text
        while not self._stopped:
            window = text.window
            gap = _GAP.match(window, self._at)
            assert gap is not None
            at = gap.end()
            if at >= len(window) and text.more(self._at):
                self._at = 0
                continue
            if at >= len(window):
                if self._whole:
                    self._refuse("J16-truncated")
                self._tally.add("J16-unclosed")
                return
            if window[at] == "]":
                self._at = at + 1
                return
            self._events += 1
            try:
                if text.surrogates:
                    raise ValueError
                event, end = _STRICT(window, at)
            except _UNREADABLE:
                event, end = self._careful(at)
            if end < 0 and text.more(self._at):
                self._at = 0
                self._events -= 1
                continue
            if end < 0:
                if self._whole:
                    self._refuse("J16-truncated")
                self._tally.add("J16-cut", self.where())
                return
            self._at = end
            if not isinstance(event, dict):
                self._refuse("J16-syntax")
            yield event, text.number << _SHIFT | at

    def _careful(self, at: int) -> tuple[Any, int]:
        """An event that is not plain JSON; end -1 if it is cut off."""
        window = self.text.window
        try:
            event, end = _LOOSE(window, at)
            if not SURROGATE_ESCAPE.search(window, at, end):
                if _CONTROL.search(window, at, end):
                    self._judge_control(window, at, end)
                return event, end
        except _UNREADABLE:
            pass
        event, end = {}, -1
        try:
            for key, content, behind in object_fields(window, at):
                event[key], end = content, behind
        except (Incomplete, IndexError):
            return {}, -1
        except LenientError as e:
            self._refuse("J16-surrogate" if e.surrogate else "J16-syntax", str(e))
        return event, end

    def _judge_control(self, window: str, at: int, end: int) -> None:
        try:
            _STRICT(window, at)
        except _UNREADABLE:
            self._tally.add("J16-control", self.where())

    # -- the outer object ----------------------------------------------------------------------

    def _key(self) -> str | None:
        """The next key, the position behind it at its value; None at the end of the object."""
        self._skip(_KEY_GAP)
        if self.text.window[self._at] == "}":
            return None
        key, _ = self._retried(string)
        if _CONTROL.search(key):
            self._refuse("J16-syntax")
        self._skip(_BLANK)
        if self.text.window[self._at] != ":":
            self._refuse("J16-syntax")
        self._at += 1
        self._skip(_BLANK)
        if self.text.window[self._at] not in '[{-"tfn0123456789':
            self._refuse("J16-syntax")
        return str(key)

    def _value(self, wanted: bool) -> Any:
        """Skip the value here; as Python reads it if it is ``wanted`` and readable, else None."""
        content, begin = self._retried(value)
        if isinstance(content, str) and _CONTROL.search(content):
            self._refuse("J16-syntax")
        if not wanted or not isinstance(content, Span):
            return None
        try:
            return _LOOSE(self.text.window, begin)[0]
        except _UNREADABLE:
            return None

    def _retried(self, parse: Callable[[str, int], tuple[Any, int]]) -> tuple[Any, int]:
        """What ``parse`` finds here, and where it began; more text is read while it is cut off."""
        while True:
            try:
                begin = self._at
                content, self._at = parse(self.text.window, begin)
                return content, begin
            except (Incomplete, IndexError):
                self._more("J16-truncated")
            except LenientError as e:
                self._refuse("J16-surrogate" if e.surrogate else "J16-syntax", str(e))

    def _more(self, rule: str) -> None:
        """Read on, keeping what is not consumed; refuse by ``rule`` at the end of the file."""
        if not self.text.more(self._at):
            self._refuse(rule)
        self._at = 0

    def _skip(self, blanks: re.Pattern[str]) -> None:
        """Move to the next character that is none of ``blanks``."""
        while True:
            match = blanks.match(self.text.window, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self.text.window):
                return
            self._more("J16-truncated")

    def _refuse(self, rule: str, detail: str = "") -> NoReturn:
        raise Refused(self._label, rule, f"{self.where()} ({detail})" if detail else self.where())
