"""Reading the raw data of one device: every kind of record decoded, timed and put in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import SourceError
from traceconv.core.model import F64, I64
from traceconv.core.ordering import combined_key
from traceconv.core.source import Source
from traceconv.readers.ascend.raw import device_tasks as texts
from traceconv.readers.ascend.raw import framework_mindspore as ms
from traceconv.readers.ascend.raw import framework_torch as torch
from traceconv.readers.ascend.raw import scheduler_logs as logs
from traceconv.readers.ascend.raw import steps
from traceconv.readers.ascend.raw.clock import Clock
from traceconv.readers.ascend.raw.device_tasks import described, launches, put_tasks, wraps
from traceconv.readers.ascend.raw.folders import Raw, Window
from traceconv.readers.ascend.raw.framework_rows import FrameworkClock
from traceconv.readers.ascend.raw.host_launches import read_host
from traceconv.readers.ascend.raw.scheduler_logs import Tasks
from traceconv.readers.ascend.raw.slice_files import (
    LARGEST_BYTES,
    Blob,
    Plausible,
    Records,
    gathered,
    layout,
    records,
)
from traceconv.readers.shared.layouts import RowLayout, Shown, TableRows, add_samples

# -- counters that a device samples itself: frequency of its cores, use of its memory ------------

_CHANGES = 55
FREQUENCY = np.dtype(
    {
        "names": ["count", "changes"],
        "formats": ["<u4", ([("time", "<u8"), ("mhz", "<u4"), ("spare", "<u4")], (_CHANGES,))],
        "offsets": [0, 8],
        "itemsize": 888,
    }
)
"""A record of ``lpmFreqConv``: the first ``count`` changes are filled."""
MEMORY = layout(32, owner=(0, "<u4"), ddr=(8, "<u8"), hbm=(16, "<u8"), time=(24, "<u8"))
"""A record of ``npu_mem``."""

_OWNERS = ("APP", "Device")


COUNTERS = RowLayout(
    title="Counters", lane=Shown("name"), group=Shown("group"), unit=Shown("unit"),
    track={"device_kind": "NPU"},
)  # fmt: skip


def samples(group: str, name: str, unit: str, ticks: I64, value: F64) -> TableRows:
    """One series; ``start`` is in ticks."""
    rows = TableRows({"start": ticks, "value": value}, name, len(ticks))
    for key, text in (("group", group), ("name", name), ("unit", unit)):
        rows.columns[key], rows.names[key] = np.zeros(len(ticks), np.int64), {0: text}
    return rows


def plausible_frequency(rows: Records) -> NDArray[np.bool_]:
    """A record holds some changes, and no more than there is room for."""
    is_plausible: NDArray[np.bool_] = (rows["count"] > 0) & (rows["count"] <= _CHANGES)
    return is_plausible


def plausible_memory(rows: Records) -> NDArray[np.bool_]:
    """Which records are about a known kind of owner."""
    is_plausible: NDArray[np.bool_] = rows["owner"] < len(_OWNERS)
    return is_plausible


def frequency(rows: Records) -> list[TableRows]:
    """How fast the cores of a device ran, from every change on."""
    # a record has room for a fixed number of changes; only the first ones are filled
    filled = np.arange(_CHANGES) < rows["count"][:, None]
    changes = rows["changes"][filled]
    time, mhz = changes["time"].astype(np.int64), changes["mhz"].astype(np.float64)
    return [samples("AI Core Freq", "AI Core Freq", "MHz", time, mhz)]


def memory(rows: Records) -> list[TableRows]:
    """The memory of a device in use, by the application and in all."""
    series = []
    for number, owner in enumerate(_OWNERS):
        own_rows = rows[rows["owner"] == number]
        time = own_rows["time"].astype(np.int64)
        for kind in ("ddr", "hbm"):
            used = own_rows[kind].astype(np.float64) / 1024
            series.append(samples("NPU MEM", f"{owner}/{kind.upper()}", "KB", time, used))
    return series


def put_samples(build: TraceBuilder, rows: TableRows, clock: Clock) -> None:
    """Add one series."""
    add_samples(
        build,
        COUNTERS,
        replace(rows, columns={**rows.columns, "start": clock.device_ns(rows["start"])}),
    )


# -- files of FRAMEWORK: what PyTorch and MindSpore record of themselves -------------------------

_HASHES, _CALLS = "torch.python_tracer_hash", "torch.python_tracer_func"

_READERS: dict[str, Callable[[TraceBuilder, Any, FrameworkClock], None]] = {
    r"mindspore\.op_range": ms.read_ranges,
    r"mindspore\.memory_usage": ms.read_memory,
    r"op_range_\d+": ms.read_old_ranges,
    r"torch\.op_range": torch.read_operators,
    r"torch\.op_mark": torch.read_marks,
    r"torch\.memory_usage": torch.read_memory,
    r"torch\.gc_record": torch.read_garbage,
}


def read_framework(build: TraceBuilder, source: Source, names: Sequence[str], clock: Clock) -> None:
    """Put the framework's own timeline and memory into ``build``.

    Args:
        names: files of one ``FRAMEWORK`` folder; of others nothing is read.
        clock: of the collector that ran beside; ``profiler_info`` is looked for around the folder.
    """
    inside = [name for name in names if name.rpartition("/")[0].rpartition("/")[2] == "FRAMEWORK"]
    if not inside:
        return
    folder = inside[0].rpartition("/")[0].rpartition("/")[0]
    clocks = FrameworkClock(build, source, folder, clock)
    by_base = {name.rpartition("/")[2]: name for name in inside}
    for base, name in sorted(by_base.items()):
        for pattern, read in _READERS.items():
            if re.fullmatch(pattern, base):
                _read(build, source, name, read, clocks)
    if _CALLS in by_base:
        functions = {}
        if _HASHES in by_base:
            functions = torch.read_names(build, _content(build, source, by_base[_HASHES]))
        data = _content(build, source, by_base[_CALLS])
        torch.read_calls(build, data, functions, clocks)


def _read(
    build: TraceBuilder,
    source: Source,
    name: str,
    read: Callable[[TraceBuilder, Any, FrameworkClock], None],
    clock: FrameworkClock,
) -> None:
    data = _content(build, source, name)
    if len(data):
        read(build, data, clock)
    else:
        build.skip("empty-file")


def _content(build: TraceBuilder, source: Source, name: str) -> Any:
    """A whole file; issues are reported under it from now on. An unreadable file is empty."""
    build.file = source.title(name)
    try:
        with source.open(name) as stream:
            if stream.mapped is not None:
                stream.advance(len(stream.mapped))
                return stream.mapped
        return source.read(name, LARGEST_BYTES)
    except SourceError as e:
        build.skip("skipped-bytes", str(e)[:120])
        return b""


_AI_CPU = "output_data_preprocess_aicpu"
"""Name of the profiler's own table of its AI CPU."""

