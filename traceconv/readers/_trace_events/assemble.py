"""From the tables of a whole file to rows, samples and arrows in the builder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I64
from traceconv.readers._trace_events.arrows import Arrows
from traceconv.readers._trace_events.binding import Binder
from traceconv.readers._trace_events.contract import Classify, Revise
from traceconv.readers._trace_events.counters import Counters
from traceconv.readers._trace_events.lanes import Lanes, Texts
from traceconv.readers._trace_events.naming import Naming
from traceconv.readers._trace_events.pairs import Joiner
from traceconv.readers._trace_events.place import Anchors, Placer
from traceconv.readers._trace_events.tables import BEGIN, Asyncs, Flows, Rows, Tables

EPOCH_NS = 2**50 * 1000
"""From here on (2005) doubles of microseconds are a quarter of one apart."""

COARSE_STAMPS = 4
"""So many stamps on the grid of doubles, and none off it, are no accident."""

_GRID = np.zeros(1000, bool)
_GRID[[200, 250, 500, 750, 800]] = True  # .25 and .75 as they are, and as shortest texts

_ASYNC_BEGINS, _ASYNC_ENDS = ("b", "S"), ("e", "F")


def assemble(
    tables: Tables,
    naming: Naming,
    classify: Classify,
    build: TraceBuilder,
    offset_ns: int,
    revise: Revise | None = None,
) -> tuple[int, int] | None:
    """Put everything into ``build`` and book the accounts; empties ``tables``.

    Args:
        offset_ns: added to every stamp.
        revise: see ``contract.Revise``.

    Returns:
        Earliest start and latest end of the slices, ns; None if there are none.
    """
    return _Assembly(tables, naming, classify, build, offset_ns, revise).run()


class _Assembly:
    def __init__(
        self,
        tables: Tables,
        naming: Naming,
        classify: Classify,
        build: TraceBuilder,
        offset_ns: int,
        revise: Revise | None,
    ) -> None:
        self._tables, self._naming, self._build = tables, naming, build
        self._lanes = Lanes(tables, naming, classify, build)
        self._texts = Texts(tables.names.texts(), build)
        self._flows = self._concerned_flows()
        touched = np.zeros(len(tables.shapes.lanes), bool)
        touched[tables.shapes.lane[self._flows.shape]] = True
        self._placer = Placer(tables, self._lanes, self._texts, build, offset_ns, touched, revise)

    def run(self) -> tuple[int, int] | None:
        tables = self._tables
        self._look_at_grid()
        joiner = Joiner(tables, self._build, self._last_ns)
        marks = self._pairs(joiner)
        asyncs, points = self._asyncs(joiner)
        for rows in tables.rows.drain():
            self._placer.put(rows)
        for rows in marks + asyncs:
            self._placer.put(rows)
        for rows in points:
            self._placer.put(rows, instants=True)
        if tables.samples:
            counters = Counters(tables, self._lanes, self._texts, self._build)
            counters.put(tables.samples.whole(), self._placer)
        self._draw()
        self._book()
        return self._placer.span

    def _concerned_flows(self) -> Flows:
        """All ends of arrows, without those of lanes that belong to another capture."""
        flows = self._tables.flows.whole() if self._tables.flows else Flows.empty()
        present = np.flatnonzero(np.bincount(flows.shape)).tolist()
        out = [code for code in present if self._lanes.place(code) is None]
        return flows.take(~np.isin(flows.shape, out)) if out else flows

    def _pairs(self, joiner: Joiner) -> list[Rows]:
        """Slices of B and E."""
        if not self._tables.marks:
            return []
        marks, shapes = self._tables.marks.whole(), self._tables.shapes
        self._tables.marks.append(marks)  # the joiner may ask for the last stamps
        slices = joiner.slices(marks, shapes.lane[marks.shape], shapes.kind[marks.shape] == BEGIN)
        self._tables.marks.whole()
        return [slices]

    def _asyncs(self, joiner: Joiner) -> tuple[list[Rows], list[Rows]]:
        """Slices of b and e (S and F), and instants of the steps between."""
        if not self._tables.asyncs:
            return [], []
        asyncs = self._tables.asyncs.whole()
        self._tables.asyncs.append(asyncs)
        opens, closes = (self._of_phases(asyncs, p) for p in (_ASYNC_BEGINS, _ASYNC_ENDS))
        rows = Rows(
            asyncs.shape, asyncs.name, asyncs.start, np.zeros(len(asyncs), np.int64),
            asyncs.args, asyncs.length,
        )  # fmt: skip
        ends = opens | closes
        points = [rows.take(~ends)] if not ends.all() else []
        slices = (
            [joiner.slices(rows.take(ends), asyncs.key[ends], opens[ends])] if ends.any() else []
        )
        self._tables.asyncs.whole()
        return slices, points

    def _of_phases(self, asyncs: Asyncs, phases: Sequence[str]) -> NDArray[np.bool_]:
        wanted = np.array([phase in phases for phase in self._tables.shapes.phase], bool)
        found: NDArray[np.bool_] = wanted[asyncs.shape]
        return found

    def _last_ns(self) -> I64:
        """The last stamp of every lane."""
        last = np.full(len(self._tables.shapes.lanes), np.iinfo(np.int64).min)
        lane = self._tables.shapes.lane
        for batch in (*self._tables.rows, *self._tables.marks):
            np.maximum.at(last, lane[batch.shape], batch.start + batch.dur)
        for asyncs in self._tables.asyncs:
            np.maximum.at(last, lane[asyncs.shape], asyncs.start)
        return last

    def _draw(self) -> None:
        flows, self._flows = self._flows, Flows.empty()
        kept = self._placer.shift(flows.start, np.zeros(len(flows), np.int64))
        if not kept.all():
            self._tables.tally.saw("flow", int((~kept).sum()))
            self._tables.tally.add("bad-time", count=int((~kept).sum()), kind="flow")
            flows = flows.take(kept)
        binder = Binder(Anchors.joined(self._placer.anchors))
        self._placer.anchors = []
        Arrows(self._tables, self._lanes, self._texts, self._build).draw(flows, binder)

    def _look_at_grid(self) -> None:
        """Book a doubt if all stamps lie where doubles of microseconds since 1970 would."""
        rows = coarse = 0
        for batch in (*self._tables.rows, *self._tables.marks):
            fraction = batch.start[batch.start >= EPOCH_NS] % 1000
            fraction_ = fraction[fraction > 0]
            if not _GRID[fraction_].all():
                return
            rows, coarse = rows + len(fraction), coarse + len(fraction_)
        if coarse >= COARSE_STAMPS:
            self._tables.tally.add("time-rounded", count=rows)

    def _book(self) -> None:
        tables, tally = self._tables, self._tables.tally
        tally.add("duration-rounded", count=tables.rounded_durations)
        tally.add("stamp-rounded", count=tables.rounded_stamps)
        tally.add("metadata-unused", count=self._naming.unused)
        tally.book(self._build)
