"""``trace_view.json``: the timeline the Ascend profilers of PyTorch and MindSpore 2.4+ export.

Written by: torch_npu and MindSpore through CANN's msprof; samples of 2024-01 and 2025-01.
Files: ``<worker>_<time>_ascend_pt`` or ``_ascend_ms`` with ``ASCEND_PROFILER_OUTPUT/
trace_view.json``; beside it ``profiler_info[_<rank>].json`` and ``profiler_metadata.json``. Only
the timeline is needed. The folders of one rank are its collection windows.
Units and clock: us as text with three digits, Unix time.
Rank from: name of ``profiler_info_<rank>.json``, ``rank_id`` in it, ``profiler_metadata.json``,
name of the database, ``info.json`` of a PROF folder, ``rank<n>`` in a folder name.
Quirks: hardware, communication and framework layers carry pids of three encodings; planes of all
groups are called alike; at level 0 the runtime layer is gone and its flows stay.
Tables in the same folder are side tables; in the detail view the rows of ``kernel_details.csv`` are
arguments of their slices, and memory is a counter (golden with_tables).
Ignored: databases and raw data of the same folder (listed as known); environment variables in
``profiler_metadata.json`` are never copied.
Source: Ascend/pytorch and Ascend/msprof, which write it; test data of Ascend/msinsight and
Ascend/msprof-analyze. Golden cases: level0, cut_off, rank_twice, with_tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import (
    Detail,
    Part,
    below,
    capture_folder,
    folder_path,
    inside,
    is_capture_file,
    is_empty,
)
from traceconv.readers.ascend.common.identity import (
    Identity,
    has_unix_stamps,
)
from traceconv.readers.ascend.tables.names import with_tables
from traceconv.readers.ascend.tables.side_tables import add_side_tables

_NAMES = ("trace_view.json", "trace_view.json.gz")


class TraceViewReader:
    """Reads ``trace_view.json``, alone or in its folder."""

    name = "trace_view"
    title = "Ascend PyTorch profiler, MindSpore 2.4+"
    files = "*_ascend_{pt,ms}/ASCEND_PROFILER_OUTPUT/trace_view.json"
    order = 100

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per folder."""
        ordered = sorted(names)
        captures: list[Capture] = []
        for name in ordered:
            if PurePosixPath(name).name in _NAMES:
                root = capture_folder(name, ("ASCEND_PROFILER_OUTPUT",))
                captures += self._capture(source, ordered, root, name, issues)
        return with_tables(captures, ordered, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.ascend.common.reading import read_parts

        read_parts(capture, build)
        add_side_tables(capture, build)

    def _capture(
        self, source: Source, ordered: Sequence[str], root: str, name: str, issues: Issues
    ) -> list[Capture]:
        """The capture of one folder; none if a database is read instead."""
        inner = [n for n in below(ordered, root) if n != name and is_capture_file(inside(n, root))]
        if is_empty(source, name) and any(n.endswith(".db") and source.size(n) for n in inner):
            issues.add("empty-file", source.title(name))
            return []
        label = source.title(root) if root else source.label
        identity = Identity(source, issues)
        _identify(identity, inner, root, folder_path(source, root))
        capture = identity.capture(
            self.name,
            label,
            Detail((Part(name),), notes=identity.notes),
            files=(name,),
            known=inner,
            graphs=identity.graphs,
            clock=identity.clock(has_unix_stamps(source.head(name), otherwise=True)),
        )
        return [capture]


def _identify(identity: Identity, inner: Sequence[str], root: str, path: str) -> None:
    for name in inner:
        relative = inside(name, root)
        if relative.startswith("profiler_info"):
            identity.profiler_info(name)
        elif relative == "profiler_metadata.json":
            identity.metadata(name)
        elif relative.endswith(".db"):
            identity.database(name)
    identity.prof_files(inner)
    identity.folder(path)


READER = TraceViewReader()
