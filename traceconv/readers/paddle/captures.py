"""Files of Paddle's profiler by name and first bytes, and the captures they make together.

Several may be windows of one process, or formats of one window.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain, is_unix_ns
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source

JSON, PB, PROFILE, TIMELINE = "json", "pb", "profile", "timeline"
_MAGIC = b"\n\x051."
_SIGNS = (
    lazy_regex(rb'"schemaVersion"\s*:\s*"\d+\.\d+\.\d+"[^{}\[\]]*"span_ind'),
    lazy_regex(rb'"span_ind\w*"[^{}\[\]]*"schemaVersion"\s*:\s*"\d+\.\d+\.\d+"'),
    lazy_regex(rb'"tid"\s*:\s*"\d+\((?:Python|C\+\+)\)"'),
)
_NAMED = lazy_regex(r"\.paddle_trace\.(json|pb)(?:\.gz)?\Z")
_WINDOW = lazy_regex(r"(.+)_time_\d{4}(?:_\d\d){5}_\d{6}\.paddle_trace\.(?:json|pb)(?:\.gz)?")
_SUFFIXES = lazy_regex(r"(?:\.paddle_trace)?\.(?:json|pb)(?:\.gz)?\Z")
_DEFAULT = lazy_regex(r"host_(.*)pid_(\d{1,18})", re.DOTALL)
_RANKS = tuple(
    lazy_regex(rf"(?<![a-z]){word}[_-]?(\d{{1,9}})") for word in ("rank", "trainer", "worker")
)
_SPAN = lazy_regex(
    rb'"pid"\s*:\s*(\d{1,18}), *"tid"\s*:\s*"[^"]*\((?:Python|C\+\+)\)"\s*,\s*'
    rb'"ts"\s*:\s*(\d{1,17}), *"dur"\s*:\s*(\d{1,12})'
)
_PROCESSES = lazy_regex(
    rb'"(?:memory usage on )?([^"\\:]*):(?:cuda_api|cpu:block:-?\d+|gpu:-?\d+)"'
)
_OP = lazy_regex(rb'"cat"\s*:\s*"Op"')
_FIRST = lazy_regex(rb'"ts"\s*:\s*(\d{1,19})')


class File(msgspec.Struct, frozen=True):
    """One file, from its name and first bytes.

    Attributes:
        kind:   JSON or PB; of old profilers, PROFILE or TIMELINE.
        worker: the configured name, or one made of host and process; "" for other names. A
            timeline may hold several.
        pid:    the process, -1 if unknown.
        first_ns, last_ns: the span of the events in the first bytes; -1 if there are none.
    """

    name: str
    kind: str
    worker: str
    pid: int = -1
    first_ns: int = -1
    last_ns: int = -1

    @property
    def stem(self) -> str:
        """The name without the suffix of its format."""
        return _SUFFIXES.sub("", self.name)

    @property
    def host(self) -> str:
        """The host, where the worker is named after it."""
        match = _DEFAULT.fullmatch(self.worker)
        return match[1] if match else ""

    @property
    def rank(self) -> int | None:
        """The rank in the worker's name; a name made of the host has none."""
        if _DEFAULT.fullmatch(self.worker):
            return None
        numbers_by_pattern = (pattern.findall(self.worker.lower()) for pattern in _RANKS)
        return next((int(numbers[-1]) for numbers in numbers_by_pattern if numbers), None)

    def overlaps(self, other: File) -> bool:
        """Whether the events in the first bytes of both overlap in time."""
        return (
            min(self.first_ns, other.first_ns) >= 0
            and self.first_ns <= other.last_ns
            and other.first_ns <= self.last_ns
        )


def recognised(source: Source, name: str) -> list[File]:
    """The file, if it is one of Paddle's; once for every process in it."""
    start, match = source.head(name, 256), _NAMED.search(name)
    if start.startswith(_MAGIC) or (match and match[1] == PB):
        return [_of_pb(name, source.head(name))]
    if not match and start.startswith(b"\n") and start.find(b"\n", 1) in (2, 3):
        from traceconv.readers.paddle.old import first_span

        span = first_span(source.head(name))
        return [File(name, PROFILE, "", -1, *span)] if span else []
    if not (match or start.lstrip().startswith(b"{")):
        return []
    head = source.head(name)
    if match or any(sign.search(head) for sign in _SIGNS):
        return [_of_json(name, head)]
    return _of_timeline(name, head)


