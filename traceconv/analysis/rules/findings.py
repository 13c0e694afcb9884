"""Findings: the rules that apply to a run, their evidence, and what a remedy gains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from traceconv.analysis.inferred_shape import stated_shape
from traceconv.analysis.losses import of_all
from traceconv.analysis.rank_facts import COPIES, EXPOSED, IDLE, PAUSE, Losses
from traceconv.analysis.rank_summary import RankSummary, RuleRecords, encoded_facts
from traceconv.analysis.replay.graph import Clocks
from traceconv.analysis.replay.job import PEERS, STAGES, STEP, WAITS, Replay
from traceconv.analysis.rules.catalog import chosen, thresholds
from traceconv.analysis.rules.definition import (
    Case,
    FindingSeverity,
    Known,
    Limit,
    Limits,
    Rule,
    Slice,
    completed,
)
from traceconv.analysis.statistics import interval
from traceconv.analysis.stragglers.verdict import Verdict
from traceconv.core.clock import digits, stamp_text, time_text
from traceconv.core.columns import F64
from traceconv.core.errors import TraceconvError
from traceconv.core.job_shape import called
from traceconv.core.json_text import encoded
from traceconv.core.model import Trace
from traceconv.core.rank_ranges import format_ranges

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SAID = {
    "rank_of_least": "least on rank", "free_percent": "idle", "free_ns": "idle",
    "not_overlapped_percent": "exposed", "not_overlapped_ns": "exposed",
    "window_ns": "device time", "reduce_percent": "gradient reduction", "transit_ns": "transfer",
    "best": "highest clock", "lowest": "lowest clock", "step_mean_ns": "mean step",
}  # fmt: skip
"""Names of figures in words, where these are others."""

_UNITS = {"percent": " %", "gbs": " GB/s", "s": " s"}


def figure(name: str, value: Any, unit: str = "") -> str:
    """A figure with its name and unit; the unit ends the name ("idle_percent", "wait_ns")."""
    said = _SAID.get(name)
    if not unit:
        stem, _, ending = name.rpartition("_")
        unit = ending if stem and ending in ("ns", "bytes", *_UNITS) else ""
        name = stem if unit else name
    return f"{said or name.replace('_', ' ')} {_measured(value, unit)}".strip()


def _measured(value: Any, unit: str) -> str:
    if unit == "ns":
        return time_text(value)
    if unit == "bytes":
        scale, called = next(
            (unit_of_size for unit_of_size in _SIZES if abs(value) >= unit_of_size[0]), (1, "B")
        )
        return f"{digits(value / scale)} {called}"
    if isinstance(value, float):
        return f"{digits(value)}{_UNITS.get(unit, '')}"
    if isinstance(value, (list, tuple)):
        return "; ".join(map(str, value))
    return f"{value}{_UNITS.get(unit, '')}"


SCHEMA_VERSION = 1

MINOR = "would save less than 1 % of a step"
"""Title of the findings that are minor."""

MATERIAL = 0.01
"""Share of a step; a finding whose remedy gains less is minor."""

PLACES_SHOWN = 10
"""Most places that text names where a rule reports several."""


_OF_ALL = 0.9


class Finding(msgspec.Struct, frozen=True):
    """One place that a rule reports.

    Attributes:
        rule:   which.
        case:   rank, value, figures, steps and slices.
        limits: its thresholds.
        since_ns: of each of its slices, the start since the start of the trace; None if no track
            shows the slice.
        gain_ns: how much shorter a step of the job is, replayed without the time that the rule
            reports, on all ranks on which it does; None if that is unknown.
        interval_ns: 95 % interval of that.
        at_most: nothing could be replayed: ``gain_ns`` is the time that the rank loses, which
            bounds the gain.
        per_step: whether steps are marked; else the recording counts as one step.
        whole_ns: how long that is, 0 where steps are marked or it is unknown.
        coordinates: of its rank for text; "" where they are unknown.
    """

    rule: Rule
    case: Case
    limits: Limits
    since_ns: tuple[int | None, ...] = ()
    gain_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    at_most: bool = False
    per_step: bool = True
    whole_ns: int = 0
    coordinates: str = ""

    @property
    def ms_per_step(self) -> float | None:
        """:attr:`gain_ns` in milliseconds."""
        return None if self.gain_ns is None else self.gain_ns / 1e6

    @property
    def rank(self) -> int:
        """The rank it is about."""
        return self.case.rank

    @property
    def severity(self) -> FindingSeverity:
        """The severity of its rule."""
        return self.rule.severity

    @property
    def advice(self) -> str:
        """One sentence on what to do."""
        return self.case.advice or self.rule.advice

    @property
    def slices(self) -> Sequence[Slice]:
        """What shows it on the timeline of its rank."""
        return self.case.slices

    def place(self) -> str:
        """Rank, and where on it."""
        rank, where = called(self.case.rank, self.coordinates), self.case.where
        if where.startswith("rank "):  # of a table of all ranks
            return where
        return f"{rank}, {where}" if where else rank

    @property
    def limit(self) -> Limit:
        """The threshold that the value is compared with."""
        return next(limit for limit in self.rule.limits if limit.name == self.case.limit)

    @property
    def measure(self) -> str:
        """The measure in words."""
        return self._in_words(self.limit.measure or self.rule.measure)

    @property
    def title(self) -> str:
        """The problem in one line."""
        return self._in_words(self.rule.title)

    def _in_words(self, text: str) -> str:
        return text if self.per_step else of_all_recorded(text)

    def amount(self) -> str:
        """The value with its unit."""
        return f"{digits(self.case.value)} {self.limit.spelled}"

    def basis(self) -> str:
        """The measure and the threshold."""
        side = "below" if self.limit.below else "above"
        value = f"{self.limits[self.limit.name]:g} {self.limit.spelled}"
        return f"{self.measure}; {side} {value}"

    def saving(self) -> str:
        """The gain in words; "" if that is unknown."""
        if self.ms_per_step is None:
            return ""
        text = f"saves {'at most ' * self.at_most}{time_text(self.ms_per_step * 1e6)}"
        if self.per_step:
            return f"{text} per step"
        return f"{text} of the {time_text(self.whole_ns)} recorded"

    def figures(self) -> list[str]:
        """What else was measured, with names and units."""
        measured = self.case.figures.items()
        if self.per_step:
            return [figure(name, value) for name, value in measured]
        return [
            figure("in_all_ns" if name == "per_step_ns" else name.removesuffix("_per_step"), value)
            for name, value in measured
            if name != "steps"
        ]

    def brief(self) -> str:
        """What, where, and by how much."""
        return f"{self.rule.id}: {self.place()}: {self.title}: {self.amount()}"

    def text(self) -> str:
        """One line: :meth:`brief`, what was measured, and the threshold."""
        return f"{self.brief()} ({self.basis()})"

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times are ns on the clock of the rank, or since the start of the trace."""
        case, known = self.case, self.interval_ns
        return {
            "rule": self.rule.id,
            "theme": self.rule.theme,
            "severity": str(self.severity),
            "title": self.title,
            "rank": case.rank,
            "where": case.where,
            "steps": list(case.steps),
            "measure": self.measure,
            "value": case.value,
            "unit": self.limit.unit,
            "ms_per_step": self.ms_per_step,
            "ms_interval": None if known is None else [ns / 1e6 for ns in known],
            "at_most": self.at_most,
            "per_step": self.per_step,
            "thresholds": {name or self.rule.id: value for name, value in self.limits.items()},
            "figures": dict(case.figures),
            "slices": [
                {**msgspec.structs.asdict(slice_), "since_start_ns": since}
                for slice_, since in zip(case.slices, self.since_ns, strict=True)
            ],
            "advice": self.advice,
        }


