"""The profilers' own tables, as they are: one per kind that readers find beside a timeline.

Columns have the profiler's headings; times are ns, whatever unit the file has them in. Nothing is
left out, selected or summed up, so that what ``inspect`` lists can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import NOTHING, RANK, Column, Ranked, Table
from traceconv.core.model import Trace
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import Columns, below_each_other
from traceconv.readers.shared.table_kinds import KINDS

_UNIT = lazy_regex(r"(.+)\(([^()]+)\)")
_KINDS = {"i": "int", "f": "float", "O": "text"}
_OWN_RANK = f"{RANK} (file)"
"""A column of ranks that are not numbers: texts, or some empty cells."""


def columns_of(columns: Columns) -> tuple[Column, ...]:
    """The columns of such a table, with the keys of ``columns``."""
    return tuple(_column(heading, column) for heading, column in columns.items())


def _column(heading: str, values: NDArray[Any]) -> Column:
    kind = _KINDS[values.dtype.kind]
    match = _UNIT.fullmatch(heading)
    if match and kind != "text":
        return Column(match[1], match[2], kind)
    return Column(heading, "" if kind == "text" else "1", kind)


def _facts(name: str) -> Callable[[Trace], Columns]:
    units = KINDS[name].units

    def facts(trace: Trace) -> Columns:
        table = trace.side_tables.get(name)
        if not table:
            return NOTHING
        columns = dict(table.read())
        if RANK in columns and (columns[RANK].dtype != np.int64 or (columns[RANK] < 0).any()):
            columns[_OWN_RANK] = columns.pop(RANK)
        return {_key(heading, units, column): column for heading, column in columns.items()}

    return facts


def _key(heading: str, units: Mapping[str, str], column: NDArray[Any]) -> str:
    """The heading with its unit; text has none."""
    unit = units.get(heading, "") if column.dtype != object else ""
    return f"{heading}({unit})" if unit else heading


def _of_all_ranks(ranked: Ranked) -> Columns:
    """The rows of all ranks below each other; a column that some lack is empty there."""
    sizes = [len(next(iter(facts.values()))) for _, facts in ranked]
    rank = np.repeat(np.array([rank for rank, _ in ranked], np.int64), sizes)
    return {RANK: rank, **below_each_other([facts for _, facts in ranked])}


def tables(used_names: Sequence[str]) -> tuple[Table, ...]:
    """A table per kind.

    Args:
        used_names: names that other tables have; a kind of that name is called ``<name>_file``.
    """
    return tuple(
        Table(
            f"{name}_file" if name in used_names else name,
            f"The file {name}, as the profiler wrote it",
            f"The profiler's own table, with its headings; times in ns. From {kind.files}.",
            kind.files,
            (),
            _facts(name),
            _of_all_ranks,
            capped=True,
            reads=(name,),
        )
        for name, kind in KINDS.items()
    )
