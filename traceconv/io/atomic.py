"""Files and folders that appear complete or not at all.

Whatever is written grows under a temporary name beside its target and is renamed when it is
complete; a failure removes it. :func:`replacing` writes a temporary file of a run,
:func:`replacing_folder` a folder, :func:`write_files` small outputs. :func:`opened` is for outputs
that are complete long before they may get their name (all parts of a trace, or none), on this
machine or at a URL.

Guarantees for outputs on this machine: the content is on the disk (``fsync``) before the file gets
its name, and the name (``fsync`` of the folder) before the output is reported as written. After a
crash of this process or of the machine, a final name has either the old or the new content,
complete. An incomplete file is locked while it grows (on Windows: open, and closed right before it
gets its name). Files of a killed run are recognised by their
free lock. The next run that writes the same output removes them, and no run reads them as input
(:func:`is_incomplete`).
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, ClassVar

from traceconv.core.errors import OutputError, OutputPathError
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import pieces
from traceconv.io.run_files import planned
from traceconv.io.storage import S3, Storage, is_url, original_url
from traceconv.scratch.temporary import RENAMED_WHILE_OPEN, Lock, hold, remove_abandoned

SUFFIX = ".part"
"""What names of incomplete files and folders end in."""

MOST_LOCKED = 8
"""Most parts of an output that are kept open until all of them get their names."""

_MEANWHILE = "has appeared meanwhile"

_NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)
"""Why the system cannot copy from file to file by itself."""


def _incomplete(name: str) -> str:
    """A name for the incomplete file that no other run uses."""
    return f"{name}.{os.urandom(4).hex()}{SUFFIX}"


_INCOMPLETE = lazy_regex(r"(.+)\.[0-9a-f]{8}" + re.escape(SUFFIX), re.DOTALL)


def is_incomplete(name: str) -> bool:
    """Whether a file or folder is called as those that are growing, or that a killed run left."""
    return name.endswith(SUFFIX) and _INCOMPLETE.fullmatch(name) is not None


def _begun(target: Path) -> tuple[Path, IO[bytes]]:
    """A new incomplete file of ``target``, locked. Those that killed runs have left are removed."""
    _sweep(target)
    while True:
        path = target.with_name(_incomplete(target.name))
        file = path.open("xb")
        hold(file.fileno())
        if path.exists():  # else it was swept before it was locked
            return path, file
        file.close()


def _sweep(target: Path) -> None:
    """Remove what killed runs have left of ``target``."""
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            match = _INCOMPLETE.fullmatch(entry.name)
            if match is not None and match[1] == target.name:
                remove_abandoned(Path(entry.path))


def _sync(path: Path) -> None:
    """Bring a file, or what a folder lists, to the disk."""
    if not RENAMED_WHILE_OPEN and path.is_dir():
        return  # Windows opens no folders
    writing = os.O_RDONLY if RENAMED_WHILE_OPEN else os.O_RDWR
    file = os.open(path, writing | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(file)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS, errno.EACCES):
            raise  # those say that this file system does not do that for folders
    finally:
        os.close(file)


@contextmanager
def output_errors(path: str, advice: str = "") -> Iterator[None]:
    """Turns errors of the system into ours.

    Args:
        advice: what to do next, if there is more to say than the reason.

    Raises:
        OutputError: the block raised OSError.
    """
    try:
        yield
    except OSError as e:
        why = f"{path}: cannot be written: {e.strerror or e}"
        raise OutputError(f"{why}; {advice}" if advice else why) from e


@contextmanager
def replacing(path: Path, advice: str = "") -> Iterator[IO[bytes]]:
    """A file for writing that gets the name ``path`` when the block ends without an error.

    It does not outlive the run, so it is not brought to the disk. A file of that name is replaced.

    Raises:
        OutputError: it cannot be written; then nothing of it is left. ``advice`` is appended.
    """
    with output_errors(str(path), advice):
        growing = path.with_name(_incomplete(path.name))
        try:
            with growing.open("xb") as file:
                yield file
            growing.replace(path)
        finally:
            growing.unlink(missing_ok=True)  # it is there only if something failed


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write small files, all of them or none; a pipe or a device is written as it is.

    Raises:
        OutputError: one cannot be written; then nothing is left of those that have no name yet.
    """
    with ExitStack() as stack:
        destinations = [stack.enter_context(opened(str(path))) for path in contents]
        for destination, data in zip(destinations, contents.values(), strict=True):
            destination.write(data)
            destination.finish()
        for destination in destinations:
            destination.settle(force=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A new folder that gets the name ``path`` when the block ends without an error.

    A folder of that name gives way to it: there is no moment without one but that between two
    renames, and then what was there has the name of an incomplete one.

    Raises:
        OutputError: it cannot be made or renamed; then nothing of it is left.
    """
    with output_errors(str(path)):
        target = path.resolve()
        _sweep(target)
        growing = target.with_name(_incomplete(target.name))
        old = target.with_name(_incomplete(target.name))
        growing.mkdir()
        lock = Lock(growing)
        try:
            yield growing
            lock.yield_name()
            for folder, _, names in os.walk(growing):
                for name in (*names, "."):
                    _sync(Path(folder, name))
            if target.exists():
                target.rename(old)
            growing.rename(target)
            _sync(target.parent)
        finally:
            shutil.rmtree(growing, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            lock.free()


@contextmanager
def opened(path: str) -> Iterator[Destination]:
    """Where ``path`` is written: a file, a pipe or device, a URL, "-" for standard output.

    ``write`` and ``append``; then ``finish`` when it is complete, ``settle`` to give it its name.
    Files have the permissions of any new file, and are removed unless they are settled.

    Raises:
        OutputError: it cannot be written.
    """
    destination: Destination = Upload(path) if is_url(path) else LocalFile(path)
    try:
        yield destination
    finally:
        destination.discard()


def check(path: str, force: bool = False, what: str = "the output") -> None:
    """Refuse early what could not be written later.

    Args:
        what: the file is for, see :func:`traceconv.io.run_files.planned`.

    Raises:
        OutputPathError: the folder is missing or read-only, the path is a folder, an input or
            another output, or a file is there and ``force`` is not given.
        OutputError: it cannot be looked at.
    """
    planned(path, what)
    if path == "-":
        return
    if is_url(path):
        check_url(path, force)
        return
    target = Path(path)
    try:
        if target.is_dir():
            raise OutputPathError(f"{path}: is a folder; name a file")
        if is_stream(target):
            return
        if not target.parent.is_dir():
            raise OutputPathError(f"{path}: its folder {target.parent} does not exist; create it")
        refuse_existing(path, target.exists(), force)
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise OutputPathError(f"{path}: its folder {target.parent} is not writable")
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        reason = (isinstance(e, OSError) and e.strerror) or str(e)
        raise OutputError(f"{path}: cannot be written: {reason}") from e


def refuse_existing(path: str, exists: bool, force: bool, what: str = "exists") -> None:
    """Raise OutputPathError if a file exists and must not be overwritten."""
    if exists and not force:
        raise OutputPathError(
            f"{path}: {what}; pass `force=True` to overwrite it, or name another file"
        )


def check_url(path: str, force: bool) -> None:
    """Check early whether an output can be written to a URL.

    Raises:
        OutputError: the storage cannot be reached, or the path is a folder, or a file that must
            not be overwritten.
    """
    storage = Storage(original_url(path), OutputError)
    with storage.guarded(f"{path}: cannot be written", OutputError):
        if storage.fs.isdir(storage.path):
            raise OutputPathError(f"{path}: is a folder; name a file")
        refuse_existing(path, storage.fs.exists(storage.path), force)


def is_stream(path: Path) -> bool:
    """Whether it is a pipe or device (``/dev/null``): written as it is, never replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class LocalFile:
    """A file on this machine, a pipe, a device, or standard output.

    Attributes:
        size:    bytes written.
        unnamed: the file as long as it has another name than its own; None for streams.
        locked:  how many complete files are open, so that their locks hold until they have names.
    """

    unnamed: Path | None = None
    locked: ClassVar[int] = 0
    _counted = False

    def __init__(self, path: str) -> None:
        """
        Raises:
            OutputError: it cannot be opened.
        """
        self._path, self.size = path, 0
        with output_errors(path):
            if path == "-":
                if sys.stdout is None:
                    raise OutputError("standard output is closed")
                self._raw: IO[bytes] = sys.stdout.buffer
            elif is_stream(Path(path)):
                self._raw = Path(path).open("wb")  # noqa: SIM115 - closed by discard()
            else:
                self._target = Path(path).resolve()
                self.unnamed, self._raw = _begun(self._target)

    def write(self, data: bytes) -> None:
        """Add ``data``."""
        with output_errors(self._path):
            self._raw.write(data)
        self.size += len(data)

    def append(self, path: Path) -> None:
        """Copy the whole file ``path``; the system does it by itself where it can."""
        with output_errors(self._path), path.open("rb", buffering=0) as source:
            size = os.fstat(source.fileno()).st_size
            self._raw.flush()
            if self.unnamed is None or not self._copied(source.fileno(), size):
                for piece in pieces(source):
                    self._raw.write(piece)
        self.size += size

    def _copied(self, source: int, size: int) -> bool:
        """Let the system copy; False if it cannot, and then nothing is copied."""
        remaining = size
        if not hasattr(os, "copy_file_range"):  # Linux has it
            return False
        while remaining:
            try:
                remaining -= os.copy_file_range(source, self._raw.fileno(), remaining)
            except OSError as e:
                if remaining == size and e.errno in _NO_COPY:
                    return False
                raise
        return True

    def finish(self) -> None:
        """Bring everything to the disk."""
        with output_errors(self._path):
            self._raw.flush()
            if self.unnamed is not None:
                os.fsync(self._raw.fileno())
                if RENAMED_WHILE_OPEN and LocalFile.locked < MOST_LOCKED:
                    LocalFile.locked += 1  # it stays open
                    self._counted = True
                else:
                    self._raw.close()

    def settle(self, force: bool) -> None:
        """Give the file its name.

        Raises:
            OutputError: a file of that name has appeared meanwhile and ``force`` is not given.
        """
        if self.unnamed is None:
            return
        with output_errors(self._path):
            refuse_existing(self._path, self._target.exists(), force, _MEANWHILE)
            self.unnamed.replace(self._target)
            self.unnamed = None
            _sync(self._target.parent)

    def discard(self) -> None:
        """Close; remove the file if it has not got its name."""
        with output_errors(self._path):
            try:
                if self._path != "-":
                    self._raw.close()
            finally:
                if self.unnamed is not None:
                    self.unnamed.unlink(missing_ok=True)
        if self._counted:
            self._counted = False
            LocalFile.locked -= 1


class Upload:
    """A file at a URL, with the methods of :class:`LocalFile`.

    S3 hides an upload until it is completed. Elsewhere the file grows under a temporary name in the
    same folder, and is renamed when it is complete.
    """

    unnamed: Path | None = None

    def __init__(self, path: str) -> None:
        """
        Raises:
            OutputError: it cannot be written there.
        """
        self._label, self._storage = path, Storage(original_url(path), OutputError)
        self._settled, self.size = False, 0
        self._hidden = self._storage.protocol in S3  # uploads are seen when they are completed
        self._name = self._storage.path if self._hidden else _incomplete(self._storage.path)
        with self._guarded():
            options = {"autocommit": False} if self._hidden else {}
            self._file: Any = self._storage.fs.open(self._name, "wb", **options)

    def _guarded(self) -> AbstractContextManager[None]:
        return self._storage.guarded(f"{self._label}: cannot be written", OutputError)

    def write(self, data: bytes) -> None:
        with self._guarded():
            self._file.write(data)
        self.size += len(data)

    def append(self, path: Path) -> None:
        with path.open("rb", buffering=0) as source:
            for piece in pieces(source):
                self.write(piece)

    def finish(self) -> None:
        with self._guarded():
            self._file.close()

    def settle(self, force: bool) -> None:
        with self._guarded():
            exists = self._storage.fs.exists(self._storage.path)
            refuse_existing(self._label, exists, force, _MEANWHILE)
            if self._hidden:
                self._file.commit()
            else:
                self._storage.fs.mv(self._name, self._storage.path)
        self._settled = True

    def discard(self) -> None:
        if self._settled:
            return
        # an error of the storage here would hide the reason why the run failed
        if self._hidden:
            with suppress(OutputError), self._guarded():
                self._file.discard()
            self._file.closed = True  # or its end would send what is left of it
            return
        with suppress(OutputError), self._guarded():
            self._file.close()
        with suppress(OutputError), self._guarded():
            self._storage.fs.rm(self._name)


Destination = LocalFile | Upload
