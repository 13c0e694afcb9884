"""The figures of a report and of the lines a merge ends with, from the recomputed tables."""

from collections import defaultdict
from math import sqrt
from statistics import fmean, variance

from .device import curves
from .figures import JOB, mean, percent
from .losses import length
from .steps import of_main_graph

_CLASSES = {
    "pure_compute_ns": "Pure Compute(ns)",
    "overlapped_ns": "Communication Overlapped(ns)",
    "exposed_ns": "Communication Not Overlapped(ns)",
    "idle_ns": "Idle(ns)",
    "known_ns": "Known(ns)",
}
_BUSY = (
    "Pure Compute(ns)", "Communication Overlapped(ns)", "Communication Not Overlapped(ns)",
)  # fmt: skip
OPERATORS_KEPT = 20


def overlap_rows(every, tables):
    """Means of the steps of each rank that have known time; of the whole rank if none has."""
    by_rank = defaultdict(list)
    for (rank, *key), row in tables["overlap"]:
        if rank is not JOB:
            by_rank[rank].append((tuple(key), row))
    steps = {
        rank: [(key, row) for key, row in rows if key[1] is not None and row["Known(ns)"]]
        for rank, rows in by_rank.items()
    }
    worked = any(steps.values())
    found = {}
    for rank, rows in by_rank.items():
        kept = [row for key, row in rows if key[1] is None]
        if worked:
            known = every[rank]
            ones = [s for s in known.steps if known.figures(s)["known"]]
            main = of_main_graph(ones, lambda s, k=known: k.figures(s)["known"])
            shown = {step.key for step in main}
            kept = [row for key, row in steps[rank] if key in shown]
        if kept:
            devices = every[rank].devices
            n = len(kept) * devices
            may_compute = any(row["Pure Compute(ns)"] is None for row in kept)
            means = {
                key: mean(sum(row[name] or 0 for row in kept), n) for key, name in _CLASSES.items()
            }
            busy = sum(row[name] or 0 for row in kept for name in _BUSY)
            unknown = sum(row.get("Unclassified(ns)") or 0 for row in kept)
            rest = sum(row["Known(ns)"] - row["Idle(ns)"] for row in kept) - busy - unknown
            waits = [row["Input Wait(ns)"] for row in kept if row["Input Wait(ns)"] is not None]
            found[rank] = {
                "steps": len(kept), "devices": devices, **means, "copy_ns": mean(rest, n),
                "input_wait_ns": mean(sum(waits), n) if waits else None,
                "input_wait_steps": len(waits),
            }  # fmt: skip
            if may_compute:
                unknown_keys = ("pure_compute_ns", "overlapped_ns", "exposed_ns", "copy_ns")
                found[rank] |= dict.fromkeys(unknown_keys)
            if any(row.get("Unclassified(ns)") for _, row in tables["overlap"]):
                found[rank]["unclassified_ns"] = mean(unknown, n)
    marked = any(not step.whole_range for rank in found for step in every[rank].steps)
    return "step" if worked and marked else "capture", found


def steps_rows(every):
    """The steps of each rank, of the graph that takes most of the time."""
    found = {}
    for rank, known in every.items():
        steps = () if known.fact.partial else [s for s in known.steps if not s.whole_range]
        main = of_main_graph(steps, lambda step: step.dur)
        if main:
            found[rank] = {
                "graph": main[0].graph if main[0].graph >= 0 else None,
                "step": [step.number for step in main],
                "start_ns": [str(step.start) for step in main],
                "dur_ns": [step.dur for step in main],
            }
    return found


def operator_rows(tables):
    """Operators over all ranks, by falling time, and whose device spends most on each."""
    named = any(row["OP Type"] != "" for row in tables["type"].values())
    found = tables["type" if named else "op"]
    several = len({rank for rank, *_ in found if rank is not JOB}) > 1
    job = {tuple(key): row for (rank, *key), row in found.items() if (rank is JOB) == several}
    device = {key: row for key, row in job.items() if key[1] != "Host CPU"}
    job = device or job
    all_ns = sum(row["Total Time(ns)"] for row in job.values())
    worst = defaultdict(lambda: (-1, 0))
    for (rank, *key), row in found.items():
        if rank is not JOB:
            worst[tuple(key)] = max(worst[tuple(key)], (row["Total Time(ns)"], -rank))
    return {
        key: {
            "count": row["Count"], "total_ns": row["Total Time(ns)"],
            "avg_ns": row["Avg Time(ns)"],
            "percent": row["Ratio(%)"] and percent(row["Total Time(ns)"], all_ns),
            "most_on_rank": -worst[key][1], "most_ns": worst[key][0],
        }
        for key, row in job.items()
    }  # fmt: skip


def communication_rows(tables):
    """Kinds of operations over all ranks."""
    found = tables["comm"]
    several = len({rank for rank, *_ in found if rank is not JOB}) > 1
    return {
        tuple(key): {
            "count": row["Count"], "total_ns": row["Total Time(ns)"],
            "avg_ns": row["Avg Time(ns)"], "percent": row["Ratio(%)"],
            "transit_ns": row["Transit Time(ns)"], "wait_ns": row["Wait Time(ns)"],
            "synchronization_ns": row["Synchronization Time(ns)"],
            "idle_ns": row["Idle Time(ns)"],
        }
        for (rank, *key), row in found.items() if (rank is JOB) == several
    }  # fmt: skip


def link_cells(tables):
    """Bytes and time between ranks, by group."""
    found = tables["link"]
    several = len({rank for rank, *_ in found if rank is not JOB}) > 1
    sums = defaultdict(lambda: {"bytes": 0, "time_ns": 0})
    for (rank, group, _, source, target, _), row in found.items():
        if (rank is JOB) == several:
            sums[group, source, target]["bytes"] += row["Bytes"]
            sums[group, source, target]["time_ns"] += row["Transit Time(ns)"]
    return sums


def samples(ranks):
    """Every sample of every counter, as curves show them: {(title, rank): {(instant, value)}}."""
    found = defaultdict(set)
    for rank in ranks.values():
        scaled = {(c, m): rows for c, m, rows in curves(rank)}
        for lane, at, value in rank.samples:
            title = " ".join(part for part in (lane.group, lane.name) if part)
            found[title, rank.number].add((at, value))
        for (component, measure), rows in scaled.items():
            for title in (measure, f"{component} {measure}"):
                found[title, rank.number] |= set(rows)
    return found


def most_computing(every):
    """The rank that computes longest per step and by how much, as the line of a merge says it;
    "" where that is less than means of steps scatter, four standard errors."""
    means = {}
    for rank, known in every.items():
        computing = [known.figures(step)["computing"] for step in known.measured()]
        if len(computing) >= 3 and fmean(computing) > 0:
            means[rank] = fmean(computing), variance(computing) / len(computing)
    if len(means) < 2:
        return ""
    slow = max(means, key=lambda rank: means[rank][0])
    own, unsure = means.pop(slow)
    usual = fmean(mean for mean, _ in means.values())
    unsure += sum(one for _, one in means.values()) / len(means) ** 2
    if own - usual <= 4 * sqrt(unsure):
        return ""
    return f"rank {slow} computes longest: {length(own)} per step; " + (
        f"the others {length(usual)} on average" if len(means) > 1 else f"the other {length(usual)}"
    )
