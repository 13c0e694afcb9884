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

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I64, Capture, Layer, Mask, OpClass, Track
from traceconv.core.patterns import lazy_regex, natural
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.readers.ascend.common.capture_files import is_empty
from traceconv.readers.ascend.common.identity import describe
from traceconv.readers.ascend.mindspore import host
from traceconv.readers.ascend.mindspore.files import Kind, Part, Plan
from traceconv.readers.ascend.mindspore.steps import ShownRows, read_steps
from traceconv.readers.ascend.mindspore.text_tables import (
    QUEUE_COLUMNS,
    lines_of,
    ruled_columns,
    spaced_columns,
)
from traceconv.readers.ascend.raw.device_records import read_beside
from traceconv.readers.ascend.tables.side_tables import add_side_tables
from traceconv.readers.shared.ascend_lanes import Classifier, step_lane, task_named
from traceconv.readers.shared.clock_check import check_clock
from traceconv.readers.shared.csv_tables import csv_columns, whole
from traceconv.readers.shared.layouts import (
    CLASS_COLUMN,
    RowLayout,
    Shown,
    TableRows,
    add_rows,
    add_samples,
)
from traceconv.readers.shared.numbers import times
from traceconv.readers.shared.trace_events.timeline import (
    Incoming,
    Lane,
    Named,
    Placed,
    Skipped,
    read_events,
)

# -- tracks of the display file -------------------------------------------------------------------

_STREAM = lazy_regex(r"(?:Stream ?#?)?(\d{1,18})")
_STEPS, _SCOPES = "100000", "100001"
_HOST_OPS = {"100002": "GPU Ops", "100003": "Host CPU Ops"}
_OVERLAP = {
    "7999": (0, "Merged Computation Op", OpClass.COMPUTING),
    "8000": (2, "Pure Communication Op", OpClass.NOT_OVERLAPPED),
    "8001": (1, "Merged Communication Op", OpClass.COMMUNICATION),
    "8002": (3, "Free Time", OpClass.FREE),
}
_QUEUE = lazy_regex(r"(?:.*/)?(?:GetNext|InitData)[^/]*")


class DisplayClassifier:
    """Decides on which tracks the lanes of a display file are shown.

    Args:
        hardware: title of the device layer: "Ascend Hardware" or "GPU Hardware".
        named:    for files that name their processes.
    """

    def __init__(self, hardware: str, named: Classifier) -> None:
        self._hardware, self._named = hardware, named

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        if lane.process:
            return self._named(lane)
        number = _STREAM.fullmatch(lane.tid)
        stream = f"Stream {number[1]}" if number else lane.tid
        if lane.pid == "9000":
            track = Track(Layer.DEVICE, stream, title="AI CPU")
            return Placed(track, OpClass.COMPUTE, by_name=waiting_for_data)
        if lane.pid == "10000":
            return Placed(Track(Layer.COMM, stream, title="Communication"), OpClass.COMM)
        if lane.pid == "12000":
            unknown = (len(_OVERLAP), lane.thread or lane.tid, OpClass.OTHER)
            sort, name, op = _OVERLAP.get(lane.tid, unknown)
            return Placed(Track(Layer.OVERLAP, name, title="Overlap Analysis", sort=sort), op)
        if lane.pid != "11000":
            if lane.tid == _STEPS:
                return step_lane(-1)
            if lane.tid == _SCOPES:
                return Placed(Track(Layer.SCOPE, "Scope Name"))
            if number and lane.tid not in _HOST_OPS:
                gpu = lane.pid == "13000"
                track = Track(
                    Layer.DEVICE, stream, title="GPU Hardware" if gpu else self._hardware,
                    device_kind="GPU" if gpu else "NPU", stream=int(number[1]),
                )  # fmt: skip
                return Placed(track, OpClass.COMPUTE, by_name=task_named)
        name = _HOST_OPS.get(lane.tid) or lane.tid
        return Placed(Track(Layer.HOST, name, title="Host Ops"), OpClass.HOST)


def waiting_for_data(name: str) -> Named | None:
    """GetNext and InitData wait for the host's queue; they compute nothing."""
    return Named(OpClass.WAIT) if _QUEUE.fullmatch(name) else None


# -- the display file -----------------------------------------------------------------------------


def read_display(capture: Capture, build: TraceBuilder, part: Part, shown: ShownRows) -> None:
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


# -- tables of operators, and the queue of the data pipeline --------------------------------------

