"""What a rule is: what it measures, from which value on it reports, and what it then reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.excerpts import lane
from traceconv.analysis.tables.definition import Table
from traceconv.core.model import Kind, Trace
from traceconv.core.side_tables import Columns

Known = Mapping[str, Any]
"""What a rule has to know of one rank: JSON values, so that it can travel and be set aside."""

Limits = Mapping[str, float]
"""The thresholds of one rule by name; its main one is ""."""

SLICES_KEPT = 3
"""Most slices that are kept as evidence of a finding."""

STEPS_KEPT = 50
"""So many steps are listed beside a finding."""

OWN = "chosen here"
"""The source of a threshold that nobody else names."""

ALL = math.inf
"""Of what a step would save: all of the classes of lost time that a case is part of."""

UNSAID = math.nan
"""A threshold without a default: what a capture records of a rank under its name is used, unless
somebody says it; a rank of which nobody does is not checked."""


class FindingSeverity(StrEnum):
    """How much a finding asks for."""

    GOOD = "good"  # nothing to do: said, but no finding
    NOTE = "note"  # where the time goes; not necessarily a fault
    WARNING = "warning"  # time is lost


class Limit(msgspec.Struct, frozen=True):
    """A threshold.

    Attributes:
        value:  default, in ``unit``; :data:`UNSAID` if there is none.
        unit:   "%", "ms", "us", "MB" ...; "" of a plain ratio.
        source: who says so.
        name:   "" of the main one, with which the measured value is compared.
        below:  the rule reports values below it, not above.
        measure: what is compared with it, where that is not the measure of the rule.
    """

    value: float
    unit: str
    source: str
    name: str = ""
    below: bool = False
    measure: str = ""

    @property
    def spelled(self) -> str:
        """The unit, as people write it."""
        return "µs" if self.unit == "us" else self.unit


class Slice(msgspec.Struct, frozen=True):
    """A piece of the timeline that shows what is meant; ns on the clock of its rank.

    ``lane`` is the way to it below its rank, as a viewer shows it; "" where it is not drawn: then
    ``table`` is the profiler's table that tells of it.
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
            or ``_bytes`` says the unit.
        where:   the operator, queue, link or device meant, "" if it is the rank.
        steps:   numbers of the steps concerned, () if it is the run.
        slices:  what to look at.
        advice:  in place of the rule's own.
        limit:   name of the threshold that ``value`` is compared with.
        saves_ns: what a step would save at most, were this gone; None if that is unknown.
        part_of: classes of lost time (:mod:`traceconv.analysis.losses`) that this is part of, so
            that it saves no more than these; () where ``saves_ns`` is bounded already.
    """

    rank: int
    value: float
    figures: Mapping[str, Any] = msgspec.field(default_factory=dict)
    where: str = ""
    steps: Sequence[int] = ()
    slices: Sequence[Slice] = ()
    advice: str = ""
    limit: str = ""
    saves_ns: float | None = None
    part_of: Sequence[str] = ()


Judge = Callable[[Mapping[int, Known], Limits], Iterable[Case] | None]
"""The cases among ranks that have data; None if these cannot be looked at together."""


class Rule(msgspec.Struct, frozen=True):
    """One rule.

    Attributes:
        id:      as it is called in options and documents.
        title:   what is wrong, in one line.
        theme:   what it is about.
        measure: what the value is, in words.
        limits:  its thresholds, the main one first.
        needs:   what a capture must hold.
        advice:  one sentence.
        facts:   what it has to know of a rank; None if the rank has no data for it.
        judge:   the cases among the ranks that have data, or None.
        severity: of every case.
        fewest:  ranks with data it takes.
    """

    id: str
    title: str
    theme: str
    measure: str
    limits: tuple[Limit, ...]
    needs: str
    advice: str
    facts: Callable[[Trace], Known | None]
    judge: Judge
    severity: FindingSeverity = FindingSeverity.WARNING
    fewest: int = 1


def completed(limits: Limits, known: Known) -> Limits:
    """Thresholds, with what the capture records of a rank where none was given."""
    return {
        name: known.get(name, value) if math.isnan(value) else value
        for name, value in limits.items()
    }


def each_rank(test: Callable[[int, Known, Limits], Iterable[Case]]) -> Judge:
    """A judge that looks at every rank by itself."""

    def judge(known: Mapping[int, Known], limits: Limits) -> Iterable[Case]:
        for rank, one in known.items():
            yield from test(rank, one, completed(limits, one))

    return judge


def plain(columns: Columns) -> dict[str, Any]:
    """A table as JSON values: a list per heading."""
    return {heading: column.tolist() for heading, column in columns.items()}


def of_table(tables: Iterable[Table], name: str) -> Callable[[Trace], Known | None]:
    """What the table ``name`` of ``traceconv stats`` knows of a rank; None if nothing."""
    table = next(one for one in tables if one.name == name)
    return lambda trace: plain(table.facts(trace)) or None


def rows_of(known: Known) -> list[dict[str, Any]]:
    """The rows of a table of :func:`plain`."""
    return [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]


def longest(trace: Trace, rows: NDArray[np.intp]) -> list[dict[str, Any]]:
    """The longest of some event rows, as :func:`slices` takes them back."""
    events = trace.events
    if len(rows) > 8 * SLICES_KEPT:  # else sorting all takes no longer
        length = events.dur_ns[rows]
        rows = rows[length >= np.partition(length, -SLICES_KEPT)[-SLICES_KEPT]]
    first = rows[np.lexsort((events.start_ns[rows], -events.dur_ns[rows]))[:SLICES_KEPT]]
    return [
        {
            "name": trace.strings[int(events.name[row])],
            "start_ns": int(events.start_ns[row]),
            "dur_ns": int(events.dur_ns[row]),
            "lane": lane(trace.tracks[int(events.track[row])]),
        }
        for row in first.tolist()
    ]


def told_slice(trace: Trace, name: str, start_ns: int, dur_ns: int, table: str) -> dict[str, Any]:
    """What a table of the profiler tells of, as :func:`slices` takes it back: as the slice of the
    trace that shows it, which has this name and most of that time; else as the table says.
    """
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


def slices(kept: Iterable[Mapping[str, Any]]) -> list[Slice]:
    """The slices that :func:`longest` or :func:`told_slice` described."""
    return [Slice(**one) for one in kept]
