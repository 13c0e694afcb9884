"""msprof timelines: what CANN exports from a ``PROF_*`` folder.

Written by: CANN msprof, directly or through MindSpore up to 2.3; samples of 2023-08 (single
export, one set of files per iteration).
Files: ``PROF_*/mindstudio_profiler_output/msprof_<time>.json`` or its slices
``msprof_slice_<n>_<time>.json``, with ``step_trace_<time>.{json,csv}``; or ``PROF_*/device_<d>/
timeline/{msprof,step_trace,hccl,task_time}_<device>_<model>_<iteration>.json``. Identity from
``info.json[.<d>]``, clock from ``start_info[.<d>]`` beside them. Any JSON file whose first bytes
name Ascend's processes is read too, whatever it is called.
Units and clock: us; in 2023 as numbers of the host's monotonic clock, later as text of Unix time.
Rank from: ``profiler_info_<rank>.json`` around it, ``rank_id`` of ``info.json`` (-1 is none).
Quirks: the step trace of the whole run is repeated in every iteration's file and once more inside
``msprof_*``; ``hccl_*`` and ``task_time_*`` repeat what ``msprof_*`` holds; the graph of a device
task stands in the file name only.
Beside them: tables are side tables; in the detail view the rows of ``op_summary_*.csv`` are arguments of
their slices, and memory is a counter (golden op_summary_slices).
Ignored: databases and raw data (listed as known); the flows ``Data_aug Bound``.
Source: Ascend/msprof, which writes it; test data of mindspore-ai/mindinsight and
Ascend/msinsight. Golden cases: single_export_2023, step_export_slices, not_json.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.io.sources import Source
from traceconv.readers.ascend.common.exports import (
    Choice,
    choose,
    is_step_table,
    is_timeline,
    single_device,
)
from traceconv.readers.ascend.common.file_names import (
    PROF,
    below,
    derived_rank,
    device_folder,
    folder_around,
    inside,
    is_capture_file,
    is_capture_folder,
    is_framework_database,
    is_prof_file,
    starting,
)
from traceconv.readers.ascend.common.identity import Identity, is_unix
from traceconv.readers.ascend.common.parts import (
    Detail,
    Part,
    Role,
    is_empty,
    joined,
    read_parts,
    tied_to_unix_time,
)
from traceconv.readers.ascend.tables.names import with_tables

# Files the frameworks lay beside a rank's PROF folder.
#
# What they derived from it shows the same run again, so it belongs to the capture of the PROF
# folder; only the host's side holds more, and is read along where its clock is known: its records,
# or the timeline made of them.

_REPEATED = re.compile(r"(?:ascend_)?timeline_display_\d+\.json")
_HOST = re.compile(r"host_info/(?:(host_info_\d+\.csv)|timeline_\d+\.json)")
_UNUSED = re.compile(
    r"gpu_timeline_display_\d+\.json|FRAMEWORK/.*|host_info/(?:host_info_\d+\.csv|timeline_.*)"
)


def with_derived(
    captures: Sequence[Capture], ordered: Sequence[str], issues: Issues
) -> list[Capture]:
    """The captures with the files that MindSpore derived from them.

    A derived file goes to the capture of its rank in the same folder; one without a rank in its
    name to the first capture there.
    """
    owners: dict[tuple[str, int], int] = {}
    for i, capture in enumerate(captures):
        folder = folder_around(capture.detail.root)
        if folder is not None:
            owners.setdefault((folder, -1), i)
            if capture.rank is not None:
                owners.setdefault((folder, capture.rank), i)
    found = list(captures)
    for folder in dict.fromkeys(folder for folder, _ in owners):
        for name in below(ordered, folder):
            rank = _rank_beside(inside(name, folder), folder)
            owner = None if rank is None else owners.get((folder, rank))
            if owner is not None and name not in found[owner].known:
                found[owner] = _with(found[owner], name, inside(name, folder), issues)
    return found


def _rank_beside(relative: str, folder: str) -> int | None:
    """The rank a file beside PROF folders belongs to: -1 for any there, None if to none."""
    if not is_capture_folder(folder):
        return derived_rank(relative)
    return -1 if is_capture_file(relative) and not PROF.match(relative) else None


def _with(capture: Capture, name: str, relative: str, issues: Issues) -> Capture:
    host = _HOST.fullmatch(relative)
    if host is not None and tied_to_unix_time(capture.clock):
        if any(part.role is Role.HOST_RECORDS for part in capture.detail.parts) or (
            host[1] and is_empty(capture.source, name)
        ):
            return replace(capture, known=(*capture.known, name))  # the other one is read
        part = Part(name, Role.HOST_RECORDS if host[1] else Role.HOST_INFO)
        detail = replace(capture.detail, parts=(*capture.detail.parts, part))
        return replace(capture, files=detail.files, detail=detail)
    for code, pattern in (("repeated-content", _REPEATED), ("unused-file", _UNUSED)):
        if pattern.fullmatch(relative):
            issues.add(code, capture.source.title(name))
    return replace(capture, known=(*capture.known, name))


# Where CANN's exports lie: PROF folders, and what stands for one if only a part is given.


@dataclass(frozen=True)
class Place:
    """One folder with exports.

    Attributes:
        root:    the PROF folder, or what stands for it.
        device:  of single exports; -1 for the devices of a joint one.
        exports: the timelines.
        around:  files beside the folder that may tell whose it is.
        alone:   whether they can speak of nothing else, as no other PROF folder lies there.
    """

    root: str
    device: int
    exports: tuple[str, ...]
    around: tuple[str, ...]
    alone: bool


def places(ordered: Sequence[str]) -> list[Place]:
    """Timelines by folder and device; a joint export takes the single ones along."""
    found: dict[tuple[str, int], list[str]] = {}
    for name in ordered:
        if is_timeline(name):
            found.setdefault((_root(name), single_device(name)), []).append(name)
    joint = {root for root, device in found if device < 0}
    merged: dict[tuple[str, int], list[str]] = {}
    for (root, device), names in found.items():
        merged.setdefault((root, -1 if root in joint else device), []).extend(names)
    crowds = Counter(folder_around(root) for root, _ in merged)
    found_places = []
    for (root, device), names in merged.items():
        folder = folder_around(root)
        alone = crowds[folder] == 1 or is_capture_folder(folder or "")
        around = _files_in(ordered, folder)
        found_places.append(Place(root, device, tuple(names), around, alone))
    return found_places


def _files_in(ordered: Sequence[str], folder: str | None) -> tuple[str, ...]:
    """The files of a folder that holds PROF folders that may tell whose these are."""
    if folder is None:
        return ()
    wanted = ("profiler_info", "profiler_metadata.json", "ASCEND_PROFILER_OUTPUT/ascend_")
    prefix = f"{folder}/" if folder else ""
    return tuple(n for start in wanted for n in starting(ordered, prefix + start))


def _root(name: str) -> str:
    """The folder an export belongs to: the PROF folder, or what stands for it."""
    parts = PurePosixPath(name).parts[:-1]
    for i in range(len(parts), 0, -1):
        if PROF.fullmatch(parts[i - 1]):
            return "/".join(parts[:i])
    if parts and parts[-1] == "mindstudio_profiler_output":
        parts = parts[:-1]
    elif len(parts) > 1 and parts[-1] == "timeline" and parts[-2].startswith("device_"):
        parts = parts[:-2]
    return "/".join(parts)


_PROCESS = rb'"args"\s*:\s*\{[^{}]*"name"\s*:\s*"'
_LAYERS = rb"(?:Ascend Hardware|Overlap Analysis|CANN|HCCL|Step Trace|CPU OP|Scope Layer)"
_HEAD = re.compile(_PROCESS + _LAYERS + rb'(?: Rank ?\d+)?"')
_RANKED = re.compile(_PROCESS + _LAYERS + rb' Rank ?(\d+)"')
_OTHERS = re.compile(r"(?:.*/)?(?:PROF_[^/]*/.*|host_info/.*|[^/]*timeline_display_[^/]*)")


class MsprofReader:
    """Reads the timelines of PROF folders, and lone files that look like them."""

    name = "msprof"
    title = "CANN msprof timeline"
    files = "PROF_*/**/msprof_*.json with step_trace_*, hccl_*, task_time_*"
    order = 110

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per rank and device; several PROF folders of one process are joined."""
        ordered = sorted(names)
        found = [
            capture
            for place in places(ordered)
            for capture in _in_folder(source, ordered, place, issues)
        ]
        found = _joined_windows(with_derived(found, ordered, issues))
        taken = {name for c in found for name in (*c.files, *c.known)}
        rest = [n for n in ordered if n not in taken and not _OTHERS.fullmatch(n)]
        found += [capture for name in rest for capture in _lone(source, name)]
        return with_tables(found, ordered)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.ascend.common.display import host_info_lane
        from traceconv.readers.ascend.tables.offer import add_side_tables

        read_parts(capture, build, {Role.HOST_INFO: host_info_lane})
        add_side_tables(capture, build)


