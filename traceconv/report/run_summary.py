"""What a report says of a run: the verdict in three sentences, findings, and the figures to draw.

Two halves, as every analysis: :func:`facts` looks at one rank, where it is read; :func:`judge` and
:func:`overview` put all ranks together and never see an event. The latter makes JSON values, which
:mod:`traceconv.report.html` draws and :mod:`traceconv.report.markdown` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceconv.alignment.plan import Plan
from traceconv.analysis.rank_summary import Facts
from traceconv.analysis.rules import findings as rules
from traceconv.analysis.rules.findings import figure
from traceconv.analysis.stragglers import verdict as stragglers
from traceconv.analysis.tables import catalog as tables
from traceconv.analysis.tables.definition import Facts as TableFacts
from traceconv.core.errors import Issues, TraceconvError
from traceconv.core.model import Trace
from traceconv.core.side_tables import Columns
from traceconv.report import excerpts as moments
from traceconv.report import sections, wording
from traceconv.report.figures import exact, time

SCHEMA_VERSION = 1

PLACES_KEPT = 10
"""Of the longest stretches without work, over all ranks."""

LONGEST_TEXT = 2000
"""Characters of a text that are kept."""

_SCOPE = ("graphs", "merge_graphs", "steps")


def scope(view: Mapping[str, Any]) -> dict[str, Any]:
    """What of a view's choices an analysis keeps to; lanes and names that are shown do not matter.

    Args:
        view: arguments of :func:`traceconv.passes.compose`.
    """
    return {key: view[key] for key in _SCOPE if view.get(key) is not None}


def remarks(mode: str | None, window: bool) -> list[str]:
    """How a trace shows less than was analysed.

    Args:
        mode:   of the trace.
        window: whether it holds a window of time only.
    """
    told = []
    if mode != "detail":
        told.append(
            "The trace beside this report shows steps and overlap only; operators and collectives "
            "that are named here are in one made with -m detail."
        )
    if window:
        told.append("--time narrows the trace, not this analysis.")
    return told


def facts(trace: Trace, only: Sequence[str] | None = None, drawn: bool = True) -> Facts:
    """What a report needs of one rank. A table that cannot be read costs its own figures only.

    Args:
        trace: after the passes of the detail view, on its own clock.
        only:  ids of rules; None for all.
        drawn: also what is drawn: tables and moments; else only what :func:`judge` needs.
    """
    span, unread = trace.span(), list[str]()
    wanted = sections.TABLES if drawn else ()
    known = {name: _of_table(trace, name, unread) for name in wanted}
    return Facts(
        trace.rank,
        span[0] if span else None,
        TableFacts(trace.rank, known),
        stragglers.facts(trace),
        _of_rules(trace, only, unread),
        moments.facts(trace) if drawn else {},
        tuple(dict.fromkeys(unread)),
    )


def _of_table(trace: Trace, name: str, unread: list[str]) -> Columns:
    try:
        return tables.facts(trace, [name]).tables[name]
    except TraceconvError as e:
        unread.append(str(e))
        return {}


def _of_rules(trace: Trace, only: Sequence[str] | None, unread: list[str]) -> rules.Facts:
    try:
        return rules.facts(trace, only)
    except TraceconvError as e:
        unread.append(str(e))
        return rules.Facts(trace.rank)


@dataclass(frozen=True)
class Judged:
    """What is wrong with a run.

    Attributes:
        findings: of the rules.
        verdict:  on which rank holds the others up.
    """

    findings: rules.Findings
    verdict: stragglers.Verdict


def judge(parts: Sequence[Facts], plan: Plan) -> Judged:
    """What the facts of all ranks tell, by the rules' own thresholds."""
    verdict = stragglers.judge([part.lateness for part in parts], plan)
    return Judged(rules.judge([part.rules for part in parts]), verdict)


def overview(
    parts: Sequence[Facts],
    plan: Plan,
    issues: Issues,
    judged: Judged,
    zero_ns: int | None = None,
) -> dict[str, Any]:
    """The analysis of all ranks, as JSON values; times are ns.

    Args:
        parts:   of all ranks.
        plan:    their clocks.
        issues:  everything that was lost or is in doubt so far.
        judged:  what is wrong.
        zero_ns: the zero of the trace, on the shared clock; None for the earliest event.

    Returns:
        ``headline``, ``sentences`` (three), ``tiles``; ``findings`` and ``places`` with evidence
        and where to look; ``not_checked``; the sections "overlap", "steps", "heat",
        "communication", "links", "operators", "curves" (see :mod:`.analysis.sections`).
    """
    parts = sorted(parts, key=lambda part: part.rank)
    zero_ns = _zero(parts, plan) if zero_ns is None else zero_ns
    results = {r.table.name: r for r in tables.tables([part.tables for part in parts])}
    known = [part.lateness for part in parts]
    drawn = sections.sections(results.values())
    told = _Teller({part.rank: part for part in parts}, plan, zero_ns)
    late = judged.verdict.as_dict()
    found = [*told.straggler(late), *told.findings(judged.findings)]
    curves = moments.curves([(p.rank, p.moments["curves"]) for p in parts], plan, zero_ns)
    plain: dict[str, Any] = _bounded(
        {
            "schema_version": SCHEMA_VERSION,
            "zero_ns": str(zero_ns),
            "headline": wording.headline(late, drawn["overlap"]),
            "sentences": wording.sentences(late, drawn, found, issues, _clocks(plan)),
            "tiles": wording.tiles(late, drawn),
            "remarks": [f"Not looked at: {why}" for part in parts for why in part.unread],
            "findings": found,
            "not_checked": [one.as_dict() for one in judged.findings.unchecked],
            "places": told.places(),
            "straggler": late,
            **{key: section for key, section in drawn.items() if key != "queues"},
            "heat": sections.heat(known, plan, results["overlap"]),
            "curves": {**curves, "queues": drawn["queues"].get("rows", [])},
        }
    )
    return plain


