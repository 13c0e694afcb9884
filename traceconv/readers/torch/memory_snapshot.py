"""PyTorch's memory snapshots: what its allocator held, and what it did before.

Written by: ``torch.cuda.memory._dump_snapshot`` of PyTorch 2.0 and newer, also of Ascend's adapter;
            compared with public snapshots of training runs.
Files:      a pickle of any name. It is read by a machine that makes plain values and nothing else
            (:mod:`traceconv.readers.torch.plain_pickle`).
Units and clock: us, Unix time, bytes. Records of PyTorch 2.0 and 2.1 have no times: they are shown
            in their order.
Rank from:  "rank<n>" in the path; the dump does not name it. A device is a number of the process.
Quirks:     the log is a ring: it lacks the beginning. So curves are computed backwards from what
            was held at the dump (golden case training); where log and state disagree they are kept
            above zero, which is counted. Frames are shared between records. By default they are
            of C++, too, and every stack begins with the allocator's own (:mod:`.memory_log`).
Ignored:    compile contexts, settings, categories; the folders of files in frames, C++ frames other
            than operators and autograd nodes, and frames beyond the twelve innermost.
Source:     torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/_memory_viz.py of pytorch/pytorch.
"""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.readers.shared.lines import capture_of_file

_SCANNED_BYTES = 64 << 20
_SIGNS = (
    (b"segments", b"total_size"),
    (b"device_traces", b"action"),
    (b"segments", b"device_traces"),
)


class MemorySnapshotReader:
    """Reads memory snapshots of PyTorch."""

    name = "memory_snapshot"
    title = "PyTorch memory snapshot"
    files = "*.pickle, *.pkl (torch.cuda.memory._dump_snapshot)"
    order = 331

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per snapshot."""
        return [
            capture_of_file(self.name, source, name, _clock(source, name))
            for name in names
            if (head := source.head(name)).startswith(b"\x80")
            and any(all(word in head for word in words) for words in _SIGNS)
        ]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put the log and its curves into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.torch.memory_log import read_snapshot

        build.hints.supplement = True
        read_snapshot(capture, build)


def _clock(source: Source, name: str) -> Anchor:
    """That of the stamps, which a file has unless all of it can be seen to have none."""
    if source.size(name) > _SCANNED_BYTES or b"time_us" in source.head(name, _SCANNED_BYTES):
        return Anchor(Domain.UNIX, evidence="Unix time stamps")
    return Anchor(Domain.RELATIVE, evidence="the order of the records, which have no times")


READER = MemorySnapshotReader()
