"""Timelines old MindSpore writes itself (generation A) and the host timeline of crashed runs.

Written by: MindSpore 1.x to 2.3; samples of 2020 and 2021.
Files: ``profiler/ascend_timeline_display_<rank>.json`` (older ``timeline_display_<device>.json``,
on GPU ``gpu_timeline_display_<device>.json``) and ``host_info/timeline_<rank>.json``; beside them
``profiler_info_<rank>.json``.
Units and clock: us; display files count from their first event, later ones and those of GPU in
Unix time; ``host_info`` in Unix time.
Rank from: ``profiler_info_<rank>.json``, else the suffix of the file's name.
Quirks: pids stand for kinds of lanes; a host stage that never ended is a lone ``B``; pids and tids
are text.
Ignored: the tables derived from the same data (listed as known); a host timeline beside a display
file that is not in Unix time, since nothing ties their clocks.
Source: mindspore-ai/mindspore, which writes it; test data of mindspore-ai/mindinsight.
Golden cases: display, display_cut_off, host_info.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from traceconv.build import TraceBuilder
from traceconv.clock import Anchor, Domain
from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._ascend import Classifier
from traceconv.readers._ascend_display import DisplayClassifier, host_info_lane
from traceconv.readers._ascend_identity import Identity, Trust, is_unix
from traceconv.readers._ascend_known import below, derived_rank, inside
from traceconv.readers._ascend_parts import Detail, Part, Role, is_empty, read_parts
from traceconv.source import Source

_DISPLAY = re.compile(r"(ascend_|gpu_)?timeline_display_(\d+)\.json(?:\.gz)?")
_HOST = re.compile(r"timeline_(\d+)\.json(?:\.gz)?")
_HOST_HEAD = re.compile(rb'"parent_pid"')
_PREFERENCE = ("ascend_", None, "gpu_")


class MindsporeReader:
    """Reads display timelines and host timelines of old MindSpore."""

    name = "mindspore"
    title = "MindSpore display and host timelines"
    files = "profiler/{ascend_,gpu_,}timeline_display_<rank>.json, host_info/timeline_<rank>.json"
    order = 120

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per folder and rank in a file name."""
        ordered = sorted(names)
        found: dict[tuple[str, int], list[str]] = {}
        for name in ordered:
            if place := _place(source, name):
                found.setdefault(place, []).append(name)
        return [
            _capture(source, ordered, folder, suffix, files, issues)
            for (folder, suffix), files in found.items()
        ]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        gpu = any(PurePosixPath(name).name.startswith("gpu_") for name in capture.files)
        display = DisplayClassifier("GPU Hardware" if gpu else "Ascend Hardware", Classifier())
        read_parts(capture, build, {Role.DISPLAY: display, Role.HOST_INFO: host_info_lane})


def _place(source: Source, name: str) -> tuple[str, int] | None:
    """The profiler folder and suffix of a timeline; None for other files."""
    path = PurePosixPath(name)
    folder = path.parent
    if match := _DISPLAY.fullmatch(path.name):
        return _text(folder), int(match[2])
    if match := _HOST.fullmatch(path.name):
        if folder.name == "host_info":
            return _text(folder.parent), int(match[1])
        if _HOST_HEAD.search(source.head(name)):
            return _text(folder), int(match[1])
    return None


def _text(folder: PurePosixPath) -> str:
    return "" if str(folder) == "." else str(folder)


def _capture(
    source: Source,
    ordered: Sequence[str],
    folder: str,
    suffix: int,
    files: Sequence[str],
    issues: Issues,
) -> Capture:
    mine = [n for n in below(ordered, folder) if derived_rank(inside(n, folder)) in (suffix, -1)]
    parts, clock = _parts(source, files, issues)
    label = source.title(parts[0].name)
    identity = Identity(source, issues)
    identity.claim(Trust.SUFFIX, suffix, PurePosixPath(parts[0].name).name)
    infos = [n for n in mine if "profiler_info" in n]
    for name in infos:
        identity.profiler_info(name)
    rank, rank_from = identity.rank(label)
    detail = Detail(parts, identity.notes, folder)
    return Capture(
        reader=READER.name,
        source=source,
        files=detail.files,
        rank=rank,
        rank_from=rank_from,
        known=tuple(n for n in dict.fromkeys([*mine, *files]) if n not in detail.files),
        graphs=identity.graphs,
        clock=clock,
        world_size=identity.world_size,
        label=label,
        detail=detail,
    )


def _parts(source: Source, files: Sequence[str], issues: Issues) -> tuple[tuple[Part, ...], Anchor]:
    """What is read of the timelines of one rank, and their clock."""
    displays = [n for n in files if _DISPLAY.fullmatch(PurePosixPath(n).name)]
    displays.sort(key=lambda n: (is_empty(source, n), _PREFERENCE.index(_kind(n))))
    hosts = [n for n in files if n not in displays]
    for name in displays[1:]:
        issues.add("superseded-export", source.title(name))
    unix = not displays or is_unix(source.head(displays[0]), otherwise=False)
    parts = [Part(n, Role.DISPLAY) for n in displays[:1]]
    if unix:
        parts += [Part(n, Role.HOST_INFO) for n in hosts]
        return tuple(parts), Anchor(Domain.UNIX, evidence="Unix time stamps")
    for name in hosts:
        issues.add("unused-file", source.title(name), "its clock is not that of the display file")
    return tuple(parts), Anchor(Domain.RELATIVE, evidence="stamps count from the first event")


def _kind(name: str) -> str | None:
    match = _DISPLAY.fullmatch(PurePosixPath(name).name)
    return match[1] if match else None


READER = MindsporeReader()
