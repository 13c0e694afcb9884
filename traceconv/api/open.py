"""Find captures, and read their traces one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from traceconv.alignment import plan as clocks
from traceconv.alignment.jobs import of_several_sizes
from traceconv.core import frames
from traceconv.core.errors import Issues, OptionError
from traceconv.core.job_shape import JobShape
from traceconv.core.markup import table_html
from traceconv.core.model import Capture, Trace
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.rank_tables import TABLES, arrow_table
from traceconv.core.source import Source
from traceconv.find import discovery
from traceconv.find.capture_ranks import labelled, shape_of_captures
from traceconv.find.capture_windows import twice
from traceconv.find.rank_selection import chosen
from traceconv.io.run_files import read_from
from traceconv.io.sources import sources
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.groups import Input, View
from traceconv.options.verbs import QueryOptions, TraceOptions
from traceconv.passes import Pass
from traceconv.run.stages import collectives, events, passed
from traceconv.store import is_store, store_file
from traceconv.writers.output import Progress

if TYPE_CHECKING:
    from traceconv.api.sql import Rows
    from traceconv.options.arguments import InputArguments, QueryArguments, TraceArguments


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

    def ranks(self, selected: values.Ranks | None, allow_missing: bool = False) -> Captures:
        """Only these ranks (None = all): ``3``, ``[0, 2]``, ``range(4)``, ``"0-7,12"``, or those at
        coordinates, ``"tp=0,pp=1"``.

        Raises:
            RankError: one of them is not there; coordinates are unknown, or no rank has them.
            OptionError: these are no ranks.
        """
        issues, ranks = self.issues.copy(), values.ranks(selected, "ranks")
        return replace(self, found=chosen(self.found, ranks, allow_missing, issues), issues=issues)

    @property
    def shape(self) -> JobShape:
        """The coordinates of the ranks, as far as the captures state them."""
        return shape_of_captures(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Capture]:
        return iter(self.found)

    def __repr__(self) -> str:
        ranks = format_ranges([capture.rank for capture in self.found if capture.rank is not None])
        readers = ", ".join(sorted({capture.reader for capture in self.found}))
        return f"<Captures: rank{'s' * (len(self) != 1)} {ranks} ({readers})>"

    def _repr_html_(self) -> str:
        """A row per rank, for notebooks."""
        rows = [
            (capture.rank, capture.reader, capture.title, capture.host) for capture in self.found
        ]
        return table_html(repr(self)[1:-1], ("rank", "format", "capture", "host"), rows)

    @takes(TraceOptions)
    def traces(
        self, mode: values.Mode | None = None, **keywords: Unpack[TraceArguments]
    ) -> Iterator[Trace]:
        """One trace per rank, read when the iteration comes to it.

        Args:
            mode: "summary" or "detail" for that view; None or "source" for the events as read, of
                which the selection is kept.

        Times are on one clock, as in a merge; ``align="none"`` leaves those of every rank as they
        were recorded. For ``align="auto"`` and "collective" several ranks are read twice.

        Raises:
            TraceconvError: see :mod:`traceconv.core.errors`; before the first trace, or for it.
        """
        options = TraceOptions.of({**keywords, "mode": mode})
        passes = (
            []
            if options.view == View(mode="source", comm_patterns=options.view.comm_patterns)
            else options.view.passes()
        )
        return self._traces(passes, options)

    def events(
        self, mode: values.Mode | None = "detail", **keywords: Unpack[TraceArguments]
    ) -> RankFrames:
        """The events of all ranks, as one data frame with a column ``rank``; read when it is made.

        Args:
            mode:  as of :meth:`traces`.
            keywords: keywords of :meth:`traces`.

        Raises:
            OptionError: a keyword has a wrong value.
        """
        TraceOptions.of({**keywords, "mode": mode})  # refuses before ranks are read
        return RankFrames(repr(self)[1:-1], lambda: self.traces(mode, **keywords))

    def to_arrow(
        self, mode: values.Mode | None = "detail", **keywords: Unpack[TraceArguments]
    ) -> dict[str, Any]:
        """The tables of all ranks, each a ``pyarrow.Table``, by name: ``events``, ``counters``,
        ``flows``, ``tracks`` and ``steps``, with the columns of the Parquet output.

        Args:
            mode:  as of :meth:`traces`.
            keywords: keywords of :meth:`traces`.

        Raises:
            MissingExtraError: pyarrow is not installed.
            TraceconvError: a rank cannot be read.
        """
        frames.extra("pyarrow", "arrow")  # refuses before ranks are read
        tables_by_name: dict[str, list[Any]] = {name: [] for name in TABLES}
        for trace in self.traces(mode, **keywords):
            for name, tables in tables_by_name.items():
                tables.append(arrow_table(trace, name))
        return {name: frames.arrow_below(tables) for name, tables in tables_by_name.items()}

    def sql(self, sql: str, **keywords: Unpack[QueryArguments]) -> Rows:
        """The rows that DuckDB finds in these captures.

        Args:
            sql:   statements; see :func:`traceconv.query` for the tables there are.
            keywords: keywords of :func:`traceconv.query`; those that say how captures are found do
                nothing here.

        Raises:
            MissingExtraError: DuckDB is not installed.
            OptionError: the SQL is not understood, or an argument is not.
            TraceconvError: a rank cannot be read.
        """
        from traceconv.api.sql import answer

        options = QueryOptions.of(keywords)
        if options.engine == "perfetto":
            raise OptionError("takes one trace file; use `traceconv.query`", "engine")
        selected = self.ranks(
            options.merge_options.selection.ranks, options.run.allow_missing_ranks
        )
        return answer(selected.found, selected.issues, sql, options)

    def _traces(self, passes: Sequence[Pass], options: TraceOptions) -> Iterator[Trace]:
        records, spans = None, {}
        patterns, align, progress = options.view.comm_patterns, options.align, options.progress
        if align in clocks.FROM_EVENTS and len(self.found) > 1:
            records = []
            for capture in self.found:
                trace = _events(capture, progress, patterns)
                records.append(collectives(capture, trace))
                spans[trace.rank] = trace.span()
                del trace  # one rank at a time
        plan = clocks.plan(self.found, align, records, spans=spans)
        for capture in self.found:
            trace = clocks.aligned(passed(_events(capture, progress, patterns), passes), plan)
            yield replace(trace, aligned=False) if align == "none" else trace


@dataclass(frozen=True)
class RankFrames:
    """The events of several ranks, for data frames."""

    captures: str
    traces: Callable[[], Iterable[Trace]]

    def __repr__(self) -> str:
        return f"<RankFrames of {self.captures}; to_pandas(), to_arrow() and to_polars() read them>"

    def _joined(self, args: str) -> frames.Frame:
        rank_frames = []
        for trace in self.traces():
            rank = np.full(len(trace.events), trace.rank, np.int64)
            rank_frames.append({"rank": rank, **trace.events.worded(args)})
        return frames.below(rank_frames)

    def to_pandas(self, args: Literal["json", "dict", "none"] = "json") -> Any:
        """A ``pandas.DataFrame``: ``rank``, and the columns of ``trace.events.to_pandas()``.

        Raises:
            MissingExtraError: pandas is not installed.
            TraceconvError: a rank cannot be read.
        """
        return frames.to_pandas(self._joined(args), complete=("rank", "start_ns", "dur_ns"))

    def to_arrow(self, args: Literal["json", "none"] = "json") -> Any:
        """A ``pyarrow.Table`` with the columns of :meth:`to_pandas`.

        Raises:
            MissingExtraError: pyarrow is not installed.
            TraceconvError: a rank cannot be read.
        """
        return frames.to_arrow(self._joined(args))

    def to_polars(self, args: Literal["json", "none"] = "json") -> Any:
        """A ``polars.DataFrame`` with the columns of :meth:`to_pandas`.

        Raises:
            MissingExtraError: polars is not installed.
            TraceconvError: a rank cannot be read.
        """
        return frames.to_polars(self._joined(args))


def _events(capture: Capture, progress: Progress, comm_patterns: Sequence[str]) -> Trace:
    label = f"rank {capture.rank}"
    return events(capture, lambda n: progress(n, 0, label), comm_patterns)


@takes(Input)
def open(*paths: values.Paths, **keywords: Unpack[InputArguments]) -> Captures:
    """Find the captures below ``paths``; reads names and small identity files, no events.

    Args:
        paths: files, folders, stores (:func:`traceconv.pack`), glob patterns, archives, URLs,
            ``-``; texts, ``Path`` or lists.

    Raises:
        SourceError, UnknownFormatError, AmbiguousFormatError, RankError: see those.
        OptionError: an argument has a wrong type.
    """
    return found_below(paths, Input.of(keywords))


def found_below(paths: Iterable[values.Paths], source: Input, pipes: bool = True) -> Captures:
    """As :func:`open`, of options that have been checked.

    Args:
        pipes: as of :func:`traceconv.io.sources.sources`.
    """
    return found_in(sources(values.paths(paths), pipes), source)


def found_in(below: Sequence[Source], source: Input) -> Captures:
    """As :func:`open`, of sources."""
    captures = unlabelled(below, source)
    return replace(captures, found=labelled(captures.found))


def unlabelled(below: Sequence[Source], source: Input) -> Captures:
    """The captures without the names that coordinates give to ranks in viewers."""
    stores = [source_below for source_below in below if is_store(source_below)]
    if not stores:
        discovered = discovery.discover(below, source.reader, source.mapping, source.nsys)
        captures = discovery.ranked(discovered, below, source.rank_from, source.reader)
        unknown = tuple(unknown_source.title(name) for unknown_source, name in discovered.unknown)
        return Captures(captures, unknown, discovered.issues)
    for name in ("reader", "mapping", "rank_from"):
        if getattr(source, name) != getattr(Input(), name):
            why = "was decided when the ranks were packed; give it to `traceconv pack`"
            raise OptionError(f"{stores[0].label}: {why}", name)
    read_from(path for store in stores if (path := store.path(store.names()[0])) is not None)
    inputs = [
        Captures(discovery.with_borders(ranks.captures), ranks.unknown, ranks.issues)
        for ranks in map(store_file.load, stores)
    ]
    if other_sources := [source_below for source_below in below if source_below not in stores]:
        inputs.append(unlabelled(other_sources, source))
    return _combined(inputs)


def _combined(inputs: Sequence[Captures]) -> Captures:
    """The ranks of several stores, and of captures besides.

    Raises:
        RankError: two of them have the same rank.
    """
    ranks: dict[int | None, Capture] = {}
    issues = Issues()
    for captures_of_input in inputs:
        issues.extend(captures_of_input.issues)
        for capture in captures_of_input.found:
            earlier = ranks.setdefault(capture.rank, capture)
            if earlier is not capture:
                raise twice(earlier, capture, "they are in two inputs")
    captures = tuple(sorted(ranks.values(), key=lambda capture: capture.rank or 0))
    if len(inputs) > 1 and (sizes := of_several_sizes(captures)):
        issues.add("jobs-mixed", sizes)
    return Captures(
        captures,
        tuple(name for captures_of_input in inputs for name in captures_of_input.unknown),
        issues,
    )
