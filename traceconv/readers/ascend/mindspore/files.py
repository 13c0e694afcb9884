"""Which files of a ``profiler`` folder of MindSpore before 2.4 are read, and on which clock.

There are three clocks:

* the counter of the device, in ticks of 10 ns, or ms or us of them: step table, operators, AI CPU;
* the display file counts from its first row; ``min_cycle_counter``, or the first operator that both
  files have, ties it to the counter;
* Unix time of the host: ``host_info``, and display files of GPU. Nothing ties it to the counter, so
  the device is shown alone if host and device are there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

import msgspec

from traceconv.core.clock import Anchor, Domain, is_unix_ns, to_ns
from traceconv.core.errors import ClockError, Issues
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import (
    PROF,
    derived_rank,
    is_capture_folder,
    is_empty,
)
from traceconv.readers.ascend.common.identity import Identity, has_unix_stamps
from traceconv.readers.ascend.raw.folders import (
    Window,
    beside,
    raw_folders,
    window,
)


class Kind(StrEnum):
    """The purpose for which a file is read."""

    DISPLAY = "display"
    OPERATORS = "operators"  # output_timeline_data
    AI_CPU = "AI CPU operators"  # output_data_preprocess_aicpu
    STEPS = "steps"  # step_trace_raw, with the collectives
    HOST_OPERATORS = "host operators"  # cpu_op_execute_timestamp
    HOST_INFO = "host_info"  # the records themselves
    HOST_TIMELINE = "host timeline"  # made from the records
    HOST_MEMORY = "host memory"  # part of the records
    QUEUE = "queue"  # of the data pipeline: stamps of the host


_KINDS: tuple[tuple[re.Pattern[str], Kind], ...] = tuple(
    (lazy_regex(pattern), kind)
    for pattern, kind in (
        (r"(?:ascend_|gpu_)?timeline_display_\d+\.json", Kind.DISPLAY),
        (r"output_timeline_data_\d+\.txt", Kind.OPERATORS),
        (r"output_data_preprocess_aicpu_\d+\.txt", Kind.AI_CPU),
        (r"step_trace_raw_\d+_detail_time\.csv", Kind.STEPS),
        (r"cpu_op_execute_timestamp_\d+\.txt", Kind.HOST_OPERATORS),
        (r"host_info_\d+\.csv", Kind.HOST_INFO),
        (r"timeline_\d+\.json", Kind.HOST_TIMELINE),
        (r"host_memory_\d+\.csv", Kind.HOST_MEMORY),
        (r"(?:device_queue|dataset_iterator)_profiling_\d+\.txt", Kind.QUEUE),
    )
)
_HOST_FILE = lazy_regex(r"(?:timeline|host_info|host_memory|dataset)_(\d{1,18})\.(?:json|csv)")
_HOST_HEAD = lazy_regex(rb'"parent_pid"|^(?:\xef\xbb\xbf)?(?:tid,pid,parent_pid,|Operation,Stage,)')
_PACKED = lazy_regex(r"\.gz$")
_IDENTITY = lazy_regex(r"profiler_info_\d+\.json|min_cycle_counter_\d+\.txt")
_BEFORE_2_4 = lazy_regex(rb'"(?:context_mode|parallel_mode)"')
_RAW = lazy_regex(rf"(?:(?P<folder>.*?)/)?(?:JOB[^/]*|{PROF.pattern})/")


class Part(msgspec.Struct, frozen=True):
    """One file that is read for events."""

    kind: Kind
    name: str


class Plan(msgspec.Struct, frozen=True):
    """The files to read, from finding to reading.

    Attributes:
        parts:     in reading order.
        offset_ns: added to stamps of the display file, which puts them on the device's counter.
        notes:     for the trace.
        raw:       the device's own records, if no file was made from them.
    """

    parts: tuple[Part, ...]
    offset_ns: int = 0
    notes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    raw: tuple[Window, ...] = ()


class Place(msgspec.Struct, frozen=True):
    """The files of one rank in one folder.

    Attributes:
        suffix: the number in their names: the rank; on GPU the device.
        names:  sorted; those without a number belong to every rank.
    """

    folder: str
    suffix: int
    names: tuple[str, ...]

    def of(self, *kinds: Kind) -> list[str]:
        """The names of files of these kinds."""
        return [name for name in self.names if kind_of(name) in kinds]


def kind_of(name: str) -> Kind | None:
    """The purpose of a file by its name; None for tables and files of identity."""
    base = _PACKED.sub("", PurePosixPath(name).name)
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(base)), None)


def places(source: Source, ordered: Sequence[str]) -> Iterator[Place]:
    """Ranks by folder, if they have something to show."""
    owned: dict[tuple[str, int], list[str]] = {}
    shared: dict[str, list[str]] = {}
    for name in ordered:
        if owner := _owner(source, name):
            folder, rank = owner
            if rank < 0:
                shared.setdefault(folder, []).append(name)
            else:
                owned.setdefault((folder, rank), []).append(name)
    raw = {match["folder"] or "" for name in ordered if (match := _RAW.match(name))}
    raw |= {raw_folder.root for raw_folder in raw_folders(ordered) if raw_folder.files}
    for (folder, rank), names in owned.items():
        if _is_capture(source, names, folder in raw):
            yield Place(folder, rank, tuple(sorted([*names, *shared.get(folder, ())])))


def _owner(source: Source, name: str) -> tuple[str, int] | None:
    """The folder that a file belongs to, and the rank in its name or -1; None for other files."""
    path = PurePosixPath(name)
    inner = path.parent.name in ("host_info", "FRAMEWORK")
    folder = path.parent.parent if inner else path.parent
    relative = _PACKED.sub("", str(path.relative_to(folder)))
    rank = derived_rank(relative)
    if rank is None and (match := _HOST_FILE.fullmatch(relative)):
        real = source.path(name)  # the name of the folder may be outside of the source
        around = PurePosixPath(source.title(name)) if real is None else real.resolve()
        if around.parent.name == "host_info" or _HOST_HEAD.search(source.head(name)):
            rank = int(match[1])
    text = "" if str(folder) == "." else str(folder)
    exported = folder.name == "ASCEND_PROFILER_OUTPUT" or is_capture_folder(text)
    return None if rank is None or exported else (text, rank)


def _is_capture(source: Source, names: Sequence[str], with_raw_data: bool) -> bool:
    """Whether files are results of a run, not only its identity.

    In folders with raw data, tables are left to the reader of raw data.
    """
    if any(kind_of(name) is not None for name in names):
        return True
    if with_raw_data:
        return False
    results = [name for name in names if not _IDENTITY.fullmatch(PurePosixPath(name).name)]
    if present(source, [name for name in results if "FRAMEWORK/" not in name]):
        return True
    return any(_BEFORE_2_4.search(source.head(name)) for name in names)


def present(source: Source, names: Sequence[str]) -> list[str]:
    """The files that are not empty."""
    return [name for name in names if not is_empty(source, name)]


TICK_NS = 10
"""Length of a tick of the device's counter."""

