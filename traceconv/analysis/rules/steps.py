"""Rules of steps: pauses between them, their parts, the first one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.losses import COMPUTING, COPIES, EXPOSED, IDLE, INPUT, PAUSE
from traceconv.analysis.rules.definition import (
    OWN,
    SLICES_KEPT,
    STEPS_KEPT,
    Case,
    FindingSeverity,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    longest,
    slices,
)
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import once_each
from traceconv.core.intervals import length_within, union
from traceconv.core.model import I64, Covered, Kind, Mask, OpClass, StepSource, StepTable, Trace
from traceconv.core.robust import median
from traceconv.passes.attribution import occurrence

THEME = "steps"
MINDSPORE = "MindSpore's profiler"

_PARTS = {
    "pause": OpClass.INTERVAL,
    "fp_bp": OpClass.FP_BP,
    "tail": OpClass.TAIL,
    "reduce": OpClass.REDUCE,
}
_FEWEST = 3  # steps whose median the first one is compared with

Graph = Mapping[str, Any]
"""The steps of one graph, by start: ``graph``, -1 if they are of none; ``step`` and ``dur_ns`` of
each; ``lasts_ns``: of steps that the host marked the device window, where it was recorded, for a
host may be steps ahead; of every part what of them it takes, ns, -1 where none is marked
(``pause``: before the step; ``reduce``: the time in which any collective runs); ``longest``: slices
by part."""


@once_each
def _parts(trace: Trace) -> Known | None:
    """The steps that are marked, and their parts, by graph."""
    events, steps = trace.events, trace.steps.take(trace.steps.source != StepSource.WHOLE_RANGE)
    if not len(steps) or trace.hints.partial_device:
        return None
    slices_of = {
        part: (events.op == op) & (events.kind == Kind.SLICE) & (events.step >= 0)
        for part, op in (*_PARTS.items(), ("step", OpClass.ITERATION))
    }
    found = []
    for graph in np.unique(steps.graph).tolist():
        own, of_graph = steps.take(steps.graph == graph), events.graph == graph
        rows = {part: np.flatnonzero(mask & of_graph) for part, mask in slices_of.items()}
        first = rows["step"][np.argsort(events.start_ns[rows["step"]], kind="stable")[:1]]
        found.append(
            {
                "graph": graph,
                "step": own.step.tolist(),
                "dur_ns": own.dur_ns.tolist(),
                "lasts_ns": np.where(_by_host(own), own.device_dur_ns, own.dur_ns).tolist(),
                **{part: _taken(trace, own, part, rows[part]).tolist() for part in _PARTS},
                "longest": {part: longest(trace, mine) for part, mine in rows.items()},
                "first": longest(trace, first),
            }
        )
    return {"graphs": found}


def _by_host(steps: StepTable) -> Mask:
    """Steps that the host marked and whose device work was recorded."""
    marked: Mask = (steps.source == StepSource.HOST_MARKS) & (steps.covered == Covered.TIMELINE)
    return marked


def _taken(trace: Trace, steps: StepTable, part: str, rows: NDArray[np.intp]) -> I64:
    """How long a part of each step takes, ns; -1 where it is not marked."""
    events = trace.events
    # a pause comes before its step, and numbers may start over: its end says which one it is
    time = (events.end_ns if part == "pause" else events.start_ns)[rows]
    at = occurrence(steps, events.step[rows], time)
    rows, at = rows[at >= 0], at[at >= 0]
    taken = np.zeros(len(steps), np.int64)
    if part == "reduce":  # on several streams at once
        every = union(events.start_ns[rows], events.ends(rows))
        taken = length_within(every, np.stack((steps.start_ns, steps.end_ns), axis=1))
    else:
        np.add.at(taken, at, events.dur_ns[rows])
    return np.where(np.bincount(at, minlength=len(steps)) > 0, taken, -1)


def _with(part: str) -> Any:
    """What is known of ranks that mark a part."""

    def facts(trace: Trace) -> Known | None:
        found = _parts(trace)
        there = found and [one for one in found["graphs"] if max(one[part]) >= 0]
        return {"graphs": there} if there else None

    return facts


def _iterations(trace: Trace) -> Known | None:
    """As :func:`_parts`, of ranks whose steps are marked, with the pauses between them.

    Iterations of a graph are; marks of the host touch each other, whatever the device does.
    """
    found = _parts(trace)
    graphs = found["graphs"] if found else ()
    paused = any(max(one["pause"]) >= 0 for one in graphs)
    several = sum(len(one["step"]) for one in graphs if one["graph"] >= 0) > 1
    return found if paused or several else None


def _named(graph: int) -> str:
    return f"graph {graph}" if graph >= 0 else ""


def _pauses(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    for one in known["graphs"]:
        lengths = [ns for ns in one["pause"] if ns >= 0]
        if not lengths:
            continue
        value = fmean(lengths) / 1e6
        if value > limits[""]:
            pairs = zip(one["step"], one["pause"], strict=True)
            long = [step for step, ns in pairs if ns / 1e6 > limits[""]]
            figures = {
                "pauses": len(lengths),
                "median_ns": round(float(median(lengths))),
                "longest_ns": max(lengths),
                "step_mean_ns": round(fmean(one["dur_ns"])),
            }
            yield Case(
                rank, value, figures, _named(one["graph"]), long[:STEPS_KEPT],
                slices(one["longest"]["pause"]), saves_ns=value * 1e6, part_of=(PAUSE,),
            )  # fmt: skip


def _share(part: str, *lost: str) -> Any:
    """Cases of graphs whose steps spend much of their time in one part.

    Args:
        lost: the classes of lost time in it that a step would save.
    """

    def test(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
        for one in known["graphs"]:
            columns = (one["dur_ns"], one[part], one["reduce"])
            rows = [row for row in zip(*columns, strict=True) if row[0] > 0 and row[1] >= 0]
            whole = sum(length for length, _, _ in rows)
            value = 100 * sum(taken for _, taken, _ in rows) / whole if whole else 0.0
            if rows and value > limits[""]:
                reduced = [ns for _, _, ns in rows if ns >= 0]
                figures = {
                    "steps": len(rows),
                    "mean_ns": round(fmean(taken for _, taken, _ in rows)),
                    "step_mean_ns": round(whole / len(rows)),
                }
                if len(reduced) == len(rows):
                    figures["reduce_percent"] = 100 * sum(reduced) / whole
                yield Case(
                    rank, value, figures, _named(one["graph"]), (), slices(one["longest"][part]),
                    saves_ns=figures["mean_ns"] if lost else None, part_of=lost,
                )  # fmt: skip

    return test


def _first_facts(trace: Trace) -> Known | None:
    """Steps of the graphs that have some to compare the first one with, whatever its number is: a
    capture may begin at any step, and what is cold then is so in its first."""
    found = _parts(trace)
    if not found:
        return None
    kept = [one for one in found["graphs"] if len(one["step"]) > _FEWEST]
    return {"graphs": kept} if kept else None


def _first(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    for one in known["graphs"]:
        first, *others = one["lasts_ns"]
        usual = float(median(others))
        value = first / usual if usual else 0.0
        if value > limits[""]:
            figures = {"first_ns": first, "median_of_others_ns": round(usual)}
            where, step = _named(one["graph"]), one["step"][0]
            yield Case(rank, value, figures, where, (step,), slices(one["first"]))


# -- spikes -------------------------------------------------------------------------------

_CLASSES = {"computing_ns": COMPUTING, "not_overlapped_ns": EXPOSED, "free_ns": IDLE,
            "copy_not_overlapped_ns": COPIES}  # fmt: skip


def _windows(trace: Trace) -> Known | None:
    """The measured steps but the first, which may be another kind of step; the rest of at least
    five."""
    steps = measured(trace.steps)
    steps = steps.take(np.argsort(steps.device_start_ns, kind="stable")[1:])
    if len(steps) < _FEWEST_WINDOWS:
        return None
    free = _idle_pieces(trace)
    shown = []
    for row in np.argsort(-steps.known_ns, kind="stable")[:SLICES_KEPT].tolist():
        low, high = steps.device_spans[row].tolist()
        inside = (trace.events.start_ns[free] < high) & (trace.events.ends(free) > low)
        shown.append(longest(trace, free[inside])[:1])
    names = ("step", "known_ns", "input_wait_ns", *_CLASSES)
    return {**{name: getattr(steps, name).tolist() for name in names}, "shown": shown}


def _idle_pieces(trace: Trace) -> NDArray[np.intp]:
    return np.flatnonzero((trace.events.op == OpClass.FREE) & (trace.events.kind == Kind.SLICE))


def _spikes(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    """By the longest step; what differs is what takes more than its median in the others."""
    length = np.array(known["known_ns"], np.int64)
    usual = float(median(length))
    value = float(length.max()) / usual if usual else 0.0
    if value <= limits[""]:
        return
    high = length > limits[""] * usual
    excess = _excess(known, high)
    most = max(excess, key=lambda name: excess[name], default="")
    figures = {
        "steps": len(length),
        "spikes": int(high.sum()),
        "median_ns": round(usual),
        **{f"more_{name}_ns": round(ns) for name, ns in excess.items()},
    }
    numbers = [step for step, spike in zip(known["step"], high.tolist(), strict=True) if spike]
    shown = [one for piece in known["shown"][: int(high.sum())] for one in piece]
    yield Case(
        rank, value, figures, "", [n for n in numbers if n >= 0][:STEPS_KEPT],
        slices(shown if most not in (COMPUTING, EXPOSED) else ()), _SPIKED.get(most, ""),
        saves_ns=float((length[high] - usual).sum()) / len(length),
    )  # fmt: skip


def _excess(known: Known, high: NDArray[np.bool_]) -> dict[str, float]:
    """By class what spikes take more of it, on average, than the others' median, ns."""
    columns = {name: np.array(known[column], np.int64) for column, name in _CLASSES.items()}
    waits = np.array(known["input_wait_ns"], np.int64)
    if (waits >= 0).all():
        columns |= {IDLE: columns[IDLE] - waits, INPUT: waits}
    usual = ~high if not high.all() else high
    return {
        name: float(taken[high].mean()) - float(median(taken[usual]))
        for name, taken in columns.items()
    }


