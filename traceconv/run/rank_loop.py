"""The one loop over ranks: each is read by a worker, and what is made of it comes back in order.

Merging, tables, alignment, stragglers and findings differ in what is done with a rank; workers,
engines, memory, progress and what happens to a rank that cannot be read are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from traceconv.core.errors import Issues, MalformedInputError, SourceError, TraceconvError
from traceconv.core.model import Capture
from traceconv.options.groups import RunOptions
from traceconv.run import engines
from traceconv.run.executor import Executor

Failed = Callable[[Capture, TraceconvError], None]
"""Called with a rank that is left out."""


def map_ranks(
    work: engines.Work,
    captures: Sequence[Capture],
    executor: Executor,
    run: RunOptions,
    issues: Issues,
    *,
    what: str = "reading",
    failed: Failed | None = None,
) -> Iterator[tuple[Capture, Any]]:
    """Yield every capture with the result of ``work(capture, advance)``, in order.

    Args:
        work:   carried out by the workers of ``executor``, one rank in memory at a time in each.
        issues: gets a ``rank-failed`` for every rank that is left out.
        what:   what progress calls it.
        failed: called with every rank that is left out.

    Raises:
        TraceconvError: a rank cannot be read and ``run.allow_missing_ranks`` is off; or none can,
            and ``failed`` is not given.
    """
    first_error: TraceconvError | None = None
    successes = 0
    for capture, done in _outcomes(work, captures, executor, run, what):
        if done.error is None:
            successes += 1
            yield capture, done.value
            continue
        if not run.allow_missing_ranks:
            if len(captures) > 1 and isinstance(done.error, MalformedInputError | SourceError):
                advice = f"pass `allow_missing_ranks=True` to go on without rank {capture.rank}"
                done.error.args = (f"{done.error}; {advice}",)
            raise done.error
        first_error = first_error or done.error
        book_failure(issues, capture.rank, capture.title, str(done.error))
        if failed is not None:
            failed(capture, done.error)
    if first_error is not None and not successes and failed is None:
        raise first_error


def _outcomes(
    work: engines.Work,
    captures: Sequence[Capture],
    executor: Executor,
    run: RunOptions,
    what: str,
) -> Iterator[tuple[Capture, engines.Done]]:
    sizes = [stored(capture) for capture in captures]
    label = f"{what} {len(captures)} ranks" if len(captures) > 1 else what
    counted = partial(counted_progress, run.progress, sum(sizes), label)
    dones = executor.watched(work, captures, counted, sizes)
    yield from zip(captures, engines.in_order(dones), strict=True)


def counted_progress(
    progress: Callable[[int, int, str], None], total: int, label: str, n: int
) -> None:
    """Report ``n`` more of ``total``."""
    progress(n, total, label)


def stored(capture: Capture) -> int:
    """Bytes of the files a capture is read from."""
    return sum(capture.source.size(name) for name in capture.files)


def book_failure(issues: Issues, rank: int | None, where: str, reason: str) -> None:
    """Note that a rank is not in the output."""
    issues.add("rank-failed", where, reason[:300], rank=-1 if rank is None else rank)
