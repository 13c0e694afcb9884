"""Forward and backward within the framework's own steps, from the ranges people mark them with.

Training loops name their ranges ``forward``, ``backward``, ``optimizer``. In a step that has both
of the first, forward/backward lasts from the first of them to the end of the last backward, and the
tail (optimizer, clearing gradients) from there to the end of the step.

Where the framework itself marks them under names of its own, the reader says these in
``notes["phase_names"]``: "forward" or "backward" by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from traceconv.model import EventTable, Kind, Layer, OpClass, Trace

_PHASE = re.compile(
    r"(?:(?P<forward>forward|fwd)|(?P<backward>backward|bwd))(?:[-_ ](?:pass|step|compute))?",
    re.IGNORECASE,
)


def phases(trace: Trace, steps: EventTable) -> EventTable:
    """Rows of forward/backward and tail for the steps that mark them.

    Args:
        steps: the marks of steps, by start; phases are looked for inside each, on any thread.

    Returns:
        Rows like those of ``steps``, two per step with phases, named as Ascend's step trace does.
    """
    forward, backward = _marked(trace)
    start, end = _first(forward, steps), _last(backward, steps)
    start = np.minimum(start, np.where(start >= 0, _first(backward, steps, start), start))
    found = np.flatnonzero((start >= 0) & (end > start))
    both = steps.take(found)
    rows = [
        _rows(trace, both, OpClass.FP_BP, "FP_BP Time", start[found], end[found]),
        _rows(trace, both, OpClass.TAIL, "Iteration Refresh", end[found], both.end_ns),
    ]
    return EventTable.concat(rows)


def _marked(trace: Trace) -> tuple[EventTable, EventTable]:
    """Host slices called forward, and those called backward."""
    events = trace.events
    host = trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE)
    kinds: dict[str, list[int]] = {"forward": [], "backward": []}
    said: Mapping[str, str] = trace.notes.get("phase_names", {})
    for i, name in enumerate(trace.strings):
        match = _PHASE.fullmatch(name)
        if kind := said.get(name) or (match and match.lastgroup):
            kinds[kind].append(i)
    forward, backward = (
        events.take(host & np.isin(events.name, ids))
        for ids in (kinds["forward"], kinds["backward"])
    )
    return forward, backward


def _step_of(rows: EventTable, steps: EventTable) -> NDArray[np.intp]:
    """The step each row lies in, -1 for none."""
    at = np.searchsorted(steps.start_ns, rows.start_ns, "right") - 1
    inside = (at >= 0) & (rows.end_ns <= steps.end_ns[np.maximum(at, 0)])
    return np.where(inside, at, -1)


def _first(
    rows: EventTable, steps: EventTable, otherwise: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Earliest start of ``rows`` in each step; ``otherwise`` (or -1) where there is none."""
    step, found = _step_of(rows, steps), np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(found, step[step >= 0], rows.start_ns[step >= 0])
    none = found == np.iinfo(np.int64).max
    return np.where(none, -1 if otherwise is None else otherwise, found)


def _last(rows: EventTable, steps: EventTable) -> NDArray[np.int64]:
    """Latest end of ``rows`` in each step, -1 where there is none."""
    step, found = _step_of(rows, steps), np.full(len(steps), -1, np.int64)
    np.maximum.at(found, step[step >= 0], rows.end_ns[step >= 0])
    return found


def _rows(
    trace: Trace,
    steps: EventTable,
    op: OpClass,
    word: str,
    start: NDArray[np.int64],
    end: NDArray[np.int64],
) -> EventTable:
    names = [trace.strings.intern(f"{word} {step}") for step in steps.step.tolist()]
    n = len(steps)
    return steps.with_columns(
        op=np.full(n, op, np.int8),
        start_ns=start,
        dur_ns=end - start,
        name=np.array(names, np.int32),
        args=np.full(n, -1, np.int32),
    )
