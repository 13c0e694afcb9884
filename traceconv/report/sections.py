"""The figures of a report, section by section, from the tables of all ranks.

Every section is JSON values: lengths in whole ns, bytes, ranks; what a page, a Markdown file and a
JSON document show is the same. A section without data says under "missing" what it would need.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from traceconv.analysis.tables.definition import RANK, Result
from traceconv.core.side_tables import ABSENT, Columns

# What the sections of a report have in common: rows of tables, and words for what is not there.

Section = dict[str, Any]
"""JSON values: lengths in whole ns, bytes, ranks."""


def missing(result: Result) -> Section:
    """What a section says that has no data."""
    return {"missing": f"no data: needs {result.table.needs}"}


def rows_of(result: Result, of_job: bool = False) -> Columns:
    """Rows of the ranks; or those of all together, which a single rank stands for."""
    columns = result.data.columns
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


TABLES = ("step", "overlap", "type", "op", "comm", "link", "data")
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


def sections(results: Iterable[Result]) -> dict[str, Section]:
    """All sections that come from tables.

    Args:
        results: of at least :data:`TABLES`, not cut to their first rows.
    """
    known = {result.table.name: result for result in results}
    return {
        "overlap": _overlap(known["overlap"]),
        "steps": _steps(known["step"]),
        "operators": _operators(known["type"] if _named(known["type"]) else known["op"]),
        "communication": _communication(known["comm"]),
        "links": _links(known["link"]),
        "queues": _queues(known["data"]),
    }


def _named(result: Result) -> bool:
    """Whether the profiler told types of operators at all."""
    return bool(result.rows) and not set(result.data["OP Type"].tolist()) <= {"", "N/A"}


def _overlap(result: Result) -> Section:
    """Means of the steps of each rank; of the whole rank where no step has device work."""
    if not result.rows:
        return missing(result)
    rows = rows_of(result)
    steps = rows["Step"] != ABSENT
    worked = steps & (rows["Known(ns)"] > 0)
    keep = worked if worked.any() else ~steps
    if not keep.any():
        return missing(result)
    rows = {heading: column[keep] for heading, column in rows.items()}
    rows = of_main_graph(rows, "Known(ns)") if worked.any() else rows
    found = []
    for rank in np.unique(rows[RANK]).tolist():
        mine = rows[RANK] == rank
        n = int(mine.sum())
        sums = {key: int(rows[heading][mine].sum()) for key, heading in _CLASSES.items()}
        means = {key: (2 * ns + n) // (2 * n) for key, ns in sums.items()}
        found.append({"rank": rank, "steps": n, **means})
    return {"per": "step" if worked.any() else "capture", "rows": found}


def _steps(result: Result) -> Section:
    if not result.rows:
        return missing(result)
    rows = of_main_graph(rows_of(result), "Duration(ns)")
    found = []
    for rank in np.unique(rows[RANK]).tolist():
        mine = rows[RANK] == rank
        found.append(
            {
                "rank": rank,
                "graph": _known(int(rows["Graph"][mine][0])),
                "step": rows["Step"][mine].tolist(),
                "start_ns": [str(ns) for ns in rows["Start Time(ns)"][mine].tolist()],
                "dur_ns": rows["Duration(ns)"][mine].tolist(),
            }
        )
    return {"rows": found}


def _known(number: int) -> int | None:
    return None if number == ABSENT else number


def _operators(result: Result) -> Section:
    if not result.rows:
        return missing(result)
    key = "OP Type" if "OP Type" in result.data else "Operator"
    job, ranked = _of_device(rows_of(result, of_job=True)), rows_of(result)
    worst: dict[tuple[str, str], tuple[int, int]] = {}
    for rank, name, core, total in _cells(ranked, RANK, key, "Core Type", "Total Time(ns)"):
        worst[name, core] = max(worst.get((name, core), (-1, 0)), (total, -rank))
    order = np.argsort(-job["Total Time(ns)"], kind="stable")
    found = []
    names = (key, "Core Type", "Count", "Total Time(ns)", "Avg Time(ns)")
    whole = int(job["Total Time(ns)"].sum())
    kept = order[:OPERATORS_KEPT]
    for name, core, count, total, usual in _cells(job, *names, rows=kept):
        most, rank = worst[name, core]
        percent = 100 * total / whole if whole else 0.0
        found.append(
            {
                "name": name, "core": core, "count": count, "total_ns": total, "avg_ns": usual,
                "percent": percent, "most_on_rank": -rank, "most_ns": most,
            }
        )  # fmt: skip
    rest = order[OPERATORS_KEPT:]
    return {
        "by": result.table.title,
        "rows": found,
        "others": len(rest),
        "others_ns": int(job["Total Time(ns)"][rest].sum()),
    }


def _of_device(rows: Columns) -> Columns:
    """Rows of devices, if there are any: operators of the host contain each other."""
    device = rows["Core Type"] != "Host CPU"
    return {h: column[device] for h, column in rows.items()} if device.any() else rows


def _cells(columns: Columns, *headings: str, rows: Any = slice(None)) -> Iterable[tuple[Any, ...]]:
    return zip(*(columns[heading][rows].tolist() for heading in headings), strict=True)


_PARTS = {
    "transit_ns": "Transit Time(ns)",
    "wait_ns": "Wait Time(ns)",
    "synchronization_ns": "Synchronization Time(ns)",
    "idle_ns": "Idle Time(ns)",
}


def _communication(result: Result) -> Section:
    """Kinds of operations, over all ranks."""
    if not result.rows:
        return missing(result)
    job = rows_of(result, of_job=True)
    order = np.argsort(-job["Total Time(ns)"], kind="stable")[:OPERATORS_KEPT]
    names = ("Group", "Operation", "Count", "Total Time(ns)", "Avg Time(ns)", "Ratio(%)")
    keys = ("group", "operation", "count", "total_ns", "avg_ns", "percent")
    parts = {key: heading for key, heading in _PARTS.items() if heading in job}
    found = []
    for cells in _cells(job, *names, *parts.values(), rows=order):
        told = dict(zip((*keys, *parts), cells, strict=True))
        found.append({k: None if v == ABSENT else v for k, v in told.items()})
    return {"rows": found, "others": len(job["Count"]) - len(found)}


def _links(result: Result) -> Section:
    """Bytes and time between ranks, by group: sums over operations and transports."""
    if not result.rows:
        return missing(result)
    job = rows_of(result, of_job=True)
    sums: dict[str, dict[tuple[int, int], list[Any]]] = {}
    names = ("Group", "Source", "Destination", "Bytes", "Transit Time(ns)", "Transport")
    for group, source, target, size, time, transport in _cells(job, *names):
        cell = sums.setdefault(group, {}).setdefault((source, target), [0, 0, set()])
        cell[0] += size
        cell[1] += max(time, 0)
        cell[2].add(transport)
    order = sorted(sums, key=lambda group: -sum(cell[0] for cell in sums[group].values()))
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


def _queues(result: Result) -> Section:
    if not result.rows:
        return missing(result)
    columns = result.data.columns
    names = (RANK, "Queue", "Records", "Capacity", "Empty", "Full", "Mean Size")
    keys = ("rank", "queue", "records", "capacity", "empty", "full", "mean_size")
    rows = [dict(zip(keys, cells, strict=True)) for cells in _cells(columns, *names)]
    for row in rows:
        row["capacity"] = None if row["capacity"] == ABSENT else row["capacity"]
        row["mean_size"] = None if row["mean_size"] != row["mean_size"] else row["mean_size"]
    return {"rows": rows}
