"""Several captures of one rank: its collection windows, as one capture.

A profiler that is started several times leaves a capture each time: dynamic profiling
(``rank0_start2_stop5``, ``rank0_start8_stop10``), schedules that repeat, a run that was exported
and crashed in its next window. What tells them from copies is their content, which is compared
here, and their time, which is known when their events are read
(:mod:`traceconv.run.window_reading`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.columns import natural_order
from traceconv.core.errors import Issues, RankError, SourceError, TraceconvError
from traceconv.core.job_shape import Placement
from traceconv.core.model import Capture
from traceconv.core.source import HEAD_BYTES, Source, Stream, pieces
from traceconv.find.registry import read_capture

SAME_CLOCK_NS = 1_000_000_000
"""Two readings of one monotonic clock against Unix time differ by what the latter was adjusted;
more than this is a clock that began anew with a boot of the host."""

NAME_THEM = (
    "Say where paths have the rank: `rank_from='REGEX'`, with the rank as first group, e.g. "
    "`rank_from='worker(\\d+)'`, or with coordinates as named groups, e.g. "
    "`rank_from='pp(?P<pp>\\d+)_tp(?P<tp>\\d+)'`; or make each capture a rank, in the order of "
    'their paths, with `rank_from="order"`.'
)
"""What to do about captures whose ranks are unknown, or which claim the same one."""


Span = tuple[int, int] | None
"""First and last time of a recording; None without events."""


def span_of(capture: Capture) -> Span:
    """The span of a recording, for which its events are read; None if they cannot be."""
    from traceconv.passes.timestamp_outliers import timestamp_outliers

    try:
        return timestamp_outliers(read_capture(capture, TraceBuilder(capture, Issues()))).span()
    except TraceconvError:
        return None


def as_one(captures: Sequence[Capture]) -> Capture:
    """The captures of one rank as one, whose parts they are.

    Raises:
        RankError: two of them are copies, or parts of one file, or nothing says which was first.
    """
    ordered = sorted(captures, key=lambda capture: natural_order(capture.title))
    _refuse_copies([capture for capture in ordered if capture.files])
    clock = _clock(ordered)
    return _of_all(replace(ordered[0], clock=clock, parts=tuple(ordered)))


def twice(
    capture: Capture, other: Capture, why: str, advice: str = "Name one of them only."
) -> RankError:
    """The error for two captures that cannot both be of one rank."""
    return RankError(
        f"rank {capture.rank} is claimed twice: by {capture.title} "
        f"({capture.rank_from or capture.reader}) and by "
        f"{other.title} ({other.rank_from or other.reader}); {why}. " + advice
    )


def _refuse_copies(captures: Sequence[Capture]) -> None:
    in_file: dict[str, Capture] = {}
    alike: dict[int, list[Capture]] = {}
    for capture in captures:
        for name in capture.files:
            other = in_file.setdefault(capture.source.title(name), capture)
            if other is not capture:
                raise twice(other, capture, "they are in one file")
        similar = alike.setdefault(hash(capture.source.head(capture.files[0])), [])
        for other in similar:
            if _same_content(other, capture):
                raise twice(other, capture, "they have the same content")
        similar.append(capture)


def _same_content(capture: Capture, other: Capture) -> bool:
    """Whether clocks and all files are the same, decompressed."""
    return (capture.clock, len(capture.files)) == (other.clock, len(other.files)) and all(
        _digest(capture, a) == _digest(other, b)
        for a, b in zip(capture.files, other.files, strict=True)
    )


def _digest(capture: Capture, name: str) -> bytes:
    from hashlib import sha256

    digest = sha256()
    with suppress(SourceError), capture.source.open(name) as stream:  # as far as it can be read
        for piece in pieces(stream):
            digest.update(piece)
    return digest.digest()


def _clock(captures: Sequence[Capture]) -> Anchor | None:
    """The clock that all events can be put on.

    Raises:
        RankError: there is none.
    """
    timed = [capture for capture in captures if capture.files]
    # a capture that is cut off may lack its clock
    if len({capture.clock is None for capture in timed}) == 2:
        timed = [capture for capture in timed if capture.clock or span_of(capture)]
    anchors = [capture.clock for capture in timed if capture.clock is not None]
    if len(timed) < 2:
        return next(iter(anchors), None)
    if len(anchors) == len(timed):
        if _one_clock(timed, anchors):
            anchor = next((anchor for anchor in anchors if anchor.is_tied), anchors[0])
            if len({anchor.origin for anchor in anchors}) == 1:
                return anchor
            return msgspec.structs.replace(anchor, error_ns=None, checked_ns=None, origin="")
        if all(anchor.is_tied for anchor in anchors):
            return Anchor(Domain.UNIX, evidence="clocks of its collection windows")
    unknown = next((c for c in timed if c.clock is None or not c.clock.is_tied), timed[0])
    comparable = next(c for c in timed if c is not unknown)
    raise twice(
        unknown,
        comparable,
        f"their order is unknown: {unknown.title} has no clock to compare",
        f"Name one of them only. {NAME_THEM}",
    )


def _one_clock(captures: Sequence[Capture], anchors: Sequence[Anchor]) -> bool:
    """Whether all stamps are of one physical clock."""
    if {anchor.domain for anchor in anchors} == {Domain.UNIX}:
        return True
    offsets = [anchor.offset_ns for anchor in anchors if anchor.is_tied]
    return (
        {anchor.domain for anchor in anchors} == {Domain.MONOTONIC}
        and len({capture.host for capture in captures}) == 1
        and max(offsets, default=0) - min(offsets, default=0) <= SAME_CLOCK_NS
    )


def _of_all(capture: Capture) -> Capture:
    """``capture`` with what its parts say together; contradicting statements are all kept."""
    parts = capture.parts
    source = capture.source
    rename = len({id(window.source) for window in parts}) > 1
    if rename:
        all_files = ((p.source, name) for p in parts for name in (*p.files, *p.known))
        source = JoinedSource(", ".join(dict.fromkeys(p.source.label for p in parts)), all_files)

    def named(window: Capture, names: Iterable[str]) -> list[str]:
        return [window.source.title(name) if rename else name for name in names]

    files = [name for window in parts for name in named(window, window.files)]
    known_files = [name for window in parts for name in named(window, window.known)]
    tables: dict[str, tuple[str, ...]] = {}
    for window in parts:
        for table, inner in window.tables.items():
            tables[table] = (*tables.get(table, ()), *named(window, inner))
    placements = [window.placement for window in parts]
    most_specific = next(
        (recorded for recorded in placements if recorded.sizes or recorded.coordinates), Placement()
    )
    groups = tuple(dict.fromkeys(group for recorded in placements for group in recorded.groups))
    placement = Placement(
        groups, most_specific.sizes, most_specific.coordinates, most_specific.place
    )
    uses = {named(window, [name])[0]: use for window in parts for name, use in window.uses.items()}
    return replace(
        capture,
        reader=" + ".join(dict.fromkeys(window.reader for window in parts)),
        source=source,
        files=tuple(dict.fromkeys(files)),
        known=tuple(dict.fromkeys(known_files)),
        tables=tables,
        uses=uses,
        graphs=tuple(sorted({graph for window in parts for graph in window.graphs})),
        host=next((window.host for window in parts if window.host), ""),
        device=next((window.device for window in parts if window.device >= 0), -1),
        pid=next((window.pid for window in parts if window.pid >= 0), -1),
        world_size=max(window.world_size for window in parts),
        optional=all(window.optional for window in parts),
        placement=placement,
        detail=None,
    )


class JoinedSource(Source):
    """Files of several sources under the titles they have there."""

    def __init__(self, label: str, files: Iterable[tuple[Source, str]]) -> None:
        super().__init__(label)
        self._files = {source.title(name): (source, name) for source, name in files}
        self.shared = all(source.shared for source, _ in self._files.values())

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    def size(self, name: str) -> int:
        source, inner = self._files[name]
        return source.size(inner)

    def open(self, name: str) -> Stream:
        source, inner = self._files[name]
        source.progress = self.progress
        return source.open(inner)

    def head(self, name: str, n: int = HEAD_BYTES) -> bytes:
        source, inner = self._files[name]
        return source.head(inner, n)

    def path(self, name: str) -> Path | None:
        source, inner = self._files[name]
        return source.path(inner)

    def origin(self, name: str) -> Path | None:
        source, inner = self._files[name]
        return source.origin(inner)

    def title(self, name: str) -> str:
        return name