CHIPS_6 = ("15", "16")
"""Values of ``platform_version`` from which on records are laid out in another way."""


@dataclass
class Device:
    """The content of the files of a device, decoded; times are ticks."""

    old: steps.Markers | None = None
    new: steps.Markers | None = None
    tasks: list[Tasks] = field(default_factory=list)
    flips: logs.Flips | None = None
    samples: list[TableRows] = field(default_factory=list)
    ai_cpu: texts.AiCpu | None = None
    data_queue: texts.DataQueue | None = None
    operators: texts.Operators = field(default_factory=lambda: texts.operators("", ""))
    points: dict[int, str] = field(default_factory=dict)

    def first_tick(self, tick_ns: Fraction) -> int | None:
        """The earliest of all ticks, of that length."""
        ticks_by_file = [t.start for t in self.tasks] + [rows["start"] for rows in self.samples]
        ticks_by_file += [marks.time for marks in (self.old, self.new) if marks is not None]
        ticks_by_file += [self.ai_cpu.first] if self.ai_cpu is not None else []
        ticks_by_file += [self.data_queue.ticks(tick_ns)] if self.data_queue is not None else []
        earliest = [int(ticks.min()) for ticks in ticks_by_file if len(ticks)]
        return min(earliest) if earliest else None


def read_raw(build: TraceBuilder, source: Source, raw: Raw, clock: Clock, chip: str) -> None:
    """Put everything of one device into ``build``.

    Args:
        chip:  its ``platform_version``.
    """
    device = decoded(build, source, raw, chip in CHIPS_6)
    for name in raw.slices.get("other", ()):
        if source.size(name):
            build.file = source.title(name)
            build.skip("kind-not-read", "a whole file")
    build.file = source.title(raw.root) if raw.root else source.label
    first_tick = device.first_tick(clock.device.tick_ns)
    if first_tick is not None:
        clock.begin(first_tick)
        for doubt in clock.doubts:
            build.skip("clock-assumed", doubt)
    _put_launched_tasks(build, source, raw, device, clock, chip in CHIPS_6)
    if device.old is not None:
        build.file = source.title(raw.slices["steps"][0])
        steps.put_old(build, device.old, clock, device.points)
    if device.new is not None:
        build.file = source.title(raw.slices["track"][0])
        steps.put_new(build, device.new, clock)
    for series in device.samples:
        put_samples(build, series, clock)
    if device.data_queue is not None:
        _put_data_queue(build, device.data_queue, clock)
    if device.ai_cpu is not None:
        texts.put_ai_cpu(build, device.ai_cpu, clock)
    read_framework(build, source, raw.framework, clock)


