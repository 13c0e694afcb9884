"""Reading one database of an Ascend capture, table by table."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.readers.ascend.common.identity import describe
from traceconv.readers.ascend.common.parts import Detail, Part
from traceconv.readers.ascend.db import host
from traceconv.readers.ascend.db.arrows import arrows
from traceconv.readers.ascend.db.communication import Communication
from traceconv.readers.ascend.db.export import TIMES, Export
from traceconv.readers.ascend.db.gauges import GAUGES, Gauge, Series, dies
from traceconv.readers.ascend.db.host import operators
from traceconv.readers.ascend.db.tasks import tasks
from traceconv.readers.shared.ascend_lanes import step_lane
from traceconv.readers.shared.ascend_operators import OVERLAP_LANES
from traceconv.readers.shared.codes import combined, factored, shared, text, tracks
from traceconv.readers.shared.sqlite.database import Database, opened

# Lanes that the export derived itself: steps and overlap; and units beside the streams.

_INT32_MAX = 2**31 - 1

_UNITS = (
    ("CCU", "CCU", {"deviceId": -1, "name": -1}),
    ("DPU_TASK", "DPU", {"dpuDeviceId": -1, "opName": -1}),
)
"""Table, title of its lane, its columns of device and name."""


def steps(export: Export) -> None:
    """The steps of the framework, called as in its own marks."""
    wanted = {**TIMES, "id": -1}
    rows, dur = export.timed(export.database.columns("STEP_TIME", wanted), "STEP_TIME")
    if not len(dur):
        return
    step = np.where((rows["id"] >= 0) & (rows["id"] <= _INT32_MAX), rows["id"], -1)
    values, codes = factored(step)
    names = [f"ProfilerStep#{s}" if s >= 0 else "ProfilerStep" for s in values.tolist()]
    export.build.extend(
        track=export.build.add_track(step_lane(-1).track),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=np.array([export.build.string(n) for n in names], np.int32)[codes],
        op=OpClass.ITERATION,
        step=step.astype(np.int32),
    )


def overlap(export: Export) -> None:
    """The overlap analysis that newer exporters, and viewers, leave in the database."""
    table = "OVERLAP_ANALYSIS"
    rows = export.database.columns(table, {**TIMES, "deviceId": -1, "type": -1})
    lanes = list(OVERLAP_LANES.items())
    known = (rows["type"] >= 0) & (rows["type"] < len(lanes))
    export.build.skip("kind-not-read", f"table {table}", int((~known).sum()))
    rows, dur = export.timed({name: column[known] for name, column in rows.items()}, table)

    def lane(device: int, kind: int) -> int:
        name, (sort, _) = lanes[kind]
        group = export.device(device)
        return export.build.track(Layer.OVERLAP, name, group, "Overlap Analysis", sort)

    names = np.array([export.build.string(name) for name, _ in lanes], np.int32)
    classes = np.array([op for _, (_, op) in lanes], np.int8)
    export.build.extend(
        track=tracks((rows["deviceId"], rows["type"]), lane),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=names[rows["type"]],
        op=classes[rows["type"]],
    )


def units(export: Export) -> None:
    """What units beside the streams did."""
    for table, title, columns in _UNITS:
        wanted = {**TIMES, **columns, "args": -1}
        rows, dur = export.timed(export.database.columns(table, wanted), table)
        device, name = (rows[column] for column in columns)

        def lane(number: int, title: str = title) -> int:
            return export.build.track(Layer.DEVICE, title, export.device(number), title)

        export.build.extend(
            track=tracks((device,), lane),
            start_ns=rows["startNs"],
            dur_ns=dur,
            name=export.names(name, table),
            args=shared(export.build, {"args": (rows["args"], text(export.strings))}),
        )


# Counters of a database, as the table of gauges describes them.


def counters(export: Export) -> None:
    """Read all counter tables. A NULL is no sample; a sample without a time is booked."""
    for gauge in GAUGES:
        columns = export.database.tables.get(gauge.table, ())
        series = [s for s in gauge.series if s.column in columns]
        if series:
            _read_series(export, gauge, series)


def _read_series(export: Export, gauge: Gauge, series: list[Series]) -> None:
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


_UNREAD = ("SAMPLE_PMU_SUMMARY",)
"""Tables of sums, which lie at no time."""


def read_databases(capture: Capture, build: TraceBuilder) -> None:
    """Read the databases of a capture, its windows, one after the other.

    Raises:
        MalformedInputError: none of them can be read.
    """
    detail: Detail = capture.detail
    describe(build, detail.notes)
    parts = [part for part in detail.parts if part.name in set(capture.files)]
    failures: list[MalformedInputError] = []
    for part in parts:
        build.file = capture.source.title(part.name)
        before = build.rows
        try:
            with opened(capture.source, part.name, salvage=True) as database:
                _read(database, build, part)
        except MalformedInputError as e:
            failures.append(e)
            build.skip("malformed-record", str(e)[:200])
            continue
        span = build.span(before, (Layer.DEVICE, Layer.COMM)) or build.span(before)
        if span and part.window:
            build.window(*span)
    if failures and len(failures) == len(parts):
        raise failures[0]


def _read(database: Database, build: TraceBuilder, part: Part) -> None:
    if "STRING_IDS" not in database.tables and not (database.damage and database.tables):
        raise MalformedInputError(
            database.title, "", "it has no table of strings; was the profiler stopped before "
            "it had written everything, or the copy cut? If there is a -wal file, copy it too",
        )  # fmt: skip
    base = part.name.rpartition("/")[2]
    export = Export(database, build, "MindSpore" if "mindspore" in base else "Python")
    of_device = tasks(export)
    communication = Communication(export, of_device)
    operations = communication.operations()
    communication.parts()
    calls, rows, marks = host.calls(export), operators(export), host.marks(export)
    arrows(export, of_device, operations, calls, rows, marks)
    host.others(export)
    steps(export)
    overlap(export)
    units(export)
    counters(export)
    for table in _UNREAD:
        sums = database.columns(table, {"deviceId": -1})["deviceId"]
        build.skip("metadata-unused", f"table {table}", len(sums))
    for place in database.damage:
        build.skip("truncated", place if place not in database.tables else f"table {place}")
