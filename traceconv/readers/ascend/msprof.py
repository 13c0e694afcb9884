"""msprof timelines: what CANN exports from a ``PROF_*`` folder.

Written by: CANN msprof, directly or through MindSpore up to 2.3; samples of 2023-08 (single
export, one set of files per iteration).
Files: ``PROF_*/mindstudio_profiler_output/msprof_<time>.json`` or its slices
``msprof_slice_<n>_<time>.json``, with ``step_trace_<time>.{json,csv}``; or ``PROF_*/device_<d>/
timeline/{msprof,step_trace,hccl,task_time}_<device>_<model>_<iteration>.json``. Identity from
``info.json[.<d>]``, clock from ``start_info[.<d>]`` beside them. Any JSON file whose first bytes
name Ascend's processes is read too, whatever it is called.
Units and clock: us; in 2023 as numbers of the host's monotonic clock, later as text of Unix time.
Rank from: ``profiler_info_<rank>.json`` around it, ``rank_id`` of ``info.json`` (-1: unknown).
Quirks: the step trace of the whole run is repeated in every iteration's file and once more inside
``msprof_*``; ``hccl_*`` and ``task_time_*`` repeat what ``msprof_*`` holds; the graph of a device
task is in the file name only (golden single_export_2023).
Tables in the same folder are side tables; in the detail view the rows of ``op_summary_*.csv`` are
arguments of their slices, and memory is a counter (golden op_summary_slices).
Ignored: databases and raw data (listed as known); the flows ``Data_aug Bound``.
Source: Ascend/msprof, which writes it; test data of mindspore-ai/mindinsight and
Ascend/msinsight. Golden cases: single_export_2023, step_export_slices, not_json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import EVERY_GRAPH, NO_GRAPH, Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import (
    PROF,
    Detail,
    Part,
    Role,
    below,
    derived_rank,
    device_folder,
    files_in,
    folder_around,
    folder_path,
    inside,
    is_capture_file,
    is_capture_folder,
    is_empty,
    is_framework_database,
    is_prof_file,
    last_run,
    prof_folder,
    tied_to_unix_time,
)
from traceconv.readers.ascend.common.identity import Identity, has_unix_stamps
from traceconv.readers.ascend.tables.names import with_tables
from traceconv.readers.ascend.tables.side_tables import add_side_tables

# -- files that MindSpore writes beside a rank's PROF folder -----------------------------------
_REPEATED = lazy_regex(r"(?:ascend_)?timeline_display_\d+\.json")
_HOST = lazy_regex(r"host_info/(?:(host_info_\d+\.csv)|timeline_\d+\.json)")
_UNUSED = lazy_regex(
    r"gpu_timeline_display_\d+\.json|FRAMEWORK/.*|host_info/(?:host_info_\d+\.csv|timeline_.*)"
)


def with_derived(
    captures: Sequence[Capture], ordered: Sequence[str], issues: Issues
) -> list[Capture]:
    """The captures with the files that MindSpore derived from them.

    They show the run of the PROF folder again, so they are known files of its capture. Only the
    host's side has more: its records, or the timeline made of them, are read along where the
    clock is known.

    A derived file belongs to the capture of its rank in the same folder; one without a rank in
    its name to the first capture there.
    """
    owners: dict[tuple[str, int], int] = {}
    for i, capture in enumerate(captures):
        folder = folder_around(capture.detail.root)
        if folder is not None:
            owners.setdefault((folder, -1), i)
            if capture.rank is not None:
                owners.setdefault((folder, capture.rank), i)
    with_files = list(captures)
    for folder in dict.fromkeys(folder for folder, _ in owners):
        for name in below(ordered, folder):
            relative = inside(name, folder)
            if not is_capture_folder(folder):
                rank = derived_rank(relative)
            else:  # the files there belong to any
                is_own = is_capture_file(relative) and not PROF.match(relative)
                rank = -1 if is_own else None
            owner = None if rank is None else owners.get((folder, rank))
            if owner is not None and name not in with_files[owner].known:
                with_files[owner] = _with(with_files[owner], name, relative, issues)
    return with_files


def _with(capture: Capture, name: str, relative: str, issues: Issues) -> Capture:
    host = _HOST.fullmatch(relative)
    if host is not None and tied_to_unix_time(capture.clock):
        if any(part.role is Role.HOST_RECORDS for part in capture.detail.parts) or (
            host[1] and is_empty(capture.source, name)
        ):
            return replace(capture, known=(*capture.known, name))  # the other one is read
        part = Part(name, Role.HOST_RECORDS if host[1] else Role.HOST_INFO)
        detail = msgspec.structs.replace(capture.detail, parts=(*capture.detail.parts, part))
        return replace(capture, files=detail.files, detail=detail)
    for code, pattern in (("repeated-content", _REPEATED), ("unused-file", _UNUSED)):
        if pattern.fullmatch(relative):
            issues.add(code, capture.source.title(name))
    return replace(capture, known=(*capture.known, name))


# -- folders with exports ---------------------------------------------------------------------


class Place(msgspec.Struct, frozen=True):
    """One folder with exports.

    Attributes:
        root:    the PROF folder; of copied files the folder that takes its place.
        device:  of single exports; -1 for the devices of a joint one.
        exports: the timelines.
        around:  files beside the folder that may name its rank.
        alone:   whether no other PROF folder is there, so that they are about this one.
    """

    root: str
    device: int
    exports: tuple[str, ...]
    around: tuple[str, ...]
    alone: bool


_AROUND = ("profiler_info", "profiler_metadata.json", "ASCEND_PROFILER_OUTPUT/ascend_")
"""Files beside a PROF folder that may name its rank."""


def places(ordered: Sequence[str]) -> list[Place]:
    """Timelines by folder and device; single exports of a folder with a joint one belong to it."""
    by_folder: dict[tuple[str, int], list[str]] = {}
    for name in ordered:
        if is_timeline(name):
            by_folder.setdefault((_root(name), single_device(name)), []).append(name)
    joint = {root for root, device in by_folder if device < 0}
    merged: dict[tuple[str, int], list[str]] = {}
    for (root, device), names in by_folder.items():
        merged.setdefault((root, -1 if root in joint else device), []).extend(names)
    per_folder = Counter(folder_around(root) for root, _ in merged)
    found_places = []
    for (root, device), names in merged.items():
        folder = folder_around(root)
        alone = per_folder[folder] == 1 or is_capture_folder(folder or "")
        around = files_in(ordered, folder, *_AROUND)
        found_places.append(Place(root, device, tuple(names), around, alone))
    return found_places


def _root(name: str) -> str:
    """The folder an export belongs to: the PROF folder, or where its files were copied to."""
    if prof := prof_folder(name):
        return prof
    parts = PurePosixPath(name).parts[:-1]
    if parts and parts[-1] == "mindstudio_profiler_output":
        parts = parts[:-1]
    elif len(parts) > 1 and parts[-1] == "timeline" and parts[-2].startswith("device_"):
        parts = parts[:-2]
    return "/".join(parts)


_PROCESS = rb'"args"\s*:\s*\{[^{}]*"name"\s*:\s*"'
_LAYERS = rb"(?:Ascend Hardware|Overlap Analysis|CANN|HCCL|Step Trace|CPU OP|Scope Layer)"
_HEAD = lazy_regex(_PROCESS + _LAYERS + rb'(?: Rank ?\d+)?"')
_RANKED = lazy_regex(_PROCESS + _LAYERS + rb' Rank ?(\d{1,18})"')
_OTHERS = lazy_regex(r"(?:.*/)?(?:PROF_[^/]*/.*|host_info/.*|[^/]*timeline_display_[^/]*)")


class MsprofReader:
    """Reads the timelines of PROF folders, and lone files that look like them."""

    name = "msprof"
    title = "CANN msprof timeline"
    files = "PROF_*/**/msprof_*.json with step_trace_*, hccl_*, task_time_*"
    order = 110

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per PROF folder and device."""
        ordered = sorted(names)
        captures = [
            capture
            for place in places(ordered)
            for capture in _in_folder(source, ordered, place, issues)
        ]
        captures = with_derived(captures, ordered, issues)
        used = {name for c in captures for name in (*c.files, *c.known)}
        unused = [n for n in ordered if n not in used and not _OTHERS.fullmatch(n)]
        captures += [capture for name in unused for capture in _lone(source, name)]
        return with_tables(captures, ordered, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.ascend.common.reading import read_parts

        read_parts(capture, build)
        add_side_tables(capture, build)


def _in_folder(
    source: Source, ordered: Sequence[str], place: Place, issues: Issues
) -> list[Capture]:
    """The capture of one place; none if a framework's database, which has all of it and more, is
    beside it.
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
    _add_host(choice, source, ordered, root)
    _book(choice, source, issues, source.title(root) if root else source.label)
    identity = Identity(source, issues)
    # the collector's own files first: they name the rank, and so the ``profiler_info`` to read
    identity.prof_files(inner, device)
    path = folder_path(source, root)
    identity.folder(path.rpartition("/")[0] or path)
    identity.around(place.around, place.alone)
    return [_capture(identity, choice, root, device, inner)]


def _add_host(choice: Choice, source: Source, ordered: Sequence[str], root: str) -> None:
    """The host's exports of old generations: read, unless the timeline of the whole folder is."""
    host = {
        name: match[1]
        for name in below(ordered, root)
        if (match := _HOST_SINGLE.fullmatch(inside(name, root)))
    }
    has_whole = any(inside(part.name, root).startswith("timeline/") for part in choice.parts)
    for name, base in host.items():
        if is_empty(source, name):
            choice.empty.append(name)
        elif has_whole or not base.startswith("msprof"):
            choice.repeated.append(name)
        else:
            choice.parts.append(Part(name))


def _capture(
    identity: Identity, choice: Choice, root: str, device: int, inner: Sequence[str]
) -> Capture:
    source = identity.source
    label = source.title(root) if root else source.label
    events = next((p for p in choice.parts if p.role is Role.EVENTS), choice.parts[0])
    unix = has_unix_stamps(source.head(events.name), otherwise=not choice.single)
    capture = identity.capture(
        READER.name,
        label,
        Detail(tuple(choice.parts), identity.notes, root),
        files=[part.name for part in choice.parts],
        known=(*inner, *choice.repeated, *choice.superseded, *choice.empty),
        device=device,
        clock=identity.clock(unix),
    )
    graphs = {p.graph for p in choice.parts if p.graph >= 0} | set(identity.graphs)
    for table in choice.tables:
        from traceconv.readers.ascend.common.reading import graphs_in

        graphs |= graphs_in(source, table, identity.issues)
    return replace(capture, graphs=tuple(sorted(graphs)))


def _book(choice: Choice, source: Source, issues: Issues, label: str) -> None:
    for code, names in (
        ("repeated-content", choice.repeated),
        ("superseded-export", choice.superseded),
        ("empty-file", choice.empty),
        ("part-missing", choice.missing),
    ):
        for name in names:
            issues.add(code, label, name)


def _lone(source: Source, name: str) -> list[Capture]:
    """The captures of a file that only its first bytes show to be msprof's; none if they do not.

    A file that an older viewer merged holds several ranks. Our own output may name the same
    processes, and is left to the reader of Chrome JSON.
    """
    head = source.head(name) if name.endswith((".json", ".json.gz")) else b""
    if not _HEAD.search(head) or b'"traceconv"' in head:
        return []
    clock = Identity(source, Issues()).clock(has_unix_stamps(head, otherwise=True))
    ranks = _ranks_within(source, name) if _RANKED.search(head) else []
    parts: list[tuple[int | None, tuple[int, ...] | None]] = [(None, None)]
    if ranks:
        parts = [(rank, (rank, -1) if rank == ranks[0] else (rank,)) for rank in ranks]
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
        for rank, lanes in parts
    ]


