"""Repairs of Paddle's JSON: text that was printed without escapes, times that were cut short.

Every record begins on a line of its own with its name, and the name ends at the last
``", "pid": `` of that line, whatever is in it; other texts of users fill the rest of a line.
Work is linear in the length of the file: every line is looked at once, and most are passed over
in blocks that a few searches find clean.

Starts are cut down to microseconds; beside them is printed how far each event begins after the
first one of the host, through a 32-bit float. With t0 the start of that first event,
``floor((t0 + since_i) / 1000) = ts_i`` holds for every event, which leaves t0 a few nanoseconds
(:func:`recovered`). Slices are fitted to what stays coarse (:func:`trimmed`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

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
"""Longer lines are left as they are: Paddle writes none."""

MAX_NAME_LINES = 64
"""A name may hold line breaks; so many lines at most."""

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
_CONTROL = lazy_regex(rb"[\x00-\x1f]")
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
        rest = b""
        while chunk := self._stream.read(BLOCK_BYTES):
            text = rest + chunk
            cut = text.rfind(b"\n") + 1
            if cut or len(text) > MAX_LINE_BYTES:
                cut = cut or len(text)
                yield text[:cut]
            rest = text[cut:]
        if rest:
            yield rest

    def _repaired(self, line: bytes, held: list[bytes]) -> Iterator[bytes]:
        """What is known after one more line; ``held`` keeps those of a name until it ends."""
        if _BEGINS.match(line):
            yield from held
            held[:], self._touched = [line], False
        elif held:
            held.append(line)
        else:
            yield self._other(line)
            return
        if b'", "pid": ' in line:
            yield self._name(b"".join(held))
        elif len(held) == 1 and _TEXT.match(line):
            yield self._other(line)
        elif len(held) <= MAX_NAME_LINES and not (len(held) == 1 and _is_json(line)):
            return
        else:
            yield from held
        held.clear()

    def _name(self, text: bytes) -> bytes:
        """A line that begins a record."""
        match = _NAME.match(text)
        if match is None or not _needs(match[2]):
            return text
        return self._done(match[1] + _escaped(match[2]) + match[3])

    def _other(self, line: bytes) -> bytes:
        """A line within a record, or around all of them."""
        if (match := _NOT_A_NUMBER.search(line)) is not None:
            return self._done(line[: match.start()] + b"null" + line[match.end() :])
        match = _TEXT.match(line)
        if match is None or not _ESCAPE.search(match[2]) or _is_json(line):
            return line
        text = _ESCAPE.sub(_kept_or_escaped, match[2])
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


def _needs(name: bytes) -> bool:
    return b'"' in name or b"\\" in name or _CONTROL.search(name) is not None


def _escaped(name: bytes) -> bytes:
    """A name as it was before it was printed, as JSON."""
    name = name.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return _CONTROL.sub(lambda m: b"\\u%04x" % m[0][0], name)


def _kept_or_escaped(match: re.Match[bytes]) -> bytes:
    """Escapes stay; lone quotes and backslashes become such."""
    return match[0] if len(match[0]) > 1 else b"\\" + match[0]


@contextmanager
def repaired(source: Source, name: str) -> Iterator[tuple[Source, str, Repaired]]:
    """A repaired copy of a file, in a temporary one: its source, its name, and the account.

    The copy may go while it is mapped.
    """
    with named_temporary_file() as copy:
        with source.open(name) as stream:
            found = Repaired(stream)
            _write(copy, found)
        path = Path(copy.name)
        yield FileSource(path, source.title(name)), path.name, found


def _write(copy: IO[Any], found: Repaired) -> None:
    for line in found.lines():
        copy.write(line)
    copy.flush()


EXACT_NS = 2**14 * 1000
"""Below this, floats of microseconds are less than 1 ns apart: the digits are exact."""

USABLE_NS = 2**22 * 1000
"""Beyond this, they are half a microsecond apart and say little more than the stamps."""

FAR_NS = 2**62
US = 1000
TRIM_NS = 1000
"""No slice is cut by more than this."""


@dataclass(frozen=True)
class Starts:
    """Start times of slices.

    Attributes:
        ns:    int64; as stamped where nothing better is known.
        slack: int64: by how many ns a start may be wrong against the others of the file.
        kept:  bool: it is as stamped.
        spread: all of the file may be this many ns earlier or later; -1 if nothing was recovered.
    """

    ns: I64
    slack: I64
    kept: NDArray[np.bool_]
    spread: int = -1


def recovered(stamp: I64, since: I64, stated: NDArray[np.bool_]) -> Starts:
    """Start times of the slices of one file.

    Args:
        stamp: whole microseconds, in ns.
        since: time since the first event, ns.
        stated: whether ``since`` is known.
    """
    whole = (stamp % US == 0) & (stamp < FAR_NS)  # else stamps were not cut to microseconds
    stated, coarse = stated & whole, np.where(whole, US - 1, 0)
    exact = stated & (since >= 0) & (since < EXACT_NS)
    as_stamped = Starts(stamp, coarse, np.ones(len(stamp), bool))
    if not exact.any():
        return as_stamped
    begin = stamp[exact] - since[exact]
    first, last = int(begin.max()), int(begin.min()) + US - 1
    if first > last:  # not of one recording, or of a writer with other rules
        return as_stamped
    error, spread = _error(since), (last - first + 1) // 2
    requested = since + (first + last) // 2
    found = np.clip(requested, stamp, stamp + (US - 1))
    good = stated & (since >= 0) & (since < USABLE_NS)
    good &= np.abs(found - requested) <= error + spread
    return Starts(np.where(good, found, stamp), np.where(good, error, coarse), ~good, spread)


def _error(since: I64) -> I64:
    """How far the digits of a 32-bit float of microseconds may be off, ns."""
    spacing = np.spacing(np.abs(since / US).astype(np.float32)).astype(np.float64) * US
    return np.where(since < EXACT_NS, 0, np.ceil(spacing)).astype(np.int64)


def trimmed(lane: I32, start: I64, dur: I64, slack: I64) -> tuple[I64, int]:
    """Durations with which slices of one lane nest, as far as coarse starts explain it.

    A slice that outlasts the one around it, or reaches into the next one, by no more than the
    slack of the two starts is cut to fit; others are left as they are.

    Returns:
        The durations, and how many are shorter than before.
    """
    end = start + dur
    for number in np.unique(lane[slack > 0]).tolist():
        rows = np.flatnonzero(lane == number)
        rows = rows[np.lexsort((-dur[rows], start[rows]))]
        if not _nests(start[rows], end[rows]):
            end[rows] = _fitted(start[rows].tolist(), end[rows].tolist(), slack[rows].tolist())
    return end - start, int((end - start < dur).sum())


def _nests(start: I64, end: I64) -> bool:
    """Whether slices, sorted by (start, -end), nest: as many are around each begin as each end.

    May say no of slices of no length that do.
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
