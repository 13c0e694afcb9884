"""Draw findings into the trace of a rank.

An annotation is an instant, or a slice if it has a duration, on a separate track. Every step gets
its overlap figures as arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from traceconv.core.model import UNKNOWN, EventTable, Kind, Layer, OpClass, Trace, Track

TITLE = "Findings"
"""Heading of the annotation tracks."""


class Mark(msgspec.Struct, frozen=True):
    """One thing to draw.

    Attributes:
        name: of the instants.
        lane: the name of their track.
        args: their arguments, JSON values.
        times_ns: on the clock of the rank.
        steps: instead of times: steps whose start gets the annotation. Without both, it is at the
            start of the trace.
        dur_ns: of each; 0 for instants.
    """

    name: str
    lane: str = TITLE
    args: Mapping[str, Any] = msgspec.field(default_factory=dict)
    times_ns: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    dur_ns: int = 0


def annotate(trace: Trace, marks: Sequence[Mark]) -> Trace:
    """Return ``trace`` with annotations, and the overlap figures of each step as arguments.

    Added rows are counted under "annotate".
    """
    return _marked(_with_figures(trace), marks)


def _with_figures(trace: Trace) -> Trace:
    """Arguments of a step: the figures of :class:`StepTable`, ns; null where unknown."""
    steps, events = trace.steps.take(trace.steps.known_ns > 0), trace.events
    keys = zip(steps.graph.tolist(), steps.step.tolist(), steps.start_ns.tolist(), strict=True)
    position = {key: i for i, key in enumerate(keys)}
    columns = {name: getattr(steps, name).tolist() for name in steps.shown_lengths()}
    rows, values = [], []
    for row in np.flatnonzero(events.op == OpClass.ITERATION).tolist():
        key = (int(events.graph[row]), int(events.step[row]), int(events.start_ns[row]))
        if key in position:
            lengths = {name: column[position[key]] for name, column in columns.items()}
            figures = {name: None if value == UNKNOWN else value for name, value in lengths.items()}
            rows.append(row)
            values.append(_json({**trace.args[int(events.args[row])], **figures}))
    if not rows:
        return trace
    args, first_id = trace.args.extended(values)
    column = events.args.copy()
    column[rows] = np.arange(first_id, first_id + len(rows), dtype=np.int32)
    return replace(trace, events=events.with_columns(args=column), args=args)


def _marked(trace: Trace, marks: Sequence[Mark]) -> Trace:
    if not marks:
        return trace
    steps = trace.steps
    numbers, first_rows = np.unique(
        steps.step, return_index=True
    )  # of graphs that share it, the first
    begins = dict(zip(numbers.tolist(), steps.start_ns[first_rows].tolist(), strict=True))
    start_ns = (trace.span() or (0, 0))[0]
    placed = [
        (time, mark)
        for mark in marks
        for time in mark.times_ns or [begins[s] for s in mark.steps if s in begins] or [start_ns]
    ]
    lanes = list(dict.fromkeys(mark.lane for mark in marks))
    tracks = [Track(Layer.STEP, lane, title=TITLE, sort=i) for i, lane in enumerate(lanes)]
    args, base = trace.args.extended([_json(mark.args) for _, mark in placed])
    return trace.add_events("annotate", tracks, _rows(trace, placed, lanes, base), args)


def _rows(
    trace: Trace, placed: Sequence[tuple[int, Mark]], lanes: Sequence[str], first_args: int
) -> EventTable:
    n = len(placed)
    names = [trace.strings.intern(mark.name) for _, mark in placed]
    dur_ns = np.array([mark.dur_ns for _, mark in placed], np.int64)
    return EventTable.filled(
        [time for time, _ in placed],
        dur_ns,
        track=[lanes.index(mark.lane) for _, mark in placed],
        name=names,
        kind=np.where(dur_ns > 0, Kind.SLICE, Kind.INSTANT),
        args=np.arange(first_args, first_args + n),
    )


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
