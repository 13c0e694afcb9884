"""The files of a generation A ``profiler`` folder: whose they are, and what each is read for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from traceconv.readers._ascend_known import PROF, derived_rank, is_capture_folder
from traceconv.readers._ascend_parts import is_empty
from traceconv.source import Source

if TYPE_CHECKING:
    from traceconv.readers._ascend_raw_beside import Window


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
    (re.compile(pattern), kind)
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
_HOST_FILE = re.compile(r"(?:timeline|host_info|host_memory|dataset)_(\d+)\.(?:json|csv)")
_HOST_HEAD = re.compile(rb'"parent_pid"|^(?:\xef\xbb\xbf)?(?:tid,pid,parent_pid,|Operation,Stage,)')
_PACKED = re.compile(r"\.gz$")
_IDENTITY = re.compile(r"profiler_info_\d+\.json|min_cycle_counter_\d+\.txt")
_GENERATION_A = re.compile(rb'"(?:context_mode|parallel_mode)"')
_RAW = re.compile(rf"(?:(?P<folder>.*?)/)?(?:JOB[^/]*|{PROF.pattern})/")


@dataclass(frozen=True)
class Part:
    """One file that is read for events."""

    kind: Kind
    name: str


@dataclass(frozen=True)
class Plan:
    """What the reader remembers from finding to reading.

    Attributes:
        parts:     in reading order.
        offset_ns: what puts the stamps of the display file on the counter of the device.
        notes:     for the trace.
        raw:       the device's own records, where nothing was made of them.
    """

    parts: tuple[Part, ...]
    offset_ns: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict)
    raw: tuple[Window, ...] = ()


@dataclass(frozen=True)
class Place:
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
    for (folder, rank), names in owned.items():
        if _speaks(source, names, folder in raw):
            yield Place(folder, rank, tuple(sorted([*names, *shared.get(folder, ())])))


def _owner(source: Source, name: str) -> tuple[str, int] | None:
    """The folder a file belongs to, and the rank in its name or -1; None for other files."""
    path = PurePosixPath(name)
    inner = path.parent.name
    folder = path.parent.parent if inner in ("host_info", "FRAMEWORK") else path.parent
    relative = _PACKED.sub("", str(path.relative_to(folder)))
    rank = derived_rank(relative)
    if rank is None and (match := _HOST_FILE.fullmatch(relative)):
        rank = int(match[1]) if _HOST_HEAD.search(source.head(name)) else None
    text = _text(folder)
    exported = folder.name == "ASCEND_PROFILER_OUTPUT" or is_capture_folder(text)
    return None if rank is None or exported else (text, rank)


def _text(folder: PurePosixPath) -> str:
    return "" if str(folder) == "." else str(folder)


def _speaks(source: Source, names: Sequence[str], beside_raw: bool) -> bool:
    """Whether files make a capture: what a run left, not only who it was.

    Beside raw data, tables are left to the reader of these.
    """
    if any(kind_of(name) is not None for name in names):
        return True
    if beside_raw:
        return False
    told = [name for name in names if not _IDENTITY.fullmatch(PurePosixPath(name).name)]
    if present(source, [name for name in told if "FRAMEWORK/" not in name]):
        return True
    return any(_GENERATION_A.search(source.head(name)) for name in names)


def present(source: Source, names: Sequence[str]) -> list[str]:
    """Those of ``names`` that hold anything."""
    return [name for name in names if not is_empty(source, name)]
