"""Launch arrows, from calls to what they made the device do, by their correlation numbers.

The profiler also marks both ends of every launch (``ac2g``). Marks are bound by time, and in files
that count whole microseconds two calls may begin at once; a call that launches nothing carries the
mark of an end, and all but the first kernel of a replayed graph one whose start is not there. The
numbers have none of this, and are in filtered files, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I32
from traceconv.readers._traceevents import Incoming


@dataclass
class Launches:
    """Collects the numbers of calls and tasks of one file, then draws the arrows.

    Attributes:
        tasks_seen: what a device did, with or without a number.
    """

    build: TraceBuilder
    tasks_seen: int = 0
    _calls: list[tuple[I32, I32]] = field(default_factory=list)  # (number, row) each
    _tasks: list[tuple[I32, I32]] = field(default_factory=list)

    def note(self, rows: Incoming, calls: NDArray[np.bool_], tasks: NDArray[np.bool_]) -> None:
        """Take in a batch of rows whose graph probe is the correlation number."""
        self.tasks_seen += int(tasks.sum())
        for which, kept in ((calls, self._calls), (tasks, self._tasks)):
            at = np.flatnonzero(which & (rows.graph > 0)).astype(np.int32)
            if len(at):
                kept.append((rows.graph[at], at + np.int32(rows.first)))

    @property
    def numbered(self) -> bool:
        """Whether arrows can be drawn by number; also if there is nothing to draw."""
        return bool(self._tasks) or not self.tasks_seen

    def draw(self) -> None:
        """Add the arrows; a task whose call is not in the file is booked."""
        number, task = _joined(self._tasks)
        if not len(task):
            return
        called, call = _joined(self._calls)
        order = np.argsort(called, kind="stable")
        called, call = called[order], call[order]
        at = np.minimum(np.searchsorted(called, number), max(len(called) - 1, 0))
        found = called[at] == number if len(called) else np.zeros(len(number), bool)
        self.build.seen("flow", len(task))
        missing = int((~found).sum())
        self.build.skip("flow-unbound", "no launching call", missing, "flow")
        name = self.build.string("launch")
        self.build.flows(src=call[at[found]], dst=task[found], name=name)


def _joined(parts: list[tuple[I32, I32]]) -> tuple[I32, I32]:
    none = np.empty(0, np.int32)
    numbers, rows = zip(*parts, strict=True) if parts else ([none], [none])
    return np.concatenate(numbers), np.concatenate(rows)
