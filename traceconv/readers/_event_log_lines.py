"""Lines of text out of a byte stream, for logs that hold one record per line.

UTF-8, with or without a byte order mark; lines end in LF or CRLF. A line longer than
:data:`MAX_LINE_BYTES` is not kept: it reads as an empty one and is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

MAX_LINE_BYTES = 16 << 20
CHUNK_BYTES = 1 << 20
"""How much is read at a time."""

Report = Callable[[str, str], None]
"""Called with an issue code and a place when a line is damaged."""


def unheard(code: str, where: str) -> None:
    """A report nobody listens to: the damage is booked elsewhere."""


class Readable(Protocol):
    """What lines are read from: an open file or the bytes of one."""

    def read(self, n: int, /) -> bytes:
        """Up to ``n`` bytes, ``b""`` at the end."""
        ...


class Lines:
    """The lines of one stream, in blocks, numbered from 1.

    Attributes:
        unended: number of the last line if the file does not end it, known as that line comes;
            0 before, and for files that end with a line end.
    """

    def __init__(self, stream: Readable, report: Report) -> None:
        self._stream, self._report = stream, report
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

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Every line that is not blank, with its number."""
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
            self._report("malformed-record", f"line {number}: longer than {MAX_LINE_BYTES} bytes")
            lines[0] = ""
        return lines

    def _repaired(self, number: int, block: bytes) -> str:
        """The text of a block in which some lines are not UTF-8."""
        texts = []
        for at, line in enumerate(block.split(b"\n"), number):
            text = line.decode(errors="replace")
            if "\ufffd" in text and "\ufffd".encode() not in line:
                self._report("bad-encoding", f"line {at}")
            texts.append(text)
        return "\n".join(texts)
