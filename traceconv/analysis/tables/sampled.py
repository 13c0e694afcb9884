"""Tables of counters by step: clocks, power and temperature; networks and links."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    TIMED,
    Column,
    Ranked,
    Table,
    grouped,
    joined,
    texts,
    timed,
)
from traceconv.analysis.tables.fields import names_of
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.texts import Texts
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import F64, I64
from traceconv.core.model import Layer, OpClass, Trace, Track, TrackKind
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns

_CLOCKS = lazy_regex(
    r".*(?:freq|clock|[sm]clk|power|voltage|temperature|\btemp\b).*", re.IGNORECASE | re.DOTALL
)
_CLOCK_UNITS = ("MHz", "GHz", "Hz", "W", "mW", "°C", "C", "V", "mV")
_LINKS = lazy_regex(
    r".*(?:\bnic\b|\broce\b|infiniband|\bib\b|rdma|nvlink|pcie|hccs|xgmi|\bsio\b|\bub\b|network"
    r"|ethernet).*",
    re.IGNORECASE | re.DOTALL,
)


_CORES = lazy_regex(
    r"AI Core Freq.*|(?:GPC|SM|GFX|Graphics|Shader|SCLK)[ _](?:Clock|Freq).*|SCLK", re.IGNORECASE
)
"""Counters of the clock of a device's cores, not of its memory."""
_GRAIN = 50.0
"""MHz: clocks of GPUs are never quite the same."""


def core_clocks(trace: Trace) -> dict[str, tuple[I64, F64]]:
    """Samples of the clocks of the cores by name of the counter: instants, and values above 0.
    Windows in several formats have a track each."""
    tracks: dict[str, list[int]] = {}
    for i, track in enumerate(trace.tracks):
        if track.is_counter and _CORES.fullmatch(track.name):
            tracks.setdefault(track.name, []).append(i)
    counters, clocks = trace.counters, {}
    for name, of_name in tracks.items():
        rows = np.isin(counters.track, of_name) & (counters.value > 0)
        samples = np.flatnonzero(rows & np.isfinite(counters.value))
        samples = samples[np.argsort(counters.start_ns[samples], kind="stable")]
        clocks[name] = counters.start_ns[samples], counters.value[samples]
    return clocks


def _kernel_facts(trace: Trace) -> Columns:
    """Kernels that ran at several clocks; a value holds until the next one. Of several devices a
    counter does not state its own."""
    rows = kernels(trace, OpClass.COMPUTE)
    devices = {track.device for track in trace.tracks if track.layer is Layer.DEVICE}
    parts = []
    for name, (time, value) in core_clocks(trace).items() if len(devices) == 1 else ():
        sample = np.searchsorted(time, trace.events.start_ns[rows], "right") - 1
        ran, sample = rows[sample >= 0], sample[sample >= 0]
        clock = (np.round(value[sample] / _GRAIN) * _GRAIN).astype(np.int64)
        groups = Groups.of(trace.events.name[ran])
        several = groups.spread(groups.low(clock) < groups.high(clock))
        ran, clock = ran[several], clock[several]
        keys = {"Clock": Texts.same(name, len(ran)), "Kernel": names_of(trace, ran),
                "Value": clock}  # fmt: skip
        parts.append(grouped(trace.events.dur_ns[ran], keys))
    return joined(parts) if any(len(part["Value"]) for part in parts) else NOTHING


