"""Rules of pipeline stages: what they compute, and what they wait for their neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from traceconv.alignment.collective_records import P2P, collective_records
from traceconv.analysis.losses import EXPOSED
from traceconv.analysis.pipeline_phases import bubbles
from traceconv.analysis.rules.definition import OWN, Case, Known, Limit, Limits, Rule
from traceconv.analysis.utilisation import measured
from traceconv.core.intervals import length_within
from traceconv.core.job_shape import stated_stage
from traceconv.core.model import Covered, StepSource, Trace
from traceconv.passes.overlap import device_times

THEME = "pipeline"
NEEDS = (
    "ranks whose pipeline stage their captures state, with marked steps, device work, and sends "
    "and receives"
)


def _stage(trace: Trace) -> Known | None:
    """The stage of a rank, and means per step: what it computes, and waits for neighbours."""
    stage = stated_stage(trace.rank, trace.capture.placement)
    steps = measured(trace.steps)
    steps = steps.take(
        (steps.covered == Covered.TIMELINE) & (steps.source != StepSource.WHOLE_RANGE)
    )
    if stage < 0 or not len(steps):
        return None
    known, devices = collective_records(trace), device_times(trace)
    if P2P not in known.kinds or len(devices) != 1:
        return None
    spans, device = steps.device_spans, devices[0]
    times = {
        "compute_ns": length_within(device.computing, spans),
        "bubble_ns": length_within(bubbles(known, device.exposed), spans),
        "step_ns": spans[:, 1] - spans[:, 0],
    }
    means = {name: float(np.mean(ns)) for name, ns in times.items()}
    return {"stage": stage, "steps": len(steps), **means}


def _stages(known: Mapping[int, Known]) -> dict[int, dict[int, Known]]:
    """The ranks of every stage."""
    found: dict[int, dict[int, Known]] = {}
    for rank, one in known.items():
        found.setdefault(one["stage"], {})[rank] = one
    return dict(sorted(found.items()))


def _mean(ranks: Mapping[int, Known], name: str) -> float:
    return float(np.mean([one[name] for one in ranks.values()]))


def _figures(ranks: Mapping[int, Known], **more: float) -> dict[str, float]:
    means = {name: round(_mean(ranks, name)) for name in ("compute_ns", "bubble_ns", "step_ns")}
    return {"ranks": len(ranks), **means, **more}


def _bubbles(known: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    for stage, ranks in _stages(known).items():
        bubble, step = _mean(ranks, "bubble_ns"), _mean(ranks, "step_ns")
        value = 100 * bubble / step if step > 0 else 0.0
        if value > limits[""]:
            rank = max(ranks, key=lambda one: (ranks[one]["bubble_ns"], -one))
            yield Case(
                rank, value, _figures(ranks), f"stage {stage}",
                saves_ns=ranks[rank]["bubble_ns"], part_of=(EXPOSED,),
            )  # fmt: skip


def _imbalance(known: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    stages = _stages(known)
    if len(stages) < 2:
        return
    computing = {stage: _mean(ranks, "compute_ns") for stage, ranks in stages.items()}
    usual = sum(computing.values()) / len(computing)
    stage = max(computing, key=lambda one: (computing[one], -one))
    value = 100 * (computing[stage] - usual) / usual if usual > 0 else 0.0
    if value > limits[""]:
        ranks = stages[stage]
        rank = max(ranks, key=lambda one: (ranks[one]["compute_ns"], -one))
        yield Case(
            rank, value, _figures(ranks, mean_of_stages_ns=round(usual)), f"stage {stage}",
            saves_ns=computing[stage] - usual,
        )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule(
        "pipeline-bubbles",
        "A pipeline stage waits for its neighbours",
        THEME,
        "share of a step in which a stage does nothing but send or receive",
        (Limit(20.0, "%", OWN),),
        NEEDS,
        "Use more micro-batches per step, interleave stages, or move layers away from the stage "
        "that the others wait for.",
        _stage,
        _bubbles,
        fewest=2,
    ),
    Rule(
        "stage-imbalance",
        "One pipeline stage computes more than the others",
        THEME,
        "what the stage that computes most does so beyond the mean of all stages",
        (Limit(10.0, "%", OWN),),
        NEEDS,
        "Move layers from this stage to others; the first and the last one also have the embedding "
        "and the loss.",
        _stage,
        _imbalance,
        fewest=2,
    ),
)
