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
    try:
        return read_capture(capture, TraceBuilder(capture, Issues())).span()
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
    one: Capture, other: Capture, why: str, advice: str = "Name one of them only."
) -> RankError:
    """The error for two captures that cannot both be of one rank."""
    return RankError(
        f"rank {one.rank} is claimed twice: by {one.title} ({one.rank_from or one.reader}) and by "
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


def _same_content(one: Capture, other: Capture) -> bool:
    """Whether clocks and all files are the same, decompressed."""
    return (one.clock, len(one.files)) == (other.clock, len(other.files)) and all(
        _digest(one, a) == _digest(other, b) for a, b in zip(one.files, other.files, strict=True)
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
            found = next((anchor for anchor in anchors if anchor.is_tied), anchors[0])
            if len({anchor.origin for anchor in anchors}) == 1:
                return found
            return msgspec.structs.replace(found, error_ns=None, checked_ns=None, origin="")
        if all(anchor.is_tied for anchor in anchors):
            return Anchor(Domain.UNIX, evidence="clocks of its collection windows")
    unknown = next((c for c in timed if c.clock is None or not c.clock.is_tied), timed[0])
    other = next(c for c in timed if c is not unknown)
    raise twice(
        unknown,
        other,
        f"nothing says which was first: {unknown.title} has no clock to compare",
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
    rename = len({id(part.source) for part in parts}) > 1
    if rename:
        every = ((p.source, name) for p in parts for name in (*p.files, *p.known))
        source = JoinedSource(", ".join(dict.fromkeys(p.source.label for p in parts)), every)

    def named(part: Capture, names: Iterable[str]) -> list[str]:
        return [part.source.title(name) if rename else name for name in names]

    files = [name for part in parts for name in named(part, part.files)]
    known = [name for part in parts for name in named(part, part.known)]
    tables: dict[str, tuple[str, ...]] = {}
    for part in parts:
        for table, inner in part.tables.items():
            tables[table] = (*tables.get(table, ()), *named(part, inner))
    stated = [part.placement for part in parts]
    first = next((one for one in stated if one.sizes or one.coordinates), Placement())
    groups = tuple(dict.fromkeys(group for one in stated for group in one.groups))
    placement = Placement(groups, first.sizes, first.coordinates, first.place)
    uses = {named(part, [name])[0]: use for part in parts for name, use in part.uses.items()}
    return replace(
        capture,
        reader=" + ".join(dict.fromkeys(part.reader for part in parts)),
        source=source,
        files=tuple(dict.fromkeys(files)),
        known=tuple(dict.fromkeys(known)),
        tables=tables,
        uses=uses,
        graphs=tuple(sorted({graph for part in parts for graph in part.graphs})),
        host=next((part.host for part in parts if part.host), ""),
        device=next((part.device for part in parts if part.device >= 0), -1),
        pid=next((part.pid for part in parts if part.pid >= 0), -1),
        world_size=max(part.world_size for part in parts),
        optional=all(part.optional for part in parts),
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
