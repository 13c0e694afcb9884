"""Tables of calls: those of the runtime, and those that Paddle's own printed summary lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceconv.analysis.tables.definition import NOTHING, RANK, Column, Ranked, Table, timed
from traceconv.analysis.tables.fields import fields, floats, named, names_of, numbers
from traceconv.analysis.tables.groups import Groups, share
from traceconv.analysis.tables.texts import Texts
from traceconv.core.model import Kind, Layer, Trace
from traceconv.core.side_tables import ABSENT, Columns

_NS2_PER_US2 = 1e6


def _api_facts(trace: Trace) -> Columns:
    """Calls by level (as CANN names it, else the lane's heading) and name."""
    events = trace.events
    rows = np.flatnonzero(trace.rows_of(Layer.RUNTIME) & (events.kind == Kind.SLICE))
    if not len(rows):
        return _table_calls(trace)
    headings = {t.heading: i for i, t in enumerate(trace.tracks)}
    heading = np.array([headings[t.heading] for t in trace.tracks], np.int64)[events.track[rows]]
    fine = Groups.of(heading, events.name[rows])
    first = rows[fine.first]
    (level,) = fields(trace, first, "level")
    shown = [trace.tracks[t].heading for t in events.track[first].tolist()]
    level = level.filled(Texts.of(shown))
    call = names_of(trace, first).mapped(lambda name: name.rpartition("@")[2])
    alike = Groups.of(level.numbers(), call.numbers())
    groups = Groups.of(fine.spread(alike.spread(np.arange(len(alike)))))
    return {
        "Level": level[alike.first].column(),
        "API Name": call[alike.first].column(),
        **groups.measured(events.dur_ns[rows]),
    }


_STATED = "api_statistic"


def _table_calls(trace: Trace) -> Columns:
    """The calls of the profiler's own table, if the timeline has none."""
    table = trace.side_tables.get(_STATED)
    if table is None or not {"Level", "API Name", "Time(ns)", "Count"} <= set(table.columns):
        return NOTHING
    count, total = numbers(table, "Count"), numbers(table, "Time(ns)")
    is_usable = (count > 0) & (total >= 0)
    variance = floats(table, "Variance")
    spread = np.nan_to_num(variance) * _NS2_PER_US2 * count
    return {
        "Level": named(table, "Level")[is_usable],
        "API Name": named(table, "API Name")[is_usable],
        "count": count[is_usable],
        "total": total[is_usable],
        "low": numbers(table, "Min(ns)")[is_usable],
        "high": numbers(table, "Max(ns)")[is_usable],
        "m2": spread[is_usable],
    }


def _api(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    variance = rows["m2"] / np.maximum(rows["Count"], 1) / _NS2_PER_US2
    return {
        RANK: rows[RANK],
        "Level": rows["Level"],
        "API Name": rows["API Name"],
        "Time(ns)": rows["Total Time(ns)"],
        "Count": rows["Count"],
        "Avg(ns)": rows["Avg Time(ns)"],
        "Min(ns)": rows["Min Time(ns)"],
        "Max(ns)": rows["Max Time(ns)"],
        "Variance": variance,
        "Ratio(%)": share(rows["Ratio(%)"], 100.0),
    }


# -- Paddle's own printed summary ----------------------------------------------------------------

_SUMMARY_TIMES = {
    side: [f"{side} {part}(ns)" for part in ("Total", "Avg", "Max", "Min")]
    for side in ("CPU", "GPU")
}
_SUMMARY_OVERVIEW = {"CPU Total(ns)": "CPU Time(ns)", "GPU Total(ns)": "GPU Time(ns)"}
"""The overview gives one time under a separate heading."""


def _summary_facts(trace: Trace) -> Columns:
    side_table = trace.side_tables.get("paddle_summary")
    if not side_table:
        return NOTHING
    keys = [key for keys_of_side in _SUMMARY_TIMES.values() for key in keys_of_side]
    times = {key: numbers(side_table, key) for key in keys}
    for heading, overview_heading in _SUMMARY_OVERVIEW.items():
        times[heading] = np.where(
            times[heading] == ABSENT, numbers(side_table, overview_heading), times[heading]
        )
    ratios = {f"{side} Ratio(%)": floats(side_table, f"{side} Ratio(%)")
              for side in ("CPU", "GPU")}  # fmt: skip
    share = floats(side_table, "Ratio(%)")
    of_cpu = np.where(np.isnan(ratios["CPU Ratio(%)"]), share, ratios["CPU Ratio(%)"])
    return {
        "Section": named(side_table, "Section"),
        "Level": numbers(side_table, "Level"),
        "Name": named(side_table, "Name"),
        "Calls": numbers(side_table, "Calls"),
        **times,
        **ratios,
        "CPU Ratio(%)": of_cpu,
        "Utilization(%)": floats(side_table, "Utilization(%)"),
    }


TABLES: Sequence[Table] = (
    Table(
        "api",
        "Runtime calls",
        "Calls of one level and name: Time = sum of durations; Avg = Time / Count; Min; Max; "
        "Variance = mean squared distance from the mean, in us^2; Ratio = Time / sum of all Times "
        "of the rank. Where a timeline has no calls they are those of the profiler's own table.",
        "runtime calls (CANN, CUDA, OS), or api_statistic",
        Column.parse(
            "Rank, Level:text, API Name:text, Time(ns), Count, Avg(ns), Min(ns), Max(ns), "
            "Variance:us^2, Ratio(%)"
        ),
        _api_facts,
        _api,
        capped=True,
        reads=(_STATED,),
    ),
    Table(
        "paddle_summary",
        "Paddle's printed summary, as Paddle counts",
        "Nothing is computed: the rows of profiler.summary(), rounded as printed. Level = how far "
        "a row is indented below the one it belongs to.",
        "the text profiler.summary() of Paddle prints",
        Column.parse(
            "Rank, Section:text, Level, Name:text, Calls, CPU Total(ns), CPU Avg(ns), "
            "CPU Max(ns), CPU Min(ns), CPU Ratio(%), GPU Total(ns), GPU Avg(ns), GPU Max(ns), "
            "GPU Min(ns), GPU Ratio(%), Utilization(%)"
        ),
        _summary_facts,
        reads=("paddle_summary",),
    ),
)  # fmt: skip
