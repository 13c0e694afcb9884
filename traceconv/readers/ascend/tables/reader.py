"""Tables of Ascend captures whose timeline is not there: exported alone, or all that was copied.

Written by: torch_npu, MindSpore 2.4+, CANN msprof and the cluster tools made for them; samples of
2023-09 to 2025-11.
Files: ``ASCEND_PROFILER_OUTPUT/*.csv``, ``communication*.json`` and ``analysis.db``; CANN's
``op_summary_*.csv`` and its like; ``cluster_analysis_output/``. Beside a timeline, the same files
belong to the timeline's capture.
Units and clock: as in the headings; ns of Unix time, or of the host's monotonic clock in 2023.
Rank from: ``profiler_info_<rank>.json`` and the other files that name it beside a timeline.
Quirks: ``kernel_details`` and ``op_summary`` hold the start of every operator, so they are read as
the hardware's streams; level 0 names no stream, then there is one lane per kind of core (golden
kernels_alone). Other tables have no times: their captures have side tables and no events, and do
not stop a merge if their rank is unknown. A table cut in the middle of a row keeps the rows before
it, and gives no figure that needs all of them (golden cut_off); nor does one whose operators
compute for less than the profiler's own table of steps says.
Ignored: nothing of the tables; what they lack (launches, planes) cannot be made up.
Source: the headings themselves; test data of Ascend/msinsight and Ascend/msprof-analyze.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues
from traceconv.core.model import STEP_TABLE, Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import (
    Detail,
    below,
    capture_folder,
    folder_path,
    inside,
    is_capture_file,
)
from traceconv.readers.ascend.common.identity import Identity, describe
from traceconv.readers.ascend.tables.names import CLUSTER, looks_like, with_tables
from traceconv.readers.ascend.tables.side_tables import add_side_tables
from traceconv.readers.shared.sqlite.files import is_sqlite

_KERNELS = "kernel_details"
_UNIX_STAMP = lazy_regex(rb"\b1\d{15}(?=[.\t,])")
"""Microseconds of Unix time among other numbers: 2001 to 2033."""

_OUTPUTS = ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output", "analyze", "summary")


class AscendTablesReader:
    """Reads tables without a timeline in the same folder."""

    name = "ascend_tables"
    title = "Ascend tables without a timeline"
    files = "kernel_details.csv, op_summary_*.csv, communication.json, analysis.db, ..."
    order = 150
    shown = "lanes of operators; the tables below"

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per folder."""
        ordered = sorted(names)
        places: dict[str, list[str]] = {}
        for name in ordered:
            if looks_like(source, name):
                places.setdefault(capture_folder(name, _OUTPUTS), []).append(name)
        alone = len(ordered) == len(source.names())
        captures = [
            _capture(source, ordered, root, tables, alone, issues)
            for root, tables in places.items()
        ]
        return [_with_events(capture) for capture in with_tables(captures, (), issues)]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Offer the tables, and put operators on their streams if they have a time."""
        from traceconv.readers.ascend.tables.kernels import read_kernels, report_missing

        describe(build, capture.detail.notes)
        build.hints.tables_only = True
        tables = add_side_tables(capture, build)
        _report_unread(capture, build)
        side_table = tables.get(_KERNELS)
        if side_table is None:
            return
        build.file = side_table.file
        columns = side_table.read()
        side_table.account(build.issues)
        read_kernels(columns, build)
        report_missing(side_table, tables.get(STEP_TABLE), build)


def _report_unread(capture: Capture, build: TraceBuilder) -> None:
    """Report the tables of databases that are not side tables, such as results of recipes."""
    from traceconv.readers.ascend.db.database_tables import unread_tables
    from traceconv.readers.shared.sqlite.database import opened

    for name in dict.fromkeys(name for files in capture.tables.values() for name in files):
        if is_sqlite(capture.source.head(name, 16)):
            build.file = capture.source.title(name)
            with opened(capture.source, name, salvage=True) as database:
                for table in unread_tables(database.tables):
                    build.skip("kind-not-read", f"table {table}", database.count(table))


def _capture(
    source: Source,
    ordered: Sequence[str],
    root: str,
    tables: Sequence[str],
    alone: bool,
    issues: Issues,
) -> Capture:
    label = source.title(root) if root else source.label
    identity = Identity(source, issues)
    inner = [n for n in below(ordered, root) if is_capture_file(inside(n, root))]
    if PurePosixPath(root).name == CLUSTER:
        inner = []
    _identify(identity, inner, folder_path(source, root))
    detail = Detail((), identity.notes, root)
    capture = identity.capture(READER.name, label, detail, known=(*tables, *inner))
    return replace(capture, optional=not alone)


def _identify(identity: Identity, inner: Sequence[str], folder: str) -> None:
    for name in inner:
        base = PurePosixPath(name).name
        if base.startswith("profiler_info"):
            identity.profiler_info(name)
        elif base == "profiler_metadata.json":
            identity.metadata(name)
    identity.prof_files(inner)
    identity.folder(folder)


def _with_events(capture: Capture) -> Capture:
    """The capture with the tables that are read for events, and their clock."""
    files = tuple(n for n in capture.tables.get(_KERNELS, ()) if n.endswith((".csv", ".csv.gz")))
    clock = None
    if files:
        unix = _UNIX_STAMP.search(capture.source.head(files[0]))
        domain = Domain.UNIX if unix else Domain.MONOTONIC
        clock = Anchor(domain, evidence="stamps of " + PurePosixPath(files[0]).name)
    return replace(
        capture,
        device=capture.device if capture.device >= 0 else _device_of(capture),
        files=files,
        known=tuple(n for n in capture.known if n not in files),
        uses={name: use for name, use in capture.uses.items() if name not in files},
        clock=clock,
        optional=capture.optional or not files,
    )


def _device_of(capture: Capture) -> int:
    """The one device that the first rows of a table name; -1 if they name none, or several."""
    for table in (_KERNELS, "step_trace_time"):
        for name in capture.tables.get(table, ())[:1]:
            lines = capture.source.head(name).decode("utf-8-sig", "replace").splitlines()
            titles, *rows = [[cell.strip() for cell in line.split(",")] for line in lines] or [[]]
            if "Device_id" in titles:  # it precedes every quoted cell
                column = titles.index("Device_id")
                cells = {row[column] for row in rows if len(row) > column}
                devices = [cell for cell in cells if re.fullmatch(r"\d{1,9}", cell)]
                if devices:
                    return int(devices[0]) if len(devices) == 1 else -1
    return -1


READER = AscendTablesReader()
