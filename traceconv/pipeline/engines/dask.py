"""Workers of a Dask cluster: one that runs (its scheduler's address), or one started here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from traceconv.core.errors import EngineError
from traceconv.pipeline.engines import ATTEMPTS, Done, Run, Work, attempt

_GIVE_UP = {"distributed.scheduler.allowed-failures": ATTEMPTS - 1}
"""Dask counts the failures it allows."""


@contextmanager
def opened(workers: int, address: str | None) -> Iterator[Run]:
    """The cluster at ``address``, or ``workers`` processes of a cluster of our own.

    Raises:
        EngineError: ``distributed`` is not installed, or no scheduler answers.
    """
    try:
        dask = importlib.import_module("distributed")
    except ImportError as e:
        raise EngineError("`engine=\"dask\"` needs a package: pip install 'traceconv[dask]'") from e
    with ExitStack() as owned:
        try:
            if address is None:
                config = importlib.import_module("dask").config
                owned.enter_context(config.set(_GIVE_UP))
                address = owned.enter_context(_cluster(dask, workers))
            client = owned.enter_context(dask.Client(address, set_as_default=False, timeout="20s"))
        except (OSError, ValueError) as e:
            raise EngineError(f"no Dask scheduler at {address}: {e}") from e
        yield _Run(dask, client)


def _cluster(dask: Any, workers: int) -> Any:
    """Workers of one thread each."""
    return dask.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR"
    )


class _Run:
    """Jobs as tasks. Their progress is unknown until they are done."""

    def __init__(self, dask: Any, client: Any) -> None:
        self._dask, self._client = dask, client

    def __call__(
        self,
        work: Work,
        jobs: Sequence[Any],
        advance: Callable[[int, int], None] = lambda i, n: None,
    ) -> Iterator[Done]:
        tasks = {
            self._client.submit(_attempt, work, index, job, pure=False): index
            for index, job in enumerate(jobs)
        }
        for task in self._dask.as_completed(list(tasks), loop=self._client.loop):
            index = tasks.pop(task)
            try:
                done = task.result()
            except self._dask.scheduler.KilledWorker as e:
                done = Done(index, error=EngineError(f"its workers died: {e}"))
            task.release()
            yield done


def _attempt(work: Work, index: int, job: Any) -> Done:
    return attempt(work, index, job, lambda n: None)