def _ranks_within(source: Source, name: str) -> list[int]:
    """All ranks named by the processes of a merged file."""
    ranks: set[int] = set()
    with source.open(name) as stream:
        tail = b""
        while block := stream.read(1 << 20):
            ranks.update(map(int, _RANKED.findall(tail + block)))
            tail = block[-256:]
    return sorted(ranks)


READER = MsprofReader()


# -- which exports of a PROF folder are read: newest first, nothing twice -----------------------
#
# Three generations of names: ``msprof_<time>.json`` and ``msprof_slice_<n>_<time>.json`` in
# ``mindstudio_profiler_output``, and the single export up to 2023, one set of files per iteration:
# ``{msprof,step_trace,hccl,task_time}_<device>_<model>_<iteration>.json`` in
# ``device_<d>/timeline``, without a model where operators were run one by one. Up to CANN 6.3 the
# host's side is in ``host/timeline/<name>_<iteration>.json``, and ``timeline/`` of the PROF folder
# has both.

_WHOLE = lazy_regex(r"msprof_(\d{8,})\.json(?:\.gz)?")
_SLICE = lazy_regex(r"msprof_slice_(\d{1,18})_(\d{8,})\.json(?:\.gz)?")
_STEPS = lazy_regex(r"step_trace_(?:slice_\d+_)?(\d{8,})\.(json|csv)")
_SINGLE = lazy_regex(
    r"(msprof|step_trace|hccl|task_time)_(\d{1,18})(?:_(\d{1,18}))?_(\d{1,18})\.(json|csv)"
)
_HOST_SINGLE = lazy_regex(r"host/timeline/((?:msprof|[a-z_]+)_\d{1,7}\.json)")
_FIRST_ITERATION = lazy_regex(rb'"Iteration (\d{1,18})"')


