"""Who works on the ranks of one run: workers, a folder they share, and how far they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from traceconv.core.errors import OptionError, ResourceError
from traceconv.io.threads import using
from traceconv.options.groups import RunOptions
from traceconv.run import engines
from traceconv.scratch.memory import LOWEST, limited
from traceconv.scratch.temporary import TemporaryFolder, making, sweep, temporary_folder


@contextmanager
def run_folder() -> Iterator[Path]:
    """A new private folder in the temporary folder, for the files that the workers of a run share.

    It is locked during the run and removed at its end. The next run recognises the folder of a
    killed run by its free lock, and removes it.

    Raises:
        OutputError: it cannot be created.
    """
    with making():
        folder = TemporaryFolder()
        sweep(temporary_folder())
    with folder as name:
        yield Path(name).absolute()


MOST_WORKERS = 32
"""Unless asked for, no more: beyond, disks are what is waited for."""

SMALL_RUN_BYTES = 128 << 20
"""Input that is read sooner than workers are started."""

WORKER_BYTES = 128 << 20
"""Memory a worker takes besides its rank ..."""

RANK_FACTOR = 2
"""... and a rank, per byte of its files."""


Job = TypeVar("Job")
Result = TypeVar("Result")


class Executor(msgspec.Struct, frozen=True):
    """Workers and a folder.

    Attributes:
        run:      the engine.
        folder:   for what workers leave for each other.
        parallel: whether work is done elsewhere than in this process.
    """

    run: engines.Run
    folder: Path
    parallel: bool

    def each(self, work: Callable[[Job], Result], jobs: Sequence[Job], /) -> Iterator[Result]:
        """The results of ``work(job)``, in order.

        Raises:
            TraceconvError: of the first job that fails.
        """
        if not self.parallel:
            return map(work, jobs)
        return engines.ordered(self.run(partial(_plainly, work), jobs))

    def watched(
        self,
        work: engines.Work,
        jobs: Sequence[Any],
        progress: Callable[[int], None],
        sizes: Sequence[int] | None = None,
    ) -> Iterator[engines.Done]:
        """Each job when it is done. ``progress`` gets every byte once, whatever engines report.

        Args:
            sizes: bytes of the jobs; None if only their results know (as ``content``).
        """
        reported = [0] * len(jobs)

        def advance(index: int, n: int) -> None:
            n = min(n, sizes[index] - reported[index]) if sizes else n
            reported[index] += n
            progress(n)

        for done in self.run(work, jobs, advance):
            size = sizes[done.index] if sizes else done.value.content if done.value else 0
            progress(max(0, size - reported[done.index]))
            yield done


def _plainly(work: Callable[[Any], Any], job: Any, advance: engines.Advance) -> Any:
    return work(job)


@contextmanager
def started(run: RunOptions, sizes: Sequence[int], shared: bool = True) -> Iterator[Executor]:
    """Start workers for ranks whose files have ``sizes`` bytes; they end with the context.

    The memory limit applies to this process and its workers together; other engines limit the
    memory of their workers themselves.

    Args:
        shared: whether workers can open the input, too; otherwise this process does all the work.

    Raises:
        EngineError: the workers cannot be started.
        OutputError: the folder cannot be created.
        ResourceError: the memory limit cannot be kept.
    """
    engine, address = (run.engine, run.engine_address) if shared else ("local", None)
    workers = worker_count(run.jobs if shared else 1, sizes, run.mem_limit)
    parallel = workers > 1 or engine != "local"
    shares = workers + 1 if workers > 1 and engine == "local" else 1
    share = None if run.mem_limit is None else run.mem_limit // shares
    if run.mem_limit is not None and share is not None and share < LOWEST <= run.mem_limit:
        raise ResourceError(
            f"a memory limit of {run.mem_limit >> 20}M is too small for {workers} workers and the "
            f"process that starts them: give {LOWEST * shares >> 20}M or more, or fewer jobs"
        )
    threads = thread_count(run.jobs, workers) if engine == "local" else 1
    with (
        limited(share),
        using(threads, share),
        run_folder() as folder,
        engines.opened(engine, workers, address, share, threads) as pool,
    ):
        yield Executor(pool, folder, parallel)


def worker_count(jobs: int | None, sizes: Sequence[int], memory: int | None = None) -> int:
    """How many workers suit ranks whose files have ``sizes`` bytes.

    Args:
        memory: bytes they may take together; None for no limit.
        jobs: what the user asks for; None for ``TRACECONV_JOBS``, and without it for as many as
            there are processors and memory for.

    Raises:
        OptionError: it is no positive number.
    """
    requested = jobs if jobs is not None else _requested_by_environment()
    if requested is not None:
        if requested < 1:
            raise OptionError(f"{requested} workers: pass 1 or more", "jobs")
        return min(requested, max(len(sizes), 1))
    if sum(sizes) < SMALL_RUN_BYTES:
        return 1
    by_memory = _free_bytes() // (WORKER_BYTES + RANK_FACTOR * max(sizes))
    if memory is not None:  # this process has a share, too
        by_memory = memory // LOWEST - 1
    return max(1, min(_processors(), len(sizes), MOST_WORKERS, by_memory))


def thread_count(jobs: int | None, workers: int) -> int:
    """How many threads each of ``workers`` processes may use for its rank.

    Args:
        jobs: as :func:`worker_count`: processes and threads of all together.

    Raises:
        OptionError: as there.
    """
    requested = jobs if jobs is not None else _requested_by_environment()
    return max(1, (_processors() if requested is None else requested) // workers)


def _requested_by_environment() -> int | None:
    text = os.environ.get("TRACECONV_JOBS", "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as e:
        raise OptionError(f"TRACECONV_JOBS={text!r} is not a number of workers") from e


def _processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _free_bytes() -> int:
    """Memory that is free or can be made free."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return 2**62
    amounts = [line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable:")]
    return int(amounts[0]) << 10 if amounts else 2**62