_WORDS = (
    (" of the steps' recorded device windows", " of the recorded time of devices"),
    (" of the steps", " of the recorded time"),
    (" within steps", ""),
    ("Steps wait", "The device waits"),
    (", per step", ""),
    (" per step", ""),
)


def of_all_recorded(text: str) -> str:
    """The words of a rule for a capture without marked steps."""
    for phrase, instead in _WORDS:
        text = text.replace(phrase, instead)
    return text


class Unchecked(msgspec.Struct, frozen=True):
    """A rule without data.

    Attributes:
        rule:  which.
        needs: what it would need.
        ranks: those without data, if others have some; () if none has.
        broken: a source that could not be read, "" if none.
    """

    rule: Rule
    needs: str
    ranks: tuple[int, ...] = ()
    broken: str = ""

    def text(self) -> str:
        """One line."""
        where = f" on rank{'s' * (len(self.ranks) > 1)} {format_ranges(self.ranks)}"
        broken = f" ({self.broken})" if self.broken else ""
        reason = f"{self.rule.id}: needs {self.needs}{broken}"
        return f"not checked{where if self.ranks else ''}: {reason}"

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        values = {"rule": self.rule.id, "needs": self.needs, "ranks": list(self.ranks)}
        return {**values, "broken": self.broken}


