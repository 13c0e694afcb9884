"""Logs with one record per line: lines of a byte stream, and rows collected one by one.

Text is UTF-8; a byte order mark is skipped. Lines end in LF or CRLF. A line longer than
:data:`MAX_LINE_BYTES` reads as an empty one and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX, Anchor
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Capture, Kind, OpClass
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.shared.arguments import objects
from traceconv.readers.shared.rank_names import rank_in_name

MAX_LINE_BYTES = 16 << 20
CHUNK_BYTES = 1 << 20
"""How much is read at a time."""

Report = Callable[[str, str], None]
"""Called with an issue code and a place when a line is damaged."""

OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Decodes one JSON object; its values stay JSON."""

_RANK_WORD = lazy_regex(r"rank[_\-. ]?\d", re.IGNORECASE)


def text(raw: msgspec.Raw | bytes) -> str:
    """A JSON value as text: the content of a string, "" for null, the JSON of other values."""
    written = bytes(raw)
    if written[:1] == b'"':
        try:
            return str(msgspec.json.decode(written))
        except NOT_JSON:  # half of a surrogate pair
            return written[1:-1].decode(errors="replace")
    return "" if written == b"null" else written.decode(errors="replace")


def rank_in_path(path: str) -> int | None:
    """The rank a path names explicitly ("rank3", "rank_3/x"), not by a mere number."""
    return rank_in_name(path) if _RANK_WORD.search(path) else None


def capture_of_file(reader: str, source: Source, name: str, clock: Anchor | None) -> Capture:
    """The capture of one rank that is one file, whose path may name the rank."""
    rank = rank_in_path(name)
    return Capture(
        reader=reader,
        source=source,
        files=(name,),
        rank=rank,
        rank_from="name" if rank is not None else "",
        clock=clock,
        label=source.title(name),
    )


def unheard(code: str, where: str) -> None:
    """Ignore a report: the damage is counted elsewhere."""


class Readable(Protocol):
    """An open file, or a buffer of bytes."""

    def read(self, n: int, /) -> bytes:
        """Up to ``n`` bytes, ``b""`` at the end."""
        ...


class Lines:
    """The lines of one stream, in blocks, numbered from 1.

    Attributes:
        report: called for damaged lines.
        unended: number of the last line if it has no line end; 0 before that line is read.
    """

    def __init__(self, stream: Readable, report: Report) -> None:
        self._stream, self.report = stream, report
        self.unended = 0

    def blocks(self) -> Iterator[tuple[int, list[str]]]:
        """Number of the first line, and lines without their ends, block by block."""
        pending, number, long = b"", 1, False
        while chunk := self._stream.read(CHUNK_BYTES):
            cut = chunk.rfind(b"\n") + 1
            if cut:
                lines = self._lines(number, pending + chunk[: cut - 1], long)
                yield number, lines
                number += len(lines)
                pending, long = chunk[cut:], False
            else:
                pending += chunk
            if len(pending) > MAX_LINE_BYTES:
                pending, long = b"", True
        if pending or long:
            self.unended = number
            yield number, self._lines(number, pending, long)

    def damaged(self, number: int, error: Exception) -> None:
        """Report a line that cannot be decoded; a last one without a line end may be cut off."""
        cut = number == self.unended and "truncated" in str(error)
        code = "truncated" if cut else "malformed-record"
        self.report(code, f"line {number}: {str(error)[:80]}")

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Yield every line that is not blank, with its number."""
        for first, lines in self.blocks():
            for number, line in enumerate(lines, first):
                if line and not line.isspace():
                    yield number, line

    def _lines(self, number: int, block: bytes, long: bool) -> list[str]:
        if number == 1:
            block = block.removeprefix(b"\xef\xbb\xbf")
        try:
            text = block.decode()
        except UnicodeDecodeError:
            text = self._repaired(number, block)
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        lines = text.split("\n")
        if long or len(lines[0]) > MAX_LINE_BYTES:
            self.report("malformed-record", f"line {number}: longer than {MAX_LINE_BYTES} bytes")
            lines[0] = ""
        return lines

    def _repaired(self, number: int, block: bytes) -> str:
        """The text of a block in which some lines are not UTF-8."""
        texts = []
        for line_number, line in enumerate(block.split(b"\n"), number):
            text = line.decode(errors="replace")
            if "\ufffd" in text and "\ufffd".encode() not in line:
                self.report("bad-encoding", f"line {line_number}")
            texts.append(text)
        return "\n".join(texts)


BATCH_ROWS = 32768


class Slices:
    """Collects slices and instants; call :meth:`flush` at the end."""

    def __init__(self, build: TraceBuilder) -> None:
        self._build = build
        self._rows: list[tuple[int, int, int, int, int, int, int]] = []
        self._args: list[bytes] = []

    def add(
        self,
        track: int,
        start_ns: int,
        dur_ns: int,
        name: str,
        op: OpClass,
        args: bytes = b"",
        step: int = -1,
        kind: Kind = Kind.SLICE,
        where: str = "",
    ) -> None:
        """Add one row; a row outside int64 is counted as lost.

        Args:
            args:  a JSON object, b"" for none.
            where: place of the record, for messages.
        """
        word = "slice" if kind is Kind.SLICE else "instant"
        self._build.seen(word)
        if start_ns < -INT64_MAX or max(start_ns, 0) + dur_ns > INT64_MAX:
            self._build.skip("bad-time", where, kind=word)
            return
        self._rows.append((track, start_ns, dur_ns, self._build.string(name), op, step, kind))
        self._args.append(args)
        if len(self._rows) == BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Add the collected rows to the builder."""
        if not self._rows:
            return
        track, start, dur, name, op, step, kind = zip(*self._rows, strict=True)
        ids = objects(self._build, self._args)
        columns = {"track": track, "name": name, "op": op, "step": step, "kind": kind}
        self._build.extend(
            start_ns=np.array(start, np.int64),
            dur_ns=np.array(dur, np.int64),
            args=ids,
            **{key: np.array(column, np.int32) for key, column in columns.items()},
        )
        self._rows, self._args = [], []
