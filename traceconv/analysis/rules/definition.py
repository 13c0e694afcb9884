"""A rule: its measure, its threshold, and the time that a remedy would save."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.excerpts import lane
from traceconv.analysis.tables.definition import Table
from traceconv.analysis.utilisation import share
from traceconv.core.model import Kind, OpClass, Trace
from traceconv.core.side_tables import Columns

Known = Mapping[str, Any]
"""Facts about one rank as JSON values, so that processes can exchange them."""

Limits = Mapping[str, float]
"""The thresholds of one rule by name; the main one is ""."""

SLICES_KEPT = 3
"""Most slices kept as evidence of a finding."""

STEPS_KEPT = 50
"""Most steps listed beside a finding."""

OWN = "chosen here"
"""The source of a threshold that no other tool names."""

ALL = math.inf
"""All the time of a class."""

UNSAID = math.nan
"""A threshold without a default. The value that the capture of a rank records under its name is
used; without one, the rank is not checked."""


class FindingSeverity(StrEnum):
    """How urgent a finding is."""

    GOOD = "good"  # nothing to do; not a finding
    NOTE = "note"  # where the time goes; not necessarily a fault
    WARNING = "warning"  # time is lost


class Limit(msgspec.Struct, frozen=True):
    """A threshold.

    Attributes:
        value:  default, in ``unit``; :data:`UNSAID` without one.
        unit:   "%", "ms", "us", "MB" ...; "" of a plain ratio.
        source: who names it.
        name:   "" of the main one, which the measured value is compared with.
        below:  the rule reports values below it, not above.
        measure: the compared value, if not the measure of the rule.
    """

    value: float
    unit: str
    source: str
    name: str = ""
    below: bool = False
    measure: str = ""

    @property
    def spelled(self) -> str:
        """The unit for text."""
        return "µs" if self.unit == "us" else self.unit

    def beyond(self, value: float, limit: float) -> bool:
        """Whether a value is on the side of ``limit`` that the rule reports."""
        return value < limit if self.below else value > limit


class Slice(msgspec.Struct, frozen=True):
    """A slice of the timeline as evidence; ns on the clock of its rank.

    ``lane`` is the path to its track below the rank, as a viewer shows it; "" if no track shows it:
    then ``table`` is the profiler's table that it is from.
    """

    name: str
    start_ns: int
    dur_ns: int
    lane: str = ""
    table: str = ""


class Case(msgspec.Struct, frozen=True):
    """One place that a rule reports.

    Attributes:
        rank:    where; of a comparison, the outlying rank.
        value:   in the unit of the rule's main threshold.
        figures: what else was measured, by name; a name that ends in ``_ns``, ``_us``, ``_percent``
            or ``_bytes`` gives the unit.
        where:   the operator, queue, link or device, "" if it is the rank.
        steps:   numbers of the steps concerned, () for the run.
        slices:  evidence.
        advice:  replaces the rule's own.
        limit:   name of the threshold that ``value`` is compared with.
        gone:    time that a step of the rank would not take with the problem mended, ns by class
            (as of :meth:`traceconv.analysis.replay.job.Replay.saved`), or :data:`ALL` of a class;
            {} if that is unknown. The gain is that of the job replayed without this time on all
            ranks that the rule reports.
    """

    rank: int
    value: float
    figures: Mapping[str, Any] = msgspec.field(default_factory=dict)
    where: str = ""
    steps: Sequence[int] = ()
    slices: Sequence[Slice] = ()
    advice: str = ""
    limit: str = ""
    gone: Mapping[str, float] = msgspec.field(default_factory=dict)


Judge = Callable[[Mapping[int, Known], Limits], Iterable[Case] | None]
"""The cases among ranks that have data; None if they cannot be judged together."""


class Rule(msgspec.Struct, frozen=True):
    """One rule.

    Attributes:
        id:      its name in options and documents.
        title:   the problem, in one line.
        theme:   the subject.
        measure: the meaning of the value.
        limits:  its thresholds, the main one first.
        needs:   the data that a capture must have.
        advice:  one sentence.
        facts:   makes its facts of one rank; None if the rank has no data.
        judge:   the cases among the ranks that have data, or None. Without a judge, facts are those
            of :func:`facts_of`, and every rank is reported whose values are beyond the thresholds.
        severity: of every case.
        fewest:  ranks with data it needs.
        covered_by: the kind of verdict (of :mod:`traceconv.analysis.stragglers.verdict`) that names
            the same cause; "" if none does. A report shows what a verdict covers only there.
    """

    id: str
    title: str
    theme: str
    measure: str
    limits: tuple[Limit, ...]
    needs: str
    advice: str
    facts: Callable[[Trace], Known | None]
    judge: Judge | None = None
    severity: FindingSeverity = FindingSeverity.WARNING
    fewest: int = 1
    covered_by: str = ""

    def cases(self, facts_by_rank: Mapping[int, Known], limits: Limits) -> list[Case] | None:
        """The cases among ranks that have data; None if they cannot be judged."""
        if self.judge is not None:
            cases = self.judge(facts_by_rank, limits)
            return None if cases is None else list(cases)
        return [
            as_case(rank, facts)
            for rank, facts in facts_by_rank.items()
            if all(
                limit.beyond(facts["also"].get(limit.name, facts["value"]), limits[limit.name])
                for limit in self.limits
                if not limit.name or limit.name in facts["also"]
            )
        ]


def facts_of(
    value: float, gone: Mapping[str, float], shown: Sequence[Mapping[str, Any]] = (),
    figures: Mapping[str, Any] | None = None, also: Limits | None = None, **details: Any,
) -> dict[str, Any]:  # fmt: skip
    """Facts of a rank for a rule without a judge.

    Args:
        value: what the main threshold is compared with.
        gone:  as of :class:`Case`.
        shown: slices, of :func:`longest`.
        also:  what further thresholds are compared with, by their names.
        details:  ``where``, ``steps`` and ``advice`` of the case.
    """
    return {"value": float(value), "gone": dict(gone), "shown": list(shown),
            "figures": dict(figures or {}), "also": dict(also or {}), **details}  # fmt: skip


def lost(
    count: int, ns: float, known_ns: int, name: str, shown: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Any] | None = None, **details: Any,
) -> dict[str, Any]:  # fmt: skip
    """The same of time of a class in ``count`` steps: the value is its share of them."""
    all_figures = {**(figures or {}), "per_step_ns": round(ns / count), "steps": count}
    return facts_of(float(share(ns, known_ns)), {name: ns / count}, shown, all_figures, **details)


def as_case(rank: int, facts: Known, **changes: Any) -> Case:
    """The case of a rank with the facts of :func:`facts_of`."""
    fields = {name: facts[name] for name in ("value", "figures", "where", "steps", "advice", "gone")
             if name in facts}  # fmt: skip
    return Case(rank, **{**fields, "slices": slices(facts["shown"]), **changes})


def completed(limits: Limits, facts: Known) -> Limits:
    """Thresholds; those without a value are taken from the capture of the rank."""
    return {
        name: facts.get(name, value) if math.isnan(value) else value
        for name, value in limits.items()
    }


def each_rank(test: Callable[[int, Known, Limits], Iterable[Case]]) -> Judge:
    """A judge that looks at every rank separately."""

    def judge(facts_by_rank: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
        for rank, facts in facts_by_rank.items():
            yield from test(rank, facts, completed(limits, facts))

    return judge


def plain(columns: Columns) -> dict[str, Any]:
    """A table as JSON values: a list per heading."""
    return {heading: column.tolist() for heading, column in columns.items()}


def of_table(tables: Iterable[Table], name: str) -> Callable[[Trace], Known | None]:
    """The columns of a rank in the table ``name`` of ``traceconv stats``; None if it has none."""
    table = next(candidate for candidate in tables if candidate.name == name)
    return lambda trace: plain(table.facts(trace)) or None


def rows_of(columns: Known) -> list[dict[str, Any]]:
    """The rows of a table of :func:`plain`."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def longest(trace: Trace, rows: NDArray[np.intp]) -> list[dict[str, Any]]:
    """The longest of some event rows, in the form that :func:`slices` reads."""
    events = trace.events
    if len(rows) > 8 * SLICES_KEPT:  # else sorting all takes no longer
        length = events.dur_ns[rows]
        rows = rows[length >= np.partition(length, -SLICES_KEPT)[-SLICES_KEPT]]
    chosen = rows[np.lexsort((events.start_ns[rows], -events.dur_ns[rows]))[:SLICES_KEPT]]
    return [
        {
            "name": trace.strings[int(events.name[row])],
            "start_ns": int(events.start_ns[row]),
            "dur_ns": int(events.dur_ns[row]),
            "lane": lane(trace.tracks[int(events.track[row])]),
        }
        for row in chosen.tolist()
    ]


