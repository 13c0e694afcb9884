"""What a report shows besides tables: places in the trace, and curves reduced for drawing.

Facts of one rank, as for any analysis: small columns. A place is a slice that can be looked up in
a viewer: its name, its lane and its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.stragglers.lateness import Clocks
from traceconv.analysis.tables.definition import NOTHING, texts
from traceconv.analysis.tables.fields import floats, numbers
from traceconv.core.model import F64, I64, Kind, Layer, OpClass, Trace, Track
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.report.sections import Section

LONGEST_KEPT = 3
"""Of the longest slices of a kind, so many per rank are kept."""

_BUCKETS = 80  # stretches of a curve, each drawn by its lowest and its highest sample
_CURVES = 24  # of one rank; the highest are kept
_LINES = 4  # of one drawing
_DRAWINGS = 6
_CALLED = 100_000  # collectives whose names are kept
_PASTED = 300  # characters of a name in a query
_HIGHEST = 1e18  # a value beyond is no figure of memory or of a queue
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_QUEUE = re.compile("queue", re.IGNORECASE)
_QUEUES = ("device_queue_profiling", "dataset_iterator_profiling")
_NOTABLE = {
    "idle": OpClass.FREE,
    "exposed communication": OpClass.NOT_OVERLAPPED,
}

Curve = tuple[str, str, str, NDArray[Any], F64]
"""Title, unit ("B" or ""), what it runs over ("time" in ns, or "step"), and its samples."""


def facts(trace: Trace) -> Mapping[str, Columns]:
    """Of one rank, after the passes of the detail view.

    Returns:
        "calls":  every communication operation: start_ns, name, lane (the first 100 000).
        "places": the longest stretches that are idle or of exposed communication: what, name,
            lane, start_ns, dur_ns.
        "curves": memory and queues: title, unit, axis, x, y; thinned to what can be seen.

    Raises:
        TraceconvError: a table of the profiler that is needed cannot be read.
    """
    return {"calls": _calls(trace), "places": _places(trace), "curves": _curves(trace)}


def lane(track: Track) -> str:
    """How a viewer shows the way to a track, below its rank."""
    return " / ".join(part for part in (track.heading, track.group, track.name) if part)


def _calls(trace: Trace) -> Columns:
    rows = np.flatnonzero((trace.events.op == OpClass.COMM) & (trace.events.kind == Kind.SLICE))
    return _told(trace, rows[:_CALLED]) if len(rows) else NOTHING


def _told(trace: Trace, rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
    events = trace.events
    return {
        "start_ns": events.start_ns[rows],
        "dur_ns": events.dur_ns[rows],
        "step": events.step[rows].astype(np.int64),
        "name": texts([trace.strings[i] for i in events.name[rows].tolist()]),
        "lane": texts([lane(trace.tracks[i]) for i in events.track[rows].tolist()]),
    }


def _places(trace: Trace) -> Columns:
    found = []
    for what, op in _NOTABLE.items():
        rows = np.flatnonzero((trace.events.op == op) & (trace.rows_of(Layer.OVERLAP)))
        longest = rows[np.argsort(-trace.events.dur_ns[rows], kind="stable")[:LONGEST_KEPT]]
        if len(longest):
            found.append({"what": texts([what] * len(longest)), **_told(trace, longest)})
    if not found:
        return NOTHING
    return {key: np.concatenate([part[key] for part in found]) for key in found[0]}


# -- curves -------------------------------------------------------------------------------


def _curves(trace: Trace) -> Columns:
    sane = map(_sane, (*_counters(trace), *_queues(trace)))
    every = sorted((c for c in sane if len(c[4])), key=lambda c: -float(c[4].max()))
    thin = [(title, unit, axis, *_thinned(x, y)) for title, unit, axis, x, y in every[:_CURVES]]
    if not thin:
        return NOTHING
    length = [len(curve[3]) for curve in thin]
    named = zip(("title", "unit", "axis"), zip(*(c[:3] for c in thin), strict=True), strict=True)
    return {
        **{key: np.repeat(texts(values), length) for key, values in named},
        "x": np.concatenate([curve[3] for curve in thin]),
        "y": np.concatenate([curve[4] for curve in thin]),
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
        title = " ".join(part for part in (track.group, track.name) if part)
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
        if side_table is None or not len(side_table):
            continue
        step, size = numbers(side_table, "step"), floats(side_table, "value")
        rows = (numbers(side_table, "type") == 1) & (step != ABSENT) & ~np.isnan(size)
        if rows.any():
            title = name.removesuffix("_profiling").replace("_", " ")
            yield title, "", "step", step[rows], size[rows]


def _thinned(x: I64, y: F64) -> tuple[I64, F64]:
    """The lowest and the highest sample of every stretch, and the first and last of all."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    if len(x) <= 2 * _BUCKETS:
        return x, y
    border = np.linspace(0, len(x), _BUCKETS + 1).astype(int)
    kept = {0, len(x) - 1}
    for low, high in zip(border[:-1].tolist(), border[1:].tolist(), strict=True):
        kept |= {low + int(np.argmin(y[low:high])), low + int(np.argmax(y[low:high]))}
    rows = np.array(sorted(kept))
    return x[rows], y[rows]


