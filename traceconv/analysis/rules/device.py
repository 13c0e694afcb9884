"""Rules of the device: how busy it is, what it waits for, its clock, and how ranks differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.losses import waiting_for_input
from traceconv.analysis.rank_facts import COMPUTING, EXPOSED, IDLE
from traceconv.analysis.replay.job import PEERS
from traceconv.analysis.rules.definition import (
    ALL,
    OWN,
    STEPS_KEPT,
    Case,
    FindingSeverity,
    Judge,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    facts_of,
    longest,
    slices,
    slices_of,
)
from traceconv.analysis.stragglers import verdict
from traceconv.analysis.tables.definition import RANK
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.sampled import core_clocks
from traceconv.analysis.tables.stated_steps import stated_overlap
from traceconv.analysis.utilisation import measured, share, utilisation, whole_rank
from traceconv.core.columns import OverlapTimes
from traceconv.core.intervals import intersection, union
from traceconv.core.job_shape import stated_stage
from traceconv.core.model import F64, I64, UNKNOWN, Layer, OpClass, StepTable, Trace
from traceconv.core.side_tables import ABSENT
from traceconv.passes.overlap import device_times

THEME = "device"
RANKS = "ranks"
PADDLE = "PaddlePaddle's tuning guide"

_KEYS = ("computing", "not_overlapped", "free")
_COLUMNS = ("graph", "step", "dur_ns", *StepTable.LENGTHS)
_PERCENTILES = (5, 25, 50, 75, 95)
_FEWEST = 20  # launches; fewer have no distribution

Pieces = Mapping[str, Sequence[int]]
"""Columns of steps as JSON values: :data:`_COLUMNS`."""


def _overlap(trace: Trace) -> Known | None:
    """The time of each step by class, ns, and the longest slices that show it.

    Of the steps that the capture covers, see :mod:`traceconv.analysis.utilisation`; without a
    timeline, those of the profiler's own table. A rank without steps is one piece, step -1.
    """
    steps = measured(trace.steps)
    pieces = {name: getattr(steps, name).tolist() for name in _COLUMNS}
    if not len(steps):
        pieces = _unmeasured(trace)
    if not any(pieces["known_ns"]) or not any(pieces["computing_ns"]):
        return None  # where only copies of a device are known, idle time is unknown
    marked = bool(steps.marked.all()) and -1 not in pieces["step"]
    return {
        "pieces": pieces,
        "marked": marked,
        "job": min((rank for _, rank in trace.capture.placement.job), default=UNKNOWN),
        "stage": stated_stage(trace.rank, trace.capture.placement),
        "coverage": trace.coverage.text,
        "idle": longest(trace, slices_of(trace, OpClass.FREE)),
        "exposed": longest(trace, slices_of(trace, OpClass.NOT_OVERLAPPED)),
    }


def _unmeasured(trace: Trace) -> dict[str, list[int]]:
    """The steps of the profiler's own table; without one the sums of the rank."""
    overlap_table = stated_overlap(trace)
    if overlap_table and RANK not in overlap_table:
        columns = {"dur_ns": overlap_table["known_ns"], **overlap_table}
        return {
            name: np.where(columns[name] == ABSENT, -1, columns[name]).tolist() for name in _COLUMNS
        }
    sums = OverlapTimes(0, 0, 0, 0)
    if (overlap := whole_rank(trace)) is not None:
        sums = overlap.sums_ns._replace(free=overlap.idle_ns)
    row = (-1, -1, sums.known, *sums, UNKNOWN, UNKNOWN)
    return {name: [value] * bool(sums.known) for name, value in zip(_COLUMNS, row, strict=True)}


def _total(pieces: Pieces, name: str) -> int:
    """Sum over the steps in which it is known."""
    return sum(max(ns, 0) for ns in pieces[name])


def _percent(pieces: Pieces, name: str) -> float:
    """The share of one column in the time that is known."""
    return float(share(_total(pieces, name), _total(pieces, "known_ns")))


