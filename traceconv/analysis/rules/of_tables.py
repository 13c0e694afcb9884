"""Rules of losses that tables of ``traceconv stats`` show: ranges, graphs, sizes of collectives,
ranks of clusters without timelines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from traceconv.analysis.rank_facts import EXPOSED, IDLE
from traceconv.analysis.replay.job import WAITS
from traceconv.analysis.rules.definition import (
    OWN,
    Case,
    FindingSeverity,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    of_table,
    rows_of,
)
from traceconv.analysis.tables import collective, expert, graph, range
from traceconv.analysis.tables.collective import bus_bytes
from traceconv.analysis.tables.definition import RANK, Table
from traceconv.analysis.tables.stated_steps import stated_overlap
from traceconv.analysis.utilisation import measured
from traceconv.core.model import Trace
from traceconv.core.side_tables import ABSENT

_FEWEST = 10
"""Launches of a range, or operations of a size, that say something."""
_STEP = 0.9
"""A range of this part of the steps is the step."""


def _table(tables: Sequence[Table], name: str) -> Callable[[Trace], Known | None]:
    """The columns of a rank in a table, and its steps; None if it has none of either."""
    columns = of_table(tables, name)

    def facts(trace: Trace) -> Known | None:
        steps = measured(trace.steps)
        rows = columns(trace) if len(steps) and not trace.hints.partial_device else None
        return rows and {"rows": rows, "steps": len(steps), "steps_ns": int(steps.known_ns.sum())}

    return facts


# -- ranges ---------------------------------------------------------------------------------


def _launch_bound(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """The range within which the device is idle longest, among those as long on the host as on
    the device: there the device does what the host launches at once, and waits for the next. A
    range is left out that is not in every step, or is the step."""
    worst = max(
        (
            row for row in rows_of(facts["rows"])
            if row["Tasks"] >= _FEWEST * row["count"] and row["count"] >= facts["steps"]
            and row["total"] < _STEP * facts["steps_ns"]
            and row["total"] >= limits["host"] / 100 * row["Projected Time(ns)"]
        ),
        key=lambda row: row["Projected Time(ns)"] - row["Busy Time(ns)"],
        default=None,
    )  # fmt: skip
    if worst is None:
        return
    idle_ns = worst["Projected Time(ns)"] - worst["Busy Time(ns)"]
    value = 100 * idle_ns / facts["steps_ns"]
    if value > limits[""]:
        figures = {
            "idle_ns": idle_ns,
            "busy_ns": worst["Busy Time(ns)"],
            "host_ns": worst["total"],
            "launches": worst["Tasks"],
            "mean_task_ns": worst["Busy Time(ns)"] // worst["Tasks"],
        }
        gone = {IDLE: idle_ns / facts["steps"]}
        yield Case(rank, value, figures, str(worst["Range"])[:100], gone=gone)


# -- graphs ---------------------------------------------------------------------------------


def _unnamed(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    total, named_ns = (sum(facts["rows"][key]) for key in ("Total Time(ns)", "Named Time(ns)"))
    value = 100 * (total - named_ns) / total if total else 0.0
    if value > limits[""]:
        figures = {"unnamed_ns": total - named_ns, "replayed_ns": total}
        yield Case(rank, value, {**figures, "graphs": len(facts["rows"]["Graph"])})


# -- small messages -------------------------------------------------------------------------


def _small(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """Messages of at most ``size`` that move fewer bytes per time than half of the best of their
    group and kind. The shortest operation of each size waits least for others."""
    alike: dict[tuple[str, str], list[dict[str, int]]] = defaultdict(list)
    for row in rows_of(facts["rows"]):
        if row["low"] > 0:
            alike[row["Group"], row["Operation"]].append(row)
    spent = lost = least = 0.0
    count = 0
    for rows in alike.values():
        best = max(row["Message(B)"] / row["low"] for row in rows)
        for row in rows:
            least += row["count"] * row["low"]
            small = row["Message(B)"] <= limits["size"] * 1e6
            if small and best and row["Message(B)"] / row["low"] < best / 2:
                spent += row["count"] * row["low"]
                lost += row["count"] * (row["low"] - row["Message(B)"] / best)
                count += row["count"]
    value = 100 * spent / least if least else 0.0
    if count >= _FEWEST and value > limits[""]:
        figures = {"operations": count, "transfer_ns": round(spent), "lost_ns": round(lost)}
        yield Case(rank, value, figures, gone={EXPOSED: lost / facts["steps"]})


# -- slow links within a node ------------------------------------------------------------------


def _below_link(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    """Large messages by the share of the links' peak that their shortest operation reaches, each
    weighted by its time; and what operations take longer than at the threshold."""
    spent = weighted = lost = 0.0
    for row in rows_of(known["rows"]):
        if row["link"] == ABSENT or row["low"] <= 0 or row["Message(B)"] < limits["size"] * 1e6:
            continue
        of_peak = 100 * bus_bytes(row) / row["low"] / (row["link"] / 1000)
        ns = row["count"] * row["low"]
        spent, weighted = spent + ns, weighted + ns * of_peak
        lost += ns * max(1 - of_peak / limits[""], 0.0)
    if spent and weighted / spent < limits[""]:
        figures = {"transfer_ns": round(spent), "lost_ns": round(lost)}
        yield Case(rank, weighted / spent, figures, gone={EXPOSED: lost / known["steps"]})


# -- experts --------------------------------------------------------------------------------


def _uneven(facts_by_rank: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    """The rank of each group that gets most rows, against the mean of the group."""
    loads: dict[str, dict[int, int]] = defaultdict(dict)
    for rank, facts in facts_by_rank.items():
        for group, routed in zip(facts["Group"], facts["Routed"], strict=True):
            loads[group][rank] = routed
    for group, routed in loads.items():
        mean = sum(routed.values()) / len(routed)
        busiest = max(routed, key=routed.__getitem__)
        value = 100 * (routed[busiest] / mean - 1) if mean and len(routed) > 1 else 0.0
        if value > limits[""]:
            figures = {"routed": routed[busiest], "mean": round(mean), "ranks": len(routed)}
            yield Case(busiest, value, figures, group)


# -- ranks of cluster tables ------------------------------------------------------------------

_FEWEST_RANKS = 3
"""Ranks of a table; of two that differ, either can be the unusual one."""


def _own_times(trace: Trace) -> Known | None:
    """Mean times per step of every rank in the table: outside of communication, and in all."""
    overlap = stated_overlap(trace)
    if not overlap or RANK not in overlap:
        return None
    ranks, codes = np.unique(overlap[RANK], return_inverse=True)
    if len(ranks) < _FEWEST_RANKS or ranks[0] < 0:
        return None
    steps = np.bincount(codes)
    own_ns = np.bincount(codes, overlap["known_ns"] - overlap["not_overlapped_ns"]) / steps
    return {
        "ranks": ranks.tolist(),
        "own_ns": own_ns.tolist(),
        "step_ns": float((np.bincount(codes, overlap["known_ns"]) / steps).max()),
    }


def _slow_rank(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """The rank with the longest own time: the others wait until the next slowest rank is ready."""
    order = np.argsort(facts["own_ns"])
    slowest, next_slowest = (facts["own_ns"][i] for i in (order[-1], order[-2]))
    value = 100 * (slowest - next_slowest) / facts["step_ns"] if facts["step_ns"] > 0 else 0.0
    if value > limits[""]:
        figures = {
            "own_ns": round(slowest),
            "next_slowest_ns": round(next_slowest),
            "median_ns": round(float(np.median(facts["own_ns"]))),
            "step_ns": round(facts["step_ns"]),
        }
        where = f"rank {facts['ranks'][order[-1]]}"
        saves = slowest - next_slowest
        yield Case(rank, value, figures, where, gone={WAITS: saves})


RULES: tuple[Rule, ...] = (
    Rule(
        "slow-rank",
        "One rank takes longer than all others, by the table of cluster tools",
        "ranks",
        "share of the time per step by which it computes longer than the next slowest rank",
        (Limit(1.0, "%", OWN),),
        "cluster_step_trace_time or cluster_time_summary of at least three ranks, without their "
        "timelines",
        "Profile this rank: only its timeline shows whether input, computing or the host is slow.",
        _own_times,
        each_rank(_slow_rank),
    ),
    Rule(
        "expert-imbalance",
        "One rank gets more rows by all-to-all than the others of its group",
        "communication",
        "share by which the rank with most rows (tokens of its experts) is above the mean",
        (Limit(20.0, "%", OWN),),
        "collectives that state split sizes, of two ranks or more",
        "Balance the experts: an auxiliary loss, a capacity factor, or redundant copies of the "
        "most used experts.",
        of_table(expert.TABLES, "expert"),
        _uneven,
        fewest=2,
    ),
    Rule(
        "launch-bound-range",
        "The device waits within a range for the host to launch",
        "host",
        "share of the steps in which the device is idle between the first and the last task "
        "launched within the range",
        (
            Limit(5.0, "%", OWN),
            Limit(
                80.0,
                "%",
                OWN,
                "host",
                measure="of the time on the device that its launches take on the host",
            ),
        ),
        "ranges or modules (NVTX, record_function, nn.Module) with launch flows, in every step, of "
        "ten launches or more each",
        "Launch less in this range: compile it or capture it as a graph, fuse its small kernels, "
        "and avoid synchronisations in it.",
        _table(range.TABLES, "range"),
        each_rank(_launch_bound),
    ),
    Rule(
        "unnamed-graph-time",
        "Kernels of replayed graphs have no known operator",
        "operators",
        "share of the replayed device time without operator and module",
        (Limit(1.0, "%", OWN),),
        "replays of graphs",
        "Keep the trace of the graph capture in the folder of the profile, or record graph nodes "
        "(nsys --cuda-graph-trace=node).",
        _table(graph.TABLES, "graph"),
        each_rank(_unnamed),
        severity=FindingSeverity.NOTE,
    ),
    Rule(
        "small-messages",
        "Collectives of small messages take much of the communication",
        "communication",
        "share of the transfer time (shortest time of each size x count) in small messages that "
        "reach less than half of the best rate of their group and kind",
        (
            Limit(20.0, "%", OWN),
            Limit(1.0, "MB", OWN, "size", measure="largest small message"),
        ),
        "collectives with sizes of PyTorch or HCCL (table collective)",
        "Send fewer, larger messages: larger buckets (bucket_cap_mb of DDP), coalesced "
        "collectives, fewer separate tensors.",
        _table(collective.TABLES, "collective"),
        each_rank(_small),
    ),
    Rule(
        "slow-node-links",
        "Collectives within a node are far below what its links carry",
        "communication",
        "bus bandwidth of the shortest operation of each size of large messages, of the peak of "
        "the links of a device in one direction; mean by time",
        (
            Limit(40.0, "%", OWN, below=True),
            Limit(16.0, "MB", OWN, "size", measure="smallest large message"),
        ),
        "collectives with sizes and ranks of PyTorch, all in one node of GPUs whose links are "
        "known (table collective)",
        "Check that NCCL uses NVLink and all channels (NCCL_DEBUG=INFO), and that nothing else "
        "takes the links or the devices meanwhile.",
        _table(collective.TABLES, "collective"),
        each_rank(_below_link),
    ),
)
