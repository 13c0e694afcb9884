"""Inputs: a file, a folder, an archive or standard input, as named byte streams.

Names within a source are POSIX paths relative to it, sorted. Compressed members (gzip and zstd,
found by their first bytes, not by their name) are read decompressed. Decompression is bounded.
"""

from __future__ import annotations

import errno
import glob
import io
import os
import stat
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

from traceconv.core.choices import nearest
from traceconv.core.errors import MissingExtraError, SourceError
from traceconv.io.atomic import is_incomplete
from traceconv.io.memory import ReadMapping
from traceconv.io.storage import is_url
from traceconv.io.streams import (
    GZIP,
    RATIO_FREE_BYTES,
    RATIO_LIMIT,
    ZSTD,
    Bounded,
    Counted,
    Progress,
    Stream,
    damaged_archive,
    gunzip,
    mapped,
    pieces,
    unzstd,
)
from traceconv.io.temporary import named_temporary_file, temporary_file

if TYPE_CHECKING:
    import tarfile

_NAMES_NEARBY = 1000
"""Of a folder, names that may have been meant by one that is not there."""

HEAD_BYTES = 65536
"""Bytes of a file readers may look at to recognise it."""

MAX_FILES = 1_000_000
"""More files than this below one path are assumed to be a mistake."""


def _silent(_: int) -> None:
    return None


class Source(ABC):
    """Named byte streams below one path. Subclasses say how to list and open them.

    Attributes:
        label:    the path as the user gave it.
        progress: called as bytes are read.
        lone:     whether the path names one file.
        shared:   whether other processes find the same at this path.
    """

    lone = False
    shared = True

    def __init__(self, label: str) -> None:
        self.label = _shown(label)
        self.progress: Progress = _silent

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """All files, sorted."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Stored size in bytes."""

    @abstractmethod
    def _open(self, name: str) -> IO[bytes]:
        """A file as it is stored."""

    def path(self, name: str) -> Path | None:
        """The file on disk, for libraries that need one (SQLite); None inside archives."""
        return None

    def title(self, name: str) -> str:
        """The file as the user would write it."""
        return f"{self.label}/{name}"

    def open(self, name: str) -> Stream:
        """Open a file for reading, decompressed.

        Raises:
            SourceError: it is not there or cannot be read.
            MissingExtraError: it is compressed, and what unpacks it is not installed.
        """
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
                return Stream(content, self.title(name), self.progress)
        return Stream(counted, self.title(name), self.progress, mapped(raw, self.path(name)))

    def read(self, name: str, limit: int = 256 << 20) -> bytes:
        """A whole (small) file, decompressed.

        Raises:
            SourceError: it is larger than ``limit`` bytes, or cannot be read.
        """
        with self.open(name) as stream:
            parts, size = [], 0
            for part in pieces(stream):
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise SourceError(f"{self.title(name)}: larger than {limit >> 20} MiB, refused")
            return b"".join(parts)

    def head(self, name: str, n: int = HEAD_BYTES) -> bytes:
        """The first ``n`` bytes, decompressed; ``b""`` where they cannot be read.

        For recognising formats: it never raises. Where what unpacks a file is not installed, the
        bytes are those that are stored.
        """
        try:
            return self.first(name, n)
        except SourceError:
            return b""
        except MissingExtraError:
            with self._open(name) as raw:
                return raw.read(n)

    def first(self, name: str, n: int) -> bytes:
        """The first ``n`` bytes, decompressed, without progress.

        Raises:
            SourceError, MissingExtraError: as :meth:`open`.
        """
        quiet, self.progress = self.progress, _silent
        try:
            with self.open(name) as stream:
                return stream.read(n)
        finally:
            self.progress = quiet

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"


class FileSource(Source):
    """One file; its name is the last part of its path."""

    lone = True

    def __init__(self, path: Path, label: str) -> None:
        super().__init__(label)
        self._path = path

    def __reduce__(self) -> Any:
        return type(self), (self._path.absolute(), self.label)

    def names(self) -> tuple[str, ...]:
        return (_shown(self._path.name),)

    def size(self, name: str) -> int:
        return _size(self._path, self.label)

    def _open(self, name: str) -> IO[bytes]:
        return self._path.open("rb")

    def path(self, name: str) -> Path | None:
        return self._path

    def title(self, name: str) -> str:
        return self.label


