"""Threads of this process: how many the work on one rank may use, and work that is done ahead.

What takes most of the time (scanning, encoding, inflating, deflating) releases the interpreter's
lock. Results never depend on the number of threads: they are taken in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

MOST = 16
"""No more are used: taking results in order is what is waited for then."""

BYTES = 64 << 20
"""Memory under a limit that allows one more thread: what a few blocks of input take as columns."""

_count = 1


def count() -> int:
    """How many threads the work on a rank may use in this process."""
    return _count


@contextmanager
def using(threads: int, memory: int | None = None) -> Iterator[None]:
    """Work on a rank may use ``threads`` threads inside, :data:`MOST` at most.

    Args:
        memory: bytes the process may take, which allow one thread per :data:`BYTES`.
    """
    global _count
    before = _count
    most = MOST if memory is None else max(1, memory // BYTES)
    _count = max(1, min(threads, MOST, most))
    try:
        yield
    finally:
        _count = before


def ahead(items: Iterable[T]) -> Generator[T]:
    """``items`` in order, made on another thread, at most two of them before they are asked
    for; made when they are asked for if there is but one thread.

    The thread has ended when the iterator is exhausted or closed. An error is raised where the
    item would have been.
    """
    return _ahead(items) if _count > 1 else (item for item in items)


_END = object()


def _ahead(items: Iterable[T]) -> Generator[T]:
    from concurrent.futures import ThreadPoolExecutor

    left = iter(items)
    pool = ThreadPoolExecutor(1, "traceconv-ahead")

    def one() -> T | object:
        return next(left, _END)

    def due() -> Future[T | object]:
        # in this context, for numpy keeps its allocator there: threads have the limit on memory
        return pool.submit(copy_context().run, one)

    try:
        waiting = deque(due() for _ in range(2))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(due())
            yield cast(T, item)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
