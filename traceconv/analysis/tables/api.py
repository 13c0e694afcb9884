"""Table of runtime calls, and what it shares with api_statistic.csv."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceconv.analysis.tables.definition import NOTHING, RANK, Keys, Ranked, Table, texts, timed
from traceconv.analysis.tables.fields import fields
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.core.model import Kind, Layer, Trace
from traceconv.core.side_tables import Columns

_API = Keys(("Level", "API Name"))
_NS2_PER_US2 = 1e6


def _facts(trace: Trace) -> Columns:
    """Calls by level (as CANN names it, else the lane's heading) and name."""
    events = trace.events
    rows = np.flatnonzero(trace.rows_of(Layer.RUNTIME) & (events.kind == Kind.SLICE))
    if not len(rows):
        return NOTHING
    headings = {t.heading: i for i, t in enumerate(trace.tracks)}
    heading = np.array([headings[t.heading] for t in trace.tracks], np.int64)[events.track[rows]]
    fine = Groups.of(heading, events.name[rows])
    first = rows[fine.first]
    (level,) = fields(trace, first, "level")
    shown = [trace.tracks[t].heading for t in events.track[first].tolist()]
    level = np.where(level == "", texts(shown), level)
    call = texts([trace.strings[i].rpartition("@")[2] for i in events.name[first].tolist()])
    alike = Groups.of(numbered(level), numbered(call))
    groups = Groups.of(fine.spread(alike.spread(np.arange(len(alike)))))
    return {
        "Level": level[alike.first],
        "API Name": call[alike.first],
        **groups.measured(events.dur_ns[rows]),
    }


def _build(ranked: Ranked) -> Columns:
    rows = timed(ranked, _API)
    variance = rows["m2"] / np.maximum(rows["Count"], 1) / _NS2_PER_US2
    return {
        RANK: rows[RANK],
        "Level": rows["Level"],
        "API Name": rows["API Name"],
        "Time(us)": rows["Total Time(us)"],
        "Count": rows["Count"],
        "Avg(us)": rows["Avg Time(us)"],
        "Min(us)": rows["Min Time(us)"],
        "Max(us)": rows["Max Time(us)"],
        "Variance": variance,
        "Ratio(%)": share(rows["Ratio(%)"], 100.0),
    }


TABLES: Sequence[Table] = (
    Table(
        "api",
        "Runtime calls (api_statistic.csv)",
        "Calls of one level and name: Time = sum of durations; Avg = Time / Count; Min; Max; "
        "Variance = mean squared distance from the mean, in us^2; Ratio = Time / sum of all Times "
        "of the rank.",
        "runtime calls (CANN, CUDA, OS)",
        {
            RANK: "int", "Level": "text", "API Name": "text", "Time(us)": "int", "Count": "int",
            "Avg(us)": "int", "Min(us)": "int", "Max(us)": "int", "Variance": "float",
            "Ratio(%)": "float",
        },
        _facts,
        _build,
        capped=True,
    ),
)  # fmt: skip
