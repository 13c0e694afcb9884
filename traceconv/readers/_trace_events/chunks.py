"""The Python tier: a window taken chunk by chunk, each cut where an event seems to end.

A cut may be wrong (inside a string, or a list within the arguments); then something is left open
and decoding fails, so what decodes was cut right.
"""

from __future__ import annotations

import re

from traceconv.readers._trace_events.decode import BROKEN, Event, decode_lines, decode_list
from traceconv.readers._trace_events.intake import Intake
from traceconv.readers._trace_events.salvage import State
from traceconv.window import Window

CUTS = 4
"""How many cuts are tried for one chunk."""

_LONG = 4  # chunks without any cut, after which records are taken one by one

_BETWEEN = re.compile(rb"[\s,]*")
_CUT = re.compile(rb"\}\s*,\s*\{")
_LINE_CUT = re.compile(rb"\}\s*\n\s*\{")


class Chunks:
    """Reads chunks of about ``size`` bytes.

    Args:
        lines: events follow each other without commas.
        address: of the start of the window's mapping, if it has one.
    """

    def __init__(self, intake: Intake, size: int, lines: bool, address: int) -> None:
        self._intake, self._size, self._lines, self._address = intake, size, lines, address

    def read(self, window: Window) -> State:
        """Take one chunk."""
        data = window.data
        window.pos = _BETWEEN.match(data, window.pos, window.end).end()  # type: ignore[union-attr]
        if window.pos == window.end:
            return State.MORE
        if data[window.pos : window.pos + 1] == b"]":
            return State.END
        cut = _LINE_CUT if self._lines else _CUT
        at = window.pos + self._size
        for _ in range(CUTS):
            match = cut.search(data, at, window.end)
            if match is None:
                break
            state = self._take(window, match.start() + 1)
            if state is not State.ODD:
                return state
            at = match.start() + 1
        else:
            return State.ODD
        if at > window.pos + self._size:
            return State.ODD  # a cut was wrong, or there is damage
        if window.end - window.pos >= _LONG * self._size:
            return State.ODD
        return State.GOING if window.more() else self._take(window, window.end)

    def _take(self, window: Window, stop: int) -> State:
        text = bytes(window.data[window.pos : stop])
        mapped = window.mapped is not None
        try:
            events, end = self._decode(text)
            self._intake.take(events, text, self._address + window.pos if mapped else -1)
        except BROKEN:
            return State.ODD
        window.pos += len(text) if end < 0 else end
        return State.GOING if end < 0 else State.END

    def _decode(self, text: bytes) -> tuple[list[Event], int]:
        return (decode_lines(text), -1) if self._lines else decode_list(text)
