"""RPD: the databases of rocmProfileData, which were called rocpd before ROCm's own.

Written by: ``runTracer.sh`` and ``rpd`` of ROCm/rocmProfileData; seen: schema 2.
Files:      ``*.rpd``, any name: SQLite with ``rocpd_api`` and ``rocpd_op``.
Units and clock: integer ns since the host booted.
Rank from:  "rank<n>" in the path, else the order of process numbers, with an issue. Every process
            of a file is a capture.
Quirks:     operations name no process: they are that of the call they belong to (golden case
            two_processes). Sizes of copies are beside the calls. Values of monitors are text.
Ignored:    code objects, signals, arguments of calls but for user marks.
Source:     the tables' own columns, read by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.readers.shared.sqlite.files import is_sqlite

if TYPE_CHECKING:
    from traceconv.readers.shared.sqlite.database import Database

_SIGNS = ("rocpd_api", "rocpd_op")


class RpdReader:
    """Reads RPD databases."""

    name = "rpd"
    title = "ROCm: rocmProfileData (RPD)"
    files = "*.rpd"
    order = 312

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per process of every database."""
        from traceconv.readers.shared.sqlite.database import opened

        captures: list[Capture] = []
        for name in names:
            if not is_sqlite(source.head(name, 16)):
                continue
            try:
                with opened(source, name, salvage=True) as database:
                    if set(_SIGNS) <= database.tables.keys():
                        captures += _captures(source, name, database)
            except MalformedInputError:
                continue  # another reader may know better; if none does, it is an unknown file
        return captures

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event of one process into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.rocm.rpd_tables import Reading
        from traceconv.readers.shared.sqlite.database import opened

        build.file = capture.source.title(capture.files[0])
        build.hints.free_rule = "device"
        with opened(capture.source, capture.files[0], salvage=True) as database:
            Reading(build, database, capture.pid, capture.detail).read()
            for damaged in database.damaged_places():
                build.skip("truncated", damaged)


def _captures(source: Source, name: str, database: Database) -> list[Capture]:
    from traceconv.readers.shared.lines import capture_of_file

    pids = [pid for pid in database.distinct("rocpd_api", "pid") if pid >= 0] or [-1]
    alone = len(pids) == 1
    clock = Anchor(Domain.MONOTONIC, evidence="ns since the host booted")
    capture = capture_of_file(RpdReader.name, source, name, clock)
    if not alone:
        capture = replace(capture, rank=None, rank_from="")
    return [
        replace(
            capture,
            pid=pid,
            label=capture.label if alone else f"{capture.label} (process {pid})",
            detail=i == 0,  # whether operations of no process are its
        )
        for i, pid in enumerate(pids)
    ]


READER = RpdReader()
