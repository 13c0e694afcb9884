"""From what all ranks know to the marks of each: findings, and who holds the others up.

Facts are boiled down while a rank is read, travel in its notes under :data:`NOTE` while it is set
aside, and become marks when all ranks are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from traceconv.analysis import findings, stragglers
from traceconv.analysis._rule import SLICES_KEPT
from traceconv.collectives import Evidence
from traceconv.mergers import Pass, compose
from traceconv.mergers.align import Plan
from traceconv.mergers.annotate import Mark
from traceconv.model import Trace

NOTE = "to_annotate"
"""The note that holds the facts of a rank that waits for the others."""

LATE = "Stragglers"
"""The lane of marks on ranks that hold others up."""

_VIEW = ("graphs", "merge_graphs", "steps")


def known(trace: Trace, view: Mapping[str, Any]) -> dict[str, Any]:
    """What the marks need of one rank, as JSON values.

    Args:
        trace: as it was read.
        view:  arguments of :func:`traceconv.mergers.compose`: findings are of the chosen graphs and
            steps, lateness is of all.
    """
    whole = _passed(trace, compose("detail"))
    late = stragglers.facts(whole)
    wanted = {key: view[key] for key in _VIEW if view.get(key) is not None}
    narrowed = any(key != "merge_graphs" for key in wanted)
    part = _passed(trace, compose("detail", **wanted)) if narrowed else whole
    return {
        "findings": findings.facts(part).as_dict(),
        "step": late.evidence.step.tolist(),
        "parts": late.parts.tolist(),
    }


def _passed(trace: Trace, passes: Sequence[Pass]) -> Trace:
    for one in passes:
        trace = one(trace)
    return trace


def marks(
    told: Sequence[Mapping[str, Any]], collectives: Sequence[Evidence], plan: Plan
) -> dict[int, list[Mark]]:
    """The marks of every rank that has any.

    Args:
        told: of :func:`known`, of all ranks.
        collectives: of the same ranks.
        plan: how their clocks differ.
    """
    found: dict[int, list[Mark]] = {}
    judged = findings.judge([findings.Facts.of_dict(one["findings"]) for one in told])
    for finding in judged.findings:
        found.setdefault(finding.rank, []).append(_mark(finding))
    if len(told) > 1:
        every = [_late(one, evidence) for one, evidence in zip(told, collectives, strict=True)]
        for late in _lates(stragglers.judge(every, plan)):
            found.setdefault(late.rank, []).append(_late_mark(late))
    return found


def _late(told: Mapping[str, Any], evidence: Evidence) -> stragglers.Facts:
    attributed = replace(evidence, step=np.array(told["step"], np.int32))
    return stragglers.Facts(attributed, np.array(told["parts"], np.int64).reshape(-1, 4))


def _lates(verdict: stragglers.Verdict) -> list[stragglers.Finding]:
    """Of the run, then of the steps."""
    run = [one for one in (verdict.culprit, *verdict.others) if one]
    return [*run, *(one for one in verdict.steps.values() if one)]


def _mark(finding: findings.Finding) -> Mark:
    told = {k: v for k, v in finding.as_dict().items() if k not in ("slices", "steps", "rank")}
    times = tuple(one.start_ns for one in finding.slices)
    steps = tuple(finding.case.steps[:SLICES_KEPT])
    return Mark(f"{finding.rule.id}: {finding.amount()}", args=told, times_ns=times, steps=steps)


def _late_mark(late: stragglers.Finding) -> Mark:
    told = {key: value for key, value in late.as_dict().items() if key != "rank"}
    where = f"step {late.step}" if late.step >= 0 else "the run"
    name = f"Straggler of {where}: {late.late_ns / 1e3:.1f} us late"
    return Mark(name, LATE, told, steps=(late.step,) if late.step >= 0 else ())
