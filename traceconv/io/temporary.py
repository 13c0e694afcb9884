"""Temporary files: where they are made (``TRACECONV_TMPDIR``) and what they are called.

What has a name is locked as long as it is used. What a killed run has left is recognised by its
free lock, and removed by the next run (:func:`sweep`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

PREFIX = "traceconv-"
"""What the names of temporary files and folders begin with."""

_LOCK = "lock"
_NEW = "file-"
_BEING_MADE_S = 60
"""A file that is younger may not have been locked yet."""

ADVICE = "TRACECONV_TMPDIR names another folder"
"""What to do where the temporary folder is missing, full or read-only."""


def temporary_folder() -> Path:
    """The folder ``TRACECONV_TMPDIR`` names; without it, the one the system chooses.

    Raises:
        FileNotFoundError: the system has none that can be written to.
    """
    return Path(os.environ.get("TRACECONV_TMPDIR") or tempfile.gettempdir())


def temporary_file() -> IO[bytes]:
    """An empty file without a name, for writing and reading; it is removed when it is closed."""
    return tempfile.TemporaryFile(prefix=PREFIX, dir=temporary_folder())


def named_temporary_file() -> tempfile._TemporaryFileWrapper[bytes]:
    """As :func:`temporary_file`, with a path (``name``) for what opens files itself."""
    file = tempfile.NamedTemporaryFile(prefix=f"{PREFIX}{_NEW}", dir=temporary_folder())  # noqa: SIM115
    with suppress(OSError):  # where nothing can be locked, nothing is swept
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def spooled_temporary_file(in_memory: int) -> tempfile.SpooledTemporaryFile[bytes]:
    """As :func:`temporary_file`, in memory up to ``in_memory`` bytes."""
    return tempfile.SpooledTemporaryFile(in_memory, prefix=PREFIX, dir=str(temporary_folder()))


def temporary_directory() -> TemporaryFolder:
    """A folder only this user can enter; it is removed when it is closed."""
    return TemporaryFolder()


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A private folder with a locked file in it."""

    def __init__(self) -> None:
        super().__init__(prefix=PREFIX, dir=temporary_folder())
        self._lock = locked(Path(self.name))

    def cleanup(self) -> None:
        super().cleanup()
        self._lock.close()


def locked(folder: Path) -> IO[bytes]:
    """A new file in ``folder``, locked until it is closed; nobody sees it before it is locked."""
    lock = (folder / f"{_LOCK}.new").open("xb")
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
    Path(lock.name).rename(folder / _LOCK)
    return lock


def sweep(parent: Path) -> None:
    """Remove the temporary files and folders of runs that have ended."""
    for path in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            if path.is_dir():
                with (path / _LOCK).open("rb+") as lock:  # one without a lock is being made
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(f"{PREFIX}{_NEW}") and path.stat().st_mtime < _old():
                with path.open("rb+") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()


def _old() -> float:
    return time.time() - _BEING_MADE_S
