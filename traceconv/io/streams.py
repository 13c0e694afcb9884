"""Byte streams that readers pull from: mapped, counted, decompressed within bounds."""

from __future__ import annotations

import errno
import importlib
import io
import mmap
import os
import signal
import stat
import zlib
from collections.abc import Generator, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from traceconv.core.errors import MissingExtraError, SourceError
from traceconv.core.source import COPY_BYTES, Progress
from traceconv.io.threads import ahead
from traceconv.scratch.memory import ReadMapping

RATIO_LIMIT = 300
"""Compressed input may grow by this factor ..."""

RATIO_FREE_BYTES = 1 << 30
"""... or to this size, whichever is more; beyond, it is refused as a decompression bomb."""


_PACKED_BYTES = 1 << 16

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""How compressed data begins."""

BATCH = 8
"""Blocks of a stream that one thread passes to another at once."""


def damaged_archive(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """``others``, and the exceptions for a damaged archive. Their packages are imported only here,
    where an error is handled, not whenever a file is read."""
    import tarfile
    import zipfile

    return (*others, zipfile.BadZipFile, tarfile.TarError)


def open_regular(path: Path) -> io.BufferedReader:
    """A file for reading. What waits instead, as a pipe does that took the place of the file, and
    what is nearly all holes, which take no room but time, are refused.

    Raises:
        OSError: it cannot be opened, or is refused.
    """
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.open(path, os.O_RDONLY | flags)
    about = os.fstat(file)
    held = 512 * getattr(about, "st_blocks", 0)  # 0 also where the file system does not say
    why = ""
    if not stat.S_ISREG(about.st_mode):
        why = "it is a folder" if stat.S_ISDIR(about.st_mode) else "not a regular file"
    elif held and about.st_size > max(RATIO_FREE_BYTES, RATIO_LIMIT * held):
        why = f"of its {about.st_size >> 20} MiB, all but {held >> 10} KiB are holes; refused"
    if not why:
        return os.fdopen(file, "rb")
    os.close(file)
    raise OSError(errno.EINVAL, why, path)


class FileStream:
    """One open file: ``mapped`` is its whole content where it can be mapped, else None.

    ``read(n)`` returns up to ``n`` bytes, ``b""`` at the end. Use as a context manager.
    """

    def __init__(
        self, raw: IO[bytes], label: str, progress: Progress, mapped: mmap.mmap | None = None
    ) -> None:
        self._raw, self.label, self._progress, self.mapped = raw, label, progress, mapped
        self._ahead: Generator[bytes] | None = None

    def read(self, n: int) -> bytes:
        """Up to ``n`` bytes.

        Raises:
            SourceError: the file cannot be read, or its compression is broken.
        """
        try:
            return self._raw.read(n)
        except damaged_archive(OSError, EOFError, zlib.error, ValueError) as e:
            raise SourceError(f"{self.label}: cannot read: {e}") from e

    def ahead(self, size: int) -> Iterator[bytes]:
        """The rest of it, read (and inflated) on another thread, ``size`` bytes at a time.

        Raises:
            SourceError: as :meth:`read`, behind all that could be read.
        """
        self._ahead = ahead(self._batches(size))
        return self._ahead

    def _batches(self, size: int) -> Iterator[bytes]:
        while True:
            batch: list[bytes] = []  # a few at once: handing over costs time
            try:
                while len(batch) < BATCH and (piece := self.read(size)):
                    batch.append(piece)
            except SourceError:
                yield b"".join(batch)
                raise
            if not batch:
                return
            yield b"".join(batch)

    def advance(self, n: int) -> None:
        """Report ``n`` stored bytes of ``mapped`` as read (progress only)."""
        self._progress(n)

    def __enter__(self) -> FileStream:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ahead is not None:
            self._ahead.close()
        self._raw.close()


class Counted:
    """A raw file that reports what is read from it."""

    def __init__(self, raw: IO[bytes], progress: Progress) -> None:
        self._raw, self._progress = raw, progress

    def read(self, n: int = -1) -> bytes:
        data = self._raw.read(n)
        self._progress(len(data))
        return data

    def readinto(self, buffer: Any) -> int:
        """As ``io.RawIOBase.readinto``, which isal reads through."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()

    def close(self) -> None:
        self._raw.close()


