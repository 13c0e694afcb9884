"""Counters a device samples itself: how fast its cores run, how much of its memory is used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import F64, I64, Layer
from traceconv.readers._ascend_raw_clock import Clock
from traceconv.readers._ascend_raw_slices import Records, layout

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
MEMORY = layout(32, whose=(0, "<u4"), ddr=(8, "<u8"), hbm=(16, "<u8"), time=(24, "<u8"))
"""A record of ``npu_mem``."""

_WHOSE = ("APP", "Device")


@dataclass(frozen=True)
class Samples:
    """One series: names of its group and of itself, unit, ticks and values."""

    group: str
    name: str
    unit: str
    time: I64
    value: F64


def plausible_frequency(rows: Records) -> NDArray[np.bool_]:
    """A record holds some changes, and no more than there is room for."""
    found: NDArray[np.bool_] = (rows["count"] > 0) & (rows["count"] <= _CHANGES)
    return found


def plausible_memory(rows: Records) -> NDArray[np.bool_]:
    """A record says whose memory it is about."""
    found: NDArray[np.bool_] = rows["whose"] < len(_WHOSE)
    return found


def frequency(rows: Records) -> list[Samples]:
    """How fast the cores of a device ran, from every change on."""
    filled = np.arange(_CHANGES) < rows["count"][:, None]
    changes = rows["changes"][filled]
    time, mhz = changes["time"].astype(np.int64), changes["mhz"].astype(np.float64)
    return [Samples("AI Core Freq", "AI Core Freq", "MHz", time, mhz)]


def memory(rows: Records) -> list[Samples]:
    """The memory of a device in use, by the application and in all."""
    found = []
    for number, whose in enumerate(_WHOSE):
        of = rows[rows["whose"] == number]
        time = of["time"].astype(np.int64)
        for field in ("ddr", "hbm"):
            used = of[field].astype(np.float64) / 1024
            found.append(Samples("NPU MEM", f"{whose}/{field.upper()}", "KB", time, used))
    return found


def put_samples(build: TraceBuilder, samples: Samples, clock: Clock, group: str) -> None:
    """Add one series.

    Args:
        group: what sets the device apart.
    """
    time = clock.device_ns(samples.time)
    kept = time >= 0
    build.seen("counter", len(time))
    build.skip("bad-time", samples.name, int((~kept).sum()), "counter")
    if kept.any():
        above = f"{group} {samples.group}".strip()
        track = build.track(Layer.COUNTER, samples.name, above, "Counters", unit=samples.unit)
        build.counters(track=track, start_ns=time[kept], value=samples.value[kept])
