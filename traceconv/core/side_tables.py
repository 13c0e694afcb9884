"""Tables that profilers leave beside the timeline: typed columns, read when first used.

A merge needs few of them and an analysis only some, so a reader says which there are and how to
read each; the file is opened when a column is first looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.errors import Issues, PluginError

ABSENT = int(np.iinfo(np.int64).min)
"""An empty or ``N/A`` cell of an integer or time column: such columns may contain -1 and less."""

Columns = Mapping[str, NDArray[Any]]

_UNIT = re.compile(r"\((s|ms|us|ns)\)")


def unit_of(heading: str) -> str:
    """The unit of time a heading names ("us" of ``Duration(us)``), "" if none."""
    match = _UNIT.search(heading)
    return match[1] if match else ""


class SideTable:
    """One table, under the column names its profiler gave.

    A column is int64 (``ABSENT`` where a cell is empty), float64 (NaN) or object holding str
    (``""``). A column whose heading names a unit of time, as in ``Duration(us)`` or
    ``start_time(ms)``, is int64 nanoseconds, exact from the text.

    Attributes:
        name: what it is: "op_statistic", "communication".
        file: its path, as shown in messages.
        issues: what was found while reading it (rows lost, invalid times); empty until it is read.
    """

    def __init__(
        self, name: str, file: str, load: Callable[[], Columns], issues: Issues | None = None
    ) -> None:
        self.name = name
        self.file = file
        self.issues = Issues() if issues is None else issues
        self._load = load
        self._told = False

    @cached_property
    def columns(self) -> Columns:
        """The columns by heading, all of one length; reads the file the first time.

        Raises:
            TraceconvError: the file cannot be read.
        """
        return self.read()

    def read(self) -> Columns:
        """The columns, for a caller that uses them once: they are not kept. Errors as above."""
        columns = self.__dict__.get("columns") or self._load()
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError(f"{self.file}: columns differ in length")
        return columns

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``: times as ns (``Duration(us)`` becomes ``Duration(ns)``) and
        whole numbers as ``Int64``, where absent cells are ``<NA>``.

        Raises:
            PluginError: pandas is not installed.
        """
        pandas = _extra("pandas")
        return pandas.DataFrame(
            {_in_ns(h): _nullable(pandas, column) for h, column in self.columns.items()}
        )

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with the same columns; absent cells are null.

        Raises:
            PluginError: pyarrow is not installed.
        """
        arrow = _extra("pyarrow", "arrow")
        return arrow.table(
            {
                _in_ns(h): arrow.array(column, mask=column == ABSENT, from_pandas=True)
                if column.dtype == np.int64
                else arrow.array(column, arrow.string() if column.dtype == object else None)
                for h, column in self.columns.items()
            }
        )

    def account(self, into: Issues) -> None:
        """Add what was found while reading to an account; once, however often it is read."""
        if not self._told:
            into.extend(self.issues)
        self._told = True

    def __getitem__(self, heading: str) -> NDArray[Any]:
        return self.columns[heading]

    def __contains__(self, heading: str) -> bool:
        return heading in self.columns

    def __len__(self) -> int:
        return next((len(column) for column in self.columns.values()), 0)


def _extra(module: str, extra: str = "") -> Any:
    try:
        return import_module(module)
    except ImportError as e:
        raise PluginError(
            f"{module} is not installed; pip install 'traceconv[{extra or module}]'"
        ) from e


def _in_ns(heading: str) -> str:
    unit = unit_of(heading)
    return heading.replace(f"({unit})", "(ns)") if unit else heading


def _nullable(pandas: Any, column: NDArray[Any]) -> Any:
    if column.dtype != np.int64:
        return column
    absent = column == ABSENT
    return pandas.arrays.IntegerArray(np.where(absent, 0, column), absent)
