"""Reading the ``profiler`` folder of MindSpore before 2.4: its timeline, operators and queues.

Display files without process names number their processes: 9000 AI CPU, 10000 communication,
11000 host operators, 12000 overlap, 13000 GPU activity, anything else is the number of a device.
Later ones name their processes as msprof does, and are placed as its are.

``output_timeline_data_<rank>.txt``: ``op_name, stream_id, start_time(ms), duration(ms)``; times
are ticks / 100000, so every digit counts. ``output_data_preprocess_aicpu_<rank>.txt``: a ruled
table whose ``run_start`` and ``run_end`` are us of the same counter.
``cpu_op_execute_timestamp_<rank>.txt``: ``<name>;<type>;<start>,<duration>,<thread> ...`` with
starts in ns and durations in ms.

``device_queue_profiling_<rank>.txt`` (not sunk: ``dataset_iterator_profiling_<rank>.txt``), read
where nothing else has times: five whole numbers a line, ``type subtype step value time``. Type 0
is a duration in ms that ends at ``time`` (subtype 0 waiting for the pipeline, 1 pushing, 2 the
whole batch), type 1 the queue's length, with its capacity as the subtype. ``time`` is ms of the
host's steady clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I64, Capture, Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.readers.ascend.common.capture_files import is_empty
from traceconv.readers.ascend.common.identity import describe
from traceconv.readers.ascend.mindspore import host
from traceconv.readers.ascend.mindspore.files import Kind, Part, Plan
from traceconv.readers.ascend.mindspore.host import host_info_lane
from traceconv.readers.ascend.mindspore.shown_rows import Shown
from traceconv.readers.ascend.mindspore.steps import read_steps
from traceconv.readers.ascend.mindspore.text_tables import (
    QUEUE_COLUMNS,
    lines_of,
    ruled_columns,
    spaced_columns,
    whole,
)
from traceconv.readers.ascend.raw.device_records import read_beside
from traceconv.readers.ascend.tables.side_tables import add_side_tables
from traceconv.readers.shared.ascend_lanes import Classifier, step_lane, task_named
from traceconv.readers.shared.csv_tables import csv_columns
from traceconv.readers.shared.numbers import times
from traceconv.readers.shared.trace_events.timeline import (
    Incoming,
    Lane,
    Named,
    Placed,
    Skipped,
    read_events,
)
from traceconv.readers.shared.windows import check_clock

# -- lanes of the display file --------------------------------------------------------------------

_STREAM = lazy_regex(r"(?:Stream ?#?)?(\d{1,18})")
_STEPS, _SCOPES, _GPU_OPS, _HOST_OPS = "100000", "100001", "100002", "100003"
_OVERLAP = {
    "7999": (0, "Merged Computation Op", OpClass.COMPUTING),
    "8000": (2, "Pure Communication Op", OpClass.NOT_OVERLAPPED),
    "8001": (1, "Merged Communication Op", OpClass.COMMUNICATION),
    "8002": (3, "Free Time", OpClass.FREE),
}
_QUEUE = lazy_regex(r"(?:.*/)?(?:GetNext|InitData)[^/]*")


@dataclass(frozen=True)
class DisplayClassifier:
    """Decides on which tracks the lanes of a display file are shown.

    Attributes:
        hardware: title of the device layer: "Ascend Hardware" or "GPU Hardware".
        named:    for files that name their processes.
    """

    hardware: str
    named: Classifier

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        if lane.process:
            return self.named(lane)
        numbered = {
            "9000": self._ai_cpu,
            "10000": self._communication,
            "11000": self._host,
            "12000": self._overlap,
        }
        return numbered.get(lane.pid, self._device)(lane)

    def _device(self, lane: Lane) -> Placed:
        if lane.tid == _STEPS:
            return step_lane(-1)
        if lane.tid == _SCOPES:
            return Placed(Track(Layer.SCOPE, "Scope Name"))
        stream = _STREAM.fullmatch(lane.tid)
        if lane.tid in (_GPU_OPS, _HOST_OPS) or stream is None:
            return self._host(lane)
        title = "GPU Hardware" if lane.pid == "13000" else self.hardware
        kind = "GPU" if lane.pid == "13000" else "NPU"
        track = Track(
            Layer.DEVICE,
            f"Stream {stream[1]}",
            title=title,
            device_kind=kind,
            stream=int(stream[1]),
        )
        return Placed(track, OpClass.COMPUTE, by_name=task_named)

    def _ai_cpu(self, lane: Lane) -> Placed:
        track = Track(Layer.DEVICE, _stream(lane), title="AI CPU")
        return Placed(track, OpClass.COMPUTE, by_name=waiting_for_data)

    def _communication(self, lane: Lane) -> Placed:
        return Placed(Track(Layer.COMM, _stream(lane), title="Communication"), OpClass.COMM)

    def _host(self, lane: Lane) -> Placed:
        names = {_GPU_OPS: "GPU Ops", _HOST_OPS: "Host CPU Ops"}
        name = names.get(lane.tid) or lane.tid
        return Placed(Track(Layer.HOST, name, title="Host Ops"), OpClass.HOST)

    def _overlap(self, lane: Lane) -> Placed:
        unknown = (len(_OVERLAP), lane.thread or lane.tid, OpClass.OTHER)
        sort, name, op = _OVERLAP.get(lane.tid, unknown)
        return Placed(Track(Layer.OVERLAP, name, title="Overlap Analysis", sort=sort), op)


def _stream(lane: Lane) -> str:
    match = _STREAM.fullmatch(lane.tid)
    return f"Stream {match[1]}" if match else lane.tid


def waiting_for_data(name: str) -> Named | None:
    """GetNext and InitData wait for the host's queue; they compute nothing."""
    return Named(OpClass.WAIT) if _QUEUE.fullmatch(name) else None


