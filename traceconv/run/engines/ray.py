"""Workers of a Ray cluster: one that runs (its address), or one started here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from traceconv.core.errors import EngineError
from traceconv.core.frames import extra
from traceconv.run.engines import ATTEMPTS, Done, Run, Work, unwatched


@contextmanager
def opened(workers: int, address: str | None) -> Iterator[Run]:
    """The cluster at ``address``, or a local one of ``workers`` processes.

    Raises:
        MissingExtraError: ``ray`` is not installed.
        EngineError: no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = extra("ray")
    settings: dict[str, Any] = {"address": address}
    if not address:
        settings = {"address": "local", "num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **settings)
    except (OSError, ValueError, RuntimeError) as e:
        raise EngineError(f"no Ray cluster at {address or 'this machine'}: {e}") from e
    try:
        yield _Run(ray)
    finally:
        ray.shutdown()


class _Run:
    """Jobs as tasks. Their progress is unknown until they are done."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(max_retries=ATTEMPTS - 1, num_cpus=1)(unwatched)

    def __call__(
        self,
        work: Work,
        jobs: Sequence[Any],
        advance: Callable[[int, int], None] = lambda i, n: None,
    ) -> Iterator[Done]:
        tasks = {self._task.remote(work, index, job): index for index, job in enumerate(jobs)}
        while tasks:
            ready, _ = self._ray.wait(list(tasks))
            for task in ready:
                index = tasks.pop(task)
                try:
                    done = self._ray.get(task)
                except self._ray.exceptions.WorkerCrashedError as e:
                    done = Done(index, error=EngineError(f"its workers died: {e}"))
                yield done
