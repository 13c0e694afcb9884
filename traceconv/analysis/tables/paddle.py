"""Paddle's own printed summary as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceconv.analysis.tables.definition import NOTHING, RANK, Table, stacked
from traceconv.analysis.tables.vendor import floats, named, numbers
from traceconv.core.model import Trace
from traceconv.core.side_tables import ABSENT, Columns

_TIMES = {
    f"{side} {part}(us)": f"{side} {part}(ms)"
    for side in ("CPU", "GPU")
    for part in ("Total", "Avg", "Max", "Min")
}
"""Times are ns, whatever the unit in the headings."""

_ALIKE = {"CPU Total(us)": "CPU Time(ms)", "GPU Total(us)": "GPU Time(ms)"}
"""The overview gives one time under a heading of its own."""


def _facts(trace: Trace) -> Columns:
    side_table = trace.side_tables.get("paddle_summary")
    if side_table is None or not len(side_table):
        return NOTHING
    times = {ours: numbers(side_table, theirs) for ours, theirs in _TIMES.items()}
    for ours, theirs in _ALIKE.items():
        times[ours] = np.where(times[ours] == ABSENT, numbers(side_table, theirs), times[ours])
    ratios = {f"{side} Ratio(%)": floats(side_table, f"{side} Ratio(%)")
              for side in ("CPU", "GPU")}  # fmt: skip
    share = floats(side_table, "Ratio(%)")
    told = np.where(np.isnan(ratios["CPU Ratio(%)"]), share, ratios["CPU Ratio(%)"])
    return {
        "Section": named(side_table, "Section"),
        "Level": numbers(side_table, "Level"),
        "Name": named(side_table, "Name"),
        "Calls": numbers(side_table, "Calls"),
        **times,
        **ratios,
        "CPU Ratio(%)": told,
        "Utilization(%)": floats(side_table, "Utilization(%)"),
    }


TABLES: Sequence[Table] = (
    Table(
        "paddle_summary",
        "Paddle's printed summary, as it says",
        "Nothing is computed: the rows of profiler.summary(), rounded as printed. Level = how far "
        "a row is indented below the one it belongs to.",
        "the text profiler.summary() of Paddle prints",
        {
            RANK: "int", "Section": "text", "Level": "int", "Name": "text", "Calls": "int",
            **dict.fromkeys(list(_TIMES)[:4], "int"), "CPU Ratio(%)": "float",
            **dict.fromkeys(list(_TIMES)[4:], "int"), "GPU Ratio(%)": "float",
            "Utilization(%)": "float",
        },
        _facts,
        stacked,
    ),
)  # fmt: skip