def _figures(facts: Known) -> dict[str, Any]:
    """The shares, and the time that they are shares of."""
    pieces = facts["pieces"]
    shares = {f"{key}_percent": _percent(pieces, f"{key}_ns") for key in _KEYS}
    has_wait = [ns >= 0 for ns in pieces["input_wait_ns"]]
    if any(has_wait):
        known_waits = {name: list(compress(column, has_wait)) for name, column in pieces.items()}
        shares["input_wait_percent"] = _percent(known_waits, "input_wait_ns")
    if any(ns > 0 for ns in pieces["copying_ns"]):
        shares["copy_not_overlapped_percent"] = _percent(pieces, "copy_not_overlapped_ns")
    window = {"window_ns": _total(pieces, "known_ns"), "steps": len(pieces["step"])}
    covered = {"coverage": facts["coverage"]} if facts["coverage"] else {}
    return {**shares, **window, **covered}


def _steps(facts: Known, reported: Callable[[Mapping[str, I64]], NDArray[np.bool_]]) -> list[int]:
    """The numbers of the steps for which a test of their columns holds."""
    pieces = {name: np.array(column, np.int64) for name, column in facts["pieces"].items()}
    numbers: list[int] = pieces["step"][(pieces["step"] >= 0) & reported(pieces)].tolist()
    return numbers[:STEPS_KEPT]


