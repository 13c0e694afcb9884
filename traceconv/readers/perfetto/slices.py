"""Pairs events into slices and flows, as Perfetto's importer does.

Events are taken by time, those of one time in the order of the file. An end closes the newest slice
that is open on its track; an end with a name or a category the newest one that has the same. Flow
ids are chains: each event with an id is the next link, until one ends it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, I64, Mask
from traceconv.protobuf.perfetto_schema import INSTANT, SLICE_BEGIN, SLICE_END, STATE
from traceconv.readers.perfetto.legacy import FLOW_AROUND, FLOW_NEXT, FlowEnd
from traceconv.readers.perfetto.marks import COMPLETE, Flows, Marks
from traceconv.readers.shared.pairing import nested
from traceconv.readers.shared.trace_events.arrows import Binder
from traceconv.readers.shared.trace_events.placing import Anchors

Rows = NDArray[np.intp]


@dataclass
class Slices:
    """What events come to: one row per slice and instant, in the order of their first events.

    Attributes:
        mark:   the mark a row begins with.
        end:    the mark it ends with, -1 if there is none.
        dur:    int64, ns.
        open:   rows that were never ended; their length goes to the last mark of their lane.
        alone:  marks that end nothing.
        crossed: how many ended while others were still open inside them.
        cut:    how many of those were ended with the one around them.
    """

    mark: Rows
    end: Rows
    dur: I64
    open: Mask
    alone: Rows
    crossed: int = 0
    cut: int = 0

    def take(self, rows: Mask, alone: Mask) -> Slices:
        """Some of the rows, and some of the events that end nothing."""
        return Slices(
            *(self.mark[rows], self.end[rows], self.dur[rows], self.open[rows], self.alone[alone]),
            *(self.crossed, self.cut),
        )


def slices(marks: Marks) -> Slices:
    """Every mark in its slice. ``marks`` are complete; names and categories are final codes."""
    order = np.lexsort((marks.time, marks.lane))  # those of one time in the order of the file
    kind = marks.kind[order]
    pairs = (kind == SLICE_BEGIN) | (kind == SLICE_END)
    paired_marks = order[pairs]
    lane, opens = marks.lane[paired_marks], marks.kind[paired_marks] == SLICE_BEGIN
    begin, end, alone = nested(lane, opens)
    odd = _disagreeing(marks, paired_marks, begin, end)
    start, stop = paired_marks[begin], np.where(end >= 0, paired_marks[end], -1)
    lonely = paired_marks[alone]
    length = np.where(stop >= 0, marks.time[stop] - marks.time[start], 0)
    never = stop < 0
    stacks = _Stacks(marks)
    if len(odd):
        is_sound = ~np.isin(marks.lane[start], odd)
        for number in odd.tolist():
            stacks.take(paired_marks[lane == number])
        start = np.concatenate((start[is_sound], np.array(stacks.start, np.intp)))
        stop = np.concatenate((stop[is_sound], np.array(stacks.end, np.intp)))
        length = np.concatenate((length[is_sound], np.array(stacks.dur, np.int64)))
        never = np.concatenate((never[is_sound], np.array(stacks.open, bool)))
        lonely = np.concatenate((lonely[~np.isin(marks.lane[lonely], odd)], stacks.alone))
    points = np.flatnonzero(marks.kind == INSTANT)
    complete = np.flatnonzero(marks.kind == COMPLETE)
    states, state_dur, state_open = _states(marks, order[kind == STATE])
    lengths = np.array([marks.dur[i] for i in complete.tolist()], np.int64)
    mark = np.concatenate((start, points, complete, states))
    none = np.full(len(points) + len(complete) + len(states), -1, np.intp)
    dur = np.concatenate((length, np.zeros(len(points), np.int64), lengths, state_dur))
    still = np.zeros(len(mark), bool)
    still[: len(never)] = never
    still[len(mark) - len(states) :] = state_open
    back = np.full(len(marks), -1, np.intp)
    back[mark] = np.arange(len(mark))  # an event begins one row at most
    back = back[back >= 0]
    stop = np.concatenate((stop, none))[back]
    all_slices = Slices(
        mark[back], stop, dur[back], still[back], lonely, stacks.crossed, stacks.cut
    )
    _close(all_slices, marks)
    return all_slices


def _close(made: Slices, marks: Marks) -> None:
    """End what was never ended at the last event of its lane."""
    rows = np.flatnonzero(made.open)
    if not len(rows):
        return
    last_ns = np.full(int(marks.lane.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(last_ns, marks.lane, marks.time)
    mark = made.mark[rows]
    made.dur[rows] = last_ns[marks.lane[mark]] - marks.time[mark]


def _disagreeing(marks: Marks, paired_marks: Rows, begin: Rows, end: Rows) -> I32:
    """The lanes in which an end has another name or category than the slice it would close."""
    closed = end >= 0
    a, b = paired_marks[begin[closed]], paired_marks[end[closed]]
    agrees = np.ones(len(a), bool)
    for column in (marks.name, marks.category):
        agrees &= (column[a] == column[b]) | (column[b] < 0)
    lanes: I32 = np.unique(marks.lane[a[~agrees]])
    return lanes


def _states(marks: Marks, state_marks: Rows) -> tuple[Rows, I64, Mask]:
    """Events of states, which last until the next one of their lane; those without a name only end
    the one before."""
    if not len(state_marks):
        return state_marks, np.empty(0, np.int64), np.empty(0, bool)
    lane, time = marks.lane[state_marks], marks.time[state_marks]
    follows = np.append(lane[1:] == lane[:-1], False)
    dur = np.where(follows, np.append(time[1:], 0) - time, 0)
    has_name = marks.name[state_marks] >= 0
    return state_marks[has_name], dur[has_name], ~follows[has_name]


class _Stacks:
    """The slices of lanes on which ends have names, event by event, as the importer closes them.

    A slice that is closed while others are open inside it ends those with it, as soon as anything
    comes after; their own ends close nothing then.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self.start: list[int] = []
        self.end: list[int] = []
        self.dur: list[int] = []
        self.open: list[bool] = []
        self.crossed = self.cut = 0
        self._alone: list[int] = []

    @property
    def alone(self) -> Rows:
        """Events that end nothing."""
        return np.array(self._alone, np.intp)

    def take(self, lane_marks: Rows) -> None:
        """Add the events of one lane, in order."""
        marks = self._marks
        stack: list[int] = []  # rows, outermost first
        columns = (
            lane_marks,
            marks.time[lane_marks],
            marks.kind[lane_marks],
            marks.name[lane_marks],
            marks.category[lane_marks],
        )
        for mark, time, kind, name, category in zip(*(c.tolist() for c in columns), strict=True):
            self._cut(stack, time)
            if kind == SLICE_BEGIN:
                stack.append(len(self.start))
                self.start.append(mark)
                self.end.append(-1)
                self.dur.append(0)
                self.open.append(True)
                continue
            position = self._match(stack, name, category)
            if position < 0:
                self._alone.append(mark)
                continue
            row = stack[position]
            self.end[row], self.open[row] = mark, False
            self.dur[row] = time - int(marks.time[self.start[row]])
            if position == len(stack) - 1:
                stack.pop()
            else:
                self.crossed += any(self.open[inner] for inner in stack[position + 1 :])

    def _match(self, stack: list[int], name: int, category: int) -> int:
        """The newest open slice that an end may close, as a place in the stack; -1 = none."""
        marks = self._marks
        for position in range(len(stack) - 1, -1, -1):
            begun = self.start[stack[position]]
            if not self.open[stack[position]]:
                continue
            begun_name = int(marks.name[begun])
            if category in (-1, int(marks.category[begun])) and (
                name in (-1, begun_name) or begun_name < 0
            ):
                return position
        return -1

    def _cut(self, stack: list[int], time: int) -> None:
        """Take slices off that ended before ``time``, with all that is open inside them."""
        marks, inner = self._marks, False
        for position in range(len(stack) - 1, -1, -1):
            row = stack[position]
            if self.open[row]:
                inner = True
                continue
            end = int(marks.time[self.start[row]]) + self.dur[row]
            if inner:
                if time > end:
                    self.cut += 1
                    for inner_row in stack[position + 1 :]:
                        self.open[inner_row] = False
                        self.dur[inner_row] = end - int(marks.time[self.start[inner_row]])
                    del stack[position:]
                    inner = False
            elif end <= time:
                stack.pop()


