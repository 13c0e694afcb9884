"""Threads of this process: how many the work on one rank may use, and work that is done ahead.

What takes most of the time (scanning, encoding, inflating, deflating) releases the interpreter's
lock. Results never depend on the number of threads: they are taken in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

if TYPE_CHECKING:
    from concurrent.futures import Future

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
    most = MOST if memory is None else max(1, memory // BYTES)
    _count = max(1, min(threads, MOST, most))
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
    left, end = iter(items), object()
    with Workers(1, "traceconv-ahead") as one:
        waiting = deque(one.submit(next, left, end) for _ in range(2))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(one.submit(next, left, end))
            yield cast(T, item)


class Workers:
    """Threads that work in this context. At the end, what has not begun is given up.

    Args:
        threads: how many.
        name:    of the threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(threads, name)

    def submit(self, call: Callable[..., T], *given: Any) -> Future[T]:
        """What ``call(*given)`` will return."""
        # numpy keeps its allocator in the context: threads have the limit on memory
        return self._pool.submit(copy_context().run, call, *given)

    def task(self, call: Callable[..., T], *given: Any) -> Task[T]:
        """The same, for :func:`first`."""
        return Task(call, given, self.submit(call, *given))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class Task(Generic[T]):
    """A call of one of several threads, or of the thread that waits for it; see :func:`first`."""

    def __init__(self, call: Callable[..., T], given: tuple[Any, ...], future: Future[T]) -> None:
        self._call, self._given, self._future = call, given, future

    def done(self) -> bool:
        """Whether it has ended."""
        return self._future.done()

    def cancel(self) -> None:
        """Give it up, if it has not begun."""
        self._future.cancel()

    def here(self) -> None:
        """Make the call on this thread, if it has not begun; an error is kept for the result."""
        if self._future.cancel():
            self._future = type(self._future)()
            try:
                self._future.set_result(self._call(*self._given))
            except Exception as error:  # noqa: BLE001 - raised again by result()
                self._future.set_exception(error)

    def result(self) -> T:
        """The return value of the call."""
        return self._future.result()


def first(tasks: Sequence[Task[T]]) -> T:
    """The result of the first task.

    Until it is ready, this thread runs tasks that have not started. An additional thread would take
    the processor from threads that wait for the interpreter's lock while others depend on them.
    """
    for task in tasks:
        task.here()
        if tasks[0].done():
            break
    return tasks[0].result()
