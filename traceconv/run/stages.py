"""What is done with one rank at a time, by whoever works: here or in a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceconv import registry
from traceconv.build import TraceBuilder
from traceconv.collectives import evidence
from traceconv.mergers import Pass, compose
from traceconv.mergers.select import time_window
from traceconv.model import Capture, Trace
from traceconv.park import Held, Parked, park
from traceconv.streams import Progress

if TYPE_CHECKING:
    from traceconv.mergers.annotate import Mark


@dataclass(frozen=True)
class Reading:
    """Read one rank, make its view, set it aside.

    Attributes:
        capture: of the rank.
        view:    arguments of :func:`traceconv.mergers.compose`.
        path:    file to set it aside in; None keeps it in memory.
        alone:   see :func:`traceconv.park.park`.
        comm_patterns: words; GPU kernels whose name contains one communicate.
        facts:   file for what the analyses need of the rank; None for none.
        drawn:   they are to be drawn: see :func:`traceconv.overview.facts`.
    """

    capture: Capture
    view: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    alone: bool = False
    comm_patterns: Sequence[str] = ()
    facts: Path | None = None
    drawn: bool = True


def read(job: Reading, advance: Progress) -> Parked:
    """Carry out a :class:`Reading`; ``advance`` is told the bytes that are read.

    Raises:
        TraceconvError: the rank cannot be read, or not be set aside.
    """
    trace = events(job.capture, advance, job.comm_patterns)
    known = evidence(trace)
    if job.facts is not None:
        from traceconv import factsfile, overview

        whole = passed(trace, compose("detail", **overview.scope(job.view)))
        factsfile.save(overview.facts(whole, drawn=job.drawn), job.facts)
    trace = passed(trace, compose(**job.view))
    return Held(trace, known) if job.path is None else park(trace, known, job.path, job.alone)


@dataclass(frozen=True)
class Narrowing:
    """Keep what lies in a window of time, ns on the clock of ``parked``; None = open."""

    parked: Parked
    start_ns: int | None
    end_ns: int | None
    path: Path | None


def narrow(job: Narrowing, advance: Progress) -> Parked:
    """Carry out a :class:`Narrowing`."""
    trace = time_window(job.parked.load(), job.start_ns, job.end_ns)
    known = job.parked.evidence()
    return Held(trace, known) if job.path is None else park(trace, known, job.path)


@dataclass(frozen=True)
class Annotating:
    """Draw ``marks`` into a rank."""

    parked: Parked
    marks: Sequence[Mark]
    path: Path | None


def annotated(job: Annotating, advance: Progress) -> Parked:
    """Carry out an :class:`Annotating`."""
    from traceconv.mergers.annotate import annotate

    trace = annotate(job.parked.load(), job.marks)
    known = job.parked.evidence()
    return Held(trace, known) if job.path is None else park(trace, known, job.path)


def events(capture: Capture, advance: Progress, comm_patterns: Sequence[str] = ()) -> Trace:
    """All events of one capture, as its reader gives them."""
    capture.source.progress = advance
    build = TraceBuilder(capture)
    build.comm_words = tuple(word.lower() for word in comm_patterns)
    registry.read_capture(capture, build)
    return build.finish()


def passed(trace: Trace, passes: Sequence[Pass]) -> Trace:
    """``trace`` after all ``passes``."""
    for one in passes:
        trace = one(trace)
    return trace