def is_timeline(name: str) -> bool:
    """Whether a file's name is that of an export's timeline."""
    base = PurePosixPath(name).name
    matches = (p.fullmatch(base) for p in (_WHOLE, _SLICE, _STEPS, _SINGLE))
    return any(match and "csv" not in match.groups() for match in matches)


def is_step_table(name: str) -> bool:
    """Whether a file's name is that of an export's step trace table."""
    base = PurePosixPath(name).name
    matches = (p.fullmatch(base) for p in (_STEPS, _SINGLE))
    return base.startswith("step_trace_") and any(m and "csv" in m.groups() for m in matches)


def single_device(name: str) -> int:
    """The device in the file name of a single export; -1 for other files."""
    match = _SINGLE.fullmatch(PurePosixPath(name).name)
    return int(match[2]) if match else -1


class Choice(msgspec.Struct):
    """What of an export is read, and what is left and why.

    Attributes:
        repeated:   files whose events are in the chosen ones too.
        superseded: files of older exports.
        empty:      exports without content.
        missing:    files that must have been there, by what their neighbours are called.
        tables:     step trace tables.
        single:     whether they are of the single export, one window per iteration.
    """

    parts: list[Part] = msgspec.field(default_factory=list)
    repeated: list[str] = msgspec.field(default_factory=list)
    superseded: list[str] = msgspec.field(default_factory=list)
    empty: list[str] = msgspec.field(default_factory=list)
    missing: list[str] = msgspec.field(default_factory=list)
    tables: list[str] = msgspec.field(default_factory=list)
    single: bool = False


