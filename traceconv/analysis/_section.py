"""What the sections of a report have in common: rows of tables, and words for what is not there."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceconv.analysis._definition import RANK, Result
from traceconv.sheets import ABSENT, Columns

Section = dict[str, Any]
"""JSON values: lengths in whole ns, bytes, ranks."""


def missing(result: Result) -> Section:
    """What a section says that has no data."""
    return {"missing": f"no data: needs {result.table.needs}"}


def rows_of(result: Result, of_job: bool = False) -> Columns:
    """Rows of the ranks; or those of all together, which a single rank stands for."""
    columns = result.sheet.columns
    job = columns[RANK] == ABSENT
    keep = job if of_job and job.any() else ~job
    return {heading: column[keep] for heading, column in columns.items()}


def of_main_graph(rows: Columns, length: str) -> Columns:
    """Of every rank the graph that takes most of its time: graphs may lie within each other."""
    sums: dict[tuple[int, int], int] = {}
    keys = list(zip(rows[RANK].tolist(), rows["Graph"].tolist(), strict=True))
    for key, ns in zip(keys, rows[length].tolist(), strict=True):
        sums[key] = sums.get(key, 0) + ns
    main: dict[int, tuple[int, int]] = {}
    for (rank, graph), ns in sums.items():
        main[rank] = max(main.get(rank, (-1, 0)), (ns, -graph))
    keep = np.array([-main[rank][1] == graph for rank, graph in keys], bool)
    return {heading: column[keep] for heading, column in rows.items()}
