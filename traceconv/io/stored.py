"""Sources of stored files: opened as they are stored, and decompressed (gzip and zstd).

Compression is detected from the first bytes of a file, not from its name. Decompression is bounded.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from typing import IO, cast

from traceconv.core.errors import MissingExtraError, SourceError
from traceconv.core.source import HEAD_BYTES, Source, Stream
from traceconv.io.streams import (
    GZIP,
    ZSTD,
    Counted,
    FileStream,
    damaged_archive,
    gunzip,
    mapped,
    unzstd,
)

MAX_FILES = 1_000_000
"""More files than this below one path are assumed to be a mistake."""


class StoredSource(Source):
    """A source whose subclasses say how its files are opened as they are stored."""

    @abstractmethod
    def _open(self, name: str) -> IO[bytes]:
        """A file as it is stored."""

    def open(self, name: str) -> Stream:
        try:
            raw = self._open(name)
            magic = raw.read(len(ZSTD))
            raw.seek(0)
        except damaged_archive(
            OSError, EOFError, KeyError, zlib.error, NotImplementedError, RuntimeError
        ) as e:
            why = (isinstance(e, OSError) and e.strerror) or e
            raise SourceError(f"{self.title(name)}: cannot open: {why}") from e
        counted = cast(IO[bytes], Counted(raw, self.progress))
        for sign, content_of in ((GZIP, gunzip), (ZSTD, unzstd)):
            if magic.startswith(sign):
                try:
                    content = content_of(counted, self.size(name), self.title(name))
                except MissingExtraError:
                    raw.close()
                    raise
                return FileStream(content, self.title(name), self.progress)
        return FileStream(counted, self.title(name), self.progress, mapped(raw, self.path(name)))

    def head(self, name: str, n: int = HEAD_BYTES) -> bytes:
        try:
            return super().head(name, n)
        except MissingExtraError:
            with self._open(name) as raw:
                return raw.read(n)