class Findings(msgspec.Struct, frozen=True):
    """The findings of a run; iterates over ``findings``.

    Attributes:
        ranks:     that were checked, ascending.
        findings:  by gain, largest first; where that is unknown, warnings first.
        good:      results that need no action.
        minor:     findings that gain less than :data:`MATERIAL` of a step.
        quiet:     rules that had data of every rank and found nothing.
        unchecked: rules without data, and on which ranks; never to be read as "fine".
        bounds:    why gains are upper bounds; "" if they are replayed.
    """

    ranks: tuple[int, ...]
    findings: tuple[Finding, ...]
    quiet: tuple[Rule, ...]
    unchecked: tuple[Unchecked, ...]
    good: tuple[Finding, ...] = ()
    minor: tuple[Finding, ...] = ()
    bounds: str = ""

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __getitem__(self, index: int) -> Finding:
        return self.findings[index]

    def beside(self, verdict: Verdict | None) -> Findings:
        """Those that a verdict does not cover, as it has figures for the same cause. All of them
        if it covers all."""
        kept = tuple(
            finding
            for finding in self.findings
            if not (verdict and verdict.covers(finding.rule.covered_by, finding.rank))
        )
        return replace(self, findings=kept) if kept else self

    def at_least(self, severity: str) -> list[Finding]:
        """Those at least as severe as this ("note", "warning")."""
        order = list(FindingSeverity)
        least = order.index(FindingSeverity(severity))
        return [finding for finding in self.findings if order.index(finding.severity) >= least]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "schema_version": SCHEMA_VERSION,
            "ranks": list(self.ranks),
            "findings": [finding.as_dict() for finding in self.findings],
            "good": [finding.as_dict() for finding in self.good],
            "minor": [finding.as_dict() for finding in self.minor],
            "quiet": [rule.id for rule in self.quiet],
            "not_checked": [check.as_dict() for check in self.unchecked],
            "bounds": self.bounds or None,
        }

    def json_text(self) -> str:
        """:meth:`as_dict` as text."""
        return encoded(self.as_dict(), indented=True).decode() + "\n"

    def lines(self, every: bool = False) -> list[str]:
        """The findings as text: of each rule the most severe place in full, the others in a line.

        Args:
            every: a line for each rule without data, with what it needs.
        """
        lines = []
        for leading, further in self.by_rule():
            lines.append(f"{leading.severity}: {leading.text()}")
            lines += [f"    {row}" for row in _evidence(leading)]
            lines += [f"    also: {_also(further)}"] * bool(further)
            lines += [f"    -> {advice}" for advice in _advices(leading, further)]
        if not self.findings:
            lines.append("no rule reports anything")
        lines += [self.bounds_text()] * bool(self.bounds)
        lines += [f"good: {finding.text()}" for finding in self.good]
        lines += [f"{MINOR}: {', '.join(self.minor_texts())}"] * bool(self.minor)
        if self.quiet:
            lines.append(f"checked, nothing found: {', '.join(rule.id for rule in self.quiet)}")
        if every:
            return [*lines, *(f"not checked: {line}" for line in self._needs())]
        folded = [f"not checked: {self._unchecked()}"]
        return [*lines, *folded * bool(self.unchecked)]

    def bounds_text(self) -> str:
        """Why gains are upper bounds."""
        return f"gains are upper bounds, because {self.bounds}"

    def _needs(self) -> list[str]:
        """What rules without data need, a line for those that need the same."""
        alike: dict[tuple[str, str], list[str]] = {}
        for check in self.unchecked:
            alike.setdefault((check.needs, check.broken), []).append(
                f"{check.rule.id}{_on(check.ranks)}"
            )
        return [
            f"{', '.join(names)}: need{'s' * (len(names) == 1)} {needs}"
            + (f" ({broken})" if broken else "")
            for (needs, broken), names in alike.items()
        ]

    def _unchecked(self) -> str:
        """The rules without data, and what could not be read, in a line."""
        rules = ", ".join(f"{check.rule.id}{_on(check.ranks)}" for check in self.unchecked)
        broken = dict.fromkeys(check.broken for check in self.unchecked if check.broken)
        return rules + (f"; unreadable: {'; '.join(broken)}" if broken else "")

    def markdown(self, every: bool = False) -> str:
        """The same as Markdown."""
        lines = ["## Findings", ""]
        for leading, further in self.by_rule():
            rows = [*_evidence(leading), *([f"also: {_also(further)}"] if further else ())]
            lines.append(f"- **{leading.severity}: {_escaped(leading.text())}**")
            lines += [f"  - {_escaped(row)}" for row in rows]
            lines += [f"  - {advice}" for advice in _advices(leading, further)]
        lines += [] if self.findings else ["No rule reports anything."]
        lines += ["", f"{self.bounds_text()}."] * bool(self.bounds)
        lines += [f"- good: {_escaped(finding.text())}" for finding in self.good]
        if self.minor:
            lines += ["", f"{MINOR}: {_escaped(', '.join(self.minor_texts()))}."]
        if self.quiet:
            quiet = ", ".join(f"`{rule.id}`" for rule in self.quiet)
            lines += ["", f"Checked, nothing found: {quiet}."]
        if self.unchecked and not every:
            lines += ["", f"Not checked: {_escaped(self._unchecked())}."]
        elif self.unchecked:
            lines += ["", "Not checked:", ""]
            lines += [f"- {_escaped(line)}" for line in self._needs()]
        return "\n".join(lines) + "\n"

    def by_rule(self) -> list[tuple[Finding, list[Finding]]]:
        """Per rule with findings its most severe one and the others, in the order of findings."""
        by_rule: dict[str, list[Finding]] = {}
        for finding in self.findings:
            by_rule.setdefault(finding.rule.id, []).append(finding)
        groups = [sorted(group, key=_by_gain) for group in by_rule.values()]
        return [(group[0], group[1:]) for group in groups]

    def minor_texts(self) -> list[str]:
        """Minor findings by rule: the place with the largest gain."""
        largest: dict[str, Finding] = {}
        for finding in self.minor:
            largest.setdefault(finding.rule.id, finding)
        return [
            f"{rule} ({finding.place()}: {finding.saving()})" for rule, finding in largest.items()
        ]