COUNTER = Anchor(Domain.RELATIVE, evidence="counter of the device, 10 ns a tick")
FROM_FIRST = Anchor(Domain.RELATIVE, evidence="stamps count from the first event")
UNIX = Anchor(Domain.UNIX, evidence="Unix time stamps")
STEADY = Anchor(Domain.MONOTONIC, evidence="ms of the host's steady clock")

_PREFERENCE = ("ascend_", None, "gpu_")
_DISPLAY = lazy_regex(r"(ascend_|gpu_)?timeline_display")
_HOST_STAMP = lazy_regex(rb";[^;\n]*;(\d{1,18}),")
_DECODER = json.JSONDecoder(parse_float=str)

Choice = tuple[list[Part], Anchor | None, int]
"""Parts in reading order, their clock, and the offset of the display file."""


def choose(source: Source, place: Place, issues: Issues) -> Choice:
    """The files of one rank to read.

    Issues: superseded-export, repeated-content, truncated, unused-file.
    """

    def report(code: str, names: Iterable[str], why: str = "") -> None:
        for name in names:
            issues.add(code, source.title(name), why)

    parts, clock, offset_ns = _device(source, place, report)
    records = present(source, place.of(Kind.HOST_INFO))
    cut = [name for name in records if b"\n" not in source.head(name)]
    report("truncated", cut, "line 1")
    host = [Part(Kind.HOST_INFO, name) for name in records if name not in cut][:1]
    if not host:  # both were made of the records
        host = [
            Part(kind, name)
            for kind in (Kind.HOST_TIMELINE, Kind.HOST_MEMORY)
            for name in place.of(kind)
        ]
    if clock is not None and clock.domain is not Domain.UNIX:
        report("unused-file", [p.name for p in host], "its clock is not that of the device")
        return parts, clock, offset_ns
    if parts or host:
        return parts + host, clock or UNIX, offset_ns
    queues = [Part(Kind.QUEUE, name) for name in present(source, place.of(Kind.QUEUE))]
    return queues, STEADY if queues else None, 0


