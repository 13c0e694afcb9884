"""A limit on memory: while one is set, large arrays are allocated in files on disk.

Passes are functions over whole columns, and the columns of a large rank may exceed the memory of
the machine. Instead of a second implementation in every reader, pass and writer, large arrays are
allocated in unnamed files while a limit is set (``native/memory.c``, an allocator for numpy), and
their pages are written out whenever the process nears the limit. Results cannot differ: the code
is the same.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self
from weakref import WeakSet

from traceconv.core.errors import ResourceError
from traceconv.native import Allocator, allocator
from traceconv.scratch.temporary import ADVICE, making, temporary_folder

LOWEST = 192 << 20
"""The least limit, bytes: Python, numpy and the buffers of one file need about half of it."""

LEAST_FREE = 8 << 20
"""Less freed memory is kept: pages that are needed again have to be cleared."""

_limit: int | None = None
_mapped: WeakSet[ReadMapping] = WeakSet()
"""Files that are mapped, for a limit that is set later."""


@contextmanager
def limited(limit_bytes: int | None) -> Iterator[None]:
    """Keep the process within ``limit_bytes`` of memory; None sets no limit.

    Arrays made inside may be used, and are freed, after it.

    Raises:
        ResourceError: the limit is below :data:`LOWEST`, the compiled part is missing, or the
            folder for temporary files is itself in memory.
        OutputError: that folder is missing or full.
    """
    global _limit
    if limit_bytes is None:
        yield
        return
    native = _allocator()
    if limit_bytes < LOWEST:
        raise ResourceError(
            f"a memory limit of {limit_bytes >> 20}M is too small: give {LOWEST >> 20}M or more"
        )
    if _limit is not None:
        raise ResourceError("a memory limit is already set in this process")
    _limit = limit_bytes // 8 * 5  # the rest is for what grows until pages are written out
    try:
        with making():
            folder = str(temporary_folder())
            on_disk = native.start(folder, _limit)
        if not on_disk:
            raise ResourceError(
                f"{folder}: temporary files there stay in memory, and only files on a disk relieve "
                f"it; {ADVICE}"
            )
        for mapping in tuple(_mapped):  # archives are mapped when they are opened
            mapping.watch()
        yield
    finally:
        native.stop()
        _limit = None


def scarce() -> bool:
    """Whether a limit is set and reached: pages of mapped inputs should be released."""
    return _limit is not None and _allocator().resident() > _limit


def give_back() -> None:
    """Give pages of freed memory back to the system, between parts of the work that each need much.

    Columns come and go in pieces of some hundred kB; those that live on lie between holes, which
    the next part, asking for other sizes, would not fill. Does nothing without the compiled part,
    and where the C library has no such call.
    """
    native = allocator()
    if native:
        native.trim(LEAST_FREE)


def large_apart() -> None:
    """From now on, give the memory of arrays of 1 MB and more back as soon as they are freed.

    For work on columns of millions of rows: the C library would keep them for later, and those that
    come and go leave holes between those that stay. It costs page faults. Does nothing without the
    compiled part.
    """
    native = allocator()
    if native:
        native.apart(1 << 20)


class ReadMapping(mmap.mmap):
    """A file mapped for reading; under a limit that is set its pages leave memory with those of
    arrays."""

    _forget: Callable[[mmap.mmap], None] | None = None

    def __new__(cls, number: int) -> Self:
        """Map the whole file with this descriptor.

        Raises:
            OSError, ValueError: it is empty, or cannot be mapped.
        """
        mapping = super().__new__(cls, number, 0, access=mmap.ACCESS_READ)
        _mapped.add(mapping)
        if _limit is not None:
            mapping.watch()
        return mapping

    def watch(self) -> None:
        """Let its pages leave memory, from now on."""
        if self._forget is None and not self.closed:
            native = _allocator()
            self._forget = native.forget
            native.watch(self)

    def close(self) -> None:
        """Unmap it."""
        self._release()
        super().close()

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self._release()

    def _release(self) -> None:
        if self._forget and not self.closed:
            self._forget(self)


def release_pages(mapping: mmap.mmap) -> None:
    """Let the pages of a mapped file leave memory, where the system has a call for it."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def _allocator() -> Allocator:
    compiled = allocator()
    if not compiled:
        raise ResourceError(
            "a memory limit needs the compiled parts of traceconv, and they are not installed; "
            "install a C compiler and then traceconv again, or give no limit"
        )
    return compiled
