"""``host_info``: stages of the training process and its memory; the files outlive a crash.

Columns: ``tid``, ``pid``, ``parent_pid``, ``module_name``, ``event``, ``stage``, ``level`` (0
developer, 1 user), ``start_end`` (0 start, 1 end, 2 instant), ``custom_info`` (``{{key:value}}``),
``memory_usage(kB)`` (0 = not taken) and ``time_stamp(us)`` (Unix time; 0 = not taken). The last
line may be cut.

A start and the next end of the same event, stage, thread and process are a slice. A start without
an end lasts until the next start of the same, or to the last stamp of the file; both are marked as
unfinished. (The profiler's own timeline leaves the first of these out.)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I64, Kind, Layer, Mask, OpClass, Track
from traceconv.core.ordering import combined_key
from traceconv.core.patterns import natural
from traceconv.core.side_tables import ABSENT
from traceconv.core.source import Source
from traceconv.readers.shared.csv_tables import csv_columns, whole
from traceconv.readers.shared.layouts import RowLayout, Shown, TableRows, add_rows, add_samples
from traceconv.readers.shared.pairing import paired
from traceconv.readers.shared.trace_events.timeline import Lane, Placed

_START, _END, _INSTANT = 0, 1, 2
_TITLE = "MindSpore Host"
_TEXTS = {
    "tid": "tid", "pid": "pid", "parent_pid": "parent_pid", "module": "module_name",
    "event": "event", "stage": "stage", "level": "level", "custom_info": "custom_info",
}  # fmt: skip
_NUMBERS = {"mark": "start_end", "value": "memory_usage(kB)"}
_TIME = "time_stamp(us)"

STAGES = RowLayout(
    end="end", name=Shown("name"), layer=Layer.HOST, title=_TITLE, lane=Shown("tid"),
    group=Shown("pid"), op=OpClass.HOST, args=("parent_pid", "module", "level", "custom_info"),
)  # fmt: skip
INSTANTS = structs.replace(STAGES, kind=Kind.INSTANT)
MEMORY = RowLayout(
    first_ns=1, title=_TITLE, lane=Shown(absent="Resident Memory"), group=Shown("process"),
    unit=Shown(absent="KB"),
)  # fmt: skip


def read_records(source: Source, name: str, build: TraceBuilder, offset_ns: int = 0) -> None:
    """Add slices, instants and the memory counter of ``host_info_<rank>.csv``.

    Args:
        offset_ns: added to every stamp; a device in the same capture may not be in Unix time.

    Raises:
        MalformedInputError: a column is missing.
    """
    rows = _read(source, name, build)
    _add_memory(build, rows, offset_ns)
    mark, time = rows["mark"], rows["start"]
    is_mark = (mark >= _START) & (mark <= _INSTANT)
    build.skip("malformed-record", "start_end", int((~is_mark).sum()))
    untimed = is_mark & (time <= 0) & (rows["value"] <= 0)
    build.skip("bad-time", "", int(untimed.sum()))
    rows = rows.take(is_mark & (time > 0))
    if not len(rows):
        return
    rows.columns["start"] = rows["start"] + offset_ns
    rows.label("name", ("event", "stage"), lambda *parts: ("::".join(parts), {}))
    rows.label("tid", ("tid",), lambda tid: (f"Thread {tid}", {"thread": natural(tid)}))
    rows.label("pid", ("pid",), lambda pid: (f"Process {pid}", {"process": natural(pid)}))
    begin, finish, unfinished = _paired(build, rows)
    build.skip("unfinished-slice", "", int(unfinished.sum()))
    stages = rows.take(begin)
    stages.columns["end"] = finish

    def state(stage_rows: NDArray[np.intp]) -> list[bytes]:
        return [
            b',"unfinished":true' if is_unfinished else b""
            for is_unfinished in unfinished[stage_rows].tolist()
        ]

    add_rows(build, STAGES, stages, state)
    add_rows(build, INSTANTS, rows.take(rows["mark"] == _INSTANT))


def read_memory(source: Source, name: str, build: TraceBuilder) -> None:
    """Add the memory counter of ``host_memory_<rank>.csv``: rows of ``host_info`` with memory.

    Raises:
        MalformedInputError: a column is missing.
    """
    _add_memory(build, _read(source, name, build), 0)


def _read(source: Source, name: str, build: TraceBuilder) -> TableRows:
    columns = csv_columns(source, name, build.issues, ended=True)
    headings = (*_TEXTS.values(), *_NUMBERS.values(), _TIME)
    unread = [heading for heading in columns if heading not in headings]
    build.skip("columns-unread", f"{PurePosixPath(name).name}: {', '.join(unread)}", len(unread))
    missing = [heading for heading in headings if heading not in columns]
    if missing:
        raise MalformedInputError(build.file, "line 1", f"no column {', '.join(missing)}")
    rows = TableRows({"start": columns[_TIME]}, "", len(columns[_TIME]))
    for field, heading in _NUMBERS.items():
        rows.columns[field] = whole(columns[heading])
    for field, heading in _TEXTS.items():
        cells = columns[heading].tolist()
        rows.coded(field, ["" if cell == ABSENT else str(cell) for cell in cells])
    return rows


def _add_memory(build: TraceBuilder, rows: TableRows, offset_ns: int) -> None:
    """The memory of the processes."""
    samples = rows.take(rows["value"] > 0)
    samples.label("process", ("pid",), lambda pid: (f"Process {pid}", {}))
    timed = samples["start"] > 0
    samples.columns["start"] = np.where(timed, samples["start"] + offset_ns, -1)
    add_samples(build, MEMORY, replace(samples, where="memory"))


def _paired(build: TraceBuilder, rows: TableRows) -> tuple[NDArray[np.intp], I64, Mask]:
    """The rows that start something; their ends; whether the end is missing.

    Ends without a start are reported as lost.
    """
    mark = np.flatnonzero(rows["mark"] != _INSTANT)
    key = combined_key(*(rows[field][mark] for field in ("event", "stage", "tid", "pid")))
    starts, time = rows["mark"][mark] == _START, rows["start"]
    _, _, matched = paired(key, starts)
    build.lose("end-without-begin", "", int((~starts & ~matched).sum()))
    # each lasts until the next marker of its key: its end, or a further start
    by_key = np.argsort(key, kind="stable")
    followed = np.flatnonzero(key[by_key][1:] == key[by_key][:-1])
    finish = np.full(len(mark), time.max())
    finish[by_key[followed]] = time[mark[by_key[followed + 1]]]
    return mark[starts], finish[starts], ~matched[starts]


def host_info_lane(lane: Lane) -> Placed:
    """The track of a lane of ``host_info/timeline_<rank>.json``: it has no names."""
    track = Track(
        Layer.HOST, f"Thread {lane.tid}", f"Process {lane.pid}" if lane.pid else "", _TITLE,
        process=lane.process_id, thread=lane.thread_id,
    )  # fmt: skip
    return Placed(track, OpClass.HOST)
