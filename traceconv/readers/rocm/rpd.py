"""RPD: the databases of rocmProfileData, which were called rocpd before ROCm's own.

Written by: ``runTracer.sh`` and ``rpd`` of ROCm/rocmProfileData; seen: schema 2.
Files:      ``*.rpd``, any name: SQLite with ``rocpd_api`` and ``rocpd_op``.
Units and clock: integer ns since the host booted.
Rank from:  "rank<n>" in the path, else the order of process numbers, with an issue. Every process
            of a file is a capture.
Quirks:     operations name no process: they are that of the call they belong to (golden case
            two_processes). Sizes of copies are beside the calls. Values of monitors are text. In a
            file that was merged of several nodes, the numbers of processes and GPUs are those of
            their node plus a multiple of the strides that ``rocpd_metadata`` states.
Ignored:    code objects, signals, arguments of calls but for user marks.
Source:     the tables' own columns, read by name; for strides the views of rocmProfileData's
            ``utilitySchema.cmd``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Capture
from traceconv.core.patterns import natural
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
            Reading(build, database, capture.detail).read()
            for damaged in database.damaged_places():
                build.skip("truncated", damaged)


def _captures(source: Source, name: str, database: Database) -> list[Capture]:
    from traceconv.readers.rocm.process import RpdProcess
    from traceconv.readers.shared.lines import capture_of_file

    pids = [pid for pid in database.distinct("rocpd_api", "pid") if pid >= 0] or [-1]
    stated = dict(database.rows("rocpd_metadata", "tag", "value"))
    pid_stride, gpu_stride = (
        max(natural(str(stated.get(tag, ""))), 0) for tag in ("pid_stride", "gpu_stride")
    )
    nodes = [pid // pid_stride if pid_stride else 0 for pid in pids]
    several = len(set(nodes)) > 1
    clock = Anchor(Domain.MONOTONIC, evidence="ns since the host booted")
    capture = capture_of_file(RpdReader.name, source, name, clock)
    if len(pids) > 1:
        capture = replace(capture, rank=None, rank_from="")
    captures = []
    for i, (pid, node) in enumerate(zip(pids, nodes, strict=True)):
        number = pid - node * pid_stride
        process = f" (process {number}" + (f" of node {node})" if several else ")")
        strides = (pid_stride, gpu_stride) if several else (0, 0)
        own = RpdProcess(pid, i == 0, nodes.index(node) == i, node, *strides)
        captures.append(
            replace(
                capture,
                pid=number,
                host=f"node {node}" if several else capture.host,
                label=capture.label + process * (len(pids) > 1),
                detail=own,
            )
        )
    return captures


READER = RpdReader()
