"""The results of analyses of a merge's ranks: for its report, and as slices in its trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from traceconv.alignment.plan import Plan
from traceconv.analysis import rank_summary
from traceconv.analysis.critical_path.walk import PARTS as PATH_PARTS
from traceconv.analysis.critical_path.walk import Segment
from traceconv.analysis.diff.stored import stored
from traceconv.analysis.inferred_shape import job_shape
from traceconv.analysis.pipeline_phases import PHASE_NAMES, UNTOLD
from traceconv.analysis.rank_facts import SORTS
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.rules import findings
from traceconv.analysis.rules.definition import SLICES_KEPT
from traceconv.analysis.stragglers import verdict as stragglers
from traceconv.core.clock import time_text
from traceconv.core.errors import Issues
from traceconv.core.job_shape import JobShape
from traceconv.core.model import Capture
from traceconv.options.groups import MergeOptions
from traceconv.passes.annotate import Mark
from traceconv.report import run_summary
from traceconv.run.executor import Executor
from traceconv.run.spill import SpilledRank
from traceconv.run.stages import summary_path

LATE = "Stragglers"
"""The track with slices on ranks that delay others."""

PATH = "Critical path"
"""The track with the part of the critical path on a rank."""


class JobSummary(msgspec.Struct, frozen=True):
    """The summaries of all ranks, and what is wrong with the run.

    Attributes:
        whole: whether findings and the critical path are known besides the verdict.
    """

    summaries: Sequence[RankSummary]
    judged: run_summary.Judged
    clock: Plan
    whole: bool = True

    @classmethod
    def of(
        cls,
        executor: Executor,
        spilled: Sequence[SpilledRank],
        clock: Plan,
        captures: Sequence[Capture],
        whole: bool = True,
    ) -> JobSummary:
        """The summary of a job whose ranks were summarized when they were read.

        Args:
            whole: see the class.
        """
        folders = [executor.folder if rank.in_memory else rank.path.parent for rank in spilled]
        summaries = [
            rank_summary.load(summary_path(folder, rank.rank))
            for folder, rank in zip(folders, spilled, strict=True)
        ]
        judged = run_summary.judge(summaries, clock, captures, whole)
        return cls(summaries, judged, clock, whole)

    def account(self) -> tuple[str, str, str]:
        """``headline``, ``lost`` and ``verdict`` of :class:`~.run_report.Report`."""
        verdict = self.judged.verdict
        headline = verdict.headline()
        lost = "" if verdict.hang else run_summary.lost_line(self.summaries, verdict)
        told = len(verdict.ranks) > 1 and (self.whole or verdict.kind == stragglers.NOBODY)
        return headline, lost, verdict.line() if told and not headline else ""

    def overview(
        self, options: MergeOptions, clock: Plan, issues: Issues, base_ns: int | None
    ) -> dict[str, Any]:
        """The analysis of a report.

        Args:
            base_ns: the zero of the trace; None for the earliest event.
        """
        figures = run_summary.overview(self.summaries, clock, issues, self.judged, base_ns)
        window = options.selection.time is not None
        return {
            **figures,
            "remarks": [*figures["remarks"], *run_summary.remarks(options.mode, window)],
        }

    def step_items(self) -> dict[str, Any]:
        """What every nanosecond of the steps went to, for the report."""
        world_size = max((summary.world_size for summary in self.summaries), default=-1)
        return stored({summary.rank: summary.items for summary in self.summaries}, world_size)

    def marks(self) -> dict[int, list[Mark]]:
        """The slices and instants to add, by rank."""
        marks_by_rank: dict[int, list[Mark]] = {}
        for finding in self.judged.findings:
            marks_by_rank.setdefault(finding.rank, []).append(_mark(finding))
        verdict = self.judged.verdict
        for late in (*verdict.culprits, *filter(None, verdict.steps.values())):
            marks_by_rank.setdefault(late.rank, []).append(_late_mark(late))
        for segment in self.judged.path.segments:
            to = self.clock.offsets[segment.rank].correction
            start, end = to.before(segment.start_ns), to.before(segment.end_ns)
            if end > start:
                marks_by_rank.setdefault(segment.rank, []).append(
                    _path_mark(segment, start, end - start, self.judged.path.shape)
                )
        shape = job_shape(self.summaries)
        for summary in self.summaries:
            stage = shape.stage(summary.rank)
            if stage >= 0:
                marks_by_rank.setdefault(summary.rank, []).extend(_stage_marks(summary, stage))
        return marks_by_rank


def _mark(finding: findings.Finding) -> Mark:
    args = {
        "what": f"{finding.title}: {finding.amount()}",
        "measured": finding.basis(),
        "saves": finding.saving(),
        "advice": finding.advice,
        "where": finding.case.where,
        "severity": str(finding.severity),
        "rule": finding.rule.id,
        "figures": dict(finding.case.figures),
    }
    times = tuple(slice_.start_ns for slice_ in finding.slices)
    steps = tuple(finding.case.steps[:SLICES_KEPT])
    name = f"{finding.rule.id}: {finding.amount()}"
    return Mark(name, args=_not_empty(args), times_ns=times, steps=steps)


def _not_empty(args: Mapping[str, Any]) -> dict[str, Any]:
    """What there is to say, without what is empty."""
    return {key: value for key, value in args.items() if value not in ("", None, [], {})}


def _late_mark(late: stragglers.Finding) -> Mark:
    own_work = zip(SORTS, late.parts_ns, strict=False)
    args = {
        "what": late.text(),
        "cause": late.why,
        "own work beyond its peers": {sort: time_text(ns) for sort, ns in own_work if ns},
        "pattern": late.pattern,
        "late in steps": list(late.late_steps),
        "together with ranks": list(late.together),
        "advice": late.advice,
    }
    where = f"step {late.step}" if late.step >= 0 else "the run"
    name = f"{'Straggler of' if late.pattern else 'Latest in'} {where}: {late.text()}"
    return Mark(name, LATE, _not_empty(args), steps=(late.step,) if late.step >= 0 else ())


def _path_mark(segment: Segment, start_ns: int, dur_ns: int, shape: JobShape) -> Mark:
    parts = {sort: ns for sort, ns in zip(PATH_PARTS, segment.parts, strict=True) if ns}
    args = {
        "what": f"{segment.kind} of group {segment.group}"
        if segment.kind
        else "the rank's own work",
        "step": segment.step[0],
        "consists of": {} if segment.kind else {sort: time_text(ns) for sort, ns in parts.items()},
        "came last": shape.called(segment.last) if segment.last >= 0 else "",
        "certain": "yes" if segment.certain else "no",
        "not decided": segment.why,
    }
    name = segment.kind or max(parts, key=lambda sort: parts[sort])
    return Mark(name, PATH, _not_empty(args), times_ns=(start_ns,), dur_ns=dur_ns)


def _stage_marks(summary: RankSummary, stage: int) -> Iterator[Mark]:
    """Slices for the work of a rank as a pipeline stage, as far as it is known."""
    lane = f"Pipeline stage {stage}"
    why = {"what": "no range of the host says which pass this is of; messages do not tell"}
    for kind, start, end in summary.phases.tolist():
        args = why if kind == UNTOLD else {}
        yield Mark(PHASE_NAMES[kind], lane, args, times_ns=(start,), dur_ns=end - start)