def slices_of(trace: Trace, op: OpClass) -> NDArray[np.intp]:
    """The event rows of the slices of a class."""
    return np.flatnonzero((trace.events.op == op) & (trace.events.kind == Kind.SLICE))


def told_slice(trace: Trace, name: str, start_ns: int, dur_ns: int, table: str) -> dict[str, Any]:
    """A row of the profiler's table, in the form that :func:`slices` reads: the slice of the trace
    that has this name and most of that time; else as in the table."""
    events, end_ns = trace.events, start_ns + dur_ns
    rows = np.flatnonzero(
        (events.name == trace.strings.find(name)) & (events.start_ns < end_ns)
        & (events.end_ns > start_ns) & (events.kind == Kind.SLICE)
    )  # fmt: skip
    if len(rows):
        inside = np.minimum(events.ends(rows), end_ns)
        inside -= np.maximum(events.start_ns[rows], start_ns)
        if 2 * inside.max() > dur_ns:
            return longest(trace, rows[[inside.argmax()]])[0]
    return {"name": name, "start_ns": start_ns, "dur_ns": dur_ns, "table": table}


def slices(described: Iterable[Mapping[str, Any]]) -> list[Slice]:
    """The slices that :func:`longest` or :func:`told_slice` described."""
    return [Slice(**slice_facts) for slice_facts in described]