def _put_data_queue(build: TraceBuilder, data_queue: texts.DataQueue, clock: Clock) -> None:
    """How full the queues of data are, as counters and as the profiler's own table."""
    ticks = data_queue.ticks(clock.device.tick_ns)
    for name in dict.fromkeys(data_queue.queue):
        of_queue = np.array([queue_name == name for queue_name in data_queue.queue], bool)
        size = data_queue.size[of_queue].astype(np.float64)
        put_samples(build, samples("Data Queue", name, "", ticks[of_queue], size), clock)
    if len(ticks):
        time = clock.device_ns(ticks)
        build.side_table("dp", build.file, lambda: data_queue.side_table(time))


# -- decoding -----------------------------------------------------------------------------


def decoded(build: TraceBuilder, source: Source, raw: Raw, chip_6: bool) -> Device:
    """The files of a device as columns."""
    read = _Files(build, source, raw)
    device = Device()
    if "steps" in raw.slices:
        device.old = steps.old_markers(read.records("steps", steps.OLD, steps.plausible_old))
    if "track" in raw.slices:
        rows = read.records("track", logs.TRACK, logs.plausible)
        device.new, device.flips = logs.markers(rows, chip_6), logs.flips(rows)
        device.tasks.append(logs.tasks(rows, build))
    if "hwts" in raw.slices:
        device.tasks.append(logs.hwts_tasks(read.records("hwts", logs.HWTS, logs.marked), build))
    if "stars" in raw.slices:
        layout = logs.STARS_6 if chip_6 else logs.STARS
        expanded = any("compact.expand_stream_spec" in name for name in raw.host)
        rows = read.records("stars", layout, logs.marked)
        device.tasks.append(logs.stars_tasks(rows, expanded, build))
    if "frequency" in raw.slices:
        rows = read.records("frequency", FREQUENCY, plausible_frequency)
        device.samples += frequency(rows)
    if "memory" in raw.slices:
        rows = read.records("memory", MEMORY, plausible_memory)
        device.samples += memory(rows)
    _decode_texts(read, device)
    return device


def _decode_texts(read: _Files, device: Device) -> None:
    device.operators = texts.operators(read.text("tasks"), read.text("graph"))
    device.points = texts.points(read.text("points"))
    log = read.text("ai_cpu", texts.SENTENCE_END)
    if log:
        device.ai_cpu = texts.ai_cpu(log)
        read.build.side_table(_AI_CPU, read.build.file, device.ai_cpu.side_table)
    log = read.text("data_queue", texts.SENTENCE_END)
    if log:
        device.data_queue = texts.data_queue(log)
        read.build.skip("kind-not-read", "sentences of another form", device.data_queue.unread)


@dataclass(frozen=True)
class _Files:
    """Reads the files of a device by their kind."""

    build: TraceBuilder
    source: Source
    raw: Raw

    def records(self, kind: str, layout: np.dtype[np.void], plausible: Plausible) -> Records:
        """All records of a kind; issues are reported under its first file."""
        return records(self._bytes(kind), layout, plausible, self.build)

    def text(self, kind: str, end: str = "\n") -> str:
        """The text of a kind, "" without a file. An unfinished end is left out and reported."""
        if kind not in self.raw.slices:
            return ""
        text = bytes(self._bytes(kind)).decode("utf-8", "replace")
        if end == texts.SENTENCE_END and end not in text:
            text = texts.ended(text)
        complete, ended, remainder = text.rpartition(end)
        self.build.skip(
            "truncated",
            "the last line" if end == "\n" else "the last sentence",
            int(bool(remainder.strip())),
        )
        return complete + ended

    def _bytes(self, kind: str) -> Blob:
        names = self.raw.slices[kind]
        blob = gathered(self.source, names, self.build)
        self.build.file = self.source.title(names[0])
        if not blob:
            self.build.skip("empty-file")
        return blob


