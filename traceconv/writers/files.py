"""Outputs at URLs: nothing stands under the final name before all of it has arrived.

S3 keeps the parts of an upload apart until it is completed. Elsewhere a file grows under another
name beside the final one, and is renamed when it is complete.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

from traceconv.core.errors import OutputError, TraceconvError
from traceconv.io.storage import Storage, given, is_url
from traceconv.writers.encoded import Encoded, Stretch

# Files that get their names when they are complete, and what goes into them.

_GZIP_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
"""Neither a name nor a time, so that equal content gives equal bytes."""

_NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)
"""Why the system cannot copy from file to file by itself."""

_PIECE = 1 << 20


class Sink:
    """Counts, limits and compresses what goes into one file.

    Attributes:
        content: bytes before compression, so far.
    """

    def __init__(
        self, file: File, path: str, max_bytes: int | None, progress: Callable[[int], None]
    ) -> None:
        self.path = path
        self.content = 0
        self._file, self._max_bytes, self.progress = file, max_bytes, progress
        self._crc = 0
        self.packed = path.endswith(".gz")
        if self.packed:
            self._put(_GZIP_HEAD)

    def write(self, block: bytes) -> None:
        """Add ``block``, a stretch of its own.

        Raises:
            OutputError: it cannot be written.
            TraceconvError: it does not fit.
        """
        if block:
            stretch = self.stretch()
            stretch.write(block)
            stretch.close()
            self.progress(len(block))
            self._count(stretch.content, stretch.crc)

    def stretch(self) -> Stretch:
        """To be filled, and then told of by :meth:`take`."""
        return Stretch(self._put, self.packed)

    def take(self, done: Encoded) -> None:
        """Take in a rank; one that lies in a file of its own is copied, and that file removed.

        Raises:
            OutputError: it cannot be written.
            TraceconvError: it does not fit.
        """
        self._count(done.content, done.crc)
        if done.path is not None:
            with as_output_error(self.path):
                self._file.append(done.path)
            done.path.unlink()

    def room(self, more: int) -> None:
        """Raise TraceconvError if ``more`` bytes of content do not fit."""
        if self._max_bytes is not None and self.content + more > self._max_bytes:
            raise TraceconvError(
                f"internal error: {self.path} grew beyond the limit of {self._max_bytes} bytes "
                "that it was planned for; please report this"
            )

    def _count(self, content: int, crc: int) -> None:
        self.room(content)
        self.content += content
        if self.packed:
            from isal import isal_zlib

            self._crc = isal_zlib.crc32_combine(self._crc, crc, content)

    def _put(self, data: bytes) -> None:
        with as_output_error(self.path):
            self._file.write(data)

    def close(self) -> int:
        """Finish compression; the size of the file."""
        if self.packed:
            self.stretch().close(last=True)
            size = self.content & 0xFFFFFFFF
            self._put(self._crc.to_bytes(4, "little") + size.to_bytes(4, "little"))
        with as_output_error(self.path):
            self._file.finish()
        return self._file.size


class File:
    """An open file that has not got its name yet, or a stream that needs none."""

    def __init__(self, raw: IO[bytes], path: str, unnamed: Path | None) -> None:
        self.size = 0
        self._raw, self._path, self._unnamed = raw, path, unnamed

    def write(self, data: bytes) -> None:
        self._raw.write(data)
        self.size += len(data)

    def append(self, path: Path) -> None:
        """Copy the whole file ``path``; the system does it by itself where it can."""
        with path.open("rb", buffering=0) as source:
            size = os.fstat(source.fileno()).st_size
            self._raw.flush()
            if self._unnamed is None or not self._copied(source.fileno(), size):
                while piece := source.read(_PIECE):
                    self._raw.write(piece)
        self.size += size

    def _copied(self, source: int, size: int) -> bool:
        """Let the system copy; False if it cannot, and then nothing is copied."""
        left = size
        while left:
            try:
                left -= os.copy_file_range(source, self._raw.fileno(), left)
            except OSError as e:
                if left == size and e.errno in _NO_COPY:
                    return False
                raise
        return True

    def finish(self) -> None:
        """Bring everything to the disk."""
        self._raw.flush()
        if self._unnamed is not None:
            os.fsync(self._raw.fileno())
            self._raw.close()

    def settle(self, force: bool) -> None:
        """Give the file its name.

        Raises:
            OutputError: a file of that name has appeared meanwhile and ``force`` is not given.
        """
        if self._unnamed is None:
            return
        with as_output_error(self._path):
            if Path(self._path).exists() and not force:
                raise OutputError(
                    f"{self._path}: has appeared meanwhile; pass `force=True` to overwrite it"
                )
            self._unnamed.replace(Path(self._path).resolve())
            self._unnamed = None

    def discard(self) -> None:
        """Close; remove what has not got its name."""
        if self._unnamed is not None:
            self._unnamed.unlink(missing_ok=True)
        if self._path != "-":
            self._raw.close()


@contextmanager
def opened(path: str) -> Iterator[File]:
    """A file that vanishes unless it is settled. It has the permissions of any new file."""
    if is_url(path):
        with uploading(path) as upload:
            yield upload
        return
    with as_output_error(path):
        target = Path(path)
        if path == "-":
            file = File(sys.stdout.buffer, path, None)
        elif is_stream(target):
            file = File(target.open("wb"), path, None)
        else:
            unnamed = target.resolve().with_name(f"{target.name}.{os.urandom(4).hex()}.part")
            file = File(unnamed.open("xb"), path, unnamed)
    try:
        yield file
    finally:
        with as_output_error(path):
            file.discard()


def is_stream(path: Path) -> bool:
    """A pipe or device (``/dev/null``): written as it is, never replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def as_output_error(path: str) -> Iterator[None]:
    """Around what may fail for reasons of the system.

    Raises:
        OutputError: it did.
    """
    try:
        yield
    except (OSError, ValueError) as e:
        raise OutputError(f"{path}: cannot write: {reason(e)}") from e


