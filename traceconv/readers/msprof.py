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
Beside them: tables are sheets; in the detail view the rows of ``op_summary_*.csv`` are arguments of
their slices, and memory is a counter (golden op_summary_slices).
Ignored: databases and raw data (listed as known); the flows ``Data_aug Bound``.
Source: Ascend/msprof, which writes it; test data of mindspore-ai/mindinsight and
Ascend/msinsight. Golden cases: single_export_2023, step_export_slices, not_json.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from traceconv.build import TraceBuilder
from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._ascend_derived import with_derived
from traceconv.readers._ascend_exports import (
    Choice,
    choose,
    is_step_table,
    single_device,
)
from traceconv.readers._ascend_identity import Identity, is_unix
from traceconv.readers._ascend_known import (
    PROF,
    below,
    device_folder,
    folder_around,
    inside,
    is_framework_database,
    is_prof_file,
)
from traceconv.readers._ascend_parts import Detail, Part, Role, joined, read_parts
from traceconv.readers._ascend_places import Place, places
from traceconv.readers._ascend_tables import with_tables
from traceconv.source import Source

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
        from traceconv.readers._ascend_display import host_info_lane
        from traceconv.readers._ascend_sheets import add_sheets

        read_parts(capture, build, {Role.HOST_INFO: host_info_lane})
        add_sheets(capture, build)


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
        from traceconv.readers._ascend_steps import graphs_in

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