# -- all ranks ----------------------------------------------------------------------------


def curves(ranked: Sequence[tuple[int, Columns]], clocks: Clocks, zero_ns: int) -> Section:
    """Memory and queues: one drawing per measure, and on it the ranks that go highest, and lowest.

    Args:
        ranked:  (rank, its "curves" of :func:`facts`).
        zero_ns: the zero of the trace.
    """
    drawings: dict[tuple[str, str, str], list[tuple[float, int, list[Any], list[float]]]] = {}
    for rank, columns in ranked:
        for key, rows in _by_curve(columns):
            x = columns["x"][rows]
            if key[2] == "time":
                x = clocks.corrected(rank, x) - zero_ns
            y = columns["y"][rows]
            drawings.setdefault(key, []).append((float(y.max()), rank, x.tolist(), y.tolist()))
    if not drawings:
        return {"missing": "no data: needs counters of memory, or records of a data queue"}
    order = sorted(drawings, key=lambda k: (k[1] != "", -max(line[0] for line in drawings[k]), k))
    return {
        "drawings": [_drawing(key, drawings[key]) for key in order[:_DRAWINGS]],
        "others": len(order[_DRAWINGS:]),
    }


def _by_curve(columns: Columns) -> Iterable[tuple[tuple[str, str, str], NDArray[Any]]]:
    if not columns:
        return
    keys = list(zip(*(columns[k].tolist() for k in ("title", "unit", "axis")), strict=True))
    for key in dict.fromkeys(keys):
        yield key, np.flatnonzero([one == key for one in keys])


def _drawing(
    key: tuple[str, str, str], lines: list[tuple[float, int, list[Any], list[float]]]
) -> Section:
    lines = sorted(lines, key=lambda line: (-line[0], line[1]))
    shown = lines if len(lines) <= _LINES else [*lines[: _LINES - 1], lines[-1]]
    shown = sorted(shown, key=lambda line: line[1])
    return {
        "title": key[0], "unit": key[1], "axis": key[2], "ranks": len(lines),
        "lines": [{"rank": rank, "x": x, "y": y} for _, rank, x, y in shown],
    }  # fmt: skip


def place(mark: Mapping[str, Any], rank: int, clocks: Clocks, zero_ns: int) -> Section:
    """Where to find a slice in a trace.

    Args:
        mark: its name, lane, start_ns and dur_ns, on the clock of its rank.
    """
    start = int(clocks.corrected(rank, np.array([mark["start_ns"]], np.int64))[0]) - zero_ns
    return {
        "rank": rank, "name": mark["name"], "lane": mark["lane"], "start_ns": start,
        "dur_ns": mark["dur_ns"], "query": query(str(mark["name"]), start),
    }  # fmt: skip


def query(name: str, start_ns: int) -> str:
    """What finds a slice in ui.perfetto.dev: with these columns, a row found leads there.

    Names that nobody would paste are left out: the instant alone finds few others.
    """
    quoted = name.replace("'", "''")
    named = f" AND name = '{quoted}'" if len(name) <= _PASTED and name.isprintable() else ""
    return (
        "SELECT id AS slice_id, ts, dur, track_id, name FROM slice "
        f"WHERE ts - trace_start() = {start_ns}{named}"
    )
