"""Inputs: a file, a folder, an archive or standard input, as named byte streams.

Names within a source are POSIX paths relative to it, sorted. Compressed members (gzip and zstd,
found by their first bytes, not by their name) are read decompressed. Decompression is bounded.
"""

from __future__ import annotations

import errno
import glob
import os
import sys
import weakref
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from traceconv.core.choices import nearest
from traceconv.core.errors import OutputError, SourceError
from traceconv.core.source import ZIP, Source, pieces, printable, unused_name
from traceconv.io.archives import TarSource, ZipSource
from traceconv.io.atomic import is_incomplete
from traceconv.io.run_files import read_from
from traceconv.io.storage import is_url
from traceconv.io.stored import MAX_FILES, StoredSource
from traceconv.io.streams import open_regular
from traceconv.scratch.temporary import ADVICE, named_temporary_file

_NAMES_NEARBY = 1000
"""Most names of a folder that are compared with a missing one, for a suggestion."""


class FileSource(StoredSource):
    """One file; its name is the last part of its path."""

    lone = True

    def __init__(self, path: Path, label: str) -> None:
        super().__init__(label)
        self._path = path

    def __reduce__(self) -> Any:
        return type(self), (self._path.absolute(), self.label)

    def names(self) -> tuple[str, ...]:
        return (printable(self._path.name),)

    def size(self, name: str) -> int:
        return _size(self._path, self.label)

    def _open(self, name: str) -> IO[bytes]:
        return open_regular(self._path)

    def path(self, name: str) -> Path | None:
        return self._path

    def origin(self, name: str) -> Path | None:
        return self._path

    def title(self, name: str) -> str:
        return self.label


TARS = (".tar", ".tar.gz", ".tgz", ".tar.zst")
"""How names of archives end that are opened wherever they are: named, or in a folder."""


class FolderSource(StoredSource):
    """All files below a folder but archives; links are followed once."""

    def __init__(self, path: Path, label: str) -> None:
        super().__init__(label.rstrip("/") or "/")
        self._path = path
        self.archives: tuple[str, ...] = ()
        self._names: tuple[str, ...] | None = None
        self._real: dict[str, str] = {}  # names on disk that are not shown as they are

    def __reduce__(self) -> Any:
        return FolderSource, (self._path.absolute(), self.label)

    def names(self) -> tuple[str, ...]:
        if self._names is None:
            listed = list(_walk(self._path, self.label))
            self.archives = tuple(sorted(name for name in listed if name.endswith(TARS)))
            listed = [name for name in listed if not name.endswith(TARS)]
            used = {name for name in listed if name == printable(name)}
            for name in (one for one in listed if one not in used):
                shown = unused_name(printable(name), self._real.keys() | used)
                self._real[shown] = name
            self._names = tuple(sorted((*used, *self._real)))
        return self._names

    def size(self, name: str) -> int:
        return _size(self.path(name), self.title(name))

    def _open(self, name: str) -> IO[bytes]:
        return open_regular(self.path(name))

    def origin(self, name: str) -> Path | None:
        return self.path(name) if name else None

    def path(self, name: str) -> Path:
        if "\\" in name:  # maybe an escape; a worker has not listed the folder yet
            self.names()
        return self._path / self._real.get(name, name)


def sources(paths: list[str], pipes: bool = True) -> list[Source]:
    """The sources of paths, URLs, glob patterns, archives, ``-`` for standard input.

    Args:
        pipes: whether the paths may be named pipes, which are read to their end.

    Raises:
        SourceError: a path is not there, or a pattern matches nothing.
    """
    expanded = [source for path in paths for source in _expand(path, pipes)]
    if not expanded:
        raise SourceError("no input given; name a file, a folder, an archive or - (standard input)")
    return expanded


def _expand(path: str, pipes: bool) -> Iterator[Source]:
    if path == "-":
        if sys.stdin is None:
            raise SourceError("-: standard input is closed")
        yield _spooled_file(sys.stdin.buffer, "stdin")
        return
    if is_url(path):
        from traceconv.io.remote import remote_sources  # imports fsspec only for URLs

        yield from remote_sources(path)
        return
    if path and Path(path).exists():
        if pipes and Path(path).is_fifo():
            with Path(path).open("rb") as pipe:
                yield _spooled_file(pipe, path)
            return
        yield from _with_archives(_source(Path(path), path))
        return
    matches: list[str] = []
    if glob.has_magic(path):
        matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - absolute patterns too
    if not matches:
        reason = "no file matches" if glob.has_magic(path) else "no such file or folder"
        raise SourceError(f"{printable(path) or repr(path)}: {reason}{_near(Path(path))}")
    for match in matches:
        yield from _with_archives(_source(Path(match), match))


def _with_archives(source: Source) -> Iterator[Source]:
    """A source, and the archives in it if it is a folder."""
    yield source
    if isinstance(source, FolderSource):
        source.names()
        for name in source.archives:
            read_from([source.path(name)])
            archive = TarSource(source.path(name), source.title(name))
            archive.inner = True
            yield archive


def _near(path: Path) -> str:
    """What may have been meant by a path that is not there, as the end of a message."""
    try:
        names = sorted(entry.name for entry in islice(path.parent.iterdir(), _NAMES_NEARBY))
    except OSError:
        return ""
    return nearest(path.name, names)


def _source(path: Path, label: str) -> Source:
    if path.is_dir():
        return FolderSource(path, label)
    if not path.is_file():
        raise SourceError(f"{label}: neither a file nor a folder")
    read_from([path])
    try:
        with open_regular(path) as file:
            magic = file.read(4)
    except OSError as e:
        raise SourceError(f"{label}: cannot open: {e.strerror or e}") from e
    if magic == ZIP:
        return ZipSource(path, label)
    if label.endswith(TARS):
        return TarSource(path, label)
    return FileSource(path, label)


class _SpooledSource(FileSource):
    """A temporary copy of a stream."""

    def origin(self, name: str) -> Path | None:
        return None

    def names(self) -> tuple[str, ...]:
        return (self.label,)


def _spooled_file(pipe: IO[bytes], label: str) -> Source:
    file = named_temporary_file()
    try:
        file.writelines(pieces(pipe))
        file.flush()
    except OSError as e:
        raise OutputError(
            f"{file.name}: {label} cannot be copied there: {e.strerror or e}; {ADVICE}"
        ) from e
    source = _SpooledSource(Path(file.name), label)
    weakref.finalize(source, file.close)
    return source


def _walk(root: Path, label: str) -> Iterator[str]:
    """Relative names of all files below ``root``; a folder reached twice is read once."""
    visited: set[tuple[int, int]] = set()
    pending, count = [""], 0
    while pending:
        folder = pending.pop()
        try:
            status = (root / folder).stat()
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if is_incomplete(entry.name) or _leads_nowhere(entry):
                        continue
                    if entry.is_dir():
                        pending.append(name)
                    elif entry.is_file():
                        count += 1
                        yield name
        except OSError as e:
            raise SourceError(f"{label}/{folder}: cannot list: {e.strerror or e}") from e
        if count > MAX_FILES:
            raise SourceError(f"{label}: more than {MAX_FILES} files; name a folder further down")


def _size(path: Path, title: str) -> int:
    try:
        return path.stat().st_size
    except OSError as e:  # it was there when the folder was listed
        raise SourceError(f"{title}: cannot be read any more: {e.strerror or e}") from e


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link in a circle of links."""
    try:
        entry.stat()
    except OSError as e:
        return e.errno == errno.ELOOP
    return False
