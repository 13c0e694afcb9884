"""Reading the databases of an Ascend capture."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I32, Capture
from traceconv.readers.ascend.common.capture_files import Detail, Part
from traceconv.readers.ascend.common.identity import describe
from traceconv.readers.ascend.db import event_tables as tables
from traceconv.readers.ascend.db import host
from traceconv.readers.ascend.db.counters import GAUGES, add_counters
from traceconv.readers.ascend.db.device import communication, tasks
from traceconv.readers.ascend.db.export import Export
from traceconv.readers.ascend.tables.names import SUMS
from traceconv.readers.shared.ascend_lanes import OVERLAP_LANES
from traceconv.readers.shared.layouts import add_rows
from traceconv.readers.shared.sqlite.database import Database, opened


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
        try:
            with opened(capture.source, part.name, salvage=True) as database:
                _read(database, build, part)
        except MalformedInputError as e:
            failures.append(e)
            build.skip("malformed-record", str(e)[:200])
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
    operations = communication(export, of_device)
    calls, operators, markers = host.calls(export), host.operators(export), host.markers(export)
    host.flows(export, of_device, operations, calls, operators, markers)
    for layout in (tables.SYSTEM_CALLS, tables.GARBAGE):
        add_rows(build, layout, export.threads(layout))
    rows = export.rows(tables.STEPS)
    step: I32 = np.where(rows["step"] < 2**31, rows["step"], -1).astype(np.int32)
    rows.columns["step"] = step.astype(np.int64)
    add_rows(export.build, tables.STEPS, rows, step=step)
    _add_overlap(export)
    for layout in tables.UNITS:
        rows = export.rows(layout)
        rows.label("group", ("device",), export.of_device)
        add_rows(build, layout, rows)
    add_counters(export)
    for table in tables.TOTALS:
        build.skip("metadata-unused", f"table {table}", database.count(table))
    for table in unread_tables(database.tables):
        build.skip("kind-not-read", f"table {table}", database.count(table))
    for damaged in database.damaged_places():
        build.skip("truncated", damaged)


def unread_tables(names: Iterable[str]) -> list[str]:
    """The tables of a database that this reader does not know."""
    known_tables = {layout.table for layout in tables.EVENTS} | {gauge.table for gauge in GAUGES}
    known_tables |= {
        *tables.BESIDE,
        *tables.DESCRIBING,
        *tables.TOTALS,
        *tables.VIEWER,
        *tables.CLUSTER,
    }
    known_tables |= {table for table, _ in SUMS.values()}  # of side tables
    prefixes = ("ENUM_", "sqlite_", "_")  # "_": older tables that a viewer kept
    return [name for name in names if name not in known_tables and not name.startswith(prefixes)]


def _add_overlap(export: Export) -> None:
    rows = export.rows(tables.OVERLAP)
    is_known = (rows["type"] >= 0) & (rows["type"] < len(OVERLAP_LANES))
    export.build.skip("kind-not-read", rows.where, int((~is_known).sum()))
    rows = rows.take(is_known)
    rows.label("group", ("device",), export.of_device)
    rows.identity["type"] = {
        i: {"sort": sort} for i, (sort, _) in enumerate(OVERLAP_LANES.values())
    }
    add_rows(export.build, tables.OVERLAP, rows)
