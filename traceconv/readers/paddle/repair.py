"""Repair Paddle's JSON: text without escapes, and truncated times.

Every record begins on a new line with its name, which ends at the last ``", "pid": `` of that line.
Other user texts fill the rest of a line. The work is linear in the length of the file; a few
searches find most blocks clean.

Starts are truncated to microseconds, but the arguments state how long after the first host event
each event begins, through a 32-bit float. With t0 the start of that first event,
``floor((t0 + since_i) / 1000) = ts_i`` holds for every event, which determines t0 to a few ns
(:func:`recovered`). Slices are trimmed to the starts that stay coarse (:func:`trimmed`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I32, I64
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source, Stream
from traceconv.io.sources import FileSource
from traceconv.scratch.temporary import named_temporary_file

BLOCK_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 20
"""Longer lines are not repaired: Paddle writes none."""

MAX_NAME_LINES = 64
"""Maximum number of lines of a name with line breaks."""

_NAME = lazy_regex(rb'([ \t]*"name": ")(.*)(", "pid": [^\n]*\n?)\Z', re.DOTALL)
_BEGINS = lazy_regex(rb'[ \t]*"name": "')
_END = rb"[ \t]*+,?+[ \t]*+\r?\n?"
_TEXT = lazy_regex(rb'([ \t]*"(?:name|callstack|\d+)": ")(.*)("' + _END + rb")\Z", re.DOTALL)
_NOT_A_NUMBER = lazy_regex(
    rb'(?<=": )[+-]?(?:nan|inf)(?:inity|\([a-z0-9]*\))?(?=' + _END + rb"\Z)", re.IGNORECASE
)
_CLEAN_NAME = lazy_regex(rb'"name": "[^"\\\x00-\x1f]*"[,\r\n]')
_CLEAN_RECORD = lazy_regex(rb'"name": "[^"\\\x00-\x1f]*", "pid": ')
_CLEAN_STACK = lazy_regex(rb'"callstack": "(?:[^"\\\n]|\\["\\/bfnrt])*+"[,\r\n]')
_SUSPECT = lazy_regex(rb'": [+-]?(?:nan|inf)|\n[ \t]*"\d+": "', re.IGNORECASE)
_NAME_ESCAPE = lazy_regex(rb'["\\\x00-\x1f]')
_ESCAPE = lazy_regex(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\]')


class Repaired:
    """A file read line by line, its lines repaired.

    Attributes:
        records: how many records had something to repair.
        place:   of the first of them.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.records = self._line = 0
        self.place = ""
        self._touched = False  # the record at hand has been counted

    def lines(self) -> Iterator[bytes]:
        """The repaired file, in pieces."""
        held: list[bytes] = []  # of a name that has not ended yet
        for block in self._blocks():
            if not held and _is_clean(block):
                self._line += block.count(b"\n")
                self._touched = False
                yield block
                continue
            for line in block.splitlines(keepends=True):
                self._line += 1
                yield from self._repaired(line, held)
        yield from held

    def _blocks(self) -> Iterator[bytes]:
        """Whole lines."""
        pending = b""
        while chunk := self._stream.read(BLOCK_BYTES):
            text = pending + chunk
            cut = text.rfind(b"\n") + 1
            if cut or len(text) > MAX_LINE_BYTES:
                cut = cut or len(text)
                yield text[:cut]
            pending = text[cut:]
        if pending:
            yield pending

    def _repaired(self, line: bytes, held: list[bytes]) -> Iterator[bytes]:
        """The lines that are complete after one more; ``held`` keeps those of an open name."""
        if _BEGINS.match(line):
            yield from held
            held[:], self._touched = [line], False
        elif held:
            held.append(line)
        else:
            yield self._other_line(line)
            return
        if b'", "pid": ' in line:
            text = b"".join(held)
            match = _NAME.match(text)
            if match and _NAME_ESCAPE.search(match[2]):
                text = self._done(match[1] + _NAME_ESCAPE.sub(_escaped, match[2]) + match[3])
            yield text
        elif len(held) == 1 and _TEXT.match(line):
            yield self._other_line(line)
        elif len(held) <= MAX_NAME_LINES and not (len(held) == 1 and _is_json(line)):
            return
        else:
            yield from held
        held.clear()

    def _other_line(self, line: bytes) -> bytes:
        """A line within a record, or around all of them."""
        if (match := _NOT_A_NUMBER.search(line)) is not None:
            return self._done(line[: match.start()] + b"null" + line[match.end() :])
        match = _TEXT.match(line)
        if not match or not _ESCAPE.search(match[2]) or _is_json(line):
            return line
        # escapes stay; lone quotes and backslashes are escaped
        text = _ESCAPE.sub(lambda m: m[0] if len(m[0]) > 1 else b"\\" + m[0], match[2])
        return self._done(match[1] + text + match[3]) if text != match[2] else line

    def _done(self, line: bytes) -> bytes:
        self.records += not self._touched
        self._touched = True
        self.place = self.place or f"line {self._line}"
        return line


def _is_clean(block: bytes) -> bool:
    """Whether nothing in whole lines needs repair; may say no where nothing does."""
    return (
        block.count(b'"name": "') == len(_CLEAN_NAME.findall(block))
        and block.count(b'", "pid": ') == len(_CLEAN_RECORD.findall(block))
        and block.count(b'"callstack": "') == len(_CLEAN_STACK.findall(block))
        and not _SUSPECT.search(b"\n" + block)
    )


