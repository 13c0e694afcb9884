"""One process of an Nsight Systems report while it is read, its calls into libraries, and metrics.

Sampled metrics of GPUs (``--gpu-metrics-devices``) become counters. A sample belongs to a GPU of
the machine, not to a process: every process that uses the GPU gets it. The lowest byte of a
sample's type is the GPU as Nsight numbers them; CUDA may number them in another way, which
TARGET_INFO_GPU says where it is there. Samples of GPUs that no process of the report uses are
counted and left out.

Names of metrics end in their unit, in brackets ("DRAM Read Bandwidth [Throughput %]"). Clocks are
called MHz and hold Hz in reports that others describe: values that no clock reaches in MHz are
taken as Hz.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, Layer, OpClass
from traceconv.core.ordering import distinct, factored, factored_rows
from traceconv.core.patterns import lazy_regex
from traceconv.readers.nsight.processes import NOBODY, Process, owner_of, pid_of, tid_of
from traceconv.readers.shared.arguments import Values, register
from traceconv.readers.shared.gpu_kernels import note_devices
from traceconv.readers.shared.profiler_messages import book_messages
from traceconv.readers.shared.sqlite.database import Column, Database

NAMELESS = "(no name)"
NONE: I64 = np.empty(0, np.int64)
TIMES = {"start": -1, "end": -1}


@dataclass
class Calls:
    """The calls into the CUDA runtime and driver, in the order of their table.

    Attributes:
        correlation: number of what a call made the device do, -1 for nothing.
        row:         of the event.
        start_ns:    as in the report.
        thread:      serialized id.
    """

    correlation: I64 = field(default_factory=lambda: NONE)
    row: I64 = field(default_factory=lambda: NONE)
    start_ns: I64 = field(default_factory=lambda: NONE)
    thread: I64 = field(default_factory=lambda: NONE)

    def at(self, correlation: I64) -> NDArray[np.intp]:
        """The call of each correlation number, the first if several; -1 for none."""
        order, ids = self._sorted
        if not len(order):
            return np.full(len(correlation), -1)
        near = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
        return np.where((correlation >= 0) & (ids[near] == correlation), order[near], -1)

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.intp], I64]:
        order = np.argsort(self.correlation, kind="stable")
        return order, self.correlation[order]


@dataclass
class Report:
    """One process of a report being read.

    Attributes:
        calls:   into the runtime.
        targets: device rows: (correlation ids, event rows) of each table.
    """

    database: Database
    build: TraceBuilder
    process: Process
    comm_words: Sequence[str] = ()
    calls: Calls = field(default_factory=Calls)
    targets: list[tuple[I64, I64]] = field(default_factory=list)

    def rows(self, table: str, requested: Mapping[str, int], owner: str) -> dict[str, Column]:
        """Columns of a table, only the rows of this process (``owner`` is its id column)."""
        columns = self.database.columns(table, {**requested, owner: NOBODY})
        mine, columns[owner] = self.owned(table, columns, owner)
        return {name: column[mine] for name, column in columns.items()}

    def owned(
        self, table: str, columns: Mapping[str, Column], owner: str
    ) -> tuple[NDArray[np.bool_], Column]:
        """Which rows are of this process, and the ids of all: of rows of no process those of this
        one, which gets them or books them."""
        ids = columns[owner]
        pids = owner_of(ids)
        mine = np.isin(pids, (self.process.pid, *self.process.others))
        unnamed = pids == NOBODY
        if unnamed.any():
            mine |= self._given(table, columns, unnamed)
            ids = np.where(unnamed, max(self.process.pid, 0) << 24, ids)
        return mine, ids

    def _given(
        self, table: str, columns: Mapping[str, Column], unnamed: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """The rows of no named process that are this one's; those of none are booked."""
        device = columns.get("deviceId", np.full(len(unnamed), -1))
        process = self.process
        given = unnamed & (process.lone | np.isin(device, process.owned))
        self.build.skip("process-assumed", f"table {table}", int(given.sum()))
        if process.sole is not None and not process.lone:
            nobody = unnamed & ~np.isin(device, process.sole)
            self.build.skip("process-unknown", f"table {table}", int(nobody.sum()))
        return given

    def args(self, table: str, arguments: Mapping[str, tuple[str, Values]]) -> I32:
        """Arguments of rows: key -> (the column it comes from, values). What the table has no
        column for is left out, not made up.
        """
        there = self.database.tables.get(table, ())
        known = {key: values for key, (column, values) in arguments.items() if column in there}
        if not known:
            return np.full(max(len(values) for _, values in arguments.values()), -1, np.int32)
        return register(self.build, known)

    def strings(self, ids: I64) -> dict[int, str]:
        """The strings of a report by their numbers."""
        return self.database.texts("StringIds", "id", "value", distinct(ids[ids >= 0]))

    def texts(self, ids: I64) -> I32:
        """String ids of the trace for string ids of the report."""
        strings = self.strings(ids)
        return self.labels(ids, lambda i: strings.get(i, NAMELESS))

    def labels(self, codes: Column, label: Callable[[int], str]) -> I32:
        """String ids of the trace for what each code is called."""
        distinct, back = factored(codes)
        table = [self.build.string(label(c)) for c in distinct.tolist()]
        return np.array(table, np.int32)[back] if table else np.empty(0, np.int32)

    def timed(
        self, rows: dict[str, Column], table: str, kind: str = "slice"
    ) -> tuple[dict[str, Column], I64]:
        """Rows with a usable time, and their durations; the others are booked."""
        self.build.seen(kind, len(rows["start"]))
        bad = rows["start"] < 0
        negative = ~bad & (rows["end"] >= 0) & (rows["end"] < rows["start"])
        self.build.skip("bad-time", f"table {table}", int(bad.sum()), kind)
        self.build.skip("negative-duration", f"table {table}", int(negative.sum()), kind)
        if bad.any() or negative.any():
            rows = {name: column[~bad & ~negative] for name, column in rows.items()}
        return rows, np.maximum(rows["end"] - rows["start"], 0)

    def threads(self, ids: Column, layer: Layer, title: str) -> I32:
        """The lanes of serialized thread ids."""
        distinct, back = factored(ids)
        tracks = [self.thread(t, layer, title) for t in distinct.tolist()]
        return np.array(tracks, np.int32)[back] if tracks else np.empty(0, np.int32)

    def thread(self, global_tid: int, layer: Layer, title: str) -> int:
        """The lane of a thread."""
        pid, tid = int(pid_of(global_tid)), int(tid_of(global_tid))
        group = "" if pid in (self.process.pid, NOBODY) else f"Process {pid}"
        return self.build.track(layer, f"Thread {tid}" if tid else "No thread", group, title)


