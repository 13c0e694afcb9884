"""Rules of pipeline stages: their computing, and their waits for neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from traceconv.alignment.collective_records import P2P, collective_records
from traceconv.analysis.pipeline_phases import bubbles
from traceconv.analysis.replay.job import STAGES
from traceconv.analysis.rules.definition import OWN, Case, Known, Limit, Limits, Rule
from traceconv.analysis.stragglers import verdict
from traceconv.analysis.utilisation import measured
from traceconv.core.intervals import length_within
from traceconv.core.job_shape import stated_stage
from traceconv.core.model import Covered, Trace
from traceconv.passes.overlap import device_times

THEME = "pipeline"
NEEDS = (
    "ranks whose pipeline stage their captures state, with marked steps, device work, and sends "
    "and receives"
)
_TIMES = ("compute_ns", "bubble_ns", "step_ns")


def _stage(trace: Trace) -> Known | None:
    """The stage of a rank, and means per step: computing, waits for neighbours, length."""
    stage = stated_stage(trace.rank, trace.capture.placement)
    steps = measured(trace.steps)
    steps = steps.take((steps.covered == Covered.TIMELINE) & steps.marked)
    if stage < 0 or not len(steps):
        return None
    records, devices = collective_records(trace), device_times(trace)
    if P2P not in records.kinds or len(devices) != 1:
        return None
    spans, device = steps.device_spans, devices[0]
    times = (
        length_within(device.computing, spans),
        length_within(bubbles(records, device.exposed), spans),
        spans[:, 1] - spans[:, 0],
    )
    means = {name: float(np.mean(ns)) for name, ns in zip(_TIMES, times, strict=True)}
    return {"stage": stage, "steps": len(steps), **means}


def _stages(
    facts_by_rank: Mapping[int, Known],
) -> Iterator[tuple[int, dict[int, Known], dict[str, float]]]:
    """The ranks of every stage, and the means over them."""
    for stage in sorted({facts["stage"] for facts in facts_by_rank.values()}):
        ranks = {rank: facts for rank, facts in facts_by_rank.items() if facts["stage"] == stage}
        yield stage, ranks, {n: float(np.mean([o[n] for o in ranks.values()])) for n in _TIMES}


def _figures(ranks: Mapping[int, Known], means: Mapping[str, float]) -> dict[str, int]:
    return {"ranks": len(ranks), **{name: round(ns) for name, ns in means.items()}}


def _bubbles(facts_by_rank: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    for stage, ranks, means in _stages(facts_by_rank):
        value = 100 * means["bubble_ns"] / means["step_ns"] if means["step_ns"] > 0 else 0.0
        if value > limits[""]:
            rank = max(ranks, key=lambda member: (ranks[member]["bubble_ns"], -member))
            # no gain: a pipeline fills and drains whatever is mended, and how much of the waiting
            # more micro-batches or other stages would remove cannot be replayed
            yield Case(rank, value, _figures(ranks, means), f"stage {stage}")


def _imbalance(facts_by_rank: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    stages = list(_stages(facts_by_rank))
    if len(stages) < 2:
        return
    usual = sum(means["compute_ns"] for *_, means in stages) / len(stages)
    stage, ranks, means = max(stages, key=lambda item: (item[2]["compute_ns"], -item[0]))
    excess_ns = means["compute_ns"] - usual
    value = 100 * excess_ns / usual if usual > 0 else 0.0
    if value > limits[""]:
        rank = max(ranks, key=lambda member: (ranks[member]["compute_ns"], -member))
        figures = {**_figures(ranks, means), "mean_of_stages_ns": round(usual)}
        yield Case(rank, value, figures, f"stage {stage}", gone={STAGES: excess_ns})


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
        "computing of the stage that computes most beyond the mean of all stages",
        (Limit(10.0, "%", OWN),),
        NEEDS,
        "Move layers from this stage to others; the first and the last one also have the embedding "
        "and the loss.",
        _stage,
        _imbalance,
        fewest=2,
        covered_by=verdict.STAGES,
    ),
)
