"""Where the ranks of one run are worked on: workers, a folder they share, and how far they are."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from traceconv.core.errors import EngineError, OutputError
from traceconv.io.memory import LOWEST, limited
from traceconv.io.temporary import ADVICE, temporary_folder
from traceconv.pipeline import engines

# The folder in which one run keeps what its ranks leave for each other.
#
# It is private to the user, goes when the run ends, however it ends, and holds a lock while the run
# lives: what a killed run has left is found by its free lock, and removed by the next one.

PREFIX = "traceconv-run-"

_LOCK = "lock"


@contextmanager
def run_folder() -> Iterator[Path]:
    """A new private folder below the temporary one; it is gone afterwards.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        parent = temporary_folder()
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).absolute()
    except OSError as e:
        raise OutputError(
            f"{e.filename or 'temporary files'}: no temporary folder can be made there: "
            f"{e.strerror or e}; {ADVICE}"
        ) from e
    try:
        with (folder / _LOCK).open("xb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _sweep(parent, folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path, own: Path) -> None:
    """Remove the folders of runs that are no more."""
    for folder in parent.glob(f"{PREFIX}*"):
        if folder != own and _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    """Whether a folder is ours and nobody holds its lock. One without a lock is being made."""
    with suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with (folder / _LOCK).open("rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


MOST_WORKERS = 32
"""Unless asked for, no more: beyond, disks are what is waited for."""

SMALL_RUN_BYTES = 128 << 20
"""Input that is read sooner than workers are started."""

WORKER_BYTES = 128 << 20
"""Memory a worker takes besides its rank ..."""

RANK_FACTOR = 2
"""... and a rank, per byte of its files."""

Progress = Callable[[int, int, str], None]


Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Executor:
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
        """Each job when it is done. ``progress`` hears of every byte once, whatever engines tell.

        Args:
            sizes: bytes of the jobs; None if only their results know (as ``content``).
        """
        told = [0] * len(jobs)

        def advance(index: int, n: int) -> None:
            n = min(n, sizes[index] - told[index]) if sizes else n
            told[index] += n
            progress(n)

        for done in self.run(work, jobs, advance):
            size = sizes[done.index] if sizes else done.value.content if done.value else 0
            progress(max(0, size - told[done.index]))
            yield done


def _plainly(work: Callable[[Any], Any], job: Any, advance: engines.Advance) -> Any:
    return work(job)


@contextmanager
def open_executor(
    workers: int, engine: str, address: str | None, memory: int | None = None
) -> Iterator[Executor]:
    """A folder and ``workers`` to go with it; both are gone afterwards.

    Args:
        memory: bytes this process and its workers may take together; None for no limit. Workers
            of other engines have limits of their own.

    Raises:
        EngineError: the workers cannot be had.
        OutputError: the folder cannot be made.
        ResourceError: the limit on memory cannot be kept.
    """
    parallel = workers > 1 or engine != "local"
    shares = workers + 1 if workers > 1 and engine == "local" else 1
    share = None if memory is None else memory // shares
    with (
        limited(share),
        run_folder() as folder,
        engines.opened(engine, workers, address, share) as run,
    ):
        yield Executor(run, folder, parallel)


def worker_count(jobs: int | None, sizes: Sequence[int], memory: int | None = None) -> int:
    """How many workers suit ranks whose files have ``sizes`` bytes.

    Args:
        memory: bytes they may take together; None for no limit.
        jobs: what the user asks for; None for ``TRACECONV_JOBS``, and without it for as many as
            there are processors and memory for.

    Raises:
        EngineError: it is no positive number.
    """
    asked = jobs if jobs is not None else _asked_by_environment()
    if asked is not None:
        if asked < 1:
            raise EngineError(f"{asked} workers do nothing; say --jobs 1 or more")
        return min(asked, max(len(sizes), 1))
    if sum(sizes) < SMALL_RUN_BYTES:
        return 1
    by_memory = _free_bytes() // (WORKER_BYTES + RANK_FACTOR * max(sizes))
    if memory is not None:  # this process has a share, too
        by_memory = memory // LOWEST - 1
    return max(1, min(_processors(), len(sizes), MOST_WORKERS, by_memory))


def _asked_by_environment() -> int | None:
    text = os.environ.get("TRACECONV_JOBS", "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as e:
        raise EngineError(f"TRACECONV_JOBS={text!r} is not a number of workers") from e


def _processors() -> int:
    """Those this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _free_bytes() -> int:
    """Memory that is free or can be made free."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return 2**62
    found = [line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable:")]
    return int(found[0]) << 10 if found else 2**62