def _in_folder(
    source: Source, ordered: Sequence[str], place: Place, issues: Issues
) -> list[Capture]:
    """The capture of one place; none if a framework's database beside it, which holds all of it
    and more, stands for it.
    """
    root, device = place.root, place.device
    if any(is_framework_database(n) and source.size(n) for n in place.around):
        return []
    inner = [n for n in below(ordered, root) if is_prof_file(inside(n, root))]
    inner = [n for n in inner if device in (-1, device_folder(inside(n, root), device))]
    tables = [n for n in inner if is_step_table(n) and single_device(n) in (-1, device)]
    choice = choose(source, [*place.exports, *tables])
    if not choice.parts:
        return []
    _book(choice, source, issues, source.title(root) if root else source.label)
    identity = Identity(source, issues)
    _identify(identity, place, inner)
    return [_capture(identity, choice, root, device, inner)]


def _capture(
    identity: Identity, choice: Choice, root: str, device: int, inner: Sequence[str]
) -> Capture:
    source = identity.source
    label = source.title(root) if root else source.label
    rank, rank_from = identity.rank(label)
    graphs = {p.graph for p in choice.parts if p.graph >= 0} | set(identity.graphs)
    for table in choice.tables:
        from traceconv.readers.ascend.common.step_table import graphs_in

        graphs |= graphs_in(source, table, identity.issues)
    head = source.head(
        next((p for p in choice.parts if p.role is Role.EVENTS), choice.parts[0]).name
    )
    detail = Detail(tuple(choice.parts), identity.notes, root)
    left = [*inner, *choice.repeated, *choice.superseded, *choice.empty]
    return Capture(
        reader=READER.name,
        source=source,
        files=detail.files,
        rank=rank,
        rank_from=rank_from,
        known=tuple(n for n in dict.fromkeys(left) if n not in detail.files),
        host=identity.host,
        device=identity.device if device < 0 else device,
        pid=identity.pid,
        graphs=tuple(sorted(graphs)),
        clock=identity.clock(is_unix(head, otherwise=not choice.single)),
        world_size=identity.world_size,
        label=label,
        detail=detail,
    )


