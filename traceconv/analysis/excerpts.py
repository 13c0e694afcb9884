"""Pieces of a rank that a report shows besides tables: where things are in the trace, and curves.

A place is a slice that can be looked up in a viewer: its name, its lane and its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.rank_summary import Excerpts
from traceconv.analysis.tables.definition import NOTHING, texts
from traceconv.analysis.tables.fields import floats, numbers
from traceconv.core.model import F64, I64, Kind, Layer, OpClass, Trace, Track
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns

LONGEST_KEPT = 3
"""How many of the longest slices of each kind are kept per rank."""

_BUCKETS = 80  # intervals of a curve, each drawn by its lowest and its highest sample
_CURVES = 24  # of one rank; the highest are kept
_CALLS = 100_000  # collectives whose names are kept
_HIGHEST = 1e18  # a larger value is neither an amount of memory nor the size of a queue
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_QUEUE = lazy_regex("queue", re.IGNORECASE)
_QUEUES = ("device_queue_profiling", "dataset_iterator_profiling")
_NOTABLE = {
    "idle": OpClass.FREE,
    "exposed communication": OpClass.NOT_OVERLAPPED,
}

Curve = tuple[str, str, str, NDArray[Any], F64]
"""Title, unit ("B" or ""), what it runs over ("time" in ns, or "step"), and its samples."""


def excerpts(trace: Trace) -> Excerpts:
    """The excerpts of one rank, after the passes of the detail view.

    Raises:
        TraceconvError: a table of the profiler that is needed cannot be read.
    """
    rows = np.flatnonzero((trace.events.op == OpClass.COMM) & (trace.events.kind == Kind.SLICE))
    calls = _slices(trace, rows[:_CALLS]) if len(rows) else NOTHING
    return Excerpts(calls, _places(trace), _curves(trace))


def lane(track: Track) -> str:
    """How a viewer shows the way to a track, below its rank."""
    return " / ".join(name for name in (track.heading, track.group, track.name) if name)


def _slices(trace: Trace, rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
    events = trace.events
    tracks, of_row = np.unique(events.track[rows], return_inverse=True)
    return {
        "start_ns": events.start_ns[rows],
        "dur_ns": events.dur_ns[rows],
        "step": events.step[rows].astype(np.int64),
        "name": texts([trace.strings[i] for i in events.name[rows].tolist()]),
        "lane": texts([lane(trace.tracks[i]) for i in tracks.tolist()])[of_row],
    }


def _places(trace: Trace) -> Columns:
    columns = []
    for description, op in _NOTABLE.items():
        rows = np.flatnonzero((trace.events.op == op) & (trace.rows_of(Layer.OVERLAP)))
        longest = rows[np.argsort(-trace.events.dur_ns[rows], kind="stable")[:LONGEST_KEPT]]
        if len(longest):
            columns.append({"what": texts([description] * len(longest)), **_slices(trace, longest)})
    if not columns:
        return NOTHING
    return {key: np.concatenate([excerpt[key] for excerpt in columns]) for key in columns[0]}


# -- curves -------------------------------------------------------------------------------


def _curves(trace: Trace) -> Columns:
    sane = map(_sane, (*_counters(trace), *_queues(trace)))
    by_height = sorted((c for c in sane if len(c[4])), key=lambda c: -float(c[4].max()))
    curves = [
        (title, unit, axis, *_downsampled(x, y)) for title, unit, axis, x, y in by_height[:_CURVES]
    ]
    if not curves:
        return NOTHING
    length = [len(curve[3]) for curve in curves]
    labels = zip(("title", "unit", "axis"), zip(*(c[:3] for c in curves), strict=True), strict=True)
    return {
        **{key: np.repeat(texts(values), length) for key, values in labels},
        "x": np.concatenate([curve[3] for curve in curves]),
        "y": np.concatenate([curve[4] for curve in curves]),
    }


def _sane(curve: Curve) -> Curve:
    title, unit, axis, x, y = curve
    fits = np.abs(y) < _HIGHEST  # false for NaN
    return title, unit, axis, x[fits], y[fits]


def _counters(trace: Trace) -> Iterator[Curve]:
    counters = trace.counters
    for number, track in enumerate(trace.tracks):
        if not track.is_counter:
            continue
        title = " ".join(name for name in (track.group, track.name) if name)
        size = track.unit in _BYTES
        if not size and not _QUEUE.search(title):
            continue
        rows = counters.take(slice(*np.searchsorted(counters.track, [number, number + 1])))
        if len(rows):
            scale = _BYTES.get(track.unit or "", 1)
            yield title, "B" if size else "", "time", rows.start_ns, rows.value * scale


def _queues(trace: Trace) -> Iterator[Curve]:
    """Lengths of the queue to the device that only a table has, by step."""
    for name in _QUEUES:
        side_table = trace.side_tables.get(name)
        if not side_table:
            continue
        step, size = numbers(side_table, "step"), floats(side_table, "value")
        rows = (numbers(side_table, "type") == 1) & (step != ABSENT) & ~np.isnan(size)
        if rows.any():
            title = name.removesuffix("_profiling").replace("_", " ")
            yield title, "", "step", step[rows], size[rows]


def _downsampled(x: I64, y: F64) -> tuple[I64, F64]:
    """The lowest and highest sample of every interval, and the first and last of all."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    if len(x) <= 2 * _BUCKETS:
        return x, y
    border = np.linspace(0, len(x), _BUCKETS + 1).astype(int)
    chosen = {0, len(x) - 1}
    for low, high in zip(border[:-1].tolist(), border[1:].tolist(), strict=True):
        chosen |= {low + int(np.argmin(y[low:high])), low + int(np.argmax(y[low:high]))}
    rows = np.array(sorted(chosen))
    return x[rows], y[rows]
