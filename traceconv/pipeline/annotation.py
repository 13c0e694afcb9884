"""From what all ranks know to the marks of each: findings, and who holds the others up."""

from __future__ import annotations

from traceconv.analysis.rules import findings
from traceconv.analysis.rules.definition import SLICES_KEPT
from traceconv.analysis.stragglers import verdict as stragglers
from traceconv.passes.annotate import Mark

LATE = "Stragglers"
"""The lane of marks on ranks that hold others up."""


def marks(judged: findings.Findings, verdict: stragglers.Verdict) -> dict[int, list[Mark]]:
    """The marks of every rank that has any."""
    found: dict[int, list[Mark]] = {}
    for finding in judged.findings:
        found.setdefault(finding.rank, []).append(_mark(finding))
    for late in _lates(verdict):
        found.setdefault(late.rank, []).append(_late_mark(late))
    return found


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
    name = f"Straggler of {where}: {late.late_ns / 1e3:.1f} µs late"
    return Mark(name, LATE, told, steps=(late.step,) if late.step >= 0 else ())
