"""Sources at URLs: read in ranges, through a few blocks in memory, without a local copy.

What must be a file on disk is copied while it is read: databases (SQLite opens nothing else), and
archives that are compressed as a whole.
"""

from __future__ import annotations

import io
import re
import tarfile
import weakref
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from traceconv.core.errors import SourceError
from traceconv.core.source import HEAD_BYTES, ZIP, Source, pieces
from traceconv.io.archives import TarSource, ZipSource, safe_name
from traceconv.io.storage import AHEAD_BLOCKS, BLOCK_BYTES, Storage, cached_storage, redacted
from traceconv.io.stored import MAX_FILES, StoredSource
from traceconv.scratch.temporary import named_temporary_file

MAX_DEPTH = 64
"""Most folders within folders of a web server, which may invent any number of them."""


def remote_sources(url: str) -> Iterator[Source]:
    """The sources at a URL: a file, an archive, a folder, or several of them by a pattern.

    Raises:
        SourceError: nothing matches, or the storage cannot be reached.
    """
    storage = Storage(url)
    with storage.guarded(storage.label):
        exists = storage.web or storage.fs.exists(storage.path)
        pattern = urlsplit(storage.path).path if storage.web else storage.path  # not [::1]
        patterned = any(c in pattern for c in ("*[" if storage.web else "*?["))
        if patterned and not (exists and not storage.web):
            paths = sorted(storage.fs.glob(storage.path))
        elif exists:
            paths = [storage.path]
        else:
            paths = []
    if not paths or len(paths) > MAX_FILES:
        reason = "no file matches" if patterned else "no such file or folder"
        raise SourceError(f"{storage.label}: {'too many files match' if paths else reason}")
    for path in paths:
        label = storage.label
        if path != storage.path:
            with storage.guarded(storage.label):
                label = redacted(storage.fs.unstrip_protocol(path))
        yield _source(storage, path, label)


def _source(storage: Storage, path: str, label: str) -> Source:
    with storage.guarded(label):
        about = storage.fs.info(path)
    if about["type"] == "directory" or (storage.web and path.endswith("/")):
        return RemoteFolder(storage, path, label)
    if not isinstance(about["size"], int):
        raise SourceError(f"{label}: the server does not report its size; download it first")
    file = RemoteFile(storage, path, label, about["size"])
    magic = _ranged(storage, path, about["size"]).read(4)
    if magic == ZIP:
        return RemoteZip(storage, path, label, about["size"])
    if label.partition("?")[0].endswith((".tar", ".tar.gz", ".tgz")):
        if magic[:2] != b"\x1f\x8b":
            return RemoteTar(storage, path, label, about["size"])
        copy = named_temporary_file()
        with file.open(file.names()[0]) as stream:
            copy.writelines(pieces(stream))
        copy.flush()
        source = TarSource(Path(copy.name), label)
        weakref.finalize(source, copy.close)
        return source
    return file


AT_ONCE = 32
"""Heads of files fetched together."""


class Ranged(io.RawIOBase):
    """A file of a storage, or a range of it. Reading in order fetches further and further ahead.

    Attributes:
        size: in bytes, of the range.
    """

    def __init__(
        self, storage: Storage, path: str, file_size: int, begin: int = 0, size: int | None = None
    ) -> None:
        """
        Args:
            file_size: bytes of the file.
            first, size: of the range; the whole file if they are left out.
        """
        super().__init__()
        self._storage, self._path, self._whole = storage, path, file_size
        self._first, self.size = begin, file_size if size is None else size
        self._at, self._ahead, self._due = 0, 1, -1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        want = min(len(buffer), self.size - self._at)
        if want <= 0:
            return 0
        number, start = divmod(self._first + self._at, BLOCK_BYTES)
        piece = self._block(number)[start : start + want]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _block(self, number: int) -> bytes:
        held = self._storage.blocks.get(self._path, number)
        if held is not None:
            return held
        self._ahead = min(4 * self._ahead, AHEAD_BLOCKS) if number == self._due else 1
        last_block = (self._first + self.size - 1) // BLOCK_BYTES
        count = min(self._ahead, last_block + 1 - number)
        self._due = number + count
        return self._storage.blocks.load(self._path, number, count, self._whole)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, start + offset)
        return self._at


def _ranged(storage: Storage, path: str, *bounds: int) -> IO[bytes]:
    return io.BufferedReader(Ranged(storage, path, *bounds), BLOCK_BYTES)


class RemoteFile(StoredSource):
    """One file; its name is the last part of its path."""

    lone = True

    def __init__(self, storage: Storage, path: str, label: str, size: int) -> None:
        super().__init__(label)
        self._storage, self._path, self._size = storage, path, size
        self.shared = storage.shared

    def __reduce__(self) -> Any:
        return _again, (RemoteFile, self._storage.url, self._path, self.label, self._size)

    def names(self) -> tuple[str, ...]:
        return (self._path.partition("?")[0].rsplit("/", 1)[-1] or "file",)

    def size(self, name: str) -> int:
        return self._size

    def _open(self, name: str) -> IO[bytes]:
        return _ranged(self._storage, self._path, self._size)

    def title(self, name: str) -> str:
        return self.label


