"""NCCL Inspector: the log of every collective that NCCL's own profiler plugin writes.

Written by: the inspector plugin of NCCL; formats v4.0 to v4.4 and v5.0 by their description, no
            file of a real run was at hand.
Files:      JSON lines, one process per file, any name (``.log``, ``.jsonl``, also gzipped).
Units and clock: us, Unix time. With verbose output the kernels of every channel are timed; without
            it only the length of an operation and the time of the dump are known.
Rank from:  ``header.rank`` of the largest communicator: the rank in a smaller one is another.
Quirks:     from v4.4 on a ``dump_stats`` line heads the operations behind it, which then have no
            ``header`` of their own; ``coll_stop_ts`` is when the call returned, not when the
            operation ended; the times of kernels may be absent (golden case ``untimed``).
Ignored:    proxy traces; sequence numbers of callbacks.
Source:     ext-profiler/inspector in https://github.com/NVIDIA/nccl
"""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source

_SIGNS = (b'"coll_perf"', b'"p2p_perf"', b'"dump_stats"')


class NcclInspectorReader:
    """Reads logs of the NCCL Inspector."""

    name = "nccl_inspector"
    title = "NCCL Inspector"
    files = "*.log, *.jsonl (JSON lines with coll_perf)"
    order = 320

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per process in every log."""
        processes: list[Capture] = []
        for name in names:
            head = source.head(name).lstrip(b"\xef\xbb\xbf \r\n")
            if head.startswith(b"{") and b'"header"' in head and any(s in head for s in _SIGNS):
                from traceconv.readers.torch.nccl_inspector_lines import captures

                processes += captures(source, name, issues)
        return processes

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Every operation of one process; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.torch.nccl_inspector_lines import read_process

        build.hints.supplement = True
        read_process(capture, build)


READER = NcclInspectorReader()
