"""The rows of one rank as tables with names in place of numbers: for Arrow, Parquet and SQL.

:data:`TABLES` declares the columns once: the schema of Parquet files, the columns that are made,
and the reference (``docs/reference/parquet.md``) follow from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from traceconv.core import frames
from traceconv.core.frames import Frame, Words, or_absent
from traceconv.core.kinds import Covered, StepSource

if TYPE_CHECKING:
    from traceconv.core.model import Trace

INTEGER, NUMBER, TEXT, WORD = "int64", "double", "string", "dictionary"
"""Types of columns. In a ``dictionary`` each text is stored once."""

BLOCK = 1 << 18
"""Most rows of a block: of an Arrow table, of a row group in Parquet."""

_RANK = {"rank": (INTEGER, "Global rank.")}
_TRACK = {
    "track_id": (INTEGER, "Row of the rank in `tracks`."),
    "layer": (WORD, "Layer of the track: step, overlap, host, runtime, scope, device, comm, ..."),
    "group": (WORD, "Group that the track is in, such as a device or a communicator."),
    "track": (WORD, "Name of the track, such as `Stream 7`."),
}

TABLES: dict[str, dict[str, tuple[str, str]]] = {
    "events": {
        **_RANK,
        "event_id": (INTEGER, "Number of the event in its rank, from 0. `flows` refer to it."),
        **_TRACK,
        "kind": (WORD, "slice or instant."),
        "op": (WORD, "Class of work: compute, comm, copy, wait, host, unclassified, ..."),
        "start_ns": (INTEGER, "Start, ns, on the clock that all ranks share."),
        "dur_ns": (INTEGER, "Duration, ns; 0 for instants."),
        "name": (WORD, "Name of the event."),
        "graph": (INTEGER, "Id of the graph (model) it belongs to; null if none."),
        "step": (INTEGER, "Number of its step; null if none."),
        "args": (TEXT, "Arguments: a JSON object; null if none."),
    },
    "counters": {
        **_RANK,
        **_TRACK,
        "unit": (WORD, "Unit of the value, such as `MB/s`; empty if unknown."),
        "start_ns": (INTEGER, "Time of the sample, ns."),
        "value": (NUMBER, "Value, which holds until the next sample."),
    },
    "flows": {
        **_RANK,
        "src": (INTEGER, "`event_id` that the flow begins at."),
        "dst": (INTEGER, "`event_id` that it ends at."),
        "name": (WORD, "Category, such as `fwdbwd`."),
    },
    "tracks": {
        **_RANK,
        **_TRACK,
        "heading": (WORD, "Name of the layer, in the words of its source."),
        "lane": (INTEGER, "0, or the number of the sub-track for slices that would cross others."),
        "unit": (WORD, "Unit of a counter; null for tracks with events."),
        "kind": (WORD, "Special kind of track: ranges, off_cpu, messages, ...; else empty."),
        "device": (INTEGER, "Number of the device; null if unknown or none."),
        "device_kind": (WORD, "GPU, NPU, TPU or CPU."),
        "stream": (INTEGER, "Number of the stream or queue; null if unknown or none."),
        "process": (INTEGER, "Process id, if it is another process than that of the rank."),
        "thread": (INTEGER, "Number of the host thread; null if unknown or none."),
        "thread_name": (WORD, "Name of the host thread."),
        "communicator": (WORD, "Group of ranks that communicate here."),
    },
    "steps": {
        **_RANK,
        "step": (INTEGER, "Number of the step."),
        "graph": (INTEGER, "Id of its graph; null for steps of the framework."),
        "window": (INTEGER, "Number of the collection window, from 1."),
        "source": (WORD, "Origin of the boundaries: recorded, host_marks or whole_range."),
        "covered": (WORD, "How its device work is known: not, timeline or vendor_table."),
        "start_ns": (INTEGER, "Start of the step, ns."),
        "dur_ns": (INTEGER, "Duration of the step, ns."),
        "device_start_ns": (INTEGER, "Start of its device window, ns."),
        "device_dur_ns": (INTEGER, "Duration of its device window, ns."),
        "work_start_ns": (INTEGER, "Start of its device work, ns."),
        "computing_ns": (INTEGER, "Computing, ns, total over devices; null if unknown."),
        "communication_ns": (INTEGER, "Communication, ns."),
        "not_overlapped_ns": (INTEGER, "Communication while nothing computes, ns."),
        "free_ns": (INTEGER, "Idle time, ns."),
        "copying_ns": (INTEGER, "Copies, ns."),
        "copy_not_overlapped_ns": (INTEGER, "Copies while nothing computes or communicates, ns."),
        "unclassified_ns": (INTEGER, "Tasks of unknown type, ns."),
        "known_ns": (INTEGER, "How much of the device window was recorded, ns."),
        "input_wait_ns": (INTEGER, "Part of the idle time spent waiting for input, ns."),
        "pause_ns": (INTEGER, "Idle time since the device window of the previous step, ns."),
    },
}  # fmt: skip
"""By table and column: type and meaning."""


def rank_table(trace: Trace, name: str, rows: slice = slice(None), args: bool = True) -> Frame:
    """A table of a rank, or some rows of it, with the columns of :data:`TABLES` in that order.

    Args:
        args: whether the arguments of events are among the columns.
    """
    maker = {"tracks": _tracks, "steps": _steps}.get(name)
    columns = maker(trace) if maker else _rows(trace, name, rows, args)
    length = len(next(iter(columns.values())))
    columns["rank"] = np.full(length, trace.rank, np.int64)
    return {column: columns[column] for column in TABLES[name] if column in columns}


def schema(name: str) -> Any:
    """The ``pyarrow.Schema`` of a table; the fields carry their descriptions.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow = frames.extra("pyarrow", "arrow")
    types = {
        INTEGER: arrow.int64(),
        NUMBER: arrow.float64(),
        TEXT: arrow.string(),
        WORD: arrow.dictionary(arrow.int32(), arrow.string()),
    }
    return arrow.schema(
        [
            arrow.field(column, types[kind], metadata={"description": text})
            for column, (kind, text) in TABLES[name].items()
        ]
    )