class FolderSource(Source):
    """All files below a folder; links are followed once."""

    def __init__(self, path: Path, label: str) -> None:
        super().__init__(label.rstrip("/") or "/")
        self._path = path
        self._names: tuple[str, ...] | None = None
        self._real: dict[str, str] = {}  # names on disk that are no UTF-8

    def __reduce__(self) -> Any:
        return FolderSource, (self._path.absolute(), self.label)

    def names(self) -> tuple[str, ...]:
        if self._names is None:
            found = list(_walk(self._path, self.label))
            self._real = {_shown(name): name for name in found if name != _shown(name)}
            self._names = tuple(sorted(map(_shown, found)))
        return self._names

    def size(self, name: str) -> int:
        return _size(self.path(name), self.title(name))

    def _open(self, name: str) -> IO[bytes]:
        return self.path(name).open("rb")

    def path(self, name: str) -> Path:
        if "\\" in name:  # maybe an escape; a worker has not listed the folder yet
            self.names()
        return self._path / self._real.get(name, name)


_ENCRYPTED = 1
"""The bit of a zip archive's member that needs a password."""


class ZipSource(Source):
    """The members of a .zip archive."""

    def __init__(self, path: Path, label: str) -> None:
        super().__init__(label)
        self._path = path.absolute()
        self._index(path)

    def _index(self, file: Path | IO[bytes]) -> None:
        import zipfile

        try:
            self._zip = zipfile.ZipFile(file)
        except (OSError, zipfile.BadZipFile, NotImplementedError) as e:
            raise SourceError(f"{self.label}: not a readable zip archive: {e}") from e
        named = (i for i in self._zip.infolist() if i.filename)  # nameless in broken archives
        self._infos = {safe_name(i.filename, self.label): i for i in named if not i.is_dir()}
        if self._infos and all(i.flag_bits & _ENCRYPTED for i in self._infos.values()):
            archive = PurePosixPath(self.label).name
            raise SourceError(
                f"{self.label}: a zip archive with a password\n"
                f"  unpack it, and name the folder: unzip -d FOLDER {archive}"
            )

    def __reduce__(self) -> Any:
        return _archive, (ZipSource, self._path, self.label, self._path.stat().st_mtime_ns)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._infos))

    def size(self, name: str) -> int:
        return self._infos[name].compress_size

    def _open(self, name: str) -> IO[bytes]:
        info = self._infos[name]
        limit = max(RATIO_FREE_BYTES, RATIO_LIMIT * info.compress_size)
        return cast(IO[bytes], Bounded(self._zip.open(info), limit, self.title(name)))


class MappedSlice(io.RawIOBase):
    """Part of a mapped file, as a file of its own: a member of an archive."""

    def __init__(self, content: memoryview) -> None:
        super().__init__()
        self._content, self._at = content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._content[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._content)}[whence]
        self._at = max(0, start + offset)
        return self._at


class TarSource(Source):
    """The members of a .tar archive (compressed ones are unpacked to a temporary file)."""

    def __init__(self, path: Path, label: str) -> None:
        import tarfile

        super().__init__(label)
        self._path = path.absolute()
        try:
            with path.open("rb") as raw:
                packed = raw.read(2) == GZIP
            with _spooled_gunzip(path, label) if packed else path.open("rb") as file:
                self._content = ReadMapping(file.fileno())
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    self._members = self.members(tar, label)
        except (OSError, ValueError, tarfile.TarError, EOFError, zlib.error) as e:
            raise SourceError(f"{label}: not a readable tar archive: {e}") from e

    @staticmethod
    def members(tar: tarfile.TarFile, label: str) -> dict[str, tuple[int, int]]:
        """First byte and length of members, by name; SourceError if one leads out of it."""
        return {
            safe_name(m.name, label): (m.offset_data, m.size)
            for m in tar.getmembers()
            if m.isreg() and not m.issparse()
        }

    def __reduce__(self) -> Any:
        return _archive, (TarSource, self._path, self.label, self._path.stat().st_mtime_ns)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def size(self, name: str) -> int:
        return self._members[name][1]

    def _open(self, name: str) -> IO[bytes]:
        start, size = self._members[name]
        return io.BufferedReader(MappedSlice(memoryview(self._content)[start : start + size]))


@lru_cache(maxsize=2)
def _archive(kind: Callable[[Path, str], Source], path: Path, label: str, mtime_ns: int) -> Source:
    """An archive in another process: its members are listed (or unpacked) once, not per rank."""
    return kind(path, label)


class RecordedSource(Source):
    """Names and sizes of the files of a source that is out of reach."""

    def __init__(self, label: str, sizes: Mapping[str, int]) -> None:
        super().__init__(label)
        self._sizes = dict(sizes)

    def remember(self, sizes: Mapping[str, int]) -> None:
        """Add names and sizes."""
        self._sizes.update(sizes)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._sizes))

    def size(self, name: str) -> int:
        return self._sizes[name]

    def _open(self, name: str) -> IO[bytes]:
        raise FileNotFoundError(f"{name} is not available: only its events were saved")


