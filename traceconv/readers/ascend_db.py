"""Databases of the Ascend profilers: ``ascend_*_profiler_<rank>.db`` and ``msprof_<time>.db``.

Written by: torch_npu, MindSpore 2.4+, CANN msprof and msMonitor, asked for the export type "db";
samples of 2023-10 to 2025-07.
Files: ``*_ascend_{pt,ms}/ASCEND_PROFILER_OUTPUT/ascend_*_profiler[_<rank>].db``, or ``PROF_*/
msprof_<time>.db``; any SQLite file with their tables, whatever it is called. A ``-wal`` file
beside one is read, too. Where a timeline in JSON lies in the same folder, that is read instead,
unless this reader is asked for by name. ``analysis.db`` and ``communication_analyzer.db`` hold
sums of the same: they are sheets here, and alone they are left to the reader ``ascend_tables``.
Units and clock: integer ns of Unix time; those of the framework as text.
Rank from: name of ``profiler_info_<rank>.json``, ``rank_id`` in it, ``profiler_metadata.json``,
RANK_DEVICE_MAP, name of the database, ``info.json`` of a PROF folder, ``rank<n>`` in a folder
name. A rank of -1 is none.
Quirks: columns are renamed between versions, enumerations of 2023 lie among the strings, in graph
mode one task id runs often (golden two_devices); a framework's shapes and types may be the wrong
way round, marks of the program name tasks of the device (framework); rows without times
(bad_rows). In a cut file, tables are read up to their first missing page.
Ignored: what MindStudio Insight adds (``status_info``, ``connectionCats``, ``depth``); extremes of
PCIe; which operator allocated what; environment variables in META_DATA are never looked at.
Source: the tables' own columns, read by name; CANN's guide to the msprof database.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from traceconv.build import TraceBuilder
from traceconv.clock import Anchor, Domain
from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._ascend_db_find import peeked
from traceconv.readers._ascend_db_places import Place, places
from traceconv.readers._ascend_identity import Identity, collected_at
from traceconv.readers._ascend_parts import Detail, Part, joined
from traceconv.readers._ascend_tables import with_tables
from traceconv.source import Source


class AscendDatabaseReader:
    """Reads the databases of Ascend captures."""

    name = "ascend_db"
    title = "Ascend PyTorch profiler, MindSpore, CANN msprof: databases"
    files = "ascend_{pytorch,mindspore}_profiler_*.db, msprof_*.db"
    order = 115  # after the readers of JSON: they know which databases say the same again

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per rank, its collection windows in the order of time."""
        ordered = sorted(names)
        held = peeked(source, ordered)
        groups: dict[tuple[int | None, str], list[tuple[str, Capture]]] = {}
        for place in places(source, ordered, held, issues):
            identity = Identity(source, issues)
            worker = _identify(identity, place)
            held[place.name].tell(identity, place.name)
            capture = _capture(identity, place)
            same = bool(worker) and (capture.rank is not None or capture.pid >= 0)
            key = (capture.rank, worker if same else f"{place.name}/")
            groups.setdefault(key, []).append((_path(source, place.root), capture))
        captures = [capture for group in groups.values() for capture in _windows(group)]
        return with_tables(captures, ordered)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers._ascend_db_read import read_databases
        from traceconv.readers._ascend_sheets import add_sheets

        read_databases(capture, build)
        add_sheets(capture, build)


def _path(source: Source, root: str) -> str:
    """A folder as a path whose last part is its own name, if that can be known."""
    return root or PurePosixPath(source.label).name


def _identify(identity: Identity, place: Place) -> str:
    """Take in the files around a database; the worker its folder is named after, or ""."""
    identity.prof_files(place.known)
    path = _path(identity.source, place.folder)
    identity.around(place.around, place.alone)
    return identity.folder(path) if place.alone else ""


def _capture(identity: Identity, place: Place) -> Capture:
    source = identity.source
    label = source.title(place.root) if place.root and place.alone else source.title(place.name)
    rank, rank_from = identity.rank(label)
    detail = Detail((Part(place.name),), identity.notes, place.root)
    return Capture(
        reader=READER.name,
        source=source,
        files=detail.files,
        rank=rank,
        rank_from=rank_from,
        known=place.known,
        host=identity.host,
        device=identity.device,
        pid=identity.pid,
        graphs=identity.graphs,
        clock=Anchor(Domain.UNIX, evidence="Unix time stamps"),
        world_size=identity.world_size,
        label=label,
        detail=detail,
    )


def _windows(group: list[tuple[str, Capture]]) -> list[Capture]:
    """Captures of one process joined in the order of time, unless two claim the same time."""
    stamped = sorted(((collected_at(path), c) for path, c in group), key=lambda pair: pair[0])
    times = {time for time, _ in stamped}
    captures = [capture for _, capture in stamped]
    apart = len(times) == len(captures) and "" not in times
    return [joined(captures)] if len(captures) > 1 and apart else captures


READER = AscendDatabaseReader()
