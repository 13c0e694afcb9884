"""What every verb that reads ranks is given: how they are found and read, and who does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from traceconv.api import options
from traceconv.api.open import Captures
from traceconv.api.open import open as find
from traceconv.core.choices import unknown
from traceconv.run.settings import EngineName, RunOptions
from traceconv.writers.output import Progress

if TYPE_CHECKING:
    from traceconv.run.summaries import Ranks


class RankArguments(TypedDict, total=False):
    """Arguments by keyword of every verb that reads ranks, as of :func:`traceconv.merge`."""

    rank_from: str
    reader: str | None
    mapping: options.AnyPath | None
    nsys: options.AnyPath | None
    comm_patterns: options.Names
    allow_missing_ranks: bool
    jobs: int | None
    mem_limit: options.Size | None
    engine: EngineName
    engine_address: str | None
    progress: Progress


class FoundBy(TypedDict):
    """Arguments of :func:`traceconv.open`."""

    rank_from: str
    reader: str | None
    mapping: options.AnyPath | None
    nsys: options.AnyPath | None


@dataclass(frozen=True)
class Asked:
    """These arguments, checked.

    Attributes:
        found_by: how captures are found.
        comm_patterns: words in names of kernels that communicate.
        run:      who does the work.
    """

    found_by: FoundBy
    comm_patterns: tuple[str, ...]
    run: RunOptions

    def captures(
        self, *paths: options.Paths, ranks: options.Ranks | Sequence[int] | None = None
    ) -> Captures:
        """Those below ``paths`` of some ranks; None for all."""
        return find(*paths, **self.found_by).ranks(ranks, self.run.allow_missing_ranks)

    @contextmanager
    def opened(self, *paths: options.Paths, ranks: options.Ranks | None) -> Iterator[Ranks]:
        """The same with workers for as long as the context lasts."""
        from traceconv.run.summaries import analysed  # convert does not need it

        captures = self.captures(*paths, ranks=ranks)
        with analysed(captures.found, captures.issues, self.run) as every:
            yield every


def asked(given: RankArguments) -> Asked:
    """Arguments, checked.

    Raises:
        OptionError: one of them is not understood.
        TypeError: there is no such argument.
    """
    for name in given.keys() - RankArguments.__annotations__.keys():
        raise TypeError(unknown("argument", name, RankArguments.__annotations__))
    return Asked(
        {
            "rank_from": given.get("rank_from", "meta"),
            "reader": given.get("reader"),
            "mapping": given.get("mapping"),
            "nsys": given.get("nsys"),
        },
        options.words(given.get("comm_patterns"), "comm_patterns") or (),
        options.run_options(
            given.get("jobs"),
            given.get("mem_limit"),
            given.get("engine", "local"),
            given.get("engine_address"),
            given.get("allow_missing_ranks", False),
            given.get("progress"),
        ),
    )