class JoinedSource(Source):
    """Files of several sources under the titles they have there."""

    def __init__(self, label: str, files: Iterable[tuple[Source, str]]) -> None:
        super().__init__(label)
        self._files = {source.title(name): (source, name) for source, name in files}
        self.shared = all(source.shared for source, _ in self._files.values())

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    def size(self, name: str) -> int:
        source, inner = self._files[name]
        return source.size(inner)

    def _open(self, name: str) -> IO[bytes]:
        source, inner = self._files[name]
        return source._open(inner)

    def path(self, name: str) -> Path | None:
        source, inner = self._files[name]
        return source.path(inner)

    def title(self, name: str) -> str:
        return name


def sources(paths: list[str]) -> list[Source]:
    """The sources of paths, URLs, glob patterns, archives, ``-`` for standard input.

    Raises:
        SourceError: a path is not there, or a pattern matches nothing.
    """
    found = [source for path in paths for source in _expand(path)]
    if not found:
        raise SourceError("no input given; name a file, a folder, an archive or - (standard input)")
    return found


def _expand(path: str) -> Iterator[Source]:
    if path == "-":
        yield _standard_input()
        return
    if is_url(path):
        from traceconv.io.remote import remote_sources  # fsspec, where it is asked for

        yield from remote_sources(path)
        return
    if path and Path(path).exists():
        yield _source(Path(path), path)
        return
    matches: list[str] = []
    if glob.has_magic(path):
        matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - absolute patterns too
    if not matches:
        what = "no file matches" if glob.has_magic(path) else "no such file or folder"
        raise SourceError(f"{path or repr(path)}: {what}{_near(Path(path))}")
    for match in matches:
        yield _source(Path(match), match)


def _near(path: Path) -> str:
    """What may have been meant by a path that is not there, as the end of a message."""
    try:
        names = sorted(one.name for one in islice(path.parent.iterdir(), _NAMES_NEARBY))
    except OSError:
        return ""
    return nearest(path.name, names)


def _source(path: Path, label: str) -> Source:
    if path.is_dir():
        return FolderSource(path, label)
    if not path.is_file() and not stat.S_ISFIFO(path.stat().st_mode):
        raise SourceError(f"{label}: neither a file nor a folder")
    if stat.S_ISFIFO(path.stat().st_mode):
        with path.open("rb") as pipe:
            return _spooled_file(pipe, label)
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as e:
        raise SourceError(f"{label}: cannot open: {e.strerror or e}") from e
    if magic == b"PK\x03\x04":
        return ZipSource(path, label)
    if label.endswith((".tar", ".tar.gz", ".tgz")):
        return TarSource(path, label)
    return FileSource(path, label)


def _standard_input() -> Source:
    return _spooled_file(sys.stdin.buffer, "stdin")


class _SpooledSource(FileSource):
    """A copy of a stream; ``file``, which is temporary, is removed with the source."""

    def __init__(self, path: Path, label: str, file: Any = None) -> None:
        super().__init__(path, label)
        self._file = file

    def names(self) -> tuple[str, ...]:
        return (self.label,)


def _spooled_file(pipe: IO[bytes], label: str) -> Source:
    file = named_temporary_file()  # it is removed with the source
    file.writelines(pieces(pipe))
    file.flush()
    return _SpooledSource(Path(file.name), label, file)


def _walk(root: Path, label: str) -> Iterator[str]:
    """Relative names of all files below ``root``; a folder reached twice is read once."""
    seen: set[tuple[int, int]] = set()
    pending, count = [""], 0
    while pending:
        folder = pending.pop()
        try:
            here = (root / folder).stat()
            if (here.st_dev, here.st_ino) in seen:
                continue
            seen.add((here.st_dev, here.st_ino))
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


def _shown(name: str) -> str:
    """A name as text; bytes in it that are not UTF-8 become escapes."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def safe_name(name: str, label: str) -> str:
    """The member's name; SourceError if it leads out of the archive."""
    pure = PurePosixPath(name.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts:
        raise SourceError(f"{label}: member {name!r} points outside the archive; refused")
    return _shown(str(pure))


def _spooled_gunzip(path: Path, label: str) -> IO[bytes]:
    file = temporary_file()
    with path.open("rb") as raw:
        file.writelines(pieces(gunzip(raw, path.stat().st_size, label)))
    file.seek(0)
    return file
