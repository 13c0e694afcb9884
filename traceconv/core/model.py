"""The event model: what every reader makes, every pass changes and every writer writes.

One :class:`Trace` is one rank, as columns. Nothing here knows a file format or a viewer.

Conventions: times are int64 nanoseconds; an absent integer is -1; string and argument ids are
valid within their own trace only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from traceconv.core.clock import Anchor
from traceconv.core.columns import (
    F64,
    I8,
    I32,
    I64,
    UNKNOWN,
    Args,
    CounterTable,
    EventTable,
    FlowTable,
    Mask,
    Names,
    OverlapSums,
    OverlapTimes,
    StepTable,
    Strings,
    Table,
    edges,
    looked_up,
)
from traceconv.core.errors import Issues
from traceconv.core.hints import Hints
from traceconv.core.job_shape import Placement
from traceconv.core.kinds import Covered, Kind, OpClass, StepSource
from traceconv.core.ordering import in_lanes
from traceconv.core.side_tables import SideTable
from traceconv.core.source import Source
from traceconv.core.tracks import TITLES, Layer, Track, TrackKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BACKWARDS",
    "EVERY_GRAPH",
    "F64",
    "I8",
    "I32",
    "I64",
    "KINDS",
    "NO_GRAPH",
    "STEP_TABLE",
    "TITLES",
    "UNKNOWN",
    "Args",
    "Capture",
    "CounterTable",
    "Coverage",
    "Covered",
    "EventTable",
    "FlowTable",
    "Hints",
    "Kind",
    "Layer",
    "Ledger",
    "Mask",
    "OpClass",
    "OverlapSums",
    "OverlapTimes",
    "Present",
    "StepSource",
    "StepTable",
    "Strings",
    "Table",
    "Trace",
    "Track",
    "TrackKind",
    "arranged",
    "no_windows",
]


def no_windows() -> I64:
    """The windows of a trace that has none."""
    return np.empty((0, 2), np.int64)


NO_GRAPH = 4294967295
"""How Ascend writes "belongs to no graph"; becomes -1 in the ``graph`` column."""

EVERY_GRAPH = -2
"""A wildcard: all graphs that the step trace in a file may have."""

BACKWARDS = " (backwards)"
"""Ends the name of a flow that is written against its direction: viewers of trace-event JSON
draw flows forward in time only, and the clocks of host and device may disagree."""


@dataclass(frozen=True)
class Capture:
    """Facts about a rank that are known before its events are read.

    Attributes:
        reader:   name of the reader that found it; several parts: their names joined by " + ".
        source:   the file, folder or archive with its files.
        files:    files that are read for events, relative to the source, in reading order.
        rank:     global rank, or None while it is not known.
        rank_from: where the rank is stated ("profiler_info_3.json", "file name").
        known:    recognised files that are not read for events (identity, tables, ``.done``).
        host:     host name, "" if unknown.
        device:   local card, -1 if unknown.
        pid:      the training process, -1 if unknown.
        traits:   further facts that distinguish its process ("pid", "device", "part"), as far as
            they are known after finding; only compared, never shown.
        graphs:   graph ids named by files or metadata, sorted; () if only the events have them.
        clock:    the clock of its timestamps; None if nothing is known.
        world_size: ranks of the job, -1 if unknown.
        label, name: in messages, usually the folder or file; in viewers, "" for "Rank N".
        detail:   state that its reader keeps between finding and reading. It is sent to workers,
            so it must be plain values: no open files, no local functions.
        tables:   side tables by name, and the files each is read from.
        uses:     for files of ``known``: in a few words, why they are not read for events.
        border_operators: the operators that forward begins and backward ends with, as the user
            gives them in ``PROFILING_FP_START`` and ``PROFILING_BP_END``; "" if not given.
        beside:   files that an archive can hold next to the ranks, and the offset to add to their
            timestamps, ns.
        optional: whether a run continues without it if its rank is unknown.
        placement: the place of the rank in the job, as its files state it.
        parts:    the captures of a rank that has several collection windows. Each is read by its
            own reader; together they are the rank. ``files``, ``known``, ``tables`` and ``graphs``
            are those of all parts; ``clock`` is the common clock of their events.
        content:  of an output of traceconv, its view and its steps, in words.
    """

    reader: str
    source: Source
    files: tuple[str, ...]
    rank: int | None = None
    rank_from: str = ""
    known: tuple[str, ...] = ()
    host: str = ""
    device: int = -1
    pid: int = -1
    graphs: tuple[int, ...] = ()
    clock: Anchor | None = None
    world_size: int = -1
    label: str = ""
    name: str = ""
    detail: Any = None
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    uses: Mapping[str, str] = field(default_factory=dict)
    border_operators: tuple[str, str] = ("", "")
    optional: bool = False
    placement: Placement = field(default_factory=Placement)
    parts: tuple[Capture, ...] = ()
    beside: tuple[tuple[str, int], ...] = ()
    traits: Mapping[str, int | str] = field(default_factory=dict)
    content: str = ""

    def __repr__(self) -> str:
        rank = "of unknown rank" if self.rank is None else f"of rank {self.rank}"
        return f"<Capture {rank} ({self.reader}): {self.title}>"

    @property
    def title(self) -> str:
        """The capture as the user would name it."""
        if self.label:
            return self.label
        return self.source.title(self.files[0]) if self.files else self.source.label

    def identity(self) -> dict[str, int | str]:
        """The traits of its process that are known."""
        known = {"host": self.host, "pid": self.pid, "device": self.device, **self.traits}
        return {trait: value for trait, value in known.items() if value not in ("", -1)}

    def differs(self, other: Capture) -> list[str]:
        """The traits that are known of both and in which they differ."""
        own, others = self.identity(), other.identity()
        return [trait for trait in own if others.get(trait, own[trait]) != own[trait]]


def stated_content(facts: Mapping[str, Any]) -> str:
    """:attr:`Capture.content`, from what an output of traceconv states of itself."""
    view = f"{mode} view" if (mode := facts.get("mode")) else ""
    return "; ".join(filter(None, (view, str(facts.get("steps", "")))))[:_LONGEST_CONTENT]


_LONGEST_CONTENT = 400

Ledger = dict[tuple[str, str], int]
"""What every stage added or took away: ``{(stage, kind): rows}``; kinds as in :data:`KINDS`.

