"""Rules of how well the device computes: its clock, and what operators reach of what they could."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from traceconv.analysis.losses import COMPUTING
from traceconv.analysis.rules.definition import (
    STEPS_KEPT,
    Case,
    Known,
    Limit,
    Limits,
    Rule,
    longest,
    slices,
)
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.utilisation import measured
from traceconv.core.intervals import intersection, union
from traceconv.core.model import F64, I64, OpClass, Trace
from traceconv.passes.overlap import device_times

THEME = "operators"

# -- frequency ----------------------------------------------------------------------------

_CLOCK = re.compile(
    r"AI Core Freq.*|(?:GPC|SM|GFX|Graphics|Shader|SCLK)[ _](?:Clock|Freq).*|SCLK", re.I
)
"""Counters of how fast the cores of a device run, not its memory."""
_SOME = 0.01  # of computing: what ran faster for less is no usual speed


def _clocks(trace: Trace) -> Known | None:
    """How long the rank computed at each frequency, by step; time before the first sample of a
    counter is not known."""
    steps = measured(trace.steps)
    tracks = [i for i, t in enumerate(trace.tracks) if t.is_counter and _CLOCK.fullmatch(t.name)]
    devices = device_times(trace) if tracks and len(steps) else []
    if len(devices) != 1 or trace.hints.partial_device:  # whose clock it is, of several, is unsaid
        return None
    steps = steps.take(np.argsort(steps.device_start_ns, kind="stable"))
    spans = steps.device_spans
    busy = intersection(devices[0].computing, union(spans[:, 0], spans[:, 1]))
    found = {}
    for track in tracks:
        mine = np.flatnonzero((trace.counters.track == track) & (trace.counters.value > 0))
        order = np.argsort(trace.counters.start_ns[mine], kind="stable")
        time, value = trace.counters.start_ns[mine][order], trace.counters.value[mine][order]
        length, speed, at = _pieces(busy, spans, time, value)
        if not len(length):
            continue
        speeds, which = np.unique(speed, return_inverse=True)
        ns = np.bincount(which, length, len(speeds)).astype(np.int64)
        of_step = np.bincount(at, length, len(steps))
        weighted = np.bincount(at, length * speed, len(steps))
        known = of_step > 0
        found[trace.tracks[track].name] = {
            "speed": speeds.tolist(),
            "ns": ns.tolist(),
            "step": steps.step[known].tolist(),
            "mean": (weighted[known] / of_step[known]).tolist(),
            "longest": _slowest(trace, time, value, float(speeds[0])),
        }
    return {"steps": len(steps), "clocks": found} if found else None


def _pieces(busy: I64, spans: I64, time: I64, value: F64) -> tuple[I64, F64, I64]:
    """Pieces of computing with one frequency: length, frequency, and the step they are in."""
    edges = np.unique(np.concatenate((busy.ravel(), spans.ravel(), time)))
    begin, length = edges[:-1], np.diff(edges)
    sample = np.searchsorted(time, begin, "right") - 1
    inside = np.searchsorted(busy[:, 0], begin, "right") - 1
    step = np.searchsorted(spans[:, 0], begin, "right") - 1
    kept = (sample >= 0) & (inside >= 0) & (step >= 0)
    begin, length = begin[kept], length[kept]
    sample, inside, step = sample[kept], inside[kept], step[kept]
    kept = (begin < busy[inside, 1]) & (begin < spans[step, 1])
    return length[kept], value[sample[kept]], step[kept]


def _slowest(trace: Trace, time: I64, value: F64, least: float) -> list[dict[str, Any]]:
    """The longest kernels that began at the lowest frequency."""
    rows = kernels(trace, OpClass.COMPUTE)
    at = np.searchsorted(time, trace.events.start_ns[rows], "right") - 1
    rows, at = rows[at >= 0], at[at >= 0]
    return longest(trace, rows[value[at] == least])


def _slowed(known: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    """Against the highest frequency at which any rank computes for a hundredth of its time."""
    best: dict[str, float] = {}
    for one in known.values():
        for name, clock in one["clocks"].items():
            speed, ns = np.array(clock["speed"]), np.array(clock["ns"], np.int64)
            usual = speed[ns >= _SOME * ns.sum()]
            best[name] = max(best.get(name, 0.0), float(usual.max(initial=0.0)))
    for rank, one in known.items():
        for name, clock in one["clocks"].items():
            most, ns = best[name], np.array(clock["ns"], np.int64)
            speed = np.minimum(np.array(clock["speed"]), most)
            if not most:
                continue
            lost = float((ns * (1 - speed / most)).sum())
            value = 100 * lost / float(ns.sum())
            if value <= limits[""]:
                continue
            figures = {
                "best": most,
                "mean": float((ns * speed).sum() / ns.sum()),
                "lowest": float(speed[0]),
                "computing_ns": int(ns.sum()),
                "ranks": len(known),
            }
            slow = np.array(clock["mean"]) < (1 - limits[""] / 100) * most
            numbers = np.array(clock["step"], np.int64)[slow].tolist()
            yield Case(
                rank, value, figures, name, [n for n in numbers if n >= 0][:STEPS_KEPT],
                slices(clock["longest"]), saves_ns=lost / one["steps"], part_of=(COMPUTING,),
            )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule(
        "frequency-drop",
        "The device computes at a lower clock than it can",
        "device",
        "mean drop of the clock while the device computes, from the highest clock at which any "
        "rank computes for 1 % of its time",
        (Limit(5.0, "%", "msprof-analyze"),),
        "counters of the clock of the cores (AI Core Freq; GPU metrics), and computing of one "
        "device per rank",
        "Look at power limits, temperature and cooling of this device, and at settings that save "
        "power; a rank that runs slower makes all others wait.",
        _clocks,
        _slowed,
    ),
)
