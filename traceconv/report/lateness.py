"""Rank by step: how far each rank is behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceconv.alignment.collective_matching import matched
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.lateness import Clocks, lateness
from traceconv.analysis.tables.definition import RANK, Result
from traceconv.core.columns import F64
from traceconv.core.side_tables import ABSENT
from traceconv.report.sections import Section, of_main_graph, rows_of

HEAT_CELLS = 4096
"""Most cells of the map; beyond, neighbouring ranks share one by their worst."""

STEPS_SHOWN = 200
"""Most columns of it; beyond, steps that follow each other share one likewise."""


def heat(every: Sequence[RankSummary], clocks: Clocks, overlap: Result) -> Section:
    """How far each rank is behind in each step, ns.

    By collectives: the most that a rank came later than the others to one collective of the step
    (the time it spent inside is compared, so clocks do not matter). Without collectives that ranks
    share: what the rank computed more than the median of all.

    Args:
        every:   the summaries of all ranks.
        overlap: the table of that name.
    """
    late = _lateness(every, clocks)
    what = "lateness"
    if not late:
        late, what = _excess(overlap), "computing"
    ranks = sorted({rank for rank, _ in late})
    steps = sorted({step for _, step in late})
    if len(ranks) < 2:
        return {"missing": "no data: needs two ranks with the same steps"}
    columns = _binned(steps, STEPS_SHOWN)
    rows = _binned(ranks, max(HEAT_CELLS // len(columns), 1))
    return {
        "what": what,
        "steps": [column[0] for column in columns],
        "steps_per_column": len(columns[0]),
        "rows": [
            {
                "ranks": row,
                "late_ns": [
                    max((late[r, s] for r in row for s in column if (r, s) in late), default=None)
                    for column in columns
                ],
            }
            for row in rows
        ],
    }


def _binned(numbers: list[int], most: int) -> list[list[int]]:
    """At most so many stretches of the numbers, of equal length but for the last."""
    each = -(-len(numbers) // most)
    return [numbers[i : i + each] for i in range(0, len(numbers), each)]


def _lateness(every: Sequence[RankSummary], clocks: Clocks) -> dict[tuple[int, int], int]:
    by_rank = {one.rank: one for one in every}
    worst: dict[tuple[int, int], int] = {}
    groups = matched([one.collectives for one in every])
    for group in lateness(groups, by_rank, clocks):
        for step in np.unique(group.step[group.step >= 0]).tolist():
            late = group.late[group.step == step]
            for rank, column in zip(group.ranks, late.T, strict=True):
                seen = column[~np.isnan(column)]
                if len(seen):
                    value = max(round(float(seen.max())), 0)
                    worst[rank, step] = max(worst.get((rank, step), 0), value)
    return worst


def _excess(overlap: Result) -> dict[tuple[int, int], int]:
    if not overlap.rows:
        return {}
    rows = rows_of(overlap)
    steps = (rows["Step"] != ABSENT) & (rows["Known(us)"] > 0)
    if not steps.any():
        return {}
    rows = of_main_graph({h: column[steps] for h, column in rows.items()}, "Known(us)")
    value: F64 = rows["Total Compute(us)"].astype(np.float64)
    found = {}
    for step in np.unique(rows["Step"]).tolist():
        mine = rows["Step"] == step
        if np.count_nonzero(mine) > 1:
            over = value[mine] - np.median(value[mine])
            for rank, more in zip(rows[RANK][mine].tolist(), over.tolist(), strict=True):
                found[rank, step] = max(round(more), 0)
    return found
