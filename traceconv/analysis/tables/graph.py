"""Tables of replayed graphs (CUDA, HIP and ACL), and of the operators their kernels are of."""

from __future__ import annotations

from collections.abc import Sequence

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
    timed,
)
from traceconv.analysis.tables.fields import fields, is_ascend, names_of, operator_columns
from traceconv.analysis.tables.groups import Groups, mean, share
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import I64
from traceconv.core.model import OpClass, Trace
from traceconv.core.side_tables import Columns
from traceconv.passes.graph_replays import KNOWN, replays

_CLASSES = (OpClass.COMPUTE, OpClass.COMM, OpClass.COPY, OpClass.UNCLASSIFIED)
_RECORDED = "recorded task"
"""How operators of ACL graphs are known: tasks of NPUs carry their names."""


def _tasks(trace: Trace) -> tuple[NDArray[np.intp], I64, I64] | None:
    """Tasks of NPUs that belong to a model (ACL graphs, graphs of GE), the model of each, and its
    node, by the first start in the model: a task of a stream has its number in every replay."""
    rows = kernels(trace, *_CLASSES) if is_ascend(trace) else np.zeros(0, np.intp)
    rows = rows[trace.events.graph[rows] >= 0]
    if not len(rows):
        return None
    rows = rows[np.argsort(trace.events.start_ns[rows], kind="stable")]
    events, (number,) = trace.events, fields(trace, rows, "Task Id")
    model = events.graph[rows].astype(np.int64)
    groups = Groups.of(model, events.track[rows], number.numbers(), events.name[rows])
    in_time = np.lexsort((groups.first, model[groups.first]))
    node = np.empty(len(groups), np.int64)
    node[in_time] = np.arange(len(groups))
    first_of_model = np.searchsorted(model[groups.first][in_time], model)
    return rows, model, groups.spread(node) - first_of_model


def _model_facts(trace: Trace) -> Columns:
    found = _tasks(trace)
    if found is None:
        return NOTHING
    rows, model, node = found
    nodes, models = Groups.of(model, node), Groups.of(model)
    by_model = Groups.of(model[nodes.first])
    total = models.total(trace.events.dur_ns[rows])
    return {
        "Graph": model[models.first],
        "Nodes": by_model.size,
        "Replays": by_model.high(nodes.size),
        "Total Time(ns)": total,
        "Named Time(ns)": total,
        "Known By": np.full(len(models), _RECORDED, object),
    }


def _model_node_facts(trace: Trace) -> Columns:
    found = _tasks(trace)
    if found is None:
        return NOTHING
    rows, model, node = found
    known_by = Texts.same(_RECORDED, len(rows))
    keys = {"Graph": model, "Node": node, "Kernel": names_of(trace, rows),
            "Operator": operator_columns(trace, rows)["OP Type"],
            "Module": Texts.same("", len(rows)), "Known By": known_by}  # fmt: skip
    return grouped(trace.events.dur_ns[rows], keys)


def _graph_facts(trace: Trace) -> Columns:
    replayed = replays(trace)
    if not replayed:
        return _model_facts(trace)
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
        return _model_node_facts(trace)
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
        "Replays of graphs (CUDA, HIP, ACL)",
        "Device work of the calls that launch a graph. Graphs differ in the names of their "
        "kernels or in the batch size they were captured for, and numbered in the order of their "
        "first replay. Nodes = device rows of a replay; Replays = launches; Total = sum of the "
        "durations of all rows; Avg = Total / Replays; Ratio = Total / sum of all Totals of the "
        "rank. Named = the part of Total whose framework operator or module is known. Known By: "
        f"from the recorded id of the node ({KNOWN[0]}), from a trace of the capture with the same "
        f"kernels ({KNOWN[1]}) or with some others ({KNOWN[2]}), or, where such a trace names no "
        f"kernels, from their order ({KNOWN[3]}). On NPUs Graph = the id of the model (ACL graphs, "
        "graphs of GE) that tasks state, Replays = how often a task of it ran, and tasks carry the "
        f"names of their operators ({_RECORDED}).",
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
