"""Memory figures of tables as counters, if the timeline has no memory counters.

The tracks are those of the databases of the same profilers: "Memory" with one lane per component
and figure, "NPU Module Mem" with one per module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import numpy as np

from traceconv.core.errors import TraceconvError
from traceconv.core.model import (
    F64,
    I32,
    CounterTable,
    Layer,
    Trace,
    Track,
    TrackKind,
    arranged,
)
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns, SideTable

_SIZE = lazy_regex(r"\((KB|MB)\)")
_DEVICES = ("Device Type", "Device", "Device_id")
_TOTALS = ("Total Allocated", "Total Reserved", "Total Active")


class _Series(msgspec.Struct, frozen=True):
    """Figures of a table that are samples.

    Attributes:
        side_table: the table; of one group, the first that exists is taken.
        group:   heading of the lanes.
        kind:    of the lanes.
        time:    the heading of the instants.
        figures: headings, without their unit, and how the names of their lanes end.
        fixed:   the component, where the table has none.
    """

    side_table: str
    group: str
    kind: TrackKind
    time: str
    figures: tuple[tuple[str, str], ...]
    fixed: str = ""


def _allocator(when: str) -> _Series:
    figures = tuple((f"{when} {total}", f"/{total}") for total in _TOTALS)
    return _Series(
        "operator_memory", "Memory", TrackKind.ALLOCATOR, f"{when} Time(ns)", figures, "PTA"
    )


_SERIES = (
    _Series(
        "memory_record",
        "Memory",
        TrackKind.ALLOCATOR,
        "Timestamp(ns)",
        tuple((t, f"/{t}") for t in _TOTALS),
    ),
    _allocator("Allocation"),
    _allocator("Release"),
    _Series(
        "npu_module_mem",
        "NPU Module Mem",
        TrackKind.MODULE_MEMORY,
        "Timestamp(ns)",
        (("Total Reserved", ""),),
    ),
)

SOURCES = frozenset(series.side_table for series in _SERIES)
"""The tables whose figures become counters."""


def side_table_counters(trace: Trace) -> Trace:
    """The trace with counters from its tables; booked under "tables".

    Samples without a time are booked as issues; a table that cannot be read only loses its own.
    """
    for side_table, series_of_table in _tables_to_add(trace):
        issues = trace.issues.copy()
        trace = replace(trace, issues=issues)
        try:
            columns = side_table.read()
        except TraceconvError as e:
            issues.add("malformed-record", side_table.file, str(e)[:200])
            continue
        side_table.account(issues)
        for series in series_of_table:
            time = None if series.fixed else columns.get(series.time)
            late = 0 if time is None else int(np.count_nonzero(time == ABSENT))
            heading = side_table.headings.get(series.time, series.time)
            issues.add("bad-time", side_table.file, f"column {heading}", late)
            trace = _with_samples(trace, columns, series)
    return trace


def _tables_to_add(trace: Trace) -> Iterator[tuple[SideTable, list[_Series]]]:
    """The tables to look at: those whose lanes are not there yet, one per group of lanes."""
    present = {track.kind for track in trace.tracks if track.is_counter}
    table_by_kind: dict[TrackKind, str] = {}
    for series in _SERIES:
        if series.side_table in trace.side_tables and series.kind not in present:
            table_by_kind.setdefault(series.kind, series.side_table)
    for kind, name in table_by_kind.items():
        yield (
            trace.side_tables[name],
            [s for s in _SERIES if (s.side_table, s.kind) == (name, kind)],
        )


def _with_samples(trace: Trace, columns: Columns, series: _Series) -> Trace:
    time = columns.get(series.time)
    if time is None or time.dtype != np.int64:
        return trace
    names, of_row = _names(columns, series)
    tracks = list(trace.tracks)
    tables = [trace.counters]
    for heading, ending in series.figures:
        figure = _figure(columns, heading)
        if figure is None:
            continue
        values, unit = figure
        sound = ~np.isnan(values) & (values >= 0) & (time != ABSENT)
        first_track = len(tracks)
        tracks += [
            Track(
                Layer.COUNTER,
                component + ending,
                f"NPU {device} {series.group}" if device >= 0 else series.group,
                "Counters",
                unit=unit,
                kind=series.kind,
                device=device,
                device_kind="NPU",
            )
            for device, component in names
        ]
        track = (of_row[sound] + first_track).astype(np.int32)
        tables.append(CounterTable(track=track, start_ns=time[sound], value=values[sound]))
    grown = CounterTable.concat(tables)
    used = set(np.unique(grown.track).tolist()) | set(range(len(trace.tracks)))
    number = np.cumsum([i in used for i in range(len(tracks))], dtype=np.int32) - np.int32(1)
    grown = grown.with_columns(track=number[grown.track]) if len(grown) else grown
    shown = tuple(track for i, track in enumerate(tracks) if i in used)
    return arranged(trace.evolve("tables", tracks=shown, counters=grown))


def _figure(columns: Columns, figure: str) -> tuple[F64, str] | None:
    """A column of sizes in MB, whatever unit its heading names; None if it does not exist."""
    for heading, column in columns.items():
        match = _SIZE.search(heading)
        if match and heading.startswith(figure) and column.dtype != object:
            absent = column == ABSENT if column.dtype == np.int64 else np.isnan(column)
            values = np.where(absent, np.nan, column.astype(np.float64))
            return (values / 1024 if match[1] == "KB" else values), "MB"
    return None


def _names(columns: Columns, series: _Series) -> tuple[list[tuple[int, str]], I32]:
    """Device (-1: the only one) and component of the lanes, and of every row which it is on."""
    rows = len(columns[series.time])
    device = next((columns[h] for h in _DEVICES if h in columns), np.full(rows, "", object))
    devices = [_number(str(d)) for d in device.tolist()]
    several = len(set(devices)) > 1
    empty = np.full(rows, series.fixed, object)
    components = [str(c) for c in columns.get("Component", empty).tolist()]
    pairs = list(zip(devices if several else [-1] * rows, components, strict=True))
    numbers = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    return list(numbers), np.array([numbers[pair] for pair in pairs], np.int32)


def _number(device: str) -> int:
    """The number of a device: 0 for "NPU:0" and for "0"; -1 without a number."""
    digits = re.search(r"\d{1,9}\Z", device)
    return int(digits[0]) if digits else -1
