"""Tables of counters by step: clocks, power and temperature; networks and links."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from traceconv.analysis.tables.definition import NOTHING, Column, Table, texts
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import F64, I64
from traceconv.core.model import Trace, Track, TrackKind
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
)
