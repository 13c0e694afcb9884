"""The captures that files of Paddle's profiler make: windows of one process, formats of one run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from traceconv.build import TraceBuilder
from traceconv.clock import Anchor, Domain
from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._paddle_files import JSON, PB, TIMELINE, File, recognised
from traceconv.source import Source

UNIX_NS = 10**18
"""Stamps above this count from 1970 (it is 2001)."""


def captures(source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
    """One capture per process, its collection windows in the order of time."""
    groups: dict[tuple[object, ...], list[File]] = {}
    for name in sorted(names):
        for file in recognised(source, name):
            groups.setdefault(_same_process(file), []).append(file)
    return [c for group in groups.values() for c in _captures(source, group, issues)]


def read_file(capture: Capture, file: File, build: TraceBuilder) -> tuple[int, int] | None:
    """Read one file of a capture; the span of what it holds, ns, None if that is nothing."""
    if file.kind == TIMELINE:
        from traceconv.readers._paddle_timeline import read_timeline

        return read_timeline(capture.source, file.name, build, file.worker)
    if file.kind == JSON:
        from traceconv.readers._paddle_json import read_json as read
    elif file.kind == PB:
        from traceconv.readers._paddle_pb import read_pb as read
    else:
        from traceconv.readers._paddle_profile import read_profile as read
    return read(capture.source, file.name, build, capture.pid)


def _same_process(file: File) -> tuple[object, ...]:
    """Equal for files that may be windows, or formats, of one process."""
    folder = PurePosixPath(file.name).parent
    if file.kind == TIMELINE:
        return (file.name, file.worker)
    return (folder, file.worker, file.pid) if file.worker else (file.stem,)


def _captures(source: Source, group: list[File], issues: Issues) -> list[Capture]:
    """The windows of one process as one capture; each its own if two claim the same time."""
    better = [file for file in group if file.kind == PB]
    twins = [f for f in group if f.kind == JSON and any(map(f.overlaps, better))]
    for file in twins:
        issues.add("repeated-content", source.title(file.name))
    windows = sorted((f for f in group if f not in twins), key=lambda f: (f.first_ns, f.name))
    clear = all(w.first_ns >= 0 for w in windows) or len(windows) == 1
    apart = clear and not any(a.overlaps(b) for a, b in pairwise(windows))
    parts = [windows] if apart else [[window] for window in windows]
    known = tuple(file.name for file in twins)
    return [_capture(source, part, () if i else known) for i, part in enumerate(parts)]


def _capture(source: Source, windows: list[File], known: tuple[str, ...]) -> Capture:
    file = windows[0]
    several = file.kind == TIMELINE
    unix = file.kind in (JSON, PB) or file.first_ns > UNIX_NS
    return Capture(
        reader="paddle",
        source=source,
        files=tuple(window.name for window in windows),
        rank=file.rank,
        rank_from="worker name" if file.rank is not None else "",
        known=known,
        host=file.host,
        pid=file.pid,
        clock=Anchor(Domain.UNIX, evidence="stamps since 1970") if unix else None,
        label=f"{source.title(file.name)} ({file.worker})" if several else source.title(file.name),
        detail=tuple(windows),
    )
