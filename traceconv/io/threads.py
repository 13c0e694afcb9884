"""Threads of this process: how many the work on one rank may use, and work that is done ahead.

Inflating and deflating release the interpreter's lock. Results never depend on the number of
threads: they are taken in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TypeVar

T = TypeVar("T")

MOST = 16
"""No more are used: taking results in order is what is waited for then."""

BYTES = 64 << 20
"""Memory that each further thread needs under a limit: a few blocks of input as columns."""

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
    allowed = MOST if memory is None else max(1, memory // BYTES)
    _count = max(1, min(threads, MOST, allowed))
    try:
        yield
    finally:
        _count = before


def ahead(items: Iterable[T]) -> Generator[T]:
    """``items`` in order, made on another thread, at most two ahead of the consumer.

    With a single thread, items are made on demand. The thread has ended when the iterator is
    exhausted or closed. An error is raised in place of the item.
    """
    if _count == 1:
        yield from items
        return
    from concurrent.futures import ThreadPoolExecutor

    # numpy keeps its allocator in the context: the thread has the limit on memory
    next_item, end = partial(copy_context().run, next, iter(items)), object()
    pool = ThreadPoolExecutor(1, "traceconv-ahead")
    try:
        waiting = deque(pool.submit(next_item, end) for _ in range(2))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next_item, end))
            yield item
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