def touched(marks: Marks, made: Slices) -> I64:
    """The row that each event begins or ends, or that the end of a flow is at; -1 for none."""
    row = np.full(len(marks), -1, np.int64)
    row[made.mark] = np.arange(len(made.mark))
    closed = made.end >= 0
    row[made.end[closed]] = np.flatnonzero(closed)
    ends = np.flatnonzero((marks.kind == FLOW_AROUND) | (marks.kind == FLOW_NEXT))
    if len(ends):
        first_marks = made.mark
        rows = np.arange(len(first_marks), dtype=np.int32)
        binder = Binder(
            Anchors(marks.lane[first_marks], marks.time[first_marks], made.dur.copy(), rows)
        )
        around = marks.kind[ends] == FLOW_AROUND
        row[ends] = binder.rows(marks.lane[ends], marks.time[ends], around)
    return row


@dataclass
class Arrows:
    """Flows between rows, the earlier one first, and the events of ends without a flow."""

    src: I64
    dst: I64
    single: I64


def arrows(flows: Flows, row: I64, marks: Marks, start: I64) -> Arrows:
    """Pair the ends of flow ids.

    Args:
        row:   of each mark, -1 if it is in none.
        start: of each row, ns.
    """
    order = np.lexsort((flows.mark, marks.time[flows.mark], flows.flow))
    flow, closes, mark = flows.flow[order], flows.closes[order], flows.mark[order]
    has_row = row[mark] >= 0
    lost = mark[~has_row]
    flow, closes, mark = flow[has_row], closes[has_row], mark[has_row]
    if not len(flow):
        none = np.empty(0, np.int64)
        return Arrows(none, none, lost)
    to = row[mark]
    drawn = (flow[1:] == flow[:-1]) & ~closes[:-1]
    src, dst = to[:-1][drawn], to[1:][drawn]
    linked = np.zeros(len(flow), bool)
    linked[:-1] |= drawn
    linked[1:] |= drawn
    turned = start[src] > start[dst]
    single = np.concatenate((lost, mark[~linked]))
    return Arrows(np.where(turned, dst, src), np.where(turned, src, dst), single)


