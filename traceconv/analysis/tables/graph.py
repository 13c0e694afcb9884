"""Tables of replayed graphs (CUDA and HIP graphs), and of the operators their kernels are of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    TIMED,
    Column,
    Ranked,
    Table,
    grouped,
    ordered,
    stacked,
    timed,
)
from traceconv.analysis.tables.fields import fields, names_of
from traceconv.analysis.tables.groups import Groups, mean, share
from traceconv.core.model import Trace
from traceconv.core.side_tables import Columns
from traceconv.passes.graph_replays import KNOWN, replays


def _graph_facts(trace: Trace) -> Columns:
    replayed = replays(trace)
    if not replayed:
        return NOTHING
    time, graph = trace.events.dur_ns[replayed.rows], replayed.graphs
    operator, module, known_by = fields(
        trace, replayed.rows, "operator", "module", "operator known by"
    )
    is_named = operator.known | module.known
    groups = Groups.of(graph)
    ways = {way: groups.total(np.where(known_by.among(way) & is_named, time, 0)) for way in KNOWN}
    texts = [", ".join(way for way in KNOWN if ways[way][i]) for i in range(len(groups))]
    launches = np.bincount(replayed.graph)
    return {
        "Graph": graph[groups.first],
        "Nodes": groups.size // launches,
        "Replays": launches,
        "Total Time(ns)": groups.total(time),
        "Named Time(ns)": np.sum([*ways.values()], axis=0),
        "Known By": np.array(texts, object),
    }


def _graphs(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    groups = Groups.of(rows[RANK])
    rank_ns = groups.spread(groups.total(rows["Total Time(ns)"]))
    return {
        **rows,
        "Avg Time(ns)": mean(rows["Total Time(ns)"], rows["Replays"]),
        "Ratio(%)": share(rows["Total Time(ns)"], rank_ns),
        "Named(%)": share(rows["Named Time(ns)"], rows["Total Time(ns)"]),
    }


def _node_facts(trace: Trace) -> Columns:
    replayed = replays(trace)
    if not replayed:
        return NOTHING
    rows = replayed.rows
    operator, module, known_by = fields(trace, rows, "operator", "module", "operator known by")
    keys = {"Graph": replayed.graphs, "Node": replayed.node, "Kernel": names_of(trace, rows),
            "Operator": operator, "Module": module, "Known By": known_by}  # fmt: skip
    return grouped(trace.events.dur_ns[rows], keys)


def _nodes(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    return ordered(rows, rows["Graph"], rows["Node"])


TABLES: Sequence[Table] = (
    Table(
        "graph",
        "Replays of graphs (CUDA, HIP)",
        "Device work of the calls that launch a graph. Graphs differ in the names of their "
        "kernels or in the batch size they were captured for, and numbered in the order of their "
        "first replay. Nodes = device rows of a replay; Replays = launches; Total = sum of the "
        "durations of all rows; Avg = Total / Replays; Ratio = Total / sum of all Totals of the "
        "rank. Named = the part of Total whose framework operator or module is known. Known By: "
        f"from the recorded id of the node ({KNOWN[0]}), from a trace of the capture with the same "
        f"kernels ({KNOWN[1]}) or with some others ({KNOWN[2]}), or, where such a trace names no "
        f"kernels, from their order ({KNOWN[3]}).",
        "launches of graphs with the device work they ran",
        Column.parse(
            "Rank, Graph, Nodes, Replays, Total Time(ns), Avg Time(ns), Ratio(%), Named(%), "
            "Named Time(ns), Known By:text"
        ),
        _graph_facts,
        _graphs,
    ),
    Table(
        "graph_node",
        "Nodes of replayed graphs",
        "Device rows of the graphs above by graph and node: a node is numbered by where it was in "
        "the first replay, and found again by its name and its place among those of its name. "
        "Operator, Module and Known By as above, empty where unknown; Count = replays; Total, Min, "
        "Avg and Max of durations; Ratio = Total / sum of all Totals of the rank.",
        "launches of graphs with the device work they ran",
        Column.parse(
            f"Rank, Graph, Node, Kernel:text, Operator:text, Module:text, Known By:text, {TIMED}"
        ),
        _node_facts,
        _nodes,
        capped=True,
    ),
)  # fmt: skip
