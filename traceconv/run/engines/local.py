"""Worker processes on this machine.

They are plain children that read jobs from a socket. No fork (this process may have threads) and
no import of the user's main module, which ``multiprocessing`` would run a second time.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from traceconv.core.errors import EngineError
from traceconv.run.engines import ATTEMPTS, Done, Run, Work, in_process

Report = Callable[[int, int], None]

_ADVICE = "if memory was short, pass fewer `jobs`, or `mem_limit`"


@contextmanager
def opened(workers: int, memory: int | None, threads: int = 1) -> Iterator[Run]:
    """``workers`` processes, started when there is work for them; one is this process.

    Args:
        memory:  bytes each of them may take; None for no limit.
        threads: each of them may use.
    """
    if os.name != "posix":
        yield in_process
        return
    pool = _Pool(workers, memory, threads)
    try:
        yield pool.run
    finally:
        pool.close()


class _Worker:
    """A child and the line to it. ``job`` is what it works at, None while it waits."""

    def __init__(self, memory: int | None, threads: int) -> None:
        driver_end, worker_end = socket.socketpair()
        # modules are found where this process finds them, in the current folder only if it does
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)  # noqa: PTH109
        with worker_end:
            words = [str(worker_end.fileno()), str(threads), *([str(memory)] if memory else [])]
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "traceconv.run.engines._worker", *words],
                    pass_fds=[worker_end.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path},
                    start_new_session=True,  # Ctrl-C is for the driver
                )
            except OSError as e:
                raise EngineError(f"no worker can be started: {e}; pass `jobs=1`") from e
        self.line = Connection(driver_end.detach())
        self.job: int | None = None

    def begin(self, work: Work, index: int, job: Any) -> None:
        self.job = index
        with suppress(OSError):  # the worker is dead, which receiving from it will report
            self.line.send((work, index, job))

    def why(self) -> str:
        """How it died."""
        code = self._process.wait()
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.line.close()


class _Pool:
    """Workers, each with one job at a time."""

    def __init__(self, size: int, memory: int | None, threads: int) -> None:
        self._size, self._memory, self._threads = size, memory, threads
        self._workers: list[_Worker] = []

    def run(
        self, work: Work, jobs: Sequence[Any], advance: Report = lambda i, n: None
    ) -> Iterator[Done]:
        waiting = deque(range(len(jobs)))
        begun = [0] * len(jobs)
        pending = len(jobs)
        while pending:
            while len(self._workers) < min(self._size, pending):
                self._workers.append(_Worker(self._memory, self._threads))
            for worker in self._workers:
                if worker.job is None and waiting:
                    due = waiting.popleft()
                    begun[due] += 1
                    worker.begin(work, due, jobs[due])
            ready = wait([worker.line for worker in self._workers])
            for worker in [candidate for candidate in self._workers if candidate.line in ready]:
                index = worker.job
                news = self._received(worker)
                if isinstance(news, int):
                    assert index is not None
                    advance(index, news)
                elif isinstance(news, Done):
                    worker.job, pending = None, pending - 1
                    yield news
                elif index is not None and begun[index] < ATTEMPTS:
                    waiting.appendleft(index)
                elif index is not None:
                    pending -= 1
                    yield Done(index, error=EngineError(f"its worker {news}, twice; {_ADVICE}"))

    def _received(self, worker: _Worker) -> Any:
        """The next message of a worker: progress, a result, or why it died (then it is removed).

        Raises:
            EngineError: there was a fault of traceconv, which no second attempt would mend.
        """
        try:
            received = worker.line.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            why = worker.why()
            worker.end()
            return why
        if isinstance(received, str):
            raise EngineError(f"internal error in a worker: {received}")
        return received

    def close(self) -> None:
        """End all workers at once, whatever they do."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()