DIAGNOSTICS = "DIAGNOSTIC_EVENT"
_WARNING, _ERROR = 2, 3


def diagnostics(report: Report) -> None:
    """Book what the profiler says of its own work; of all processes, with the first of them."""
    if report.process.sole is None:
        return
    rows = report.database.rows(DIAGNOSTICS, "severity", "text")
    told = [[text for level, text in rows if level == one] for one in (_ERROR, _WARNING)]
    book_messages(report.build, *told)
    rest = len(rows) - sum(map(len, told))
    report.build.skip("kind-not-read", f"table {DIAGNOSTICS}", rest)


_OS_CALL = 27


@dataclass(frozen=True)
class Library:
    """A table of calls.

    Attributes:
        name:  the column with the number of the call's name.
        calls: the event class of calls, other rows being marks of the profiler; -1 = every row.
        arguments: key -> column; absent numbers are left out.
    """

    title: str
    layer: Layer = Layer.RUNTIME
    name: str = "nameId"
    calls: int = -1
    arguments: tuple[tuple[str, str], ...] = ()


_MPI = Library("MPI", Layer.HOST, "textId")
LIBRARIES = {
    "OSRT_API": Library("OS Runtime", calls=_OS_CALL),
    "CUDNN_EVENTS": Library("cuDNN"),
    "CUBLAS_EVENTS": Library("cuBLAS"),
    "MPI_P2P_EVENTS": Library(
        "MPI", Layer.HOST, "textId", arguments=(("bytes", "size"), ("peer", "remoteRank"))
    ),
    "MPI_COLLECTIVES_EVENTS": Library(
        "MPI", Layer.HOST, "textId", arguments=(("bytes", "size"), ("root", "rootRank"))
    ),
    "MPI_START_WAIT_EVENTS": _MPI,
    "MPI_OTHER_EVENTS": _MPI,
}


def library_calls(report: Report) -> None:
    """Add calls into libraries, on their threads: the operating system, MPI, cuDNN, cuBLAS."""
    for table, library in LIBRARIES.items():
        if table in report.database.tables:
            _read(report, table, library)


