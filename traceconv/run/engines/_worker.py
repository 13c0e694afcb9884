"""The worker process of the local engine: it does jobs until the connection closes."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from types import TracebackType

from traceconv.io.threads import using
from traceconv.run.engines import attempt
from traceconv.scratch.memory import limited

REPORT_EVERY_S = 0.05
"""Progress is reported no more often."""

WATCH_S = 0.2


class _Progress:
    """Reports the progress of a job to the driver, not too often."""

    def __init__(self, line: Connection) -> None:
        self._line, self._unreported, self._next = line, 0, 0.0

    def __call__(self, n: int) -> None:
        self._unreported += n
        now = time.monotonic()
        if now >= self._next:
            self._line.send(self._unreported)
            self._unreported, self._next = 0, now + REPORT_EVERY_S


def main(descriptor: int, threads: int = 1, memory: int | None = None) -> None:
    """Serve the driver at the other end of the socket ``descriptor``, in ``memory`` bytes, with so
    many ``threads``.
    """
    line = Connection(descriptor)
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    sys.excepthook = lambda *error: _report_fault(line, *error)
    with limited(memory), using(threads, memory):
        while True:
            try:
                work, index, job = line.recv()
            except (EOFError, OSError):
                return
            line.send(attempt(work, index, job, _Progress(line)))


def _watch(driver: int) -> None:
    """End this process when its driver has gone, in the middle of a job, too."""
    while os.getppid() == driver:
        time.sleep(WATCH_S)
    os._exit(1)


def _report_fault(
    line: Connection, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Send a bug in traceconv to the driver, which shows it to the user."""
    line.send("".join(traceback.format_exception(kind, error, trace)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