def _worker(name: str) -> str:
    match = _WINDOW.fullmatch(PurePosixPath(name).name)
    return match[1] if match else ""


def _of_json(name: str, head: bytes) -> File:
    spans = [(int(p), int(ts), int(dur)) for p, ts, dur in _SPAN.findall(head)]
    if not spans:
        return File(name, JSON, _worker(name))
    first_us, last_us = min(ts for _, ts, _ in spans), max(ts + dur + 2 for _, ts, dur in spans)
    return File(name, JSON, _worker(name), spans[0][0], first_us * 1000, last_us * 1000)


def _of_timeline(name: str, head: bytes) -> list[File]:
    """One file per process ("trainer1") that a timeline names; none if these bytes begin none."""
    if b'"process_name"' not in head or not _OP.search(head):
        return []
    match = _FIRST.search(head)
    first_ns = int(match[1]) if match else -1  # it wrote nanoseconds
    keys = (key.decode("utf-8", "replace") for key in _PROCESSES.findall(head))
    return [
        File(name, TIMELINE, k, first_ns=first_ns, last_ns=first_ns) for k in dict.fromkeys(keys)
    ]


def _of_pb(name: str, head: bytes) -> File:
    from traceconv.readers.paddle.protobuf import host_spans

    pid, start, end = host_spans(head)
    if not len(pid):
        return File(name, PB, _worker(name))
    return File(name, PB, _worker(name), int(pid[0]), int(start.min()), int(end.max()))


def captures(source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
    """One capture per process and collection window."""
    groups: dict[Hashable, list[File]] = {}
    for name in sorted(names):
        for file in recognised(source, name):
            groups.setdefault(_same_process(file), []).append(file)
    return [c for group in groups.values() for c in _windows(source, group, issues)]


def read_file(capture: Capture, file: File, build: TraceBuilder) -> None:
    """Read the one file of a capture."""
    if file.kind == TIMELINE:
        from traceconv.readers.paddle.old import read_timeline

        read_timeline(capture.source, file.name, build, file.worker)
        return
    if file.kind == JSON:
        from traceconv.readers.paddle.json import read_json as read
    elif file.kind == PB:
        from traceconv.readers.paddle.protobuf import read_pb as read
    else:
        from traceconv.readers.paddle.old import read_profile as read
    read(capture.source, file.name, build, capture.pid)


def _same_process(file: File) -> Hashable:
    """Equal for files that may be windows or formats of one process."""
    folder = PurePosixPath(file.name).parent
    if file.kind == TIMELINE:
        return (file.name, file.worker)
    return (folder, file.worker, file.pid) if file.worker else (file.stem,)


def _windows(source: Source, group: list[File], issues: Issues) -> list[Capture]:
    """A capture for each window of one process; a window in two formats is read once."""
    better = [file for file in group if file.kind == PB]
    twins = [f for f in group if f.kind == JSON and any(map(f.overlaps, better))]
    for file in twins:
        issues.add("repeated-content", source.title(file.name))
    windows = [_capture(source, file) for file in group if file not in twins]
    earliest = min(windows, key=lambda one: (one.detail.first_ns, one.detail.name))
    repeated = tuple(file.name for file in twins)
    return [replace(w, known=repeated) if w is earliest else w for w in windows]


def _capture(source: Source, file: File) -> Capture:
    several = file.kind == TIMELINE
    unix = file.kind in (JSON, PB) or is_unix_ns(file.first_ns)
    return Capture(
        reader="paddle",
        source=source,
        files=(file.name,),
        rank=file.rank,
        rank_from="worker name" if file.rank is not None else "",
        host=file.host,
        pid=file.pid,
        clock=Anchor(Domain.UNIX, evidence="stamps since 1970") if unix else None,
        label=f"{source.title(file.name)} ({file.worker})" if several else source.title(file.name),
        detail=file,
    )
