"""Engines: where the work on ranks is done. One function, :func:`Run`, whatever is behind it.

A job is small, so is what comes back: events never travel through an engine. Workers leave them
in files, which are mapped where they are needed; so all of them must see the run's folder.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from typing import Any, Protocol

import msgspec

from traceconv.core.choices import unknown
from traceconv.core.errors import OptionError, TraceconvError

ATTEMPTS = 2
"""How often a job is started: if a worker dies, its job is not necessarily the cause."""

Advance = Callable[[int], None]
"""Called by a job as it proceeds, with what is done since the last call."""

Work = Callable[[Any, Advance], Any]
"""The function that does a job. It is sent to workers by name; job and result are sent by value."""


class Done(msgspec.Struct, frozen=True):
    """A job that has come to an end.

    Attributes:
        index: of the job.
        value: what the work returned; None if it failed.
        error: why it failed: as the work raised it, or :class:`EngineError` if its workers died.
    """

    index: int
    value: Any = None
    error: TraceconvError | None = None

    def result(self) -> Any:
        """The value.

        Raises:
            TraceconvError: the job failed.
        """
        if self.error is not None:
            raise self.error
        return self.value


class Run(Protocol):
    """Does ``work`` with every job, in any order, several at a time."""

    def __call__(
        self, work: Work, jobs: Sequence[Any], advance: Callable[[int, int], None] = ...
    ) -> Iterator[Done]:
        """Yield each job when it is done.

        Args:
            advance: called, where the engine can tell, with the index of a job and what of it
                is done since the last call.

        Raises:
            EngineError: the engine itself does not work.
        """
        ...


ENGINES = ("local", "dask", "ray")


def opened(
    name: str,
    workers: int,
    address: str | None,
    memory: int | None = None,
    threads: int = 1,
) -> AbstractContextManager[Run]:
    """The engine ``name``; its workers end with the context, at once if an exception ends it.

    Args:
        workers: how many; with an address, the cluster's own number counts.
        address: of a running cluster; None for workers of our own.
        memory: bytes each worker of this machine may take; None for no limit.
        threads: each worker of this machine may use.

    Raises:
        OptionError: there is no such engine, or it has no address.
        MissingExtraError: it is not installed.
        EngineError: it does not answer.
    """
    if name not in ENGINES:
        raise OptionError(unknown("engine", name, ENGINES), "engine")
    if name == "local" and address:
        raise OptionError(
            'the local engine has none; pass `engine="dask"` or `engine="ray"` with it',
            "engine_address",
        )
    if name == "local" and workers <= 1:
        return nullcontext(in_process)
    if name == "local":
        return _at_first_job(workers, memory, threads)
    module = importlib.import_module(f"traceconv.run.engines.{name}")
    return module.opened(workers, address)  # type: ignore[no-any-return]


@contextmanager
def _at_first_job(*options: int | None) -> Iterator[Run]:
    """The local engine, started by the first job: answers of the cache need no engine."""
    with ExitStack() as stack:

        @cache
        def started() -> Run:
            module = importlib.import_module("traceconv.run.engines.local")
            run: Run = stack.enter_context(module.opened(*options))
            return run

        def run(
            work: Work, jobs: Sequence[Any], advance: Callable[[int, int], None] = lambda i, n: None
        ) -> Iterator[Done]:
            return started()(work, jobs, advance) if jobs else iter(())

        yield run


def in_process(
    work: Work, jobs: Sequence[Any], advance: Callable[[int, int], None] = lambda i, n: None
) -> Iterator[Done]:
    """The simplest engine: one job after the other, here."""
    for index, job in enumerate(jobs):
        if index:
            gc.collect(0)  # as after an attempt, but not after the last one
        yield _done(work, index, job, lambda n, i=index: advance(i, n))  # type: ignore[misc]


def attempt(work: Work, index: int, job: Any, advance: Advance) -> Done:
    """Do one job; what fails for a reason we know is a result like any other."""
    try:
        return _done(work, index, job, advance)
    finally:
        gc.collect(0)  # cycles of a rank hold much memory in too few objects to start a collection


def _done(work: Work, index: int, job: Any, advance: Advance) -> Done:
    try:
        return Done(index, work(job, advance))
    except TraceconvError as e:
        return Done(index, error=e)


def unwatched(work: Work, index: int, job: Any) -> Done:
    """:func:`attempt` without progress, as clusters call it."""
    return attempt(work, index, job, lambda n: None)


def in_order(dones: Iterator[Done]) -> Iterator[Done]:
    """The results in the order of jobs, each as soon as those before it are done."""
    waiting: dict[int, Done] = {}
    due = 0
    for done in dones:
        waiting[done.index] = done
        while due in waiting:
            yield waiting.pop(due)
            due += 1


def ordered(dones: Iterator[Done]) -> Iterator[Any]:
    """The results in the order of jobs.

    Raises:
        TraceconvError: of the first job that failed.
    """
    return (done.result() for done in in_order(dones))
