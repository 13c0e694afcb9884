"""Which files of a ``profiler`` folder of MindSpore before 2.4 are read, and on which clock.

There are three clocks. The counter of the device, in ticks of 10 ns or as ms or us of it: the
step table, the operators and the AI CPU's. The display file shows the same rows, counted from the
first of them; ``min_cycle_counter`` has the stamp of that one, else the first operator of
both files does. The host's Unix time: ``host_info``, and the display files of GPU. Nothing ties
the last to the others, so that of host and device only the device is shown if both are there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    Raw,
    Window,
    beside,
    raw_folders,
    window,
    with_known,
    with_read,
)


class Kind(StrEnum):
    """What a file is read for."""

    DISPLAY = "display"
    OPERATORS = "operators"  # output_timeline_data
    AI_CPU = "AI CPU operators"  # output_data_preprocess_aicpu
    STEPS = "steps"  # step_trace_raw, with the collectives
    HOST_OPERATORS = "host operators"  # cpu_op_execute_timestamp
    HOST_INFO = "host_info"  # the records themselves
    HOST_TIMELINE = "host timeline"  # what was made of them
    HOST_MEMORY = "host memory"  # a part of them
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
    """What the reader remembers from finding to reading.

    Attributes:
        parts:     in reading order.
        offset_ns: what puts the stamps of the display file on the counter of the device.
        notes:     for the trace.
        raw:       the device's own records, where nothing was made of them.
    """

    parts: tuple[Part, ...]
    offset_ns: int = 0
    notes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    raw: tuple[Window, ...] = ()


class Place(msgspec.Struct, frozen=True):
    """The files of one rank in one folder.

    Attributes:
        suffix: the number in their names: the rank; on GPU the device.
        names:  sorted; those without a number are everybody's.
    """

    folder: str
    suffix: int
    names: tuple[str, ...]

    def of(self, *kinds: Kind) -> list[str]:
        """The names of files of these kinds."""
        return [name for name in self.names if kind_of(name) in kinds]


def kind_of(name: str) -> Kind | None:
    """What a file is read for, by its name; None if for nothing but tables and identity."""
    base = _PACKED.sub("", PurePosixPath(name).name)
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(base)), None)


def places(source: Source, ordered: Sequence[str]) -> Iterator[Place]:
    """Ranks by folder, as far as they have something to show."""
    owned: dict[tuple[str, int], list[str]] = {}
    shared: dict[str, list[str]] = {}
    for name in ordered:
        if found := _owner(source, name):
            folder, rank = found
            if rank < 0:
                shared.setdefault(folder, []).append(name)
            else:
                owned.setdefault((folder, rank), []).append(name)
    raw = {match["folder"] or "" for name in ordered if (match := _RAW.match(name))}
    raw |= {one.root for one in raw_folders(ordered) if one.files}
    for (folder, rank), names in owned.items():
        if _is_capture(source, names, folder in raw):
            yield Place(folder, rank, tuple(sorted([*names, *shared.get(folder, ())])))


def _owner(source: Source, name: str) -> tuple[str, int] | None:
    """The folder a file belongs to, and the rank in its name or -1; None for other files."""
    path = PurePosixPath(name)
    inner = path.parent.name
    folder = path.parent.parent if inner in ("host_info", "FRAMEWORK") else path.parent
    relative = _PACKED.sub("", str(path.relative_to(folder)))
    rank = derived_rank(relative)
    if rank is None and (match := _HOST_FILE.fullmatch(relative)):
        known = _folder_name(source, name) == "host_info" or _HOST_HEAD.search(source.head(name))
        rank = int(match[1]) if known else None
    text = _text(folder)
    exported = folder.name == "ASCEND_PROFILER_OUTPUT" or is_capture_folder(text)
    return None if rank is None or exported else (text, rank)


def _folder_name(source: Source, name: str) -> str:
    """The name of the folder a file is in, also where that is the source or outside of it."""
    path = source.path(name)
    return (
        PurePosixPath(source.title(name)).parent.name
        if path is None
        else path.resolve().parent.name
    )


def _text(folder: PurePosixPath) -> str:
    return "" if str(folder) == "." else str(folder)


def _is_capture(source: Source, names: Sequence[str], beside_raw: bool) -> bool:
    """Whether files make a capture: what a run left, not only who it was.

    Beside raw data, tables are left to the reader of these.
    """
    if any(kind_of(name) is not None for name in names):
        return True
    if beside_raw:
        return False
    others = [name for name in names if not _IDENTITY.fullmatch(PurePosixPath(name).name)]
    if present(source, [name for name in others if "FRAMEWORK/" not in name]):
        return True
    return any(_BEFORE_2_4.search(source.head(name)) for name in names)


def present(source: Source, names: Sequence[str]) -> list[str]:
    """Those of ``names`` that hold anything."""
    return [name for name in names if not is_empty(source, name)]


TICK_NS = 10
"""Of the device's counter."""

COUNTER = Anchor(Domain.RELATIVE, evidence="counter of the device, 10 ns a tick")
FROM_FIRST = Anchor(Domain.RELATIVE, evidence="stamps count from the first event")
UNIX = Anchor(Domain.UNIX, evidence="Unix time stamps")
STEADY = Anchor(Domain.MONOTONIC, evidence="ms of the host's steady clock")

_PREFERENCE = ("ascend_", None, "gpu_")
_DISPLAY = lazy_regex(r"(ascend_|gpu_)?timeline_display")
_HOST_STAMP = lazy_regex(rb";[^;\n]*;(\d{1,18}),")
_DECODER = json.JSONDecoder(parse_float=str)

Choice = tuple[list[Part], Anchor | None, int]
"""Parts in reading order, their clock, and what is added to the stamps of the display file."""


