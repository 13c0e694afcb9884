"""Tables whose columns have a unit, and the side tables that profilers write.

A column's name states the unit of its values, as in ``Total Time(ns)``; ``units`` has the same as
data. Headings in other units, such as the profilers' own ``Duration(us)``, are made together with
the values when a table is printed.

A merge needs few of the profiler's tables and an analysis only some, so a reader declares which
tables there are and how to read each. The file is opened when a column is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from traceconv.core import frames
from traceconv.core.errors import Issues
from traceconv.core.frames import ABSENT, Columns
from traceconv.core.patterns import lazy_regex

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ABSENT", "Columns", "DataTable", "SideTable", "in_ns", "unit_of"]

_TIME = lazy_regex(r"\((s|ms|us|ns)\)")
_OTHER = lazy_regex(r"\((%|[kKMGT]?B(?:/s)?|[kMG]?Hz)\)")


def unit_of(heading: str) -> str:
    """The unit of time a heading names ("us" of ``Duration(us)``), "" if none."""
    match = _TIME.search(heading)
    return match[1] if match else ""


def in_ns(heading: str) -> str:
    """The heading of the same column when it holds ns: ``Duration(ns)`` of ``Duration(us)``."""
    return _TIME.sub("(ns)", heading, count=1)


class DataTable:
    """Columns of one length, by name, each with the unit of its values.

    A column is int64 (``ABSENT`` where a cell is empty), float64 (NaN) or object holding str
    (``""``). Times are int64 ns, and their names end in ``(ns)``.

    Attributes:
        name: what it is: "type", "op_statistic".
        columns: by name.
        units: of the values, by name of the column: "ns", "B", "%", "1" for plain numbers, ""
            where there is none (text) or none is known.
    """

    name: str
    columns: Columns
    units: Mapping[str, str]

    def __init__(self, name: str, columns: Columns, units: Mapping[str, str]) -> None:
        self.name = name
        self.columns = columns
        self.units = units

    def __repr__(self) -> str:
        rows, columns = len(next(iter(self.columns.values()), ())), len(self.columns)
        return f"<DataTable {self.name}: {rows:,} rows, {columns} columns>"

    def __str__(self) -> str:
        """The first rows, for people."""
        return f"{self!r}\n{frames.text(self.columns)}"

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with the same names and values: times are ns, whole numbers with
        absent cells are ``Int64`` with ``<NA>``.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return frames.to_pandas(self.columns)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with the same names and values; absent cells are null.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        return frames.to_arrow(self.columns)

    def to_polars(self) -> Any:
        """A ``polars.DataFrame`` with the same names and values; absent cells are null.

        Raises:
            MissingExtraError: polars is not installed.
        """
        return frames.to_polars(self.columns)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """The values of a column.

        Raises:
            KeyError: there is no such column; the message names the one meant, or all there are.
        """
        if column in self.columns:
            return self.columns[column]
        meant = in_ns(column)
        if meant in self.columns:
            raise KeyError(f"{self.name}: no column {column!r}; times are in ns: {meant!r}")
        raise KeyError(f"{self.name}: no column {column!r}; there are: {', '.join(self.columns)}")

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def __len__(self) -> int:
        return next((len(column) for column in self.columns.values()), 0)

    def _repr_html_(self) -> str:
        """The first rows, for notebooks."""
        return frames.html(self.name, self.columns)


class SideTable(DataTable):
    """A profiler's own side table, read when it is first used.

    Columns have the profiler's headings, except for times: whatever their unit in the file
    (``Duration(us)``, ``start_time(ms)``), they are int64 ns, exact from the text, and the name
    states that (``Duration(ns)``). :attr:`headings` has the profiler's own.

    Attributes:
        file: its path, as shown in messages.
        load: reads the columns under the profiler's headings, times already ns; not kept.
        issues: issues found while reading (lost rows, invalid times); empty until it is read.
        accounted: whether an account has them; see :meth:`account`.
    """

    def __init__(
        self, name: str, file: str, load: Callable[[], Columns], issues: Issues | None = None
    ) -> None:
        self.name = name
        self.file = file
        self.issues = Issues() if issues is None else issues
        self.load = load
        self._headings: dict[str, str] = {}
        self.accounted = False

    @cached_property
    def columns(self) -> Columns:  # type: ignore[override]  # the base has them from the start
        """The columns by name, all of one length; reads the file the first time.

        Raises:
            TraceconvError: the file cannot be read.
        """
        return self.read()

    @property
    def units(self) -> Mapping[str, str]:  # type: ignore[override]
        """The unit of the values by name, as far as headings say; reads the file as above."""
        units = {}
        for name in self.columns:
            match = _TIME.search(name) or _OTHER.search(name)
            units[name] = match[1] if match else ""
        return units

    @property
    def headings(self) -> Mapping[str, str]:
        """The profiler's heading by name of the column; reads the file as above."""
        if not self._headings:
            self.read()
        return self._headings

    def read(self) -> Columns:
        """The columns, for one who looks at them once: they are not kept. Errors as above."""
        columns_kept: Columns | None = self.__dict__.get("columns")
        if columns_kept is not None:
            return columns_kept
        loaded = self.load()
        if len({len(column) for column in loaded.values()}) > 1:
            raise ValueError(f"{self.file}: columns differ in length")
        columns, self._headings = _by_name(loaded)
        return columns

    def account(self, into: Issues) -> None:
        """Add what reading noticed to an account; once, however often it is read and asked."""
        if not self.accounted:
            into.extend(self.issues)
        self.accounted = True


