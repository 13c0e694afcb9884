"""One rank as finished bytes of an output file, made in place or by a worker, in a file.

A writer's ranks follow each other in the file, with ``between`` (if it has any) standing between
them, and know nothing of each other. In a compressed file, every rank is a stretch of its one
deflate stream that refers to no other, so that stretches made apart can be joined.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from traceconv.core.errors import Issues, OutputError
from traceconv.io.memory import scarce
from traceconv.writers import Document, SpilledRank, Writer

GZIP_LEVEL = 1
"""isal's level 1: as small as its level 3 on traces, three times as fast."""

RAW_DEFLATE = -15


class Stretch:
    """Bytes on their way into a file; compressed, they can be unpacked without those before.

    Attributes:
        content: bytes before compression.
        stored:  bytes in the file.
        crc:     of the content; 0 while nothing is compressed.
    """

    def __init__(self, put: Callable[[bytes], Any], packed: bool) -> None:
        self.content = self.stored = self.crc = 0
        self._put = put
        self._packer = _packer() if packed else None

    def write(self, block: bytes) -> None:
        """Add ``block``."""
        self.content += len(block)
        if self._packer is not None:
            from isal import isal_zlib

            self.crc = isal_zlib.crc32(block, self.crc)
            block = self._packer.compress(block)
        self._store(block)

    def close(self, last: bool = False) -> None:
        """Finish; ``last`` ends the whole stream."""
        if self._packer is not None:
            from isal import isal_zlib

            how = isal_zlib.Z_FINISH if last else isal_zlib.Z_FULL_FLUSH
            self._store(self._packer.flush(how))

    def _store(self, data: bytes) -> None:
        if data:
            self._put(data)
            self.stored += len(data)


def _packer() -> Any:
    from isal import isal_zlib

    return isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, RAW_DEFLATE)


@dataclass(frozen=True)
class Encoding:
    """A rank to be encoded.

    Attributes:
        parked:   the rank.
        writer:   of the format.
        document: that of the file; its facts stand in the head, which is not made here.
        packed:   whether the file is compressed.
        path:     where a worker leaves the bytes; None if they are not made by one.
    """

    spilled: SpilledRank
    writer: Callable[[], Writer]
    document: Document
    packed: bool
    path: Path | None = None

    def into(
        self,
        stretch: Stretch,
        advance: Callable[[int], None],
        lead: Callable[[], None] = lambda: None,
    ) -> Encoded:
        """Encode the rank into ``stretch``.

        Args:
            advance: told the bytes that were added, before compression.
            lead:    called before the first of them, if there are any.
        """
        writer = self.writer()
        writer.begin(replace(self.document, facts={}))
        trace = self.spilled.load()
        for block in writer.trace(trace):
            if block and not stretch.content:
                lead()
            stretch.write(block)
            advance(len(block))
            if scarce():
                rest(self.spilled)
        stretch.close()
        issues = getattr(writer, "issues", None) or Issues()
        counts = trace.counts()
        del trace  # one rank at a time
        rest(self.spilled)
        sizes = (stretch.content, stretch.stored, stretch.crc)
        return Encoded(self.spilled.rank, counts, issues, *sizes, self.path)


@dataclass(frozen=True)
class Encoded:
    """A rank that was encoded.

    Attributes:
        rank, counts: of the rank; rows by kind.
        issues: what the format could not take as it was.
        content, stored, crc: of its :class:`Stretch`.
        path:   the file its bytes lie in, None if they are where they belong.
    """

    rank: int
    counts: dict[str, int]
    issues: Issues = field(default_factory=Issues)
    content: int = 0
    stored: int = 0
    crc: int = 0
    path: Path | None = None


def encode(job: Encoding, advance: Callable[[int], None]) -> Encoded:
    """Encode a rank into the file of its own that the job names; for workers.

    Raises:
        OutputError: the file cannot be written.
    """
    assert job.path is not None
    growing = job.path.with_name(f"{job.path.name}.{os.urandom(4).hex()}")
    try:
        with growing.open("xb") as file:
            done = job.into(Stretch(file.write, job.packed), advance)
        growing.replace(job.path)
    except OSError as e:
        growing.unlink(missing_ok=True)
        raise OutputError(f"{job.path.parent}: cannot write there: {e.strerror or e}") from e
    return done


def rest(spilled: SpilledRank) -> None:
    """Release the memory that loading ``spilled`` took, if it can."""
    if found := getattr(spilled, "release_pages", None):
        found()