def blocks(trace: Trace, name: str) -> Iterator[slice]:
    """The rows of a table in slices of at most :data:`BLOCK`; one at least."""
    rows = len(trace.tracks if name == "tracks" else getattr(trace, name))
    for begin in range(0, max(rows, 1), BLOCK):
        yield slice(begin, begin + BLOCK)


def arrow_table(
    trace: Trace,
    name: str,
    rows: slice = slice(None),
    args: Sequence[str | None] | None = None,
    needed: Collection[str] | None = None,
) -> Any:
    """A table of a rank, or some rows of it, as a ``pyarrow.Table`` of :func:`schema`.

    Args:
        args: the texts of the column ``args``, if not those that were read.
        needed: names of columns; the others are empty. None for all.
    """
    arrow, table_schema = frames.extra("pyarrow", "arrow"), schema(name)
    read = args is None and (needed is None or "args" in needed)
    columns = dict(rank_table(trace, name, rows, read))
    if name == "events" and not read:
        texts = np.full(len(columns["rank"]), None, object)
        texts[:] = args
        columns["args"] = texts
    return arrow.table(frames.to_arrow(columns, needed).columns, schema=table_schema)


def _rows(trace: Trace, name: str, rows: slice, args: bool) -> dict[str, Any]:
    """Events, counters and flows: the columns of the model."""
    table = getattr(trace, name).take(rows)
    columns = dict(table.worded("json" if args else "none"))
    if name == "flows":
        return columns | {end: getattr(table, end).astype(np.int64) for end in ("src", "dst")}
    if name == "events":
        columns["event_id"] = np.arange(len(table), dtype=np.int64) + (rows.start or 0)
    return columns | {"track_id": table.track.astype(np.int64)}


def _tracks(trace: Trace) -> dict[str, Any]:
    columns: dict[str, Any] = {"track_id": np.arange(len(trace.tracks), dtype=np.int64)}
    for column, (kind, _) in TABLES["tracks"].items():
        if column in ("rank", "track_id"):
            continue
        values = [getattr(track, "name" if column == "track" else column) for track in trace.tracks]
        if kind == INTEGER:
            columns[column] = or_absent(np.array(values, np.int64))
        else:
            columns[column] = Words.per_row(
                [None if value is None else str(value) for value in values]
            )
    return columns


def _steps(trace: Trace) -> dict[str, Any]:
    steps = trace.steps
    columns: dict[str, Any] = {
        name: values.astype(np.int64) for name, values in steps.columns().items()
    }
    for name in ("graph", *steps.LENGTHS):
        columns[name] = or_absent(columns[name])
    columns["source"] = Words.of(steps.source, lambda i: StepSource(i).name.lower())
    columns["covered"] = Words.of(steps.covered, lambda i: Covered(i).name.lower())
    return columns