_OPERATORS = RowLayout(
    end="end", name=Shown("name"), layer=Layer.DEVICE, title="Ascend Hardware",
    lane=Shown("stream", "Stream {}", of="stream"), track={"device_kind": "NPU"},
    op=CLASS_COLUMN, args=("fullname",),
)  # fmt: skip
_AI_CPU = structs.replace(
    _OPERATORS, title="AI CPU", lane=Shown(absent="Stream 0"), track={}, args=()
)
_HOST_RUNS = RowLayout(
    end="end", name=Shown("name"), title="CPU OP", lane=Shown("lane"), args=("type",)
)
_DURATIONS = RowLayout(
    end="end", name=Shown("shown"), title="Data Pipeline", lane=Shown("subtype", "{}"),
    group=Shown("group"),
)  # fmt: skip
_LENGTHS = RowLayout(title="Data Pipeline", lane=Shown(absent="Queue Size"), group=Shown("group"))

_PARTS = {2: "Batch", 0: "Get from Pipeline", 1: "Push to Device"}
_MS = 1_000_000
_LONGEST = 2**31


def read_queue(capture: Capture, build: TraceBuilder, part: Part, shown: ShownRows) -> None:
    """Add a slice per duration, and the length of the queue as a counter."""
    columns = spaced_columns(capture.source, part.name, build.issues, QUEUE_COLUMNS, ended=True)
    if not columns:
        return
    fields = ("type", "subtype", "step", "value", "start")
    numbers = [whole(columns[heading]) for heading in QUEUE_COLUMNS]
    rows = TableRows(dict(zip(fields, numbers, strict=True)), "", len(numbers[0]))
    value, step = rows["value"], rows["step"]
    sane = (value >= 0) & (value < _LONGEST) & (step >= 0) & (step < _LONGEST) & (rows["start"] > 0)
    build.skip("malformed-record", "no such numbers", int((~sane).sum()))
    group = "Iterator" if "dataset_iterator" in part.name else "Device Queue"
    rows.coded("group", [group] * len(rows))
    rows.names["subtype"] = _PARTS
    rows.identity["subtype"] = {part: {"sort": sort} for sort, part in enumerate(_PARTS)}
    is_known = np.isin(rows["subtype"], list(_PARTS))
    for subtype in _PARTS:
        durations = rows.take(sane & (rows["type"] == 0) & (rows["subtype"] == subtype))
        durations.columns["end"] = durations["start"]
        durations.columns["start"] = durations["end"] - durations["value"] * _MS
        durations.label("shown", ("subtype", "step"), lambda name, step: (f"{name} {step}", {}))
        add_rows(build, _DURATIONS, durations)
    add_samples(build, _LENGTHS, rows.take(sane & (rows["type"] == 1)))
    unknown = sane & ~((rows["type"] == 1) | ((rows["type"] == 0) & is_known))
    build.skip("kind-not-read", "", int(unknown.sum()))


def read_operators(capture: Capture, build: TraceBuilder, part: Part, shown: ShownRows) -> None:
    """Add the operators of AI Core that ``shown`` lacks.

    Raises:
        MalformedInputError: a column is missing.
    """
    columns = csv_columns(capture.source, part.name, build.issues, ended=True)
    headings = ("op_name", "stream_id", "start_time(ms)", "duration(ms)")
    name, stream, start, length = _columns(build, columns, headings)
    rows = _timed(start, length)
    rows.columns["stream"] = whole(stream)
    rows.coded("fullname", [str(text) for text in name.tolist()])
    rows.label("name", ("fullname",), lambda full: (full.rpartition("/")[2], {}))
    _add(build, _OPERATORS, rows, "fullname", task_named, shown)


def read_ai_cpu(capture: Capture, build: TraceBuilder, part: Part, shown: ShownRows) -> None:
    """Add the operators of the AI CPU that ``shown`` lacks.

    Raises:
        MalformedInputError: a column is missing.
    """
    columns = ruled_columns(capture.source, part.name, build.issues)
    name, begin, end = _columns(build, columns, ("node_type_name", "run_start", "run_end"))
    start, stop = (_parsed([str(v) for v in column.tolist()], "us") for column in (begin, end))
    is_timed = (start != ABSENT) & (stop != ABSENT)
    rows = _timed(np.where(is_timed, start, ABSENT), np.where(is_timed, stop - start, ABSENT))
    rows.coded("name", [str(text) for text in name.tolist()])
    _add(build, _AI_CPU, rows, "name", waiting_for_data, shown)


