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
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import I64
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
        of_all: of a column of ranks, what text has in rows of all ranks.
    """

    name: str
    unit: str
    kind: str
    bracketed: bool = True
    of_all: str = ""

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
    def parse(cls, headings: str) -> tuple[Column, ...]:
        """The columns with these keys, separated by commas: "Rank, Stream:text, Total Time(ns)".

        Without a unit they are whole numbers, in ns or B whole, in other units float numbers. After
        a colon is ``text``, ``float`` (a number without a unit), or a unit that the heading leaves
        out, "Bytes:B"; nothing is a float number in the unit that another column of the row says.
        """
        return tuple(map(cls._of, headings.split(", ")))

    @classmethod
    def _of(cls, heading: str) -> Column:
        name, colon, unit = heading.partition(":")
        if colon and unit in ("text", "float", ""):
            return cls(name, "1" if unit == "float" else "", unit or "float")
        if name.endswith(")"):
            name, _, unit = name[:-1].rpartition("(")
        number = "int" if unit in ("", "ns", "B") else "float"
        return cls(name, unit or "1", number, not colon, "all" if name == RANK else "")


TIMED = "Count, Total Time(ns), Min Time(ns), Avg Time(ns), Max Time(ns), Ratio(%)"
"""The columns of :func:`timed`, as ``op_statistic`` calls them."""


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


def with_job(ranked: Ranked) -> dict[str, NDArray[Any]]:
    """The stacked facts, and below them, if the ranks are several, those of all together.

    Facts before the :data:`~traceconv.analysis.tables.groups.Measures` name what is counted; those
    after them are further sums, ``ABSENT`` where unknown.
    """
    rows = stacked(ranked)
    if len(ranked) < 2:
        return rows
    names, extra = _names_and_sums(ranked)
    groups = Groups.of(*(_numbers(rows[name]) for name in names))
    job = {
        **{name: rows[name][groups.first] for name in names},
        **pooled(rows, groups),
        **{name: groups.known_total(rows[name]) for name in extra},
    }
    return below(rows, job)


def _names_and_sums(ranked: Ranked) -> tuple[list[str], list[str]]:
    facts = list(ranked[0][1])
    return facts[: facts.index("count")], facts[facts.index("m2") + 1 :]


def below(rows: Columns, more: Columns) -> dict[str, NDArray[Any]]:
    """The rows of a table, and below them those of ``more``; of all ranks together unless it says
    of which."""
    if RANK in rows and RANK not in more:
        more = {**more, RANK: np.full(len(next(iter(more.values()))), ABSENT)}
    return {name: np.concatenate((column, more[name])) for name, column in rows.items()}


def _numbers(column: NDArray[Any] | Texts) -> NDArray[Any]:
    if isinstance(column, Texts):
        return column.numbers()
    return numbered(column) if column.dtype == object else column


def timed(ranked: Ranked, within: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Count, total, min, avg, max and ratio of the measured facts; per rank, then job-wide; largest
    first.

    Args:
        within: names of facts in which ratios add up to 100; () for all of a rank.
    """
    rows = with_job(ranked)
    names, extra = _names_and_sums(ranked)
    rows = ordered(rows, -rows["total"])
    parts = Groups.of(rows[RANK], *(_numbers(rows[name]) for name in within))
    return {
        RANK: rows[RANK],
        **{name: rows[name] for name in names},
        "Count": rows["count"],
        "Total Time(ns)": rows["total"],
        "Min Time(ns)": rows["low"],
        "Avg Time(ns)": mean(rows["total"], rows["count"]),
        "Max Time(ns)": rows["high"],
        "Ratio(%)": share(rows["total"], parts.spread(parts.total(rows["total"]))),
        **{name: rows[name] for name in extra},
        "m2": rows["m2"],
    }


def grouped(ns: I64, keys: Mapping[str, Any], **sums: I64) -> dict[str, NDArray[Any]]:
    """Facts of rows with equal keys together: the keys, measures of ``ns``, and further sums.

    Args:
        keys: by name; :class:`Texts` or arrays.
    """
    groups = Groups.of(*map(_numbers, keys.values()))
    columns = ((name, key[groups.first]) for name, key in keys.items())
    return {
        **{name: key.column() if isinstance(key, Texts) else key for name, key in columns},
        **groups.measured(ns),
        **{name: groups.known_total(value) for name, value in sums.items()},
    }


def of_ranks(ranked: Ranked) -> dict[str, NDArray[Any]]:
    """The facts of all ranks: :func:`timed` if they are measured, else :func:`stacked`."""
    return timed(ranked) if ranked and "m2" in ranked[0][1] else stacked(ranked)


def ordered(rows: Mapping[str, NDArray[Any]], *keys: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """By rank, the job's rows last, and within a rank by rising ``keys``, the first one first."""
    rank = rows[RANK]
    job_last = np.where(rank == ABSENT, np.iinfo(np.int64).max, rank)
    order = np.lexsort((*reversed(keys), job_last))
    return {name: column[order] for name, column in rows.items()}


def texts(values: Sequence[str]) -> NDArray[Any]:
    """A text column."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


class Table(msgspec.Struct, frozen=True):
    """One table: how it is computed, and how it is described.

    Attributes:
        name:    one word, unique.
        title:   one line for people.
        formula: what each column is, in words and symbols.
        needs:   the data that a capture must have for it.
        facts:   from one rank to what the table needs of it; :data:`NOTHING` if it has no data.
        build:   from the facts of all ranks to values, by :attr:`Column.key`;
                 without one, :func:`of_ranks`.
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
    build: Callable[[Ranked], Columns] = of_ranks
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
