"""Operators of a generation A folder: of AI Core, AI CPU and the host, each in a file of its own.

``output_timeline_data_<rank>.txt``: ``op_name, stream_id, start_time(ms), duration(ms)``; times
are ticks / 100000, so every digit counts. ``output_data_preprocess_aicpu_<rank>.txt``: a ruled
table whose ``run_start`` and ``run_end`` are us of the same counter.
``cpu_op_execute_timestamp_<rank>.txt``: ``<name>;<type>;<start>,<duration>,<thread> ...`` with
starts in ns and durations in ms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I64, Capture, Layer, OpClass, Track
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.readers.ascend.common.display import waiting_for_data
from traceconv.readers.ascend.mindspore.display import Shown
from traceconv.readers.ascend.mindspore.files import Kind, Part
from traceconv.readers.ascend.mindspore.text_tables import lines_of, ruled_columns
from traceconv.readers.shared import ascend_lanes as ops
from traceconv.readers.shared.csv_tables import csv_columns
from traceconv.readers.shared.numbers import times


def read_operators(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    """Add the operators of AI Core that ``shown`` lacks.

    Raises:
        MalformedInputError: a column is missing.
    """
    columns = csv_columns(capture.source, part.name, build.issues, ended=True)
    wanted = ("op_name", "stream_id", "start_time(ms)", "duration(ms)")
    name, stream, start, length = _columns(build, columns, wanted)
    rows = shown.lacks(build, Layer.DEVICE, start, _timed(build, start, length))
    build.seen("slice", int(np.count_nonzero(rows)))
    full = [str(n) for n in name[rows].tolist()]
    op = [found.op if (found := ops.task_named(n)) else OpClass.COMPUTE for n in full]
    build.extend(
        track=_streams(build, stream[rows], "Ascend Hardware"),
        start_ns=start[rows], dur_ns=length[rows], op=np.array(op, np.int8),
        **_named(build, full),
    )  # fmt: skip


def read_ai_cpu(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    """Add the operators of the AI CPU that ``shown`` lacks.

    Raises:
        MalformedInputError: a column is missing.
    """
    columns = ruled_columns(capture.source, part.name, build.issues)
    name, begin, end = _columns(build, columns, ("node_type_name", "run_start", "run_end"))
    start, stop = (times([str(v) for v in column.tolist()], "us") for column in (begin, end))
    given = start.present & ~start.bad & stop.present & ~stop.bad
    length = np.where(given, stop.ns - start.ns, ABSENT)
    begun = np.where(given, start.ns, ABSENT)
    rows = shown.lacks(build, Layer.DEVICE, begun, _timed(build, begun, length))
    build.seen("slice", int(np.count_nonzero(rows)))
    names = [str(n) for n in name[rows].tolist()]
    op = [found.op if (found := waiting_for_data(n)) else OpClass.COMPUTE for n in names]
    build.extend(
        track=build.track(Layer.DEVICE, "Stream 0", title="AI CPU"),
        start_ns=begun[rows], dur_ns=length[rows], op=np.array(op, np.int8),
        name=np.array([build.string(n) for n in names], np.int32),
    )  # fmt: skip


def read_host_operators(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    """Add the operators that ran on the host. Beside those of a device they are taken to be
    stamped by its clock, as the profiler's own display does: clock-assumed.
    """
    named: list[str] = []
    kinds: list[str] = []
    runs: list[list[str]] = []
    *lines, rest = lines_of(capture.source, part.name)
    build.skip("truncated", f"line {len(lines) + 1}", bool(rest.strip()))
    for at, line in enumerate(lines, 1):
        name, _, rest = line.strip().partition(";")
        kind, _, stamps = rest.partition(";")
        for stamp in stamps.split():
            cells = stamp.split(",")
            if len(cells) == 3:
                named.append(name)
                kinds.append(kind)
                runs.append(cells)
            else:
                build.seen("slice")
                build.skip("malformed-record", f"line {at}", kind="slice")
    if not runs:
        return
    begun, lasted, thread = zip(*runs, strict=True)
    start, length = times(begun, "ns"), times(lasted, "ms")
    fine = start.present & ~start.bad & length.present & ~length.bad
    begin = np.where(fine, start.ns, ABSENT)
    rows = _timed(build, begin, np.where(fine, length.ns, ABSENT))
    kept = np.flatnonzero(rows).tolist()
    build.seen("slice", len(kept))
    if any(other.kind is Kind.OPERATORS for other in capture.detail.parts):
        build.skip("clock-assumed", "that of the device", len(kept))
    tracks = {
        t: build.add_track(Track(Layer.HOST, f"Thread {t}", title="CPU OP")) for t in set(thread)
    }
    met = dict.fromkeys(zip(named, kinds, strict=True))
    args = {pair: build.args({"type": pair[1]} if pair[1] else None) for pair in met}
    build.extend(
        track=np.array([tracks[thread[i]] for i in kept], np.int32),
        start_ns=begin[rows], dur_ns=length.ns[rows], op=OpClass.HOST,
        name=np.array([build.string(named[i]) for i in kept], np.int32),
        args=np.array([args[named[i], kinds[i]] for i in kept], np.int32),
    )  # fmt: skip


def _columns(build: TraceBuilder, columns: Columns, wanted: tuple[str, ...]) -> list[NDArray[Any]]:
    missing = [heading for heading in wanted if heading not in columns]
    if missing:
        raise MalformedInputError(build.file, "line 1", f"no column {', '.join(missing)}")
    return [columns[heading] for heading in wanted]


def _timed(build: TraceBuilder, start: I64, length: I64) -> NDArray[np.bool_]:
    """The rows with a start and a length; the others are booked."""
    timed = (start != ABSENT) & (length != ABSENT)
    backward = timed & (length < 0)
    for code, bad in (("bad-time", ~timed), ("negative-duration", backward)):
        count = int(np.count_nonzero(bad))
        build.seen("slice", count)
        build.skip(code, "", count, kind="slice")
    good: NDArray[np.bool_] = timed & ~backward
    return good


def _streams(build: TraceBuilder, stream: NDArray[Any], title: str) -> NDArray[np.int32]:
    """The track of each row's stream."""
    number, which = np.unique(stream, return_inverse=True)
    tracks = [build.track(Layer.DEVICE, f"Stream {s}", title=title) for s in number.tolist()]
    found: NDArray[np.int32] = np.array(tracks, np.int32)[which]
    return found


def _named(build: TraceBuilder, full: list[str]) -> dict[str, NDArray[np.int32]]:
    """Names as the display file shortens them, the full ones as arguments."""
    ids = {
        name: (build.string(name.rpartition("/")[2]), build.args({"fullname": name}))
        for name in dict.fromkeys(full)
    }
    pairs = np.array([ids[name] for name in full], np.int32).reshape(-1, 2)
    return {"name": pairs[:, 0], "args": pairs[:, 1]}