def _by_gain(finding: Finding) -> tuple[bool, float, int, float]:
    """Sorts by gain, largest first, then by severity and value. A rule that reports all the time
    of a class comes after one that knows the cause of most of it."""
    severity = list(FindingSeverity).index(finding.severity)
    value = finding.case.value if finding.limit.below else -finding.case.value
    weight = _OF_ALL if math.inf in finding.case.gone.values() else 1.0
    return finding.gain_ns is None, -weight * (finding.gain_ns or 0.0), -severity, value


def _also(findings: Sequence[Finding]) -> str:
    shown = [f"{finding.place()} ({finding.amount()})" for finding in findings[:PLACES_SHOWN]]
    hidden = len(findings) - len(shown)
    return ", ".join(shown) + (f" and {hidden} more" if hidden else "")


def _advices(leading: Finding, further: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(finding.advice for finding in (leading, *further)))


def _on(ranks: Sequence[int]) -> str:
    return f" (rank{'s' * (len(ranks) > 1)} {format_ranges(ranks)})" if ranks else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")


def _evidence(finding: Finding) -> list[str]:
    """Figures, steps and slices, a line each."""
    case, lines = finding.case, [finding.saving()] if finding.saving() else []
    if figures := finding.figures():
        lines.append(", ".join(figures))
    if case.steps and finding.per_step:
        lines.append(f"step{'s' * (len(case.steps) > 1)} {format_ranges(case.steps)}")
    for piece, since in zip(case.slices, finding.since_ns, strict=True):
        length = f"{figure('', piece.dur_ns, 'ns')} " if piece.dur_ns else ""
        where = f"rank {case.rank}, {piece.lane}"
        if since is None:
            lines.append(f"{piece.name}: {length}in the table {piece.table}, on no track")
        else:
            lines.append(f"{piece.name}: {length}at {stamp_text(since)}, {where}")
    return lines