def choose(source: Source, names: Iterable[str]) -> Choice:
    """Pick the files to read among the timelines and step tables of one PROF folder."""
    choice = Choice()
    by_name = {name: PurePosixPath(name).name for name in names}
    full = [n for n in by_name if not is_empty(source, n)]
    choice.empty = [n for n in by_name if n not in set(full)]
    stamped = {n: by_name[n] for n in full if not _SINGLE.fullmatch(by_name[n])}
    single = {n: by_name[n] for n in full if n not in stamped}
    if any(base.startswith("msprof") for base in stamped.values()) or not single:
        _choose_stamped(choice, stamped)
        choice.superseded += single
    else:
        choice.superseded += stamped
        _choose_single(choice, source, single)
    if not choice.parts:
        choice.parts = [Part(n) for n in choice.empty if by_name[n].startswith("msprof")]
        choice.empty = [n for n in choice.empty if n not in {p.name for p in choice.parts}]
    choice.parts += [Part(n, Role.STEP_TABLE) for n in choice.tables]
    return choice


def _choose_stamped(choice: Choice, names: dict[str, str]) -> None:
    whole_exports = {n: m[1] for n, base in names.items() if (m := _WHOLE.fullmatch(base))}
    slices = {n: (m[2], int(m[1])) for n, base in names.items() if (m := _SLICE.fullmatch(base))}
    steps = {n: m for n, base in names.items() if (m := _STEPS.fullmatch(base))}
    run = last_run(slices)
    newest = max(whole_exports.values(), default="")
    if whole_exports and newest >= max((slices[n][0] for n in run), default=""):
        events = [n for n, stamp in whole_exports.items() if stamp == newest]
    else:
        events = run
        numbers = [-1, *(slices[n][1] for n in run)]  # ascending; the gaps may be large
        gaps = [(a + 1, b - 1) for a, b in pairwise(numbers) if b - a > 1]
        choice.missing += [f"msprof_slice_{a}" + (f" to {b}" if b > a else "") for a, b in gaps]
    for kind, role in (("json", Role.STEPS), ("csv", Role.STEP_TABLE)):
        of_kind = {n: m[1] for n, m in steps.items() if m[2] == kind}
        newest_steps = sorted(n for n, stamp in of_kind.items() if stamp == max(of_kind.values()))
        if role is Role.STEPS:
            choice.parts += [Part(n, role, EVERY_GRAPH) for n in newest_steps]
        else:
            choice.tables += newest_steps
    choice.parts += [Part(n) for n in events]
    chosen = {p.name for p in choice.parts} | set(choice.tables)
    choice.superseded += [n for n in names if n not in chosen]


