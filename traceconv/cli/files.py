"""Small files beside a trace - tables, findings, offsets, accounts: written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from traceconv.core.errors import OutputError


def refuse_existing(path: Path, force: bool) -> None:
    """Raise before any work is done for a file that may not be overwritten.

    Raises:
        OutputError: it is there, and ``force`` is not given.
    """
    if path.exists() and not force:
        raise OutputError(f"{path}: exists; add -f to overwrite it")


def write(path: Path, content: str | bytes) -> None:
    """Write ``content`` under another name, then give it its own.

    Raises:
        OutputError: it cannot be written; nothing is left.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    if path.exists() and not path.is_file():  # a pipe or a device is written as it is
        growing = path
    else:
        growing = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    try:
        try:
            growing.write_bytes(data)
            if growing is not path:
                growing.replace(path)
        except OSError:
            if growing is not path:
                growing.unlink(missing_ok=True)
            raise
    except OSError as e:
        raise OutputError(f"{path}: cannot be written: {e.strerror or e}") from e