def _add(
    build: TraceBuilder, layout: RowLayout, rows: TableRows, field: str,
    named: Callable[[str], Named | None], shown: ShownRows,
) -> None:  # fmt: skip
    """Add operators that ``shown`` lacks; ``named`` classifies those that do not compute."""
    missing = shown.lacks(build, Layer.DEVICE, rows["start"], rows["end"] >= rows["start"])
    rows = rows.take(missing | (rows["end"] < rows["start"]))  # the last are reported as lost
    class_by_code = {code: named(name) for code, name in rows.names[field].items()}
    op = [
        task_class.op if (task_class := class_by_code.get(code)) else OpClass.COMPUTE
        for code in rows[field].tolist()
    ]
    rows.columns["class"] = np.array(op, np.int64)
    add_rows(build, layout, rows)


def _timed(start: I64, length: I64) -> TableRows:
    """Rows with start and end; -1 if one of them is missing."""
    timed: Mask = (start != ABSENT) & (length != ABSENT)
    end = np.where(timed, start + np.where(timed, length, 0), -1)
    return TableRows({"start": np.where(timed, start, -1), "end": end}, "", len(start))


def _parsed(texts: list[str], unit: str) -> I64:
    parsed = times(texts, unit)
    return np.where(parsed.present & ~parsed.bad, parsed.ns, ABSENT)


def read_host_operators(
    capture: Capture, build: TraceBuilder, part: Part, shown: ShownRows
) -> None:
    """Add the operators that ran on the host. In the capture of a device their stamps are taken to
    be of its clock, as in the profiler's own display: clock-assumed.
    """
    runs: list[tuple[str, str, str, str, str]] = []
    *lines, rest = lines_of(capture.source, part.name)
    build.skip("truncated", f"line {len(lines) + 1}", bool(rest.strip()))
    for number, line in enumerate(lines, 1):
        name, _, rest = line.strip().partition(";")
        kind, _, stamps = rest.partition(";")
        for stamp in stamps.split():
            cells = stamp.split(",")
            if len(cells) == 3:
                runs.append((name, kind, cells[0], cells[1], cells[2]))
            else:
                build.lose("malformed-record", f"line {number}")
    if not runs:
        return
    names, kinds, starts, lengths, threads = map(list, zip(*runs, strict=True))
    rows = _timed(_parsed(starts, "ns"), _parsed(lengths, "ms"))
    for field, texts in (("name", names), ("type", kinds), ("thread", threads)):
        rows.coded(field, texts)

    def lane(thread: str) -> tuple[str, dict[str, Any]]:
        return f"Thread {thread}", {"thread": natural(thread)}

    rows.label("lane", ("thread",), lane)
    added = add_rows(build, _HOST_RUNS, rows)
    if any(other.kind is Kind.OPERATORS for other in capture.detail.parts):
        build.skip("clock-assumed", "that of the device", int((added >= 0).sum()))


def _columns(
    build: TraceBuilder, columns: Columns, headings: tuple[str, ...]
) -> list[NDArray[Any]]:
    missing = [heading for heading in headings if heading not in columns]
    if missing:
        raise MalformedInputError(build.file, "line 1", f"no column {', '.join(missing)}")
    return [columns[heading] for heading in headings]


# -- the whole folder -----------------------------------------------------------------------------

_READ: dict[Kind, Callable[[Capture, TraceBuilder, Part, ShownRows], object]] = {
    Kind.DISPLAY: read_display,
    Kind.OPERATORS: read_operators,
    Kind.AI_CPU: read_ai_cpu,
    Kind.STEPS: read_steps,
    Kind.HOST_OPERATORS: read_host_operators,
    Kind.HOST_INFO: lambda capture, build, part, _: host.read_records(
        capture.source, part.name, build
    ),
    Kind.HOST_TIMELINE: lambda capture, build, part, _: read_events(
        capture.source, part.name, build, host.host_info_lane
    ),
    Kind.HOST_MEMORY: lambda capture, build, part, _: host.read_memory(
        capture.source, part.name, build
    ),
    Kind.QUEUE: read_queue,
}


def read_folder(capture: Capture, build: TraceBuilder) -> None:
    """Put every event of a capture into ``build``.

    Raises:
        MalformedInputError: none of its files can be read.
    """
    plan: Plan = capture.detail
    describe(build, plan.notes)
    shown, failures = ShownRows(), []
    for part in plan.parts:
        build.file = capture.source.title(part.name)
        if is_empty(capture.source, part.name):
            build.skip("empty-file")
            continue
        try:
            _READ[part.kind](capture, build, part, shown)
        except MalformedInputError as e:
            failures.append(e)
            build.skip("malformed-record", str(e)[:200])
    for raw_window in plan.raw:
        read_beside(build, capture.source, raw_window, capture.clock)
    if failures and len(failures) == len(plan.parts):
        raise failures[0]
    if not plan.parts:
        build.file = capture.label
        build.skip("empty-file")
    check_clock(capture, build)
    add_side_tables(capture, build)
