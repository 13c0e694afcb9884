"""Paddle's profiler: the timelines ``export_chrome_tracing`` and ``export_protobuf`` write.

Written by: ``paddle.profiler`` 2.3 to 3.x, files of version 1.0.0 to 1.0.2; seen: 3.3.1, on CPU.
Files: ``<worker>_time_<local time>.paddle_trace.json`` or ``.pb``, one per collection window; both
are known by their first bytes, too. Where both hold one recording, the ``.pb`` is read. Of the
profiler before 2.3: binary ``Profile`` messages of any name, and the timelines that
``tools/timeline.py`` made of them, with a process per trainer.
Units and clock: ``.pb`` in ns, JSON in whole us, both since 1970; the JSON's finer times are
recovered, see :mod:`traceconv.readers._paddle_times`. Old files in ns, timelines too, which should
be in us.
Rank from: the worker's name ("rank3", "trainer3", "worker3"); a name made of host and process
says none, and no file holds one.
Quirks: printed without escapes, so a quote in a name breaks the JSON (golden case unescaped);
every name ends in the event's duration, numbers of devices stand for processes, arrows end
anywhere within a microsecond (device_rows); starts are cut and durations are not, so children
outlast their parents (two_windows); a thread is two rows that do not nest in each other; the root
of every thread in the ``.pb`` is no event (protobuf).
Ignored: text reports, timer logs, colours, parents by number (times say the same), allocations of
old profiles, old profiles as text.
Source: paddle/fluid/platform/profiler of PaddlePaddle/Paddle, which writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from traceconv.build import TraceBuilder
from traceconv.clock import Anchor, Domain
from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._paddle_files import JSON, PB, PROFILE, TIMELINE, File, recognised
from traceconv.readers._paddle_json import read_json
from traceconv.readers._paddle_pb import read_pb
from traceconv.readers._paddle_profile import read_profile
from traceconv.readers._paddle_timeline import read_timeline
from traceconv.readers._windows import read_windows
from traceconv.source import Source

UNIX_NS = 10**18
"""Stamps above this count from 1970 (it is 2001)."""

_READ: dict[str, Callable[[Source, str, TraceBuilder, int], tuple[int, int] | None]] = {
    JSON: read_json,
    PB: read_pb,
    PROFILE: read_profile,
}


class PaddleReader:
    """Reads the timelines of Paddle's profiler, JSON and protobuf."""

    name = "paddle"
    title = "PaddlePaddle profiler"
    files = "*.paddle_trace.json, *.paddle_trace.pb"
    order = 210

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per process, its collection windows in the order of time."""
        groups: dict[tuple[object, ...], list[File]] = {}
        for name in sorted(names):
            for file in recognised(source, name):
                groups.setdefault(_same_process(file), []).append(file)
        return [c for group in groups.values() for c in _captures(source, group, issues)]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        build.notes["free_rule"] = "device"
        windows = ((file.name, file) for file in capture.detail)
        read_windows(capture, build, windows, lambda file: _read(capture, file, build))


def _read(capture: Capture, file: File, build: TraceBuilder) -> tuple[int, int] | None:
    if file.kind == TIMELINE:
        return read_timeline(capture.source, file.name, build, file.worker)
    return _READ[file.kind](capture.source, file.name, build, capture.pid)


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
        reader=PaddleReader.name,
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


READER = PaddleReader()