The sum over stages is the number of rows in the trace: every loss is counted.
"""

KINDS = ("slice", "instant", "counter", "flow")


def _with(raw: bytes, members: bytes) -> bytes:
    """A JSON object with more members; one that is not one stays as it is."""
    if not raw:
        return b"{" + members[1:] + b"}"
    head = raw.rstrip()
    if not head.endswith(b"}"):
        return raw
    head = head[:-1].rstrip()
    return head + (members[1:] if head == b"{" else members) + b"}"


class Present(msgspec.Struct, frozen=True, eq=False):
    """The graphs and steps of a rank that can be selected, whatever was selected.

    Attributes:
        graphs: ids of its graphs, ascending.
        steps:  numbers of its steps, ascending.
        iterations: rows of its step trace; more than ``steps`` where graphs share numbers.
    """

    graphs: I32 = msgspec.field(default_factory=lambda: np.empty(0, np.int32))
    steps: I32 = msgspec.field(default_factory=lambda: np.empty(0, np.int32))
    iterations: int = 0


class Coverage(msgspec.Struct, frozen=True):
    """Which part of a rank a capture recorded. Figures are computed within it; outside of it values
    are unknown, not zero.

    This covers the whole capture; :attr:`StepTable.covered` covers single steps.

    Attributes:
        steps:   rows of its step table.
        recorded: steps whose device work was recorded.
        vendor:  further steps whose figures come from the vendor's own table of steps.
        layers:  per layer with events, the recorded intervals: from the first start to the last
            end in every collection window, int64 ns.
        devices: number of devices of the rank whose work was analysed: figures that are totals
            over devices cover this many.
    """

    steps: int = 0
    recorded: int = 0
    vendor: int = 0
    layers: Mapping[Layer, tuple[tuple[int, int], ...]] = msgspec.field(default_factory=dict)
    devices: int = 1

    @property
    def text(self) -> str:
        """``device data for 3 of 10 iterations``, whose others' figures are; "" if of all."""
        if self.recorded == self.steps or not (self.recorded or self.vendor):
            return ""
        if not self.recorded:
            return f"figures of {self.vendor} of {self.steps} iterations from {STEP_TABLE}"
        table = f", figures of {self.vendor} more from {STEP_TABLE}" if self.vendor else ""
        return f"device data for {self.recorded} of {self.steps} iterations{table}"


