"""The definition of a table: its columns with units and formulas, and the source of its figures.

A :class:`Column` has a plain name and the unit of its values as data. Everything is computed and
handed out under :attr:`Column.key`, "Total Time(ns)" for int64 nanoseconds: a name in which a unit
cannot be mistaken, which is the heading that users know from text and CSV but for its unit, and
which profilers' own tables follow, too (:class:`traceconv.core.side_tables.SideTable`). Headings in
other units, "Total Time(us)", are made by :meth:`Column.heading` where values are printed in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.groups import Groups, mean, numbered, pooled, share
from traceconv.core.model import Trace
from traceconv.core.side_tables import ABSENT, Columns, DataTable

RANK = "Rank"
"""Key of the rank's column; ``ABSENT`` is all ranks together."""

NOTHING: Columns = {}
"""Facts of a rank that has no data for a table."""

Ranked = Sequence[tuple[int, Columns]]
"""The facts of one table: (rank, facts) of the ranks with data, ascending."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table: its heading and the meaning of its values.

    Attributes:
        name: plain, without a unit.
        unit: of the values: "ns", "B", "%", "GB/s" ...; "1" for plain numbers, "" for text and
            where another column of the row says it.
        kind: "int" (unknown: :data:`ABSENT`), "float" (unknown: NaN) or "text" (unknown: "").
        bracketed: whether headings name the unit; they do not where the name itself says it.
    """

    name: str
    unit: str
    kind: str
    bracketed: bool = True

    @property
    def key(self) -> str:
        """Its name in Python and in data frames: the heading in the unit of its values."""
        return self.heading(self.unit)

    def heading(self, unit: str) -> str:
        """How it is headed where its values are shown in ``unit``."""
        return (
            f"{self.name}({unit})" if self.bracketed and self.unit not in ("", "1") else self.name
        )

    @classmethod
    def text(cls, *names: str) -> tuple[Column, ...]:
        """Columns of text."""
        return tuple(cls(name, "", "text") for name in names)

    @classmethod
    def whole(cls, *names: str) -> tuple[Column, ...]:
        """Whole numbers without a unit: counts, and numbers of steps, graphs, devices."""
        return tuple(cls(name, "1", "int") for name in names)

    @classmethod
    def number(cls, *names: str) -> tuple[Column, ...]:
        """Float numbers without a unit."""
        return tuple(cls(name, "1", "float") for name in names)

    @classmethod
    def ns(cls, *names: str) -> tuple[Column, ...]:
        """Lengths of time and instants, whole ns."""
        return tuple(cls(name, "ns", "int") for name in names)

    @classmethod
    def size(cls, *names: str) -> tuple[Column, ...]:
        """Whole bytes."""
        return tuple(cls(name, "B", "int") for name in names)

    @classmethod
    def percent(cls, *names: str) -> tuple[Column, ...]:
        """Shares, 100 = all."""
        return tuple(cls(name, "%", "float") for name in names)


BYTES = Column("Bytes", "B", "int", bracketed=False)
BANDWIDTH = Column("Bandwidth", "GB/s", "float")
"""10^9 bytes per second."""


class Table(msgspec.Struct, frozen=True):
    """One table: how it is computed, and how it is described.

    Attributes:
        name:    one word, unique.
        title:   one line for people.
        formula: what each column is, in words and symbols.
        needs:   what a capture must hold for it.
        facts:   from one rank to what the table needs of it; :data:`NOTHING` if it has no data.
        build:   from the facts of all ranks to values, by :attr:`Column.key`.
        columns: in order; () where they are those of a file, known as it is read.
        capped:  many rows are usual; ``top`` applies.
        reads:   the profilers' own tables it is made of, or partly.
    """

    name: str
    title: str
    formula: str
    needs: str
    columns: tuple[Column, ...]
    facts: Callable[[Trace], Columns]
    build: Callable[[Ranked], Columns]
    capped: bool = False
    reads: tuple[str, ...] = ()


class Result(msgspec.Struct, frozen=True):
    """One table of all ranks.

    Attributes:
        table: its definition: title, formula, what it needs.
        data:  the values by :attr:`Column.key`, with their units; no columns if no rank has data.
        rows:  how many there were before ``top`` cut them.
    """

    table: Table
    data: DataTable
    rows: int