def rule_records(trace: Trace, rules: Iterable[str] | None = None) -> RuleRecords:
    """The facts about one rank that rules need: small, JSON values.

    Args:
        trace: after the passes of the detail view: steps, overlap and lanes made.
        rules: ids; None for all.

    A table of the profiler that cannot be read leaves the rules that need it unchecked.

    Raises:
        OptionError: there is no such rule.
    """
    selected = chosen(rules)
    facts_by_look: dict[Any, Known | None] = {}
    broken: dict[Any, str] = {}
    for look in dict.fromkeys(rule.facts for rule in selected):
        try:
            facts_by_look[look] = look(trace)
        except TraceconvError as e:
            broken[look] = str(e)[:200]
    return RuleRecords(
        {
            rule.id: encoded_facts(facts)
            for rule in selected
            if (facts := facts_by_look.get(rule.facts)) is not None
        },
        {rule.id: broken[rule.facts] for rule in selected if rule.facts in broken},
    )


class _Since:
    """Times since the start of the trace: the earliest event of all ranks on the shared clock."""

    def __init__(self, summaries: Sequence[RankSummary], clocks: Clocks | None) -> None:
        self._clocks = clocks
        spans = {
            summary.rank: summary.span_ns for summary in summaries if summary.span_ns is not None
        }
        self._zero_ns = min((self._shared(r, [span[0]])[0] for r, span in spans.items()), default=0)

    def of(self, case: Case) -> tuple[int | None, ...]:
        """The starts of its slices, ns; None for slices that no lane shows."""
        shared = self._shared(case.rank, [slice_.start_ns for slice_ in case.slices])
        return tuple(
            ns - self._zero_ns if slice_.lane else None
            for ns, slice_ in zip(shared, case.slices, strict=True)
        )

    def _shared(self, rank: int, ns: Sequence[int]) -> list[int]:
        if self._clocks is None:
            return list(ns)
        shared: list[int] = self._clocks.corrected(rank, np.array(ns, np.int64)).tolist()
        return shared


def judge(
    summaries: Sequence[RankSummary],
    values: Mapping[str, float] | None = None,
    rules: Iterable[str] | None = None,
    clocks: Clocks | None = None,
    replay: Replay | str = "",
) -> Findings:
    """The findings of all ranks.

    Args:
        summaries: of every rank.
        values: thresholds, as :func:`traceconv.analysis.rules.catalog.thresholds` takes them.
        rules: ids; None for all.
        clocks: the alignment of the ranks, for times since the start of the trace; None if they
            are on one clock already.
        replay: of the job, from which gains are; or why there is none.

    Raises:
        OptionError: there is no such rule or threshold.
    """
    limits, since = thresholds(values or {}), _Since(summaries, clocks)
    summaries = sorted(summaries, key=lambda summary: summary.rank)
    losses = of_all(summary.losses for summary in summaries)
    recorded_ns = {
        rank: round(rank_losses.step_ns)
        for rank, rank_losses in losses.items()
        if not rank_losses.per_step
    }
    shape = stated_shape(summaries)
    findings: list[Finding] = []
    quiet: list[Rule] = []
    unchecked: list[Unchecked] = []
    for rule in chosen(rules):
        rule_limits = limits[rule.id]
        facts_by_rank = {
            summary.rank: records
            for summary in summaries
            if (records := summary.rules.of(rule.id)) is not None
            and not any(map(math.isnan, completed(rule_limits, records).values()))
        }
        blind = tuple(summary.rank for summary in summaries if summary.rank not in facts_by_rank)
        broken = next((o.rules.broken[rule.id] for o in summaries if rule.id in o.rules.broken), "")
        cases = (
            rule.cases(facts_by_rank, rule_limits) if len(facts_by_rank) >= rule.fewest else None
        )
        if cases is None:
            unchecked.append(Unchecked(rule, rule.needs, (), broken))
            continue
        saved = _replayed(cases, replay)
        for case in cases:
            gain = _at_most(case, losses.get(case.rank, Losses()))
            interval_ns = None
            if saved is not None and case.gone:
                # without marked steps, of the whole recording
                times = len(saved) if case.rank in recorded_ns else 1
                gain = max(times * float(saved.mean()), 0.0)
                low, high = interval(saved)
                interval_ns = (times * low, times * high)
            case_limits = completed(rule_limits, facts_by_rank.get(case.rank, {}))
            findings.append(
                Finding(
                    rule, case, case_limits, since.of(case), gain, interval_ns,
                    gain is not None and interval_ns is None, case.rank not in recorded_ns,
                    recorded_ns.get(case.rank, 0), shape.label(case.rank),
                )
            )  # fmt: skip
        if blind:
            unchecked.append(Unchecked(rule, rule.needs, blind, broken))
        elif not cases:
            quiet.append(rule)
    findings.sort(key=lambda finding: _by_gain(finding)[:3])
    good = [finding for finding in findings if finding.severity is FindingSeverity.GOOD]
    reported = [finding for finding in findings if finding.severity is not FindingSeverity.GOOD]
    small = _minor(reported, losses)
    if isinstance(replay, str):
        why = f"the job cannot be replayed: {replay or 'its operations were not read'}"
    elif len(replay.graph.steps) < 2:
        why = "one step does not show how long devices are idle after it"
    else:
        why = "not all ranks are part of the replay"
    return Findings(
        tuple(summary.rank for summary in summaries),
        tuple(finding for finding in reported if (finding.rule.id, finding.rank) not in small),
        tuple(quiet),
        tuple(unchecked),
        tuple(good),
        tuple(finding for finding in reported if (finding.rule.id, finding.rank) in small),
        why if any(finding.at_most for finding in reported) else "",
    )