class RemoteFolder(StoredSource):
    """All files below a folder. They are listed once."""

    def __init__(self, storage: Storage, path: str, label: str) -> None:
        super().__init__(label.rstrip("/"))
        self._storage, self._path = storage, path
        self._sizes: dict[str, int] | None = None
        self._kinds: dict[str, list[str]] = {}
        self.shared = storage.shared

    def __reduce__(self) -> Any:
        return _again, (RemoteFolder, self._storage.url, self._path, self.label)

    def names(self) -> tuple[str, ...]:
        return tuple(self._listed())

    def size(self, name: str) -> int:
        return self._listed()[name]

    def _open(self, name: str) -> IO[bytes]:
        return _ranged(self._storage, self._full(name), self._listed()[name])

    def head(self, name: str, n: int = HEAD_BYTES) -> bytes:
        self._look_ahead(name)
        return super().head(name, n)

    def read(self, name: str, limit: int = 256 << 20) -> bytes:
        self._look_ahead(name)
        return super().read(name, limit)

    def _look_ahead(self, name: str) -> None:
        """Fetch the heads of the next files of this kind, too.

        Finding ranks needs them all, and each alone costs a round trip.
        """
        if (
            not self._storage.fs.async_impl
            or self._storage.blocks.get(self._full(name), 0) is not None
        ):
            return
        sizes, alike = self._listed(), self._kinds.setdefault(_kind(name), [])
        if not alike:
            alike += [listed for listed in sizes if _kind(listed) == _kind(name)]
        position = bisect_left(alike, name)
        heads = {self._full(n): sizes[n] for n in alike[position : position + AT_ONCE] if sizes[n]}
        if heads:
            self._storage.fetch_heads(heads)

    def _full(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def _listed(self) -> dict[str, int]:
        if self._sizes is None:
            with self._storage.guarded(self.label):
                sizes = {
                    name: size for name, size in self._names_and_sizes() if isinstance(size, int)
                }
            self._sizes = dict(sorted(sizes.items()))
        return self._sizes

    def _names_and_sizes(self) -> Iterator[tuple[str, Any]]:
        """Names and sizes. Stores that know no folders list everything at once."""
        above = f"{self._path.rstrip('/')}/"
        fs = self._storage.fs
        if self._storage.web:
            listed = _links(self._storage, above)
        else:
            listed = iter(fs.find(self._path, detail=True).items())
        for count, (path, about) in enumerate(listed):
            if count > MAX_FILES:
                raise SourceError(
                    f"{self.label}: more than {MAX_FILES} files; name a folder further down"
                )
            if path.startswith(above) and path != above:
                yield safe_name(path.removeprefix(above), self.label), about["size"]


def _kind(name: str) -> str:
    """What files of many ranks have in common: the last part of the name without its numbers."""
    return re.sub(r"\d+", "", name.rpartition("/")[2])


def _links(storage: Storage, path: str) -> Iterator[tuple[str, Any]]:
    """The files of a web server's folder pages, and the pages themselves (without a size).

    A link that leads out of the folder of its page, or to nothing, is no file of it.
    """
    pending = [(path, 0)]
    while pending:
        page, depth = pending.pop()
        yield page, {"size": None}
        for about in storage.fs.ls(page, detail=True):
            name = about["name"]
            if not name.startswith(page) or name == page or "?" in name:
                continue
            if ".." in unquote(name.removeprefix(page)).split("/"):
                continue
            if name.endswith("/"):
                pending += [(name, depth + 1)] if depth < MAX_DEPTH else []
                continue
            with suppress(FileNotFoundError):
                yield name, storage.fs.info(name) if about["size"] is None else about


class RemoteZip(ZipSource):
    """The members of a .zip archive at a URL."""

    def __init__(self, storage: Storage, path: str, label: str, size: int) -> None:
        Source.__init__(self, label)
        self._again = (RemoteZip, storage.url, path, label, size)
        self.shared = storage.shared
        self._index(_ranged(storage, path, size))

    def __reduce__(self) -> Any:
        return _again, self._again


class RemoteTar(StoredSource):
    """The members of a .tar archive at a URL."""

    def __init__(self, storage: Storage, path: str, label: str, size: int) -> None:
        super().__init__(label)
        self._storage, self._path, self._whole = storage, path, size
        self.shared = storage.shared
        try:
            with tarfile.open(fileobj=_ranged(storage, path, size), mode="r:") as tar:
                self._members = TarSource.members(tar, label)
        except (tarfile.TarError, EOFError, ValueError) as e:
            raise SourceError(f"{label}: not a readable tar archive: {e}") from e

    def __reduce__(self) -> Any:
        return _again, (RemoteTar, self._storage.url, self._path, self.label, self._whole)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def size(self, name: str) -> int:
        return max(self._members[name][1], 0)

    def _open(self, name: str) -> IO[bytes]:
        start, size = self._members[name]
        if size < 0:
            raise SourceError(f"{self.title(name)}: a file with holes; download the archive first")
        return _ranged(self._storage, self._path, self._whole, start, size)


@lru_cache(maxsize=8)
def _again(kind: Any, url: str, path: str, label: str, *size: int) -> Source:
    """A source in another process: it is listed once, not per rank."""
    source: Source = kind(cached_storage(url), path, label, *size)
    return source
