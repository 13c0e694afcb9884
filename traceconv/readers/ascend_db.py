"""Databases of the Ascend profilers: ``ascend_*_profiler_<rank>.db`` and ``msprof_<time>.db``.

Written by: torch_npu, MindSpore 2.4+, CANN msprof and msMonitor, asked for the export type "db";
samples of 2023-10 to 2025-07.
Files: ``*_ascend_{pt,ms}/ASCEND_PROFILER_OUTPUT/ascend_*_profiler[_<rank>].db``, or ``PROF_*/
msprof_<time>.db``; any SQLite file with their tables, whatever it is called. A ``-wal`` file
beside one is read, too. Where a timeline in JSON lies in the same folder, that is read instead,
unless this reader is asked for by name. ``analysis.db`` and ``communication_analyzer.db`` hold
sums of the same and are not read.
Units and clock: integer ns of Unix time; those of the framework as text.
Rank from: name of ``profiler_info_<rank>.json``, ``rank_id`` in it, ``profiler_metadata.json``,
RANK_DEVICE_MAP, name of the database, ``info.json`` of a PROF folder, ``rank<n>`` in a folder
name. A rank of -1 is none.
Quirks: columns are renamed between versions; enumerations of 2023 lie among the strings; a
framework's shapes and types may be the wrong way round; in graph mode one task id runs often; in
a cut file the tables are read up to their first missing page.
Ignored: what MindStudio Insight adds (``status_info``, ``connectionCats``, ``depth``); extremes of
PCIE; which operator allocated what; environment variables in META_DATA are never looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from traceconv.build import TraceBuilder
from traceconv.clock import Anchor, Domain
from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._ascend_db_find import Held, is_named, peeked
from traceconv.readers._ascend_db_read import read_databases
from traceconv.readers._ascend_identity import Identity, collected_at
from traceconv.readers._ascend_known import (
    PROF,
    below,
    derived_rank,
    folder_around,
    inside,
    is_capture_file,
    is_capture_folder,
    is_framework_database,
    is_prof_file,
    starting,
)
from traceconv.readers._ascend_parts import Detail, Part, joined
from traceconv.source import Source


class AscendDatabaseReader:
    """Reads the databases of Ascend captures."""

    name = "ascend_db"
    title = "Ascend PyTorch profiler, MindSpore, CANN msprof: database export"
    files = "ascend_{pytorch,mindspore}_profiler_*.db, msprof_*.db"
    order = 115  # after the readers of JSON, which know what of a folder is the same again

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per rank, its collection windows in the order of time."""
        ordered = sorted(names)
        held = peeked(source, ordered)
        chosen = _chosen(source, held, issues)
        crowd = Counter(chosen.values())
        found: list[Capture] = []
        taken: set[str] = set(chosen)
        for name, root in chosen.items():
            alone = crowd[root] == 1
            known = _known(ordered, held, name, root) if alone else _beside(ordered, name)
            known = [n for n in known if n not in taken]
            taken.update(known)
            found.append(_capture(source, name, root, held[name], known, alone, issues))
        for name in held:
            if not held[name].events and name not in taken:
                issues.add("unused-file", source.title(name))
        return _joined_windows(source, found)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        read_databases(capture, build)


def _chosen(source: Source, held: Mapping[str, Held], issues: Issues) -> dict[str, str]:
    """The databases to read, with the folder of each one's capture.

    A framework's database holds what the collector's of the same folder does; of several exports
    of one collection, the newest is read.
    """
    events = {name: _root(name) for name, what in held.items() if what.events}
    whole = {root for name, root in events.items() if is_framework_database(name)}
    newest: dict[str, str] = {}
    chosen = {}
    for name, root in events.items():
        if is_framework_database(name) or not is_named(name):
            chosen[name] = root
        elif root in whole or folder_around(root) in whole and PROF.fullmatch(_last(root)):
            issues.add("repeated-content", source.title(name))
        elif older := newest.get(root):
            issues.add("superseded-export", source.title(older))
            del chosen[older]
        if name not in chosen and (root in newest or not newest.get(root)):
            continue
    return chosen


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _root(name: str) -> str:
    """The folder of the capture a database belongs to."""
    parts = PurePosixPath(name).parts[:-1]
    for i in range(len(parts), 0, -1):
        if PROF.fullmatch(parts[i - 1]):
            return "/".join(parts[:i])
    if parts and parts[-1] in ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output"):
        parts = parts[:-1]
    return "/".join(parts)