def data_of(results: Sequence[Result], name: str) -> DataTable:
    """The columns of the table of this name.

    Raises:
        KeyError: it is none of them; the message names those.
    """
    for result in results:
        if result.table.name == name:
            return result.data
    names = ", ".join(result.table.name for result in results)
    raise KeyError(f"table {name!r} does not exist; there are: {names}")


TIMED = (
    *Column.whole("Count"),
    *Column.ns("Total Time", "Min Time", "Avg Time", "Max Time"),
    *Column.percent("Ratio"),
)
"""The columns of :func:`timed`, as ``op_statistic`` calls them."""


class Keys(msgspec.Struct, frozen=True):
    """Columns that name what is counted.

    Attributes:
        names: of columns, in order; object (text) or int64.
        extra: further sums of each group, by key of their column; ``ABSENT`` where unknown.
        within: columns of the key in which ratios add up to 100; () for all of a rank.
    """

    names: tuple[str, ...]
    extra: tuple[str, ...] = ()
    within: tuple[str, ...] = ()


def stacked(ranked: Ranked) -> dict[str, NDArray[Any]]:
    """The facts of all ranks below each other, with the column :data:`RANK`."""
    if not ranked:
        return {}
    rank = np.repeat(
        np.array([r for r, _ in ranked], np.int64),
        [len(next(iter(facts.values()), ())) for _, facts in ranked],
    )
    joined = {h: np.concatenate([facts[h] for _, facts in ranked]) for h in ranked[0][1]}
    return {RANK: rank, **joined}


def joined(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Parts of one rank's facts below each other; of the columns of the first."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def with_job(ranked: Ranked, keys: Keys) -> dict[str, NDArray[Any]]:
    """The stacked facts, and below them, if the ranks are several, those of all together."""
    rows = stacked(ranked)
    if len(ranked) < 2:
        return rows
    groups = Groups.of(*(_numbers(rows[name]) for name in keys.names))
    job = {
        RANK: np.full(len(groups), ABSENT, np.int64),
        **{name: rows[name][groups.first] for name in keys.names},
        **pooled(rows, groups),
        **{name: groups.known_total(rows[name]) for name in keys.extra},
    }
    return below(rows, job)


def below(rows: Columns, more: Columns) -> dict[str, NDArray[Any]]:
    """The rows of a table, and below them those of ``more``, which has at least its columns."""
    return {name: np.concatenate((column, more[name])) for name, column in rows.items()}


def _numbers(column: NDArray[Any]) -> NDArray[Any]:
    return numbered(column) if column.dtype == object else column


def timed(ranked: Ranked, keys: Keys) -> dict[str, NDArray[Any]]:
    """Count, total, min, avg, max and ratio by key; per rank, then job-wide; largest first."""
    rows = with_job(ranked, keys)
    if not rows:
        return {}
    rows = ordered(rows, rows["total"])
    within = Groups.of(rows[RANK], *(_numbers(rows[name]) for name in keys.within))
    sums = within.spread(within.total(rows["total"]))
    return {
        RANK: rows[RANK],
        **{name: rows[name] for name in keys.names},
        "Count": rows["count"],
        "Total Time(ns)": rows["total"],
        "Min Time(ns)": rows["low"],
        "Avg Time(ns)": mean(rows["total"], rows["count"]),
        "Max Time(ns)": rows["high"],
        "Ratio(%)": share(rows["total"], sums),
        **{name: rows[name] for name in keys.extra},
        "m2": rows["m2"],
    }


def ordered(rows: Mapping[str, NDArray[Any]], value: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """By rank, the job's rows last, and within a rank by falling ``value``."""
    rank = rows[RANK]
    job_last = np.where(rank == ABSENT, np.iinfo(np.int64).max, rank)
    order = np.lexsort((-value, job_last))
    return {name: column[order] for name, column in rows.items()}


def texts(values: Sequence[str]) -> NDArray[Any]:
    """A text column."""
    column = np.empty(len(values), object)
    column[:] = values
    return column
