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
    found = []
    if mode == "summary":
        found.append(
            "The trace beside this report shows steps and overlap only; operators and collectives "
            'that are named here are in one made with `mode="detail"`.'
        )
    if window:
        found.append("`time` narrows the trace, not this analysis.")
    return found


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


def judge(summaries: Sequence[RankSummary], plan: Plan, captures: Sequence[Capture] = ()) -> Judged:
    """The problems of a run, from the summaries of all ranks and the thresholds of the rules.

    Args:
        captures: their recorded clocks decide how collectives match where the collectives
            themselves are ambiguous.
    """
    said = stamped(captures) if captures else None
    groups = tuple(matched([one.collectives for one in summaries], said))
    verdict = judging.judge(summaries, plan, groups)
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
    summaries = sorted(summaries, key=lambda one: one.rank)
    if zero_ns is None:
        starts = [(one.rank, np.array(one.span_ns[:1])) for one in summaries if one.span_ns]
        zero_ns = min((int(plan.corrected(r, start)[0]) for r, start in starts), default=0)
    results = {r.table.name: r for r in tables.tables(summaries)}
    unmarked = {one.rank for one in summaries if not one.steps_marked}
    devices = {one.rank: one.coverage.devices for one in summaries}
    drawn = sections.sections(results.values(), unmarked, devices)
    covered: dict[str, list[int]] = {}  # where some steps lack device data
    for one in summaries:
        if one.coverage.text:
            covered.setdefault(one.coverage.text, []).append(one.rank)
    drawn["overlap"]["coverage"] = [f"{ranks(those)}: {text}" for text, those in covered.items()]
    rows = _Rows({one.rank: one for one in summaries}, plan, zero_ns)
    late = judged.verdict.as_dict()
    every = of_all(one.losses for one in summaries)
    # gains of the replay first: savings of a rule may be bounds
    found = [
        one
        for some in (rows.straggler(judged.verdict), rows.findings(judged.findings))
        for one in sorted(some, key=lambda one: -(one["ms_per_step"] or 0))
    ]
    curves = excerpts.curves(summaries, plan, zero_ns)
    shape = job_shape(summaries)
    late_ns = {str(rank): ns for rank, ns in judged.verdict.longer_ns.items()}
    lost = headline.Lost.of(every, judged.verdict.late)
    plain: dict[str, Any] = _bounded(
        {
            "schema_version": SCHEMA_VERSION,
            "zero_ns": str(zero_ns),
            "headline": headline_of(summaries, judged.verdict),
            "losses": headline.losses_as_dicts(every, judged.verdict.late),
            "verdict": replayed.verdict_card(
                judged.verdict, lost_line(summaries, judged.verdict), found
            ),
            "what_if": replayed.remedies(judged.verdict),
            "late_ns": late_ns,
            "timeline": replayed.timeline(judged.verdict, late_ns, zero_ns),
            # the table of clocks says why they were not aligned otherwise
            "sentences": wording.sentences(
                lost,
                drawn["overlap"],
                late,
                found,
                issues,
                plan.as_dict()["text"].removesuffix(f"; {plan.remark}"),
            ),
            "tiles": wording.tiles(lost, drawn["overlap"], late, stated_shape(summaries)),
            "remarks": [f"Not looked at: {why}" for one in summaries for why in one.unread],
            "findings": found,
            "good": [one.as_dict() for one in judged.findings.good],
            "minor": judged.findings.minor_texts(),
            "not_checked": [one.as_dict() for one in judged.findings.unchecked],
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
    groups = [group.size for one in summaries for group in one.collectives.groups]
    return headline.headline(
        of_all(one.losses for one in summaries),
        verdict.late,
        max((one.world_size for one in summaries), default=-1),
        max(groups, default=-1),
        stated_shape(summaries),
    )


def _bounded(value: Any) -> Any:
    """JSON values as they are, but texts fit to be written: valid UTF-8, and not endless."""
    if isinstance(value, str):
        kept = value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]} ..."
        return kept.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_bounded(key): _bounded(one) for key, one in value.items()}
    return [_bounded(one) for one in value] if isinstance(value, (list, tuple)) else value


# -- findings -----------------------------------------------------------------------------


