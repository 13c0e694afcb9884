"""Rules from tables, by the tables recomputed here."""

from collections import defaultdict

from .figures import JOB

_FEWEST = 10


def findings(tables, every):
    """(rule, rank, where) and figures, whatever the value."""
    found = {}
    for rank, known in every.items():
        steps = known.measured()
        known_ns = sum(known.figures(step)["known"] for step in steps)
        if steps and not known.fact.partial:
            for rule, where, figures in (
                *_ranges(tables["range"], rank, len(steps), known_ns),
                *_graphs(tables["graph"], rank), *_messages(tables["collective"], rank),
            ):  # fmt: skip
                found[rule, rank, where] = figures
    found.update(_experts(tables["expert"]))
    return found


def _ranges(table, rank, steps, known_ns):
    rows = {}
    for (of, name, _), row in table.items():
        tasks, host, count = row["Tasks"], row["Total Time(ns)"], row["Count"]
        often = of == rank and count >= steps and tasks is not None and tasks >= _FEWEST * count
        if often and 0.8 * row["Projected Time(ns)"] <= host < 0.9 * known_ns:
            rows[name] = row
    idle = {name: row["Projected Time(ns)"] - row["Busy Time(ns)"] for name, row in rows.items()}
    worst = [name for name in idle if idle[name] == max(idle.values())]
    if len(worst) == 1:
        (name,) = worst
        row = rows[name]
        yield "launch-bound-range", name[:100], {
            "value": 100 * idle[name] / known_ns, "idle_ns": idle[name],
            "busy_ns": row["Busy Time(ns)"], "host_ns": row["Total Time(ns)"],
            "launches": row["Tasks"], "mean_task_ns": row["Busy Time(ns)"] // row["Tasks"],
        }  # fmt: skip


def _graphs(table, rank):
    rows = [row for (of, _), row in table.items() if of == rank]
    total = sum(row["Total Time(ns)"] for row in rows)
    if total:
        left = total - sum(row["Named Time(ns)"] for row in rows)
        yield "unnamed-graph-time", "", {
            "value": 100 * left / total, "unnamed_ns": left, "replayed_ns": total,
            "graphs": len(rows),
        }  # fmt: skip


def _messages(table, rank):
    alike = defaultdict(list)
    for (of, group, does, _, size), row in table.items():
        if of == rank and row["Min Time(ns)"] > 0:
            alike[group, does].append((size, row["Count"], row["Min Time(ns)"]))
    count = spent = lost = every = 0
    for rows in alike.values():
        best = max(size / ns for size, _, ns in rows)
        for size, n, ns in rows:
            every += n * ns
            if size <= 1e6 and best and size / ns < best / 2:
                count, spent, lost = count + n, spent + n * ns, lost + n * (ns - size / best)
    if count >= _FEWEST:
        yield "small-messages", "", {
            "value": 100 * spent / every, "operations": count, "transfer_ns": round(spent),
            "lost_ns": round(lost),
        }  # fmt: skip


def _experts(table):
    groups = defaultdict(dict)
    for (rank, group), row in table.items():
        if rank is not JOB:
            groups[group][rank] = row["Routed"]
    for group, routed in groups.items():
        mean, most = sum(routed.values()) / len(routed), max(routed.values())
        first = [rank for rank, rows in routed.items() if rows == most]
        if mean and len(routed) > 1 and len(first) == 1:
            yield ("expert-imbalance", first[0], group), {
                "value": 100 * (most / mean - 1), "routed": most, "mean": round(mean),
                "ranks": len(routed),
            }  # fmt: skip
