"""What a table is: its columns, the formula of each, where its figures come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.groups import Groups, mean, numbered, pooled, share
from traceconv.core.model import Trace
from traceconv.core.side_tables import ABSENT, Columns, SideTable

RANK = "Rank"
"""Heading of the rank; ``ABSENT`` stands for all ranks together."""

NOTHING: Columns = {}
"""Facts of a rank that has no data for a table."""

Ranked = Sequence[tuple[int, Columns]]
"""What the ranks with data know of one table: (rank, its facts), ascending."""


@dataclass(frozen=True)
class Table:
    """One table: how it is computed, and what is said about it.

    Attributes:
        name:    one word, unique.
        title:   one line for people.
        formula: what each column is, in words and symbols.
        needs:   what a capture must hold for it.
        facts:   from one rank to what the table needs of it; :data:`NOTHING` if it has no data.
        build:   from the facts of all ranks to columns, by heading.
        headings: every heading, in order, with its type: "int", "text" or "float". A time is an
            "int" (ns) whose heading names a unit.
        capped:  many rows are usual; ``top`` applies.
    """

    name: str
    title: str
    formula: str
    needs: str
    headings: Mapping[str, str]
    facts: Callable[[Trace], Columns]
    build: Callable[[Ranked], Columns]
    capped: bool = False


@dataclass(frozen=True)
class Result:
    """One table of all ranks.

    Attributes:
        table: its definition: title, formula, what it needs.
        side table: its columns. Times are int64 ns though a heading says "(us)"; empty if no rank
            has data.
        rows:  how many there were before ``top`` cut them.
    """

    table: Table
    side_table: SideTable
    rows: int


TIMED = {
    "Count": "int",
    "Total Time(us)": "int",
    "Min Time(us)": "int",
    "Avg Time(us)": "int",
    "Max Time(us)": "int",
    "Ratio(%)": "float",
}
"""The headings of :func:`timed`, as ``op_statistic`` calls them."""


@dataclass(frozen=True)
class Keys:
    """Columns that name what is counted.

    Attributes:
        names: headings, in order; object (text) or int64.
        extra: further sums that travel with each group, by heading.
        within: headings of the key in which ratios add up to 100; () for all of a rank.
    """

    names: tuple[str, ...]
    extra: tuple[str, ...] = ()
    within: tuple[str, ...] = ()


def stacked(ranked: Ranked) -> dict[str, NDArray[Any]]:
    """The facts of all ranks below each other, with the column :data:`RANK`."""
    if not ranked:
        return {}
    rank = np.repeat(
        np.array([r for r, _ in ranked], np.int64), [_length(facts) for _, facts in ranked]
    )
    joined = {h: np.concatenate([facts[h] for _, facts in ranked]) for h in ranked[0][1]}
    return {RANK: rank, **joined}


def _length(columns: Columns) -> int:
    return next((len(c) for c in columns.values()), 0)


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
        **{name: groups.total(rows[name]) for name in keys.extra},
    }
    return {name: np.concatenate((column, job[name])) for name, column in rows.items()}


def _numbers(column: NDArray[Any]) -> NDArray[Any]:
    return numbered(column) if column.dtype == object else column


def timed(ranked: Ranked, keys: Keys) -> dict[str, NDArray[Any]]:
    """Count, total, min, avg, max and ratio by key; per rank, then job-wide; largest first."""
    rows = with_job(ranked, keys)
    if not rows:
        return {}
    rows = ordered(rows, rows["total"])
    within = Groups.of(rows[RANK], *(_numbers(rows[name]) for name in keys.within))
    whole = within.spread(within.total(rows["total"]))
    return {
        RANK: rows[RANK],
        **{name: rows[name] for name in keys.names},
        "Count": rows["count"],
        "Total Time(us)": rows["total"],
        "Min Time(us)": rows["low"],
        "Avg Time(us)": mean(rows["total"], rows["count"]),
        "Max Time(us)": rows["high"],
        "Ratio(%)": share(rows["total"], whole),
        **{name: rows[name] for name in keys.extra},
        "m2": rows["m2"],
    }


def ordered(rows: Mapping[str, NDArray[Any]], value: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """By rank, the job's rows last, and within a rank by falling ``value``."""
    rank = rows[RANK]
    last = np.where(rank == ABSENT, np.iinfo(np.int64).max, rank)
    order = np.lexsort((-value, last))
    return {name: column[order] for name, column in rows.items()}


def texts(values: Sequence[str]) -> NDArray[Any]:
    """A text column."""
    column = np.empty(len(values), object)
    column[:] = values
    return column