def reason(error: Exception) -> str:
    """Why, in the words of the system."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


_KEPT_APART = ("s3", "s3a")
"""Storages whose uploads show when they are completed, by the names fsspec gives them."""


class Upload(File):
    """A file at a URL that has not got its name yet.

    Attributes:
        size: bytes written.
    """

    def __init__(self, path: str) -> None:
        """
        Raises:
            OutputError: it cannot be written there.
        """
        self.size = 0
        self._label, self._place = path, Storage(given(path), OutputError)
        self._settled, self._apart = False, self._place.protocol in _KEPT_APART
        self._name = self._place.path
        if not self._apart:
            self._name += f".{os.urandom(4).hex()}.part"
        with self._guarded():
            options = {"autocommit": False} if self._apart else {}
            self._file: Any = self._place.fs.open(self._name, "wb", **options)

    def _guarded(self) -> AbstractContextManager[None]:
        return self._place.guarded(f"{self._label}: cannot write", OutputError)

    def write(self, data: bytes) -> None:
        with self._guarded():
            self._file.write(data)
        self.size += len(data)

    def append(self, path: Path) -> None:
        """Send the whole local file ``path``."""
        with path.open("rb", buffering=0) as source:
            while piece := source.read(_PIECE):
                self.write(piece)

    def finish(self) -> None:
        """Send what is left."""
        with self._guarded():
            self._file.close()

    def settle(self, force: bool) -> None:
        """Give the file its name.

        Raises:
            OutputError: a file of that name has appeared meanwhile and ``force`` is not given.
        """
        with self._guarded():
            if not force and self._place.fs.exists(self._place.path):
                raise OutputError(
                    f"{self._label}: has appeared meanwhile; pass `force=True` to overwrite it"
                )
            if self._apart:
                self._file.commit()
            else:
                self._place.fs.mv(self._name, self._place.path)
        self._settled = True

    def discard(self) -> None:
        """Remove what has not got its name."""
        if self._settled:
            return
        with self._guarded():
            self._file.close()
            if self._apart:
                self._file.discard()
            else:
                self._place.fs.rm(self._name)


@contextmanager
def uploading(path: str) -> Iterator[Upload]:
    """An upload that vanishes unless it is settled."""
    file = Upload(path)
    try:
        yield file
    finally:
        file.discard()


def check_url(path: str, force: bool) -> None:
    """Refuse early what could not be written later.

    Raises:
        OutputError: the storage cannot be reached, the path is a folder there, or a file that
            may not be overwritten.
    """
    place = Storage(given(path), OutputError)
    with place.guarded(f"{path}: cannot write", OutputError):
        if place.fs.isdir(place.path):
            raise OutputError(f"{path}: is a folder; name a file")
        if not force and place.fs.exists(place.path):
            raise OutputError(f"{path}: exists; pass `force=True` to overwrite it")
