"""Step trace from the marks a device leaves at points of a graph.

Old marks (``training_trace``, 20 bytes) count 1 = forward starts, 2 = backward ends, 255 =
iteration ends, from 3 on pairs of collectives. New ones (``ts_track``, 40 bytes) carry their graph
and also mark its start and end, and the steps of the framework.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, NO_GRAPH, OpClass
from traceconv.core.ordering import combined_key
from traceconv.readers.ascend.raw.clock import Clock, timed
from traceconv.readers.ascend.raw.slice_files import Records, layout
from traceconv.readers.shared.arguments import number, shared, text
from traceconv.readers.shared.ascend_lanes import step_lane
from traceconv.readers.shared.pairing import paired

OLD = layout(20, tag=(0, "<u8"), task=(8, "<u2"), stream=(10, "<u2"), time=(12, "<u8"))
"""A record of ``training_trace``."""

_FORWARD, _BACKWARD, _CLOSED = 1, 2, 255
_FIRST_REDUCE, _LAST_REDUCE = 3, 9999
_START, _END, _FP, _BP, _ITERATION = 0, 1, 2, 3, 4
_REDUCE, _NEXT, _STEP, _AFTER = 10_000, 20_000, 60_000, 60_002


@dataclass(frozen=True)
class Marks:
    """Marks of either kind, in the order they were made; all int64.

    Attributes:
        time: ticks of the device.
        graph: -1 for none.
        index: the step's number of marks that carry one.
    """

    tag: I64
    time: I64
    stream: I64
    task: I64
    graph: I64
    index: I64

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Marks:
        """Some of them."""
        return Marks(
            self.tag[rows], self.time[rows], self.stream[rows], self.task[rows], self.graph[rows],
            self.index[rows],
        )  # fmt: skip


@dataclass(frozen=True)
class Iterations:
    """Iterations of one graph; int64 ticks, -1 where a mark is missing.

    Attributes:
        first, last: the marks between them are theirs: positions among the marks of the graph.
    """

    number: I64
    start: I64
    end: I64
    forward: I64
    backward: I64
    first: I64
    last: I64


@dataclass(frozen=True)
class Reduces:
    """Collectives inside iterations: ticks, the number of the step, their place in it."""

    step: I64
    within: I64
    start: I64
    end: I64
    stream: I64
    tag: I64


def plausible_old(rows: Records) -> NDArray[np.bool_]:
    """Tags are small numbers kept in eight bytes, and no counter starts at 0."""
    found: NDArray[np.bool_] = (rows["tag"] < 1 << 16) & (rows["time"] > 0)
    return found & (rows["time"] < 1 << 62)


def old_marks(rows: Records) -> Marks:
    """The marks of a ``training_trace``; they name no graph."""
    n = len(rows)
    tag, time, stream, task = (rows[f].astype(np.int64) for f in ("tag", "time", "stream", "task"))
    return Marks(tag, time, stream, task, np.full(n, -1), np.full(n, -1))


# -- the old rule -------------------------------------------------------------------------


def old_iterations(marks: Marks) -> Iterations:
    """Steps in file order: each ends with a mark 255 and starts where the one before ended; the
    first one starts with its forward pass.
    """
    closed = np.flatnonzero(marks.tag == _CLOSED)
    end = marks.time[closed]
    step = _of_each(closed, len(marks.tag))
    forward = _last_in(step, marks, _FORWARD, len(closed))
    backward = _last_in(step, marks, _BACKWARD, len(closed))
    # a step starts where the one before ended; the first one at its forward mark, if it has one
    start = np.concatenate((forward[:1], end[:-1]))
    start[:1] = np.where(start[:1] < 0, end[:1], start[:1])
    first = np.concatenate(([0], closed[:-1] + 1))[: len(closed)]
    numbers = np.arange(1, len(closed) + 1)
    return Iterations(numbers, start, end, forward, backward, first, closed)


def _of_each(last: NDArray[np.intp] | I64, marks: int) -> NDArray[np.intp]:
    """The step each mark belongs to, given the last mark of each; one more behind the last."""
    # a one behind each last mark: the sum up to a mark counts the steps that ended before it
    ended = np.zeros(marks + 1, np.intp)
    ended[last + 1] = 1
    return np.cumsum(ended)[:marks]


def _last_in(step: NDArray[np.intp], marks: Marks, tag: int, steps: int) -> I64:
    """The time of the last mark of this tag in each step."""
    found = np.full(steps + 1, -1, np.int64)
    rows = np.flatnonzero(marks.tag == tag)
    found[step[rows]] = marks.time[rows]  # of several marks in a step the last one stays
    return found[:steps]


def old_reduces(marks: Marks, steps: Iterations) -> Reduces:
    """Collectives: the k-th starts with mark 3 + 2k and ends with the one after it."""
    rows = (marks.tag >= _FIRST_REDUCE) & (marks.tag <= _LAST_REDUCE) & (marks.tag != _CLOSED)
    which = (marks.tag - _FIRST_REDUCE) // 2
    return _reduces(marks, steps, rows, which, (marks.tag - _FIRST_REDUCE) % 2 == 0)


def _reduces(
    marks: Marks, steps: Iterations, wanted: NDArray[np.bool_], which: I64,
    begins: NDArray[np.bool_],
) -> Reduces:  # fmt: skip
    """Pairs of marks of one kind within one iteration; ``within`` counts its pairs in order."""
    rows = np.flatnonzero(wanted)
    # the step of each mark; marks between two steps, or behind the last, belong to none
    at = _of_each(steps.last, len(marks.tag))[rows]
    inside = at < len(steps.last)
    inside[inside] = steps.first[at[inside]] <= rows[inside]
    rows, at = rows[inside], at[inside]
    start, end, _ = paired(combined_key(at, which[rows]), begins[rows])
    first, last, step = rows[start], rows[end], at[start]
    order = np.argsort(step, kind="stable")
    first, last, step = first[order], last[order], step[order]
    # pairs of one step are neighbours now: their number is the distance to the first of them
    runs = np.flatnonzero(np.diff(step, prepend=-1))
    within = np.arange(len(step)) - np.repeat(runs, np.diff(runs, append=len(step)))
    return Reduces(
        steps.number[step], within, marks.time[first], marks.time[last], marks.stream[first],
        marks.tag[first],
    )  # fmt: skip


# -- the new rule -------------------------------------------------------------------------


def new_iterations(marks: Marks) -> Iterations:
    """Iterations of one graph, from its marks in the order of time.

    A mark of the graph's start opens one, a mark of an iteration's end closes it and opens the
    next, a mark of the graph's end closes the last; what is still open at the end never ended.
    """
    opened, closed, at = [], [], -1
    chained = False  # the open one began where another ended
    control = np.isin(marks.tag, (_START, _END, _ITERATION))
    rows = np.flatnonzero(control)
    for row, tag in zip(rows.tolist(), marks.tag[rows].tolist(), strict=True):  # few per step
        if tag == _START:
            if at < 0 or chained:
                at, chained = row, False
        elif at >= 0 and not (tag == _END and chained):
            opened.append(at)
            closed.append(row)
            at, chained = (row, True) if tag == _ITERATION else (-1, False)
    first, last = np.array(opened, np.int64), np.array(closed, np.int64)
    step = _of_each(last, len(marks.tag))
    inside = step < len(last)
    inside[inside] = first[step[inside]] <= np.flatnonzero(inside)
    step = np.where(inside, step, len(last))
    return Iterations(
        np.arange(1, len(first) + 1), marks.time[first], marks.time[last],
        _last_in(step, marks, _FP, len(first)), _last_in(step, marks, _BP, len(first)),
        first, last,
    )  # fmt: skip


def new_reduces(marks: Marks, steps: Iterations) -> Reduces:
    """Collectives: an odd mark closes the last even one of its stream."""
    rows = (marks.tag >= _REDUCE) & (marks.tag < _NEXT)
    return _reduces(marks, steps, rows, marks.stream, marks.tag % 2 == 0)


# -- into the trace -----------------------------------------------------------------------


def put_old(build: TraceBuilder, marks: Marks, clock: Clock, points: Mapping[int, str]) -> None:
    """The steps of a ``training_trace``.

    Args:
        points: operators by the tag of the mark beside them.
    """
    steps = old_iterations(marks)
    _book_open(build, marks, steps, (_FORWARD, _BACKWARD))
    put = _Put(build, clock, -1)
    named = {"FP Start": _FORWARD, "BP End": _BACKWARD}
    facts = {key: points[tag] for key, tag in named.items() if tag in points}
    put.rows("Iteration {}", OpClass.ITERATION, steps.number, steps.start, steps.end, facts)
    fp, bp = steps.forward >= 0, steps.backward >= 0
    waits = fp & (steps.forward > steps.start)
    put.some("Iteration Interval {}", OpClass.INTERVAL, steps, waits, steps.start, steps.forward)
    put.some("FP_BP Time {}", OpClass.FP_BP, steps, fp & bp, steps.forward, steps.backward)
    put.some("Iteration Refresh {}", OpClass.TAIL, steps, bp, steps.backward, steps.end)
    put.reduces(old_reduces(marks, steps), points)


def put_new(build: TraceBuilder, marks: Marks, clock: Clock) -> None:
    """The steps of a ``ts_track``: iterations of every graph, waits for data, framework steps."""
    marks = marks.take(np.argsort(marks.time, kind="stable"))
    own = marks.tag < _NEXT
    for graph in np.unique(marks.graph[own]).tolist():
        of = marks.take(own & (marks.graph == graph))
        steps = new_iterations(of)
        _book_open(build, of, steps, (_FP, _BP))
        put = _Put(build, clock, graph)
        put.rows("Iteration {}", OpClass.ITERATION, steps.number, steps.start, steps.end)
        fp, bp = steps.forward >= 0, steps.backward >= 0
        put.some("FP_BP Time {}", OpClass.FP_BP, steps, fp & bp, steps.forward, steps.backward)
        put.some("Iteration Refresh {}", OpClass.TAIL, steps, bp, steps.backward, steps.end)
        put.reduces(new_reduces(of, steps), {})
    _put_pairs(build, marks, clock)


def _put_pairs(build: TraceBuilder, marks: Marks, clock: Clock) -> None:
    """Waits for data (any graph) and the steps of the framework (of none): simple pairs."""
    rows = np.flatnonzero((marks.tag >= _NEXT) & (marks.tag < _AFTER))
    of = marks.take(rows)
    start, end, matched = paired(combined_key(of.graph, of.tag // 2), of.tag % 2 == 0)
    build.skip("unfinished-slice", "marks of waits for data and of steps", int((~matched).sum()))
    steps = of.tag[start] >= _STEP
    for graph in np.unique(of.graph[start]).tolist():
        mine = of.graph[start] == graph
        for wanted, name, op in (
            (mine & steps, "Iteration {}", OpClass.ITERATION),
            (mine & ~steps, "GetNext", OpClass.OTHER),
        ):
            a, b = start[wanted], end[wanted]
            number = np.where(of.index[a] > 0, of.index[a], -1)
            _Put(build, clock, graph).rows(name, op, number, of.time[a], of.time[b])
    strange = int((marks.tag >= _AFTER).sum())
    build.skip("kind-not-read", "marks of an unknown tag", strange)


def _book_open(build: TraceBuilder, marks: Marks, steps: Iterations, tags: Sequence[int]) -> None:
    """Book marks of these tags behind the last iteration that ended."""
    rest = marks.tag[int(steps.last[-1]) + 1 if len(steps.last) else 0 :]
    place = "marks of an iteration that never ended"
    build.skip("truncated", place, int(np.isin(rest, tags).sum()))


class _Put:
    """Adds rows of one graph's step lane."""

    def __init__(self, build: TraceBuilder, clock: Clock, graph: int) -> None:
        self._build, self._clock = build, clock
        self._graph = graph if 0 <= graph < min(NO_GRAPH, 2**31) else -1

    def some(
        self, name: str, op: OpClass, steps: Iterations, which: NDArray[np.bool_], start: I64,
        end: I64,
    ) -> None:  # fmt: skip
        """Rows of those iterations that have both marks."""
        self.rows(name, op, steps.number[which], start[which], end[which])

    def rows(
        self, name: str, op: OpClass, step: I64, start: I64, end: I64,
        facts: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Rows with the number of their step in their names.

        Args:
            facts: arguments of every row.
        """
        names = [name.format(n) for n in step.tolist()]
        args = self._build.args(dict(facts or {}))
        self._extend(names, op, step, start, end, np.full(len(names), args, np.int32))

    def reduces(self, found: Reduces, points: Mapping[int, str]) -> None:
        """Rows of collectives, with their stream and, where it is known, their operator."""
        pairs = zip(found.step.tolist(), found.within.tolist(), strict=True)
        names = [f"Reduce_{step}_{k}" for step, k in pairs]
        members = {"Stream Id": (found.stream, number), "Operator": (found.tag, text(points))}
        args = shared(self._build, members)
        self._extend(names, OpClass.REDUCE, found.step, found.start, found.end, args)

    def _extend(
        self, names: list[str], op: OpClass, step: I64, start: I64, end: I64, args: I32
    ) -> None:
        build = self._build
        begin, close = self._clock.device_ns(start), self._clock.device_ns(end)
        kept = timed(build, begin, close, "step marks")
        if kept.any():
            build.extend(
                track=build.add_track(step_lane(self._graph).track),
                start_ns=begin[kept],
                dur_ns=(close - begin)[kept],
                name=np.array([build.string(n) for n in names], np.int32)[kept],
                op=op,
                graph=self._graph,
                step=np.where((step >= 0) & (step < 2**31), step, -1)[kept].astype(np.int32),
                args=args[kept],
            )
