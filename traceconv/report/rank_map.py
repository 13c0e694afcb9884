"""The map of a job, ranks by steps, and the changes that its replay can answer: for exploring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from glob import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.rank_facts import SORTS
from traceconv.analysis.replay.job import Replay
from traceconv.analysis.replay.operations import COLLECTOR, COMPUTE, COPY, HOST, INPUT
from traceconv.analysis.statistics import over_others

CAUSES = ("computing", "copies", "host", "input", "garbage collection")
"""Causes of a longer step of a rank, as :data:`~traceconv.analysis.rank_facts.SORTS`."""

KERNELS = 8
"""Kernels with a slider: those that take most time."""

_CLASSES = (
    ("input", INPUT, "waiting for input"), ("host", HOST, "host time"),
    ("gc", COLLECTOR, "garbage collection"), ("copy", COPY, "copies"),
)  # fmt: skip


def rank_map(replay: Replay) -> dict[str, Any]:
    """Figures by rank and step, as rows of ranks; None where nothing is known.

    ``excess_ns`` is what a rank takes longer by itself than its peers (less than nothing if it is
    faster), ``cause`` what accounts for most of that, an index of ``causes``; ``waiting_ns`` is how
    long it waits for others in communication, ``own_ns`` the time it takes by itself.
    """
    graph, own_work = replay.graph, replay.own
    shape = len(graph.steps), len(graph.ranks)
    cell = graph.step.astype(np.int64) * shape[1] + graph.rank
    waits = np.where(graph.kind >= 0, graph.end_ns - graph.start_ns - graph.length_ns, 0.0)
    waiting = np.bincount(cell, np.clip(waits, 0, None), shape[0] * shape[1]).reshape(shape)
    excess_by_sort = np.zeros(own_work.parts.shape)
    for role in np.unique(own_work.roles).tolist():
        members = own_work.members(role)
        for sort in range(len(SORTS)):
            excess_by_sort[:, members, sort] = np.nan_to_num(
                over_others(own_work.parts[:, members, sort])
            )
    is_known = ~np.isnan(own_work.table)
    cause = np.where(is_known & (excess_by_sort.max(axis=2) > 0), excess_by_sort.argmax(axis=2), -1)
    labels = [replay.shape.label(rank) for rank in graph.ranks]
    return {
        "ranks": list(graph.ranks),
        "labels": labels if any(labels) else None,
        "steps": [{"window": w, "step": s} for w, s in graph.steps.tolist()],
        "step_ns": [round(ns) for ns in graph.recorded_ns.tolist()],
        "causes": list(CAUSES),
        "excess_ns": _rows(own_work.excess),
        "cause": _rows(np.where(cause < 0, np.nan, cause)),
        "waiting_ns": _rows(np.where(is_known, waiting, np.nan)),
        "own_ns": _rows(own_work.table),
    }


def _rows(values: NDArray[Any]) -> list[list[int | None]]:
    """(steps, ranks) as rows of ranks, in whole numbers."""
    rounded: list[list[int | None]] = np.rint(np.nan_to_num(values)).astype(np.int64).T.tolist()
    for column, row in zip(
        *(index.tolist() for index in np.nonzero(np.isnan(values))), strict=True
    ):
        rounded[row][column] = None
    return rounded


def knobs(replay: Replay, overview: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The changes that ``traceconv what-if`` knows and that concern something in the job.

    Each has a ``label``, and a ``change``; ``{}`` in it is a factor; a factor of 1 changes
    nothing.

    Args:
        overview: of the report.
    """
    verdict = overview["straggler"]
    for culprit in (verdict["culprit"], *verdict["others"]):
        if culprit:
            label = f"rank {culprit['rank']} like its peers"
            yield {"label": label, "change": f"rank:{culprit['rank']}=peers"}
    yield {"label": "equal work on all ranks", "change": "rank:*=peers"}
    if replay.balanced is not None:
        yield {"label": "equal work in all stages", "change": "stage:balanced"}
    kinds = sorted({kind for kind, _, _ in replay.graph.kinds if _is_typed(kind)})
    if kinds:
        yield {"label": "communication hidden", "change": "comm:* overlap"}
        yield {"label": "all communication", "change": "comm:* x{}"}
    for kind in kinds if len(kinds) > 1 else ():
        yield {"label": kind, "change": f"comm:{escape(kind)} x{{}}"}
    graph = replay.graph
    total = graph.delays_by_cause.sum(axis=0)
    total += np.bincount(graph.sorts[graph.name], graph.part_ns, len(total))
    for name, sort, label in _CLASSES:
        if total[sort] > 0:
            yield {"label": label, "change": f"{name}:x{{}}"}
    if graph.host_ns[replay.openings & (graph.step > 0)].sum() > 0:
        yield {"label": "gaps between steps", "change": "pause:x{}"}
    of_name = np.bincount(graph.name, graph.part_ns, len(graph.names))
    of_name[~np.isin(graph.sorts, (COMPUTE, COPY))] = 0
    for number in np.argsort(-of_name, kind="stable")[:KERNELS].tolist():
        name = graph.names[number]
        if of_name[number] > 0 and _is_typed(name):
            yield {"label": name, "change": f"op:{escape(name)} x{{}}"}


def _is_typed(name: str) -> bool:
    """Whether a name is safe in a change that people copy into a terminal: nothing in it acts on
    the terminal or turns the text around, and no part is taken for the factor."""
    return name.isprintable() and "{" not in name
