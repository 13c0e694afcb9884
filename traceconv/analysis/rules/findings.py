"""Findings: which rules report something, on what evidence, and what to do.

parts = [facts(trace) for trace in traces]
for finding in judge(parts).findings:
    print(finding.text())
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from traceconv.analysis.rules.catalog import chosen, thresholds
from traceconv.analysis.rules.definition import (
    Case,
    Known,
    Limits,
    Rule,
    Severity,
    Slice,
    completed,
)
from traceconv.core.errors import TraceconvError
from traceconv.core.model import Trace
from traceconv.core.ranks import format_ranges

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

PLACES_SHOWN = 10
"""Most places that are named in text where a rule reports several."""


@dataclass(frozen=True)
class Facts:
    """What the rules know of one rank.

    Attributes:
        rank:  which.
        known: by id of the rule, JSON values; rules the rank has no data for are not there.
        broken: by id of the rule, what could not be read.
    """

    rank: int
    known: Mapping[str, Known] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"rank": self.rank, "known": dict(self.known), "broken": dict(self.broken)}

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> Facts:
        """The inverse of :meth:`as_dict`."""
        return cls(values["rank"], values["known"], values["broken"])


@dataclass(frozen=True)
class Finding:
    """One place that a rule reports.

    Attributes:
        rule:   which.
        case:   rank, value, figures, steps and slices.
        limits: the thresholds it was judged by.
    """

    rule: Rule
    case: Case
    limits: Limits

    @property
    def rank(self) -> int:
        """The rank it is about."""
        return self.case.rank

    @property
    def severity(self) -> Severity:
        """That of its rule."""
        return self.rule.severity

    @property
    def advice(self) -> str:
        """One sentence on what to do."""
        return self.case.advice or self.rule.advice

    @property
    def slices(self) -> Sequence[Slice]:
        """CollectiveRecords on the timeline of its rank."""
        return self.case.slices

    def place(self) -> str:
        """Rank, and where on it."""
        return f"rank {self.case.rank}" + (f", {self.case.where}" if self.case.where else "")

    def amount(self) -> str:
        """The value with its unit."""
        return f"{self.case.value:.4g} {self.rule.limits[0].spelled}"

    def text(self) -> str:
        """One line: what, where, and by how much."""
        main = self.rule.limits[0]
        return (
            f"{self.rule.id}: {self.place()}: {self.rule.title}: {self.amount()} "
            f"({self.rule.measure}; {'below' if main.below else 'above'} "
            f"{self.limits['']:g} {main.spelled})"
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times are ns on the clock of the rank."""
        case = self.case
        return {
            "rule": self.rule.id,
            "theme": self.rule.theme,
            "severity": str(self.severity),
            "title": self.rule.title,
            "rank": case.rank,
            "where": case.where,
            "steps": list(case.steps),
            "measure": self.rule.measure,
            "value": case.value,
            "unit": self.rule.limits[0].unit,
            "thresholds": {name or self.rule.id: value for name, value in self.limits.items()},
            "figures": dict(case.figures),
            "slices": [vars(one) for one in case.slices],
            "advice": self.advice,
        }


@dataclass(frozen=True)
class Unchecked:
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


@dataclass(frozen=True)
class Findings:
    """What the rules say of a run.

    Attributes:
        ranks:     that were looked at, ascending.
        findings:  warnings first, then in the order of the rules.
        quiet:     rules that looked at every rank they need, and found nothing.
        unchecked: rules that could not look, and on which ranks; never to be read as "fine".
    """

    ranks: tuple[int, ...]
    findings: tuple[Finding, ...]
    quiet: tuple[Rule, ...]
    unchecked: tuple[Unchecked, ...]

    def at_least(self, severity: str) -> bool:
        """Whether anything found is at least as severe as this ("note", "warning")."""
        order = list(Severity)
        wanted = order.index(Severity(severity))
        return any(order.index(one.severity) >= wanted for one in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "schema_version": SCHEMA_VERSION,
            "ranks": list(self.ranks),
            "findings": [one.as_dict() for one in self.findings],
            "quiet": [rule.id for rule in self.quiet],
            "not_checked": [one.as_dict() for one in self.unchecked],
        }

    def json_text(self) -> str:
        """:meth:`as_dict` as text."""
        return orjson.dumps(self.as_dict(), option=orjson.OPT_INDENT_2).decode() + "\n"

    def lines(self) -> list[str]:
        """What people read: of each rule the most severe place in full, the others in a line."""
        lines = []
        for first, others in self.by_rule():
            lines.append(f"{first.severity}: {first.text()}")
            lines += [f"    {row}" for row in _evidence(first)]
            lines += [f"    also: {_also(others)}"] * bool(others)
            lines += [f"    -> {advice}" for advice in _advices(first, others)]
        if not self.findings:
            lines.append("no rule reports anything")
        if self.quiet:
            lines.append(f"checked, nothing found: {', '.join(rule.id for rule in self.quiet)}")
        return [*lines, *(one.text() for one in self.unchecked)]

    def markdown(self) -> str:
        """The same as Markdown."""
        lines = ["## Findings", ""]
        for first, others in self.by_rule():
            rows = [*_evidence(first), *([f"also: {_also(others)}"] if others else ())]
            lines.append(f"- **{first.severity}: {_escaped(first.text())}**")
            lines += [f"  - {_escaped(row)}" for row in rows]
            lines += [f"  - {advice}" for advice in _advices(first, others)]
        lines += [] if self.findings else ["No rule reports anything."]
        if self.quiet:
            quiet = ", ".join(f"`{rule.id}`" for rule in self.quiet)
            lines += ["", f"Checked, nothing found: {quiet}."]
        if self.unchecked:
            lines += ["", "Not checked:", ""]
            lines += [
                f"- `{one.rule.id}`{_on(one.ranks)}: needs {_escaped(one.needs)}"
                f"{_escaped(f' ({one.broken})') if one.broken else ''}"
                for one in self.unchecked
            ]
        return "\n".join(lines) + "\n"

    def by_rule(self) -> list[tuple[Finding, list[Finding]]]:
        """Per rule with findings its most severe one and the others, most severe rule first."""
        found: dict[str, list[Finding]] = {}
        for one in self.findings:
            found.setdefault(one.rule.id, []).append(one)
        groups = [
            sorted(group, key=lambda one: one.case.value, reverse=not one.rule.limits[0].below)
            for group in found.values()
            for one in group[:1]
        ]
        return [(group[0], group[1:]) for group in groups]