class Bounded:
    """A decompressing file that refuses to grow past ``limit`` bytes.

    What precedes a break in gzip data is handed out before the error is raised: isal drops what it
    has unpacked of its last block, so the file is unpacked once more, by zlib.
    """

    def __init__(self, raw: Any, limit: int, label: str, beneath: Any = None) -> None:
        self._raw, self._limit, self._label, self._read = raw, limit, label, 0
        self._beneath = beneath  # a gzip file does not close what it reads from
        self._broken: Exception | None = None
        self._rest: Iterator[bytes] = iter(())  # what isal dropped

    def read(self, n: int = -1) -> bytes:
        data = self._unpacked(n if n >= 0 else self._limit + 1)
        self._read += len(data)
        if self._read > self._limit:
            raise SourceError(
                f"{self._label}: unpacks to more than {self._limit >> 20} MiB, far more than it "
                "has; refused as a decompression bomb"
            )
        return data

    def _unpacked(self, n: int) -> bytes:
        if self._broken is None:
            try:
                return cast(bytes, self._raw.read(n))
            except _broken_gzip() as e:
                self._broken = zlib.error(str(e))
            except (EOFError, zlib.error) as e:
                self._broken = e
            if self._beneath is not None:
                self._rest = _before_break(self._beneath, self._read)
        piece = next(self._rest, b"")
        if not piece:
            raise self._broken
        self._rest = chain((piece[n:],), self._rest) if len(piece) > n else self._rest
        return piece[:n]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._read, self._broken = 0, None
        return cast(int, self._raw.seek(offset, whence))

    def close(self) -> None:
        self._raw.close()
        if self._beneath is not None:
            self._beneath.close()


def _before_break(raw: Any, skip: int) -> Iterator[bytes]:
    """What of broken gzip data can be unpacked, without the first ``skip`` bytes."""
    try:
        raw.seek(0)
    except (OSError, ValueError):  # a pipe
        return
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    while packed := raw.read(_PACKED_BYTES):
        while packed:
            try:
                piece = unpack.decompress(packed, COPY_BYTES)
            except zlib.error:
                return
            if len(piece) > skip:
                yield piece[skip:]
            skip = max(skip - len(piece), 0)
            packed = unpack.unconsumed_tail
            if unpack.eof:  # another member follows
                packed, unpack = unpack.unused_data, zlib.decompressobj(zlib.MAX_WBITS | 16)


def gunzip(raw: Any, stored: int, label: str) -> IO[bytes]:
    """The content of gzip ``raw`` of ``stored`` bytes, refused beyond :data:`RATIO_LIMIT`."""
    from isal import igzip

    limit = max(RATIO_FREE_BYTES, RATIO_LIMIT * stored)
    file = igzip.IGzipFile(fileobj=raw, mode="rb")  # type: ignore[no-untyped-call]
    return cast(IO[bytes], Bounded(file, limit, label, beneath=raw))


class Deflating:
    """A compressed stream whose bytes depend on the content alone.

    At level 1 ISA-L is as small as at its level 3 on traces, and three times as fast. But it looks
    for matches of the third byte of a stream under a hash of an address (``shr tmp2, 16`` behind
    ``.write_first_byte`` in igzip_icf_body_h1_gr_bt.asm), so one stream of some thousand finds
    other matches in another process. It compresses inputs of at most 16 bytes in another way, so
    a stream begins with as many, flushed. That costs 5 bytes.

    Args:
        window: window bits, as of ``zlib.compressobj``.
    """

    def __init__(self, window: int = zlib.MAX_WBITS) -> None:
        from isal import isal_zlib

        self._packer: Any = isal_zlib.compressobj(1, isal_zlib.DEFLATED, window)
        self._held: bytearray | None = bytearray()

    def add(self, content: Any) -> bytes:
        """Compress more content; the part of the stream that is ready."""
        if self._held is None:
            return cast(bytes, self._packer.compress(content))
        self._held += content
        if len(self._held) <= _SHORT:
            return b""
        content, self._held = memoryview(self._held), None
        begun = self._packer.compress(content[:_SHORT]) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        return cast(bytes, begun + self._packer.compress(content[_SHORT:]))

    def end(self, how: int = zlib.Z_FINISH) -> bytes:
        """The rest of the stream, flushed by ``how``; nothing is added afterwards."""
        return cast(bytes, self._packer.compress(self._held or b"") + self._packer.flush(how))


_SHORT = 16
"""Bytes that ISA-L compresses as it does the end of a stream."""


class _Unzstd:
    """A reader around zstd frames that raises what is raised for broken gzip data."""

    def __init__(self, raw: Any, label: str) -> None:
        self._beneath = raw
        self._reader, self._error = _zstd_reader(raw, label)

    def read(self, n: int) -> bytes:
        try:
            return cast(bytes, self._reader.read(n))
        except self._error as e:
            raise zlib.error(f"zstd data cannot be unpacked: {e}") from e

    def close(self) -> None:
        self._beneath.close()


