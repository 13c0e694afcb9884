"""Rules of the device: how busy it is, what it waits for, and how ranks differ in that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from traceconv.analysis.rules.definition import (
    OWN,
    STEPS_KEPT,
    Case,
    Known,
    Limit,
    Limits,
    Rule,
    Severity,
    each_rank,
    longest,
    slices,
)
from traceconv.core.model import Layer, OpClass, Trace

THEME = "device"
RANKS = "ranks"
PADDLE = "PaddlePaddle's tuning guide"

_KEYS = ("computing", "communication", "not_overlapped", "free")
_PERCENTILES = (5, 25, 50, 75, 95)
_FEWEST = 20  # launches; a distribution of fewer says nothing


def _overlap(trace: Trace) -> Known | None:
    """What each step's time went to, ns, and the longest slices that show it.

    Of several graphs the one that takes most of the time: graphs may contain each other.
    A rank without steps is one piece, step -1.
    """
    pieces = [_piece(step) for step in trace.notes.get("steps", ()) if step.get("known_ns")]
    took: Counter[int] = Counter()
    for piece in pieces:
        took[piece["graph"]] += piece["dur_ns"]
    if took:
        graph = took.most_common(1)[0][0]
        pieces = [piece for piece in pieces if piece["graph"] == graph]
    else:
        pieces = _whole(trace)
    if not any(piece["computing_ns"] for piece in pieces):
        return None  # a log of collectives alone does not say what the device did besides
    return {"pieces": pieces, "idle": _lane(trace, OpClass.FREE),
            "exposed": _lane(trace, OpClass.NOT_OVERLAPPED)}  # fmt: skip


def _piece(step: Mapping[str, Any]) -> dict[str, int]:
    keys = ("graph", "step", "dur_ns", *(f"{key}_ns" for key in _KEYS), "known_ns")
    return {key: int(step[key]) for key in keys}


def _whole(trace: Trace) -> list[dict[str, int]]:
    sums = trace.notes.get("overlap", {}).get("sums_ns")
    known = sums["computing"] + sums["not_overlapped"] + sums["free"] if sums else 0
    if not known:
        return []
    parts = {f"{key}_ns": sums[key] for key in _KEYS}
    return [{"graph": -1, "step": -1, "dur_ns": known, **parts, "known_ns": known}]


def _lane(trace: Trace, op: OpClass) -> list[dict[str, Any]]:
    return longest(trace, np.flatnonzero(trace.events.op == op))


def _percent(pieces: Sequence[Mapping[str, int]], *keys: str) -> float:
    """The share of some classes in the time that is known."""
    part = sum(piece[f"{key}_ns"] for piece in pieces for key in keys)
    return 100 * part / sum(piece["known_ns"] for piece in pieces)


def _shares(known: Known) -> dict[str, float]:
    return {f"{key}_percent": _percent(known["pieces"], key) for key in _KEYS if key != _KEYS[1]}


def _steps(known: Known, reports: Any) -> list[int]:
    """The steps for which a test of their own share holds."""
    return [p["step"] for p in known["pieces"] if p["step"] >= 0 and reports([p])][:STEPS_KEPT]


_BUSY = ("computing", "not_overlapped")


def _host_bound(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    value = _percent(known["pieces"], *_BUSY)
    if value < limits[""]:
        steps = _steps(known, lambda p: _percent(p, *_BUSY) < limits[""])
        yield Case(rank, value, _shares(known), "", steps, slices(known["idle"]))


def _device_bound(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    value = _percent(known["pieces"], *_BUSY)
    if value > limits[""]:
        yield Case(rank, value, _shares(known))


def _exposed(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    value = _percent(known["pieces"], "not_overlapped")
    if value > limits[""]:
        steps = _steps(known, lambda p: _percent(p, "not_overlapped") > limits[""])
        yield Case(rank, value, _shares(known), "", steps, slices(known["exposed"]))


def _communicating(trace: Trace) -> Known | None:
    """As :func:`_overlap`, of ranks that communicate."""
    found = _overlap(trace)
    return found if found and any(p["communication_ns"] for p in found["pieces"]) else None


# -- launches -----------------------------------------------------------------------------


def _launches(trace: Trace) -> Known | None:
    """How long after the start of the call that launches it a kernel starts, in percentiles.

    By arrows of runtime calls; of the framework's operators where there are none.
    """
    events, flows = trace.events, trace.flows
    kernels = trace.rows_of(Layer.DEVICE) & (events.op == OpClass.COMPUTE)
    for layer in (Layer.RUNTIME, Layer.HOST):
        arrows = flows.take(trace.rows_of(layer)[flows.src] & kernels[flows.dst])
        if len(arrows) >= _FEWEST:
            break
    else:
        return None
    late = events.start_ns[arrows.dst] - events.start_ns[arrows.src]
    percentiles = {f"p{p}_ns": round(float(np.percentile(late, p))) for p in _PERCENTILES}
    whole = _overlap(trace)
    idle = _percent(whole["pieces"], "free") if whole else 100.0
    free = _lane(trace, OpClass.FREE)
    return {**percentiles, "launches": len(arrows), "idle_percent": idle, "idle": free}


def _starved(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    value = known["p50_ns"] / 1e3
    if value < limits[""] and known["idle_percent"] > limits["idle"]:
        figures = {key: value for key, value in known.items() if key != "idle"}
        yield Case(rank, value, figures, "", (), slices(known["idle"]))


# -- ranks --------------------------------------------------------------------------------


def _common(known: Mapping[int, Known]) -> dict[int, list[Mapping[str, int]]]:
    """The pieces of every rank that all ranks have, by step; all pieces if there are none."""
    steps = [{p["step"] for p in one["pieces"]} for one in known.values()]
    shared = set.intersection(*steps)
    return {
        rank: [p for p in one["pieces"] if p["step"] in shared or not shared]
        for rank, one in known.items()
    }


def _compute_spread(known: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    means = {
        rank: fmean(p["computing_ns"] for p in pieces) for rank, pieces in _common(known).items()
    }
    slow, fast = max(means, key=lambda r: means[r]), min(means, key=lambda r: means[r])
    mean = fmean(means.values())
    value = 100 * (means[slow] - means[fast]) / mean if mean else 0.0
    if value > limits[""]:
        figures = {
            "computing_ns": round(means[slow]),
            "least_computing_ns": round(means[fast]),
            "rank_of_least": fast,
            "ranks": len(means),
        }
        yield Case(slow, value, figures)


def _idle_spread(known: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    idle = {rank: _percent(pieces, "free") for rank, pieces in _common(known).items()}
    most, least = max(idle, key=lambda r: idle[r]), min(idle, key=lambda r: idle[r])
    value = idle[most] - idle[least]
    if value > limits[""]:
        figures = {
            "idle_percent": idle[most],
            "least_idle_percent": idle[least],
            "rank_of_least": least,
            "ranks": len(idle),
        }
        yield Case(most, value, figures, "", (), slices(known[most]["idle"]))


_OVERLAP = "compute slices of the device"

RULES: tuple[Rule, ...] = (
    Rule(
        "device-idle",
        "The device is not busy: host bound",
        THEME,
        "share of the steps in which kernels or collectives run (device utilisation)",
        (Limit(80.0, "%", PADDLE, below=True),),
        _OVERLAP,
        "Give the device more to do per launch (larger batches, fused or compiled graphs), and "
        "look at what the host does in the idle stretches.",
        _overlap,
        each_rank(_host_bound),
    ),
    Rule(
        "device-busy",
        "The device is busy nearly all of the time: device bound",
        THEME,
        "share of the steps in which kernels or collectives run (device utilisation)",
        (Limit(90.0, "%", PADDLE),),
        _OVERLAP,
        "The host keeps up: only faster kernels, or less communication that is not overlapped, "
        "will shorten the step.",
        _overlap,
        each_rank(_device_bound),
        Severity.NOTE,
    ),
    Rule(
        "launch-starved",
        "Kernels start as soon as they are launched: the queue is empty",
        THEME,
        "median time from the start of a launching call to the start of its kernel, while the "
        "device is idle",
        (Limit(20.0, "us", OWN, below=True), Limit(20.0, "%", PADDLE, "idle")),
        "launch arrows from host calls to at least 20 kernels",
        "The device waits for every launch: reduce the work of the host between launches, or "
        "launch whole graphs.",
        _launches,
        each_rank(_starved),
    ),
    Rule(
        "exposed-communication",
        "Communication is not hidden behind computing",
        "communication",
        "share of the steps in which the device communicates and does not compute",
        (Limit(10.0, "%", OWN),),
        f"{_OVERLAP} and communication operations",
        "Overlap communication with computing: bucket gradients, prefetch parameters, change the "
        "parallel strategy; if ranks wait for a slow one, that comes first.",
        _communicating,
        each_rank(_exposed),
    ),
    Rule(
        "compute-spread",
        "Ranks differ in the time they compute",
        RANKS,
        "most minus least computing time per step among ranks, of the mean",
        (Limit(10.0, "%", OWN),),
        f"{_OVERLAP} of at least two ranks",
        "The work is not shared out evenly, or a device is slow: compare the operators of this "
        "rank with those of the fastest (stages of a pipeline may differ by design).",
        _overlap,
        _compute_spread,
        fewest=2,
    ),
    Rule(
        "idle-spread",
        "Ranks differ in the share of time their device is idle",
        RANKS,
        "largest minus smallest idle share among ranks, in percentage points",
        (Limit(10.0, "%", OWN),),
        f"{_OVERLAP} of at least two ranks",
        "The host of this rank schedules late: look for other load on its machine, for CPU "
        "binding, and for what this rank does beside training.",
        _overlap,
        _idle_spread,
        fewest=2,
    ),
)
