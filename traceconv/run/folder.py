"""The folder in which one run keeps what its ranks leave for each other.

It is private to the user, goes when the run ends, however it ends, and holds a lock while the run
lives: what a killed run has left is found by its free lock, and removed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from traceconv.errors import OutputError
from traceconv.source import temporary_folder

PREFIX = "traceconv-run-"

_LOCK = "lock"


@contextmanager
def run_folder() -> Iterator[Path]:
    """A new private folder below the temporary one; it is gone afterwards.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        parent = Path(temporary_folder() or tempfile.gettempdir())
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).absolute()
    except OSError as e:
        raise OutputError(
            f"{e.filename or parent}: no temporary folder can be made there: {e.strerror or e}; "
            "TRACECONV_TMPDIR names another place"
        ) from e
    try:
        with (folder / _LOCK).open("xb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _sweep(parent, folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path, own: Path) -> None:
    """Remove the folders of runs that are no more."""
    for folder in parent.glob(f"{PREFIX}*"):
        if folder != own and _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    """Whether a folder is ours and nobody holds its lock. One without a lock is being made."""
    with suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with (folder / _LOCK).open("rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False