def _kernel_clocks(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    keys = [numbered(rows[name]) for name in ("Clock", "Kernel")]
    groups = Groups.of(rows[RANK], *keys)
    fastest = np.where(rows["Value"] == groups.spread(groups.high(rows["Value"])), 1, 0)
    usual = groups.spread(groups.total(rows["Avg Time(ns)"] * fastest))
    return {**rows, "Slower(%)": share(rows["Avg Time(ns)"] - usual, usual)}


def _is_clock(track: Track) -> bool:
    """Whether a counter is of a clock, power or temperature; shares of cycles are not."""
    return track.unit in _CLOCK_UNITS or (
        track.unit != "%" and _CLOCKS.fullmatch(track.name) is not None
    )


def _is_link(track: Track) -> bool:
    """Whether a counter is of a network or a link between devices, not of memory they hold."""
    return track.kind is TrackKind.OTHER and any(
        _LINKS.fullmatch(text) for text in (track.heading, track.group, track.name)
    )


def _facts(selects: Callable[[Track], bool], trace: Trace) -> Columns:
    """Counters by step: a value holds until the next sample of its series."""
    numbers = [i for i, track in enumerate(trace.tracks) if track.is_counter and selects(track)]
    steps, sampled = measured(trace.steps), []
    span = trace.span() if numbers else None
    if span is None:
        return NOTHING
    spans = [*zip(steps.step.tolist(), steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True)]
    for track in numbers:
        first, after = np.searchsorted(trace.counters.track, [track, track + 1])
        time, value = trace.counters.start_ns[first:after], trace.counters.value[first:after]
        for step, start, end in spans or [(-1, *span)]:
            figures = _within(time, value, start, end)
            if figures is not None:
                sampled.append((track, step, *figures))
    if not sampled:
        return NOTHING
    track_of, step, count, *values = (np.array(column) for column in zip(*sampled, strict=True))
    tracks = [trace.tracks[i] for i in track_of.tolist()]
    return {
        "Step": np.where(step < 0, ABSENT, step).astype(np.int64),
        "Component": texts([track_facts.group or track_facts.heading for track_facts in tracks]),
        "Measure": texts([track_facts.name for track_facts in tracks]),
        "Unit": texts([track_facts.unit or "" for track_facts in tracks]),
        "Samples": count.astype(np.int64),
        **dict(zip(("Min", "Mean", "Max"), values, strict=True)),
    }


def _within(time: I64, value: F64, start: int, end: int) -> tuple[int, float, float, float] | None:
    """Samples within a span, and the least, mean (over time) and largest value in it, the one
    that holds at its start included; None if none is known."""
    low, high = np.searchsorted(time, [start, end])
    held = max(int(np.searchsorted(time, start, "right")) - 1, 0)
    inside = value[held:high]
    if not len(inside) or end <= start:
        return None
    edges = np.append(np.maximum(time[held:high], start), end)
    length = np.diff(edges)
    mean = (inside * length).sum() / length.sum() if length.sum() else inside.mean()
    return int(high - low), float(inside.min()), float(mean), float(inside.max())


def _table(name: str, title: str, needs: str, selects: Callable[[Track], bool]) -> Table:
    return Table(
        name,
        title,
        "By step and series (all that was recorded, where no steps are): Samples = samples in the "
        "step. A value holds until the next sample, so the last one before the step counts, too. "
        "Min and Max of these values; Mean = over the time from the first of them to the end of "
        "the step. Values in the unit of the source.",
        needs,
        Column.parse(
            "Rank, Step, Component:text, Measure:text, Unit:text, Samples, Min:float, Mean:float, "
            "Max:float"
        ),
        partial(_facts, selects),
        capped=True,
    )  # fmt: skip


TABLES: Sequence[Table] = (
    _table(
        "frequency",
        "Clocks, power and temperature by step",
        "counters of clocks, power or temperature: AI Core Freq, GPU metrics, rocm-smi, DCGM",
        _is_clock,
    ),
    _table(
        "network",
        "Networks and links by step",
        "counters of NIC, RoCE, InfiniBand, NVLink, PCIe, HCCS (Ascend sys_hw; nsys metrics)",
        _is_link,
    ),
    Table(
        "frequency_kernel",
        "Kernels by the clock they ran at",
        "Kernels by name that started at several values of a clock of the cores (Clock = the "
        f"counter, Value = in its unit, rounded to {_GRAIN:.0f}; a value holds until the next "
        "sample): Count; Total, Min, Avg, Max of durations; Ratio = Total / sum of Totals. Slower "
        "= Avg above that at the highest Value of the kernel.",
        "clocks of the cores of the only device of a rank (AI Core Freq, SM, GFX), and kernels",
        Column.parse(f"Rank, Clock:text, Kernel:text, Value, {TIMED}, Slower(%)"),
        _kernel_facts,
        _kernel_clocks,
        capped=True,
    ),
)
