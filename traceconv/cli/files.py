"""Small files beside a trace - tables, findings, offsets, accounts: written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from traceconv.io import atomic


def refuse_existing(path: Path, force: bool) -> None:
    """Raise before any work is done for a file that may not be overwritten.

    Raises:
        OutputError: it is there, and ``force`` is not given.
    """
    atomic.refuse_existing(str(path), path.exists(), force)


def write(path: Path, content: str | bytes) -> None:
    """Write ``content`` under another name, then give it its own.

    Raises:
        OutputError: it cannot be written; nothing is left.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    atomic.write_file(path, data)
