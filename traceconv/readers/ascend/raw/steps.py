"""Step trace from the records that a device makes at points of a graph (markers).

Old ones (``training_trace``, 20 bytes) count 1 = forward starts, 2 = backward ends, 255 =
iteration ends, from 3 on pairs of collectives. New ones (``ts_track``, 40 bytes) state their graph
and also record its start and end, and the steps of the framework.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, NO_GRAPH, Layer, Mask, OpClass
from traceconv.core.ordering import Parallel, combined_key
from traceconv.readers.ascend.raw.clock import Clock
from traceconv.readers.ascend.raw.slice_files import Records, layout
from traceconv.readers.shared.layouts import RowLayout, Shown, TableRows, add_rows
from traceconv.readers.shared.pairing import paired

OLD = layout(20, tag=(0, "<u8"), task=(8, "<u2"), stream=(10, "<u2"), time=(12, "<u8"))
"""A record of ``training_trace``."""

_FORWARD, _BACKWARD, _CLOSED = 1, 2, 255
_FIRST_REDUCE, _LAST_REDUCE = 3, 9999
_START, _END, _FP, _BP, _ITERATION = 0, 1, 2, 3, 4
_REDUCE, _NEXT, _STEP, _AFTER = 10_000, 20_000, 60_000, 60_002


@dataclass(frozen=True)
class Markers(Parallel):
    """Markers of either kind, in the order they were made; all int64.

    Attributes:
        time: ticks of the device.
        graph: -1 for none.
        index: the step's number, of markers that have one.
    """

    tag: I64
    time: I64
    stream: I64
    task: I64
    graph: I64
    index: I64


@dataclass(frozen=True)
class Iterations:
    """Iterations of one graph; int64 ticks, -1 where a marker is missing.

    Attributes:
        first, last: positions of their markers among the markers of the graph.
    """

    number: I64
    start: I64
    end: I64
    forward: I64
    backward: I64
    first: I64
    last: I64


def plausible_old(rows: Records) -> NDArray[np.bool_]:
    """Tags are small numbers kept in eight bytes, and no counter starts at 0."""
    is_plausible: NDArray[np.bool_] = (rows["tag"] < 1 << 16) & (rows["time"] > 0)
    return is_plausible & (rows["time"] < 1 << 62)


def old_markers(rows: Records) -> Markers:
    """The markers of a ``training_trace``; they name no graph."""
    tag, time, stream, task = (rows[f].astype(np.int64) for f in ("tag", "time", "stream", "task"))
    none = np.full(len(rows), -1, np.int64)
    return Markers(tag, time, stream, task, none, none)


# -- the old rule -------------------------------------------------------------------------


def old_iterations(markers: Markers) -> Iterations:
    """Steps in file order: each ends with a marker 255 and starts where the one before ended; the
    first one starts with its forward pass.
    """
    closed = np.flatnonzero(markers.tag == _CLOSED)
    end = markers.time[closed]
    step = _steps_of_markers(closed, len(markers.tag))
    forward = _last_in(step, markers, _FORWARD, len(closed))
    backward = _last_in(step, markers, _BACKWARD, len(closed))
    # a step starts where the one before ended; the first one at its forward marker, if it has one
    start = np.concatenate((forward[:1], end[:-1]))
    start[:1] = np.where(start[:1] < 0, end[:1], start[:1])
    first_markers = np.concatenate(([0], closed[:-1] + 1))[: len(closed)]
    numbers = np.arange(1, len(closed) + 1)
    return Iterations(numbers, start, end, forward, backward, first_markers, closed)


def _steps_of_markers(last_markers: NDArray[np.intp] | I64, markers: int) -> NDArray[np.intp]:
    """The step each marker belongs to, given the last marker of each; one more behind the last."""
    # a one behind each last marker: the sum up to a marker counts the steps that ended before it
    ended = np.zeros(markers + 1, np.intp)
    ended[last_markers + 1] = 1
    return np.cumsum(ended)[:markers]


def _last_in(step: NDArray[np.intp], markers: Markers, tag: int, steps: int) -> I64:
    """The time of the last marker of this tag in each step."""
    last_times = np.full(steps + 1, -1, np.int64)
    rows = np.flatnonzero(markers.tag == tag)
    last_times[step[rows]] = markers.time[rows]  # of several markers in a step the last one stays
    return last_times[:steps]


def old_reduces(markers: Markers, steps: Iterations) -> TableRows:
    """Collectives: the k-th starts with marker 3 + 2k and ends with the one after it."""
    rows = (markers.tag >= _FIRST_REDUCE) & (markers.tag <= _LAST_REDUCE) & (markers.tag != _CLOSED)
    collective = (markers.tag - _FIRST_REDUCE) // 2
    return _reduces(markers, steps, rows, collective, (markers.tag - _FIRST_REDUCE) % 2 == 0)


def _reduces(
    markers: Markers, steps: Iterations, chosen: Mask, collective: I64, begins: Mask
) -> TableRows:
    """Pairs of markers of one kind within one iteration: ``start`` and ``end`` in ticks, ``step``,
    ``within`` (their place in it), ``Stream Id``, ``Operator`` (the tag)."""
    rows = np.flatnonzero(chosen)
    # the step of each marker; markers between two steps, or behind the last, belong to none
    i_step = _steps_of_markers(steps.last, len(markers.tag))[rows]
    inside = i_step < len(steps.last)
    inside[inside] = steps.first[i_step[inside]] <= rows[inside]
    rows, i_step = rows[inside], i_step[inside]
    start, end, _ = paired(combined_key(i_step, collective[rows]), begins[rows])
    begin, finish, step = rows[start], rows[end], i_step[start]
    order = np.argsort(step, kind="stable")
    begin, finish, step = begin[order], finish[order], step[order]
    # pairs of one step are neighbours now: their number is the distance to the first of them
    runs = np.flatnonzero(np.diff(step, prepend=-1))
    within = np.arange(len(step)) - np.repeat(runs, np.diff(runs, append=len(step)))
    columns = {
        "step": steps.number[step], "within": within, "start": markers.time[begin],
        "end": markers.time[finish], "Stream Id": markers.stream[begin],
        "Operator": markers.tag[begin],
    }  # fmt: skip
    return TableRows(columns, "step markers", len(step))


# -- the new rule -------------------------------------------------------------------------


def new_iterations(markers: Markers) -> Iterations:
    """Iterations of one graph, from its markers in the order of time.

    A marker of the graph's start opens one, a marker of an iteration's end closes it and opens the
    next, a marker of the graph's end closes the last; what is still open at the end never ended.
    """
    opened, closed, open_row = [], [], -1
    chained = False  # the open one began where another ended
    control = np.isin(markers.tag, (_START, _END, _ITERATION))
    rows = np.flatnonzero(control)
    for row, tag in zip(rows.tolist(), markers.tag[rows].tolist(), strict=True):  # few per step
        if tag == _START:
            if open_row < 0 or chained:
                open_row, chained = row, False
        elif open_row >= 0 and not (tag == _END and chained):
            opened.append(open_row)
            closed.append(row)
            open_row, chained = (row, True) if tag == _ITERATION else (-1, False)
    first_markers, last_markers = np.array(opened, np.int64), np.array(closed, np.int64)
    step = _steps_of_markers(last_markers, len(markers.tag))
    inside = step < len(last_markers)
    inside[inside] = first_markers[step[inside]] <= np.flatnonzero(inside)
    step = np.where(inside, step, len(last_markers))
    return Iterations(
        np.arange(1, len(first_markers) + 1),
        markers.time[first_markers],
        markers.time[last_markers],
        _last_in(step, markers, _FP, len(first_markers)),
        _last_in(step, markers, _BP, len(first_markers)),
        first_markers,
        last_markers,
    )


def new_reduces(markers: Markers, steps: Iterations) -> TableRows:
    """Collectives: an odd marker closes the last even one of its stream."""
    rows = (markers.tag >= _REDUCE) & (markers.tag < _NEXT)
    return _reduces(markers, steps, rows, markers.stream, markers.tag % 2 == 0)


# -- into the trace -----------------------------------------------------------------------

STEPS = RowLayout(
    end="end", name=Shown("name"), layer=Layer.STEP, title="Step Trace",
    lane=Shown("graph", "Model {}", absent="Steps"),
)  # fmt: skip
_REDUCES = structs.replace(STEPS, op=OpClass.REDUCE, args=("Stream Id", "Operator"))


def put_old(build: TraceBuilder, markers: Markers, clock: Clock, points: Mapping[int, str]) -> None:
    """The steps of a ``training_trace``.

    Args:
        points: operators by the tag of the marker next to them.
    """
    steps = old_iterations(markers)
    _report_open(build, markers, steps, (_FORWARD, _BACKWARD))
    add = _Adding(build, clock, -1)
    tag_by_fact = {"FP Start": _FORWARD, "BP End": _BACKWARD}
    facts = {key: points[tag] for key, tag in tag_by_fact.items() if tag in points}
    add.iterations(steps, facts)
    waits = (steps.forward >= 0) & (steps.forward > steps.start)
    interval = OpClass.INTERVAL
    add.slices("Iteration Interval {}", interval, steps.number, steps.start, steps.forward, waits)
    add.parts(steps, old_reduces(markers, steps), points)


def put_new(build: TraceBuilder, markers: Markers, clock: Clock) -> None:
    """The steps of a ``ts_track``: iterations of every graph, waits for data, framework steps."""
    markers = markers.take(np.argsort(markers.time, kind="stable"))
    of_graph = markers.tag < _NEXT
    for graph in np.unique(markers.graph[of_graph]).tolist():
        own_markers = markers.take(of_graph & (markers.graph == graph))
        steps = new_iterations(own_markers)
        _report_open(build, own_markers, steps, (_FP, _BP))
        add = _Adding(build, clock, graph)
        add.iterations(steps, {})
        add.parts(steps, new_reduces(own_markers, steps), {})
    _put_waits_and_steps(build, markers, clock)


def _put_waits_and_steps(build: TraceBuilder, markers: Markers, clock: Clock) -> None:
    """Waits for data (any graph) and the steps of the framework (no graph): simple pairs."""
    rows = np.flatnonzero((markers.tag >= _NEXT) & (markers.tag < _AFTER))
    marks = markers.take(rows)
    start, end, matched = paired(combined_key(marks.graph, marks.tag // 2), marks.tag % 2 == 0)
    build.skip("unfinished-slice", "markers of waits for data and of steps", int((~matched).sum()))
    begin, finish = marks.take(start), marks.take(end)
    steps, number = begin.tag >= _STEP, np.where(begin.index > 0, begin.index, -1)
    for graph in np.unique(begin.graph).tolist():
        is_own, add = begin.graph == graph, _Adding(build, clock, graph)
        iteration = OpClass.ITERATION
        add.slices("Iteration {}", iteration, number, begin.time, finish.time, is_own & steps)
        add.slices("GetNext", OpClass.OTHER, number, begin.time, finish.time, is_own & ~steps)
    strange = int((markers.tag >= _AFTER).sum())
    build.skip("kind-not-read", "markers of an unknown tag", strange)


def _report_open(
    build: TraceBuilder, markers: Markers, steps: Iterations, tags: Sequence[int]
) -> None:
    """Report markers of these tags behind the last iteration that ended."""
    open_tags = markers.tag[int(steps.last[-1]) + 1 if len(steps.last) else 0 :]
    where = "markers of an iteration that never ended"
    build.skip("truncated", where, int(np.isin(open_tags, tags).sum()))


@dataclass(frozen=True)
class _Adding:
    """Adds slices to the step track of one graph."""

    build: TraceBuilder
    clock: Clock
    graph: int

    def iterations(self, steps: Iterations, facts: Mapping[str, str]) -> None:
        """Whole iterations; ``facts`` are arguments of each."""
        all_rows = np.ones(len(steps.number), bool)
        op, times = OpClass.ITERATION, (steps.start, steps.end)
        self.slices("Iteration {}", op, steps.number, *times, all_rows, facts)

    def parts(self, steps: Iterations, reduces: TableRows, points: Mapping[int, str]) -> None:
        """The parts of iterations; ``points`` name collectives by their tag."""
        fp, bp = steps.forward >= 0, steps.backward >= 0
        number, backward = steps.number, steps.backward
        self.slices("FP_BP Time {}", OpClass.FP_BP, number, steps.forward, backward, fp & bp)
        self.slices("Iteration Refresh {}", OpClass.TAIL, number, backward, steps.end, bp)
        pairs = zip(reduces["step"].tolist(), reduces["within"].tolist(), strict=True)
        reduces.coded("name", [f"Reduce_{step}_{k}" for step, k in pairs])
        reduces.names["Operator"] = points
        has_name = np.isin(reduces["Operator"], list(points))
        reduces.columns["Operator"] = np.where(has_name, reduces["Operator"], -1)
        self._add(_REDUCES, reduces)

    def slices(
        self, name: str, op: OpClass, step: I64, start: I64, end: I64, chosen: Mask,
        facts: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Some slices with the number of their step in their names; times are ticks."""
        rows = TableRows({"start": start, "end": end, "step": step}, "step markers", len(step))
        rows = rows.take(chosen)
        rows.coded("name", [name.format(n) for n in rows["step"].tolist()])
        for key, text in (facts or {}).items():
            rows.coded(key, [text] * len(rows))
        self._add(structs.replace(STEPS, op=op, args=tuple(facts or ())), rows)

    def _add(self, layout: RowLayout, rows: TableRows) -> None:
        for field in ("start", "end"):
            rows.columns[field] = self.clock.device_ns(rows[field])
        graph = self.graph if 0 <= self.graph < min(NO_GRAPH, 2**31) else -1
        rows.columns["graph"] = np.full(len(rows), graph, np.int64)
        step = rows["step"]
        step = np.where((step >= 0) & (step < 2**31), step, -1).astype(np.int32)
        add_rows(self.build, layout, rows, graph=rows["graph"].astype(np.int32), step=step)