def _bounded(value: Any) -> Any:
    """JSON values as they are, but texts fit to be written: valid UTF-8, and not endless."""
    if isinstance(value, str):
        kept = value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]} ..."
        return kept.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_bounded(key): _bounded(one) for key, one in value.items()}
    return [_bounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def _zero(parts: Sequence[Facts], plan: Plan) -> int:
    starts = [
        int(plan.corrected(part.rank, np.array([part.start_ns], np.int64))[0])
        for part in parts
        if part.start_ns is not None
    ]
    return min(starts, default=0)


# -- findings -----------------------------------------------------------------------------


class _Teller:
    """Puts findings into words, and says where in the trace their evidence lies."""

    def __init__(self, parts: Mapping[int, Facts], plan: Plan, zero_ns: int) -> None:
        self._parts, self._plan, self._zero_ns = parts, plan, zero_ns

    def place(self, rank: int, told: Mapping[str, Any]) -> dict[str, Any]:
        return moments.place(told, rank, self._plan, self._zero_ns)

    def findings(self, judged: rules.Findings) -> Iterator[dict[str, Any]]:
        """Of every rule that speaks the gravest place in full; the others by name."""
        for first, others in judged.by_rule():
            also = [f"{one.place()} ({one.amount()})" for one in others]
            main = first.rule.limits[0]
            side = "below" if main.below else "above"
            yield {
                **first.as_dict(),
                "text": f"{first.place()}: {first.amount()} ({first.rule.measure}; "
                f"{side} {first.limits['']:g} {main.spelled})",
                "evidence": [figure(k, v) for k, v in first.case.figures.items()],
                "also": also,
                "places": [
                    self.place(first.rank, {"lane": "", **vars(one)}) for one in first.slices
                ],
            }

    def straggler(self, verdict: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rank that holds the others up, and further ones."""
        for one in [verdict["culprit"], *verdict["others"]] if verdict["culprit"] else ():
            worst = _worst_step(verdict, one["rank"])
            yield {
                "rule": "straggler",
                "theme": "ranks",
                "severity": "warning",
                "title": f"Rank {one['rank']} delays the other ranks",
                "rank": one["rank"],
                "where": one["group"],
                "steps": [] if worst is None else [worst],
                "text": f"{wording.late(one)}.",
                "evidence": [
                    f"late by {exact(one['late_ns'])}",
                    f"by arrival {exact(one['late_by_arrival_ns'])}",
                    f"uncertainty {exact(one['uncertainty_ns'])}",
                    *(f"{part} {_more(ns)}" for part, ns in one["excess_ns"].items() if ns),
                ],
                "also": [],
                "places": list(self._call(one, worst)),
                "advice": "",
            }

    def _call(self, one: Mapping[str, Any], step: int | None) -> Iterator[dict[str, Any]]:
        """The collective a rank came late to, in the step in which it came latest."""
        part = self._parts[one["rank"]]
        evidence, calls = part.lateness.evidence, part.moments["calls"]
        keys = [group.key for group in evidence.groups]
        if one["group"] not in keys or one["operation"] not in evidence.kinds or not calls:
            return
        rows = evidence.group == keys.index(one["group"])
        rows &= evidence.kind == evidence.kinds.index(one["operation"])
        if step is not None and (rows & (evidence.step == step)).any():
            rows &= evidence.step == step
        at = np.flatnonzero(np.isin(calls["start_ns"], evidence.start_ns[rows]))
        for row in at[:1].tolist():
            told = {key: column.tolist()[row] for key, column in calls.items()}
            yield self.place(part.rank, told)

    def places(self) -> list[dict[str, Any]]:
        """The longest stretches without work, over all ranks."""
        found = []
        for rank, part in self._parts.items():
            told = part.moments["places"]
            for row in zip(*(column.tolist() for column in told.values()), strict=True):
                one = dict(zip(told, row, strict=True))
                found.append({"what": one["what"], **self.place(rank, one)})
        found.sort(key=lambda place: -place["dur_ns"])
        return found[:PLACES_KEPT]


def _worst_step(verdict: Mapping[str, Any], rank: int) -> int | None:
    """The step in which a rank came latest, if it was named in one."""
    late = {int(s): f["late_ns"] for s, f in verdict["steps"].items() if f and f["rank"] == rank}
    return max(late, key=lambda step: late[step], default=None)


def _more(ns: int) -> str:
    return f"{'less' if ns < 0 else 'more'} by {time(abs(ns))}"


def _clocks(plan: Plan) -> str:
    """How they were aligned; why not otherwise stands in the table."""
    text: str = plan.as_dict()["text"]
    return text.removesuffix(f"; {plan.remark}")
