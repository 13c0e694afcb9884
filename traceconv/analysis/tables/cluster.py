"""Tables of clusters without timelines, from the tables of cluster tools: ranks and bandwidth.

Ranks with timelines have the tables of steps, overlap and links, and ``traceconv stragglers``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceconv.analysis.tables.definition import NOTHING, RANK, Column, Ranked, Table, stacked
from traceconv.analysis.tables.fields import floats, named, numbers, rounded
from traceconv.analysis.tables.groups import Groups, mean, numbered, share
from traceconv.analysis.tables.stated_steps import STATED, stated_overlap
from traceconv.core.columns import F64
from traceconv.core.model import Trace
from traceconv.core.side_tables import Columns

_LENGTHS = {
    "Step Time(ns)": "known_ns",
    "Computing(ns)": "computing_ns",
    "Exposed Communication(ns)": "not_overlapped_ns",
    "Idle(ns)": "free_ns",
}


def _rank_facts(trace: Trace) -> Columns:
    """Mean lengths of the steps of each rank."""
    stated_rows = stated_overlap(trace)
    if RANK not in stated_rows:
        return NOTHING
    groups = Groups.of(stated_rows[RANK])
    means = {
        key: mean(groups.total(stated_rows[length]), groups.size)
        for key, length in _LENGTHS.items()
    }
    own = means["Step Time(ns)"] - means["Exposed Communication(ns)"]
    return {
        RANK: stated_rows[RANK][groups.first],
        "Steps": groups.size,
        **means,
        "Own Time(ns)": own,
    }


def _ranks(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    own_ns = rows["Own Time(ns)"]
    rows["Own Above Median(ns)"] = rounded(own_ns - np.median(own_ns))
    rows["Own Above Median(%)"] = share(
        own_ns - np.median(own_ns), np.median(rows["Step Time(ns)"])
    )
    return rows


_OPERATION = ("Step", "Operator", "Group", "Transport Type")


def _bandwidth_facts(trace: Trace) -> Columns:
    """Sums of each rank and transport. A row of the table is a size of packages: those of one
    operation repeat its sums."""
    table = trace.side_tables.get("cluster_communication_bandwidth")
    if len(trace.events) or not table:
        return NOTHING
    rank, time = numbers(table, RANK), numbers(table, "Transit Time(ns)")
    n_bytes = rounded(floats(table, "Transit Size(MB)") * 1e6)
    keys = [numbered(named(table, name)) for name in _OPERATION]
    once = Groups.of(rank, *keys).first
    once = once[(rank[once] >= 0) & (n_bytes[once] > 0) & (time[once] > 0)]
    if not len(once):
        return NOTHING
    groups = Groups.of(rank[once], keys[-1][once])
    first = once[groups.first]
    return {
        RANK: rank[first],
        "Transport": named(table, "Transport Type")[first],
        "Count": groups.size,
        "Bytes": groups.total(n_bytes[once]),
        "Transit Time(ns)": groups.total(time[once]),
    }


def _bandwidths(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    speed: F64 = rows["Bytes"] / rows["Transit Time(ns)"]
    alike = Groups.of(numbered(rows["Transport"]))
    parts = np.split(speed[alike.order], alike.start[1:])
    usual = alike.spread(np.array([np.median(part) for part in parts]))
    return {**rows, "Bandwidth(GB/s)": speed, "Of Median(%)": share(speed, usual)}


TABLES: Sequence[Table] = (
    Table(
        "cluster",
        "Ranks of a cluster, by the tables of cluster tools",
        "Means over the steps of a rank: Step Time = Computing + Exposed Communication + Idle. Own "
        "Time = Step Time - Exposed Communication: the work of the rank before others wait for it. "
        "Own Above Median = Own Time - median Own Time of the ranks; in percent, of the median "
        "Step Time. The rank far above the others is slow.",
        "cluster_step_trace_time, cluster_time_summary or cluster_analysis.db, without the "
        "timelines of the ranks",
        Column.parse(
            "Rank, Steps, Step Time(ns), Computing(ns), Exposed Communication(ns), Idle(ns), "
            "Own Time(ns), Own Above Median(ns), Own Above Median(%)"
        ),
        _rank_facts,
        _ranks,
        reads=STATED[1:],
    ),
    Table(
        "cluster_bandwidth",
        "Bandwidth of the ranks of a cluster, by transport",
        "Sums over the operations of a rank that moved data by one transport: Bandwidth = Bytes / "
        "Transit Time (10^9 bytes per second); Of Median = that of the median of the ranks with "
        "this transport. The rank far below 100 has a slow link.",
        "cluster_communication or cluster_analysis.db, without the timelines of the ranks",
        Column.parse(
            "Rank, Transport:text, Count, Bytes:B, Transit Time(ns), Bandwidth(GB/s), "
            "Of Median(%)"
        ),
        _bandwidth_facts,
        _bandwidths,
        reads=("cluster_communication_bandwidth",),
    ),
)  # fmt: skip
