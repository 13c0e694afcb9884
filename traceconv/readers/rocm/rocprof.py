"""ROCm profilers: databases (rocpd), JSON and CSV tables of rocprofv3 and rocprof-sys.

Written by: ``rocprofv3`` and ``rocpd`` of ROCm 6.2 to 7 (schemas 3 and 4 of their databases),
            ``rocprof-sys``, ``rocprof`` and ``rocprofv2`` (tables of kernels); seen: rocprofv3's
            JSON of a training rank, the rest by its schema.
Files:      ``<pid>_results.db``, ``rocpd.db``, databases of several processes (merged, or a folder
            ``*.rpdb``); ``<pid>_results.json``; ``<pid>_*_trace.csv``, ``out_*.csv``. What is side
            by side of one process is read once, from the first of these that is there.
Units and clock: integer ns since the host booted; hosts have nothing in common.
Rank from:  ``RANK`` and similar variables in the environment that a database holds, "rank<n>" in
            the path; else the order of hosts and process numbers, with an issue.
            Several GPUs of one process are devices of one rank.
Quirks:     neighbours on a queue overlap by some hundred ns (golden case rocprofv3); a call that
            launches a graph has many kernels; copies that kernels carry out are copies; several
            values of a counter for one kernel are its instances, added up; a CSV of kernels names
            no process, and its devices count processors, too (csv_set); the text of a marker is in
            either of two places (schema_4).
Ignored:    code objects, addresses, call stacks, and of environments all but ranks. Tables of sums
            (``*_stats.csv``).
Source:     the tables' own columns, read by name; rocprofiler-sdk in ROCm/rocm-systems.
"""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source


class RocprofReader:
    """Reads what rocprofv3 and rocprof-sys write."""

    name = "rocprof"
    title = "ROCm: rocprofv3, rocpd, rocprof-sys, rocprof"
    files = "*_results.db, rocpd.db, *_results.json, *_trace.csv, tables of rocprof"
    order = 310
    unverified = "rocprofv3 JSON of calls, copies, allocations and counters"

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per process, from the best file there is of it."""
        from traceconv.readers.rocm.captures import captures

        return captures(source, names, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event of one process into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.rocm.captures import read_process

        build.hints.free_rule = "device"
        read_process(capture, build)


READER = RocprofReader()
