"""Inputs as readers see them: named byte streams below one path.

:mod:`traceconv.io.sources` makes them from what a user names.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from traceconv.core.errors import SourceError

HEAD_BYTES = 65536
"""Bytes of a file readers may look at to recognise it."""

ZIP = b"PK\x03\x04"
"""The first bytes of a zip archive."""

COPY_BYTES = 1 << 20
"""Bytes that are read at a time where a whole file is read."""

Progress = Callable[[int], None]
"""Called with the number of (stored) bytes read since the last call."""


class Readable(Protocol):
    """Anything with a ``read`` method that returns bytes."""

    def read(self, n: int, /) -> bytes:
        """Up to ``n`` bytes; ``b""`` at the end."""
        ...


def tail(source: Source, name: str) -> bytes:
    """The last :data:`HEAD_BYTES` of a file that can be read, unpacked."""
    last = b""
    try:
        with source.open(name) as stream:
            if stream.mapped is not None:
                return bytes(stream.mapped[-HEAD_BYTES:])
            while block := stream.read(1 << 20):
                last = (last + block)[-HEAD_BYTES:]
    except SourceError:
        pass  # what precedes the break is there
    return last


def pieces(file: Readable) -> Iterator[bytes]:
    """The rest of ``file``, :data:`COPY_BYTES` at a time."""
    while piece := file.read(COPY_BYTES):
        yield piece


class Stream(Protocol):
    """One open file, decompressed. Use as a context manager.

    Attributes:
        label:  the file as the user would write it.
        mapped: its whole content where it can be mapped, else None.
    """

    label: str
    mapped: mmap.mmap | None

    def read(self, n: int, /) -> bytes:
        """Up to ``n`` bytes; ``b""`` at the end.

        Raises:
            SourceError: the file cannot be read, or its compression is broken.
        """
        ...

    def ahead(self, size: int) -> Iterator[bytes]:
        """The rest of it, read (and inflated) on another thread, ``size`` bytes at a time.

        Raises:
            SourceError: as :meth:`read`, after all that could be read.
        """
        ...

    def advance(self, n: int) -> None:
        """Report ``n`` stored bytes of ``mapped`` as read (progress only)."""
        ...

    def __enter__(self) -> Stream: ...

    def __exit__(self, *_: object) -> None: ...


def is_archive(head: bytes) -> bool:
    """Whether a file with these first bytes is a zip or tar archive."""
    return head.startswith(ZIP) or head[257:262] == b"ustar"


def silent(_: int) -> None:
    """No progress is shown."""


class Source(ABC):
    """Named byte streams below one path. Subclasses say how to list and open them.

    Names are POSIX paths relative to the source.

    Attributes:
        label:    the path as the user gave it.
        progress: called as bytes are read.
        lone:     whether the path names one file.
        shared:   whether other processes find the same at this path.
        inner:    whether it is an archive that was found in a folder, not named itself.
    """

    lone = False
    shared = True
    inner = False

    def __init__(self, label: str) -> None:
        self.label = printable(label)
        self.progress: Progress = silent

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """All files, sorted."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Stored size in bytes."""

    @abstractmethod
    def open(self, name: str) -> Stream:
        """Open a file for reading, decompressed.

        Raises:
            SourceError: it is not there or cannot be read.
            MissingExtraError: it is compressed, and what unpacks it is not installed.
        """

    def path(self, name: str) -> Path | None:
        """The file on disk, for libraries that need one (SQLite); None inside archives."""
        return None

    def origin(self, name: str) -> Path | None:
        """The file on disk that holds it, alone or with others, also in a later run; else
        None."""
        return None

    def title(self, name: str) -> str:
        """The file as the user would write it."""
        return f"{self.label}/{name}"

    def read(self, name: str, limit: int = 256 << 20) -> bytes:
        """A whole (small) file, decompressed.

        Raises:
            SourceError: it is larger than ``limit`` bytes, or cannot be read.
        """
        with self.open(name) as stream:
            blocks, size = [], 0
            for block in pieces(stream):
                blocks.append(block)
                size += len(block)
                if size > limit:
                    raise SourceError(f"{self.title(name)}: larger than {limit >> 20} MiB, refused")
            return b"".join(blocks)

    def head(self, name: str, n: int = HEAD_BYTES) -> bytes:
        """The first ``n`` bytes, decompressed; ``b""`` where they cannot be read.

        For recognising formats: it never raises. Where what unpacks a file is not installed, the
        bytes are those that are stored.
        """
        try:
            return self.first(name, n)
        except SourceError:
            return b""

    def text_head(self, name: str) -> bytes:
        """:meth:`head` of a text; ``b""`` of an archive, which may hold texts as they are."""
        head = self.head(name)
        return b"" if is_archive(head) else head

    def first(self, name: str, n: int) -> bytes:
        """The first ``n`` bytes, decompressed, without progress.

        Raises:
            SourceError, MissingExtraError: as :meth:`open`.
        """
        quiet, self.progress = self.progress, silent
        try:
            with self.open(name) as stream:
                return stream.read(n)
        finally:
            self.progress = quiet

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"


class RecordedSource(Source):
    """Names and sizes of the files of a source that is out of reach.

    Args:
        titles: of files whose titles are not what names of a folder are.
    """

    def __init__(
        self,
        label: str,
        sizes: Mapping[str, int],
        titles: Mapping[str, str] | None = None,
        lone: bool = False,
    ) -> None:
        super().__init__(label)
        self._sizes, self._titles, self.lone = dict(sizes), titles or {}, lone

    def __eq__(self, other: object) -> bool:
        """Whether both describe the same files: each rank has its own description."""
        if not isinstance(other, RecordedSource):
            return NotImplemented
        return (self.label, self._sizes) == (other.label, other._sizes)

    def __hash__(self) -> int:
        return hash(self.label)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._sizes))

    def size(self, name: str) -> int:
        return self._sizes[name]

    def title(self, name: str) -> str:
        return self._titles.get(name) or super().title(name)

    def open(self, name: str) -> Stream:
        raise SourceError(
            f"{self.title(name)}: cannot open: {name} is not available: only its events were saved"
        )


_LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r"})


def printable(name: str) -> str:
    """A name as text of one line; ends of lines, and bytes that are not UTF-8, become escapes."""
    line = name.translate(_LINE_ENDS)
    return line if line.isascii() else line.encode("utf-8", "backslashreplace").decode()


def unused_name(name: str, used: Container[str]) -> str:
    """``name``, or "name (2).end" if that name is used."""
    path, number, candidate = PurePosixPath(name), 1, name
    stem, dot, end = path.name.partition(".")
    while candidate in used:
        number += 1
        candidate = str(path.with_name(f"{stem} ({number}){dot}{end}"))
    return candidate
