"""Rules of the queues between data preparation and device, and of reading time.

Terms as MindSpore's: the *host queue* is between the data pipeline and the sender to the device,
the *device queue* between that and the training step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from traceconv.analysis.losses import INPUT_MS, INPUT_PERCENT
from traceconv.analysis.rank_facts import IDLE, INPUT
from traceconv.analysis.replay.job import STEP
from traceconv.analysis.rules.definition import (
    ALL,
    SLICES_KEPT,
    STEPS_KEPT,
    Case,
    FindingSeverity,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    facts_of,
    longest,
    of_table,
    rows_of,
    slices,
    slices_of,
    told_slice,
)
from traceconv.analysis.tables import data as _data_tables
from traceconv.analysis.tables.fields import named, numbers
from traceconv.analysis.utilisation import measured, share
from traceconv.core.model import OpClass, Trace
from traceconv.core.side_tables import ABSENT
from traceconv.passes.input_wait import input_rows

THEME = "data preparation"
MINDSPORE = "MindSpore's profiler"

_GET_NEXT = ("minddata_aicpu", "minddata_getnext_profiling")
_QUEUES = of_table(_data_tables.TABLES, "data")
_READER = of_table(_data_tables.TABLES, "reader")
_NOT_SUNK = "dataset_iterator"
_FEWEST = 3  # samples of a queue


def _queue(trace: Trace, fewest: int = _FEWEST) -> dict[str, Any] | None:
    """The queue of data that is sent to the device, else that of a dataset that is not."""
    rows = [row for row in rows_of(_QUEUES(trace) or {}) if row["Records"]]
    return rows[0] if rows and rows[0]["Records"] >= fewest else None


def _host_queue(trace: Trace) -> Known | None:
    host = _queue(trace)
    if host is None:
        return None
    names = ("Records", "Empty", "Full", "Mean Size", "Capacity")
    figures = {n.lower().replace(" ", "_"): host[n] for n in names if host[n] != ABSENT}
    value = 100 * host["Empty"] / host["Records"]
    return facts_of(value, {INPUT: ALL}, (), figures, where=host["Queue"])


def _device_queue(trace: Trace) -> Known | None:
    """Fetches of the device: how many, and those that found it empty."""
    for name in _GET_NEXT:
        side_table = trace.side_tables.get(name)
        if not side_table:
            continue
        size, ops = numbers(side_table, "queue_size"), named(side_table, "op")
        start, end = (numbers(side_table, f"{edge}(ns)") for edge in ("start", "end"))
        sampled = np.flatnonzero(size != ABSENT)
        empty = sampled[size[sampled] == 0]
        waits = [
            (ops[i], int(start[i]), int(end[i] - start[i]))
            for i in empty.tolist()
            if start[i] != ABSENT and end[i] >= start[i]
        ]
        waits.sort(key=lambda wait: -wait[2])
        if len(sampled):
            return facts_of(
                100 * len(empty) / len(sampled), {INPUT: ALL},
                [told_slice(trace, *wait, name) for wait in waits[:SLICES_KEPT]],
                {"fetches": len(sampled), "empty": len(empty)},
                steps=(np.searchsorted(sampled, empty) + 1).tolist()[:STEPS_KEPT],
            )  # fmt: skip
    return None


def _sending(trace: Trace) -> Known | None:
    """Empty device queues, while the host queue is filled."""
    host, device = _host_queue(trace), _device_queue(trace)
    if not host or not device:
        return None
    figures = {f"host_queue_{name}": value for name, value in host["figures"].items()}
    return {**device, "figures": {**device["figures"], **figures},
            "also": {"host-empty": host["value"]}}  # fmt: skip


def _sinking(trace: Trace) -> Known | None:
    """How idle steps are, of a dataset that is not sent to the device ahead of them."""
    host, steps = _queue(trace, 1), measured(trace.steps)
    if host is None or not len(steps) or trace.hints.partial_device:
        return None
    free_ns, sunk = int(steps.free_ns.sum()), host["Queue"] != _NOT_SUNK
    value = 0.0 if sunk else float(share(free_ns, steps.known_ns.sum()))
    figures = {"idle_ns": round(free_ns / len(steps)), "steps": len(steps)}
    shown = longest(trace, slices_of(trace, OpClass.FREE))
    return facts_of(value, {IDLE: ALL}, shown, figures)


def _reader_ratio(trace: Trace) -> Known | None:
    """The Reader Ratio of Paddle's timer."""
    rows = rows_of(_READER(trace) or {})
    ratios = [r["Reader Ratio(%)"] for r in rows if r["Reader Ratio(%)"] == r["Reader Ratio(%)"]]
    if not ratios:
        return None
    means = {f"{row['Measure']}_s": row["Avg"] for row in rows if row["Measure"] != "ips"}
    cost = means.get("reader_cost_s")
    return facts_of(ratios[0], {} if cost is None else {STEP: cost * 1e9}, (), means)