def _device(source: Source, place: Place, report: Callable[..., None]) -> Choice:
    """The display file with the tables that complete it; without one the tables."""
    displays = place.of(Kind.DISPLAY)

    def preference(name: str) -> tuple[bool, int]:
        match = _DISPLAY.match(PurePosixPath(name).name)
        return is_empty(source, name), _PREFERENCE.index(match[1] if match else None)

    displays.sort(key=preference)
    report("superseded-export", displays[1:])
    tables = [
        Part(kind, name)
        for kind in (Kind.OPERATORS, Kind.AI_CPU, Kind.STEPS)
        for name in present(source, place.of(kind))[:1]
    ]
    calls = present(source, place.of(Kind.HOST_OPERATORS))
    of_host = [Part(Kind.HOST_OPERATORS, name) for name in calls]
    if not displays:
        if tables or not calls:
            return tables + of_host, COUNTER if tables else None, 0
        match = _HOST_STAMP.search(source.head(calls[0]))
        unix = match is not None and is_unix_ns(int(match[1]))
        steady = Anchor(Domain.MONOTONIC, evidence="ns of the host's clock")
        return of_host, UNIX if unix else steady, 0
    display = displays[0]
    report("repeated-content", calls)
    unused, parts = [part.name for part in tables], [Part(Kind.DISPLAY, display)]
    if has_unix_stamps(source.head(display), otherwise=False):
        report("unused-file", unused, "its clock is not that of the display file")
        return parts, UNIX, 0
    offset = _offset(source, display, place.names) if tables else None
    if offset is None:
        report("unused-file", unused, "nothing ties its clock to the display file")
        return parts, FROM_FIRST, 0
    return parts + tables, COUNTER, offset


def _offset(source: Source, display: str, names: Sequence[str]) -> int | None:
    """Nanoseconds of the counter at the display file's zero; None if no file states them."""
    offsets: list[int | None] = [None]
    for name in names:
        base = PurePosixPath(name).name
        with suppress(ClockError):
            if base.startswith("output_timeline_data_"):
                offsets.insert(0, _first_operator(source.head(name), source.head(display)))
            elif base.startswith("min_cycle_counter_"):
                offsets.append(to_ns(source.head(name, 64)) * TICK_NS // 1000)
    return next((offset for offset in offsets if offset is not None), None)


def _first_operator(table: bytes, display: bytes) -> int | None:
    """The difference between the stamps of one operator in both files."""
    lines = table.decode("utf-8", "replace").splitlines()[1:2]
    cells = lines[0].rsplit(",", 3) if lines else []
    if len(cells) != 4:
        return None
    for event in _slices(display.decode("utf-8", "replace")):
        args = event.get("args")
        if isinstance(args, dict) and args.get("fullname") == cells[0].strip():
            return to_ns(cells[2], "ms") - to_ns(str(event.get("ts")))
    return None


def _slices(text: str) -> Iterable[dict[str, Any]]:
    """The complete events at the start of an array."""
    position = text.find("[") + 1
    while position:
        position = text.find("{", position)
        if position < 0:
            return
        try:
            event, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        yield event


# -- raw folders with them -------------------------------------------------------------------


def with_raw(
    source: Source, captures: Sequence[Capture], ordered: Sequence[str], issues: Issues
) -> list[Capture]:
    """The captures with the raw folders next to them, read only where no file was made of them."""
    with_raws = list(captures)
    for i, raws in beside(captures, ordered).items():
        capture, plan = with_raws[i], with_raws[i].detail
        if any(p.kind in (Kind.DISPLAY, Kind.OPERATORS, Kind.STEPS) for p in plan.parts):
            for raw in raws:
                title = source.title(raw.root)
                issues.add("repeated-content", title, "raw data of the same run")
        else:
            windows = []
            for raw in raws:
                identity = Identity(source, issues)
                identity.prof_files(raw.known, raw.device)
                windows.append(window(identity, raw))
            plan = msgspec.structs.replace(plan, raw=tuple(windows))
            files = (name for raw in raws for name in raw.files)
            capture = replace(capture, files=(*capture.files, *files), device=raws[0].device)
        names = (name for raw in raws for name in (*raw.files, *raw.known))
        other_files = [n for n in dict.fromkeys((*capture.known, *names)) if n not in capture.files]
        with_raws[i] = replace(capture, known=tuple(other_files), detail=plan)
    return with_raws
