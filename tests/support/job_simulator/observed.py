"""What the library says of a simulated job: the only module here that calls what is measured.

Whoever changes how a verdict or a plan states something changes the readings here, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from traceconv.alignment.collective_matching import matched
from traceconv.alignment.collective_records import collective_records
from traceconv.alignment.offsets import stamped
from traceconv.alignment.plan import Plan, plan
from traceconv.analysis.critical_path import walk
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.judging import judge
from traceconv.analysis.stragglers.verdict import Verdict
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.passes import compose
from traceconv.passes.attribution import attribution
from traceconv.passes.steps import steps
from traceconv.run.stages import passed
from traceconv.run.summaries import spans_of

from .captures import capture, traces
from .simulate import Run


@dataclass(frozen=True)
class Said:
    """A verdict.

    Attributes:
        constant, intermittent: ranks that are named.
        groups: (ranks of) groups whose link is named.
        steps:  by step, the rank its line names; only those that name one.
        stated: the ranks that lines name without saying that it may be chance.
        gain_ns: what the job would gain per step, as stated; None if nothing is.
        text:   all of it, for people.
    """

    constant: frozenset[int]
    intermittent: frozenset[int]
    groups: frozenset[frozenset[int]] = frozenset()
    steps: dict[int, int] = field(default_factory=dict)
    stated: frozenset[int] = frozenset()
    gain_ns: float | None = None
    text: str = ""

    @property
    def named(self) -> frozenset[int]:
        """All ranks that are named."""
        return self.constant | self.intermittent


def summaries(run: Run) -> list[RankSummary]:
    """What is known of every rank with a capture, by way of its trace."""
    every = (passed(one, compose(mode="detail")) for one in traces(run))
    return [summarize(one, SummaryRequest(lateness=True, links=True)) for one in every]


def judged(run: Run, align: str = "auto") -> Verdict:
    """The verdict on a job."""
    known = summaries(run)
    records = [one.collectives for one in known]
    captures = [capture(run.job, rank) for rank in run.job.captured]
    groups = tuple(matched(records, stamped(captures)))
    clocks = plan(captures, align, records, groups=groups, spans=spans_of(known))
    return judge(known, clocks, groups)


def verdict(run: Run, align: str = "auto") -> Said:
    """What ``traceconv stragglers`` says."""
    return said(judged(run, align))


def said(found) -> Said:
    """A verdict as it is measured."""
    document = found.as_dict()
    findings = [one for one in (document["culprit"], *document["others"]) if one]
    intermittent = {one["rank"] for one in findings if one.get("pattern") == "intermittent"}
    gain = document["gain_ns"]
    lines = [one["late"] for one in document["steps"] if one["late"]]
    return Said(
        frozenset(one["rank"] for one in findings) - intermittent,
        frozenset(intermittent),
        frozenset(frozenset(one["ranks"]) for one in document.get("slow_groups", ())),
        {one["step"]: one["rank"] for one in lines},
        frozenset(one["rank"] for one in lines if one["pattern"]),
        gain,
        "\n".join([*found.lines(), *found.step_lines()]),
    )


@dataclass(frozen=True)
class Clocks:
    """A plan.

    Attributes:
        lead:   the rank to whose clock all others were fitted, -1 if none was.
        error_ns: per rank that was fitted to it, half of the stated interval (99 %).
        checked_ns: per rank that was fitted, between which instants of its own clock one that was
            set would have shown, as stated.
        kept:   ranks whose own stamps were taken without an issue on them.
        unchecked: ranks of which an issue says that a clock that was set would not show somewhere.
        text:   all of it, for people.
    """

    found: Plan
    lead: int
    error_ns: dict[int, int]
    checked_ns: dict[int, tuple[int, int]]
    kept: frozenset[int]
    unchecked: frozenset[int] = frozenset()
    text: str = ""

    def apart_ns(self, run: Run, rank: int, true_ns: np.ndarray) -> np.ndarray:
        """By how much a rank's corrected clock is ahead of the leading one at true times."""
        shown = [
            self.found.corrected(one, run.job.clock(one).local(true_ns))
            for one in (rank, self.lead)
        ]
        return shown[0] - shown[1]


def clocks(run: Run, methods: Sequence[str] = ("auto",)) -> list[Clocks]:
    """What ``traceconv align`` says, by each method."""
    every = [attribution(steps(one)) for one in traces(run)]
    records = [collective_records(one) for one in every]
    captures = [capture(run.job, rank) for rank in run.job.captured]
    spans = {one.rank: one.span() for one in every}
    groups = tuple(matched(records, stamped(captures)))
    plans = (plan(captures, m, records, groups=groups, spans=spans) for m in methods)
    return [_as_measured(found) for found in plans]


def _as_measured(found: Plan) -> Clocks:
    fitted = {r: o for r, o in found.offsets.items() if o.method == "collective"}
    leads = [r for r, o in fitted.items() if not o.matches]
    doubted = {i.rank for i in found.issues if i.code == "unaligned"}
    return Clocks(
        found,
        min(leads, default=-1),
        {r: found.error_ns(r) or 0 for r in fitted if r not in leads},
        {r: o.checked_ns for r, o in fitted.items() if o.checked_ns},
        frozenset(r for r, o in found.offsets.items() if o.method == "meta") - doubted,
        frozenset(i.rank for i in found.issues if i.code == "clock-unchecked"),
        str(found.as_dict()["text"]),
    )


def path(run: Run) -> tuple[walk.Path, int]:
    """What ``traceconv critical-path`` says, and the largest error of a clock that is stated."""
    every = (passed(one, compose(mode="detail")) for one in traces(run))
    known = [summarize(one, SummaryRequest(lateness=True)) for one in every]
    captures = [capture(run.job, rank) for rank in run.job.captured]
    records = [one.collectives for one in known]
    groups = tuple(matched(records, stamped(captures)))
    clocks = plan(captures, "auto", records, groups=groups, spans=spans_of(known))
    error = max((clocks.error_ns(one.rank) or 0 for one in known), default=0)
    return walk.of_job(known, clocks, groups, captures), error


def stretches(found: walk.Path, step: int) -> list[tuple[int, int, int, bool, bool]]:
    """Those of one step, as :func:`.planted.agreement` takes them."""
    _, end, _ = found.steps[step, 0]
    return [
        (one.rank, end - one.start_ns, end - one.end_ns, bool(one.kind), one.certain)
        for one in found.segments
        if one.step == (step, 0)
    ]