def choose(source: Source, place: Place, issues: Issues) -> Choice:
    """What to read of one rank's files.

    Issues: superseded-export, repeated-content, truncated, unused-file.
    """
    parts, clock, offset_ns = _device(source, place, issues)
    records = present(source, place.of(Kind.HOST_INFO))
    cut = [name for name in records if b"\n" not in source.head(name)]
    _book(source, issues, "truncated", [Part(Kind.HOST_INFO, n) for n in cut], "line 1")
    host = [Part(Kind.HOST_INFO, name) for name in records if name not in cut][:1]
    if not host:  # both were made of the records
        host = [Part(Kind.HOST_TIMELINE, name) for name in place.of(Kind.HOST_TIMELINE)]
        host += [Part(Kind.HOST_MEMORY, name) for name in place.of(Kind.HOST_MEMORY)]
    if clock is not None and clock.domain is not Domain.UNIX:
        _book(source, issues, "unused-file", host, "its clock is not that of the device")
        return parts, clock, offset_ns
    parts += host
    if not parts:
        parts = [Part(Kind.QUEUE, name) for name in present(source, place.of(Kind.QUEUE))]
        return parts, STEADY if parts else None, 0
    return parts, clock or UNIX, offset_ns


def _device(source: Source, place: Place, issues: Issues) -> Choice:
    """The display file, and what its tables have and it has not; else the tables."""
    displays = place.of(Kind.DISPLAY)
    displays.sort(key=lambda n: (n not in present(source, [n]), _PREFERENCE.index(_maker(n))))
    _book(source, issues, "superseded-export", [Part(Kind.DISPLAY, n) for n in displays[1:]])
    tables = [
        Part(kind, name)
        for kind in (Kind.OPERATORS, Kind.AI_CPU, Kind.STEPS)
        for name in present(source, place.of(kind))[:1]
    ]
    calls = [Part(Kind.HOST_OPERATORS, n) for n in present(source, place.of(Kind.HOST_OPERATORS))]
    if not displays:
        if tables:
            return tables + calls, COUNTER, 0
        unix = bool(calls) and is_unix_ns(_host_stamp(source, calls[0].name))
        clock = UNIX if unix else Anchor(Domain.MONOTONIC, evidence="ns of the host's clock")
        return calls, clock if calls else None, 0
    display = Part(Kind.DISPLAY, displays[0])
    _book(source, issues, "repeated-content", calls)
    if has_unix_stamps(source.head(display.name), otherwise=False):
        _book(source, issues, "unused-file", tables, "its clock is not that of the display file")
        return [display], UNIX, 0
    offset = _offset(source, display.name, place.names) if tables else None
    if offset is None:
        _book(source, issues, "unused-file", tables, "nothing ties its clock to the display file")
        return [display], FROM_FIRST, 0
    return [display, *tables], COUNTER, offset


def _book(source: Source, issues: Issues, code: str, parts: Iterable[Part], why: str = "") -> None:
    for part in parts:
        issues.add(code, source.title(part.name), why)


def _maker(name: str) -> str | None:
    match = _DISPLAY.match(PurePosixPath(name).name)
    return match[1] if match else None


def _host_stamp(source: Source, name: str) -> int:
    match = _HOST_STAMP.search(source.head(name))
    return int(match[1][:19]) if match else 0


def _offset(source: Source, display: str, names: Sequence[str]) -> int | None:
    """Nanoseconds of the counter at the display file's zero; None if no file tells."""
    found: list[int | None] = [None]
    for name in names:
        base = PurePosixPath(name).name
        if base.startswith("output_timeline_data_"):
            found.insert(0, _first_operator(source.head(name), source.head(display)))
        elif base.startswith("min_cycle_counter_"):
            found.append(_ticks(source.head(name, 64)))
    return next((offset for offset in found if offset is not None), None)


def _ticks(text: bytes) -> int | None:
    try:
        return to_ns(text) * TICK_NS // 1000
    except ClockError:
        return None


def _first_operator(table: bytes, display: bytes) -> int | None:
    """The difference between the stamps of one operator in both files."""
    lines = table.decode("utf-8", "replace").splitlines()[1:2]
    cells = lines[0].rsplit(",", 3) if lines else []
    if len(cells) != 4:
        return None
    for event in _slices(display.decode("utf-8", "replace")):
        args = event.get("args")
        if isinstance(args, dict) and args.get("fullname") == cells[0].strip():
            try:
                return to_ns(cells[2], "ms") - to_ns(str(event.get("ts")))
            except ClockError:
                return None
    return None


def _slices(text: str) -> Iterable[dict[str, Any]]:
    """The complete events at the start of an array."""
    at = text.find("[") + 1
    while at:
        at = text.find("{", at)
        if at < 0:
            return
        try:
            event, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield event


# -- raw folders beside them -----------------------------------------------------------------

_OF_DEVICE = (Kind.DISPLAY, Kind.OPERATORS, Kind.STEPS)
"""What is made of the records of a device."""


def with_raw(
    source: Source, captures: Sequence[Capture], ordered: Sequence[str], issues: Issues
) -> list[Capture]:
    """The captures with the raw folders beside them."""
    found = list(captures)
    for i, raws in beside(captures, ordered).items():
        plan: Plan = found[i].detail
        if any(part.kind in _OF_DEVICE for part in plan.parts):
            found[i] = with_known(found[i], raws, issues)
        else:
            windows = tuple(_window(source, raw, issues) for raw in raws)
            plan = msgspec.structs.replace(plan, raw=windows)
            found[i] = replace(with_read(found[i], raws), detail=plan, device=raws[0].device)
    return found


def _window(source: Source, raw: Raw, issues: Issues) -> Window:
    identity = Identity(source, issues)
    identity.prof_files(raw.known, raw.device)
    return window(identity, raw)