# -- the display file, and the queue of the data pipeline -----------------------------------------


def read_display(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    """Read the display file; its starts go to ``shown`` if other files show the same rows."""
    plan: Plan = capture.detail
    kinds = {other.kind for other in plan.parts}
    gpu = part.name.rpartition("/")[2].startswith("gpu_")
    place = DisplayClassifier("GPU Hardware" if gpu else "Ascend Hardware", Classifier())
    layers: dict[int, Layer] = {}

    def classify(lane: Lane) -> Placed | Skipped | None:
        placed = place(lane)
        if isinstance(placed, Placed):
            if placed.track.layer is Layer.STEP and Kind.STEPS in kinds:
                return Skipped("repeated-content")
            layers[build.add_track(placed.track)] = placed.track.layer
        return placed

    def remember(rows: Incoming) -> None:
        for track in np.unique(rows.track).tolist():
            if track in layers:
                starts = rows.start_ns[rows.track == track].copy()
                shown.starts.setdefault(layers[track], []).append(starts)

    revise = remember if len(kinds) > 1 else None
    read_events(
        capture.source, part.name, build, classify, offset_ns=lambda _: plan.offset_ns,
        revise=revise,
    )  # fmt: skip


_TIMES = {2: "Batch", 0: "Get from Pipeline", 1: "Push to Device"}
_MS = 1_000_000
_LONGEST = 2**31


def read_queue(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    """Add a slice per duration, and the length of the queue as a counter."""
    columns = spaced_columns(capture.source, part.name, build.issues, QUEUE_COLUMNS, ended=True)
    if not columns:
        return
    kind, subtype, step, value, end = (whole(columns[heading]) for heading in QUEUE_COLUMNS)
    sane = (value >= 0) & (value < _LONGEST) & (step >= 0) & (step < _LONGEST) & (end > 0)
    build.skip("malformed-record", "no such numbers", int(np.count_nonzero(~sane)))
    group = "Iterator" if "dataset_iterator" in part.name else "Device Queue"
    for number, name in _TIMES.items():
        rows = sane & (kind == 0) & (subtype == number)
        track = Track(Layer.HOST, name, group, "Data Pipeline", sort=list(_TIMES).index(number))
        _add_times(build, build.add_track(track), name, step[rows], value[rows], end[rows])
    rows = sane & (kind == 1)
    build.seen("counter", int(np.count_nonzero(rows)))
    track = Track(Layer.COUNTER, "Queue Size", group, "Data Pipeline", unit="")
    build.counters(
        track=build.add_track(track), start_ns=end[rows], value=value[rows].astype(np.float64)
    )
    known = sane & ((kind == 1) | ((kind == 0) & np.isin(subtype, list(_TIMES))))
    build.skip("kind-not-read", "", int(np.count_nonzero(sane & ~known)))


def _add_times(
    build: TraceBuilder,
    track: int,
    name: str,
    step: NDArray[np.int64],
    value: I64,
    end: I64,
) -> None:
    build.seen("slice", len(step))
    names = [build.string(f"{name} {number}") for number in step.tolist()]
    build.extend(
        track=track, start_ns=end - value * _MS, dur_ns=value * _MS, op=OpClass.HOST,
        name=np.array(names, np.int32),
    )  # fmt: skip


# -- operators ------------------------------------------------------------------------------------


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
    op = [found.op if (found := task_named(n)) else OpClass.COMPUTE for n in full]
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


@dataclass
class _HostRuns:
    """Runs of operators on the host, a row each; all text."""

    name: list[str] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    length: list[str] = field(default_factory=list)
    thread: list[str] = field(default_factory=list)

    def add(self, name: str, kind: str, cells: Sequence[str]) -> None:
        """One run: ``cells`` are start, length and thread."""
        row = (name, kind, *cells)
        columns = (self.name, self.kind, self.start, self.length, self.thread)
        for column, cell in zip(columns, row, strict=True):
            column.append(cell)


def _host_runs(capture: Capture, build: TraceBuilder, part: Part) -> _HostRuns:
    """All runs of ``cpu_op_execute_timestamp``; what is none is booked."""
    runs = _HostRuns()
    *lines, rest = lines_of(capture.source, part.name)
    build.skip("truncated", f"line {len(lines) + 1}", bool(rest.strip()))
    for at, line in enumerate(lines, 1):
        name, _, rest = line.strip().partition(";")
        kind, _, stamps = rest.partition(";")
        for stamp in stamps.split():
            cells = stamp.split(",")
            if len(cells) == 3:
                runs.add(name, kind, cells)
            else:
                build.seen("slice")
                build.skip("malformed-record", f"line {at}", kind="slice")
    return runs


def read_host_operators(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    """Add the operators that ran on the host. Beside those of a device they are taken to be
    stamped by its clock, as the profiler's own display does: clock-assumed.
    """
    runs = _host_runs(capture, build, part)
    if not runs.name:
        return
    start, length = times(runs.start, "ns"), times(runs.length, "ms")
    fine = start.present & ~start.bad & length.present & ~length.bad
    begin = np.where(fine, start.ns, ABSENT)
    rows = _timed(build, begin, np.where(fine, length.ns, ABSENT))
    kept = np.flatnonzero(rows).tolist()
    build.seen("slice", len(kept))
    if any(other.kind is Kind.OPERATORS for other in capture.detail.parts):
        build.skip("clock-assumed", "that of the device", len(kept))
    tracks = {
        thread: build.track(
            Layer.HOST,
            f"Thread {thread}",
            title="CPU OP",
            thread=int(thread) if str(thread).isdecimal() else -1,
        )
        for thread in dict.fromkeys(runs.thread)
    }
    kinds = dict.fromkeys(runs.kind)
    args = {kind: build.args({"type": kind} if kind else None) for kind in kinds}
    build.extend(
        track=np.array([tracks[runs.thread[i]] for i in kept], np.int32),
        start_ns=begin[rows], dur_ns=length.ns[rows], op=OpClass.HOST,
        name=np.array([build.string(runs.name[i]) for i in kept], np.int32),
        args=np.array([args[runs.kind[i]] for i in kept], np.int32),
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
    tracks = [
        build.track(
            Layer.DEVICE, f"Stream {s}", title=title, device_kind="NPU", stream=max(int(s), -1)
        )
        for s in number.tolist()
    ]
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


# -- the whole folder -----------------------------------------------------------------------------


def read_folder(capture: Capture, build: TraceBuilder) -> None:
    """Put every event of a capture into ``build``.

    Raises:
        MalformedInputError: none of its files can be read.
    """
    plan: Plan = capture.detail
    describe(build, plan.notes)
    shown, failures, parts = Shown(), [], plan.parts
    for part in parts:
        build.file = capture.source.title(part.name)
        if is_empty(capture.source, part.name):
            build.skip("empty-file")
            continue
        try:
            _READ[part.kind](capture, build, part, shown)
        except MalformedInputError as e:
            failures.append(e)
            build.skip("malformed-record", str(e)[:200])
    for one in plan.raw:
        read_beside(build, capture.source, one, capture.clock)
    if failures and len(failures) == len(parts):
        raise failures[0]
    if not parts:
        build.file = capture.label
        build.skip("empty-file")
    check_clock(capture, build)
    add_side_tables(capture, build)


_Read = Callable[[Capture, TraceBuilder, Part, Shown], None]


def _host_timeline(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    read_events(capture.source, part.name, build, host_info_lane)


def _host_records(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    host.read_records(capture.source, part.name, build)


def _host_memory(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    host.read_memory(capture.source, part.name, build)


_READ: dict[Kind, _Read] = {
    Kind.DISPLAY: read_display,
    Kind.OPERATORS: read_operators,
    Kind.AI_CPU: read_ai_cpu,
    Kind.STEPS: read_steps,
    Kind.HOST_OPERATORS: read_host_operators,
    Kind.HOST_INFO: _host_records,
    Kind.HOST_TIMELINE: _host_timeline,
    Kind.HOST_MEMORY: _host_memory,
    Kind.QUEUE: read_queue,
}
