"""Workers of a Dask cluster: one that runs (its scheduler's address), or one started here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from traceconv.core.errors import EngineError
from traceconv.core.frames import extra
from traceconv.run.engines import Done, Run, Work, unwatched

_BLAME_AT_ONCE = {"distributed.scheduler.allowed-failures": 0}
"""Dask blames a death on every task its worker had, those that only waited there, too. A cluster
of our own reports each death, and :class:`_Run` finds out which job it was."""


@contextmanager
def opened(workers: int, address: str | None) -> Iterator[Run]:
    """The cluster at ``address``, or ``workers`` processes of a cluster of our own.

    Raises:
        MissingExtraError: ``distributed`` is not installed.
        EngineError: no scheduler answers.
    """
    dask = extra("distributed", "dask")
    with ExitStack() as owned:
        try:
            if address is None:
                config = importlib.import_module("dask").config
                owned.enter_context(config.set(_BLAME_AT_ONCE))
                cluster = dask.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None,
                    silence_logs="ERROR",
                )  # fmt: skip
                address = owned.enter_context(cluster)
            client = owned.enter_context(dask.Client(address, set_as_default=False, timeout="20s"))
        except (OSError, ValueError) as e:
            raise EngineError(f"no Dask scheduler at {address}: {e}") from e
        yield _Run(dask, client)


class _Run:
    """Jobs as tasks. Their progress is unknown until they are done.

    Only a job whose worker died while no other job was running has killed it. So jobs whose worker
    died are suspects: the first of them is begun again alone, then the others together.
    """

    def __init__(self, dask: Any, client: Any) -> None:
        self._dask, self._client = dask, client

    def __call__(
        self,
        work: Work,
        jobs: Sequence[Any],
        advance: Callable[[int, int], None] = lambda i, n: None,
    ) -> Iterator[Done]:
        waiting = list(range(len(jobs)))
        while waiting:
            suspects = []
            for index, done in self._run_at_once(work, jobs, waiting):
                if isinstance(done, Done):
                    yield done
                else:
                    suspects.append(index)
            # A worker takes its tasks in the order of jobs: the first suspect is the likely one.
            suspect, waiting = sorted(suspects)[:1], sorted(suspects)[1:]
            for index, done in self._run_at_once(work, jobs, suspect):
                died = f"its worker died, and again when no other job was running: {done}"
                yield done if isinstance(done, Done) else Done(index, error=EngineError(died))

    def _run_at_once(
        self, work: Work, jobs: Sequence[Any], indices: list[int]
    ) -> Iterator[tuple[int, Done | Exception]]:
        """Do the jobs with these indices, on all workers at once; by index, what came of each, or
        what Dask says of the death of its worker.
        """
        tasks = {
            self._client.submit(unwatched, work, index, jobs[index], pure=False): index
            for index in indices
        }
        for task in self._dask.as_completed(list(tasks), loop=self._client.loop):
            index = tasks.pop(task)
            try:
                done = task.result()
            except self._dask.scheduler.KilledWorker as e:
                done = e
            task.release()
            yield index, done