def _also(others: Sequence[Finding]) -> str:
    shown = [f"{one.place()} ({one.amount()})" for one in others[:PLACES_SHOWN]]
    more = len(others) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _advices(first: Finding, others: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(one.advice for one in (first, *others)))


def _on(ranks: Sequence[int]) -> str:
    return f" (ranks {format_ranges(ranks)})" if ranks else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")


def _evidence(one: Finding) -> list[str]:
    """Figures, steps and slices, a line each."""
    case, lines = one.case, []
    if case.figures:
        lines.append(", ".join(figure(name, value) for name, value in case.figures.items()))
    if case.steps:
        lines.append(f"step{'s' * (len(case.steps) > 1)} {format_ranges(case.steps)}")
    lines += [
        f"{piece.name}: {figure('', piece.dur_ns, 'ns')} at {piece.start_ns} ns"
        for piece in case.slices
    ]
    return lines


def facts(trace: Trace, rules: Iterable[str] | None = None) -> Facts:
    """What the rules need of one rank: small, JSON values.

    Args:
        trace: after the passes of the detail view: steps, overlap and lanes made.
        rules: ids; None for all.

    A table of the profiler that cannot be read leaves the rules that need it unchecked.

    Raises:
        SelectionError: there is no such rule.
    """
    selected = chosen(rules)
    found: dict[Any, Known | None] = {}
    broken: dict[Any, str] = {}
    for look in dict.fromkeys(rule.facts for rule in selected):
        try:
            found[look] = look(trace)
        except TraceconvError as e:
            broken[look] = str(e)[:200]
    return Facts(
        trace.rank,
        {rule.id: known for rule in selected if (known := found.get(rule.facts)) is not None},
        {rule.id: broken[rule.facts] for rule in selected if rule.facts in broken},
    )


def _known(part: Facts, rule: Rule, limits: Limits) -> Known | None:
    """What the rule has to know of a rank, if there is all of it."""
    known = part.known.get(rule.id)
    if known is None or any(map(math.isnan, completed(limits, known).values())):
        return None
    return known


def judge(
    parts: Sequence[Facts],
    given: Mapping[str, float] | None = None,
    rules: Iterable[str] | None = None,
) -> Findings:
    """What the rules say of all ranks.

    Args:
        parts: of every rank.
        given:  thresholds, as :func:`traceconv.analysis.rules.catalog.thresholds` takes them.
        rules: ids; None for all.

    Raises:
        SelectionError: there is no such rule or threshold.
    """
    limits = thresholds(given or {})
    parts = sorted(parts, key=lambda part: part.rank)
    findings: list[Finding] = []
    quiet: list[Rule] = []
    unchecked: list[Unchecked] = []
    for rule in chosen(rules):
        of_rank = {part.rank: _known(part, rule, limits[rule.id]) for part in parts}
        known = {rank: one for rank, one in of_rank.items() if one is not None}
        blind = tuple(part.rank for part in parts if part.rank not in known)
        broken = next((part.broken[rule.id] for part in parts if rule.id in part.broken), "")
        if len(known) < rule.fewest:
            unchecked.append(Unchecked(rule, rule.needs, (), broken))
            continue
        cases = list(rule.judge(known, limits[rule.id]))
        findings += [
            Finding(rule, case, completed(limits[rule.id], known.get(case.rank, {})))
            for case in cases
        ]
        if blind:
            unchecked.append(Unchecked(rule, rule.needs, blind, broken))
        elif not cases:
            quiet.append(rule)
    order = list(Severity)
    findings.sort(key=lambda one: -order.index(one.severity))
    return Findings(
        tuple(part.rank for part in parts), tuple(findings), tuple(quiet), tuple(unchecked)
    )