def _read(report: Report, table: str, library: Library) -> None:
    requested = {**TIMES, "eventClass": library.calls, library.name: -1}
    rows = report.rows(
        table, {**requested, **{column: -1 for _, column in library.arguments}}, "globalTid"
    )
    call = (
        rows["eventClass"] == library.calls
        if library.calls >= 0
        else rows["start"] == rows["start"]
    )
    report.build.skip("metadata-unused", f"table {table}", int((~call).sum()))
    rows = {name: column[call] for name, column in rows.items()}
    unended = rows["end"] < 0
    report.build.skip("unfinished-slice", f"table {table}", int(unended.sum()))
    rows["end"] = np.where(
        unended, np.maximum(rows["start"], rows["end"].max(initial=0)), rows["end"]
    )
    rows, dur = report.timed(rows, table)
    args = np.full(len(dur), -1, np.int32)
    if library.arguments:
        stated = np.stack([rows[column] >= 0 for _, column in library.arguments], axis=1)
        for there in np.unique(stated, axis=0).tolist():
            at = np.flatnonzero((stated == there).all(axis=1))
            known = [pair for pair, yes in zip(library.arguments, there, strict=True) if yes]
            if known:
                args[at] = register(report.build, {key: rows[c][at] for key, c in known})
    report.build.extend(
        track=report.threads(rows["globalTid"], library.layer, library.title),
        start_ns=rows["start"],
        dur_ns=dur,
        name=report.texts(rows[library.name]),
        op=OpClass.HOST,
        args=args,
    )


TABLE = "GPU_METRICS"

_UNIT = lazy_regex(r"(.+)\[([^\[\]]+)\]\s*+")
_FASTEST_MHZ = 100_000


def gpu_metrics(report: Report) -> None:
    """Add the samples of the GPUs that this process uses."""
    requested = {"timestamp": -1, "typeId": 0, "metricId": -1, "value": float("nan")}
    rows = report.database.columns(TABLE, requested)
    if not len(rows["timestamp"]):
        return
    device = _devices(report.database, rows["typeId"] & 0xFF)
    process = report.process
    if process.claimed:
        stray = int((~np.isin(device, process.claimed)).sum())
        report.build.skip("kind-not-read", f"table {TABLE}, GPUs that no process uses", stray)
    mine = np.isin(device, process.devices)
    rows = {name: column[mine] for name, column in rows.items()}
    report.build.seen("counter", int(mine.sum()))
    early, odd = rows["timestamp"] < 0, ~np.isfinite(rows["value"])
    report.build.skip("bad-time", f"table {TABLE}", int(early.sum()), "counter")
    report.build.skip("counter-not-numeric", f"table {TABLE}", int((odd & ~early).sum()), "counter")
    good = ~early & ~odd
    _added(report, {name: column[good] for name, column in rows.items()}, device[mine][good])


def gpu_memory(report: Report) -> None:
    """Note memory and names of the GPUs that this process uses, as CUDA numbers them."""
    arguments = report.database.rows("TARGET_INFO_GPU", "id", "cuDevice", "totalMemory", "name")
    named = [(gpu if device is None else device, *said) for gpu, device, *said in arguments]
    note_devices(
        report.build.hints,
        [
            {"id": device, "totalGlobalMem": size, "name": name}
            for device, size, name in named
            if device in report.process.devices
        ],
    )


def _devices(database: Database, gpus: I64) -> I64:
    """The GPUs as CUDA numbers them."""
    known = {
        gpu: device
        for gpu, device in database.rows("TARGET_INFO_GPU", "id", "cuDevice")
        if isinstance(gpu, int) and isinstance(device, int)
    }
    distinct, back = factored(gpus)
    table = np.array([known.get(gpu, gpu) for gpu in distinct.tolist()], np.int64)
    return table[back] if len(table) else np.empty(0, np.int64)


def _added(report: Report, rows: dict[str, Column], device: I64) -> None:
    names = {
        (kind, metric): str(name)
        for kind, metric, name in report.database.rows(
            "TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName"
        )
        if name is not None
    }
    metrics, which = factored_rows(device, rows["typeId"], rows["metricId"])
    highest = np.full(len(metrics), -np.inf)
    np.maximum.at(highest, which, rows["value"])
    tracks = [
        _track(report, gpu, names.get((kind, metric), f"Metric {metric}"), top)
        for (gpu, kind, metric), top in zip(metrics, highest.tolist(), strict=True)
    ]
    track: NDArray[np.int32] = np.array(tracks, np.int32)
    report.build.counters(
        track=track[which] if tracks else np.empty(0, np.int32),
        start_ns=rows["timestamp"],
        value=rows["value"],
    )


def _track(report: Report, device: int, stated: str, highest: float) -> int:
    """The lane of a metric, its unit taken from its name."""
    match = _UNIT.fullmatch(stated)
    name, unit = (match[1].rstrip(), match[2]) if match else (stated, "")
    if unit.endswith("%"):
        unit = "%"
    elif unit == "MHz" and highest > _FASTEST_MHZ:
        unit = "Hz"
    group = "" if report.process.device >= 0 else f"GPU {device}"
    return report.build.track(Layer.COUNTER, name, group, "GPU Metrics", unit=unit)
