"""Find captures, and read their traces one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from traceconv.alignment import plan as clocks
from traceconv.alignment.collective_records import collective_records
from traceconv.api import options
from traceconv.core.errors import Issues
from traceconv.core.job_shape import JobShape
from traceconv.core.model import Capture, Trace
from traceconv.find import registry
from traceconv.find.capture_ranks import shape_of_captures
from traceconv.find.rank_selection import chosen
from traceconv.io.sources import sources
from traceconv.passes import Pass, compose
from traceconv.run.settings import MergeOptions, Mode, Selection
from traceconv.run.stages import events, passed
from traceconv.writers.output import Progress, silent


@dataclass(frozen=True)
class Captures:
    """What :func:`open` found: one capture per rank, ascending, not yet read.

    Attributes:
        found:   the captures; every one has a rank.
        unknown: titles of files no reader knows.
        issues:  what finding them noted.
    """

    found: tuple[Capture, ...]
    unknown: tuple[str, ...] = ()
    issues: Issues = field(default_factory=Issues)

    def ranks(self, selected: options.Ranks | None, allow_missing: bool = False) -> Captures:
        """Only these ranks (None = all): ``3``, ``[0, 2]``, ``range(4)``, ``"0-7,12"``, or those at
        coordinates, ``"tp=0,pp=1"``.

        Raises:
            RankError: one of them is not there; coordinates are unknown, or no rank has them.
            OptionError: these are no ranks.
        """
        issues, ranks = self.issues.copy(), options.ranks(selected, "ranks")
        return replace(self, found=chosen(self.found, ranks, allow_missing, issues), issues=issues)

    @property
    def shape(self) -> JobShape:
        """The coordinates of the ranks, as far as the captures state them."""
        return shape_of_captures(self.found)

    def traces(
        self,
        mode: Mode | None = None,
        *,
        align: options.Align = "none",
        progress: Progress = silent,
        comm_patterns: options.Names = (),
        step_marker: str | None = None,
        graphs: options.Numbers | None = None,
        steps: options.Numbers | None = None,
        layers: options.Layers | None = None,
        exclude: str | None = None,
        merge_graphs: bool = True,
        scope: bool = False,
    ) -> Iterator[Trace]:
        """One trace per rank, read when the iteration comes to it.

        Args:
            mode: "summary" or "detail" for that view; None or "source" for the events as read, of
                which only what is asked for is kept.
            align: as in :func:`traceconv.merge`. For "auto" and "collective" ranks are read twice.

        The other arguments are those of :func:`traceconv.merge`.

        Raises:
            TraceconvError: see :mod:`traceconv.core.errors`; before the first trace, or for it.
        """
        kept = options.selection(graphs=graphs, steps=steps, layers=layers, exclude=exclude)
        patterns = options.words(comm_patterns, "comm_patterns") or ()
        marker = options.pattern(step_marker, "step_marker")
        view = MergeOptions(
            options.mode(mode), kept, merge_graphs=merge_graphs, scope=scope, step_marker=marker
        )
        as_read = view.mode == "source" and kept == Selection() and not scope and not marker
        passes = [] if as_read else compose(**view.view)
        return self._traces(passes, options.align(align), patterns, progress)

    def _traces(
        self, passes: Sequence[Pass], align: str, patterns: Sequence[str], progress: Progress
    ) -> Iterator[Trace]:
        known, spans = None, {}
        if align in clocks.FROM_EVENTS and len(self.found) > 1:
            known = []
            for capture in self.found:
                trace = _events(capture, progress, patterns)
                known.append(collective_records(trace))
                spans[trace.rank] = trace.span()
                del trace  # one rank at a time
        plan = clocks.plan(self.found, align, known, spans=spans)
        for capture in self.found:
            trace = passed(_events(capture, progress, patterns), passes)
            yield clocks.aligned(trace, plan)


def _events(capture: Capture, progress: Progress, comm_patterns: Sequence[str]) -> Trace:
    label = f"rank {capture.rank}"
    return events(capture, lambda n: progress(n, 0, label), comm_patterns)


def open(
    *paths: options.Paths,
    reader: str | None = None,
    rank_from: str = "meta",
    mapping: options.AnyPath | None = None,
    nsys: options.AnyPath | None = None,
) -> Captures:
    """Find the captures below ``paths``; reads names and small identity files, no events.

    Args:
        paths:     files, folders, glob patterns, archives, URLs, ``-``; texts, ``Path`` or lists.
        reader:    the one reader to ask, by name; None asks all.
        rank_from: "meta", "name" or a regular expression; see
                   :func:`traceconv.find.capture_ranks.resolve`.
        mapping:   columns of an event log: "name=Name,ts=Start (ns):ns,...", a preset, or a file.
        nsys:      the program that exports ``.nsys-rep``; None for the one on the path, if any.

    Raises:
        SourceError, UnknownFormatError, AmbiguousFormatError, RankError: see those.
        OptionError: an argument has a wrong type.
    """
    options.text(reader, "reader"), options.text(rank_from, "rank_from")
    below = sources(options.paths(paths))
    found = registry.discover(
        below, reader, options.path(mapping, "mapping"), options.path(nsys, "nsys")
    )
    captures = registry.ranked(found, below, rank_from, reader)
    unknown = tuple(source.title(name) for source, name in found.unknown)
    return Captures(captures, unknown, found.issues)
