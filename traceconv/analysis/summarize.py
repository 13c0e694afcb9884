"""Makes the summary of one rank from its trace: the only way from events to an analysis.

Tables, rules and links are imported where they are requested: a merge needs none, and loading them
takes longer than its summary of a small rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from traceconv.alignment.collective_records import collective_records
from traceconv.analysis.diff.items import step_items
from traceconv.analysis.excerpts import excerpts
from traceconv.analysis.hang import recorded
from traceconv.analysis.losses import losses, stated_losses
from traceconv.analysis.pipeline_phases import NO_PHASES, phases
from traceconv.analysis.rank_facts import Losses, Operations, Recorded, StepItems
from traceconv.analysis.rank_summary import (
    NO_COLLECTIVES,
    NOT_REQUESTED,
    AsRead,
    Excerpts,
    RankSummary,
    RuleRecords,
)
from traceconv.analysis.replay.operations import operations
from traceconv.analysis.tables.stated_steps import stated_overlap
from traceconv.analysis.utilisation import whole_rank
from traceconv.core.errors import Issue, Issues, TraceconvError
from traceconv.core.model import Trace
from traceconv.core.side_tables import Columns


class SummaryRequest(msgspec.Struct, frozen=True):
    """The parts of a summary besides rank, span, graphs and steps.

    Attributes:
        tables:   names of tables.
        rules:    ids of rules.
        lateness: collectives, and what the rank did before each.
        as_read:  what a plan of clocks needs of the events as read.
        links:    links to other ranks.
        excerpts: what a report draws.
        items:    what every nanosecond of the steps went to.
        phases:   what the rank did as a stage of a pipeline; with ``lateness``.
        issues:   what was lost or is in doubt, of the trace and of its side tables. They are given
            out once: no other account of the trace gets those of the side tables.
        lenient:  a table of the profiler that cannot be read is noted in ``unread``, and costs
            its own figures only; otherwise it is an error.
    """

    tables: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    lateness: bool = False
    as_read: bool = False
    links: bool = False
    excerpts: bool = False
    items: bool = False
    phases: bool = False
    issues: bool = True
    lenient: bool = False

    def covers(self, other: SummaryRequest) -> bool:
        """Whether all parts that ``other`` requests are among these."""
        return other.without(self) == NO_PARTS

    def joined(self, other: SummaryRequest) -> SummaryRequest:
        """The parts of both."""
        new = other.without(self)
        parts_of_both: dict[str, Any] = {
            name: True for name, value in asdict(new).items() if value is True
        }
        parts_of_both["tables"] = (*self.tables, *new.tables)
        parts_of_both["rules"] = (*self.rules, *new.rules)
        return replace(self, **parts_of_both)

    def without(self, other: SummaryRequest) -> SummaryRequest:
        """The parts that ``other`` does not request."""
        less: dict[str, Any] = {
            name: False for name, value in asdict(other).items() if value is True
        }
        less["tables"] = tuple(name for name in self.tables if name not in other.tables)
        less["rules"] = tuple(name for name in self.rules if name not in other.rules)
        return replace(self, **less)


NO_PARTS = SummaryRequest(issues=False)


def summarize(
    trace: Trace, requested: SummaryRequest, as_read: AsRead = NOT_REQUESTED
) -> RankSummary:
    """Return the summary of a rank.

    Args:
        trace: after the passes of the detail view: steps, overlap and lanes made.
        as_read: the rank before these, where that is requested.

    Raises:
        OptionError: there is no such table or rule.
        TraceconvError: a table of the profiler that is needed cannot be read.
    """
    unread: list[str] = []
    records = collective_records(trace) if requested.lateness or requested.items else NO_COLLECTIVES
    collectives = records if requested.lateness else NO_COLLECTIVES
    read = sum(rows for (stage, _), rows in trace.ledger.items() if stage in ("read", "lost"))
    return RankSummary(
        rank=trace.rank,
        span_ns=trace.span(),
        holds_nothing=not trace.side_tables and not read,
        tables={name: _table(trace, name, requested, unread) for name in requested.tables},
        rules=_rules(trace, requested),
        collectives=collectives,
        as_read=as_read if requested.as_read else NOT_REQUESTED,
        links=_links(trace) if requested.links else {},
        excerpts=excerpts(trace) if requested.excerpts else Excerpts(),
        graphs=tuple(trace.present.graphs.tolist()),
        steps=tuple(trace.present.steps.tolist()),
        coverage=trace.coverage,
        losses=(lost := _losses(trace, unread)),
        items=step_items(trace, records) if requested.items else StepItems(),
        phases=phases(trace, collectives) if requested.phases else NO_PHASES,
        replay=operations(trace, collectives) if requested.lateness else Operations(),
        recorded=recorded(trace) if requested.lateness else Recorded(),
        steps_marked=all(of.per_step for of in lost.values())
        if any(of.source for of in lost.values())
        else bool(trace.steps.marked.any()),
        partial=_partial(trace, requested.tables),
        world_size=trace.capture.world_size,
        host=trace.capture.host,
        placement=trace.capture.placement,
        issues=_issues(trace) if requested.issues else (),  # the last: tables have been read by now
        unread=tuple(dict.fromkeys(unread)),
    )


class Parts(msgspec.Struct, frozen=True):
    """The requests that a summary answers.

    Attributes:
        made:      its parts.
        divisible: whether it answers requests for some of them, too; see :func:`with_more`.
    """

    made: SummaryRequest
    divisible: bool = False

    def answer(self, requested: SummaryRequest) -> bool:
        """Whether a summary of these parts has all that is requested."""
        return self.made == requested or (self.divisible and self.made.covers(requested))


def with_more(
    trace: Trace,
    requested: SummaryRequest,
    spare: SummaryRequest,
    as_read: AsRead = NOT_REQUESTED,
) -> tuple[Parts, RankSummary]:
    """The summary, with the parts ``spare`` besides if making all of them notices nothing: no
    table is broken, no issue is found. Then :func:`part` of it is what is made of some parts.
    """
    before = _noticed(trace)
    summary, spare = summarize(trace, requested, as_read), spare.without(requested)
    if spare == NO_PARTS:
        return Parts(requested), summary
    try:
        extra = summarize(trace, spare, as_read)
    except TraceconvError:
        return Parts(requested), summary
    broken = (*summary.unread, *extra.unread, *summary.rules.broken, *extra.rules.broken)
    if broken or _noticed(trace) != before:
        return Parts(requested), summary
    more = {
        field: getattr(extra, field)
        for name, of_part in _FIELDS.items()
        for field in of_part
        if getattr(spare, name)
    }
    return Parts(requested.joined(spare), divisible=True), replace(
        summary,
        tables={**summary.tables, **extra.tables},
        rules=RuleRecords({**summary.rules.known, **extra.rules.known}),
        partial=(*summary.partial, *extra.partial),
        **more,
    )


def _noticed(trace: Trace) -> list[object]:
    """All issues of a trace and of its side tables, as far as these have been read."""
    return [tuple(trace.issues), *(tuple(table.issues) for table in trace.side_tables.values())]


_FIELDS = {
    "lateness": ("collectives", "replay", "recorded"),
    "as_read": ("as_read",),
    "links": ("links",),
    "excerpts": ("excerpts",),
    "items": ("items",),
    "phases": ("phases",),
    "issues": ("issues",),
}
"""Fields of a summary by the part of a request that they are; tables and rules are by name."""


def part(content: bytes | memoryview, requested: SummaryRequest) -> bytes:
    """Some parts of an encoded summary, see :func:`with_more`. The others are not decoded.

    Raises:
        msgspec.MsgspecError, KeyError: it is no summary.
    """
    decode = msgspec.msgpack.decode
    version, fields = decode(content, type=tuple[int, dict[str, msgspec.Raw]])
    tables, rules = (
        decode(fields[name], type=dict[str, msgspec.Raw]) for name in ("tables", "rules")
    )
    known = decode(rules["known"], type=dict[str, msgspec.Raw])
    partial = decode(fields["partial"], type=tuple[str, ...])
    parts = {
        "tables": {name: tables[name] for name in requested.tables},
        "rules": {"known": {rule: known[rule] for rule in requested.rules if rule in known}},
        "partial": [name for name in requested.tables if name in partial],
    }
    left_out = {
        field
        for name, of_part in _FIELDS.items()
        for field in of_part
        if not getattr(requested, name)
    }
    kept = {name: field for name, field in fields.items() if name not in left_out}
    return msgspec.msgpack.encode((version, {**kept, **parts}))


_LONG = ("comm_op", "collective_wait", "idle_gap", "range_instance")  # with a row per event


def all_parts() -> SummaryRequest:
    """The parts for every analysis, but for tables that are long, or take long."""
    from traceconv.analysis.rules.catalog import chosen
    from traceconv.analysis.tables import catalog as tables

    costly = (*tables.BY["stack"], "memory_path", *tables.WITH_SCOPES)
    return SummaryRequest(
        tables=tuple(name for name in tables.TABLES if name not in (*costly, *_LONG)),
        rules=tuple(rule.id for rule in chosen(None)),
        lateness=True,
        as_read=True,
        links=True,
        excerpts=True,
        items=True,
        phases=True,
        lenient=True,
    )


def spare_parts(requested: SummaryRequest) -> SummaryRequest:
    """Parts for other commands that take about a tenth of the time of reading a rank and making
    those requested: rules share with tables most of what these need.
    """
    if requested.rules:
        every = all_parts()
        spare = [name for name in (*every.tables, *_LONG) if name not in _SELDOM]
        return replace(every, tables=tuple(spare), rules=(), items=False, phases=False)
    return SummaryRequest(tables=_QUICK, lateness=True, as_read=True, links=True)


_SELDOM = ("operator_bound", "frequency_kernel")
"""Tables that take 2 % of the time of reading a rank, and that few ask for."""

_QUICK = ("step_summary", "step", "overlap")


def _losses(trace: Trace, unread: list[str]) -> dict[int, Losses]:
    """The losses of the rank's steps: as measured, else as the profiler states them."""
    measured_losses = losses(trace.steps, whole_rank(trace), trace.coverage.devices)
    try:
        stated_figures = (
            {} if measured_losses.steps else stated_losses(stated_overlap(trace), trace.rank)
        )
    except TraceconvError as e:
        unread.append(str(e))
        stated_figures = {}
    return stated_figures or {trace.rank: measured_losses}


