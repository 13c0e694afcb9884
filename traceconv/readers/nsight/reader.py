"""Nsight Systems: the SQLite export of a report.

Written by: ``nsys export --type sqlite``; seen: 2022.2 (schema 2.9) to 2026.2 (schema 3.25).
Files:      one ``.sqlite`` per report; several processes in it are several ranks. A report without
            its export is exported for the run, if there is nsys (:mod:`.export`).
Units and clock: integer ns since the session started; ``utcEpochNs`` ties them to Unix time.
            With ``--ts-normalize`` they are Unix time already.
Rank from:  MPI_RANKS, "MPI Rank n" thread names, MPI_COMMUNICATORS and the rank variables of a
            lone process, NCCL's communicators, one process per device, the file name; see
            :mod:`traceconv.readers.nsight.processes`.
Quirks:     tables are created only where there is data; NVTX names are in ``text`` or, through
            ``textId``, in StringIds; runtime calls are repeated as backtrace rows (class 67)
            (two_processes). What PyTorch writes behind the name of an operator becomes arguments;
            payloads of NCCL say size and communicator, through the launch also of its kernels;
            GPU metrics are counters of every process that uses the GPU; waits are shown beside the
            calls, as PyTorch's do, not on the stream they wait for (training).
            Errors and warnings of the profiler itself are issues of the first process. Rows that
            name no process are given to one or counted (unnamed_rows). Records of the scheduler may
            be of all processes of the machine: those that ran where a thread of the rank waited
            are lanes of it (other_processes).
Ignored:    what no table of :mod:`.tables` describes: CPU samples, profiler overhead, CUDA events,
            page faults; its rows are counted by the name of their table. And, on
            purpose, everything about users: environment, command lines, paths, standard output
            (of other processes the first word of the name is read).
Source:     the tables' own columns, read by name; NVIDIA's schema reference (:mod:`.tables`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues, MalformedInputError, SourceError
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.readers.shared.sqlite.files import is_sqlite

if TYPE_CHECKING:
    from traceconv.readers.nsight.processes import Process
    from traceconv.readers.shared.sqlite.database import Database

REPORTS = (".nsys-rep", ".qdrep")
"""Extensions of reports; a report may stay next to its export."""

_SIGNS = ("TARGET_INFO_SESSION_START_TIME", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS")


class NsightReader:
    """Reads SQLite exports of Nsight Systems, and reports where there is nsys to export them.

    Args:
        nsys: name or path of nsys; None for the one on the path, if any.
    """

    name = "nsight"
    title = "Nsight Systems, SQLite export"
    files = "*.sqlite (nsys export --type sqlite); *.nsys-rep, *.qdrep where there is nsys"
    order = 300

    def __init__(self, nsys: str | None = None) -> None:
        self._nsys = nsys

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per process with GPU work in every export; reports without one are exported.

        Raises:
            OptionError: the nsys that is named is no program.
            Issues: unread-file.
        """
        listed: list[Capture] = []
        closed = {name: None for name in names if name.lower().endswith(REPORTS)}
        for name in names:
            if is_sqlite(source.head(name, 16)):
                beside = [str(PurePosixPath(name).with_suffix(suffix)) for suffix in REPORTS]
                reports = tuple(report for report in beside if report in closed)
                captures = self._captures(source, name, reports)
                listed += captures
                for report in reports if captures else ():
                    del closed[report]
        return listed + self._exported(source, tuple(closed), issues)

    def _exported(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """The captures of reports without an export."""
        from traceconv.readers.nsight.export import exported, program

        nsys = program(self._nsys) if names or self._nsys else None
        listed: list[Capture] = []
        for name in names if nsys is not None else ():
            title = source.title(name)
            try:
                captures = self._captures(exported(source, name, str(nsys)), name, ())
            except SourceError as e:
                issues.add("unread-file", title, str(e).removeprefix(f"{title}: "))
                continue
            if not captures:
                issues.add("unread-file", title, "its export has no process with work of a GPU")
            listed += captures
        return listed

    def _captures(self, source: Source, name: str, reports: tuple[str, ...]) -> list[Capture]:
        from traceconv.readers.nsight.processes import processes
        from traceconv.readers.shared.sqlite.database import opened

        try:
            with opened(source, name, salvage=True) as database:
                if "StringIds" not in database.tables or not set(_SIGNS) & set(database.tables):
                    return []
                return [_capture(source, name, database, p, reports) for p in processes(database)]
        except MalformedInputError:
            return []  # another reader may know better; if none does, it is an unknown file

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Every event of one process."""
        from traceconv.readers.nsight import graph_nodes
        from traceconv.readers.nsight.collectives import issued, sizes_of
        from traceconv.readers.nsight.nvtx import nvtx
        from traceconv.readers.nsight.report import Report
        from traceconv.readers.nsight.scheduling import scheduling
        from traceconv.readers.shared.graph_nodes import TABLE
        from traceconv.readers.shared.sqlite.database import opened

        process: Process = capture.detail
        build.file = capture.source.title(capture.files[0])
        build.hints.free_rule = "device"
        with opened(capture.source, capture.files[0], salvage=True) as database:
            report = Report(database, build, process)
            report.runtime()
            ranges = nvtx(report)
            report.kernels(issued(ranges, build.strings), sizes_of(ranges))
            report.work()
            report.library_calls()
            scheduling(report)
            report.gpu_memory()
            report.memory()
            report.metrics()
            report.network()
            report.launched.draw(build)
            report.diagnostics()
            report.rest()
            for damaged in database.damaged_places():
                build.skip("truncated", damaged)
            if graph_nodes.TABLE in database.tables:
                load = partial(graph_nodes.nodes, capture)
                build.side_table(TABLE, build.file, load)


def _capture(
    source: Source, name: str, database: Database, process: Process, reports: tuple[str, ...]
) -> Capture:
    rows = database.rows("TARGET_INFO_SYSTEM_ENV", "name", "value")
    hosts = [str(value) for name, value in rows if name == "Hostname" and value]
    return Capture(
        reader=NsightReader.name,
        source=source,
        files=(name,),
        known=reports,
        rank=process.rank,
        rank_from=process.rank_from,
        device=process.device,
        pid=process.pid,
        traits={"host": hosts[0]} if hosts else {},
        clock=_clock(database),
        label=source.title(name) + (f" (process {process.pid})" if process.pid >= 0 else ""),
        detail=process,
    )


def _clock(database: Database) -> Anchor | None:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        for key, value in database.rows(table, "name", "value"):
            if key == "EXPORT_PARAM_TIME_NORMALIZE" and str(value).lower() == "true":
                return Anchor(Domain.UNIX, evidence=key)
    for (start,) in database.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
        if isinstance(start, int):
            return Anchor(Domain.RELATIVE, 0, start, "utcEpochNs")
    return None


READER = NsightReader()