def _is_json(line: bytes) -> bool:
    """Whether a line holds members of an object that JSON allows."""
    try:
        msgspec.json.decode(b"{" + line.strip().rstrip(b",") + b"}")
    except NOT_JSON:
        return False
    return True


def _escaped(match: re.Match[bytes]) -> bytes:
    """A character that JSON does not allow as it is."""
    return b"\\" + match[0] if match[0] in b'"\\' else b"\\u%04x" % match[0][0]


@contextmanager
def repaired(source: Source, name: str) -> Iterator[tuple[Source, str, Repaired]]:
    """A repaired temporary copy of a file: its source, its name, and the account."""
    with named_temporary_file() as copy:
        with source.open(name) as stream:
            repair = Repaired(stream)
            copy.writelines(repair.lines())
            copy.flush()
        path = Path(copy.name)
        yield FileSource(path, source.title(name)), path.name, repair


EXACT_NS = 2**14 * 1000
"""Below this, 32-bit floats of microseconds are exact to 1 ns."""

USABLE_NS = 2**22 * 1000
"""Beyond this, they are half a microsecond apart and no better than the stamps."""

FAR_NS = 2**62
US = 1000
TRIM_NS = 1000
"""Slices are trimmed by at most this."""


@dataclass(frozen=True)
class Starts:
    """Start times of slices.

    Attributes:
        ns:    int64; the stamp where it cannot be recovered.
        slack: int64: uncertainty in ns relative to the other starts of the file.
        kept:  bool: the start is the stamp.
        spread: uncertainty of the whole file in ns; -1 if nothing was recovered.
    """

    ns: I64
    slack: I64
    kept: NDArray[np.bool_]
    spread: int = -1


def recovered(stamp: I64, since: I64, has_since: NDArray[np.bool_]) -> Starts:
    """Start times of the slices of one file.

    Args:
        stamp: whole microseconds, in ns.
        since: time since the first event, ns.
        has_since: whether ``since`` is known.
    """
    is_cut = (stamp % US == 0) & (stamp < FAR_NS)  # else stamps were not cut to microseconds
    has_since, coarse = has_since & is_cut, np.where(is_cut, US - 1, 0)
    exact = has_since & (since >= 0) & (since < EXACT_NS)
    as_stamped = Starts(stamp, coarse, np.ones(len(stamp), bool))
    if not exact.any():
        return as_stamped
    begin = stamp[exact] - since[exact]
    earliest, latest = int(begin.max()), int(begin.min()) + US - 1
    if earliest > latest:  # not of one recording, or of a writer with other rules
        return as_stamped
    spacing = np.spacing(np.abs(since / US).astype(np.float32)).astype(np.float64) * US
    error = np.where(since < EXACT_NS, 0, np.ceil(spacing)).astype(np.int64)
    spread = (latest - earliest + 1) // 2
    requested = since + (earliest + latest) // 2
    starts = np.clip(requested, stamp, stamp + (US - 1))
    good = has_since & (since >= 0) & (since < USABLE_NS)
    good &= np.abs(starts - requested) <= error + spread
    return Starts(np.where(good, starts, stamp), np.where(good, error, coarse), ~good, spread)


def trimmed(lane: I32, start: I64, dur: I64, slack: I64) -> tuple[I64, int]:
    """Durations with which the slices of one lane nest, as far as coarse starts explain overlaps.

    A slice that outlasts its parent, or overlaps the next slice, by no more than the slack of the
    two starts is trimmed; others stay as they are.

    Returns:
        The durations, and the number of trimmed slices.
    """
    end = start + dur
    for number in np.unique(lane[slack > 0]).tolist():
        rows = np.flatnonzero(lane == number)
        rows = rows[np.lexsort((-dur[rows], start[rows]))]
        if not _nests(start[rows], end[rows]):
            end[rows] = _fitted(start[rows].tolist(), end[rows].tolist(), slack[rows].tolist())
    return end - start, int((end - start < dur).sum())


def _nests(start: I64, end: I64) -> bool:
    """Whether slices sorted by (start, -end) nest: equal depth at each begin and end.

    False negatives are possible for slices of length 0.
    """
    n = len(start)
    inner = np.lexsort((-np.arange(n), end))  # by end, the inner ones first
    at_begin = np.arange(n) - np.searchsorted(end[inner], start, "right")
    ended = np.empty(n, np.int64)
    ended[inner] = np.arange(n)
    at_end = np.searchsorted(start, end, "left") - 1 - ended
    return bool((at_begin == at_end).all())


def _fitted(start: list[int], end: list[int], slack: list[int]) -> list[int]:
    """New ends of slices sorted by (start, -end)."""
    end, open_ = end.copy(), list[int]()
    for i, begin in enumerate(start):
        while open_ and end[open_[-1]] <= begin:
            open_.pop()
        while open_:
            around = open_[-1]
            over, into = end[i] - end[around], end[around] - begin
            allowed = min(TRIM_NS, slack[i] + slack[around])
            if over <= 0:
                break
            if over <= into:  # most of it is inside: a child
                end[i] = end[around] if over <= allowed else end[i]
                break
            if into > allowed:
                break
            end[around] = begin  # it only reaches into this one: a sibling
            open_.pop()
        open_.append(i)
    return end
