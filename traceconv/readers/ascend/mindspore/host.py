"""``host_info``: what the training process was at, and its memory; the files outlive a crash.

Columns: ``tid``, ``pid``, ``parent_pid``, ``module_name``, ``event``, ``stage``, ``level`` (0
developer, 1 user), ``start_end`` (0 start, 1 end, 2 instant), ``custom_info`` (``{{key:value}}``),
``memory_usage(kB)`` (0 = not taken) and ``time_stamp(us)`` (Unix time; 0 = not taken). The last
line may be cut.

A start and the next end of the same event, stage, thread and process are a slice. One that never
ends lasts to the last stamp of the file, one that starts again before it has ended to that start;
both are marked as unfinished. (The profiler's own timeline leaves the latter out.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I64, Kind, Layer, OpClass, Track
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.core.source import Source
from traceconv.readers.ascend.mindspore.text_tables import whole
from traceconv.readers.shared.csv_tables import csv_columns
from traceconv.readers.shared.trace_events.timeline import Lane, Placed

_START, _END, _INSTANT = 0, 1, 2
_NAMES = ("tid", "pid", "parent_pid", "module_name", "event", "stage", "level", "custom_info")
_STATED = {
    "parent_pid": "parent_pid",
    "module": "module_name",
    "level": "level",
    "custom_info": "custom_info",
}
"""Arguments, and the columns they come from."""

_MEMORY, _TIME = "memory_usage(kB)", "time_stamp(us)"


@dataclass(frozen=True)
class _Records:
    """The records with a time, in the order of the file.

    Attributes:
        codes: the columns of names, as places in ...
        words: ... their different values.
        mark:  start, end or instant.
        ns:    when, on the clock of the capture.
    """

    codes: dict[str, NDArray[np.intp]]
    words: dict[str, list[str]]
    mark: I64
    ns: I64

    def key(self, headings: Sequence[str], rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """A number for each of ``rows``, equal where these columns are."""
        found = np.zeros(len(rows), np.intp)
        for heading in headings:
            found = found * len(self.words[heading]) + self.codes[heading][rows]
            found = np.unique(found, return_inverse=True)[1]  # ranks again, so that it fits
        return found

    def cells(self, headings: Sequence[str], row: int) -> list[str]:
        """The texts of one record in these columns."""
        return [self.words[h][self.codes[h][row]] for h in headings]


def read_records(source: Source, name: str, build: TraceBuilder, offset_ns: int = 0) -> None:
    """Add slices, instants and the memory counter of ``host_info_<rank>.csv``.

    Args:
        offset_ns: added to every stamp, as the device beside it may not be in Unix time.

    Raises:
        MalformedInputError: a column is missing.
    """
    columns = _read(source, name, build)
    _add_memory(build, columns, offset_ns)
    records = _records(build, columns, offset_ns)
    if not len(records.ns):
        return
    begin, finish, unfinished = _paired(build, records)
    moments = np.flatnonzero(records.mark == _INSTANT)
    build.seen("slice", len(begin))
    build.seen("instant", len(moments))
    build.skip("unfinished-slice", "", int(np.count_nonzero(unfinished)))
    _extend(build, records, begin, finish - records.ns[begin], unfinished, Kind.SLICE)
    none = np.zeros(len(moments), bool)
    _extend(build, records, moments, none.astype(np.int64), none, Kind.INSTANT)


def read_memory(source: Source, name: str, build: TraceBuilder) -> None:
    """Add the memory counter of ``host_memory_<rank>.csv``: rows of ``host_info`` with memory.

    Raises:
        MalformedInputError: a column is missing.
    """
    _add_memory(build, _read(source, name, build), 0)


def _read(source: Source, name: str, build: TraceBuilder) -> Columns:
    columns = csv_columns(source, name, build.issues, ended=True)
    missing = [h for h in (*_NAMES, "start_end", _MEMORY, _TIME) if h not in columns]
    if missing:
        raise MalformedInputError(build.file, "line 1", f"no column {', '.join(missing)}")
    return columns


def _add_memory(build: TraceBuilder, columns: Columns, offset_ns: int) -> None:
    """What the process held in memory, one lane per process."""
    memory, time = whole(columns[_MEMORY]), columns[_TIME]
    taken = memory > 0
    rows = taken & (time > 0)
    build.seen("counter", int(np.count_nonzero(taken)))
    build.skip("bad-time", "memory", int(np.count_nonzero(taken & ~rows)), kind="counter")
    pids = columns["pid"]
    for pid in np.unique(pids[rows]).tolist():
        mine = rows & (pids == pid)
        name, group = "Resident Memory", f"Process {pid}"
        track = build.track(Layer.COUNTER, name, group, "MindSpore Host", unit="KB")
        build.counters(
            track=track, start_ns=time[mine] + offset_ns, value=memory[mine].astype(np.float64)
        )


def _records(build: TraceBuilder, columns: Columns, offset_ns: int) -> _Records:
    """The records with a time and a known mark; what has neither time nor memory is booked."""
    time, mark = columns[_TIME], whole(columns["start_end"])
    known = (mark >= _START) & (mark <= _INSTANT)
    build.skip("malformed-record", "start_end", int(np.count_nonzero(~known)))
    taken = whole(columns[_MEMORY]) > 0
    build.skip("bad-time", "", int(np.count_nonzero(known & (time <= 0) & ~taken)))
    rows = known & (time > 0)
    coded = {heading: _coded(columns[heading][rows]) for heading in _NAMES}
    codes = {heading: one[0] for heading, one in coded.items()}
    return _Records(
        codes, {h: one[1] for h, one in coded.items()}, mark[rows], time[rows] + offset_ns
    )


def _coded(column: NDArray[Any]) -> tuple[NDArray[np.intp], list[str]]:
    """A column as places in its different values, and these as text, "" where it is empty."""
    places: dict[Any, int] = {}
    codes = [places.setdefault(cell, len(places)) for cell in column.tolist()]
    return np.array(codes, np.intp), ["" if cell == ABSENT else str(cell) for cell in places]


def _paired(
    build: TraceBuilder, records: _Records
) -> tuple[NDArray[np.intp], I64, NDArray[np.bool_]]:
    """The rows that start something; when each ends; whether its end is missing.

    Ends without a start are booked as lost.
    """
    marks = np.flatnonzero(records.mark != _INSTANT)
    key = records.key(("event", "stage", "tid", "pid"), marks)
    by_key = np.argsort(key, kind="stable")
    rows, key = marks[by_key], key[by_key]
    # marks of one key are neighbours now, in the order of the file
    starts = records.mark[rows] == _START
    follows = np.append(key[1:] == key[:-1], [False])[: len(rows)]  # the next is of the same key
    after = np.append(rows[1:], rows[-1:])
    ended = starts & follows & ~np.append(starts[1:], [False])[: len(rows)]
    taken = np.append([False], ended[:-1])[: len(rows)]
    # an end that does not follow a start directly has none
    orphans = int(np.count_nonzero(~starts & ~taken))
    build.seen("slice", orphans)
    build.skip("end-without-begin", "", orphans, kind="slice")
    finish = np.where(follows, records.ns[after], records.ns.max())
    return rows[starts], finish[starts], ~ended[starts]


def _extend(
    build: TraceBuilder,
    records: _Records,
    rows: NDArray[np.intp],
    length: I64,
    unfinished: NDArray[np.bool_],
    kind: Kind,
) -> None:
    """Add the records in ``rows``; a clock set back makes a length negative, which is booked."""
    good = length >= 0
    lost = int(np.count_nonzero(~good))
    build.skip("negative-duration", "", lost, kind="slice" if kind is Kind.SLICE else None)
    rows, length, unfinished = rows[good], length[good], unfinished[good]
    build.extend(
        track=_ids(records, rows, ("pid", "tid"), lambda pid, tid: _lane(build, pid, tid)),
        start_ns=records.ns[rows],
        dur_ns=length,
        name=_ids(records, rows, ("event", "stage"), lambda *n: build.string("::".join(n))),
        kind=kind,
        op=OpClass.HOST,
        args=_arguments(build, records, rows, unfinished),
    )


def _lane(build: TraceBuilder, pid: str, tid: str) -> int:
    return build.track(
        Layer.HOST,
        f"Thread {tid}",
        f"Process {pid}",
        "MindSpore Host",
        process=_number(pid),
        thread=_number(tid),
    )


def _ids(
    records: _Records, rows: NDArray[np.intp], headings: Sequence[str], make: Any
) -> NDArray[np.int32]:
    """For each row what ``make`` returns for its cells; called once for equal ones."""
    key = records.key(headings, rows)
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    made = [make(*records.cells(headings, i)) for i in rows[first].tolist()]
    found: NDArray[np.int32] = np.array(made, np.int32)[back]
    return found


def _arguments(
    build: TraceBuilder, records: _Records, rows: NDArray[np.intp], unfinished: NDArray[np.bool_]
) -> NDArray[np.int32]:
    def stated(*cells: str) -> dict[str, Any]:
        return {key: cell for key, cell in zip(_STATED, cells, strict=True) if cell}

    headings = tuple(_STATED.values())
    ids = _ids(records, rows, headings, lambda *cells: build.args(stated(*cells)))
    for i in np.flatnonzero(unfinished).tolist():
        cells = records.cells(headings, int(rows[i]))
        ids[i] = build.args({**stated(*cells), "unfinished": True})
    return ids


def host_info_lane(lane: Lane) -> Placed:
    """The track of a lane of ``host_info/timeline_<rank>.json``: it has no names."""
    group = f"Process {lane.pid}" if lane.pid else ""
    track = Track(
        Layer.HOST,
        f"Thread {lane.tid}",
        group,
        "MindSpore Host",
        process=lane.process_id,
        thread=lane.thread_id,
    )
    return Placed(track, OpClass.HOST)


def _number(digits: str) -> int:
    """An id that the file has as text; -1 if it is no number."""
    return int(digits) if len(digits) <= 18 and digits.isdecimal() else -1
