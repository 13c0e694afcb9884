"""A window that moves over a mapped file or a stream, for parsers that read in blocks."""

from __future__ import annotations

import gzip
import mmap
import zlib
from collections.abc import Iterator
from typing import Any

from traceconv.core.errors import SourceError
from traceconv.core.source import Stream
from traceconv.io.threads import count

MAX_RECORD_BYTES = 16 << 20
"""No event is longer; what seems to be is damaged input."""

PIECE_BYTES = 32 << 10
"""Streams are read in pieces of this size: where a compressed one breaks, one piece is lost."""

AHEAD_BYTES = 1 << 20
"""Size from which a stream is read on a separate thread, if there is one."""

DROP_BYTES = 16 << 20
"""Mapped pages are released in pieces of this size."""


class Window:
    """Bytes ``data[pos:end]`` have been loaded and not been consumed yet.

    Attributes:
        data:   buffer; replaced as a stream is read on, the whole file if it is mapped.
        pos:    first byte not consumed; who consumes moves it.
        end:    behind the last byte loaded.
        mapped: the mapping, None for streams.
        broken: why a stream ended before its end, "" if it did not.
    """

    def __init__(self, stream: Stream, step: int) -> None:
        self.mapped: mmap.mmap | None = stream.mapped
        self.data: Any = b"" if self.mapped is None else self.mapped
        self.pos = self.end = 0
        self.broken = ""
        self._stream, self._step = stream, max(step, 1)
        self._before = 0  # bytes of the stream before ``data``
        self._reported = self._dropped = 0
        self._over = False
        self._pieces: Iterator[bytes] | None = None

    @property
    def offset(self) -> int:
        """Offset of ``pos`` in the file."""
        return self._before + self.pos

    def place(self, position: int) -> str:
        """The byte ``data[at]`` as messages name it."""
        return f"byte {self._before + position}"

    def more(self) -> bool:
        """Load more bytes; False at the end.

        At least as many as are waiting, so that work stays linear.
        """
        step = max(self._step, self.end - self.pos)
        if self.mapped is not None:
            self._settle()
            before, self.end = self.end, min(self.end + step, len(self.mapped))
            return before < self.end
        block = b"" if self._over else self._block(step)
        self._over = not block
        if block:
            self.data = self.data[self.pos :] + block
            self._before += self.pos
            self.pos, self.end = 0, len(self.data)
        return bool(block)

    def _settle(self) -> None:
        """Report progress and release the pages behind ``pos``."""
        assert self.mapped is not None
        self._stream.advance(self.pos - self._reported)
        self._reported = self.pos
        behind = (self.pos - self._dropped) // DROP_BYTES * DROP_BYTES
        if behind > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED, self._dropped, behind)
            self._dropped += behind

    def _block(self, step: int) -> bytes:
        pieces: list[bytes] = []
        remaining = step
        if self._pieces is None and self.offset >= AHEAD_BYTES and count() > 1:
            self._pieces = self._stream.ahead(PIECE_BYTES)
        while remaining > 0:
            piece = self._piece(min(remaining, PIECE_BYTES), bool(pieces))
            pieces.append(piece)
            remaining = remaining - len(piece) if piece else 0
        return b"".join(pieces)

    def _piece(self, size: int, begun: bool) -> bytes:
        if self.broken:
            return b""
        try:
            if self._pieces is not None:
                return next(self._pieces, b"")
            return self._stream.read(size)
        except SourceError as e:
            cut = isinstance(e.__cause__, EOFError | zlib.error | gzip.BadGzipFile)
            if not cut or not (begun or self._before + self.end):
                raise
            self.broken = str(e)
            return b""

    def close(self) -> None:
        """Report the rest as read."""
        if self.mapped is not None:
            self.pos = self.end
            self._settle()
