"""Tables of replayed graphs (CUDA, HIP and ACL), and of the operators their kernels are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    texts,
    timed,
)
from traceconv.analysis.tables.fields import fields, is_ascend, names_of, operator_columns
from traceconv.analysis.tables.groups import Groups, mean, share
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import once_each
from traceconv.core.model import OpClass, Trace
from traceconv.core.side_tables import Columns
from traceconv.passes.graph_replays import KNOWN, replays

_CLASSES = (OpClass.COMPUTE, OpClass.COMM, OpClass.COPY, OpClass.UNCLASSIFIED)
_RECORDED = "recorded task"
"""How operators of ACL graphs are known: tasks of NPUs carry their names."""
_KEYS = ("Graph", "Node", "Kernel", "Operator", "Module", "Known By")


@once_each
def _nodes_of(trace: Trace) -> tuple[NDArray[np.intp], dict[str, Any]] | None:
    """Device rows that graphs ran, and :data:`_KEYS` of each."""
    if replayed := replays(trace):
        rows = replayed.rows
        described = fields(trace, rows, "operator", "module", "operator known by")
        keys = (replayed.graphs, replayed.node, names_of(trace, rows), *described)
        return rows, dict(zip(_KEYS, keys, strict=True))
    rows = kernels(trace, *_CLASSES) if is_ascend(trace) else np.zeros(0, np.intp)
    rows = rows[trace.events.graph[rows] >= 0]
    if not len(rows):
        return None
    # a task of a stream has its number in every replay; nodes are numbered by their first start
    rows = rows[np.argsort(trace.events.start_ns[rows], kind="stable")]
    events, (number,) = trace.events, fields(trace, rows, "Task Id")
    model = events.graph[rows].astype(np.int64)
    groups = Groups.of(model, events.track[rows], number.numbers(), events.name[rows])
    in_time = np.lexsort((groups.first, model[groups.first]))
    node = np.argsort(in_time) - np.searchsorted(model[groups.first][in_time], model[groups.first])
    kinds, n = operator_columns(trace, rows)["OP Type"], len(rows)
    named = (names_of(trace, rows), kinds, Texts.same("", n), Texts.same(_RECORDED, n))
    return rows, dict(zip(_KEYS, (model, groups.spread(node), *named), strict=True))


def _graph_facts(trace: Trace) -> Columns:
    found = _nodes_of(trace)
    if found is None:
        return NOTHING
    rows, keys = found
    time, known_by = trace.events.dur_ns[rows], keys["Known By"]
    is_named = keys["Operator"].known | keys["Module"].known | known_by.among(_RECORDED)
    groups, nodes = Groups.of(keys["Graph"]), Groups.of(keys["Graph"], keys["Node"])
    graphs = Groups.of(keys["Graph"][nodes.first])
    ways = {way: groups.total(np.where(known_by.among(way) & is_named, time, 0))
            for way in (*KNOWN, _RECORDED)}  # fmt: skip
    return {
        "Graph": keys["Graph"][groups.first],
        "Nodes": graphs.size,
        "Replays": graphs.high(nodes.size),
        "Total Time(ns)": groups.total(time),
        "Named Time(ns)": np.sum([*ways.values()], axis=0),
        "Known By": texts([", ".join(way for way in ways if ways[way][i])
                           for i in range(len(groups))]),
    }  # fmt: skip


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
    found = _nodes_of(trace)
    return grouped(trace.events.dur_ns[found[0]], found[1]) if found else NOTHING


def _nodes(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    return ordered(rows, rows["Graph"], rows["Node"])


TABLES: Sequence[Table] = (
    Table(
        "graph",
        "Replays of graphs (CUDA, HIP, ACL)",
        "Device work of the calls that launch a graph. Graphs differ in the names of their "
        "kernels or in the batch size they were captured for, and are numbered in the order of "
        "their first replay; on NPUs Graph = the id of the model (ACL graphs, graphs of GE) that "
        "tasks state. Nodes = device rows of a replay; Replays = how often a node ran; Total = sum "
        "of the durations of all rows; Avg = Total / Replays; Ratio = Total / sum of all Totals of "
        "the rank. Named = the part of Total whose framework operator or module is known. Known "
        f"By: from the recorded id of the node ({KNOWN[0]}), from a trace of the capture with the "
        f"same kernels ({KNOWN[1]}) or with some others ({KNOWN[2]}), or, where such a trace names "
        f"no kernels, from their order ({KNOWN[3]}); tasks of NPUs carry the names of their "
        f"operators ({_RECORDED}).",
        "launches of graphs with the device work they ran; tasks of NPUs with the id of a model",
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
        "launches of graphs with the device work they ran; tasks of NPUs with the id of a model",
        Column.parse(
            f"Rank, Graph, Node, Kernel:text, Operator:text, Module:text, Known By:text, {TIMED}"
        ),
        _node_facts,
        _nodes,
        capped=True,
    ),
)  # fmt: skip