def _book(choice: Choice, source: Source, issues: Issues, label: str) -> None:
    for code, names in (
        ("repeated-content", choice.repeated),
        ("superseded-export", choice.superseded),
        ("empty-file", choice.empty),
        ("part-missing", choice.missing),
    ):
        for name in names:
            issues.add(code, label, name)


def _identify(identity: Identity, place: Place, inner: Sequence[str]) -> None:
    """The collector's own files first: they say which of several ``profiler_info_*`` is meant."""
    identity.prof_files(inner, place.device)
    root = place.root or PurePosixPath(identity.source.label).name
    identity.folder(root.rpartition("/")[0] or root)
    identity.around(place.around, place.alone)


def _joined_windows(captures: Sequence[Capture]) -> list[Capture]:
    """PROF folders side by side that one process filled one after the other, as one capture."""
    groups: dict[object, list[Capture]] = {}
    for capture in captures:
        root = capture.detail.root
        whose = (folder_around(root), capture.rank, capture.host, capture.pid, capture.device)
        single = capture.rank is None or capture.pid < 0 or not PROF.fullmatch(_last(root))
        groups.setdefault((root, capture.device) if single else whose, []).append(capture)
    done: list[Capture] = []
    for group in groups.values():
        group.sort(key=lambda c: _collected_at(c.detail.root))
        apart = len({_collected_at(c.detail.root) for c in group}) == len(group)
        done += [joined(group)] if len(group) > 1 and apart else group
    return done


def _last(root: str) -> str:
    return root.rpartition("/")[2]


def _collected_at(root: str) -> str:
    return _last(root).split("_")[2] if PROF.fullmatch(_last(root)) else ""


def _lone(source: Source, name: str) -> list[Capture]:
    """The captures of a file that only its first bytes show to be msprof's; none if they do not.

    A file that an older viewer merged holds several ranks. Our own output may name the same
    processes, and is left to the reader of Chrome JSON.
    """
    head = source.head(name) if name.endswith((".json", ".json.gz")) else b""
    if not _HEAD.search(head) or b'"traceconv"' in head:
        return []
    clock = Identity(source, Issues()).clock(is_unix(head, otherwise=True))
    ranks = _ranks_within(source, name) if _RANKED.search(head) else []
    whose: list[tuple[int | None, tuple[int, ...] | None]] = [(None, None)]
    if ranks:
        whose = [(rank, (rank, -1) if rank == ranks[0] else (rank,)) for rank in ranks]
    return [
        Capture(
            reader=READER.name,
            source=source,
            files=(name,),
            rank=rank,
            rank_from="" if rank is None else "process names",
            clock=clock,
            label=source.title(name),
            detail=Detail((Part(name),), {"vendor": "ascend"}, ranks=lanes),
        )
        for rank, lanes in whose
    ]


def _ranks_within(source: Source, name: str) -> list[int]:
    """All ranks named by the processes of a merged file."""
    found: set[int] = set()
    with source.open(name) as stream:
        kept = b""
        while block := stream.read(1 << 20):
            found.update(map(int, _RANKED.findall(kept + block)))
            kept = block[-256:]
    return sorted(found)


READER = MsprofReader()