def _host_bound(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    names = ("free_ns", "copy_not_overlapped_ns", "input_wait_ns", "known_ns")
    free, copies, waits, known_ns = (_total(facts["pieces"], name) for name in names)
    value = float(utilisation(free, known_ns))
    if value < limits[""]:
        steps = _steps(
            facts, lambda columns: utilisation(columns["free_ns"], columns["known_ns"]) < limits[""]
        )
        inside = known_ns == sum(_total(facts["pieces"], f"{name}_ns") for name in _KEYS)
        advice = _STARVED if 2 * waits > free else _COPYING if inside and 2 * copies > free else ""
        yield Case(rank, value, _figures(facts), "", steps, slices(facts["idle"]), advice,
                   gone={IDLE: ALL})  # fmt: skip


_COPYING = (
    "Most of the idle time the device copies memory, which an NPU's cores do not do: look at "
    "the copies and their cause."
)
_STARVED = "Most of the idle time is waiting for input: speed up data preparation first."


def _device_bound(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """Utilization in the steps that do not wait for input. A device that waits for others in its
    collectives is busy as well, but not well used."""
    columns = {name: np.array(column, np.int64) for name, column in facts["pieces"].items()}
    waits = waiting_for_input(columns["input_wait_ns"], columns["known_ns"])
    pieces = {name: column[~waits].tolist() for name, column in columns.items()}
    value = float(utilisation(_total(pieces, "free_ns"), _total(pieces, "known_ns")))
    if value > limits[""] and _percent(pieces, "not_overlapped_ns") <= limits["communication"]:
        steps = pieces["step"][:STEPS_KEPT] if waits.any() else ()
        yield Case(rank, value, _figures({**facts, "pieces": pieces}), "", steps)


_TOO_LONG = (
    "Steps compute less than that, so overlap cannot hide all of it: find out why communication "
    "lasts so long. `traceconv stragglers` names ranks that others wait for; the "
    "tables comm and link of `traceconv stats` have waiting, transfers and bandwidth."
)


def _communicating(trace: Trace) -> Known | None:
    """As :func:`_overlap`, of ranks that communicate."""
    facts = _overlap(trace)
    return facts if facts and any(facts["pieces"]["communication_ns"]) else None


def _exposed(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    value = _percent(facts["pieces"], "not_overlapped_ns")
    if value > limits[""]:
        steps = _steps(
            facts,
            lambda columns: share(columns["not_overlapped_ns"], columns["known_ns"]) > limits[""],
        )
        hidden_at_most, exposed = (
            _total(facts["pieces"], name) for name in ("computing_ns", "not_overlapped_ns")
        )
        yield Case(rank, value, _figures(facts), "", steps, slices(facts["exposed"]),
                   advice=_TOO_LONG if hidden_at_most < exposed else "",
                   gone={EXPOSED: ALL})  # fmt: skip


# -- launches -----------------------------------------------------------------------------


def _launches(trace: Trace) -> Known | None:
    """How long after the start of its launching call a kernel starts, in percentiles: by flows of
    runtime calls, else of the framework's operators."""
    events, flows = trace.events, trace.flows
    computes = trace.rows_of(Layer.DEVICE) & (events.op == OpClass.COMPUTE)
    for layer in (Layer.RUNTIME, Layer.HOST):
        launched = flows.take(trace.rows_of(layer)[flows.src] & computes[flows.dst])
        if len(launched) >= _FEWEST:
            break
    else:
        return None
    overlap_facts = _overlap(trace)
    if overlap_facts is None:
        return None
    late = events.start_ns[launched.dst] - events.start_ns[launched.src]
    values = np.quantile(late, [p / 100 for p in _PERCENTILES]).tolist()
    percentiles = {f"p{p}_ns": round(ns) for p, ns in zip(_PERCENTILES, values, strict=True)}
    idle = _percent(overlap_facts["pieces"], "free_ns")
    figures = {**percentiles, "launches": len(launched), "idle_percent": idle}
    # kernels that begin before their launch show by how much the two clocks are off at least
    value = (percentiles["p50_ns"] - min(percentiles["p5_ns"], 0)) / 1e3
    return facts_of(value, {IDLE: ALL}, overlap_facts["idle"], figures, {"idle": idle})


# -- ranks --------------------------------------------------------------------------------


def _common(facts_by_rank: Mapping[int, Known]) -> dict[int, Pieces]:
    """The steps that all ranks have; {} without any, or if steps are not marked."""
    pieces: dict[int, Pieces] = {rank: facts["pieces"] for rank, facts in facts_by_rank.items()}
    shared = set.intersection(*(set(columns["step"]) for columns in pieces.values()))
    if not shared or not all(facts["marked"] for facts in facts_by_rank.values()):
        return {}
    return {
        rank: {
            name: list(compress(column, [step in shared for step in columns["step"]]))
            for name, column in columns.items()
        }
        for rank, columns in pieces.items()
    }


def _of_alike(measure: Callable[[Pieces], float], test: Callable[..., Case | None]) -> Judge:
    """A judge that compares the ranks of each pipeline stage of a job, or all of its ranks where
    some stage is unknown; None where no two have steps in common.

    Args:
        test: the case of the rank with the largest measure, of that rank, the one with the
            smallest, and all measures.
    """

    def judge(facts_by_rank: Mapping[int, Known], limits: Limits) -> list[Case] | None:
        jobs: dict[int, dict[int, Known]] = {}
        for rank, facts in facts_by_rank.items():
            job_of = facts.get("job", UNKNOWN)  # summaries in older stores have none
            jobs.setdefault(job_of, {})[rank] = facts
        groups: list[dict[int, Known]] = []
        for job in jobs.values():
            by_stage: dict[int, dict[int, Known]] = {}
            for rank, facts in job.items():
                by_stage.setdefault(facts["stage"], {})[rank] = facts
            groups += [job] if UNKNOWN in by_stage else by_stage.values()
        alike = [
            (group_facts, pieces)
            for group_facts in groups
            if len(group_facts) > 1 and (pieces := _common(group_facts))
        ]
        cases = []
        for group, pieces in alike:
            measures = {rank: measure(columns) for rank, columns in pieces.items()}
            largest, least = (
                max(measures, key=lambda r: measures[r]),
                min(measures, key=lambda r: measures[r]),
            )
            case = test(group, measures, largest, least)
            cases += [case] if case is not None and case.value > limits[""] else []
        return cases if alike else None

    return judge


def _compute_spread(
    facts_by_rank: Mapping[int, Known], means: Mapping[int, float], slow: int, fast: int
) -> Case:
    figures = {
        "computing_ns": round(means[slow]),
        "least_computing_ns": round(means[fast]),
        "rank_of_least": fast,
        "ranks": len(means),
    }
    excess_ns, mean = means[slow] - means[fast], fmean(means.values())
    pieces = facts_by_rank[fast]["pieces"]
    waits = sum(_total(pieces, f"{name}_ns") for name in ("not_overlapped", "free"))
    gone = {PEERS: min(excess_ns, waits / len(pieces["step"]))}
    return Case(slow, 100 * excess_ns / mean if mean else 0.0, figures, gone=gone)


def _idle_spread(
    facts_by_rank: Mapping[int, Known], idle: Mapping[int, float], idlest: int, least: int
) -> Case:
    value = idle[idlest] - idle[least]
    figures = {
        "idle_percent": idle[idlest],
        "least_idle_percent": idle[least],
        "rank_of_least": least,
        "ranks": len(idle),
    }
    pieces = facts_by_rank[idlest]["pieces"]
    excess_ns = value / 100 * _total(pieces, "known_ns") / len(pieces["step"])
    return Case(
        idlest,
        value,
        figures,
        "",
        (),
        slices(facts_by_rank[idlest]["idle"]),
        gone={IDLE: excess_ns},
    )


# -- frequency ----------------------------------------------------------------------------

_SOME = 0.01  # of computing: a clock that was reached for less is not a usual one


def _clocks(trace: Trace) -> Known | None:
    """How long the rank computed at each frequency, by step; the time before the first sample of a
    counter is unknown."""
    steps = measured(trace.steps)
    clocks = core_clocks(trace)
    devices = device_times(trace) if clocks and len(steps) else []
    if len(devices) != 1 or trace.hints.partial_device:  # of several, the device is not stated
        return None
    steps = steps.take(np.argsort(steps.device_start_ns, kind="stable"))
    spans = steps.device_spans
    busy = intersection(devices[0].computing, union(spans[:, 0], spans[:, 1]))
    rows = kernels(trace, OpClass.COMPUTE)
    by_track = {}
    for name, (time, value) in clocks.items():
        length, speed, step_of = _pieces(busy, spans, time, value)
        if not len(length):
            continue
        speeds, speed_of = np.unique(speed, return_inverse=True)
        of_step = np.bincount(step_of, length, len(steps))
        weighted = np.bincount(step_of, length * speed, len(steps))
        sampled = np.searchsorted(time, trace.events.start_ns[rows], "right") - 1
        lowest = rows[(sampled >= 0) & (value[sampled] == speeds[0])]
        has_time = of_step > 0
        by_track[name] = {
            "speed": speeds.tolist(),
            "ns": np.bincount(speed_of, length, len(speeds)).astype(np.int64).tolist(),
            "step": steps.step[has_time].tolist(),
            "mean": (weighted[has_time] / of_step[has_time]).tolist(),
            "longest": longest(trace, lowest),
        }
    return {"steps": len(steps), "clocks": by_track} if by_track else None


def _pieces(busy: I64, spans: I64, time: I64, value: F64) -> tuple[I64, F64, I64]:
    """Intervals of computing at one frequency: length, frequency, and the step they are in."""
    edges = np.sort(np.concatenate((busy.ravel(), spans.ravel(), time)))
    begin, length = edges[:-1], np.diff(edges)
    sample = np.searchsorted(time, begin, "right") - 1
    inside = np.searchsorted(busy[:, 0], begin, "right") - 1
    step = np.searchsorted(spans[:, 0], begin, "right") - 1
    is_known = (length > 0) & (sample >= 0) & (inside >= 0) & (step >= 0)
    begin, length = begin[is_known], length[is_known]
    sample, inside, step = sample[is_known], inside[is_known], step[is_known]
    is_known = (begin < busy[inside, 1]) & (begin < spans[step, 1])
    return length[is_known], value[sample[is_known]], step[is_known]


def _slowed(facts_by_rank: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    """Against the highest frequency at which any rank computes for a hundredth of its time."""
    best: dict[str, float] = {}
    for facts in facts_by_rank.values():
        for name, clock in facts["clocks"].items():
            speed, ns = np.array(clock["speed"]), np.array(clock["ns"], np.int64)
            usual = speed[ns >= _SOME * ns.sum()]
            best[name] = max(best.get(name, 0.0), float(usual.max(initial=0.0)))
    for rank, facts in facts_by_rank.items():
        for name, clock in facts["clocks"].items():
            best_speed, ns = best[name], np.array(clock["ns"], np.int64)
            if not best_speed:
                continue
            speed = np.minimum(np.array(clock["speed"]), best_speed)
            ns_lost = float((ns * (1 - speed / best_speed)).sum())
            value = 100 * ns_lost / float(ns.sum())
            if value <= limits[""]:
                continue
            figures = {
                "best": best_speed,
                "mean": float((ns * speed).sum() / ns.sum()),
                "lowest": float(speed[0]),
                "computing_ns": int(ns.sum()),
                "ranks": len(facts_by_rank),
            }
            slow = np.array(clock["mean"]) < (1 - limits[""] / 100) * best_speed
            numbers = np.array(clock["step"], np.int64)[slow].tolist()
            yield Case(
                rank, value, figures, name, [n for n in numbers if n >= 0][:STEPS_KEPT],
                slices(clock["longest"]), gone={COMPUTING: ns_lost / facts["steps"]},
            )  # fmt: skip


_OVERLAP = "compute slices of the device"
_UTILISATION = (
    "share of the steps' recorded device windows in which kernels, collectives or, on GPUs, copies "
    "run (device utilisation)"
)

RULES: tuple[Rule, ...] = (
    Rule(
        "device-idle",
        "Device utilisation is low",
        THEME,
        _UTILISATION,
        (Limit(80.0, "%", PADDLE, below=True),),
        _OVERLAP,
        "Give the device more to do per launch (larger batches, fused or compiled graphs), and "
        "look at what the host does in the idle intervals.",
        _overlap,
        each_rank(_host_bound),
    ),
    Rule(
        "device-busy",
        "The device is busy nearly all of the time: device bound",
        THEME,
        _UTILISATION,
        (Limit(90.0, "%", PADDLE), Limit(10.0, "%", OWN, "communication", below=True)),
        _OVERLAP,
        "The host keeps up, and communication is hidden: only faster kernels shorten the step.",
        _overlap,
        each_rank(_device_bound),
        FindingSeverity.GOOD,
    ),
    Rule(
        "launch-starved",
        "Kernels start as soon as they are launched: the queue is empty",
        THEME,
        "median time from the start of a launching call to the start of its kernel (beyond that "
        "of the earliest 5 %, where kernels begin before their launch), while the device is idle",
        (Limit(20.0, "us", OWN, below=True), Limit(20.0, "%", PADDLE, "idle")),
        "launch flows from host calls to at least 20 kernels, and known idle time of the device",
        "The device waits for every launch: reduce the work of the host between launches, or "
        "launch whole graphs.",
        _launches,
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
        "largest difference in computing time per step between ranks of a pipeline stage, relative "
        "to their mean",
        (Limit(10.0, "%", OWN),),
        f"{_OVERLAP} of at least two ranks, in marked steps that all of them have",
        "The work is not shared out evenly, or a device is slow: compare its operators with those "
        'of the fastest rank (`traceconv diff` with `ranks="FASTEST:THIS"`). Stages of a pipeline '
        "may differ by design; where captures state them, each is judged separately.",
        _overlap,
        _of_alike(lambda pieces: fmean(pieces["computing_ns"]), _compute_spread),
        fewest=2,
        covered_by=verdict.STRAGGLER,
    ),
    Rule(
        "idle-spread",
        "Ranks differ in the share of time their device is idle",
        RANKS,
        "largest difference in idle share between ranks of a pipeline stage, in percentage points",
        (Limit(10.0, "%", OWN),),
        f"{_OVERLAP} of at least two ranks, in marked steps that all of them have",
        "The host of this rank schedules late: look for other load on its machine, for CPU "
        "binding, and for other work of this rank beside training.",
        _overlap,
        _of_alike(lambda pieces: _percent(pieces, "free_ns"), _idle_spread),
        fewest=2,
    ),
    Rule(
        "frequency-drop",
        "The device computes at a lower clock than it can",
        THEME,
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
