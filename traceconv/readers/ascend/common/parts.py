"""Captures of Ascend made of several files: what each is read for, and reading them in turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Capture, Layer
from traceconv.io.sources import Source
from traceconv.readers.ascend.common.identity import describe

if TYPE_CHECKING:
    from traceconv.readers.shared.trace_events.timeline import Classify

UNIX_NS = 10**18
"""Stamps above this count from 1970 (it is 2001)."""


class Role(StrEnum):
    """What a file is read for."""

    EVENTS = "events"
    STEPS = "steps"  # the step trace of the whole run
    STEP_TABLE = "step table"  # its CSV, used only if no other file brings a step trace
    HOST_INFO = "host_info"
    HOST_RECORDS = "host_info records"
    DISPLAY = "display"


@dataclass(frozen=True)
class Part:
    """One file of a capture.

    Attributes:
        graph:  the graph its name says, -1 if none; of step traces, those it may hold.
        window: the collection window it belongs to, by any name; "" if the capture has only one.
    """

    name: str
    role: Role = Role.EVENTS
    graph: int = -1
    window: str = ""


@dataclass(frozen=True)
class Detail:
    """What the Ascend readers remember from finding to reading.

    Attributes:
        parts: in reading order; the names are the files of the capture.
        notes: for the trace.
        root:  the folder of the capture within its source.
        ranks: see :class:`traceconv.readers.shared.ascend_lanes.Classifier`.
    """

    parts: tuple[Part, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)
    root: str = ""
    ranks: tuple[int, ...] | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the parts."""
        return tuple(part.name for part in self.parts)


def is_empty(source: Source, name: str) -> bool:
    """Whether a file holds nothing at all."""
    return source.size(name) == 0 or not source.head(name, 1)


def tied_to_unix_time(clock: Anchor | None) -> bool:
    """Whether stamps of this clock can be put beside such that count from 1970."""
    return clock is not None and (clock.domain is Domain.UNIX or clock.shared_ns > UNIX_NS)


def read_parts(
    capture: Capture, build: TraceBuilder, classifiers: Mapping[Role, Classify] | None = None
) -> None:
    """Read all files of a capture.

    Args:
        classifiers: for the roles whose lanes are named in another way than msprof's.

    Raises:
        MalformedInputError: none of them can be read.
    """
    detail: Detail = capture.detail
    parts = [part for part in detail.parts if part.name in set(capture.files)]
    describe(build, detail.notes)
    failures: list[MalformedInputError] = []
    windows: dict[str, list[tuple[int, int]]] = {}
    stepped: set[int] = set()
    for part in parts:
        build.file = capture.source.title(part.name)
        if is_empty(capture.source, part.name):
            build.skip("empty-file")
        elif part.role is Role.STEP_TABLE:
            _read_table(capture, build, part)
        else:
            classify = (classifiers or {}).get(part.role) or _classifier(capture, part, stepped)
            try:
                span = _read_part(capture, build, part, classify)
            except MalformedInputError as e:
                failures.append(e)
                build.skip("malformed-record", str(e)[:200])
            else:
                windows.setdefault(part.window, []).extend([span] if span else [])
                stepped |= {part.graph} if part.role is Role.STEPS else set()
    if failures and not windows:
        raise failures[0]
    for name, spans in windows.items():
        if name and spans:
            build.window(min(s[0] for s in spans), max(s[1] for s in spans))
    check_clock(capture, build)


def _classifier(capture: Capture, part: Part, stepped: Collection[int]) -> Classify:
    """For one file, given the graphs whose step trace was read from files before it."""
    from traceconv.readers.shared.ascend_lanes import Classifier

    elsewhere = frozenset(stepped) if part.role is Role.EVENTS else frozenset()
    return Classifier(capture.detail.ranks, max(part.graph, -1), elsewhere)


def _read_part(
    capture: Capture, build: TraceBuilder, part: Part, classify: Classify
) -> tuple[int, int] | None:
    """Read one file; the span of its device and communication slices, ns, or of all of them."""
    before, offset = build.rows, 0
    if part.role in (Role.HOST_INFO, Role.HOST_RECORDS) and capture.clock is not None:
        offset = -capture.clock.offset_ns  # it is in Unix time, whatever the others are
    if part.role is Role.HOST_RECORDS:
        from traceconv.readers.ascend.mindspore.host import read_records

        read_records(capture.source, part.name, build, offset)
        return None
    from traceconv.readers.shared.trace_events.timeline import read_events

    whole = read_events(capture.source, part.name, build, classify, offset_ns=lambda _: offset)
    if part.role is not Role.EVENTS:
        return None
    return build.span(before, (Layer.DEVICE, Layer.COMM)) or whole


def _read_table(capture: Capture, build: TraceBuilder, part: Part) -> None:
    from traceconv.readers.ascend.common.step_table import read_step_table

    if build.span(layers=(Layer.STEP,)) is None:
        read_step_table(capture.source, part.name, build)


def check_clock(capture: Capture, build: TraceBuilder) -> None:
    """Book a doubt if the stamps are not of the clock that finding took them for."""
    span = build.span()
    if span is None or capture.clock is None:
        return
    if (capture.clock.domain is Domain.UNIX) != (span[1] > UNIX_NS):
        build.file = capture.label
        build.skip("clock-assumed", f"last stamp {span[1]} ns, taken as {capture.clock.domain}")


def joined(captures: Sequence[Capture]) -> Capture:
    """Collection windows of one process as one capture, in the given order."""
    parts = [
        replace(part, window=f"{capture.label} {part.window}")
        for capture in captures
        for part in capture.detail.parts
    ]
    detail = replace(captures[0].detail, parts=tuple(parts))
    return replace(
        captures[0],
        files=detail.files,
        known=tuple(dict.fromkeys(name for c in captures for name in c.known)),
        graphs=tuple(sorted({g for c in captures for g in c.graphs})),
        world_size=max(c.world_size for c in captures),
        detail=detail,
    )