def joined_tables(tables: Sequence[SideTable]) -> SideTable:
    """The rows of tables of one name, below each other; read when the result is.

    A column that one of them lacks is empty there.
    """
    issues = Issues()

    def load() -> Columns:
        loaded = [table.load() for table in tables]
        for table in tables:
            table.account(issues)
        return below_each_other(loaded)

    return SideTable(tables[0].name, ", ".join(t.file for t in tables), load, issues)


_EMPTY: Mapping[str, Any] = {"O": "", "f": float("nan"), "i": ABSENT}
"""An empty cell by the kind of a column's type, the widest kind first."""


def kinds_of(columns: Iterable[NDArray[Any]]) -> set[str]:
    """The kinds of types among columns ("i", "f", "O"), without those that have no values."""
    return {column.dtype.kind for column in columns if not _is_absent(column).all()}


def below_each_other(parts: Sequence[Columns]) -> dict[str, NDArray[Any]]:
    """The rows of tables below each other. A column that one of them lacks is empty there.

    A column has the widest type that it has in any part: text, then float, then whole numbers.
    """
    sizes = [len(next(iter(part.values()), ())) for part in parts]
    columns: dict[str, NDArray[Any]] = {}
    for heading in dict.fromkeys(heading for part in parts for heading in part):
        given = [part[heading] for part in parts if heading in part]
        kinds = kinds_of(given) or {column.dtype.kind for column in given}
        kind = next(kind for kind in _EMPTY if kind in kinds)
        columns[heading] = np.concatenate(
            [
                _as_kind(part.get(heading, np.full(size, ABSENT)), kind)
                for part, size in zip(parts, sizes, strict=True)
            ]
        )
    return columns


def _is_absent(column: NDArray[Any]) -> NDArray[np.bool_]:
    kind = column.dtype.kind
    return np.asarray(np.isnan(column) if kind == "f" else column == _EMPTY[kind], bool)


def _as_kind(column: NDArray[Any], kind: str) -> NDArray[Any]:
    """A column as a wider type, or as any if it has no values."""
    if column.dtype.kind == kind:
        return column
    absent = _is_absent(column)
    wider = np.full(len(column), _EMPTY[kind], object if kind == "O" else f"{kind}8")
    present = column[~absent]
    wider[~absent] = list(map(str, present.tolist())) if kind == "O" else present
    return wider


def _by_name(loaded: Columns) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The columns by name, and the heading each had.

    Headings that differ in their unit only, in parts of a file that give times in ms and in us,
    are one column; where a row has both, the later column gets a number.
    """
    columns: dict[str, NDArray[Any]] = {}
    headings: dict[str, str] = {}
    for heading, column in loaded.items():
        name, number = in_ns(heading), 2
        if name in columns and not ((columns[name] != ABSENT) & (column != ABSENT)).any():
            columns[name] = np.where(columns[name] == ABSENT, column, columns[name])
            continue
        while name in columns:
            name, number = f"{in_ns(heading)} ({number})", number + 1
        columns[name], headings[name] = column, heading
    return columns, headings