STEP_TABLE = "step_trace_time"
"""The vendor's own side table with the breakdown of step times."""


@dataclass(frozen=True)
class Trace:
    """One rank. Frozen; passes return a new one that shares the columns they left alone.

    Attributes:
        capture:  where it came from; ``rank`` is set.
        tracks:   in screen order.
        windows:  (n, 2) int64: the spans in which the profiler was collecting, sorted, disjoint;
            empty if the events themselves are all there is to know. Between windows nothing is
            known: that time is not "free".
        ledger:   see :data:`Ledger`.
        hints:    properties of the source, by which passes and analyses decide.
        present:  graphs and steps that can be selected; filled by the passes of selection and
            attribution.
        steps:    the step table, made by the passes of steps and attribution.
        coverage: recorded spans, found by the pass of attribution.
        overlap:  sums of the overlap analysis; None where it was not made, has found nothing, or
            no longer describes the rank (a window of time).
        notes:    facts for display (JSON values), by key. No code reads them.
        side_tables: tables of the profiler, by name; they are parsed on access.
        aligned:  False if its clock was left as recorded on request: its times are not comparable
            with those of other ranks.
    """

    capture: Capture
    tracks: tuple[Track, ...] = ()
    strings: Strings = field(default_factory=Strings)
    events: EventTable = field(default_factory=EventTable.empty)
    counters: CounterTable = field(default_factory=CounterTable.empty)
    flows: FlowTable = field(default_factory=FlowTable.empty)
    args: Args = field(default_factory=Args)
    issues: Issues = field(default_factory=Issues)
    windows: I64 = field(default_factory=no_windows)
    ledger: Ledger = field(default_factory=dict)
    hints: Hints = field(default_factory=Hints)
    present: Present = field(default_factory=Present)
    steps: StepTable = field(default_factory=StepTable.empty)
    coverage: Coverage = field(default_factory=Coverage)
    overlap: OverlapSums | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    side_tables: Mapping[str, SideTable] = field(default_factory=dict)
    aligned: bool = True

    def __repr__(self) -> str:
        rows = ", ".join(f"{n:,} {kind}s" for kind, n in self.counts().items() if n)
        return f"<Trace of rank {self.capture.rank}: {rows or 'no events'}>"

    def __post_init__(self) -> None:
        """Let the tables know what their numbers refer to, for :meth:`EventTable.to_pandas`."""
        names = Names(self.tracks, self.strings, self.args)
        for name in ("events", "counters", "flows"):
            table: Table = getattr(self, name)
            if table.names is None or not table.names.same_as(names):
                object.__setattr__(self, name, table.of(names))

    @property
    def rank(self) -> int:
        """The global rank."""
        assert self.capture.rank is not None, "ranks are resolved before reading"
        return self.capture.rank

    def counts(self) -> dict[str, int]:
        """Rows by kind (:data:`KINDS`)."""
        instants = int(np.count_nonzero(self.events.kind == Kind.INSTANT))
        sizes = (len(self.events) - instants, instants, len(self.counters), len(self.flows))
        return dict(zip(KINDS, sizes, strict=True))

    def evolve(self, stage: str, **changes: Any) -> Trace:
        """A copy with ``changes``, the difference in rows counted under ``stage``.

        If ``events`` changes its rows, ``flows`` must be given too; see :meth:`keep`.
        """
        evolved, before = replace(self, **changes), self.counts()
        ledger = dict(self.ledger)
        for kind, now in evolved.counts().items():
            if now != before[kind]:
                ledger[stage, kind] = ledger.get((stage, kind), 0) + now - before[kind]
        return replace(evolved, ledger=ledger)

    def keep(self, stage: str, events: NDArray[Any], counters: NDArray[Any] | None = None) -> Trace:
        """Only the rows of the masks, and the flows between kept rows.

        Args:
            events:   bool per event row.
            counters: bool per counter row; None keeps all.
        """
        position = np.cumsum(events, dtype=np.int32) - np.int32(1)  # new row of each kept one
        flows = self.flows
        if len(flows):
            flows = flows.take(events.take(flows.src) & events.take(flows.dst))
            flows = flows.with_columns(src=position.take(flows.src), dst=position.take(flows.dst))
        return self.evolve(
            stage,
            events=self.events.take(events),
            counters=self.counters if counters is None else self.counters.take(counters),
            flows=flows,
        )

    def with_arguments(self, rows: NDArray[Any], members: Sequence[bytes]) -> Trace:
        """The trace with more arguments of some events.

        Args:
            rows:    event rows, each once.
            members: what each gets, as JSON: ``,"key":value``; b"" for nothing.
        """
        had = map(self.args.raw, self.events.args[rows].tolist())
        args, first_id = self.args.extended(list(map(_with, had, members)))
        column = self.events.args.copy()
        column[rows] = np.arange(first_id, first_id + len(rows), dtype=np.int32)
        return replace(self, args=args, events=self.events.with_columns(args=column))

    def with_issue(self, code: str, where: str = "", count: int = 1) -> Trace:
        """The trace with ``count`` more records under an issue code; itself if ``count`` is 0."""
        if not count:
            return self
        issues = self.issues.copy()
        issues.add(code, where=where, count=count, rank=self.rank)
        return replace(self, issues=issues)

    @property
    def used(self) -> Mask:
        """Which tracks have events or samples."""
        used = np.zeros(len(self.tracks), bool)
        for table in (self.events, self.counters):
            used |= np.diff(edges(table.track, len(self.tracks))) > 0
        return used

    def rows_of(self, *layers: Layer | str) -> Mask:
        """Mask of the event rows on tracks of these layers.

        Raises:
            ValueError: there is no such layer.
        """
        selected, rows = set(map(Layer, layers)), np.zeros(len(self.events), bool)
        for layer, first, after in self._runs:
            if layer in selected:
                rows[first:after] = True
        return rows

    @cached_property
    def _runs(self) -> list[tuple[Layer, int, int]]:
        """Layer, first row and the row after the last of each track that has events."""
        bounds = edges(self.events.track, len(self.tracks)).tolist()
        runs = zip(self.tracks, bounds, bounds[1:], strict=False)
        return [(track.layer, first, after) for track, first, after in runs if first < after]

    def span(self) -> tuple[int, int] | None:
        """Earliest start and latest end of all events and samples; None without any."""
        lows = [int(table.start_ns.min()) for table in (self.events, self.counters) if len(table)]
        ends = self.events.end_ns, self.counters.start_ns
        return (min(lows), max(int(ns.max()) for ns in ends if len(ns))) if lows else None

    def add_events(
        self, stage: str, tracks: Sequence[Track], events: EventTable, args: Args | None = None
    ) -> Trace:
        """The trace with more tracks and rows; ``events.track`` counts from the first new one.

        Tracks come back in screen order, rows in table order, flows on the same events.
        """
        moved = events.with_columns(track=events.track + np.int32(len(self.tracks)))
        return arranged(
            self.evolve(
                stage,
                tracks=(*self.tracks, *tracks),
                events=EventTable.concat([self.events, moved]),
                args=self.args if args is None else args,
            )
        )


