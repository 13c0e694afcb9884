"""Temporary files: where they are made (``TRACECONV_TMPDIR``) and what they are called.

Named files and folders are locked while they are used. Those of a killed run are recognised by
their free lock, and removed by the next run (:func:`sweep`).

Windows has no such locks and needs none: a file that is open can be neither renamed nor removed
there, and a folder is kept by a file that stays open in it (:data:`HELD`).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from traceconv.core.errors import OutputError
from traceconv.core.patterns import lazy_regex

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

RENAMED_WHILE_OPEN = fcntl is not None
"""Whether a file can get another name, or be removed, while it is open."""

HELD = ".held"
"""The file that keeps a folder where folders cannot be locked."""

_UNTIL_LATER: dict[str, Any] = (
    {} if RENAMED_WHILE_OPEN else {"delete_on_close": False}
    if sys.version_info >= (3, 12) else {"delete": False}  # the next run removes it
)  # fmt: skip
"""How a file is made that others open by its name."""

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

PREFIX = "traceconv-tmp-"
"""Prefix of the names of temporary files and folders."""

_OURS = lazy_regex(re.escape(PREFIX) + r"[a-z0-9_]{8}")
"""Such a name, as ``tempfile`` completes it: nothing else is ever swept."""

ADVICE = "TRACECONV_TMPDIR names another folder"
"""What to do where the temporary folder is missing, full or read-only."""


def temporary_folder() -> Path:
    """The folder ``TRACECONV_TMPDIR`` names; without it, the one the system chooses.

    Raises:
        FileNotFoundError: the system has none that can be written to.
    """
    return Path(os.environ.get("TRACECONV_TMPDIR") or tempfile.gettempdir())


@contextmanager
def making() -> Iterator[None]:
    """Around what makes temporary files.

    Raises:
        OutputError: none can be made.
    """
    try:
        yield
    except OSError as e:
        where = e.filename or "temporary files"
        why = f"no temporary file can be made there: {e.strerror or e}; {ADVICE}"
        raise OutputError(f"{where}: {why}") from e


def temporary_file() -> IO[bytes]:
    """An empty file without a name, for writing and reading; it is removed when it is closed.

    Raises:
        OutputError: none can be made.
    """
    with making():
        return tempfile.TemporaryFile(prefix=PREFIX, dir=temporary_folder())


def named_temporary_file() -> tempfile._TemporaryFileWrapper[bytes]:
    """As :func:`temporary_file`, with a path (``name``) for what opens files itself."""
    while True:
        with making():
            file = tempfile.NamedTemporaryFile(  # noqa: SIM115
                prefix=PREFIX, dir=temporary_folder(), **_UNTIL_LATER
            )
        with suppress(FileNotFoundError):
            # locked separately: the file is closed before it is removed, and a sweep may run then
            file.lock = Lock(Path(file.name))  # type: ignore[attr-defined]
            return file
        with suppress(FileNotFoundError):  # or it would be missed when the object goes
            file.close()


def spooled_temporary_file(in_memory: int) -> tempfile.SpooledTemporaryFile[bytes]:
    """As :func:`temporary_file`, in memory up to ``in_memory`` bytes."""
    return tempfile.SpooledTemporaryFile(in_memory, prefix=PREFIX, dir=str(temporary_folder()))


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A folder that only this user can enter, locked until it is closed and removed."""

    def __init__(self) -> None:
        while True:
            super().__init__(prefix=PREFIX, dir=temporary_folder(), ignore_cleanup_errors=True)
            with suppress(FileNotFoundError):
                self._lock = Lock(Path(self.name))
                return
            self._finalizer.detach()  # type: ignore[attr-defined] # or it would warn in the end

    def cleanup(self) -> None:
        self._lock.yield_name()
        super().cleanup()
        self._lock.free()


class Lock:
    """The lock of a file or folder, until it is freed or forgotten."""

    _file = -1

    def __init__(self, path: Path) -> None:
        """
        Raises:
            FileNotFoundError: it was swept before it was locked.
        """
        self._held = path / HELD
        if not RENAMED_WHILE_OPEN:
            if path.is_dir():  # an open file needs no lock
                self._file = os.open(self._held, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            return
        self._file = os.open(path, _READ)
        try:
            hold(self._file)
            path.stat()
        except FileNotFoundError:
            self.free()
            raise

    def yield_name(self) -> None:
        """Let a folder be renamed or removed, which a file that is open in it may prevent."""
        if not RENAMED_WHILE_OPEN and self._file >= 0:
            self.free()
            self._held.unlink(missing_ok=True)

    def free(self) -> None:
        """Give the lock up."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __del__(self) -> None:
        self.free()


def hold(file: int) -> None:
    """Lock an open file or folder."""
    with suppress(OSError):  # where nothing can be locked, nothing is swept
        if RENAMED_WHILE_OPEN:
            fcntl.flock(file, fcntl.LOCK_EX)


def sweep(parent: Path) -> None:
    """Remove the temporary files and folders of runs that have ended."""
    with suppress(OSError), os.scandir(parent) as entries:  # of thousands, few may be ours
        for name in [entry.name for entry in entries if entry.name.startswith(PREFIX)]:
            if _OURS.fullmatch(name):
                remove_abandoned(parent / name)


def remove_abandoned(path: Path) -> None:
    """Remove a file or folder that is this user's and whose lock is free."""
    with suppress(OSError):
        if not RENAMED_WHILE_OPEN:
            with suppress(FileNotFoundError):
                (path / HELD if path.is_dir() else path).unlink()  # refused while it is open
            if path.is_dir():
                shutil.rmtree(path)
            return
        file = os.open(path, _READ | os.O_NONBLOCK)
        try:
            about = os.fstat(file)
            if about.st_uid != os.getuid():
                return
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stat.S_ISDIR(about.st_mode):
                shutil.rmtree(path)
            elif stat.S_ISREG(about.st_mode):
                path.unlink()
        finally:
            os.close(file)
