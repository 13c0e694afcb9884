"""Rules of steps: gaps between them, their parts, the first one, and spikes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.rank_facts import COMPUTING, COPIES, EXPOSED, IDLE, INPUT, PAUSE
from traceconv.analysis.replay.job import STEP
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
    slices_of,
)
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import once_each
from traceconv.core.intervals import holding, length_within, union
from traceconv.core.model import I64, Covered, OpClass, StepTable, Trace
from traceconv.core.robust import median
from traceconv.passes.attribution import occurrence

THEME = "steps"

_PARTS = {
    "pause": OpClass.INTERVAL,
    "fp_bp": OpClass.FP_BP,
    "tail": OpClass.TAIL,
    "reduce": OpClass.REDUCE,
}
_FEWEST = 3  # steps whose median the first one is compared with
_FEWEST_WINDOWS = 4  # after the first


@once_each
def _parts(trace: Trace) -> Known | None:
    """The marked steps and their parts by graph: ``graph``, -1 of none; ``step`` and ``dur_ns`` of
    each; ``lasts_ns``: the device window, where it was recorded and is not that of a graph: a host
    that annotates steps may be steps ahead; ``followed_ns``: those between which gaps are known;
    the time of every part in them, ns, -1 where it is not
    marked (``pause``: before the step; ``reduce``: while any collective runs); ``longest``: slices
    by part."""
    events, steps = trace.events, trace.steps.take(trace.steps.marked)
    if not len(steps) or trace.hints.partial_device:
        return None
    numbered = {
        name: (rows_of_part := slices_of(trace, op))[events.step[rows_of_part] >= 0]
        for name, op in (*_PARTS.items(), ("step", OpClass.ITERATION))
    }
    graphs = []
    for graph in np.unique(steps.graph).tolist():
        graph_steps = steps.take(steps.graph == graph)
        rows = {
            name: part_rows[events.graph[part_rows] == graph]
            for name, part_rows in numbered.items()
        }
        first_step = rows["step"][np.argsort(events.start_ns[rows["step"]], kind="stable")[:1]]
        windows = (graph_steps.graph < 0) & (graph_steps.covered == Covered.TIMELINE)
        ns_by_part = {name: _part_lengths(trace, graph_steps, name, rows[name]) for name in _PARTS}
        shown = {name: longest(trace, part_rows) for name, part_rows in rows.items()}
        lasts_ns = np.where(windows, graph_steps.device_dur_ns, graph_steps.dur_ns)
        followed = np.ones(len(graph_steps), bool)
        if graph < 0 or (len(rows["pause"]) and (graph_steps.pause_ns >= 0).any()):
            # idle time between the device windows of steps
            ns_by_part["pause"] = graph_steps.pause_ns
            followed = graph_steps.known_ns > 0
        if graph < 0 and not len(rows["pause"]):
            free = slices_of(trace, OpClass.FREE)
            between = holding(union(*graph_steps.device_spans.T), events.start_ns[free]) < 0
            shown["pause"] = (
                longest(trace, free[between]) if (graph_steps.pause_ns > 0).any() else []
            )
        graphs.append(
            {
                "graph": graph,
                "step": graph_steps.step.tolist(),
                "dur_ns": graph_steps.dur_ns.tolist(),
                "lasts_ns": lasts_ns.tolist(),
                "followed_ns": lasts_ns[followed].tolist(),
                **{name: ns.tolist() for name, ns in ns_by_part.items()},
                "longest": shown,
                "first": longest(trace, first_step),
            }
        )
    return {"graphs": graphs}


def _part_lengths(trace: Trace, steps: StepTable, name: str, rows: NDArray[np.intp]) -> I64:
    """How long a part of each step takes, ns; -1 where it is not marked."""
    events = trace.events
    # a pause comes before its step, and numbers may start over: its end tells which one it is
    time = (events.end_ns if name == "pause" else events.start_ns)[rows]
    step_of = occurrence(steps, events.step[rows], time)
    rows, step_of = rows[step_of >= 0], step_of[step_of >= 0]
    lengths = np.zeros(len(steps), np.int64)
    if name == "reduce":  # on several streams at once
        reductions = union(events.start_ns[rows], events.ends(rows))
        lengths = length_within(reductions, np.stack((steps.start_ns, steps.end_ns), axis=1))
    else:
        np.add.at(lengths, step_of, events.dur_ns[rows])
    return np.where(np.bincount(step_of, minlength=len(steps)) > 0, lengths, -1)


def _graphs(is_chosen: Callable[[Mapping[str, Any]], bool]) -> Callable[[Trace], Known | None]:
    """The graphs of a rank with steps of a kind; None if it has none."""

    def facts(trace: Trace) -> Known | None:
        chosen = [
            graph for graph in (_parts(trace) or {"graphs": ()})["graphs"] if is_chosen(graph)
        ]
        return {"graphs": chosen} if chosen else None

    return facts


def _graph_name(graph: int) -> str:
    return f"graph {graph}" if graph >= 0 else ""


def _pauses(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    for graph in facts["graphs"]:
        lengths = [ns for ns in graph["pause"] if ns >= 0]
        if not any(lengths):
            continue
        steps, all_ns = graph["followed_ns"], sum(lengths)
        value = 100 * all_ns / (all_ns + sum(steps))
        if value > limits[""]:
            pairs = zip(graph["step"], graph["pause"], strict=True)
            long = [number for number, ns in pairs if ns > limits[""] / 100 * fmean(steps)]
            figures = {
                "gaps": len(lengths),
                "per_step_ns": round(all_ns / len(steps)),
                "mean_ns": round(fmean(lengths)),
                "median_ns": round(float(median(lengths))),
                "longest_ns": max(lengths),
                "step_mean_ns": round(fmean(graph["dur_ns"])),
            }
            shown = slices(graph["longest"]["pause"])
            yield Case(rank, value, figures, _graph_name(graph["graph"]), long[:STEPS_KEPT], shown,
                       gone={PAUSE: all_ns / len(steps)})  # fmt: skip


def _share(name: str, *classes: str) -> Callable[[int, Known, Limits], Iterator[Case]]:
    """Cases of graphs whose steps spend much of their time in one part.

    Args:
        classes: the time in it that a remedy would save.
    """

    def test(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
        for graph in facts["graphs"]:
            columns = (graph["dur_ns"], graph[name], graph["reduce"])
            rows = [row for row in zip(*columns, strict=True) if row[0] > 0 and row[1] >= 0]
            total_ns = sum(length for length, _, _ in rows)
            value = 100 * sum(part_ns for _, part_ns, _ in rows) / total_ns if total_ns else 0.0
            if rows and value > limits[""]:
                reduced = [ns for _, _, ns in rows if ns >= 0]
                figures = {
                    "steps": len(rows),
                    "mean_ns": round(fmean(part_ns for _, part_ns, _ in rows)),
                    "step_mean_ns": round(total_ns / len(rows)),
                }
                if len(reduced) == len(rows):
                    figures["reduce_percent"] = 100 * sum(reduced) / total_ns
                shown = slices(graph["longest"][name])
                gone = dict.fromkeys(classes, figures["mean_ns"])
                yield Case(rank, value, figures, _graph_name(graph["graph"]), (), shown, gone=gone)

    return test


def _first(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """Whatever the number of the first step is: a capture may begin at any step."""
    for graph in facts["graphs"]:
        first_ns, *others_ns = graph["lasts_ns"]
        usual = float(median(others_ns))
        value = first_ns / usual if usual else 0.0
        if value > limits[""]:
            figures = {"first_ns": first_ns, "median_of_others_ns": round(usual)}
            where, step = _graph_name(graph["graph"]), graph["step"][0]
            yield Case(rank, value, figures, where, (step,), slices(graph["first"]))


# -- spikes -------------------------------------------------------------------------------

_CLASSES = {"computing_ns": COMPUTING, "not_overlapped_ns": EXPOSED, "free_ns": IDLE,
            "copy_not_overlapped_ns": COPIES}  # fmt: skip


def _windows(trace: Trace) -> Known | None:
    """The measured steps after the first, which may be of another kind: at least four."""
    steps = measured(trace.steps)
    steps = steps.take(np.argsort(steps.device_start_ns, kind="stable")[1:])
    if len(steps) < _FEWEST_WINDOWS:
        return None
    free = slices_of(trace, OpClass.FREE)
    shown = []
    for row in np.argsort(-steps.known_ns, kind="stable")[:SLICES_KEPT].tolist():
        low, high = steps.device_spans[row].tolist()
        inside = (trace.events.start_ns[free] < high) & (trace.events.ends(free) > low)
        shown.append(longest(trace, free[inside])[:1])
    names = ("step", "known_ns", "input_wait_ns", *_CLASSES)
    return {**{name: getattr(steps, name).tolist() for name in names}, "shown": shown}


def _spikes(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """By the longest step; the cause is the class that exceeds its median in the others most."""
    length = np.array(facts["known_ns"], np.int64)
    usual = float(median(length))
    value = float(length.max()) / usual if usual else 0.0
    if value <= limits[""]:
        return
    high = length > limits[""] * usual
    columns = {name: np.array(facts[column], np.int64) for column, name in _CLASSES.items()}
    waits = np.array(facts["input_wait_ns"], np.int64)
    if (waits >= 0).all():
        columns |= {IDLE: columns[IDLE] - waits, INPUT: waits}
    usual_steps = ~high if not high.all() else high
    excess = {
        name: float(ns[high].mean()) - float(median(ns[usual_steps]))
        for name, ns in columns.items()
    }
    largest = max(excess, key=lambda name: excess[name])
    figures = {
        "steps": len(length),
        "spikes": int(high.sum()),
        "median_ns": round(usual),
        **{f"more_{name}_ns": round(ns) for name, ns in excess.items()},
    }
    numbers = [step for step, spike in zip(facts["step"], high.tolist(), strict=True) if spike]
    shown = [shown_slice for piece in facts["shown"][: int(high.sum())] for shown_slice in piece]
    yield Case(
        rank, value, figures, "", [n for n in numbers if n >= 0][:STEPS_KEPT],
        slices(shown if largest not in (COMPUTING, EXPOSED) else ()), _SPIKED.get(largest, ""),
        gone={STEP: float((length[high] - usual).sum()) / len(length)},
    )  # fmt: skip


_SPIKED = {
    COMPUTING: "Computing differs in them: look for longer input, evaluation, or a lower clock of "
    "the device (`traceconv diff` of usual steps with these shows the operators).",
    EXPOSED: "Communication differs in them: look at the ranks that others wait for (`traceconv "
    "stragglers`), checkpoints and evaluation.",
    IDLE: "The device waits in them: look at checkpoints, logging, garbage collection and other "
    "load of the host.",
    INPUT: "They wait for input: look at restarting workers, storage and caches.",
}

RULES: tuple[Rule, ...] = (
    Rule(
        "iteration-gap",
        "Long gaps between steps",
        THEME,
        "gaps between steps, as a share of all recorded steps and gaps",
        (Limit(2.0, "%", OWN),),
        "steps with the gaps between them (Ascend step trace), or marked steps with device work",
        "Most often the device waits for data then: look at the queues and operators of data "
        "preparation, and for other work between steps (graphs, evaluation).",
        _graphs(lambda one: max(one["pause"]) >= 0 or (one["graph"] >= 0 and len(one["step"]) > 1)),
        each_rank(_pauses),
    ),
    Rule(
        "forward-backward",
        "Steps are mostly forward and backward",
        THEME,
        "share of forward and backward in the steps",
        (Limit(80.0, "%", OWN),),
        "steps with forward and backward marked",
        "Operators decide on the step time: look at the slowest types of operators, and at "
        "fusion and lower precision.",
        _graphs(lambda one: max(one["fp_bp"]) >= 0),
        each_rank(_share("fp_bp")),
        FindingSeverity.GOOD,
    ),
    Rule(
        "long-tail",
        "Much of a step comes after backward",
        THEME,
        "share of the time after backward (gradient reduction, optimizer) in the steps",
        (Limit(20.0, "%", OWN),),
        "steps with their tail marked",
        "Fuse the reduction of gradients into fewer operations, or split it so that it overlaps "
        "with backward.",
        _graphs(lambda one: max(one["tail"]) >= 0),
        each_rank(_share("tail", EXPOSED)),
    ),
    Rule(
        "first-step",
        "The first recorded step takes much longer than the others",
        THEME,
        "length of the first recorded step (of its device window, where the host marked it), in "
        "medians of the others",
        (Limit(2.0, "x", OWN),),
        "at least four steps of one graph",
        "It includes compilation, warm-up, the start of the profiler, or ranks that begin apart: "
        "cache compiled graphs, avoid shapes that change, and leave it out of comparisons.",
        _graphs(lambda one: len(one["step"]) > _FEWEST),
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
        "Look for other work in those steps: checkpoints, evaluation, logging, longer input.",
        _windows,
        each_rank(_spikes),
    ),
)
