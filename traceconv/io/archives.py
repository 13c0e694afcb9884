"""Archives as sources: the members of .zip and .tar files."""

from __future__ import annotations

import io
import weakref
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

from traceconv.core.errors import SourceError
from traceconv.core.source import Source, pieces, printable, unused_name
from traceconv.io.stored import StoredSource
from traceconv.io.streams import (
    GZIP,
    RATIO_FREE_BYTES,
    RATIO_LIMIT,
    ZSTD,
    Bounded,
    gunzip,
    open_regular,
    unzstd,
)
from traceconv.scratch.memory import ReadMapping
from traceconv.scratch.temporary import temporary_file

if TYPE_CHECKING:
    import tarfile
    import zipfile

_ENCRYPTED = 1
"""The bit of a zip archive's member that needs a password."""


class ZipSource(StoredSource):
    """The members of a .zip archive."""

    def __init__(self, path: Path, label: str) -> None:
        super().__init__(label)
        self._path = path.absolute()
        try:
            file = open_regular(path)
        except OSError as e:
            raise SourceError(f"{label}: cannot open: {e.strerror or e}") from e
        weakref.finalize(self, file.close)
        self._index(file)

    def origin(self, name: str) -> Path | None:
        return self._path

    def _index(self, file: IO[bytes]) -> None:
        import zipfile

        try:
            self._zip = zipfile.ZipFile(file)
        except (OSError, zipfile.BadZipFile, NotImplementedError) as e:
            raise SourceError(f"{self.label}: not a readable zip archive: {e}") from e
        infos = (i for i in self._zip.infolist() if i.filename)  # nameless in broken archives
        self._infos: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            if not info.is_dir():
                self._infos[unused_name(safe_name(info.filename, self.label), self._infos)] = info
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
    """Part of a mapped file as a separate file: a member of an archive."""

    def __init__(self, content: memoryview) -> None:
        super().__init__()
        self._content, self._at = content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._content[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._content)}[whence]
        self._at = max(0, start + offset)
        return self._at


class TarSource(StoredSource):
    """The members of a .tar archive (compressed ones are unpacked to a temporary file)."""

    def __init__(self, path: Path, label: str) -> None:
        import tarfile

        super().__init__(label)
        self._path = path.absolute()
        try:
            with open_regular(path) as raw:
                head = raw.read(4)
            unpack = {GZIP: gunzip, ZSTD: unzstd}.get(ZSTD if head == ZSTD else head[:2])
            with _unpacked(path, label, unpack) if unpack else open_regular(path) as file:
                self._content = ReadMapping(file.fileno())
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    self._members = self.members(tar, label)
        except (OSError, ValueError, tarfile.TarError, EOFError, zlib.error) as e:
            raise SourceError(f"{label}: not a readable tar archive: {e}") from e

    def origin(self, name: str) -> Path | None:
        return self._path

    @staticmethod
    def members(tar: tarfile.TarFile, label: str) -> dict[str, tuple[int, int]]:
        """First byte and length of members, by name; SourceError if one leads out of it.

        A hard link is the file that it names; of a sparse file the archive holds no such range, and
        its length is negative.
        """
        spans: dict[str, tuple[int, int]] = {}
        files: dict[str, tuple[int, int]] = {}
        for member in tar.getmembers():
            name = member.pax_headers.get("GNU.sparse.name", member.name)  # else that of its parts
            if member.isreg():
                files[name] = (
                    member.offset_data,
                    -1 - member.size if member.issparse() else member.size,
                )
            content = files.get(member.linkname if member.islnk() else name)
            if content is not None and (member.isreg() or member.islnk()):
                spans[unused_name(safe_name(name, label), spans)] = content
        return spans

    def __reduce__(self) -> Any:
        return _archive, (TarSource, self._path, self.label, self._path.stat().st_mtime_ns)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def size(self, name: str) -> int:
        size = self._members[name][1]
        return size if size >= 0 else -1 - size

    def _open(self, name: str) -> IO[bytes]:
        start, size = self._members[name]
        if size >= 0:
            return io.BufferedReader(MappedSlice(memoryview(self._content)[start : start + size]))
        return self._sparse(name, start, -1 - size)

    def _sparse(self, name: str, start: int, size: int) -> IO[bytes]:
        """A file with holes, which are zeros; refused if they are nearly all of it."""
        import tarfile

        archive = io.BufferedReader(MappedSlice(memoryview(self._content)))
        tar = tarfile.open(fileobj=archive, mode="r:")  # noqa: SIM115 (closed with the member)
        member = next(candidate for candidate in tar.getmembers() if candidate.offset_data == start)
        pieces_held = cast(list[tuple[int, int]], member.sparse or [])
        held = sum(length for _, length in pieces_held)
        limit = max(RATIO_FREE_BYTES, RATIO_LIMIT * held)
        return cast(IO[bytes], Bounded(tar.extractfile(member), limit, self.title(name)))


@lru_cache(maxsize=2)
def _archive(kind: Callable[[Path, str], Source], path: Path, label: str, mtime_ns: int) -> Source:
    """An archive in another process: its members are listed (or unpacked) once, not per rank."""
    return kind(path, label)


def safe_name(name: str, label: str) -> str:
    """The member's name; SourceError if it leads out of the archive."""
    pure = PurePosixPath(name.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts:
        raise SourceError(f"{label}: member {name!r} points outside the archive; refused")
    return printable(str(pure))


def _unpacked(path: Path, label: str, unpack: Callable[[Any, int, str], IO[bytes]]) -> IO[bytes]:
    file = temporary_file()
    with open_regular(path) as raw:
        file.writelines(pieces(unpack(raw, path.stat().st_size, label)))
    file.seek(0)
    return file
