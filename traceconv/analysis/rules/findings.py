"""Findings: which rules apply to a run, on what evidence, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import orjson

from traceconv.analysis.inferred_shape import stated_shape
from traceconv.analysis.losses import PAUSE, Losses, of_all
from traceconv.analysis.rank_summary import RankSummary, RuleRecords
from traceconv.analysis.replay.graph import Clocks
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
from traceconv.core.clock import stamp_text, time_text
from traceconv.core.errors import TraceconvError
from traceconv.core.job_shape import called
from traceconv.core.model import Trace
from traceconv.core.rank_ranges import format_ranges

_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_UNITS = {"percent": " %", "gbs": " GB/s", "s": " s"}


def figure(name: str, value: Any, unit: str = "") -> str:
    """A figure with its name and unit; the unit ends the name ("idle_percent", "wait_ns")."""
    if not unit:
        stem, _, ending = name.rpartition("_")
        unit = ending if stem and ending in ("ns", "bytes", *_UNITS) else ""
        name = stem if unit else name
    return f"{name.replace('_', ' ')} {_measured(value, unit)}".strip()


def _measured(value: Any, unit: str) -> str:
    if unit in ("ns", "bytes"):
        steps, small = (_TIMES, "ns") if unit == "ns" else (_SIZES, "B")
        for scale, called in steps:
            if abs(value) >= scale:
                return f"{value / scale:.3f} {called}"
        return f"{value} {small}"
    if isinstance(value, float):
        return f"{value:.4g}{_UNITS.get(unit, '')}"
    if isinstance(value, (list, tuple)):
        return "; ".join(map(str, value))
    return f"{value}{_UNITS.get(unit, '')}"


SCHEMA_VERSION = 1

MINOR = "would save less than 1 % of a step"
"""What is said of what is minor."""

MATERIAL = 0.01
"""Part of a step that what a rule says of a rank could save at most, below which it is minor."""

PLACES_SHOWN = 10
"""Most places that are named in text where a rule reports several."""


class Finding(msgspec.Struct, frozen=True):
    """One place that a rule reports.

    Attributes:
        rule:   which.
        case:   rank, value, figures, steps and slices.
        limits: the thresholds it was judged by.
        since_ns: of each of its slices, the start since the start of the trace; None if no lane of
            it shows the slice.
        ms_per_step: what a step of its rank would save at most, were it gone; never more than the
            step loses. None if that is unknown.
        per_step: whether steps are marked; else all that was recorded counts as one, and is what
            figures "per step" are of.
        whole_ns: that is how long, 0 where steps are marked or it is unknown.
        coordinates: of its rank, as texts name it; "" where they are unknown.
    """

    rule: Rule
    case: Case
    limits: Limits
    since_ns: tuple[int | None, ...] = ()
    ms_per_step: float | None = None
    per_step: bool = True
    whole_ns: int = 0
    coordinates: str = ""

    @property
    def rank(self) -> int:
        """The rank it is about."""
        return self.case.rank

    @property
    def severity(self) -> FindingSeverity:
        """That of its rule."""
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
        rank = called(self.case.rank, self.coordinates)
        return rank + (f", {self.case.where}" if self.case.where else "")

    @property
    def limit(self) -> Limit:
        """The threshold that the value is compared with."""
        return next(one for one in self.rule.limits if one.name == self.case.limit)

    @property
    def measure(self) -> str:
        """What the value is, in words."""
        return self._said(self.limit.measure or self.rule.measure)

    @property
    def title(self) -> str:
        """What is wrong, in one line."""
        return self._said(self.rule.title)

    def _said(self, text: str) -> str:
        return text if self.per_step else of_all_recorded(text)

    def amount(self) -> str:
        """The value with its unit."""
        return f"{self.case.value:.4g} {self.limit.spelled}"

    def basis(self) -> str:
        """What was measured, and the threshold."""
        side = "below" if self.limit.below else "above"
        value = f"{self.limits[self.limit.name]:g} {self.limit.spelled}"
        return f"{self.measure}; {side} {value}"

    def saving(self) -> str:
        """What a step would save; "" if that is unknown."""
        if self.ms_per_step is None:
            return ""
        most = f"at most {time_text(self.ms_per_step * 1e6)}"
        if self.per_step:
            return f"{most} per step"
        return f"{most} of the {time_text(self.whole_ns)} recorded"

    def figures(self) -> list[str]:
        """What else was measured, with names and units."""
        known = self.case.figures.items()
        if self.per_step:
            return [figure(name, value) for name, value in known]
        return [figure(_of_all(name), value) for name, value in known if name != "steps"]

    def text(self) -> str:
        """One line: what, where, and by how much."""
        return f"{self.rule.id}: {self.place()}: {self.title}: {self.amount()} ({self.basis()})"

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times are ns on the clock of the rank, or since the start of the trace."""
        case = self.case
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
            "per_step": self.per_step,
            "thresholds": {name or self.rule.id: value for name, value in self.limits.items()},
            "figures": dict(case.figures),
            "slices": [
                {**msgspec.structs.asdict(one), "since_start_ns": since}
                for one, since in zip(case.slices, self.since_ns, strict=True)
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
    """The words of a rule, of a capture of which no steps are marked."""
    for said, instead in _WORDS:
        text = text.replace(said, instead)
    return text


def _of_all(name: str) -> str:
    """The name of a figure, where all that was recorded counts as one step."""
    return "in_all_ns" if name == "per_step_ns" else name.removesuffix("_per_step")


class Unchecked(msgspec.Struct, frozen=True):
    """A rule that could not look.

    Attributes:
        rule:  which.
        needs: what it would take.
        ranks: those without data, if others have some; () if the rule looked nowhere.
        broken: what is there and could not be read, "" if nothing.
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
        found = {"rule": self.rule.id, "needs": self.needs, "ranks": list(self.ranks)}
        return {**found, "broken": self.broken}


class Findings(msgspec.Struct, frozen=True):
    """What the rules say of a run.

    Attributes:
        ranks:     that were looked at, ascending.
        findings:  by what a step would save, most first; where that is unknown, warnings first.
        good:      what rules say of a run that needs nothing done about it.
        minor:     what would save less than :data:`MATERIAL` of a step; no finding. Of one rule on
            one rank, all places together.
        quiet:     rules that looked at every rank they need, and found nothing.
        unchecked: rules that could not look, and on which ranks; never to be read as "fine".
    """

    ranks: tuple[int, ...]
    findings: tuple[Finding, ...]
    quiet: tuple[Rule, ...]
    unchecked: tuple[Unchecked, ...]
    good: tuple[Finding, ...] = ()
    minor: tuple[Finding, ...] = ()

    def at_least(self, severity: str) -> bool:
        """Whether anything found is at least as severe as this ("note", "warning")."""
        order = list(FindingSeverity)
        wanted = order.index(FindingSeverity(severity))
        return any(order.index(one.severity) >= wanted for one in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "schema_version": SCHEMA_VERSION,
            "ranks": list(self.ranks),
            "findings": [one.as_dict() for one in self.findings],
            "good": [one.as_dict() for one in self.good],
            "minor": [one.as_dict() for one in self.minor],
            "quiet": [rule.id for rule in self.quiet],
            "not_checked": [one.as_dict() for one in self.unchecked],
        }

    def json_text(self) -> str:
        """:meth:`as_dict` as text."""
        return orjson.dumps(self.as_dict(), option=orjson.OPT_INDENT_2).decode() + "\n"

    def lines(self, every: bool = False) -> list[str]:
        """What people read: of each rule the most severe place in full, the others in a line.

        Args:
            every: a line for each rule that could not look, with what it needs.
        """
        lines = []
        for first, others in self.by_rule():
            lines.append(f"{first.severity}: {first.text()}")
            lines += [f"    {row}" for row in _evidence(first)]
            lines += [f"    also: {_also(others)}"] * bool(others)
            lines += [f"    -> {advice}" for advice in _advices(first, others)]
        if not self.findings:
            lines.append("no rule reports anything")
        lines += [f"good: {one.text()}" for one in self.good]
        lines += [f"{MINOR}: {', '.join(self.minor_texts())}"] * bool(self.minor)
        if self.quiet:
            lines.append(f"checked, nothing found: {', '.join(rule.id for rule in self.quiet)}")
        if every:
            return [*lines, *(f"not checked: {line}" for line in self._needs())]
        folded = [f"not checked: {self._unchecked()}"]
        return [*lines, *folded * bool(self.unchecked)]

    def _needs(self) -> list[str]:
        """What the rules that could not look would need, a line for those that need the same."""
        alike: dict[tuple[str, str], list[str]] = {}
        for one in self.unchecked:
            alike.setdefault((one.needs, one.broken), []).append(f"{one.rule.id}{_on(one.ranks)}")
        return [
            f"{', '.join(names)}: need{'s' * (len(names) == 1)} {needs}"
            + (f" ({broken})" if broken else "")
            for (needs, broken), names in alike.items()
        ]

    def _unchecked(self) -> str:
        """The rules that could not look, and what could not be read, in a line."""
        rules = ", ".join(f"{one.rule.id}{_on(one.ranks)}" for one in self.unchecked)
        broken = dict.fromkeys(one.broken for one in self.unchecked if one.broken)
        return rules + (f"; unreadable: {'; '.join(broken)}" if broken else "")

    def markdown(self, every: bool = False) -> str:
        """The same as Markdown."""
        lines = ["## Findings", ""]
        for first, others in self.by_rule():
            rows = [*_evidence(first), *([f"also: {_also(others)}"] if others else ())]
            lines.append(f"- **{first.severity}: {_escaped(first.text())}**")
            lines += [f"  - {_escaped(row)}" for row in rows]
            lines += [f"  - {advice}" for advice in _advices(first, others)]
        lines += [] if self.findings else ["No rule reports anything."]
        lines += [f"- good: {_escaped(one.text())}" for one in self.good]
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
        found: dict[str, list[Finding]] = {}
        for one in self.findings:
            found.setdefault(one.rule.id, []).append(one)
        groups = [
            sorted(group, key=lambda one: (_by_saving(one), _by_value(one)))
            for group in found.values()
        ]
        return [(group[0], group[1:]) for group in groups]

    def minor_texts(self) -> list[str]:
        """What is minor, by rule: the place that would save most."""
        most: dict[str, Finding] = {}
        for one in self.minor:
            most.setdefault(one.rule.id, one)
        return [f"{rule} ({one.place()}: {one.saving()})" for rule, one in most.items()]


def _by_saving(one: Finding) -> tuple[bool, float, int]:
    """Sorts by what a step would save, most first; then by severity."""
    known = one.ms_per_step is not None
    return not known, -(one.ms_per_step or 0.0), -list(FindingSeverity).index(one.severity)


def _by_value(one: Finding) -> float:
    return one.case.value if one.limit.below else -one.case.value


def _also(others: Sequence[Finding]) -> str:
    shown = [f"{one.place()} ({one.amount()})" for one in others[:PLACES_SHOWN]]
    more = len(others) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _advices(first: Finding, others: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(one.advice for one in (first, *others)))


def _on(ranks: Sequence[int]) -> str:
    return f" (rank{'s' * (len(ranks) > 1)} {format_ranges(ranks)})" if ranks else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")


def _evidence(one: Finding) -> list[str]:
    """Figures, steps and slices, a line each."""
    case, lines = one.case, [one.saving()] if one.saving() else []
    if figures := one.figures():
        lines.append(", ".join(figures))
    if case.steps and one.per_step:
        lines.append(f"step{'s' * (len(case.steps) > 1)} {format_ranges(case.steps)}")
    for piece, since in zip(case.slices, one.since_ns, strict=True):
        length = f"{figure('', piece.dur_ns, 'ns')} " if piece.dur_ns else ""
        where = f"rank {case.rank}, {piece.lane}"
        if since is None:
            lines.append(f"{piece.name}: {length}in the table {piece.table}, in no lane")
        else:
            lines.append(f"{piece.name}: {length}at {stamp_text(since)}, {where}")
    return lines


def rule_records(trace: Trace, rules: Iterable[str] | None = None) -> RuleRecords:
    """What the rules need of one rank: small, JSON values.

    Args:
        trace: after the passes of the detail view: steps, overlap and lanes made.
        rules: ids; None for all.

    A table of the profiler that cannot be read leaves the rules that need it unchecked.

    Raises:
        OptionError: there is no such rule.
    """
    selected = chosen(rules)
    found: dict[Any, Known | None] = {}
    broken: dict[Any, str] = {}
    for look in dict.fromkeys(rule.facts for rule in selected):
        try:
            found[look] = look(trace)
        except TraceconvError as e:
            broken[look] = str(e)[:200]
    return RuleRecords(
        {rule.id: dict(known) for rule in selected if (known := found.get(rule.facts)) is not None},
        {rule.id: broken[rule.facts] for rule in selected if rule.facts in broken},
    )


def _known(summary: RankSummary, rule: Rule, limits: Limits) -> Known | None:
    """What the rule has to know of a rank, if there is all of it."""
    known = summary.rules.known.get(rule.id)
    if known is None or any(map(math.isnan, completed(limits, known).values())):
        return None
    return known


class _Since:
    """Times since the start of the trace: the earliest event of all ranks on the shared clock."""

    def __init__(self, summaries: Sequence[RankSummary], clocks: Clocks | None) -> None:
        self._clocks = clocks
        spans = {one.rank: one.span_ns for one in summaries if one.span_ns is not None}
        self._zero_ns = min((self._shared(r, [span[0]])[0] for r, span in spans.items()), default=0)

    def of(self, case: Case) -> tuple[int | None, ...]:
        """The starts of its slices, ns; None of those that no lane shows."""
        shared = self._shared(case.rank, [one.start_ns for one in case.slices])
        return tuple(
            ns - self._zero_ns if one.lane else None
            for ns, one in zip(shared, case.slices, strict=True)
        )

    def _shared(self, rank: int, ns: Sequence[int]) -> list[int]:
        if self._clocks is None:
            return list(ns)
        found: list[int] = self._clocks.corrected(rank, np.array(ns, np.int64)).tolist()
        return found


def judge(
    summaries: Sequence[RankSummary],
    values: Mapping[str, float] | None = None,
    rules: Iterable[str] | None = None,
    clocks: Clocks | None = None,
    gains: Mapping[str, float] | None = None,
) -> Findings:
    """What the rules say of all ranks.

    Args:
        summaries: of every rank.
        values: thresholds, as :func:`traceconv.analysis.rules.catalog.thresholds` takes them.
        rules: ids; None for all.
        clocks: how the ranks were aligned, for times since the start of the trace; None if they
            are on one clock already.
        gains: what the job gains per step, ns, if a class of lost time is gone everywhere, by
            replay; a finding of that class cannot save more. {} where nothing can be replayed.

    Raises:
        OptionError: there is no such rule or threshold.
    """
    limits, since = thresholds(values or {}), _Since(summaries, clocks)
    summaries = sorted(summaries, key=lambda one: one.rank)
    lost = of_all(one.losses for one in summaries)
    whole = {one: round(known.step_ns) for one, known in lost.items() if not known.per_step}
    shape = stated_shape(summaries)
    findings: list[Finding] = []
    quiet: list[Rule] = []
    unchecked: list[Unchecked] = []
    for rule in chosen(rules):
        every = {one.rank: _known(one, rule, limits[rule.id]) for one in summaries}
        known = {rank: records for rank, records in every.items() if records is not None}
        blind = tuple(rank for rank in every if rank not in known)
        unread = [one.rules.broken[rule.id] for one in summaries if rule.id in one.rules.broken]
        broken = next(iter(unread), "")
        judged = rule.judge(known, limits[rule.id]) if len(known) >= rule.fewest else None
        if judged is None:
            unchecked.append(Unchecked(rule, rule.needs, (), broken))
            continue
        cases = list(judged)
        findings += [
            Finding(
                rule,
                case,
                completed(limits[rule.id], known.get(case.rank, {})),
                since.of(case),
                _saving(case, lost.get(case.rank, Losses()), gains or {}),
                case.rank not in whole,
                whole.get(case.rank, 0),
                shape.label(case.rank),
            )
            for case in cases
        ]
        if blind:
            unchecked.append(Unchecked(rule, rule.needs, blind, broken))
        elif not cases:
            quiet.append(rule)
    findings.sort(key=_by_saving)
    good = [one for one in findings if one.severity is FindingSeverity.GOOD]
    spoken = [one for one in findings if one.severity is not FindingSeverity.GOOD]
    small = _minor(spoken, lost)
    return Findings(
        tuple(one.rank for one in summaries),
        tuple(one for one in spoken if (one.rule.id, one.rank) not in small),
        tuple(quiet),
        tuple(unchecked),
        tuple(good),
        tuple(one for one in spoken if (one.rule.id, one.rank) in small),
    )


def _minor(findings: Sequence[Finding], lost: Mapping[int, Losses]) -> set[tuple[str, int]]:
    """Rules and ranks of which all places together would save less than what is worth it; not where
    that, or the length of a step, is unknown."""
    saved: dict[tuple[str, int], float] = {}
    for one in findings:
        ms = math.inf if one.ms_per_step is None else one.ms_per_step
        saved[one.rule.id, one.rank] = saved.get((one.rule.id, one.rank), 0.0) + ms
    steps = {rank: one.step_ns + one.per(PAUSE) for rank, one in lost.items()}
    return {of for of, ms in saved.items() if 1e6 * ms < MATERIAL * steps.get(of[1], 0.0)}


def _saving(case: Case, known: Losses, gains: Mapping[str, float]) -> float | None:
    """What a step of the rank would save at most, ms; None if that is unknown."""
    if case.saves_ns is None:
        return None
    # a pause that the source marks is one, whatever is known of the device
    classes = [name for name in case.part_of if name != PAUSE or known.knows(PAUSE)]
    if not all(known.knows(name) for name in classes):
        return None
    most = case.saves_ns
    if classes:  # one of several devices may have lost all of it, and none more than its step
        most = known.devices * sum(known.per(name) for name in classes)
        most = min(most, known.step_ns + known.per(PAUSE)) if known.devices > 1 else most
    if classes and all(name in gains for name in classes):
        most = min(most, sum(gains[name] for name in classes))
    return max(min(case.saves_ns, most), 0.0) / 1e6
