"""Reading one database of an Ascend capture, table by table."""

from __future__ import annotations

from traceconv.build import TraceBuilder
from traceconv.errors import MalformedInputError
from traceconv.model import Capture, Layer
from traceconv.readers import _ascend_db_host as host
from traceconv.readers import _ascend_db_lanes as lanes
from traceconv.readers._ascend_db_arrows import arrows
from traceconv.readers._ascend_db_comm import Communication
from traceconv.readers._ascend_db_counters import counters
from traceconv.readers._ascend_db_export import Export
from traceconv.readers._ascend_db_framework import operators
from traceconv.readers._ascend_db_tasks import tasks
from traceconv.readers._ascend_parts import Detail, Part
from traceconv.readers._sqlite import Database, opened

_UNREAD = ("SAMPLE_PMU_SUMMARY",)
"""Tables of sums, which lie at no time."""


def read_databases(capture: Capture, build: TraceBuilder) -> None:
    """Read the databases of a capture, its windows, one after the other.

    Raises:
        MalformedInputError: none of them can be read.
    """
    detail: Detail = capture.detail
    build.notes.update(detail.notes)
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
    lanes.steps(export)
    lanes.overlap(export)
    lanes.units(export)
    counters(export)
    for table in _UNREAD:
        sums = database.columns(table, {"deviceId": -1})["deviceId"]
        build.skip("metadata-unused", f"table {table}", len(sums))
    for place in database.damage:
        build.skip("truncated", place if place not in database.tables else f"table {place}")