_SPIKED = {
    COMPUTING: "Computing differs in them: look for longer input, evaluation, or a lower clock of "
    "the device (`traceconv diff` of usual steps with these shows the operators).",
    EXPOSED: "Communication differs in them: look at the ranks that others wait for (`traceconv "
    "stragglers`), checkpoints and evaluation.",
    IDLE: "The device waits in them: look at checkpoints, logging, garbage collection and other "
    "load of the host.",
    INPUT: "They wait for input: look at workers that start again, storage and caches.",
}
_FEWEST_WINDOWS = 4  # after the first

RULES: tuple[Rule, ...] = (
    Rule(
        "iteration-gap",
        "Long pauses between iterations",
        THEME,
        "mean pause between two iterations",
        (Limit(0.5, "ms", MINDSPORE),),
        "iterations with the pauses between them (Ascend step trace)",
        "Most often the device waits for data then: look at the queues and operators of data "
        "preparation, and for what else runs between steps (other graphs, evaluation).",
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
        _with("fp_bp"),
        each_rank(_share("fp_bp")),
        FindingSeverity.GOOD,
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
        _with("tail"),
        each_rank(_share("tail", EXPOSED, IDLE)),
    ),
    Rule(
        "first-step",
        "The first recorded step takes much longer than the others",
        THEME,
        "length of the first recorded step (of its device window, where the host marked it), in "
        "medians of the others",
        (Limit(2.0, "x", OWN),),
        "at least four steps of one graph",
        "Compilation, warm-up, the start of the profiler, or ranks that begin apart lie in it: "
        "cache compiled graphs, avoid shapes that change, and leave it out of comparisons.",
        _first_facts,
        each_rank(_first),
        FindingSeverity.NOTE,
    ),
    Rule(
        "step-spikes",
        "Some steps take much longer than the others",
        THEME,
        "longest step after the first, in medians",
        (Limit(1.5, "x", OWN),),
        "at least five steps with device work",
        "Look at what those steps do besides: checkpoints, evaluation, logging, longer input.",
        _windows,
        each_rank(_spikes),
    ),
)
