"""Sampled metrics of GPUs as counters (``--gpu-metrics-devices``).

A sample belongs to a GPU of the machine, not to a process: every process that uses the GPU gets
it. The lowest byte of a sample's type is the GPU as Nsight numbers them; CUDA may number them in
another way, which TARGET_INFO_GPU says where it is there. Samples of GPUs that no process of the
report uses are counted and left out.

Names end in their unit, in brackets ("DRAM Read Bandwidth [Throughput %]"). Clocks are called MHz
and hold Hz in reports that others describe: values no clock reaches in MHz are taken as Hz.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64, Layer, OpClass
from traceconv.readers.nsight.report import TIMES, Report
from traceconv.readers.shared.arguments import register
from traceconv.readers.shared.gpu_kernels import note_memory
from traceconv.readers.shared.sqlite.database import Column, Database

# Calls into libraries, on their threads: the operating system, MPI, cuDNN, cuBLAS.

_OS_CALL = 27


@dataclass(frozen=True)
class Library:
    """A table of calls.

    Attributes:
        name:  the column with the number of the call's name.
        calls: the event class of calls, other rows being marks of the profiler; -1 = every row.
        told:  arguments: key -> column; absent numbers are not said.
    """

    title: str
    layer: Layer = Layer.RUNTIME
    name: str = "nameId"
    calls: int = -1
    told: tuple[tuple[str, str], ...] = ()


_MPI = Library("MPI", Layer.HOST, "textId")
LIBRARIES = {
    "OSRT_API": Library("OS Runtime", calls=_OS_CALL),
    "CUDNN_EVENTS": Library("cuDNN"),
    "CUBLAS_EVENTS": Library("cuBLAS"),
    "MPI_P2P_EVENTS": Library(
        "MPI", Layer.HOST, "textId", told=(("bytes", "size"), ("peer", "remoteRank"))
    ),
    "MPI_COLLECTIVES_EVENTS": Library(
        "MPI", Layer.HOST, "textId", told=(("bytes", "size"), ("root", "rootRank"))
    ),
    "MPI_START_WAIT_EVENTS": _MPI,
    "MPI_OTHER_EVENTS": _MPI,
}


def library_calls(report: Report) -> None:
    """Add the calls of every table there is."""
    for table, library in LIBRARIES.items():
        if table in report.database.tables:
            _read(report, table, library)


def _read(report: Report, table: str, library: Library) -> None:
    wanted = {**TIMES, "eventClass": library.calls, library.name: -1}
    rows = report.rows(table, {**wanted, **{column: -1 for _, column in library.told}}, "globalTid")
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
    if library.told:
        said = np.stack([rows[column] >= 0 for _, column in library.told], axis=1)
        for there in np.unique(said, axis=0).tolist():
            at = np.flatnonzero((said == there).all(axis=1))
            known = [pair for pair, yes in zip(library.told, there, strict=True) if yes]
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

_UNIT = re.compile(r"(.+?)\s*\[([^\[\]]+)\]\s*")
_FASTEST_MHZ = 100_000


def gpu_metrics(report: Report) -> None:
    """Add the samples of the GPUs that this process uses."""
    wanted = {"timestamp": -1, "typeId": 0, "metricId": -1, "value": float("nan")}
    rows = report.database.columns(TABLE, wanted)
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
    """Note the memory of the GPUs that this process uses, as CUDA numbers them."""
    told = report.database.rows("TARGET_INFO_GPU", "id", "cuDevice", "totalMemory")
    named = [(gpu if device is None else device, size) for gpu, device, size in told]
    note_memory(
        report.build.hints,
        [
            {"id": device, "totalGlobalMem": size}
            for device, size in named
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
    distinct, back = np.unique(gpus, return_inverse=True)
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
    key = np.stack((device, rows["typeId"], rows["metricId"]), axis=1)
    distinct, back = np.unique(key, axis=0, return_inverse=True)
    highest = np.full(len(distinct), -np.inf)
    np.maximum.at(highest, back.ravel(), rows["value"])
    tracks = [
        _track(report, gpu, names.get((kind, metric), f"Metric {metric}"), top)
        for (gpu, kind, metric), top in zip(distinct.tolist(), highest.tolist(), strict=True)
    ]
    track: NDArray[np.int32] = np.array(tracks, np.int32)
    report.build.counters(
        track=track[back.ravel()] if tracks else np.empty(0, np.int32),
        start_ns=rows["timestamp"],
        value=rows["value"],
    )


def _track(report: Report, device: int, said: str, highest: float) -> int:
    """The lane of a metric, its unit taken from its name."""
    match = _UNIT.fullmatch(said)
    name, unit = (match[1], match[2]) if match else (said, "")
    if unit.endswith("%"):
        unit = "%"
    elif unit == "MHz" and highest > _FASTEST_MHZ:
        unit = "Hz"
    group = "" if report.process.device >= 0 else f"GPU {device}"
    return report.build.track(Layer.COUNTER, name, group, "GPU Metrics", unit=unit)
