"""The figures of a report, section by section, from the tables of all ranks.

Every section consists of JSON values: lengths in whole ns, bytes, ranks. HTML, Markdown and JSON
show the same values. A section without data names its needs under "missing".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from traceconv.alignment.collective_records import P2P
from traceconv.analysis.pipeline_phases import BUBBLE, PHASES
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.replay.job import Replay
from traceconv.analysis.tables.definition import RANK, Result
from traceconv.core.columns import F64
from traceconv.core.job_shape import NODE, STAGE, JobShape
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.robust import median
from traceconv.core.side_tables import ABSENT, Columns

Section = dict[str, Any]
"""JSON values: lengths in whole ns, bytes, ranks."""


def missing(result: Result) -> Section:
    """A section without data: it names what it would need."""
    return {"missing": f"no data: needs {result.table.needs}"}


def rows_of(result: Result, of_job: bool = False) -> Columns:
    """Rows of the ranks; or those of all ranks together; a single rank is all ranks."""
    columns = result.data.columns
    job = columns[RANK] == ABSENT
    keep = job if of_job and job.any() else ~job
    return {heading: column[keep] for heading, column in columns.items()}


def of_main_graph(rows: Columns, length: str) -> Columns:
    """The graph that takes most time of every rank: graphs may contain each other."""
    sums: dict[tuple[int, int], int] = {}
    keys = list(zip(rows[RANK].tolist(), rows["Graph"].tolist(), strict=True))
    for key, ns in zip(keys, rows[length].tolist(), strict=True):
        sums[key] = sums.get(key, 0) + ns
    main: dict[int, tuple[int, int]] = {}
    for (rank, graph), ns in sums.items():
        main[rank] = max(main.get(rank, (-1, 0)), (ns, -graph))
    keep = np.array([-main[rank][1] == graph for rank, graph in keys], bool)
    return {heading: column[keep] for heading, column in rows.items()}


_LISTED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "idle_causes": (
        "idle",
        {"cause": "Cause", "count": "Count", "total_ns": "Total Time(ns)",
         "avg_ns": "Avg Time(ns)", "max_ns": "Max Time(ns)", "percent": "Ratio(%)"},
    ),
    "efficiency": (
        "operator_flops",
        {"operator": "Operator", "kind": "Kind", "count": "Count", "total_ns": "Total Time(ns)",
         "rate_tflops": "Rate(TFLOP/s)", "percent_of_peak": "Peak(%)",
         "bandwidth_gbs": "Bandwidth(GB/s)", "bound": "Bound", "input_shapes": "Input Shapes"},
    ),
    "graphs": (
        "graph",
        {"rank": RANK, "graph": "Graph", "nodes": "Nodes", "replays": "Replays",
         "total_ns": "Total Time(ns)", "avg_ns": "Avg Time(ns)", "percent_named": "Named(%)",
         "known_by": "Known By"},
    ),
    "memory_at_peak": (
        "memory_live",
        {"rank": RANK, "device": "Device", "operator": "Operator", "module": "Module",
         "blocks": "Blocks", "size_bytes": "Bytes", "percent": "Ratio(%)"},
    ),
}  # fmt: skip
"""Sections that are the first rows of a table: its name, and keys and headings of their columns."""

TABLES = (
    "step", "overlap", "type", "op", "comm", "link", "collective", "data",
    *(name for name, _ in _LISTED.values()),
)  # fmt: skip
"""The tables the sections are made from."""

OPERATORS_KEPT = 20
GROUPS_KEPT = 4
"""Communication groups whose matrix is shown: those that move most."""

_CLASSES = {
    "pure_compute_ns": "Pure Compute(ns)",
    "overlapped_ns": "Communication Overlapped(ns)",
    "exposed_ns": "Communication Not Overlapped(ns)",
    "idle_ns": "Idle(ns)",
    "known_ns": "Known(ns)",
}
_UNCLASSIFIED = "Unclassified(ns)"
"""A column of the table that is there where such tasks are."""


def sections(
    results: Iterable[Result], unmarked: Collection[int], devices: Mapping[int, int]
) -> dict[str, Section]:
    """All sections that come from tables.

    Args:
        results: of at least :data:`TABLES`, not cut to their first rows.
        unmarked: ranks whose one step is all that was recorded, as nothing marks steps.
        devices: how many each rank has, over which the table of overlap sums.
    """
    by_name = {result.table.name: result for result in results}
    # whether the profiler recorded types of operators at all
    typed = by_name["type"].rows and set(by_name["type"].data["OP Type"].tolist()) != {""}
    return {
        "overlap": _overlap(by_name["overlap"], unmarked, devices),
        "steps": _steps(by_name["step"], unmarked),
        "operators": _operators(by_name["type"] if typed else by_name["op"]),
        "communication": _communication(by_name["comm"]),
        "collectives": _listed(by_name["collective"], _COLLECTIVE, ""),
        **{
            key: _listed(by_name[name], columns, _WEIGHTS.get(name, "Total Time(ns)"))
            for key, (name, columns) in _LISTED.items()
        },
        "links": _links(by_name["link"]),
        "queues": {"rows": _dicts(data.columns, _QUEUE) if (data := by_name["data"].data) else []},
    }


def _overlap(result: Result, unmarked: Collection[int], devices: Mapping[int, int]) -> Section:
    """Means of the steps and devices of each rank; of the whole rank where no step has device
    work."""
    if not result.rows:
        return missing(result)
    rows = rows_of(result)
    steps = rows["Step"] != ABSENT
    # figures of a table for steps that are not in the timeline were not measured by it
    placed = steps & (rows["Window"] != ABSENT)
    steps &= placed | ~np.isin(rows[RANK], rows[RANK][placed])
    is_known = (rows["Known(ns)"] != ABSENT) & (rows["Idle(ns)"] != ABSENT)
    # tasks of unknown types may compute, and hide communication
    may_compute = rows.get(_UNCLASSIFIED, np.zeros(len(steps), np.int64)) > 0
    is_known &= (rows["Pure Compute(ns)"] != ABSENT) | may_compute
    worked = steps & is_known & (rows["Known(ns)"] > 0)
    keep = worked if worked.any() else is_known & (rows["Step"] == ABSENT)
    if not keep.any():
        return missing(result)
    rows = {heading: column[keep] for heading, column in rows.items()}
    rows = of_main_graph(rows, "Known(ns)") if worked.any() else rows
    listed = []
    for rank in np.unique(rows[RANK]).tolist():
        of_rank = rows[RANK] == rank
        count, n_devices = int(of_rank.sum()), devices.get(rank, 1)
        n = count * n_devices
        sums = {key: int(rows[heading][of_rank].sum()) for key, heading in _CLASSES.items()}
        if _UNCLASSIFIED in rows:
            sums["unclassified_ns"] = int(np.maximum(rows[_UNCLASSIFIED][of_rank], 0).sum())
        # on GPUs copies that nothing hides are the rest; on NPUs they are idle time
        sums["copy_ns"] = 2 * sums["known_ns"] - sum(sums.values())
        means: dict[str, int | None] = {k: (2 * ns + n) // (2 * n) for k, ns in sums.items()}
        if (rows["Pure Compute(ns)"][of_rank] == ABSENT).any():
            means |= dict.fromkeys(("pure_compute_ns", "overlapped_ns", "exposed_ns", "copy_ns"))
        waits = rows["Input Wait(ns)"][of_rank]
        waits = waits[waits != ABSENT]
        means["input_wait_ns"] = (2 * int(waits.sum()) + n) // (2 * n) if len(waits) else None
        listed.append({"rank": rank, "steps": count, "devices": n_devices, **means,
                      "input_wait_steps": len(waits)})  # fmt: skip
    marked = worked.any() and not {row["rank"] for row in listed} <= set(unmarked)
    return {"per": "step" if marked else "capture", "rows": listed}


def _steps(result: Result, unmarked: Collection[int]) -> Section:
    """Durations of marked steps. A table of steps does not have them, only the device times."""
    if not result.rows:
        return missing(result)
    rows = rows_of(result)
    keep = (rows["Duration(ns)"] != ABSENT) & ~np.isin(rows[RANK], list(unmarked))
    if not keep.any():
        return {"missing": "no data: needs marked steps"}
    rows = of_main_graph({h: column[keep] for h, column in rows.items()}, "Duration(ns)")
    listed = []
    for rank in np.unique(rows[RANK]).tolist():
        of_rank = rows[RANK] == rank
        listed.append(
            {
                "rank": rank,
                "graph": None if (graph := int(rows["Graph"][of_rank][0])) == ABSENT else graph,
                "step": rows["Step"][of_rank].tolist(),
                "start_ns": [str(ns) for ns in rows["Start Time(ns)"][of_rank].tolist()],
                "dur_ns": rows["Duration(ns)"][of_rank].tolist(),
            }
        )
    return {"rows": listed}


def _operators(result: Result) -> Section:
    if not result.rows:
        return missing(result)
    key = "OP Type" if "OP Type" in result.data else "Operator"
    job, ranked = rows_of(result, of_job=True), rows_of(result)
    device = job["Core Type"] != "Host CPU"
    if device.any():  # operators of the host contain each other
        job = {heading: column[device] for heading, column in job.items()}
    worst: dict[tuple[str, str], tuple[int, int]] = {}
    for rank, name, core, total in _cells(ranked, RANK, key, "Core Type", "Total Time(ns)"):
        worst[name, core] = max(worst.get((name, core), (-1, 0)), (total, -rank))
    order = np.argsort(-job["Total Time(ns)"], kind="stable")
    listed = []
    names = (key, "Core Type", "Count", "Total Time(ns)", "Avg Time(ns)")
    total_ns = int(job["Total Time(ns)"].sum())
    if np.isnan(job["Ratio(%)"]).any():
        total_ns = 0  # shares are unknown because values are missing
    shown = order[:OPERATORS_KEPT]
    for name, core, count, total, usual in _cells(job, *names, rows=shown):
        longest_ns, rank = worst[name, core]
        percent = 100 * total / total_ns if total_ns else None
        listed.append(
            {
                "name": name, "core": core, "count": count, "total_ns": total, "avg_ns": usual,
                "percent": percent, "most_on_rank": -rank, "most_ns": longest_ns,
            }
        )  # fmt: skip
    hidden = order[OPERATORS_KEPT:]
    return {
        "by": result.table.title,
        "rows": listed,
        "others": len(hidden),
        "others_ns": int(job["Total Time(ns)"][hidden].sum()),
    }


def _cells(columns: Columns, *headings: str, rows: Any = slice(None)) -> Iterable[tuple[Any, ...]]:
    return zip(*(columns[heading][rows].tolist() for heading in headings), strict=True)


_PARTS = {
    "transit_ns": "Transit Time(ns)",
    "wait_ns": "Wait Time(ns)",
    "synchronization_ns": "Synchronization Time(ns)",
    "idle_ns": "Idle Time(ns)",
}


def _dicts(columns: Columns, headings: Mapping[str, str], rows: Any = slice(None)) -> list[Section]:
    """Rows under other names; None where a value is unknown."""
    return [
        {key: None if value == ABSENT or value != value else value
         for key, value in zip(headings, cells, strict=True)}
        for cells in _cells(columns, *headings.values(), rows=rows)
    ]  # fmt: skip


def _communication(result: Result) -> Section:
    """Kinds of operations, over all ranks."""
    if not result.rows:
        return missing(result)
    job = rows_of(result, of_job=True)
    headings = {
        "group": "Group", "operation": "Operation", "count": "Count", "total_ns": "Total Time(ns)",
        "avg_ns": "Avg Time(ns)", "percent": "Ratio(%)",
        **{key: heading for key, heading in _PARTS.items() if heading in job},
    }  # fmt: skip
    order = np.argsort(-job["Total Time(ns)"], kind="stable")[:OPERATORS_KEPT]
    return {"rows": _dicts(job, headings, order), "others": len(job["Count"]) - len(order)}


_COLLECTIVE = {
    "group": "Group", "operation": "Operation", "ranks": "Group Size",
    "message_bytes": "Message(B)", "count": "Count", "avg_ns": "Avg Time(ns)",
    "bus_bandwidth_gbs": "Bus Bandwidth(GB/s)",
    "best_bus_bandwidth_gbs": "Best Bus Bandwidth(GB/s)",
}  # fmt: skip


_WEIGHTS = {"memory_live": "Bytes"}


def _listed(result: Result, columns: Mapping[str, str], by: str) -> Section:
    """The rows with the largest ``by``, over all ranks where a table has such rows; with "" those
    that are first in the table."""
    if not result.rows:
        return missing(result)
    job = rows_of(result, of_job=True)
    count = len(job[next(iter(columns.values()))])
    order = np.argsort(-job[by], kind="stable") if by else np.arange(count)
    rows = _dicts(job, columns, order[:OPERATORS_KEPT])
    return {"rows": rows, "others": count - len(rows)}


def _links(result: Result) -> Section:
    """Bytes and time between ranks, by group: sums over operations and transports."""
    if not result.rows:
        return missing(result)
    job = rows_of(result, of_job=True)
    sums: dict[str, dict[tuple[int, int], list[Any]]] = {}
    names = ("Group", "Source", "Destination", "Bytes", "Transit Time(ns)", "Transport")
    for group, source, target, size, time, transport in _cells(job, *names):
        cell = sums.setdefault(group, {}).setdefault((source, target), [0, 0, set()])
        cell[0] = _plus(cell[0], size)
        cell[1] = _plus(cell[1], time)
        cell[2].add(transport)
    order = sorted(sums, key=lambda group: -sum(cell[0] or 0 for cell in sums[group].values()))
    return {
        "groups": [
            {
                "group": group,
                "cells": [
                    {
                        "source": source, "destination": target, "bytes": size, "time_ns": time,
                        "transport": sorted(transports),
                    }
                    for (source, target), (size, time, transports) in sorted(sums[group].items())
                ],
            }
            for group in order[:GROUPS_KEPT]
        ],
        "others": len(order[GROUPS_KEPT:]),
    }  # fmt: skip


def _plus(total: int | None, value: int) -> int | None:
    """A sum, None once a part of it is not known."""
    return None if total is None or value == ABSENT else total + value


_QUEUE = {
    "rank": RANK, "queue": "Queue", "records": "Records", "capacity": "Capacity", "empty": "Empty",
    "full": "Full", "mean_size": "Mean Size",
}  # fmt: skip


# -- rank by step: how far each rank is behind ------------------------------------------------

HEAT_CELLS = 4096
"""Most cells of the map; beyond, neighbouring ranks share one by their worst."""

STEPS_SHOWN = 200
"""Most columns of it; beyond, steps that follow each other share one likewise."""


def heat(replay: Replay | None, overlap: Result) -> Section:
    """How far each rank is behind in each step, ns: the extra time of its local work, compared with
    ranks of the same role. Without a replay: computing time above the median of all ranks.

    Args:
        replay:  of the job.
        overlap: the table of that name.
    """
    late, kind = {}, "lateness"
    if replay:
        excess, graph = replay.own.excess, replay.graph
        late = {
            (graph.ranks[column], int(graph.steps[row, 1])): max(round(excess[row, column]), 0)
            for row, column in zip(*np.nonzero(~np.isnan(excess)), strict=True)
        }
    if not late:
        late, kind = _excess(overlap), "computing"
    ranks = sorted({rank for rank, _ in late})
    steps = sorted({step for _, step in late})
    if len(ranks) < 2:
        return {"missing": "no data: needs two ranks with the same steps"}
    columns = _binned(steps, STEPS_SHOWN)
    rows = _binned(ranks, max(HEAT_CELLS // len(columns), 1))
    return {
        "what": kind,
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
    """Divide the numbers into at most ``most`` bins of equal length, except the last."""
    per_bin = -(-len(numbers) // most)
    return [numbers[i : i + per_bin] for i in range(0, len(numbers), per_bin)]


def _excess(overlap: Result) -> dict[tuple[int, int], int]:
    if not overlap.rows:
        return {}
    rows = rows_of(overlap)
    steps = (rows["Step"] != ABSENT) & (rows["Known(ns)"] > 0)
    if not steps.any():
        return {}
    rows = of_main_graph({h: column[steps] for h, column in rows.items()}, "Known(ns)")
    value: F64 = rows["Total Compute(ns)"].astype(np.float64)
    excess = {}
    for step in np.unique(rows["Step"]).tolist():
        of_step = rows["Step"] == step
        if np.count_nonzero(of_step) > 1:
            over = value[of_step] - median(value[of_step])
            for rank, excess_ns in zip(rows[RANK][of_step].tolist(), over.tolist(), strict=True):
                excess[rank, step] = max(round(excess_ns), 0)
    return excess


def job_shape(shape: JobShape, overlap: Section) -> Section:
    """The coordinates of the ranks, and what each computes per step (of the capture, where no step
    has device work), ns; null where unknown.

    Args:
        overlap: that section.
    """
    if not set(shape.names) - {NODE}:
        return {"missing": "no data: nothing states or determines the coordinates of ranks"}
    computing_by_rank = {
        row["rank"]: row["pure_compute_ns"] + row["overlapped_ns"]
        for row in overlap.get("rows", ())
        if row["pure_compute_ns"] is not None
    }
    document = shape.as_dict()
    rows = [
        {**row, "computing_ns": computing_by_rank.get(row["rank"])} for row in document["ranks"]
    ]
    return {"text": shape.line(), "axes": document["axes"], "rows": rows}


def stages(summaries: Iterable[RankSummary], shape: JobShape) -> Section:
    """What each pipeline stage does in a step, the mean over its ranks and their steps, ns: passes
    from their first task to the last, and bubbles. ``rest_ns`` is what belongs to none of these.
    Null where unknown: passes without markers, bubbles without point-to-point records.
    """
    if not (shape.column(STAGE) >= 0).any():
        return {"missing": "no data: nothing states or determines the pipeline stages of ranks"}
    by_stage: dict[int, list[tuple[int, float, list[float], bool]]] = {}
    for summary in summaries:
        stage, steps = shape.stage(summary.rank), summary.replay.steps
        if stage < 0 or summary.replay.why or not summary.replay.marked:
            continue
        length = summary.phases[:, 2] - summary.phases[:, 1]
        sums = np.bincount(summary.phases[:, 0], length, len(PHASES)) / len(steps)
        step_ns = float((steps[:, 3] - steps[:, 2]).mean())
        sends = P2P in summary.collectives.kinds
        by_stage.setdefault(stage, []).append((summary.rank, step_ns, sums.tolist(), sends))
    if not by_stage:
        return {"missing": "no data: needs marked steps with device work of one device per rank"}
    rows = []
    for stage, ranks in sorted(by_stage.items()):
        step_ns = float(np.mean([step for _, step, _, _ in ranks]))
        mean = np.mean([passed for *_, passed, _ in ranks], axis=0)
        means = [round(ns) for ns in mean.tolist()]
        is_known = [bool(means[phase]) for phase in PHASES]
        is_known[BUBBLE] = all(sends for *_, sends in ranks)
        rows.append(
            {
                "stage": stage,
                "ranks": format_ranges([rank for rank, *_ in ranks]),
                "step_ns": round(step_ns),
                **{key: means[i] if is_known[i] else None for i, key in enumerate(_OF_STAGE)},
                "rest_ns": round(step_ns) - sum(means),
            }
        )
    return {"rows": rows}


_OF_STAGE = ("forward_ns", "backward_ns", "bubble_ns", "pass_unknown_ns")
