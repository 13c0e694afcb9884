"""Which events have names of some kind, asked of each name once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from traceconv.core.columns import Mask, looked_up

if TYPE_CHECKING:
    from traceconv.core.model import Trace


class NameTest:
    """A cached test of names. Ranks of a job have most names in common.

    Args:
        test: its result is used as a bool. It must depend on the name only.
    """

    def __init__(self, test: Callable[[str], object]) -> None:
        self._said = _Results(test)

    def each(self, names: Iterable[str]) -> list[bool]:
        """The result for each name."""
        return list(map(self._said.__getitem__, names))


def rows_named(trace: Trace, test: NameTest) -> Mask:
    """Mask of the event rows whose name passes a test."""
    passing = test.each(trace.strings)
    if True not in passing:
        return np.zeros(len(trace.events), bool)
    rows: Mask = looked_up(np.array(passing, bool), trace.events.name)
    return rows


class _Results(dict[str, bool]):
    """The results of a test by name; those of up to ``MOST`` short names are kept."""

    MOST, LONGEST = 4096, 200

    def __init__(self, test: Callable[[str], object]) -> None:
        super().__init__()
        self._test = test

    def __missing__(self, name: str) -> bool:
        passes = bool(self._test(name))
        if len(self) < self.MOST and len(name) <= self.LONGEST:
            self[name] = passes
        return passes
