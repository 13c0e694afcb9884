"""What is done with one rank at a time, by whoever works: here or in a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceconv.alignment.collective_records import collective_records
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Trace
from traceconv.io.streams import Progress
from traceconv.passes import Pass, compose
from traceconv.passes.select import time_window
from traceconv.pipeline import registry
from traceconv.pipeline.spill import InMemoryRank, SpilledRank, park

if TYPE_CHECKING:
    from traceconv.passes.annotate import Mark


@dataclass(frozen=True)
class Reading:
    """Read one rank, make its view, set it aside.

    Attributes:
        capture: of the rank.
        view:    arguments of :func:`traceconv.passes.compose`.
        path:    file to set it aside in; None keeps it in memory.
        alone:   see :func:`traceconv.pipeline.spill.park`.
        comm_patterns: words; GPU kernels whose name contains one communicate.
        facts:   file for what the analyses need of the rank; None for none.
        drawn:   they are to be drawn: see :func:`traceconv.report.run_summary.facts`.
    """

    capture: Capture
    view: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    alone: bool = False
    comm_patterns: Sequence[str] = ()
    facts: Path | None = None
    drawn: bool = True


def read(job: Reading, advance: Progress) -> SpilledRank:
    """Carry out a :class:`Reading`; ``advance`` is told the bytes that are read.

    Raises:
        TraceconvError: the rank cannot be read, or not be set aside.
    """
    trace = events(job.capture, advance, job.comm_patterns)
    known = collective_records(trace)
    if job.facts is not None:
        from traceconv.analysis import rank_summary as rank_summary
        from traceconv.report import run_summary as overview

        whole = passed(trace, compose("detail", **overview.scope(job.view)))
        rank_summary.save(overview.facts(whole, drawn=job.drawn), job.facts)
    trace = passed(trace, compose(**job.view))
    return (
        InMemoryRank(trace, known) if job.path is None else park(trace, known, job.path, job.alone)
    )


@dataclass(frozen=True)
class Narrowing:
    """Keep what lies in a window of time, ns on the clock of ``parked``; None = open."""

    spilled: SpilledRank
    start_ns: int | None
    end_ns: int | None
    path: Path | None


def narrow(job: Narrowing, advance: Progress) -> SpilledRank:
    """Carry out a :class:`Narrowing`."""
    trace = time_window(job.spilled.load(), job.start_ns, job.end_ns)
    known = job.spilled.collective_records()
    return InMemoryRank(trace, known) if job.path is None else park(trace, known, job.path)


@dataclass(frozen=True)
class Annotating:
    """Draw ``marks`` into a rank."""

    spilled: SpilledRank
    marks: Sequence[Mark]
    path: Path | None


def annotated(job: Annotating, advance: Progress) -> SpilledRank:
    """Carry out an :class:`Annotating`."""
    from traceconv.passes.annotate import annotate

    trace = annotate(job.spilled.load(), job.marks)
    known = job.spilled.collective_records()
    return InMemoryRank(trace, known) if job.path is None else park(trace, known, job.path)


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