def unzstd(raw: Any, stored: int, label: str) -> IO[bytes]:
    """The content of all zstd frames in ``raw``, of ``stored`` bytes, refused beyond
    :data:`RATIO_LIMIT`.

    Raises:
        MissingExtraError: no package that unpacks it is installed.
    """
    limit = max(RATIO_FREE_BYTES, RATIO_LIMIT * stored)
    return cast(IO[bytes], Bounded(_Unzstd(raw, label), limit, label))


def unpacked(data: bytes, label: str, limit_bytes: int) -> bytes:
    """The content of a zlib stream, a gzip member or zstd frames that are in memory.

    Args:
        limit_bytes: bytes it may have; up to :data:`RATIO_LIMIT` times ``data`` are allowed anyway.

    Raises:
        ValueError: it is none of these, is broken, too large, or is followed by more.
        MissingExtraError: see :func:`unzstd`.
    """
    limit = max(limit_bytes, RATIO_LIMIT * len(data))
    try:
        if data.startswith(ZSTD):
            content = _Unzstd(io.BytesIO(data), label).read(limit + 1)
            if len(content) > limit:
                raise ValueError("it unpacks to too much")
            return content
        stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
        content = stream.decompress(data, limit)
    except zlib.error as e:
        raise ValueError(str(e)) from e
    if not stream.eof or stream.unused_data or stream.unconsumed_tail:
        raise ValueError("the compressed data is cut off, too large, or followed by more")
    return content


def _zstd_reader(raw: Any, label: str) -> tuple[Any, type[Exception]]:
    """A decompressing reader around ``raw``, and what it raises for broken data."""
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        if name != "zstandard":
            return module.ZstdFile(raw), module.ZstdError
        unpacker = module.ZstdDecompressor()
        return unpacker.stream_reader(raw, read_across_frames=True), module.ZstdError
    raise MissingExtraError(
        f"{label}: is compressed with zstd, which needs a package: pip install zstandard"
    )


def _broken_gzip() -> type[Exception]:
    """The exception of the decompressor for broken data; imported only when one is handled."""
    from isal.igzip_lib import IsalError

    return cast(type[Exception], IsalError)


class MappedFile(ReadMapping):
    """A whole file mapped into memory, with what another process needs to map it again.

    Attributes:
        path:     absolute.
        mtime_ns: when the file was last changed, ns, as the file system reports it.
    """

    path: str
    mtime_ns: int

    def lasts(self) -> bool:
        """Whether the file is still there, unlike a temporary one."""
        try:
            return Path(self.path).stat().st_mtime_ns == self.mtime_ns
        except OSError:
            return False


def mapped(raw: IO[bytes], path: Path | None) -> MappedFile | None:
    """The whole file mapped into memory, or None where that is impossible.

    A file that is being written is not mapped: if it were truncated, this process would be killed.
    """
    if path is None or _is_written(raw):
        return None
    try:
        mapped_file = MappedFile(raw.fileno())
        mapped_file.path, mapped_file.mtime_ns = (
            str(path.absolute()),
            os.fstat(raw.fileno()).st_mtime_ns,
        )
    except (OSError, ValueError):  # empty file, or a file system that cannot map
        return None
    return mapped_file


def _is_written(raw: IO[bytes]) -> bool:
    """Whether a process has the file open for writing, as far as the system lets its owner know."""
    try:
        import fcntl

        # who opens it for writing meanwhile has the holder of the lease sent a signal: by default
        # one that ends the process
        fcntl.fcntl(raw, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(raw, fcntl.F_SETLEASE, fcntl.F_RDLCK)  # refused while there are writers
        fcntl.fcntl(raw, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except (ImportError, AttributeError, OSError):  # not this system, not our file
        return False
    return False


def mapped_again(path: str, size: int, mtime_ns: int) -> MappedFile:
    """The file of a :class:`MappedFile`, in another process.

    Raises:
        SourceError: it cannot be read any more, or is not what it was.
    """
    try:
        with open_regular(Path(path)) as raw:
            mapped_file = mapped(raw, Path(path))
    except OSError as e:
        raise SourceError(f"{path}: cannot be read again: {e.strerror or e}") from e
    if mapped_file is None or (len(mapped_file), mapped_file.mtime_ns) != (size, mtime_ns):
        raise SourceError(f"{path}: was changed while it was being merged; start again")
    return mapped_file
