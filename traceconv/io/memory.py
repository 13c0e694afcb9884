"""Where large arrays lie, whatever part of the work made them: on disk, as far as a limit on memory
asks for it, else in memory that earlier ones left.

Passes are functions over whole columns, and the columns of a large rank may exceed the memory of
the machine. Instead of a second implementation in every reader, pass and writer, large arrays are
allocated in unnamed files while a limit is set (``native/memory.c``, an allocator for numpy), and
their pages are written out whenever the process nears the limit. Results cannot differ: the code
is the same. Without a limit, in processes that do nothing but our work, they are made of what
earlier ones left (``native/reuse.c``).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self
from weakref import WeakSet

from traceconv.core.errors import ResourceError
from traceconv.io.temporary import ADVICE, temporary_folder
from traceconv.native import Allocator, allocator

LOWEST = 192 << 20
"""The least limit, bytes: Python, numpy and the buffers of one file need about half of it."""

LEAST_FREE = 8 << 20
"""Less freed memory is kept: pages that are needed again have to be cleared."""

APART = 1 << 20
"""Blocks of so many bytes go back to the system when they are freed, so that they leave no holes
between those that live on. Smaller ones would be cleared for every use, for 5 % more time."""

REUSED_FROM = 512 << 10
"""Arrays of so many bytes are made of what earlier ones left: whole columns of all but small ranks,
hundreds of them one after the other."""

REUSED = 32 << 20
"""So much of what such arrays leave is kept for the next ones."""

_limit: int | None = None
_ours = False
_mapped: WeakSet[ReadMapping] = WeakSet()
"""Files that are mapped, for a limit that is set later."""


def process_is_ours() -> None:
    """Say that this process reads profiles and does nothing else, so that it may be tuned for that
    as a whole: the command line, and workers.

    Freed columns leave holes between those that live on; these take a tenth of all memory.
    """
    global _ours
    _ours = True


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
        tuned = allocator() if _ours else None
        if tuned:
            tuned.apart(APART, LEAST_FREE)
            tuned.reuse(REUSED_FROM, REUSED)
        try:
            yield
        finally:
            if tuned:
                tuned.stop()
        return
    native, folder = _allocator(), temporary_folder()
    if limit_bytes < LOWEST:
        raise ResourceError(
            f"a memory limit of {limit_bytes >> 20}M is too small: give {LOWEST >> 20}M or more"
        )
    if _limit is not None:
        raise ResourceError("a memory limit is already set in this process")
    _limit = limit_bytes // 8 * 5  # the rest is for what grows until pages are written out
    try:
        if not native.start(str(folder), _limit):
            raise ResourceError(
                f"{folder}: temporary files there stay in memory, and only files on a disk relieve "
                f"it; {ADVICE}"
            )
        for one in tuple(_mapped):  # archives are mapped when they are opened
            one.watch()
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


class ReadMapping(mmap.mmap):
    """A file mapped for reading; under a limit that is set its pages leave memory with those of
    arrays."""

    _forget: Callable[[mmap.mmap], None] | None = None

    def __new__(cls, number: int) -> Self:
        """Map the whole file with this descriptor.

        Raises:
            OSError, ValueError: it is empty, or cannot be mapped.
        """
        made = super().__new__(cls, number, 0, access=mmap.ACCESS_READ)
        _mapped.add(made)
        if _limit is not None:
            made.watch()
        return made

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


def _allocator() -> Allocator:
    found = allocator()
    if found is None:
        raise ResourceError(
            "a memory limit needs the compiled parts of traceconv, and they are not installed; "
            "install a C compiler and then traceconv again, or give no limit"
        )
    return found