# -- putting in place ---------------------------------------------------------------------


def _put_launched_tasks(
    build: TraceBuilder, source: Source, raw: Raw, device: Device, clock: Clock, chip_6: bool,
) -> None:  # fmt: skip
    """The host's side, then the tasks it launched."""
    host = read_host(build, source, raw.host, clock) if raw.host else None
    if host is not None:
        is_own = host["device"] == raw.device
        host = host.take(is_own) if is_own.any() else None
    build.file = source.title(raw.root) if raw.root else source.label
    tasks = _without_repeats(logs.joined(device.tasks), build)
    start_ns, end_ns = _times(tasks, clock, build)
    launch = np.full(len(tasks), -1, np.int64)
    if host is not None:
        none = np.full(len(tasks), -1, np.int64)
        batch = wraps(tasks, device.flips) if device.flips is not None else none
        launch = launches(tasks, start_ns, batch, host, chip_6)
        unknown = (launch < 0) & (start_ns >= 0)
        build.skip("name-unknown", "tasks no launch is known of", int(unknown.sum()))
    put_tasks(build, described(tasks, start_ns, end_ns, launch, host, device.operators), launch)


def _without_repeats(tasks: Tasks, build: TraceBuilder) -> Tasks:
    """The scheduler's own records are left out for tasks that another log has, too."""
    of_scheduler = tasks.kind >= logs.TS_MEMCPY
    key = combined_key(tasks.stream, tasks.task)
    repeated = of_scheduler & np.isin(key, key[~of_scheduler])
    count = int(repeated.sum())
    build.lose("repeated-content", "tasks in two logs", count)
    return tasks.take(~repeated)


def _times(tasks: Tasks, clock: Clock, build: TraceBuilder) -> tuple[I64, I64]:
    """Starts and ends; -1 for those outside the clock.

    The last task of a stream lasts until the end of the data if its own end is missing; other tasks
    without an end have no length.
    """
    start, end = clock.device_ns(tasks.start), clock.device_ns(np.maximum(tasks.end, 0))
    open_ = tasks.end < 0
    last_end = int(max(start.max(initial=0), end[~open_].max(initial=0)))
    running = open_ & _last_of_streams(tasks)
    end = np.where(open_, np.where(running, last_end, start), end)
    build.skip("unfinished-slice", "the last tasks of their streams", int(running.sum()))
    build.skip("missing-duration", "tasks whose end is missing", int((open_ & ~running).sum()))
    return start, end


def _last_of_streams(tasks: Tasks) -> NDArray[np.bool_]:
    """Which task is the last of its stream."""
    done = np.maximum(tasks.start, tasks.end)
    order = np.lexsort((tasks.start, done, tasks.stream))
    stream = tasks.stream[order]
    # in the order of streams, a task before a change of stream is the last one
    is_last = np.zeros(len(tasks), bool)
    is_last[order[np.flatnonzero(np.diff(stream, append=-2) != 0)]] = True
    return is_last & (tasks.stream >= 0)


def read_window(build: TraceBuilder, source: Source, window: Window) -> None:
    """Put everything of a raw folder into ``build``."""
    read_raw(build, source, window.raw, window.clock.fresh(), window.chip)


def read_beside(build: TraceBuilder, source: Source, window: Window, clock: Anchor | None) -> None:
    """Read a folder next to events of another clock: without a common one, both begin together."""
    own_clock, span = window.clock.fresh(), build.span()
    apart = (
        clock is None or clock.domain is not own_clock.domain or own_clock.domain is Domain.RELATIVE
    )
    if apart and span is not None:
        own_clock.device = replace(own_clock.device, tick=None, at_ns=span[0])
        own_clock.doubts = ("no clock in common: the device's first record was put at the start",)
    read_raw(build, source, window.raw, own_clock, window.chip)
