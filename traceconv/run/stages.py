"""The stages of work on one rank, done in this process or in a worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from traceconv.alignment.collective_records import CollectiveRecords, collective_records
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Trace
from traceconv.core.source import Progress
from traceconv.find import registry
from traceconv.options.groups import View
from traceconv.passes import Pass
from traceconv.passes.select import time_window
from traceconv.run.spill import InMemoryRank, SpilledRank, rank_path, spill
from traceconv.store.store_file import StoredSource

if TYPE_CHECKING:
    from traceconv.analysis.summarize import SummaryRequest
    from traceconv.passes.annotate import Mark


def kept_view(capture: Capture, view: View) -> SpilledRank | None:
    """The rank in a view that a store holds; None if it holds no such view."""
    source = capture.source
    if not isinstance(source, StoredSource) or source.views.get(view.mode) is None:
        return None
    if not source.as_packed(capture):
        return None
    plain = View(mode=view.mode, comm_patterns=view.comm_patterns)
    selection = dataclasses.replace(view.selection, ranks=None, time=None)
    shown = {option.name: getattr(view, option.name) for option in dataclasses.fields(View)}
    if View(**{**shown, "selection": selection}) != plain:
        return None
    source.refuse_patterns(view.comm_patterns)
    source.progress(sum(source.size(name) for name in capture.files))
    rename = partial(_renamed, name=capture.name)
    return SpilledRank(source.store, (rename,), source.views[view.mode])


def _renamed(trace: Trace, name: str) -> Trace:
    return dataclasses.replace(trace, capture=dataclasses.replace(trace.capture, name=name))


class Reading(msgspec.Struct, frozen=True):
    """Read one rank, make its view, spill it.

    Attributes:
        folder:  for the rank's file.
        view:    what is made of the events.
        in_memory: the rank, the only one, stays in memory and has no file.
        alone:   see :func:`traceconv.run.spill.spill`.
        summary: what the summary beside the rank's file holds; None for no summary.
    """

    folder: Path
    view: View
    in_memory: bool = False
    alone: bool = False
    summary: SummaryRequest | None = None

    def __call__(self, capture: Capture, advance: Progress) -> SpilledRank:
        """The rank, spilled; ``advance`` gets the bytes that are read.

        Raises:
            TraceconvError: the rank cannot be read, or not be spilled.
        """
        if self.summary is None and (kept := kept_view(capture, self.view)) is not None:
            return kept
        trace = events(capture, advance, self.view.comm_patterns)
        only = self.in_memory  # a single rank needs no collectives to compare
        records = CollectiveRecords.none(trace.rank) if only else collectives(capture, trace)
        shown = self.view.passes(zero_counters=False)
        if self.summary is not None:
            from traceconv.analysis import rank_summary
            from traceconv.analysis.summarize import summarize

            analysed = self.view.of_analysis.passes()
            distinct = _own_at_first(analysed, shown)
            begun, analysed = passed(trace, analysed[:distinct]), analysed[distinct:]
            if begun is trace:  # they change nothing, so what follows can be shared
                shared = _equal_at_first(shown, analysed)
                begun = trace = passed(trace, shown[:shared])
                shown, analysed = shown[shared:], analysed[shared:]
            analysed_trace = passed(begun, analysed)
            del begun
            content = rank_summary.encode(summarize(analysed_trace, self.summary))
            rank_summary.save(content, summary_path(self.folder, trace.rank))
            del analysed_trace
        trace = passed(trace, shown)
        path = None if self.in_memory else rank_path(self.folder, trace.rank)
        return _set_aside(trace, records, path, self.alone)


def _own_at_first(passes: Sequence[Pass], other_passes: Sequence[Pass]) -> int:
    """How many passes a view begins with that another has not; 0 if they share none."""
    other_meanings = [_meaning(a) for a in other_passes]
    return next((i for i, a in enumerate(passes) if _meaning(a) in other_meanings), 0)


def _equal_at_first(passes: Sequence[Pass], other_passes: Sequence[Pass]) -> int:
    """How many passes two views begin with that do the same."""
    pairs = enumerate(zip(passes, other_passes, strict=False))
    return next(
        (i for i, (a, b) in pairs if _meaning(a) != _meaning(b)),
        min(len(passes), len(other_passes)),
    )


def _meaning(stage: Pass) -> object:
    return (stage.func, stage.args, stage.keywords) if isinstance(stage, partial) else stage


def summary_path(folder: Path, rank: int) -> Path:
    """The file of a rank's summary."""
    from traceconv.analysis.rank_summary import SUFFIX

    return folder / f"rank-{rank}{SUFFIX}"


class Narrowing(msgspec.Struct, frozen=True):
    """Keep what is in a window of time, ns on the clock of ``spilled``; None = open."""

    spilled: SpilledRank
    start_ns: int | None
    end_ns: int | None
    path: Path | None


def narrow(job: Narrowing, advance: Progress) -> SpilledRank:
    """Carry out a :class:`Narrowing`."""
    window = job.start_ns, job.end_ns
    trace = time_window(job.spilled.load_within(*window), *window)
    return _set_aside(trace, job.spilled.collective_records(), job.path)


class Annotating(msgspec.Struct, frozen=True):
    """Add annotations to a rank."""

    spilled: SpilledRank
    marks: Sequence[Mark]
    path: Path | None


def annotated(job: Annotating, advance: Progress) -> SpilledRank:
    """Carry out an :class:`Annotating`."""
    from traceconv.passes.annotate import annotate

    trace = annotate(job.spilled.load(), job.marks)
    return _set_aside(trace, job.spilled.collective_records(), job.path)


def _set_aside(
    trace: Trace, records: CollectiveRecords, path: Path | None, alone: bool = False
) -> SpilledRank:
    return InMemoryRank(trace) if path is None else spill(trace, records, path, alone)


def events(capture: Capture, advance: Progress, comm_patterns: Sequence[str] = ()) -> Trace:
    """All events of one capture, as its reader gives them; of all parts of it, if it has parts.

    Raises:
        TraceconvError: it cannot be read, or its parts are not windows of one rank.
    """

    def read(part: Capture) -> Trace:
        part.source.progress = advance
        if isinstance(part.source, StoredSource):
            return part.source.trace(part, comm_patterns)
        build = TraceBuilder(part)
        build.comm_words = tuple(word.lower() for word in comm_patterns)
        return registry.read_capture(part, build)

    if not capture.parts or isinstance(capture.source, StoredSource):
        return read(capture)
    from traceconv.run.window_reading import read_windows

    return read_windows(capture, read)


def collectives(capture: Capture, trace: Trace) -> CollectiveRecords:
    """The collectives of a rank as it was read; a store has them."""
    if isinstance(capture.source, StoredSource):
        return capture.source.collective_records()
    return collective_records(trace)


def passed(trace: Trace, passes: Sequence[Pass]) -> Trace:
    """``trace`` after all ``passes``."""
    for stage in passes:
        trace = stage(trace)
    return trace