def _choose_single(choice: Choice, source: Source, names: dict[str, str]) -> None:
    files: dict[str, dict[tuple[int, int], str]] = {}
    for name, base in names.items():
        if match := _SINGLE.fullmatch(base):
            kind = match[1] if match[5] == "json" else "table"
            files.setdefault(kind, {})[int(match[3] or NO_GRAPH), int(match[4])] = name
    steps, older = _distinct_steps(source, files.get("step_trace", {}))
    choice.parts += [Part(n, Role.STEPS, _graph(model)) for model, n in steps]
    choice.superseded += older
    tables = files.get("table", {})
    last_of_model = {model: tables[model, iteration] for model, iteration in sorted(tables)}
    choice.tables += last_of_model.values()
    iterations = sorted(
        {k for kind in ("msprof", "hccl", "task_time") for k in files.get(kind, {})}
    )
    for key in iterations:
        for kind in ("msprof",) if key in files.get("msprof", {}) else ("hccl", "task_time"):
            if key in files.get(kind, {}):
                window = f"model {key[0]} iteration {key[1]}"
                choice.parts.append(Part(files[kind][key], graph=_graph(key[0]), window=window))
    whole_exports = files.get("msprof", {})
    for model, iteration in iterations:
        if whole_exports and (model, iteration) not in whole_exports:
            choice.missing.append(f"msprof_*_{model}_{iteration}.json")
    chosen = {p.name for p in choice.parts} | {*choice.tables, *choice.superseded}
    choice.repeated += [n for n in names if n not in chosen]
    choice.single = True


def _graph(model: int) -> int:
    return -1 if model >= NO_GRAPH else model


def _distinct_steps(
    source: Source, files: dict[tuple[int, int], str]
) -> tuple[list[tuple[int, str]], list[str]]:
    """(model, file) of the step traces to read, and the files that hold less.

    Every iteration's file usually holds the whole run's step trace, so one is enough: the
    largest file that begins with the same iteration. Files of several models can be alike, too.
    """
    alike: dict[tuple[int, bytes], list[str]] = {}
    for (model, _), name in sorted(files.items()):
        match = _FIRST_ITERATION.search(source.head(name))
        alike.setdefault((model, match[1] if match else b""), []).append(name)
    distinct: dict[bytes, tuple[int, str]] = {}
    shorter: list[str] = []
    for (model, _), names in alike.items():
        largest = max(names, key=source.size)
        shorter += [n for n in names if source.size(n) < source.size(largest)]
        distinct.setdefault(_digest(source, largest), (model, largest))
    return list(distinct.values()), shorter


def _digest(source: Source, name: str) -> bytes:
    import hashlib

    digest = hashlib.sha256()
    with source.open(name) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.digest()
