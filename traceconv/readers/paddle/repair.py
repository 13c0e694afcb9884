"""Makes JSON of what Paddle printed: it escapes nothing but call stacks.

Every record begins on a line of its own with its name, and the name ends at the last
``", "pid": `` of that line, whatever stands in it; other texts of users fill the rest of a line.
Work is linear in the length of the file: every line is looked at once, and most are passed over
in blocks that a few searches find clean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from traceconv.io.sources import FileSource, Source
from traceconv.io.streams import Stream
from traceconv.io.temporary import named_temporary_file
from traceconv.readers.shared.trace_events.decode import BROKEN

BLOCK_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 20
"""Longer lines are left as they are: Paddle writes none."""

MAX_NAME_LINES = 64
"""A name may hold line breaks; so many lines at most."""

_NAME = re.compile(rb'([ \t]*"name": ")(.*)(", "pid": [^\n]*\n?)\Z', re.DOTALL)
_BEGINS = re.compile(rb'[ \t]*"name": "')
_END = rb"[ \t]*+,?+[ \t]*+\r?\n?"
_TEXT = re.compile(rb'([ \t]*"(?:name|callstack|\d+)": ")(.*)("' + _END + rb")\Z", re.DOTALL)
_NOT_A_NUMBER = re.compile(
    rb'(?<=": )[+-]?(?:nan|inf)(?:inity|\([a-z0-9]*\))?(?=' + _END + rb"\Z)", re.IGNORECASE
)
_CLEAN_NAME = re.compile(rb'"name": "[^"\\\x00-\x1f]*"[,\r\n]')
_CLEAN_RECORD = re.compile(rb'"name": "[^"\\\x00-\x1f]*", "pid": ')
_CLEAN_STACK = re.compile(rb'"callstack": "(?:[^"\\\n]|\\["\\/bfnrt])*+"[,\r\n]')
_SUSPECT = re.compile(rb'": [+-]?(?:nan|inf)|\n[ \t]*"\d+": "', re.IGNORECASE)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\]')


class Repaired:
    """A file read line by line, its lines repaired.

    Attributes:
        records: how many records had something to repair.
        place:   where the first of them lies.
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
    except BROKEN:
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
