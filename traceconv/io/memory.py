"""A bound on memory: what does not fit into it lies on disk, whatever part of the work made it.

Passes are functions over whole columns, and columns of a large rank are larger than what a user
may have. Instead of a second way of working in every reader, pass and writer, large arrays are
allocated in unnamed files while a limit is set (``native/memory.c``, an allocator for numpy), and
their pages leave memory whenever the process nears the limit. Results cannot differ: the code is
the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from traceconv.core.errors import ResourceError
from traceconv.io.sources import temporary_folder

LOWEST = 192 << 20
"""Bytes: Python, numpy and the buffers of one file need about half of this."""

_limit: int | None = None


@contextmanager
def limited(limit_bytes: int | None) -> Iterator[None]:
    """Keep the process within ``limit_bytes`` of memory; None sets no limit.

    Arrays made inside may be used, and are freed, after it.

    Raises:
        ResourceError: the limit is below :data:`LOWEST`, the compiled part is missing, or the
            folder for temporary files is itself in memory.
    """
    global _limit
    if limit_bytes is None:
        yield
        return
    native, folder = _native(), temporary_folder() or tempfile.gettempdir()
    if limit_bytes < LOWEST:
        raise ResourceError(
            f"a memory limit of {limit_bytes >> 20}M is too small: give {LOWEST >> 20}M or more"
        )
    if _limit is not None:
        raise ResourceError("a memory limit is already set in this process")
    _limit = limit_bytes // 8 * 5  # room for what grows until pages are put out
    try:
        if not native.start(folder, _limit):
            raise ResourceError(
                f"{folder}: temporary files there stay in memory; name a folder on a disk with "
                "TRACECONV_TMPDIR"
            )
        yield
    finally:
        native.stop()
        _limit = None


def scarce() -> bool:
    """Whether a limit is set and reached: mapped inputs should be put out of memory."""
    return _limit is not None and _native().resident() > _limit


def _native() -> Any:
    try:
        return import_module("traceconv.native._memory")
    except ImportError:
        raise ResourceError(
            "a memory limit needs the compiled parts of traceconv, and they are not installed; "
            "install a C compiler and then traceconv again, or give no limit"
        ) from None
