"""Processes of Intel's unitrace, and the files of several ranks that its script joins.

unitrace names its processes ``HOST<node>`` and ``DEVICE<node>[...]``, with ``RANK n`` in front
under MPI: since 2026 before their events, in earlier versions behind them, and nowhere if the
process was killed. Then flows ("Flow_H2D_<id>_<rank>", of which 0 is any process without MPI) and
the name of the file (``<program>.<pid>.<rank>.json``) say which rank it is. ``mergetrace.py``
writes the events of one file after those of another; process ids of several hosts may be equal, so
that only this order tells whose an event is.

Source: intel/pti-gpu tools/unitrace/src/chromelogger.h, src/utils/logger_factory.cc and
scripts/tracemerge/mergetrace.py (2025-10 to 2026-06).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from traceconv.core.errors import SourceError
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source, Stream, pieces

_HOST = lazy_regex(
    rb'\{[^{}]*?"process_name"[^{}]*?"pid"\s*:\s*(\d{1,9})[^{}]*\{\s*"name"\s*:\s*'
    rb'"(?:RANK (\d{1,7}) )?HOST<([^"<>]{0,255})>"'
)
_TIMED = lazy_regex(rb'\{\s*"ph"\s*:\s*"[^M"]"')
_FLOW = lazy_regex(rb'"cat"\s*:\s*"(?:CL_)?Flow_(?:H2D|D2H)_\d{1,20}_(\d{1,7})"')
_CALL = lazy_regex(rb'"pid"\s*:\s*(\d{1,9})\s*,\s*"name"\s*:\s*"[^"]*"\s*,\s*"cat"\s*:\s*"cpu_op"')
_DEVICE_ROW = b'"cat": "gpu_op"'
_FILE = lazy_regex(r".*\.\d+\.(\d{1,7})\.json(?:\.gz)?")
_LONGEST = 1024
"""Bytes of a record that names a process."""


@dataclass(frozen=True)
class Process:
    """The host process at the begin of a file of unitrace.

    Attributes:
        start, end: the bytes of its events in the file; the end is -1 for the last one.
    """

    rank: int | None
    host: str
    pid: int
    start: int = 0
    end: int = -1


def processes(source: Source, name: str, head: bytes) -> list[Process]:
    """The host processes of a file, in order; empty if it is not of unitrace."""
    if not (_HOST.search(head) or _FLOW.search(head) or _DEVICE_ROW in head):
        return []
    hosts: list[tuple[int, tuple[bytes | None, ...]]] = []
    events: list[int] = []  # where the events begin that follow the name of each
    held, before, named = b"", 0, 0
    with suppress(SourceError), source.open(name) as stream:  # what precedes a break is there
        for piece in pieces(stream):
            held += piece
            for match in _HOST.finditer(held):
                if not hosts or match.groups() != hosts[-1][1]:
                    hosts.append((before + match.start(), match.groups()))
                    named = before + match.end()
                    timed = _TIMED.search(held, match.end())
                    events.append(before + timed.start() if timed else -1)
            if -1 in events[-1:] and (timed := _TIMED.search(held, max(named - before, 0))):
                events[-1] = before + timed.start()
            before += max(len(held) - _LONGEST, 0)
            held = held[-_LONGEST:]
    if not hosts:
        return [_unnamed(name, head)]
    first = _TIMED.search(head)
    are_behind = first is not None and first.start() < hosts[0][0]
    starts = [0, *(events[:-1] if are_behind else [start for start, _ in hosts[1:]])]
    return [
        Process(
            int(rank) if rank is not None else None,
            (host or b"").decode("utf-8", "replace"),
            int(pid or b"-1"),
            start,
            end,
        )
        for (_, (pid, rank, host)), start, end in zip(hosts, starts, [*starts[1:], -1], strict=True)
    ]


def _unnamed(name: str, head: bytes) -> Process:
    """The process of a file that it did not live to name."""
    flow, call, title = _FLOW.search(head), _CALL.search(head), _FILE.fullmatch(name)
    rank = int(title[1]) if title else int(flow[1]) if flow else 0
    return Process(rank if rank or title else None, "", int(call[1]) if call else -1)


class Section(Source):
    """The events of one process of a joined file, as a separate file."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        super().__init__(source.label)
        self._source, self._start, self._end = source, start, end
        self.lone, self.shared = source.lone, source.shared

    def names(self) -> tuple[str, ...]:
        return self._source.names()

    def size(self, name: str) -> int:
        return self._source.size(name)

    def title(self, name: str) -> str:
        return self._source.title(name)

    def open(self, name: str) -> Stream:
        return _Events(self._source.open(name), self._start, self._end)


class _Events:
    """The bytes of a section, as an object with a list of events."""

    mapped: mmap.mmap | None = None

    def __init__(self, stream: Stream, start: int, end: int) -> None:
        self.label, self._stream = stream.label, stream
        self._texts = self._read(start, end)
        self._held = b""

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        position = 0
        if start:
            yield b'{"traceEvents": ['
        for piece in pieces(self._stream):
            begin, stop = (
                max(start - position, 0),
                len(piece) if end < 0 else max(end - position, 0),
            )
            yield piece[begin:stop]
            position += len(piece)
            if 0 <= end <= position:
                yield b"]}"
                return

    def read(self, n: int) -> bytes:
        while len(self._held) < n and (text := next(self._texts, None)) is not None:
            self._held += text
        text_read, self._held = self._held[:n], self._held[n:]
        return text_read

    def ahead(self, size: int) -> Iterator[bytes]:
        while text := self.read(size):
            yield text

    def advance(self, n: int) -> None:
        self._stream.advance(n)

    def __enter__(self) -> _Events:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.__exit__(*error)
