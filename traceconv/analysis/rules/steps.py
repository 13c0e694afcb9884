"""Rules of steps: pauses between them, their parts, the first one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from statistics import fmean, median
from typing import Any

import numpy as np

from traceconv.analysis.losses import EXPOSED, IDLE, PAUSE
from traceconv.analysis.rules.definition import (
    OWN,
    SLICES_KEPT,
    STEPS_KEPT,
    Case,
    Known,
    Limit,
    Limits,
    Rule,
    Severity,
    Slice,
    each_rank,
)
from traceconv.core.model import Kind, OpClass, Trace

THEME = "steps"
MINDSPORE = "MindSpore's profiler"

_PARTS = {
    "step": OpClass.ITERATION,
    "pause": OpClass.INTERVAL,
    "fp_bp": OpClass.FP_BP,
    "tail": OpClass.TAIL,
    "reduce": OpClass.REDUCE,
}
_ROWS = 1000  # of a part of a rank; more say the same
_FEWEST = 3  # steps whose median the first one is compared with

Part = Mapping[str, Any]


def _parts(trace: Trace) -> Known | None:
    """The steps and their parts: name, graph, step, start_ns and dur_ns of each."""
    events = trace.events
    found = {}
    for part, op in _PARTS.items():
        rows = np.flatnonzero((events.op == op) & (events.kind == Kind.SLICE) & (events.step >= 0))
        found[part] = [
            {
                "name": trace.strings[int(events.name[row])],
                "graph": int(events.graph[row]),
                "step": int(events.step[row]),
                "start_ns": int(events.start_ns[row]),
                "dur_ns": int(events.dur_ns[row]),
            }
            for row in rows[np.argsort(events.start_ns[rows], kind="stable")][:_ROWS].tolist()
        ]
    return found if found["step"] and not trace.issues.count("no-steps") else None


def _having(part: str) -> Any:
    def facts(trace: Trace) -> Known | None:
        found = _parts(trace)
        return found if found and found[part] else None

    return facts


def _iterations(trace: Trace) -> Known | None:
    """As :func:`_parts`, of ranks whose steps are marked, with the pauses between them.

    Iterations of a graph are; marks of the host touch each other, whatever the device does.
    """
    found = _parts(trace)
    marked = found and (found["pause"] or sum(row["graph"] >= 0 for row in found["step"]) > 1)
    return found if marked else None


def _by_graph(rows: Iterable[Part]) -> Iterator[tuple[int, list[Part]]]:
    for graph, group in groupby(sorted(rows, key=lambda r: r["graph"]), lambda r: r["graph"]):
        yield graph, list(group)


def _named(graph: int) -> str:
    return f"graph {graph}" if graph >= 0 else ""


def _shown(rows: Iterable[Part]) -> list[Slice]:
    """The longest rows."""
    chosen = sorted(rows, key=lambda r: -int(r["dur_ns"]))[:SLICES_KEPT]
    return [Slice(r["name"], r["start_ns"], r["dur_ns"]) for r in chosen]


def _pauses(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    for graph, rows in _by_graph(known["pause"]):
        lengths = [row["dur_ns"] for row in rows]
        value = fmean(lengths) / 1e6
        if value > limits[""]:
            long = [r["step"] for r in rows if r["dur_ns"] / 1e6 > limits[""]]
            steps = [s["dur_ns"] for s in known["step"] if s["graph"] == graph]
            figures = {
                "pauses": len(lengths),
                "median_ns": round(median(lengths)),
                "longest_ns": max(lengths),
                "step_mean_ns": round(fmean(steps)) if steps else 0,
            }
            yield Case(
                rank, value, figures, _named(graph), long[:STEPS_KEPT], _shown(rows),
                saves_ns=value * 1e6, part_of=(PAUSE,),
            )  # fmt: skip


def _share(part: str, *lost: str) -> Any:
    """Cases of graphs whose steps spend much of their time in one part.

    Args:
        lost: the classes of lost time in it that a step would save.
    """

    def test(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
        for graph, rows in _by_graph(known[part]):
            length = {s["step"]: s["dur_ns"] for s in known["step"] if s["graph"] == graph}
            rows = [r for r in rows if length.get(r["step"])]
            whole = sum(length[r["step"]] for r in rows)
            value = 100 * sum(r["dur_ns"] for r in rows) / whole if whole else 0.0
            if value > limits[""]:
                inside = {r["step"] for r in rows}
                reduce = sum(
                    r["dur_ns"]
                    for r in known["reduce"]
                    if r["graph"] == graph and r["step"] in inside
                )
                figures = {
                    "steps": len(rows),
                    "mean_ns": round(fmean(r["dur_ns"] for r in rows)),
                    "step_mean_ns": round(whole / len(rows)),
                    "reduce_percent": 100 * reduce / whole,
                }
                yield Case(
                    rank, value, figures, _named(graph), (), _shown(rows),
                    saves_ns=figures["mean_ns"] if lost else None, part_of=lost,
                )  # fmt: skip

    return test


def _first_facts(trace: Trace) -> Known | None:
    """Steps of the graphs whose first step is there, with others to compare it with."""
    found = _parts(trace)
    if not found:
        return None
    kept = [
        rows for _, rows in _by_graph(found["step"]) if rows[0]["step"] <= 1 and len(rows) > _FEWEST
    ]
    return {"graphs": kept} if kept else None


def _first(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    for rows in known["graphs"]:
        usual = median(row["dur_ns"] for row in rows[1:])
        value = rows[0]["dur_ns"] / usual if usual else 0.0
        if value > limits[""]:
            figures = {"first_ns": rows[0]["dur_ns"], "median_of_others_ns": round(usual)}
            where, step = _named(rows[0]["graph"]), rows[0]["step"]
            yield Case(rank, value, figures, where, (step,), _shown(rows[:1]))


RULES: tuple[Rule, ...] = (
    Rule(
        "iteration-gap",
        "Long pauses between iterations",
        THEME,
        "mean pause between two iterations",
        (Limit(0.5, "ms", MINDSPORE),),
        "iterations with the pauses between them (Ascend step trace)",
        "The device waits for data between steps: look at the queues and operators of data "
        "preparation.",
        _iterations,
        each_rank(_pauses),
    ),
    Rule(
        "forward-backward",
        "Steps are mostly forward and backward",
        THEME,
        "share of forward and backward in the steps",
        (Limit(80.0, "%", OWN),),
        "steps with forward and backward marked",
        "Operators decide on the step time: look at the slowest types of operators, and at what "
        "can be fused or run in lower precision.",
        _having("fp_bp"),
        each_rank(_share("fp_bp")),
        Severity.NOTE,
    ),
    Rule(
        "long-tail",
        "Much of a step comes after backward",
        THEME,
        "share of what follows backward (gradient reduction, optimizer) in the steps",
        (Limit(20.0, "%", OWN),),
        "steps with their tail marked",
        "Fuse the reduction of gradients into fewer operations, or split it so that it overlaps "
        "with backward.",
        _having("tail"),
        each_rank(_share("tail", EXPOSED, IDLE)),
    ),
    Rule(
        "first-step",
        "The first step takes much longer than the others",
        THEME,
        "length of the first step, in medians of the others",
        (Limit(2.0, "x", OWN),),
        "the first step of the run and at least three others",
        "Compilation, warm-up, or ranks that begin apart lie in it: cache compiled graphs, avoid "
        "shapes that change, and leave it out when steps are compared.",
        _first_facts,
        each_rank(_first),
        Severity.NOTE,
    ),
)
