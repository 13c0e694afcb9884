"""The summary of a run for reports: the verdict in three sentences, findings, and figures to draw.

:func:`request` lists the data needed from a rank; :func:`judge` and :func:`overview` combine the
summaries of all ranks and never see an event. The latter makes JSON values, which
:mod:`traceconv.report.html` draws and :mod:`traceconv.report.markdown` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from traceconv.alignment.collective_matching import Matched, matched
from traceconv.alignment.offsets import stamped
from traceconv.alignment.plan import Plan
from traceconv.analysis.critical_path import path_tables, walk
from traceconv.analysis.inferred_shape import job_shape, stated_shape
from traceconv.analysis.losses import of_all
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.rules import findings as rules
from traceconv.analysis.rules.catalog import chosen
from traceconv.analysis.stragglers import judging
from traceconv.analysis.stragglers import verdict as stragglers
from traceconv.analysis.summarize import SummaryRequest
from traceconv.analysis.tables import catalog as tables
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.report import excerpts, headline, replayed, sections, wording
from traceconv.report.figures import ranks, time

SCHEMA_VERSION = 1

PLACES_KEPT = 10
"""Most idle intervals that a report lists, over all ranks."""

LONGEST_TEXT = 2000
"""Characters of a text that are kept."""


def remarks(mode: str | None, window: bool) -> list[str]:
    """How a trace shows less than was analysed.

    Args:
        mode:   of the trace.
        window: whether it holds a window of time only.
    """
    texts = []
    if mode == "summary":
        texts.append(
            "The trace beside this report shows steps and overlap only; operators and collectives "
            'that are named here are in one made with `mode="detail"`.'
        )
    if window:
        texts.append("`time` narrows the trace, not this analysis.")
    return texts


def request(
    only: Iterable[str] | None = None, drawn: bool = True, issues: bool = False
) -> SummaryRequest:
    """The data that a report needs from one rank.

    Args:
        only:   ids of rules; None for all.
        drawn:  also what is drawn: tables and excerpts; else only what :func:`judge` needs.
        issues: also what was lost; see :class:`~traceconv.analysis.summarize.SummaryRequest`.

    Raises:
        OptionError: there is no such rule.
    """
    return SummaryRequest(
        tables=sections.TABLES if drawn else (),
        rules=tuple(rule.id for rule in chosen(only)),
        lateness=True,
        excerpts=drawn,
        phases=drawn,
        issues=issues,
        lenient=True,
    )


class Judged(msgspec.Struct, frozen=True):
    """The problems of a run.

    Attributes:
        findings: of the rules.
        verdict:  which rank delays the others.
        path:     the critical path of the steps.
        groups:   groups of ranks, with their matched collectives.
    """

    findings: rules.Findings
    verdict: stragglers.Verdict
    path: walk.Path = walk.NOT_FOLLOWED
    groups: tuple[Matched, ...] = ()


def judge(
    summaries: Sequence[RankSummary],
    plan: Plan,
    captures: Sequence[Capture] = (),
    whole: bool = True,
) -> Judged:
    """The problems of a run, from the summaries of all ranks and the thresholds of the rules.

    Args:
        whole: besides the verdict, findings and the critical path.
        captures: their recorded clocks decide how collectives match where the collectives
            themselves are ambiguous.
    """
    stamps = stamped(captures) if captures else None
    groups = tuple(matched([summary.collectives for summary in summaries], stamps))
    verdict = judging.judge(summaries, plan, groups)
    if not whole:
        return Judged(rules.Findings((), (), (), ()), verdict, groups=groups)
    return Judged(
        rules.judge(summaries, clocks=plan, replay=verdict.replayed()),
        verdict,
        walk.of_job(summaries, plan, groups, captures, replay=verdict.replay),
        groups,
    )


def overview(
    summaries: Sequence[RankSummary],
    plan: Plan,
    issues: Issues,
    judged: Judged,
    zero_ns: int | None = None,
) -> dict[str, Any]:
    """The analysis of all ranks, as JSON values; times are ns.

    Args:
        summaries: of all ranks.
        plan:    their clocks.
        issues:  everything that was lost or is in doubt so far.
        judged:  what is wrong.
        zero_ns: the zero of the trace, on the shared clock; None for the earliest event.

    Returns:
        ``headline``, ``losses`` (what it is made of), ``sentences`` (three), ``tiles``;
        ``verdict`` (what comes first) and ``what_if`` (what would help most); ``findings``, most
        lost time first, ``good`` and ``places`` with evidence and where to look; ``not_checked``;
        ``late_ns``, by rank; the sections "timeline" (see :mod:`.replayed`), "overlap", "steps",
        "shape", "heat", "communication", "links", "operators", "curves" (see :mod:`.sections`),
        "critical_path".
    """
    summaries = sorted(summaries, key=lambda summary: summary.rank)
    if zero_ns is None:
        starts = [
            (summary.rank, np.array(summary.span_ns[:1]))
            for summary in summaries
            if summary.span_ns
        ]
        zero_ns = min((int(plan.corrected(r, start)[0]) for r, start in starts), default=0)
    results = {r.table.name: r for r in tables.tables(summaries)}
    unmarked = {summary.rank for summary in summaries if not summary.steps_marked}
    devices = {summary.rank: summary.coverage.devices for summary in summaries}
    drawn = sections.sections(results.values(), unmarked, devices)
    covered: dict[str, list[int]] = {}  # where some steps lack device data
    for summary in summaries:
        if summary.coverage.text:
            covered.setdefault(summary.coverage.text, []).append(summary.rank)
    drawn["overlap"]["coverage"] = [
        f"{ranks(rank_numbers)}: {text}" for text, rank_numbers in covered.items()
    ]
    rows = _Rows({summary.rank: summary for summary in summaries}, plan, zero_ns)
    late = judged.verdict.as_dict()
    losses_by_rank = of_all(summary.losses for summary in summaries)
    # gains of the replay first: savings of a rule may be bounds
    ordered = [
        finding
        for group in (
            rows.straggler(judged.verdict),
            rows.findings(judged.findings, judged.verdict),
        )
        for finding in sorted(group, key=lambda finding: -(finding["ms_per_step"] or 0))
    ]
    curves = excerpts.curves(summaries, plan, zero_ns)
    shape = job_shape(summaries)
    late_ns = {str(rank): ns for rank, ns in judged.verdict.longer_ns.items()}
    lost = headline.Lost.of(losses_by_rank, judged.verdict.late)
    plain: dict[str, Any] = _bounded(
        {
            "schema_version": SCHEMA_VERSION,
            "zero_ns": str(zero_ns),
            "headline": headline_of(summaries, judged.verdict),
            "losses": headline.losses_as_dicts(losses_by_rank, judged.verdict.late),
            "verdict": replayed.verdict_card(
                judged.verdict, lost_line(summaries, judged.verdict), ordered
            ),
            "what_if": replayed.remedies(judged.verdict),
            "late_ns": late_ns,
            "timeline": replayed.timeline(judged.verdict, late_ns, zero_ns),
            # the table of clocks says why they were not aligned otherwise
            "sentences": wording.sentences(
                lost,
                drawn["overlap"],
                late,
                ordered,
                issues,
                plan.as_dict()["text"].removesuffix(f"; {plan.remark}"),
            ),
            "tiles": wording.tiles(lost, drawn["overlap"], late, stated_shape(summaries)),
            "remarks": [f"Not looked at: {why}" for summary in summaries for why in summary.unread],
            "findings": ordered,
            "good": [check.as_dict() for check in judged.findings.good],
            "minor": judged.findings.minor_texts(),
            "not_checked": [check.as_dict() for check in judged.findings.unchecked],
            "places": rows.places(),
            "straggler": late,
            **{key: section for key, section in drawn.items() if key != "queues"},
            "shape": sections.job_shape(shape, drawn["overlap"]),
            "stages": sections.stages(summaries, shape),
            "heat": sections.heat(judged.verdict.replay, results["overlap"]),
            "curves": {**curves, "queues": drawn["queues"].get("rows", [])},
            "critical_path": path_tables.section(judged.path),
        }
    )
    return plain


def headline_of(summaries: Sequence[RankSummary], verdict: stragglers.Verdict) -> str:
    """The losses of a run in one line: the largest cause first, and what to do. For a job that
    hangs, where it hangs."""
    if verdict.hang:
        return verdict.headline()
    return " ".join(filter(None, (verdict.headline(), lost_line(summaries, verdict))))


def lost_line(summaries: Sequence[RankSummary], verdict: stragglers.Verdict) -> str:
    """How long steps take, and what they lose."""
    groups = [group.size for summary in summaries for group in summary.collectives.groups]
    return headline.headline(
        of_all(summary.losses for summary in summaries),
        verdict.late,
        max((summary.world_size for summary in summaries), default=-1),
        max(groups, default=-1),
        stated_shape(summaries),
    )


def _bounded(value: Any) -> Any:
    """JSON values as they are, but texts fit to be written: valid UTF-8, and not endless."""
    if isinstance(value, str):
        shown = value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]} ..."
        return shown.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_bounded(key): _bounded(inner) for key, inner in value.items()}
    return [_bounded(inner) for inner in value] if isinstance(value, (list, tuple)) else value


# -- findings -----------------------------------------------------------------------------


class _Rows:
    """Findings in words, with the places in the trace where their evidence is."""

    def __init__(self, summaries: Mapping[int, RankSummary], plan: Plan, zero_ns: int) -> None:
        self._summaries, self._plan, self._zero_ns = summaries, plan, zero_ns

    def place(self, rank: int, slice_facts: Mapping[str, Any]) -> dict[str, Any]:
        return excerpts.place(slice_facts, rank, self._plan, self._zero_ns)

    def findings(
        self, judged: rules.Findings, verdict: stragglers.Verdict
    ) -> Iterator[dict[str, Any]]:
        """For every rule with findings, the most severe place in full and the others by name; not
        what the verdict on ranks says already."""
        for leading, further in judged.beside(verdict).by_rule():
            also = [f"{finding.place()} ({finding.amount()})" for finding in further]
            saving = [leading.saving()] if leading.saving() else []
            drawn = [slice_ for slice_ in leading.slices if slice_.lane]
            places = {
                id(slice_): self.place(leading.rank, msgspec.structs.asdict(slice_))
                for slice_ in drawn
            }
            untracked = [
                f"{slice_.name}: {time(slice_.dur_ns)} in the table {slice_.table}, on no track"
                for slice_ in leading.slices
                if not slice_.lane
            ]
            slices = [
                {
                    **msgspec.structs.asdict(slice_),
                    "since_start_ns": places.get(id(slice_), {}).get("start_ns"),
                }
                for slice_ in leading.slices
            ]
            yield {
                **leading.as_dict(),
                "slices": slices,
                "text": f"{leading.place()}: {leading.amount()} ({leading.basis()})",
                "evidence": [*saving, *leading.figures(), *untracked],
                "also": also,
                "places": list(places.values()),
            }

    def straggler(self, judged: stragglers.Verdict) -> Iterator[dict[str, Any]]:
        """The ranks, and the stage, that make steps longer."""
        for culprit in judged.culprits:
            late = {
                step.step: step.excess_ns
                for step in judged.steps.values()
                if step and step.rank == culprit.rank
            }
            low, high = map(time, culprit.interval_ns)
            shown = {"name": culprit.slice_name, "lane": "", "start_ns": culprit.start_ns}
            own_work = dict(culprit.as_dict()["parts_ns"])
            if culprit.unclassified:  # whether it computes is unknown
                own_work = {"unclassified work": own_work.pop("compute"), **own_work}
            yield {
                **self._as_finding(
                    culprit, "straggler", f"R{culprit.called[1:]} delays the other ranks"
                ),
                "rank": culprit.rank,
                "where": culprit.kernel,
                "steps": [max(late, key=lambda step: late[step])] if late else [],
                "evidence": [
                    f"costs {time(culprit.gain_ns)} per step (95 % interval {low} to {high})",
                    f"begins communication {time(culprit.excess_ns)} later per step"
                    if culprit.hidden
                    else f"longer by {time(culprit.excess_ns)} per step",
                    *(f"{sort} {'less' if ns < 0 else 'more'} by {time(abs(ns))}"
                      for sort, ns in own_work.items() if ns),
                ],
                "places": [self.place(culprit.rank, {**shown, "dur_ns": culprit.dur_ns})]
                * bool(culprit.slice_name),
            }  # fmt: skip
        if stage := judged.stage:
            title = f"Stage {stage.stage} has more work than the others"
            yield {
                **self._as_finding(stage, "uneven-stages", title),
                "rank": stage.ranks[0],
                "where": f"stage {stage.stage}",
                "steps": [],
                "evidence": [f"longer by {time(stage.excess_ns)} per step"],
                "places": [],
            }
        if uneven := judged.uneven:
            yield {
                **self._as_finding(
                    uneven, "uneven-work", "Ranks and micro-batches have unequal work"
                ),
                "rank": None,
                "where": "",
                "steps": [],
                "evidence": [uneven.spread],
                "places": [],
            }

    @staticmethod
    def _as_finding(
        finding: stragglers.Finding | stragglers.SlowStage | stragglers.UnevenWork,
        rule: str,
        title: str,
    ) -> dict[str, Any]:
        text = finding.text()
        return {
            "rule": rule, "theme": "ranks", "severity": "warning", "title": title,
            "ms_per_step": finding.gain_ns / 1e6, "text": f"{text[:1].upper()}{text[1:]}.",
            "advice": finding.advice, "also": [],
        }  # fmt: skip

    def places(self) -> list[dict[str, Any]]:
        """The longest idle intervals, over all ranks."""
        listed = []
        for rank, summary in self._summaries.items():
            columns = summary.excerpts.places
            for row in zip(*(column.tolist() for column in columns.values()), strict=True):
                gap = dict(zip(columns, row, strict=True))
                listed.append({"what": gap["what"], **self.place(rank, gap)})
        listed.sort(key=lambda location: -location["dur_ns"])
        return listed[:PLACES_KEPT]
