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

import numpy as np
from numpy.typing import NDArray

from traceconv.model import I64, Layer
from traceconv.readers._gpu import note_memory
from traceconv.readers._nsight_report import Report
from traceconv.readers._sqlite import Column, Database

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
        report.build.notes,
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
