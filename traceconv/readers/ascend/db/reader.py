"""Databases of the Ascend profilers: ``ascend_*_profiler_<rank>.db`` and ``msprof_<time>.db``.

Written by: torch_npu, MindSpore 2.4+, CANN msprof and msMonitor, asked for the export type "db";
samples of 2023-10 to 2025-07.
Files: ``*_ascend_{pt,ms}/ASCEND_PROFILER_OUTPUT/ascend_*_profiler[_<rank>].db``, or ``PROF_*/
msprof_<time>.db``; any SQLite file with their tables, whatever it is called. A ``-wal`` file
beside one is read, too. Where a timeline in JSON is in the same folder, that is read instead,
unless this reader is selected by name. ``analysis.db`` and ``communication_analyzer.db`` hold
sums of the same: they are side tables here; alone they are left to the reader ``ascend_tables``.
Units and clock: integer ns of Unix time; those of the framework as text.
Rank from: name of ``profiler_info_<rank>.json``, ``rank_id`` in it, ``profiler_metadata.json``,
RANK_DEVICE_MAP, name of the database, ``info.json`` of a PROF folder, ``rank<n>`` in a folder
name. A rank of -1 is none.
Quirks: columns are renamed between versions, enumerations of 2023 are among the strings, in graph
mode one task id runs often (golden two_devices); a framework's shapes and types may be the wrong
way round, marks of the program name tasks of the device (framework); rows without times
(bad_rows). In a cut file, tables are read up to their first missing page.
Ignored: what MindStudio Insight adds (``status_info``, ``connectionCats``, ``depth``); extremes of
PCIe; which operator allocated what; environment variables in META_DATA are never looked at.
Source: the tables' own columns, read by name; CANN's guide to the msprof database.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues, MalformedInputError, SourceError
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import (
    PROF,
    Detail,
    Part,
    below,
    capture_folder,
    files_in,
    folder_around,
    folder_path,
    inside,
    is_capture_file,
    is_framework_database,
    is_prof_file,
)
from traceconv.readers.ascend.common.identity import Identity, Trust
from traceconv.readers.ascend.tables.names import with_tables
from traceconv.readers.ascend.tables.side_tables import add_side_tables
from traceconv.readers.shared.sqlite.files import is_sqlite

if TYPE_CHECKING:
    from traceconv.readers.shared.sqlite.database import Database


# -- databases, and what they hold ------------------------------------------------------------

_NAMED = lazy_regex(r"(?:ascend_[a-z]+_profiler(?:_\d+)?|msprof_\d+|msmonitor_[\d_]+)\.db")
_OTHER_KINDS = (
    ".json", ".csv", ".txt", ".gz", ".log", ".done", ".pftrace", ".xlsx", ".html", ".md", ".py",
    "-wal", "-shm",
)  # fmt: skip
_SIGNS = frozenset(
    (
        "TASK", "CANN_API", "COMMUNICATION_OP", "COMPUTE_TASK_INFO", "PYTORCH_API", "MSTX_EVENTS",
        "SESSION_TIME_INFO", "STEP_TIME", "NPU_INFO",
    )
)  # fmt: skip
_SUMS = frozenset(
    ("StepTraceTime", "CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix")
)
_OUTPUTS = ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output")
_METADATA = ("distributed_args", "parallel_group_info")
"""Keys of META_DATA that are read; its environment variables never are."""


class Held(msgspec.Struct, frozen=True):
    """The content of a database.

    Attributes:
        events:  whether events; else sums made from them.
        ranks:   of RANK_DEVICE_MAP, without -1.
        devices: of the same.
        host:    name of the host.
        metadata: JSON values of META_DATA, by name.
    """

    events: bool
    ranks: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    host: str = ""
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def identify(self, identity: Identity, name: str) -> None:
        """Add rank, device and host of the database and its name."""
        if len(self.ranks) == 1:
            identity.claim(Trust.DATABASE, self.ranks[0], "RANK_DEVICE_MAP")
        identity.database(name)
        identity.distributed(self.metadata, "META_DATA")
        identity.host = identity.host or self.host
        if identity.device < 0 and len(self.devices) == 1:
            identity.device = self.devices[0]


def is_named(name: str) -> bool:
    """Whether a file is called like a database with events."""
    return _NAMED.fullmatch(PurePosixPath(name).name) is not None


def peeked(source: Source, names: Iterable[str]) -> dict[str, Held]:
    """The databases of Ascend captures among ``names``.

    A file with the right name is one even if it cannot be opened: reading it reports why.
    """
    held_by_name = {}
    for name in names:
        if is_named(name) or not name.endswith(_OTHER_KINDS):
            held = _peek(source, name)
            if held is not None:
                held_by_name[name] = held
    return held_by_name


def _peek(source: Source, name: str) -> Held | None:
    if not is_sqlite(source.head(name, 16)):
        return Held(events=True) if is_named(name) and source.size(name) else None
    from traceconv.readers.shared.sqlite.database import opened

    try:
        with opened(source, name, salvage=True) as database:
            return _contents(database) or (Held(events=True) if is_named(name) else None)
    except (MalformedInputError, SourceError):
        return Held(events=True) if is_named(name) else None


def _contents(database: Database) -> Held | None:
    if "STRING_IDS" not in database.tables or not _SIGNS & set(database.tables):
        return Held(events=False) if _SUMS & set(database.tables) else None
    devices = database.rows("RANK_DEVICE_MAP", "rankId", "deviceId")
    hosts = [h for (h,) in database.rows("HOST_INFO", "hostName") if isinstance(h, str)]
    return Held(
        events=True,
        ranks=_numbers(rank for rank, _ in devices),
        devices=_numbers(device for _, device in devices),
        host=hosts[0] if len(hosts) == 1 and not set(hosts[0]) & set("/\\") else "",
        metadata={
            name: value
            for name, stored in database.rows("META_DATA", "name", "value")
            if name in _METADATA and (value := _parsed(stored)) is not None
        },
    )


def _numbers(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(sorted({v for v in values if isinstance(v, int) and v >= 0}))


def _parsed(stored: Any) -> Any:
    try:
        return json.loads(stored) if isinstance(stored, str) else None
    except (ValueError, RecursionError):
        return None


# -- which are read, and which files belong to each ---------------------------------------------


class Place(msgspec.Struct, frozen=True):
    """One database to read.

    Attributes:
        root:   the folder of its capture.
        folder: the one whose name may hold worker and rank.
        known:  the capture's other files.
        around: files that may name its rank.
        alone:  whether no other database is there, so that they are about this one.
    """

    name: str
    root: str
    folder: str
    known: tuple[str, ...]
    around: tuple[str, ...]
    alone: bool


def places(
    source: Source, ordered: Sequence[str], held: Mapping[str, Held], issues: Issues
) -> Iterator[Place]:
    """The databases to read; those that repeat others are reported."""
    chosen = _chosen(source, held, issues)
    folders = {}
    for name, root in chosen.items():  # the folder that carries names is around that of CANN
        around = folder_around(root)
        inside_prof = around is not None and PROF.fullmatch(root.rpartition("/")[2])
        folders[name] = around if around is not None and inside_prof else root
    roots, per_folder = Counter(chosen.values()), Counter(folders.values())
    for name, root in chosen.items():
        is_alone = roots[root] == 1
        others = _other_files(ordered, held, name, root) if is_alone else []
        others += [n for n in (f"{name}-wal", f"{name}-shm") if n in ordered and n not in others]
        yield Place(
            name=name,
            root=root,
            folder=folders[name],
            known=tuple(n for n in others if n not in chosen),
            around=files_in(ordered, folders[name], "profiler_info", "profiler_metadata.json"),
            alone=is_alone and per_folder[folders[name]] == 1,
        )


def _chosen(source: Source, held: Mapping[str, Held], issues: Issues) -> dict[str, str]:
    """The databases to read, with the folder of each one's capture.

    A framework's database holds what the collector's of the same folder does; of several exports
    of one collection, the newest is read.
    """
    events = {
        name: capture_folder(name, _OUTPUTS) for name, contents in held.items() if contents.events
    }
    with_framework = {root for name, root in events.items() if is_framework_database(name)}
    newest: dict[PurePosixPath, str] = {}
    for name, root in list(events.items()):
        path = PurePosixPath(name)
        if is_framework_database(name) or not path.name.startswith("msprof_"):
            continue
        if root in with_framework:
            issues.add("repeated-content", source.title(name))
            del events[name]
        elif older := newest.get(path.parent):
            issues.add("superseded-export", source.title(older))
            del events[older]
        newest[path.parent] = name
    return events


def _other_files(
    ordered: Sequence[str], held: Mapping[str, Held], name: str, root: str
) -> list[str]:
    """The other files of a capture, including databases with sums."""
    files = []
    for other in below(ordered, root):
        relative = inside(other, root)
        sums = other in held and not held[other].events and capture_folder(other, _OUTPUTS) == root
        if other != name and (sums or is_capture_file(relative) or is_prof_file(relative)):
            files.append(other)
    return files


class AscendDatabaseReader:
    """Reads the databases of Ascend captures."""

    name = "ascend_db"
    title = "Ascend PyTorch profiler, MindSpore, CANN msprof: databases"
    files = "ascend_{pytorch,mindspore}_profiler_*.db, msprof_*.db"
    order = 115  # after the readers of JSON: they know which databases repeat their files

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per folder, or per database that is alone."""
        ordered = sorted(names)
        held = peeked(source, ordered)
        captures = []
        for place in places(source, ordered, held, issues):
            identity = Identity(source, issues)
            identity.prof_files(place.known)
            identity.around(place.around, place.alone)
            if place.alone:
                identity.folder(folder_path(source, place.folder))
            held[place.name].identify(identity, place.name)
            captures.append(_capture(identity, place))
        return with_tables(captures, ordered, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.ascend.db.database_tables import read_databases

        read_databases(capture, build)
        add_side_tables(capture, build)


def _capture(identity: Identity, place: Place) -> Capture:
    source = identity.source
    label = source.title(place.root) if place.root and place.alone else source.title(place.name)
    return identity.capture(
        READER.name,
        label,
        Detail((Part(place.name),), identity.notes, place.root),
        files=(place.name,),
        known=place.known,
        clock=Anchor(Domain.UNIX, evidence="Unix time stamps"),
    )


READER = AscendDatabaseReader()