def arranged(trace: Trace, alone: bool = False, in_time: bool = False) -> Trace:
    """``trace`` with tracks in screen order (equal ones joined), rows in table order.

    Flows and counters follow. The one place that knows the order of tables.

    Args:
        alone: nobody else holds the tables of ``trace``, which is given up: its events are put in
            order where they are, so that never two copies of all are alive.
        in_time: rows of each track are in table order already, as where tracks were divided.
    """
    unique = sorted(set(trace.tracks), key=Track.order_key)
    number = {track: i for i, track in enumerate(unique)}
    renumber = np.array([number[t] for t in trace.tracks], np.int32)
    events, counters, flows = trace.events, trace.counters, trace.flows
    if len(events):
        if alone:
            events.track = looked_up(renumber, events.track)
        else:
            events = events.with_columns(track=looked_up(renumber, events.track))
        order = in_lanes(events.track) if in_time else events.sort_order()
        if not (order[1:] > order[:-1]).all():  # else the rows are in order already
            if alone:
                events.reorder(order)
            else:
                events = events.take(order)
            if len(flows):
                position = np.empty(len(order), np.int32)
                position[order] = np.arange(len(order), dtype=np.int32)
                flows = flows.with_columns(
                    src=position.take(flows.src), dst=position.take(flows.dst)
                )
    if len(counters):
        counters = counters.with_columns(track=renumber[counters.track])
        counters = counters.take(np.lexsort((counters.start_ns, counters.track)))
    return replace(trace, tracks=tuple(unique), events=events, counters=counters, flows=flows)