def _partial(trace: Trace, names: Sequence[str]) -> tuple[str, ...]:
    """Which tables are of rows of the device that are not all that ran."""
    if not names or not (trace.hints.partial_device or trace.hints.partial_steps):
        return ()
    from traceconv.analysis.tables import catalog as tables

    from_tables = {"comm"} if "communication" in trace.side_tables else set()
    return tuple(name for name in names if name in tables.OF_DEVICE and name not in from_tables)


def _table(trace: Trace, name: str, requested: SummaryRequest, unread: list[str]) -> Columns:
    from traceconv.analysis.tables import catalog as tables

    try:
        return tables.of_rank(trace, name)
    except TraceconvError as e:
        if not requested.lenient:
            raise
        unread.append(str(e))
        return {}


def _rules(trace: Trace, requested: SummaryRequest) -> RuleRecords:
    if not requested.rules:
        return RuleRecords({})
    from traceconv.analysis.rules.findings import rule_records

    return rule_records(trace, requested.rules)


def _links(trace: Trace) -> Columns:
    from traceconv.analysis.stragglers import links

    return links.of_rank(trace)


def _issues(trace: Trace) -> tuple[Issue, ...]:
    issues: Issues = trace.issues.copy()
    for side_table in trace.side_tables.values():
        side_table.account(issues)
    return tuple(issues)
