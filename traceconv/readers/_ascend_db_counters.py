"""Counters of a database, as the table of gauges describes them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from traceconv.model import Layer
from traceconv.readers._ascend_db_codes import combined, factored
from traceconv.readers._ascend_db_export import Export
from traceconv.readers._ascend_db_gauges import GAUGES, Gauge, Series, dies


def counters(export: Export) -> None:
    """Read all counter tables. A NULL is no sample; a sample without a time is booked."""
    for gauge in GAUGES:
        columns = export.database.tables.get(gauge.table, ())
        series = [s for s in gauge.series if s.column in columns]
        if series:
            _read(export, gauge, series)


def _read(export: Export, gauge: Gauge, series: list[Series]) -> None:
    wanted: dict[str, int | float] = {gauge.time: -1, "deviceId": -1}
    wanted |= dict.fromkeys((name for name, _ in gauge.ids), -1)
    wanted |= dict.fromkeys((s.column for s in series), math.nan)
    rows = export.database.columns(gauge.table, wanted)
    time, place = rows[gauge.time.split("|")[0]], f"table {gauge.table}"
    if gauge.unless and _has_rows(export, gauge.unless):
        export.build.skip("repeated-content", place, int((time >= 0).sum()))
        return
    codes, table = combined(rows["deviceId"], *(rows[name] for name, _ in gauge.ids))
    names = list(_names(export, gauge, table))
    for one in series:
        value = rows[one.column] * one.factor
        there = ~np.isnan(value)
        late = there & (time < 0)
        export.build.seen("counter", int(there.sum()))
        export.build.skip("bad-time", place, int(late.sum()), "counter")
        kept = there & ~late
        used, of_row = factored(codes[kept])
        tracks = [_track(export, one, *names[code]) for code in used.tolist()]
        if tracks:
            track = np.array(tracks, np.int32)[of_row]
            export.build.counters(track=track, start_ns=time[kept], value=value[kept])


def _track(export: Export, series: Series, group: str, spelled: list[str]) -> int:
    name = series.name.format(*spelled)
    return export.build.track(Layer.COUNTER, name, group, "Counters", unit=series.unit)


def _names(
    export: Export, gauge: Gauge, table: list[tuple[int, ...]]
) -> Iterator[tuple[str, list[str]]]:
    """Group and spelled ids of every combination."""
    strings = export.enum(gauge.enum, {}) if gauge.enum else export.strings
    spells = [spell for _, spell in gauge.ids]
    lone = [len({row[i + 1] for row in table}) < 2 for i in range(len(spells))]
    for device, *ids in table:
        spelled = [
            "" if spell is dies and alone else spell(value, strings)
            for spell, value, alone in zip(spells, ids, lone, strict=True)
        ]
        yield f"{export.device(device)} {gauge.group}".strip(), spelled


def _has_rows(export: Export, table: str) -> bool:
    return len(export.database.columns(table, {"deviceId": -1})["deviceId"]) > 0