def old_arrows(ends: list[FlowEnd], row: I64, marks: Marks, start: I64) -> Arrows:
    """Pair the ends of older events, which begin, continue or end a flow."""
    src: list[int] = []
    dst: list[int] = []
    last_rows: dict[Hashable, int] = {}
    begun: dict[Hashable, int] = {}  # marks of the ends that no flow leads from yet
    single: list[int] = []
    for end in sorted(ends, key=lambda flow_end: (int(marks.time[flow_end.mark]), flow_end.mark)):
        to = int(row[end.mark])
        if to < 0:
            single.append(end.mark)
            continue
        if end.act == "begin":
            if end.flow not in last_rows:
                last_rows[end.flow], begun[end.flow] = to, end.mark
            elif last_rows[end.flow] != to:
                single.append(end.mark)
            continue
        if end.flow not in last_rows:
            single.append(end.mark)
            continue
        src.append(last_rows[end.flow])
        dst.append(to)
        begun.pop(end.flow, None)
        if end.act == "step":
            last_rows[end.flow] = to
    single += begun.values()
    a, b = np.array(src, np.int64), np.array(dst, np.int64)
    turned = start[a] > start[b] if len(a) else np.empty(0, bool)
    alone = np.array(single, np.int64)
    return Arrows(np.where(turned, b, a), np.where(turned, a, b), alone)
