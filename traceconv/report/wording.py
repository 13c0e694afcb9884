"""The verdict on a run in words: three sentences, and a few figures to be shown large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traceconv.analysis.rank_facts import LATE
from traceconv.analysis.rules.findings import Finding
from traceconv.analysis.utilisation import utilisation
from traceconv.core.clock import in_one_unit
from traceconv.core.codes import Severity
from traceconv.core.errors import Issues
from traceconv.core.job_shape import JobShape
from traceconv.report.figures import ranks, time
from traceconv.report.headline import Lost, words_of

Told = Mapping[str, Any]
"""JSON values: a section, a verdict on stragglers, a finding."""


def sentences(
    lost: Lost, overlap: Told, verdict: Told, findings: Sequence[Told], issues: Issues, clock: str
) -> list[str]:
    """Where time goes; which rank is slow; what else there is, and how far to trust it.

    Args:
        overlap: that section.
        findings:   findings, most severe first.
        clock:   how clocks were aligned.
    """
    return [_busy(lost, overlap), _slow(verdict), _rest(findings, issues, clock)]


def _busy(lost: Lost, overlap: Told) -> str:
    if not overlap.get("rows"):
        return "No device work was recorded, so it is unknown where time goes."
    subject = "No step is marked"
    if overlap["per"] == "step":
        subject = f"{_counted([row['steps'] for row in overlap['rows']], 'step')} with device work"
    shares = [f"{words} {lost.percent(ns)}" for words, ns in _working(lost)]
    shares.append("device utilisation " + " ".join(_utilisation(overlap)))
    coverage = "; ".join(overlap.get("coverage", ()))
    return f"{subject}: {', '.join(shares)}{f' ({coverage})' if coverage else ''}."


def _working(lost: Lost) -> list[tuple[str, float]]:
    """The time in which devices work for themselves, by what is known of it."""
    if not lost.steps:
        return []
    unclassified = [("unclassified work", lost.unclassified_ns)] * (lost.unclassified_ns > 0)
    computing = [("computing", lost.computing_ns)]
    return [*computing * (lost.computing_ns > 0 or not unclassified), *unclassified]


def _counted(steps: Sequence[int], noun: str) -> str:
    """``8 steps of each of 4 ranks``; ``steps`` has those of each rank."""
    each, every = ({*steps}, " of all ranks") if len(steps) > 1 else (set(), "")
    if len(each) == 1:
        every = f" of each of {len(steps)} ranks"
    count = steps[0] if len(each) == 1 else sum(steps)
    return f"{count} {noun}{'s' * (count > 1)}{every}"


def _utilisation(overlap: Told) -> tuple[str, str]:
    """The value, and the time it is of: the mean over ranks, and over devices where some have
    several."""
    rows = overlap["rows"]
    idle, known_ns = (sum(row[key] for row in rows) for key in ("idle_ns", "known_ns"))
    per = "a step" if overlap["per"] == "step" else "the capture"
    return f"{float(utilisation(idle, known_ns)):.1f} %", f"of {per}"


def _slow(verdict: Told) -> str:
    if len(verdict["ranks"]) < 2:
        return "One rank alone cannot be compared with others."
    text = verdict["text"]
    late_ranks = [rank["rank"] for rank in verdict["others"]]
    also = (
        f"; {ranks(late_ranks)} {'are' if len(late_ranks) > 1 else 'is'} late, too"
        if late_ranks
        else ""
    )
    return f"{text[:1].upper()}{text[1:]}{also}."


def _rest(findings: Sequence[Told], issues: Issues, clock: str) -> str:
    warnings = [finding for finding in findings if finding["severity"] == "warning"]
    text = f"{len(warnings)} finding{'s' * (len(warnings) != 1)} to act on"
    text += f", first: {warnings[0]['title']}" if warnings else ""
    lost, doubts = (
        sum(issue.count for issue in issues if issue.severity is severity)
        for severity in (Severity.LOSS, Severity.DOUBT)
    )
    trust = f"{lost} record{'s were' if lost > 1 else ' was'} lost" if lost else "nothing was lost"
    trust += f", {doubts} {'are' if doubts > 1 else 'is'} in doubt" if doubts else ""
    return f"{text}; {trust}; clocks: {clock}."


def tiles(lost: Lost, overlap: Told, verdict: Told, shape: JobShape) -> list[dict[str, str]]:
    """Figures to be shown large: name, value, note. What steps lose are those of the headline."""
    figures = []
    if lost.steps:
        per = "Step" if lost.per_step else "Recorded"
        counted = _counted(lost.steps, "step" if lost.per_step else "recording")
        mean = f"mean of {counted}" if sum(lost.steps) > 1 else f"of {counted}"
        note = f"and gaps of {time(lost.gap_ns)}" if lost.gap_ns else mean
        figures.append((per, time(lost.step_ns), note))
        basis = "of step and gaps" if lost.gap_ns else "of a step" if lost.per_step else "of it"
        shares = [(words, ns, basis) for words, ns in _working(lost)]
        for loss in lost.losses:  # how long others wait is another figure than the cost of a rank
            of_what = f"{basis}, mean of all ranks" if loss.name == LATE else basis
            shares.append((words_of(loss, shape), loss.ns, of_what))
        figures += [
            (f"{words[:1].upper()}{words[1:]}", lost.percent(ns), f"{time(ns)} {of_what}")
            for words, ns, of_what in shares
        ]
    if overlap.get("rows"):
        value, of_what = _utilisation(overlap)
        figures.append(("Device utilisation", value, f"{of_what}{' alone' * (lost.gap_ns > 0)}"))
    if len(verdict["ranks"]) > 1:
        culprit = verdict["culprit"]
        value = f"rank {culprit['rank']}" if culprit else verdict["verdict"]
        compared = f"{verdict['collectives']} collectives compared"
        note = f"costs {time(culprit['gain_ns'])} per step" if culprit else compared
        if not culprit and (stage := verdict["stage"]):
            note = f"equal stages save {time(stage['gain_ns'])} per step"
            figures.append(("Uneven stages", f"stage {stage['stage']}", note))
        else:
            figures.append(("Straggler", value, note))
    return [dict(zip(("name", "value", "note"), tile, strict=True)) for tile in figures]


def first_step(finding: Finding) -> str:
    """That the first step raises all means: of the rule "first-step"."""
    first, others = (
        time(finding.case.figures[name]) for name in ("first_ns", "median_of_others_ns")
    )
    return (
        f"The means include the first step: {first} on rank {finding.rank}, the median of the "
        f"others is {others}. A selection of steps can leave it out"
    )


def gain(finding: Finding) -> str:
    """The gain, and half the width of its 95 % interval; its upper end where it may be nothing."""
    if finding.gain_ns is None:
        return "?"
    if finding.interval_ns is None:
        return f"{'≤ ' * finding.at_most}{time(finding.gain_ns)}"
    low, high = finding.interval_ns
    if low < 0:
        mean, most = in_one_unit((finding.gain_ns, high))
        return f"{mean}, up to {most.partition(' ')[0]}"
    mean, half = in_one_unit((finding.gain_ns, (high - low) / 2))
    return f"{mean.partition(' ')[0]} ± {half}"