# -- waiting within steps -----------------------------------------------------------------


def _waits(trace: Trace) -> Known | None:
    """Steps whose wait is known: number, length and waiting, ns; and the longest waits."""
    steps = measured(trace.steps)
    steps = steps.take(steps.input_wait_ns >= 0)
    if not len(steps):
        return None
    columns = {
        name: getattr(steps, name).tolist() for name in ("step", "known_ns", "input_wait_ns")
    }
    return {**columns, "longest": longest(trace, np.flatnonzero(input_rows(trace)))}


def _waiting(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """By the steps that wait for long; else by the share of waiting in all."""
    columns = ("step", "known_ns", "input_wait_ns")
    step, length, waits = (np.array(facts[name], np.int64) for name in columns)
    share_of_all = float(share(waits.sum(), length.sum()))
    long = waits > limits[""] * 1e6
    figures = {
        "steps": len(step),
        "waiting_ns": round(float(waits.mean())),
        "longest_ns": int(waits.max()),
        "share_percent": share_of_all,
    }
    if long.any():  # one long wait is enough: a worker that died, storage that stalled
        value, limit, shown = float(waits[long].mean()) / 1e6, "", long
    elif share_of_all > limits["share"]:
        value, limit, shown = share_of_all, "share", share(waits, length) > limits["share"]
    else:
        return
    numbers_of = step[shown & (step >= 0)].tolist()[:STEPS_KEPT]
    yield Case(rank, value, figures, "", numbers_of, slices(facts["longest"]), limit=limit,
               gone={INPUT: ALL})  # fmt: skip


_HOST = (
    "three samples of the host queue, or more (device_queue_profiling or "
    "dataset_iterator_profiling)"
)
_DEVICE = "fetches of the device with the size of its queue (minddata_aicpu)"

RULES: tuple[Rule, ...] = (
    Rule(
        "input-wait",
        "Steps wait for input",
        THEME,
        "time per step in which the device is idle because the host waits for data",
        (
            Limit(INPUT_MS, "ms", "msprof-analyze (a DataLoader that takes longer is slow)"),
            Limit(
                INPUT_PERCENT,
                "%",
                "PaddlePaddle's tuning guide, of its Reader Ratio",
                "share",
                measure="share of the steps in which the device is idle because the host waits for "
                "data",
            ),
        ),
        "steps with device work, and ranges that wait for data: those of a DataLoader, GetNext, "
        "the tables of the device queue, or Preparing of step_trace_time",
        "Training waits for data: raise num_workers and prefetching of the data loader, make "
        "transformations cheaper or do them offline, use faster storage.",
        _waits,
        each_rank(_waiting),
    ),
    Rule(
        "device-queue-empty",
        "Steps find no data: the device queue is empty",
        THEME,
        "share of the fetches that meet an empty device queue",
        (Limit(0.0, "%", "MindStudio: a step whose data queue is empty waits"),),
        _DEVICE,
        "Training waits for data in these steps: see whether processing or sending is slow.",
        _device_queue,
    ),
    Rule(
        "host-queue-empty",
        "The host queue runs empty: processing of data is slow",
        THEME,
        "share of the samples that find the host queue empty",
        (Limit(30.0, "%", MINDSPORE),),
        _HOST,
        "Speed up the data pipeline: more workers, cheaper or offline transformations, faster "
        "storage; the rules of the pipeline name the operator.",
        _host_queue,
    ),
    Rule(
        "sending-slow",
        "The host queue has data, the device queue has none: sending is slow",
        THEME,
        "share of the fetches that meet an empty device queue although the host queue is filled",
        (
            Limit(0.0, "%", MINDSPORE),
            Limit(30.0, "%", MINDSPORE, "host-empty", below=True),
        ),
        f"{_HOST} and {_DEVICE}",
        "Move less data to the device (smaller types, decode there), and check the load of the "
        "link between host and device.",
        _sending,
    ),
    Rule(
        "not-sunk",
        "The dataset is not sunk to the device, which is idle for much of the steps",
        THEME,
        "share of the steps in which the device is idle, of a dataset that is not sunk",
        (Limit(20.0, "%", "PaddlePaddle's tuning guide, of utilisation"),),
        f"{_HOST}, and steps with device work",
        "Let the device fetch steps by itself: dataset_sink_mode=True, in graph mode, where "
        "the host has nothing to do after every step.",
        _sinking,
        severity=FindingSeverity.NOTE,
    ),
    Rule(
        "reader-ratio",
        "Training waits for the data loader",
        THEME,
        "mean reading time of mean batch time (Reader Ratio)",
        (Limit(5.0, "%", "PaddlePaddle's tuning guide"),),
        "a log of Paddle's timer with reader_cost",
        "Raise num_workers of the DataLoader, use shared memory, or move work out of the dataset.",
        _reader_ratio,
    ),
)
