"""Tables of memory: peaks, and the curves they are the peaks of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    Column,
    Ranked,
    Table,
    below,
    ordered,
    stacked,
    texts,
)
from traceconv.analysis.tables.fields import rounded
from traceconv.analysis.tables.groups import Groups, mean, numbered, share
from traceconv.analysis.tables.module import marked_phases, outermost
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import F64, I64
from traceconv.core.model import Kind, Layer, Trace, Track, TrackKind
from traceconv.core.side_tables import ABSENT, Columns

UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
"""Bytes of the units of the profilers."""

Curve = tuple[str, str, I64, F64]
"""Component, what is measured, instants (ns), bytes."""


def _by_track(trace: Trace) -> Iterator[tuple[Track, Curve]]:
    """Every series of bytes over time."""
    counters = trace.counters
    for number, track in enumerate(trace.tracks):
        if track.layer is not Layer.COUNTER or track.unit not in UNITS:
            continue
        rows = counters.take(slice(*np.searchsorted(counters.track, [number, number + 1])))
        if len(rows):
            size = rows.value * UNITS[track.unit]
            yield track, (track.group or track.heading, track.name, rows.start_ns, size)


def _peak_facts(trace: Trace) -> Columns:
    series = list(_by_track(trace))
    if not series:
        return NOTHING
    curves = [curve for _, curve in series]
    peaks = [int(np.argmax(size)) for _, _, _, size in curves]
    sizes = [(_whole(size.min()), _whole(size.mean()), _whole(size.max()), _whole(size[-1]))
             for _, _, _, size in curves]  # fmt: skip
    low, usual, high, end = (np.array(part, np.int64) for part in zip(*sizes, strict=True))
    peak_ns = [time[peak] for (_, _, time, _), peak in zip(curves, peaks, strict=True)]
    return {
        "Component": texts([c[0] for c in curves]),
        "Measure": texts([c[1] for c in curves]),
        "Count": np.array([len(c[2]) for c in curves], np.int64),
        "Min(B)": low, "Mean(B)": usual, "Peak(B)": high, "Last(B)": end,
        "Peak Timestamp(ns)": np.array(peak_ns, np.int64),
        "Capacity(B)": np.array([_capacity(trace, track) for track, _ in series], np.int64),
    }  # fmt: skip


def _capacity(trace: Trace, track: Track) -> int:
    """Memory of the device whose allocator is measured, bytes; ABSENT where the capture does not
    record it."""
    if track.kind is not TrackKind.ALLOCATOR or track.device_kind == "CPU":
        return ABSENT
    return trace.hints.device_memory_bytes.get(track.device, ABSENT)


def _whole(value: Any) -> int:
    return int(rounded(np.array([value]))[0])


def _curve_facts(trace: Trace) -> Columns:
    curves = [curve for _, curve in _by_track(trace)]
    if not curves:
        return NOTHING
    length = [len(c[2]) for c in curves]
    return {
        "Component": np.repeat(texts([c[0] for c in curves]), length),
        "Measure": np.repeat(texts([c[1] for c in curves]), length),
        "Timestamp(ns)": np.concatenate([c[2] for c in curves]),
        "Size(B)": rounded(np.concatenate([c[3] for c in curves])),
    }


def _peaks(ranked: Ranked) -> Columns:
    """Per rank; job-wide, the row of the rank with the highest peak."""
    rows = stacked(ranked)
    capacity = rows["Capacity(B)"]
    rows["Peak of Capacity(%)"] = np.where(capacity > 0, share(rows["Peak(B)"], capacity), np.nan)
    if len(ranked) > 1:
        names = [numbered(rows[key]) for key in ("Component", "Measure")]
        order = np.argsort(-rows["Peak(B)"], kind="stable")
        highest = order[Groups.of(*(name[order] for name in names)).first]
        rows = below(rows, {key: rows[key][highest] for key in rows if key != RANK})
    return ordered(rows, -rows["Peak(B)"])


def _within(trace: Trace, start_ns: I64, end_ns: I64, number: I64) -> dict[str, Any]:
    """Each series in each span with samples in it: number of the span, first, peak and last."""
    samples: list[tuple[Any, ...]] = []
    for _, (component, measure, time, size) in _by_track(trace) if len(number) else ():
        low = np.searchsorted(time, start_ns, "right")
        high = np.searchsorted(time, end_ns, "left")
        for span, a, b in zip(number.tolist(), low.tolist(), high.tolist(), strict=True):
            if b > a:
                inside = size[max(a - 1, 0) : b]
                begun = inside[0] if a > 0 else np.nan
                samples.append((span, component, measure, begun, inside.max(), inside[-1]))
    if not samples:
        return {}
    columns = [*zip(*samples, strict=True)]
    begun, peak, final = (rounded(np.array(figures, np.float64)) for figures in columns[3:])
    return {
        "of": np.array(columns[0], np.int64),
        "Component": texts(columns[1]), "Measure": texts(columns[2]),
        "First(B)": begun, "Peak(B)": peak, "Last(B)": final,
        "Growth(B)": np.where(begun == ABSENT, ABSENT, final - begun),
    }  # fmt: skip


def _step_facts(trace: Trace) -> Columns:
    steps = measured(trace.steps)
    rows = _within(trace, steps.start_ns, steps.end_ns, steps.step.astype(np.int64))
    if not rows:
        return NOTHING
    number = rows.pop("of")
    return {"Step": np.where(number < 0, ABSENT, number), **rows}


def _phase_facts(trace: Trace) -> Columns:
    """Per phase and series, over outermost ranges: the mean of first and growth, and the peak."""
    events = trace.events
    host = np.flatnonzero(trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE))
    rows, phases = marked_phases(trace, host)
    alone = np.zeros(len(rows), bool)
    for phase in np.unique(phases.numbers()):
        own = np.flatnonzero(phases.numbers() == phase)
        alone[own] = outermost(events.start_ns[rows[own]], events.dur_ns[rows[own]])
    rows, phases = rows[alone], phases[alone]
    series_rows = _within(trace, events.start_ns[rows], events.ends(rows), np.arange(len(rows)))
    if not series_rows:
        return NOTHING
    is_known = series_rows["First(B)"] != ABSENT
    series_rows = {name: column[is_known] for name, column in series_rows.items()}
    phase = phases[series_rows.pop("of")]
    series = (numbered(series_rows["Component"]), numbered(series_rows["Measure"]))
    groups = Groups.of(phase.numbers(), *series)
    return {
        "Phase": phase[groups.first].column(),
        **{name: series_rows[name][groups.first] for name in ("Component", "Measure")},
        "Count": groups.size,
        "First(B)": mean(groups.total(series_rows["First(B)"]), groups.size),
        "Peak(B)": groups.high(series_rows["Peak(B)"]),
        "Growth(B)": mean(groups.total(series_rows["Growth(B)"]), groups.size),
    }


TABLES: Sequence[Table] = (
    Table(
        "memory",
        "Memory: peaks",
        "Over the samples of one component and measure: Count, Min, Mean (of samples, not of "
        "time), Peak = largest, Last = at the end, Peak Timestamp = first instant of the peak. KB, "
        "MB and GB of the profilers are powers of 1024. Capacity = all memory of the device, from "
        "the properties of GPUs; captures of Ascend devices do not tell it. A row without a rank "
        "is the rank with the highest peak.",
        "counters of memory: profile_memory, memory_record, npu_module_mem, NPU MEM",
        Column.parse(
            "Rank, Component:text, Measure:text, Count, Min(B), Mean(B), Peak(B), Last(B), "
            "Peak Timestamp(ns), Capacity(B), Peak of Capacity(%)"
        ),
        _peak_facts,
        _peaks,
        capped=True,
    ),
    Table(
        "memory_curve",
        "Memory over time",
        "Every sample, as the source has it, in bytes.",
        "counters of memory: profile_memory, memory_record, npu_module_mem, NPU MEM",
        Column.parse("Rank, Component:text, Measure:text, Timestamp(ns), Size(B)"),
        _curve_facts,
        capped=True,
    ),
    Table(
        "memory_step",
        "Memory by step",
        "Of each series of memory and step with samples in it: First = value when the step begins "
        "(the last sample before), Peak = largest during the step, First included, Last = at its "
        "end, Growth = Last - First.",
        "counters of memory, and steps",
        Column.parse(
            "Rank, Step, Component:text, Measure:text, First(B), Peak(B), Last(B), Growth(B)"
        ),
        _step_facts,
        capped=True,
    ),
    Table(
        "memory_phase",
        "Memory by phase of a step",
        "Of each series of memory and phase (data loading, forward, backward, optimizer, as in the "
        "table phase) over its ranges with samples in them that are in no other of the phase: "
        "Count = ranges; First = mean value when a range begins; Peak = largest during all; Growth "
        "= mean change during a range.",
        "counters of memory, and ranges named forward, backward, optimizer or DataLoader",
        Column.parse(
            "Rank, Phase:text, Component:text, Measure:text, Count, First(B), Peak(B), Growth(B)"
        ),
        _phase_facts,
    ),
)  # fmt: skip
