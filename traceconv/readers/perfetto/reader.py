"""Perfetto traces in protobuf: TrackEvents and GPU packets of any program; also what we write.

Written by: the Perfetto SDK and programs that use it, rocprofv3 and ``rocpd convert``, rocprof-sys,
xpu_timer, PyTorch's native exporter; by us.
Files: any that are a run of packets, plain or compressed (gzip, zstd), packets inside compressed
too. A file in which several processes work on devices, or threads name several ranks, has one rank
each; a file of ours says which ranks it has. Parts of one output of ours are read together.
Units and clock: ns; the clock is that of the packets (Perfetto's default counts from boot),
converted to Unix time if a snapshot has both. Other clocks are converted by snapshots. Our own
files count from the ``base_ns`` in their attributes, which is added back.
Rank from: our own files; names of threads ("rank 3 compute"); the order of processes; else unknown
(a file name may hold it).
Quirks: packets in any order, state that is lost, descriptors that come late, ends with names -
as Perfetto's importer treats them; see the modules of this family.
Ignored: ftrace, CPU samples, heap profiles, logs and all other data sources (counted; a bundle
holds them next to the ranks).
Source: Perfetto's documentation and schema; formats/hub.md next to the tests' data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import HEAD_BYTES, Source
from traceconv.io.streams import ZSTD

SUFFIXES = (
    *(".pftrace", ".perfetto-trace", ".perfetto", ".proto", ".pb", ".bin", ".trace", ".ptrace"),
)
"""Of files that are looked into, where they are not named themselves; ``.gz``, ``.zst`` may follow.
"""

_PACKED = (".gz", ".zst")


class PerfettoReader:
    """Reads Perfetto traces in protobuf."""

    name = "perfetto"
    title = "Perfetto trace (protobuf), any tool"
    files = "*.pftrace, *.perfetto-trace, *.proto, *.pb, *.bin, plain, .gz or .zst"
    order = 850

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per file, or per rank in a file that has several."""
        lone = len(names) == 1
        candidates = [name for name in sorted(names) if lone or _has_suffix(name)]
        heads = {name: head for name in candidates if _is_trace(head := source.head(name), name)}
        if not heads:
            return []
        from traceconv.readers.perfetto.find import captures

        return captures(source, names, heads, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.perfetto.own_files import Own

        if isinstance(capture.detail, Own):
            from traceconv.readers.perfetto import own

            own.read(capture, build, capture.detail)
        else:
            from traceconv.readers.perfetto import foreign_file

            foreign_file.read(capture, build)

    def passed_on(
        self, source: Source, name: str, shift_ns: int, issues: Issues
    ) -> Iterator[bytes]:
        """Packets of other data sources; see :class:`traceconv.readers.PassesOn`."""
        from traceconv.readers.perfetto.others import passed_on

        return passed_on(source, name, shift_ns, issues)


def _has_suffix(name: str) -> bool:
    low = name.lower()
    for packed in _PACKED:
        low = low.removesuffix(packed)
    return low.endswith(SUFFIXES)


def _is_trace(head: bytes, name: str) -> bool:
    """Whether these are the first bytes of a trace; or of one that cannot be unpacked here."""
    if head[:1] != b"\n":
        return head.startswith(ZSTD) and _has_suffix(name)
    from traceconv.readers.perfetto.find import is_trace

    return is_trace(head, len(head) < HEAD_BYTES, _has_suffix(name))


READER = PerfettoReader()
