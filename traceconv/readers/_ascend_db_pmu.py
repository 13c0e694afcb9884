"""Readings of the performance counters of tasks: table TASK_PMU_INFO as arguments."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from traceconv.model import I64
from traceconv.readers._argtable import quoted
from traceconv.readers._ascend_db_export import Export


class Pmu:
    """The readings of every task; :meth:`members` gives them as JSON, batch by batch.

    Readings of tasks that are not there, and those that are NULL, are booked.
    """

    def __init__(self, export: Export, tasks: I64) -> None:
        """
        Args:
            tasks: global task ids, in the order of the rows asked for later.
        """
        wanted = {"globalTaskId": -1, "name": -1, "value": math.nan}
        rows = export.database.columns("TASK_PMU_INFO", wanted)
        known = np.isin(rows["globalTaskId"], tasks) & ~np.isnan(rows["value"])
        export.build.skip("metadata-unused", "table TASK_PMU_INFO", int((~known).sum()))
        order = np.flatnonzero(known)
        order = order[np.argsort(rows["globalTaskId"][order], kind="stable")]
        owner = rows["globalTaskId"][order]
        self._start = np.searchsorted(owner, tasks, "left")
        self._stop = np.searchsorted(owner, tasks, "right")
        self._name, self._value = rows["name"][order], rows["value"][order]
        self._keys = {
            i: b"," + quoted(export.strings.get(i, f"pmu {i}")) + b":"
            for i in np.unique(self._name).tolist()
        }

    def members(self, rows: slice) -> list[bytes]:
        """``,"key":value`` of each task's readings; ``b""`` where it has none."""
        start, count = self._start[rows], (self._stop - self._start)[rows]
        if not count.any():
            return [b""] * len(count)
        ends = np.cumsum(count)
        at = np.repeat(start - ends + count, count) + np.arange(ends[-1])
        said = [
            self._keys[name] + b"%.15g" % value
            for name, value in zip(self._name[at].tolist(), self._value[at].tolist(), strict=True)
        ]
        borders = [0, *ends.tolist()]
        return [b"".join(said[a:b]) for a, b in pairwise(borders)]