def _minor(findings: Sequence[Finding], losses: Mapping[int, Losses]) -> set[tuple[str, int]]:
    """Rules and ranks that gain less than a share of a step that matters: by a replay, which has
    all places, or the bounds of all places together; not where a gain or the length of a step is
    unknown."""
    gains: dict[tuple[str, int], float] = {}
    for finding in findings:
        before = gains.get((finding.rule.id, finding.rank), 0.0)
        gain = math.inf if finding.gain_ns is None else finding.gain_ns
        gains[finding.rule.id, finding.rank] = (
            before + gain if finding.at_most else max(before, gain)
        )
    steps = {
        rank: rank_losses.step_ns + rank_losses.per(PAUSE) for rank, rank_losses in losses.items()
    }
    return {
        rule_and_rank
        for rule_and_rank, ns in gains.items()
        if ns < MATERIAL * steps.get(rule_and_rank[1], 0.0)
    }


def _replayed(cases: Sequence[Case], replay: Replay | str) -> F64 | None:
    """The gain of each step without the time of some cases; None if that cannot be replayed."""
    gone: dict[int, dict[str, float]] = {}
    for case in cases:
        for name, ns in case.gone.items():
            of_rank = gone.setdefault(case.rank, {})
            of_rank[name] = of_rank.get(name, 0.0) + ns
    if isinstance(replay, str) or not gone or set(gone) - set(replay.graph.ranks):
        return None
    return replay.saved(gone)


def _at_most(case: Case, lost: Losses) -> float | None:
    """The time per step that bounds the gain, ns: no more than its classes lose; None if that is
    unknown."""
    if not case.gone:
        return None
    ns = sum(case.gone.values())
    # a gap that the source records is certain, even without device data
    classes = [
        EXPOSED if name == WAITS else name for name in case.gone
        if name not in (PEERS, STAGES, STEP) and (name != PAUSE or lost.knows(PAUSE))
    ]  # fmt: skip
    if not all(lost.knows(name) for name in classes):
        return None
    if classes:
        # an NPU that copies is idle; one of several devices may have lost all of it
        per = [lost.per(name) or (lost.per(IDLE) if name == COPIES else 0.0) for name in classes]
        bound_ns = lost.devices * sum(per)
        ns = min(ns, bound_ns, lost.step_ns + lost.per(PAUSE) if lost.devices > 1 else bound_ns)
    return max(ns, 0.0) if math.isfinite(ns) else None