class _Rows:
    """Findings in words, with the places in the trace where their evidence is."""

    def __init__(self, summaries: Mapping[int, RankSummary], plan: Plan, zero_ns: int) -> None:
        self._summaries, self._plan, self._zero_ns = summaries, plan, zero_ns

    def place(self, rank: int, found: Mapping[str, Any]) -> dict[str, Any]:
        return excerpts.place(found, rank, self._plan, self._zero_ns)

    def findings(self, judged: rules.Findings) -> Iterator[dict[str, Any]]:
        """For every rule with findings, the most severe place in full and the others by name."""
        for first, others in judged.by_rule():
            also = [f"{one.place()} ({one.amount()})" for one in others]
            saving = [first.saving()] if first.saving() else []
            drawn = [one for one in first.slices if one.lane]
            places = {id(one): self.place(first.rank, msgspec.structs.asdict(one)) for one in drawn}
            told = [
                f"{one.name}: {time(one.dur_ns)} in the table {one.table}, on no track"
                for one in first.slices
                if not one.lane
            ]
            slices = [
                {
                    **msgspec.structs.asdict(one),
                    "since_start_ns": places.get(id(one), {}).get("start_ns"),
                }
                for one in first.slices
            ]
            yield {
                **first.as_dict(),
                "slices": slices,
                "text": f"{first.place()}: {first.amount()} ({first.basis()})",
                "evidence": [*saving, *first.figures(), *told],
                "also": also,
                "places": list(places.values()),
            }

    def straggler(self, judged: stragglers.Verdict) -> Iterator[dict[str, Any]]:
        """The ranks, and the stage, that make steps longer."""
        for one in judged.culprits:
            late = {
                step.step: step.excess_ns
                for step in judged.steps.values()
                if step and step.rank == one.rank
            }
            low, high = map(time, one.interval_ns)
            shown = {"name": one.slice_name, "lane": "", "start_ns": one.start_ns}
            parts = one.as_dict()["parts_ns"].items()
            yield {
                **self._named(one, "straggler", f"R{one.called[1:]} delays the other ranks"),
                "rank": one.rank,
                "where": one.kernel,
                "steps": [max(late, key=lambda step: late[step])] if late else [],
                "evidence": [
                    f"costs {time(one.gain_ns)} per step (95 % interval {low} to {high})",
                    f"longer by {time(one.excess_ns)} per step",
                    *(f"{part} {'less' if ns < 0 else 'more'} by {time(abs(ns))}"
                      for part, ns in parts if ns),
                ],
                "places": [self.place(one.rank, {**shown, "dur_ns": one.dur_ns})]
                * bool(one.slice_name),
            }  # fmt: skip
        if stage := judged.stage:
            title = f"Stage {stage.stage} has more work than the others"
            yield {
                **self._named(stage, "uneven-stages", title),
                "rank": stage.ranks[0],
                "where": f"stage {stage.stage}",
                "steps": [],
                "evidence": [f"longer by {time(stage.excess_ns)} per step"],
                "places": [],
            }
        if uneven := judged.uneven:
            yield {
                **self._named(uneven, "uneven-work", "Ranks and micro-batches have unequal work"),
                "rank": None,
                "where": "",
                "steps": [],
                "evidence": [uneven.spread],
                "places": [],
            }

    @staticmethod
    def _named(
        one: stragglers.Finding | stragglers.SlowStage | stragglers.UnevenWork,
        rule: str,
        title: str,
    ) -> dict[str, Any]:
        text = one.text()
        return {
            "rule": rule, "theme": "ranks", "severity": "warning", "title": title,
            "ms_per_step": one.gain_ns / 1e6, "text": f"{text[:1].upper()}{text[1:]}.",
            "advice": one.advice, "also": [],
        }  # fmt: skip

    def places(self) -> list[dict[str, Any]]:
        """The longest idle intervals, over all ranks."""
        found = []
        for rank, summary in self._summaries.items():
            columns = summary.excerpts.places
            for row in zip(*(column.tolist() for column in columns.values()), strict=True):
                one = dict(zip(columns, row, strict=True))
                found.append({"what": one["what"], **self.place(rank, one)})
        found.sort(key=lambda place: -place["dur_ns"])
        return found[:PLACES_KEPT]
