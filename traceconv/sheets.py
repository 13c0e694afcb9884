"""Tables that profilers leave beside the timeline: typed columns, read when first asked for.

A merge needs few of them and an analysis only some, so a reader says which there are and how to
read each; the file is opened when a column is first looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

ABSENT = int(np.iinfo(np.int64).min)
"""An empty or ``N/A`` cell of an integer or time column: such columns may hold -1 and less."""

Columns = Mapping[str, NDArray[Any]]


class Sheet:
    """One table, under the column names its profiler gave.

    A column is int64 (``ABSENT`` where a cell is empty), float64 (NaN) or object holding str
    (``""``). A column whose heading names a unit of time, as in ``Duration(us)`` or
    ``start_time(ms)``, holds int64 nanoseconds, exact from the text.

    Attributes:
        name: what it is: "op_statistic", "communication".
        file: where it lies, as shown in messages.
    """

    def __init__(self, name: str, file: str, load: Callable[[], Columns]) -> None:
        self.name = name
        self.file = file
        self._load = load

    @cached_property
    def columns(self) -> Columns:
        """The columns by heading, all of one length; reads the file the first time.

        Raises:
            TraceconvError: the file cannot be read.
        """
        columns = self._load()
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError(f"{self.file}: columns differ in length")
        return columns

    def __getitem__(self, heading: str) -> NDArray[Any]:
        return self.columns[heading]

    def __contains__(self, heading: str) -> bool:
        return heading in self.columns

    def __len__(self) -> int:
        return next((len(column) for column in self.columns.values()), 0)
