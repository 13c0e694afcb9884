"""Temporary files: where they are made (``TRACECONV_TMPDIR``) and what they are called."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO

PREFIX = "traceconv-"
"""What the names of temporary files and folders begin with."""

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
    return tempfile.NamedTemporaryFile(prefix=PREFIX, dir=temporary_folder())


def spooled_temporary_file(in_memory: int) -> tempfile.SpooledTemporaryFile[bytes]:
    """As :func:`temporary_file`, in memory up to ``in_memory`` bytes."""
    return tempfile.SpooledTemporaryFile(in_memory, prefix=PREFIX, dir=str(temporary_folder()))


def temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """A folder only this user can enter; it is removed when it is closed."""
    return tempfile.TemporaryDirectory(prefix=PREFIX, dir=temporary_folder())
